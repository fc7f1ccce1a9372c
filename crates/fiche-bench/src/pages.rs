//! Codecs on pages, as Warnke's *Page-Based Compression in the Linux Kernel* (2017) measures them: in one buffer (its Figure 5.2), on pages, and on pages by way of
//! buffers that are copied (5.3, 5.4), by acceleration (5.1).

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::codec::bewalgo::{self, Effort, Strictness, Width};
use fiche::codec::chunks::Chunks;
use fiche::codec::filter::Filter;
use fiche::codec::{Codec, Scratch};
use fiche::{Dst, Src};
use lz4::block::CompressionMode;

use crate::engine::Result;
use crate::events::{median, speed};

#[derive(clap::Args)]
pub struct Args {
    /// Files, each a data set; of a folder all files one behind the other
    data: Vec<PathBuf>,
    /// A table of floats too, which is generated: ten columns by rows, of which some stay for long
    #[arg(long)]
    generated: bool,
    /// Where tables go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Rounds; times are medians of them
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of each data set at most
    #[arg(long, default_value_t = 128)]
    mib: usize,
}

/// What is compressed at once, as the thesis has it.
const CHUNK: usize = 128 << 10;
const PAGE: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// One buffer.
    One,
    /// Pages; a codec that does not take them copies to one buffer and back.
    Pages,
}

#[derive(Clone, Copy)]
enum How {
    Memcpy,
    /// 32 bytes at a time, and some more at the end: the thesis's bound.
    Wild,
    /// The C library, of one buffer, to and from which pages are copied; faster by so much.
    Library(i32),
    /// The same by a level of high compression.
    High(i32),
    Codec(Codec, i32),
    Bewalgo(Width, Effort),
    /// A filter before it.
    Filtered(Filter, Codec),
}

impl How {
    fn name(self) -> String {
        let bewalgo = |width| if width == Width::Four { "bewalgo32" } else { "bewalgo64" };
        match self {
            How::Memcpy => "memcpy".into(),
            How::Wild => "wild copy".into(),
            How::Library(1) => "lz4 1.10.0".into(),
            How::Library(speed) => format!("lz4 1.10.0 --fast={speed}"),
            How::High(level) => format!("lz4hc 1.10.0 -{level}"),
            How::Codec(Codec::Lz4, level) if level < 1 => format!("fiche lz4 --fast={}", -level),
            How::Codec(Codec::Lz4, level) => format!("fiche lz4 -{level}"),
            How::Codec(codec, level) => format!("{codec} -{level}"),
            How::Bewalgo(width, Effort::Thesis(n)) => {
                format!("{} thesis --fast={n}", bewalgo(width))
            }
            How::Bewalgo(width, Effort::Fast(n)) => format!("{} --fast={n}", bewalgo(width)),
            How::Bewalgo(width, Effort::Best(n)) => format!("{} --depth={n}", bewalgo(width)),
            How::Filtered(filter, codec) => {
                format!("{filter}, {}", How::Codec(codec, 1).name())
            }
        }
    }

    /// Of the C library.
    fn mode(self) -> CompressionMode {
        match self {
            How::Library(speed) => CompressionMode::FAST(speed),
            How::High(level) => CompressionMode::HIGHCOMPRESSION(level),
            _ => CompressionMode::DEFAULT,
        }
    }

    fn compress(self, src: Src<'_>, dst: Dst<'_, '_>, scratch: &mut Scratch) -> Result<usize> {
        match self {
            How::Codec(codec, level) => {
                let len = src.len();
                Ok(codec.compress(level, src, dst, scratch)?.unwrap_or(len))
            }
            How::Bewalgo(width, effort) => {
                let done = bewalgo::compress(width, effort, src, dst, scratch);
                Ok(done.ok_or("no room for the bound")?)
            }
            _ => Err("a copy is none".into()),
        }
    }

    fn decompress(self, src: Src<'_>, dst: Dst<'_, '_>, scratch: &mut Scratch) -> Result<()> {
        match self {
            How::Codec(codec, _) => Ok(codec.decompress(src, dst, scratch)?),
            How::Bewalgo(width, _) => {
                let len = dst.len();
                let done = bewalgo::decompress(width, Strictness::Strict, src, dst)?;
                if done == len { Ok(()) } else { Err("less came back".into()) }
            }
            _ => Err("a copy is none".into()),
        }
    }
}

