//! Names and numbers of records, and the ranges of bytes they stand for.
//!
//! # Records
//!
//! Records are numbered from 0 in the order in which they were written. They are
//! kept in pages of up to 256; a page lies in the chapter in which its last
//! record ended, so that a file that was cut keeps the names of what is left.
//! Above the pages stand trees of nodes, which find a page by number and, where
//! the names of a tree increase from record to record, by name. Names that do not
//! increase are sorted into name pages, with a tree of their own. A lookup loads
//! one section a level: with 256 entries each, three for 16 million records.
//!
//! A name is 1 to 65,535 bytes, of any values but 0. Names of different records
//! differ, but folders of one name may come from several archives that were joined;
//! of two records of one name, the one in the later tree is found. Names are compared
//! byte by byte. A record may have no name (of 0 bytes); where the names of a tree
//! increase, none is without, and a tree of name pages lists those that have one.
//!
//! # Record page
//!
//! Section kind 4. Offset: where the content of the first record is expected to
//! start; number: of the first record.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | records | how many, 1 to 4,096 |
//! | | columns | each as 1 byte: number, then a varint: length, then as many bytes |
//!
//! Columns stand in increasing order of their numbers. A writer leaves out one whose
//! bytes are all 0; a reader takes 0, or nothing, for every value of one that is not
//! there. It skips columns of number 128 and above that it does not know, and refuses
//! others. Values stand in the order of the records:
//!
//! | number | column | for each record |
//! |---|---|---|
//! | 1 | names | varint: how many bytes it shares with the start of the name before; varint: how many more it has; these. The name before the first is empty |
//! | 2 | kinds | 1 byte: 0 data, 1 file, 2 directory, 3 symbolic link, 4 hard link, 5 named pipe, 6 character device, 7 block device |
//! | 3 | starts | signed varint: offset of its content, less the largest of the section's offset and the ends of all records before it in the page; a record without content starts and ends where its start says |
//! | 4 | lengths | varint: length of its content in the archive |
//! | 5 | extents | varint: how many pieces of data a sparse file has, plus 1; 0 for what is not sparse; for a sparse one then varint: its length with holes; then for each piece varint: length of the hole before it, and varint: length of the piece. The pieces are as long together as its content, and end within its length |
//! | 6 | targets | only for kinds 3 to 7. Symbolic link: varint: length, then the bytes it points to; hard link: varint, at least 1: how many records before it the file is (of kind 0 or 1) that it is another name of; devices: varint: major number, varint: minor number; named pipe: nothing |
//! | 7 | modes | varint: 1 + the permission bits (up to 7777 octal); 0 for a record without metadata: its values of columns 8 to 12 are 0 (not the differences that are stored) |
//! | 8 | seconds | signed varint: modification time in seconds since 1970, a signed number of 64 bits, less that of the record before (0 before the first), modulo 2^64 |
//! | 9 | nanoseconds | varint: 0 to 999,999,999, to be added |
//! | 10 | users | signed varint: numeric owner, 0 to 2^32 - 1, less that of the record before (0 before the first) |
//! | 11 | groups | signed varint: numeric group, in the same way |
//! | 12 | attributes | varint: how many extended attributes; for each: varint: length, then its name; varint: length, then its value |
//!
//! A sparse file's content in the archive is its pieces of data, one after the other.
//! Only data and files have content, and only they may be sparse.
//!
//! # Begun record
//!
//! Section kind 5: a record page of one record that goes on beyond this chapter, as it
//! stood when the chapter ended. It repeats what a later record page says in full,
//! and matters only when that page is lost.
//!
//! # Name page
//!
//! Section kind 7; offset 0; number: of the names before it in its tree.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | names | how many, 1 to 4,096 |
//! | | names | as in column 1; they increase |
//! | | records | for each name, signed varint: number of its record, counted from the first record of the tree of records that this name tree belongs to, less that of the name before (0 before the first) |
//!
//! # Node
//!
//! Section kind 6; offset 0; number: of the first record (or name) below it.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | level | 1 when the entries are pages, 2 when they are nodes of level 1, and so on, up to 7 |
//! | varint | entries | how many, 1 to 4,096 |
//! | | entries | see below |
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | count | records (or names) below this entry |
//! | signed varint | gap | position of the entry's section, less the end of the section of the entry before (0 before the first) |
//! | varint | length | of the entry's section, whole |
//! | varint | shared | how many bytes its first name shares with the start of that of the entry before (which is empty before the first) |
//! | varint, bytes | rest | how many more it has; these |
//!
//! The first name of an entry is that of the first record below it, whether or not
//! names increase. The counts of a node's entries add up to the count by which the
//! node itself is known, and the number of a section below it to the number of the
//! node plus the counts of the entries before: a reader checks both.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::cache::Cache;
use crate::codec::Scratch;
use crate::envelope::{Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Put, Take};

