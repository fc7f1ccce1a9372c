//! Snapshots: what a superblock led to is kept. Segments that hold anything of it are not written again, nor cleaned; nothing is copied.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::envelope::{Container, read_header};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, within};
use crate::volume::clones::{Shared, check_region, now};
use crate::volume::device::Device;
use crate::volume::dictionary::read_copies;
use crate::volume::format::{
    ALIGN, BLOCK, ENTRY, FRAGMENT_HEAD, Kind, MAX_BLOCKS, MAX_EXTENT, REGION_BITS, Superblock,
};
use crate::volume::log::{From, Log, read_fragment, read_meta};
use crate::volume::map::Map;
use crate::volume::open::{MEMORY, Source, whole};
use crate::volume::read::View;
use crate::volume::space::{Space, parse_root};
use crate::volume::write::Span;
use crate::volume::{Volume, Work, locked};
use crate::wire::{Put, Take, low_bytes};

/// What counts what of a snapshot is of a clone; of others it is 1.
const OF_CLONE: u32 = 2;
/// Snapshots that a volume may have.
const MOST: usize = 4096;
/// Bytes of a name.
const MOST_NAME: usize = 255;

/// A snapshot that a volume has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// No other of the volume has it.
    pub name: String,
    /// When it was taken.
    pub taken: SystemTime,
    /// Bytes of the device, as it was then.
    pub len: u64,
    /// Bytes of the segments that hold something of it; much of that may belong to the volume as it is now or to other snapshots as well.
    pub held_len: u64,
}

/// One that a volume has, as it is stored.
pub(super) struct Kept {
    /// Those of later ones are larger.
    pub id: u64,
    pub name: String,
    /// Seconds since 1970.
    time: u64,
    pub blocks: u64,
    /// What it holds was a clone: its blocks have the numbers of that region.
    is_of_clone: bool,
    /// Where the root of its map lies, in eighths; 0 for nowhere.
    pub map: u64,
    /// The segments that hold something of it, in order.
    pub segments: Vec<Range<u32>>,
    /// Where this is stored, in eighths.
    pub entry: u64,
    /// To be stored once more.
    is_changed: bool,
    /// Others have it as long as they read.
    readers: Arc<()>,
}

impl Kept {
    fn stored(&self, limit: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_varint(self.name.len() as u64);
        bytes.put(self.name.as_bytes());
        bytes.put_varint(self.time);
        bytes.put_varint(self.blocks);
        bytes.put(&low_bytes(self.map)[..ENTRY]);
        let mut segments = self.segments.clone();
        for near in (0..u32::BITS).map(|bit| 1u32 << bit) {
            let mut runs = Vec::new();
            let mut end = 0;
            runs.put_varint(segments.len() as u64);
            for run in &segments {
                runs.put_varint(u64::from(run.start - end));
                runs.put_varint(u64::from(run.end - run.start));
                end = run.end;
            }
            if bytes.len() + runs.len() <= limit {
                bytes.put(&runs);
                break;
            }
            // Of a volume that is in very many pieces more is held than needed.
            segments = joined(&segments, near);
        }
        bytes
    }

    fn parse(
        (id, is_of_clone): (u64, bool),
        entry: u64,
        bytes: &[u8],
        segments: u32,
        pos: u64,
    ) -> Result<Kept> {
        let mut take = Take::new(bytes, "snapshot", pos);
        let name = take.string()?;
        let name = std::str::from_utf8(name).ok().filter(|name| check_name(name).is_ok());
        let name = name.ok_or_else(|| take.corrupt())?.to_owned();
        let (time, blocks, map) = (take.varint()?, take.varint()?, take.low(ENTRY)?);
        // Each run takes two bytes or more.
        let count = take.count(bytes.len() as u64 / 2)?;
        let (mut runs, mut end) = (Vec::with_capacity(count), 0u64);
        for _ in 0..count {
            let start = end.saturating_add(take.varint()?);
            end = start.saturating_add(take.varint()?);
            if start >= end || end > segments.into() {
                return Err(take.corrupt());
            }
            runs.push(start as u32..end as u32);
        }
        take.end()?;
        let kept = Kept {
            id,
            name,
            time,
            blocks,
            is_of_clone,
            map,
            segments: runs,
            entry,
            is_changed: false,
            readers: Arc::default(),
        };
        match (1..=MAX_BLOCKS).contains(&blocks) {
            true => Ok(kept),
            false => Err(Error::Corrupt { what: "snapshot", at: Place::Pos(pos) }),
        }
    }

