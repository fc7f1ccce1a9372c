//! The contract of everything readable, and the plainest things that keep it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::wire::Digest;

/// A fixed sequence of bytes that can be read at any offset, from any thread.
///
/// ```
/// use fiche::ReadAt;
///
/// let source: &dyn ReadAt = &b"hello, world".to_vec();
/// let mut piece = [0; 5];
/// source.read_at(7, &mut piece)?;
/// assert_eq!(&piece, b"world");
/// # Ok::<(), fiche::Error>(())
/// ```
pub trait ReadAt: Send + Sync {
    /// Length in bytes; constant for the life of the value.
    fn len(&self) -> u64;

    /// Fills `buf` with the bytes at `offset..offset + buf.len()`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the range passes the end; on any error the
    /// contents of `buf` are unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills every buffer; implementations may reorder, merge or run them at
    /// once. One result per read, in the order of the reads.
    fn read_many_at(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        reads.iter_mut().map(|(offset, buf)| self.read_at(*offset, buf)).collect()
    }

    /// How many bytes from `offset` on are alike: known to be zero, or not. At least one, and possibly fewer than there are.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] at the end; those of reading.
    fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
        within(offset, 1, self.len()).map(|_| (self.len() - offset, false))
    }

    /// All the bytes, where they lie in memory already: spares a copy.
    fn as_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// The same source, where each read waits for something far away.
    fn as_distant(&self) -> Option<&dyn Distant> {
        None
    }

    /// True when there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A device of a fixed length that can be written at any offset, from any thread: what a volume offers. A write is one
/// step: whatever is read is from before it or from behind it, for each block by itself. What was written
/// stays over a crash once [`flush`](WriteAt::flush) returned, and of what was not yet flushed the
/// first writes stay, in their order, as many as there was time for.
pub trait WriteAt: ReadAt {
    /// Puts `bytes` in place of those at `offset..offset + bytes.len()`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the range passes the end, [`Error::Io`] when there is no room
    /// ([`io::ErrorKind::StorageFull`]) or the device fails, [`Error::Poisoned`] once it failed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes the bytes in a range zero, and gives back what they took.
    ///
    /// # Errors
    /// Those of [`write_at`](WriteAt::write_at).
    fn zero_at(&self, offset: u64, len: u64) -> Result<()>;

    /// Says that the bytes in a range are not needed any more. They may then be anything; here they become zero where whole
    /// blocks are in the range.
    ///
    /// # Errors
    /// Those of [`write_at`](WriteAt::write_at).
    fn discard_at(&self, offset: u64, len: u64) -> Result<()>;

    /// Makes all durable that was written before.
    ///
    /// # Errors
    /// [`Error::Io`] when the device fails, and [`Error::Poisoned`] from then on.
    fn flush(&self) -> Result<()>;
}

/// A source that is far away: each read waits, however short it is, and what is read together waits once.
pub trait Distant: ReadAt {
    /// Fetches these ranges, so that reads within them do not wait if they come soon; merges them, and asks
    /// for several at a time. What cannot be fetched is left to the reads, which say why.
    fn fetch(&self, ranges: &[Range<u64>]);

    /// True for a range of which every byte is at hand.
    fn has(&self, range: Range<u64>) -> bool;
}

/// Finds the other files that a file names: an external dictionary, the parts
/// of an archive.
pub trait Resolve: Send + Sync {
    /// Opens the file of this name if its content has this digest.
    ///
    /// # Errors
    /// [`Error::Missing`] when it is not there or is another one.
    fn open(&self, name: &str, digest: &Digest) -> Result<Arc<dyn ReadAt>>;
}

/// The files of a folder, by their names in it.
///
/// ```
/// use std::sync::Arc;
/// use fiche::InFolder;
/// use fiche::archive::OpenOptions;
///
/// // Dictionary files beside the archive are found by their names.
/// let options = OpenOptions::default().resolve(Arc::new(InFolder::new("/srv/archives")));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct InFolder {
    folder: std::path::PathBuf,
}

impl InFolder {
    /// Those of this folder.
    pub fn new(folder: impl Into<std::path::PathBuf>) -> InFolder {
        InFolder { folder: folder.into() }
    }
}

impl Resolve for InFolder {
    /// The file of this name. What it holds is for the caller to check; a name that leads out
    /// of the folder is missing.
    fn open(&self, name: &str, digest: &Digest) -> Result<Arc<dyn ReadAt>> {
        let missing = || Error::Missing { what: "dictionary", digest: *digest };
        if name.contains('/') || name == ".." || name.contains('\0') {
            return Err(missing());
        }
        match FileSource::open(self.folder.join(name)) {
            Ok(source) => Ok(Arc::new(source)),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
            Err(error) => Err(error),
        }
    }
}

/// The range as asked, if it lies within `len` bytes.
pub(crate) fn within(offset: u64, wanted: usize, len: u64) -> Result<Range<u64>> {
    match offset.checked_add(wanted as u64) {
        Some(end) if end <= len => Ok(offset..end),
        end => Err(Error::OutOfBounds { range: offset..end.unwrap_or(u64::MAX), len }),
    }
}

