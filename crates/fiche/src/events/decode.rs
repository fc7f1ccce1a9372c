//! Decodes packets, column by column.

use super::batch::Batch;
use super::column::map::Map;
use super::column::{Base, Coder, Context, Copied, OTHER};
use super::model::{Model, Plan};
use super::packet::{Places, based};
use super::schema::{Count, Layout, Number};
use crate::error::{Error, Place, Result};
use crate::model::{Bits, FIRST, MARGIN, Padded, Slot, Words};
use crate::wire::{load_u16, load_u32, low_bytes};

/// A table of a decoder.
#[derive(Clone, Copy)]
struct Table {
    /// Where its slots are, and two to how many those are; none where there is no such table.
    slots: u32,
    bits: u32,
    mask: u32,
}

const NONE: u32 = u32::MAX;

/// What a symbol stands for.
#[derive(Clone, Copy)]
struct Symbol {
    /// Of a bin the number of its first integer; where that is not enough, that integer.
    base: u64,
    /// As many ones as it has bits.
    mask: u64,
    /// Of the place in the bin, and how far left they stand in the number.
    bits: u8,
    shift: u8,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The bits turn over some of the base's.
    Plain,
    /// The same of more bits than come at once.
    Wide,
    /// The integer is found by a map, or by one and the value before.
    Bin(u8),
    Copy(u8),
}

impl Symbol {
    /// What a symbol of a column stands for.
    fn new(coder: &Coder, symbol: usize) -> Symbol {
        let number = coder.number;
        let plain = |base, bits: u8, shift| {
            let mask = !u64::MAX.checked_shl(bits.into()).unwrap_or(0);
            let kind = if bits > AT_ONCE { Kind::Wide } else { Kind::Plain };
            Symbol { base, mask, bits, shift, kind }
        };
        let Some(bin) = symbol.checked_sub(coder.copies.len()) else {
            return Symbol { kind: Kind::Copy(symbol as u8), ..plain(0, 0, 0) };
        };
        // An escape is followed by all bits.
        let Some(bin) = coder.bins.get(bin) else { return plain(0, number.bits() as u8, 0) };
        let map = coder.maps[usize::from(bin.map)];
        let base = map.from(number, bin.lower) & u64::MAX >> (64 - number.bits());
        match map {
            // Numbers of a bin have the same sign, so that each bit of the place turns over one of theirs.
            Map::Ordered { shift }
                if coder.base == Base::None && u32::from(bin.bits) + shift < number.bits() =>
            {
                plain(base, bin.bits, shift as u8)
            }
            _ if coder.base == Base::None && bin.bits == 0 => plain(base, 0, 0),
            _ => Symbol { kind: Kind::Bin(bin.map), ..plain(bin.lower, bin.bits, 0) },
        }
    }
}

/// A column of a decoder.
struct Decoded {
    column: usize,
    number: Number,
    /// Bits that may be set.
    all: u64,
    chosen: Chosen,
    /// One for each context.
    tables: Vec<Table>,
    slots: Vec<Slot>,
    symbols: Vec<Symbol>,
    base: Base,
    first: (u64, u32),
    copies: Vec<Copied>,
    maps: Vec<Map>,
    /// All of its symbols are plain.
    is_plain: bool,
    /// All values are this one.
    constant: Option<u64>,
}

/// What tables are chosen by.
#[derive(Clone, Copy)]
enum Chosen {
    Nothing,
    /// The class of another column of the same level.
    Class(usize),
    /// That of one on the level above.
    Above(usize),
    Own,
    Run,
    Index,
}

/// Decodes packets of a model. Takes 8 KiB for each table of a column at most.
pub(crate) struct Decoder {
    columns: Vec<Option<Decoded>>,
    /// Some table has more than one symbol.
    has_number: bool,
    /// Levels of which it matters where items are in their lists.
    is_placed: Vec<bool>,
}

/// Values of a packet at most that a thread keeps the room of.
const KEPT: u64 = 1 << 18;

/// What a decoder works with: one for each thread.
#[derive(Default)]
pub(crate) struct Room {
    padded: Padded,
    told: Values,
    places: Places,
    items: Vec<Range>,
}

/// Values of a packet, column behind column, and the classes of their symbols.
#[derive(Default)]
struct Values {
    values: Vec<u64>,
    classes: Vec<u8>,
    /// Where those of each column are that is there.
    at: Vec<std::ops::Range<usize>>,
}

impl Values {
    fn clear(&mut self, columns: usize) {
        self.values.clear();
        self.classes.clear();
        self.at.clear();
        self.at.resize(columns, 0..0);
    }