/// Room of which every second page is used.
struct Apart(Vec<u8>);

impl Apart {
    fn new(len: usize) -> Apart {
        Apart(vec![0xAA; len.div_ceil(PAGE) * 2 * PAGE])
    }

    fn pages(&self, len: usize) -> Vec<&[u8]> {
        let pages = self.0.chunks(2 * PAGE).enumerate();
        pages
            .map_while(|(i, page)| {
                let left = len.checked_sub(i * PAGE).filter(|&left| left > 0)?;
                Some(&page[..PAGE.min(left)])
            })
            .collect()
    }

    fn pages_mut(&mut self, len: usize) -> Vec<&mut [u8]> {
        let pages = self.0.chunks_mut(2 * PAGE).enumerate();
        pages
            .map_while(|(i, page)| {
                let left = len.checked_sub(i * PAGE).filter(|&left| left > 0)?;
                Some(&mut page[..PAGE.min(left)])
            })
            .collect()
    }
}

/// A chunk in all ways that it lies, and what comes of it.
struct Chunk {
    bytes: Vec<u8>,
    apart: Apart,
    stored: Vec<u8>,
    stored_apart: Apart,
    len: usize,
}

impl Chunk {
    fn new(bytes: &[u8]) -> Chunk {
        let mut apart = Apart::new(bytes.len());
        let mut rest = bytes;
        for page in apart.pages_mut(bytes.len()) {
            let (here, behind) = rest.split_at(page.len());
            page.copy_from_slice(here);
            rest = behind;
        }
        let room = bytes.len() + bytes.len() / 100 + 64;
        Chunk {
            bytes: bytes.to_vec(),
            apart,
            stored: vec![0xAA; room],
            stored_apart: Apart::new(room),
            len: 0,
        }
    }
}

/// All bytes of pages, in one buffer.
fn gather(pages: &[&[u8]], all: &mut Vec<u8>) {
    all.clear();
    pages.iter().for_each(|page| all.extend_from_slice(page));
}

fn scatter(mut bytes: &[u8], pages: &mut [&mut [u8]]) {
    for page in pages {
        let (here, behind) = bytes.split_at(page.len().min(bytes.len()));
        page[..here.len()].copy_from_slice(here);
        bytes = behind;
    }
}

