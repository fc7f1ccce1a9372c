//! `fiche mount`

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fiche::Error;
use fiche_serve::Mount;

use crate::dictionary::Given;
use crate::input::{self, Threads};
use crate::stream;
use crate::ui::{self, Failed, say};

/// Mount an archive, or a gzip, zstd, xz or lz4 file, as a folder, for reading
///
/// Files are where their names say. Lines, messages and other items are files by their numbers,
/// a thousand to a folder, below `records`; a stream is the file `content`, and a gzip file one
/// without .gz (a zstd file without .zst, an xz file without .xz). It goes on in the background until
/// `umount DIR` (or `fusermount -u DIR`) ends it.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  fiche mount src.fiche /mnt/src\n  grep -r main /mnt/src\n  \
umount /mnt/src\n\nWhat is damaged gives an I/O error to who reads it, and a line in the log.")]
pub struct Args {
    /// The archive, or gzip, zstd, xz or lz4 file
    file: PathBuf,
    /// The folder to mount it at
    dir: PathBuf,
    /// Stay in the foreground: it ends with Ctrl-C, and the log is standard error
    #[arg(long)]
    foreground: bool,
    /// One file of all the content, under the archive's name without .fiche
    #[arg(long)]
    plain: bool,
    /// Let other users read it as well, as permissions say
    #[arg(long)]
    allow_other: bool,
    /// Write what is to be said of damage to the end of this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    index: stream::Index,
    #[command(flatten)]
    dictionaries: Given,
    #[command(flatten)]
    threads: Threads,
}

/// What the background process says when the files are there.
const READY: &str = "ready";
/// Set for it.
const BACKGROUND: &str = "FICHE_MOUNT_IN_BACKGROUND";
/// How often it looks whether somebody unmounted it, or a signal came.
const LOOK: Duration = Duration::from_millis(50);

pub fn run(args: Args) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.dir, error);
    match std::fs::metadata(&args.dir) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(at(Error::Io(std::io::ErrorKind::NotADirectory.into()))),
        Err(error) => return Err(at(error.into())),
    }
    let in_background = std::env::var_os(BACKGROUND).is_some();
    match args.foreground || in_background {
        true => serve(&args, in_background),
        false => send_into_background(&args),
    }
}

/// Begins the same command as a process of its own session, and waits until the files are there.
fn send_into_background(args: &Args) -> Result<(), Failed> {
    let at = |error: std::io::Error| Failed::at(&args.dir, error.into());
    let mut command = Command::new(std::env::current_exe().map_err(at)?);
    command.args(std::env::args_os().skip(1)).env(BACKGROUND, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(at)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(at)?;
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    // It has said why.
    let status = child.wait().map_err(at)?;
    std::process::exit(status.code().unwrap_or(5));
}

fn serve(args: &Args, in_background: bool) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    if in_background {
        // It goes on when the terminal is closed.
        let _ = rustix::process::setsid();
    }
    let log = match &args.log {
        Some(path) => Some(open_log(path)?),
        None => None,
    };
    let log = Mutex::new(log);
    let source = input::source(&args.file)?;
    let is_stream = stream::is_stream(&source).map_err(at)?;
    let mount = if is_stream {
        Mount::file(Arc::new(stream::open_anyhow(&args.file, &source, &args.index)?))
    } else {
        let options = input::options(&args.file, &args.dictionaries)?;
        Mount::new(options.open(source).map_err(at)?)
    };
    let file = match input::url(&args.file) {
        Some(_) => input::shown(&args.file).into(),
        None => args.file.clone(),
    };
    let name = file.file_name().unwrap_or_default();
    let mut mount = mount
        .name(name.to_string_lossy())
        .threads(args.threads.count())
        .allow_others(args.allow_other)
        .log(move |line| match &mut *log.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(file) => drop(writeln!(file, "{line}")),
            None => say!("{line}"),
        });
    if args.plain || is_stream {
        let stem = Path::new(name);
        let suffixes: &[&str] = if is_stream { &["gz", "zst", "xz", "lz4"] } else { &["fiche"] };
        let is_ours = stem.extension().is_some_and(|found| suffixes.iter().any(|s| found == *s));
        let stem = if is_ours { stem.file_stem().unwrap_or_default() } else { name };
        mount = mount.plain(stem.as_encoded_bytes());
    }
    ui::will_check();
    ui::set_left("it is unmounted");
    let mounted = mount.at(&args.dir).map_err(at)?;
    if in_background {
        ui::print(format!("{READY}\n").as_bytes())?;
        let null = std::fs::File::options().write(true).open("/dev/null");
        if let Ok(null) = null {
            // Who began it may be gone, and with it whoever reads what it says.
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
    }
    while !mounted.is_gone() {
        if ui::check_stop().is_err() {
            return mounted.unmount().map_err(|error| Failed::at(&args.dir, error));
        }
        std::thread::sleep(LOOK);
    }
    mounted.wait().map_err(|error| Failed::at(&args.dir, error))
}

fn open_log(path: &Path) -> Result<std::fs::File, Failed> {
    let file = std::fs::File::options().append(true).create(true).open(path);
    file.map_err(|error| Failed::io(path, error))
}
