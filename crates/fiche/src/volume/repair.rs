//! The map made anew, from what extents and nodes say of themselves.

use std::collections::HashMap;
use std::ops::Range;

use crate::envelope::{Container, header};
use crate::error::{Error, Result};
use crate::volume::clones::{self, Clones};
use crate::volume::device::Device;
use crate::volume::dictionary;
use crate::volume::format::{
    ALIGN, Coding, EPOCH_SHIFT, EXTENT_HEAD, ExtentHead, FAN, FAN_BITS, FRAGMENT_HEAD,
    FragmentHead, Kind, MAX_BLOCKS, REGION_BITS, Stream,
};
use crate::volume::log::{Log, unpack_meta};
use crate::volume::map::{Load, Map, Node, Place};
use crate::volume::open::{MEMORY, newest};
use crate::volume::snapshot;
use crate::volume::space::{Space, parse_root};
use crate::volume::{Volume, locked};

/// What [`Volume::repair`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// Extents whose heads are right, of all times.
    pub extents: u64,
    /// Fragments in them that are damaged.
    pub damaged: u64,
    /// Nodes of the map that were taken as they are.
    pub nodes: u64,
    /// Blocks of which something newer was found than these say, or that no node leads to.
    pub blocks: u64,
    /// Clones that are not there any more, since what they shared, or the snapshot that has it, could not be read.
    pub lost_clones: Vec<String>,
}

/// A fragment that says something about blocks.
struct Found {
    number: u64,
    /// In eighths.
    entry: u64,
    blocks: Range<u64>,
    is_zeros: bool,
}

/// A node as it was stored, and when.
struct Base {
    number: u64,
    entry: u64,
    node: Node,
}

/// What lies in the segments.
#[derive(Default)]
struct Scan {
    found: Vec<Found>,
    /// The newest node of each place.
    bases: HashMap<Place, Base>,
    /// Blocks and nodes that were written to each segment.
    totals: HashMap<u32, u32>,
    last: u64,
    /// The newest list of snapshots: where they are. And the newest of clones, as it is stored.
    snapshots: (u64, Vec<u64>),
    clones: (u64, Vec<u8>),
    /// From which extent on what is in a region is its clone's.
    since: HashMap<u64, u64>,
    /// The newest copy of each dictionary, by number and copy, and where; 0 for one that a unit takes and that was not found: its number has its meaning.
    copies: HashMap<(u64, u32), (u64, u64)>,
    /// The root, and as of which number all blocks are zero, if they were.
    top: Place,
    empty: Option<u64>,
    told: Repaired,
}

