//! High compression: matches that go far, and the cheapest way through them.
//!
//! A match takes three bytes however far away it is and, up to 18 bytes, however long; and what is left of one that begins later or ends earlier is one, too. So a match is needless that begins where
//! another one has begun and does not go on for longer. What is found is kept as spans, each of which begins and ends behind the one before. The cheapest way to a place is by the earliest span that covers
//! it, or by literals from the last that does not; so it is found for each span, and not for each byte.
//!
//! Places with the same bytes are chained, those with the same four and, of higher levels, with as many of greater lengths. All matches that begin within another one and go on behind its end have the bytes
//! around that end: a look at `len - 1` bytes before it walks through the chain of those of which all `len` are the same, and finds whichever began up to there. So there is one look for each chain.

use super::encode::{FARTHEST, Writer, extra};
use super::{BEFORE_END, LAST_LITERALS, LEAST, LONG};
use crate::codec::matches::{Cursor, FIBONACCI, common_back, eight};
use crate::pages::{Pieces, Room};
use crate::wire::load_u64;

/// How much a search looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Chains of places with the same bytes: 1, 2, 3, 6 or 8.
    pub chains: usize,
    /// Places of a chain that are compared.
    pub depth: u32,
    /// Matches that begin in the last two bytes of another one are looked for even where none was found that begins earlier.
    pub is_thorough: bool,
}

/// Of how many bytes the chains are, if there are so many.
const fn lengths(chains: usize) -> &'static [usize] {
    match chains {
        1 => &[LEAST],
        2 => &[LEAST, 6],
        3 => &[LEAST, 5, 8],
        6 => &[LEAST, 5, 6, 7, 8, 16],
        _ => &[LEAST, 5, 6, 7, 8, 10, 12, 16],
    }
}

/// A match of so many bytes is long enough.
const ENOUGH: usize = 1024;
/// So many places are taken note of together: one by one, how many there are until the next look is nothing that a processor foresees. What is that much before [`FARTHEST`] is forgotten by then.
const AHEAD: usize = 64;
/// So far a match is continued to its front.
const BACK: usize = 255;
/// Bytes of a match whose length takes no more than its half of a token.
const SHORT: u32 = (LEAST + LONG - 1) as u32;
/// A match is not begun later for that if so many more bytes of it would be left out.
const LATEST: u32 = 64;
/// The way so far is written when there are so many spans, or when it costs so much.
const MOST: (usize, u32) = (1 << 12, 1 << 30);

/// What costs are counted in: of ways that take as many bytes the one of fewer matches is better to read.
const BYTE: u32 = 256;
const MATCH: u32 = 3 * BYTE + 1;

/// What literals cost; of more than that as many, since no way is better than another for them.
#[inline(always)]
fn literals(len: u32) -> u32 {
    let len = len.min(1 << 16);
    BYTE * if len < LONG as u32 { len } else { len + extra(len as usize) as u32 }
}

/// The last step of the cheapest way to a place.
#[derive(Clone, Copy)]
enum Step {
    /// Literals from the end of the last of so many spans, or from where all begins.
    Behind(u32),
    /// A span, by its number, up to the place.
    By(u32),
    /// The last [`SHORT`] bytes of it.
    Late(u32),
    /// Literals from its start.
    Within(u32),
}

/// The cheapest way to a place: what it costs, and its last step.
type Way = (u32, Step);

/// Bytes that are the same as those `distance` before.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
    distance: u32,
    to_start: Way,
    to_end: Way,
}

impl Span {
    /// What it costs to come by it from its start to a place within.
    #[inline(always)]
    fn cost(&self, to: u32) -> u32 {
        let len = to - self.start;
        let more = if len <= SHORT { 0 } else { extra(len as usize - LEAST) as u32 };
        self.to_start.0 + MATCH + BYTE * more.min(1 << 16)
    }
}

/// Spans that none of the others makes needless: each starts and ends behind the one before.
#[derive(Default)]
struct Spans {
    spans: Vec<Span>,
    /// Where the first way begins.
    base: u32,
    /// Where a match may begin is before this.
    last: u32,
    way: Vec<(u32, u32, u32)>,
}

impl Spans {
    /// The cheapest way to a place behind the starts of the first `count`; the last match of it may begin late only where that is asked for, as else one would lead to another through all
    /// that lie across each other.
    fn reach<const LATE: bool>(&self, count: usize, place: u32) -> Way {
        let mut best = (u32::MAX, Step::Behind(0));
        let mut is_late = !LATE;
        for (i, span) in self.spans[..count].iter().enumerate().rev() {
            let number = i as u32;
            if span.end <= place {
                let cost = span.to_end.0 + literals(place - span.end);
                return if cost < best.0 { (cost, Step::Behind(number + 1)) } else { best };
            }
            let len = place - span.start;
            let way = match len < LEAST as u32 {
                true => (span.to_start.0 + BYTE * len, Step::Within(number)),
                false => (span.cost(place), Step::By(number)),
            };
            if way.0 <= best.0 {
                best = way;
            }
            if !is_late && len > SHORT {
                is_late = true;
                best = self.late(number, place, best);
            }
        }
        let cost = literals(place - self.base);
        if cost < best.0 { (cost, Step::Behind(0)) } else { best }
    }

