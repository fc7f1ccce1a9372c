//! Decodes packets, column by column: what is known of a model before, and what comes out of a packet.

mod run;
mod several;
mod texts;
#[cfg(target_arch = "x86_64")]
mod vectors;
mod wide;

use std::borrow::Cow;
use std::ops::Range;

use run::{Ats, Lane, Packets};
pub(super) use several::LANES;
use several::Several;
use texts::{Span, Texts};
use wide::Wide;

use super::batch::Batch;
use super::column::map::Map;
use super::column::{Base, Coder, Context, OTHER};
use super::model::Model;
use super::packet::{Places, load};
use super::schema::{Count, Layout, Number};
use crate::codec::Scratch;
use crate::error::{Error, Place, Result};
use crate::model::{Padded, Slot};
use crate::processor::with_bit_counts;
use crate::wire::low_bytes;

/// Bits that come at once.
const AT_ONCE: u8 = 57;

/// A table of a decoder: where its slots are, and two to how many bits those are.
#[derive(Clone, Copy)]
#[repr(C)]
struct Table {
    slots: u32,
    mask: u16,
    bits: u16,
}

/// What a symbol stands for, beside what its slots say.
#[derive(Clone, Copy)]
struct Symbol {
    /// Of a bin the number of its first integer; where that is not enough, that integer.
    base: u64,
    /// By which map integers become numbers.
    map: u8,
    /// Of the place in the bin.
    bits: u8,
}

/// What slots say of a symbol: its number among those of its column, its class, what to do, how far left the bits that follow
/// stand in the number, and how many they are.
#[derive(Clone, Copy)]
struct About(u32);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The bits turn over some of the base's.
    Plain = 0,
    /// The number of the symbol is that of the copy.
    Copy = 1,
    /// The integer is found by a map, or by one and the value before; its bits may be more than come at once.
    Mapped = 2,
    /// The base and the bits are a whole number, of which a floating point number is made.
    Scaled = 3,
}

impl About {
    fn new(symbol: usize, class: u8, kind: Kind, bits: u8, shift: u8) -> About {
        let fields = u32::from(class) << 9 | (kind as u32) << 12 | u32::from(shift) << 16;
        About(symbol as u32 | fields | u32::from(bits) << 24)
    }

    #[inline(always)]
    fn symbol(self) -> usize {
        (self.0 & 0x1FF) as usize
    }

    #[inline(always)]
    fn class(self) -> u8 {
        (self.0 >> 9 & 7) as u8
    }

    #[inline(always)]
    fn is_plain(self) -> bool {
        self.0 & 3 << 12 == 0
    }

    #[inline(always)]
    fn is(self, kind: Kind) -> bool {
        self.0 >> 12 & 3 == kind as u32
    }

    #[inline(always)]
    fn shift(self) -> u32 {
        self.0 >> 16 & 0x3F
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        self.0 >> 24
    }
}

/// What a symbol of a column stands for, and what its slots say.
fn symbol(coder: &Coder, symbol: usize) -> (Symbol, About) {
    let number = coder.number;
    let of = |kind, base, map, bits: u8, shift: u8| {
        let at_once = if bits > AT_ONCE { 0 } else { bits };
        let about = About::new(symbol, coder.class(symbol), kind, at_once, shift);
        (Symbol { base, map, bits }, about)
    };
    let Some(bin) = symbol.checked_sub(coder.copies.len()) else {
        return of(Kind::Copy, 0, 0, 0, 0);
    };
    let Some(bin) = coder.bins.get(bin) else {
        // An escape is followed by all bits.
        let is_plain = coder.base == Base::None && number.bits() <= AT_ONCE.into();
        let kind = if is_plain { Kind::Plain } else { Kind::Mapped };
        return of(kind, 0, ESCAPE, number.bits() as u8, 0);
    };
    let map = coder.maps[usize::from(bin.map)];
    let base = map.from(number, bin.lower) & all_bits(number);
    match map {
        // Numbers of a bin have the same sign, so that each bit of the place turns over one of theirs.
        Map::Ordered { shift }
            if coder.base == Base::None
                && u32::from(bin.bits) + shift < number.bits()
                && bin.bits <= AT_ONCE =>
        {
            of(Kind::Plain, base, 0, bin.bits, shift as u8)
        }
        _ if coder.base == Base::None && bin.bits == 0 => of(Kind::Plain, base, 0, 0, 0),
        Map::Decimal { .. } | Map::Grid { .. } if coder.base == Base::None => {
            of(Kind::Scaled, map.whole(bin.lower) as u64, bin.map, bin.bits, 0)
        }
        _ => of(Kind::Mapped, bin.lower, bin.map, bin.bits, 0),
    }
}

