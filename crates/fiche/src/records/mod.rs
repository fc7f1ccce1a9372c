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
//! differ, but for those of items, and for folders of one name that come from several archives
//! that were joined; of records of one name, the first one in the last tree that has any is
//! found. Names are compared byte by byte. A record may have no name (of 0 bytes); where the
//! names of a tree increase, none is without, and a tree of name pages lists those that have
//! one. An item may have a second name (its key), which differs from the first and is listed in
//! the same way.
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
//! | 2 | kinds | 1 byte: 0 data, 1 file, 2 directory, 3 symbolic link, 4 hard link, 5 named pipe, 6 character device, 7 block device, 8 item: a piece of a file or of a stream that can be read by itself |
//! | 3 | starts | signed varint: offset of its content, less the largest of the section's offset and the ends of all records before it in the page; a record without content starts and ends where its start says |
//! | 4 | lengths | varint: length of its content in the archive |
//! | 5 | extents | varint: how many pieces of data a sparse file has, plus 1; 0 for what is not sparse; for a sparse one then varint: its length with holes; then for each piece varint: length of the hole before it, and varint, at least 1: length of the piece. The pieces are as long together as its content, and end within its length |
//! | 6 | targets | only for kinds 3 to 7. Symbolic link: varint: length, then the bytes it points to; hard link: varint, at least 1: how many records before it the file is (of kind 0 or 1) that it is another name of; devices: varint: major number, varint: minor number; named pipe: nothing |
//! | 7 | modes | varint: 1 + the permission bits (up to 7777 octal); 0 for a record without metadata: its values of columns 8 to 12 are 0 (not the differences that are stored) |
//! | 8 | seconds | signed varint: modification time in seconds since 1970, a signed number of 64 bits, less that of the record before (0 before the first), modulo 2^64 |
//! | 9 | nanoseconds | varint: 0 to 999,999,999, to be added |
//! | 10 | users | signed varint: numeric owner, 0 to 2^32 - 1, less that of the record before (0 before the first) |
//! | 11 | groups | signed varint: numeric group, in the same way |
//! | 12 | attributes | varint: how many extended attributes; for each: varint: length, then its name; varint: length, then its value |
//!
//! | 13 | keys | only for kind 8: varint: length, then its second name |
//!
//! A sparse file's content in the archive is its pieces of data, one after the other.
//! Only data, files and items have content, and only data and files may be sparse.
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
//! | | names | as in column 1: the beginnings of names, see below |
//! | | records | for each name (increasing among equal names), signed varint: number of its record, counted from the first record of the tree of records that this name tree belongs to, less that of the name before (0 before the first) |
//!
//! Names stand in their order. Of each only as much is stored as tells it from the names before
//! and after it in the tree: one byte more than it shares with either, or all of it if it has no
//! more. So a name is that of the last record whose stored beginning is not greater, if it is
//! that record's name; of equal names, which are stored whole, the first counts.
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

mod index;
mod page;
mod split;
mod tree;

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};

pub(crate) use index::Index;
pub(crate) use page::{Page, PageBuilder, parse_page};
pub use split::Split;
pub(crate) use split::{Found, Splitter};
pub(crate) use tree::{
    Child, NameWatch, Names, RecordTree, Tree, build_name_tree, build_tree, put_tree, take_tree,
};

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
    /// A piece of a file or a stream that is read by itself: a line, a message. It is not
    /// restored, for it comes back with what it belongs to. Items may share a name.
    Item,
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
            Kind::Item => 8,
        }
    }

    /// True for the kinds that have content of their own.
    #[must_use]
    pub fn has_content(&self) -> bool {
        matches!(self, Kind::Data | Kind::File | Kind::Item)
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
            Kind::Item => "item",
        }
    }
}

/// What a file system says of a file beside its content. Made by
/// [`Meta::default`], whose fields are then set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// A record: what it is called, what it is, and where its content lies. Made by
/// [`Entry::new`] or [`Entry::data`], whose fields may then be set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name, of any bytes but 0; empty when it has none.
    pub name: Vec<u8>,
    /// Another name by which an item is found; empty when it has none.
    pub key: Vec<u8>,
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

impl Extents {
    /// How many bytes of content the pieces have.
    pub(crate) fn content(&self) -> u64 {
        self.data.iter().map(|piece| piece.end - piece.start).sum()
    }
}

impl Entry {
    /// A record of this name and kind, without metadata and content.
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, kind: Kind) -> Entry {
        let (name, key) = (name.into(), Vec::new());
        Entry { name, key, kind, meta: None, range: 0..0, extents: None }
    }

    /// A record of plain bytes.
    #[must_use]
    pub fn data(name: impl Into<Vec<u8>>) -> Entry {
        Entry::new(name, Kind::Data)
    }

    /// The same item, found by this name as well.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> Entry {
        Entry { key: key.into(), ..self }
    }

    /// The same with this metadata.
    #[must_use]
    pub fn meta(self, meta: Meta) -> Entry {
        Entry { meta: Some(meta), ..self }
    }

    /// The same as a sparse file with data in these places.
    #[must_use]
    pub fn extents(self, extents: Extents) -> Entry {
        Entry { extents: Some(extents), ..self }
    }

    /// The same with content that was written before.
    #[must_use]
    pub fn range(self, range: Range<u64>) -> Entry {
        Entry { range, ..self }
    }

    /// True when the pieces of a sparse file are as long as its content.
    pub(crate) fn pieces_fit(&self) -> bool {
        let len = self.range.end - self.range.start;
        self.extents.as_ref().is_none_or(|extents| extents.content() == len)
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

    /// About how many bytes it takes in memory.
    pub(crate) fn weight(&self) -> u64 {
        let target = if let Kind::Symlink(target) = &self.kind { target.len() } else { 0 };
        let pieces = self.extents.as_ref().map_or(0, |e| e.data.len() * size_of::<Range<u64>>());
        let attributes = self.meta.iter().flat_map(|m| &m.attributes);
        let attributes: usize = attributes.map(|(n, v)| n.len() + v.len() + 64).sum();
        (size_of::<Entry>() + self.name.len() + self.key.len() + target + pieces + attributes)
            as u64
    }

    /// The name as text, for people: bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn display_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }

    /// Fails where no page could hold this record.
    pub(crate) fn check(&self) -> Result<()> {
        if [&self.name, &self.key].iter().any(|name| name.len() > MAX_NAME || name.contains(&0)) {
            return Err(Error::invalid("a name is at most 65,535 bytes, none of them 0"));
        }
        if self.kind != Kind::Item && !self.key.is_empty() {
            return Err(Error::invalid("only items have a second name"));
        }
        if self.kind == Kind::Item && self.extents.is_some() {
            return Err(Error::invalid("an item is not sparse"));
        }
        if let Some(extents) = &self.extents {
            let mut end = 0;
            let ordered = extents.data.iter().all(|piece| {
                let after = piece.start >= end && piece.start < piece.end;
                end = piece.end;
                after
            });
            if !ordered || end > extents.len || extents.len > i64::MAX as u64 {
                let what =
                    "the pieces of a sparse file are in order, not empty, and within its length";
                return Err(Error::invalid(what));
            }
        }
        let target = if let Kind::Symlink(target) = &self.kind { target.len() } else { 0 };
        let attributes = self.meta.iter().flat_map(|meta| &meta.attributes);
        let extents = self.extents.as_ref().map_or(0, |extents| extents.data.len() * 20);
        let need =
            target + extents + attributes.map(|(n, v)| n.len() + v.len() + 20).sum::<usize>();
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
