//! High compression: matches that go far, and the cheapest way through them.
//!
//! A match takes three bytes however far away it is and, up to 18 bytes, however long; and what is left of one that begins later or ends earlier is one, too. So a match is needless that begins where
//! another one has begun and does not go on for longer. What is found is kept as spans, each of which begins and ends behind the one before. All that begin within a match, up to four bytes before what
//! is behind it, and go on for longer have the same last four bytes: so one look, three bytes before its end, finds them, and few places are looked at. The cheapest way to a place is by the earliest span
//! that covers it, or by literals from the last that does not; so it is found for each span, and not for each byte.

use super::encode::{FARTHEST, Writer, extra};
use super::{BEFORE_END, LAST_LITERALS, LEAST, LONG};
use crate::codec::matches::{Cursor, FIBONACCI, common_back, eight};
use crate::pages::{Pieces, Room};

/// How much a search looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Places with the same four bytes that are compared.
    pub depth: u32,
    /// From so many bytes before the end of a match on, three at least, all places are looked at; with 0 only the one three bytes before that end.
    pub ahead: usize,
    /// Places with the same bytes are known of all [`LENGTHS`], and not of four bytes only: where a match has to be longer than what was found, it is looked for among those that are.
    pub is_deep: bool,
}

/// A match of so many bytes is long enough.
const ENOUGH: usize = 1024;
/// So far a match is continued to its front.
const BACK: usize = 255;
/// Bytes of a match whose length takes no more than its half of a token.
const SHORT: u32 = (LEAST + LONG - 1) as u32;
/// A match is not begun later for that if so many more bytes of it would be left out.
const LATEST: u32 = 64;
/// The way so far is written when there are so many spans, or when it costs so much.
const MOST: (usize, u32) = (1 << 12, 1 << 30);

/// What costs are counted in: of ways that take as many bytes the one of fewer matches is better to read.
const BYTE: u32 = 256;
const MATCH: u32 = 3 * BYTE + 1;

/// What literals cost; of more than that as many, since no way is better than another for them.
#[inline(always)]
fn literals(len: u32) -> u32 {
    let len = len.min(1 << 16);
    BYTE * if len < LONG as u32 { len } else { len + extra(len as usize) as u32 }
}

/// The last step of the cheapest way to a place.
#[derive(Clone, Copy)]
enum Step {
    /// Literals from the end of the last of so many spans, or from where all begins.
    Behind(u32),
    /// A span, by its number, up to the place.
    By(u32),
    /// The last [`SHORT`] bytes of it.
    Late(u32),
    /// Literals from its start.
    Within(u32),
}

/// The cheapest way to a place: what it costs, and its last step.
type Way = (u32, Step);

/// Bytes that are the same as those `distance` before.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
    distance: u32,
    to_start: Way,
    to_end: Way,
}

impl Span {
    /// What it costs to come by it from its start to a place within.
    #[inline(always)]
    fn cost(&self, to: u32) -> u32 {
        let len = to - self.start;
        let more = if len <= SHORT { 0 } else { extra(len as usize - LEAST) as u32 };
        self.to_start.0 + MATCH + BYTE * more.min(1 << 16)
    }
}

/// Spans that none of the others makes needless: each starts and ends behind the one before.
#[derive(Default)]
struct Spans {
    spans: Vec<Span>,
    /// Where the first way begins.
    base: u32,
    /// Where a match may begin is before this.
    last: u32,
    way: Vec<(u32, u32, u32)>,
}

impl Spans {
    /// The cheapest way to a place behind the starts of the first `count`; the last match of it may begin late only where that is asked for, as else one would lead to another through all
    /// that lie across each other.
    fn reach<const LATE: bool>(&self, count: usize, place: u32) -> Way {
        let mut best = (u32::MAX, Step::Behind(0));
        let mut is_late = !LATE;
        for (i, span) in self.spans[..count].iter().enumerate().rev() {
            let number = i as u32;
            if span.end <= place {
                let cost = span.to_end.0 + literals(place - span.end);
                return if cost < best.0 { (cost, Step::Behind(number + 1)) } else { best };
            }
            let len = place - span.start;
            let way = match len < LEAST as u32 {
                true => (span.to_start.0 + BYTE * len, Step::Within(number)),
                false => (span.cost(place), Step::By(number)),
            };
            if way.0 <= best.0 {
                best = way;
            }
            if !is_late && len > SHORT {
                is_late = true;
                best = self.late(number, place, best);
            }
        }
        let cost = literals(place - self.base);
        if cost < best.0 { (cost, Step::Behind(0)) } else { best }
    }

    /// The better of a way and of one by a span to a place within, begun as late as costs nothing for its length.
    #[inline(always)]
    fn late(&self, number: u32, place: u32, best: Way) -> Way {
        let more = place - SHORT - self.spans[number as usize].start;
        if more >= LATEST {
            return best;
        }
        let cost = self.reach::<false>(number as usize + 1, place - SHORT).0 + MATCH;
        if cost < best.0 { (cost, Step::Late(number)) } else { best }
    }

