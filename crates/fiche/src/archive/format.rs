//! The bytes of an archive's footer.
//!
//! # Archive
//!
//! A file of kind 1: the header; chapters; the nodes and name pages of the record
//! index; the footer; the trailer. Decoded, it is the content of its blocks, one
//! after the other. An append adds chapters, nodes and a footer behind the
//! trailer; the old trailer stays in the middle, superseded. Of archives
//! that were joined, the nodes of one lie before the chapters of the next. Nothing
//! else lies in between: every byte belongs to one block, section or superseded range.
//!
//! # Footer
//!
//! Section kind 8, offset and number 0, never compressed. A footer may continue one that
//! was written before: then its four lists (chapters, trees, superseded, others) hold only what
//! comes behind those of that one, which may itself continue another. The trailer leads
//! to the last. Numbers that tell of the whole archive do so in each footer, for the
//! archive as it was then. A writer continues a footer only if that added at least as many
//! entries as its own; otherwise it repeats them, and the one before is superseded: so
//! there are at most some log2 of as many as there are entries, and a reader refuses more
//! than 64.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | previous | position of the footer that this one continues; 0 if it continues none |
//! | varint | previous length | of that section; only if there is one. It ends at or before this one |
//! | varint | length | decoded bytes of the whole archive |
//! | varint | blocks | in all chapters |
//! | varint | records | in all trees |
//! | 8 | content | CRC-64 of all decoded bytes |
//! | varint | chapters | how many follow |
//! | | | for each, in order: varint: position of its table, less the end of the table before (less 32 for the first of the archive); varint: length of the table's section; varint: decoded bytes; varint: blocks |
//! | varint | trees | how many trees of records follow, in the order of their records |
//! | | | for each: tree; 1 byte: how its names are found, 0 there are none, 1 they increase, 2 by a tree of name pages, which then follows; its names are numbered from 0 |
//! | varint | superseded | how many ranges of the file mean nothing any more |
//! | | | for each, in the order of positions: varint: position; varint: length; 4 bytes: CRC-32C of these bytes, for whoever verifies the whole file |
//! | varint | others | how many other sections follow: dictionaries, models and spares, in the order of their positions |
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
//! Of notes, those of the last footer count.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::blocks::{MAX_BLOCKS, MAX_SHARED};
use crate::envelope::{HEADER_LEN, Kind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::io::ReadAt;
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

/// A footer that a later one may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub at: SectionRef,
    /// CRC-32C of its bytes, for when it is superseded.
    pub checksum: u32,
    /// How long the lists are with what it adds.
    ends: Ends,
}

/// A dictionary or a model: what blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedRef {
    pub kind: u8,
    pub at: SectionRef,
}

/// Lengths of the four lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    chapters: usize,
    trees: usize,
    superseded: usize,
    shared: usize,
}

impl Ends {
    fn sum(&self) -> usize {
        self.chapters + self.trees + self.superseded + self.shared
    }
}

/// Most footers that continue one another.
const MAX_LINKS: usize = 64;

/// All that the footers say, the last one and those it continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footer {
    /// The footers, the oldest first.
    pub links: Vec<Link>,
    pub len: u64,
    pub blocks: u64,
    pub records: u64,
    pub content: u64,
    pub chapters: Vec<ChapterRef>,
    pub trees: Vec<RecordTree>,
    pub superseded: Vec<Superseded>,
    pub shared: Vec<SharedRef>,
    pub notes: Vec<(String, String)>,
}

impl Footer {
    fn ends(&self) -> Ends {
        Ends {
            chapters: self.chapters.len(),
            trees: self.trees.len(),
            superseded: self.superseded.len(),
            shared: self.shared.len(),
        }
    }

    /// Lengths of the lists without what footer `i` and later ones add.
    fn before(&self, i: usize) -> Ends {
        i.checked_sub(1).and_then(|i| self.links.get(i)).map_or(Ends::default(), |link| link.ends)
    }

