//! Zstandard by its C library: blocks, and the compressed sections of a file.

use std::io;

use ::zstd::bulk::Decompressor;
use ::zstd::zstd_safe::{DCtx, DParameter, FrameFormat, InBuffer, OutBuffer, ResetDirective};

use super::prepared::Encoder;
use crate::error::Result;

#[derive(Default)]
pub(super) struct State {
    /// The compressor, and its level.
    encoder: Option<(i32, Encoder)>,
    decompressor: Option<Decompressor<'static>>,
    /// Decodes a frame step by step.
    front: Option<DCtx<'static>>,
}

/// Bytes that a frame's own blocks decode to at most: it can stop behind each.
pub(super) const STEP: usize = 128 << 10;

impl State {
    fn encoder(&mut self, level: i32) -> Result<&mut Encoder> {
        let ready = self.encoder.take().filter(|(now, _)| *now == level);
        let (_, encoder) = match ready {
            Some(ready) => self.encoder.insert(ready),
            None => self.encoder.insert((level, Encoder::new(level)?)),
        };
        Ok(encoder)
    }

    fn decompressor(&mut self) -> io::Result<&mut Decompressor<'static>> {
        Ok(match self.decompressor.take() {
            Some(ready) => self.decompressor.insert(ready),
            None => {
                let mut new = Decompressor::new()?;
                new.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
                self.decompressor.insert(new)
            }
        })
    }
}

pub(super) fn compress(
    level: i32,
    src: &[u8],
    dst: &mut [u8],
    state: &mut State,
) -> Result<Option<usize>> {
    // With an input that is there and checked options, the one failure left is
    // a lack of room (or of memory, and then the block is stored raw).
    Ok(state.encoder(level)?.compress(src, dst))
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8], state: &mut State) -> Option<usize> {
    state.decompressor().ok()?.decompress_to_buffer(src, dst).ok()
}

/// Fills the first `wanted` bytes of `room`, which has the length of the whole block.
pub(super) fn decompress_front(
    src: &[u8],
    wanted: usize,
    room: &mut [u8],
    state: &mut State,
) -> Option<()> {
    let context = match &mut state.front {
        Some(context) => {
            context.reset(ResetDirective::SessionOnly).ok()?;
            context
        }
        none => {
            let mut new = DCtx::create();
            new.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
            new.set_parameter(DParameter::StableOutBuffer(true)).ok()?;
            none.insert(new)
        }
    };
    let mut out = OutBuffer::around(room);
    // It says after each step how much it wants for the next: with more, it would go on.
    let (mut used, mut hint) = (0, 1);
    while out.pos() < wanted {
        let end = src.len().min(used + hint);
        let mut input = InBuffer::around(&src[used..end]);
        let before = out.pos();
        hint = context.decompress_stream(&mut out, &mut input).ok()?;
        used += input.pos();
        let is_stuck = input.pos() == 0 && out.pos() == before;
        if out.pos() < wanted && (hint == 0 || is_stuck) {
            return None;
        }
    }
    Some(())
}

/// The bytes of a section compressed, or `None` when that does not shrink them.
pub(crate) fn pack_section(
    bytes: &[u8],
    level: i32,
    scratch: &mut super::Scratch,
) -> Option<Vec<u8>> {
    /// The levels that are used see no further back by themselves.
    const FAR: usize = 8 << 20;
    let mut packed = vec![0; bytes.len().checked_sub(1)?];
    let len = if bytes.len() > FAR {
        let all = bytes.len().next_power_of_two().ilog2();
        Encoder::with_window(level, all).ok()?.compress(bytes, &mut packed)?
    } else {
        compress(level, bytes, &mut packed, &mut scratch.zstd).ok()??
    };
    packed.truncate(len);
    Some(packed)
}

/// The `len` bytes that a compressed section stands for, or `None` when it is damaged.
pub(crate) fn unpack_section(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    (decompress(packed, &mut bytes, &mut State::default())? == len).then_some(bytes)
}
