//! Tells packets: which symbol and which bits each value is, and the bytes that these make.

use std::ops::Range;

use super::batch::Batch;
use super::column::{Base, Coder, Context, OTHER};
use super::model::Model;
use super::packet::{self, Places, load};
use super::schema::{Count, Layout};
use crate::model::{BitSink, Encoder, Shares};

/// What packets tell, before it is known how dear each symbol is.
#[derive(Default)]
pub(crate) struct Told {
    /// Tables and symbols.
    tokens: Vec<u32>,
    /// Bits of each packet in order, the last one in the first byte.
    bits: Vec<u8>,
    /// Where the tokens and the bytes of each packet end.
    ends: Vec<(usize, usize)>,
}

/// Packets, encoded: one behind the other, and where each ends.
#[derive(Default)]
pub(crate) struct Packets {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
}

impl Packets {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

const SYMBOL_BITS: u32 = 10;
/// Values that are told together, column by column: of as many packets as have them.
const TOGETHER: usize = 1 << 12;

/// The number of the first table of each column, and how many there are.
fn first_tables(coders: &[Option<Coder>]) -> (Vec<usize>, usize) {
    let mut all = 0;
    let firsts = coders.iter().map(|coder| {
        let first = all;
        all += coder.as_ref().map_or(0, Coder::contexts);
        first
    });
    (firsts.collect(), all)
}

/// Tells packets of a batch.
pub(crate) struct Teller<'a> {
    layout: &'a Layout,
    batch: &'a Batch,
    model: &'a Model,
    /// Where each level has its first item of each packet, and behind the last.
    starts: &'a [Vec<usize>],
    finders: Vec<Option<Finder<'a>>>,
    first_tables: Vec<usize>,
    /// How often each symbol of each table was told.
    pub counts: Vec<Vec<u32>>,
    /// Of the packets at hand, column behind column: each value, and what it is told by.
    bits: Vec<u64>,
    values: Vec<Value>,
    /// Where each column has its first.
    at: Vec<usize>,
    places: Places,
    modulo: Vec<u16>,
    based: Vec<u16>,
    sink: BitSink,
}

/// What a value is told by: a table and a symbol, or neither, and some bits.
#[derive(Clone, Copy)]
struct Value {
    place: u64,
    /// `NONE` where there is no symbol.
    token: u32,
    bits: u8,
    class: u8,
}

const NONE: u32 = u32::MAX;

/// Finds the symbols of a column.
struct Finder<'a> {
    coder: &'a Coder,
    lowers: Vec<Lowers>,
    classes: Vec<u8>,
}

/// The bins of a map, found by some bits of an integer first.
struct Lowers {
    lowers: Vec<u64>,
    /// The number of the first bin.
    first: usize,
    shift: u32,
    /// How many bins there are up to the first integer of each range, which all have two to `shift`.
    before: Vec<u32>,
}

impl Lowers {
    fn new(lowers: Vec<u64>, first: usize) -> Lowers {
        const RANGES: u32 = 9;
        let range = lowers.last().zip(lowers.first()).map_or(0, |(high, low)| high - low);
        let shift = (64 - range.leading_zeros()).saturating_sub(RANGES);
        let low = lowers.first().copied().unwrap_or(0);
        let upto = |at: u64| lowers.partition_point(|&lower| lower - low <= at) as u32;
        let before = (0..=range >> shift).map(|i| upto(i << shift)).collect();
        Lowers { lowers, first, shift, before }
    }

    /// The last bin that does not begin behind an integer.
    #[inline(always)]
    fn find(&self, integer: u64) -> Option<usize> {
        let range = (integer.checked_sub(*self.lowers.first()?)? >> self.shift) as usize;
        let from = self.before.get(range).map_or(self.lowers.len(), |&before| before as usize);
        let to = self.before.get(range + 1).map_or(self.lowers.len(), |&before| before as usize);
        let more = self.lowers.get(from..to)?.partition_point(|&lower| lower <= integer);
        Some(self.first + from + more - 1)
    }
}

