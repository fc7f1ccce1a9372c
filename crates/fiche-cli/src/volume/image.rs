//! `fiche volume import` and `export`

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use fiche::volume::{FileDevice, Snapshot, Volume};
use fiche::{Error, NewFile, ReadAt, WriteAt};
use fiche_serve::{Address, Nbd};

use super::{Open, Packing};
use crate::sizes::{parse, show};
use crate::ui::{self, Failed, Progress, say};

/// Make a volume of a disk image
///
/// Images that are not raw (.qcow2, .vmdk, .vdi, .vhd, .vhdx) are read by qemu-img, of the package qemu-utils. What an image is, is
/// told by its name and not by its content, which whoever wrote the disk could choose.
#[derive(clap::Args)]
pub struct Import {
    /// The image, or a device
    image: PathBuf,
    /// The volume to make; there must be none
    file: PathBuf,
    /// What the image is, if its name does not say: raw, qcow2 and whatever else qemu-img knows
    #[arg(long)]
    format: Option<String>,
    /// How long the disk is, if it is to be longer than the image
    #[arg(long, short, value_parser = parse)]
    size: Option<u64>,
    #[command(flatten)]
    packing: Packing,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Make a disk image of what a volume holds
///
/// Blocks of zeros become holes. Images that are not raw are made by qemu-img, of the package qemu-utils. A snapshot is read while the volume is
/// served and written.
#[derive(clap::Args)]
pub struct Export {
    /// The volume, which nobody may be using unless it is for a snapshot
    file: PathBuf,
    /// The image to make; - for a raw one on standard output
    image: PathBuf,
    /// What this snapshot of the volume holds
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// What this clone of the volume holds
    #[arg(long, value_name = "NAME", conflicts_with = "snapshot")]
    clone: Option<String>,
    /// What it is to be, if its name does not say: raw, qcow2 and whatever else qemu-img knows
    #[arg(long)]
    format: Option<String>,
    /// Replace an image that is there
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    open: Open,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

const AT_A_TIME: usize = 4 << 20;

/// The format of an image; `None` for a raw one.
fn format(image: &Path, given: Option<&str>) -> Option<String> {
    let known = ["qcow2", "vmdk", "vdi", "vhdx"];
    let extension = image.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    let by_name = extension.and_then(|extension| match extension.as_str() {
        "vhd" => Some("vpc".to_owned()),
        other => known.contains(&other).then(|| other.to_owned()),
    });
    given.map(str::to_owned).or(by_name).filter(|format| format != "raw")
}

pub fn import(args: &Import) -> Result<(), Failed> {
    let format = format(&args.image, args.format.as_deref());
    let image = File::open(&args.image).map_err(|error| Failed::io(&args.image, error))?;
    let len = match &format {
        None => raw_len(&image, &args.image)?,
        Some(format) => foreign_len(&args.image, format)?,
    };
    let size = args.size.unwrap_or(len.next_multiple_of(4096));
    if size < len {
        let (size, len) = (show(size), show(len));
        return Err(Failed::usage(format!("{size} are too little for an image of {len}")));
    }
    let volume = Arc::new(args.packing.create(&args.file, size)?);
    let is_device = super::is_device(&args.file);
    ui::set_aside((!is_device).then(|| args.file.clone()));
    let copied = match &format {
        None => fill(&image, len, &volume, args),
        Some(format) => serve_to(Nbd::default().device("", volume.clone()), |url| {
            let read = Command::new("qemu-img")
                .args(["convert", "-n", "-W", "--target-is-zero"])
                .args(["-f", format, "-O", "raw"])
                .arg(&args.image)
                .arg(url)
                .output();
            ran(read, &args.image).map(drop)
        }),
    };
    let flushed = copied.and_then(|()| volume.flush().map_err(|e| Failed::at(&args.file, e)));
    drop(volume);
    ui::set_aside(None);
    if flushed.is_err() && !is_device {
        // Half a disk is of no use.
        let _ = std::fs::remove_file(&args.file);
    }
    flushed
}

/// Also of a device, which has no length among what is known of it.
fn raw_len(mut image: &File, path: &Path) -> Result<u64, Failed> {
    let at = |error| Failed::io(path, error);
    if image.metadata().map_err(at)?.is_dir() {
        return Err(at(std::io::ErrorKind::IsADirectory.into()));
    }
    let len = std::io::Seek::seek(&mut image, std::io::SeekFrom::End(0)).map_err(at)?;
    match len {
        0 => Err(Failed::usage(format!("{} is empty", path.display()))),
        len => Ok(len),
    }
}

/// Holes are read as zeros, which cost nothing.
fn fill(image: &File, len: u64, volume: &Volume, args: &Import) -> Result<(), Failed> {
    let progress = Progress::new("import", Some(len), args.quiet);
    let mut bytes = vec![0; AT_A_TIME];
    let mut at = 0;
    while at < len {
        let now = (len - at).min(AT_A_TIME as u64) as usize;
        let read = image.read_exact_at(&mut bytes[..now], at);
        read.map_err(|error| Failed::io(&args.image, error))?;
        volume.write_at(at, &bytes[..now]).map_err(|error| Failed::at(&args.file, error))?;
        at += now as u64;
        progress.add(now as u64)?;
    }
    Ok(())
}

pub fn export(args: &Export) -> Result<(), Failed> {
    match &args.snapshot {
        None => {
            let volume = args.open.open(&args.file)?;
            let source: Arc<dyn ReadAt> = match &args.clone {
                None => volume,
                Some(name) => {
                    let clone = volume.writable_clone(name);
                    Arc::new(clone.map_err(|error| Failed::at(&args.file, error))?)
                }
            };
            export_checked(source, args, &|| Ok(()))
        }
        Some(name) => {
            let here = |error| Failed::at(&args.file, error);
            let device = FileDevice::read_only(&args.file).map_err(here)?;
            let snapshot = Arc::new(Snapshot::open(device, name).map_err(here)?);
            let read = snapshot.clone();
            let gone = format!("the snapshot {name} was deleted meanwhile");
            let check = || match snapshot.is_there().map_err(here)? {
                true => Ok(()),
                false => Err(here(Error::Invalid { what: gone.clone().into() })),
            };
            export_checked(read, args, &check)
        }
    }
}

/// `check` says afterwards whether what was read is right.
fn export_checked(
    source: Arc<dyn ReadAt>,
    args: &Export,
    check: &dyn Fn() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let at = |error| Failed::io(&args.image, error);
    let format = format(&args.image, args.format.as_deref());
    if args.image == Path::new("-") {
        return match format {
            None => print_all(&*source, args).and_then(|()| check()),
            Some(_) => Err(Failed::usage("only a raw image goes to standard output")),
        };
    }
    let is_device = std::fs::metadata(&args.image).is_ok_and(|meta| !meta.is_file());
    if is_device && format.is_none() {
        let device = OpenOptions::new().write(true).open(&args.image).map_err(at)?;
        copy(&*source, &device, args)?;
        return device.sync_all().map_err(at).and_then(|()| check());
    }
    let new = NewFile::create(&args.image, args.force)?;
    let aside = new.aside().to_path_buf();
    ui::set_aside(Some(aside.clone()));
    let written = match format {
        None => {
            let image = OpenOptions::new().write(true).open(&aside).map_err(at)?;
            image.set_len(source.len()).map_err(at).and_then(|()| copy(&*source, &image, args))
        }
        Some(format) => serve_to(Nbd::default().source("", source), |url| {
            let mut convert = Command::new("qemu-img");
            convert.args(["convert", "-f", "raw", "-O", &format]).arg(url).arg(&aside);
            ran(convert.output(), &args.image).map(drop)
        }),
    };
    let finished = written.and_then(|()| check()).and_then(|()| Ok(new.finish()?));
    ui::set_aside(None);
    finished
}

fn print_all(source: &dyn ReadAt, args: &Export) -> Result<(), Failed> {
    let progress = Progress::new("export", Some(source.len()), args.quiet);
    let mut bytes = vec![0; AT_A_TIME];
    let mut at = 0;
    while at < source.len() {
        let now = (source.len() - at).min(AT_A_TIME as u64) as usize;
        source.read_at(at, &mut bytes[..now]).map_err(|e| Failed::at(&args.file, e))?;
        ui::print(&bytes[..now])?;
        at += now as u64;
        progress.add(now as u64)?;
    }
    Ok(())
}

/// Blocks of nothing are left out of a file, where they are holes; what a device has there is not known.
fn copy(source: &dyn ReadAt, image: &File, args: &Export) -> Result<(), Failed> {
    let (here, there) = (|e| Failed::at(&args.file, e), |e| Failed::io(&args.image, e));
    let is_file = image.metadata().map_err(there)?.is_file();
    let len = source.len();
    let progress = Progress::new("export", Some(len), args.quiet);
    let mut bytes = vec![0; AT_A_TIME];
    let mut at = 0;
    while at < len {
        let (run, is_zero) = source.run_at(at).map_err(here)?;
        let now = match is_zero && is_file {
            true => run,
            false => {
                let now = if is_file { run } else { len - at }.min(AT_A_TIME as u64);
                let bytes = &mut bytes[..now as usize];
                source.read_at(at, bytes).map_err(here)?;
                image.write_all_at(bytes, at).map_err(there)?;
                now
            }
        };
        at += now;
        progress.add(now)?;
    }
    Ok(())
}

/// How long the disk is that an image of this format holds.
fn foreign_len(image: &Path, format: &str) -> Result<u64, Failed> {
    let mut info = Command::new("qemu-img");
    info.args(["info", "--output=json", "-f", format]).arg(image);
    let told = ran(info.output(), image)?;
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let len = told.get("virtual-size").and_then(serde_json::Value::as_u64);
    len.filter(|len| *len > 0).ok_or_else(|| {
        Failed::usage(format!("qemu-img does not say how long {} is", image.display()))
    })
}

/// What a program said, if it succeeded.
fn ran(output: std::io::Result<Output>, image: &Path) -> Result<Output, Failed> {
    let output = output.map_err(|error| {
        say!("images that are not raw need qemu-img, of the package qemu-utils");
        Failed::io(Path::new("qemu-img"), error)
    })?;
    match output.status.success() {
        true => Ok(output),
        false => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failed::io(image, std::io::Error::other(why)))
        }
    }
}

/// Serves a device to one program, which gets its address.
fn serve_to(server: Nbd, run: impl FnOnce(&str) -> Result<(), Failed>) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|error| Failed::io(&std::env::temp_dir(), error))?;
    let socket = folder.path().join("disk");
    let server =
        server.listen(&Address::Unix(socket.clone())).map_err(|e| Failed::at(&socket, e))?;
    let done = run(&format!("nbd+unix:///?socket={}", socket.display()));
    server.stop().map_err(|error| Failed::at(&socket, error))?;
    done
}
