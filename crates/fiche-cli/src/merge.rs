//! `fiche merge`

use std::path::PathBuf;

use serde_json::json;

use crate::input;
use crate::output::Output;
use crate::sizes::show;
use crate::ui::{self, Failed, Progress, say};

/// Join archives into one, without compressing anything again
#[derive(clap::Args)]
pub struct Args {
    /// The archives, whose content comes in this order
    #[arg(required = true)]
    file: Vec<PathBuf>,
    /// The archive to write, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Replace an archive that is there already
    #[arg(long, short)]
    force: bool,
    /// Print what was merged as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let readers = args.file.iter().map(|file| input::open(file)).collect::<Result<Vec<_>, _>>()?;
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    let total = args.file.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let progress = Progress::new("merging", Some(total), args.quiet);
    let output = fiche::archive::merge(&readers, output, &mut |bytes| progress.add(bytes))?;
    progress.done();
    output.finish()?;
    if args.output.as_os_str() == "-" {
        return Ok(());
    }
    let info = input::open(&args.output)?.info().map_err(|e| Failed::at(&args.output, e))?;
    if args.json {
        let report = json!({
            "output": args.output.to_string_lossy(),
            "records": info.records,
            "logical_bytes": info.logical_bytes,
            "stored_bytes": info.stored_bytes,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    if !args.quiet {
        let (records, stored) = (info.records, show(info.stored_bytes));
        let content = show(info.logical_bytes);
        say!("{}: {records} records, {content} in {stored}", args.output.display());
    }
    Ok(())
}
