//! Chooses what of the matches a frame is made of: the cheapest way through a segment, at the prices that what was chosen before it
//! gives literals, lengths and offsets.

use std::ops::Range;

use super::find::{Found, LONG, common};
use crate::codec::prepared::Phrase;

/// Prices are in 256ths of a bit.
const BIT: u32 = 256;
/// A phrase costs so much more than its bits: few long ones are decoded faster.
const PHRASE: u32 = BIT / 4;
/// What is parsed at once, at the same prices.
const PIECE: usize = 16 << 10;
/// Pieces that prices are learned from before the first is parsed again.
const LEARNED: usize = 4;
/// Of a match all lengths up to this are tried, and the longest ones.
const SHORT: u32 = 24;
/// Matches have three bytes at least.
const LEAST: u32 = 3;
/// The format's longest.
const MOST: u32 = 65_538;
/// No distance.
const NONE: u32 = u32::MAX;
/// What no way leads to.
const FAR_AWAY: u32 = u32::MAX / 2;

/// log2, in 256ths, between powers of two along a line.
fn log2(n: u32) -> u32 {
    let whole = n.ilog2();
    let part = (u64::from(n) << 8 >> whole) as u32 - 256;
    whole * 256 + part
}

/// Class of a number of literals, and how many bits follow (RFC 8878, 3.1.1.3.2.1.1).
fn literal_class(literals: u32) -> (usize, u32) {
    let (class, bits) = match literals {
        0..16 => (literals, 0),
        16..24 => (16 + (literals - 16) / 2, 1),
        24..32 => (20 + (literals - 24) / 4, 2),
        32..48 => (22 + (literals - 32) / 8, 3),
        48..64 => (24, 4),
        _ => (literals.min(131_071).ilog2() + 19, literals.min(131_071).ilog2()),
    };
    (class as usize, bits)
}

/// The same of a length.
fn length_class(len: u32) -> (usize, u32) {
    let value = len.min(MOST) - LEAST;
    let (class, bits) = match value {
        0..32 => (value, 0),
        32..40 => (32 + (value - 32) / 2, 1),
        40..48 => (36 + (value - 40) / 4, 2),
        48..64 => (38 + (value - 48) / 8, 3),
        64..96 => (40 + (value - 64) / 16, 4),
        96..128 => (42, 5),
        _ => (value.ilog2() + 36, value.ilog2()),
    };
    (class as usize, bits)
}

/// The three distances that phrases may repeat.
type History = [u32; 3];

/// What is written for a distance, and the history behind it (RFC 8878, 3.1.1.5).
#[inline(always)]
fn offset(history: History, literals: u32, distance: u32) -> (u32, History) {
    let [a, b, _] = history;
    for (k, (repeated, after)) in repeats(history, literals).into_iter().enumerate() {
        if repeated == distance {
            return (k as u32 + 1, after);
        }
    }
    (distance + 3, [distance, a, b])
}

/// What can be repeated, and the history behind each.
#[inline(always)]
fn repeats([a, b, c]: History, literals: u32) -> [(u32, History); 3] {
    if literals > 0 {
        [(a, [a, b, c]), (b, [b, a, c]), (c, [c, a, b])]
    } else {
        // The last one would only have made its match longer.
        let less = if a == NONE { NONE } else { a - 1 };
        [(b, [b, a, c]), (c, [c, a, b]), (less, [less, a, b])]
    }
}

/// How often what was written, and what it costs by that.
struct Prices {
    literals: [u32; 256],
    runs: [u32; 36],
    lengths: [u32; 53],
    offsets: [u32; 32],
    literal: [u32; 256],
    /// With their bits, of short ones by number.
    run: [u32; 64],
    run_class: [u32; 36],
    length: [u32; 260],
    length_class: [u32; 53],
    offset: [u32; 32],
}

impl Prices {
    /// Before anything is known but the bytes.
    fn of(bytes: &[u8]) -> Prices {
        let mut prices = Prices {
            literals: [0; 256],
            runs: [1; 36],
            lengths: [1; 53],
            offsets: [1; 32],
            literal: [0; 256],
            run: [0; 64],
            run_class: [0; 36],
            length: [0; 260],
            length_class: [0; 53],
            offset: [0; 32],
        };
        bytes.iter().for_each(|&byte| prices.literals[usize::from(byte)] += 1);
        prices.literals.iter_mut().for_each(|count| *count = 1 + *count / 16);
        prices.runs[0] = 4;
        prices.runs[1] = 2;
        prices.offsets[..11].copy_from_slice(&[6, 2, 1, 1, 2, 3, 4, 4, 4, 3, 2]);
        prices.set();
        prices
    }

