//! The corpus as a plain file: the floor of every read.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::read_exact;
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

pub struct Plain;

impl Engine for Plain {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        std::fs::copy(&corpus.whole, folder.join("plain"))?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("plain")]
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        Ok(Box::new(PlainFile(File::open(folder.join("plain"))?)))
    }
}

/// Any file whose bytes are those of the corpus.
pub struct PlainFile(pub File);

impl Opened for PlainFile {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(PlainReads(&self.0)))
    }
}

struct PlainReads<'a>(&'a File);

impl Reads for PlainReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        read_exact(self.0, offset, buf)
    }
}
