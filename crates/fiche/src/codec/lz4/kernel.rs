//! The loop in which decoding spends its time: sequences that lie in one piece, and with room in one piece, are checked once each. It stops where margins end;
//! `decode` goes on from there, sequence by sequence.
#![allow(unsafe_code)]

use super::decode::bad_offset;
use super::{LEAST, LONG};
use crate::error::Result;
use crate::pages::{At, Kernel, Pieces, Room, SLACK, copy, copy_pieces};

/// Bytes behind a token that may be read with it: literals in one move, and an offset; or what is behind long literals.
const IN: usize = 1 + SLACK + 2;
/// Bytes that may be written behind a position: literals of fewer than 15 bytes, and a match in two moves; or what is behind long ones.
const OUT: usize = 15 + 3 * MOVE;
/// Bytes of one move.
const MOVE: usize = 16;

/// Decodes sequences.
pub(super) struct Sequences;

impl Kernel for Sequences {
    #[inline(always)]
    fn run(src: &impl Pieces, dst: &impl Room, at: At) -> Result<At> {
        sequences(src, dst, at)
    }
}

#[inline(always)]
fn sequences<D: Room>(src: &impl Pieces, dst: &D, at: At) -> Result<At> {
    let piece = src.at(at.from);
    if at.to >= dst.len() || piece.len() < IN {
        return Ok(at);
    }
    // SAFETY: the position is less than the length.
    let (room, left) = unsafe { dst.find(at.to) };
    if left < OUT {
        return Ok(at);
    }
    // Positions are added to it.
    let room = room.wrapping_sub(at.to);
    let bytes = piece.as_ptr();
    // Where a token may be at most, and where what it writes may begin.
    let (last, most) = (piece.len() - IN, at.to + left - OUT);
    let (mut from, mut to) = (0, at.to);
    'all: while from <= last && to <= most {
        // SAFETY: `from` is no more than `last`, behind which there are bytes.
        let token = usize::from(unsafe { bytes.add(from).read() });
        let (mut next, mut literals) = (from + 1, token >> 4);
        if literals < LONG {
            // SAFETY: behind `last` and `most` there are so many bytes.
            unsafe { step(room.wrapping_add(to), bytes.add(next)) };
        } else {
            loop {
                if next > last {
                    break 'all;
                }
                // SAFETY: `next` is no more than `last`.
                let more = usize::from(unsafe { bytes.add(next).read() });
                (next, literals) = (next + 1, literals + more);
                if more < 255 {
                    break;
                }
            }
            if next + literals > last || to + literals > most {
                break;
            }
            // SAFETY: so many bytes end before `last` and `most`, behind which there is slack.
            unsafe { copy(room.wrapping_add(to), bytes.add(next), literals) };
        }
        next += literals;
        let end = to + literals;
        // SAFETY: literals ended no more than 15 bytes behind `last` and the token.
        let offset = unsafe { bytes.add(next).cast::<u16>().read_unaligned() };
        let offset = usize::from(u16::from_le(offset));
        next += 2;
        // 0 is farther than anything is, less one.
        if offset.wrapping_sub(1) >= end {
            return Err(bad_offset(at.from + from));
        }
        let (there, left) = if D::IS_ONE {
            // All of it lies behind, with what is about to be written.
            (room.wrapping_add(end - offset), usize::MAX)
        } else {
            // SAFETY: the offset is no more than there is.
            unsafe { dst.find(end - offset) }
        };
        let mut matched = token & LONG;
        if matched < LONG && offset >= 8 && left >= 18 {
            // SAFETY: so many bytes are there, as there are behind this place where all is one piece. Each move reads what is before what it writes, and behind `most` there is room for
            // literals and these.
            unsafe {
                let to = room.wrapping_add(end);
                to.cast::<[u8; 8]>().write(there.cast::<[u8; 8]>().read());
                to.add(8).cast::<[u8; 8]>().write(there.add(8).cast::<[u8; 8]>().read());
                to.add(16).cast::<[u8; 2]>().write(there.add(16).cast::<[u8; 2]>().read());
            }
            (from, to) = (next, end + matched + LEAST);
            continue;
        }
        if matched == LONG {
            loop {
                if next > last {
                    break 'all;
                }
                // SAFETY: `next` is no more than `last`.
                let more = usize::from(unsafe { bytes.add(next).read() });
                (next, matched) = (next + 1, matched + more);
                if more < 255 {
                    break;
                }
            }
        }
        matched += LEAST;
        if end + matched > most {
            break;
        }
        // SAFETY: so many bytes end before `most`, behind which there is slack. The offset is more than 0 and no more than there is.
        unsafe {
            let to = room.wrapping_add(end);
            if offset >= SLACK && left >= matched + SLACK {
                copy(to, there, matched);
            } else if left > offset {
                near(to, there, offset, matched);
            } else {
                copy_pieces(dst, to, end, offset, matched);
            }
        }
        (from, to) = (next, end + matched);
    }
    Ok(At { from: at.from + from, to })
}

/// Copies [`MOVE`] bytes.
///
/// # Safety
/// They are there, and there is room for them, which begins no less than so many behind.
#[inline(always)]
unsafe fn step(to: *mut u8, from: *const u8) {
    // SAFETY: as for this function.
    unsafe { to.cast::<[u8; MOVE]>().write(from.cast::<[u8; MOVE]>().read()) };
}

/// Copies what begins `offset` bytes before, in the same piece, and goes on into what is copied.
///
/// # Safety
/// There is room for so many bytes, and for two moves more.
#[inline(always)]
unsafe fn near(mut to: *mut u8, mut from: *const u8, offset: usize, len: usize) {
    // SAFETY: until the gap has a move it is less than two behind the beginning; from then on it is written up to a move behind the end. What is read was written, or is room.
    unsafe {
        let end = to.add(len);
        let mut gap = offset;
        // What repeats with a period does so with twice that.
        while gap < MOVE {
            step(to, from);
            to = to.add(gap);
            gap *= 2;
        }
        while to < end {
            step(to, from);
            (to, from) = (to.add(MOVE), from.add(MOVE));
        }
    }
}
