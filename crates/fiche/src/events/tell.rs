//! Tells packets: which symbol and which bits each value is, and the bytes that these make.

use super::batch::Batch;
use super::column::{Base, Coder, Context, Copied, OTHER};
use super::model::Model;
use super::packet::{Places, based, load};
use super::schema::{Count, Layout};
use crate::model::{BitSink, Encoder, Shares};

/// What a packet tells, before it is known how dear each symbol is.
#[derive(Default)]
pub(crate) struct Told {
    /// Tables and symbols.
    tokens: Vec<u32>,
    /// Bits in order, the last one in the first byte.
    bits: Vec<u8>,
}

const SYMBOL_BITS: u32 = 10;

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
    finders: Vec<Option<Finder<'a>>>,
    first_tables: Vec<usize>,
    /// How often each symbol of each table was told.
    pub counts: Vec<Vec<u32>>,
    /// Classes of the symbols of columns that others are told by.
    classes: Vec<Vec<u8>>,
    is_asked: Vec<bool>,
    sink: BitSink,
    tokens: Vec<u32>,
}

/// Finds the symbols of a column.
struct Finder<'a> {
    coder: &'a Coder,
    width: usize,
    /// Of each map its bins' lowest integers, and the number of the first bin.
    lowers: Vec<(Vec<u64>, usize)>,
    classes: Vec<u8>,
}

