//! Room: what is kept for the map and the cleaner, how the file grows and shrinks, and how long the device is.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::volume::clones::check_region;
use crate::volume::format::{ALIGN, BLOCK, ENTRY_BITS, MAX_BLOCKS};
use crate::volume::log::Log;
use crate::volume::{Volume, locked};

/// Bytes of log between two superblocks: what the next opening reads at most.
pub(super) const BETWEEN: u64 = 256 << 20;
/// Nodes of the map that changed, at most, before they are stored: 20 MiB of memory.
pub(super) const MOST_DIRTY: usize = 4096;
/// Maps that are stored without one more segment that is free before cleaning is given up.
const ROUNDS: u32 = 8;
/// Segments that the cleaner may fill before the map is stored.
const MOVED: u32 = 4;

impl Volume {
    /// Segments that only the map, the cleaner and zeros may take.
    pub(super) fn reserve(&self, log: &Log) -> u32 {
        reserve(self.all_blocks(log), log.space.bits)
    }

    /// Blocks of the device and of all clones.
    fn all_blocks(&self, log: &Log) -> u64 {
        self.blocks() + log.clones.blocks()
    }

    /// Segments that have their room on the device before others are made there: the reserve is there however full the file system
    /// becomes.
    pub(super) fn kept(&self, log: &Log) -> u32 {
        self.reserve(log) + 4
    }

    /// Stores the map and cleans where that is due, so that one more extent has room.
    pub(super) fn make_room(&self, log: &mut Log, is_zeros: bool) -> Result<()> {
        let reserve = self.reserve(log);
        if log.since >= BETWEEN || self.map().dirty >= self.most_dirty() {
            self.checkpoint(log)?;
        }
        self.map().shrink(self.memory);
        // Two more: one for the extent, one that the next turn takes.
        self.win(log, reserve + 2)?;
        // Others may have given the file system room since it had none.
        match is_zeros || log.space.available() > reserve || self.grow(log)? {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
        }
    }

    /// Cleans until more than so many segments are available, or nothing is won by it. Several are cleaned for each map that is
    /// stored: a segment may have blocks of very many nodes.
    fn win(&self, log: &mut Log, enough: u32) -> Result<()> {
        // What the map takes is left.
        let least = self.reserve(log) - MOVED + 1;
        let (mut most, mut without) = (log.space.available(), 0);
        while log.space.available() <= enough && !log.space.is_full() {
            // Some may be free once that is durable.
            self.settle(log, true)?;
            let (available, soon) = (log.space.available(), log.space.soon());
            let victim = log.space.victim(31, false);
            if let Some(victim) =
                victim.filter(|_| available > least && available + soon <= enough + MOVED)
            {
                self.clean(log, victim)?;
                continue;
            }
            let released = self.release(log)?;
            let is_enough = log.space.available() > enough;
            if soon > 0 && !is_enough && (!released || log.space.soon() >= MOVED) {
                self.checkpoint(log)?;
            }
            without = if log.space.available() > most { 0 } else { without + 1 };
            most = most.max(log.space.available());
            if without > ROUNDS || soon == 0 {
                log.space.give_up();
            }
        }
        Ok(())
    }

