//! Cuts content into literals and copies of what was before.
//!
//! Which bytes are copied is decided back to front: the cheapest way to write all from a byte on is its literal and
//! what follows, or the longest copy that is found and what follows that; longer ones are never worse, as a copy costs the
//! same whatever its length. Where they are copied *from* is decided front to back: of the places that have the bytes,
//! the one which leads to literals by the fewest steps. And if all of a copy's source was itself copied in one piece,
//! it is copied from there instead. So chains stay short, whether they are bounded or not.

/// A copy of `len` bytes at `at` from `source`, which is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub at: u32,
    pub len: u32,
    pub source: u32,
}

/// What may be copied, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The farthest that is copied from.
    pub window: usize,
    /// The shortest and the longest copy.
    pub lens: (usize, usize),
    /// Copies of copies of ... literals: how often at most.
    pub depth: u32,
    /// Places that are tried.
    pub tries: usize,
    /// Eighths of a bit: of a literal, of a copy, and of a bit of its distance.
    pub price: (u32, u32, u32),
}

/// Bytes that a place is found by.
const KEY: usize = 4;
const HASH_BITS: u32 = 16;
/// Copies as long as this are not compared with others.
const ENOUGH: usize = 512;
const NONE: u32 = u32::MAX;

fn hash(content: &[u8], at: usize) -> Option<usize> {
    let key = content.get(at..at + KEY)?.iter().rev().fold(0u32, |key, &b| key << 8 | u32::from(b));
    Some((key.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize)
}

/// How many bytes are the same from `a` and from the later `b` on, at most `most`.
fn common(content: &[u8], a: usize, b: usize, most: usize) -> usize {
    let (x, y) = (&content[a..], &content[b..content.len().min(b + most)]);
    let mut len = 0;
    while let (Some(x), Some(y)) = (x.get(len..len + 8), y.get(len..len + 8)) {
        if x != y {
            break;
        }
        len += 8;
    }
    len + x[len..].iter().zip(&y[len..]).take_while(|(x, y)| x == y).count()
}

/// Places before each that begin with the same bytes, as it seems.
struct Chains {
    before: Vec<u32>,
}

impl Chains {
    fn of(content: &[u8]) -> Chains {
        let mut heads = vec![NONE; 1 << HASH_BITS];
        let before = (0..content.len()).map(|at| match hash(content, at) {
            Some(hash) => std::mem::replace(&mut heads[hash], at as u32),
            None => NONE,
        });
        Chains { before: before.collect() }
    }

    /// Those no further than `window`, the nearest first.
    fn places(&self, at: usize, rules: &Rules) -> impl Iterator<Item = usize> {
        let least = at.saturating_sub(rules.window);
        let place = |before: u32| (before != NONE).then_some(before as usize);
        let first = place(self.before[at]);
        std::iter::successors(first, move |&p| place(self.before[p]))
            .take_while(move |&p| p >= least)
            .take(rules.tries)
    }
}

/// The copies, in order and apart from one another.
pub(super) fn parse(content: &[u8], rules: &Rules) -> Vec<Match> {
    let chains = Chains::of(content);
    let takes = choose(content, &chains, rules);
    let mut sources = Sources::new(content.len());
    let mut matches = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let len = takes[at] as usize;
        let found = match len {
            0 => None,
            _ => sources.find(content, &chains, rules, at, len),
        };
        match found {
            Some(m) => {
                at += m.len as usize;
                sources.copy(m, matches.len() as u32);
                matches.push(m);
            }
            None => {
                sources.literal();
                at += 1;
            }
        }
    }
    matches
}

/// Of each byte, how many are to be copied from it on; 0 for a literal.
fn choose(content: &[u8], chains: &Chains, rules: &Rules) -> Vec<u32> {
    let n = content.len();
    let (least, most) = rules.lens;
    // The longest at each place, and its distance.
    let mut longest: Vec<(u32, u32)> = Vec::with_capacity(n);
    for at in 0..n {
        let mut best = (0, 0);
        if let Some(&(len, distance)) = longest.last()
            && len as usize > ENOUGH
        {
            // What was found is as good one byte later.
            best = (len - 1, distance);
        } else {
            let limit = most.min(n - at);
            for place in chains.places(at, rules) {
                let at_end = best.0 as usize;
                if at_end >= limit || content[place + at_end] != content[at + at_end] {
                    continue;
                }
                let len = common(content, place, at, limit);
                if len > at_end {
                    best = (len as u32, (at - place) as u32);
                }
                if len >= ENOUGH.min(limit) {
                    // The rest of a long one is not looked for in all places.
                    break;
                }
            }
        }
        longest.push(best);
    }
    let (literal, copy, bit) = rules.price;
    let mut price = vec![0u64; n + 1];
    let mut takes = vec![0; n];
    for at in (0..n).rev() {
        let (len, distance) = longest[at];
        price[at] = price[at + 1] + u64::from(literal);
        if len as usize >= least {
            let copied = price[at + len as usize] + u64::from(copy + bit * distance.ilog2());
            if copied < price[at] {
                (price[at], takes[at]) = (copied, len);
            }
        }
    }
    takes
}

