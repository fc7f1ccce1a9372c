//! An archive of ours as others meet it: mounted by the command, and from Python.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::mounted::{Mount, Tree};
use super::{command, process};
use crate::engine::{Corpus, Engine, Opened, Result};

/// The command beside this program.
pub fn fiche() -> Result<String> {
    let path = std::env::current_exe()?.with_file_name("fiche");
    let path = std::env::var("FICHE_COMMAND").unwrap_or(path.to_string_lossy().into_owned());
    match Path::new(&path).exists() {
        true => Ok(path),
        false => {
            Err(format!("{path} is not there: build it, or say where it is in FICHE_COMMAND")
                .into())
        }
    }
}

/// Mounted as a folder, with one thread: the reader has one, too.
pub struct Mounted(pub Box<dyn Engine>);

impl Engine for Mounted {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        self.0.build(corpus, folder)
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        self.0.files(folder)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let point = folder.join(format!("mount-{}", std::process::id()));
        std::fs::create_dir(&point)?;
        let archive = folder.join("archive.fiche");
        command(&fiche()?, &["mount", &archive.to_string_lossy(), &point.to_string_lossy()])?;
        let mount = Mount { point: point.clone() };
        Ok(Box::new(Tree { file: Some(File::open(point.join("content"))?), mount }))
    }
}

/// Read by a process of Python's.
pub struct Python {
    pub archive: Box<dyn Engine>,
    pub call: String,
}

impl Engine for Python {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        self.archive.build(corpus, folder)
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        self.archive.files(folder)
    }

    fn open(&self, _folder: &Path) -> Result<Box<dyn Opened>> {
        Err("it is read by Python".into())
    }

    fn command(&self, folder: &Path) -> Option<Vec<String>> {
        let archive = folder.join("archive.fiche").to_string_lossy().into_owned();
        let words = [&process::python(), process::WORKER, "fiche", "read", &archive, &self.call];
        Some(words.map(str::to_owned).into())
    }
}
