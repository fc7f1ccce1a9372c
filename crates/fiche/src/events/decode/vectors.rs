//! What slots say of eight packets' items at once, by vectors of 256 bits. Its twin, one by one, is in `wide`.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::run::{Column, take};
use super::several::{GROUP, LANES, Several};
use super::wide::By;
use super::{AT_ONCE, About, Kind, OTHER};
use crate::model::Bits;

/// What tables are chosen by: nothing, what is known of rows, classes before.
const ONE: u8 = 0;
const ROWS: u8 = 1;
const OWN: u8 = 2;

/// What slots say of all items of a column, of so many rows, and their bits. `false`, and nothing is done, where the processor has no such vectors.
#[inline(always)]
pub(super) fn told(
    column: &Column<'_>,
    several: &mut Several,
    abouts: &mut [u32],
    bits: &mut [u64],
    rows: usize,
    by: By<'_>,
) -> bool {
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("bmi2") {
        return false;
    }
    let all = All { column, several, abouts, bits, rows };
    // SAFETY: the processor has what it was compiled for; of all rows that are asked for there is something.
    unsafe {
        match by {
            By::Nothing | By::Run => all.told::<ONE>(|_, _| 0),
            By::Rows(of) => {
                assert!(of.len() >= rows);
                all.told::<ROWS>(|row, _| usize::from(*of.get_unchecked(row as usize)));
            }
            By::Places(of) => {
                assert!(of.len() >= rows);
                all.told::<ROWS>(|row, _| usize::from(*of.get_unchecked(row as usize)));
            }
            By::Own => all.told::<OWN>(|_, class| class as usize),
        }
    }
    true
}

/// Of a column.
struct All<'a> {
    column: &'a Column<'a>,
    several: &'a mut Several,
    abouts: &'a mut [u32],
    bits: &'a mut [u64],
    rows: usize,
}

impl All<'_> {
    /// `context` is what tables are chosen by, of a row and the class before.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn told<const BY: u8>(self, context: impl Fn(u32, u32) -> usize) {
        let about = self.column.about;
        match (about.has_bits, about.has_long) {
            (false, _) => self.each::<BY, false, false>(context),
            (true, false) => self.each::<BY, true, false>(context),
            (true, true) => self.each::<BY, true, true>(context),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn each<const BY: u8, const BITS: bool, const LONG: bool>(
        self,
        context: impl Fn(u32, u32) -> usize,
    ) {
        let All { column: &Column { decoder, about, words, .. }, several, abouts, bits, rows } =
            self;
        let (tables, symbols) =
            (&decoder.tables[about.tables..], &decoder.symbols[about.symbols..]);
        let slots = &decoder.slots[..];
        // What is stored goes there.
        assert!(abouts.len() == several.told() && bits.len() == several.told());
        let zero = _mm256_setzero_si256();
        let all = |value: u32| _mm256_set1_epi32(value as i32);
        let (low, last_word) = (all(0xFFFF), all(words.last().min(u32::MAX as usize) as u32));
        let last_row = all((rows as u32).wrapping_sub(1));
        let only = tables[0];
        let mut classes = [u32::from(OTHER); LANES];
        for (turn, ends) in several.turns.windows(2).enumerate() {
            let (start, end) = (ends[0] as usize, ends[1] as usize);
            for at in (0..end - start).step_by(GROUP) {
                let is_there = _mm256_cmpgt_epi32(load(&several.items, at), all(turn as u32));
                let number = load(&several.number, at);
                let (table, mask, count) = if BY == ONE {
                    (all(only.slots), all(only.mask.into()), all(only.bits.into()))
                } else {
                    let mut of = [0; GROUP];
                    if BY == ROWS {
                        // Of packets that have no item any more, any row will do.
                        let first = load(&several.first, at);
                        let row = _mm256_add_epi32(first, all(turn as u32));
                        store(&mut of, 0, _mm256_min_epu32(row, last_row));
                    }
                    let (slots, rest) = halves(|i| {
                        // SAFETY: a column has tables for all that it may be chosen by.
                        let table =
                            unsafe { tables.get_unchecked(context(of[i], classes[at + i])) };
                        // SAFETY: a table is of eight bytes, none of which is padding.
                        unsafe { std::ptr::from_ref(table).cast::<u64>().read_unaligned() }
                    });
                    (slots, _mm256_and_si256(rest, low), _mm256_srli_epi32::<16>(rest))
                };
                let mut places = [0; GROUP];
                store(&mut places, 0, _mm256_add_epi32(table, _mm256_and_si256(number, mask)));
                // SAFETY: a table has slots for all numbers of its bits.
                let (parts, told) =
                    halves(|i| unsafe { slots.get_unchecked(places[i] as usize) }.word());
                let (share, before) =
                    (_mm256_srli_epi32::<16>(parts), _mm256_and_si256(parts, low));
                let times = _mm256_mullo_epi32(share, _mm256_srlv_epi32(number, count));
                let short = _mm256_add_epi32(times, before);
                let is_low = _mm256_cmpeq_epi32(_mm256_srli_epi32::<16>(short), zero);
                let next = load(&several.next, at);
                let mut from = [0; GROUP];
                store(&mut from, 0, _mm256_min_epu32(next, last_word));
                // SAFETY: these are held down to the last place.
                let word = |i: usize| unsafe { words.load_within(from[i] as usize) } as i16;
                let word = _mm256_cvtepu16_epi32(_mm_set_epi16(
                    word(7),
                    word(6),
                    word(5),
                    word(4),
                    word(3),
                    word(2),
                    word(1),
                    word(0),
                ));
                let long = _mm256_or_si256(_mm256_slli_epi32::<16>(short), word);
                let is_low_there = _mm256_and_si256(is_low, is_there);
                let new = _mm256_blendv_epi8(short, long, is_low);
                store(&mut several.number, at, _mm256_blendv_epi8(number, new, is_there));
                let used = _mm256_and_si256(is_low_there, all(2));
                store(&mut several.next, at, _mm256_add_epi32(next, used));
                store(abouts, start + at, told);
                if BY == OWN {
                    let class = _mm256_and_si256(_mm256_srli_epi32::<9>(told), all(7));
                    store(&mut classes, at, class);
                }
                if !BITS {
                    continue;
                }
                let left = load(&several.left, at);
                let above = _mm256_add_epi32(left, all(7));
                let byte = _mm256_sub_epi32(_mm256_srli_epi32::<3>(above), all(8));
                store(&mut from, 0, _mm256_min_epu32(byte, last_word));
                // SAFETY: these are held down to the last place.
                let (a, b) = words_of(|i| unsafe { words.load_within(from[i] as usize) });
                let unused = _mm256_andnot_si256(above, all(7));
                let count = _mm256_srli_epi32::<24>(told);
                let (a, b) = (
                    _mm256_srlv_epi64(swapped(a), _mm256_unpacklo_epi32(unused, zero)),
                    _mm256_srlv_epi64(swapped(b), _mm256_unpackhi_epi32(unused, zero)),
                );
                let ones = _mm256_cmpeq_epi32(zero, zero);
                let (a, b) = (
                    _mm256_andnot_si256(
                        _mm256_sllv_epi64(ones, _mm256_unpacklo_epi32(count, zero)),
                        a,
                    ),
                    _mm256_andnot_si256(
                        _mm256_sllv_epi64(ones, _mm256_unpackhi_epi32(count, zero)),
                        b,
                    ),
                );
                store_words(&mut bits[start + at..start + at + GROUP], a, b);
                let used = _mm256_and_si256(count, is_there);
                store(&mut several.left, at, _mm256_sub_epi32(left, used));
                if LONG {
                    let kind = _mm256_and_si256(told, all(3 << 12));
                    let is_mapped = _mm256_cmpeq_epi32(kind, all((Kind::Mapped as u32) << 12));
                    let is_mapped = _mm256_and_si256(is_mapped, is_there);
                    let mut some = _mm256_movemask_ps(_mm256_castsi256_ps(is_mapped)) as u32;
                    while some != 0 {
                        let place = at + some.trailing_zeros() as usize;
                        some &= some - 1;
                        let told = About(abouts[start + place]);
                        let symbol = symbols[told.symbol()];
                        if symbol.bits > AT_ONCE {
                            let mut left = Bits::<true>::at(several.left[place] as usize);
                            bits[start + place] = take(&mut left, words, symbol.bits.into());
                            several.left[place] = left.pos() as u32;
                        }
                    }
                }
            }
        }
    }
}

