//! A mail server as PostMark has it (Katcher, *PostMark: a new file system benchmark*, 1997), with real mail in its messages instead of
//! random characters, which nothing compresses.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fiche::testing::Random;

use crate::engine::Result;

/// Its parameters.
#[derive(Clone, Copy)]
pub struct Mail {
    pub messages: usize,
    pub transactions: usize,
    pub folders: usize,
    /// Bytes of a message: from, to.
    pub sizes: (u64, u64),
    /// Of a hundred that read or append, how many read.
    pub reads: u64,
    /// Bytes that are read or written at once.
    pub piece: usize,
}

/// As the paper on ZBD has it, but for how many: those are 24 GB.
pub const PAPER: Mail = Mail {
    messages: 50_000,
    transactions: 50_000,
    folders: 100,
    sizes: (4 << 10, 1 << 20),
    reads: 35,
    piece: 16 << 10,
};

/// What came of it.
#[derive(Default)]
pub struct Done {
    /// Seconds for making all messages, and for the transactions.
    pub seconds: [f64; 2],
    pub transactions: usize,
    /// Bytes that were read and written in all.
    pub bytes: u64,
    /// Transactions in each second.
    pub over_time: Vec<u32>,
}

struct Mailbox<'a> {
    folder: &'a Path,
    mail: Mail,
    text: &'a [u8],
    random: Random,
    /// Names of those that are there, and of the next one.
    there: Vec<usize>,
    next: usize,
    bytes: u64,
    buf: Vec<u8>,
}

impl Mailbox<'_> {
    fn path(&self, message: usize) -> PathBuf {
        self.folder.join(format!("s{}/{message}", message % self.mail.folders))
    }

    fn write(&mut self, mut file: &File, mut len: u64) -> Result<()> {
        let last = self.text.len() - self.mail.piece;
        let mut at = self.random.below(last as u64) as usize;
        while len > 0 {
            let piece = (self.mail.piece as u64).min(len) as usize;
            if at > last {
                at = self.random.below(last as u64) as usize;
            }
            file.write_all(&self.text[at..at + piece])?;
            at += piece;
            len -= piece as u64;
            self.bytes += piece as u64;
        }
        Ok(())
    }

    fn create(&mut self) -> Result<()> {
        let (low, high) = self.mail.sizes;
        let len = low + self.random.below(high - low);
        let name = self.next;
        self.next += 1;
        let file = File::create_new(self.path(name))?;
        self.write(&file, len)?;
        self.there.push(name);
        Ok(())
    }

    fn one(&mut self) -> usize {
        self.random.below(self.there.len() as u64) as usize
    }

    fn transaction(&mut self) -> Result<()> {
        // One of each pair, as there.
        if self.random.below(100) < self.mail.reads {
            let which = self.one();
            let mut file = File::open(self.path(self.there[which]))?;
            loop {
                let n = file.read(&mut self.buf)?;
                self.bytes += n as u64;
                if n == 0 {
                    break;
                }
            }
        } else {
            let which = self.one();
            let file = OpenOptions::new().append(true).open(self.path(self.there[which]))?;
            let room = self.mail.sizes.1.saturating_sub(file.metadata()?.len());
            if room > 0 {
                let len = self.random.below(room) + 1;
                self.write(&file, len)?;
            }
        }
        if self.random.below(2) == 0 || self.there.len() < 2 {
            self.create()
        } else {
            let which = self.one();
            let name = self.there.swap_remove(which);
            Ok(std::fs::remove_file(self.path(name))?)
        }
    }
}

/// Does it in this folder; `before` is called when all messages are there, `after` when the transactions are done, which ends their
/// time.
pub fn postmark(
    folder: &Path,
    mail: Mail,
    text: &[u8],
    seed: u64,
    before: impl FnOnce() -> Result<()>,
    after: impl FnOnce() -> Result<()>,
) -> Result<Done> {
    for i in 0..mail.folders {
        std::fs::create_dir_all(folder.join(format!("s{i}")))?;
    }
    let mut all = Mailbox {
        folder,
        mail,
        text,
        random: Random(seed),
        there: Vec::new(),
        next: 0,
        bytes: 0,
        buf: vec![0; mail.piece],
    };
    let mut done = Done { transactions: mail.transactions, ..Done::default() };
    let start = Instant::now();
    for _ in 0..mail.messages {
        all.create()?;
    }
    before()?;
    done.seconds[0] = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for _ in 0..mail.transactions {
        all.transaction()?;
        let second = start.elapsed().as_secs() as usize;
        done.over_time.resize(done.over_time.len().max(second + 1), 0);
        done.over_time[second] += 1;
    }
    after()?;
    done.seconds[1] = start.elapsed().as_secs_f64();
    done.bytes = all.bytes;
    Ok(done)
}
