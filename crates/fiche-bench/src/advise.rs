//! What `fiche advise` foretells from samples, beside what comes of it: every way it measures, on all of
//! the corpus.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::advise::{Figures, Survey};
use fiche::archive::{OpenOptions, Reader, Writer};
use fiche::testing::Random;
use fiche::{FileSource, ReadAt};

use crate::engine::Result;
use crate::engines::show;
use crate::report::machine;

/// Turns in which all archives are read from, and how long one takes.
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(40);
const PIECE: usize = 16 << 10;

#[derive(clap::Args)]
pub struct Args {
    /// Files to be packed
    #[arg(required = true)]
    corpus: Vec<PathBuf>,
    /// Where advise.csv and advise.md go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
}

/// Packing is timed as often at most, as long as all of it takes no longer than this.
const TIMES: usize = 5;
const LONG: f64 = 1.0;

/// One way to pack a corpus, as foretold, as it came, and as foretold once more.
struct Row {
    corpus: String,
    foretold: Figures,
    again: Figures,
    bytes: u64,
    reads_per_second: f64,
    seconds: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    let mut surveys = Vec::new();
    for path in &args.corpus {
        let name = name_of(path);
        eprintln!("{name}: asking");
        let source = FileSource::open(path)?;
        let start = Instant::now();
        let ask = || Survey::default().run(&source, &mut |_, _| Ok(()));
        let foretold = ask()?.figures;
        surveys.push((name.clone(), source.len(), start.elapsed().as_secs_f64()));
        let came = come_true(&name, &source, &foretold)?;
        eprintln!("{name}: asking again");
        let again = ask()?.figures;
        for (foretold, (bytes, reads_per_second, seconds)) in foretold.into_iter().zip(came) {
            let same = again.iter().find(|figures| figures.plan == foretold.plan);
            let again = same.ok_or("other ways when asked again")?.clone();
            let corpus = name.clone();
            rows.push(Row { corpus, foretold, again, bytes, reads_per_second, seconds });
        }
    }
    std::fs::create_dir_all(&args.output)?;
    std::fs::write(args.output.join("advise.csv"), csv(&rows)?)?;
    std::fs::write(args.output.join("advise.md"), table(&rows, &surveys)?)?;
    Ok(())
}

/// The folder that a file `all` is in, or its own name.
fn name_of(path: &Path) -> String {
    let own = path.file_stem().unwrap_or_default();
    let folder = path.parent().and_then(Path::file_name).filter(|_| own == "all");
    folder.unwrap_or(own).to_string_lossy().into_owned()
}

/// Packs all of it in each way, and reads from all archives by turns: bytes, reads a second, and seconds to pack.
fn come_true(
    corpus: &str,
    source: &FileSource,
    foretold: &[Figures],
) -> Result<Vec<(u64, f64, f64)>> {
    let mut content = vec![0; source.len() as usize];
    source.read_at(0, &mut content)?;
    let mut packed = Vec::new();
    for figures in foretold {
        let plan = &figures.plan;
        eprintln!("{corpus}: {} {} {}", plan.method, plan.level, show(plan.block_len));
        let (mut archive, mut times) = (Vec::new(), Vec::new());
        while times.len() < TIMES && times.iter().sum::<f64>() < LONG {
            drop(std::mem::take(&mut archive));
            let start = Instant::now();
            let mut writer = Writer::new(Vec::new(), plan.options(source)?)?;
            writer.write_all(&content)?;
            archive = writer.finish()?;
            times.push(start.elapsed().as_secs_f64());
        }
        let bytes = archive.len() as u64;
        let reader = OpenOptions::default().cache(0).open(Arc::new(archive))?;
        packed.push((bytes, median(&mut times), reader, Vec::new()));
    }
    let (mut random, mut piece) = (Random(1), vec![0; PIECE]);
    for _ in 0..TURNS {
        for (_, _, reader, turns) in &mut packed {
            turns.push(nanoseconds(reader, &content, &mut random, &mut piece)?);
        }
    }
    let came = packed.into_iter();
    Ok(came
        .map(|(bytes, seconds, _, mut turns)| (bytes, 1e9 / median(&mut turns), seconds))
        .collect())
}

