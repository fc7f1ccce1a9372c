//! bzip2: the block-sorting compressor.

use ::bzip2::{Action, Compress, Compression, Decompress, Status};

use crate::error::Result;

pub(super) fn compress(level: i32, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>> {
    // A work size beyond the block changes nothing but the memory it takes.
    let level = (level as u32).min(src.len().div_ceil(100_000).max(1) as u32);
    let mut stream = Compress::new(Compression::new(level), 0);
    match stream.compress(src, dst, Action::Finish) {
        Ok(Status::StreamEnd) => Ok(Some(stream.total_out() as usize)),
        _ => Ok(None),
    }
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut stream = Decompress::new(false);
    let status = stream.decompress(src, dst);
    let whole = matches!(status, Ok(Status::StreamEnd)) && stream.total_in() == src.len() as u64;
    whole.then_some(stream.total_out() as usize)
}
