//! The block that a thread holds, and room for another.

use std::sync::Arc;

use super::format::{BlockRef, is_whole};
use crate::cache::Cache;
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;

/// Bytes that a thread keeps the room of.
const KEPT: usize = 4 << 20;
/// Room is taken by so many bytes.
const ROOM: usize = 1024;
/// What a block that is kept costs beside its bytes, about.
const BESIDE: u64 = 128;

/// A block that was found whole.
#[derive(Default)]
pub(super) struct Held {
    /// Of which reader it is, and where in its source; 0 for none.
    of: (u64, u64),
    bytes: Arc<Vec<u8>>,
    /// What was kept before, and is room now.
    spare: Option<Arc<Vec<u8>>>,
}

impl Held {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this block of this reader is held.
    #[inline(always)]
    pub fn is(&self, reader: u64, block: &BlockRef) -> bool {
        self.of == (reader, block.pos) && self.bytes().len() == block.len
    }

    /// Holds a block of a reader if that is kept.
    pub fn take(&mut self, reader: u64, block: &BlockRef, kept: &Cache<Vec<u8>>) -> bool {
        // What damaged pages say of one position may differ.
        match kept.get(block.pos).filter(|bytes| bytes[..].len() == block.len) {
            Some(bytes) => {
                (self.of, self.bytes) = ((reader, block.pos), bytes);
                true
            }
            None => false,
        }
    }

    /// Keeps what is held.
    pub fn keep(&mut self, kept: &Cache<Vec<u8>>) {
        let weight = self.bytes.capacity() as u64 + BESIDE;
        if let Some(gone) = kept.insert(self.of.1, self.bytes.clone(), weight) {
            self.spare = Some(gone);
        }
    }

    /// Reads a block of a reader, which is held then; `at` is where it is said to be damaged.
    pub fn read(
        &mut self,
        source: &dyn ReadAt,
        reader: u64,
        block: &BlockRef,
        at: Place,
    ) -> Result<()> {
        let corrupt = || Error::Corrupt { what: "block of events", at };
        let end = block.pos.checked_add(block.len as u64);
        if end.is_none_or(|end| end > source.len()) {
            return Err(corrupt());
        }
        let room = self.room(block.len);
        source.read_at(block.pos, room)?;
        if !is_whole(room, block.pos) {
            return Err(corrupt());
        }
        self.of = (reader, block.pos);
        Ok(())
    }

    /// Room for so many bytes that nobody else has; what was held is held no longer.
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.of = (0, 0);
        if Arc::get_mut(&mut self.bytes).is_none() {
            self.bytes = self.spare.take().unwrap_or_default();
        }
        // Nobody has it, so nothing is copied; if somebody had, that would be all.
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.clear();
        bytes.shrink_to(KEPT);
        // Blocks are of some lengths below the same bound: one's room is then good for another.
        bytes.reserve_exact(len.next_multiple_of(ROOM));
        bytes.resize(len, 0);
        bytes
    }
}
