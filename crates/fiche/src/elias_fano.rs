//! Monotone sequences in about 2 + log2(gap) bits an element.
//!
//! # Elias-Fano sequence
//!
//! A strictly increasing sequence of `n` >= 1 numbers, all above 0, the count
//! `n` known from elsewhere. Each number `v` is cut into its `low` lowest bits
//! and the rest, `v >> low`.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | last | the last number, which is the largest |
//! | 1 | low | how many low bits, 0 to 63 |
//! | ceil(n * low / 8) | low bits | of number `i` at bit `i * low`; bit 0 is the lowest bit of the first byte |
//! | ceil((n + (last >> low)) / 8) | high bits | for number `i`, bit `(v >> low) + i` is set; no other is |
//!
//! Bits after the last one that is used are zero. A writer takes
//! `floor(log2(last / n))` low bits; a reader takes what it finds.
//!
//! Elias (1974) and Fano (1971); used for block positions here.

use crate::error::Result;
use crate::wire::{Put, Take};

/// Every how many elements a hint says where to look: 64 elements lie within
/// about three words of high bits.
const STEP: usize = 64;

/// A strictly increasing sequence of positive numbers, kept as it is stored:
/// an element is found in a few nanoseconds without unpacking.
#[derive(Debug)]
pub(crate) struct EliasFano {
    n: usize,
    last: u64,
    low_width: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Bit position in `high` of element 0, 64, 128, ...
    hints: Vec<u32>,
}

impl EliasFano {
    /// Appends the sequence of these numbers. They must increase from above 0.
    pub fn encode(values: &[u64], out: &mut Vec<u8>) {
        debug_assert!(values.first().is_none_or(|&v| v > 0));
        debug_assert!(values.is_sorted_by(|a, b| a < b));
        let (n, last) = (values.len() as u64, values.last().copied().unwrap_or(0));
        let low = (last / n.max(1)).checked_ilog2().unwrap_or(0);
        out.put_varint(last);
        out.put_u8(low as u8);
        let start = out.len();
        out.resize(start + (n * u64::from(low)).div_ceil(8) as usize, 0);
        for (i, &value) in values.iter().enumerate() {
            for bit in 0..low {
                let at = i * low as usize + bit as usize;
                out[start + at / 8] |= ((value >> bit & 1) as u8) << (at % 8);
            }
        }
        let start = out.len();
        out.resize(start + (n + (last >> low)).div_ceil(8) as usize, 0);
        for (i, &value) in values.iter().enumerate() {
            let at = (value >> low) as usize + i;
            out[start + at / 8] |= 1 << (at % 8);
        }
    }

    /// Takes a sequence of `n` numbers and checks all that the format says of it.
    /// Allocates no more than a small multiple of the bytes that are there.
    pub fn decode(take: &mut Take<'_>, n: usize) -> Result<EliasFano> {
        let last = take.varint()?;
        let low_width = u32::from(take.u8()?);
        let low_bits = (n as u64).checked_mul(u64::from(low_width));
        let high_bits = last.checked_shr(low_width).and_then(|high| high.checked_add(n as u64));
        let (Some(low_bits), Some(high_bits)) = (low_bits, high_bits) else {
            return Err(take.corrupt());
        };
        let available = take.remaining() as u64;
        if n == 0
            || low_width > 63
            || low_bits.div_ceil(8) > available
            || high_bits.div_ceil(8) > available
            || high_bits > u64::from(u32::MAX)
        {
            return Err(take.corrupt());
        }
        let low = words(take.bytes(low_bits.div_ceil(8) as usize)?);
        let high = words(take.bytes(high_bits.div_ceil(8) as usize)?);
        let mut this = EliasFano { n, last, low_width, low, high, hints: Vec::new() };
        if !this.check(low_bits, high_bits) {
            return Err(take.corrupt());
        }
        Ok(this)
    }

