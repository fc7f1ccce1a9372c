//! Inflating: ours beside libdeflate, which decodes all of a stream or nothing, and zlib-rs, which does not.
//!
//! `cargo bench -p fiche --bench deflate -- DATA...` prints a CSV. Each DATA is a file, or a folder whose files are taken
//! one after the other, 16 MiB of it.

mod common;

use std::path::Path;

use common::{Case, group, load, sum};
use fiche::codec::deflate::{Inflate, Input, Partitioner, Pause};
use flate2::{Decompress, FlushDecompress};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

const LIMIT: usize = 16 << 20;

type Inflater = Box<dyn FnMut(&[u8], &mut [u8])>;
type Run = Box<dyn FnMut() -> (u64, u64)>;

/// Fills the front of each partition, by so many parts of `of`.
fn front(name: &str, level: i32, partition: usize, data: &[u8], (part, of): (usize, usize)) {
    let mut compressor = Compressor::new(CompressionLvl::new(level).expect("a level"));
    let deflate = |raw: &[u8]| {
        let mut out = vec![0; compressor.deflate_compress_bound(raw.len())];
        let len = compressor.deflate_compress(raw, &mut out).expect("room");
        out.truncate(len);
        (out, raw.len() * part / of)
    };
    let streams: Vec<(Vec<u8>, usize)> = data.chunks(partition).map(deflate).collect();
    let streams = &streams;
    let case = |mut inflate: Inflater| -> Run {
        let (mut room, streams) = (vec![0; partition], streams.clone());
        Box::new(move || {
            let (mut bytes, mut total) = (0, 0u64);
            for (stream, len) in &streams {
                inflate(stream, &mut room[..*len]);
                bytes += *len as u64;
                total = total.wrapping_add(sum(&room[..*len]));
            }
            (bytes, total)
        })
    };
    let mut cases: Vec<Case<'_>> = Vec::new();
    if part == of {
        let mut decompressor = Decompressor::new();
        let whole = move |stream: &[u8], out: &mut [u8]| {
            decompressor.deflate_decompress(stream, out).expect("a stream");
        };
        cases.push(("libdeflate".into(), case(Box::new(whole))));
    }
    let mut zlib = Decompress::new(false);
    let by_zlib = move |stream: &[u8], out: &mut [u8]| {
        zlib.reset(false);
        zlib.decompress(stream, out, FlushDecompress::Finish).expect("a stream");
        assert_eq!(zlib.total_out(), out.len() as u64);
    };
    cases.push(("zlib-rs".into(), case(Box::new(by_zlib))));
    let mut inflate = Inflate::new();
    let by_ours = move |stream: &[u8], out: &mut [u8]| {
        inflate.reset();
        let pause = inflate.run(&mut Input::new(stream, 0), out, &mut 0);
        assert_eq!(pause, Ok(Pause::Full));
    };
    cases.push(("fiche".into(), case(Box::new(by_ours))));
    let what = if part == of { "whole" } else { "the front half of" };
    let kib = partition >> 10;
    group(&format!("{name} inflating {what} partitions of {kib} KiB level {level}"), "MB/s", cases);
}

/// Where a piece is in a unit: between the paper's first and last offset, most of them where no partition begins.
const OFFSETS: [usize; 6] = [32 << 10, 60_000, 100_000, 128 << 10, 170_000, 215 << 10];
const UNIT: usize = 250_000;

/// Pieces of 16 KiB out of units of 250,000 bytes: by decoding all, all up to the end of the piece, and the partitions
/// that it is in, up to its end (Constantinescu et al., section 5).
fn pieces(name: &str, data: &[u8]) {
    const PIECE: usize = 16 << 10;
    let mut partitioner = Partitioner::new(6).expect("a level");
    let units: Vec<&[u8]> = data.chunks_exact(UNIT).collect();
    let mut partitioned = |len: usize| -> Vec<(Vec<u8>, Vec<usize>)> {
        let mut one = |unit: &&[u8]| {
            let (mut stream, mut starts) = (Vec::new(), Vec::new());
            for piece in unit.chunks(len) {
                starts.push(stream.len());
                partitioner.put(piece, &mut stream).expect("room");
            }
            (stream, starts)
        };
        units.iter().map(&mut one).collect()
    };
    let whole = partitioned(UNIT);
    // Decodes up to `wanted` of each unit, however far the piece goes.
    let by_unit = |all: bool| -> Run {
        let (streams, mut inflate, mut room) = (whole.clone(), Inflate::new(), vec![0; UNIT]);
        Box::new(move || {
            let (mut count, mut total) = (0, 0u64);
            for (stream, _) in &streams {
                for from in OFFSETS {
                    inflate.reset();
                    let end = if all { UNIT } else { from + PIECE };
                    let pause = inflate.run(&mut Input::new(stream, 0), &mut room[..end], &mut 0);
                    assert_eq!(pause, Ok(Pause::Full));
                    total = total.wrapping_add(sum(&room[from..from + PIECE]));
                    // Millions of them are thousands.
                    count += 1000;
                }
            }
            (count, total)
        })
    };
    let mut cases: Vec<Case<'_>> =
        vec![("the whole unit".into(), by_unit(true)), ("up to its end".into(), by_unit(false))];
    for kib in [64, 32, 16, 8] {
        let (len, streams) = (kib << 10, partitioned(kib << 10));
        let (mut inflate, mut room) = (Inflate::new(), vec![0; UNIT]);
        let run = move || {
            let (mut count, mut total) = (0, 0u64);
            for (stream, starts) in &streams {
                for from in OFFSETS {
                    let (first, end) = (from / len, from + PIECE);
                    for i in first..end.div_ceil(len) {
                        let (start, stop) = (i * len, end.min((i + 1) * len));
                        inflate.reset();
                        let mut input = Input::new(&stream[starts[i]..], 0);
                        let pause = inflate.run(&mut input, &mut room[start..stop], &mut 0);
                        assert_eq!(pause, Ok(Pause::Full));
                    }
                    total = total.wrapping_add(sum(&room[from..end]));
                    // Millions of them are thousands.
                    count += 1000;
                }
            }
            (count, total)
        };
        cases.push((format!("partitions of {kib} KiB"), Box::new(run)));
    }
    group(&format!("{name} 16 KiB out of 250000 bytes level 6"), "k/s", cases);
}

fn main() {
    println!("experiment,case,value,unit,time ratio to the first,checksum");
    for path in std::env::args().skip(1).filter(|arg| !arg.starts_with("--")) {
        let (path, mut data) = (Path::new(&path), Vec::new());
        load(path, &mut data);
        data.truncate(LIMIT);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (level, partition) in [(1, 32), (6, 8), (6, 32), (6, 250), (6, 16 << 10), (12, 32)] {
            front(&name, level, partition << 10, &data, (1, 1));
        }
        front(&name, 6, 32 << 10, &data, (1, 2));
        pieces(&name, &data);
    }
}
