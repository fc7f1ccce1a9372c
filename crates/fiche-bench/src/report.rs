//! Rows of results: a CSV for machines, a table and plots for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::archive::{block_of, calibrate, method_of};
use crate::engine::{Corpus, Result};
use crate::measure::{Mode, PIECE};
use crate::model::{DEVICES, Device, Method, predict};
use crate::plot::{PIECES, SIZE, Series, scatter};
use crate::worker::Report;

/// What one engine did in one mode.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub corpus: String,
    pub engine: String,
    /// Why there are no numbers; empty where there are.
    pub refused: String,
    pub stored_bytes: u64,
    pub percent: f64,
    pub mode: String,
    pub state: String,
    pub threads: usize,
    pub reads: usize,
    /// Pieces of 16 KiB (or documents) a second: median, least and most.
    pub rate: f64,
    pub rate_min: f64,
    pub rate_max: f64,
    pub mb_per_s: f64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
    pub cpu_us: f64,
    pub device_bytes: f64,
    pub index_bytes: u64,
    pub peak_bytes: u64,
}

impl Row {
    pub fn refused(corpus: &str, engine: &str, why: &str) -> Row {
        let refused = why.replace(['\n', ','], " ");
        Row { corpus: corpus.into(), engine: engine.into(), refused, ..Row::default() }
    }

    /// The medians of some samples, each with the bytes that the device read meanwhile.
    pub fn of(
        corpus: &str,
        (engine, mode, cold, threads, reads): (&str, &str, bool, usize, usize),
        (stored, len): (u64, u64),
        samples: &[(Report, u64)],
    ) -> Row {
        let median = |value: &dyn Fn(&(Report, u64)) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[0], values[values.len() - 1])
        };
        // The last piece of FULL may be short: pieces are bytes.
        let documents = mode == crate::worker::DOCUMENTS;
        let pieces = |pass: &crate::measure::Pass| match documents {
            true => reads as f64,
            false => pass.bytes as f64 / PIECE as f64,
        };
        let (rate, rate_min, rate_max) = median(&|(r, _)| pieces(&r.pass) / r.pass.seconds);
        let of = |value: &dyn Fn(&(Report, u64)) -> f64| median(value).0;
        Row {
            corpus: corpus.into(),
            engine: engine.into(),
            refused: String::new(),
            stored_bytes: stored,
            percent: 100.0 * stored as f64 / len as f64,
            mode: mode.into(),
            state: if cold { "cold" } else { "hot" }.into(),
            threads,
            reads,
            rate,
            rate_min,
            rate_max,
            mb_per_s: of(&|(r, _)| r.pass.bytes as f64 / r.pass.seconds / 1e6),
            mean: of(&|(r, _)| r.pass.mean),
            p50: of(&|(r, _)| r.pass.p50),
            p99: of(&|(r, _)| r.pass.p99),
            max: of(&|(r, _)| r.pass.max),
            cpu_us: of(&|(r, _)| r.cpu_seconds * 1e6 / pieces(&r.pass)),
            device_bytes: of(&|(_, bytes)| *bytes as f64),
            index_bytes: of(&|(r, _)| r.index_bytes as f64) as u64,
            peak_bytes: of(&|(r, _)| r.peak_bytes as f64) as u64,
        }
    }

    fn is(&self, mode: &str, state: &str, threads: usize) -> bool {
        self.refused.is_empty()
            && (self.mode.as_str(), self.state.as_str(), self.threads) == (mode, state, threads)
    }
}

const HEAD: &str = "corpus,engine,refused,stored bytes,percent,mode,state,threads,reads,rate per s,\
                    least,most,MB/s,mean us,p50 us,p99 us,max us,cpu us a piece,device bytes,index bytes,peak bytes";

/// Writes the CSV, the table and the plots of one corpus.
pub fn write(folder: &Path, corpus: &Corpus, rows: &[Row]) -> Result<()> {
    csv(folder, &corpus.name, corpus, rows)?;
    for mode in Mode::ALL {
        let svg = plot(corpus, rows, mode);
        std::fs::write(folder.join(format!("{}-{}.svg", corpus.name, mode.name())), svg)?;
    }
    std::fs::write(folder.join(format!("{}.md", corpus.name)), table(corpus, rows)?)?;
    Ok(())
}

