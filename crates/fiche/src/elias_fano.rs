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
use crate::wire::{Put, Take, load_u64};

/// Every how many elements, and every how many values of high bits, a hint says where to look: so many lie
/// within about three words.
const STEP: usize = 64;
/// Elements with the same high bits that are gone through one by one.
const NEAR: usize = 8;

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
    ones: Vec<u32>,
    /// The same of the bits that are not set.
    zeros: Vec<u32>,
}

/// An element, the one before it, and where to find the one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Number of the element.
    pub i: usize,
    /// The element before it; 0 where it is the first.
    pub from: u64,
    pub to: u64,
    /// The bit of the element.
    bit: u64,
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
        let this = EliasFano::decode_structure(take, n)?;
        if this.is_increasing() { Ok(this) } else { Err(take.corrupt()) }
    }

    /// The same without a look at the order of the numbers, and some twenty times as fast: for who has a
    /// checksum of the bytes, and stays within bounds whatever the numbers are. There are no more low bits than
    /// a writer takes, and no more numbers with the same high bits than these can tell apart: so that a look
    /// is fast in any case.
    pub fn decode_in_any_order(take: &mut Take<'_>, n: usize) -> Result<EliasFano> {
        let this = EliasFano::decode_structure(take, n)?;
        let most = (this.last / (n as u64).max(1)).checked_ilog2().unwrap_or(0);
        if this.low_width > most {
            return Err(take.corrupt());
        }
        let mut run = 0u64;
        for &word in &this.high {
            run = if word == !0 { run + 64 } else { u64::from(word.leading_ones()) };
            if run > (1 << this.low_width) + 64 {
                return Err(take.corrupt());
            }
        }
        Ok(this)
    }

    fn decode_structure(take: &mut Take<'_>, n: usize) -> Result<EliasFano> {
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
        // Bits after the last one of each must be zero.
        let ends_in_zeros = |words: &[u64], bits: u64| {
            bits.is_multiple_of(64) || words.last().is_none_or(|word| word >> (bits % 64) == 0)
        };
        let (Some(ones), Some(zeros)) = (hints(&high, high_bits, 0), hints(&high, high_bits, !0))
        else {
            return Err(take.corrupt());
        };
        let count: u32 = high.iter().map(|word| word.count_ones()).sum();
        if count as usize != n || !ends_in_zeros(&low, low_bits) || !ends_in_zeros(&high, high_bits)
        {
            return Err(take.corrupt());
        }
        Ok(EliasFano { n, last, low_width, low, high, ones, zeros })
    }

    /// False when the sequence is not strictly increasing up to `last`.
    fn is_increasing(&self) -> bool {
        let (mut i, mut previous) = (0usize, 0u64);
        for (w, &word) in self.high.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let at = w as u64 * 64 + u64::from(word.trailing_zeros());
                let value = self.value(i, at);
                if value <= previous {
                    return false;
                }
                previous = value;
                i += 1;
                word &= word - 1;
            }
        }
        previous == self.last
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// How many elements there are.
    pub fn count(&self) -> usize {
        self.n
    }

    /// Bytes of memory beside those that are stored.
    pub fn hint_bytes(&self) -> usize {
        4 * (self.ones.len() + self.zeros.len())
    }

    /// Element `i`, which is below the count.
    pub fn get(&self, i: usize) -> u64 {
        self.value(i, select(&self.high, &self.ones, i, 0))
    }

    /// Elements `i - 1` (0 where `i` is 0) and `i`: where a block starts and ends.
    pub fn pair(&self, i: usize) -> (u64, u64) {
        let gap = self.gap(i);
        (gap.from, gap.to)
    }

    /// Element `i`, which is below the count, and the one before.
    #[inline(always)]
    pub fn gap(&self, i: usize) -> Gap {
        if i == 0 {
            let bit = select(&self.high, &self.ones, 0, 0);
            return Gap { i, from: 0, to: self.value(0, bit), bit };
        }
        let before = select(&self.high, &self.ones, i - 1, 0);
        let bit = self.next_bit(before + 1);
        Gap { i, from: self.value(i - 1, before), to: self.value(i, bit), bit }
    }

    /// The element behind that one, if there is one.
    #[inline(always)]
    pub fn next(&self, gap: Gap) -> Option<Gap> {
        let i = gap.i + 1;
        if i >= self.n {
            return None;
        }
        let bit = self.next_bit(gap.bit + 1);
        Some(Gap { i, from: gap.to, to: self.value(i, bit), bit })
    }

    /// As many elements as there is room for, from element `i` on; how many those are. Some 2 ns each.
    #[inline(always)]
    pub fn read(&self, i: usize, out: &mut [u64]) -> usize {
        let count = out.len().min(self.n.saturating_sub(i));
        if count == 0 {
            return 0;
        }
        let bit = select(&self.high, &self.ones, i, 0);
        let mut w = (bit / 64) as usize;
        let mut word = self.high[w] & (!0 << (bit % 64));
        for (k, value) in out[..count].iter_mut().enumerate() {
            while word == 0 && w + 1 < self.high.len() {
                w += 1;
                word = self.high[w];
            }
            *value = self.value(i + k, w as u64 * 64 + u64::from(word.trailing_zeros()));
            word &= word.wrapping_sub(1);
        }
        count
    }

    /// The first element that is above `value`, if there is one.
    #[inline(always)]
    pub fn above(&self, value: u64) -> Option<Gap> {
        let (i, bit) = self.place(value);
        if i >= self.n {
            return None;
        }
        let bit = self.next_bit(bit);
        let from = match i {
            0 => 0,
            _ => self.value(i - 1, self.bit_before(bit)),
        };
        Some(Gap { i, from, to: self.value(i, bit), bit })
    }

    /// How many elements are at most `value`.
    pub fn rank(&self, value: u64) -> usize {
        self.place(value).0
    }

    /// How many elements are at most `value`, and the bit behind the last of them, or a later one that is not
    /// behind the next.
    #[inline(always)]
    fn place(&self, value: u64) -> (usize, u64) {
        let high = value >> self.low_width;
        if high > self.last >> self.low_width {
            return (self.n, 0);
        }
        // Bits of the elements with these high bits, if there are any, are behind as many zeros.
        let mut bit = match high {
            0 => 0,
            _ => select(&self.high, &self.zeros, high as usize - 1, !0) + 1,
        };
        let mut i = (bit - high) as usize;
        let low = value & ((1 << self.low_width) - 1);
        for _ in 0..NEAR {
            if i >= self.n || !self.is_set(bit) || self.low_of(i) > low {
                return (i, bit);
            }
            (i, bit) = (i + 1, bit + 1);
        }
        let more = self.place_among(i, bit, low);
        (i + more, bit + more as u64)
    }

    /// Of the elements from this one on whose high bits are the same, and there are many, how many have low bits up
    /// to these.
    #[cold]
    fn place_among(&self, i: usize, bit: u64, low: u64) -> usize {
        let mut w = (bit / 64) as usize;
        let mut word = self.high.get(w).map_or(0, |word| !word & (!0 << (bit % 64)));
        while word == 0 && w + 1 < self.high.len() {
            w += 1;
            word = !self.high[w];
        }
        let end = w as u64 * 64 + u64::from(word.trailing_zeros());
        let (mut from, mut to) = (0, (end.saturating_sub(bit) as usize).min(self.n - i));
        while from < to {
            let middle = from + (to - from) / 2;
            if self.low_of(i + middle) <= low { from = middle + 1 } else { to = middle }
        }
        from
    }

    #[inline(always)]
    fn is_set(&self, bit: u64) -> bool {
        self.high.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The first bit that is set, from this one on.
    #[inline(always)]
    fn next_bit(&self, bit: u64) -> u64 {
        let mut w = (bit / 64) as usize;
        let mut word = self.high.get(w).map_or(0, |word| word & (!0 << (bit % 64)));
        while word == 0 && w + 1 < self.high.len() {
            w += 1;
            word = self.high[w];
        }
        w as u64 * 64 + u64::from(word.trailing_zeros())
    }

    /// The last bit that is set before this one.
    #[inline(always)]
    fn bit_before(&self, bit: u64) -> u64 {
        let mut w = (bit / 64) as usize;
        let mut word = self.high.get(w).map_or(0, |word| word & ((1 << (bit % 64)) - 1));
        while word == 0 && w > 0 {
            w -= 1;
            word = self.high[w];
        }
        w as u64 * 64 + u64::from(word.checked_ilog2().unwrap_or(0))
    }

    /// The element with this number, whose bit is there.
    #[inline(always)]
    fn value(&self, i: usize, bit: u64) -> u64 {
        bit.wrapping_sub(i as u64) << self.low_width | self.low_of(i)
    }

    #[inline(always)]
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

/// A sequence of some hundred numbers, looked at where it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    low_width: u32,
    low: &'a [u8],
    high: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Takes a sequence of `n` numbers of which nothing is checked but that the bytes are there, and that there are no more high
    /// bits than a writer puts: so that a look is fast in any case.
    #[inline(always)]
    pub fn take(take: &mut Take<'a>, n: usize) -> Result<Stored<'a>> {
        let last = take.varint()?;
        let low_width = u32::from(take.u8()?);
        let low_bits = (n as u64).checked_mul(u64::from(low_width));
        let high_bits = last.checked_shr(low_width).and_then(|high| high.checked_add(n as u64));
        let (Some(low_bits), Some(high_bits)) = (low_bits, high_bits) else {
            return Err(take.corrupt());
        };
        if last >> low_width > 2 * n as u64 {
            return Err(take.corrupt());
        }
        let bytes = |bits: u64| usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
        let low = take.bytes(bytes(low_bits))?;
        Ok(Stored { low_width, low, high: take.bytes(bytes(high_bits))? })
    }

    /// Elements `i - 1` (0 where `i` is 0) and `i`; `None` where there are not so many.
    #[inline(always)]
    pub fn pair(&self, i: usize) -> Option<(u64, u64)> {
        let (mut at, mut left) = (0, i.saturating_sub(1) as u32);
        let mut word = load(self.high, at);
        loop {
            let ones = word.count_ones();
            if left < ones {
                break;
            }
            left -= ones;
            at += 8;
            if at >= self.high.len() {
                return None;
            }
            word = load(self.high, at);
        }
        let first = select_in(word, left);
        let value = |i: usize, at: usize, bit: u32| self.value(i, 8 * at as u64 + u64::from(bit));
        if i == 0 {
            return Some((0, value(0, at, first)?));
        }
        let from = value(i - 1, at, first)?;
        word &= (!0u64 << first) << 1;
        while word == 0 {
            at += 8;
            if at >= self.high.len() {
                return None;
            }
            word = load(self.high, at);
        }
        Some((from, value(i, at, word.trailing_zeros())?))
    }

    #[inline(always)]
    fn value(&self, i: usize, bit: u64) -> Option<u64> {
        if self.low_width == 0 {
            return bit.checked_sub(i as u64);
        }
        let at = i * self.low_width as usize;
        let mut low = load(self.low, at / 8) >> (at % 8);
        if self.low_width > 57 {
            low |= load(self.low, at / 8 + 1) << (8 - at % 8);
        }
        let low = low & !(u64::MAX << self.low_width);
        Some(bit.checked_sub(i as u64)? << self.low_width | low)
    }
}

/// The eight bytes at `at`, with zeros for those that are not there.
#[inline(always)]
fn load(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(word) => load_u64(word, 0),
        None => crate::wire::load_low(bytes.get(at..).unwrap_or_default()),
    }
}

