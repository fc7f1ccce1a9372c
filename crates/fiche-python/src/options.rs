//! How an archive is packed, as Python says it.

use std::path::PathBuf;
use std::sync::Arc;

use fiche::ReadAt;
use fiche::archive::{Method, Options};
use fiche::codec::Codec;
use fiche::codec::filter::Filter;
use fiche::rlz::{Coding, Dictionary, Training};
use pyo3::prelude::*;

use crate::error::{Failed, Result};

/// So many, or as many as there are cores.
pub fn threads(threads: Option<usize>) -> Result<usize> {
    match threads {
        Some(0) => Err(Failed::value("threads is at least 1")),
        Some(threads) => Ok(threads.min(256)),
        None => Ok(std::thread::available_parallelism().map_or(1, |n| n.get())),
    }
}

/// Where a dictionary comes from.
enum Dict {
    Auto,
    None,
    Len(u64),
    File(PathBuf),
}

/// What is said of how blocks are made.
pub struct Blocks {
    method: Option<Method>,
    level: Option<i32>,
    filters: Vec<Filter>,
    dict: Dict,
    block: usize,
    align_records: bool,
    pub threads: usize,
}

impl Blocks {
    pub fn new(
        (method, level, filters): (Option<&str>, Option<i32>, &[String]),
        (block, align_records): (usize, bool),
        dict: Option<&Bound<'_, PyAny>>,
        threads: Option<usize>,
    ) -> Result<Blocks> {
        let method = method.map(str::parse::<Method>).transpose()?;
        let filters = filters.iter().map(|filter| filter.parse()).collect::<fiche::Result<_>>()?;
        let dict = match dict {
            None => Dict::Auto,
            Some(dict) => match dict.extract::<u64>() {
                Ok(0) => Dict::None,
                Ok(len) => Dict::Len(len),
                Err(_) => match dict.extract::<PathBuf>()? {
                    path if path.as_os_str() == "auto" => Dict::Auto,
                    path if path.as_os_str() == "none" => Dict::None,
                    path => Dict::File(path),
                },
            },
        };
        let threads = self::threads(threads)?;
        Ok(Blocks { method, level, filters, dict, block, align_records, threads })
    }

    /// True where nothing was said that needs content to learn from.
    pub fn asks_for_nothing(&self) -> bool {
        self.method.is_none() && self.filters.is_empty() && matches!(self.dict, Dict::Auto)
    }

    /// The coding and its level, if it is one; fails where a method has no such level, or no dictionary.
    fn coding(&self) -> fiche::Result<Option<(Coding, i32)>> {
        let usual = match self.filters.is_empty() {
            true => Method::Coding(Coding::Hybrid),
            false => Method::Codec(Codec::Zstd),
        };
        let method = self.method.unwrap_or(usual);
        match self.level.map_or(Ok(method), |level| method.at_level(level))? {
            Method::Coding(_) if !self.filters.is_empty() => Err(fiche::Error::Invalid {
                what: "a filter goes with a method without a dictionary".into(),
            }),
            Method::Coding(coding) => {
                Ok(Some((coding, self.level.unwrap_or(coding.default_level()))))
            }
            Method::Codec(_) if !matches!(self.dict, Dict::Auto | Dict::None) => {
                Err(fiche::Error::Invalid { what: "this method has no dictionary".into() })
            }
            Method::Codec(_) => Ok(None),
        }
    }

    fn plain(&self, codec: Codec) -> Options {
        let level = self.level.unwrap_or(codec.default_level());
        let options = Options::default().codec(codec).level(level).block_len(self.block);
        let options = options.filters(self.filters.iter().copied());
        options.align_records(self.align_records).threads(self.threads)
    }

    /// The options, with what is learned from this content; where there is none, and nothing was asked
    /// for, blocks are compressed each on its own.
    pub fn options(&self, content: &dyn ReadAt) -> fiche::Result<Options> {
        let coding = self.coding()?;
        let Some((coding, level)) =
            coding.filter(|_| !(content.is_empty() && self.asks_for_nothing()))
        else {
            return Ok(match self.method {
                Some(Method::Codec(codec)) => self.plain(codec),
                _ => self.plain(Codec::Zstd),
            });
        };
        let mut options = self.plain(Codec::Zstd);
        let training = Training::new(coding).level(level).block_len(self.block);
        let mut training = training.threads(self.threads);
        match &self.dict {
            Dict::Auto => {}
            Dict::None => training = training.dictionary_len(0),
            Dict::Len(len) => training = training.dictionary_len(*len),
            Dict::File(path) => {
                training = training.dictionary(Arc::new(Dictionary::open(path)?));
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                options = options.dictionary_file(name);
            }
        }
        // The level is that of the coding.
        Ok(options.coder(Arc::new(training.run(content)?)))
    }
}
