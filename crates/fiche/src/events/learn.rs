//! Learns a model from events: which columns are the same, and what codes each of the others in the fewest bits.
//!
//! What codes a column is chosen by the bits that it takes, on a sample of packets: of maps, of copies, of differences, then of
//! contexts. How often each symbol is told is counted over all packets afterwards.

mod places;

use std::collections::HashMap;

use super::batch::Batch;
use super::column::bins::{Bin, cut, log2};
use super::column::grid;
use super::column::map::Map;
use super::column::{Base, CLASSES, Coder, Context, Copied, MOST_COPIES, MOST_MAPS, OTHER};
use super::model::Plan;
use super::packet::{self, load};
use super::schema::{Count, Layout, Number, Role};
use crate::error::{Error, Result};
use crate::model::MOST_SYMBOLS;

/// Items of a level in a sample.
const SAMPLE: usize = 8 << 10;
/// Items of a level at most, however many a packet has.
const MOST: usize = 128 << 10;
/// A packet is in the sample if it has this part of a level's items, up to so many packets.
const LARGE: usize = 16;
const MOST_LARGE: usize = 256;
/// Columns of events that may have several tables each.
const FEW: usize = 8192;
/// Tables that are chosen by places, of all columns.
const MOST_TABLES: usize = 1 << 16;
/// Bits that a bin takes in a model, with what its shares take.
const BIN: f64 = 14.0;
/// Bits that a symbol takes in one more table.
const SYMBOL: f64 = 7.0;
/// Of columns before one, how many are looked at for a context.
const NEAR: usize = 40;
/// The same for copies, where a look is short.
const MOST_NEAR: usize = 100;
/// Items that are compared at first, where columns are looked for that have the same values.
const GLANCE: usize = 192;

/// Bits that a bin costs, and each bit by which it is smaller than others.
#[derive(Clone, Copy)]
struct Price {
    bin: f64,
    bit: f64,
}

/// Which levels and columns of a batch are the same as others.
pub(super) fn plan(layout: &Layout, batch: &Batch) -> Result<Plan> {
    let failed = || Error::invalid("a batch of another layout");
    let mut levels: Vec<usize> = (0..layout.levels().len()).collect();
    let mut columns: Vec<usize> = (0..layout.columns().len()).collect();
    let mut known: HashMap<(usize, Number, u32), Vec<usize>> = HashMap::new();
    let mut counted: HashMap<(usize, bool), usize> = HashMap::new();
    let mut fixed: HashMap<(usize, u32), usize> = HashMap::new();
    let mut next = 1;
    for (i, column) in layout.columns().iter().enumerate() {
        // Levels come behind the columns that count their items, and before those on them.
        while next < levels.len() && next <= column.level {
            let level = &layout.levels()[next];
            let above = level.parent.map(|parent| levels[parent]).ok_or_else(failed)?;
            levels[next] = match level.count {
                Count::Fixed(len) => *fixed.entry((above, len)).or_insert(next),
                Count::Column(counts) => {
                    let is_presence = layout.columns()[counts].role == Role::Presence;
                    *counted.entry((columns[counts], is_presence)).or_insert(next)
                }
                Count::Events => next,
            };
            next += 1;
        }
        let bytes = batch.bytes(i);
        let key = (levels[column.level], column.number, crate::wire::crc32c(bytes));
        let same = known.entry(key).or_default();
        // Nothing is the same as nothing, for all that is known of what will come.
        match same.iter().find(|&&other| !bytes.is_empty() && batch.bytes(other) == bytes) {
            Some(&other) => columns[i] = other,
            None => same.push(i),
        }
    }
    Plan::new(layout, levels, columns).ok_or_else(failed)
}

