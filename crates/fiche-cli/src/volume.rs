//! `fiche volume`

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use fiche::codec::Codec;
use fiche::volume::{self, Description, FileDevice, Options, Volume};
use fiche::{Error, ReadAt, WriteAt};
use fiche_serve::{Address, Disk, Nbd};
use serde_json::json;

use crate::dictionary::Given;
use crate::input;
use crate::sizes::{parse, show};
use crate::stream;
use crate::ui::{self, Failed, say};

/// Make, serve and check volumes: disks that can be written, and compress what they hold
#[derive(clap::Subcommand)]
pub enum Verb {
    Create(Create),
    Serve(Serve),
    Info(Info),
    Check(Check),
}

/// Make a volume: a file that holds a disk
#[derive(clap::Args)]
#[command(after_help = "Example:\n  fiche volume create disk.fiche --size 10G\n  \
fiche volume serve disk.fiche --nbd /tmp/disk &\n  qemu-img info 'nbd+unix:///?socket=/tmp/disk'")]
pub struct Create {
    /// The file to make; there must be none
    file: PathBuf,
    /// How long the disk is, whatever it takes: a multiple of 4K
    #[arg(long, short, value_parser = parse)]
    size: u64,
    /// What blocks are compressed by
    #[arg(long, value_enum, default_value = "zstd")]
    codec: Name,
    /// Its level; by default 1 for zstd and lz4, 6 for zlib
    #[arg(long, short, allow_hyphen_values = true)]
    level: Option<i32>,
    /// Bytes that are compressed together where so many are written at once: 4K to 128K. Longer ones shrink more, shorter ones are
    /// read faster one by one
    #[arg(long, default_value = "16K", value_parser = parse)]
    unit: u64,
    /// Bytes that the file takes at most; by default as many as are enough whatever is written
    #[arg(long, value_parser = parse)]
    capacity: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Zstd,
    Lz4,
    Zlib,
    /// Not compressed: a log alone
    None,
}

impl Name {
    fn codec(self) -> Codec {
        match self {
            Name::Zstd => Codec::Zstd,
            Name::Lz4 => Codec::Lz4,
            Name::Zlib => Codec::Deflate,
            Name::None => Codec::Copy,
        }
    }

    fn of(codec: Codec) -> &'static str {
        match codec {
            Codec::Copy => "none",
            Codec::Deflate => "zlib",
            Codec::Lz4 => "lz4",
            _ => "zstd",
        }
    }
}

/// Serve a volume as a disk, until it is stopped by Ctrl-C or SIGTERM
///
/// As a network block device, or as a file that can be written, DIR/disk, of which --loop makes a disk of the kernel's. An
/// archive, or a gzip, zstd, xz or lz4 file, is served for reading as a network block device.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("face").required(true))]
pub struct Serve {
    /// The volume, archive or stream
    file: PathBuf,
    /// Where: a path for a socket, which has a / in it, or HOST:PORT, or a port of this machine
    #[arg(long, value_name = "SOCKET", group = "face")]
    nbd: Option<String>,
    /// Mount it at this folder, as the file `disk`
    #[arg(long, value_name = "DIR", group = "face")]
    fuse: Option<PathBuf>,
    /// Make a disk of that file by losetup, and print its name, /dev/loopN
    #[arg(long, requires = "fuse")]
    r#loop: bool,
    /// Name of the export; clients that ask for none get the one without a name
    #[arg(long, default_value = "")]
    name: String,
    #[command(flatten)]
    index: stream::Index,
    #[command(flatten)]
    dictionaries: Given,
}

/// Say how a volume was made and how full it is
#[derive(clap::Args)]
pub struct Info {
    /// The volume; it may be in use
    file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Read all of a volume, check every checksum, and say what is damaged
#[derive(clap::Args)]
pub struct Check {
    /// The volume, which nobody may be using
    file: PathBuf,
    /// Make the map anew from what the log says, where it is damaged. Make a copy of the file first
    #[arg(long)]
    repair: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Create(args) => create(&args),
        Verb::Serve(args) => serve(&args),
        Verb::Info(args) => info(&args),
        Verb::Check(args) => check(&args),
    }
}

