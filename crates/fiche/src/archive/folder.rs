//! Packs files and folders: walks them, and writes each as a record.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::SeekFrom as Seek;

use crate::archive::content::Content;
use crate::archive::equal::{Seen, hash_zeros};
use crate::archive::look::{attributes, extents};
use crate::archive::options::Options;
use crate::archive::reader::Reader;
use crate::archive::writer::Writer;
use crate::error::{Error, Result};
use crate::io::into_io;
use crate::records::{Entry, Extents, Kind, Meta, Split};
use crate::wire::Digest;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Bytes at the start of a file that are compared before it is read as a whole
/// to find out whether it equals another one.
const HEAD: usize = 64 << 10;

/// Files and folders to be packed, each under its own name: `a/b` as `b` and all
/// that is below it as `b/...`; what `.` or `/` holds, without a prefix.
///
/// Kept of each: permissions, times, numeric owner and group, extended attributes,
/// symbolic and hard links, holes of sparse files, empty folders, named pipes and
/// devices; sockets are left out. Files of equal content are stored once. A path
/// given here may be a symbolic link, a pipe or a device, and stands for what it
/// leads to; below a folder, links are kept as links.
///
/// ```
/// use fiche::archive::{Folder, Options, Reader, Writer};
/// # let dir = tempfile::tempdir().unwrap();
/// # std::fs::create_dir(dir.path().join("letters")).unwrap();
/// # std::fs::write(dir.path().join("letters/a.txt"), "dear a").unwrap();
/// # let letters = dir.path().join("letters");
///
/// let mut folder = Folder::new(&["*.o", "letters/drafts"])?;
/// folder.add(&letters)?;
/// let mut writer = Writer::new(Vec::new(), Options::default())?;
/// folder.write_to(&mut writer, &mut |_bytes| Ok(()))?;
/// let reader = Reader::open(std::sync::Arc::new(writer.finish()?))?;
/// assert!(reader.find("letters/a.txt")?.is_some());
/// # Ok::<(), fiche::Error>(())
/// ```
pub struct Folder {
    exclude: Exclude,
    found: Vec<Found>,
    /// Their names, one after the other.
    names: Vec<u8>,
    roots: Vec<PathBuf>,
    skip: Vec<(u64, u64)>,
    sockets: Vec<PathBuf>,
    keep_going: bool,
    split: Option<Split>,
    skipped: Vec<(PathBuf, String)>,
}

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// Records written.
    pub records: u64,
    /// Bytes that these records read as, holes and repeated content included.
    pub bytes: u64,
    /// Files whose content was there already, and its bytes.
    pub equal_files: u64,
    /// See `equal_files`.
    pub equal_bytes: u64,
    /// Sockets, which are not kept.
    pub sockets: Vec<PathBuf>,
    /// What could not be read and was left out, and why; only when it keeps going.
    pub skipped: Vec<(PathBuf, String)>,
    /// Files that changed while they were read: what is kept of them may never have been
    /// their content at one time, and ends with zeros if they became shorter; only
    /// when it keeps going.
    pub changed: Vec<PathBuf>,
}

/// True when it is an input that the system refuses, and not the output.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.get_ref().is_some_and(|e| e.is::<crate::error::PathError>()),
        _ => false,
    }
}

/// A file as it was found: little enough that there may be millions. What else is to be
/// known of it is asked when its turn comes.
struct Found {
    /// Where its name is in the list of names, and how long it is.
    name: u64,
    name_len: u32,
    root: u32,
    /// How many bytes of the name stand for the root: its path is that of its root and the
    /// rest of the name.
    prefix: u32,
    is_file: bool,
    len: u64,
}

/// What is needed of `Metadata`, which is several times as large.
struct Stat {
    mode: u32,
    user: u32,
    group: u32,
    modified: (i64, u32),
    len: u64,
    device: u64,
    inode: u64,
    links: u64,
    special: u64,
    blocks: u64,
}

impl Stat {
    fn of(meta: &Metadata) -> Stat {
        Stat {
            mode: meta.mode(),
            user: meta.uid(),
            group: meta.gid(),
            modified: (meta.mtime(), meta.mtime_nsec() as u32),
            len: meta.len(),
            device: meta.dev(),
            inode: meta.ino(),
            links: meta.nlink(),
            special: meta.rdev(),
            blocks: meta.blocks(),
        }
    }

    fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Patterns of what is left out. One without a slash is held against the name of
/// every file and folder; one with a slash against the whole path in the archive.
struct Exclude {
    names: GlobSet,
    paths: GlobSet,
}

impl Exclude {
    fn new(patterns: &[impl AsRef<str>]) -> Result<Exclude> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let pattern = pattern.as_ref().trim_end_matches('/');
            let glob: Glob = GlobBuilder::new(pattern.trim_start_matches('/'))
                .literal_separator(true)
                .build()
                .map_err(|e| Error::invalid(format!("pattern {pattern:?}: {}", e.kind())))?;
            if pattern.contains('/') {
                paths.add(glob)
            } else {
                names.add(glob)
            };
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|e| Error::invalid(e.to_string()));
        Ok(Exclude { names: build(names)?, paths: build(paths)? })
    }

    fn covers(&self, name: &[u8]) -> bool {
        let path = Path::new(std::ffi::OsStr::from_bytes(name));
        self.paths.is_match(path) || path.file_name().is_some_and(|name| self.names.is_match(name))
    }
}

impl Folder {
    /// Nothing yet; `exclude` are glob patterns of what is left out. A pattern
    /// without a slash is held against every name, one with a slash against the
    /// path in the archive; what is below a folder that is left out is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a pattern is none.
    pub fn new(exclude: &[impl AsRef<str>]) -> Result<Folder> {
        Ok(Folder {
            exclude: Exclude::new(exclude)?,
            found: Vec::new(),
            names: Vec::new(),
            roots: Vec::new(),
            skip: Vec::new(),
            sockets: Vec::new(),
            keep_going: false,
            split: None,
            skipped: Vec::new(),
        })
    }

    /// Goes on after files and folders that cannot be read or that change while they
    /// are read, and lists them in [`Packed`]; otherwise each is an error.
    #[must_use]
    pub fn keep_going(self, keep_going: bool) -> Folder {
        Folder { keep_going, ..self }
    }

    /// Splits the content of every file into records, numbered from file to file; the files
    /// themselves come behind them all. A gzipped WARC file is kept as what it
    /// holds, without the `.gz` of its name. Holes are kept as zeros, and equal files are not
    /// looked for.
    #[must_use]
    pub fn split(self, split: Split) -> Folder {
        Folder { split: Some(split), ..self }
    }

