//! Opens what is left of an archive that was cut or damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::archive::format::{ChapterRef, Footer, SharedRef};
use crate::archive::open::OpenOptions;
use crate::archive::reader::{Reader, load_table};
use crate::archive::rebuild::Rebuilder;
use crate::archive::shared::Shared;
use crate::blocks::{MAX_SHARED, Table};
use crate::envelope::{
    self, Container, HEADER_LEN, Kind as SectionKind, MARKER, Section, SectionRef,
};
use crate::error::{Error, Result};
use crate::io::{ReadAt, within};
use crate::records::{Names, RecordTree, Tree, parse_page};

/// What was found, and what is known to be lost already. Damaged blocks show
/// only when they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// True when the end of the file is missing or damaged: how long the content
    /// was, and which records stood behind, is not known.
    pub cut: bool,
    /// Ranges of content whose chapters are lost.
    pub lost: Vec<Range<u64>>,
    /// How many records before the last one found have lost their names.
    pub records_lost: u64,
    /// Records that had not ended where the file was cut, by number: only their
    /// beginnings are left.
    pub incomplete: Vec<u64>,
    /// How many chapters have lost their tables, but not their blocks: these were found by
    /// their own checksums.
    pub rebuilt: u64,
}

impl Recovered {
    /// True when nothing was found to be lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let rebuilt = self.rebuilt;
        *self == Recovered { rebuilt, ..Recovered::default() }
    }
}

impl Reader {
    /// Opens what can still be read of an archive that [`open`](Reader::open)
    /// refuses, or whose index is damaged. Where the footer or the index is
    /// lost, the whole file is searched for chapter tables and record pages: that
    /// takes one pass over it. Where a chapter table is lost, its blocks are found by
    /// their own checksums, each up to the first that is damaged: that decodes them. Content keeps its offsets and records their
    /// numbers; reading what is lost gives [`Error::Corrupt`].
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no file of fiche's, [`Error::Unsupported`] when
    /// a newer version wrote it, [`Error::Io`].
    ///
    /// [`Error::Corrupt`]: crate::Error::Corrupt
    /// [`Error::Invalid`]: crate::Error::Invalid
    /// [`Error::Unsupported`]: crate::Error::Unsupported
    /// [`Error::Io`]: crate::Error::Io
    pub fn recover(source: Arc<dyn ReadAt>) -> Result<(Reader, Recovered)> {
        OpenOptions::default().recover(source)
    }
}

impl OpenOptions {
    /// As [`Reader::recover`], with these options.
    ///
    /// # Errors
    /// Those of [`Reader::recover`].
    pub fn recover(&self, source: Arc<dyn ReadAt>) -> Result<(Reader, Recovered)> {
        let opened = self.open(source.clone());
        let index_is_whole = opened.as_ref().is_ok_and(index_is_whole);
        // Fails where the file is not ours, or of another version.
        envelope::read_header(&source, Container::Archive)?;
        let cut = opened.is_err();
        let mut recovered = Recovered { cut, ..Recovered::default() };
        let mut chapters = Chapters::default();
        let found = if index_is_whole { Found::default() } else { search(&source)? };
        let mut footer = match &opened {
            Ok(reader) => reader.inner().footer.clone(),
            Err(_) => footer_of(&found),
        };
        chapters.load(&source, &mut footer, cut, self)?;
        let (mut end, mut at) = (source.len(), SectionRef { pos: source.len(), len: 0 });
        let mut incomplete = None;
        if let (true, Ok(reader)) = (index_is_whole, &opened) {
            (end, at) = (reader.inner().end, reader.inner().footer_at);
        } else {
            // What stays of the index is what was found, not what its footers lead to.
            let before = footer.records;
            let begun;
            (footer.trees, begun) = trees_of(&found, footer.len);
            footer.records = footer.trees.last().map_or(0, |t| t.tree.first + t.tree.count);
            recovered.records_lost =
                footer.records.max(before) - footer.trees.iter().map(|t| t.tree.count).sum::<u64>();
            incomplete = begun.map(|(number, from, pos)| match cut {
                true => (number, chapters.known_end(&source, &footer, from, pos)),
                false => (number, from),
            });
            recovered.incomplete = incomplete.map(|(number, _)| number).into_iter().collect();
        }
        recovered.rebuilt = chapters.lost_tables;
        let reader = Reader::new(source, end, at, footer, self);
        let reader = reader.recovered(chapters.rebuilt, incomplete);
        recovered.lost = lost_chapters(&reader);
        Ok((reader, recovered))
    }
}

