//! `fiche append`

use std::io::Read;
use std::path::{Path, PathBuf};

use fiche::archive::{Options, Packed};
use fiche::{Cursor, FileSource, ReadAt};
use serde_json::json;

use crate::dictionary::{self, Method};
use crate::input::{self, Blocks};
use crate::pack;
use crate::sizes::show;
use crate::ui::{self, Failed, say};

/// Add files, folders or a stream to an archive
///
/// The archive is valid at every moment: interrupted, it is what it was. Names that
/// it has already are refused, but folders may be added to. What is not asked for is
/// as the archive was packed: method, level and block length.
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
    let before = input::open(&args.file)?;
    let info = before.info().map_err(|e| Failed::at(&args.file, e))?;
    let mut like = Options::default();
    let mut like_coding = None;
    match info.method.parse() {
        Ok(Method::Codec(codec)) => like = like.codec(codec).level(info.level),
        Ok(Method::Coding(coding)) => like_coding = Some((coding, info.level)),
        Err(_) => {}
    }
    if info.block_bytes > 0 {
        like = like.block_len(usize::try_from(info.block_bytes).unwrap_or(usize::MAX));
    }
    let mut options = args.blocks.options(like);
    let coding = args.blocks.coding(like_coding);
    args.blocks.check(coding.map(|(coding, _)| coding))?;
    let stream = args.input == [Path::new("-")];
    let mut folder = match stream {
        true => None,
        false => Some(pack::folder(&args.input, &args.blocks, &args.file)?),
    };
    let mut spooled = None;
    if let Some(coding) = coding {
        let dictionary = &args.blocks.dictionary;
        let own = dictionary.options_of(options.clone(), coding, &before, args.quiet)?;
        options = match (own, &mut folder) {
            (Some(options), _) => options,
            (None, Some(folder)) => {
                dictionary.options(options, coding, &folder.content(), args.quiet)?
            }
            (None, None) => {
                let file = FileSource::new(dictionary::spool(&mut pack::standard_input()?)?)?;
                let options = dictionary.options(options, coding, &file, args.quiet)?;
                spooled = Some(Cursor::new(file));
                options
            }
        };
    }
    ui::set_left("the archive is what it was");
    if !stream {
        ui::will_check();
    }
    let mut packed = Packed::default();
    let mut bytes = 0;
    fiche::archive::append(&args.file, &options, |writer| {
        let start = writer.offset();
        match folder {
            Some(folder) => packed = pack::write_folder(folder, writer, args.quiet)?,
            None => {
                let mut stdin;
                let input: &mut dyn Read = match &mut spooled {
                    Some(file) => file,
                    None => {
                        stdin = pack::standard_input()?;
                        &mut stdin
                    }
                };
                packed.records = pack::write_stream(input, writer, &args.blocks, args.quiet)?;
            }
        }
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
