//! Reads a few bytes of a block of hybrid-fast without decoding what is before them: finds the token that has
//! them, and follows that where its match leads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fast::{FIRST_DISTANCE, Fields, offset_len};
use super::tokens::{Entry, NEAR_BITS, TOKENS, Tokens};
use crate::rlz::Dictionary;

/// A read of more bytes decodes the block up to there.
const POINT: usize = 1024;
/// And so does one of more than this part of the block.
const PART: usize = 8;
/// Bytes of content for each place that is noted.
pub(crate) const STEP: usize = 256;
/// Tokens that are added up at once while places are noted.
const CHUNK: usize = 8;
/// A match whose text is a copy of a copy: so many of them are followed.
const DEPTH: u32 = 24;
/// Tokens that are looked at for a distance.
const BACK: usize = 256;
/// What is copied at once.
const SOME: usize = 32;

/// A token, and what is before it: text, literals and bytes of offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    token: u32,
    text: u32,
    literals: u32,
    offset: u32,
}

/// Each number of a cursor that is kept takes so many bits, as blocks do for which any is; and how far its text is before the place.
pub(crate) const KEPT_BITS: u32 = 17;
const SKIP_BITS: u32 = 10;

impl Cursor {
    /// Behind its token.
    #[inline(always)]
    fn behind(self, Entry { literals, len, bytes, .. }: Entry) -> Cursor {
        let (literals, len) = (u32::from(literals), u32::from(len));
        Cursor {
            token: self.token + 1,
            text: self.text + literals + len,
            literals: self.literals + literals,
            offset: self.offset + u32::from(bytes),
        }
    }

    /// The token of byte `at`, as a word that is not 0; `None` where its numbers have too many bits.
    fn kept(self, at: u32) -> Option<u64> {
        let parts = [self.offset, self.literals, self.token];
        let skip = u64::from(at - self.text);
        let is_small = parts.iter().all(|&part| part >> KEPT_BITS == 0) && skip >> SKIP_BITS == 0;
        let word = parts.iter().fold(0, |word, &part| word << KEPT_BITS | u64::from(part));
        is_small.then_some((word << SKIP_BITS | skip) << 1 | 1)
    }

    /// The same again.
    #[inline(always)]
    fn of(word: u64, at: u32) -> Option<Cursor> {
        let skip = (word >> 1) as u32 & ((1 << SKIP_BITS) - 1);
        let part =
            |i: u32| (word >> (1 + SKIP_BITS + i * KEPT_BITS)) as u32 & ((1 << KEPT_BITS) - 1);
        let text = at.checked_sub(skip).filter(|_| word != 0)?;
        Some(Cursor { token: part(0), text, literals: part(1), offset: part(2) })
    }
}

/// Where tokens begin in a block: a word for byte `first`, and for each `STEP` bytes from there on.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub words: &'a [AtomicU64],
    pub first: usize,
}

impl Kept<'_> {
    #[inline(always)]
    fn before(&self, at: usize) -> Option<Cursor> {
        let Some(i) = at.checked_sub(self.first) else { return Some(Cursor::default()) };
        let word = self.words.get(i / STEP)?.load(Ordering::Relaxed);
        Cursor::of(word, (self.first + i / STEP * STEP) as u32)
    }

    /// True where the place before this byte is known.
    pub fn has(&self, at: usize) -> bool {
        self.before(at).is_some()
    }
}

/// Notes places of a block that was verified.
pub(in crate::rlz) fn keep(
    dictionary: &Dictionary,
    tokens: Option<&Tokens>,
    stored: &[u8],
    kept: Kept<'_>,
) {
    let (Some(tokens), Some(fields)) = (tokens, Fields::of(stored)) else { return };
    let Some(last) = kept.words.len().checked_sub(1) else { return };
    let mut words = kept.words.iter();
    let far_len = offset_len(dictionary.len());
    let entries = tokens.entries(far_len);
    let end = kept.first + last * STEP + 1;
    note(tokens, far_len, fields.tokens, kept.first, end, |at, mut cursor| {
        while let Some(&token) = fields.tokens.get(cursor.token as usize)
            && let behind = cursor.behind(entries[usize::from(token)])
            && behind.text <= at
        {
            cursor = behind;
        }
        if let (Some(word), Some(kept)) = (words.next(), cursor.kept(at)) {
            word.store(kept, Ordering::Relaxed);
        }
    });
}

