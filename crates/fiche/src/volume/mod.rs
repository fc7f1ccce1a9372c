//! A block device that can be written, compresses what it holds, and loses nothing that was flushed.
//!
//! Everything that is written is appended to a log, packed into fragments: a block that is written again is
//! another fragment, and the map leads there from then on. There is no other journal: the log is one, so
//! one barrier makes data and map durable together. Segments that hold little that is still needed are cleaned: that is
//! appended again, and the segment is free.
//!
//! After ZBD (Makatos and others, *ZBD: Using transparent compression at the block level to increase storage space
//! efficiency*, 2010): remapping on write, extents as the unit of writing, a map in two levels (which extent, and where in it)
//! of which the first is in memory as far as it is needed, a cleaner with watermarks. Other than there a read takes
//! the bytes of one unit, not the whole extent, and no memory that outlasts a power cut is needed.
//!
//! ```
//! use fiche::volume::{FileDevice, Options, Volume};
//! use fiche::{ReadAt, WriteAt};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("disk.fiche");
//!
//! let volume = Volume::create(FileDevice::create(&path)?, Options::new(64 << 20))?;
//! volume.write_at(5000, b"anywhere")?;
//! volume.flush()?;
//! drop(volume);
//!
//! let volume = Volume::open(FileDevice::open(&path)?)?;
//! let mut piece = [0; 8];
//! volume.read_at(5000, &mut piece)?;
//! assert_eq!(&piece, b"anywhere");
//! # Ok::<(), fiche::Error>(())
//! ```
//!
//! What was not flushed before a crash is there up to some write and not from there on. A device that fails to
//! write or to flush poisons the volume: reads go on, and it is to be opened again for more.

mod check;
mod clean;
mod clones;
mod describe;
mod device;
mod dictionary;
mod flush;
pub(crate) mod format;
mod log;
mod map;
mod open;
mod pack;
mod read;
mod repair;
mod room;
mod snapshot;
mod space;
mod stats;
mod tend;
mod train;
mod unit;
mod write;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

pub use check::Checked;
pub use clones::{CloneInfo, WritableClone};
pub use describe::{Description, describe};
pub use device::{Device, FileDevice};
pub use open::{OpenOptions, Options};
pub use repair::Repaired;
pub use snapshot::{Snapshot, SnapshotInfo};
pub use stats::{Stats, Times};
pub use tend::Tended;

use crate::codec::Scratch;
use crate::error::{Error, Result};
use crate::io::{ReadAt, WriteAt, within};
use crate::volume::dictionary::Dictionaries;
use crate::volume::flush::Flushes;
use crate::volume::format::BLOCK;
use crate::volume::log::{Log, Storing};
use crate::volume::map::Map;
use crate::volume::read::View;
use crate::volume::stats::Counts;
use crate::volume::tend::Tender;
use crate::volume::unit::Packing;

/// A volume that is open: a device of a fixed length. Any number of threads may read, write and flush at once.
///
/// A read decodes the units that have its blocks, and reads their bytes only. A write is compressed by the thread that
/// calls, and by others where it is long; appending to the log is one after the other.
pub struct Volume {
    device: Box<dyn Device>,
    /// As many as the map has, and the last superblock says.
    blocks: AtomicU64,
    /// Length of a segment, as a power of two.
    bits: u8,
    packing: Packing,
    dictionaries: Dictionaries,
    /// Whether new ones may be trained.
    trains: bool,
    /// Bytes of the map in memory, at most.
    memory: u64,
    log: Mutex<Log>,
    view: View,
    /// Extents and superblocks that were written since it was opened.
    appended: AtomicU64,
    /// Held by all who write: alone by those who write a part of a block, which is to be read before.
    parts: RwLock<()>,
    flushes: Flushes,
    tender: Mutex<Tender>,
    storing: Storing,
    counts: Counts,
    is_poisoned: AtomicBool,
    scratches: Mutex<Vec<Work>>,
}

/// What a thread reads and writes with.
#[derive(Default)]
struct Work {
    scratch: Scratch,
    stored: Vec<u8>,
    room: Vec<u8>,
    together: Vec<u8>,
}

/// What [`Flushes`] waits with; a test that tries all orders has its own.
mod sync {
    pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}

/// What was locked, also when somebody who held it panicked: nothing is left half done in there that matters.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Volume {
    /// Runs with what a thread needs, which is kept for others.
    fn with_work<O>(&self, run: impl FnOnce(&mut Work) -> O) -> O {
        let mut work = locked(&self.scratches).pop().unwrap_or_default();
        let done = run(&mut work);
        locked(&self.scratches).push(work);
        done
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        locked(&self.view.map)
    }

    /// How many bytes from `offset` on lead nowhere, or somewhere: of what begins at a block of a view, and has so many.
    fn run_in(&self, view: &View, (first, len): (u64, u64), offset: u64) -> Result<(u64, bool)> {
        within(offset, 1, len)?;
        let (load, block) = (self.load(), BLOCK as u64);
        let (blocks, is_zero) = locked(&view.map).run(first + offset / block, &load)?;
        let end = ((offset / block + blocks) * block).min(len);
        Ok((end - offset, is_zero))
    }

    /// How units are packed now, at this level.
    fn packing(&self, level: i32) -> Packing {
        Packing { level, with: self.dictionaries.with(level), ..self.packing.clone() }
    }

    fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    fn check_poison(&self) -> Result<()> {
        match self.is_poisoned.load(Ordering::Acquire) {
            true => Err(Error::Poisoned),
            false => Ok(()),
        }
    }

    /// Makes durable what was written up to now. All barriers go one after the other: the system tells an error only once.
    fn barrier(&self) -> Result<()> {
        let appended = || self.appended.load(Ordering::Acquire);
        let sync = || {
            self.counts.barriers.add(1);
            self.device.sync()
        };
        let flushed = self.flushes.wait_for(appended(), appended, sync);
        flushed.map_err(|error| error.map_or(Error::Poisoned, |error| self.poison(error)))
    }

    /// What the device said when it failed to write: nothing is written from here on.
    fn poison(&self, error: std::io::Error) -> Error {
        self.is_poisoned.store(true, Ordering::Release);
        error.into()
    }
}

impl ReadAt for Volume {
    fn len(&self) -> u64 {
        self.blocks() * BLOCK as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len())?;
        let len = buf.len() as u64;
        self.counts
            .reads
            .run(len, || self.with_work(|work| self.read(&self.view, offset, buf, work)))
    }

    fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
        self.run_in(&self.view, (0, self.len()), offset)
    }
}

impl WriteAt for Volume {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_span(self.span(), offset, bytes)
    }

    fn zero_at(&self, offset: u64, len: u64) -> Result<()> {
        self.zero_span(self.span(), offset, len, true)
    }

    fn discard_at(&self, offset: u64, len: u64) -> Result<()> {
        self.zero_span(self.span(), offset, len, false)
    }

    fn flush(&self) -> Result<()> {
        self.check_poison()?;
        self.counts.flushes.run(0, || self.barrier())
    }
}

impl Drop for Volume {
    /// Stores the map, so that the next opening need not read the log. What was not flushed may be lost if that fails, as
    /// in a crash.
    fn drop(&mut self) {
        if self.check_poison().is_ok() {
            let _ = self.close();
        }
    }
}
