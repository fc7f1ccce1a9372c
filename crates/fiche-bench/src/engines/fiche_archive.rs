//! Archives of ours, with a cache of eight blocks: enough that reading in order decodes each block
//! once, too little to matter to random reads.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiche::archive::{Entry, OpenOptions, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::rlz::{Coding, Training};
use fiche::{FileSource, ReadAt};

use crate::engine::{Corpus, Engine, Opened, Reads, Result};

/// How blocks are compressed.
pub enum Method {
    Codec(Codec),
    /// With a dictionary of this length, or of the one that it likes; for `zlib-primed`, whether a
    /// block is primed with its neighbourhood or with the first region.
    Coding {
        coding: Coding,
        dictionary: Option<u64>,
        is_near: bool,
    },
}

pub struct Archive {
    pub method: Method,
    pub level: i32,
    pub block: usize,
    /// Each file of the corpus is a record; blocks end where records do.
    pub documents: bool,
    pub align: bool,
}

impl Engine for Archive {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let options = match self.method {
            Method::Codec(codec) => Options::default().codec(codec).level(self.level),
            Method::Coding { coding, dictionary, is_near } => {
                let source = FileSource::open(&corpus.whole)?;
                let training = Training::new(coding).level(self.level).block_len(self.block);
                let mut training = training.near(is_near);
                if let Some(len) = dictionary {
                    training = training.dictionary_len(len);
                }
                let coder = training.run(&source)?;
                Options::default().coder(Arc::new(coder))
            }
        };
        let options = options.block_len(self.block).align_records(self.align);
        let mut writer = Writer::new(File::create(folder.join("archive.fiche"))?, options)?;
        let mut whole = File::open(&corpus.whole)?;
        if self.documents {
            for document in &corpus.documents {
                let mut content = std::io::Read::take(&mut whole, document.len);
                writer.add(Entry::data(document.name.as_bytes()), &mut content)?;
            }
        } else {
            std::io::copy(&mut whole, &mut writer)?;
        }
        writer.finish()?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("archive.fiche")]
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let source = FileSource::open(folder.join("archive.fiche"))?;
        Ok(Box::new(Opening(
            OpenOptions::default().cache(8 * self.block as u64).open(Arc::new(source))?,
        )))
    }
}

struct Opening(Reader);

impl Opened for Opening {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(ArchiveReads(&self.0)))
    }
}

struct ArchiveReads<'a>(&'a Reader);

impl Reads for ArchiveReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.0.read_at(offset, buf)?)
    }

    fn read_batch(&mut self, reads: &mut [(u64, &mut [u8])]) -> Result<bool> {
        self.0.read_many_at(reads).into_iter().collect::<fiche::Result<()>>()?;
        Ok(true)
    }

    fn document(&mut self, name: &str, buf: &mut Vec<u8>) -> Result<Option<()>> {
        let record = self.0.record(name)?;
        buf.resize(record.len() as usize, 0);
        record.read_at(0, buf)?;
        Ok(Some(()))
    }
}
