//! How an archive is written.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::codec::filter::Filter;
use crate::codec::{Codec, MAX_FILTERS, Scratch};
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::parallel::default_threads;
use crate::rlz::{Coder, Coding, Training};

const MIN_BLOCK: usize = 1 << 10;
pub(super) const MAX_BLOCK: usize = 16 << 20;

/// How an archive is written.
///
/// ```
/// use fiche::archive::Options;
/// use fiche::codec::Codec;
///
/// let options = Options::default().codec(Codec::Lz4).level(9).block_len(64 << 10).threads(2);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) packing: Packing,
    level: Option<i32>,
    pub(super) filters: Vec<Filter>,
    pub(super) block_len: usize,
    pub(super) align_records: bool,
    pub(super) threads: usize,
    pub(super) dictionary_file: Option<String>,
}

/// What blocks are compressed with, and all that this needs.
#[derive(Clone, Debug)]
pub(super) enum Packing {
    Codec(Codec),
    Coder(Arc<Coder>),
}

/// What blocks are compressed with, under one name: each on its own, or with what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Each block on its own.
    Codec(Codec),
    /// With a dictionary that blocks share.
    Coding(Coding),
}

impl Method {
    /// The name under which people choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Codec(codec) => codec.name(),
            Method::Coding(coding) => coding.name(),
        }
    }

    /// The level taken when none is asked for.
    #[must_use]
    pub fn default_level(self) -> i32 {
        match self {
            Method::Codec(codec) => codec.default_level(),
            Method::Coding(coding) => coding.default_level(),
        }
    }

    /// The method that this level of it is: the lower ones of `hybrid` have a coding of their own.
    ///
    /// # Errors
    /// [`Error::Invalid`], which names the levels there are.
    pub fn at_level(self, level: i32) -> Result<Method> {
        match self {
            Method::Codec(codec) => codec.check_level(level).map(|()| self),
            Method::Coding(coding) => {
                let coding = coding.at_level(level);
                coding.check_level(level).map(|()| Method::Coding(coding))
            }
        }
    }

    /// True when this build has it.
    #[must_use]
    pub fn is_compiled_in(self) -> bool {
        match self {
            Method::Codec(codec) => codec.is_compiled_in(),
            Method::Coding(coding) => coding.is_compiled_in(),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Method> {
        let codec = || name.parse().map(Method::Codec);
        let coding = || name.parse().map(Method::Coding);
        codec().or_else(|_: Error| coding()).map_err(|_| {
            let names = |names: Vec<&str>| names.join(", ");
            let codecs = names(Codec::ALL.iter().map(|codec| codec.name()).collect());
            let codings = names(Coding::ALL.iter().map(|coding| coding.name()).collect());
            Error::invalid(format!("the methods are {codecs}; with a dictionary {codings}"))
        })
    }
}

impl Default for Options {
    /// zstd at its default level, blocks of 16 KiB, all cores.
    fn default() -> Options {
        Options {
            packing: Packing::Codec(Codec::Zstd),
            level: None,
            filters: Vec::new(),
            block_len: 16 << 10,
            align_records: false,
            threads: default_threads(),
            dictionary_file: None,
        }
    }
}

impl Options {
    /// The codec of every block that shrinks.
    #[must_use]
    pub fn codec(self, codec: Codec) -> Options {
        Options { packing: Packing::Codec(codec), ..self }
    }

    /// A coding with its dictionary in place of a codec; its level is that of the coder.
    /// The dictionary is written before the blocks, or its name if it is in a
    /// file of its own.
    #[must_use]
    pub fn coder(self, coder: Arc<Coder>) -> Options {
        Options { packing: Packing::Coder(coder), level: None, ..self }
    }

    /// What `fiche pack` does by itself: blocks are packed by `hybrid`, at its default level, with a
    /// dictionary and codes learned from this content, which is what will be packed or a good part of
    /// it; the block length is set before. For other codings, levels and dictionaries there is
    /// [`Training`]. Takes as long as that.
    ///
    /// ```
    /// use std::io::Write;
    /// use fiche::archive::{Options, Writer};
    ///
    /// let log: Vec<u8> = (0..20_000).flat_map(|i| format!("{i} GET /index.html\n").into_bytes()).collect();
    /// let mut writer = Writer::new(Vec::new(), Options::default().learn(&log)?)?;
    /// writer.write_all(&log)?;
    /// assert!(writer.finish()?.len() < log.len() / 8);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Training::run`].
    pub fn learn<C: ReadAt + ?Sized>(self, content: &C) -> Result<Options> {
        let training = Training::new(Coding::Hybrid).block_len(self.block_len);
        let training = training.threads(self.threads);
        Ok(self.coder(Arc::new(training.run(content)?)))
    }

    /// The dictionary of the coder is in this dictionary file; readers look for it
    /// under this name, beside the archive.
    #[must_use]
    pub fn dictionary_file(self, name: impl Into<String>) -> Options {
        Options { dictionary_file: Some(name.into()), ..self }
    }

    /// The codec's level, one of [`Codec::levels`]; its default level otherwise.
    #[must_use]
    pub fn level(self, level: i32) -> Options {
        Options { level: Some(level), ..self }
    }

    /// What is done to each block before its codec sees it, in this order: for arrays of numbers. Up to three, and none with a
    /// dictionary. All of a block is then decoded for any byte of it.
    ///
    /// ```
    /// use fiche::archive::Options;
    /// use fiche::codec::{Codec, filter::Filter};
    ///
    /// // Arrays of numbers of eight bytes.
    /// let options = Options::default().codec(Codec::BeWalgo64).filters([Filter::Shuffle(8)]);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn filters(self, filters: impl IntoIterator<Item = Filter>) -> Options {
        Options { filters: filters.into_iter().collect(), ..self }
    }

    /// Length of a block in bytes, 1 KiB to 16 MiB: what a read decodes at least.
    #[must_use]
    pub fn block_len(self, block_len: usize) -> Options {
        Options { block_len, ..self }
    }

    /// Length of a block in bytes, as it is set.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_len
    }

    /// Lets blocks end where records end: each holds whole records, as many as
    /// it takes to reach the block length (section 2 of the paper). A record
    /// longer than four times that (or than 16 MiB) is cut all the same.
    #[must_use]
    pub fn align_records(self, align_records: bool) -> Options {
        Options { align_records, ..self }
    }

    /// How many threads compress; 1 means the caller's alone. The archive is the
    /// same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Options {
        Options { threads: threads.max(1), ..self }
    }

    pub(super) fn the_level(&self) -> i32 {
        match &self.packing {
            Packing::Codec(codec) => self.level.unwrap_or(codec.default_level()),
            Packing::Coder(coder) => coder.level(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !(MIN_BLOCK..=MAX_BLOCK).contains(&self.block_len) {
            return Err(Error::invalid("a block is 1 KiB to 16 MiB long"));
        }
        if self.filters.len() > MAX_FILTERS {
            return Err(Error::invalid("no more than three filters are before a codec"));
        }
        self.filters.iter().try_for_each(|filter| filter.check())?;
        let codec = match &self.packing {
            Packing::Coder(_) if !self.filters.is_empty() => {
                return Err(Error::invalid("filters are before codecs, not before a dictionary"));
            }
            Packing::Codec(codec) => codec,
            Packing::Coder(_) if self.level.is_none() => return Ok(()),
            Packing::Coder(_) => return Err(Error::invalid("the level is that of the coder")),
        };
        codec.check_level(self.the_level())?;
        // Fails where the codec is not compiled in.
        codec.compress(
            self.the_level(),
            [0; 64].as_slice().into(),
            [0; 64].as_mut_slice().into(),
            &mut Scratch::default(),
        )?;
        Ok(())
    }

    pub(super) fn notes(&self) -> Vec<(String, String)> {
        let note = |key: &str, value: String| (key.to_owned(), value);
        let (method, dictionary) = match &self.packing {
            Packing::Codec(codec) => (codec.name(), None),
            Packing::Coder(coder) => (coder.coding().name(), Some(coder.dictionary().digest())),
        };
        let mut notes = vec![
            note("writer", concat!("fiche ", env!("CARGO_PKG_VERSION")).to_owned()),
            note("method", method.to_owned()),
            note("level", self.the_level().to_string()),
            note("block", self.block_len.to_string()),
            note("align", if self.align_records { "records" } else { "none" }.to_owned()),
        ];
        if !self.filters.is_empty() {
            let names: Vec<String> = self.filters.iter().map(Filter::to_string).collect();
            notes.push(note("filters", names.join(",")));
        }
        notes.extend(dictionary.map(|digest| note("dictionary", digest.to_string())));
        notes
    }
}
