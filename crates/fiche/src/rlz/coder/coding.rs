//! The codings there are, and what each of them can.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::plain::{self, Mark};
use super::{Kept, Shared};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::rlz::hybrid;

/// What a block stores with the help of a dictionary. The numbers are those of the file.
///
/// The first five are the systems of Petri, Moffat, Nagesh and Wirth, *Access time tradeoffs in
/// archive compression* (2015): a block is a sequence of *factors*, each a copy out of the dictionary.
/// Two are adaptive codecs that know the dictionary before they start, and the last two fiche's own: they
/// copy out of the dictionary and out of the block itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Coding {
    /// Lengths as varints, offsets in 32 bits. The fastest to read; a point read costs only
    /// the factors that it needs.
    Uv = 16,
    /// Lengths as varints, offsets in as few bits as they need. Point reads as with `Uv`.
    Pv = 17,
    /// Both streams deflated. Levels 1 to 12.
    Zz = 18,
    /// Short factors are literals in a stream of their own; three streams deflated. Levels 1 to 12.
    Zzz = 19,
    /// As `Zz`, behind streams that are known. Levels 1 to 9.
    ZzPrimed = 20,
    /// Deflate, behind 32 KiB of the dictionary: those that stand where the block stood in the
    /// collection. Levels 1 to 9.
    ZlibPrimed = 21,
    /// Zstandard, behind all of the dictionary. Levels 1 to 22.
    ZstdDict = 22,
    /// Copies out of the dictionary and out of the block itself, written with codes that all blocks
    /// share. The smallest; read faster than what builds tables for each block. Levels 5 to 9, which
    /// are read about equally fast; those from 1 to 4 are `Fast`.
    Hybrid = 23,
    /// Copies out of the dictionary and out of the block itself, in whole bytes: about as fast to
    /// read as lz4, and smaller. A point read costs only the copies that lead to it. Levels 1 to 4.
    Fast = 24,
}

impl Coding {
    /// Every coding, whether or not this build has it.
    pub const ALL: [Coding; 9] = [
        Coding::Uv,
        Coding::Pv,
        Coding::Zz,
        Coding::Zzz,
        Coding::ZzPrimed,
        Coding::ZlibPrimed,
        Coding::ZstdDict,
        Coding::Hybrid,
        Coding::Fast,
    ];

