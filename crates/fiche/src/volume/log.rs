//! Appending to the log, and storing the map.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::codec::{Codec, Scratch, pack_section, unpack_section};
use crate::error::{Error, Place, Result};
use crate::volume::clones::Clones;
use crate::volume::device::Device;
use crate::volume::dictionary::{self, Copies};
use crate::volume::format::{
    ALIGN, EXTENT_HEAD, ExtentHead, FAN, FAN_BITS, FRAGMENT_HEAD, FragmentHead, Kind, MAX_EXTENT,
    SUPERBLOCKS, Stream, Superblock, is_same_place,
};
use crate::volume::map::{self, Map};
use crate::volume::snapshot::{Kept, Taking};
use crate::volume::space::{Early, Gone, Space, put_root};
use crate::volume::unit::{Draft, Part};
use crate::volume::{Volume, locked};
use crate::wire::{Put, load_low};

/// Most bytes of a node or a usage page that is not compressed.
const MAX_NODE: usize = FAN * 10;
/// Nodes are stored often.
const NODE_LEVEL: i32 = 1;

/// What changes with each write. All of it is behind one lock.
pub(super) struct Log {
    /// The one that was written last.
    pub superblock: Superblock,
    pub space: Space,
    /// Where the usage pages are stored, and the root.
    pub pages: Vec<u64>,
    pub root: u64,
    /// The oldest first.
    pub snapshots: Vec<Kept>,
    pub snapshot_root: u64,
    /// In the order in which they were made, and where their list is stored.
    pub clones: Clones,
    pub clone_root: u64,
    /// Where the dictionaries are stored, and the root.
    pub copies: Copies,
    pub dictionary_root: u64,
    /// Number of the next extent.
    pub next: u64,
    /// Somebody writes behind the head of the cold stream: nobody else may.
    pub is_claimed: bool,
    /// Bytes since the map was stored.
    pub since: u64,
    pub scratch: Scratch,
}

/// A map that was appended, and the superblock for it.
pub(super) struct Stored {
    superblock: Superblock,
    /// What is free once that is durable.
    gone: Gone,
}

/// Whether a superblock is being written, of which there is one at a time, and the last one that was and that nobody took up yet.
#[derive(Default)]
pub(super) struct Storing {
    state: Mutex<(bool, Option<Stored>)>,
    ended: Condvar,
}

impl Storing {
    fn begin(&self) {
        locked(&self.state).0 = true;
    }

    fn end(&self, stored: Option<Stored>) {
        *locked(&self.state) = (false, stored);
        self.ended.notify_all();
    }

    /// The last one that was written; one that is being written is waited for, or left to whoever writes it.
    fn take(&self, waits: bool) -> Option<Stored> {
        let mut state = locked(&self.state);
        while waits && state.0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.1.take()
    }
}

/// What fragments are read from.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub device: &'a dyn Device,
    pub tag: u32,
    /// Length of a segment, as a power of two.
    pub bits: u8,
    /// What was read already.
    pub ahead: Ahead<'a>,
}

/// Bytes of a device that were read together, from a position on.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    pub pos: u64,
    pub bytes: &'a [u8],
}

impl From<'_> {
    fn read(&self, pos: u64, bytes: &mut [u8]) -> io::Result<()> {
        let Ahead { pos: start, bytes: ahead } = self.ahead;
        let skip = pos.checked_sub(start).map_or(usize::MAX, |skip| skip as usize);
        match ahead.get(skip..).and_then(|ahead| ahead.get(..bytes.len())) {
            Some(ahead) => bytes.copy_from_slice(ahead),
            None => self.device.read_at(pos, bytes)?,
        }
        Ok(())
    }
}

/// Reads and verifies the fragment at a position that something leads to: the whole of it, head included.
pub(super) fn read_fragment(
    from: From<'_>,
    pos: u64,
    guess: usize,
    bytes: &mut Vec<u8>,
) -> Result<FragmentHead> {
    let From { tag, bits, .. } = from;
    let corrupt = || Error::Corrupt { what: "fragment", at: Place::Pos(pos) };
    let read = |pos: u64, bytes: &mut [u8]| match from.read(pos, bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(corrupt()),
        other => Ok(other?),
    };
    // None goes on in the next segment, and segments are there as a whole.
    let left = (1 << bits) - (pos & ((1 << bits) - 1));
    let guess = (guess.max(FRAGMENT_HEAD) as u64).min(left) as usize;
    bytes.resize(bytes.len().max(guess), 0);
    read(pos, &mut bytes[..guess])?;
    let head = FragmentHead::parse(&bytes[..guess], pos)?;
    let len = FRAGMENT_HEAD + head.len as usize;
    if len as u64 > left {
        return Err(corrupt());
    }
    if len > guess {
        bytes.resize(bytes.len().max(len), 0);
        read(pos + guess as u64, &mut bytes[guess..len])?;
    }
    match head.verify(tag, &bytes[..len]) {
        true => Ok(head),
        false => Err(corrupt()),
    }
}

