//! Finds records by number and name, and goes through them.

use std::sync::Arc;

use super::Entry;
use super::page::parse_page;
use super::tree::{Child, Names, RecordTree, Tree, parse_name_page, parse_node};
use crate::cache::Cache;
use crate::envelope::{Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;

/// A section of the record index, parsed.
enum Parsed {
    Node(Vec<Child>),
    Page(Vec<Entry>),
    Names(Vec<(Vec<u8>, u64)>),
}

impl Parsed {
    /// About how many bytes it takes in memory.
    fn weight(&self) -> u64 {
        let name = |name: &[u8]| name.len() as u64 + 32;
        match self {
            Parsed::Node(children) => children.iter().map(|c| name(&c.name) + 40).sum(),
            Parsed::Names(names) => names.iter().map(|(n, _)| name(n)).sum(),
            Parsed::Page(entries) => entries.iter().map(Entry::weight).sum(),
        }
    }
}

/// A section as the cache keeps it.
type Shared = Arc<(Loaded, Parsed)>;

/// What a section was loaded as: where, and what was expected of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Loaded {
    at: SectionRef,
    kind: SectionKind,
    level: u8,
    first: u64,
}

/// Finds records by number and name; loads what a lookup touches and no more.
pub(crate) struct Index {
    source: Arc<dyn ReadAt>,
    trees: Vec<RecordTree>,
    cache: Cache<(Loaded, Parsed)>,
}

/// Bytes that parsed sections of the index may take in memory.
const INDEX_CACHE: u64 = 16 << 20;

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

    fn load(&self, at: SectionRef, level: u8, leaf: SectionKind, first: u64) -> Result<Shared> {
        let kind = if level > 0 { SectionKind::Node } else { leaf };
        let asked = Loaded { at, kind, level, first };
        // What was loaded as something else is loaded again, and found wrong.
        if let Some(cached) = self.cache.get(at.pos)
            && cached.0 == asked
        {
            return Ok(cached);
        }
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
        let parsed = match kind {
            SectionKind::Node => Parsed::Node(parse_node(&section, level)?),
            SectionKind::NamePage => Parsed::Names(parse_name_page(&section)?),
            _ => Parsed::Page(parse_page(&section)?),
        };
        let weight = parsed.weight();
        let parsed = Arc::new((asked, parsed));
        self.cache.insert(at.pos, parsed.clone(), weight);
        Ok(parsed)
    }

    /// Goes down from a root to the page that `choose` leads to.
    fn descend(
        &self,
        tree: &Tree,
        leaf: SectionKind,
        choose: impl Fn(&[Child]) -> usize,
    ) -> Result<(Shared, Child)> {
        let mut here = tree.as_child();
        let mut level = tree.level;
        loop {
            let parsed = self.load(here.at, level, leaf, here.first)?;
            let count = match &parsed.1 {
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
    fn page_of(&self, number: u64) -> Result<Option<(Shared, u64)>> {
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
        let Parsed::Page(entries) = &page.1 else { return Ok(None) };
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
            match &page.1 {
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
        let (count, children) = match &parsed.1 {
            Parsed::Node(children) => {
                (children.iter().map(|c| c.count).sum::<u64>(), children.as_slice())
            }
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
            let (short, long) =
                (entry.name.len().min(name.len()), entry.name.len().max(name.len()));
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
    page: Option<(Shared, u64)>,
}

impl Iterator for Entries<'_> {
    type Item = Result<(u64, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let number = self.next;
            if let Some((page, first)) = &self.page
                && let Parsed::Page(entries) = &page.1
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
