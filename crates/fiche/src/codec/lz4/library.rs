//! High compression by the C library.

use ::lz4::block::{CompressionMode, compress_bound, compress_to_buffer};

use crate::error::Result;

/// The library takes too little room for a failure that its wrapper reports
/// like any other, so it always gets enough and the result is copied.
pub(in crate::codec) fn compress(
    level: i32,
    src: &[u8],
    dst: &mut [u8],
    room: &mut Vec<u8>,
) -> Result<Option<usize>> {
    let bound = compress_bound(src.len())?;
    if room.len() < bound {
        room.resize(bound, 0);
    }
    let mode = CompressionMode::HIGHCOMPRESSION(level);
    let len = compress_to_buffer(src, Some(mode), false, room)?;
    Ok(dst.get_mut(..len).map(|dst| {
        dst.copy_from_slice(&room[..len]);
        len
    }))
}
