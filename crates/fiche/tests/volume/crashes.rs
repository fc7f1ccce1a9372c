//! Whenever the machine stops, and whatever the device does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

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

/// Of each block, then of each snapshot, which is there, as it was, or not at all, and then of each block of the clones.
fn state(volume: &Arc<Volume>) -> Vec<u64> {
    let mut state = digests(&whole(volume));
    for info in volume.snapshots() {
        let snapshot = volume.snapshot(&info.name).unwrap();
        let mut bytes = vec![0xAA; snapshot.len() as usize];
        snapshot.read_at(0, &mut bytes).unwrap();
        state.push(of_snapshot(&info.name, &bytes));
    }
    for info in volume.clones() {
        let clone = volume.writable_clone(&info.name).unwrap();
        let mut bytes = vec![0xAA; clone.len() as usize];
        clone.read_at(0, &mut bytes).unwrap();
        state.extend(of_clone(&info.name, &bytes));
    }
    state
}

/// Of each block, since a part of what is written to it may be there.
fn of_clone(name: &str, bytes: &[u8]) -> Vec<u64> {
    let start = name.bytes().fold(7, |sum: u64, byte| sum * 31 + u64::from(byte));
    digests(bytes).iter().map(|digest| digest ^ start).collect()
}

fn of_snapshot(name: &str, bytes: &[u8]) -> u64 {
    let start = name.bytes().fold(7, |sum: u64, byte| sum * 31 + u64::from(byte));
    digests(bytes).iter().fold(start, |sum, digest| (sum ^ digest).wrapping_mul(0x9E37_79B9))
}

/// What is done to a volume, and when.
struct Recorded {
    device: TracedDevice,
    /// What was on the device when it was made, and how many steps that took.
    start: Vec<u8>,
    created: usize,
    model: Vec<u8>,
    /// Their numbers, and digests.
    snapshots: Vec<(u32, u64)>,
    /// What each snapshot has.
    kept: Vec<(u32, Vec<u8>)>,
    /// Clones: their numbers, those of their snapshots, and what they have.
    clones: Vec<(u32, u32, Vec<u8>)>,
    taken: u32,
    history: History,
}

impl Recorded {
    fn new(device: TracedDevice, blocks: u64) -> Recorded {
        let model = vec![0; blocks as usize * BLOCK];
        Recorded {
            start: device.bytes(),
            created: device.len_of_trace(),
            history: History {
                states: vec![digests(&model)],
                begun: Vec::new(),
                flushed: Vec::new(),
            },
            model,
            snapshots: Vec::new(),
            kept: Vec::new(),
            clones: Vec::new(),
            taken: 0,
            device,
        }
    }

    fn steps(&self) -> usize {
        self.device.len_of_trace() - self.created
    }

    fn run(&mut self, volume: &Arc<Volume>, ask: &Ask) {
        self.history.begun.push(self.steps());
        run_any(volume, ask).unwrap();
        apply(&mut self.model, ask);
        match ask {
            Ask::Take(number) => {
                let digest = of_snapshot(&number.to_string(), &self.model);
                self.snapshots.push((*number, digest));
                self.kept.push((*number, self.model.clone()));
            }
            Ask::Forget(number) => {
                self.snapshots.retain(|(other, _)| other != number);
                self.kept.retain(|(other, _)| other != number);
            }
            Ask::Clone(of, number) => {
                let (_, bytes) = self.kept.iter().find(|(other, _)| other == of).unwrap();
                self.clones.push((*number, *of, bytes.clone()));
            }
            Ask::In(number, ask) => {
                let clone = self.clones.iter_mut().find(|(other, ..)| other == number).unwrap();
                apply(&mut clone.2, ask);
            }
            Ask::Erase(number) => self.clones.retain(|(other, ..)| other != number),
            _ => {}
        }
        let mut state = digests(&self.model);
        state.extend(self.snapshots.iter().map(|(_, digest)| digest));
        for (number, _, bytes) in &self.clones {
            state.extend(of_clone(&number.to_string(), bytes));
        }
        self.history.states.push(state);
        let is_durable = match ask {
            Ask::In(_, ask) => matches!(**ask, Ask::Flush),
            Ask::Flush | Ask::Resize(_) | Ask::Trim | Ask::Take(_) | Ask::Forget(_) => true,
            Ask::Clone(..) | Ask::Erase(_) => true,
            _ => false,
        };
        if is_durable {
            self.set_flushed();
        }
    }

