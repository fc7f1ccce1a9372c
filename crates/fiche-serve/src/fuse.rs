//! A tree as a file system of the kernel's (FUSE), for reading only.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fiche::archive::{Kind, Reader};
use fiche::{Error, ReadAt, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType as Fuse, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyXattr, Request, SessionACL,
};

use crate::tree::{Attributes, Content, FileType, Node, Served, Tree};

/// Nothing changes: what the kernel knows it may go on knowing.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// What the kernel reads ahead of a reader who goes on.
const READ_AHEAD: u32 = 1 << 20;
const BLOCK: u32 = 4096;

/// How an archive is mounted.
pub struct Mount {
    served: Served,
    name: String,
    plain: Option<Vec<u8>>,
    threads: usize,
    others: bool,
    log: Arc<dyn Fn(String) + Send + Sync>,
}

impl Mount {
    /// This archive, read by as many threads as there are cores, for its owner alone.
    #[must_use]
    pub fn new(reader: Reader) -> Mount {
        Mount::of(Served::Archive(reader))
    }

    /// Any content as one file: it is called `content` unless [`plain`](Mount::plain) says otherwise.
    #[must_use]
    pub fn file(content: Arc<dyn ReadAt>) -> Mount {
        Mount::of(Served::File(content))
    }

    fn of(served: Served) -> Mount {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let log = Arc::new(|line| eprintln!("fiche: {line}"));
        Mount { served, name: "fiche".into(), plain: None, threads, others: false, log }
    }

    /// What the system calls the source.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Mount {
        Mount { name: name.into(), ..self }
    }

    /// All of the archive's content as one file of this name, whatever records it has.
    #[must_use]
    pub fn plain(self, name: impl Into<Vec<u8>>) -> Mount {
        Mount { plain: Some(name.into()), ..self }
    }

    /// So many threads answer the kernel.
    #[must_use]
    pub fn threads(self, threads: usize) -> Mount {
        Mount { threads: threads.max(1), ..self }
    }

    /// Other users may read it as well, as permissions say; the system must allow it.
    #[must_use]
    pub fn allow_others(self, others: bool) -> Mount {
        Mount { others, ..self }
    }

    /// What is told of damage, a line each; by default on standard error.
    #[must_use]
    pub fn log(self, log: impl Fn(String) + Send + Sync + 'static) -> Mount {
        Mount { log: Arc::new(log), ..self }
    }

    /// Mounts it at a folder. Looks at all records first: some seconds for millions.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses, and those of reading the index.
    pub fn at(self, folder: impl AsRef<Path>) -> Result<Mounted> {
        let folder = folder.as_ref();
        let tree = Tree::new(self.served, self.plain.as_deref(), &*self.log)?;
        let files = Files {
            tree,
            log: self.log,
            open: RwLock::new(HashMap::new()),
            next: AtomicU64::new(1),
        };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::DefaultPermissions,
            MountOption::FSName(self.name),
            MountOption::Subtype("fiche".into()),
        ];
        config.acl = if self.others { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.threads);
        config.clone_fd = self.threads > 1;
        Mounted::new(files, folder, &config)
    }
}

/// An archive that is mounted: until this is dropped, or somebody else unmounts it.
pub struct Mounted {
    /// There until it is dropped.
    session: Option<BackgroundSession>,
    folder: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        match self.session.take() {
            Some(session) if session.guard.is_finished() => drop(ended(session)),
            session => drop(session),
        }
    }
}

/// How a session ended that somebody else unmounts, or has unmounted. Another one may be mounted in its place by now, which what is left of this one would
/// unmount when it is dropped: so it is not.
fn ended(mut session: BackgroundSession) -> io::Result<()> {
    let none = std::thread::spawn(|| Ok(()));
    let guard = std::mem::replace(&mut session.guard, none);
    let ended = guard.join();
    std::mem::forget(session);
    ended.unwrap_or_else(|_| Err(io::Error::other("what answers the kernel panicked")))
}

