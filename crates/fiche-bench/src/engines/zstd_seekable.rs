//! Zstandard's seekable format, by the zeekstd crate.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use zeekstd::{DecodeOptions, Decoder, EncodeOptions, FrameSizePolicy, SeekTable};

use super::blocks;
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

/// What the file is called.
pub const FILE: &str = "seekable.zst";

pub struct Seekable {
    pub level: i32,
    pub block: usize,
}

impl Engine for Seekable {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let out = std::io::BufWriter::new(File::create(folder.join(FILE))?);
        let mut encoder = EncodeOptions::new()
            .compression_level(self.level)
            .frame_size_policy(FrameSizePolicy::Uncompressed(self.block as u32))
            // As the block checksums of the others.
            .checksum_flag(true)
            .into_encoder(out)?;
        blocks(&corpus.whole, 1 << 20, |bytes| Ok(encoder.write_all(bytes)?))?;
        encoder.finish()?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join(FILE)]
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let path = folder.join(FILE);
        let decoder = Decoder::new(File::open(&path)?)?;
        let table = decoder.seek_table().clone();
        Ok(Box::new(Table { path, table }))
    }
}

struct Table {
    path: PathBuf,
    table: SeekTable,
}

struct SeekableReads<'a>(Decoder<'a, File>);

impl Opened for Table {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        let options = DecodeOptions::new(File::open(&self.path)?).seek_table(self.table.clone());
        Ok(Box::new(SeekableReads(options.into_decoder()?)))
    }
}

impl Reads for SeekableReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // The limit first: an offset behind it is refused.
        self.0.set_offset_limit(self.0.seek_table().size_decomp())?;
        self.0.set_offset(offset)?;
        let mut done = 0;
        while done < buf.len() {
            match self.0.decompress(&mut buf[done..])? {
                0 => return Err("it ends too early".into()),
                len => done += len,
            }
        }
        Ok(())
    }
}
