//! What an archive costs over its bare codec, in time and in bytes.
//!
//! `cargo bench -p fiche -- DATA [--index]` prints a CSV. Every case of a group is run
//! in turn, five rounds after a warm-up; a ratio is the median of the ratios of the
//! rounds. Every decoded byte goes into a checksum, which must agree within a group.
//! DATA is any large file, or a folder whose files are taken one after the other.

mod common;

use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use common::{group, load, median, sum};
use fiche::archive::{OpenOptions, Options, Reader, Writer};
use fiche::codec::{Codec, Scratch};
use fiche::testing::Random;
use fiche::{FileSource, ReadAt};

const BLOCK: usize = 16 << 10;
/// As much as is read of DATA.
const LIMIT: usize = 64 << 20;

fn pack(data: &[u8], codec: Codec, level: i32, threads: usize) -> Vec<u8> {
    let options = Options::default().codec(codec).level(level).block_len(BLOCK).threads(threads);
    let mut writer = Writer::new(Vec::with_capacity(data.len()), options).expect("options");
    writer.write_all(data).expect("writing to memory");
    writer.finish().expect("writing to memory")
}

/// Each block compressed by the bare codec; raw where it does not shrink.
fn bare(data: &[u8], codec: Codec, level: i32, scratch: &mut Scratch) -> Vec<Vec<u8>> {
    let mut room = vec![0; BLOCK];
    data.chunks(BLOCK)
        .map(|block| {
            let room = &mut room[..block.len() - 1];
            let len = codec.compress(level, block.into(), room.into(), scratch).expect("compress");
            len.map_or_else(|| block.to_vec(), |len| room[..len].to_vec())
        })
        .collect()
}

/// Whole blocks in random order: the bare codec, through an archive in memory, and
/// through positioned reads of a cached file.
fn reading(data: &[u8], codec: Codec, level: i32) {
    let mut scratch = Scratch::default();
    let blocks = bare(data, codec, level, &mut scratch);
    let file = pack(data, codec, level, 2);
    let path = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(path.path(), &file).expect("writing");
    let mut order: Vec<usize> = (0..data.len() / BLOCK).collect();
    let mut random = Random(1);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let open =
        |source: Arc<dyn ReadAt>| OpenOptions::default().cache(0).open(source).expect("open");
    let memory = open(Arc::new(file));
    let positioned = open(Arc::new(FileSource::open(path.path()).expect("open")));
    let bytes = (order.len() * BLOCK) as u64;
    let order = &order;
    let through = move |reader: Reader| {
        let mut buf = vec![0; BLOCK];
        move || {
            let read = |&i: &usize| {
                reader.read_at((i * BLOCK) as u64, &mut buf).expect("read");
                sum(&buf)
            };
            (bytes, order.iter().map(read).fold(0, u64::wrapping_add))
        }
    };
    let mut buf = vec![0; BLOCK];
    let bare = move || {
        let mut total = 0u64;
        for &i in order {
            let stored = blocks[i].as_slice();
            match stored.len() == BLOCK {
                true => buf.copy_from_slice(stored),
                false => codec
                    .decompress(stored.into(), buf.as_mut_slice().into(), &mut scratch)
                    .expect("decompress"),
            }
            total = total.wrapping_add(sum(&buf));
        }
        (bytes, total)
    };
    group(
        &format!("random whole 16 KiB blocks {codec} {level}"),
        "MB/s",
        vec![
            ("bare codec".into(), Box::new(bare)),
            ("archive in memory".into(), Box::new(through(memory))),
            ("archive in a cached file".into(), Box::new(through(positioned))),
        ],
    );
}

