//! Decodes streams.

use super::kernel::Words;
use super::{TRIPLE, Triple, Unit};
use crate::error::{Error, Place, Result};
use crate::pages::{At, Pieces, Room, run};

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
    mut dst: impl Room,
) -> Result<usize> {
    match strictness {
        Strictness::Strict => exact::<U, false>(src, &mut dst),
        Strictness::Thesis => clamped::<U>(src, &mut dst),
    }
}

/// Decodes no more than fills `dst`.
pub(super) fn front<U: Unit>(src: &impl Pieces, mut dst: impl Room) -> Result<usize> {
    exact::<U, true>(src, &mut dst)
}

/// What is wrong with a match, or with what has none; nothing, if nothing is.
#[inline(always)]
pub(super) fn check(
    triple: Triple,
    distance: usize,
    to: usize,
    is_first: bool,
    start: usize,
) -> Result<()> {
    let has_match = triple.matched > 0;
    // 0 is farther than anything is, less one.
    let is_before = has_match & (distance.wrapping_sub(1) >= to);
    let is_empty = !has_match & ((triple.offset > 0) | (is_first & (triple.literals == 0)));
    if is_before | is_empty {
        return Err(bad(is_before, start));
    }
    Ok(())
}

#[cold]
fn bad(is_before: bool, start: usize) -> Error {
    match is_before {
        true => corrupt("BeWalgo match, which begins before its content", start),
        false => corrupt("BeWalgo control word, which says nothing", start),
    }
}

/// Without `FRONT` the content has to be all there is room for, or less.
#[inline(always)]
fn exact<U: Unit, const FRONT: bool>(src: &impl Pieces, dst: &mut impl Room) -> Result<usize> {
    let (len, room) = (src.len(), dst.len());
    let mut at = At { from: 0, to: 0 };
    let control = U::TRIPLES * TRIPLE;
    let too_long = |at| Err(corrupt("BeWalgo stream, which has more than is asked for", at));
    while len - at.from >= control {
        at = run::<Words<U>>(src, dst, at)?;
        // One that lies across a border, or near the end.
        if len - at.from < control {
            break;
        }
        let start = at.from;
        let triples = U::control(src, start);
        at.from += control;
        for (i, triple) in triples.into_iter().enumerate().take(U::TRIPLES) {
            let (mut literals, mut matched) =
                (triple.literals * U::BYTES, triple.matched * U::BYTES);
            if literals > len - at.from {
                return Err(corrupt("BeWalgo stream, which ends within literals", start));
            }
            if literals + matched > room - at.to {
                if !FRONT {
                    return too_long(start);
                }
                literals = literals.min(room - at.to);
                matched = matched.min(room - at.to - literals);
            }
            dst.copy_from(at.to, src, at.from, literals);
            (at.from, at.to) = (at.from + literals, at.to + literals);
            if FRONT && at.to == room {
                return Ok(at.to);
            }
            let distance = triple.offset * U::BYTES;
            check(triple, distance, at.to, i == 0, start)?;
            if matched > 0 {
                dst.repeat(at.to, distance, matched);
                at.to += matched;
            }
        }
    }
    let mut tail = len - at.from;
    if tail > room - at.to {
        if !FRONT {
            return too_long(at.from);
        }
        tail = room - at.to;
    }
    dst.copy_from(at.to, src, at.from, tail);
    Ok(at.to + tail)
}

fn clamped<U: Unit>(src: &impl Pieces, dst: &mut impl Room) -> Result<usize> {
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