    /// Whether it holds the segment that an entry leads to.
    pub fn holds(&self, segment: u32) -> bool {
        holds(&self.segments, segment)
    }

    /// Whether just what it holds is stored, where a segment has so many bits, and no more.
    pub fn is_told_exactly(&self, bits: u8) -> bool {
        self.stored(usize::MAX).len() <= limit(bits)
    }

    /// What is to be stored again when its segment is cleaned.
    pub fn touch(&mut self) {
        self.is_changed = true;
    }

    fn info(&self, bits: u8) -> SnapshotInfo {
        let held: u64 = self.segments.iter().map(|run| u64::from(run.end - run.start)).sum();
        SnapshotInfo {
            name: self.name.clone(),
            taken: UNIX_EPOCH + Duration::from_secs(self.time.min(1 << 40)),
            len: self.blocks * BLOCK as u64,
            held_len: held << bits,
        }
    }
}

/// Bytes of one, at most: half of a segment holds all that is in it.
fn limit(bits: u8) -> usize {
    (1usize << (bits - 1)).min(MAX_EXTENT / 2)
}

/// Whether a segment is in one of these runs, which are in order.
pub(super) fn holds(runs: &[Range<u32>], segment: u32) -> bool {
    let i = runs.partition_point(|run| run.end <= segment);
    runs.get(i).is_some_and(|run| run.start <= segment)
}

/// Runs that are no farther apart than this are one.
fn joined(runs: &[Range<u32>], near: u32) -> Vec<Range<u32>> {
    let mut joined: Vec<Range<u32>> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start.saturating_sub(last.end) <= near => {
                last.end = last.end.max(run.end);
            }
            _ => joined.push(run.clone()),
        }
    }
    joined
}

pub(super) fn check_name(name: &str) -> Result<()> {
    match (1..=MOST_NAME).contains(&name.len()) && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Error::invalid(
            "a snapshot or clone has a name of 1 to 255 bytes without line breaks",
        )),
    }
}

/// Where the snapshots of a superblock are stored, in eighths.
fn entries(from: From<'_>, superblock: &Superblock) -> Result<Vec<u64>> {
    let pos = superblock.snapshots;
    if pos == 0 {
        return Ok(Vec::new());
    }
    let root = read_meta(from, pos, (Kind::SnapshotRoot, 0, 1))?;
    let entries = parse_root(&root).filter(|entries| entries.len() <= MOST);
    entries.ok_or(Error::Corrupt { what: "snapshots", at: Place::Pos(pos) })
}

/// The one that is stored there.
fn read_kept(from: From<'_>, entry: u64, segments: u32) -> Result<Kept> {
    let (pos, mut bytes) = (entry * ALIGN, Vec::new());
    let head = read_fragment(from, pos, 4096, &mut bytes)?;
    if head.kind != Kind::Snapshot || head.count > OF_CLONE {
        return Err(Error::Corrupt { what: "snapshot", at: Place::Pos(pos) });
    }
    let stored = &bytes[FRAGMENT_HEAD..][..head.len as usize];
    Kept::parse((head.block, head.count == OF_CLONE), entry, stored, segments, pos)
}

/// The snapshots that a superblock leads to. Counts what they hold.
pub(super) fn read_all(
    from: From<'_>,
    superblock: &Superblock,
    space: &mut Space,
) -> Result<Vec<Kept>> {
    let (mut all, mut names): (Vec<Kept>, _) = (Vec::new(), HashSet::new());
    for entry in entries(from, superblock)? {
        let kept = read_kept(from, entry, superblock.segments)?;
        let is_new = names.insert(kept.name.clone());
        if !is_new || all.last().is_some_and(|last| last.id >= kept.id) {
            return Err(Error::Corrupt { what: "snapshot", at: Place::Pos(entry * ALIGN) });
        }
        all.push(kept);
    }
    count(&all, space);
    if superblock.snapshots > 0 {
        space.pin(superblock.snapshots / ALIGN);
    }
    Ok(all)
}

/// Those that are whole, for a repair: of a superblock, or of the newest list that was found if that cannot be read.
pub(super) fn read_whole(
    from: From<'_>,
    superblock: &Superblock,
    found: Vec<u64>,
    segments: u32,
) -> Vec<Kept> {
    let mut all: Vec<Kept> = Vec::new();
    for entry in entries(from, superblock).unwrap_or(found).into_iter().take(MOST) {
        if let Ok(kept) = read_kept(from, entry, segments)
            && all.last().is_none_or(|last| last.id < kept.id)
        {
            all.push(kept);
        }
    }
    all
}

