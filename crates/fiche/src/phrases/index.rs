//! Where the phrases of a stream are: of deflate, LZ4 and Snappy, which are read from front to back.
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

use crate::codec::deflate::{Inflate, Input, Pause, Tokens};
use crate::elias_fano::EliasFano;
use crate::error::{Error, Place, Result};
use crate::phrases::Coding;
use crate::phrases::layout::MOST;
use crate::phrases::stream::{Piece, begin, corrupt_at, pieces, too_long};
use crate::wire::{Put, Take, crc32c};

/// What an error calls the bytes of an index.
pub(super) const WHAT: &str = "index of phrases";
/// Phrases of a group.
pub(super) const GROUP: u32 = 8;
/// Where the groups of a stream begin.
#[derive(Debug)]
pub(super) struct Index {
    pub coding: Coding,
    pub len: u32,
    pub groups: Option<Groups>,
    pub blocks: Vec<Block>,
}

#[derive(Debug)]
pub(super) struct Groups {
    pub ends: EliasFano,
    pub places: EliasFano,
}

/// A deflate block: its first group, and the bit its header begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub group: u32,
    pub header: u64,
}

/// Counts the phrases of a deflate stream.
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

/// Goes through a whole stream, which has to be one, and no more and no less.
pub(super) fn check(coding: Coding, stored: &[u8]) -> Result<()> {
    find(coding, stored).map(drop)
}

/// The bytes of the index of a stream. One pass over its phrases, without their content.
pub(super) fn make(coding: Coding, stored: &[u8]) -> Result<Vec<u8>> {
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
