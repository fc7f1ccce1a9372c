//! Numbers as integers that are near one another where the numbers are: what bins are cut of.

use crate::error::Result;
use crate::events::schema::Number;
use crate::wire::{Put, Take};

/// Powers of ten that a floating point number of 8 bytes holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A way to make integers of numbers. Not all numbers can be told in each of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Map {
    /// In their order, without so many lowest bits, which are zero: of those of 8 bytes that were of 4 these are 29.
    Ordered { shift: u32 },
    /// Those with so many decimal places, without the point.
    Decimal { places: u32 },
    /// Multiples of a step above the lowest: `low + m * step`, each rounded. ROOT's truncated numbers are such.
    Grid { low: f64, step: f64 },
}

#[inline(always)]
fn ordered(bits: u64, number: Number, width: u32) -> u64 {
    let top = 1 << (width - 1);
    let all = u64::MAX >> (64 - width);
    match number {
        _ if number.is_signed() => bits ^ top,
        _ if number.is_float() && bits & top != 0 => !bits & all,
        _ if number.is_float() => bits | top,
        _ => bits,
    }
}

#[inline(always)]
fn unordered(integer: u64, number: Number, width: u32) -> u64 {
    let top = 1 << (width - 1);
    let all = u64::MAX >> (64 - width);
    match number {
        _ if number.is_signed() => integer ^ top,
        _ if number.is_float() && integer & top == 0 => !integer & all,
        _ if number.is_float() => integer ^ top,
        _ => integer,
    }
}

