//! Reading: the units that have the blocks, and no more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::cache::Cache;
use crate::error::{Error, Place as At, Result};
use crate::io::within;
use crate::volume::dictionary::Dictionaries;
use crate::volume::format::{ALIGN, BLOCK, FRAGMENT_HEAD, MAX_UNIT, beyond};
use crate::volume::log::{Ahead, From, read_fragment};
use crate::volume::map::{Around, Map};
use crate::volume::unit::{DICTIONARY, unpack};
use crate::volume::{Volume, Work, locked};

/// Blocks that are looked up at a time.
const AT_A_TIME: usize = 1024;

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// In eighths; 0 for zeros.
    entry: u64,
    /// The turn of the log that led to its segment: there may be something else later.
    turn: u64,
}

impl Place {
    pub fn is_zeros(self) -> bool {
        self.entry == 0
    }

    pub fn entry(self) -> u64 {
        self.entry
    }

    pub fn pos(self) -> u64 {
        self.entry * ALIGN
    }

    pub fn segment(self, bits: u8) -> u32 {
        (self.pos() >> bits) as u32
    }
}

/// A unit of which a part was read: others may be read next.
struct Decoded {
    turn: u64,
    /// Its first one.
    block: u64,
    bytes: Vec<u8>,
}

/// Bytes of units that are kept decoded.
const UNITS: u64 = 4 << 20;

/// What is read: the volume as it is, or as it was.
pub(super) struct View {
    /// Taken for a moment only, by readers as well: never while something is written. Whoever takes the log, too, takes it first.
    pub map: Mutex<Map>,
    /// Units of which a part was read last.
    units: Cache<Decoded>,
    pub lengths: Lengths,
}

/// Bytes that fragments of units take, by what was read of them: the map says where one begins, not where it ends, and each that is longer than it was
/// taken for is read twice.
pub(super) struct Lengths {
    /// Of units of 1, 2 to 3, 4 to 7 blocks and so on: some nine of ten take no more.
    usual: [AtomicU32; MAX_UNIT.ilog2() as usize + 1],
}

impl Lengths {
    fn new() -> Lengths {
        // Most shrink to less than five eighths.
        let first = |class| (FRAGMENT_HEAD + (BLOCK << class) / 8 * 5) as u32;
        Lengths { usual: std::array::from_fn(|class| AtomicU32::new(first(class))) }
    }

    fn usual(&self, blocks: usize) -> &AtomicU32 {
        &self.usual[blocks.clamp(1, MAX_UNIT).ilog2() as usize]
    }

    /// How many bytes to read of a fragment of which so many blocks are known, if that of the next block lies there; both in eighths.
    pub fn expected(&self, blocks: usize, entry: u64, next: u64) -> usize {
        let usual = self.usual(blocks).load(Ordering::Relaxed) as usize;
        // What was written in order lies in order, and no two overlap.
        match (next.saturating_sub(entry) * ALIGN) as usize {
            apart if (1..=2 * usual).contains(&apart) => apart,
            _ => usual,
        }
    }

    /// Takes note of one. A step up is nine times as long as a step down, so that one of ten goes up; and those that are not shorter by more than it go
    /// nowhere, so that all of one length are expected as they are.
    pub fn learn(&self, blocks: usize, len: usize) {
        let (usual, down) = (self.usual(blocks), (blocks.min(MAX_UNIT) * BLOCK / 256) as u32);
        let (before, len, up) = (usual.load(Ordering::Relaxed), len as u32, 9 * down);
        if len > before {
            usual.store(before + up, Ordering::Relaxed);
        } else if len + up < before {
            usual.store(before - down, Ordering::Relaxed);
        }
    }
}

/// A run of blocks that one fragment has.
struct Run {
    place: Place,
    /// Blocks that are asked for.
    len: usize,
    /// Bytes that are read of the fragment at once.
    expected: usize,
    /// Blocks by which it was expected so.
    known: usize,
}

impl View {
    /// Of so many blocks, with a map whose root lies at this entry.
    pub fn new(blocks: u64, root: u64) -> View {
        View {
            map: Mutex::new(Map::new(blocks, root)),
            units: Cache::new(UNITS),
            lengths: Lengths::new(),
        }
    }
}