impl<'a> Finder<'a> {
    fn new(coder: &'a Coder) -> Finder<'a> {
        let lowers = (0..coder.maps.len()).map(|map| {
            let those = |bin: &&super::column::bins::Bin| usize::from(bin.map) == map;
            let lowers: Vec<u64> = coder.bins.iter().filter(those).map(|bin| bin.lower).collect();
            let first = coder.bins.iter().position(|bin| usize::from(bin.map) == map);
            Lowers::new(lowers, first.unwrap_or(0))
        });
        let classes = (0..coder.symbols()).map(|symbol| coder.class(symbol)).collect();
        Finder { coder, lowers: lowers.collect(), classes }
    }

    /// The symbol of a value that is no copy, its place and the bits of that; `before` is the integer before, and becomes that of the value.
    #[inline(always)]
    fn find(&self, value: u64, is_first: bool, before: &mut u64) -> Option<(usize, u64, u8)> {
        let coder = self.coder;
        for (map, lowers) in coder.maps.iter().zip(&self.lowers) {
            let Some(integer) = map.to(coder.number, value) else { continue };
            let told = match coder.base {
                Base::None => integer,
                Base::Minus | Base::Xor if is_first => integer,
                base => packet::based(base, *map, coder.number, integer, *before, false),
            };
            if let Some(found) = lowers.find(told) {
                let bin = &coder.bins[found];
                if bin.has(told) {
                    *before = integer;
                    return Some((coder.copies.len() + found, told - bin.lower, bin.bits));
                }
            }
        }
        *before = 0;
        let escape = coder.has_escape.then(|| coder.symbols() - 1)?;
        Some((escape, value, coder.number.bits() as u8))
    }
}

impl<'a> Teller<'a> {
    pub fn new(
        layout: &'a Layout,
        batch: &'a Batch,
        model: &'a Model,
        starts: &'a [Vec<usize>],
    ) -> Teller<'a> {
        let (first_tables, tables) = first_tables(&model.coders);
        let finders: Vec<_> =
            model.coders.iter().map(|coder| coder.as_ref().map(Finder::new)).collect();
        let mut counts = Vec::with_capacity(tables);
        for coder in model.coders.iter().flatten() {
            counts.extend((0..coder.contexts()).map(|_| vec![0; coder.symbols()]));
        }
        let at = vec![0; finders.len()];
        let (bits, values, places, modulo, based, sink) = Default::default();
        Teller {
            layout,
            batch,
            model,
            starts,
            finders,
            first_tables,
            counts,
            bits,
            values,
            at,
            places,
            modulo,
            based,
            sink,
        }
    }

    /// Tells packets. `None` where a value cannot be told.
    pub fn tell(&mut self, packets: Range<usize>) -> Option<Told> {
        let mut told = Told::default();
        let mut from = packets.start;
        while from < packets.end {
            let mut to = from + 1;
            while to < packets.end && self.values_of(from..to + 1) <= TOGETHER {
                to += 1;
            }
            self.columns(from..to)?;
            (from..to).for_each(|packet| self.put(from, packet, &mut told));
            from = to;
        }
        Some(told)
    }

    /// Own values of packets.
    fn values_of(&self, packets: Range<usize>) -> usize {
        let items = self.starts.iter().zip(&self.model.plan.items);
        items.map(|(starts, items)| items.columns.len() * items_of(starts, &packets).len()).sum()
    }

    /// Finds what tells the values of packets, column by column.
    fn columns(&mut self, packets: Range<usize>) -> Option<()> {
        self.values.clear();
        self.bits.clear();
        for (level, about) in self.layout.levels().iter().enumerate() {
            if self.model.plan.levels[level] != level {
                continue;
            }
            let above = about.parent.map(|parent| self.model.plan.levels[parent]);
            let above = above.map_or(0..0, |above| items_of(&self.starts[above], &packets));
            match about.count {
                Count::Events => self.places.set(
                    packets
                        .clone()
                        .map(|packet| items_of(&self.starts[level], &(packet..packet + 1)).len()),
                ),
                Count::Fixed(len) => {
                    self.places.set(std::iter::repeat_n(len as usize, above.len()));
                }
                Count::Column(counts) => {
                    let counts = self.model.plan.columns[counts];
                    let width = self.layout.columns()[counts].number.width();
                    let bytes = &self.batch.columns[counts];
                    self.places.set(above.clone().map(|i| load(bytes, width, i) as usize));
                }
            }
            for &column in &self.model.plan.items[level].columns {
                self.at[column] = self.values.len();
                self.column(column, level, packets.clone())?;
            }
        }
        Some(())
    }