/// Where bit 0, 64, 128, ... of those that are set in `words ^ flip` is, of the first `bits` bits. `None` when
/// there are more than so many.
fn hints(words: &[u64], bits: u64, flip: u64) -> Option<Vec<u32>> {
    let mut hints = Vec::with_capacity(words.len() + 1);
    let (mut count, mut next) = (0, 0);
    for (w, &word) in words.iter().enumerate() {
        let word = word ^ flip;
        let more = word.count_ones() as usize;
        while next < count + more {
            let at = w as u64 * 64 + u64::from(select_in(word, (next - count) as u32));
            if at >= bits {
                // Bits of the last word that are no more of the sequence; set ones were refused.
                return Some(hints).filter(|_| flip != 0);
            }
            hints.push(u32::try_from(at).ok()?);
            next += STEP;
        }
        count += more;
    }
    hints.shrink_to_fit();
    Some(hints)
}

/// Where bit `i` of those that are set in `words ^ flip` is; some bit, where there are fewer.
#[inline(always)]
fn select(words: &[u64], hints: &[u32], i: usize, flip: u64) -> u64 {
    let hint = hints.get(i / STEP).map_or(0, |&hint| hint as usize);
    let mut left = (i % STEP) as u32;
    let mut w = hint / 64;
    let mut word = words.get(w).map_or(0, |word| (word ^ flip) & (!0 << (hint % 64)));
    loop {
        let ones = word.count_ones();
        if left < ones {
            return w as u64 * 64 + u64::from(select_in(word, left));
        }
        left -= ones;
        w += 1;
        match words.get(w) {
            Some(next) => word = next ^ flip,
            None => return 0,
        }
    }
}

