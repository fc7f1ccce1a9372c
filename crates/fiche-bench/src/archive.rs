//! The experiments of Petri et al. (2015): FULL, BATCH and RANDOM retrieval, and documents by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fiche::testing::Random;

use crate::engine::{Corpus, Engine, Result};
use crate::engines::{self, show, size};
use crate::measure::{Mode, Pass, pass, queries, verify};
use crate::report::{self, Row};
use crate::worker::{self, DOCUMENTS, Report};
use crate::{faces, paper, streams};

#[derive(clap::Args)]
pub struct Args {
    /// Folders or files to be packed
    #[arg(required = true)]
    corpus: Vec<PathBuf>,
    /// Where the CSV, the table and the plots go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where corpora are packed; what is there already is used again
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    work: PathBuf,
    /// Block lengths
    #[arg(long, value_delimiter = ',', default_value = "4K,16K,64K,256K,1M")]
    blocks: Vec<String>,
    /// Levels of zstd
    #[arg(long, value_delimiter = ',', default_value = "3,19")]
    levels: Vec<i32>,
    /// Only engines whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Random places that are read
    #[arg(long, default_value_t = 10_000)]
    reads: usize,
    /// Rounds; results are medians of them. 0 only packs, for a later run to measure
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure from the device as well, with the system's caches dropped: needs root
    #[arg(long)]
    cold: bool,
    /// Less, for results within an hour: two threads and the device with blocks of 16 KiB only, a
    /// tenth of the places with blocks of 1 MiB
    #[arg(long)]
    lean: bool,
    /// The paper's methods with dictionaries in place of the peers: its figures and tables
    #[arg(long, conflicts_with = "cold")]
    paper: bool,
    /// The same archive read from Rust, from Python and as a mounted folder, beside SquashFS
    #[arg(skip)]
    pub faces: bool,
    /// Gzip files in place of archives
    #[arg(skip)]
    pub streams: bool,
    /// With --paper: sizes of the dictionary, in order
    #[arg(long, value_delimiter = ',', default_value = "1M,4M,16M")]
    dictionaries: Vec<String>,
}

/// The block length that is measured in every way even where less is asked for.
const MAIN_BLOCK: usize = 16 << 10;

/// A block of this length or more takes a millisecond.
const LARGE_BLOCK: usize = 1 << 20;

/// Reads from the device that are made in one cold pass: each takes milliseconds on a disk.
const COLD_READS: usize = 1_000;

pub fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.output)?;
    if args.cold {
        drop_caches().map_err(|error| format!("caches cannot be dropped: {error}"))?;
    }
    for path in &args.corpus {
        let name = path.file_name().ok_or("a corpus has a name")?.to_string_lossy().into_owned();
        let work = args.work.join(&name);
        std::fs::create_dir_all(&work)?;
        let corpus = Corpus::gather(path, &work)?;
        let rows = measure(args, &corpus, &work)?;
        if args.rounds == 0 {
            continue;
        }
        if args.faces {
            let name = format!("{}-faces", corpus.name);
            report::csv(&args.output, &name, &corpus, &rows)?;
            faces::write(&args.output.join(format!("{name}.md")), &corpus, &rows)?;
            continue;
        }
        if args.streams {
            let name = format!("{}-streams", corpus.name);
            report::csv(&args.output, &name, &corpus, &rows)?;
            streams::write(&args.output.join(format!("{name}.md")), &corpus, &rows)?;
            continue;
        }
        if args.paper {
            let longer = paper::longer(&corpus, &work)?;
            paper::write(&args.output, &corpus, &rows, &args.dictionaries, &longer)?;
            report::csv(&args.output, &format!("{}-paper", corpus.name), &corpus, &rows)?;
            continue;
        }
        report::write(&args.output, &corpus, &rows)?;
    }
    if args.rounds == 0 || args.paper || args.faces || args.streams {
        Ok(())
    } else {
        report::summary(&args.output, args.rounds, args.lean)
    }
}