/// A token not far before byte `first`, and before every one `STEP` bytes further, until `end`.
#[inline(always)]
fn note(
    tokens: &Tokens,
    far_len: usize,
    said: &[u8],
    first: usize,
    end: usize,
    mut put: impl FnMut(u32, Cursor),
) {
    let (mut at, end) = (first as u32, end as u32);
    let mut cursor = Cursor::default();
    for chunk in said.chunks(CHUNK) {
        let sums = tokens.sum(chunk);
        let next = Cursor {
            token: cursor.token + chunk.len() as u32,
            text: cursor.text + sums.text as u32,
            literals: cursor.literals + sums.literals as u32,
            offset: cursor.offset + 2 * sums.near as u32 + (far_len * sums.far) as u32,
        };
        while at < next.text {
            if at >= end {
                return;
            }
            put(at, cursor);
            at += STEP as u32;
        }
        cursor = next;
    }
}

/// The places that a read knows: those that are kept, or were noted for it.
enum Known<'a> {
    Kept(Kept<'a>),
    Noted(&'a [Cursor]),
}

/// A block of which a few bytes are read.
pub(super) struct Point<'a> {
    dictionary: &'a Dictionary,
    entries: &'a [Entry; TOKENS],
    fields: &'a Fields<'a>,
    known: Known<'a>,
}

/// Why a piece was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It would take too long.
    Long,
    /// It cannot be done.
    Bad,
}

/// Whether a read of so many bytes is one of a few.
pub(super) fn is_one(len: usize, block_len: usize) -> bool {
    (1..=POINT).contains(&len) && len * PART < block_len
}

