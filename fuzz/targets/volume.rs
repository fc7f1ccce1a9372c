//! A volume that somebody made up: values of a real one changed, nodes of the map of any content, and checksums made right afterwards,
//! so that what they would have caught is caught by what reads it. And what is asked of a real one, against an array.
#![no_main]

use std::sync::{Arc, OnceLock};

use crc_fast::{CrcAlgorithm, checksum};
use fiche::codec::Codec;
use fiche::testing::{Random, TracedDevice};
use fiche::volume::{Options, Volume, describe};
use fiche::{ReadAt, WriteAt};

const BLOCK: usize = 4096;
const SEGMENT: usize = 1 << 16;
const SUPERBLOCKS: [usize; 4] = [4096, 8192, 12_288, 16_384];
/// Room that the device has.
const LIMIT: u64 = 16 << 20;

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, &parts.concat()) as u32).to_le_bytes()
}

fn low(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte))
}

/// Of each extent where it is, and where its fragments are, as far as their lengths make sense.
fn extents(bytes: &[u8]) -> Vec<(usize, Vec<(usize, usize)>)> {
    let mut found = Vec::new();
    for segment in (SEGMENT..bytes.len()).step_by(SEGMENT) {
        let (mut at, end) = (segment, (segment + SEGMENT).min(bytes.len()));
        while at + 24 <= end && bytes[at..at + 24].iter().any(|&byte| byte != 0) {
            let len = low(&bytes[at + 4..at + 8]);
            let (mut fragment, mut fragments) = (at + 24, Vec::new());
            let last = at.saturating_add(24).saturating_add(len).min(end);
            for _ in 0..low(&bytes[at + 16..at + 18]) {
                if fragment + 16 > last {
                    break;
                }
                let next = fragment + 16 + low(&bytes[fragment + 12..fragment + 15]);
                fragments.push((fragment, next.min(end)));
                fragment = next.next_multiple_of(8);
            }
            found.push((at, fragments));
            at = last.next_multiple_of(8);
        }
    }
    found
}

/// Makes all checksums right.
fn seal(bytes: &mut [u8]) {
    let tag: [u8; 4] = bytes[SUPERBLOCKS[0] + 12..][..4].try_into().expect("four");
    for at in SUPERBLOCKS {
        bytes[at..at + 8].copy_from_slice(b"fichevol");
        bytes[at + 12..at + 16].copy_from_slice(&tag);
        let sum = crc(&[&(at as u64).to_le_bytes(), &bytes[at + 12..at + 120]]);
        bytes[at + 8..at + 12].copy_from_slice(&sum);
    }
    for (at, fragments) in extents(bytes) {
        for (from, to) in fragments {
            let sum = crc(&[&tag, &bytes[from + 4..to]]);
            bytes[from..from + 4].copy_from_slice(&sum);
        }
        let sum = crc(&[&tag, &(at as u64).to_le_bytes(), &bytes[at + 4..at + 24]]);
        bytes[at..at + 4].copy_from_slice(&sum);
    }
}

/// Some real ones: closed, with a log to be read, cleaned, with maps of one level and of two, with snapshots and clones.
fn real() -> &'static [Vec<u8>] {
    static REAL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    REAL.get_or_init(|| {
        let mut all = Vec::new();
        for (codec, blocks, writes) in [
            (Codec::Lz4, 60, 20),
            (Codec::Zstd, 1500, 40),
            (Codec::Copy, 30, 200),
            (Codec::Deflate, 200, 30),
        ] {
            let device = TracedDevice::default();
            let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(codec);
            let volume = Volume::create(device.clone(), options).expect("a volume");
            let volume = Arc::new(volume);
            let mut random = Random(blocks);
            for i in 0..writes {
                let at = random.below(blocks - 3) * BLOCK as u64;
                match i % 5 {
                    0 => volume.zero_at(at, 2 * BLOCK as u64),
                    1 => volume.write_at(at, &[7; 3 * BLOCK]),
                    2 => volume.write_at(at + 5, &random.text(5000)),
                    _ => volume.write_at(at, &random.text(2 * BLOCK)),
                }
                .expect("writing");
                if writes < 50 && i % 12 == 11 {
                    volume.take_snapshot(&i.to_string()).expect("a snapshot");
                }
                // One that is written, and one that was deleted.
                if writes == 40 && i == 23 {
                    for name in ["clone", "gone"] {
                        volume.clone_snapshot("11", name).expect("a clone");
                        let clone = volume.writable_clone(name).expect("the clone");
                        clone.write_at(9000, &random.text(9000)).expect("writing");
                    }
                    volume.delete_clone("gone").expect("deleting");
                }
            }
            volume.flush().expect("flushing");
            let stopped = device.bytes();
            drop(volume);
            all.extend([stopped, device.bytes()]);
        }
        all.extend(trained());
        all
    })
}