impl Scan {
    /// Takes up all extents of a segment, wherever they are.
    fn segment(&mut self, bytes: &[u8], tag: u32, start: u64, blocks: u64) {
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + EXTENT_HEAD) {
            // Something damaged may be before it.
            let Ok(head) = ExtentHead::parse(head, tag, start + at as u64) else {
                at += ALIGN as usize;
                continue;
            };
            self.told.extents += 1;
            self.last = self.last.max(head.number);
            let mut end = at + EXTENT_HEAD;
            let places: Vec<usize> = std::iter::from_fn(|| {
                let fragment = bytes.get(end..)?;
                let place = end;
                end += FragmentHead::parse(fragment, 0).ok()?.stored_len();
                Some(place)
            })
            .take(head.fragments.into())
            .collect();
            // What is not of this extent was there before it.
            let is_its = ExtentHead::link_of(bytes, places.iter().copied()) == head.link;
            let found = if is_its { &places[..] } else { &[] };
            self.told.damaged += u64::from(head.fragments) - found.len() as u64;
            for &place in found {
                let fragment = &bytes[place..];
                let Ok(fragment_head) = FragmentHead::parse(fragment, 0) else { continue };
                let entry = (start + place as u64) / ALIGN;
                match fragment_head.verify(tag, fragment) {
                    true => self.fragment(&head, &fragment_head, fragment, entry, blocks),
                    false => self.told.damaged += 1,
                }
            }
            at += (EXTENT_HEAD + head.len as usize).next_multiple_of(ALIGN as usize);
        }
    }

    fn fragment(
        &mut self,
        extent: &ExtentHead,
        head: &FragmentHead,
        fragment: &[u8],
        entry: u64,
        blocks: u64,
    ) {
        let number = extent.number;
        // The device may have become shorter than it reaches.
        let range = head.block..(head.block + u64::from(head.count)).min(blocks);
        match head.kind {
            Kind::Unit(_) | Kind::Pattern | Kind::Zeros if !range.is_empty() => {
                let is_zeros = head.kind == Kind::Zeros;
                self.found.push(Found { number, entry, blocks: range, is_zeros });
                if let Kind::Unit(Coding::Trained(dictionary)) = head.kind {
                    self.copies.entry((dictionary.into(), 1)).or_default();
                }
            }
            Kind::Node if head.count <= LEVELS && head.block <= blocks >> FAN_BITS => {
                let place = (head.count as u8 - 1, head.block);
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                let is_newer = self.bases.get(&place).is_none_or(|known| known.number < number);
                if is_newer
                    && let Some(bytes) = unpack_meta(stored)
                    && let Ok(node) = Node::parse(&bytes, entry * ALIGN)
                {
                    self.bases.insert(place, Base { number, entry, node });
                }
            }
            Kind::Dictionary => {
                let newest = self.copies.entry((head.block, head.count)).or_default();
                *newest = (*newest).max((number, entry));
            }
            Kind::SnapshotRoot if self.snapshots.0 < number => {
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                self.snapshots = (number, parse_root(stored).unwrap_or_default());
            }
            Kind::Clones if self.clones.0 < number => {
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                self.clones = (number, stored.to_vec());
            }
            _ => {}
        }
    }

    /// Leaves out what is of no device: neither of the first one, of so many blocks, nor of a clone that is still there.
    fn confine(&mut self, blocks: u64, clones: &Clones) {
        self.since = clones.iter().map(|clone| (clone.region, clone.since)).collect();
        let end = |block: u64| match block >> REGION_BITS {
            _ if clones.is_empty() => blocks,
            0 => blocks,
            region => clones
                .iter()
                .find(|clone| clone.region == region)
                .map_or(0, |clone| clone.first() + clone.blocks),
        };
        let since = &self.since;
        let is_its = |block: u64, number: u64| {
            since.get(&(block >> REGION_BITS)).is_none_or(|&since| number >= since)
        };
        self.found.retain_mut(|Found { number, blocks, .. }| {
            // The device may have become shorter than it reaches.
            blocks.end = blocks.end.min(end(blocks.start));
            !blocks.is_empty() && is_its(blocks.start, *number)
        });
        // Nor those of levels that the map does not have any more.
        let top = self.top;
        self.bases.retain(|place, base| {
            let first = first_of(*place);
            let is_inside = first < end(first) && is_its(first, base.number);
            (place.0 < top.0 && is_inside) || *place == top
        });
    }

    /// The newest that is known of a node, and when: as it was stored, or that it is nothing, which the one above says. (There may be very many
    /// of nothing.)
    fn base(&self, place: Place) -> Option<(u64, Option<&Base>)> {
        let own = self.bases.get(&place).map(|base| (base.number, Some(base)));
        let above = match place {
            top if top == self.top => self.empty,
            (level, _) if level >= self.top.0 => None,
            (level, number) => {
                let (known, base) = self.base((level + 1, number >> FAN_BITS)).unzip();
                let is_nothing =
                    base.flatten().is_none_or(|base| base.node.get(number as usize % FAN) == 0);
                // Before there was the clone it was nothing, indeed.
                let since = self.since.get(&(first_of(place) >> REGION_BITS)).copied();
                known.filter(|&known| is_nothing && since.is_none_or(|since| known >= since))
            }
        };
        let above = above.map(|number| (number, None));
        match own {
            Some((number, _)) if above.is_none_or(|above| above.0 <= number) => own,
            _ => above,
        }
    }
}

/// The first block that a node leads to.
fn first_of((level, number): Place) -> u64 {
    number << (FAN_BITS * (u32::from(level) + 1))
}

