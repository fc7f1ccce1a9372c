//! `fiche index`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::ReadAt;
use fiche::streams::{Foreign, IndexOptions, Reader, export_index, import_index, index};
use serde_json::json;

use crate::input;
use crate::output::Output;
use crate::sizes::{self, show};
use crate::stream::{self, Counted};
use crate::ui::{self, Failed, Progress, say};

/// Make an index of a gzip, zstd, xz or lz4 file, so that any piece of it is read without what is before
///
/// The file stays as it is, and its index is written beside it, under its name with .fidx behind: there `fiche cat`,
/// `info`, `verify` and `mount` find it.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  fiche index dump.sql.gz\n  fiche cat dump.sql.gz --range 40G+1M\n  \
fiche cat access.log.gz --record '#1000000..#1000010'\n  curl -s URL | tee x.gz | fiche index - -o x.gz.fidx"
)]
pub struct Args {
    /// The file, or - for a gzip file from standard input
    file: PathBuf,
    /// The index to write, instead of one beside the file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Of gzip: content from one place to the next at which reading can begin, 64K to 1G; half as many are decoded for each
    /// read, and the index has 1 to 3 KiB for each
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse, default_value = "1M")]
    spacing: u64,
    /// Do not count lines, by which they are found
    #[arg(long)]
    no_lines: bool,
    /// Take the index that indexed_gzip has exported, or bgzip's .gzi
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["spacing", "export"])]
    import: Option<PathBuf>,
    /// Write the index that the file has as another program has its own: bgzip's if the name ends with .gzi, else
    /// indexed_gzip's
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["spacing", "output"])]
    export: Option<PathBuf>,
    /// Replace an index that is there already
    #[arg(long, short)]
    force: bool,
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let start = Instant::now();
    let options = IndexOptions::default().spacing(args.spacing).lines(!args.no_lines);
    let is_stdin = args.file == Path::new("-");
    if let Some(path) = &args.export {
        return export(&args, path);
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None if is_stdin => return Err(Failed::usage("name the index with -o")),
        None if input::url(&args.file).is_some() => {
            return Err(Failed::usage("the index of a file that is far away is named with -o"));
        }
        None => stream::beside(&args.file),
    };
    if is_stdin {
        let stdin = std::io::stdin().lock();
        if stdin.is_terminal() {
            return Err(Failed::usage("standard input is a terminal: give it a file or a pipe"));
        }
        let mut output = Output::create(&path, args.force)?;
        let progress = Progress::new("indexing", None, args.quiet);
        let bytes = Counted { source: stdin, progress };
        let result = index(bytes, &options, &mut output, std::io::sink());
        result.map_err(|error| Failed::at(Path::new("standard input"), error))?;
        return output.finish();
    }
    let source = input::source(&args.file)?;
    let at = |error| Failed::at(&args.file, error);
    if !stream::is_stream(&source).map_err(at)? {
        return Err(at(fiche::Error::Invalid {
            what: "this is neither gzip nor zstd, xz or lz4".into(),
        }));
    }
    let output = Output::create(&path, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("an index is not for a terminal: name a file with -o"));
    }
    match &args.import {
        Some(other) => {
            let mut output = output;
            let about = |error| Failed::at(other, error);
            import_index(&source, &input::source(other)?, &mut output).map_err(about)?;
            output.finish()?;
        }
        None => stream::make(&source, &options, output, args.quiet).map_err(at)?.finish()?,
    }
    if path == Path::new("-") {
        return Ok(());
    }
    let reader = Reader::with_index(source, input::source(&path)?).map_err(at)?;
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        let report = json!({
            "output": path.to_string_lossy(),
            "logical_bytes": reader.len(),
            "stored_bytes": reader.stored_len(),
            "index_bytes": reader.index_len(),
            "units": reader.units(),
            "lines": reader.line_feeds(),
            "seconds": seconds,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    if !args.quiet {
        let share = 100.0 * reader.index_len() as f64 / reader.stored_len().max(1) as f64;
        let rate = reader.len() as f64 / seconds.max(1e-9) / 1e6;
        let (len, index, units) = (show(reader.len()), show(reader.index_len()), reader.units());
        say!(
            "{}: {len}, {units} places to begin, {index} ({share:.2} %), {rate:.0} MB/s",
            path.display()
        );
    }
    Ok(())
}

/// Writes the index of a file in the form of another program.
fn export(args: &Args, path: &Path) -> Result<(), Failed> {
    let source = input::source(&args.file)?;
    let to = match path.extension().is_some_and(|suffix| suffix == "gzi") {
        true => Foreign::Gzi,
        false => Foreign::IndexedGzip,
    };
    let reader = stream::open_anyhow(&args.file, &source, &stream::Index::default())?;
    let mut output = Output::create(path, args.force)?;
    export_index(&reader, &source, to, &mut output)
        .map_err(|error| Failed::at(&args.file, error))?;
    output.finish()
}
