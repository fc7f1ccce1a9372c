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

use super::decode::Copy;
use super::kernel;
use super::point::{self, Cursor, Kept, Left, Point};
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
    pub literal_count: usize,
    offset_size: usize,
}

impl<'a> Fields<'a> {
    pub fn of(stored: &'a [u8]) -> Option<Fields<'a>> {
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
    pub fn offset(&self, at: usize, bits: u8) -> u32 {
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
    if point::is_one(dst.len(), block_len) {
        let Room { noted, front, .. } = &mut *room;
        fields.ask_ahead(start, block_len);
        match Point::new(dictionary, tokens, &fields, start, kept, noted).read(start, dst, front) {
            Ok(()) => return Some(()),
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

/// Fills `dst` with the front of a block, by the safe twins of all loops.
#[cfg(feature = "testing")]
pub(in crate::rlz) fn decode_safely(
    dictionary: &Dictionary,
    tokens: &Tokens,
    stored: &[u8],
    block_len: usize,
    dst: &mut [u8],
) -> Option<()> {
    let fields = Fields::of(stored)?;
    decode_front::<false>(dictionary, tokens, &fields, block_len, dst, &mut Vec::new())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::rlz::hybrid::point::{STEP, keep};
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
        let fields = Fields::of(&stored).unwrap();
        let (mut piece, mut front) = ([0; 40], Vec::new());
        for (start, expected) in [(block.len() - 40, Err(Left::Long)), (60, Ok(()))] {
            let mut noted = Vec::new();
            let point = Point::new(&dictionary, &tokens, &fields, start, None, &mut noted);
            assert_eq!(point.read(start, &mut piece, &mut front), expected);
        }
        assert_eq!(piece, block[60..100]);
    }

    /// A block of so many bytes and more of this dictionary, of itself, and others, and its stored bytes.
    fn by_hand(dictionary: &Dictionary, len: usize, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
        let speller = Speller::new(Arc::new(Tokens::usual()));
        let (mut said, mut offsets, mut literals) = (Vec::new(), Vec::new(), Vec::new());
        let mut block: Vec<u8> = Vec::new();
        while block.len() < len {
            let run = 1 + random.below(9) as usize;
            let run = random.bytes(run);
            block.extend(&run);
            literals.extend(&run);
            let len = 4 + random.below(70) as usize;
            if block.len() > 100 && random.below(3) == 0 {
                let distance = 80 + random.below(20) as usize;
                speller.spell(run.len(), Kind::Near, len, |token| said.push(token));
                offsets.put_u16(distance as u16);
                (0..len).for_each(|_| block.push(block[block.len() - distance]));
            } else {
                // Half of them not far from its end.
                let most = (dictionary.len() - len) as u64;
                let from = [random.below(most), most - random.below(most.min(4000))];
                let from = from[random.below(2) as usize] as usize;
                speller.spell(run.len(), Kind::Far, len, |token| said.push(token));
                offsets.put_u32(from as u32);
                offsets.truncate(offsets.len() + offset_len(dictionary.len()) - 4);
                block.extend(&dictionary.as_bytes()[from..from + len]);
            }
        }
        let mut stored = Vec::new();
        stored.put_varint(said.len() as u64);
        stored.put_varint(offsets.len() as u64);
        [literals, offsets, said].iter().for_each(|field| stored.put(field));
        (block, stored)
    }

    /// Offsets into a dictionary that is longer than three bytes can say, in the kernel and in pieces.
    #[test]
    fn offsets_of_four_bytes_are_read() {
        let mut random = Random(12);
        let dictionary = Dictionary::new(random.bytes((1 << 24) + 5000)).unwrap();
        assert_eq!(offset_len(dictionary.len()), 4);
        let tokens = Tokens::usual();
        let (block, stored) = by_hand(&dictionary, 9000, &mut random);
        for end in [block.len(), 4000, 100] {
            let [fast, safe] = both(&dictionary, &tokens, &stored, block.len(), end);
            assert!(fast == safe && fast.as_deref() == Some(&block[..end]));
        }
        check_pieces(&dictionary, &tokens, &stored, &block, &mut random);
    }

    /// Short enough for an interpreter that watches each access to memory.
    #[test]
    fn a_small_block_stays_within_its_bytes() {
        let mut random = Random(13);
        let dictionary = Dictionary::new(random.bytes(500)).unwrap();
        let tokens = Tokens::usual();
        let (block, stored) = by_hand(&dictionary, 1500, &mut random);
        for end in [block.len(), block.len() - 1] {
            let [fast, safe] = both(&dictionary, &tokens, &stored, block.len(), end);
            assert!(fast == safe && fast.as_deref() == Some(&block[..end]));
        }
        for _ in 0..8 {
            let mut damaged = stored.clone();
            damaged[random.below(stored.len() as u64) as usize] ^= 1 << random.below(8);
            let [fast, safe] = both(&dictionary, &tokens, &damaged, block.len(), block.len());
            assert!(fast == safe);
        }
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
