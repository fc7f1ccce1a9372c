//! `fiche.Stream`

use std::io::sink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fiche::streams::{IndexOptions, Reader, index, recognise};
use fiche::{Cursor, FileSource, ReadAt};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::bytes;
use crate::error::{Failed, Result};
use crate::source::{self, Origin};

/// What stands behind the name of a file whose index lies beside it.
const SUFFIX: &str = ".fidx";

/// A gzip file that is open for reading; itself a sequence of the bytes of its content.
///
/// Made by `fiche.open`. A read decodes from the nearest place before it that the file's index knows, or from where an
/// earlier read ended, and what is stored is held against its checksum. Any number of threads may read at once, without the interpreter's
/// lock.
///
/// >>> import fiche, gzip
/// >>> stream = fiche.open(gzip.compress(b"one\ntwo\nthree\n"))
/// >>> len(stream), stream[4:7], stream.line(2)
/// (14, b'two', b'three\n')
#[pyclass(frozen, module = "fiche", weakref)]
pub struct Stream {
    reader: Mutex<Option<Reader>>,
}

/// The file beside another one that has its name and this behind it.
fn beside(origin: &Origin, keep: Option<PathBuf>) -> fiche::Result<Option<Arc<dyn ReadAt>>> {
    let found: fiche::Result<Arc<dyn ReadAt>> = match origin {
        Origin::Path(path) => {
            let mut name = path.clone().into_os_string();
            name.push(SUFFIX);
            FileSource::open(name).map(|file| Arc::new(file) as _)
        }
        #[cfg(feature = "remote")]
        Origin::Url(url, _) => source::remote_options(keep)
            .and_then(|options| options.open(&format!("{url}{SUFFIX}")))
            .map(|remote| Arc::new(remote) as _),
        Origin::Object(_) => return Ok(None),
    };
    #[cfg(not(feature = "remote"))]
    let _ = keep;
    match found {
        Ok(source) => Ok(Some(source)),
        Err(fiche::Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Stream {
    pub fn open(
        py: Python<'_>,
        source: Arc<dyn ReadAt>,
        origin: &Origin,
        given: Option<&Bound<'_, PyAny>>,
        keep: Option<PathBuf>,
    ) -> Result<Stream> {
        let given = given.map(|given| source::open(given, keep.clone())).transpose()?;
        let reader = py.detach(|| -> fiche::Result<Reader> {
            if let Some((index, _)) = given {
                return Reader::with_index(source, index);
            }
            if let Some(reader) = Reader::inside(source.clone())? {
                return Ok(reader);
            }
            if let Some(index) = beside(origin, keep)? {
                return Reader::with_index(source, index);
            }
            if let Some(reader) = Reader::open(source.clone())? {
                return Ok(reader);
            }
            if source.as_distant().is_some() {
                let what =
                    "this gzip file has no index: make one by `fiche index`, and put it beside";
                return Err(fiche::Error::Invalid { what: what.into() });
            }
            let mut made = Vec::new();
            index(Cursor::new(source.clone()), &IndexOptions::default(), &mut made, sink())?;
            Reader::with_index(source, Arc::new(made))
        })?;
        Ok(Stream { reader: Mutex::new(Some(reader)) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> Result<Reader> {
        self.lock().clone().ok_or_else(|| Failed::value("the stream is closed"))
    }
}

#[pymethods]
impl Stream {
    fn __len__(&self) -> Result<usize> {
        Ok(self.reader()?.len() as usize)
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        bytes::get(py, &self.reader()?, key)
    }

    /// The `size` bytes at `offset`.
    ///
    /// Raises `IndexError` where they pass the end, `CorruptError`, `OSError`.
    fn read_at<'py>(&self, py: Python<'py>, offset: i64, size: i64) -> Result<Bound<'py, PyBytes>> {
        bytes::read_at(py, &self.reader()?, offset, size)
    }

    /// Fills a buffer with the bytes at `offset`; returns how many.
    ///
    /// Raises `TypeError` where the buffer is read-only, and what `read_at` raises.
    fn readinto_at(&self, py: Python<'_>, offset: i64, buffer: &Bound<'_, PyAny>) -> Result<usize> {
        bytes::readinto_at(py, &self.reader()?, offset, buffer)
    }

    /// The bytes of many places, as `(offset, size)`, in the order that was asked for.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        reads: Vec<(i64, i64)>,
    ) -> Result<Bound<'py, PyList>> {
        bytes::read_many(py, &self.reader()?, reads)
    }

    /// Line `number`, from 0, with its newline. Decodes two units at most.
    ///
    /// Raises `IndexError` where there are fewer, `ValueError` where lines were not counted.
    fn line<'py>(&self, py: Python<'py>, number: u64) -> Result<Bound<'py, PyBytes>> {
        let reader = self.reader()?;
        let range = py.detach(|| reader.line(number))?;
        let range = range.ok_or_else(|| Failed::index(format!("there is no line {number}")))?;
        bytes::read_at(py, &reader, range.start as i64, (range.end - range.start) as i64)
    }

    /// The ranges of the file that reading these places would fetch, as `(position, end)`.
    fn plan(&self, py: Python<'_>, reads: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
        let reader = self.reader()?;
        let range = |(offset, size): (u64, u64)| offset..offset.saturating_add(size);
        let reads: Vec<_> = reads.into_iter().map(range).collect();
        let ranges = py.detach(|| reader.plan(&reads))?;
        Ok(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    /// All of it as a file: an `io.RawIOBase` that can be sought.
    fn file<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().reader()?;
        Ok(slf.py().import("fiche")?.getattr("File")?.call1((slf,))?)
    }

    /// What is known of it: kind, logical_bytes, stored_bytes, index_bytes, units and lines, which is how many line feeds there
    /// are, or `None` where they were not counted.
    fn info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let reader = self.reader()?;
        let dict = PyDict::new(py);
        dict.set_item("kind", reader.format().name())?;
        dict.set_item("logical_bytes", reader.len())?;
        dict.set_item("stored_bytes", reader.stored_len())?;
        dict.set_item("index_bytes", reader.index_len())?;
        dict.set_item("units", reader.units())?;
        dict.set_item("lines", reader.line_feeds())?;
        Ok(dict)
    }

    /// Lets go of the file.
    fn close(&self) {
        *self.lock() = None;
    }

    /// True when it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Result<Bound<'_, Self>> {
        slf.get().reader()?;
        Ok(slf)
    }

    fn __exit__(&self, _kind: Py<PyAny>, _value: Py<PyAny>, _trace: Py<PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match self.reader() {
            Ok(reader) => {
                format!("<fiche.Stream: {} bytes, {}>", reader.len(), reader.format().name())
            }
            Err(_) => "<fiche.Stream, closed>".into(),
        }
    }
}

/// Opens an archive or a gzip file.
#[pyfunction(name = "open")]
#[pyo3(signature = (source, *, cache, dicts, keep, index))]
pub fn open<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    cache: u64,
    dicts: Vec<PathBuf>,
    keep: Option<PathBuf>,
    index: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let (opened, origin) = source::open(source, keep.clone())?;
    let is_gzip = py.detach(|| recognise(&opened))?.is_some();
    if is_gzip {
        let stream = Stream::open(py, opened, &origin, index, keep)?;
        return Ok(Bound::new(py, stream)?.into_any());
    }
    if index.is_some() {
        return Err(Failed::value("only a gzip file is read by an index of its own"));
    }
    let reader = crate::reader::Reader::of(py, opened, origin, cache, dicts, keep)?;
    Ok(Bound::new(py, reader)?.into_any())
}