/// The tables of a damaged archive's chapters that were not found whole, but found out.
#[derive(Default)]
struct Chapters {
    rebuilt: Vec<(usize, Table)>,
    /// How many there are beside the one in which the file was cut.
    lost_tables: u64,
}

impl Chapters {
    /// Finds the blocks of chapters whose tables do not load; with `cut`, of what lies
    /// behind the last one as well. Where not all of a chapter's blocks are found, the rest
    /// of it becomes a chapter that is lost.
    fn load(
        &mut self,
        source: &Arc<dyn ReadAt>,
        footer: &mut Footer,
        cut: bool,
        options: &OpenOptions,
    ) -> Result<()> {
        let shared = Shared::new(source.clone(), &footer.shared, options.known.clone());
        let mut rebuilder = Rebuilder::new(source.clone(), shared);
        let mut end = HEADER_LEN;
        let chapters = std::mem::take(&mut footer.chapters);
        let last = ChapterRef {
            table: SectionRef { pos: source.len(), len: 0 },
            offset: footer.len,
            first_block: footer.blocks,
            len: u64::MAX >> 1,
            blocks: u64::MAX >> 1,
        };
        for chapter in chapters.into_iter().chain(cut.then_some(last)) {
            let is_last = cut && chapter == last;
            let from = std::mem::replace(&mut end, chapter.table.end());
            if chapter.blocks == 0 || (!is_last && load_table(source, &chapter).is_ok()) {
                footer.chapters.push(chapter);
                continue;
            }
            let (mut rest, mut from) = (chapter, from);
            let before = self.rebuilt.len();
            while rest.blocks > 0
                && let Some((table, pos)) =
                    rebuilder.table(from, rest.blocks, (rest.offset, rest.first_block))?
            {
                let (len, blocks) = (table.len, table.blocks() as u64);
                if len > rest.len || (len == rest.len) != (blocks == rest.blocks) {
                    break;
                }
                let table_at = SectionRef { pos, len: 0 };
                footer.chapters.push(ChapterRef { table: table_at, len, blocks, ..rest });
                self.rebuilt.push((footer.chapters.len() - 1, table));
                (rest.offset, rest.first_block) = (rest.offset + len, rest.first_block + blocks);
                (rest.len, rest.blocks) = (rest.len - len, rest.blocks - blocks);
                from = pos;
            }
            if is_last {
                (footer.len, footer.blocks) = (rest.offset, rest.first_block);
            } else {
                self.lost_tables += u64::from(self.rebuilt.len() > before);
                footer.chapters.extend((rest.blocks > 0).then_some(rest));
            }
        }
        Ok(())
    }

    /// How far the content surely belongs to a record that was told at `pos` to have begun and
    /// to reach at least to `from`, and whose end is told nowhere. That it ends is told right
    /// behind the block in which it does: so all blocks are its own behind which
    /// either another block follows or sections that are whole.
    fn known_end(&self, source: &dyn ReadAt, footer: &Footer, from: u64, pos: u64) -> u64 {
        let mut known = from;
        for (i, chapter) in footer.chapters.iter().enumerate() {
            let rebuilt = self.rebuilt.iter().find(|(number, _)| *number == i);
            let loaded = if rebuilt.is_none() { load_table(source, chapter).ok() } else { None };
            let Some(table) = rebuilt.map(|(_, table)| table).or(loaded.as_ref()) else {
                match chapter.len {
                    0 => continue,
                    _ if chapter.offset < from => continue,
                    _ => return known.max(chapter.offset),
                }
            };
            let spaces = table.spaces(chapter.table.pos);
            for (at, (blocks, space)) in spaces.iter().enumerate() {
                if space.end <= pos || *blocks == 0 {
                    continue;
                }
                let cut_here = rebuilt.is_some() && at + 1 == spaces.len();
                let last = table.block(blocks - 1);
                if cut_here || !sections_are_whole(source, space) {
                    return known.max(last.offset);
                }
                known = known.max(last.offset + last.len);
            }
        }
        known
    }
}

fn sections_are_whole(source: &dyn ReadAt, space: &Range<u64>) -> bool {
    let mut pos = space.start;
    while pos < space.end {
        match Section::load_unknown(source, pos, space.end) {
            Ok(section) => pos = section.at.end(),
            Err(_) => return false,
        }
    }
    true
}

