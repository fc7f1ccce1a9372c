//! `fiche volume` as people use it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A server of a volume that ends when it is dropped.
struct Served(Child);

impl Served {
    fn new(place: &Place, file: &str) -> Served {
        Served::with(place, &["volume", "serve", file, "--nbd", "./socket"])
    }

    fn with(place: &Place, args: &[&str]) -> Served {
        Served::start(place, &mut place.command(args))
    }

    fn start(place: &Place, command: &mut Command) -> Served {
        let socket = place.path("socket");
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "nobody listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Served(child)
    }

    fn end(mut self, signal: &str) -> Option<i32> {
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
fn fails(place: &Place, code: i32, args: &[&str], what: &str) {
    let said = place.fails(code, args);
    assert!(said.contains(what), "{said}");
}

fn ok(place: &Place, args: &[&str]) -> String {
    String::from_utf8(place.ok(args)).unwrap()
}

/// Asks QEMU's client; false where there is none.
fn io(place: &Place, commands: &[&str]) -> bool {
    io_of(place, "", commands)
}

/// The same of an export of this name.
fn io_of(place: &Place, name: &str, commands: &[&str]) -> bool {
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
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
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

#[test]
fn a_volume_that_nobody_asks_for_anything_gets_a_dictionary_of_what_it_holds() {
    let place = Place::new();
    // Sentences of random letters, in any order.
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
        // Segments of what was packed better are given up, one after the other: it is over when there were none in many looks, which take longer on a
        // machine that has other things to do, as packing does.
        let (mut given_up, mut looks) = (0.0, 0);
        let mut is_done = || match count > 0.0 {
            true => {
                let now = live("segments_cleaned_total");
                looks = if now == given_up { looks + 1 } else { 0 };
                given_up = now;
                live("dictionaries") == count && now > 2.0 && looks > 30
            }
            false => start.elapsed() > Duration::from_secs(3),
        };
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
fn snapshots_are_taken_read_and_deleted_while_a_volume_is_written() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "64M", "--codec", "lz4"]);
    place.ok(&["volume", "snapshot", "take", "disk", "empty"]);
    let server = Served::new(&place, "disk");
    if !io(&place, &["write -P 1 1M 3M", "write -P 2 8M 64K"]) {
        return;
    }
    // Whoever serves it takes it.
    place.ok(&["volume", "snapshot", "take", "disk", "before the change"]);
    io(&place, &["write -P 3 1M 3M", "flush"]);
    fails(
        &place,
        2,
        &["volume", "snapshot", "take", "disk", "empty"],
        "there is a snapshot empty already",
    );
    let list = ok(&place, &["volume", "snapshot", "list", "disk"]);
    let names: Vec<&str> = list.lines().map(|line| line.split("held  ").nth(1).unwrap()).collect();
    assert_eq!(names, ["empty", "before the change"], "{list}");
    // Clients see it as it was, and the volume as it is.
    let old = ["read -P 1 1M 3M", "read -P 2 8M 64K", "read -P 0 0 1M"];
    io_of(&place, "before%20the%20change", &old);
    io_of(&place, "empty", &["read -P 0 0 64M"]);
    io(&place, &["read -P 3 1M 3M"]);
    let export = ["volume", "export", "disk", "old.img", "--snapshot", "before the change"];
    place.ok(&export);
    let image = std::fs::read(place.path("old.img")).unwrap();
    assert!(image.len() == 64 << 20 && image[1 << 20..4 << 20].iter().all(|&byte| byte == 1));
    let printed = place.ok(&["volume", "export", "disk", "-", "--snapshot", "before the change"]);
    assert!(printed == image);
    fails(&place, 2, &["volume", "export", "disk", "x", "--snapshot", "none"], "no snapshot none");
    assert!(!place.path("x").exists());
    fails(&place, 5, &["volume", "snapshot", "restore", "disk", "empty"], "in use");
    let info = ok(&place, &["volume", "info", "--live", "disk", "--json"]);
    assert!(info.contains("\"snapshots\": 2"), "{info}");
    place.ok(&["volume", "snapshot", "delete", "disk", "empty"]);
    fails(&place, 2, &["volume", "snapshot", "delete", "disk", "empty"], "no snapshot empty");
    server.end("-KILL");
    let info = ok(&place, &["volume", "info", "disk"]);
    assert!(info.contains("snapshots before the change\n"), "{info}");
    let checked = ok(&place, &["volume", "check", "disk", "--json"]);
    assert!(checked.contains("\"name\": \"before the change\""), "{checked}");
    place.ok(&["volume", "snapshot", "restore", "disk", "before the change"]);
    place.ok(&["volume", "export", "disk", "now.img"]);
    assert!(std::fs::read(place.path("now.img")).unwrap() == image);
    place.ok(&["volume", "snapshot", "delete", "disk", "before the change"]);
    assert_eq!(ok(&place, &["volume", "snapshot", "list", "disk"]), "");
    place.ok(&["volume", "check", "disk"]);
}

#[test]
fn clones_are_made_written_and_deleted_while_a_volume_is_served() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk.fiche", "--size", "64M"]);
    let clone = |verb: &'static str| vec!["volume", "clone", verb, "disk.fiche"];
    let with = |verb: &'static str, more: &[&'static str]| [&clone(verb)[..], more].concat();
    fails(&place, 2, &with("make", &["none", "trial"]), "there is no snapshot none");
    let served = Served::new(&place, "disk.fiche");
    if !io(&place, &["write -P 1 0 8M", "flush"]) {
        return;
    }
    place.ok(&["volume", "snapshot", "take", "disk.fiche", "monday"]);
    place.ok(&with("make", &["monday", "trial"]));
    fails(&place, 2, &with("make", &["monday", "trial"]), "there is a clone trial already");
    io(&place, &["write -P 2 0 1M"]);
    io_of(&place, "trial", &["write -P 3 1M 1M", "discard 2M 1M", "flush"]);
    io_of(&place, "trial", &["read -P 1 0 1M", "read -P 3 1M 1M", "read -P 0 2M 1M"]);
    io(&place, &["read -P 2 0 1M", "read -P 1 1M 7M"]);
    io_of(&place, "monday", &["read -P 1 0 8M"]);
    fails(
        &place,
        2,
        &["volume", "snapshot", "delete", "disk.fiche", "monday"],
        "the clone trial was made from the snapshot monday",
    );
    let of_clone = ["volume", "snapshot", "take", "disk.fiche", "tried", "--clone", "trial"];
    place.ok(&of_clone);
    place.ok(&with("make", &["tried", "again"]));
    io_of(&place, "again", &["write -P 4 0 1M", "read -P 3 1M 1M", "read -P 4 0 1M", "flush"]);
    io_of(&place, "trial", &["read -P 1 0 1M"]);
    let list = ok(&place, &clone("list"));
    assert!(list.contains("of monday  trial") && list.contains("of tried  again"), "{list}");
    assert!(ok(&place, &["volume", "info", "--live", "disk.fiche"]).contains("clones  2"));
    place.ok(&with("delete", &["trial"]));
    assert!(!ok(&place, &clone("list")).contains("trial"));
    assert_eq!(served.end("-KILL"), None);
    // It is gone, and the other one is there, whole.
    let list = ok(&place, &with("list", &["--json"]));
    assert!(list.contains("\"again\"") && !list.contains("\"trial\""), "{list}");
    place.ok(&["volume", "check", "disk.fiche"]);
    place.ok(&["volume", "export", "-q", "disk.fiche", "again.img", "--clone", "again"]);
    let image = std::fs::read(place.path("again.img")).unwrap();
    let parts = [(0, 4), (1, 3), (2, 0), (3, 1), (8, 0)].map(|(at, byte)| (at << 20, byte));
    assert!(image.len() == 64 << 20);
    assert!(parts.iter().all(|&(at, byte)| image[at..at + (1 << 20)].iter().all(|&b| b == byte)));
    // In the place of the volume itself.
    let serve = ["volume", "serve", "disk.fiche", "--nbd", "./socket", "--clone", "again"];
    let served = Served::with(&place, &serve);
    io(&place, &["read -P 4 0 1M", "write -P 5 0 1M", "flush"]);
    fails(&place, 2, &with("delete", &["again"]), "the clone again is in use");
    assert_eq!(served.end("-TERM"), Some(0));
    place.ok(&with("delete", &["again"]));
    for name in ["monday", "tried"] {
        place.ok(&["volume", "snapshot", "delete", "disk.fiche", name]);
    }
    place.ok(&["volume", "check", "disk.fiche"]);
    place.ok(&["volume", "resize", "disk.fiche", "--size", "80M"]);
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
    fails(&place, 2, &create(&["--size", "1G", "--codec", "zip"]), "zstd, lz4, zlib, none");
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
    let crowd: Vec<_> =
        (0..120).map(|_| std::os::unix::net::UnixStream::connect(place.path("socket"))).collect();
    assert!(crowd.iter().filter(|one| one.is_ok()).count() > 64);
    drop(crowd);
    io(&place, &["write -P 7 0 1M", "read -P 7 0 1M"]);
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
fn runs(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

/// A volume as a disk of the kernel's that has ext4 on it and is mounted at `at`.
struct Disk<'a> {
    place: &'a Place,
    server: Option<Served>,
    device: String,
}

