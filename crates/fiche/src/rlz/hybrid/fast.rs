//! Blocks for fast reads: tokens of a byte, and everything else in whole bytes.
//!
//! # hybrid-fast
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | tokens | how many |
//! | varint | size of offsets | in bytes |
//! | | literals | as they are; what the other fields leave |
//! | | offsets | of each token that has one: 2 bytes for a distance; 3 for an offset into the dictionary, 4 where it is longer than 2^24 bytes |
//! | 1 each | tokens | what each stands for is in the model |
//!
//! A block is its tokens one after the other, each its literals and then its match. A distance is
//! how far back in the block the match starts. To go on with the distance of the match before counts
//! as if the dictionary stood before the block. A match lies wholly in the dictionary or wholly in the block.

use std::sync::atomic::{AtomicU64, Ordering};

use super::decode::Copy;
use super::kernel;
use super::tokens::{Counts, Entry, Kind, NEAR_BITS, Speller, TOKENS, Tokens};
use super::{Parse, Sequence};
use crate::processor::prefetch;
use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;
use crate::wire::{Put, Take, load_u32};

/// Bytes that come from memory at once.
const LINE: usize = 64;
/// Tokens that are read before the first of them is copied.
const BATCH: usize = 1024;
/// Before the first match.
pub(super) const FIRST_DISTANCE: u32 = 1;

/// Bytes of an offset into a dictionary of this length: more than a distance has.
pub(super) fn offset_len(dictionary_len: usize) -> usize {
    if dictionary_len > 1 << 24 { 4 } else { 3 }
}

/// Writes blocks; one for each thread.
#[derive(Default)]
pub(super) struct Sink {
    tokens: Vec<u8>,
    offsets: Vec<u8>,
    /// Where the matches so far start and end, and their distances.
    matches: Vec<[u32; 3]>,
}

impl Sink {
    /// Appends the stored bytes of a block. False where a distance is too far.
    pub fn encode(
        &mut self,
        speller: &Speller,
        dictionary_len: usize,
        parse: &mut Parse,
        out: &mut Vec<u8>,
    ) -> bool {
        let Sink { tokens, offsets, matches } = self;
        straighten(parse, matches);
        tokens.clear();
        offsets.clear();
        let width = offset_len(dictionary_len);
        let (mut at, mut last, mut used) = (0, FIRST_DISTANCE, 0);
        for sequence in &parse.sequences {
            let (literals, len) = (usize::from(sequence.literals), usize::from(sequence.len));
            at += literals;
            used += literals;
            let kind = kind(sequence, dictionary_len + at, dictionary_len, last);
            match kind {
                Kind::None | Kind::Again => {}
                Kind::Near => match u16::try_from(sequence.distance) {
                    Ok(distance) => offsets.put_u16(distance),
                    Err(_) => return false,
                },
                Kind::Far => {
                    let offset = (dictionary_len + at) as u32 - sequence.distance;
                    offsets.put_u32(offset);
                    offsets.truncate(offsets.len() + width - 4);
                }
            }
            if kind != Kind::None {
                last = sequence.distance;
            }
            speller.spell(literals, kind, len, |token| tokens.push(token));
            at += len;
        }
        speller.spell(parse.literals.len() - used, Kind::None, 0, |token| tokens.push(token));
        out.put_varint(tokens.len() as u64);
        out.put_varint(offsets.len() as u64);
        for field in [&parse.literals, offsets, tokens] {
            out.put(field);
        }
        true
    }
}

