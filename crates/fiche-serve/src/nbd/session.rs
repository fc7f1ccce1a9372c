//! Requests of a connection, and what is answered.

use std::io::{self, BufRead};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fiche::{Error, Result};

use super::handshake::{ALLOCATION_ID, Agreed};
use super::queue::{Pending, Queue, Work};
use super::stream::{Input, Stream};
use super::{Device, MOST_BYTES, locked};

/// Threads that help with them while these wait for a device.
const MOST_WORKERS: usize = 16;
/// Runs that one block status tells at most.
const MOST_RUNS: usize = 1024;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668E_33EF;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const ENOMEM: u32 = 12;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

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
pub(super) struct Session {
    agreed: Agreed,
    out: Mutex<Stream>,
    pending: Pending,
    queue: Queue<Job>,
}

impl Session {
    pub fn new(agreed: Agreed, out: Stream) -> Session {
        let (pending, queue) = (Pending::default(), Queue::default());
        Session { agreed, out: Mutex::new(out), pending, queue }
    }

    /// Answers requests until there are no more, waits for those that are under way, and ends the connection. A request
    /// that comes alone is answered by who reads it; where more are waiting, other threads help.
    pub fn serve(&self, input: &mut Input) -> io::Result<()> {
        std::thread::scope(|scope| {
            let (mut workers, processors) = (0, processors());
            let result = self.requests(input, &mut |is_slow| {
                // Not before one is needed.
                let is_more = workers >= processors;
                if !is_more || (is_slow && workers < processors.max(MOST_WORKERS)) {
                    workers += 1;
                    scope.spawn(move || {
                        while let Some(job) = self.queue.next(is_more) {
                            self.finish(job, true);
                        }
                    });
                }
            });
            self.pending.wait();
            self.queue.close();
            let _ = locked(&self.out).finish();
            result
        })
    }

    fn requests(&self, input: &mut Input, help: &mut dyn FnMut(bool)) -> io::Result<()> {
        /// Bytes of a request without its data.
        const HEAD: usize = 28;
        let mut patience = Patience::default();
        loop {
            patience.wait(input);
            if input.from.fill_buf()?.is_empty() || input.u32()? != REQUEST_MAGIC {
                return Ok(());
            }
            let (flags, command) = (input.u16()?, input.u16()?);
            let (cookie, offset, len) = (input.array()?, input.u64()?, input.u32()?);
            if command == command::DISCONNECT {
                return Ok(());
            }
            let mut request = Request { flags, command, cookie, offset, len, data: Vec::new() };
            let is_write = command == command::WRITE;
            if is_write && len > MOST_BYTES {
                // What follows is not worth reading.
                self.fail(&request, EINVAL, "a request is too long", true)?;
                input.skip(len)?;
                continue;
            }
            let has_bytes = is_write || command == command::READ;
            let bytes = if has_bytes { len.min(MOST_BYTES) as usize } else { 0 };
            self.pending.add(bytes);
            if is_write {
                let data = input.bytes(len).inspect_err(|_| self.pending.remove(bytes));
                request.data = data?;
            }
            let job = Job { request: Some(request), bytes, since: Instant::now() };
            let is_alone = self.pending.is_one();
            patience.is_alone = is_alone && input.from.buffer().is_empty();
            if is_alone && input.from.buffer().len() < HEAD {
                self.finish(job, false);
                // A client that sends before it reads would wait for who reads, who would wait for it: somebody else does.
                if locked(&self.out).has_unsent() {
                    self.pending.add(0);
                    help(self.queue.push(Job { request: None, bytes: 0, since: Instant::now() }));
                }
            } else {
                help(self.queue.push(job));
            }
        }
    }