impl Mounted {
    pub(crate) fn new<F>(files: F, folder: &Path, config: &Config) -> Result<Mounted>
    where
        F: Filesystem + Send + Sync + 'static,
    {
        let session = fuser::spawn_mount(files, folder, config).map_err(|error| {
            Error::Io(io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        })?;
        Ok(Mounted { session: Some(session), folder: folder.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// [`Error::Io`] when the kernel's line broke.
    pub fn wait(mut self) -> Result<()> {
        Ok(self.session.take().map_or(Ok(()), ended)?)
    }

    /// True when somebody else unmounted it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// [`Error::Io`] when it is in use.
    pub fn unmount(mut self) -> Result<()> {
        match self.session.take() {
            Some(session) if session.guard.is_finished() => Ok(ended(session)?),
            Some(session) => Ok(session.umount_and_join()?),
            None => Ok(()),
        }
    }
}

struct Files {
    tree: Tree,
    log: Arc<dyn Fn(String) + Send + Sync>,
    /// What open files read.
    open: RwLock<HashMap<u64, Arc<dyn ReadAt>>>,
    next: AtomicU64,
}

impl Files {
    fn node(&self, ino: INodeNo) -> Result<(Node, Attributes), Errno> {
        let node = Node::from_ino(ino.into()).ok_or(Errno::ENOENT)?;
        match self.tree.attributes(node) {
            Ok(found) => found.map(|attributes| (node, attributes)).ok_or(Errno::ENOENT),
            Err(error) => Err(self.told(&format!("inode {ino}"), &error)),
        }
    }

    /// What the kernel is told of an error; damage is also told to people.
    fn told(&self, what: &str, error: &Error) -> Errno {
        (self.log)(format!("{what}: {error}"));
        errno(error)
    }

    fn open(&self, ino: INodeNo) -> Result<Arc<dyn ReadAt>, Errno> {
        let (node, attributes) = self.node(ino)?;
        if attributes.file_type == FileType::Folder {
            return Err(Errno::EISDIR);
        }
        match self.tree.content(node) {
            Some(Content::Whole) => Ok(self.tree.whole().clone()),
            Some(Content::Record(number)) => match self.tree.record(number) {
                Ok(record) => Ok(Arc::new(record)),
                Err(error) => Err(self.told(&format!("record #{number}"), &error)),
            },
            _ => Err(Errno::ENOENT),
        }
    }

    fn attr(&self, node: Node, attributes: &Attributes) -> FileAttr {
        let (seconds, nanoseconds) = attributes.modified;
        let span = Duration::new(seconds.unsigned_abs(), 0);
        let time =
            if seconds < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
        let time = time.and_then(|time| time.checked_add(Duration::new(0, nanoseconds)));
        let time = time.unwrap_or(SystemTime::UNIX_EPOCH);
        // What nobody is known to own is the reader's.
        let known = attributes.owner.filter(|(user, _)| *user != u32::MAX);
        let (uid, gid) = known.unwrap_or_else(ids);
        FileAttr {
            ino: INodeNo(node.ino()),
            size: attributes.len,
            blocks: attributes.len.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: kind(attributes.file_type),
            perm: (attributes.mode & 0o7777) as u16,
            nlink: attributes.links,
            uid,
            gid,
            rdev: device(attributes.device),
            flags: 0,
            blksize: BLOCK,
        }
    }

    fn extended(&self, ino: INodeNo) -> Result<Named, Errno> {
        let (node, _) = self.node(ino)?;
        let Some(Content::Record(number)) = self.tree.content(node) else { return Ok(Vec::new()) };
        match self.tree.entry(number) {
            Ok(entry) => Ok(entry.meta.map(|meta| meta.attributes).unwrap_or_default()),
            Err(error) => Err(self.told(&format!("record #{number}"), &error)),
        }
    }
}

/// Answers a read, which may pass the end, from a buffer that each thread keeps.
pub(crate) fn reply_read(
    reply: ReplyData,
    source: &dyn ReadAt,
    offset: u64,
    size: u32,
    told: impl FnOnce(Range<u64>, &Error) -> Errno,
) {
    thread_local! {
        static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let size = u64::from(size).min(source.len().saturating_sub(offset)) as usize;
    BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(buffer.len().max(size), 0);
        match source.read_at(offset, &mut buffer[..size]) {
            Ok(()) => reply.data(&buffer[..size]),
            Err(error) => reply.error(told(offset..offset + size as u64, &error)),
        }
    });
}

/// What the kernel is told of an error.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::OutOfBounds { .. } | Error::Invalid { .. } => Errno::EINVAL,
        Error::NotFound { .. } => Errno::ENOENT,
        Error::Changed { .. } => Errno::from_i32(libc::ESTALE),
        Error::Unsupported { .. } => Errno::EOPNOTSUPP,
        Error::Limit { .. } => Errno::ENOMEM,
        Error::Poisoned => Errno::EROFS,
        Error::Busy { .. } => Errno::EBUSY,
        Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => Errno::ENOSPC,
        Error::Io(error) => Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO)),
        _ => Errno::EIO,
    }
}

/// Extended attributes: names and values.
type Named = Vec<(Vec<u8>, Vec<u8>)>;

