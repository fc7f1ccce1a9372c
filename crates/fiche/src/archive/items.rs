//! Splits content into records while it is written.

use std::io::{Read, Write};
use std::ops::Range;

use crate::archive::writer::Writer;
use crate::error::{Error, Result};
use crate::records::{Entry, Found, Kind, Split};

impl<W: Write> Writer<W> {
    /// Adds content that is split into records, each of which becomes one of kind
    /// [`Kind::Item`]; gzipped WARC files are decompressed first. Returns the numbers of
    /// the records. `progress` is told bytes as they are read, and may stop it with an error.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use fiche::ReadAt;
    /// use fiche::archive::{Options, Reader, Split, Writer};
    ///
    /// let log = "{\"id\": \"a\"}\n{\"id\": \"b\"}\n";
    /// let mut writer = Writer::new(Vec::new(), Options::default())?;
    /// writer.add_records(&Split::Json("id".into()), &mut log.as_bytes(), &mut |_bytes| Ok(()))?;
    /// let reader = Reader::open(Arc::new(writer.finish()?))?;
    /// let line = reader.record("b")?;
    /// assert_eq!((line.number(), line.len()), (1, 12));
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no WARC or tar file, a record is open, or pieces have no bytes;
    /// [`Error::Limit`]; [`Error::Io`].
    pub fn add_records(
        &mut self,
        split: &Split,
        content: &mut dyn Read,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Range<u64>> {
        self.check()?;
        split.check()?;
        if self.is_open() {
            return Err(Error::invalid("a record is begun before the last one has ended"));
        }
        let first = self.next_record();
        let base = self.offset();
        let mut content = Counted { inner: content, progress, stopped: None };
        let result =
            split.plain(&mut content).and_then(|mut plain| self.split(split, base, &mut plain));
        if let Some(error) = content.stopped {
            return Err(error);
        }
        result.map(|()| first..self.next_record())
    }

    fn split(&mut self, split: &Split, base: u64, content: &mut dyn Read) -> Result<()> {
        let (mut splitter, mut found) = (split.splitter(), Vec::new());
        let mut buf = vec![0; 256 << 10];
        loop {
            let len = match content.read(&mut buf) {
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            match len {
                0 => splitter.end(&mut found)?,
                _ => splitter.take(&buf[..len], &mut found)?,
            }
            // Each record is told where it ends, so that blocks can end there.
            let mut written = self.offset() - base;
            let mut rest = &buf[..len];
            for Found { range, name, key } in found.drain(..) {
                let (now, later) = rest.split_at(range.end.saturating_sub(written) as usize);
                self.take(now)?;
                (rest, written) = (later, written + now.len() as u64);
                let item = Entry::new(name, Kind::Item).key(key);
                self.add_entry(item.range(range.start + base..range.end + base))?;
            }
            self.take(rest)?;
            if len == 0 {
                return Ok(());
            }
        }
    }
}

/// Content that is counted as it is read.
struct Counted<'a> {
    inner: &'a mut dyn Read,
    progress: &'a mut dyn FnMut(u64) -> Result<()>,
    /// What stopped it.
    stopped: Option<Error>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.inner.read(buf)?;
        (self.progress)(len as u64).map_err(|error| {
            self.stopped = Some(error);
            std::io::Error::other("stopped")
        })?;
        Ok(len)
    }
}
