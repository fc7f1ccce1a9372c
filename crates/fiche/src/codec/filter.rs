//! Filters: what codecs of bytes do not see in numbers, laid open to them.
//!
//! The bytes of a number differ in how much they tell: those of its sign and magnitude are nearly the same from one to the next, and its lowest ones look random. A filter puts what is
//! alike side by side, and takes no byte more or less.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::wire::{load_u64, low_bytes};

/// A filter, of elements of so many bytes. Bytes that are no whole element are last, and stay as they are.
///
/// ```
/// use fiche::codec::filter::Filter;
///
/// let filter: Filter = "shuffle:4".parse()?;
/// let (mut planes, mut back) = ([0; 9], [0; 9]);
/// filter.apply(b"abcdABCD.", &mut planes);
/// assert_eq!(&planes, b"aAbBcCdD.");
/// filter.undo(&planes, &mut back);
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

    /// Filters bytes into as many. Takes a pass over memory, or two.
    ///
    /// # Panics
    /// Where there is no such filter, or other room than bytes.
    pub fn apply(self, src: &[u8], dst: &mut [u8]) {
        assert!(self.check().is_ok() && src.len() == dst.len());
        match self {
            Filter::Shuffle(width) => shuffle(usize::from(width), src, dst),
            Filter::Bitshuffle(width) => bitshuffle(usize::from(width), src, dst),
            Filter::Delta(width) => delta(width.into(), src, dst, u64::wrapping_sub, false),
        }
    }

    /// The bytes that were filtered so.
    ///
    /// # Panics
    /// As [`apply`](Filter::apply).
    pub fn undo(self, src: &[u8], dst: &mut [u8]) {
        assert!(self.check().is_ok() && src.len() == dst.len());
        match self {
            Filter::Shuffle(width) => unshuffle(usize::from(width), src, dst),
            Filter::Bitshuffle(width) => unbitshuffle(usize::from(width), src, dst),
            Filter::Delta(width) => delta(width.into(), src, dst, u64::wrapping_add, true),
        }
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

/// The bytes of eight words, the first of each in the first, and so on.
#[inline(always)]
fn transposed_bytes(mut words: [u64; 8]) -> [u64; 8] {
    // Quarters, then eighths, then bytes change places across the diagonal.
    for (apart, bits, mask) in [
        (4, 32, 0x0000_0000_FFFF_FFFF),
        (2, 16, 0x0000_FFFF_0000_FFFF),
        (1, 8, 0x00FF_00FF_00FF_00FF_u64),
    ] {
        for i in (0..8).filter(|i| i & apart == 0) {
            let moved = (words[i] >> bits ^ words[i + apart]) & mask;
            words[i] ^= moved << bits;
            words[i + apart] ^= moved;
        }
    }
    words
}

/// The bits of eight bytes, the lowest of each in the lowest byte, and so on.
#[inline(always)]
fn transposed_bits(mut word: u64) -> u64 {
    for (bits, mask) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0_u64)]
    {
        let moved = (word ^ word >> bits) & mask;
        word ^= moved ^ moved << bits;
    }
    word
}

fn word(bytes: &[u8], at: usize) -> u64 {
    load_u64(bytes, at)
}

fn store(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&low_bytes(word));
}

/// Eight elements of eight bytes, and of four with eight others, are a square.
fn shuffle(width: usize, src: &[u8], dst: &mut [u8]) {
    let count = src.len() / width;
    let mut done = 0;
    match width {
        4 => {
            for (i, square) in src[..count * 4].chunks_exact(64).enumerate() {
                let words = transposed_bytes(std::array::from_fn(|k| word(square, 8 * k)));
                for (k, pair) in [(0, 4), (1, 5), (2, 6), (3, 7)].into_iter().enumerate() {
                    let (even, odd) = (words[pair.0], words[pair.1]);
                    store(dst, k * count + 16 * i, interleaved(even as u32, odd as u32));
                    store(
                        dst,
                        k * count + 16 * i + 8,
                        interleaved((even >> 32) as u32, (odd >> 32) as u32),
                    );
                }
            }
            done = count / 16 * 16;
        }
        8 => {
            for (i, square) in src[..count * 8].chunks_exact(64).enumerate() {
                let words = transposed_bytes(std::array::from_fn(|k| word(square, 8 * k)));
                words.iter().enumerate().for_each(|(k, &w)| store(dst, k * count + 8 * i, w));
            }
            done = count / 8 * 8;
        }
        _ => {}
    }
    for i in done..count {
        for k in 0..width {
            dst[k * count + i] = src[i * width + k];
        }
    }
    dst[count * width..].copy_from_slice(&src[count * width..]);
}

/// The bytes of two, in turn.
#[inline(always)]
fn interleaved(even: u32, odd: u32) -> u64 {
    spread(even) | spread(odd) << 8
}

/// Four bytes with one of zeros behind each.
#[inline(always)]
fn spread(bytes: u32) -> u64 {
    let pairs = (u64::from(bytes) | u64::from(bytes) << 16) & 0x0000_FFFF_0000_FFFF;
    (pairs | pairs << 8) & 0x00FF_00FF_00FF_00FF
}

/// The even bytes of eight, and no others.
#[inline(always)]
fn gathered(word: u64) -> u64 {
    let bytes = word & 0x00FF_00FF_00FF_00FF;
    let pairs = (bytes | bytes >> 8) & 0x0000_FFFF_0000_FFFF;
    (pairs | pairs >> 16) & 0xFFFF_FFFF
}

