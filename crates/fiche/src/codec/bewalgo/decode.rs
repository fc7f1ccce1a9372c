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

/// Behind what is copied so many bytes may be written and read: copies are of so many at once.
const SLACK: usize = 32;

/// How far a decoder is.
#[derive(Clone, Copy)]
struct At {
    from: usize,
    to: usize,
}

/// What is wrong with a match, or with what has none; nothing, if nothing is.
#[inline(always)]
fn check(triple: Triple, distance: usize, to: usize, is_first: bool, start: usize) -> Result<()> {
    if triple.matched > 0 {
        // 0 is farther than anything is, less one.
        if distance.wrapping_sub(1) >= to {
            return Err(corrupt("BeWalgo match, which begins before its content", start));
        }
    } else if triple.offset > 0 || is_first && triple.literals == 0 {
        return Err(corrupt("BeWalgo control word, which says nothing", start));
    }
    Ok(())
}

/// Decodes control words that lie in one piece, with what they tell of in another, as long as there is room behind.
#[inline(always)]
fn within<U: Unit>(src: &impl Pieces, dst: &mut impl PiecesMut, at: At) -> Result<At> {
    let control = U::TRIPLES * TRIPLE;
    let piece = src.at(at.from);
    let (before, room, start) = dst.piece(at.to);
    let (mut from, mut to) = (0, at.to - start);
    while let Some(words) = piece.get(from..).and_then(|bytes| bytes.first_chunk::<8>()) {
        let triples = U::control(&&words[..], 0);
        let literals = (triples[0].literals + triples[1].literals) * U::BYTES;
        let all = literals + (triples[0].matched + triples[1].matched) * U::BYTES;
        if piece.len() - from < control + literals + SLACK || room.len() - to < all + SLACK {
            break;
        }
        let word = at.from + from;
        from += control;
        for (i, triple) in triples.into_iter().enumerate().take(U::TRIPLES) {
            let literals = triple.literals * U::BYTES;
            copy(room, to, &piece[from..], literals);
            (from, to) = (from + literals, to + literals);
            let distance = triple.offset * U::BYTES;
            check(triple, distance, start + to, i == 0, word)?;
            let matched = triple.matched * U::BYTES;
            if distance <= to {
                repeat(room, to, distance, matched);
            } else {
                let other = before.at(start + to - distance);
                if other.len() >= matched + SLACK {
                    copy(room, to, other, matched);
                } else {
                    across(&before, room, (to, start + to), distance, matched);
                }
            }
            to += matched;
        }
    }
    Ok(At { from: at.from + from, to: start + to })
}

/// Copies so many bytes, and up to [`SLACK`] more.
#[inline(always)]
fn copy(room: &mut [u8], to: usize, from: &[u8], len: usize) {
    let mut done = 0;
    while done < len {
        let chunk = from.get(done..).and_then(|from| from.first_chunk::<SLACK>());
        let place = room.get_mut(to + done..).and_then(|room| room.first_chunk_mut::<SLACK>());
        if let (Some(chunk), Some(place)) = (chunk, place) {
            *place = *chunk;
        }
        done += SLACK;
    }
}

/// Copies so many bytes, and up to [`SLACK`] more, from a distance before.
#[inline(always)]
fn repeat(room: &mut [u8], to: usize, distance: usize, len: usize) {
    let from = to - distance;
    let mut done = 0;
    if distance >= SLACK {
        while done < len {
            let chunk =
                room.get(from + done..).and_then(|from| from.first_chunk::<SLACK>()).copied();
            let place = room.get_mut(to + done..).and_then(|room| room.first_chunk_mut::<SLACK>());
            if let (Some(chunk), Some(place)) = (chunk, place) {
                *place = chunk;
            }
            done += SLACK;
        }
        return;
    }
    let mut eight: [u8; 8] = [0; 8];
    while done < len {
        // A unit of four bytes that comes again is eight bytes that do.
        if distance >= 8 || done == 0 {
            let behind = room.get(from + done..).and_then(|from| from.first_chunk::<8>());
            eight = behind.copied().unwrap_or_default();
            if distance < 8 {
                eight.copy_within(..4, 4);
            }
        }
        if let Some(place) = room.get_mut(to + done..).and_then(|room| room.first_chunk_mut::<8>())
        {
            *place = eight;
        }
        done += 8;
    }
}

/// Copies what begins before a piece, and may go on into it.
#[cold]
fn across(
    before: &impl Pieces,
    room: &mut [u8],
    (mut to, mut position): (usize, usize),
    distance: usize,
    mut len: usize,
) {
    while len > 0 && distance > to {
        let other = before.at(position - distance);
        let n = other.len().min(len);
        room[to..to + n].copy_from_slice(&other[..n]);
        (to, position, len) = (to + n, position + n, len - n);
    }
    if len > 0 {
        repeat(room, to, distance, len);
    }
}

/// Without `FRONT` the content has to be all there is room for, or less.
#[inline(always)]
fn exact<U: Unit, const FRONT: bool>(src: &impl Pieces, dst: &mut impl PiecesMut) -> Result<usize> {
    let (len, room) = (src.len(), dst.len());
    let mut at = At { from: 0, to: 0 };
    let control = U::TRIPLES * TRIPLE;
    let too_long = |at| Err(corrupt("BeWalgo stream, which has more than is asked for", at));
    while len - at.from >= control {
        at = within::<U>(src, dst, at)?;
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
