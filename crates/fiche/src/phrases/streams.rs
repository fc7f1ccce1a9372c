//! Units in a coding that is read from front to back: deflate, LZ4 and Snappy.
//!
//! # Index of phrases
//!
//! An index is no file and has no magic number: it is kept by who keeps the stream. That is a raw deflate stream (RFC
//! 1951), an LZ4 block as under "Codecs", or a Snappy stream that begins with its length, without a wrapper or frame
//! around it and with nothing behind it.
//!
//! The phrases of a stream, in their order, are counted off into *groups* of one or more. The index says where each
//! group begins, in the stream and in its content; its phrases are read from there until the content is as long as
//! the group's end says, which is at the end of a phrase. Groups leave no phrase out. A phrase is a literal or a copy
//! of a deflate block with codes, or any part of a stored block; a sequence of an LZ4 block; an element of a Snappy
//! stream. What gives no content is none. A group lies within one block of a deflate stream.
//!
//! A writer takes for a group 8 phrases, of LZ4 as many sequences as have 8 runs of literals and copies, or 1 KiB of a
//! stored block, or what is left of the block.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | coding | 1 deflate, 2 LZ4 block, 3 Snappy |
//! | varint | len | bytes of content, below 2^31 |
//! | varint | stored_len | bytes of the stream, below 2^31 |
//! | 4 | stored_checksum | CRC-32C of the stream |
//! | varint | groups | how many; 0 where there is no content, and only there |
//! | ... | ends | Elias-Fano sequence: of each group, where in the content it ends; the last is `len` |
//! | ... | places | Elias-Fano sequence: of each group, where in the stream it begins, and 1 more: of deflate in bits, the first of a code, or the first of a stored byte; of LZ4 in bytes, the token of a sequence; of Snappy in bytes, the tag of an element |
//! | varint | blocks | of deflate: how many blocks have groups; otherwise 0 |
//! | ... | ... | of each block that has groups, in their order: varint, how many groups the one before it in this list has (0 for the first); varint, the bit that its header begins at (the one that says whether it is the last), less that of the one before it in this list (less 0 for the first) |
//! | 4 | checksum | CRC-32C of all of it before |
//!
//! Both Elias-Fano sequences are left out where there are no groups; `places` has no more low bits than a writer
//! takes. Bit 0 is the lowest bit of the first byte.

use crate::codec::deflate::{Header, Inflate, Input, Pause, Tokens};
use crate::elias_fano::{EliasFano, Gap};
use crate::error::{Error, Place, Result};
use crate::phrases::Coding;
use crate::phrases::extract::{From, Phrase, Phrases, copy};
use crate::phrases::kernel::{Work, with_bit_counts};
use crate::phrases::layout::MOST;
use crate::phrases::parse::Match;
use crate::wire::{Put, Take, crc32c, load_u32};

/// What an error calls the bytes of an index.
const WHAT: &str = "index of phrases";
/// Phrases of a group.
pub(super) const GROUP: u32 = 8;
/// To read so many phrases and literals takes as long as a step, and so many steps to make the tables of a block.
const READ: usize = 4;
const TABLES: usize = 60;
/// Decoders that an extraction keeps, each with the tables of a block.
const DECODERS: usize = 8;

/// Where the groups of a stream begin.
#[derive(Debug)]
pub(super) struct Index {
    coding: Coding,
    len: u32,
    groups: Option<Groups>,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Groups {
    ends: EliasFano,
    places: EliasFano,
}

/// A deflate block: its first group, and the bit its header begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    group: u32,
    header: u64,
}

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

