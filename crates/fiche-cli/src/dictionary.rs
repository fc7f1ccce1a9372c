//! Dictionaries: which one blocks are packed with, and `fiche dict`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Subcommand;
use fiche::ReadAt;
use fiche::archive::{Content, Options, Reader};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary, Sampling};
use serde_json::json;

use crate::output::Output;
use crate::pack;
use crate::sizes::{self, show};
use crate::ui::{self, Failed, say};

/// What blocks are compressed with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Codec(Codec),
    Coding(Coding),
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Method, String> {
        if let Ok(codec) = name.parse() {
            return Ok(Method::Codec(codec));
        }
        name.parse().map(Method::Coding).map_err(|_| {
            let names = |names: Vec<&str>| names.join(", ");
            let codecs = names(Codec::ALL.iter().map(|codec| codec.name()).collect());
            let codings = names(Coding::ALL.iter().map(|coding| coding.name()).collect());
            format!("the methods are {codecs}; with a dictionary {codings}")
        })
    }
}

/// Where a dictionary comes from.
#[derive(Clone)]
enum Source {
    Sampled(u64),
    File(PathBuf),
}

fn parse_source(text: &str) -> Result<Source, String> {
    match sizes::parse(text) {
        Ok(len) => Ok(Source::Sampled(len)),
        Err(_) => Ok(Source::File(text.into())),
    }
}

/// What a block is primed with by `zlib-primed`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Prime {
    /// The part of the dictionary that was sampled around the block
    Near,
    /// Its first part
    First,
}

/// Which samples of the input a dictionary is made of.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Samples {
    /// Evenly spaced ones
    Even,
    /// Those that cover most of what the blocks have in common
    Cover,
}

/// The dictionary of methods that have one.
#[derive(clap::Args)]
pub struct Choice {
    /// For methods with a dictionary: its size, or a file that `fiche dict build` wrote, which is then
    /// needed for reading, too. 4M by default, or a sixteenth of the input where that is less; for
    /// hybrid 16M, at levels 1 to 4 4M, or a quarter
    #[arg(long, value_name = "SIZE|FILE", value_parser = parse_source)]
    dict: Option<Source>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// For rlz-zzz: factors shorter than this are literals
    #[arg(long, value_name = "N", default_value_t = 4)]
    min_literal: u32,
    /// For zlib-primed: what each block is primed with
    #[arg(long, value_name = "WHAT", default_value = "near")]
    prime: Prime,
}

/// How a dictionary is sampled.
#[derive(clap::Args)]
struct SamplingArgs {
    /// Length of the samples that a dictionary is made of
    #[arg(long, value_name = "SIZE", default_value = "1K", value_parser = sizes::parse)]
    sample: u64,
    /// Which samples are taken: evenly spaced ones, or those that cover most of what the blocks have in
    /// common. For hybrid the latter, else the former by default
    #[arg(long, value_name = "WHICH")]
    samples: Option<Samples>,
    /// Sample so many times as much, and cut out what the input uses least
    #[arg(long, value_name = "N", default_value_t = 1)]
    prune: u64,
}

impl SamplingArgs {
    fn run(
        &self,
        len: u64,
        content: &dyn ReadAt,
        coding: Option<Coding>,
    ) -> Result<Dictionary, Failed> {
        let covers = coding.is_some_and(Coding::is_hybrid);
        let usual = if covers { Samples::Cover } else { Samples::Even };
        let covers = self.samples.unwrap_or(usual) == Samples::Cover;
        let sampling = Sampling::default().len(len).sample_len(self.sample).cover(covers);
        Ok(sampling.oversample(self.prune).run(content)?)
    }
}

/// As long as a dictionary is when nobody says: with less input it would be too large a part.
/// Samples that were chosen are worth more than they take for longer.
fn usual_len(content: u64, coding: Coding) -> u64 {
    let (part, most) = match coding {
        Coding::Hybrid => (4, 16 << 20),
        // More would not stay in a core's cache.
        Coding::Fast => (4, 4 << 20),
        _ => (16, 4 << 20),
    };
    (content / part).next_multiple_of(1 << 10).clamp(1 << 10, most)
}

impl Choice {
    /// True when an option is given that only methods with a dictionary have.
    pub fn is_given(&self) -> bool {
        self.dict.is_some()
    }

    /// The options with a coding and its dictionary, sampled from this content.
    pub fn options(
        &self,
        options: Options,
        (coding, level): (Coding, Option<i32>),
        content: &dyn ReadAt,
        quiet: bool,
    ) -> Result<Options, Failed> {
        let (dictionary, file) = match &self.dict {
            Some(Source::File(path)) => {
                let dictionary = Dictionary::open(path).map_err(|e| Failed::at(path, e))?;
                (dictionary, Some(path))
            }
            Some(Source::Sampled(len)) => (self.sampling.run(*len, content, Some(coding))?, None),
            None => {
                (self.sampling.run(usual_len(content.len(), coding), content, Some(coding))?, None)
            }
        };
        let mut options = options;
        if let Some(path) = file {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            options = options.dictionary_file(name);
        }
        let coder = coder(coding, level, Arc::new(dictionary), quiet)?;
        let mut coder = coder.min_literal(self.min_literal)?;
        if coding == Coding::ZzPrimed {
            coder = coder.probe(&Sampling::probe(content)?);
        }
        coder = coder.learn(content, options.block_bytes())?;
        if self.prime == Prime::Near {
            coder = coder.collection(content.len());
        }
        Ok(options.coder(Arc::new(coder)))
    }

