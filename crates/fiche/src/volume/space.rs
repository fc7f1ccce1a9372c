//! Which segments are in use, and where the log goes on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::error::Result;
use crate::volume::format::{ALIGN, BLOCK, ENTRY, FAN, Stream};
use crate::wire::{Put, Take, load_low, low_bytes};

/// What is in a segment: blocks and nodes that were written to it, and those to which the map still leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub total: u32,
    pub live: u32,
    /// The how many-eth turn of the log led there, since it was opened; 0 for one before. It tells how old what it holds is.
    turn: u64,
    /// Whether nodes or usage pages were written to it, since that turn.
    has_meta: bool,
    /// Whether it holds blocks as requests wrote them: in a hurry.
    is_raw: bool,
}

/// Segments that wait for a superblock to be durable.
pub(super) struct Gone {
    pending: Vec<u32>,
    cleaned: BTreeSet<u32>,
    base: Base,
}

/// Where the log that is to be read begins: what was entered later, and the heads of then, is that log.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    turn: u64,
    heads: [u64; 2],
}

/// A segment that needs no superblock to be free, and the turn that led there.
pub(super) type Early = (u32, u64);

/// The segments of a volume.
pub(super) struct Space {
    pub bits: u8,
    most: u32,
    used: Vec<Used>,
    /// What is in a segment beside that, and not counted in the usage pages: these themselves.
    pins: HashMap<u32, u32>,
    /// How many snapshots need it, of each segment up to the last that any does.
    holds: Vec<u32>,
    /// Usage pages that differ from what is stored.
    changed: BTreeSet<u32>,
    /// May be written.
    free: Vec<u32>,
    /// May be written as well, but for them there may be no room on the device.
    holes: Vec<u32>,
    /// Those of them whose room on the device was not given back.
    to_punch: BTreeSet<u32>,
    /// Whether there was room on the device when it was asked for last.
    is_growing: bool,
    /// Hold nothing any more, but the last superblock still needs them.
    pending: Vec<u32>,
    /// Are being cleaned.
    chosen: BTreeSet<u32>,
    /// Were cleaned since.
    cleaned: BTreeSet<u32>,
    /// How many wait for a superblock that is being written.
    pub on_the_way: u32,
    /// Could not be cleaned.
    stuck: BTreeSet<u32>,
    /// Blocks and nodes that lead somewhere else by now, and how many did when cleaning won nothing any more.
    removed: u64,
    gave_up: Option<u64>,
    turn: u64,
    /// Of the last superblock that is known to be durable; `None` until there is one.
    base: Option<Base>,
    /// Where the next extent of each stream lies; 0 for nowhere.
    pub heads: [u64; 2],
}

impl Space {
    pub fn new(bits: u8, most: u32, segments: u32, heads: [u64; 2]) -> Space {
        Space {
            bits,
            most,
            used: vec![Used::default(); segments as usize],
            pins: HashMap::new(),
            holds: Vec::new(),
            changed: BTreeSet::new(),
            free: Vec::new(),
            holes: Vec::new(),
            to_punch: BTreeSet::new(),
            is_growing: true,
            pending: Vec::new(),
            chosen: BTreeSet::new(),
            cleaned: BTreeSet::new(),
            on_the_way: 0,
            stuck: BTreeSet::new(),
            removed: 0,
            gave_up: None,
            turn: 0,
            base: None,
            heads,
        }
    }

    pub fn segments(&self) -> u32 {
        self.used.len() as u32
    }

    pub fn segment(&self, entry: u64) -> u32 {
        ((entry * ALIGN) >> self.bits) as u32
    }

    pub fn used(&self, segment: u32) -> Used {
        self.used.get(segment as usize).copied().unwrap_or_default()
    }

    /// Whether a segment holds nothing that is needed: of the volume, of itself, or of a snapshot.
    pub fn is_dead(&self, segment: u32) -> bool {
        self.used(segment).live == 0 && !self.pins.contains_key(&segment) && !self.is_held(segment)
    }

    /// Whether a snapshot needs it.
    pub fn is_held(&self, segment: u32) -> bool {
        self.holds.get(segment as usize).is_some_and(|&holds| holds > 0)
    }

