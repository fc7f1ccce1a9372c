//! Devices that begin as a snapshot, and go on by themselves.

use super::golden::{newest, word};
use super::*;

fn clone_of(volume: &Arc<Volume>, name: &str) -> Vec<u8> {
    let clone = volume.writable_clone(name).expect("it is there");
    let mut bytes = vec![0xAA; clone.len() as usize];
    clone.read_at(0, &mut bytes).expect("reading all of it");
    bytes
}

#[track_caller]
fn refused(result: fiche::Result<()>, why: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(why), "{error}");
}

/// What a volume should be, with its snapshots and clones.
struct Model {
    main: Vec<u8>,
    /// And whether each is of a clone.
    snapshots: Vec<(u32, Vec<u8>, bool)>,
    /// And the number of the snapshot that each was made from.
    clones: Vec<(u32, u32, Vec<u8>)>,
    last: u32,
}

impl Model {
    fn new(blocks: u64) -> Model {
        let main = vec![0; blocks as usize * BLOCK];
        Model { main, snapshots: Vec::new(), clones: Vec::new(), last: 0 }
    }

    /// Does something to the volume, a snapshot or a clone.
    fn step(&mut self, volume: &Arc<Volume>, random: &mut Random) {
        let blocks = |bytes: &[u8]| (bytes.len() / BLOCK) as u64;
        let clone = random.below(self.clones.len().max(1) as u64) as usize;
        match random.below(24) {
            0 if self.snapshots.len() < 4 => {
                self.last += 1;
                volume.take_snapshot(&self.last.to_string()).unwrap();
                self.snapshots.push((self.last, self.main.clone(), false));
            }
            1 if self.snapshots.len() < 6 && !self.clones.is_empty() => {
                self.last += 1;
                let (number, _, bytes) = &self.clones[clone];
                let clone = volume.writable_clone(&number.to_string()).unwrap();
                clone.take_snapshot(&self.last.to_string()).unwrap();
                self.snapshots.push((self.last, bytes.clone(), true));
            }
            2 if !self.snapshots.is_empty() => {
                let i = random.below(self.snapshots.len() as u64) as usize;
                let number = self.snapshots[i].0;
                let deleted = volume.delete_snapshot(&number.to_string());
                match self.clones.iter().any(|clone| clone.1 == number) {
                    true => refused(deleted, "delete that first"),
                    false => {
                        deleted.unwrap();
                        self.snapshots.remove(i);
                    }
                }
            }
            3 | 4 if !self.snapshots.is_empty() && self.clones.len() < 4 => {
                self.last += 1;
                let i = random.below(self.snapshots.len() as u64) as usize;
                let (of, bytes, _) = &self.snapshots[i];
                volume.clone_snapshot(&of.to_string(), &self.last.to_string()).unwrap();
                self.clones.push((self.last, *of, bytes.clone()));
            }
            5 if !self.clones.is_empty() => {
                let (number, ..) = self.clones.remove(clone);
                volume.delete_clone(&number.to_string()).unwrap();
            }
            6 if !self.snapshots.is_empty() && random.below(4) == 0 => {
                let i = random.below(self.snapshots.len() as u64) as usize;
                let (number, bytes, is_of_clone) = &self.snapshots[i];
                let restored = volume.restore_snapshot(&number.to_string());
                match is_of_clone {
                    true => refused(restored, "is of a clone"),
                    false => {
                        restored.unwrap();
                        self.main = bytes.clone();
                    }
                }
            }
            7..=15 if !self.clones.is_empty() => {
                let (number, _, bytes) = &mut self.clones[clone];
                let ask = ask(random, blocks(bytes));
                let device = volume.writable_clone(&number.to_string()).unwrap();
                run_on(&device, &ask).unwrap();
                apply(bytes, &ask);
            }
            _ => {
                for ask in asks(random, blocks(&self.main)) {
                    run(volume, &ask).unwrap();
                    apply(&mut self.main, &ask);
                }
            }
        }
    }

    #[track_caller]
    fn check(&self, volume: &Arc<Volume>) {
        assert!(whole(volume) == self.main);
        for (number, bytes, _) in &self.snapshots {
            assert!(snapshot_of(volume, &number.to_string()) == *bytes, "snapshot {number}");
        }
        let told: Vec<(String, String)> =
            volume.clones().into_iter().map(|info| (info.name, info.snapshot)).collect();
        let expected: Vec<(String, String)> =
            self.clones.iter().map(|(a, b, _)| (a.to_string(), b.to_string())).collect();
        assert_eq!(told, expected);
        for (number, _, bytes) in &self.clones {
            assert!(clone_of(volume, &number.to_string()) == *bytes, "clone {number}");
        }
        check(volume);
    }
}