/// Counts what they hold, and where they are stored themselves.
pub(super) fn count(all: &[Kept], space: &mut Space) {
    for kept in all {
        space.pin(kept.entry);
    }
    space.hold(all.iter().flat_map(|kept| kept.segments.iter().cloned()));
}

pub(super) fn infos(all: &[Kept], bits: u8) -> Vec<SnapshotInfo> {
    all.iter().map(|kept| kept.info(bits)).collect()
}

/// A snapshot that is to be taken.
pub(super) struct Taking<'a> {
    pub name: &'a str,
    pub time: u64,
    /// Of the device, or of a clone: the first block.
    pub first: u64,
    pub blocks: u64,
}

impl Volume {
    /// Keeps what the volume holds now, under a name: it can be read as it is for as long as the snapshot is there, whatever is written to the
    /// volume. Nothing is copied: the map is stored, as it is now and then anyway, and segments that hold something are
    /// not written again. So each costs what is overwritten or discarded later, and what of these segments was
    /// not needed any more: cleaning a volume before ([`trim`](Volume::trim), or when nobody asks for anything) makes that little.
    /// Durable when this returns, and either all of it or nothing after a crash. Writers wait meanwhile.
    ///
    /// Where the volume may take as much as is enough whatever is written, it may take more by what its snapshots hold; else they take of what it has.
    ///
    /// What a file system on it holds is in the snapshot as after a power cut, unless it is frozen meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is there or makes no sense, [`Error::Limit`] when there are 4096, [`Error::Io`] also when
    /// there is no room, [`Error::Poisoned`].
    pub fn take_snapshot(&self, name: &str) -> Result<()> {
        self.take(name, self.span())
    }

    /// The same of the device, or of a clone.
    pub(super) fn take(&self, name: &str, span: Span<'_>) -> Result<()> {
        self.check_poison()?;
        check_name(name)?;
        // What was written in parts is whole.
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut log = locked(&self.log);
        self.check_unnamed(&log, name)?;
        if log.snapshots.len() >= MOST {
            let (need, allowed) = (MOST as u64 + 1, MOST as u64);
            return Err(Error::Limit { what: "snapshots of a volume", need, allowed });
        }
        self.make_room(&mut log, false)?;
        let taking = Taking { name, time: now(), first: span.first, blocks: span.blocks() };
        self.checkpoint_taking(&mut log, Some(taking))
    }

