//! Encodes streams.

use std::marker::PhantomData;

use super::{Effort, FARTHEST, MOST, TRIPLE, Triple, Unit};
use crate::codec::matches::{Cursor, FIBONACCI, common, eight};
use crate::pages::{Pieces, Room};

/// Bits of places that the thesis has.
const THESIS: u32 = 12;
/// Of fast searches at most.
const FAST: u32 = 14;
/// Of others.
const BEST: u32 = 16;
/// A match of so many units is not looked for again from its next unit on.
const ENOUGH: usize = 128;

/// What encoders work with.
#[derive(Default)]
pub(in crate::codec) struct Tables {
    /// By hash, the unit where one like it was met last.
    places: Vec<u32>,
    /// Of each unit the one before with the same hash.
    before: Vec<u32>,
    /// Of each unit the longest match, and how far away that is.
    longest: Vec<(u32, u32)>,
}

/// Where a stream is written.
struct Writer<'s, U: Unit, S: Pieces, D: Room> {
    src: &'s S,
    dst: D,
    at: usize,
    /// Where a triple lies that is yet to be filled: the second one of a control word.
    open: Option<usize>,
    unit: PhantomData<U>,
}

impl<U: Unit, S: Pieces, D: Room> Writer<'_, U, S, D> {
    /// Writes literals from a unit on, and a match; `None` where there is no room.
    #[inline(always)]
    fn put(
        &mut self,
        mut start: usize,
        mut literals: usize,
        mut matched: usize,
        offset: usize,
    ) -> Option<()> {
        while literals > MOST {
            self.triple(start, Triple { literals: MOST, matched: 0, offset: 0 })?;
            (start, literals) = (start + MOST, literals - MOST);
        }
        while matched > MOST {
            self.triple(start, Triple { literals, matched: MOST, offset })?;
            (start, literals, matched) = (start + literals, 0, matched - MOST);
        }
        self.triple(start, Triple { literals, matched, offset })
    }

    #[inline(always)]
    fn triple(&mut self, start: usize, triple: Triple) -> Option<()> {
        let open = self.open.take();
        let control = if open.is_some() { 0 } else { U::TRIPLES * TRIPLE };
        let literals = triple.literals * U::BYTES;
        if control + literals > self.dst.len() - self.at {
            return None;
        }
        match open {
            Some(place) => self.dst.store(place, triple.bytes()),
            None if U::TRIPLES == 1 => self.dst.store(self.at, triple.bytes()),
            None => {
                self.dst.store(self.at, Triple::pair(triple, Triple::default()));
                self.open = Some(self.at + TRIPLE);
            }
        }
        self.at += control;
        if literals > 0 {
            self.dst.copy_from(self.at, self.src, start * U::BYTES, literals);
            self.at += literals;
        }
        Some(())
    }

    /// Writes what is no whole unit; returns how long the stream is.
    fn finish(mut self, units: usize) -> Option<usize> {
        let tail = self.src.len() - units * U::BYTES;
        if tail > self.dst.len() - self.at {
            return None;
        }
        self.dst.copy_from(self.at, self.src, units * U::BYTES, tail);
        Some(self.at + tail)
    }
}

/// Compresses all of `src`; returns how many bytes that took, or `None` where there is no room for them.
pub(super) fn encode<U: Unit>(
    effort: Effort,
    src: &impl Pieces,
    dst: impl Room,
    tables: &mut Tables,
) -> Option<usize> {
    let units = src.len() / U::BYTES;
    let mut writer = Writer::<U, _, _> { src, dst, at: 0, open: None, unit: PhantomData };
    match effort {
        Effort::Thesis(speed) => {
            let places = &mut tables.places;
            places.clear();
            places.resize(1 << THESIS, 0);
            let places = places.first_chunk_mut()?;
            // Of a unit all but its lowest three bytes.
            let mut places = Positions { places, bits: (24, 8 * U::BYTES as u32) };
            first_found(&mut writer, units, speed, &mut places, false)?;
        }
        Effort::Fast(speed) => {
            let bits = (units.max(1).ilog2() + 1).clamp(6, FAST);
            let places = &mut tables.places;
            places.clear();
            places.resize(1 << bits, 0);
            first_found(&mut writer, units, speed, &mut Tagged { places, bits }, true)?;
        }
        Effort::Best(depth) => best(&mut writer, units, depth, tables)?,
    }
    writer.finish(units)
}

