//! `fiche pack`

use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::archive::{Method, Options, Packed, Writer};
use fiche::rlz::Coding;
use serde_json::json;

use crate::input::Blocks;
use crate::output::Output;
use crate::sizes::show;
use crate::source::Source;
use crate::ui::{self, Failed, say};

/// Pack files, folders or a stream into an archive
#[derive(clap::Args)]
#[command(after_help = "Each input is kept under its last name: `fiche pack /data/logs` gives \
records logs/.... A symbolic link, pipe or device given here stands for what it leads to; below \
a folder, links stay links.\n\nExamples:\n  fiche pack src -o src.fiche --exclude '*.o'\n  \
pg_dump db | fiche pack - -o db.fiche --method zstd --level 19 --block 64K\n  fiche pack crawl.warc.gz -o \
crawl.fiche --records warc --align records\n  fiche pack --from access.log.gz -o access.fiche --records lines")]
pub struct Args {
    /// Files and folders, or - for standard input
    #[arg(required_unless_present = "from")]
    input: Vec<PathBuf>,
    /// Pack what this gzip, zstd, xz or lz4 file holds, as it is read; - for a gzip file from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    from: Option<PathBuf>,
    /// The archive to write, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    blocks: Blocks,
    /// Replace an archive that is there already
    #[arg(long, short)]
    force: bool,
    /// Print what was packed as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let start = Instant::now();
    let (blocks, quiet) = (&args.blocks, args.quiet);
    let mut options = blocks.options(Options::default());
    let coding = blocks.coding((Method::Coding(Coding::Hybrid), None))?;
    let mut source = match &args.from {
        Some(path) => Source::unpacked(path, &blocks.records)?,
        None => blocks.source(&args.input, &args.output)?,
    };
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    // What is damaged is what a compressed file holds.
    let about = |failed: Failed| match &args.from {
        Some(path) => failed.if_damage_of(path),
        None => failed,
    };
    if let Some(coding) = coding {
        let learned = source.learn(quiet, |content| {
            // A pipe given by its name cannot be looked at before it is packed.
            match content.is_empty() && blocks.asks_for_nothing() {
                true => Ok(options),
                false => {
                    let threads = blocks.threads.count();
                    blocks.dictionary.options(options, coding, content, threads, quiet)
                }
            }
        });
        options = learned.map_err(about)?;
    }
    let mut writer = Writer::new(output, options)?;
    let packed = source.write(&mut writer, quiet).map_err(|error| about(error.into()))?;
    let len = writer.offset();
    writer.finish()?.finish()?;
    let stored = std::fs::metadata(&args.output).map_or(0, |meta| meta.len());
    summary(&args, &packed, len, stored, start)?;
    not_all(&packed)
}

/// The exit code of what was packed, but not as it should have been.
pub fn not_all(packed: &Packed) -> Result<(), Failed> {
    match packed.skipped.is_empty() && packed.changed.is_empty() {
        true => Ok(()),
        false => {
            let error = std::io::Error::other("not all was packed");
            Err(Failed::said(fiche::Error::Io(error)))
        }
    }
}

fn summary(
    args: &Args,
    packed: &Packed,
    len: u64,
    stored: u64,
    start: Instant,
) -> Result<(), Failed> {
    let seconds = start.elapsed().as_secs_f64();
    let report = json!({
        "output": args.output.to_string_lossy(),
        "records": packed.records,
        "input_bytes": packed.bytes,
        "logical_bytes": len,
        "stored_bytes": stored,
        "equal_files": packed.equal_files,
        "equal_bytes": packed.equal_bytes,
        "skipped": packed.skipped.iter().map(|(path, _)| path.to_string_lossy()).collect::<Vec<_>>(),
        "changed": packed.changed.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "seconds": seconds,
    });
    if args.output == Path::new("-") {
        return Ok(());
    }
    if args.json {
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    if !args.quiet {
        let ratio = 100.0 * stored as f64 / packed.bytes.max(1) as f64;
        let rate = packed.bytes as f64 / seconds.max(1e-9) / 1e6;
        say!(
            "{}: {} records, {} -> {} ({ratio:.2} %), {rate:.0} MB/s",
            args.output.display(),
            packed.records,
            show(packed.bytes),
            show(stored),
        );
        if packed.equal_files > 0 {
            let (files, bytes) = (packed.equal_files, show(packed.equal_bytes));
            say!("{files} files of {bytes} equal others and were stored once");
        }
    }
    Ok(())
}
