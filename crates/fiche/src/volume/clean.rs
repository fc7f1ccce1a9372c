//! The cleaner: what is still needed of a segment is appended again.

use crate::error::Result;
use crate::volume::Volume;
use crate::volume::format::{
    ALIGN, BLOCK, EXTENT_HEAD, ExtentHead, FRAGMENT_HEAD, FragmentHead, Kind,
};
use crate::volume::log::Log;
use crate::volume::unit::{Draft, draft, unpack};

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
        at = end.next_multiple_of(ALIGN as usize);
        Some((head, from))
    })
}

impl Volume {
    /// Appends what is needed of a segment. Once the next superblock is there it is free.
    pub(super) fn clean(&self, log: &mut Log, victim: u32) -> Result<()> {
        let start = u64::from(victim) << log.space.bits;
        let mut bytes = vec![0; 1 << log.space.bits];
        let have = (bytes.len() as u64).min(self.device.len()?.saturating_sub(start));
        bytes.truncate(have as usize);
        if self.device.read_at(start, &mut bytes).is_err() {
            // What is there may still be read piece by piece, and others can be cleaned.
            log.space.set_stuck(victim);
            return Ok(());
        }
        let mut moved = Draft::default();
        for (extent, mut at) in extents(&bytes, self.packing.tag, start) {
            for _ in 0..extent.fragments {
                let Some(fragment) = bytes.get(at..) else { break };
                let Ok(head) = FragmentHead::parse(fragment, 0) else { break };
                let entry = (start + at as u64) / ALIGN;
                self.rescue(log, &head, fragment, entry, &mut moved)?;
                at += head.stored_len();
            }
        }
        if !moved.parts.is_empty() {
            self.put(log, moved)?;
        }
        // Nodes and pages go with the next superblock.
        log.space.set_cleaned(victim);
        Ok(())
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
            // Each superblock has one of its own.
            Kind::UsageRoot => {}
            Kind::Unit(_) | Kind::Pattern => {
                // The device may have become shorter than it reaches.
                let end = (head.block + u64::from(head.count)).min(self.blocks());
                let mut live = Vec::new();
                for block in head.block..end {
                    if self.map().get(block, &load)? == entry {
                        live.push(block);
                    }
                }
                if live.is_empty() || !head.verify(tag, fragment) {
                    return Ok(());
                }
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                if live.len() == head.count as usize {
                    self.move_on(log, moved, stored.len())?;
                    moved.push(tag, head.kind, head.block, head.count, stored);
                    return Ok(());
                }
                let mut whole = vec![0; head.count as usize * BLOCK];
                let (mut room, scratch) = (Vec::new(), &mut log.scratch);
                if unpack(head, stored, 0, &mut whole, &mut room, scratch).is_err() {
                    return Ok(());
                }
                for run in live.chunk_by(|a, b| a + 1 == *b) {
                    let from = (run[0] - head.block) as usize * BLOCK;
                    let run_bytes = &whole[from..from + run.len() * BLOCK];
                    for draft in draft(run[0], run_bytes, &self.packing, &mut log.scratch)? {
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
        // Small fragments of a segment may be of very many nodes.
        let is_full = moved.is_full_for(len, self.packing.extent);
        if !is_full && moved.parts.len() * 2 < self.most_dirty() {
            return Ok(());
        }
        if self.map().dirty >= self.most_dirty() {
            self.checkpoint(log)?;
        }
        self.put(log, std::mem::take(moved))
    }
}
