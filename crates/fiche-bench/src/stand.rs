//! File systems on disks, for applications: volumes and a plain file behind the same file of FUSE and the same loop device, and others
//! on a loop device alone.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fiche::codec::Codec;
use fiche::volume::{Device, FileDevice, OpenOptions as Opening, Options, Tended, Volume};
use fiche::{ReadAt, WriteAt};

use crate::engine::Result;
use crate::volume::{Plain, enter, run, shell};

/// What lies below a file system.
#[derive(Clone, Debug)]
pub enum Below {
    /// A volume: its codec, and what else `serve-disk` is told.
    Volume(&'static str, Vec<String>),
    /// A plain file, served as a volume is.
    Raw(Vec<String>),
    /// A plain file.
    File,
}

/// A file system that is mounted, and what it takes to end that.
pub struct Stand {
    pub name: String,
    /// Where it is mounted.
    pub at: PathBuf,
    /// What holds it.
    pub file: PathBuf,
    is_btrfs: bool,
    device: Option<String>,
    served: Option<Served>,
}

/// Who serves a disk: told by its input, answers on its output.
struct Served {
    child: Child,
    told: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Served {
    /// The next line that it says.
    fn next(&mut self) -> Result<()> {
        match self.told.read_line(&mut String::new())? {
            0 => Err("the server ended".into()),
            _ => Ok(()),
        }
    }
}

impl Stand {
    /// Makes an empty one of so many bytes; `system` is ext4 or btrfs, with the options of mounting. Who serves it has so many MiB of memory for itself,
    /// if that is not 0: whoever is to write out pages for others must not wait for what these have.
    pub fn new(
        name: &str,
        below: &Below,
        system: (&str, &str),
        len: u64,
        memory: u64,
        work: &Path,
    ) -> Result<Stand> {
        let plain = name.replace([' ', ':'], "-");
        let work = std::path::absolute(work)?;
        let path = |what: &str| work.join(format!("{plain}.{what}"));
        let (file, folder, at) = (path("disk"), path("fuse"), path("at"));
        let _ = std::fs::remove_file(&file);
        let mut stand = Stand {
            name: name.into(),
            at,
            file,
            is_btrfs: system.0 == "btrfs",
            device: None,
            served: None,
        };
        let disk = match below {
            Below::File => {
                File::create(&stand.file)?.set_len(len)?;
                stand.file.clone()
            }
            Below::Volume(..) | Below::Raw(..) => {
                std::fs::create_dir_all(&folder)?;
                let mut server = Command::new(std::env::current_exe()?);
                server.arg("serve-disk").arg(&stand.file).arg(&folder).arg(len.to_string());
                match below {
                    Below::Volume(codec, more) => server.args(["--codec", codec]).args(more),
                    Below::Raw(more) => server.args(more),
                    Below::File => &mut server,
                };
                let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                let told = BufReader::new(child.stdout.take().ok_or("no output")?);
                let disk = folder.join("disk");
                let served = stand.served.insert(Served { child, told, folder });
                if memory > 0 {
                    enter("servers", memory, served.child.id())?;
                }
                served.next()?;
                disk
            }
        };
        let device =
            run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(disk))?;
        let device = stand.device.insert(device.trim().to_owned()).clone();
        let mut mkfs = Command::new(format!("mkfs.{}", system.0));
        if system.0 == "ext4" {
            // Else it goes on making itself while something is measured.
            mkfs.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        }
        run(mkfs.args(["-q", &device]))?;
        std::fs::create_dir_all(&stand.at)?;
        let options = format!("noatime,{}", system.1);
        run(Command::new("mount").args(["-o", &options, &device]).arg(&stand.at))?;
        Ok(stand)
    }

    /// All that was written is on the disk.
    pub fn sync(&self) -> Result<()> {
        run(Command::new("sync").arg("-f").arg(&self.at)).map(|_| ())
    }

    /// Neither the file system nor what is below has anything of it in memory.
    pub fn cool(&self) -> Result<()> {
        self.sync()?;
        shell("sync; echo 3 > /proc/sys/vm/drop_caches").map(|_| ())
    }