    /// Answers a request, or sends what is left of an answer; `waits` until the client takes it, or leaves that to somebody else.
    fn finish(&self, job: Job, waits: bool) {
        /// Also if answering panics: who waits for it would wait for ever.
        struct Done<'a>(&'a Pending, usize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.remove(self.1);
            }
        }
        let _done = Done(&self.pending, job.bytes);
        let done = match &job.request {
            Some(request) => self.answer(request, waits),
            None => locked(&self.out).send_rest(),
        };
        if done.is_err() {
            // Who reads from it then sees the end.
            let _ = locked(&self.out).shutdown();
        }
    }
}

/// Looks for the next request before it sleeps: to wake a processor takes longer than most requests do. For a client that asks
/// for one thing at a time; of others more come meanwhile, which are cheaper together.
#[derive(Default)]
struct Patience {
    /// Whether the last request came alone.
    is_alone: bool,
    /// How often in a row it was in vain, and requests until it is tried again.
    missed: u32,
    skip: u32,
}

impl Patience {
    fn wait(&mut self, input: &Input) {
        const TIME: Duration = Duration::from_micros(50);
        const MOST: u32 = 6;
        if !self.is_alone || !input.from.buffer().is_empty() {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        match input.spin(TIME) {
            true => self.missed = 0,
            false => {
                self.missed = MOST.min(self.missed + 1);
                self.skip = (1 << self.missed) - 1;
            }
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get()).max(2)
}

/// A request, and how many of the bytes under way are its own; or the rest of an answer.
struct Job {
    request: Option<Request>,
    bytes: usize,
    since: Instant,
}

impl Work for Job {
    fn is_first(&self) -> bool {
        self.request.as_ref().is_none_or(|request| request.command == command::READ)
    }

    fn waits_for(&self) -> Duration {
        self.since.elapsed()
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
    fn answer(&self, request: &Request, waits: bool) -> io::Result<()> {
        match self.run(request) {
            Ok(Done::Read(data)) if self.agreed.is_structured => {
                let mut reply =
                    self.chunk(request, true, 1, data.len() as u32 - READ_HEAD as u32 + 8);
                reply.extend(request.offset.to_be_bytes());
                self.send_read(reply, data, waits)
            }
            Ok(Done::Read(data)) => {
                let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
                reply.extend(0u32.to_be_bytes());
                reply.extend(request.cookie);
                self.send_read(reply, data, waits)
            }
            Ok(Done::Status(runs)) => {
                let mut reply = self.chunk(request, true, 5, 4 + 8 * runs.len() as u32);
                reply.extend(ALLOCATION_ID.to_be_bytes());
                for (len, is_zero) in runs {
                    reply.extend(len.to_be_bytes());
                    // A hole, and zero.
                    reply.extend(if is_zero { 3u32 } else { 0 }.to_be_bytes());
                }
                locked(&self.out).send(&reply, waits)
            }
            Ok(Done::Nothing) => self.simple(request, 0, waits),
            Err((number, why)) => self.fail(request, number, &why, waits),
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
    fn send_read(&self, head: Vec<u8>, mut data: Vec<u8>, waits: bool) -> io::Result<()> {
        let start = READ_HEAD - head.len();
        data[start..READ_HEAD].copy_from_slice(&head);
        locked(&self.out).send(&data[start..], waits)
    }

    fn simple(&self, request: &Request, error: u32, waits: bool) -> io::Result<()> {
        let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(request.cookie);
        locked(&self.out).send(&reply, waits)
    }

    fn fail(&self, request: &Request, error: u32, why: &str, waits: bool) -> io::Result<()> {
        // Only where data was asked for the protocol wants it structured.
        let wants_data = matches!(request.command, command::READ | command::BLOCK_STATUS);
        if !self.agreed.is_structured || !wants_data {
            return self.simple(request, error, waits);
        }
        const ERROR: u16 = 1 << 15 | 1;
        let why = &why.as_bytes()[..why.len().min(4000)];
        let mut reply = self.chunk(request, true, ERROR, 6 + why.len() as u32);
        reply.extend(error.to_be_bytes());
        reply.extend((why.len() as u16).to_be_bytes());
        reply.extend(why);
        locked(&self.out).send(&reply, waits)
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
        let device = self.agreed.device.source();
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
