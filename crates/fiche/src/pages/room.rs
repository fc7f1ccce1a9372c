//! Room for what codecs write, in pieces, of which one is read while another is written.
//!
//! What a decoder copies is mostly in another page than the one it writes. By references these would be parted at each copy, and in other ways for the page itself and for those before it: a
//! branch that nothing foretells. So places are pointers here.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Ends, Pieces, SHIFT, SegmentsMut, Small};

/// Bytes of one move, where copies may go beyond their end.
pub(crate) const SLACK: usize = 32;

/// Bytes of positions, to write and to read.
///
/// # Safety
/// As long as the value lives nothing else refers to what [`find`](Room::find) tells, which are as many bytes as it says, initialized, and others for any other position.
pub(crate) unsafe trait Room {
    /// True where everything is one piece.
    const IS_ONE: bool = false;

    fn len(&self) -> usize;

    /// Where the byte at a position lies, and how many there are from there to the end of its piece: one at least.
    ///
    /// # Safety
    /// `at` is less than the length.
    unsafe fn find(&self, at: usize) -> (*mut u8, usize);

    /// Writes bytes.
    ///
    /// # Panics
    /// Where there is no room for them.
    #[inline(always)]
    fn store<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        assert!(N > 0 && at < self.len());
        // SAFETY: there is a byte at `at`.
        let (to, left) = unsafe { self.find(at) };
        if left >= N {
            // SAFETY: so many bytes are there.
            unsafe { to.cast::<[u8; N]>().write(bytes) };
        } else {
            self.copy_long(at, &&bytes[..], 0, N);
        }
    }

    /// Room from a position to the end of its piece; none at the end of all.
    #[inline(always)]
    fn rest(&mut self, at: usize) -> &mut [u8] {
        if at >= self.len() {
            return &mut [];
        }
        // SAFETY: there is a byte at `at`; and so many bytes are there, which nothing else refers to.
        unsafe {
            let (to, left) = self.find(at);
            std::slice::from_raw_parts_mut(to, left)
        }
    }

    /// Copies bytes from elsewhere. What is behind them in their piece may be written, too.
    ///
    /// # Panics
    /// Where either does not have so many.
    #[inline(always)]
    fn copy_from(&mut self, at: usize, src: &impl Pieces, from: usize, len: usize) {
        if len <= SLACK
            && at < self.len()
            && let Some(bytes) = src.at(from).first_chunk::<SLACK>()
        {
            // SAFETY: there is a byte at `at`.
            let (to, left) = unsafe { self.find(at) };
            if left >= SLACK {
                // SAFETY: so many bytes are there.
                unsafe { to.cast::<[u8; SLACK]>().write(*bytes) };
                return;
            }
        }
        self.copy_long(at, src, from, len);
    }

    /// The same, piece by piece, and nothing behind.
    #[inline(never)]
    fn copy_long(&mut self, mut at: usize, src: &impl Pieces, mut from: usize, mut len: usize) {
        assert!(len <= self.len() && at <= self.len() - len);
        while len > 0 {
            let piece = src.at(from);
            // SAFETY: `at` is less than the length, as something is left.
            let (to, left) = unsafe { self.find(at) };
            let n = len.min(piece.len()).min(left);
            assert!(n > 0, "bytes to copy are not there");
            // SAFETY: both have so many, and `src` is no part of the room.
            unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), n) };
            (at, from, len) = (at + n, from + n, len - n);
        }
    }

    /// Copies what begins `distance` bytes before `at`, which may go on into what is copied; nothing behind.
    ///
    /// # Panics
    /// Where there is no room, or no such distance.
    #[inline(never)]
    fn repeat(&mut self, mut at: usize, distance: usize, mut len: usize) {
        assert!(len <= self.len() && at <= self.len() - len);
        assert!(distance > 0 && distance <= at);
        let mut from = at - distance;
        while len > 0 {
            // SAFETY: `at` is less than the length, as something is left, and `from` is less than that.
            let ((there, left), (to, room)) = unsafe { (self.find(from), self.find(at)) };
            let n = len.min(at - from).min(left).min(room);
            // SAFETY: both have so many, which are different ones, as they are no more than lie between them.
            unsafe { to.copy_from_nonoverlapping(there, n) };
            // What was copied whole is there twice: the next copy may be as long as both.
            if n < at - from {
                from += n;
            }
            (at, len) = (at + n, len - n);
        }
    }
}

