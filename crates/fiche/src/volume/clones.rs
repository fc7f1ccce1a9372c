//! Clones: devices that begin as a snapshot holds them, and are written like the volume itself.
//!
//! The map has a region of blocks for each. To make one is to let its region lead to the nodes of the snapshot: nothing is copied, and what is written to
//! the clone then has nodes of its own. Whatever lies in a segment that the snapshot holds is the snapshot's, since the log has left those
//! before the clone was there; it is not counted for the clone, and stays for as long as the snapshot does.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Place as At, Result};
use crate::io::{ReadAt, WriteAt, within};
use crate::volume::format::{ALIGN, BLOCK, FAN, FAN_BITS, Kind, REGION_BITS, Stream, Superblock};
use crate::volume::log::{From, Log, read_meta};
use crate::volume::map::{Map, Place};
use crate::volume::read::View;
use crate::volume::snapshot::{Kept, check_name, holds, position};
use crate::volume::space::Space;
use crate::volume::write::Span;
use crate::volume::{Volume, Work, locked};
use crate::wire::{Put, Take};

/// Regions that there may be beside the first one.
const MOST: u64 = (1 << FAN_BITS) - 1;
/// Bytes of one in the list, at most.
const MOST_STORED: usize = 320;

/// A clone that a volume has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloneInfo {
    /// No other clone or snapshot of the volume has it.
    pub name: String,
    /// When it was made.
    pub made: SystemTime,
    /// Bytes of it.
    pub len: u64,
    /// The snapshot that it was made from.
    pub snapshot: String,
}

/// One that a volume has, or had.
pub(super) struct Cloned {
    pub name: String,
    /// Seconds since 1970.
    time: u64,
    /// Its first block, by [`REGION_BITS`].
    pub region: u64,
    pub blocks: u64,
    /// The snapshot that it was made from.
    pub base: u64,
    /// Extents before this one are of others that had the region.
    pub since: u64,
    /// It was deleted, and what it had is still to be let go of.
    pub is_gone: bool,
    /// The segments that the snapshot holds.
    pub shared: Arc<[Range<u32>]>,
    /// Others have it as long as they use it.
    users: Arc<()>,
}

impl Cloned {
    pub fn first(&self) -> u64 {
        self.region << REGION_BITS
    }

    /// Where the nodes of its region begin.
    fn top(&self) -> Place {
        Map::top_of(self.first(), 1 << REGION_BITS)
    }
}

/// What of a block's past is not counted for it: what lies in these segments.
#[derive(Clone, Default)]
pub(super) struct Shared {
    segments: Option<Arc<[Range<u32>]>>,
    bits: u8,
}

impl Shared {
    pub fn has(&self, entry: u64) -> bool {
        let segment = || ((entry * ALIGN) >> self.bits) as u32;
        self.segments.as_ref().is_some_and(|runs| entry > 0 && holds(runs, segment()))
    }
}

/// All clones of a volume.
pub(super) struct Clones {
    all: Vec<Cloned>,
    bits: u8,
}