impl<'a> Disk<'a> {
    /// `None`, and said so, where there can be none.
    fn new(place: &'a Place) -> Option<Disk<'a>> {
        if !std::path::Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting: no /dev/fuse");
            return None;
        }
        for name in ["fuse", "at"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        place.ok(&["volume", "create", "disk", "--size", "512M"]);
        let mut disk = Disk { place, server: None, device: String::new() };
        disk.serve();
        if disk.device.is_empty() {
            println!("SKIP: losetup cannot make a disk here");
            return None;
        }
        if !runs("mkfs.ext4", &["-q", &disk.device]) {
            println!("SKIP: mkfs.ext4 is not there");
            return None;
        }
        disk.mount();
        Some(disk)
    }

    fn path(&self, name: &str) -> String {
        self.place.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&mut self) {
        let args = ["volume", "serve", "disk", "--fuse", "fuse", "--loop"];
        let mut command = self.place.command(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut device, out) = (String::new(), child.stdout.take().unwrap());
        BufReader::new(out).read_line(&mut device).unwrap();
        (self.server, self.device) = (Some(Served(child)), device.trim().to_owned());
    }

    fn mount(&self) {
        assert!(runs("mount", &[&self.device, &self.path("at")]));
    }

    /// Ends the server without a word while the file system is mounted.
    fn kill(&mut self) {
        self.server.take().unwrap().end("-KILL");
    }

    /// Takes away what is left of it.
    fn take_away(&self) {
        let _ = runs("umount", &["-l", &self.path("at")]);
        let _ = runs("losetup", &["-d", &self.device]);
        assert!(runs("umount", &["-l", &self.path("fuse")]));
    }

    /// After that: what the volume says of itself, and what e2fsck says of the file system, which is mounted again.
    fn recover(&mut self) {
        self.take_away();
        self.place.ok(&["volume", "check", "disk"]);
        self.serve();
        // 1: the journal was played back.
        let checked = Command::new("e2fsck").args(["-p", &self.device]).output().unwrap();
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
        self.mount();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
            self.take_away();
        }
    }
}