/// Instead of a map: the bits are the number.
const ESCAPE: u8 = u8::MAX;
/// Instead of a map: there is no such symbol.
const MISSING: u8 = u8::MAX - 1;

/// Bits that a number may have set.
fn all_bits(number: Number) -> u64 {
    u64::MAX >> (64 - number.bits())
}

/// A column of a decoder.
struct Decoded {
    column: usize,
    number: Number,
    all: u64,
    chosen: Chosen,
    /// Where its tables and symbols are among those of all.
    tables: usize,
    symbols: usize,
    base: Base,
    first: (u64, u32),
    /// With that of places, the integer of each.
    places: Vec<u64>,
    /// How many columns back those are that copies are of, and how many items ahead.
    copies: Vec<(usize, isize)>,
    maps: Vec<Map>,
    /// All of its symbols are plain.
    is_plain: bool,
    /// Some symbol is followed by bits, or, which only mapped ones are, by more than come at once.
    has_bits: bool,
    has_long: bool,
    /// The map of all symbols that are scaled.
    scale: Option<Map>,
}

/// What tables are chosen by.
#[derive(Clone, Copy)]
enum Chosen {
    /// There is nothing to choose from: all values are this one, and have this class.
    Constant(u64, u8),
    Nothing,
    /// The class of another column of the same level, so many back.
    Class(usize),
    /// That of one on the level above, behind so many others.
    Above(usize),
    Own,
    Run,
    Index,
    /// The number of the item in its list modulo this.
    Place(usize),
}

/// A level of its own, and its columns.
struct Step {
    level: usize,
    above: usize,
    /// Counts are told by the column of the level above that so many are before.
    count: Count,
    /// Values that an item has.
    values: u64,
    /// It matters where items are in their lists.
    is_placed: bool,
    columns: Range<usize>,
}

/// Decodes packets of a model. Takes 8 KiB for each table of a column at most.
///
/// What tells values without looking whether it may counts on this: a column has a table for all that it may be chosen by; a table has
/// a slot for each number up to its mask; the symbol that a slot names is one of its column's.
pub(crate) struct Decoder {
    steps: Vec<Step>,
    columns: Vec<Decoded>,
    tables: Vec<Table>,
    slots: Vec<Slot>,
    symbols: Vec<Symbol>,
    /// Of each column of the layout where it has its values.
    own: Vec<Own>,
    levels: usize,
    /// Columns of texts that are told by words.
    words: Vec<Texts>,
    /// Values that a packet may have, and bytes of its texts.
    most: u64,
    texts: u64,
    /// Some table has more than one symbol.
    has_number: bool,
}

/// Where a column has its values: on which level, and how many columns of that are before.
#[derive(Clone, Copy)]
struct Own {
    level: u32,
    before: u32,
    /// Bytes of a value.
    width: u32,
    /// The number of the column of words whose counts or bytes it has instead; `NONE` of all others.
    words: u32,
    is_counts: bool,
}

const NONE: u32 = u32::MAX;

