//! Decodes stored blocks: verified, whole or in part.

use crate::archive::shared::Shared;
use crate::blocks::{Block, CHECKSUM, Coded};
use crate::codec::{self, Stages};
use crate::error::{Error, Place, Result};
use crate::rlz::coder::Begin;
use crate::rlz::{self, Coding};
use crate::wire::block_checksum;

/// What a thread keeps between the blocks that it decodes.
#[derive(Default)]
pub(super) struct Decoding {
    codec: codec::Scratch,
    rlz: rlz::coder::Scratch,
}

pub(super) fn place(block: &Block) -> Place {
    Place::Block { block: block.number, pos: block.pos }
}

/// The stored bytes of a block without their checksum, once it is verified.
pub(super) fn verified<'a>(shared: &Shared, block: &Block, stored: &'a [u8]) -> Result<&'a [u8]> {
    let corrupt = || Error::Corrupt { what: "stored block", at: place(block) };
    let (stored, checksum) = stored.split_last_chunk::<CHECKSUM>().ok_or_else(corrupt)?;
    let is_raw = stored.len() as u64 == block.len;
    let mark = if is_raw { 0 } else { shared.mark(block.coded)? };
    if block_checksum(stored, mark) == *checksum { Ok(stored) } else { Err(corrupt()) }
}

/// Decodes the bytes of a block from `start` on as far as `buf` goes, and verifies all that is
/// stored of it, unless it was and cannot have changed. In this order: decoding waits less for memory than a checksum does, and leaves
/// the bytes in the cache. Decoders take anything.
pub(super) fn decode_block(
    shared: &Shared,
    block: &Block,
    stored: &[u8],
    begin: Begin<'_>,
    buf: &mut [u8],
    scratch: &mut Decoding,
    is_verified: bool,
) -> Result<()> {
    let bytes = &stored[..stored.len().saturating_sub(CHECKSUM)];
    let len = block.len as usize;
    let start = begin.at;
    let decoded = if bytes.len() == len {
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    } else {
        decode_bytes(shared, block, bytes, begin, buf, scratch)
    };
    // Who does not know where something lies says 0; dictionaries lie elsewhere.
    let here = |error| match error {
        Error::Corrupt { at: Place::Pos(0), .. } => Error::at(error, place(block)),
        other => other,
    };
    if !is_verified {
        verified(shared, block, stored).map_err(here)?;
    }
    decoded.map_err(here)
}

fn decode_bytes(
    shared: &Shared,
    block: &Block,
    bytes: &[u8],
    begin: Begin<'_>,
    buf: &mut [u8],
    scratch: &mut Decoding,
) -> Result<()> {
    let (number, len) = (block.coded.number, block.len as usize);
    if let Some(coding) = Coding::from_number(number) {
        let shared = shared.of(block.coded)?;
        let done = rlz::coder::decode(coding, shared, bytes, len, begin, buf, &mut scratch.rlz)?;
        return done.ok_or(Error::Corrupt { what: "stored block", at: place(block) });
    }
    let found = u64::from(number);
    let stages = Stages::from_number(number).ok_or(Error::Unsupported { what: "codec", found })?;
    let start = begin.at;
    if start == 0 {
        return stages.decompress_front(bytes, len, buf, &mut scratch.codec);
    }
    let mut room = vec![0; start + buf.len()];
    stages.decompress_front(bytes, len, &mut room, &mut scratch.codec)?;
    buf.copy_from_slice(&room[start..]);
    Ok(())
}

/// True where a piece of a block that is coded so costs no more than what it is made of.
pub(super) fn has_point_reads(block: &Block) -> bool {
    Coding::from_number(block.coded.number).is_some_and(Coding::has_point_reads)
}

/// True where a piece of a block, so many bytes from `start` on, takes much less than all that is before its end.
pub(super) fn is_piece(block: &Block, start: usize, len: usize) -> bool {
    Coding::from_number(block.coded.number).is_some_and(|coding| coding.is_piece(start, len))
}

/// How much of a block to decode for a read that ends at `end` of it.
pub(super) fn reach(block: &Block, end: usize) -> usize {
    let (number, len) = (block.coded.number, block.len as usize);
    let stops = match (Coding::from_number(number), Stages::from_number(number)) {
        (Some(coding), _) => coding.stops_early(end, len),
        (_, Some(stages)) => stages.stops_early(end, len),
        _ => false,
    };
    if stops { end } else { len }
}

/// Decodes a block whose length is not known into the front of `room`; how long it is.
pub(super) fn decode_within(
    shared: &Shared,
    coded: Coded,
    bytes: &[u8],
    room: &mut [u8],
    scratch: &mut Decoding,
) -> Result<Option<usize>> {
    let found = u64::from(coded.number);
    if let Some(coding) = Coding::from_number(coded.number) {
        let shared = shared.of(coded)?;
        return rlz::coder::decode_within(coding, shared, bytes, room, &mut scratch.rlz);
    }
    let unknown = Error::Unsupported { what: "codec", found };
    let stages = Stages::from_number(coded.number).ok_or(unknown)?;
    stages.decompress_within(bytes, room, &mut scratch.codec)
}