/// Most records in a page and entries in a node, as written.
const FANOUT: usize = 256;
/// A page ends when its records take this many bytes.
const PAGE_BYTES: usize = 32 << 10;
/// Most records in a page and entries in a node, as read.
const MAX_FANOUT: u64 = 4096;
/// Most bytes of names that a page may unfold to.
const MAX_NAMES: usize = 16 << 20;
const MAX_NAME: usize = u16::MAX as usize;
const MAX_LEVEL: u8 = 7;
/// Most bytes that one record may take in a page: its name, target and attributes.
const MAX_ENTRY: usize = 16 << 20;

/// What a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Bytes, and nothing else is known of them.
    Data,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(Vec<u8>),
    /// Another name of the file that is the record of this number, which comes before.
    Hardlink(u64),
    /// A named pipe.
    Fifo,
    /// A character device, by major and minor number.
    CharDevice(u32, u32),
    /// A block device, by major and minor number.
    BlockDevice(u32, u32),
}

impl Kind {
    fn number(&self) -> u8 {
        match self {
            Kind::Data => 0,
            Kind::File => 1,
            Kind::Directory => 2,
            Kind::Symlink(_) => 3,
            Kind::Hardlink(_) => 4,
            Kind::Fifo => 5,
            Kind::CharDevice(..) => 6,
            Kind::BlockDevice(..) => 7,
        }
    }

    /// True for the kinds that have content of their own.
    #[must_use]
    pub fn has_content(&self) -> bool {
        matches!(self, Kind::Data | Kind::File)
    }

    /// A word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink(_) => "symlink",
            Kind::Hardlink(_) => "hardlink",
            Kind::Fifo => "fifo",
            Kind::CharDevice(..) => "character device",
            Kind::BlockDevice(..) => "block device",
        }
    }
}

/// What a file system says of a file beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Modification time: seconds since 1970, and nanoseconds to be added.
    pub modified: (i64, u32),
    /// Numeric owner.
    pub user: u32,
    /// Numeric group.
    pub group: u32,
    /// Extended attributes: names and values.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A record: what it is called, what it is, and where its content lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, of any bytes but 0; empty when it has none.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// What the file system said of it, if it came from one.
    pub meta: Option<Meta>,
    /// Its content: a range of the archive's decoded bytes.
    pub range: Range<u64>,
    /// For a sparse file, its pieces of data as ranges of the file, in order;
    /// their lengths add up to that of `range`.
    pub extents: Option<Extents>,
}

/// Where a sparse file has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Length of the file, holes included.
    pub len: u64,
    /// Pieces of data, as ranges of the file, in order and apart.
    pub data: Vec<Range<u64>>,
}

impl Entry {
    /// A record of plain bytes.
    #[must_use]
    pub fn data(name: impl Into<Vec<u8>>) -> Entry {
        Entry { name: name.into(), kind: Kind::Data, meta: None, range: 0..0, extents: None }
    }

    /// Length in bytes of what a reader of this record sees, holes included.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.extents {
            Some(extents) => extents.len,
            None => self.range.end - self.range.start,
        }
    }

    /// True when a reader of this record sees no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name as text, for people: bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn display_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// Fails where no page could hold this record.
    pub(crate) fn check(&self) -> Result<()> {
        if self.name.len() > MAX_NAME || self.name.contains(&0) {
            return Err(Error::invalid("a name is at most 65,535 bytes, none of them 0"));
        }
        let target = if let Kind::Symlink(target) = &self.kind { target.len() } else { 0 };
        let attributes = self.meta.iter().flat_map(|meta| &meta.attributes);
        let extents = self.extents.as_ref().map_or(0, |extents| extents.data.len() * 20);
        let need = target + extents + attributes.map(|(n, v)| n.len() + v.len() + 20).sum::<usize>();
        if need > MAX_ENTRY {
            let what = "metadata of one record";
            return Err(Error::Limit { what, need: need as u64, allowed: MAX_ENTRY as u64 });
        }
        if self.meta.as_ref().is_some_and(|m| m.mode > 0o7777 || m.modified.1 > 999_999_999) {
            return Err(Error::invalid("a mode is at most 7777, nanoseconds below a second"));
        }
        Ok(())
    }
}

/// One section above the pages, or a page itself, as its parent knows it.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub first: u64,
    pub count: u64,
    pub at: SectionRef,
    pub name: Vec<u8>,
}

/// Front-coded names: each as what it does not share with the one before.
#[derive(Default)]
struct FrontCoder {
    last: Vec<u8>,
    unfolded: usize,
}

impl FrontCoder {
    fn put(&mut self, name: &[u8], out: &mut Vec<u8>) {
        let shared = self.last.iter().zip(name).take_while(|(a, b)| a == b).count();
        out.put_varint(shared as u64);
        out.put_string(&name[shared..]);
        self.last.clear();
        self.last.extend_from_slice(name);
    }

