//! `fiche.Record`

use std::sync::{Mutex, MutexGuard, PoisonError};

use fiche::ReadAt;
use fiche::archive::{Entry, Kind, Reader as Archive, Record as Content};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::bytes;
use crate::error::Result;
use crate::reader::{self, Reader};
use crate::records::text;

/// A record of an archive: its name, what is known of it, and its content, which is a sequence of bytes and
/// read when it is asked for.
///
/// Taken from `Reader.records`. A hard link reads as the file it is another name of; holes of sparse
/// files read as zeros; a directory or a symbolic link has no content, and reading it raises
/// `ValueError`.
///
/// >>> import fiche, io
/// >>> out = io.BytesIO()
/// >>> report = fiche.pack({"a": b"0123456789"}, out)
/// >>> record = fiche.open(out.getvalue()).records["a"]
/// >>> record.name, len(record), record[2:5], bytes(record)
/// ('a', 10, b'234', b'0123456789')
#[pyclass(frozen, module = "fiche")]
pub struct Record {
    reader: Py<Reader>,
    number: u64,
    entry: Entry,
    /// What it reads, once that was asked for; and in which process.
    content: Mutex<Option<(u64, Content)>>,
}

impl Record {
    pub fn new(reader: Py<Reader>, number: u64, entry: Entry) -> Record {
        Record { reader, number, entry, content: Mutex::new(None) }
    }

    /// A record by its number.
    pub fn at(
        reader: &Py<Reader>,
        archive: &Archive,
        py: Python<'_>,
        number: u64,
    ) -> Result<Record> {
        let entry = py.detach(|| archive.entry(number))?;
        Ok(Record::new(reader.clone_ref(py), number, entry))
    }

    fn content(&self, py: Python<'_>) -> Result<Content> {
        if let Some((forks, content)) = &*self.lock()
            && *forks == reader::forks()
        {
            return Ok(content.clone());
        }
        let archive = self.reader.get().archive(py)?;
        let content = py.detach(|| archive.record_at(self.number))?;
        *self.lock() = Some((reader::forks(), content.clone()));
        Ok(content)
    }

    /// Held for moments, and never while something is read.
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Content)>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Record {
    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        match self.entry.kind {
            Kind::Hardlink(_) => Ok(self.content(py)?.len() as usize),
            _ => Ok(self.entry.len() as usize),
        }
    }

    /// Nothing that is there is false because it is empty.
    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        bytes::get(py, &self.content(py)?, key)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.read(py)
    }

    /// All of its content.
    fn read<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let content = self.content(py)?;
        bytes::read_at(py, &content, 0, content.len() as i64)
    }

    /// As `Reader.read_at`, counted from where the record begins.
    fn read_at<'py>(&self, py: Python<'py>, offset: i64, size: i64) -> Result<Bound<'py, PyBytes>> {
        bytes::read_at(py, &self.content(py)?, offset, size)
    }

    /// As `Reader.readinto_at`, counted from where the record begins.
    fn readinto_at(&self, py: Python<'_>, offset: i64, buffer: &Bound<'_, PyAny>) -> Result<usize> {
        bytes::readinto_at(py, &self.content(py)?, offset, buffer)
    }

    /// As `Reader.read_many`, counted from where the record begins.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        reads: Vec<(i64, i64)>,
    ) -> Result<Bound<'py, PyList>> {
        bytes::read_many(py, &self.content(py)?, reads)
    }

    /// Its content as a file: an `io.RawIOBase` that can be sought.
    fn file<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().content(slf.py())?;
        Ok(slf.py().import("fiche")?.getattr("File")?.call1((slf,))?)
    }

    /// Its name; empty when it has none. Bytes that are no UTF-8 are as `os.fsdecode` makes them.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        text(py, &self.entry.name)
    }

    /// Another name by which an item is found; empty when it has none.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        text(py, &self.entry.key)
    }

    /// Its number in the archive, from 0.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// What it is: data, file, directory, symlink, hardlink, fifo, character device, block device or item.
    #[getter]
    fn kind(&self) -> &'static str {
        self.entry.kind.name()
    }

    /// Length of its content in bytes, holes included.
    #[getter]
    fn size(&self, py: Python<'_>) -> Result<usize> {
        self.__len__(py)
    }

    /// Where its content begins in that of the archive.
    #[getter]
    fn offset(&self) -> u64 {
        self.entry.range.start
    }

    /// Where all of its content stands in that of the archive: from where to where, for `Reader.read_many` to
    /// read of many records at once. None where it has holes, or is that of another record.
    #[getter]
    fn range(&self) -> Option<(u64, u64)> {
        let is_plain = self.entry.extents.is_none();
        let is_own = !matches!(self.entry.kind, Kind::Hardlink(_));
        (is_plain && is_own).then_some((self.entry.range.start, self.entry.range.end))
    }

    /// What a symbolic link leads to.
    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        match &self.entry.kind {
            Kind::Symlink(target) => text(py, target).map(Some),
            _ => Ok(None),
        }
    }

    /// The number of the record that a hard link is another name of.
    #[getter]
    fn link(&self) -> Option<u64> {
        match self.entry.kind {
            Kind::Hardlink(to) => Some(to),
            _ => None,
        }
    }

    /// Permission bits, where they are known.
    #[getter]
    fn mode(&self) -> Option<u32> {
        self.entry.meta.as_ref().map(|meta| meta.mode)
    }

    /// When it was last modified, in nanoseconds since 1970, where that is known.
    #[getter]
    fn mtime_ns(&self) -> Option<i128> {
        let modified = self.entry.meta.as_ref()?.modified;
        Some(i128::from(modified.0) * 1_000_000_000 + i128::from(modified.1))
    }

    /// The same in seconds.
    #[getter]
    fn mtime(&self) -> Option<f64> {
        let modified = self.entry.meta.as_ref()?.modified;
        Some(modified.0 as f64 + f64::from(modified.1) / 1e9)
    }

    /// Number of its owner, where that is known.
    #[getter]
    fn uid(&self) -> Option<u32> {
        self.entry.meta.as_ref().map(|meta| meta.user)
    }

    /// Number of its group, where that is known.
    #[getter]
    fn gid(&self) -> Option<u32> {
        self.entry.meta.as_ref().map(|meta| meta.group)
    }

    /// Extended attributes: names and values.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.entry.meta.iter().flat_map(|meta| &meta.attributes) {
            dict.set_item(text(py, name)?, PyBytes::new(py, value))?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let (number, name) = (self.number, self.entry.display_name());
        format!("<fiche.Record #{number} {name:?}: {}, {} bytes>", self.kind(), self.entry.len())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), slf.get());
        let records = this.reader.bind(py).getattr("records")?;
        let get = py.import("operator")?.getattr("getitem")?;
        Ok((get, (records, this.number)).into_pyobject(py)?)
    }
}
