//! Relative Lempel-Ziv by itself: factoring, decoding, and reads of a few bytes.
//!
//! `cargo bench -p fiche --bench rlz -- DATA...` prints a CSV. Cases of a group are run in turn,
//! five rounds after a warm-up; a ratio is the median of the ratios of the rounds to the first
//! case. Every decoded byte goes into a checksum, which must agree within a group. DATA is a large file,
//! or a folder whose files are taken one after the other.

mod common;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use common::{Case, group, load, sum};
use fiche::archive::{OpenOptions, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary, Sampling};
use fiche::testing::{Coded, Factoring, Random};
use fiche::{FileSource, ReadAt};

const BLOCK: usize = 16 << 10;
/// Of each data set so many blocks are factored and read, at places that are not evenly spaced.
const BLOCKS: usize = 1024;
/// What is read for a few bytes.
const POINT_METHODS: [(&str, Coding, i32); 5] = [
    ("rlz-uv", Coding::Uv, 0),
    ("rlz-pv", Coding::Pv, 0),
    ("hybrid 2", Coding::Fast, 2),
    ("hybrid 4", Coding::Fast, 4),
    ("hybrid 9", Coding::Hybrid, 9),
];
/// Reads of a few bytes.
const POINTS: usize = 200_000;

/// True for methods of a list, in which `hybrid 4` is `hybrid-4`, and for all where that is empty.
fn is_wanted(method: &str, only: &[&str]) -> bool {
    only.is_empty() || only.contains(&method.replace(' ', "-").as_str())
}

/// Blocks of the data, one of each equal part, at a random place in it.
fn some_blocks(data: &[u8]) -> Vec<&[u8]> {
    let count = BLOCKS.min(data.len() / BLOCK);
    let (stride, mut random) = (data.len() / count, Random(1));
    let place = |i| stride * i + random.below((stride - BLOCK) as u64 + 1) as usize;
    (0..count).map(place).collect::<Vec<_>>().into_iter().map(|at| &data[at..at + BLOCK]).collect()
}

/// Exact greedy factoring, 16 blocks at a time on one thread; and how long it takes to sort.
fn factoring(name: &str, dictionary: &Arc<Dictionary>, blocks: &[&[u8]]) -> Factoring {
    let start = Instant::now();
    let factoring = Factoring::new(dictionary.clone());
    let rate = dictionary.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{name} preparing,once,{rate:.1},MB/s,,");
    let bytes = (blocks.len() * BLOCK) as u64;
    let mut count = 0;
    let run = || {
        count = blocks.chunks(16).flat_map(|some| factoring.factor(some)).map(|f| f.len()).sum();
        (bytes, count as u64)
    };
    group(&format!("{name} factoring"), "MB/s", vec![("greedy".into(), Box::new(run))]);
    println!("{name} factors,mean length,{:.2},bytes,,", bytes as f64 / count as f64);
    factoring
}

/// Whole blocks in random order, from memory.
fn decoding(
    name: &str,
    dictionary: &Arc<Dictionary>,
    blocks: &[&[u8]],
    factoring: &Factoring,
    coded: &mut [(Coding, Coded)],
) {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    let mut random = Random(1);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let bytes = (blocks.len() * BLOCK) as u64;
    let (order, factors) = (&order, factoring.factor(blocks));
    let mut buf = vec![0; BLOCK];
    // The bare loop: nothing is checked or unpacked, and nothing is asked for ahead.
    let bare = move || {
        let mut total = 0u64;
        for &i in order {
            let mut at = 0;
            for &(len, offset) in &factors[i] {
                let (len, offset) = (len as usize, offset as usize);
                if len == 0 {
                    buf[at] = offset as u8;
                    at += 1;
                } else {
                    let text = &dictionary.as_bytes()[offset..offset + len];
                    buf[at..at + len].copy_from_slice(text);
                    at += len;
                }
            }
            total = total.wrapping_add(sum(&buf));
        }
        (bytes, total)
    };
    let mut cases: Vec<Case<'_>> = vec![("copy loop over factors".into(), Box::new(bare))];
    for (coding, coded) in coded {
        let mut buf = vec![0; BLOCK];
        let run = move || {
            let mut total = 0u64;
            for &i in order {
                if !coded.read(i, 0, &mut buf) {
                    buf.copy_from_slice(blocks[i]);
                }
                total = total.wrapping_add(sum(&buf));
            }
            (bytes, total)
        };
        cases.push((coding.to_string(), Box::new(run)));
    }
    group(&format!("{name} decoding"), "MB/s", cases);
}

