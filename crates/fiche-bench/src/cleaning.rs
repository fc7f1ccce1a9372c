//! What cleaning costs: bytes that are written below, and the time of those who write; and a day of all kinds of use.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fiche::codec::Codec;
use fiche::testing::Random;
use fiche::volume::{Device, FileDevice, Options, Stats, Tended, Volume};
use fiche::{ReadAt, WriteAt};

use crate::engine::Result;
use crate::report::machine;

#[derive(clap::Args)]
pub struct Args {
    /// Where the tables go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where volumes are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/cleaning")]
    work: PathBuf,
    /// MiB of each volume
    #[arg(long, default_value_t = 2048)]
    size: u64,
    /// For each measurement of time
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// These parts alone
    #[arg(long, value_delimiter = ',', default_value = "bytes,time,day")]
    parts: Vec<String>,
}

const BLOCK: usize = 4096;

/// A device in memory.
#[derive(Clone, Default)]
struct Memory(Arc<RwLock<Vec<u8>>>);

impl Device for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = bytes.get(pos as usize..).and_then(|bytes| bytes.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.allocate(pos..pos + bytes.len() as u64)?;
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all[pos as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let len = bytes.len().max(range.end as usize);
        bytes.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks that shrink to two fifths, all of them different.
struct Blocks(Vec<u8>);

impl Blocks {
    const COUNT: u64 = 1024;
    /// Bytes of noise in each, which with what is told of the rest are two fifths.
    const NOISE: usize = 1570;

    fn new() -> Blocks {
        let mut random = Random(1);
        let mut bytes = Vec::new();
        for _ in 0..Blocks::COUNT {
            bytes.extend(random.bytes(Blocks::NOISE));
            bytes.resize(bytes.len().next_multiple_of(BLOCK), b' ');
        }
        Blocks(bytes)
    }

    fn any(&self, random: &mut Random) -> &[u8] {
        &self.0[random.below(Blocks::COUNT) as usize * BLOCK..][..BLOCK]
    }
}

/// Which block is written next.
#[derive(Clone, Copy)]
enum Load {
    Uniform,
    /// As words of a text come: the how many-eth most frequent in inverse proportion to that (to the power of 0.99).
    Zipf,
    /// Nine of ten in a tenth.
    Tenth,
}

const LOADS: [(&str, Load); 3] =
    [("uniform", Load::Uniform), ("zipf", Load::Zipf), ("nine of ten in a tenth", Load::Tenth)];

struct Chooser {
    load: Load,
    blocks: u64,
    random: Random,
    /// Sums of the frequencies.
    sums: Vec<f64>,
}

impl Chooser {
    fn new(load: Load, blocks: u64, seed: u64) -> Chooser {
        let mut sums = Vec::new();
        if let Load::Zipf = load {
            let mut sum = 0.0;
            sums.extend((1..=blocks).map(|i| {
                sum += 1.0 / (i as f64).powf(0.99);
                sum
            }));
        }
        Chooser { load, blocks, random: Random(seed), sums }
    }

    fn next(&mut self) -> u64 {
        match self.load {
            Load::Uniform => self.random.below(self.blocks),
            Load::Tenth if self.random.below(10) > 0 => self.random.below(self.blocks / 10),
            Load::Tenth => self.random.below(self.blocks),
            Load::Zipf => {
                let all = self.sums.last().copied().unwrap_or_default();
                let wanted = self.random.below(1 << 52) as f64 / (1u64 << 52) as f64 * all;
                let rank = self.sums.partition_point(|&sum| sum < wanted) as u64;
                // Frequent ones are not neighbours: a bijection, since the factor is a prime above.
                rank.wrapping_mul(2_654_435_761) % self.blocks
            }
        }
    }
}

fn options(blocks: u64) -> Options {
    Options::new(blocks * BLOCK as u64).codec(Codec::Lz4).unit(BLOCK)
}

/// A volume all of which is written, and that is as full as that. It is made twice: how much is kept is known then.
fn full<D: Device + 'static>(
    device: &dyn Fn() -> Result<D>,
    blocks: u64,
    percent: u64,
    content: &Blocks,
) -> Result<Volume> {
    let mut random = Random(3);
    let mut fill = |options: Options| -> Result<Volume> {
        let volume = Volume::create(device()?, options)?;
        for block in 0..blocks {
            volume.write_at(block * BLOCK as u64, content.any(&mut random))?;
        }
        volume.flush()?;
        Ok(volume)
    };
    let stats = fill(options(blocks))?.stats();
    let segments = (stats.used_segments - 2) * 100 / percent + 3 + stats.kept_segments;
    fill(options(blocks).capacity(segments * stats.segment_len))
}

/// What was done since.
fn since(before: &Stats, after: &Stats) -> [f64; 4] {
    let asked = (after.writes.len - before.writes.len) as f64;
    let all = after.appended_len - before.appended_len;
    let moved = after.moved_len - before.moved_len;
    let map = after.map_len - before.map_len;
    [all, all - moved - map, moved, map].map(|len| len as f64 / asked)
}

fn amplification(args: &Args, content: &Blocks) -> Result<String> {
    let mut text = String::from(
        "## Bytes written below for each byte\n\nBlocks of 4 KiB that shrink to two fifths are written again at random, three times as many as there are; the last half is measured. \
         *Tended* as it is when it is served, and without that: then writes clean that find no room.\n\n\
         | full | load | tended: all | data | moved | map | not tended: all | moved |\n|---|---|---|---|---|---|---|---|\n",
    );
    let blocks = args.size << 8;
    for percent in [80, 90] {
        for (name, load) in LOADS {
            let mut told = Vec::new();
            for is_tended in [true, false] {
                let volume = full(&|| Ok(Memory::default()), blocks, percent, content)?;
                let mut chooser = Chooser::new(load, blocks, 7);
                let mut random = Random(9);
                let mut before = volume.stats();
                for i in 0..blocks * 3 {
                    if i == blocks * 3 / 2 {
                        before = volume.stats();
                    }
                    let at = chooser.next() * BLOCK as u64;
                    volume.write_at(at, content.any(&mut random))?;
                    while is_tended && i % 16 == 0 && volume.tend(false)? {}
                }
                told.push(since(&before, &volume.stats()));
            }
            let ([all, data, moved, map], [alone, _, moved_alone, _]) = (told[0], told[1]);
            writeln!(
                text,
                "| {percent} % | {name} | {all:.2} | {data:.2} | {moved:.2} | {map:.2} | {alone:.2} | {moved_alone:.2} |"
            )?;
            eprintln!("{percent} % {name}: {all:.2}, not tended {alone:.2}");
        }
    }
    text.push('\n');
    Ok(text)
}

/// Writes at random by some threads for a while: how many in each second, and how long the slowest of a thousand took at least, in
/// microseconds.
fn write(volume: &Volume, blocks: u64, content: &Blocks, how: &Writers) -> Result<(f64, f64)> {
    let is_over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    let times = std::thread::scope(|scope| -> Result<Vec<u32>> {
        let threads: Vec<_> = (0..how.threads)
            .map(|i| {
                let (is_over, done) = (&is_over, &done);
                scope.spawn(move || -> fiche::Result<Vec<u32>> {
                    let mut chooser = Chooser::new(Load::Tenth, blocks, how.seed + i);
                    let mut random = Random(how.seed + 100 + i);
                    let mut times = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let start = Instant::now();
                        volume.write_at(chooser.next() * BLOCK as u64, content.any(&mut random))?;
                        times.push(start.elapsed().as_micros() as u32);
                        done.fetch_add(1, Ordering::Relaxed);
                        if (times.len() as u64).checked_rem(how.flush_each) == Some(0) {
                            volume.flush()?;
                        }
                    }
                    Ok(times)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(how.seconds));
        is_over.store(true, Ordering::Relaxed);
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().map_err(|_| "a writer panicked")??);
        }
        Ok(times)
    })?;
    let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    let mut times = times;
    times.sort_unstable();
    let slow = times.get(times.len() - times.len() / 1000 - 1).copied().unwrap_or_default();
    Ok((rate, f64::from(slow)))
}

struct Writers {
    threads: u64,
    /// Flushes after so many; 0 for never.
    flush_each: u64,
    seconds: u64,
    seed: u64,
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn time(args: &Args, content: &Blocks) -> Result<String> {
    let mut text = format!(
        "## What writers notice\n\nBlocks of 4 KiB are written at random for {} seconds, nine of ten in a tenth of the volume, as fast as can be; medians of {} interleaved rounds. *Room*: nothing is to be cleaned, in a file that has its length and was written all over before.\n\n\
         | writers | flush each | volume | writes in a second | part of that with room | slowest of 1000 us | segments cleaned |\n|---|---|---|---|---|---|---|\n",
        args.seconds, args.rounds
    );
    let blocks = args.size << 8;
    for (threads, flush_each) in [(1, 32), (1, 0), (4, 0)] {
        let mut found = vec![[Vec::new(), Vec::new(), Vec::new()]; 3];
        for round in 0..args.rounds {
            for (kind, found) in found.iter_mut().enumerate() {
                let path = args.work.join("cleaning.disk");
                let device = || -> Result<FileDevice> {
                    let _ = std::fs::remove_file(&path);
                    Ok(FileDevice::create(&path)?)
                };
                // Of which the first has room for all that is written meanwhile.
                let percent = if kind == 0 { 20 } else { 80 };
                let volume = Arc::new(full(&device, blocks, percent, content)?);
                if kind == 0 {
                    // Nor is it the file system's work for a file that grows that is measured.
                    let stats = volume.stats();
                    let file = std::fs::File::options().write(true).open(&path)?;
                    let zeros = vec![0; 1 << 20];
                    let len = file.metadata()?.len();
                    for at in (len..stats.most_segments * stats.segment_len).step_by(1 << 20) {
                        std::os::unix::fs::FileExt::write_all_at(&file, &zeros, at)?;
                    }
                    file.sync_all()?;
                }
                let tended = if kind == 2 { None } else { Some(Tended::new(&volume)?) };
                let how = |seconds, seed| Writers { threads, flush_each, seconds, seed };
                if kind > 0 {
                    // Until cleaning is under way.
                    let mut chooser = Chooser::new(Load::Tenth, blocks, 5);
                    let mut random = Random(round as u64);
                    for _ in 0..blocks / 2 {
                        let at = chooser.next() * BLOCK as u64;
                        volume.write_at(at, content.any(&mut random))?;
                    }
                }
                let before = volume.stats().cleaned;
                let (rate, slow) =
                    write(&volume, blocks, content, &how(args.seconds, round as u64))?;
                found[0].push(rate);
                found[1].push(slow);
                found[2].push((volume.stats().cleaned - before) as f64);
                drop(tended);
                drop(volume);
                std::fs::remove_file(&path)?;
            }
        }
        let room = middle(found[0][0].clone());
        for (name, [rate, slow, cleaned]) in
            ["room", "80 % full, tended", "80 % full, not tended"].into_iter().zip(found)
        {
            let (rate, slow, cleaned) = (middle(rate), middle(slow), middle(cleaned));
            let flush = if flush_each > 0 { flush_each.to_string() } else { "-".into() };
            writeln!(
                text,
                "| {threads} | {flush} | {name} | {rate:.0} | {:.2} | {slow:.0} | {cleaned:.0} |",
                rate / room
            )?;
            eprintln!("{threads} writers, {name}: {rate:.0}/s, {:.2}, {slow:.0} us", rate / room);
        }
    }
    text.push('\n');
    Ok(text)
}

/// A day in simulated time: twenty requests in a second, none for a while each hour, and none at all at night.
fn day(args: &Args, content: &Blocks) -> Result<String> {
    const EACH_SECOND: u64 = 20;
    let blocks = args.size << 8;
    let memory = Memory::default();
    let handed = memory.clone();
    let device = move || -> Result<Memory> {
        // It is made twice.
        handed.0.write().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(handed.clone())
    };
    let volume = full(&device, blocks, 90, content)?;
    let mut random = Random(11);
    let mut hot = Chooser::new(Load::Zipf, blocks, 12);
    // What each block is: one of those that are written, or zeros.
    let number = |bytes: &[u8]| content.0.chunks(BLOCK).position(|block| block == bytes);
    let mut model: Vec<Option<usize>> = Vec::new();
    let mut block = vec![0; BLOCK];
    for i in 0..blocks {
        volume.read_at(i * BLOCK as u64, &mut block)?;
        model.push(number(&block));
    }
    let before = volume.stats();
    let (mut writes, mut reads, mut full_times) = (0u64, 0u64, 0u64);
    let mut rows = String::new();
    let mut row = |hour: u64, writes: u64| {
        let stats = volume.stats();
        writeln!(
            rows,
            "| {hour} | {writes} | {:.0} | {:.0} | {:.2} | {} |",
            stats.stored_len() as f64 / 1e6,
            stats.live_len as f64 / stats.written_len.max(1) as f64 * 100.0,
            since(&before, &stats)[0],
            stats.cleaned
        )
    };
    for second in 0..86_400u64 {
        let hour = second / 3600;
        if second > 0 && second % 10_800 == 0 {
            row(hour, writes)?;
        }
        // From one to five nobody is there, nor in the last quarter of each hour.
        if (1..5).contains(&hour) || second % 3600 >= 2700 {
            for _ in 0..100 {
                if !volume.tend(true)? {
                    break;
                }
            }
            continue;
        }
        for _ in 0..EACH_SECOND {
            let at = hot.next();
            match random.below(20) {
                0..8 => {
                    volume.read_at(at * BLOCK as u64, &mut block)?;
                    let expected = model[at as usize];
                    let is_right = match expected {
                        Some(n) => block == content.0[n * BLOCK..][..BLOCK],
                        None => block.iter().all(|&byte| byte == 0),
                    };
                    if !is_right {
                        return Err(
                            format!("block {at} is something else in second {second}").into()
                        );
                    }
                    reads += 1;
                }
                8 => {
                    // A file goes, another comes where there was none.
                    let len = (1 + random.below(64)).min(blocks - at);
                    volume.discard_at(at * BLOCK as u64, len * BLOCK as u64)?;
                    model[at as usize..(at + len) as usize].fill(None);
                }
                9 => volume.flush()?,
                kind => {
                    let most = if kind < 12 { 64 } else { 1 };
                    let at = if kind < 12 { random.below(blocks) } else { at };
                    let len = most.min(blocks - at) as usize;
                    let first = random.below(Blocks::COUNT - len as u64 + 1) as usize;
                    let bytes = &content.0[first * BLOCK..][..len * BLOCK];
                    match volume.write_at(at * BLOCK as u64, bytes) {
                        Ok(()) => {
                            for i in 0..len {
                                model[at as usize + i] = Some(first + i);
                            }
                            writes += len as u64;
                        }
                        Err(fiche::Error::Io(error))
                            if error.kind() == io::ErrorKind::StorageFull =>
                        {
                            full_times += 1;
                            for i in 0..len {
                                volume.read_at((at + i as u64) * BLOCK as u64, &mut block)?;
                                model[at as usize + i] = number(&block);
                            }
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        while volume.tend(false)? {}
    }
    row(24, writes)?;
    for i in 0..blocks {
        volume.read_at(i * BLOCK as u64, &mut block)?;
        if number(&block) != model[i as usize] {
            return Err(format!("block {i} is something else at the end").into());
        }
    }
    let checked = volume.check()?;
    if !checked.is_whole() {
        return Err(format!("{checked:?}").into());
    }
    Ok(format!(
        "## A day\n\nOf simulated time: twenty requests in each second (two fifths reads, files of 64 blocks, single blocks, discards, flushes), none in the last quarter of each hour and none from one to five; the volume is 90 % full at the beginning. \
         {reads} reads gave what was written last, {writes} blocks were written, {full_times} writes were refused for want of room; at the end all blocks are right and a check finds nothing.\n\n\
         | hour | blocks written | MB below | % of it needed | written below for each byte | segments cleaned |\n|---|---|---|---|---|---|\n{rows}\n"
    ))
}

pub fn bench(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    std::fs::create_dir_all(&args.output)?;
    let content = Blocks::new();
    let mut text = format!("# Cleaning\n\n{} Volumes of {} MiB.\n\n", machine(), args.size);
    for part in &args.parts {
        text.push_str(&match part.as_str() {
            "bytes" => amplification(args, &content)?,
            "time" => time(args, &content)?,
            "day" => day(args, &content)?,
            _ => return Err(format!("{part} is no part: bytes, time, day").into()),
        });
    }
    std::fs::write(args.output.join("cleaning.md"), text)?;
    Ok(())
}