/// Lets near matches copy from where what they copy was copied from, as far as that lies within one match:
/// a read of a few bytes has fewer copies to follow. It costs nothing.
fn straighten(parse: &mut Parse, matches: &mut Vec<[u32; 3]>) {
    matches.clear();
    let (mut at, mut last) = (0, FIRST_DISTANCE);
    for i in 0..parse.sequences.len() {
        let Sequence { literals, len, distance } = parse.sequences[i];
        at += u32::from(literals);
        let (end, mut own) = (at + u32::from(len), distance);
        let is_near = len > 0 && distance <= at;
        let is_again = |other: Option<&Sequence>| other.is_some_and(|s| s.distance == distance);
        // To go on with the same distance takes no bytes: those stay as they are.
        if is_near && distance != last && !is_again(parse.sequences.get(i + 1)) {
            while let from = at - own
                && let Some(before) = matches.partition_point(|m| m[0] <= from).checked_sub(1)
                && let [start, end_before, more] = matches[before]
                && from + u32::from(len) <= end_before
                && more <= start
                && own + more <= u16::MAX.into()
            {
                own += more;
            }
            parse.sequences[i].distance = own;
        }
        if len > 0 {
            last = own;
            matches.push([at, end, own]);
        }
        at = end;
    }
}

/// Counts what a block's tokens are to say.
pub(super) fn count(parse: &Parse, dictionary_len: usize, counts: &mut Counts) {
    let (mut behind, mut last) = (dictionary_len, FIRST_DISTANCE);
    for sequence in &parse.sequences {
        let (literals, len) = (usize::from(sequence.literals), usize::from(sequence.len));
        let kind = kind(sequence, behind + literals, dictionary_len, last);
        if kind != Kind::None {
            last = sequence.distance;
        }
        counts.add(literals, kind, len);
        behind += literals + len;
    }
}

/// How the match of a sequence is written that stands at `behind`, counted from the front of the
/// dictionary, where the match before has this distance.
fn kind(sequence: &Sequence, behind: usize, dictionary_len: usize, last: u32) -> Kind {
    match sequence {
        Sequence { len: 0, .. } => Kind::None,
        Sequence { distance, .. } if *distance == last => Kind::Again,
        Sequence { distance, .. } if behind - (*distance as usize) < dictionary_len => Kind::Far,
        _ => Kind::Near,
    }
}

/// The fields of a block.
pub(super) struct Fields<'a> {
    pub tokens: &'a [u8],
    /// Literals, and everything behind them; offsets, and the tokens.
    pub literals: &'a [u8],
    pub offsets: &'a [u8],
    literal_count: usize,
    offset_size: usize,
}

