//! What a read will fetch, before it does.

use std::ops::Range;

use crate::archive::decode::has_point_reads;
use crate::archive::reader::{Inner, Reader};
use crate::blocks::{Block, Coded};
use crate::error::{Error, Result};
use crate::io::ReadAt;

impl Reader {
    /// The ranges of the file that reading these ranges of the content would fetch now, in order and apart:
    /// stored blocks, with what lies between neighbours, and dictionaries and models that are needed
    /// and not there yet. What is cached costs nothing. To know them, it loads the tables of the
    /// chapters that are touched, and what the file says of its dictionaries.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use fiche::archive::{Options, Reader, Writer};
    /// # use std::io::Write;
    /// # let mut writer = Writer::new(Vec::new(), Options::default())?;
    /// # writer.write_all(&b"rain, ".repeat(20_000))?;
    /// # let reader = Reader::open(Arc::new(writer.finish()?))?;
    /// let ranges = reader.plan(&[5_000..6_000, 90_000..100_000])?;
    /// assert_eq!(ranges.len(), 2);
    /// let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    /// # assert!(bytes < 1000);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when a range passes the end or is reversed; those of loading a table.
    pub fn plan(&self, reads: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let inner = self.inner();
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut coded: Vec<Coded> = Vec::new();
        for read in reads {
            if read.start > read.end || read.end > self.len() {
                return Err(Error::OutOfBounds { range: read.clone(), len: self.len() });
            }
            // Neighbours are fetched at once, with what lies between them.
            let mut last: Option<(usize, Block)> = None;
            let mut offset = read.start;
            while offset < read.end {
                let chapter = inner.chapter_at(offset);
                let block = inner.table(chapter)?.find(offset);
                offset = block.offset + block.len;
                if inner.is_at_hand(&block) {
                    last = None;
                    continue;
                }
                match (&last, found.last_mut()) {
                    (Some((at, before)), Some(range))
                        if *at == chapter && before.number + 1 == block.number =>
                    {
                        range.end = block.end();
                    }
                    _ => found.push(block.pos..block.end()),
                }
                if !coded.contains(&block.coded) {
                    coded.push(block.coded);
                }
                last = Some((chapter, block));
            }
        }
        for coded in coded {
            inner.shared.waiting(coded, &mut found)?;
        }
        found.sort_unstable_by_key(|range| range.start);
        found.dedup_by(|next, range| {
            let is_one = next.start <= range.end;
            if is_one {
                range.end = range.end.max(next.end);
            }
            is_one
        });
        Ok(found)
    }
}

impl Inner {
    /// True for a block that is decoded whole and kept.
    fn is_at_hand(&self, block: &Block) -> bool {
        let cached = self.cache.get(block.number);
        !has_point_reads(block)
            && cached.is_some_and(|bytes| bytes.as_slice().len() as u64 == block.len)
    }
}
