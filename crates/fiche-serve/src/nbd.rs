//! Network block devices: a volume, or anything that can be read, for programs that know the protocol (the kernel's client,
//! QEMU, libnbd, fio, nbdkit).
//!
//! The newstyle handshake with its fixed extensions: exports are listed and chosen by name, replies may be structured,
//! `base:allocation` says what is zero. Any number of connections to one export see the same bytes, and a
//! flush on one covers what was completed on all. What a client sends may be anything: it is answered with an error, or the
//! connection ends.
//!
//! After the specification of the protocol (NetworkBlockDevice project, *The NBD protocol*, `doc/proto.md`).

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fiche::{Error, ReadAt, Result, WriteAt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes that one request may be about: what most clients take for granted.
const MOST_BYTES: u32 = 32 << 20;
/// Requests of a connection that are under way, and bytes of them: more are not read until some are done.
const MOST_REQUESTS: usize = 64;
const MOST_PENDING: usize = 64 << 20;
/// Connections at a time.
const MOST_CONNECTIONS: usize = 1024;
/// An option of the handshake that is longer is refused.
const MOST_OPTION: u32 = 64 << 10;
/// Who does not finish the handshake in this time is disconnected.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether the server is to stop.
const LOOK: Duration = Duration::from_millis(100);
const BLOCK: u32 = 4096;
/// Runs that one block status tells at most.
const MOST_RUNS: usize = 1024;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668E_33EF;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const ENOMEM: u32 = 12;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// Options of the handshake, and what is replied.
mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;

    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const REP_INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUPPORTED: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;

    pub const INFO_EXPORT: u16 = 0;
    pub const INFO_BLOCK_SIZE: u16 = 3;
}

/// What a client may ask for.
mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;

    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 2;
    pub const DF: u16 = 4;
    pub const REQ_ONE: u16 = 8;
    pub const FAST_ZERO: u16 = 16;
}

const ALLOCATION: &str = "base:allocation";
const ALLOCATION_ID: u32 = 1;

/// What is served under a name.
#[derive(Clone)]
enum Device {
    Writable(Arc<dyn WriteAt>),
    Readable(Arc<dyn ReadAt>),
}

impl Device {
    fn source(&self) -> &dyn ReadAt {
        match self {
            Device::Writable(device) => device,
            Device::Readable(source) => source,
        }
    }

    fn flags(&self) -> u16 {
        const ALWAYS: u16 = 1 | 1 << 7 | 1 << 8 | 1 << 10;
        match self {
            Device::Readable(_) => ALWAYS | 1 << 1 | 1 << 2,
            // Flush, FUA, trim, zeroes, and zeroes only where they are fast, as they always are.
            Device::Writable(_) => ALWAYS | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 11,
        }
    }

    /// The smallest read or write that needs no other, the best, and the longest.
    fn block_sizes(&self) -> [u32; 3] {
        [1, BLOCK, MOST_BYTES]
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host and port of TCP, such as `localhost:10809`.
    Tcp(String),
}

/// A server to be: what it serves.
///
/// ```no_run
/// use std::sync::Arc;
/// use fiche::volume::{FileDevice, Volume};
/// use fiche_serve::{Address, Nbd};
///
/// let volume = Volume::open(FileDevice::open("disk.fiche")?)?;
/// let server = Nbd::default().device("", Arc::new(volume)).listen(&Address::Unix("/tmp/disk".into()))?;
/// // Clients connect to nbd+unix:///?socket=/tmp/disk until it stops.
/// server.stop()?;
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Nbd {
    exports: Vec<(String, Device)>,
}

impl Nbd {
    /// Serves a device under a name; the empty one is what clients take who do not ask for any.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>, device: Arc<dyn WriteAt>) -> Nbd {
        self.exports.push((name.into(), Device::Writable(device)));
        self
    }

