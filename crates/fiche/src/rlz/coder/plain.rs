//! `rlz-uv` and `rlz-pv`: lengths as vbyte, offsets in 32 bits or in as few as an offset needs.
//!
//! # rlz-uv
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | factors | how many, at least 1 |
//! | varint each | lengths | of each factor; 0 for a literal |
//! | 4 each | offsets | where in the dictionary each factor starts; of a literal, the byte |
//!
//! # rlz-pv
//!
//! As `rlz-uv`, but each offset takes as many bits as the largest offset into the dictionary needs
//! (its length less 1), and 8 at least; offset `i` is at bit `i * bits`, bit 0 the lowest bit of
//! the first byte. Bits behind the last one are zero.

use crate::processor::prefetch;
use crate::rlz::Dictionary;
use crate::rlz::coder::{Begin, Coding, Scratch, copy, lens};
use crate::rlz::matcher::Factor;
use crate::wire::{Put, Take, load_u32, load_u64};

/// Bits of an offset into a dictionary of this length.
pub(crate) fn width(dictionary_len: usize) -> u32 {
    (usize::BITS - dictionary_len.saturating_sub(1).leading_zeros()).max(8)
}

pub(super) fn encode_uv(factors: &[Factor], out: &mut Vec<u8>) {
    out.put_varint(factors.len() as u64);
    lens::put(factors.iter().map(|f| f.len), out);
    factors.iter().for_each(|f| out.put_u32(f.offset));
}

pub(super) fn encode_pv(factors: &[Factor], dictionary_len: usize, out: &mut Vec<u8>) {
    out.put_varint(factors.len() as u64);
    lens::put(factors.iter().map(|f| f.len), out);
    let width = width(dictionary_len);
    let (mut word, mut bits) = (0u64, 0);
    for factor in factors {
        word |= u64::from(factor.offset) << bits;
        bits += width;
        while bits >= 8 {
            out.put_u8(word as u8);
            word >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.put_u8(word as u8);
    }
}

/// How long the block is, as far as its lengths say; at most `limit`.
pub(super) fn block_len(stored: &[u8], limit: usize, scratch: &mut Scratch) -> Option<usize> {
    let mut take = Take::new(stored, "factors", 0);
    let count = take.count(limit as u64).ok()?;
    let rest = take.bytes(take.remaining()).ok()?;
    lens::take(rest, count, &mut scratch.lens)?;
    usize::try_from(lens::text_len(&scratch.lens)).ok()
}

pub(super) fn decode_uv(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (begin, dst): (Begin<'_>, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let piece = Factors::of(stored, block_len, begin, dst.len(), 32, &mut scratch.lens)?;
    copy::copy(dictionary, &scratch.lens, |i| piece.offset_uv(i), piece.skip, dst)
}

pub(super) fn decode_pv(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (begin, dst): (Begin<'_>, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let width = width(dictionary.len()) as usize;
    let piece = Factors::of(stored, block_len, begin, dst.len(), width, &mut scratch.lens)?;
    copy::copy(dictionary, &scratch.lens, |i| piece.offset_pv(i, width), piece.skip, dst)
}

/// A read of a few bytes on its way: its factors are known, and what they copy was asked for. Others
/// are looked up while that comes.
#[derive(Default)]
pub(crate) struct Pending {
    lens: Vec<u32>,
    offsets: Vec<u32>,
    skip: usize,
}

impl Pending {
    /// Looks up the factors of `len` bytes of a block; `None` where there are none such.
    pub fn start(
        &mut self,
        coding: Coding,
        dictionary: &Dictionary,
        stored: &[u8],
        block_len: usize,
        begin: Begin<'_>,
        len: usize,
    ) -> Option<()> {
        let width = if coding == Coding::Uv { 32 } else { width(dictionary.len()) as usize };
        let piece = Factors::of(stored, block_len, begin, len, width, &mut self.lens)?;
        self.skip = piece.skip;
        self.offsets.clear();
        let offset_of = |i| match coding {
            Coding::Uv => piece.offset_uv(i),
            _ => piece.offset_pv(i, width),
        };
        self.offsets.extend((0..self.lens.len()).map(offset_of));
        copy::ask(dictionary, &self.lens, &self.offsets, self.skip);
        Some(())
    }

    /// Fills the read; `None` where its factors lead out of the dictionary.
    pub fn finish(&self, dictionary: &Dictionary, dst: &mut [u8]) -> Option<()> {
        copy::copy(dictionary, &self.lens, |i| self.offsets[i], self.skip, dst)
    }
}

/// The eight bytes from `at` on, as far as there are any.
#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    #[cold]
    fn at_the_end(bytes: &[u8], at: usize) -> u64 {
        let mut word = [0; 8];
        let rest = bytes.get(at..).unwrap_or(&[]);
        word[..rest.len()].copy_from_slice(rest);
        load_u64(&word, 0)
    }
    if at + 8 <= bytes.len() { load_u64(bytes, at) } else { at_the_end(bytes, at) }
}

/// Bytes that come from memory at once.
const LINE: usize = 64;

/// Asks for the lengths between the place of a read and the nearer end, and for the offsets there, as if all factors were as
/// long: they are all needed, and far from one another.
#[inline(always)]
fn ask_ahead(lens: &[u8], offsets: &[u8], start: usize, block_len: usize) {
    /// More than these the processor asks for by itself.
    const LINES: usize = 24;
    let place = |len: usize| len * start / block_len.max(1);
    let at = place(lens.len());
    let needed = match start > block_len / 2 {
        true => at.saturating_sub(LINE)..lens.len(),
        false => 0..at + LINE,
    };
    for at in needed.step_by(LINE).take(LINES) {
        prefetch(lens, at);
    }
    let at = place(offsets.len());
    for line in [at.saturating_sub(LINE), at, at + LINE] {
        prefetch(offsets, line);
    }
}

/// A place in a block from which a read can go on without what is before: a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Where its length is in the stored bytes.
    pub at: usize,
    /// How many factors there are from it on, and all of them modulo 8: offsets are found from the end.
    pub left: usize,
    pub count: usize,
    /// Where its text starts in the block.
    pub start: usize,
}

impl Mark {
    /// The first factor of a block.
    #[inline(always)]
    fn first(stored: &[u8], limit: usize) -> Option<Mark> {
        let mut take = Take::new(stored, "factors", 0);
        let count = take.count(limit as u64).ok()?;
        Some(Mark { at: stored.len() - take.remaining(), left: count, count: count % 8, start: 0 })
    }

    /// Asks for the lengths behind it.
    #[inline(always)]
    pub fn ask(&self, stored: &[u8]) {
        for line in 0..3 {
            prefetch(stored, self.at + LINE * line);
        }
    }

    /// Where the offset of its factor is in so many stored bytes: byte and bit.
    #[inline(always)]
    fn offsets_at(&self, stored_len: usize, width: usize) -> Option<(usize, usize)> {
        // What is behind the last offset fills up a byte.
        let bits = self.left.checked_mul(width)? + (self.count * width).wrapping_neg() % 8;
        let at = (8 * stored_len).checked_sub(bits)?;
        Some((at / 8, at % 8))
    }
}

/// The marks of the factors in which byte `first` of a block is, and every one `step` bytes further.
pub(super) fn marks(
    stored: &[u8],
    block_len: usize,
    first: usize,
    step: usize,
    mut put: impl FnMut(Mark),
) -> Option<()> {
    let Mark { at, left, count, .. } = Mark::first(stored, stored.len())?;
    lens::seek_all(&stored[at - 1..], (left, block_len), first, step, |found| {
        let (at, left) = (at - 1 + found.at, left - found.factor);
        put(Mark { at, left, count, start: found.start });
    })
}

/// Asks for where the length and the offset of the byte at `start` most probably are, before anything of the
/// stored bytes is known: as if all factors were as long, and their lengths and offsets took `per` tenths of a byte.
#[inline(always)]
pub(super) fn ask_about(stored: &[u8], start: usize, block_len: usize, per: usize) {
    const LENGTH: usize = 11;
    let lens = stored.len() * LENGTH / per;
    let at = lens * start / block_len;
    let offset = lens + (stored.len() - lens) * start / block_len;
    for line in 0..3 {
        prefetch(stored, (at + LINE * line).saturating_sub(LINE));
    }
    for line in 0..4 {
        prefetch(stored, (offset + LINE * line).saturating_sub(LINE * 3 / 2));
    }
}

/// The factors that a read needs; their lengths are in the scratch.
struct Factors<'a> {
    /// How many bytes of the first one are before the read.
    skip: usize,
    /// Bytes of their offsets and of all behind them, and the bit of these where they begin.
    offsets: &'a [u8],
    bit: usize,
}

