//! The records of an archive as a tree of folders and files, each with a number of its own.
//!
//! Files are where their names say; folders that a name leads through and that are no records are there, too.
//! Items (lines, messages, pages of a crawl) may be many millions, and have names of any kind or none: they lie in
//! folders of a thousand by their numbers, and take no memory. An archive without files is one file, `content`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use fiche::archive::{Entry, Kind, Reader, Record};
use fiche::{Error, ReadAt, Result};

/// Files in a numbered folder at most, and digits of its part of the number.
const FANOUT: u64 = 1000;
const DIGITS: usize = 3;
/// The file that an archive without files is.
const CONTENT: &[u8] = b"content";
/// The folder that items lie in.
const RECORDS: &[u8] = b"records";

/// Something in the tree, by the number that the system knows it by. 1 is the root.
///
/// | number | what it is |
/// |---|---|
/// | 1 + i | node i of the tree |
/// | 2^62 + depth * 2^56 + part | a numbered folder: the records that begin so |
/// | 2^63 + number | a record by its number |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Node of the tree.
    Named(usize),
    /// All records whose numbers, without the last digits, are this one; how many folders deep.
    Numbers { depth: u32, part: u64 },
    /// A record in a numbered folder.
    Number(u64),
}

const NUMBERS: u64 = 1 << 62;
const NUMBER: u64 = 1 << 63;
const DEPTH: u32 = 56;

impl Node {
    pub fn from_ino(ino: u64) -> Option<Node> {
        Some(match ino {
            0 => return None,
            ino if ino & NUMBER != 0 => Node::Number(ino ^ NUMBER),
            ino if ino & NUMBERS != 0 => Node::Numbers {
                depth: ((ino ^ NUMBERS) >> DEPTH) as u32,
                part: ino & ((1 << DEPTH) - 1),
            },
            ino => Node::Named(ino as usize - 1),
        })
    }

    pub fn ino(self) -> u64 {
        match self {
            Node::Named(i) => i as u64 + 1,
            Node::Numbers { depth, part } => NUMBERS | u64::from(depth) << DEPTH | part,
            Node::Number(number) => NUMBER | number,
        }
    }
}

/// What the system is told of something.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub file_type: FileType,
    pub mode: u32,
    pub len: u64,
    pub modified: (i64, u32),
    /// Owner and group, where they are known.
    pub owner: Option<(u32, u32)>,
    pub links: u32,
    pub device: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    File,
    Folder,
    Symlink,
    Fifo,
    CharDevice,
    BlockDevice,
}

/// What something reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A folder that no record stands for.
    None,
    /// This record.
    Record(u64),
    /// All of the archive.
    Whole,
}

struct Inner {
    parent: usize,
    name: Range<usize>,
    attributes: Attributes,
    content: Content,
    /// Of a hard link, the node that it is another name of; else this one.
    same: usize,
    /// Of a folder: where its children are in the list of all.
    children: Range<usize>,
}

/// What is served.
pub enum Served {
    Archive(Reader),
    /// Content without records.
    File(Arc<dyn ReadAt>),
}

/// The tree.
pub struct Tree {
    /// All of the content, and the archive whose it is, if it is one.
    whole: Arc<dyn ReadAt>,
    reader: Option<Reader>,
    nodes: Vec<Inner>,
    names: Vec<u8>,
    /// The nodes but the root, those of one folder side by side and ordered by name.
    children: Vec<usize>,
    /// The folder that items are in, where there are any: it is among the root's children.
    records: Option<usize>,
    /// Numbered folders on the way to a record.
    depth: u32,
}

const FOLDER: Attributes = Attributes {
    file_type: FileType::Folder,
    mode: 0o755,
    len: 0,
    modified: (0, 0),
    owner: None,
    links: 2,
    device: (0, 0),
};

fn attributes(entry: &Entry) -> Attributes {
    let (file_type, device) = match entry.kind {
        Kind::Directory => (FileType::Folder, (0, 0)),
        Kind::Symlink(_) => (FileType::Symlink, (0, 0)),
        Kind::Fifo => (FileType::Fifo, (0, 0)),
        Kind::CharDevice(major, minor) => (FileType::CharDevice, (major, minor)),
        Kind::BlockDevice(major, minor) => (FileType::BlockDevice, (major, minor)),
        _ => (FileType::File, (0, 0)),
    };
    let len = match &entry.kind {
        Kind::Symlink(target) => target.len() as u64,
        _ => entry.len(),
    };
    let mode = if file_type == FileType::Folder { 0o755 } else { 0o644 };
    let links = if file_type == FileType::Folder { 2 } else { 1 };
    let meta = entry.meta.as_ref();
    Attributes {
        file_type,
        mode: meta.map_or(mode, |meta| meta.mode),
        len,
        modified: meta.map_or((0, 0), |meta| meta.modified),
        owner: meta.map(|meta| (meta.user, meta.group)),
        links,
        device,
    }
}

