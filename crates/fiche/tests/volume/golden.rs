//! Volumes in golden/ stay readable: good ones hold what their manifests say, bad ones give their named errors. `make bless` writes
//! what is missing and never replaces a file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::*;

fn golden(folder: &str) -> PathBuf {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    root.join(folder).join("volumes")
}

fn blessing() -> bool {
    std::env::var_os("FICHE_BLESS").is_some()
}

/// The size, and of each run of blocks that are not zero the first, how many, and a digest.
fn manifest(bytes: &[u8]) -> String {
    let mut lines = format!("size {}\n", bytes.len());
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
    let mut at = 0;
    for run in blocks.chunk_by(|a, b| a.iter().all(|&x| x == 0) == b.iter().all(|&x| x == 0)) {
        let first = at;
        at += run.len();
        if run[0].iter().any(|&byte| byte != 0) {
            let digest = Sha256::digest(&bytes[first * BLOCK..at * BLOCK]);
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(lines, "{first} {} {hex}", run.len()).unwrap();
        }
    }
    lines
}

fn small(blocks: u64) -> Options {
    Options::new(blocks * BLOCK as u64).segment_bits(16)
}

/// Writes of all kinds, over one another.
fn fill(volume: &Volume, seed: u64, times: u64) {
    let mut random = Random(seed);
    for _ in 0..times {
        let ask = ask(&mut random, volume.len() / BLOCK as u64);
        run(volume, &ask).unwrap();
    }
}

/// A volume that was closed, and one whose machine stopped.
fn made(options: Options, seed: u64, times: u64) -> [Vec<u8>; 2] {
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), options).unwrap();
    fill(&volume, seed, times);
    volume.flush().unwrap();
    let stopped = device.bytes();
    drop(volume);
    [device.bytes(), stopped]
}

