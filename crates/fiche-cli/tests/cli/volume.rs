//! `fiche volume` as people use it.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A server of a volume that ends when it is dropped.
pub struct Served(pub Child);

impl Served {
    pub fn new(place: &Place, file: &str) -> Served {
        Served::with(place, &["volume", "serve", file, "--nbd", "./socket"])
    }

    pub fn with(place: &Place, args: &[&str]) -> Served {
        Served::start(place, &mut place.command(args))
    }

    pub fn start(place: &Place, command: &mut Command) -> Served {
        let socket = place.path("socket");
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "nobody listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Served(child)
    }

    pub fn end(mut self, signal: &str) -> Option<i32> {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What must fail with this exit code, and say this.
#[track_caller]
pub fn fails(place: &Place, code: i32, args: &[&str], what: &str) {
    let said = place.fails(code, args);
    assert!(said.contains(what), "{said}");
}

pub fn ok(place: &Place, args: &[&str]) -> String {
    String::from_utf8(place.ok(args)).unwrap()
}

/// Asks QEMU's client; false where there is none.
pub fn io(place: &Place, commands: &[&str]) -> bool {
    io_of(place, "", commands)
}

/// The same of an export of this name.
pub fn io_of(place: &Place, name: &str, commands: &[&str]) -> bool {
    let only_reads = commands.iter().all(|command| command.starts_with("read"));
    let uri = format!("nbd+unix:///{name}?socket={}", place.path("socket").display());
    let mut command = Command::new("qemu-io");
    command.args(if only_reads { &["-r"][..] } else { &[] }).args(["-f", "raw", &uri]);
    for each in commands {
        command.args(["-c", each]);
    }
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && !said.contains("failed"), "{said}");
            true
        }
        Err(_) => {
            println!("SKIP: qemu-io is not there");
            false
        }
    }
}

#[test]
fn what_was_flushed_is_there_when_the_server_was_killed_and_all_when_it_was_stopped() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "64M", "--codec", "lz4"]);
    for round in 1..=5 {
        let server = Served::new(&place, "disk");
        let (kept, flushed) =
            (format!("write -P {round} 1M 3M"), format!("write -f -P {round} 0 64K"));
        if !io(&place, &[&kept, "flush", &flushed, "write -P 77 8M 1M"]) {
            return;
        }
        server.end("-KILL");
        let server = Served::new(&place, "disk");
        let read = [format!("read -P {round} 1M 3M"), format!("read -P {round} 0 64K")];
        io(&place, &[&read[0], &read[1]]);
        // Nobody else may open it, and nobody needs to for this.
        fails(&place, 5, &["volume", "check", "disk"], "in use");
        let info = ok(&place, &["volume", "info", "disk", "--json"]);
        assert!(info.contains("\"logical_bytes\": 67108864"), "{info}");
        let unflushed = format!("write -P {} 4M 100K", round + 100);
        io(&place, &[&unflushed]);
        assert_eq!(server.end("-TERM"), Some(0));
        assert!(!place.path("socket").exists());
        place.ok(&["volume", "check", "disk"]);
        let server = Served::new(&place, "disk");
        io(&place, &[&format!("read -P {} 4M 100K", round + 100)]);
        assert_eq!(server.end("-INT"), Some(0));
    }
}

#[test]
fn lengths_that_make_no_sense_are_refused_before_anything_is_served() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "64M"]);
    for (option, value, why) in [
        ("--extent", "4K", "an extent has 8 to 256 KiB"),
        ("--extent", "1M", "an extent has 8 to 256 KiB"),
        ("--pack", "5K", "a unit is a multiple of 4 KiB, up to 128 KiB"),
        ("--pack", "256K", "a unit is a multiple of 4 KiB, up to 128 KiB"),
        ("--pack", "x", "no such unit"),
    ] {
        let serve = ["volume", "serve", "disk", "--nbd", "./socket", option, value];
        fails(&place, 2, &serve, why);
        assert!(!place.path("socket").exists());
    }
}