/// The value of the bits of a floating point number.
fn value(bits: u64, number: Number) -> f64 {
    match number {
        Number::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The bits of a value, rounded to a number.
#[inline(always)]
fn rounded(value: f64, number: Number) -> u64 {
    match number {
        Number::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

/// The nearest whole number, if it is below 2^51: beyond that few decimals are told apart.
#[inline(always)]
fn nearest(value: f64) -> Option<i64> {
    // So large that nothing is left behind the point.
    const LARGE: f64 = 1.5 * (1u64 << 52) as f64;
    let whole = (value + LARGE) - LARGE;
    (whole.abs() < (1u64 << 51) as f64).then_some(whole as i64)
}

impl Map {
    /// The number of bits that integers have.
    pub fn width(self, number: Number) -> u32 {
        match self {
            Map::Ordered { shift } => number.bits() - shift,
            Map::Grid { .. } => 32,
            Map::Decimal { .. } => 54,
        }
    }

    /// The integer of a number, if there is one of which that number comes back.
    #[inline(always)]
    pub fn to(self, number: Number, bits: u64) -> Option<u64> {
        let integer = match self {
            Map::Ordered { shift } => {
                let lost = bits & !(u64::MAX << shift);
                return (lost == 0).then(|| ordered(bits >> shift, number, number.bits() - shift));
            }
            Map::Decimal { places } => {
                let whole = nearest(value(bits, number) * TENS[places as usize])?;
                (whole + (1 << 53)) as u64
            }
            Map::Grid { low, step } => {
                let steps = nearest((value(bits, number) - low) / step)?;
                u64::from(u32::try_from(steps).ok()?)
            }
        };
        (self.from(number, integer) == bits).then_some(integer)
    }

    /// The number of an integer of so many bits.
    #[inline(always)]
    pub fn from(self, number: Number, integer: u64) -> u64 {
        match self {
            Map::Ordered { shift } => unordered(integer, number, number.bits() - shift) << shift,
            scaled => scaled.scaled(number, scaled.whole(integer)),
        }
    }

    /// The whole number that an integer of decimals or of a grid stands for.
    #[inline(always)]
    pub fn whole(self, integer: u64) -> i64 {
        match self {
            Map::Decimal { .. } => integer.wrapping_sub(1 << 53) as i64,
            _ => integer as i64,
        }
    }

    /// The number of such a whole number.
    #[inline(always)]
    pub fn scaled(self, number: Number, whole: i64) -> u64 {
        match self {
            Map::Ordered { .. } => 0,
            Map::Decimal { places } => rounded(whole as f64 / TENS[places as usize], number),
            Map::Grid { low, step } => rounded(whole as f64 * step + low, number),
        }
    }

    pub fn put(self, out: &mut Vec<u8>) {
        match self {
            Map::Ordered { shift } => out.put(&[0, shift as u8]),
            Map::Decimal { places } => out.put(&[1, places as u8]),
            Map::Grid { low, step } => {
                out.put_u8(2);
                out.put_u64(low.to_bits());
                out.put_u64(step.to_bits());
            }
        }
    }

    pub fn take(take: &mut Take<'_>, number: Number) -> Result<Map> {
        let map = match take.u8()? {
            0 => Map::Ordered { shift: take.u8()?.into() },
            1 => Map::Decimal { places: take.u8()?.into() },
            2 => Map::Grid { low: f64::from_bits(take.u64()?), step: f64::from_bits(take.u64()?) },
            _ => return Err(take.corrupt()),
        };
        let is_sound = match map {
            Map::Ordered { shift } => shift < number.bits(),
            Map::Decimal { places } => {
                (places as usize) < TENS.len() && matches!(number, Number::F32 | Number::F64)
            }
            Map::Grid { .. } => matches!(number, Number::F32 | Number::F64),
        };
        if is_sound { Ok(map) } else { Err(take.corrupt()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLOATS: [f64; 12] =
        [0.0, -0.0, 1.0, -1.5, 44.7322, -0.440873, 1e300, 5e-324, f64::INFINITY, 0.1, 3e9, 1e15];

    proptest! {
        #[test]
        fn what_has_an_integer_comes_back_from_it(
            bits in prop_oneof![any::<u64>(), any::<f32>().prop_map(|x| f64::from(x).to_bits()),
                (0usize..12).prop_map(|i| FLOATS[i].to_bits()), (0u32..99999, 0i32..6).prop_map(|(x, e)| (f64::from(x) / 10f64.powi(e)).to_bits())],
            shift in 0u32..9, places in 0u32..23,
        ) {
            let maps = [Map::Ordered { shift: 0 }, Map::Ordered { shift }, Map::Decimal { places },
                Map::Grid { low: -2.0, step: 1.0 / 1024.0 }];
            for number in Number::ALL {
                let bits = match number.bits() { 64 => bits, few => bits & ((1 << few) - 1) };
                for map in maps {
                    let mut stored = Vec::new();
                    map.put(&mut stored);
                    let Ok(again) = Map::take(&mut Take::new(&stored, "test", 0), number) else { continue };
                    prop_assert_eq!(again, map);
                    if let Some(integer) = map.to(number, bits) {
                        prop_assert_eq!(map.from(number, integer), bits);
                        let width = map.width(number);
                        prop_assert!(width == 64 || integer >> width == 0);
                    } else {
                        prop_assert_ne!(map, maps[0]);
                    }
                }
            }
        }
    }

    #[test]
    fn integers_are_ordered_as_numbers_are() {
        let of = |x: f64| Map::Ordered { shift: 0 }.to(Number::F64, x.to_bits()).unwrap();
        let sorted = [f64::NEG_INFINITY, -2.0, -1.0, -0.0, 0.0, 1e-300, 1.0, 2.0, f64::INFINITY];
        assert!(sorted.windows(2).all(|pair| of(pair[0]) < of(pair[1])));
        let of = |x: i32| Map::Ordered { shift: 0 }.to(Number::I32, u64::from(x as u32)).unwrap();
        assert!([i32::MIN, -1, 0, 1, i32::MAX].windows(2).all(|pair| of(pair[0]) < of(pair[1])));
        let of = |x: f64| Map::Decimal { places: 4 }.to(Number::F64, x.to_bits());
        assert_eq!(of(44.7322), Some((1 << 53) + 447_322));
        assert_eq!((of(-0.0), of(f64::NAN), of(1.0 / 3.0)), (None, None, None));
    }
}