/// The values of a column of some events: the lowest bytes of each of these, which are zero above its own, or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits<'a> {
    /// Of most columns.
    Numbers(&'a [u64]),
    /// Of some columns of numbers of 1 byte: those of texts, if it was worth it to take them for such.
    Bytes(&'a [u8]),
}

impl<'a> Bits<'a> {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Bits::Numbers(values) => values.len(),
            Bits::Bytes(values) => values.len(),
        }
    }

    /// True where there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of them.
    ///
    /// # Panics
    /// Where there are not so many.
    #[must_use]
    pub fn of(&self, range: Range<usize>) -> Bits<'a> {
        match self {
            Bits::Numbers(values) => Bits::Numbers(&values[range]),
            Bits::Bytes(values) => Bits::Bytes(&values[range]),
        }
    }

    /// The bits of one.
    ///
    /// # Panics
    /// Where there are not so many.
    #[must_use]
    pub fn get(&self, i: usize) -> u64 {
        match self {
            Bits::Numbers(values) => values[i],
            Bits::Bytes(values) => values[i].into(),
        }
    }

    /// The lowest byte of each: texts, as they are.
    #[must_use]
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Bits::Numbers(values) => values.iter().map(|&value| value as u8).collect(),
            Bits::Bytes(values) => Cow::Borrowed(values),
        }
    }

    /// The bits of all.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        (0..self.len()).map(move |i| self.get(i))
    }
}

/// What is damaged where a packet, or its texts, cannot be decoded.
pub(super) const PACKET: &str = "packet of events";
pub(super) const TEXTS: &str = "texts of events";

/// Values of a packet at most that a thread keeps the room of.
const KEPT: usize = 1 << 18;
/// Values of several packets at most that are decoded at once.
const MOST_AT_ONCE: usize = KEPT;

/// What a decoder works with: one for each thread.
#[derive(Default)]
pub(crate) struct Room {
    padded: Padded,
    /// The packets that lie in it.
    lanes: Vec<Lane>,
    several: Several,
    pub told: Told,
    places: Places,
    given: Vec<u8>,
    modulo: Vec<u16>,
    based: Vec<u16>,
    wide: Wide,
    codec: Scratch,
}

/// The values of a packet, and which of them are wanted.
#[derive(Default)]
pub(crate) struct Told {
    /// Column behind column. Behind those that were told there may be others, of which nothing is known.
    values: Vec<u64>,
    /// Those of their symbols.
    classes: Vec<u8>,
    /// Packets.
    lanes: usize,
    /// Of each level, packet by packet.
    items: Vec<Items>,
    /// Of each level the items that are wanted, among those of all packets, and up to where in this those of each level are.
    wanted: Vec<Range<usize>>,
    wanted_ends: Vec<usize>,
    /// Where in each packet bytes of texts are that are stored as they are.
    stored: Vec<Range<usize>>,
    /// Of columns of words the lengths of texts, and their bytes; and where those of each column are that are wanted.
    lens: Vec<u64>,
    texts: Vec<u8>,
    spans: Vec<Span>,
}

/// Items of a level in a packet: all, and from the first to the second of these those that are wanted.
#[derive(Clone, Copy, Default)]
struct Items {
    all: usize,
    from: usize,
    to: usize,
    /// Where the values of its first column begin.
    start: usize,
    /// All of the packets that are decoded with it, which a column has one behind the other.
    total: usize,
}

impl Items {
    #[inline(always)]
    fn each(self, of: impl Fn(usize) -> usize) -> Items {
        Items { all: of(self.all), from: of(self.from), to: of(self.to), start: 0, total: 0 }
    }
}

/// Which columns are wanted, and where their values go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sinks(Vec<usize>);

impl Sinks {
    /// The columns of a layout that are wanted.
    pub fn new(columns: usize, wanted: impl Fn(usize) -> bool) -> Sinks {
        Sinks((0..columns).filter(|&column| wanted(column)).collect())
    }
}

impl Room {
    /// No packets are left in it.
    pub fn clear(&mut self) {
        self.padded.clear();
        self.lanes.clear();
        self.several.clear();
    }

    /// Whether vectors are used where there are some.
    #[cfg(test)]
    pub fn use_vectors(&mut self, are_used: bool) {
        self.wide.is_plain = !are_used;
    }
}