impl<'a> Factors<'a> {
    /// Those of `len` bytes from a place on; an offset takes `width` bits. Of a whole block all is
    /// checked, of a piece what it needs.
    #[inline(always)]
    fn of(
        stored: &'a [u8],
        block_len: usize,
        Begin { at: start, mark, .. }: Begin<'_>,
        len: usize,
        width: usize,
        lens_out: &mut Vec<u32>,
    ) -> Option<Factors<'a>> {
        let is_known = mark.is_some();
        let mark = match mark {
            Some(mark) => mark,
            None => Mark::first(stored, block_len)?,
        };
        let (offsets_at, bit) = mark.offsets_at(stored.len(), width)?;
        // With the byte before them, which is the last one of the count or of a length.
        let lens = stored.get(mark.at - 1..offsets_at).filter(|lens| !lens.is_empty())?;
        let offsets = &stored[offsets_at..];
        let whole = Factors { skip: 0, offsets, bit };
        if len == 0 {
            lens_out.clear();
            return Some(whole);
        }
        if len == block_len {
            let used = lens::take(&lens[1..], mark.left, lens_out)?;
            let is_all = used + 1 == lens.len() && lens::text_len(lens_out) == block_len as u64;
            return is_all.then_some(whole);
        }
        let before = start - mark.start;
        let found = if is_known {
            // As if all factors were as long.
            let factors = before * mark.left / (block_len - mark.start);
            let at = factors * width / 8;
            for line in 0..3 {
                prefetch(lens, LINE * line);
                prefetch(offsets, (at + LINE * line).saturating_sub(LINE));
            }
            lens::seek_near(lens, mark.left, before)?
        } else {
            ask_ahead(lens, offsets, start, block_len);
            lens::seek(lens, mark.left, start, block_len)?
        };
        let end = before + len;
        lens::take_until(lens, &found, mark.left, end, lens_out)?;
        let bit = bit + found.factor * width;
        let (offsets, bit) = (&offsets[bit / 8..], bit % 8);
        Some(Factors { skip: before - found.start, offsets, bit })
    }

    /// The offset of factor `i` of these, in 32 bits.
    #[inline(always)]
    fn offset_uv(&self, i: usize) -> u32 {
        load_u32(self.offsets, 4 * i)
    }

    /// The same in `width` bits.
    #[inline(always)]
    fn offset_pv(&self, i: usize, width: usize) -> u32 {
        let bit = self.bit + i * width;
        (word_at(self.offsets, bit / 8) >> (bit % 8) & ((1 << width) - 1)) as u32
    }
}