    /// Takes a snapshot or deletes one, makes a clone of one, or deletes that.
    fn snapshot(&mut self, volume: &Arc<Volume>, random: &mut Random) {
        let is_free =
            |(number, _): &&(u32, u64)| self.clones.iter().all(|clone| clone.1 != *number);
        let free: Vec<u32> = self.snapshots.iter().filter(is_free).map(|it| it.0).collect();
        let one_of = |random: &mut Random, len: usize| random.below(len as u64) as usize;
        let clones = self.clones.len();
        let ask = match random.below(3) {
            0 if !self.snapshots.is_empty() && clones < 2 => {
                self.taken += 1;
                let of = self.snapshots[one_of(random, self.snapshots.len())].0;
                Ask::Clone(of, self.taken)
            }
            1 if clones > 0 => Ask::Erase(self.clones[one_of(random, clones)].0),
            _ if self.snapshots.len() < 3 => {
                self.taken += 1;
                Ask::Take(self.taken)
            }
            _ if !free.is_empty() => Ask::Forget(free[one_of(random, free.len())]),
            _ => Ask::Erase(self.clones[one_of(random, clones)].0),
        };
        self.run(volume, &ask);
    }

    /// Asks something of a clone, if there is one.
    fn in_clone(&mut self, volume: &Arc<Volume>, random: &mut Random) {
        let Some((number, _, model)) = self.clones.get(random.below(2) as usize) else { return };
        let ask = ask(random, (model.len() / BLOCK) as u64);
        self.run(volume, &Ask::In(*number, Box::new(ask)));
    }

    /// All that was asked is durable.
    fn set_flushed(&mut self) {
        self.history.flushed.push((self.steps(), self.history.begun.len()));
    }

    /// The machine stops after each `each`-th step. How often, and how often again while it recovered.
    fn stop(&self, each: usize, random: &mut Random) -> (u64, u64) {
        let (mut done, mut twice) = (0, 0);
        let trace = self.device.trace();
        let mut crashes = Crashes::from(self.start.clone());
        for (i, step) in trace[self.created..].iter().enumerate() {
            crashes.step(step);
            let steps = i + 1;
            if !steps.is_multiple_of(each) {
                continue;
            }
            let found = crashes.one(random);
            let again = TracedDevice::holding(found.clone());
            let recovered = Volume::open(again.clone())
                .unwrap_or_else(|error| panic!("after step {steps}: {error}"));
            let recovered = Arc::new(recovered);
            let k = self
                .history
                .judge(&state(&recovered), steps)
                .unwrap_or_else(|why| panic!("after step {steps}: {why}"));
            done += 1;
            if random.below(8) == 0 {
                check(&recovered);
                // It goes on as if nothing had been, and nothing of what was lost comes back.
                let mut model = whole(&recovered);
                // What is asked then may be more than the little room it had is enough for.
                recovered.resize(model.len() as u64, Some(64 << 20)).unwrap();
                for _ in 0..12 {
                    for ask in asks(random, (model.len() / BLOCK) as u64) {
                        run(&recovered, &ask).unwrap();
                        apply(&mut model, &ask);
                    }
                }
                recovered.flush().unwrap();
                let kept = TracedDevice::holding(again.bytes());
                assert!(whole(&Volume::open(kept).unwrap()) == model, "{steps}");
            } else if random.below(4) == 0 {
                // The machine stops while it recovers.
                let mut second = Crashes::from(found);
                let trace = again.trace();
                let end = random.below(trace.len() as u64 + 1) as usize;
                trace[..end].iter().for_each(|step| second.step(step));
                let found = TracedDevice::holding(second.one(random));
                let recovered =
                    Volume::open(found).unwrap_or_else(|error| panic!("twice at {steps}: {error}"));
                let recovered = Arc::new(recovered);
                let again = self.history.judge(&state(&recovered), steps);
                assert!(again.is_ok_and(|again| again == k), "twice at {steps}");
                check(&recovered);
                twice += 1;
            }
        }
        (done, twice)
    }
}

/// All that can be asked of a volume that has room.
fn anything(random: &mut Random) -> Recorded {
    let (blocks, options) = options(random);
    let device = TracedDevice::default();
    let with_snapshots = random.below(2) == 0;
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut recorded = Recorded::new(device.clone(), blocks);
    let mut volume = Some(Arc::new(volume));
    for _ in 0..120 {
        if with_snapshots && random.below(10) == 0 {
            recorded.snapshot(volume.as_ref().unwrap(), random);
        }
        if random.below(2) == 0 {
            recorded.in_clone(volume.as_ref().unwrap(), random);
        }
        for ask in asks(random, (recorded.model.len() / BLOCK) as u64) {
            recorded.run(volume.as_ref().unwrap(), &ask);
        }
        if random.below(40) == 0 {
            drop(volume.take());
            recorded.set_flushed();
            volume = Some(Arc::new(Volume::open(device.clone()).unwrap()));
        }
    }
    recorded
}