    /// The map is another one, that leads to this many blocks and nodes in each segment.
    pub fn set_live(&mut self, live: &HashMap<u32, u32>) {
        for segment in 1..self.segments() {
            let now = live.get(&segment).copied().unwrap_or(0);
            if self.used(segment).live == now {
                continue;
            }
            if let Some(used) = self.change(segment) {
                (used.live, used.total) = (now, used.total.max(now));
            }
            self.retire(segment);
        }
        self.gave_up = None;
    }

    /// How many segments snapshots need.
    pub fn held_len(&self) -> u32 {
        self.holds.iter().filter(|&&holds| holds > 0).count() as u32
    }

    /// The segments to which the map leads.
    pub fn needed(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for segment in (1..self.segments()).filter(|&segment| self.used(segment).live > 0) {
            match runs.last_mut() {
                Some(run) if run.end == segment => run.end += 1,
                _ => runs.push(segment..segment + 1),
            }
        }
        runs
    }

    /// Snapshots need these. Costs as much as there are segments, however many runs there are.
    pub fn hold(&mut self, runs: impl Iterator<Item = Range<u32>>) {
        let mut changes = vec![0i64; self.used.len() + 1];
        for Range { start, end } in runs {
            changes[(start as usize).min(self.used.len())] += 1;
            changes[(end as usize).min(self.used.len())] -= 1;
        }
        self.holds.resize(self.used.len().max(self.holds.len()), 0);
        let mut more = 0;
        for (holds, change) in self.holds.iter_mut().zip(changes) {
            more += change;
            *holds += more as u32;
        }
    }

    /// A snapshot that needed these is not there any more.
    pub fn let_go(&mut self, runs: &[Range<u32>]) {
        let free: HashSet<u32> = self.free.iter().chain(&self.holes).copied().collect();
        for segment in runs.iter().cloned().flatten() {
            if let Some(holds) = self.holds.get_mut(segment as usize) {
                *holds = holds.saturating_sub(1);
            }
            if !self.is_held(segment) && !free.contains(&segment) {
                // It may be cleaned now.
                self.stuck.remove(&segment);
                self.retire(segment);
            }
        }
        self.gave_up = None;
    }

    /// Whether the log goes on in a segment.
    pub fn is_head(&self, segment: u32) -> bool {
        self.heads.iter().any(|head| head >> self.bits == u64::from(segment))
    }

    fn change(&mut self, segment: u32) -> Option<&mut Used> {
        self.changed.insert(segment / FAN as u32);
        self.used.get_mut(segment as usize)
    }

    /// How much was written to a segment, where that is known otherwise.
    pub fn set_total(&mut self, segment: u32, total: u32) {
        if let Some(used) = self.change(segment) {
            used.total = total.max(used.live);
        }
    }

    /// Blocks or nodes were written to where this entry leads.
    pub fn add(&mut self, entry: u64, count: u32) {
        let segment = self.segment(entry);
        if let Some(used) = self.change(segment) {
            used.total = used.total.saturating_add(count);
            used.live = used.live.saturating_add(count);
        }
    }

    /// A block or node that was where this entry leads is somewhere else now.
    pub fn remove(&mut self, entry: u64) {
        if entry == 0 {
            return;
        }
        let segment = self.segment(entry);
        let Some(used) = self.change(segment) else { return };
        // What was counted may be anything in a volume that somebody made up.
        used.live = used.live.saturating_sub(1);
        self.removed += 1;
        self.retire(segment);
    }

    pub fn pin(&mut self, entry: u64) {
        *self.pins.entry(self.segment(entry)).or_default() += 1;
    }

