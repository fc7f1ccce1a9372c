//! Remembers what was packed, to find files that equal it.

use std::collections::HashMap;

use crate::records::Extents;
use crate::wire::Digest;

/// Content that was packed, for files that may equal it: 60 bytes for each file that is as long
/// as another one.
#[derive(Default)]
pub(super) struct Seen {
    /// The last that has this length and beginning, as a digest of both.
    last: HashMap<u64, u32>,
    contents: Vec<Content>,
    /// Pieces of those that are sparse, by where their content starts.
    extents: HashMap<u64, Extents>,
}

struct Content {
    /// Of all of it.
    digest: [u8; 16],
    start: u64,
    /// Number of the one before of the same beginning, plus 1.
    before: u32,
}

impl Seen {
    fn key(len: u64, head: &Digest) -> u64 {
        head.0.iter().take(8).fold(len, |key, &b| key.rotate_left(8) ^ u64::from(b))
    }

    fn short(digest: &Digest) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&digest.0[..16]);
        short
    }

    /// Whether there may be content of this length and beginning.
    pub fn has(&self, len: u64, head: &Digest) -> bool {
        self.last.contains_key(&Seen::key(len, head))
    }

    /// Where content starts that equals this, and its pieces if it is sparse.
    pub fn find(&self, len: u64, head: &Digest, whole: &Digest) -> Option<(u64, Option<Extents>)> {
        let mut next = self.last.get(&Seen::key(len, head)).copied();
        while let Some(content) = next.and_then(|next| self.contents.get(next as usize)) {
            if content.digest == Seen::short(whole) {
                return Some((content.start, self.extents.get(&content.start).cloned()));
            }
            next = content.before.checked_sub(1);
        }
        None
    }

    pub fn add(
        &mut self,
        len: u64,
        head: &Digest,
        whole: &Digest,
        start: u64,
        extents: Option<Extents>,
    ) {
        let Ok(number) = u32::try_from(self.contents.len()) else { return };
        let before = self.last.insert(Seen::key(len, head), number).map_or(0, |last| last + 1);
        self.contents.push(Content { digest: Seen::short(whole), start, before });
        if let Some(extents) = extents {
            self.extents.insert(start, extents);
        }
    }
}

/// Hashes so many zeros: what a hole reads as.
pub(super) fn hash_zeros(hasher: &mut blake3::Hasher, mut len: u64) {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while len > 0 {
        let now = len.min(ZEROS.len() as u64) as usize;
        hasher.update(&ZEROS[..now]);
        len -= now as u64;
    }
}
