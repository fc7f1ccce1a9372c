//! What was fetched, on disk, for whoever reads the same object later: other processes, too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use fiche::archive::DictionaryCache;
use fiche::rlz::Dictionary;
use fiche::{Digest, FileSource, ReadAt, Result};
use object_store::ObjectMeta;

use crate::pieces::Pieces;

/// A digest is written behind the bytes of each piece.
const DIGEST: usize = 32;

/// A folder of what was fetched: ranges of objects, each a file; and dictionaries, which archives share. What has
/// not been used for longest is removed where all is more than the limit. What cannot be written is not
/// kept, and what is damaged is as if it were not there.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    limit: u64,
    /// Bytes written since it was last tidied up.
    written: AtomicU64,
}

impl Folder {
    /// Keeps at most about `limit` bytes in the folder at this path, which is made if need be.
    ///
    /// # Errors
    /// [`Error::Io`](fiche::Error::Io) when it cannot be made.
    pub fn new(path: impl Into<PathBuf>, limit: u64) -> Result<Folder> {
        let folder = Folder { path: path.into(), limit, written: AtomicU64::new(0) };
        fs::create_dir_all(folder.path.join("dictionaries"))?;
        folder.tidy();
        Ok(folder)
    }

    /// What is kept of an object; `None` where nothing tells one state of it from another.
    pub(crate) fn of(self: &Arc<Self>, url: &str, meta: &ObjectMeta) -> Result<Option<Kept>> {
        let modified = meta.last_modified.timestamp();
        if meta.e_tag.is_none() && modified == 0 {
            return Ok(None);
        }
        let identity = format!("{url}\n{:?}\n{modified}\n{}", meta.e_tag, meta.size);
        let name = blake3::hash(identity.as_bytes()).to_hex();
        let path = self.path.join("objects").join(&name[..32]);
        fs::create_dir_all(&path)?;
        let mut kept = Kept { folder: self.clone(), path, ranges: BTreeMap::new() };
        for entry in fs::read_dir(&kept.path)?.flatten() {
            if let Some(range) = entry.file_name().to_str().and_then(range_of) {
                kept.add(range);
            }
        }
        Ok(Some(kept))
    }

    /// Writes a file that appears as a whole. It may be lost with the power: then its digest is wrong.
    fn write(&self, path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
        let aside = path.parent().unwrap_or(&self.path);
        let mut file = tempfile::NamedTempFile::new_in(aside)?;
        write(file.as_file_mut())?;
        let written = file.as_file().metadata()?.len();
        file.persist(path).map_err(|error| error.error)?;
        if self.written.fetch_add(written, Ordering::Relaxed) + written > self.limit / 8 {
            self.written.store(0, Ordering::Relaxed);
            self.tidy();
        }
        Ok(())
    }

    /// Removes what was used longest ago, down to nine tenths of the limit, where all is more than that.
    fn tidy(&self) {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let mut folders = vec![self.path.join("dictionaries")];
        let objects = fs::read_dir(self.path.join("objects"));
        folders.extend(objects.into_iter().flatten().flatten().map(|entry| entry.path()));
        for folder in &folders {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if let Ok(meta) = entry.metadata() {
                    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    files.push((used, meta.len(), entry.path()));
                }
            }
        }
        let mut all: u64 = files.iter().map(|(_, len, _)| len).sum();
        if all > self.limit {
            files.sort();
            for (_, len, path) in files {
                if all <= self.limit / 10 * 9 {
                    break;
                }
                if fs::remove_file(path).is_ok() {
                    all -= len;
                }
            }
        }
        // Of folders only those go that are empty.
        folders[1..].iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }

    fn dictionary(&self, digest: &Digest) -> PathBuf {
        self.path.join("dictionaries").join(digest.to_string())
    }
}

/// Says that a file was used now.
fn used(path: &Path) -> io::Result<()> {
    File::open(path)?.set_modified(SystemTime::now())
}

impl DictionaryCache for Folder {
    fn has(&self, digest: &Digest) -> bool {
        self.dictionary(digest).exists()
    }

