//! Finds records by number and name, and goes through them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// How often a section was not there that is far away.
    waits: AtomicUsize,
}

/// Sections of the index that are fetched at once from far away.
const GROUP: usize = 64;
/// Who has waited for so many of them most probably waits for more.
const FEW: usize = 4;
/// Bytes that parsed sections of the index may take in memory.
const INDEX_CACHE: u64 = 16 << 20;

impl Index {
    pub fn new(source: Arc<dyn ReadAt>, trees: Vec<RecordTree>) -> Index {
        Index { source, trees, cache: Cache::new(INDEX_CACHE), waits: AtomicUsize::new(0) }
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
        go_on: bool,
        choose: impl Fn(&[Child]) -> usize,
    ) -> Result<(Shared, Child)> {
        let mut here = tree.as_child();
        let mut level = tree.level;
        loop {
            let parsed = self.load(here.at, level, leaf, here.first)?;
            let count = match &parsed.1 {
                Parsed::Node(children) => {
                    let i = choose(children);
                    self.fetch(children, i, go_on);
                    let child = &children[i];
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

    /// The page of records that holds this number, and the number of its first one. To `go_on` says that
    /// those behind it will be asked for.
    fn page_of(&self, number: u64, go_on: bool) -> Result<Option<(Shared, u64)>> {
        let i = self.trees.partition_point(|t| t.tree.first + t.tree.count <= number);
        let Some(RecordTree { tree, .. }) = self.trees.get(i).filter(|t| t.tree.first <= number)
        else {
            return Ok(None);
        };
        let (page, here) = self.descend(tree, SectionKind::RecordPage, go_on, |children| {
            children.partition_point(|c| c.first <= number).saturating_sub(1)
        })?;
        Ok(Some((page, here.first)))
    }

    /// Where sections are far away: fetches this one together with its neighbours, if more of them will
    /// be asked for: by who says so, and by who has asked for some.
    fn fetch(&self, children: &[Child], i: usize, go_on: bool) {
        let Some(distant) = self.source.as_distant() else { return };
        let range = |child: &Child| child.at.pos..child.at.end();
        if self.cache.get(children[i].at.pos).is_some() || distant.has(range(&children[i])) {
            return;
        }
        let some = self.waits.fetch_add(1, Ordering::Relaxed) >= FEW;
        if go_on || some {
            let first = i / GROUP * GROUP;
            let group = &children[first..children.len().min(first + GROUP)];
            distant.fetch(&group.iter().map(range).collect::<Vec<_>>());
        }
    }

    /// The record of this number, if there is one.
    pub fn get(&self, number: u64) -> Result<Option<Entry>> {
        let Some((page, first)) = self.page_of(number, false)? else { return Ok(None) };
        let Parsed::Page(entries) = &page.1 else { return Ok(None) };
        Ok(entries.get((number - first) as usize).cloned())
    }

    /// The record of this name, if there is one, with its number. Trees written
    /// later are asked first.
    pub fn find(&self, name: &[u8]) -> Result<Option<(u64, Entry)>> {
        for records in self.trees.iter().rev() {
            for item in self.named_from(records, name) {
                let (beginning, number) = item?;
                if !name.starts_with(&beginning) {
                    break;
                }
                let entry = self.named(number)?;
                if entry.name == name || entry.key == name {
                    return Ok(Some((number, entry)));
                }
            }
        }
        Ok(None)
    }

    /// The record that a name led to.
    fn named(&self, number: u64) -> Result<Entry> {
        let place = Error::Corrupt { what: "name page", at: Place::Record(number) };
        self.get(number)?.ok_or(place)
    }

    /// The records of which a name starts with this, with their numbers: tree by tree, in the
    /// order of these names.
    pub fn prefix<'a>(
        &'a self,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = Result<(u64, Entry)>> + 'a {
        self.trees.iter().flat_map(move |records| {
            let may = |item: &Result<(Vec<u8>, u64)>| {
                item.as_ref().map_or(true, |(beginning, _)| {
                    beginning.starts_with(prefix) || prefix.starts_with(beginning)
                })
            };
            self.named_from(records, prefix).take_while(may).filter_map(move |item| {
                let found = item.and_then(|(_, number)| Ok((number, self.named(number)?)));
                let does = |entry: &Entry| {
                    entry.name.starts_with(prefix)
                        || (!entry.key.is_empty() && entry.key.starts_with(prefix))
                };
                match found {
                    Ok((_, entry)) if !does(&entry) => None,
                    found => Some(found),
                }
            })
        })
    }

    /// The beginnings of the names of a tree in their order, with the numbers of their records:
    /// from the last one that this name may have, or else the first that is greater.
    fn named_from<'a>(&'a self, records: &'a RecordTree, name: &[u8]) -> Named<'a> {
        let mut named = Named { index: self, records, at: None, sorted: None, error: None };
        match &records.names {
            Names::Absent => {}
            Names::Unknown => {
                // Of a recovered page, which is small.
                match self.page_of(records.tree.first, false) {
                    Ok(Some((page, first))) => {
                        let Parsed::Page(entries) = &page.1 else { return named };
                        let mut names: Vec<(Vec<u8>, u64)> = entries
                            .iter()
                            .zip(first..)
                            .flat_map(|(e, n)| [(e.name.clone(), n), (e.key.clone(), n)])
                            .collect();
                        names.retain(|(found, _)| !found.is_empty() && found.as_slice() >= name);
                        names.sort_unstable();
                        named.sorted = Some(names.into_iter());
                    }
                    Ok(None) => {}
                    Err(error) => named.error = Some(error),
                }
            }
            Names::Increasing | Names::Sorted(_) => match named.lower_bound(name) {
                Ok(at) => named.at = Some((at, None)),
                Err(error) => named.error = Some(error),
            },
        }
        named
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

/// Goes through the names of a tree in their order.
struct Named<'a> {
    index: &'a Index,
    records: &'a RecordTree,
    /// How many names are before the next one, and the page it is in.
    at: Option<(u64, Option<(Shared, u64)>)>,
    /// The names where they had to be sorted.
    sorted: Option<std::vec::IntoIter<(Vec<u8>, u64)>>,
    error: Option<Error>,
}

impl<'a> Named<'a> {
    /// The tree that has the names in order, and its leaves.
    fn tree(&self) -> (&'a Tree, SectionKind) {
        match &self.records.names {
            Names::Sorted(names) => (names, SectionKind::NamePage),
            _ => (&self.records.tree, SectionKind::RecordPage),
        }
    }

    /// How many names are before the first that this one may be the name of.
    fn lower_bound(&self, name: &[u8]) -> Result<u64> {
        let (tree, leaf) = self.tree();
        let (page, here) = self.index.descend(tree, leaf, false, |children| {
            children.partition_point(|c| c.name.as_slice() < name).saturating_sub(1)
        })?;
        let less = match &page.1 {
            Parsed::Page(entries) => entries.partition_point(|e| e.name.as_slice() < name),
            Parsed::Names(names) => {
                let less = names.partition_point(|(n, _)| n.as_slice() < name);
                let whole = names.get(less).is_some_and(|(n, _)| n == name);
                let before = less.checked_sub(1).and_then(|i| names.get(i));
                // What is less may be the beginning of it.
                less - usize::from(!whole && before.is_some_and(|(n, _)| name.starts_with(n)))
            }
            Parsed::Node(_) => 0,
        };
        Ok(here.first - tree.first + less as u64)
    }

    /// The page that holds name `at` of the tree, and how many are before it.
    fn page(&self, at: u64) -> Result<(Shared, u64)> {
        let (tree, leaf) = self.tree();
        let number = tree.first + at;
        let (page, here) = self.index.descend(tree, leaf, false, |children| {
            children.partition_point(|c| c.first <= number).saturating_sub(1)
        })?;
        Ok((page, here.first - tree.first))
    }
}

impl Iterator for Named<'_> {
    type Item = Result<(Vec<u8>, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.error.take() {
            self.at = None;
            return Some(Err(error));
        }
        if let Some(sorted) = &mut self.sorted {
            return sorted.next().map(Ok);
        }
        let (at, page) = self.at.take()?;
        if at >= self.tree().0.count {
            return None;
        }
        let first = self.records.tree.first;
        let held = page.filter(|(page, before)| match &page.1 {
            Parsed::Page(entries) => at < before + entries.len() as u64,
            Parsed::Names(names) => at < before + names.len() as u64,
            Parsed::Node(_) => false,
        });
        let (page, before) = match held.map_or_else(|| self.page(at), Ok) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let i = (at - before) as usize;
        let item = match &page.1 {
            Parsed::Page(entries) => entries.get(i).map(|e| (e.name.clone(), first + at)),
            Parsed::Names(names) => {
                names.get(i).map(|(name, number)| (name.clone(), first.saturating_add(*number)))
            }
            Parsed::Node(_) => None,
        };
        self.at = Some((at + 1, Some((page, before))));
        item.map(Ok)
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
            match self.index.page_of(number, true) {
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
