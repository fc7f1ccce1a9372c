//! Gzip files that fiche reads anywhere: its own, and those of others by an index.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiche::FileSource;
use fiche::ReadAt;
use fiche::streams::{IndexOptions, Options, Reader, Writer, index_file};

use super::command;
use super::zstd_seekable::{FILE as SEEKABLE, Seekable};
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

/// Who wrote the file, and how it is read.
pub enum Gzip {
    /// `fiche gzip`, with its index inside.
    Own { level: i32, partition: usize },
    /// gzip -9, by an index with a unit every so many bytes.
    Indexed { spacing: u64 },
    /// bgzip -l 9, by an index or by going from header to header.
    Bgzf { indexed: bool },
    /// Zstandard's seekable format, by its table or by an index.
    Zstd { level: i32, block: usize, indexed: bool },
}

impl Gzip {
    fn index(&self) -> bool {
        let others =
            matches!(self, Gzip::Bgzf { indexed: true } | Gzip::Zstd { indexed: true, .. });
        others || matches!(self, Gzip::Indexed { .. })
    }

    fn file(&self) -> &'static str {
        if matches!(self, Gzip::Zstd { .. }) { SEEKABLE } else { "corpus.gz" }
    }
}

impl Engine for Gzip {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let (path, whole) = (folder.join(self.file()), corpus.whole.to_string_lossy());
        match self {
            Gzip::Own { level, partition } => {
                let options = Options::default().level(*level).partition(*partition);
                let mut writer = Writer::new(File::create(&path)?, options)?;
                std::io::copy(&mut File::open(&corpus.whole)?, &mut writer)?;
                writer.finish()?;
            }
            // The file that the peer reads, too.
            &Gzip::Zstd { level, block, .. } => Seekable { level, block }.build(corpus, folder)?,
            Gzip::Indexed { .. } => std::fs::write(&path, command("gzip", &["-9", "-c", &whole])?)?,
            Gzip::Bgzf { .. } => {
                let stored = command("bgzip", &["-c", "-l", "9", "-@", "2", &whole])?;
                std::fs::write(&path, stored)?;
            }
        }
        if self.index() {
            let options = match self {
                Gzip::Indexed { spacing } => IndexOptions::default().spacing(*spacing),
                _ => IndexOptions::default(),
            };
            let out = File::create(folder.join("index"))?;
            let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(&path)?);
            index_file(&source, &options, out, &mut |_| Ok(()))?;
        }
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        let mut files = vec![folder.join(self.file())];
        files.extend(self.index().then(|| folder.join("index")));
        files
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let source = Arc::new(FileSource::open(folder.join(self.file()))?);
        let reader = match self.index() {
            true => Reader::with_index(source, Arc::new(FileSource::open(folder.join("index"))?))?,
            false => Reader::open(source)?.ok_or("there is no index")?,
        };
        Ok(Box::new(Opening(reader)))
    }
}

struct Opening(Reader);

impl Opened for Opening {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(StreamReads(&self.0)))
    }
}

struct StreamReads<'a>(&'a Reader);

impl Reads for StreamReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.0.read_at(offset, buf)?)
    }

    fn read_batch(&mut self, reads: &mut [(u64, &mut [u8])]) -> Result<bool> {
        self.0.read_many_at(reads).into_iter().collect::<fiche::Result<()>>()?;
        Ok(true)
    }
}
