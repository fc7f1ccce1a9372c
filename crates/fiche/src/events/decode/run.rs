//! Goes through the symbols and bits of a packet.
#![allow(unsafe_code)]

use std::ops::Range;

use super::several::Several;
use super::wide::{By, Wide};
use super::{
    AT_ONCE, About, Base, Chosen, Decoded, Decoder, ESCAPE, Items, Kind, MISSING, MOST_AT_ONCE,
    OTHER, Room, Symbol, Told,
};
use crate::events::packet::{self, Places};
use crate::events::schema::Count;
use crate::model::{Bits, FIRST, Words};
use crate::processor::Work;
use crate::wire::load_u32;

/// Packets that lie in the room for them.
pub(super) struct Packets<'a> {
    pub decoder: &'a Decoder,
    pub room: &'a mut Room,
}

/// A packet.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    /// Where its bits began.
    end: usize,
    /// Values that it may still have.
    left: u64,
    events: Items,
    /// Its items among those of all packets, on the level that is decoded.
    pub first: usize,
    pub last: usize,
}

/// How far a packet was gone through.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub number: u32,
    /// Where the next word is.
    pub next: usize,
    pub bits: Bits<true>,
}

/// How far one packet was gone through, or several.
pub(super) trait Ats {
    const SEVERAL: bool;

    fn get(&self, packet: usize) -> At;
    fn set(&mut self, packet: usize, at: At);
    fn several(&mut self) -> Option<&mut Several>;
}

/// Of one there is nothing to choose from, and nothing in memory.
impl Ats for At {
    const SEVERAL: bool = false;

    #[inline(always)]
    fn get(&self, _: usize) -> At {
        *self
    }

    #[inline(always)]
    fn set(&mut self, _: usize, at: At) {
        *self = at;
    }

    #[inline(always)]
    fn several(&mut self) -> Option<&mut Several> {
        None
    }
}

impl Lane {
    /// Of the bytes that are there; `None` where these are too few.
    #[inline(always)]
    pub fn new(
        decoder: &Decoder,
        bytes: &[u8],
        at: Range<usize>,
        events: Items,
    ) -> Option<(Lane, At)> {
        let (number, next) = match decoder.has_number {
            true if at.len() < 4 => return None,
            true => (load_u32(bytes, at.start), at.start + 4),
            false => (FIRST, at.start),
        };
        let bits = Bits::new(at.end);
        let lane = Lane { end: bits.pos(), left: decoder.most, events, first: 0, last: 0 };
        Some((lane, At { number, next, bits }))
    }

    /// All has been read, and no more; what lies between words and bits, which is returned, is for texts.
    #[inline(always)]
    fn done(&self, at: At) -> Option<Range<usize>> {
        let end = at.bits.pos();
        let is_over = end <= self.end && at.number == FIRST && at.next <= end / 8;
        is_over.then_some(at.next..end / 8)
    }
}

impl Work for Packets<'_> {
    /// `None` where a packet is damaged.
    type Done = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        let Packets { decoder, room } = self;
        if let [lane] = room.lanes[..] {
            let mut at = room.several.get(0);
            return Packets { decoder, room }.all(&mut [lane], &mut at);
        }
        // What is gone through side by side counts places in fewer bits.
        if room.padded.bytes().len() > MOST_BYTES {
            return None;
        }
        let mut lanes = std::mem::take(&mut room.lanes);
        let mut several = std::mem::take(&mut room.several);
        let done = Packets { decoder, room: &mut *room }.all(&mut lanes, &mut several);
        (room.lanes, room.several) = (lanes, several);
        done
    }
}

/// Bytes of several packets at most.
const MOST_BYTES: usize = 1 << 24;