    /// Bytes that it takes when all that is not needed was given back, and a volume has nothing to do any more, but at most so many seconds
    /// later; of btrfs, which has no such end, those that it uses.
    pub fn stored(&mut self, seconds: u64) -> Result<u64> {
        self.sync()?;
        let at = self.at.display();
        if self.is_btrfs {
            let used = shell(&format!(
                "btrfs filesystem usage -b {at} | sed -n 's/^ *Used:[^0-9]*//p' | head -1"
            ))?;
            return Ok(used.trim().parse()?);
        }
        shell(&format!("fstrim {at}"))?;
        if let Some(served) = &mut self.served {
            let input = served.child.stdin.as_mut().ok_or("no input")?;
            writeln!(input, "{seconds}")?;
            served.next()?;
        }
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Ends the server so that it tells what it was asked to.
    fn end(&mut self) {
        let quiet = |command: &mut Command| {
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        for _ in 0..20 {
            let is_there = shell(&format!("mountpoint -q {}", self.at.display())).is_ok();
            if !is_there {
                break;
            }
            quiet(Command::new("umount").arg(&self.at));
            std::thread::sleep(Duration::from_millis(200));
        }
        if let Some(device) = self.device.take() {
            quiet(Command::new("losetup").args(["-d", &device]));
        }
        if let Some(Served { mut child, folder, .. }) = self.served.take() {
            drop(child.stdin.take());
            let _ = child.wait();
            let _ = std::fs::remove_dir(folder);
        }
        let _ = std::fs::remove_dir(&self.at);
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Serves a volume, or a plain file, as one file of a folder until its input ends. A line of seconds is answered when nothing is due any more, or so
/// many later.
#[derive(clap::Args)]
pub struct ServeArgs {
    file: PathBuf,
    folder: PathBuf,
    len: u64,
    /// A volume; else a plain file
    #[arg(long)]
    codec: Option<String>,
    #[arg(long)]
    level: Option<i32>,
    /// Bytes
    #[arg(long, default_value_t = 16 << 10)]
    unit: usize,
    #[arg(long)]
    capacity: Option<u64>,
    #[arg(long)]
    extent: Option<usize>,
    #[arg(long)]
    segment_bits: Option<u8>,
    /// Bytes of the units of blocks that are packed when nobody asks for anything
    #[arg(long)]
    pack: Option<usize>,
    /// Train no dictionary
    #[arg(long)]
    no_dictionary: bool,
    #[arg(long, default_value_t = 64 << 20)]
    memory: u64,
    /// Writes when and where the file was read to this
    #[arg(long)]
    trace: Option<PathBuf>,
    /// As slow as a disk of so many MB a second
    #[arg(long)]
    rate: Option<f64>,
    /// that takes so many milliseconds to be somewhere else
    #[arg(long, default_value_t = 8.0)]
    seek: f64,
}

/// What was read: seconds since 1970, where, and how much.
type Trace = Arc<Mutex<Vec<(f64, u64, usize)>>>;

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A disk with one head: bytes it moves in a second, and seconds it takes to be somewhere else.
struct Slow {
    rate: f64,
    seek: f64,
    /// Where it is, and when it is done with what it was asked for.
    head: Mutex<(u64, Instant)>,
}

impl Slow {
    /// Waits as long as it takes.
    fn go(&self, pos: u64, len: usize) {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        // What is just ahead goes by.
        let seek = if (head.0..head.0 + (64 << 10)).contains(&pos) { 0.0 } else { self.seek };
        let took = Duration::from_secs_f64(seek + len as f64 / self.rate);
        let end = head.1.max(Instant::now()) + took;
        *head = (pos + len as u64, end);
        drop(head);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}

/// A file that tells what of it is read, and may be as slow as a disk.
struct Traced<D> {
    below: D,
    trace: Option<Trace>,
    slow: Option<Slow>,
}

impl<D> Traced<D> {
    fn note(&self, pos: u64, len: usize) {
        if let Some(trace) = &self.trace {
            let at = now();
            trace.lock().unwrap_or_else(PoisonError::into_inner).push((at, pos, len));
        }
        self.wait(pos, len);
    }

    fn wait(&self, pos: u64, len: usize) {
        if let Some(slow) = &self.slow {
            slow.go(pos, len);
        }
    }
}

impl Device for Traced<FileDevice> {
    fn len(&self) -> std::io::Result<u64> {
        self.below.len()
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.note(pos, buf.len());
        self.below.read_at(pos, buf)
    }

    fn write_at(&self, pos: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.wait(pos, bytes.len());
        self.below.write_at(pos, bytes)
    }

    fn allocate(&self, range: Range<u64>) -> std::io::Result<()> {
        self.below.allocate(range)
    }

    fn punch(&self, range: Range<u64>) -> std::io::Result<()> {
        self.below.punch(range)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.below.sync()
    }

    fn is_empty(&self) -> std::io::Result<bool> {
        self.below.is_empty()
    }
}

impl ReadAt for Traced<Plain> {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        self.note(offset, buf.len());
        self.below.read_at(offset, buf)
    }
}

impl WriteAt for Traced<Plain> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> fiche::Result<()> {
        self.wait(offset, bytes.len());
        self.below.write_at(offset, bytes)
    }

    fn zero_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        self.below.zero_at(offset, len)
    }

    fn discard_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        self.below.discard_at(offset, len)
    }

    fn flush(&self) -> fiche::Result<()> {
        self.below.flush()
    }
}

/// Waits until a volume did nothing for three seconds, or for so long.
fn settle(volume: &Volume, most: Duration) {
    let did = || {
        let stats = volume.stats();
        (stats.appended_len, stats.given_len, stats.checkpoints)
    };
    let (start, mut since, mut last) = (Instant::now(), Instant::now(), did());
    while since.elapsed() < Duration::from_secs(3) && start.elapsed() < most {
        std::thread::sleep(Duration::from_millis(100));
        let now = did();
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
}

pub fn serve(args: &ServeArgs) -> Result<()> {
    let trace = args.trace.as_ref().map(|_| Trace::default());
    let slow = || {
        let head = Mutex::new((0, Instant::now()));
        args.rate.map(|rate| Slow { rate: rate * 1e6, seek: args.seek / 1e3, head })
    };
    let mut tended: Option<(Arc<Volume>, Tended)> = None;
    let device: Arc<dyn WriteAt> = match &args.codec {
        None => {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            let file = file.open(&args.file)?;
            file.set_len(args.len)?;
            Arc::new(Traced { below: Plain(file, args.len), trace: trace.clone(), slow: slow() })
        }
        Some(codec) => {
            let codec: Codec = match codec.as_str() {
                "none" => Codec::Copy,
                name => name.parse()?,
            };
            let mut options = Options::new(args.len).codec(codec).unit(args.unit);
            if let Some(level) = args.level {
                options = options.level(level);
            }
            if let Some(bits) = args.segment_bits {
                options = options.segment_bits(bits);
            }
            if let Some(capacity) = args.capacity {
                options = options.capacity(capacity);
            }
            drop(Volume::create(FileDevice::create(&args.file)?, options)?);
            let mut opening = Opening::default().memory(args.memory).train(!args.no_dictionary);
            if let Some(extent) = args.extent {
                opening = opening.extent(extent);
            }
            if let Some(pack) = args.pack {
                opening = opening.pack(pack);
            }
            let below = FileDevice::open(&args.file)?;
            let volume =
                Arc::new(opening.open(Traced { below, trace: trace.clone(), slow: slow() })?);
            tended = Some((volume.clone(), Tended::new(&volume)?));
            volume
        }
    };
    // As `fiche volume serve --loop`.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let mounted = fiche_serve::Disk::new(device.clone()).at(&args.folder)?;
    println!("ready");
    for line in std::io::stdin().lines() {
        if let Some((volume, _)) = &tended {
            settle(volume, Duration::from_secs(line?.parse()?));
        }
        println!("settled");
    }
    drop(tended);
    device.flush()?;
    mounted.unmount()?;
    if let (Some(path), Some(trace)) = (&args.trace, trace) {
        let mut text = String::from("seconds,position,bytes\n");
        for (at, pos, len) in trace.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            text += &format!("{at:.4},{pos},{len}\n");
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}
