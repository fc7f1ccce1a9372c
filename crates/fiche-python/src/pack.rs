//! `fiche.pack` and `fiche.dict_build`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fiche::archive::{Entry, Folder, Packed, Split, Writer as Archive};
use fiche::rlz::Sampling;
use fiche::{NewFile, ReadAt};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString};

use crate::buffer::Buffer;
use crate::error::{Failed, Result, from_python};
use crate::options::Blocks;
use crate::records::name_of;
use crate::writer::{Out, Parts};

/// A function of Python's that is told how much is done of how much, every MiB; and signals, which are
/// looked at as often.
pub struct Progress {
    call: Option<Py<PyAny>>,
    all: Option<u64>,
    done: u64,
    told: u64,
}

/// What is told of progress: a function, or a bar of this name where True is given; and whether it is such a bar, which has to be closed.
pub fn told<'py>(
    progress: Option<Bound<'py, PyAny>>,
    what: &str,
) -> PyResult<(Option<Bound<'py, PyAny>>, bool)> {
    let Some(progress) = progress else { return Ok((None, false)) };
    match progress.extract::<bool>() {
        Ok(true) => {
            let bar = progress.py().import("fiche._progress")?.getattr("Bar")?.call1((what,))?;
            Ok((Some(bar), true))
        }
        Ok(false) => Ok((None, false)),
        Err(_) => Ok((Some(progress), false)),
    }
}

const STEP: u64 = 1 << 20;

impl Progress {
    pub fn new(call: Option<Py<PyAny>>, all: Option<u64>) -> Progress {
        Progress { call, all, done: 0, told: 0 }
    }

    pub fn add(&mut self, bytes: u64) -> fiche::Result<()> {
        self.done += bytes;
        if self.done - self.told < STEP && self.all != Some(self.done) {
            return Ok(());
        }
        self.told = self.done;
        Python::attach(|py| {
            py.check_signals()?;
            match &self.call {
                Some(call) => call.bind(py).call1((self.done, self.all)).map(drop),
                None => Ok(()),
            }
        })
        .map_err(from_python)
    }
}

/// Content that looks at signals while it is learned from.
struct Watched<'a>(&'a dyn ReadAt);

impl ReadAt for Watched<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        if buf.len() >= 1 << 16 {
            Python::attach(|py| py.check_signals()).map_err(from_python)?;
        }
        self.0.read_at(offset, buf)
    }
}

/// What is packed: files and folders, or records that Python has.
pub enum Input {
    Paths(Vec<PathBuf>),
    Records(Vec<Vec<u8>>, Parts),
}

impl Input {
    pub fn of(input: &Bound<'_, PyAny>) -> Result<Input> {
        if let Ok(path) = input.extract::<PathBuf>()
            && !input.is_instance_of::<PyBytes>()
        {
            return Ok(Input::Paths(vec![path]));
        }
        if let Ok(records) = input.cast::<PyMapping>() {
            let (mut names, mut parts) = (Vec::new(), Vec::new());
            for item in records.items()?.iter() {
                let (name, data): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
                names.push(name_of(&name)?);
                parts.push(Buffer::get(&data)?);
            }
            return Ok(Input::Records(names, Parts::new(parts)));
        }
        match input.extract::<Vec<PathBuf>>() {
            Ok(paths) => Ok(Input::Paths(paths)),
            Err(_) => {
                let what = "the input is a path, a list of paths, or a mapping of names to bytes";
                Err(pyo3::exceptions::PyTypeError::new_err(what).into())
            }
        }
    }
}

pub fn folder(
    paths: &[PathBuf],
    exclude: &[String],
    (keep_going, split): (bool, Option<Split>),
    outputs: [Option<&Path>; 2],
) -> fiche::Result<Folder> {
    let mut folder = Folder::new(exclude)?.keep_going(keep_going);
    outputs.into_iter().flatten().for_each(|output| folder.skip(output));
    for path in paths {
        folder.add(path)?;
        Python::attach(|py| py.check_signals()).map_err(from_python)?;
    }
    Ok(match split {
        Some(split) => folder.split(split),
        None => folder,
    })
}

