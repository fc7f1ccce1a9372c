//! Errors as the exceptions that Python's users know them by.

use fiche::{Error, Place};
use pyo3::exceptions::{PyIndexError, PyKeyError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::source::Origin;

/// An error on its way to Python.
pub struct Failed(PyErr);

/// What functions that Python calls give.
pub type Result<T> = std::result::Result<T, Failed>;

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> PyErr {
        failed.0
    }
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Failed {
        Failed(error)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Error::Io(error).into()
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(Python::attach(|py| exception(py, error)))
    }
}

impl Failed {
    pub fn value(message: impl Into<String>) -> Failed {
        Failed(PyValueError::new_err(message.into()))
    }

    /// An error of what was opened there.
    pub fn at(origin: &Origin, error: Error) -> Failed {
        let place = match origin {
            Origin::Path(path) => path.display().to_string(),
            #[cfg(feature = "remote")]
            Origin::Url(url, _) => url.clone(),
            Origin::Object(_) => return error.into(),
        };
        // What the system refuses names it already.
        if matches!(error, Error::Io(_)) {
            return error.into();
        }
        let message = format!("{place}: {error}");
        Failed(Python::attach(|py| exception_with(py, error, message)))
    }

    pub fn index(message: impl Into<String>) -> Failed {
        Failed(PyIndexError::new_err(message.into()))
    }
}

/// An exception of Python's as an error of the library, which comes back as what it was.
pub fn from_python(error: PyErr) -> Error {
    Error::Io(std::io::Error::other(error))
}

/// One of the package's own exceptions, with what is known as attributes.
fn own(py: Python<'_>, name: &str, message: String, known: &[(&str, u64)], what: &str) -> PyErr {
    let made = (|| {
        let attributes = PyDict::new(py);
        attributes.set_item("what", what)?;
        for (name, value) in known {
            attributes.set_item(name, value)?;
        }
        py.import("fiche")?.getattr(name)?.call((message,), Some(&attributes))
    })();
    made.map_or_else(|error| error, PyErr::from_value)
}

fn exception(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    exception_with(py, error, message)
}

fn exception_with(py: Python<'_>, error: Error, message: String) -> PyErr {
    match error {
        Error::Io(error) => io_exception(py, error, message),
        Error::OutOfBounds { .. } => PyIndexError::new_err(message),
        Error::NotFound { .. } => PyKeyError::new_err(message),
        Error::Corrupt { what, at } => {
            let known = match at {
                Place::Pos(pos) => vec![("pos", pos)],
                Place::Block { block, pos } => vec![("block", block), ("pos", pos)],
                Place::Record(number) => vec![("record", number)],
                Place::Event { event, pos } => vec![("event", event), ("pos", pos)],
                _ => Vec::new(),
            };
            own(py, "CorruptError", message, &known, what)
        }
        Error::Missing { what, .. } => own(py, "MissingError", message, &[], what),
        Error::Changed { what } => own(py, "ChangedError", message, &[], what),
        Error::Unsupported { what, .. } => own(py, "UnsupportedError", message, &[], what),
        Error::Limit { .. } => PyMemoryError::new_err(message),
        Error::Busy { .. } => own(py, "BusyError", message, &[], "archive"),
        Error::Poisoned => own(py, "PoisonedError", message, &[], "archive"),
        _ => PyValueError::new_err(message),
    }
}

/// `OSError` of the number that the system gave, or of the kind it is of, so that it is
/// `FileNotFoundError` where that is what it is.
fn io_exception(py: Python<'_>, error: std::io::Error, message: String) -> PyErr {
    let mut number = error.raw_os_error();
    let mut inner = error.get_ref().map(|e| e as &(dyn std::error::Error + 'static));
    while let Some(cause) = inner {
        if let Some(raised) = cause.downcast_ref::<PyErr>() {
            return raised.clone_ref(py);
        }
        if let Some(cause) = cause.downcast_ref::<std::io::Error>() {
            number = number.or(cause.raw_os_error());
        }
        inner = cause.source();
    }
    let name = match error.kind() {
        std::io::ErrorKind::NotFound => "ENOENT",
        std::io::ErrorKind::AlreadyExists => "EEXIST",
        std::io::ErrorKind::PermissionDenied => "EACCES",
        std::io::ErrorKind::IsADirectory => "EISDIR",
        _ => "EIO",
    };
    let number = match number {
        Some(number) => Ok(number),
        None => py.import("errno").and_then(|errno| errno.getattr(name)?.extract()),
    };
    number.map_or_else(|error| error, |number| PyOSError::new_err((number, message)))
}