    /// The snapshots, the oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        infos(&locked(&self.log).snapshots, self.bits)
    }

    /// Lets go of a snapshot: what only it needed is room for others. Durable when this returns; takes no longer when there is much, but for what its clones had that were
    /// deleted just before.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none of this name, or somebody reads it; [`Error::Poisoned`], [`Error::Io`].
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.check_poison()?;
        let mut log = locked(&self.log);
        let i = position(&log, name)?;
        if Arc::strong_count(&log.snapshots[i].readers) > 1 {
            return Err(Error::invalid(format!("the snapshot {name} is being read")));
        }
        let id = log.snapshots[i].id;
        if let Some(clone) = log.clones.made_from(id).find(|clone| !clone.is_gone) {
            return Err(Error::invalid(format!(
                "the clone {} was made from the snapshot {name}: delete that first",
                clone.name
            )));
        }
        // What a clone had that was deleted goes first.
        while log.clones.made_from(id).next().is_some() {
            self.erase_some(&mut log)?;
        }
        let spare = self.spare(&log)?;
        let kept = log.snapshots.remove(i);
        log.space.unpin(kept.entry);
        log.space.let_go(&kept.segments);
        self.set_held(&mut log, spare)?;
        // What it held waits for this superblock: not before is it forgotten durably.
        self.checkpoint(&mut log)
    }

    /// Makes the volume what a snapshot holds, its length as well; what was written since is gone, but for what other snapshots and clones hold. The snapshot stays. Reads
    /// all of its map, and stores it once more. Durable when this returns, and either all of it or nothing after a crash. Others wait meanwhile; whatever
    /// is mounted on the volume must not be.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none of this name, or it is of a clone; [`Error::Limit`] when it is longer than a volume with clones may
    /// be; [`Error::Poisoned`], [`Error::Corrupt`], [`Error::Io`].
    pub fn restore_snapshot(&self, name: &str) -> Result<()> {
        self.check_poison()?;
        let _alone = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut log = locked(&self.log);
        let kept = &log.snapshots[position(&log, name)?];
        if kept.is_of_clone {
            return Err(Error::invalid(format!(
                "the snapshot {name} is of a clone: make another clone of it"
            )));
        }
        let (blocks, root) = (kept.blocks, kept.map);
        let has_clones = !log.clones.is_empty();
        if has_clones {
            check_region(blocks)?;
        }
        let (mut used, load) = (HashMap::new(), self.load());
        let mut count = |entry: u64| {
            *used.entry(((entry * ALIGN) >> self.bits) as u32).or_default() += 1;
        };
        // As it is stored.
        self.checkpoint(&mut log)?;
        let view = View::new(blocks, root);
        self.store_again(&mut log, &view)?;
        let root = locked(&view.map).root;
        let top = locked(&view.map).top();
        self.each_own(&view, top, &Shared::default(), blocks, &mut count)?;
        if has_clones {
            self.each_of_clones(&log, &mut count)?;
            count(self.map().root);
        }
        let spare = self.spare(&log)?;
        // Half done, what is counted would be of another map.
        let poison = |_: &Error| self.is_poisoned.store(true, Ordering::Release);
        let mut switch = || -> Result<()> {
            match has_clones {
                true => {
                    let mut map = self.map();
                    map.graft(Map::top_of(0, 1 << REGION_BITS), 0, &load)?;
                    map.graft(Map::top_of(0, blocks), root, &load)?;
                }
                false => self.map().replace(blocks, root),
            }
            self.blocks.store(blocks, Ordering::Release);
            log.superblock.blocks = blocks;
            log.space.set_live(&used);
            self.set_held(&mut log, spare)?;
            self.keep_room(&mut log)?;
            self.checkpoint(&mut log)
        };
        switch().inspect_err(poison)
    }

    /// Stores all nodes of a map once more, so that each is newer than all that was written up to now, and a repair takes it. They are not counted, and the next superblock
    /// does not lead to them yet.
    fn store_again(&self, log: &mut Log, view: &View) -> Result<()> {
        let load = self.load();
        let mut open = vec![locked(&view.map).top()];
        while let Some(place) = open.pop() {
            let mut map = locked(&view.map);
            if map.stored(place, &load)? == 0 {
                continue;
            }
            map.touch(place, &load)?;
            open.extend(map.children(place, &load)?);
            let is_much = map.dirty >= self.most_dirty();
            drop(map);
            if is_much {
                self.store_nodes(log, &view.map, false)?;
                locked(&view.map).shrink(self.memory);
            }
        }
        self.store_nodes(log, &view.map, false)
    }

    /// A snapshot, to be read. As long as this is there it cannot be deleted.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none of this name.
    pub fn snapshot(self: &Arc<Self>, name: &str) -> Result<Snapshot> {
        let log = locked(&self.log);
        let kept = &log.snapshots[position(&log, name)?];
        let view = View::new(kept.blocks, kept.map);
        let (id, readers) = (kept.id, kept.readers.clone());
        drop(log);
        Ok(Snapshot { volume: self.clone(), view, id, _readers: readers })
    }

    /// Appends snapshots that are to be stored, and the list of them; `taking` is added to them. The nodes of the map are stored.
    pub(super) fn store_snapshots(&self, log: &mut Log, taking: Option<Taking<'_>>) -> Result<()> {
        if let Some(Taking { name, time, first, blocks }) = taking {
            let load = self.load();
            let mut segments = log.space.needed();
            if let Some(clone) = log.clones.iter().find(|clone| clone.first() == first) {
                segments.extend(clone.shared.iter().cloned());
                segments.sort_unstable_by_key(|run| run.start);
                segments = joined(&segments, 0);
            }
            let kept = Kept {
                // No other had it, or will.
                id: log.superblock.generation + 1,
                name: name.to_owned(),
                time,
                blocks,
                is_of_clone: first > 0,
                map: self.map().stored(Map::top_of(first, blocks), &load)?,
                segments,
                entry: 0,
                is_changed: true,
                readers: Arc::default(),
            };
            let spare = self.spare(log)?;
            log.space.hold(kept.segments.iter().cloned());
            self.set_held(log, spare)?;
            log.snapshots.push(kept);
        }
        let limit = limit(self.bits);
        for i in 0..log.snapshots.len() {
            let kept = &mut log.snapshots[i];
            if !std::mem::take(&mut kept.is_changed) {
                continue;
            }
            let (stored, id) = (kept.stored(limit), kept.id);
            let count = if kept.is_of_clone { OF_CLONE } else { 1 };
            let entry = self.put_one(log, Kind::Snapshot, (id, count), &stored)?;
            let before = std::mem::replace(&mut log.snapshots[i].entry, entry);
            log.space.pin(entry);
            log.space.unpin(before);
        }
        let entries: Vec<u64> = log.snapshots.iter().map(|kept| kept.entry).collect();
        log.snapshot_root = self.put_list(log, Kind::SnapshotRoot, &entries, log.snapshot_root)?;
        Ok(())
    }
}

