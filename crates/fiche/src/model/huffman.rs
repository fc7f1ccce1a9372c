//! Prefix codes of limited length, canonical, the first bit lowest.
//!
//! # Code lengths
//!
//! A code is stored as the lengths of its codewords, symbol by symbol: a byte for a run of up to 16
//! equal ones, its low four bits the length in bits (0 where there is no codeword, 14 at most), the
//! high four the run less 1. Codewords are those of the canonical code: shorter ones first, among
//! equals in the order of the symbols; the first bit of a codeword is written first. Codes
//! are complete: every sequence of bits is codewords.

use crate::error::Result;
use crate::wire::{Put, Take};

/// The longest codeword, in bits.
pub(crate) const LONGEST: u32 = 14;
/// An entry of a table under which the codeword is longer than the index.
pub(crate) const LONG: u32 = 0;

/// Lengths of the codewords of the code that writes these counts shortest, with none longer than
/// `limit`; 0 for what does not occur. Two symbols at least get a codeword, so that the code is complete.
///
/// The package-merge algorithm of Larmore and Hirschberg (1990).
pub(crate) fn lengths(counts: &[u32], limit: u32) -> Vec<u8> {
    let mut leaves: Vec<(u64, usize)> = Vec::with_capacity(counts.len());
    leaves.extend(counts.iter().enumerate().map(|(symbol, &n)| (u64::from(n), symbol)));
    leaves.sort_unstable();
    let used = leaves.iter().filter(|leaf| leaf.0 > 0).count().max(2).min(leaves.len());
    leaves.drain(..leaves.len() - used);
    debug_assert!(used <= 1 << limit);
    let mut lengths = vec![0; counts.len()];
    // Of each level: weights in order, and which of them are leaves.
    let mut levels: Vec<Vec<(u64, bool)>> = Vec::with_capacity(limit as usize);
    for _ in 0..limit {
        let mut packages = levels.last().into_iter().flat_map(|level| level.chunks_exact(2));
        let mut package = packages.next().map(|pair| pair[0].0 + pair[1].0);
        let mut level = Vec::with_capacity(2 * leaves.len());
        for &(weight, _) in &leaves {
            while let Some(sum) = package.filter(|&sum| sum < weight) {
                level.push((sum, false));
                package = packages.next().map(|pair| pair[0].0 + pair[1].0);
            }
            level.push((weight, true));
        }
        while let Some(sum) = package {
            level.push((sum, false));
            package = packages.next().map(|pair| pair[0].0 + pair[1].0);
        }
        levels.push(level);
    }
    let mut take = 2 * leaves.len() - 2;
    for level in levels.iter().rev() {
        let singles = level[..take].iter().filter(|item| item.1).count();
        leaves[..singles].iter().for_each(|&(_, symbol)| lengths[symbol] += 1);
        take = 2 * (take - singles);
    }
    lengths
}

/// A canonical code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    lengths: Vec<u8>,
    /// Symbols that have a codeword, in the order of the codewords.
    symbols: Vec<u16>,
}

impl Code {
    /// The code with these lengths; `None` where there is no such complete code.
    pub fn new(lengths: Vec<u8>) -> Option<Code> {
        let mut sum = 0u32;
        for &length in &lengths {
            if u32::from(length) > LONGEST {
                return None;
            }
            if length > 0 {
                sum += 1 << (LONGEST - u32::from(length));
            }
        }
        if sum != 1 << LONGEST {
            return None;
        }
        let mut symbols: Vec<u16> = (0..lengths.len() as u16).collect();
        symbols.retain(|&symbol| lengths[usize::from(symbol)] > 0);
        symbols.sort_by_key(|&symbol| lengths[usize::from(symbol)]);
        Some(Code { lengths, symbols })
    }

    /// The best one for these counts.
    pub fn of(counts: &[u32]) -> Code {
        let lengths = lengths(counts, LONGEST);
        let code = Code::new(lengths);
        code.unwrap_or(Code { lengths: Vec::new(), symbols: Vec::new() })
    }

    /// Bits of each symbol's codeword; 0 where it has none.
    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// Each symbol's codeword, its first bit the lowest.
    pub fn codewords(&self) -> Vec<u16> {
        let mut words = vec![0; self.lengths.len()];
        for (symbol, word) in self.in_order() {
            words[usize::from(symbol)] = word;
        }
        words
    }

    fn in_order(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        let (mut next, mut last) = (0u32, 0);
        self.symbols.iter().map(move |&symbol| {
            let length = u32::from(self.lengths[usize::from(symbol)]);
            next <<= length - last;
            last = length;
            let word = next.reverse_bits() >> (32 - length);
            next += 1;
            (symbol, word as u16)
        })
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        for run in self.lengths.chunk_by(|a, b| a == b) {
            for run in run.chunks(16) {
                out.put_u8(run[0] | ((run.len() - 1) as u8) << 4);
            }
        }
    }

    /// A code of so many symbols.
    pub fn take(take: &mut Take<'_>, symbols: usize) -> Result<Code> {
        let mut lengths = Vec::with_capacity(symbols);
        while lengths.len() < symbols {
            let run = take.u8()?;
            lengths.resize(lengths.len() + usize::from(run >> 4) + 1, run & 15);
        }
        if lengths.len() > symbols {
            return Err(take.corrupt());
        }
        Code::new(lengths).ok_or_else(|| take.corrupt())
    }
}