    /// A segment that the log may go on in, and for which there is room on the device.
    pub(super) fn next_segment(&self, log: &mut Log) -> Result<u32> {
        let kept = self.kept(log);
        while log.space.free_len() <= kept && log.space.may_grow() {
            match self.grow(log)? {
                true => break,
                false => log.space.set_growing(false),
            }
        }
        log.space.next().ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull).into())
    }

    /// Makes room on the device for one more free segment, if there may be one and there is room.
    fn grow(&self, log: &mut Log) -> Result<bool> {
        let Some(segment) = log.space.without_room() else { return Ok(false) };
        let start = u64::from(segment) << log.space.bits;
        match self.device.allocate(start..start + (1 << log.space.bits)) {
            Ok(()) => {
                log.space.has_room(segment);
                log.space.set_growing(true);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure of the room that is kept, as far as there is any.
    pub(super) fn keep_room(&self, log: &mut Log) -> Result<()> {
        let kept = self.kept(log);
        while log.space.free_len() < kept && self.grow(log)? {}
        Ok(())
    }

    /// Gives the file system back what the volume does not need: cleans all segments of which an eighth or more is not needed any
    /// more, and punches holes where those are that hold nothing, but for a few that are kept. The file is as long as before,
    /// and takes less. Others may go on writing.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`]: of a file system that has no holes nothing is given back, which is no error.
    pub fn trim(&self) -> Result<()> {
        self.check_poison()?;
        while self.erase_some(&mut locked(&self.log))? {}
        let segments = locked(&self.log).space.segments();
        for _ in 0..segments {
            // Others have their turn between two segments.
            let mut log = locked(&self.log);
            let least = self.reserve(&log) + 2;
            if log.space.available() <= least && log.space.soon() > 0 {
                self.checkpoint(&mut log)?;
            }
            match log.space.victim(28, false) {
                Some(victim) if log.space.available() > least => self.clean(&mut log, victim)?,
                _ => break,
            }
        }
        let mut log = locked(&self.log);
        self.checkpoint(&mut log)?;
        while self.punch(&mut log)? {}
        Ok(())
    }

    /// Gives back the room of a segment that holds nothing, but for a few that are kept. Whether there was one.
    pub(super) fn punch(&self, log: &mut Log) -> Result<bool> {
        let kept = self.kept(log);
        let Some(segment) = log.space.give_back(kept) else { return Ok(false) };
        let start = u64::from(segment) << self.bits;
        self.device.punch(start..start + (1 << self.bits))?;
        self.counts.given_len.add(1 << self.bits);
        Ok(true)
    }

    /// Makes the device longer, or shorter: `len` bytes, a multiple of 4096. `capacity` is what it may take from now on; by
    /// itself, where as much as is enough was allowed, as much as is enough for its new length, else what it was. Durable when this
    /// returns, and either all of it or nothing after a crash. Writers wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length that makes no sense, or when there is something behind it: that is to be discarded first.
    /// [`Error::Limit`] for less room than it needs or takes, [`Error::Poisoned`], [`Error::Io`].
    pub fn resize(&self, len: u64, capacity: Option<u64>) -> Result<()> {
        self.check_poison()?;
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut log = locked(&self.log);
        let (bits, unit, before) = (log.space.bits, self.packing.unit, self.blocks());
        let blocks = check_len(len)?;
        if !log.clones.is_empty() {
            check_region(blocks)?;
        }
        let all = blocks + log.clones.blocks();
        let most = match (capacity, self.spare(&log)?) {
            (None, None) => {
                most_segments(all, bits, unit, Some(u64::from(log.space.most()) << bits))?
            }
            (None, Some(spare)) => {
                let enough = most_segments(all, bits, unit, None)? + log.space.held_len();
                self.at_most(&log, u64::from(enough) + u64::from(spare))
            }
            (Some(capacity), _) => most_segments(all, bits, unit, Some(capacity))?,
        };
        if most < log.space.segments() {
            return Err(Error::Limit {
                what: "the file of this volume",
                need: u64::from(log.space.segments()) << bits,
                allowed: u64::from(most) << bits,
            });
        }
        self.check_zero(blocks, before)?;
        // Nodes of nothing are told by those above from here on, and what is in memory is what is stored.
        self.checkpoint(&mut log)?;
        // Half done, what was written next would be in the log of a device of another length.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        self.set_blocks(&mut log, blocks, most).inspect_err(poison)
    }

    /// Segments that the volume may have beyond those that are enough whatever is written, and those that snapshots need; `None` if it may not have
    /// as many.
    pub(super) fn spare(&self, log: &Log) -> Result<Option<u32>> {
        let enough = most_segments(self.all_blocks(log), self.bits, self.packing.unit, None)?;
        Ok(log.space.most().checked_sub(enough.saturating_add(log.space.held_len())))
    }

    /// So many, as far as that can be.
    fn at_most(&self, log: &Log, segments: u64) -> u32 {
        segments.min((ALIGN << ENTRY_BITS) >> self.bits).max(log.space.segments().into()) as u32
    }

    /// Other segments are needed by snapshots than before, of which there were so many to spare: those that are enough were so without snapshots.
    pub(super) fn set_held(&self, log: &mut Log, spare: Option<u32>) -> Result<()> {
        let Some(spare) = spare else { return Ok(()) };
        let enough = most_segments(self.all_blocks(log), self.bits, self.packing.unit, None)?;
        let most = u64::from(enough) + u64::from(log.space.held_len()) + u64::from(spare);
        let most = self.at_most(log, most);
        log.space.set_most(most);
        log.superblock.most_segments = most;
        Ok(())
    }

    fn set_blocks(&self, log: &mut Log, blocks: u64, most: u32) -> Result<()> {
        let load = self.load();
        let Log { space, clones, .. } = log;
        // Where there are clones the map goes on behind it anyway.
        if clones.is_empty() {
            self.map().resize(blocks, &load, &mut |entry| space.remove(entry))?;
        }
        self.blocks.store(blocks, Ordering::Release);
        log.space.set_most(most);
        (log.superblock.blocks, log.superblock.most_segments) = (blocks, most);
        self.keep_room(log)?;
        self.checkpoint(log)
    }

    /// Refuses to cut off blocks that are not zero.
    fn check_zero(&self, blocks: u64, before: u64) -> Result<()> {
        let load = self.load();
        let mut block = blocks;
        while block < before {
            let (count, is_zero) = self.map().run(block, &load)?;
            if !is_zero {
                return Err(Error::invalid(format!(
                    "there is something at byte {} of the volume: shorten what is on it and discard the rest first",
                    block * BLOCK as u64
                )));
            }
            block += count;
        }
        Ok(())
    }
}

/// Blocks of a device of so many bytes.
pub(super) fn check_len(len: u64) -> Result<u64> {
    let blocks = len / BLOCK as u64;
    match len.is_multiple_of(BLOCK as u64) && (1..=MAX_BLOCKS).contains(&blocks) {
        true => Ok(blocks),
        false => {
            Err(Error::invalid("the length of a volume is a multiple of 4096, from 4096 to 2^52"))
        }
    }
}

/// How many segments a volume may have: as `capacity` says, or enough whatever is written.
pub(super) fn most_segments(
    blocks: u64,
    bits: u8,
    unit: usize,
    capacity: Option<u64>,
) -> Result<u32> {
    let reserve = reserve(blocks, bits);
    // Heads, and a twelfth, so that cleaning wins something. A unit may not fit in at the end of a segment.
    let (len, unit) = (blocks * BLOCK as u64, (unit * BLOCK + 64) as u64);
    let whole = (len + len / 12 + blocks * 48).div_ceil((1 << bits) - unit);
    let whole = whole + 2 * u64::from(reserve) + 8;
    let allowed = ALIGN << ENTRY_BITS;
    let most = capacity.map_or(whole.min(allowed >> bits), |capacity| capacity >> bits);
    let least = 2 * reserve + 8;
    match u32::try_from(most) {
        Ok(most) if most < least => Err(Error::Limit {
            what: "a volume of this length",
            need: u64::from(least) << bits,
            allowed: u64::from(most) << bits,
        }),
        Ok(most) if u64::from(most) << bits <= allowed => Ok(most),
        _ => Err(Error::Limit { what: "a volume", need: most << bits, allowed }),
    }
}

/// Segments that are kept for the map, the cleaner and zeros: what storing all nodes that may have changed takes, and
/// the usage pages; what the cleaner moves, and one more for each stream.
pub(super) fn reserve(blocks: u64, bits: u8) -> u32 {
    /// Bytes of a node or usage page that does not shrink, at most.
    const NODE: u64 = 6 << 10;
    let nodes = blocks.div_ceil(1000) + 8;
    let pages = 4 + (blocks >> 20);
    let bytes = (nodes.min(MOST_DIRTY as u64 + 300) + pages) * NODE;
    (bytes >> bits) as u32 + MOVED + 2
}