/// Copies so many bytes, and others behind them, up to [`SLACK`] in all more.
///
/// # Safety
/// Both have so many, and so much more, and lie `SLACK` apart.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let mut done = 0;
    loop {
        // SAFETY: no more than `len` was copied, and there is slack.
        unsafe {
            to.add(done).cast::<[u8; SLACK]>().write(from.add(done).cast::<[u8; SLACK]>().read())
        };
        done += SLACK;
        if done >= len {
            return;
        }
    }
}

/// Copies what begins in another piece, and may go on into what is copied.
///
/// # Safety
/// There is room for so many bytes from `to` on, which is where `position` lies; where there are any, the distance is not 0 and no more than the position.
#[cold]
pub(crate) unsafe fn copy_pieces(
    dst: &impl Room,
    to: *mut u8,
    position: usize,
    distance: usize,
    len: usize,
) {
    let mut done = 0;
    while done < len {
        // SAFETY: there is such a position.
        let (there, left) = unsafe { dst.find(position + done - distance) };
        let n = left.min(len - done).min(distance);
        // SAFETY: so many bytes are there, which end before those that are written.
        unsafe { to.add(done).copy_from_nonoverlapping(there, n) };
        done += n;
    }
}

/// Room in one piece.
pub(crate) struct One<'a> {
    bytes: *mut u8,
    len: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> From<&'a mut [u8]> for One<'a> {
    fn from(bytes: &'a mut [u8]) -> One<'a> {
        One { bytes: bytes.as_mut_ptr(), len: bytes.len(), lent: PhantomData }
    }
}

// SAFETY: what is told are the bytes of a slice that is lent for as long as the value lives.
unsafe impl Room for One<'_> {
    const IS_ONE: bool = true;

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    unsafe fn find(&self, at: usize) -> (*mut u8, usize) {
        debug_assert!(at < self.len);
        // SAFETY: the position is one of the slice.
        (unsafe { self.bytes.add(at) }, self.len - at)
    }
}

/// A byte of one of many pieces, and how many there are from there on.
///
/// # Safety
/// There is such a piece, which has more bytes than `at`.
#[inline(always)]
unsafe fn within(pieces: *mut &mut [u8], piece: usize, at: usize) -> (*mut u8, usize) {
    // SAFETY: there is such a piece. No reference to its bytes is made: there are pointers to them.
    let piece: *mut [u8] = unsafe { &raw mut **pieces.add(piece) };
    debug_assert!(at < piece.len());
    // SAFETY: there are more bytes than `at`.
    (unsafe { piece.cast::<u8>().add(at) }, piece.len() - at)
}

/// Room in pages of 4,096 bytes.
pub(crate) struct PagesRoom<'a, 'p> {
    pages: *mut &'p mut [u8],
    len: usize,
    lent: PhantomData<&'a mut [&'p mut [u8]]>,
}

impl<'a, 'p> From<Small<&'a mut [&'p mut [u8]]>> for PagesRoom<'a, 'p> {
    fn from(Small(paged): Small<&'a mut [&'p mut [u8]]>) -> Self {
        PagesRoom { pages: paged.pages.as_mut_ptr(), len: paged.len, lent: PhantomData }
    }
}

// SAFETY: what is told are bytes of slices that are lent for as long as the value lives, which are different ones, being lent to be written.
unsafe impl Room for PagesRoom<'_, '_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    unsafe fn find(&self, at: usize) -> (*mut u8, usize) {
        debug_assert!(at < self.len);
        // SAFETY: all pages but the last have 2^SHIFT bytes, and all together the length.
        unsafe { within(self.pages, at >> SHIFT, at & ((1 << SHIFT) - 1)) }
    }
}

/// Room in segments.
pub(crate) struct SegmentsRoom<'a, 'p> {
    segments: *mut &'p mut [u8],
    ends: &'a Ends,
    lent: PhantomData<&'a mut [&'p mut [u8]]>,
}

impl<'a, 'p> From<&'a mut SegmentsMut<'p>> for SegmentsRoom<'a, 'p> {
    fn from(all: &'a mut SegmentsMut<'p>) -> Self {
        let SegmentsMut { segments, ends } = all;
        SegmentsRoom { segments: segments.as_mut_ptr(), ends, lent: PhantomData }
    }
}

// SAFETY: as for pages.
unsafe impl Room for SegmentsRoom<'_, '_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline(always)]
    unsafe fn find(&self, at: usize) -> (*mut u8, usize) {
        let (segment, at) = self.ends.place(at);
        // SAFETY: the ends are those of these segments, none of which is empty.
        unsafe { within(self.segments, segment, at) }
    }
}
