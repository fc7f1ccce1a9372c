//! Splits content into records while it is written.

use std::io::{Read, Write};
use std::ops::Range;

use crate::archive::writer::Writer;
use crate::error::{Error, Result};
use crate::io::from_io;
#[cfg(feature = "zlib")]
use crate::io::into_io;
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
    /// [`Error::Invalid`] when it is no WARC or tar file, or a record is open;
    /// [`Error::Limit`]; [`Error::Io`].
    pub fn add_records(
        &mut self,
        split: &Split,
        content: &mut dyn Read,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Range<u64>> {
        self.check()?;
        if self.is_open() {
            return Err(Error::invalid("a record is begun before the last one has ended"));
        }
        let first = self.next_record();
        let base = self.offset();
        let mut content = Counted { inner: content, progress, stopped: None };
        let result = match split {
            Split::Warc => gunzipped(&mut content, &mut |content| self.split(split, base, content)),
            _ => self.split(split, base, &mut content),
        };
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
                Err(error) => return Err(from_io(error)),
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

/// A gzip stream, whose damage is told from errors of the system.
#[cfg(feature = "zlib")]
struct Gunzipped<R: Read>(flate2::read::MultiGzDecoder<R>);

#[cfg(feature = "zlib")]
impl<R: Read> Read for Gunzipped<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        self.0.read(buf).map_err(|error| match error.kind() {
            InvalidData | InvalidInput | UnexpectedEof => {
                into_io(Error::invalid(format!("this gzip stream is damaged: {error}")))
            }
            _ => error,
        })
    }
}

/// Gives what `content` holds, decompressed if it is gzipped, in one stream or a stream a record.
fn gunzipped(
    content: &mut dyn Read,
    with: &mut dyn FnMut(&mut dyn Read) -> Result<()>,
) -> Result<()> {
    let mut content = content;
    let mut start = Vec::new();
    Read::by_ref(&mut content).take(2).read_to_end(&mut start)?;
    let is_gzip = start == [0x1F, 0x8B];
    let mut whole = start.as_slice().chain(content);
    if !is_gzip {
        return with(&mut whole);
    }
    #[cfg(feature = "zlib")]
    return with(&mut Gunzipped(flate2::read::MultiGzDecoder::new(whole)));
    #[cfg(not(feature = "zlib"))]
    Err(Error::Unsupported { what: "gzip, which this build leaves out, as codec", found: 2 })
}