    fn take(&mut self, take: &mut Take<'_>) -> Result<Vec<u8>> {
        let shared = take.count(self.last.len() as u64)?;
        let rest = take.string()?;
        let name = [self.last.get(..shared).unwrap_or_default(), rest].concat();
        self.unfolded += name.len();
        if name.len() > MAX_NAME || self.unfolded > MAX_NAMES || rest.contains(&0) {
            return Err(take.corrupt());
        }
        self.last.clone_from(&name);
        Ok(name)
    }
}

/// The bytes of a record page's payload.
fn page_payload(offset: u64, number: u64, entries: &[Entry]) -> Vec<u8> {
    let mut columns: [Vec<u8>; 13] = Default::default();
    let (mut names, mut expected) = (FrontCoder::default(), offset);
    let no_meta = Meta::default();
    let (mut seconds, mut user, mut group) = (0i64, 0u32, 0u32);
    for (i, entry) in entries.iter().enumerate() {
        names.put(&entry.name, &mut columns[1]);
        columns[2].put_u8(entry.kind.number());
        columns[3].put_signed(entry.range.start.wrapping_sub(expected) as i64);
        columns[4].put_varint(entry.range.end - entry.range.start);
        expected = expected.max(entry.range.end);
        match &entry.extents {
            None => columns[5].put_varint(0),
            Some(extents) => {
                columns[5].put_varint(extents.data.len() as u64 + 1);
                columns[5].put_varint(extents.len);
                let mut end = 0;
                for piece in &extents.data {
                    columns[5].put_varint(piece.start - end);
                    columns[5].put_varint(piece.end - piece.start);
                    end = piece.end;
                }
            }
        }
        match &entry.kind {
            Kind::Symlink(target) => columns[6].put_string(target),
            Kind::Hardlink(to) => columns[6].put_varint(number + i as u64 - to),
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                columns[6].put_varint(u64::from(*major));
                columns[6].put_varint(u64::from(*minor));
            }
            Kind::Data | Kind::File | Kind::Directory | Kind::Fifo => {}
        }
        let meta = entry.meta.as_ref().unwrap_or(&no_meta);
        let (now, _) = meta.modified;
        columns[7].put_varint(entry.meta.as_ref().map_or(0, |meta| u64::from(meta.mode) + 1));
        columns[8].put_signed(now.wrapping_sub(seconds));
        columns[9].put_varint(u64::from(meta.modified.1));
        columns[10].put_signed(i64::from(meta.user) - i64::from(user));
        columns[11].put_signed(i64::from(meta.group) - i64::from(group));
        (seconds, user, group) = (now, meta.user, meta.group);
        columns[12].put_varint(meta.attributes.len() as u64);
        for (name, value) in &meta.attributes {
            columns[12].put_string(name);
            columns[12].put_string(value);
        }
    }
    let mut payload = Vec::new();
    payload.put_varint(entries.len() as u64);
    for (id, column) in columns.iter().enumerate() {
        // Every value that means nothing is written as zeros.
        if column.iter().any(|&b| b != 0) {
            payload.put_u8(id as u8);
            payload.put_string(column);
        }
    }
    payload
}

/// The columns of a page; one that is left out gives zeros.
struct Columns<'a> {
    columns: [Option<Take<'a>>; 13],
}

impl<'a> Columns<'a> {
    fn take(take: &mut Take<'a>, what: &'static str, pos: u64) -> Result<Columns<'a>> {
        let mut columns: [Option<Take<'a>>; 13] = Default::default();
        let mut last = 0;
        while take.remaining() > 0 {
            let (id, bytes) = (take.u8()?, take.string()?);
            if id <= last {
                return Err(take.corrupt());
            }
            last = id;
            match columns.get_mut(usize::from(id)) {
                Some(column) => *column = Some(Take::new(bytes, what, pos)),
                None if id >= 128 => {}
                None => return Err(Error::Unsupported { what: "record column", found: u64::from(id) }),
            }
        }
        Ok(Columns { columns })
    }

    fn varint(&mut self, id: usize) -> Result<u64> {
        self.columns[id].as_mut().map_or(Ok(0), Take::varint)
    }

    fn signed(&mut self, id: usize) -> Result<i64> {
        self.columns[id].as_mut().map_or(Ok(0), Take::signed)
    }

    fn u32(&mut self, id: usize) -> Result<u32> {
        let value = self.varint(id)?;
        u32::try_from(value).map_err(|_| self.corrupt(id))
    }

    fn bytes(&mut self, id: usize) -> Result<Vec<u8>> {
        self.columns[id].as_mut().map_or(Ok(Vec::new()), |take| take.string().map(<[u8]>::to_vec))
    }

