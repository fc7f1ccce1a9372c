//! Codecs in one buffer: beside others, by acceleration and level, on chunks and on single pages, and the lengths that LZ4 finds; Figures 2.3, 5.1, 5.2, B.1 and B.2 of Warnke's
//! *Page-Based Compression in the Linux Kernel* (2017).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fiche::codec::bewalgo::{Effort, Width};
use fiche::codec::filter::Filter;
use fiche::codec::{Codec, Scratch};

use crate::ablations;
use crate::coding::{Args, CHUNK, How, Layout, PAGE, Row, csv, measure, table};
use crate::engine::Result;
use crate::engines::{command, process};
use crate::events::speed;
use crate::lines::{Line, Shown, over};

/// Accelerations of the thesis's Figure 5.1.
const FASTER: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A codec with an acceleration.
type Accelerated = (&'static str, fn(u32) -> How);

/// Codecs that go on faster through what does not shrink.
const ACCELERATED: [Accelerated; 6] = [
    ("lz4 1.10.0", |n| How::Library(n as i32)),
    ("fiche lz4", |n| How::Codec(Codec::Lz4, if n == 1 { 1 } else { -(n as i32) })),
    ("bewalgo32 thesis", |n| How::Bewalgo(Width::Four, Effort::Thesis(n))),
    ("bewalgo32", |n| How::Bewalgo(Width::Four, Effort::Fast(n))),
    ("bewalgo64 thesis", |n| How::Bewalgo(Width::Eight, Effort::Thesis(n))),
    ("bewalgo64", |n| How::Bewalgo(Width::Eight, Effort::Fast(n))),
];

/// What is measured on chunks of this length.
fn ways(chunk: usize) -> Vec<(How, Layout)> {
    let mut ways = vec![How::Memcpy, How::Wild, How::Codec(Codec::Lz4, 2)];
    for n in FASTER {
        let all = ACCELERATED.iter().map(|(_, how)| how(n));
        ways.extend(all.filter(|_| n == 1 || chunk == CHUNK));
    }
    for level in [3, 5, 7, 9, 10, 12] {
        ways.extend([How::High(level), How::Codec(Codec::Lz4, level)]);
    }
    for width in [Width::Four, Width::Eight] {
        ways.extend([16, 256].map(|depth| How::Bewalgo(width, Effort::Best(depth))));
    }
    ways.extend([How::Snappy, How::Codec(Codec::Lzo, 1)]);
    ways.extend([-5, -1, 1, 3].map(|level| How::Codec(Codec::Zstd, level)));
    ways.extend([1, 6].map(How::Libdeflate));
    if chunk == CHUNK {
        for width in [4, 8] {
            for filter in [Filter::Shuffle(width), Filter::Bitshuffle(width)] {
                let codecs = [Codec::Lz4, Codec::BeWalgo32, Codec::BeWalgo64];
                ways.extend(codecs.map(|codec| How::Filtered(filter, codec)));
            }
        }
    }
    ways.into_iter().map(|how| (how, Layout::One)).collect()
}

/// How often each length comes.
#[derive(Default)]
struct Lengths {
    literals: BTreeMap<usize, u64>,
    matches: BTreeMap<usize, u64>,
}

/// The shortest match of LZ4.
const SHORTEST: usize = 4;
/// What the half of a token holds that tells a length, and the byte behind it.
const IN_TOKEN: usize = 15;
const IN_BYTE: usize = 255;

impl Lengths {
    /// Those of a data set in chunks, as LZ4's level 1 finds them.
    fn of(all: &[u8]) -> Result<Lengths> {
        let (mut lengths, mut scratch) = (Lengths::default(), Scratch::default());
        let mut stored = vec![0; CHUNK + CHUNK / 100 + 64];
        for chunk in all.chunks(CHUNK) {
            let dst = stored.as_mut_slice().into();
            let len = Codec::Lz4.compress(1, chunk.into(), dst, &mut scratch)?;
            let len = len.ok_or("no room for the bound")?;
            lengths.count(&stored[..len]).ok_or("a block of LZ4 that is none")?;
        }
        Ok(lengths)
    }

    /// Counts those of a block.
    fn count(&mut self, block: &[u8]) -> Option<()> {
        let mut bytes = block.iter();
        let length = |half: u8, bytes: &mut std::slice::Iter<'_, u8>| {
            let mut length = usize::from(half);
            if length == IN_TOKEN {
                loop {
                    let more = *bytes.next()?;
                    length += usize::from(more);
                    if usize::from(more) < IN_BYTE {
                        break;
                    }
                }
            }
            Some(length)
        };
        while let Some(token) = bytes.next() {
            let literals = length(token >> 4, &mut bytes)?;
            *self.literals.entry(literals).or_default() += 1;
            bytes = bytes.as_slice().get(literals..)?.iter();
            if bytes.as_slice().is_empty() {
                // Nothing follows the last ones.
                return Some(());
            }
            bytes = bytes.as_slice().get(2..)?.iter();
            let matched = length(token & 15, &mut bytes)? + SHORTEST;
            *self.matches.entry(matched).or_default() += 1;
        }
        None
    }

    /// Both kinds: their names, how long they are at least, and how often each length comes.
    fn kinds(&self) -> [(&'static str, usize, &BTreeMap<usize, u64>); 2] {
        [("literals", 0, &self.literals), ("matches", SHORTEST, &self.matches)]
    }
}

/// In how many of all it is less than this.
fn share(lengths: &BTreeMap<usize, u64>, limit: usize) -> f64 {
    let (all, less) = (lengths.values().sum::<u64>(), lengths.range(..limit));
    less.map(|(_, count)| count).sum::<u64>() as f64 / all.max(1) as f64
}

/// A line for each length that has come so far, over its logarithm.
fn line(name: &str, lengths: &BTreeMap<usize, u64>) -> Line {
    let (all, mut sum) = (lengths.values().sum::<u64>(), 0);
    let points = lengths.iter().map(|(&length, count)| {
        sum += count;
        ((length as f64 + 1.0).log2(), sum as f64 / all.max(1) as f64 * 100.0)
    });
    Line { name: name.to_owned(), points: points.collect() }
}

/// Compression by acceleration: the ratio and the speed of each codec.
fn by_acceleration(data: &str, rows: &[&Row]) -> String {
    let lines = ACCELERATED.map(|(name, how)| {
        let row = |n| rows.iter().find(|row| row.how == how(n) && row.chunk == CHUNK);
        let points = FASTER.into_iter().filter_map(row);
        let points = points.map(|row| (row.compress(), row.ratio())).collect();
        Line { name: name.to_owned(), points }
    });
    let title = format!("{data}: acceleration 1 to 64, chunks of {} KiB", CHUNK >> 10);
    over(&title, "compression, MB/s", "ratio", Shown::Line, &lines)
}

/// Blosc2 has no Rust; it is called from Python, which has its modules or has not.
const BLOSC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/blosc.py");

/// What Blosc2 makes of the chunks of a data set: lines of a table.
fn blosc(data: &str, all: &[u8], rounds: usize, out: &mut String) -> Result<()> {
    let python = process::python();
    if command(&python, &["-c", "import blosc2"]).is_err() {
        eprintln!("SKIP: the Python module blosc2");
        return Ok(());
    }
    let path = std::env::temp_dir().join(format!("fiche-bench-{}", std::process::id()));
    std::fs::write(&path, all)?;
    let (file, chunk, rounds) = (path.to_string_lossy(), CHUNK.to_string(), rounds.to_string());
    let told = command(&python, &[BLOSC, &file, &chunk, &rounds]);
    std::fs::remove_file(&path)?;
    for line in String::from_utf8(told?)?.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[name, stored, compress, decompress] = columns.as_slice() else {
            return Err(format!("{BLOSC} says {line:?}").into());
        };
        let speeds = [compress, decompress].map(|seconds| seconds.parse::<f64>());
        let [compress, decompress] = speeds.map(|time| time.map(|time| speed(all.len(), time)));
        let ratio = all.len() as f64 / stored.parse::<f64>()?;
        let _ = writeln!(
            out,
            "| {data} | {name} | {:.0} | {:.0} | {stored} | {ratio:.3} |",
            compress?, decompress?
        );
    }
    Ok(())
}

