//! Archives on a web server that is some way off: requests, bytes and time, beside who else reads a piece of one.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fiche_remote::testing::Server;

use crate::engine::Result;
use crate::files::{Files, script};
use crate::report::machine;

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
    let files = Files::of(&args.corpus, &args.work)?;
    KINDS.iter().try_for_each(|kind| files.build(kind))?;
    let (name, path) = (&files.name, |kind: &str| files.path(kind));
    let names = files.names(102)?;
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
        let index = files.beside(kind);
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