    /// Leaves this very file out wherever it is met in a folder, and refuses it where it is given by itself: for the archive that is
    /// written, which would take the place of what it was to keep.
    pub fn skip(&mut self, path: &Path) {
        self.skip.extend(std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())));
    }

    /// Takes a file, or a folder and all that is below it. Looks at every file but
    /// opens none; 40 bytes of memory and its name each.
    ///
    /// # Errors
    /// [`Error::Io`] with the path that cannot be looked at; [`Error::Invalid`] for a file that is [skipped](Folder::skip).
    pub fn add(&mut self, path: &Path) -> Result<()> {
        let meta = std::fs::metadata(path).map_err(|e| Error::io_at(path, e))?;
        // `..` has a name only once it is resolved.
        let name = match path.file_name() {
            Some(name) => name.to_owned(),
            None if path.components().all(|c| c == std::path::Component::CurDir) => {
                Default::default()
            }
            None => {
                let whole = path.canonicalize().map_err(|e| Error::io_at(path, e))?;
                whole.file_name().unwrap_or_default().to_owned()
            }
        };
        self.roots.push(path.to_owned());
        let name = name.into_vec();
        let prefix = name.len();
        if meta.is_dir() {
            self.walk(name, &meta)?;
        } else if self.exclude.covers(&name) {
        } else if self.is_skipped(&meta) {
            let what = "is what is written: give that another name, or exclude this";
            return Err(Error::invalid(format!("{} {what}", path.display())));
        } else {
            self.push(&name, prefix, &meta);
        }
        Ok(())
    }

    fn is_skipped(&self, meta: &Metadata) -> bool {
        self.skip.contains(&(meta.dev(), meta.ino()))
    }

    /// Notes a file of the root that was added last.
    fn push(&mut self, name: &[u8], prefix: usize, meta: &Metadata) {
        self.found.push(Found {
            name: self.names.len() as u64,
            name_len: name.len() as u32,
            root: (self.roots.len() - 1) as u32,
            prefix: prefix as u32,
            is_file: meta.is_file(),
            len: meta.len(),
        });
        self.names.extend_from_slice(name);
    }

    fn leave_out(&self, name: &[u8], meta: &Metadata) -> bool {
        self.is_skipped(meta) || self.exclude.covers(name)
    }

    fn walk(&mut self, name: Vec<u8>, meta: &Metadata) -> Result<()> {
        let prefix = name.len();
        if !name.is_empty() {
            if self.leave_out(&name, meta) {
                return Ok(());
            }
            self.push(&name, prefix, meta);
        }
        let mut folders = vec![name];
        while let Some(folder) = folders.pop() {
            let path = path_of(&self.roots[self.roots.len() - 1], prefix, &folder);
            let list = match std::fs::read_dir(&path).map_err(|e| Error::io_at(&path, e)) {
                Err(error) if self.keep_going && is_refusal(&error) => {
                    self.skipped.push((path, error.to_string()));
                    continue;
                }
                list => list?,
            };
            for item in list {
                let item = item.map_err(|e| Error::io_at(&path, e))?;
                let mut name = folder.clone();
                if !name.is_empty() {
                    name.push(b'/');
                }
                name.extend_from_slice(item.file_name().as_bytes());
                let meta = match item.metadata().map_err(|e| Error::io_at(&item.path(), e)) {
                    Err(error) if self.keep_going && is_refusal(&error) => {
                        self.skipped.push((item.path(), error.to_string()));
                        continue;
                    }
                    meta => meta?,
                };
                if self.leave_out(&name, &meta) {
                    continue;
                }
                if meta.file_type().is_socket() {
                    self.sockets.push(item.path());
                    continue;
                }
                self.push(&name, prefix, &meta);
                if meta.is_dir() {
                    folders.push(name);
                }
            }
        }
        Ok(())
    }

    fn name_of(&self, file: &Found) -> &[u8] {
        &self.names[file.name as usize..][..file.name_len as usize]
    }

    fn path_of(&self, file: &Found) -> PathBuf {
        path_of(&self.roots[file.root as usize], file.prefix as usize, self.name_of(file))
    }

    /// The file or folder of this number.
    pub(super) fn path(&self, number: u32) -> PathBuf {
        self.path_of(&self.found[number as usize])
    }

    /// Length of the file of this number, as far as it says; 0 for what is none.
    pub(super) fn file_len(&self, number: u32) -> u64 {
        let file = &self.found[number as usize];
        if file.is_file { file.len } else { 0 }
    }

    /// How the content of files is split into records, if it is.
    pub(super) fn splits(&self) -> Option<&Split> {
        self.split.as_ref()
    }

    /// How many records there will be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// True when there is nothing to pack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many bytes the files have, as far as they say.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.found.iter().filter(|f| f.is_file).map(|f| f.len).sum()
    }

    /// The content of all files one after the other, in the order of their names: to learn
    /// from, and no more. Of files that look equal the first one alone is there, as it is in the
    /// archive; of gzipped WARC files whose records are asked for, the first 64 MiB of what they
    /// hold, in memory, equally many bytes of each. What cannot be read, or is not there any more,
    /// reads as zeros.
    pub fn content(&mut self) -> Content<'_> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable_by(|a, b| self.name_of(a).cmp(self.name_of(b)));
        self.found = found;
        Content::new(self)
    }

    /// How many bytes of an archive their names and metadata would take, without those of records
    /// within files: they are written, without any content, and counted.
    ///
    /// # Errors
    /// [`Error::Io`] with the path of what cannot be looked at.
    pub fn record_bytes(&self) -> Result<u64> {
        let mut writer = Writer::new(Vec::new(), Options::default())?;
        let mut run = Run { is_dry: true, ..Run::new(self, HashMap::new(), None) };
        for file in &self.found {
            let given = file.name_len == file.prefix;
            run.pack(&mut writer, self.name_of(file), &self.path_of(file), given, &mut |_| Ok(()))?;
        }
        let info = Reader::open(Arc::new(writer.finish()?))?.info()?;
        Ok(info.record_bytes)
    }

    /// Writes all of it, in the order of the names. `progress` is told bytes as they
    /// are read, and may stop it with an error. When adding to an archive, a
    /// folder that is in it already is passed over.
    ///
    /// # Errors
    /// [`Error::Invalid`] when two files would have one name; [`Error::Io`] with the
    /// path of what cannot be read or changed while it was read.
    pub fn write_to<W: Write>(
        mut self,
        writer: &mut Writer<W>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Packed> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable_by(|a, b| self.name_of(a).cmp(self.name_of(b)));
        let twins = |pair: &&[Found]| self.name_of(&pair[0]) == self.name_of(&pair[1]);
        if let Some(pair) = found.windows(2).find(twins) {
            let [a, b] = [&pair[0], &pair[1]].map(|file| self.path_of(file));
            let name = String::from_utf8_lossy(self.name_of(&pair[0])).into_owned();
            let (a, b) = (a.display(), b.display());
            return Err(Error::invalid(format!("{a} and {b} would both be called {name:?}")));
        }
        let mut sizes: HashMap<u64, u32> = HashMap::new();
        for file in found.iter().filter(|f| f.is_file && f.len > 0) {
            *sizes.entry(file.len).or_default() += 1;
        }
        sizes.retain(|_, count| *count > 1);
        let split = self.split.take();
        let mut run = Run::new(&self, sizes, split);
        for file in &found {
            let path = self.path_of(file);
            let given = file.name_len == file.prefix;
            match run.pack(writer, self.name_of(file), &path, given, progress) {
                // Once something of it was written there is no way back.
                Err(error) if self.keep_going && !writer.is_open() && is_refusal(&error) => {
                    run.packed.skipped.push((path, error.to_string()));
                }
                other => other?,
            }
        }
        run.finish(writer)?;
        Ok(run.packed)
    }
}

