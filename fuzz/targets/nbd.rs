//! Any bytes from a client of the network block device server: it answers or refuses, and others are served as before.
#![no_main]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fiche::{Error, ReadAt, Result, WriteAt};
use fiche_serve::{Address, Nbd, Server};

const LEN: usize = 1 << 20;

/// A disk in memory.
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn with(&self, offset: u64, len: u64, run: impl FnOnce(&mut [u8])) -> Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= LEN as u64);
        let end = end.ok_or(Error::OutOfBounds { range: offset..u64::MAX, len: LEN as u64 })?;
        run(&mut self.0.lock().expect("nobody panicked")[offset as usize..end as usize]);
        Ok(())
    }
}

impl ReadAt for Memory {
    fn len(&self) -> u64 {
        LEN as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(offset, buf.len() as u64, |bytes| buf.copy_from_slice(bytes))
    }

    fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
        self.with(offset, 1, |_| ())?;
        Ok((512.min(LEN as u64 - offset), offset % 1024 < 512))
    }
}

impl WriteAt for Memory {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(offset, bytes.len() as u64, |there| there.copy_from_slice(bytes))
    }

    fn zero_at(&self, offset: u64, len: u64) -> Result<()> {
        self.with(offset, len, |there| there.fill(0))
    }

    fn discard_at(&self, offset: u64, len: u64) -> Result<()> {
        self.zero_at(offset, len)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn server() -> &'static (Server, PathBuf) {
    static SERVER: OnceLock<(Server, PathBuf)> = OnceLock::new();
    SERVER.get_or_init(|| {
        // One that nobody listens to any more is replaced.
        let path = std::env::temp_dir().join("fiche-fuzz-nbd");
        let memory = Arc::new(Memory(Mutex::new(vec![3; LEN])));
        let server = Nbd::default().device("", memory.clone()).source("only-read", memory);
        (server.listen(&Address::Unix(path.clone())).expect("listening"), path)
    })
}

/// What a client gets who sends this, until the server has nothing more to say.
fn talk(bytes: &[u8]) -> Vec<u8> {
    let mut client = UnixStream::connect(&server().1).expect("somebody listens");
    client.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut other = client.try_clone().expect("a second handle");
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || {
        let _ = other.write_all(&bytes);
        let _ = other.shutdown(std::net::Shutdown::Write);
    });
    let (mut told, mut buf) = (Vec::new(), [0; 1 << 16]);
    loop {
        match client.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => told.extend(&buf[..n.min(4096)]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => break,
        }
    }
    writing.join().expect("writing");
    told
}

/// Flags, structured replies, and the export without a name or one that is only read.
fn agreed(is_structured: bool, name: &[u8]) -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    let mut option = |number: u32, data: &[u8]| {
        bytes.extend(b"IHAVEOPT");
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    };
    if is_structured {
        option(8, &[]);
    }
    let mut go = (name.len() as u32).to_be_bytes().to_vec();
    go.extend(name);
    go.extend([0, 0]);
    option(7, &go);
    bytes
}

fn request(kind: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    let Some((how, rest)) = bytes.split_first() else { return };
    let start = if how & 8 > 0 { &b"only-read"[..] } else { b"" };
    let mut sent = if how & 1 > 0 { agreed(how & 4 > 0, start) } else { Vec::new() };
    match how & 3 {
        // Requests of sound lengths, and what they are followed by.
        3 => {
            for ask in rest.chunks(8).filter(|ask| ask.len() == 8) {
                let offset = u64::from(u32::from_le_bytes([ask[2], ask[3], ask[4], 0])) >> 3;
                let len = u32::from(u16::from_le_bytes([ask[5], ask[6]]));
                sent.extend(request(u16::from(ask[0] % 10), u16::from(ask[1]), offset, len));
                if ask[0] % 10 == 1 && ask[7] != 0 {
                    sent.extend(vec![ask[7]; len as usize]);
                }
            }
        }
        _ => sent.extend(rest),
    }
    talk(&sent);
    if TIMES.fetch_add(1, Ordering::Relaxed) % 100 == 0 {
        let mut asked = agreed(false, b"");
        asked.extend(request(0, 0, 4096, 16));
        asked.extend(request(2, 0, 0, 0));
        let told = talk(&asked);
        // A simple reply with the cookie, and sixteen bytes.
        let reply = &told[told.len() - 32..];
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        assert_eq!(reply[8..16], 4096u64.to_le_bytes());
    }
});
