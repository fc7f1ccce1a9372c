//! `fiche.Records`: the records of an archive as a mapping.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use fiche::archive::{Entry, Reader as Archive};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::error::Result;
use crate::reader::Reader;
use crate::record::Record;

/// A name as `os.fsdecode` makes text of it: bytes that are no UTF-8 survive.
pub fn text<'py>(py: Python<'py>, name: &[u8]) -> Result<Bound<'py, PyAny>> {
    Ok(OsStr::from_bytes(name).into_pyobject(py).map_err(PyErr::from)?.into_any())
}

/// And back; bytes are taken as they are.
pub fn name_of(name: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match name.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Ok(name.extract::<OsString>()?.into_vec()),
    }
}

/// The records of an archive: a mapping of names to records, which takes their numbers as well.
///
/// Goes through them in the order they were packed in; what has no name is known by its number. Names
/// are looked up in O(log n) steps.
///
/// >>> import fiche, io
/// >>> out = io.BytesIO()
/// >>> report = fiche.pack({"a": b"first", "b": b"second"}, out)
/// >>> records = fiche.open(out.getvalue()).records
/// >>> list(records), len(records), records["b"].read(), records[0].name, "c" in records
/// (['a', 'b'], 2, b'second', 'a', False)
/// >>> records["aa"]
/// Traceback (most recent call last):
/// ...
/// KeyError: 'there is no "aa"'
#[pyclass(frozen, module = "fiche")]
pub struct Records {
    reader: Py<Reader>,
}

impl Records {
    pub fn new(reader: Py<Reader>) -> Records {
        Records { reader }
    }

    fn archive(&self, py: Python<'_>) -> Result<Archive> {
        self.reader.get().archive(py)
    }

    fn iter(&self, py: Python<'_>, gives: Gives) -> Result<RecordIterator> {
        self.archive(py)?;
        let reader = self.reader.clone_ref(py);
        Ok(RecordIterator { reader, gives, numbers: None, next: 0, batch: VecDeque::new() })
    }
}

#[pymethods]
impl Records {
    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.archive(py)?.records() as usize)
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<Record> {
        let archive = self.archive(py)?;
        if let Ok(number) = key.extract::<i64>() {
            let at = if number < 0 { number + archive.records() as i64 } else { number };
            let missing = || fiche::Error::NotFound { name: format!("#{number}"), nearest: None };
            let at = u64::try_from(at).ok().filter(|&at| at < archive.records());
            return Record::at(&self.reader, &archive, py, at.ok_or_else(missing)?);
        }
        let name = name_of(key)?;
        let (number, entry) = py.detach(|| archive.entry_of(name))?;
        Ok(Record::new(self.reader.clone_ref(py), number, entry))
    }

    /// The record of this name, or None.
    fn find(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Result<Option<Record>> {
        let (archive, name) = (self.archive(py)?, name_of(name)?);
        let found = py.detach(|| archive.find(name))?;
        Ok(found.map(|(number, entry)| Record::new(self.reader.clone_ref(py), number, entry)))
    }

    /// The record of this name or number, or something else where there is none.
    #[pyo3(signature = (key, default = None))]
    fn get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> Result<Option<Py<PyAny>>> {
        match self.__contains__(py, key)? {
            true => Ok(Some(Py::new(py, self.__getitem__(py, key)?)?.into_any())),
            false => Ok(default),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<bool> {
        let archive = self.archive(py)?;
        if let Ok(number) = key.extract::<i64>() {
            let count = archive.records() as i64;
            return Ok((-count..count).contains(&number));
        }
        let Ok(name) = name_of(key) else { return Ok(false) };
        Ok(py.detach(|| archive.find(name))?.is_some())
    }

    /// All records whose names begin so, in order of their names where nothing was appended.
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>) -> Result<RecordIterator> {
        let (archive, prefix) = (self.archive(py)?, name_of(prefix)?);
        let numbers = py.detach(|| {
            let found = archive.prefix(&prefix).map(|item| Ok(item?.0));
            found.collect::<fiche::Result<Vec<u64>>>()
        })?;
        let mut iter = self.iter(py, Gives::Records)?;
        iter.numbers = Some(numbers.into());
        Ok(iter)
    }

    fn __iter__(&self, py: Python<'_>) -> Result<RecordIterator> {
        self.iter(py, Gives::Names)
    }

    /// One after the other, a page of the index at a time: "names", "records", or "both".
    fn _each(&self, py: Python<'_>, what: &str) -> Result<RecordIterator> {
        let gives = match what {
            "names" => Gives::Names,
            "records" => Gives::Records,
            _ => Gives::Both,
        };
        self.iter(py, gives)
    }

    /// The names, in order; of records without a name, their numbers.
    fn keys<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        view(slf, "Keys")
    }

    /// The records, in order.
    fn values<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        view(slf, "Values")
    }

    /// Names and records, in order.
    fn items<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        view(slf, "Items")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.archive(py) {
            Ok(archive) => format!("<fiche.Records: {}>", archive.records()),
            Err(_) => "<fiche.Records, closed>".into(),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTuple>> {
        let py = slf.py();
        let get = py.import("builtins")?.getattr("getattr")?;
        Ok((get, (slf.get().reader.clone_ref(py), "records")).into_pyobject(py)?)
    }
}

/// A view of the records, of which there are some with a length that can be gone through more than once.
fn view<'py>(records: &Bound<'py, Records>, kind: &str) -> Result<Bound<'py, PyAny>> {
    // Of a reader that is closed there is none.
    records.get().archive(records.py())?;
    Ok(records.py().import("fiche._views")?.getattr(kind)?.call1((records,))?)
}

#[derive(Clone, Copy)]
enum Gives {
    Names,
    Records,
    Both,
}

/// Goes through records a page of the index at a time.
#[pyclass(module = "fiche", name = "_RecordIterator")]
pub struct RecordIterator {
    reader: Py<Reader>,
    gives: Gives,
    /// Only these.
    numbers: Option<VecDeque<u64>>,
    next: u64,
    batch: VecDeque<(u64, Entry)>,
}

/// Records that are taken from the index at once.
const BATCH: usize = 256;

impl RecordIterator {
    fn step(&mut self, py: Python<'_>) -> Result<Option<(u64, Entry)>> {
        if self.batch.is_empty() {
            // Behind a fork it is another one.
            let archive = self.reader.get().archive(py)?;
            let batch: fiche::Result<VecDeque<_>> = match &mut self.numbers {
                Some(numbers) => {
                    let some: Vec<u64> = numbers.drain(..numbers.len().min(BATCH)).collect();
                    py.detach(|| some.into_iter().map(|n| Ok((n, archive.entry(n)?))).collect())
                }
                None => {
                    let next = self.next;
                    py.detach(|| archive.entries(next).take(BATCH).collect())
                }
            };
            self.batch = batch?;
        }
        let found = self.batch.pop_front();
        if let Some((number, _)) = found {
            self.next = number + 1;
        }
        Ok(found)
    }
}

#[pymethods]
impl RecordIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let Some((number, entry)) = self.step(py)? else { return Ok(None) };
        // What has no name is known by its number.
        let name = match entry.name.is_empty() {
            true => number.into_pyobject(py).map_err(PyErr::from)?.into_any(),
            false => text(py, &entry.name)?,
        };
        if let Gives::Names = self.gives {
            return Ok(Some(name));
        }
        let record = Bound::new(py, Record::new(self.reader.clone_ref(py), number, entry))?;
        Ok(Some(match self.gives {
            Gives::Both => (name, record).into_pyobject(py)?.into_any(),
            _ => record.into_any(),
        }))
    }
}
