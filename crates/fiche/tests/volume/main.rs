//! Volumes against a plain array: whatever is done, whenever the machine stops, whatever the device does.

mod clones;
mod crashes;
mod damage;
mod dictionary;
mod flushes;
mod golden;
mod model;
mod reads;
mod room;
mod snapshots;
mod tend;

use std::sync::{Arc, Mutex};

use fiche::codec::Codec;
use fiche::testing::{Crashes, Fault, Random, TracedDevice};
use fiche::volume::{Device, OpenOptions, Options, Volume};
use fiche::{Error, ReadAt, WriteAt};

const BLOCK: usize = 4096;

/// What was asked of a volume.
#[derive(Clone, Debug)]
enum Ask {
    Write(u64, Vec<u8>),
    Zero(u64, u64),
    Discard(u64, u64),
    Flush,
    /// To so many blocks.
    Resize(u64),
    Trim,
    /// So many times what is due beside the requests; whether as if nobody asked for anything.
    Tend(u32, bool),
    /// Take the snapshot of this number.
    Take(u32),
    /// Delete it.
    Forget(u32),
    /// Make a clone of this snapshot, of this number.
    Clone(u32, u32),
    /// Ask this of a clone.
    In(u32, Box<Ask>),
    /// Delete it.
    Erase(u32),
}

fn content(random: &mut Random, len: usize) -> Vec<u8> {
    match random.below(6) {
        0 => vec![0; len],
        1 => vec![random.below(256) as u8; len],
        2 => (0..len).map(|_| random.below(256) as u8).collect(),
        _ => {
            let words = [&b"block "[..], b"device ", b"extent ", b"fragment ", b"log "];
            let mut text = random.number().to_string().into_bytes();
            while text.len() < len {
                text.extend(words[random.below(5) as usize]);
            }
            text.truncate(len);
            text
        }
    }
}

fn ask(random: &mut Random, blocks: u64) -> Ask {
    let block = random.below(blocks);
    let most = (blocks - block).min(1 + random.below(12));
    let (offset, len) = (block * BLOCK as u64, most * BLOCK as u64);
    match random.below(20) {
        0..=1 => Ask::Flush,
        2 => Ask::Zero(offset, len),
        3 => Ask::Discard(offset, len),
        4 => {
            let from = offset + random.below(len);
            Ask::Zero(from, random.below(offset + len - from + 1))
        }
        5 | 6 => {
            let from = offset + random.below(len);
            let most = (offset + len - from).min(1 + random.below(9000));
            Ask::Write(from, content(random, most as usize))
        }
        _ => Ask::Write(offset, content(random, len as usize)),
    }
}

/// Like that, and now and then what is said of the whole volume.
fn asks(random: &mut Random, blocks: u64) -> Vec<Ask> {
    match random.below(60) {
        0 => vec![Ask::Trim],
        3..=5 => vec![Ask::Tend(1 + random.below(12) as u32, true)],
        1 => vec![Ask::Resize(blocks + random.below(1500))],
        2 => {
            let fewer = (1 + random.below(blocks)).max(20);
            let cut = blocks.saturating_sub(fewer) * BLOCK as u64;
            vec![Ask::Zero(fewer.min(blocks) * BLOCK as u64, cut), Ask::Resize(fewer)]
        }
        _ => vec![ask(random, blocks)],
    }
}

/// What is asked of any device.
fn run_on(device: &dyn WriteAt, ask: &Ask) -> fiche::Result<()> {
    match ask {
        Ask::Write(offset, bytes) => device.write_at(*offset, bytes),
        Ask::Zero(offset, len) => device.zero_at(*offset, *len),
        Ask::Discard(offset, len) => device.discard_at(*offset, *len),
        Ask::Flush => device.flush(),
        other => panic!("{other:?} is nothing that a clone can do"),
    }
}

fn run(volume: &Volume, ask: &Ask) -> fiche::Result<()> {
    match ask {
        Ask::Write(..) | Ask::Zero(..) | Ask::Discard(..) | Ask::Flush => run_on(volume, ask),
        Ask::Resize(blocks) => volume.resize(blocks * BLOCK as u64, None),
        Ask::Trim => volume.trim(),
        Ask::Tend(times, idle) => (0..*times).try_for_each(|_| volume.tend(*idle).map(|_| ())),
        Ask::Take(number) => volume.take_snapshot(&number.to_string()),
        Ask::Forget(number) => volume.delete_snapshot(&number.to_string()),
        Ask::Clone(of, number) => volume.clone_snapshot(&of.to_string(), &number.to_string()),
        Ask::In(..) => panic!("that is for run_any"),
        Ask::Erase(number) => volume.delete_clone(&number.to_string()),
    }
}

/// Also what is asked of clones.
fn run_any(volume: &Arc<Volume>, ask: &Ask) -> fiche::Result<()> {
    match ask {
        Ask::In(number, ask) => run_on(&volume.writable_clone(&number.to_string())?, ask),
        other => run(volume, other),
    }
}

fn apply(model: &mut Vec<u8>, ask: &Ask) {
    let block = BLOCK as u64;
    match ask {
        Ask::Write(offset, bytes) => {
            model[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Ask::Zero(offset, len) => model[*offset as usize..][..*len as usize].fill(0),
        Ask::Discard(offset, len) => {
            let (from, to) = (offset.next_multiple_of(block), (offset + len) / block * block);
            if from < to {
                model[from as usize..to as usize].fill(0);
            }
        }
        Ask::Flush | Ask::Trim | Ask::Tend(..) | Ask::Take(_) | Ask::Forget(_) => {}
        Ask::Clone(..) | Ask::In(..) | Ask::Erase(_) => {}
        Ask::Resize(blocks) => model.resize(*blocks as usize * BLOCK, 0),
    }
}

fn whole(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xAA; volume.len() as usize];
    volume.read_at(0, &mut bytes).expect("reading all of it");
    bytes
}

fn snapshot_of(volume: &Arc<Volume>, name: &str) -> Vec<u8> {
    let snapshot = volume.snapshot(name).expect("it is there");
    let mut bytes = vec![0xAA; snapshot.len() as usize];
    snapshot.read_at(0, &mut bytes).expect("reading all of it");
    bytes
}

/// Writes noise over all blocks in order, until there is no room for one more.
fn fill_up(device: &dyn WriteAt, model: &mut [u8], random: &mut Random) {
    for (i, block) in model.chunks_mut(BLOCK).enumerate() {
        let bytes = random.bytes(BLOCK);
        match device.write_at((i * BLOCK) as u64, &bytes) {
            Ok(()) => block.copy_from_slice(&bytes),
            Err(Error::Io(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("there was room for all of it");
}

fn digests(bytes: &[u8]) -> Vec<u64> {
    let digest = |block: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, block);
    bytes.chunks_exact(BLOCK).map(digest).collect()
}

/// Options of a small volume: how many blocks, and how it is packed.
fn options(random: &mut Random) -> (u64, Options) {
    let blocks = [40, 100, 300][random.below(3) as usize];
    let codec = [Codec::Lz4, Codec::Zstd, Codec::Copy, Codec::Deflate, Codec::Lzo]
        [random.below(5) as usize];
    let unit = [1, 4, 8][random.below(3) as usize] * BLOCK;
    (blocks, Options::new(blocks * BLOCK as u64).codec(codec).unit(unit).segment_bits(16))
}

fn check(volume: &Volume) {
    let checked = volume.check().expect("checking");
    assert!(checked.is_whole(), "{checked:?}");
}