    /// The better of a way and of one by a span to a place within, begun as late as costs nothing for its length.
    #[inline(always)]
    fn late(&self, number: u32, place: u32, best: Way) -> Way {
        let more = place - SHORT - self.spans[number as usize].start;
        if more >= LATEST {
            return best;
        }
        let cost = self.reach::<false>(number as usize + 1, place - SHORT).0 + MATCH;
        if cost < best.0 { (cost, Step::Late(number)) } else { best }
    }

    /// Adds one that ends behind all others.
    fn push(&mut self, start: u32, end: u32, distance: u32) {
        let start = start.max(self.base);
        if end < start + LEAST as u32 || start >= self.last {
            return;
        }
        while self.spans.last().is_some_and(|last| last.start >= start) {
            self.spans.pop();
        }
        let count = self.spans.len();
        let number = count as u32;
        let (before, cost) = match self.spans.last() {
            Some(last) => (last.end, last.to_end.0),
            None => (self.base, 0),
        };
        let to_start = match start.checked_sub(before) {
            Some(gap) => (cost + literals(gap), Step::Behind(number)),
            None => self.reach::<true>(count, start),
        };
        let without = (cost + literals(end - before), Step::Behind(number));
        self.spans.push(Span { start, end, distance, to_start, to_end: without });
        let last = &mut self.spans[count];
        let by = (last.cost(end), Step::By(number));
        if by.0 <= without.0 {
            last.to_end = by;
        }
        if end - start > SHORT {
            self.spans[count].to_end = self.late(number, end, self.spans[count].to_end);
        }
    }

    /// True when there are so many, or they are so far apart, that the way so far has to be written.
    fn is_full(&self) -> bool {
        self.spans.len() >= MOST.0 || self.spans.last().is_some_and(|last| last.to_end.0 >= MOST.1)
    }

    /// Writes the cheapest way to the end of the last; returns where literals begin behind that.
    fn write<S: Pieces, D: Room>(&mut self, writer: &mut Writer<'_, S, D>) -> Option<usize> {
        let (mut place, mut step) =
            self.spans.last().map_or((0, Step::Behind(0)), |last| (last.end, last.to_end.1));
        loop {
            (place, step) = match step {
                Step::Behind(0) => break,
                Step::Behind(count) => {
                    let span = self.spans[count as usize - 1];
                    (span.end, span.to_end.1)
                }
                Step::By(number) => {
                    let span = self.spans[number as usize];
                    self.way.push((span.start, place, span.distance));
                    (span.start, span.to_start.1)
                }
                Step::Late(number) => {
                    let start = place - SHORT;
                    self.way.push((start, place, self.spans[number as usize].distance));
                    (start, self.reach::<false>(number as usize + 1, start).1)
                }
                Step::Within(number) => {
                    let span = self.spans[number as usize];
                    (span.start, span.to_start.1)
                }
            };
        }
        self.spans.clear();
        let mut base = self.base as usize;
        while let Some((start, end, distance)) = self.way.pop() {
            let (start, end) = (start as usize, end as usize);
            writer.put(base, start - base, end - start, distance as usize)?;
            base = end;
        }
        self.base = base as u32;
        Some(base)
    }
}

/// What a search works with.
#[derive(Default)]
pub(in crate::codec) struct Tables {
    /// As many as were needed, a [`Chain`] each.
    chains: Vec<u32>,
    /// More than all places that were added.
    used: u32,
    spans: Spans,
}

/// Bits of a hash.
const BITS: u32 = 15;

/// Where as many bytes with the same hash were met: by the hash, where last, and more: of each content more than of the one before, so that what is left of that is too far away. Then of each of the last
/// places, where before it.
type Chain = [u32; CHAIN];

const CHAIN: usize = PLACES + (1 << 16);

/// Of as many hashes.
const PLACES: usize = 1 << BITS;

/// A match that is continued to its front.
#[derive(Clone, Copy)]
struct Match {
    start: usize,
    end: usize,
    distance: usize,
}

/// All that is the same around two places. Apart, so that looks that find nothing prepare nothing for it.
#[inline(never)]
fn around<S: Pieces>(cursor: &Cursor<'_, S>, there: usize, at: usize, end: usize) -> Match {
    let len = cursor.common(there, at, end);
    let back = common_back(cursor.src(), there, at, BACK);
    Match { start: at - back, end: at + len, distance: at - there }
}

