//! Standard compressed files, as several verbs open them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiche::streams::{IndexOptions, Reader, index_file, recognise};
use fiche::{FileSource, ReadAt};

use crate::input;
use crate::ui::{Failed, Progress, say};

/// What stands behind the name of a file whose index lies beside it.
pub const SUFFIX: &str = ".fidx";

/// An index for a file that was compressed by another program.
#[derive(Default, clap::Args)]
pub struct Index {
    /// The index of a gzip file, where it is not beside it under its name with .fidx behind
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
}

impl Index {
    /// True when one was named.
    pub fn is_given(&self) -> bool {
        self.index.is_some()
    }
}

/// The name of the index beside a file.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// True for a file that is compressed by gzip, zstd, xz or lz4.
pub fn is_stream(source: &dyn ReadAt) -> fiche::Result<bool> {
    Ok(recognise(source)?.is_some())
}

/// Opens such a file by whatever index it has; without any, `None`.
pub fn open(
    path: &Path,
    source: &Arc<dyn ReadAt>,
    given: &Index,
) -> Result<Option<Reader>, Failed> {
    let at = |error| Failed::at(path, error);
    if let Some(index) = &given.index {
        let bytes = input::source(index)?;
        let reader = Reader::with_index(source.clone(), bytes);
        return Ok(Some(reader.map_err(|error| Failed::at(index, error))?));
    }
    // It costs nothing to look there, and one that was made is taken before another is.
    if let Some(reader) = Reader::inside(source.clone()).map_err(at)? {
        return Ok(Some(reader));
    }
    let index = beside(path);
    if let Some(bytes) = maybe(&index)? {
        let reader = Reader::with_index(source.clone(), bytes);
        return Ok(Some(reader.map_err(|error| Failed::at(&index, error))?));
    }
    Reader::open(source.clone()).map_err(at)
}

/// The file as a source, if it is there.
fn maybe(path: &Path) -> Result<Option<Arc<dyn ReadAt>>, Failed> {
    if input::url(path).is_some() {
        return match input::source(path) {
            Ok(source) => Ok(Some(source)),
            Err(failed) if failed.is_not_found() => Ok(None),
            Err(failed) => Err(failed),
        };
    }
    match FileSource::open(path) {
        Ok(source) => Ok(Some(Arc::new(source))),
        Err(fiche::Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failed::at(path, error)),
    }
}

/// The same; where there is no index, one is made for this time.
pub fn open_anyhow(path: &Path, source: &Arc<dyn ReadAt>, given: &Index) -> Result<Reader, Failed> {
    if let Some(reader) = open(path, source, given)? {
        return Ok(reader);
    }
    let name = input::shown(path);
    if source.as_distant().is_some() {
        return Err(Failed::usage(format!(
            "{name} has no index: make one where the file is, by `fiche index`, and put it beside"
        )));
    }
    say!("{name}: has no index, so all of it is read first; `fiche index {name}` makes one");
    let bytes = make(source, &IndexOptions::default(), Vec::new(), false)
        .map_err(|error| Failed::at(path, error))?;
    Reader::with_index(source.clone(), Arc::new(bytes)).map_err(|error| Failed::at(path, error))
}

/// Makes an index of a file.
pub fn make<W: std::io::Write>(
    source: &Arc<dyn ReadAt>,
    options: &IndexOptions,
    mut out: W,
    quiet: bool,
) -> fiche::Result<W> {
    let progress = Progress::new("indexing", Some(source.len()), quiet);
    index_file(source, options, &mut out, &mut |bytes| progress.add(bytes))?;
    Ok(out)
}

/// Bytes that move a bar while they are read, and end when a signal asks to.
pub struct Counted<R> {
    pub source: R,
    pub progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.source.read(buf)?;
        self.progress.add(len as u64).map_err(std::io::Error::other)?;
        Ok(len)
    }
}
