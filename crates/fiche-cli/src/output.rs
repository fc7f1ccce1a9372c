//! Output files appear under their name only when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::ui::{self, Failed};

/// Where a verb writes: a file that is made aside and then named, something that is
/// no regular file, or standard output.
pub enum Output {
    Aside { file: BufWriter<File>, aside: TempPath, path: PathBuf, force: bool },
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
        // What a link leads to is replaced, not the link.
        let followed;
        let mut path = path;
        if path.is_symlink() {
            followed = path.canonicalize().map_err(at)?;
            path = &followed;
        }
        let at = |e| Failed::io(path, e);
        let mut mode = 0o666;
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Err(at(io::ErrorKind::IsADirectory.into())),
            Ok(meta) if !meta.is_file() => {
                // A device or a pipe takes bytes as they come.
                let file = File::options().write(true).open(path).map_err(at)?;
                let file = BufWriter::with_capacity(BUFFER, file);
                return Ok(Output::Direct { file, path: path.to_owned() });
            }
            Ok(_) if !force => {
                let error = "is there already; --force replaces it";
                return Err(at(io::Error::new(io::ErrorKind::AlreadyExists, error)));
            }
            Ok(meta) => mode = meta.permissions().mode() & 0o777,
            Err(_) => {}
        }
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".fiche-")
            .suffix(".part")
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(dir)
            .map_err(at)?;
        let (file, aside) = file.into_parts();
        ui::set_aside(Some(aside.to_path_buf()));
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Output::Aside { file, aside, path: path.to_owned(), force })
    }

    /// What messages call it.
    pub fn path(&self) -> &Path {
        match self {
            Output::Aside { path, .. } | Output::Direct { path, .. } => path,
            Output::Stdout(_) => Path::new("standard output"),
        }
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path().display()))
    }

    /// True when compressed bytes would go to a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Output::Stdout(_)) && io::stdout().is_terminal()
    }

    /// Lets the file have `.damaged` behind its name.
    pub fn call_damaged(&mut self) {
        if let Output::Aside { path, .. } = self {
            path.as_mut_os_string().push(".damaged");
        }
    }

    /// Makes it durable and gives it its name.
    pub fn finish(mut self) -> Result<(), Failed> {
        if !matches!(self, Output::Aside { .. }) {
            return self.flush().map_err(|e| fiche::Error::Io(e).into());
        }
        match self {
            Output::Stdout(_) | Output::Direct { .. } => Ok(()),
            Output::Aside { file, aside, path, force } => {
                let at = |e| Failed::io(&path, e);
                let file = file.into_inner().map_err(|e| at(e.into_error()))?;
                file.sync_all().map_err(at)?;
                drop(file);
                let named = match force {
                    true => aside.persist(&path),
                    false => aside.persist_noclobber(&path),
                };
                ui::set_aside(None);
                named.map_err(|e| at(e.error))?;
                // The name is durable when its folder is.
                let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                let dir = File::open(dir.unwrap_or(Path::new("."))).map_err(at)?;
                dir.sync_all().map_err(at)
            }
        }
    }
}

/// Every error names the output: it may come out far from here.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = match self {
            Output::Aside { file, .. } => file.write(bytes),
            Output::Direct { file, .. } => file.write(bytes),
            Output::Stdout(out) => out.write(bytes),
        };
        result.map_err(|e| self.named(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = match self {
            Output::Aside { file, .. } => file.flush(),
            Output::Direct { file, .. } => file.flush(),
            Output::Stdout(out) => out.flush(),
        };
        result.map_err(|e| self.named(e))
    }
}