fn path_of(root: &Path, prefix: usize, name: &[u8]) -> PathBuf {
    let rest = &name[prefix..];
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    match rest.is_empty() {
        true => root.to_owned(),
        false => root.join(std::ffi::OsStr::from_bytes(rest)),
    }
}

struct Run {
    keep_going: bool,
    split: Option<Split>,
    /// With `split`, what comes behind the items of all files. Hard links
    /// lead to places in this list.
    later: Vec<Entry>,
    packed: Packed,
    buf: Vec<u8>,
    /// How many files have each size, where it is more than one: only these can be equal.
    sizes: HashMap<u64, u32>,
    seen: Seen,
    /// First record of each file that has several names.
    links: HashMap<(u64, u64), u64>,
    /// Names and metadata alone: nothing is opened.
    is_dry: bool,
}

impl Run {
    fn new(folder: &Folder, sizes: HashMap<u64, u32>, split: Option<Split>) -> Run {
        Run {
            keep_going: folder.keep_going,
            split,
            later: Vec::new(),
            packed: Packed {
                sockets: folder.sockets.clone(),
                skipped: folder.skipped.clone(),
                ..Packed::default()
            },
            buf: vec![0; PIECE],
            sizes,
            seen: Seen::default(),
            links: HashMap::new(),
            is_dry: false,
        }
    }