/// Reads of a few bytes at random places through an archive: in memory, from a cached file, and
/// as they are where whole blocks have to be decoded.
fn points(name: &str, data: &[u8], coder: &Arc<Coder>, len: usize) {
    let pack = |options: Options| {
        let mut writer = Writer::new(Vec::new(), options.block_len(BLOCK)).expect("options");
        writer.write_all(data).expect("writing to memory");
        writer.finish().expect("writing to memory")
    };
    let file = pack(Options::default().coder(coder.clone()));
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(path.path(), &file).expect("writing");
    let open =
        |source: Arc<dyn ReadAt>| OpenOptions::default().cache(0).open(source).expect("open");
    let source = || FileSource::open(path.path()).expect("open");
    let kept = Reader::open(Arc::new(source())).expect("open");
    let through = move |reader: Reader, points: usize| -> Box<dyn FnMut() -> (u64, u64)> {
        let mut buf = vec![0; len];
        Box::new(move || {
            let (mut random, mut total) = (Random(7), 0u64);
            // Whole blocks are slow: a part of the reads, counted as often as they stand for.
            let times = (POINTS / points) as u64;
            for _ in 0..points {
                let offset = random.below(reader.len() - len as u64);
                reader.read_at(offset, &mut buf).expect("read");
                total = total.wrapping_add(sum(&buf));
            }
            let _ = total;
            (POINTS as u64 / times, 0)
        })
    };
    let batches = |reader: Reader| -> Box<dyn FnMut() -> (u64, u64)> {
        const BATCH: usize = 1000;
        let mut room = vec![0; BATCH * len];
        Box::new(move || {
            let mut random = Random(7);
            for _ in 0..POINTS / BATCH {
                let place = |buf| (random.below(reader.len() - len as u64), buf);
                let mut reads: Vec<_> = room.chunks_exact_mut(len).map(place).collect();
                let results = reader.read_many_at(&mut reads);
                assert!(results.iter().all(Result::is_ok), "read");
            }
            (POINTS as u64, 0)
        })
    };
    // What no reader of a file can be below: the stored bytes of a block, fetched and not looked at.
    let blocks_stored = data.len().div_ceil(BLOCK);
    let (stored, bare) = (file.len() / blocks_stored, source());
    let fetches = move || {
        let (mut random, mut buf) = (Random(7), vec![0; stored]);
        for _ in 0..POINTS {
            bare.read_at(random.below(bare.len() - stored as u64), &mut buf).expect("read");
        }
        (POINTS as u64, 0)
    };
    let lz4 = pack(Options::default().codec(Codec::Lz4));
    let zstd = pack(Options::default().codec(Codec::Zstd).level(19));
    let few = POINTS / 10;
    let mut whole = vec![0; BLOCK];
    let blocks: Vec<&[u8]> = data.chunks_exact(BLOCK).collect();
    let mut coded = Coded::new(coder.clone(), &blocks);
    let whole_blocks = move || {
        let (mut random, mut total) = (Random(7), 0u64);
        for _ in 0..few {
            let i = random.below(blocks.len() as u64) as usize;
            if !coded.read(i, 0, &mut whole) {
                whole.copy_from_slice(blocks[i]);
            }
            total = total.wrapping_add(sum(&whole[..len]));
        }
        let _ = total;
        (few as u64, 0)
    };
    let cases: Vec<Case<'_>> = vec![
        ("whole blocks without archive".into(), Box::new(whole_blocks)),
        ("archive in memory".into(), through(open(Arc::new(file.clone())), POINTS)),
        ("archive in memory by a thousand".into(), batches(open(Arc::new(file)))),
        ("archive in a cached file".into(), through(open(Arc::new(source())), POINTS)),
        ("archive in a file with blocks kept".into(), through(kept, POINTS)),
        ("a block's stored bytes from the file".into(), Box::new(fetches)),
        ("lz4 archive in memory".into(), through(open(Arc::new(lz4)), few)),
        ("zstd 19 archive in memory".into(), through(open(Arc::new(zstd)), few)),
    ];
    group(&format!("{name} {len} bytes at random places"), "M/s", cases);
}

