//! `fiche gzip`

use std::io::{IsTerminal, Read, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, UNIX_EPOCH};

use fiche::streams::{self, Options, Reader, Writer};
use serde_json::json;

use crate::input::{self, Records, Threads};
use crate::output::Output;
use crate::sizes::{self, show};
use crate::stream::{self, Counted};
use crate::ui::{self, Failed, Progress, say};

/// Compress into a gzip file that every program reads, and that can be read anywhere
///
/// The file is made of partitions that are inflated by themselves, and an index at its end tells where these are: other programs
/// pass over it. With a name that ends with .zst, it is a zstd file of the seekable format; with .lz4 an lz4 file, whose partitions are blocks.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  fiche gzip access.log -o access.log.gz\n  pg_dump db | fiche gzip - -o db.sql.gz --level 9\n  \
fiche cat access.log.gz --range 1G+64K\n  fiche gzip --splice monday.gz:3..7 tuesday.gz -o both.gz"
)]
pub struct Args {
    /// The file, or - for standard input; with --splice one or more gzip files of ours, each with :A..B for its partitions
    /// from A up to, but without, B
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// The file to write, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What to write: gzip, zstd in its seekable format, or lz4, which programs of these names read; by default what the name of the file says
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Level, from fast to small: of gzip 1 to 12, by default 6, and 10 to 12 are much slower; of zstd 1 to 22, by default 3; of lz4 -64 to 12,
    /// by default 1
    #[arg(long, short, value_name = "N", allow_negative_numbers = true)]
    level: Option<i32>,
    /// Content of a partition, 1K to 16M, of lz4 to 4M: what a read decodes at most. Smaller ones take more space
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse, default_value = "32K")]
    partition: u64,
    /// Let partitions end where records do, where one ends in their last three quarters: lines, json:FIELD, mbox, warc,
    /// tar or fixed:BYTES
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = input::parse_records)]
    align: Records,
    /// Let partitions copy from the 32 KiB before them: the file is as small as one that is not cut, and the index larger, as it has
    /// what they copy from; levels 1 to 9
    #[arg(long)]
    prime: bool,
    /// Where the index goes: inside the file, at its end, or beside it, under its name with .fidx behind
    #[arg(long, value_name = "WHERE", default_value = "inside")]
    index: Place,
    /// Do not keep the name of the file, nor when it was written
    #[arg(long)]
    no_name: bool,
    /// Do not count lines, by which they are found
    #[arg(long)]
    no_lines: bool,
    /// Put partitions of gzip files together, as they are, without inflating any
    #[arg(long, conflicts_with_all = ["align", "level", "partition", "prime"])]
    splice: bool,
    #[command(flatten)]
    threads: Threads,
    /// Replace a file that is there already
    #[arg(long, short)]
    force: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Members of deflate
    Gzip,
    /// Frames of Zstandard
    Zstd,
    /// Blocks of lz4
    Lz4,
}

/// Where an index goes.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// At the end of the file
    Inside,
    /// In a file beside it
    Beside,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let start = Instant::now();
    if args.index == Place::Beside && args.output == Path::new("-") {
        return Err(Failed::usage("beside standard output there is no place for an index"));
    }
    let format = match args.format {
        Some(format) => format,
        None => format_of(&args.output)?,
    };
    let mut options = Options::default()
        .format(match format {
            Format::Gzip => streams::Format::Gzip,
            Format::Zstd => streams::Format::Zstd,
            Format::Lz4 => streams::Format::Lz4,
        })
        .partition(usize::try_from(args.partition).unwrap_or(usize::MAX))
        .primed(args.prime)
        .lines(!args.no_lines)
        .threads(args.threads.count());
    if let Some(level) = args.level {
        options = options.level(level);
    }
    if let Records::Split(split) = &args.align {
        options = options.align(split.clone());
    }
    let Written { len, stored_len, partitions } = match args.splice {
        true => splice(&args, options)?,
        false => compress(&args, options, format == Format::Lz4)?,
    };
    if args.output == Path::new("-") {
        return Ok(());
    }
    let stored = std::fs::metadata(&args.output).map_or(stored_len, |meta| meta.len());
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        let report = json!({
            "output": args.output.to_string_lossy(),
            "logical_bytes": len,
            "stored_bytes": stored,
            "partitions": partitions,
            "seconds": seconds,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    if !args.quiet {
        let ratio = 100.0 * stored as f64 / len.max(1) as f64;
        let rate = len as f64 / seconds.max(1e-9) / 1e6;
        let (name, from, to) = (args.output.display(), show(len), show(stored));
        say!("{name}: {partitions} partitions, {from} -> {to} ({ratio:.2} %), {rate:.0} MB/s");
    }
    Ok(())
}

/// What a file of this name is expected to be.
fn format_of(output: &Path) -> Result<Format, Failed> {
    let suffix = output.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    match &*suffix {
        "zst" => Ok(Format::Zstd),
        "lz4" => Ok(Format::Lz4),
        "7z" | "br" | "bz2" | "fiche" | "lz" | "lzma" | "tbz2" | "txz" | "xz" | "zip" => {
            let what = format!(
                "a file of .{suffix} is not written: of .gz, .zst or .lz4, or what --format says"
            );
            Err(Failed::usage(what))
        }
        _ => Ok(Format::Gzip),
    }
}

/// The file to write. What is in the way of its index is said before anything is compressed.
fn create(args: &Args) -> Result<Output, Failed> {
    let beside = stream::beside(&args.output);
    if args.index == Place::Beside && !args.force && beside.exists() {
        let error = std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            "is there already; --force replaces it",
        );
        return Err(Failed::io(&beside, error));
    }
    let output = Output::create(&args.output, args.force)?;
    match output.is_terminal() {
        true => Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o")),
        false => Ok(output),
    }
}