impl Volume {
    /// Fills `buf` from `offset` on, which is within the view.
    pub(super) fn read(
        &self,
        view: &View,
        offset: u64,
        buf: &mut [u8],
        work: &mut Work,
    ) -> Result<()> {
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (block, skip) = (offset / BLOCK as u64, offset as usize % BLOCK);
            let len = if skip > 0 || rest.len() < BLOCK {
                // A part of a block.
                let (now, _) = rest.split_at_mut((BLOCK - skip).min(rest.len()));
                let mut whole = [0; BLOCK];
                self.read_blocks(view, block, &mut whole, work)?;
                now.copy_from_slice(&whole[skip..skip + now.len()]);
                now.len()
            } else {
                let len = (rest.len() / BLOCK).min(AT_A_TIME) * BLOCK;
                self.read_blocks(view, block, &mut rest[..len], work)?;
                len
            };
            offset += len as u64;
            rest = &mut rest[len..];
        }
        Ok(())
    }

    /// Where each of these blocks lies.
    pub(super) fn places(&self, view: &View, first: u64, count: usize) -> Result<Vec<Place>> {
        Ok(self.look_up(view, first, count)?.0)
    }

    /// The same, and what is around the last of them.
    fn look_up(&self, view: &View, first: u64, count: usize) -> Result<(Vec<Place>, Around)> {
        let load = self.load();
        let mut map = locked(&view.map);
        map.shrink(self.memory);
        // It may have become shorter since it was asked.
        let block = BLOCK as u64;
        within(first * block, count * BLOCK, map.blocks() * block)?;
        let end = first + count as u64;
        let place = |block: u64| -> Result<Place> {
            let entry = map.get(block, &load)?;
            Ok(Place { entry, turn: map.turn_of(((entry * ALIGN) >> self.bits) as u32) })
        };
        let places = (first..end).map(place).collect::<Result<_>>()?;
        Ok((places, map.around(end - 1, MAX_UNIT, &load)?))
    }

    /// What is to be read for some blocks.
    fn runs(&self, view: &View, first: u64, count: usize) -> Result<Vec<Run>> {
        let (places, around) = self.look_up(view, first, count)?;
        let mut left = places.chunk_by(|a, b| a == b).peekable();
        let mut runs = Vec::new();
        while let Some(run) = left.next() {
            let (place, len) = (run[0], run.len());
            let (known, next) = match left.peek() {
                Some(next) => (len, next[0].entry),
                None => (around.same, around.next),
            };
            let expected = view.lengths.expected(known, place.entry, next);
            runs.push(Run { place, len, expected, known });
        }
        Ok(runs)
    }

    fn read_blocks(&self, view: &View, first: u64, buf: &mut [u8], work: &mut Work) -> Result<()> {
        let runs = self.runs(view, first, buf.len() / BLOCK)?;
        let mut bytes = std::mem::take(&mut work.together);
        let (mut block, mut rest, mut runs) = (first, buf, &runs[..]);
        while !runs.is_empty() {
            let (now, later) = runs.split_at(self.read_together(runs, &mut bytes));
            let ahead = Ahead { pos: now[0].place.pos(), bytes: &bytes };
            for run in now {
                let (piece, after) = rest.split_at_mut(run.len * BLOCK);
                self.read_run(view, (block, run), piece, ahead, work)?;
                block += run.len as u64;
                rest = after;
            }
            runs = later;
        }
        work.together = bytes;
        Ok(())
    }

    /// Reads the first of these runs, and those that lie behind it, at once where there are more than one. Returns how many these
    /// are.
    fn read_together(&self, runs: &[Run], bytes: &mut Vec<u8>) -> usize {
        const MOST: u64 = 256 << 10;
        /// Between them there may be the heads of extents, and what is dead by now.
        const NEAR: u64 = 4096;
        let start = runs[0].place.pos();
        let segment_end = ((start >> self.bits) + 1) << self.bits;
        let (mut last, mut near, mut end) = (start, start + (runs[0].len * BLOCK) as u64, start);
        let follow = runs[1..].iter().take_while(|run| {
            let pos = run.place.pos();
            if pos == 0 {
                // Zeros lie nowhere.
                return true;
            }
            let its_end = (pos + run.expected as u64).min(segment_end);
            let is_near = pos > last && pos <= near + NEAR && pos < segment_end;
            if start == 0 || !is_near || its_end - start > MOST {
                return false;
            }
            (last, near, end) = (pos, pos + (run.len * BLOCK) as u64, its_end);
            true
        });
        let count = 1 + follow.count();
        bytes.resize((end - start) as usize, 0);
        if end > start && self.device.read_at(start, bytes).is_err() {
            // What cannot be read is found when each is read alone.
            bytes.clear();
        }
        count
    }

    /// Fills `buf` with blocks that lie in one fragment.
    fn read_run(
        &self,
        view: &View,
        (first, run): (u64, &Run),
        buf: &mut [u8],
        ahead: Ahead<'_>,
        work: &mut Work,
    ) -> Result<()> {
        /// The segment may have been cleaned and written again in the meantime: how often in one read at most.
        const TIMES: usize = 100;
        let Run { mut place, expected, known, .. } = *run;
        let (mut is_same, mut ahead) = (false, ahead);
        for _ in 0..TIMES {
            let now = Run { place, len: run.len, expected, known };
            let damage = match self.read_place(view, (first, &now), buf, ahead, work) {
                Err(error @ Error::Corrupt { .. }) => error,
                other => return other,
            };
            // From now on what is there now.
            ahead = Ahead::default();
            let now = self.places(view, first, run.len)?;
            let was_same = is_same;
            is_same = now.iter().all(|now| *now == place);
            // Once, it may be that just these blocks were written there again while they were read.
            if is_same && was_same {
                return Err(damage);
            }
            if now.iter().any(|other| *other != now[0]) {
                // They are not together any more.
                for (i, (block, &place)) in buf.chunks_exact_mut(BLOCK).zip(&now).enumerate() {
                    let run = Run { place, len: 1, expected, known: 1 };
                    self.read_run(view, (first + i as u64, &run), block, ahead, work)?;
                }
                return Ok(());
            }
            place = now[0];
        }
        Err(Error::Corrupt { what: "fragment", at: At::Pos(place.pos()) })
    }

    /// The same from what is kept decoded, if it is there.
    fn read_place(
        &self,
        view: &View,
        (first, run): (u64, &Run),
        buf: &mut [u8],
        ahead: Ahead<'_>,
        work: &mut Work,
    ) -> Result<()> {
        let Place { entry, turn } = run.place;
        // Whole units are not kept.
        let may_be_part = buf.len() < MAX_UNIT * BLOCK && entry > 0;
        if may_be_part
            && let Some(unit) = view.units.get(entry)
            && unit.turn == turn
            && let Some(bytes) = unit.bytes.get(beyond(first, unit.block) as usize * BLOCK..)
            && let Some(bytes) = bytes.get(..buf.len())
        {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        work.room.clear();
        let from = From { ahead, ..self.from() };
        let at = Unit { first, entry, expected: run.expected };
        let (block, len) = read_unit(from, &self.dictionaries, at, buf, work)?;
        if entry > 0 {
            view.lengths.learn(run.known, len as usize);
        }
        if may_be_part && !work.room.is_empty() {
            let bytes = std::mem::take(&mut work.room);
            let weight = bytes.len() as u64;
            let gone = view.units.insert(entry, Arc::new(Decoded { turn, block, bytes }), weight);
            let gone = gone.and_then(|gone| Arc::try_unwrap(gone).ok());
            work.room = gone.map_or_else(Vec::new, |gone| gone.bytes);
        }
        Ok(())
    }
}