impl<'a> Fields<'a> {
    fn of(stored: &'a [u8]) -> Option<Fields<'a>> {
        let mut take = Take::new(stored, "block", 0);
        let mut count = || take.count(stored.len() as u64).ok();
        let (tokens, offset_size) = (count()?, count()?);
        let literals = take.bytes(take.remaining()).ok()?;
        let at_tokens = literals.len().checked_sub(tokens)?;
        let literal_count = at_tokens.checked_sub(offset_size)?;
        let (offsets, tokens) = (&literals[literal_count..], &literals[at_tokens..]);
        Some(Fields { tokens, literals, offsets, literal_count, offset_size })
    }

    /// Asks for the tokens up to the place of a read, and for the literals and offsets there, as if all tokens
    /// had as many: they are all needed, and far from one another.
    #[inline(always)]
    fn ask_ahead(&self, start: usize, block_len: usize) {
        /// Of longer blocks the nearest have to do.
        const MOST: usize = 32;
        let place = |len: usize| len * start / block_len.max(1);
        // Copies lead to any token before, and to its offset.
        for (field, len) in [(self.tokens, self.tokens.len()), (self.offsets, self.offset_size)] {
            for line in (0..=place(len) / LINE + 1).rev().take(MOST) {
                prefetch(field, line * LINE);
            }
        }
        let at = place(self.literal_count);
        for line in [at.saturating_sub(LINE), at, at + LINE] {
            prefetch(self.literals, line);
        }
    }

    /// Asks for the stored bytes up to what the front needs of the last field. They are read in three places at once, and of
    /// each the processor foresees no more than the page it is in.
    fn ask_for_front(&self, end: usize, block_len: usize) {
        /// Of longer blocks the start has to do.
        const MOST: usize = 16 << 10;
        let front = self.tokens.len() * end / block_len.max(1);
        let len = self.literals.len() - self.tokens.len() + front;
        (0..len.min(MOST)).step_by(LINE).for_each(|line| prefetch(self.literals, line));
    }

    /// The offset at a place that has so many bits; any, where there is none.
    #[inline(always)]
    fn offset(&self, at: usize, bits: u8) -> u32 {
        let word = match self.offsets.get(at..at + 4) {
            Some(four) => load_u32(four, 0),
            None => self.last_offset(at),
        };
        (u64::from(word) & !(u64::MAX << bits)) as u32
    }

    #[cold]
    fn last_offset(&self, at: usize) -> u32 {
        let bytes = self.offsets.get(at..).unwrap_or_default();
        let value = |(i, &byte): (usize, &u8)| u32::from(byte) << (8 * i);
        bytes.iter().take(4).enumerate().map(value).sum()
    }
}

/// What a thread keeps between blocks.
#[derive(Default)]
pub(super) struct Room {
    sequences: Vec<Sequence>,
    front: Vec<u8>,
    noted: Vec<Cursor>,
}

/// How long the block is, as far as its tokens say; at most `limit`.
pub(in crate::rlz) fn block_len(
    tokens: Option<&Tokens>,
    stored: &[u8],
    limit: usize,
) -> Option<usize> {
    let (tokens, fields) = (tokens?, Fields::of(stored)?);
    let mut len = 0;
    for chunk in fields.tokens.chunks(128) {
        len += tokens.sum(chunk).text;
        if len > limit {
            return None;
        }
    }
    Some(len)
}

/// Fills `dst` with the bytes from `start` on of a block of `block_len` bytes.
pub(in crate::rlz) fn decode(
    dictionary: &Dictionary,
    tokens: Option<&Tokens>,
    stored: &[u8],
    block_len: usize,
    (start, dst, kept): (usize, &mut [u8], Option<Kept<'_>>),
    scratch: &mut Scratch,
) -> Option<()> {
    let (tokens, fields) = (tokens?, Fields::of(stored)?);
    let room = &mut scratch.hybrid.fast;
    let len = dst.len();
    if (1..=POINT).contains(&len) && len * 8 < block_len {
        let far_len = offset_len(dictionary.len());
        let entries = tokens.entries(far_len);
        let Room { noted, front, .. } = &mut *room;
        fields.ask_ahead(start, block_len);
        let known = match kept.filter(|kept| kept.has(start)) {
            Some(kept) => Known::Kept(kept),
            None => {
                noted.clear();
                note(tokens, far_len, fields.tokens, 0, start + 1, |_, cursor| noted.push(cursor));
                Known::Noted(noted)
            }
        };
        front.resize(front.len().max(len + SOME), 0);
        let point = Point { dictionary, entries, fields: &fields, known };
        match point.read(start, len, front) {
            Ok(()) => {
                dst.copy_from_slice(&front[..len]);
                return Some(());
            }
            Err(Left::Bad) => return None,
            Err(Left::Long) => {}
        }
    }
    let Room { sequences, front, .. } = room;
    if start == 0 {
        return decode_front::<true>(dictionary, tokens, &fields, block_len, dst, sequences);
    }
    let end = start + dst.len();
    front.resize(front.len().max(end), 0);
    decode_front::<true>(dictionary, tokens, &fields, block_len, &mut front[..end], sequences)?;
    dst.copy_from_slice(&front[start..end]);
    Some(())
}

/// Fills `dst` with the front of a block.
///
/// ```text
/// for token in tokens:
///     distance = that of before | next near | place - next far
///     out += next literals;  out += out[-distance..][..len]
/// ```
fn decode_front<const KERNEL: bool>(
    dictionary: &Dictionary,
    tokens: &Tokens,
    fields: &Fields<'_>,
    block_len: usize,
    dst: &mut [u8],
    sequences: &mut Vec<Sequence>,
) -> Option<()> {
    let end = dst.len();
    let entries = tokens.entries(offset_len(dictionary.len()));
    let mut progress = Progress::default();
    fields.ask_for_front(end, block_len);
    // It adds to addresses what may have 32 bits.
    if KERNEL && usize::BITS == 64 {
        progress = kernel::tokens(entries, fields, dictionary.padded(), dst);
    }
    let mut reader = Reader {
        entries,
        fields,
        padded: dictionary.padded(),
        behind: (dictionary.len() + progress.text) as u32,
        end: (dictionary.len() + end) as u32,
        distance: progress.distance,
        offset: progress.offset,
    };
    let mut copy =
        Copy::new(dictionary, fields.literals, dst).from(progress.text, progress.literals);
    for batch in fields.tokens[progress.tokens..].chunks(BATCH) {
        reader.read(batch, sequences);
        copy.run::<KERNEL>(sequences)?;
        progress.tokens += sequences.len();
        if copy.is_full() {
            break;
        }
    }
    copy.finish(fields.literal_count, block_len)?;
    // Of a whole block everything is needed, once.
    let is_all = progress.tokens == fields.tokens.len()
        && reader.offset == fields.offset_size
        && reader.behind == reader.end;
    (end < block_len || is_all).then_some(())
}

/// How far a block is decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub tokens: usize,
    pub text: usize,
    pub literals: usize,
    /// Bytes of offsets.
    pub offset: usize,
    /// That of the last match, as if the dictionary stood before the block.
    pub distance: u32,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { tokens: 0, text: 0, literals: 0, offset: 0, distance: FIRST_DISTANCE }
    }
}

