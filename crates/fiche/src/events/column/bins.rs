//! Bins: ranges of integers with a power of two of them, each beginning at a multiple of that. A value is told by its bin,
//! which is a symbol, and by its place in the bin, which is bits as they are. A bin of one integer is that value; one bin of
//! all is a frame of reference; bins of one integer each are a dictionary of values.

use crate::error::Result;
use crate::wire::{Put, Take};

/// A bin of the integers of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bin {
    /// Of the maps of the column, by number.
    pub map: u8,
    /// Of the place in the bin.
    pub bits: u8,
    pub lower: u64,
}

impl Bin {
    #[inline(always)]
    pub fn has(&self, integer: u64) -> bool {
        (integer ^ self.lower).checked_shr(self.bits.into()).unwrap_or(0) == 0
    }
}

/// Cuts bins of integers that are sorted: those of which all cost least, if each of `total` values is told by one, and a
/// bin costs `price.0` bits beside, and `price.1` for each bit by which it is smaller than what holds them all. Appends them in
/// order, and returns the bits that it all takes.
///
/// A node of the binary tree over all integers is a bin, or what it holds is cut in two: so it is decided for each from
/// the bottom up, as trees of decisions are pruned.
pub(crate) fn cut(
    sorted: &[u64],
    total: usize,
    price: (f64, f64),
    map: u8,
    bins: &mut Vec<Bin>,
) -> f64 {
    let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { return 0.0 };
    let root = 64 - (low ^ high).leading_zeros();
    Cutter { total: log2(total), price, root, map, bins }.cut(sorted)
}

/// The logarithm of a count.
pub(crate) fn log2(count: usize) -> f64 {
    static FEW: std::sync::LazyLock<Vec<f64>> =
        std::sync::LazyLock::new(|| (0..1 << 14).map(|n| f64::from(n).log2()).collect());
    FEW.get(count).copied().unwrap_or_else(|| (count as f64).log2())
}

struct Cutter<'a> {
    /// The logarithm of how many values there are.
    total: f64,
    price: (f64, f64),
    /// Bits of what holds them all.
    root: u32,
    map: u8,
    bins: &'a mut Vec<Bin>,
}

impl Cutter<'_> {
    fn cut(&mut self, sorted: &[u64]) -> f64 {
        let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { return 0.0 };
        let n = sorted.len() as f64;
        let bits = 64 - (low ^ high).leading_zeros();
        let price = |bits: u32| self.price.0 + self.price.1 * f64::from(self.root - bits);
        let alone = n * (self.total - log2(sorted.len()) + f64::from(bits)) + price(bits);
        let lower = low & !u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        let whole = Bin { map: self.map, bits: bits as u8, lower };
        // However it is cut, it costs a bin more, and saves no more than the places.
        if bits == 0 || n * f64::from(bits) <= price(bits) {
            self.bins.push(whole);
            return alone;
        }
        let middle = sorted.partition_point(|&integer| integer >> (bits - 1) & 1 == 0);
        let before = self.bins.len();
        let cost = self.cut(&sorted[..middle]) + self.cut(&sorted[middle..]);
        if alone <= cost {
            self.bins.truncate(before);
            self.bins.push(whole);
            return alone;
        }
        cost
    }
}

/// Appends bins that are sorted by their maps and places, of so many maps.
pub(crate) fn put(bins: &[Bin], maps: usize, out: &mut Vec<u8>) {
    for map in 0..maps {
        let those: Vec<&Bin> = bins.iter().filter(|bin| usize::from(bin.map) == map).collect();
        out.put_varint(those.len() as u64);
        let (mut end, mut last) = (0u64, 64);
        for bin in those {
            // Both are multiples of the smaller one's size.
            let unit = u32::from(bin.bits.min(last));
            let gap = bin.lower.wrapping_sub(end);
            out.put_u8(bin.bits);
            out.put_varint(gap.checked_shr(unit).unwrap_or(0));
            end = bin.lower.wrapping_add(1u64.checked_shl(bin.bits.into()).unwrap_or(0));
            last = bin.bits;
        }
    }
}

/// Takes bins of maps whose integers have these widths; `most` at most.
pub(crate) fn take(take: &mut Take<'_>, widths: &[u32], most: usize) -> Result<Vec<Bin>> {
    let mut bins: Vec<Bin> = Vec::new();
    for (map, &width) in widths.iter().enumerate() {
        let count = take.count((most - bins.len()) as u64)?;
        let (mut end, mut last) = (0u64, 64);
        for i in 0..count {
            let bits = take.u8()?;
            let unit = u32::from(bits.min(last));
            let gap = take.varint()?;
            let lower = match unit {
                64 => (gap == 0).then_some(0),
                _ => gap.checked_mul(1 << unit).and_then(|gap| end.checked_add(gap)),
            };
            let size = 1u64.checked_shl(bits.into());
            let behind = lower.map(|lower| size.map_or(0, |size| lower.wrapping_add(size)));
            let (Some(lower), Some(behind)) = (lower, behind) else { return Err(take.corrupt()) };
            let is_aligned = size.is_none_or(|size| lower & (size - 1) == 0);
            // Behind the last of all integers there is none.
            let fits = u32::from(bits) <= width
                && (width == 64 || lower >> width == 0)
                && (end != 0 || i == 0);
            if !is_aligned || !fits {
                return Err(take.corrupt());
            }
            bins.push(Bin { map: map as u8, bits, lower });
            (end, last) = (behind, bits);
        }
    }
    Ok(bins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bins_hold_all_that_they_were_cut_of_and_come_back(
            values in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..100, Just(7), Just(u64::MAX), Just(0)], 1..500),
            price in 1.0f64..60.0,
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut bins = Vec::new();
            let cost = cut(&sorted, sorted.len(), (price, 0.5), 0, &mut bins);
            prop_assert!(cost <= 64.0 * sorted.len() as f64 + price);
            for value in &values {
                prop_assert_eq!(bins.iter().filter(|bin| bin.has(*value)).count(), 1);
            }
            prop_assert!(bins.windows(2).all(|pair| pair[0].lower < pair[1].lower));
            let mut second = Vec::new();
            cut(&[3, 3, 9, 1000], 4, (price, 0.5), 1, &mut second);
            let all = [bins, second].concat();
            let mut stored = Vec::new();
            put(&all, 2, &mut stored);
            let mut taken = Take::new(&stored, "test", 0);
            prop_assert_eq!(take(&mut taken, &[64, 10], all.len()).unwrap(), all);
            taken.end().unwrap();
        }

        #[test]
        fn any_bytes_are_bins_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), width in 1u32..=64) {
            if let Ok(bins) = take(&mut Take::new(&bytes, "test", 0), &[width], 100) {
                let mut stored = Vec::new();
                put(&bins, 1, &mut stored);
                prop_assert_eq!(take(&mut Take::new(&stored, "test", 0), &[width], 100).unwrap(), bins);
            }
        }
    }

    #[test]
    fn values_that_come_again_have_bins_of_their_own() {
        let mut values: Vec<u64> = vec![5; 1000];
        values.extend((0..1000).map(|i| 1 << 20 | i));
        let mut bins = Vec::new();
        cut(&values, values.len(), (16.0, 1.0), 0, &mut bins);
        assert_eq!(bins.len(), 2);
        assert_eq!(bins[0], Bin { map: 0, bits: 0, lower: 5 });
        assert_eq!((bins[1].bits, bins[1].lower), (10, 1 << 20));
    }
}