fn unshuffle(width: usize, src: &[u8], dst: &mut [u8]) {
    let count = src.len() / width;
    let mut done = 0;
    match width {
        4 => {
            for (i, square) in dst[..count * 4].chunks_exact_mut(64).enumerate() {
                let mut words = [0; 8];
                for k in 0..4 {
                    let first = word(src, k * count + 16 * i);
                    let second = word(src, k * count + 16 * i + 8);
                    words[k] = gathered(first) | gathered(second) << 32;
                    words[k + 4] = gathered(first >> 8) | gathered(second >> 8) << 32;
                }
                let words = transposed_bytes(words);
                words.iter().enumerate().for_each(|(k, &w)| store(square, 8 * k, w));
            }
            done = count / 16 * 16;
        }
        8 => {
            for (i, square) in dst[..count * 8].chunks_exact_mut(64).enumerate() {
                let words = transposed_bytes(std::array::from_fn(|k| word(src, k * count + 8 * i)));
                words.iter().enumerate().for_each(|(k, &w)| store(square, 8 * k, w));
            }
            done = count / 8 * 8;
        }
        _ => {}
    }
    for i in done..count {
        for k in 0..width {
            dst[i * width + k] = src[k * count + i];
        }
    }
    dst[count * width..].copy_from_slice(&src[count * width..]);
}

/// Elements of eight of which bits are moved, and bytes of each plane of bits.
fn eights(width: usize, len: usize) -> usize {
    len / width / 8
}

fn bitshuffle(width: usize, src: &[u8], dst: &mut [u8]) {
    let planes = eights(width, src.len());
    let moved = planes * 8 * width;
    let mut bytes = vec![0; moved];
    shuffle(width, &src[..moved], &mut bytes);
    for k in 0..width {
        let plane = &bytes[k * planes * 8..(k + 1) * planes * 8];
        let bits = &mut dst[k * planes * 8..(k + 1) * planes * 8];
        let whole = planes / 8 * 8;
        for at in (0..whole).step_by(8) {
            let words = std::array::from_fn(|i| transposed_bits(word(plane, 8 * (at + i))));
            let words = transposed_bytes(words);
            words.iter().enumerate().for_each(|(j, &w)| store(bits, j * planes + at, w));
        }
        for at in whole..planes {
            let word = low_bytes(transposed_bits(word(plane, 8 * at)));
            word.iter().enumerate().for_each(|(j, &byte)| bits[j * planes + at] = byte);
        }
    }
    dst[moved..].copy_from_slice(&src[moved..]);
}

fn unbitshuffle(width: usize, src: &[u8], dst: &mut [u8]) {
    let planes = eights(width, src.len());
    let moved = planes * 8 * width;
    let mut bytes = vec![0; moved];
    for k in 0..width {
        let bits = &src[k * planes * 8..(k + 1) * planes * 8];
        let plane = &mut bytes[k * planes * 8..(k + 1) * planes * 8];
        let whole = planes / 8 * 8;
        for at in (0..whole).step_by(8) {
            let words = transposed_bytes(std::array::from_fn(|j| word(bits, j * planes + at)));
            for (i, &w) in words.iter().enumerate() {
                store(plane, 8 * (at + i), transposed_bits(w));
            }
        }
        for at in whole..planes {
            let mut word = [0; 8];
            word.iter_mut().enumerate().for_each(|(j, byte)| *byte = bits[j * planes + at]);
            store(plane, 8 * at, transposed_bits(load_u64(&word, 0)));
        }
    }
    unshuffle(width, &bytes, &mut dst[..moved]);
    dst[moved..].copy_from_slice(&src[moved..]);
}

/// What comes of each element with the one before: of those that are read or, for the way back, of those that are written.
fn delta(width: usize, src: &[u8], dst: &mut [u8], take: fn(u64, u64) -> u64, is_back: bool) {
    fn run<const W: usize>(
        src: &[u8],
        dst: &mut [u8],
        take: impl Fn(u64, u64) -> u64,
        is_back: bool,
    ) {
        let (src, rest) = src.as_chunks::<W>();
        let (dst, dst_rest) = dst.as_chunks_mut::<W>();
        let mut before = 0;
        for (from, to) in src.iter().zip(dst) {
            let mut bytes = [0; 8];
            bytes[..W].copy_from_slice(from);
            let here = load_u64(&bytes, 0);
            let done = take(here, before);
            *to = *low_bytes(done).first_chunk().expect("eight bytes have as many");
            before = if is_back { done } else { here };
        }
        dst_rest.copy_from_slice(rest);
    }
    match width {
        1 => run::<1>(src, dst, take, is_back),
        2 => run::<2>(src, dst, take, is_back),
        4 => run::<4>(src, dst, take, is_back),
        _ => run::<8>(src, dst, take, is_back),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn filters_do_what_they_are_described_to_do_and_undo_it() {
        let mut state = 1u64;
        let bytes: Vec<u8> = (0..3000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(99);
                (state >> 56) as u8
            })
            .collect();
        let widths =
            (1..=LONGEST).flat_map(|width| [Filter::Shuffle(width), Filter::Bitshuffle(width)]);
        for filter in widths.chain([1, 2, 4, 8].map(Filter::Delta)) {
            for len in (0..300).chain([511, 512, 1000, 2048, 2999]) {
                let src = &bytes[..len];
                let (mut dst, mut back) = (vec![0xAA; len], vec![0x55; len]);
                filter.apply(src, &mut dst);
                assert!(dst == naive(filter, src), "{filter} of {len} bytes");
                filter.undo(&dst, &mut back);
                assert!(back == src, "{filter} of {len} bytes, back");
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
