//! Goes through a column of several packets item by item: what one has waits for nothing that others have.
#![allow(unsafe_code)]

use super::run::{At, Column, Lane, take};
use super::{AT_ONCE, About, Kind, MISSING, OTHER};
use crate::model::FIRST;

/// What packets are gone through with.
#[derive(Default)]
pub(super) struct Wide {
    /// The items of a level, in turns: the first of each packet, the second of each, and so on.
    turns: Vec<Turn>,
    /// Packets that have more items.
    more: Vec<(u32, u32, u32)>,
    /// What slots say of each item.
    abouts: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Turn {
    row: u32,
    packet: u32,
}

/// What tables are chosen by.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    Nothing,
    /// This of each item.
    Rows(&'a [u8]),
    /// The class of the one before.
    Own,
}

impl Wide {
    /// The items that packets have of a level.
    pub fn turns(&mut self, packets: &[Lane]) {
        self.turns.clear();
        let items = |packet: &Lane| packet.last - packet.first;
        let each = packets.first().map_or(0, items);
        if packets.iter().all(|packet| items(packet) == each) {
            let (each, count) = (each as u32, packets.len() as u32);
            self.turns.reserve((each * count) as usize);
            for i in 0..each {
                let turn = |packet| Turn { row: packet * each + i, packet };
                self.turns.extend((0..count).map(turn));
            }
            return;
        }
        let some = packets.iter().zip(0..).filter(|(packet, _)| items(packet) > 0);
        let some = some.map(|(packet, i)| (packet.first as u32, packet.last as u32, i));
        self.more.clear();
        self.more.extend(some);
        while !self.more.is_empty() {
            self.turns.extend(self.more.iter().map(|&(row, _, packet)| Turn { row, packet }));
            self.more.iter_mut().for_each(|(row, _, _)| *row += 1);
            self.more.retain(|&(row, end, _)| row < end);
        }
    }
}

impl Column<'_> {
    /// Decodes a column without a base of several packets.
    #[inline(always)]
    pub(super) fn wide(
        &self,
        lanes: &[Lane],
        ats: &mut [At],
        out: &mut [u64],
        classes: &mut [u8],
        wide: &mut Wide,
        by: By<'_>,
    ) -> Option<()> {
        // The turns are theirs.
        assert!(ats.len() == lanes.len());
        wide.abouts.resize(out.len(), 0);
        match by {
            By::Nothing => self.told_bits(ats, out, wide, |_, _| 0),
            By::Rows(of) => {
                let of = of.get(..out.len())?;
                // SAFETY: turns are of rows that are there.
                self.told_bits(ats, out, wide, |row, _| unsafe { *of.get_unchecked(row) }.into());
            }
            By::Own => {
                ats.iter_mut().for_each(|at| at.class = OTHER);
                self.told_bits(ats, out, wide, |_, class| class.into());
            }
        }
        match self.about.is_plain {
            true => {
                self.plain(out, classes, &wide.abouts);
                Some(())
            }
            false => self.values_of(lanes, out, classes, &wide.abouts),
        }
    }

    #[inline(always)]
    fn told_bits(
        &self,
        ats: &mut [At],
        out: &mut [u64],
        wide: &mut Wide,
        context: impl Fn(usize, u8) -> usize,
    ) {
        match self.about.has_bits {
            true => self.told::<true>(ats, out, wide, context),
            false => self.told::<false>(ats, out, wide, context),
        }
    }

