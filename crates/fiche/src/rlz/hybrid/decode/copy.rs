//! What sequences copy.

use super::super::Sequence;
use super::super::kernel::{self, STRIDE};
use crate::rlz::Dictionary;

/// Copies literals and matches to where they belong.
pub struct Copy<'a> {
    dictionary: &'a Dictionary,
    literals: &'a [u8],
    used: usize,
    pub dst: &'a mut [u8],
    pub at: usize,
}

impl<'a> Copy<'a> {
    /// The literals have a margin of `STRIDE` bytes behind them.
    pub fn new(dictionary: &'a Dictionary, literals: &'a [u8], dst: &'a mut [u8]) -> Copy<'a> {
        Copy { dictionary, literals, used: 0, dst, at: 0 }
    }

    /// Goes on where so much of both is done already.
    pub fn from(self, at: usize, used: usize) -> Copy<'a> {
        Copy { at, used, ..self }
    }

    /// Copies sequences until `dst` is full. `None` when one leads outside.
    ///
    /// ```text
    /// for (literals, len, distance) in sequences { out += next literals; out += out[-distance..][..len] }
    /// ```
    ///
    /// Short ones are copied as if they were as long as a stride, and what is too much
    /// is overwritten by the next.
    #[inline(always)]
    pub fn run<const KERNEL: bool>(&mut self, sequences: &[Sequence]) -> Option<()> {
        let mut sequences = sequences;
        if KERNEL {
            let Copy { dictionary, literals, used, dst, at } = self;
            let done = kernel::copy(sequences, dictionary.padded(), literals, dst, at, used);
            sequences = &sequences[done..];
        }
        let (dictionary, len) = (self.dictionary.padded(), self.dictionary.len());
        let (mut at, mut used) = (self.at, self.used);
        let (dst, all) = (&mut *self.dst, self.literals);
        for sequence in sequences {
            let (literals, count) = (usize::from(sequence.literals), usize::from(sequence.len));
            let distance = sequence.distance as usize;
            if literals <= 16
                && at + 16 + STRIDE <= dst.len()
                && used + 16 <= all.len()
                && count <= STRIDE
            {
                dst[at..at + 16].copy_from_slice(&all[used..used + 16]);
                at += literals;
                used += literals;
                if distance > at {
                    let from = inside(len + at, distance, count, len)?;
                    dst[at..at + STRIDE].copy_from_slice(&dictionary[from..from + STRIDE]);
                } else if distance >= STRIDE {
                    let mut stride = [0; STRIDE];
                    stride.copy_from_slice(&dst[at - distance..at - distance + STRIDE]);
                    dst[at..at + STRIDE].copy_from_slice(&stride);
                } else if distance > 0 {
                    repeat(dst, at, distance, count);
                } else {
                    return None;
                }
                at += count;
                continue;
            }
            let now = literals.min(dst.len() - at);
            dst[at..at + now].copy_from_slice(all.get(used..used + now)?);
            at += now;
            used += now;
            if at == dst.len() {
                break;
            }
            let now = count.min(dst.len() - at);
            if distance > at {
                let from = inside(len + at, distance, count, len)?;
                dst[at..at + now].copy_from_slice(&dictionary[from..from + now]);
            } else if distance >= now.max(1) {
                dst.copy_within(at - distance..at - distance + now, at);
            } else if distance > 0 {
                repeat(dst, at, distance, now);
            } else {
                return None;
            }
            at += now;
        }
        (self.at, self.used) = (at, used);
        Some(())
    }

    pub fn is_full(&self) -> bool {
        self.at == self.dst.len()
    }

    /// Copies the literals behind the last sequence.
    pub fn finish(&mut self, literals: usize, block_len: usize) -> Option<()> {
        let left = self.dst.len() - self.at;
        if left > 0 {
            if self.used + left > literals {
                return None;
            }
            self.dst[self.at..].copy_from_slice(self.literals.get(self.used..self.used + left)?);
            self.used += left;
        }
        let is_whole = self.dst.len() == block_len;
        (self.used == literals || !is_whole && self.used < literals).then_some(())
    }
}

/// Where in the dictionary a match starts that lies so far back, if it lies in there wholly.
#[inline(always)]
fn inside(behind: usize, distance: usize, count: usize, dictionary_len: usize) -> Option<usize> {
    let from = behind.checked_sub(distance)?;
    (from + count <= dictionary_len).then_some(from)
}

/// Copies what overlaps itself: byte by byte, the first of them are what the next ones repeat.
#[inline(never)]
fn repeat(dst: &mut [u8], at: usize, distance: usize, count: usize) {
    let mut done = 0;
    // What is there already doubles each time.
    while done < count {
        let now = (distance + done).min(count - done);
        dst.copy_within(at - distance..at - distance + now, at + done);
        done += now;
    }
}