/// A phrase as it is written.
enum Piece {
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

/// The same, but only counts.
struct Counter {
    at: usize,
    left: u32,
}

impl Tokens for Counter {
    fn is_full(&self) -> bool {
        self.left == 0
    }
    fn at(&self) -> usize {
        self.at
    }
    fn literal(&mut self, _: u8) {
        self.at += 1;
        self.left -= 1;
    }
    fn literals(&mut self, bytes: &[u8]) {
        self.at += bytes.len();
        self.left = 0;
    }
    fn copy(&mut self, len: usize, _: usize) {
        self.at += len;
        self.left -= 1;
    }
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
fn pieces(coding: Coding, stored: &[u8], at: usize) -> Option<([Option<Piece>; 2], usize)> {
    match coding {
        Coding::Lz4 => lz4_sequence(stored, at),
        _ => snappy_element(stored, at).map(|(piece, next)| ([Some(piece), None], next)),
    }
}

/// Where the first phrase of a stream is, and how much content it says it has.
fn begin(coding: Coding, stored: &[u8]) -> Result<(usize, Option<u64>)> {
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

fn corrupt_at(coding: Coding, pos: usize) -> Error {
    let what = match coding {
        Coding::Lz4 => "LZ4 block",
        _ => "Snappy stream",
    };
    Error::Corrupt { what, at: Place::Pos(pos as u64) }
}

fn too_long(len: usize) -> Error {
    Error::Limit { what: "content of a unit", need: len as u64, allowed: MOST as u64 }
}

/// What an index is made of.
#[derive(Default)]
struct Found {
    ends: Vec<u64>,
    places: Vec<u64>,
    blocks: Vec<Block>,
}

impl Found {
    fn group(&mut self, end: usize, place: usize) -> Result<()> {
        if end > MOST {
            return Err(too_long(end));
        }
        self.ends.push(end as u64);
        self.places.push(place as u64 + 1);
        Ok(())
    }
}

fn find_in_deflate(stored: &[u8]) -> Result<Found> {
    let mut found = Found::default();
    let (mut inflate, mut input) = (Inflate::new(), Input::new(stored, 0));
    let mut header = None;
    let mut at = 0;
    loop {
        if inflate.is_before_block() {
            header = Some(input.bit() as u64);
        }
        let before = input.bit();
        let mut counter = Counter { at, left: GROUP };
        let pause = inflate.run_tokens(&mut input, &mut counter);
        let pause = pause.map_err(|fault| fault.at(input.byte() as u64))?;
        if counter.at > at {
            let mut place = before;
            if let Some(header) = header.take() {
                // The header was read in between.
                place += inflate.header_bits();
                found.blocks.push(Block { group: found.ends.len() as u32, header });
            }
            found.group(counter.at, place)?;
        }
        at = counter.at;
        match pause {
            Pause::End if input.byte() == stored.len() => return Ok(found),
            Pause::End => {
                let at = Place::Pos(input.byte() as u64);
                return Err(Error::Corrupt { what: "bytes behind a deflate stream", at });
            }
            _ => {}
        }
    }
}

fn find_in_bytes(coding: Coding, stored: &[u8]) -> Result<Found> {
    let mut found = Found::default();
    let (mut next, claimed) = begin(coding, stored)?;
    if coding == Coding::Lz4 && stored.is_empty() {
        return Err(corrupt_at(coding, 0));
    }
    let mut at = 0usize;
    while next < stored.len() {
        let place = next;
        let mut count = 0;
        while next < stored.len() && count < GROUP {
            let (pieces, after) =
                pieces(coding, stored, next).ok_or_else(|| corrupt_at(coding, next))?;
            for piece in pieces.into_iter().flatten() {
                count += 1;
                let len = match piece {
                    Piece::Literals { len, .. } => len,
                    Piece::Copy { distance, .. } if distance > at => {
                        return Err(corrupt_at(coding, next));
                    }
                    Piece::Copy { len, .. } => len,
                };
                at = at.checked_add(len).filter(|&at| at <= MOST).ok_or_else(|| too_long(at))?;
            }
            next = after;
        }
        if found.ends.last().copied().unwrap_or(0) < at as u64 {
            found.group(at, place)?;
        }
    }
    if claimed.is_some_and(|len| len != at as u64) {
        return Err(corrupt_at(coding, 0));
    }
    Ok(found)
}

/// Places in a stream fit 31 bits.
fn check_len(stored: &[u8]) -> Result<()> {
    let (need, allowed) = (stored.len() as u64, MOST as u64);
    let what = "stored bytes of a unit";
    if need > allowed { Err(Error::Limit { what, need, allowed }) } else { Ok(()) }
}

/// Goes through a whole stream, which has to be one.
fn find(coding: Coding, stored: &[u8]) -> Result<Found> {
    check_len(stored)?;
    match coding {
        Coding::Deflate => find_in_deflate(stored),
        _ => find_in_bytes(coding, stored),
    }
}

/// The bytes of the index of a stream. One pass over its phrases, without their content.
pub(super) fn index(coding: Coding, stored: &[u8]) -> Result<Vec<u8>> {
    let found = find(coding, stored)?;
    let mut out = Vec::new();
    out.put_u8(coding as u8);
    out.put_varint(found.ends.last().copied().unwrap_or(0));
    out.put_varint(stored.len() as u64);
    out.put_u32(crc32c(stored));
    out.put_varint(found.ends.len() as u64);
    if !found.ends.is_empty() {
        EliasFano::encode(&found.ends, &mut out);
        EliasFano::encode(&found.places, &mut out);
    }
    out.put_varint(found.blocks.len() as u64);
    let mut before = Block { group: 0, header: 0 };
    for &block in &found.blocks {
        out.put_varint(u64::from(block.group - before.group));
        out.put_varint(block.header - before.header);
        before = block;
    }
    let checksum = crc32c(&out);
    out.put_u32(checksum);
    Ok(out)
}

impl Index {
    /// Takes an index, and looks whether it is one of this stream.
    pub fn parse(coding: Coding, bytes: &[u8], stored: &[u8]) -> Result<Index> {
        let corrupt = || Error::Corrupt { what: WHAT, at: Place::Pos(0) };
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
        if Take::new(checksum, WHAT, 0).u32()? != crc32c(body) && !cfg!(fuzzing) {
            return Err(Error::Corrupt {
                what: "checksum of an index of phrases",
                at: Place::Pos(0),
            });
        }
        let mut take = Take::new(body, WHAT, 0);
        let found = take.u8()?;
        if found != coding as u8 {
            return Err(Error::Unsupported { what: "coding of an index", found: found.into() });
        }
        let len = take.count(MOST as u64)?;
        let stored_len = take.varint()?;
        let stored_checksum = take.u32()?;
        check_len(stored)?;
        let is_other = stored_checksum != crc32c(stored) && !cfg!(fuzzing);
        if stored_len != stored.len() as u64 || is_other {
            return Err(Error::Changed { what: "stream that an index of phrases was made for" });
        }
        let count = take.count(len as u64)?;
        let mut groups = None;
        if count > 0 {
            // In order: so groups do not overlap, and no more is ever read than there is content.
            let ends = EliasFano::decode(&mut take, count)?;
            let places = EliasFano::decode_in_any_order(&mut take, count)?;
            if ends.last() != len as u64 {
                return Err(take.corrupt());
            }
            groups = Some(Groups { ends, places });
        } else if len > 0 {
            return Err(take.corrupt());
        }
        let block_count = take.count(count as u64)?;
        let mut blocks: Vec<Block> = Vec::with_capacity(block_count.min(take.remaining()));
        let mut before = Block { group: 0, header: 0 };
        for i in 0..block_count {
            let group = take.varint()?.checked_add(u64::from(before.group));
            let header = take.varint()?.checked_add(before.header);
            let (Some(group), Some(header)) = (group, header) else { return Err(take.corrupt()) };
            let is_next = i == 0 && group == 0 || i > 0 && group > u64::from(before.group);
            if !is_next || group >= count as u64 || header >= 8 * stored_len {
                return Err(take.corrupt());
            }
            before = Block { group: group as u32, header };
            blocks.push(before);
        }
        if (coding == Coding::Deflate && count > 0) == blocks.is_empty() {
            return Err(take.corrupt());
        }
        take.end()?;
        let len = len as u32;
        Ok(Index { coding, len, groups, blocks })
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// Groups of the stream.
    pub fn groups(&self) -> usize {
        self.groups.as_ref().map_or(0, |all| all.ends.count())
    }

    /// Groups that begin before this byte of the content.
    pub fn groups_before(&self, at: u32) -> usize {
        self.groups.as_ref().map_or(0, |all| all.ends.rank(at.into()))
    }

    /// Bytes of memory beside those that are stored.
    pub fn hint_bytes(&self) -> usize {
        let hints = |all: &Groups| all.ends.hint_bytes() + all.places.hint_bytes();
        size_of::<Block>() * self.blocks.len() + self.groups.as_ref().map_or(0, hints)
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
        self.at > MOST
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

/// The copies of a stream, and how much content it has.
pub(super) fn matches(coding: Coding, stored: &[u8]) -> Result<(Vec<Match>, usize)> {
    // What is cut, or goes on behind its end, is refused there.
    find(coding, stored)?;
    let mut copies = Copies { at: 0, found: Vec::new() };
    if coding == Coding::Deflate {
        let (mut inflate, mut input) = (Inflate::new(), Input::new(stored, 0));
        loop {
            let pause = inflate.run_tokens(&mut input, &mut copies);
            match pause.map_err(|fault| fault.at(input.byte() as u64))? {
                Pause::End => break,
                Pause::Block => {}
                _ if copies.at > MOST => return Err(too_long(copies.at)),
                _ => {}
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
                    Piece::Copy { distance, .. } if distance > copies.at => return Err(corrupt()),
                    Piece::Copy { len, distance } => copies.push(len, distance),
                }
                if copies.at > MOST {
                    return Err(too_long(copies.at));
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
