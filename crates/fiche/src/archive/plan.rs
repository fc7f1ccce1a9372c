//! What a read will fetch, before it does.

use std::ops::Range;

use crate::archive::decode::has_point_reads;
use crate::archive::reader::{Inner, Reader, kept_at};
use crate::blocks::Block;
use crate::error::{Error, Result};
use crate::io::ReadAt;

impl Reader {
    /// The ranges of the file that reading these ranges of the content would fetch now, in order and apart:
    /// stored blocks, with what lies between neighbours, and dictionaries and models that are needed
    /// and not there yet. What is cached costs nothing, nor what was fetched from far away before. To know them, it loads the tables of the
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
        if let Some(read) = reads.iter().find(|r| r.start > r.end || r.end > self.len()) {
            return Err(Error::OutOfBounds { range: read.clone(), len: self.len() });
        }
        let (mut found, coded) = inner.stored_of(reads)?;
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
        if let Some(distant) = inner.source.as_distant() {
            found.retain(|range| !distant.has(range.clone()));
        }
        Ok(found)
    }
}

impl Inner {
    /// True for a block that is kept, decoded whole or as it is stored.
    pub fn is_at_hand(&self, block: &Block) -> bool {
        if has_point_reads(block) {
            return self.cache.get(kept_at(block)).is_some();
        }
        let cached = self.cache.get(block.number);
        cached.is_some_and(|bytes| bytes.as_slice().len() as u64 == block.len)
    }
}