#[test]
fn who_serves_a_volume_tells_what_it_does() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "64M", "--codec", "lz4"]);
    fails(&place, 5, &["volume", "info", "--live", "disk"], "nobody of this machine");
    let mut command = place.command(&["volume", "serve", "disk", "--nbd", "./socket"]);
    let child = command.args(["--metrics", "./metrics"]).stderr(Stdio::null()).spawn().unwrap();
    let server = Served(child);
    let start = Instant::now();
    while !place.path("socket").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    if !io(&place, &["write -P 7 1M 64K", "write -z 0 8K", "flush", "read -P 7 1M 4K"]) {
        return;
    }
    let told = ok(&place, &["volume", "info", "--live", "disk", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let expected = [
        ("bytes", 64 << 20),
        ("requests_total_write", 1),
        ("request_bytes_total_write", 64 << 10),
        ("requests_total_read", 1),
        ("request_bytes_total_zero", 8 << 10),
        ("poisoned", 0),
    ];
    for (key, value) in expected {
        assert_eq!(told[key].as_u64(), Some(value), "{key}: {told:#}");
    }
    assert!(told["barriers_total"].as_u64() >= Some(1), "{told:#}");
    let text = ok(&place, &["volume", "info", "--live", "disk"]);
    assert!(text.contains("writes  1, 64.0 KiB"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("room ")), "{text}");
    // As Prometheus asks, and as somebody who says nothing or anything does.
    let ask = |bytes: &[u8]| {
        let mut stream = std::os::unix::net::UnixStream::connect(place.path("metrics")).unwrap();
        // Who says what nobody wants is hung up on, perhaps in the middle of a word.
        let said =
            stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        assert!(said.is_ok() || !bytes.starts_with(b"GET"), "{said:?}");
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut text);
        text
    };
    for bytes in [&b""[..], &[0xFF; 100_000], &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..]] {
        ask(bytes);
    }
    let text = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("fiche_volume_requests_total{kind=\"write\"} 1\n"), "{body}");
    assert_eq!(server.end("-TERM"), Some(0));
    fails(&place, 5, &["volume", "info", "--live", "disk"], "nobody of this machine");
}

/// Sentences of random letters, in any order: 8 MiB.
fn sentences() -> Vec<u8> {
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    let sentences: Vec<Vec<u8>> =
        (0..300).map(|_| (0..70).map(|_| b'a' + below(26) as u8).collect()).collect();
    let mut image = Vec::new();
    while image.len() < 8 << 20 {
        image.extend(&sentences[below(300) as usize]);
    }
    image.truncate(8 << 20);
    image
}

