//! What a thread works with while it reads.

use std::sync::Arc;

use crate::archive::ahead::BATCH;
use crate::archive::decode::{Decoding, place};
use crate::blocks::Block;
use crate::error::{Error, Result};
use crate::io::ReadAt;

/// Stored bytes that neighbouring blocks are fetched in at once.
pub(super) const FETCH: u64 = 1 << 20;

/// What a thread works with while it reads. Reused, so that reading allocates
/// nothing once it runs.
#[derive(Default)]
pub(super) struct Scratch {
    pub decode: Decoding,
    pub window: Window,
    /// A buffer for a block that is needed in part, ready to go into the cache.
    pub spare: Option<Arc<Vec<u8>>>,
}

/// Stored bytes that were fetched: of one block, or of neighbours.
#[derive(Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    pos: u64,
    len: usize,
    /// Where the stored bytes end that were fetched from far away.
    fetched: u64,
}

impl Window {
    /// Forgets what was fetched: it may be of another time.
    pub fn clear(&mut self) {
        (self.len, self.fetched) = (0, 0);
    }

    pub fn holds(&self, block: &Block) -> bool {
        block.pos >= self.pos && block.end() <= self.pos + self.len as u64
    }

    /// The stored bytes of a block; when they are not here yet, they are fetched
    /// with what follows up to `until`, in pieces of `FETCH`.
    pub fn stored<'a>(
        &'a mut self,
        source: &'a dyn ReadAt,
        block: &Block,
        until: u64,
    ) -> Result<&'a [u8]> {
        let len = block.stored_len as usize;
        if let Some(all) = source.as_bytes() {
            let start = usize::try_from(block.pos).unwrap_or(usize::MAX);
            let cut = Error::Corrupt { what: "stored block", at: place(block) };
            return all.get(start..).and_then(|rest| rest.get(..len)).ok_or(cut);
        }
        if !self.holds(block) {
            let wanted = until
                .saturating_sub(block.pos)
                .clamp(block.stored_len, FETCH.max(block.stored_len));
            if self.bytes.len() < wanted as usize {
                self.bytes.resize(wanted as usize, 0);
            }
            self.len = 0;
            if until > block.pos + FETCH
                && block.pos + wanted > self.fetched
                && let Some(distant) = source.as_distant()
            {
                self.fetched = until.min(block.pos + BATCH);
                distant.fetch(&[block.pos..self.fetched]);
            }
            source.read_at(block.pos, &mut self.bytes[..wanted as usize])?;
            (self.pos, self.len) = (block.pos, wanted as usize);
        }
        let start = (block.pos - self.pos) as usize;
        Ok(&self.bytes[start..start + len])
    }
}