/// How often a server is killed: `FICHE_KILLS` asks for others.
fn kills(few: usize) -> usize {
    std::env::var("FICHE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

#[test]
fn a_file_system_is_whole_when_its_server_was_killed() {
    let place = Place::new();
    let Some(mut disk) = Disk::new(&place) else { return };
    let at = disk.path("at");
    let text: String = (0..100_000).map(|i| format!("line {i} of a file\n")).collect();
    for round in 0..kills(3) {
        // Eight of them: the disk is not to become full.
        for i in round.saturating_sub(8)..round {
            let kept = std::fs::read_to_string(format!("{at}/kept{i}")).unwrap();
            assert!(kept == text, "round {round}: kept{i}");
        }
        let kept = format!("{at}/kept{round}");
        std::fs::write(&kept, &text).unwrap();
        std::fs::File::open(&kept).unwrap().sync_all().unwrap();
        let _ = std::fs::remove_file(format!("{at}/kept{}", round.wrapping_sub(9)));
        std::fs::File::open(&at).unwrap().sync_all().unwrap();
        std::fs::write(format!("{at}/lost"), &text).unwrap();
        disk.kill();
        disk.recover();
    }
}

#[test]
fn what_sqlite_committed_is_there_when_the_server_was_killed() {
    let place = Place::new();
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("SKIP: sqlite3 is not there");
        return;
    }
    let Some(mut disk) = Disk::new(&place) else { return };
    let file = format!("{}/db", disk.path("at"));
    let ask = |sql: &str| {
        let output = Command::new("sqlite3").args([&file, sql]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    ask("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB);");
    let mut committed = 0;
    for round in 0..kills(3) {
        let mut child = Command::new("sqlite3")
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let asking = std::thread::spawn(move || {
            let _ = writeln!(input, "PRAGMA synchronous = FULL;");
            for n in committed + 1..committed + 100_000 {
                // Each is a transaction of its own, and said when it is committed.
                let insert = format!("INSERT INTO t VALUES ({n}, randomblob({}));", n * 37 % 9000);
                if writeln!(input, "{insert} SELECT {n};").is_err() {
                    return;
                }
            }
        });
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = committed + 40 + round as u64 * 7 % 60;
        while committed < enough {
            committed = told.next().expect("sqlite3 ended").unwrap().parse().unwrap();
        }
        disk.kill();
        // What it said until it noticed.
        committed =
            told.map_while(Result::ok).filter_map(|n| n.parse().ok()).fold(committed, u64::max);
        let _ = child.kill();
        let _ = child.wait();
        asking.join().unwrap();
        disk.recover();
        assert_eq!(ask("PRAGMA integrity_check;"), "ok", "round {round}");
        let found = ask("SELECT count(*), max(n) FROM t;");
        let (count, last) = found.split_once('|').unwrap();
        assert_eq!(count, last, "round {round}: rows are missing");
        let last: u64 = last.parse().unwrap();
        assert!(last >= committed, "round {round}: {committed} were committed, {last} are there");
        committed = last;
    }
}

#[test]
fn what_postgresql_committed_is_there_when_the_server_was_killed() {
    let place = Place::new();
    let folders = std::fs::read_dir("/usr/lib/postgresql").ok();
    let bin = folders.and_then(|mut f| f.next()?.ok()).map(|version| version.path().join("bin"));
    let Some(bin) = bin.filter(|bin| bin.join("initdb").exists()) else {
        println!("SKIP: PostgreSQL is not there");
        return;
    };
    let Some(mut disk) = Disk::new(&place) else { return };
    let (data, sockets) = (format!("{}/data", disk.path("at")), disk.path("sockets"));
    // It does not run as root.
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(user).arg(bin.join(program)).args(args).env("PGHOST", &sockets);
        command.env("LC_ALL", "C").current_dir("/");
        command
    };
    let chown = |path: &str| assert!(runs("chown", &["65534:65534", path]));
    // Whoever runs as somebody else has to come by.
    assert!(runs("chmod", &["a+x", place.path(".").to_str().unwrap()]));
    for folder in [&data, &sockets] {
        std::fs::create_dir(folder).unwrap();
        chown(folder);
    }
    let made = run("initdb", &["-D", &data, "-A", "trust", "-U", "postgres"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let options = format!("-k {sockets} -c listen_addresses=''");
    let start = || {
        let log = format!("{sockets}/log");
        let args = ["-D", &data, "-o", &options, "-l", &log, "-w", "-t", "60", "start"];
        let started = run("pg_ctl", &args).output().unwrap();
        let log = || std::fs::read_to_string(&log).unwrap_or_default();
        if started.status.success() { Ok(()) } else { Err(format!("{started:?} {}", log())) }
    };
    let ask = |sql: &str| {
        let args = ["-U", "postgres", "-Atq", "-v", "ON_ERROR_STOP=1", "-c", sql];
        let output = run("psql", &args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    start().unwrap();
    ask("CREATE TABLE t (n bigint PRIMARY KEY, x text)");
    let mut committed = 0;
    for round in 0..kills(2).min(50) {
        let mut child = run("psql", &["-U", "postgres", "-Atq"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let asking = std::thread::spawn(move || {
            for n in committed + 1..committed + 100_000 {
                let text = format!("repeat(md5('{n}'), {})", n * 37 % 200);
                let insert = format!("INSERT INTO t VALUES ({n}, {text}) RETURNING n;");
                if writeln!(input, "{insert}").is_err() {
                    return;
                }
            }
        });
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = committed + 100 + round as u64 * 7 % 60;
        while committed < enough {
            committed = told.next().expect("psql ended").unwrap().parse().unwrap();
        }
        let pid = std::fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
        disk.kill();
        let _ = runs("kill", &["-KILL", pid.lines().next().unwrap()]);
        committed =
            told.map_while(Result::ok).filter_map(|n| n.parse().ok()).fold(committed, u64::max);
        let _ = child.kill();
        let _ = child.wait();
        asking.join().unwrap();
        disk.recover();
        for old in [format!("{data}/postmaster.pid"), format!("{sockets}/.s.PGSQL.5432.lock")] {
            let _ = std::fs::remove_file(old);
        }
        // Its other processes notice that their head is gone, and take a moment to end.
        let mut started = start();
        for _ in 0..20 {
            if started.is_err() {
                std::thread::sleep(Duration::from_millis(300));
                started = start();
            }
        }
        started.unwrap_or_else(|why| panic!("round {round}: {why}"));
        let found = ask(
            "SELECT count(*), max(n), sum((x = repeat(md5(n::text), (n * 37 % 200)::int))::int) FROM t",
        );
        let numbers: Vec<u64> = found.split('|').map(|n| n.parse().unwrap()).collect();
        assert!(numbers.iter().all(|&n| n == numbers[0]), "round {round}: {found}");
        assert!(numbers[0] >= committed, "round {round}: {committed} were committed: {found}");
        committed = numbers[0];
        for sql in ["REINDEX TABLE t", "VACUUM t", "CHECKPOINT"] {
            ask(sql);
        }
    }
    let _ = run("pg_ctl", &["-D", &data, "-m", "immediate", "stop"]).output();
}
