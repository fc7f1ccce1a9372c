//! The loop in which decoding spends its time: control words that lie in one piece, with their literals, and with room in one piece behind, are
//! checked once each. It stops where margins end; `decode` goes on from there, word by word.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::decode::check;
use super::{TRIPLE, Unit};
use crate::error::Result;
use crate::pages::{At, Kernel, Pieces, Room, SLACK, copy, copy_pieces};

/// Decodes control words.
pub(super) struct Words<U>(PhantomData<U>);

impl<U: Unit> Kernel for Words<U> {
    #[inline(always)]
    fn run(src: &impl Pieces, dst: &impl Room, at: At) -> Result<At> {
        words::<U>(src, dst, at)
    }
}

#[inline(always)]
fn words<U: Unit>(src: &impl Pieces, dst: &impl Room, at: At) -> Result<At> {
    let control = U::TRIPLES * TRIPLE;
    let piece = src.at(at.from);
    if at.to >= dst.len() || piece.len() < control + SLACK {
        return Ok(at);
    }
    // SAFETY: the position is less than the length.
    let (room, left) = unsafe { dst.find(at.to) };
    if left < SLACK {
        return Ok(at);
    }
    // What literals and what is written may take.
    let (last, most) = (piece.len() - control - SLACK, left - SLACK);
    let (mut from, mut to) = (0, 0);
    while from <= last {
        // SAFETY: there are `control` bytes, and `SLACK` more.
        let word = unsafe { std::slice::from_raw_parts(piece.as_ptr().add(from), control) };
        let triples = U::control(&word, 0);
        let literals = (triples[0].literals + triples[1].literals) * U::BYTES;
        let all = literals + (triples[0].matched + triples[1].matched) * U::BYTES;
        if literals > last - from || all > most - to {
            break;
        }
        let start = at.from + from;
        from += control;
        // By number, as the compiler then makes two of it.
        #[allow(clippy::needless_range_loop)]
        for i in 0..U::TRIPLES {
            let triple = triples[i];
            let literals = triple.literals * U::BYTES;
            // SAFETY: both have so many, and `SLACK` more, as was checked of all the word.
            unsafe { copy(room.add(to), piece.as_ptr().add(from), literals) };
            (from, to) = (from + literals, to + literals);
            let distance = triple.offset * U::BYTES;
            check(triple, distance, at.to + to, i == 0, start)?;
            let matched = triple.matched * U::BYTES;
            if distance < SLACK {
                // SAFETY: there is so much room, and `SLACK` more; where anything is copied, the distance is more than 0, and no more than there is.
                unsafe { near::<U>(dst, room.add(to), at.to + to, distance, matched) };
            } else {
                // SAFETY: the distance is no more than there is, or 0; and behind the position there is room.
                let (there, left) = unsafe { dst.find(at.to + to - distance) };
                if left >= matched + SLACK {
                    // SAFETY: there are so many bytes, and so much room; within a move they do not overlap.
                    unsafe { copy(room.add(to), there, matched) };
                } else {
                    // SAFETY: as before.
                    unsafe { copy_pieces(dst, room.add(to), at.to + to, distance, matched) };
                }
            }
            to += matched;
        }
    }
    Ok(At { from: at.from + from, to: at.to + to })
}

/// Copies what goes on into what is copied, as moves of [`SLACK`] bytes would miss.
///
/// # Safety
/// There is room for so many bytes, and `SLACK` more; where there are any, the distance is not 0 and no more than the position.
#[inline(always)]
unsafe fn near<U: Unit>(
    dst: &impl Room,
    to: *mut u8,
    position: usize,
    distance: usize,
    len: usize,
) {
    if len == 0 {
        return;
    }
    // SAFETY: there is such a position.
    let (there, left) = unsafe { dst.find(position - distance) };
    if left <= distance {
        // It begins in another piece.
        // SAFETY: as for this function.
        return unsafe { copy_pieces(dst, to, position, distance, len) };
    }
    // SAFETY: as many bytes as the distance are there, which is a whole number of units, and there is slack behind what is written.
    unsafe {
        match distance {
            4 | 8 => {
                let unit = there.cast::<[u8; 4]>();
                let pair = [unit.read(), unit.add(usize::from(distance == 8)).read()];
                let mut done = 0;
                while done < len {
                    to.add(done).cast::<[[[u8; 4]; 2]; 4]>().write([pair; 4]);
                    done += SLACK;
                }
            }
            _ => {
                let mut done = 0;
                while done < len {
                    let eight = there.add(done).cast::<[u8; 8]>().read();
                    to.add(done).cast::<[u8; 8]>().write(eight);
                    done += 8;
                }
            }
        }
    }
}
