//! Reads containers where they are: on web servers that answer ranges, and in stores that speak S3.
//!
//! [`Remote`] is a [`ReadAt`] like any other, so everything that reads a file reads an object
//! by its URL. What differs is what a read costs: tens of milliseconds, however short it is. Hence:
//!
//! - The first request fetches the end of the object and says how long it is; a reader of archives begins
//!   there.
//! - Ranges that are needed together are fetched at once, by [`Distant::fetch`]:
//!   those no more than [`gap`](Options::gap) bytes apart as one, long ones in parts, several in parallel.
//! - What was fetched is kept, up to a limit, in memory, and on disk where a folder is given for it.
//! - An object is pinned when it is opened, by its entity tag, or where the server gives none by length and date:
//!   one that is replaced later is [`Error::Changed`], never a mixture of both.
//!
//! ```no_run
//! use std::sync::Arc;
//! use fiche::archive::Reader;
//! use fiche_remote::Remote;
//!
//! let archive = Reader::open(Arc::new(Remote::open("https://example.org/pages.fiche")?))?;
//! let (_, entry) = archive.entry_of("https://example.org/")?;
//! # let _ = entry;
//! # Ok::<(), fiche::Error>(())
//! ```

mod disk;
mod error;
mod pieces;
mod runtime;
mod store;
#[doc(hidden)]
pub mod testing;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fiche::{Distant, Error, ReadAt, Resolve, Result};
use futures_util::StreamExt;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};

pub use disk::Folder;
use disk::Kept;
use error::{failed, invalid};
use pieces::{Pieces, merged};
pub use runtime::on_wait;
use store::Object;
pub use store::without_secrets;

/// How objects are read.
#[derive(Clone, Debug)]
pub struct Options {
    gap: u64,
    tail: u64,
    part: u64,
    memory: u64,
    parallel: usize,
    timeout: Duration,
    retries: usize,
    folder: Option<Arc<Folder>>,
}

impl Default for Options {
    /// Ranges up to 16 KiB apart are fetched as one, 32 at a time; the first request fetches 64 KiB; 64 MiB are
    /// kept in memory and nothing on disk; a server that sends nothing for 20 seconds is asked again, up to
    /// 4 times.
    fn default() -> Options {
        Options {
            gap: 16 << 10,
            tail: 64 << 10,
            part: 8 << 20,
            memory: 64 << 20,
            parallel: 32,
            timeout: Duration::from_secs(20),
            retries: 4,
            folder: None,
        }
    }
}

impl Options {
    /// The usual ones, and what the environment says: `FICHE_CACHE`, a folder in which what is fetched is kept,
    /// and `FICHE_CACHE_SIZE`, how many bytes of it at most, by default 1 GiB.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be made, [`Error::Invalid`] when the size is no number.
    pub fn from_env() -> Result<Options> {
        let Some(path) = std::env::var_os("FICHE_CACHE").filter(|path| !path.is_empty()) else {
            return Ok(Options::default());
        };
        Options::keeping(path)
    }

    /// The usual ones, with what is fetched kept in this folder: `FICHE_CACHE_SIZE` bytes at most, by default 1 GiB.
    ///
    /// # Errors
    /// Those of [`from_env`](Options::from_env).
    pub fn keeping(path: impl Into<std::path::PathBuf>) -> Result<Options> {
        let limit = match std::env::var("FICHE_CACHE_SIZE") {
            Ok(text) => match text.parse() {
                Ok(limit) => limit,
                Err(_) => {
                    return invalid(format!("FICHE_CACHE_SIZE is {text}, no number of bytes"));
                }
            },
            Err(_) => 1 << 30,
        };
        Ok(Options::default().folder(Arc::new(Folder::new(path, limit)?)))
    }

    /// The folder in which what is fetched is kept.
    #[must_use]
    pub fn kept(&self) -> Option<&Arc<Folder>> {
        self.folder.as_ref()
    }

    /// Bytes between two ranges up to which they are fetched as one.
    #[must_use]
    pub fn gap(self, gap: u64) -> Options {
        Options { gap, ..self }
    }

    /// Bytes at the end of the object that are fetched when it is opened; at least 1.
    #[must_use]
    pub fn tail(self, tail: u64) -> Options {
        Options { tail: tail.max(1), ..self }
    }

    /// Bytes that are kept in memory.
    #[must_use]
    pub fn memory(self, memory: u64) -> Options {
        Options { memory, ..self }
    }

    /// Requests at a time; at least 1.
    #[must_use]
    pub fn parallel(self, parallel: usize) -> Options {
        Options { parallel: parallel.max(1), ..self }
    }