    /// Serves what can only be read.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, source: Arc<dyn ReadAt>) -> Nbd {
        self.exports.push((name.into(), Device::Readable(source)));
        self
    }

    /// Begins to serve, on threads of its own.
    ///
    /// # Errors
    /// [`Error::Io`] when nobody may listen there, or somebody does.
    pub fn listen(self, address: &Address) -> Result<Server> {
        let listener = match address {
            Address::Unix(path) => {
                // A socket that nobody listens to any more was left by a server that was killed.
                if let Err(error) = UnixStream::connect(path)
                    && error.kind() == io::ErrorKind::ConnectionRefused
                {
                    std::fs::remove_file(path)?;
                }
                Listener::Unix(UnixListener::bind(path)?)
            }
            Address::Tcp(name) => Listener::Tcp(TcpListener::bind(name)?),
        };
        listener.set_nonblocking()?;
        let shared = Arc::new(Shared {
            exports: self.exports,
            queue: Queue::default(),
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2);
        let worker = |_| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                while let Some(job) = shared.queue.next() {
                    job.run()
                }
            })
        };
        let workers = (0..threads).map(worker).collect();
        let local = match &listener {
            Listener::Tcp(listener) => Some(listener.local_addr()?),
            Listener::Unix(_) => None,
        };
        let accepting = {
            let shared = shared.clone();
            std::thread::spawn(move || accept(&listener, &shared))
        };
        let path = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => None,
        };
        Ok(Server { shared, accepting: Some(accepting), workers, path, local })
    }
}

/// A server that runs, until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    path: Option<PathBuf>,
    local: Option<std::net::SocketAddr>,
}

impl Server {
    /// Where it listens on TCP: of a port 0 the one that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> Option<std::net::SocketAddr> {
        self.local
    }

    /// Takes no more requests, ends those that are under way, and flushes.
    ///
    /// # Errors
    /// Those of flushing.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let connections = std::mem::take(&mut *locked(&self.shared.connections));
        for connection in connections {
            let _ = connection.stream.shutdown();
            let _ = connection.thread.join();
        }
        self.shared.queue.close();
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
        for (_, device) in &self.shared.exports {
            if let Device::Writable(device) = device {
                device.flush()?;
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.accepting.is_some() {
            let _ = self.end();
        }
    }
}

struct Shared {
    exports: Vec<(String, Device)>,
    queue: Queue,
    is_stopping: AtomicBool,
    connections: Mutex<Vec<Connection>>,
}

struct Connection {
    stream: Stream,
    thread: JoinHandle<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be done by any thread: reads first.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    some: Condvar,
}

#[derive(Default)]
struct Waiting {
    reads: VecDeque<Job>,
    others: VecDeque<Job>,
    is_closed: bool,
}

impl Queue {
    fn push(&self, job: Job) {
        let mut waiting = locked(&self.waiting);
        match job.request.command {
            command::READ => waiting.reads.push_back(job),
            _ => waiting.others.push_back(job),
        }
        self.some.notify_one();
    }

    /// The next one; `None` when there is none and will be none.
    fn next(&self) -> Option<Job> {
        let mut waiting = locked(&self.waiting);
        loop {
            let next = waiting.reads.pop_front();
            if let Some(job) = next.or_else(|| waiting.others.pop_front()) {
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.some.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        locked(&self.waiting).is_closed = true;
        self.some.notify_all();
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Unix(listener) => listener.set_nonblocking(true),
            Listener::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Stream::Unix(stream))
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Whether somebody comes within some time.
    fn wait(&self, time: Duration) -> bool {
        let fd = match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        };
        let time = Timespec::try_from(time).ok();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], time.as_ref())
            .is_ok_and(|count| count > 0)
    }
}

/// One end of a connection.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(time),
            Stream::Tcp(stream) => stream.set_read_timeout(time),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buf),
            Stream::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buf),
            Stream::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.is_stopping.load(Ordering::Acquire) {
        if !listener.wait(LOOK) {
            continue;
        }
        let Ok(stream) = listener.accept() else { continue };
        let mut connections = locked(&shared.connections);
        let (gone, here): (Vec<_>, Vec<_>) =
            connections.drain(..).partition(|connection| connection.thread.is_finished());
        *connections = here;
        gone.into_iter().for_each(|connection| drop(connection.thread.join()));
        // Too many, or no descriptor is left: it is closed.
        let Ok(other) = stream.try_clone() else { continue };
        if connections.len() >= MOST_CONNECTIONS {
            continue;
        }
        let shared = shared.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            // How it ended is of no use to anybody.
            let _ = serve(stream, &shared);
        });
        if let Ok(thread) = spawned {
            connections.push(Connection { stream: other, thread });
        }
    }
}

