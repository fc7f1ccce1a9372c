//! Lengths of factors as bytes: seven bits in each, lowest first, the top bit set where more follow
//! (Williams and Zobel's vbyte).

use crate::wire::{Put, load_u64};

/// Appends these lengths.
pub(super) fn put(lens: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    lens.for_each(|len| out.put_varint(u64::from(len)));
}

/// Takes as many lengths as `bytes` are.
pub(super) fn take_all(bytes: &[u8], lens: &mut Vec<u32>) -> Option<()> {
    let count = bytes.iter().filter(|&&byte| byte < 0x80).count();
    (take(bytes, count, lens)? == bytes.len()).then_some(())
}

/// Takes the lengths at the start of some bytes, which may be cut off.
pub(super) fn take_some(bytes: &[u8], lens: &mut Vec<u32>) {
    lens.clear();
    let mut at = 0;
    while let Some((len, next)) = one(bytes, at) {
        lens.push(len);
        at = next;
    }
}

/// Takes `count` lengths from the front of `bytes`. Returns how many bytes that were.
#[inline(always)]
pub(super) fn take(bytes: &[u8], count: usize, lens: &mut Vec<u32>) -> Option<usize> {
    lens.clear();
    // Every length takes a byte at least: hostile counts reserve nothing.
    if count > bytes.len() {
        return None;
    }
    lens.reserve(count + 8);
    let mut at = 0;
    while lens.len() < count {
        if at + 8 <= bytes.len() && lens.len() + 8 <= count {
            let word = load_u64(bytes, at);
            if word & 0x8080_8080_8080_8080 == 0 {
                lens.extend(bytes[at..at + 8].iter().map(|&byte| u32::from(byte)));
                at += 8;
                continue;
            }
        }
        let (len, next) = one(bytes, at)?;
        at = next;
        lens.push(len);
    }
    Some(at)
}

/// Bytes of text that factors of these lengths stand for; a length of 0 is a literal.
pub(super) fn text_len(lens: &[u32]) -> u64 {
    lens.iter().map(|&len| u64::from(len.max(1))).sum()
}

/// One length at `at`, and where the next one is.
#[inline(always)]
fn one(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let (mut len, mut shift) = (0u32, 0);
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        // Five bytes hold 32 bits, of which the last has four.
        if shift > 28 || shift == 28 && byte > 15 || shift > 0 && byte == 0 {
            return None;
        }
        len |= u32::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return Some((len, at));
        }
    }
}

/// A factor of some: its number, where its length is stored, and where its text starts.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub factor: usize,
    pub at: usize,
    pub start: usize,
}

impl Found {
    /// The first factor of all, where lengths start at once.
    pub const BEGINNING: Found = Found { factor: 0, at: 0, start: 0 };
    /// The same, one byte before the lengths.
    const FIRST: Found = Found { factor: 0, at: 1, start: 0 };
}

/// Bytes of lengths that are added up at a time.
const CHUNK: usize = 32;
/// The same where that is too much.
const WORD: usize = 8;

/// Adds up the lengths in some bytes, and counts those that begin in an earlier byte or here and go
/// on: bytes of text, first bytes of two. `before` are the same bytes, one earlier. `None` where a
/// length takes three bytes or more. Words of eight bytes, of which sums are kept in lanes of 16 bits.
#[inline(always)]
fn add_up<const N: usize>(before: &[u8; N], bytes: &[u8; N]) -> Option<(usize, usize)> {
    const TOP: u64 = 0x8080_8080_8080_8080;
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (mut ones, mut seconds, mut firsts, mut thirds) = (0u64, 0u64, 0u64, 0u64);
    for k in 0..N / 8 {
        let (before, word) = (load_u64(before, 8 * k), load_u64(bytes, 8 * k));
        let is_second = (before & TOP) >> 7;
        let is_second = (is_second << 8).wrapping_sub(is_second);
        // A byte of zero is a literal, which is one byte of text.
        let is_zero = !(((word & !TOP) + !TOP) | word) & TOP;
        let low = word & !TOP | is_zero >> 7;
        let second = low & is_second;
        ones += (low & EVEN) + (low >> 8 & EVEN);
        seconds += (second & EVEN) + (second >> 8 & EVEN);
        firsts += (word & TOP) >> 7;
        thirds |= word & is_second;
    }
    let sum = |lanes: u64| (lanes.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize;
    let firsts = sum((firsts & EVEN) + (firsts >> 8 & EVEN));
    (thirds & TOP == 0).then_some((sum(ones) + 127 * sum(seconds), firsts))
}

/// The factor in which the byte at `start` of a block of `text_len` bytes is. Its lengths are those
/// from `bytes[1]` to the end; of those that are nearer to the other end none is looked at.
#[inline(always)]
pub(super) fn seek(bytes: &[u8], count: usize, start: usize, text_len: usize) -> Option<Found> {
    let near = match start > text_len / 2 {
        true => from_end(bytes, count, start, text_len),
        false => None,
    };
    let near = near.unwrap_or_else(|| from_start(bytes, count, start));
    go_on(bytes, count, start, near)
}

/// The same from the first length on: what follows the last one may be anything.
#[inline(always)]
pub(super) fn seek_near(bytes: &[u8], count: usize, start: usize) -> Option<Found> {
    go_on(bytes, count, start, from_start(bytes, count, start))
}

/// The same behind a factor that is a little before it, or whose length goes on there.
#[inline(always)]
fn go_on(bytes: &[u8], count: usize, start: usize, near: Found) -> Option<Found> {
    let Found { mut factor, mut at, start: mut reached } = near;
    // Back to where the length starts that goes on here.
    if at > 1 && bytes[at - 1] > 0x7f {
        at -= 1;
        reached = reached.checked_sub(usize::from(bytes[at] & 0x7f))?;
    }
    while factor < count {
        let (len, next) = one(bytes, at)?;
        let end = reached + len.max(1) as usize;
        if end > start {
            return Some(Found { factor, at, start: reached });
        }
        (factor, at, reached) = (factor + 1, next, end);
    }
    None
}

/// For each multiple of `step` behind `first` and below `text_len`, the factor in which that byte is. As
/// [`seek`] has the lengths, which may add up to anything.
pub(super) fn seek_all(
    bytes: &[u8],
    (count, text_len): (usize, usize),
    first: usize,
    step: usize,
    mut put: impl FnMut(Found),
) -> Option<()> {
    let (mut found, mut next) = (Found::FIRST, first);
    while found.factor < count && next < text_len {
        let (len, at) = one(bytes, found.at)?;
        let end = found.start + len.max(1) as usize;
        while next < end.min(text_len) {
            put(found);
            next += step;
        }
        found = Found { factor: found.factor + 1, at, start: end };
    }
    Some(())
}

/// The last word whose text begins before `start`: the factor that begins or goes on there.
#[inline(always)]
fn from_start(bytes: &[u8], count: usize, start: usize) -> Found {
    let far = chunks::<CHUNK>(bytes, count, start, Found::FIRST);
    chunks::<WORD>(bytes, count, start, far)
}

/// The last chunk of `N` bytes behind `from` whose text begins before `start`.
#[inline(always)]
fn chunks<const N: usize>(bytes: &[u8], count: usize, start: usize, from: Found) -> Found {
    let Found { mut factor, mut at, start: mut reached } = from;
    while factor + N <= count
        && let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk())
        && let Some(before) = bytes.get(at - 1..).and_then(|rest| rest.first_chunk())
        && let Some((text, firsts)) = add_up::<N>(before, chunk)
        && reached + text <= start
    {
        (factor, at, reached) = (factor + N - firsts, at + N, reached + text);
    }
    Found { factor, at, start: reached }
}