    fn corrupt(&self, id: usize) -> Error {
        let place = Error::Corrupt { what: "record page", at: Place::Pos(0) };
        self.columns[id].as_ref().map_or(place, Take::corrupt)
    }

    /// Every column must have been used up.
    fn end(&self) -> Result<()> {
        self.columns.iter().flatten().try_for_each(Take::end)
    }
}

/// Parses a record page (or a begun record).
pub(crate) fn parse_page(section: &Section) -> Result<Vec<Entry>> {
    let what = "record page";
    let mut take = section.take(what);
    let count = take.count(MAX_FANOUT)?;
    let mut columns = Columns::take(&mut take, what, section.at.pos)?;
    let corrupt = || section.corrupt(what);
    let (mut names, mut expected) = (FrontCoder::default(), section.offset);
    let (mut seconds, mut user, mut group) = (0i64, 0i64, 0i64);
    let mut entries = Vec::with_capacity(count);
    for i in 0..count as u64 {
        let name = match &mut columns.columns[1] {
            Some(take) => names.take(take)?,
            None => Vec::new(),
        };
        let kind = match &mut columns.columns[2] {
            Some(take) => take.u8()?,
            None => 0,
        };
        let start = expected.checked_add_signed(columns.signed(3)?).ok_or_else(corrupt)?;
        let len = columns.varint(4)?;
        let end = start.checked_add(len).filter(|&e| e <= i64::MAX as u64).ok_or_else(corrupt)?;
        expected = expected.max(end);
        let extents = parse_extents(&mut columns, len)?;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink(columns.bytes(6)?),
            4 => {
                let back = columns.varint(6)?;
                let own = section.number.checked_add(i).ok_or_else(corrupt)?;
                let to = own.checked_sub(back).filter(|_| back > 0).ok_or_else(corrupt)?;
                Kind::Hardlink(to)
            }
            5 => Kind::Fifo,
            6 => Kind::CharDevice(columns.u32(6)?, columns.u32(6)?),
            7 => Kind::BlockDevice(columns.u32(6)?, columns.u32(6)?),
            other => return Err(Error::Unsupported { what: "kind of record", found: u64::from(other) }),
        };
        if !kind.has_content() && (len > 0 || extents.is_some()) {
            return Err(corrupt());
        }
        let mode = columns.u32(7)?;
        seconds = seconds.wrapping_add(columns.signed(8)?);
        let nanoseconds = columns.u32(9)?;
        user = user.wrapping_add(columns.signed(10)?);
        group = group.wrapping_add(columns.signed(11)?);
        let mut meta = Meta {
            mode: mode.saturating_sub(1),
            modified: (seconds, nanoseconds),
            user: u32::try_from(user).map_err(|_| corrupt())?,
            group: u32::try_from(group).map_err(|_| corrupt())?,
            attributes: Vec::new(),
        };
        for _ in 0..columns.varint(12)? {
            meta.attributes.push((columns.bytes(12)?, columns.bytes(12)?));
        }
        if mode > 0o10000 || nanoseconds > 999_999_999 || (mode == 0 && meta != Meta::default()) {
            return Err(corrupt());
        }
        let meta = (mode > 0).then_some(meta);
        entries.push(Entry { name, kind, meta, range: start..end, extents });
    }
    columns.end()?;
    if count == 0 { Err(corrupt()) } else { Ok(entries) }
}

fn parse_extents(columns: &mut Columns<'_>, content: u64) -> Result<Option<Extents>> {
    let Some(pieces) = columns.varint(5)?.checked_sub(1) else { return Ok(None) };
    let len = columns.varint(5)?;
    let (mut data, mut end, mut sum) = (Vec::new(), 0u64, 0u64);
    for _ in 0..pieces {
        let (hole, piece) = (columns.varint(5)?, columns.varint(5)?);
        let start = end.checked_add(hole).ok_or_else(|| columns.corrupt(5))?;
        end = start.checked_add(piece).ok_or_else(|| columns.corrupt(5))?;
        sum += piece;
        data.push(start..end);
    }
    if end > len || len > i64::MAX as u64 || sum != content {
        return Err(columns.corrupt(5));
    }
    Ok(Some(Extents { len, data }))
}

/// Gathers records into pages.
#[derive(Default)]
pub(crate) struct PageBuilder {
    entries: Vec<Entry>,
    bytes: usize,
    offset: u64,
    number: u64,
}

/// A page that has all its records but no position yet.
pub(crate) struct Page {
    offset: u64,
    number: u64,
    entries: Vec<Entry>,
}