/// The input of a connection, in the byte order of the network.
struct Input {
    from: BufReader<Stream>,
}

impl Input {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
    fn bytes(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    fn skip(&mut self, len: u32) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.from).take(len.into()), &mut io::sink())?;
        if skipped == u64::from(len) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// The content of an option, from front to back.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

/// What was agreed on.
struct Agreed {
    device: Device,
    is_structured: bool,
    tells_allocation: bool,
}

fn reply_option(out: &mut Stream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut reply = Vec::with_capacity(20 + data.len());
    reply.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    reply.extend(option.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend((data.len() as u32).to_be_bytes());
    reply.extend(data);
    out.write_all(&reply)
}

/// Comes to terms with a client; `None` when it does not want anything.
fn agree(input: &mut Input, out: &mut Stream, shared: &Shared) -> io::Result<Option<Agreed>> {
    const FIXED: u32 = 1;
    const NO_ZEROES: u32 = 2;
    let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
    greeting.extend(((FIXED | NO_ZEROES) as u16).to_be_bytes());
    out.write_all(&greeting)?;
    let flags = input.u32()?;
    if flags & !(FIXED | NO_ZEROES) != 0 {
        return Ok(None);
    }
    let find = |name: &[u8]| {
        let found = shared.exports.iter().find(|export| export.0.as_bytes() == name);
        found.map(|export| export.1.clone())
    };
    let (mut is_structured, mut context) = (false, None::<Vec<u8>>);
    loop {
        if input.u64()? != OPTION_MAGIC {
            return Ok(None);
        }
        let (number, len) = (input.u32()?, input.u32()?);
        if len > MOST_OPTION {
            if number == option::EXPORT_NAME {
                return Ok(None);
            }
            input.skip(len)?;
            reply_option(out, number, option::ERR_TOO_BIG, b"")?;
            continue;
        }
        let data = input.bytes(len)?;
        let mut reply = |kind: u32, data: &[u8]| reply_option(out, number, kind, data);
        match number {
            option::EXPORT_NAME => {
                let Some(device) = find(&data) else { return Ok(None) };
                let mut answer = device.source().len().to_be_bytes().to_vec();
                answer.extend(device.flags().to_be_bytes());
                if flags & NO_ZEROES == 0 {
                    answer.extend([0; 124]);
                }
                out.write_all(&answer)?;
                let tells_allocation = context.is_some_and(|name| name == data);
                return Ok(Some(Agreed { device, is_structured, tells_allocation }));
            }
            option::ABORT => {
                reply(option::ACK, b"")?;
                return Ok(None);
            }
            option::LIST if data.is_empty() => {
                for (name, _) in &shared.exports {
                    let mut entry = (name.len() as u32).to_be_bytes().to_vec();
                    entry.extend(name.as_bytes());
                    reply(option::SERVER, &entry)?;
                }
                reply(option::ACK, b"")?;
            }
            option::INFO | option::GO => {
                let mut fields = Fields(&data);
                let name = fields.string();
                let count = fields.u16();
                let is_whole = count.is_some_and(|count| fields.0.len() == 2 * usize::from(count));
                let Some(name) = name.filter(|_| is_whole) else {
                    reply(option::ERR_INVALID, b"")?;
                    continue;
                };
                let Some(device) = find(name) else {
                    reply(option::ERR_UNKNOWN, b"there is no export of this name")?;
                    continue;
                };
                let mut info = option::INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(device.source().len().to_be_bytes());
                info.extend(device.flags().to_be_bytes());
                reply(option::REP_INFO, &info)?;
                // Told to who does not ask, too: it may be left out of account.
                let mut info = option::INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                device.block_sizes().iter().for_each(|size| info.extend(size.to_be_bytes()));
                reply(option::REP_INFO, &info)?;
                reply(option::ACK, b"")?;
                if number == option::GO {
                    let tells_allocation = context.is_some_and(|context| context == name);
                    return Ok(Some(Agreed { device, is_structured, tells_allocation }));
                }
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                is_structured = true;
                reply(option::ACK, b"")?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let is_set = number == option::SET_META_CONTEXT;
                let Some((name, queries)) = queries(&data) else {
                    reply(option::ERR_INVALID, b"")?;
                    continue;
                };
                if is_set && !is_structured {
                    reply(option::ERR_INVALID, b"structured replies come first")?;
                    continue;
                }
                if find(name).is_none() {
                    reply(option::ERR_UNKNOWN, b"there is no export of this name")?;
                    continue;
                }
                let all = |query: &&[u8]| **query == *b"base:" || **query == *ALLOCATION.as_bytes();
                let wanted = match is_set {
                    true => queries.contains(&ALLOCATION.as_bytes()),
                    false => queries.is_empty() || queries.iter().any(all),
                };
                if is_set {
                    context = wanted.then(|| name.to_vec());
                }
                if wanted {
                    let id = if is_set { ALLOCATION_ID } else { 0 };
                    let mut answer = id.to_be_bytes().to_vec();
                    answer.extend(ALLOCATION.as_bytes());
                    reply(option::META_CONTEXT, &answer)?;
                }
                reply(option::ACK, b"")?;
            }
            option::LIST | option::STRUCTURED_REPLY => reply(option::ERR_INVALID, b"")?,
            _ => reply(option::ERR_UNSUPPORTED, b"")?,
        }
    }
}

/// The name of an export, and what is asked of its contexts.
fn queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.string()?);
    }
    fields.0.is_empty().then_some((name, queries))
}

