//! Trees above the pages, name pages, and how names are watched while they are written.

use std::cmp::Ordering;

use super::page::FrontCoder;
use super::{FANOUT, MAX_FANOUT, MAX_LEVEL};
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

/// Of each of these sorted names, as much as tells it from those before and after it.
fn beginnings<'a>(names: &[(&'a [u8], u64)]) -> Vec<(&'a [u8], u64)> {
    let shared = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut before = 0;
    let mut beginnings = Vec::with_capacity(names.len());
    for (i, &(name, number)) in names.iter().enumerate() {
        let after = names.get(i + 1).map_or(0, |(next, _)| shared(name, next));
        let len = name.len().min(before.max(after) + 1);
        beginnings.push((&name[..len], number));
        before = after;
    }
    beginnings
}

/// Appends the sections of sorted (name, number) pairs at `pos` and after.
pub(crate) fn build_name_tree(
    names: &[(&[u8], u64)],
    mut pos: u64,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Option<Tree> {
    let beginnings = beginnings(names);
    let mut children = Vec::new();
    let mut done = 0;
    for page in beginnings.chunks(FANOUT) {
        // At most 256 * 65,535 bytes: what a page may unfold to.
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
        children.push(Child {
            first: done,
            count: page.len() as u64,
            at,
            name: page[0].0.to_vec(),
        });
        pos = at.end();
        done += page.len() as u64;
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

/// Watches names as they are written: whether they increase, and that no two are the
/// same that have to differ. Costs what each name does not share with the one before, and once
/// they do not increase all their bytes and 16 to 40 more each.
#[derive(Default)]
pub(crate) struct NameWatch {
    /// While the names increase, each as the front coder has it; then one after the other.
    names: Vec<u8>,
    coder: FrontCoder,
    count: u64,
    unsorted: Option<Unsorted>,
}

/// What is known of names that do not increase.
#[derive(Default)]
struct Unsorted {
    /// Where each name ends, and the number of its record.
    ends: Vec<(u64, u64)>,
    /// Of those that no other record may have.
    digests: std::collections::HashSet<[u8; 16]>,
}

impl NameWatch {
    /// Takes the next name; with `alone`, an error when it was there before.
    pub fn push(&mut self, name: &[u8], number: u64, alone: bool) -> Result<()> {
        let is_first = self.count == 0 && self.unsorted.is_none();
        if name.is_empty() && is_first {
            return Ok(());
        }
        if self.unsorted.is_none() {
            // Records without a name before the first with one count as unsorted.
            let order = match is_first {
                true if number == 0 => Ordering::Less,
                true => Ordering::Greater,
                false => self.coder.last().cmp(name),
            };
            match order {
                Ordering::Less => {
                    self.coder.put(name, &mut self.names);
                    self.count += 1;
                    return Ok(());
                }
                Ordering::Equal if alone => return Err(twice()),
                Ordering::Equal | Ordering::Greater => self.unfold(),
            }
        }
        match &mut self.unsorted {
            Some(unsorted) if !name.is_empty() => {
                unsorted.push(&mut self.names, name, number, alone)
            }
            _ => Ok(()),
        }
    }

    /// Takes another name of the record whose name came last.
    pub fn push_other(&mut self, name: &[u8], number: u64) -> Result<()> {
        if self.unsorted.is_none() {
            self.unfold();
        }
        self.push(name, number, false)
    }

    /// Goes from names that increase to names that do not.
    fn unfold(&mut self) {
        let coded = std::mem::take(&mut self.names);
        let mut take = Take::new(&coded, "names", 0);
        let (mut unsorted, mut name, mut number) = (Unsorted::default(), Vec::new(), 0);
        while let (Ok(shared), Ok(rest)) = (take.varint(), take.string()) {
            name.truncate(shared as usize);
            name.extend_from_slice(rest);
            // They increase: no two are the same.
            let _ = unsorted.push(&mut self.names, &name, number, true);
            number += 1;
        }
        self.unsorted = Some(unsorted);
    }

    /// Writes the name tree if one is needed, and says how names are found.
    pub fn finish(self, pos: u64, out: &mut Vec<u8>, scratch: &mut Scratch) -> Names {
        let Some(unsorted) = self.unsorted else {
            return if self.count == 0 { Names::Absent } else { Names::Increasing };
        };
        drop(unsorted.digests);
        let mut start = 0;
        let mut names: Vec<(&[u8], u64)> = Vec::with_capacity(unsorted.ends.len());
        for (end, number) in unsorted.ends {
            names.push((&self.names[start..end as usize], number));
            start = end as usize;
        }
        names.sort_unstable();
        build_name_tree(&names, pos, out, scratch).map_or(Names::Absent, Names::Sorted)
    }
}

impl Unsorted {
    fn push(&mut self, names: &mut Vec<u8>, name: &[u8], number: u64, alone: bool) -> Result<()> {
        if alone {
            let mut digest = [0; 16];
            digest.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
            if !self.digests.insert(digest) {
                return Err(twice());
            }
        }
        names.extend_from_slice(name);
        self.ends.push((names.len() as u64, number));
        Ok(())
    }
}

fn twice() -> Error {
    Error::invalid("there are two records of one name")
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