    fn of(&self, column: usize) -> &[u64] {
        &self.values[self.at[column].clone()]
    }
}

/// Items of a level in a packet: all, and from the first to the second of these those that are wanted.
#[derive(Clone, Copy, Default)]
struct Range {
    all: usize,
    from: usize,
    to: usize,
}

impl Range {
    fn each(self, of: impl Fn(usize) -> usize) -> Range {
        Range { all: of(self.all), from: of(self.from), to: of(self.to) }
    }
}

/// Which columns are wanted, and where their values go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sinks {
    /// Of each column with its own values, the columns of the batch that they go to.
    to: Vec<Vec<usize>>,
}

impl Sinks {
    pub fn new(plan: &Plan, wanted: impl Fn(usize) -> bool) -> Sinks {
        let mut to = vec![Vec::new(); plan.columns.len()];
        for column in (0..plan.columns.len()).filter(|&column| wanted(column)) {
            to[plan.columns[column]].push(column);
        }
        Sinks { to }
    }
}

impl Decoder {
    pub fn new(layout: &Layout, model: &Model) -> Decoder {
        let columns = model.coders.iter().enumerate().map(|(i, coder)| {
            let level = model.plan.level_of(layout, i);
            let chosen = |coder: &Coder| match coder.context {
                Context::None => Chosen::Nothing,
                Context::Class(other) if model.plan.level_of(layout, other) == level => {
                    Chosen::Class(other)
                }
                Context::Class(other) => Chosen::Above(other),
                Context::Own => Chosen::Own,
                Context::Run => Chosen::Run,
                Context::Index => Chosen::Index,
            };
            coder.as_ref().map(|coder| Decoded::new(i, coder, chosen(coder)))
        });
        let columns: Vec<Option<Decoded>> = columns.collect();
        let mut is_placed = vec![false; layout.levels().len()];
        for column in columns.iter().flatten() {
            let level = model.plan.level_of(layout, column.column);
            is_placed[level] |= matches!(column.chosen, Chosen::Above(_) | Chosen::Index);
        }
        let tables = columns.iter().flatten().flat_map(|column| &column.tables);
        let has_number = tables.into_iter().any(|table| table.bits > 0);
        Decoder { columns, has_number, is_placed }
    }

    /// Decodes a packet of so many events, and appends those from the first to the second of these to what the sinks say. `at` is
    /// where errors are said to be.
    #[allow(clippy::too_many_arguments)]
    pub fn decode(
        &self,
        layout: &Layout,
        model: &Model,
        stored: &[u8],
        (from, to, all): (usize, usize, usize),
        sinks: &Sinks,
        room: &mut Room,
        batch: &mut Batch,
        at: Place,
    ) -> Result<()> {
        let events = Range { all, from, to };
        let left = self.packet(layout, model, stored, events, sinks, room, batch);
        if left.is_none_or(|left| model.values - left > KEPT) {
            *room = Room::default();
        }
        left.map(drop).ok_or(Error::Corrupt { what: "packet of events", at })
    }

    /// Returns how many values the packet has less than it may have; `None` where it is damaged.
    #[allow(clippy::too_many_arguments)]
    fn packet(
        &self,
        layout: &Layout,
        model: &Model,
        stored: &[u8],
        events: Range,
        sinks: &Sinks,
        room: &mut Room,
        batch: &mut Batch,
    ) -> Option<u64> {
        let Room { padded, told, places, items } = room;
        padded.fill(stored);
        told.clear(self.columns.len());
        items.clear();
        if self.has_number && stored.len() < 4 {
            return None;
        }
        let bytes = padded.bytes();
        let mut run = Run {
            bytes,
            words: padded.words(),
            number: if self.has_number { load_u32(bytes, MARGIN) } else { FIRST },
            next: MARGIN + if self.has_number { 4 } else { 0 },
            bits: Bits::new(MARGIN + stored.len()),
        };
        let mut left = model.values;
        for (i, level) in layout.levels().iter().enumerate() {
            if model.plan.levels[i] != i {
                items.push(Range::default());
                continue;
            }
            let above = level.parent.map_or(events, |parent| items[model.plan.levels[parent]]);
            let here = match level.count {
                Count::Events => events,
                Count::Fixed(len) => above.each(|items| items.saturating_mul(len as usize)),
                Count::Column(counts) => {
                    let counts = told.of(model.plan.columns[counts]);
                    let add = |sum: usize, &count: &u64| sum.saturating_add(count as usize);
                    above.each(|items| counts[..items].iter().fold(0, add))
                }
            };
            items.push(here);
            let own = &model.plan.items[i];
            left = left.checked_sub((here.all as u64).checked_mul(own.values)?)?;
            if self.is_placed[i] {
                match level.count {
                    Count::Events => places.set(std::iter::once(here.all)),
                    Count::Fixed(len) => places.set(std::iter::repeat_n(len as usize, above.all)),
                    Count::Column(counts) => {
                        let counts = told.of(model.plan.columns[counts]).iter();
                        places.set(counts.map(|&count| count as usize));
                    }
                }
            }
            let mut next = told.values.len();
            told.values.resize(next + own.columns.len() * here.all, 0);
            told.classes.resize(told.values.len(), OTHER);
            for &column in &own.columns {
                told.at[column] = next..next + here.all;
                next += here.all;
                run.column(self.columns[column].as_ref()?, told, places)?;
                for &sink in &sinks.to[column] {
                    let number = layout.columns()[column].number;
                    emit(&told.of(column)[here.from..here.to], number, &mut batch.columns[sink]);
                }
            }
        }
        // All has been read, and no more.
        let end = run.bits.pos();
        let is_over = end <= 8 * (MARGIN + stored.len())
            && run.number == FIRST
            && (8 * run.next..8 * run.next + 8).contains(&end);
        is_over.then_some(left)
    }
}

