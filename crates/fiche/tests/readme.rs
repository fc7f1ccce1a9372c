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

/// The other table: engines beside one another, from crates/fiche-bench/results.
fn peers() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fiche-bench/results");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|item| item.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .collect();
    // Other experiments have other engines.
    let is_whole = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        [",fiche hybrid 5 16K auto,", ",bgzip,"].iter().all(|engine| text.contains(engine))
    };
    files.retain(is_whole);
    files.sort();
    let texts: Vec<String> =
        files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let corpora: Vec<_> =
        files.iter().map(|path| path.file_stem().unwrap().to_string_lossy()).collect();
    let engines: [(&str, &str); 16] = [
        ("plain", "a plain file"),
        ("fiche hybrid 5 16K auto", "**fiche**, by default: hybrid, level 5"),
        ("fiche hybrid 9 16K auto", "**fiche**, level 9"),
        ("fiche hybrid 4 16K auto", "**fiche**, level 4"),
        ("fiche lz4 1 16K", "**fiche**, lz4"),
        ("fiche zlib 9 16K", "**fiche**, zlib 9"),
        ("fiche zstd 19 16K", "**fiche**, zstd 19"),
        ("fiche zstd 19 64K", "**fiche**, zstd 19, blocks of 64 KiB"),
        ("zstd-seekable 19 16K", "zstd's seekable format, level 19"),
        ("zstd-dictionary 19 16K 1M", "zstd 19 with a raw dictionary of 1 MiB"),
        ("squashfs zstd 16K", "SquashFS, zstd"),
        ("squashfs xz 16K", "SquashFS, xz"),
        ("erofs lz4hc 16K", "EROFS, lz4hc"),
        ("bgzip", "bgzip, a process a read"),
        ("indexed_gzip", "gzip, by indexed_gzip"),
        ("rapidgzip", "gzip, by rapidgzip"),
    ];
    let mut out = String::from("| | size | all of it, MB/s | random pieces a second |\n");
    out.push_str("|---|---|---|---|\n");
    for (engine, name) in engines {
        // Of each corpus: percent, MB/s of FULL, pieces a second of RANDOM.
        let mut logs = [Vec::new(), Vec::new(), Vec::new()];
        for text in &texts {
            for row in text.lines().map(|line| line.split(',').collect::<Vec<_>>()) {
                let is = |mode| row.get(1) == Some(&engine) && row[5..8] == [mode, "hot", "1"];
                let number = |i: usize| row[i].parse::<f64>().unwrap().ln();
                if is("full") {
                    logs[1].push(number(12));
                } else if is("random") {
                    logs[0].push(number(4));
                    logs[2].push(number(9));
                }
            }
        }
        let mean = |logs: &Vec<f64>| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let complete = logs.iter().all(|logs| logs.len() == texts.len());
        let cells = match complete {
            true => {
                let (size, full, random) = (mean(&logs[0]), mean(&logs[1]), mean(&logs[2]));
                format!("{size:.1} % | {full:.0} | {random:.0}")
            }
            false => panic!("{engine} is not measured on all"),
        };
        writeln!(out, "| {name} | {cells} |").unwrap();
    }
    // Which of them were measured on which machine.
    let mut machines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (text, corpus) in texts.iter().zip(&corpora) {
        let machine = text.lines().filter_map(|line| line.strip_prefix("# ")).nth(1).unwrap();
        match machines.iter_mut().find(|known| known.0 == machine) {
            Some((_, corpora)) => corpora.push(corpus),
            None => machines.push((machine, vec![corpus])),
        }
    }
    let machines: Vec<String> = machines
        .iter()
        .map(|(machine, corpora)| {
            format!("{} on {}", corpora.join(", "), machine.trim_end_matches('.'))
        })
        .collect();
    write!(out, "\nGeometric means over all of these: {}.\n", machines.join("; ")).unwrap();
    out
}

#[test]
fn its_tables_are_those_of_the_results() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for (name, table) in [("bench", table()), ("peers", peers())] {
        let mark = format!("<!-- table: {name} -->\n");
        let (before, rest) = text.split_once(&mark).unwrap();
        let (now, after) = rest.split_once("<!-- end -->").unwrap();
        if std::env::var_os("FICHE_BLESS").is_some() {
            text = format!("{before}{mark}{table}<!-- end -->{after}");
            std::fs::write(&path, &text).unwrap();
        } else {
            assert!(now == table, "run `make bless` to write the README's tables anew");
        }
    }
}