/// Reads of 16 KiB (aligned and not) and of 64 to 256 bytes through archives in memory, without a cache: what has
/// a dictionary has the same one. Sizes are those of the archives. `only` some methods, or all.
fn reads(name: &str, data: &[u8], dictionary: &Arc<Dictionary>, only: &[&str]) {
    let pack = |options: Options| {
        let options = options.block_len(BLOCK).threads(2);
        let mut writer = Writer::new(Vec::new(), options).expect("options");
        writer.write_all(data).expect("writing to memory");
        writer.finish().expect("writing to memory")
    };
    let with = |coding, level| {
        let coder = Coder::with_level(coding, level, dictionary.clone()).expect("a coder");
        let coder = coder.learn(&data, BLOCK).expect("reading memory");
        pack(Options::default().coder(Arc::new(coder)))
    };
    let methods: [(&str, &dyn Fn() -> Vec<u8>); 8] = [
        ("zstd-dict 19", &|| with(Coding::ZstdDict, 19)),
        ("hybrid 9", &|| with(Coding::Hybrid, 9)),
        ("hybrid 5", &|| with(Coding::Hybrid, 5)),
        ("hybrid 4", &|| with(Coding::Hybrid, 4)),
        ("hybrid 2", &|| with(Coding::Hybrid, 2)),
        ("rlz-pv", &|| with(Coding::Pv, 0)),
        ("zstd 19", &|| pack(Options::default().codec(Codec::Zstd).level(19))),
        ("lz4", &|| pack(Options::default().codec(Codec::Lz4))),
    ];
    let files = methods.into_iter().filter(|(name, _)| is_wanted(name, only));
    let files: Vec<(&str, Vec<u8>)> = files.map(|(name, file)| (name, file())).collect();
    for (method, file) in &files {
        let percent = 100.0 * file.len() as f64 / data.len() as f64;
        println!("{name} size,{method},{percent:.3},%,,");
    }
    let open = |file: Vec<u8>| OpenOptions::default().cache(0).open(Arc::new(file)).expect("open");
    let readers: Vec<_> = files.into_iter().map(|(method, file)| (method, open(file))).collect();
    const READS: u64 = 10_000;
    for (what, len, align) in [
        ("16 KiB, aligned", BLOCK, BLOCK as u64),
        ("16 KiB, not aligned", BLOCK, 1),
        ("128 bytes", 128, 1),
    ] {
        let case = |(method, reader): &(&str, Reader)| -> Case<'_> {
            let (reader, mut buf) = (reader.clone(), vec![0; len]);
            let run = move || {
                let (mut random, mut total) = (Random(7), 0u64);
                for _ in 0..READS {
                    let offset = random.below(reader.len() - BLOCK as u64) / align * align;
                    reader.read_at(offset, &mut buf).expect("read");
                    total = total.wrapping_add(sum(&buf));
                }
                (READS, total)
            };
            ((*method).to_owned(), Box::new(run))
        };
        group(&format!("{name} reads of {what}"), "M/s", readers.iter().map(case).collect());
    }
}