    /// Fills the hints; false when the sequence is not strictly increasing up to `last`.
    fn check(&mut self, low_bits: u64, high_bits: u64) -> bool {
        let mut hints = Vec::with_capacity(self.n / STEP + 1);
        let (mut i, mut previous) = (0usize, 0u64);
        for (w, &word) in self.high.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let at = w as u64 * 64 + u64::from(word.trailing_zeros());
                if i >= self.n || at >= high_bits {
                    return false;
                }
                if i % STEP == 0 {
                    hints.push(at as u32);
                }
                let value = (at - i as u64) << self.low_width | self.low_of(i);
                if value <= previous {
                    return false;
                }
                previous = value;
                i += 1;
                word &= word - 1;
            }
        }
        self.hints = hints;
        // Bits after the last low one must be zero as well.
        let spare = self.low.last().copied().unwrap_or(0);
        let spare_zero = low_bits.is_multiple_of(64) || spare >> (low_bits % 64) == 0;
        i == self.n && previous == self.last && spare_zero
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Element `i`, which is below the count.
    pub fn get(&self, i: usize) -> u64 {
        (self.select(i) - i as u64) << self.low_width | self.low_of(i)
    }

    /// Elements `i - 1` (0 where `i` is 0) and `i`: where a block starts and ends.
    pub fn pair(&self, i: usize) -> (u64, u64) {
        if i == 0 {
            return (0, self.get(0));
        }
        let at = self.select(i - 1);
        let before = (at - (i as u64 - 1)) << self.low_width | self.low_of(i - 1);
        let mut w = (at + 1) as usize / 64;
        let mut word = self.high[w] & (!0 << ((at + 1) % 64));
        while word == 0 {
            w += 1;
            word = self.high[w];
        }
        let next = w as u64 * 64 + u64::from(word.trailing_zeros());
        (before, (next - i as u64) << self.low_width | self.low_of(i))
    }

    /// How many elements are at most `value`.
    pub fn rank(&self, value: u64) -> usize {
        let (mut from, mut to) = (0, self.n);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.get(middle) <= value { from = middle + 1 } else { to = middle }
        }
        from
    }

    /// Position in the high bits of the set bit of element `i`.
    fn select(&self, i: usize) -> u64 {
        let hint = self.hints[i / STEP] as usize;
        let mut left = i % STEP;
        let mut w = hint / 64;
        let mut word = self.high[w] & (!0 << (hint % 64));
        loop {
            let ones = word.count_ones() as usize;
            if left < ones {
                for _ in 0..left {
                    word &= word - 1;
                }
                return w as u64 * 64 + u64::from(word.trailing_zeros());
            }
            left -= ones;
            w += 1;
            word = self.high[w];
        }
    }

    fn low_of(&self, i: usize) -> u64 {
        if self.low_width == 0 {
            return 0;
        }
        let at = i * self.low_width as usize;
        let (w, shift) = (at / 64, at % 64);
        let mut bits = self.low[w] >> shift;
        if shift + self.low_width as usize > 64 {
            bits |= self.low[w + 1] << (64 - shift);
        }
        bits & ((1 << self.low_width) - 1)
    }
}

/// Bytes as little-endian words, the last one filled up with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b));
    bytes.chunks(8).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(values: &[u64]) -> (EliasFano, usize) {
        let mut bytes = Vec::new();
        EliasFano::encode(values, &mut bytes);
        let mut take = Take::new(&bytes, "test", 0);
        let sequence = EliasFano::decode(&mut take, values.len()).unwrap();
        take.end().unwrap();
        (sequence, bytes.len())
    }

    proptest! {
        #[test]
        fn every_element_and_rank_equals_the_plain_sequence(
            gaps in proptest::collection::vec(prop_oneof![1u64..4, 1u64..5000, 1u64..1 << 40], 1..400)
        ) {
            let values: Vec<u64> = gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) }).collect();
            let (sequence, _) = round_trip(&values);
            for (i, &value) in values.iter().enumerate() {
                prop_assert_eq!(sequence.get(i), value);
                let before = if i == 0 { 0 } else { values[i - 1] };
                prop_assert_eq!(sequence.pair(i), (before, value));
                for probe in [value - 1, value, value + 1] {
                    prop_assert_eq!(sequence.rank(probe), values.partition_point(|&v| v <= probe));
                }
            }
        }

        #[test]
        fn any_bytes_are_a_sequence_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), n in 0usize..80) {
            if let Ok(sequence) = EliasFano::decode(&mut Take::new(&bytes, "test", 0), n) {
                prop_assert_eq!(sequence.get(n - 1), sequence.last());
                prop_assert!((1..n).all(|i| sequence.get(i - 1) < sequence.get(i)));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_or_gives_another_increasing_sequence() {
        let values: Vec<u64> = (1..100).map(|i| i * 37).collect();
        let mut bytes = Vec::new();
        EliasFano::encode(&values, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(s) = EliasFano::decode(&mut Take::new(&bad, "test", 0), values.len()) {
                assert!((1..values.len()).all(|i| s.get(i - 1) < s.get(i)));
            }
        }
    }

    #[test]
    fn it_takes_no_more_than_two_bits_above_the_logarithm_of_the_mean_gap() {
        for mean in [4000u64, 4096, 5793, 8191] {
            let values: Vec<u64> = (1..=4096).map(|i| i * mean).collect();
            let (_, bytes) = round_trip(&values);
            let bits = bytes as f64 * 8.0 / 4096.0;
            assert!(bits <= 2.02 + (mean as f64).log2(), "{mean}: {bits}");
        }
    }
}
