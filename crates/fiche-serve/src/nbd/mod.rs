//! Network block devices: a volume, or anything that can be read, for programs that know the protocol (the kernel's client,
//! QEMU, libnbd, fio, nbdkit).
//!
//! The newstyle handshake with its fixed extensions: exports are listed and chosen by name, replies may be structured,
//! `base:allocation` says what is zero. Any number of connections to one export see the same bytes, and a
//! flush on one covers what was completed on all. Where the server wants it, connections are encrypted by TLS. What a client sends may be anything: it is answered with an error, or the
//! connection ends.
//!
//! After the specification of the protocol (NetworkBlockDevice project, *The NBD protocol*, `doc/proto.md`).

mod handshake;
mod queue;
mod session;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "clear.rs"]
mod tls;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fiche::volume::Volume;
use fiche::{ReadAt, Result, WriteAt};

use self::handshake::agree;
use self::session::Session;
use self::stream::{Input, Listener, Stream};
#[cfg(feature = "tls")]
pub use self::tls::Tls;
#[cfg(not(feature = "tls"))]
use self::tls::Tls;

/// What [`queue`] waits with; a test that tries all orders has its own.
mod sync {
    pub use std::sync::atomic::{AtomicUsize, Ordering};
    pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}

/// Bytes that one request may be about: what most clients take for granted.
const MOST_BYTES: u32 = 32 << 20;
/// Who does not finish the handshake in this time is disconnected.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections at a time.
const MOST_CONNECTIONS: usize = 1024;
/// How often it is looked whether the server is to stop.
const LOOK: Duration = Duration::from_millis(100);
const BLOCK: u32 = 4096;

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

/// A device and its name.
type Export = (String, Device);

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
    exports: Exports,
}

/// What is served.
#[derive(Clone, Default)]
struct Exports {
    named: Vec<Export>,
    /// Their snapshots and clones are served, too, as they are when a client asks.
    volumes: Vec<Arc<Volume>>,
    /// Nothing is told to who does not ask for encryption first.
    tls: Option<Tls>,
}

impl Exports {
    fn find(&self, name: &[u8]) -> Option<Device> {
        if let Some((_, device)) = self.named.iter().find(|export| export.0.as_bytes() == name) {
            return Some(device.clone());
        }
        let name = std::str::from_utf8(name).ok()?;
        let clone = self.volumes.iter().find_map(|volume| volume.writable_clone(name).ok());
        if let Some(clone) = clone {
            return Some(Device::Writable(Arc::new(clone)));
        }
        let snapshot = self.volumes.iter().find_map(|volume| volume.snapshot(name).ok())?;
        Some(Device::Readable(Arc::new(snapshot)))
    }

    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let snapshots = self.volumes.iter().flat_map(|volume| volume.snapshots());
        let named = self.named.iter().map(|(name, _)| name.clone());
        let clones = self.volumes.iter().flat_map(|volume| volume.clones());
        let clones = clones.map(|info| info.name);
        named.chain(snapshots.map(|info| info.name)).chain(clones)
    }
}

impl Nbd {
    /// Serves a device under a name; the empty one is what clients take who do not ask for any.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>, device: Arc<dyn WriteAt>) -> Nbd {
        self.exports.named.push((name.into(), Device::Writable(device)));
        self
    }

    /// Serves what can only be read.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>, source: Arc<dyn ReadAt>) -> Nbd {
        self.exports.named.push((name.into(), Device::Readable(source)));
        self
    }

    /// Serves the snapshots of a volume for reading, each under its name if nothing else has it, also those that are taken later. One that a client
    /// has is not deleted. So are its clones, for reading and writing.
    #[must_use]
    pub fn snapshots(mut self, volume: Arc<Volume>) -> Nbd {
        self.exports.volumes.push(volume);
        self
    }

    /// Serves by connections only that are encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Nbd {
        self.exports.tls = Some(tls);
        self
    }

    /// Begins to serve, on threads of its own.
    ///
    /// # Errors
    /// [`Error::Io`](fiche::Error::Io) when nobody may listen there, or somebody does.
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
            is_stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
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
        Ok(Server { shared, accepting: Some(accepting), path, local })
    }
}

/// A server that runs, until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
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
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
        for (_, device) in &self.shared.exports.named {
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
    exports: Exports,
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

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.is_stopping.load(Ordering::Acquire) {
        let is_there = listener.wait(LOOK);
        let mut connections = locked(&shared.connections);
        // Those that ended have their descriptors until here.
        let (gone, here): (Vec<_>, Vec<_>) =
            connections.drain(..).partition(|connection| connection.thread.is_finished());
        *connections = here;
        gone.into_iter().for_each(|connection| drop(connection.thread.join()));
        if !is_there {
            continue;
        }
        let Ok(stream) = listener.accept() else {
            // No descriptor is left, perhaps: whoever comes waits until one is.
            drop(connections);
            std::thread::sleep(LOOK);
            continue;
        };
        if connections.len() >= MOST_CONNECTIONS {
            continue;
        }
        let (other, shared) = (stream.share(), shared.clone());
        let spawned = std::thread::Builder::new().spawn(move || {
            // How it ended is of no use to anybody. There is another handle of it: the client is to see the end.
            let end = stream.share();
            let _ = serve(stream, &shared);
            let _ = end.shutdown();
        });
        if let Ok(thread) = spawned {
            connections.push(Connection { stream: other, thread });
        }
    }
}

fn serve(stream: Stream, shared: &Shared) -> io::Result<()> {
    stream.set_patience(Some(PATIENCE))?;
    let mut out = stream.share();
    let mut input = Input::new(stream);
    let Some(agreed) = agree(&mut input, &mut out, &shared.exports)? else { return out.finish() };
    input.from.get_ref().set_patience(None)?;
    Session::new(agreed, out).serve(&mut input)
}
