//! Goes through the symbols and bits of a packet.
#![allow(unsafe_code)]

use super::{
    AT_ONCE, About, Base, Chosen, Decoded, Decoder, ESCAPE, Items, Kind, MISSING, OTHER, Room,
    Symbol, Told,
};
use crate::events::packet::{self, Places};
use crate::events::schema::Count;
use crate::model::{Bits, FIRST, MARGIN, Words};
use crate::processor::Work;
use crate::wire::load_u32;

/// A packet that lies in the room for it, and its events.
pub(super) struct Packet<'a> {
    pub decoder: &'a Decoder,
    pub len: usize,
    pub events: Items,
    pub room: &'a mut Room,
}

impl Work for Packet<'_> {
    /// `None` where the packet is damaged.
    type Done = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        let Packet { decoder, len, events, room } = self;
        let Room { padded, told, places, given, modulo, based, .. } = room;
        if decoder.has_number && len < 4 {
            return None;
        }
        let bytes = padded.bytes();
        let mut run = Run {
            words: padded.words(),
            number: if decoder.has_number { load_u32(bytes, MARGIN) } else { FIRST },
            next: MARGIN + if decoder.has_number { 4 } else { 0 },
            bits: Bits::new(MARGIN + len),
        };
        let (mut left, mut start) = (decoder.most, 0);
        for step in &decoder.steps {
            let above = *told.items.get(step.above)?;
            let mut here = match step.count {
                Count::Events => events,
                Count::Fixed(len) => above.each(|items| items.saturating_mul(len as usize)),
                Count::Column(counts) => {
                    let counts = told.all(above, counts)?;
                    let sum = |counts: &[u64]| {
                        counts.iter().fold(0usize, |sum, &count| sum.saturating_add(count as usize))
                    };
                    let from = sum(counts.get(..above.from)?);
                    let to = from.saturating_add(sum(counts.get(above.from..above.to)?));
                    let all = to.saturating_add(sum(counts.get(above.to..)?));
                    Items { all, from, to, start }
                }
            };
            here.start = start;
            *told.items.get_mut(step.level)? = here;
            left = left.checked_sub((here.all as u64).checked_mul(step.values)?)?;
            if step.is_placed {
                match step.count {
                    Count::Events => places.set(std::iter::once(here.all)),
                    Count::Fixed(len) => places.set(std::iter::repeat_n(len as usize, above.all)),
                    Count::Column(counts) => {
                        let counts = told.all(above, counts)?.iter();
                        places.set(counts.map(|&count| count as usize));
                    }
                }
            }
            let columns = decoder.columns.get(step.columns.clone())?;
            let end = start + columns.len() * here.all;
            if told.values.len() < end {
                told.values.resize(end, 0);
                told.classes.resize(end, OTHER);
            }
            let (known, classes) = told.classes.split_at_mut_checked(start)?;
            let level = Level {
                decoder,
                values: told.values.get_mut(start..end)?,
                classes: classes.get_mut(..end - start)?,
                items: here.all,
                above: known.get(above.start..)?,
                above_items: above.all,
                places,
                given,
                modulo,
                based,
            };
            run.level(columns, level)?;
            start = end;
        }
        // All has been read, and no more; what lies between is for texts.
        let end = run.bits.pos();
        let is_over = end <= 8 * (MARGIN + len) && run.number == FIRST && run.next <= end / 8;
        told.stored = run.next..end / 8;
        (is_over && (told.stored.is_empty() || !decoder.words.is_empty())).then_some(())
    }
}

impl Told {
    /// All values of a level's column that so many are before.
    #[inline(always)]
    pub(super) fn all(&self, items: Items, before: usize) -> Option<&[u64]> {
        let start = items.start + before * items.all;
        self.values.get(start..start + items.all)
    }
}

/// A level whose columns are decoded.
struct Level<'a> {
    decoder: &'a Decoder,
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
}

/// Decoding of a packet on its way.
struct Run<'a> {
    words: Words<'a>,
    number: u32,
    /// Where the next word is.
    next: usize,
    bits: Bits<true>,
}