impl PageBuilder {
    /// Adds a record; `expected` is where its content would start if it is new.
    /// Returns a page when one is full.
    pub fn push(&mut self, entry: Entry, number: u64, expected: u64) -> Option<Page> {
        if self.entries.is_empty() {
            (self.offset, self.number, self.bytes) = (expected, number, 0);
        }
        let target = if let Kind::Symlink(target) = &entry.kind { target.len() } else { 0 };
        let attributes = entry.meta.iter().flat_map(|m| &m.attributes);
        let extents = entry.extents.as_ref().map_or(0, |e| e.data.len() * 8);
        self.bytes += 16 + entry.name.len() + target + extents
            + attributes.map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.entries.push(entry);
        let full = self.entries.len() >= FANOUT || self.bytes >= PAGE_BYTES;
        if full { self.flush() } else { None }
    }

    pub fn flush(&mut self) -> Option<Page> {
        let entries = std::mem::take(&mut self.entries);
        (!entries.is_empty()).then_some(Page { offset: self.offset, number: self.number, entries })
    }
}

impl Page {
    /// A page of these records, the first of which has this number; content of new
    /// ones is expected to start at `expected`.
    pub fn of(entries: Vec<Entry>, number: u64, expected: u64) -> Page {
        Page { offset: expected, number, entries }
    }

    /// About how many bytes it takes in memory.
    pub fn weight(&self) -> usize {
        self.entries.iter().map(|e| e.name.len() + 200).sum()
    }

    /// Appends its section, which lies at `pos`.
    pub fn put(&self, out: &mut Vec<u8>, pos: u64, kind: SectionKind, scratch: &mut Scratch) -> Child {
        let start = out.len();
        let payload = page_payload(self.offset, self.number, &self.entries);
        Section::put(out, pos, kind, (self.offset, self.number), &payload, Some(scratch));
        let name = self.entries.first().map(|e| e.name.clone()).unwrap_or_default();
        let at = SectionRef { pos, len: (out.len() - start) as u64 };
        Child { first: self.number, count: self.entries.len() as u64, at, name }
    }
}

/// A tree as the footer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Number of its first record, and how many it has.
    pub first: u64,
    pub count: u64,
    /// Levels of nodes above the pages; 0 when the root is a page.
    pub level: u8,
    pub root: SectionRef,
}

impl Tree {
    fn as_child(&self) -> Child {
        Child { first: self.first, count: self.count, at: self.root, name: Vec::new() }
    }
}

/// Writes the nodes above these pages, one level after the other, at `pos` and
/// after. Returns the tree, or `None` for no pages.
pub(crate) fn build_tree(
    mut children: Vec<Child>,
    mut pos: u64,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Option<Tree> {
    let (first, count) = (children.first()?.first, children.iter().map(|c| c.count).sum());
    let mut level = 0;
    while children.len() > 1 {
        level += 1;
        children = children
            .chunks(FANOUT)
            .map(|chunk| {
                let payload = node_payload(level, chunk);
                let start = out.len();
                let number = chunk[0].first;
                Section::put(out, pos, SectionKind::Node, (0, number), &payload, Some(scratch));
                let at = SectionRef { pos, len: (out.len() - start) as u64 };
                pos = at.end();
                let count = chunk.iter().map(|c| c.count).sum();
                Child { first: number, count, at, name: chunk[0].name.clone() }
            })
            .collect();
    }
    Some(Tree { first, count, level, root: children[0].at })
}

fn node_payload(level: u8, children: &[Child]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u8(level);
    payload.put_varint(children.len() as u64);
    let (mut end, mut names) = (0, FrontCoder::default());
    for child in children {
        payload.put_varint(child.count);
        payload.put_signed(child.at.pos.wrapping_sub(end) as i64);
        payload.put_varint(child.at.len);
        names.put(&child.name, &mut payload);
        end = child.at.end();
    }
    payload
}

fn parse_node(section: &Section, level: u8) -> Result<Vec<Child>> {
    let mut take = section.take("node");
    let (found, count) = (take.u8()?, take.count(MAX_FANOUT)?);
    if found != level || count == 0 {
        return Err(section.corrupt("node"));
    }
    let (mut end, mut first, mut names) = (0u64, section.number, FrontCoder::default());
    let mut children = Vec::with_capacity(count);
    for _ in 0..count {
        let count = take.varint()?;
        let pos = end.checked_add_signed(take.signed()?).ok_or_else(|| take.corrupt())?;
        let len = take.varint()?;
        let next = first.checked_add(count).filter(|_| count > 0).ok_or_else(|| take.corrupt())?;
        end = pos.checked_add(len).ok_or_else(|| take.corrupt())?;
        let name = names.take(&mut take)?;
        children.push(Child { first, count, at: SectionRef { pos, len }, name });
        first = next;
    }
    take.end()?;
    Ok(children)
}

/// Appends the sections of sorted (name, number) pairs at `pos` and after.
pub(crate) fn build_name_tree(
    names: &[(Vec<u8>, u64)],
    mut pos: u64,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Option<Tree> {
    let mut children = Vec::new();
    let mut rest = names;
    let mut done = 0;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(FANOUT).take_while(|(name, _)| {
            let before = bytes;
            bytes += name.len();
            before < PAGE_BYTES
        });
        let (page, after) = rest.split_at(fits.count());
        let mut payload = Vec::new();
        payload.put_varint(page.len() as u64);
        let mut coder = FrontCoder::default();
        page.iter().for_each(|(name, _)| coder.put(name, &mut payload));
        let mut last = 0;
        for (_, number) in page {
            payload.put_signed(number.wrapping_sub(last) as i64);
            last = *number;
        }
        let start = out.len();
        Section::put(out, pos, SectionKind::NamePage, (0, done), &payload, Some(scratch));
        let at = SectionRef { pos, len: (out.len() - start) as u64 };
        children.push(Child { first: done, count: page.len() as u64, at, name: page[0].0.clone() });
        pos = at.end();
        done += page.len() as u64;
        rest = after;
    }
    build_tree(children, pos, out, scratch)
}

fn parse_name_page(section: &Section) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut take = section.take("name page");
    let count = take.count(MAX_FANOUT)?;
    let mut coder = FrontCoder::default();
    let names = (0..count).map(|_| coder.take(&mut take)).collect::<Result<Vec<_>>>()?;
    let mut last = 0u64;
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        last = last.checked_add_signed(take.signed()?).ok_or_else(|| take.corrupt())?;
        numbers.push(last);
    }
    take.end()?;
    if names.is_empty() || !names.is_sorted() {
        return Err(section.corrupt("name page"));
    }
    Ok(names.into_iter().zip(numbers).collect())
}

