//! BeWalgo: LZ77 in units of 4 or 8 bytes (Warnke, *Page-Based Compression in the Linux Kernel*, 2017).
//!
//! Everything is a whole number of units: literals, matches, offsets, and what says how long they are. So no unit lies across the border of two
//! pages, and streams that are put behind one another are one stream. It is fast and finds what lies at the same place of a unit: arrays of numbers, tables, pages of
//! databases; of text it finds little.
//!
//! # BeWalgo
//!
//! Two codecs, of units of 4 bytes (`bewalgo32`) and of 8 (`bewalgo64`). Integers are little-endian.
//!
//! A stream is a sequence of control words, each with the literals that it tells of, and behind all of them the bytes that are no whole unit, as they
//! are: fewer than a unit has.
//!
//! | field | bytes | what |
//! |---|---|---|
//! | literals | 1 | how many units of literals follow the control word |
//! | match | 1 | how many units are then copied |
//! | offset | 2 | from how many units before; 0 where none are copied |
//!
//! A control word of `bewalgo32` is one such triple. One of `bewalgo64` is two of them, of 8 bytes together: behind it are the literals of the first and then those of the second;
//! decoded are literals and match of the first, then of the second. A second triple of zeros has nothing: the one at the end of a stream, behind which another stream may be. No first triple is of zeros.
//! A copy may go on into what it writes: units are copied in order.
//!
//! Longer literals are several triples of 255 units, without matches but for the last; longer matches several of one offset.
//! A stream says nowhere how long it is: what is left of fewer bytes than a control word has are those at the end.

mod decode;
mod encode;
mod kernel;

pub use self::decode::Strictness;
pub(super) use self::encode::Tables;
use crate::codec::Scratch;
use crate::error::Result;
use crate::pages::{Dst, DstLayout, One, PagesRoom, Pieces, SegmentsRoom, Src, SrcLayout};
use crate::wire::{load_low, load_u32, load_u64, low_bytes};

/// Units of a literal or a match in one triple.
const MOST: usize = 255;
/// Units that a match may be away.
const FARTHEST: usize = 65_535;
/// Bytes of a triple.
const TRIPLE: usize = 4;

/// How many bytes a unit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// BeWalgo32.
    Four,
    /// BeWalgo64.
    Eight,
}

impl Width {
    /// Bytes of a unit.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// What is compared, copied and counted.
trait Unit: Copy + Eq {
    const BYTES: usize;
    /// Triples of a control word.
    const TRIPLES: usize;

    fn load(pieces: &impl Pieces, at: usize) -> Self;

    /// A control word; what it does not have is zero.
    fn control(pieces: &impl Pieces, at: usize) -> [Triple; 2];
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Four(u32);

impl Unit for Four {
    const BYTES: usize = 4;
    const TRIPLES: usize = 1;

    #[inline(always)]
    fn load(pieces: &impl Pieces, at: usize) -> Four {
        Four(load_u32(&pieces.load::<4>(at), 0))
    }

    #[inline(always)]
    fn control(pieces: &impl Pieces, at: usize) -> [Triple; 2] {
        [Triple::of(pieces.load(at)), Triple::default()]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Eight(u64);

impl Unit for Eight {
    const BYTES: usize = 8;
    const TRIPLES: usize = 2;

    #[inline(always)]
    fn load(pieces: &impl Pieces, at: usize) -> Eight {
        Eight(load_u64(&pieces.load::<8>(at), 0))
    }

    #[inline(always)]
    fn control(pieces: &impl Pieces, at: usize) -> [Triple; 2] {
        let [a, b, c, d, e, f, g, h] = pieces.load(at);
        [Triple::of([a, b, c, d]), Triple::of([e, f, g, h])]
    }
}

/// Literals, and a match behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Triple {
    literals: usize,
    matched: usize,
    offset: usize,
}

impl Triple {
    #[inline(always)]
    fn bytes(self) -> [u8; TRIPLE] {
        let [low, high, ..] = low_bytes(self.offset as u64);
        [self.literals as u8, self.matched as u8, low, high]
    }

    /// A control word of two.
    #[inline(always)]
    fn pair(first: Triple, second: Triple) -> [u8; 2 * TRIPLE] {
        let ([a, b, c, d], [e, f, g, h]) = (first.bytes(), second.bytes());
        [a, b, c, d, e, f, g, h]
    }

    #[inline(always)]
    fn of(bytes: [u8; TRIPLE]) -> Triple {
        let [literals, matched, low, high] = bytes;
        Triple {
            literals: literals.into(),
            matched: matched.into(),
            offset: load_low(&[low, high]) as usize,
        }
    }
}

/// How matches are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effort {
    /// As the thesis does: 4,096 places by the top bits of a unit, and by `1` or more faster where nothing is found.
    Thesis(u32),
    /// The same with whole units in a larger table.
    Fast(u32),
    /// The longest match at each place, of so many that are looked at, and of all ways through these the shortest. Takes 12 bytes of memory for each unit.
    Best(u32),
}

impl Effort {
    /// The one of a level: below 1 the thesis's search at 0, and fast ones that skip ever more; 1 is fast, and from 2 on ever more matches are compared.
    pub(super) fn of(level: i32) -> Effort {
        match level {
            0 => Effort::Thesis(1),
            ..=1 => Effort::Fast(level.unsigned_abs().max(1)),
            _ => Effort::Best(1 << level.min(16)),
        }
    }
}

/// The levels that there are.
pub(super) const LEVELS: std::ops::RangeInclusive<i32> = -64..=9;

/// The most bytes that so many may become.
#[must_use]
pub fn bound(width: Width, len: usize) -> usize {
    let units = len / width.bytes();
    let triples = units.div_ceil(MOST).max(usize::from(units > 0));
    len + triples.next_multiple_of(width.bytes() / TRIPLE) * TRIPLE
}

/// Compresses `src` into the front of `dst`, and returns how many bytes that took; `None` where there is no room. The same bytes come of it however
/// they lie. Nothing is copied but from `src` to `dst`.
pub fn compress(
    width: Width,
    effort: Effort,
    src: Src<'_>,
    dst: Dst<'_, '_>,
    scratch: &mut Scratch,
) -> Option<usize> {
    let tables = &mut scratch.bewalgo;
    match width {
        Width::Four => {
            for_layouts!(src, dst, |from, to| encode::encode::<Four>(effort, &from, to, tables))
        }
        Width::Eight => {
            for_layouts!(src, dst, |from, to| encode::encode::<Eight>(effort, &from, to, tables))
        }
    }
}

/// Decodes the front of `src`, as much as fills `dst`.
pub(super) fn decompress_front(width: Width, src: Src<'_>, dst: Dst<'_, '_>) -> Result<usize> {
    match width {
        Width::Four => for_layouts!(src, dst, |from, to| decode::front::<Four>(&from, to)),
        Width::Eight => for_layouts!(src, dst, |from, to| decode::front::<Eight>(&from, to)),
    }
}

/// Decodes `src` into the front of `dst`, and returns how many bytes that gave. `src` may hold anything.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt), which says what is wrong, and where in `src`.
pub fn decompress(
    width: Width,
    strictness: Strictness,
    src: Src<'_>,
    dst: Dst<'_, '_>,
) -> Result<usize> {
    match width {
        Width::Four => {
            for_layouts!(src, dst, |from, to| decode::decode::<Four>(strictness, &from, to))
        }
        Width::Eight => {
            for_layouts!(src, dst, |from, to| decode::decode::<Eight>(strictness, &from, to))
        }
    }
}
