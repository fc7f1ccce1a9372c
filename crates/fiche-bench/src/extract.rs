//! A few bytes out of a unit: the experiment of Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in
//! Compression Enabled Storage Systems*, with its figures 3 to 14.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::ReadAt;
use fiche::codec::deflate::{Inflate, Input, Pause};
use fiche::phrases::{self, Coding, CompressedBuffer, Scratch};

use crate::engine::Result;
use crate::plot::{Series, scatter};

#[derive(clap::Args)]
pub struct Args {
    /// Folder of units, each a file
    folder: PathBuf,
    /// Where tables and plots go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Rounds, times being medians of them; six have all orders of the ways to read
    #[arg(long, default_value_t = 6)]
    rounds: usize,
}

/// Where reads begin, as far as units have so much: the paper's offsets.
const OFFSETS: [usize; 6] = [32 << 10, 64 << 10, 100 << 10, 140 << 10, 180 << 10, 215_000];
/// Reads at each of them begin a few bytes apart.
const JITTER: usize = 3;
const SMALL: [usize; 10] = [8, 16, 32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10];
const LARGE: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
const PARTITIONS: [usize; 4] = [64 << 10, 32 << 10, 16 << 10, 8 << 10];

/// The level that is nearest to what zlib does when it is built to be FASTEST: greedy, no lazy matches.
const FASTEST: u32 = 2;

/// What holds a unit and reads ranges of it.
enum Holder {
    /// One unit.
    Unit(Box<CompressedBuffer>),
    /// A deflate stream and where its partitions begin, in the content and in the stream; decoded from there.
    Partitions { stream: Vec<u8>, starts: Vec<Start> },
    /// Partitions as units, each with where it begins.
    Units(Vec<(usize, CompressedBuffer)>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Recursive,
    Sequential,
    Chosen,
}

struct Held {
    name: String,
    holder: Holder,
    stored: usize,
    index: usize,
    hints: usize,
    /// Microseconds that making the index took, and opening what was kept.
    build: f64,
    open: f64,
}

struct Room {
    scratch: Scratch,
    inflate: Inflate,
    room: Vec<u8>,
}

impl Held {
    fn unit(name: &str, coding: Coding, stored: Vec<u8>) -> Result<Held> {
        let clock = Instant::now();
        let mut unit = CompressedBuffer::open(coding, stored.clone())?;
        let build = clock.elapsed().as_secs_f64() * 1e6;
        let mut open = build;
        if coding != Coding::Lz77 {
            let kept = phrases::index(coding, &stored)?;
            let clock = Instant::now();
            unit = CompressedBuffer::open_indexed(coding, stored, &kept)?;
            open = clock.elapsed().as_secs_f64() * 1e6;
        }
        let sizes = unit.sizes();
        Ok(Held {
            name: name.to_owned(),
            stored: sizes.stored as usize,
            index: sizes.index as usize,
            hints: sizes.hints as usize,
            holder: Holder::Unit(Box::new(unit)),
            build,
            open,
        })
    }

    fn of(name: String, holder: Holder, stored: usize) -> Held {
        Held { name, holder, stored, index: 0, hints: 0, build: 0.0, open: 0.0 }
    }

    /// The ways that it can be read in, in all their orders.
    fn ways(&self) -> &'static [&'static [Way]] {
        use Way::{Chosen as C, Recursive as R, Sequential as S};
        match self.holder {
            Holder::Unit(_) => {
                &[&[R, S, C], &[C, S, R], &[S, R, C], &[C, R, S], &[R, C, S], &[S, C, R]]
            }
            Holder::Partitions { .. } => &[&[S]],
            Holder::Units(_) => &[&[R, S], &[S, R]],
        }
    }