fn good() -> Vec<(&'static str, Vec<u8>)> {
    let codec = |codec: Codec, unit: usize| small(60).codec(codec).unit(unit * BLOCK);
    let [zstd, stopped] = made(codec(Codec::Zstd, 4), 1, 25);
    let [lz4, _] = made(codec(Codec::Lz4, 8), 2, 25);
    let [zlib, _] = made(codec(Codec::Deflate, 1), 3, 25);
    let [copy, _] = made(codec(Codec::Copy, 4), 4, 10);
    let [lzo, _] = made(codec(Codec::Lzo, 4), 9, 10);
    let [cleaned, cleaned_and_stopped] = made(codec(Codec::Lz4, 4), 5, 200);
    let [empty, _] = made(small(1), 6, 0);
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), small(100)).unwrap();
    fill(&volume, 7, 20);
    volume.resize(9000 * BLOCK as u64, Some(4 << 20)).unwrap();
    volume.write_at(1024 * BLOCK as u64 - 5, b"on both sides of a border").unwrap();
    volume.write_at(2299 * BLOCK as u64 + 5, b"far away").unwrap();
    volume.resize(2300 * BLOCK as u64, None).unwrap();
    volume.trim().unwrap();
    drop(volume);
    // Both heads of the log, of which each goes through several segments.
    let tended = TracedDevice::default();
    let volume = Volume::create(tended.clone(), codec(Codec::Lz4, 2)).unwrap();
    for seed in 8..12 {
        fill(&volume, seed, 60);
        while volume.tend(true).unwrap() {}
    }
    fill(&volume, 12, 90);
    // Its machine stops behind something that was moved and something that was written.
    let moved = volume.stats().moved_len;
    while volume.stats().moved_len == moved {
        assert!(volume.tend(true).unwrap(), "there is something to move");
    }
    fill(&volume, 13, 9);
    volume.flush().unwrap();
    let tended_and_stopped = tended.bytes();
    drop(volume);
    // Snapshots of it as it was shorter, and of nothing; its machine stops, or not.
    let kept = TracedDevice::default();
    let volume = Volume::create(kept.clone(), codec(Codec::Lz4, 2)).unwrap();
    volume.take_snapshot("of nothing").unwrap();
    fill(&volume, 14, 40);
    volume.take_snapshot("gone").unwrap();
    fill(&volume, 15, 40);
    volume.take_snapshot("first, \u{e4}lter").unwrap();
    volume.delete_snapshot("gone").unwrap();
    volume.resize(1100 * BLOCK as u64, None).unwrap();
    volume.write_at(1099 * BLOCK as u64, b"behind a border").unwrap();
    volume.take_snapshot("second").unwrap();
    fill(&volume, 16, 60);
    volume.flush().unwrap();
    let kept_and_stopped = kept.bytes();
    while volume.tend(true).unwrap() {}
    drop(volume);
    // Segments to which the map of the superblock leads were written over, since the log says otherwise.
    let again = TracedDevice::default();
    let options = small(150).codec(Codec::Copy).unit(BLOCK).capacity(24 << 16);
    let volume = Volume::create(again.clone(), options).unwrap();
    let mut random = Random(17);
    let mut stored = volume.stats();
    for i in 0..20_000 {
        assert!(i < 19_999, "no segment is written again before the map is stored");
        let at = if i < 150 { i } else { random.below(150) } * BLOCK as u64;
        volume.write_at(at, &random.bytes(BLOCK)).unwrap();
        while volume.tend(false).unwrap() {}
        let stats = volume.stats();
        if stats.checkpoints > stored.checkpoints {
            stored = stats;
        } else if i > 600 && stats.cleaned > stored.cleaned + 6 {
            break;
        }
    }
    volume.flush().unwrap();
    let reused_and_stopped = again.bytes();
    drop(volume);
    // With a dictionary of what it holds; its machine stops when it has just been trained, or not.
    let taught = TracedDevice::default();
    let volume = Volume::create(taught.clone(), small(220).unit(BLOCK)).unwrap();
    let mut random = Random(18);
    volume.write_at(0, &dictionary::sentences(&mut random, 0, 200)).unwrap();
    while volume.stats().dictionaries == 0 {
        assert!(volume.tend(true).unwrap(), "there is something to train from");
    }
    volume.write_at(190 * BLOCK as u64, &dictionary::sentences(&mut random, 0, 20)).unwrap();
    volume.flush().unwrap();
    let taught_and_stopped = taught.bytes();
    while volume.tend(true).unwrap() {}
    drop(volume);
    // Clones of snapshots, and one of a clone's; its machine stops, or not.
    let cloned = TracedDevice::default();
    let volume = Volume::create(cloned.clone(), codec(Codec::Lz4, 2)).unwrap();
    let volume = Arc::new(volume);
    fill(&volume, 19, 60);
    volume.take_snapshot("first").unwrap();
    for name in ["as it is", "gone", "written, \u{e4}lter"] {
        volume.clone_snapshot("first", name).unwrap();
    }
    volume.delete_clone("gone").unwrap();
    let mut random = Random(20);
    let write = |name: &str, block: u64, bytes: &[u8]| {
        let clone = volume.writable_clone(name).unwrap();
        clone.write_at(block * BLOCK as u64, bytes).unwrap();
        clone
    };
    drop(write("written, \u{e4}lter", 5, &random.text(7 * BLOCK)));
    fill(&volume, 21, 30);
    let clone = write("written, \u{e4}lter", 0, &random.bytes(3000));
    clone.discard_at(8 * BLOCK as u64, 9 * BLOCK as u64).unwrap();
    clone.take_snapshot("of a clone").unwrap();
    drop(clone);
    volume.clone_snapshot("of a clone", "of a clone's").unwrap();
    drop(write("of a clone's", 12, &random.text(4 * BLOCK)));
    drop(write("written, \u{e4}lter", 12, &random.text(2 * BLOCK)));
    volume.flush().unwrap();
    let cloned_and_stopped = cloned.bytes();
    while volume.tend(true).unwrap() {}
    drop(volume);
    vec![
        ("clones", cloned.bytes()),
        ("clones-log", cloned_and_stopped),
        ("trained", taught.bytes()),
        ("trained-log", taught_and_stopped),
        ("snapshots", kept.bytes()),
        ("snapshots-log", kept_and_stopped),
        ("reused-log", reused_and_stopped),
        // Twice: the first was made before it was told what is still to be packed.
        ("tended", tended.bytes()),
        ("unpacked", tended.bytes()),
        ("tended-log", tended_and_stopped),
        ("zstd", zstd),
        ("log", stopped),
        ("lz4", lz4),
        ("zlib", zlib),
        ("copy", copy),
        ("lzo", lzo),
        ("cleaned", cleaned),
        ("cleaned-log", cleaned_and_stopped),
        ("empty", empty),
        ("levels", device.bytes()),
    ]
}