    pub fn unpin(&mut self, entry: u64) {
        if entry == 0 {
            return;
        }
        let segment = self.segment(entry);
        if let Some(count) = self.pins.get_mut(&segment) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&segment);
            }
        }
        self.retire(segment);
    }

    /// A segment that holds nothing waits for the next superblock.
    fn retire(&mut self, segment: u32) {
        if segment > 0 && self.is_dead(segment) && !self.is_head(segment) {
            self.pending.push(segment);
        }
    }

    /// Segments that the log may go on in.
    pub fn available(&self) -> u32 {
        let others = if self.is_growing { self.unused() } else { 0 };
        self.free_len() + others
    }

    /// Those of them that have their room on the device.
    pub fn free_len(&self) -> u32 {
        self.free.len() as u32
    }

    /// Segments that may be used and have no room on the device yet.
    fn unused(&self) -> u32 {
        self.holes.len() as u32 + self.most.saturating_sub(self.segments())
    }

    /// The next free segment for the log.
    pub fn next(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub fn may_grow(&self) -> bool {
        self.is_growing && self.unused() > 0
    }

    pub fn set_growing(&mut self, is_growing: bool) {
        self.is_growing = is_growing;
    }

    /// A segment for which room is to be made on the device: one that is there already first.
    pub fn without_room(&self) -> Option<u32> {
        let new = (self.segments() < self.most).then(|| self.segments());
        self.holes.last().copied().or(new)
    }

    /// It was made.
    pub fn has_room(&mut self, segment: u32) {
        if self.holes.last() == Some(&segment) {
            self.holes.pop();
        }
        self.to_punch.remove(&segment);
        let segments = self.used.len().max(segment as usize + 1);
        self.used.resize(segments, Used::default());
        self.free.push(segment);
    }

    /// The room of all free segments but so many is to be given back. One whose is.
    pub fn give_back(&mut self, kept: u32) -> Option<u32> {
        if self.free_len() > kept {
            let given = self.free.split_off(kept as usize);
            self.to_punch.extend(&given);
            // The first are taken first.
            self.holes.extend(given);
            self.holes.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.to_punch.pop_last()
    }

    pub fn most(&self) -> u32 {
        self.most
    }

    pub fn set_most(&mut self, most: u32) {
        self.most = most;
    }

    /// A stream of the log goes on at the start of a segment.
    pub fn enter(&mut self, stream: Stream, segment: u32) {
        let left = (self.heads[stream as usize] >> self.bits) as u32;
        if segment as usize >= self.used.len() {
            self.used.resize(segment as usize + 1, Used::default());
        }
        self.free.retain(|free| *free != segment);
        self.holes.retain(|hole| *hole != segment);
        self.heads[stream as usize] = u64::from(segment) << self.bits;
        self.turn += 1;
        let turn = self.turn;
        if let Some(used) = self.change(segment) {
            *used = Used { turn, is_raw: stream == Stream::Hot, ..Used::default() };
        }
        for set in [&mut self.stuck, &mut self.chosen, &mut self.cleaned, &mut self.to_punch] {
            set.remove(&segment);
        }
        self.retire(left);
    }

    /// Segments that the next superblock, once it is durable, does not need any more.
    pub fn take_gone(&mut self) -> Gone {
        self.on_the_way = self.soon();
        Gone {
            pending: std::mem::take(&mut self.pending),
            cleaned: std::mem::take(&mut self.cleaned),
            base: Base { turn: self.turn, heads: self.heads },
        }
    }

    /// Segments that hold nothing any more and are free as soon as the log is durable up to here: an opening puts all that replaced what they held into the map
    /// again, and needs nothing of them. Those that it reads need the next superblock: the log behind the last one,
    /// and nodes.
    pub fn early(&self) -> Vec<Early> {
        let Some(base) = self.base else { return Vec::new() };
        let is_early = |&&segment: &&u32| {
            let Used { turn, has_meta, .. } = self.used(segment);
            let was_head = base.heads.iter().any(|head| head >> self.bits == u64::from(segment));
            turn > 0 && turn <= base.turn && !has_meta && !was_head && self.is_dead(segment)
        };
        let early = self.pending.iter().filter(is_early);
        early.map(|&segment| (segment, self.used(segment).turn)).collect()
    }

    /// The log is durable: it may go on in these.
    pub fn release_early(&mut self, early: &[Early]) {
        for &(segment, turn) in early {
            // Somebody else may have let go of it meanwhile, so that it waits again, for something else.
            let waits = self.pending.contains(&segment) && self.used(segment).turn == turn;
            if waits {
                self.pending.retain(|&other| other != segment);
                self.cleaned.remove(&segment);
                self.set_free(segment);
            }
        }
    }

    fn set_free(&mut self, segment: u32) {
        if self.is_dead(segment) && !self.is_head(segment) && !self.free.contains(&segment) {
            self.free.push(segment);
        }
    }

    /// Nodes or usage pages were written to where this entry leads.
    pub fn set_meta(&mut self, entry: u64) {
        let segment = self.segment(entry) as usize;
        if let Some(used) = self.used.get_mut(segment) {
            used.has_meta = true;
        }
    }

    /// How many segments will be free once the map is stored.
    pub fn soon(&self) -> u32 {
        let cleaned = self.cleaned.iter().filter(|segment| !self.pending.contains(segment));
        (self.pending.len() + cleaned.count()) as u32
    }

    /// Lets the log go on in segments of which nothing is needed.
    pub fn release(&mut self, gone: Gone) {
        self.on_the_way = 0;
        self.base = Some(gone.base);
        // What is left in those that were cleaned is damaged: it is neither to be overwritten nor to be tried again and again.
        for segment in gone.cleaned {
            if !self.is_dead(segment) {
                self.stuck.insert(segment);
            }
        }
        gone.pending.into_iter().for_each(|segment| self.set_free(segment));
    }

    /// All segments but the first that hold nothing, when a volume was opened.
    pub fn find_free(&mut self) {
        let is_free = |segment: &u32| self.is_dead(*segment) && !self.is_head(*segment);
        // The first are taken first. Nobody knows whether they have room.
        self.holes = (1..self.segments()).rev().filter(is_free).collect();
        self.to_punch = self.holes.iter().copied().collect();
    }

    /// What part of what was written to a segment is still needed, of 2^20.
    pub fn part(&self, segment: u32) -> u64 {
        let Used { total, live, .. } = self.used(segment);
        (u64::from(live) << 20) / u64::from(total.max(1))
    }

    /// A segment of which less than so many 32nds are still needed, the best to clean: with the smallest part, or the one where most is won for
    /// the longest time (cost and benefit, as Rosenblum and Ousterhout have it): what is left in an old one will be
    /// needed for long, and a young one will have less of it soon.
    pub fn victim(&self, below: u64, by_age: bool) -> Option<u32> {
        let worth = |segment: &u32| {
            let part = self.part(*segment);
            let won = (1 << 20) - part;
            let age = self.turn - self.used(*segment).turn + 1;
            match by_age {
                // Of 2^20, and at most 2^32 segments are older: no more than 64 bits.
                true => ((won << 20) / ((1 << 20) + part)) * age.min(1 << 32),
                false => won,
            }
        };
        let is_candidate = |segment: &u32| {
            self.may_clean(*segment)
                // Where hardly anything is won, cleaning would go round in circles.
                && self.part(*segment) < (below << 20) / 32
        };
        // The first of several.
        (1..self.segments()).rev().filter(is_candidate).max_by_key(worth)
    }

    fn may_clean(&self, segment: u32) -> bool {
        !self.is_dead(segment)
            && !self.is_head(segment)
            && !self.is_held(segment)
            && ![&self.stuck, &self.cleaned, &self.chosen].iter().any(|set| set.contains(&segment))
    }

    /// The oldest segment whose blocks are as requests wrote them, however much of it is needed.
    pub fn raw(&self) -> Option<u32> {
        self.all_raw().min_by_key(|&segment| self.used(segment).turn)
    }

    fn all_raw(&self) -> impl Iterator<Item = u32> {
        (1..self.segments()).filter(|&segment| self.is_raw(segment) && self.may_clean(segment))
    }

    /// All that is stored may be packed better from now on.
    pub fn set_all_raw(&mut self) {
        for segment in 1..self.segments() {
            if self.used(segment).live > 0 {
                self.set_raw(segment, true);
            }
        }
    }

    fn set_raw(&mut self, segment: u32, is_raw: bool) {
        if self.is_raw(segment) != is_raw
            && let Some(used) = self.change(segment)
        {
            used.is_raw = is_raw;
        }
    }

    /// Those that hold something to which the map leads.
    pub fn live_segments(&self) -> Vec<u32> {
        let is_live =
            |&segment: &u32| self.used(segment).live > 0 && !self.stuck.contains(&segment);
        (1..self.segments()).filter(is_live).collect()
    }

    pub fn is_raw(&self, segment: u32) -> bool {
        self.used(segment).is_raw
    }

    /// How many segments are to be packed again, when there is time.
    pub fn raw_len(&self) -> u32 {
        self.all_raw().count() as u32
    }

    /// What was moved to the cold stream just now may be packed better, or not.
    pub fn set_moved_raw(&mut self, is_raw: bool) {
        let segment = (self.heads[Stream::Cold as usize] >> self.bits) as u32;
        if is_raw && segment > 0 {
            self.set_raw(segment, true);
        }
    }

    /// Nothing would be won by packing what is in it.
    pub fn set_packed(&mut self, segment: u32) {
        self.chosen.remove(&segment);
        self.set_raw(segment, false);
    }

    /// Cleaning wins nothing.
    pub fn give_up(&mut self) {
        self.gave_up = Some(self.removed);
    }

    /// Whether it won nothing when it was tried, and little was given back since: an eighth of what a segment has.
    pub fn is_full(&self) -> bool {
        let little = ((1 << self.bits) / BLOCK as u64 / 8).max(1);
        self.gave_up.is_some_and(|then| self.removed - then < little)
    }

    pub fn set_chosen(&mut self, segment: u32) {
        self.chosen.insert(segment);
    }

    /// It is not being cleaned any more: it was, or all it held was replaced.
    pub fn set_done(&mut self, segment: u32, was_cleaned: bool) {
        if self.chosen.remove(&segment) && was_cleaned {
            self.cleaned.insert(segment);
        }
    }

    pub fn set_stuck(&mut self, segment: u32) {
        self.chosen.remove(&segment);
        self.stuck.insert(segment);
    }

    /// Usage pages that are to be stored.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    pub fn set_changed(&mut self, page: u32) {
        self.changed.insert(page);
    }

    /// What is stored of a page; `None` for one of nothing.
    pub fn page(&self, page: u32) -> Option<Vec<u8>> {
        let start = page as usize * FAN;
        let mut bytes = Vec::with_capacity(FAN * 3);
        let mut is_nothing = true;
        for segment in start..start + FAN {
            let Used { total, live, .. } = self.used(segment as u32);
            is_nothing &= total == 0;
            bytes.put_varint(total.into());
            bytes.put_varint(live.into());
        }
        let mut is_raw = [0; FAN / 8];
        for at in (0..FAN).filter(|at| self.is_raw((start + at) as u32)) {
            is_raw[at / 8] |= 1 << (at % 8);
        }
        bytes.put(&is_raw);
        (!is_nothing).then_some(bytes)
    }

    pub fn parse_page(&mut self, page: u32, bytes: &[u8], pos: u64) -> Result<()> {
        let mut take = Take::new(bytes, "usage page", pos);
        let start = page as usize * FAN;
        for segment in start..start + FAN {
            let (total, live) = (take.count(u32::MAX.into())?, take.count(u32::MAX.into())?);
            let used = Used { total: total as u32, live: live as u32, ..Used::default() };
            match self.used.get_mut(segment) {
                Some(slot) if live <= total => *slot = used,
                None if total == 0 && live == 0 => {}
                _ => return Err(take.corrupt()),
            }
        }
        // In a page of before that was told anything may be.
        let is_raw = match take.remaining() {
            0 => &[0xFF; FAN / 8],
            _ => take.bytes(FAN / 8)?,
        };
        for (at, used) in self.used.iter_mut().skip(start).take(FAN).enumerate() {
            used.is_raw = is_raw[at / 8] >> (at % 8) & 1 == 1;
        }
        take.end()
    }
}

