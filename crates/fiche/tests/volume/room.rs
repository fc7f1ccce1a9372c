//! Full volumes and file systems, longer and shorter ones, and memory.

use fiche::testing::Step;

use super::*;

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
fn what_was_written_with_little_memory_is_opened_with_as_little() {
    // Patterns take so little that a segment has blocks of hundreds of nodes, which the cleaner moves.
    let (leaves, leaf) = (600, 1024 * BLOCK as u64);
    let device = TracedDevice::default();
    let options = Options::new(leaves * leaf).segment_bits(16).capacity(10 << 20);
    drop(Volume::create(device.clone(), options).unwrap());
    let little = || OpenOptions::default().memory(1 << 20);
    let volume = little().open(device.clone()).unwrap();
    let mut random = Random(8);
    let mut stops = 0;
    for round in 0..2u64 {
        let (start, begun) = (device.bytes(), device.len_of_trace());
        for i in 0..6000 {
            let at = random.below(leaves) * leaf + random.below(12) * BLOCK as u64;
            volume.write_at(at, &[1 + (i % 250) as u8; BLOCK]).unwrap();
        }
        // Which cleans what is worth it.
        volume.trim().unwrap();
        let (steps, mut image) = (device.trace(), start);
        for (i, step) in steps[begun..].iter().enumerate() {
            match step {
                Step::Write(pos, bytes) => {
                    image[*pos as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Step::Grow(len) => image.resize(*len as usize, 0),
                Step::Sync => {}
            }
            // The log is longest just before a superblock.
            let next = steps.get(begun + i + 2);
            if i % 2 == 0 && matches!(next, Some(Step::Write(pos, _)) if *pos < 1 << 16) {
                let stopped = TracedDevice::holding(image.clone());
                drop(
                    little().open(stopped).unwrap_or_else(|error| panic!("{round}, {i}: {error}")),
                );
                stops += 1;
            }
        }
    }
    assert!(stops > 10, "{stops} stops");
    check(&volume);
}

#[test]
fn what_reaches_beyond_the_end_is_cleaned_and_found_again() {
    let device = TracedDevice::default();
    let options = Options::new(64 * BLOCK as u64).segment_bits(16).unit(8 * BLOCK);
    let volume = Volume::create(device.clone(), options.codec(Codec::Lz4)).unwrap();
    let mut random = Random(4);
    // Units and a pattern of which the first blocks stay.
    let mut model = random.text(32 * BLOCK);
    volume.write_at(0, &model).unwrap();
    volume.write_at(32 * BLOCK as u64, &[9; 32 * BLOCK]).unwrap();
    model.extend([9; 32 * BLOCK]);
    for blocks in [37, 21, 3] {
        let len = (blocks * BLOCK) as u64;
        volume.discard_at(len, volume.len() - len).unwrap();
        volume.resize(len, None).unwrap();
        model.truncate(blocks * BLOCK);
        let (stopped, told) = Volume::repair(TracedDevice::holding(device.bytes())).unwrap();
        assert!(whole(&stopped) == model, "{blocks} blocks: {told:?}");
        check(&stopped);
    }
    // Without a node that would say it.
    let mut image = device.bytes();
    for at in (1 << 16..image.len() - 32).step_by(8) {
        // A fragment's kind, where a node's level is.
        if image[at + 15] == 32 && image[at + 9..at + 12] == [1, 0, 0] {
            image[at + 20] ^= 1;
        }
    }
    let (found, _) = Volume::repair(TracedDevice::holding(image)).unwrap();
    assert!(whole(&found) == model);
    let segments = device.bytes().len() >> 16;
    for _ in 0..40 * segments {
        volume.write_at(0, &random.text(BLOCK)[..]).unwrap();
    }
    volume.read_at(0, &mut model[..BLOCK]).unwrap();
    volume.trim().unwrap();
    assert!(whole(&volume) == model);
    check(&volume);
    // Nothing of the first segments is left.
    let bytes = device.bytes();
    assert!(bytes[1 << 16..2 << 16].iter().all(|&byte| byte == 0));
}

#[test]
fn a_device_that_fails_while_it_is_resized_leaves_it_as_it_was_or_as_it_is_to_be() {
    let (short, long) = (1000 * BLOCK as u64, 3000 * BLOCK as u64);
    let mut outcomes = [0, 0];
    for fault in 0..60 {
        let device = TracedDevice::default();
        let options = Options::new(if fault % 2 == 0 { short } else { long }).segment_bits(16);
        let volume = Volume::create(device.clone(), options).unwrap();
        let text = Random(fault).text(9 * BLOCK);
        volume.write_at(BLOCK as u64, &text).unwrap();
        volume.flush().unwrap();
        let [writes, _, syncs, allocations] = device.calls();
        let which = fault / 8;
        device.set_fault(Some(match fault / 2 % 4 {
            0 => Fault::Write(writes + which),
            1 => Fault::Sync(syncs + which),
            2 => Fault::Read(device.calls()[1] + which),
            _ => Fault::Allocate(allocations + which),
        }));
        let wanted = if fault % 2 == 0 { long } else { short };
        let resized = volume.resize(wanted, None);
        // Whoever writes on is refused, or finds it as long as it says.
        let wrote = volume.write_at(volume.len() - BLOCK as u64, &text[..BLOCK]);
        let _ = volume.run_at(volume.len() - 1);
        let _ = volume.flush();
        let stopped = TracedDevice::holding(device.bytes());
        device.set_fault(None);
        let found = Volume::open(stopped).unwrap();
        assert!(found.len() == short || found.len() == long);
        if resized.is_ok() {
            assert_eq!(found.len(), wanted, "{fault}");
        }
        outcomes[usize::from(resized.is_ok())] += 1;
        let mut piece = vec![0; text.len()];
        found.read_at(BLOCK as u64, &mut piece).unwrap();
        assert!(piece == text, "{fault}");
        if wrote.is_ok() {
            found.read_at(found.len() - BLOCK as u64, &mut piece[..BLOCK]).unwrap();
            assert!(piece[..BLOCK] == text[..BLOCK], "{fault}");
        }
        check(&found);
    }
    assert!(outcomes.iter().all(|&times| times > 5), "{outcomes:?}");
}
