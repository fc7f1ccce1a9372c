//! What is done beside the requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fiche::volume::{Stats, Tended};

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
    for i in 0..6 * blocks {
        let block = if i < blocks { i } else { random.below(blocks) };
        let bytes = random.bytes(BLOCK);
        let before = volume.stats();
        volume.write_at(block * BLOCK as u64, &bytes).unwrap();
        let after = volume.stats();
        let work = |stats: &Stats| (stats.moved_len, stats.cleaned, stats.barriers);
        assert_eq!(work(&after), work(&before), "write {i}, {after:?}");
        model[block as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        while volume.tend(false).unwrap() {}
    }
    let stats = volume.stats();
    assert!(stats.cleaned > 200, "{stats:?}");
    // What is only blocks is free without a superblock.
    assert!(stats.checkpoints * 20 < stats.cleaned, "{stats:?}");
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

/// Blocks of which four have most in common, and each something of its own.
struct Alike {
    common: Vec<u8>,
    random: Random,
}

impl Alike {
    fn new(blocks: u64) -> Alike {
        let mut random = Random(77);
        Alike { common: random.bytes(blocks as usize / 4 * 2000), random }
    }

    fn block(&mut self, block: u64) -> Vec<u8> {
        let mut bytes = self.common[block as usize / 4 * 2000..][..2000].to_vec();
        bytes.extend(self.random.bytes(400));
        bytes.resize(BLOCK, b' ');
        bytes
    }
}

#[test]
fn blocks_that_were_written_one_by_one_are_packed_as_if_they_had_been_written_together() {
    for codec in [Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Lzo] {
        let blocks = 2000u64;
        let device = TracedDevice::default();
        let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(codec);
        let volume = Volume::create(device.clone(), options.unit(4 * BLOCK)).unwrap();
        let mut alike = Alike::new(blocks);
        let mut model: Vec<u8> = (0..blocks).flat_map(|block| alike.block(block)).collect();
        volume.write_at(0, &model).unwrap();
        tend(&volume);
        let fresh = volume.stats().stored_len();
        let mut random = Random(3);
        for i in 0..3 * blocks {
            let block = if i < blocks { (i * 1237) % blocks } else { random.below(blocks) };
            let bytes = alike.block(block);
            volume.write_at(block * BLOCK as u64, &bytes).unwrap();
            model[block as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        }
        let written = volume.stats().stored_len();
        assert!(written > fresh * 3, "{codec:?}: {written} bytes, fresh {fresh}");
        tend(&volume);
        let after = volume.stats().stored_len();
        assert!(after < fresh * 13 / 10, "{codec:?}: {after} bytes, fresh {fresh}");
        assert!(whole(&volume) == model);
        check(&volume);
        // It stays so.
        let moved = volume.stats().moved_len;
        assert!(!volume.tend(true).unwrap());
        assert_eq!(volume.stats().moved_len, moved);
        let stopped = Volume::open(TracedDevice::holding(device.bytes())).unwrap();
        assert!(whole(&stopped) == model);
    }
}

#[test]
fn what_was_written_in_a_hurry_is_packed_into_larger_units_when_nobody_asks() {
    for codec in [Codec::Zstd, Codec::Lz4, Codec::Deflate, Codec::Lzo] {
        let blocks = 8192u64;
        let mut random = Random(5);
        // Sixteen blocks have much in common, and four of them less.
        let common: Vec<Vec<u8>> = (0..blocks / 16).map(|_| random.bytes(1500)).collect();
        let model: Vec<u8> = (0..blocks as usize)
            .flat_map(|block| {
                let mut bytes = common[block / 16].clone();
                bytes.extend(random.bytes(500));
                bytes.resize(BLOCK, b' ');
                bytes
            })
            .collect();
        for pack in [4, 16] {
            let device = TracedDevice::default();
            let options = Options::new(blocks * BLOCK as u64).segment_bits(20).codec(codec);
            drop(Volume::create(device.clone(), options.level(1).unit(4 * BLOCK)).unwrap());
            let open = || OpenOptions::default().pack(pack * BLOCK).train(false);
            let device = TracedDevice::holding(device.bytes());
            let volume = open().open(device.clone()).unwrap();
            volume.write_at(0, &model).unwrap();
            let before = volume.stats().appended_len;
            tend(&volume);
            // Six segments of seven, since the log goes on in one: to some six tenths in units of sixteen blocks.
            let stats = volume.stats();
            let moved = stats.moved_len;
            let is_less = moved > before / 5 * 2 && moved < before / 5 * 3;
            assert!(is_less || pack == 4, "{codec:?}: {moved} of {before} bytes");
            // Nothing was moved before it was packed: nearly all is needed.
            assert!(stats.live_len * 100 > stats.written_len * 96, "{codec:?}: {stats:?}");
            assert!(whole(&volume) == model);
            check(&volume);
            // It stays so.
            let moved = volume.stats().moved_len;
            assert!(!volume.tend(true).unwrap());
            assert_eq!(volume.stats().moved_len, moved);
            // A part of a unit, and what is left of it when the rest was written again.
            let mut model = model.clone();
            for block in (0..blocks as usize).filter(|block| block % 16 != 5) {
                let bytes = random.bytes(BLOCK);
                volume.write_at((block * BLOCK) as u64, &bytes).unwrap();
                model[block * BLOCK..][..BLOCK].copy_from_slice(&bytes);
            }
            tend(&volume);
            assert!(whole(&volume) == model);
            check(&volume);
        }
    }
}

/// A volume whose blocks were written one by one, and shrink to half when four are packed as one.
fn to_be_packed(device: &TracedDevice, blocks: u64) -> (Volume, Vec<u8>) {
    let options = Options::new(blocks * BLOCK as u64).segment_bits(18).codec(Codec::Zstd);
    drop(Volume::create(device.clone(), options.unit(BLOCK)).unwrap());
    let volume = OpenOptions::default().pack(4 * BLOCK).open(device.clone()).unwrap();
    let mut alike = Alike::new(blocks);
    let model: Vec<u8> = (0..blocks).flat_map(|block| alike.block(block)).collect();
    for (i, block) in model.chunks(BLOCK).enumerate() {
        volume.write_at((i * BLOCK) as u64, block).unwrap();
    }
    (volume, model)
}

#[test]
fn room_is_given_back_while_there_is_still_something_to_pack() {
    let (volume, model) = to_be_packed(&TracedDevice::default(), 8192);
    let (mut packed, mut most) = (0, 0);
    while volume.tend(true).unwrap() {
        let stats = volume.stats();
        most = most.max(stats.stored_len());
        if stats.given_len == 0 {
            packed = stats.moved_len;
        }
    }
    let stats = volume.stats();
    assert!(packed > 0 && packed < stats.moved_len / 2, "{packed}, then {stats:?}");
    let fresh = stats.appended_len - stats.moved_len;
    assert!(most < fresh + (24 << 18), "{most} bytes of {fresh}");
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn who_asks_for_something_ends_the_packing() {
    let (volume, model) = to_be_packed(&TracedDevice::default(), 4096);
    while volume.stats().moved_len == 0 {
        assert!(volume.tend(true).unwrap());
    }
    let moved = volume.stats().moved_len;
    while volume.tend(false).unwrap() {}
    assert_eq!(volume.stats().moved_len, moved);
    // Later it goes on.
    tend(&volume);
    assert!(volume.stats().moved_len > moved * 10);
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn an_extent_is_as_long_as_is_asked_for() {
    let blocks = 64;
    let mut lens = Vec::new();
    for extent in [8 << 10, 32 << 10, 256 << 10] {
        let device = TracedDevice::default();
        let options = Options::new(blocks * BLOCK as u64).segment_bits(22).codec(Codec::Copy);
        drop(Volume::create(device.clone(), options.unit(BLOCK)).unwrap());
        let volume = OpenOptions::default().extent(extent).open(device).unwrap();
        let model = Random(3).bytes(blocks as usize * BLOCK);
        let before = volume.stats().appended_len;
        volume.write_at(0, &model).unwrap();
        // Of each extent a head of 24 bytes, and of each block one of 16.
        let heads = volume.stats().appended_len - before - blocks * (BLOCK as u64 + 16);
        lens.push(heads / 24);
        assert!(whole(&volume) == model);
    }
    assert_eq!(lens, [64, 10, 3]);
    for bytes in [0, 4096, 257 << 10] {
        let device = TracedDevice::default();
        drop(Volume::create(device.clone(), Options::new(1 << 20)).unwrap());
        let opened = OpenOptions::default().extent(bytes).open(device);
        assert!(matches!(opened, Err(Error::Invalid { .. })), "{bytes}");
    }
}

#[test]
fn what_does_not_shrink_is_left_where_it_is() {
    let blocks = 2048u64;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(20).codec(Codec::Zstd);
    let volume = Volume::create(TracedDevice::default(), options).unwrap();
    let model = Random(9).bytes(blocks as usize * BLOCK);
    volume.write_at(0, &model).unwrap();
    tend(&volume);
    assert_eq!(volume.stats().moved_len, 0);
    assert!(whole(&volume) == model);
    for bytes in [0, 4095, 6000, 132 << 10] {
        let device = TracedDevice::default();
        drop(Volume::create(device.clone(), Options::new(1 << 20)).unwrap());
        let opened = OpenOptions::default().pack(bytes).open(device);
        assert!(matches!(opened, Err(Error::Invalid { .. })), "{bytes}");
    }
}

#[test]
fn what_is_written_while_it_is_packed_is_there() {
    let blocks = 400u64;
    let device = TracedDevice::default();
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
    let volume = Arc::new(Volume::create(device.clone(), options).unwrap());
    let mut alike = Alike::new(blocks);
    let mut model: Vec<u8> = (0..blocks).flat_map(|block| alike.block(block)).collect();
    volume.write_at(0, &model).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                volume.tend(true).unwrap();
            }
        });
        let mut random = Random(3);
        for i in 0..6000 {
            // So that others have their turn.
            if i % 10 == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
            let block = random.below(blocks);
            let bytes = alike.block(block);
            volume.write_at(block * BLOCK as u64, &bytes).unwrap();
            model[block as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(whole(&volume) == model);
    check(&volume);
}

#[test]
fn what_was_not_packed_before_a_volume_was_closed_is_packed_when_it_is_open_again() {
    for codec in [Codec::Zstd, Codec::Lz4] {
        let (blocks, device) = (6000u64, TracedDevice::default());
        let options = Options::new(blocks * BLOCK as u64).segment_bits(20).codec(codec).level(1);
        let volume = Volume::create(device.clone(), options.unit(BLOCK)).unwrap();
        let mut random = Random(15);
        let model = random.text(blocks as usize * BLOCK);
        for (i, block) in model.chunks(BLOCK).enumerate() {
            volume.write_at((i * BLOCK) as u64, block).unwrap();
        }
        drop(volume);
        let open = |bytes: Vec<u8>, pack: usize| {
            let device = TracedDevice::holding(bytes);
            let options = OpenOptions::default().train(false).pack(pack * BLOCK);
            (options.open(device.clone()).unwrap(), device)
        };
        // Some of it is, and the machine stops.
        let (volume, device) = open(device.bytes(), 4);
        let unpacked = volume.stats().unpacked_segments;
        assert!(unpacked > 5, "{unpacked}");
        let before = volume.check().unwrap().stored_len;
        while volume.stats().unpacked_segments > unpacked / 2 {
            assert!(volume.tend(true).unwrap());
        }
        let (volume, device) = open(device.bytes(), 4);
        assert!((1..unpacked).contains(&volume.stats().unpacked_segments), "{:?}", volume.stats());
        tend(&volume);
        assert_eq!(volume.stats().unpacked_segments, 0);
        let after = volume.check().unwrap().stored_len;
        assert!(after < before * 9 / 10, "{codec:?}: {after} of {before}");
        assert!(whole(&volume) == model);
        check(&volume);
        drop(volume);
        // It stays so, until somebody asks for it.
        let (volume, _) = open(device.bytes(), 16);
        assert_eq!(volume.stats().unpacked_segments, 0);
        tend(&volume);
        assert_eq!(volume.stats().moved_len, 0);
        volume.pack_again().unwrap();
        tend(&volume);
        let again = volume.check().unwrap().stored_len;
        assert!(volume.stats().moved_len > 0 && again < after, "{codec:?}: {again} of {after}");
        assert!(whole(&volume) == model);
        check(&volume);
    }
}

#[test]
fn what_was_moved_in_a_hurry_is_packed_as_well() {
    let (blocks, device) = (6000u64, TracedDevice::default());
    let options = Options::new(blocks * BLOCK as u64)
        .segment_bits(18)
        .codec(Codec::Lz4)
        .level(1)
        .unit(4 * BLOCK);
    let volume = Volume::create(device.clone(), options.clone()).unwrap();
    let mut random = Random(16);
    let model = random.text(blocks as usize * BLOCK);
    // Block by block, every other sixteen of them twice, so that the rest is moved by who gives room back.
    for again in [false, true] {
        for at in (0..blocks as usize).filter(|at| !again || at / 16 % 2 == 0) {
            volume.write_at((at * BLOCK) as u64, &model[at * BLOCK..][..BLOCK]).unwrap();
        }
    }
    volume.trim().unwrap();
    let (moved, before) = (volume.stats().moved_len, volume.check().unwrap().stored_len);
    assert!(moved > before / 3, "{moved} of {before}");
    tend(&volume);
    // In order, and packed at once as when nobody asks for anything.
    let other = Volume::create(TracedDevice::default(), options).unwrap();
    other.write_at(0, &model).unwrap();
    tend(&other);
    let (after, best) = (volume.check().unwrap().stored_len, other.check().unwrap().stored_len);
    assert!(after < best * 11 / 10, "{after}, {best} at best, {before} before");
    assert!(whole(&volume) == model);
    check(&volume);
}

type Hook = Box<dyn FnOnce() + Send>;

/// A device on which something happens during the next barrier.
#[derive(Clone, Default)]
struct Hooked {
    device: TracedDevice,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Device for Hooked {
    fn len(&self) -> std::io::Result<u64> {
        self.device.len()
    }
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read_at(pos, buf)
    }
    fn write_at(&self, pos: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.device.write_at(pos, bytes)
    }
    fn allocate(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.device.allocate(range)
    }
    fn punch(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.device.punch(range)
    }
    fn sync(&self) -> std::io::Result<()> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        self.device.sync()
    }
}

#[test]
fn what_is_written_while_a_superblock_is_made_durable_is_behind_it_whenever_the_machine_stops() {
    let mut stops = 0;
    for seed in 0..6 {
        let mut random = Random(seed);
        let blocks = 120;
        let hooked = Hooked::default();
        let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(Codec::Lz4);
        // So much room that no write waits for a superblock, which here would be for itself.
        let options = options.unit(BLOCK).capacity(64 << 20);
        let volume = Arc::new(Volume::create(hooked.clone(), options).unwrap());
        // One writer; after each of its writes the blocks had these digests, and it was begun after so many steps.
        type Told = (Vec<u8>, Vec<Vec<u64>>, Vec<usize>);
        let start = hooked.device.bytes();
        let created = hooked.device.len_of_trace();
        let model = vec![0; blocks as usize * BLOCK];
        let digest = digests(&model);
        let told: Arc<Mutex<Told>> = Arc::new(Mutex::new((model, vec![digest], Vec::new())));
        let write = {
            let (volume, told, device) = (volume.clone(), told.clone(), hooked.device.clone());
            move |random: &mut Random| {
                let at = random.below(blocks) as usize * BLOCK;
                let text = random.text(BLOCK);
                let mut told = told.lock().unwrap();
                told.2.push(device.len_of_trace() - created);
                volume.write_at(at as u64, &text).unwrap();
                told.0[at..at + BLOCK].copy_from_slice(&text);
                let digests = digests(&told.0);
                told.1.push(digests);
            }
        };
        // Steps when it was all durable, and how many writes that were.
        let mut flushed = Vec::new();
        for round in 0..40 {
            (0..8).for_each(|_| write(&mut random));
            if round % 5 == 4 {
                volume.flush().unwrap();
                let writes = told.lock().unwrap().2.len();
                flushed.push((hooked.device.len_of_trace() - created, writes));
            }
            for _ in 0..3 {
                let (write, mut other) = (write.clone(), Random(random.number()));
                let hook = move || (0..3).for_each(|_| write(&mut other));
                // Where the second head begins writers wait.
                if volume.stats().moved_len > 0 {
                    *hooked.hook.lock().unwrap() = Some(Box::new(hook));
                }
                volume.tend(true).unwrap();
                hooked.hook.lock().unwrap().take();
            }
        }
        check(&volume);
        let (_, states, begun) = &*told.lock().unwrap();
        let trace = hooked.device.trace();
        let mut crashes = Crashes::from(start);
        for (i, step) in trace[created..].iter().enumerate() {
            crashes.step(step);
            // Each third one, from another on each time.
            if !(i as u64 + seed).is_multiple_of(3) {
                continue;
            }
            let found = TracedDevice::holding(crashes.one(&mut random));
            let found = Volume::open(found).unwrap_or_else(|error| panic!("{seed}, {i}: {error}"));
            let found = digests(&whole(&found));
            let promised = flushed.iter().rev().find(|f| f.0 <= i + 1).map_or(0, |f| f.1);
            let begun = begun.iter().take_while(|&&begun| begun < i + 1).count();
            let fits = (promised..=begun).any(|k| states[k] == found);
            assert!(fits, "seed {seed}, step {i}: nothing from {promised} to {begun}");
            stops += 1;
        }
    }
    assert!(stops > 1000, "{stops}");
}

#[test]
fn writers_go_on_while_a_superblock_is_made_durable() {
    let hooked = Hooked::default();
    let volume = Volume::create(hooked.clone(), Options::new(64 << 20)).unwrap();
    let volume = Arc::new(volume);
    let text = Random(1).bytes(40 * BLOCK);
    volume.write_at(0, &text).unwrap();
    let (other, bytes) = (volume.clone(), text.clone());
    // A barrier that does not return before another thread has written.
    *hooked.hook.lock().unwrap() = Some(Box::new(move || {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            other.write_at(1 << 20, &bytes).unwrap();
            other.read_at(1 << 20, &mut vec![0; bytes.len()]).unwrap();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(20)).expect("a writer does not wait");
    }));
    assert!(volume.tend(true).unwrap());
    assert!(hooked.hook.lock().unwrap().is_none(), "the map was stored");
    check(&volume);
}
