//! Encodes blocks.

use super::{BEFORE_END, LAST_LITERALS, LEAST, LONG};
use crate::codec::matches::{Cursor, FIBONACCI, eight};
use crate::pages::{Pieces, Room};
use crate::wire::low_bytes;

/// Matches may be so far away.
pub(super) const FARTHEST: usize = 65_535;

/// What encoders work with: by hash, where bytes like these were met last.
pub(in crate::codec) type Tables = Vec<u64>;

/// Where a block is written.
pub(super) struct Writer<'s, S: Pieces, D: Room> {
    src: &'s S,
    dst: D,
    at: usize,
}

/// Bytes that a length takes beside its half of a token.
#[inline(always)]
pub(super) const fn extra(len: usize) -> usize {
    if len < LONG { 0 } else { (len - LONG) / 255 + 1 }
}

impl<'s, S: Pieces, D: Room> Writer<'s, S, D> {
    pub fn new(src: &'s S, dst: D) -> Self {
        Writer { src, dst, at: 0 }
    }

    pub fn src(&self) -> &'s S {
        self.src
    }

    /// Writes literals from a place on, and a match; `None` where there is no room.
    #[inline(always)]
    pub fn put(
        &mut self,
        start: usize,
        literals: usize,
        matched: usize,
        offset: usize,
    ) -> Option<()> {
        let matched = matched - LEAST;
        let [low, high, ..] = low_bytes(offset as u64);
        if literals < LONG
            && matched < LONG
            && let Some(bytes) = self.src.at(start).first_chunk::<16>()
            && let Some(room) = self.dst.rest(self.at).first_chunk_mut::<32>()
        {
            room[0] = (literals << 4 | matched) as u8;
            room[1..17].copy_from_slice(bytes);
            room[1 + literals] = low;
            room[2 + literals] = high;
            self.at += 3 + literals;
            return Some(());
        }
        let len = 1 + extra(literals) + literals + 2 + extra(matched);
        if len > self.dst.len() - self.at {
            return None;
        }
        self.head(start, literals, matched);
        self.dst.store(self.at, [low, high]);
        self.at += 2;
        self.length(matched);
        Some(())
    }

    /// A token, and literals.
    #[inline(always)]
    fn head(&mut self, start: usize, literals: usize, matched: usize) {
        self.dst.store(self.at, [(literals.min(LONG) << 4 | matched.min(LONG)) as u8]);
        self.at += 1;
        self.length(literals);
        self.dst.copy_from(self.at, self.src, start, literals);
        self.at += literals;
    }

    /// What a length has beside its half of a token.
    #[inline(always)]
    fn length(&mut self, len: usize) {
        let Some(mut left) = len.checked_sub(LONG) else { return };
        while left >= 255 {
            self.dst.store(self.at, [255]);
            (self.at, left) = (self.at + 1, left - 255);
        }
        self.dst.store(self.at, [left as u8]);
        self.at += 1;
    }

    /// Writes the last literals; returns how long the block is.
    pub fn finish(mut self, start: usize) -> Option<usize> {
        let literals = self.src.len() - start;
        if 1 + extra(literals) + literals > self.dst.len() - self.at {
            return None;
        }
        self.head(start, literals, 0);
        Some(self.at)
    }
}

/// Compresses all of `src`, with `N` places, a power of two; returns how many bytes that took, or `None` where there is no room for them.
pub(super) fn encode<const N: usize>(
    speed: u32,
    src: &impl Pieces,
    dst: impl Room,
    tables: &mut Tables,
) -> Option<usize> {
    let mut writer = Writer::new(src, dst);
    let anchor = first_found::<N, _, _>(&mut writer, speed, tables)?;
    writer.finish(anchor)
}

/// Bytes that a fast search wants to be the same. Fewer are so by chance more often than not.
const SEEN: usize = 5;
/// Where bytes were met, by hash.
///
/// The hash of five bytes has as many bits, and is another one for any other five, as multiplying by what is odd can be undone. Some of its bits tell where to look, and all others
/// are there beside the place: so it is known whether the bytes are the same without a look at them, which may be far away, and in another page.
struct Places<'a, const N: usize>(&'a mut [u64; N]);

impl<const N: usize> Places<'_, N> {
    const BITS: u32 = N.ilog2();
    /// Bits of a place beside those of the hash.
    const PLACE: u32 = 64 - (8 * SEEN as u32 - Self::BITS);

    /// Where the same bytes were met last, if that is not too far away; from now on that is here.
    #[inline(always)]
    fn swap(&mut self, bits: u64, at: usize) -> Option<usize> {
        let hash = (bits << (64 - 8 * SEEN)).wrapping_mul(FIBONACCI);
        let here = hash << Self::BITS | at as u64;
        let there = std::mem::replace(&mut self.0[(hash >> (64 - Self::BITS)) as usize], here);
        if there ^ here >= 1 << Self::PLACE {
            return None;
        }
        let found = (there & ((1 << Self::PLACE) - 1)) as usize;
        (at.wrapping_sub(found) <= FARTHEST).then_some(found)
    }
}

/// Takes the first match that is found at each place; returns where the last literals begin.
#[inline(always)]
fn first_found<const N: usize, S: Pieces, D: Room>(
    writer: &mut Writer<'_, S, D>,
    speed: u32,
    tables: &mut Tables,
) -> Option<usize> {
    let src = writer.src;
    // Nowhere: farther than anything.
    tables.clear();
    tables.resize(N, u64::MAX);
    let mut places = Places(tables.first_chunk_mut::<N>()?);
    let speed = speed.clamp(1, 1 << 16) as usize;
    if src.len() as u64 >= 1 << Places::<N>::PLACE {
        // No block is as long; its places would not fit.
        return Some(0);
    }
    // Where a match may begin is before this, and where it may end.
    let (Some(last), Some(end)) =
        ((src.len() + 1).checked_sub(BEFORE_END), src.len().checked_sub(LAST_LITERALS))
    else {
        return Some(0);
    };
    let mut cursor = Cursor::new(src);
    let (mut anchor, mut at) = (0, 1);
    if last > 0 {
        places.swap(cursor.eight(0), 0);
    }
    'all: while at < last {
        // Looks for a match; ever farther apart, where there was none for long.
        let mut counter = speed << 6;
        let found = loop {
            let bits = cursor.eight(at);
            if let Some(found) = places.swap(bits, at) {
                break found;
            }
            at += counter >> 6;
            counter += 1;
            if at >= last {
                break 'all;
            }
        };
        let offset = at - found;
        let mut start = at;
        while start > anchor
            && start > offset
            && src.load::<1>(start - 1) == src.load::<1>(start - 1 - offset)
        {
            start -= 1;
        }
        at += SEEN + cursor.common(found + SEEN, at + SEEN, end);
        writer.put(anchor, start - anchor, at - start, offset)?;
        anchor = at;
        // What follows a match often is one.
        while at < last {
            places.swap(eight(src, at - 2), at - 2);
            let bits = cursor.eight(at);
            let Some(found) = places.swap(bits, at) else {
                at += 1;
                break;
            };
            at += SEEN + cursor.common(found + SEEN, at + SEEN, end);
            writer.put(anchor, 0, at - anchor, anchor - found)?;
            anchor = at;
        }
    }
    Some(anchor)
}
