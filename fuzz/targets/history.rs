//! Whatever is asked of a volume that has hardly any room, it is what an array would be; and whenever the machine stops, what
//! was flushed is there, and nothing out of order.
#![no_main]

use std::io::ErrorKind;
use std::sync::Arc;

use fiche::codec::Codec;
use fiche::testing::{Crashes, Random, TracedDevice};
use fiche::volume::{Options, Volume};
use fiche::{Error, ReadAt, WriteAt};

const BLOCK: usize = 4096;
const SEGMENT: u64 = 1 << 16;
/// A node of the map leads to 1024.
const MOST_BLOCKS: u64 = 1200;
/// An image is copied for each.
const MOST_CRASHES: usize = 4;
const MOST_SNAPSHOTS: usize = 3;

fn digest(block: &[u8]) -> u64 {
    let words = block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    words.fold(1, |sum: u64, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

fn whole(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xAA; volume.len() as usize];
    volume.read_at(0, &mut bytes).expect("reading all of it");
    bytes
}

/// Whether it was done; refused is what there is no room for, and nothing else.
fn has_room(done: fiche::Result<()>) -> bool {
    match done {
        Ok(()) => true,
        Err(Error::Io(error)) if error.kind() == ErrorKind::StorageFull => false,
        Err(error) => panic!("{error}"),
    }
}

/// What was promised of the blocks since the device was made, or since it was found after a crash.
struct Promises {
    /// What was durable then.
    image: Vec<u8>,
    /// Steps of the device before.
    from: usize,
    /// After so many things the blocks had these digests.
    states: Vec<Vec<u64>>,
    /// And there were these snapshots.
    kept: Vec<Vec<Kept>>,
    /// Steps of the device when the thing of this number was begun.
    begun: Vec<usize>,
    /// Steps when something that makes all durable returned, and how many things were done before it.
    flushed: Vec<(usize, usize)>,
}

impl Promises {
    fn new(image: Vec<u8>, from: usize, model: &[u8], kept: &[Kept]) -> Promises {
        let states = vec![model.chunks_exact(BLOCK).map(digest).collect()];
        let kept = vec![kept.to_vec()];
        Promises { image, from, states, kept, begun: Vec::new(), flushed: Vec::new() }
    }

    /// Whether this may be there after so many steps.
    fn allow(&self, found: &[u64], kept: &[Kept], steps: usize) -> bool {
        let promised = self.flushed.iter().rev().find(|flush| flush.0 <= steps).map_or(0, |f| f.1);
        let begun = self.begun.iter().take_while(|&&begun| begun < steps).count().max(promised);
        // Of the last one a part may be there, each block as before or as after it; but no part of a length.
        (promised..=begun).any(|k| {
            let (state, next) = (&self.states[k], self.states.get(k + 1).filter(|_| k < begun));
            let next = next.unwrap_or(state);
            if kept != self.kept[k] && (k == begun || kept != self.kept[k + 1]) {
                return false;
            }
            let is_either = |i: usize| found[i] == state[i] || found[i] == next[i];
            match state.len() == next.len() {
                true => found.len() == state.len() && (0..found.len()).all(is_either),
                false => found == state || found == next,
            }
        })
    }
}

/// The name of a snapshot, and a digest of what it holds.
type Kept = (String, u64);

fn of_snapshot(bytes: &[u8]) -> u64 {
    bytes
        .chunks_exact(BLOCK)
        .map(digest)
        .fold(3, |sum, digest| (sum ^ digest).wrapping_mul(0x9E37_79B9))
}

/// What is found of the snapshots of a volume.
fn kept_of(volume: &Arc<Volume>) -> Vec<Kept> {
    let mut kept = Vec::new();
    for info in volume.snapshots() {
        let snapshot = volume.snapshot(&info.name).expect("one that is listed");
        let mut bytes = vec![0xAA; snapshot.len() as usize];
        snapshot.read_at(0, &mut bytes).expect("reading all of a snapshot");
        kept.push((info.name, of_snapshot(&bytes)));
    }
    kept
}

struct History {
    device: TracedDevice,
    /// There is none for a moment only.
    volume: Option<Arc<Volume>>,
    model: Vec<u8>,
    kept: Vec<Kept>,
    /// What each held.
    contents: Vec<(String, Vec<u8>)>,
    taken: usize,
    promises: Promises,
}

impl History {
    fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().expect("one that is open")
    }

    fn begin(&mut self) {
        self.promises.begun.push(self.device.len_of_trace());
    }

    /// What was begun has made of the model what it is; of the blocks only these may have changed.
    fn end(&mut self, blocks: std::ops::Range<usize>) {
        let mut state = self.promises.states.last().expect("the first one").clone();
        state.truncate(self.model.len() / BLOCK);
        state.resize(self.model.len() / BLOCK, digest(&[0; BLOCK]));
        for block in blocks {
            state[block] = digest(&self.model[block * BLOCK..][..BLOCK]);
        }
        self.promises.states.push(state);
        self.promises.kept.push(self.kept.clone());
    }

    fn snapshot(&mut self, what: u8) {
        let which = usize::from(what / 8);
        let mut is_done = true;
        self.begin();
        if what % 8 < 4 && self.kept.len() < MOST_SNAPSHOTS {
            self.taken += 1;
            let name = self.taken.to_string();
            is_done = has_room(self.volume().take_snapshot(&name));
            if is_done {
                self.kept.push((name.clone(), of_snapshot(&self.model)));
                self.contents.push((name, self.model.clone()));
            }
        } else if self.kept.is_empty() {
            is_done = false;
            assert!(self.volume().delete_snapshot("none").is_err());
        } else if what % 8 < 7 {
            let (name, _) = self.kept.remove(which % self.kept.len());
            // There is always room to give some back.
            self.volume().delete_snapshot(&name).expect("deleting a snapshot");
        } else {
            let (name, _) = &self.kept[which % self.kept.len()];
            let content = self.contents.iter().find(|(other, _)| other == name);
            // Those that were there before the machine stopped are known by their digests alone.
            if let Some((name, bytes)) = content.cloned() {
                self.volume().restore_snapshot(&name).expect("restoring a snapshot");
                self.model = bytes;
                let state = self.model.chunks_exact(BLOCK).map(digest).collect();
                self.promises.states.push(state);
                self.promises.kept.push(self.kept.clone());
                self.is_durable();
                return;
            }
            is_done = false;
        }
        self.end(0..0);
        if is_done {
            self.is_durable();
        }
    }

    fn is_durable(&mut self) {
        let done = self.promises.begun.len();
        self.promises.flushed.push((self.device.len_of_trace(), done));
    }

    /// Something was asked of these bytes, which would be like `after` then.
    fn changed(&mut self, offset: usize, after: &[u8], is_done: bool, is_in_order: bool) {
        let blocks = offset / BLOCK..(offset + after.len()).div_ceil(BLOCK);
        let (start, end) = (blocks.start * BLOCK, blocks.end * BLOCK);
        let before = self.model[start..end].to_vec();
        self.model[offset..offset + after.len()].copy_from_slice(after);
        let mut found = vec![0xAA; end - start];
        self.volume().read_at(start as u64, &mut found).expect("reading");
        let wanted = &self.model[start..end];
        if is_done {
            assert!(found == wanted, "blocks {blocks:?} are something else");
        } else {
            // Of what had no room the first blocks may be there.
            let mut left_out = false;
            for (i, block) in found.chunks_exact(BLOCK).enumerate() {
                let (new, old) = (&wanted[i * BLOCK..][..BLOCK], &before[i * BLOCK..][..BLOCK]);
                let may = block == old || block == new && !(left_out && is_in_order);
                assert!(may, "block {i} of {blocks:?} is neither as before nor as after");
                left_out |= block != new;
            }
            self.model[start..end].copy_from_slice(&found);
        }
        self.end(blocks);
    }

    /// Opens what is on the device: with no room for anything else there is still enough for that.
    fn reopen(&mut self) {
        drop(self.volume.take());
        self.volume = Some(Arc::new(Volume::open(self.device.clone()).expect("opening")));
    }

    fn resize(&mut self, blocks: u64) {
        let len = blocks as usize * BLOCK;
        self.begin();
        match self.volume().resize(len as u64, None) {
            Ok(()) => {
                // What is cut off is nothing.
                let rest = self.model.get(len..).unwrap_or_default();
                assert!(rest.iter().all(|&byte| byte == 0), "something was cut off");
                self.model.resize(len, 0);
                self.end(0..0);
                self.is_durable();
            }
            Err(Error::Invalid { .. }) => {
                let rest = self.model.get(len..).expect("it was to become shorter");
                assert!(rest.iter().any(|&byte| byte != 0), "there is nothing behind {len}");
                self.end(0..0);
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.volume().len(), self.model.len() as u64);
    }

    /// The machine stopped, so many steps ago.
    fn crash(&mut self, ago: usize, is_closed: bool, random: &mut Random) {
        if is_closed {
            drop(self.volume.take());
        }
        let trace = self.device.trace();
        let promises = &self.promises;
        let steps = trace.len() - ago.min(trace.len() - promises.from);
        let mut crashes = Crashes::from(promises.image.clone());
        trace[promises.from..steps].iter().for_each(|step| crashes.step(step));
        let image = crashes.one(random);
        self.device = TracedDevice::holding(image.clone());
        let volume = Volume::open(self.device.clone()).expect("opening after a crash");
        self.volume = Some(Arc::new(volume));
        self.model = whole(self.volume());
        self.kept = kept_of(self.volume());
        let after = Promises::new(image, 0, &self.model, &self.kept);
        let is_promised = self.promises.allow(&after.states[0], &self.kept, steps);
        assert!(is_promised, "what is there was never promised");
        // It goes on from there, and opening it may be what is cut off next.
        self.promises = after;
        self.check();
    }

    fn check(&self) {
        let checked = self.volume().check().expect("checking");
        assert!(checked.is_whole(), "{checked:?}");
        assert!(kept_of(self.volume()) == self.kept, "a snapshot is something else");
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [how, size, room, asks @ ..] = bytes else { return };
    let codecs = [Codec::Lz4, Codec::Zstd, Codec::Copy, Codec::Deflate];
    let blocks = u64::from(*size) * 2 + 20;
    let mut options = Options::new(blocks * BLOCK as u64)
        .segment_bits(16)
        .codec(codecs[usize::from(how % 4)])
        .unit([1, 2, 4, 8][usize::from(how / 4 % 4)] * BLOCK);
    // The least that there may be is twenty-two segments, of which the cleaner keeps some.
    if room % 4 > 0 {
        options = options.capacity((22 + u64::from(room / 4)) * SEGMENT);
    }
    let device = TracedDevice::default();
    let volume = Volume::create(device.clone(), options).expect("a volume");
    let model = vec![0; blocks as usize * BLOCK];
    let promises = Promises::new(device.bytes(), device.len_of_trace(), &model, &[]);
    let volume = Some(Arc::new(volume));
    let (kept, contents) = (Vec::new(), Vec::new());
    let mut history = History { device, volume, model, kept, contents, taken: 0, promises };
    let mut random = Random(u64::from(*how));
    let mut crashes = 0;
    for ask in asks.chunks_exact(5).take(150) {
        let [kind, low, high, len, value] = *ask else { return };
        let all = history.model.len();
        let place = usize::from(u16::from_le_bytes([low, high]));
        // Mostly whole blocks.
        let (offset, len) = match kind & 0x60 {
            0 => (place * 97 % all, usize::from(len) * 67 + 1),
            _ => (place * BLOCK % all, (usize::from(len % 64) + 1) * BLOCK),
        };
        let len = len.min(all - offset);
        match kind % 16 {
            0 => {
                history.begin();
                history.volume().flush().expect("flushing");
                history.end(0..0);
                history.is_durable();
            }
            1 => {
                history.begin();
                let done = has_room(history.volume().zero_at(offset as u64, len as u64));
                // Parts of blocks, which are written, come first.
                history.changed(offset, &vec![0; len], done, false);
            }
            2 | 3 => {
                history.begin();
                // There is always room to give some back.
                history.volume().discard_at(offset as u64, len as u64).expect("discarding");
                let (from, to) = (offset.next_multiple_of(BLOCK), (offset + len) / BLOCK * BLOCK);
                history.changed(from, &vec![0; to.saturating_sub(from)], true, false);
            }
            4 => {
                history.begin();
                history.volume().trim().expect("trimming");
                history.end(0..0);
                history.is_durable();
            }
            10 => {
                history.begin();
                for _ in 0..1 + value % 8 {
                    // Where there is no room, nothing is done.
                    if !history.volume().tend(value > 15).expect("tending") {
                        break;
                    }
                }
                history.end(0..0);
            }
            11 => history.snapshot(value),
            5 => {
                let blocks = 1 + place as u64 % MOST_BLOCKS;
                let end = blocks as usize * BLOCK;
                if end < all && value % 4 > 0 {
                    history.begin();
                    let cut = (all - end) as u64;
                    history.volume().discard_at(end as u64, cut).expect("discarding");
                    history.changed(end, &vec![0; all - end], true, false);
                }
                history.resize(blocks);
            }
            6 => {
                history.reopen();
                history.is_durable();
            }
            7 if crashes < MOST_CRASHES => {
                crashes += 1;
                history.crash(place % 64, value % 2 > 0, &mut random);
            }
            8 => {
                // Others fill the file system, or give some of it back.
                let taken = history.device.bytes().len() as u64;
                let limit = (value % 4 > 0).then_some(taken + u64::from(value / 4) * SEGMENT);
                history.device.set_limit(limit);
            }
            9 => {
                let (run, is_zero) = history.volume().run_at(offset as u64).expect("a run");
                assert!(run > 0 && run <= (all - offset) as u64);
                let run = &history.model[offset..offset + run as usize];
                assert!(!is_zero || run.iter().all(|&byte| byte == 0));
            }
            _ => {
                let bytes = match value % 8 {
                    0 => vec![0; len],
                    1 | 2 => vec![value; len],
                    3 => random.text(len),
                    _ => random.bytes(len),
                };
                history.begin();
                let done = has_room(history.volume().write_at(offset as u64, &bytes));
                history.changed(offset, &bytes, done, true);
            }
        }
    }
    history.check();
    history.reopen();
    assert!(whole(history.volume()) == history.model);
});
