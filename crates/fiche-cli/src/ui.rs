//! Errors, progress and signals as people meet them.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use fiche::Error;
use indicatif::{ProgressBar, ProgressStyle};

/// Tells something on standard error, on one line. That nobody can read it is no error.
macro_rules! say {
    ($($message:tt)*) => { $crate::ui::say_line(&format!($($message)*)) };
}
pub(crate) use say;

/// Why a verb did not do what it should, and about which file.
pub struct Failed {
    file: Option<PathBuf>,
    error: Error,
    /// What was said already, so that only the exit code is left to give.
    said: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { file: None, error, said: false }
    }
}

impl Failed {
    /// A failure about this file.
    pub fn at(file: &Path, error: Error) -> Failed {
        Failed { file: Some(file.to_owned()), error, said: false }
    }

    /// A failure of the system about this file.
    pub fn io(file: &Path, error: io::Error) -> Failed {
        Failed::at(file, Error::Io(error))
    }

    /// Wrong arguments.
    pub fn usage(what: impl Into<String>) -> Failed {
        Error::Invalid { what: what.into().into() }.into()
    }

    /// Damage that has been told in full.
    pub fn said(error: Error) -> Failed {
        Failed { file: None, error, said: true }
    }

    /// True when the file is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self.error, Error::Corrupt { .. })
    }

    /// The same about this file, if it is damage and nobody knows of what.
    pub fn if_damage_of(mut self, file: &Path) -> Failed {
        if self.is_damage() && self.file.is_none() {
            self.file = Some(file.to_owned());
        }
        self
    }

    /// True when there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.error, Error::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// True when nothing more should be tried: somebody interrupted, or reads no more.
    pub fn is_final(&self) -> bool {
        let Error::Io(error) = &self.error else { return false };
        error.kind() == io::ErrorKind::BrokenPipe || error.to_string() == INTERRUPTED
    }

    /// Tells it on standard error, unless it was told.
    pub fn tell(&self) {
        match &self.file {
            _ if self.said => {}
            // What went wrong far away says where.
            Some(file)
                if crate::input::url(file).is_some() && self.error.to_string().contains("://") =>
            {
                say!("{}", self.error);
            }
            Some(file) => say!("{}: {}", crate::input::shown(file), self.error),
            None => say!("{}", self.error),
        }
    }

    /// Tells it on standard error, and gives the exit code.
    pub fn report(self) -> ExitCode {
        if let Error::Io(error) = &self.error {
            // Whoever read our output has enough of it.
            if error.kind() == io::ErrorKind::BrokenPipe {
                return ExitCode::from(141);
            }
            if error.to_string() == INTERRUPTED {
                say!("interrupted: {}", what_is_left());
                return ExitCode::from(130);
            }
        }
        self.tell();
        ExitCode::from(match self.error {
            Error::OutOfBounds { .. } | Error::NotFound { .. } | Error::Invalid { .. } => 2,
            Error::Corrupt { .. } => 3,
            Error::Unsupported { .. } => 4,
            Error::Limit { .. } => 6,
            _ => 5,
        })
    }
}

const INTERRUPTED: &str = "interrupted";
static STOP: AtomicBool = AtomicBool::new(false);
/// Whether the verb looks at `STOP` often, and has something to put in order.
static POLLS: AtomicBool = AtomicBool::new(false);
/// A file that is not whole yet: removed when a signal ends the program.
static ASIDE: Mutex<Option<PathBuf>> = Mutex::new(None);
/// What to tell when a signal ends the program.
static LEFT: Mutex<&str> = Mutex::new("nothing was written");

fn what_is_left() -> &'static str {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what an interruption leaves behind.
pub fn set_left(left: &'static str) {
    *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = left;
}

/// Names the file that must not stay when a signal ends the program.
pub fn set_aside(path: Option<PathBuf>) {
    *ASIDE.lock().unwrap_or_else(PoisonError::into_inner) = path;
}

/// Promises that a signal is noticed by `check_stop`: what was begun is then undone.
pub fn will_check() {
    POLLS.store(true, Ordering::SeqCst);
}

/// On SIGINT, SIGTERM and SIGHUP: a verb that promised to look stops between two files;
/// any other is ended, and its unfinished file removed.
pub fn watch_signals() {
    // Without the handler a signal ends the program all the same, only less tidily.
    let _ = ctrlc::set_handler(|| {
        let again = STOP.swap(true, Ordering::SeqCst);
        let aside = ASIDE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = &aside {
            let _ = std::fs::remove_file(path);
        }
        if aside.is_some() || again || !POLLS.load(Ordering::SeqCst) {
            say!("interrupted: {}", what_is_left());
            std::process::exit(130);
        }
    });
}

/// An error when a signal asked to stop.
pub fn check_stop() -> fiche::Result<()> {
    match STOP.load(Ordering::Relaxed) {
        true => Err(Error::Io(io::Error::other(INTERRUPTED))),
        false => Ok(()),
    }
}

/// See `say!`: what would move a terminal's cursor or colours is escaped.
pub fn say_line(message: &str) {
    let mut line = String::from("fiche: ");
    for c in message.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes to standard output.
pub fn print(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| Error::Io(e).into())
}

/// A bar on standard error, when that is a terminal and nobody wants quiet.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// `total` bytes, or an unknown number.
    pub fn new(verb: &'static str, total: Option<u64>, quiet: bool) -> Progress {
        if quiet || !io::stderr().is_terminal() {
            return Progress { bar: ProgressBar::hidden() };
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            None => (ProgressBar::new_spinner(), "{prefix} {spinner} {bytes} {bytes_per_sec}"),
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(verb);
        Progress { bar }
    }

    /// A bar of a hundred steps.
    pub fn percent(verb: &'static str, quiet: bool) -> Progress {
        let progress = Progress::new(verb, Some(100), quiet);
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos} % {eta}");
        progress.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        progress
    }

    /// So many of so many, for a bar of a hundred steps; an error when a signal asked to stop.
    pub fn so_far(&self, done: u64, all: u64) -> fiche::Result<()> {
        self.bar.set_position((u128::from(done) * 100 / u128::from(all.max(1))) as u64);
        check_stop()
    }

    /// So many bytes more; an error when a signal asked to stop.
    pub fn add(&self, bytes: u64) -> fiche::Result<()> {
        self.bar.inc(bytes);
        check_stop()
    }

    /// Takes the bar away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A name as text on one line: what is no plain text in it is escaped.
pub fn one_line(name: &[u8]) -> String {
    let mut line = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => line.push_str("\\\\"),
                c if c.is_control() => line.extend(c.escape_default()),
                c => line.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| line.push_str(&format!("\\x{b:02x}")));
    }
    line
}
