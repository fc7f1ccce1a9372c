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

/// One way to pack a corpus, as foretold and as it came.
struct Row {
    corpus: String,
    foretold: Figures,
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
        let advice = Survey::default().run(&source, &mut |_, _| Ok(()))?;
        surveys.push((name.clone(), source.len(), start.elapsed().as_secs_f64()));
        rows.extend(come_true(&name, &source, advice.figures)?);
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

/// Packs all of it in each way, and reads from all archives by turns.
fn come_true(corpus: &str, source: &FileSource, foretold: Vec<Figures>) -> Result<Vec<Row>> {
    let mut content = vec![0; source.len() as usize];
    source.read_at(0, &mut content)?;
    let mut packed = Vec::new();
    for figures in &foretold {
        let plan = &figures.plan;
        eprintln!("{corpus}: {} {} {}", plan.method, plan.level, show(plan.block_len));
        let start = Instant::now();
        let mut writer = Writer::new(Vec::new(), plan.options(source)?)?;
        writer.write_all(&content)?;
        let archive = writer.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let bytes = archive.len() as u64;
        let reader = OpenOptions::default().cache(0).open(Arc::new(archive))?;
        packed.push((bytes, seconds, reader, Vec::new()));
    }
    let (mut random, mut piece) = (Random(1), vec![0; PIECE]);
    for _ in 0..TURNS {
        for (_, _, reader, turns) in &mut packed {
            turns.push(nanoseconds(reader, &content, &mut random, &mut piece)?);
        }
    }
    let rows = foretold.into_iter().zip(packed);
    Ok(rows
        .map(|(foretold, (bytes, seconds, _, mut turns))| {
            turns.sort_unstable_by(f64::total_cmp);
            let reads_per_second = 1e9 / turns[turns.len() / 2];
            Row { corpus: corpus.to_owned(), foretold, bytes, reads_per_second, seconds }
        })
        .collect())
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
         foretold_seconds,seconds\n",
    );
    for row in rows {
        let (foretold, plan) = (&row.foretold, &row.foretold.plan);
        writeln!(
            text,
            "{},{},{},{},{},{},{:.5},{},{:.0},{:.0},{:.3},{:.3}",
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
            foretold.pack_seconds,
            row.seconds,
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
         are within 3 % (sizes) and 20 % (reads and times). {}\n\n| | content, MB | asking, s | sizes | within what it told | reads | \
         packing |\n|---|---|---|---|---|---|---|\n",
        machine()
    );
    for (corpus, len, seconds) in surveys {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.corpus == *corpus).collect();
        let pairs = |of: &dyn Fn(&Row) -> (f64, f64)| -> Vec<(f64, f64)> {
            rows.iter().map(|row| of(row)).collect()
        };
        let sizes = pairs(&|row| (row.foretold.stored_bytes as f64, row.bytes as f64));
        let reads = pairs(&|row| (row.foretold.reads_per_second, row.reads_per_second));
        // What takes no time at all is no part of it.
        let seconds_of = |row: &Row| (row.foretold.pack_seconds + 0.05, row.seconds + 0.05);
        let kept = rows.iter().filter(|row| {
            let off = row.foretold.stored_bytes as f64 / row.bytes as f64 - 1.0;
            off.abs() <= row.foretold.stored_error + 0.002
        });
        writeln!(
            text,
            "| {corpus} | {:.0} | {seconds:.0} | {} | {} of {} | {} | {} |",
            *len as f64 / 1e6,
            errors(&sizes, 0.03),
            kept.count(),
            rows.len(),
            errors(&reads, 0.2),
            errors(&pairs(&seconds_of), 0.2),
        )?;
    }
    Ok(text)
}