/// Appends values as bytes.
fn emit(values: &[u64], number: Number, out: &mut Vec<u8>) {
    match number.width() {
        1 => out.extend(values.iter().map(|&value| value as u8)),
        2 => emit_as::<2>(values, out),
        4 => emit_as::<4>(values, out),
        _ => emit_as::<8>(values, out),
    }
}

fn emit_as<const WIDTH: usize>(values: &[u64], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + WIDTH * values.len(), 0);
    for (bytes, &value) in out[start..].chunks_exact_mut(WIDTH).zip(values) {
        bytes.copy_from_slice(&low_bytes(value)[..WIDTH]);
    }
}

/// Decoding of a packet on its way.
struct Run<'a> {
    bytes: &'a [u8],
    words: Words<'a>,
    number: u32,
    /// Where the next word is.
    next: usize,
    bits: Bits<true>,
}

impl Run<'_> {
    /// Decodes the values of a column, to where there is room for them.
    fn column(&mut self, about: &Decoded, told: &mut Values, places: &Places) -> Option<()> {
        let here = told.at[about.column].clone();
        let items = here.len();
        if let Some(value) = about.constant {
            told.values[here.clone()].fill(value);
            // Its one symbol may have a class.
            told.classes[here].fill(about.slots.first()?.class());
            return Some(());
        }
        let (before, out) = told.values.split_at_mut(here.start);
        let (known, classes) = told.classes.split_at_mut(here.start);
        let (out, classes) = (out.get_mut(..items)?, classes.get_mut(..items)?);
        let before = |column: usize| before.get(told.at[column].clone());
        match about.chosen {
            Chosen::Nothing => self.either(about, before, out, classes, |_, _, _| 0),
            Chosen::Class(other) => {
                let other = known.get(told.at[other].clone())?.get(..items)?;
                self.either(about, before, out, classes, |row, _, _| other[row])
            }
            Chosen::Above(other) => {
                let (other, above) =
                    (known.get(told.at[other].clone())?, places.above.get(..items)?);
                let class =
                    |row: usize, _, _| other.get(above[row] as usize).copied().unwrap_or(OTHER);
                self.either(about, before, out, classes, class)
            }
            Chosen::Own => self.either(about, before, out, classes, |_, class, _| class),
            Chosen::Run => self.either(about, before, out, classes, |_, _, run| run),
            Chosen::Index => {
                let index = places.index.get(..items)?;
                self.either(about, before, out, classes, |row, _, _| index[row])
            }
        }
    }

    /// Columns all of whose symbols are plain have a loop of their own, with nothing else in it.
    #[inline(always)]
    fn either<'v>(
        &mut self,
        about: &Decoded,
        before: impl Fn(usize) -> Option<&'v [u64]>,
        out: &mut [u64],
        classes: &mut [u8],
        context: impl Fn(usize, u8, u8) -> u8,
    ) -> Option<()> {
        match about.is_plain {
            true => self.values::<true>(about, before, out, classes, context),
            false => self.values::<false>(about, before, out, classes, context),
        }
    }

    #[inline(never)]
    fn values<'v, const PLAIN: bool>(
        &mut self,
        about: &Decoded,
        before: impl Fn(usize) -> Option<&'v [u64]>,
        out: &mut [u64],
        classes: &mut [u8],
        context: impl Fn(usize, u8, u8) -> u8,
    ) -> Option<()> {
        let (words, bytes, last) = (self.words, self.bytes, self.bytes.len() - 2);
        let (mut number, mut next, mut bits) = (self.number, self.next, self.bits);
        let (mut class, mut run) = (OTHER, 0);
        let mut start = 0;
        if !PLAIN && about.base != Base::None && !out.is_empty() {
            let (low, count) = about.first;
            let integer = low.wrapping_add(take(&mut bits, words, count));
            out[0] = about.maps[0].from(about.number, integer) & about.all;
            start = 1;
        }
        let (symbols, tables, slots) = (&about.symbols[..], &about.tables[..], &about.slots[..]);
        let classes = &mut classes[..out.len()];
        for row in start..out.len() {
            let table = tables[usize::from(context(row, class, run))];
            let place = (number & table.mask) as usize;
            let slot = *slots.get(table.slots as usize + place)?;
            if table.bits > 0 {
                number = slot.next(number, table.bits);
                // Whether a word is taken nobody foresees: so there is no branch.
                let word = u32::from(load_u16(bytes, next.min(last)));
                let is_low = number < FIRST;
                number = if is_low { number << 16 | word } else { number };
                next += usize::from(is_low) * 2;
            }
            class = slot.class();
            classes[row] = class;
            let symbol = &symbols[slot.symbol()];
            let place = bits.word(words) & symbol.mask;
            bits.skip(symbol.bits.into());
            let mut value = symbol.base ^ place << symbol.shift;
            if !PLAIN {
                run = match symbol.kind {
                    Kind::Copy(_) => (run + 1).min(OTHER),
                    _ => 0,
                };
                match symbol.kind {
                    Kind::Plain => {}
                    Kind::Copy(copy) => {
                        let Copied { column, shift } = about.copies[usize::from(copy)];
                        let from = row.wrapping_add_signed(shift);
                        // Of its own values those that are there, of another's all.
                        let there = match column == about.column {
                            true => &out[..row],
                            false => before(column)?,
                        };
                        value = *there.get(from)?;
                    }
                    Kind::Wide => {
                        bits.unskip(symbol.bits.into());
                        let place = take(&mut bits, words, symbol.bits.into());
                        value = symbol.base ^ place << symbol.shift;
                    }
                    Kind::Bin(map) => {
                        bits.unskip(symbol.bits.into());
                        let place = take(&mut bits, words, symbol.bits.into());
                        let before = if row > 0 { out[row - 1] } else { 0 };
                        value = about.told(map, symbol.base.wrapping_add(place), before);
                    }
                }
            }
            out[row] = value;
        }
        (self.number, self.next, self.bits) = (number, next, bits);
        Some(())
    }
}

