//! Finds the grid that floating point numbers of 8 bytes lie on: ROOT's `Double32_t` is stored as a whole number of steps from
//! the lowest number of its range, and comes back as multiples of a step that nobody was told of. (`Float16_t` comes back in 4 bytes:
//! too few digits to find the step by.)

use super::map::Map;
use crate::events::schema::Number;

/// Numbers that a grid is looked for among.
const MOST: usize = 4096;
/// A range is two to so many steps at most.
const BITS: i32 = 32;

/// A grid on which all of these numbers are, if one is found: from 0 on, or from as far below 0 as its end is above.
pub(crate) fn find(numbers: &[u64]) -> Option<Map> {
    let mut sorted: Vec<f64> =
        numbers.iter().take(MOST).map(|&bits| f64::from_bits(bits)).collect();
    if !sorted.iter().all(|value| value.is_finite()) {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.dedup();
    if sorted.len() < 8 {
        return None;
    }
    let step = step(&sorted)?;
    // Where the range is below 0 it has two to some steps in all, and as many on either side.
    let lows = (0..BITS).map(|bits| -step * f64::from(bits).exp2());
    let lowest = sorted[0];
    let lows = std::iter::once(0.0).chain(lows).filter(|&low| low <= lowest + step / 2.0);
    // What the step was divided from has fewer digits than what was measured.
    let near = |by: i64| f64::from_bits(step.to_bits().wrapping_add_signed(by));
    for low in lows {
        let halves = (low / step).abs().round();
        for by in [0, 1, -1, 2, -2, 3, -3, 4, -4] {
            let step = near(by);
            let low = -step * halves;
            for low in [
                low,
                f64::from_bits(low.to_bits() + 1),
                f64::from_bits(low.to_bits().wrapping_sub(1)),
            ] {
                let map = Map::Grid { low, step };
                if numbers.iter().all(|&bits| map.to(Number::F64, bits).is_some()) {
                    return Some(map);
                }
            }
        }
    }
    None
}

/// What all differences are multiples of, as far as they tell: from the smallest on, each longer one tells it to more digits.
fn step(sorted: &[f64]) -> Option<f64> {
    /// The shortest gaps, which have few steps each.
    const GAPS: usize = 100;
    let mut gaps: Vec<f64> = sorted.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    let span = sorted[sorted.len() - 1] - sorted[0];
    // By how much a difference may be wrong, as its ends are rounded.
    let wrong = sorted[0].abs().max(sorted[sorted.len() - 1].abs()) * f64::EPSILON;
    let least = (span / f64::from(BITS).exp2() * 0.75).max(64.0 * wrong);
    // Euclid's way: what is left of one by the other, until that is no more than what it may be wrong by.
    let (mut step, mut by) = (gaps[0], wrong);
    for &gap in gaps.iter().take(GAPS) {
        let (mut a, mut b) = ((gap, wrong), (step, by));
        while b.0 > 4.0 * b.1 {
            let times = (a.0 / b.0).round();
            let rest = ((a.0 - times * b.0).abs(), a.1 + times * b.1);
            (a, b) = (b, rest);
        }
        if a.0 < least {
            return None;
        }
        // The whole gap tells the step better than what is left of it.
        let count = (gap / a.0).round().max(1.0);
        (step, by) = (gap / count, wrong / count);
    }
    let mut known = step;
    while known < span {
        // As far as the steps can be counted, with what is known of one.
        let reach = (step * step / wrong / 8.0).min(known * known / wrong / 8.0).max(2.0 * known);
        let next = sorted.partition_point(|&value| value - sorted[0] <= reach);
        let long = sorted[next.max(2) - 1] - sorted[0];
        if long <= known {
            known *= 2.0;
            continue;
        }
        let count = (long / step).round();
        if (long / step - count).abs() > 0.25 {
            return None;
        }
        step = long / count;
        known = long;
    }
    Some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn grids_of_usual_ranges_are_found() {
        let mut random = Random(1);
        for (low, high) in
            [(-std::f64::consts::PI, std::f64::consts::PI), (0.0, 100.0), (-1.0, 1.0), (0.0, 0.3)]
        {
            for bits in [6, 10, 16, 20, 24, 28] {
                let step = (high - low) / f64::from(bits).exp2();
                let numbers: Vec<u64> = (0..3000)
                    .map(|_| (random.below(1 << bits) as f64 * step + low).to_bits())
                    .collect();
                let map = find(&numbers);
                assert!(map.is_some(), "{low} to {high} in {bits} bits");
            }
        }
    }

    #[test]
    fn there_is_none_where_there_is_none() {
        let mut random = Random(2);
        let numbers: Vec<u64> =
            (0..3000).map(|_| (random.number() as f64 / 1e18).to_bits()).collect();
        assert_eq!(find(&numbers), None);
        let odd: Vec<u64> = (1..3000).map(|i| f64::from(i).sqrt().to_bits()).collect();
        assert_eq!(find(&odd), None);
        assert_eq!(find(&[f64::NAN.to_bits(); 20]), None);
        assert_eq!(find(&[]), None);
    }
}
