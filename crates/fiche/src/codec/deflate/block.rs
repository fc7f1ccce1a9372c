//! Raw deflate by libdeflate: whole blocks at a time.

use libdeflater::{CompressionError, CompressionLvl, Compressor, Decompressor};

use super::{Inflate, Input, Pause};
use crate::error::{Error, Result};

#[derive(Default)]
pub(in crate::codec) struct State {
    /// libdeflate decodes all of a block or nothing; this one stops where it is told to.
    front: Option<Inflate>,
    /// The compressor of the level used last.
    compressor: Option<(i32, Compressor)>,
    decompressor: Option<Decompressor>,
}

pub(in crate::codec) fn compress(
    level: i32,
    src: &[u8],
    dst: &mut [u8],
    state: &mut State,
) -> Result<Option<usize>> {
    if state.compressor.as_ref().is_none_or(|(l, _)| *l != level) {
        let lvl = CompressionLvl::new(level)
            .map_err(|_| Error::invalid("this method has no such level"))?;
        state.compressor = Some((level, Compressor::new(lvl)));
    }
    let Some((_, compressor)) = &mut state.compressor else { return Ok(None) };
    match compressor.deflate_compress(src, dst) {
        Ok(len) => Ok(Some(len)),
        Err(CompressionError::InsufficientSpace) => Ok(None),
    }
}

pub(in crate::codec) fn decompress(src: &[u8], dst: &mut [u8], state: &mut State) -> Option<usize> {
    let decompressor = state.decompressor.get_or_insert_with(Decompressor::new);
    decompressor.deflate_decompress(src, dst).ok()
}

/// Fills `dst` with the first bytes of the block.
pub(in crate::codec) fn decompress_front(
    src: &[u8],
    dst: &mut [u8],
    state: &mut State,
) -> Option<()> {
    let inflate = state.front.get_or_insert_default();
    inflate.reset();
    let mut at = 0;
    let pause = inflate.run(&mut Input::new(src, 0), dst, &mut at).ok()?;
    (pause == Pause::Full).then_some(())
}
