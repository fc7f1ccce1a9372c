//! Engines that are other programs: bgzip as people call it, and Python's readers of gzip
//! files in a process of their own.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::command;
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

/// `bgzip -b -s`: a process for each read.
pub struct Bgzip;

impl Engine for Bgzip {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let whole = corpus.whole.to_string_lossy();
        let path = folder.join("corpus.gz");
        let stored = command("bgzip", &["-c", "-l", "9", "-@", "2", &whole])?;
        std::fs::write(&path, stored)?;
        command("bgzip", &["-r", &path.to_string_lossy()])?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("corpus.gz"), folder.join("corpus.gz.gzi")]
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Blocked(folder.join("corpus.gz"))))
    }

    fn is_slow(&self) -> bool {
        true
    }
}

struct Blocked(PathBuf);

impl Opened for Blocked {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(BlockedReads(&self.0)))
    }
}

struct BlockedReads<'a>(&'a Path);

impl Reads for BlockedReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (path, offset, len) =
            (self.0.to_string_lossy(), offset.to_string(), buf.len().to_string());
        let bytes = command("bgzip", &["-b", &offset, "-s", &len, &path])?;
        if bytes.len() != buf.len() {
            return Err("bgzip gave another length".into());
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }
}

/// indexed_gzip or rapidgzip on a file that gzip wrote, htslib on one of bgzip.
pub struct Python {
    pub module: String,
}

/// The interpreter that has the modules.
pub fn python() -> String {
    std::env::var("FICHE_PYTHON").unwrap_or_else(|_| "target/venv/bin/python".to_owned())
}

pub const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/worker.py");

impl Engine for Python {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let path = folder.join("corpus.gz");
        let out = File::create(&path)?;
        let (program, args) = match self.module.as_str() {
            "htslib" => ("bgzip", &["-c", "-l", "9"][..]),
            _ => ("gzip", &["-9", "-c"][..]),
        };
        let done = std::process::Command::new(program)
            .args(args)
            .arg(&corpus.whole)
            .stdout(out)
            .status()?;
        if !done.success() {
            return Err(format!("{program} failed").into());
        }
        let index = folder.join("index");
        let (path, index) = (path.to_string_lossy(), index.to_string_lossy());
        command(&python(), &[WORKER, &self.module, "build", &path, &index])?;
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("corpus.gz"), folder.join("index")]
    }

    fn open(&self, _folder: &Path) -> Result<Box<dyn Opened>> {
        Err("it is read by Python".into())
    }

    fn command(&self, folder: &Path) -> Option<Vec<String>> {
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let (gzip, index) = (path("corpus.gz"), path("index"));
        Some(vec![python(), WORKER.into(), self.module.clone(), "read".into(), gzip, index])
    }

    fn is_slow(&self) -> bool {
        true
    }
}