/// What decodes a code: an entry for all that the next bits may be.
///
/// An entry has the length of the codeword in its low six bits, as many as a shift takes, and above
/// them what whoever made the table chose for the symbol. Codewords that are longer than the index are
/// rare: they are found by going through the code.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    entries: Vec<u32>,
    /// For codewords of each length: the first of them, its first bit the highest; where its symbol
    /// stands in `all`; and how many there are.
    firsts: [(u16, u16, u16); LONGEST as usize + 1],
    /// Entries of all symbols in the order of the codewords.
    all: Vec<u32>,
}

impl Table {
    /// Decodes by the next `bits` bits; `value` is what the entries say of a symbol.
    pub fn new(code: &Code, bits: u32, value: impl Fn(u16) -> u32) -> Table {
        let mut entries = vec![LONG; 1 << bits];
        let mut firsts = [(0, 0, 0); LONGEST as usize + 1];
        let mut all = Vec::with_capacity(code.symbols.len());
        for (symbol, word) in code.in_order() {
            let length = u32::from(code.lengths[usize::from(symbol)]);
            let entry = value(symbol) << 6 | length;
            if length <= bits {
                let places = entries.iter_mut().skip(usize::from(word)).step_by(1 << length);
                places.for_each(|place| *place = entry);
            }
            let of_length = &mut firsts[length as usize];
            if of_length.2 == 0 {
                *of_length = ((word << (16 - length)).reverse_bits(), all.len() as u16, 0);
            }
            of_length.2 += 1;
            all.push(entry);
        }
        Table { entries, firsts, all }
    }

    /// An entry for each value of the next bits; those that are [`LONG`] are of codewords that only [`find_long`](Table::find_long) finds.
    pub fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// The entry of the codeword with which these bits start, however long it is.
    pub fn find_long(&self, bits: u64) -> u32 {
        let all = (bits as u16).reverse_bits();
        for length in (1..=LONGEST).rev() {
            let word = all >> (16 - length);
            let (first, at, count) = self.firsts[length as usize];
            let nth = word.wrapping_sub(first);
            if word >= first && nth < count {
                return self.all[usize::from(at + nth)];
            }
        }
        // The code is complete.
        self.all.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Huffman's own code, without a limit: the sum of the weights of all inner nodes.
    fn best_size(counts: &[u32]) -> u64 {
        let mut heap: std::collections::BinaryHeap<_> =
            counts.iter().filter(|&&n| n > 0).map(|&n| std::cmp::Reverse(u64::from(n))).collect();
        let mut size = 0;
        while heap.len() > 1 {
            let sum = heap.pop().unwrap().0 + heap.pop().unwrap().0;
            size += sum;
            heap.push(std::cmp::Reverse(sum));
        }
        size
    }

    proptest! {
        #[test]
        fn a_code_is_complete_and_no_longer_than_the_best(
            counts in proptest::collection::vec(0u32..5000, 2..300),
        ) {
            let code = Code::of(&counts);
            prop_assert_eq!(code.lengths().len(), counts.len());
            let bits = |lengths: &[u8]| -> u64 {
                lengths.iter().zip(&counts).map(|(&l, &n)| u64::from(l) * u64::from(n)).sum()
            };
            if counts.iter().filter(|&&n| n > 0).count() > 1 {
                let is_limited = code.lengths().contains(&(LONGEST as u8));
                let best = best_size(&counts);
                prop_assert!(bits(code.lengths()) == best || is_limited && bits(code.lengths()) > best);
            }
            let short = lengths(&counts, 9);
            prop_assert!(short.iter().all(|&l| l <= 9));
            prop_assert!(bits(&short) >= bits(code.lengths()));
            prop_assert!(Code::new(short).is_some());
            let mut stored = Vec::new();
            code.put(&mut stored);
            let mut take = Take::new(&stored, "code", 0);
            prop_assert_eq!(Code::take(&mut take, counts.len()).unwrap(), code.clone());
            prop_assert!(take.end().is_ok());
            for bits in [1, 5, 11, 14] {
                let table = Table::new(&code, bits, u32::from);
                for (symbol, (&length, &word)) in
                    code.lengths().iter().zip(&code.codewords()).enumerate()
                {
                    if length == 0 {
                        continue;
                    }
                    for rest in [0u64, !0, 0x5555_5555_5555_5555] {
                        let word = u64::from(word) | rest << length;
                        let entry = table.entries()[(word % (1 << bits)) as usize];
                        let expected = (symbol as u32) << 6 | u32::from(length);
                        prop_assert!(entry == expected || entry == LONG && u32::from(length) > bits);
                        prop_assert_eq!(table.find_long(word), expected);
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_a_complete_code_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(code) = Code::take(&mut Take::new(&bytes, "code", 0), 64) {
                let words = code.lengths().iter().filter(|&&l| l > 0);
                prop_assert_eq!(words.map(|&l| 1 << (LONGEST - u32::from(l))).sum::<u32>(), 1 << LONGEST);
            }
        }
    }

    #[test]
    fn lengths_are_limited_where_counts_are_not() {
        let counts: Vec<u32> = (0..30).map(|i| 1 << i).collect();
        let lengths = lengths(&counts, LONGEST);
        assert_eq!(lengths.iter().max(), Some(&(LONGEST as u8)));
        assert!(Code::new(lengths).is_some());
        let alone = Code::of(&[0, 0, 7, 0]);
        assert_eq!(alone.lengths().iter().filter(|&&l| l == 1).count(), 2);
        assert_eq!(alone.lengths()[2], 1);
    }
}