/// What is to be read of a unit.
pub(super) struct Unit {
    /// The first of the blocks.
    pub first: u64,
    /// Where it lies, in eighths; 0 for zeros.
    pub entry: u64,
    /// How many bytes are read at once; what it has beyond them needs a second read.
    pub expected: usize,
}

/// Fills `buf` with blocks of the fragment where this entry leads, if it is theirs. Returns its first block, and how
/// many bytes it takes.
pub(super) fn read_unit(
    from: From<'_>,
    dictionaries: &Dictionaries,
    Unit { first, entry, expected }: Unit,
    buf: &mut [u8],
    work: &mut Work,
) -> Result<(u64, u64)> {
    if entry == 0 {
        buf.fill(0);
        return Ok((first, 0));
    }
    let pos = entry * ALIGN;
    let corrupt = || Error::Corrupt { what: "fragment", at: At::Pos(pos) };
    let Work { scratch, stored, room, .. } = work;
    let head = read_fragment(from, pos, expected, stored)?;
    // What a clone shares was written as blocks of another region.
    let skip = beyond(first, head.block) as usize;
    if skip + buf.len() / BLOCK > head.count as usize {
        return Err(corrupt());
    }
    let stored = &stored[FRAGMENT_HEAD..][..head.len as usize];
    let unpacked = unpack(&head, stored, skip, buf, room, dictionaries, scratch);
    unpacked.map_err(|error| match error {
        Error::Corrupt { what: DICTIONARY, .. } => {
            Error::Corrupt { what: DICTIONARY, at: At::Pos(pos) }
        }
        Error::Corrupt { .. } => corrupt(),
        other => other,
    })?;
    Ok((first.saturating_sub(skip as u64), head.stored_len() as u64))
}
