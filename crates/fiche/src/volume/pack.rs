//! Blocks that were written one by one are put together into units, and compressed harder, when nobody asks for anything.

use std::collections::BTreeSet;

use crate::codec::Codec;
use crate::error::Result;
use crate::volume::clean::Victim;
use crate::volume::format::{BLOCK, Kind};
use crate::volume::log::Log;
use crate::volume::read::Place;
use crate::volume::unit::{Draft, Packing, draft};
use crate::volume::{Volume, Work};

/// Level of Zstandard, LZ4 and zlib: nobody waits for it.
const HARD: i32 = 9;

/// Blocks that lay in several pieces, as one.
pub(super) struct Packed {
    first: u64,
    /// Where they were when they were read.
    places: Vec<Place>,
    drafts: Vec<Draft>,
}

impl Volume {
    /// Packs the units that have blocks of a segment that is being cleaned, as far as its next fragments of so many bytes go: each with the blocks
    /// beside it, wherever those are, if they lie in several pieces. Nobody has to wait for it.
    pub(super) fn pack(&self, victim: &Victim, most: usize) -> Vec<Packed> {
        let unit = self.packing.unit as u64;
        if unit < 2 || self.packing.codec == Codec::Copy {
            return Vec::new();
        }
        let (mut groups, mut len) = (BTreeSet::new(), 0);
        for head in victim.next_fragments() {
            if len >= most {
                break;
            }
            len += head.stored_len();
            if matches!(head.kind, Kind::Unit(_)) {
                let last = head.block + u64::from(head.count) - 1;
                groups.extend(head.block / unit..=last / unit);
            }
        }
        let mut packed = Vec::new();
        self.with_work(|work| {
            for group in groups {
                // What cannot be read stays as it is.
                let _ = self.pack_group(group, victim.segment(), work, &mut packed);
            }
        });
        packed
    }

    fn pack_group(
        &self,
        group: u64,
        segment: u32,
        work: &mut Work,
        packed: &mut Vec<Packed>,
    ) -> Result<()> {
        let unit = self.packing.unit as u64;
        let mut first = group * unit;
        let count = unit.min(self.blocks().saturating_sub(first)) as usize;
        let places = self.places(&self.view, first, count)?;
        let hard = Packing { level: self.packing.level.max(HARD), threads: 1, ..self.packing };
        for run in places.chunk_by(|a, b| a.is_zeros() == b.is_zeros()) {
            let start = first;
            first += run.len() as u64;
            let pieces = run.chunk_by(|a, b| a == b).count();
            let is_here = run.iter().any(|place| place.segment(self.bits) == segment);
            if run[0].is_zeros() || !is_here || pieces < 2 {
                continue;
            }
            let mut bytes = vec![0; run.len() * BLOCK];
            self.read(&self.view, start * BLOCK as u64, &mut bytes, work)?;
            let drafts = draft(start, &bytes, &hard, &mut work.scratch, &mut work.stored)?;
            let stored: usize = drafts.iter().map(|draft| draft.bytes.len()).sum();
            // What does not shrink is as good where it is.
            if stored < bytes.len() / 8 * 7 {
                packed.push(Packed { first: start, places: run.to_vec(), drafts });
            }
        }
        Ok(())
    }

    /// Appends what was packed, but for what was written again meanwhile, while more than so many segments are free.
    pub(super) fn put_packed(&self, log: &mut Log, packed: Vec<Packed>, least: u32) -> Result<()> {
        for Packed { first, places, drafts } in packed {
            if log.space.available() <= least {
                break;
            }
            if self.places(&self.view, first, places.len()).ok() != Some(places) {
                continue;
            }
            if self.map().dirty >= self.most_dirty() {
                self.checkpoint(log)?;
            }
            for draft in drafts {
                self.put_moved(log, draft)?;
            }
        }
        Ok(())
    }
}
