//! `fiche verify`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiche::archive::Reader;
use fiche::events;
use fiche::streams;
use fiche::{Error, Place, ReadAt};
use serde_json::json;

use crate::dictionary::Given;
use crate::input::{self, Threads};
use crate::sizes::show;
use crate::stream;
use crate::ui::{self, Failed, Progress, one_line, say};

/// Read everything, check every checksum, and say what is damaged
#[derive(clap::Args)]
pub struct Args {
    /// The archives, files of events, or gzip, zstd, xz or lz4 files
    #[arg(required = true)]
    file: Vec<PathBuf>,
    #[command(flatten)]
    dictionaries: Given,
    #[command(flatten)]
    index: stream::Index,
    #[command(flatten)]
    threads: Threads,
    /// Print the findings as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Print nothing but damage
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let mut worst: Option<Failed> = None;
    for file in &args.file {
        let Err(failed) = verify(&args, file) else { continue };
        if failed.is_final() {
            return Err(failed);
        }
        // All are verified; damage weighs more than what could not be looked at.
        if failed.is_damage() || worst.is_none() {
            if let Some(before) = worst.replace(failed).filter(|before| !before.is_damage()) {
                before.tell();
            }
        } else {
            failed.tell();
        }
    }
    worst.map_or(Ok(()), Err)
}

fn verify(args: &Args, file: &Path) -> Result<(), Failed> {
    let name = file.display();
    let source = input::source(file)?;
    if stream::is_stream(&source).map_err(|e| Failed::at(file, e))? {
        return verify_stream(args, file, &source);
    }
    if events::Reader::is_one(&source).map_err(|e| Failed::at(file, e))? {
        return verify_events(args, file, source);
    }
    let options = input::options(file, &args.dictionaries)?;
    let reader = match options.open(source.clone()) {
        Ok(reader) => reader,
        Err(error) => {
            let damage = matches!(error, Error::Corrupt { .. });
            if damage && args.json {
                let what =
                    json!({"file": name.to_string(), "damage": [{"what": error.to_string()}]});
                ui::print(format!("{what}\n").as_bytes())?;
            }
            if damage {
                say!("{name}: {error}");
                hint(file, source);
                return Err(Failed::said(error));
            }
            return Err(Failed::at(file, error));
        }
    };
    let progress = Progress::new("verifying", Some(reader.len()), args.quiet);
    let report = reader
        .verify(args.threads.count(), &mut |bytes| progress.add(bytes))
        .map_err(|e| Failed::at(file, e))?;
    progress.done();
    if args.json {
        let damage: Vec<_> = report
            .damage
            .iter()
            .map(|d| {
                json!({
                    "what": d.error.to_string(),
                    "content": d.content.as_ref().map(|range| [range.start, range.end]),
                })
            })
            .collect();
        let records: Vec<_> = report
            .records
            .iter()
            .map(|(number, name)| json!({"number": number, "name": String::from_utf8_lossy(name)}))
            .collect();
        let line = json!({
            "file": name.to_string(),
            "blocks": report.blocks,
            "bytes": report.bytes,
            "damage": damage,
            "records": records,
            "cut_off_append": report.cut_off_append,
        });
        ui::print(format!("{line}\n").as_bytes())?;
    }
    if let Some(end) = report.cut_off_append
        && !args.quiet
    {
        say!(
            "{name}: what lies behind byte {end} is of an append that did not end; the archive is what it was before"
        );
    }
    for damage in &report.damage {
        let content = match &damage.content {
            Some(range) => {
                format!(": bytes {} to {} of the content are lost", range.start, range.end)
            }
            None => String::new(),
        };
        say!("{name}: {}{content}", damage.error);
    }
    for (number, record) in &report.records {
        say!("{name}: hit: #{number} {}", one_line(record));
    }
    match report.damage.is_empty() {
        true => {
            if !args.quiet && !args.json {
                let (blocks, bytes) = (report.blocks, show(report.bytes));
                ui::print(format!("{name}: all right: {blocks} blocks, {bytes}\n").as_bytes())?;
            }
            Ok(())
        }
        false => Err(Failed::said(Error::Corrupt { what: "archive", at: Place::Pos(0) })),
    }
}