impl<'a> Finder<'a> {
    fn new(coder: &'a Coder) -> Finder<'a> {
        let lowers = (0..coder.maps.len()).map(|map| {
            let those = |bin: &&super::column::bins::Bin| usize::from(bin.map) == map;
            let lowers: Vec<u64> = coder.bins.iter().filter(those).map(|bin| bin.lower).collect();
            let first = coder.bins.iter().position(|bin| usize::from(bin.map) == map);
            (lowers, first.unwrap_or(0))
        });
        let classes = (0..coder.symbols()).map(|symbol| coder.class(symbol)).collect();
        Finder { coder, width: coder.number.width(), lowers: lowers.collect(), classes }
    }

    /// The bin of an integer of a map.
    fn bin(&self, map: usize, integer: u64) -> Option<usize> {
        let (lowers, first) = &self.lowers[map];
        let place = lowers.partition_point(|&lower| lower <= integer).checked_sub(1)?;
        self.coder.bins[first + place].has(integer).then_some(first + place)
    }

    /// The symbol of the value at a place, in this row of its packet, that is no copy; its bits are put.
    fn tell(&self, bytes: &[u8], at: usize, row: usize, sink: &mut BitSink) -> Option<usize> {
        let coder = self.coder;
        let value = load(bytes, self.width, at);
        for (place, map) in coder.maps.iter().enumerate() {
            let Some(mut integer) = map.to(coder.number, value) else { continue };
            if coder.base != Base::None && row > 0 {
                let before = map.to(coder.number, load(bytes, self.width, at - 1)).unwrap_or(0);
                integer = based(coder.base, *map, coder.number, integer, before, false);
            }
            if let Some(bin) = self.bin(place, integer) {
                let found = &coder.bins[bin];
                put(sink, integer.wrapping_sub(found.lower), found.bits.into());
                return Some(coder.copies.len() + bin);
            }
        }
        put(sink, value, coder.number.bits());
        coder.has_escape.then(|| coder.symbols() - 1)
    }
}

/// Columns whose classes others are told by.
fn asked(coders: &[Option<Coder>]) -> Vec<bool> {
    let mut asked = vec![false; coders.len()];
    for coder in coders.iter().flatten() {
        if let Context::Class(other) = coder.context {
            asked[other] = true;
        }
    }
    asked
}

impl<'a> Teller<'a> {
    pub fn new(layout: &'a Layout, batch: &'a Batch, model: &'a Model) -> Teller<'a> {
        let (first_tables, tables) = first_tables(&model.coders);
        let finders: Vec<_> =
            model.coders.iter().map(|coder| coder.as_ref().map(Finder::new)).collect();
        let mut counts = Vec::with_capacity(tables);
        for coder in model.coders.iter().flatten() {
            counts.extend((0..coder.contexts()).map(|_| vec![0; coder.symbols()]));
        }
        let classes = vec![Vec::new(); finders.len()];
        let is_asked = asked(&model.coders);
        let (sink, tokens) = Default::default();
        Teller {
            layout,
            batch,
            model,
            finders,
            first_tables,
            counts,
            classes,
            is_asked,
            sink,
            tokens,
        }
    }

    /// Tells a packet: of each level the items from the first to the second of these. `None` where a value cannot be told.
    pub fn tell(&mut self, items: &[(usize, usize)]) -> Option<Told> {
        self.tokens.clear();
        self.sink.clear();
        let mut places = Places::default();
        for (level, about) in self.layout.levels().iter().enumerate() {
            if self.model.plan.levels[level] != level {
                continue;
            }
            let above = about.parent.map_or((0, 0), |parent| items[self.model.plan.levels[parent]]);
            match about.count {
                Count::Events => places.set(std::iter::once(items[level].1 - items[level].0)),
                Count::Fixed(len) => {
                    places.set(std::iter::repeat_n(len as usize, above.1 - above.0));
                }
                Count::Column(counts) => {
                    let counts = self.model.plan.columns[counts];
                    let width = self.layout.columns()[counts].number.width();
                    let bytes = &self.batch.columns[counts];
                    places.set((above.0..above.1).map(|i| load(bytes, width, i) as usize));
                }
            }
            for &column in &self.model.plan.items[level].columns {
                self.column(column, level, items[level], &places)?;
            }
        }
        let mut bits = self.sink.finish().to_vec();
        bits.reverse();
        Some(Told { tokens: self.tokens.clone(), bits })
    }

    fn column(
        &mut self,
        column: usize,
        level: usize,
        (start, end): (usize, usize),
        places: &Places,
    ) -> Option<()> {
        let finder = self.finders[column].as_ref()?;
        let coder = finder.coder;
        let bytes: &[u8] = &self.batch.columns[column];
        let table = self.first_tables[column];
        let (mut class, mut run) = (OTHER, 0);
        let mut mine = std::mem::take(&mut self.classes[column]);
        mine.clear();
        for at in start..end {
            let row = at - start;
            if coder.base != Base::None && row == 0 {
                let (low, bits) = coder.first;
                let integer = coder.maps[0].to(coder.number, load(bytes, finder.width, at))?;
                put(&mut self.sink, integer.wrapping_sub(low), bits).then_some(())?;
                mine.push(OTHER);
                continue;
            }
            let context = match coder.context {
                Context::None => 0,
                Context::Class(other) if self.model.plan.level_of(self.layout, other) == level => {
                    self.classes[other][row]
                }
                Context::Class(other) => self.above(other, level, row, places)?,
                Context::Own => class,
                Context::Run => run,
                Context::Index => places.index[row],
            };
            let value = load(bytes, finder.width, at);
            let same = |copied: &Copied| {
                let other = at.wrapping_add_signed(copied.shift);
                (start..end).contains(&other)
                    && load(&self.batch.columns[copied.column], finder.width, other) == value
            };
            let symbol = match coder.copies.iter().position(same) {
                Some(copy) => copy,
                None => finder.tell(bytes, at, row, &mut self.sink)?,
            };
            let table = table + usize::from(context);
            self.counts[table][symbol] += 1;
            self.tokens.push((table as u32) << SYMBOL_BITS | symbol as u32);
            class = finder.classes[symbol];
            run = if symbol < coder.copies.len() { (run + 1).min(OTHER) } else { 0 };
            if self.is_asked[column] {
                mine.push(class);
            }
        }
        self.classes[column] = mine;
        Some(())
    }

    /// The class of what a column on a level above has for this item.
    fn above(&self, other: usize, level: usize, row: usize, places: &Places) -> Option<u8> {
        let parent = self.model.plan.levels[self.layout.levels()[level].parent?];
        let is_next = self.model.plan.level_of(self.layout, other) == parent;
        is_next.then(|| self.classes[other][places.above[row] as usize])
    }
}

/// Puts so many bits, up to 64; false where the value has more.
fn put(sink: &mut BitSink, value: u64, bits: u32) -> bool {
    if bits < 64 && value >> bits > 0 {
        return false;
    }
    sink.put(value as u32 & !u32::MAX.checked_shl(bits.min(32)).unwrap_or(0), bits.min(32));
    if bits > 32 {
        sink.put((value >> 32) as u32, bits - 32);
    }
    true
}

impl Told {
    /// Bytes of its bits.
    pub fn bits(&self) -> usize {
        self.bits.len()
    }

    /// Appends the packet, its symbols by these tables. False where one of them is not there.
    pub fn put(
        &self,
        tables: &[Option<&Shares>],
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
    ) -> bool {
        for token in self.tokens.iter().rev() {
            let Some(shares) = &tables[(token >> SYMBOL_BITS) as usize] else { return false };
            let (start, parts) = shares.get((token & ((1 << SYMBOL_BITS) - 1)) as usize);
            if parts == 0 {
                return false;
            }
            if shares.bits() > 0 {
                encoder.put((start, parts), shares.bits());
            }
        }
        if tables.iter().flatten().any(|shares| shares.bits() > 0) {
            encoder.finish(out);
        }
        out.extend_from_slice(&self.bits);
        true
    }
}