/// Writes all rows of one corpus for machines, under this name.
pub fn csv(folder: &Path, name: &str, corpus: &Corpus, rows: &[Row]) -> Result<()> {
    let mut csv =
        format!("# {}: {} bytes in {} files\n", corpus.name, corpus.len, corpus.documents.len());
    writeln!(csv, "# {}", machine())?;
    writeln!(csv, "{HEAD}")?;
    for r in rows {
        writeln!(
            csv,
            "{},{},{},{},{:.3},{},{},{},{},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.1},{:.2},{:.0},{},{}",
            r.corpus,
            r.engine,
            r.refused,
            r.stored_bytes,
            r.percent,
            r.mode,
            r.state,
            r.threads,
            r.reads,
            r.rate,
            r.rate_min,
            r.rate_max,
            r.mb_per_s,
            r.mean,
            r.p50,
            r.p99,
            r.max,
            r.cpu_us,
            r.device_bytes,
            r.index_bytes,
            r.peak_bytes,
        )?;
    }
    std::fs::write(folder.join(format!("{name}.csv")), csv)?;
    Ok(())
}

fn plot(corpus: &Corpus, rows: &[Row], mode: Mode) -> String {
    let mut methods: BTreeMap<String, Vec<(f64, f64, String)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is(mode.name(), "hot", 1)) {
        let (method, block) = method_of(&row.engine);
        methods.entry(method).or_default().push((row.percent, row.rate, block));
    }
    // Ours first, the bounds last.
    let order = |name: &str| match name.split(' ').next() {
        Some("fiche") => 0,
        Some("plain" | "bare") => 2,
        _ => 1,
    };
    let mut series: Vec<Series> =
        methods.into_iter().map(|(name, points)| Series { name, points }).collect();
    series.sort_by_key(|series| order(&series.name));
    if mode == Mode::Random {
        let own = frontier(rows);
        let points = own.iter().map(|row| (row.percent, row.rate, row.engine.clone()));
        series.insert(0, Series { name: "fiche's frontier".into(), points: points.collect() });
    }
    scatter(
        &format!("{}: {} retrieval, hot, one thread", corpus.name, mode.name()),
        SIZE,
        PIECES,
        &series,
    )
}

/// Archives of ours of whole files, or of peers, as RANDOM found them: neither bounds nor documents.
fn contenders(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let is_bound = |row: &&Row| row.engine.starts_with("plain") || row.engine.starts_with("bare");
    rows.iter().filter(|row| row.is("random", "hot", 1)).filter(move |row| !is_bound(row))
}

/// Archives of ours that no other of ours is both smaller than and read faster, the smallest first.
fn frontier(rows: &[Row]) -> Vec<&Row> {
    let mut own: Vec<&Row> =
        contenders(rows).filter(|row| row.engine.starts_with("fiche ")).collect();
    own.sort_by(|a, b| a.percent.total_cmp(&b.percent).then(b.rate.total_cmp(&a.rate)));
    let mut best = 0.0;
    own.retain(|row| {
        let is_faster = row.rate > best;
        best = row.rate.max(best);
        is_faster
    });
    own
}

/// Our frontier, and which peers lie outside of it.
fn frontier_text(text: &mut String, corpus: &Corpus, rows: &[Row]) -> Result<()> {
    let own = frontier(rows);
    writeln!(text, "\n## The frontier: size against RANDOM\n")?;
    writeln!(
        text,
        "Of ours, no other archive is both smaller and read faster than one of these:\n"
    )?;
    writeln!(text, "| engine | size | RANDOM |\n|---|---|---|")?;
    for row in &own {
        writeln!(text, "| {} | {:.2} % | {:.0} |", row.engine, row.percent, row.rate)?;
    }
    let is_outside = |peer: &&Row| {
        let beaten = |ours: &&Row| ours.percent <= peer.percent && ours.rate >= peer.rate;
        !peer.engine.starts_with("fiche ") && !own.iter().any(beaten)
    };
    let outside: Vec<String> = contenders(rows)
        .filter(is_outside)
        .map(|row| format!("{} ({:.2} %, {:.0})", row.engine, row.percent, row.rate))
        .collect();
    match outside.is_empty() {
        true => writeln!(text, "\nEvery peer is beaten by one of them in both."),
        false => writeln!(text, "\nOutside of it lie: {}.", outside.join(", ")),
    }?;
    writeln!(text, "\n![frontier]({}-random.svg)", corpus.name)?;
    Ok(())
}

