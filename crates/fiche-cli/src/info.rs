//! `fiche info`

use std::path::PathBuf;
use std::sync::Arc;

use fiche::ReadAt;
use fiche::codec::filter::Filter;
use fiche::rlz::Dictionary;
use fiche::streams;
use serde_json::json;

use crate::dictionary;
use crate::input;
use crate::sizes::show;
use crate::stream;
use crate::ui::{self, Failed};
use crate::volume;

/// Say what an archive, a dictionary, a volume, or a gzip, zstd, xz or lz4 file is made of
#[derive(clap::Args)]
pub struct Args {
    /// The archive, dictionary, or gzip, zstd, xz or lz4 file
    file: PathBuf,
    #[command(flatten)]
    index: stream::Index,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let source = input::source(&args.file)?;
    if stream::is_stream(&source).map_err(|e| Failed::at(&args.file, e))? {
        return describe(&args, &source);
    }
    let options = input::options(&args.file, &dictionary::Given::default())?;
    let reader = match options.open(source.clone()) {
        Ok(reader) => reader,
        Err(error) => match Dictionary::read_from(&source) {
            Ok(dictionary) => {
                return dictionary::describe(&args.file, &dictionary, source.len(), args.json);
            }
            Err(_) => match fiche::volume::describe(&source) {
                Ok(told) => return volume::describe(&told, args.json),
                Err(_) => return Err(Failed::at(&args.file, error)),
            },
        },
    };
    let dictionaries = reader.dictionaries().map_err(|e| Failed::at(&args.file, e))?;
    let info = reader.info().map_err(|e| Failed::at(&args.file, e))?;
    let ratio = 100.0 * info.stored_bytes as f64 / info.logical_bytes.max(1) as f64;
    if args.json {
        let report = json!({
            "kind": "archive",
            "method": info.method,
            "level": info.level,
            "filters": info.filters.iter().map(Filter::to_string).collect::<Vec<_>>(),
            "block_bytes": info.block_bytes,
            "logical_bytes": info.logical_bytes,
            "stored_bytes": info.stored_bytes,
            "compressed_bytes": info.compressed_bytes,
            "blocks": info.blocks,
            "chapters": info.chapters,
            "dictionary_bytes": info.dictionary_bytes,
            "dictionaries": dictionaries.iter().map(|(digest, len, file)| json!({
                "digest": digest.to_string(),
                "logical_bytes": len,
                "file": file,
            })).collect::<Vec<_>>(),
            "model_bytes": info.model_bytes,
            "index_bytes": info.index_bytes,
            "checksum_bytes": info.checksum_bytes,
            "envelope_bytes": info.envelope_bytes,
            "record_bytes": info.record_bytes,
            "superseded_bytes": info.superseded_bytes,
            "records": info.records,
            "content_crc64": format!("{:016x}", info.content_checksum),
            "writer": info.writer,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let bits = info.index_bytes as f64 * 8.0 / info.blocks.max(1) as f64;
    let shared = dictionaries.iter().map(|(digest, len, file)| {
        let place = match file {
            Some(file) => format!("in {}", ui::one_line(file.as_bytes())),
            None => "in this file".to_owned(),
        };
        ("dictionary", format!("{} {place}, BLAKE3 {digest}", show(*len)))
    });
    let rows = [
        ("kind", "archive".to_owned()),
        ("method", {
            let (method, level, block) = (&info.method, info.level, show(info.block_bytes));
            let behind = if info.filters.is_empty() { "" } else { " behind " };
            let filters: Vec<String> = info.filters.iter().map(Filter::to_string).collect();
            format!("{method} {level}{behind}{}, blocks of {block}", filters.join(", "))
        }),
        ("content", format!("{} bytes ({})", info.logical_bytes, show(info.logical_bytes))),
        (
            "file",
            format!("{} bytes ({}), {ratio:.2} %", info.stored_bytes, show(info.stored_bytes)),
        ),
        (
            "blocks",
            format!(
                "{} in {} chapters, {} bytes",
                info.blocks, info.chapters, info.compressed_bytes
            ),
        ),
        ("shared", format!("{} bytes", info.dictionary_bytes + info.model_bytes)),
        ("index", format!("{} bytes, {bits:.1} bits a block", info.index_bytes)),
        ("envelope", format!("{} bytes", info.envelope_bytes)),
        ("checksums", format!("{} bytes", info.checksum_bytes)),
        ("records", format!("{}, {} bytes", info.records, info.record_bytes)),
        ("superseded", format!("{} bytes", info.superseded_bytes)),
        ("CRC-64", format!("{:016x}", info.content_checksum)),
        ("writer", info.writer.clone()),
    ];
    let text: String =
        rows.into_iter().chain(shared).map(|(key, value)| format!("{key:<11} {value}\n")).collect();
    ui::print(text.as_bytes())
}

/// The same of a gzip, zstd, xz or lz4 file: without an index only what needs no inflating.
fn describe(args: &Args, source: &Arc<dyn ReadAt>) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let reader = stream::open(&args.file, source, &args.index)?;
    let kind = streams::recognise(source).map_err(at)?.map_or("", streams::Format::name);
    let stored = source.len();
    if args.json {
        let report = json!({
            "kind": kind,
            "stored_bytes": stored,
            "logical_bytes": reader.as_ref().map(ReadAt::len),
            "units": reader.as_ref().map(|reader| reader.units()),
            "index_bytes": reader.as_ref().map(|reader| reader.index_len()),
            "lines": reader.as_ref().and_then(|reader| reader.line_feeds()),
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let mut rows =
        vec![("kind", kind.to_owned()), ("file", format!("{stored} bytes ({})", show(stored)))];
    match &reader {
        Some(reader) => {
            let (len, units) = (reader.len(), reader.units());
            let ratio = 100.0 * stored as f64 / len.max(1) as f64;
            rows.push(("content", format!("{len} bytes ({}), {ratio:.2} %", show(len))));
            let mean = show(len / units.max(1));
            rows.push(("index", format!("{} bytes", reader.index_len())));
            rows.push(("units", format!("{units}, {mean} each: what a read decodes at most")));
            let lines = reader.line_feeds().map_or("not counted".to_owned(), |n| n.to_string());
            rows.push(("line feeds", lines));
        }
        None => {
            let name = args.file.display();
            rows.push((
                "index",
                format!("none: a read decodes all before it; `fiche index {name}`"),
            ));
        }
    }
    let text: String = rows.iter().map(|(key, value)| format!("{key:<11} {value}\n")).collect();
    ui::print(text.as_bytes())
}