/// Is given a child with its name and the place behind it; false when that is enough.
type Take<'a> = &'a mut dyn FnMut(Node, FileType, &[u8], u64) -> bool;

/// Builds the tree name by name.
struct Builder {
    nodes: Vec<Inner>,
    names: Vec<u8>,
    /// Node of each full name.
    known: HashMap<Vec<u8>, usize>,
}

impl Builder {
    fn add(
        &mut self,
        parent: usize,
        name: &[u8],
        attributes: Attributes,
        content: Content,
    ) -> usize {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let name = start..self.names.len();
        let same = self.nodes.len();
        self.nodes.push(Inner { parent, name, attributes, content, same, children: 0..0 });
        same
    }

    /// The folder of this name, made where it is not there. `None` where something else is.
    fn folder(&mut self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return Some(0);
        }
        if let Some(&node) = self.known.get(name) {
            let is_folder = self.nodes[node].attributes.file_type == FileType::Folder;
            return is_folder.then_some(node);
        }
        let cut = name.iter().rposition(|&b| b == b'/');
        let (folder, base) = cut.map_or((&name[..0], name), |at| (&name[..at], &name[at + 1..]));
        let parent = self.folder(folder)?;
        let node = self.add(parent, base, FOLDER, Content::None);
        self.known.insert(name.to_vec(), node);
        Some(node)
    }

    /// Puts in a record. One whose name leads nowhere, or where something else is, stays outside.
    fn record(&mut self, number: u64, entry: &Entry) -> bool {
        let name = entry.name.as_slice();
        let mut parts = name.split(|&b| b == b'/');
        let is_name = parts.all(|part| !matches!(part, b"" | b"." | b"..") && part.len() <= 255);
        if !is_name || name.contains(&0) {
            return false;
        }
        let (attributes, content) = (attributes(entry), Content::Record(number));
        if let Some(&node) = self.known.get(name) {
            // A folder that names led through before is what the record says; nothing else comes twice.
            let node = &mut self.nodes[node];
            let is_new = node.content == Content::None && attributes.file_type == FileType::Folder;
            if is_new {
                (node.attributes, node.content) = (attributes, content);
            }
            return is_new;
        }
        let cut = name.iter().rposition(|&b| b == b'/');
        let (folder, base) = cut.map_or((&name[..0], name), |at| (&name[..at], &name[at + 1..]));
        let Some(parent) = self.folder(folder) else { return false };
        let node = self.add(parent, base, attributes, content);
        self.known.insert(name.to_vec(), node);
        true
    }
}

/// True for a record that is found by its number: items, and what has content but no name.
fn has_number(entry: &Entry) -> bool {
    entry.kind == Kind::Item || entry.name.is_empty() && entry.kind.has_content()
}

impl Tree {
    /// Looks at all records. With `is_plain` the whole of the archive is one file of this name.
    pub fn new(served: Served, plain: Option<&[u8]>, log: &dyn Fn(String)) -> Result<Tree> {
        let (reader, content): (_, Arc<dyn ReadAt>) = match served {
            Served::Archive(reader) => (Some(reader.clone()), Arc::new(reader)),
            Served::File(file) => (None, file),
        };
        let mut builder = Builder { nodes: Vec::new(), names: Vec::new(), known: HashMap::new() };
        builder.add(0, b"", FOLDER, Content::None);
        let whole = Attributes { len: content.len(), links: 1, mode: 0o644, ..FOLDER };
        let whole = Attributes { file_type: FileType::File, ..whole };
        let (mut items, mut others) = (false, plain.is_some());
        if let Some(name) = plain {
            builder.add(0, name, whole, Content::Whole);
        } else {
            let mut links = HashMap::new();
            for item in reader.iter().flat_map(|reader| reader.entries(0)) {
                let (number, entry) = match item {
                    Ok(found) => found,
                    Err(error) => {
                        log(format!("some records are left out: {error}"));
                        continue;
                    }
                };
                if entry.kind == Kind::Item {
                    items = true;
                    continue;
                }
                others = true;
                if has_number(&entry) {
                    items = true;
                } else if !builder.record(number, &entry) {
                    log(format!(
                        "{:?} is no name of a file, and is left out",
                        entry.display_name()
                    ));
                } else if let Kind::Hardlink(to) = entry.kind {
                    links.entry(to).or_insert_with(Vec::new).push(builder.nodes.len() - 1);
                }
            }
            builder.link(links);
        }
        if !others && !content.is_empty() {
            builder.add(0, CONTENT, whole, Content::Whole);
        }
        let records = items.then(|| {
            let mut name = RECORDS.to_vec();
            while builder.known.contains_key(&name) {
                name.push(b'~');
            }
            builder.add(0, &name, FOLDER, Content::None)
        });
        let last = reader.as_ref().map_or(0, Reader::records).saturating_sub(1);
        let digits = last.checked_ilog10().unwrap_or(0) as usize + 1;
        let depth = digits.div_ceil(DIGITS) as u32 - 1;
        let Builder { nodes, names, .. } = builder;
        let whole = content;
        let mut tree = Tree { whole, reader, nodes, names, children: Vec::new(), records, depth };
        tree.sort();
        Ok(tree)
    }