    fn read(&self, way: Way, offset: usize, out: &mut [u8], with: &mut Room) -> Result<()> {
        match &self.holder {
            Holder::Unit(unit) => read_unit(unit, way, offset, out, &mut with.scratch),
            Holder::Units(units) => {
                let mut done = 0;
                let first = units.partition_point(|(start, _)| *start <= offset) - 1;
                for (start, unit) in &units[first..] {
                    let from = (offset + done).saturating_sub(*start);
                    let len = (unit.len() as usize - from).min(out.len() - done);
                    let piece = &mut out[done..done + len];
                    read_unit(unit, way, from, piece, &mut with.scratch)?;
                    done += len;
                    if done == out.len() {
                        break;
                    }
                }
                Ok(())
            }
            Holder::Partitions { stream, starts } => {
                // To the last byte, from where the partition begins that holds the first.
                let first = starts.partition_point(|(start, _)| *start <= offset) - 1;
                let (start, pos) = starts[first];
                let end = offset + out.len() - start;
                if with.room.len() < end {
                    with.room.resize(end, 0);
                }
                let (mut input, mut at) = (Input::new(stream, 8 * pos), 0);
                with.inflate.reset();
                let room = &mut with.room[..end];
                if with.inflate.run(&mut input, room, &mut at)? != Pause::Full {
                    return Err("a stream is short".into());
                }
                out.copy_from_slice(&room[offset - start..]);
                Ok(())
            }
        }
    }
}

fn read_unit(
    unit: &CompressedBuffer,
    way: Way,
    offset: usize,
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    match way {
        Way::Recursive => unit.read_recursive(offset as u64, out, scratch)?,
        Way::Sequential => unit.read_sequential(offset as u64, out, scratch)?,
        Way::Chosen => unit.read(offset as u64, out, scratch)?,
    };
    Ok(())
}

/// Where a partition begins in the content and in the stream.
type Start = (usize, usize);

/// What zlib makes of the content, with a full flush behind each piece: the stream, and where pieces begin.
fn zlib(content: &[u8], level: u32, piece: usize) -> Result<(Vec<u8>, Vec<Start>)> {
    let mut deflate = flate2::Compress::new(flate2::Compression::new(level), false);
    let mut stream = Vec::with_capacity(content.len() + (content.len() >> 3) + 4096);
    let mut starts = Vec::new();
    for (i, bytes) in content.chunks(piece).enumerate() {
        starts.push((i * piece, stream.len()));
        let is_last = (i + 1) * piece >= content.len();
        let flush =
            if is_last { flate2::FlushCompress::Finish } else { flate2::FlushCompress::Full };
        deflate.compress_vec(bytes, &mut stream, flush)?;
    }
    if deflate.total_in() != content.len() as u64 {
        return Err("zlib did not take all".into());
    }
    Ok((stream, starts))
}

/// All that is measured of a unit.
fn holders(content: &[u8]) -> Result<Vec<Held>> {
    let mut all = Vec::new();
    let (default, _) = zlib(content, 6, usize::MAX)?;
    let (fastest, _) = zlib(content, FASTEST, usize::MAX)?;
    let lz4 = lz4::block::compress(content, None, false)?;
    let snappy = snap::raw::Encoder::new().compress_vec(content)?;
    let same = |stored: &[u8]| phrases::transcode(Coding::Deflate, stored);
    all.push(Held::unit("zlib 2 without Huffman", Coding::Lz77, same(&fastest)?)?);
    all.push(Held::unit("zlib 6 without Huffman", Coding::Lz77, same(&default)?)?);
    all.push(Held::unit("lz77", Coding::Lz77, phrases::compress(content)?)?);
    for depth in [8, 4] {
        let name = format!("lz77, depth {depth}");
        all.push(Held::unit(&name, Coding::Lz77, phrases::compress_within(content, depth)?)?);
    }
    all.push(Held::unit("zlib 2", Coding::Deflate, fastest)?);
    all.push(Held::unit("zlib 6", Coding::Deflate, default)?);
    all.push(Held::unit("short chains", Coding::Deflate, phrases::deflate(content, u32::MAX)?)?);
    for depth in [8, 4] {
        let name = format!("short chains, depth {depth}");
        all.push(Held::unit(&name, Coding::Deflate, phrases::deflate(content, depth)?)?);
    }
    all.push(Held::unit("lz4", Coding::Lz4, lz4)?);
    all.push(Held::unit("snappy", Coding::Snappy, snappy)?);
    for level in [FASTEST, 6] {
        for piece in PARTITIONS {
            let (stream, starts) = zlib(content, level, piece)?;
            let stored = stream.len();
            let name = format!("zlib {level}, {}K", piece >> 10);
            all.push(Held::of(name, Holder::Partitions { stream, starts }, stored));
            // The same partitions without Huffman coding.
            let mut units = Vec::new();
            let mut stored = 0;
            for (i, bytes) in content.chunks(piece).enumerate() {
                let unit = same(&zlib(bytes, level, usize::MAX)?.0)?;
                stored += unit.len();
                units.push((i * piece, CompressedBuffer::open(Coding::Lz77, unit)?));
            }
            let name = format!("zlib {level} without Huffman, {}K", piece >> 10);
            all.push(Held::of(name, Holder::Units(units), stored));
        }
    }
    Ok(all)
}

