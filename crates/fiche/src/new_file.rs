//! Files that appear under their name only when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::error::{Error, Result};

const BUFFER: usize = 1 << 20;

/// A file that is written aside, and gets its name when it is whole and on the device. Until then,
/// and where it is dropped before, what is under that name stays as it is.
///
/// ```
/// use std::io::Write;
/// use fiche::NewFile;
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("letter");
///
/// let mut file = NewFile::create(&path, false)?;
/// file.write_all(b"dear a")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"dear a");
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Debug)]
pub struct NewFile {
    file: BufWriter<File>,
    aside: TempPath,
    path: PathBuf,
    overwrite: bool,
}

impl NewFile {
    /// Begins a file that will be at this path. With `overwrite` it replaces one that is there, and
    /// takes over its permissions; what a symbolic link leads to is replaced, not the link.
    ///
    /// # Errors
    /// [`Error::Io`] with the path: where a file is there already and is not to be replaced, where
    /// something else than a file is there, or where none can be made in that folder.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<NewFile> {
        let path = path.as_ref();
        let path = match path.is_symlink() {
            true => path.canonicalize().map_err(|e| Error::io_at(path, e))?,
            false => path.to_owned(),
        };
        let at = |error: io::Error| Error::io_at(&path, error);
        let mode = match std::fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => return Err(at(io::ErrorKind::IsADirectory.into())),
            Ok(meta) if !meta.is_file() => {
                return Err(at(io::Error::other("is no regular file, and is not replaced")));
            }
            Ok(_) if !overwrite => return Err(at(io::ErrorKind::AlreadyExists.into())),
            Ok(meta) => meta.permissions().mode() & 0o777,
            Err(_) => 0o666,
        };
        let file = tempfile::Builder::new()
            .prefix(".fiche-")
            .suffix(".part")
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(folder_of(&path))
            .map_err(at)?;
        let (file, aside) = file.into_parts();
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(NewFile { file, aside, path, overwrite })
    }

    /// The path that it will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called as long as it is not whole, in the same folder.
    #[must_use]
    pub fn aside(&self) -> &Path {
        &self.aside
    }

    /// Lets it be called something else in the end.
    pub fn rename(&mut self, path: impl Into<PathBuf>) {
        self.path = path.into();
    }

    /// Makes it durable and gives it its name, in one step.
    ///
    /// # Errors
    /// [`Error::Io`] with the path; then nothing is left of it.
    pub fn finish(self) -> Result<()> {
        let NewFile { file, aside, path, overwrite } = self;
        let at = |error: io::Error| Error::io_at(&path, error);
        let file = file.into_inner().map_err(|e| at(e.into_error()))?;
        file.sync_all().map_err(at)?;
        drop(file);
        let named = match overwrite {
            true => aside.persist(&path),
            false => aside.persist_noclobber(&path),
        };
        named.map_err(|e| at(e.error))?;
        // The name is durable when its folder is.
        File::open(folder_of(&path)).and_then(|folder| folder.sync_all()).map_err(at)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Errors name the file: they may come out far from here.
impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|e| Error::path_error(&self.path, e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|e| Error::path_error(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_there_before_it_is_whole_and_nothing_is_left_where_it_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let count = || std::fs::read_dir(dir.path()).unwrap().count();
        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"one").unwrap();
        assert!(!path.exists() && file.aside().exists());
        drop(file);
        assert_eq!(count(), 0);
        // Two at once: the second finds the name taken.
        let (first, second) = (NewFile::create(&path, false), NewFile::create(&path, false));
        let (mut first, mut second) = (first.unwrap(), second.unwrap());
        first.write_all(b"first").unwrap();
        second.write_all(b"second").unwrap();
        first.finish().unwrap();
        let error = second.finish().unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert_eq!((std::fs::read(&path).unwrap(), count()), (b"first".to_vec(), 1));
        assert!(NewFile::create(&path, false).is_err());
        // The permissions of what is replaced, through a link, which stays.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut file = NewFile::create(&link, true).unwrap();
        file.write_all(b"third").unwrap();
        file.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // What is no file stays what it is.
        for other in [dir.path(), Path::new("/dev/null"), Path::new("/no/such/folder/file")] {
            assert!(NewFile::create(other, true).is_err());
        }
    }
}
