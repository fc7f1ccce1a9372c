//! Volumes against a plain array: whatever is done, whenever the machine stops, whatever the device does.

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
        1 => vec![Ask::Resize(blocks + random.below(1500))],
        2 => {
            let fewer = (1 + random.below(blocks)).max(20);
            let cut = blocks.saturating_sub(fewer) * BLOCK as u64;
            vec![Ask::Zero(fewer.min(blocks) * BLOCK as u64, cut), Ask::Resize(fewer)]
        }
        _ => vec![ask(random, blocks)],
    }
}

fn run(volume: &Volume, ask: &Ask) -> fiche::Result<()> {
    match ask {
        Ask::Write(offset, bytes) => volume.write_at(*offset, bytes),
        Ask::Zero(offset, len) => volume.zero_at(*offset, *len),
        Ask::Discard(offset, len) => volume.discard_at(*offset, *len),
        Ask::Flush => volume.flush(),
        Ask::Resize(blocks) => volume.resize(blocks * BLOCK as u64, None),
        Ask::Trim => volume.trim(),
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
        Ask::Flush | Ask::Trim => {}
        Ask::Resize(blocks) => model.resize(*blocks as usize * BLOCK, 0),
    }
}

fn whole(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xAA; volume.len() as usize];
    volume.read_at(0, &mut bytes).expect("reading all of it");
    bytes
}

fn digests(bytes: &[u8]) -> Vec<u64> {
    let digest = |block: &[u8]| {
        let words = block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words.fold(1, |sum: u64, word| {
            (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        })
    };
    bytes.chunks_exact(BLOCK).map(digest).collect()
}

/// Options of a small volume: how many blocks, and how it is packed.
fn options(random: &mut Random) -> (u64, Options) {
    let blocks = [40, 100, 300][random.below(3) as usize];
    let codec = [Codec::Lz4, Codec::Zstd, Codec::Copy, Codec::Deflate][random.below(4) as usize];
    let unit = [1, 4, 8][random.below(3) as usize] * BLOCK;
    (blocks, Options::new(blocks * BLOCK as u64).codec(codec).unit(unit).segment_bits(16))
}

fn check(volume: &Volume) {
    let checked = volume.check().expect("checking");
    assert!(checked.is_whole(), "{checked:?}");
}

#[test]
fn a_volume_is_what_an_array_would_be() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let mut volume = Volume::create(device.clone(), options).unwrap();
        let mut model = vec![0; blocks as usize * BLOCK];
        for i in 0..600 {
            for ask in asks(&mut random, (model.len() / BLOCK) as u64) {
                run(&volume, &ask).unwrap_or_else(|error| panic!("{seed}, {i}: {error}"));
                apply(&mut model, &ask);
            }
            for _ in 0..3 {
                let from = random.below(model.len() as u64);
                let len = random.below(20_000).min(model.len() as u64 - from) as usize;
                let mut piece = vec![0xAA; len];
                volume.read_at(from, &mut piece).unwrap();
                assert!(piece == model[from as usize..][..len], "{seed}, {i}: {from}+{len}");
            }
            if random.below(80) == 0 {
                drop(volume);
                volume = Volume::open(device.clone()).unwrap();
            }
            if i % 50 == 49 {
                assert!(whole(&volume) == model, "{seed}, {i}");
                check(&volume);
            }
        }
        fiche::testing::conformance(&volume, &model, seed);
    }
}

