//! Blocks that are filtered before a codec sees them.
//!
//! # Filtered blocks
//!
//! The number of a codec with filters before it is the codec's plus 64 times how many filters: up to three.
//! The stored bytes of a block then begin with a byte for each, in the order in which they are applied, which is its kind times 64, plus the bytes of an element; what the codec
//! made of the filtered bytes follows.
//! A block whose stored bytes are as many as its decoded ones is these bytes themselves, not filtered.
//!
//! | kind | filter | bytes of an element | filtered bytes |
//! |---|---|---|---|
//! | 0 | shuffle | 1 to 63 | the first bytes of all elements, then their second ones, and so on |
//! | 1 | bitshuffle | 1 to 63 | of as many elements as are a multiple of eight: the lowest bits of their first bytes, eight to a byte, the first in the lowest bit; then the next bits of these bytes, and so on; then the same of their second bytes, and so on |
//! | 2 | delta | 1, 2, 4 or 8 | of each element, as a little-endian integer, what it is more than the one before (the first: than 0), modulo its range |
//!
//! Bytes of a block behind the last element, or behind the last eight of them, are last, and as they are.

use super::filter::Filter;
use super::{Codec, Scratch};
use crate::error::{Error, Place, Result};

/// Filters before a codec at most.
pub(crate) const MAX_FILTERS: usize = 3;
/// What tells filters apart from codecs in a number.
const FILTERED: u8 = 64;

/// A codec, and how many filters are before it: what a number of a file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stages {
    pub codec: Codec,
    pub filters: usize,
}

impl Stages {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Stages> {
        let with = |codec| (0..=MAX_FILTERS).map(move |filters| Stages { codec, filters });
        Codec::ALL.into_iter().flat_map(with)
    }

    pub fn from_number(number: u8) -> Option<Stages> {
        let codec = Codec::from_number(number % FILTERED)?;
        Some(Stages { codec, filters: usize::from(number / FILTERED) })
    }

    pub fn number(self) -> u8 {
        self.codec as u8 + self.filters as u8 * FILTERED
    }

    /// As [`Codec::stops_early`]: what is filtered has to be there as a whole.
    pub fn stops_early(self, end: usize, len: usize) -> bool {
        self.filters == 0 && self.codec.stops_early(end, len)
    }

    /// As [`Codec::decompress_front`].
    pub fn decompress_front(
        self,
        src: &[u8],
        len: usize,
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.filters == 0 || dst.len() > len {
            return self.codec.decompress_front(src.into(), len, dst.into(), scratch);
        }
        let mut room = std::mem::take(&mut scratch.room);
        room.resize(len, 0);
        let done = match dst.len() == len {
            true => self.undo(src, dst, scratch),
            false => self
                .undo(src, &mut room, scratch)
                .inspect(|_| dst.copy_from_slice(&room[..dst.len()])),
        };
        scratch.room = room;
        match done? {
            Some(done) if done == len => Ok(()),
            _ => Err(Error::Corrupt { what: "stored block", at: Place::Pos(0) }),
        }
    }

    /// As [`Codec::try_decompress`].
    pub fn decompress_within(
        self,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        match self.filters {
            0 => self.codec.try_decompress(src.into(), dst.into(), scratch),
            _ => self.undo(src, dst, scratch),
        }
    }

    /// Decodes into the front of `dst`; how many bytes that gave.
    fn undo(self, src: &[u8], dst: &mut [u8], scratch: &mut Scratch) -> Result<Option<usize>> {
        let Some((named, src)) = src.split_at_checked(self.filters) else { return Ok(None) };
        let mut filters = [Filter::Delta(1); MAX_FILTERS];
        let filters = &mut filters[..self.filters];
        for (filter, &byte) in filters.iter_mut().zip(named) {
            match Filter::from_byte(byte) {
                Some(found) => *filter = found,
                None => return Ok(None),
            }
        }
        // Each way there is one between, of two rooms.
        let [mut from, mut to] = std::mem::take(&mut scratch.filtered);
        from.resize(dst.len().max(from.len()), 0);
        let room = &mut from[..dst.len()];
        let decoded = self.codec.try_decompress(src.into(), room.into(), scratch);
        if let Ok(Some(len)) = decoded {
            let (first, others) = filters.split_first().expect("there are some");
            for filter in others.iter().rev() {
                to.resize(len.max(to.len()), 0);
                filter.undo(from[..len].into(), (&mut to[..len]).into());
                std::mem::swap(&mut from, &mut to);
            }
            first.undo(from[..len].into(), (&mut dst[..len]).into());
        }
        scratch.filtered = [from, to];
        decoded
    }
}

/// Filters a block and compresses it into the front of `dst`; how many bytes that took, or `None` where there is no room.
pub(crate) fn compress(
    filters: &[Filter],
    codec: Codec,
    level: i32,
    block: &[u8],
    dst: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Option<usize>> {
    let Some((names, room)) = dst.split_at_mut_checked(filters.len()) else { return Ok(None) };
    if filters.is_empty() {
        return codec.compress(level, block.into(), room.into(), scratch);
    }
    let [mut from, mut to] = std::mem::take(&mut scratch.filtered);
    for (i, filter) in filters.iter().enumerate() {
        names[i] = filter.byte();
        to.resize(block.len(), 0);
        filter.apply(if i == 0 { block } else { &from }.into(), to.as_mut_slice().into());
        std::mem::swap(&mut from, &mut to);
    }
    let done = codec.compress(level, from.as_slice().into(), room.into(), scratch);
    scratch.filtered = [from, to];
    Ok(done?.map(|len| filters.len() + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_filters_is_refused_and_a_block_of_nothing() {
        let mut scratch = Scratch::default();
        let block = b"0123456701234567".repeat(8);
        let mut stored = vec![0; block.len()];
        let filters = [Filter::Delta(2), Filter::Shuffle(8)];
        let len = compress(&filters, Codec::Lz4, 1, &block, &mut stored, &mut scratch).unwrap();
        let stored = &mut stored[..len.unwrap()];
        assert_eq!(stored[..2], [130, 8]);
        let stages = Stages::from_number(1 + 2 * 64).unwrap();
        assert_eq!(stages, Stages { codec: Codec::Lz4, filters: 2 });
        assert_eq!(stages.number(), 129);
        let mut dst = vec![0xAA; block.len()];
        for front in [block.len(), 9, 0] {
            stages.decompress_front(stored, block.len(), &mut dst[..front], &mut scratch).unwrap();
            assert_eq!(dst[..front], block[..front]);
        }
        let mut refused = |stored: &[u8], len: usize| {
            let done = stages.decompress_front(stored, len, &mut dst[..len.min(5)], &mut scratch);
            assert!(matches!(done, Err(Error::Corrupt { what: "stored block", .. })), "{done:?}");
        };
        for len in 0..3 {
            refused(&stored[..len], block.len());
        }
        refused(stored, block.len() - 1);
        refused(stored, block.len() + 1);
        // No width, no such width, no such kind.
        for byte in [0, 64, 128, 131, 192, 255] {
            stored[1] = byte;
            refused(stored, block.len());
        }
        assert!(
            compress(&filters, Codec::Lz4, 1, &block, &mut [0; 1], &mut scratch).unwrap().is_none()
        );
    }

    #[test]
    fn numbers_of_stages_are_all_different_and_come_back() {
        let mut numbers: Vec<u8> = Stages::all().map(Stages::number).collect();
        assert!(Stages::all().all(|stages| Stages::from_number(stages.number()) == Some(stages)));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 4 * Codec::ALL.len());
    }
}
