//! `zstd-dict`: Zstandard that knows all of the dictionary before it starts.
//!
//! # zstd-dict
//!
//! One Zstandard frame as under "Codecs", with the whole dictionary as raw content before it.

use crate::codec::Codec;
use crate::codec::prepared::Decoder;
use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;

/// Decodes a block whose length is not known into the front of `room`; returns it.
pub(super) fn decode_within(
    dictionary: &Dictionary,
    stored: &[u8],
    room: &mut [u8],
    scratch: &mut Scratch,
) -> Option<usize> {
    decoder(scratch)?.decompress(dictionary.decoding()?, stored, room)
}

fn decoder(scratch: &mut Scratch) -> Option<&mut Decoder> {
    if scratch.zstd.is_none() {
        scratch.zstd = Decoder::new();
    }
    scratch.zstd.as_mut()
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
    let decoding = dictionary.decoding()?;
    let mut room = std::mem::take(&mut scratch.room);
    room.resize(block_len, 0);
    let end = start + dst.len();
    let decoder = decoder(scratch);
    let done = decoder.and_then(|decoder| match Codec::Zstd.stops_early(end, block_len) {
        true => decoder.decompress_front(decoding, stored, end, &mut room),
        false => {
            let done = decoder.decompress(decoding, stored, &mut room)?;
            (done == block_len).then_some(())
        }
    });
    dst.copy_from_slice(&room[start..end]);
    scratch.room = room;
    done
}
