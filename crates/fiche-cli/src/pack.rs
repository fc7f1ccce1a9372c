//! `fiche pack`

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::archive::{Folder, Options, Packed, Writer};
use fiche::{Cursor, FileSource};
use serde_json::json;

use crate::dictionary;
use crate::input::{Blocks, Records};
use crate::output::Output;
use crate::sizes::show;
use crate::ui::{self, Failed, Progress, say};

/// Pack files, folders or a stream into an archive
#[derive(clap::Args)]
#[command(after_help = "Each input is kept under its last name: `fiche pack /data/logs` gives \
records logs/.... A symbolic link, pipe or device given here stands for what it leads to; below \
a folder, links stay links.\n\nExamples:\n  fiche pack src -o src.fiche --exclude '*.o'\n  \
pg_dump db | fiche pack - -o db.fiche --method zstd --level 19 --block 64K\n  fiche pack crawl.warc.gz -o \
crawl.fiche --records warc --align records")]
pub struct Args {
    /// Files and folders, or - for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
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
    let mut options = args.blocks.options(Options::default());
    let coding = args.blocks.coding(None);
    args.blocks.check(coding.map(|(coding, _)| coding))?;
    let stream = args.input == [Path::new("-")];
    let mut folder = match stream {
        true => None,
        false => Some(folder(&args.input, &args.blocks, &args.output)?),
    };
    let mut spooled = None;
    if let Some(coding) = coding {
        let dictionary = &args.blocks.dictionary;
        options = match &mut folder {
            Some(folder) => dictionary.options(options, coding, &folder.content(), args.quiet)?,
            None => {
                let file = FileSource::new(dictionary::spool(&mut standard_input()?)?)?;
                let options = dictionary.options(options, coding, &file, args.quiet)?;
                spooled = Some(Cursor::new(file));
                options
            }
        };
    }
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    let mut writer = Writer::new(output, options)?;
    let mut packed = match folder {
        Some(folder) => write_folder(folder, &mut writer, args.quiet)?,
        None => {
            let mut packed = Packed::default();
            packed.records = match &mut spooled {
                Some(file) => write_stream(file, &mut writer, &args.blocks, args.quiet)?,
                None => {
                    write_stream(&mut standard_input()?, &mut writer, &args.blocks, args.quiet)?
                }
            };
            packed
        }
    };
    let len = writer.offset();
    if stream {
        packed.bytes = len;
    }
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

/// Looks at all inputs.
pub fn folder(input: &[PathBuf], blocks: &Blocks, output: &Path) -> Result<Folder, Failed> {
    let folder = look_at(input, &blocks.exclude, blocks.keep_going, output)?;
    Ok(match &blocks.records {
        Records::Split(split) => folder.split(split.clone()),
        Records::Files => folder,
    })
}

/// Looks at all of these files and folders.
pub fn look_at(
    input: &[PathBuf],
    exclude: &[String],
    keep_going: bool,
    output: &Path,
) -> Result<Folder, Failed> {
    if input.iter().any(|path| path == Path::new("-")) {
        return Err(Failed::usage("standard input is packed alone, without other inputs"));
    }
    let mut folder = Folder::new(exclude)?.keep_going(keep_going);
    folder.skip(output);
    for path in input {
        folder.add(path)?;
        ui::check_stop()?;
    }
    Ok(folder)
}

/// Writes all inputs, with a progress bar.
pub fn write_folder<W: Write>(
    folder: Folder,
    writer: &mut Writer<W>,
    quiet: bool,
) -> Result<Packed, fiche::Error> {
    let progress = Progress::new("packing", Some(folder.bytes()), quiet);
    let packed = folder.write_to(writer, &mut |bytes| progress.add(bytes))?;
    progress.done();
    for path in &packed.sockets {
        say!("{}: a socket, which is not kept", path.display());
    }
    for (_, error) in &packed.skipped {
        say!("left out: {error}");
    }
    for path in &packed.changed {
        say!("{}: changed while it was being packed", path.display());
    }
    Ok(packed)
}

/// What comes in, unless somebody would have to type it.
pub fn standard_input() -> Result<std::io::StdinLock<'static>, fiche::Error> {
    let input = std::io::stdin().lock();
    match input.is_terminal() {
        true => {
            let what = "standard input is a terminal: give it a file or a pipe".into();
            Err(fiche::Error::Invalid { what })
        }
        false => Ok(input),
    }
}

/// Writes one stream; returns how many records there are in it.
pub fn write_stream<W: Write>(
    mut input: &mut dyn Read,
    writer: &mut Writer<W>,
    blocks: &Blocks,
    quiet: bool,
) -> Result<u64, fiche::Error> {
    let progress = Progress::new("packing", None, quiet);
    if let Records::Split(split) = &blocks.records {
        let items = writer.add_records(split, &mut input, &mut |bytes| progress.add(bytes))?;
        return Ok(items.end - items.start);
    }
    let mut buf = vec![0; 256 << 10];
    loop {
        let len = match input.read(&mut buf) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        writer.write_all(&buf[..len])?;
        progress.add(len as u64)?;
    }
    Ok(0)
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
