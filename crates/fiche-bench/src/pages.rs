//! Codecs on pages, as Warnke's *Page-Based Compression in the Linux Kernel* (2017) measures them: in one buffer, on pages, and on pages by way of
//! buffers that are copied (its Figures 5.3, 5.4 and B.3), and by threads (5.5, 5.6, B.4, B.5).

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use fiche::Src;
use fiche::codec::bewalgo::{Effort, Width};
use fiche::codec::chunks::Chunks;
use fiche::codec::{Codec, Scratch};

use crate::coding::{Apart, Args, CHUNK, How, Layout, PAGE, Row, csv, measure, scatter, table};
use crate::engine::Result;
use crate::events::{median, speed};

fn ways() -> Vec<(How, Layout)> {
    let mut ways = vec![(How::Memcpy, Layout::One), (How::Wild, Layout::One)];
    let library = |how| [(how, Layout::One), (how, Layout::Pages)];
    let all = |how| [(how, Layout::One), (how, Layout::Pages), (how, Layout::List)];
    ways.extend(library(How::Library(1)));
    ways.extend(all(How::Codec(Codec::Lz4, 1)));
    ways.extend(all(How::Codec(Codec::Lz4, 2)));
    ways.extend(library(How::High(9)));
    ways.extend(all(How::Codec(Codec::Lz4, 9)));
    for width in [Width::Four, Width::Eight] {
        for effort in [Effort::Thesis(1), Effort::Fast(1), Effort::Best(16)] {
            ways.extend(all(How::Bewalgo(width, effort)));
        }
    }
    ways
}

/// Chunks by threads, from one buffer as the thesis's Figures 5.5 and B.4 have it, and from pages (5.6, B.5); a line for each number of threads.
fn by_threads(data: &str, all: &[u8], rounds: usize, out: &mut String) -> Result<()> {
    let mut pages = Apart::new(all.len());
    scatter(all, &mut pages.pages_mut(all.len()));
    let pages = pages.pages(all.len());
    let layouts = [(Layout::One, Src::from(all)), (Layout::Pages, Src::pages(&pages)?)];
    let most = std::thread::available_parallelism()?.get();
    let codecs = [Codec::Lz4, Codec::BeWalgo32, Codec::BeWalgo64];
    for (codec, (layout, src)) in codecs.iter().flat_map(|codec| layouts.map(|l| (*codec, l))) {
        let mut times = vec![Vec::new(); most];
        let mut first = None;
        for _ in 0..rounds {
            for threads in 1..=most {
                let start = Instant::now();
                let chunks = Chunks::compress(codec, 1, src, CHUNK, threads)?;
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
            let (layout, times_one) = (layout.name(), one / time);
            let _ = writeln!(
                out,
                "| {data} | {codec} | {layout} | {threads} | {speed:.0} | {times_one:.2} |"
            );
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
        "\n# Chunks by threads\n\nWith the memory for what they become. The bytes are the same for any number of threads.\n\n\
         | data | codec | lies in | threads | compression, MB/s | times one thread |\n|---|---|---|---|---|---|\n",
    );
    let mut rows: Vec<Row> = Vec::new();
    args.each(|data, all| {
        eprintln!("{data}");
        by_threads(data, all, args.rounds, &mut threads)?;
        rows.extend(measure(data, all, CHUNK, &ways(), args.rounds)?);
        Ok(())
    })?;
    std::fs::create_dir_all(&args.output)?;
    std::fs::write(args.output.join("pages.csv"), csv(&rows))?;
    let text = format!(
        "# Codecs on pages\n\nChunks of {} KiB, each alone, in one buffer, in pages of {PAGE} bytes of which no two lie side by side, or in a list of segments of two lengths that lie so. A codec that wants one buffer copies pages there and back: bytes that \
         were copied so are told, in parts of the content. One thread, medians of {} rounds in which all of them come.\n\n",
        CHUNK >> 10,
        args.rounds
    );
    Ok(std::fs::write(args.output.join("pages.md"), text + &table(&rows) + &threads)?)
}
