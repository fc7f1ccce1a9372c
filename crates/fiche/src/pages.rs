//! What codecs read from and write to: bytes in one piece, in pages, or in any segments.
//!
//! Storage hands data around as lists of pages, and a codec that wants one buffer makes whoever calls it copy there and back, which costs as much as
//! a fast codec does (Warnke 2017). So codecs are written against [`Pieces`]: the bytes from a position to the end of the piece that it lies in. Within a
//! piece their loops are those for one buffer.
//!
//! Pieces that happen to lie side by side in memory are not joined: to Rust they are two objects still.

mod border;
mod room;

use std::ops::{Deref, Range};

pub(crate) use self::border::{At, Kernel, fetch, run};
pub(crate) use self::room::{One, PagesRoom, Room, SLACK, SegmentsRoom, copy, copy_pieces};
use crate::error::{Error, Result};

/// Bytes in pieces. Positions count all bytes from the first on.
pub(crate) trait Pieces {
    /// True where everything is one piece.
    const IS_ONE: bool = false;

    fn len(&self) -> usize;

    /// The bytes from `at` to the end of its piece: at least one, where `at` is less than the length.
    fn at(&self, at: usize) -> &[u8];

    /// The `N` bytes at `at`, which must be there.
    #[inline(always)]
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        match self.at(at).first_chunk() {
            Some(bytes) => *bytes,
            None => self.load_across(at),
        }
    }

    /// The same, of more than one piece.
    #[cold]
    fn load_across<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let mut done = 0;
        while done < N {
            let piece = self.at(at + done);
            let n = piece.len().min(N - done);
            assert!(n > 0, "bytes to read are not there");
            bytes[done..done + n].copy_from_slice(&piece[..n]);
            done += n;
        }
        bytes
    }
}

#[cold]
fn nothing() -> &'static [u8] {
    &[]
}

impl<T: Deref<Target = [u8]>> Pieces for T {
    const IS_ONE: bool = true;

    #[inline(always)]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn at(&self, at: usize) -> &[u8] {
        // What is read next should not wait for whether it is there.
        match self.get(at..) {
            Some(bytes) => bytes,
            None => nothing(),
        }
    }

    #[inline(always)]
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        *self[at..].first_chunk().expect("bytes that are there")
    }
}

/// Pages: all of one length, which is a power of two, but for the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paged<P> {
    pages: P,
    shift: u32,
    len: usize,
}

impl<P> Paged<P> {
    fn new(pages: P, lens: impl Iterator<Item = usize> + Clone) -> Result<Paged<P>> {
        let first = lens.clone().next().unwrap_or(0);
        let count = lens.clone().count();
        let is_even = first.is_power_of_two() || count < 2;
        let others = lens.clone().take(count.saturating_sub(1)).all(|len| len == first);
        let last = lens.clone().last().unwrap_or(0);
        if !is_even || !others || last > first || (last == 0 && count > 1) {
            let what =
                "pages have one length, a power of two, but for the last, which may have less";
            return Err(Error::invalid(what));
        }
        // A single page has everything at its own place.
        let shift = if count < 2 { usize::BITS - 1 } else { first.trailing_zeros() };
        Ok(Paged { pages, shift, len: lens.sum() })
    }
}

impl<P> Paged<P> {
    /// True where a page ends, or all of them.
    fn is_border(&self, at: usize) -> bool {
        at == self.len || at & ((1 << self.shift) - 1) == 0
    }

    /// How many pages there are before a border.
    fn page(&self, border: usize) -> usize {
        (border >> self.shift) + usize::from(border & ((1 << self.shift) - 1) > 0)
    }
}

/// The length of pages that loops of codecs are compiled for; others are segments to them.
const SHIFT: u32 = 12;

/// Pages of 4,096 bytes.
pub(crate) struct Small<P>(Paged<P>);

impl<P> Paged<P> {
    /// True for pages of 4,096 bytes.
    pub fn is_small(&self) -> bool {
        self.shift == SHIFT
    }

    /// # Panics
    /// For other pages.
    pub fn small(self) -> Small<P> {
        assert!(self.is_small());
        Small(self)
    }
}

impl Pieces for Small<&[&[u8]]> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len
    }

    #[inline(always)]
    fn at(&self, at: usize) -> &[u8] {
        let within = at & ((1 << SHIFT) - 1);
        match self.0.pages.get(at >> SHIFT).and_then(|page| page.get(within..)) {
            Some(bytes) => bytes,
            None => nothing(),
        }
    }
}

/// Where segments lie among all bytes.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// Where each segment ends.
    ends: Vec<usize>,
    /// Of each so many bytes the segment that the first lies in.
    first: Vec<u32>,
    shift: u32,
}

