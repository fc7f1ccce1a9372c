//! Phrases of a stream by its index: what of them an extraction reads is kept until it is done.

use crate::codec::deflate::{Header, Inflate, Input, Pause, Tokens};
use crate::elias_fano::Gap;
use crate::error::{Error, Place, Result};
use crate::phrases::Coding;
use crate::phrases::extract::{From, Phrase, Phrases};
use crate::phrases::index::{GROUP, Index, WHAT};
use crate::phrases::layout::MOST;
use crate::phrases::stream::{Piece, corrupt_at, pieces, too_long};

/// To read so many phrases and literals takes as long as a step, and so many steps to make the tables of a block.
const READ: usize = 4;
const TABLES: usize = 60;
/// Decoders that an extraction keeps, each with the tables of a block.
const DECODERS: usize = 8;

/// One phrase of a group: where it starts, and which literal (with the highest bit) or byte of the content it is from.
#[derive(Clone, Copy, Debug)]
struct Token {
    start: u32,
    from: u32,
}

const LITERALS: u32 = 1 << 31;

/// What an extraction has read of a stream so far: the phrases of some groups, literals, tables of some blocks.
#[derive(Default)]
pub(super) struct Memo {
    tokens: Vec<Token>,
    literals: Vec<u8>,
    /// Of each group, 1 more than the number of its first token, and the number behind its last.
    firsts: Vec<(u32, u32)>,
    /// Groups that have one.
    used: Vec<u32>,
    /// Tables that were made for the extraction.
    made: usize,
    /// Of which block each is; the last one was used last.
    decoders: Vec<(u32, Header, Inflate)>,
}

impl Memo {
    /// For another extraction of a unit with so many groups. Tables stay, if it is the same unit.
    fn clear(&mut self, groups: usize) {
        self.tokens.clear();
        self.literals.clear();
        for &group in &self.used {
            if let Some(first) = self.firsts.get_mut(group as usize) {
                *first = (0, 0);
            }
        }
        self.used.clear();
        self.made = 0;
        if self.firsts.len() < groups {
            self.firsts.resize(groups, (0, 0));
        }
    }

    pub fn forget_tables(&mut self) {
        self.decoders.clear();
    }

    /// What reading took, in steps.
    #[inline(always)]
    fn steps(&self) -> usize {
        (self.tokens.len() + self.literals.len()) / READ + TABLES * self.made
    }

    /// Bytes of memory that the extraction used.
    pub fn bytes(&self) -> usize {
        size_of::<Token>() * self.tokens.len()
            + self.literals.len()
            + 8 * self.firsts.len()
            + 4 * self.used.len()
            + self.decoders.len() * INFLATE_BYTES
    }
}

/// What a decoder of deflate takes.
const INFLATE_BYTES: usize = 16 << 10;

/// A stream, its index, and what was read of it.
pub(super) struct Indexed<'a> {
    stored: &'a [u8],
    index: &'a Index,
    memo: &'a mut Memo,
}

/// Where a phrase is: its group, the number of its token, and that behind the last of its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    group: Gap,
    token: u32,
    end: u32,
}

/// Takes tokens of a deflate stream as phrases: literals in a row are one.
struct Taker<'a> {
    tokens: &'a mut Vec<Token>,
    literals: &'a mut Vec<u8>,
    at: usize,
    /// Where no more are taken.
    end: usize,
    in_run: bool,
}

impl Tokens for Taker<'_> {
    fn is_full(&self) -> bool {
        self.at >= self.end
    }
    fn at_once(&self) -> usize {
        self.end.saturating_sub(self.at)
    }
    fn at(&self) -> usize {
        self.at
    }
    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        if !self.in_run {
            let from = LITERALS | self.literals.len() as u32;
            self.tokens.push(Token { start: self.at as u32, from });
            self.in_run = true;
        }
        self.literals.push(byte);
        self.at += 1;
    }
    fn literals(&mut self, bytes: &[u8]) {
        let from = LITERALS | self.literals.len() as u32;
        self.tokens.push(Token { start: self.at as u32, from });
        self.literals.extend_from_slice(bytes);
        self.at += bytes.len();
        self.in_run = false;
    }
    #[inline(always)]
    fn copy(&mut self, len: usize, distance: usize) {
        self.tokens.push(Token { start: self.at as u32, from: (self.at - distance) as u32 });
        self.at += len;
        self.in_run = false;
    }
}