#[test]
fn each_is_what_was_written_to_it_and_nothing_else() {
    for seed in 0..12 {
        let mut random = Random(300 + seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let mut volume = Arc::new(Volume::create(device.clone(), options).unwrap());
        let mut model = Model::new(blocks);
        for i in 0..700 {
            model.step(&volume, &mut random);
            if random.below(40) == 0 {
                drop(volume);
                volume = Arc::new(Volume::open(device.clone()).unwrap());
            }
            if i % 50 == 49 {
                model.check(&volume);
            }
        }
        for (number, _, bytes) in &model.clones {
            let clone = volume.writable_clone(&number.to_string()).unwrap();
            fiche::testing::conformance(&clone, bytes, seed);
        }
        // And when there are none any more.
        for (number, ..) in std::mem::take(&mut model.clones) {
            volume.delete_clone(&number.to_string()).unwrap();
        }
        volume.trim().unwrap();
        model.check(&volume);
        let more = model.main.len() as u64 + (8 << 20);
        volume.resize(more, None).unwrap();
        model.main.resize(more as usize, 0);
        drop(volume);
        let volume = Arc::new(Volume::open(device.clone()).unwrap());
        model.check(&volume);
    }
}

#[test]
fn a_repair_finds_them() {
    for seed in 0..12 {
        let mut random = Random(500 + seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
        let mut model = Model::new(blocks);
        for _ in 0..400 {
            model.step(&volume, &mut random);
        }
        volume.flush().unwrap();
        // As it is, or when its machine stops.
        let bytes = device.bytes();
        if random.below(2) == 0 {
            drop(volume);
        }
        let bytes = if seed % 2 == 0 { device.bytes() } else { bytes };
        let (volume, repaired) = Volume::repair(TracedDevice::holding(bytes)).unwrap();
        assert!(repaired.lost_clones.is_empty(), "{repaired:?}");
        let volume = Arc::new(volume);
        model.check(&volume);
        for _ in 0..100 {
            model.step(&volume, &mut random);
        }
        model.check(&volume);
    }
}

#[test]
fn what_a_clone_discarded_does_not_come_back_when_nothing_but_its_map_says_so() {
    let blocks = 2500u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), options.capacity(64 << 16)).unwrap();
    let volume = Arc::new(volume);
    let mut random = Random(8);
    // Each block has something of its own that shrinks to next to nothing.
    let mut model = vec![7; blocks as usize * BLOCK];
    model.chunks_mut(BLOCK).for_each(|block| block[..20].copy_from_slice(&random.bytes(20)));
    volume.write_at(0, &model).unwrap();
    volume.take_snapshot("first").unwrap();
    volume.clone_snapshot("first", "clone").unwrap();
    let clone = volume.writable_clone("clone").unwrap();
    let (from, to) = (1000 * BLOCK, 2400 * BLOCK);
    let mut copy = model.clone();
    clone.discard_at(from as u64, (to - from) as u64).unwrap();
    copy[from..to].fill(0);
    drop(clone);
    // The log goes over all that said so.
    for _ in 0..3000 {
        let block = random.below(100) as usize;
        let bytes = random.bytes(BLOCK);
        volume.write_at((block * BLOCK) as u64, &bytes).unwrap();
        model[block * BLOCK..][..BLOCK].copy_from_slice(&bytes);
    }
    drop(volume);
    let (volume, _) = Volume::repair(TracedDevice::holding(device.bytes())).unwrap();
    let volume = Arc::new(volume);
    assert!(whole(&volume) == model && clone_of(&volume, "clone") == copy);
    check(&volume);
}

