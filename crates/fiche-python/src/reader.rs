//! `fiche.Reader`

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fiche::archive::{OpenOptions, Reader as Archive};
use fiche::rlz::Dictionary;
use fiche::{InFolder, ReadAt};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::bytes;
use crate::error::{Failed, Result};
use crate::options::threads;
use crate::pack::Progress;
use crate::records::Records;
use crate::source::{self, Origin};

/// How often this process was forked from another one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Called in a child process: its readers begin anew, for threads that are not there may have left
/// theirs in the middle of something.
#[pyfunction(name = "_forked")]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks there were.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// The last bytes of an archive, which tell of all of it.
const TAIL: u64 = 64;

fn tail(source: &dyn ReadAt) -> fiche::Result<Vec<u8>> {
    let mut tail = vec![0; source.len().min(TAIL) as usize];
    source.read_at(source.len() - tail.len() as u64, &mut tail)?;
    Ok(tail)
}

struct State {
    archive: Archive,
    source: Arc<dyn ReadAt>,
    forks: u64,
}

/// An archive that is open for reading; itself a sequence of the bytes of all its content.
///
/// Made by `fiche.open`. Reads decode the blocks they touch and nothing else, and verify the
/// checksum of each. Any number of threads may read at once, without the interpreter's lock. A reader can be pickled: it
/// is opened again by its path, and `ChangedError` is raised where that is another archive by then.
///
/// >>> import fiche, io
/// >>> out = io.BytesIO()
/// >>> report = fiche.pack({"a": b"0123456789"}, out)
/// >>> reader = fiche.open(out.getvalue())
/// >>> len(reader), reader[2:5], reader[-1]
/// (10, b'234', 57)
#[pyclass(frozen, module = "fiche", weakref)]
pub struct Reader {
    state: Mutex<Option<State>>,
    origin: Origin,
    options: OpenOptions,
    cache: u64,
    dicts: Vec<PathBuf>,
    keep: Option<PathBuf>,
}

impl Reader {
    fn open(
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        cache: u64,
        dicts: Vec<PathBuf>,
        keep: Option<PathBuf>,
    ) -> Result<Reader> {
        let (source, origin) = source::open(object, keep.clone())?;
        Reader::of(py, source, origin, cache, dicts, keep)
    }

    /// The archive in a source that is open.
    pub fn of(
        py: Python<'_>,
        source: Arc<dyn ReadAt>,
        origin: Origin,
        cache: u64,
        dicts: Vec<PathBuf>,
        keep: Option<PathBuf>,
    ) -> Result<Reader> {
        let mut options = OpenOptions::default().cache(cache);
        #[cfg(feature = "remote")]
        if let Origin::Url(url, _) = &origin {
            let remote = source::remote_options(keep.clone())?;
            if let Some(folder) = remote.kept() {
                options = options.dictionary_cache(folder.clone());
            }
            options = options.resolve(Arc::new(fiche_remote::Beside::new(url, remote)));
        }
        if let Origin::Path(path) = &origin {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = InFolder::new(folder.unwrap_or(".".as_ref()));
            options = options.resolve(Arc::new(folder));
        }
        let dicts: Vec<PathBuf> =
            dicts.iter().map(std::path::absolute).collect::<std::io::Result<_>>()?;
        for path in &dicts {
            options = options.dictionary(Arc::new(py.detach(|| Dictionary::open(path))?));
        }
        let archive = py.detach(|| options.open(source.clone()));
        let archive = archive.map_err(|error| Failed::at(&origin, error))?;
        let state = Mutex::new(Some(State { archive, source, forks: forks() }));
        Ok(Reader { state, origin, options, cache, dicts, keep })
    }

    /// The archive, as it is to be read in this process.
    pub fn archive(&self, py: Python<'_>) -> Result<Archive> {
        let source = {
            let state = self.lock();
            let state = state.as_ref().ok_or_else(|| Failed::value("the reader is closed"))?;
            if state.forks == forks() {
                return Ok(state.archive.clone());
            }
            state.source.clone()
        };
        #[cfg(feature = "remote")]
        let source = match &self.origin {
            // Connections stay with the process that made them.
            Origin::Url(url, before) => py.detach(|| {
                let again = source::remote_options(self.keep.clone())?.open(url)?;
                match again.tag() == before.tag() {
                    true => Ok(Arc::new(again) as Arc<dyn ReadAt>),
                    false => Err(fiche::Error::Changed { what: "the archive" }),
                }
            })?,
            _ => source,
        };
        // Nobody may wait for the lock with that of the interpreter while this reads.
        let archive = py.detach(|| self.options.open(source.clone()))?;
        *self.lock() = Some(State { archive: archive.clone(), source, forks: forks() });
        Ok(archive)
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source(&self) -> Result<Arc<dyn ReadAt>> {
        let source = self.lock().as_ref().map(|state| state.source.clone());
        source.ok_or_else(|| Failed::value("the reader is closed"))
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (source, *, cache = 64 << 20, dicts = Vec::new(), keep = None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        cache: u64,
        dicts: Vec<PathBuf>,
        keep: Option<PathBuf>,
    ) -> Result<Reader> {
        Reader::open(py, source, cache, dicts, keep)
    }

    /// Of an archive that is read by its URL: how many requests were made so far, and how many bytes came.
    /// `None` for any other.
    #[getter]
    fn fetched(&self) -> Option<(u64, u64)> {
        match &self.origin {
            #[cfg(feature = "remote")]
            Origin::Url(_, remote) => Some(remote.counts()),
            _ => None,
        }
    }

    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.archive(py)?.len() as usize)
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        bytes::get(py, &self.archive(py)?, key)
    }

