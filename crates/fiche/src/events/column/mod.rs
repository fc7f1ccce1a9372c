//! How the values of a column are coded: each by a symbol and some bits.
//!
//! # Coder of a column
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | base | 0: values are coded by themselves; 1: by what they differ from the one before in the packet; 2: by their exclusive or with that; 3: by what they differ from an integer that their place has |
//! | varint | period | with base 3: 2 to 1,024; the place of a value is the number of its item in its list or array, or of the event in its packet, from 0 on, modulo this |
//! | for each | place | varint: its integer, one of those that the map has |
//! | varint, 1 | first | with base 1 or 2: an integer, and how many bits: the integer of a packet's first value is the sum of the two; no symbol tells of it |
//! | varint | copies | how many; 0 with a base |
//! | for each | copy | varint: the number of a column of the same level and the same numbers, up to this one; 1: how many items ahead, plus 8, less than 16; of itself less than 8 |
//! | varint | maps | how many, 1 with a base |
//! | for each | map | see below |
//! | | bins | of each map, see below |
//! | 1 | escape | 1: there is one; else 0 |
//! | 1 | named | how many symbols have a class of their own, up to 7 |
//! | for each | symbol | varint |
//! | 1 | context | what a value's table is chosen by: 0 nothing; 1 the class that the same item, or the item that it is in on the level above, has in another column; 2 that of its own last; 3 how many symbols have been copies since the last that was none; 4 the number of the item in its list or array, or of the event in its packet, from 0 on; 5 the same modulo a period |
//! | varint | column | of context 1: its number; on the same level and before this one, or on the level above |
//! | varint | period | of context 5: 2 to 1,024 |
//! | | tables | a bit for each context, the lowest of the first byte for 0, in as many bytes as it takes: whether it has a table; one without does not come. There is one context without them, a period of them, else 8 |
//! | for each | shares | of all symbols |
//!
//! A *map* makes integers of numbers, as many as have the bits that are given. One byte tells which, and what follows it what of:
//!
//! | byte | what follows | bits | integer |
//! |---|---|---|---|
//! | 0 | 1: shift | those of the number, less these | the number without so many lowest bits, which are zero; of what is left of whole numbers with a sign the highest bit is turned over, of floating point numbers too where it is 0, and all bits where it is 1 |
//! | 1 | 1: places, up to 22 | 54 | 2^53 plus a floating point number times 10 to so many, which divided by that and rounded is the number again |
//! | 2 | 8, 8: low, step | 32 | how many steps from the lowest to a floating point number: times the step, rounded, plus the lowest, rounded, it is the number again |
//!
//! A number has as many bits as its bytes, a boolean 1.
//!
//! *Bins* are a varint, how many, which may be 0, and for each: 1: bits; varint: what lies between it and the bin before, in units of the smaller one of
//! both; for the first one what lies before it, in units of itself. A bin holds two to its bits integers, the first of which is a multiple of that, and no more than the map has.
//!
//! The *symbols* are the copies, then the bins, map by map, then the escape. Copies are of the value that is so many items ahead in that
//! column, through all lists of the packet; it is there. A bin is followed by the place in it, in as many bits as it has; an escape by the number itself, in all its bits. With a base the integer
//! of a bin is the difference, plus half of all integers that the map has, modulo these, or the exclusive or; behind a value that was told by the escape the integer before counts as 0, even if the map has one for it. The *class* of a symbol is its place among the named ones; of
//! all others, and before the first, it is 7. A value without a symbol, the first with base 1 or 2, has that class, too. Contexts 3 and 4 begin at 0 and stop at 7.
//!
//! Arithmetic of floating point numbers is in 8 bytes, rounded to those of the number last, to the nearest, of two that are as near to the even one. *Shares* are how often symbols are expected: 1: two to this is how many parts there are, up to 1,024, and 0 where one symbol has them all; then for each symbol a varint, its parts, and behind
//! one of 0 a varint: how many more symbols follow that have 0, and are left out.

pub(crate) mod bins;
pub(crate) mod grid;
pub(crate) mod map;

use bins::Bin;
use map::Map;

use super::schema::Number;
use crate::error::Result;
use crate::model::{MOST_SYMBOLS, Shares};
use crate::wire::{Put, Take};

