//! Encodes streams.

use std::marker::PhantomData;

use super::{Effort, FARTHEST, MOST, TRIPLE, Triple, Unit};
use crate::pages::{Pieces, Sink};
use crate::wire::load_u64;

/// The multiplier of Fibonacci hashing: 2^64 by the golden ratio.
const FIBONACCI: u64 = 0x9E37_79B1_85EB_CA87;
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
struct Writer<'s, 'd, U: Unit, S: Pieces, I> {
    src: &'s S,
    /// The piece that literals were copied from last, and where it begins.
    piece: (&'s [u8], usize),
    sink: Sink<'d, I>,
    /// Room of a control word whose second triple is yet to come, in more than one piece where it lies across a border; and its first.
    open: &'d mut [u8],
    across: Vec<&'d mut [u8]>,
    first: Option<Triple>,
    unit: PhantomData<U>,
}

impl<'s, 'd, U: Unit, S: Pieces, I: Iterator<Item = &'d mut [u8]>> Writer<'s, 'd, U, S, I> {
    fn new(src: &'s S, sink: Sink<'d, I>) -> Self {
        let piece = src.whole(0);
        let across = Vec::new();
        Writer { src, piece, sink, open: &mut [], across, first: None, unit: PhantomData }
    }

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
        let control = if self.first.is_some() { 0 } else { U::TRIPLES * TRIPLE };
        let literals = triple.literals * U::BYTES;
        if control + literals > self.sink.left() {
            return None;
        }
        if U::TRIPLES == 1 {
            self.sink.put(&triple.bytes(), TRIPLE);
        } else if let Some(first) = self.first.take() {
            self.close(first, triple);
        } else {
            self.first = Some(triple);
            self.reserve();
        }
        if literals > 0 {
            self.literals(start * U::BYTES, literals);
        }
        Some(())
    }

    /// Leaves room for a control word.
    #[inline(always)]
    fn reserve(&mut self) {
        let len = U::TRIPLES * TRIPLE;
        self.open = self.sink.take(len);
        let mut left = len - self.open.len();
        while left > 0 {
            let room = self.sink.take(left);
            left -= room.len();
            self.across.push(room);
        }
    }

    /// Writes a control word where room was left for it.
    #[inline(always)]
    fn close(&mut self, first: Triple, second: Triple) {
        let word = Triple::pair(first, second);
        match self.open.first_chunk_mut() {
            Some(room) => *room = word,
            None => {
                let rooms =
                    [std::mem::take(&mut self.open)].into_iter().chain(self.across.drain(..));
                let bytes = rooms.flatten();
                bytes.zip(word).for_each(|(room, byte)| *room = byte);
            }
        }
    }

    #[inline(always)]
    fn literals(&mut self, from: usize, mut len: usize) {
        let mut from = from;
        while len > 0 {
            let here = from.wrapping_sub(self.piece.1);
            let Some(bytes) = self.piece.0.get(here..).filter(|bytes| !bytes.is_empty()) else {
                self.piece = self.src.whole(from);
                continue;
            };
            let n = len.min(bytes.len());
            self.sink.put(bytes, n);
            (from, len) = (from + n, len - n);
        }
    }

    /// Writes what is no whole unit; returns how many bytes are left of the room.
    fn finish(mut self, units: usize) -> Option<usize> {
        if let Some(first) = self.first.take() {
            self.close(first, Triple::default());
        }
        let tail = self.src.len() - units * U::BYTES;
        if tail > self.sink.left() {
            return None;
        }
        self.literals(units * U::BYTES, tail);
        Some(self.sink.left())
    }
}

/// Compresses all of `src`; returns how many bytes that took, or `None` where there is no room for them.
pub(super) fn encode<'d, U: Unit>(
    effort: Effort,
    src: &impl Pieces,
    dst: impl Iterator<Item = &'d mut [u8]>,
    room: usize,
    tables: &mut Tables,
) -> Option<usize> {
    let units = src.len() / U::BYTES;
    let mut writer = Writer::<U, _, _>::new(src, Sink::new(dst, room));
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
    Some(room - writer.finish(units)?)
}

/// The eight bytes from a unit on.
#[inline(always)]
fn eight<U: Unit>(src: &impl Pieces, unit: usize) -> u64 {
    load_u64(&src.load::<8>(unit * U::BYTES), 0)
}

/// Units of a match at least: those of eight bytes.
const fn least<U: Unit>() -> usize {
    8 / U::BYTES
}

/// Units that are the same at two places, the second behind the first, up to `end`.
#[inline(always)]
fn common<U: Unit>(src: &impl Pieces, mut first: usize, mut second: usize, end: usize) -> usize {
    let start = second;
    while second < end {
        let one = src.at(first * U::BYTES);
        let other = src.at(second * U::BYTES);
        let len = one.len().min(other.len()).min((end - second) * U::BYTES) / U::BYTES * U::BYTES;
        if len == 0 {
            // A unit lies in two segments.
            if U::load(src, first * U::BYTES) != U::load(src, second * U::BYTES) {
                break;
            }
            (first, second) = (first + 1, second + 1);
            continue;
        }
        let same = same_bytes(&one[..len], &other[..len]) / U::BYTES;
        (first, second) = (first + same, second + same);
        if same * U::BYTES < len {
            break;
        }
    }
    second - start
}

