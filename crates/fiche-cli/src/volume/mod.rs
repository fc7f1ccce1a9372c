//! `fiche volume`

mod clone;
mod image;
mod live;
mod pack;
mod serve;
mod snapshot;

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use fiche::Error;
use fiche::codec::Codec;
use fiche::volume::{self, Checked, Description, FileDevice, OpenOptions, Options, Volume};
use serde_json::json;

use crate::input;
use crate::sizes::{parse, show};
use crate::ui::{self, Failed, say};

/// Make, serve and check volumes: disks that can be written, and compress what they hold
#[derive(clap::Subcommand)]
pub enum Verb {
    Create(Create),
    Serve(serve::Serve),
    Info(Info),
    Check(Check),
    Resize(Resize),
    Trim(Trim),
    Pack(pack::Pack),
    Import(image::Import),
    Export(image::Export),
    #[command(subcommand)]
    Snapshot(snapshot::Verb),
    #[command(subcommand)]
    Clone(clone::Verb),
}

/// Make a volume: a file that holds a disk
#[derive(clap::Args)]
#[command(after_help = "Example:\n  fiche volume create disk.fiche --size 10G\n  \
fiche volume serve disk.fiche --nbd /tmp/disk &\n  qemu-img info 'nbd+unix:///?socket=/tmp/disk'")]
pub struct Create {
    /// The file to make; there must be none. Or a block device that begins with a MiB of zeros
    file: PathBuf,
    /// How long the disk is, whatever it takes: a multiple of 4K
    #[arg(long, short, value_parser = parse)]
    size: u64,
    #[command(flatten)]
    packing: Packing,
}

/// How blocks are packed, and how many there is room for
#[derive(clap::Args)]
struct Packing {
    /// What blocks are compressed by
    #[arg(long, value_enum, default_value = "zstd")]
    codec: Name,
    /// Its level; by default 1 for zstd, lz4 and lzo, 6 for zlib
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
    Lzo,
    /// Not compressed: a log alone
    None,
}

impl Name {
    fn codec(self) -> Codec {
        match self {
            Name::Zstd => Codec::Zstd,
            Name::Lz4 => Codec::Lz4,
            Name::Zlib => Codec::Deflate,
            Name::Lzo => Codec::Lzo,
            Name::None => Codec::Copy,
        }
    }

    fn of(codec: Codec) -> &'static str {
        match codec {
            Codec::Copy => "none",
            Codec::Deflate => "zlib",
            Codec::Lz4 => "lz4",
            Codec::Lzo => "lzo",
            _ => "zstd",
        }
    }
}

/// Say how a volume was made and how full it is
#[derive(clap::Args)]
pub struct Info {
    /// The volume; it may be in use
    file: PathBuf,
    /// Ask who serves it what it does, and how full it is now
    #[arg(long)]
    live: bool,
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
    #[command(flatten)]
    open: Open,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Create(args) => create(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Info(args) => info(&args),
        Verb::Check(args) => check(&args),
        Verb::Resize(args) => resize(&args),
        Verb::Trim(args) => trim(&args),
        Verb::Pack(args) => pack::run(&args),
        Verb::Import(args) => image::import(&args),
        Verb::Export(args) => image::export(&args),
        Verb::Snapshot(verb) => snapshot::run(verb),
        Verb::Clone(verb) => clone::run(verb),
    }
}

impl Packing {
    /// Makes a volume of so many bytes. A file that is no volume in the end is removed.
    fn create(&self, file: &Path, size: u64) -> Result<Volume, Failed> {
        let at = |error| Failed::at(file, error);
        let mut options = Options::new(size).codec(self.codec.codec());
        options = options.unit(usize::try_from(self.unit).unwrap_or(usize::MAX));
        if let Some(level) = self.level {
            options = options.level(level);
        }
        if let Some(capacity) = self.capacity {
            options = options.capacity(capacity);
        }
        let is_device = is_device(file);
        let device = if is_device { FileDevice::open(file) } else { FileDevice::create(file) };
        let made = Volume::create(device.map_err(at)?, options);
        if made.is_err() && !is_device {
            // It was not there before.
            let _ = std::fs::remove_file(file);
        }
        made.map_err(at)
    }
}

fn is_device(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.file_type().is_block_device())
}

fn create(args: &Create) -> Result<(), Failed> {
    args.packing.create(&args.file, args.size).map(drop)
}

/// How a volume is opened
#[derive(clap::Args)]
struct Open {
    /// Memory for the map, at most: 1.3 GiB hold it for a TiB that is used all over, and what is not there is read again
    #[arg(long, default_value = "64M", value_parser = parse)]
    memory: u64,
}

impl Open {
    fn open(&self, file: &Path) -> Result<Arc<Volume>, Failed> {
        self.open_or_busy(file).map_err(|error| Failed::at(file, error))
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::default().memory(self.memory)
    }

    fn open_or_busy(&self, file: &Path) -> fiche::Result<Arc<Volume>> {
        let device = FileDevice::open(file)?;
        Ok(Arc::new(self.options().open(device)?))
    }
}

/// Make the disk of a volume longer or shorter
///
/// What is on it does not know of that: grow a file system afterwards (resize2fs, xfs_growfs, btrfs filesystem resize), and before the disk
/// becomes shorter make the file system smaller and discard what is behind it. Nothing that is there is ever cut off.
#[derive(clap::Args)]
pub struct Resize {
    /// The volume, which nobody may be using
    file: PathBuf,
    /// How long the disk is from now on: a multiple of 4K
    #[arg(long, short, value_parser = parse)]
    size: u64,
    /// Bytes that the file takes at most; by default as many as are enough, unless less was given before
    #[arg(long, value_parser = parse)]
    capacity: Option<u64>,
    #[command(flatten)]
    open: Open,
}