/// Classes of symbols.
pub(crate) const CLASSES: usize = 8;
/// The class of symbols that have none of their own.
pub(crate) const OTHER: u8 = 7;
/// A period of places at most.
pub(crate) const MOST_PLACES: usize = 1024;
/// Copies that a column may have.
pub(crate) const MOST_COPIES: usize = 3;
/// What is added to how far ahead a copy is from.
const SHIFT: isize = 8;
/// Maps that a column may have.
pub(crate) const MOST_MAPS: usize = 8;

/// What a value is told by beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    None,
    /// The difference from the one before.
    Minus,
    /// The exclusive or with it.
    Xor,
    /// The difference from what its place has.
    Place,
}

impl Base {
    /// Whether the first value of a packet, with none before it, has no symbol.
    pub fn has_first(self) -> bool {
        matches!(self, Base::Minus | Base::Xor)
    }
}

/// A value that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub column: usize,
    /// Items ahead of the one at hand; below 0 those before it.
    pub shift: isize,
}

/// What a value's table is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    None,
    /// The class of the last symbol of a column.
    Class(usize),
    /// That of this one.
    Own,
    /// Copies since the last symbol that was none.
    Run,
    /// The number of the item in its list.
    Index,
    /// The same modulo a period.
    Place(usize),
}

/// How a column is coded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coder {
    pub number: Number,
    pub base: Base,
    /// Where the value before is the base, of the first: the lowest integer, and bits above that.
    pub first: (u64, u32),
    /// Where their places are, the integer of each.
    pub places: Vec<u64>,
    pub copies: Vec<Copied>,
    pub maps: Vec<Map>,
    /// Sorted by map and place.
    pub bins: Vec<Bin>,
    pub has_escape: bool,
    /// Symbols with classes of their own.
    pub named: Vec<usize>,
    pub context: Context,
    /// One for each context, if there is one.
    pub shares: Vec<Option<Shares>>,
}

impl Coder {
    /// All symbols: copies, bins, the escape.
    pub fn symbols(&self) -> usize {
        self.copies.len() + self.bins.len() + usize::from(self.has_escape)
    }

    /// How many contexts there are.
    pub fn contexts(&self) -> usize {
        match self.context {
            Context::None => 1,
            Context::Place(period) => period,
            _ => CLASSES,
        }
    }

    /// The class of a symbol.
    pub fn class(&self, symbol: usize) -> u8 {
        let place = self.named.iter().position(|&named| named == symbol);
        place.map_or(OTHER, |place| place as u8)
    }

