//! `fiche cat`

use std::io::{Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fiche::archive::{Reader, Record};
use fiche::codec::deflate::Gunzip;
use fiche::streams;
use fiche::{Cursor, Error, ReadAt};

use crate::dictionary::Given;
use crate::input::{self, Threads};
use crate::output::Output;
use crate::sizes::{self, Part};
use crate::stream;
use crate::ui::{self, Failed, check_stop, say};

/// Write any pieces of an archive, or of a gzip, zstd, xz or lz4 file, to standard output
///
/// Without a range or a record it writes all the content. With records, ranges are
/// ranges of each of them. The records of a gzip, zstd, xz or lz4 file are
/// its lines.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  fiche cat logs.fiche --range 1M+16K --range 5G+100\n  \
fiche cat src.fiche --record src/main.rs\n  fiche cat src.fiche --record '#17' --range ..100\n  fiche cat log.fiche --record '#100..#200'")]
pub struct Args {
    /// The archive, or gzip, zstd, xz or lz4 file
    file: PathBuf,
    /// START+LENGTH, START..END or START..; may be given often
    #[arg(long, short, value_name = "RANGE", value_parser = sizes::parse_part)]
    range: Vec<Part>,
    /// A record by name, or #N by number (##... for a name that starts with #), or #A..#B for all
    /// from #A up to, but without, #B; may be given often
    #[arg(long, short = 'R', value_name = "NAME|#N|#A..#B")]
    record: Vec<String>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Replace a file that is there already
    #[arg(long, short)]
    force: bool,
    /// Instead of reading, say which bytes of the file would be fetched: START-END and how many, one range
    /// to a line
    #[arg(long, conflicts_with = "keep_going")]
    plan: bool,
    /// Go on after damage: what is lost is written as zeros, and listed on standard error
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    dictionaries: Given,
    #[command(flatten)]
    index: stream::Index,
    #[command(flatten)]
    threads: Threads,
}

/// Many small ranges are read together, up to this many bytes.
const BATCH: u64 = 8 << 20;

pub fn run(args: Args) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let source = input::source(&args.file)?;
    if stream::is_stream(&source).map_err(at)? {
        return cat_stream(&args, &source);
    }
    let options = input::options(&args.file, &args.dictionaries)?;
    let reader = match args.keep_going {
        false => options.open(source).map_err(at)?,
        true => {
            let (reader, recovered) = options.recover(source).map_err(at)?;
            let file = args.file.display();
            if recovered.rebuilt > 0 {
                let count = recovered.rebuilt;
                say!("{file}: {count} chapter tables are lost: blocks were found without them");
            }
            if recovered.cut {
                let end = reader.len();
                say!("{file}: was cut: what came behind byte {end} of the content is lost");
            }
            reader
        }
    };
    let pieces = pieces(&args, &reader).map_err(at)?;
    if args.plan {
        return ui::print(plan(&reader, &pieces).map_err(at)?.as_bytes());
    }
    let mut output = Output::create(&args.output, args.force)?;
    let mut lost = 0;
    if args.keep_going {
        lost = keep_going(&args, &reader, &pieces, &mut output)?;
    } else {
        copy(&reader, &pieces, args.threads.count(), &mut output).map_err(|error| match error {
            // What could not be written is no fault of the archive's, and says its name.
            Error::Io(error) => Error::Io(error).into(),
            error => at(error),
        })?;
    }
    output.finish()?;
    match lost {
        0 => Ok(()),
        _ => Err(Failed::said(Error::Corrupt { what: "content", at: fiche::Place::Pos(0) })),
    }
}

/// The same of a gzip, zstd, xz or lz4 file, whose records are lines.
fn cat_stream(args: &Args, source: &Arc<dyn ReadAt>) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    if args.keep_going {
        return Err(Failed::usage("--keep-going is for archives"));
    }
    // What cannot be written is no fault of the file's, and says its name.
    let why = |error| match error {
        Error::Io(error) => Error::Io(error).into(),
        error => at(error),
    };
    let is_all = args.range.is_empty() && args.record.is_empty() && !args.plan;
    let is_all = is_all && !args.index.is_given();
    if is_all && streams::recognise(source).map_err(at)? == Some(streams::Format::Gzip) {
        let mut output = Output::create(&args.output, args.force)?;
        let mut content = Gunzip::new(Cursor::new(source.clone()));
        let mut piece = vec![0; 128 << 10];
        loop {
            check_stop()?;
            match content.read(&mut piece) {
                Ok(0) => return output.finish(),
                Ok(len) => output.write_all(&piece[..len]).map_err(Error::from)?,
                Err(error) => return Err(why(error.into())),
            }
        }
    }
    let reader = stream::open_anyhow(&args.file, source, &args.index)?;
    let ranges = stream_ranges(args, &reader).map_err(at)?;
    if args.plan {
        let line = |r: &Range<u64>| format!("{}-{}  {}\n", r.start, r.end, r.end - r.start);
        let lines: String = reader.plan(&ranges).map_err(at)?.iter().map(line).collect();
        return ui::print(lines.as_bytes());
    }
    let mut output = Output::create(&args.output, args.force)?;
    let mut piece = Vec::new();
    for range in ranges {
        let mut offset = range.start;
        while offset < range.end {
            check_stop()?;
            piece.resize(BATCH.min(range.end - offset) as usize, 0);
            reader.read_at(offset, &mut piece).map_err(why)?;
            output.write_all(&piece).map_err(Error::from)?;
            offset += piece.len() as u64;
        }
    }
    output.finish()
}

