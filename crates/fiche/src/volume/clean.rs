//! The cleaner: what is still needed of a segment is appended again.

use std::sync::MutexGuard;

use crate::error::Result;
use crate::volume::format::{
    ALIGN, BLOCK, EXTENT_HEAD, ExtentHead, FRAGMENT_HEAD, FragmentHead, Kind, Stream,
};
use crate::volume::log::Log;
use crate::volume::snapshot::Kept;
use crate::volume::unit::{Draft, Part, draft, unpack};
use crate::volume::{Volume, locked};

/// The extents of a segment whose heads are right, from its start on: where the fragments of each lie in `bytes`, and how many.
pub(super) fn extents<'a>(
    bytes: &'a [u8],
    tag: u32,
    start: u64,
) -> impl Iterator<Item = (ExtentHead, usize)> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head =
            ExtentHead::parse(bytes.get(at..at + EXTENT_HEAD)?, tag, start + at as u64).ok()?;
        let from = at + EXTENT_HEAD;
        let end = from + head.len as usize;
        if head.fragments == 0 || end > bytes.len() {
            return None;
        }
        at = (head.end(start + at as u64) - start) as usize;
        Some((head, from))
    })
}

/// Where what is moved goes: to the cold stream, unless somebody else is writing there.
fn moves_to(log: &Log) -> Stream {
    if log.is_claimed { Stream::Hot } else { Stream::Cold }
}

/// A segment that is being cleaned: what it holds was read, and some of it may have been moved by now.
pub(super) struct Victim {
    segment: u32,
    /// The turn of the log that led there: if another did since, it holds something else.
    turn: u64,
    /// What of it was needed at first, of 2^20.
    part: u64,
    /// Whether its blocks are as requests wrote them.
    is_raw: bool,
    /// Whether they are moved as they are, and are still to be packed where they lie then.
    moves_raw: bool,
    bytes: Vec<u8>,
    /// Where they lie in it; those from `next` on are still to be looked at, those before `end` now.
    fragments: Vec<(usize, FragmentHead)>,
    next: usize,
    end: usize,
}

impl Victim {
    pub fn segment(&self) -> u32 {
        self.segment
    }

    pub fn part(&self) -> u64 {
        self.part
    }

    pub fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// Whether nothing of it was looked at yet.
    pub fn is_untouched(&self) -> bool {
        self.next == 0
    }

    /// From now on only the next ones are looked at, until these are so many bytes; what is moved of them was packed before, or not.
    pub fn look_at(&mut self, most: usize, is_packed: bool) {
        self.moves_raw = self.is_raw && !is_packed;
        let (mut end, mut len) = (self.next, 0usize);
        while end < self.fragments.len() && len < most {
            len += self.fragments[end].1.stored_len();
            end += 1;
        }
        self.end = end;
    }

    /// Those that are to be looked at now.
    pub fn now(&self) -> impl Iterator<Item = &FragmentHead> {
        self.fragments[self.next..self.end].iter().map(|(_, head)| head)
    }
}

impl Volume {
    /// Appends what is needed of a segment. Once the next superblock is there it is free.
    pub(super) fn clean(&self, log: &mut Log, segment: u32) -> Result<()> {
        let victim = self.read_victim(self.choose(log, segment))?;
        let Some(mut victim) = victim else {
            log.space.set_stuck(segment);
            return Ok(());
        };
        self.move_some(log, &mut victim, usize::MAX).map(|_| ())
    }

    /// Marks a segment as one that is being cleaned, so that nobody else does it.
    pub(super) fn choose(&self, log: &mut Log, segment: u32) -> Victim {
        log.space.set_chosen(segment);
        let (turn, part) = (self.map().turn_of(segment), log.space.part(segment));
        let is_raw = log.space.is_raw(segment);
        Victim {
            segment,
            turn,
            part,
            is_raw,
            moves_raw: is_raw,
            bytes: Vec::new(),
            fragments: Vec::new(),
            next: 0,
            end: 0,
        }
    }

    /// Reads it, for which nobody else has to wait. `None` where it cannot be read: what is there may still be read piece by piece,
    /// and others can be cleaned.
    pub(super) fn read_victim(&self, mut victim: Victim) -> Result<Option<Victim>> {
        let start = u64::from(victim.segment) << self.bits;
        let have = self.device.len()?.saturating_sub(start).min(1 << self.bits);
        victim.bytes.resize(have as usize, 0);
        if self.device.read_at(start, &mut victim.bytes).is_err() {
            return Ok(None);
        }
        for (extent, mut at) in extents(&victim.bytes, self.packing.tag, start) {
            for _ in 0..extent.fragments {
                let fragment = victim.bytes.get(at..);
                let head = fragment.and_then(|fragment| FragmentHead::parse(fragment, 0).ok());
                let Some(head) = head else { break };
                victim.fragments.push((at, head));
                at += head.stored_len();
            }
        }
        victim.end = victim.fragments.len();
        Ok(Some(victim))
    }

