//! Whatever is done, a volume is what an array would be.

use super::*;

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
