//! The same archive, met in different ways.

use std::fmt::Write;
use std::path::Path;

use crate::engine::{Corpus, Result};
use crate::report::Row;

const ARCHIVE: &str = "hybrid 5 16K auto";

/// What is compared.
pub fn names() -> Vec<String> {
    let mut names = vec![format!("fiche {ARCHIVE}")];
    names.extend(["read_at", "readinto_at"].map(|call| format!("fiche-python {ARCHIVE} {call}")));
    names.push(format!("fiche-mounted {ARCHIVE}"));
    for block in ["16K", "128K"] {
        names.extend(["squashfs", "squashfuse"].map(|system| format!("{system} zstd {block}")));
    }
    names
}

/// Writes what came of it, each beside what it is to be measured by.
pub fn write(path: &Path, corpus: &Corpus, rows: &[Row]) -> Result<()> {
    let mut text = format!(
        "# {}, {} bytes: one archive, many ways to read it\n\nRandom pieces of 16 KiB, not aligned. A piece \
         takes so long in the median and on average, and so many are read in a second of reading: what lies between reads \
         is not counted, the checksum of what was read and, through a mounted folder, telling the kernel to forget what was decoded.\n\n\
         | | threads | size | a piece, us | to Rust | on average, us | pieces a second | of one thread |\n\
         |---|---|---|---|---|---|---|---|\n",
        corpus.name, corpus.len
    );
    let own = format!("fiche {ARCHIVE}");
    for row in rows.iter().filter(|row| row.refused.is_empty()) {
        let rust = rows.iter().find(|other| other.engine == own && other.threads == row.threads);
        let ratio = rust.map_or(String::new(), |rust| format!("{:.2}", row.p50 / rust.p50));
        let (engine, threads, size) = (&row.engine, row.threads, row.percent);
        let (took, mean) = (row.p50, row.mean);
        let rate = |row: &Row| row.threads as f64 * 1e6 / row.mean;
        let single = rows.iter().find(|other| other.engine == row.engine && other.threads == 1);
        let more =
            single.map_or(String::new(), |single| format!("{:.2}", rate(row) / rate(single)));
        let rate = rate(row);
        writeln!(
            text,
            "| {engine} | {threads} | {size:.1} % | {took:.1} | {ratio} | {mean:.1} | {rate:.0} | {more} |"
        )?;
    }
    Ok(std::fs::write(path, text)?)
}