/// States that are looked at: `FICHE_CRASHES` asks for others.
fn wanted() -> u64 {
    std::env::var("FICHE_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(4000)
}

/// What a volume may hold after each of the things that were asked of it, and what of it was promised.
struct History {
    /// After so many things the blocks had these digests.
    states: Vec<Vec<u64>>,
    /// So many steps of the device were done when the thing of this number was begun.
    begun: Vec<usize>,
    /// So many steps were done when a flush returned, and how many things were done before it.
    flushed: Vec<(usize, usize)>,
}

impl History {
    /// Holds what was found after `steps` against all that may be there.
    fn judge(&self, found: &[u64], steps: usize) -> Result<usize, String> {
        let promised = self.flushed.iter().rev().find(|flush| flush.0 <= steps).map_or(0, |f| f.1);
        // What was begun but did nothing with the device yet is not there; but it may be that it had nothing to do.
        let begun = self.begun.iter().take_while(|&&begun| begun < steps).count().max(promised);
        // Of the last one a part may be there, each block as before or as after it.
        let fits = |k: usize| {
            let next = self.states.get(k + 1).filter(|_| k < begun);
            if next.is_some_and(|next| next.len() != self.states[k].len()) {
                return next.is_some_and(|next| *next == found) || self.states[k] == found;
            }
            if found.len() != self.states[k].len() {
                return false;
            }
            (0..found.len()).all(|i| {
                found[i] == self.states[k][i] || next.is_some_and(|next| found[i] == next[i])
            })
        };
        (promised..=begun).rev().find(|&k| fits(k)).ok_or_else(|| {
            let older = (0..promised).rev().find(|&k| fits(k));
            let wrong =
                |k: usize| found.iter().zip(&self.states[k]).filter(|(a, b)| a != b).count();
            let wrong: Vec<usize> = (promised..=begun).map(wrong).collect();
            format!("nothing from {promised} to {begun} fits, but for {wrong:?} blocks; of those before: {older:?}")
        })
    }
}

#[test]
fn whenever_the_machine_stops_what_was_flushed_is_there_and_nothing_out_of_order() {
    let (wanted, mut done, mut twice, mut seed) = (wanted(), 0, 0, 0);
    while done < wanted {
        seed += 1;
        let mut random = Random(seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let volume = Volume::create(device.clone(), options).unwrap();
        let start = device.bytes();
        let created = device.len_of_trace();
        let mut model = vec![0; blocks as usize * BLOCK];
        let mut history =
            History { states: vec![digests(&model)], begun: Vec::new(), flushed: Vec::new() };
        let mut volume = Some(volume);
        for _ in 0..120 {
            for ask in asks(&mut random, (model.len() / BLOCK) as u64) {
                history.begun.push(device.len_of_trace() - created);
                let open = volume.as_ref().unwrap();
                run(open, &ask).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                apply(&mut model, &ask);
                history.states.push(digests(&model));
                if matches!(ask, Ask::Flush | Ask::Resize(_) | Ask::Trim) {
                    let steps = device.len_of_trace() - created;
                    history.flushed.push((steps, history.begun.len()));
                }
            }
            if random.below(40) == 0 {
                drop(volume.take());
                history.flushed.push((device.len_of_trace() - created, history.begun.len()));
                volume = Some(Volume::open(device.clone()).unwrap());
            }
        }
        let trace = device.trace();
        let mut crashes = Crashes::from(start);
        for (i, step) in trace[created..].iter().enumerate() {
            crashes.step(step);
            let steps = i + 1;
            let found = crashes.one(&mut random);
            let again = TracedDevice::holding(found.clone());
            let recovered = Volume::open(again.clone())
                .unwrap_or_else(|error| panic!("seed {seed}, after step {steps}: {error}"));
            let bytes = whole(&recovered);
            let k = history
                .judge(&digests(&bytes), steps)
                .unwrap_or_else(|why| panic!("seed {seed}, after step {steps}: {why}"));
            done += 1;
            if random.below(8) == 0 {
                check(&recovered);
                // It goes on as if nothing had been, and nothing of what was lost comes back.
                let mut model = bytes;
                for _ in 0..12 {
                    for ask in asks(&mut random, (model.len() / BLOCK) as u64) {
                        run(&recovered, &ask).unwrap();
                        apply(&mut model, &ask);
                    }
                }
                recovered.flush().unwrap();
                let kept = TracedDevice::holding(again.bytes());
                assert!(whole(&Volume::open(kept).unwrap()) == model, "seed {seed}, {steps}");
            } else if random.below(4) == 0 {
                // The machine stops while it recovers.
                let mut second = Crashes::from(found);
                let trace = again.trace();
                let end = random.below(trace.len() as u64 + 1) as usize;
                trace[..end].iter().for_each(|step| second.step(step));
                let found = TracedDevice::holding(second.one(&mut random));
                let recovered = Volume::open(found)
                    .unwrap_or_else(|error| panic!("seed {seed}, twice at {steps}: {error}"));
                let digests = digests(&whole(&recovered));
                let again = history.judge(&digests, steps);
                assert!(again.is_ok_and(|again| again == k), "seed {seed}, twice at {steps}");
                check(&recovered);
                twice += 1;
            }
        }
    }
    println!("{done} crashes of {seed} histories, {twice} of them twice");
    assert!(twice > 100 && seed >= 3);
}

#[test]
fn a_log_through_empty_segments_is_there_until_the_next_superblock() {
    // Blocks that are written again and again: the log goes through segments of which nothing is needed any more. Where the
    // next segment is full, storing the map at the next opening needs another one.
    let mut turned = 0;
    for patterns in 0..100u64 {
        let device = TracedDevice::default();
        let options = Options::new(40 * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
        let volume = Volume::create(device.clone(), options.unit(BLOCK)).unwrap();
        let mut random = Random(patterns);
        let mut noise = || (0..12 * BLOCK).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
        for _ in 0..6 {
            volume.write_at(0, &noise()).unwrap();
        }
        let last = noise();
        volume.write_at(0, &last).unwrap();
        volume.write_at(30 * BLOCK as u64, &noise()[..3 * BLOCK]).unwrap();
        for i in 0..patterns {
            volume.write_at((20 + i % 9) * BLOCK as u64, &[7; BLOCK]).unwrap();
        }
        volume.flush().unwrap();
        let image = device.bytes();
        let model = whole(&volume);
        assert!(model[..last.len()] == last);
        let first = TracedDevice::holding(image.clone());
        drop(Volume::open(first.clone()).unwrap());
        let trace = first.trace();
        let segments = |step: &fiche::testing::Step| match step {
            fiche::testing::Step::Write(pos, _) => Some(pos >> 16).filter(|&segment| segment > 0),
            _ => None,
        };
        let mut entered: Vec<u64> = trace.iter().filter_map(segments).collect();
        entered.dedup();
        turned += usize::from(entered.len() > 1);
        // The machine stops while it recovers, and all that was written by then is there.
        for end in 0..=trace.len() {
            let mut found = image.clone();
            for step in &trace[..end] {
                match step {
                    fiche::testing::Step::Write(pos, bytes) => {
                        found[*pos as usize..][..bytes.len()].copy_from_slice(bytes);
                    }
                    fiche::testing::Step::Grow(len) => found.resize(*len as usize, 0),
                    fiche::testing::Step::Sync => {}
                }
            }
            let again = Volume::open(TracedDevice::holding(found)).unwrap();
            assert!(whole(&again) == model, "{patterns} patterns, step {end}");
        }
    }
    assert!(turned > 0, "no opening needed another segment");
}

#[test]
fn a_device_that_fails_loses_nothing_that_was_flushed() {
    let mut poisoned = 0;
    for seed in 0..60 {
        let mut random = Random(1000 + seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let volume = Volume::create(device.clone(), options).unwrap();
        let from = random.below(60);
        let [writes, reads, syncs, allocations] = device.calls();
        let fault = match seed % 4 {
            0 => Fault::Write(writes + from),
            1 => Fault::Sync(syncs + from / 6),
            2 => Fault::Read(reads + from),
            _ => Fault::Allocate(allocations + from / 8),
        };
        device.set_fault(Some(fault));
        let mut model = vec![0; blocks as usize * BLOCK];
        // What each block may be if a write failed half way.
        let mut states = vec![digests(&model)];
        let mut promised = 0;
        let mut failed = false;
        for _ in 0..300 {
            let ask = ask(&mut random, blocks);
            let done = run(&volume, &ask);
            if let Err(error) = &done {
                let known = matches!(error, Error::Io(_) | Error::Poisoned);
                assert!(known, "seed {seed}: {error}");
                failed = true;
            }
            if done.is_err() {
                // It may be there in part.
                let mut other = model.clone();
                apply(&mut other, &ask);
                let (before, after) = (digests(&model), digests(&other));
                states.push(after.clone());
                if !matches!(fault, Fault::Allocate(_)) {
                    break;
                }
                model = whole(&volume);
                let now = digests(&model);
                assert!((0..now.len()).all(|i| now[i] == before[i] || now[i] == after[i]));
                states.push(now);
                continue;
            }
            apply(&mut model, &ask);
            states.push(digests(&model));
            if matches!(ask, Ask::Flush) {
                promised = states.len() - 1;
            }
        }
        if failed && matches!(fault, Fault::Write(_) | Fault::Sync(_)) {
            let again = volume.write_at(0, &[1; BLOCK]);
            assert!(matches!(again, Err(Error::Poisoned)), "seed {seed}, {fault:?}: {again:?}");
            poisoned += 1;
        }
        device.set_fault(None);
        drop(volume);
        let recovered = Volume::open(TracedDevice::holding(device.bytes())).unwrap();
        let found = digests(&whole(&recovered));
        // Each block is as after one of the things since the last flush.
        let fits =
            (0..found.len()).all(|i| states[promised..].iter().any(|state| state[i] == found[i]));
        assert!(fits, "seed {seed}, {fault:?}");
        check(&recovered);
    }
    assert!(poisoned > 20, "{poisoned}");
}

#[test]
fn a_full_volume_says_so_and_goes_on_when_something_was_given_back() {
    let mut random = Random(77);
    let noise = |random: &mut Random, blocks: usize| -> Vec<u8> {
        (0..blocks * BLOCK).map(|_| random.below(256) as u8).collect()
    };
    let blocks = 2000u64;
    // A quarter of what it would take.
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).capacity(4 << 20);
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut model = vec![0; blocks as usize * BLOCK];
    let mut full = None;
    for i in 0..blocks / 8 {
        let bytes = noise(&mut random, 8);
        let ask = Ask::Write(i * 8 * BLOCK as u64, bytes);
        match run(&volume, &ask) {
            Ok(()) => apply(&mut model, &ask),
            Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                full = Some(i * 8);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let full = full.expect("it is full at some time");
    assert!(full * 4096 > 2 << 20, "full after {full} blocks");
    // What failed may be there in part, and all before it is.
    let mut read = vec![0; full as usize * BLOCK];
    volume.read_at(0, &mut read).unwrap();
    assert!(read == model[..read.len()]);
    // Discards always succeed, and then there is room again, many times over.
    for round in 0..30 {
        let from = random.below(full - 64);
        let ask = Ask::Discard(from * BLOCK as u64, 64 * BLOCK as u64);
        run(&volume, &ask).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let ask = Ask::Write(from * BLOCK as u64, noise(&mut random, 48));
        run(&volume, &ask).unwrap_or_else(|error| panic!("round {round}: {error}"));
        apply(&mut model, &Ask::Discard(from * BLOCK as u64, 64 * BLOCK as u64));
        apply(&mut model, &ask);
    }
    volume.flush().unwrap();
    let mut read = vec![0; full as usize * BLOCK];
    volume.read_at(0, &mut read).unwrap();
    assert!(read == model[..read.len()]);
    check(&volume);
    assert!(device.bytes().len() <= 4 << 20);
}

#[test]
fn a_full_file_system_leaves_room_for_the_map_and_what_is_given_back_can_be_written() {
    let blocks = 1000;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let mut volume = Volume::create(device.clone(), options).unwrap();
    // As when others filled the file system: no room but for a quarter.
    device.set_limit(Some(device.bytes().len() as u64 + (1 << 20)));
    let mut random = Random(5);
    let mut model = vec![0; blocks as usize * BLOCK];
    let mut full = 0;
    for round in 0..4 {
        let (mut is_full, mut at) = (0, 0);
        while is_full < 40 {
            let bytes = random.bytes(8 * BLOCK);
            match volume.write_at(at, &bytes) {
                Ok(()) => model[at as usize..][..bytes.len()].copy_from_slice(&bytes),
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                    is_full += 1;
                    // Of a long write the first blocks may be there.
                    let mut found = vec![0; bytes.len()];
                    volume.read_at(at, &mut found).unwrap();
                    let before = &mut model[at as usize..][..bytes.len()];
                    let same = found.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                    before[..same].copy_from_slice(&bytes[..same]);
                }
                Err(error) => panic!("{error}"),
            }
            at = (at + 8 * BLOCK as u64) % (blocks * BLOCK as u64);
        }
        full += is_full;
        volume.flush().unwrap();
        assert!(whole(&volume) == model, "round {round}");
        if round % 2 == 1 {
            drop(volume);
            volume = Volume::open(device.clone()).unwrap();
        }
        let (from, len) = (random.below(300) as usize * BLOCK, 500 * BLOCK);
        volume.discard_at(from as u64, len as u64).unwrap();
        model[from..from + len].fill(0);
        if round == 2 {
            volume.trim().unwrap();
        }
        check(&volume);
    }
    assert_eq!(full, 160);
    // There is room again, and nobody needs to open it again for that.
    device.set_limit(None);
    let bytes = random.bytes(model.len());
    volume.write_at(0, &bytes).unwrap();
    assert!(whole(&volume) == bytes);
    check(&volume);
}

#[test]
fn what_is_trimmed_takes_no_room_and_can_be_written_again() {
    let device = TracedDevice::default();
    let options = Options::new(2000 * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    let options = options.unit(BLOCK);
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut random = Random(9);
    let mut model = random.bytes(2000 * BLOCK);
    volume.write_at(0, &model).unwrap();
    // Every other stretch, so that hardly a segment is empty by itself.
    for from in (0..2000).step_by(8) {
        volume.discard_at(from * BLOCK as u64, 6 * BLOCK as u64).unwrap();
        model[from as usize * BLOCK..][..6 * BLOCK].fill(0);
    }
    volume.flush().unwrap();
    let taken = |device: &TracedDevice| {
        device.bytes().chunks(BLOCK).filter(|block| block.iter().any(|&byte| byte != 0)).count()
    };
    assert!(taken(&device) > 2000);
    volume.trim().unwrap();
    let after = taken(&device);
    assert!(after < 500 * 8 / 7 + 200, "{after} blocks are left of 500");
    assert!(whole(&volume) == model);
    check(&volume);
    drop(volume);
    let volume = Volume::open(device.clone()).unwrap();
    assert!(whole(&volume) == model);
    let bytes = random.bytes(model.len());
    volume.write_at(0, &bytes).unwrap();
    assert!(whole(&volume) == bytes);
    check(&volume);
}

#[test]
fn a_volume_becomes_longer_and_shorter() {
    let device = TracedDevice::default();
    let create = |blocks: u64| Options::new(blocks * BLOCK as u64).segment_bits(16);
    let volume = Volume::create(device.clone(), create(100)).unwrap();
    let mut random = Random(3);
    let bytes = random.bytes(100 * BLOCK);
    volume.write_at(0, &bytes).unwrap();
    // Through all levels that a map can have.
    for blocks in [1024, 1025, 1 << 20, (1 << 20) + 1, 3 << 30] {
        volume.resize(blocks * BLOCK as u64, Some(1 << 30)).unwrap();
        volume.write_at((blocks - 1) * BLOCK as u64, &bytes[..BLOCK]).unwrap();
        assert!(volume.write_at(blocks * BLOCK as u64, &bytes[..BLOCK]).is_err());
        let refused = volume.resize((blocks - 1) * BLOCK as u64, None).unwrap_err().to_string();
        let at = (blocks - 1) * BLOCK as u64;
        assert!(refused.contains(&format!("byte {at} ")), "{refused}");
        let mut piece = vec![0; bytes.len()];
        volume.read_at(0, &mut piece).unwrap();
        assert!(piece == bytes);
    }
    drop(volume);
    let volume = Volume::open(device.clone()).unwrap();
    assert_eq!(volume.len(), (3 << 30) * BLOCK as u64);
    for blocks in [(1 << 20) + 1, 1 << 20, 1025, 1024, 100] {
        volume.discard_at(blocks * BLOCK as u64, volume.len() - blocks * BLOCK as u64).unwrap();
        volume.resize(blocks * BLOCK as u64, None).unwrap();
        check(&volume);
        let mut block = [1; BLOCK];
        assert!(volume.read_at(blocks * BLOCK as u64, &mut block).is_err());
        volume.read_at((blocks - 1) * BLOCK as u64, &mut block).unwrap();
        assert!(block == bytes[(if blocks == 100 { 99 } else { 0 }) * BLOCK..][..BLOCK]);
    }
    assert!(whole(&volume) == bytes);
    for len in [0, 4095, 4097, 1 << 53] {
        assert!(matches!(volume.resize(len, None), Err(Error::Invalid { .. })), "{len}");
    }
    let Err(Error::Limit { need, allowed, .. }) = volume.resize(50 << 20, Some(1 << 16)) else {
        panic!("less room than it takes was taken")
    };
    assert!(need > allowed);
    drop(volume);
    let volume = Volume::open(device).unwrap();
    assert_eq!(volume.len(), bytes.len() as u64);
    assert!(whole(&volume) == bytes);
}

#[test]
fn a_map_takes_as_much_memory_as_it_is_given() {
    let leaf = 1024 * BLOCK as u64;
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), Options::new(2000 * leaf)).unwrap();
    for i in 0..1000 {
        volume.write_at(i * leaf, &[i as u8; BLOCK]).unwrap();
    }
    volume.flush().unwrap();
    // As after a crash: all nodes are to be made from the log.
    let crashed = || TracedDevice::holding(device.bytes());
    let with = |memory: u64| OpenOptions::default().memory(memory).open(crashed());
    let Err(Error::Limit { need, allowed, .. }) = with(2 << 20) else {
        panic!("a thousand nodes have no room in 2 MiB")
    };
    assert!(allowed == 2 << 20 && need > 1000 * 5 * 1024 && need < 1300 * 5 * 1024, "{need}");
    assert!(matches!(with(1 << 19), Err(Error::Limit { need: 1_048_576, .. })));
    drop(with(need).unwrap());
    drop(volume);
    // Whole, it takes no more than what is needed at a time.
    let volume = with(1 << 20).unwrap();
    let mut random = Random(2);
    let mut model: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    for i in 0..3000 {
        let at = random.below(1000) as usize;
        if i % 3 == 0 {
            model[at] = model[at].wrapping_add(1);
            volume.write_at(at as u64 * leaf, &[model[at]; BLOCK]).unwrap();
        }
        let mut block = [0; BLOCK];
        volume.read_at(at as u64 * leaf, &mut block).unwrap();
        assert_eq!(block, [model[at]; BLOCK]);
    }
    check(&volume);
}

#[test]
fn overwriting_goes_on_for_ever_in_the_room_that_a_volume_takes() {
    let mut random = Random(5);
    let blocks = 400u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16);
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut model = vec![0; blocks as usize * BLOCK];
    for i in 0..3000 {
        // Nothing of it shrinks.
        let len = 1 + random.below(4);
        let block = random.below(blocks - len + 1);
        let bytes = (0..len as usize * BLOCK).map(|_| random.below(256) as u8).collect();
        let ask = Ask::Write(block * BLOCK as u64, bytes);
        run(&volume, &ask).unwrap_or_else(|error| panic!("write {i}: {error}"));
        apply(&mut model, &ask);
    }
    assert!(whole(&volume) == model);
    check(&volume);
    drop(volume);
    let told = fiche::volume::describe(&device.bytes()).unwrap();
    assert_eq!((told.len, told.unit), (model.len() as u64, 16 << 10));
    assert!(told.stored_len <= told.capacity && told.capacity < 4 * model.len() as u64, "{told:?}");
    assert!(told.free_len < told.stored_len && (1..=1000).contains(&told.live), "{told:?}");
}

#[test]
fn no_flip_of_a_bit_is_returned_as_data() {
    let mut random = Random(6);
    let blocks = 60u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut model = vec![0; blocks as usize * BLOCK];
    for _ in 0..60 {
        let ask = ask(&mut random, blocks);
        run(&volume, &ask).unwrap();
        apply(&mut model, &ask);
    }
    drop(volume);
    let image = device.bytes();
    let (mut refused, mut noticed, mut nothing) = (0, 0, 0);
    for i in 0..3000 {
        // What all depends on is at the start.
        let most = if i % 4 == 0 { 20_480 } else { image.len() as u64 };
        let pos = random.below(most);
        if image[pos as usize..].iter().take(64).all(|&byte| byte == 0) {
            continue;
        }
        let device = TracedDevice::holding(image.clone());
        device.flip(pos, 1 << random.below(8));
        let volume = match Volume::open(device.clone()) {
            Ok(volume) => volume,
            Err(Error::Corrupt { .. } | Error::Invalid { .. } | Error::Unsupported { .. }) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("at {pos}: {error}"),
        };
        let mut damaged = 0;
        for (i, block) in model.chunks(BLOCK).enumerate() {
            let mut read = vec![0; BLOCK];
            match volume.read_at((i * BLOCK) as u64, &mut read) {
                Ok(()) => assert!(read == block, "a flip at {pos} changes block {i}"),
                Err(Error::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("at {pos}: {error}"),
            }
        }
        let checked = volume.check().unwrap();
        assert_eq!(checked.is_whole(), damaged == 0, "at {pos}: {checked:?}");
        if damaged > 0 { noticed += 1 } else { nothing += 1 }
    }
    assert!(refused > 0 && noticed > 100 && nothing > 10, "{refused}, {noticed}, {nothing}");
}

#[test]
fn a_damaged_map_is_made_anew_from_what_the_log_says() {
    let (mut whole_again, mut repaired) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(5000 + seed);
        // More than one level of nodes, few of which are there.
        let blocks = [60, 300, 5000][random.below(3) as usize];
        let options = Options::new(blocks * BLOCK as u64).segment_bits(16);
        let device = TracedDevice::default();
        let mut volume = Volume::create(device.clone(), options).unwrap();
        let mut model = vec![0; blocks as usize * BLOCK];
        for i in 0..400 {
            let ask = match random.below(60) {
                0 => Ask::Zero(0, model.len() as u64),
                1 => Ask::Discard(0, model.len() as u64 / 2),
                _ => ask(&mut random, blocks),
            };
            run(&volume, &ask).unwrap();
            apply(&mut model, &ask);
            if i % 90 == 89 {
                drop(volume);
                volume = Volume::open(device.clone()).unwrap();
            }
        }
        drop(volume);
        let image = device.bytes();
        // The newest superblock, the usage, or a node: whatever it leads to.
        let device = TracedDevice::holding(image.clone());
        match seed % 4 {
            0 => {}
            1 => (0..20_480).step_by(64).for_each(|pos| {
                let is_second = (8192..12_288).contains(&pos) || pos >= 16_384;
                if is_second {
                    device.flip(pos + 20, 1)
                }
            }),
            2 => (0..20_480).step_by(64).for_each(|pos| {
                let is_first = (4096..8192).contains(&pos) || (12_288..16_384).contains(&pos);
                if is_first {
                    device.flip(pos + 20, 1)
                }
            }),
            _ => {
                let superblocks = [4096usize, 8192, 12_288, 16_384];
                let word = |pos: usize| u64::from_le_bytes(image[pos..][..8].try_into().unwrap());
                let newest = superblocks.into_iter().max_by_key(|&pos| word(pos + 16)).unwrap();
                device.flip(word(newest + 72) + 17, 4);
                assert!(matches!(Volume::open(device.clone()), Err(Error::Corrupt { .. })));
            }
        }
        let (volume, told) = Volume::repair(device.clone()).unwrap();
        assert!(whole(&volume) == model, "seed {seed}: {told:?}");
        check(&volume);
        assert!(told.extents > 100, "{told:?}");
        whole_again += 1;
        for _ in 0..30 {
            let ask = ask(&mut random, blocks);
            run(&volume, &ask).unwrap();
            apply(&mut model, &ask);
        }
        drop(volume);
        let volume = Volume::open(device.clone()).unwrap();
        assert!(whole(&volume) == model, "seed {seed}, behind the repair");
        check(&volume);
        drop(volume);
        // A flip anywhere: what is damaged is an error, and all else is there or as it was before a zero.
        let pos = 20_480 + random.below(image.len() as u64 - 20_480);
        let device = TracedDevice::holding(device.bytes());
        device.flip(pos, 1);
        let (volume, _) = Volume::repair(device.clone()).unwrap();
        let mut wrong = 0;
        for (i, block) in model.chunks(BLOCK).enumerate() {
            let mut read = vec![0; BLOCK];
            match volume.read_at((i * BLOCK) as u64, &mut read) {
                Ok(()) => wrong += usize::from(read != block),
                Err(Error::Corrupt { .. }) => wrong += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(wrong <= 64, "seed {seed}: {wrong} blocks for a flip at {pos}");
        repaired += usize::from(wrong == 0);
    }
    assert!(whole_again == 40 && repaired > 10, "{whole_again}, {repaired}");
}

#[test]
fn what_was_made_zero_stays_so_when_the_map_is_made_anew_without_what_says_so() {
    let blocks = 5000u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16);
    let volume = Volume::create(device.clone(), options).unwrap();
    let text = |i: u64| format!("{i} is a number of a block. ").repeat(200).into_bytes();
    for i in 0..blocks / 50 {
        volume.write_at(i * 50 * BLOCK as u64, &text(i)[..BLOCK]).unwrap();
    }
    drop(volume);
    let volume = Volume::open(device.clone()).unwrap();
    // All of two nodes of the map, and a part of one.
    let mut model = whole(&volume);
    let zero = Ask::Zero(900 * BLOCK as u64, 2500 * BLOCK as u64);
    run(&volume, &zero).unwrap();
    apply(&mut model, &zero);
    drop(volume);
    // The extents that say so are damaged, as if they had been written over: a head, and a fragment of kind 17.
    let image = device.bytes();
    let is_zeros = |at: usize| image[at + 4] == 16 && image[at + 16] == 1 && image[at + 39] == 17;
    let found: Vec<usize> =
        (65_536..image.len() - 40).step_by(8).filter(|&at| is_zeros(at)).collect();
    assert!(!found.is_empty());
    found.iter().for_each(|&at| device.flip(at as u64, 1));
    let (volume, told) = Volume::repair(TracedDevice::holding(device.bytes())).unwrap();
    assert!(whole(&volume) == model, "{told:?}");
    check(&volume);
}

#[test]
fn small_patterns_all_over_are_cleaned_and_kept() {
    // As many small patterns as there are blocks, in an order that is no use: segments are full of fragments of many nodes.
    let blocks = 20_000u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).capacity(4 << 20);
    let volume = Volume::create(device, options).unwrap();
    let mut random = Random(3);
    let mut model = vec![0u8; blocks as usize];
    for _ in 0..50_000 {
        let block = random.below(blocks);
        let value = 1 + random.below(200) as u8;
        volume.write_at(block * BLOCK as u64, &[value; BLOCK]).unwrap();
        model[block as usize] = value;
    }
    let mut read = vec![0; BLOCK];
    for (i, &value) in model.iter().enumerate() {
        volume.read_at((i * BLOCK) as u64, &mut read).unwrap();
        assert!(read.iter().all(|&byte| byte == value), "block {i}");
    }
    check(&volume);
}

#[test]
fn many_threads_write_read_and_flush_at_once() {
    let device = TracedDevice::default();
    let options = Options::new(8 << 20).segment_bits(17);
    let volume = Volume::create(device.clone(), options).unwrap();
    let span = 1usize << 20;
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let volume = &volume;
        let work = |thread: usize| {
            let mut random = Random(thread as u64);
            let mut model = vec![0; span];
            for _ in 0..300 {
                let from = random.below(span as u64 - 40_000) as usize;
                let len = 1 + random.below(40_000) as usize;
                let bytes = content(&mut random, len);
                volume.write_at((thread * span + from) as u64, &bytes).unwrap();
                model[from..from + len].copy_from_slice(&bytes);
                let mut piece = vec![0; len];
                volume.read_at((thread * span + from) as u64, &mut piece).unwrap();
                assert!(piece == bytes);
                if random.below(10) == 0 {
                    volume.flush().unwrap();
                }
            }
            model
        };
        let running: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(whole(&volume) == models.concat());
    check(&volume);
    // Flushes that wait together have one barrier: there are fewer than flushes, and never more.
    volume.flush().unwrap();
    drop(volume);
    assert!(whole(&Volume::open(device).unwrap()) == models.concat());
}

#[test]
fn a_flush_is_one_barrier_and_one_of_nothing_is_none() {
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), Options::new(8 << 20)).unwrap();
    for _ in 0..50 {
        volume.write_at(4096, &[1; 4096]).unwrap();
        let before = device.calls()[2];
        volume.flush().unwrap();
        assert_eq!(device.calls()[2], before + 1);
        volume.flush().unwrap();
        assert_eq!(device.calls()[2], before + 1);
    }
}

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A device that does something while it is flushed, once.
struct Interrupted(TracedDevice, Hook);