/// How far each byte so far is from a literal, and which copy it is in.
struct Sources {
    depths: Vec<u32>,
    /// Sums of the depths before each byte.
    sums: Vec<u64>,
    owners: Vec<u32>,
    copies: Vec<Match>,
}

impl Sources {
    fn new(len: usize) -> Sources {
        Sources {
            depths: Vec::with_capacity(len),
            sums: vec![0],
            owners: Vec::with_capacity(len),
            copies: Vec::new(),
        }
    }

    fn push(&mut self, depth: u32, owner: u32) {
        self.depths.push(depth);
        self.sums.push(self.sums[self.sums.len() - 1] + u64::from(depth));
        self.owners.push(owner);
    }

    fn literal(&mut self) {
        self.push(0, NONE);
    }

    fn copy(&mut self, m: Match, number: u32) {
        let period = m.at - m.source;
        for i in 0..m.len {
            // What overlaps itself is copied from its first period.
            let depth = self.depths[(m.source + i % period) as usize] + 1;
            self.push(depth, number);
        }
        self.copies.push(m);
    }

    /// The best place to copy `len` bytes from, or as many as there are within the depth.
    fn find(
        &self,
        content: &[u8],
        chains: &Chains,
        rules: &Rules,
        at: usize,
        len: usize,
    ) -> Option<Match> {
        let mut best: Option<(Match, u64)> = None;
        // Little of a long one is left where chains are bounded.
        let len = if rules.depth == u32::MAX { len } else { len.min(ENOUGH) };
        for place in chains.places(at, rules) {
            let same = match len > ENOUGH {
                // The chain is not walked for these: see where they were chosen.
                true => common(content, place, at, len),
                false if content[place..].starts_with(&content[at..at + len]) => len,
                false if rules.depth == u32::MAX => 0,
                false => common(content, place, at, len),
            };
            let Some(m) = self.within(rules, self.shorten(rules, at, place, same)) else {
                continue;
            };
            let cost = self.cost(&m);
            let is_better = best.is_none_or(|(b, price)| (m.len, price) > (b.len, cost));
            if is_better {
                best = Some((m, cost));
            }
            if m.len as usize == len && (len >= ENOUGH || cost == 0) {
                break;
            }
        }
        best.map(|(m, _)| m)
    }

    /// A copy from there, or from where that was copied from.
    fn shorten(&self, rules: &Rules, at: usize, place: usize, len: usize) -> Match {
        let mut m = Match { at: at as u32, len: len as u32, source: place as u32 };
        loop {
            let (from, last) =
                (m.source as usize, (m.source + m.len) as usize - usize::from(len > 0));
            let owner = self.owners[from];
            if owner == NONE || last >= self.owners.len() || self.owners[last] != owner {
                return m;
            }
            let above = self.copies[owner as usize];
            let period = above.at - above.source;
            let inside = (m.source - above.at) % period;
            let source = above.source + inside;
            if inside + m.len > period || at - source as usize > rules.window {
                return m;
            }
            m.source = source;
        }
    }

    /// As much of a copy as is within the depth, if that is enough to be copied.
    fn within(&self, rules: &Rules, mut m: Match) -> Option<Match> {
        if rules.depth != u32::MAX {
            let (period, from) = ((m.at - m.source).min(m.len) as usize, m.source as usize);
            let depths = &self.depths[from..from + period];
            if let Some(first) = depths.iter().position(|&depth| depth >= rules.depth) {
                m.len = first as u32;
            }
        }
        (m.len as usize >= rules.lens.0).then_some(m)
    }

    /// Steps to the literals of all its bytes.
    fn cost(&self, m: &Match) -> u64 {
        let period = (m.at - m.source).min(m.len);
        self.sums[(m.source + period) as usize] - self.sums[m.source as usize]
    }
}