/// Where the newest superblock is (the first of it), and a word of it.
pub fn newest(bytes: &[u8]) -> usize {
    let generation = |at: usize| word(bytes, at + 16);
    if generation(4096) > generation(8192) { 4096 } else { 8192 }
}

pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let [closed, stopped] = made(small(60).codec(Codec::Lz4), 8, 20);
    let superblock = newest(&closed);
    let (map, usage) = (word(&closed, superblock + 64), word(&closed, superblock + 72));
    let with = |bytes: &[u8], places: &[usize]| {
        let mut bytes = bytes.to_vec();
        places.iter().for_each(|&place| bytes[place] ^= 0x10);
        bytes
    };
    let mut version = closed.clone();
    version[8] += 1;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &version[..16]) as u32;
    version[16..20].copy_from_slice(&sum.to_le_bytes());
    let kept = good().into_iter().find(|(name, _)| *name == "snapshots").unwrap().1;
    let list = word(&kept, newest(&kept) + 88) as usize;
    let entry = |at: usize| {
        let mut place = [0; 8];
        place[..5].copy_from_slice(&kept[list + 16 + 5 * at..][..5]);
        u64::from_le_bytes(place) as usize * 8
    };
    let cloned = good().into_iter().find(|(name, _)| *name == "clones").unwrap().1;
    let clones = word(&cloned, newest(&cloned) + 104) as usize;
    let trained = good().into_iter().find(|(name, _)| *name == "trained").unwrap().1;
    let is_copy = |at: &usize| trained[*at..].starts_with(&dictionary::MAGIC);
    let copies: Vec<usize> = (0..trained.len()).filter(is_copy).map(|at| at + 1000).collect();
    let both: Vec<usize> = [4096, 8192, 12_288, 16_384].iter().map(|at| at + 30).collect();
    let last = newest(&stopped);
    let is_read = |at: &usize| {
        let volume = Volume::open(TracedDevice::holding(with(&closed, &[*at])));
        volume.is_ok_and(|volume| volume.read_at(0, &mut vec![0; 60 * BLOCK]).is_err())
    };
    let unit = (1 << 16..closed.len()).step_by(24).find(is_read).unwrap();
    vec![
        ("flip-in-all-superblocks", with(&closed, &both)),
        ("flip-in-header", with(&closed, &[9])),
        ("flip-in-map", with(&closed, &[map as usize + 20])),
        ("flip-in-unit", with(&closed, &[unit])),
        ("flip-in-usage", with(&closed, &[usage as usize + 17])),
        ("flip-in-snapshots", with(&kept, &[list + 17])),
        ("flip-in-snapshot", with(&kept, &[entry(1) + 20])),
        ("flip-in-dictionary", with(&trained, &copies)),
        ("flip-in-clones", with(&cloned, &[clones + 25])),
        ("cut", closed[..closed.len() - 1].to_vec()),
        ("cut-in-superblocks", closed[..10_000].to_vec()),
        ("newest-superblock-lost", with(&stopped, &[last + 30, last + 8192 + 30])),
        ("newer-version", version),
    ]
}