/// The stored bytes of the usage root.
pub(super) fn put_root(pages: &[u64]) -> Vec<u8> {
    pages.iter().flat_map(|&entry| low_bytes(entry)[..ENTRY].to_vec()).collect()
}

pub(super) fn parse_root(bytes: &[u8]) -> Option<Vec<u64>> {
    bytes.len().is_multiple_of(ENTRY).then(|| bytes.chunks(ENTRY).map(load_low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_which_segments_are_to_be_packed_and_one_of_before_that_all_are() {
        let new = || Space::new(16, 40, 40, [0; 2]);
        let mut space = new();
        for segment in 1..40u32 {
            space.enter(if segment % 3 == 0 { Stream::Hot } else { Stream::Cold }, segment);
            space.add((u64::from(segment) << 16) / ALIGN, segment);
        }
        space.enter(Stream::Hot, 2);
        space.set_packed(9);
        let page = space.page(0).unwrap();
        let raw = |space: &Space| (1..40).filter(|&at| space.is_raw(at)).collect::<Vec<_>>();
        assert_eq!(raw(&space), [2, 3, 6, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39]);
        let mut again = new();
        again.parse_page(0, &page, 0).unwrap();
        assert_eq!(raw(&again), raw(&space));
        let before = &page[..page.len() - FAN / 8];
        again.parse_page(0, before, 0).unwrap();
        assert_eq!(raw(&again), (1..40).collect::<Vec<_>>());
        assert!(again.parse_page(0, &page[..page.len() - 1], 0).is_err());
        assert!(again.parse_page(0, &[&page[..], &[0]].concat(), 0).is_err());
    }
}