/// Blocks of noise are written again and again where there is little room: segments are cleaned all the time, and written again.
fn tight(random: &mut Random) -> Recorded {
    // Of noise, or so that fragments of a few blocks, all of one length, lie in one sector: of an extent that was cut off there may be what lay
    // there before, whole.
    let is_noise = random.below(2) == 0;
    let (blocks, noise) = if is_noise { (200, BLOCK) } else { (2000, 300) };
    let each = if is_noise { 1 } else { 12 };
    let device = TracedDevice::default();
    let codec = if is_noise { Codec::Copy } else { Codec::Lz4 };
    let options = Options::new(blocks * BLOCK as u64).segment_bits(16).codec(codec);
    let with_snapshots = random.below(3) == 0;
    // Up to three of them, two clones and the volume itself, and what was not needed any more when they were taken.
    let room = if with_snapshots { 10 } else { 1 } * blocks * BLOCK as u64;
    let room = room * (5 + random.below(4)) / 4 * (noise as u64 + 40) / BLOCK as u64 + (14 << 16);
    let room = room.max(23 << 16);
    let volume = Volume::create(device.clone(), options.unit(BLOCK).capacity(room)).unwrap();
    let volume = Arc::new(volume);
    let mut recorded = Recorded::new(device, blocks);
    let flushes = [0, 1, 8][random.below(3) as usize];
    for i in 0..1200 {
        let block = if i < blocks / each { i * each } else { random.below(blocks - each + 1) };
        let mut bytes = vec![b' '; each as usize * BLOCK];
        bytes
            .chunks_mut(BLOCK)
            .for_each(|block| block[..noise].copy_from_slice(&random.bytes(noise)));
        let write = Ask::Write(block * BLOCK as u64, bytes);
        recorded.run(&volume, &write);
        if with_snapshots && i % 2 == 0 {
            recorded.in_clone(&volume, random);
        }
        match random.below(256) {
            n if n < flushes => recorded.run(&volume, &Ask::Flush),
            n if n == 255 && with_snapshots => recorded.snapshot(&volume, random),
            n if n < 128 => recorded.run(&volume, &Ask::Tend(1 + n as u32 % 4, false)),
            _ => {}
        }
    }
    let stats = volume.stats();
    let least = if is_noise { stats.checkpoints * 2 } else { 3 };
    assert!(with_snapshots || stats.cleaned > least, "{stats:?}");
    recorded
}

/// A device on which who tends takes long to write, so that others come in between.
#[derive(Clone)]
pub struct Slow(pub TracedDevice);

impl Device for Slow {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(pos, buf)
    }
    fn write_at(&self, pos: u64, bytes: &[u8]) -> std::io::Result<()> {
        let pause = || {
            if std::thread::current().name() == Some("tends") {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        };
        pause();
        self.0.write_at(pos, bytes)?;
        pause();
        Ok(())
    }
    fn allocate(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.0.allocate(range)
    }
    fn punch(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.0.punch(range)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }
}