    fn pack<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        name: &[u8],
        path: &Path,
        given: bool,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let at = |e: std::io::Error| Error::io_at(path, e);
        // What was given by its own path is what that leads to.
        let stat = match given {
            true => std::fs::metadata(path),
            false => std::fs::symlink_metadata(path),
        };
        let stat = &Stat::of(&stat.map_err(at)?);
        let of_link = stat.mode & 0o170_000 == 0o120_000;
        let meta = Meta {
            mode: stat.mode & 0o7777,
            modified: stat.modified,
            user: stat.user,
            group: stat.group,
            attributes: attributes(path, of_link).map_err(at)?,
        };
        let device = (rustix::fs::major(stat.special), rustix::fs::minor(stat.special));
        let kind = match stat.mode & 0o170_000 {
            0o040_000 => Kind::Directory,
            0o120_000 => {
                Kind::Symlink(std::fs::read_link(path).map_err(at)?.into_os_string().into_vec())
            }
            // What was asked for by its own path is read, whatever it is.
            0o010_000 if !given => Kind::Fifo,
            0o020_000 if !given => Kind::CharDevice(device.0, device.1),
            0o060_000 if !given => Kind::BlockDevice(device.0, device.1),
            _ => Kind::File,
        };
        let there = writer.find_before(name)?;
        if kind == Kind::Directory && there.is_some_and(|there| there.kind == Kind::Directory) {
            return Ok(());
        }
        let mut entry = Entry::new(name, kind).meta(meta);
        let identity = (stat.device, stat.inode);
        let number = if let Some(split) = self.split.clone() {
            let first = self.links.get(&identity).filter(|_| entry.kind == Kind::File);
            if let Some(&first) = first {
                entry.kind = Kind::Hardlink(first);
            } else if entry.kind == Kind::File {
                self.pack_split(writer, &split, &mut entry, stat, path, progress)?;
            }
            self.later.push(entry);
            self.later.len() as u64 - 1
        } else if entry.kind != Kind::File {
            writer.add_entry(entry)?
        } else if let Some(&first) = self.links.get(&identity) {
            entry.kind = Kind::Hardlink(first);
            writer.add_entry(entry)?
        } else if self.is_dry {
            writer.add_entry(entry)?
        } else {
            self.pack_file(writer, entry, stat, path, progress)?
        };
        if stat.links > 1 && stat.is_file() {
            self.links.entry(identity).or_insert(number);
        }
        self.packed.records += 1;
        Ok(())
    }

    /// Writes what was to come behind all items.
    fn finish<W: Write>(&mut self, writer: &mut Writer<W>) -> Result<()> {
        let mut numbers = Vec::with_capacity(self.later.len());
        for mut entry in self.later.drain(..) {
            if let Kind::Hardlink(to) = &mut entry.kind {
                *to = numbers.get(*to as usize).copied().unwrap_or_default();
            }
            numbers.push(writer.add_entry(entry)?);
        }
        Ok(())
    }

    /// Writes the content of a file as items, and gives the entry its range.
    fn pack_split<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        split: &Split,
        entry: &mut Entry,
        stat: &Stat,
        path: &Path,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (mut file, now) = open(path, stat)?;
        take_meta(entry, &now);
        let at = |e: std::io::Error| Error::io_at(path, e);
        let mut magic = [0; 2];
        if *split == Split::Warc && stat.is_file() && file.read_at(&mut magic, 0).map_err(at)? == 2
        {
            let plain = entry.name.strip_suffix(b".gz").filter(|_| magic == [0x1F, 0x8B]);
            entry.name = plain.map_or_else(|| entry.name.clone(), <[u8]>::to_vec);
        }
        let start = writer.offset();
        // What a file grows by while it is read belongs to another time.
        let len = if stat.is_file() && now.len() > 0 { now.len() } else { u64::MAX };
        let mut content = Input { file: Read::by_ref(&mut file).take(len), path };
        let items = writer.add_records(split, &mut content, progress);
        let items = items.map_err(|error| match error {
            Error::Invalid { what } => Error::invalid(format!("{}: {what}", path.display())),
            error => error,
        })?;
        entry.range = start..writer.offset();
        self.packed.records += items.end - items.start;
        self.packed.bytes += entry.range.end - entry.range.start;
        if stat.is_file() && !same(&now, &file.metadata().map_err(at)?) {
            if !self.keep_going {
                return Err(changed(path));
            }
            self.packed.changed.push(path.to_owned());
        }
        Ok(())
    }

    fn pack_file<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        mut entry: Entry,
        stat: &Stat,
        path: &Path,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let at = |e: std::io::Error| Error::io_at(path, e);
        let (mut file, now) = open(path, stat)?;
        take_meta(&mut entry, &now);
        if stat.is_file() && stat.blocks * 512 < stat.len {
            entry.extents = extents(&file, now.len()).map_err(at)?;
        }
        let twins = stat.is_file() && self.sizes.contains_key(&stat.len);
        let head = if twins { Some(self.head(&mut file).map_err(at)?) } else { None };
        if let Some(head) = &head
            && let Some((start, extents)) = self.equal(&mut file, stat.len, head).map_err(at)?
            && same(&now, &file.metadata().map_err(at)?)
        {
            let len = extents.as_ref().map_or(stat.len, Extents::content);
            entry.range = start..start + len;
            entry.extents = extents;
            self.packed.equal_files += 1;
            self.packed.equal_bytes += stat.len;
            self.packed.bytes += stat.len;
            progress(stat.len)?;
            return writer.add_entry(entry);
        }
        let extents = entry.extents.clone();
        let start = writer.offset();
        let number = writer.begin(entry)?;
        let mut hasher = twins.then(blake3::Hasher::new);
        let mut whole = true;
        // Files that the system makes up as they are read say that they are empty.
        if stat.is_file() && now.len() > 0 {
            // What a file grows by while it is read belongs to another time.
            let all = [0..now.len()];
            let pieces = extents.as_ref().map_or(all.as_slice(), |extents| &extents.data);
            let mut end = 0;
            for piece in pieces {
                if let Some(hasher) = &mut hasher {
                    hash_zeros(hasher, piece.start - end);
                }
                progress(piece.start - end)?;
                end = piece.end;
                whole &= self
                    .copy_piece(&mut file, piece, writer, &mut hasher, progress)
                    .map_err(|error| error.at_path(path))?;
            }
            if let Some(hasher) = &mut hasher {
                hash_zeros(hasher, now.len() - end);
            }
            progress(now.len() - end)?;
            whole &= same(&now, &file.metadata().map_err(at)?);
        } else {
            loop {
                let len = file.read(&mut self.buf).map_err(at)?;
                if len == 0 {
                    break;
                }
                writer.write_all(&self.buf[..len])?;
                progress(len as u64)?;
            }
        }
        if !whole && !self.keep_going {
            return Err(changed(path));
        }
        writer.end()?;
        let range = start..writer.offset();
        let len = extents.as_ref().map_or(range.end - range.start, |extents| extents.len);
        self.packed.bytes += len;
        if !whole {
            self.packed.changed.push(path.to_owned());
        } else if let (Some(hasher), Some(head)) = (hasher, head)
            && len == stat.len
        {
            let whole = Digest(*hasher.finalize().as_bytes());
            self.seen.add(len, &head, &whole, start, extents);
        }
        Ok(number)
    }

    /// Copies a piece of a file; false when the file ended before it did, and what was
    /// missing was filled with zeros.
    fn copy_piece<W: Write>(
        &mut self,
        file: &mut File,
        piece: &std::ops::Range<u64>,
        writer: &mut Writer<W>,
        hasher: &mut Option<blake3::Hasher>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<bool> {
        rustix::fs::seek(&*file, Seek::Start(piece.start)).map_err(std::io::Error::from)?;
        let (mut left, mut whole) = (piece.end - piece.start, true);
        while left > 0 {
            let wanted = left.min(PIECE as u64) as usize;
            let mut len = file.read(&mut self.buf[..wanted])?;
            if len == 0 {
                self.buf[..wanted].fill(0);
                (len, whole) = (wanted, false);
                if !self.keep_going {
                    return Ok(false);
                }
            }
            if let Some(hasher) = hasher {
                hasher.update(&self.buf[..len]);
            }
            writer.write_all(&self.buf[..len])?;
            progress(len as u64)?;
            left -= len as u64;
        }
        Ok(whole)
    }

    /// Digest of the first bytes of a file; leaves it at its start.
    fn head(&mut self, file: &mut File) -> std::io::Result<Digest> {
        let mut len = 0;
        while len < HEAD {
            match file.read(&mut self.buf[len..HEAD])? {
                0 => break,
                more => len += more,
            }
        }
        rustix::fs::seek(&*file, Seek::Start(0))?;
        Ok(Digest::of(&self.buf[..len]))
    }

    /// Content that was packed already and equals that of this file: reads the
    /// file as a whole only when there is content of its length and beginning.
    fn equal(
        &mut self,
        file: &mut File,
        len: u64,
        head: &Digest,
    ) -> std::io::Result<Option<(u64, Option<Extents>)>> {
        if !self.seen.has(len, head) {
            return Ok(None);
        }
        let (mut hasher, mut left) = (blake3::Hasher::new(), len);
        loop {
            let read = file.read(&mut self.buf)?;
            if read == 0 {
                break;
            }
            hasher.update(&self.buf[..read]);
            left = left.wrapping_sub(read as u64);
        }
        rustix::fs::seek(&*file, Seek::Start(0))?;
        let whole = Digest(*hasher.finalize().as_bytes());
        Ok(if left == 0 { self.seen.find(len, head, &whole) } else { None })
    }
}

