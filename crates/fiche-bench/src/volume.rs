//! Volumes by fio, beside plain files, file systems that compress, and the floor of the protocol.

mod inside;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::{ReadAt, WriteAt};
use fiche_serve::{Address, Nbd, Tls};

pub use self::inside::Plain;
use self::inside::{inside, map_memory, recovery};
use crate::engine::Result;
use crate::engines::faces;
use crate::report::machine;

#[derive(clap::Args)]
pub struct Args {
    /// Where the tables go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where disks are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/volume")]
    work: PathBuf,
    /// GiB of each disk
    #[arg(long, default_value_t = 4)]
    size: u64,
    /// For each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// These disks alone, or these parts: protocol, inside, recovery, "memory of the map"
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// MiB of memory, page cache included, of all that is measured; 0 for as much as there is
    #[arg(long, default_value_t = 1024)]
    memory: u64,
}

/// Serves zeros, to measure the protocol.
#[derive(clap::Args)]
pub struct NullArgs {
    socket: PathBuf,
    len: u64,
    /// By encrypted connections, with what is in this folder
    #[arg(long)]
    tls: Option<PathBuf>,
}

struct Null(u64);

impl ReadAt for Null {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> fiche::Result<()> {
        buf.fill(0);
        Ok(())
    }
}

impl WriteAt for Null {
    fn write_at(&self, _: u64, _: &[u8]) -> fiche::Result<()> {
        Ok(())
    }

    fn zero_at(&self, _: u64, _: u64) -> fiche::Result<()> {
        Ok(())
    }

    fn discard_at(&self, _: u64, _: u64) -> fiche::Result<()> {
        Ok(())
    }

    fn flush(&self) -> fiche::Result<()> {
        Ok(())
    }
}

