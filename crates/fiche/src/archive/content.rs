//! What the files of a folder hold, as one source to learn from before anything is packed.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::archive::folder::Folder;
use crate::codec::deflate::MAGIC;
use crate::error::Result;
use crate::io::{ReadAt, within};
use crate::records::Split;
use crate::wire::Digest;

/// Bytes at the start and at the end of files of one length by which they are told apart.
const ENDS: usize = 4 << 10;
/// Bytes that are held of what gzipped files hold.
const UNPACKED: u64 = 64 << 20;

/// What the files of a [`Folder`] hold, as one source: made by [`Folder::content`].
pub struct Content<'a> {
    folder: &'a Folder,
    files: Vec<Piece>,
    /// What gzipped files begin with, unpacked.
    unpacked: Vec<u8>,
    /// The file that was read last.
    open: Mutex<Option<(u32, File)>>,
}

/// One file of it.
struct Piece {
    /// Its number in the folder.
    number: u32,
    /// Where it ends in the source.
    end: u64,
    /// Where it starts in what was unpacked, if it was.
    unpacked: Option<usize>,
}

impl<'a> Content<'a> {
    /// That of the files of the folder, in its order.
    pub(super) fn new(folder: &'a Folder) -> Content<'a> {
        let mut numbers = one_of_each(folder);
        let mut content =
            Content { folder, files: Vec::new(), unpacked: Vec::new(), open: Mutex::new(None) };
        if folder.splits() == Some(&Split::Warc) {
            numbers = content.unpack(numbers);
        }
        let mut end = content.files.last().map_or(0, |file| file.end);
        for number in numbers {
            end += folder.file_len(number);
            content.files.push(Piece { number, end, unpacked: None });
        }
        content
    }

    /// Unpacks the beginnings of those that are gzipped; returns the others.
    fn unpack(&mut self, numbers: Vec<u32>) -> Vec<u32> {
        let (gzipped, others): (Vec<u32>, Vec<u32>) =
            numbers.into_iter().partition(|&number| is_gzipped(&self.folder.path(number)));
        let share = UNPACKED / (gzipped.len() as u64).max(1);
        for number in gzipped {
            let start = self.unpacked.len();
            if let Ok(mut file) = File::open(self.folder.path(number))
                && let Ok(plain) = Split::Warc.plain(&mut file)
            {
                // Damage further on is reported when it is packed.
                let _ = plain.take(share).read_to_end(&mut self.unpacked);
            }
            let end = self.unpacked.len() as u64;
            self.files.push(Piece { number, end, unpacked: Some(start) });
        }
        others
    }
}

fn is_gzipped(path: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(path).is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok()) && magic == MAGIC
}

/// The numbers of files with content, without those that look equal to an earlier one: which would be
/// taken for what blocks have in common, though they are stored once.
fn one_of_each(folder: &Folder) -> Vec<u32> {
    let files = (0..folder.len() as u32).filter(|&number| folder.file_len(number) > 0);
    let files: Vec<u32> = files.collect();
    let mut of_len: HashMap<u64, u32> = HashMap::new();
    for &number in &files {
        *of_len.entry(folder.file_len(number)).or_default() += 1;
    }
    let mut seen: HashSet<(u64, [u8; 16])> = HashSet::new();
    let is_first = |&number: &u32| {
        let len = folder.file_len(number);
        // Split files are stored as often as they are there.
        if of_len[&len] == 1 || folder.splits().is_some() {
            return true;
        }
        let Ok(file) = File::open(folder.path(number)) else { return true };
        let mut ends = vec![0; ENDS.min(len as usize) * 2];
        let (head, tail) = ends.split_at_mut(ENDS.min(len as usize));
        let reads = file.read_exact_at(head, 0).is_ok()
            && file.read_exact_at(tail, len - tail.len() as u64).is_ok();
        let mut short = [0; 16];
        short.copy_from_slice(&Digest::of(&ends).0[..16]);
        !reads || seen.insert((len, short))
    };
    files.into_iter().filter(is_first).collect()
}

impl ReadAt for Content<'_> {
    fn len(&self) -> u64 {
        self.files.last().map_or(0, |file| file.end)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), ReadAt::len(self))?;
        buf.fill(0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = range.start;
        while at < range.end {
            let place = self.files.partition_point(|file| file.end <= at);
            let start = if place == 0 { 0 } else { self.files[place - 1].end };
            let Piece { number, end, unpacked } = self.files[place];
            let end = range.end.min(end);
            let part = &mut buf[(at - range.start) as usize..(end - range.start) as usize];
            if let Some(from) = unpacked {
                part.copy_from_slice(&self.unpacked[from + (at - start) as usize..][..part.len()]);
                at = end;
                continue;
            }
            if open.as_ref().is_none_or(|(last, _)| *last != number) {
                *open = File::open(self.folder.path(number)).ok().map(|file| (number, file));
            }
            if let Some((_, file)) = open.as_ref() {
                // What fails here will fail again when it is packed, and be reported then.
                let _ = file.read_exact_at(part, at - start);
            }
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn equal_files_are_there_once_and_other_files_of_one_length_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(1);
        let (a, mut b, c) = (random.bytes(20_000), random.bytes(20_000), random.bytes(100));
        b[..10_000].copy_from_slice(&a[..10_000]);
        for (name, bytes) in [("1", &a), ("2", &b), ("3", &a), ("4", &c), ("5", &c), ("6", &vec![])]
        {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let mut folder = Folder::new(&[] as &[&str]).unwrap();
        folder.add(dir.path()).unwrap();
        let content = folder.content();
        let mut whole = vec![0; content.len() as usize];
        content.read_at(0, &mut whole).unwrap();
        assert_eq!(whole, [&a[..], &b, &c].concat());
        let mut piece = [0; 250];
        content.read_at(39_850, &mut piece).unwrap();
        assert_eq!(piece[..], whole[39_850..]);
    }

    #[cfg(feature = "zlib")]
    #[test]
    fn gzipped_warc_files_are_learned_from_by_what_they_hold() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"WARC/1.0\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n".repeat(100);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gz, &text).unwrap();
        std::fs::write(dir.path().join("a.warc"), b"plain").unwrap();
        std::fs::write(dir.path().join("b.warc.gz"), gz.finish().unwrap()).unwrap();
        let mut folder = Folder::new(&[] as &[&str]).unwrap().split(Split::Warc);
        folder.add(dir.path()).unwrap();
        let content = folder.content();
        let mut whole = vec![0; content.len() as usize];
        content.read_at(0, &mut whole).unwrap();
        assert_eq!(whole, [&text[..], b"plain"].concat());
        let mut piece = [0; 7];
        content.read_at(text.len() as u64 - 4, &mut piece).unwrap();
        assert_eq!(&piece, b"\r\n\r\npla");
    }
}