impl Decoded {
    fn new(column: usize, coder: &Coder, chosen: Chosen) -> Decoded {
        let mut slots = Vec::new();
        let tables = coder.shares.iter().map(|shares| {
            let first = slots.len() as u32;
            let Some(shares) = shares else { return Table { slots: NONE, bits: 0, mask: 0 } };
            shares.put_slots(|symbol| coder.class(symbol), &mut slots);
            Table { slots: first, bits: shares.bits(), mask: (1 << shares.bits()) - 1 }
        });
        let tables = tables.collect();
        let symbols: Vec<Symbol> =
            (0..coder.symbols()).map(|symbol| Symbol::new(coder, symbol)).collect();
        let is_plain =
            coder.base == Base::None && symbols.iter().all(|symbol| symbol.kind == Kind::Plain);
        let constant = match &symbols[..] {
            [one] if is_plain && one.bits == 0 && coder.context == Context::None => Some(one.base),
            _ => None,
        };
        Decoded {
            column,
            number: coder.number,
            all: u64::MAX >> (64 - coder.number.bits()),
            chosen,
            tables,
            slots,
            symbols,
            base: coder.base,
            first: coder.first,
            copies: coder.copies.clone(),
            maps: coder.maps.clone(),
            is_plain,
            constant,
        }
    }

    /// The value of an integer of a map, behind another value.
    #[inline(never)]
    fn told(&self, map: u8, integer: u64, before: u64) -> u64 {
        let map = self.maps[usize::from(map)];
        let integer = match self.base {
            Base::None => integer,
            base => {
                let before = map.to(self.number, before).unwrap_or(0);
                based(base, map, self.number, integer, before, true)
            }
        };
        map.from(self.number, integer) & self.all
    }
}

/// Bits that come at once.
const AT_ONCE: u8 = 57;

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