/// User and group of this process.
pub(crate) fn ids() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn kind(file_type: FileType) -> Fuse {
    match file_type {
        FileType::File => Fuse::RegularFile,
        FileType::Folder => Fuse::Directory,
        FileType::Symlink => Fuse::Symlink,
        FileType::Fifo => Fuse::NamedPipe,
        FileType::CharDevice => Fuse::CharDevice,
        FileType::BlockDevice => Fuse::BlockDevice,
    }
}

/// A device number as the kernel writes it into 32 bits.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Sends bytes of an extended attribute, or how many there are.
fn send(reply: ReplyXattr, size: u32, bytes: &[u8]) {
    match size {
        0 => reply.size(bytes.len() as u32),
        room if bytes.len() <= room as usize => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_readahead(READ_AHEAD);
        // Each of these makes it faster where the kernel has it, and is nothing else.
        for flag in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_MAX_PAGES,
        ] {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.node(parent).and_then(|(folder, _)| {
            match self.tree.find(folder, name.as_bytes()) {
                Ok(Some(node)) => self.node(INodeNo(node.ino())),
                Ok(None) => Err(Errno::ENOENT),
                Err(error) => Err(self.told(&name.to_string_lossy(), &error)),
            }
        });
        match found {
            Ok((node, attributes)) => {
                reply.entry(&FOR_EVER, &self.attr(node, &attributes), Generation(0));
            }
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino) {
            Ok((node, attributes)) => reply.attr(&FOR_EVER, &self.attr(node, &attributes)),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let node = Node::from_ino(ino.into());
        let Some(Content::Record(number)) = node.and_then(|node| self.tree.content(node)) else {
            return reply.error(Errno::EINVAL);
        };
        match self.tree.entry(number) {
            Ok(entry) => match entry.kind {
                Kind::Symlink(target) => reply.data(&target),
                _ => reply.error(Errno::EINVAL),
            },
            Err(error) => reply.error(self.told(&format!("record #{number}"), &error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        match self.open(ino) {
            Ok(source) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
                open.insert(handle, source);
                drop(open);
                // What the kernel kept of it before is what it still is.
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let source = open.get(&handle.into()).cloned();
        drop(open);
        let Some(source) = source else { return reply.error(Errno::EBADF) };
        reply_read(reply, &source, offset, size, |range, error| {
            let what = match Node::from_ino(ino.into()).and_then(|node| self.tree.content(node)) {
                Some(Content::Record(number)) => format!("record #{number}"),
                _ => "content".into(),
            };
            self.told(&format!("{what}, bytes {} to {}", range.start, range.end), error)
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.into());
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (folder, _) = match self.node(ino) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        // The first two places are those of the folder itself and of the one it is in.
        for (at, node, name) in [(0, folder, "."), (1, self.tree.parent(folder), "..")] {
            if offset <= at && reply.add(INodeNo(node.ino()), at + 1, Fuse::Directory, name) {
                return reply.ok();
            }
        }
        let listed =
            self.tree.list(folder, offset.saturating_sub(2), &mut |node, file_type, name, at| {
                !reply.add(INodeNo(node.ino()), at + 2, kind(file_type), OsStr::from_bytes(name))
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.told("a folder", &error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (folder, attributes) = match self.node(ino) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let mut add = |node: Node, attributes: &Attributes, at: u64, name: &OsStr| {
            let attr = self.attr(node, attributes);
            !reply.add(INodeNo(node.ino()), at, name, &FOR_EVER, &attr, Generation(0))
        };
        let parent = self.tree.parent(folder);
        let above = self.node(INodeNo(parent.ino())).map_or(attributes, |(_, above)| above);
        for (at, node, attributes, name) in
            [(0, folder, &attributes, "."), (1, parent, &above, "..")]
        {
            if offset <= at && !add(node, attributes, at + 1, OsStr::new(name)) {
                return reply.ok();
            }
        }
        let listed = self.tree.list(folder, offset.saturating_sub(2), &mut |node, _, name, at| {
            let Ok(Some(attributes)) = self.tree.attributes(node) else { return true };
            add(node, &attributes, at + 2, OsStr::from_bytes(name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.told("a folder", &error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.tree.whole().len().div_ceil(u64::from(BLOCK));
        reply.statfs(blocks, 0, 0, self.tree.len(), 0, BLOCK, 255, BLOCK);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.extended(ino) {
            Ok(all) => match all.iter().find(|(key, _)| key == name.as_bytes()) {
                Some((_, value)) => send(reply, size, value),
                None => reply.error(Errno::from_i32(libc::ENODATA)),
            },
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.extended(ino) {
            Ok(all) => {
                let names: Vec<u8> =
                    all.into_iter().flat_map(|(key, _)| key.into_iter().chain([0])).collect();
                send(reply, size, &names);
            }
            Err(error) => reply.error(error),
        }
    }
}