    /// Adds one that ends behind all others.
    fn push(&mut self, start: u32, end: u32, distance: u32) {
        let start = start.max(self.base);
        if end < start + LEAST as u32 || start >= self.last {
            return;
        }
        while self.spans.last().is_some_and(|last| last.start >= start) {
            self.spans.pop();
        }
        let count = self.spans.len();
        let number = count as u32;
        let (before, cost) = match self.spans.last() {
            Some(last) => (last.end, last.to_end.0),
            None => (self.base, 0),
        };
        let to_start = match start.checked_sub(before) {
            Some(gap) => (cost + literals(gap), Step::Behind(number)),
            None => self.reach::<true>(count, start),
        };
        let without = (cost + literals(end - before), Step::Behind(number));
        self.spans.push(Span { start, end, distance, to_start, to_end: without });
        let last = &mut self.spans[count];
        let by = (last.cost(end), Step::By(number));
        if by.0 <= without.0 {
            last.to_end = by;
        }
        if end - start > SHORT {
            self.spans[count].to_end = self.late(number, end, self.spans[count].to_end);
        }
    }

    /// True when there are so many, or they are so far apart, that the way so far has to be written.
    fn is_full(&self) -> bool {
        self.spans.len() >= MOST.0 || self.spans.last().is_some_and(|last| last.to_end.0 >= MOST.1)
    }

    /// Writes the cheapest way to the end of the last; returns where literals begin behind that.
    fn write<S: Pieces, D: Room>(&mut self, writer: &mut Writer<'_, S, D>) -> Option<usize> {
        let (mut place, mut step) =
            self.spans.last().map_or((0, Step::Behind(0)), |last| (last.end, last.to_end.1));
        loop {
            (place, step) = match step {
                Step::Behind(0) => break,
                Step::Behind(count) => {
                    let span = self.spans[count as usize - 1];
                    (span.end, span.to_end.1)
                }
                Step::By(number) => {
                    let span = self.spans[number as usize];
                    self.way.push((span.start, place, span.distance));
                    (span.start, span.to_start.1)
                }
                Step::Late(number) => {
                    let start = place - SHORT;
                    self.way.push((start, place, self.spans[number as usize].distance));
                    (start, self.reach::<false>(number as usize + 1, start).1)
                }
                Step::Within(number) => {
                    let span = self.spans[number as usize];
                    (span.start, span.to_start.1)
                }
            };
        }
        self.spans.clear();
        let mut base = self.base as usize;
        while let Some((start, end, distance)) = self.way.pop() {
            let (start, end) = (start as usize, end as usize);
            writer.put(base, start - base, end - start, distance as usize)?;
            base = end;
        }
        self.base = base as u32;
        Some(base)
    }
}

/// What a search works with.
#[derive(Default)]
pub(in crate::codec) struct Tables {
    /// As many as were needed, a [`Chain`] each.
    chains: Vec<u32>,
    /// More than all places that were added.
    used: u32,
    spans: Spans,
}

/// Of how many bytes there are chains, of which the first has all places.
const LENGTHS: [usize; 4] = [LEAST, 6, 8, 16];

/// Bits of a hash.
const BITS: u32 = 15;

/// Where as many bytes with the same hash were met: by the hash, where last, and more: of each content more than of the one before, so that what is left of that is too far away. Then of each of the last
/// places, where before it.
type Chain = [u32; CHAIN];

const CHAIN: usize = PLACES + (1 << 16);

/// Of as many hashes.
const PLACES: usize = 1 << BITS;

struct Finder<'a, const N: usize> {
    chains: &'a mut [Chain; N],
    /// What is added to places.
    first: u32,
}

/// Where a chain says what is before a place.
#[inline(always)]
fn before(at: usize) -> usize {
    PLACES + (at & FARTHEST)
}

impl<const N: usize> Finder<'_, N> {
    /// Takes note of a place.
    #[inline(always)]
    fn insert(&mut self, src: &impl Pieces, at: usize, bits: u64) {
        let here = at as u32 + self.first;
        for (chain, len) in self.chains.iter_mut().zip(LENGTHS) {
            // What lies that near to the end is not looked for.
            let bits = match len {
                ..=8 => bits << (64 - 8 * len),
                _ if at + len > src.len() => break,
                _ => bits.wrapping_mul(FIBONACCI).rotate_left(32) ^ eight(src, at + len - 8),
            };
            let hash = bits.wrapping_mul(FIBONACCI) >> (64 - BITS);
            chain[before(at)] = std::mem::replace(&mut chain[hash as usize], here);
        }
    }

    /// The chain of those that have more than so many bytes, or the most that there is.
    #[inline(always)]
    fn chain(past: usize) -> usize {
        LENGTHS[1..N].iter().map(|&len| usize::from(past >= len - 1)).sum()
    }

    /// The longest match of a place, which takes note of it, of those that have more than so many bytes: how long, and how far away.
    #[inline(always)]
    fn longest<S: Pieces>(
        &mut self,
        cursor: &Cursor<'_, S>,
        (at, bits): (usize, u64),
        past: usize,
        end: usize,
        depth: u32,
    ) -> Option<(usize, usize)> {
        let src = cursor.src();
        self.insert(src, at, bits);
        let here = at as u32 + self.first;
        // What it must have, the last four bytes of which are compared first.
        let mut least = past.max(LEAST - 1);
        if at + least >= end {
            return None;
        }
        let mut last = src.load::<4>(at + least - 3);
        let mut chain = Self::chain(least);
        let mut found = self.chains[chain][before(at)];
        let mut best = None;
        for _ in 0..depth {
            let distance = (here - found) as usize;
            if distance > FARTHEST {
                break;
            }
            let there = at - distance;
            found = self.chains[chain][before(there)];
            if src.load::<4>(there + least - 3) == last {
                let len = cursor.common(there, at, end);
                if len > least {
                    best = Some((len, distance));
                    if len >= ENOUGH || at + len >= end {
                        break;
                    }
                    least = len;
                    last = src.load::<4>(at + least - 3);
                    if Self::chain(least) > chain {
                        // Those in it that are nearer would have been found to be longer.
                        chain = Self::chain(least);
                        found = self.chains[chain][before(at)];
                    }
                }
            }
        }
        best
    }
}

