//! The command on a small corpus, with peers and without.
#![allow(missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(folder: &Path, path: Option<&str>, engines: &str) -> String {
    let corpus = folder.join("corpus");
    fs::create_dir_all(corpus.join("deep")).unwrap();
    for i in 0..40u32 {
        let text: String = (0..2_000).map(|j| format!("{} ", (i * j) % 977)).collect();
        fs::write(corpus.join(format!("deep/{i}")), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_fiche-bench"));
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let done = command
        .args(["archive", "corpus", "-o", "results", "--work", "work", "--blocks", "4K,16K"])
        .args(["--levels", "1", "--rounds", "3", "--reads", "60", "--engines", engines])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::read_to_string(folder.join("results/corpus.csv")).unwrap()
}

#[test]
fn every_engine_of_this_program_reads_what_the_corpus_has() {
    let folder = tempfile::tempdir().unwrap();
    let csv = run(folder.path(), None, "fiche,bare,zstd");
    let rows: Vec<Vec<&str>> = csv.lines().skip(3).map(|line| line.split(',').collect()).collect();
    // 3 modes, one of them on 2 threads as well.
    let count = |engine: &str| rows.iter().filter(|row| row[1] == engine).count();
    for engine in ["plain", "fiche lz4 1 4K", "bare zstd 1 16K", "zstd-seekable 1 16K"] {
        assert_eq!(count(engine), 4, "{engine}");
    }
    assert_eq!(count("zstd-dictionary 1 4K 1M"), 4);
    assert_eq!(count("fiche zstd 1 16K documents aligned"), 1);
    assert!(rows.iter().all(|row| row[2].is_empty()), "{csv}");
    let table = fs::read_to_string(folder.path().join("results/corpus.md")).unwrap();
    assert!(table.contains("| fiche zstd 1 16K |") && table.contains("Documents by name"));
    for mode in ["full", "batch", "random"] {
        let svg = fs::read_to_string(folder.path().join(format!("results/corpus-{mode}.svg")));
        assert!(svg.unwrap().contains("<title>fiche lz4 1 16K: "));
    }
}

#[test]
fn a_peer_that_cannot_be_had_is_a_row_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let csv = run(folder.path(), Some("/nowhere"), "bgzip,squashfs,erofs,rapidgzip");
    for engine in ["bgzip", "squashfs xz 16K", "erofs lz4hc 4K", "rapidgzip"] {
        let rows: Vec<&str> =
            csv.lines().filter(|line| line.contains(&format!(",{engine},"))).collect();
        assert_eq!(rows.len(), 1, "{engine}");
        assert!(!rows[0].split(',').nth(2).unwrap().is_empty(), "{}", rows[0]);
    }
    let table = fs::read_to_string(folder.path().join("results/corpus.md")).unwrap();
    assert!(table.contains("| bgzip | could not be had: "));
}

#[test]
fn the_papers_tables_come_with_every_ordering_that_it_states() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), None, "plain");
    let done = Command::new(env!("CARGO_BIN_EXE_fiche-bench"))
        .args(["archive", "corpus", "-o", "results", "--work", "work", "--paper"])
        .args(["--rounds", "1", "--reads", "40", "--dictionaries", "8K,32K"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let page = fs::read_to_string(folder.path().join("results/corpus-paper.md")).unwrap();
    assert_eq!(page.matches("\n## ").count(), 7, "{page}");
    let row = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap();
    // Nothing is missing: 4 methods, 3 blocks, one step of the dictionary.
    assert!(row("| a larger dictionary compresses better").contains(" of 12 |"));
    assert!(row("| rlz-pv is smaller than rlz-uv").contains("| 6 of 6 |"));
    assert!(page.lines().filter(|line| line.starts_with("| 16K |")).all(|l| !l.contains("| - |")));
    let svg = fs::read_to_string(folder.path().join("results/corpus-paper-hdd.svg")).unwrap();
    assert!(svg.contains("fiche rlz-zzz 9 32K"));
}
