//! What a stream of deflate, LZ4 or Snappy says: its pieces in their order, the copies among them, its content.

use crate::codec::deflate::{Inflate, Input, Pause, Tokens};
use crate::error::{Error, Place, Result};
use crate::phrases::Coding;
use crate::phrases::extract::copy;
use crate::phrases::layout::MOST;
use crate::phrases::parse::Match;
use crate::processor::{Work, with_bit_counts};
use crate::wire::{Take, load_u32};

/// A phrase as it is written.
pub(super) enum Piece {
    /// Bytes of the stream.
    Literals {
        from: usize,
        len: usize,
    },
    Copy {
        distance: usize,
        len: usize,
    },
}

/// A length of an LZ4 sequence: what its four bits say, and the bytes from `next` on if they are all set.
#[inline(always)]
fn lz4_len(stored: &[u8], bits: u8, next: &mut usize) -> Option<usize> {
    let mut len = usize::from(bits);
    if bits == 15 {
        loop {
            let byte = *stored.get(*next)?;
            *next += 1;
            len = len.checked_add(usize::from(byte))?;
            if byte < 255 {
                break;
            }
        }
    }
    Some(len)
}

/// The sequence of an LZ4 block at this byte: its literals and its copy, and where the next one is; `None` for what
/// cannot be. Only the last sequence has no copy.
#[inline(always)]
fn lz4_sequence(stored: &[u8], at: usize) -> Option<([Option<Piece>; 2], usize)> {
    let token = *stored.get(at)?;
    let mut next = at + 1;
    let len = lz4_len(stored, token >> 4, &mut next)?;
    let literals = Some(Piece::Literals { from: next, len });
    next = next.checked_add(len).filter(|&next| next <= stored.len())?;
    if next == stored.len() {
        return Some(([literals, None], next));
    }
    let distance = usize::from(*stored.get(next)?) | usize::from(*stored.get(next + 1)?) << 8;
    next += 2;
    let len = lz4_len(stored, token & 15, &mut next)?.checked_add(4)?;
    let is_right = distance > 0 && next < stored.len();
    is_right.then_some(([literals, Some(Piece::Copy { distance, len })], next))
}

/// The element of a Snappy stream at this byte, and where the next one is.
#[inline(always)]
fn snappy_element(stored: &[u8], at: usize) -> Option<(Piece, usize)> {
    let tag = usize::from(*stored.get(at)?);
    let behind = at + 1;
    // Up to four bytes of a number; those that are not there are looked for below.
    let word = match behind + 4 <= stored.len() {
        true => load_u32(stored, behind),
        false => stored[behind..].iter().rev().fold(0, |word, &b| word << 8 | u32::from(b)),
    } as usize;
    let (piece, next) = match tag & 3 {
        0 => {
            let (len, from) = match tag >> 2 {
                len @ 0..60 => (len + 1, behind),
                long => {
                    let all = (1u64 << (8 * (long - 59))) - 1;
                    ((word as u64 & all) as usize + 1, behind + long - 59)
                }
            };
            let piece = Piece::Literals { from, len };
            (piece, from.checked_add(len)?)
        }
        1 => {
            let distance = tag >> 5 << 8 | word & 0xFF;
            (Piece::Copy { distance, len: (tag >> 2 & 7) + 4 }, at + 2)
        }
        2 => (Piece::Copy { distance: word & 0xFFFF, len: (tag >> 2) + 1 }, at + 3),
        _ => (Piece::Copy { distance: word, len: (tag >> 2) + 1 }, at + 5),
    };
    let is_right = next <= stored.len() && !matches!(piece, Piece::Copy { distance: 0, .. });
    is_right.then_some((piece, next))
}

/// The pieces at this byte of a stream, and where the next ones are.
#[inline(always)]
pub(super) fn pieces(
    coding: Coding,
    stored: &[u8],
    at: usize,
) -> Option<([Option<Piece>; 2], usize)> {
    match coding {
        Coding::Lz4 => lz4_sequence(stored, at),
        _ => snappy_element(stored, at).map(|(piece, next)| ([Some(piece), None], next)),
    }
}

/// Where the first phrase of a stream is, and how much content it says it has.
pub(super) fn begin(coding: Coding, stored: &[u8]) -> Result<(usize, Option<u64>)> {
    if coding == Coding::Snappy {
        let mut take = Take::new(stored, "Snappy stream", 0);
        // A length that is written with more bytes than it needs is one, too.
        let mut len = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = take.u8()?;
            len |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok((stored.len() - take.remaining(), Some(len)));
            }
        }
        return Err(take.corrupt());
    }
    Ok((0, None))
}

