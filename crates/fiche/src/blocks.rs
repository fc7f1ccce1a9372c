//! From a logical offset to a stored block: chapters and their tables.
//!
//! # Chapter
//!
//! Up to 4,096 blocks, one after the other, with record pages and begun records
//! between them and behind them, and then the chapter table. The writer ends a chapter
//! after 4,096 blocks or 64 MiB of content. A chapter of records that have no content has
//! no blocks.
//!
//! # Block
//!
//! | size | field | meaning |
//! |---|---|---|
//! | | stored | what the codec made of 1 byte to 2^26 bytes, or these bytes themselves |
//! | 4 | checksum | CRC-32C of the stored bytes, plus 66696300 (hexadecimal), plus the block's mark; modulo 2^32 |
//!
//! The mark of a block is 0 where the stored bytes are those of the block. Otherwise it is the number of
//! the codec or coding, plus 256 times a tag, which is 0 unless it has a dictionary: then it is the first
//! two bytes of that one's digest, as an integer, xor the same of its model's, if it has one.
//!
//! The chapter table says where a block ends. Where that table is lost, a block's own
//! checksum does: from its start, it is the first place where the checksum fits
//! and the bytes before it decode. So the blocks of a file that was cut are found, up to the
//! last one that is whole.
//!
//! # Chapter table
//!
//! Section kind 3; offset: decoded bytes before this chapter; number: blocks
//! before this chapter. Never compressed.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | back | from the chapter's first byte, of a block or a section, to the first byte of this section |
//! | varint | runs | how many runs follow; 0 where there are no blocks |
//! | | runs | see below |
//! | | gaps | up to the end of the section, for each place before a block where sections lie: varint: how many blocks since the last such place, at least 1, or since the chapter's start; varint: length of these sections, at least 1 |
//!
//! A run is a number of blocks, one after the other, that are alike:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | blocks | how many, at least 1; no more than 4,096 in all runs together |
//! | 1 | codec | number of the codec or coding |
//! | 1 | flags | bit 0: part follows; bit 1: dictionary follows; bit 2: model follows; other bits are zero. Nothing sets bit 0 yet, and a reader of this version refuses it |
//! | varint | part | which other file holds these blocks; only if flagged |
//! | varint | dictionary | its place among the footer's other sections, counted from 0; only if flagged |
//! | varint | model | likewise; only if flagged |
//! | | lengths | decoded length of each block |
//! | | stored lengths | of each block, without its checksum |
//!
//! Both lists of lengths are written in one of two ways:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | tag | 0: an Elias-Fano sequence follows, of where each block ends, as if the run were nothing but these bytes; `2 * len`: every block has this length; `2 * len + 1`: every block but the last one |
//! | varint | last | length of the last block, below `len`; only if the tag is odd |
//!
//! The first run starts at the chapter's first byte, every other one where the
//! run before ends (or behind the gap there); where the last one ends, the last sections of
//! the chapter begin.

use std::ops::Range;

use crate::elias_fano::EliasFano;
use crate::envelope::{Kind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::wire::{Put, Take};

/// Most blocks in a chapter.
pub(crate) const MAX_BLOCKS: usize = 4096;
/// Content at which a chapter ends even with fewer blocks.
pub(crate) const CHAPTER_CONTENT: u64 = 64 << 20;
/// Length of the checksum behind a block's stored bytes.
pub(crate) const CHECKSUM: usize = 4;
/// The longest block that is read.
pub(crate) const MAX_BLOCK: u64 = 1 << 26;

/// Most dictionaries and models in an archive.
pub(crate) const MAX_SHARED: usize = 1 << 16;

const WHAT: &str = "chapter table";
const HAS_PART: u8 = 1;
const HAS_DICTIONARY: u8 = 2;
const HAS_MODEL: u8 = 4;

/// How a block is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coded {
    /// Codec or coding by number, as stored: it may be one that is not known here.
    pub number: u8,
    /// What it shares with others: places in the footer's list.
    pub dictionary: Option<u32>,
    pub model: Option<u32>,
}

