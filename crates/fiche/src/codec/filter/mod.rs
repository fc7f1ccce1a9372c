//! Filters: what codecs of bytes do not see in numbers, laid open to them.
//!
//! The bytes of a number differ in how much they tell: those of its sign and magnitude are nearly the same from one to the next, and its lowest ones look random. A filter puts what is
//! alike side by side, and takes no byte more or less.

mod lanes;
mod pieces;
mod planes;

use std::fmt;
use std::str::FromStr;

use lanes::{Lanes, Native};

use crate::error::{Error, Result};
use crate::pages::{Dst, SegmentsRoom, Src};
use crate::wire::{load_u64, low_bytes};

/// A filter, of elements of so many bytes. Bytes that are no whole element are last, and stay as they are.
///
/// ```
/// use fiche::codec::filter::Filter;
///
/// let filter: Filter = "shuffle:4".parse()?;
/// let (mut planes, mut back) = ([0; 9], [0; 9]);
/// filter.apply(b"abcdABCD."[..].into(), (&mut planes[..]).into());
/// assert_eq!(&planes, b"aAbBcCdD.");
/// // The same of bytes in two pieces.
/// let pieces = fiche::Segments::new(["aAb", "BcCdD."]);
/// filter.undo((&pieces).into(), (&mut back[..]).into());
/// assert_eq!(&back, b"abcdABCD.");
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Filter {
    /// The first bytes of all elements, then their second ones, and so on, as HDF5 and Blosc have it. Of 1 to 63 bytes.
    Shuffle(u8),
    /// The lowest bits of the first bytes of all elements, then their second bits, and so on (Masui and others, *A compression scheme for radio data in high performance computing*, 2015). Of 1 to
    /// 63 bytes; elements by eights, and those that are fewer are last, as they are.
    Bitshuffle(u8),
    /// What each element is more than the one before, as an integer, the lowest byte first. Of 1, 2, 4 or 8 bytes.
    Delta(u8),
}

/// The longest element.
const LONGEST: u8 = 63;

impl Filter {
    /// Fails unless there is such a filter.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what there is.
    pub fn check(self) -> Result<()> {
        let is_one = match self {
            Filter::Shuffle(width) | Filter::Bitshuffle(width) => (1..=LONGEST).contains(&width),
            Filter::Delta(width) => matches!(width, 1 | 2 | 4 | 8),
        };
        let what = "filters are shuffle and bitshuffle of 1 to 63 bytes, and delta of 1, 2, 4 or 8: shuffle:4";
        if is_one { Ok(()) } else { Err(Error::invalid(what)) }
    }