/// Lets a map lead to what was found of a region with so many blocks.
fn lay(
    map: &mut Map,
    region: u64,
    blocks: u64,
    scan: &Scan,
    told: &mut Repaired,
    load: Load<'_>,
) -> Result<()> {
    // A device that has no clones may be longer than a region.
    let is_its = |block: u64| scan.since.is_empty() || block >> REGION_BITS == region;
    let end = (region << REGION_BITS) + blocks;
    for &place in scan.bases.keys().filter(|&&place| is_its(first_of(place))) {
        let Some((_, Some(base))) = scan.base(place) else { continue };
        told.nodes += 1;
        let first = place.1 << FAN_BITS;
        let count = if place.0 == 0 { end.saturating_sub(first).min(FAN as u64) } else { 0 };
        for block in first..first + count {
            map.set(block, base.node.get(block as usize % FAN), load)?;
        }
    }
    for Found { number, entry, blocks, is_zeros } in &scan.found {
        if !is_its(blocks.start) {
            continue;
        }
        let entry = if *is_zeros { 0 } else { *entry };
        for leaf in blocks.start >> FAN_BITS..=(blocks.end - 1) >> FAN_BITS {
            let (place, first) = ((0, leaf), leaf << FAN_BITS);
            if scan.base(place).is_some_and(|(known, _)| known > *number) {
                continue;
            }
            let range = blocks.start.max(first)..blocks.end.min(first + FAN as u64);
            if *is_zeros {
                // Where there is nothing that costs nothing.
                let mut changed = 0;
                map.clear(range.start, range.end - range.start, load, &mut |_| changed += 1)?;
                told.blocks += changed;
                continue;
            }
            for block in range {
                told.blocks += u64::from(map.set(block, entry, load)? != entry);
            }
        }
    }
    Ok(())
}

/// Lets go of what a clone's snapshot has and the clone has not, as nodes of its own say that are whole.
fn clear_nothing(map: &mut Map, top: Place, scan: &Scan, load: Load<'_>) -> Result<()> {
    let mut open = vec![top];
    while let Some(place) = open.pop() {
        if matches!(scan.base(place), Some((_, None))) {
            map.graft(place, 0, load)?;
        } else if place.0 > 0 {
            open.extend(map.children(place, load)?);
        }
    }
    Ok(())
}

/// Levels that a map has at most.
const LEVELS: u32 = 4;

impl Volume {
    /// Opens a volume whose map, usage or newest superblocks are damaged, and makes these anew. Reads all of it. Each node of the map
    /// that is whole is taken as it is, and what newer extents say replaces that. Where a node is damaged an older one and all
    /// extents behind that say where its blocks are; blocks that were made zero may have what they had before then. What is
    /// damaged itself stays so: reading it is an error.
    ///
    /// Takes 5 bytes of memory for each block, and some 50 for each fragment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where no superblock is left, [`Error::Io`], also when there is no room for the map.
    pub fn repair(device: impl Device + 'static) -> Result<(Volume, Repaired)> {
        let mut superblock = newest(&device)?;
        let (bits, tag, blocks) = (superblock.segment_bits, superblock.tag, superblock.blocks);
        let len = device.len()?;
        let segments = (len >> bits).min(superblock.most_segments.into()) as u32;
        let mut scan = Scan { last: superblock.next, ..Scan::default() };
        let mut bytes = vec![0; 1 << bits];
        // Until it is known which clones there are.
        let mapped = if blocks <= 1 << REGION_BITS { MAX_BLOCKS } else { blocks };
        for segment in 1..segments {
            let start = u64::from(segment) << bits;
            device.read_at(start, &mut bytes)?;
            let before = scan.found.len();
            scan.segment(&bytes, tag, start, mapped);
            let counts = scan.found[before..].iter().filter(|found| !found.is_zeros);
            let total: u64 = counts.map(|found| found.blocks.end - found.blocks.start).sum();
            scan.totals.insert(segment, total.min(u32::MAX.into()) as u32);
        }
        scan.empty = (superblock.map == 0).then_some(superblock.next);
        superblock.segments = segments;
        let told = superblock.clone();
        superblock.heads = [0; 2];
        (superblock.map, superblock.usage, superblock.snapshots) = (0, 0, 0);
        (superblock.dictionaries, superblock.clones) = (0, 0);
        let volume = Volume::over(Box::new(device), superblock, MEMORY);
        let mut log = locked(&volume.log);
        let found = std::mem::take(&mut scan.snapshots.1);
        log.snapshots = snapshot::read_whole(volume.from(), &told, found, segments);
        let found = std::mem::take(&mut scan.clones.1);
        let clones = clones::read_whole(volume.from(), &told, &found, &log.snapshots);
        (log.clones, scan.told.lost_clones) = clones;
        let told = volume.rebuild(&mut log, scan)?;
        let damaged = volume.read_dictionaries(&log.copies);
        volume.heal(&mut log, damaged)?;
        let write = || {
            volume.device.write_at(0, &header(Container::Volume))?;
            volume.device.sync()
        };
        write()?;
        drop(log);
        Ok((volume, told))
    }