/// Which bit of the word is its set bit number `k`, of which it has more than `k`.
///
/// Vigna, *Broadword implementation of rank/select queries* (2008), algorithm 2.
#[inline(always)]
fn select_in(word: u64, k: u32) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let mut sums = word - (word >> 1 & 0x5555_5555_5555_5555);
    sums = (sums & 0x3333_3333_3333_3333) + (sums >> 2 & 0x3333_3333_3333_3333);
    // Of each byte the bits that are set in it and in those below.
    sums = ((sums + (sums >> 4)) & 0x0F0F_0F0F_0F0F_0F0F).wrapping_mul(ONES);
    let below = (((u64::from(k) * ONES) | TOPS) - sums) & TOPS;
    let byte = below.count_ones() * 8;
    let before = (sums << 8 >> byte & 0xFF) as u32;
    let mut rest = word >> byte;
    for _ in before..k {
        rest &= rest - 1;
    }
    byte + rest.trailing_zeros()
}

/// Bytes as little-endian words, the last one filled up with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let mut last = [0; 8];
    let whole = bytes.len() / 8 * 8;
    last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
    let mut words = Vec::with_capacity(bytes.len().div_ceil(8));
    words.extend((0..whole).step_by(8).map(|at| load_u64(bytes, at)));
    words.extend((whole < bytes.len()).then(|| load_u64(&last, 0)));
    words
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
            gaps in proptest::collection::vec(prop_oneof![1u64..4, 1u64..5000, 1u64..1 << 40, Just(1 << 54)], 1..400)
        ) {
            let values: Vec<u64> = gaps.iter().scan(0, |sum, gap| { *sum += gap; Some(*sum) }).collect();
            let (sequence, _) = round_trip(&values);
            let mut bytes = Vec::new();
            EliasFano::encode(&values, &mut bytes);
            let mut take = Take::new(&bytes, "test", 0);
            let stored = Stored::take(&mut take, values.len()).unwrap();
            take.end().unwrap();
            for (i, &value) in values.iter().enumerate() {
                let mut some = [0; 70];
                let count = sequence.read(i, &mut some);
                prop_assert_eq!(&some[..count], &values[i..values.len().min(i + 70)]);
                prop_assert_eq!(sequence.get(i), value);
                let before = if i == 0 { 0 } else { values[i - 1] };
                prop_assert_eq!(sequence.pair(i), (before, value));
                prop_assert_eq!(stored.pair(i), Some((before, value)));
                for probe in [value - 1, value, value + 1] {
                    let rank = values.partition_point(|&v| v <= probe);
                    prop_assert_eq!(sequence.rank(probe), rank);
                    let gap = sequence.above(probe);
                    prop_assert_eq!(gap.map(|gap| gap.i), Some(rank).filter(|&rank| rank < values.len()));
                    prop_assert_eq!(gap, gap.map(|gap| sequence.gap(gap.i)));
                }
                let next = sequence.next(sequence.gap(i));
                prop_assert_eq!(next, (i + 1 < values.len()).then(|| sequence.gap(i + 1)));
            }
        }

        #[test]
        fn any_bytes_are_a_sequence_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), n in 0usize..80) {
            if let Ok(stored) = Stored::take(&mut Take::new(&bytes, "test", 0), n) {
                for i in 0..n + 2 {
                    if let (Some((_, to)), Some((from, _))) = (stored.pair(i), stored.pair(i + 1)) {
                        prop_assert_eq!(to, from);
                    }
                }
            }
            if let Ok(sequence) = EliasFano::decode(&mut Take::new(&bytes, "test", 0), n) {
                prop_assert_eq!(sequence.get(n - 1), sequence.last());
                prop_assert!((1..n).all(|i| sequence.get(i - 1) < sequence.get(i)));
            }
        }
    }

    #[test]
    fn numbers_that_low_bits_cannot_tell_apart_are_refused() {
        // As many numbers as there are zeros behind them: all of them are 0.
        let bytes = |ones: usize| {
            let bits: Vec<bool> = (0..800).map(|bit| bit < ones || bit >= 400 + ones).collect();
            let mut bytes = vec![0x90, 0x03, 0];
            bytes.extend(bits.chunks(8).map(|byte| {
                byte.iter().enumerate().fold(0u8, |sum, (i, &bit)| sum | u8::from(bit) << i)
            }));
            bytes
        };
        let decode = |ones| {
            let bytes = bytes(ones);
            EliasFano::decode_in_any_order(&mut Take::new(&bytes, "test", 0), 400).map(|_| ())
        };
        assert!(matches!(decode(400), Err(crate::Error::Corrupt { .. })));
        assert!(matches!(decode(130), Err(crate::Error::Corrupt { .. })));
    }

    #[test]
    fn set_bits_of_a_word_are_found_as_by_counting() {
        let mut random = crate::testing::Random(5);
        for round in 0..2000 {
            let word = random.number()
                & if round % 2 == 0 { !0 } else { random.number() & random.number() };
            let set = (0..64).filter(|bit| word >> bit & 1 == 1);
            for (k, bit) in set.enumerate() {
                assert_eq!(select_in(word, k as u32), bit);
            }
        }
        assert_eq!(select_in(!0, 63), 63);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_order_can_be_asked(bytes in proptest::collection::vec(any::<u8>(), 0..64), n in 0usize..80) {
            if let Ok(sequence) = EliasFano::decode_in_any_order(&mut Take::new(&bytes, "test", 0), n) {
                for value in (0..200).chain([u64::MAX, sequence.last()]) {
                    if let Some(gap) = sequence.above(value) {
                        prop_assert!(gap.i < n && gap.to > value);
                        prop_assert!(sequence.next(gap).is_none_or(|next| next.i == gap.i + 1));
                    }
                }
            }
        }
    }

    #[test]
    fn many_with_the_same_high_bits_are_found_as_well() {
        let values: Vec<u64> = (1..=100_000).chain([1 << 40]).collect();
        let (sequence, _) = round_trip(&values);
        for probe in (0..100_100).step_by(7).chain([(1 << 40) - 1, 1 << 40]) {
            let rank = values.partition_point(|&v| v <= probe);
            assert_eq!(sequence.rank(probe), rank);
            assert_eq!(
                sequence.above(probe).map(|gap| gap.from),
                values.get(rank).map(|_| match rank {
                    0 => 0,
                    _ => values[rank - 1],
                })
            );
        }
    }

    #[test]
    fn more_low_bits_than_a_writer_takes_are_refused_where_order_is_not_looked_at() {
        // Four numbers, all low bits.
        let mut bytes = Vec::new();
        bytes.put_varint(4);
        bytes.put_u8(3);
        bytes.put(&[0b1101_0001, 0b1000, 0b1111]);
        assert!(EliasFano::decode(&mut Take::new(&bytes, "test", 0), 4).is_ok());
        assert!(EliasFano::decode_in_any_order(&mut Take::new(&bytes, "test", 0), 4).is_err());
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
