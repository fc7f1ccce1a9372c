//! LZ4 by its C library.

use ::lz4::block::{CompressionMode, compress_bound, compress_to_buffer, decompress_to_buffer};

use crate::error::Result;

/// The library takes too little room for a failure that its wrapper reports
/// like any other, so it always gets enough and the result is copied.
pub(super) fn compress(
    level: i32,
    src: &[u8],
    dst: &mut [u8],
    room: &mut Vec<u8>,
) -> Result<Option<usize>> {
    let mode = match level {
        // Levels below 3 are the fast compressor; 2 searches the most there.
        1 | 2 => CompressionMode::FAST(3 - level),
        _ => CompressionMode::HIGHCOMPRESSION(level),
    };
    let bound = compress_bound(src.len())?;
    if room.len() < bound {
        room.resize(bound, 0);
    }
    let len = compress_to_buffer(src, Some(mode), false, room)?;
    Ok(dst.get_mut(..len).map(|dst| {
        dst.copy_from_slice(&room[..len]);
        len
    }))
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let len = i32::try_from(dst.len()).ok()?;
    decompress_to_buffer(src, Some(len), dst).ok()
}