impl Packets<'_> {
    #[inline(always)]
    fn all<A: Ats>(self, lanes: &mut [Lane], ats: &mut A) -> Option<()> {
        let Packets { decoder, room } = self;
        let Room { padded, told, places, given, modulo, based, wide, .. } = room;
        let count = if A::SEVERAL { lanes.len() } else { 1 };
        let (words, mut start) = (padded.words(), 0);
        told.lanes = count;
        for step in &decoder.steps {
            let (here, above) = (count * step.level, count * step.above);
            let mut total = 0usize;
            for (i, lane) in lanes.iter_mut().enumerate() {
                let above = *told.items.get(above + i)?;
                let items = match step.count {
                    Count::Events => lane.events,
                    Count::Fixed(len) => above.each(|items| items.saturating_mul(len as usize)),
                    Count::Column(counts) => {
                        let counts = told.all(above, counts)?;
                        let sum = |counts: &[u64]| {
                            counts
                                .iter()
                                .fold(0usize, |sum, &count| sum.saturating_add(count as usize))
                        };
                        let from = sum(counts.get(..above.from)?);
                        let to = from.saturating_add(sum(counts.get(above.from..above.to)?));
                        let all = to.saturating_add(sum(counts.get(above.to..)?));
                        Items { all, from, to, start: 0, total: 0 }
                    }
                };
                lane.left = lane.left.checked_sub((items.all as u64).checked_mul(step.values)?)?;
                lane.first = total;
                total = total.checked_add(items.all)?;
                lane.last = total;
                *told.items.get_mut(here + i)? = items;
            }
            let columns = decoder.columns.get(step.columns.clone())?;
            let end = columns.len().checked_mul(total)?.checked_add(start)?;
            if let Some(several) = ats.several() {
                // Of items that no column here has either, so that there is no end to what packets may say.
                if end.max(total) > MOST_AT_ONCE {
                    return None;
                }
                several.level(lanes);
            }
            for (lane, items) in lanes.iter().zip(told.items.get_mut(here..)?) {
                (items.start, items.total) = (start + lane.first, total);
            }
            let above = *told.items.get(above)?;
            if step.is_placed {
                match step.count {
                    Count::Events => places.set(lanes.iter().map(|lane| lane.last - lane.first)),
                    Count::Fixed(len) => places.set(std::iter::repeat_n(len as usize, above.total)),
                    Count::Column(counts) => {
                        let counts = told.of_all(above, counts)?.iter();
                        places.set(counts.map(|&count| count as usize));
                    }
                }
            }
            if told.values.len() < end {
                told.values.resize(end, 0);
                told.classes.resize(end, OTHER);
            }
            let (known, classes) = told.classes.split_at_mut_checked(start)?;
            let level = Level {
                decoder,
                words,
                values: told.values.get_mut(start..end)?,
                classes: classes.get_mut(..end - start)?,
                items: total,
                above: known.get(above.start..)?,
                above_items: above.total,
                places,
                given,
                modulo,
                based,
                wide,
            };
            level.decode(columns, lanes, ats)?;
            start = end;
        }
        told.stored.clear();
        for (packet, lane) in lanes.iter().enumerate() {
            let stored = lane.done(ats.get(packet))?;
            match decoder.words.is_empty() {
                true if !stored.is_empty() => return None,
                true => {}
                false => told.stored.push(stored),
            }
        }
        Some(())
    }
}

impl Told {
    /// All values that a packet has of a level's column that so many are before.
    #[inline(always)]
    pub(super) fn all(&self, items: Items, before: usize) -> Option<&[u64]> {
        let start = items.start + before * items.total;
        self.values.get(start..start + items.all)
    }

    /// Those of all packets, of which this is the first.
    #[inline(always)]
    fn of_all(&self, first: Items, before: usize) -> Option<&[u64]> {
        let start = first.start + before * first.total;
        self.values.get(start..start + first.total)
    }
}

/// A level whose columns are decoded, of all packets.
struct Level<'a> {
    decoder: &'a Decoder,
    words: Words<'a>,
    /// Column behind column, so many items of each.
    values: &'a mut [u64],
    classes: &'a mut [u8],
    items: usize,
    /// The classes of the columns on the level above, and how many items these have.
    above: &'a [u8],
    above_items: usize,
    places: &'a Places,
    given: &'a mut Vec<u8>,
    modulo: &'a mut Vec<u16>,
    based: &'a mut Vec<u16>,
    wide: &'a mut Wide,
}

