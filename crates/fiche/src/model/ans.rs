//! Asymmetric numeral systems by ranges (Duda, *Asymmetric numeral systems*, 2013; section 3 of the 2014 revision): symbols
//! of many alphabets in one number, each at the price that its table says, down to small parts of a bit.
//!
//! The number has 17 to 32 bits and words of 16. What was encoded last is decoded first, so an encoder goes through
//! its symbols backward. An encoder begins with [`FIRST`], and so a decoder that was right ends there.

use crate::wire::{Put, Take};

/// Bits of a table's parts at most: a symbol takes one 1,024th at least.
pub(crate) const MOST_BITS: u32 = 10;
/// Symbols of an alphabet at most.
pub(crate) const MOST_SYMBOLS: usize = 1 << 9;
/// What an encoder begins with.
pub(crate) const FIRST: u32 = 1 << 16;

/// How often the symbols of an alphabet are to be expected: parts of a power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The parts of each symbol; together `1 << bits`.
    parts: Vec<u16>,
    starts: Vec<u16>,
    bits: u32,
}

impl Shares {
    fn of(parts: Vec<u16>, bits: u32) -> Shares {
        let starts = parts.iter().scan(0, |sum, &part| {
            let start = *sum;
            *sum += part;
            Some(start)
        });
        Shares { starts: starts.collect(), parts, bits }
    }

    /// Those that encode symbols that are there so often in the fewest bits; with no more parts than it takes for that.
    /// A symbol that is not there has none. At most `MOST_SYMBOLS` counts.
    pub fn new(counts: &[u32]) -> Shares {
        let there = counts.iter().filter(|&&count| count > 0).count();
        if there <= 1 {
            let parts = counts.iter().map(|&count| u16::from(count > 0)).collect();
            return Shares::of(parts, 0);
        }
        let least = (there as u32 - 1).ilog2() + 1;
        let all = (least..=MOST_BITS).map(|bits| {
            let shares = Shares::of(parts(counts, bits), bits);
            (shares.cost(counts), shares)
        });
        let all: Vec<_> = all.collect();
        let best = all.iter().map(|(cost, _)| *cost).fold(f64::INFINITY, f64::min);
        // A smaller table stays nearer to the processor.
        const NEARLY: f64 = 1.002;
        let found = all.into_iter().find(|(cost, _)| *cost <= best * NEARLY + 8.0);
        found.map_or_else(|| Shares::of(Vec::new(), 0), |(_, shares)| shares)
    }

    /// Bits that so many symbols of each kind take.
    pub fn cost(&self, counts: &[u32]) -> f64 {
        let bits = f64::from(self.bits);
        let each = counts.iter().zip(&self.parts).filter(|(count, _)| **count > 0);
        each.map(|(&count, &parts)| f64::from(count) * (bits - f64::from(parts).log2())).sum()
    }

    /// How many parts there are is two to so many.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// How many symbols there are.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// What a symbol has: where its parts start, and how many they are.
    pub fn get(&self, symbol: usize) -> (u32, u32) {
        (self.starts[symbol].into(), self.parts[symbol].into())
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.bits as u8);
        // Runs of symbols without any part are told by how many more follow.
        let mut symbols = self.parts.iter().peekable();
        while let Some(&part) = symbols.next() {
            out.put_varint(part.into());
            if part == 0 {
                let mut more = 0;
                while symbols.next_if(|&&part| part == 0).is_some() {
                    more += 1;
                }
                out.put_varint(more);
            }
        }
    }

    /// Those of so many symbols, of which one has parts at least.
    pub fn take(take: &mut Take<'_>, symbols: usize) -> crate::error::Result<Shares> {
        let bits = u32::from(take.u8()?);
        if bits > MOST_BITS || symbols > MOST_SYMBOLS {
            return Err(take.corrupt());
        }
        let (mut parts, mut sum) = (Vec::with_capacity(symbols), 0);
        while parts.len() < symbols {
            let part = take.count(1 << bits)?;
            sum += part;
            parts.push(part as u16);
            if part == 0 {
                let more = take.count((symbols - parts.len()) as u64)?;
                parts.resize(parts.len() + more, 0);
            }
        }
        // A symbol that is alone takes no bits.
        let is_alone = parts.iter().any(|&part| usize::from(part) == sum);
        if sum != 1 << bits || is_alone && bits > 0 {
            return Err(take.corrupt());
        }
        Ok(Shares::of(parts, bits))
    }

    /// Appends what a decoder looks up by the lowest bits of its number, with what it wants to know of each symbol.
    pub fn put_slots(&self, about: impl Fn(usize) -> u32, slots: &mut Vec<Slot>) {
        for (symbol, &parts) in self.parts.iter().enumerate() {
            let (parts, about) = (u64::from(parts), u64::from(about(symbol)));
            slots.extend((0..parts).map(|at| Slot(about << 32 | parts << 16 | at)));
        }
    }
}