fn resize(args: &Resize) -> Result<(), Failed> {
    let volume = args.open.open(&args.file)?;
    volume.resize(args.size, args.capacity).map_err(|error| Failed::at(&args.file, error))
}

/// Give the file system back what a volume does not need
///
/// What was discarded on it, and what was written again since, is room that only the volume itself uses again. This makes holes in
/// its file there.
#[derive(clap::Args)]
pub struct Trim {
    /// The volume, which nobody may be using
    file: PathBuf,
    #[command(flatten)]
    open: Open,
}

fn trim(args: &Trim) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let before = taken(&args.file)?;
    let volume = args.open.open(&args.file)?;
    volume.trim().map_err(at)?;
    drop(volume);
    tell_given(&args.file, before)
}

/// Says how much of what a volume took was given back.
fn tell_given(file: &Path, before: u64) -> Result<(), Failed> {
    if is_device(file) {
        return Ok(());
    }
    let after = taken(file)?;
    let given = show(before.saturating_sub(after));
    ui::print(format!("{given} of {} were given back\n", show(before)).as_bytes())
}

/// Bytes that a file takes on its file system.
fn taken(file: &Path) -> Result<u64, Failed> {
    let meta = std::fs::metadata(file).map_err(|error| Failed::io(file, error))?;
    Ok(meta.blocks() * 512)
}

fn info(args: &Info) -> Result<(), Failed> {
    if args.live {
        return live::show_live(&args.file, args.json);
    }
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
            "unpacked_bytes": told.unpacked_len,
            "dictionaries": told.dictionaries,
            "generation": told.generation,
            "snapshots": told.snapshots.iter().map(snapshot::json_of).collect::<Vec<_>>(),
            "clones": told.clones.iter().map(clone::json_of).collect::<Vec<_>>(),
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let snapshots = told.snapshots.iter().map(|info| info.name.as_str());
    let snapshots = snapshots.collect::<Vec<_>>().join(", ");
    let clones = told.clones.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut packed = format!("by {codec} {}, in units of {}", told.level, show(told.unit as u64));
    match told.dictionaries {
        0 => {}
        1 => packed.push_str(", with a dictionary"),
        count => packed.push_str(&format!(", with {count} dictionaries")),
    }
    let mut rows = vec![
        ("kind", "volume".to_owned()),
        ("disk", format!("{} bytes ({})", told.len, show(told.len))),
        ("packed", packed),
        ("file", format!("{}, at most {}", show(told.stored_len), show(told.capacity))),
        ("free", format!("{} in segments of {}", show(told.free_len), show(told.segment_len))),
        ("needed", format!("{:.1} % of what the others hold", f64::from(told.live) / 10.0)),
    ];
    if told.unpacked_len > 0 {
        rows.push((
            "to pack",
            format!("{}, when nobody asks for anything", show(told.unpacked_len)),
        ));
    }
    if !snapshots.is_empty() {
        rows.push(("snapshots", snapshots));
    }
    if !clones.is_empty() {
        rows.push(("clones", clones));
    }
    let text: String = rows.iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect();
    ui::print(text.as_bytes())
}

/// Of a snapshot or clone.
fn of_part((name, checked): &(String, Checked)) -> serde_json::Value {
    json!({
        "name": name,
        "damaged_blocks": checked.damaged.len(),
        "damaged_nodes": checked.damaged_nodes.len(),
        "miscounted_segments": checked.miscounted,
    })
}

fn check(args: &Check) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let options = OpenOptions::default().memory(args.open.memory);
    let open = || options.open(FileDevice::open(&args.file)?);
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
            for clone in &told.lost_clones {
                say!("the clone {clone} is lost: its snapshot is damaged");
            }
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
            "damaged_dictionaries": checked.damaged_dictionaries,
            "miscounted_segments": checked.miscounted,
            "snapshots": checked.snapshots.iter().map(of_part).collect::<Vec<_>>(),
            "clones": checked.clones.iter().map(of_part).collect::<Vec<_>>(),
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
    for pos in &checked.damaged_dictionaries {
        say!("{name}: damaged: copy of a dictionary at byte {pos}");
    }
    if checked.miscounted > 0 {
        say!("{name}: {} segments hold something else than is counted", checked.miscounted);
    }
    for (snapshot, checked) in checked.snapshots.iter().filter(|(_, its)| !its.is_whole()) {
        let (blocks, nodes) = (checked.damaged.len(), checked.damaged_nodes.len());
        say!(
            "{name}: damaged: snapshot {snapshot}, {blocks} blocks and {nodes} nodes of its map, and {} segments are not held",
            checked.miscounted
        );
    }
    for (clone, checked) in checked.clones.iter().filter(|(_, its)| !its.is_whole()) {
        let (blocks, nodes) = (checked.damaged.len(), checked.damaged_nodes.len());
        say!("{name}: damaged: clone {clone}, {blocks} blocks and {nodes} nodes of its map");
    }
    match checked.is_whole() {
        true => Ok(()),
        false => Err(Failed::said(Error::Corrupt { what: "volume", at: fiche::Place::Pos(0) })),
    }
}
