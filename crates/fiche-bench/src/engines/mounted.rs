//! Compressed file systems, mounted: SquashFS and EROFS by the kernel, SquashFS by FUSE.
//!
//! They keep what they decoded in the system's page cache. Before each random read that is
//! forgotten, so that each decodes; otherwise it stays, as it would for anybody.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{command, show};
use crate::engine::{Corpus, Engine, Opened, Reads, Result};

pub struct Mounted {
    pub system: String,
    pub method: String,
    pub block: usize,
    /// The corpus as a tree of files instead of as one.
    pub documents: bool,
}

impl Engine for Mounted {
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()> {
        let whole = folder.join("whole");
        let tree = match self.documents {
            true => corpus.tree.clone(),
            false => {
                std::fs::create_dir(&whole)?;
                std::fs::hard_link(&corpus.whole, whole.join("corpus"))
                    .or_else(|_| std::fs::copy(&corpus.whole, whole.join("corpus")).map(drop))?;
                whole.clone()
            }
        };
        let (tree, image) = (tree.to_string_lossy(), folder.join("image"));
        let image = image.to_string_lossy();
        match self.system.as_str() {
            "erofs" => {
                // It has blocks of fixed compressed length, up to a cluster of this many bytes.
                let cluster = format!("-C{}", self.block);
                let method = format!("-z{}", self.method);
                command("mkfs.erofs", &[&method, &cluster, "--quiet", &image, &tree])?;
            }
            _ => {
                let block = show(self.block);
                let args = [&tree, &image, "-comp", self.method.as_str(), "-b", &block];
                let quiet = ["-noappend", "-quiet", "-no-progress", "-no-xattrs"];
                command("mksquashfs", &[args.as_slice(), &quiet].concat())?;
            }
        }
        if whole.exists() {
            std::fs::remove_dir_all(&whole)?;
        }
        Ok(())
    }

    fn files(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join("image")]
    }

    /// A random read decodes a block of xz, or a large one.
    fn is_slow(&self) -> bool {
        self.method == "xz" || self.block >= 256 << 10
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>> {
        let point = folder.join(format!("mount-{}", std::process::id()));
        std::fs::create_dir(&point)?;
        let (image, at) = (folder.join("image"), point.to_string_lossy().into_owned());
        let image = image.to_string_lossy().into_owned();
        match self.system.as_str() {
            "squashfuse" => command("squashfuse", &[&image, &at])?,
            system => command("mount", &["-t", system, "-o", "loop,ro", &image, &at])?,
        };
        let mount = Mount { point: point.clone() };
        let file = if self.documents { None } else { Some(File::open(point.join("corpus"))?) };
        Ok(Box::new(Tree { file, mount }))
    }
}

pub struct Mount {
    pub point: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        let point = self.point.to_string_lossy().into_owned();
        // What was just read may still be busy; without root, FUSE has its own command.
        for _ in 0..20 {
            let done = command("umount", &[&point])
                .or_else(|_| command("fusermount3", &["-u", &point]))
                .or_else(|_| command("fusermount", &["-u", &point]));
            if done.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let _ = std::fs::remove_dir(&self.point);
    }
}

pub struct Tree {
    /// Closed before what it is in is unmounted.
    pub file: Option<File>,
    pub mount: Mount,
}

impl Opened for Tree {
    fn reads(&self) -> Result<Box<dyn Reads + '_>> {
        Ok(Box::new(TreeReads(self)))
    }
}

struct TreeReads<'a>(&'a Tree);

impl Reads for TreeReads<'_> {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let file = self.0.file.as_ref().ok_or("a tree of documents has no offsets")?;
        super::read_exact(file, offset, buf)
    }

    fn forget(&mut self) -> Result<()> {
        if let Some(file) = &self.0.file {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        Ok(())
    }

    fn document(&mut self, name: &str, buf: &mut Vec<u8>) -> Result<Option<()>> {
        buf.clear();
        let mut file = File::open(self.0.mount.point.join(name))?;
        std::io::Read::read_to_end(&mut file, buf)?;
        Ok(Some(()))
    }
}
