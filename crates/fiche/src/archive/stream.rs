//! Ranges of an archive in order, decoded ahead on several threads.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;

use crate::archive::Reader;
use crate::archive::ahead::BATCH;
use crate::error::Result;
use crate::io::ReadAt;
use crate::parallel::Pipeline;

/// Decoded bytes that one thread works on at a time: enough that the block cut
/// in two at either end does not matter, little enough to keep in a core's cache.
const PIECE_LEN: u64 = 512 << 10;

/// A range, its bytes, and whether they could be read.
pub(super) type Piece = (Range<u64>, Vec<u8>, Result<()>);

/// Decodes ranges of an archive ahead, on several threads, and gives them in order.
///
/// Memory: (threads + 3) times the larger of a block and 512 KiB.
///
/// ```
/// # use std::sync::Arc;
/// # use std::io::Write;
/// # use fiche::archive::{Options, Reader, Writer};
/// # let mut writer = Writer::new(Vec::new(), Options::default())?;
/// # writer.write_all(&[7; 100_000])?;
/// # let reader = Reader::open(Arc::new(writer.finish()?))?;
/// let mut copy = Vec::new();
/// for piece in reader.stream(0..100_000, 2)? {
///     let (offset, bytes) = piece?;
///     assert_eq!(offset, copy.len() as u64);
///     copy.extend_from_slice(&bytes);
/// }
/// assert_eq!(copy, [7; 100_000]);
/// # Ok::<(), fiche::Error>(())
/// ```
pub struct Stream {
    reader: Reader,
    pipeline: Pipeline<(Range<u64>, Vec<u8>), Piece>,
    ranges: Box<dyn Iterator<Item = Range<u64>> + Send>,
    now: Range<u64>,
    /// Where the content ends that was fetched from far away.
    fetched: u64,
    spare: Vec<Vec<u8>>,
    ready: VecDeque<Piece>,
}

impl Stream {
    pub(super) fn new(
        reader: Reader,
        ranges: impl Iterator<Item = Range<u64>> + Send + 'static,
        threads: usize,
    ) -> Stream {
        let pipeline = Pipeline::new(threads, || {
            let reader = reader.clone();
            move |(range, mut buf): (Range<u64>, Vec<u8>)| {
                buf.resize((range.end - range.start) as usize, 0);
                let result = reader.read_at(range.start, &mut buf);
                (range, buf, result)
            }
        });
        let (ranges, now) = (Box::new(ranges), 0..0);
        let (spare, ready) = (Vec::new(), VecDeque::new());
        Stream { reader, pipeline, ranges, now, fetched: 0, spare, ready }
    }

    /// The next piece of the ranges: it ends where a block ends, if it can.
    fn next_range(&mut self) -> Option<Range<u64>> {
        while self.now.start >= self.now.end {
            self.now = self.ranges.next()?;
            self.fetched = self.now.start;
        }
        let start = self.now.start;
        if start >= self.fetched {
            // Pieces one by one would wait one by one.
            self.fetched = self.now.end.min(start + BATCH);
            self.reader.inner().fetch(std::slice::from_ref(&(start..self.fetched)));
        }
        let mut end = self.now.end.min(start.saturating_add(PIECE_LEN));
        if end < self.now.end
            && let Ok(block) = self.reader.inner().block_at(end - 1)
        {
            end = self.now.end.min(block.offset + block.len);
        }
        self.now.start = end;
        Some(start..end)
    }

    /// The next piece with its range, whether or not it could be read.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        loop {
            if let Some(done) = self.ready.pop_front() {
                return Some(done);
            }
            match self.next_range() {
                Some(range) => {
                    let buf = self.spare.pop().unwrap_or_default();
                    self.ready.extend(self.pipeline.push((range, buf)));
                }
                None => return self.pipeline.pop(),
            }
        }
    }

    /// Takes back the buffer of a piece that is done with, so that the next one
    /// costs no allocation.
    pub fn recycle(&mut self, buf: Vec<u8>) {
        self.spare.push(buf);
    }

    /// Writes everything that is left to `out`; returns how many bytes.
    ///
    /// # Errors
    /// The first of reading or writing; what came before it has been written.
    pub fn copy_to(mut self, out: &mut dyn Write) -> Result<u64> {
        let mut len = 0;
        while let Some((_, buf, result)) = self.next_piece() {
            result?;
            out.write_all(&buf)?;
            len += buf.len() as u64;
            self.recycle(buf);
        }
        Ok(len)
    }
}

impl Iterator for Stream {
    /// Offset and bytes of a piece.
    type Item = Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (range, buf, result) = self.next_piece()?;
        Some(result.map(|()| (range.start, buf)))
    }
}