pub(super) fn position(log: &Log, name: &str) -> Result<usize> {
    let found = log.snapshots.iter().position(|kept| kept.name == name);
    found.ok_or_else(|| Error::invalid(format!("there is no snapshot {name}")))
}

/// What a volume held when a snapshot was taken. It is read as the volume is, and the volume may be written meanwhile. It has a
/// map of its own in memory, of up to as much as the volume's.
pub struct Snapshot {
    volume: Arc<Volume>,
    view: View,
    id: u64,
    _readers: Arc<()>,
}

impl Snapshot {
    /// Reads a snapshot of a volume that somebody else may be writing meanwhile, perhaps in another program: what a snapshot holds does not
    /// change, and nothing is written to the device, as [`FileDevice::read_only`](crate::volume::FileDevice::read_only) gives it. Only it must not be deleted by them; [`is_there`](Snapshot::is_there) tells afterwards whether it was.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no volume, or has no snapshot of this name; [`Error::Unsupported`] for a newer version,
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(device: impl Device + 'static, name: &str) -> Result<Snapshot> {
        let len = device.len()?;
        read_header(&Source { device: &device, len }, Container::Volume)?.valid?;
        let superblock = whole(&device)?;
        let volume = Volume::over(Box::new(device), superblock.clone(), MEMORY);
        // Neither now nor when it is dropped is anything stored.
        volume.is_poisoned.store(true, Ordering::Release);
        let mut log = locked(&volume.log);
        log.snapshots = read_all(volume.from(), &superblock, &mut log.space)?;
        let copies = read_copies(volume.from(), &superblock, &mut log.space)?;
        drop(log);
        volume.read_dictionaries(&copies);
        Arc::new(volume).snapshot(name)
    }

    /// Whether the volume still has it: what was read before then is right.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn is_there(&self) -> Result<bool> {
        let superblock = whole(&*self.volume.device)?;
        let (from, segments) = (self.volume.from(), superblock.segments);
        for entry in entries(from, &superblock)? {
            if read_kept(from, entry, segments)?.id == self.id {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl ReadAt for Snapshot {
    fn len(&self) -> u64 {
        locked(&self.view.map).blocks() * BLOCK as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len())?;
        let (volume, len) = (&self.volume, buf.len() as u64);
        let read = |work: &mut Work| volume.read(&self.view, offset, buf, work);
        volume.counts.reads.run(len, || volume.with_work(read))
    }

    fn run_at(&self, offset: u64) -> Result<(u64, bool)> {
        self.volume.run_in(&self.view, (0, self.len()), offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_is_held_in_very_many_pieces_is_told_in_little_room() {
        let mut random = Random(1);
        for (count, limit) in [(0, 100), (1, 100), (300, 4096), (20_000, 4096), (20_000, 60)] {
            let mut end = 0;
            let segments = (0..count).map(|_| {
                let start = end + 1 + random.below(9) as u32;
                end = start + 1 + random.below(3) as u32;
                start..end
            });
            let kept = Kept {
                id: 7,
                name: "of many pieces".to_owned(),
                time: 1 << 31,
                blocks: 1 << 30,
                is_of_clone: count > 100,
                map: 1 << 39,
                segments: segments.collect(),
                entry: 5,
                is_changed: false,
                readers: Arc::default(),
            };
            let stored = kept.stored(limit);
            assert!(stored.len() <= limit, "{} bytes for {count}", stored.len());
            let read = Kept::parse((7, kept.is_of_clone), 5, &stored, end, 40).unwrap();
            let told = |kept: &Kept| (kept.name.clone(), kept.time, kept.blocks, kept.map);
            assert_eq!(told(&read), told(&kept));
            assert!(kept.segments.iter().cloned().flatten().all(|segment| read.holds(segment)));
            assert!(limit < 4096 || count > 300 || read.segments == kept.segments);
            assert!(!read.holds(0) && !read.holds(end));
            assert!(
                count == 0 || Kept::parse((7, kept.is_of_clone), 5, &stored, end - 1, 40).is_err()
            );
            for cut in 0..stored.len() {
                assert!(
                    Kept::parse((7, kept.is_of_clone), 5, &stored[..cut], end, 40).is_err(),
                    "{cut}"
                );
            }
        }
    }
}