    /// The options with a coding and the dictionary that the archive has already.
    pub fn options_of(
        &self,
        options: Options,
        (coding, level): (Coding, Option<i32>),
        archive: &Reader,
        quiet: bool,
    ) -> Result<Option<Options>, Failed> {
        let all = archive.dictionaries()?;
        let (None, Some((digest, _, name))) = (&self.dict, all.last()) else { return Ok(None) };
        let coder = coder(coding, level, archive.dictionary(digest)?, quiet)?;
        let coder = coder.min_literal(self.min_literal)?.learn(archive, options.block_bytes())?;
        let options = match name {
            Some(name) => options.dictionary_file(name.clone()),
            None => options,
        };
        Ok(Some(options.coder(Arc::new(coder))))
    }
}

/// Prepares a dictionary, and says before what much memory it takes.
fn coder(
    coding: Coding,
    level: Option<i32>,
    dictionary: Arc<Dictionary>,
    quiet: bool,
) -> Result<Coder, Failed> {
    let level = level.unwrap_or(coding.default_level());
    let memory = Coder::memory_for(coding, level, dictionary.len() as u64);
    if memory > 512 << 20 && !quiet {
        let len = show(dictionary.len() as u64);
        say!("preparing a dictionary of {len} takes up to {} of memory", show(memory));
    }
    Ok(Coder::with_level(coding, level, dictionary)?)
}

/// Make dictionaries that many archives share
#[derive(Subcommand)]
pub enum Verb {
    Build(Build),
}

/// Sample files and folders into a dictionary file
///
/// Archives that are packed with `--dict FILE` name it and do not hold it: for reading, it
/// stands beside them under its name, or is given by --dict.
#[derive(clap::Args)]
pub struct Build {
    /// Files and folders
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// The dictionary file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Length of the dictionary
    #[arg(long, short, value_name = "SIZE", default_value = "4M", value_parser = sizes::parse)]
    size: u64,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Leave out what matches: a name, or with a slash a path. May be given often
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Replace a file that is there already
    #[arg(long, short)]
    force: bool,
    /// Print what was built as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    let Verb::Build(args) = verb;
    let mut folder = pack::look_at(&args.input, &args.exclude, true, &args.output)?;
    let content: Content<'_> = folder.content();
    let dictionary = Arc::new(args.sampling.run(args.size, &content, None)?);
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    dictionary.write_to(output)?.finish()?;
    let stored = std::fs::metadata(&args.output).map_or(0, |meta| meta.len());
    if args.json {
        return describe(&args.output, &dictionary, stored, true);
    }
    if !args.quiet {
        let (name, len) = (args.output.display(), show(dictionary.len() as u64));
        say!("{name}: {len} of {} stored as {}", show(content.len()), show(stored));
    }
    Ok(())
}

/// Prints what a dictionary file is.
pub fn describe(
    path: &Path,
    dictionary: &Dictionary,
    stored: u64,
    as_json: bool,
) -> Result<(), Failed> {
    let (digest, len) = (dictionary.digest(), dictionary.len());
    let text = match as_json {
        true => {
            let report = json!({
                "kind": "dictionary",
                "file": path.to_string_lossy(),
                "digest": digest.to_string(),
                "logical_bytes": len,
                "stored_bytes": stored,
            });
            format!("{report:#}\n")
        }
        false => format!(
            "kind        dictionary\ncontent     {len} bytes ({})\nfile        {stored} bytes ({})\n\
             BLAKE3      {digest}\n",
            show(len as u64),
            show(stored)
        ),
    };
    ui::print(text.as_bytes())
}

/// Dictionary files for reading.
#[derive(clap::Args, Default)]
pub struct Given {
    /// A dictionary file that the archive needs, where it is not beside it under its name, or one in
    /// the archive is damaged. May be given often
    #[arg(long, value_name = "FILE")]
    dict: Vec<PathBuf>,
}

impl Given {
    pub fn load(&self) -> Result<Vec<Arc<Dictionary>>, Failed> {
        let open = |path: &PathBuf| {
            Dictionary::open(path).map(Arc::new).map_err(|error| Failed::at(path, error))
        };
        self.dict.iter().map(open).collect()
    }
}

/// Copies a stream into a file without a name in the temporary folder: a dictionary is sampled from
/// all of it.
pub fn spool(input: &mut dyn std::io::Read) -> Result<std::fs::File, Failed> {
    let folder = std::env::temp_dir();
    let at = |error| Failed::io(&folder, error);
    let mut file = tempfile::tempfile_in(&folder).map_err(at)?;
    let mut buf = vec![0; 256 << 10];
    loop {
        match input.read(&mut buf) {
            Ok(0) => return Ok(file),
            Ok(len) => file.write_all(&buf[..len]).map_err(at)?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fiche::Error::from(error).into()),
        }
        ui::check_stop()?;
    }
}