/// All engines by name, for these block lengths.
fn names(args: &Args) -> Vec<String> {
    let mut names = vec!["plain".to_owned()];
    if args.paper {
        names.extend(paper::names(&args.dictionaries));
        return names;
    }
    if args.faces || args.streams {
        names.extend(if args.faces { faces::names() } else { streams::names() });
        return names;
    }
    for block in &args.blocks {
        for method in ["copy 0", "lz4 1", "lz4 9", "zlib 9"] {
            names.push(format!("fiche {method} {block}"));
        }
        for codec in ["lz4 1", "zlib 9"] {
            names.push(format!("bare {codec} {block}"));
        }
        for level in &args.levels {
            names.push(format!("fiche zstd {level} {block}"));
            names.push(format!("bare zstd {level} {block}"));
            names.push(format!("zstd-seekable {level} {block}"));
        }
        // What is made for small blocks is not measured with large ones.
        if size(block).is_ok_and(|len| len <= 64 << 10) {
            for level in [2, 4, 5, 7, 9] {
                names.push(format!("fiche hybrid {level} {block} auto"));
            }
            names.push(format!("fiche rlz-pv 0 {block} auto"));
        }
        if let Some(level) = args.levels.last() {
            names.push(format!("zstd-dictionary {level} {block} 1M"));
            if block == "16K" {
                let others = ["4M", "16M", "cover"];
                names.extend(others.map(|d| format!("zstd-dictionary {level} 16K {d}")));
            }
        }
        if block == "16K" {
            let others = ["rlz-uv 0", "rlz-zz 9", "rlz-zzz 9", "rlz-zz-primed 9", "zlib-primed 9"];
            names.extend(others.map(|method| format!("fiche {method} 16K auto")));
        }
        for method in ["zstd", "xz", "lz4"] {
            names.push(format!("squashfs {method} {block}"));
        }
        if !args.lean || block == "16K" {
            names.push(format!("squashfuse zstd {block}"));
        }
        names.push(format!("erofs lz4hc {block}"));
    }
    names.extend(["bgzip", "indexed_gzip", "rapidgzip"].map(str::to_owned));
    let level = args.levels.last().copied().unwrap_or(3);
    for rest in ["", " aligned"] {
        names.push(format!("fiche zstd {level} 16K documents{rest}"));
    }
    names.push("squashfs zstd 128K documents".into());
    let wanted = |name: &String| {
        name == "plain"
            || args.engines.is_empty()
            || args.engines.iter().any(|w| name.starts_with(w))
    };
    names.retain(wanted);
    names
}

/// One thing to measure again and again.
struct Job {
    engine: String,
    mode: &'static str,
    queries: PathBuf,
    reads: usize,
    expected: Pass,
    threads: usize,
    cold: bool,
}

