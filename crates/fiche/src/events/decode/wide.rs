//! Goes through a column of several packets item by item: what one has waits for nothing that others have.
#![allow(unsafe_code)]

use super::run::{Column, Lane, Out, take};
use super::several::{LANES, Several};
use super::{AT_ONCE, About, Kind, MISSING, OTHER, Symbol};
use crate::events::column::map::Map;
use crate::events::schema::Number;
use crate::model::{Bits, FIRST};

/// What is told of the items of a column, turn by turn.
#[derive(Default)]
pub(super) struct Wide {
    /// What slots say of each.
    abouts: Vec<u32>,
    /// The bits that follow.
    bits: Vec<u64>,
    /// Vectors are left alone, so that their twin is gone through: in tests.
    pub is_plain: bool,
}

/// What tables are chosen by.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    Nothing,
    /// This of each item.
    Rows(&'a [u8]),
    Places(&'a [u16]),
    /// The class of the one before.
    Own,
    /// How often in a row it was copied, which is told packet by packet.
    Run,
}

impl Column<'_> {
    /// Decodes a column without a base of several packets.
    #[inline(always)]
    pub(super) fn wide(
        &self,
        lanes: &[Lane],
        several: &mut Several,
        out: Out<'_>,
        by: By<'_>,
        wide: &mut Wide,
    ) -> Option<()> {
        let Out { values, classes } = out;
        let told = several.told();
        if wide.abouts.len() < told {
            wide.abouts.resize(told, 0);
            wide.bits.resize(told, 0);
        }
        let (abouts, bits) = (&mut wide.abouts[..told], &mut wide.bits[..told]);
        let mut is_told = false;
        #[cfg(target_arch = "x86_64")]
        if !cfg!(test) || !wide.is_plain {
            is_told = super::vectors::told(self, several, abouts, bits, values.len(), by);
        }
        if !is_told {
            match by {
                By::Rows(of) => self.told(several, abouts, bits, |row, _| of[row].into()),
                By::Places(of) => self.told(several, abouts, bits, |row, _| of[row].into()),
                By::Own => self.told(several, abouts, bits, |_, class| class.into()),
                By::Nothing | By::Run => self.told(several, abouts, bits, |_, _| 0),
            }
        }
        // Where no symbol is followed by bits, there is no telling what is there.
        let mask = if self.about.has_bits { u64::MAX } else { 0 };
        assert!(several.rows.len() == values.len() && several.told() == told);
        let told = Told { lanes, several, abouts, bits, mask };
        match self.about.is_plain {
            true => self.plain(&told, values, classes),
            false => self.values_of(&told, values, classes),
        }
    }

    /// What slots say of all items, and their bits.
    #[inline(always)]
    fn told(
        &self,
        several: &mut Several,
        abouts: &mut [u32],
        bits: &mut [u64],
        context: impl Fn(usize, u8) -> usize,
    ) {
        let Column { decoder, about, words, .. } = *self;
        let (tables, symbols) =
            (&decoder.tables[about.tables..], &decoder.symbols[about.symbols..]);
        let mut classes = [OTHER; LANES];
        for (turn, ends) in several.turns.windows(2).enumerate() {
            let turns = ends[0] as usize..ends[1] as usize;
            for (place, (told, bits)) in
                abouts[turns.clone()].iter_mut().zip(&mut bits[turns]).enumerate()
            {
                if several.items[place] as usize <= turn {
                    continue;
                }
                let number = &mut several.number[place];
                let row = several.first[place] as usize + turn;
                let table = tables[context(row, classes[place])];
                let slot =
                    decoder.slots[(table.slots + (*number & u32::from(table.mask))) as usize];
                *number = slot.next(*number, table.bits.into());
                if *number < FIRST {
                    let next = &mut several.next[place];
                    *number = *number << 16 | u32::from(words.load(*next as usize) as u16);
                    *next = next.wrapping_add(2);
                }
                let about = About(slot.about());
                (*told, classes[place]) = (about.0, about.class());
                if !self.about.has_bits {
                    continue;
                }
                let mut left = Bits::<true>::at(several.left[place] as usize);
                let count = match symbols[about.symbol()].bits {
                    more if more > AT_ONCE => more.into(),
                    _ => about.bits(),
                };
                *bits = take(&mut left, words, count);
                several.left[place] = left.pos() as u32;
            }
        }
    }

    /// The values of items all of whose symbols are plain.
    #[inline(always)]
    fn plain(&self, told: &Told<'_>, out: &mut [u64], classes: &mut [u8]) -> Option<()> {
        let symbols = &self.decoder.symbols[self.about.symbols..];
        for ((told, bits), (out, class)) in told.items().zip(out.iter_mut().zip(classes)) {
            // SAFETY: slots name symbols of their column.
            let base = unsafe { symbols.get_unchecked(told.symbol()) }.base;
            (*out, *class) = (base ^ bits << told.shift(), told.class());
        }
        Some(())
    }

    /// The values of items.
    #[inline(always)]
    fn values_of(&self, told: &Told<'_>, out: &mut [u64], classes: &mut [u8]) -> Option<()> {
        let (about, number) = (self.about, self.about.number);
        // What is scaled in one way only has a loop of its own.
        match (about.scale, number) {
            (Some(Map::Grid { low, step }), Number::F64) => {
                let scaled = |whole| Map::Grid { low, step }.scaled(Number::F64, whole);
                self.mixed(told, out, classes, |_, whole| Some(scaled(whole)))
            }
            (Some(Map::Decimal { places }), Number::F64) => {
                let scaled = |whole| Map::Decimal { places }.scaled(Number::F64, whole);
                self.mixed(told, out, classes, |_, whole| Some(scaled(whole)))
            }
            (Some(Map::Decimal { places }), Number::F32) => {
                let scaled = |whole| Map::Decimal { places }.scaled(Number::F32, whole);
                self.mixed(told, out, classes, |_, whole| Some(scaled(whole)))
            }
            _ => self.mixed(told, out, classes, |symbol, whole| {
                Some(about.maps.get(usize::from(symbol.map))?.scaled(number, whole))
            }),
        }
    }

    /// The same, with the numbers of symbols that are scaled.
    #[inline(always)]
    fn mixed(
        &self,
        told: &Told<'_>,
        out: &mut [u64],
        classes: &mut [u8],
        scaled: impl Fn(&Symbol, i64) -> Option<u64>,
    ) -> Option<()> {
        let Column { decoder, about, .. } = *self;
        let symbols = &decoder.symbols[about.symbols..];
        let classes = &mut classes[..out.len()];
        let plain = |symbol: &Symbol, about: About, bits: u64| symbol.base ^ bits << about.shift();
        if let (Some(other), Some(_)) = (self.other(out.len()), about.scale) {
            for (row, (told, bits)) in told.items().enumerate() {
                classes[row] = told.class();
                // SAFETY: slots name symbols of their column.
                let symbol = unsafe { symbols.get_unchecked(told.symbol()) };
                if told.is(Kind::Mapped) {
                    out[row] = self.mapped(symbol, bits)?;
                    continue;
                }
                // Which of these it is nobody foresees.
                let scaled = scaled(symbol, symbol.base.wrapping_add(bits) as i64)?;
                let value = if told.is(Kind::Scaled) { scaled } else { plain(symbol, told, bits) };
                out[row] = if told.is(Kind::Copy) { other[row] } else { value };
            }
            return Some(());
        }
        let mut packets = told.lanes.iter().map(|lane| lane.first..lane.last);
        let mut rows = 0..0;
        for (row, (told, bits)) in told.items().enumerate() {
            classes[row] = told.class();
            // SAFETY: slots name symbols of their column.
            let symbol = unsafe { symbols.get_unchecked(told.symbol()) };
            out[row] = if told.is_plain() {
                plain(symbol, told, bits)
            } else if told.is(Kind::Scaled) {
                scaled(symbol, symbol.base.wrapping_add(bits) as i64)?
            } else if told.is(Kind::Copy) {
                while rows.end <= row {
                    rows = packets.next()?;
                }
                self.copy(told.symbol(), row, &rows, out)?
            } else {
                self.mapped(symbol, bits)?
            };
        }
        Some(())
    }

    #[inline(always)]
    fn mapped(&self, symbol: &Symbol, bits: u64) -> Option<u64> {
        (symbol.map != MISSING).then(|| self.about.mapped(symbol, bits, 0).0)
    }

    /// The only column that this one copies from, if it is another's same item.
    #[inline(always)]
    fn other(&self, items: usize) -> Option<&[u64]> {
        let [(back @ 1.., 0)] = self.about.copies[..] else { return None };
        let start = self.before.len().checked_sub(back * items)?;
        self.before.get(start..start + items)
    }
}

/// What was told of a column's items.
struct Told<'a> {
    lanes: &'a [Lane],
    several: &'a Several,
    abouts: &'a [u32],
    bits: &'a [u64],
    mask: u64,
}

impl Told<'_> {
    /// All items in order: what the slot of each says, and its bits.
    #[inline(always)]
    fn items(&self) -> impl Iterator<Item = (About, u64)> {
        let Told { several, abouts, bits, mask, .. } = *self;
        several.rows.iter().map(move |&at| {
            let at = at as usize;
            // SAFETY: rows are told where there is something of a turn.
            let (about, bits) = unsafe { (*abouts.get_unchecked(at), *bits.get_unchecked(at)) };
            (About(about), bits & mask)
        })
    }
}
