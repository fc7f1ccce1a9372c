//! The README's tables are made of committed results.

use std::fmt::Write;
use std::path::Path;

/// One table: a row for each case that the README shows, from benches/results.
fn table() -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/archive.csv");
    let text = std::fs::read_to_string(results).unwrap();
    let comments: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|l| !l.starts_with('#')).map(|l| l.split(',').collect()).collect();
    let find = |experiment: &str, case: &str| -> Vec<&str> {
        let row = rows.iter().find(|row| row[0] == experiment && row[1] == case);
        row.unwrap_or_else(|| panic!("there is no result for {experiment}, {case}")).clone()
    };
    let mut out = String::new();
    out.push_str("| | bare codec | archive in memory | archive in a cached file |\n");
    out.push_str("|---|---|---|---|\n");
    for (name, method) in
        [("lz4", "lz4 1"), ("zlib 6", "zlib 6"), ("zstd 3", "zstd 3"), ("zstd 19", "zstd 19")]
    {
        let experiment = format!("random whole 16 KiB blocks {method}");
        write!(out, "| {name}, random blocks of 16 KiB |").unwrap();
        for case in ["bare codec", "archive in memory", "archive in a cached file"] {
            let row = find(&experiment, case);
            let rate: f64 = row[2].parse().unwrap();
            // Thousand blocks a second, and the time over that of the bare codec.
            let blocks = rate * 1e6 / 16384.0 / 1e3;
            match case {
                "bare codec" => write!(out, " {blocks:.0} k/s |").unwrap(),
                _ => write!(out, " {blocks:.0} k/s ({}x the time) |", row[4]).unwrap(),
            }
        }
        out.push('\n');
    }
    out.push_str("\n| | bare codec, 1 thread | archive, 1 thread | archive, 2 threads |\n");
    out.push_str("|---|---|---|---|\n");
    for kind in ["packing", "unpacking"] {
        for method in ["lz4 1", "zlib 6", "zstd 3"] {
            write!(out, "| {kind}, {method} |").unwrap();
            for case in ["bare codec", "archive 1 thread", "archive 2 threads"] {
                let row = find(&format!("{kind} {method}"), case);
                write!(out, " {:.0} MB/s |", row[2].parse::<f64>().unwrap()).unwrap();
            }
            out.push('\n');
        }
    }
    write!(out, "\n`{}`; {}\n", comments[0], comments[1]).unwrap();
    out
}

#[test]
fn its_tables_are_those_of_the_results() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- table: bench -->\n").unwrap();
    let (now, after) = rest.split_once("<!-- end -->").unwrap();
    if std::env::var_os("FICHE_BLESS").is_some() {
        let new = format!("{before}<!-- table: bench -->\n{}<!-- end -->{after}", table());
        std::fs::write(&path, new).unwrap();
    } else {
        assert!(now == table(), "run `make bless` to write the README's tables anew");
    }
}