/// A request as it was read.
struct Request {
    flags: u16,
    command: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u32,
    data: Vec<u8>,
}

/// A connection with a device, for all who answer its requests.
struct Session {
    agreed: Agreed,
    out: Mutex<Stream>,
    pending: Pending,
}

/// What of a connection is under way.
#[derive(Default)]
struct Pending {
    requests: AtomicUsize,
    counts: Mutex<(usize, usize)>,
    less: Condvar,
}

impl Pending {
    fn add(&self, bytes: usize) {
        let mut counts = locked(&self.counts);
        while counts.0 >= MOST_REQUESTS || (counts.0 > 0 && counts.1 + bytes > MOST_PENDING) {
            counts = self.less.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        *counts = (counts.0 + 1, counts.1 + bytes);
        self.requests.store(counts.0, Ordering::Release);
    }

    fn remove(&self, bytes: usize) {
        let mut counts = locked(&self.counts);
        *counts = (counts.0 - 1, counts.1 - bytes);
        self.requests.store(counts.0, Ordering::Release);
        self.less.notify_all();
    }

    fn wait(&self) {
        let mut counts = locked(&self.counts);
        while counts.0 > 0 {
            counts = self.less.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A request that waits for a thread.
struct Job {
    session: Arc<Session>,
    request: Request,
    bytes: usize,
}

impl Job {
    fn run(self) {
        let Job { session, request, bytes } = self;
        if session.answer(&request).is_err() {
            // Who reads from it then sees the end.
            let _ = locked(&session.out).shutdown();
        }
        session.pending.remove(bytes);
    }
}

fn serve(stream: Stream, shared: &Shared) -> io::Result<()> {
    stream.set_patience(Some(PATIENCE))?;
    let mut out = stream.try_clone()?;
    let mut input = Input { from: BufReader::with_capacity(64 << 10, stream) };
    let Some(agreed) = agree(&mut input, &mut out, shared)? else { return Ok(()) };
    input.from.get_ref().set_patience(None)?;
    let session = Arc::new(Session { agreed, out: Mutex::new(out), pending: Pending::default() });
    let result = requests(&mut input, &session, shared);
    session.pending.wait();
    let _ = locked(&session.out).shutdown();
    result
}

/// Reads requests until there are no more. One that comes alone is answered here; where more are waiting, others help.
fn requests(input: &mut Input, session: &Arc<Session>, shared: &Shared) -> io::Result<()> {
    /// Bytes of a request without its data.
    const HEAD: usize = 28;
    loop {
        if input.from.fill_buf()?.is_empty() {
            return Ok(());
        }
        if input.u32()? != REQUEST_MAGIC {
            return Ok(());
        }
        let (flags, command) = (input.u16()?, input.u16()?);
        let (cookie, offset, len) = (input.array()?, input.u64()?, input.u32()?);
        if command == command::DISCONNECT {
            return Ok(());
        }
        let is_write = command == command::WRITE;
        if is_write && len > MOST_BYTES {
            // What follows is not worth reading.
            let request = Request { flags, command, cookie, offset, len, data: Vec::new() };
            session.fail(&request, EINVAL, "a request is too long")?;
            input.skip(len)?;
            continue;
        }
        let is_read = command == command::READ;
        let bytes = if is_write || is_read { len.min(MOST_BYTES) as usize } else { 0 };
        session.pending.add(bytes);
        let data = match is_write {
            true => input.bytes(len),
            false => Ok(Vec::new()),
        };
        let data = data.inspect_err(|_| session.pending.remove(bytes))?;
        let request = Request { flags, command, cookie, offset, len, data };
        let job = Job { session: session.clone(), request, bytes };
        let is_alone = session.pending.requests.load(Ordering::Acquire) == 1;
        match is_alone && input.from.buffer().len() < HEAD {
            true => job.run(),
            false => shared.queue.push(job),
        }
    }
}

/// The number of an error, as the protocol has them.
fn number_of(error: &Error) -> u32 {
    match error {
        Error::OutOfBounds { .. } | Error::Invalid { .. } => EINVAL,
        Error::Poisoned => EPERM,
        Error::Limit { .. } => ENOMEM,
        Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => ENOSPC,
        _ => EIO,
    }
}

impl Session {
    fn answer(&self, request: &Request) -> io::Result<()> {
        match self.run(request) {
            Ok(Done::Read(data)) if self.agreed.is_structured => {
                let mut reply =
                    self.chunk(request, true, 1, data.len() as u32 - READ_HEAD as u32 + 8);
                reply.extend(request.offset.to_be_bytes());
                self.send_read(reply, data)
            }
            Ok(Done::Read(data)) => {
                let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
                reply.extend(0u32.to_be_bytes());
                reply.extend(request.cookie);
                self.send_read(reply, data)
            }
            Ok(Done::Status(runs)) => {
                let mut reply = self.chunk(request, true, 5, 4 + 8 * runs.len() as u32);
                reply.extend(ALLOCATION_ID.to_be_bytes());
                for (len, is_zero) in runs {
                    reply.extend(len.to_be_bytes());
                    // A hole, and zero.
                    reply.extend(if is_zero { 3u32 } else { 0 }.to_be_bytes());
                }
                locked(&self.out).write_all(&reply)
            }
            Ok(Done::Nothing) => self.simple(request, 0),
            Err((number, why)) => self.fail(request, number, &why),
        }
    }

    /// The head of a structured reply.
    fn chunk(&self, request: &Request, is_last: bool, kind: u16, len: u32) -> Vec<u8> {
        let mut reply = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(u16::from(is_last).to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend(request.cookie);
        reply.extend(len.to_be_bytes());
        reply
    }

    /// Sends data that has room for what is before it: one call and no copy.
    fn send_read(&self, head: Vec<u8>, mut data: Vec<u8>) -> io::Result<()> {
        let start = READ_HEAD - head.len();
        data[start..READ_HEAD].copy_from_slice(&head);
        locked(&self.out).write_all(&data[start..])
    }

    fn simple(&self, request: &Request, error: u32) -> io::Result<()> {
        let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(request.cookie);
        locked(&self.out).write_all(&reply)
    }

    fn fail(&self, request: &Request, error: u32, why: &str) -> io::Result<()> {
        // Only where data was asked for the protocol wants it structured.
        let wants_data = matches!(request.command, command::READ | command::BLOCK_STATUS);
        if !self.agreed.is_structured || !wants_data {
            return self.simple(request, error);
        }
        const ERROR: u16 = 1 << 15 | 1;
        let why = &why.as_bytes()[..why.len().min(4000)];
        let mut reply = self.chunk(request, true, ERROR, 6 + why.len() as u32);
        reply.extend(error.to_be_bytes());
        reply.extend((why.len() as u16).to_be_bytes());
        reply.extend(why);
        locked(&self.out).write_all(&reply)
    }

    fn run(&self, request: &Request) -> Result<Done, (u32, String)> {
        let invalid = |why: &str| (EINVAL, why.to_owned());
        let failed = |error: Error| (number_of(&error), error.to_string());
        let Request { flags, command, offset, len, .. } = *request;
        let known = match command {
            command::READ => command::DF,
            command::WRITE_ZEROES => command::FUA | command::NO_HOLE | command::FAST_ZERO,
            command::BLOCK_STATUS => command::REQ_ONE,
            _ => 0,
        };
        // FUA means nothing to most, and is allowed with all.
        if flags & !(known | command::FUA) != 0 {
            return Err(invalid("a flag of the request is not known"));
        }
        let source = self.agreed.device.source();
        let size = source.len();
        let is_within = offset.checked_add(len.into()).is_some_and(|end| end <= size);
        let is_flush = command == command::FLUSH;
        if !is_flush && !is_within {
            let beyond = match command {
                command::WRITE | command::WRITE_ZEROES => ENOSPC,
                _ => EINVAL,
            };
            return Err((beyond, "the request passes the end".into()));
        }
        let device = || match &self.agreed.device {
            Device::Writable(device) => Ok(device),
            Device::Readable(_) => Err((EPERM, "this can only be read".to_owned())),
        };
        match command {
            command::READ => {
                if len > MOST_BYTES {
                    return Err((EOVERFLOW, "a request is too long".into()));
                }
                let mut data = vec![0; READ_HEAD + len as usize];
                source.read_at(offset, &mut data[READ_HEAD..]).map_err(failed)?;
                return Ok(Done::Read(data));
            }
            command::CACHE => return Ok(Done::Nothing),
            command::BLOCK_STATUS => {
                if !self.agreed.tells_allocation || len == 0 {
                    return Err(invalid("there is nothing to tell"));
                }
                let most = if flags & command::REQ_ONE != 0 { 1 } else { MOST_RUNS };
                return self.status(offset, len, most).map(Done::Status).map_err(failed);
            }
            command::FLUSH => {
                if let Device::Writable(device) = &self.agreed.device {
                    device.flush().map_err(failed)?;
                }
                return Ok(Done::Nothing);
            }
            command::WRITE => device()?.write_at(offset, &request.data).map_err(failed)?,
            command::TRIM => device()?.discard_at(offset, len.into()).map_err(failed)?,
            command::WRITE_ZEROES => device()?.zero_at(offset, len.into()).map_err(failed)?,
            _ => return Err(invalid("the request is not known")),
        }
        if flags & command::FUA != 0 {
            device()?.flush().map_err(failed)?;
        }
        Ok(Done::Nothing)
    }

    /// Which parts of a range are zero.
    fn status(&self, offset: u64, len: u32, most: usize) -> Result<Vec<(u32, bool)>> {
        let Device::Writable(device) = &self.agreed.device else {
            return Ok(vec![(len, false)]);
        };
        let (mut at, end) = (offset, offset + u64::from(len));
        let mut runs: Vec<(u32, bool)> = Vec::new();
        while at < end && runs.len() < most {
            let (len, is_zero) = device.run_at(at)?;
            let now = len.min(end - at);
            runs.push((now as u32, is_zero));
            at += now;
        }
        Ok(runs)
    }
}

/// Room before the data of a read for the head of its reply.
const READ_HEAD: usize = 28;

/// What came of a request.
enum Done {
    Nothing,
    /// Data, with [`READ_HEAD`] bytes of room before it.
    Read(Vec<u8>),
    Status(Vec<(u32, bool)>),
}
