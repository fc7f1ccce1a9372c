//! Decodes streams.

use super::{TRIPLE, Triple, Unit};
use crate::error::{Error, Place, Result};
use crate::pages::{Pieces, PiecesMut};

/// What a stream may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strictness {
    /// Exactly what is described here.
    Strict,
    /// What the thesis's encoder writes and its decoder takes, which stops when the room is full: so many bytes have to be in the stream. The last literals and the
    /// last match may be longer, and a last unit is whole.
    Thesis,
}

fn corrupt(what: &'static str, at: usize) -> Error {
    Error::Corrupt { what, at: Place::Pos(at as u64) }
}

/// Decodes all of `src`, or of a thesis's stream as much as fills `dst`; returns how many bytes that were.
pub(super) fn decode<U: Unit>(
    strictness: Strictness,
    src: &impl Pieces,
    mut dst: impl PiecesMut,
) -> Result<usize> {
    match strictness {
        Strictness::Strict => exact::<U, false>(src, &mut dst),
        Strictness::Thesis => clamped::<U>(src, &mut dst),
    }
}

/// Decodes no more than fills `dst`.
pub(super) fn front<U: Unit>(src: &impl Pieces, mut dst: impl PiecesMut) -> Result<usize> {
    exact::<U, true>(src, &mut dst)
}

/// Without `FRONT` the content has to be all there is room for, or less.
#[inline(always)]
fn exact<U: Unit, const FRONT: bool>(src: &impl Pieces, dst: &mut impl PiecesMut) -> Result<usize> {
    let (len, room) = (src.len(), dst.len());
    let (mut from, mut to) = (0, 0);
    let control = U::TRIPLES * TRIPLE;
    let too_long = |at| Err(corrupt("BeWalgo stream, which has more than is asked for", at));
    while len - from >= control {
        let start = from;
        let triples = U::control(src, start);
        from += control;
        for (i, triple) in triples.into_iter().enumerate().take(U::TRIPLES) {
            let (mut literals, mut matched) =
                (triple.literals * U::BYTES, triple.matched * U::BYTES);
            let distance = triple.offset * U::BYTES;
            if literals > len - from {
                return Err(corrupt("BeWalgo stream, which ends within literals", start));
            }
            if literals + matched > room - to {
                if !FRONT {
                    return too_long(start);
                }
                literals = literals.min(room - to);
                matched = matched.min(room - to - literals);
            }
            dst.copy_from(to, src, from, literals);
            (from, to) = (from + literals, to + literals);
            if matched > 0 {
                // 0 is farther than anything is, less one.
                if distance.wrapping_sub(1) >= to {
                    return Err(corrupt("BeWalgo match, which begins before its content", start));
                }
                dst.repeat(to, distance, matched);
                to += matched;
            } else if i == 0 && triple == Triple::default()
                || triple.matched == 0 && triple.offset > 0
            {
                return Err(corrupt("BeWalgo control word, which says nothing", start));
            }
            if FRONT && to == room {
                return Ok(to);
            }
        }
    }
    let mut tail = len - from;
    if tail > room - to {
        if !FRONT {
            return too_long(from);
        }
        tail = room - to;
    }
    dst.copy_from(to, src, from, tail);
    Ok(to + tail)
}

fn clamped<U: Unit>(src: &impl Pieces, dst: &mut impl PiecesMut) -> Result<usize> {
    let (len, room) = (src.len(), dst.len());
    let (mut from, mut to) = (0, 0);
    let control = U::TRIPLES * TRIPLE;
    while to < room {
        if len - from < control {
            return Err(corrupt("BeWalgo stream, which ends before its content", from));
        }
        let start = from;
        let triples = U::control(src, start);
        from += control;
        for triple in triples.into_iter().take(U::TRIPLES) {
            let literals = (triple.literals * U::BYTES).min(room - to);
            // A last unit is whole in the stream.
            let stored = literals.next_multiple_of(U::BYTES);
            if stored > len - from {
                return Err(corrupt("BeWalgo stream, which ends within literals", start));
            }
            dst.copy_from(to, src, from, literals);
            (from, to) = (from + stored, to + literals);
            let matched = (triple.matched * U::BYTES).min(room - to);
            let distance = triple.offset * U::BYTES;
            if matched > 0 {
                if distance.wrapping_sub(1) >= to {
                    return Err(corrupt("BeWalgo match, which begins before its content", start));
                }
                dst.repeat(to, distance, matched);
                to += matched;
            }
        }
    }
    if from < len {
        return Err(corrupt("BeWalgo stream, which goes on behind its content", from));
    }
    Ok(to)
}