/// One block, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its number in the archive.
    pub number: u64,
    /// Offset of its first decoded byte in the archive, and how many there are.
    pub offset: u64,
    pub len: u64,
    /// Position of its first stored byte in the file, and how many there are, with
    /// the checksum behind them.
    pub pos: u64,
    pub stored_len: u64,
    pub coded: Coded,
}

impl Block {
    /// Where its checksum ends in the file.
    pub fn end(&self) -> u64 {
        self.pos + self.stored_len
    }
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
    coded: Coded,
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
    /// Where sections lie before blocks.
    gaps: Vec<Gap>,
    blocks: usize,
    /// Decoded and stored bytes of all blocks, checksums included, and of all sections
    /// between them.
    pub len: u64,
    pub stored_len: u64,
    pub gap_len: u64,
    /// Bytes of the list of gaps in the table.
    pub gaps_size: u64,
}

/// Sections before a block of a chapter.
#[derive(Debug)]
struct Gap {
    /// The block behind them.
    block: usize,
    /// Bytes of all sections before that block.
    len: u64,
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
            gaps: Vec::new(),
            blocks: 0,
            len: 0,
            stored_len: 0,
            gap_len: 0,
            gaps_size: 0,
        };
        for _ in 0..runs {
            let run = table.take_run(&mut take, table.blocks)?;
            table.blocks += run.blocks;
            table.len += run.lens.total();
            table.stored_len += run.stored.total() + (CHECKSUM * run.blocks) as u64;
            table.runs.push(run);
        }
        table.gaps_size = take.remaining() as u64;
        while take.remaining() > 0 {
            let (blocks, len) = (take.count(MAX_BLOCKS as u64)?, take.count(back)?);
            let block = table.gaps.last().map_or(0, |gap| gap.block) + blocks;
            table.gap_len += len as u64;
            // There are at most 4,096 of these, none longer than a file: no sum overflows.
            if (blocks == 0 && !table.gaps.is_empty())
                || len == 0
                || block >= table.blocks
                || table.gap_len > back
            {
                return Err(take.corrupt());
            }
            table.gaps.push(Gap { block, len: table.gap_len });
        }
        let limit = i64::MAX as u64;
        let too_far = table.offset > limit || table.first_block > limit;
        if table.stored_len > back - table.gap_len || too_far {
            return Err(take.corrupt());
        }
        Ok(table)
    }

    fn take_run(&self, take: &mut Take<'_>, first: usize) -> Result<Run> {
        let blocks = take.count((MAX_BLOCKS - first) as u64)?;
        if blocks == 0 {
            return Err(take.corrupt());
        }
        let (number, flags) = (take.u8()?, take.u8()?);
        if flags & !(HAS_PART | HAS_DICTIONARY | HAS_MODEL) != 0 {
            return Err(Error::Unsupported { what: "flag of a run", found: u64::from(flags) });
        }
        if flags & HAS_PART != 0 {
            return Err(Error::Unsupported { what: "part", found: take.varint()? });
        }
        let mut shared = |flag: u8| -> Result<Option<u32>> {
            let is_set = flags & flag != 0;
            is_set.then(|| Ok(take.count(MAX_SHARED as u64)? as u32)).transpose()
        };
        let (dictionary, model) = (shared(HAS_DICTIONARY)?, shared(HAS_MODEL)?);
        let coded = Coded { number, dictionary, model };
        let (lens, stored) = (Ends::take(take, blocks)?, Ends::take(take, blocks)?);
        let run =
            Run { blocks, coded, first, offset: self.len, pos: self.stored_len, lens, stored };
        for i in 0..blocks {
            let ((from, to), (stored_from, stored_to)) = (run.lens.span(i), run.stored.span(i));
            if to - from > MAX_BLOCK || stored_to - stored_from > to - from {
                return Err(take.corrupt());
            }
        }
        Ok(run)
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Where the last block ends, and the last sections of the chapter begin.
    pub fn end(&self) -> u64 {
        self.pos + self.stored_len + self.gap_len
    }

    /// Where sections lie, in order: how many blocks of the chapter are before them, and their
    /// positions. The last are those between the last block and this table, which lies at `pos`.
    pub fn spaces(&self, pos: u64) -> Vec<(usize, Range<u64>)> {
        let mut spaces = Vec::with_capacity(self.gaps.len() + 1);
        let mut before = 0;
        for gap in &self.gaps {
            let end = self.block(gap.block).pos;
            spaces.push((gap.block, end - (gap.len - before)..end));
            before = gap.len;
        }
        spaces.push((self.blocks, self.end()..pos));
        spaces
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
        let gaps = self.gaps.partition_point(|gap| gap.block <= run.first + i);
        let gap_len = if gaps == 0 { 0 } else { self.gaps[gaps - 1].len };
        Block {
            number: self.first_block + (run.first + i) as u64,
            offset: self.offset + run.offset + from,
            len: to - from,
            pos: self.pos + run.pos + gap_len + stored_from + (CHECKSUM * i) as u64,
            stored_len: stored_to - stored_from + CHECKSUM as u64,
            coded: run.coded,
        }
    }
}

