//! LZMA2 by liblzma, as a raw filter: no container, which would cost 60 bytes a block.

use liblzma::stream::{Action, Filters, LzmaOptions, Status, Stream};

use crate::error::{Error, Result};

/// A dictionary as long as the block reaches everything; liblzma wants 4 KiB at least.
fn dictionary_size(block_len: usize) -> u32 {
    u32::try_from(block_len).unwrap_or(u32::MAX).clamp(4096, 1 << 30)
}

pub(super) fn compress(level: i32, src: &[u8], dst: &mut [u8]) -> Result<Option<usize>> {
    let refused = |_| Error::invalid("this method has no such level");
    let mut options = LzmaOptions::new_preset(level as u32).map_err(refused)?;
    options.dict_size(dictionary_size(src.len()));
    let mut stream = Stream::new_raw_encoder(Filters::new().lzma2(&options)).map_err(refused)?;
    match stream.process(src, dst, Action::Finish) {
        Ok(Status::StreamEnd) => Ok(Some(stream.total_out() as usize)),
        _ => Ok(None),
    }
}

fn decoder(block_len: usize) -> Option<Stream> {
    let mut options = LzmaOptions::new();
    options.dict_size(dictionary_size(block_len));
    Stream::new_raw_decoder(Filters::new().lzma2(&options)).ok()
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut stream = decoder(dst.len())?;
    let status = stream.process(src, dst, Action::Finish);
    let whole = matches!(status, Ok(Status::StreamEnd)) && stream.total_in() == src.len() as u64;
    whole.then_some(stream.total_out() as usize)
}

/// Fills `dst` with the first bytes of a block of `len` bytes.
pub(super) fn decompress_front(src: &[u8], len: usize, dst: &mut [u8]) -> Option<()> {
    let mut stream = decoder(len)?;
    while stream.total_out() < dst.len() as u64 {
        let (done, used) = (stream.total_out(), stream.total_in());
        stream.process(&src[used as usize..], &mut dst[done as usize..], Action::Run).ok()?;
        if (stream.total_out(), stream.total_in()) == (done, used) {
            return None;
        }
    }
    Some(())
}
