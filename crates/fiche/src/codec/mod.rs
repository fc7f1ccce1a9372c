//! Codecs: each turns the bytes of one block into fewer, and back, alone.
//!
//! # Codecs
//!
//! | number | codec | stored bytes of a block |
//! |---|---|---|
//! | 0 | copy | the bytes themselves |
//! | 1 | lz4 | one LZ4 block (block format, no frame, no length) |
//! | 2 | deflate | one raw deflate stream (RFC 1951, no zlib or gzip wrapper) |
//! | 3 | zstd | one Zstandard frame (RFC 8878) without its magic number ("magicless"), without checksum and dictionary |
//! | 4 | lzma | raw LZMA2 chunks with their end marker; the decoder's dictionary is the block's length, at least 4096 bytes |
//! | 5 | bzip2 | one bzip2 stream |
//! | 6 | bewalgo32 | one BeWalgo stream with units of 4 bytes |
//! | 7 | bewalgo64 | one BeWalgo stream with units of 8 bytes |
//! | 8 | lzo | one LZO1X stream |
//!
//! Whatever the codec, a block whose stored bytes are as many as its decoded ones is
//! these bytes themselves: that is how a block is stored that does not shrink, and a
//! reader need not know the codec for it. There are never more stored bytes than
//! decoded ones, and at least one; every block decodes to exactly its length.
//!
//! Zstandard frames state their content's size or their window is no larger than the
//! content; they use no dictionary and no checksum, and nothing follows them.

/// Calls a function with what fits how bytes lie: one loop for slices, one for pages, and one for all else.
macro_rules! for_layouts {
    ($src:expr, $dst:expr, |$from:ident, $to:ident| $act:expr) => {
        match ($src.0, $dst.0) {
            (SrcLayout::One($from), DstLayout::One(to)) => {
                let $to = One::from(to);
                $act
            }
            (SrcLayout::Pages(from), DstLayout::Pages(to)) if from.is_small() && to.is_small() => {
                let ($from, $to) = (from.small(), PagesRoom::from(to.small()));
                $act
            }
            (from, to) => {
                let (from, mut to) = (Src(from).segments(), Dst(to));
                let mut to = to.segments();
                let ($from, $to) = (&from, SegmentsRoom::from(&mut to));
                $act
            }
        }
    };
}

pub mod bewalgo;
#[cfg(feature = "bzip2")]
mod bzip2;
pub mod chunks;
pub mod deflate;
pub mod filter;
mod filtered;
mod frame;
mod large;
pub mod lz4;
#[cfg(feature = "lzma")]
mod lzma;
#[cfg(feature = "lzo")]
mod lzo;
mod matches;
pub(crate) mod prepared;
mod zstd;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use self::bewalgo::{Strictness, Width};
use crate::error::{Error, Place, Result};
use crate::pages::{Dst, Src};

pub(crate) use filtered::{MAX_FILTERS, Stages, compress as compress_filtered};
pub(crate) use large::compress as compress_large;
pub(crate) use zstd::{pack_section, unpack_section};

/// A way to compress one block. The numbers are those of the file.
///
/// ```
/// use fiche::codec::{Codec, Scratch};
///
/// let text = b"to be or not to be, that is to be, or not to be".as_slice();
/// let mut scratch = Scratch::default();
/// let mut stored = vec![0; text.len()];
/// let codec = Codec::Zstd;
/// let len = codec
///     .compress(codec.default_level(), text.into(), stored.as_mut_slice().into(), &mut scratch)?
///     .expect("this text shrinks");
/// let mut decoded = vec![0; text.len()];
/// codec.decompress(stored[..len].into(), decoded.as_mut_slice().into(), &mut scratch)?;
/// assert_eq!(decoded, text);
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Codec {
    /// No compression.
    Copy = 0,
    /// LZ4: the fastest to read. Levels -64 to 12: up to 2 fast, below 0 ever faster, from 3 on high compression.
    Lz4 = 1,
    /// Deflate, as in zlib and gzip, by libdeflate. Levels 1 to 12.
    Deflate = 2,
    /// Zstandard. Levels -7 to 22.
    Zstd = 3,
    /// LZMA2, as in xz: small and slow. Levels 0 to 9.
    Lzma = 4,
    /// The block-sorting compressor. Levels 1 to 9: its work size in 100 kB.
    Bzip2 = 5,
    /// BeWalgo with units of 4 bytes, for arrays of such. Levels -64 to 9: 1 is fast, below 0 ever faster, 0 the search of its thesis.
    BeWalgo32 = 6,
    /// BeWalgo with units of 8 bytes. The same levels.
    BeWalgo64 = 7,
    /// LZO1X, for comparison. Level 1.
    Lzo = 8,
}