impl Clones {
    pub fn new(bits: u8) -> Clones {
        Clones { all: Vec::new(), bits }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Cloned> {
        self.all.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn take(&mut self) -> Vec<Cloned> {
        std::mem::take(&mut self.all)
    }

    pub fn push(&mut self, clone: Cloned) {
        self.all.push(clone);
    }

    /// The one that has a block.
    fn of(&self, block: u64) -> Option<&Cloned> {
        // As a rule there are none.
        let region = block >> REGION_BITS;
        self.all.iter().find(|clone| clone.region == region)
    }

    /// What is shared of a block, or of the node whose first block it is.
    pub fn shared(&self, block: u64) -> Shared {
        Shared { segments: self.of(block).map(|clone| clone.shared.clone()), bits: self.bits }
    }

    /// Whether these are blocks of the device, which has so many, or of a clone.
    pub fn is_inside(&self, block: u64, count: u32, blocks: u64) -> bool {
        let (start, blocks) =
            self.of(block).map_or((0, blocks), |clone| (clone.first(), clone.blocks));
        block - start + u64::from(count) <= blocks
    }

    /// Blocks of all of them.
    pub fn blocks(&self) -> u64 {
        self.all.iter().map(|clone| clone.blocks).sum()
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.position(name).is_ok()
    }

    /// Whether some were deleted that are still to be let go of.
    pub fn has_gone(&self) -> bool {
        self.all.iter().any(|clone| clone.is_gone)
    }

    /// Those that were made from this snapshot, also if they were deleted.
    pub fn made_from(&self, snapshot: u64) -> impl Iterator<Item = &Cloned> {
        self.all.iter().filter(move |clone| clone.base == snapshot)
    }

    fn position(&self, name: &str) -> Result<usize> {
        let found = self.all.iter().position(|clone| !clone.is_gone && clone.name == name);
        found.ok_or_else(|| Error::invalid(format!("there is no clone {name}")))
    }

    /// What is stored: nothing where there are none.
    fn stored(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for clone in &self.all {
            bytes.put_varint(clone.name.len() as u64);
            bytes.put(clone.name.as_bytes());
            for value in [clone.time, clone.region, clone.blocks, clone.base, clone.since] {
                bytes.put_varint(value);
            }
            bytes.put_u8(u8::from(clone.is_gone));
        }
        bytes
    }

    /// Those that are stored in these bytes and whose snapshots are there, and the names of those whose are not; an error where something else is in them.
    fn parse(
        bytes: &[u8],
        bits: u8,
        snapshots: &[Kept],
        pos: u64,
    ) -> Result<(Clones, Vec<String>)> {
        let mut take = Take::new(bytes, "clones", pos);
        let (mut clones, mut without) = (Clones::new(bits), Vec::new());
        let (mut names, mut regions) = (HashSet::new(), HashSet::new());
        while take.remaining() > 0 {
            let name = take.string()?;
            let name = std::str::from_utf8(name).ok().filter(|name| check_name(name).is_ok());
            let name = name.ok_or_else(|| take.corrupt())?.to_owned();
            let (time, region, blocks) = (take.varint()?, take.varint()?, take.varint()?);
            let (base, since, flags) = (take.varint()?, take.varint()?, take.u8()?);
            let is_sound = (1..=MOST).contains(&region)
                && (1..=1 << REGION_BITS).contains(&blocks)
                && flags <= 1
                && regions.insert(region)
                && (flags == 1 || names.insert(name.clone()));
            if !is_sound {
                return Err(take.corrupt());
            }
            let Some(kept) = snapshots.iter().find(|kept| kept.id == base) else {
                without.push(name);
                continue;
            };
            let (is_gone, users) = (flags == 1, Arc::default());
            let shared = kept.segments.clone().into();
            let clone = Cloned { name, time, region, blocks, base, since, is_gone, shared, users };
            clones.all.push(clone);
        }
        Ok((clones, without))
    }
}

/// The clones that a superblock leads to.
pub(super) fn read_all(
    from: From<'_>,
    superblock: &Superblock,
    snapshots: &[Kept],
    space: &mut Space,
) -> Result<Clones> {
    let pos = superblock.clones;
    if pos == 0 {
        return Ok(Clones::new(superblock.segment_bits));
    }
    let bytes = read_meta(from, pos, (Kind::Clones, 0, 1))?;
    match Clones::parse(&bytes, superblock.segment_bits, snapshots, pos)? {
        (clones, without) if !clones.is_empty() && without.is_empty() => {
            space.pin(pos / ALIGN);
            Ok(clones)
        }
        _ => Err(Error::Corrupt { what: "clones", at: At::Pos(pos) }),
    }
}

/// Those that are whole, for a repair: of a superblock, or of the newest list that was found if that cannot be read. And the names of those whose snapshots are
/// not there any more.
pub(super) fn read_whole(
    from: From<'_>,
    superblock: &Superblock,
    found: &[u8],
    snapshots: &[Kept],
) -> (Clones, Vec<String>) {
    let (pos, bits) = (superblock.clones, superblock.segment_bits);
    let own = match pos {
        0 => Ok(Vec::new()),
        _ => read_meta(from, pos, (Kind::Clones, 0, 1)),
    };
    let parse = |bytes: &[u8]| Clones::parse(bytes, bits, snapshots, pos);
    let whole = own.and_then(|bytes| parse(&bytes)).or_else(|_| parse(found));
    whole.unwrap_or_else(|_| (Clones::new(bits), Vec::new()))
}

pub(super) fn infos(clones: &Clones, snapshots: &[Kept]) -> Vec<CloneInfo> {
    let there = clones.iter().filter(|clone| !clone.is_gone);
    let name = |id: u64| snapshots.iter().find(|kept| kept.id == id).map(|kept| kept.name.clone());
    there
        .map(|clone| CloneInfo {
            name: clone.name.clone(),
            made: UNIX_EPOCH + Duration::from_secs(clone.time.min(1 << 40)),
            len: clone.blocks * BLOCK as u64,
            snapshot: name(clone.base).unwrap_or_default(),
        })
        .collect()
}

/// Refuses more blocks than a region of the map has.
pub(super) fn check_region(blocks: u64) -> Result<()> {
    let (need, allowed) = (blocks * BLOCK as u64, (BLOCK as u64) << REGION_BITS);
    match need > allowed {
        true => Err(Error::Limit { what: "a volume with clones", need, allowed }),
        false => Ok(()),
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Volume {
    /// Makes a device that begins as a snapshot is, and is written by itself: [`writable_clone`](Volume::writable_clone) gives it. It takes
    /// as long, and as much, as storing the map does, however much there is: nothing is copied. What is written to it takes room like what is written to the volume,
    /// and is cleaned and packed like that. Durable when this returns, and either all of it or nothing after a crash. Writers wait meanwhile.
    ///
    /// A snapshot is not deleted while there is a clone of it. Where the volume may take as much as is enough whatever is written, it may take as much
    /// more as the clone does then; else they share what it may.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such snapshot, or the name is there or makes no sense; [`Error::Limit`] when the volume, or the snapshot, is longer than 4 TiB, or there are
    /// 1023; [`Error::Io`] also when there is no room, [`Error::Poisoned`].
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<()> {
        self.check_poison()?;
        check_name(name)?;
        let mut log = self.unclaimed();
        self.check_unnamed(&log, name)?;
        let kept = &log.snapshots[position(&log, snapshot)?];
        let (base, blocks, root) = (kept.id, kept.blocks, kept.map);
        let limit = |what, need: u64, allowed: u64| Err(Error::Limit { what, need, allowed });
        check_region(blocks.max(self.blocks()))?;
        // More may be held than is needed of it, and that is known only when it is read again.
        if !kept.is_told_exactly(self.bits) {
            return Err(Error::invalid(format!(
                "the snapshot {snapshot} is in too many pieces: trim the volume, and take another"
            )));
        }
        let shared: Arc<[Range<u32>]> = kept.segments.clone().into();
        let is_used = |region: &u64| log.clones.iter().any(|clone| clone.region == *region);
        let Some(region) = (1..=MOST).find(|region| !is_used(region)) else {
            return limit("clones of a volume", MOST + 1, MOST);
        };
        // Half of a segment holds all that is in it.
        let (need, most) = (log.clones.stored().len() + MOST_STORED, 1 << (self.bits - 1));
        if need > most {
            return limit("the list of the clones of this volume", need as u64, most as u64);
        }
        let (time, since, users) = (now(), log.next, Arc::default());
        let (name, is_gone) = (name.to_owned(), false);
        let clone = Cloned { name, time, region, blocks, base, since, is_gone, shared, users };
        self.make_room(&mut log, false)?;
        // What is written from here on is not where the snapshot holds anything.
        for stream in Stream::ALL {
            let head = log.space.heads[stream as usize];
            if head > 0 && holds(&clone.shared, (head >> self.bits) as u32) {
                self.turn(&mut log, stream)?;
            }
        }
        self.checkpoint(&mut log)?;
        // Half done, the map would lead to what nobody knows of.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        self.add_clone(&mut log, clone, root).inspect_err(poison)
    }

    /// The log when nobody writes behind the head of the cold stream, so that it may go on elsewhere.
    fn unclaimed(&self) -> MutexGuard<'_, Log> {
        loop {
            let log = locked(&self.log);
            if !log.is_claimed {
                return log;
            }
            drop(log);
            // As long as one write takes.
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn add_clone(&self, log: &mut Log, clone: Cloned, root: u64) -> Result<()> {
        let load = self.load();
        let spare = self.spare(log)?;
        if log.clones.is_empty() {
            self.map().resize(MAPPED, &load, &mut |_| {})?;
        }
        if root > 0 {
            self.map().graft(Map::top_of(clone.first(), clone.blocks), root, &load)?;
        }
        log.clones.all.push(clone);
        self.set_held(log, spare)?;
        self.keep_room(log)?;
        self.checkpoint(log)
    }

    /// Refuses a name that a snapshot or a clone has.
    pub(super) fn check_unnamed(&self, log: &Log, name: &str) -> Result<()> {
        if log.snapshots.iter().any(|kept| kept.name == name) {
            return Err(Error::invalid(format!("there is a snapshot {name} already")));
        }
        match log.clones.is_named(name) {
            true => Err(Error::invalid(format!("there is a clone {name} already"))),
            false => Ok(()),
        }
    }

    /// The clones, the oldest first.
    pub fn clones(&self) -> Vec<CloneInfo> {
        let log = locked(&self.log);
        infos(&log.clones, &log.snapshots)
    }

    /// A clone, to be read and written. As long as this is there it cannot be deleted.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none of this name.
    pub fn writable_clone(self: &Arc<Self>, name: &str) -> Result<WritableClone> {
        let log = locked(&self.log);
        let clone = &log.clones.all[log.clones.position(name)?];
        Ok(WritableClone {
            name: clone.name.clone(),
            first: clone.first(),
            blocks: clone.blocks.into(),
            _users: clone.users.clone(),
            volume: self.clone(),
        })
    }

    /// Deletes a clone, and what only it had. It is gone, durably, when this returns, which takes no longer when there is much; the room that it had is
    /// free when [`tend`](Volume::tend) or [`trim`](Volume::trim) have gone through its map.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none of this name, or somebody uses it; [`Error::Poisoned`], [`Error::Io`].
    pub fn delete_clone(&self, name: &str) -> Result<()> {
        self.check_poison()?;
        let mut log = locked(&self.log);
        let i = log.clones.position(name)?;
        if Arc::strong_count(&log.clones.all[i].users) > 1 {
            return Err(Error::invalid(format!("the clone {name} is in use")));
        }
        log.clones.all[i].is_gone = true;
        let checkpoint = self.checkpoint(&mut log);
        checkpoint.inspect_err(|_| log.clones.all[i].is_gone = false)
    }

    /// Lets go of some of what a clone had that was deleted. Whether there is more, of it or others.
    pub(super) fn erase_some(&self, log: &mut Log) -> Result<bool> {
        let Some(i) = log.clones.all.iter().position(|clone| clone.is_gone) else {
            return Ok(false);
        };
        // Half done, it would be counted in part.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        self.erase(log, i).inspect_err(poison)?;
        Ok(log.clones.has_gone())
    }

    /// Of this one; not more than some gigabytes.
    fn erase(&self, log: &mut Log, i: usize) -> Result<()> {
        let load = self.load();
        let top = log.clones.all[i].top();
        let shared = log.clones.shared(log.clones.all[i].first());
        // Of a node of its own, those below that are its own are gone through one at a time, and itself at last.
        let part = {
            let mut map = self.map();
            let is_own = |entry: u64| entry > 0 && !shared.has(entry);
            let mut found = None;
            if is_own(map.stored(top, &load)?) {
                for place in map.children(top, &load)? {
                    if is_own(map.stored(place, &load)?) {
                        found = Some(place);
                        break;
                    }
                }
            }
            found
        };
        let mut entries = Vec::new();
        let place = part.unwrap_or(top);
        self.each_own(&self.view, place, &shared, u64::MAX, &mut |entry| entries.push(entry))?;
        for entry in entries {
            // The log does not say so: only a superblock sets free what was there.
            log.space.set_meta(entry);
            log.space.remove(entry);
        }
        self.map().graft(place, 0, &load)?;
        if part.is_some() {
            return Ok(());
        }
        self.checkpoint(log)?;
        let spare = self.spare(log)?;
        log.clones.all.remove(i);
        self.set_held(log, spare)?;
        if log.clones.is_empty() {
            let (blocks, space) = (self.blocks(), &mut log.space);
            self.map().resize(blocks, &load, &mut |entry| space.remove(entry))?;
        }
        self.checkpoint(log)
    }

    /// Tells of each block of a part of a map, up to one, and of each of its nodes where it is stored, in eighths: but for what is shared, and what is below that.
    pub(super) fn each_own(
        &self,
        view: &View,
        place: Place,
        shared: &Shared,
        end: u64,
        each: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let load = self.load();
        let mut open = vec![place];
        while let Some(place) = open.pop() {
            let mut map = locked(&view.map);
            let entry = map.stored(place, &load)?;
            if entry == 0 || shared.has(entry) {
                continue;
            }
            each(entry);
            open.extend(map.children(place, &load)?);
            if place.0 == 0 {
                let first = place.1 << FAN_BITS;
                for block in first..(first + FAN as u64).min(end) {
                    match map.get(block, &load)? {
                        0 => {}
                        entry if shared.has(entry) => {}
                        entry => each(entry),
                    }
                }
                map.shrink(self.memory);
            }
        }
        Ok(())
    }

    /// The same of all clones.
    pub(super) fn each_of_clones(&self, log: &Log, each: &mut dyn FnMut(u64)) -> Result<()> {
        log.clones.iter().try_for_each(|clone| {
            let shared = log.clones.shared(clone.first());
            self.each_own(&self.view, clone.top(), &shared, u64::MAX, each)
        })
    }

    /// Stores the list of clones.
    pub(super) fn store_clones(&self, log: &mut Log) -> Result<()> {
        let stored = log.clones.stored();
        log.clone_root = self.put_root(log, Kind::Clones, &stored, log.clone_root)?;
        Ok(())
    }
}

/// Blocks of the map of a volume that has clones.
const MAPPED: u64 = 1 << (REGION_BITS + FAN_BITS);

/// A clone of a volume's snapshot. It is read and written as the volume is, beside it, from any number of threads; a flush of one is a flush of all.
pub struct WritableClone {
    volume: Arc<Volume>,
    name: String,
    first: u64,
    blocks: AtomicU64,
    _users: Arc<()>,
}

impl WritableClone {
    /// Keeps what it holds now as a snapshot of the volume: see [`Volume::take_snapshot`].
    ///
    /// # Errors
    /// Those of that.
    pub fn take_snapshot(&self, name: &str) -> Result<()> {
        self.volume.take(name, self.span())
    }

    fn span(&self) -> Span<'_> {
        Span { first: self.first, blocks: &self.blocks }
    }
}

impl ReadAt for WritableClone {
    fn len(&self) -> u64 {
        self.span().len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len())?;
        let (volume, len) = (&self.volume, buf.len() as u64);
        let offset = self.first * BLOCK as u64 + offset;
        let read = |work: &mut Work| volume.read(&volume.view, offset, buf, work);
        volume.counts.reads.run(len, || volume.with_work(read))
    }

    fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
        self.volume.run_in(&self.volume.view, (self.first, self.len()), offset)
    }
}

impl WriteAt for WritableClone {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.volume.write_span(self.span(), offset, bytes)
    }

    fn zero_at(&self, offset: u64, len: u64) -> Result<()> {
        self.volume.zero_span(self.span(), offset, len, true)
    }

    fn discard_at(&self, offset: u64, len: u64) -> Result<()> {
        self.volume.zero_span(self.span(), offset, len, false)
    }

    fn flush(&self) -> Result<()> {
        self.volume.flush()
    }
}

impl std::fmt::Debug for WritableClone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritableClone").field("name", &self.name).finish_non_exhaustive()
    }
}