/// A section of the record index, parsed.
enum Parsed {
    Node(Vec<Child>),
    Page(Vec<Entry>),
    Names(Vec<(Vec<u8>, u64)>),
}

/// A tree of records, and how a name is found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordTree {
    pub tree: Tree,
    pub names: Names,
}

/// How the names of a tree of records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// They increase from record to record.
    Increasing,
    /// By this tree of name pages.
    Sorted(Tree),
    /// The records have no names.
    Absent,
    /// Page by page: the tree is one page of a file whose index is lost.
    Unknown,
}

/// Finds records by number and name; loads what a lookup touches and no more.
pub(crate) struct Index {
    source: Arc<dyn ReadAt>,
    trees: Vec<RecordTree>,
    cache: Cache<Parsed>,
}

/// Sections of the index kept in memory, in bytes as stored.
const INDEX_CACHE: u64 = 4 << 20;

impl Index {
    pub fn new(source: Arc<dyn ReadAt>, trees: Vec<RecordTree>) -> Index {
        Index { source, trees, cache: Cache::new(INDEX_CACHE) }
    }

    pub fn trees(&self) -> &[RecordTree] {
        &self.trees
    }

    /// How many records there are, numbered without gaps except in a recovered file.
    pub fn len(&self) -> u64 {
        self.trees.last().map_or(0, |t| t.tree.first + t.tree.count)
    }

    fn load(&self, at: SectionRef, level: u8, leaf: SectionKind, first: u64) -> Result<Arc<Parsed>> {
        if let Some(parsed) = self.cache.get(at.pos) {
            return Ok(parsed);
        }
        let kind = if level > 0 { SectionKind::Node } else { leaf };
        let mut loaded = Section::load(&self.source, at, kind);
        if loaded.is_err() && kind == SectionKind::RecordPage {
            // In a recovered file a record that had begun stands in for its page.
            let begun = Section::load(&self.source, at, SectionKind::BegunRecord);
            loaded = begun.or(loaded);
        }
        let section = loaded?;
        if section.number != first {
            return Err(section.corrupt("record number"));
        }
        let parsed = Arc::new(match kind {
            SectionKind::Node => Parsed::Node(parse_node(&section, level)?),
            SectionKind::NamePage => Parsed::Names(parse_name_page(&section)?),
            _ => Parsed::Page(parse_page(&section)?),
        });
        self.cache.insert(at.pos, parsed.clone(), at.len);
        Ok(parsed)
    }

    /// Goes down from a root to the page that `choose` leads to.
    fn descend(
        &self,
        tree: &Tree,
        leaf: SectionKind,
        choose: impl Fn(&[Child]) -> usize,
    ) -> Result<(Arc<Parsed>, Child)> {
        let mut here = tree.as_child();
        let mut level = tree.level;
        loop {
            let parsed = self.load(here.at, level, leaf, here.first)?;
            let count = match &*parsed {
                Parsed::Node(children) => {
                    let child = &children[choose(children)];
                    let sum: u64 = children.iter().map(|c| c.count).sum();
                    if sum != here.count || level == 0 {
                        return Err(Error::Corrupt { what: "node", at: Place::Pos(here.at.pos) });
                    }
                    here = child.clone();
                    level -= 1;
                    continue;
                }
                Parsed::Page(entries) => entries.len(),
                Parsed::Names(names) => names.len(),
            };
            if count as u64 != here.count {
                return Err(Error::Corrupt { what: "record page", at: Place::Pos(here.at.pos) });
            }
            return Ok((parsed, here));
        }
    }