impl Run<'_> {
    #[inline(always)]
    fn level(&mut self, columns: &[Decoded], level: Level<'_>) -> Option<()> {
        let Level {
            decoder,
            values,
            classes,
            items,
            above,
            above_items,
            places,
            given,
            modulo,
            based,
        } = level;
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
            let column = Column { decoder, about, before, places: own };
            match about.chosen {
                Chosen::Constant(value, class) => {
                    out.fill(value);
                    classes.fill(class);
                }
                Chosen::Nothing => self.either(&column, out, classes, |_, _, _| 0)?,
                Chosen::Class(back) => {
                    let other = known.get(at.checked_sub(back * items)?..)?.get(..items)?;
                    self.either(&column, out, classes, |row, _, _| other[row].into())?;
                }
                Chosen::Above(before) => {
                    let other = above.get(before * above_items..)?.get(..above_items)?;
                    let rows = places.above.get(..items)?;
                    given.clear();
                    given.extend(rows.iter().map(|&row| other.get(row as usize).unwrap_or(&OTHER)));
                    let given = &given[..items];
                    self.either(&column, out, classes, |row, _, _| given[row].into())?;
                }
                Chosen::Index => {
                    let index = places.index.get(..items)?;
                    self.either(&column, out, classes, |row, _, _| index[row].into())?;
                }
                Chosen::Place(period) => {
                    places.modulo(period, modulo);
                    let modulo = modulo.get(..items)?;
                    self.either(&column, out, classes, |row, _, _| modulo[row].into())?;
                }
                Chosen::Own => self.either(&column, out, classes, |_, class, _| class.into())?,
                Chosen::Run => self.either(&column, out, classes, |_, _, run| run.into())?,
            }
            at += items;
        }
        Some(())
    }

    /// Columns all of whose symbols are plain have a loop of their own, with nothing else in it.
    #[inline(always)]
    fn either(
        &mut self,
        column: &Column<'_>,
        out: &mut [u64],
        classes: &mut [u8],
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        match column.about.is_plain {
            true => self.values::<true>(column, out, classes, context),
            false => self.values::<false>(column, out, classes, context),
        }
    }

    #[inline(always)]
    fn values<const PLAIN: bool>(
        &mut self,
        column: &Column<'_>,
        out: &mut [u64],
        classes: &mut [u8],
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        let Column { decoder, about, .. } = column;
        let words = self.words;
        let (mut number, mut next, mut bits) = (self.number, self.next, self.bits);
        let (mut class, mut run) = (OTHER, 0);
        // With a base, the integer before.
        let (mut start, mut before) = (0, 0);
        if !PLAIN && about.base.has_first() && !out.is_empty() {
            let (low, count) = about.first;
            before = low.wrapping_add(take(&mut bits, words, count));
            out[0] = about.maps[0].from(about.number, before) & about.all;
            classes[0] = OTHER;
            start = 1;
        }
        let (tables, symbols) =
            (&decoder.tables[about.tables..], &decoder.symbols[about.symbols..]);
        let slots = &decoder.slots[..];
        let classes = &mut classes[..out.len()];
        for row in start..out.len() {
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
                        value = column.copy(told.symbol(), row, out)?;
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
                            before = about.places[usize::from(column.places[row])];
                        }
                        (value, before) = about.mapped(symbol, place, before);
                    }
                }
            }
            out[row] = value;
        }
        (self.number, self.next, self.bits) = (number, next, bits);
        Some(())
    }
}

/// A column, and the values of those before it on its level.
struct Column<'a> {
    decoder: &'a Decoder,
    about: &'a Decoded,
    before: &'a [u64],
    /// With a base of places that of each item.
    places: &'a [u16],
}

impl Column<'_> {
    /// The value that a copy is of.
    #[inline(always)]
    fn copy(&self, symbol: usize, row: usize, out: &[u64]) -> Option<u64> {
        let &(back, shift) = self.about.copies.get(symbol)?;
        let from = row.wrapping_add_signed(shift);
        // Of its own values those that are there, of another's all.
        match back {
            0 => out[..row].get(from).copied(),
            _ if from < out.len() => {
                let start = self.before.len().checked_sub(back * out.len())?;
                self.before.get(start + from).copied()
            }
            _ => None,
        }
    }
}

impl Decoded {
    /// The value of a place in a bin, and its integer, behind another of this integer.
    #[inline(always)]
    fn mapped(&self, symbol: &Symbol, place: u64, before: u64) -> (u64, u64) {
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
fn take(bits: &mut Bits<true>, words: Words<'_>, count: u32) -> u64 {
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