#[test]
fn good_volumes_hold_what_their_manifests_say() {
    let folder = golden("v1");
    if blessing() {
        fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in good() {
            let path = folder.join(name).with_extension("fiche");
            if !path.exists() {
                let volume = Volume::open(TracedDevice::holding(bytes.clone())).unwrap();
                fs::write(path.with_extension("blocks"), manifest_of(volume)).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
    }
    let mut found = 0;
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "fiche") {
            continue;
        }
        let device = TracedDevice::holding(fs::read(&path).unwrap());
        let told = fs::read_to_string(path.with_extension("blocks")).unwrap();
        let volume = Volume::open(device.clone()).unwrap();
        check(&volume);
        let device = TracedDevice::holding(device.bytes());
        assert_eq!(manifest_of(volume), told, "{}", path.display());
        let volume = Volume::open(device.clone()).unwrap();
        // And when it was written on.
        fill(&volume, 99, 30);
        let after = manifest_of(volume);
        let (volume, _) = Volume::repair(device).unwrap();
        assert_eq!(manifest_of(volume), after, "{}", path.display());
        found += 1;
    }
    assert!(found >= 9, "{found} golden volumes");
}

/// Of a volume, its snapshots and its clones.
fn manifest_of(volume: Volume) -> String {
    let mut text = manifest(&content_of(&volume));
    let volume = Arc::new(volume);
    for info in volume.snapshots() {
        let snapshot = volume.snapshot(&info.name).unwrap();
        let mut bytes = vec![0; snapshot.len() as usize];
        snapshot.read_at(0, &mut bytes).unwrap();
        writeln!(text, "snapshot {}", info.name).unwrap();
        text += &manifest(&bytes);
    }
    for info in volume.clones() {
        let clone = volume.writable_clone(&info.name).unwrap();
        let mut bytes = vec![0; clone.len() as usize];
        clone.read_at(0, &mut bytes).unwrap();
        writeln!(text, "clone {}", info.name).unwrap();
        text += &manifest(&bytes);
    }
    text
}

/// All of a volume, but for the middle of one that is very long, which is zero.
fn content_of(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; volume.len() as usize];
    let mut at = 0;
    while at < volume.len() {
        let (len, is_zero) = volume.run_at(at).unwrap();
        if !is_zero {
            volume.read_at(at, &mut bytes[at as usize..(at + len) as usize]).unwrap();
        }
        at += len;
    }
    bytes
}

#[test]
fn volumes_written_now_hold_what_the_golden_ones_do() {
    for (name, bytes) in good() {
        // How much is written to this one depends on when its segments are cleaned.
        if name == "reused-log" {
            continue;
        }
        let volume = Volume::open(TracedDevice::holding(bytes)).unwrap();
        let told = fs::read_to_string(golden("v1").join(name).with_extension("blocks")).unwrap();
        assert_eq!(manifest_of(volume), told, "{name}");
    }
}

/// What one is told who reads all of it.
fn outcome(bytes: Vec<u8>) -> String {
    let read = Volume::open(TracedDevice::holding(bytes))
        .and_then(|volume| volume.read_at(0, &mut vec![0; volume.len() as usize]));
    read.err().map_or_else(|| "nothing is wrong".into(), |error| error.to_string())
}

#[test]
fn bad_volumes_give_their_named_errors() {
    let (folder, list) = (golden("bad"), golden("bad").join("ERRORS"));
    if blessing() {
        fs::create_dir_all(&folder).unwrap();
        let mut errors = fs::read_to_string(&list).unwrap_or_default();
        for (name, bytes) in bad() {
            let path = folder.join(name).with_extension("fiche");
            if !path.exists() {
                writeln!(errors, "{name}: {}", outcome(bytes.clone())).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
        fs::write(&list, errors).unwrap();
    }
    let errors = fs::read_to_string(list).unwrap();
    let errors: BTreeMap<&str, &str> =
        errors.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert!(errors.len() >= 9);
    for (name, told) in errors {
        let bytes = fs::read(folder.join(name).with_extension("fiche")).unwrap();
        assert_eq!(outcome(bytes), told, "{name}");
        assert_ne!(told, "nothing is wrong", "{name}");
    }
}
