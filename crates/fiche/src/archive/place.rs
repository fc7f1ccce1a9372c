//! Places below a folder, reached name by name and never through a symbolic link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::records::{Entry, Kind, Meta};

/// True when a name leads to a place below where it starts.
pub(super) fn is_inside(name: &[u8]) -> bool {
    let mut parts = name.split(|&b| b == b'/');
    parts.all(|part| !part.is_empty() && part != b"." && part != b"..") && !name.contains(&0)
}

pub(super) fn exists(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

pub(super) fn already_there(path: &Path) -> Error {
    Error::io_at(path, std::io::ErrorKind::AlreadyExists)
}

/// A file that is being written and has no name yet. Where the file system can, it has
/// none at all, and is gone when it is dropped; elsewhere it has one that tells.
pub(super) struct Aside<'a> {
    pub file: File,
    dir: BorrowedFd<'a>,
    /// What it is called until it gets its name; `None` while it is called nothing.
    aside: Option<OsString>,
    spare: OsString,
}

impl<'a> Aside<'a> {
    /// In this folder; `spare` is what it may be called for as long as it has no name.
    pub fn create(
        dir: BorrowedFd<'a>,
        spare: OsString,
        mode: u32,
    ) -> rustix::io::Result<Aside<'a>> {
        let (mode, flags) = (Mode::from_raw_mode(mode), OFlags::WRONLY | OFlags::CLOEXEC);
        match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => Ok(Aside { file: fd.into(), dir, aside: None, spare }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let fd = rustix::fs::openat(dir, &spare, flags, mode)?;
                let aside = Some(spare.clone());
                Ok(Aside { file: fd.into(), dir, aside, spare })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives it its name, in one step.
    pub fn call(mut self, name: &OsStr, overwrite: bool) -> rustix::io::Result<()> {
        if self.aside.is_none() {
            let link = |name: &OsStr| {
                let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let flags = AtFlags::SYMLINK_FOLLOW;
                match rustix::fs::linkat(rustix::fs::CWD, &path, self.dir, name, flags) {
                    // There is no /proc here.
                    Err(Errno::NOENT) => {
                        let flags = AtFlags::EMPTY_PATH;
                        rustix::fs::linkat(&self.file, "", self.dir, name, flags)
                    }
                    other => other,
                }
            };
            match link(name) {
                // A link replaces nothing, a renaming does.
                Err(Errno::EXIST) if overwrite => {
                    link(&self.spare)?;
                    self.aside = Some(self.spare.clone());
                }
                other => return other,
            }
        }
        let Some(aside) = self.aside.clone() else { return Ok(()) };
        name_it(self.dir, &aside, name, overwrite)?;
        self.aside = None;
        Ok(())
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            let _ = rustix::fs::unlinkat(self.dir, aside, AtFlags::empty());
        }
    }
}

/// Gives what was made aside its name, in one step.
pub(super) fn name_it(
    dir: BorrowedFd<'_>,
    aside: &OsStr,
    name: &OsStr,
    overwrite: bool,
) -> rustix::io::Result<()> {
    if overwrite {
        return rustix::fs::renameat(dir, aside, dir, name);
    }
    match rustix::fs::renameat_with(dir, aside, dir, name, RenameFlags::NOREPLACE) {
        // Not every file system knows how; that nothing is there was checked before.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(dir, aside, dir, name),
        other => other,
    }
}

fn times(meta: &Meta) -> Timestamps {
    let (seconds, nanoseconds) = meta.modified;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// What a permission or attribute costs that the system or file system does not grant
/// is that one thing, not the file: it is passed over.
fn granted(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::NOSPC
            | Errno::RANGE
            | Errno::TOOBIG,
        ) => Ok(()),
        other => other,
    }
}

fn owner(meta: &Meta) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    let of = |id: u32| (id != u32::MAX).then_some(id);
    (of(meta.user).map(rustix::fs::Uid::from_raw), of(meta.group).map(rustix::fs::Gid::from_raw))
}

