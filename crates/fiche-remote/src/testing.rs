//! A web server for tests, which counts, waits and misbehaves as it is told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the server does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It answers with the whole object, whatever range is asked for.
    IgnoresRange,
    /// Of every third request it sends half of the answer, and then nothing.
    Stalls,
    /// It answers every third request with status 503.
    Fails,
    /// It ends every third answer early.
    Cuts,
    /// It answers each request with status 500.
    FailsAlways,
}

#[derive(Default)]
struct State {
    objects: HashMap<String, (Arc<Vec<u8>>, Option<String>)>,
    asked: Vec<(String, Option<Range<u64>>)>,
    fault: Fault,
    ignores_match: bool,
    delay: Duration,
    rate: Option<u64>,
    answered: u64,
}

/// A web server on this machine. Ends with the process.
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts one that has no objects yet.
    ///
    /// # Panics
    /// When the system has no port for it.
    #[must_use]
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Server { address, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object there, or another one in its place, with this entity tag. Returns its URL.
    pub fn put(&self, name: &str, bytes: Vec<u8>, tag: Option<&str>) -> String {
        let tag = tag.map(str::to_owned);
        self.state().objects.insert(format!("/{name}"), (Arc::new(bytes), tag));
        format!("http://{}/{name}", self.address)
    }

    /// Misbehaves so from now on.
    pub fn fault(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// Answers whatever entity tag is asked for.
    pub fn ignore_match(&self) {
        self.state().ignores_match = true;
    }

    /// Waits so long before each answer.
    pub fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Sends so many bytes in a second, on each connection.
    pub fn rate(&self, bytes: u64) {
        self.state().rate = Some(bytes.max(1));
    }

    /// What was asked for since the last time: names, and ranges of bytes.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Option<Range<u64>>)> {
        std::mem::take(&mut self.state().asked)
    }
}

/// Answers requests until the other side has no more.
fn serve(stream: &TcpStream, state: &Mutex<State>) {
    // Head and body are two writes.
    let _ = stream.set_nodelay(true);
    let mut lines = BufReader::new(stream).lines();
    loop {
        let mut head = Vec::new();
        for line in lines.by_ref() {
            match line {
                Ok(line) if line.is_empty() => break,
                Ok(line) => head.push(line),
                Err(_) => return,
            }
        }
        let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
        let header = |name: &str| {
            head.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let is_head = head[0].starts_with("HEAD ");
        let is_done = answer(stream, state, (path, is_head), header("range"), header("if-match"));
        if is_done.is_none() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// One answer. `None` where the connection is of no use any more.
fn answer(
    mut stream: &TcpStream,
    state: &Mutex<State>,
    (path, is_head): (&str, bool),
    range: Option<String>,
    matching: Option<String>,
) -> Option<()> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let (delay, rate, fault) = (state.delay, state.rate, state.fault);
    state.answered += 1;
    let is_third = state.answered.is_multiple_of(3);
    let found = state.objects.get(path).cloned();
    let ignores_match = state.ignores_match;
    let range = range.zip(found.as_ref()).and_then(|(range, (bytes, _))| {
        let len = bytes.len() as u64;
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        match start.parse::<u64>() {
            Ok(start) => Some(start..end.parse::<u64>().map_or(len, |end| len.min(end + 1))),
            Err(_) => Some(len - len.min(end.parse::<u64>().ok()?)..len),
        }
    });
    // Of a head nothing is sent.
    let sent = if is_head { Some(0..0) } else { range.clone() };
    state.asked.push((path.to_owned(), sent));
    drop(state);
    std::thread::sleep(delay);
    let plain = |mut stream: &TcpStream, status: &str| {
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").ok()
    };
    let Some((bytes, tag)) = found else { return plain(stream, "404 Not Found") };
    if fault == Fault::FailsAlways || fault == Fault::Fails && is_third {
        return plain(stream, "503 Service Unavailable");
    }
    if let Some(wanted) = matching
        && tag.as_ref() != Some(&wanted)
        && !ignores_match
    {
        return plain(stream, "412 Precondition Failed");
    }
    let range = range.filter(|_| fault != Fault::IgnoresRange);
    let part = match &range {
        Some(range) => &bytes[range.start as usize..range.end as usize],
        None => &bytes,
    };
    let mut head = match &range {
        Some(Range { start, end }) => {
            let all = bytes.len();
            format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{all}\r\n",
                end - 1
            )
        }
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    head += &format!("Content-Length: {}\r\n", part.len());
    if let Some(tag) = tag {
        head += &format!("ETag: {tag}\r\n");
    }
    head += "Accept-Ranges: bytes\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    if is_head {
        return Some(());
    }
    let half = part.len() / 2;
    match fault {
        Fault::Cuts if is_third => {
            stream.write_all(&part[..half]).ok()?;
            None
        }
        Fault::Stalls if is_third => {
            stream.write_all(&part[..half]).ok()?;
            std::thread::sleep(Duration::from_secs(60));
            None
        }
        _ => {
            // In pieces, each when it would be there.
            for piece in part.chunks(64 << 10) {
                if let Some(rate) = rate {
                    std::thread::sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64));
                }
                stream.write_all(piece).ok()?;
            }
            Some(())
        }
    }
}