/// A file whose errors name it: so they are told from those of the output.
struct Input<'a, R> {
    file: R,
    path: &'a Path,
}

impl<R: Read> Read for Input<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.file.read(buf).map_err(|error| into_io(Error::io_at(self.path, error)))
    }
}

/// Opens a file and looks at it again: what is kept of it is what holds while it is read.
fn open(path: &Path, stat: &Stat) -> Result<(File, Metadata)> {
    let at = |e: std::io::Error| Error::io_at(path, e);
    // A pipe that was put in the place of a file must not make this wait.
    let flags = if stat.is_file() { rustix::fs::OFlags::NONBLOCK.bits() as i32 } else { 0 };
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(at)?;
    let now = file.metadata().map_err(at)?;
    if (now.dev(), now.ino()) != (stat.device, stat.inode) {
        return Err(changed(path));
    }
    Ok((file, now))
}

fn take_meta(entry: &mut Entry, now: &Metadata) {
    if let Some(meta) = &mut entry.meta {
        meta.modified = (now.mtime(), now.mtime_nsec() as u32);
        meta.mode = now.mode() & 0o7777;
    }
}

fn same(a: &Metadata, b: &Metadata) -> bool {
    let of = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    of(a) == of(b)
}

fn changed(path: &Path) -> Error {
    Error::io_at(path, std::io::Error::other("changed while it was being packed"))
}