    /// The page of records that holds this number, and the number of its first one.
    fn page_of(&self, number: u64) -> Result<Option<(Arc<Parsed>, u64)>> {
        let i = self.trees.partition_point(|t| t.tree.first + t.tree.count <= number);
        let Some(RecordTree { tree, .. }) = self.trees.get(i).filter(|t| t.tree.first <= number)
        else {
            return Ok(None);
        };
        let (page, here) = self.descend(tree, SectionKind::RecordPage, |children| {
            children.partition_point(|c| c.first <= number).saturating_sub(1)
        })?;
        Ok(Some((page, here.first)))
    }

    /// The record of this number, if there is one.
    pub fn get(&self, number: u64) -> Result<Option<Entry>> {
        let Some((page, first)) = self.page_of(number)? else { return Ok(None) };
        let Parsed::Page(entries) = &*page else { return Ok(None) };
        Ok(entries.get((number - first) as usize).cloned())
    }

    /// The record of this name, if there is one, with its number. Trees written
    /// later are asked first.
    pub fn find(&self, name: &[u8]) -> Result<Option<(u64, Entry)>> {
        for RecordTree { tree: records, names } in self.trees.iter().rev() {
            let (tree, leaf) = match names {
                Names::Increasing | Names::Unknown => (records, SectionKind::RecordPage),
                Names::Sorted(names) => (names, SectionKind::NamePage),
                Names::Absent => continue,
            };
            let (page, here) = self.descend(tree, leaf, |children| {
                children.partition_point(|c| c.name.as_slice() <= name).saturating_sub(1)
            })?;
            match &*page {
                Parsed::Page(entries) => {
                    let found = match names {
                        Names::Unknown => entries.iter().position(|e| e.name == name),
                        _ => entries.binary_search_by(|e| e.name.as_slice().cmp(name)).ok(),
                    };
                    if let Some(i) = found {
                        return Ok(Some((here.first + i as u64, entries[i].clone())));
                    }
                }
                Parsed::Names(names) => {
                    if let Ok(i) = names.binary_search_by(|(n, _)| n.as_slice().cmp(name)) {
                        let number = records.first.saturating_add(names[i].1);
                        let place = Error::Corrupt { what: "name page", at: Place::Record(number) };
                        let entry = self.get(number)?.filter(|e| e.name == name).ok_or(place)?;
                        return Ok(Some((number, entry)));
                    }
                }
                Parsed::Node(_) => {}
            }
        }
        Ok(None)
    }

    /// All records from this number on, in order. After an error it goes on
    /// with the next page it can find.
    pub fn iter(&self, from: u64) -> Entries<'_> {
        Entries { index: self, next: from, page: None }
    }

    /// Every section of the index, in no particular order, for [`verify`].
    ///
    /// [`verify`]: crate::archive::Reader::verify
    pub fn sections(&self, mut visit: impl FnMut(Result<SectionRef>)) {
        for RecordTree { tree, names } in &self.trees {
            self.walk(&tree.as_child(), tree.level, SectionKind::RecordPage, &mut visit);
            if let Names::Sorted(tree) = names {
                self.walk(&tree.as_child(), tree.level, SectionKind::NamePage, &mut visit);
            }
        }
    }

    fn walk(
        &self,
        here: &Child,
        level: u8,
        leaf: SectionKind,
        visit: &mut impl FnMut(Result<SectionRef>),
    ) {
        let parsed = match self.load(here.at, level, leaf, here.first) {
            Ok(parsed) => parsed,
            Err(error) => return visit(Err(error)),
        };
        // Each section has the number of its first record in it, and the counts
        // add up: so none is visited twice, whatever a hostile tree points to.
        let (count, children) = match &*parsed {
            Parsed::Node(children) => (children.iter().map(|c| c.count).sum::<u64>(), children.as_slice()),
            Parsed::Page(entries) => (entries.len() as u64, [].as_slice()),
            Parsed::Names(names) => (names.len() as u64, [].as_slice()),
        };
        if count != here.count {
            return visit(Err(Error::Corrupt { what: "node", at: Place::Pos(here.at.pos) }));
        }
        visit(Ok(here.at));
        children.iter().for_each(|child| self.walk(child, level - 1, leaf, visit));
    }

    /// The name most like this one, for a suggestion; `None` when none is like it.
    /// Looks at as many records as some 20 milliseconds allow.
    pub fn nearest(&self, name: &[u8]) -> Option<String> {
        const LONGEST: usize = 1000;
        let wanted = String::from_utf8_lossy(name);
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let mut best: Option<(f64, String)> = None;
        // Comparing takes the product of the lengths.
        let mut patience = 10_000_000usize;
        for (_, entry) in self.iter(0).flatten() {
            let (short, long) = (entry.name.len().min(name.len()), entry.name.len().max(name.len()));
            patience = patience.saturating_sub(100);
            if long <= LONGEST {
                let found = entry.display_name();
                // A file asked for by its bare name is found in its folder.
                let in_folder = base(&found) == base(&wanted);
                let alike = short * 2 >= long && patience > 0;
                patience = patience.saturating_sub(if alike { short * long } else { 0 });
                let score = match (in_folder, alike) {
                    (true, _) => 0.95,
                    (false, true) => strsim::normalized_damerau_levenshtein(&wanted, &found),
                    (false, false) => 0.0,
                };
                if score > best.as_ref().map_or(0.6, |(best, _)| *best) {
                    best = Some((score, found.into_owned()));
                }
            }
            if patience == 0 {
                break;
            }
        }
        best.map(|(_, name)| name)
    }
}

