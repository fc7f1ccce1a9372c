//! Files that are added to in place, and are valid at every moment.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::envelope::{Container, GUARD_POS, TRAILER_LEN, ends_with_trailer, guard, read_header};
use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt};
use crate::lock::lock;

const BUFFER: usize = 1 << 20;
/// What a device writes as a whole or not at all.
pub(crate) const SECTOR: u64 = 512;

/// The end of a file that is being added to. Its length is noted in its header and made durable before anything is written behind it, and a
/// reader that finds no whole end reads up to there. Dropped before it is finished, the file is cut back to what it was; a crash leaves
/// the old file, and whoever appends next removes what is behind it.
#[must_use = "what was added counts only when this is finished"]
#[derive(Debug)]
pub struct Appending {
    locked: Locked,
    /// Who began: a child of it has the same file, and leaves it alone.
    process: u32,
    /// Bytes of the file before, and those that are written.
    before: u64,
    written: u64,
    /// What is yet to be written; the last of it, a trailer, when all before it is on the device.
    buffer: Vec<u8>,
    is_whole: bool,
}

/// A file that one adds to, which nobody else then does.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    path: PathBuf,
}

impl Locked {
    /// # Errors
    /// [`Error::Busy`] when another process is appending to it; [`Error::Io`] with the path.
    pub fn open(path: &Path) -> Result<Locked> {
        let at = |error: std::io::Error| Error::io_at(path, error);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(at)?;
        lock(&file).map_err(|error| match error {
            Error::Io(error) => at(error),
            other => other,
        })?;
        // It may have been replaced after it was opened.
        let locked = Locked { file, path: std::path::absolute(path).map_err(at)? };
        locked.check()?;
        Ok(locked)
    }

    /// What is there before.
    pub fn source(&self) -> Result<FileSource> {
        FileSource::new(self.file.try_clone()?)
    }

    /// Whether its name is still that of this file: what is added to one that was replaced would be lost without a word.
    fn check(&self) -> Result<()> {
        let own = self.file.metadata()?;
        let there = self.path.metadata().map_err(|error| Error::io_at(&self.path, error))?;
        match (own.dev(), own.ino()) == (there.dev(), there.ino()) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{} was replaced while it was appended to: nothing was added to either",
                self.path.display()
            ))),
        }
    }
}

/// Reads what a file that may have been appended to says at its end: `read` gets its length, which is what it was before an append that
/// was cut off (or goes on). Returns that, too.
pub(crate) fn read_end<T>(
    source: &dyn ReadAt,
    container: Container,
    read: impl Fn(u64) -> Result<T>,
) -> Result<(u64, T)> {
    let len = source.len();
    if source.as_distant().is_some()
        && let Ok(whole) = read(len)
    {
        // The end says all that is needed of the beginning, which would be waited for.
        return Ok((len, whole));
    }
    let header = read_header(source, container)?;
    let found = match (read(len), header.guard) {
        (Ok(whole), _) => (len, whole),
        // With a trailer at its end the append was not cut off: what is damaged then must not be taken for what never was.
        (Err(_), Some(guard)) if guard < len && !ends_with_trailer(source)? => {
            (guard, read(guard)?)
        }
        (Err(error), _) => return Err(error),
    };
    header.valid?;
    Ok(found)
}

/// How many bytes at the end of a file of so many are yet to be written when all before them is made durable, step by step. A trailer that
/// begins in one sector and ends in the next takes a step for each: were its end there without its beginning after a crash, the file
/// would look like one that is whole, and damaged, which is no reason to go back to what it was.
pub(crate) fn held_back(end: u64) -> impl Iterator<Item = usize> {
    let into = end % SECTOR;
    let second = (into != 0 && into < TRAILER_LEN).then_some(into);
    [Some(TRAILER_LEN), second, Some(0)].into_iter().flatten().map(|last| last as usize)
}

impl Appending {
    /// Begins behind byte `before` of a file that was locked; what is there is cut off.
    pub(crate) fn new(locked: Locked, before: u64) -> Result<Appending> {
        let file = &locked.file;
        file.set_len(before)?;
        file.write_all_at(&guard(before), GUARD_POS)?;
        file.sync_all()?;
        let process = std::process::id();
        Ok(Appending {
            locked,
            process,
            before,
            written: before,
            buffer: Vec::new(),
            is_whole: false,
        })
    }

    /// Bytes of the file with what was added so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes what is pending but for the last so many bytes.
    fn write_but(&mut self, last: usize) -> std::io::Result<()> {
        let now = self.buffer.len().saturating_sub(last);
        self.locked.file.write_all_at(&self.buffer[..now], self.written)?;
        self.written += now as u64;
        self.buffer.drain(..now);
        Ok(())
    }

    /// Makes what was added count, and durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file was replaced meanwhile, and in another process than that which began; [`Error::Io`]. Then the file is what it was.
    pub fn finish(mut self) -> Result<()> {
        if self.process != std::process::id() {
            return Err(Error::invalid("another process appends to this file"));
        }
        self.locked.check()?;
        // The trailer is what makes the new file: all it leads to must be on
        // the device before it, or a crash could keep the one without the other.
        for last in held_back(self.end()) {
            self.write_but(last)?;
            self.locked.file.sync_all()?;
        }
        self.is_whole = true;
        // It counts. A guard that stays is that of a file that has a whole end.
        let _ = self.clear();
        Ok(())
    }

    /// Cuts the file back to what it was.
    fn cut(&self) -> Result<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        // Nothing behind the old end means anything: the guard says so until it is gone.
        self.locked.file.set_len(self.before)?;
        self.locked.file.sync_all()?;
        self.clear()
    }

    fn clear(&self) -> Result<()> {
        self.locked.file.write_all_at(&guard(0), GUARD_POS)?;
        Ok(self.locked.file.sync_all()?)
    }
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > BUFFER {
            self.write_but(TRAILER_LEN as usize)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        if !self.is_whole {
            // Where that fails the guard stays, and the file is what it was all the same.
            let _ = self.cut();
        }
    }
}