    fn column(&mut self, column: usize, level: usize, packets: Range<usize>) -> Option<()> {
        let coder = self.finders[column].as_ref()?.coder;
        let (items, start) = (items_of(&self.starts[level], &packets), self.bits.len());
        let bytes = &self.batch.columns[column];
        load_all(bytes, coder.number.width(), items.clone(), &mut self.bits);
        self.values.resize(self.bits.len(), Value { place: 0, token: NONE, bits: 0, class: OTHER });
        let Teller { model, places, modulo, based, at, bits, values, .. } = self;
        if coder.base == Base::Place {
            places.modulo(coder.places.len(), based);
        }
        let (known, out) = values.split_at_mut_checked(start)?;
        let (table, starts) = (self.first_tables[column], &self.starts[level]);
        let work = Work {
            finder: self.finders[column].as_ref()?,
            table,
            bits,
            start,
            copies: coder.copies.iter().map(|copied| (at[copied.column], copied.shift)).collect(),
            places: based,
            ends: starts.get(packets.start + 1..packets.end + 1)?,
            first: items.start,
        };
        let counts = &mut self.counts[table..];
        match coder.context {
            Context::None => work.run(out, counts, |_, _, _| 0),
            Context::Class(other) => {
                let known = known.get(at[other]..)?;
                match model.plan.level_of(self.layout, other) == level {
                    true => work.run(out, counts, |row, _, _| known[row].class.into()),
                    false => {
                        let above = places.above.get(..items.len())?;
                        work.run(out, counts, |row, _, _| known[above[row] as usize].class.into())
                    }
                }
            }
            Context::Own => work.run(out, counts, |_, class, _| class.into()),
            Context::Run => work.run(out, counts, |_, _, run| run.into()),
            Context::Index => {
                let index = places.index.get(..items.len())?;
                work.run(out, counts, |row, _, _| index[row].into())
            }
            Context::Place(period) => {
                places.modulo(period, modulo);
                let modulo = modulo.get(..items.len())?;
                work.run(out, counts, |row, _, _| modulo[row].into())
            }
        }
    }

    /// Appends what tells a packet, of those that begin with another.
    fn put(&mut self, first: usize, packet: usize, told: &mut Told) {
        self.sink.clear();
        for (starts, own) in self.starts.iter().zip(&self.model.plan.items) {
            let items = items_of(starts, &(packet..packet + 1));
            let before = starts.get(first).map_or(0, |&first| items.start - first);
            for &column in &own.columns {
                let start = self.at[column] + before;
                for value in &self.values[start..start + items.len()] {
                    if value.token != NONE {
                        told.tokens.push(value.token);
                    }
                    put(&mut self.sink, value.place, value.bits.into());
                }
            }
        }
        told.bits.extend(self.sink.finish().iter().rev());
        told.ends.push((told.tokens.len(), told.bits.len()));
    }
}

/// A column of some packets that is told.
struct Work<'a> {
    finder: &'a Finder<'a>,
    /// The number of its first table.
    table: usize,
    /// The values of all columns so far, and where its own begin.
    bits: &'a [u64],
    start: usize,
    /// Where the columns begin that copies are of, and how many items ahead they are.
    copies: Vec<(usize, isize)>,
    /// With a base of places that of each item.
    places: &'a [u16],
    /// Where each packet ends, and the first begins, in the batch.
    ends: &'a [usize],
    first: usize,
}

impl Work<'_> {
    #[inline(always)]
    fn run(
        &self,
        out: &mut [Value],
        counts: &mut [Vec<u32>],
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        match self.copies.is_empty() && self.finder.coder.base == Base::None {
            true => self.values::<true>(out, counts, context),
            false => self.values::<false>(out, counts, context),
        }
    }

    #[inline(never)]
    fn values<const PLAIN: bool>(
        &self,
        out: &mut [Value],
        counts: &mut [Vec<u32>],
        context: impl Fn(usize, u8, u8) -> usize,
    ) -> Option<()> {
        let (finder, coder) = (self.finder, self.finder.coder);
        let mine = self.bits.get(self.start..)?;
        let mut from = 0;
        for end in self.ends {
            let items = from..end - self.first;
            let (mut class, mut run, mut before) = (OTHER, 0, 0);
            for row in items.clone() {
                let value = mine[row];
                let is_first = row == from;
                if !PLAIN && coder.base.has_first() && is_first {
                    before = coder.maps[0].to(coder.number, value)?;
                    let (place, bits) = (before.wrapping_sub(coder.first.0), coder.first.1 as u8);
                    has(place, bits).then_some(())?;
                    out[row] = Value { place, token: NONE, bits, class: OTHER };
                    continue;
                }
                if !PLAIN && coder.base == Base::Place {
                    before = coder.places[usize::from(self.places[row])];
                }
                let context = context(row, class, run);
                let same = |&(column, shift): &(usize, isize)| {
                    let other = row.wrapping_add_signed(shift);
                    items.contains(&other) && self.bits[column + other] == value
                };
                let copy = if PLAIN { None } else { self.copies.iter().position(same) };
                let (symbol, place, bits) = match copy {
                    Some(copy) => (copy, 0, 0),
                    None => finder.find(value, is_first, &mut before)?,
                };
                counts[context][symbol] = counts[context][symbol].saturating_add(1);
                class = finder.classes[symbol];
                run = if symbol < self.copies.len() { (run + 1).min(OTHER) } else { 0 };
                let token = ((self.table + context) as u32) << SYMBOL_BITS | symbol as u32;
                out[row] = Value { place, token, bits, class };
            }
            from = items.end;
        }
        Some(())
    }
}

