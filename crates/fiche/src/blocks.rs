//! From a logical offset to a stored block: chapters and their tables.
//!
//! # Chapter
//!
//! Up to 4,096 blocks, one after the other, then record pages and begun records,
//! then the chapter table. The writer ends a chapter after 4,096 blocks, or when its
//! content is 64 MiB or as much as all before it (but at least 1 MiB), or when its
//! record pages reach 4 MiB. A block decodes to 1 byte to 2^26 bytes. A chapter of records that have no content has no blocks.
//!
//! # Chapter table
//!
//! Section kind 3; offset: decoded bytes before this chapter; number: blocks
//! before this chapter. Never compressed.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | back | from where the chapter starts, which is where its first block does, to the first byte of this section |
//! | varint | runs | how many runs follow; 0 where there are no blocks |
//! | | runs | see below |
//! | 4 * blocks | checksums | CRC-32C of each block's stored bytes |
//! | 8 | content | CRC-64 of the chapter's decoded bytes |
//!
//! A run is a number of blocks, one after the other, that are alike:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | blocks | how many, at least 1; no more than 4,096 in all runs together |
//! | 1 | codec | number of the codec |
//! | 1 | flags | bit 0: part follows; bit 1: dictionary follows; bit 2: model follows; other bits are zero. Nothing sets any of them yet, and a reader of this version refuses them |
//! | varint | part | which other file holds these blocks; only if flagged |
//! | varint | dictionary | only if flagged |
//! | varint | model | only if flagged |
//! | | lengths | decoded length of each block |
//! | | stored lengths | stored length of each block |
//!
//! Both lists of lengths are written in one of two ways:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | tag | 0: an Elias-Fano sequence follows, of where each block ends, counted from the start of the run; `2 * len`: every block has this length; `2 * len + 1`: every block but the last one |
//! | varint | last | length of the last block, below `len`; only if the tag is odd |
//!
//! The first run starts at the chapter's first byte, every other one where the
//! run before it ends; where the last one ends, the sections of the chapter begin.

use crate::elias_fano::EliasFano;
use crate::envelope::{Kind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::wire::{Put, Take, crc64_join};

/// Most blocks in a chapter.
pub(crate) const MAX_BLOCKS: usize = 4096;
/// Content at which a chapter ends even with fewer blocks, when there is `before` it.
/// It is what a file loses at most that is cut: never more than is left, but for 1 MiB.
pub(crate) fn chapter_content(before: u64) -> u64 {
    before.clamp(1 << 20, 64 << 20)
}
/// The longest block that is read.
pub(crate) const MAX_BLOCK: u64 = 1 << 26;

const WHAT: &str = "chapter table";
const HAS_PART: u8 = 1;
const HAS_DICTIONARY: u8 = 2;
const HAS_MODEL: u8 = 4;

/// One block, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its number in the archive.
    pub number: u64,
    /// Offset of its first decoded byte in the archive, and how many there are.
    pub offset: u64,
    pub len: u64,
    /// Position of its first stored byte in the file, and how many there are.
    pub pos: u64,
    pub stored_len: u64,
    /// Codec by number, as stored: it may be one that is not known here.
    pub codec: u8,
    pub part: u64,
    pub checksum: u32,
}

/// Lengths of the blocks of a run, added up.
#[derive(Debug)]
enum Ends {
    Uniform { len: u64, total: u64 },
    Listed(EliasFano),
}

impl Ends {
    /// Start and end of block `i`, counted from the start of the run.
    fn span(&self, i: usize) -> (u64, u64) {
        match self {
            Ends::Uniform { len, total } => {
                let start = i as u64 * len;
                (start, (start + len).min(*total))
            }
            Ends::Listed(ends) => ends.pair(i),
        }
    }

    /// Which block holds the byte at `at`, which is below the total.
    fn find(&self, at: u64) -> usize {
        match self {
            Ends::Uniform { len, .. } => (at / len) as usize,
            Ends::Listed(ends) => ends.rank(at),
        }
    }

    fn total(&self) -> u64 {
        match self {
            Ends::Uniform { total, .. } => *total,
            Ends::Listed(ends) => ends.last(),
        }
    }

    fn put(lens: &[u64], out: &mut Vec<u8>) {
        let (len, last) = (lens[0], lens[lens.len() - 1]);
        let uniform = lens[..lens.len() - 1].iter().all(|&l| l == len) && last <= len;
        match uniform {
            true if last == len => out.put_varint(2 * len),
            true => {
                out.put_varint(2 * len + 1);
                out.put_varint(last);
            }
            false => {
                out.put_varint(0);
                let ends: Vec<u64> = lens
                    .iter()
                    .scan(0, |sum, len| {
                        *sum += len;
                        Some(*sum)
                    })
                    .collect();
                EliasFano::encode(&ends, out);
            }
        }
    }

