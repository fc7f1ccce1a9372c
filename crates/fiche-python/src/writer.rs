//! `fiche.Writer`

use std::io::{Read, Write};
use std::path::PathBuf;

use fiche::archive::{Entry, Writer as Archive};
use fiche::{NewFile, ReadAt};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::error::{Failed, Result};
use crate::options::Blocks;
use crate::own::Own;
use crate::records::name_of;

/// Where an archive is written: a file that appears when it is whole, or a file object of Python's.
pub struct Out {
    sink: Sink,
    written: u64,
}

enum Sink {
    File(NewFile),
    Object(Py<PyAny>),
}

impl Out {
    pub fn create(output: &Bound<'_, PyAny>, overwrite: bool) -> Result<Out> {
        if let Ok(path) = output.extract::<PathBuf>() {
            let file = output.py().detach(|| NewFile::create(path, overwrite))?;
            return Ok(Out { sink: Sink::File(file), written: 0 });
        }
        match output.hasattr("write")? {
            true => Ok(Out { sink: Sink::Object(output.clone().unbind()), written: 0 }),
            false => {
                let what = "the output is neither a path nor a file object";
                Err(pyo3::exceptions::PyTypeError::new_err(what).into())
            }
        }
    }

    /// Bytes that it took.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What the file is called as long as it is not whole.
    pub fn aside(&self) -> Option<&std::path::Path> {
        match &self.sink {
            Sink::File(file) => Some(file.aside()),
            Sink::Object(_) => None,
        }
    }

    /// It is whole.
    pub fn finish(self) -> fiche::Result<()> {
        match self.sink {
            Sink::File(file) => file.finish(),
            Sink::Object(_) => Ok(()),
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = match &mut self.sink {
            Sink::File(file) => file.write(bytes)?,
            Sink::Object(object) => {
                let written = Python::attach(|py| {
                    let bytes = pyo3::types::PyBytes::new(py, bytes);
                    let written = object.bind(py).call_method1("write", (bytes,))?;
                    written.extract::<Option<usize>>()
                });
                // Some give nothing back, and have taken all.
                written.map_err(std::io::Error::other)?.unwrap_or(bytes.len())
            }
        };
        self.written += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match &mut self.sink {
            Sink::File(file) => file.flush(),
            Sink::Object(object) => Python::attach(|py| {
                let object = object.bind(py);
                match object.hasattr("flush")? {
                    true => object.call_method0("flush").map(drop),
                    false => Ok(()),
                }
            })
            .map_err(std::io::Error::other),
        }
    }
}

/// What is written: bytes, or a file object that is read to its end.
pub enum Input {
    Bytes(Buffer),
    Object(Py<PyAny>),
}

impl Input {
    pub fn of(data: &Bound<'_, PyAny>) -> Result<Input> {
        match data.hasattr("read")? {
            true => Ok(Input::Object(data.clone().unbind())),
            false => Ok(Input::Bytes(Buffer::get(data)?)),
        }
    }