fn measure(args: &Args, corpus: &Corpus, work: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut jobs = Vec::new();
    let mut stored: BTreeMap<String, u64> = BTreeMap::new();
    for name in names(args) {
        let engine = engines::by_name(&name)?;
        let folder = work.join(name.replace(' ', "-"));
        if let Err(error) = build(&*engine, corpus, &folder) {
            eprintln!("{}: {name}: {error}", corpus.name);
            rows.push(Row::refused(&corpus.name, &name, &error.to_string()));
            continue;
        }
        let files = engine.files(&folder);
        let sizes: std::io::Result<Vec<u64>> =
            files.iter().map(|file| Ok(std::fs::metadata(file)?.len())).collect();
        stored.insert(name.clone(), sizes?.iter().sum());
        jobs.extend(jobs_of(args, corpus, work, &name, &*engine)?);
    }
    let mut samples: Vec<Vec<(Report, u64)>> = vec![Vec::new(); jobs.len()];
    for round in 0..args.rounds {
        for (i, job) in jobs.iter().enumerate() {
            let folder = work.join(job.engine.replace(' ', "-"));
            if std::io::stderr().is_terminal() {
                let (round, rounds) = (round + 1, args.rounds);
                let (engine, mode) = (&job.engine, job.mode);
                eprint!("\r\x1b[K{}: round {round} of {rounds}: {engine}, {mode}", corpus.name);
            }
            match one(job, &folder, &corpus.whole) {
                Ok(sample) => samples[i].push(sample),
                Err(error) => {
                    eprintln!("{}: {}, {}: {error}", corpus.name, job.engine, job.mode);
                    let mut row = Row::refused(&corpus.name, &job.engine, &error.to_string());
                    row.mode = job.mode.to_owned();
                    rows.push(row);
                }
            }
        }
    }
    for (job, samples) in jobs.iter().zip(samples) {
        if samples.len() == args.rounds && args.rounds > 0 {
            let size = stored.get(&job.engine).copied().unwrap_or(0);
            let key = (job.engine.as_str(), job.mode, job.cold, job.threads, job.reads);
            rows.push(Row::of(&corpus.name, key, (size, corpus.len), &samples));
        }
    }
    Ok(rows)
}

pub fn build(engine: &dyn Engine, corpus: &Corpus, folder: &Path) -> Result<()> {
    let done = folder.join("done");
    if done.exists() {
        return Ok(());
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    engine.build(corpus, folder)?;
    File::create(done)?;
    Ok(())
}

/// What is measured of an engine. Those that are slow read a part of the places only.
fn jobs_of(
    args: &Args,
    corpus: &Corpus,
    work: &Path,
    name: &str,
    engine: &dyn Engine,
) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let truth = engines::by_name("plain")?.open(&work.join("plain"))?;
    if name.contains("documents") {
        let mut random = Random(corpus.len);
        let one = |_| &corpus.documents[random.below(corpus.documents.len() as u64) as usize];
        let asked: Vec<_> = (0..args.reads.min(2_000)).map(one).collect();
        let names: Vec<&str> = asked.iter().map(|document| document.name.as_str()).collect();
        let path = work.join("queries-documents");
        std::fs::write(&path, serde_json::to_vec(&names)?)?;
        let mut expected = Pass::default();
        let (mut reads, mut buf) = (truth.reads()?, Vec::new());
        for (i, document) in asked.iter().enumerate() {
            buf.resize(document.len as usize, 0);
            reads.read(document.offset, &mut buf)?;
            expected.bytes += document.len;
            expected.checksum = expected.checksum.wrapping_add(crate::measure::part(i, &buf));
        }
        let (engine, reads) = (name.to_owned(), asked.len());
        let (mode, queries) = (DOCUMENTS, path);
        jobs.push(Job { engine, mode, queries, reads, expected, threads: 1, cold: false });
        return Ok(jobs);
    }
    for mode in Mode::ALL {
        if (args.faces || args.streams) && mode != Mode::Random {
            continue;
        }
        // Going through all of it is fast for everyone but a process a read.
        let slow = engine.is_slow() && (mode != Mode::Full || name == "bgzip");
        let is_large = block_of(name).is_some_and(|len| len >= LARGE_BLOCK);
        let large = args.lean && mode == Mode::Random && is_large;
        let share = match (slow, large) {
            (true, _) => 20,
            (false, true) => 10,
            (false, false) => 1,
        };
        let is_main = !args.lean || block_of(name).is_none_or(|len| len == MAIN_BLOCK);
        let is_main = is_main && !args.paper;
        for cold in [false, true].into_iter().take(1 + usize::from(args.cold && is_main)) {
            if cold && mode != Mode::Random {
                continue;
            }
            let count = if cold { args.reads.min(COLD_READS) } else { args.reads };
            let mut list = queries(mode, corpus.len, count.div_ceil(share));
            list.truncate(list.len().div_ceil(if mode == Mode::Full { share } else { 1 }));
            let path = work.join(format!("queries-{}-{}", mode.name(), list.len()));
            worker::save(&path, &list)?;
            let expected = pass(&*truth, mode, &list, 1)?;
            let own = engine.command(work).is_none() && name != "bgzip";
            let own = own || name.starts_with("fiche-python");
            let both = own && is_main && !cold && mode == Mode::Random;
            for threads in if both { 1..=2 } else { 1..=1 } {
                let (engine, queries) = (name.to_owned(), path.clone());
                let (mode, expected) = (mode.name(), expected.clone());
                jobs.push(Job {
                    engine,
                    mode,
                    queries,
                    reads: list.len(),
                    expected,
                    threads,
                    cold,
                });
            }
        }
    }
    // What is in memory has no device to be read from.
    if name.starts_with("bare") {
        jobs.retain(|job| !job.cold);
    }
    Ok(jobs)
}