    /// Appends what is needed of it, until that is so many bytes. Whether that was all: then the segment is free once the next
    /// superblock is there.
    pub(super) fn move_some(
        &self,
        log: &mut Log,
        victim: &mut Victim,
        most: usize,
    ) -> Result<bool> {
        let Victim { segment, turn, ref bytes, ref fragments, .. } = *victim;
        let is_other = self.map().turn_of(segment) != turn;
        if is_other || log.space.is_dead(segment) || log.space.is_held(segment) {
            // All of it was moved, others replaced it meanwhile, or a snapshot keeps it.
            self.counts.cleaned.add(u64::from(victim.next > 0 && victim.next == fragments.len()));
            log.space.set_done(segment, false);
            return Ok(true);
        }
        self.begin_cold(log)?;
        let start = u64::from(segment) << self.bits;
        let (mut moved, before) = (Draft::default(), self.counts.moved());
        for (at, head) in &fragments[victim.next..victim.end] {
            if (self.counts.moved() - before) as usize + moved.bytes.len() >= most {
                break;
            }
            let entry = (start + *at as u64) / ALIGN;
            self.rescue(log, head, &bytes[*at..], entry, &mut moved)?;
            victim.next += 1;
        }
        if !moved.parts.is_empty() {
            self.put_moved(log, moved)?;
            log.space.set_moved_raw(victim.moves_raw);
        }
        let is_done = victim.next == fragments.len();
        if is_done {
            // Nodes and pages go with the next superblock.
            log.space.set_done(segment, true);
            self.counts.cleaned.add(1);
        }
        Ok(is_done)
    }

    /// Makes sure that there is somewhere to move to.
    pub(super) fn begin_cold(&self, log: &mut Log) -> Result<()> {
        match log.space.heads[Stream::Cold as usize] {
            0 => self.begin(log, Stream::Cold).and_then(|()| self.checkpoint(log)),
            _ => Ok(()),
        }
    }

    pub(super) fn put_moved(&self, log: &mut Log, moved: Draft) -> Result<()> {
        self.counts.moved_len.add(moved.bytes.len() as u64);
        self.put(log, moves_to(log), moved)
    }