struct Finder<'a, const N: usize> {
    chains: &'a mut [Chain; N],
    /// What is added to places.
    first: u32,
    /// What was found at a place, but for what others make needless: each starts and ends behind the one before.
    front: Vec<Match>,
}

/// Where a chain says what is before a place.
#[inline(always)]
fn before(at: usize) -> usize {
    PLACES + (at & FARTHEST)
}

/// Where the first `len` bytes of some are noted: they begin with these eight, and end with those, where they are more.
#[inline(always)]
fn hash(len: usize, bits: u64, more: impl Fn() -> u64) -> usize {
    let bits = match len {
        ..=8 => bits << (64 - 8 * len),
        _ => bits.wrapping_mul(FIBONACCI).rotate_left(32) ^ more(),
    };
    (bits.wrapping_mul(FIBONACCI) >> (64 - BITS)) as usize
}

#[inline(always)]
fn note(chain: &mut Chain, at: usize, first: u32, hash: usize) {
    chain[before(at)] = std::mem::replace(&mut chain[hash], at as u32 + first);
}

impl<const N: usize> Finder<'_, N> {
    const LENGTHS: [usize; N] = *lengths(N).first_chunk().unwrap();
    /// Bytes that are read at a place.
    const LONGEST: usize = if Self::LENGTHS[N - 1] > 8 { Self::LENGTHS[N - 1] } else { 8 };

    /// Takes note of all places from one to another, which may lie ahead of those that are looked at: what is before a place is found by the place itself.
    #[inline(always)]
    fn insert(&mut self, src: &impl Pieces, mut at: usize, to: usize) {
        while at < to {
            let piece = src.at(at);
            let within = (piece.len() + 1).saturating_sub(Self::LONGEST).min(to - at);
            let bytes = &piece[..(within + Self::LONGEST - 1).min(piece.len())];
            for (i, bytes) in bytes.windows(Self::LONGEST).enumerate() {
                let bits = load_u64(bytes, 0);
                for (chain, len) in self.chains.iter_mut().zip(Self::LENGTHS) {
                    let hash = hash(len, bits, || load_u64(bytes, len - 8));
                    note(chain, at + i, self.first, hash);
                }
            }
            at += within;
            // Those whose bytes lie across a border, and at the end.
            let border = to.min(at + piece.len() - within);
            for at in at..border {
                for (chain, len) in self.chains.iter_mut().zip(Self::LENGTHS) {
                    // What lies that near to the end is not looked for.
                    if at + len > src.len() {
                        break;
                    }
                    let more = || eight(src, at + len - 8);
                    note(chain, at, self.first, hash(len, eight(src, at), more));
                }
            }
            at = border;
        }
    }

    /// The chain of those that have more than so many bytes, or the most that there is.
    #[inline(always)]
    fn chain(past: usize) -> usize {
        Self::LENGTHS[1..].iter().map(|&len| usize::from(past >= len - 1)).sum()
    }

    /// Finds matches of a place that was taken note of, of more than so many bytes: the longest and, with more than one chain, those that begin before it. They are then the front.
    #[inline(always)]
    fn find<S: Pieces>(
        &mut self,
        cursor: &Cursor<'_, S>,
        at: usize,
        past: usize,
        end: usize,
        depth: u32,
    ) {
        let src = cursor.src();
        self.front.clear();
        let here = at as u32 + self.first;
        let past = past.max(LEAST - 1);
        if at + past >= end {
            return;
        }
        // What a longer one must have, the last four bytes of which are compared first.
        let mut least = past;
        let mut last = src.load::<4>(at + least - 3);
        // And what one that begins earlier must have: a place before those that were found, with its bytes.
        let mut early = None;
        let mut chain = Self::chain(least);
        let mut found = self.chains[chain][before(at)];
        for _ in 0..depth {
            let distance = (here - found) as usize;
            if distance > FARTHEST - AHEAD {
                break;
            }
            let there = at - distance;
            found = self.chains[chain][before(there)];
            let is_long = src.load::<4>(there + least - 3) == last;
            let is_early = N > 1
                && early.is_some_and(|(place, bytes)| {
                    distance <= place && src.load::<4>(place - distance) == bytes
                });
            if !is_long && !is_early {
                continue;
            }
            let this = around(cursor, there, at, end);
            let len = this.end - at;
            if len <= past {
                continue;
            }
            if len > least {
                while self.front.last().is_some_and(|last| last.start >= this.start) {
                    self.front.pop();
                }
                self.front.push(this);
                if len >= ENOUGH || this.end >= end {
                    break;
                }
                least = len;
                last = src.load::<4>(at + least - 3);
                if Self::chain(least) > chain {
                    // Those in it that are nearer would have been found to be longer.
                    chain = Self::chain(least);
                    found = self.chains[chain][before(at)];
                }
            } else if self.front.first().is_some_and(|first| this.start < first.start) {
                self.front.retain(|other| other.end > this.end);
                self.front.insert(0, this);
            } else {
                continue;
            }
            if N > 1 {
                early = match self.front[0].start {
                    0 => None,
                    start if start == at || start + BACK == at => None,
                    start => Some((start - 1, src.load::<4>(start - 1))),
                };
            }
        }
    }
}