impl Codec {
    /// Every codec, whether or not this build has it.
    pub const ALL: [Codec; 9] = [
        Codec::Copy,
        Codec::Lz4,
        Codec::Deflate,
        Codec::Zstd,
        Codec::Lzma,
        Codec::Bzip2,
        Codec::BeWalgo32,
        Codec::BeWalgo64,
        Codec::Lzo,
    ];

    /// The codec of this number in a file, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| *codec as u8 == number)
    }

    /// The name under which people choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Codec::Copy => "copy",
            Codec::Lz4 => "lz4",
            Codec::Deflate => "zlib",
            Codec::Zstd => "zstd",
            Codec::Lzma => "lzma",
            Codec::Bzip2 => "bzip2",
            Codec::BeWalgo32 => "bewalgo32",
            Codec::BeWalgo64 => "bewalgo64",
            Codec::Lzo => "lzo",
        }
    }

    /// The units of BeWalgo.
    fn width(self) -> Option<Width> {
        match self {
            Codec::BeWalgo32 => Some(Width::Four),
            Codec::BeWalgo64 => Some(Width::Eight),
            _ => None,
        }
    }

    /// The levels it has, from fastest to smallest.
    #[must_use]
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Codec::Copy => 0..=0,
            Codec::Lz4 => lz4::LEVELS,
            Codec::Deflate => 1..=12,
            Codec::Zstd => -7..=22,
            Codec::Lzma => 0..=9,
            Codec::Bzip2 => 1..=9,
            Codec::BeWalgo32 | Codec::BeWalgo64 => bewalgo::LEVELS,
            Codec::Lzo => 1..=1,
        }
    }

    /// Fails where there is no such level.
    ///
    /// # Errors
    /// [`Error::Invalid`], which names the levels there are.
    pub fn check_level(self, level: i32) -> Result<()> {
        Error::check_level(self.name(), self.levels(), level)
    }

    /// The level taken when none is asked for.
    #[must_use]
    pub fn default_level(self) -> i32 {
        match self {
            Codec::Copy => 0,
            Codec::Lz4 | Codec::BeWalgo32 | Codec::BeWalgo64 | Codec::Lzo => 1,
            Codec::Deflate | Codec::Lzma => 6,
            Codec::Zstd => 3,
            Codec::Bzip2 => 9,
        }
    }

    /// True when this build has it.
    #[must_use]
    pub fn is_compiled_in(self) -> bool {
        match self {
            Codec::Copy | Codec::Lz4 | Codec::Zstd | Codec::BeWalgo32 | Codec::BeWalgo64 => true,
            Codec::Deflate => cfg!(feature = "zlib"),
            Codec::Lzma => cfg!(feature = "lzma"),
            Codec::Bzip2 => cfg!(feature = "bzip2"),
            Codec::Lzo => cfg!(feature = "lzo"),
        }
    }

    /// The most bytes that so many may become, of `lz4` and BeWalgo: with this room [`compress`](Codec::compress) gives a result. `None` of other codecs.
    #[must_use]
    pub fn bound(self, len: usize) -> Option<usize> {
        match self.width() {
            Some(width) => Some(bewalgo::bound(width, len)),
            None => (self == Codec::Lz4).then(|| lz4::bound(len)),
        }
    }

    /// Compresses `src` into the front of `dst` and returns how many bytes that
    /// took, or `None` when `dst` has no room for them. The same input, level and
    /// room give the same bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level outside [`Codec::levels`];
    /// [`Error::Unsupported`] when this build does not have the codec.
    pub fn compress(
        self,
        level: i32,
        src: Src<'_>,
        dst: Dst<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        self.check_level(level)?;
        if let Some(width) = self.width() {
            return Ok(bewalgo::compress(width, bewalgo::Effort::of(level), src, dst, scratch));
        }
        if self == Codec::Lz4 {
            return Ok(lz4::compress(level, src, dst, scratch));
        }
        scratch.in_one_piece(src, dst, |src, dst, scratch| {
            self.compress_slice(level, src, dst, scratch)
        })
    }

    fn compress_slice(
        self,
        level: i32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        match self {
            Codec::Copy => Ok(dst.get_mut(..src.len()).map(|room| {
                room.copy_from_slice(src);
                src.len()
            })),
            #[cfg(feature = "zlib")]
            Codec::Deflate => deflate::compress(level, src, dst, &mut scratch.deflate),
            Codec::Zstd => zstd::compress(level, src, dst, &mut scratch.zstd),
            #[cfg(feature = "lzma")]
            Codec::Lzma => lzma::compress(level, src, dst),
            #[cfg(feature = "bzip2")]
            Codec::Bzip2 => bzip2::compress(level, src, dst),
            #[cfg(feature = "lzo")]
            Codec::Lzo => Ok(lzo::compress(src, dst, &mut scratch.lzo)),
            #[allow(unreachable_patterns)]
            other => Err(other.not_compiled_in()),
        }
    }

    /// Fills `dst` exactly with what `src` decodes to. `src` may hold anything.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when `src` is not the compressed form of exactly as
    /// many bytes as `dst` has; [`Error::Unsupported`] when this build does not
    /// have the codec. The contents of `dst` are then unspecified.
    pub fn decompress(self, src: Src<'_>, dst: Dst<'_, '_>, scratch: &mut Scratch) -> Result<()> {
        let len = dst.len();
        match self.decompress_within(src, dst, scratch)? {
            done if done == len => Ok(()),
            _ => Err(Error::Corrupt { what: "stored block", at: Place::Pos(0) }),
        }
    }

    /// Decodes `src` into the front of `dst`, and returns how many bytes that gave. `src` may hold anything.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when `src` is damaged or stands for more than `dst` has room for: of `lz4` and BeWalgo with what is wrong, and where in `src`;
    /// [`Error::Unsupported`] when this build does not have the codec.
    pub fn decompress_within(
        self,
        src: Src<'_>,
        dst: Dst<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<usize> {
        if let Some(width) = self.width() {
            return bewalgo::decompress(width, Strictness::Strict, src, dst);
        }
        if self == Codec::Lz4 {
            return lz4::decompress(src, dst);
        }
        let decoded = scratch
            .in_one_piece(src, dst, |src, dst, scratch| self.decompress_slice(src, dst, scratch))?;
        decoded.ok_or(Error::Corrupt { what: "stored block", at: Place::Pos(0) })
    }

    /// The same, where damage is `None`.
    pub(crate) fn try_decompress(
        self,
        src: Src<'_>,
        dst: Dst<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        match self.decompress_within(src, dst, scratch) {
            Err(Error::Corrupt { .. }) => Ok(None),
            done => done.map(Some),
        }
    }

    fn decompress_slice(
        self,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Option<usize>> {
        Ok(match self {
            Codec::Copy => dst.get_mut(..src.len()).map(|room| {
                room.copy_from_slice(src);
                src.len()
            }),
            #[cfg(feature = "zlib")]
            Codec::Deflate => deflate::decompress(src, dst, &mut scratch.deflate),
            Codec::Zstd => zstd::decompress(src, dst, &mut scratch.zstd),
            #[cfg(feature = "lzma")]
            Codec::Lzma => lzma::decompress(src, dst),
            #[cfg(feature = "bzip2")]
            Codec::Bzip2 => bzip2::decompress(src, dst),
            #[cfg(feature = "lzo")]
            Codec::Lzo => lzo::decompress(src, dst),
            #[allow(unreachable_patterns)]
            other => return Err(other.not_compiled_in()),
        })
    }

    /// True where decoding as far as `end` of a block of `len` bytes costs less than all of it.
    pub(crate) fn stops_early(self, end: usize, len: usize) -> bool {
        match self {
            Codec::Copy => end < len,
            // What stops takes a quarter longer than what does not.
            Codec::Deflate => end < len / 10 * 7,
            Codec::Lzma => end < len / 10 * 9,
            Codec::Zstd => end <= len.saturating_sub(1) / zstd::STEP * zstd::STEP,
            Codec::Lz4 | Codec::BeWalgo32 | Codec::BeWalgo64 => end < len,
            Codec::Bzip2 | Codec::Lzo => false,
        }
    }

    /// Fills `dst` with the first bytes of a block of `len` bytes, and stops there where the
    /// codec can. `src` may hold anything.
    ///
    /// # Errors
    /// Those of [`decompress`](Codec::decompress); [`Error::Invalid`] where `dst` has more than `len` bytes.
    pub fn decompress_front(
        self,
        src: Src<'_>,
        len: usize,
        dst: Dst<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if dst.len() == len {
            return self.decompress(src, dst, scratch);
        }
        let want = dst.len();
        if want > len {
            return Err(Error::invalid("more of a block than there is"));
        }
        let done = match self.width() {
            Some(width) => Some(bewalgo::decompress_front(width, src, dst)?),
            None if self == Codec::Lz4 => Some(lz4::decompress_front(src, dst)?),
            None => scratch.in_one_piece(src, dst, |src, dst, scratch| {
                let done = self.decompress_front_slice(src, len, dst, scratch);
                Ok(done.map(|()| dst.len()))
            })?,
        };
        let done = done.filter(|&done| done == want).map(drop);
        done.ok_or(Error::Corrupt { what: "stored block", at: Place::Pos(0) })
    }

    fn decompress_front_slice(
        self,
        src: &[u8],
        len: usize,
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Option<()> {
        match self {
            #[cfg(feature = "zlib")]
            Codec::Deflate => deflate::decompress_front(src, dst, &mut scratch.deflate),
            #[cfg(feature = "lzma")]
            Codec::Lzma => lzma::decompress_front(src, len, dst),
            _ => {
                let mut room = std::mem::take(&mut scratch.room);
                room.resize(len, 0);
                let done = match self {
                    Codec::Zstd => {
                        zstd::decompress_front(src, dst.len(), &mut room, &mut scratch.zstd)
                    }
                    _ => {
                        let done = self.decompress(src.into(), room.as_mut_slice().into(), scratch);
                        matches!(done, Ok(())).then_some(())
                    }
                };
                dst.copy_from_slice(&room[..dst.len()]);
                scratch.room = room;
                done
            }
        }
    }

    #[allow(dead_code)]
    fn not_compiled_in(self) -> Error {
        let what = match self {
            Codec::Deflate => "zlib, which this build leaves out, as codec",
            Codec::Lzma => "lzma, which this build leaves out, as codec",
            Codec::Bzip2 => "bzip2, which this build leaves out, as codec",
            Codec::Lzo => "lzo, which this build leaves out, as codec",
            _ => "codec",
        };
        Error::Unsupported { what, found: self as u64 }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Codec> {
        let what =
            "the methods are copy, lz4, zlib, zstd, lzma, bzip2, bewalgo32, bewalgo64 and lzo";
        Codec::ALL.into_iter().find(|c| c.name() == name).ok_or(Error::invalid(what))
    }
}

/// What codecs keep between calls so that a block costs no allocation: one for
/// each thread. lzma and bzip2 allocate inside their libraries all the same.
#[derive(Default)]
pub struct Scratch {
    zstd: zstd::State,
    /// Bound to the dictionary that was used last.
    encoder: Option<prepared::Encoder>,
    decoder: Option<prepared::Decoder>,
    bewalgo: bewalgo::Tables,
    lz4: lz4::Tables,
    #[cfg(feature = "lzo")]
    lzo: lzo::State,
    /// For what does not lie in one piece, where a codec wants that: what it reads, and what it writes.
    pieces: (Vec<u8>, Vec<u8>),
    copied: u64,
    /// Room for a block of which only the front is wanted.
    room: Vec<u8>,
    /// What was filtered, and what is.
    filtered: [Vec<u8>; 2],
    #[cfg(feature = "zlib")]
    deflate: deflate::State,
}

impl Scratch {
    /// Bytes that were copied since it was made because they lie in several pieces, and a codec wants them in one. BeWalgo and LZ4 do not.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Compresses by Zstandard with a dictionary; `None` when `dst` has no room.
    pub(crate) fn compress_with(
        &mut self,
        encoding: &Arc<prepared::Encoding>,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<Option<usize>> {
        let ready = self.encoder.take().filter(|encoder| encoder.is_of(encoding));
        let encoder = match ready {
            Some(ready) => ready,
            None => prepared::Encoder::bound(encoding.clone())?,
        };
        Ok(self.encoder.insert(encoder).compress(src, dst))
    }

    /// Fills `dst` with what was compressed with a dictionary; `None` when `src` is not that.
    pub(crate) fn decompress_with(
        &mut self,
        decoding: &prepared::Decoding,
        src: &[u8],
        dst: &mut [u8],
    ) -> Option<()> {
        let ready = self.decoder.take().or_else(prepared::Decoder::new)?;
        let len = self.decoder.insert(ready).decompress(decoding, src, dst)?;
        (len == dst.len()).then_some(())
    }

    /// Calls a codec that wants its bytes in one piece, which returns how many it wrote.
    fn in_one_piece(
        &mut self,
        src: Src<'_>,
        mut dst: Dst<'_, '_>,
        act: impl FnOnce(&[u8], &mut [u8], &mut Scratch) -> Result<Option<usize>>,
    ) -> Result<Option<usize>> {
        if let (Some(src), Some(dst)) = (src.as_slice(), dst.as_slice()) {
            return act(src, dst, self);
        }
        let (mut from, mut to) = std::mem::take(&mut self.pieces);
        let src = src.as_slice().unwrap_or_else(|| {
            src.gather(&mut from);
            self.copied += from.len() as u64;
            &from
        });
        let done = if let Some(dst) = dst.as_slice() {
            act(src, dst, self)
        } else {
            to.resize(dst.len(), 0);
            let done = act(src, &mut to, self);
            if let Ok(Some(len)) = done {
                dst.scatter(&to[..len]);
                self.copied += len as u64;
            }
            done
        };
        self.pieces = (from, to);
        done
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn samples() -> Vec<Vec<u8>> {
        let mut seed = 1u64;
        let mut noise = |n: usize| -> Vec<u8> {
            (0..n)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect()
        };
        let text = b"the quick brown fox jumps over the lazy dog; ".repeat(700);
        vec![vec![0; 1], vec![7; 1 << 16], noise(1), noise(300), noise(1 << 15), text]
    }

    fn for_all(mut check: impl FnMut(Codec, i32, &[u8])) {
        for codec in Codec::ALL.into_iter().filter(|c| c.is_compiled_in()) {
            for level in [*codec.levels().start(), codec.default_level(), *codec.levels().end()] {
                samples().iter().for_each(|bytes| check(codec, level, bytes));
            }
        }
    }

    #[test]
    fn the_front_of_a_block_is_that_of_the_whole() {
        let mut scratch = Scratch::default();
        let long: Vec<u8> = (0..300_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        for codec in Codec::ALL.into_iter().filter(|c| c.is_compiled_in()) {
            for bytes in samples().iter().chain([&long]) {
                let mut stored = vec![0; bytes.len() * 2 + 1000];
                let level = codec.default_level().min(5);
                let room = stored.as_mut_slice().into();
                let len = codec.compress(level, bytes.as_slice().into(), room, &mut scratch);
                let stored = &stored[..len.unwrap().unwrap()];
                for part in [0, 1, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
                    let mut dst = vec![0xAA; part];
                    let front = dst.as_mut_slice().into();
                    codec
                        .decompress_front(stored.into(), bytes.len(), front, &mut scratch)
                        .unwrap();
                    assert!(dst == bytes[..part], "{codec} {part} of {}", bytes.len());
                }
                // Of a block that is cut, only what is there.
                let cut = &stored[..stored.len() / 2];
                let mut dst = vec![0; bytes.len()];
                let front = dst.as_mut_slice().into();
                let done = codec.decompress_front(cut.into(), bytes.len(), front, &mut scratch);
                assert!(done.is_err() || bytes.len() == 1, "{codec}");
            }
        }
    }

    #[test]
    fn every_codec_and_level_gives_back_what_it_took() {
        let mut scratch = Scratch::default();
        for_all(|codec, level, bytes| {
            let mut stored = vec![0; bytes.len() * 2 + 1000];
            let len = codec
                .compress(level, bytes.into(), stored.as_mut_slice().into(), &mut scratch)
                .unwrap()
                .unwrap();
            let mut decoded = vec![0xAA; bytes.len()];
            let src = stored[..len].into();
            codec.decompress(src, decoded.as_mut_slice().into(), &mut scratch).unwrap();
            assert!(decoded == bytes, "{codec} {level}");
        });
    }

    #[test]
    fn a_result_without_room_is_none_and_not_a_shorter_one() {
        let mut scratch = Scratch::default();
        for_all(|codec, level, bytes| {
            let mut stored = vec![0; bytes.len() - 1];
            let dst = stored.as_mut_slice().into();
            if let Some(len) = codec.compress(level, bytes.into(), dst, &mut scratch).unwrap() {
                let mut decoded = vec![0; bytes.len()];
                let src = stored[..len].into();
                codec.decompress(src, decoded.as_mut_slice().into(), &mut scratch).unwrap();
                assert!(decoded == bytes, "{codec} {level}");
            }
        });
    }

    #[test]
    fn levels_change_behind_a_block_that_did_not_shrink() {
        let (noise, text) = (Random(8).bytes(5000), Random(9).text(48).repeat(100));
        for codec in Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in()) {
            let mut scratch = Scratch::default();
            let mut dst = vec![0; noise.len() - 1];
            let mut compress = |level, bytes: &[u8]| {
                codec.compress(level, bytes.into(), dst.as_mut_slice().into(), &mut scratch)
            };
            for level in codec.levels() {
                assert_eq!(compress(level, &noise).unwrap(), None, "{codec} {level}");
                let other = if level == *codec.levels().end() { level } else { level + 1 };
                let done = compress(other, &text).unwrap();
                assert!(done.is_some() || codec == Codec::Copy, "{codec} {other}");
            }
        }
    }

    #[test]
    fn an_output_of_another_length_is_refused() {
        let mut scratch = Scratch::default();
        for_all(|codec, level, bytes| {
            let mut stored = vec![0; bytes.len() * 2 + 1000];
            let dst = stored.as_mut_slice().into();
            let len = codec.compress(level, bytes.into(), dst, &mut scratch).unwrap().unwrap();
            for wrong in [bytes.len() - 1, bytes.len() + 1] {
                let mut decoded = vec![0; wrong];
                let src = stored[..len].into();
                let result = codec.decompress(src, decoded.as_mut_slice().into(), &mut scratch);
                assert!(matches!(result, Err(Error::Corrupt { .. })), "{codec} {level} {wrong}");
            }
        });
    }

    #[test]
    fn a_cut_input_is_refused() {
        let mut scratch = Scratch::default();
        for_all(|codec, level, bytes| {
            let mut stored = vec![0; bytes.len() * 2 + 1000];
            let dst = stored.as_mut_slice().into();
            let len = codec.compress(level, bytes.into(), dst, &mut scratch).unwrap().unwrap();
            // The last bytes of bzip2 and lzma are trailers: cut well into the data.
            let mut decoded = vec![0; bytes.len()];
            let src = stored[..len / 2].into();
            assert!(codec.decompress(src, decoded.as_mut_slice().into(), &mut scratch).is_err());
        });
    }
}
