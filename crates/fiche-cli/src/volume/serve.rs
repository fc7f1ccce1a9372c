//! `fiche volume serve`

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fiche::volume::{self, FileDevice, Tended, Volume};
use fiche::{Error, ReadAt, WriteAt};
#[cfg(feature = "tls")]
use fiche_serve::Tls;
use fiche_serve::{Address, Disk, Nbd};
use rustix::mm::MlockAllFlags;

use super::pack::Harder;
use super::{Open, live};
use crate::dictionary::Given;
use crate::input;
use crate::sizes::{parse, show};
use crate::stream;
use crate::ui::{self, Failed, say};

/// Serve a volume as a disk, until it is stopped by Ctrl-C or SIGTERM
///
/// As a network block device, or as a file that can be written, DIR/disk, of which --loop makes a disk of the kernel's. An
/// archive, or a gzip, zstd, xz or lz4 file, is served for reading as a network block device. Snapshots of a volume are other exports, for reading, of their
/// names, and so are its clones, for reading and writing.
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
    #[arg(long, requires = "fuse", conflicts_with = "nbd")]
    r#loop: bool,
    /// Tell Prometheus here what the volume does: a path for a socket, which has a / in it, or HOST:PORT, or a port of this machine
    #[arg(long, value_name = "SOCKET")]
    metrics: Option<String>,
    /// Serve this clone in the place of the volume
    #[arg(long, value_name = "NAME")]
    clone: Option<String>,
    /// Name of the export; clients that ask for none get the one without a name
    #[arg(long, default_value = "")]
    name: String,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: Encrypted,
    #[command(flatten)]
    open: Open,
    /// Bytes of a volume that are written as one extent, at most: 8K to 256K, by default 32K. Reading does not depend on it
    #[arg(long, value_parser = parse)]
    extent: Option<u64>,
    #[command(flatten)]
    harder: Harder,
    #[command(flatten)]
    index: stream::Index,
    #[command(flatten)]
    dictionaries: Given,
}

#[cfg(feature = "tls")]
#[derive(clap::Args)]
struct Encrypted {
    /// Serve by encrypted connections only (TLS): this folder has the server's certificate and its key, server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR", conflicts_with = "fuse")]
    tls: Option<PathBuf>,
    /// Let those clients in that have a certificate of an authority in ca-cert.pem of that folder, and nobody else
    #[arg(long, requires = "tls")]
    tls_verify_peer: bool,
}

#[cfg(feature = "tls")]
impl Encrypted {
    fn apply(&self, nbd: Nbd) -> Result<Nbd, Failed> {
        let Some(folder) = &self.tls else { return Ok(nbd) };
        let tls = match self.tls_verify_peer {
            true => Tls::open_for_known_clients(folder),
            false => Tls::open(folder),
        };
        Ok(nbd.tls(tls?))
    }

    /// What a client's URL begins with.
    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "nbds" } else { "nbd" }
    }
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