impl Reader {
    /// Reads a range block by block, and fills with zeros what is damaged. Returns
    /// the ranges that are lost, neighbours joined.
    ///
    /// # Errors
    /// Only [`Error::OutOfBounds`], and [`Error::Io`] other than a device's own (EIO),
    /// which counts as damage.
    pub fn read_what_is_left(&self, offset: u64, buf: &mut [u8]) -> Result<Vec<Range<u64>>> {
        let range = within(offset, buf.len(), self.len())?;
        let mut lost: Vec<Range<u64>> = Vec::new();
        let (mut offset, end) = (range.start, range.end);
        while offset < end {
            let (upto, error) = match self.inner().block_at(offset) {
                Ok(block) => (end.min(block.offset + block.len), None),
                Err(error) => {
                    let chapter = &self.inner().footer.chapters[self.inner().chapter_at(offset)];
                    (end.min(chapter.offset + chapter.len), Some(error))
                }
            };
            let part = &mut buf[(offset - range.start) as usize..(upto - range.start) as usize];
            let error = match error {
                Some(error) => Some(error),
                None => self.read_at(offset, part).err(),
            };
            match error {
                None => {}
                // A device that cannot read a sector says so in this way.
                Some(Error::Io(error)) if error.raw_os_error() != Some(EIO) => {
                    return Err(error.into());
                }
                Some(Error::Corrupt { .. } | Error::Unsupported { .. } | Error::Io(_)) => {
                    part.fill(0);
                    match lost.last_mut().filter(|last| last.end == offset) {
                        Some(last) => last.end = upto,
                        None => lost.push(offset..upto),
                    }
                }
                Some(error) => return Err(error),
            }
            offset = upto;
        }
        Ok(lost)
    }
}

fn index_is_whole(reader: &Reader) -> bool {
    let mut whole = true;
    reader.inner().index.sections(|section| whole &= section.is_ok());
    whole
}

/// Ranges of content whose tables cannot be loaded, neighbours joined.
fn lost_chapters(reader: &Reader) -> Vec<Range<u64>> {
    let mut lost: Vec<Range<u64>> = Vec::new();
    for (i, chapter) in reader.inner().footer.chapters.iter().enumerate() {
        let range = chapter.offset..chapter.offset + chapter.len;
        if range.is_empty() || reader.inner().table(i).is_ok() {
            continue;
        }
        match lost.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => lost.push(range),
        }
    }
    lost
}

#[derive(Default)]
struct Found {
    /// Chapter tables in the order of the file.
    tables: Vec<(SectionRef, Table)>,
    /// Number of the first record and count of record pages, and begun records with their ends.
    pages: Vec<(u64, u64, SectionRef)>,
    begun: Vec<(u64, u64, SectionRef)>,
    /// Dictionaries and models by their places in the list.
    shared: BTreeMap<u64, SharedRef>,
}

/// What blocks share, and what mends it.
const SHARED: [SectionKind; 3] = [SectionKind::Dictionary, SectionKind::Model, SectionKind::Spare];

/// The device's own error: a sector cannot be read.
const EIO: i32 = 5;

/// Reads what can be read at `pos`; sectors that cannot are zeros.
pub(super) fn read_sectors(source: &dyn ReadAt, pos: u64, buf: &mut [u8]) -> Result<()> {
    const SECTOR: usize = 4096;
    match source.read_at(pos, buf) {
        Err(Error::Io(error)) if error.raw_os_error() == Some(EIO) && buf.len() > SECTOR => {
            let parts = buf.chunks_mut(SECTOR).enumerate();
            parts
                .into_iter()
                .try_for_each(|(i, part)| read_sectors(source, pos + (i * SECTOR) as u64, part))
        }
        Err(Error::Io(error)) if error.raw_os_error() == Some(EIO) => {
            buf.fill(0);
            Ok(())
        }
        other => other,
    }
}