impl Ends {
    fn new(lens: impl Iterator<Item = usize>) -> Ends {
        let mut end = 0;
        let ends: Vec<usize> = lens
            .map(|len| {
                end += len;
                end
            })
            .collect();
        // About as many of them as there are segments.
        let shift = (end / ends.len().max(1)).max(1).ilog2();
        let mut segment = 0;
        let first = (0..end).step_by(1 << shift).map(|at| {
            while ends[segment] <= at {
                segment += 1;
            }
            segment as u32
        });
        Ends { first: first.collect(), shift, ends }
    }

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The segment of a position, and the place in it.
    #[inline(always)]
    fn place(&self, at: usize) -> (usize, usize) {
        let mut segment = self.first.get(at >> self.shift).map_or(self.ends.len(), |&i| i as usize);
        while self.ends.get(segment).is_some_and(|&end| end <= at) {
            segment += 1;
        }
        let start = if segment == 0 { 0 } else { self.ends[segment - 1] };
        (segment, at - start)
    }
}

/// Segments of any lengths, to read. Made once for a list; those without bytes are left out.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    segments: Vec<&'a [u8]>,
    ends: Ends,
}

impl<'a> Segments<'a> {
    /// Segments in this order; `IoSlice`s, for example.
    pub fn new<T: AsRef<[u8]> + ?Sized + 'a>(
        segments: impl IntoIterator<Item = &'a T>,
    ) -> Segments<'a> {
        let segments = segments.into_iter().map(AsRef::as_ref);
        let segments: Vec<&[u8]> = segments.filter(|segment| !segment.is_empty()).collect();
        let ends = Ends::new(segments.iter().map(|segment| segment.len()));
        Segments { segments, ends }
    }
}

impl Pieces for &Segments<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline(always)]
    fn at(&self, at: usize) -> &[u8] {
        let (segment, within) = self.ends.place(at);
        self.segments.get(segment).map_or(&[], |segment| &segment[within..])
    }
}

/// Segments of any lengths, to write. Made once for a list; those without bytes are left out.
#[derive(Debug)]
pub struct SegmentsMut<'a> {
    segments: Vec<&'a mut [u8]>,
    ends: Ends,
}

impl<'a> SegmentsMut<'a> {
    /// Segments in this order; `IoSliceMut`s, for example.
    pub fn new<T: AsMut<[u8]> + ?Sized + 'a>(
        segments: impl IntoIterator<Item = &'a mut T>,
    ) -> SegmentsMut<'a> {
        let segments = segments.into_iter().map(AsMut::as_mut);
        let segments: Vec<&mut [u8]> = segments.filter(|segment| !segment.is_empty()).collect();
        let ends = Ends::new(segments.iter().map(|segment| segment.len()));
        SegmentsMut { segments, ends }
    }
}

/// What a piece that begins at `start` has of a part of all bytes.
fn clipped(start: usize, len: usize, part: &Range<usize>) -> Range<usize> {
    let from = part.start.saturating_sub(start).min(len);
    from..part.end.saturating_sub(start).clamp(from, len)
}

/// How bytes lie that a codec reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SrcLayout<'a> {
    One(&'a [u8]),
    Pages(Paged<&'a [&'a [u8]]>),
    Segments(&'a Segments<'a>),
}

/// The bytes a codec reads: one slice, pages, or segments.
///
/// ```
/// use fiche::{Segments, Src};
///
/// let pages: [&[u8]; 3] = [b"abcd", b"efgh", b"ij"];
/// assert_eq!(Src::pages(&pages)?.len(), 10);
/// let segments = Segments::new(["one", "", "three"]);
/// assert_eq!(Src::from(&segments).len(), 8);
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Src<'a>(pub(crate) SrcLayout<'a>);

impl<'a> Src<'a> {
    /// Pages.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless all but the last have one length, a power of two, and that one no more.
    pub fn pages(pages: &'a [&'a [u8]]) -> Result<Src<'a>> {
        let paged = Paged::new(pages, pages.iter().map(|page| page.len()))?;
        Ok(Src(SrcLayout::Pages(paged)))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            SrcLayout::One(bytes) => bytes.len(),
            SrcLayout::Pages(pages) => pages.len,
            SrcLayout::Segments(segments) => segments.ends.len(),
        }
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes as one slice, where they are one.
    #[must_use]
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        match self.0 {
            SrcLayout::One(bytes) => Some(bytes),
            SrcLayout::Pages(pages) => match pages.pages {
                [] => Some(&[]),
                [page] => Some(page),
                _ => None,
            },
            SrcLayout::Segments(segments) => match segments.segments[..] {
                [] => Some(&[]),
                [segment] => Some(segment),
                _ => None,
            },
        }
    }

    /// Calls a function with a part of the bytes, which has to be there. Takes longer the more pieces there are, unless borders of the part are those of pages.
    pub(crate) fn with_part<R>(&self, part: Range<usize>, act: impl FnOnce(Src<'_>) -> R) -> R {
        match self.0 {
            SrcLayout::One(bytes) => act(bytes[part].into()),
            SrcLayout::Pages(paged) if paged.is_border(part.start) && paged.is_border(part.end) => {
                let pages = &paged.pages[paged.page(part.start)..paged.page(part.end)];
                act(Src(SrcLayout::Pages(Paged { pages, len: part.len(), ..paged })))
            }
            _ => {
                let mut start = 0;
                let all = self.segments().segments.into_iter();
                let within = all.map(|piece| {
                    let range = clipped(start, piece.len(), &part);
                    start += piece.len();
                    &piece[range]
                });
                act((&Segments::new(within)).into())
            }
        }
    }

    /// All bytes, in one piece.
    pub(crate) fn gather(&self, all: &mut Vec<u8>) {
        all.clear();
        self.segments().segments.iter().for_each(|segment| all.extend_from_slice(segment));
    }

    /// The segments that it is.
    pub(crate) fn segments(&self) -> Segments<'a> {
        match self.0 {
            SrcLayout::One(bytes) => Segments::new([bytes]),
            SrcLayout::Pages(pages) => Segments::new(pages.pages.iter().copied()),
            SrcLayout::Segments(segments) => segments.clone(),
        }
    }
}