impl<'a> Indexed<'a> {
    pub fn new(stored: &'a [u8], index: &'a Index, memo: &'a mut Memo) -> Indexed<'a> {
        memo.clear(index.groups());
        Indexed { stored, index, memo }
    }

    /// The tokens of a group, those it has by now or reads now.
    #[inline(always)]
    fn tokens_of(&mut self, group: Gap) -> Result<u32> {
        match self.memo.firsts.get(group.i) {
            Some((0, _)) | None => self.read(group),
            Some(&(first, _)) => Ok(first - 1),
        }
    }

    #[inline(never)]
    fn read(&mut self, group: Gap) -> Result<u32> {
        let groups = self.index.groups.as_ref().ok_or_else(|| self.corrupt())?;
        let place = groups.places.get(group.i).wrapping_sub(1);
        let (start, end) = (group.from as usize, group.to as usize);
        if start >= end || end > self.index.len as usize {
            return Err(self.corrupt());
        }
        let place = usize::try_from(place).map_err(|_| self.corrupt())?;
        let first = self.memo.tokens.len() as u32;
        let at = match self.index.coding {
            Coding::Deflate => self.read_deflate(group.i as u32, place, start, end)?,
            coding => self.read_bytes(coding, place, start, end)?,
        };
        if at != end {
            return Err(self.corrupt());
        }
        // Ends the last one.
        self.memo.tokens.push(Token { start: end as u32, from: 0 });
        self.memo.firsts[group.i] = (first + 1, self.memo.tokens.len() as u32);
        self.memo.used.push(group.i as u32);
        Ok(first)
    }

    fn read_deflate(
        &mut self,
        group: u32,
        place: usize,
        start: usize,
        end: usize,
    ) -> Result<usize> {
        let blocks = &self.index.blocks;
        let block = blocks.partition_point(|block| block.group <= group);
        let block = block.checked_sub(1).ok_or_else(|| self.corrupt())? as u32;
        let decoders = &mut self.memo.decoders;
        match decoders.iter().position(|decoder| decoder.0 == block) {
            Some(i) if i + 1 < decoders.len() => {
                let decoder = decoders.remove(i);
                decoders.push(decoder);
            }
            Some(_) => {}
            None => {
                let mut inflate = match decoders.len() < DECODERS {
                    true => Inflate::new(),
                    false => decoders.remove(0).2,
                };
                let header = self.index.blocks[block as usize].header;
                let mut input = Input::new(self.stored, header as usize);
                self.memo.made += 1;
                inflate.begin_block(&mut input).map_err(|f| f.at(header / 8))?;
                decoders.push((block, inflate.header_of(&input), inflate));
            }
        }
        let Some((_, header, inflate)) = decoders.last_mut() else { return Err(self.corrupt()) };
        inflate.stand(header, place);
        let mut taker = Taker {
            tokens: &mut self.memo.tokens,
            literals: &mut self.memo.literals,
            at: start,
            end,
            in_run: false,
        };
        let mut input = Input::new(self.stored, place);
        while taker.at < end {
            let pause = inflate.run_tokens(&mut input, &mut taker);
            match pause.map_err(|fault| fault.at(input.byte() as u64))? {
                Pause::Block | Pause::End => break,
                _ => {}
            }
        }
        Ok(taker.at)
    }

    fn read_bytes(
        &mut self,
        coding: Coding,
        place: usize,
        start: usize,
        end: usize,
    ) -> Result<usize> {
        let (mut at, mut next) = (start, place);
        while at < end {
            let (pieces, after) =
                pieces(coding, self.stored, next).ok_or_else(|| corrupt_at(coding, next))?;
            for piece in pieces.into_iter().flatten() {
                let (from, len) = match piece {
                    Piece::Literals { from, len } => (LITERALS | from as u32, len),
                    Piece::Copy { distance, len } => {
                        let from =
                            at.checked_sub(distance).ok_or_else(|| corrupt_at(coding, next))?;
                        (from as u32, len)
                    }
                };
                if len > 0 {
                    self.memo.tokens.push(Token { start: at as u32, from });
                }
                at = at.checked_add(len).filter(|&at| at <= MOST).ok_or_else(|| too_long(at))?;
            }
            next = after;
        }
        Ok(at)
    }

    #[inline(always)]
    fn phrase(&self, seat: Seat) -> Result<(Seat, Phrase)> {
        let i = seat.token as usize;
        let Some([token, next, ..]) = self.memo.tokens.get(i..) else { return Err(self.corrupt()) };
        let from = match token.from & LITERALS {
            0 => From::Copy(token.from),
            _ => From::Literals(token.from & !LITERALS),
        };
        Ok((seat, Phrase { start: token.start, end: next.start, from }))
    }

    /// The seat of the first token of a group, and how many it has.
    #[inline(always)]
    fn seat(&mut self, group: Gap) -> Result<Seat> {
        let first = self.tokens_of(group)?;
        Ok(Seat { group, token: first, end: group.to as u32 })
    }
}

impl Phrases for Indexed<'_> {
    type Seat = Seat;

    #[inline(always)]
    fn phrase_of(&mut self, at: u32) -> Result<(Seat, Phrase)> {
        let groups = self.index.groups.as_ref().ok_or_else(|| self.corrupt())?;
        let group = groups.ends.above(at.into()).ok_or_else(|| self.corrupt())?;
        let mut seat = self.seat(group)?;
        // The last one begins where the group ends.
        let behind = self.memo.firsts[group.i].1;
        let tokens = &self.memo.tokens[seat.token as usize..behind as usize];
        let skip = match tokens.len() <= 2 * GROUP as usize {
            true => tokens.iter().take_while(|token| token.start <= at).count(),
            false => tokens.partition_point(|token| token.start <= at),
        };
        seat.token += skip.saturating_sub(1) as u32;
        self.phrase(seat)
    }

    #[inline(always)]
    fn next(&mut self, seat: Seat) -> Result<(Seat, Phrase)> {
        let next = Seat { token: seat.token + 1, ..seat };
        let start = self.memo.tokens.get(next.token as usize).map_or(0, |token| token.start);
        if start < seat.end {
            return self.phrase(next);
        }
        let groups = self.index.groups.as_ref().ok_or_else(|| self.corrupt())?;
        let group = groups.ends.next(seat.group).ok_or_else(|| self.corrupt())?;
        let seat = self.seat(group)?;
        self.phrase(seat)
    }

    #[inline(always)]
    fn literals(&self, from: u32, len: usize) -> Option<&[u8]> {
        let all = match self.index.coding {
            Coding::Deflate => &self.memo.literals[..],
            _ => self.stored,
        };
        all.get(from as usize..(from as usize).checked_add(len)?)
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt { what: WHAT, at: Place::Pos(0) }
    }

    #[inline(always)]
    fn extra(&self) -> u32 {
        u32::try_from(self.memo.steps()).unwrap_or(u32::MAX)
    }
}