/// One that has a dictionary of what it holds: when it has just been trained, and closed.
fn trained() -> [Vec<u8>; 2] {
    let device = TracedDevice::default();
    let options = Options::new(220 * BLOCK as u64).segment_bits(16).unit(BLOCK);
    let volume = Volume::create(device.clone(), options).expect("a volume");
    let mut random = Random(11);
    let sentences: Vec<Vec<u8>> = (0..40).map(|_| random.text(80)).collect();
    let mut bytes = Vec::new();
    while bytes.len() < 200 * BLOCK {
        bytes.extend(&sentences[random.below(40) as usize]);
        bytes.extend(random.bytes(9));
    }
    volume.write_at(0, &bytes[..200 * BLOCK]).expect("writing");
    while volume.stats().dictionaries == 0 && volume.tend(true).expect("training") {}
    assert_eq!(volume.stats().dictionaries, 1);
    volume.write_at(0, &bytes[..20 * BLOCK]).expect("writing");
    volume.flush().expect("flushing");
    let stopped = device.bytes();
    while volume.tend(true).expect("packing") {}
    drop(volume);
    [stopped, device.bytes()]
}

/// Puts a node of the map of any content into a segment of its own, and lets a superblock lead there.
fn graft(bytes: &mut Vec<u8>, content: &[u8], level: u8) {
    let at = bytes.len().next_multiple_of(SEGMENT);
    bytes.resize(at + SEGMENT, 0);
    let mut stored = vec![0, 0];
    stored.extend(&content[..content.len().min(3000)]);
    // Differences of nothing up to its end.
    let values = stored[2..].iter().filter(|byte| **byte < 0x80).count();
    stored.resize(stored.len() + 1024usize.saturating_sub(values), 0);
    let mut fragment = vec![0; 16];
    fragment[9] = level % 4 + 1;
    fragment[12..15].copy_from_slice(&(stored.len() as u32).to_le_bytes()[..3]);
    fragment[15] = 32;
    fragment.extend(stored);
    fragment.resize(fragment.len().next_multiple_of(8), 0);
    bytes[at + 4..at + 8].copy_from_slice(&(fragment.len() as u32).to_le_bytes());
    bytes[at + 16] = 1;
    bytes[at + 24..at + 24 + fragment.len()].copy_from_slice(&fragment);
    let segments = (bytes.len() / SEGMENT) as u32;
    for superblock in SUPERBLOCKS {
        bytes[superblock + 40..superblock + 44].copy_from_slice(&segments.to_le_bytes());
        let map = (at + 24) as u64;
        bytes[superblock + 64..superblock + 72].copy_from_slice(&map.to_le_bytes());
    }
}

fn use_snapshots(volume: &Arc<Volume>) {
    let _ = volume.take_snapshot("now");
    for info in volume.snapshots().into_iter().take(8) {
        if let Ok(snapshot) = volume.snapshot(&info.name) {
            let mut buf = vec![0; snapshot.len().min(1 << 20) as usize];
            let _ = snapshot.read_at(0, &mut buf);
            let _ = snapshot.run_at(snapshot.len() / 2);
        }
    }
    for info in volume.clones().into_iter().take(8) {
        if let Ok(clone) = volume.writable_clone(&info.name) {
            let mut buf = vec![0; clone.len().min(1 << 20) as usize];
            let _ = clone.read_at(0, &mut buf);
            let _ = clone.write_at(clone.len() / 2, &[5; 2000]);
            let _ = clone.discard_at(0, clone.len().min(1 << 20));
            let _ = clone.take_snapshot("of a clone");
        }
        let _ = volume.delete_clone(&info.name);
    }
    let _ = volume.clone_snapshot("now", "new");
    let _ = volume.writable_clone("new").map(|clone| clone.write_at(0, &[6; 5000]));
    for _ in 0..20 {
        let _ = volume.tend(true);
    }
    let names: Vec<String> = volume.snapshots().into_iter().map(|info| info.name).collect();
    let _ = names.first().map(|name| volume.restore_snapshot(name));
    let _ = volume.check();
    let _ = names.last().map(|name| volume.delete_snapshot(name));
}