#[test]
fn a_volume_that_nobody_asks_for_anything_gets_a_dictionary_of_what_it_holds() {
    let (place, image) = (Place::new(), sentences());
    std::fs::write(place.path("image"), &image).unwrap();
    place.ok(&["volume", "import", "image", "disk"]);
    let live = |key: &str| {
        let told = ok(&place, &["volume", "info", "--live", "disk", "--json"]);
        serde_json::from_str::<serde_json::Value>(&told).unwrap()[key].as_f64().unwrap()
    };
    let units = |place: &Place| {
        let told = ok(place, &["volume", "check", "disk", "--json"]);
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["unit_bytes"].as_u64().unwrap()
    };
    let before = units(&place);
    // None where none is wanted; by itself one.
    for (more, count) in [(&["--no-dictionary"][..], 0.0), (&[], 1.0)] {
        let mut command = place.command(&["volume", "serve", "disk", "--nbd", "./socket"]);
        let child = command.args(more).stderr(Stdio::null()).spawn().unwrap();
        let server = Served(child);
        let start = Instant::now();
        let is_done = || live("dictionaries") == count && live("segments_unpacked") == 0.0;
        while !place.path("socket").exists() || !is_done() {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing comes of it");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(live("dictionaries"), count);
        assert_eq!(server.end("-TERM"), Some(0));
    }
    let info = ok(&place, &["volume", "info", "disk"]);
    assert!(info.contains("in units of 16.0 KiB, with a dictionary\n"), "{info}");
    let after = units(&place);
    assert!(after < before * 4 / 5, "{after} of {before} bytes");
    place.ok(&["volume", "export", "disk", "back"]);
    assert!(std::fs::read(place.path("back")).unwrap() == image);
}

#[test]
fn what_a_volume_holds_is_packed_when_that_is_asked_for() {
    let (place, image) = (Place::new(), sentences());
    std::fs::write(place.path("image"), &image).unwrap();
    place.ok(&["volume", "import", "image", "disk", "--unit", "4K"]);
    let told = |place: &Place, name: &str| {
        let info = ok(place, &["volume", "info", "disk", "--json"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        info[name].as_u64().unwrap()
    };
    assert!(told(&place, "unpacked_bytes") >= 4 << 20);
    assert!(ok(&place, &["volume", "info", "disk"]).contains("to pack   "));
    fails(&place, 2, &["volume", "pack", "disk", "--pack", "5K"], "multiple of 4 KiB");
    fails(&place, 5, &["volume", "pack", "none"], "none");
    fails(&place, 2, &["volume", "pack", "image"], "not a fiche file");
    // Whoever ends it in the middle keeps what was there.
    let mut child =
        place.command(&["volume", "pack", "disk"]).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let before = std::fs::metadata(place.path("disk")).unwrap().modified().unwrap();
    while std::fs::metadata(place.path("disk")).unwrap().modified().unwrap() == before
        && start.elapsed() < Duration::from_secs(20)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(130 | 0)), "{code:?}");
    place.ok(&["volume", "check", "disk"]);
    place.ok(&["volume", "pack", "disk", "--pack", "64K"]);
    assert_eq!(told(&place, "unpacked_bytes"), 0);
    assert!(!ok(&place, &["volume", "info", "disk"]).contains("to pack   "));
    place.ok(&["volume", "check", "disk"]);
    place.ok(&["volume", "export", "disk", "back"]);
    assert!(std::fs::read(place.path("back")).unwrap() == image);
    // Where there is only just room for what was written it says so, and nothing is lost.
    let least = (4 << 20..).step_by(128 << 10).find(|capacity| {
        let capacity = capacity.to_string();
        let args = ["volume", "import", "image", "full", "--capacity", &capacity];
        place.command(&args).stderr(Stdio::null()).status().unwrap().success()
    });
    let output = place.command(&["volume", "pack", "full"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("still to be packed"), "{least:?}: {said}");
    place.ok(&["volume", "export", "full", "back2"]);
    assert!(std::fs::read(place.path("back2")).unwrap() == image);
    // While it is served, that packs it by itself.
    let server = Served::new(&place, "disk");
    fails(&place, 5, &["volume", "pack", "disk"], "in use");
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn volumes_that_cannot_be_are_refused_and_leave_nothing() {
    let place = Place::new();
    fn create<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["volume", "create", "disk"], more].concat()
    }
    fails(&place, 2, &create(&["--size", "5000"]), "multiple of 4096");
    fails(&place, 2, &create(&["--size", "0"]), "multiple of 4096");
    fails(&place, 2, &create(&["--size", "1G", "--level", "77"]), "level");
    fails(&place, 2, &create(&["--size", "1G", "--unit", "5K"]), "unit");
    fails(&place, 6, &create(&["--size", "1G", "--capacity", "1M"]), "needs");
    fails(&place, 2, &create(&["--size", "1G", "--codec", "zip"]), "zstd, lz4, zlib, lzo, none");
    assert!(!place.path("disk").exists());
    place.ok(&create(&["--size", "1G"]));
    fails(&place, 5, &create(&["--size", "1G"]), "exists");
    let info = ok(&place, &["volume", "info", "disk"]);
    assert!(info.contains("by zstd 1, in units of 16"), "{info}");
    assert_eq!(ok(&place, &["info", "disk"]), info);
    assert!(ok(&place, &["volume", "check", "disk"]).contains("0 units"));
    // It is no archive, and an archive is no volume.
    fails(&place, 2, &["ls", "disk"], "this is a volume");
    std::fs::write(place.path("text"), "text\n").unwrap();
    place.ok(&["pack", "text", "-o", "a.fiche"]);
    fails(&place, 2, &["volume", "info", "a.fiche"], "this is an archive");
    fails(&place, 2, &["volume", "check", "text"], "not a fiche file");
    fails(&place, 2, &["volume", "serve", "disk", "--nbd", "socket"], "./socket");
    fails(&place, 5, &["volume", "serve", "disk", "--nbd", "./no/socket"], "no/socket");
    // Damage is found.
    let mut bytes = std::fs::read(place.path("disk")).unwrap();
    bytes[5] ^= 1;
    std::fs::write(place.path("damaged"), &bytes).unwrap();
    fails(&place, 2, &["volume", "info", "damaged"], "not a fiche file");
    bytes[5] ^= 1;
    [4100, 8200, 12_300, 16_400].iter().for_each(|&pos| bytes[pos] ^= 1);
    std::fs::write(place.path("damaged"), &bytes).unwrap();
    fails(&place, 3, &["volume", "check", "damaged"], "superblock");
}

#[test]
fn a_map_that_is_damaged_is_repaired() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "16M"]);
    let server = Served::new(&place, "disk");
    if !io(&place, &["write -P 5 0 1M", "write -P 6 3M 500K", "write -P 7 0 64K"]) {
        return;
    }
    assert_eq!(server.end("-TERM"), Some(0));
    let mut bytes = std::fs::read(place.path("disk")).unwrap();
    // Where the newest superblock says the usage is.
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let newest = [4096, 8192].into_iter().max_by_key(|&at| word(at + 16)).unwrap();
    let usage = word(newest + 72) as usize;
    bytes[usage + 17] ^= 1;
    std::fs::write(place.path("disk"), &bytes).unwrap();
    fails(&place, 3, &["volume", "check", "disk"], "damaged");
    place.ok(&["volume", "check", "disk", "--repair"]);
    place.ok(&["volume", "check", "disk"]);
    let server = Served::new(&place, "disk");
    io(&place, &["read -P 7 0 64K", "read -P 5 64K 960K", "read -P 6 3M 500K", "read -P 0 8M 4M"]);
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn images_become_volumes_and_volumes_images() {
    let place = Place::new();
    let mut bytes: Vec<u8> =
        (0..40_000).flat_map(|i| format!("line {i} of an image\n").into_bytes()).collect();
    bytes.splice(300_000..300_000, vec![0; 2 << 20]);
    std::fs::write(place.path("raw.img"), &bytes).unwrap();
    place.ok(&["volume", "import", "raw.img", "disk", "--codec", "lz4"]);
    let padded = bytes.len().next_multiple_of(4096);
    place.ok(&["volume", "export", "disk", "again.img"]);
    let mut again = std::fs::read(place.path("again.img")).unwrap();
    assert_eq!(again.len(), padded);
    again.truncate(bytes.len());
    assert!(again == bytes);
    // Holes are holes.
    let taken =
        std::os::unix::fs::MetadataExt::blocks(&place.path("again.img").metadata().unwrap());
    assert!(taken * 512 < (padded - (1 << 20)) as u64, "{taken} sectors are taken");
    fails(&place, 5, &["volume", "export", "disk", "again.img"], "again.img");
    place.ok(&["volume", "export", "disk", "again.img", "--force"]);
    fails(&place, 5, &["volume", "import", "raw.img", "disk"], "exists");
    fails(&place, 2, &["volume", "import", "raw.img", "small", "--size", "4K"], "too little");
    fails(&place, 5, &["volume", "import", "none.img", "small"], "none.img");
    assert!(!place.path("small").exists());
    place.ok(&["volume", "import", "raw.img", "large", "--size", "64M"]);
    assert!(ok(&place, &["volume", "info", "large", "--json"]).contains(": 67108864"));
    if Command::new("qemu-img").arg("--version").output().is_err() {
        println!("SKIP: qemu-img is not there");
        return;
    }
    place.ok(&["volume", "export", "disk", "disk.qcow2"]);
    place.ok(&["volume", "import", "disk.qcow2", "back", "--unit", "4K"]);
    place.ok(&["volume", "export", "back", "back.img"]);
    let back = std::fs::read(place.path("back.img")).unwrap();
    assert!(back.len() == padded && back[..bytes.len()] == bytes);
    // What is no image of its kind, and what a name alone does not say.
    fails(&place, 5, &["volume", "import", "raw.img", "bad", "--format", "qcow2"], "raw.img");
    std::fs::rename(place.path("disk.qcow2"), place.path("disk.img")).unwrap();
    place.ok(&["volume", "import", "disk.img", "as-it-is"]);
    place.ok(&["volume", "import", "disk.img", "other", "--format", "qcow2"]);
    place.ok(&["volume", "export", "other", "other.img"]);
    assert!(std::fs::read(place.path("other.img")).unwrap() == back);
    assert!(!place.path("bad").exists());
}