/// Where each level has its first item of each packet, and behind the last.
pub(super) fn starts(
    layout: &Layout,
    plan: &Plan,
    batch: &Batch,
    events: usize,
) -> Vec<Vec<usize>> {
    let all = batch.len();
    let mut starts: Vec<Vec<usize>> = Vec::with_capacity(layout.levels().len());
    for (i, level) in layout.levels().iter().enumerate() {
        let same = plan.levels[i];
        let above = level.parent.map_or(0, |parent| plan.levels[parent]);
        starts.push(match level.count {
            _ if same != i => Vec::new(),
            Count::Events => (0..all).step_by(events).chain([all]).collect(),
            Count::Fixed(len) => {
                starts[above].iter().map(|start| start.saturating_mul(len as usize)).collect()
            }
            Count::Column(counts) => {
                let counts = plan.columns[counts];
                let (bytes, width) = (batch.bytes(counts), layout.columns()[counts].number.width());
                let (mut at, mut sum) = (0, 0);
                let mut here = Vec::with_capacity(starts[above].len());
                for &start in &starts[above] {
                    sum += (at..start).map(|i| load(bytes, width, i) as usize).sum::<usize>();
                    at = start;
                    here.push(sum);
                }
                here
            }
        });
    }
    starts
}

/// Items of a level that are looked at.
#[derive(Default)]
struct Seen {
    /// Of each: its number in all, in its packet, in its list, and of the item above in that one's.
    items: Vec<usize>,
    rows: Vec<u32>,
    /// Items of the packet from this one on.
    left: Vec<u32>,
    index: Vec<u32>,
    above: Vec<u32>,
    /// How many there are of each packet.
    shown: Vec<usize>,
    /// Items of all packets for each of these.
    scale: f64,
}

/// How many items a level has for some of the level above.
fn items_below(
    layout: &Layout,
    plan: &Plan,
    batch: &Batch,
    count: Count,
    items: std::ops::Range<usize>,
) -> usize {
    match count {
        Count::Fixed(len) => items.len().saturating_mul(len as usize),
        Count::Column(counts) => {
            let counts = plan.columns[counts];
            let (bytes, width) = (batch.bytes(counts), layout.columns()[counts].number.width());
            items.map(|item| load(bytes, width, item) as usize).sum()
        }
        Count::Events => 0,
    }
}

impl Seen {
    /// Whether the item that is so many ahead is of the same packet.
    fn is_in(&self, i: usize, shift: isize) -> bool {
        let (row, left) = (self.rows[i] as isize, self.left[i] as isize);
        row + shift >= 0 && shift < left
    }
}

/// Learns what codes the columns of a batch that have their own values. Shares are not known yet.
pub(super) struct Learner<'a> {
    layout: &'a Layout,
    plan: &'a Plan,
    batch: &'a Batch,
    seen: Vec<Seen>,
    /// Values of each column where they were looked at.
    values: Vec<Vec<u64>>,
    /// Classes of their symbols.
    classes: Vec<Vec<u8>>,
    /// Tables that may yet be chosen by places.
    tables: usize,
}