type Key = (Way, usize, usize);

/// One unit: its name, its length, and of each holder the microseconds of a read by way, offset and length.
struct Unit {
    name: String,
    len: usize,
    held: Vec<Held>,
    times: Vec<BTreeMap<Key, f64>>,
}

impl Unit {
    fn measure(path: &Path, rounds: usize, with: &mut Room) -> Result<Unit> {
        let content = std::fs::read(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let held = holders(&content)?;
        let mut lens: Vec<usize> = SMALL.iter().chain(&LARGE).copied().collect();
        lens.dedup();
        let offsets: Vec<usize> =
            OFFSETS.into_iter().filter(|at| at + LARGE[3] + 40 * JITTER <= content.len()).collect();
        if offsets.is_empty() {
            return Err(format!("{name} is too short for the paper's offsets").into());
        }
        let mut taken: Vec<BTreeMap<Key, Vec<f64>>> =
            held.iter().map(|_| BTreeMap::new()).collect();
        let mut out = vec![0; LARGE[3]];
        for round in 0..rounds {
            for (held, taken) in held.iter().zip(&mut taken) {
                for &len in &lens {
                    for &offset in &offsets {
                        // None is more often than others the one whose caches are warm.
                        for &way in held.ways()[round % held.ways().len()] {
                            let clock = Instant::now();
                            for i in 0..JITTER {
                                held.read(way, offset + 37 * i, &mut out[..len], with)?;
                            }
                            let seconds = clock.elapsed().as_secs_f64() / JITTER as f64;
                            let at = offset + 37 * (JITTER - 1);
                            if out[..len] != content[at..at + len] {
                                return Err(format!("{name}: {} is wrong", held.name).into());
                            }
                            taken.entry((way, offset, len)).or_default().push(seconds * 1e6);
                        }
                    }
                }
                // All of it, as length 0.
                let mut whole = vec![0; content.len()];
                let clock = Instant::now();
                held.read(Way::Sequential, 0, &mut whole, with)?;
                let micros = clock.elapsed().as_secs_f64() * 1e6;
                taken.entry((Way::Sequential, 0, 0)).or_default().push(micros);
                if whole != content {
                    return Err(format!("{name}: {} is wrong", held.name).into());
                }
            }
        }
        let median = |(key, mut times): (Key, Vec<f64>)| {
            times.sort_by(f64::total_cmp);
            (key, (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0)
        };
        let times = taken.into_iter().map(|all| all.into_iter().map(median).collect()).collect();
        Ok(Unit { name, len: content.len(), held, times })
    }

    fn place(&self, name: &str) -> usize {
        self.held.iter().position(|held| held.name == name).unwrap_or(0)
    }

    /// Size in percent of the content, index included.
    fn percent(&self, name: &str) -> f64 {
        let held = &self.held[self.place(name)];
        100.0 * (held.stored + held.index) as f64 / self.len as f64
    }

    /// The mean time over these offsets (all where there are none) and lengths.
    fn mean(&self, name: &str, way: Way, offset: Option<usize>, lens: &[usize]) -> f64 {
        let found: Vec<f64> = self.times[self.place(name)]
            .iter()
            .filter(|((w, at, len), _)| {
                *w == way && offset.is_none_or(|offset| offset == *at) && lens.contains(len)
            })
            .map(|(_, time)| *time)
            .collect();
        found.iter().sum::<f64>() / found.len() as f64
    }

    /// The longest read that is faster by recursion than from the front; 0 where none is.
    fn crossover(&self, name: &str) -> usize {
        let wins = |&&len: &&usize| {
            self.mean(name, Way::Recursive, None, &[len])
                <= self.mean(name, Way::Sequential, None, &[len])
        };
        SMALL.iter().chain(&LARGE[1..]).take_while(wins).last().copied().unwrap_or(0)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    all.iter().sum::<f64>() / all.len() as f64
}

pub fn run(args: &Args) -> Result<()> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&args.folder)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "bin"));
    paths.sort();
    let mut with = Room { scratch: Scratch::default(), inflate: Inflate::new(), room: Vec::new() };
    let mut units = Vec::new();
    for path in &paths {
        units.push(Unit::measure(path, args.rounds, &mut with)?);
        eprint!("\r{} of {} units", units.len(), paths.len());
    }
    eprintln!();
    if units.is_empty() {
        return Err("the folder has no units, which are files NAME.bin".into());
    }
    units.sort_by(|a, b| a.percent("zlib 6").total_cmp(&b.percent("zlib 6")));
    std::fs::create_dir_all(&args.output)?;
    let mut text = format!(
        "# A few bytes out of a unit\n\n{} {} units of {} bytes, {} rounds. By `fiche-bench extract`.\n\n\
         Times are microseconds of a read, from memory, in the mean of units and of the offsets {OFFSETS:?}; each is the median of its \
         rounds. *Recursive* takes the phrases that the bytes come from, *from the front* decodes all \
         before them, *chosen* is what `CompressedBuffer::read` does.\n\n",
        crate::report::machine(),
        units.len(),
        units[0].len,
        args.rounds
    );
    sizes(&mut text, &units)?;
    times(&mut text, &units)?;
    choice(&mut text, &units)?;
    figure_3(&mut text, &units)?;
    figures(&mut text, &units, &args.output)?;
    crossovers(&mut text, &units)?;
    std::fs::write(args.output.join("extract.md"), text)?;
    csv(&args.output.join("extract.csv"), &units)
}