    /// Appends the section of what was added since the last footer, which lies at `pos`;
    /// with what small footers before it added, which are superseded.
    pub fn put(&mut self, out: &mut Vec<u8>, pos: u64) -> SectionRef {
        while let Some(link) = self.links.last().copied() {
            let own = self.ends().sum() - link.ends.sum();
            if link.ends.sum() - self.before(self.links.len() - 1).sum() > own {
                break;
            }
            self.superseded.push(Superseded { at: link.at, checksum: link.checksum });
            self.links.pop();
        }
        let ends = self.before(self.links.len());
        let added = self.superseded.get_mut(ends.superseded..).unwrap_or_default();
        added.sort_by_key(|superseded| superseded.at.pos);
        let mut payload = Vec::new();
        match self.links.last() {
            Some(link) => link.at.put(&mut payload),
            None => payload.put_varint(0),
        }
        payload.put_varint(self.len);
        payload.put_varint(self.blocks);
        payload.put_varint(self.records);
        payload.put_u64(self.content);
        payload.put_varint((self.chapters.len() - ends.chapters) as u64);
        let last = ends.chapters.checked_sub(1).and_then(|i| self.chapters.get(i));
        let mut end = last.map_or(HEADER_LEN, |chapter| chapter.table.end());
        for chapter in self.chapters.iter().skip(ends.chapters) {
            payload.put_varint(chapter.table.pos - end);
            payload.put_varint(chapter.table.len);
            payload.put_varint(chapter.len);
            payload.put_varint(chapter.blocks);
            end = chapter.table.end();
        }
        payload.put_varint((self.trees.len() - ends.trees) as u64);
        for RecordTree { tree, names } in self.trees.iter().skip(ends.trees) {
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
        payload.put_varint((self.superseded.len() - ends.superseded) as u64);
        for Superseded { at, checksum } in self.superseded.iter().skip(ends.superseded) {
            at.put(&mut payload);
            payload.put_u32(*checksum);
        }
        payload.put_varint((self.shared.len() - ends.shared) as u64);
        for SharedRef { kind, at } in self.shared.iter().skip(ends.shared) {
            payload.put_u8(*kind);
            at.put(&mut payload);
        }
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

    /// Loads the footer at `at`, and those it continues.
    pub fn load(source: &dyn ReadAt, at: SectionRef) -> Result<Footer> {
        let mut sections = vec![Section::load(source, at, Kind::Footer)?];
        while let Some(last) = sections.last() {
            let Some(at) = Footer::previous(&mut last.take("footer"))? else { break };
            // Each lies before the next: so they end.
            if at.end() > last.at.pos || sections.len() >= MAX_LINKS {
                return Err(last.corrupt("footer"));
            }
            sections.push(Section::load(source, at, Kind::Footer)?);
        }
        let mut footer = Footer::default();
        for section in sections.iter().rev() {
            footer.extend(section)?;
        }
        Ok(footer)
    }

    /// Where the footer lies that this one continues.
    fn previous(take: &mut Take<'_>) -> Result<Option<SectionRef>> {
        match take.clone().varint()? {
            0 => take.varint().map(|_| None),
            _ => SectionRef::take(take).map(Some),
        }
    }

    /// Adds what this footer says to what those before it said. Checks that the parts
    /// agree with one another and lie before the footer.
    fn extend(&mut self, section: &Section) -> Result<()> {
        let footer = self;
        let mut take = section.take("footer");
        Footer::previous(&mut take)?;
        (footer.len, footer.blocks) = (take.varint()?, take.varint()?);
        (footer.records, footer.content) = (take.varint()?, take.u64()?);
        footer.notes.clear();
        // Nothing is counted that does not take at least a byte here.
        let limit = |take: &Take<'_>| take.remaining() as u64;
        let chapters = take.count(limit(&take))?;
        footer.chapters.reserve(chapters);
        let (mut end, mut offset, mut first_block) = match footer.chapters.last() {
            Some(last) => {
                (last.table.end(), last.offset + last.len, last.first_block + last.blocks)
            }
            None => (HEADER_LEN, 0u64, 0u64),
        };
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
        let mut record = footer.trees.last().map_or(0, |last| last.tree.first + last.tree.count);
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
            let at = SectionRef::take(&mut take)?;
            let known = [Kind::Dictionary, Kind::Model, Kind::Spare];
            if kind < 128 && !known.iter().any(|known| *known as u8 == kind) {
                return Err(Error::Unsupported { what: "kind of section", found: u64::from(kind) });
            }
            if at.end() > section.at.pos || footer.shared.len() >= MAX_SHARED {
                return Err(take.corrupt());
            }
            footer.shared.push(SharedRef { kind, at });
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
        let ends = footer.ends();
        footer.links.push(Link { at: section.at, checksum: 0, ends });
        Ok(())
    }

    /// The value of a note.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}