/// Units of a match at least: those of eight bytes.
const fn least<U: Unit>() -> usize {
    8 / U::BYTES
}

/// Where units were met, by hash.
trait Places {
    /// The place where one like this was met last, which is to be compared; from now on it is this one.
    fn swap(&mut self, unit: u64, at: usize) -> Option<usize>;
}

/// As the thesis has it: positions, at first all 0.
struct Positions<'a> {
    places: &'a mut [u32; 1 << THESIS],
    /// Bits of a unit that are left out, and all that it has.
    bits: (u32, u32),
}

impl Places for Positions<'_> {
    #[inline(always)]
    fn swap(&mut self, unit: u64, at: usize) -> Option<usize> {
        let unit = unit << (64 - self.bits.1) >> (64 - self.bits.1) >> self.bits.0;
        let place = (unit.wrapping_mul(FIBONACCI) >> (64 - THESIS)) as usize;
        let found = std::mem::replace(&mut self.places[place], at as u32) as usize;
        (at - found <= FARTHEST).then_some(found)
    }
}

/// The lowest half of a position, which is all that an offset may be, and more of the hash: what is not the same is seldom read.
struct Tagged<'a> {
    places: &'a mut [u32],
    bits: u32,
}

impl Places for Tagged<'_> {
    #[inline(always)]
    fn swap(&mut self, unit: u64, at: usize) -> Option<usize> {
        let hash = unit.wrapping_mul(FIBONACCI);
        let tag = (hash >> 32) as u32 & 0xFFFF;
        let place = &mut self.places[(hash >> (64 - self.bits)) as usize];
        let found = std::mem::replace(place, (at as u32) << 16 | tag);
        let distance = (at as u32).wrapping_sub(found >> 16) as usize & 0xFFFF;
        (found & 0xFFFF == tag && distance > 0 && distance <= at).then(|| at - distance)
    }
}

/// Takes the first match that is found at each place.
#[inline(always)]
fn first_found<U: Unit, S: Pieces, D: Room>(
    writer: &mut Writer<'_, U, S, D>,
    units: usize,
    speed: u32,
    places: &mut impl Places,
    is_fast: bool,
) -> Option<()> {
    let src = writer.src;
    let mut cursor = Cursor::new(src);
    let matched = |cursor: &Cursor<'_, S>, bits: u64, found: usize, at: usize| {
        let end = units * U::BYTES;
        cursor.matched(bits, found * U::BYTES, at * U::BYTES, end) / U::BYTES
    };
    // More would go past all that there may be.
    let speed = speed.clamp(1, 1 << 16);
    let least = least::<U>();
    // The last place where a match may begin is before this one.
    let end = (units + 1).saturating_sub(least);
    let (mut anchor, mut at) = (0, 1);
    if is_fast && end > 0 {
        places.swap(cursor.eight(0), 0);
    }
    'all: while at < end {
        // Looks for a match; ever farther apart, where there was none for long.
        let mut slow = if speed < 4 { 32 >> speed } else { 4 };
        let mut counter = slow + (speed << 6);
        let (found, len) = loop {
            let bits = cursor.eight(at * U::BYTES);
            if let Some(found) = places.swap(bits, at) {
                let len = matched(&cursor, bits, found, at);
                if len > 0 {
                    break (found, len);
                }
            }
            if slow > 0 {
                (slow, at) = (slow - 1, at + 1);
            } else {
                at += (counter >> 6) as usize;
                counter += 1;
            }
            if at >= end {
                break 'all;
            }
        };
        let distance = at - found;
        let mut start = at;
        while start > anchor
            && start > distance
            && U::load(src, (start - 1) * U::BYTES)
                == U::load(src, (start - 1 - distance) * U::BYTES)
        {
            start -= 1;
        }
        at += len;
        writer.put(anchor, start - anchor, at - start, distance)?;
        anchor = at;
        // What follows a match often is one.
        while at < end {
            if is_fast {
                places.swap(eight(src, (at - 1) * U::BYTES), at - 1);
            }
            let bits = cursor.eight(at * U::BYTES);
            let found = places.swap(bits, at);
            let len = found.map_or(0, |found| matched(&cursor, bits, found, at));
            let Some(found) = found.filter(|_| len > 0) else {
                at += 1;
                break;
            };
            writer.put(anchor, 0, len, at - found)?;
            at += len;
            anchor = at;
        }
    }
    if anchor < units {
        writer.put(anchor, units - anchor, 0, 0)?;
    }
    Some(())
}

