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
         takes so long in the median, without the checksum of what was read that follows it; the rate is with that, which \
         takes Python longer. Through a mounted folder, the kernel is told to forget before each what was decoded.\n\n\
         | | threads | size | a piece, us | to Rust | pieces a second |\n|---|---|---|---|---|---|\n",
        corpus.name, corpus.len
    );
    let own = format!("fiche {ARCHIVE}");
    for row in rows.iter().filter(|row| row.refused.is_empty()) {
        let rust = rows.iter().find(|other| other.engine == own && other.threads == row.threads);
        let ratio = rust.map_or(String::new(), |rust| format!("{:.2}", row.p50 / rust.p50));
        let (engine, threads, size) = (&row.engine, row.threads, row.percent);
        let (took, rate) = (row.p50, row.rate);
        writeln!(text, "| {engine} | {threads} | {size:.1} % | {took:.1} | {ratio} | {rate:.0} |")?;
    }
    Ok(std::fs::write(path, text)?)
}