#[test]
fn a_root_that_is_older_than_a_clone_says_nothing_of_it() {
    let device = TracedDevice::default();
    let options = Options::new(1300 * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(9);
    let model = random.text(1300 * BLOCK);
    volume.write_at(0, &model).unwrap();
    volume.take_snapshot("first").unwrap();
    volume.clone_snapshot("first", "one").unwrap();
    volume.clone_snapshot("first", "two").unwrap();
    let mut copy = model.clone();
    let bytes = random.text(9 * BLOCK);
    volume.writable_clone("two").unwrap().write_at(30 * BLOCK as u64, &bytes).unwrap();
    copy[30 * BLOCK..39 * BLOCK].copy_from_slice(&bytes);
    volume.flush().unwrap();
    let mut bytes = device.bytes();
    let root = word(&bytes, newest(&bytes) + 64) as usize;
    bytes[root + 20] ^= 1;
    assert!(Volume::open(TracedDevice::holding(bytes.clone())).is_err());
    let (volume, told) = Volume::repair(TracedDevice::holding(bytes)).unwrap();
    assert!(told.damaged == 1 && told.lost_clones.is_empty(), "{told:?}");
    let volume = Arc::new(volume);
    assert!(whole(&volume) == model && clone_of(&volume, "one") == model);
    assert!(clone_of(&volume, "two") == copy);
    check(&volume);
}

#[test]
fn nor_of_one_that_has_no_node_of_its_own() {
    let blocks = (1u64 << 20) + 5;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(18).codec(Codec::Lz4);
    let volume = Volume::create(device.clone(), options.capacity(40 << 20)).unwrap();
    let volume = Arc::new(volume);
    let text = Random(11).text(5 * BLOCK);
    let last = (blocks - 5) * BLOCK as u64;
    for at in [0, last] {
        volume.write_at(at, &text).unwrap();
    }
    volume.take_snapshot("first").unwrap();
    volume.clone_snapshot("first", "one").unwrap();
    volume.clone_snapshot("first", "two").unwrap();
    let mut bytes = device.bytes();
    let root = word(&bytes, newest(&bytes) + 64) as usize;
    bytes[root + 20] ^= 1;
    let (volume, told) = Volume::repair(TracedDevice::holding(bytes)).unwrap();
    assert!(told.damaged == 1 && told.lost_clones.is_empty(), "{told:?}");
    let volume = Arc::new(volume);
    for name in ["one", "two"] {
        let clone = volume.writable_clone(name).unwrap();
        for at in [0, last] {
            let mut found = vec![0; text.len()];
            clone.read_at(at, &mut found).unwrap();
            assert!(found == text, "{name}, {at}");
        }
    }
    check(&volume);
}

#[test]
fn a_clone_without_its_snapshot_is_lost_and_named() {
    let device = TracedDevice::default();
    let options = Options::new(300 * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(10);
    let model = random.text(300 * BLOCK);
    volume.write_at(0, &model).unwrap();
    for snapshot in ["first", "second"] {
        volume.take_snapshot(snapshot).unwrap();
        volume.clone_snapshot(snapshot, &format!("of the {snapshot}")).unwrap();
    }
    for name in ["of the first", "of the second"] {
        volume.writable_clone(name).unwrap().write_at(0, &model[BLOCK..2 * BLOCK]).unwrap();
    }
    volume.flush().unwrap();
    drop(volume);
    let mut bytes = device.bytes();
    let list = word(&bytes, newest(&bytes) + 88) as usize;
    let mut place = [0; 8];
    place[..5].copy_from_slice(&bytes[list + 16..][..5]);
    bytes[u64::from_le_bytes(place) as usize * 8 + 20] ^= 1;
    let (volume, told) = Volume::repair(TracedDevice::holding(bytes)).unwrap();
    assert_eq!(told.lost_clones, ["of the first"]);
    let volume = Arc::new(volume);
    let clones: Vec<String> = volume.clones().into_iter().map(|info| info.name).collect();
    assert!(clones == ["of the second"] && whole(&volume) == model);
    assert!(clone_of(&volume, "of the second")[BLOCK..] == model[BLOCK..]);
    check(&volume);
    volume.delete_clone("of the second").unwrap();
    volume.trim().unwrap();
    check(&volume);
}

#[test]
fn what_only_a_clone_had_is_room_again_when_it_is_gone() {
    let blocks = 2000u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(17).codec(Codec::Copy);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(4);
    let mut model = random.bytes(blocks as usize * BLOCK);
    volume.write_at(0, &model).unwrap();
    volume.take_snapshot("first").unwrap();
    let before = (volume.stats(), device.bytes().len());
    for round in 0..5 {
        volume.clone_snapshot("first", "clone").unwrap();
        let clone = volume.writable_clone("clone").unwrap();
        assert_eq!(clone.len(), model.len() as u64);
        // It takes next to nothing, and then what is written to it.
        let stats = volume.stats();
        let own = before.0.used_segments + 6 + 4 * round;
        assert!(stats.used_segments <= own, "{stats:?}");
        assert!(stats.most_segments > before.0.most_segments + 62, "{stats:?}");
        let bytes = random.bytes(blocks as usize * BLOCK);
        clone.write_at(0, &bytes).unwrap();
        assert!(clone_of(&volume, "clone") == bytes && whole(&volume) == model);
        refused(volume.delete_clone("clone"), "in use");
        drop(clone);
        let stats = volume.stats();
        assert!(stats.used_segments > before.0.used_segments + 60 && stats.clones == 1);
        volume.delete_clone("clone").unwrap();
        assert!(volume.clones().is_empty() && volume.stats().clones == 0);
        check(&volume);
        // It is cleared away beside, or at once.
        match round % 2 {
            0 => volume.trim().unwrap(),
            _ => while volume.tend(true).unwrap() {},
        }
        let stats = volume.stats();
        // The volume has some of its own each time.
        let own = before.0.used_segments + 3 + 4 * round;
        assert!(stats.used_segments <= own, "{stats:?}");
        assert_eq!(stats.most_segments, before.0.most_segments);
        check(&volume);
        // The volume goes on meanwhile.
        let bytes = random.bytes(64 * BLOCK);
        volume.write_at(round * 300 * BLOCK as u64, &bytes).unwrap();
        model[round as usize * 300 * BLOCK..][..bytes.len()].copy_from_slice(&bytes);
    }
    assert!(device.bytes().len() < before.1 + 2 * model.len(), "it is used again");
    volume.delete_snapshot("first").unwrap();
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn what_a_clone_had_is_not_written_over_before_a_superblock_says_that_it_is_gone() {
    let blocks = 300u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    // Not enough for the volume and a clone beside each other.
    let options = options.unit(BLOCK).capacity(blocks * BLOCK as u64 * 4 / 3 + (18 << 16));
    let device = TracedDevice::default();
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(6);
    let mut model = vec![0; blocks as usize * BLOCK];
    model[..40 * BLOCK].copy_from_slice(&random.bytes(40 * BLOCK));
    volume.write_at(0, &model[..40 * BLOCK]).unwrap();
    volume.take_snapshot("first").unwrap();
    volume.clone_snapshot("first", "clone").unwrap();
    let clone = volume.writable_clone("clone").unwrap();
    clone.write_at(0, &random.bytes(240 * BLOCK)).unwrap();
    drop(clone);
    volume.delete_clone("clone").unwrap();
    // What it had is counted no more, and its region is still there.
    assert!(volume.tend(false).unwrap());
    let before = volume.stats().checkpoints;
    let mut block = 40;
    while volume.stats().checkpoints == before {
        let bytes = random.bytes(BLOCK);
        volume.write_at(block as u64 * BLOCK as u64, &bytes).unwrap();
        model[block * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        volume.flush().unwrap();
        let stopped = TracedDevice::holding(device.bytes());
        let opened = Arc::new(Volume::open(stopped).unwrap());
        assert!(whole(&opened) == model, "{block}");
        check(&opened);
        while opened.tend(false).unwrap() {}
        assert!(whole(&opened) == model, "{block}");
        check(&opened);
        block += 1;
        assert!(block < blocks as usize, "there was room enough");
    }
    assert!(block > 50, "{block}");
}

#[test]
fn a_clone_of_little_room_shares_it() {
    let blocks = 500u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    let options = options.unit(BLOCK).capacity(blocks * BLOCK as u64 * 5 / 4 + (18 << 16));
    let volume = Arc::new(Volume::create(TracedDevice::default(), options).unwrap());
    let mut random = Random(4);
    let model = random.bytes(blocks as usize * BLOCK);
    volume.write_at(0, &model).unwrap();
    volume.take_snapshot("first").unwrap();
    volume.clone_snapshot("first", "clone").unwrap();
    let clone = volume.writable_clone("clone").unwrap();
    let mut copy = model.clone();
    fill_up(&clone, &mut copy, &mut random);
    assert!(whole(&volume) == model && clone_of(&volume, "clone") == copy);
    check(&volume);
    // Discarding makes room.
    clone.discard_at(0, clone.len()).unwrap();
    clone.write_at(0, &copy[..40 * BLOCK]).unwrap();
    copy[40 * BLOCK..].fill(0);
    assert!(whole(&volume) == model && clone_of(&volume, "clone") == copy);
    drop(clone);
    volume.delete_clone("clone").unwrap();
    volume.delete_snapshot("first").unwrap();
    volume.write_at(0, &copy[..40 * BLOCK]).unwrap();
    check(&volume);
}

#[test]
fn they_are_made_while_another_thread_moves_blocks() {
    let device = TracedDevice::default();
    let blocks = 120u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(17).codec(Codec::Lz4);
    drop(Volume::create(device.clone(), options.unit(BLOCK)).unwrap());
    let opened = OpenOptions::default().pack(2 * BLOCK);
    let volume = Arc::new(opened.open(crashes::Slow(device.clone())).unwrap());
    let mut random = Random(12);
    let mut model = vec![0; blocks as usize * BLOCK];
    let is_over = std::sync::atomic::AtomicBool::new(false);
    /// Also if something is wrong.
    struct Over<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        let tend = || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                volume.tend(true).unwrap();
            }
        };
        std::thread::Builder::new().name("tends".into()).spawn_scoped(scope, tend).unwrap();
        let mut write = |model: &mut Vec<u8>, times: u64| {
            for _ in 0..times {
                let block = random.below(blocks) as usize;
                let bytes = random.bytes(BLOCK / 2);
                volume.write_at((block * BLOCK) as u64, &bytes).unwrap();
                model[block * BLOCK..][..bytes.len()].copy_from_slice(&bytes);
            }
            random.below(500)
        };
        for i in 0..200u64 {
            write(&mut model, 100);
            let (snapshot, name) = (format!("of {i}"), i.to_string());
            volume.take_snapshot(&snapshot).unwrap();
            // What is written now is moved behind the head that the snapshot holds.
            let kept = model.clone();
            let pause = write(&mut model, 150 + i % 50);
            std::thread::sleep(std::time::Duration::from_micros(pause));
            volume.clone_snapshot(&snapshot, &name).unwrap();
            assert!(clone_of(&volume, &name) == kept, "{i}");
            volume.delete_clone(&name).unwrap();
            volume.delete_snapshot(&snapshot).unwrap();
        }
    });
    assert!(volume.stats().moved_len > 0 && whole(&volume) == model);
    check(&volume);
    volume.flush().unwrap();
    let stopped = Arc::new(Volume::open(TracedDevice::holding(device.bytes())).unwrap());
    assert!(whole(&stopped) == model);
    check(&stopped);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let volume = Volume::create(TracedDevice::default(), Options::new(1 << 20)).unwrap();
    let volume = Arc::new(volume);
    refused(volume.clone_snapshot("none", "clone"), "there is no snapshot none");
    volume.take_snapshot("first").unwrap();
    refused(volume.clone_snapshot("first", "first"), "there is a snapshot first already");
    refused(volume.clone_snapshot("first", ""), "1 to 255 bytes");
    volume.clone_snapshot("first", "clone").unwrap();
    refused(volume.clone_snapshot("first", "clone"), "there is a clone clone already");
    refused(volume.take_snapshot("clone"), "there is a clone clone already");
    refused(volume.delete_snapshot("first"), "the clone clone was made from the snapshot first");
    refused(volume.delete_clone("other"), "there is no clone other");
    let clone = volume.writable_clone("clone").unwrap();
    let out = |result: fiche::Result<()>| assert!(matches!(result, Err(Error::OutOfBounds { .. })));
    out(clone.write_at(1 << 20, b"x"));
    out(clone.write_at((1 << 20) - 4096, &[1; 8192]));
    out(clone.read_at(1, &mut vec![0; 1 << 20]));
    out(clone.zero_at(4096, 1 << 20));
    assert!(volume.writable_clone("other").is_err());
    // Longer than a region of the map.
    let limit = |result: fiche::Result<()>| assert!(matches!(result, Err(Error::Limit { .. })));
    limit(volume.resize(5 << 40, Some(1 << 30)));
    let long = Volume::create(
        TracedDevice::default(),
        Options::new(5 << 40).segment_bits(20).capacity(1 << 30),
    );
    let long = Arc::new(long.unwrap());
    long.take_snapshot("first").unwrap();
    limit(long.clone_snapshot("first", "clone"));
}