#[test]
fn volumes_become_longer_and_shorter_and_give_back_what_they_do_not_need() {
    let place = Place::new();
    let mut number = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 56) as u8
    })
    .take(24 << 20)
    .collect();
    std::fs::write(place.path("noise"), &noise).unwrap();
    place.ok(&["volume", "import", "noise", "disk"]);
    let size = |place: &Place| {
        let told = ok(place, &["volume", "info", "disk", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["logical_bytes"].as_u64().unwrap()
    };
    place.ok(&["volume", "resize", "disk", "--size", "64M"]);
    assert_eq!(size(&place), 64 << 20);
    fails(&place, 2, &["volume", "resize", "disk", "--size", "10M"], "discard the rest first");
    fails(&place, 2, &["volume", "resize", "disk", "--size", "1000"], "multiple of 4096");
    fails(&place, 6, &["volume", "resize", "disk", "--size", "64M", "--capacity", "9M"], "needs");
    fails(&place, 6, &["volume", "trim", "disk", "--memory", "1K"], "memory");
    assert_eq!(size(&place), 64 << 20);
    let taken = || std::os::unix::fs::MetadataExt::blocks(&place.path("disk").metadata().unwrap());
    let server = Served::new(&place, "disk");
    if !io(&place, &["discard 2M 22M"]) {
        return;
    }
    assert_eq!(server.end("-TERM"), Some(0));
    let before = taken();
    assert!(ok(&place, &["volume", "trim", "disk"]).contains("were given back"));
    assert!((before - taken()) * 512 > 16 << 20, "{before} sectors became {}", taken());
    place.ok(&["volume", "resize", "disk", "--size", "2M"]);
    place.ok(&["volume", "export", "disk", "left"]);
    assert!(std::fs::read(place.path("left")).unwrap() == noise[..2 << 20]);
    place.ok(&["volume", "check", "disk"]);
}

#[test]
fn a_volume_may_lie_on_a_block_device() {
    let place = Place::new();
    std::fs::File::create(place.path("below")).unwrap().set_len(32 << 20).unwrap();
    let below = place.path("below");
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&below).output();
    let device = attached.ok().filter(|output| output.status.success());
    let Some(device) = device.map(|output| String::from_utf8(output.stdout).unwrap()) else {
        println!("SKIP: losetup cannot make a disk here");
        return;
    };
    let device = device.trim();
    let all = || {
        place.ok(&["volume", "create", device, "--size", "64M"]);
        assert!(ok(&place, &["volume", "check", device]).contains("0 units"));
        // It is nobody's to remove, and what is there is not written over.
        fails(&place, 2, &["volume", "create", device, "--size", "64M"], "there is something");
        std::fs::write(place.path("image"), vec![b'x'; 1 << 20]).unwrap();
        let server = Served::new(&place, device);
        if !io(&place, &["write -P 9 0 3M", "flush", "read -P 9 0 3M"]) {
            return;
        }
        assert_eq!(server.end("-TERM"), Some(0));
        place.ok(&["volume", "trim", device]);
        place.ok(&["volume", "export", device, "image", "--force"]);
        let image = std::fs::read(place.path("image")).unwrap();
        assert!(image.len() == 64 << 20 && image[..3 << 20].iter().all(|&byte| byte == 9));
    };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all));
    assert!(runs("losetup", &["-d", device]));
    done.unwrap();
}

