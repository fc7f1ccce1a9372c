//! A device as one file of a file system of the kernel's (FUSE), that can be written: what `losetup` makes a disk of.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fiche::{Error, Result, WriteAt};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};

use crate::fuse::{Mounted, errno, ids, reply_read};

/// Name of the file.
const NAME: &str = "disk";
const FOLDER: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
const BLOCK: u32 = 4096;
/// Bytes of one write of the kernel's.
const MOST_BYTES: u32 = 1 << 20;

/// A device to be mounted as a folder with one file, `disk`. Writing that writes the device, `fsync` flushes it, and a hole that is punched
/// is discarded. Its length cannot be changed.
pub struct Disk {
    device: Arc<dyn WriteAt>,
    name: String,
    log: Box<dyn Fn(String) + Send + Sync>,
}

impl Disk {
    /// This device.
    #[must_use]
    pub fn new(device: Arc<dyn WriteAt>) -> Disk {
        let log = Box::new(|line| eprintln!("fiche: {line}"));
        Disk { device, name: "fiche".into(), log }
    }

    /// What the system calls the source.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Disk {
        Disk { name: name.into(), ..self }
    }

    /// What is told of damage and of a device that fails, a line each; by default on standard error.
    #[must_use]
    pub fn log(self, log: impl Fn(String) + Send + Sync + 'static) -> Disk {
        Disk { log: Box::new(log), ..self }
    }

    /// Mounts it at a folder, for its owner alone.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses.
    pub fn at(self, folder: impl AsRef<Path>) -> Result<Mounted> {
        let folder = folder.as_ref();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RW,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::DefaultPermissions,
            MountOption::FSName(self.name.clone()),
            MountOption::Subtype("fiche".into()),
        ];
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2);
        config.n_threads = Some(threads);
        config.clone_fd = true;
        Mounted::new(self, folder, &config)
    }

    fn told(&self, what: &str, error: &Error) -> Errno {
        (self.log)(format!("{what}: {error}"));
        errno(error)
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let is_file = match ino {
            FOLDER => false,
            FILE => true,
            _ => return None,
        };
        let (uid, gid) = ids();
        let size = if is_file { self.device.len() } else { 0 };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o700 },
            nlink: if is_file { 1 } else { 2 },
            uid,
            gid,
            rdev: 0,
            flags: 0,
            blksize: BLOCK,
        })
    }
}

impl Filesystem for Disk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_readahead(MOST_BYTES);
        let _ = config.set_max_write(MOST_BYTES);
        for flag in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE).filter(|_| parent == FOLDER && name == NAME) {
            Some(attr) => reply.entry(&FOR_EVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&FOR_EVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times and permissions are what they are; so is the length.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino) {
            Some(attr) if size.is_none_or(|size| size == attr.size) => {
                reply.attr(&FOR_EVER, &attr);
            }
            Some(_) => reply.error(Errno::EPERM),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match ino {
            FILE => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply_read(reply, &self.device, offset, size, |range, error| {
            self.told(&format!("reading bytes {} to {}", range.start, range.end), error)
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let room = self.device.len().saturating_sub(offset);
        if room < data.len() as u64 {
            return reply.error(Errno::ENOSPC);
        }
        match self.device.write_at(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => {
                let what = format!("writing {} bytes at {offset}", data.len());
                reply.error(self.told(&what, &error));
            }
        }
    }

    /// Nothing waits here: only `fsync` promises something.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.device.flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.told("flushing", &error)),
        }
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let len = self.device.len();
        let is_within = offset.checked_add(length).is_some_and(|end| end <= len);
        let zeroes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            // There is room for all of it, as far as there is.
            0 if is_within => reply.ok(),
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                // A hole may reach beyond the end.
                let length = length.min(len.saturating_sub(offset));
                match self.device.zero_at(offset.min(len), length) {
                    Ok(()) => reply.ok(),
                    Err(error) => {
                        let what = format!("discarding {length} bytes at {offset}");
                        reply.error(self.told(&what, &error));
                    }
                }
            }
            other if other & !zeroes != 0 => reply.error(Errno::EOPNOTSUPP),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != FOLDER {
            return reply.error(Errno::ENOTDIR);
        }
        let all = [
            (FOLDER, FileType::Directory, "."),
            (FOLDER, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (i, (ino, kind, name)) in all.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.device.len() / u64::from(BLOCK);
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK, 255, BLOCK);
    }
}
