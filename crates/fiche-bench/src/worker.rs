//! One measurement, in a process of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::{Opened, Result};
use crate::engines;
use crate::measure::{Mode, Pass, Query, part, pass};

#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    engine: String,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    queries: PathBuf,
    #[arg(long)]
    mode: String,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    warm: bool,
}

/// What a worker prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub pass: Pass,
    pub cpu_seconds: f64,
    /// Memory that opening took.
    pub index_bytes: u64,
    pub peak_bytes: u64,
}

/// The share of a pass that warms up.
const WARM: usize = 10;

/// What documents are asked for, in the place of queries.
pub const DOCUMENTS: &str = "documents";

pub fn run(args: &Args) -> Result<()> {
    let engine = engines::by_name(&args.engine)?;
    let before = status("VmRSS")?;
    let opened = engine.open(&args.folder)?;
    // Readers open lazily: the first read is part of opening.
    let timed = |opened: &dyn Opened, share: usize| -> Result<Pass> {
        if args.mode == DOCUMENTS {
            let names: Vec<String> = serde_json::from_slice(&std::fs::read(&args.queries)?)?;
            return documents(opened, &names[..names.len() / share]);
        }
        let mode = Mode::ALL.into_iter().find(|mode| mode.name() == args.mode);
        let mode = mode.ok_or("there is no such mode")?;
        let queries = load(&args.queries)?;
        pass(opened, mode, &queries[..queries.len().div_ceil(share)], args.threads)
    };
    if args.mode != DOCUMENTS && args.warm {
        opened.reads()?.read(0, &mut [0; 1])?;
    }
    let index_bytes = status("VmRSS")?.saturating_sub(before);
    if args.warm {
        // All that it reads from is in the system's cache then, and it has run for a while.
        for file in engine.files(&args.folder) {
            std::io::copy(&mut std::fs::File::open(file)?, &mut std::io::sink())?;
        }
        timed(&*opened, WARM)?;
    }
    let cpu = cpu_seconds();
    let pass = timed(&*opened, 1)?;
    let report = Report {
        pass,
        cpu_seconds: cpu_seconds() - cpu,
        index_bytes,
        peak_bytes: status("VmHWM")?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Reads documents by their names, one after the other.
pub fn documents(opened: &dyn Opened, names: &[String]) -> Result<Pass> {
    let (mut reads, mut buf) = (opened.reads()?, Vec::new());
    let mut pass = Pass::default();
    let mut times = Vec::with_capacity(names.len());
    let start = std::time::Instant::now();
    for (i, name) in names.iter().enumerate() {
        let one = std::time::Instant::now();
        reads.document(name, &mut buf)?.ok_or("it has no documents")?;
        times.push(one.elapsed().as_secs_f64() * 1e6);
        pass.bytes += buf.len() as u64;
        pass.checksum = pass.checksum.wrapping_add(part(i, &buf));
    }
    pass.seconds = start.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)];
    if !times.is_empty() {
        (pass.p50, pass.p99, pass.max) = (at(0.5), at(0.99), at(1.0));
    }
    Ok(pass)
}

/// Writes queries for workers of any language: pairs of 64-bit little-endian integers.
pub fn save(path: &Path, queries: &[Query]) -> Result<()> {
    let words = queries.iter().flat_map(|&(offset, len)| [offset, len as u64]);
    Ok(std::fs::write(path, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?)
}

fn load(path: &Path) -> Result<Vec<Query>> {
    let bytes = std::fs::read(path)?;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    Ok(bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]) as usize)).collect())
}

/// A line of what the system says of this process, in bytes.
fn status(field: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let lines: BTreeMap<&str, &str> = text.lines().filter_map(|l| l.split_once(':')).collect();
    let value = lines.get(field).and_then(|value| value.split_whitespace().next());
    Ok(value.and_then(|value| value.parse::<u64>().ok()).ok_or("no such field")? * 1024)
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
