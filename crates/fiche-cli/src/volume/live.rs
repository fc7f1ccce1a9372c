//! What a volume does while it is served: told on a socket, and asked for by `fiche volume info --live`.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fiche::ReadAt;
use fiche::volume::Volume;
use fiche_serve::Address;

use super::snapshot::take;
use crate::sizes::show;
use crate::ui::{self, Failed};

/// Who does not say what he wants, or does not read the answer, in this time is disconnected.
const PATIENCE: Duration = Duration::from_secs(2);
/// To store the map of a volume that is written all the time.
const LONG: Duration = Duration::from_secs(120);
/// Bytes of a request that are read at most.
const MOST: u64 = 8 << 10;

/// A name that only this file has, and that needs no place of its own: it is gone with who listens.
fn address_of(file: &Path) -> io::Result<SocketAddr> {
    let meta = std::fs::metadata(file)?;
    SocketAddr::from_abstract_name(format!("fiche-volume-{}-{}", meta.dev(), meta.ino()))
}

/// Tells what a volume does whoever asks, until the process ends: those who may be this user on a socket that is found by the file's
/// name, and at `address` anybody who gets there.
pub fn tell(volume: &Arc<Volume>, file: &Path, address: Option<&Address>) -> Result<(), Failed> {
    let told = Arc::downgrade(volume);
    if let Ok(listener) = address_of(file).and_then(|at| UnixListener::bind_addr(&at)) {
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if may_know(&stream) {
                    let _ = answer(&stream, &told, UnixStream::set_read_timeout, true);
                }
            }
        });
    }
    let told = Arc::downgrade(volume);
    match address {
        Some(Address::Unix(path)) => {
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).map_err(|error| Failed::io(path, error))?;
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = answer(&stream, &told, UnixStream::set_read_timeout, false);
                }
            });
        }
        Some(Address::Tcp(name)) => {
            let failed = |error| Failed::io(Path::new(name), error);
            let listener = TcpListener::bind(name).map_err(failed)?;
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = answer(&stream, &told, TcpStream::set_read_timeout, false);
                }
            });
        }
        None => {}
    }
    Ok(())
}

/// Sockets of that kind have no owner that the system would look at.
fn may_know(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream.as_fd())
        .is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// What may be asked of whoever serves a volume.
#[derive(Clone, Copy)]
pub enum Ask<'a> {
    Metrics,
    /// Take a snapshot of this name, of the volume or of this clone.
    Take {
        name: &'a str,
        clone: Option<&'a str>,
    },
    Delete(&'a str),
    /// Make a clone of this name.
    Clone {
        snapshot: &'a str,
        name: &'a str,
    },
    DeleteClone(&'a str),
}

/// The headers that say which.
const SNAPSHOT: &str = "Snapshot: ";
const CLONE: &str = "Clone: ";

/// Answers one request of HTTP: by what the volume does, whatever it is about, unless a snapshot or clone is to be made or deleted by one who `may` do that.
fn answer<S>(
    stream: &S,
    volume: &Weak<Volume>,
    set_patience: impl Fn(&S, Option<Duration>) -> io::Result<()>,
    may: bool,
) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    set_patience(stream, Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(MOST));
    let mut head = String::new();
    // Up to the empty line, of two bytes.
    while lines.read_line(&mut head)? > 2 {}
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let named = |header| head.split("\r\n").find_map(|line| line.strip_prefix(header));
    let snapshot = named(SNAPSHOT).unwrap_or_default();
    let clone = || named(CLONE).unwrap_or_default();
    // It is stored when it is not served any more, whoever asks.
    let volume = volume.upgrade().ok_or(io::ErrorKind::NotConnected)?;
    let done = match (method, path) {
        ("PUT" | "DELETE", _) if !may => {
            Err(fiche::Error::Invalid { what: "that is not done for everybody".into() })
        }
        ("PUT", "/clone") => volume.clone_snapshot(snapshot, clone()).map(|()| String::new()),
        ("PUT", _) => take(&volume, snapshot, named(CLONE)).map(|()| String::new()),
        ("DELETE", "/clone") => volume.delete_clone(clone()).map(|()| String::new()),
        ("DELETE", _) => volume.delete_snapshot(snapshot).map(|()| String::new()),
        _ => Ok(metrics(&volume)),
    };
    drop(volume);
    let (status, text) = match done {
        Ok(text) => ("200 OK", text),
        Err(error) => ("409 Conflict", error.to_string()),
    };
    let kind = "Content-Type: text/plain; version=0.0.4\r\nConnection: close";
    let len = text.len();
    write!(&mut &*stream, "HTTP/1.0 {status}\r\n{kind}\r\nContent-Length: {len}\r\n\r\n{text}")
}