    /// What slots say of all items, and their bits.
    #[inline(always)]
    fn told<const BITS: bool>(
        &self,
        ats: &mut [At],
        out: &mut [u64],
        wide: &mut Wide,
        context: impl Fn(usize, u8) -> usize,
    ) {
        let Column { decoder, about, words, .. } = *self;
        let Wide { turns, abouts, .. } = wide;
        let (tables, symbols) =
            (&decoder.tables[about.tables..], &decoder.symbols[about.symbols..]);
        let (slots, has_long) = (&decoder.slots[..], about.has_long);
        assert!(turns.len() == out.len() && turns.len() == abouts.len());
        for &Turn { row, packet } in &*turns {
            let row = row as usize;
            // SAFETY: turns are of packets and rows that are there, each row once.
            let at = unsafe { ats.get_unchecked_mut(packet as usize) };
            // SAFETY: a column has tables for all that it may be chosen by.
            let table = unsafe { tables.get_unchecked(context(row, at.class)) };
            let bits = u32::from(table.bits);
            let place = table.slots + (at.number & !(u32::MAX << bits));
            // SAFETY: a table has slots for all numbers of its bits.
            let slot = *unsafe { slots.get_unchecked(place as usize) };
            let number = slot.next(at.number, bits);
            let word = u32::from(words.load(at.next) as u16);
            let is_low = number < FIRST;
            at.number = if is_low { number << 16 | word } else { number };
            at.next += usize::from(is_low) * 2;
            let told = About(slot.about());
            at.class = told.class();
            // SAFETY: as above.
            unsafe { *abouts.get_unchecked_mut(row) = told.0 };
            if BITS {
                let mut place = at.bits.word(words) & !(u64::MAX << told.bits());
                at.bits.skip(told.bits());
                if has_long {
                    // SAFETY: slots name symbols of their column.
                    let symbol = unsafe { symbols.get_unchecked(told.symbol()) };
                    if symbol.bits > AT_ONCE {
                        place = take(&mut at.bits, words, symbol.bits.into());
                    }
                }
                // SAFETY: as above.
                unsafe { *out.get_unchecked_mut(row) = place };
            }
        }
    }

    /// The values of items all of whose symbols are plain, of which the bits are there.
    #[inline(always)]
    fn plain(&self, out: &mut [u64], classes: &mut [u8], abouts: &[u32]) {
        let (has_bits, symbols) =
            (self.about.has_bits, &self.decoder.symbols[self.about.symbols..]);
        for ((out, class), &told) in out.iter_mut().zip(classes).zip(abouts) {
            let told = About(told);
            *class = told.class();
            // SAFETY: slots name symbols of their column.
            let base = unsafe { symbols.get_unchecked(told.symbol()) }.base;
            *out = if has_bits { base ^ *out << told.shift() } else { base };
        }
    }

    /// The values of items, of which the bits are there.
    #[inline(always)]
    fn values_of(
        &self,
        lanes: &[Lane],
        out: &mut [u64],
        classes: &mut [u8],
        abouts: &[u32],
    ) -> Option<()> {
        let Column { decoder, about, .. } = *self;
        let symbols = &decoder.symbols[about.symbols..];
        let (abouts, classes) = (&abouts[..out.len()], &mut classes[..out.len()]);
        if !about.has_bits {
            out.fill(0);
        }
        let (scale, other, mut at) = (about.scale, self.other(out.len()), 0);
        for row in 0..out.len() {
            let (told, place) = (About(abouts[row]), out[row]);
            classes[row] = told.class();
            // SAFETY: slots name symbols of their column.
            let symbol = unsafe { symbols.get_unchecked(told.symbol()) };
            let whole = symbol.base.wrapping_add(place);
            out[row] = match (scale, other) {
                // Which of the two it is nobody foresees.
                (Some(map), Some(other)) if !told.is(Kind::Mapped) => {
                    let plain = symbol.base ^ place << told.shift();
                    let scaled = map.scaled(about.number, whole as i64);
                    let value = if told.is(Kind::Scaled) { scaled } else { plain };
                    if told.is(Kind::Copy) { other[row] } else { value }
                }
                _ if told.is_plain() => symbol.base ^ place << told.shift(),
                _ if told.is(Kind::Copy) => {
                    while lanes.get(at)?.last <= row {
                        at += 1;
                    }
                    self.copy(told.symbol(), row, &(lanes[at].first..lanes[at].last), out)?
                }
                _ if told.is(Kind::Scaled) => {
                    let map = about.maps.get(usize::from(symbol.map))?;
                    map.scaled(about.number, whole as i64)
                }
                _ if symbol.map == MISSING => return None,
                _ => about.mapped(symbol, place, 0).0,
            };
        }
        Some(())
    }

    /// The only column that this one copies from, if it is another's same item.
    #[inline(always)]
    fn other(&self, items: usize) -> Option<&[u64]> {
        let [(back @ 1.., 0)] = self.about.copies[..] else { return None };
        let start = self.before.len().checked_sub(back * items)?;
        self.before.get(start..start + items)
    }
}