/// The bytes of a node or of the usage, which must be this one.
pub(super) fn read_meta(
    from: From<'_>,
    pos: u64,
    (kind, block, count): (Kind, u64, u32),
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let head = read_fragment(from, pos, 4096, &mut bytes)?;
    let corrupt = || Error::Corrupt { what: "fragment of the map", at: Place::Pos(pos) };
    let is_this = match kind {
        Kind::Node => is_same_place(count.saturating_sub(1), head.block, block),
        _ => head.block == block,
    };
    if (head.kind, head.count) != (kind, count) || !is_this {
        return Err(corrupt());
    }
    let stored = &bytes[FRAGMENT_HEAD..][..head.len as usize];
    match kind {
        Kind::UsageRoot | Kind::SnapshotRoot | Kind::DictionaryRoot | Kind::Clones => {
            Ok(stored.to_vec())
        }
        _ => unpack_meta(stored).ok_or_else(corrupt),
    }
}

/// What [`pack_meta`] made, decompressed.
pub(super) fn unpack_meta(stored: &[u8]) -> Option<Vec<u8>> {
    let (len, packed) = stored.split_first_chunk::<2>()?;
    let len = load_low(len) as usize;
    match len {
        0 => (packed.len() <= MAX_NODE).then(|| packed.to_vec()),
        _ => (len <= MAX_NODE).then(|| unpack_section(packed, len))?,
    }
}

/// The stored bytes of a node or a usage page: as they are where they do not shrink.
fn pack_meta(bytes: &[u8], scratch: &mut Scratch) -> Vec<u8> {
    let packed = pack_section(bytes, NODE_LEVEL, scratch);
    let mut stored = Vec::new();
    stored.put_u16(if packed.is_some() { bytes.len() as u16 } else { 0 });
    stored.put(packed.as_deref().unwrap_or(bytes));
    stored
}

