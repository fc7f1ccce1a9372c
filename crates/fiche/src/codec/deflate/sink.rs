//! What takes what is decoded: a buffer, one that takes notes of what is copied, or symbols without their content.

use super::inflate::WINDOW;

/// What takes what is decoded.
pub(super) trait Sink {
    /// Bytes that there is room for.
    fn room(&self) -> usize;
    /// Bytes that a match can copy from.
    fn reach(&self) -> usize;
    fn literal(&mut self, byte: u8);
    fn literals(&mut self, bytes: &[u8]);
    /// No more than there is room for, from no further than the reach.
    fn copy(&mut self, len: usize, distance: usize);
    /// Bytes of a stored block that are taken at once.
    fn at_once(&self) -> usize {
        self.room()
    }
    /// The bytes of a sink that is nothing else, and where they go on.
    fn buffer(&mut self) -> Option<(&mut [u8], &mut usize)> {
        None
    }
}

/// A buffer that is filled from `at` on; what is before that is the window.
pub(super) struct Buffer<'a> {
    pub out: &'a mut [u8],
    pub at: usize,
}

impl Sink for Buffer<'_> {
    #[inline(always)]
    fn room(&self) -> usize {
        self.out.len().saturating_sub(self.at)
    }

    #[inline(always)]
    fn reach(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    fn literals(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline(always)]
    fn copy(&mut self, len: usize, distance: usize) {
        let (start, end) = (self.at - distance, self.at + len);
        // What repeats is there once at first, then twice, and so on.
        while self.at < end {
            let step = (self.at - start).min(end - self.at);
            self.out.copy_within(start..start + step, self.at);
            self.at += step;
        }
    }

    fn buffer(&mut self) -> Option<(&mut [u8], &mut usize)> {
        Some((self.out, &mut self.at))
    }
}

/// A buffer, and notes of what is copied from before a place in it.
pub(super) struct Marking<'a> {
    pub buffer: Buffer<'a>,
    pub marks: &'a mut Marks,
    /// Where in the buffer that place is.
    pub start: usize,
}

impl Sink for Marking<'_> {
    fn room(&self) -> usize {
        self.buffer.room()
    }
    fn reach(&self) -> usize {
        self.buffer.reach()
    }
    fn literal(&mut self, byte: u8) {
        self.buffer.literal(byte);
    }
    fn literals(&mut self, bytes: &[u8]) {
        self.buffer.literals(bytes);
    }
    fn copy(&mut self, len: usize, distance: usize) {
        let from = self.buffer.at - distance;
        let to = (from + len).min(self.start);
        if from < to {
            self.marks.note(self.start - from, to - from);
        }
        self.buffer.copy(len, distance);
    }
}

/// What takes the symbols of a stream without what they mean: literals, and copies from so far back.
pub(crate) trait Tokens {
    /// Nothing more is taken now.
    fn is_full(&self) -> bool;
    /// Bytes of a stored block that are taken at once, above 0 where it is not full.
    fn at_once(&self) -> usize {
        STORED
    }
    /// Bytes that were before this one.
    fn at(&self) -> usize;
    fn literal(&mut self, byte: u8);
    fn literals(&mut self, bytes: &[u8]);
    fn copy(&mut self, len: usize, distance: usize);
}

/// Bytes of a stored block that are handed over at once.
const STORED: usize = 1 << 10;

/// Takes tokens as if they were content.
pub(super) struct Symbols<'a, T>(pub &'a mut T);

impl<T: Tokens> Sink for Symbols<'_, T> {
    fn room(&self) -> usize {
        if self.0.is_full() { 0 } else { STORED }
    }
    fn at_once(&self) -> usize {
        if self.0.is_full() { 0 } else { self.0.at_once() }
    }
    fn reach(&self) -> usize {
        self.0.at()
    }
    fn literal(&mut self, byte: u8) {
        self.0.literal(byte);
    }
    fn literals(&mut self, bytes: &[u8]) {
        self.0.literals(bytes);
    }
    fn copy(&mut self, len: usize, distance: usize) {
        self.0.copy(len, distance);
    }
}

/// Which bytes of a window matches copy from.
#[derive(Clone)]
pub(crate) struct Marks(Box<[bool; WINDOW]>);

impl Default for Marks {
    fn default() -> Marks {
        Marks(Box::new([false; WINDOW]))
    }
}

impl Marks {
    /// Notes bytes of the window, the first of them `distance` before its end.
    fn note(&mut self, distance: usize, len: usize) {
        let from = WINDOW.saturating_sub(distance);
        let to = (from + len).min(WINDOW);
        self.0[from..to].fill(true);
    }

    /// Clears what nothing is copied from in the last bytes before a place, and cuts off what is before all
    /// others.
    pub fn clear<'w>(&self, window: &'w mut [u8]) -> &'w mut [u8] {
        let skip = WINDOW - window.len();
        let marks = &self.0[skip..];
        for (byte, is_used) in window.iter_mut().zip(marks) {
            if !is_used {
                *byte = 0;
            }
        }
        let first = marks.iter().position(|&is_used| is_used).unwrap_or(window.len());
        &mut window[first..]
    }
}