/// Takes of all ways through the longest matches the shortest.
///
/// Behind the longest match of a unit the rest costs no more than behind a shorter one: whatever is matched from there on is matched from each later unit on, too. So
/// no other lengths have to be tried.
#[inline(always)]
fn best<U: Unit, S: Pieces, D: Room>(
    writer: &mut Writer<'_, U, S, D>,
    units: usize,
    depth: u32,
    tables: &mut Tables,
) -> Option<()> {
    let src = writer.src;
    let Tables { places, before, longest } = tables;
    let bits = (units.max(1).ilog2() + 1).clamp(6, BEST);
    places.clear();
    places.resize(1 << bits, u32::MAX);
    before.clear();
    before.resize(units, u32::MAX);
    longest.clear();
    longest.resize(units + 1, (0, 0));
    let least = least::<U>();
    let end = (units + 1).saturating_sub(least);
    let mut last = (0usize, 0usize);
    for at in 0..end {
        let unit = eight(src, at * U::BYTES);
        let place = &mut places[(unit.wrapping_mul(FIBONACCI) >> (64 - bits)) as usize];
        let mut found = std::mem::replace(place, at as u32);
        before[at] = found;
        // What was matched up to here goes on.
        last = if last.0 > least { (last.0 - 1, last.1) } else { (0, 0) };
        if last.0 < ENOUGH {
            for _ in 0..depth {
                let there = found as usize;
                if found == u32::MAX || at - there > FARTHEST {
                    break;
                }
                // Of no use unless it is longer.
                let is_longer = last.0 == 0
                    || at + last.0 < units
                        && U::load(src, (there + last.0) * U::BYTES)
                            == U::load(src, (at + last.0) * U::BYTES);
                if is_longer && eight(src, there * U::BYTES) == unit {
                    let len = least
                        + common(
                            src,
                            (there + least) * U::BYTES,
                            (at + least) * U::BYTES,
                            (units - at - least) * U::BYTES,
                        ) / U::BYTES;
                    if len > last.0 {
                        last = (len, at - there);
                    }
                    if len >= ENOUGH {
                        break;
                    }
                }
                found = before[there];
            }
        }
        longest[at] = (last.0 as u32, last.1 as u32);
    }
    // From each unit on: bytes to the end, in place of the length what is taken.
    let mut costs = std::mem::take(before);
    costs.resize(units + 1, 0);
    costs[units] = 0;
    for at in (0..units).rev() {
        let literal = costs[at + 1].saturating_add(U::BYTES as u32);
        let len = longest[at].0 as usize;
        costs[at] = literal;
        if len > 0 {
            let cost = costs[at + len].saturating_add((len.div_ceil(MOST) * TRIPLE) as u32);
            match cost < literal {
                true => costs[at] = cost,
                false => longest[at].0 = 0,
            }
        }
    }
    *before = costs;
    let (mut anchor, mut at) = (0, 0);
    while at < units {
        let (len, distance) = (longest[at].0 as usize, longest[at].1 as usize);
        if len == 0 {
            at += 1;
            continue;
        }
        writer.put(anchor, at - anchor, len, distance)?;
        at += len;
        anchor = at;
    }
    if anchor < units {
        writer.put(anchor, units - anchor, 0, 0)?;
    }
    Some(())
}
