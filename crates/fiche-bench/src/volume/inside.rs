//! Volumes by the library, without what the protocol takes: writing, opening, and the memory of the map.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::volume::{FileDevice, OpenOptions as Opening, Options, Volume};
use fiche::{ReadAt, WriteAt};
use rustix::fs::{FallocateFlags, fallocate};

use super::{Args, middle, run, shell};
use crate::engine::Result;

/// A volume and a plain file written by this process, so without what the protocol takes.
pub fn inside(args: &Args) -> Result<String> {
    const BLOCK: u64 = 4096;
    let len = 1u64 << 30;
    let mut text = String::from(
        "## Without a protocol\n\nRandom blocks of 4 KiB that shrink to two fifths, written by threads of one process to a volume of 1 GiB that is full, and to a file \
         with `pwrite` and `fdatasync`.\n\n| writers | flush after | file /s | lz4 /s | ratio | zstd /s | ratio | none /s | ratio |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let path = |name: &str| args.work.join(format!("inside-{name}.disk"));
    let mut random = fiche::testing::Random(1);
    let blocks: Vec<Vec<u8>> = (0..256)
        .map(|_| [random.bytes(1600), vec![b' '; BLOCK as usize - 1600]].concat())
        .collect();
    let mut disks: Vec<Arc<dyn WriteAt>> = Vec::new();
    let _ = std::fs::remove_file(path("file"));
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(path("file"))?;
    options.set_len(len)?;
    disks.push(Arc::new(Plain(options, len)));
    let mut tended = Vec::new();
    for codec in [fiche::codec::Codec::Lz4, fiche::codec::Codec::Zstd, fiche::codec::Codec::Copy] {
        let path = path(codec.name());
        let _ = std::fs::remove_file(&path);
        let options = Options::new(len).codec(codec).unit(BLOCK as usize);
        let volume = Arc::new(Volume::create(FileDevice::create(&path)?, options)?);
        tended.push(fiche::volume::Tended::new(&volume)?);
        disks.push(volume);
    }
    for disk in &disks {
        for (i, at) in (0..len).step_by(BLOCK as usize).enumerate() {
            disk.write_at(at, &blocks[i % blocks.len()])?;
        }
        disk.flush()?;
    }
    for (writers, each) in [(1usize, 32u64), (16, 32), (1, 1), (16, 1)] {
        let mut rates = vec![Vec::new(); disks.len()];
        for round in 0..args.rounds.max(3) {
            for (disk, rates) in disks.iter().zip(&mut rates) {
                let end = Instant::now() + Duration::from_secs(args.seconds.into());
                let start = Instant::now();
                let write = |writer: usize| -> fiche::Result<u64> {
                    let mut random = fiche::testing::Random((round * 100 + writer) as u64 + 1);
                    let mut done = 0;
                    while Instant::now() < end {
                        let at = random.below(len / BLOCK) * BLOCK;
                        disk.write_at(at, &blocks[random.below(256) as usize])?;
                        done += 1;
                        if done % each == 0 {
                            disk.flush()?;
                        }
                    }
                    Ok(done)
                };
                let done = std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
                    let ends = threads.into_iter().map(|thread| -> Result<u64> {
                        Ok(thread.join().map_err(|_| "a writer panicked")??)
                    });
                    ends.sum::<Result<u64>>()
                })?;
                rates.push(done as f64 / start.elapsed().as_secs_f64());
            }
        }
        let rates: Vec<f64> = rates.into_iter().map(|rates| middle(rates.into_iter())).collect();
        write!(text, "| {writers} | {each} | {:.0} |", rates[0])?;
        for rate in &rates[1..] {
            write!(text, " {rate:.0} | {:.2} |", rate / rates[0])?;
        }
        text.push('\n');
    }
    drop((disks, tended));
    for name in ["file", "lz4", "zstd", "copy"] {
        let _ = std::fs::remove_file(path(name));
    }
    text.push('\n');
    Ok(text)
}

/// A file that is written in place, and its length.
pub struct Plain(pub File, pub u64);

impl ReadAt for Plain {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        Ok(self.0.read_exact_at(buf, offset)?)
    }
}

impl WriteAt for Plain {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> fiche::Result<()> {
        Ok(self.0.write_all_at(bytes, offset)?)
    }