fn table(corpus: &Corpus, rows: &[Row]) -> Result<String> {
    let mut text = format!("# {}\n\n", corpus.name);
    writeln!(text, "{} bytes in {} files. {}\n", corpus.len, corpus.documents.len(), machine())?;
    let random = rows.iter().find(|row| row.is("random", "hot", 1));
    if let Some(random) = random {
        let times = (random.reads * PIECE) as f64 / corpus.len as f64;
        writeln!(text, "{} places of 16 KiB are {times:.1} times the corpus.\n", random.reads)?;
    }
    writeln!(
        text,
        "Rates are pieces of 16 KiB a second, medians; the spread of RANDOM is least to most of its \
         rounds. RANDOM decodes for each read: the kernel forgets what it decoded before each, fiche \
         keeps eight blocks; but rapidgzip keeps what it has. BATCH and FULL may find decoded what \
         they read before. CPU and memory are those of the process: what a kernel does for a \
         mounted file system is not in them.\n"
    )?;
    writeln!(
        text,
        "| engine | size | FULL | BATCH | RANDOM (spread) | RANDOM, 2 threads | p50, p99 of RANDOM | p99 \
         of BATCH | CPU a piece | index | peak |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.mode != crate::worker::DOCUMENTS) {
        if !names.contains(&row.engine.as_str()) {
            names.push(&row.engine);
        }
    }
    for name in &names {
        let find = |mode: &str, threads| {
            rows.iter().find(|row| row.engine == *name && row.is(mode, "hot", threads))
        };
        let rate = |mode: &str, threads| {
            find(mode, threads).map_or("-".to_owned(), |row| format!("{:.0}", row.rate))
        };
        let Some(random) = find("random", 1) else {
            let why = rows.iter().find(|row| row.engine == *name && !row.refused.is_empty());
            let why = why.map_or("not measured", |row| row.refused.as_str());
            writeln!(text, "| {name} | could not be had: {why} | | | | | | | | | |")?;
            continue;
        };
        let batch = find("batch", 1).map_or(0.0, |row| row.p99);
        writeln!(
            text,
            "| {name} | {:.2} % | {} | {} | {:.0} ({:.0} to {:.0}) | {} | {:.0}, {:.0} us | {batch:.0} us | \
             {:.1} us | {} KiB | {} MiB |",
            random.percent,
            rate("full", 1),
            rate("batch", 1),
            random.rate,
            random.rate_min,
            random.rate_max,
            rate("random", 2),
            random.p50,
            random.p99,
            random.cpu_us,
            random.index_bytes >> 10,
            random.peak_bytes >> 20,
        )?;
    }
    frontier_text(&mut text, corpus, rows)?;
    documents(&mut text, rows)?;
    devices(&mut text, corpus, rows, &names)?;
    for mode in Mode::ALL {
        writeln!(text, "\n![{} retrieval]({}-{}.svg)", mode.name(), corpus.name, mode.name())?;
    }
    Ok(text)
}

fn documents(text: &mut String, rows: &[Row]) -> Result<()> {
    let mut rows = rows
        .iter()
        .filter(|row| row.mode == crate::worker::DOCUMENTS && row.refused.is_empty())
        .peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    writeln!(text, "\n## Documents by name\n")?;
    writeln!(
        text,
        "Whole files of the corpus, chosen at random. In the kernel they stay decoded once read.\n"
    )?;
    writeln!(text, "| engine | size | documents a second (spread) | MB/s | p50, p99 |")?;
    writeln!(text, "|---|---|---|---|---|")?;
    for row in rows {
        writeln!(
            text,
            "| {} | {:.2} % | {:.0} ({:.0} to {:.0}) | {:.0} | {:.0}, {:.0} us |",
            row.engine,
            row.percent,
            row.rate,
            row.rate_min,
            row.rate_max,
            row.mb_per_s,
            row.p50,
            row.p99
        )?;
    }
    Ok(())
}