/// In the text format of Prometheus.
fn metrics(volume: &Volume) -> String {
    let stats = volume.stats();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
        let _ = writeln!(text, "# HELP fiche_volume_{name} {help}");
        let _ = writeln!(text, "# TYPE fiche_volume_{name} {kind}");
        for (label, value) in values {
            let label = match label.split_once('=') {
                Some((key, value)) => format!("{{{key}=\"{value}\"}}"),
                None => String::new(),
            };
            let _ = writeln!(text, "fiche_volume_{name}{label} {value}");
        }
    };
    let kinds = [
        ("kind=read", stats.reads),
        ("kind=write", stats.writes),
        ("kind=zero", stats.zeros),
        ("kind=flush", stats.flushes),
    ];
    let requests: Vec<_> = kinds.iter().map(|(kind, times)| (*kind, times.count as f64)).collect();
    family("requests_total", "counter", "Requests that were done.", &requests);
    let lens: Vec<_> = kinds[..3].iter().map(|(kind, times)| (*kind, times.len as f64)).collect();
    family("request_bytes_total", "counter", "Bytes they were about.", &lens);
    let times: Vec<_> =
        kinds.iter().map(|(kind, times)| (*kind, times.time.as_secs_f64())).collect();
    family("request_seconds_total", "counter", "How long they took together.", &times);
    let longest: Vec<_> =
        kinds.iter().map(|(kind, times)| (*kind, times.longest.as_secs_f64())).collect();
    family("request_longest_seconds", "gauge", "How long the longest took.", &longest);
    let data = stats.appended_len.saturating_sub(stats.moved_len + stats.map_len);
    family(
        "device_written_bytes_total",
        "counter",
        "Bytes that were written below: of what was asked for, by the cleaner, and of the map.",
        &[
            ("what=data", data as f64),
            ("what=moved", stats.moved_len as f64),
            ("what=map", stats.map_len as f64),
        ],
    );
    family(
        "segments",
        "gauge",
        "Segments: in use, in use by snapshots only, still to be packed harder, free, free but kept for the map and the cleaner, soon free, and as many as there may be.",
        &[
            ("state=used", stats.used_segments as f64),
            ("state=held", stats.held_segments as f64),
            ("state=unpacked", stats.unpacked_segments as f64),
            ("state=free", stats.free_segments as f64),
            ("state=kept", stats.kept_segments as f64),
            ("state=pending", stats.pending_segments as f64),
            ("state=most", stats.most_segments as f64),
        ],
    );
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        family(name, kind, help, &[("", value)]);
    };
    one("snapshots", "gauge", "Snapshots there are.", stats.snapshots as f64);
    one("clones", "gauge", "Clones there are.", stats.clones as f64);
    one("dictionaries", "gauge", "Dictionaries there are.", stats.dictionaries as f64);
    one("dictionary_bytes", "gauge", "Bytes of them.", stats.dictionary_len as f64);
    one("barriers_total", "counter", "Barriers that were sent below.", stats.barriers as f64);
    one("map_stored_total", "counter", "How often the map was stored.", stats.checkpoints as f64);
    one("segments_cleaned_total", "counter", "Segments that were cleaned.", stats.cleaned as f64);
    one("given_back_bytes_total", "counter", "Room that was given back.", stats.given_len as f64);
    one("bytes", "gauge", "Length of the disk.", volume.len() as f64);
    one("segment_bytes", "gauge", "Length of a segment.", stats.segment_len as f64);
    one("stored_bytes", "gauge", "What it takes below.", stats.stored_len() as f64);
    one(
        "written_bytes",
        "gauge",
        "What segments in use hold, decompressed.",
        stats.written_len as f64,
    );
    one("live_bytes", "gauge", "What of that is still needed.", stats.live_len as f64);
    one("map_memory_bytes", "gauge", "The map in memory.", stats.map_memory as f64);
    one("poisoned", "gauge", "1 when writing failed.", f64::from(u8::from(stats.is_poisoned)));
    text
}

