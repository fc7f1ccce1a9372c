//! Reads everything, and holds it against what it should be.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::error::{Error, Result};
use crate::volume::clones::Shared;
use crate::volume::format::{ALIGN, BLOCK, FAN, FAN_BITS, REGION_BITS};
use crate::volume::read::{Unit, View, read_unit};
use crate::volume::{Volume, Work, locked};

/// What [`Volume::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that are not zero because nothing was written.
    pub blocks: u64,
    /// Units and patterns that hold them.
    pub units: u64,
    /// Bytes in which these are stored, heads included.
    pub stored_len: u64,
    /// Blocks that cannot be read: their number, and where their unit lies. At most a thousand are listed.
    pub damaged: Vec<(u64, u64)>,
    /// Positions of nodes of the map that cannot be read.
    pub damaged_nodes: Vec<u64>,
    /// Positions of copies of dictionaries that cannot be read; while the other one can be, all blocks can.
    pub damaged_dictionaries: Vec<u64>,
    /// Segments of which something else is used than the usage pages say.
    pub miscounted: u64,
    /// The same of each snapshot, and its name: here [`miscounted`](Checked::miscounted) are segments that it leads to and does not hold.
    pub snapshots: Vec<(String, Checked)>,
    /// The same of each clone: of what it does not share with its snapshot. Blocks have their numbers in the clone.
    pub clones: Vec<(String, Checked)>,
}

impl Checked {
    /// True where nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_whole = |(_, checked): &(String, Checked)| checked.is_whole();
        self.damaged.is_empty()
            && self.damaged_dictionaries.is_empty()
            && self.has_whole_map()
            && self.snapshots.iter().chain(&self.clones).all(is_whole)
    }

    /// True where the map and the usage are right, of clones as well, whatever the units and the snapshots are.
    #[must_use]
    pub fn has_whole_map(&self) -> bool {
        let is_whole = |(_, checked): &(String, Checked)| checked.has_whole_map();
        self.damaged_nodes.is_empty() && self.miscounted == 0 && self.clones.iter().all(is_whole)
    }
}

/// What is counted while a map is gone through.
#[derive(Default)]
struct Counted {
    /// Blocks and nodes that lead to each segment.
    used: HashMap<u32, u32>,
    /// Nodes of snapshots that were gone through: what an earlier one has as well is looked at once.
    seen: HashSet<u64>,
    is_snapshot: bool,
    /// What is a snapshot's and not the clone's that is gone through.
    shared: Shared,
}

impl Volume {
    /// Reads the whole map and each unit, verifies all checksums, decodes all units, and counts what is used of each segment again; then the
    /// same of each clone and each snapshot, but for those parts of its map that an earlier one has, too. Writes wait until it is done.
    ///
    /// # Errors
    /// [`Error::Io`]; damage is no error but what it returns.
    pub fn check(&self) -> Result<Checked> {
        let log = locked(&self.log);
        let mut counted = Counted::default();
        let mut checked = self.check_map(&self.view, 0..self.blocks(), &mut counted)?;
        // Those that were deleted as well: what they have is counted until it is let go of.
        for clone in log.clones.iter() {
            counted.shared = log.clones.shared(clone.first());
            let range = clone.first()..clone.first() + clone.blocks;
            let mut its = self.check_map(&self.view, range, &mut counted)?;
            its.damaged.iter_mut().for_each(|(block, _)| *block -= clone.first());
            if !clone.is_gone {
                checked.clones.push((clone.name.clone(), its));
            }
        }
        counted.shared = Shared::default();
        let is_wrong = |&segment: &u32| {
            log.space.used(segment).live != counted.used.get(&segment).copied().unwrap_or(0)
        };
        checked.miscounted = (0..log.space.segments()).filter(is_wrong).count() as u64;
        checked.damaged_dictionaries = self.damaged_copies(&log.copies);
        counted.is_snapshot = true;
        for kept in &log.snapshots {
            let view = View::new(kept.blocks, kept.map);
            counted.used.clear();
            let mut its = self.check_map(&view, 0..kept.blocks, &mut counted)?;
            its.miscounted =
                counted.used.keys().filter(|&&segment| !kept.holds(segment)).count() as u64;
            checked.snapshots.push((kept.name.clone(), its));
        }
        Ok(checked)
    }