    /// As files have it.
    pub(super) fn byte(self) -> u8 {
        match self {
            Filter::Shuffle(width) => width,
            Filter::Bitshuffle(width) => 64 + width,
            Filter::Delta(width) => 128 + width,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Filter> {
        let width = byte % 64;
        let filter = match byte / 64 {
            0 => Filter::Shuffle(width),
            1 => Filter::Bitshuffle(width),
            2 => Filter::Delta(width),
            _ => return None,
        };
        filter.check().is_ok().then_some(filter)
    }

    /// Filters bytes into as many, however these and those lie. Takes a pass over memory, and no memory but that on the stack; where either is not in one
    /// piece, rows of planes are copied once more, from there.
    ///
    /// # Panics
    /// Where there is no such filter, or other room than bytes.
    pub fn apply(self, src: Src<'_>, mut dst: Dst<'_, '_>) {
        match (src.as_slice(), dst.as_slice()) {
            (Some(src), Some(dst)) => self.apply_by::<Native>(src, dst),
            _ => {
                let moved = self.moved(src.len(), dst.len());
                let mut room = dst.segments();
                self.apply_pieces(moved, &&src.segments(), &mut SegmentsRoom::from(&mut room));
            }
        }
    }

    /// The bytes that were filtered so.
    ///
    /// # Panics
    /// As [`apply`](Filter::apply).
    pub fn undo(self, src: Src<'_>, mut dst: Dst<'_, '_>) {
        match (src.as_slice(), dst.as_slice()) {
            (Some(src), Some(dst)) => self.undo_by::<Native>(src, dst),
            _ => {
                let moved = self.moved(src.len(), dst.len());
                let mut room = dst.segments();
                self.undo_pieces(moved, &&src.segments(), &mut SegmentsRoom::from(&mut room));
            }
        }
    }

    /// The same for whole elements behind others, of which the last was `before`.
    fn apply_behind(self, before: &mut u64, src: &[u8], dst: &mut [u8]) {
        match self {
            Filter::Delta(width) => delta(width, before, src, dst, u64::wrapping_sub, false),
            _ => self.apply_by::<Native>(src, dst),
        }
    }

    fn undo_behind(self, before: &mut u64, src: &[u8], dst: &mut [u8]) {
        match self {
            Filter::Delta(width) => delta(width, before, src, dst, u64::wrapping_add, true),
            _ => self.undo_by::<Native>(src, dst),
        }
    }

    fn apply_by<L: Lanes>(self, src: &[u8], dst: &mut [u8]) {
        let moved = self.moved(src.len(), dst.len());
        let (dst, rest) = dst.split_at_mut(moved);
        let (src, src_rest) = src.split_at(moved);
        match self {
            Filter::Shuffle(width) => {
                planes::shuffle::<L>(width.into(), src, dst, moved / usize::from(width));
            }
            Filter::Bitshuffle(width) => planes::bitshuffle::<L>(width.into(), src, dst),
            Filter::Delta(width) => delta(width, &mut 0, src, dst, u64::wrapping_sub, false),
        }
        rest.copy_from_slice(src_rest);
    }

    fn undo_by<L: Lanes>(self, src: &[u8], dst: &mut [u8]) {
        let moved = self.moved(src.len(), dst.len());
        let (dst, rest) = dst.split_at_mut(moved);
        let (src, src_rest) = src.split_at(moved);
        match self {
            Filter::Shuffle(width) => {
                planes::unshuffle::<L>(width.into(), src, dst, moved / usize::from(width));
            }
            Filter::Bitshuffle(width) => planes::unbitshuffle::<L>(width.into(), src, dst),
            Filter::Delta(width) => delta(width, &mut 0, src, dst, u64::wrapping_add, true),
        }
        rest.copy_from_slice(src_rest);
    }

    /// How many bytes do not stay as they are.
    fn moved(self, len: usize, room: usize) -> usize {
        assert!(self.check().is_ok() && len == room);
        let unit = match self {
            Filter::Shuffle(width) | Filter::Delta(width) => usize::from(width),
            Filter::Bitshuffle(width) => 8 * usize::from(width),
        };
        len / unit * unit
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::Shuffle(width) => write!(f, "shuffle:{width}"),
            Filter::Bitshuffle(width) => write!(f, "bitshuffle:{width}"),
            Filter::Delta(width) => write!(f, "delta:{width}"),
        }
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Filter> {
        let (name, width) = text.split_once(':').unwrap_or((text, ""));
        let width = width.parse().unwrap_or(0);
        let filter = match name {
            "shuffle" => Filter::Shuffle(width),
            "bitshuffle" => Filter::Bitshuffle(width),
            "delta" => Filter::Delta(width),
            _ => Filter::Delta(0),
        };
        filter.check().map(|()| filter)
    }
}

/// What comes of each element with the one before: of those that are read or, for the way back, of those that are written.
fn delta(
    width: u8,
    before: &mut u64,
    src: &[u8],
    dst: &mut [u8],
    take: fn(u64, u64) -> u64,
    is_back: bool,
) {
    fn run<const W: usize>(
        mut before: u64,
        src: &[u8],
        dst: &mut [u8],
        take: impl Fn(u64, u64) -> u64,
        is_back: bool,
    ) -> u64 {
        for (from, to) in src.as_chunks::<W>().0.iter().zip(dst.as_chunks_mut::<W>().0) {
            let mut bytes = [0; 8];
            bytes[..W].copy_from_slice(from);
            let here = load_u64(&bytes, 0);
            let done = take(here, before);
            *to = *low_bytes(done).first_chunk().expect("eight bytes have as many");
            before = if is_back { done } else { here };
        }
        before
    }
    *before = match width {
        1 => run::<1>(*before, src, dst, take, is_back),
        2 => run::<2>(*before, src, dst, take, is_back),
        4 => run::<4>(*before, src, dst, take, is_back),
        _ => run::<8>(*before, src, dst, take, is_back),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::{Segments, SegmentsMut};

    /// As they are described, byte by byte and bit by bit.
    fn naive(filter: Filter, src: &[u8]) -> Vec<u8> {
        let mut dst = src.to_vec();
        match filter {
            Filter::Shuffle(width) => {
                let width = usize::from(width);
                let count = src.len() / width;
                for i in 0..count * width {
                    dst[i % width * count + i / width] = src[i];
                }
            }
            Filter::Bitshuffle(width) => {
                let width = usize::from(width);
                let count = src.len() / width / 8 * 8;
                dst[..count * width].fill(0);
                for i in 0..count {
                    for bit in 0..width * 8 {
                        let is_set = src[i * width + bit / 8] >> (bit % 8) & 1;
                        dst[bit * count / 8 + i / 8] |= is_set << (i % 8);
                    }
                }
            }
            Filter::Delta(width) => {
                let width = usize::from(width);
                for i in (width..src.len() / width * width).step_by(width) {
                    let mut borrow = 0;
                    for k in i..i + width {
                        let more = i32::from(src[k]) - i32::from(src[k - width]) - borrow;
                        borrow = i32::from(more < 0);
                        dst[k] = more.rem_euclid(256) as u8;
                    }
                }
            }
        }
        dst
    }

    fn both_ways<L: Lanes>(filter: Filter, src: &[u8]) {
        let (mut dst, mut back) = (vec![0xAA; src.len()], vec![0x55; src.len()]);
        filter.apply_by::<L>(src, &mut dst);
        assert!(dst == naive(filter, src), "{filter} of {} bytes", src.len());
        filter.undo_by::<L>(&dst, &mut back);
        assert!(back == src, "{filter} of {} bytes, back", src.len());
    }

    #[test]
    fn filters_do_what_they_are_described_to_do_and_undo_it() {
        let mut state = 1u64;
        let bytes: Vec<u8> = (0..20_001)
            .map(|_| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(99);
                (state >> 56) as u8
            })
            .collect();
        let widths =
            (1..=LONGEST).flat_map(|width| [Filter::Shuffle(width), Filter::Bitshuffle(width)]);
        for filter in widths.chain([1, 2, 4, 8].map(Filter::Delta)) {
            for len in (0..300).chain([511, 512, 1000, 2048, 2999, 8192, 8200, 20_001]) {
                let src = &bytes[..len];
                both_ways::<Native>(filter, src);
                both_ways::<lanes::words::Words>(filter, src);
            }
        }
    }

    #[test]
    fn pieces_of_any_lengths_are_filtered_as_one_is() {
        let mut random = crate::testing::Random(1);
        let bytes = random.bytes(50_000);
        let widths = [1, 2, 3, 4, 7, 8, 12, 16, 63];
        let filters = widths.into_iter().flat_map(|w| [Filter::Shuffle(w), Filter::Bitshuffle(w)]);
        let filters: Vec<_> = filters.chain([1, 2, 4, 8].map(Filter::Delta)).collect();
        for (i, len) in [0, 1, 9, 1000, 4096, 4097, 8192, 20_000, 50_000].into_iter().enumerate() {
            let src = &bytes[..len];
            // Pages of 4 KiB, of 16 bytes, single bytes now and then, long and short ones.
            for (from, to) in
                [(4096, 4096), (16, 4096), (4096, 16), (0, 0), (50_000, 0), (0, 50_000)]
            {
                let mut cut = |each: u64| -> Vec<usize> {
                    let (mut lens, mut left) = (Vec::new(), len as u64);
                    while left > 0 {
                        let len = if each > 0 { each } else { random.below(3) * random.below(900) };
                        lens.push(len.min(left) as usize);
                        left -= len.min(left);
                    }
                    lens
                };
                let (from, to) = (cut(from), cut(to));
                for &filter in &filters {
                    let told =
                        format!("{filter} of {len} bytes, {} and {} pieces", from.len(), to.len());
                    let mut parts = src;
                    let pieces = from.iter().map(|&len| parts.split_off(..len).unwrap());
                    let pieces = Segments::new(pieces);
                    let (mut dst, mut back) =
                        (vec![[0xFF, 0, 0xAA][i % 3]; len + 2], vec![0x55; len + 2]);
                    let pages = |room: &mut Vec<u8>, lens: &[usize], act: &dyn Fn(Dst<'_, '_>)| {
                        let (guard, last) = (room[0], room[len + 1]);
                        let mut rest = &mut room[1..=len];
                        let parts = lens.iter().map(|&len| rest.split_off_mut(..len).unwrap());
                        let mut parts: Vec<&mut [u8]> = parts.collect();
                        match Dst::pages(&mut parts) {
                            Ok(dst) => act(dst),
                            Err(_) => act((&mut SegmentsMut::new(parts)).into()),
                        }
                        assert_eq!((room[0], room[len + 1]), (guard, last), "{told}");
                    };
                    pages(&mut dst, &to, &|dst| filter.apply((&pieces).into(), dst));
                    let mut rest = &dst[1..=len];
                    assert!(rest == naive(filter, src), "{told}");
                    let planes = to.iter().map(|&len| rest.split_off(..len).unwrap());
                    let planes = Segments::new(planes);
                    pages(&mut back, &from, &|dst| filter.undo((&planes).into(), dst));
                    assert!(&back[1..=len] == src, "{told}, back");
                }
            }
        }
    }

    #[test]
    fn filters_come_back_from_their_text_and_others_are_told() {
        for filter in [Filter::Shuffle(4), Filter::Bitshuffle(63), Filter::Delta(8)] {
            assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
        }
        for text in [
            "",
            "shuffle",
            "shuffle:0",
            "shuffle:64",
            "delta:3",
            "bits:4",
            "shuffle:-1",
            "shuffle:4x",
        ] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }
}
