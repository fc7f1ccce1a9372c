//! `zlib-primed`: deflate that knows a part of the dictionary before it starts (section 5 of the paper).
//!
//! # zlib-primed
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | region | from which KiB of the dictionary on its bytes are taken as known: 32 KiB, or as many as follow |
//! | | stored | raw deflate of the block, as if it came behind these bytes |

use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;
use crate::rlz::primed::WINDOW;
use crate::wire::{Put, Take};

/// What regions are counted in.
const UNIT: usize = 1 << 10;

/// The bytes of a region.
fn region(dictionary: &[u8], unit: usize) -> Option<&[u8]> {
    let rest = dictionary.get(unit.checked_mul(UNIT)?..)?;
    Some(&rest[..rest.len().min(WINDOW)])
}

/// The region in the neighbourhood of what is at `offset` in a collection of `len` bytes: a sample
/// of the dictionary stands in it where the sample stood in the collection.
pub(super) fn neighbourhood(dictionary_len: usize, offset: u64, len: u64) -> usize {
    let last = dictionary_len.saturating_sub(WINDOW);
    let place = u128::from(offset.min(len)) * dictionary_len as u128 / u128::from(len.max(1));
    (place as usize).saturating_sub(WINDOW / 2).min(last) / UNIT
}

pub(super) fn encode(
    dictionary: &Dictionary,
    unit: usize,
    level: i32,
    block: &[u8],
    dst: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    let mut head = Vec::with_capacity(10);
    head.put_varint(unit as u64);
    let (front, rest) = dst.split_at_mut_checked(head.len())?;
    front.copy_from_slice(&head);
    let region = region(dictionary.as_bytes(), unit)?;
    Some(head.len() + scratch.primed.deflate(level, region, block, rest)?)
}

pub(super) fn decode(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let mut take = Take::new(stored, "region", 0);
    let unit = take.count(u64::from(u32::MAX)).ok()?;
    let region = region(dictionary.as_bytes(), unit)?;
    let rest = take.bytes(take.remaining()).ok()?;
    let end = start + dst.len();
    if start == 0 {
        return scratch.primed.inflate(region, rest, dst, end == block_len);
    }
    let mut room = std::mem::take(&mut scratch.room);
    room.resize(end, 0);
    let done = scratch.primed.inflate(region, rest, &mut room, end == block_len);
    dst.copy_from_slice(&room[start..]);
    scratch.room = room;
    done
}

/// The same of a block whose length is not known; returns it.
pub(super) fn decode_within(
    dictionary: &Dictionary,
    stored: &[u8],
    room: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    let mut take = Take::new(stored, "region", 0);
    let unit = take.count(u64::from(u32::MAX)).ok()?;
    let region = region(dictionary.as_bytes(), unit)?;
    let rest = take.bytes(take.remaining()).ok()?;
    scratch.primed.inflate_all(region, rest, room)
}