/// Makes sequences of tokens.
struct Reader<'a> {
    entries: &'a [Entry; TOKENS],
    fields: &'a Fields<'a>,
    padded: &'a [u8],
    /// Length of the dictionary and what of the block is before the next token; where to stop.
    behind: u32,
    end: u32,
    distance: u32,
    /// Bytes of offsets that were read.
    offset: usize,
}

impl Reader<'_> {
    /// Those of some tokens, as far as they are needed, asking for what they copy. What they say may be
    /// anything.
    fn read(&mut self, tokens: &[u8], sequences: &mut Vec<Sequence>) {
        sequences.clear();
        for &token in tokens {
            if self.behind >= self.end {
                break;
            }
            let Entry { literals, len, bits, bytes } = self.entries[usize::from(token)];
            let value = self.fields.offset(self.offset, bits);
            self.offset += usize::from(bytes);
            self.behind = self.behind.wrapping_add(literals.into());
            if bits > NEAR_BITS {
                prefetch(self.padded, value as usize);
                self.distance = self.behind.wrapping_sub(value);
            } else if bits > 0 {
                self.distance = value;
            }
            self.behind = self.behind.wrapping_add(len.into());
            let (literals, len) = (literals.into(), len.into());
            sequences.push(Sequence { literals, len, distance: self.distance });
        }
    }
}

/// A read of more bytes decodes the block up to there.
const POINT: usize = 1024;
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
struct Cursor {
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

/// Reads a few bytes: finds the token that has them, and follows it where it leads.
struct Point<'a> {
    dictionary: &'a Dictionary,
    entries: &'a [Entry; TOKENS],
    fields: &'a Fields<'a>,
    known: Known<'a>,
}

/// Why a piece was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It would take too long.
    Long,
    /// It cannot be done.
    Bad,
}