impl Level<'_> {
    /// Column by column, and of each packet by packet: what the next packet has waits for nothing that this one has.
    #[inline(always)]
    fn decode<A: Ats>(self, columns: &[Decoded], lanes: &[Lane], ats: &mut A) -> Option<()> {
        let Level {
            decoder,
            words,
            values,
            classes,
            items,
            above,
            above_items,
            places,
            given,
            modulo,
            based,
            wide,
        } = self;
        let mut at = 0;
        for about in columns {
            let (before, out) = values.split_at_mut_checked(at)?;
            let (known, classes) = classes.split_at_mut_checked(at)?;
            let (out, classes) = (out.get_mut(..items)?, classes.get_mut(..items)?);
            let mut own: &[u16] = &[];
            if about.base == Base::Place {
                places.modulo(about.places.len(), based);
                own = based.get(..items)?;
            }
            let column = Column { decoder, words, about, before, places: own };
            let out = Out { values: out, classes };
            let by = match about.chosen {
                Chosen::Constant(value, class) => {
                    out.values.fill(value);
                    out.classes.fill(class);
                    at += items;
                    continue;
                }
                Chosen::Nothing => By::Nothing,
                Chosen::Class(back) => {
                    By::Rows(known.get(at.checked_sub(back * items)?..)?.get(..items)?)
                }
                Chosen::Above(before) => {
                    let other = above.get(before * above_items..)?.get(..above_items)?;
                    let rows = places.above.get(..items)?;
                    given.clear();
                    given.extend(rows.iter().map(|&row| other.get(row as usize).unwrap_or(&OTHER)));
                    By::Rows(&given[..items])
                }
                Chosen::Index => By::Rows(places.index.get(..items)?),
                Chosen::Place(period) => {
                    places.modulo(period, modulo);
                    By::Places(modulo.get(..items)?)
                }
                Chosen::Own => By::Own,
                Chosen::Run => By::Run,
            };
            if A::SEVERAL
                && let Some(several) = ats.several()
                && column.is_wide(several, by)
            {
                column.wide(lanes, several, out, by, wide)?;
                at += items;
                continue;
            }
            match by {
                By::Nothing => column.decode(lanes, ats, out, |_, _, _| 0)?,
                By::Rows(of) => column.decode(lanes, ats, out, |row, _, _| of[row].into())?,
                By::Places(of) => column.decode(lanes, ats, out, |row, _, _| of[row].into())?,
                By::Own => column.decode(lanes, ats, out, |_, class, _| class.into())?,
                By::Run => column.decode(lanes, ats, out, |_, _, run| run.into())?,
            }
            at += items;
        }
        Some(())
    }
}

/// Where a column's values go, and their classes.
pub(super) struct Out<'a> {
    pub values: &'a mut [u64],
    pub classes: &'a mut [u8],
}

/// A column, and the values of those before it on its level.
pub(super) struct Column<'a> {
    pub decoder: &'a Decoder,
    pub words: Words<'a>,
    pub about: &'a Decoded,
    pub before: &'a [u64],
    /// With a base of places that of each item.
    places: &'a [u16],
}

impl Column<'_> {
    /// Several packets are worth to be gone through side by side, and nothing forbids it.
    #[inline(always)]
    fn is_wide(&self, several: &Several, by: By<'_>) -> bool {
        self.about.base == Base::None && !several.is_skewed && !matches!(by, By::Run)
    }

    /// Columns all of whose symbols are plain have a loop of their own, with nothing else in it. `context` is what tables are chosen by
    /// of an item's row, the class before it, and how often in a row the one before was copied.
    #[inline(always)]
    fn decode<A: Ats>(
        &self,
        lanes: &[Lane],
        ats: &mut A,
        out: Out<'_>,
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        match self.about.is_plain {
            true => self.values::<true, A>(lanes, ats, out, context),
            false => self.values::<false, A>(lanes, ats, out, context),
        }
    }

    /// Packet by packet.
    #[inline(always)]
    fn values<const PLAIN: bool, A: Ats>(
        &self,
        lanes: &[Lane],
        ats: &mut A,
        out: Out<'_>,
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        let Out { values: out, classes } = out;
        let Column { decoder, about, words, .. } = *self;
        let (tables, symbols) =
            (&decoder.tables[about.tables..], &decoder.symbols[about.symbols..]);
        let slots = &decoder.slots[..];
        let classes = &mut classes[..out.len()];
        for (packet, lane) in lanes.iter().enumerate() {
            let rows = if A::SEVERAL { lane.first..lane.last } else { 0..out.len() };
            if A::SEVERAL && rows.end > out.len() {
                return None;
            }
            let At { mut number, mut next, mut bits } = ats.get(packet);
            let (mut class, mut run) = (OTHER, 0);
            // With a base, the integer before.
            let (mut start, mut before) = (rows.start, 0);
            if !PLAIN && about.base.has_first() && !rows.is_empty() {
                let (low, count) = about.first;
                before = low.wrapping_add(take(&mut bits, words, count));
                out[start] = about.maps[0].from(about.number, before) & about.all;
                classes[start] = OTHER;
                start += 1;
            }
            for row in start..rows.end {
                // SAFETY: a column has tables for all that it may be chosen by.
                let table = *unsafe { tables.get_unchecked(context(row, class, run)) };
                let place = table.slots + (number & u32::from(table.mask));
                // SAFETY: a table has slots for all numbers up to its mask.
                let slot = *unsafe { slots.get_unchecked(place as usize) };
                // A table of one symbol leaves the number as it is. Whether a word is taken nobody foresees: so there is no branch.
                number = slot.next(number, table.bits.into());
                let word = u32::from(words.load(next) as u16);
                let is_low = number < FIRST;
                number = if is_low { number << 16 | word } else { number };
                next += usize::from(is_low) * 2;
                let told = About(slot.about());
                class = told.class();
                classes[row] = class;
                // SAFETY: slots name symbols of their column.
                let symbol = unsafe { symbols.get_unchecked(told.symbol()) };
                let place = bits.word(words) & !(u64::MAX << told.bits());
                bits.skip(told.bits());
                let mut value = symbol.base ^ place << told.shift();
                if !PLAIN {
                    run = if told.is(Kind::Copy) { (run + 1).min(OTHER) } else { 0 };
                    if !told.is_plain() {
                        if told.is(Kind::Copy) {
                            value = self.copy(told.symbol(), row, &rows, out)?;
                        } else if told.is(Kind::Scaled) {
                            let whole = symbol.base.wrapping_add(place) as i64;
                            let map = about.maps.get(usize::from(symbol.map))?;
                            value = map.scaled(about.number, whole);
                        } else {
                            if symbol.map == MISSING {
                                return None;
                            }
                            let place = match symbol.bits {
                                ..=AT_ONCE => place,
                                more => take(&mut bits, words, more.into()),
                            };
                            if about.base == Base::Place {
                                before = about.places[usize::from(self.places[row])];
                            }
                            (value, before) = about.mapped(symbol, place, before);
                        }
                    }
                }
                out[row] = value;
            }
            ats.set(packet, At { number, next, bits });
        }
        Some(())
    }

    /// The value that a copy is of, in a packet of these rows.
    #[inline(always)]
    pub(super) fn copy(
        &self,
        symbol: usize,
        row: usize,
        rows: &Range<usize>,
        out: &[u64],
    ) -> Option<u64> {
        copied(*self.about.copies.get(symbol)?, row, rows, out, self.before)
    }
}