fn unit_names(units: &[Unit]) -> Vec<&str> {
    let is_unit = |held: &&Held| matches!(held.holder, Holder::Unit(_));
    units[0].held.iter().filter(is_unit).map(|held| held.name.as_str()).collect()
}

fn sizes(text: &mut String, units: &[Unit]) -> Result<()> {
    writeln!(
        text,
        "## Sizes\n\nOf all units together, in percent of the content. *Whole* is the stored bytes and the index that is kept with them; \
         hints are made of both in memory. The index is made, or a kept one opened (its checksums verified), in so many microseconds.\n"
    )?;
    writeln!(
        text,
        "| | stored | index | whole | to zlib 6 | hints | index made | kept one opened |\n|---|---|---|---|---|---|---|---|"
    )?;
    let total: usize = units.iter().map(|unit| unit.len).sum();
    let sum = |name: &str, of: &dyn Fn(&Held) -> usize| {
        let sum: usize = units.iter().map(|unit| of(&unit.held[unit.place(name)])).sum();
        100.0 * sum as f64 / total as f64
    };
    let zlib = sum("zlib 6", &|held| held.stored);
    for name in unit_names(units) {
        let (stored, index) = (sum(name, &|held| held.stored), sum(name, &|held| held.index));
        let hints = sum(name, &|held| held.hints);
        let build = mean(units.iter().map(|unit| unit.held[unit.place(name)].build));
        let open = mean(units.iter().map(|unit| unit.held[unit.place(name)].open));
        let whole = stored + index;
        let ratio = whole / zlib;
        writeln!(
            text,
            "| {name} | {stored:.2} | {index:.2} | {whole:.2} | {ratio:.3} | {hints:.2} | {build:.0} | {open:.0} |"
        )?;
    }
    Ok(writeln!(text)?)
}

