//! How often the device is read, and how much of it.

use super::*;

/// A volume whose blocks were written in order or at random, and its device.
fn written(codec: Codec, unit: usize, in_order: bool) -> (TracedDevice, Volume, Vec<u8>) {
    let (blocks, mut random) = (4096u64, Random(7));
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).codec(codec).unit(unit * BLOCK);
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut model = vec![0; blocks as usize * BLOCK];
    let mut order: Vec<usize> = (0..blocks as usize / unit).collect();
    if !in_order {
        order.sort_by_cached_key(|_| random.number());
    }
    for at in order {
        let unit = &mut model[at * unit * BLOCK..][..unit * BLOCK];
        for block in unit.chunks_mut(BLOCK) {
            // Of each block another part is noise.
            let noise = random.below(BLOCK as u64) as usize;
            block[..noise].copy_from_slice(&random.bytes(noise));
        }
        volume.write_at((at * unit.len()) as u64, unit).unwrap();
    }
    volume.flush().unwrap();
    // With the map in memory.
    assert!(whole(&volume) == model);
    (device, volume, model)
}

/// Reads blocks at random. Returns how many reads of the device there were for each, and how many bytes of those that its unit takes.
fn read_at_random(device: &TracedDevice, volume: &Volume, model: &[u8]) -> (f64, f64) {
    const TIMES: u64 = 4000;
    let (mut random, mut block) = (Random(8), vec![0; BLOCK]);
    let mut read = || {
        let at = random.below(model.len() as u64 / BLOCK as u64) as usize * BLOCK;
        volume.read_at(at as u64, &mut block).unwrap();
        assert!(block == model[at..][..BLOCK]);
    };
    // It has to see some first.
    (0..200).for_each(|_| read());
    let before = (device.calls()[1], device.bytes_read());
    (0..TIMES).for_each(|_| read());
    let (calls, bytes) = (device.calls()[1] - before.0, device.bytes_read() - before.1);
    let checked = volume.check().unwrap();
    let stored = TIMES * checked.stored_len / checked.units;
    (calls as f64 / TIMES as f64, bytes as f64 / stored as f64)
}

const KINDS: [(Codec, usize); 5] =
    [(Codec::Copy, 1), (Codec::Lz4, 1), (Codec::Lz4, 4), (Codec::Zstd, 4), (Codec::Zstd, 8)];

/// No more reads of the device for each, and no more bytes for each byte of a unit, however it is packed.
#[track_caller]
fn reads_at_most(in_order: bool, most_reads: f64, most_bytes: f64) {
    for (codec, unit) in KINDS {
        let (device, volume, model) = written(codec, unit, in_order);
        let (reads, bytes) = read_at_random(&device, &volume, &model);
        let is_little = reads <= most_reads && bytes <= most_bytes;
        assert!(is_little, "{codec:?} {unit}: {reads} {bytes}");
    }
}

#[test]
fn what_was_written_in_order_is_read_once_and_not_beyond_its_end() {
    reads_at_most(true, 1.01, 1.05);
}

#[test]
fn what_was_written_at_random_is_read_little_more_than_once() {
    // Lengths that nobody knows before: of single blocks any up to their own.
    reads_at_most(false, 1.12, 1.9);
}
