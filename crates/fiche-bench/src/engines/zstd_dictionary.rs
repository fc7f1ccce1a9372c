//! Zstandard in blocks with one raw dictionary: of evenly spaced samples of 1 KiB, which is what can be had
//! today by putting parts together, or the one that fiche chooses. Each block has a checksum of four bytes, as ours have.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use fiche::FileSource;
use fiche::rlz::{Coding, Training};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

use super::{blocks, read_exact};
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

const SAMPLE: usize = 1 << 10;
const CHECKSUM: usize = 4;

fn checksum(stored: &[u8]) -> [u8; CHECKSUM] {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, stored);
    (crc as u32).to_le_bytes()
}

pub struct Dictionary {
    pub level: i32,
    pub block: usize,
    /// Length of evenly spaced samples; none for the dictionary of `hybrid`.
    pub dictionary: Option<usize>,
}

/// The very dictionary that `hybrid` has.
fn chosen(corpus: &Corpus) -> Result<Vec<u8>> {
    let coder = Training::new(Coding::Hybrid).run(&FileSource::open(&corpus.whole)?)?;
    Ok(coder.dictionary().as_bytes().to_vec())
}

/// Samples of the corpus at even distances (section 2 of the paper).
fn samples(corpus: &Corpus, len: usize) -> Result<Vec<u8>> {
    let file = File::open(&corpus.whole)?;
    let count = (len / SAMPLE).max(1) as u64;
    let mut dictionary = vec![0; (len as u64).min(corpus.len) as usize];
    let last = corpus.len.saturating_sub(SAMPLE as u64);
    for (i, sample) in dictionary.chunks_mut(SAMPLE).enumerate() {
        read_exact(&file, (corpus.len / count * i as u64).min(last), sample)?;
    }
    Ok(dictionary)
}

impl Engine for Dictionary {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let dictionary = match self.dictionary {
            Some(len) => samples(corpus, len)?,
            None => chosen(corpus)?,
        };
        // The paper stores it by zlib; by zstd it is smaller still.
        std::fs::write(folder.join("dictionary.zst"), zstd::bulk::compress(&dictionary, 19)?)?;
        let prepared = EncoderDictionary::copy(&dictionary, self.level);
        let mut compressor = Compressor::with_prepared_dictionary(&prepared)?;
        compressor.set_parameter(zstd::zstd_safe::CParameter::ContentSizeFlag(true))?;
        compressor.set_parameter(zstd::zstd_safe::CParameter::DictIdFlag(false))?;
        let mut out = std::io::BufWriter::new(File::create(folder.join("blocks"))?);
        let mut ends: Vec<u64> = vec![0];
        blocks(&corpus.whole, self.block, |block| {
            let stored = compressor.compress(block)?;
            out.write_all(&stored)?;
            out.write_all(&checksum(&stored))?;
            ends.push(ends[ends.len() - 1] + (stored.len() + CHECKSUM) as u64);
            Ok(())
        })?;
        out.flush()?;
        // The paper's index: stored by zlib; here by zstd.
        let index: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        std::fs::write(folder.join("index.zst"), zstd::bulk::compress(&index, 19)?)?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        ["dictionary.zst", "blocks", "index.zst"].map(|name| folder.join(name)).into()
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let unpack = |name: &str| -> Result<Vec<u8>> {
            Ok(zstd::stream::decode_all(File::open(folder.join(name))?)?)
        };
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        Ok(Box::new(Blocks {
            file: File::open(folder.join("blocks"))?,
            ends: unpack("index.zst")?.chunks(8).map(word).collect(),
            dictionary: DecoderDictionary::copy(&unpack("dictionary.zst")?),
            block: self.block,
        }))
    }
}

struct Blocks {
    file: File,
    ends: Vec<u64>,
    dictionary: DecoderDictionary<'static>,
    block: usize,
}

struct BlockReads<'a> {
    blocks: &'a Blocks,
    decompressor: Decompressor<'a>,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    /// Which block is decoded there, and how long it is.
    last: (usize, usize),
}

impl Opened for Blocks {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(BlockReads {
            blocks: self,
            decompressor: Decompressor::with_prepared_dictionary(&self.dictionary)?,
            stored: Vec::new(),
            decoded: vec![0; self.block],
            last: (usize::MAX, 0),
        }))
    }
}

impl Reads for BlockReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block = self.blocks.block as u64;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let i = (at / block) as usize;
            if i != self.last.0 {
                let (start, end) = (self.blocks.ends[i], self.blocks.ends[i + 1]);
                self.stored.resize((end - start) as usize, 0);
                read_exact(&self.blocks.file, start, &mut self.stored)?;
                let (stored, sum) = self.stored.split_at(self.stored.len() - CHECKSUM);
                let len = self.decompressor.decompress_to_buffer(stored, &mut self.decoded)?;
                if checksum(stored) != sum {
                    return Err("a block is damaged".into());
                }
                self.last = (i, len);
            }
            let len = self.last.1;
            let from = (at % block) as usize;
            let now = (len - from).min(buf.len() - done);
            buf[done..done + now].copy_from_slice(&self.decoded[from..from + now]);
            done += now;
        }
        Ok(())
    }
}