    /// How long a server may send nothing.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Options {
        Options { timeout, ..self }
    }

    /// How often a request is made again that failed.
    #[must_use]
    pub fn retries(self, retries: usize) -> Options {
        Options { retries, ..self }
    }

    /// Keeps what is fetched in this folder, for whoever reads the same object later.
    #[must_use]
    pub fn folder(self, folder: Arc<Folder>) -> Options {
        Options { folder: Some(folder), ..self }
    }

    /// Opens the object of this URL: `https://`, `http://` or `s3://bucket/key`. One request, and for a bucket
    /// whose region nothing says another one. Credentials for S3 are those of its other tools: `AWS_ACCESS_KEY_ID`
    /// and the like, the profile in `~/.aws`, those of the machine; `AWS_SKIP_SIGNATURE=true` for none,
    /// `AWS_ENDPOINT_URL` for a server of one's own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no URL, and for a server that does not answer ranges;
    /// [`Error::Io`] when there is no such object, it may not be read, or the server cannot be reached.
    pub fn open(&self, url: &str) -> Result<Remote> {
        let object = Object::of(url, self)?;
        let counts = Arc::new(Counts::default());
        let (work, options, count) = (object.clone(), self.clone(), counts.clone());
        let first = runtime::wait(async move {
            let range = GetRange::Suffix(options.tail);
            get(&work, range, None, options.retries, &count).await
        })??;
        let (meta, start, bytes) = first;
        // What cannot be kept is fetched again.
        let kept = self.folder.as_ref().and_then(|folder| folder.of(url, &meta).ok().flatten());
        let mut pieces = Pieces::new(self.memory);
        pieces.put(start, bytes);
        let inner = Inner { object, meta, counts, options: self.clone() };
        let near = Mutex::new(Near { pieces, kept, trails: [Trail::default(); TRAILS] });
        Ok(Remote { inner: Arc::new(inner), near })
    }
}

/// An object that is read by its URL.
///
/// Shared by any number of threads. A read of what is at hand costs a copy; any other at least one request.
/// A read by itself fetches 4 KiB at least; who reads on where a read ended is read ahead for, by up to 4 MiB.
pub struct Remote {
    inner: Arc<Inner>,
    near: Mutex<Near>,
}

struct Inner {
    object: Object,
    meta: ObjectMeta,
    options: Options,
    counts: Arc<Counts>,
}

/// What is at hand.
struct Near {
    pieces: Pieces,
    kept: Option<Kept>,
    /// The last read of each who reads on, the latest first.
    trails: [Trail; TRAILS],
}

/// Where a read ended, and how many before it began where another one ended.
#[derive(Clone, Copy, Default)]
struct Trail {
    next: u64,
    streak: u32,
}

/// How many threads may each read on where they ended.
const TRAILS: usize = 8;
/// What is fetched at least for a read by itself: what describes a section is followed by it.
const LEAST: u64 = 4 << 10;

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}, {} bytes)", self.inner.object.url, self.inner.meta.size)
    }
}

/// What a request answers: of which object, from where on, and its bytes.
type Answer = (ObjectMeta, u64, Bytes);

/// Pieces that came, with where they start, and what went wrong with others.
type Fetched = (Vec<(u64, Bytes)>, Result<()>);

/// One range of an object, which is the one that was pinned. Answers that break off are asked for again.
async fn get(
    object: &Object,
    range: GetRange,
    pinned: Option<&ObjectMeta>,
    retries: usize,
    counts: &Counts,
) -> Result<Answer> {
    // A weak tag never matches; answers are compared with it here.
    let tag = pinned.and_then(|meta| meta.e_tag.clone()).filter(|tag| !tag.starts_with("W/"));
    let mut left = retries;
    loop {
        let mut asked = GetOptions::default();
        (asked.range, asked.if_match) = (Some(range.clone()), tag.clone());
        counts.requests.fetch_add(1, Ordering::Relaxed);
        // What the server refuses is asked for again in here.
        let answer = object.store.get_opts(&object.path, asked).await;
        let answer = answer.map_err(|error| failed(&object.url, object.hint, &error))?;
        let (meta, start) = (answer.meta.clone(), answer.range.start);
        if pinned.is_some_and(|pinned| !is_same(pinned, &meta)) {
            return Err(Error::Changed { what: "the remote object" });
        }
        let len = answer.range.end - answer.range.start;
        match body(answer, len).await {
            Ok(bytes) if bytes.len() as u64 == len => {
                counts.bytes.fetch_add(len, Ordering::Relaxed);
                return Ok((meta, start, bytes));
            }
            Ok(_) => return invalid(format!("{}: the server sent another range", object.url)),
            // An answer that breaks off is continued in there, if its object has a tag.
            Err(_) if left > 0 && meta.e_tag.is_none() => left -= 1,
            Err(error) => return Err(failed(&object.url, object.hint, &error)),
        }
    }
}