    /// Orders children by folder and name.
    fn sort(&mut self) {
        let mut children: Vec<usize> = (1..self.nodes.len()).collect();
        let key = |&node: &usize| (self.nodes[node].parent, self.name(node));
        children.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        let mut at = 0;
        while at < children.len() {
            let parent = self.nodes[children[at]].parent;
            let same = children[at..].iter().take_while(|&&node| self.nodes[node].parent == parent);
            let end = at + same.count();
            let folders = children[at..end]
                .iter()
                .filter(|&&node| self.nodes[node].attributes.file_type == FileType::Folder)
                .count();
            self.nodes[parent].children = at..end;
            self.nodes[parent].attributes.links = 2 + folders as u32;
            at = end;
        }
        self.children = children;
    }

    fn name(&self, node: usize) -> &[u8] {
        &self.names[self.nodes[node].name.clone()]
    }

    pub fn whole(&self) -> &Arc<dyn ReadAt> {
        &self.whole
    }

    /// How many records there are.
    fn records(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::records)
    }

    fn reader(&self) -> Result<&Reader> {
        let none = || Error::NotFound { name: "records".to_owned(), nearest: None };
        self.reader.as_ref().ok_or_else(none)
    }

    /// The record of this number.
    pub fn record(&self, number: u64) -> Result<Record> {
        self.reader()?.record_at(number)
    }

    /// What is known of it.
    pub fn entry(&self, number: u64) -> Result<Entry> {
        self.reader()?.entry(number)
    }

    /// How many files, folders and others there are.
    pub fn len(&self) -> u64 {
        self.nodes.len() as u64 + self.records.map_or(0, |_| self.records())
    }

    /// What the system is told of something; `None` where nothing is.
    pub fn attributes(&self, node: Node) -> Result<Option<Attributes>> {
        Ok(match node {
            Node::Named(i) => self.nodes.get(i).map(|inner| inner.attributes),
            Node::Numbers { depth, part } => self.numbers(depth, part).map(|_| FOLDER),
            Node::Number(number) => self.numbered(number)?.map(|entry| attributes(&entry)),
        })
    }

    /// What something reads as.
    pub fn content(&self, node: Node) -> Option<Content> {
        match node {
            Node::Named(i) => self.nodes.get(i).map(|inner| inner.content),
            Node::Numbers { .. } => None,
            Node::Number(number) => Some(Content::Record(number)),
        }
    }

    /// The records that a numbered folder stands for.
    fn numbers(&self, depth: u32, part: u64) -> Option<Range<u64>> {
        let span = FANOUT.checked_pow(self.depth.checked_sub(depth)? + 1)?;
        let start = part.checked_mul(span)?;
        let range = start..start.saturating_add(span).min(self.records());
        (!range.is_empty() && (depth > 0 || part == 0)).then_some(range)
    }

    /// A record that is in a numbered folder.
    fn numbered(&self, number: u64) -> Result<Option<Entry>> {
        if number >= self.records() {
            return Ok(None);
        }
        let entry = self.entry(number)?;
        Ok(has_number(&entry).then_some(entry))
    }

    /// The same folder as a numbered one, if it is that.
    fn as_numbers(&self, folder: Node) -> Option<(u32, u64)> {
        match folder {
            Node::Named(i) if Some(i) == self.records => Some((0, 0)),
            Node::Numbers { depth, part } => Some((depth, part)),
            _ => None,
        }
    }

    /// What a record's file is called.
    fn number_name(&self, number: u64) -> String {
        format!("{number:0width$}", width = (self.depth as usize + 1) * DIGITS)
    }

    /// The child of this name.
    pub fn find(&self, folder: Node, name: &[u8]) -> Result<Option<Node>> {
        if let Some((depth, part)) = self.as_numbers(folder) {
            let Some(digits) = std::str::from_utf8(name)
                .ok()
                .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
            else {
                return Ok(None);
            };
            let Ok(value) = digits.parse::<u64>() else { return Ok(None) };
            if depth < self.depth {
                let node = Node::Numbers { depth: depth + 1, part: part * FANOUT + value };
                let is_there = digits.len() == DIGITS && self.attributes(node)?.is_some();
                return Ok(is_there.then_some(node));
            }
            let in_folder = self.numbers(depth, part).is_some_and(|range| range.contains(&value));
            if !in_folder || self.number_name(value) != digits {
                return Ok(None);
            }
            return Ok(self.numbered(value)?.map(|_| Node::Number(value)));
        }
        let Node::Named(i) = folder else { return Ok(None) };
        let Some(inner) = self.nodes.get(i) else { return Ok(None) };
        let children = &self.children[inner.children.clone()];
        let found = children.binary_search_by(|&child| self.name(child).cmp(name));
        Ok(found.ok().map(|at| Node::Named(self.nodes[children[at]].same)))
    }

    /// The folder that something is in.
    pub fn parent(&self, node: Node) -> Node {
        match node {
            Node::Named(i) => Node::Named(self.nodes.get(i).map_or(0, |inner| inner.parent)),
            Node::Numbers { depth, part } if depth > 1 => {
                Node::Numbers { depth: depth - 1, part: part / FANOUT }
            }
            Node::Number(number) if self.depth > 0 => {
                Node::Numbers { depth: self.depth, part: number / FANOUT }
            }
            _ => Node::Named(self.records.unwrap_or(0)),
        }
    }

    /// The children of a folder from place `from` on, each with its name and the place behind it; until
    /// `take` says that it is enough.
    pub fn list(&self, folder: Node, from: u64, take: Take<'_>) -> Result<()> {
        if let Some((depth, part)) = self.as_numbers(folder) {
            let Some(range) = self.numbers(depth, part) else { return Ok(()) };
            if depth < self.depth {
                let span = FANOUT.pow(self.depth - depth);
                let count = (range.end - range.start).div_ceil(span);
                for i in from..count {
                    let node = Node::Numbers { depth: depth + 1, part: part * FANOUT + i };
                    let name = format!("{i:0DIGITS$}");
                    if !take(node, FileType::Folder, name.as_bytes(), i + 1) {
                        break;
                    }
                }
                return Ok(());
            }
            let some = self.reader()?.entries(range.start.saturating_add(from));
            for item in some {
                // What cannot be read of the index is not there; `fiche verify` tells.
                let Ok((number, entry)) = item else { continue };
                if number >= range.end {
                    break;
                }
                let name = self.number_name(number);
                let behind = number - range.start + 1;
                let is_shown = has_number(&entry);
                if is_shown && !take(Node::Number(number), FileType::File, name.as_bytes(), behind)
                {
                    break;
                }
            }
            return Ok(());
        }
        let Node::Named(i) = folder else { return Ok(()) };
        let Some(inner) = self.nodes.get(i) else { return Ok(()) };
        let children = &self.children[inner.children.clone()];
        for (at, &child) in
            children.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            let Inner { attributes, same, .. } = &self.nodes[child];
            if !take(Node::Named(*same), attributes.file_type, self.name(child), at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}

impl Builder {
    /// Hard links have the length of what they are another name of, and know how many there are.
    fn link(&mut self, links: HashMap<u64, Vec<usize>>) {
        let targets: HashMap<u64, usize> = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(i, node)| match node.content {
                Content::Record(number) if links.contains_key(&number) => Some((number, i)),
                _ => None,
            })
            .collect();
        for (to, names) in links {
            let Some(&target) = targets.get(&to) else { continue };
            let attributes = &mut self.nodes[target].attributes;
            attributes.links = 1 + names.len() as u32;
            let attributes = *attributes;
            for name in names {
                self.nodes[name].attributes = attributes;
                self.nodes[name].content = Content::Record(to);
                self.nodes[name].same = target;
            }
        }
    }
}