/// What a part of a table says: how many of its symbol were before, how many there are, what is known of the symbol.
#[derive(Clone, Copy)]
pub(crate) struct Slot(u64);

impl Slot {
    /// That of a table of one symbol.
    pub fn alone(about: u32) -> Slot {
        Slot(u64::from(about) << 32 | 1 << 16)
    }

    /// All of it: in the lower half how many there are, and how many were before, of 16 bits each, in the upper one what is known.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn about(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// What a number becomes by it, in a table of two to the `bits` parts, before words are taken.
    #[inline(always)]
    pub fn next(self, number: u32, bits: u32) -> u32 {
        (self.0 as u32 >> 16) * (number >> bits) + (self.0 as u32 & 0xFFFF)
    }
}

/// Parts of `1 << bits` by counts, as nearly as whole numbers can be, at least one for each that is there.
fn parts(counts: &[u32], bits: u32) -> Vec<u16> {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let all = f64::from(1u32 << bits);
    let mut parts: Vec<u16> = counts
        .iter()
        .map(|&count| match count {
            0 => 0,
            _ => (f64::from(count) / total * all).floor().max(1.0) as u16,
        })
        .collect();
    let mut sum: i32 = parts.iter().map(|&part| i32::from(part)).sum();
    // What a part more saves, or one less costs, is about count / parts.
    while sum != 1 << bits {
        let worth = |i: usize, by: f64| {
            let (count, part) = (f64::from(counts[i]), f64::from(parts[i]));
            count * ((part + by) / part).ln().abs()
        };
        let there = (0..counts.len()).filter(|&i| counts[i] > 0);
        if sum < 1 << bits {
            let Some(i) = there.max_by(|&a, &b| worth(a, 1.0).total_cmp(&worth(b, 1.0))) else {
                break;
            };
            parts[i] += 1;
            sum += 1;
        } else {
            let more = there.filter(|&i| parts[i] > 1);
            let Some(i) = more.min_by(|&a, &b| worth(a, -1.0).total_cmp(&worth(b, -1.0))) else {
                break;
            };
            parts[i] -= 1;
            sum -= 1;
        }
    }
    parts
}

/// Encodes symbols, the last one first.
pub(crate) struct Encoder {
    number: u32,
    /// Words, the last one first.
    words: Vec<u16>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { number: FIRST, words: Vec::new() }
    }
}

impl Encoder {
    /// Puts a symbol before all others.
    #[inline(always)]
    pub fn put(&mut self, (start, parts): (u32, u32), bits: u32) {
        // As much as there is room for: below that it stays under 32 bits.
        if u64::from(self.number) >= u64::from(parts) << (32 - bits) {
            self.words.push(self.number as u16);
            self.number >>= 16;
        }
        self.number = ((self.number / parts) << bits) + self.number % parts + start;
    }

