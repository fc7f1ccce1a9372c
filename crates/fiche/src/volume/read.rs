//! Reading: the units that have the blocks, and no more.

use crate::error::{Error, Place, Result};
use crate::io::within;
use crate::volume::format::{ALIGN, BLOCK, FRAGMENT_HEAD};
use crate::volume::log::read_fragment;
use crate::volume::unit::unpack;
use crate::volume::{Volume, Work};

/// Blocks that are looked up at a time.
const AT_A_TIME: usize = 1024;

impl Volume {
    /// Fills `buf` from `offset` on, which is within the volume.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8], work: &mut Work) -> Result<()> {
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (block, skip) = (offset / BLOCK as u64, offset as usize % BLOCK);
            let len = if skip > 0 || rest.len() < BLOCK {
                // A part of a block.
                let (now, _) = rest.split_at_mut((BLOCK - skip).min(rest.len()));
                let mut whole = [0; BLOCK];
                self.read_blocks(block, &mut whole, work)?;
                now.copy_from_slice(&whole[skip..skip + now.len()]);
                now.len()
            } else {
                let len = (rest.len() / BLOCK).min(AT_A_TIME) * BLOCK;
                self.read_blocks(block, &mut rest[..len], work)?;
                len
            };
            offset += len as u64;
            rest = &mut rest[len..];
        }
        Ok(())
    }

    /// Where each of these blocks lies, in eighths.
    fn entries(&self, first: u64, count: usize) -> Result<Vec<u64>> {
        let load = self.load();
        let mut map = self.map();
        map.shrink(self.memory);
        // It may have become shorter since it was asked.
        let block = BLOCK as u64;
        within(first * block, count * BLOCK, map.blocks() * block)?;
        (first..first + count as u64).map(|block| map.get(block, &load)).collect()
    }

    fn read_blocks(&self, first: u64, buf: &mut [u8], work: &mut Work) -> Result<()> {
        let entries = self.entries(first, buf.len() / BLOCK)?;
        let mut at = 0;
        for run in entries.chunk_by(|a, b| a == b) {
            let piece = &mut buf[at * BLOCK..(at + run.len()) * BLOCK];
            self.read_run(first + at as u64, run[0], piece, work)?;
            at += run.len();
        }
        Ok(())
    }

    /// Fills `buf` with blocks that lie in one fragment.
    fn read_run(&self, first: u64, entry: u64, buf: &mut [u8], work: &mut Work) -> Result<()> {
        /// The segment may have been cleaned and written again in the meantime: how often in one read at most.
        const TIMES: usize = 100;
        let (mut entry, mut is_same) = (entry, false);
        for _ in 0..TIMES {
            let damage = match self.read_unit(first, entry, buf, work) {
                Err(error @ Error::Corrupt { .. }) => error,
                other => return other.map(|_| ()),
            };
            let now = self.entries(first, buf.len() / BLOCK)?;
            let was_same = is_same;
            is_same = now.iter().all(|now| *now == entry);
            // Once, it may be that just these blocks were written there again while they were read.
            if is_same && was_same {
                return Err(damage);
            }
            if now.iter().any(|other| *other != now[0]) {
                // They are not together any more.
                for (i, (block, &entry)) in buf.chunks_exact_mut(BLOCK).zip(&now).enumerate() {
                    self.read_run(first + i as u64, entry, block, work)?;
                }
                return Ok(());
            }
            entry = now[0];
        }
        Err(Error::Corrupt { what: "fragment", at: Place::Pos(entry * ALIGN) })
    }

    /// Fills `buf` with blocks of the fragment where this entry leads, if it is theirs. Returns its first block, and how
    /// many bytes it takes.
    pub(super) fn read_unit(
        &self,
        first: u64,
        entry: u64,
        buf: &mut [u8],
        work: &mut Work,
    ) -> Result<(u64, u64)> {
        if entry == 0 {
            buf.fill(0);
            return Ok((first, 0));
        }
        let pos = entry * ALIGN;
        let corrupt = || Error::Corrupt { what: "fragment", at: Place::Pos(pos) };
        // Most shrink to less than five eighths; for others a second read follows.
        let guess = FRAGMENT_HEAD + (buf.len() / 8 * 5).max(BLOCK / 2);
        let Work { scratch, stored, room } = work;
        let head = read_fragment(self.from(), pos, guess, stored)?;
        let skip = first.checked_sub(head.block).ok_or_else(corrupt)? as usize;
        if skip + buf.len() / BLOCK > head.count as usize {
            return Err(corrupt());
        }
        let stored = &stored[FRAGMENT_HEAD..][..head.len as usize];
        unpack(&head, stored, skip, buf, room, scratch).map_err(|error| match error {
            Error::Corrupt { .. } => corrupt(),
            other => other,
        })?;
        Ok((head.block, head.stored_len() as u64))
    }
}
