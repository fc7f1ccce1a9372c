//! `fiche unpack`

use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fiche::archive::{Failure, Reader, Restore};
use fiche::{Error, Place, ReadAt};
use serde_json::json;

use crate::dictionary::Given;
use crate::input::{self, Threads};
use crate::output::Output;
use crate::sizes::show;
use crate::ui::{self, Failed, Progress, one_line, say};

/// Bring packed files back
///
/// Files are written below the current folder, or the one that -o names, and nowhere
/// else. An archive of a stream, which has no records, is written to the file that -o
/// names, or to standard output by `-o -`.
#[derive(clap::Args)]
pub struct Args {
    /// The archive
    file: PathBuf,
    /// Only these records, and what is below those that are folders
    path: Vec<OsString>,
    /// Where to: a folder, or for a stream a file; - writes all content to standard output
    #[arg(long, short, value_name = "DIR|FILE")]
    output: Option<PathBuf>,
    /// Replace files that are there already
    #[arg(long, short)]
    force: bool,
    /// Go on after damage: restore all that is whole, write damaged files as NAME.damaged with
    /// zeros for what is lost and content whose names are lost as content-START-END, and list
    /// the losses
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    dictionaries: Given,
    #[command(flatten)]
    threads: Threads,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let source = input::source(&args.file)?;
    let options = input::options(&args.file, &args.dictionaries)?;
    let mut damaged = false;
    let reader = match args.keep_going {
        false => options.open(source).map_err(at)?,
        true => {
            let (reader, recovered) = options.recover(source).map_err(at)?;
            let file = args.file.display();
            damaged = !recovered.is_whole();
            if recovered.rebuilt > 0 {
                let count = recovered.rebuilt;
                say!("{file}: {count} chapter tables are lost: blocks were found without them");
            }
            if recovered.cut {
                let end = reader.len();
                say!("{file}: was cut: what came behind byte {end} of the content is lost");
            }
            if recovered.records_lost > 0 {
                let lost = recovered.records_lost;
                say!("{file}: lost: {lost} records with their names");
            }
            for gap in &recovered.lost {
                say!("{file}: lost: bytes {} to {} of the content", gap.start, gap.end);
            }
            for number in &recovered.incomplete {
                say!("{file}: lost: the end of record #{number}");
            }
            reader
        }
    };
    if damaged && reader.is_empty() && reader.records() == 0 {
        say!("{}: nothing is left that could be restored", args.file.display());
        return Err(Failed::said(Error::Corrupt { what: "archive", at: Place::Pos(0) }));
    }
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout || (args.path.is_empty() && reader.is_stream()) {
        return stream(&args, &reader, damaged);
    }
    let target = args.output.clone().unwrap_or_else(|| PathBuf::from("."));
    ui::set_left("files that were restored whole are there");
    ui::will_check();
    let progress = Progress::new("unpacking", Some(reader.len()), args.quiet);
    let restored = Restore::new(&target)
        .only(args.path.iter().map(|path| path.as_bytes()))
        .overwrite(args.force)
        .keep_going(args.keep_going)
        .threads(args.threads.count())
        .run(&reader, &mut |bytes| progress.add(bytes))
        .map_err(|error| match error {
            // These are about what is written, and name it.
            Error::Io(error) => Error::Io(error).into(),
            error => at(error),
        })?;
    progress.done();
    for failure in &restored.failed {
        let name = match (failure.name.is_empty(), failure.number) {
            (false, _) => one_line(&failure.name),
            (true, u64::MAX) => "records whose names are lost".to_owned(),
            (true, number) => format!("#{number}"),
        };
        say!("{name}: {}", failure.error);
        for gap in &failure.lost {
            say!("{name}: lost: bytes {} to {}", gap.start, gap.end);
        }
    }
    if args.json {
        let failed = restored.failed.iter().map(|f| {
            json!({
                "number": f.number,
                "name": String::from_utf8_lossy(&f.name),
                "error": f.error.to_string(),
                "lost": f.lost.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
            })
        });
        let report = json!({
            "records": restored.records,
            "bytes": restored.bytes,
            "without_record":
                restored.without_record.iter().map(|r| [r.start, r.end]).collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
        });
        ui::print(format!("{report:#}\n").as_bytes())?;
    } else if !args.quiet {
        let (records, bytes) = (restored.records, show(restored.bytes));
        say!("{}: {records} records, {bytes} to {}", args.file.display(), target.display());
    }
    for range in &restored.without_record {
        let (start, end) = (range.start, range.end);
        let what = format!("{}: bytes {start} to {end} of the content", args.file.display());
        if args.keep_going {
            let path = target.join(format!("content-{start}-{end}"));
            if path.is_symlink() {
                // It came out of the archive, and may lead anywhere.
                let error = std::io::Error::other("is a symbolic link: it is not followed");
                return Err(Failed::io(&path, error));
            }
            let mut output = Output::create(&path, args.force)?;
            if copy_what_is_left(&args, &reader, range.clone(), &mut output, &mut |_| Ok(()))? {
                output.call_damaged();
            }
            output.finish()?;
            say!("{what} belong to no file that is known: they are in {}", path.display());
        } else {
            say!("{what} belong to no file, and were not written: `fiche cat` reads them");
        }
    }
    let refused = |f: &Failure| matches!(f.error, Error::Io(_) | Error::Invalid { .. });
    let what = Error::Corrupt { what: "archive", at: Place::Pos(0) };
    if damaged || restored.failed.iter().any(|failure| !refused(failure)) {
        return Err(Failed::said(what));
    }
    match restored.failed.is_empty() && restored.without_record.is_empty() {
        true => Ok(()),
        false => Err(Failed::said(Error::Io(std::io::Error::other("not all was restored")))),
    }
}

