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

use crate::rlz::Dictionary;
use crate::rlz::coder::{Scratch, copy, lens};
use crate::rlz::matcher::Factor;
use crate::rlz::memory::prefetch;
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
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let offsets_of = |stored: &[u8], count: usize| stored.len().checked_sub(4 * count);
    let piece = Factors::of(stored, block_len, start, dst.len(), offsets_of, scratch)?;
    let offset_of = |i: usize| load_u32(piece.offsets, 4 * (piece.first + i));
    copy::copy(dictionary, &scratch.lens, offset_of, piece.skip, dst)
}

pub(super) fn decode_pv(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let width = width(dictionary.len()) as usize;
    let offsets_of =
        |stored: &[u8], count: usize| stored.len().checked_sub((count * width).div_ceil(8));
    let piece = Factors::of(stored, block_len, start, dst.len(), offsets_of, scratch)?;
    let offsets = piece.offsets;
    let mask = (1u64 << width) - 1;
    // The last ones are read from a copy that has room behind them.
    let tail = offsets.len().saturating_sub(8);
    let mut padded = [0; 16];
    padded[..offsets.len() - tail].copy_from_slice(&offsets[tail..]);
    let offset_of = |i: usize| {
        let bit = (piece.first + i) * width;
        let word = match bit / 8 {
            at if at < tail => load_u64(offsets, at),
            at => load_u64(&padded, at - tail),
        };
        (word >> (bit % 8) & mask) as u32
    };
    copy::copy(dictionary, &scratch.lens, offset_of, piece.skip, dst)
}

/// Asks for the lengths between the place of a read and the nearer end, and for the offsets there, as if all factors were as
/// long: they are all needed, and far from one another.
#[inline(always)]
fn ask_ahead(lens: &[u8], offsets: &[u8], start: usize, block_len: usize) {
    const LINE: usize = 64;
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

/// The factors that a read needs; their lengths are in the scratch.
struct Factors<'a> {
    /// Number of the first, and how many bytes of it are before the read.
    first: usize,
    skip: usize,
    /// Bytes of the offsets of all factors.
    offsets: &'a [u8],
}

impl<'a> Factors<'a> {
    /// Those of `len` bytes from `start` on; `offsets_of` says where the offsets of so many factors
    /// start, which end where the stored bytes do. Of a whole block all is checked, of a piece what it
    /// needs.
    #[inline(always)]
    fn of(
        stored: &'a [u8],
        block_len: usize,
        start: usize,
        len: usize,
        offsets_of: impl Fn(&[u8], usize) -> Option<usize>,
        scratch: &mut Scratch,
    ) -> Option<Factors<'a>> {
        let mut take = Take::new(stored, "factors", 0);
        let count = take.count(block_len as u64).ok()?;
        let before = stored.len() - take.remaining();
        let offsets_at = offsets_of(stored, count)?;
        let lens = stored.get(before..offsets_at)?;
        let offsets = &stored[offsets_at..];
        if len == 0 {
            scratch.lens.clear();
            return Some(Factors { first: 0, skip: 0, offsets });
        }
        if len < block_len {
            // With the byte before them, which is the last one of the count.
            let lens = &stored[before - 1..offsets_at];
            ask_ahead(lens, offsets, start, block_len);
            let found = lens::seek(lens, count, start, block_len)?;
            lens::take_until(lens, &found, count, start + len, &mut scratch.lens)?;
            return Some(Factors { first: found.factor, skip: start - found.start, offsets });
        }
        let used = lens::take(lens, count, &mut scratch.lens)?;
        let is_all = used == lens.len() && lens::text_len(&scratch.lens) == block_len as u64;
        is_all.then_some(Factors { first: 0, skip: 0, offsets })
    }
}