impl<'a> Learner<'a> {
    /// Looks at some packets of those that begin at `starts`.
    pub fn new(
        layout: &'a Layout,
        plan: &'a Plan,
        batch: &'a Batch,
        starts: &[Vec<usize>],
    ) -> Learner<'a> {
        let packets = starts[0].len() - 1;
        let most = (0..starts.len()).map(|level| starts[level].last().copied().unwrap_or(0)).max();
        // As many packets as give a sample of the level with most items, but enough for that of the events.
        let most = most.unwrap_or(0).max(1);
        let fair = (packets as u128 * SAMPLE as u128).div_ceil(most as u128) as usize;
        let few = (packets as u128 * MOST as u128 / most as u128) as usize;
        let wanted = packets.min(fair.max(few.min(24)).max(1));
        let mut chosen: Vec<usize> = (0..wanted).map(|i| i * packets / wanted.max(1)).collect();
        // Where a few have most of a level's items, these tell what they are like.
        let large = starts.iter().flat_map(|starts| {
            let part = starts.last().copied().unwrap_or(0).div_ceil(LARGE).max(1);
            let items = starts.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
            items.filter(move |&(_, items)| items >= part).map(|(packet, _)| packet)
        });
        chosen.extend(large.take(MOST_LARGE));
        chosen.sort_unstable();
        chosen.dedup();
        let mut seen: Vec<Seen> = Vec::with_capacity(starts.len());
        for (i, level) in layout.levels().iter().enumerate() {
            if plan.levels[i] != i {
                seen.push(Seen::default());
                continue;
            }
            let mut here = Seen::default();
            let above = level.parent.map(|parent| plan.levels[parent]);
            let mut parent = 0u32;
            for (k, &packet) in chosen.iter().enumerate() {
                // Of a packet with very many items the first.
                let start = starts[i][packet];
                let mut end = starts[i][packet + 1].min(start + MOST);
                let items = above.map(|above: usize| {
                    let first = starts[above][packet];
                    first..first + seen[above].shown[k]
                });
                if let Some(items) = &items {
                    end = end
                        .min(start + items_below(layout, plan, batch, level.count, items.clone()));
                }
                here.shown.push(end - start);
                let first = here.items.len();
                here.items.extend(start..end);
                here.rows.extend((0..end - start).map(|row| row as u32));
                here.left.extend((0..end - start).map(|row| (end - start - row) as u32));
                let Some(items) = items else {
                    here.index.extend((0..end - start).map(|row| row as u32));
                    continue;
                };
                for item in items {
                    let room = here.items.len() - here.index.len();
                    let count = items_below(layout, plan, batch, level.count, item..item + 1);
                    let count = count.min(room);
                    here.index.extend(0..count as u32);
                    here.above.extend(std::iter::repeat_n(parent, count));
                    parent += 1;
                }
                debug_assert_eq!(here.index.len(), here.items.len());
                debug_assert!(first <= here.items.len());
            }
            let all = starts[i].last().copied().unwrap_or(0) as f64;
            here.scale = (all / here.items.len().max(1) as f64).max(1.0);
            seen.push(here);
        }
        let values = layout.columns().iter().enumerate().map(|(i, column)| {
            let (width, bytes) = (column.number.width(), batch.bytes(i));
            let is_own = plan.columns[i] == i;
            let items = &seen[plan.levels[column.level]].items;
            let items = if is_own { &items[..] } else { &[] };
            items.iter().map(|&item| load(bytes, width, item)).collect()
        });
        let values = values.collect();
        let classes = vec![Vec::new(); layout.columns().len()];
        Learner { layout, plan, batch, seen, values, classes, tables: MOST_TABLES }
    }

    /// The coders of all columns that have one.
    pub fn coders(mut self) -> Vec<Option<Coder>> {
        (0..self.layout.columns().len())
            .map(|column| (self.plan.columns[column] == column).then(|| self.coder(column)))
            .collect()
    }

    fn coder(&mut self, column: usize) -> Coder {
        let about = &self.layout.columns()[column];
        let (number, level) = (about.number, self.plan.levels[about.level]);
        let seen = &self.seen[level];
        let values = &self.values[column];
        // A bin for less would be one for what is in the sample by chance.
        let price = Price { bin: (BIN / seen.scale).max(5.0), bit: 1.0 / seen.scale };
        let maps = self.maps(column, price);
        let plain = binned(values, values.len(), number, &maps, price);
        let mut best = (plain.1, Base::None, Vec::new(), maps.clone(), plain.0);
        // Copies.
        let (copies, counts, rest) =
            self.copies(column, level, plain.1 / values.len().max(1) as f64);
        if !copies.is_empty() {
            let (bins, cost) = binned(&rest, values.len(), number, &maps, price);
            let total = values.len() as f64;
            let told =
                counts.iter().filter(|&&n| n > 0).map(|&n| n as f64 * (total / n as f64).log2());
            let cost = cost + told.sum::<f64>() + price.bin * copies.len() as f64;
            if cost < best.0 {
                best = (cost, Base::None, copies, maps.clone(), bins);
            }
        }
        // Differences.
        if number.bits() > 1 && values.len() > 1 {
            for (base, map) in self.bases(column, &maps) {
                let (bins, cost) = self.based(column, level, base, map, price);
                if cost < best.0 - price.bin {
                    best = (cost, base, Vec::new(), vec![map], bins);
                }
            }
        }
        let mut places = Vec::new();
        if let Some(period) = self.period(level)
            && number.bits() > 1
            && best.0 > 64.0 / seen.scale
        {
            for map in self.whole_maps(column, &maps) {
                // What some arrays have in common by chance is not in others: each half is told by the other one's.
                let halves = [0, 1]
                    .map(|half| self.places(column, level, map, period, |array| array % 2 != half));
                let by_other = |array: u32| &halves[array as usize % 2][..];
                let (_, cost) = self.placed(column, level, map, by_other, price);
                if cost < best.0 - price.bin {
                    places = self.places(column, level, map, period, |_| true);
                    let (bins, _) = self.placed(column, level, map, |_| &places, price);
                    best = (cost, Base::Place, Vec::new(), vec![map], bins);
                }
            }
        }
        let (_, base, copies, maps, bins) = best;
        let first = if base.has_first() { self.first(column, maps[0]) } else { (0, 0) };
        let mut coder = Coder {
            number,
            base,
            first,
            places,
            copies,
            maps,
            bins,
            has_escape: true,
            named: Vec::new(),
            context: Context::None,
            shares: Vec::new(),
        };
        let symbols = self.symbols(column, level, &coder);
        self.name(&mut coder, &symbols);
        self.context(column, level, &mut coder, &symbols);
        coder
    }

    /// The maps of a column: those that take the fewest bits.
    fn maps(&self, column: usize, price: Price) -> Vec<Map> {
        let number = self.layout.columns()[column].number;
        let values = &self.values[column];
        let whole = Map::Ordered { shift: 0 };
        if number.bits() == 1 || values.is_empty() {
            return vec![whole];
        }
        // Maps differ by much where they differ: some values tell it.
        const SOME: usize = 4096;
        let step = (values.len() / SOME).max(1);
        let some: Vec<u64> = values.iter().copied().step_by(step).collect();
        let price = Price { bin: (price.bin / step as f64).max(5.0), bit: price.bit / step as f64 };
        let cost = |maps: &[Map]| binned(&some, some.len(), number, maps, price).1;
        let mut best = (cost(&[whole]), vec![whole]);
        let mut try_those = |maps: Vec<Map>| {
            let bits = cost(&maps);
            if bits < best.0 - price.bin {
                best = (bits, maps);
            }
        };
        // Numbers whose lowest bits are zero, all of them or some.
        let mut zeros: Vec<u32> = values
            .iter()
            .filter(|&&value| value != 0)
            .map(|value| value.trailing_zeros())
            .collect();
        zeros.sort_unstable();
        let mut shifts: Vec<u32> = [0, 1, 4, 8, 16]
            .iter()
            .filter_map(|part| zeros.get(zeros.len() * part / 17))
            .copied()
            .collect();
        if number == Number::F64 {
            shifts.push(29);
        }
        shifts.retain(|&shift| shift >= 3 && shift < number.bits());
        shifts.sort_unstable();
        shifts.dedup();
        for &shift in &shifts {
            try_those(vec![Map::Ordered { shift }, whole]);
        }
        if matches!(number, Number::F32 | Number::F64) {
            // Decimals: each value by as few places as it has.
            let most = if number == Number::F32 { 6 } else { 15 };
            let mut places = [0usize; 16];
            for &value in values {
                let found = (0..=most).find(|&places| {
                    let limit = 1u64 << if number == Number::F32 { 24 } else { 50 };
                    let integer = Map::Decimal { places }.to(number, value);
                    integer.is_some_and(|m| m.abs_diff(1 << 53) < limit)
                });
                if let Some(found) = found {
                    places[found as usize] += 1;
                }
            }
            let some = |&place: &u32| places[place as usize] * 40 > values.len();
            let found: Vec<u32> = (0..=most).filter(some).take(MOST_MAPS - 1).collect();
            if !found.is_empty() {
                let maps = found.iter().map(|&places| Map::Decimal { places });
                try_those(maps.chain([whole]).collect());
                // All of them by as many places as the longest has.
                let longest = found[found.len() - 1];
                try_those(vec![Map::Decimal { places: longest }, whole]);
            }
        }
        // Where most bits tell something and yet numbers are far apart.
        if let Some(map) = (number == Number::F64).then(|| grid::find(values)).flatten() {
            try_those(vec![map, whole]);
        }
        best.1
    }

    /// Values that were there before, where those of a column are often the same: copies, how often each is the first that fits, and
    /// the values that are none. `fresh`: bits that a value takes otherwise.
    fn copies(
        &self,
        column: usize,
        level: usize,
        fresh: f64,
    ) -> (Vec<Copied>, Vec<usize>, Vec<u64>) {
        let seen = &self.seen[level];
        let values = &self.values[column];
        let number = self.layout.columns()[column].number;
        let n = values.len();
        if fresh < 1.5 || n < 16 || number.bits() == 1 {
            return (Vec::new(), Vec::new(), Vec::new());
        }
        let others = self.plan.items[level].columns.iter().rev().copied();
        let others = others
            .filter(|&other| other <= column && self.layout.columns()[other].number == number);
        let others: Vec<usize> = others.take(MOST_NEAR).collect();
        let fits = |copied: &Copied, i: usize| {
            seen.is_in(i, copied.shift)
                && self.values[copied.column][i.wrapping_add_signed(copied.shift)] == values[i]
        };
        let step = (n / GLANCE).max(1);
        let mut found = Vec::new();
        for &other in others.iter().rev() {
            for shift in -2..=2 {
                if other == column && shift >= 0 {
                    continue;
                }
                let copied = Copied { column: other, shift };
                // Even and odd ones, that packets of two to some events are met at all of their rows.
                let places = (0..GLANCE).map(|i| (i * step + i % 2) % n);
                let hits = places.filter(|&i| fits(&copied, i)).count();
                if hits * 50 >= GLANCE {
                    let fitting: Vec<bool> = (0..n).map(|i| fits(&copied, i)).collect();
                    found.push((copied, fitting));
                }
            }
        }
        let mut left = vec![true; n];
        let (mut copies, mut counts) = (Vec::new(), Vec::new());
        while copies.len() < MOST_COPIES {
            let gain =
                |fitting: &[bool]| fitting.iter().zip(&left).filter(|&(&a, &b)| a && b).count();
            let Some((best, gained)) = found
                .iter()
                .map(|(_, fitting)| gain(fitting))
                .enumerate()
                .max_by_key(|&(i, gained)| (gained, usize::MAX - i))
            else {
                break;
            };
            // Another symbol makes all others a little dearer.
            if gained as f64 * (fresh - 1.0) < 0.02 * n as f64 + 24.0 || gained * 100 < n {
                break;
            }
            let (copied, fitting) = found.swap_remove(best);
            left.iter_mut().zip(&fitting).for_each(|(left, fits)| *left &= !fits);
            copies.push(copied);
            counts.push(gained);
        }
        let rest = values.iter().zip(&left).filter(|(_, left)| **left).map(|(&value, _)| value);
        (copies, counts, rest.collect())
    }

    /// With what the value before may be told from this one: only in maps that have an integer for every value.
    fn bases(&self, column: usize, maps: &[Map]) -> Vec<(Base, Map)> {
        let whole = Map::Ordered { shift: 0 };
        let mut all = vec![(Base::Minus, whole), (Base::Xor, whole)];
        let others = self.whole_maps(column, maps).into_iter().filter(|&map| map != whole);
        all.extend(others.map(|map| (Base::Minus, map)));
        all
    }

    /// The whole numbers, and of these maps the last that has an integer for every value of a column.
    fn whole_maps(&self, column: usize, maps: &[Map]) -> Vec<Map> {
        let number = self.layout.columns()[column].number;
        let whole = Map::Ordered { shift: 0 };
        let (width, bytes) = (number.width(), self.batch.bytes(column));
        let every = |map: Map| {
            let mut values = (0..bytes.len() / width).map(|i| load(bytes, width, i));
            values.all(|value| map.to(number, value).is_some())
        };
        let sampled =
            |map: &Map| self.values[column].iter().all(|&value| map.to(number, value).is_some());
        let other = maps.iter().rev().find(|&&map| map != whole && sampled(&map));
        std::iter::once(whole).chain(other.filter(|&&map| every(map)).copied()).collect()
    }

    /// Bins of differences, and the bits that these take with the first values.
    fn based(
        &self,
        column: usize,
        level: usize,
        base: Base,
        map: Map,
        price: Price,
    ) -> (Vec<Bin>, f64) {
        let number = self.layout.columns()[column].number;
        let (seen, values) = (&self.seen[level], &self.values[column]);
        let integer = |i: usize| map.to(number, values[i]).unwrap_or(0);
        let mut told: Vec<u64> = (0..values.len())
            .filter(|&i| seen.rows[i] > 0)
            .map(|i| packet::based(base, map, number, integer(i), integer(i - 1), false))
            .collect();
        told.sort_unstable();
        let bins = cut_at_most(&told, values.len(), price);
        let firsts = values.len() - told.len();
        // The range of all values may be some larger than that of these.
        let bits = range((0..values.len()).map(integer)).1;
        (bins.0, bins.1 + firsts as f64 * f64::from(bits))
    }

    /// The lowest integer of all values, and how many bits there are to the highest.
    fn first(&self, column: usize, map: Map) -> (u64, u32) {
        let number = self.layout.columns()[column].number;
        let (width, bytes) = (number.width(), self.batch.bytes(column));
        range((0..bytes.len() / width).filter_map(|i| map.to(number, load(bytes, width, i))))
    }

    /// The symbol of each value that was looked at; `None` for those without one.
    fn symbols(&self, column: usize, level: usize, coder: &Coder) -> Vec<Option<usize>> {
        let (seen, values) = (&self.seen[level], &self.values[column]);
        let number = coder.number;
        let mut firsts = vec![0; coder.maps.len()];
        for (map, first) in firsts.iter_mut().enumerate() {
            *first = coder.bins.partition_point(|bin| usize::from(bin.map) < map);
        }
        (0..values.len())
            .map(|i| {
                let (value, row) = (values[i], seen.rows[i] as usize);
                if coder.base.has_first() && row == 0 {
                    return None;
                }
                let copy = coder.copies.iter().position(|copied| {
                    seen.is_in(i, copied.shift)
                        && self.values[copied.column][i.wrapping_add_signed(copied.shift)] == value
                });
                if copy.is_some() {
                    return copy;
                }
                for (place, &map) in coder.maps.iter().enumerate() {
                    let Some(mut integer) = map.to(number, value) else { continue };
                    if coder.base != Base::None {
                        let before = match coder.base {
                            Base::Place => {
                                coder.places[seen.index[i] as usize % coder.places.len()]
                            }
                            _ => map.to(number, values[i - 1]).unwrap_or(0),
                        };
                        integer = packet::based(coder.base, map, number, integer, before, false);
                    }
                    let those = &coder.bins[firsts[place]..];
                    let bin = those.partition_point(|bin| {
                        usize::from(bin.map) == place && bin.lower <= integer
                    });
                    if bin > 0 && those[bin - 1].has(integer) {
                        return Some(coder.copies.len() + firsts[place] + bin - 1);
                    }
                }
                Some(coder.symbols() - 1)
            })
            .collect()
    }

    /// Gives the symbols that are told most classes of their own.
    fn name(&self, coder: &mut Coder, symbols: &[Option<usize>]) {
        let mut counts = vec![0usize; coder.symbols()];
        symbols.iter().flatten().for_each(|&symbol| counts[symbol] += 1);
        let mut order: Vec<usize> =
            (0..counts.len()).filter(|&symbol| counts[symbol] * 200 > symbols.len()).collect();
        order.sort_by_key(|&symbol| usize::MAX - counts[symbol]);
        order.truncate(CLASSES - 1);
        coder.named = order;
    }

    /// Chooses what tables are chosen by.
    fn context(
        &mut self,
        column: usize,
        level: usize,
        coder: &mut Coder,
        symbols: &[Option<usize>],
    ) {
        let seen = &self.seen[level];
        let classes: Vec<u8> = symbols
            .iter()
            .map(|symbol| symbol.map_or(OTHER, |symbol| coder.class(symbol)))
            .collect();
        let told: Vec<(usize, usize)> = symbols
            .iter()
            .enumerate()
            .filter_map(|(i, symbol)| symbol.map(|symbol| (i, symbol)))
            .collect();
        let all = coder.symbols();
        let mut counts = Vec::new();
        let mut cost = |contexts: usize, context: &dyn Fn(usize) -> usize| -> f64 {
            counts.clear();
            counts.resize(contexts * all, 0u32);
            for &(i, symbol) in &told {
                counts[context(i) * all + symbol] += 1;
            }
            let bits = counts.chunks(all.max(1)).map(|counts| {
                let total: u32 = counts.iter().sum();
                let there = counts.iter().filter(|&&count| count > 0);
                let total = log2(total as usize);
                let bits = there.map(|&count| {
                    f64::from(count) * (total - log2(count as usize)) + SYMBOL / seen.scale
                });
                bits.sum::<f64>()
            });
            bits.sum()
        };
        let mut best = (cost(1, &|_| 0), Context::None);
        // What hardly differs has nothing to gain.
        if best.0 > 64.0 / seen.scale && self.layout.columns().len() <= FEW {
            let margin = 16.0 / seen.scale;
            let own =
                |i: usize| usize::from(if seen.rows[i] == 0 { OTHER } else { classes[i - 1] });
            let mut runs = vec![0u8; symbols.len()];
            for i in 1..symbols.len() {
                let is_copy = symbols[i - 1].is_some_and(|symbol| symbol < coder.copies.len());
                runs[i] = match seen.rows[i] {
                    0 => 0,
                    _ if is_copy => (runs[i - 1] + 1).min(OTHER),
                    _ => 0,
                };
            }
            let mut consider = |bits: f64, context: Context| {
                if bits < best.0 - margin {
                    best = (bits, context);
                }
            };
            consider(cost(CLASSES, &own), Context::Own);
            if !coder.copies.is_empty() {
                consider(cost(CLASSES, &|i| runs[i].into()), Context::Run);
            }
            let last = CLASSES - 1;
            consider(cost(CLASSES, &|i| last.min(seen.index[i] as usize)), Context::Index);
            let period = self.period(level).unwrap_or(0);
            if period > CLASSES && period <= self.tables {
                consider(self.cost_by_place(level, period, &told, all), Context::Place(period));
            }
            let before =
                self.plan.items[level].columns.iter().rev().filter(|&&other| other < column);
            let telling =
                |&&other: &&usize| self.classes[other].windows(2).any(|pair| pair[0] != pair[1]);
            for &other in before.filter(telling).take(NEAR) {
                let classes = &self.classes[other];
                consider(cost(CLASSES, &|i| classes[i].into()), Context::Class(other));
            }
            if let Some(parent) = self.layout.levels()[level].parent {
                let parent = self.plan.levels[parent];
                for &other in self.plan.items[parent].columns.iter().filter(telling).take(NEAR) {
                    let classes = &self.classes[other];
                    let class = |i: usize| usize::from(classes[seen.above[i] as usize]);
                    consider(cost(CLASSES, &class), Context::Class(other));
                }
            }
        }
        coder.context = best.1;
        if let Context::Place(period) = best.1 {
            self.tables -= period;
        }
        self.classes[column] = classes;
    }
}