/// Goes through records in order of their numbers.
pub(crate) struct Entries<'a> {
    index: &'a Index,
    next: u64,
    page: Option<(Arc<Parsed>, u64)>,
}

impl Iterator for Entries<'_> {
    type Item = Result<(u64, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let number = self.next;
            if let Some((page, first)) = &self.page
                && let Parsed::Page(entries) = &**page
                && let Some(entry) = entries.get((number - first) as usize)
            {
                self.next += 1;
                return Some(Ok((number, entry.clone())));
            }
            if number >= self.index.len() {
                return None;
            }
            match self.index.page_of(number) {
                Ok(Some((page, first))) => self.page = Some((page, first)),
                Ok(None) => {
                    // A gap in a recovered file: the next tree goes on.
                    let after = self.index.trees.iter().find(|t| t.tree.first > number)?;
                    self.next = after.tree.first;
                }
                Err(error) => {
                    let i = self.index.trees.iter().find(|t| t.tree.first > number);
                    self.next = i.map_or(self.index.len(), |t| t.tree.first);
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Watches names as they are written: whether they increase, and that no two
/// are the same. Costs the names' bytes, and 16 bytes more each once they do not
/// increase.
#[derive(Default)]
pub(crate) struct NameWatch {
    names: Vec<(Vec<u8>, u64)>,
    unsorted: bool,
    named: bool,
    digests: std::collections::HashSet<[u8; 16]>,
}

impl NameWatch {
    /// Takes the next name; an error when it was there before.
    pub fn push(&mut self, name: &[u8], number: u64) -> Result<()> {
        let twice = Error::invalid("there are two records of one name");
        if name.is_empty() && !self.named {
            return Ok(());
        }
        let digest = |name: &[u8]| {
            let mut short = [0; 16];
            short.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
            short
        };
        if !self.unsorted {
            // Records without a name before the first with one count as unsorted.
            let last = self.names.last().map(|(name, _)| name.as_slice());
            let order = if !self.named && number > 0 && self.names.is_empty() {
                Ordering::Greater
            } else {
                last.map_or(Ordering::Less, |last| last.cmp(name))
            };
            match order {
                Ordering::Less => {}
                Ordering::Equal if !name.is_empty() => return Err(twice),
                _ => {
                    self.unsorted = true;
                    self.digests = self.names.iter().map(|(name, _)| digest(name)).collect();
                }
            }
        }
        self.named = true;
        if name.is_empty() {
            return Ok(());
        }
        if self.unsorted && !self.digests.insert(digest(name)) {
            return Err(twice);
        }
        self.names.push((name.to_vec(), number));
        Ok(())
    }

    /// Writes the name tree if one is needed, and says how names are found.
    pub fn finish(self, pos: u64, out: &mut Vec<u8>, scratch: &mut Scratch) -> Names {
        if !self.named {
            return Names::Absent;
        }
        if !self.unsorted {
            return Names::Increasing;
        }
        let mut names = self.names;
        names.sort_unstable();
        build_name_tree(&names, pos, out, scratch).map_or(Names::Absent, Names::Sorted)
    }
}

/// Appends a tree to a footer.
pub(crate) fn put_tree(tree: &Tree, out: &mut Vec<u8>) {
    out.put_varint(tree.count);
    out.put_u8(tree.level);
    tree.root.put(out);
}

/// Takes a tree from a footer; its first record is the one of this number.
pub(crate) fn take_tree(take: &mut Take<'_>, first: u64) -> Result<Tree> {
    let (count, level, root) = (take.varint()?, take.u8()?, SectionRef::take(take)?);
    let end = first.checked_add(count).filter(|&end| end <= i64::MAX as u64);
    if end.is_none() || count == 0 || level > MAX_LEVEL {
        return Err(take.corrupt());
    }
    Ok(Tree { first, count, level, root })
}
