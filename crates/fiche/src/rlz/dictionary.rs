//! The bytes that all blocks share.

use std::fmt;
use std::sync::OnceLock;

use crate::codec::prepared::Decoding;
use crate::error::{Error, Result};
use crate::memory;
use crate::wire::Digest;

/// The longest dictionary: 1 GiB, so that an offset takes 30 bits.
pub(crate) const MAX_LEN: u64 = 1 << 30;
/// Zeros behind a dictionary: what is copied in fixed sizes may be read beyond its end.
pub(crate) const PADDING: usize = 64;

/// Bytes that all blocks of an archive share: what the blocks have in common is copied out of it.
///
/// It is known by the digest of its content, wherever it lies: in the archive, or in a file of
/// its own for many archives.
pub struct Dictionary {
    /// Refers to the bytes: it comes first, to go first.
    decoding: OnceLock<Option<Decoding>>,
    /// Its bytes, and `PADDING` zeros.
    padded: Vec<u8>,
    digest: Digest,
    /// Its pieces compressed, once an archive was written with it; none where a piece does not shrink.
    pub(super) packed: OnceLock<Vec<Option<Vec<u8>>>>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes, {})", self.len(), self.digest)
    }
}

impl AsRef<[u8]> for Dictionary {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Dictionary {
    /// Room for the bytes of a dictionary of this length, in which it can stay.
    pub(super) fn room(len: usize) -> Vec<u8> {
        memory::room_for(len + PADDING)
    }

    /// A dictionary of just these bytes.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than 1 GiB.
    pub fn new(bytes: Vec<u8>) -> Result<Dictionary> {
        let need = bytes.len() as u64;
        if need > MAX_LEN {
            return Err(Error::Limit { what: "bytes of dictionary", need, allowed: MAX_LEN });
        }
        let digest = Digest::of(&bytes);
        let mut padded = bytes;
        padded.reserve_exact(PADDING);
        padded.resize(need as usize + PADDING, 0);
        Ok(Dictionary { decoding: OnceLock::new(), padded, digest, packed: OnceLock::new() })
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.padded.len() - PADDING
    }

    /// True when it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.padded[..self.len()]
    }

    pub(crate) fn padded(&self) -> &[u8] {
        &self.padded
    }

    /// The dictionary as Zstandard's decoder wants it.
    #[allow(unsafe_code)]
    pub(super) fn decoding(&self) -> Option<&Decoding> {
        // SAFETY: the bytes are on the heap and never change; `decoding` goes before they do.
        self.decoding.get_or_init(|| unsafe { Decoding::new(self.as_bytes()) }).as_ref()
    }

    /// The digest of its bytes, by which archives know it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }
}
