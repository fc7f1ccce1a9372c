//! What a volume is stored on.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use crate::error::{Error, Result};
use crate::lock::lock;

/// What a volume is stored on: bytes that can be read and written anywhere, from any thread. A write may be lost, or
/// be there in parts of 512 bytes, until [`sync`](Device::sync) has returned.
pub trait Device: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// Those of the system, as everywhere here.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buf` with the bytes at `pos`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when they pass the end.
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at `pos`; the device becomes longer where they pass its end.
    ///
    /// # Errors
    /// Those of the system.
    fn write_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes room for bytes, so that writing them does not fail for want of it; the device becomes longer where they pass its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is none.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives back the room of bytes that nobody needs any more: they may be read as zeros from then on, or as what they were. The length
    /// stays.
    ///
    /// # Errors
    /// Those of the system; that nothing can be given back is none.
    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let _ = range;
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of the system. What was written before may be lost then, and a second call does not bring it back.
    fn sync(&self) -> io::Result<()>;

    /// True when there is nothing on it.
    ///
    /// # Errors
    /// Those of the system.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

/// A file, or a block device, of the system. Nobody else can open it as one as long as it is open.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    is_file: bool,
    len: u64,
}

impl FileDevice {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// [`Error::Busy`] when it is open elsewhere, [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::new(OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// [`Error::Io`], also when there is one.
    pub fn create(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::new(OpenOptions::new().read(true).write(true).create_new(true).open(path)?)
    }

    /// Opens a file that is there for reading alone, whoever has it open: for a [`Snapshot`](crate::volume::Snapshot).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read_only(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileDevice::of(File::open(path)?)
    }

    fn new(file: File) -> Result<FileDevice> {
        let device = FileDevice::of(file)?;
        lock(&device.file)?;
        Ok(device)
    }

    fn of(mut file: File) -> Result<FileDevice> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Error::invalid("this is a directory, not a volume"));
        }
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(FileDevice { file, is_file: meta.is_file(), len })
    }
}

impl Device for FileDevice {
    fn len(&self) -> io::Result<u64> {
        if self.is_file { self.file.metadata().map(|meta| meta.len()) } else { Ok(self.len) }
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, pos)
    }

    fn write_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, pos)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        if !self.is_file {
            return match range.end <= self.len {
                true => Ok(()),
                false => Err(io::ErrorKind::StorageFull.into()),
            };
        }
        let len = range.end - range.start;
        match fallocate(&self.file, FallocateFlags::empty(), range.start, len) {
            // Where it cannot be made sure of, the length is all.
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < range.end => {
                self.file.set_len(range.end)
            }
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A block device is always as long as it is: on an empty one the first MiB is zero.
    fn is_empty(&self) -> io::Result<bool> {
        if self.is_file {
            return self.len().map(|len| len == 0);
        }
        let mut start = vec![0; (1 << 20).min(self.len) as usize];
        self.read_at(0, &mut start)?;
        Ok(start.iter().all(|&byte| byte == 0))
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, how, range.start, range.end - range.start) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
