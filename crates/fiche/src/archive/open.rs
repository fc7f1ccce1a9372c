//! Opens archives, and how they are read.

use std::fmt;
use std::sync::Arc;

use crate::archive::format::Footer;
use crate::archive::reader::Reader;
use crate::archive::shared::{DictionaryCache, Known};
use crate::envelope::{self, Container, SectionRef};
use crate::error::Result;
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
        if source.as_distant().is_some()
            && let Ok((section, footer)) = read_footer(&source, source.len())
        {
            // The end says all that is needed of the beginning, which would be waited for.
            return Ok(Reader::new(source.clone(), source.len(), section, footer, self));
        }
        let header = envelope::read_header(&source, Container::Archive)?;
        let whole = read_footer(&source, source.len());
        // A guard that is set tells of an append that was cut off (or goes on): then the
        // archive is what it was before. With a trailer at its end the append was not
        // cut off: what is damaged then must not be taken for what never was.
        let (end, section, footer) = match (whole, header.guard) {
            (Ok((section, footer)), _) => (source.len(), section, footer),
            (Err(_), Some(guard))
                if guard < source.len() && !envelope::ends_with_trailer(&source)? =>
            {
                let (section, footer) = read_footer(&source, guard)?;
                (guard, section, footer)
            }
            (Err(error), _) => return Err(error),
        };
        header.valid?;
        Ok(Reader::new(source, end, section, footer, self))
    }
}

fn read_footer(source: &dyn ReadAt, end: u64) -> Result<(SectionRef, Footer)> {
    let at = envelope::read_trailer(source, end)?;
    Ok((at, Footer::load(source, at)?))
}
