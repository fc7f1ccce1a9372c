//! Opening archives, and the options that several verbs share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use fiche::archive::{Method, OpenOptions, Options, Reader, Split};
use fiche::codec::Codec;
use fiche::codec::filter::Filter;
use fiche::rlz::Coding;
use fiche::{FileSource, InFolder, ReadAt};

use crate::dictionary::{self, Given};
use crate::sizes;
use crate::source::Source;
use crate::ui::Failed;

/// The URL that this is, if it is one.
pub fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// A file as messages name it: of a URL nothing that is secret.
pub fn shown(path: &Path) -> String {
    match url(path) {
        Some(url) => remote::shown(url),
        None => path.display().to_string(),
    }
}

/// The file as a source, or the object of a URL.
pub fn source(path: &Path) -> Result<Arc<dyn ReadAt>, Failed> {
    match url(path) {
        Some(url) => remote::source(url).map_err(|e| Failed::at(path, e)),
        None => Ok(Arc::new(FileSource::open(path).map_err(|e| Failed::at(path, e))?)),
    }
}

/// How the archive in this file is read: dictionaries that it names are beside it.
pub fn options(path: &Path, given: &Given) -> Result<OpenOptions, Failed> {
    let options = match url(path) {
        Some(url) => remote::options(url).map_err(|e| Failed::at(path, e))?,
        None => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = InFolder::new(folder.unwrap_or(Path::new(".")));
            OpenOptions::default().resolve(Arc::new(folder))
        }
    };
    Ok(given.load()?.into_iter().fold(options, OpenOptions::dictionary))
}

/// The archive in this file.
pub fn open(path: &Path) -> Result<Reader, Failed> {
    options(path, &Given::default())?.open(source(path)?).map_err(|e| Failed::at(path, e))
}

#[cfg(feature = "remote")]
mod remote {
    use std::sync::Arc;

    use fiche::ReadAt;
    use fiche::archive::OpenOptions;
    use fiche_remote::{Beside, Options};

    pub use fiche_remote::without_secrets as shown;

    /// The object of this URL.
    pub fn source(url: &str) -> fiche::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(Options::from_env()?.open(url)?))
    }

    /// Dictionaries are beside the archive, and kept where what is fetched is.
    pub fn options(url: &str) -> fiche::Result<OpenOptions> {
        let remote = Options::from_env()?;
        let options = OpenOptions::default().resolve(Arc::new(Beside::new(url, remote.clone())));
        Ok(match remote.kept() {
            Some(folder) => options.dictionary_cache(folder.clone()),
            None => options,
        })
    }
}

#[cfg(not(feature = "remote"))]
mod remote {
    use std::sync::Arc;

    use fiche::archive::OpenOptions;
    use fiche::{Error, ReadAt, Result};

    fn left_out<T>() -> Result<T> {
        Err(Error::Invalid { what: "this build of fiche leaves out reading by URL".into() })
    }

    pub fn shown(url: &str) -> String {
        url.to_owned()
    }

    pub fn source(_: &str) -> Result<Arc<dyn ReadAt>> {
        left_out()
    }

    pub fn options(_: &str) -> Result<OpenOptions> {
        left_out()
    }
}

/// How blocks are made.
#[derive(Args)]
pub struct Blocks {
    /// How blocks are compressed: hybrid, the default, with a dictionary that they share, and so
    /// rlz-uv, rlz-pv, rlz-zz, rlz-zzz, rlz-zz-primed, zlib-primed and zstd-dict; or each on its own:
    /// copy, lz4, zlib, zstd, lzma, bzip2, lzo, or for arrays of numbers bewalgo32 and bewalgo64
    #[arg(long, short, value_name = "METHOD")]
    pub method: Option<Method>,
    /// Level of the method, from fast to small: hybrid 1 to 9, by default 5, up to 4 for faster reads;
    /// lz4 -64 to 12, zlib 1 to 12, zstd -7 to 22, lzma 0 to 9, bzip2 1 to 9, by default 1, 6, 3, 6 and 9;
    /// bewalgo32 and bewalgo64 -64 to 9, by default 1;
    /// rlz-zz and rlz-zzz 1 to 12, the primed ones 1 to 9, by default 9; zstd-dict 1 to 22, by default 12
    #[arg(long, short, allow_negative_numbers = true, value_name = "N")]
    pub level: Option<i32>,
    /// For arrays of numbers, done to each block before its method: shuffle:BYTES, bitshuffle:BYTES or delta:BYTES,
    /// with the bytes of a number; or up to three, as in delta:4,shuffle:4. The method is then zstd if none is said
    #[arg(long, value_name = "FILTER", value_delimiter = ',')]
    pub filter: Vec<Filter>,
    /// Length of a block, 1K to 16M, by default 16K: what a read decodes at least
    #[arg(long, short, value_name = "SIZE", value_parser = sizes::parse)]
    pub block: Option<u64>,
    /// What a record is: files, or with what is in them lines, json:FIELD (lines named by this
    /// field), mbox, warc, tar (its members) or fixed:BYTES; none for a stream without any
    #[arg(long, value_name = "WHAT", default_value = "files", value_parser = parse_records)]
    pub records: Records,
    /// Let blocks end where records end
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub align: Align,
    /// Leave out what matches: a name, or with a slash a path in the archive. May be given often
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Go on after files that cannot be read or that change while they are read: leave out the
    /// former, keep what was read of the latter, list both, and exit with 5
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub dictionary: dictionary::Choice,
    #[command(flatten)]
    pub threads: Threads,
}