    fn take(take: &mut Take<'_>, blocks: usize) -> Result<Ends> {
        let tag = take.varint()?;
        if tag == 0 {
            return Ok(Ends::Listed(EliasFano::decode(take, blocks)?));
        }
        let len = tag / 2;
        let last = if tag % 2 == 1 { take.varint()? } else { len };
        let shorter = tag % 2 == 0 || last < len;
        if len == 0 || last == 0 || len > MAX_BLOCK || !shorter {
            return Err(take.corrupt());
        }
        Ok(Ends::Uniform { len, total: len * (blocks as u64 - 1) + last })
    }
}

#[derive(Debug)]
struct Run {
    blocks: usize,
    codec: u8,
    part: u64,
    lens: Ends,
    stored: Ends,
    /// What lies before it in the chapter: blocks, decoded bytes, stored bytes.
    first: usize,
    offset: u64,
    pos: u64,
}

/// A chapter's table in memory: a little more than the bytes it takes in the file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Of the chapter in the archive: decoded bytes and blocks before it, and where it starts.
    pub offset: u64,
    pub first_block: u64,
    pub pos: u64,
    runs: Vec<Run>,
    checksums: Vec<u32>,
    /// CRC-64 of the decoded bytes.
    pub content: u64,
    /// Decoded and stored bytes of all blocks.
    pub len: u64,
    pub stored_len: u64,
}

impl Table {
    /// Checks everything that can be checked without reading a block.
    pub fn parse(section: &Section) -> Result<Table> {
        let mut take = section.take(WHAT);
        let back = take.varint()?;
        let pos = section.at.pos.checked_sub(back).ok_or_else(|| take.corrupt())?;
        let runs = take.count(MAX_BLOCKS as u64)?;
        let mut table = Table {
            offset: section.offset,
            first_block: section.number,
            pos,
            runs: Vec::with_capacity(runs),
            checksums: Vec::new(),
            content: 0,
            len: 0,
            stored_len: 0,
        };
        let mut blocks = 0;
        for _ in 0..runs {
            let run = table.take_run(&mut take, blocks)?;
            blocks += run.blocks;
            table.len += run.lens.total();
            table.stored_len += if run.part == 0 { run.stored.total() } else { 0 };
            table.runs.push(run);
        }
        table.checksums = (0..blocks).map(|_| take.u32()).collect::<Result<_>>()?;
        table.content = take.u64()?;
        take.end()?;
        let limit = i64::MAX as u64;
        let too_far = table.offset > limit || table.first_block > limit;
        if table.stored_len > back || too_far {
            return Err(take.corrupt());
        }
        Ok(table)
    }

    fn take_run(&self, take: &mut Take<'_>, first: usize) -> Result<Run> {
        let blocks = take.count((MAX_BLOCKS - first) as u64)?;
        if blocks == 0 {
            return Err(take.corrupt());
        }
        let (codec, flags) = (take.u8()?, take.u8()?);
        if flags & !(HAS_PART | HAS_DICTIONARY | HAS_MODEL) != 0 {
            return Err(Error::Unsupported { what: "flag of a run", found: u64::from(flags) });
        }
        let part = if flags & HAS_PART != 0 { take.varint()? } else { 0 };
        for (flag, what) in [(HAS_DICTIONARY, "dictionary"), (HAS_MODEL, "model")] {
            if flags & flag != 0 {
                return Err(Error::Unsupported { what, found: take.varint()? });
            }
        }
        let (lens, stored) = (Ends::take(take, blocks)?, Ends::take(take, blocks)?);
        let run = Run {
            blocks,
            codec,
            part,
            first,
            offset: self.len,
            pos: self.stored_len,
            lens,
            stored,
        };
        for i in 0..blocks {
            let ((from, to), (stored_from, stored_to)) = (run.lens.span(i), run.stored.span(i));
            if to - from > MAX_BLOCK || stored_to - stored_from > to - from {
                return Err(take.corrupt());
            }
        }
        Ok(run)
    }

    pub fn blocks(&self) -> usize {
        self.checksums.len()
    }

    /// The block that holds the byte at this offset of the archive, which lies in the chapter.
    pub fn find(&self, offset: u64) -> Block {
        let at = offset - self.offset;
        let run = &self.runs[self.runs.partition_point(|run| run.offset <= at) - 1];
        self.block_of(run, run.lens.find(at - run.offset))
    }

    /// Block `i` of the chapter.
    pub fn block(&self, i: usize) -> Block {
        let run = &self.runs[self.runs.partition_point(|run| run.first <= i) - 1];
        self.block_of(run, i - run.first)
    }

    fn block_of(&self, run: &Run, i: usize) -> Block {
        let ((from, to), (stored_from, stored_to)) = (run.lens.span(i), run.stored.span(i));
        Block {
            number: self.first_block + (run.first + i) as u64,
            offset: self.offset + run.offset + from,
            len: to - from,
            pos: self.pos + run.pos + stored_from,
            stored_len: stored_to - stored_from,
            codec: run.codec,
            part: run.part,
            checksum: self.checksums[run.first + i],
        }
    }
}

/// Gathers the blocks of a chapter while they are written.
#[derive(Debug, Default)]
pub(crate) struct TableBuilder {
    /// Per run: codec, and the decoded and stored length of each block.
    runs: Vec<(u8, Vec<u64>, Vec<u64>)>,
    checksums: Vec<u32>,
    content: u64,
    len: u64,
}

