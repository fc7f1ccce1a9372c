//! Decoding across the borders of pieces with loops that know nothing of them.
//!
//! A loop that decodes within a piece has margins at its end. What lies there, and what lies across the border, is for a few hundred bytes read from a buffer into which both sides were
//! copied, and written to another that goes on from what is before. So there is one loop, and nothing in it is about borders.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{Pieces, Room, SLACK};
use crate::error::Result;
use crate::processor::prefetch;

/// How far a decoder is: in what it reads, and in what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub from: usize,
    pub to: usize,
}

/// A loop that decodes what it can within a piece of what it reads and one of what it writes.
pub(crate) trait Kernel {
    /// Decodes as long as there are margins; what it leaves, of which the result tells the first, it has not touched.
    ///
    /// # Errors
    /// Where what it reads is wrong.
    fn run(src: &impl Pieces, dst: &impl Room, at: At) -> Result<At>;
}

/// Bytes read across a border.
const READ: usize = 192;
/// Bytes written across a border, behind it.
const WRITTEN: usize = 160;
/// Bytes before these that matches are read from where they are written.
const HISTORY: usize = 64;
/// Lines of the next piece that are asked for.
const LINES: usize = 10;

/// Decodes as far as a loop does that takes borders as they come; it stops near the ends of all, and before what is too long for a window.
#[inline(always)]
pub(crate) fn run<K: Kernel>(src: &impl Pieces, dst: &impl Room, mut at: At) -> Result<At> {
    loop {
        let piece = src.at(at.from);
        fetch(src.at(at.from + piece.len()));
        at = K::run(src, dst, at)?;
        let before = at;
        at = across::<K>(src, dst, at)?;
        if at == before {
            return Ok(at);
        }
    }
}

/// Decodes what lies across a border.
#[inline(always)]
fn across<K: Kernel>(src: &impl Pieces, dst: &impl Room, at: At) -> Result<At> {
    if at.from >= src.len() || at.to >= dst.len() {
        return Ok(at);
    }
    let piece = src.at(at.from);
    // SAFETY: the position is less than the length.
    let (to, left) = unsafe { dst.find(at.to) };
    let is_last = (at.from + piece.len() == src.len(), at.to + left == dst.len());
    match (is_last.0 || piece.len() >= READ, is_last.1 || left >= WRITTEN) {
        (true, true) => Ok(at),
        (false, true) => K::run(&Read::new(src, at.from), dst, at),
        (true, false) => written::<K>(src, dst, at, (to, left)),
        (false, false) => written::<K>(&Read::new(src, at.from), dst, at, (to, left)),
    }
}

/// Decodes into a buffer, and copies that.
#[inline(always)]
fn written<K: Kernel>(
    src: &impl Pieces,
    dst: &impl Room,
    at: At,
    (to, left): (*mut u8, usize),
) -> Result<At> {
    let mut buffer = [0; HISTORY + 2 * WRITTEN];
    let history = at.to.min(HISTORY);
    // SAFETY: there are so many bytes before the position.
    unsafe { read_before(dst, at.to, &mut buffer[..history]) };
    let len = (left + WRITTEN).min(dst.len() - at.to);
    let written =
        Written { dst, history, start: at.to, len, buffer: buffer.as_mut_ptr(), lent: PhantomData };
    let done = K::run(src, &written, at)?;
    let n = done.to - at.to;
    let bytes = &buffer[history..history + n];
    let here = n.min(left);
    // SAFETY: there are `left` bytes from the position on.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), here) };
    if here < n {
        write_long(dst, at.to + here, &bytes[here..]);
    }
    Ok(done)
}

/// Writes bytes, piece by piece.
#[inline(always)]
fn write_long(dst: &impl Room, mut at: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        assert!(at < dst.len());
        // SAFETY: the position is less than the length.
        let (to, left) = unsafe { dst.find(at) };
        let n = bytes.len().min(left);
        // SAFETY: there are so many, and the buffer is elsewhere.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), n) };
        (at, bytes) = (at + n, &bytes[n..]);
    }
}

/// Reads the bytes before a position.
///
/// # Safety
/// There are so many, and the position is no more than the length.
#[inline(always)]
unsafe fn read_before(dst: &impl Room, end: usize, bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        // SAFETY: this is before the position.
        let (from, left) = unsafe { dst.find(end - bytes.len() + done) };
        let n = left.min(bytes.len() - done);
        // SAFETY: there are so many, and the buffer is elsewhere.
        unsafe { from.copy_to_nonoverlapping(bytes[done..].as_mut_ptr(), n) };
        done += n;
    }
}

/// Some bytes of pieces in one.
struct Read {
    start: usize,
    len: usize,
    bytes: [u8; READ],
}

impl Read {
    #[inline(always)]
    fn new(src: &impl Pieces, start: usize) -> Read {
        let mut bytes = [0; READ];
        let mut len = 0;
        while len < READ {
            let piece = src.at(start + len);
            let n = piece.len().min(READ - len);
            if n == 0 {
                break;
            }
            bytes[len..len + n].copy_from_slice(&piece[..n]);
            len += n;
        }
        Read { start, len, bytes }
    }
}

impl Pieces for Read {
    #[inline(always)]
    fn len(&self) -> usize {
        self.start + self.len
    }

    #[inline(always)]
    fn at(&self, at: usize) -> &[u8] {
        self.bytes[..self.len].get(at - self.start..).unwrap_or_default()
    }
}

/// Room of which the last bytes are in a buffer, and before them a copy of those before.
struct Written<'a, D> {
    dst: &'a D,
    buffer: *mut u8,
    /// Bytes of the copy; where the room in the buffer begins, and how much it is.
    history: usize,
    start: usize,
    len: usize,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: what is told is the buffer's, or what `dst` tells of bytes before.
unsafe impl<D: Room> Room for Written<'_, D> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.start + self.len
    }

    #[inline(always)]
    unsafe fn find(&self, at: usize) -> (*mut u8, usize) {
        debug_assert!(at < self.len());
        if at + self.history >= self.start {
            let place = at + self.history - self.start;
            // SAFETY: the buffer has room for the copy and what is behind.
            return (unsafe { self.buffer.add(place) }, self.history + self.len - place);
        }
        // SAFETY: it is before the position that it begins at, which is one of `dst`.
        let (there, left) = unsafe { self.dst.find(at) };
        (there, left.min(self.start - at))
    }
}

const _: () = assert!(READ > SLACK && WRITTEN > SLACK);

/// Asks for the first lines of a piece, which no processor foresees; those behind are.
#[inline(always)]
pub(crate) fn fetch(piece: &[u8]) {
    for line in 0..LINES {
        prefetch(piece, line * 64);
    }
}