/// What was written: content, bytes of it all, and partitions.
struct Written {
    len: u64,
    stored_len: u64,
    partitions: u64,
}

/// Ends the file and its index; both get their names.
fn finish(args: &Args, mut writer: Writer<Output>) -> Result<Written, Failed> {
    writer.flush().map_err(fiche::Error::from)?;
    let (len, stored_len, partitions) = (writer.len(), writer.stored_len(), writer.partitions());
    match args.index {
        Place::Inside => writer.finish()?.finish()?,
        Place::Beside => {
            let mut index = Vec::new();
            writer.finish_beside(&mut index)?.finish()?;
            let mut beside = Output::create(&stream::beside(&args.output), args.force)?;
            beside.write_all(&index).map_err(fiche::Error::from)?;
            beside.finish()?;
        }
    }
    Ok(Written { len, stored_len, partitions })
}

/// Compresses a file; `has_len` where what is written begins with its length.
fn compress(args: &Args, mut options: Options, has_len: bool) -> Result<Written, Failed> {
    let [path] = args.input.as_slice() else {
        return Err(Failed::usage("one file becomes one gzip file: see `fiche pack` for many"));
    };
    let input: Box<dyn Read>;
    let (mut total, mut said) = (None, None);
    if path == Path::new("-") {
        let stdin = std::io::stdin().lock();
        if stdin.is_terminal() {
            return Err(Failed::usage("standard input is a terminal: give it a file or a pipe"));
        }
        input = Box::new(stdin);
    } else {
        let at = |error| Failed::io(path, error);
        let file = std::fs::File::open(path).map_err(at)?;
        let meta = file.metadata().map_err(at)?;
        if meta.is_dir() {
            let what = "is a directory: `fiche pack` takes it, or tar first";
            return Err(Failed::at(path, fiche::Error::Invalid { what: what.into() }));
        }
        total = meta.is_file().then_some(meta.len());
        // What the system makes up as it is read has no blocks, whatever it says of its length.
        said = total.filter(|_| has_len && meta.blocks() > 0);
        if let Some(len) = said {
            options = options.content_len(len);
        }
        if !args.no_name {
            let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let seconds = since.and_then(|since| u32::try_from(since.as_secs()).ok());
            if let Some(name) = path.file_name() {
                options = options.name(name.as_encoded_bytes());
            }
            options = options.mtime(seconds.unwrap_or(0));
        }
        // It may grow meanwhile.
        input = Box::new(file.take(said.unwrap_or(u64::MAX)));
    }
    let mut writer = Writer::new(create(args)?, options)?;
    let progress = Progress::new("compressing", total, args.quiet);
    let mut input = Counted { source: input, progress };
    let (mut piece, mut done) = (vec![0; 256 << 10], 0);
    loop {
        let len = match input.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failed::io(path, error)),
        };
        writer.write_all(&piece[..len]).map_err(fiche::Error::from)?;
        done += len as u64;
    }
    drop(input);
    if said.is_some_and(|said| done < said) {
        let error = std::io::Error::other("became shorter while it was read");
        return Err(Failed::io(path, error));
    }
    finish(args, writer)
}

/// A file, and which of its partitions; all where none are named.
fn parts(text: &Path) -> Result<(PathBuf, Option<Range<u64>>), Failed> {
    let whole = || Ok((text.to_owned(), None));
    if text.exists() {
        return whole();
    }
    let Some((file, range)) = text.to_str().and_then(|text| text.rsplit_once(':')) else {
        return whole();
    };
    let number = |text: &str, empty: u64| match text {
        "" => Some(empty),
        _ => text.parse().ok(),
    };
    let range = range
        .split_once("..")
        .and_then(|(from, to)| Some(number(from, 0)?..number(to, u64::MAX)?))
        .filter(|range| range.start <= range.end);
    match range {
        Some(range) => Ok((file.into(), Some(range))),
        None => whole(),
    }
}

fn splice(args: &Args, options: Options) -> Result<Written, Failed> {
    let mut readers: Vec<(PathBuf, Reader, Range<u64>)> = Vec::new();
    for text in &args.input {
        let (path, range) = parts(text)?;
        let source = input::source(&path)?;
        let none = stream::Index::default();
        let reader = stream::open(&path, &source, &none)?.ok_or_else(|| {
            let what = "has no partitions of its own: `fiche gzip` makes files that have";
            Failed::at(&path, fiche::Error::Invalid { what: what.into() })
        })?;
        let all = reader.units();
        let range = match range {
            Some(range) if range.end == u64::MAX => range.start..all.max(range.start),
            Some(range) => range,
            None => 0..all,
        };
        readers.push((path, reader, range));
    }
    let mut writer = Writer::new(create(args)?, options)?;
    for (path, reader, range) in readers {
        writer.splice(&reader, range).map_err(|error| match error {
            // What could not be written says its name.
            fiche::Error::Io(error) => fiche::Error::Io(error).into(),
            error => Failed::at(&path, error),
        })?;
    }
    finish(args, writer)
}
