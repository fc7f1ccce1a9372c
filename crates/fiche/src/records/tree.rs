//! Trees above the pages, name pages, and how names are watched while they are written.

use std::cmp::Ordering;

use super::page::FrontCoder;
use super::{FANOUT, MAX_FANOUT, MAX_LEVEL, PAGE_BYTES};
use crate::codec::Scratch;
use crate::envelope::{Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::wire::{Put, Take};

/// One section above the pages, or a page itself, as its parent knows it.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub first: u64,
    pub count: u64,
    pub at: SectionRef,
    pub name: Vec<u8>,
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
    pub fn as_child(&self) -> Child {
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

pub(super) fn parse_node(section: &Section, level: u8) -> Result<Vec<Child>> {
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

pub(super) fn parse_name_page(section: &Section) -> Result<Vec<(Vec<u8>, u64)>> {
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