impl Decoder {
    /// Bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        let own = self.words.iter().filter(|texts| texts.same.is_none());
        let words = own.map(|texts| texts.vocabulary.size()).sum::<usize>();
        size_of_val(&*self.steps)
            + size_of_val(&*self.columns)
            + size_of_val(&*self.tables)
            + size_of_val(&*self.slots)
            + size_of_val(&*self.symbols)
            + size_of_val(&*self.own)
            + words
    }

    /// Of events of this layout.
    pub fn new(layout: &Layout, model: &Model) -> Decoder {
        let (layout, plan) = (&model.layout(layout), &model.plan);
        let levels = layout.levels().len();
        let mut before = vec![0; plan.columns.len()];
        for items in &plan.items {
            items.columns.iter().enumerate().for_each(|(i, &column)| before[column] = i as u32);
        }
        let own = plan.columns.iter().map(|&column| {
            let level = plan.level_of(layout, column) as u32;
            let width = layout.columns()[column].number.width() as u32;
            Own { level, before: before[column], width, words: NONE, is_counts: false }
        });
        let mut decoder = Decoder {
            steps: Vec::new(),
            columns: Vec::new(),
            tables: Vec::new(),
            slots: Vec::new(),
            symbols: Vec::new(),
            own: own.collect(),
            levels,
            words: Texts::all(model),
            most: model.values,
            texts: model.texts,
            has_number: false,
        };
        for (level, about) in layout.levels().iter().enumerate() {
            if plan.levels[level] != level {
                continue;
            }
            let first = decoder.columns.len();
            for &column in &plan.items[level].columns {
                if let Some(coder) = &model.coders[column] {
                    decoder.push(column, coder);
                }
            }
            let mine = &decoder.columns[first..];
            let placed = |column: &Decoded| {
                let is_chosen =
                    matches!(column.chosen, Chosen::Above(_) | Chosen::Index | Chosen::Place(_));
                is_chosen || column.base == Base::Place
            };
            decoder.steps.push(Step {
                level,
                above: about.parent.map_or(0, |parent| plan.levels[parent]),
                count: match about.count {
                    Count::Column(counts) => Count::Column(decoder.own[counts].before as usize),
                    other => other,
                },
                values: plan.items[level].values,
                is_placed: mine.iter().any(placed),
                columns: first..decoder.columns.len(),
            });
        }
        for (i, &(column, _)) in model.words.iter().enumerate() {
            decoder.own[column].words = i as u32;
            decoder.own[column - 1].words = i as u32;
            decoder.own[column - 1].is_counts = true;
        }
        decoder.has_number = decoder.tables.iter().any(|table| table.bits > 0);
        decoder
    }

    fn push(&mut self, column: usize, coder: &Coder) {
        let mine = self.own[column];
        let back = |other: usize| mine.before.saturating_sub(self.own[other].before) as usize;
        let chosen = match coder.context {
            Context::None => Chosen::Nothing,
            Context::Class(other) if self.own[other].level == mine.level => {
                Chosen::Class(back(other))
            }
            Context::Class(other) => Chosen::Above(self.own[other].before as usize),
            Context::Own => Chosen::Own,
            Context::Run => Chosen::Run,
            Context::Index => Chosen::Index,
            Context::Place(period) => Chosen::Place(period),
        };
        let copies = coder.copies.iter().map(|copied| (back(copied.column), copied.shift));
        let copies = copies.collect();
        let (symbols, abouts): (Vec<Symbol>, Vec<About>) =
            (0..coder.symbols()).map(|number| symbol(coder, number)).unzip();
        let is_plain = coder.base == Base::None && abouts.iter().all(|about| about.is(Kind::Plain));
        let (tables, first) = (self.tables.len(), self.symbols.len());
        let missing = About::new(symbols.len(), OTHER, Kind::Mapped, 0, 0);
        let (contexts, mut all) = (coder.contexts(), true);
        for context in 0..contexts {
            let slots = self.slots.len() as u32;
            let shares = coder.shares.get(context).and_then(Option::as_ref);
            all &= shares.is_some();
            let table = match shares {
                Some(shares) => {
                    shares.put_slots(|symbol| abouts[symbol].0, &mut self.slots);
                    Table { slots, mask: (1 << shares.bits()) - 1, bits: shares.bits() as u16 }
                }
                None => {
                    self.slots.push(Slot::alone(missing.0));
                    Table { slots, mask: 0, bits: 0 }
                }
            };
            self.tables.push(table);
        }
        let has_bits = symbols.iter().any(|symbol| symbol.bits > 0);
        let has_long = symbols.iter().any(|symbol| symbol.bits > AT_ONCE);
        let scaled = symbols.iter().zip(&abouts).filter(|(_, about)| about.is(Kind::Scaled));
        let mut scaled = scaled.map(|(symbol, _)| symbol.map);
        let scale = scaled.next().filter(|&first| scaled.all(|map| map == first));
        let scale = scale.map(|map| coder.maps[usize::from(map)]);
        let chosen = match (&symbols[..], chosen) {
            ([one], Chosen::Nothing) if is_plain && all && one.bits == 0 => {
                Chosen::Constant(one.base, coder.class(0))
            }
            _ => chosen,
        };
        self.symbols.extend(symbols);
        self.symbols.push(Symbol { base: 0, map: MISSING, bits: 0 });
        self.columns.push(Decoded {
            column,
            number: coder.number,
            all: all_bits(coder.number),
            chosen,
            tables,
            symbols: first,
            base: coder.base,
            first: coder.first,
            places: coder.places.clone(),
            copies,
            maps: coder.maps.clone(),
            is_plain: is_plain && all,
            has_bits,
            has_long,
            scale,
        });
    }

    /// Decodes a packet of so many events, of which those from the first to the second of these are wanted. `at` is where errors are
    /// said to be.
    pub fn decode(
        &self,
        stored: &[u8],
        events: (usize, usize, usize),
        room: &mut Room,
        at: Place,
    ) -> Result<()> {
        room.clear();
        let is_added = self.add(stored, events, room);
        is_added.and_then(|()| self.run(room)).ok_or(Error::Corrupt { what: PACKET, at })
    }

    /// Adds a packet to those in a room. `None` where it has no beginning, or where there are [`LANES`].
    pub fn add(
        &self,
        stored: &[u8],
        (from, to, all): (usize, usize, usize),
        room: &mut Room,
    ) -> Option<()> {
        let at = room.padded.add(stored);
        let events = Items { all, from, to, start: 0, total: 0 };
        let (lane, at) = Lane::new(self, room.padded.bytes(), at, events)?;
        if room.lanes.len() == LANES {
            return None;
        }
        room.several.set(room.lanes.len(), at);
        room.lanes.push(lane);
        Some(())
    }

    /// Decodes the packets in a room, whose models this is the decoder of. `None` where one is damaged, or where they have more values
    /// than several may have at once.
    pub fn run(&self, room: &mut Room) -> Option<()> {
        if room.told.values.len() > KEPT || room.told.texts.capacity() > 8 * KEPT {
            room.told = Told::default();
        }
        room.padded.close();
        room.told.items.clear();
        room.told.items.resize(room.lanes.len() * self.levels, Items::default());
        with_bit_counts(Packets { decoder: self, room })
    }

    /// The values of a column that are wanted, of those that this decoder told.
    #[inline(always)]
    pub fn of<'a>(&self, told: &'a Told, column: usize) -> Bits<'a> {
        let own = self.own[column];
        if own.words != NONE {
            return told.text(0, own.words as usize, own.is_counts);
        }
        let items = told.items[own.level as usize];
        let start = items.start + own.before as usize * items.total;
        Bits::Numbers(&told.values[start + items.from..start + items.to])
    }

    /// Whether the columns that have their own values were told as they are in a batch, where each level has its first item.
    pub fn is_same(&self, told: &Told, batch: &Batch, first: impl Fn(usize) -> usize) -> bool {
        self.steps.iter().all(|step| {
            let (items, from) = (told.items[step.level], first(step.level));
            let columns = self.columns[step.columns.clone()].iter().enumerate();
            let mut same = columns.map(|(i, column)| {
                let values = &told.values[items.start + i * items.all..][..items.all];
                let width = column.number.width();
                let bytes = batch.columns[column.column].get(from * width..).unwrap_or_default();
                match width {
                    1 => are_same::<1>(values, bytes),
                    2 => are_same::<2>(values, bytes),
                    4 => are_same::<4>(values, bytes),
                    _ => are_same::<8>(values, bytes),
                }
            });
            same.all(|same| same)
        })
    }

    /// Whether the texts of a column, of their bytes, are those that a batch has from its first text and byte of these on.
    pub fn is_same_text(
        &self,
        told: &Told,
        batch: &Batch,
        column: usize,
        (first, byte): (usize, usize),
    ) -> bool {
        let counts = batch.bytes(column - 1).get(4 * first..).unwrap_or_default();
        let bytes = batch.bytes(column).get(byte..).unwrap_or_default();
        match (self.of(told, column - 1), self.of(told, column)) {
            (Bits::Numbers(lens), Bits::Bytes(texts)) => {
                are_same::<4>(lens, counts) && bytes.starts_with(texts)
            }
            _ => false,
        }
    }

    /// Appends values that are wanted to columns of a batch.
    pub fn put(&self, told: &mut Told, sinks: &Sinks, batch: &mut Batch) {
        told.see_wanted();
        for &column in &sinks.0 {
            let (own, out) = (self.own[column], &mut batch.columns[column]);
            if own.words != NONE {
                for packet in 0..told.lanes {
                    match told.text(packet, own.words as usize, own.is_counts) {
                        Bits::Numbers(lens) => put(lens, own.width, out),
                        Bits::Bytes(bytes) => out.extend_from_slice(bytes),
                    }
                }
                continue;
            }
            let level = own.level as usize;
            let first = told.items[told.lanes * level];
            let start = first.start + own.before as usize * first.total;
            let ends = &told.wanted_ends;
            for wanted in &told.wanted[ends[level]..ends[level + 1]] {
                put(&told.values[start + wanted.start..start + wanted.end], own.width, out);
            }
        }
    }
}

