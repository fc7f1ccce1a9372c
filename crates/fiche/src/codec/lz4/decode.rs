//! Decodes blocks.

use super::kernel::Sequences;
use super::{LAST_LITERALS, LEAST, LONG};
use crate::error::{Error, Place, Result};
use crate::pages::{At, Pieces, Room, run};
use crate::wire::load_low;

#[cold]
fn corrupt(what: &'static str, at: usize) -> Error {
    Error::Corrupt { what, at: Place::Pos(at as u64) }
}

#[cold]
pub(super) fn bad_offset(at: usize) -> Error {
    corrupt("LZ4 match, which begins before its content", at)
}

#[cold]
fn too_long(at: usize) -> Error {
    corrupt("LZ4 block, which has more than is asked for", at)
}

/// A byte, which is there.
fn byte(src: &impl Pieces, at: usize) -> usize {
    let [byte] = src.load::<1>(at);
    byte.into()
}

/// The length that a token tells of, and where what is behind it begins.
fn length(src: &impl Pieces, token: usize, mut at: usize) -> Option<(usize, usize)> {
    let mut len = token;
    if token == LONG {
        loop {
            let more = (at < src.len()).then(|| byte(src, at))?;
            (at, len) = (at + 1, len + more);
            if more < 255 {
                break;
            }
        }
    }
    Some((len, at))
}

/// Decodes all of `src`, or with `FRONT` as much as fills `dst`; returns how many bytes that were.
pub(super) fn decode<const FRONT: bool>(src: &impl Pieces, mut dst: impl Room) -> Result<usize> {
    let (len, room) = (src.len(), dst.len());
    let mut at = At { from: 0, to: 0 };
    loop {
        at = run::<Sequences>(src, &dst, at)?;
        // One that lies across a border, or near the end.
        let start = at.from;
        let ends_within_length = || corrupt("LZ4 block, which ends within a length", start);
        if start == len {
            return Err(corrupt("LZ4 block, which ends without its last literals", start));
        }
        let token = byte(src, start);
        let (mut literals, from) =
            length(src, token >> 4, start + 1).ok_or_else(ends_within_length)?;
        if literals > len - from {
            return Err(corrupt("LZ4 block, which ends within literals", start));
        }
        let is_last = from + literals == len;
        if is_last && literals < LAST_LITERALS && start > 0 {
            return Err(corrupt("LZ4 block, which ends with fewer than five literals", start));
        }
        if literals > room - at.to {
            if !FRONT {
                return Err(too_long(start));
            }
            literals = room - at.to;
        }
        dst.copy_from(at.to, src, from, literals);
        at = At { from: from + literals, to: at.to + literals };
        if is_last || FRONT && at.to == room {
            return Ok(at.to);
        }
        if len - at.from < 2 {
            return Err(corrupt("LZ4 block, which ends within an offset", start));
        }
        let offset = load_low(&src.load::<2>(at.from)) as usize;
        let (mut matched, from) =
            length(src, token & LONG, at.from + 2).ok_or_else(ends_within_length)?;
        matched += LEAST;
        if offset.wrapping_sub(1) >= at.to {
            return Err(bad_offset(start));
        }
        if matched > room - at.to {
            if !FRONT {
                return Err(too_long(start));
            }
            matched = room - at.to;
        }
        dst.repeat(at.to, offset, matched);
        at = At { from, to: at.to + matched };
        if FRONT && at.to == room {
            return Ok(at.to);
        }
    }
}
