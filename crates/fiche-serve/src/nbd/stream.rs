//! Connections of either kind, in the clear or not, and what is read from them.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::tls::{Channel, Tls};

pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Unix(listener) => listener.set_nonblocking(true),
            Listener::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Stream::new(Socket::Unix(Arc::new(stream))))
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok(Stream::new(Socket::Tcp(Arc::new(stream))))
            }
        }
    }

    /// Whether somebody comes within some time.
    pub fn wait(&self, time: Duration) -> bool {
        let fd = match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        };
        is_ready(fd, time)
    }
}

fn is_ready(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let time = Timespec::try_from(time).ok();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], time.as_ref())
        .is_ok_and(|count| count > 0)
}

/// What the bytes of a connection go through. All handles of it have one descriptor: where there is one for who comes, no other can be missing.
#[derive(Clone)]
pub(super) enum Socket {
    Unix(Arc<UnixStream>),
    Tcp(Arc<TcpStream>),
}

impl Socket {
    /// Sends as many bytes as can be without waiting.
    fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(self.as_fd(), &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(now) => sent += now,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_read_timeout(time),
            Socket::Tcp(stream) => stream.set_read_timeout(time),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&**stream).read(buf),
            Socket::Tcp(stream) => (&**stream).read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&**stream).write(buf),
            Socket::Tcp(stream) => (&**stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a connection. Of several handles of it at most one reads and one writes.
pub(super) struct Stream {
    socket: Socket,
    /// What encrypts it, once that was agreed on.
    channel: Option<Channel>,
    /// What is still to be sent of an answer, as it goes over the wire, before anything else is.
    unsent: Vec<u8>,
}

/// Bytes that are encrypted as one, at most.
const RECORD: usize = 16 << 10;

impl Stream {
    fn new(socket: Socket) -> Stream {
        Stream { socket, channel: None, unsent: Vec::new() }
    }

    /// Another handle.
    pub fn share(&self) -> Stream {
        let (socket, channel) = (self.socket.clone(), self.channel.clone());
        Stream { socket, channel, unsent: Vec::new() }
    }

    pub fn is_secret(&self) -> bool {
        self.channel.is_some()
    }

    /// What is sent and received from now on is encrypted, after the client has agreed on how.
    pub fn encrypt(&mut self, tls: &Tls) -> io::Result<()> {
        self.channel = Some(tls.accept(&mut self.socket)?);
        Ok(())
    }

    /// Sends all of an answer; without waiting as much as the other side takes now, and then [`has_unsent`](Stream::has_unsent) tells whether something
    /// is left.
    pub fn send(&mut self, bytes: &[u8], waits: bool) -> io::Result<()> {
        if waits {
            self.send_rest()?;
            return self.write_all(bytes);
        }
        let Some(mut channel) = self.channel.take() else { return self.send_some(bytes) };
        let mut sealed = Vec::new();
        // The other side decrypts one while the next is encrypted.
        let done = bytes.chunks(RECORD).try_for_each(|bytes| {
            sealed.clear();
            channel.seal(bytes, &mut sealed)?;
            self.send_some(&sealed)
        });
        self.channel = Some(channel);
        done
    }

    /// Sends as much as can be without waiting, behind what is left.
    fn send_some(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = if self.unsent.is_empty() { self.socket.send_now(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what is left, however long the other side takes.
    pub fn send_rest(&mut self) -> io::Result<()> {
        self.socket.write_all(&std::mem::take(&mut self.unsent))
    }

    /// Ends it for all who have it, and for the other side.
    pub fn shutdown(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// As [`shutdown`](Stream::shutdown), for the handle that writes: the other side learns that nothing is missing.
    pub fn finish(&mut self) -> io::Result<()> {
        let _ = self.send_rest();
        if let Some(channel) = &mut self.channel {
            let _ = channel.finish(&mut self.socket);
        }
        self.shutdown()
    }

    pub fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
        self.socket.set_patience(time)
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.channel {
            None => self.socket.read(buf),
            Some(channel) => channel.read(&mut self.socket, buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.channel {
            None => self.socket.write(buf),
            Some(channel) => channel.write(&mut self.socket, buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The input of a connection, in the byte order of the network.
pub(super) struct Input {
    pub from: BufReader<Stream>,
}

impl Input {
    pub fn new(stream: Stream) -> Input {
        Input { from: BufReader::with_capacity(64 << 10, stream) }
    }

    /// Whether something comes within some time, looked for without sleeping.
    pub fn spin(&self, time: Duration) -> bool {
        let Stream { socket, channel, .. } = self.from.get_ref();
        let begun = Instant::now();
        while begun.elapsed() < time {
            if channel.as_ref().is_some_and(Channel::has_some)
                || is_ready(socket.as_fd(), Duration::ZERO)
            {
                return true;
            }
            rustix::thread::sched_yield();
        }
        false
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    pub fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
    pub fn bytes(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
    pub fn skip(&mut self, len: u32) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.from).take(len.into()), &mut io::sink())?;
        if skipped == u64::from(len) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