/// Blocks are written again and again while another thread tends the volume.
fn beside(random: &mut Random) -> Recorded {
    let device = TracedDevice::default();
    // Or with so little room that writes clean as well.
    let is_tight = random.below(2) == 0;
    let (codec, blocks) = if is_tight { (Codec::Copy, 200) } else { (Codec::Lz4, 120) };
    // Or with blocks that are packed in pairs.
    let is_paired = !is_tight && random.below(2) == 0;
    let bits = if is_paired { 17 } else { 16 };
    let options = Options::new(blocks * BLOCK as u64).segment_bits(bits).codec(codec);
    let room = if is_tight { blocks * BLOCK as u64 * 9 / 8 + (11 << 16) } else { 64 << 20 };
    let options = options.capacity(room);
    let unit = if is_paired { 1 } else { [1, 4][random.below(2) as usize] } * BLOCK;
    drop(Volume::create(device.clone(), options.unit(unit)).unwrap());
    let opened = OpenOptions::default().pack(unit * if is_paired { 2 } else { 1 });
    let volume = opened.open(Slow(device.clone())).unwrap();
    let volume = Arc::new(volume);
    let mut recorded = Recorded::new(device, blocks);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tend = || {
            while !is_over.load(Ordering::Relaxed) {
                volume.tend(!is_tight).unwrap();
            }
        };
        std::thread::Builder::new().name("tends".into()).spawn_scoped(scope, tend).unwrap();
        for _ in 0..700 {
            let (at, count) = (random.below(blocks - 4), 1 + random.below(4) / 3);
            let bytes = match codec {
                Codec::Copy => random.bytes(count as usize * BLOCK),
                _ => random.text(count as usize * BLOCK),
            };
            recorded.run(&volume, &Ask::Write(at * BLOCK as u64, bytes));
            match random.below(40) {
                0 => recorded.run(&volume, &Ask::Flush),
                1 if !is_tight => recorded.snapshot(&volume, random),
                10..20 => recorded.in_clone(&volume, random),
                2..10 => std::thread::sleep(std::time::Duration::from_micros(200)),
                _ => {}
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(volume.stats().moved_len > 0);
    recorded
}

/// Dictionaries are trained of what is written, moved, and replaced by others.
fn trained(random: &mut Random) -> Recorded {
    let device = TracedDevice::default();
    let blocks = 1000;
    let options = Options::new(blocks * BLOCK as u64).segment_bits(17);
    let unit = [1, 4][random.below(2) as usize] * BLOCK;
    let volume = Volume::create(device.clone(), options.unit(unit)).unwrap();
    let mut recorded = Recorded::new(device.clone(), blocks);
    let mut volume = Some(Arc::new(volume));
    let mut kind = random.below(1000);
    for i in 0..160 {
        let now = volume.as_ref().unwrap();
        let (count, at) = (8 + random.below(60), random.below(blocks - 80));
        let bytes = dictionary::sentences(random, kind, count as usize);
        recorded.run(now, &Ask::Write(at * BLOCK as u64, bytes));
        match random.below(12) {
            0 => recorded.run(now, &Ask::Flush),
            1 => recorded.snapshot(now, random),
            2..8 => recorded.run(now, &Ask::Tend(1 + random.below(80) as u32, true)),
            8 if i % 3 == 0 => kind += 1,
            9 if i % 4 == 0 => {
                drop(volume.take());
                recorded.set_flushed();
                volume = Some(Arc::new(Volume::open(device.clone()).unwrap()));
            }
            _ => {}
        }
    }
    assert!(volume.unwrap().stats().dictionaries > 0);
    recorded
}

/// Histories of the seeds from `first` on, on all processors, until there were so many crashes. How many histories, and how many crashes twice.
fn crashes_of(
    wanted: u64,
    first: u64,
    of: impl Fn(&mut Random) -> (u64, u64) + Sync,
) -> (u64, u64) {
    let (seed, done, twice) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        while done.load(Ordering::Relaxed) < wanted {
            let seed = seed.fetch_add(1, Ordering::Relaxed);
            let told = NameOnPanic(seed);
            let counts = of(&mut Random(seed));
            done.fetch_add(counts.0, Ordering::Relaxed);
            twice.fetch_add(counts.1, Ordering::Relaxed);
            drop(told);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let [seeds, done, twice] = [seed, done, twice].map(AtomicU64::into_inner);
    let histories = seeds - first;
    println!("{done} crashes of {histories} histories, {twice} of them twice");
    (histories, twice)
}

/// Says which history it was that failed.
struct NameOnPanic(u64);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

#[test]
fn whenever_the_machine_stops_while_dictionaries_come_and_move_the_same_is_there() {
    crashes_of(wanted() / 16, 20_001, |random| trained(random).stop(5, random));
}

#[test]
fn whenever_the_machine_stops_while_another_thread_cleans_the_same_is_there() {
    crashes_of(wanted() / 4, 10_001, |random| beside(random).stop(3, random));
}

#[test]
fn whenever_the_machine_stops_what_was_flushed_is_there_and_nothing_out_of_order() {
    let (histories, twice) = crashes_of(wanted(), 1, |random| match random.0 % 3 {
        0 => tight(random).stop(7, random),
        _ => anything(random).stop(1, random),
    });
    assert!(twice > 100 && histories >= 3);
}

#[test]
fn an_extent_of_which_only_the_head_was_written_is_none_whatever_lies_behind_it() {
    let device = TracedDevice::default();
    let options = Options::new(40 * BLOCK as u64).segment_bits(16).codec(Codec::Copy);
    let volume = Volume::create(device.clone(), options.unit(BLOCK)).unwrap();
    let mut random = Random(1);
    let [old, new, last] = [0, 0, 5].map(|block| {
        let bytes = random.bytes(BLOCK);
        volume.write_at(block * BLOCK as u64, &bytes).unwrap();
        bytes
    });
    let mut image = device.bytes();
    let place = |bytes: &[u8]| image.windows(BLOCK).position(|window| window == bytes).unwrap();
    let (from, to) = (place(&old) - 16, place(&last) - 16);
    // A fragment that was there before, whole: it is of the first block, as it was at first.
    image.copy_within(from..from + 16 + BLOCK, to);
    let opened = Volume::open(TracedDevice::holding(image.clone())).unwrap();
    let found = whole(&opened);
    assert!(found[..BLOCK] == new && found[BLOCK..].iter().all(|&byte| byte == 0));
    // Nor does a repair take it for newer.
    let (repaired, told) = Volume::repair(TracedDevice::holding(image)).unwrap();
    assert!(whole(&repaired)[..BLOCK] == new);
    assert_eq!(told.damaged, 1);
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
