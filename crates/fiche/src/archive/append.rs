//! Adds to an archive in place, and never leaves it worse than it was.

use std::fs::{File, OpenOptions as FileOptions, TryLockError};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::archive::format::Superseded;
use crate::archive::options::Options;
use crate::archive::reader::Reader;
use crate::archive::writer::{Sink, Writer};
use crate::envelope::{GUARD_POS, SectionRef, TRAILER_LEN, guard};
use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt};
use crate::wire::crc32c;

/// The end of an archive that is being added to.
pub struct Appending(BufWriter<File>);

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Adds content and records to the archive at `path`: whatever `add` writes. The
/// blocks that are there stay as they are; new ones may have other options.
///
/// The archive is valid at every moment: its length is noted in its header and made
/// durable before anything is written behind it, and a reader that finds no whole
/// end reads up to there. When anything fails, the file is cut back to what it was.
/// A crash leaves the old archive, and the next append removes what is behind it.
/// Names that are in the archive already are refused.
///
/// ```
/// use std::sync::Arc;
/// use fiche::FileSource;
/// use fiche::archive::{Entry, Options, Reader, Writer, append};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log.fiche");
///
/// let mut writer = Writer::new(std::fs::File::create(&path)?, Options::default())?;
/// writer.add(Entry::data("monday"), &mut "rain".as_bytes())?;
/// writer.finish()?;
/// append(&path, &Options::default(), |writer| {
///     writer.add(Entry::data("tuesday"), &mut "sun".as_bytes()).map(drop)
/// })?;
/// let reader = Reader::open(Arc::new(FileSource::open(&path)?))?;
/// assert_eq!(reader.records(), 2);
/// # Ok::<(), fiche::Error>(())
/// ```
///
/// # Errors
/// Those of opening and of `add`; [`Error::Busy`] when another process is appending
/// to it; [`Error::Io`].
pub fn append(
    path: &Path,
    options: &Options,
    add: impl FnOnce(&mut Writer<Appending>) -> Result<()>,
) -> Result<()> {
    let at = |error: std::io::Error| Error::io_at(path, error);
    let mut file = FileOptions::new().read(true).write(true).open(path).map_err(at)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::Busy { owner: "another process that is appending to it".into() });
        }
        Err(TryLockError::Error(error)) => return Err(at(error)),
    }
    let reader = Reader::open(Arc::new(FileSource::new(file.try_clone()?)?))?;
    let end = reader.inner().end;
    file.set_len(end)?;
    file.write_all_at(&guard(end), GUARD_POS)?;
    file.sync_all()?;
    let result = (|| {
        let mut footer = reader.inner().footer.clone();
        let checksum = |at: SectionRef| -> Result<u32> {
            let mut bytes = vec![0; at.len as usize];
            reader.inner().source.read_at(at.pos, &mut bytes)?;
            Ok(crc32c(&bytes))
        };
        for link in &mut footer.links {
            link.checksum = checksum(link.at)?;
        }
        let at = SectionRef { pos: end - TRAILER_LEN, len: TRAILER_LEN };
        footer.superseded.push(Superseded { at, checksum: checksum(at)? });
        file.seek(SeekFrom::Start(end))?;
        let out = Appending(BufWriter::with_capacity(1 << 20, file.try_clone()?));
        let mut sink = Sink::new(out, end, footer);
        sink.digests = reader.inner().shared.digests();
        let mut writer = Writer::resume(sink, options)?;
        writer.stand_on(reader.clone());
        add(&mut writer)?;
        // The trailer is what makes the new archive: all it leads to must be on
        // the device before it, or a crash could keep the one without the other.
        writer.finish_with(|out| {
            out.flush()?;
            Ok(out.0.get_ref().sync_all()?)
        })?;
        Ok(file.sync_all()?)
    })();
    if result.is_err() {
        // Nothing behind the old end means anything: the guard says so until it is gone.
        file.set_len(end)?;
        file.sync_all()?;
    }
    file.write_all_at(&guard(0), GUARD_POS)?;
    file.sync_all()?;
    result
}
