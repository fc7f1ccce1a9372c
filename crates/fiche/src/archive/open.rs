//! Opens archives, and how they are read.

use std::fmt;
use std::sync::Arc;

use crate::archive::format::Footer;
use crate::archive::reader::Reader;
use crate::archive::shared::{DictionaryCache, Known};
use crate::envelope::{self, Container, SectionRef};
use crate::error::Result;
use crate::in_place::read_end;
use crate::io::{ReadAt, Resolve};
use crate::rlz::Dictionary;

/// How an archive is read.
#[derive(Clone)]
pub struct OpenOptions {
    pub(super) cache: u64,
    pub(super) known: Known,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Default for OpenOptions {
    /// A cache of 64 MiB.
    fn default() -> OpenOptions {
        OpenOptions { cache: 64 << 20, known: Known::default() }
    }
}

impl OpenOptions {
    /// How many bytes of blocks to keep for the next read: of decoded ones, or of stored ones
    /// where a piece of a block can be decoded on its own. Only blocks that a read needed a
    /// part of are kept; 0 keeps none. A block longer than a quarter of this is not kept.
    #[must_use]
    pub fn cache(self, bytes: u64) -> OpenOptions {
        OpenOptions { cache: bytes, ..self }
    }

    /// A dictionary at hand, which is taken wherever the archive needs one of its digest: in
    /// place of a file beside it, or of one in the archive that is damaged. May be called often.
    #[must_use]
    pub fn dictionary(mut self, dictionary: Arc<Dictionary>) -> OpenOptions {
        self.known.dictionaries.push(dictionary);
        self
    }

    /// How the dictionary files are found that an archive names; without it, none is.
    #[must_use]
    pub fn resolve(mut self, resolve: Arc<dyn Resolve>) -> OpenOptions {
        self.known.resolve = Some(resolve);
        self
    }

    /// Where dictionaries are kept that were loaded once.
    #[must_use]
    pub fn dictionary_cache(mut self, cache: Arc<dyn DictionaryCache>) -> OpenOptions {
        self.known.cache = Some(cache);
        self
    }

    /// Opens an archive with these options.
    ///
    /// # Errors
    /// Those of [`Reader::open`].
    pub fn open(&self, source: Arc<dyn ReadAt>) -> Result<Reader> {
        let (end, (section, footer)) =
            read_end(&source, Container::Archive, |end| read_footer(&source, end))?;
        Ok(Reader::new(source, end, section, footer, self))
    }
}

fn read_footer(source: &dyn ReadAt, end: u64) -> Result<(SectionRef, Footer)> {
    let at = envelope::read_trailer(source, end)?;
    Ok((at, Footer::load(source, at)?))
}