macro_rules! read_at_by_deref {
    ($($type:ty),*) => {$(
        impl<T: ReadAt + ?Sized> ReadAt for $type {
            fn len(&self) -> u64 {
                (**self).len()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(offset, buf)
            }
            fn read_many_at(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
                (**self).read_many_at(reads)
            }
            fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
                (**self).run_at(offset)
            }

            fn as_bytes(&self) -> Option<&[u8]> {
                (**self).as_bytes()
            }
            fn as_distant(&self) -> Option<&dyn Distant> {
                (**self).as_distant()
            }
        }
    )*};
}
read_at_by_deref!(Arc<T>, Box<T>, &T);

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), ReadAt::len(self))?;
        buf.copy_from_slice(&self[range.start as usize..range.end as usize]);
        Ok(())
    }
    fn as_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.as_slice().read_at(offset, buf)
    }
    fn as_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A file, read by positioned reads. Its length is taken once, at opening: a
/// file that is cut later gives an error of kind `UnexpectedEof`, never a signal.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
}

impl FileSource {
    /// Opens the file at this path for reading.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened, [`Error::Invalid`] when it is a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<FileSource> {
        FileSource::new(File::open(path)?)
    }

    /// Takes a file that is open already.
    ///
    /// # Errors
    /// [`Error::Io`] when its length cannot be had, [`Error::Invalid`] when it is
    /// a directory or a pipe, which cannot be read at any offset.
    pub fn new(mut file: File) -> Result<FileSource> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Error::invalid("this is a directory, not a file"));
        }
        let len = if meta.is_file() {
            meta.len()
        } else {
            // A block device says its size only to a seek; a pipe has none.
            let what = "this is a pipe or a device, which cannot be read at any offset";
            file.seek(SeekFrom::End(0)).map_err(|_| Error::invalid(what))?
        };
        Ok(FileSource { file, len })
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len)?;
        Ok(std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)?)
    }
}

/// A part of a source, itself a source.
#[derive(Clone, Debug)]
pub struct Span<S> {
    source: S,
    range: Range<u64>,
}

impl<S: ReadAt> Span<S> {
    /// The bytes of `source` in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the range passes the end or is reversed.
    pub fn new(source: S, range: Range<u64>) -> Result<Span<S>> {
        if range.start > range.end || range.end > source.len() {
            return Err(Error::OutOfBounds { range, len: source.len() });
        }
        Ok(Span { source, range })
    }
}

impl<S: ReadAt> ReadAt for Span<S> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len())?;
        self.source.read_at(self.range.start + offset, buf)
    }
    fn as_bytes(&self) -> Option<&[u8]> {
        self.source.as_bytes()?.get(self.range.start as usize..self.range.end as usize)
    }
    fn as_distant(&self) -> Option<&dyn Distant> {
        self.source.as_distant().map(|_| self as &dyn Distant)
    }
}

impl<S: ReadAt> Distant for Span<S> {
    fn fetch(&self, ranges: &[Range<u64>]) {
        let inner = |at: u64| self.range.start.saturating_add(at).min(self.range.end);
        let ranges: Vec<Range<u64>> =
            ranges.iter().map(|range| inner(range.start)..inner(range.end)).collect();
        if let Some(source) = self.source.as_distant() {
            source.fetch(&ranges);
        }
    }

    fn has(&self, range: Range<u64>) -> bool {
        let start = self.range.start;
        self.source.as_distant().is_some_and(|s| s.has(start + range.start..start + range.end))
    }
}

/// A source with a place in it: gives any [`ReadAt`] the standard library's
/// [`Read`] and [`Seek`].
///
/// ```
/// use std::io::Read;
///
/// let mut text = String::new();
/// fiche::Cursor::new(b"any source".to_vec()).read_to_string(&mut text)?;
/// assert_eq!(text, "any source");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cursor<S> {
    source: S,
    offset: u64,
}

impl<S: ReadAt> Cursor<S> {
    /// Starts at the first byte.
    pub fn new(source: S) -> Cursor<S> {
        Cursor { source, offset: 0 }
    }
}

impl<S: ReadAt> Read for Cursor<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.offset);
        let len = (buf.len() as u64).min(left) as usize;
        self.source.read_at(self.offset, &mut buf[..len]).map_err(into_io)?;
        self.offset += len as u64;
        Ok(len)
    }
}

impl<S: ReadAt> Seek for Cursor<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.source.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
        };
        self.offset = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

/// Our error inside the standard library's, for its traits; `Error::from` takes it out again.
pub(crate) fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::Corrupt { .. } => io::Error::new(io::ErrorKind::InvalidData, error),
        Error::OutOfBounds { .. } => io::Error::new(io::ErrorKind::UnexpectedEof, error),
        other => io::Error::other(other),
    }
}