    /// Bits that a value takes, about: if it is none that is copied, and whatever was before it.
    pub fn bits(&self, value: u64) -> f64 {
        /// Of what has no symbol, or of differences.
        const UNKNOWN: f64 = 12.0;
        let found = self.maps.iter().enumerate().find_map(|(place, map)| {
            let integer = map.to(self.number, value)?;
            let has = |bin: &Bin| usize::from(bin.map) == place && bin.has(integer);
            let bins = self
                .bins
                .partition_point(|bin| (usize::from(bin.map), bin.lower) <= (place, integer));
            let bin = self.bins.get(bins.checked_sub(1)?).filter(|bin| has(bin))?;
            Some((self.copies.len() + bins - 1, u32::from(bin.bits)))
        });
        let (symbol, beside) =
            found.unwrap_or((self.symbols().saturating_sub(1), self.number.bits()));
        if self.base != Base::None || found.is_none() && !self.has_escape {
            return UNKNOWN + f64::from(beside);
        }
        let tables: Vec<&Shares> = self.shares.iter().flatten().collect();
        let part =
            |shares: &&Shares| f64::from(shares.get(symbol).1) / (1u64 << shares.bits()) as f64;
        let part = tables.iter().map(part).sum::<f64>() / tables.len().max(1) as f64;
        part.max(0.001).recip().log2() + f64::from(beside)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.base as u8);
        if self.base.has_first() {
            out.put_varint(self.first.0);
            out.put_u8(self.first.1 as u8);
        } else if self.base == Base::Place {
            out.put_varint(self.places.len() as u64);
            self.places.iter().for_each(|&integer| out.put_varint(integer));
        }
        out.put_varint(self.copies.len() as u64);
        for copied in &self.copies {
            out.put_varint(copied.column as u64);
            out.put_u8((copied.shift + SHIFT) as u8);
        }
        out.put_varint(self.maps.len() as u64);
        self.maps.iter().for_each(|map| map.put(out));
        bins::put(&self.bins, self.maps.len(), out);
        out.put_u8(self.has_escape.into());
        out.put_u8(self.named.len() as u8);
        self.named.iter().for_each(|&symbol| out.put_varint(symbol as u64));
        match self.context {
            Context::None => out.put_u8(0),
            Context::Class(column) => {
                out.put_u8(1);
                out.put_varint(column as u64);
            }
            Context::Own => out.put_u8(2),
            Context::Run => out.put_u8(3),
            Context::Index => out.put_u8(4),
            Context::Place(period) => {
                out.put_u8(5);
                out.put_varint(period as u64);
            }
        }
        for some in self.shares.chunks(8) {
            let there = some.iter().enumerate().filter(|(_, shares)| shares.is_some());
            out.put_u8(there.fold(0, |sum, (i, _)| sum | 1 << i));
        }
        self.shares.iter().flatten().for_each(|shares| shares.put(out));
    }

    /// One of a column. Whether the columns that it names are where they should be is not looked at.
    pub fn take(take: &mut Take<'_>, number: Number) -> Result<Coder> {
        let base = match take.u8()? {
            0 => Base::None,
            1 => Base::Minus,
            2 => Base::Xor,
            3 => Base::Place,
            _ => return Err(take.corrupt()),
        };
        let first = match base {
            Base::None | Base::Place => (0, 0),
            _ => (take.varint()?, u32::from(take.u8()?)),
        };
        let mut places = Vec::new();
        if base == Base::Place {
            let period = take.count(MOST_PLACES as u64)?;
            if period < 2 {
                return Err(take.corrupt());
            }
            places = (0..period).map(|_| take.varint()).collect::<Result<_>>()?;
        }
        let copies = take.count(MOST_COPIES as u64)?;
        let copies = (0..copies)
            .map(|_| {
                let column = take.count(u32::MAX.into())?;
                Ok(Copied { column, shift: isize::from(take.u8()?) - SHIFT })
            })
            .collect::<Result<Vec<_>>>()?;
        let maps = take.count(MOST_MAPS as u64)?;
        let maps = (0..maps).map(|_| Map::take(take, number)).collect::<Result<Vec<_>>>()?;
        let widths: Vec<u32> = maps.iter().map(|map| map.width(number)).collect();
        // With the escape, and one that stands for what is missing.
        let bins = bins::take(take, &widths, MOST_SYMBOLS - MOST_COPIES - 2)?;
        let has_escape = match take.u8()? {
            0 => false,
            1 => true,
            _ => return Err(take.corrupt()),
        };
        let mut coder = Coder {
            number,
            base,
            first,
            places,
            copies,
            maps,
            bins,
            has_escape,
            named: Vec::new(),
            context: Context::None,
            shares: Vec::new(),
        };
        let named = usize::from(take.u8()?);
        if named >= CLASSES {
            return Err(take.corrupt());
        }
        for _ in 0..named {
            let symbol = take.count(coder.symbols() as u64)?;
            coder.named.push(symbol);
        }
        coder.context = match take.u8()? {
            0 => Context::None,
            1 => Context::Class(take.count(u32::MAX.into())?),
            2 => Context::Own,
            3 => Context::Run,
            4 => Context::Index,
            5 => Context::Place(take.count(MOST_PLACES as u64)?),
            _ => return Err(take.corrupt()),
        };
        if matches!(coder.context, Context::Place(..2)) {
            return Err(take.corrupt());
        }
        let contexts = coder.contexts();
        let there = take.bytes(contexts.div_ceil(8))?.to_vec();
        let symbols = coder.symbols();
        for context in 0..contexts {
            let is_there = there[context / 8] >> (context % 8) & 1 == 1;
            let shares = is_there.then(|| Shares::take(take, symbols)).transpose()?;
            coder.shares.push(shares);
        }
        let bad_base = base != Base::None
            && (coder.maps.len() != 1 || !coder.copies.is_empty() || first.1 > 64);
        let beyond =
            |&integer: &u64| widths.iter().any(|&width| width < 64 && integer >> width > 0);
        if bad_base
            || coder.places.iter().any(beyond)
            || coder.copies.iter().any(|copied| copied.shift >= SHIFT)
            || !contexts.is_multiple_of(8)
                && there.last().is_some_and(|last| last >> (contexts % 8) > 0)
        {
            return Err(take.corrupt());
        }
        Ok(coder)
    }
}
