//! Codecs at work on chunks that lie in one buffer, on pages, or in a list of segments: what is measured of them by `codec` and by `pages`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::codec::bewalgo::{self, Effort, Strictness, Width};
use fiche::codec::filter::Filter;
use fiche::codec::{Codec, Scratch};
use fiche::{Dst, Segments, SegmentsMut, Src};
use lz4::block::CompressionMode;

use crate::engine::Result;
use crate::events::{median, speed};

/// What both are told.
#[derive(clap::Args)]
pub struct Args {
    /// Files, each a data set; of a folder all files one behind the other
    data: Vec<PathBuf>,
    /// A table of floats too, which is generated: ten columns by rows, of which some stay for long
    #[arg(long)]
    generated: bool,
    /// Where tables and plots go
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// Rounds; times are medians of them
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// MiB of each data set at most
    #[arg(long, default_value_t = 128)]
    mib: usize,
}

impl Args {
    /// Calls `each` with the name of each data set and its content.
    pub fn each(&self, mut each: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
        for path in &self.data {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let all = read(path, self.mib << 20)?;
            if all.is_empty() {
                return Err(format!("{} has no content", path.display()).into());
            }
            each(&name.unwrap_or_default(), &all)?;
        }
        match self.generated {
            true => each("generated-table-of-floats", &generated()),
            false => Ok(()),
        }
    }
}

/// What is compressed at once, as the thesis has it.
pub const CHUNK: usize = 128 << 10;
pub const PAGE: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    /// One buffer.
    One,
    /// Pages; a codec that does not take them copies to one buffer and back.
    Pages,
    /// The same in segments of two lengths, a little more and a little less than a page: a list that has to be looked through for a place.
    List,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::One => "one",
            Layout::Pages => "pages",
            Layout::List => "list",
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum How {
    Memcpy,
    /// 32 bytes at a time, and some more at the end: the thesis's bound.
    Wild,
    /// The C library, of one buffer, to and from which pages are copied; faster by so much.
    Library(i32),
    /// The same by a level of high compression.
    High(i32),
    Codec(Codec, i32),
    Bewalgo(Width, Effort),
    Snappy,
    /// Deflate by libdeflate, which decodes it as well.
    Libdeflate(i32),
    /// A filter before it.
    Filtered(Filter, Codec),
}

