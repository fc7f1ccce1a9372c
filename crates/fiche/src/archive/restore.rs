//! Brings packed files back, and writes nothing outside its target.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::archive::place::{
    Aside, Places, already_there, exists, is_inside, name_it, set_meta, set_meta_of_link,
};
use crate::archive::reader::Reader;
use crate::archive::stream::{Piece, Stream};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::records::{Entry, Kind, Meta};

/// What comes before the name of a file that is not whole yet.
const ASIDE: &str = ".fiche-";
/// What comes behind the name of a file of which some content is lost.
const DAMAGED: &str = ".damaged";

/// Brings files back from an archive.
///
/// Every path is followed from the target folder down, name by name, and never
/// through a symbolic link; a name that would lead out of the target is refused. A
/// file appears under its name only when it is whole. Owners are restored when the
/// caller is root, permissions, times and extended attributes always.
///
/// ```
/// # use std::sync::Arc;
/// use fiche::archive::{Entry, Kind, Options, Reader, Restore, Writer};
/// # let dir = tempfile::tempdir().unwrap();
/// # let target = dir.path().join("here");
///
/// let mut writer = Writer::new(Vec::new(), Options::default())?;
/// writer.add(Entry::new("letters/a.txt", Kind::File), &mut "dear a".as_bytes())?;
/// let reader = Reader::open(Arc::new(writer.finish()?))?;
/// Restore::new(&target).run(&reader, &mut |_bytes| Ok(()))?;
/// assert_eq!(std::fs::read(target.join("letters/a.txt"))?, b"dear a");
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Restore {
    target: PathBuf,
    paths: Vec<Vec<u8>>,
    overwrite: bool,
    keep_going: bool,
    threads: usize,
}

/// What came back.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Restored {
    /// Records restored whole.
    pub records: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// Content that belongs to no record, and so to no file: of a stream that was packed
    /// or appended, or of records whose names are lost. Told when everything is restored.
    pub without_record: Vec<Range<u64>>,
    /// What could not be restored, or only in part.
    pub failed: Vec<Failure>,
}

/// A record that could not be restored, or only in part.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Its number; `u64::MAX` for a page of records whose names are lost.
    pub number: u64,
    /// Its name; empty when it has none, or when it is lost.
    pub name: Vec<u8>,
    /// What happened.
    pub error: Error,
    /// For a damaged file what its `.damaged` twin lacks: ranges of its content,
    /// which read as zeros there.
    pub lost: Vec<Range<u64>>,
}

impl Restore {
    /// Everything, into this folder, which is made if it is not there.
    #[must_use]
    pub fn new(target: impl Into<PathBuf>) -> Restore {
        Restore {
            target: target.into(),
            paths: Vec::new(),
            overwrite: false,
            keep_going: false,
            threads: crate::parallel::default_threads(),
        }
    }

