//! Gzip files: random reads of those that others wrote and of our own, beside those who can read one; and what
//! partitions cost in size.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use fiche::streams::{Options, Writer};

use crate::engine::{Corpus, Result};
use crate::report::Row;

/// What is compared: each reader of foreign files with the file that it reads.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = ["rapidgzip", "indexed_gzip", "htslib"].map(str::to_owned).into();
    names.extend(["64K", "256K", "1M", "4M"].map(|spacing| format!("fiche-index {spacing}")));
    names.extend(["fiche-bgzf", "fiche-bgzf indexed"].map(str::to_owned));
    for block in ["16K", "64K", "256K"] {
        names.extend(["zstd-seekable", "fiche-zstd"].map(|who| format!("{who} 3 {block}")));
        names.push(format!("fiche-zstd 3 {block} indexed"));
    }
    names.extend(["8K", "16K", "32K", "64K", "1M"].map(|len| format!("fiche-gzip 6 {len}")));
    names
}

/// Writes what came of the reads.
pub fn write(path: &Path, corpus: &Corpus, rows: &[Row]) -> Result<()> {
    let mut text = format!(
        "# {}, {} bytes: gzip files read anywhere\n\nRandom pieces of 16 KiB, not aligned, from files that are in the \
         system's cache, one thread. rapidgzip, indexed_gzip and fiche-index read a file of `gzip -9`; htslib and fiche-bgzf one of \
         `bgzip -l 9`; zstd-seekable (the crate zeekstd) and fiche-zstd one of Zstandard's seekable format; fiche-gzip its own. The size is that of file and index; memory is what opening \
         and a first read took.\n\n\
         | | threads | size | memory, KiB | a piece, us | slowest hundredth | pieces a second |\n|---|---|---|---|---|---|---|\n",
        corpus.name, corpus.len
    );
    for row in rows.iter().filter(|row| row.refused.is_empty()) {
        let (engine, threads, size) = (&row.engine, row.threads, row.percent);
        let (memory, took, slow, rate) = (row.index_bytes / 1024, row.p50, row.p99, row.rate);
        writeln!(
            text,
            "| {engine} | {threads} | {size:.2} % | {memory} | {took:.1} | {slow:.0} | {rate:.0} |"
        )?;
    }
    Ok(std::fs::write(path, text)?)
}

#[derive(clap::Args)]
pub struct Args {
    /// Folders or files to be compressed
    #[arg(required = true)]
    corpus: Vec<std::path::PathBuf>,
    /// Where the CSV goes
    #[arg(long, short, value_name = "FILE")]
    output: std::path::PathBuf,
    /// Where corpora are gathered
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    work: std::path::PathBuf,
    /// Rounds; results are medians of them
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What partitions cost: the paper's Figure 10, with sizes, and speeds on one thread.
pub fn sizes(args: &Args) -> Result<()> {
    let mut text = String::from(
        "corpus,bytes,who,level,partition,percent,to gzip -6,to gzip of this level,MB/s,speed to gzip -6\n",
    );
    for path in &args.corpus {
        let name = path.file_name().ok_or("a corpus has a name")?;
        let work = args.work.join(name);
        std::fs::create_dir_all(&work)?;
        let corpus = Corpus::gather(path, &work)?;
        one(&corpus, args.rounds, &mut text)?;
        std::fs::write(&args.output, &text)?;
    }
    Ok(())
}

/// Who compresses, at which level, into which partitions; 0 for none.
type Way = (&'static str, i32, usize);

fn one(corpus: &Corpus, rounds: usize, text: &mut String) -> Result<()> {
    let mut ways: Vec<Way> = Vec::new();
    for level in [1, 6, 9] {
        ways.extend([("gzip", level, 0), ("pigz -i", level, 128 << 10), ("bgzip", level, 65280)]);
    }
    for level in [1, 2, 4, 6, 9, 12] {
        let lens: &[usize] = if level == 12 {
            &[32 << 10]
        } else {
            &[8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10]
        };
        ways.extend(lens.iter().map(|&len| ("fiche", level, len)));
    }
    let mut taken: BTreeMap<usize, (u64, Vec<f64>)> = BTreeMap::new();
    for _ in 0..rounds {
        for (i, way) in ways.iter().enumerate() {
            let start = Instant::now();
            let stored = compress(corpus, way)?;
            let seconds = start.elapsed().as_secs_f64();
            let entry = taken.entry(i).or_default();
            (entry.0, _) = (stored, entry.1.push(seconds));
        }
    }
    let median = |i: usize| {
        let mut times = taken[&i].1.clone();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let gzip = |level: i32| ways.iter().position(|way| way.0 == "gzip" && way.1 == level);
    for (i, (who, level, len)) in ways.iter().enumerate() {
        let (stored, seconds) = (taken[&i].0 as f64, median(i));
        let to = |level| match gzip(level) {
            Some(other) => {
                (format!("{:.3}", stored / taken[&other].0 as f64), median(other) / seconds)
            }
            None => (String::new(), 0.0),
        };
        let ((to_six, speed), (to_same, _)) = (to(6), to(*level));
        writeln!(
            text,
            "{},{},{who},{level},{len},{:.2},{to_six},{to_same},{:.0},{speed:.2}",
            corpus.name,
            corpus.len,
            100.0 * stored / corpus.len as f64,
            corpus.len as f64 / seconds / 1e6,
        )?;
    }
    Ok(())
}

/// Compresses the corpus on one thread; how many bytes it became.
fn compress(corpus: &Corpus, (who, level, len): &Way) -> Result<u64> {
    let level_option = format!("-{level}");
    let level_text = level.to_string();
    let (program, options): (&str, Vec<&str>) = match *who {
        "gzip" => ("gzip", vec!["-c", &level_option]),
        "pigz -i" => ("pigz", vec!["-i", "-p", "1", "-c", &level_option]),
        "bgzip" => ("bgzip", vec!["-c", "-l", &level_text]),
        _ => {
            let mut counted = Counted(0);
            let options = Options::default().level(*level).partition(*len).threads(1);
            let mut writer = Writer::new(&mut counted, options)?;
            let mut file = File::open(&corpus.whole)?;
            let mut piece = vec![0; 256 << 10];
            loop {
                match std::io::Read::read(&mut file, &mut piece)? {
                    0 => break,
                    len => writer.write_all(&piece[..len])?,
                }
            }
            writer.finish()?;
            return Ok(counted.0);
        }
    };
    let mut child =
        Command::new(program).args(options).arg(&corpus.whole).stdout(Stdio::piped()).spawn()?;
    let mut out = child.stdout.take().ok_or("no output")?;
    let stored = std::io::copy(&mut out, &mut std::io::sink())?;
    match child.wait()?.success() {
        true => Ok(stored),
        false => Err(format!("{program} failed").into()),
    }
}

/// How many bytes were written.
struct Counted(u64);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