pub fn serve_null(args: &NullArgs) -> Result<()> {
    let mut server = Nbd::default().device("", Arc::new(Null(args.len)));
    if let Some(folder) = &args.tls {
        server = server.tls(Tls::open(folder)?);
    }
    let _server = server.listen(&Address::Unix(args.socket.clone()))?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// How a disk is there.
#[derive(Clone, Copy)]
enum Kind {
    /// A volume: codec and unit.
    Volume(&'static str, &'static str),
    /// A file, by QEMU's server.
    Raw,
    /// nbdkit's memory, encrypted or not.
    Memory {
        tls: bool,
    },
    Null {
        tls: bool,
    },
    /// A file, without a server.
    File,
    /// A file system in a file of the loop device: mkfs, its type, and how it is mounted.
    Mounted(&'static str, &'static str),
}

const DISKS: [(&str, Kind); 11] = [
    ("fiche lz4 4K", Kind::Volume("lz4", "4K")),
    ("fiche lz4 16K", Kind::Volume("lz4", "16K")),
    ("fiche zstd 16K", Kind::Volume("zstd", "16K")),
    ("fiche none 4K", Kind::Volume("none", "4K")),
    ("raw by qemu-nbd", Kind::Raw),
    ("memory by nbdkit", Kind::Memory { tls: false }),
    ("file", Kind::File),
    ("ext4", Kind::Mounted("ext4", "defaults")),
    ("btrfs zstd:1", Kind::Mounted("btrfs", "compress-force=zstd:1")),
    ("btrfs lzo", Kind::Mounted("btrfs", "compress-force=lzo")),
    ("btrfs zlib", Kind::Mounted("btrfs", "compress-force=zlib:3")),
];

/// Name, fio's options, and how many at once.
const LOADS: [(&str, &str, usize); 8] = [
    ("fill", "--rw=write --bs=128k --end_fsync=1", 1),
    ("read 4K, one", "--rw=randread --bs=4k", 1),
    ("read 4K, 16", "--rw=randread --bs=4k", 16),
    ("read 128K in order", "--rw=read --bs=128k", 1),
    ("read 4K in order", "--rw=read --bs=4k", 1),
    ("write 4K, fsync/32, one", "--rw=randwrite --bs=4k --fsync=32", 1),
    ("write 4K, fsync/32, 16", "--rw=randwrite --bs=4k --fsync=32", 16),
    ("write 4K, fsync each, 16", "--rw=randwrite --bs=4k --fsync=1", 16),
];

/// The seventh load's twin of one writer, and the protocol's.
const MORE: [(&str, &str, usize); 2] = [
    ("write 4K, fsync each, one", "--rw=randwrite --bs=4k --fsync=1", 1),
    ("write 4K, no fsync, 16 deep", "--rw=randwrite --bs=4k --end_fsync=1", 16),
];

struct Disk {
    name: &'static str,
    kind: Kind,
    /// What holds it.
    file: PathBuf,
    /// A socket, or where it is mounted.
    at: PathBuf,
    server: Option<Child>,
}

pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

pub fn shell(line: &str) -> Result<String> {
    run(Command::new("sh").args(["-c", line]))
}

impl Disk {
    /// Makes one and lets it be there.
    fn new(name: &'static str, kind: Kind, args: &Args) -> Result<Disk> {
        let plain = name.replace([' ', ':'], "-");
        let file = args.work.join(format!("{plain}.disk"));
        let at = std::path::absolute(args.work.join(format!("{plain}.at")))?;
        for old in [&file, &at] {
            let _ = std::fs::remove_file(old);
        }
        let mut disk = Disk { name, kind, file, at, server: None };
        let (len, gib) = (args.size << 30, format!("{}G", args.size));
        let (socket, file) = (disk.at.clone(), disk.file.clone());
        let mut server = match kind {
            Kind::Volume(codec, unit) => {
                let fiche = faces::fiche()?;
                let create = ["volume", "create", "--size", &gib, "--codec", codec, "--unit", unit];
                run(Command::new(&fiche).args(create).arg(&file))?;
                let mut server = Command::new(&fiche);
                server.args(["volume", "serve"]).arg(&file).arg("--nbd").arg(&socket);
                server
            }
            Kind::Raw => {
                File::create(&file)?.set_len(len)?;
                let mut server = Command::new("qemu-nbd");
                server.args(["-f", "raw", "-t", "-e", "32", "-k"]).arg(&socket).arg(&file);
                server
            }
            Kind::Memory { tls } => {
                let mut server = Command::new("nbdkit");
                server.args(["-f", "-U"]).arg(&socket);
                if tls {
                    let folder = certificates(args)?;
                    server.arg("--tls=require");
                    server.arg(format!("--tls-certificates={}", folder.display()));
                }
                server.args(["memory", &gib]);
                server
            }
            Kind::Null { tls } => {
                let mut server = Command::new(std::env::current_exe()?);
                server.arg("serve-null").arg(&socket).arg(len.to_string());
                if tls {
                    server.arg("--tls").arg(certificates(args)?);
                }
                server
            }
            Kind::File => {
                File::create(&file)?.set_len(len)?;
                return Ok(disk);
            }
            Kind::Mounted(system, options) => {
                // Room for the file system itself, and for what btrfs does not clean yet.
                File::create(&file)?.set_len(len + len / 2)?;
                run(Command::new(format!("mkfs.{system}")).arg("-q").arg(&file))?;
                std::fs::create_dir_all(&disk.at)?;
                let options = format!("loop,noatime,{options}");
                run(Command::new("mount").args(["-o", &options]).arg(&file).arg(&disk.at))?;
                return Ok(disk);
            }
        };
        disk.server = Some(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        if let (Kind::Memory { .. }, Some(server)) = (kind, &disk.server) {
            // What it is for is not to be counted.
            let id = server.id().to_string();
            for group in ["/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"] {
                let _ = std::fs::write(group, &id);
            }
        }
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&disk.at).is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("{name}: nobody serves it").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(disk)
    }

    /// Lets its server run, or not: while others are measured it would clean and pack.
    fn let_run(&self, may: bool) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let signal = if may { "-CONT" } else { "-STOP" };
        run(Command::new("kill").args([signal, &server.id().to_string()])).map(|_| ())
    }

    /// Runs fio; what it says as JSON.
    fn fio(&self, load: (&str, &str, usize), args: &Args) -> Result<serde_json::Value> {
        let (name, options, depth) = load;
        let mut fio = Command::new("fio");
        fio.args(["--name=disk", "--output-format=json", "--group_reporting", "--randrepeat=0"]);
        fio.args(["--refill_buffers", "--buffer_compress_percentage=60", "--thread"]);
        fio.arg(format!("--size={}G", args.size)).args(options.split(' '));
        if name != "fill" {
            fio.args(["--time_based", &format!("--runtime={}", args.seconds)]);
        }
        match self.kind {
            Kind::File | Kind::Mounted(..) => {
                let file = if matches!(self.kind, Kind::File) {
                    self.file.clone()
                } else {
                    self.at.join("file")
                };
                fio.arg(format!("--filename={}", file.display()));
                fio.args(["--ioengine=psync", "--fallocate=none", "--fdatasync=0"]);
                fio.arg(format!("--numjobs={depth}"));
            }
            _ => {
                fio.arg("--ioengine=nbd");
                let at = self.at.display();
                fio.arg(match self.kind {
                    // By an address no client is told of certificates: who it is makes no difference here.
                    Kind::Memory { tls: true } | Kind::Null { tls: true } => {
                        format!("--uri=nbds+unix:///?socket={at}&tls-verify-peer=false")
                    }
                    _ => format!("--uri=nbd+unix:///?socket={at}"),
                });
                // Those who wait for their own flushes are as many clients.
                match options.contains("fsync=") && depth > 1 && !options.contains("end_") {
                    true => fio.arg(format!("--numjobs={depth}")),
                    false => fio.arg(format!("--iodepth={depth}")),
                };
            }
        }
        let told = run(&mut fio)?;
        let json = told.find('{').map_or("", |at| &told[at..]);
        Ok(serde_json::from_str(json)?)
    }

    /// Bytes that its server asked the system for, or gave it.
    fn traffic(&self) -> Option<u64> {
        let id = self.server.as_ref()?.id();
        let told = std::fs::read_to_string(format!("/proc/{id}/io")).ok()?;
        told.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
    }

    /// Bytes of the file that holds it.
    fn stored(&self) -> Result<u64> {
        if matches!(self.kind, Kind::Memory { .. } | Kind::Null { .. }) {
            return Ok(0);
        }
        if let Kind::Mounted(system, _) = self.kind {
            run(Command::new("sync").arg("-f").arg(&self.at))?;
            // What it uses; its file keeps the high-water mark.
            let at = self.at.display();
            let used = match system {
                "btrfs" => shell(&format!(
                    "btrfs filesystem usage -b {at} | sed -n 's/^ *Used:[^0-9]*//p' | head -1"
                ))?,
                _ => shell(&format!("df -B1 --output=used {at} | tail -1"))?,
            };
            return Ok(used.trim().parse()?);
        }
        Ok(self.file.metadata()?.blocks() * 512)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        if matches!(self.kind, Kind::Mounted(..)) {
            let _ = run(Command::new("umount").arg(&self.at));
            let _ = std::fs::remove_dir(&self.at);
        }
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Seconds that all processors were busy.
pub fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // All but idle and waiting.
    ticks
        .iter()
        .enumerate()
        .filter(|(i, _)| !matches!(i, 3 | 4))
        .map(|(_, n)| n)
        .take(6)
        .sum::<f64>()
        / 100.0
}

/// Lets this process and those it starts have so much memory, page cache included.
pub fn limit(mib: u64) -> Result<()> {
    enter("disks", mib, std::process::id())
}

/// Puts a process into a group that may have so much memory, page cache included.
pub fn enter(group: &str, mib: u64, process: u32) -> Result<()> {
    let root = Path::new("/sys/fs/cgroup/memory");
    let is_old = root.join("memory.usage_in_bytes").exists();
    let group = if is_old { root.join(group) } else { Path::new("/sys/fs/cgroup").join(group) };
    std::fs::create_dir_all(&group)?;
    let file = if is_old { "memory.limit_in_bytes" } else { "memory.max" };
    std::fs::write(group.join(file), format!("{}", mib << 20))?;
    std::fs::write(group.join("cgroup.procs"), process.to_string())?;
    Ok(())
}

/// Milliseconds that a write of 4 KiB and a barrier take on this machine.
fn barrier(work: &Path) -> Result<f64> {
    let path = work.join("barrier");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    file.set_len(64 << 20)?;
    file.sync_all()?;
    let mut times: Vec<f64> = Vec::new();
    for i in 0..200u64 {
        let start = Instant::now();
        file.write_all_at(&[i as u8; 4096], i * 7919 % 16_000 * 4096)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    std::fs::remove_file(path)?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// One measurement.
#[derive(Clone, Copy, Default)]
struct Measured {
    per_second: f64,
    mb: f64,
    middle: f64,
    high: f64,
    cpu: f64,
    read: f64,
    stored: u64,
}

fn measure(disk: &Disk, load: (&'static str, &str, usize), args: &Args) -> Result<Measured> {
    // What was measured before is neither in memory nor to be written yet.
    shell("sync; echo 3 > /proc/sys/vm/drop_caches")?;
    let (cpu, traffic, start) = (busy(), disk.traffic(), Instant::now());
    let told = disk.fio(load, args)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = (busy() - cpu) / seconds;
    let traffic = disk.traffic().zip(traffic).map(|(after, before)| after - before);
    let side = if load.1.contains("read") { "read" } else { "write" };
    let side = &told["jobs"][0][side];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
    let percentile = |which: &str| number(&side["clat_ns"]["percentile"][which]) / 1e3;
    let done = number(&side["total_ios"]).max(1.0);
    Ok(Measured {
        per_second: number(&side["iops"]),
        mb: number(&side["bw_bytes"]) / 1e6,
        middle: percentile("50.000000"),
        high: percentile("99.000000"),
        cpu,
        read: traffic.map_or(0.0, |bytes| bytes as f64 / done),
        stored: if load.0 == "fill" || load.1.contains("randwrite") { disk.stored()? } else { 0 },
    })
}

pub fn middle(of: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = of.collect();
    values.sort_by(f64::total_cmp);
    let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
    // Of an even number of them between the two in the middle.
    (at(values.len() / 2) + at(values.len().saturating_sub(1) / 2)) / 2.0
}

pub fn bench(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    std::fs::create_dir_all(&args.output)?;
    let barrier_before = barrier(&args.work)?;
    let memory = match args.memory {
        0 => "as much memory as there is".to_owned(),
        mib => match limit(mib) {
            Ok(()) => format!("{mib} MiB of memory, page cache included"),
            Err(error) => format!("as much memory as there is ({error})"),
        },
    };
    let wanted = |name: &str| {
        args.only.is_empty() || args.only.iter().any(|only| name.starts_with(only.as_str()))
    };
    let mut disks = Vec::new();
    let mut missing = String::new();
    for (name, kind) in DISKS.into_iter().filter(|(name, _)| wanted(name)) {
        match Disk::new(name, kind, args) {
            Ok(disk) => disks.push(disk),
            Err(error) => writeln!(missing, "{name} could not be had: {error}\n")?,
        }
    }
    let mut rows: BTreeMap<(usize, usize), Vec<Measured>> = BTreeMap::new();
    let loads: Vec<(&'static str, &'static str, usize)> = LOADS.into_iter().chain(MORE).collect();
    let mut csv = String::from(
        "disk,load,round,per_second,mb_per_second,median_us,p99_us,cores,bytes_read_each,stored_bytes\n",
    );
    for round in 0..args.rounds {
        for (l, load) in loads.iter().enumerate() {
            // Full ones are filled once.
            if round > 0 && load.0 == "fill" {
                continue;
            }
            for (d, disk) in disks.iter().enumerate() {
                for (other, disk) in disks.iter().enumerate() {
                    disk.let_run(other == d)?;
                }
                let m = measure(disk, *load, args)?;
                eprintln!(
                    "{round} {:28} {:20} {:9.0}/s {:7.0} MB/s {:8.0} us",
                    load.0, disk.name, m.per_second, m.mb, m.middle
                );
                writeln!(
                    csv,
                    "{},\"{}\",{round},{:.0},{:.1},{:.1},{:.1},{:.2},{:.0},{}",
                    disk.name,
                    load.0,
                    m.per_second,
                    m.mb,
                    m.middle,
                    m.high,
                    m.cpu,
                    m.read,
                    m.stored
                )?;
                rows.entry((l, d)).or_default().push(m);
            }
        }
    }
    std::fs::write(args.output.join("volume.csv"), csv)?;
    let mut text = format!(
        "# Disks by fio\n\n{} Disks of {} GiB of which 60 % can be compressed away, {} seconds for each measurement, medians of {} interleaved \
         rounds, {memory}; memory by nbdkit is beside that. Volumes, QEMU's server of a raw file and nbdkit's memory by network block devices on Unix \
         sockets; *file*, ext4 and btrfs (in a file, by the loop device) by `pread` and `pwrite` with the page cache, since btrfs does not compress what is \
         written past it. A write of 4 KiB and a barrier took {barrier_before:.2} ms at the beginning and {:.2} at the end.\n\n{missing}",
        machine(),
        args.size,
        args.seconds,
        args.rounds,
        barrier(&args.work)?,
    );
    for (l, load) in loads.iter().enumerate() {
        writeln!(
            text,
            "## {}\n\n| disk | per second | MB/s | median us | 99 % us | cores busy | bytes read each | stored MB |\n|---|---|---|---|---|---|---|---|",
            load.0
        )?;
        for (d, disk) in disks.iter().enumerate() {
            let all = &rows[&(l, d)];
            let of = |field: fn(&Measured) -> f64| middle(all.iter().map(field));
            let some = |value: f64, shown: String| if value > 0.0 { shown } else { "-".into() };
            let (read, stored) = (of(|m| m.read), of(|m| m.stored as f64) / 1e6);
            writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {} | {} |",
                disk.name,
                of(|m| m.per_second),
                of(|m| m.mb),
                of(|m| m.middle),
                of(|m| m.high),
                of(|m| m.cpu),
                some(read, format!("{read:.0}")),
                some(stored, format!("{stored:.0}")),
            )?;
        }
        text.push('\n');
    }
    drop(disks);
    let file = args.output.join("volume.md");
    std::fs::write(&file, &text)?;
    for (_, part) in PARTS.into_iter().filter(|(name, _)| wanted(name)) {
        // One that fails loses nothing of what was measured before.
        text.push_str(&part(args)?);
        std::fs::write(&file, &text)?;
    }
    Ok(())
}

type Part = fn(&Args) -> Result<String>;

/// What is measured beside the loads.
const PARTS: [(&str, Part); 4] = [
    ("protocol", protocol),
    ("inside", inside),
    ("recovery", recovery),
    ("memory of the map", map_memory),
];

/// A folder with a certificate that vouches for itself, and its key, for servers.
fn certificates(args: &Args) -> Result<PathBuf> {
    let folder = std::path::absolute(args.work.join("tls"))?;
    if !folder.join("ca-cert.pem").exists() {
        std::fs::create_dir_all(&folder)?;
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args(["-nodes", "-days", "30", "-subj", "/CN=localhost"]);
        openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
        openssl.arg("-keyout").arg(folder.join("server-key.pem"));
        run(openssl.arg("-out").arg(folder.join("server-cert.pem")))?;
        std::fs::copy(folder.join("server-cert.pem"), folder.join("ca-cert.pem"))?;
    }
    Ok(folder)
}

/// What the protocol takes, with nothing behind it.
fn protocol(args: &Args) -> Result<String> {
    let mut text = String::from(
        "## The protocol alone\n\nA device of zeros by fiche's server, beside nbdkit's memory plugin, which was filled; both as well with TLS, each by the library that it has.\n\n\
         | load | nothing by fiche | memory by nbdkit | ratio | fiche, TLS | of it without | nbdkit, TLS | ratio |\n|---|---|---|---|---|---|---|---|\n",
    );
    let disks = [
        Disk::new("nothing by fiche", Kind::Null { tls: false }, args)?,
        Disk::new("memory by nbdkit", Kind::Memory { tls: false }, args)?,
        Disk::new("nothing by fiche, TLS", Kind::Null { tls: true }, args)?,
        Disk::new("memory by nbdkit, TLS", Kind::Memory { tls: true }, args)?,
    ];
    let fill = LOADS[0];
    disks[1].fio(fill, args)?;
    disks[3].fio(fill, args)?;
    for load in [LOADS[1], LOADS[2], LOADS[3], MORE[1], LOADS[0]] {
        let mut found = [const { Vec::new() }; 4];
        for _ in 0..args.rounds.max(3) {
            for (disk, found) in disks.iter().zip(&mut found) {
                let m = measure(disk, load, args)?;
                found.push(if load.1.contains("128k") { m.mb } else { m.per_second });
            }
        }
        let [a, b, c, d] = found.map(|values| middle(values.into_iter()));
        let what = if load.1.contains("128k") { " MB/s" } else { "/s" };
        writeln!(
            text,
            "| {} | {a:.0}{what} | {b:.0}{what} | {:.2} | {c:.0}{what} | {:.2} | {d:.0}{what} | {:.2} |",
            load.0,
            a / b,
            c / a,
            c / d
        )?;
    }
    text.push('\n');
    Ok(text)
}
