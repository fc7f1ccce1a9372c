//! Instructions of reading, as Valgrind's callgrind counts them: what a busy machine does not change.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fiche::advise::Survey;
use fiche::archive::{Method, OpenOptions, Writer};
use fiche::testing::Random;
use fiche::{FileSource, ReadAt, Span};

use crate::engine::Result;
use crate::report::machine;

/// Bytes of each corpus that are packed, blocks, and how many of them are read in a pass.
const CONTENT: u64 = 24 << 20;
const BLOCK: usize = 16 << 10;
const BLOCKS: u64 = 400;
const WAYS: [&str; 9] = [
    "lz4:1",
    "zstd:3",
    "zstd:19",
    "zstd-dict:19",
    "rlz-pv:0",
    "hybrid:2",
    "hybrid:4",
    "hybrid:5",
    "hybrid:9",
];

#[derive(clap::Args)]
pub struct Args {
    /// Files, of each of which the first 24 MiB are packed
    #[arg(required = true)]
    corpus: Vec<PathBuf>,
    /// Where counts.csv goes
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where archives are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/counts")]
    work: PathBuf,
}

/// Reads blocks of an archive; started under callgrind.
#[derive(clap::Args)]
pub struct WorkerArgs {
    archive: PathBuf,
    passes: u64,
}

pub fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    let mut csv = format!(
        "# {BLOCKS} aligned blocks of 16 KiB at random, from memory; dictionaries as each likes them. {}\n\
         corpus,method,level,stored_percent,instructions_per_block,instructions_per_byte\n",
        machine()
    );
    for corpus in &args.corpus {
        let folder = corpus.parent().and_then(Path::file_name).unwrap_or_default();
        let name = folder.to_string_lossy();
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(corpus)?);
        let len = source.len().min(CONTENT);
        let content = Span::new(source, 0..len)?;
        let mut bytes = vec![0; len as usize];
        content.read_at(0, &mut bytes)?;
        for way in WAYS {
            let (method, level) = way.split_once(':').ok_or("a way has a level")?;
            let plan = Survey::plan(method.parse::<Method>()?, level.parse()?, BLOCK, len)?;
            let archive = args.work.join("archive.fiche");
            let mut writer =
                Writer::new(std::fs::File::create(&archive)?, plan.options(&content)?)?;
            writer.write_all(&bytes)?;
            writer.finish()?;
            let stored = std::fs::metadata(&archive)?.len();
            // What opening takes is in both.
            let [one, three] = [1, 3].map(|passes| instructions(&archive, passes));
            let of_block = (three? - one?) as f64 / 2.0 / BLOCKS as f64;
            writeln!(
                csv,
                "{name},{},{level},{:.2},{of_block:.0},{:.3}",
                plan.method,
                100.0 * stored as f64 / len as f64,
                of_block / BLOCK as f64
            )?;
            eprintln!("{name} {way}: {of_block:.0} instructions a block");
        }
    }
    std::fs::create_dir_all(&args.output)?;
    std::fs::write(args.output.join("counts.csv"), csv)?;
    Ok(())
}

/// Instructions of a process that makes so many passes.
fn instructions(archive: &Path, passes: u64) -> Result<u64> {
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg("count-worker")
        .arg(archive)
        .arg(passes.to_string())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&done.stderr);
    let counted = text.lines().find_map(|line| line.split_once("Collected :"));
    let counted = counted.and_then(|(_, number)| number.trim().parse().ok());
    match (done.status.success(), counted) {
        (true, Some(counted)) => Ok(counted),
        _ => Err(format!("valgrind: {}", text.trim()).into()),
    }
}

pub fn work(args: &WorkerArgs) -> Result<()> {
    let mut archive = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::open(&args.archive)?, &mut archive)?;
    let reader = OpenOptions::default().cache(0).open(Arc::new(archive))?;
    let mut block = vec![0; BLOCK];
    for _ in 0..args.passes {
        let mut random = Random(1);
        for _ in 0..BLOCKS {
            let number = random.below(reader.len() / BLOCK as u64);
            reader.read_at(number * BLOCK as u64, &mut block)?;
            std::hint::black_box(&block);
        }
    }
    Ok(())
}
