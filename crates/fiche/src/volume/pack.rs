//! Blocks are put together into larger units and compressed harder, when nobody asks for anything.

use std::collections::BTreeSet;

use crate::codec::Codec;
use crate::error::Result;
use crate::volume::clean::Victim;
use crate::volume::format::{BLOCK, FRAGMENT_HEAD, FragmentHead, Kind};
use crate::volume::log::Log;
use crate::volume::read::Place;
use crate::volume::unit::{Draft, Packing, draft};
use crate::volume::{Volume, Work, locked};

/// Level of Zstandard, LZ4 and zlib: nobody waits for it.
pub(super) const HARD: i32 = 9;

/// Blocks that lay in one piece or several, as one.
struct Group {
    first: u64,
    /// Where they were when they were read.
    places: Vec<Place>,
    drafts: Vec<Draft>,
}

/// Units of which something lies in a segment, packed again.
#[derive(Default)]
pub(super) struct Packed {
    /// Those with which something is won.
    groups: Vec<Group>,
    /// Bytes that all of them took, and as many as are saved.
    old: usize,
    saved: usize,
}

impl Packed {
    /// Whether it is worth the trouble to write all that is in the segment again.
    pub fn is_worth(&self) -> bool {
        self.saved > self.old / 16
    }
}

impl Volume {
    /// Lets [`tend`](Volume::tend) pack all that is stored once more, when nobody asks for anything: with another [`pack`](crate::volume::OpenOptions::pack) than
    /// before, say. Costs nothing by itself.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned).
    pub fn pack_again(&self) -> Result<()> {
        self.check_poison()?;
        locked(&self.log).space.set_all_raw();
        Ok(())
    }

    /// Packs the units that have blocks of a segment that is being cleaned, as far as is looked at now: each with the blocks beside it,
    /// wherever those are. Nobody has to wait for it.
    pub(super) fn pack(&self, victim: &Victim) -> Packed {
        let mut packed = Packed::default();
        if self.packing.codec == Codec::Copy {
            return packed;
        }
        let unit = self.packing.cold as u64;
        let mut groups = BTreeSet::new();
        for head in victim.now() {
            if matches!(head.kind, Kind::Unit(_)) {
                let last = head.block + u64::from(head.count) - 1;
                groups.extend(head.block / unit..=last / unit);
            }
        }
        self.with_work(|work| {
            for group in groups {
                // What cannot be read stays as it is.
                let _ = self.pack_group(group, victim, work, &mut packed);
            }
        });
        packed
    }

    fn pack_group(
        &self,
        group: u64,
        victim: &Victim,
        work: &mut Work,
        packed: &mut Packed,
    ) -> Result<()> {
        let Packing { cold, level, extent, codec, .. } = self.packing;
        // LZO has no other level.
        let hard = level.max(HARD).min(*codec.levels().end());
        let is_hard = level >= hard;
        let hard = self.packing(hard);
        let mut first = group * cold as u64;
        let count = (cold as u64).min(self.map().blocks().saturating_sub(first)) as usize;
        let places = self.places(&self.view, first, count)?;
        let extent = extent.max(cold * BLOCK + 64);
        let hard = Packing { unit: cold, extent, threads: 1, ..hard };
        // What a clone shares stays its snapshot's.
        let shared = locked(&self.log).clones.shared(first);
        let kind = |place: &Place| (place.is_zeros(), shared.has(place.entry()));
        for run in places.chunk_by(|a, b| kind(a) == kind(b)) {
            let start = first;
            first += run.len() as u64;
            let is_one = run.iter().all(|place| *place == run[0]);
            let is_here = run.iter().any(|place| place.segment(self.bits) == victim.segment());
            // Of a volume that is packed as hard as this anyway units differ by the dictionary only.
            let is_packed = is_one && (!victim.is_raw() || is_hard && hard.with.is_none());
            if run[0].is_zeros() || !is_here || is_packed {
                continue;
            }
            let mut bytes = vec![0; run.len() * BLOCK];
            self.read(&self.view, start * BLOCK as u64, &mut bytes, work)?;
            let old = self.stored_len(run)?;
            let drafts = draft(start, &bytes, &hard, &mut work.scratch, &mut work.stored)?;
            let new: usize = drafts.iter().map(|draft| draft.bytes.len()).sum();
            packed.old += old;
            // What hardly shrinks is as good where it is.
            if new + new / 16 < old {
                packed.saved += old - new;
                packed.groups.push(Group { first: start, places: run.to_vec(), drafts });
            }
        }
        Ok(())
    }

    /// Bytes that blocks take where they lie; of a unit that has others as well, their part.
    fn stored_len(&self, run: &[Place]) -> Result<usize> {
        let mut len = 0;
        for piece in run.chunk_by(|a, b| a == b) {
            let (mut head, pos) = ([0; FRAGMENT_HEAD], piece[0].pos());
            self.device.read_at(pos, &mut head)?;
            let head = FragmentHead::parse(&head, pos)?;
            len += head.stored_len() * piece.len() / (head.count as usize).max(piece.len());
        }
        Ok(len)
    }

    /// Appends what was packed, but for what was written again meanwhile, while more than so many segments are free.
    pub(super) fn put_packed(&self, log: &mut Log, packed: Packed, least: u32) -> Result<()> {
        for Group { first, places, drafts } in packed.groups {
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