/// The ranges of the content that are asked for, all of them within it.
fn stream_ranges(args: &Args, reader: &streams::Reader) -> fiche::Result<Vec<Range<u64>>> {
    let mut wholes = Vec::new();
    for name in &args.record {
        let one = |text: &str| text.strip_prefix('#').and_then(|digits| digits.parse().ok());
        let (from, to) = match (numbers(name), one(name)) {
            (Some((from, to)), _) => (from, to),
            (None, Some(number)) => (number, Some(number + 1)),
            (None, None) => {
                let what = "the records of such a file are its lines: #N, or #A..#B";
                return Err(Error::Invalid { what: what.into() });
            }
        };
        if to.is_some_and(|to| to <= from) {
            if to == Some(from) {
                continue;
            }
            return Err(Error::Invalid { what: format!("{name} ends before it begins").into() });
        }
        let line = |number: u64| match reader.line(number)? {
            Some(range) => Ok(range),
            None => Err(Error::NotFound { name: format!("#{number}"), nearest: None }),
        };
        let end = match to {
            Some(to) => line(to - 1)?.end,
            None => reader.len(),
        };
        wholes.push(line(from)?.start..end);
    }
    if args.record.is_empty() {
        wholes.push(0..reader.len());
    }
    let mut ranges = Vec::new();
    for whole in wholes {
        let len = whole.end - whole.start;
        if args.range.is_empty() {
            ranges.push(whole.clone());
        }
        for part in args.range.iter().map(|part| part.of(len)) {
            if part.end > len {
                return Err(Error::OutOfBounds { range: part, len });
            }
            ranges.push(whole.start + part.start..whole.start + part.end);
        }
    }
    Ok(ranges)
}

/// Prints what would be fetched; of a sparse record, for all that is stored of it.
fn plan(reader: &Reader, pieces: &[Piece]) -> fiche::Result<String> {
    let stored = |piece: &Piece| match piece {
        Piece::Content(range) => range.clone(),
        Piece::Sparse(record, _) => record.entry().range.clone(),
    };
    let ranges = reader.plan(&pieces.iter().map(stored).collect::<Vec<_>>())?;
    let line = |r: &Range<u64>| format!("{}-{}  {}\n", r.start, r.end, r.end - r.start);
    Ok(ranges.iter().map(line).collect())
}

/// The record that `#N` or a name stands for.
fn record(reader: &Reader, name: &str) -> fiche::Result<Record> {
    match name.strip_prefix('#') {
        Some(rest) if rest.starts_with('#') => reader.record(rest),
        Some(digits) => match digits.parse() {
            Ok(number) => reader.record_at(number),
            Err(_) => reader.record(name),
        },
        None => reader.record(name),
    }
}

/// A range of the content, or of a sparse record.
enum Piece {
    Content(Range<u64>),
    Sparse(Record, Range<u64>),
}

impl Piece {
    fn range(&self) -> Range<u64> {
        match self {
            Piece::Content(range) | Piece::Sparse(_, range) => range.clone(),
        }
    }
}