/// Eight numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u32], at: usize) -> __m256i {
    let from = &from[at..at + GROUP];
    // SAFETY: there are eight.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u32], at: usize, numbers: __m256i) {
    let to = &mut to[at..at + GROUP];
    // SAFETY: there is room for eight.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), numbers) }
}

/// Eight words, of which the first vector has the first two and the two behind the first four, and the second the others.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of(of: impl Fn(usize) -> u64) -> (__m256i, __m256i) {
    let of = |i| of(i) as i64;
    let first = _mm256_set_epi64x(of(5), of(4), of(1), of(0));
    (first, _mm256_set_epi64x(of(7), of(6), of(3), of(2)))
}

/// The lower and the upper halves of eight words, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(of: impl Fn(usize) -> u64) -> (__m256i, __m256i) {
    let (a, b) = words_of(of);
    let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let lower = _mm256_shuffle_ps::<0b10_00_10_00>(a, b);
    let upper = _mm256_shuffle_ps::<0b11_01_11_01>(a, b);
    (_mm256_castps_si256(lower), _mm256_castps_si256(upper))
}

/// The eight words of such vectors, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn store_words(to: &mut [u64], a: __m256i, b: __m256i) {
    assert!(to.len() == GROUP);
    let to = to.as_mut_ptr().cast::<__m128i>();
    // SAFETY: there is room for eight, two in each.
    unsafe {
        _mm_storeu_si128(to, _mm256_castsi256_si128(a));
        _mm_storeu_si128(to.add(1), _mm256_castsi256_si128(b));
        _mm_storeu_si128(to.add(2), _mm256_extracti128_si256::<1>(a));
        _mm_storeu_si128(to.add(3), _mm256_extracti128_si256::<1>(b));
    }
}

/// The bytes of each word the other way round.
#[inline]
#[target_feature(enable = "avx2")]
fn swapped(words: __m256i) -> __m256i {
    let order = _mm256_set_epi64x(
        0x08090A0B_0C0D0E0F,
        0x00010203_04050607,
        0x08090A0B_0C0D0E0F,
        0x00010203_04050607,
    );
    _mm256_shuffle_epi8(words, order)
}