/// The value that lies so many columns back and items ahead of a row, if it is there and of the same packet: of its own column those before, of another's
/// all.
#[inline(always)]
fn copied(
    (back, shift): (usize, isize),
    row: usize,
    rows: &Range<usize>,
    own: &[u64],
    before: &[u64],
) -> Option<u64> {
    let from = row.wrapping_add_signed(shift);
    match back {
        _ if from < rows.start => None,
        0 => own[..row].get(from).copied(),
        _ if from < rows.end => {
            let start = before.len().checked_sub(back * own.len())?;
            before.get(start + from).copied()
        }
        _ => None,
    }
}

impl Decoded {
    /// The value of a place in a bin, and its integer, behind another of this integer.
    #[inline(always)]
    pub(super) fn mapped(&self, symbol: &Symbol, place: u64, before: u64) -> (u64, u64) {
        if symbol.map == ESCAPE {
            return (place, 0);
        }
        let map = self.maps[usize::from(symbol.map)];
        let told = symbol.base.wrapping_add(place);
        let integer = match self.base {
            Base::None => told,
            base => packet::based(base, map, self.number, told, before, true),
        };
        (map.from(self.number, integer) & self.all, integer)
    }
}

/// The next bits, up to 64.
#[inline(always)]
pub(super) fn take(bits: &mut Bits<true>, words: Words<'_>, count: u32) -> u64 {
    if count <= AT_ONCE.into() {
        let word = bits.word(words);
        bits.skip(count);
        return word & !(u64::MAX << count);
    }
    let low = bits.word(words) & u64::from(u32::MAX);
    bits.skip(32);
    let high = bits.word(words) & !(u64::MAX << (count - 32));
    bits.skip(count - 32);
    low | high << 32
}

#[cfg(test)]
mod tests {
    use super::copied;

    #[test]
    fn copies_are_of_the_same_packet() {
        // Two columns of five items before, then its own; the packet has the items 2 to 4 of each.
        let before: Vec<u64> = (100..105).chain(200..205).collect();
        let own = [300, 301, 302, 303, 304];
        let copy = |back, shift, row| copied((back, shift), row, &(2..4), &own, &before);
        assert_eq!(copy(0, -1, 3), Some(302));
        assert_eq!(
            (copy(1, 0, 2), copy(1, 1, 2), copy(2, -1, 3)),
            (Some(202), Some(203), Some(102))
        );
        // Of another packet, before and behind; and what is not there yet.
        assert_eq!((copy(0, -1, 2), copy(1, -1, 2), copy(2, 1, 3)), (None, None, None));
        assert_eq!((copy(0, 0, 2), copy(0, 1, 2)), (None, None));
        // No such column, and beyond all numbers.
        assert_eq!((copy(3, 0, 2), copy(1, isize::MIN, 2), copy(0, -4, 2)), (None, None, None));
    }
}