/// Gathers the blocks of a chapter while they are written.
#[derive(Debug, Default)]
pub(crate) struct TableBuilder {
    /// Per run: how it is coded, and the decoded and stored length of each block.
    runs: Vec<(Coded, Vec<u64>, Vec<u64>)>,
    /// Blocks before each gap, and how long it is; the last one may yet prove to be
    /// behind the last block, and then it is none.
    gaps: Vec<(usize, u64)>,
    blocks: usize,
    len: u64,
}

impl TableBuilder {
    /// Adds a block of `len` decoded and `stored_len` stored bytes, checksum included.
    pub fn push(&mut self, coded: Coded, len: u64, stored_len: u64) {
        if self.runs.last().is_none_or(|(last, ..)| *last != coded) {
            self.runs.push((coded, Vec::new(), Vec::new()));
        }
        if let Some((_, lens, stored_lens)) = self.runs.last_mut() {
            lens.push(len);
            stored_lens.push(stored_len - CHECKSUM as u64);
        }
        self.blocks += 1;
        self.len += len;
    }

    /// Tells of so many bytes of sections behind the last block.
    pub fn push_gap(&mut self, len: u64) {
        match self.gaps.last_mut() {
            Some((blocks, gap)) if *blocks == self.blocks => *gap += len,
            _ => self.gaps.push((self.blocks, len)),
        }
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }
    pub fn len(&self) -> u64 {
        self.len
    }
    #[cfg(test)]
    pub fn stored_len(&self) -> u64 {
        let stored = self.runs.iter().flat_map(|(_, _, lens)| lens).sum::<u64>();
        stored + (CHECKSUM * self.blocks) as u64
    }