impl How {
    pub fn name(self) -> String {
        let bewalgo = |width| if width == Width::Four { "bewalgo32" } else { "bewalgo64" };
        match self {
            How::Memcpy => "memcpy".into(),
            How::Wild => "wild copy".into(),
            How::Library(1) => "lz4 1.10.0".into(),
            How::Library(speed) => format!("lz4 1.10.0 --fast={speed}"),
            How::High(level) => format!("lz4hc 1.10.0 -{level}"),
            How::Codec(Codec::Lz4, level) if level < 1 => format!("fiche lz4 --fast={}", -level),
            How::Codec(Codec::Lz4, level) => format!("fiche lz4 -{level}"),
            How::Codec(Codec::Zstd, level) if level < 0 => format!("zstd --fast={}", -level),
            How::Codec(codec, level) => format!("{codec} -{level}"),
            How::Bewalgo(width, Effort::Thesis(n)) => {
                format!("{} thesis --fast={n}", bewalgo(width))
            }
            How::Bewalgo(width, Effort::Fast(n)) => format!("{} --fast={n}", bewalgo(width)),
            How::Bewalgo(width, Effort::Best(n)) => format!("{} --depth={n}", bewalgo(width)),
            How::Snappy => "snappy (snap)".into(),
            How::Libdeflate(level) => format!("libdeflate -{level}"),
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

/// By how much segments differ from pages in a list.
const UNEVEN: usize = 96;

/// Pages cut otherwise: a list of segments of two lengths, of which no two lie side by side.
fn uneven(at: usize) -> usize {
    if at.is_multiple_of(2) { PAGE - UNEVEN } else { PAGE + UNEVEN }
}

/// Room of which every second page is used.
pub struct Apart(Vec<u8>);

impl Apart {
    pub fn new(len: usize) -> Apart {
        Apart(vec![0xAA; (len.div_ceil(PAGE) + 1) * 2 * PAGE])
    }

    /// Room in segments of two lengths.
    fn list(&self, len: usize) -> Vec<&[u8]> {
        let (mut left, mut list) = (len, Vec::new());
        for (i, place) in self.0.chunks(2 * PAGE).enumerate() {
            let some = left.min(uneven(i));
            list.push(&place[..some]);
            left -= some;
        }
        list
    }

    fn list_mut(&mut self, len: usize) -> Vec<&mut [u8]> {
        let (mut left, mut list) = (len, Vec::new());
        for (i, place) in self.0.chunks_mut(2 * PAGE).enumerate() {
            let some = left.min(uneven(i));
            list.push(&mut place[..some]);
            left -= some;
        }
        list
    }

    pub fn pages(&self, len: usize) -> Vec<&[u8]> {
        let pages = self.0.chunks(2 * PAGE).enumerate();
        pages
            .map_while(|(i, page)| {
                let left = len.checked_sub(i * PAGE).filter(|&left| left > 0)?;
                Some(&page[..PAGE.min(left)])
            })
            .collect()
    }

    pub fn pages_mut(&mut self, len: usize) -> Vec<&mut [u8]> {
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
pub struct Chunk {
    bytes: Vec<u8>,
    apart: Apart,
    list: Apart,
    stored: Vec<u8>,
    stored_apart: Apart,
    len: usize,
}

impl Chunk {
    pub fn new(bytes: &[u8]) -> Chunk {
        let (mut apart, mut list) = (Apart::new(bytes.len()), Apart::new(bytes.len()));
        scatter(bytes, &mut apart.pages_mut(bytes.len()));
        scatter(bytes, &mut list.list_mut(bytes.len()));
        let room = bytes.len() + bytes.len() / 6 + 64;
        Chunk {
            bytes: bytes.to_vec(),
            apart,
            list,
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

pub fn scatter(mut bytes: &[u8], pages: &mut [&mut [u8]]) {
    for page in pages {
        let (here, behind) = bytes.split_at(page.len().min(bytes.len()));
        page[..here.len()].copy_from_slice(here);
        bytes = behind;
    }
}

/// Codecs of others that have state.
struct Others {
    snappy: snap::raw::Encoder,
    unsnappy: snap::raw::Decoder,
    deflate: libdeflater::Compressor,
    inflate: libdeflater::Decompressor,
}

impl Others {
    fn new(how: How) -> Result<Others> {
        let level = if let How::Libdeflate(level) = how { level } else { 1 };
        let level = libdeflater::CompressionLvl::new(level).map_err(|_| "no such level")?;
        Ok(Others {
            snappy: snap::raw::Encoder::new(),
            unsnappy: snap::raw::Decoder::new(),
            deflate: libdeflater::Compressor::new(level),
            inflate: libdeflater::Decompressor::new(),
        })
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
    let mut others = Others::new(how)?;
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
            (How::Library(_) | How::High(_), _) => {
                let mode = Some(how.mode());
                let (from, to) = &mut *buffers;
                gather(&chunk.apart.pages(chunk.bytes.len()), from);
                to.resize(chunk.stored.len(), 0);
                let len = lz4::block::compress_to_buffer(from, mode, false, to)?;
                scatter(&to[..len], &mut chunk.stored_apart.pages_mut(len));
                *copied += (from.len() + len) as u64;
                len
            }
            (How::Snappy, _) => others.snappy.compress(&chunk.bytes, &mut chunk.stored)?,
            (How::Libdeflate(_), _) => {
                let packed = others.deflate.deflate_compress(&chunk.bytes, &mut chunk.stored);
                packed.map_err(|error| format!("libdeflate: {error}"))?
            }
            (How::Filtered(filter, codec), _) => {
                let (filtered, _) = &mut *buffers;
                filtered.resize(chunk.bytes.len(), 0);
                filter.apply(chunk.bytes.as_slice().into(), filtered.as_mut_slice().into());
                let dst = chunk.stored.as_mut_slice().into();
                let len = codec.compress(1, filtered.as_slice().into(), dst, scratch)?;
                len.ok_or("no room for the bound")?
            }
            (_, Layout::One) => how.compress(
                chunk.bytes.as_slice().into(),
                chunk.stored.as_mut_slice().into(),
                scratch,
            )?,
            (_, Layout::List) => {
                let from = Segments::new(chunk.list.list(chunk.bytes.len()));
                let mut to = SegmentsMut::new(chunk.stored_apart.list_mut(chunk.stored.len()));
                how.compress((&from).into(), (&mut to).into(), scratch)?
            }
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
    let most = chunks.iter().map(|chunk| chunk.bytes.len()).max().unwrap_or(0);
    let (mut out, mut out_apart) = (vec![0xAA; most], Apart::new(most));
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
        } else if let How::Snappy = how {
            if others.unsnappy.decompress(&chunk.stored[..chunk.len], &mut out[..len])? != len {
                return Err("less came back".into());
            }
        } else if let How::Libdeflate(_) = how {
            let stored = &chunk.stored[..chunk.len];
            let done = others.inflate.deflate_decompress(stored, &mut out[..len]);
            if done.map_err(|error| format!("libdeflate: {error}"))? != len {
                return Err("less came back".into());
            }
        } else if let How::Filtered(filter, codec) = how {
            let (filtered, _) = &mut *buffers;
            filtered.resize(len, 0);
            let dst = filtered.as_mut_slice().into();
            codec.decompress(chunk.stored[..chunk.len].into(), dst, scratch)?;
            filter.undo(filtered.as_slice().into(), (&mut out[..len]).into());
        } else if layout == Layout::One {
            let dst = Dst::from(&mut out[..len]);
            how.decompress(chunk.stored[..chunk.len].into(), dst, scratch)?;
        } else if layout == Layout::List {
            let from = Segments::new(chunk.stored_apart.list(chunk.len));
            let mut to = SegmentsMut::new(out_apart.list_mut(len));
            how.decompress((&from).into(), (&mut to).into(), scratch)?;
        } else {
            let from = chunk.stored_apart.pages(chunk.len);
            let mut to = out_apart.pages_mut(len);
            how.decompress(Src::pages(&from)?, Dst::pages(&mut to)?, scratch)?;
        }
        if is_checked {
            let found = match layout {
                Layout::One => out[..len].to_vec(),
                Layout::Pages => out_apart.pages(len).concat(),
                Layout::List => out_apart.list(len).concat(),
            };
            if found != chunk.bytes {
                return Err(format!("{}: other bytes came back", how.name()).into());
            }
        }
    }
    Ok((compressed, start.elapsed().as_secs_f64(), stored, *copied))
}

/// What came of one way with one data set.
pub struct Row {
    pub data: String,
    pub how: How,
    pub layout: Layout,
    /// Length of chunks.
    pub chunk: usize,
    pub bytes: usize,
    pub stored: usize,
    compress: Vec<f64>,
    decompress: Vec<f64>,
    copied: u64,
}

impl Row {
    pub fn ratio(&self) -> f64 {
        self.bytes as f64 / self.stored as f64
    }

    /// MB/s of compressing.
    pub fn compress(&self) -> f64 {
        speed(self.bytes, median(&self.compress))
    }

    /// MB/s of decoding.
    pub fn decompress(&self) -> f64 {
        speed(self.bytes, median(&self.decompress))
    }
}

/// Measures all ways on chunks of a data set, in rounds in which all of them come.
pub fn measure(
    data: &str,
    all: &[u8],
    chunk: usize,
    ways: &[(How, Layout)],
    rounds: usize,
) -> Result<Vec<Row>> {
    let mut chunks: Vec<Chunk> = all.chunks(chunk).map(Chunk::new).collect();
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..rounds.max(1) {
        for (i, &(how, layout)) in ways.iter().enumerate() {
            let mut scratch = Scratch::default();
            if round == 0 {
                // The first time is one with cold tables, and is checked.
                let (_, _, stored, copied) = once(how, layout, &mut chunks, &mut scratch, true)?;
                rows.push(Row {
                    data: data.to_owned(),
                    how,
                    layout,
                    chunk,
                    bytes: all.len(),
                    stored,
                    compress: Vec::new(),
                    decompress: Vec::new(),
                    copied: copied + scratch.copied(),
                });
            }
            let (compress, decompress, ..) = once(how, layout, &mut chunks, &mut scratch, false)?;
            rows[i].compress.push(compress);
            rows[i].decompress.push(decompress);
        }
    }
    Ok(rows)
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| data | codec | chunks, KiB | lies in | compression, MB/s | decompression, MB/s | bytes | ratio | copied |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.0} | {:.0} | {} | {:.3} | {:.2} |",
            row.data,
            row.how.name(),
            row.chunk >> 10,
            row.layout.name(),
            row.compress(),
            row.decompress(),
            row.stored,
            row.ratio(),
            row.copied as f64 / row.bytes as f64,
        );
    }
    out
}

pub fn csv(rows: &[Row]) -> String {
    let mut out =
        String::from("data,codec,chunk,layout,bytes,stored,compress s,decompress s,copied\n");
    for row in rows {
        let (compress, decompress) = (median(&row.compress), median(&row.decompress));
        let _ = writeln!(
            out,
            "{},\"{}\",{},{},{},{},{compress:.6},{decompress:.6},{}",
            row.data,
            row.how.name(),
            row.chunk,
            row.layout.name(),
            row.bytes,
            row.stored,
            row.copied
        );
    }
    out
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
