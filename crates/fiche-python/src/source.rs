//! What an archive is read from: a path, a URL, bytes, or a file object of Python's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fiche::{FileSource, ReadAt};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};

use crate::buffer::Buffer;
use crate::error::{Failed, Result, from_python};

/// Where it came from: what is needed to open it again elsewhere.
pub enum Origin {
    Path(PathBuf),
    #[cfg(feature = "remote")]
    Url(String, Arc<fiche_remote::Remote>),
    Object(Py<PyAny>),
}

/// A source of what Python calls it. Strings with `://` in them that are read neither as web servers nor as S3
/// are opened by fsspec.
pub fn open(object: &Bound<'_, PyAny>, keep: Option<PathBuf>) -> Result<(Arc<dyn ReadAt>, Origin)> {
    let py = object.py();
    if let Ok(url) = object.cast::<PyString>()
        && url.to_cow()?.contains("://")
    {
        #[cfg(feature = "remote")]
        if let url = url.to_cow()?
            && ["http://", "https://", "s3://", "s3a://"].iter().any(|known| url.starts_with(known))
        {
            let url = url.into_owned();
            let remote = py.detach(|| remote_options(keep)?.open(&url)).map(Arc::new)?;
            return Ok((remote.clone(), Origin::Url(url, remote)));
        }
        #[cfg(not(feature = "remote"))]
        let _ = keep;
        let fsspec = py.import("fsspec").map_err(|_| {
            Failed::value(format!(
                "{url}: what is not a file is read by fsspec, which is not installed"
            ))
        })?;
        let file = fsspec.call_method1("open", (url, "rb"))?.call_method0("open")?;
        return Ok((Arc::new(FileObject::new(&file)?), Origin::Object(file.unbind())));
    }
    if let Ok(path) = object.extract::<PathBuf>() {
        let source = py.detach(|| FileSource::open(&path)).map_err(|error| match &error {
            fiche::Error::Io(refused) => match refused.raw_os_error() {
                Some(number) => refusal(py, number, &path),
                None => error.into(),
            },
            _ => error.into(),
        })?;
        // Wherever it is opened again, it is the same file.
        return Ok((Arc::new(source), Origin::Path(std::path::absolute(path)?)));
    }
    let origin = Origin::Object(object.clone().unbind());
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok((Arc::new(Bytes(PyBackedBytes::from(bytes.clone()))), origin));
    }
    if object.hasattr("read")? && object.hasattr("seek")? {
        return Ok((Arc::new(FileObject::new(object)?), origin));
    }
    // What may change is copied.
    Ok((Arc::new(Buffer::get(object)?.as_bytes().to_vec()), origin))
}

/// How objects are read: with what the environment says, and what is fetched kept in this folder.
#[cfg(feature = "remote")]
pub fn remote_options(keep: Option<PathBuf>) -> fiche::Result<fiche_remote::Options> {
    match keep {
        Some(path) => fiche_remote::Options::keeping(path),
        None => fiche_remote::Options::from_env(),
    }
}

/// As `open` says that a file cannot be opened.
fn refusal(py: Python<'_>, number: i32, path: &std::path::Path) -> Failed {
    let made = (|| {
        let text = py.import("os")?.call_method1("strerror", (number,))?.unbind();
        Ok(PyOSError::new_err((number, text, path.as_os_str().to_owned())))
    })();
    made.unwrap_or_else(|error: PyErr| error).into()
}

/// Bytes of Python's, where they are.
struct Bytes(PyBackedBytes);

impl ReadAt for Bytes {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        let bytes: &[u8] = self.0.as_ref();
        bytes.read_at(offset, buf)
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        Some(self.0.as_ref())
    }
}

/// A file object that is read and sought: one read at a time.
pub struct FileObject {
    object: Py<PyAny>,
    len: u64,
    /// Taken without the interpreter's lock, which is asked for while it is held.
    turn: Mutex<()>,
}

impl FileObject {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<FileObject> {
        let len = object.call_method1("seek", (0, 2))?;
        // Some objects give nothing back from `seek`.
        let len = if len.is_none() { object.call_method0("tell")? } else { len };
        let (object, len) = (object.clone().unbind(), len.extract()?);
        Ok(FileObject { object, len, turn: Mutex::new(()) })
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> PyResult<()> {
        Python::attach(|py| {
            let object = self.object.bind(py);
            object.call_method1("seek", (offset,))?;
            let mut filled = 0;
            while filled < buf.len() {
                let some = object.call_method1("read", (buf.len() - filled,))?;
                let some = Buffer::get(&some)?;
                let some = some.as_bytes();
                if some.is_empty() || some.len() > buf.len() - filled {
                    let what = "the file object gave another number of bytes than it has";
                    return Err(PyOSError::new_err(what));
                }
                buf[filled..filled + some.len()].copy_from_slice(some);
                filled += some.len();
            }
            Ok(())
        })
    }
}

impl ReadAt for FileObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.len {
            return Err(fiche::Error::OutOfBounds { range: offset..end, len: self.len });
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(offset, buf).map_err(from_python)
    }
}
