//! What is measured: something that stores a corpus and reads pieces of it.

use std::path::{Path, PathBuf};

/// Anything that goes wrong ends a measurement, and its row says why.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A way to store a corpus and to read pieces of it.
pub trait Engine {
    /// Stores the corpus in files below `folder`, which is empty; an error says why it cannot.
    fn build(&self, corpus: &Corpus, folder: &Path) -> Result<()>;

    /// The files without which nothing can be read, index and dictionary among them.
    fn files(&self, folder: &Path) -> Vec<PathBuf>;

    /// Opens what was built.
    fn open(&self, folder: &Path) -> Result<Box<dyn Opened>>;

    /// A command that measures in place of this program, for engines of other languages; it
    /// gets the job's parts as arguments and prints what a worker prints.
    fn command(&self, _folder: &Path) -> Option<Vec<String>> {
        None
    }

    /// Whether a read takes so long that a twentieth of them has to do.
    fn is_slow(&self) -> bool {
        false
    }
}

/// Something opened, which any number of threads read from.
pub trait Opened: Sync {
    /// What one thread reads with.
    fn reads(&self) -> Result<Box<dyn Reads + '_>>;
}

/// What one thread reads with.
pub trait Reads {
    /// Fills `buf` with the bytes at `offset` of the corpus.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Several reads in order of their offsets at once. False when it has no better way than one
    /// by one, and did nothing.
    fn read_batch(&mut self, _reads: &mut [(u64, &mut [u8])]) -> Result<bool> {
        Ok(false)
    }

    /// Forgets what was decoded and is kept outside of this process: so that each random read
    /// decodes, for everyone.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }

    /// A document by its name, whole; `None` where there are no documents.
    fn document(&mut self, _name: &str, _buf: &mut Vec<u8>) -> Result<Option<()>> {
        Ok(None)
    }
}

/// What is stored: the files of a folder one after the other.
pub struct Corpus {
    pub name: String,
    /// All of it in one file.
    pub whole: PathBuf,
    /// The same as a tree of files, where it is one.
    pub tree: PathBuf,
    pub documents: Vec<Document>,
    pub len: u64,
}

/// A file of the corpus.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its path below the folder.
    pub name: String,
    pub offset: u64,
    pub len: u64,
}

impl Corpus {
    /// Writes the files of a folder one after the other into one below `folder`.
    pub fn gather(path: &Path, folder: &Path) -> Result<Corpus> {
        let mut files = Vec::new();
        walk(path, &mut files)?;
        files.sort();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let whole = folder.join("corpus");
        let mut out = std::io::BufWriter::new(std::fs::File::create(&whole)?);
        let (mut documents, mut len) = (Vec::new(), 0);
        for file in files {
            let bytes = std::io::copy(&mut std::fs::File::open(&file)?, &mut out)?;
            let inside = file.strip_prefix(path).unwrap_or(&file);
            let name = inside.to_string_lossy().into_owned();
            documents.push(Document { name, offset: len, len: bytes });
            len += bytes;
        }
        std::io::Write::flush(&mut out)?;
        if len == 0 {
            return Err(format!("{}: there are no files with content", path.display()).into());
        }
        Ok(Corpus { name, whole, tree: path.to_owned(), documents, len })
    }
}

fn walk(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let meta = std::fs::symlink_metadata(path)?;
    if meta.is_dir() {
        for item in std::fs::read_dir(path)? {
            walk(&item?.path(), files)?;
        }
    } else if meta.is_file() && meta.len() > 0 {
        files.push(path.to_owned());
    }
    Ok(())
}
