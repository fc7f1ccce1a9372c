//! Streams of bits, the first bit lowest: forward from the front of a range of bytes, or backward
//! from its end, so that two share one range and only its length needs to be known.

use std::ops::Range;

use crate::wire::{Put, load_u64};

/// Bytes that readers may look at before and behind a range.
pub(crate) const MARGIN: usize = 64;

/// Collects bits.
#[derive(Default)]
pub(crate) struct BitSink {
    bytes: Vec<u8>,
    word: u64,
    count: u32,
}

impl BitSink {
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.word, self.count) = (0, 0);
    }

    /// Appends up to 32 bits; those above `count` are zero.
    #[inline(always)]
    pub fn put(&mut self, bits: u32, count: u32) {
        debug_assert!(count == 32 || bits >> count == 0);
        self.word |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes.put_u32(self.word as u32);
            self.word >>= 32;
            self.count -= 32;
        }
    }

    /// Fills the last byte with zeros. All bytes, the first bit in the first of them.
    pub fn finish(&mut self) -> &mut [u8] {
        while self.count > 0 {
            self.bytes.put_u8(self.word as u8);
            self.word >>= 8;
            self.count = self.count.saturating_sub(8);
        }
        &mut self.bytes
    }
}

/// Bytes with a margin before and behind them, so that eight can be loaded wherever one of them is.
pub(crate) struct Padded {
    bytes: Vec<u8>,
}

impl Default for Padded {
    /// No bytes, but both margins: loops without checks count on them.
    fn default() -> Padded {
        Padded { bytes: vec![0; 2 * MARGIN] }
    }
}

impl Padded {
    /// Takes other bytes.
    pub fn fill(&mut self, bytes: &[u8]) {
        self.clear();
        self.add(bytes);
        self.close();
    }

    /// None are left, and more may be added.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(MARGIN, 0);
    }

    /// Takes more bytes, behind the others. Where these are.
    #[inline(always)]
    pub fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// No more are added: the margin behind them.
    pub fn close(&mut self) {
        self.bytes.resize(self.bytes.len() + MARGIN, 0);
    }

    /// All of them, with the margins.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What loads from them.
    pub fn words(&self) -> Words<'_> {
        // All that loads counts on it.
        assert!(self.bytes.len() >= 8);
        Words { bytes: &self.bytes, last: self.bytes.len() - 8 }
    }
}

/// Loads eight bytes at a time.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    bytes: &'a [u8],
    /// The last place with eight bytes from it on.
    last: usize,
}

impl Words<'_> {
    /// The last place with eight bytes from it on.
    pub fn last(self) -> usize {
        self.last
    }

    /// The eight bytes at `at`.
    ///
    /// # Safety
    /// That is the last place with eight bytes, or before it.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub unsafe fn load_within(self, at: usize) -> u64 {
        // SAFETY: as asked for; at the last place eight bytes begin, as `words` saw to.
        load_u64(unsafe { self.bytes.get_unchecked(at..at + 8) }, 0)
    }

    /// The eight bytes at `at`, or the last ones.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn load(self, at: usize) -> u64 {
        // SAFETY: it is held down to the last place.
        unsafe { self.load_within(at.min(self.last)) }
    }
}

/// A place in a stream of bits, forward or `BACKWARD`.
///
/// It is taken apart: some words are loaded, decoded, and then it goes on by what they used.
/// Beyond the end of the bytes there is no telling what it reads; how far it read, it tells.
#[derive(Clone, Copy)]
pub(crate) struct Bits<const BACKWARD: bool> {
    /// Forward, the number of the next bit; backward, how many bits are left before it.
    pos: usize,
}

impl<const BACKWARD: bool> Bits<BACKWARD> {
    /// From byte `at` on; backward, from the byte before it.
    pub fn new(at: usize) -> Self {
        Bits { pos: 8 * at }
    }

    /// At this position.
    pub fn at(pos: usize) -> Self {
        Bits { pos }
    }

    /// Forward, the number of the next bit; backward, how many bits are left before it.
    pub fn pos(self) -> usize {
        self.pos
    }

    /// The next 57 bits at least.
    #[inline(always)]
    pub fn word(self, words: Words<'_>) -> u64 {
        if BACKWARD {
            // Seven more than the last byte of which there is a bit: 0 to 7 bits are used already.
            let above = self.pos.wrapping_add(7);
            words.load((above / 8).wrapping_sub(8)).swap_bytes() >> (!above & 7)
        } else {
            words.load(self.pos / 8) >> (self.pos & 7)
        }
    }

    #[inline(always)]
    pub fn skip(&mut self, count: u32) {
        self.pos = match BACKWARD {
            true => self.pos.wrapping_sub(count as usize),
            false => self.pos + count as usize,
        };
    }

    /// The first byte of which no bit is read; backward, the last one of which a bit is read.
    pub fn byte(self) -> usize {
        if BACKWARD { self.pos / 8 } else { self.pos.div_ceil(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read_in_both_directions(
            values in proptest::collection::vec((any::<u32>(), 0u32..=28), 0..200),
        ) {
            let mut sink = BitSink::default();
            let values: Vec<(u32, u32)> = values.iter().map(|&(v, n)| (v & ((1 << n) - 1), n)).collect();
            values.iter().for_each(|&(value, count)| sink.put(value, count));
            let stored = sink.finish().to_vec();
            let total: u32 = values.iter().map(|v| v.1).sum();
            prop_assert_eq!(stored.len(), total.div_ceil(8) as usize);
            let mut padded = Padded::default();
            padded.fill(&stored);
            let mut forward = Bits::<false>::new(MARGIN);
            for &(value, count) in &values {
                prop_assert_eq!(forward.word(padded.words()) as u32 & ((1 << count) - 1), value);
                forward.skip(count);
            }
            prop_assert_eq!(forward.byte(), MARGIN + stored.len());
            padded.bytes[MARGIN..][..stored.len()].reverse();
            let mut backward = Bits::<true>::new(MARGIN + stored.len());
            for &(value, count) in &values {
                prop_assert_eq!(backward.word(padded.words()) as u32 & ((1 << count) - 1), value);
                backward.skip(count);
            }
            prop_assert_eq!(backward.byte(), MARGIN);
        }
    }
}
