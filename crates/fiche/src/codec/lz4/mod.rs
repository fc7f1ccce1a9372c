//! LZ4, on bytes however they lie.
//!
//! The block format is Collet's (*LZ4 Block Format Description*, 2022): sequences of a token, literals, an offset of 16 bits and a match of four bytes or more, the last of them of literals alone.
//! Encoders end matches five bytes before the end, and begin none in the last twelve.

mod best;
mod decode;
mod encode;
mod kernel;

use std::ops::RangeInclusive;

use self::best::Effort;
use super::Scratch;
use crate::error::Result;
use crate::pages::{Dst, DstLayout, One, PagesRoom, SegmentsRoom, Src, SrcLayout};

/// Bytes of a match at least.
const LEAST: usize = 4;
/// Half of a token that has more bytes of the length behind it.
const LONG: usize = 15;
/// Literals that are last at least.
const LAST_LITERALS: usize = 5;
/// Bytes before the end where the last match may begin.
const BEFORE_END: usize = 12;

/// All levels that there are: 1 and less are fast, and below 0 ever more bytes are skipped where nothing is found; 2 has four times as many places; those from 3 on search for
/// long matches, and for the cheapest way through them.
pub(super) const LEVELS: RangeInclusive<i32> = -64..=12;

/// What encoders work with.
#[derive(Default)]
pub(super) struct Tables {
    fast: encode::Tables,
    best: best::Tables,
}

impl Effort {
    /// Of a level from 3 on.
    fn of(level: i32) -> Effort {
        let (chains, depth) = match level {
            ..=3 => (1, 4),
            4 | 5 => (1, 8),
            6 => (1, 16),
            7 => (2, 4),
            8 => (2, 8),
            9 => (2, 16),
            10 => (3, 32),
            11 => (6, 64),
            12.. => (8, 256),
        };
        Effort { chains, depth, is_thorough: level > 4 }
    }
}

/// The most bytes that so many may become.
#[must_use]
pub fn bound(len: usize) -> usize {
    len + len / 255 + 16
}

/// Compresses `src` into the front of `dst`, and returns how many bytes that took; `None` where there is no room. The same bytes come of it however they lie.
/// Nothing is copied but from `src` to `dst`.
pub(super) fn compress(
    level: i32,
    src: Src<'_>,
    dst: Dst<'_, '_>,
    scratch: &mut Scratch,
) -> Option<usize> {
    let Tables { fast, best } = &mut scratch.lz4;
    let speed = level.min(1).unsigned_abs();
    match level {
        ..=1 => {
            for_layouts!(src, dst, |from, to| encode::encode::<{ 1 << 12 }>(speed, &from, to, fast))
        }
        2 => {
            for_layouts!(src, dst, |from, to| encode::encode::<{ 1 << 14 }>(speed, &from, to, fast))
        }
        _ => for_layouts!(src, dst, |from, to| best::encode(Effort::of(level), &from, to, best)),
    }
}

/// Decodes `src` into the front of `dst`, and returns how many bytes that gave. `src` may hold anything.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt), which says what is wrong, and where in `src`.
pub fn decompress(src: Src<'_>, dst: Dst<'_, '_>) -> Result<usize> {
    for_layouts!(src, dst, |from, to| decode::decode::<false>(&from, to))
}

/// Decodes the front of `src`, as much as fills `dst`.
pub(super) fn decompress_front(src: Src<'_>, dst: Dst<'_, '_>) -> Result<usize> {
    for_layouts!(src, dst, |from, to| decode::decode::<true>(&from, to))
}