/// What records there are.
#[derive(Clone, PartialEq, Eq)]
pub enum Records {
    /// Each file is one
    Files,
    /// What is in them as well
    Split(Split),
}

/// Parses what a record is.
pub fn parse_records(text: &str) -> Result<Records, String> {
    match text {
        "files" | "none" => Ok(Records::Files),
        _ => text.parse().map(Records::Split).map_err(|error: fiche::Error| error.to_string()),
    }
}

/// What blocks are aligned to.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Align {
    /// Blocks have one length
    None,
    /// Blocks hold whole records, as many as reach the block length
    Records,
}

impl Blocks {
    /// True when neither a method nor a dictionary is asked for.
    pub fn asks_for_nothing(&self) -> bool {
        self.method.is_none() && self.filter.is_empty() && !self.dictionary.is_given()
    }

    /// The method that was asked for, or this one; but with a filter none that has a dictionary.
    fn method(&self, usual: Method) -> Method {
        let usual = match usual {
            Method::Coding(_) if !self.filter.is_empty() => Method::Codec(Codec::Zstd),
            usual => usual,
        };
        self.method.unwrap_or(usual)
    }

    /// What is packed of these inputs.
    pub fn source(&self, input: &[PathBuf], output: &Path) -> Result<Source, Failed> {
        Source::new(input, &self.records, (&self.exclude, self.keep_going), output)
    }

    /// The coding that blocks are packed with and its level, if that was asked for; where no method
    /// was, it is this one. Fails where the method has no such level, and where a dictionary is
    /// asked for, but a method that has none.
    pub fn coding(
        &self,
        (method, level): (Method, Option<i32>),
    ) -> Result<Option<(Coding, Option<i32>)>, Failed> {
        let is_usual = self.method.is_none() && self.method(method) == method;
        let level = self.level.or(if is_usual { level } else { None });
        let method = self.method(method);
        match level.map_or(Ok(method), |level| method.at_level(level))? {
            Method::Coding(_) if !self.filter.is_empty() => {
                Err(Failed::usage("a filter goes with a method without a dictionary: see --method"))
            }
            Method::Coding(coding) => Ok(Some((coding, level))),
            Method::Codec(_) if self.dictionary.is_given() => {
                Err(Failed::usage("this method has no dictionary: see --method"))
            }
            Method::Codec(_) => Ok(None),
        }
    }

    /// The library's options; what was not asked for is as in `like`.
    pub fn options(&self, like: Options) -> Options {
        let mut options = like;
        if let Some(Method::Codec(codec)) = self.method {
            options = options.codec(codec).level(codec.default_level());
        }
        if let Some(level) = self.level {
            options = options.level(level);
        }
        if !self.filter.is_empty() {
            options = options.filters(self.filter.iter().copied());
        }
        if let Some(block) = self.block {
            options = options.block_len(usize::try_from(block).unwrap_or(usize::MAX));
        }
        if self.align == Align::Records {
            options = options.align_records(true);
        }
        options.threads(self.threads.count())
    }
}

/// How many threads work.
#[derive(Args)]
pub struct Threads {
    /// Threads that compress or decode; as many as there are cores by default
    #[arg(long, short = 'T', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

impl Threads {
    /// The number asked for, or of cores.
    pub fn count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        self.threads.map_or_else(cores, usize::from)
    }
}