/// The same from the end. `None` where it is among the first bytes, and where lengths are none.
#[inline(always)]
fn from_end(bytes: &[u8], count: usize, start: usize, text_len: usize) -> Option<Found> {
    let (mut factor, mut at, mut reached) = (count, bytes.len(), text_len);
    loop {
        let before = at.checked_sub(CHUNK + 1)?;
        let chunk: &[u8; CHUNK] = bytes[before + 1..].first_chunk()?;
        let (text, firsts) = add_up::<CHUNK>(bytes[before..].first_chunk()?, chunk)?;
        // Each length ends with a byte that says so.
        (factor, at) = (factor.checked_sub(CHUNK - firsts)?, before + 1);
        reached = reached.checked_sub(text)?;
        if reached <= start {
            return Some(Found { factor, at, start: reached });
        }
    }
}

/// Takes the lengths from a factor on whose texts reach to `end` of the block. Returns how many
/// bytes of lengths were looked at.
#[inline(always)]
pub(super) fn take_until(
    bytes: &[u8],
    found: &Found,
    count: usize,
    end: usize,
    lens: &mut Vec<u32>,
) -> Option<usize> {
    lens.clear();
    let (mut at, mut reached) = (found.at, found.start);
    while reached < end {
        if found.factor + lens.len() == count {
            return None;
        }
        let (len, next) = one(bytes, at)?;
        lens.push(len);
        reached += len.max(1) as usize;
        at = next;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_come_back(lens in proptest::collection::vec(
            prop_oneof![6 => 0u32..128, 1 => any::<u32>(), 1 => 128u32..20_000], 0..100
        )) {
            let (mut bytes, mut taken) = (Vec::new(), Vec::new());
            put(lens.iter().copied(), &mut bytes);
            let used = bytes.len();
            bytes.extend([0xff; 3]);
            prop_assert_eq!(take(&bytes, lens.len(), &mut taken), Some(used));
            prop_assert_eq!(&taken, &lens);
        }

        #[test]
        fn the_factor_of_a_place_is_that_of_adding_up(
            lens in proptest::collection::vec(
                prop_oneof![9 => 0u32..4, 9 => 0u32..128, 3 => 128u32..16_384, 1 => 16_384u32..20_000],
                1..300
            ),
            place in prop_oneof![0usize..3_000, 0usize..300_000],
        ) {
            let mut bytes = vec![5];
            put(lens.iter().copied(), &mut bytes);
            let mut sum = 0;
            let ends: Vec<usize> = lens.iter().map(|&l| { sum += l.max(1) as usize; sum }).collect();
            let expected = ends.iter().position(|&end| end > place);
            let found = seek(&bytes, lens.len(), place, sum);
            prop_assert_eq!(found.as_ref().map(|found| found.factor), expected);
            if let Some(found) = found {
                let i = found.factor;
                prop_assert_eq!(found.start, if i == 0 { 0 } else { ends[i - 1] });
                let mut some = Vec::new();
                let end = (place + 500).min(sum);
                prop_assert!(take_until(&bytes, &found, lens.len(), end, &mut some).is_some());
                prop_assert_eq!(&lens[i..i + some.len()], &some[..]);
                prop_assert!(ends[i + some.len() - 1] >= end);
                prop_assert!(take_until(&bytes, &found, lens.len(), sum + 1, &mut some).is_none());
            }
        }

        #[test]
        fn any_bytes_are_lengths_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), count in 0usize..70
        ) {
            let mut taken = Vec::new();
            if let Some(used) = take(&bytes, count, &mut taken) {
                let mut again = Vec::new();
                put(taken.into_iter(), &mut again);
                prop_assert_eq!(&again, &bytes[..used]);
            }
        }
    }
}
