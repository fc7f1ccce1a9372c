//! Output files appear under their name only when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use fiche::NewFile;

use crate::ui::{self, Failed};

/// Where a verb writes: a file that is made aside and then named, something that is
/// no regular file, or standard output.
pub enum Output {
    Aside(NewFile),
    Direct { file: BufWriter<File>, path: PathBuf },
    Stdout(BufWriter<io::Stdout>),
}

const BUFFER: usize = 1 << 20;

impl Output {
    /// Opens the output `path`, `-` for standard output. A file that is there already
    /// is replaced only by `force`.
    pub fn create(path: &Path, force: bool) -> Result<Output, Failed> {
        if path == Path::new("-") {
            return Ok(Output::Stdout(BufWriter::with_capacity(BUFFER, io::stdout())));
        }
        let at = |e| Failed::io(path, e);
        match std::fs::metadata(path) {
            Ok(meta) if !meta.is_file() && !meta.is_dir() => {
                // A device or a pipe takes bytes as they come.
                let file = File::options().write(true).open(path).map_err(at)?;
                let file = BufWriter::with_capacity(BUFFER, file);
                return Ok(Output::Direct { file, path: path.to_owned() });
            }
            Ok(meta) if meta.is_file() && !force => {
                let error = "is there already; --force replaces it";
                return Err(at(io::Error::new(io::ErrorKind::AlreadyExists, error)));
            }
            _ => {}
        }
        if crate::input::url(path).is_some() {
            return Err(Failed::usage("what is written goes to a file, not to a URL"));
        }
        let file = NewFile::create(path, force)?;
        ui::set_aside(Some(file.aside().to_path_buf()));
        Ok(Output::Aside(file))
    }

    /// True when compressed bytes would go to a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Output::Stdout(_)) && io::stdout().is_terminal()
    }

    /// Lets the file have `.damaged` behind its name.
    pub fn call_damaged(&mut self) {
        if let Output::Aside(file) = self {
            let mut path = file.path().to_owned();
            path.as_mut_os_string().push(".damaged");
            file.rename(path);
        }
    }

    /// Makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<(), Failed> {
        match self {
            Output::Aside(file) => {
                let finished = file.finish();
                ui::set_aside(None);
                Ok(finished?)
            }
            _ => self.flush().map_err(|e| fiche::Error::Io(e).into()),
        }
    }
}

/// Every error names the output: it may come out far from here.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Aside(file) => file.write(bytes),
            Output::Direct { file, path } => file.write(bytes).map_err(named(path)),
            Output::Stdout(out) => out.write(bytes).map_err(named(STDOUT.as_ref())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Aside(file) => file.flush(),
            Output::Direct { file, path } => file.flush().map_err(named(path)),
            Output::Stdout(out) => out.flush().map_err(named(STDOUT.as_ref())),
        }
    }
}

const STDOUT: &str = "standard output";

fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