pub(super) fn corrupt_at(coding: Coding, pos: usize) -> Error {
    let what = match coding {
        Coding::Lz4 => "LZ4 block",
        _ => "Snappy stream",
    };
    Error::Corrupt { what, at: Place::Pos(pos as u64) }
}

pub(super) fn too_long(len: usize) -> Error {
    Error::Limit { what: "content of a unit", need: len as u64, allowed: MOST as u64 }
}

/// Takes the copies of a deflate stream.
struct Copies {
    at: usize,
    found: Vec<Match>,
}

impl Copies {
    fn push(&mut self, len: usize, distance: usize) {
        let (at, source) = (self.at as u32, (self.at - distance) as u32);
        self.found.push(Match { at, len: len as u32, source });
        self.at += len;
    }
}

impl Tokens for Copies {
    fn is_full(&self) -> bool {
        false
    }
    fn at(&self) -> usize {
        self.at
    }
    fn literal(&mut self, _: u8) {
        self.at += 1;
    }
    fn literals(&mut self, bytes: &[u8]) {
        self.at += bytes.len();
    }
    fn copy(&mut self, len: usize, distance: usize) {
        self.push(len, distance);
    }
}

/// The copies of a stream that was gone through before, and how much content it has.
pub(super) fn matches(coding: Coding, stored: &[u8]) -> Result<(Vec<Match>, usize)> {
    let mut copies = Copies { at: 0, found: Vec::new() };
    if coding == Coding::Deflate {
        let (mut inflate, mut input) = (Inflate::new(), Input::new(stored, 0));
        loop {
            let pause = inflate.run_tokens(&mut input, &mut copies);
            if pause.map_err(|fault| fault.at(input.byte() as u64))? == Pause::End {
                break;
            }
        }
    } else {
        let (mut next, _) = begin(coding, stored)?;
        while next < stored.len() {
            let corrupt = || corrupt_at(coding, next);
            let (pieces, after) = pieces(coding, stored, next).ok_or_else(corrupt)?;
            for piece in pieces.into_iter().flatten() {
                match piece {
                    Piece::Literals { len, .. } => copies.at += len,
                    Piece::Copy { len, distance } => copies.push(len, distance),
                }
            }
            next = after;
        }
    }
    Ok((copies.found, copies.at))
}

/// Fills `out` with the content of a stream from its first byte on.
pub(super) fn decode(
    coding: Coding,
    stored: &[u8],
    out: &mut [u8],
    inflate: &mut Inflate,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    if coding == Coding::Deflate {
        inflate.reset();
        let (mut input, mut at) = (Input::new(stored, 0), 0);
        let pause = inflate.run(&mut input, out, &mut at);
        return match pause.map_err(|fault| fault.at(input.byte() as u64))? {
            Pause::Full => Ok(()),
            _ => {
                Err(Error::Corrupt { what: "deflate stream", at: Place::Pos(stored.len() as u64) })
            }
        };
    }
    with_bit_counts(Decoding { coding, stored, out })
}

struct Decoding<'a> {
    coding: Coding,
    stored: &'a [u8],
    out: &'a mut [u8],
}

impl Work for Decoding<'_> {
    type Done = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        decode_bytes(self.coding, self.stored, self.out)
    }
}

#[inline(always)]
fn decode_bytes(coding: Coding, stored: &[u8], out: &mut [u8]) -> Result<()> {
    let (mut next, _) = begin(coding, stored)?;
    let mut at = 0;
    while at < out.len() {
        let corrupt = || corrupt_at(coding, next);
        let (pieces, after) = pieces(coding, stored, next).ok_or_else(corrupt)?;
        for piece in pieces.into_iter().flatten() {
            let room = out.len() - at;
            if room == 0 {
                break;
            }
            match piece {
                Piece::Literals { from, len } => {
                    let len = len.min(room);
                    match (stored.get(from..from + 16), out.get_mut(at..at + 16)) {
                        // Short ones are copied as 16 bytes, where there is room for what is too much.
                        (Some(wide), Some(to)) if len <= 16 => to.copy_from_slice(wide),
                        _ => out[at..at + len].copy_from_slice(&stored[from..from + len]),
                    }
                    at += len;
                }
                Piece::Copy { distance, len } => {
                    let len = len.min(room);
                    if distance > at {
                        return Err(corrupt());
                    }
                    copy(out, at, distance, len);
                    at += len;
                }
            }
        }
        next = after;
    }
    Ok(())
}