/// Compresses all of `src`; returns how many bytes that took, or `None` where there is no room for them.
pub(super) fn encode(
    effort: Effort,
    src: &impl Pieces,
    dst: impl Room,
    tables: &mut Tables,
) -> Option<usize> {
    let mut writer = Writer::new(src, dst);
    let anchor = match effort.chains {
        1 => through::<_, _, 1>(&mut writer, effort, tables)?,
        2 => through::<_, _, 2>(&mut writer, effort, tables)?,
        3 => through::<_, _, 3>(&mut writer, effort, tables)?,
        6 => through::<_, _, 6>(&mut writer, effort, tables)?,
        _ => through::<_, _, 8>(&mut writer, effort, tables)?,
    };
    writer.finish(anchor)
}

/// Writes all matches; returns where the last literals begin.
#[inline(always)]
fn through<S: Pieces, D: Room, const N: usize>(
    writer: &mut Writer<'_, S, D>,
    effort: Effort,
    tables: &mut Tables,
) -> Option<usize> {
    let src = writer.src();
    // Where a match may begin is before this, and where it may end.
    let (Some(last), Some(end)) =
        ((src.len() + 1).checked_sub(BEFORE_END), src.len().checked_sub(LAST_LITERALS))
    else {
        return Some(0);
    };
    let Tables { chains, used, spans } = tables;
    let gap = FARTHEST as u32 + 1;
    let room = src.len().try_into().ok().and_then(|len: u32| len.checked_add(gap));
    let Some(len) = room else {
        // No block is as long; its places would not fit.
        return Some(0);
    };
    let first = match used.checked_add(len) {
        Some(_) => *used + gap,
        None => {
            chains.clear();
            gap
        }
    };
    *used = first + (len - gap);
    chains.resize(chains.len().max(N * CHAIN), 0);
    let chains = chains.as_chunks_mut().0.first_chunk_mut::<N>()?;
    let mut finder = Finder { chains, first, front: Vec::new() };
    spans.spans.clear();
    spans.way.clear();
    (spans.base, spans.last) = (0, last as u32);
    let mut cursor = Cursor::new(src);
    // How far what was found goes, what was taken note of, and what is looked at.
    let (mut reach, mut noted, mut at) = (0, 0, 0);
    while at < last {
        if at >= noted {
            let to = last.min(at + AHEAD);
            finder.insert(src, noted, to);
            noted = to;
        }
        cursor.seek(at);
        let past = usize::saturating_sub(reach, at);
        finder.find(&cursor, at, past, end, effort.depth);
        at += 1;
        for &Match { start, end, distance } in &finder.front {
            reach = end;
            spans.push(start as u32, end as u32, distance as u32);
        }
        if !finder.front.is_empty() && spans.is_full() {
            spans.write(writer)?;
        }
        let left = reach.saturating_sub(at);
        at = match Finder::<N>::LENGTHS.iter().rev().find(|&len| *len - 1 <= left) {
            Some(len) => reach - (len - 1),
            None if effort.is_thorough => at,
            None => at.max(reach),
        };
    }
    spans.write(writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::One;

    fn block(data: &[u8], chains: usize, tables: &mut Tables) -> Vec<u8> {
        let mut room = vec![0; crate::codec::lz4::bound(data.len())];
        let effort = Effort { chains, depth: 8, is_thorough: chains > 1 };
        let len = encode(effort, &data, One::from(room.as_mut_slice()), tables).unwrap();
        room.truncate(len);
        room
    }

    #[test]
    fn places_may_wrap() {
        let data: Vec<u8> = (0..3000u32).flat_map(|i| (i * i % 611).to_le_bytes()).collect();
        let chains = [1, 2, 3, 6, 8];
        let fresh = chains.map(|chains| block(&data, chains, &mut Tables::default()));
        assert!(fresh.iter().all(|block| block.len() < data.len() / 2));
        let mut tables = Tables { used: u32::MAX - 100_000, ..Tables::default() };
        for i in 0..20 {
            assert!(block(&data, chains[i % 5], &mut tables) == fresh[i % 5]);
        }
        assert!(tables.used < u32::MAX / 2, "it did not wrap");
    }
}