fn use_all(volume: &Volume) {
    let len = volume.len();
    let mut buf = vec![0; len.min(1 << 20) as usize];
    for offset in [0, len / 2, len - buf.len() as u64] {
        let room = buf.len().min((len - offset) as usize);
        let _ = volume.read_at(offset, &mut buf[..room]);
        let _ = volume.run_at(offset);
    }
    let _ = volume.check();
    for i in 0..12u64 {
        let at = len / 12 * i / 4096 * 4096;
        let room = (len - at).min(9000) as usize;
        let _ = volume.write_at(at, &vec![i as u8 + 1; room]);
        let _ = volume.discard_at(at, room as u64);
        let _ = volume.write_at(at + 3, &vec![i as u8 + 1; room - 3]);
    }
    let _ = volume.flush();
    let _ = volume.trim();
    let _ = volume.resize(len + (1 << 20), None);
    let _ = volume.check();
}

fn made_up(bytes: &[u8]) {
    let [which, patches, rest @ ..] = bytes else { return };
    let images = real();
    let mut image = images[usize::from(*which) % images.len()].clone();
    if which & 0x80 != 0 {
        graft(&mut image, rest, which >> 5);
    }
    // Where values are: in superblocks, heads and what is behind them.
    let mut places: Vec<usize> = SUPERBLOCKS.iter().flat_map(|&at| at + 16..at + 112).collect();
    for (at, fragments) in extents(&image) {
        places.extend(at + 4..at + 24);
        places.extend(fragments.iter().flat_map(|&(from, to)| from + 4..to.min(from + 40)));
    }
    for patch in rest.chunks_exact(4).take(usize::from(*patches) % 32) {
        let at = places[low(&patch[..3]) % places.len()];
        image[at] = patch[3];
    }
    seal(&mut image);
    let _ = describe(&image);
    for is_repair in [false, true] {
        let device = TracedDevice::holding(image.clone());
        device.set_limit(Some(LIMIT));
        let opened = match is_repair {
            false => Volume::open(device.clone()),
            true => Volume::repair(device.clone()).map(|(volume, _)| volume),
        };
        let Ok(volume) = opened else { continue };
        use_all(&volume);
        let volume = Arc::new(volume);
        use_snapshots(&volume);
        drop(volume);
        if let Ok(volume) = Volume::open(device) {
            let _ = volume.check();
        }
    }
}

/// What is asked of a volume, and of an array.
fn asked(bytes: &[u8]) {
    let mut blocks = 50;
    let device = TracedDevice::default();
    let codecs = [Codec::Lz4, Codec::Copy, Codec::Zstd, Codec::Deflate, Codec::Lzo];
    let [codec, rest @ ..] = bytes else { return };
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16);
    let options = options
        .codec(codecs[usize::from(*codec) % 5])
        .unit((usize::from(*codec) / 4 % 8 + 1) * BLOCK);
    let mut volume = Volume::create(device.clone(), options).expect("a volume");
    let mut model = vec![0; blocks as usize * BLOCK];
    let mut random = Random(u64::from(*codec));
    for ask in rest.chunks_exact(4).take(200) {
        let offset = low(&ask[1..3]) as u64 * 8 % model.len() as u64;
        let len = (usize::from(ask[3]) * 100 + 1).min(model.len() - offset as usize);
        let range = offset as usize..offset as usize + len;
        let aligned = offset / 4096 * 4096;
        match ask[0] % 16 {
            0 => volume.flush().expect("flushing"),
            1 => {
                volume.zero_at(offset, len as u64).expect("zeros");
                model[range].fill(0);
            }
            2 => {
                volume.discard_at(aligned, 4096).expect("discarding");
                model[aligned as usize..][..4096].fill(0);
            }
            3 => volume.trim().expect("trimming"),
            4 => {
                blocks = 1 + low(&ask[1..3]) as u64 % 2000;
                let len = blocks as usize * BLOCK;
                if len < model.len() {
                    volume.zero_at(len as u64, (model.len() - len) as u64).expect("zeros");
                }
                volume.resize(len as u64, None).expect("resizing");
                model.resize(len, 0);
            }
            5 => {
                drop(volume);
                volume = Volume::open(device.clone()).expect("opening");
            }
            6 => {
                volume.flush().expect("flushing");
                let stopped = TracedDevice::holding(device.bytes());
                let found = Volume::open(stopped).expect("opening after a crash");
                let mut all = vec![0; model.len()];
                found.read_at(0, &mut all).expect("reading");
                assert!(all == model);
            }
            how => {
                let bytes = match how % 3 {
                    0 => random.bytes(len),
                    1 => vec![ask[1]; len],
                    _ => random.text(len),
                };
                volume.write_at(offset, &bytes).expect("writing");
                model[range].copy_from_slice(&bytes);
            }
        }
    }
    let mut all = vec![0; model.len()];
    volume.read_at(0, &mut all).expect("reading");
    assert!(all == model);
    assert!(volume.check().expect("checking").is_whole());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    if kind % 4 == 0 { asked(rest) } else { made_up(rest) }
});
