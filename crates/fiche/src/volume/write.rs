//! Writing: packing outside of the lock, appending within it.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::within;
use crate::volume::format::{BLOCK, Kind, MAX_COUNT, Stream};
use crate::volume::unit::{Draft, draft};
use crate::volume::{Volume, Work, locked};

/// Bytes that are packed before they are appended: what a long write takes of memory.
const AT_A_TIME: usize = 1 << 20;
/// Blocks of zeros that are appended at a time: what the lock is held for.
const ZEROS: u64 = 1 << 18;

/// Blocks that are a device: all of the volume's, or a clone's.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub first: u64,
    pub blocks: &'a AtomicU64,
}

impl Span<'_> {
    pub fn blocks(self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// In bytes.
    pub fn len(self) -> u64 {
        self.blocks() * BLOCK as u64
    }

    /// Where its bytes from `offset` on are in the map, which must be within it.
    fn at(self, offset: u64, len: usize) -> Result<u64> {
        within(offset, len, self.len())?;
        Ok(self.first * BLOCK as u64 + offset)
    }
}

impl Volume {
    pub(super) fn span(&self) -> Span<'_> {
        Span { first: 0, blocks: &self.blocks }
    }

    pub(super) fn write_span(&self, span: Span<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_poison()?;
        let len = bytes.len() as u64;
        let write = |work: &mut Work| self.write(span, offset, bytes, work);
        self.counts.writes.run(len, || self.with_work(write))
    }

    pub(super) fn zero_span(
        &self,
        span: Span<'_>,
        offset: u64,
        len: u64,
        is_exact: bool,
    ) -> Result<()> {
        self.counts.zeros.run(len, || self.zero(span, offset, len, is_exact))
    }

    fn write(&self, span: Span<'_>, offset: u64, bytes: &[u8], work: &mut Work) -> Result<()> {
        let (block, start) = (BLOCK as u64, offset as usize % BLOCK);
        let end = start + bytes.len();
        if bytes.is_empty() {
            return span.at(offset, 0).map(|_| ());
        }
        // How long the device is does not change while one of these is held.
        if start == 0 && end.is_multiple_of(BLOCK) {
            let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            return self.write_blocks(span.at(offset, bytes.len())? / block, bytes, work);
        }
        // What is around it in the first and in the last block is written again.
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let first = span.at(offset, bytes.len())? - start as u64;
        let mut whole = vec![0; end.next_multiple_of(BLOCK)];
        let last = whole.len() - BLOCK;
        self.read(&self.view, first, &mut whole[..BLOCK], work)?;
        if last > 0 {
            self.read(&self.view, first + last as u64, &mut whole[last..], work)?;
        }
        whole[start..end].copy_from_slice(bytes);
        self.write_blocks(first / block, &whole, work)
    }

    fn write_blocks(&self, first: u64, bytes: &[u8], work: &mut Work) -> Result<()> {
        let mut first = first;
        let packing = self.packing(self.packing.level);
        for some in bytes.chunks(AT_A_TIME) {
            let Work { scratch, stored, .. } = &mut *work;
            let drafts = draft(first, some, &packing, scratch, stored)?;
            let mut log = locked(&self.log);
            for draft in drafts {
                self.make_room(&mut log, draft.parts.iter().all(|part| part.kind == Kind::Zeros))?;
                self.put(&mut log, Stream::Hot, draft)?;
            }
            first += (some.len() / BLOCK) as u64;
        }
        Ok(())
    }

    /// Makes bytes zero: whole blocks cost nothing, and parts of blocks are written if they must be zero.
    fn zero(&self, span: Span<'_>, offset: u64, len: u64, is_exact: bool) -> Result<()> {
        let size = span.len();
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
                    let zeros = &zeros[..now as usize];
                    self.with_work(|work| self.write(span, range.start, zeros, work))?;
                    range.start += now;
                }
            }
        }
        if from >= to {
            return Ok(());
        }
        let _others = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let mut first = span.at(from, (to - from) as usize)? / block;
        let last = first + (to - from) / block;
        while first < last {
            let count = (last - first).min(ZEROS).min(MAX_COUNT);
            let mut draft = Draft::default();
            draft.push(self.packing.tag, Kind::Zeros, first, count as u32, &[]);
            let mut log = locked(&self.log);
            self.make_room(&mut log, true)?;
            self.put(&mut log, Stream::Hot, draft)?;
            first += count;
        }
        Ok(())
    }
}