impl Device for Interrupted {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(pos, buf)
    }
    fn write_at(&self, pos: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_at(pos, bytes)
    }
    fn allocate(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.0.allocate(range)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()?;
        let hook = self.1.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Ok(())
    }
}

#[test]
fn what_was_written_while_others_were_flushed_is_not_taken_for_durable() {
    let (device, hook) = (TracedDevice::default(), Hook::default());
    let interrupted = Interrupted(device.clone(), hook.clone());
    let volume = Arc::new(Volume::create(interrupted, Options::new(8 << 20)).unwrap());
    volume.write_at(0, &[1; BLOCK]).unwrap();
    let other = volume.clone();
    // When the barrier is through, and before anybody knows.
    *hook.lock().unwrap() = Some(Box::new(move || other.write_at(0, &[2; BLOCK]).unwrap()));
    volume.flush().unwrap();
    let before = device.calls()[2];
    volume.flush().unwrap();
    assert_eq!(device.calls()[2], before + 1);
}

#[test]
fn what_is_no_volume_is_refused_by_name() {
    let refused = |bytes: Vec<u8>| Volume::open(TracedDevice::holding(bytes)).err().unwrap();
    assert!(matches!(refused(Vec::new()), Error::Invalid { .. }));
    assert!(matches!(refused(vec![7; 100_000]), Error::Invalid { .. }));
    let device = TracedDevice::default();
    drop(Volume::create(device.clone(), Options::new(1 << 20)).unwrap());
    drop(Volume::open(device.clone()).unwrap());
    let image = device.bytes();
    let cut = image[..image.len() - 1].to_vec();
    assert!(matches!(refused(cut), Error::Corrupt { .. }));
    assert!(matches!(refused(image[..5000].to_vec()), Error::Corrupt { .. }));
    // Of four superblocks three may be damaged.
    for damaged in 0..16 {
        let mut image = image.clone();
        let places = (0..4).filter(|i| damaged >> i & 1 == 1);
        places.for_each(|i| image[4096 * (i + 1) + 20] ^= 1);
        match Volume::open(TracedDevice::holding(image)) {
            Ok(_) => assert!(damaged != 15),
            Err(error) => assert!(damaged == 15 && matches!(error, Error::Corrupt { .. })),
        }
    }
    assert!(Volume::create(TracedDevice::holding(vec![1]), Options::new(1 << 20)).is_err());
    for options in [
        Options::new(0),
        Options::new(5000),
        Options::new(1 << 53),
        Options::new(1 << 20).unit(5000),
        Options::new(1 << 20).unit(0),
        Options::new(1 << 20).unit(256 << 10),
        Options::new(1 << 20).segment_bits(15),
        Options::new(1 << 20).level(99),
        Options::new(1 << 20).codec(Codec::Lzma),
        Options::new(1 << 30).capacity(1 << 20),
    ] {
        let error = Volume::create(TracedDevice::default(), options.clone()).err().unwrap();
        assert!(
            matches!(error, Error::Invalid { .. } | Error::Limit { .. }),
            "{options:?}: {error}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let device = fiche::volume::FileDevice::create(&path).unwrap();
    let volume = Volume::create(device, Options::new(1 << 20)).unwrap();
    assert!(matches!(fiche::volume::FileDevice::open(&path), Err(Error::Busy { .. })));
    assert!(matches!(volume.read_at(1 << 20, &mut [0]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(volume.write_at((1 << 20) - 1, &[0; 2]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(volume.zero_at(u64::MAX, 2), Err(Error::OutOfBounds { .. })));
    assert!(matches!(volume.discard_at(0, (1 << 20) + 1), Err(Error::OutOfBounds { .. })));
}