fn create(args: &Create) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let mut options = Options::new(args.size).codec(args.codec.codec());
    options = options.unit(usize::try_from(args.unit).unwrap_or(usize::MAX));
    if let Some(level) = args.level {
        options = options.level(level);
    }
    if let Some(capacity) = args.capacity {
        options = options.capacity(capacity);
    }
    let device = FileDevice::create(&args.file).map_err(at)?;
    let made = Volume::create(device, options);
    if made.is_err() {
        // It was not there before.
        let _ = std::fs::remove_file(&args.file);
    }
    made.map(|_| ()).map_err(at)
}

/// A path, or a host and a port.
fn address(text: &str) -> Result<Address, Failed> {
    if text.contains('/') {
        return Ok(Address::Unix(text.into()));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    match port.parse::<u16>() {
        Ok(port) => Ok(Address::Tcp(format!("{host}:{port}"))),
        Err(_) => Err(Failed::usage(format!(
            "{text} is neither a path with a / nor HOST:PORT: write ./{text} for a socket here"
        ))),
    }
}

/// How often it is looked whether a signal came.
const LOOK: Duration = Duration::from_millis(50);

fn serve(args: &Serve) -> Result<(), Failed> {
    match (&args.nbd, &args.fuse) {
        (Some(nbd), _) => serve_nbd(args, nbd),
        (None, Some(folder)) => serve_fuse(args, folder),
        (None, None) => Err(Failed::usage("--nbd or --fuse says how it is served")),
    }
}

fn open(file: &Path) -> Result<Arc<Volume>, Failed> {
    let at = |error| Failed::at(file, error);
    Ok(Arc::new(Volume::open(FileDevice::open(file).map_err(at)?).map_err(at)?))
}

fn serve_nbd(args: &Serve, nbd: &str) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let address = address(nbd)?;
    let source = input::source(&args.file)?;
    let (server, what) = match volume::describe(&source) {
        Ok(told) => {
            let volume = open(&args.file)?;
            let what = format!("{} to read and write", show(told.len));
            (Nbd::default().device(&args.name, volume), what)
        }
        // An archive or a stream, perhaps.
        Err(Error::Invalid { .. }) => {
            let readable: Arc<dyn ReadAt> = match stream::is_stream(&source).map_err(at)? {
                true => Arc::new(stream::open_anyhow(&args.file, &source, &args.index)?),
                false => {
                    let options = input::options(&args.file, &args.dictionaries)?;
                    Arc::new(options.open(source).map_err(at)?)
                }
            };
            let what = format!("{} to read", show(readable.len()));
            (Nbd::default().source(&args.name, readable), what)
        }
        Err(error) => return Err(at(error)),
    };
    ui::will_check();
    ui::set_left("all that was written is there");
    let server = server.listen(&address).map_err(|error| Failed::at(Path::new(nbd), error))?;
    let name = &args.name;
    match (&address, server.local_addr()) {
        (Address::Unix(path), _) => {
            say!("{what} at nbd+unix:///{name}?socket={}", path.display());
        }
        (_, Some(local)) => say!("{what} at nbd://{local}/{name}"),
        _ => {}
    }
    while ui::check_stop().is_ok() {
        std::thread::sleep(LOOK);
    }
    server.stop().map_err(at)
}

fn serve_fuse(args: &Serve, folder: &Path) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let volume = open(&args.file)?;
    ui::will_check();
    ui::set_left("all that was written is there");
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let disk = Disk::new(volume.clone()).name(name).log(|line| say!("{line}"));
    let mounted = disk.at(folder).map_err(at)?;
    let device = match args.r#loop {
        true => Some(attach(&folder.join("disk"))?),
        false => None,
    };
    match &device {
        Some(device) => ui::print(format!("{device}\n").as_bytes())?,
        None => say!("{} to read and write at {}/disk", show(volume.len()), folder.display()),
    }
    while ui::check_stop().is_ok() && !mounted.is_gone() {
        std::thread::sleep(LOOK);
    }
    volume.flush().map_err(at)?;
    if let Some(device) = device {
        let _ = Command::new("losetup").arg("-d").arg(device).status();
    }
    match mounted.is_gone() {
        true => mounted.wait().map_err(at),
        false => mounted.unmount().map_err(|error| Failed::at(folder, error)),
    }
}