/// Seconds of compressing all chunks and of decoding them, and how many bytes they took.
fn once(
    how: How,
    layout: Layout,
    chunks: &mut [Chunk],
    scratch: &mut Scratch,
    is_checked: bool,
) -> Result<(f64, f64, usize, u64)> {
    let (buffers, copied) = (&mut (Vec::new(), Vec::new()), &mut 0u64);
    let start = Instant::now();
    for chunk in &mut *chunks {
        chunk.len = match (how, layout) {
            (How::Memcpy, _) => {
                chunk.stored[..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                chunk.bytes.len()
            }
            (How::Wild, _) => {
                let (to, _) = chunk.stored.as_chunks_mut::<32>();
                let (from, _) = chunk.bytes.as_chunks::<32>();
                to.iter_mut().zip(from).for_each(|(to, from)| *to = black_box(*from));
                chunk.bytes.len()
            }
            (How::Library(_) | How::High(_), Layout::One) => {
                let mode = Some(how.mode());
                lz4::block::compress_to_buffer(&chunk.bytes, mode, false, &mut chunk.stored)?
            }
            (How::Library(_) | How::High(_), Layout::Pages) => {
                let mode = Some(how.mode());
                let (from, to) = &mut *buffers;
                gather(&chunk.apart.pages(chunk.bytes.len()), from);
                to.resize(chunk.stored.len(), 0);
                let len = lz4::block::compress_to_buffer(from, mode, false, to)?;
                scatter(&to[..len], &mut chunk.stored_apart.pages_mut(len));
                *copied += (from.len() + len) as u64;
                len
            }
            (How::Filtered(filter, codec), _) => {
                let (filtered, _) = &mut *buffers;
                filtered.resize(chunk.bytes.len(), 0);
                filter.apply(&chunk.bytes, filtered);
                let dst = chunk.stored.as_mut_slice().into();
                let len = codec.compress(1, filtered.as_slice().into(), dst, scratch)?;
                len.ok_or("no room for the bound")?
            }
            (_, Layout::One) => how.compress(
                chunk.bytes.as_slice().into(),
                chunk.stored.as_mut_slice().into(),
                scratch,
            )?,
            (_, Layout::Pages) => {
                let (from, room) = (chunk.apart.pages(chunk.bytes.len()), chunk.stored.len());
                let mut to = chunk.stored_apart.pages_mut(room);
                how.compress(Src::pages(&from)?, Dst::pages(&mut to)?, scratch)?
            }
        };
    }
    let compressed = start.elapsed().as_secs_f64();
    let stored = chunks.iter().map(|chunk| chunk.len).sum();
    if matches!(how, How::Memcpy | How::Wild) {
        return Ok((compressed, compressed, stored, 0));
    }
    let mut out = vec![0xAA; CHUNK];
    let mut out_apart = Apart::new(CHUNK);
    let start = Instant::now();
    for chunk in &*chunks {
        let len = chunk.bytes.len();
        if let How::Library(_) | How::High(_) = how {
            let most = Some(i32::try_from(len)?);
            let done = if layout == Layout::One {
                let from = &chunk.stored[..chunk.len];
                lz4::block::decompress_to_buffer(from, most, &mut out[..len])?
            } else {
                let (from, to) = &mut *buffers;
                gather(&chunk.stored_apart.pages(chunk.len), from);
                to.resize(len, 0);
                let done = lz4::block::decompress_to_buffer(from, most, to)?;
                scatter(to, &mut out_apart.pages_mut(len));
                *copied += (from.len() + len) as u64;
                done
            };
            if done != len {
                return Err("less came back".into());
            }
        } else if let How::Filtered(filter, codec) = how {
            let (filtered, _) = &mut *buffers;
            filtered.resize(len, 0);
            let dst = filtered.as_mut_slice().into();
            codec.decompress(chunk.stored[..chunk.len].into(), dst, scratch)?;
            filter.undo(filtered, &mut out[..len]);
        } else if layout == Layout::One {
            let dst = Dst::from(&mut out[..len]);
            how.decompress(chunk.stored[..chunk.len].into(), dst, scratch)?;
        } else {
            let from = chunk.stored_apart.pages(chunk.len);
            let mut to = out_apart.pages_mut(len);
            how.decompress(Src::pages(&from)?, Dst::pages(&mut to)?, scratch)?;
        }
        if is_checked {
            let found = match layout {
                Layout::One => out[..len].to_vec(),
                Layout::Pages => out_apart.pages(len).concat(),
            };
            if found != chunk.bytes {
                return Err(format!("{}: other bytes came back", how.name()).into());
            }
        }
    }
    Ok((compressed, start.elapsed().as_secs_f64(), stored, *copied))
}

struct Row {
    data: String,
    name: String,
    layout: Layout,
    bytes: usize,
    stored: usize,
    compress: Vec<f64>,
    decompress: Vec<f64>,
    copied: u64,
}

fn ways() -> Vec<(How, Layout)> {
    let mut ways = vec![(How::Memcpy, Layout::One), (How::Wild, Layout::One)];
    let both = |how| [(how, Layout::One), (how, Layout::Pages)];
    ways.extend(both(How::Library(1)));
    ways.extend(both(How::Codec(Codec::Lz4, 1)));
    ways.extend(both(How::Codec(Codec::Lz4, 2)));
    for n in [2, 4, 8, 16, 32, 64] {
        ways.push((How::Library(n), Layout::One));
        ways.push((How::Codec(Codec::Lz4, -n), Layout::One));
    }
    for level in [3, 5, 7, 9, 10, 12] {
        ways.push((How::High(level), Layout::One));
        ways.push((How::Codec(Codec::Lz4, level), Layout::One));
    }
    ways.push((How::High(9), Layout::Pages));
    ways.push((How::Codec(Codec::Lz4, 9), Layout::Pages));
    ways.push((How::Codec(Codec::Zstd, -1), Layout::One));
    ways.push((How::Codec(Codec::Zstd, 1), Layout::One));
    for width in [Width::Four, Width::Eight] {
        ways.extend(both(How::Bewalgo(width, Effort::Thesis(1))));
        ways.extend(both(How::Bewalgo(width, Effort::Fast(1))));
        for n in [2, 4, 8, 16, 32, 64] {
            ways.push((How::Bewalgo(width, Effort::Thesis(n)), Layout::One));
            ways.push((How::Bewalgo(width, Effort::Fast(n)), Layout::One));
        }
        ways.extend(both(How::Bewalgo(width, Effort::Best(16))));
        ways.push((How::Bewalgo(width, Effort::Best(256)), Layout::One));
    }
    for width in [4, 8] {
        for filter in [Filter::Shuffle(width), Filter::Bitshuffle(width)] {
            for codec in [Codec::Lz4, Codec::BeWalgo32, Codec::BeWalgo64] {
                ways.push((How::Filtered(filter, codec), Layout::One));
            }
        }
    }
    ways
}

fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut files = vec![path.to_path_buf()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let mut inside: Vec<PathBuf> =
                std::fs::read_dir(&path)?.map(|item| Ok(item?.path())).collect::<Result<_>>()?;
            inside.sort();
            files.extend(inside.into_iter().rev());
        } else if all.len() < most {
            all.extend(std::fs::read(&path)?);
        }
    }
    all.truncate(most);
    Ok(all)
}