#[pyfunction]
#[pyo3(signature = (
    input, output, *, method = None, level = None, filters = Vec::new(), block = 16 << 10, dict = None, records = "files",
    align_records = false, exclude = Vec::new(), keep_going = false, threads = None,
    overwrite = false, progress = None,
))]
#[expect(clippy::too_many_arguments, reason = "they are options with names")]
pub fn pack<'py>(
    py: Python<'py>,
    input: &Bound<'py, PyAny>,
    output: &Bound<'py, PyAny>,
    method: Option<&str>,
    level: Option<i32>,
    filters: Vec<String>,
    block: usize,
    dict: Option<&Bound<'py, PyAny>>,
    records: &str,
    align_records: bool,
    exclude: Vec<String>,
    keep_going: bool,
    threads: Option<usize>,
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let start = Instant::now();
    let blocks = Blocks::new((method, level, &filters), (block, align_records), dict, threads)?;
    let split = match records {
        "files" => None,
        split => Some(split.parse::<Split>()?),
    };
    let path = output.extract::<PathBuf>().ok();
    let input = Input::of(input)?;
    if matches!(input, Input::Records(..)) && split.is_some() {
        return Err(Failed::value("records that have names are not split further"));
    }
    let out = Out::create(output, overwrite)?;
    let (packed, logical, stored) = py.detach(|| -> fiche::Result<(Packed, u64, u64)> {
        let (mut archive, packed) = match input {
            Input::Paths(paths) => {
                let outputs = [path.as_deref(), out.aside()];
                let mut folder = folder(&paths, &exclude, (keep_going, split), outputs)?;
                let options = blocks.options(&Watched(&folder.content()))?;
                let mut archive = Archive::new(out, options)?;
                let mut progress = Progress::new(progress, Some(folder.bytes()));
                let packed = folder.write_to(&mut archive, &mut |bytes| progress.add(bytes))?;
                (archive, packed)
            }
            Input::Records(names, parts) => {
                let mut archive = Archive::new(out, blocks.options(&Watched(&parts))?)?;
                let mut progress = Progress::new(progress, Some(parts.len()));
                let mut packed = Packed::default();
                for (name, part) in names.into_iter().zip(parts.iter()) {
                    archive.add(Entry::data(name), &mut &part[..])?;
                    packed.records += 1;
                    packed.bytes += part.len() as u64;
                    progress.add(part.len() as u64)?;
                }
                (archive, packed)
            }
        };
        let logical = archive.offset();
        std::io::Write::flush(&mut archive)?;
        let out = archive.finish()?;
        let stored = out.written();
        out.finish()?;
        Ok((packed, logical, stored))
    })?;
    let report = PyDict::new(py);
    report.set_item("records", packed.records)?;
    report.set_item("input_bytes", packed.bytes)?;
    report.set_item("logical_bytes", logical)?;
    report.set_item("stored_bytes", stored)?;
    report.set_item("equal_files", packed.equal_files)?;
    report.set_item("equal_bytes", packed.equal_bytes)?;
    report.set_item("skipped", packed.skipped)?;
    report.set_item("changed", packed.changed)?;
    report.set_item("sockets", packed.sockets)?;
    report.set_item("seconds", start.elapsed().as_secs_f64())?;
    Ok(report)
}

#[pyfunction]
#[pyo3(signature = (
    input, output, *, size = 4 << 20, sample = 1024, cover = false, exclude = Vec::new(),
    overwrite = false,
))]
#[expect(clippy::too_many_arguments, reason = "they are options with names")]
pub fn dict_build<'py>(
    py: Python<'py>,
    input: &Bound<'py, PyAny>,
    output: PathBuf,
    size: u64,
    sample: u64,
    cover: bool,
    exclude: Vec<String>,
    overwrite: bool,
) -> Result<Bound<'py, PyString>> {
    let input = Input::of(input)?;
    let digest = py.detach(|| -> fiche::Result<_> {
        let out = NewFile::create(&output, overwrite)?;
        let sampling = Sampling::default().sample_len(sample).len(size).cover(cover);
        let dictionary = match input {
            Input::Paths(paths) => {
                let outputs = [Some(&*output), Some(out.aside())];
                let mut folder = folder(&paths, &exclude, (true, None), outputs)?;
                sampling.run(&Watched(&folder.content()))?
            }
            Input::Records(_, parts) => sampling.run(&Watched(&parts))?,
        };
        let dictionary = Arc::new(dictionary);
        dictionary.write_to(out)?.finish()?;
        Ok(dictionary.digest().to_string())
    })?;
    Ok(PyString::new(py, &digest))
}