impl<'a> Point<'a> {
    /// For reads from `start` on. Places that nobody kept are noted in `noted`.
    pub fn new(
        dictionary: &'a Dictionary,
        tokens: &'a Tokens,
        fields: &'a Fields<'a>,
        start: usize,
        kept: Option<Kept<'a>>,
        noted: &'a mut Vec<Cursor>,
    ) -> Point<'a> {
        let far_len = offset_len(dictionary.len());
        let known = match kept.filter(|kept| kept.has(start)) {
            Some(kept) => Known::Kept(kept),
            None => {
                noted.clear();
                note(tokens, far_len, fields.tokens, 0, start + 1, |_, cursor| noted.push(cursor));
                Known::Noted(noted)
            }
        };
        Point { dictionary, entries: tokens.entries(far_len), fields, known }
    }

    /// Fills `dst` with the bytes from `start` on.
    #[inline(always)]
    pub fn read(&self, start: usize, dst: &mut [u8], room: &mut Vec<u8>) -> Result<(), Left> {
        // Copies write more than they must.
        room.resize(room.len().max(dst.len() + SOME), 0);
        let mut budget = 8 * dst.len();
        self.fill(room, 0, start, dst.len(), DEPTH, &mut budget)?;
        dst.copy_from_slice(&room[..dst.len()]);
        Ok(())
    }

    /// The token in which the byte at `start` of the block is.
    #[inline(always)]
    fn seek(&self, start: usize) -> Result<Cursor, Left> {
        let mut cursor = match self.known {
            Known::Kept(kept) => kept.before(start).ok_or(Left::Long)?,
            Known::Noted(noted) => *noted.get(start / STEP).ok_or(Left::Bad)?,
        };
        loop {
            let next = cursor.behind(self.entry(cursor)?);
            if next.text as usize > start {
                return Ok(cursor);
            }
            cursor = next;
        }
    }

    #[inline(always)]
    fn entry(&self, cursor: Cursor) -> Result<Entry, Left> {
        let token = *self.fields.tokens.get(cursor.token as usize).ok_or(Left::Bad)?;
        Ok(self.entries[usize::from(token)])
    }

    /// Where the match of a token starts, counted from the front of the dictionary, with the block behind it, if that
    /// begins at `at` there.
    #[inline(always)]
    fn source(&self, mut cursor: Cursor, entry: Entry, at: usize) -> Result<usize, Left> {
        let Entry { bits, .. } = entry;
        let value = self.fields.offset(cursor.offset as usize, bits);
        if bits > NEAR_BITS {
            return Ok(value as usize);
        }
        if bits == NEAR_BITS {
            return at.checked_sub(value as usize).ok_or(Left::Bad);
        }
        // The distance of the match before.
        for _ in 0..BACK {
            let Some(token) = cursor.token.checked_sub(1) else {
                return at.checked_sub(FIRST_DISTANCE as usize).ok_or(Left::Bad);
            };
            cursor.token = token;
            let Entry { literals, len, bits, bytes } = self.entry(cursor)?;
            cursor.offset = cursor.offset.wrapping_sub(bytes.into());
            cursor.text = cursor.text.wrapping_sub(u32::from(literals) + u32::from(len));
            if bits > 0 {
                let value = self.fields.offset(cursor.offset as usize, bits);
                let distance = match bits > NEAR_BITS {
                    true => {
                        let place = cursor.text as usize + usize::from(literals);
                        ((self.dictionary.len() + place) as u32).wrapping_sub(value)
                    }
                    false => value,
                };
                return at.checked_sub(distance as usize).ok_or(Left::Bad);
            }
        }
        Err(Left::Long)
    }

    /// Fills `room[to..to + len]` with the text from `start` on. What is behind may be overwritten.
    fn fill(
        &self,
        room: &mut [u8],
        to: usize,
        start: usize,
        len: usize,
        depth: u32,
        budget: &mut usize,
    ) -> Result<(), Left> {
        let dictionary_len = self.dictionary.len();
        let mut cursor = self.seek(start)?;
        let mut done = 0;
        loop {
            let entry = self.entry(cursor)?;
            // Bytes of the token that are before what is wanted.
            let mut skip = start + done - cursor.text as usize;
            let literals = usize::from(entry.literals);
            if skip < literals {
                let from = cursor.literals as usize + skip;
                let now = (literals - skip).min(len - done);
                if from + now > self.fields.literal_count {
                    return Err(Left::Bad);
                }
                copy_some(&self.fields.literals[from..], &mut room[to + done..], now);
                done += now;
                skip = literals;
            }
            let skip = skip - literals;
            let now = (usize::from(entry.len) - skip).min(len - done);
            if now > 0 {
                let at = cursor.text as usize + literals;
                let from = self.source(cursor, entry, dictionary_len + at)?;
                match from.checked_sub(dictionary_len) {
                    None if from + usize::from(entry.len) > dictionary_len => {
                        return Err(Left::Bad);
                    }
                    None => {
                        let text = &self.dictionary.padded()[from + skip..];
                        copy_some(text, &mut room[to + done..], now);
                    }
                    Some(from) if from >= at => return Err(Left::Bad),
                    Some(from) => {
                        let from = from + skip;
                        // What is before the piece is to be found first, the rest is in it.
                        let before = start.saturating_sub(from).min(now);
                        if before > 0 {
                            let depth = depth.checked_sub(1).ok_or(Left::Long)?;
                            *budget = budget.checked_sub(before).ok_or(Left::Long)?;
                            self.fill(room, to + done, from, before, depth, budget)?;
                        }
                        if before < now {
                            let source = to + from + before - start;
                            copy_again(room, source, to + done + before, now - before);
                        }
                    }
                }
                done += now;
            }
            if done == len {
                return Ok(());
            }
            cursor = cursor.behind(entry);
        }
    }
}

/// Copies the first bytes; where there is room for it, as if they were as many as most are.
#[inline(always)]
fn copy_some(from: &[u8], to: &mut [u8], len: usize) {
    match (from.first_chunk::<SOME>(), to.first_chunk_mut::<SOME>()) {
        (Some(from), Some(to)) if len <= SOME => *to = *from,
        _ => to[..len].copy_from_slice(&from[..len]),
    }
}

/// Copies what was written before, which may overlap itself.
#[inline(always)]
fn copy_again(room: &mut [u8], from: usize, to: usize, len: usize) {
    if to - from >= SOME && len <= SOME && to + SOME <= room.len() {
        room.copy_within(from..from + SOME, to);
    } else {
        (0..len).for_each(|k| room[to + k] = room[from + k]);
    }
}
