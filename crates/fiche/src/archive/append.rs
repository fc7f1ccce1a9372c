//! Adds to an archive in place, and never leaves it worse than it was.

use std::path::Path;
use std::sync::Arc;

use crate::archive::format::Superseded;
use crate::archive::options::Options;
use crate::archive::reader::Reader;
use crate::archive::writer::{Sink, Writer};
use crate::envelope::{SectionRef, TRAILER_LEN};
use crate::error::Result;
use crate::in_place::{Appending, Locked};
use crate::io::ReadAt;
use crate::wire::crc32c;

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
/// Those of opening and of `add`; [`Error::Busy`](crate::Error::Busy) when another process is appending
/// to it; [`Error::Invalid`](crate::Error::Invalid) when it was replaced meanwhile; [`Error::Io`](crate::Error::Io).
pub fn append(
    path: &Path,
    options: &Options,
    add: impl FnOnce(&mut Writer<Appending>) -> Result<()>,
) -> Result<()> {
    let file = Locked::open(path)?;
    let reader = Reader::open(Arc::new(file.source()?))?;
    let end = reader.inner().end;
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
    let mut sink = Sink::new(Appending::new(file, end)?, end, footer);
    sink.digests = reader.inner().shared.digests();
    let mut writer = Writer::resume(sink, options)?;
    writer.stand_on(reader.clone());
    // Where it fails, the end of the file is dropped, and what was written of it cut off.
    add(&mut writer)?;
    writer.finish()?.finish()
}