/// All that is to be written, checked before anything is.
fn pieces(args: &Args, reader: &Reader) -> fiche::Result<Vec<Piece>> {
    let ranges = |len: u64| -> fiche::Result<Vec<Range<u64>>> {
        let ranges = match args.range.is_empty() {
            true => vec![0..len],
            false => args.range.iter().map(|part| part.of(len)).collect(),
        };
        match ranges.iter().find(|range| range.end > len) {
            Some(range) => Err(Error::OutOfBounds { range: range.clone(), len }),
            None => Ok(ranges),
        }
    };
    if args.record.is_empty() {
        return Ok(ranges(reader.len())?.into_iter().map(Piece::Content).collect());
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut push = |record: Record| -> fiche::Result<()> {
        let start = record.entry().range.start;
        for range in ranges(record.len())? {
            if record.entry().extents.is_some() {
                pieces.push(Piece::Sparse(record.clone(), range));
                continue;
            }
            let range = start + range.start..start + range.end;
            // Records that lie one behind the other are read as one piece.
            match pieces.last_mut() {
                Some(Piece::Content(last)) if last.end == range.start => last.end = range.end,
                _ => pieces.push(Piece::Content(range)),
            }
        }
        Ok(())
    };
    for name in &args.record {
        match numbers(name) {
            None => push(record(reader, name)?)?,
            Some((from, to)) => {
                let to = to.unwrap_or(reader.records());
                if from > to {
                    return Err(Error::Invalid {
                        what: format!("{name} ends before it begins").into(),
                    });
                }
                if to > reader.records() {
                    // Says which record there is not.
                    reader.entry(to - 1)?;
                }
                for item in reader.entries(from).take((to - from) as usize) {
                    let (number, entry) = item?;
                    if entry.kind.has_content() {
                        push(reader.record_at(number)?)?;
                    }
                }
            }
        }
    }
    Ok(pieces)
}

/// The numbers that `#A..#B` or `#A..` stands for.
fn numbers(name: &str) -> Option<(u64, Option<u64>)> {
    let (from, to) = name.split_once("..")?;
    let number = |text: &str| text.strip_prefix('#')?.parse().ok();
    match to {
        "" => Some((number(from)?, None)),
        _ => Some((number(from)?, Some(number(to)?))),
    }
}

fn copy(reader: &Reader, pieces: &[Piece], threads: usize, out: &mut Output) -> fiche::Result<()> {
    let mut rest = pieces;
    while let Some(piece) = rest.first() {
        check_stop()?;
        let range = piece.range();
        match piece {
            Piece::Sparse(record, _) => {
                let mut buf = Vec::new();
                let mut offset = range.start;
                while offset < range.end {
                    buf.resize(BATCH.min(range.end - offset) as usize, 0);
                    record.read_at(offset, &mut buf)?;
                    out.write_all(&buf)?;
                    offset += buf.len() as u64;
                }
                rest = &rest[1..];
            }
            Piece::Content(_) if range.end - range.start > BATCH => {
                reader.stream(range, threads)?.copy_to(out)?;
                rest = &rest[1..];
            }
            Piece::Content(_) => rest = copy_batch(reader, rest, out)?,
        }
    }
    Ok(())
}

/// Reads as many pieces together as fit a batch; returns those that are left.
fn copy_batch<'a>(
    reader: &Reader,
    pieces: &'a [Piece],
    out: &mut Output,
) -> fiche::Result<&'a [Piece]> {
    let mut sum = 0;
    let fits = pieces.iter().take_while(|piece| {
        sum += piece.range().end - piece.range().start;
        matches!(piece, Piece::Content(_)) && sum <= BATCH
    });
    let (batch, later) = pieces.split_at(fits.count().max(1));
    let len = |piece: &Piece| (piece.range().end - piece.range().start) as usize;
    let mut bufs: Vec<Vec<u8>> = batch.iter().map(|piece| vec![0; len(piece)]).collect();
    let mut reads: Vec<(u64, &mut [u8])> = batch
        .iter()
        .zip(&mut bufs)
        .map(|(piece, buf)| (piece.range().start, buf.as_mut_slice()))
        .collect();
    reader.read_many_at(&mut reads).into_iter().collect::<fiche::Result<()>>()?;
    bufs.iter().try_for_each(|buf| out.write_all(buf))?;
    Ok(later)
}

/// Writes all pieces, zeros where content is lost; returns how many bytes are.
fn keep_going(
    args: &Args,
    reader: &Reader,
    pieces: &[Piece],
    out: &mut Output,
) -> Result<u64, Failed> {
    const STEP: u64 = 64 << 10;
    let (mut lost_bytes, mut buf) = (0, Vec::new());
    for piece in pieces {
        let range = piece.range();
        let mut lost: Vec<Range<u64>> = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            check_stop()?;
            buf.resize(STEP.min(range.end - offset) as usize, 0);
            let gaps = match piece {
                Piece::Content(_) => reader.read_what_is_left(offset, &mut buf),
                Piece::Sparse(record, _) => record.read_what_is_left(offset, &mut buf),
            };
            for gap in gaps.map_err(|e| Failed::at(&args.file, e))? {
                match lost.last_mut().filter(|last| last.end == gap.start) {
                    Some(last) => last.end = gap.end,
                    None => lost.push(gap),
                }
            }
            out.write_all(&buf).map_err(Error::Io)?;
            offset += buf.len() as u64;
        }
        for gap in lost {
            say!("{}: lost: bytes {} to {}", args.file.display(), gap.start, gap.end);
            lost_bytes += gap.end - gap.start;
        }
    }
    Ok(lost_bytes)
}