/// Makes a disk of a file.
fn attach(file: &Path) -> Result<String, Failed> {
    let command = Path::new("losetup");
    let output = Command::new(command).args(["--find", "--show"]).arg(file).output();
    let output = output.map_err(|error| Failed::io(command, error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failed::io(file, std::io::Error::other(why)))
        }
    }
}

fn info(args: &Info) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let source = input::source(&args.file)?;
    let told = volume::describe(&source).map_err(at)?;
    describe(&told, args.json)
}

/// Prints what a volume says of itself.
pub fn describe(told: &Description, as_json: bool) -> Result<(), Failed> {
    let codec = Name::of(told.codec);
    if as_json {
        let report = json!({
            "kind": "volume",
            "method": codec,
            "level": told.level,
            "block_bytes": 4096,
            "unit_bytes": told.unit,
            "segment_bytes": told.segment_len,
            "logical_bytes": told.len,
            "stored_bytes": told.stored_len,
            "free_bytes": told.free_len,
            "capacity_bytes": told.capacity,
            "live_thousandths": told.live,
            "generation": told.generation,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let rows = [
        ("kind", "volume".to_owned()),
        ("disk", format!("{} bytes ({})", told.len, show(told.len))),
        ("packed", format!("by {codec} {}, in units of {}", told.level, show(told.unit as u64))),
        ("file", format!("{}, at most {}", show(told.stored_len), show(told.capacity))),
        ("free", format!("{} in segments of {}", show(told.free_len), show(told.segment_len))),
        ("needed", format!("{:.1} % of what the others hold", f64::from(told.live) / 10.0)),
    ];
    let text: String = rows.iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect();
    ui::print(text.as_bytes())
}

fn check(args: &Check) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let open = || Volume::open(FileDevice::open(&args.file)?);
    let (volume, checked) = match open().and_then(|volume| volume.check().map(|c| (volume, c))) {
        // Units that are damaged stay so.
        Ok((volume, checked)) if checked.has_whole_map() || !args.repair => (volume, checked),
        Err(error) if !args.repair || !matches!(error, Error::Corrupt { .. }) => {
            return Err(at(error));
        }
        damaged => {
            drop(damaged);
            let device = FileDevice::open(&args.file).map_err(at)?;
            let (volume, told) = Volume::repair(device).map_err(at)?;
            let (extents, nodes) = (told.extents, told.nodes);
            say!("the map was made anew from {nodes} of its nodes and {extents} extents");
            let checked = volume.check().map_err(at)?;
            (volume, checked)
        }
    };
    drop(volume);
    if args.json {
        let report = json!({
            "blocks": checked.blocks,
            "units": checked.units,
            "unit_bytes": checked.stored_len,
            "damaged_blocks": checked.damaged.iter().map(|(block, pos)| json!({
                "block": block, "pos": pos
            })).collect::<Vec<_>>(),
            "damaged_nodes": checked.damaged_nodes,
            "miscounted_segments": checked.miscounted,
        });
        ui::print(format!("{report:#}\n").as_bytes())?;
    } else {
        let (held, stored) = (show(checked.blocks * 4096), show(checked.stored_len));
        ui::print(format!("{held} in {} units of {stored} together\n", checked.units).as_bytes())?;
    }
    let name = args.file.display();
    for (block, pos) in &checked.damaged {
        say!("{name}: damaged: block {block}, stored at byte {pos}");
    }
    for pos in &checked.damaged_nodes {
        say!("{name}: damaged: node of the map at byte {pos}");
    }
    if checked.miscounted > 0 {
        say!("{name}: {} segments hold something else than is counted", checked.miscounted);
    }
    match checked.is_whole() {
        true => Ok(()),
        false => Err(Failed::said(Error::Corrupt { what: "volume", at: fiche::Place::Pos(0) })),
    }
}
