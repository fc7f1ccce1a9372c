//! Texts as words of a vocabulary that a model has.
//!
//! A text of a few bytes has no room to say what it repeats, and what is before it in a packet is little; but texts of a column are made of
//! the same pieces again and again. So pieces are chosen once, on a sample, and each text becomes some numbers, which are then told as
//! numbers of any other column are: with tables, contexts and bins. Words may be anything from a byte to a whole text. (Gage, 1994, joins pairs of
//! bytes; FSST, Boncz, Neumann and Leis, 2020, symbols of up to 8 bytes, in rounds: so is it done here, with prices by how often a word comes.)
//!
//! # Words
//!
//! The texts of a column are these numbers of 4 bytes, one behind the other:
//!
//! | number | bytes |
//! |---|---|
//! | 0 to 24 | two to so many, which lie between the symbols and the bits of the packet |
//! | 25 | as the first of a text of which all others are up to 24: what these stand for are 4 bytes, the length of the text, and the text as a frame of zstd without its magic number |
//! | 32 to 255 | so many less 31 that the text before in the same packet has at this place |
//! | from 256 on | the word of the vocabulary, the first of which has 256 |
//!
//! # Vocabulary
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | words | how many, up to 2^16 |
//! | for each | length | varint: bytes of the word, 1 to 2^16 |
//! | | bytes | of all words; 2^22 at most |

mod forms;
mod learn;
mod parse;

use crate::error::Result;
use crate::wire::{Put, Take};

pub(super) use forms::{Formed, Forms};
use learn::{TOGETHER, learn};
use parse::{Parser, Ways};

/// The number of the first word of a vocabulary.
pub(super) const FIRST: u32 = 256;
/// Two to less than this are the bytes that lie in a packet as they are.
pub(super) const RUNS: u32 = 25;
/// The first of a text that is compressed by itself.
pub(super) const FRAME: u32 = 25;
/// The number before that of one byte of the text before.
pub(super) const SAME: u32 = 31;
/// Words of a vocabulary at most, bytes of one, and of all.
const MOST_WORDS: usize = 1 << 16;
const LONGEST: usize = 1 << 16;
const MOST_BYTES: usize = 1 << 22;

/// Pieces that texts are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<u32>,
}

/// What a number of a text stands for.
pub(super) enum Word<'a> {
    Bytes(&'a [u8]),
    /// So many bytes that lie in the packet.
    Stored(usize),
    /// The whole text is a frame.
    Frame,
    /// So many of the text before.
    Same(usize),
}

/// Bytes of a number that lie in the packet.
#[inline(always)]
pub(super) fn stored(number: u64) -> usize {
    if number < RUNS.into() { 1 << number } else { 0 }
}

/// Whether a number is of bytes of the text before.
#[inline(always)]
pub(super) fn is_same(number: u64) -> bool {
    (u64::from(SAME) + 1..u64::from(FIRST)).contains(&number)
}

impl Vocabulary {
    fn new<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for word in words {
            vocabulary.bytes.extend_from_slice(word);
            vocabulary.ends.push(vocabulary.bytes.len() as u32);
        }
        vocabulary
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn word(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        self.bytes.get(start..end)
    }

    /// What a number stands for; `None` for one without a meaning.
    #[inline(always)]
    pub fn get(&self, number: u64) -> Option<Word<'_>> {
        match number.checked_sub(FIRST.into()) {
            Some(i) => self.word(usize::try_from(i).ok()?).map(Word::Bytes),
            None if number < RUNS.into() => Some(Word::Stored(1 << number)),
            None if number == u64::from(FRAME) => Some(Word::Frame),
            None => {
                number.checked_sub(SAME.into()).filter(|&n| n > 0).map(|n| Word::Same(n as usize))
            }
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.len() as u64);
        (0..self.len()).for_each(|i| out.put_varint(self.word(i).map_or(0, <[u8]>::len) as u64));
        out.put(&self.bytes);
    }

    pub fn take(take: &mut Take<'_>) -> Result<Vocabulary> {
        let count = take.count(MOST_WORDS.min(take.remaining()) as u64)?;
        let mut ends = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let len = take.count(LONGEST as u64)?;
            end += len;
            if len == 0 || end > MOST_BYTES {
                return Err(take.corrupt());
            }
            ends.push(end as u32);
        }
        Ok(Vocabulary { bytes: take.bytes(end)?.to_vec(), ends })
    }
}
