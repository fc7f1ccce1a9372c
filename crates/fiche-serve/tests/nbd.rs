//! Volumes by way of the network block device protocol: with the programs that speak it, and with what nobody should send.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fiche::volume::{FileDevice, Options, Volume};
use fiche::{ReadAt, WriteAt};
use fiche_serve::{Address, Nbd, Server};

use self::common::{run, succeeds};

struct Served {
    folder: tempfile::TempDir,
    volume: Arc<Volume>,
    server: Option<Server>,
}

impl Served {
    fn new(len: u64) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let device = FileDevice::create(folder.path().join("volume")).unwrap();
        let volume = Arc::new(Volume::create(device, Options::new(len)).unwrap());
        let socket = Address::Unix(folder.path().join("socket"));
        let text: Vec<u8> = (0..100_000u32).flat_map(|i| i.to_le_bytes()).collect();
        let nbd = Nbd::default().device("", volume.clone()).source("text", Arc::new(text));
        let server = Some(nbd.listen(&socket).unwrap());
        Served { folder, volume, server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop().unwrap();
    }
}

fn write_file(path: &Path, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> =
        (0..len).map(|i| if i / 50_000 % 3 == 0 { 0 } else { ((i * i) >> 9) as u8 }).collect();
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn qemu_writes_zeroes_discards_and_reads_back() {
    let mut served = Served::new(64 << 20);
    let uri = served.uri("");
    let io = |commands: &[&str]| {
        let mut args = vec!["-f", "raw", &uri];
        commands.iter().for_each(|command| args.extend(["-c", command]));
        run("qemu-io", &args)
    };
    let Some(output) = io(&[
        "write -P 0xab 0 1M",
        "write -P 0xcd 300001 70003",
        "aio_write -P 7 8M 4M",
        "aio_write -P 8 16M 64K",
        "aio_flush",
        "write -z 512K 64K",
        "discard 9M 1M",
        "write -f -P 9 20M 4K",
        "flush",
        "read -P 0xab 0 300001",
        "read -P 0xcd 300001 70003",
        "read -P 0 512K 64K",
        "read -P 7 8M 1M",
        "read -P 0 9M 1M",
        "read -P 8 16M 64K",
        "map",
    ]) else {
        return;
    };
    let said = succeeds(&output);
    assert!(!said.contains("Pattern verification failed"), "{said}");
    assert!(
        said.contains("not allocated") || said.contains("zero") || said.contains("0x"),
        "{said}"
    );
    // What it wrote is there when it is opened again.
    served.stop();
    let path = served.folder.path().join("volume");
    drop(served.volume);
    let volume = Volume::open(FileDevice::open(path).unwrap()).unwrap();
    let mut piece = [0; 4096];
    volume.read_at(20 << 20, &mut piece).unwrap();
    assert_eq!(piece, [9; 4096]);
    assert!(volume.check().unwrap().is_whole());
}

#[test]
fn images_are_copied_in_and_out() {
    let served = Served::new(32 << 20);
    let (from, to) = (served.folder.path().join("from"), served.folder.path().join("to"));
    let bytes = write_file(&from, 32 << 20);
    let (from, to, uri) = (from.to_str().unwrap(), to.to_str().unwrap(), served.uri(""));
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", from, &uri];
    if let Some(output) = run("qemu-img", &convert) {
        succeeds(&output);
        let compare = ["compare", "-f", "raw", "-F", "raw", from, &uri];
        assert!(succeeds(&run("qemu-img", &compare).unwrap()).contains("identical"));
    }
    served.volume.zero_at(0, 32 << 20).unwrap();
    if let Some(output) = run("nbdcopy", &[from, &uri]) {
        succeeds(&output);
        succeeds(&run("nbdcopy", &[&uri, to]).unwrap());
        assert!(std::fs::read(to).unwrap() == bytes);
        // Several connections at once.
        succeeds(&run("nbdcopy", &["--connections=4", &uri, to]).unwrap());
        assert!(std::fs::read(to).unwrap() == bytes);
    }
    assert!(served.volume.check().unwrap().is_whole());
}

#[test]
fn exports_are_listed_and_described() {
    let served = Served::new(16 << 20);
    served.volume.write_at(1 << 20, &[7; 1 << 20]).unwrap();
    let Some(output) = run("nbdinfo", &["--list", &served.uri("")]) else { return };
    let said = succeeds(&output);
    for part in ["export=\"\"", "export=\"text\"", "base:allocation", "can_flush: true"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for part in ["can_fua: true", "can_multi_conn: true", "can_trim: true", "can_zero: true"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("is_read_only: true"), "{said}");
    let map = succeeds(&run("nbdinfo", &["--map", &served.uri("")]).unwrap());
    let lines: Vec<Vec<&str>> = map.lines().map(|l| l.split_whitespace().collect()).collect();
    let starts: Vec<_> = lines.iter().map(|line| (line[0], line[1], line[2])).collect();
    assert_eq!(
        starts,
        [("0", "1048576", "3"), ("1048576", "1048576", "0"), ("2097152", "14680064", "3")],
        "{map}"
    );
    let none = run("nbdinfo", &[&served.uri("missing")]).unwrap();
    assert!(!none.status.success());
    // What can only be read is.
    let mut copy = Vec::new();
    let to = served.folder.path().join("text");
    succeeds(&run("nbdcopy", &[&served.uri("text"), to.to_str().unwrap()]).unwrap());
    std::fs::File::open(to).unwrap().read_to_end(&mut copy).unwrap();
    assert_eq!(copy.len(), 400_000);
    let denied = run("qemu-io", &["-f", "raw", &served.uri("text"), "-c", "write 0 4096"]);
    assert!(denied.is_none_or(|output| !output.status.success()));
}

#[test]
fn fio_verifies_what_it_wrote_at_random_from_several_jobs() {
    let served = Served::new(64 << 20);
    let args = [
        "--ioengine=nbd",
        &format!("--uri={}", served.uri("")),
        "--rw=randrw",
        "--bssplit=4k/60:16k/30:64k/10",
        "--iodepth=16",
        "--numjobs=2",
        "--offset_increment=32M",
        "--size=32M",
        "--io_size=24M",
        "--fsync=50",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--buffer_compress_percentage=60",
        "--refill_buffers",
        "--name=job",
        "--minimal",
    ];
    if let Some(output) = run("fio", &args) {
        let said = succeeds(&output);
        if said.contains("engine nbd not loadable") {
            println!("SKIP: fio has no nbd engine");
        }
    }
    assert!(served.volume.check().unwrap().is_whole());
}

/// A client that says what it likes.
struct Raw(UnixStream);

impl Raw {
    fn new(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut raw = Raw(stream);
        assert_eq!(raw.take(18)[..16], *b"NBDMAGICIHAVEOPT");
        raw
    }

    fn say(&mut self, parts: &[&[u8]]) {
        // It may be gone already.
        let _ = self.0.write_all(&parts.concat());
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The old way, for the export without a name.
    fn go(socket: &Path) -> Raw {
        let mut raw = Raw::new(socket);
        raw.say(&[&3u32.to_be_bytes(), b"IHAVEOPT", &1u32.to_be_bytes(), &0u32.to_be_bytes()]);
        assert_eq!(raw.take(10)[..8], (16u64 << 20).to_be_bytes());
        raw
    }

    fn request(&mut self, flags: u16, command: u16, offset: u64, len: u32, data: &[u8]) -> u32 {
        self.say(&[
            &0x2560_9513u32.to_be_bytes(),
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            b"a cookie",
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ]);
        let reply = self.take(16);
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        assert_eq!(reply[8..], *b"a cookie");
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    /// Whether the server ended it.
    fn ends(mut self) -> bool {
        match self.0.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A device that counts how often it is flushed.
struct Counting(Volume, AtomicUsize);

impl ReadAt for Counting {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn run_at(&self, offset: u64) -> fiche::Result<(u64, bool)> {
        self.0.run_at(offset)
    }
}

impl WriteAt for Counting {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> fiche::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn zero_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        self.0.zero_at(offset, len)
    }
    fn discard_at(&self, offset: u64, len: u64) -> fiche::Result<()> {
        self.0.discard_at(offset, len)
    }
    fn flush(&self) -> fiche::Result<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.flush()
    }
}

#[test]
fn what_is_to_be_durable_is_flushed_before_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::create(folder.path().join("volume")).unwrap();
    let volume = Volume::create(device, Options::new(16 << 20)).unwrap();
    let counting = Arc::new(Counting(volume, AtomicUsize::new(0)));
    let socket = folder.path().join("socket");
    let nbd = Nbd::default().device("", counting.clone());
    let server = nbd.listen(&Address::Unix(socket.clone())).unwrap();
    let mut raw = Raw::go(&socket);
    // Write, zeroes and trim, without and with FUA; and flush.
    for (i, (flags, command)) in
        [(0, 1), (1, 1), (0, 6), (1, 6), (0, 4), (1, 4)].into_iter().enumerate()
    {
        let data = if command == 1 { &[9; 4096][..] } else { &[] };
        assert_eq!(raw.request(flags, command, 4096, 4096, data), 0);
        assert_eq!(counting.1.load(Ordering::SeqCst), i.div_ceil(2), "after request {i}");
    }
    assert_eq!(raw.request(0, 3, 0, 0, b""), 0);
    assert_eq!(counting.1.load(Ordering::SeqCst), 4);
    server.stop().unwrap();
    assert_eq!(counting.1.load(Ordering::SeqCst), 5);
}

#[test]
fn requests_that_make_no_sense_are_answered_by_their_errors() {
    let served = Served::new(16 << 20);
    let mut raw = Raw::go(&served.socket());
    let size = 16u64 << 20;
    assert_eq!(raw.request(0, 1, 0, 3, b"abc"), 0);
    assert_eq!(raw.request(1, 1, size - 3, 3, b"end"), 0);
    assert_eq!(raw.request(0, 1, size - 2, 3, b"end"), 28, "a write beyond the end");
    assert_eq!(raw.request(0, 0, size, 1, b""), 22, "a read beyond the end");
    assert_eq!(raw.request(0, 0, u64::MAX, 2, b""), 22);
    assert_eq!(raw.request(0, 0, 0, 33 << 20, b""), 22, "a read that is longer than all there is");
    assert_eq!(raw.request(0, 6, size, 1, b""), 28);
    assert_eq!(raw.request(0, 4, size, 1, b""), 22);
    assert_eq!(raw.request(0, 99, 0, 1, b""), 22, "an unknown command");
    assert_eq!(raw.request(1 << 15, 0, 0, 1, b""), 22, "an unknown flag");
    assert_eq!(raw.request(0, 7, 0, 4096, b""), 22, "a status that was not agreed on");
    assert_eq!(raw.request(0, 3, 0, 0, b""), 0);
    assert_eq!(raw.request(0, 5, 0, 4096, b""), 0);
    assert_eq!(raw.request(0, 0, 0, 3, b""), 0);
    assert_eq!(raw.take(3), b"abc");
    let long = vec![1; 33 << 20];
    assert_eq!(raw.request(0, 1, 0, 33 << 20, &long), 22, "a write that is too long");
    assert_eq!(raw.request(0, 0, size - 3, 3, b""), 0);
    assert_eq!(raw.take(3), b"end");
    raw.say(&[b"what is this, then? it is no request at all"]);
    assert!(raw.ends());
}

#[test]
fn nothing_that_is_sent_ends_the_server() {
    let mut served = Served::new(16 << 20);
    let mut random = 1u64;
    let mut next = move |most: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % most
    };
    let option = |number: u32, data: &[u8]| {
        let (number, len) = (number.to_be_bytes(), (data.len() as u32).to_be_bytes());
        [&b"IHAVEOPT"[..], &number, &len, data].concat()
    };
    for i in 0..400 {
        let mut raw = Raw::new(&served.socket());
        let noise: Vec<u8> = (0..next(200)).map(|_| next(256) as u8).collect();
        match i % 5 {
            0 => raw.say(&[&noise]),
            1 => raw.say(&[&3u32.to_be_bytes(), &option(next(16) as u32, &noise)]),
            2 => {
                // Lengths that say more than there is.
                let go = [&(next(1 << 32) as u32).to_be_bytes()[..], &noise].concat();
                raw.say(&[&3u32.to_be_bytes(), &option(6 + next(5) as u32, &go)]);
            }
            3 => {
                let head = [&b"IHAVEOPT"[..], &7u32.to_be_bytes(), &u32::MAX.to_be_bytes()];
                raw.say(&[&3u32.to_be_bytes(), &head.concat(), &noise]);
            }
            _ => {
                let mut raw = Raw::go(&served.socket());
                let request = [&0x2560_9513u32.to_be_bytes()[..], &noise].concat();
                raw.say(&[&request]);
            }
        }
        // Who has no more to say sees the end, without anybody else coming.
        raw.0.shutdown(std::net::Shutdown::Write).unwrap();
        if let Err(error) = raw.0.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{i}: no end");
        }
    }
    // Some wait for nothing, and are no hindrance.
    let _idle: Vec<Raw> = (0..20).map(|_| Raw::new(&served.socket())).collect();
    let mut raw = Raw::go(&served.socket());
    assert_eq!(raw.request(0, 0, 0, 4096, b""), 0);
    assert_eq!(raw.take(4096).len(), 4096);
    served.stop();
    assert!(!served.socket().exists());
    assert!(served.volume.check().unwrap().is_whole());
}

#[test]
fn who_sends_before_it_reads_is_not_waited_for() {
    let served = Served::new(16 << 20);
    let mut raw = Raw::go(&served.socket());
    raw.0.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let ask = |command: u16, offset: u64, len: u32| {
        [
            &0x2560_9513u32.to_be_bytes()[..],
            &[0; 2],
            &command.to_be_bytes(),
            &u64::from(command).to_be_bytes(),
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
        ]
        .concat()
    };
    // Each comes alone, so that it is answered by who reads; the answers are more than a socket takes.
    for i in 0..4 {
        raw.say(&[&ask(0, i << 20, 1 << 20)]);
        std::thread::sleep(Duration::from_millis(30));
    }
    let bytes = vec![5; 8 << 20];
    raw.say(&[&ask(1, 4 << 20, 8 << 20), &bytes]);
    let mut written = 0;
    for _ in 0..5 {
        let head = raw.take(16);
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        match head[15] {
            0 => assert_eq!(raw.take(1 << 20), vec![0; 1 << 20]),
            _ => written += 1,
        }
    }
    assert_eq!(written, 1);
    let mut written = vec![0; bytes.len()];
    served.volume.read_at(4 << 20, &mut written).unwrap();
    assert!(written == bytes);
}

#[test]
fn thousands_come_and_go() {
    let mut served = Served::new(16 << 20);
    let mut last = Raw::go(&served.socket());
    for i in 0..60 {
        let crowd: Vec<Raw> = (0..50)
            .map(|j| match (i + j) % 3 {
                0 => Raw::new(&served.socket()),
                1 => Raw::go(&served.socket()),
                _ => {
                    // In the middle of a write.
                    let mut raw = Raw::go(&served.socket());
                    let head = [&0x2560_9513u32.to_be_bytes()[..], &[0, 0, 0, 1], b"a cookie"];
                    raw.say(&[&head.concat(), &0u64.to_be_bytes(), &(1u32 << 20).to_be_bytes()]);
                    raw.say(&[&[9; 5000]]);
                    raw
                }
            })
            .collect();
        drop(crowd);
        assert_eq!(last.request(0, 0, 0, 4096, b""), 0);
        assert_eq!(last.take(4096), [0; 4096], "half a write is none");
    }
    served.stop();
    assert!(served.volume.check().unwrap().is_whole());
}
