//! Dictionaries that are trained from what a volume holds.

use super::*;

/// How every dictionary of Zstandard begins.
pub(super) const MAGIC: [u8; 4] = [0x37, 0xA4, 0x30, 0xEC];

/// Blocks of sentences that many of them have, in any order; of another kind others.
pub(super) fn sentences(random: &mut Random, kind: u64, blocks: usize) -> Vec<u8> {
    let mut kind = Random(kind << 32 | 77);
    let sentences: Vec<Vec<u8>> =
        (0..300).map(|_| (0..70).map(|_| b'a' + kind.below(26) as u8).collect()).collect();
    let mut bytes = Vec::new();
    while bytes.len() < blocks * BLOCK {
        bytes.extend(&sentences[random.below(300) as usize]);
        bytes.extend(random.below(1000).to_string().into_bytes());
    }
    bytes.truncate(blocks * BLOCK);
    bytes
}

fn options(blocks: usize, unit: usize) -> Options {
    Options::new((blocks * BLOCK) as u64).segment_bits(18).unit(unit * BLOCK)
}

/// A volume of sentences on which nothing is due any more.
fn tended(blocks: usize, unit: usize, trains: bool) -> (TracedDevice, Arc<Volume>, Vec<u8>) {
    let device = TracedDevice::default();
    drop(Volume::create(device.clone(), options(blocks, unit)).unwrap());
    let volume = OpenOptions::default().train(trains).open(device.clone()).unwrap();
    let model = sentences(&mut Random(5), 0, blocks);
    volume.write_at(0, &model).unwrap();
    tend(&volume);
    (device, Arc::new(volume), model)
}

fn tend(volume: &Volume) {
    assert!((0..100_000).any(|_| !volume.tend(true).unwrap()), "it comes to an end");
}

/// Bytes of all units.
fn stored(volume: &Volume) -> u64 {
    let checked = volume.check().unwrap();
    assert!(checked.is_whole(), "{checked:?}");
    checked.stored_len
}

/// Where dictionaries lie.
fn copies(device: &TracedDevice) -> Vec<u64> {
    let image = device.bytes();
    let found = (0..image.len() - 4).filter(|&at| image[at..at + 4] == MAGIC);
    found.map(|at| at as u64).collect()
}

#[test]
fn with_what_they_have_in_common_units_of_a_block_shrink_like_long_ones() {
    let blocks = 2000;
    let [plain, long] = [1, 8].map(|unit| {
        let (_, volume, model) = tended(blocks, unit, false);
        assert!(whole(&volume) == model && volume.stats().dictionaries == 0);
        stored(&volume)
    });
    let (device, volume, mut model) = tended(blocks, 1, true);
    let stats = volume.stats();
    assert!(stats.dictionaries == 1 && (20 << 10..33 << 10).contains(&stats.dictionary_len));
    let trained = stored(&volume);
    assert!(trained * 2 < plain && trained < long, "{trained}, {plain} and {long} bytes");
    assert!(whole(&volume) == model);
    assert_eq!(copies(&device).len(), 2);
    // What is written from now on takes it at once.
    let before = volume.stats();
    let again = sentences(&mut Random(6), 0, 400);
    for (i, block) in again.chunks(BLOCK).enumerate() {
        volume.write_at((i * 5 * BLOCK) as u64, block).unwrap();
        model[i * 5 * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    let appended = volume.stats().appended_len - before.appended_len;
    assert!(appended * 5 < 400 * plain / blocks as u64 * 4, "{appended} bytes");
    // The machine stops, and is started again, once more without training.
    volume.flush().unwrap();
    for trains in [true, false] {
        let stopped = TracedDevice::holding(device.bytes());
        let opened = OpenOptions::default().train(trains).open(stopped).unwrap();
        assert!(whole(&opened) == model && opened.stats().dictionaries == 1);
        tend(&opened);
        assert!(whole(&opened) == model && opened.stats().dictionaries == 1);
        assert!(stored(&opened) < trained * 11 / 10);
    }
}

#[test]
fn where_units_have_nothing_in_common_nothing_is_trained() {
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), options(1000, 4)).unwrap();
    let mut random = Random(3);
    // Letters that come by chance, and noise.
    let mut model: Vec<u8> = (0..1000 * BLOCK).map(|_| b'a' + random.below(16) as u8).collect();
    model[500 * BLOCK..].copy_from_slice(&random.bytes(500 * BLOCK));
    volume.write_at(0, &model).unwrap();
    tend(&volume);
    assert_eq!(volume.stats().dictionaries, 0);
    assert!(copies(&device).is_empty() && whole(&volume) == model);
    // Nor of a volume that is packed by something else.
    let device = TracedDevice::default();
    let volume = Volume::create(device, options(1000, 4).codec(Codec::Lz4)).unwrap();
    volume.write_at(0, &sentences(&mut random, 1, 1000)).unwrap();
    tend(&volume);
    assert_eq!(volume.stats().dictionaries, 0);
}

