//! Copies factors out of a dictionary: what the codings that have factors end with.

use crate::processor::prefetch;
use crate::rlz::Dictionary;
use crate::rlz::dictionary::PADDING;

/// Most factors are shorter than this: they are copied as if they were this long, which takes
/// two instructions, and what is too much is overwritten by the next one.
const STRIDE: usize = 32;
const _: () = assert!(STRIDE <= PADDING);
/// Factors whose dictionary lines are asked for before the first of them is copied.
const AHEAD: usize = 32;
/// Below this a read needs so few factors that asking ahead costs more than it gives.
const FEW: usize = 1024;

/// Fills `dst` with the bytes from `start` on of a block of factors with these lengths (0 for a
/// literal); `offset_of` tells the offset of each, or the byte of a literal. `None` when they
/// end before that or lead outside of the dictionary.
///
/// The paper's decoder is `for (offset, len) in factors { out += D[offset..offset + len] }`. Each of
/// these copies is a cache miss: so this one asks for the lines of some factors at a time.
#[inline(always)]
pub(super) fn copy(
    dictionary: &Dictionary,
    lens: &[u32],
    offset_of: impl Fn(usize) -> u32,
    start: usize,
    dst: &mut [u8],
) -> Option<()> {
    let (mut i, mut skip) = seek(lens, start)?;
    let (padded, limit) = (dictionary.padded(), dictionary.len() as u64);
    let mut offsets = [0; AHEAD];
    let (mut at, is_few) = (0, dst.len() < FEW);
    while at < dst.len() {
        let some = lens.get(i..)?;
        let some = &some[..some.len().min(AHEAD)];
        let mut is_inside = !some.is_empty();
        for (k, (slot, &len)) in offsets.iter_mut().zip(some).enumerate() {
            *slot = offset_of(i + k);
            let end = u64::from(*slot) + u64::from(len);
            let from = *slot as usize + if k == 0 { skip } else { 0 };
            prefetch(padded, from);
            if is_few {
                // Nothing hides what a second line takes.
                prefetch(padded, (from + STRIDE).min(end as usize));
            }
            is_inside &= if len == 0 { *slot < 256 } else { end <= limit };
        }
        if !is_inside {
            return None;
        }
        for (&offset, &len) in offsets.iter().zip(some) {
            if len == 0 {
                dst[at] = offset as u8;
                at += 1;
            } else {
                let (from, len) = (offset as usize + skip, len as usize - skip);
                skip = 0;
                if len <= STRIDE && at + STRIDE <= dst.len() {
                    dst[at..at + STRIDE].copy_from_slice(&padded[from..from + STRIDE]);
                    at += len;
                } else {
                    let now = len.min(dst.len() - at);
                    dst[at..at + now].copy_from_slice(&padded[from..from + now]);
                    at += now;
                }
            }
            if at >= dst.len() {
                return Some(());
            }
        }
        i += some.len();
    }
    Some(())
}

/// Asks for what these factors copy, behind the first `skip` bytes.
#[inline(always)]
pub(super) fn ask(dictionary: &Dictionary, lens: &[u32], offsets: &[u32], mut skip: usize) {
    let padded = dictionary.padded();
    for (&len, &offset) in lens.iter().zip(offsets) {
        let (from, end) = (offset as usize + skip, offset as usize + len as usize);
        prefetch(padded, from);
        prefetch(padded, (from + STRIDE).min(end));
        skip = 0;
    }
}

/// The factor in which the byte at `start` of a block lies, and how many of its bytes are before it.
#[inline(always)]
fn seek(lens: &[u32], start: usize) -> Option<(usize, usize)> {
    let (mut i, mut end) = (0, 0);
    // Eight at a time while that is not too far.
    for group in lens.chunks_exact(8) {
        let sum: usize = group.iter().map(|&len| len.max(1) as usize).sum();
        if end + sum > start {
            break;
        }
        (i, end) = (i + 8, end + sum);
    }
    for (k, &len) in lens.iter().enumerate().skip(i) {
        let len = len.max(1) as usize;
        if end + len > start {
            return Some((k, start - end));
        }
        end += len;
    }
    (start == end).then_some((lens.len(), 0))
}