/// The same of a file of events.
fn verify_events(args: &Args, file: &Path, source: Arc<dyn ReadAt>) -> Result<(), Failed> {
    let name = file.display();
    let told = |damage: Vec<serde_json::Value>, events: u64, segments: usize| {
        let line = json!({
            "file": name.to_string(),
            "events": events,
            "segments": segments,
            "damage": damage,
        });
        ui::print(format!("{line}\n").as_bytes())
    };
    let reader = match events::Reader::open(source) {
        Ok(reader) => reader.threads(args.threads.count()),
        Err(error @ Error::Corrupt { .. }) => {
            if args.json {
                told(vec![json!({"what": error.to_string(), "events": null})], 0, 0)?;
            }
            say!("{name}: {error}");
            return Err(Failed::said(error));
        }
        Err(error) => return Err(Failed::at(file, error)),
    };
    let progress = Progress::percent("verifying", args.quiet);
    let mut done = 0;
    let verified = reader.verify(&mut |events| {
        done += events;
        progress.so_far(done, reader.len())
    });
    let verified = verified.map_err(|e| Failed::at(file, e))?;
    progress.done();
    if args.json {
        let damage = verified.damage.iter().map(|lost| {
            let range = (!lost.events.is_empty()).then_some([lost.events.start, lost.events.end]);
            json!({"what": lost.error.to_string(), "events": range})
        });
        told(damage.collect(), verified.events, verified.segments)?;
    }
    for lost in &verified.damage {
        let (first, end) = (lost.events.start, lost.events.end);
        match end - first {
            0 => say!("{name}: {}: events are found no longer by their key", lost.error),
            1 => say!("{name}: {}: event {first} is lost", lost.error),
            _ => say!("{name}: {}: events {first} to {} are lost", lost.error, end - 1),
        }
    }
    if !verified.damage.is_empty() {
        return Err(Failed::said(Error::Corrupt { what: "file of events", at: Place::Pos(0) }));
    }
    if !args.quiet && !args.json {
        let (events, len) = (verified.events, show(reader.stored_len()));
        ui::print(format!("{name}: all right: {events} events, {len}\n").as_bytes())?;
    }
    Ok(())
}

/// The same of a gzip, zstd, xz or lz4 file, and of its index if it has one.
fn verify_stream(args: &Args, file: &Path, source: &Arc<dyn ReadAt>) -> Result<(), Failed> {
    let name = file.display();
    let reader = stream::open(file, source, &args.index)?;
    let total = reader.as_ref().map(ReadAt::len);
    let progress = Progress::new("verifying", total, args.quiet);
    let verified = streams::verify(source, reader.as_ref(), &mut |bytes| progress.add(bytes));
    progress.done();
    let damage = match &verified {
        Ok(_) => Vec::new(),
        Err(error @ Error::Corrupt { .. }) => vec![json!({"what": error.to_string()})],
        Err(_) => return verified.map(drop).map_err(|error| Failed::at(file, error)),
    };
    if args.json {
        let line = json!({
            "file": name.to_string(),
            "bytes": verified.as_ref().ok(),
            "damage": damage,
            "units": reader.as_ref().map(|reader| reader.units()),
        });
        ui::print(format!("{line}\n").as_bytes())?;
    }
    let bytes = verified.map_err(|error| {
        say!("{name}: {error}");
        Failed::said(error)
    })?;
    if args.quiet || args.json {
        return Ok(());
    }
    let index = match &reader {
        Some(reader) => format!("index of {} units", reader.units()),
        None => "no index".to_owned(),
    };
    ui::print(format!("{name}: all right: {}, {index}\n", show(bytes)).as_bytes())
}

/// Says what can be done about an archive that does not open.
fn hint(file: &Path, source: Arc<dyn ReadAt>) {
    if let Ok((reader, _)) = Reader::recover(source)
        && !reader.is_empty()
    {
        let (file, left) = (file.display(), show(reader.len()));
        say!("{file}: up to {left} can be had by `fiche unpack --keep-going {file} -o DIR`");
    }
}
