//! What the benchmarks have in common. Cases of a group are run in turn, five rounds after a warm-up; a ratio is the
//! median of the ratios of the rounds to the first case. What a case read goes into a checksum,
//! which must agree within a group.
#![allow(dead_code)]

use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 5;

/// One thing to time: what it is called, and what it does, which gives how many of a unit that was and
/// a checksum, or 0.
pub type Case<'a> = (String, Box<dyn FnMut() -> (u64, u64) + 'a>);

/// Runs all cases in turn and prints each, in millions of `unit` a second, with its ratio to the first.
pub fn group(experiment: &str, unit: &str, mut cases: Vec<Case<'_>>) {
    let mut seconds = vec![Vec::new(); cases.len()];
    let mut results = vec![(0, 0); cases.len()];
    for round in 0..=ROUNDS {
        for (i, (_, run)) in cases.iter_mut().enumerate() {
            let start = Instant::now();
            results[i] = run();
            if round > 0 {
                seconds[i].push(start.elapsed().as_secs_f64());
            }
        }
    }
    let checksums: Vec<u64> = results.iter().map(|r| r.1).filter(|&sum| sum != 0).collect();
    assert!(checksums.windows(2).all(|pair| pair[0] == pair[1]), "{experiment}: {checksums:?}");
    for (i, (name, _)) in cases.iter().enumerate() {
        let ratios = seconds[i].iter().zip(&seconds[0]).map(|(own, first)| own / first);
        let (ratio, time) = (median(ratios.collect()), median(seconds[i].clone()));
        let rate = results[i].0 as f64 / time / 1e6;
        println!("{experiment},{name},{rate:.2},{unit},{ratio:.3},{:016x}", results[i].1);
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A sum that depends on every byte, some 10 GB/s.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.split_at(bytes.len() / 8 * 8);
    let words = words.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")));
    let words = words.fold(0u64, |sum, word| sum.wrapping_add(word).rotate_left(1));
    rest.iter().fold(words, |sum, &byte| (sum ^ u64::from(byte)).rotate_left(5))
}

/// All files of a folder, one after the other.
pub fn load(path: &Path, data: &mut Vec<u8>) {
    if path.is_dir() {
        let mut list: Vec<_> = std::fs::read_dir(path)
            .expect("a folder")
            .map(|e| e.expect("an entry").path())
            .collect();
        list.sort();
        list.iter().filter(|p| !p.is_symlink()).for_each(|path| load(path, data));
    } else {
        data.extend(std::fs::read(path).expect("a file"));
    }
}