pub fn run(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.output)?;
    let mut names: Vec<String> = Vec::new();
    let (mut rows, mut counts) = (Vec::new(), String::from("data,kind,length,count\n"));
    let mut shares = String::from(
        "| data | kind | how many | in the token | in the token and a byte | longer |\n|---|---|---|---|---|---|\n",
    );
    let mut others = String::from(
        "\n# Blosc2\n\nFrom Python, on the same chunks, at its level 5, by one thread, with the memory for what they become; so is memcpy here.\n\n\
         | data | what | compression, MB/s | decompression, MB/s | bytes | ratio |\n|---|---|---|---|---|---|\n",
    );
    let mut undone = String::from(
        "| data | what is undone | compression, MB/s | times all |\n|---|---|---|---|\n",
    );
    args.each(|data, all| {
        eprintln!("{data}");
        names.push(data.to_owned());
        let lengths = Lengths::of(all)?;
        for (kind, shortest, lengths) in lengths.kinds() {
            for (length, count) in lengths {
                let _ = writeln!(counts, "{data},{kind},{length},{count}");
            }
            let (token, byte) = (shortest + IN_TOKEN, shortest + IN_TOKEN + IN_BYTE);
            let (token, byte) = (share(lengths, token) * 100.0, share(lengths, byte) * 100.0);
            let (all, longer) = (lengths.values().sum::<u64>(), 100.0 - byte);
            let _ = writeln!(
                shares,
                "| {data} | {kind} | {all} | {token:.1} % | {byte:.2} % | {longer:.2} % |"
            );
        }
        let lines = lengths.kinds().map(|(kind, _, lengths)| line(kind, lengths));
        let title = format!("{data}: lengths of literals and matches");
        let (across, what) = ("bytes and one more, 2 to the power of", "percent are no longer");
        let plot = over(&title, across, what, Shown::Line, &lines);
        std::fs::write(args.output.join(format!("codec-{data}-lengths.svg")), plot)?;
        ablations::measure(data, all, args.rounds, &mut undone)?;
        blosc(data, all, args.rounds, &mut others)?;
        for chunk in [CHUNK, CHUNK / 8, PAGE] {
            rows.extend(measure(data, all, chunk, &ways(chunk), args.rounds)?);
        }
        let own: Vec<&Row> = rows.iter().filter(|row| row.data == data).collect();
        let plot = by_acceleration(data, &own);
        Ok(std::fs::write(args.output.join(format!("codec-{data}-acceleration.svg")), plot)?)
    })?;
    std::fs::write(args.output.join("codec.csv"), csv(&rows))?;
    std::fs::write(args.output.join("codec-lengths.csv"), counts)?;
    let text = format!(
        "# Codecs\n\nChunks, each alone, in one buffer; those of {PAGE} bytes are single pages, compressed independently. One thread, medians of {} rounds in which all of them come. lz4 and lz4hc are the C \
         library; snappy is the crate snap, lzo the crate lzokay, libdeflate and zstd are the C libraries.\n\n",
        args.rounds
    );
    let plots = |kind: &str| -> String {
        let one = |data: &String| format!("\n![{data}](codec-{data}-{kind}.svg)\n");
        names.iter().map(one).collect()
    };
    let (fast, lengths_seen) = (plots("acceleration"), plots("lengths"));
    let lengths = format!(
        "\n# Lengths\n\nOf literals and matches, as LZ4's level 1 finds them in chunks of {} KiB: how many are told by the token alone, and with a byte behind it.\n\n",
        CHUNK >> 10
    );
    let ablations = format!(
        "\n# What makes an encoder fast\n\nThe thesis's encoder of BeWalgo64, written once more for this, at acceleration 1 and in chunks of {} KiB: with all that the thesis did to make it fast, and without one of it. The results are the same bytes.\n\n",
        CHUNK >> 10
    );
    let text = text
        + &table(&rows)
        + &fast
        + &others
        + &lengths
        + &shares
        + &lengths_seen
        + &ablations
        + &undone;
    Ok(std::fs::write(args.output.join("codec.md"), text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_block() {
        // Three literals and a match of 4; none and one of 4 + 15 + 255 + 1; 16 at the end.
        let mut block = vec![0x30, 1, 2, 3, 3, 0, 0x0f, 1, 0, 255, 1, 0xf0, 1];
        block.extend([7; 16]);
        let mut lengths = Lengths::default();
        assert_eq!(lengths.count(&block), Some(()));
        assert_eq!(lengths.literals, BTreeMap::from([(0, 1), (3, 1), (16, 1)]));
        assert_eq!(lengths.matches, BTreeMap::from([(4, 1), (275, 1)]));
        assert_eq!(share(&lengths.literals, 4), 2.0 / 3.0);
        assert_eq!(line("", &lengths.matches).points.last().map(|point| point.1), Some(100.0));
        // Of a chunk the lengths are what it is long.
        let text: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 7 * 13).to_le_bytes()).collect();
        let lengths = Lengths::of(&text).unwrap();
        let sum = |(_, _, lengths): (_, _, &BTreeMap<usize, u64>)| {
            lengths.iter().map(|(&length, &count)| length as u64 * count).sum::<u64>()
        };
        assert_eq!(lengths.kinds().map(sum).iter().sum::<u64>(), text.len() as u64);
        for damaged in [&[][..], &[0x10], &[0x10, 1, 0], &[0x0f, 1, 0, 255], &[0x00, 1, 0]] {
            assert_eq!(Lengths::default().count(damaged), None);
        }
    }
}
