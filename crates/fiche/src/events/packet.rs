//! Packets: some events that are decoded together, told by symbols and bits.
//!
//! # Packet
//!
//! Symbols from the front on, bits from the end backward, as under "Stored bytes of a block": the first bit is the lowest of the last byte, numbers have their lowest bit first, and zeros fill up the byte that is the foremost of them. Both are in the order in
//! which a packet is decoded: level by level, and of each column by column, all values of the packet's items. Levels and columns that have
//! the same items or values as others are left out. Between the two lie the bytes that are
//! stored as they are: those of each column of words in turn that is of kind 1, text by text. Nothing else lies there. The first value of a column with a base has no symbol, but the bits of its place above the first integer.
//!
//! Symbols are coded by asymmetric numeral systems, the parts of each behind those of the one before it from part 0 on: 4 bytes, a number; then words of 2 bytes, to the end of the symbols. A table
//! of two to the `n` parts gives a symbol by the lowest `n` bits of the number, in whose parts they are: the number becomes the
//! symbol's parts times the rest of the number, plus how many parts of the symbol were before. Where it is below 2^16 then, a word follows
//! below its bits. Before the first symbol it is 2^16 or more, behind the last one it is 2^16. Tables of one symbol take nothing; where a
//! model has no others, its packets have neither number nor words.

use super::column::map::Map;
use super::column::{Base, OTHER};
use super::schema::Number;
use crate::wire::{load_low, load_u32, load_u64};

/// One value of a column as bytes.
#[inline(always)]
pub(super) fn load(bytes: &[u8], width: usize, i: usize) -> u64 {
    match width {
        1 => bytes[i].into(),
        4 => load_u32(bytes, 4 * i).into(),
        8 => load_u64(bytes, 8 * i),
        _ => load_low(&bytes[width * i..width * (i + 1)]),
    }
}

/// A difference, or what an integer becomes by one: with a base.
#[inline(always)]
pub(super) fn based(
    base: Base,
    map: Map,
    number: Number,
    integer: u64,
    before: u64,
    is_back: bool,
) -> u64 {
    let width = map.width(number);
    let (all, half) = (u64::MAX >> (64 - width), 1 << (width - 1));
    match (base, is_back) {
        (Base::None, _) => integer,
        (Base::Xor, _) => integer ^ before,
        (Base::Minus | Base::Place, false) => integer.wrapping_sub(before).wrapping_add(half) & all,
        (Base::Minus | Base::Place, true) => integer.wrapping_add(before).wrapping_sub(half) & all,
    }
}

/// Of the items of a level in a packet, the number of each in its list, and of the item above.
#[derive(Default)]
pub(super) struct Places {
    pub index: Vec<u8>,
    pub above: Vec<u32>,
}

impl Places {
    /// Of lists with so many items each.
    pub fn set(&mut self, lists: impl Iterator<Item = usize>) {
        self.index.clear();
        self.above.clear();
        for (above, len) in lists.enumerate() {
            self.index.extend((0..len).map(|index| index.min(usize::from(OTHER)) as u8));
            self.above.extend(std::iter::repeat_n(above as u32, len));
        }
    }

    /// The numbers modulo a period.
    pub fn modulo(&self, period: usize, out: &mut Vec<u16>) {
        out.clear();
        let mut next = 0;
        out.extend(self.index.iter().map(|&index| {
            let place = if index == 0 || next == period { 0 } else { next };
            next = place + 1;
            place as u16
        }));
    }
}
