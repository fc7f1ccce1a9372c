//! The bytes of an archive's footer.
//!
//! # Archive
//!
//! A file of kind 1: the header; chapters; the nodes and name pages of the record
//! index; the footer; the trailer. Decoded, it is the content of its blocks, one
//! after the other. An append adds chapters, nodes and a footer behind the
//! trailer; the old footer and trailer stay in the middle, superseded. Of archives
//! that were joined, the nodes of one lie before the chapters of the next. Nothing
//! else lies in between: every byte belongs to one block, section or superseded range.
//!
//! # Footer
//!
//! Section kind 8, offset and number 0, never compressed.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | length | decoded bytes of the whole archive |
//! | varint | blocks | in all chapters |
//! | varint | records | in all trees |
//! | 8 | content | CRC-64 of all decoded bytes |
//! | varint | chapters | how many follow |
//! | | | for each, in order: varint: position of its table, less the end of the table before (less 32 for the first); varint: length of the table's section; varint: decoded bytes; varint: blocks |
//! | varint | trees | how many trees of records follow, in the order of their records |
//! | | | for each: tree; 1 byte: how its names are found, 0 there are none, 1 they increase, 2 by a tree of name pages, which then follows; its names are numbered from 0 |
//! | varint | superseded | how many ranges of the file mean nothing any more |
//! | | | for each, in order: varint: position; varint: length; 4 bytes: CRC-32C of these bytes, for whoever verifies the whole file |
//! | varint | others | how many other sections follow (none is written yet) |
//! | | | for each: 1 byte: kind; varint: position; varint: length. A reader refuses kinds below 128 that it does not know |
//! | varint | parts | how many other files hold blocks: 0; a reader refuses others |
//! | varint | notes | how many follow; for people, ignored by readers |
//! | | | for each: varint, bytes: key; varint, bytes: value |
//!
//! A tree is:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | count | records (or names) in it, at least 1 |
//! | 1 | level | levels of nodes above its pages, up to 7; 0 when the root is a page |
//! | varint | position | of the root's section |
//! | varint | length | of the root's section |
//!
//! The first record of a tree is the one after the last record of the tree before.

use crate::blocks::MAX_BLOCKS;
use crate::envelope::{HEADER_LEN, Kind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::records::{Names, RecordTree, put_tree, take_tree};
use crate::wire::{Put, Take};

/// A chapter as the footer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChapterRef {
    pub table: SectionRef,
    /// Of the archive before it: decoded bytes and blocks.
    pub offset: u64,
    pub first_block: u64,
    /// Its own.
    pub len: u64,
    pub blocks: u64,
}

/// A range of the file that a later footer left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub at: SectionRef,
    pub checksum: u32,
}

/// All that the footer says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footer {
    pub len: u64,
    pub blocks: u64,
    pub records: u64,
    pub content: u64,
    pub chapters: Vec<ChapterRef>,
    pub trees: Vec<RecordTree>,
    pub superseded: Vec<Superseded>,
    pub notes: Vec<(String, String)>,
}

impl Footer {
    /// Appends its section, which lies at `pos`.
    pub fn put(&self, out: &mut Vec<u8>, pos: u64) -> SectionRef {
        let mut payload = Vec::new();
        payload.put_varint(self.len);
        payload.put_varint(self.blocks);
        payload.put_varint(self.records);
        payload.put_u64(self.content);
        payload.put_varint(self.chapters.len() as u64);
        let mut end = HEADER_LEN;
        for chapter in &self.chapters {
            payload.put_varint(chapter.table.pos - end);
            payload.put_varint(chapter.table.len);
            payload.put_varint(chapter.len);
            payload.put_varint(chapter.blocks);
            end = chapter.table.end();
        }
        payload.put_varint(self.trees.len() as u64);
        for RecordTree { tree, names } in &self.trees {
            put_tree(tree, &mut payload);
            match names {
                Names::Absent | Names::Unknown => payload.put_u8(0),
                Names::Increasing => payload.put_u8(1),
                Names::Sorted(names) => {
                    payload.put_u8(2);
                    put_tree(names, &mut payload);
                }
            }
        }
        payload.put_varint(self.superseded.len() as u64);
        for Superseded { at, checksum } in &self.superseded {
            at.put(&mut payload);
            payload.put_u32(*checksum);
        }
        payload.put_varint(0);
        payload.put_varint(0);
        payload.put_varint(self.notes.len() as u64);
        for (key, value) in &self.notes {
            payload.put_string(key.as_bytes());
            payload.put_string(value.as_bytes());
        }
        let start = out.len();
        Section::put(out, pos, Kind::Footer, (0, 0), &payload, None);
        SectionRef { pos, len: (out.len() - start) as u64 }
    }

    /// Checks that the parts agree with one another and lie before the footer.
    pub fn parse(section: &Section) -> Result<Footer> {
        let mut take = section.take("footer");
        let mut footer = Footer {
            len: take.varint()?,
            blocks: take.varint()?,
            records: take.varint()?,
            content: take.u64()?,
            ..Footer::default()
        };
        // Nothing is counted that does not take at least a byte here.
        let limit = |take: &Take<'_>| take.remaining() as u64;
        let chapters = take.count(limit(&take))?;
        footer.chapters.reserve_exact(chapters);
        let (mut end, mut offset, mut first_block) = (HEADER_LEN, 0u64, 0u64);
        for _ in 0..chapters {
            let pos = take.varint()?.checked_add(end).ok_or_else(|| take.corrupt())?;
            let (table_len, len, blocks) = (take.varint()?, take.varint()?, take.varint()?);
            let table = SectionRef { pos, len: table_len };
            end = pos.checked_add(table_len).ok_or_else(|| take.corrupt())?;
            if end > section.at.pos || blocks > MAX_BLOCKS as u64 || (len == 0) != (blocks == 0) {
                return Err(take.corrupt());
            }
            footer.chapters.push(ChapterRef { table, offset, first_block, len, blocks });
            offset = offset
                .checked_add(len)
                .filter(|&o| o <= i64::MAX as u64)
                .ok_or_else(|| take.corrupt())?;
            first_block += blocks;
        }
        let trees = take.count(limit(&take))?;
        let mut record = 0;
        for _ in 0..trees {
            let tree = take_tree(&mut take, record)?;
            let names = match take.u8()? {
                0 => Names::Absent,
                1 => Names::Increasing,
                2 => Names::Sorted(take_tree(&mut take, 0)?),
                found => {
                    let what = "way to find names";
                    return Err(Error::Unsupported { what, found: u64::from(found) });
                }
            };
            record = tree.first + tree.count;
            footer.trees.push(RecordTree { tree, names });
        }
        let superseded = take.count(limit(&take))?;
        for _ in 0..superseded {
            let at = SectionRef::take(&mut take)?;
            footer.superseded.push(Superseded { at, checksum: take.u32()? });
        }
        for _ in 0..take.count(limit(&take))? {
            let kind = take.u8()?;
            SectionRef::take(&mut take)?;
            if kind < 128 {
                return Err(Error::Unsupported { what: "kind of section", found: u64::from(kind) });
            }
        }
        let parts = take.varint()?;
        if parts != 0 {
            return Err(Error::Unsupported { what: "number of parts", found: parts });
        }
        for _ in 0..take.count(limit(&take))? {
            let (key, value) = (take.string()?, take.string()?);
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            footer.notes.push((text(key), text(value)));
        }
        take.end()?;
        if (offset, first_block, record) != (footer.len, footer.blocks, footer.records) {
            return Err(take.corrupt());
        }
        Ok(footer)
    }

    /// The value of a note.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}
