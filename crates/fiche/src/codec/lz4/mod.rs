//! LZ4, on bytes however they lie.
//!
//! Fast levels and decoding are our own; high compression is the C library's.
//!
//! The block format is Collet's (*LZ4 Block Format Description*, 2022): sequences of a token, literals, an offset of 16 bits and a match of four bytes or more, the last of them of literals alone.
//! Encoders end matches five bytes before the end, and begin none in the last twelve.

mod decode;
mod encode;
mod kernel;
#[cfg(feature = "lz4")]
pub(super) mod library;

use std::ops::RangeInclusive;

pub(super) use self::encode::Tables;
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

/// The levels that are fast, to which other searches are compared: 2 has four times as many places, and below 0 ever more bytes are skipped where nothing is found.
pub(super) const FAST: RangeInclusive<i32> = -64..=2;

/// All that there are.
pub(super) const LEVELS: RangeInclusive<i32> = -64..=if cfg!(feature = "lz4") { 12 } else { 2 };

/// The most bytes that so many may become.
#[must_use]
pub fn bound(len: usize) -> usize {
    len + len / 255 + 16
}

/// Compresses `src` into the front of `dst` by a fast level, and returns how many bytes that took; `None` where there is no room. The same bytes come of it however they lie.
/// Nothing is copied but from `src` to `dst`.
pub(super) fn compress(
    level: i32,
    src: Src<'_>,
    dst: Dst<'_, '_>,
    scratch: &mut Scratch,
) -> Option<usize> {
    let (tables, speed) = (&mut scratch.lz4, level.min(1).unsigned_abs());
    if level == 2 {
        for_layouts!(src, dst, |from, to| encode::encode::<{ 1 << 14 }>(speed, &from, to, tables))
    } else {
        for_layouts!(src, dst, |from, to| encode::encode::<{ 1 << 12 }>(speed, &from, to, tables))
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