/// What was answered, as far as it should be: a server may send more than it said.
async fn body(answer: GetResult, len: u64) -> object_store::Result<Bytes> {
    let (mut stream, mut body) = (answer.into_stream(), BytesMut::new());
    while let Some(some) = stream.next().await {
        body.extend_from_slice(&some?);
        if body.len() as u64 > len {
            break;
        }
    }
    Ok(body.freeze())
}

/// True when both are of the same object: by its tag, or as good as the server lets us know.
fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    let tags = match (&one.e_tag, &other.e_tag) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.last_modified == other.last_modified,
        _ => false,
    };
    tags && one.size == other.size
}

impl Remote {
    /// Opens an object with the usual options.
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(url: &str) -> Result<Remote> {
        Options::default().open(url)
    }

    /// Its URL, without what is secret in it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.inner.object.url
    }

    /// Requests made so far, those for what was not at hand; and bytes of the object that came.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let Counts { requests, bytes } = &*self.inner.counts;
        (requests.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    /// Its entity tag, or what stands for it.
    #[must_use]
    pub fn tag(&self) -> String {
        let meta = &self.inner.meta;
        meta.e_tag.clone().unwrap_or_else(|| format!("{} {}", meta.last_modified, meta.size))
    }

    fn near(&self) -> MutexGuard<'_, Near> {
        self.near.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches ranges: merged, cut into parts, in parallel.
    fn fetch_now(&self, ranges: &[Range<u64>]) -> Result<Fetched> {
        let Options { gap, part, parallel, retries, .. } = self.inner.options;
        let asked: Vec<Range<u64>> = merged(ranges, gap)
            .into_iter()
            .flat_map(|range| {
                (range.start..range.end)
                    .step_by(part as usize)
                    .map(move |at| at..range.end.min(at + part))
            })
            .collect();
        let inner = self.inner.clone();
        runtime::wait(async move {
            let turns = Arc::new(tokio::sync::Semaphore::new(parallel));
            let mut tasks = tokio::task::JoinSet::new();
            for range in asked {
                let (inner, turns) = (inner.clone(), turns.clone());
                tasks.spawn(async move {
                    let _turn = turns.acquire().await;
                    let Inner { object, meta, counts, .. } = &*inner;
                    let (start, len) = (range.start, range.end - range.start);
                    let range = GetRange::Bounded(range);
                    let (_, at, bytes) = get(object, range, Some(meta), retries, counts).await?;
                    match (at, bytes.len() as u64) == (start, len) {
                        true => Ok((at, bytes)),
                        false => invalid(format!("{}: the server sent another range", object.url)),
                    }
                });
            }
            let (mut fetched, mut failed) = (Vec::new(), Ok(()));
            while let Some(done) = tasks.join_next().await {
                let ended = |_| Error::Io(std::io::Error::other("a request was ended"));
                match done.map_err(ended).and_then(|done| done) {
                    Ok(piece) => fetched.push(piece),
                    Err(error) => failed = Err(error),
                }
            }
            (fetched, failed)
        })
    }

    /// Fetches what of these is not at hand, and keeps it: what went wrong with that. Fails where waiting for it
    /// ended before.
    fn bring(&self, ranges: &[Range<u64>]) -> Result<Result<()>> {
        let missing: Vec<Range<u64>> = {
            let mut near = self.near();
            let Near { pieces, kept, .. } = &mut *near;
            let mut is_here = |range: &Range<u64>| {
                pieces.has(range.clone())
                    || kept.as_mut().is_some_and(|kept| kept.bring(range.clone(), pieces))
            };
            let missing: Vec<Range<u64>> =
                ranges.iter().filter(|range| !is_here(range)).cloned().collect();
            missing.into_iter().map(|range| pieces.missing(range)).collect()
        };
        if missing.is_empty() {
            return Ok(Ok(()));
        }
        let (fetched, failed) = self.fetch_now(&missing)?;
        let mut near = self.near();
        for (start, bytes) in fetched {
            if let Some(kept) = &mut near.kept {
                kept.put(start, &bytes);
            }
            near.pieces.put(start, bytes);
        }
        Ok(failed)
    }

    /// Reads what there is no room to keep.
    fn read_past(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        const SOME: usize = 32 << 20;
        for (i, some) in buf.chunks_mut(SOME).enumerate() {
            let start = offset + (i * SOME) as u64;
            let (fetched, failed) = self.fetch_now(&[start..start + some.len() as u64])?;
            failed?;
            for (at, bytes) in fetched {
                let at = (at - start) as usize;
                some[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// How far to read ahead for whoever reads on where a read before ended.
    fn ahead(&self, range: &Range<u64>) -> u64 {
        const FIRST: u64 = 64 << 10;
        const MOST: u64 = 4 << 20;
        let gap = self.inner.options.gap;
        let mut near = self.near();
        let goes_on = |trail: &Trail| range.start >= trail.next && range.start - trail.next <= gap;
        let found = near.trails.iter().position(goes_on);
        let streak = found.map_or(0, |i| near.trails[i].streak + 1);
        near.trails[..=found.unwrap_or(TRAILS - 1)].rotate_right(1);
        near.trails[0] = Trail { next: range.end, streak };
        let ahead = match streak {
            0..3 => 0,
            streak => FIRST.saturating_mul(1 << (streak - 3).min(16)).min(MOST),
        };
        ahead.min(self.inner.options.memory / 4)
    }
}

impl ReadAt for Remote {
    fn len(&self) -> u64 {
        self.inner.meta.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.len() {
            return Err(Error::OutOfBounds { range: offset..end, len: self.len() });
        }
        if buf.len() as u64 > self.inner.options.memory / 2 {
            return self.read_past(offset, buf);
        }
        let ahead = self.ahead(&(offset..end));
        if self.near().pieces.read(offset, buf) {
            return Ok(());
        }
        // What others read meanwhile may take the place of what came: then it is not kept at all.
        let range = offset..self.len().min((end + ahead).max(offset + LEAST));
        self.bring(std::slice::from_ref(&range))??;
        if self.near().pieces.read(offset, buf) {
            return Ok(());
        }
        self.read_past(offset, buf)
    }

    fn read_many_at(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let ranges: Vec<Range<u64>> = reads
            .iter()
            .map(|(offset, buf)| *offset..offset.saturating_add(buf.len() as u64))
            .filter(|range| range.end <= self.len())
            .collect();
        self.fetch(&ranges);
        reads.iter_mut().map(|(offset, buf)| self.read_at(*offset, buf)).collect()
    }

    fn as_distant(&self) -> Option<&dyn Distant> {
        Some(self)
    }
}

impl Distant for Remote {
    fn fetch(&self, ranges: &[Range<u64>]) {
        // No more than can be kept, and nothing that is not there, whatever a file says.
        let (mut room, mut some) = (self.inner.options.memory / 2, Vec::new());
        for range in
            ranges.iter().filter(|range| range.start < range.end && range.end <= self.len())
        {
            let Some(left) = room.checked_sub(range.end - range.start) else { break };
            room = left;
            some.push(range.clone());
        }
        // What fails is asked for again by the read that needs it, which says what is wrong.
        if let Err(error) = self.bring(&some) {
            runtime::tell_later(error);
        }
    }

    fn has(&self, range: Range<u64>) -> bool {
        let near = self.near();
        near.pieces.has(range.clone()) || near.kept.as_ref().is_some_and(|kept| kept.has(range))
    }
}

/// Finds the files beside an object, by their names: dictionary files that an archive leads to.
#[derive(Clone, Debug)]
pub struct Beside {
    url: String,
    options: Options,
}

impl Beside {
    /// Those beside the object of this URL.
    #[must_use]
    pub fn new(url: &str, options: Options) -> Beside {
        Beside { url: url.to_owned(), options }
    }
}

impl Resolve for Beside {
    fn open(&self, name: &str, digest: &fiche::Digest) -> Result<Arc<dyn ReadAt>> {
        let missing = || Error::Missing { what: "dictionary", digest: *digest };
        if ["", ".", ".."].contains(&name) || name.contains(|c: char| c == '/' || c.is_control()) {
            return Err(missing());
        }
        // As one segment, whatever is in it: an archive leads to no other folder and no other server.
        let mut url = url::Url::parse(&self.url).map_err(|_| missing())?;
        url.path_segments_mut().map_err(|()| missing())?.pop().push(name);
        url.set_query(None);
        url.set_fragment(None);
        match self.options.open(url.as_str()) {
            Ok(remote) => Ok(Arc::new(remote)),
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(missing()),
            Err(error) => Err(error),
        }
    }
}