    fn set(&mut self) {
        fn each(counts: &[u32], prices: &mut [u32]) {
            let all = log2(counts.iter().sum::<u32>() + 1);
            for (price, &count) in prices.iter_mut().zip(counts) {
                *price = all.saturating_sub(log2(count + 1));
            }
        }
        each(&self.literals, &mut self.literal);
        // Codewords have a bit at least, and eleven at most.
        self.literal.iter_mut().for_each(|price| *price = (*price).clamp(180, 11 * BIT + BIT / 2));
        each(&self.runs, &mut self.run_class);
        each(&self.lengths, &mut self.length_class);
        each(&self.offsets, &mut self.offset);
        for (bits, price) in self.offset.iter_mut().enumerate() {
            *price += bits as u32 * BIT;
        }
        let run = |class: &[u32; 36], literals| {
            let (number, bits) = literal_class(literals);
            class[number] + bits * BIT
        };
        self.run = std::array::from_fn(|literals| run(&self.run_class, literals as u32));
        self.length = std::array::from_fn(|len| {
            let (number, bits) = length_class((len as u32).max(LEAST));
            self.length_class[number] + bits * BIT
        });
    }

    #[inline(always)]
    fn run(&self, literals: u32) -> u32 {
        match self.run.get(literals as usize) {
            Some(&price) => price,
            None => {
                let (number, bits) = literal_class(literals);
                self.run_class[number] + bits * BIT
            }
        }
    }

    #[inline(always)]
    fn length(&self, len: u32) -> u32 {
        match self.length.get(len as usize) {
            Some(&price) => price,
            None => {
                let (number, bits) = length_class(len);
                self.length_class[number] + bits * BIT
            }
        }
    }

    /// What was long ago counts less.
    fn fade(&mut self) {
        fn half(counts: &mut [u32], most: u32) {
            if counts.iter().sum::<u32>() > most {
                counts.iter_mut().for_each(|count| *count = (*count - *count / 2).max(1));
            }
        }
        half(&mut self.literals, 1 << 15);
        half(&mut self.runs, 1 << 13);
        half(&mut self.lengths, 1 << 13);
        half(&mut self.offsets, 1 << 13);
    }

    /// Counts a phrase; returns the history behind it.
    fn count(&mut self, phrase: &Phrase, history: History) -> History {
        let (offset, history) = offset(history, phrase.literals, phrase.distance);
        self.runs[literal_class(phrase.literals).0] += 1;
        self.lengths[length_class(phrase.len).0] += 1;
        self.offsets[offset.ilog2() as usize] += 1;
        history
    }

    fn count_literals(&mut self, literals: &[u8]) {
        literals.iter().for_each(|&literal| self.literals[usize::from(literal)] += 1);
    }
}

/// A place, and the cheapest way there that is known.
#[derive(Clone, Copy)]
struct Node {
    price: u32,
    /// Literals behind the last match.
    literals: u32,
    /// Length of the match that ends here; 0 where a literal does.
    len: u32,
    distance: u32,
    history: History,
}

const UNKNOWN: Node =
    Node { price: FAR_AWAY, literals: 0, len: 0, distance: 0, history: [NONE; 3] };

/// Parses segments.
#[derive(Default)]
pub(super) struct Parser {
    nodes: Vec<Node>,
    /// Of the last segment.
    pub phrases: Vec<Phrase>,
}

impl Parser {
    /// Fills the phrases of a segment. Returns how many literals are behind them.
    pub fn parse(&mut self, text: &[u8], segment: Range<usize>, found: &Found) -> u32 {
        let mut prices = Prices::of(&text[segment.clone()]);
        let learned = segment.len().min(LEARNED * PIECE);
        self.go(text, segment.start..segment.start + learned, found, &mut prices);
        self.go(text, segment, found, &mut prices)
    }

    fn go(
        &mut self,
        text: &[u8],
        segment: Range<usize>,
        found: &Found,
        prices: &mut Prices,
    ) -> u32 {
        self.phrases.clear();
        // Nothing is known of what is before the segment.
        let (mut history, mut literals) = ([NONE; 3], 0);
        for start in segment.clone().step_by(PIECE) {
            let end = segment.end.min(start + PIECE);
            self.nodes.clear();
            self.nodes.resize(end - start + 1, UNKNOWN);
            self.nodes[0] = Node { price: 0, literals, history, ..UNKNOWN };
            let piece = Piece { text: &text[..end], start, nodes: &mut self.nodes, prices };
            piece.run(|at| found.at(at - segment.start));
            let first = self.phrases.len();
            let mut at = end - start;
            while at > 0 {
                let Node { len, distance, .. } = self.nodes[at];
                at -= len.max(1) as usize;
                if len > 0 {
                    let literals = self.nodes[at].literals;
                    self.phrases.push(Phrase { literals, len, distance });
                }
            }
            self.phrases[first..].reverse();
            prices.fade();
            let mut at = start;
            for phrase in &self.phrases[first..] {
                // Those that are before the piece were counted with it.
                let behind = at + (phrase.literals - std::mem::take(&mut literals)) as usize;
                prices.count_literals(&text[at..behind]);
                history = prices.count(phrase, history);
                at = behind + phrase.len as usize;
            }
            prices.count_literals(&text[at..end]);
            prices.set();
            let arrived = self.nodes[end - start];
            debug_assert_eq!(arrived.history, history);
            literals = arrived.literals;
        }
        literals
    }
}