#[test]
fn when_other_things_are_written_another_one_is_trained_and_all_is_read() {
    let blocks = 3000;
    let (device, volume, mut model) = tended(blocks, 1, true);
    volume.take_snapshot("first").unwrap();
    let first = model.clone();
    for kind in 1..4 {
        let from = kind as usize * 500 * BLOCK;
        let bytes = sentences(&mut Random(kind), kind, 1500);
        volume.write_at(from as u64, &bytes).unwrap();
        model[from..from + bytes.len()].copy_from_slice(&bytes);
        tend(&volume);
        assert!(whole(&volume) == model, "kind {kind}");
    }
    let count = volume.stats().dictionaries;
    assert!(count > 1, "{count} dictionaries");
    check(&volume);
    let snapshot = |device: TracedDevice| {
        let snapshot = fiche::volume::Snapshot::open(device, "first").unwrap();
        let mut bytes = vec![0; snapshot.len() as usize];
        snapshot.read_at(0, &mut bytes).unwrap();
        bytes
    };
    volume.flush().unwrap();
    // Beside the volume, and as it was when the machine stopped.
    assert!(snapshot(device.clone()) == first);
    let (repaired, _) = Volume::repair(TracedDevice::holding(device.bytes())).unwrap();
    assert!(whole(&repaired) == model && repaired.stats().dictionaries == count);
    check(&repaired);
    drop(repaired);
    // All that there was is replaced by noise: where dictionaries lie is cleaned as well, and they go on.
    volume.delete_snapshot("first").unwrap();
    let kept = 40 * BLOCK;
    let before = copies(&device);
    model[kept..].copy_from_slice(&Random(9).bytes((blocks - 40) * BLOCK));
    volume.write_at(kept as u64, &model[kept..]).unwrap();
    tend(&volume);
    volume.write_at(kept as u64, &model[kept..]).unwrap();
    tend(&volume);
    assert!(whole(&volume) == model);
    check(&volume);
    drop(volume);
    let moved = copies(&device).iter().filter(|at| !before.contains(at)).count();
    assert!(moved >= 2, "{moved} copies were moved");
    let opened = Volume::open(device.clone()).unwrap();
    assert!(whole(&opened) == model && opened.stats().dictionaries == count);
    check(&opened);
    // Nor is anything written over them when there is nothing else.
    let mut opened = opened;
    for round in 0..4 {
        opened.discard_at(0, model.len() as u64).unwrap();
        tend(&opened);
        model = sentences(&mut Random(round), round, blocks);
        for from in (0..model.len()).step_by(300 * BLOCK) {
            opened.write_at(from as u64, &model[from..from + 300 * BLOCK]).unwrap();
            tend(&opened);
        }
        drop(opened);
        opened = Volume::open(device.clone()).unwrap();
        assert!(whole(&opened) == model, "round {round}");
        check(&opened);
    }
}

#[test]
fn one_copy_of_a_dictionary_is_enough_and_the_other_is_written_again() {
    let (device, volume, model) = tended(1500, 2, true);
    drop(volume);
    let image = device.bytes();
    let [first, second] = copies(&device)[..] else { panic!("two copies") };
    assert!(first >> 18 != second >> 18, "in segments of their own");
    for damaged in [first, second] {
        let device = TracedDevice::holding(image.clone());
        device.flip(damaged + 5000, 4);
        // However full the file system is.
        device.set_limit(Some(image.len() as u64));
        let opened = Volume::open(device.clone()).unwrap();
        assert!(whole(&opened) == model);
        // It is there twice again, so that the other one may be damaged next.
        check(&opened);
        assert_eq!(copies(&device).len(), 3);
        drop(opened);
        device.flip(first + second - damaged + 5000, 4);
        let opened = Volume::open(device.clone()).unwrap();
        assert!(whole(&opened) == model);
        check(&opened);
    }
    // Damage is found while the volume is open, too.
    let device = TracedDevice::holding(image.clone());
    let opened = Volume::open(device.clone()).unwrap();
    device.flip(second, 1);
    let checked = opened.check().unwrap();
    assert!(!checked.is_whole() && checked.has_whole_map() && checked.damaged.is_empty());
    assert_eq!(checked.damaged_dictionaries, [second - 16]);
    drop(opened);
    // Without both what takes it is damaged, and says why; all else is there.
    device.flip(first, 1);
    for opened in [
        Volume::open(device.clone()).unwrap(),
        Volume::repair(TracedDevice::holding(device.bytes())).unwrap().0,
    ] {
        opened.write_at(0, b"there").unwrap_err();
        opened.write_at(0, &model[..BLOCK]).unwrap();
        let mut read = vec![0; BLOCK];
        opened.read_at(0, &mut read).unwrap();
        assert!(read == model[..BLOCK]);
        let error = opened.read_at(700 * BLOCK as u64, &mut read).unwrap_err();
        assert!(matches!(error, Error::Corrupt { what: "dictionary", .. }), "{error}");
        assert!(!opened.check().unwrap().is_whole());
        // Another one does not take its number: what was packed with it stays an error.
        opened.write_at(0, &sentences(&mut Random(8), 8, 700)).unwrap();
        tend(&opened);
        assert_eq!(opened.stats().dictionaries, 1);
        let mut damaged = 0;
        for (i, block) in model.chunks(BLOCK).enumerate().skip(700) {
            match opened.read_at((i * BLOCK) as u64, &mut read) {
                // Where the log went on when it was trained nothing takes it.
                Ok(()) => assert!(read == block, "block {i}"),
                Err(Error::Corrupt { what: "dictionary", .. }) => damaged += 1,
                Err(error) => panic!("block {i}: {error}"),
            }
        }
        assert!(damaged > 500, "{damaged} blocks");
    }
}