/// The middle one of some numbers.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Of a read, as long as a turn takes; the last one is compared.
fn nanoseconds(
    reader: &Reader,
    content: &[u8],
    random: &mut Random,
    piece: &mut [u8],
) -> Result<f64> {
    let (start, mut count, mut offset) = (Instant::now(), 0, 0);
    while start.elapsed() < TURN || count < 4 {
        offset = random.below(reader.len() - piece.len() as u64 + 1);
        reader.read_at(offset, piece)?;
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    match *piece == content[offset as usize..][..piece.len()] {
        true => Ok(seconds * 1e9 / f64::from(count)),
        false => Err("what was read is not what was packed".into()),
    }
}

fn csv(rows: &[Row]) -> Result<String> {
    let mut text = String::from(
        "corpus,method,level,block,dictionary,foretold_bytes,told_error,bytes,foretold_reads,reads,\
         foretold_reads_again,foretold_seconds,seconds,foretold_seconds_again\n",
    );
    for row in rows {
        let (foretold, plan) = (&row.foretold, &row.foretold.plan);
        writeln!(
            text,
            "{},{},{},{},{},{},{:.5},{},{:.0},{:.0},{:.0},{:.3},{:.3},{:.3}",
            row.corpus,
            plan.method,
            plan.level,
            plan.block_len,
            plan.dictionary_len,
            foretold.stored_bytes,
            foretold.stored_error,
            row.bytes,
            foretold.reads_per_second,
            row.reads_per_second,
            row.again.reads_per_second,
            foretold.pack_seconds,
            row.seconds,
            row.again.pack_seconds,
        )?;
    }
    Ok(text)
}

/// How far off the middle one and the worst one are, in percent, and how many are within so many.
fn errors(pairs: &[(f64, f64)], limit: f64) -> String {
    let mut off: Vec<f64> = pairs.iter().map(|(told, came)| (told / came - 1.0).abs()).collect();
    off.sort_unstable_by(f64::total_cmp);
    let within = off.iter().filter(|&&off| off <= limit).count();
    let [middle, worst] = [off.len() / 2, off.len() - 1].map(|i| 100.0 * off[i]);
    format!("{middle:.1}, {worst:.1}, {within} of {}", off.len())
}

fn table(rows: &[Row], surveys: &[(String, u64, f64)]) -> Result<String> {
    let mut text = format!(
        "# What fiche advise foretells\n\nEvery way to pack that `fiche advise` measures on samples, packed in full. How far \
         off it was, in percent: half of the ways less than the first number, all of them at most the second; and how many \
         are within 3 % (sizes) and 20 % (reads and times). *Twice* is how far what it told is off what it told some minutes \
         later: so much is the machine's. *Reads, beside each other*: what was told is so many times what came, in the geometric \
         mean of all ways, and they were off by this beside that. {}\n\n| | content, MB | asking, s | sizes | within what \
         it told | reads | reads, beside each other | packing | reads, twice | packing, twice \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
        machine()
    );
    for (corpus, len, seconds) in surveys {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.corpus == *corpus).collect();
        let pairs = |of: &dyn Fn(&Row) -> (f64, f64)| -> Vec<(f64, f64)> {
            rows.iter().map(|row| of(row)).collect()
        };
        let sizes = pairs(&|row| (row.foretold.stored_bytes as f64, row.bytes as f64));
        let reads = pairs(&|row| (row.foretold.reads_per_second, row.reads_per_second));
        // A machine that is faster in one minute than in another is so for all ways.
        let mean = reads.iter().map(|(told, came)| (told / came).ln()).sum::<f64>();
        let mean = (mean / reads.len() as f64).exp();
        let reads_alike: Vec<_> = reads.iter().map(|(told, came)| (*told, came * mean)).collect();
        // What takes no time at all is no part of it.
        let seconds_of = |row: &Row| (row.foretold.pack_seconds + 0.05, row.seconds + 0.05);
        let reads_twice = pairs(&|row| (row.foretold.reads_per_second, row.again.reads_per_second));
        let seconds_twice =
            pairs(&|row| (row.foretold.pack_seconds + 0.05, row.again.pack_seconds + 0.05));
        let kept = rows.iter().filter(|row| {
            let off = row.foretold.stored_bytes as f64 / row.bytes as f64 - 1.0;
            off.abs() <= row.foretold.stored_error + 0.002
        });
        writeln!(
            text,
            "| {corpus} | {:.0} | {seconds:.0} | {} | {} of {} | {} | {mean:.2}; {} | {} | {} | {} |",
            *len as f64 / 1e6,
            errors(&sizes, 0.03),
            kept.count(),
            rows.len(),
            errors(&reads, 0.2),
            errors(&reads_alike, 0.2),
            errors(&pairs(&seconds_of), 0.2),
            errors(&reads_twice, 0.2),
            errors(&seconds_twice, 0.2),
        )?;
    }
    Ok(text)
}
