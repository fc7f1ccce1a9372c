//! `fiche volume` as people use it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A server of a volume that ends when it is dropped.
struct Served(Child);

impl Served {
    fn new(place: &Place, file: &str) -> Served {
        let socket = place.path("socket");
        let mut command = place.command(&["volume", "serve", file, "--nbd", "./socket"]);
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
    let only_reads = commands.iter().all(|command| command.starts_with("read"));
    let uri = format!("nbd+unix:///?socket={}", place.path("socket").display());
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
fn archives_and_streams_are_served_for_reading() {
    let place = Place::new();
    std::fs::write(place.path("text"), vec![b'x'; 100_000]).unwrap();
    place.ok(&["pack", "text", "-o", "a.fiche"]);
    let server = Served::new(&place, "a.fiche");
    io(&place, &["read -P 120 0 99840"]);
    assert_eq!(server.end("-TERM"), Some(0));
}

/// Runs a program; whether it succeeded.
fn runs(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_file_system_is_whole_when_its_server_was_killed() {
    if !std::path::Path::new("/dev/fuse").exists() {
        println!("SKIP: mounting: no /dev/fuse");
        return;
    }
    let place = Place::new();
    for name in ["fuse", "at"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let (fuse, at) = (place.path("fuse"), place.path("at"));
    let (fuse, at) = (fuse.to_str().unwrap(), at.to_str().unwrap());
    place.ok(&["volume", "create", "disk", "--size", "256M"]);
    let text: String = (0..100_000).map(|i| format!("line {i} of a file\n")).collect();
    for round in 0..4 {
        let mut command = place.command(&["volume", "serve", "disk", "--fuse", "fuse", "--loop"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut device = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut device).unwrap();
        let server = Served(child);
        let device = device.trim();
        if device.is_empty() {
            println!("SKIP: losetup cannot make a disk here");
            return;
        }
        if round == 0 && !runs("mkfs.ext4", &["-q", device]) {
            println!("SKIP: mkfs.ext4 is not there");
            return;
        }
        // 1: the journal was played back.
        let checked = Command::new("e2fsck").args(["-p", device]).output().unwrap();
        assert!(matches!(checked.status.code(), Some(0 | 1)), "round {round}: {checked:?}");
        assert!(runs("mount", &[device, at]), "round {round}");
        for i in 0..round {
            let kept = std::fs::read_to_string(format!("{at}/kept{i}")).unwrap();
            assert!(kept == text, "round {round}: kept{i}");
        }
        let kept = format!("{at}/kept{round}");
        std::fs::write(&kept, &text).unwrap();
        std::fs::File::open(&kept).unwrap().sync_all().unwrap();
        std::fs::File::open(at).unwrap().sync_all().unwrap();
        std::fs::write(format!("{at}/lost{round}"), &text).unwrap();
        // Without a word, while the file system is mounted.
        server.end("-KILL");
        assert!(runs("umount", &["-l", at]));
        let _ = runs("losetup", &["-d", device]);
        assert!(runs("umount", &["-l", fuse]));
        place.ok(&["volume", "check", "disk"]);
    }
}
