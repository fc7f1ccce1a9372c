//! What is done beside the requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fiche::volume::Tended;

use super::*;

/// Blocks of the device that hold something.
fn taken(device: &TracedDevice) -> usize {
    device.bytes().chunks(BLOCK).filter(|block| block.iter().any(|&byte| byte != 0)).count()
}

/// Tends until nothing is due; how often that took.
fn tend(volume: &Volume) -> usize {
    let times = (0..100_000).find(|_| !volume.tend(true).unwrap());
    times.expect("it comes to an end")
}

#[test]
fn what_was_written_again_and_again_takes_hardly_more_than_once_when_nobody_asks_for_anything() {
    let blocks = 2000;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Volume::create(device.clone(), options.unit(BLOCK)).unwrap();
    let mut random = Random(6);
    let mut model = vec![0; blocks as usize * BLOCK];
    for i in 0..blocks as usize {
        let text = random.text(BLOCK);
        volume.write_at((i * BLOCK) as u64, &text).unwrap();
        model[i * BLOCK..][..BLOCK].copy_from_slice(&text);
    }
    tend(&volume);
    let fresh = volume.stats().stored_len();
    for _ in 0..3 * blocks {
        let at = random.below(blocks) as usize * BLOCK;
        let text = random.text(BLOCK);
        volume.write_at(at as u64, &text).unwrap();
        model[at..at + BLOCK].copy_from_slice(&text);
    }
    let written = volume.stats().stored_len();
    assert!(written > fresh * 3 / 2, "{written} bytes, fresh {fresh}");
    assert!(tend(&volume) > 10);
    let after = volume.stats().stored_len();
    assert!(after < fresh * 13 / 10, "{after} bytes, fresh {fresh}");
    assert!(whole(&volume) == model);
    check(&volume);
    let stats = volume.stats();
    assert!(stats.cleaned > 10 && stats.moved_len > 0 && stats.given_len > 0, "{stats:?}");
    assert!(stats.live_len * 10 > stats.written_len * 7, "{stats:?}");
    assert!(stats.stored_len() <= device.bytes().len() as u64);
    // Nothing is due any more, and nothing is written.
    let before = device.calls();
    assert!(!volume.tend(true).unwrap());
    assert_eq!(device.calls()[0], before[0]);
    // The machine stops, and it is all there.
    let stopped = Volume::open(TracedDevice::holding(device.bytes())).unwrap();
    assert!(whole(&stopped) == model);
}

#[test]
fn where_room_is_short_it_is_cleaned_before_a_write_has_to() {
    let blocks = 3000;
    let device = TracedDevice::default();
    // Noise, of which there is room for a third more.
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    let options = options.unit(BLOCK).capacity(blocks * BLOCK as u64 * 4 / 3);
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut random = Random(9);
    let mut model = vec![0; blocks as usize * BLOCK];
    let mut least = u64::MAX;
    for i in 0..6 * blocks {
        let block = if i < blocks { i } else { random.below(blocks) };
        let bytes = random.bytes(BLOCK);
        volume.write_at(block * BLOCK as u64, &bytes).unwrap();
        model[block as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        while volume.tend(false).unwrap() {}
        let stats = volume.stats();
        let used = stats.used_segments + stats.pending_segments;
        least = least.min(stats.most_segments - 1 - used);
    }
    let stats = volume.stats();
    // A write cleans when there are two more than are kept for that.
    assert!(least > stats.kept_segments - 2, "{least} were left, {stats:?}");
    assert!(stats.cleaned > 200, "{stats:?}");
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn a_segment_that_is_written_again_while_it_is_cleaned_is_left_alone() {
    let mut random = Random(12);
    for pause in [0, 1, 3] {
        let device = TracedDevice::default();
        let blocks = 200;
        let options = Options::new(blocks * BLOCK as u64).segment_bits(17).codec(Codec::Copy);
        let volume = Volume::create(device.clone(), options.unit(BLOCK)).unwrap();
        let mut model = random.bytes(blocks as usize * BLOCK);
        volume.write_at(0, &model).unwrap();
        for round in 0..60 {
            // Half of each segment, so that cleaning one takes several times.
            for block in (round % 2..blocks).step_by(2) {
                let bytes = random.bytes(BLOCK);
                volume.write_at(block * BLOCK as u64, &bytes).unwrap();
                model[block as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
            }
            for _ in 0..pause {
                volume.tend(true).unwrap();
            }
        }
        assert!(whole(&volume) == model);
        check(&volume);
        let stopped = Volume::open(TracedDevice::holding(device.bytes())).unwrap();
        assert!(whole(&stopped) == model);
    }
}

#[test]
fn a_thread_tends_while_others_read_and_write() {
    let blocks = 1200u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).unit(BLOCK);
    let volume = Arc::new(Volume::create(device.clone(), options.codec(Codec::Lz4)).unwrap());
    let tended = Tended::new(&volume).unwrap();
    let model = Mutex::new(vec![0u8; blocks as usize * BLOCK]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(2);
            while !is_over.load(Ordering::Relaxed) {
                let at = random.below(blocks) as usize * BLOCK;
                let mut block = [1; BLOCK];
                // Nobody writes meanwhile.
                let model = model.lock().unwrap();
                volume.read_at(at as u64, &mut block).unwrap();
                assert!(block == model[at..at + BLOCK], "block {}", at / BLOCK);
            }
        });
        let mut random = Random(1);
        for _ in 0..4000 {
            let at = random.below(blocks) as usize * BLOCK;
            let text = random.text(BLOCK);
            let mut model = model.lock().unwrap();
            volume.write_at(at as u64, &text).unwrap();
            model[at..at + BLOCK].copy_from_slice(&text);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let full = taken(&device);
    // Reading how full it is is no request.
    let begun = Instant::now();
    while volume.stats().given_len == 0 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(tended);
    assert!(taken(&device) < full);
    assert!(whole(&volume) == *model.lock().unwrap());
    check(&volume);
}