/// Takes one sample in a process of its own: what it reported, and bytes from the device.
fn one(job: &Job, folder: &Path, whole: &Path) -> Result<(Report, u64)> {
    let engine = engines::by_name(&job.engine)?;
    let queries = job.queries.to_string_lossy().into_owned();
    let mut command = match engine.command(folder) {
        Some(words) => {
            let mut command = Command::new(&words[0]);
            let warm = if job.cold { "cold" } else { "warm" };
            command.args(&words[1..]).args([&queries, &job.threads.to_string(), warm]);
            command
        }
        None => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["worker", "--engine", &job.engine, "--mode", job.mode]);
            command.arg("--folder").arg(folder);
            command.args(["--queries", &queries, "--threads", &job.threads.to_string()]);
            command.args((!job.cold).then_some("--warm"));
            command
        }
    };
    if job.cold {
        drop_caches()?;
    }
    let before = device_bytes(whole).unwrap_or(0);
    let done = command.output()?;
    let read = device_bytes(whole).unwrap_or(0) - before;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(text.trim().lines().last().unwrap_or("it failed").to_owned().into());
    }
    let report: Report = serde_json::from_slice(&done.stdout)?;
    verify(&report.pass, &job.expected)?;
    Ok((report, read))
}

fn drop_caches() -> std::io::Result<()> {
    rustix::fs::sync();
    File::options().write(true).open("/proc/sys/vm/drop_caches")?.write_all(b"3")
}

/// Bytes that the device of a file has read since the system started.
fn device_bytes(path: &Path) -> Result<u64> {
    let device = std::fs::metadata(path)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    let sectors = text.split_whitespace().nth(2).ok_or("no such field")?;
    Ok(sectors.parse::<u64>()? * 512)
}

/// This machine's device: seconds to the first byte, bytes a second.
pub fn calibrate(path: &Path) -> Result<(f64, f64)> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    drop_caches()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut random, mut buf, count) = (Random(1), vec![0; 4096], 300);
    let start = Instant::now();
    for _ in 0..count {
        let offset = random.below(len.saturating_sub(4096).max(1)) / 4096 * 4096;
        engines::read_exact(&file, offset, &mut buf)?;
    }
    let latency = start.elapsed().as_secs_f64() / f64::from(count);
    drop_caches()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Normal)?;
    let start = Instant::now();
    let mut buf = vec![0; 1 << 20];
    while file.read(&mut buf)? > 0 {}
    Ok((latency, len as f64 / start.elapsed().as_secs_f64()))
}

/// The block length that an engine's name tells.
pub fn block_of(name: &str) -> Option<usize> {
    let is_size = |word: &&str| word.ends_with(['K', 'M']) && size(word).is_ok();
    name.split(' ').find(is_size).and_then(|word| size(word).ok())
}

/// The name without its block length, and that.
pub fn method_of(name: &str) -> (String, String) {
    let block = block_of(name).map_or(String::new(), show);
    let words: Vec<&str> = name.split(' ').filter(|word| *word != block).collect();
    (words.join(" "), block)
}