/// How many bytes are the same from the front on.
#[inline(always)]
fn same_bytes(one: &[u8], other: &[u8]) -> usize {
    let (ones, ones_rest) = one.as_chunks::<8>();
    let (others, others_rest) = other.as_chunks::<8>();
    for (i, (a, b)) in ones.iter().zip(others).enumerate() {
        if a != b {
            let differing = load_u64(a, 0) ^ load_u64(b, 0);
            return 8 * i + differing.trailing_zeros() as usize / 8;
        }
    }
    let rest = ones_rest.iter().zip(others_rest).take_while(|(a, b)| a == b).count();
    8 * ones.len() + rest
}

/// Reads eight bytes at a time, mostly from the same piece.
struct Cursor<'s, S: Pieces> {
    src: &'s S,
    piece: &'s [u8],
    start: usize,
}

impl<'s, S: Pieces> Cursor<'s, S> {
    fn new(src: &'s S) -> Cursor<'s, S> {
        let (piece, start) = src.whole(0);
        Cursor { src, piece, start }
    }

    #[inline(always)]
    fn eight<U: Unit>(&mut self, unit: usize) -> u64 {
        let at = (unit * U::BYTES).wrapping_sub(self.start);
        match self.piece.get(at..).and_then(|bytes| bytes.first_chunk::<8>()) {
            Some(bytes) => load_u64(bytes, 0),
            None => self.next::<U>(unit),
        }
    }

    #[cold]
    fn next<U: Unit>(&mut self, unit: usize) -> u64 {
        (self.piece, self.start) = self.src.whole(unit * U::BYTES);
        eight::<U>(self.src, unit)
    }

    /// Where the same eight bytes begin: how many units are the same from there on as from this one, and how many of so many before them; fewer than a match has where there is none.
    #[inline(always)]
    fn matched<U: Unit>(
        &self,
        bits: u64,
        found: usize,
        unit: usize,
        units: usize,
        most: usize,
    ) -> (usize, usize) {
        let (piece, start) = self.src.whole(found * U::BYTES);
        let (there, here) = (found * U::BYTES - start, (unit * U::BYTES).wrapping_sub(self.start));
        let one = &piece[there..];
        if one.first_chunk::<8>().is_some_and(|bytes| load_u64(bytes, 0) != bits) {
            return (0, 0);
        }
        let other = self.piece.get(here..).unwrap_or_default();
        let all = (units - unit) * U::BYTES;
        let len = one.len().min(other.len()).min(all) / U::BYTES * U::BYTES;
        let mut same = same_bytes(&one[..len], &other[..len]) / U::BYTES;
        if same * U::BYTES == len && len < all {
            same += common::<U>(self.src, found + same, unit + same, units);
        }
        if same < least::<U>() {
            return (0, 0);
        }
        let mut before = 0;
        while before < most {
            let back = (before + 1) * U::BYTES;
            let pair = (there.checked_sub(back), here.checked_sub(back));
            let is_same = match pair {
                (Some(there), Some(here)) if here < self.piece.len() => {
                    piece.get(there..there + U::BYTES) == self.piece.get(here..here + U::BYTES)
                }
                _ => {
                    let i = before + 1;
                    U::load(self.src, (found - i) * U::BYTES)
                        == U::load(self.src, (unit - i) * U::BYTES)
                }
            };
            if !is_same {
                break;
            }
            before += 1;
        }
        (before, same)
    }
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
fn first_found<'d, U: Unit, S: Pieces, I: Iterator<Item = &'d mut [u8]>>(
    writer: &mut Writer<'_, 'd, U, S, I>,
    units: usize,
    speed: u32,
    places: &mut impl Places,
    is_fast: bool,
) -> Option<()> {
    let src = writer.src;
    let mut cursor = Cursor::new(src);
    // More would go past all that there may be.
    let speed = speed.clamp(1, 1 << 16);
    let least = least::<U>();
    // The last place where a match may begin is before this one.
    let end = (units + 1).saturating_sub(least);
    let (mut anchor, mut at) = (0, 1);
    if is_fast && end > 0 {
        places.swap(cursor.eight::<U>(0), 0);
    }
    'all: while at < end {
        // Looks for a match; ever farther apart, where there was none for long.
        let mut slow = if speed < 4 { 32 >> speed } else { 4 };
        let mut counter = slow + (speed << 6);
        let (found, before, len) = loop {
            let bits = cursor.eight::<U>(at);
            if let Some(found) = places.swap(bits, at) {
                let (before, len) =
                    cursor.matched::<U>(bits, found, at, units, found.min(at - anchor));
                if len >= least {
                    break (found, before, len);
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
        writer.put(anchor, at - before - anchor, before + len, at - found)?;
        at += len;
        anchor = at;
        // What follows a match often is one.
        while at < end {
            if is_fast {
                places.swap(cursor.eight::<U>(at - 1), at - 1);
            }
            let bits = cursor.eight::<U>(at);
            let found = places.swap(bits, at);
            let len = found.map_or(0, |found| cursor.matched::<U>(bits, found, at, units, 0).1);
            let Some(found) = found.filter(|_| len >= least) else {
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
fn best<'d, U: Unit, S: Pieces, I: Iterator<Item = &'d mut [u8]>>(
    writer: &mut Writer<'_, 'd, U, S, I>,
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
        let unit = eight::<U>(src, at);
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
                if is_longer && eight::<U>(src, there) == unit {
                    let len = least + common::<U>(src, there + least, at + least, units);
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