    fn check_map(&self, view: &View, range: Range<u64>, counted: &mut Counted) -> Result<Checked> {
        const MOST: usize = 1000;
        let mut checked = Checked::default();
        let leaves = self.walk(view, &range, &mut checked, counted)?;
        let mut work = Work::default();
        let mut buf = vec![0; FAN * BLOCK];
        let load = self.load();
        for leaf in leaves {
            let first = leaf << FAN_BITS;
            let count = range.end.saturating_sub(first).min(FAN as u64);
            let entries: Vec<u64> = (first..first + count)
                .map(|block| locked(&view.map).get(block, &load))
                .collect::<Result<_>>()?;
            let mut at = 0;
            for run in entries.chunk_by(|a, b| a == b) {
                let (start, entry) = (first + at as u64, run[0]);
                at += run.len();
                if entry == 0 || counted.shared.has(entry) {
                    continue;
                }
                *counted.used.entry(self.segment_of(entry)).or_default() += run.len() as u32;
                checked.blocks += run.len() as u64;
                let buf = &mut buf[..run.len() * BLOCK];
                let (from, dictionaries) = (self.from(), &self.dictionaries);
                let next = entries.get(at).copied().unwrap_or(0);
                let expected = view.lengths.expected(run.len(), entry, next);
                let unit = Unit { first: start, entry, expected };
                match read_unit(from, dictionaries, unit, buf, &mut work) {
                    Ok((block, len)) => {
                        view.lengths.learn(run.len(), len as usize);
                        // Where blocks in its middle were written again it comes more than once.
                        let mut is_first = true;
                        for before in block..start {
                            is_first &= locked(&view.map).get(before, &load)? != entry;
                        }
                        if is_first {
                            checked.units += 1;
                            checked.stored_len += len;
                        }
                    }
                    Err(Error::Io(error)) => return Err(error.into()),
                    Err(_) => {
                        let more = (start..first + at as u64).map(|block| (block, entry * ALIGN));
                        checked.damaged.extend(more);
                        checked.damaged.truncate(MOST);
                    }
                }
            }
            locked(&view.map).shrink(0);
        }
        Ok(checked)
    }

    fn segment_of(&self, entry: u64) -> u32 {
        ((entry * ALIGN) >> self.bits) as u32
    }

    /// Counts the nodes that lead to some blocks as they are stored, and lists those of level 0. Nodes of several regions are counted with the first.
    fn walk(
        &self,
        view: &View,
        range: &Range<u64>,
        checked: &mut Checked,
        counted: &mut Counted,
    ) -> Result<Vec<u64>> {
        let load = self.load();
        let mut leaves = Vec::new();
        let mut open = vec![locked(&view.map).top()];
        while let Some(place) = open.pop() {
            let bits = FAN_BITS * (u32::from(place.0) + 1);
            if place.1 << bits >= range.end || (place.1 + 1) << bits <= range.start {
                continue;
            }
            let entry = locked(&view.map).stored(place, &load)?;
            let is_shared = counted.shared.has(entry);
            // One that is in memory may have changed since.
            if is_shared && !locked(&view.map).has(place) {
                continue;
            }
            if entry > 0 && !is_shared && (bits <= REGION_BITS || range.start == 0) {
                *counted.used.entry(self.segment_of(entry)).or_default() += 1;
            }
            if counted.is_snapshot && (entry == 0 || !counted.seen.insert(entry)) {
                continue;
            }
            let children = locked(&view.map).children(place, &load);
            let children = match children {
                Ok(children) => children,
                Err(Error::Io(error)) => return Err(error.into()),
                Err(_) => {
                    checked.damaged_nodes.push(entry * ALIGN);
                    continue;
                }
            };
            match place.0 {
                0 => leaves.push(place.1),
                _ => open.extend(children),
            }
        }
        leaves.sort_unstable();
        Ok(leaves)
    }
}
