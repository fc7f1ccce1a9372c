//! Dictionaries: which one blocks are packed with, and `fiche dict`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use fiche::ReadAt;
use fiche::archive::{Content, Options, Reader};
use fiche::rlz::{Coding, Dictionary, Sampling, Training};
use serde_json::json;

use crate::output::Output;
use crate::sizes::{self, show};
use crate::source;
use crate::ui::{self, Failed, say};

/// Where a dictionary comes from.
#[derive(Clone)]
enum Source {
    Auto,
    None,
    Sampled(u64),
    File(PathBuf),
}

fn parse_source(text: &str) -> Result<Source, String> {
    match (text, sizes::parse(text)) {
        ("auto", _) => Ok(Source::Auto),
        ("none", _) => Ok(Source::None),
        (_, Ok(0)) => Err("a dictionary has a length; `none` is for none".into()),
        (_, Ok(len)) => Ok(Source::Sampled(len)),
        (_, Err(_)) => Ok(Source::File(text.into())),
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
    /// For methods with a dictionary: its size at most, auto, none, or a file that `fiche dict build`
    /// wrote, which is then needed for reading, too. auto, the default, is 4M, or a sixteenth of the
    /// input where that is less; for hybrid 16M, at levels 1 to 4 4M, or a quarter
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
    fn sampling(&self) -> Sampling {
        Sampling::default().sample_len(self.sample).oversample(self.prune)
    }
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
        threads: usize,
        quiet: bool,
    ) -> Result<Options, Failed> {
        let mut options = options;
        let training = Training::new(coding).block_len(options.block_bytes());
        let training = training.level(level.unwrap_or(coding.default_level()));
        let training = training.sampling(self.sampling.sampling()).min_literal(self.min_literal);
        let mut training = training.near(self.prime == Prime::Near).threads(threads);
        if let Some(samples) = self.sampling.samples {
            training = training.cover(samples == Samples::Cover);
        }
        match &self.dict {
            None | Some(Source::Auto) => {}
            Some(Source::None) => training = training.dictionary_len(0),
            Some(Source::Sampled(len)) => training = training.dictionary_len(*len),
            Some(Source::File(path)) => {
                let dictionary = Dictionary::open(path).map_err(|e| Failed::at(path, e))?;
                training = training.dictionary(Arc::new(dictionary));
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                options = options.dictionary_file(name);
            }
        }
        warn(training.memory_for(content.len()), quiet);
        Ok(options.coder(Arc::new(training.run(content)?)))
    }

    /// The options with a coding and the dictionary that the archive has already.
    pub fn options_of(
        &self,
        options: Options,
        (coding, level): (Coding, Option<i32>),
        archive: &Reader,
        threads: usize,
        quiet: bool,
    ) -> Result<Option<Options>, Failed> {
        let all = archive.dictionaries()?;
        let (None, Some((digest, _, name))) = (&self.dict, all.last()) else { return Ok(None) };
        let training = Training::new(coding).level(level.unwrap_or(coding.default_level()));
        let training = training.dictionary(archive.dictionary(digest)?);
        let training = training.block_len(options.block_bytes()).min_literal(self.min_literal);
        // What is added has no place in what the dictionary was sampled from.
        let training = training.near(false).threads(threads);
        warn(training.memory_for(archive.len()), quiet);
        let options = match name {
            Some(name) => options.dictionary_file(name.clone()),
            None => options,
        };
        Ok(Some(options.coder(Arc::new(training.run(archive)?))))
    }
}

/// Says it before much memory is taken.
fn warn(memory: u64, quiet: bool) {
    if memory > 512 << 20 && !quiet {
        say!("preparing the dictionary takes up to {} of memory", show(memory));
    }
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
    let mut folder = source::look_at(&args.input, &args.exclude, true, &args.output)?;
    let content: Content<'_> = folder.content();
    let covers = args.sampling.samples == Some(Samples::Cover);
    let dictionary = args.sampling.sampling().len(args.size).cover(covers).run(&content)?;
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    let dictionary = Arc::new(dictionary);
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
