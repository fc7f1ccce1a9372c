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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::archive::Entry;
    use crate::envelope::{GUARD_POS, guard};
    use crate::in_place::{SECTOR, held_back};

    fn records(file: Vec<u8>) -> u64 {
        Reader::open(Arc::new(file)).unwrap().records()
    }

    /// Wherever the file ends in a sector, and whichever sectors of what was not yet durable a crash leaves, it is the old or the new one.
    #[test]
    fn the_last_writes_of_an_append_count_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.fiche");
        let mut two_steps = 0;
        for len in 0..SECTOR as usize {
            let mut writer = Writer::new(File::create(&path).unwrap(), Options::default()).unwrap();
            writer.add(Entry::data("old"), &mut &b"old"[..]).unwrap();
            writer.finish().unwrap();
            let before = std::fs::read(&path).unwrap();
            // Bytes that do not shrink, so that all ends are met.
            let noise: Vec<u8> =
                (0..len as u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
            append(&path, &Options::default(), |writer| {
                writer.add(Entry::data("new"), &mut &noise[..]).map(drop)
            })
            .unwrap();
            let mut after = std::fs::read(&path).unwrap();
            after[GUARD_POS as usize..][..12].copy_from_slice(&guard(before.len() as u64));

            let steps: Vec<usize> = held_back(after.len() as u64).collect();
            two_steps += usize::from(steps.len() == 3);
            let ends: Vec<usize> = steps.iter().map(|last| after.len() - last).collect();
            assert_eq!(ends.last(), Some(&after.len()));
            // The first step writes what nothing leads to yet.
            assert!(after.len() - ends[0] == TRAILER_LEN as usize);
            assert_eq!(records(after[..ends[0]].to_vec()), 1);
            for step in ends.windows(2) {
                let (from, to) = (step[0], step[1]);
                let border = from.next_multiple_of(SECTOR as usize).clamp(from, to);
                // The first sector alone, the second alone, both; the length is the old or the new one where nothing else tells.
                let mut torn = vec![after[..border].to_vec(), after[..to].to_vec()];
                torn.push([&after[..from], &vec![0; border - from], &after[border..to]].concat());
                torn.push([&after[..from], &vec![0; to - from]].concat());
                for (which, file) in torn.into_iter().enumerate() {
                    let expected = if file == after { 2 } else { 1 };
                    assert_eq!(records(file), expected, "{len} {from} {to} {which}");
                }
            }
        }
        assert!(two_steps >= 16, "{two_steps}");
    }
}