#[test]
fn archives_and_streams_are_served_for_reading() {
    let place = Place::new();
    std::fs::write(place.path("text"), vec![b'x'; 100_000]).unwrap();
    place.ok(&["pack", "text", "-o", "a.fiche"]);
    let server = Served::new(&place, "a.fiche");
    io(&place, &["read -P 120 0 99840"]);
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn more_may_come_than_there_are_descriptors_for() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk.fiche", "--size", "16M"]);
    let program = place.command(&[]).get_program().to_owned();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$0\" volume serve disk.fiche --nbd ./socket"]);
    let server = Served::start(&place, limited.arg(program).current_dir(place.path("")));
    for _ in 0..5 {
        let connect = |_| std::os::unix::net::UnixStream::connect(place.path("socket"));
        let crowd: Vec<_> = (0..120).map(connect).collect();
        assert!(crowd.iter().filter(|one| one.is_ok()).count() > 64);
        drop(crowd);
        // Who comes right behind them is let in all the same.
        io(&place, &["write -P 7 0 1M", "read -P 7 0 1M"]);
    }
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn connections_are_encrypted_where_that_is_wanted() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk.fiche", "--size", "16M"]);
    let serve = ["volume", "serve", "disk.fiche", "--nbd", "./socket"];
    fails(&place, 2, &[&serve[..], &["--tls-verify-peer"]].concat(), "--tls <DIR>");
    fails(&place, 2, &["volume", "serve", "disk.fiche", "--fuse", "x", "--tls", "x"], "--fuse");
    fails(&place, 2, &[&serve[..], &["--loop"]].concat(), "--nbd");
    fails(&place, 5, &[&serve[..], &["--tls", "nowhere"]].concat(), "nowhere/server-cert.pem");
    for folder in ["tls", "client"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    let (own, key) = (place.path("tls/server-cert.pem"), place.path("tls/server-key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost", "-keyout"]).arg(&key);
    match openssl.arg("-out").arg(&own).output() {
        Ok(output) => assert!(output.status.success()),
        Err(_) => return println!("SKIP: openssl is not there"),
    }
    std::fs::copy(&own, place.path("client/ca-cert.pem")).unwrap();
    std::fs::write(place.path("from"), vec![7; 16 << 20]).unwrap();
    let server = Served::with(&place, &[&serve[..], &["--tls", "tls"]].concat());
    let (socket, client) = (place.path("socket"), place.path("client"));
    let url =
        |scheme: &str, more: &str| format!("{scheme}+unix:///?socket={}{more}", socket.display());
    let secret = url("nbds", &format!("&tls-certificates={}", client.display()));
    let (from, to) = (place.path("from"), place.path("to"));
    let copy = |from: &str, to: &str| Command::new("nbdcopy").args([from, to]).output();
    match copy(from.to_str().unwrap(), &secret) {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => return println!("SKIP: nbdcopy is not there"),
    }
    assert!(copy(&secret, to.to_str().unwrap()).unwrap().status.success());
    assert!(std::fs::read(to).unwrap() == std::fs::read(from).unwrap());
    // Not in the clear.
    assert!(!copy(&url("nbd", ""), "null:").unwrap().status.success());
    assert_eq!(server.end("-TERM"), Some(0));
    // Who has no certificate is not let in where one is wanted.
    std::fs::copy(&own, place.path("tls/ca-cert.pem")).unwrap();
    let server =
        Served::with(&place, &[&serve[..], &["--tls", "tls", "--tls-verify-peer"]].concat());
    assert!(!copy(&secret, "null:").unwrap().status.success());
    assert_eq!(server.end("-TERM"), Some(0));
}

/// Runs a program; whether it succeeded.
pub fn runs(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}