/// Asks whoever serves it, and prints what that says.
pub fn show_live(file: &Path, as_json: bool) -> Result<(), Failed> {
    let text = ask(file, Ask::Metrics).and_then(|told| told.map_err(io::Error::other));
    let text = text.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            let nobody = "nobody of this machine serves it, or another user does";
            Failed::io(file, io::Error::other(nobody))
        }
        _ => Failed::io(file, error),
    })?;
    let values: Vec<(&str, f64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("fiche_volume_")?.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    if as_json {
        let mut report = serde_json::Map::new();
        for (name, value) in values {
            // Such as requests_total{kind="read"}: requests_total_read.
            let label = name.split('"').nth(1).map(|label| format!("_{label}"));
            let family = name.split('{').next().unwrap_or(name);
            let key = format!("{family}{}", label.unwrap_or_default());
            let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
            report.insert(key, if is_whole { (value as i64).into() } else { value.into() });
        }
        return ui::print(format!("{:#}\n", serde_json::Value::from(report)).as_bytes());
    }
    let get = |name: &str| values.iter().find(|(key, _)| *key == name).map_or(0.0, |(_, v)| *v);
    let of = |name: &str, label: &str| get(&format!("{name}{{{label}\"}}"));
    let bytes = |value: f64| show(value as u64);
    let mut rows: Vec<(&str, String)> = Vec::new();
    let kinds = [("reads", "read"), ("writes", "write"), ("zeros", "zero"), ("flushes", "flush")];
    for (title, kind) in kinds {
        let of = |name: &str| of(name, &format!("kind=\"{kind}"));
        let (count, took) = (of("requests_total"), of("request_seconds_total"));
        let about = match kind {
            "flush" => format!("by {} barriers", get("barriers_total")),
            _ => bytes(of("request_bytes_total")),
        };
        let each = took / count.max(1.0) * 1e6;
        let longest = of("request_longest_seconds") * 1e3;
        rows.push((title, format!("{count}, {about}, {each:.0} us each, {longest:.1} ms at most")));
    }
    let what = |what: &str| of("device_written_bytes_total", &format!("what=\"{what}"));
    let (data, moved, map) = (what("data"), what("moved"), what("map"));
    let asked = of("request_bytes_total", "kind=\"write").max(1.0);
    rows.push((
        "written",
        format!(
            "{} of data, {} moved by the cleaner, {} of the map: {:.2} for each byte",
            bytes(data),
            bytes(moved),
            bytes(map),
            (data + moved + map) / asked
        ),
    ));
    let state = |state: &str| of("segments", &format!("state=\"{state}"));
    let segment = get("segment_bytes");
    let needed = get("live_bytes") / get("written_bytes").max(1.0) * 100.0;
    rows.push((
        "room",
        format!(
            "{} in use, of which {needed:.0} % is needed, and {} by {} snapshots only; {} free ({} kept for the map and the cleaner), {} soon; {} at most",
            bytes(state("used") * segment),
            bytes(state("held") * segment),
            get("snapshots"),
            bytes(state("free") * segment),
            bytes(state("kept") * segment),
            bytes(state("pending") * segment),
            bytes(state("most") * segment)
        ),
    ));
    if get("clones") > 0.0 {
        rows.push(("clones", get("clones").to_string()));
    }
    rows.push((
        "cleaner",
        format!(
            "{} segments cleaned, {} given back, the map stored {} times",
            get("segments_cleaned_total"),
            bytes(get("given_back_bytes_total")),
            get("map_stored_total")
        ),
    ));
    rows.push((
        "memory",
        format!(
            "{} of the map, {} of {} dictionaries",
            bytes(get("map_memory_bytes")),
            bytes(get("dictionary_bytes")),
            get("dictionaries")
        ),
    ));
    if get("poisoned") > 0.0 {
        rows.push(("state", "writing failed: it can only be read until it is served again".into()));
    }
    let text: String = rows.iter().map(|(name, value)| format!("{name:<8}{value}\n")).collect();
    ui::print(text.as_bytes())
}

/// Asks whoever serves a volume; what he answers, or why he does not do it.
pub fn ask(file: &Path, ask: Ask<'_>) -> io::Result<Result<String, String>> {
    let mut stream = UnixStream::connect_addr(&address_of(file)?)?;
    let (what, snapshot, clone) = match ask {
        Ask::Metrics => ("GET /volume", None, None),
        Ask::Take { name, clone } => ("PUT /snapshot", Some(name), clone),
        Ask::Delete(name) => ("DELETE /snapshot", Some(name), None),
        Ask::Clone { snapshot, name } => ("PUT /clone", Some(snapshot), Some(name)),
        Ask::DeleteClone(name) => ("DELETE /clone", None, Some(name)),
    };
    stream.set_read_timeout(Some(if what.starts_with("GET") { PATIENCE } else { LONG }))?;
    let mut head = format!("{what} HTTP/1.0\r\n");
    for (header, name) in [(SNAPSHOT, snapshot), (CLONE, clone)] {
        let Some(name) = name else { continue };
        if name.chars().any(char::is_control) {
            return Ok(Err("a snapshot or clone has a name without line breaks".into()));
        }
        head += &format!("{header}{name}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let mut text = String::new();
    stream.take(1 << 20).read_to_string(&mut text)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let is_done = head.split(' ').nth(1) == Some("200");
    Ok(if is_done { Ok(body.to_owned()) } else { Err(body.to_owned()) })
}