impl Point<'_> {
    /// Fills the front of `room`, which has [`SOME`] bytes more, with so many from `start` on.
    fn read(&self, start: usize, len: usize, room: &mut [u8]) -> Result<(), Left> {
        debug_assert!(room.len() >= len + SOME);
        let mut budget = 8 * len;
        self.fill(room, 0, start, len, DEPTH, &mut budget)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::*;
    use crate::rlz::hybrid::{FAST_LEVELS, Finder, Packer, train_tokens};
    use crate::testing::Random;

    /// Pieces of the dictionary, of itself, and other bytes in turn.
    fn text(dictionary: &[u8], random: &mut Random, len: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < len {
            let piece = 1 + random.below(90) as usize;
            match random.below(8) {
                0 => text.extend(random.bytes(piece / 4)),
                1 => text.extend(vec![random.below(256) as u8; piece * 9]),
                2 | 3 if text.len() > 5000 => {
                    let most = 1 << (1 + random.below(12));
                    let back = 1 + random.below(most) as usize;
                    (0..piece).for_each(|_| text.push(text[text.len() - back]));
                }
                _ => {
                    let at = random.below(dictionary.len().max(1) as u64) as usize;
                    text.extend(&dictionary[at..dictionary.len().min(at + piece)]);
                }
            }
        }
        text.truncate(len);
        text
    }

    /// What the loop of the kernel and what its twin make of stored bytes.
    fn both(
        dictionary: &Dictionary,
        tokens: &Tokens,
        stored: &[u8],
        len: usize,
        end: usize,
    ) -> [Option<Vec<u8>>; 2] {
        let Some(fields) = Fields::of(stored) else { return [None, None] };
        let (mut dst, mut room) = (vec![0xAA; end], Vec::new());
        let fast = decode_front::<true>(dictionary, tokens, &fields, len, &mut dst, &mut room);
        let fast = fast.map(|()| dst.clone());
        let safe = decode_front::<false>(dictionary, tokens, &fields, len, &mut dst, &mut room);
        [fast, safe.map(|()| dst)]
    }

    /// Any pieces of a block that is one are what they are when all of it is read.
    fn check_pieces(
        dictionary: &Dictionary,
        tokens: &Tokens,
        stored: &[u8],
        block: &[u8],
        random: &mut Random,
    ) {
        let mut scratch = Scratch::default();
        for i in 0..20 {
            let start = random.below(block.len() as u64 + 1) as usize;
            let most =
                (block.len() - start).min(if i == 0 { 0 } else { 1 + random.below(500) as usize });
            let mut piece = vec![0xAA; most];
            let first = random.below(STEP as u64) as usize;
            let count = block.len().saturating_sub(first).div_ceil(STEP);
            let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let kept = Kept { words: &words, first };
            keep(dictionary, Some(tokens), stored, kept);
            assert!((0..block.len()).step_by(99).all(|at| kept.has(at)));
            for kept in [None, Some(kept)] {
                piece.fill(0xAA);
                let read = (start, &mut piece[..], kept);
                let done =
                    decode(dictionary, Some(tokens), stored, block.len(), read, &mut scratch);
                assert!(done.is_some() && piece == block[start..start + most], "{start}+{most}");
            }
        }
    }

    #[test]
    fn the_kernel_does_what_its_safe_twin_does_and_so_do_pieces() {
        let mut random = Random(22);
        for dictionary_len in [0, 1, 40, 30_000] {
            let dictionary = Arc::new(Dictionary::new(random.text(dictionary_len)).unwrap());
            let sample = text(dictionary.as_bytes(), &mut random, 60_000);
            let blocks: Vec<&[u8]> = sample.chunks(4096).collect();
            for level in FAST_LEVELS {
                let finder = Finder::new(dictionary.clone(), level).unwrap();
                let tokens = train_tokens(&finder, level, &blocks, 2);
                let mut packer = Packer::fast(tokens.clone(), dictionary.len(), level);
                let (mut taken, mut refused) = (0, 0);
                for len in [1, 100, 1000, 4096, 16_384, 120_000] {
                    let block = text(dictionary.as_bytes(), &mut random, len);
                    let mut stored = Vec::new();
                    assert!(packer.pack(&finder, &block, &mut stored));
                    assert_eq!(block_len(Some(&tokens), &stored, len), Some(len));
                    assert_eq!(block_len(Some(&tokens), &stored, len - 1), None);
                    for end in [0, 1, len / 3, len / 2, len - len.min(5), len] {
                        let [fast, safe] = both(&dictionary, &tokens, &stored, len, end);
                        assert_eq!(fast.as_deref(), Some(&block[..end]), "{end} of {len}");
                        assert!(safe == fast, "{end} of {len}");
                    }
                    check_pieces(&dictionary, &tokens, &stored, &block, &mut random);
                    for _ in 0..200 {
                        let mut damaged = stored.clone();
                        for _ in 0..=random.below(4) {
                            let at = random.below(damaged.len() as u64) as usize;
                            damaged[at] ^= 1 << random.below(8);
                        }
                        let end = random.below(len as u64 + 1) as usize;
                        let [fast, safe] = both(&dictionary, &tokens, &damaged, len, end);
                        assert!(safe == fast, "{end} of {len}");
                        let [whole, _] = both(&dictionary, &tokens, &damaged, len, len);
                        match whole {
                            Some(whole) => {
                                taken += 1;
                                check_pieces(&dictionary, &tokens, &damaged, &whole, &mut random);
                            }
                            None => refused += 1,
                        }
                    }
                }
                assert!(taken > 50 && refused > 50, "{taken}, {refused}");
            }
        }
    }

    #[test]
    fn matches_are_led_to_where_their_text_comes_from() {
        let sequence = |literals, len, distance| Sequence { literals, len, distance };
        let mut parse = Parse {
            sequences: vec![
                sequence(40, 20, 30),
                // All of it in the one before; in that and literals; in the one before the last.
                sequence(10, 12, 25),
                sequence(5, 10, 30),
                sequence(50, 10, 87),
                // The same distance again takes no bytes.
                sequence(3, 8, 87),
                sequence(0, 9, 10),
            ],
            literals: vec![0; 108],
        };
        straighten(&mut parse, &mut Vec::new());
        let distances: Vec<u32> = parse.sequences.iter().map(|s| s.distance).collect();
        assert_eq!(distances, [30, 55, 30, 87, 87, 10]);
    }

    #[test]
    fn copies_of_copies_of_copies_are_read_in_pieces() {
        // Each token copies what the one before it copied: too deep to be followed.
        let tokens = Tokens::usual();
        let speller = Speller::new(Arc::new(tokens.clone()));
        let (mut said, mut offsets) = (Vec::new(), Vec::new());
        let literals = Random(3).bytes(50);
        speller.spell(50, Kind::Near, 50, |token| said.push(token));
        offsets.put_u16(50);
        let mut block = [literals.clone(), literals.clone()].concat();
        for i in 0..2000 {
            let distance = 40 + i % 11;
            speller.spell(0, Kind::Near, 7, |token| said.push(token));
            offsets.put_u16(distance as u16);
            (0..7).for_each(|_| block.push(block[block.len() - distance]));
        }
        let mut stored = Vec::new();
        stored.put_varint(said.len() as u64);
        stored.put_varint(offsets.len() as u64);
        [&literals, &offsets, &said].iter().for_each(|field| stored.put(field));
        let dictionary = Dictionary::new(Vec::new()).unwrap();
        let [fast, safe] = both(&dictionary, &tokens, &stored, block.len(), block.len());
        assert!(fast == safe && fast.as_deref() == Some(&block[..]));
        check_pieces(&dictionary, &tokens, &stored, &block, &mut Random(8));
        let mut noted = Vec::new();
        note(&tokens, 3, &said, 0, block.len(), |_, cursor| noted.push(cursor));
        let point = Point {
            dictionary: &dictionary,
            entries: tokens.entries(3),
            fields: &Fields::of(&stored).unwrap(),
            known: Known::Noted(&noted),
        };
        let mut room = [0; 40 + SOME];
        assert_eq!(point.read(block.len() - 40, 40, &mut room), Err(Left::Long));
        assert_eq!(point.read(60, 40, &mut room), Ok(()));
        assert_eq!(room[..40], block[60..100]);
    }

    /// Offsets into a dictionary that is longer than three bytes can say, in the kernel and in pieces.
    #[test]
    fn offsets_of_four_bytes_are_read() {
        let mut random = Random(12);
        let known = random.bytes((1 << 24) + 5000);
        let dictionary = Dictionary::new(known.clone()).unwrap();
        assert_eq!(offset_len(dictionary.len()), 4);
        let tokens = Tokens::usual();
        let speller = Speller::new(Arc::new(tokens.clone()));
        let (mut said, mut offsets, mut literals) = (Vec::new(), Vec::new(), Vec::new());
        let mut block: Vec<u8> = Vec::new();
        while block.len() < 9000 {
            let run = 1 + random.below(9) as usize;
            let run = random.bytes(run);
            block.extend(&run);
            literals.extend(&run);
            let len = 4 + random.below(70) as usize;
            let (kind, from) = match random.below(3) {
                0 if block.len() > 100 => (Kind::Near, 0),
                1 => (Kind::Far, random.below(1 << 24) as usize),
                _ => (Kind::Far, (1 << 24) + random.below(4000) as usize),
            };
            speller.spell(run.len(), kind, len, |token| said.push(token));
            if kind == Kind::Far {
                offsets.put_u32(from as u32);
                block.extend(&known[from..from + len]);
            } else {
                let distance = 80 + random.below(20) as usize;
                offsets.put_u16(distance as u16);
                (0..len).for_each(|_| block.push(block[block.len() - distance]));
            }
        }
        let mut stored = Vec::new();
        stored.put_varint(said.len() as u64);
        stored.put_varint(offsets.len() as u64);
        [literals, offsets, said].iter().for_each(|field| stored.put(field));
        for end in [block.len(), 4000, 100] {
            let [fast, safe] = both(&dictionary, &tokens, &stored, block.len(), end);
            assert!(fast == safe && fast.as_deref() == Some(&block[..end]));
        }
        check_pieces(&dictionary, &tokens, &stored, &block, &mut random);
    }

    #[test]
    fn a_block_has_no_token_too_many_and_no_literal_or_offset() {
        let (tokens, dictionary) = (Tokens::usual(), Dictionary::new(vec![7; 100]).unwrap());
        let speller = Speller::new(Arc::new(tokens.clone()));
        let mut said = Vec::new();
        speller.spell(100, Kind::Far, 100, |token| said.push(token));
        for (literals, offsets, more) in [(100, 3, 0), (101, 3, 0), (100, 4, 0), (100, 3, 1)] {
            let mut said = said.clone();
            (0..more).for_each(|_| speller.spell(0, Kind::Again, 1, |token| said.push(token)));
            let mut stored = Vec::new();
            stored.put_varint(said.len() as u64);
            stored.put_varint(offsets as u64);
            [vec![1; literals], vec![0; offsets], said].iter().for_each(|field| stored.put(field));
            let [fast, safe] = both(&dictionary, &tokens, &stored, 200, 200);
            assert!(fast == safe && fast.is_some() == (literals + offsets + more == 103));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_by_both_alike(
            literals in proptest::collection::vec(any::<u8>(), 0..300),
            offsets in proptest::collection::vec(0u8..9, 0..100),
            said in proptest::collection::vec(any::<u8>(), 0..200),
            len in 1usize..3000,
            dictionary_len in 0usize..3000,
        ) {
            let mut random = Random(4);
            let dictionary = Dictionary::new(random.text(dictionary_len)).unwrap();
            let tokens = Tokens::usual();
            let mut stored = Vec::new();
            stored.put_varint(said.len() as u64);
            stored.put_varint(offsets.len() as u64);
            [literals, offsets, said].iter().for_each(|field| stored.put(field));
            for len in [len, block_len(Some(&tokens), &stored, 1 << 20).unwrap_or(1)] {
                let [fast, safe] = both(&dictionary, &tokens, &stored, len, len);
                prop_assert!(fast == safe);
                let [fast, safe] = both(&dictionary, &tokens, &stored, len, len / 2);
                prop_assert!(fast == safe);
            }
        }
    }
}