/// Appends the values of items of a column.
fn load_all(bytes: &[u8], width: usize, items: Range<usize>, out: &mut Vec<u64>) {
    match width {
        1 => out.extend(items.map(|i| load(bytes, 1, i))),
        2 => out.extend(items.map(|i| load(bytes, 2, i))),
        4 => out.extend(items.map(|i| load(bytes, 4, i))),
        _ => out.extend(items.map(|i| load(bytes, 8, i))),
    }
}

/// Items of packets.
#[inline(always)]
fn items_of(starts: &[usize], packets: &Range<usize>) -> Range<usize> {
    match (starts.get(packets.start), starts.get(packets.end)) {
        (Some(&from), Some(&to)) => from..to,
        _ => 0..0,
    }
}

/// Whether a place has no more than so many bits.
fn has(place: u64, bits: u8) -> bool {
    bits >= 64 || place >> bits == 0
}

/// Puts so many bits, up to 64.
#[inline(always)]
fn put(sink: &mut BitSink, value: u64, bits: u32) {
    if bits <= 32 {
        return sink.put(value as u32, bits);
    }
    sink.put(value as u32, 32);
    sink.put((value >> 32) as u32, bits - 32);
}

impl Told {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all bits.
    pub fn bits(&self) -> usize {
        self.bits.len()
    }

    /// Appends packet `i`, its symbols by these tables, with what is stored of its texts between them and the bits. False where one of
    /// the symbols is not there.
    pub fn put<'a>(
        &self,
        i: usize,
        prices: &Prices,
        stored: impl Iterator<Item = &'a [u8]>,
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
    ) -> bool {
        let (tokens, bits) = if i == 0 { (0, 0) } else { self.ends[i - 1] };
        for &token in self.tokens[tokens..self.ends[i].0].iter().rev() {
            let Some((share, bits)) = prices.of(token) else { return false };
            if bits > 0 {
                encoder.put(share, bits);
            }
        }
        if prices.has_number {
            encoder.finish(out);
        }
        stored.for_each(|bytes| out.extend_from_slice(bytes));
        out.extend_from_slice(&self.bits[bits..self.ends[i].1]);
        true
    }
}

/// The shares of all symbols of all tables, for a quick look.
pub(crate) struct Prices {
    /// Where each table has its first, and where all end.
    firsts: Vec<usize>,
    /// Where the parts of a symbol start, how many they are, and the bits of the table; 11 bits each of the first two.
    shares: Vec<u32>,
    has_number: bool,
}

impl Prices {
    /// Those of the tables of all columns, in order.
    pub fn new(tables: &[Option<&Shares>]) -> Prices {
        let mut firsts = Vec::with_capacity(tables.len());
        let mut all = Vec::new();
        for shares in tables {
            firsts.push(all.len());
            let of = |shares: &Shares, symbol| {
                let (start, parts) = shares.get(symbol);
                start | parts << 11 | shares.bits() << 22
            };
            let Some(shares) = shares else { continue };
            all.extend((0..shares.count()).map(|symbol| of(shares, symbol)));
        }
        firsts.push(all.len());
        let has_number = tables.iter().flatten().any(|shares| shares.bits() > 0);
        Prices { firsts, shares: all, has_number }
    }

    #[inline(always)]
    fn of(&self, token: u32) -> Option<((u32, u32), u32)> {
        let table = (token >> SYMBOL_BITS) as usize;
        let at = self.firsts.get(table)? + (token & ((1 << SYMBOL_BITS) - 1)) as usize;
        // Of a table that is not there, or has fewer symbols, there is none.
        let share = *self.shares[..*self.firsts.get(table + 1)?].get(at)?;
        let (start, parts, bits) = (share & 0x7FF, share >> 11 & 0x7FF, share >> 22);
        (parts > 0).then_some(((start, parts), bits))
    }
}
