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
use crate::wire::{Put, Take, load_u32, load_u64};

/// Bits of an offset into a dictionary of this length.
pub(super) fn width(dictionary_len: usize) -> u32 {
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

/// The lengths of a block, and the bytes of its offsets.
#[inline(always)]
fn lens_of<'a>(stored: &'a [u8], block_len: usize, scratch: &mut Vec<u32>) -> Option<&'a [u8]> {
    let mut take = Take::new(stored, "factors", 0);
    let count = take.count(block_len as u64).ok()?;
    let rest = take.bytes(take.remaining()).ok()?;
    let used = lens::take(rest, count, scratch)?;
    (lens::text_len(scratch) == block_len as u64).then(|| &rest[used..])
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
    start: usize,
    dst: &mut [u8],
    scratch: &mut Scratch,
) -> Option<()> {
    let offsets = lens_of(stored, block_len, &mut scratch.lens)?;
    if offsets.len() != 4 * scratch.lens.len() {
        return None;
    }
    copy::copy(dictionary, &scratch.lens, |i| load_u32(offsets, 4 * i), start, dst)
}

pub(super) fn decode_pv(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    start: usize,
    dst: &mut [u8],
    scratch: &mut Scratch,
) -> Option<()> {
    let offsets = lens_of(stored, block_len, &mut scratch.lens)?;
    let width = width(dictionary.len()) as usize;
    let count = scratch.lens.len();
    if offsets.len() != (count * width).div_ceil(8) {
        return None;
    }
    let mask = (1u64 << width) - 1;
    // The last ones are read from a copy that has room behind them.
    let tail = offsets.len().saturating_sub(8);
    let mut padded = [0; 16];
    padded[..offsets.len() - tail].copy_from_slice(&offsets[tail..]);
    let offset_of = |i: usize| {
        let bit = i * width;
        let word = match bit / 8 {
            at if at < tail => load_u64(offsets, at),
            at => load_u64(&padded, at - tail),
        };
        (word >> (bit % 8) & mask) as u32
    };
    copy::copy(dictionary, &scratch.lens, offset_of, start, dst)
}
