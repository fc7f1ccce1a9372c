//! A codec on blocks in memory, without a file around it: the ceiling.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use fiche::codec::{Codec, Scratch};

use super::blocks;
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

pub struct Bare {
    pub codec: Codec,
    pub level: i32,
    pub block: usize,
}

impl Engine for Bare {
    /// Blocks one after the other, each with its decoded and stored length before it.
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let mut out = std::io::BufWriter::new(File::create(folder.join("blocks"))?);
        let (mut scratch, mut room) = (Scratch::default(), vec![0; self.block]);
        blocks(&corpus.whole, self.block, |block| {
            let dst = (&mut room[..block.len() - 1]).into();
            let len = self.codec.compress(self.level, block.into(), dst, &mut scratch)?;
            let stored = len.map_or(block, |len| &room[..len]);
            out.write_all(&(block.len() as u32).to_le_bytes())?;
            out.write_all(&(stored.len() as u32).to_le_bytes())?;
            out.write_all(stored)?;
            Ok(())
        })?;
        Ok(out.flush()?)
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("blocks")]
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let bytes = std::fs::read(folder.join("blocks"))?;
        let (mut stored, mut rest) = (Vec::new(), bytes.as_slice());
        while let Some((lens, after)) = rest.split_first_chunk::<8>() {
            let len =
                |i: usize| lens[i..i + 4].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
            let (block, after) = after.split_at(len(4));
            stored.push((len(0), block.to_vec()));
            rest = after;
        }
        Ok(Box::new(Memory { codec: self.codec, block: self.block, stored }))
    }
}

struct Memory {
    codec: Codec,
    block: usize,
    /// Of each block its decoded length and its stored bytes.
    stored: Vec<(usize, Vec<u8>)>,
}

struct MemoryReads<'a> {
    memory: &'a Memory,
    scratch: Scratch,
    decoded: Vec<u8>,
    /// Which block is decoded there.
    block: usize,
}

impl Opened for Memory {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        let decoded = vec![0; self.block];
        let (scratch, block) = (Scratch::default(), usize::MAX);
        Ok(Box::new(MemoryReads { memory: self, scratch, decoded, block }))
    }
}

impl Reads for MemoryReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block_len = self.memory.block as u64;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let block = (at / block_len) as usize;
            let (len, stored) = &self.memory.stored[block];
            let decoded = &mut self.decoded[..*len];
            match stored.len() == *len {
                _ if block == self.block => {}
                true => decoded.copy_from_slice(stored),
                false => {
                    let codec = self.memory.codec;
                    codec.decompress(
                        stored.as_slice().into(),
                        decoded.into(),
                        &mut self.scratch,
                    )?;
                }
            }
            self.block = block;
            let from = (at % block_len) as usize;
            let now = (*len - from).min(buf.len() - done);
            buf[done..done + now].copy_from_slice(&self.decoded[from..from + now]);
            done += now;
        }
        Ok(())
    }
}