    fn zero_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        self.discard_at(offset, len)
    }

    fn discard_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.0, flags, offset, len).map_err(std::io::Error::from)?)
    }

    fn flush(&self) -> fiche::Result<()> {
        Ok(self.0.sync_data()?)
    }
}

/// How long it takes to open a volume whose machine stopped with as much in its log as there can be.
pub fn recovery(args: &Args) -> Result<String> {
    let path = args.work.join("recovery.disk");
    let mut text = String::from(
        "## Opening a volume of 100 GiB after its machine stopped\n\nWith so many random blocks written behind the last map that was stored; from a cold page cache, and again.\n\n| blocks | log MB | cold ms | again ms |\n|---|---|---|---|\n",
    );
    for blocks in [1000u64, 4000, 100_000] {
        let _ = std::fs::remove_file(&path);
        let options = Options::new(100 << 30).codec(fiche::codec::Codec::Lz4);
        let volume = Volume::create(FileDevice::create(&path)?, options)?;
        let mut random = fiche::testing::Random(blocks);
        // Of many blocks all lie in a tenth, so that the map is not stored before; of few they lie anywhere.
        let area = if blocks > 4000 { 2 << 20 } else { 25 << 20 };
        for _ in 0..blocks {
            let block = random.below(area);
            volume.write_at(block * 4096, &random.text(4096))?;
        }
        volume.flush()?;
        // Without what a clean end stores.
        let copy = args.work.join("stopped.disk");
        let _ = std::fs::remove_file(&copy);
        run(Command::new("cp").args(["--sparse=always"]).arg(&path).arg(&copy))?;
        drop(volume);
        let mut times = Vec::new();
        for cold in [true, false] {
            let again = args.work.join("again.disk");
            let _ = std::fs::remove_file(&again);
            run(Command::new("cp").args(["--sparse=always"]).arg(&copy).arg(&again))?;
            shell("sync")?;
            if cold {
                shell("echo 3 > /proc/sys/vm/drop_caches")?;
            }
            let device = FileDevice::open(&again)?;
            let start = Instant::now();
            let volume = Volume::open(device)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            drop(volume);
            std::fs::remove_file(again)?;
        }
        let log = copy.metadata()?.blocks() as f64 * 512.0 / 1e6;
        writeln!(text, "| {blocks} | {log:.0} | {:.0} | {:.0} |", times[0], times[1])?;
        std::fs::remove_file(copy)?;
    }
    std::fs::remove_file(path)?;
    text.push('\n');
    Ok(text)
}

fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// What of the map is in memory when all of it is used, and when a twentieth is.
pub fn map_memory(args: &Args) -> Result<String> {
    let path = args.work.join("map.disk");
    let _ = std::fs::remove_file(&path);
    let mut text = String::from(
        "## Memory for the map\n\nOf a volume of 200 GiB of which a block of each MiB is written, as growth of the process; and for a TB (10^12 bytes).\n\n| used | memory allowed MiB | grown MiB | for a TB MB |\n|---|---|---|---|\n",
    );
    let len = 200u64 << 30;
    let volume = Volume::create(
        FileDevice::create(&path)?,
        Options::new(len).codec(fiche::codec::Codec::Lz4),
    )?;
    for at in (0..len).step_by(1 << 20) {
        volume.write_at(at, &[at.to_le_bytes()[3] | 1; 4096])?;
    }
    drop(volume);
    for (share, memory) in [(1, 1 << 10), (20, 1 << 10), (20, 64), (1, 64)] {
        let volume = Opening::default().memory(memory << 20).open(FileDevice::open(&path)?)?;
        let before = resident();
        let mut block = [0; 4096];
        for at in (0..len / share).step_by(1 << 20) {
            volume.read_at(at, &mut block)?;
        }
        let grown = resident().saturating_sub(before) as f64;
        let used = if share == 1 { "all" } else { "a twentieth" };
        writeln!(
            text,
            "| {used} | {memory} | {:.0} | {:.0} |",
            grown / f64::from(1 << 20),
            grown / len as f64 * 1e6
        )?;
    }
    std::fs::remove_file(path)?;
    text.push('\n');
    Ok(text)
}
