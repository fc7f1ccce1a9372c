//! `fiche append`

use std::path::PathBuf;

use fiche::ReadAt;
use fiche::archive::{Method, Options, Packed};
use fiche::codec::Codec;
use serde_json::json;

use crate::input::{self, Blocks};
use crate::pack;
use crate::sizes::show;
use crate::source::Source;
use crate::ui::{self, Failed, say};

/// Add files, folders or a stream to an archive
///
/// The archive is valid at every moment: interrupted, it is what it was. Names that
/// it has already are refused, but folders may be added to. What is not asked for is
/// as the archive was packed: method, level, filters and block length.
#[derive(clap::Args)]
pub struct Args {
    /// The archive to add to
    file: PathBuf,
    /// Files and folders, or - for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
    #[command(flatten)]
    blocks: Blocks,
    /// Print what was added as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    // What was not asked for is as the archive has it.
    if input::url(&args.file).is_some() {
        return Err(Failed::usage(
            "an object is never changed: append to the file, and put that in its place",
        ));
    }
    let before = input::open(&args.file)?;
    let info = before.info().map_err(|e| Failed::at(&args.file, e))?;
    let mut like = Options::default();
    let method = info.method.parse().unwrap_or(Method::Codec(Codec::Zstd));
    if let Method::Codec(codec) = method {
        like = like.codec(codec).level(info.level);
        // A dictionary that is asked for now has none before it.
        if !matches!(args.blocks.method, Some(Method::Coding(_))) {
            like = like.filters(info.filters.iter().copied());
        }
    }
    if info.block_bytes > 0 {
        like = like.block_len(usize::try_from(info.block_bytes).unwrap_or(usize::MAX));
    }
    let (blocks, quiet) = (&args.blocks, args.quiet);
    let mut options = blocks.options(like);
    let coding = blocks.coding((method, Some(info.level)))?;
    let mut source = blocks.source(&args.input, &args.file)?;
    if let Some(coding) = coding {
        let (dictionary, threads) = (&blocks.dictionary, blocks.threads.count());
        options = match dictionary.options_of(options.clone(), coding, &before, threads, quiet)? {
            Some(options) => options,
            None => source.learn(quiet, |content| {
                dictionary.options(options, coding, content, threads, quiet)
            })?,
        };
    }
    ui::set_left("the archive is what it was");
    if matches!(source, Source::Folder(_)) {
        ui::will_check();
    }
    let mut packed = Packed::default();
    let mut bytes = 0;
    fiche::archive::append(&args.file, &options, |writer| {
        let start = writer.offset();
        packed = source.write(writer, quiet)?;
        bytes = writer.offset() - start;
        Ok(())
    })
    .map_err(|e| Failed::at(&args.file, e))?;
    let after = input::open(&args.file)?.info().map_err(|e| Failed::at(&args.file, e))?;
    let grown = after.compressed_bytes - info.compressed_bytes;
    if args.json {
        let report = json!({
            "file": args.file.to_string_lossy(),
            "records": packed.records,
            "logical_bytes": before.len() + bytes,
            "added_bytes": bytes,
            "stored_bytes": after.stored_bytes,
            "equal_files": packed.equal_files,
        });
        ui::print(format!("{report:#}\n").as_bytes())?;
    } else if !args.quiet {
        let (file, records) = (args.file.display(), packed.records);
        say!("{file}: {records} records, {} added as {}", show(bytes), show(grown));
    }
    pack::not_all(&packed)
}