    /// Reads the beginning of a file object.
    fn ahead(self) -> fiche::Result<Ahead> {
        match self {
            Input::Bytes(buffer) => Ok(Ahead::Bytes(buffer)),
            Input::Object(object) => {
                let (mut rest, mut start) =
                    (Chunks { object, chunk: Vec::new(), at: 0 }, Vec::new());
                (&mut rest).take(AHEAD).read_to_end(&mut start)?;
                Ok(Ahead::Object(start, rest))
            }
        }
    }
}

/// Bytes of a file object that are read before a record is begun.
const AHEAD: u64 = 8 << 20;

/// What is written, as far as it was read.
enum Ahead {
    Bytes(Buffer),
    Object(Vec<u8>, Chunks),
}

impl Ahead {
    /// All of it, as something to read.
    fn with<T>(self, with: impl FnOnce(&mut dyn Read) -> T) -> T {
        match self {
            Ahead::Bytes(buffer) => with(&mut buffer.as_bytes()),
            Ahead::Object(start, rest) => match start.len() as u64 {
                AHEAD => with(&mut std::io::Cursor::new(start).chain(rest)),
                _ => with(&mut &start[..]),
            },
        }
    }
}

/// A file object, read in chunks.
struct Chunks {
    object: Py<PyAny>,
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.chunk.len() {
            let chunk = Python::attach(|py| -> PyResult<Vec<u8>> {
                py.check_signals()?;
                let chunk = self.object.bind(py).call_method1("read", (1 << 20,))?;
                Ok(Buffer::get(&chunk)?.as_bytes().to_vec())
            });
            (self.chunk, self.at) = (chunk.map_err(std::io::Error::other)?, 0);
        }
        let len = buf.len().min(self.chunk.len() - self.at);
        buf[..len].copy_from_slice(&self.chunk[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// Buffers, one behind the other.
pub struct Parts {
    parts: Vec<Buffer>,
    ends: Vec<u64>,
}

impl Parts {
    pub fn new(parts: Vec<Buffer>) -> Parts {
        let mut end = 0;
        let add = |part: &Buffer| {
            end += part.as_bytes().len() as u64;
            end
        };
        let ends = parts.iter().map(add).collect();
        Parts { parts, ends }
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Buffer::as_bytes)
    }
}

impl ReadAt for Parts {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.len() {
            return Err(fiche::Error::OutOfBounds { range: offset..end, len: self.len() });
        }
        let (mut at, mut rest) = (offset, buf);
        let mut i = self.ends.partition_point(|&end| end <= at);
        while !rest.is_empty() {
            let part = self.parts[i].as_bytes();
            let start = self.ends[i] - part.len() as u64;
            let part = &part[(at - start) as usize..];
            let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
            now.copy_from_slice(&part[..now.len()]);
            at += now.len() as u64;
            (rest, i) = (later, i + 1);
        }
        Ok(())
    }
}

/// What to learn from: bytes, or a list of them.
fn learn_from(learn: Option<&Bound<'_, PyAny>>) -> Result<Parts> {
    let Some(learn) = learn else { return Ok(Parts::new(Vec::new())) };
    if let Ok(one) = Buffer::get(learn) {
        return Ok(Parts::new(vec![one]));
    }
    let parts = learn.try_iter()?.map(|part| Buffer::get(&part?)).collect::<PyResult<_>>()?;
    Ok(Parts::new(parts))
}

/// Writes an archive record by record.
///
/// `output` is a path, under which the archive is there when it is closed and whole, or a file object. Options are
/// those of `fiche.pack`. A shared dictionary and models are learned from `learn`: bytes, or a list of
/// them, like those that will be added. Without it, blocks are compressed by Zstandard, each on its own.
///
/// Any number of threads may add; blocks are compressed by threads of its own. Left by an exception, a `with`
/// block leaves no archive.
///
/// >>> import fiche, io
/// >>> out = io.BytesIO()
/// >>> with fiche.Writer(out, method="lz4") as writer:
/// ...     writer.add("a", b"first"), writer.add("b", io.BytesIO(b"second"))
/// (0, 1)
/// >>> fiche.open(out.getvalue()).records["b"].read()
/// b'second'
#[pyclass(frozen, module = "fiche")]
pub struct Writer {
    archive: Own<Archive<Out>>,
}

impl Writer {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut Archive<Out>) -> fiche::Result<T> + Send,
    ) -> Result<T> {
        self.archive
            .with(py, |archive| archive.as_mut().map(with).transpose())?
            .map_err(|error: fiche::Error| Failed::from(error))?
            .ok_or_else(|| Failed::value("the writer is closed"))
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (
        output, *, method = None, level = None, filters = Vec::new(), block = 16 << 10, dict = None, learn = None,
        align_records = false, threads = None, overwrite = false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are options with names")]
    fn new(
        py: Python<'_>,
        output: &Bound<'_, PyAny>,
        method: Option<&str>,
        level: Option<i32>,
        filters: Vec<String>,
        block: usize,
        dict: Option<&Bound<'_, PyAny>>,
        learn: Option<&Bound<'_, PyAny>>,
        align_records: bool,
        threads: Option<usize>,
        overwrite: bool,
    ) -> Result<Writer> {
        let blocks = Blocks::new((method, level, &filters), (block, align_records), dict, threads)?;
        let learn = learn_from(learn)?;
        let out = Out::create(output, overwrite)?;
        let archive = py.detach(|| Archive::new(out, blocks.options(&learn)?))?;
        Ok(Writer { archive: Own::new(archive) })
    }

    /// Adds a record: its name, which no other one has, and its content, bytes or a file object that is
    /// read to its end. Returns its number. Where reading fails within the first 8 MiB, nothing was added; beyond that the archive cannot be finished any
    /// more.
    #[pyo3(signature = (name, data))]
    fn add(&self, py: Python<'_>, name: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> Result<u64> {
        let entry = Entry::data(name_of(name)?);
        let data = Input::of(data)?;
        // What is read of it is read before anything is begun, and while others may write.
        let data = py.detach(|| data.ahead())?;
        self.with(py, |archive| data.with(|data| archive.add(entry, data)))
    }

    /// Adds content that belongs to no record. Returns its length.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<usize> {
        let data = Buffer::get(data)?;
        let bytes = data.as_bytes();
        self.with(py, |archive| Ok(archive.write_all(bytes)?))?;
        Ok(bytes.len())
    }

    /// Length of the content so far.
    fn tell(&self, py: Python<'_>) -> Result<u64> {
        self.with(py, |archive| Ok(archive.offset()))
    }

    /// Ends the archive: it is whole, on the device, and under its name.
    fn close(&self, py: Python<'_>) -> Result<()> {
        let end = |archive: &mut Option<Archive<Out>>| {
            archive.take().map_or(Ok(()), |archive| archive.finish()?.finish())
        };
        self.archive.with(py, end)?.map_err(Failed::from)
    }

    /// Leaves no archive.
    fn discard(&self, py: Python<'_>) -> Result<()> {
        self.archive.forget(py)
    }

    /// True when nothing more can be written.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.archive.is_over(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// What was begun and failed appears nowhere.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Py<PyAny>>,
        _value: Option<Py<PyAny>>,
        _trace: Option<Py<PyAny>>,
    ) -> Result<()> {
        match kind {
            None => self.close(py),
            Some(_) => self.discard(py),
        }
    }
}
