//! A record of an archive, as something to read.

use std::ops::Range;

use crate::archive::reader::Reader;
use crate::error::Result;
use crate::io::{ReadAt, within};
use crate::records::Entry;

/// A record of an archive, itself a source: the holes of a sparse file read as zeros.
#[derive(Clone)]
pub struct Record {
    pub(super) reader: Reader,
    pub(super) number: u64,
    pub(super) entry: Entry,
}

impl Record {
    /// Its number, as it was asked for.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the index says of it; for a hard link, of the file it leads to.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Reads a range block by block, and fills with zeros what is damaged. Returns
    /// the ranges of the record that are lost.
    ///
    /// # Errors
    /// Only [`Error::Io`](crate::Error::Io) and [`Error::OutOfBounds`](crate::Error::OutOfBounds).
    pub fn read_what_is_left(&self, offset: u64, buf: &mut [u8]) -> Result<Vec<Range<u64>>> {
        let range = within(offset, buf.len(), self.len())?;
        let mut lost = Vec::new();
        self.for_each_piece(range, buf, |content, at, part| {
            let gaps = self.reader.read_what_is_left(content, part)?;
            lost.extend(gaps.iter().map(|gap| gap.start - content + at..gap.end - content + at));
            Ok(())
        })?;
        Ok(lost)
    }

    /// Splits a read into the pieces that have content: for each its offset in the
    /// archive, its offset in the record, and its part of the buffer. The rest of
    /// the buffer is filled with zeros.
    fn for_each_piece(
        &self,
        range: Range<u64>,
        buf: &mut [u8],
        mut read: impl FnMut(u64, u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(extents) = &self.entry.extents else {
            return read(self.entry.range.start + range.start, range.start, buf);
        };
        buf.fill(0);
        let mut content = self.entry.range.start;
        for piece in &extents.data {
            let (from, to) = (piece.start.max(range.start), piece.end.min(range.end));
            if from < to {
                let part = &mut buf[(from - range.start) as usize..(to - range.start) as usize];
                read(content + (from - piece.start), from, part)?;
            }
            content += piece.end - piece.start;
        }
        Ok(())
    }
}

impl ReadAt for Record {
    fn len(&self) -> u64 {
        self.entry.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), self.len())?;
        self.for_each_piece(range, buf, |content, _, part| self.reader.read_at(content, part))
    }
}
