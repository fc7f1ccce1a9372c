//! Connections of either kind, and what is read from them.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

/// One end of a connection.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    pub fn set_patience(&self, time: Option<Duration>) -> io::Result<()> {
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

/// The input of a connection, in the byte order of the network.
pub(super) struct Input {
    pub from: BufReader<Stream>,
}

impl Input {
    /// Whether something comes within some time, looked for without sleeping.
    pub fn spin(&self, time: Duration) -> bool {
        let fd = match self.from.get_ref() {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        };
        let begun = Instant::now();
        while begun.elapsed() < time {
            if is_ready(fd, Duration::ZERO) {
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