/// A million rows of ten floats of four bytes: a time of steps, walks on a grid that seldom move, states that stay for long, nothing, and noise.
fn generated() -> Vec<u8> {
    let mut state = 1u64;
    let mut random = move |end: u64| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) % end
    };
    let (mut walks, mut states) = ([0i32; 4], [0u64; 3]);
    let mut all = Vec::new();
    for row in 0..1_000_000u32 {
        for walk in &mut walks {
            *walk += if random(8) == 0 { random(3) as i32 - 1 } else { 0 };
        }
        for state in &mut states {
            *state = if random(1000) == 0 { random(4) } else { *state };
        }
        let steps = (row / 100) as f32 * 0.5;
        let walks = walks.map(|walk| 20.0 + walk as f32 * 0.01);
        let states = states.map(|state| state as f32);
        let others = [0.0, random(1 << 24) as f32 / (1 << 24) as f32];
        let row = [steps].into_iter().chain(walks).chain(states).chain(others);
        all.extend(row.flat_map(f32::to_le_bytes));
    }
    all
}

/// Chunks by threads, from pages, as the thesis's Figures 5.5 and 5.6 have it; a line for each number of threads.
fn by_threads(data: &str, all: &[u8], rounds: usize, out: &mut String) -> Result<()> {
    let mut pages = Apart::new(all.len());
    scatter(all, &mut pages.pages_mut(all.len()));
    let pages = pages.pages(all.len());
    let most = std::thread::available_parallelism()?.get();
    for codec in [Codec::Lz4, Codec::BeWalgo32, Codec::BeWalgo64] {
        let mut times = vec![Vec::new(); most];
        let mut first = None;
        for _ in 0..rounds {
            for threads in 1..=most {
                let start = Instant::now();
                let chunks = Chunks::compress(codec, 1, Src::pages(&pages)?, CHUNK, threads)?;
                times[threads - 1].push(start.elapsed().as_secs_f64());
                let bytes = fingerprint(&chunks);
                if *first.get_or_insert(bytes) != bytes {
                    return Err(format!("{codec}: other bytes by {threads} threads").into());
                }
            }
        }
        let one = median(&times[0]);
        for (i, times) in times.iter().enumerate() {
            let time = median(times);
            let (threads, speed) = (i + 1, speed(all.len(), time));
            let _ =
                writeln!(out, "| {data} | {codec} | {threads} | {speed:.0} | {:.2} |", one / time);
        }
    }
    Ok(())
}