    /// Appends the section of this table, which lies at `pos`, `back` bytes
    /// behind the chapter's start. `before`: decoded bytes and blocks before it.
    pub fn put(&self, out: &mut Vec<u8>, pos: u64, back: u64, before: (u64, u64)) -> SectionRef {
        let mut payload = Vec::new();
        payload.put_varint(back);
        payload.put_varint(self.runs.len() as u64);
        for (coded, lens, stored_lens) in &self.runs {
            payload.put_varint(lens.len() as u64);
            payload.put_u8(coded.number);
            let flag = |shared: Option<u32>, flag| shared.map_or(0, |_| flag);
            payload.put_u8(flag(coded.dictionary, HAS_DICTIONARY) | flag(coded.model, HAS_MODEL));
            let shared = [coded.dictionary, coded.model].into_iter().flatten();
            shared.for_each(|place| payload.put_varint(u64::from(place)));
            Ends::put(lens, &mut payload);
            Ends::put(stored_lens, &mut payload);
        }
        let mut last = 0;
        for &(blocks, len) in self.gaps.iter().filter(|(blocks, _)| *blocks < self.blocks) {
            payload.put_varint((blocks - last) as u64);
            payload.put_varint(len);
            last = blocks;
        }
        let start = out.len();
        Section::put(out, pos, Kind::ChapterTable, before, &payload, None);
        SectionRef { pos, len: (out.len() - start) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some are with a dictionary, or a model, or both.
    fn coded(number: u8) -> Coded {
        let shared = |bit: u8| (number & bit != 0).then_some(u32::from(number) * 100);
        Coded { number, dictionary: shared(1), model: shared(2) }
    }

    /// Codec, decoded and stored length of each block, and the sections behind it.
    fn table_of(blocks: &[(u8, u64, u64, u64)]) -> Table {
        let mut builder = TableBuilder::default();
        let mut back = 0;
        for &(codec, len, stored, gap) in blocks {
            builder.push(coded(codec), len, stored);
            if gap > 0 {
                builder.push_gap(gap);
            }
            back += stored + gap;
        }
        let (mut out, pos) = (Vec::new(), 1000 + back);
        let at = builder.put(&mut out, pos, back, (5000, 77));
        let section = Section::parse(&out, pos, WHAT).unwrap();
        assert_eq!(section.at, at);
        Table::parse(&section).unwrap()
    }

    proptest! {
        #[test]
        fn blocks_are_found_as_by_adding_up_their_lengths(
            blocks in proptest::collection::vec(
                (0u8..4, prop_oneof![Just(100u64), 1u64..300], 1u64..300, prop_oneof![4 => Just(0), 1 => 1u64..999]), 1..200)
        ) {
            let blocks: Vec<_> =
                blocks.into_iter().map(|(c, len, stored, gap)| (c, len, stored.min(len) + 4, gap)).collect();
            let table = table_of(&blocks);
            let (mut offset, mut pos, mut spaces) = (5000, 1000, Vec::new());
            for (i, &(codec, len, stored_len, gap)) in blocks.iter().enumerate() {
                let expected =
                    Block { number: 77 + i as u64, offset, len, pos, stored_len, coded: coded(codec) };
                prop_assert_eq!(table.block(i), expected);
                for at in [offset, offset + len / 2, offset + len - 1] {
                    prop_assert_eq!(table.find(at), expected);
                }
                offset += len;
                pos += stored_len;
                if gap > 0 || i + 1 == blocks.len() {
                    spaces.push((i + 1, pos..pos + gap));
                }
                pos += gap;
            }
            prop_assert_eq!(table.len, offset - 5000);
            prop_assert_eq!(table.spaces(pos), spaces);
        }
    }

    #[test]
    fn a_table_whose_blocks_start_before_the_file_or_end_behind_it_is_refused() {
        let mut builder = TableBuilder::default();
        builder.push(coded(0), 96, 100);
        for (pos, back) in [(100, 99), (99, 100), (50, 100)] {
            let mut out = Vec::new();
            builder.put(&mut out, pos, back, (0, 0));
            assert!(Table::parse(&Section::parse(&out, pos, WHAT).unwrap()).is_err());
        }
    }

    #[test]
    fn the_index_of_a_full_chapter_costs_no_more_than_two_and_a_tenth_bits_beyond_the_entropy() {
        for mean in [4096u64, 5000, 6000, 8000] {
            let mut builder = TableBuilder::default();
            (0..4096).for_each(|i| builder.push(coded(3), 16384, mean - 50 + i * 7 % 101));
            let (mut out, far) = (Vec::new(), 1u64 << 40);
            builder.put(&mut out, far, builder.stored_len(), (far, far >> 14));
            // Beside it: the section's own checksum.
            let bits = (out.len() - 4) as f64 * 8.0 / 4096.0;
            let mean = (builder.stored_len() as f64 / 4096.0 - CHECKSUM as f64).log2();
            assert!(bits <= 2.1 + mean, "{bits} {mean}");
        }
    }
}