    fn get(&self, digest: &Digest) -> Option<Arc<Dictionary>> {
        let path = self.dictionary(digest);
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(&path).ok()?);
        let found = Dictionary::read_from(&source).ok().filter(|found| found.digest() == *digest);
        match &found {
            Some(_) => drop(used(&path)),
            None => drop(fs::remove_file(&path)),
        }
        found.map(Arc::new)
    }

    fn put(&self, dictionary: &Arc<Dictionary>) {
        let path = self.dictionary(&dictionary.digest());
        if dictionary.len() as u64 <= self.limit / 2 && !path.exists() {
            // It is loaded again where it is not kept.
            let _ = self.write(&path, |file| dictionary.write_to(file).map(drop));
        }
    }
}

/// The range that a file of this name is.
fn range_of(name: &str) -> Option<Range<u64>> {
    let (start, end) = name.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// What is kept of one object.
pub(crate) struct Kept {
    folder: Arc<Folder>,
    path: PathBuf,
    /// Start and end of each piece.
    ranges: BTreeMap<u64, u64>,
}

impl Kept {
    /// Notes a piece that is on disk; of pieces within one another only the outer one stays there.
    fn add(&mut self, range: Range<u64>) {
        if self.ranges.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end) {
            return drop(fs::remove_file(self.file(&range)));
        }
        let inner: Vec<(u64, u64)> = self
            .ranges
            .range(range.clone())
            .map(|(&s, &e)| (s, e))
            .filter(|(_, e)| *e <= range.end)
            .collect();
        for (start, end) in inner {
            self.ranges.remove(&start);
            drop(fs::remove_file(self.file(&(start..end))));
        }
        self.ranges.insert(range.start, range.end);
    }

    fn file(&self, range: &Range<u64>) -> PathBuf {
        self.path.join(format!("{:x}-{:x}", range.start, range.end))
    }

    /// True for a range that is all here, unless it is damaged.
    pub fn has(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.ranges.range(..=at).next_back() {
                Some((_, &end)) if end > at => at = end,
                _ => return false,
            }
        }
        true
    }

    /// Puts all of a range into memory, if it is all here.
    pub fn bring(&mut self, range: Range<u64>, pieces: &mut Pieces) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Some((&start, &end)) = self.ranges.range(..=at).next_back() else { return false };
            if end <= at {
                return false;
            }
            let Some(bytes) = self.load(&(start..end)) else {
                self.ranges.remove(&start);
                return false;
            };
            pieces.put(start, bytes);
            at = end;
        }
        pieces.has(range)
    }

    /// The bytes of a piece, if they are what was written.
    fn load(&self, range: &Range<u64>) -> Option<Bytes> {
        let path = self.file(range);
        let mut bytes = fs::read(&path).ok()?;
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
        let is_whole = content.len() as u64 == range.end.checked_sub(range.start)?
            && blake3::hash(content).as_bytes() == digest;
        if !is_whole {
            let _ = fs::remove_file(&path);
            return None;
        }
        let _ = used(&path);
        bytes.truncate(content.len());
        Some(bytes.into())
    }

    /// Keeps these bytes of the object, unless it has them.
    pub fn put(&mut self, start: u64, bytes: &[u8]) {
        let range = start..start + bytes.len() as u64;
        let is_within =
            self.ranges.range(..=start).next_back().is_some_and(|(_, &e)| e >= range.end);
        if is_within {
            return;
        }
        let done = fs::create_dir_all(&self.path).map_err(fiche::Error::from).and_then(|()| {
            self.folder.write(&self.file(&range), |file| {
                file.write_all(bytes)?;
                file.write_all(blake3::hash(bytes).as_bytes())?;
                Ok(())
            })
        });
        // It is fetched again where it is not kept.
        if done.is_ok() {
            self.add(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(tag: Option<&str>) -> ObjectMeta {
        let mut meta: ObjectMeta = plain();
        meta.e_tag = tag.map(str::to_owned);
        meta
    }

    fn plain() -> ObjectMeta {
        ObjectMeta {
            location: object_store::path::Path::default(),
            last_modified: Default::default(),
            size: 10_000,
            e_tag: None,
            version: None,
        }
    }

    fn object() -> Vec<u8> {
        (0..10_000u32).map(|i| (i * 31 % 253) as u8).collect()
    }

    #[test]
    fn what_is_kept_comes_back_in_another_process_and_damage_is_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::new(dir.path(), 1 << 20).unwrap());
        let object = object();
        let mut kept = folder.of("u", &meta(Some("a"))).unwrap().unwrap();
        kept.put(100, &object[100..500]);
        kept.put(500, &object[500..900]);

        let again = Arc::new(Folder::new(dir.path(), 1 << 20).unwrap());
        let mut kept = again.of("u", &meta(Some("a"))).unwrap().unwrap();
        let mut pieces = Pieces::new(10_000);
        assert!(kept.bring(150..850, &mut pieces));
        let mut read = vec![0; 700];
        assert!(pieces.read(150, &mut read));
        assert_eq!(read, object[150..850]);
        assert!(!kept.bring(50..150, &mut pieces) && !kept.bring(850..950, &mut pieces));
        // Another state of it, and one that cannot be told from others.
        assert!(!again.of("u", &meta(Some("b"))).unwrap().unwrap().bring(150..200, &mut pieces));
        assert!(again.of("u", &meta(None)).unwrap().is_none());

        let file = kept.file(&(100..500));
        let mut bytes = fs::read(&file).unwrap();
        bytes[7] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(!kept.bring(150..200, &mut Pieces::new(10_000)));
        assert!(!file.exists());
        assert!(kept.bring(500..900, &mut Pieces::new(10_000)));
    }

    #[test]
    fn a_small_piece_hides_no_large_one() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::new(dir.path(), 1 << 20).unwrap());
        let object = object();
        let meta = meta(Some("a"));
        let mut kept = folder.of("u", &meta).unwrap().unwrap();
        // Of another process, which knows nothing of ours.
        let mut other = folder.of("u", &meta).unwrap().unwrap();
        other.put(1000, &object[1000..5000]);
        kept.put(2000, &object[2000..2100]);
        let mut again = folder.of("u", &meta).unwrap().unwrap();
        assert!(again.has(3000..4000) && again.bring(3000..4000, &mut Pieces::new(10_000)));
        again.put(0, &object[..6000]);
        assert_eq!(fs::read_dir(&again.path).unwrap().count(), 1);
        assert!(again.bring(0..6000, &mut Pieces::new(10_000)));
    }

    #[test]
    fn the_folder_stays_within_its_limit_and_keeps_what_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::new(dir.path(), 20_000).unwrap());
        let object = object();
        let mut kept = folder.of("u", &meta(Some("a"))).unwrap().unwrap();
        kept.put(0, &object[..1000]);
        let first = kept.file(&(0..1000));
        let long_ago = SystemTime::UNIX_EPOCH;
        for round in 0..40 {
            let mut kept = folder.of("u", &meta(Some(&format!("tag {round}")))).unwrap().unwrap();
            kept.put(0, &object[..1000]);
            File::open(kept.file(&(0..1000))).unwrap().set_modified(long_ago).unwrap();
            assert!(first.exists(), "{round}");
        }
        let files = fs::read_dir(dir.path().join("objects")).unwrap().flatten();
        let all: u64 = files
            .flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten())
            .map(|file| file.metadata().unwrap().len())
            .sum();
        assert!(all <= 20_000 + 20_000 / 8 + 1032, "{all}");
    }

    #[test]
    fn dictionaries_are_kept_by_their_digests() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), 1 << 20).unwrap();
        let dictionary = Arc::new(Dictionary::new(object()).unwrap());
        let digest = dictionary.digest();
        assert!(!folder.has(&digest) && folder.get(&digest).is_none());
        folder.put(&dictionary);
        assert_eq!(folder.get(&digest).unwrap().as_bytes(), object());
        fs::write(folder.dictionary(&digest), "something else").unwrap();
        assert!(folder.get(&digest).is_none() && !folder.has(&digest));
    }
}