/// What is parsed at once, of a text that ends where it does.
struct Piece<'a> {
    text: &'a [u8],
    start: usize,
    nodes: &'a mut [Node],
    prices: &'a Prices,
}

impl Piece<'_> {
    /// Finds the cheapest way to each place, from the first on.
    fn run<'f>(mut self, found: impl Fn(usize) -> &'f [super::find::Match]) {
        let (text, prices) = (self.text, self.prices);
        // Within a match that long nothing else is looked at.
        let mut taken = self.start;
        for at in self.start..text.len() {
            let i = at - self.start;
            let node = self.nodes[i];
            if at < taken || node.price >= FAR_AWAY {
                continue;
            }
            let price = node.price + prices.literal[usize::from(text[at])];
            let literals = node.literals + 1;
            let next = &mut self.nodes[i + 1];
            if price + prices.run(literals) < next.price.saturating_add(prices.run(next.literals)) {
                *next = Node { price, literals, len: 0, distance: 0, history: node.history };
            }
            let rest = (text.len() - at) as u32;
            if rest < LEAST {
                continue;
            }
            let price = node.price + prices.run(node.literals) + PHRASE;
            let repeats = repeats(node.history, node.literals);
            for (k, (distance, history)) in repeats.into_iter().enumerate() {
                if distance == 0 || distance as usize > at {
                    continue;
                }
                let most = common(text, at - distance as usize, at, 0, rest);
                let price = price + prices.offset[usize::from(k > 0)];
                self.try_all(i, LEAST..=most, price, distance, history);
                taken = taken.max(if most >= LONG { at + most as usize } else { 0 });
            }
            if taken > at {
                continue;
            }
            let mut least = LEAST;
            let [a, b, _] = node.history;
            for found in found(at) {
                let distance = found.distance;
                let most = match found.len {
                    LONG.. => common(text, at - distance as usize, at, 0, rest),
                    len => len.min(rest),
                };
                // What is repeated was tried.
                if repeats.iter().all(|(repeated, _)| *repeated != distance) {
                    let price = price + prices.offset[(distance + 3).ilog2() as usize];
                    self.try_all(i, least..=most, price, distance, [distance, a, b]);
                }
                taken = taken.max(if most >= LONG { at + most as usize } else { 0 });
                least = least.max(most + 1);
            }
        }
    }

    /// Tries a match with each of these lengths, or those that count.
    #[inline(always)]
    fn try_all(
        &mut self,
        i: usize,
        lens: std::ops::RangeInclusive<u32>,
        price: u32,
        distance: u32,
        history: History,
    ) {
        let (least, most) = (*lens.start(), (*lens.end()).min(MOST));
        let none = self.prices.run[0];
        let mut len = if most >= LONG { most.max(least) } else { least };
        while len <= most {
            let price = price + self.prices.length(len);
            let there = &mut self.nodes[i + len as usize];
            let known = there.price.saturating_add(self.prices.run(there.literals));
            if price + none < known {
                *there = Node { price, literals: 0, len, distance, history };
            }
            // Lengths that are neither short nor near the longest are as good as never best.
            len += if len >= SHORT && len + 4 < most { most - 4 - len } else { 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_format() {
        let literals = [(0, 0, 0), (15, 15, 0), (16, 16, 1), (23, 19, 1), (24, 20, 2), (31, 21, 2)];
        let more = [(32, 22, 3), (47, 23, 3), (48, 24, 4), (63, 24, 4), (64, 25, 6), (127, 25, 6)];
        for (count, class, bits) in literals.into_iter().chain(more).chain([(65_536, 35, 16)]) {
            assert_eq!(literal_class(count), (class, bits), "{count}");
        }
        let lens = [(3, 0, 0), (34, 31, 0), (35, 32, 1), (42, 35, 1), (43, 36, 2), (50, 37, 2)];
        let more = [(51, 38, 3), (67, 40, 4), (98, 41, 4), (99, 42, 5), (130, 42, 5), (131, 43, 7)];
        for (len, class, bits) in lens.into_iter().chain(more).chain([(65_538, 51, 15)]) {
            assert_eq!(length_class(len), (class, bits), "{len}");
        }
    }

    #[test]
    fn histories_are_those_of_the_format() {
        assert_eq!(offset([7, 8, 9], 1, 7), (1, [7, 8, 9]));
        assert_eq!(offset([7, 8, 9], 1, 8), (2, [8, 7, 9]));
        assert_eq!(offset([7, 8, 9], 1, 9), (3, [9, 7, 8]));
        assert_eq!(offset([7, 8, 9], 0, 8), (1, [8, 7, 9]));
        assert_eq!(offset([7, 8, 9], 0, 9), (2, [9, 7, 8]));
        assert_eq!(offset([7, 8, 9], 0, 6), (3, [6, 7, 8]));
        assert_eq!(offset([7, 8, 9], 0, 7), (10, [7, 7, 8]));
        assert_eq!(offset([NONE; 3], 2, 1), (4, [1, NONE, NONE]));
    }
}