impl Serve {
    fn volume(&self) -> Result<Arc<Volume>, Failed> {
        let mut options = self.harder.apply(self.open.options());
        if let Some(bytes) = self.extent {
            options = options.extent(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        let opened = FileDevice::open(&self.file).and_then(|device| options.open(device));
        opened.map(Arc::new).map_err(|error| Failed::at(&self.file, error))
    }

    /// What is served of it: all, or a clone.
    fn device(&self, volume: &Arc<Volume>) -> Result<Arc<dyn WriteAt>, Failed> {
        let Some(name) = &self.clone else { return Ok(volume.clone()) };
        let clone = volume.writable_clone(name);
        Ok(Arc::new(clone.map_err(|error| Failed::at(&self.file, error))?))
    }

    /// Cleans beside the requests, and tells what is done.
    fn tend(&self, volume: &Arc<Volume>) -> Result<Tended, Failed> {
        let metrics = self.metrics.as_deref().map(address).transpose()?;
        live::tell(volume, &self.file, metrics.as_ref())?;
        Tended::new(volume).map_err(|error| Failed::at(&self.file, error))
    }
}

pub fn run(args: &Serve) -> Result<(), Failed> {
    match (&args.nbd, &args.fuse) {
        (Some(nbd), _) => serve_nbd(args, nbd),
        (None, Some(folder)) => serve_fuse(args, folder),
        (None, None) => Err(Failed::usage("--nbd or --fuse says how it is served")),
    }
}

fn serve_nbd(args: &Serve, nbd: &str) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let address = address(nbd)?;
    let source = input::source(&args.file)?;
    let mut tended = None;
    let (server, what) = match volume::describe(&source) {
        Ok(_) => {
            let volume = args.volume()?;
            tended = Some(args.tend(&volume)?);
            let device = args.device(&volume)?;
            let what = format!("{} to read and write", show(device.len()));
            (Nbd::default().device(&args.name, device).snapshots(volume), what)
        }
        // An archive or a stream, perhaps.
        Err(Error::Invalid { .. }) if args.clone.is_none() => {
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
    #[cfg(feature = "tls")]
    let (server, scheme) = (args.tls.apply(server)?, args.tls.scheme());
    #[cfg(not(feature = "tls"))]
    let scheme = "nbd";
    ui::will_check();
    ui::set_left("all that was written is there");
    let server = server.listen(&address).map_err(|error| Failed::at(Path::new(nbd), error))?;
    let name = &args.name;
    match (&address, server.local_addr()) {
        (Address::Unix(path), _) => {
            say!("{what} at {scheme}+unix:///{name}?socket={}", path.display());
        }
        (_, Some(local)) => say!("{what} at {scheme}://{local}/{name}"),
        _ => {}
    }
    while ui::check_stop().is_ok() {
        std::thread::sleep(LOOK);
    }
    // What it stores at the end is not disturbed.
    drop(tended);
    server.stop().map_err(at)
}

fn serve_fuse(args: &Serve, folder: &Path) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let volume = args.volume()?;
    let tended = args.tend(&volume)?;
    if args.r#loop {
        stay_out_of_the_way();
    }
    ui::will_check();
    ui::set_left("all that was written is there");
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let device = args.device(&volume)?;
    let len = device.len();
    let disk = Disk::new(device).name(name).log(|line| say!("{line}"));
    let mounted = disk.at(folder).map_err(at)?;
    let device = match args.r#loop {
        true => Some(attach(&folder.join("disk"))?),
        false => None,
    };
    match &device {
        Some(device) => ui::print(format!("{device}\n").as_bytes())?,
        None => say!("{} to read and write at {}/disk", show(len), folder.display()),
    }
    while ui::check_stop().is_ok() && !mounted.is_gone() {
        std::thread::sleep(LOOK);
    }
    drop(tended);
    volume.flush().map_err(at)?;
    if let Some(device) = device {
        let _ = Command::new("losetup").arg("-d").arg(device).status();
    }
    match mounted.is_gone() {
        true => mounted.wait().map_err(at),
        false => mounted.unmount().map_err(|error| Failed::at(folder, error)),
    }
}

/// The kernel may write out pages of the disk to get memory, for which it needs this program: that must not wait for memory that
/// is to be got so, nor be written out itself. Both need rights that not everybody has.
fn stay_out_of_the_way() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let _ = rustix::mm::mlockall(all);
}

/// Makes a disk of a file. Past the page cache, where that can be: what is on the disk is in memory once then, and several requests are answered at once.
fn attach(file: &Path) -> Result<String, Failed> {
    let losetup = Path::new("losetup");
    let mut why = String::new();
    for direct in ["--direct-io=on", "--direct-io=off"] {
        let output = Command::new(losetup).args(["--find", "--show", direct]).arg(file).output();
        let output = output.map_err(|error| Failed::io(losetup, error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    Err(Failed::io(file, std::io::Error::other(why)))
}