/// The lowest of these, and how many bits there are to the highest.
fn range(integers: impl Iterator<Item = u64>) -> (u64, u32) {
    let (low, high) = integers.fold((u64::MAX, 0), |(low, high), m| (low.min(m), high.max(m)));
    match high.checked_sub(low) {
        Some(0) | None => (low.min(high), 0),
        Some(range) => (low, range.ilog2() + 1),
    }
}

/// Bins of values by maps, each by the first that has an integer for it, and the bits that they take of `total` symbols.
fn binned(
    values: &[u64],
    total: usize,
    number: Number,
    maps: &[Map],
    price: Price,
) -> (Vec<Bin>, f64) {
    let mut integers: Vec<Vec<u64>> = vec![Vec::new(); maps.len()];
    for &value in values {
        let found =
            maps.iter().enumerate().find_map(|(i, map)| map.to(number, value).map(|m| (i, m)));
        if let Some((i, integer)) = found {
            integers[i].push(integer);
        }
    }
    integers.iter_mut().for_each(|integers| integers.sort_unstable());
    let mut price = price;
    loop {
        let (mut bins, mut cost) = (Vec::new(), 0.0);
        for (i, integers) in integers.iter().enumerate() {
            cost += cut(integers, total, (price.bin, price.bit), i as u8, &mut bins);
        }
        if bins.len() <= MOST_SYMBOLS / 2 {
            return (bins, cost);
        }
        price.bin *= 1.5;
    }
}

/// Bins of integers that are sorted, and the bits that they take of `total` symbols.
fn cut_at_most(sorted: &[u64], total: usize, price: Price) -> (Vec<Bin>, f64) {
    let mut price = price;
    loop {
        let mut bins = Vec::new();
        let cost = cut(sorted, total, (price.bin, price.bit), 0, &mut bins);
        if bins.len() <= MOST_SYMBOLS / 4 {
            return (bins, cost);
        }
        price.bin *= 1.5;
    }
}