fn times(text: &mut String, units: &[Unit]) -> Result<()> {
    writeln!(text, "## Times by length\n")?;
    let lens: Vec<usize> = SMALL.iter().chain(&LARGE[1..]).copied().collect();
    for name in unit_names(units) {
        writeln!(
            text,
            "{name}:\n\n| bytes | recursive | from the front | times as fast | chosen | to the better |\n|---|---|---|---|---|---|"
        )?;
        for &len in &lens {
            let of = |way| mean(units.iter().map(|unit| unit.mean(name, way, None, &[len])));
            let (recursive, front, chosen) =
                (of(Way::Recursive), of(Way::Sequential), of(Way::Chosen));
            let (faster, worse) = (front / recursive, chosen / recursive.min(front));
            writeln!(
                text,
                "| {len} | {recursive:.2} | {front:.2} | {faster:.1} | {chosen:.2} | {worse:.2} |"
            )?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// How much slower the way that is chosen is than the better one.
fn choice(text: &mut String, units: &[Unit]) -> Result<()> {
    writeln!(
        text,
        "## The choice\n\nOf each unit and length the time of the way that was chosen, by that of the better way for \
         the same reads: the geometric mean, how many of all are above 1.1, and the worst.\n\n\
         | | mean | above 1.1 | worst |\n|---|---|---|---|"
    )?;
    let lens: Vec<usize> = SMALL.iter().chain(&LARGE[1..]).copied().collect();
    for name in unit_names(units) {
        let mut ratios = Vec::new();
        for unit in units {
            for &len in &lens {
                let of = |way| unit.mean(name, way, None, &[len]);
                ratios.push(of(Way::Chosen) / of(Way::Recursive).min(of(Way::Sequential)));
            }
        }
        let geometric = mean(ratios.iter().map(|ratio| ratio.ln())).exp();
        let above = ratios.iter().filter(|&&ratio| ratio > 1.1).count();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let all = ratios.len();
        writeln!(text, "| {name} | {geometric:.3} | {above} of {all} | {worst:.2} |")?;
    }
    Ok(writeln!(text)?)
}

/// One unit, as the paper prints it.
fn figure_3(text: &mut String, units: &[Unit]) -> Result<()> {
    // One that shrinks to a third, about.
    let distance = |unit: &&Unit| ((unit.percent("zlib 6") - 33.0).abs() * 1000.0) as u64;
    let Some(unit) = units.iter().min_by_key(distance) else { return Ok(()) };
    let name = "zlib 6 without Huffman";
    writeln!(
        text,
        "## Figure 3: one unit\n\n{}, {name}: recursive (R) and from the front (S).\n",
        unit.name
    )?;
    let offsets: Vec<usize> =
        OFFSETS.into_iter().filter(|at| unit.times[0].keys().any(|key| key.1 == *at)).collect();
    write!(text, "| bytes |")?;
    offsets.iter().try_for_each(|at| write!(text, " R {0}K | S {0}K |", at >> 10))?;
    writeln!(text, " all |\n|---|{}---|", "---|---|".repeat(offsets.len()))?;
    let whole = unit.times[unit.place(name)][&(Way::Sequential, 0, 0)];
    for len in LARGE {
        write!(text, "| {len} |")?;
        for &at in &offsets {
            let of = |way| unit.mean(name, way, Some(at), &[len]);
            write!(text, " {:.1} | {:.1} |", of(Way::Recursive), of(Way::Sequential))?;
        }
        writeln!(text, " {whole:.1} |")?;
    }
    Ok(writeln!(text)?)
}

/// A line of a plot: its name, and what is at a unit or an offset.
type Line<'a> = (String, Box<dyn Fn(&Unit, Option<usize>) -> f64 + 'a>);

fn figures(text: &mut String, units: &[Unit], folder: &Path) -> Result<()> {
    writeln!(text, "## Figures 4 to 14\n")?;
    let bare = "zlib 6 without Huffman";
    let time = |label: &str, name: String, way: Way, lens: &'static [usize]| -> Line<'_> {
        let of = move |unit: &Unit, at: Option<usize>| unit.mean(&name, way, at, lens);
        (label.to_owned(), Box::new(of))
    };
    let both = |lens| {
        vec![
            time("recursive", bare.into(), Way::Recursive, lens),
            time("from the front", bare.into(), Way::Sequential, lens),
        ]
    };
    let micros = "microseconds of a read";
    let draw = |number: u32,
                title: &str,
                by_offset: bool,
                what: &str,
                lines: Vec<Line<'_>>|
     -> Result<String> {
        let mut series = Vec::new();
        for (name, of) in &lines {
            let points = match by_offset {
                false => units
                    .iter()
                    .map(|unit| (unit.percent("zlib 6"), of(unit, None), unit.name.clone()))
                    .collect(),
                true => OFFSETS
                    .iter()
                    .map(|&at| {
                        let time = mean(units.iter().map(|unit| of(unit, Some(at))));
                        ((at >> 10) as f64, time, format!("{}K", at >> 10))
                    })
                    .collect(),
            };
            series.push(Series { name: name.clone(), points });
        }
        let across = match by_offset {
            true => "offset, KiB",
            false => "unit by its size by zlib 6 with an index, percent",
        };
        let file = format!("extract-figure-{number}.svg");
        std::fs::write(folder.join(&file), scatter(title, across, what, &series))?;
        let means: Vec<String> = series
            .iter()
            .map(|s| format!("{} {:.2}", s.name, mean(s.points.iter().map(|p| p.1))))
            .collect();
        Ok(format!(
            "![Figure {number}: {title}]({file})\n\n{title}. Means: {}.\n",
            means.join(", ")
        ))
    };
    let mut out = vec![
        draw(4, "8 B to 4 KiB, by unit", false, micros, both(&SMALL))?,
        draw(5, "8 B to 4 KiB, by offset", true, micros, both(&SMALL))?,
        draw(6, "4 to 32 KiB, by unit", false, micros, both(&LARGE))?,
        draw(7, "4 to 32 KiB, by offset", true, micros, both(&LARGE))?,
    ];
    let parts = "zlib 6 without Huffman, 32K";
    let lines = vec![
        time("from the front", bare.into(), Way::Sequential, &LARGE),
        time("from the partition's front", parts.into(), Way::Sequential, &LARGE),
    ];
    out.push(draw(
        8,
        "Partitions of 32 KiB from their front, 4 to 32 KiB, by offset",
        true,
        micros,
        lines,
    )?);
    let lines = vec![
        time("from the front", bare.into(), Way::Sequential, &LARGE),
        time("recursive within partitions", parts.into(), Way::Recursive, &LARGE),
        time("from the partition's front", parts.into(), Way::Sequential, &LARGE),
    ];
    out.push(draw(
        9,
        "Recursion within partitions of 32 KiB, 4 to 32 KiB, by offset",
        true,
        micros,
        lines,
    )?);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for level in [FASTEST, 6] {
        for piece in PARTITIONS {
            let (name, whole) =
                (format!("zlib {level}, {}K", piece >> 10), format!("zlib {level}"));
            let label = format!(
                "{}, {}K",
                if level == FASTEST { "FASTEST" } else { "default" },
                piece >> 10
            );
            lines.push((
                label,
                Box::new(move |unit, _| {
                    let stored = |name: &str| unit.held[unit.place(name)].stored as f64;
                    100.0 * stored(&name) / stored(&whole)
                }),
            ));
        }
    }
    out.push(draw(
        10,
        "Size of partitions, FASTEST and default",
        false,
        "size, percent of one partition's of the level",
        lines,
    )?);
    let mut lines = vec![time("one unit", "zlib 6".into(), Way::Sequential, &LARGE)];
    for piece in PARTITIONS {
        let name = format!("zlib 6, {}K", piece >> 10);
        lines.push(time(&format!("{}K", piece >> 10), name, Way::Sequential, &LARGE));
    }
    out.push(draw(11, "PEX, 4 to 32 KiB, by unit", false, micros, lines)?);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for piece in [32, 16, 8] {
        let name = format!("zlib 6, {piece}K");
        lines.push((
            format!("{piece}K"),
            Box::new(move |unit, at| {
                unit.mean("zlib 6", Way::Sequential, at, &LARGE)
                    / unit.mean(&name, Way::Sequential, at, &LARGE)
            }),
        ));
    }
    out.push(draw(
        12,
        "PEX relative to one unit, 4 to 32 KiB, by offset",
        true,
        "times as fast",
        lines,
    )?);
    let lines = vec![
        time("PEX 32K", "zlib 6, 32K".into(), Way::Sequential, &LARGE),
        time("the same without Huffman coding", parts.into(), Way::Sequential, &LARGE),
    ];
    out.push(draw(
        13,
        "PEX with and without Huffman coding, 4 to 32 KiB, by unit",
        false,
        micros,
        lines,
    )?);
    let percent = |label: &str, name: &'static str| -> Line<'_> {
        (label.to_owned(), Box::new(move |unit: &Unit, _| unit.percent(name)))
    };
    let lines = vec![
        percent("PEX 32K", "zlib 6, 32K"),
        percent("the same without Huffman coding", "zlib 6 without Huffman, 32K"),
        percent("lz77", "lz77"),
    ];
    out.push(draw(
        14,
        "Sizes with and without Huffman coding",
        false,
        "size, percent of the content",
        lines,
    )?);
    out.iter().try_for_each(|figure| writeln!(text, "{figure}"))?;
    // Figure 10 in numbers: points of percent, as the paper has them.
    writeln!(
        text,
        "Figure 10 in numbers: what partitions add, in percent of the content; the mean of units, and the most of any.\n\n\
         | | {} |\n|---|{}",
        PARTITIONS.map(|p| format!("{}K", p >> 10)).join(" | "),
        "---|".repeat(PARTITIONS.len())
    )?;
    for (level, label) in [(FASTEST, "FASTEST"), (6, "default")] {
        let cell = |piece: usize| {
            let adds: Vec<f64> = units
                .iter()
                .map(|unit| {
                    unit.percent(&format!("zlib {level}, {}K", piece >> 10)) - {
                        let held = &unit.held[unit.place(&format!("zlib {level}"))];
                        100.0 * held.stored as f64 / unit.len as f64
                    }
                })
                .collect();
            let most = adds.iter().copied().fold(0.0, f64::max);
            format!("{:.2}, {most:.2}", mean(adds.into_iter()))
        };
        writeln!(text, "| {label} | {} |", PARTITIONS.map(cell).join(" | "))?;
    }
    Ok(writeln!(text)?)
}

fn crossovers(text: &mut String, units: &[Unit]) -> Result<()> {
    let names = unit_names(units);
    writeln!(
        text,
        "## Where decoding from the front overtakes\n\nThe longest read, in bytes, for which recursion is as fast in the mean of the offsets.\n"
    )?;
    writeln!(
        text,
        "| unit | zlib 6, percent | {} |\n|---|---|{}",
        names.join(" | "),
        "---|".repeat(names.len())
    )?;
    for unit in units {
        let cells: Vec<String> =
            names.iter().map(|name| unit.crossover(name).to_string()).collect();
        let held = &unit.held[unit.place("zlib 6")];
        let percent = 100.0 * held.stored as f64 / unit.len as f64;
        writeln!(text, "| {} | {percent:.1} | {} |", unit.name, cells.join(" | "))?;
    }
    Ok(())
}

fn csv(path: &Path, units: &[Unit]) -> Result<()> {
    let mut text = String::from(
        "unit,bytes,who,stored,index,hints,index made us,kept one opened us,way,8 B to 4 KiB us,64 B us,256 B us,4 to 32 KiB us\n",
    );
    for unit in units {
        for held in &unit.held {
            for &way in held.ways()[0] {
                let label = match way {
                    Way::Recursive => "recursive",
                    Way::Sequential => "from the front",
                    Way::Chosen => "chosen",
                };
                let of = |lens: &[usize]| unit.mean(&held.name, way, None, lens);
                let Held { name, stored, index, hints, build, open, .. } = held;
                let name = name.replace(',', "");
                writeln!(
                    text,
                    "{},{},{name},{stored},{index},{hints},{build:.1},{open:.1},{label},{:.2},{:.2},{:.2},{:.2}",
                    unit.name,
                    unit.len,
                    of(&SMALL),
                    of(&[64]),
                    of(&[256]),
                    of(&LARGE)
                )?;
            }
        }
    }
    Ok(std::fs::write(path, text)?)
}
