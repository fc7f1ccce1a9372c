//! What arrays of one length have of their own at each place, and whether that is so in others than those that were looked at.

use super::{Learner, Price, SYMBOL, cut_at_most};
use crate::events::column::bins::{Bin, log2};
use crate::events::column::map::Map;
use crate::events::column::{Base, MOST_PLACES};
use crate::events::packet;
use crate::events::schema::Count;

/// A table of a place begins as that of all, as if these had been so many values of its own.
const BEFORE: usize = 2;

impl Learner<'_> {
    /// How many places arrays have, if it may matter where in one a value is.
    pub(super) fn period(&self, level: usize) -> Option<usize> {
        match self.layout.levels()[level].count {
            Count::Fixed(len) if (2..=MOST_PLACES as u32).contains(&len) => Some(len as usize),
            _ => None,
        }
    }

    /// The integer in the middle of those that each place has in some arrays.
    pub(super) fn places(
        &self,
        column: usize,
        level: usize,
        map: Map,
        period: usize,
        is_asked: impl Fn(u32) -> bool,
    ) -> Vec<u64> {
        let number = self.layout.columns()[column].number;
        let mut all: Vec<Vec<u64>> = vec![Vec::new(); period];
        let seen = &self.seen[level];
        let values = self.values[column].iter().zip(&seen.index).zip(&seen.above);
        for ((&value, &index), _) in values.filter(|&(_, &array)| is_asked(array)) {
            all[index as usize % period].extend(map.to(number, value));
        }
        let middle = |integers: &mut Vec<u64>| {
            let middle = integers.len() / 2;
            match middle < integers.len() {
                true => *integers.select_nth_unstable(middle).1,
                false => 0,
            }
        };
        all.iter_mut().map(middle).collect()
    }

    /// Bins of differences from those of each array, and the bits that they take.
    pub(super) fn placed<'p>(
        &self,
        column: usize,
        level: usize,
        map: Map,
        places_of: impl Fn(u32) -> &'p [u64],
        price: Price,
    ) -> (Vec<Bin>, f64) {
        let number = self.layout.columns()[column].number;
        let (seen, values) = (&self.seen[level], &self.values[column]);
        let items = values.iter().zip(&seen.index).zip(&seen.above);
        let told = items.map(|((&value, &index), &array)| {
            let places = places_of(array);
            let (integer, place) = (map.to(number, value), places[index as usize % places.len()]);
            packet::based(Base::Place, map, number, integer.unwrap_or(0), place, false)
        });
        let mut told: Vec<u64> = told.collect();
        told.sort_unstable();
        let (bins, bits) = cut_at_most(&told, values.len(), price);
        // Each takes about as much as the number itself.
        let own = |place: &u64| 8 + place.checked_ilog2().unwrap_or(0);
        let own: u32 = places_of(0).iter().map(own).sum();
        (bins, bits + f64::from(own) / seen.scale)
    }

    /// Bits of symbols that are told by tables of their places, each by what was there before: of a few values in each of many tables
    /// the shares in these say what came, and not what comes.
    pub(super) fn cost_by_place(
        &self,
        level: usize,
        period: usize,
        told: &[(usize, usize)],
        all: usize,
    ) -> f64 {
        let seen = &self.seen[level];
        let mut of_all = vec![0; all];
        told.iter().for_each(|&(_, symbol)| of_all[symbol] += 1);
        let (mut counts, mut totals) = (vec![0u32; period * all], vec![0; period]);
        let mut bits = 0.0;
        for &(i, symbol) in told {
            let place = seen.index[i] as usize;
            let count = &mut counts[place * all + symbol];
            let table = if *count == 0 { SYMBOL / seen.scale } else { 0.0 };
            let here = *count as usize * told.len() + BEFORE * of_all[symbol];
            bits += table + log2((totals[place] + BEFORE) * told.len()) - log2(here);
            *count += 1;
            totals[place] += 1;
        }
        bits
    }
}