/// Owner first, for changing it clears the set-user-id bits; attributes before the
/// permissions that may forbid to set them; time last.
pub(super) fn set_meta(fd: BorrowedFd<'_>, meta: &Meta, as_root: bool) -> rustix::io::Result<()> {
    let mut mode = meta.mode;
    if as_root {
        let (user, group) = owner(meta);
        // In a user namespace root may not give a file to just anyone.
        granted(rustix::fs::fchown(fd, user, group))?;
    } else {
        // A program that runs as its owner must not become one that runs as another.
        mode &= 0o1777;
    }
    for (name, value) in &meta.attributes {
        let flags = rustix::fs::XattrFlags::empty();
        granted(rustix::fs::fsetxattr(fd, OsStr::from_bytes(name), value, flags))?;
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
    rustix::fs::futimens(fd, &times(meta))
}

/// The same for what cannot be opened without following or disturbing it.
pub(super) fn set_meta_of_link(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    entry: &Entry,
    as_root: bool,
) -> rustix::io::Result<()> {
    let Some(meta) = &entry.meta else { return Ok(()) };
    if as_root {
        let (user, group) = owner(meta);
        granted(rustix::fs::chownat(dir, name, user, group, AtFlags::SYMLINK_NOFOLLOW))?;
    }
    if !matches!(entry.kind, Kind::Symlink(_)) {
        let mode = if as_root { meta.mode } else { meta.mode & 0o1777 };
        rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    for (key, value) in &meta.attributes {
        // There is no call that sets them by folder and name.
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
        let flags = rustix::fs::XattrFlags::empty();
        granted(rustix::fs::lsetxattr(&path, OsStr::from_bytes(key), value, flags))?;
    }
    rustix::fs::utimensat(dir, name, &times(meta), AtFlags::SYMLINK_NOFOLLOW)
}

/// Folders below the target, opened name by name without following links.
pub(super) struct Places {
    root: OwnedFd,
    target: PathBuf,
    /// The folder used last: neighbours share it.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Places {
    /// Below this folder, which is made if it is not there.
    pub fn new(target: &Path) -> Result<Places> {
        std::fs::create_dir_all(target).map_err(|e| Error::io_at(target, e))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(target, flags, Mode::empty());
        let root = root.map_err(|e| Error::io_at(target, e))?;
        Ok(Places { root, target: target.to_owned(), last: None })
    }

    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.target.join(OsStr::from_bytes(name))
    }

    /// The open folder that a name lies in, made where it is missing, and the last
    /// part of the name.
    pub fn parent(&mut self, name: &[u8]) -> Result<(BorrowedFd<'_>, OsString)> {
        let cut = name.iter().rposition(|&b| b == b'/');
        let base = OsString::from_vec(name[cut.map_or(0, |i| i + 1)..].to_vec());
        let Some(cut) = cut else { return Ok((self.root.as_fd(), base)) };
        let folder = &name[..cut];
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            let fd = self.open_folder(folder, true)?;
            self.last = Some((folder.to_vec(), fd));
        }
        let fd = self.last.as_ref().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
        Ok((fd, base))
    }

    pub fn open_folder(&self, name: &[u8], make: bool) -> Result<OwnedFd> {
        let path = self.path(name);
        let at = |e: Errno| {
            Error::io_at(
                &path,
                match e {
                    // A link, or a file, stands where a folder should be.
                    Errno::LOOP | Errno::NOTDIR => std::io::Error::other(
                        "not a folder of its own: a link or a file is in the way, and is not followed",
                    ),
                    e => e.into(),
                },
            )
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut here: Option<OwnedFd> = None;
        for part in name.split(|&b| b == b'/') {
            let part = OsStr::from_bytes(part);
            let dir = here.as_ref().map_or(self.root.as_fd(), |fd| fd.as_fd());
            let next = match rustix::fs::openat(dir, part, flags, Mode::empty()) {
                Err(Errno::NOENT) if make => {
                    rustix::fs::mkdirat(dir, part, Mode::from_raw_mode(0o777)).map_err(at)?;
                    rustix::fs::openat(dir, part, flags, Mode::empty())
                }
                other => other,
            };
            here = Some(next.map_err(at)?);
        }
        here.ok_or_else(|| Error::invalid("an empty path"))
    }

    pub fn make_folder(&mut self, name: &[u8]) -> Result<()> {
        let path = self.path(name);
        let (dir, base) = self.parent(name)?;
        match rustix::fs::mkdirat(dir, &base, Mode::RWXU) {
            Ok(()) => Ok(()),
            // Fails where it is not a folder.
            Err(Errno::EXIST) => self.open_folder(name, false).map(drop),
            Err(error) => Err(Error::io_at(&path, error)),
        }
    }
}