impl TableBuilder {
    pub fn push(&mut self, codec: u8, len: u64, stored_len: u64, checksum: u32) {
        if self.runs.last().is_none_or(|(last, ..)| *last != codec) {
            self.runs.push((codec, Vec::new(), Vec::new()));
        }
        if let Some((_, lens, stored_lens)) = self.runs.last_mut() {
            lens.push(len);
            stored_lens.push(stored_len);
        }
        self.checksums.push(checksum);
    }

    /// Tells the checksum of the next `len` decoded bytes.
    pub fn add_content(&mut self, checksum: u64, len: u64) {
        self.content = crc64_join(self.content, checksum, len);
        self.len += len;
    }

    pub fn blocks(&self) -> usize {
        self.checksums.len()
    }
    pub fn len(&self) -> u64 {
        self.len
    }
    pub fn content(&self) -> u64 {
        self.content
    }
    #[cfg(test)]
    pub fn stored_len(&self) -> u64 {
        self.runs.iter().flat_map(|(_, _, lens)| lens).sum::<u64>()
    }

    /// Appends the section of this table, which lies at `pos`, `back` bytes
    /// behind the chapter's start. `before`: decoded bytes and blocks before it.
    pub fn put(&self, out: &mut Vec<u8>, pos: u64, back: u64, before: (u64, u64)) -> SectionRef {
        let mut payload = Vec::new();
        payload.put_varint(back);
        payload.put_varint(self.runs.len() as u64);
        for (codec, lens, stored_lens) in &self.runs {
            payload.put_varint(lens.len() as u64);
            payload.put_u8(*codec);
            payload.put_u8(0);
            Ends::put(lens, &mut payload);
            Ends::put(stored_lens, &mut payload);
        }
        self.checksums.iter().for_each(|&checksum| payload.put_u32(checksum));
        payload.put_u64(self.content);
        let start = out.len();
        Section::put(out, pos, Kind::ChapterTable, before, &payload, None);
        SectionRef { pos, len: (out.len() - start) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table_of(blocks: &[(u8, u64, u64)]) -> Table {
        let mut builder = TableBuilder::default();
        for (i, &(codec, len, stored)) in blocks.iter().enumerate() {
            builder.push(codec, len, stored, i as u32);
            builder.add_content(0, len);
        }
        let (mut out, pos) = (Vec::new(), 1000 + builder.stored_len());
        let at = builder.put(&mut out, pos, builder.stored_len(), (5000, 77));
        let section = Section::parse(&out, pos, WHAT).unwrap();
        assert_eq!(section.at, at);
        Table::parse(&section).unwrap()
    }

    proptest! {
        #[test]
        fn blocks_are_found_as_by_adding_up_their_lengths(
            blocks in proptest::collection::vec((0u8..3, prop_oneof![Just(100u64), 1u64..300], 1u64..300), 1..200)
        ) {
            let blocks: Vec<_> = blocks.into_iter().map(|(c, len, stored)| (c, len, stored.min(len))).collect();
            let table = table_of(&blocks);
            let (mut offset, mut pos) = (5000, 1000);
            for (i, &(codec, len, stored_len)) in blocks.iter().enumerate() {
                let expected = Block {
                    number: 77 + i as u64, offset, len, pos, stored_len, codec, part: 0, checksum: i as u32,
                };
                prop_assert_eq!(table.block(i), expected);
                for at in [offset, offset + len / 2, offset + len - 1] {
                    prop_assert_eq!(table.find(at), expected);
                }
                offset += len;
                pos += stored_len;
            }
            prop_assert_eq!((table.len, table.stored_len), (offset - 5000, pos - 1000));
        }
    }

    #[test]
    fn a_table_whose_blocks_start_before_the_file_or_end_behind_it_is_refused() {
        let mut builder = TableBuilder::default();
        builder.push(0, 100, 100, 0);
        for (pos, back) in [(100, 99), (100, 101), (50, 100)] {
            let mut out = Vec::new();
            builder.put(&mut out, pos, back, (0, 0));
            assert!(Table::parse(&Section::parse(&out, pos, WHAT).unwrap()).is_err());
        }
    }

    #[test]
    fn the_index_of_a_full_chapter_costs_no_more_than_two_and_a_tenth_bits_beyond_the_entropy() {
        for mean in [4096u64, 5000, 6000, 8000] {
            let mut builder = TableBuilder::default();
            (0..4096).for_each(|i| builder.push(3, 16384, mean - 50 + i * 7 % 101, 0));
            builder.add_content(0, 4096 * 16384);
            let (mut out, far) = (Vec::new(), 1u64 << 40);
            builder.put(&mut out, far, builder.stored_len(), (far, far >> 14));
            // Beside it: 4 bytes a block, the section's own checksum and the content's.
            let bits = (out.len() - 4096 * 4 - 12) as f64 * 8.0 / 4096.0;
            let mean = (builder.stored_len() as f64 / 4096.0).log2();
            assert!(bits <= 2.1 + mean, "{bits} {mean}");
        }
    }
}