impl Told {
    /// The items of each level that are wanted: of packets that follow each other they are in one piece mostly.
    fn see_wanted(&mut self) {
        self.wanted.clear();
        self.wanted_ends.clear();
        self.wanted_ends.push(0);
        for items in self.items.chunks_exact(self.lanes.max(1)) {
            let mut wanted = 0..0;
            for packet in items {
                let at = packet.start - items[0].start;
                let here = at + packet.from..at + packet.to;
                if here.start != wanted.end {
                    if !wanted.is_empty() {
                        self.wanted.push(wanted);
                    }
                    wanted = here.start..here.start;
                }
                wanted.end = here.end;
            }
            if !wanted.is_empty() {
                self.wanted.push(wanted);
            }
            self.wanted_ends.push(self.wanted.len());
        }
    }
}

/// Whether values are those that bytes begin with.
#[inline(always)]
fn are_same<const WIDTH: usize>(values: &[u64], bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..WIDTH * values.len()) else { return false };
    // In one go, without a branch for each.
    let differ = |sum: u64, (i, &value): (usize, &u64)| sum | value ^ load(bytes, WIDTH, i);
    values.iter().enumerate().fold(0, differ) == 0
}

/// Appends values as bytes.
#[inline(always)]
fn put(values: &[u64], width: u32, out: &mut Vec<u8>) {
    match width {
        1 => put_as::<1>(values, out),
        2 => put_as::<2>(values, out),
        4 => put_as::<4>(values, out),
        _ => put_as::<8>(values, out),
    }
}

#[inline(always)]
fn put_as<const WIDTH: usize>(values: &[u64], out: &mut Vec<u8>) {
    // Few are not worth a call that makes room.
    if let [value] = values {
        return out.extend_from_slice(&low_bytes(*value)[..WIDTH]);
    }
    let start = out.len();
    out.resize(start + WIDTH * values.len(), 0);
    for (bytes, &value) in out[start..].chunks_exact_mut(WIDTH).zip(values) {
        bytes.copy_from_slice(&low_bytes(value)[..WIDTH]);
    }
}