impl Volume {
    /// Gives a node's bytes for the map.
    pub(super) fn load(&self) -> impl Fn(u64, map::Place) -> Result<Vec<u8>> + '_ {
        move |pos, (level, number)| {
            let which = (Kind::Node, number, u32::from(level) + 1);
            read_meta(self.from(), pos, which)
        }
    }

    pub(super) fn from(&self) -> From<'_> {
        let ahead = Ahead::default();
        From { device: &*self.device, tag: self.packing.tag, bits: self.bits, ahead }
    }

    /// Appends one fragment that is not of blocks; where it lies, in eighths.
    pub(super) fn put_one(
        &self,
        log: &mut Log,
        kind: Kind,
        (block, count): (u64, u32),
        stored: &[u8],
    ) -> Result<u64> {
        let (mut draft, mut found) = (Draft::default(), 0);
        draft.push(self.packing.tag, kind, block, count, stored);
        self.put_meta(log, &mut draft, &mut |_, _, entry| {
            found = entry;
            Ok(())
        })?;
        Ok(found)
    }

    /// Appends a list of where something is stored, in place of the one before; where it lies, 0 for an empty one.
    pub(super) fn put_list(
        &self,
        log: &mut Log,
        kind: Kind,
        entries: &[u64],
        before: u64,
    ) -> Result<u64> {
        self.put_root(log, kind, &put_root(entries), before)
    }

    /// The same of what is stored of such a list.
    pub(super) fn put_root(
        &self,
        log: &mut Log,
        kind: Kind,
        stored: &[u8],
        before: u64,
    ) -> Result<u64> {
        let root = match stored.is_empty() {
            true => 0,
            false => self.put_one(log, kind, (0, 1), stored)?,
        };
        if root > 0 {
            log.space.pin(root);
        }
        log.space.unpin(before);
        Ok(root)
    }

    /// Writes an extent to the end of a stream of the log, and returns where it lies.
    fn append(&self, log: &mut Log, stream: Stream, draft: &mut Draft) -> Result<u64> {
        debug_assert!(draft.bytes.len() <= EXTENT_HEAD + MAX_EXTENT && !draft.parts.is_empty());
        let needed = (draft.bytes.len() + EXTENT_HEAD) as u64;
        let segment_len = 1u64 << log.space.bits;
        let pos = log.space.heads[stream as usize];
        if pos % segment_len + needed > segment_len {
            self.turn(log, stream)?;
        }
        let pos = log.space.heads[stream as usize];
        self.finish(log, stream, draft, false)?;
        Ok(pos)
    }

    /// Writes an extent to where its stream goes on, where it has room; or its head alone, if its fragments are there.
    fn finish(
        &self,
        log: &mut Log,
        stream: Stream,
        draft: &mut Draft,
        is_there: bool,
    ) -> Result<()> {
        let (pos, len) = (log.space.heads[stream as usize], draft.bytes.len() as u64);
        let head = ExtentHead {
            len: (draft.bytes.len() - EXTENT_HEAD) as u32,
            number: log.next,
            fragments: draft.parts.len() as u16,
            link: ExtentHead::link_of(&draft.bytes, draft.parts.iter().map(|part| part.at)),
        };
        draft.bytes[..EXTENT_HEAD].copy_from_slice(&head.put(self.packing.tag, pos));
        let bytes = if is_there { &draft.bytes[..EXTENT_HEAD] } else { &draft.bytes[..] };
        self.device.write_at(pos, bytes).map_err(|error| self.poison(error))?;
        log.space.heads[stream as usize] += len;
        log.next += 1;
        self.appended.fetch_add(1, Ordering::Release);
        log.since += len;
        self.counts.appended_len.add(len);
        Ok(())
    }

    /// Writes the fragments of an extent behind the head of the cold stream, for which nobody has to wait. Where the head was, or `None` if there is no room for them in its
    /// segment, or somebody is doing so. From then on nobody else writes there before [`put_claimed`](Volume::put_claimed).
    pub(super) fn claim(&self, log: &mut Log, draft: &Draft) -> Option<u64> {
        let (pos, segment) = (log.space.heads[Stream::Cold as usize], 1u64 << self.bits);
        let needed = (draft.bytes.len() + EXTENT_HEAD) as u64;
        if log.is_claimed || pos == 0 || pos % segment + needed > segment {
            return None;
        }
        log.is_claimed = true;
        Some(pos)
    }

    /// Makes these fragments, which lie behind the head of the cold stream, an extent, and lets the map lead there.
    pub(super) fn put_claimed(&self, log: &mut Log, mut draft: Draft) -> Result<()> {
        let load = self.load();
        for part in &draft.parts {
            self.map().prepare(part.block, part.count.into(), &load)?;
        }
        let pos = log.space.heads[Stream::Cold as usize];
        self.finish(log, Stream::Cold, &mut draft, true)?;
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        self.apply(log, pos, &draft.parts).inspect_err(poison)
    }

    /// Ends the segment that a stream is written to, and goes on in another.
    pub(super) fn turn(&self, log: &mut Log, stream: Stream) -> Result<()> {
        let segment = self.next_segment(log)?;
        let pos = log.space.heads[stream as usize];
        let number = log.next;
        let link = ExtentHead { len: 0, number, fragments: 0, link: segment };
        let written = self.device.write_at(pos, &link.put(self.packing.tag, pos));
        written.map_err(|error| self.poison(error))?;
        log.next += 1;
        self.appended.fetch_add(1, Ordering::Release);
        self.enter(log, stream, segment);
        Ok(())
    }

    fn enter(&self, log: &mut Log, stream: Stream, segment: u32) {
        log.space.enter(stream, segment);
        self.map().enter(segment);
    }

    /// Begins a stream where there is none: only a superblock says where it is.
    pub(super) fn begin(&self, log: &mut Log, stream: Stream) -> Result<()> {
        let segment = self.next_segment(log)?;
        self.enter(log, stream, segment);
        Ok(())
    }

    /// Appends an extent of blocks, and lets the map lead to it.
    pub(super) fn put(&self, log: &mut Log, stream: Stream, mut draft: Draft) -> Result<()> {
        let load = self.load();
        // Afterwards nothing may fail.
        for part in draft.parts.iter().filter(|part| part.is_led_to()) {
            self.map().prepare(part.block, part.count.into(), &load)?;
        }
        let pos = self.append(log, stream, &mut draft)?;
        // It is in the log, and not in the map: only the next opening puts that right.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        self.apply(log, pos, &draft.parts).inspect_err(poison)
    }

    /// Lets the map lead to the fragments of an extent at `pos`, and takes up what it says of dictionaries.
    pub(super) fn apply(&self, log: &mut Log, pos: u64, parts: &[Part]) -> Result<()> {
        let load = self.load();
        let Log { space, copies, clones, .. } = log;
        let mut map = self.map();
        for &Part { at, block, count, kind } in parts {
            let entry = (pos + at as u64) / ALIGN;
            // What a clone shares is its snapshot's, and was never counted for it.
            let shared = clones.shared(block);
            match kind {
                Kind::Zeros => {
                    let each = &mut |before| match shared.has(before) {
                        true => {}
                        false => space.remove(before),
                    };
                    map.clear(block, count.into(), &load, each)?;
                    continue;
                }
                Kind::Dictionary => {
                    dictionary::place(copies, space, (block, count), entry);
                    continue;
                }
                _ => {}
            }
            space.add(entry, count);
            for block in block..block + u64::from(count) {
                let before = map.set(block, entry, &load)?;
                if !shared.has(before) {
                    space.remove(before);
                }
            }
        }
        Ok(())
    }

    /// Appends nodes, or pages of the usage, and says of each where it lies, in eighths.
    fn put_meta(
        &self,
        log: &mut Log,
        draft: &mut Draft,
        each: &mut dyn FnMut(&mut Log, u64, u64) -> Result<()>,
    ) -> Result<()> {
        if draft.parts.is_empty() {
            return Ok(());
        }
        let mut draft = std::mem::take(draft);
        let pos = self.append(log, Stream::Hot, &mut draft)?;
        log.space.set_meta(pos / ALIGN);
        self.counts.map_len.add(draft.bytes.len() as u64);
        draft
            .parts
            .iter()
            .try_for_each(|part| each(log, part.block, (pos + part.at as u64) / ALIGN))
    }

    /// Stores what changed of the map and the usage, and then a superblock that leads there: the log before it
    /// is not needed any more. Two barriers.
    pub(super) fn checkpoint(&self, log: &mut Log) -> Result<()> {
        self.checkpoint_taking(log, None)
    }

    /// The same, and what is stored is kept as a snapshot.
    pub(super) fn checkpoint_taking(
        &self,
        log: &mut Log,
        taking: Option<Taking<'_>>,
    ) -> Result<()> {
        self.settle(log, true)?;
        let stored = self.store(log, taking)?;
        let written = self.write_superblock(&stored.superblock);
        self.storing.end(written.is_ok().then_some(stored));
        written?;
        self.settle(log, true)
    }

    /// The same, for which nobody has to wait longer than the map takes to be appended: not for the barriers. Does nothing where
    /// that is under way already.
    pub(super) fn checkpoint_beside(&self, mut log: MutexGuard<'_, Log>) -> Result<()> {
        self.settle(&mut log, true)?;
        let stored = self.store(&mut log, None)?;
        drop(log);
        let written = self.write_superblock(&stored.superblock);
        self.storing.end(written.is_ok().then_some(stored));
        written?;
        self.settle(&mut locked(&self.log), false)
    }

    /// Makes the log durable and goes on in segments that need no superblock to be free. Whether there were any.
    pub(super) fn release(&self, log: &mut Log) -> Result<bool> {
        let early = log.space.early();
        if early.is_empty() {
            return Ok(false);
        }
        self.barrier()?;
        log.space.release_early(&early);
        Ok(true)
    }

    /// The same, and nobody has to wait for the barrier.
    pub(super) fn release_beside(&self, log: MutexGuard<'_, Log>, early: &[Early]) -> Result<()> {
        drop(log);
        self.barrier()?;
        locked(&self.log).space.release_early(early);
        Ok(())
    }

    /// Takes up what a superblock was written for: what only the one before needed is free. Waits for one that is being written, or not.
    pub(super) fn settle(&self, log: &mut Log, waits: bool) -> Result<()> {
        if let Some(stored) = self.storing.take(waits) {
            log.superblock = stored.superblock;
            log.space.release(stored.gone);
        }
        self.check_poison()
    }

    /// Appends the map as it is, and what is to be in the superblock for it.
    fn store(&self, log: &mut Log, taking: Option<Taking<'_>>) -> Result<Stored> {
        // Half of it stored, the other half would not be known as changed any more.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        let stored = self.store_map(log, taking).inspect_err(poison)?;
        self.storing.begin();
        Ok(stored)
    }

    /// Stores the nodes of a map that changed; those of the volume's are counted.
    pub(super) fn store_nodes(
        &self,
        log: &mut Log,
        map: &Mutex<Map>,
        is_counted: bool,
    ) -> Result<()> {
        let load = self.load();
        let (top, _) = locked(map).top();
        let mut draft = Draft::default();
        for level in 0..=top {
            let moved = &mut |log: &mut Log, number: u64, entry: u64| -> Result<()> {
                let before = locked(map).moved((level, number), entry, &load)?;
                if !is_counted {
                    return Ok(());
                }
                if entry > 0 {
                    log.space.add(entry, 1);
                }
                let first = number << (FAN_BITS * (u32::from(level) + 1));
                if !log.clones.shared(first).has(before) {
                    log.space.remove(before);
                }
                Ok(())
            };
            let changed = locked(map).changed(level);
            for number in changed {
                let bytes = locked(map).bytes((level, number));
                let Some(bytes) = bytes else {
                    moved(log, number, 0)?;
                    continue;
                };
                let stored = pack_meta(&bytes, &mut log.scratch);
                if draft.is_full_for(stored.len(), self.packing.extent) {
                    self.put_meta(log, &mut draft, moved)?;
                }
                draft.push(self.packing.tag, Kind::Node, number, u32::from(level) + 1, &stored);
            }
            // Those above them say where they are.
            self.put_meta(log, &mut draft, moved)?;
        }
        Ok(())
    }

    fn store_map(&self, log: &mut Log, taking: Option<Taking<'_>>) -> Result<Stored> {
        self.store_nodes(log, &self.view.map, true)?;
        let mut draft = Draft::default();
        // What is stored from here on is not counted in what is stored.
        self.store_snapshots(log, taking)?;
        self.store_clones(log)?;
        self.store_dictionaries(log)?;
        let moved = &mut |log: &mut Log, page: u64, entry: u64| -> Result<()> {
            if log.pages.len() <= page as usize {
                log.pages.resize(page as usize + 1, 0);
            }
            let before = std::mem::replace(&mut log.pages[page as usize], entry);
            if entry > 0 {
                log.space.pin(entry);
            }
            log.space.unpin(before);
            Ok(())
        };
        for page in log.space.take_changed() {
            let Some(bytes) = log.space.page(page) else {
                moved(log, page.into(), 0)?;
                continue;
            };
            let stored = pack_meta(&bytes, &mut log.scratch);
            if draft.is_full_for(stored.len(), self.packing.extent) {
                self.put_meta(log, &mut draft, moved)?;
            }
            draft.push(self.packing.tag, Kind::UsagePage, page.into(), 1, &stored);
        }
        self.put_meta(log, &mut draft, moved)?;
        let root = self.put_one(log, Kind::UsageRoot, (0, 1), &put_root(&log.pages))?;
        log.space.pin(root);
        let before = std::mem::replace(&mut log.root, root);
        log.space.unpin(before);
        log.since = 0;
        let superblock = Superblock {
            generation: log.superblock.generation + 1,
            segments: log.space.segments(),
            next: log.next,
            heads: log.space.heads,
            map: self.map().root * ALIGN,
            usage: log.root * ALIGN,
            snapshots: log.snapshot_root * ALIGN,
            dictionaries: log.dictionary_root * ALIGN,
            clones: log.clone_root * ALIGN,
            ..log.superblock.clone()
        };
        Ok(Stored { superblock, gone: log.space.take_gone() })
    }

    /// Writes a superblock once everything before is durable.
    fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.barrier()?;
        for pos in SUPERBLOCKS[(superblock.generation % 2) as usize] {
            let written = self.device.write_at(pos, &superblock.put(pos));
            written.map_err(|error| self.poison(error))?;
        }
        self.appended.fetch_add(1, Ordering::Release);
        self.barrier()?;
        self.counts.checkpoints.add(1);
        Ok(())
    }

    /// Stores the map at the end.
    pub(super) fn close(&self) -> Result<()> {
        let mut log = locked(&self.log);
        match log.since > 0 {
            true => self.checkpoint(&mut log),
            false => Ok(()),
        }
    }
}

/// The codec in which new units are stored, where it is one that a volume may have.
pub(super) fn check_codec(codec: Codec, level: i32) -> Result<()> {
    if super::format::unit_codec(codec as u8).is_none() {
        return Err(Error::invalid("volumes are packed by copy, lz4, zlib, lzo or zstd"));
    }
    codec.check_level(level)?;
    // Whether it was compiled in.
    let (src, mut dst) = ([0u8; 64], [0u8; 64]);
    let (src, dst) = (src.as_slice().into(), dst.as_mut_slice().into());
    codec.compress(level, src, dst, &mut Scratch::default()).map(|_| ())
}