/// Compresses all of `src`; returns how many bytes that took, or `None` where there is no room for them.
pub(super) fn encode(
    effort: Effort,
    src: &impl Pieces,
    dst: impl Room,
    tables: &mut Tables,
) -> Option<usize> {
    let mut writer = Writer::new(src, dst);
    let anchor = match effort.is_deep {
        true => through::<_, _, { LENGTHS.len() }>(&mut writer, effort, tables)?,
        false => through::<_, _, 1>(&mut writer, effort, tables)?,
    };
    writer.finish(anchor)
}

/// Writes all matches; returns where the last literals begin.
#[inline(always)]
fn through<S: Pieces, D: Room, const N: usize>(
    writer: &mut Writer<'_, S, D>,
    effort: Effort,
    tables: &mut Tables,
) -> Option<usize> {
    let src = writer.src();
    // Where a match may begin is before this, and where it may end.
    let (Some(last), Some(end)) =
        ((src.len() + 1).checked_sub(BEFORE_END), src.len().checked_sub(LAST_LITERALS))
    else {
        return Some(0);
    };
    let Tables { chains, used, spans } = tables;
    let gap = FARTHEST as u32 + 1;
    let room = src.len().try_into().ok().and_then(|len: u32| len.checked_add(gap));
    let Some(len) = room else {
        // No block is as long; its places would not fit.
        return Some(0);
    };
    let first = match used.checked_add(len) {
        Some(_) => *used + gap,
        None => {
            chains.clear();
            gap
        }
    };
    *used = first + (len - gap);
    chains.resize(chains.len().max(N * CHAIN), 0);
    let chains = chains.as_chunks_mut().0.first_chunk_mut::<N>()?;
    let mut finder = Finder { chains, first };
    spans.spans.clear();
    spans.way.clear();
    (spans.base, spans.last) = (0, last as u32);
    let mut cursor = Cursor::new(src);
    // How far what was found goes, what was taken note of, and what is looked at.
    let (mut reach, mut noted, mut at) = (0, 0, 0);
    while at < last {
        for at in noted..at {
            finder.insert(src, at, cursor.eight(at));
        }
        noted = at + 1;
        let here = (at, cursor.eight(at));
        let past = usize::saturating_sub(reach, at);
        let found = finder.longest(&cursor, here, past, end, effort.depth);
        at += 1;
        if let Some((len, distance)) = found {
            let back = common_back(src, at - 1 - distance, at - 1, BACK);
            reach = at - 1 + len;
            spans.push((at - 1 - back) as u32, reach as u32, distance as u32);
            at = at.max(reach.saturating_sub(effort.ahead.max(LEAST - 1)));
            if spans.is_full() {
                spans.write(writer)?;
            }
        } else if effort.ahead == 0 {
            at = at.max(reach);
        }
    }
    spans.write(writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::One;

    fn block(data: &[u8], is_deep: bool, tables: &mut Tables) -> Vec<u8> {
        let mut room = vec![0; crate::codec::lz4::bound(data.len())];
        let effort = Effort { depth: 8, ahead: 0, is_deep };
        let len = encode(effort, &data, One::from(room.as_mut_slice()), tables).unwrap();
        room.truncate(len);
        room
    }

    #[test]
    fn places_may_wrap() {
        let data: Vec<u8> = (0..3000u32).flat_map(|i| (i * i % 611).to_le_bytes()).collect();
        let fresh = [false, true].map(|is_deep| block(&data, is_deep, &mut Tables::default()));
        assert!(fresh.iter().all(|block| block.len() < data.len() / 2));
        let mut tables = Tables { used: u32::MAX - 100_000, ..Tables::default() };
        for i in 0..10 {
            assert!(block(&data, i % 3 > 0, &mut tables) == fresh[usize::from(i % 3 > 0)]);
        }
        assert!(tables.used < u32::MAX / 2, "it did not wrap");
    }
}