    /// The coding of this number in a file, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| *coding as u8 == number)
    }

    /// The name under which people choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Coding::Uv => "rlz-uv",
            Coding::Pv => "rlz-pv",
            Coding::Zz => "rlz-zz",
            Coding::Zzz => "rlz-zzz",
            Coding::ZzPrimed => "rlz-zz-primed",
            Coding::ZlibPrimed => "zlib-primed",
            Coding::ZstdDict => "zstd-dict",
            Coding::Hybrid => "hybrid",
            Coding::Fast => "hybrid-fast",
        }
    }

    /// The levels it has, from fastest to smallest.
    #[must_use]
    pub fn levels(self) -> RangeInclusive<i32> {
        match self {
            Coding::Uv | Coding::Pv => 0..=0,
            Coding::Zz | Coding::Zzz => 1..=12,
            Coding::ZzPrimed | Coding::ZlibPrimed => 1..=9,
            Coding::Hybrid => hybrid::LEVELS,
            Coding::Fast => hybrid::FAST_LEVELS,
            Coding::ZstdDict => 1..=22,
        }
    }

    /// Fails where there is no such level.
    ///
    /// # Errors
    /// [`Error::Invalid`], which names the levels there are.
    pub fn check_level(self, level: i32) -> Result<()> {
        Error::check_level(self.name(), self.levels(), level)
    }

    /// The level taken when none is asked for: that of the paper, and for Zstandard the strongest
    /// that packs in bearable time.
    #[must_use]
    pub fn default_level(self) -> i32 {
        match self {
            Coding::Uv | Coding::Pv => 0,
            Coding::ZstdDict => 12,
            Coding::Hybrid => hybrid::DEFAULT_LEVEL,
            Coding::Fast => 2,
            _ => 9,
        }
    }

    /// True when this build has it.
    #[must_use]
    pub fn is_compiled_in(self) -> bool {
        let deflates =
            matches!(self, Coding::Zz | Coding::Zzz | Coding::ZzPrimed | Coding::ZlibPrimed);
        cfg!(feature = "zlib") || !deflates
    }

    /// True where a read of a few bytes costs only the factors that it needs, and not a whole block.
    #[must_use]
    pub fn has_point_reads(self) -> bool {
        matches!(self, Coding::Uv | Coding::Pv | Coding::Fast)
    }

    /// True where a piece of a block, so many bytes from `start` on, takes much less than all that is before its end.
    pub(crate) fn is_piece(self, start: usize, len: usize) -> bool {
        matches!(self, Coding::Hybrid) && start > 0 && hybrid::is_piece(len, start + len)
    }

    /// True where marks say where factors begin.
    pub(crate) fn has_marks(self) -> bool {
        matches!(self, Coding::Uv | Coding::Pv)
    }

    /// Notes where the tokens of a `Fast` block are.
    pub(crate) fn keep(shared: Shared<'_>, stored: &[u8], kept: Kept<'_>) {
        hybrid::point::keep(shared.dictionary, shared.tokens(), stored, kept);
    }

    /// Asks for what a read of a block at `start` most probably needs.
    #[inline(always)]
    pub(crate) fn ask(self, stored: &[u8], start: usize, block_len: usize) {
        match self {
            Coding::Uv => plain::ask_about(stored, start, block_len, 51),
            Coding::Pv => plain::ask_about(stored, start, block_len, 39),
            _ => {}
        }
    }

    /// Of a block of a coding that has them, the mark of the factor in which byte `first` is, and of
    /// every one `step` bytes further, as far as the block goes.
    pub(crate) fn marks(
        stored: &[u8],
        block_len: usize,
        first: usize,
        step: usize,
        put: impl FnMut(Mark),
    ) {
        let _ = plain::marks(stored, block_len, first, step, put);
    }

    /// True where decoding as far as `end` of a block of `len` bytes costs less than all of it.
    pub(crate) fn stops_early(self, end: usize, len: usize) -> bool {
        match self {
            // What inflates a front takes a quarter longer than what inflates all.
            Coding::Zz | Coding::Zzz => end < len / 10 * 7,
            Coding::ZstdDict => Codec::Zstd.stops_early(end, len),
            _ => end < len / 10 * 9,
        }
    }

    /// True where blocks may share a model beside the dictionary.
    pub(crate) fn has_model(self) -> bool {
        matches!(self, Coding::ZzPrimed | Coding::Hybrid | Coding::Fast)
    }

    /// True for all but the adaptive codecs.
    pub(super) fn has_factors(self) -> bool {
        !matches!(self, Coding::ZlibPrimed | Coding::ZstdDict)
    }

    /// The coding that this level of it is: the lower ones of `Hybrid` are `Fast`.
    #[must_use]
    pub fn at_level(self, level: i32) -> Coding {
        match self {
            Coding::Hybrid if hybrid::FAST_LEVELS.contains(&level) => Coding::Fast,
            _ => self,
        }
    }

    /// True where matches are looked for in the dictionary and in the block.
    #[must_use]
    pub fn is_hybrid(self) -> bool {
        matches!(self, Coding::Hybrid | Coding::Fast)
    }

    #[allow(dead_code)]
    pub(super) fn not_compiled_in(self) -> Error {
        let what = "zlib, which this build leaves out, as coding";
        Error::Unsupported { what, found: self as u64 }
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Coding {
    type Err = Error;

    fn from_str(name: &str) -> Result<Coding> {
        let what = "the codings are rlz-uv, rlz-pv, rlz-zz, rlz-zzz, rlz-zz-primed, zlib-primed, \
                    zstd-dict, hybrid and hybrid-fast";
        Coding::ALL.into_iter().find(|c| c.name() == name).ok_or(Error::invalid(what))
    }
}