/// Finds every section that is whole, anywhere in the file.
fn search(source: &Arc<dyn ReadAt>) -> Result<Found> {
    const STEP: usize = 1 << 20;
    let (mut found, len) = (Found::default(), source.len());
    let finder = memchr::memmem::Finder::new(&MARKER);
    let mut window = Vec::new();
    let mut pos = HEADER_LEN.min(len);
    // Bytes that chance or malice makes look like sections are read in vain; this
    // bounds how many.
    let mut patience = 4 * len + (64 << 20);
    while pos < len {
        let step = (len - pos).min(STEP as u64) as usize;
        window.resize(step, 0);
        read_sectors(source, pos, &mut window)?;
        let mut next = pos + step as u64;
        if next < len {
            // A marker may lie across the border.
            next -= MARKER.len() as u64 - 1;
        }
        // Sections that were found already end here.
        let mut behind = pos;
        for hit in finder.find_iter(&window) {
            let at = pos + hit as u64;
            if at < behind {
                continue;
            }
            let tried = Section::claimed_len(source, at, len).unwrap_or(0);
            if tried == 0 || tried > patience {
                continue;
            }
            match Section::load_unknown(source, at, len) {
                Ok(section) => {
                    behind = section.at.end();
                    found.keep(&section);
                }
                Err(_) => patience -= tried,
            }
        }
        pos = next.max(behind);
    }
    Ok(found)
}

impl Found {
    fn keep(&mut self, section: &Section) {
        let number = section.number;
        if section.kind == SectionKind::ChapterTable as u8 {
            if let Ok(table) = Table::parse(section) {
                self.tables.push((section.at, table));
            }
        } else if SHARED.iter().any(|kind| *kind as u8 == section.kind) {
            if number < MAX_SHARED as u64 {
                self.shared.insert(number, SharedRef { kind: section.kind, at: section.at });
            }
        } else if section.kind == SectionKind::RecordPage as u8 {
            if let Ok(entries) = parse_page(section) {
                self.pages.push((number, entries.len() as u64, section.at));
            }
        } else if section.kind == SectionKind::BegunRecord as u8
            && let Ok([entry]) = parse_page(section).as_deref()
        {
            self.begun.push((number, entry.range.end, section.at));
        }
    }
}

/// A footer of the chapters whose tables were found. A table says how much came
/// before it: where that does not fit, a chapter stands in for what is lost.
fn footer_of(found: &Found) -> Footer {
    let mut footer = Footer::default();
    // What is lost leaves its place to nothing: the places of others stay.
    let nothing = SharedRef { kind: 0, at: SectionRef { pos: 0, len: 0 } };
    let places = found.shared.keys().last().map_or(0, |last| last + 1);
    let shared = |place: u64| found.shared.get(&place).copied().unwrap_or(nothing);
    footer.shared = (0..places).map(shared).collect();
    let mut end = HEADER_LEN;
    for (at, table) in &found.tables {
        if table.offset < footer.len || table.first_block < footer.blocks {
            continue;
        }
        if table.offset > footer.len {
            let len = table.offset - footer.len;
            footer.push(SectionRef { pos: end, len: 0 }, len, table.first_block - footer.blocks);
        }
        footer.blocks = table.first_block;
        footer.push(*at, table.len, table.blocks() as u64);
        end = at.end();
    }
    footer
}

impl Footer {
    fn push(&mut self, table: SectionRef, len: u64, blocks: u64) {
        let (offset, first_block) = (self.len, self.blocks);
        self.chapters.push(ChapterRef { table, offset, first_block, len, blocks });
        self.len += len;
        self.blocks += blocks;
    }
}

/// Each record page as a tree of its own, and the last record that was begun: its number, to
/// where it reaches at least, and the position of the section that says so.
fn trees_of(found: &Found, len: u64) -> (Vec<RecordTree>, Option<(u64, u64, u64)>) {
    let mut pages = found.pages.clone();
    pages.sort_by_key(|&(first, ..)| first);
    let mut trees: Vec<RecordTree> = Vec::new();
    let mut next = 0;
    let tree_of = |first, count, root| {
        let tree = Tree { first, count, level: 0, root };
        RecordTree { tree, names: Names::Unknown }
    };
    for (first, count, root) in pages {
        if first >= next && first.checked_add(count).is_some_and(|end| end <= i64::MAX as u64) {
            next = first + count;
            trees.push(tree_of(first, count, root));
        }
    }
    let mut begun = found.begun.iter().rev();
    let last =
        begun.find(|&&(first, end, _)| (next..i64::MAX as u64).contains(&first) && end <= len);
    let last = last.map(|&(first, end, root)| {
        trees.push(tree_of(first, 1, root));
        (first, end, root.pos)
    });
    (trees, last)
}
