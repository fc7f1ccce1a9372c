//! Archives on a web server that is some way off: requests, bytes and time, beside who else reads a piece of one.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fiche::FileSource;
use fiche::archive::{Kind, Reader};
use fiche::testing::Random;
use fiche_remote::testing::Server;

use crate::engine::Result;
use crate::engines::{faces, process};
use crate::report::machine;

const SCRIPT: &str = include_str!("../python/remote.py");
const KINDS: [&str; 3] = ["fiche", "zip", "tar.gz"];
const TASKS: [&str; 3] = ["first", "another", "100 at once"];

#[derive(clap::Args)]
pub struct Args {
    /// A folder of files
    corpus: PathBuf,
    /// Where the table goes
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where archives are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/remote")]
    work: PathBuf,
    /// How long the server takes until it answers, in milliseconds
    #[arg(long, default_value_t = 20)]
    delay: u64,
    /// Bytes that it sends in a second, in millions, by each of its connections
    #[arg(long, default_value_t = 25)]
    rate: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Of one task: requests, bytes, seconds, and the checksum of what was read.
#[derive(Clone, Copy, Debug)]
struct Taken(usize, u64, f64, u32);

pub fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    let name = args.corpus.file_name().ok_or("a folder has a name")?.to_string_lossy().into_owned();
    let path = |kind: &str| args.work.join(format!("{name}.{kind}"));
    let archive = path("fiche");
    if !archive.exists() {
        let done = Command::new(faces::fiche()?)
            .arg("pack")
            .arg(&args.corpus)
            .arg("-o")
            .arg(&archive)
            .status()?;
        if !done.success() {
            return Err("fiche pack".into());
        }
    }
    for kind in ["zip", "tar.gz"].into_iter().filter(|kind| !path(kind).exists()) {
        let done = script().args(["build", kind]).arg(&args.corpus).arg(path(kind)).status()?;
        if !done.success() {
            return Err(kind.into());
        }
    }
    let names = names(&archive)?;
    let server = Server::start();
    server.delay(Duration::from_millis(args.delay));
    server.rate(args.rate * 1_000_000);
    let mut csv = format!(
        "# {name}: files of an archive on a server that answers after {} ms with {} MB/s, median of {} interleaved rounds\n{}\n\
         corpus,archive,archive bytes,index bytes,task,requests,bytes,seconds\n",
        args.delay,
        args.rate,
        args.rounds,
        machine()
    );
    let mut all: Vec<Vec<[Taken; 3]>> = vec![Vec::new(); KINDS.len()];
    for round in 0..args.rounds {
        for (kind, taken) in KINDS.iter().zip(&mut all) {
            let url =
                server.put(&format!("{name}.{kind}"), std::fs::read(path(kind))?, Some("\"1\""));
            taken.push(read(kind, &url, &path(kind), &names, &server)?);
            eprintln!("round {round} {kind}: {:?}", taken.last());
        }
    }
    let sums = |taken: &[Taken; 3]| taken.map(|task| task.3);
    if all.iter().flatten().any(|taken| sums(taken) != sums(&all[0][0])) {
        return Err("not all have read the same".into());
    }
    for (kind, taken) in KINDS.iter().zip(&all) {
        let index = std::fs::metadata(format!("{}.index", path(kind).display()))
            .map_or(0, |meta| meta.len());
        for (i, task) in TASKS.iter().enumerate() {
            let mut seconds: Vec<f64> = taken.iter().map(|round| round[i].2).collect();
            seconds.sort_by(f64::total_cmp);
            let Taken(requests, bytes, ..) = taken[0][i];
            let (stored, median) =
                (std::fs::metadata(path(kind))?.len(), seconds[seconds.len() / 2]);
            writeln!(csv, "{name},{kind},{stored},{index},{task},{requests},{bytes},{median:.3}")?;
        }
    }
    std::fs::create_dir_all(&args.output)?;
    Ok(std::fs::write(args.output.join(format!("{name}-remote.csv")), csv)?)
}

/// Files of at least a KiB, at random, each once.
fn names(archive: &Path) -> Result<Vec<String>> {
    let reader = Reader::open(std::sync::Arc::new(FileSource::open(archive)?))?;
    let mut names = Vec::new();
    for item in reader.entries(0) {
        let (_, entry) = item?;
        if entry.kind == Kind::File && entry.len() >= 1024 {
            names.push(String::from_utf8(entry.name)?);
        }
    }
    let mut random = Random(3);
    let count = names.len().min(102);
    for i in 0..count {
        let other = i + random.below((names.len() - i) as u64) as usize;
        names.swap(i, other);
    }
    names.truncate(count);
    Ok(names)
}

fn script() -> Command {
    let mut command = Command::new(process::python());
    command.args(["-c", SCRIPT]);
    command
}

/// One process that does the tasks one after the other.
fn read(
    kind: &str,
    url: &str,
    path: &Path,
    names: &[String],
    server: &Server,
) -> Result<[Taken; 3]> {
    let mut child = script()
        .args(["read", kind, url])
        .arg(path)
        .arg(serde_json::to_string(names)?)
        .env_remove("FICHE_CACHE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("a process without pipes".into());
    };
    let mut lines = BufReader::new(stdout).lines();
    let _ = server.asked();
    let mut taken = [Taken(0, 0, 0.0, 0); 3];
    for task in &mut taken {
        let line = lines.next().ok_or(format!("{kind}: the process ended"))??;
        let (seconds, sum) = line.split_once(' ').ok_or("a line of two numbers")?;
        let asked = server.asked();
        let whole = std::fs::metadata(path)?.len();
        let bytes =
            asked.iter().map(|(_, range)| range.as_ref().map_or(whole, |r| r.end - r.start)).sum();
        *task = Taken(asked.len(), bytes, seconds.parse()?, sum.parse()?);
        writeln!(stdin)?;
    }
    child.wait()?;
    Ok(taken)
}