    /// Only these records, and what is below those of them that are folders.
    #[must_use]
    pub fn only(self, paths: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Restore {
        let trim = |mut path: Vec<u8>| {
            while path.len() > 1 && path.ends_with(b"/") {
                path.pop();
            }
            path
        };
        Restore { paths: paths.into_iter().map(|p| trim(p.into())).collect(), ..self }
    }

    /// Replaces files that are there already; otherwise they are an error.
    #[must_use]
    pub fn overwrite(self, overwrite: bool) -> Restore {
        Restore { overwrite, ..self }
    }

    /// Goes on after damage: restores all that is whole, writes what is left of a
    /// damaged file under its name with `.damaged` behind it, and lists the losses.
    #[must_use]
    pub fn keep_going(self, keep_going: bool) -> Restore {
        Restore { keep_going, ..self }
    }

    /// How many threads decode.
    #[must_use]
    pub fn threads(self, threads: usize) -> Restore {
        Restore { threads: threads.max(1), ..self }
    }

    fn wants(&self, name: &[u8]) -> bool {
        let below = |path: &Vec<u8>| {
            name.strip_prefix(path.as_slice()).is_some_and(|r| r.is_empty() || r[0] == b'/')
        };
        self.paths.is_empty() || self.paths.iter().any(below)
    }

    /// Restores. `progress` is told bytes of content as they are written, and may
    /// stop it with an error.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a path that was asked for is not there. Unless it
    /// keeps going, the first of: [`Error::Corrupt`], [`Error::Io`] with the path
    /// it concerns, [`Error::Invalid`] for a name that leads out of the target.
    pub fn run(
        &self,
        reader: &Reader,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Restored> {
        self.check_paths(reader)?;
        let feed = Feed::new(self.clone(), reader.clone());
        let mut run = Run {
            restore: self,
            reader,
            feed,
            place: Places::new(&self.target)?,
            folders: Vec::new(),
            copies: HashMap::new(),
            failed: HashSet::new(),
            as_root: rustix::process::geteuid().is_root(),
            restored: Restored::default(),
            aside: 0,
        };
        for item in reader.entries(0) {
            let (number, entry) = match item {
                Ok(item) => item,
                Err(error) if self.keep_going => {
                    let (number, name) = (u64::MAX, Vec::new());
                    run.restored.failed.push(Failure { number, name, error, lost: Vec::new() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            if entry.kind == Kind::Item || !self.wants(&entry.name) {
                continue;
            }
            match run.restore(number, &entry, progress) {
                Ok(()) => run.restored.records += 1,
                Err(Stop::Other(error)) if self.keep_going && concerns_one_file(&error) => {
                    run.failed.insert(number);
                    let (name, lost) = (entry.name, Vec::new());
                    run.restored.failed.push(Failure { number, name, error, lost });
                }
                Err(Stop::Damaged(error, lost)) if self.keep_going => {
                    run.failed.insert(number);
                    let name = entry.name;
                    run.restored.failed.push(Failure { number, name, error, lost });
                }
                Err(Stop::Damaged(error, _) | Stop::Other(error)) => return Err(error),
            }
        }
        run.finish_folders()?;
        if self.paths.is_empty() {
            run.restored.without_record = without_record(reader);
        }
        Ok(run.restored)
    }

    fn check_paths(&self, reader: &Reader) -> Result<()> {
        for path in &self.paths {
            // A folder may be there by what is below it alone.
            let folder = [path.as_slice(), b"/"].concat();
            let below = |name: &[u8]| name.starts_with(&folder);
            match reader.entry_of(path) {
                Ok((_, entry)) if entry.kind == Kind::Item => {
                    let name = entry.display_name();
                    let what = format!(
                        "{name:?} is an item of a file, and not restored alone: cat reads it"
                    );
                    return Err(Error::invalid(what));
                }
                Ok(_) => {}
                Err(Error::NotFound { name, nearest }) => {
                    if !reader.entries(0).flatten().any(|(_, entry)| below(&entry.name)) {
                        return Err(Error::NotFound { name, nearest });
                    }
                }
                Err(_) if self.keep_going => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Content that no record has.
fn without_record(reader: &Reader) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (_, entry) in reader.entries(0).flatten() {
        if entry.kind == Kind::Item {
            continue;
        }
        match ranges.last_mut().filter(|last| last.end == entry.range.start) {
            Some(last) => last.end = entry.range.end,
            None if entry.range.is_empty() => {}
            None => ranges.push(entry.range),
        }
    }
    ranges.sort_by_key(|range| range.start);
    let (mut end, mut missing) = (0, Vec::new());
    for range in ranges.into_iter().chain([reader.len()..reader.len()]) {
        if range.start > end {
            missing.push(end..range.start);
        }
        end = end.max(range.end);
    }
    missing
}

/// False for what would fail for every other file as well.
fn concerns_one_file(error: &Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error {
        Error::Io(error) => {
            let own = error.get_ref().is_none_or(|inner| !inner.is::<crate::error::PathError>());
            !own && !matches!(error.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem)
        }
        Error::Invalid { .. } => true,
        _ => false,
    }
}

/// Why a record was not restored: damage, which one may go on from, or else.
enum Stop {
    Damaged(Error, Vec<Range<u64>>),
    Other(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            Error::Corrupt { .. } | Error::Unsupported { .. } => Stop::Damaged(error, Vec::new()),
            other => Stop::Other(other),
        }
    }
}

struct Run<'a> {
    restore: &'a Restore,
    reader: &'a Reader,
    feed: Feed,
    place: Places,
    /// Folders, whose permissions and times are set when all is in them.
    folders: Vec<(u64, Vec<u8>, Meta)>,
    /// Where the content of a hard link's file went, when the file itself was not asked for.
    copies: HashMap<u64, Vec<u8>>,
    failed: HashSet<u64>,
    as_root: bool,
    restored: Restored,
    aside: u64,
}

impl Run<'_> {
    fn restore(
        &mut self,
        number: u64,
        entry: &Entry,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<(), Stop> {
        if entry.name.is_empty() {
            // Content without a name is nobody's file.
            return match entry.kind {
                Kind::Data | Kind::Item => Ok(()),
                _ => Err(Error::Corrupt { what: "record name", at: Place::Record(number) }.into()),
            };
        }
        if !is_inside(&entry.name) {
            let name = entry.display_name().into_owned();
            let error = format!("{name:?} would lead out of the target, and is not written");
            return Err(Stop::Damaged(Error::invalid(error), Vec::new()));
        }
        match &entry.kind {
            Kind::Directory => {
                self.place.make_folder(&entry.name)?;
                if let Some(meta) = &entry.meta {
                    self.folders.push((number, entry.name.clone(), meta.clone()));
                }
                Ok(())
            }
            Kind::Data | Kind::File => self.file(number, &entry.name, entry, true, progress),
            Kind::Hardlink(to) => self.link(*to, entry, progress),
            Kind::Symlink(target) => {
                let (target, as_root) = (OsString::from_vec(target.clone()), self.as_root);
                self.special(&entry.name, |dir, name| {
                    rustix::fs::symlinkat(target.as_os_str(), dir, name)?;
                    set_meta_of_link(dir, name, entry, as_root)
                })
            }
            Kind::Fifo => self.node(entry, FileType::Fifo, 0),
            Kind::CharDevice(major, minor) => {
                self.node(entry, FileType::CharacterDevice, rustix::fs::makedev(*major, *minor))
            }
            Kind::Item => Ok(()),
            Kind::BlockDevice(major, minor) => {
                self.node(entry, FileType::BlockDevice, rustix::fs::makedev(*major, *minor))
            }
        }
    }

    fn aside_name(&mut self) -> OsString {
        self.aside += 1;
        format!("{ASIDE}{}-{}", std::process::id(), self.aside).into()
    }

    /// A file with its content, written aside and then named.
    fn file(
        &mut self,
        number: u64,
        name: &[u8],
        entry: &Entry,
        in_feed: bool,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<(), Stop> {
        let spare = self.aside_name();
        let path = self.place.path(name);
        let at = |e: Errno| match e {
            Errno::EXIST => already_there(&path),
            e => Error::io_at(&path, e),
        };
        let keep_going = self.restore.keep_going;
        let (dir, base) = self.place.parent(name)?;
        if !self.restore.overwrite && exists(dir, &base) {
            return Err(Stop::Other(already_there(&path)));
        }
        // With metadata to come, nobody else may look at it before.
        let mode = if entry.meta.is_some() { 0o600 } else { 0o666 };
        let mut aside = Aside::create(dir, spare, mode).map_err(at)?;
        let file = &mut aside.file;
        let mut lost = Vec::new();
        let mut first = match in_feed {
            true => self.feed.copy(entry, file, &path, keep_going, &mut lost, progress)?,
            false => copy_record(self.reader, entry, file, &path, keep_going, &mut lost, progress)?,
        };
        if self.reader.is_incomplete(number) {
            let end = Error::Corrupt { what: "end of a record", at: Place::Record(number) };
            first.get_or_insert(end);
        }
        if let Some(meta) = &entry.meta {
            set_meta(file.as_fd(), meta, self.as_root).map_err(at)?;
        }
        self.restored.bytes += entry.len();
        let base = match first.is_none() {
            true => base,
            false => {
                let mut damaged = base;
                damaged.push(DAMAGED);
                damaged
            }
        };
        aside.call(&base, self.restore.overwrite).map_err(at)?;
        match first {
            None => Ok(()),
            Some(error) => Err(Stop::Damaged(error, lost)),
        }
    }

    /// Another name of a file; a copy of it when the file itself is not restored.
    fn link(
        &mut self,
        to: u64,
        entry: &Entry,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<(), Stop> {
        let file = self.reader.entry(to)?;
        if !matches!(file.kind, Kind::File | Kind::Data) || !is_inside(&file.name) {
            let place = Place::Record(to);
            return Err(Error::Corrupt { what: "hard link", at: place }.into());
        }
        if self.failed.contains(&to) {
            let place = Place::Record(to);
            return Err(
                Error::Corrupt { what: "the file that a hard link leads to", at: place }.into()
            );
        }
        let source = match self.copies.get(&to) {
            Some(copy) => copy.clone(),
            None if self.restore.wants(&file.name) => file.name.clone(),
            None => {
                self.file(to, &entry.name, &file, false, progress)?;
                self.copies.insert(to, entry.name.clone());
                return Ok(());
            }
        };
        let path = self.place.path(&entry.name);
        let at = |e: Errno| Error::io_at(&path, e);
        let (dir, base) = self.place.parent(&source)?;
        let from = rustix::io::dup(dir).map_err(at)?;
        self.special(&entry.name, |dir, name| {
            rustix::fs::linkat(&from, &base, dir, name, AtFlags::empty())
        })
    }

    fn node(&mut self, entry: &Entry, kind: FileType, device: u64) -> Result<(), Stop> {
        let as_root = self.as_root;
        self.special(&entry.name, |dir, name| {
            rustix::fs::mknodat(dir, name, kind, Mode::RUSR | Mode::WUSR, device)?;
            set_meta_of_link(dir, name, entry, as_root)
        })
    }

    /// Something without content, made by `make`: under its name when nothing is to be
    /// replaced, otherwise aside.
    fn special(
        &mut self,
        name: &[u8],
        make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
    ) -> Result<(), Stop> {
        let aside = self.aside_name();
        let path = self.place.path(name);
        let (dir, base) = self.place.parent(name)?;
        let there = exists(dir, &base);
        let made = match (there, self.restore.overwrite) {
            (true, false) => Err(Errno::EXIST),
            (false, _) => make(dir, &base),
            (true, true) => make(dir, &aside).and_then(|()| {
                let named = name_it(dir, &aside, &base, true);
                // Renaming to another name of the same file does nothing, says POSIX.
                let _ = rustix::fs::unlinkat(dir, &aside, AtFlags::empty());
                named
            }),
        };
        made.map_err(|e| match e {
            Errno::EXIST => already_there(&path).into(),
            e => Error::io_at(&path, e).into(),
        })
    }

    /// Permissions and times of folders, the deepest first, now that all is in them.
    fn finish_folders(&mut self) -> Result<()> {
        let mut folders = std::mem::take(&mut self.folders);
        folders.sort_by(|a, b| b.1.cmp(&a.1));
        for (number, name, meta) in folders {
            let path = self.place.path(&name);
            let finished = self.place.open_folder(&name, false).and_then(|folder| {
                set_meta(folder.as_fd(), &meta, self.as_root).map_err(|e| Error::io_at(&path, e))
            });
            match finished {
                Err(error) if self.restore.keep_going => {
                    self.restored.failed.push(Failure { number, name, error, lost: Vec::new() });
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// The content of the records that are restored, decoded ahead in their order.
struct Feed {
    stream: Stream,
    reader: Reader,
    /// The piece at hand: its range, and whether it could be read.
    piece: Option<Piece>,
}

impl Feed {
    fn new(restore: Restore, reader: Reader) -> Feed {
        let (records, threads) = (reader.records(), restore.threads);
        let (entries, mut number) = (reader.clone(), 0);
        // Neighbouring records are read as one range.
        let mut pending: Option<Range<u64>> = None;
        let ranges = std::iter::from_fn(move || {
            while number < records {
                number += 1;
                let Ok(entry) = entries.entry(number - 1) else { continue };
                if !entry.kind.has_content()
                    || entry.kind == Kind::Item
                    || entry.range.is_empty()
                    || entry.name.is_empty()
                    || !is_inside(&entry.name)
                    || !restore.wants(&entry.name)
                {
                    continue;
                }
                match &mut pending {
                    Some(range) if range.end == entry.range.start => range.end = entry.range.end,
                    pending => {
                        if let Some(range) = pending.replace(entry.range) {
                            return Some(range);
                        }
                    }
                }
            }
            pending.take()
        });
        let stream = Stream::new(reader.clone(), ranges, threads);
        Feed { stream, reader, piece: None }
    }

    /// Writes the content of the record that comes next. Returns the first damage
    /// when it went on after it; what is lost is added to `lost`.
    fn copy(
        &mut self,
        entry: &Entry,
        file: &mut File,
        path: &Path,
        keep_going: bool,
        lost: &mut Vec<Range<u64>>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Option<Error>> {
        let mut out = Out::new(entry, file, path);
        let (mut offset, mut first) = (entry.range.start, None);
        while offset < entry.range.end {
            let fits = self.piece.as_ref().is_some_and(|(range, ..)| range.contains(&offset));
            if !fits {
                if let Some((_, buf, _)) = self.piece.take() {
                    self.stream.recycle(buf);
                }
                self.piece = self.stream.next_piece();
                if self.piece.is_none() {
                    // The index gave this record to the feed's list and now another.
                    return Err(Error::Changed { what: "the archive" });
                }
                continue;
            }
            let Some((range, buf, result)) = &mut self.piece else { continue };
            let end = entry.range.end.min(range.end);
            if let Err(error) = result {
                if !keep_going {
                    return Err(error.again());
                }
                let damage = self.reader.read_what_is_left(range.start, buf);
                first.get_or_insert(error.again());
                let (piece, damage) = (range.clone(), damage?);
                // The zeros of what is lost stay in the buffer for whoever needs it next.
                for gap in &damage {
                    let (from, to) = (gap.start.max(offset), gap.end.min(end));
                    if from < to {
                        lost.push(from - entry.range.start..to - entry.range.start);
                    }
                }
                out.write(&buf[(offset - piece.start) as usize..(end - piece.start) as usize])?;
            } else {
                out.write(&buf[(offset - range.start) as usize..(end - range.start) as usize])?;
            }
            progress(end - offset)?;
            offset = end;
        }
        out.finish()?;
        if lost.is_empty() {
            first = None;
        }
        Ok(first)
    }
}

/// Copies one record that is not in the feed.
fn copy_record(
    reader: &Reader,
    entry: &Entry,
    file: &mut File,
    path: &Path,
    keep_going: bool,
    lost: &mut Vec<Range<u64>>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<Error>> {
    let stream = Stream::new(reader.clone(), std::iter::once(entry.range.clone()), 1);
    let mut feed = Feed { stream, reader: reader.clone(), piece: None };
    feed.copy(entry, file, path, keep_going, lost, progress)
}

/// Writes content where it belongs in a file, around its holes.
struct Out<'a> {
    file: &'a mut File,
    path: &'a Path,
    pieces: std::vec::IntoIter<Range<u64>>,
    now: Range<u64>,
    len: Option<u64>,
}

impl<'a> Out<'a> {
    fn new(entry: &Entry, file: &'a mut File, path: &'a Path) -> Out<'a> {
        let (pieces, len) = match &entry.extents {
            Some(extents) => (extents.data.clone(), Some(extents.len)),
            None => (vec![0..entry.len()], None),
        };
        Out { file, path, pieces: pieces.into_iter(), now: 0..0, len }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.now.is_empty() {
                let Some(piece) = self.pieces.next() else { return Ok(()) };
                if self.len.is_some() {
                    self.file
                        .seek(SeekFrom::Start(piece.start))
                        .map_err(|e| Error::io_at(self.path, e))?;
                }
                self.now = piece;
                continue;
            }
            let len = (self.now.end - self.now.start).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(len as usize);
            self.file.write_all(now).map_err(|e| Error::io_at(self.path, e))?;
            self.now.start += len;
            bytes = later;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self.len {
            Some(len) => self.file.set_len(len).map_err(|e| Error::io_at(self.path, e)),
            None => Ok(()),
        }
    }
}
