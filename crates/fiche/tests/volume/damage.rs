//! What is damaged, and what is none.

use super::*;

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