/// A number that other bytes hardly have.
fn fingerprint(chunks: &Chunks) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    let ends = chunks.table().ends();
    let mut all = vec![0; ends.last().copied().unwrap_or(0)];
    let segments = chunks.segments();
    let dst = all.as_mut_slice().into();
    let copied = Codec::Copy.decompress((&segments).into(), dst, &mut Scratch::default());
    copied.expect("there is room for all of it");
    (ends, all).hash(&mut hasher);
    hasher.finish()
}

pub fn run(args: &Args) -> Result<()> {
    let mut threads = String::from(
        "\n# Chunks by threads\n\nFrom pages, with the memory for what they become. The bytes are the same for any number of threads.\n\n\
         | data | codec | threads | compression, MB/s | times one thread |\n|---|---|---|---|---|\n",
    );
    let mut rows: Vec<Row> = Vec::new();
    let name = |path: &PathBuf| {
        path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    };
    let files = args.data.iter().map(|path| (name(path), Some(path)));
    let generated_table = args.generated.then(|| ("generated-table-of-floats".to_string(), None));
    for (data, path) in files.chain(generated_table) {
        eprintln!("{data}");
        let all = path.map_or_else(|| Ok(generated()), |path| read(path, args.mib << 20))?;
        by_threads(&data, &all, args.rounds, &mut threads)?;
        let mut chunks: Vec<Chunk> = all.chunks(CHUNK).map(Chunk::new).collect();
        let first = rows.len();
        for round in 0..args.rounds {
            for (i, (how, layout)) in ways().into_iter().enumerate() {
                let mut scratch = Scratch::default();
                if round == 0 {
                    // The first time is one with cold tables, and is checked.
                    let (_, _, stored, copied) =
                        once(how, layout, &mut chunks, &mut scratch, true)?;
                    rows.push(Row {
                        data: data.clone(),
                        name: how.name(),
                        layout,
                        bytes: all.len(),
                        stored,
                        compress: Vec::new(),
                        decompress: Vec::new(),
                        copied: copied + scratch.copied(),
                    });
                }
                let (compress, decompress, ..) =
                    once(how, layout, &mut chunks, &mut scratch, false)?;
                rows[first + i].compress.push(compress);
                rows[first + i].decompress.push(decompress);
            }
        }
    }
    std::fs::create_dir_all(&args.output)?;
    std::fs::write(args.output.join("pages.csv"), csv(&rows))?;
    Ok(std::fs::write(args.output.join("pages.md"), text(&rows, args) + &threads)?)
}

fn layout_name(layout: Layout) -> &'static str {
    if layout == Layout::One { "one" } else { "pages" }
}

fn text(rows: &[Row], args: &Args) -> String {
    let mut out = format!(
        "# Codecs on pages\n\nChunks of {} KiB, each alone, in one buffer or in pages of {PAGE} bytes of which no two lie side by side. A codec that wants one buffer copies pages there and back: bytes that \
         were copied so are told, in parts of the content. One thread, medians of {} rounds in which all of them come.\n\n\
         | data | codec | lies in | compression, MB/s | decompression, MB/s | bytes | ratio | copied |\n|---|---|---|---|---|---|---|---|\n",
        CHUNK >> 10,
        args.rounds
    );
    for row in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.0} | {:.0} | {} | {:.3} | {:.2} |",
            row.data,
            row.name,
            layout_name(row.layout),
            speed(row.bytes, median(&row.compress)),
            speed(row.bytes, median(&row.decompress)),
            row.stored,
            row.bytes as f64 / row.stored as f64,
            row.copied as f64 / row.bytes as f64,
        );
    }
    out
}

fn csv(rows: &[Row]) -> String {
    let mut out = String::from("data,codec,layout,bytes,stored,compress s,decompress s,copied\n");
    for row in rows {
        let (compress, decompress) = (median(&row.compress), median(&row.decompress));
        let _ = writeln!(
            out,
            "{},{},{},{},{},{compress:.6},{decompress:.6},{}",
            row.data,
            row.name,
            layout_name(row.layout),
            row.bytes,
            row.stored,
            row.copied
        );
    }
    out
}