    fn rebuild(&self, log: &mut Log, mut scan: Scan) -> Result<Repaired> {
        let mut told = scan.told.clone();
        let load = self.load();
        let blocks = log.superblock.blocks;
        let has_clones = !log.clones.is_empty();
        let mut map = Map::new(if has_clones { MAX_BLOCKS } else { blocks }, 0);
        scan.top = map.top();
        scan.found.sort_by_key(|found| found.number);
        scan.confine(blocks, &log.clones);
        for clone in log.clones.take() {
            let root = log.snapshots.iter().find(|kept| kept.id == clone.base).map(|kept| kept.map);
            let top = Map::top_of(clone.first(), 1 << REGION_BITS);
            let begin = Map::top_of(clone.first(), clone.blocks);
            let grafted = map.graft(begin, root.unwrap_or(0), &load);
            let laid = grafted
                .and_then(|()| clear_nothing(&mut map, top, &scan, &load))
                .and_then(|()| lay(&mut map, clone.region, clone.blocks, &scan, &mut told, &load));
            match laid {
                Ok(()) => log.clones.push(clone),
                Err(Error::Corrupt { .. }) => {
                    map.graft(top, 0, &load)?;
                    told.lost_clones.push(clone.name);
                }
                Err(other) => return Err(other),
            }
        }
        lay(&mut map, 0, blocks, &scan, &mut told, &load)?;
        if has_clones && log.clones.is_empty() {
            map.resize(blocks, &load, &mut |_| {})?;
        }
        let Scan { found, bases, totals, copies, last, .. } = &scan;
        let s = &log.superblock;
        // What this was made of is not written over before it is stored: nodes, and what says of blocks that they are zero.
        let zeros = found.iter().filter(|found| found.is_zeros).map(|found| found.entry);
        let nodes = bases.values().map(|base| base.entry);
        let needed: Vec<u64> = zeros.chain(nodes).collect();
        let mut space = Space::new(s.segment_bits, s.most_segments, s.segments, [0; 2]);
        for leaf in map.changed(0) {
            let first = leaf << FAN_BITS;
            let shared = log.clones.shared(first);
            for block in first..(first + FAN as u64).min(map.blocks()) {
                match map.get(block, &load)? {
                    0 => {}
                    entry if shared.has(entry) => {}
                    entry => space.add(entry, 1),
                }
            }
        }
        for (&segment, &total) in totals {
            space.set_total(segment, total);
        }
        space.set_all_raw();
        needed.iter().for_each(|&entry| space.pin(entry));
        snapshot::count(&log.snapshots, &mut space);
        space.find_free();
        *self.map() = map;
        log.space = space;
        for (&which, &(_, entry)) in copies {
            dictionary::place(&mut log.copies, &mut log.space, which, entry);
        }
        (log.pages, log.root) = (Vec::new(), 0);
        log.next = ((*last >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT;
        self.keep_room(log)?;
        self.begin(log, Stream::Hot)?;
        self.checkpoint(log)?;
        needed.iter().for_each(|&entry| log.space.unpin(entry));
        self.checkpoint(log)?;
        Ok(told)
    }
}