impl<'a> From<&'a [u8]> for Src<'a> {
    fn from(bytes: &'a [u8]) -> Src<'a> {
        Src(SrcLayout::One(bytes))
    }
}

impl<'a> From<&'a Segments<'a>> for Src<'a> {
    fn from(segments: &'a Segments<'a>) -> Src<'a> {
        Src(SrcLayout::Segments(segments))
    }
}

/// How room lies that a codec writes.
#[derive(Debug)]
pub(crate) enum DstLayout<'a, 'p> {
    One(&'a mut [u8]),
    Pages(Paged<&'a mut [&'p mut [u8]]>),
    Segments(&'a mut SegmentsMut<'p>),
}

/// The room a codec writes to: one slice, pages, or segments. Of what is behind that which a codec says it wrote, nothing is known.
#[derive(Debug)]
pub struct Dst<'a, 'p>(pub(crate) DstLayout<'a, 'p>);

impl<'a, 'p> Dst<'a, 'p> {
    /// Pages.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless all but the last have one length, a power of two, and that one no more.
    pub fn pages(pages: &'a mut [&'p mut [u8]]) -> Result<Dst<'a, 'p>> {
        let lens: Vec<usize> = pages.iter().map(|page| page.len()).collect();
        let paged = Paged::new(pages, lens.iter().copied())?;
        Ok(Dst(DstLayout::Pages(paged)))
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            DstLayout::One(bytes) => bytes.len(),
            DstLayout::Pages(pages) => pages.len,
            DstLayout::Segments(segments) => segments.ends.len(),
        }
    }

    /// True when there is room for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls a function with a part of the room, which has to be there. Takes as long as it does for [`Src`].
    pub(crate) fn with_part<R>(
        &mut self,
        part: Range<usize>,
        act: impl FnOnce(Dst<'_, '_>) -> R,
    ) -> R {
        match &mut self.0 {
            DstLayout::One(bytes) => act((&mut bytes[part]).into()),
            DstLayout::Pages(paged) if paged.is_border(part.start) && paged.is_border(part.end) => {
                let pages = paged.page(part.start)..paged.page(part.end);
                let (shift, len) = (paged.shift, part.len());
                let pages = &mut paged.pages[pages];
                act(Dst(DstLayout::Pages(Paged { pages, shift, len })))
            }
            _ => {
                let mut start = 0;
                let all = self.segments().segments.into_iter();
                let within = all.map(|piece| {
                    let range = clipped(start, piece.len(), &part);
                    start += piece.len();
                    &mut piece[range]
                });
                act((&mut SegmentsMut::new(within)).into())
            }
        }
    }

    /// The room as one slice, where it is one.
    pub(crate) fn as_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            DstLayout::One(bytes) => Some(bytes),
            DstLayout::Pages(pages) => match &mut *pages.pages {
                [] => Some(&mut []),
                [page] => Some(page),
                _ => None,
            },
            DstLayout::Segments(segments) => match &mut segments.segments[..] {
                [] => Some(&mut []),
                [segment] => Some(segment),
                _ => None,
            },
        }
    }

    /// Puts bytes in at the front; there is room for them.
    pub(crate) fn scatter(&mut self, mut bytes: &[u8]) {
        for segment in self.segments().segments {
            let (here, rest) = bytes.split_at(segment.len().min(bytes.len()));
            segment[..here.len()].copy_from_slice(here);
            bytes = rest;
        }
    }

    /// The segments that it is.
    pub(crate) fn segments(&mut self) -> SegmentsMut<'_> {
        match &mut self.0 {
            DstLayout::One(bytes) => SegmentsMut::new([&mut **bytes]),
            DstLayout::Pages(pages) => SegmentsMut::new(pages.pages.iter_mut().map(|p| &mut **p)),
            DstLayout::Segments(segments) => {
                SegmentsMut::new(segments.segments.iter_mut().map(|segment| &mut **segment))
            }
        }
    }
}

impl<'a> From<&'a mut [u8]> for Dst<'a, '_> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Dst(DstLayout::One(bytes))
    }
}

impl<'a, 'p> From<&'a mut SegmentsMut<'p>> for Dst<'a, 'p> {
    fn from(segments: &'a mut SegmentsMut<'p>) -> Dst<'a, 'p> {
        Dst(DstLayout::Segments(segments))
    }
}
