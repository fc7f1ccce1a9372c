//! What is kept of a volume as it was.

use std::io;

use fiche::volume::{FileDevice, Snapshot};

use super::golden::{newest, word};
use super::*;

fn names(volume: &Volume) -> Vec<String> {
    volume.snapshots().into_iter().map(|info| info.name).collect()
}

#[test]
fn whatever_is_done_later_a_snapshot_is_what_was_there() {
    for seed in 0..8 {
        let mut random = Random(100 + seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let mut volume = Arc::new(Volume::create(device.clone(), options).unwrap());
        let mut model = vec![0; blocks as usize * BLOCK];
        let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
        for i in 0..500 {
            for ask in asks(&mut random, (model.len() / BLOCK) as u64) {
                run(&volume, &ask).unwrap_or_else(|error| panic!("{seed}, {i}: {error}"));
                apply(&mut model, &ask);
            }
            match random.below(12) {
                0 => {
                    let name = format!("as of {i}");
                    volume.take_snapshot(&name).unwrap();
                    kept.push((name, model.clone()));
                }
                1 if !kept.is_empty() => {
                    let (name, _) = kept.remove(random.below(kept.len() as u64) as usize);
                    volume.delete_snapshot(&name).unwrap();
                }
                2 if i % 3 == 0 => {
                    drop(volume);
                    volume = Arc::new(Volume::open(device.clone()).unwrap());
                }
                _ => {}
            }
            if !kept.is_empty() {
                let (name, bytes) = &kept[random.below(kept.len() as u64) as usize];
                let snapshot = volume.snapshot(name).unwrap();
                let from = random.below(bytes.len() as u64);
                let len = random.below(20_000).min(bytes.len() as u64 - from) as usize;
                let mut piece = vec![0xAA; len];
                snapshot.read_at(from, &mut piece).unwrap();
                assert!(piece == bytes[from as usize..][..len], "{seed}, {i}: {from}+{len}");
                let (run, is_zero) = snapshot.run_at(from).unwrap();
                let run = &bytes[from as usize..][..run as usize];
                assert!(!is_zero || run.iter().all(|&byte| byte == 0));
            }
            if i % 50 == 49 {
                assert!(whole(&volume) == model, "{seed}, {i}");
                let expected: Vec<&String> = kept.iter().map(|(name, _)| name).collect();
                assert_eq!(names(&volume).iter().collect::<Vec<_>>(), expected);
                for (name, bytes) in &kept {
                    assert!(snapshot_of(&volume, name) == *bytes, "{seed}, {i}: {name}");
                }
                check(&volume);
            }
        }
        assert!(!kept.is_empty());
        let (name, bytes) = &kept[0];
        let snapshot = volume.snapshot(name).unwrap();
        fiche::testing::conformance(&snapshot, bytes, seed);
    }
}

#[test]
fn what_only_a_snapshot_needed_is_room_again_when_it_is_gone() {
    let blocks = 500u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    // Enough for the volume, and not for twice of it.
    let options = options.unit(BLOCK).capacity(blocks * BLOCK as u64 * 5 / 4 + (18 << 16));
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(4);
    let mut model = random.bytes(blocks as usize * BLOCK);
    volume.write_at(0, &model).unwrap();
    for round in 0..4 {
        let name = format!("{round}");
        let before = model.clone();
        volume.take_snapshot(&name).unwrap();
        fill_up(&*volume, &mut model, &mut random);
        let stats = volume.stats();
        assert!(stats.snapshots == 1 && (round > 0 || stats.held_segments > 5), "{stats:?}");
        // All of it is there, and the next may not be taken.
        assert!(whole(&volume) == model && snapshot_of(&volume, &name) == before);
        match volume.take_snapshot("no room") {
            Err(Error::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        check(&volume);
        volume.delete_snapshot(&name).unwrap();
        assert_eq!(volume.stats().held_segments, 0);
        for _ in 0..2 * blocks {
            let block = random.below(blocks) as usize;
            let bytes = random.bytes(BLOCK);
            volume.write_at((block * BLOCK) as u64, &bytes).unwrap();
            model[block * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        }
        assert!(whole(&volume) == model);
        check(&volume);
    }
}

#[test]
fn a_snapshot_has_a_name_of_its_own_and_is_not_deleted_while_it_is_read() {
    let volume = Volume::create(TracedDevice::default(), Options::new(1 << 20)).unwrap();
    let volume = Arc::new(volume);
    volume.take_snapshot("of nothing").unwrap();
    volume.write_at(0, &[7; BLOCK]).unwrap();
    let refused = |result: fiche::Result<()>, why: &str| match result {
        Err(Error::Invalid { what }) => assert!(what.contains(why), "{what}"),
        other => panic!("{other:?}"),
    };
    refused(volume.take_snapshot("of nothing"), "there is a snapshot of nothing already");
    refused(volume.take_snapshot(""), "1 to 255 bytes");
    refused(volume.take_snapshot("two\nlines"), "1 to 255 bytes");
    refused(volume.take_snapshot(&"x".repeat(256)), "1 to 255 bytes");
    volume.take_snapshot(&"x".repeat(255)).unwrap();
    refused(volume.delete_snapshot("another"), "there is no snapshot another");
    refused(volume.snapshot("another").map(drop), "there is no snapshot another");
    let snapshot = volume.snapshot("of nothing").unwrap();
    refused(volume.delete_snapshot("of nothing"), "is being read");
    assert_eq!(snapshot.run_at(5).unwrap(), ((1 << 20) - 5, true));
    assert!(snapshot.read_at((1 << 20) - 1, &mut [0; 2]).is_err());
    drop(snapshot);
    volume.delete_snapshot("of nothing").unwrap();
    assert_eq!(names(&volume), ["x".repeat(255)]);
}

#[test]
fn a_volume_becomes_again_what_a_snapshot_holds() {
    for seed in 0..6 {
        let mut random = Random(200 + seed);
        let (blocks, options) = options(&mut random);
        let device = TracedDevice::default();
        let mut volume = Arc::new(Volume::create(device.clone(), options).unwrap());
        let mut model = vec![0; blocks as usize * BLOCK];
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for i in 0..400 {
            for ask in asks(&mut random, (model.len() / BLOCK) as u64) {
                run(&volume, &ask).unwrap_or_else(|error| panic!("{seed}, {i}: {error}"));
                apply(&mut model, &ask);
            }
            match random.below(40) {
                0 if kept.len() < 4 => {
                    volume.take_snapshot(&kept.len().to_string()).unwrap();
                    kept.push(model.clone());
                }
                1 if !kept.is_empty() => {
                    let i = random.below(kept.len() as u64) as usize;
                    volume.restore_snapshot(&i.to_string()).unwrap();
                    model.clone_from(&kept[i]);
                    // Durable, whatever follows.
                    let stopped = Volume::open(TracedDevice::holding(device.bytes())).unwrap();
                    assert!(whole(&stopped) == model, "{seed}, {i}");
                    check(&stopped);
                }
                2 => {
                    drop(volume);
                    volume = Arc::new(Volume::open(device.clone()).unwrap());
                }
                _ => {}
            }
            if i % 20 == 0 {
                assert!(whole(&volume) == model, "{seed}, {i}");
                check(&volume);
            }
        }
        for (i, bytes) in kept.iter().enumerate() {
            assert!(snapshot_of(&volume, &i.to_string()) == *bytes, "{seed}: {i}");
        }
    }
}

#[test]
fn a_snapshot_is_read_from_the_file_while_the_volume_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    let device = FileDevice::create(&path).unwrap();
    let blocks = 600u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Arc::new(Volume::create(device, options).unwrap());
    let mut random = Random(3);
    let mut fill = |volume: &Volume| {
        let mut text = Vec::new();
        while text.len() < blocks as usize * BLOCK {
            text.extend(random.text(BLOCK));
        }
        volume.write_at(0, &text).unwrap();
        text
    };
    let then = fill(&volume);
    volume.take_snapshot("then").unwrap();
    let file = || FileDevice::read_only(&path).unwrap();
    let snapshot = Snapshot::open(file(), "then").unwrap();
    let mut now = Vec::new();
    for _ in 0..10 {
        now = fill(&volume);
        volume.tend(true).unwrap();
        let mut bytes = vec![0; then.len()];
        snapshot.read_at(0, &mut bytes).unwrap();
        assert!(bytes == then && snapshot.is_there().unwrap());
    }
    assert!(Snapshot::open(file(), "another").is_err());
    // Others do not know of who reads so.
    volume.delete_snapshot("then").unwrap();
    assert!(!snapshot.is_there().unwrap());
    volume.take_snapshot("then").unwrap();
    assert!(!snapshot.is_there().unwrap());
    drop(snapshot);
    drop(volume);
    let volume = Volume::open(FileDevice::open(&path).unwrap()).unwrap();
    assert!(whole(&volume) == now);
    check(&volume);
}

#[test]
fn many_snapshots_take_what_differs() {
    let blocks = 2000u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(17).codec(Codec::Lz4);
    let options = options.unit(BLOCK);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(8);
    let mut model = Vec::new();
    while model.len() < blocks as usize * BLOCK {
        model.extend(random.text(BLOCK));
    }
    volume.write_at(0, &model).unwrap();
    let before = volume.stats().stored_len();
    let mut kept = Vec::new();
    for i in 0..200 {
        let block = random.below(blocks) as usize;
        let text = random.text(BLOCK);
        volume.write_at((block * BLOCK) as u64, &text).unwrap();
        model[block * BLOCK..][..BLOCK].copy_from_slice(&text);
        let appended = volume.stats().appended_len;
        volume.take_snapshot(&format!("{i}")).unwrap();
        // The nodes above one block, counts, and lists: however much the volume holds.
        let appended = volume.stats().appended_len - appended;
        assert!(appended < 20_000, "snapshot {i} took {appended} bytes");
        kept.push(digests(&model));
    }
    let stats = volume.stats();
    assert!(stats.stored_len() - before < 200 * 20_000, "{stats:?}");
    drop(volume);
    let volume = Arc::new(Volume::open(device).unwrap());
    for i in [0, 17, 100, 199] {
        assert!(digests(&snapshot_of(&volume, &format!("{i}"))) == kept[i], "{i}");
    }
    check(&volume);
    // A snapshot is listed by who does not open the volume, too.
    for i in 0..200 {
        volume.delete_snapshot(&format!("{i}")).unwrap();
    }
    while volume.tend(true).unwrap() {}
    let after = volume.stats().stored_len();
    assert!(after < before * 5 / 4, "{after} bytes, {before} before");
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn segments_that_hold_nothing_but_what_is_told_of_snapshots_are_cleaned() {
    let blocks = 100u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut random = Random(5);
    for i in 0..12 {
        // Of nothing, in the middle of what is gone later.
        volume.write_at(0, &random.bytes(blocks as usize * BLOCK)).unwrap();
        volume.discard_at(0, blocks * BLOCK as u64).unwrap();
        volume.take_snapshot(&i.to_string()).unwrap();
    }
    while volume.tend(true).unwrap() {}
    let stats = volume.stats();
    assert!(stats.used_segments <= 5 && stats.held_segments == 0, "{stats:?}");
    for i in 0..12 {
        let bytes = snapshot_of(&volume, &i.to_string());
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
    drop(volume);
    let volume = Arc::new(Volume::open(device).unwrap());
    assert_eq!(names(&volume).len(), 12);
    check(&volume);
}

#[test]
fn a_damaged_map_is_made_anew_and_snapshots_stay() {
    let device = TracedDevice::default();
    let blocks = 300u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Arc::new(Volume::create(device.clone(), options.unit(BLOCK)).unwrap());
    let mut random = Random(2);
    let mut text = |volume: &Volume| {
        for i in 0..100 {
            let block = i * 3 % blocks;
            volume.write_at(block * BLOCK as u64, &random.text(BLOCK)).unwrap();
        }
        whole(volume)
    };
    let first = text(&volume);
    volume.take_snapshot("first").unwrap();
    let second = text(&volume);
    volume.take_snapshot("second").unwrap();
    let now = text(&volume);
    drop(volume);
    let bytes = device.bytes();
    let described = fiche::volume::describe(&bytes).unwrap();
    let told: Vec<&str> = described.snapshots.iter().map(|info| &info.name[..]).collect();
    assert_eq!(told, ["first", "second"]);
    assert!(described.snapshots.iter().all(|info| info.len == blocks * BLOCK as u64));
    // The newest superblock says where the map, the usage and the snapshots are: each of these is damaged in turn.
    let newest = newest(&bytes);
    for field in [64, 72, 88] {
        let at = word(&bytes, newest + field) as usize;
        let mut damaged = bytes.clone();
        damaged[at + 17] ^= 1;
        let opened = Volume::open(TracedDevice::holding(damaged.clone()));
        let is_right = opened.is_ok_and(|volume| volume.check().unwrap().is_whole());
        assert!(!is_right, "{field}");
        let device = TracedDevice::holding(damaged);
        let (volume, _) = Volume::repair(device.clone()).unwrap();
        drop(volume);
        let volume = Arc::new(Volume::open(device).unwrap());
        assert!(whole(&volume) == now, "{field}");
        // The list before the damaged one is of the second, too: it was stored again since.
        assert_eq!(names(&volume), ["first", "second"], "{field}");
        assert!(snapshot_of(&volume, "first") == first, "{field}");
        assert!(snapshot_of(&volume, "second") == second, "{field}");
        check(&volume);
    }
}

#[test]
fn what_was_restored_is_there_after_a_repair() {
    // Of as many levels of the map as some, and more.
    for (blocks, with_clone) in [(300u64, false), (3000, false), (3000, true)] {
        let device = TracedDevice::default();
        let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
        let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
        let mut random = Random(blocks);
        let first = random.text(blocks as usize * BLOCK / 2);
        volume.write_at(0, &first).unwrap();
        volume.take_snapshot("first").unwrap();
        if with_clone {
            volume.clone_snapshot("first", "clone").unwrap();
        }
        let second = random.text(blocks as usize * BLOCK);
        volume.write_at(0, &second).unwrap();
        volume.take_snapshot("second").unwrap();
        volume.restore_snapshot("first").unwrap();
        check(&volume);
        drop(volume);
        let (volume, _) = Volume::repair(TracedDevice::holding(device.bytes())).unwrap();
        let mut model = vec![0; blocks as usize * BLOCK];
        model[..first.len()].copy_from_slice(&first);
        let volume = Arc::new(volume);
        assert!(whole(&volume) == model && snapshot_of(&volume, "second") == second);
        check(&volume);
    }
}