    /// Appends all, the first symbol first, and begins anew.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.put_u32(self.number);
        self.words.iter().rev().for_each(|&word| out.put_u16(word));
        self.words.clear();
        self.number = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{load_low, load_u32};
    use proptest::prelude::*;

    fn decode(stored: &[u8], tables: &[(u32, Vec<Slot>)], order: &[usize]) -> Vec<usize> {
        let (mut number, mut at) = (load_u32(stored, 0), 4);
        let symbols = order.iter().map(|&table| {
            let (bits, slots) = &tables[table];
            let slot = slots[(number & ((1 << bits) - 1)) as usize];
            number = slot.next(number, *bits);
            if number < FIRST {
                number = number << 16 | load_low(&stored[at..at + 2]) as u32;
                at += 2;
            }
            slot.about() as usize
        });
        let symbols = symbols.collect();
        assert_eq!((number, at), (FIRST, stored.len()));
        symbols
    }

    proptest! {
        #[test]
        fn symbols_of_many_alphabets_come_back_in_their_order(
            counts in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(0u32), 1u32..5, 1u32..100_000], 1..300), 1..5),
            seed in any::<u64>(),
        ) {
            let mut random = crate::testing::Random(seed);
            let mut counts = counts;
            counts.iter_mut().for_each(|counts| counts[0] += 1);
            let shares: Vec<Shares> = counts.iter().map(|counts| Shares::new(counts)).collect();
            let mut tables = Vec::new();
            for (shares, counts) in shares.iter().zip(&counts) {
                let sum: u32 = shares.parts.iter().map(|&part| u32::from(part)).sum();
                prop_assert_eq!(sum, 1 << shares.bits());
                prop_assert!(shares.parts.iter().zip(counts).all(|(part, count)| (*part > 0) == (*count > 0)));
                let mut stored = Vec::new();
                shares.put(&mut stored);
                let mut take = Take::new(&stored, "test", 0);
                prop_assert_eq!(&Shares::take(&mut take, counts.len()).unwrap(), shares);
                take.end().unwrap();
                let mut slots = Vec::new();
                shares.put_slots(|symbol| symbol as u32, &mut slots);
                prop_assert_eq!(slots.len(), 1 << shares.bits());
                tables.push((shares.bits(), slots));
            }
            let order: Vec<usize> = (0..500).map(|_| random.below(shares.len() as u64) as usize).collect();
            let symbols: Vec<usize> = order.iter().map(|&table| {
                let there: Vec<usize> = (0..counts[table].len()).filter(|&i| counts[table][i] > 0).collect();
                there[random.below(there.len() as u64) as usize]
            }).collect();
            let (mut encoder, mut stored) = (Encoder::default(), Vec::new());
            for (&table, &symbol) in order.iter().zip(&symbols).rev() {
                encoder.put(shares[table].get(symbol), shares[table].bits());
            }
            encoder.finish(&mut stored);
            prop_assert_eq!(decode(&stored, &tables, &order), symbols);
        }

        #[test]
        fn any_bytes_are_shares_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), symbols in 0usize..40) {
            if let Ok(shares) = Shares::take(&mut Take::new(&bytes, "test", 0), symbols) {
                let mut slots = Vec::new();
                shares.put_slots(|symbol| symbol as u32, &mut slots);
                prop_assert_eq!(slots.len(), 1 << shares.bits());
            }
        }
    }

    #[test]
    fn shares_cost_what_symbols_tell_and_hardly_more() {
        let counts = [900_000u32, 50_000, 30_000, 15_000, 4_000, 900, 90, 10];
        let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        let entropy: f64 =
            counts.iter().map(|&count| f64::from(count) * (total / f64::from(count)).log2()).sum();
        let cost = Shares::new(&counts).cost(&counts);
        assert!((1.0..1.01).contains(&(cost / entropy)), "{cost} {entropy}");
        assert_eq!(Shares::new(&[0, 7, 0]).cost(&[0, 7, 0]), 0.0);
    }
}