/// What the paper's model says of devices, and what was measured on the one that is here.
fn devices(text: &mut String, corpus: &Corpus, rows: &[Row], names: &[&str]) -> Result<()> {
    let here = match rows.iter().any(|row| row.state == "cold") {
        true => Some(calibrate(&corpus.whole)?),
        false => None,
    };
    writeln!(text, "\n## From a device\n")?;
    writeln!(
        text,
        "RANDOM pieces a second that the paper's model gives, from the rate in memory and the bytes to \
         fetch: hard disk and SSD as in its Table 1, an NVMe drive (60 us, 5,000 MiB/s), an object \
         store (30 ms, 80 MiB/s).",
    )?;
    if let Some((latency, transfer)) = here {
        writeln!(
            text,
            "This machine's device: {:.0} us to the first byte, {:.0} MB/s; measured with the caches \
             dropped, beside what the model says.",
            latency * 1e6,
            transfer / 1e6
        )?;
    }
    let devices = DEVICES.map(|device| device.name).join(" | ");
    writeln!(
        text,
        "\n| engine | {devices} | here: model | here: measured | read from the device |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|")?;
    for name in names {
        let hot = rows.iter().find(|row| row.engine == *name && row.is("random", "hot", 1));
        let block = block_of(name).or((*name == "plain").then_some(4096));
        let (Some(hot), Some(block)) = (hot, block) else { continue };
        if name.starts_with("bare") {
            continue;
        }
        let method = Method { ratio: hot.percent / 100.0, block, rate: hot.rate };
        let mut cells: Vec<String> =
            DEVICES.iter().map(|d| format!("{:.0}", predict(d, Mode::Random, &method))).collect();
        let cold = rows.iter().find(|row| row.engine == *name && row.is("random", "cold", 1));
        match (here, cold) {
            (Some((latency, transfer)), Some(cold)) => {
                let device = Device { name: "here", latency, sorted_latency: latency, transfer };
                cells.push(format!("{:.0}", predict(&device, Mode::Random, &method)));
                cells.push(format!("{:.0}", cold.rate));
                cells.push(format!("{:.1} KiB", cold.device_bytes / cold.reads as f64 / 1024.0));
            }
            _ => cells.extend(["-", "-", "-"].map(str::to_owned)),
        }
        writeln!(text, "| {name} | {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// What this was measured on.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores of {model}, Linux {}, fiche {}.",
        kernel.trim(),
        env!("CARGO_PKG_VERSION")
    )
}

/// An index of all corpora that have results.
/// The last run had so many rounds, and was a lean one or not.
pub fn summary(folder: &Path, rounds: usize, is_lean: bool) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for item in std::fs::read_dir(folder)? {
        let path = item?.path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            names.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let mut text = String::from(
        "# Archives beside their peers\n\nThe modes of retrieval of section 4 of Petri, Moffat, Nagesh \
         and Wirth, *Access time tradeoffs in archive compression* (2015): FULL reads all of a corpus in \
         order, in aligned pieces of 16 KiB; RANDOM reads 10,000 pieces of 16 KiB at random places, not \
         aligned; BATCH reads the same places in order. All engines read the same places in the same run; \
         what they read is held against the corpus. With `--lean`, blocks of 1 MiB are read at the first 1,000 of the \
         places only, and two threads and reads from the device are measured with blocks of 16 KiB. Each measurement is a process of its own; results \
         are medians of rounds in which all engines are interleaved. Sizes are those of all files that \
         reading needs, dictionary and index included.\n\n`make bench-archive DATA='FOLDER...' \
         ARGS='--cold'` writes this folder.\n\n\
         | engine | what it is |\n|---|---|\n\
         | plain | the corpus as a file: the floor |\n\
         | bare CODEC LEVEL BLOCK | blocks in memory, without a file around them: the ceiling |\n\
         | fiche CODEC LEVEL BLOCK | our archive, by positioned reads of its file, with a cache of eight blocks; BATCH by \
         `read_many_at` of 256 places at once, whose times are those of the whole batch |\n\
         | fiche CODING LEVEL BLOCK auto | the same with a dictionary, of the length that the coding takes by itself |\n\
         | zstd-seekable LEVEL BLOCK | Zstandard's seekable format with checksums, by the crate zeekstd |\n\
         | zstd-dictionary LEVEL BLOCK 1M | Zstandard with a raw dictionary of 1 MiB (4, 16) of evenly spaced samples, \
         and checksums; `cover`: the very dictionary of fiche hybrid |\n\
         | squashfs, erofs METHOD BLOCK | mounted by the kernel; squashfuse by FUSE. With xz, and with blocks from 256 KiB \
         on, every 20th place |\n\
         | bgzip | `bgzip -b -s`, a process a read; every 20th place |\n\
         | indexed_gzip, rapidgzip | Python's readers of gzip files, with their indexes; every 20th place |\n\n",
    );
    let lean = if is_lean { ", with `--lean`" } else { "" };
    writeln!(text, "The last run: {rounds} rounds{lean}.\n")?;
    // Other benchmarks have their results here, too, and somebody said what they are.
    let old = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
    let mut lines: Vec<String> =
        old.lines().filter(|line| line.starts_with("- [")).map(String::from).collect();
    for name in names {
        let kind = if folder.join(format!("{name}.md")).exists() { "md" } else { "csv" };
        let line = format!("- [{name}]({name}.{kind})");
        if !lines.iter().any(|known| known.starts_with(&line)) {
            lines.push(line);
        }
    }
    lines.iter().try_for_each(|line| writeln!(text, "{line}"))?;
    std::fs::write(folder.join("README.md"), text)?;
    Ok(())
}
