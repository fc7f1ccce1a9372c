//! Writing: packing outside of the lock, appending within it.

use std::io;
use std::sync::PoisonError;

use crate::error::Result;
use crate::io::{ReadAt, within};
use crate::volume::format::{BLOCK, Kind, MAX_COUNT};
use crate::volume::log::Log;
use crate::volume::unit::{Draft, draft};
use crate::volume::{Volume, Work, locked};

/// Bytes that are packed before they are appended: what a long write takes of memory.
const AT_A_TIME: usize = 1 << 20;
/// Bytes of log between two superblocks: what the next opening reads at most.
const BETWEEN: u64 = 256 << 20;
/// Nodes of the map that changed, at most, before they are stored: 20 MiB of memory.
pub(super) const MOST_DIRTY: usize = 4096;
/// Bytes of nodes in memory.
pub(super) const NODES: u64 = 64 << 20;
/// Segments that are cleaned, and maps stored, without one more that is free before it is given up.
const ROUNDS: u32 = 128;
/// Blocks of zeros that are appended at a time: what the lock is held for.
const ZEROS: u64 = 1 << 18;

impl Volume {
    pub(super) fn write(&self, offset: u64, bytes: &[u8], work: &mut Work) -> Result<()> {
        let (block, start) = (BLOCK as u64, offset as usize % BLOCK);
        let end = start + bytes.len();
        if bytes.is_empty() {
            return Ok(());
        }
        if start == 0 && end.is_multiple_of(BLOCK) {
            let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            return self.write_blocks(offset / block, bytes, work);
        }
        // What is around it in the first and in the last block is written again.
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut whole = vec![0; end.next_multiple_of(BLOCK)];
        let first = offset - start as u64;
        let last = whole.len() - BLOCK;
        self.read(first, &mut whole[..BLOCK], work)?;
        if last > 0 {
            self.read(first + last as u64, &mut whole[last..], work)?;
        }
        whole[start..end].copy_from_slice(bytes);
        self.write_blocks(first / block, &whole, work)
    }

    fn write_blocks(&self, first: u64, bytes: &[u8], work: &mut Work) -> Result<()> {
        let mut first = first;
        for some in bytes.chunks(AT_A_TIME) {
            let drafts = draft(first, some, &self.packing, &mut work.scratch)?;
            let mut log = locked(&self.log);
            for draft in drafts {
                self.make_room(&mut log, draft.parts.iter().all(|part| part.is_zeros))?;
                self.put(&mut log, draft)?;
            }
            first += (some.len() / BLOCK) as u64;
        }
        Ok(())
    }

    /// Makes bytes zero: whole blocks cost nothing, and parts of blocks are written if they must be zero.
    pub(super) fn zero(&self, offset: u64, len: u64, is_exact: bool) -> Result<()> {
        let size = self.len();
        let end = offset.checked_add(len).filter(|&end| end <= size);
        let Some(end) = end else { return within(offset, len as usize, size).map(|_| ()) };
        self.check_poison()?;
        let block = BLOCK as u64;
        let (from, to) = (offset.next_multiple_of(block), end / block * block);
        let zeros = [0; BLOCK];
        if is_exact {
            let around = if from < to { [offset..from, to..end] } else { [offset..end, end..end] };
            for mut range in around {
                while !range.is_empty() {
                    // Each block at once.
                    let now = (range.end - range.start).min(block - range.start % block);
                    self.with_work(|work| self.write(range.start, &zeros[..now as usize], work))?;
                    range.start += now;
                }
            }
        }
        if from >= to {
            return Ok(());
        }
        let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let (mut first, last) = (from / block, to / block);
        while first < last {
            let count = (last - first).min(ZEROS).min(MAX_COUNT);
            let mut draft = Draft::default();
            draft.push(self.packing.tag, Kind::Zeros, first, count as u32, &[]);
            let mut log = locked(&self.log);
            self.make_room(&mut log, true)?;
            self.put(&mut log, draft)?;
            first += count;
        }
        Ok(())
    }

    /// Segments that only the map, the cleaner and zeros may take.
    pub(super) fn reserve(&self, log: &Log) -> u32 {
        reserve(self.blocks(), log.space.bits)
    }

    /// Stores the map and cleans where that is due, so that one more extent has room.
    fn make_room(&self, log: &mut Log, is_zeros: bool) -> Result<()> {
        let reserve = self.reserve(log);
        if log.since >= BETWEEN || self.map().dirty >= MOST_DIRTY {
            self.checkpoint(log)?;
        }
        self.map().shrink(NODES);
        // Two more: one for the extent, one that the next turn takes.
        let (mut most, mut without) = (log.space.available(), 0);
        while log.space.available() <= reserve + 2 && !log.space.is_full() {
            if log.space.has_pending() {
                self.checkpoint(log)?;
            } else if let Some(victim) = log.space.victim() {
                self.clean(log, victim)?;
            } else {
                log.space.give_up();
            }
            // Each segment that is cleaned wins a 32nd of one at least, but for what storing the map takes.
            without = if log.space.available() > most { 0 } else { without + 1 };
            most = most.max(log.space.available());
            if without > ROUNDS {
                log.space.give_up();
            }
        }
        match is_zeros || log.space.available() > reserve {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
        }
    }
}

/// Segments that are kept for the map, the cleaner and zeros: what storing all nodes that may have changed takes, and
/// the usage pages; two for what the cleaner moves, and two more.
pub(super) fn reserve(blocks: u64, bits: u8) -> u32 {
    /// Bytes of a node or usage page that does not shrink, at most.
    const NODE: u64 = 6 << 10;
    let nodes = blocks.div_ceil(1000) + 8;
    let pages = 4 + (blocks >> 20);
    let bytes = (nodes.min(MOST_DIRTY as u64 + 300) + pages) * NODE;
    (bytes >> bits) as u32 + 5
}