/// Bytes that are read at a time when some may be damaged.
const STEP: u64 = 1 << 20;

/// Writes a range of the content, zeros where it is lost; tells whether some of it is.
fn copy_what_is_left(
    args: &Args,
    reader: &Reader,
    range: Range<u64>,
    output: &mut Output,
    progress: &mut dyn FnMut(u64) -> fiche::Result<()>,
) -> Result<bool, Failed> {
    let (mut buf, mut offset, mut damaged) = (Vec::new(), range.start, false);
    while offset < range.end {
        buf.resize(STEP.min(range.end - offset) as usize, 0);
        let gaps = reader.read_what_is_left(offset, &mut buf);
        for gap in gaps.map_err(|error| Failed::at(&args.file, error))? {
            damaged = true;
            let file = args.file.display();
            say!("{file}: lost: bytes {} to {} of the content", gap.start, gap.end);
        }
        output.write_all(&buf).map_err(Error::Io)?;
        progress(buf.len() as u64)?;
        offset += buf.len() as u64;
    }
    Ok(damaged)
}

/// The content as one file.
fn stream(args: &Args, reader: &Reader, mut damaged: bool) -> Result<(), Failed> {
    let Some(path) = &args.output else {
        return Err(Failed::usage(
            "this archive holds a stream: name a file for it with -o, or -o -",
        ));
    };
    if !args.path.is_empty() {
        return Err(Failed::usage(
            "-o - writes all the content; fiche cat --record writes one record",
        ));
    }
    let at = |error| Failed::at(&args.file, error);
    let mut output = Output::create(path, args.force)?;
    let progress = Progress::new("unpacking", Some(reader.len()), args.quiet);
    if args.keep_going {
        damaged |= copy_what_is_left(args, reader, 0..reader.len(), &mut output, &mut |bytes| {
            progress.add(bytes)
        })?;
    } else {
        let mut stream = reader.stream(0..reader.len(), args.threads.count()).map_err(at)?;
        while let Some(piece) = stream.next() {
            let (_, bytes) = piece.map_err(at)?;
            output.write_all(&bytes).map_err(Error::Io)?;
            progress.add(bytes.len() as u64)?;
            stream.recycle(bytes);
        }
    }
    progress.done();
    if damaged {
        // What is not whole does not get the name that was asked for.
        output.call_damaged();
    }
    output.finish()?;
    match damaged {
        true => Err(Failed::said(Error::Corrupt { what: "content", at: Place::Pos(0) })),
        false => Ok(()),
    }
}
