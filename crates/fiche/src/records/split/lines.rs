//! Lines, and pieces of one length.

use super::{Found, Splitter};
use crate::error::Result;

/// Lines without names: nothing of them is kept.
#[derive(Default)]
pub(super) struct Lines {
    start: u64,
    pos: u64,
}

impl Splitter for Lines {
    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        for at in memchr::memchr_iter(b'\n', bytes) {
            let end = self.pos + at as u64 + 1;
            found.push(Found { range: self.start..end, ..Found::default() });
            self.start = end;
        }
        self.pos += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        if self.pos > self.start {
            found.push(Found { range: self.start..self.pos, ..Found::default() });
        }
        Ok(())
    }
}

/// Pieces of one length.
pub(super) struct Fixed {
    len: u64,
    start: u64,
    pos: u64,
}

impl Fixed {
    pub fn new(len: u64) -> Fixed {
        Fixed { len, start: 0, pos: 0 }
    }
}

impl Splitter for Fixed {
    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        self.pos += bytes.len() as u64;
        while self.pos - self.start >= self.len {
            found.push(Found { range: self.start..self.start + self.len, ..Found::default() });
            self.start += self.len;
        }
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        if self.pos > self.start {
            found.push(Found { range: self.start..self.pos, ..Found::default() });
        }
        Ok(())
    }
}