/// Packing on one core and on two, behind a dictionary that is ready and with codes that were learned;
/// how long those two take, and what the blocks become, the dictionary not counted. They are read back first.
fn packing(name: &str, data: &[u8], dictionary: &Arc<Dictionary>, blocks: &[&[u8]]) {
    let text = blocks.concat();
    let levels = [(Coding::ZstdDict, 3), (Coding::ZstdDict, 12), (Coding::ZstdDict, 19)];
    let levels = levels.into_iter().chain(Coding::Hybrid.levels().map(|l| (Coding::Hybrid, l)));
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (coding, level) in levels {
        let start = Instant::now();
        let coder = Coder::with_level(coding, level, dictionary.clone()).expect("a coder");
        println!("{name} preparing,{coding} {level},{:.2},s,,", start.elapsed().as_secs_f64());
        let start = Instant::now();
        let coder = Arc::new(coder.learn(&data, BLOCK).expect("reading memory"));
        println!("{name} learning,{coding} {level},{:.2},s,,", start.elapsed().as_secs_f64());
        let mut coded = Coded::new(coder.clone(), blocks);
        let mut read = vec![0; BLOCK];
        for (i, block) in blocks.iter().enumerate() {
            assert!(!coded.read(i, 0, &mut read) || read == *block, "{coding} {level}: block {i}");
        }
        let stored = coded.stored_len();
        let percent = 100.0 * stored as f64 / text.len() as f64;
        println!("{name} blocks,{coding} {level},{percent:.3},%,,");
        let threads = if level == coding.default_level() { vec![1, 2] } else { vec![1] };
        for threads in threads {
            let (coder, text) = (coder.clone(), &text);
            let run = move || {
                let options = Options::default().block_len(BLOCK).threads(threads);
                let options = options.coder(coder.clone()).dictionary_file("a dictionary");
                let mut writer = Writer::new(std::io::sink(), options).expect("options");
                writer.write_all(text).expect("writing to nothing");
                writer.finish().expect("writing to nothing");
                (text.len() as u64, sum(text))
            };
            cases.push((format!("{coding} {level} {threads} threads"), Box::new(run)));
        }
    }
    group(&format!("{name} packing"), "MB/s", cases);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let sizes = args.iter().find_map(|arg| arg.strip_prefix("--dict="));
    let sizes: Vec<u64> = sizes
        .unwrap_or("4,16,64")
        .split(',')
        .map(|mebibytes| mebibytes.parse().expect("mebibytes"))
        .collect();
    let only = args.iter().find_map(|arg| arg.strip_prefix("--only="));
    let only: Vec<&str> = only.map_or(Vec::new(), |only| only.split(',').collect());
    let has = |what: &str| args.iter().any(|arg| arg == what);
    println!("experiment,case,value,unit,time ratio to the first,checksum");
    for path in args.iter().filter(|arg| !arg.starts_with("--")) {
        let mut data = Vec::new();
        load(Path::new(path), &mut data);
        let set = Path::new(path).file_name().expect("a name").to_string_lossy();
        let blocks = some_blocks(&data);
        for &mebibytes in sizes.iter().filter(|&&size| size << 20 <= data.len() as u64 / 2) {
            let name = format!("{set} {mebibytes} MiB");
            let sampling = Sampling::default().len(mebibytes << 20);
            let dictionary = Arc::new(sampling.run(&data).expect("a sample"));
            if has("--reads") {
                let few = &data[..data.len().min(64 << 20)];
                reads(&format!("{name} even"), few, &dictionary, &only);
                let chosen = sampling.clone().cover(true).run(&data).expect("samples");
                reads(&format!("{name} cover"), few, &Arc::new(chosen), &only);
                continue;
            }
            if has("--packing") {
                packing(&name, &data, &dictionary, &blocks);
                continue;
            }
            let coder = |coding| Arc::new(Coder::new(coding, dictionary.clone()).expect("a coder"));
            if has("--points") {
                let few = &data[..data.len().min(64 << 20)];
                for (method, coding, level) in POINT_METHODS {
                    if !is_wanted(method, &only) {
                        continue;
                    }
                    let coder =
                        Coder::with_level(coding, level, dictionary.clone()).expect("a coder");
                    let coder = Arc::new(coder.learn(&few, BLOCK).expect("reading memory"));
                    for len in [64, 256] {
                        points(&format!("{name} {method}"), few, &coder, len);
                    }
                }
                continue;
            }
            let factoring = factoring(&name, &dictionary, &blocks);
            let mut coded: Vec<(Coding, Coded)> =
                [Coding::Uv, Coding::Pv, Coding::Zz, Coding::Zzz, Coding::ZstdDict]
                    .map(|coding| (coding, Coded::new(coder(coding), &blocks)))
                    .into();
            decoding(&name, &dictionary, &blocks, &factoring, &mut coded);
        }
    }
}
