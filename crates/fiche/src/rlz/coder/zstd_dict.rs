//! `zstd-dict`: Zstandard that knows all of the dictionary before it starts.
//!
//! # zstd-dict
//!
//! One Zstandard frame as under "Codecs", with the whole dictionary as raw content before it.

use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;

/// Decodes a block whose length is not known into the front of `room`; returns it.
pub(super) fn decode_within(
    dictionary: &Dictionary,
    stored: &[u8],
    room: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    let decoding = dictionary.decoding()?;
    if scratch.zstd.is_none() {
        scratch.zstd = crate::rlz::zstd::Decoder::new();
    }
    scratch.zstd.as_mut()?.decompress(decoding, stored, room)
}

pub(super) fn decode(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    if dst.len() == block_len {
        let done = decode_within(dictionary, stored, dst, scratch)?;
        return (done == block_len).then_some(());
    }
    let mut room = std::mem::take(&mut scratch.room);
    room.resize(block_len, 0);
    let done = decode_within(dictionary, stored, &mut room, scratch);
    dst.copy_from_slice(&room[start..start + dst.len()]);
    scratch.room = room;
    (done? == block_len).then_some(())
}
