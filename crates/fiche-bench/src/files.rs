//! Files by their names, from Python: an archive of ours beside what people use there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use fiche::FileSource;
use fiche::archive::{Kind, Reader};
use fiche::testing::Random;

use crate::engine::Result;
use crate::engines::{faces, process};
use crate::report::machine;

const SCRIPT: &str = include_str!("../python/files.py");
/// And files, of tar.gz a twentieth: it takes so long.
const KINDS: [(&str, &str, usize); 4] = [
    ("fiche", "fiche hybrid 5", 1),
    ("zip", "zipfile deflate 9", 1),
    ("tar.gz", "tar.gz by ratarmountcore", 20),
    ("zst", "zstandard 19 a frame for each and a trained dictionary of 1 MiB", 1),
];

#[derive(clap::Args)]
pub struct Args {
    /// A folder of files
    corpus: PathBuf,
    /// Where the table goes
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where archives are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/files")]
    work: PathBuf,
    /// Files that are read
    #[arg(long, default_value_t = 1000)]
    reads: usize,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Archives of the files of a folder.
pub struct Files {
    pub name: String,
    corpus: PathBuf,
    work: PathBuf,
}

impl Files {
    pub fn of(corpus: &Path, work: &Path) -> Result<Files> {
        std::fs::create_dir_all(work)?;
        let name = corpus.file_name().ok_or("a folder has a name")?.to_string_lossy().into_owned();
        Ok(Files { name, corpus: corpus.to_owned(), work: work.to_owned() })
    }

    pub fn path(&self, kind: &str) -> PathBuf {
        self.work.join(format!("{}.{kind}", self.name))
    }

    /// Makes one, unless it is there.
    pub fn build(&self, kind: &str) -> Result<()> {
        if self.path(kind).exists() {
            return Ok(());
        }
        let mut command = match kind {
            "fiche" => {
                let mut command = Command::new(faces::fiche()?);
                command.arg("pack").arg(&self.corpus).arg("-o");
                command
            }
            _ => {
                let mut command = script();
                command.args(["build", kind]).arg(&self.corpus);
                command
            }
        };
        match command.arg(self.path(kind)).status()?.success() {
            true => Ok(()),
            false => Err(format!("{kind} could not be made").into()),
        }
    }

    /// What beside the archive has to be there to read it.
    pub fn beside(&self, kind: &str) -> u64 {
        let names = [".index", ".index.sqlite"];
        let path = self.path(kind).display().to_string();
        names
            .iter()
            .filter_map(|name| std::fs::metadata(path.clone() + name).ok())
            .map(|m| m.len())
            .sum()
    }

    /// So many files of at least a KiB, at random, each once.
    pub fn names(&self, count: usize) -> Result<Vec<String>> {
        let reader = Reader::open(std::sync::Arc::new(FileSource::open(self.path("fiche"))?))?;
        let mut names = Vec::new();
        for item in reader.entries(0) {
            let (_, entry) = item?;
            if entry.kind == Kind::File && entry.len() >= 1024 {
                names.push(String::from_utf8(entry.name)?);
            }
        }
        let mut random = Random(3);
        let count = names.len().min(count);
        for i in 0..count {
            let other = i + random.below((names.len() - i) as u64) as usize;
            names.swap(i, other);
        }
        names.truncate(count);
        Ok(names)
    }
}

pub fn script() -> Command {
    let mut command = Command::new(process::python());
    command.args(["-c", SCRIPT]);
    command
}

pub fn run(args: &Args) -> Result<()> {
    let files = Files::of(&args.corpus, &args.work)?;
    KINDS.iter().try_for_each(|(kind, ..)| files.build(kind))?;
    let names = files.names(args.reads)?;
    let mut all: Vec<Vec<[f64; 4]>> = vec![Vec::new(); KINDS.len()];
    let mut sums = [0u64; 2];
    for round in 0..args.rounds {
        for ((kind, _, part), taken) in KINDS.iter().zip(&mut all) {
            let some = &names[..names.len() / part];
            let path = files.path(kind);
            let mut command = script();
            command.args(["time", kind]).arg(&path).arg(&path).arg(serde_json::to_string(some)?);
            let done = command.output()?;
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            let line = text.lines().last().filter(|_| done.status.success());
            let Some(line) = line else {
                return Err(format!("{kind}: {}", String::from_utf8_lossy(&done.stderr)).into());
            };
            let parts: Vec<f64> =
                line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
            let &[opened, middle, late, peak, sum] = parts.as_slice() else {
                return Err(format!("{kind}: {line}").into());
            };
            let known = &mut sums[usize::from(*part > 1)];
            if *known != 0 && *known != sum as u64 {
                return Err(format!("{kind} has read something else").into());
            }
            *known = sum as u64;
            taken.push([1000.0 * opened, middle, late, peak / 1024.0]);
            eprintln!("round {round} {kind}: {line}");
        }
    }
    let mut csv = format!(
        "# {}: {} files by their names from Python, cached, median of {} interleaved rounds, each a process\n# {}\n\
         corpus,archive,stored bytes,index bytes,ms to open,us a file,us of the slowest hundredth,MiB at most\n",
        files.name,
        names.len(),
        args.rounds,
        machine()
    );
    for ((kind, what, _), taken) in KINDS.iter().zip(&all) {
        let median = |i: usize| {
            let mut values: Vec<f64> = taken.iter().map(|round| round[i]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let stored = std::fs::metadata(files.path(kind))?.len();
        let [opened, middle, late, peak] = [0, 1, 2, 3].map(median);
        let (name, index) = (&files.name, files.beside(kind));
        writeln!(
            csv,
            "{name},{what},{stored},{index},{opened:.1},{middle:.0},{late:.0},{peak:.0}"
        )?;
    }
    std::fs::create_dir_all(&args.output)?;
    Ok(std::fs::write(args.output.join(format!("{}-files.csv", files.name)), csv)?)
}