    /// The `size` bytes at `offset`. Decodes the blocks that these lie in.
    ///
    /// Raises `IndexError` where they pass the end, `CorruptError`, `OSError`.
    fn read_at<'py>(&self, py: Python<'py>, offset: i64, size: i64) -> Result<Bound<'py, PyBytes>> {
        bytes::read_at(py, &self.archive(py)?, offset, size)
    }

    /// Fills a buffer with the bytes at `offset`; returns how many. Nothing is copied in between.
    ///
    /// Raises `TypeError` where the buffer is read-only, and what `read_at` raises.
    fn readinto_at(&self, py: Python<'_>, offset: i64, buffer: &Bound<'_, PyAny>) -> Result<usize> {
        bytes::readinto_at(py, &self.archive(py)?, offset, buffer)
    }

    /// The bytes of many places, as `(offset, size)`, in the order that was asked for. Blocks that
    /// lie side by side are fetched at once, and each is decoded once.
    ///
    /// >>> import fiche, io
    /// >>> out = io.BytesIO()
    /// >>> report = fiche.pack({"a": b"0123456789"}, out)
    /// >>> fiche.open(out.getvalue()).read_many([(7, 2), (0, 3)])
    /// [b'78', b'012']
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        reads: Vec<(i64, i64)>,
    ) -> Result<Bound<'py, PyList>> {
        bytes::read_many(py, &self.archive(py)?, reads)
    }

    /// The ranges of the file that reading these places would fetch now, as `(position, end)`: what a
    /// read will cost. To know them, it loads the tables of the chapters that are touched.
    ///
    /// >>> import fiche, io
    /// >>> out = io.BytesIO()
    /// >>> report = fiche.pack({"a": b"0123456789" * 10_000}, out, method="copy")
    /// >>> fiche.open(out.getvalue()).plan([(0, 1), (40_000, 5)])
    /// [(32, 16420), (32808, 49196)]
    fn plan(&self, py: Python<'_>, reads: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
        let archive = self.archive(py)?;
        let range = |(offset, size): (u64, u64)| offset..offset.saturating_add(size);
        let reads: Vec<_> = reads.into_iter().map(range).collect();
        let ranges = py.detach(|| archive.plan(&reads))?;
        Ok(ranges.into_iter().map(|range| (range.start, range.end)).collect())
    }

    /// All of it as a file: an `io.RawIOBase` that can be sought.
    fn file<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().archive(slf.py())?;
        Ok(slf.py().import("fiche")?.getattr("File")?.call1((slf,))?)
    }

    /// The records by their names and numbers: a mapping.
    #[getter]
    fn records(slf: &Bound<'_, Self>) -> Records {
        Records::new(slf.clone().unbind())
    }

    /// What the archive is made of, in bytes; the parts add up to `stored_bytes`. Loads the table
    /// of every chapter.
    fn info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let archive = self.archive(py)?;
        let (info, dictionaries) = py
            .detach(|| Ok((archive.info()?, archive.dictionaries()?)))
            .map_err(|error: fiche::Error| error)?;
        let dict = PyDict::new(py);
        dict.set_item("kind", "archive")?;
        dict.set_item("method", info.method)?;
        dict.set_item("level", info.level)?;
        let filters: Vec<String> = info.filters.iter().map(ToString::to_string).collect();
        dict.set_item("filters", filters)?;
        for (name, value) in [
            ("block_bytes", info.block_bytes),
            ("logical_bytes", info.logical_bytes),
            ("stored_bytes", info.stored_bytes),
            ("compressed_bytes", info.compressed_bytes),
            ("blocks", info.blocks),
            ("chapters", info.chapters),
            ("dictionary_bytes", info.dictionary_bytes),
            ("model_bytes", info.model_bytes),
            ("index_bytes", info.index_bytes),
            ("checksum_bytes", info.checksum_bytes),
            ("envelope_bytes", info.envelope_bytes),
            ("record_bytes", info.record_bytes),
            ("superseded_bytes", info.superseded_bytes),
            ("records", info.records),
        ] {
            dict.set_item(name, value)?;
        }
        let list = PyList::empty(py);
        for (digest, len, file) in dictionaries {
            let dictionary = PyDict::new(py);
            dictionary.set_item("digest", digest.to_string())?;
            dictionary.set_item("logical_bytes", len)?;
            dictionary.set_item("file", file)?;
            list.append(dictionary)?;
        }
        dict.set_item("dictionaries", list)?;
        dict.set_item("content_crc64", format!("{:016x}", info.content_checksum))?;
        dict.set_item("writer", info.writer)?;
        Ok(dict)
    }

    /// Reads and decodes all of it, checks every checksum, and accounts for every byte of the
    /// file. Returns a dict: blocks and bytes that are right, `damage` (a list of dicts: what, and which
    /// bytes of the content are lost), records that are hit, and `cut_off_append`. `progress` is
    /// called with bytes done and bytes in all; True shows a bar.
    ///
    /// >>> import fiche, io
    /// >>> out = io.BytesIO()
    /// >>> report = fiche.pack({"a": b"0123456789"}, out)
    /// >>> fiche.open(out.getvalue()).verify()["damage"]
    /// []
    #[pyo3(signature = (*, threads = None, progress = None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        threads: Option<usize>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyDict>> {
        let archive = self.archive(py)?;
        let threads = self::threads(threads)?;
        let (told, is_bar) = crate::pack::told(progress, "verifying")?;
        let mut progress = Progress::new(told.clone().map(Bound::unbind), Some(archive.len()));
        let report = py.detach(|| archive.verify(threads, &mut |bytes| progress.add(bytes)));
        // A bar ends its line, whatever came of it.
        if let Some(bar) = told.filter(|_| is_bar) {
            bar.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        }
        let report = report?;
        let dict = PyDict::new(py);
        dict.set_item("blocks", report.blocks)?;
        dict.set_item("bytes", report.bytes)?;
        let damage = PyList::empty(py);
        for found in report.damage {
            let one = PyDict::new(py);
            one.set_item("what", found.error.to_string())?;
            one.set_item("content", found.content.map(|range| (range.start, range.end)))?;
            damage.append(one)?;
        }
        dict.set_item("damage", damage)?;
        let records = PyList::empty(py);
        for (number, name) in report.records {
            let one = PyDict::new(py);
            one.set_item("number", number)?;
            one.set_item("name", crate::records::text(py, &name)?)?;
            records.append(one)?;
        }
        dict.set_item("records", records)?;
        dict.set_item("cut_off_append", report.cut_off_append)?;
        Ok(dict)
    }

    /// Lets go of the file. Records that were taken from it can be read on.
    fn close(&self) {
        *self.lock() = None;
    }

    /// True when it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Result<Bound<'_, Self>> {
        slf.get().archive(slf.py())?;
        Ok(slf)
    }

    fn __exit__(&self, _kind: Py<PyAny>, _value: Py<PyAny>, _trace: Py<PyAny>) {
        self.close();
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Ok(archive) = self.archive(py) else { return "<fiche.Reader, closed>".into() };
        let of = match &self.origin {
            Origin::Path(path) => format!(" of {}", path.display()),
            #[cfg(feature = "remote")]
            Origin::Url(_, remote) => format!(" of {}", remote.url()),
            Origin::Object(_) => String::new(),
        };
        format!("<fiche.Reader{of}: {} bytes, {} records>", archive.len(), archive.records())
    }

    /// By path or object, and with what tells whether that is still the same archive.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), slf.get());
        // Behind a fork it is opened again.
        this.archive(py)?;
        let source = this.source()?;
        let (len, tail) = (source.len(), py.detach(|| tail(&source))?);
        let origin = match &this.origin {
            Origin::Path(path) => path.into_pyobject(py)?.into_any(),
            #[cfg(feature = "remote")]
            Origin::Url(url, _) => pyo3::types::PyString::new(py, url).into_any(),
            Origin::Object(object) => object.bind(py).clone(),
        };
        let tail = PyBytes::new(py, &tail);
        let arguments = (origin, this.cache, this.dicts.clone(), len, tail, this.keep.clone());
        let reopen = py.import("fiche._fiche")?.getattr("_reopen")?;
        Ok((reopen, arguments).into_pyobject(py)?)
    }
}

/// Opens an archive that was pickled.
#[pyfunction(name = "_reopen")]
pub fn reopen(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    cache: u64,
    dicts: Vec<PathBuf>,
    len: u64,
    expected: Vec<u8>,
    keep: Option<PathBuf>,
) -> Result<Reader> {
    let reader = Reader::open(py, source, cache, dicts, keep)?;
    let source = reader.source()?;
    if source.len() != len || py.detach(|| tail(&source))? != expected {
        return Err(fiche::Error::Changed { what: "the archive" }.into());
    }
    Ok(reader)
}