    /// Moves the next fragments of a segment that are needed whole, up to an extent of them, and writes them while nobody has to wait. How many bytes; none where what comes
    /// next is needed in part, is something else than blocks, or has no room where the cold stream goes on: that is for
    /// [`move_some`](Volume::move_some).
    pub(super) fn move_beside<'a>(
        &'a self,
        log: MutexGuard<'a, Log>,
        victim: &mut Victim,
    ) -> Result<(MutexGuard<'a, Log>, u64)> {
        drop(log);
        let start = u64::from(victim.segment) << self.bits;
        let (mut moved, mut entries, mut next) = (Draft::default(), Vec::new(), victim.next);
        for &(at, head) in &victim.fragments[victim.next..victim.end] {
            let entry = (start + at as u64) / ALIGN;
            let is_full = moved.is_full_for(head.len as usize, self.packing.extent);
            let live = match head.kind {
                Kind::Zeros => 0,
                Kind::Unit(_) | Kind::Pattern if !is_full => self.count_live(&head, entry)?,
                _ => break,
            };
            if live == head.count && head.verify(self.packing.tag, &victim.bytes[at..]) {
                moved.push_whole(&head, &victim.bytes[at..][..head.stored_len()]);
                entries.push(entry);
            } else if live > 0 {
                break;
            }
            next += 1;
        }
        let mut log = locked(&self.log);
        if moved.parts.is_empty() {
            victim.next = next;
            return Ok((log, 0));
        }
        let Some(pos) = self.claim(&mut log, &moved) else { return Ok((log, 0)) };
        drop(log);
        let body = &moved.bytes[EXTENT_HEAD..];
        let written = self.device.write_at(pos + EXTENT_HEAD as u64, body);
        log = locked(&self.log);
        log.is_claimed = false;
        written.map_err(|error| self.poison(error))?;
        self.check_poison()?;
        debug_assert_eq!(log.space.heads[Stream::Cold as usize], pos);
        if self.map().dirty >= self.most_dirty() {
            self.checkpoint(&mut log)?;
        }
        // Others may have replaced some of it meanwhile, or a snapshot keeps it.
        let is_other = self.map().turn_of(victim.segment) != victim.turn;
        if is_other || log.space.is_held(victim.segment) || !self.is_at(&moved.parts, &entries)? {
            return Ok((log, 0));
        }
        let len = moved.bytes.len() as u64;
        self.counts.moved_len.add(len);
        self.put_claimed(&mut log, moved)?;
        log.space.set_moved_raw(victim.moves_raw);
        victim.next = next;
        Ok((log, len))
    }

    /// How many blocks of a fragment are where this entry leads.
    fn count_live(&self, head: &FragmentHead, entry: u64) -> Result<u32> {
        let (load, mut map, mut live) = (self.load(), self.map(), 0);
        // The device may have become shorter than it reaches.
        let end = (head.block + u64::from(head.count)).min(map.blocks());
        for block in head.block..end {
            live += u32::from(map.get(block, &load)? == entry);
        }
        Ok(live)
    }

    /// Whether all blocks of these parts are where the entry of each leads.
    fn is_at(&self, parts: &[Part], entries: &[u64]) -> Result<bool> {
        let (load, mut map) = (self.load(), self.map());
        for (part, &entry) in parts.iter().zip(entries) {
            let end = part.block + u64::from(part.count);
            if end > map.blocks() {
                return Ok(false);
            }
            for block in part.block..end {
                if map.get(block, &load)? != entry {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Adds what is needed of a fragment to what is moved.
    fn rescue(
        &self,
        log: &mut Log,
        head: &FragmentHead,
        fragment: &[u8],
        entry: u64,
        moved: &mut Draft,
    ) -> Result<()> {
        let load = self.load();
        let tag = self.packing.tag;
        match head.kind {
            Kind::Zeros => {}
            Kind::Node => {
                let place = ((head.count.saturating_sub(1)).min(255) as u8, head.block);
                let mut map = self.map();
                if map.is_place(place) && map.stored(place, &load)? == entry {
                    map.touch(place, &load)?;
                }
            }
            Kind::UsagePage => {
                if log.pages.get(head.block as usize) == Some(&entry) {
                    log.space.set_changed(head.block as u32);
                }
            }
            // Each superblock has its own.
            Kind::UsageRoot | Kind::SnapshotRoot | Kind::DictionaryRoot | Kind::Clones => {}
            Kind::Dictionary => {
                let copies = log.copies.get(head.block as usize);
                let copy = copies.and_then(|copies| copies.get(head.count as usize - 1));
                if copy == Some(&entry) && head.verify(tag, fragment) {
                    self.move_on(log, moved, head.len as usize)?;
                    moved.push_whole(head, &fragment[..head.stored_len()]);
                }
            }
            Kind::Snapshot => {
                let kept = log.snapshots.iter_mut().find(|kept| kept.entry == entry);
                kept.into_iter().for_each(Kept::touch);
            }
            Kind::Unit(_) | Kind::Pattern => {
                // The device may have become shorter than it reaches.
                let mut live = Vec::new();
                let mut map = self.map();
                let end = (head.block + u64::from(head.count)).min(map.blocks());
                for block in head.block..end {
                    if map.get(block, &load)? == entry {
                        live.push(block);
                    }
                }
                drop(map);
                if live.is_empty() || !head.verify(tag, fragment) {
                    return Ok(());
                }
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                if live.len() == head.count as usize {
                    self.move_on(log, moved, stored.len())?;
                    moved.push_whole(head, &fragment[..head.stored_len()]);
                    return Ok(());
                }
                let mut whole = vec![0; head.count as usize * BLOCK];
                let (mut room, scratch) = (Vec::new(), &mut log.scratch);
                if unpack(head, stored, 0, &mut whole, &mut room, &self.dictionaries, scratch)
                    .is_err()
                {
                    return Ok(());
                }
                let packing = self.packing(self.packing.level);
                for run in live.chunk_by(|a, b| a + 1 == *b) {
                    let from = (run[0] - head.block) as usize * BLOCK;
                    let run_bytes = &whole[from..from + run.len() * BLOCK];
                    let drafts = draft(run[0], run_bytes, &packing, &mut log.scratch, &mut room)?;
                    for draft in drafts {
                        self.move_on(log, moved, usize::MAX / 2)?;
                        *moved = draft;
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends what is to be moved if so many bytes more are too many.
    fn move_on(&self, log: &mut Log, moved: &mut Draft, len: usize) -> Result<()> {
        // No room is left at the end of a segment where there is some for a fragment.
        let segment = 1usize << self.bits;
        let left = segment - log.space.heads[moves_to(log) as usize] as usize % segment;
        let limit = self.packing.extent.min(left.saturating_sub(2 * EXTENT_HEAD));
        let is_full = moved.is_full_for(len, limit);
        // Small fragments of a segment may be of very many nodes.
        if !is_full && moved.parts.len() * 2 < self.most_dirty() {
            return Ok(());
        }
        if self.map().dirty >= self.most_dirty() {
            self.checkpoint(log)?;
        }
        self.put_moved(log, std::mem::take(moved))
    }
}