/// All of it in order.
fn packing(data: &[u8], codec: Codec, level: i32) {
    let bytes = data.len() as u64;
    let mut scratch = Scratch::default();
    let mut room = vec![0; BLOCK];
    let bare = move || {
        for block in data.chunks(BLOCK) {
            let room = &mut room[..block.len() - 1];
            black_box(
                codec.compress(level, block.into(), room.into(), &mut scratch).expect("compress"),
            );
        }
        (bytes, 0)
    };
    // Neither keeps what it writes: fresh memory has a price of its own.
    let archive = |threads| {
        move || {
            let options = Options::default().codec(codec).level(level).block_len(BLOCK);
            let mut writer =
                Writer::new(std::io::sink(), options.threads(threads)).expect("options");
            writer.write_all(data).expect("writing nowhere");
            writer.finish().expect("writing nowhere");
            (bytes, 0)
        }
    };
    group(
        &format!("packing {codec} {level}"),
        "MB/s",
        vec![
            ("bare codec".into(), Box::new(bare)),
            ("archive 1 thread".into(), Box::new(archive(1))),
            ("archive 2 threads".into(), Box::new(archive(2))),
        ],
    );
    let mut scratch = Scratch::default();
    let blocks = bare_blocks(data, codec, level);
    let mut buf = vec![0; BLOCK];
    let bare = move || {
        for (i, stored) in blocks.iter().enumerate() {
            let len = BLOCK.min(data.len() - i * BLOCK);
            match stored.len() == len {
                true => buf[..len].copy_from_slice(stored),
                false => codec
                    .decompress(stored.as_slice().into(), (&mut buf[..len]).into(), &mut scratch)
                    .expect("decompress"),
            }
            black_box(&buf);
        }
        (bytes, 0)
    };
    let reader = Reader::open(Arc::new(pack(data, codec, level, 2))).expect("open");
    let stream = |threads| {
        let reader = reader.clone();
        move || {
            let stream = reader.stream(0..reader.len(), threads).expect("stream");
            (stream.copy_to(&mut std::io::sink()).expect("decode"), 0)
        }
    };
    group(
        &format!("unpacking {codec} {level}"),
        "MB/s",
        vec![
            ("bare codec".into(), Box::new(bare)),
            ("archive 1 thread".into(), Box::new(stream(1))),
            ("archive 2 threads".into(), Box::new(stream(2))),
        ],
    );
    let info = reader.info().expect("info");
    let bits = info.index_bytes as f64 * 8.0 / info.blocks as f64;
    let mean = (info.compressed_bytes as f64 / info.blocks as f64).log2();
    println!(
        "index {codec} {level},{} blocks,{bits:.3},bits a block,{:.3},over log2 of the mean",
        info.blocks,
        bits - mean
    );
}

fn bare_blocks(data: &[u8], codec: Codec, level: i32) -> Vec<Vec<u8>> {
    bare(data, codec, level, &mut Scratch::default())
}

/// An archive of 2^26 blocks, of which most is made up: what its index costs and how
/// long it takes to open.
fn index() {
    let path = tempfile::NamedTempFile::new().expect("a file");
    let out = std::io::BufWriter::with_capacity(1 << 20, path.reopen().expect("a file"));
    let options = Options::default().codec(Codec::Lz4).block_len(1 << 10);
    let mut writer = Writer::new(out, options).expect("options");
    let (mut random, mut chunk) = (Random(1), vec![0; 1 << 20]);
    for _ in 0..1 << 16 {
        for block in chunk.chunks_mut(1 << 10) {
            let len = random.below(200) as usize;
            block.fill(0);
            block[..len].copy_from_slice(&random.bytes(len));
        }
        writer.write_all(&chunk).expect("writing");
    }
    drop(writer.finish().expect("writing"));
    let open = || {
        let reader =
            Reader::open(Arc::new(FileSource::open(path.path()).expect("open"))).expect("open");
        (1, reader.len())
    };
    let mut seconds: Vec<f64> = Vec::new();
    for _ in 0..11 {
        let start = Instant::now();
        black_box(open());
        seconds.push(start.elapsed().as_secs_f64());
    }
    let reader =
        Reader::open(Arc::new(FileSource::open(path.path()).expect("open"))).expect("open");
    let info = reader.info().expect("info");
    let bits = info.index_bytes as f64 * 8.0 / info.blocks as f64;
    let mean = (info.compressed_bytes as f64 / info.blocks as f64).log2();
    let millis = median(seconds) * 1e3;
    println!("open 2^26 blocks,{} blocks,{millis:.2},ms,,", info.blocks);
    println!(
        "index 2^26 blocks,{} blocks,{bits:.3},bits a block,{:.3},over log2 of the mean",
        info.blocks,
        bits - mean
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    println!("experiment,case,value,unit,time ratio to the first,checksum");
    if args.iter().any(|arg| arg == "--index") {
        index();
    }
    for path in args.iter().filter(|arg| !arg.starts_with("--")) {
        let mut data = Vec::new();
        load(Path::new(path), &mut data);
        data.truncate(LIMIT);
        for (codec, level) in
            [(Codec::Lz4, 1), (Codec::Zstd, 3), (Codec::Deflate, 6), (Codec::Zstd, 19)]
        {
            reading(&data, codec, level);
            if level < 19 {
                packing(&data, codec, level);
            }
        }
    }
}
