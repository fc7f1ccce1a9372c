//! Reads blocks that were written with the codes of a model.

use std::ops::Range;

use super::codes::{
    COMMAND_BITS, COMMANDS, CONTEXTS, FRESH, LENGTH_BITS, LITERAL_BITS, Model, REPEATED, Tables,
};
use super::encode::{FOUR_STREAMS, LITERALS_RAW};
use super::kernel::{self, MARK, Places, STRIDE, Stream};
use super::origin::Origin;
use super::{FIRST_DISTANCES, REPEATS, Sequence, fast};
use crate::model::{Bits, LONG, LONGEST, MARGIN, Padded, Words};
use crate::processor::prefetch;
use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;
use crate::rlz::dictionary::PADDING;
use crate::wire::Take;

const _: () = assert!(STRIDE <= PADDING);
/// Sequences that are decoded before the first of them is copied: so long the lines of the
/// dictionary have to arrive.
const BATCH: usize = 1024;
/// Of blocks with no more sequences a piece is made of what it comes from alone.
const TRACED: usize = 1 << 16;

/// What a thread keeps between blocks.
#[derive(Default)]
pub(in crate::rlz) struct Room {
    /// The stored bytes with a margin on both sides.
    padded: Padded,
    batch: Batch,
    literals: Vec<u8>,
    front: Vec<u8>,
    origin: Origin,
    pub(super) fast: fast::Room,
}

/// Where the fields of a block lie in its padded bytes, and how much there is of each.
struct Fields {
    class: usize,
    raw: bool,
    sequences: usize,
    literals: usize,
    /// Ends of the header, the commands, the first literals, the others.
    ends: [usize; 4],
    end: usize,
}

impl Fields {
    /// `limit` is how long the block is, at most.
    fn of(stored: &[u8], limit: usize) -> Option<Fields> {
        let mut take = Take::new(stored, "block", 0);
        let head = take.u8().ok()?;
        let (class, raw) = (usize::from(head & 15), head & LITERALS_RAW != 0);
        if head & !(LITERALS_RAW | 15) != 0 {
            return None;
        }
        let sequences = take.count(limit as u64).ok()?;
        let literals = take.count(limit as u64).ok()?;
        let mut size = || take.count(stored.len() as u64).ok();
        let commands = size()?;
        let (mut first, mut others) = (if raw { literals } else { 0 }, 0);
        if !raw && literals > 0 {
            first = size()?;
            if literals >= FOUR_STREAMS {
                others = size()?;
            }
        }
        let mut at = MARGIN + stored.len() - take.remaining();
        let end = MARGIN + stored.len();
        let mut ends = [0; 4];
        for (slot, size) in ends.iter_mut().zip([0, commands, first, others]) {
            at += size;
            *slot = at;
        }
        (at <= end).then_some(Fields { class, raw, sequences, literals, ends, end })
    }

    /// Streams of literals.
    fn streams(&self) -> usize {
        if self.literals < FOUR_STREAMS { 2 } else { 4 }
    }

    /// How many literals the first of them has; 1 at least.
    fn chunk(&self) -> usize {
        self.literals.div_ceil(self.streams()).max(1)
    }
}

/// How long the block is, as far as its sequences say; at most `limit`.
pub(in crate::rlz) fn block_len(
    dictionary: &Dictionary,
    model: Option<&Model>,
    stored: &[u8],
    limit: usize,
    scratch: &mut Scratch,
) -> Option<usize> {
    let room = &mut scratch.hybrid;
    let fields = Fields::of(stored, limit)?;
    let tables = model?.tables(fields.class, dictionary.len())?;
    room.padded.fill(stored);
    let mut reader = Reader::new(dictionary, tables, &fields, usize::MAX);
    let (mut len, mut literals) = (fields.literals, 0);
    while reader.left > 0 {
        reader.read::<true>(&room.padded, &mut room.batch);
        for sequence in room.batch.get() {
            len += usize::from(sequence.len);
            literals += usize::from(sequence.literals);
        }
        // Both are bounded, or places would go round, and one that is not reached be waited for.
        if len > limit || literals > fields.literals {
            return None;
        }
    }
    Some(len)
}

/// Fills `dst` with the bytes from `start` on of a block of `block_len` bytes.
pub(in crate::rlz) fn decode(
    dictionary: &Dictionary,
    model: Option<&Model>,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let room = &mut scratch.hybrid;
    if start == 0 {
        return room.decode::<true>(dictionary, model?, stored, block_len, dst);
    }
    room.decode_piece::<true>(dictionary, model?, stored, block_len, (start, dst))
}

/// True where a piece of a block, with so many bytes before its end, takes much less than these do.
pub(in crate::rlz) fn is_piece(len: usize, end: usize) -> bool {
    len <= end / 4
}

impl Room {
    /// Fills `dst` with the front of a block; with the loops of `kernel`, or without.
    fn decode<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        block_len: usize,
        dst: &mut [u8],
    ) -> Option<()> {
        let fields = Fields::of(stored, block_len)?;
        let tables = model.tables(fields.class, dictionary.len())?;
        self.padded.fill(stored);
        let whole = dst.len() == block_len;
        let stop = if whole { usize::MAX } else { dst.len() };
        let mut reader = Reader::new(dictionary, tables, &fields, stop);
        if fields.sequences <= BATCH {
            // All literals that the sequences need are known before any is decoded.
            reader.read::<KERNEL>(&self.padded, &mut self.batch);
            let sequences = self.batch.get();
            let wanted = match whole {
                true => fields.literals,
                false => literals_until(sequences, dst.len(), fields.literals),
            };
            read_literals::<KERNEL>(tables, &fields, &self.padded, wanted, &mut self.literals)?;
            let mut copy = Copy::new(dictionary, &self.literals[..wanted + STRIDE], dst);
            copy.run::<KERNEL>(sequences)?;
            copy.finish(fields.literals, block_len)?;
            return (!whole || reader.is_done(&fields)).then_some(());
        }
        read_literals::<KERNEL>(
            tables,
            &fields,
            &self.padded,
            fields.literals,
            &mut self.literals,
        )?;
        let mut copy = Copy::new(dictionary, &self.literals[..fields.literals + STRIDE], dst);
        while reader.left > 0 && copy.at < copy.dst.len() {
            reader.read::<KERNEL>(&self.padded, &mut self.batch);
            copy.run::<KERNEL>(self.batch.get())?;
        }
        copy.finish(fields.literals, block_len)?;
        (!whole || reader.is_done(&fields)).then_some(())
    }
}

impl Room {
    /// Fills `dst` with the bytes of a block from `start` on: of a short piece, with what it comes from.
    fn decode_piece<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        block_len: usize,
        (start, dst): (usize, &mut [u8]),
    ) -> Option<()> {
        let end = start + dst.len();
        let fields = Fields::of(stored, block_len)?;
        let mut front = std::mem::take(&mut self.front);
        // Copies may be longer than what is needed.
        front.resize(front.len().max(end + 4 * STRIDE), 0);
        let done = if is_piece(dst.len(), end) && fields.sequences <= TRACED {
            self.padded.fill(stored);
            let tables = model.tables(fields.class, dictionary.len())?;
            self.trace::<KERNEL>(dictionary, tables, &fields, start..end, &mut front)
        } else {
            self.decode::<KERNEL>(dictionary, model, stored, block_len, &mut front[..end])
        };
        dst.copy_from_slice(&front[start..end]);
        self.front = front;
        done
    }

    /// Fills this piece of a block, and whatever else of its front that comes from.
    fn trace<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        tables: &Tables,
        fields: &Fields,
        piece: Range<usize>,
        front: &mut [u8],
    ) -> Option<()> {
        let Room { padded, batch, literals, origin, .. } = self;
        let reader = Reader::new(dictionary, tables, fields, piece.end);
        // All at once; few of them are copied.
        let mut reader = Reader { most: TRACED, asks: false, ..reader };
        reader.read::<KERNEL>(padded, batch);
        let sequences = batch.get();
        let text = reader.at as usize;
        let used =
            sequences.iter().map(|sequence| u32::from(sequence.literals)).sum::<u32>() as usize;
        if used + piece.end.saturating_sub(text) > fields.literals {
            return None;
        }
        let chunk = fields.chunk();
        origin.trace(dictionary, sequences, (text, used), &piece, chunk)?;
        read_some_literals::<KERNEL>(tables, fields, padded, &origin.literals, literals);
        let supply = &literals[..fields.literals + STRIDE];
        for run in origin.runs.iter().rev() {
            let mut copy = Copy::new(dictionary, supply, front).from(run.at, run.literals);
            copy.run::<KERNEL>(&sequences[run.sequences.clone()])?;
        }
        if text < piece.end {
            let from = piece.start.max(text);
            let count = piece.end - from;
            let first = used + (from - text);
            front[from..piece.end].copy_from_slice(&supply[first..first + count]);
        }
        Some(())
    }
}

/// How many literals the first `end` bytes of a block need.
fn literals_until(sequences: &[Sequence], end: usize, all: usize) -> usize {
    let (mut at, mut literals) = (0, 0);
    for sequence in sequences {
        if at >= end {
            return literals.min(all);
        }
        literals += usize::from(sequence.literals);
        at += usize::from(sequence.literals) + usize::from(sequence.len);
    }
    (literals + end.saturating_sub(at)).min(all)
}

/// Reads sequences.
struct Reader<'a> {
    tables: &'a Tables,
    dictionary: &'a Dictionary,
    commands: Bits<false>,
    lengths: Bits<true>,
    extra: Bits<false>,
    /// Where in the block the next literals stand.
    at: u32,
    /// Sequences behind this place of the block are not needed.
    stop: u32,
    /// How many are read at once.
    most: usize,
    /// What they copy out of the dictionary is asked for.
    asks: bool,
    left: usize,
    is_first: bool,
}

/// What sequences are read into: behind those that the first of them may refer to.
struct Batch {
    sequences: Vec<Sequence>,
    count: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { sequences: vec![Sequence::default(); REPEATS], count: 0 }
    }
}

impl Batch {
    fn get(&self) -> &[Sequence] {
        &self.sequences[REPEATS..][..self.count]
    }
}

impl<'a> Reader<'a> {
    fn new(
        dictionary: &'a Dictionary,
        tables: &'a Tables,
        fields: &Fields,
        stop: usize,
    ) -> Reader<'a> {
        Reader {
            tables,
            dictionary,
            commands: Bits::new(fields.ends[0]),
            lengths: Bits::new(fields.ends[1]),
            extra: Bits::new(fields.ends[3]),
            at: 0,
            stop: stop as u32,
            most: BATCH,
            asks: true,
            left: fields.sequences,
            is_first: true,
        }
    }

    /// Reads the next sequences, as many as are copied at once, and asks for what they copy. What
    /// they say may be anything.
    ///
    /// ```text
    /// for each sequence:
    ///     command = next of commands;  length = next of lengths[group of command]
    ///     literals, len, source = first values + extra bits
    ///     distance = earlier one | value | dictionary + at - value
    /// ```
    ///
    /// Three streams, so that the processor works on them side by side, four sequences from one
    /// load of two of them; and no branch but that for long codewords.
    fn read<const KERNEL: bool>(&mut self, stored: &Padded, batch: &mut Batch) {
        const { assert!(4 * LONGEST <= 57) };
        let count = self.left.min(self.most);
        let asks = self.asks;
        let before = batch.count;
        if batch.sequences.len() < REPEATS + count {
            batch.sequences.resize(REPEATS + count, Sequence::default());
        }
        batch.sequences.copy_within(before..before + REPEATS, 0);
        if self.is_first {
            for (slot, distance) in batch.sequences.iter_mut().zip(FIRST_DISTANCES) {
                slot.distance = distance;
            }
            self.is_first = false;
        }
        let sequences = &mut batch.sequences[..REPEATS + count];
        let mut i = REPEATS;
        if KERNEL {
            let dictionary_len = self.dictionary.len() as u32;
            let mut places = Places {
                commands: self.commands.pos(),
                lengths: self.lengths.pos(),
                extra: self.extra.pos(),
                behind: dictionary_len.wrapping_add(self.at),
            };
            let (tables, dictionary) = (self.tables, self.dictionary.padded());
            let stop = dictionary_len.saturating_add(self.stop);
            i = match asks {
                true => kernel::read(stored, tables, dictionary, stop, &mut places, sequences),
                false => kernel::read_only(stored, tables, stop, &mut places, sequences),
            };
            self.commands = Bits::at(places.commands);
            self.lengths = Bits::at(places.lengths);
            self.extra = Bits::at(places.extra);
            self.at = places.behind.wrapping_sub(dictionary_len);
        }
        let words = stored.words();
        let (padded, tables) = (self.dictionary.padded(), self.tables);
        let mut behind = (self.dictionary.len() as u32).wrapping_add(self.at);
        let (mut commands, mut lengths, mut extra) = (self.commands, self.lengths, self.extra);
        let stop = (self.dictionary.len() as u32).saturating_add(self.stop);
        while i < sequences.len() && behind < stop {
            let (mut word, mut length_word) = (commands.word(words), lengths.word(words));
            let (mut used, mut length_used) = (0, 0);
            for _ in 0..4.min(sequences.len() - i) {
                let mut entry = u32::from(tables.codes[(word % (1 << COMMAND_BITS)) as usize]);
                if entry == LONG {
                    entry = tables.find_long(0, 0, word);
                }
                word >>= entry & 63;
                used += entry & 63;
                let command = &tables.commands[(entry >> 6) as usize % COMMANDS];
                let index =
                    usize::from(command.table) + (length_word % (1 << LENGTH_BITS)) as usize;
                let mut entry = tables.lengths[index];
                if entry == LONG {
                    let group = usize::from(command.table >> LENGTH_BITS);
                    entry = tables.find_long(1, group, length_word);
                }
                length_word >>= entry & 63;
                length_used += entry & 63;
                // Up to 56 bits.
                let mut more = extra.word(words);
                let mut next = |bits: u32| {
                    let value = (more & !(u64::MAX << bits)) as u32;
                    more >>= bits;
                    extra.skip(bits);
                    value
                };
                let value = command.first + next(command.bits.into());
                let literals = u32::from(command.literals) + next(command.literal_bits.into());
                let len = (entry >> 16) + next(entry >> 8 & 31);
                if asks {
                    prefetch(padded, value as usize);
                }
                behind = behind.wrapping_add(literals);
                let distance = match command.kind {
                    REPEATED => sequences[i.wrapping_add_signed(command.back.into())].distance,
                    FRESH => value,
                    _ => behind.wrapping_sub(value),
                };
                behind = behind.wrapping_add(len);
                sequences[i] = Sequence { literals: literals as u16, len: len as u16, distance };
                i += 1;
            }
            commands.skip(used);
            lengths.skip(length_used);
        }
        (self.commands, self.lengths, self.extra) = (commands, lengths, extra);
        self.at = behind.wrapping_sub(self.dictionary.len() as u32);
        batch.count = i - REPEATS;
        self.left -= batch.count;
    }

    /// True when each stream ended where it should.
    fn is_done(&self, fields: &Fields) -> bool {
        self.left == 0
            && self.extra.byte() == fields.end
            && self.commands.byte() == self.lengths.byte()
    }
}

/// Decodes the first `wanted` of the literals at least, with a margin behind them.
fn read_literals<const KERNEL: bool>(
    tables: &Tables,
    fields: &Fields,
    padded: &Padded,
    wanted: usize,
    literals: &mut Vec<u8>,
) -> Option<()> {
    let (from, middle, to) = (fields.ends[1], fields.ends[2], fields.ends[3]);
    if literals.len() < fields.literals + STRIDE {
        literals.resize(fields.literals + STRIDE, 0);
    }
    if fields.raw {
        literals[..wanted].copy_from_slice(&padded.bytes()[from..from + wanted]);
        return Some(());
    }
    let chunk = fields.chunk();
    // Two streams at a time: only the second pair may be spared.
    let end = if wanted <= 2 * chunk { fields.literals.min(2 * chunk) } else { fields.literals };
    let literals = &mut literals[..end];
    let mut one = (Literals::<false>::new(tables, from), Literals::<true>::new(tables, middle));
    let mut two = (Literals::<false>::new(tables, middle), Literals::<true>::new(tables, to));
    let mut done = 0;
    if KERNEL && end > 2 * chunk {
        let (a, b) = (&mut one, &mut two);
        let mut four = [a.0.stream(), a.1.stream(), b.0.stream(), b.1.stream()];
        done = kernel::literals(padded, tables, &mut four, literals, chunk, chunk);
        a.0.go_to(four[0]);
        a.1.go_to(four[1]);
        b.0.go_to(four[2]);
        b.1.go_to(four[3]);
    } else if KERNEL {
        let mut pair = [one.0.stream(), one.1.stream()];
        done = kernel::pair(padded, tables, &mut pair, literals, chunk, chunk);
        one.0.go_to(pair[0]);
        one.1.go_to(pair[1]);
    }
    let bytes = padded.words();
    let mut pieces = literals.chunks_mut(chunk);
    let mut fits = true;
    for pair in [&mut one, &mut two].into_iter().take(end.div_ceil(2 * chunk)) {
        let mut next = || pieces.next().and_then(|piece| piece.get_mut(done..)).unwrap_or_default();
        pair.0.fill(bytes, next());
        pair.1.fill(bytes, next());
        fits &= pair.0.bits.byte() == pair.1.bits.byte();
    }
    fits.then_some(())
}

/// Decodes of each stream the first literals, as many as are counted.
fn read_some_literals<const KERNEL: bool>(
    tables: &Tables,
    fields: &Fields,
    padded: &Padded,
    counts: &[usize; 4],
    literals: &mut Vec<u8>,
) {
    let (from, middle, to) = (fields.ends[1], fields.ends[2], fields.ends[3]);
    if literals.len() < fields.literals + STRIDE {
        literals.resize(fields.literals + STRIDE, 0);
    }
    let (chunk, all) = (fields.chunk(), fields.literals);
    let literals = &mut literals[..all];
    if fields.raw {
        literals.copy_from_slice(&padded.bytes()[from..from + all]);
        return;
    }
    let mut one = (Literals::<false>::new(tables, from), Literals::<true>::new(tables, middle));
    let mut two = (Literals::<false>::new(tables, middle), Literals::<true>::new(tables, to));
    let mut done = [0; 4];
    if KERNEL && counts[2].max(counts[3]) > 0 {
        // Streams are decoded side by side in the time of one.
        let most = counts.iter().copied().max().unwrap_or(0);
        let (a, b) = (&mut one, &mut two);
        let mut four = [a.0.stream(), a.1.stream(), b.0.stream(), b.1.stream()];
        done = [kernel::literals(padded, tables, &mut four, literals, chunk, most); 4];
        a.0.go_to(four[0]);
        a.1.go_to(four[1]);
        b.0.go_to(four[2]);
        b.1.go_to(four[3]);
    } else if KERNEL {
        let most = counts[0].max(counts[1]);
        let mut pair = [one.0.stream(), one.1.stream()];
        let front = all.min(2 * chunk);
        done[..2].fill(kernel::pair(
            padded,
            tables,
            &mut pair,
            &mut literals[..front],
            chunk,
            most,
        ));
        one.0.go_to(pair[0]);
        one.1.go_to(pair[1]);
    }
    let bytes = padded.words();
    let mut rest = literals.chunks_mut(chunk).zip(counts.iter().zip(done));
    let mut next = || match rest.next() {
        Some((piece, (&count, done))) if done < count => &mut piece[done..count],
        _ => Default::default(),
    };
    for pair in [&mut one, &mut two] {
        pair.0.fill(bytes, next());
        pair.1.fill(bytes, next());
    }
}

/// Reads literals.
#[derive(Clone, Copy)]
struct Literals<'a, const BACKWARD: bool> {
    tables: &'a Tables,
    bits: Bits<BACKWARD>,
    /// The table of the next one.
    table: u16,
}

impl<'a, const BACKWARD: bool> Literals<'a, BACKWARD> {
    fn new(tables: &'a Tables, at: usize) -> Self {
        Literals { tables, bits: Bits::new(at), table: u16::from(tables.first) }
    }

    fn stream(&self) -> Stream {
        Stream { at: self.bits.pos(), table: self.table }
    }

    fn go_to(&mut self, stream: Stream) {
        (self.bits, self.table) = (Bits::at(stream.at), stream.table);
    }

    #[inline(always)]
    fn word(&self, bytes: Words<'_>) -> u64 {
        self.bits.word(bytes) | MARK
    }

    /// The next one of up to four that a word is good for.
    #[inline(always)]
    fn next(&mut self, word: &mut u64) -> u8 {
        let table = usize::from(self.table % CONTEXTS as u16);
        let index = table << LITERAL_BITS | (*word % (1 << LITERAL_BITS)) as usize;
        let mut entry = u32::from(self.tables.literals[index]);
        if entry == LONG {
            entry = self.tables.find_long(2, table, *word);
        }
        *word >>= entry & 63;
        self.table = (entry >> 6 & 3) as u16;
        (entry >> 8) as u8
    }

    #[inline(always)]
    fn end(&mut self, word: u64) {
        self.bits.skip(word.leading_zeros());
    }

    fn fill(&mut self, bytes: Words<'_>, literals: &mut [u8]) {
        for four in literals.chunks_mut(4) {
            let mut word = self.word(bytes);
            four.iter_mut().for_each(|literal| *literal = self.next(&mut word));
            self.end(word);
        }
    }
}

/// Copies literals and matches to where they belong.
pub(super) struct Copy<'a> {
    dictionary: &'a Dictionary,
    literals: &'a [u8],
    used: usize,
    dst: &'a mut [u8],
    at: usize,
}

impl<'a> Copy<'a> {
    /// The literals have a margin of `STRIDE` bytes behind them.
    pub fn new(dictionary: &'a Dictionary, literals: &'a [u8], dst: &'a mut [u8]) -> Copy<'a> {
        Copy { dictionary, literals, used: 0, dst, at: 0 }
    }

    /// Goes on where so much of both is done already.
    pub fn from(self, at: usize, used: usize) -> Copy<'a> {
        Copy { at, used, ..self }
    }

    /// Copies sequences until `dst` is full. `None` when one leads outside.
    ///
    /// ```text
    /// for (literals, len, distance) in sequences { out += next literals; out += out[-distance..][..len] }
    /// ```
    ///
    /// Short ones are copied as if they were as long as a stride, and what is too much
    /// is overwritten by the next.
    #[inline(always)]
    pub fn run<const KERNEL: bool>(&mut self, sequences: &[Sequence]) -> Option<()> {
        let mut sequences = sequences;
        if KERNEL {
            let Copy { dictionary, literals, used, dst, at } = self;
            let done = kernel::copy(sequences, dictionary.padded(), literals, dst, at, used);
            sequences = &sequences[done..];
        }
        let (dictionary, len) = (self.dictionary.padded(), self.dictionary.len());
        let (mut at, mut used) = (self.at, self.used);
        let (dst, all) = (&mut *self.dst, self.literals);
        for sequence in sequences {
            let (literals, count) = (usize::from(sequence.literals), usize::from(sequence.len));
            let distance = sequence.distance as usize;
            if literals <= 16
                && at + 16 + STRIDE <= dst.len()
                && used + 16 <= all.len()
                && count <= STRIDE
            {
                dst[at..at + 16].copy_from_slice(&all[used..used + 16]);
                at += literals;
                used += literals;
                if distance > at {
                    let from = inside(len + at, distance, count, len)?;
                    dst[at..at + STRIDE].copy_from_slice(&dictionary[from..from + STRIDE]);
                } else if distance >= STRIDE {
                    let mut stride = [0; STRIDE];
                    stride.copy_from_slice(&dst[at - distance..at - distance + STRIDE]);
                    dst[at..at + STRIDE].copy_from_slice(&stride);
                } else if distance > 0 {
                    repeat(dst, at, distance, count);
                } else {
                    return None;
                }
                at += count;
                continue;
            }
            let now = literals.min(dst.len() - at);
            dst[at..at + now].copy_from_slice(all.get(used..used + now)?);
            at += now;
            used += now;
            if at == dst.len() {
                break;
            }
            let now = count.min(dst.len() - at);
            if distance > at {
                let from = inside(len + at, distance, count, len)?;
                dst[at..at + now].copy_from_slice(&dictionary[from..from + now]);
            } else if distance >= now.max(1) {
                dst.copy_within(at - distance..at - distance + now, at);
            } else if distance > 0 {
                repeat(dst, at, distance, now);
            } else {
                return None;
            }
            at += now;
        }
        (self.at, self.used) = (at, used);
        Some(())
    }

    pub fn is_full(&self) -> bool {
        self.at == self.dst.len()
    }

    /// Copies the literals behind the last sequence.
    pub fn finish(&mut self, literals: usize, block_len: usize) -> Option<()> {
        let left = self.dst.len() - self.at;
        if left > 0 {
            if self.used + left > literals {
                return None;
            }
            self.dst[self.at..].copy_from_slice(self.literals.get(self.used..self.used + left)?);
            self.used += left;
        }
        let is_whole = self.dst.len() == block_len;
        (self.used == literals || !is_whole && self.used < literals).then_some(())
    }
}

/// Where in the dictionary a match starts that lies so far back, if it lies in there wholly.
#[inline(always)]
fn inside(behind: usize, distance: usize, count: usize, dictionary_len: usize) -> Option<usize> {
    let from = behind.checked_sub(distance)?;
    (from + count <= dictionary_len).then_some(from)
}

/// Copies what overlaps itself: byte by byte, the first of them are what the next ones repeat.
#[inline(never)]
fn repeat(dst: &mut [u8], at: usize, distance: usize, count: usize) {
    let mut done = 0;
    // What is there already doubles each time.
    while done < count {
        let now = (distance + done).min(count - done);
        dst.copy_within(at - distance..at - distance + now, at + done);
        done += now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::encode::Encoder;
    use super::super::{Finder, LEVELS, Packer, Parse, default_model, train};
    use super::*;
    use crate::testing::Random;

    /// Text that is in the dictionary, near by, or new.
    fn text(dictionary: &[u8], random: &mut Random, len: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < len {
            let piece = random.below(90) as usize + 1;
            match random.below(5) {
                0 => text.extend(random.bytes(piece / 10)),
                1 => text.extend(random.text(piece / 2)),
                2 if !text.is_empty() => {
                    let at = random.below(text.len() as u64) as usize;
                    (at..at + piece).for_each(|from| text.push(text[from]));
                }
                _ => {
                    let at = random.below(dictionary.len() as u64) as usize;
                    text.extend(&dictionary[at..dictionary.len().min(at + piece)]);
                }
            }
        }
        text.truncate(len);
        text
    }

    /// What the loops of the kernel and what their twins make of stored bytes.
    fn both(
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        len: usize,
        end: usize,
    ) -> [Option<Vec<u8>>; 2] {
        let mut room = Room::default();
        let mut dst = vec![0xAA; end];
        let fast = room.decode::<true>(dictionary, model, stored, len, &mut dst);
        let fast = fast.map(|()| dst.clone());
        let safe = room.decode::<false>(dictionary, model, stored, len, &mut dst);
        [fast, safe.map(|()| dst)]
    }

    /// The same of a piece; and all that is before its end, decoded without regard to what is needed.
    fn pieces(
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        len: usize,
        piece: Range<usize>,
    ) -> [Option<Vec<u8>>; 3] {
        // What was in the room before must not matter.
        let mut room = Room { front: vec![0xAA; len + 200], ..Room::default() };
        let mut dst = vec![0x55; piece.len()];
        let into = (piece.start, &mut dst[..]);
        let fast = room.decode_piece::<true>(dictionary, model, stored, len, into);
        let fast = fast.map(|()| dst.clone());
        room.front.fill(0xBB);
        room.literals.fill(0xBB);
        let into = (piece.start, &mut dst[..]);
        let safe = room.decode_piece::<false>(dictionary, model, stored, len, into);
        let safe = safe.map(|()| dst);
        let [_, front] = both(dictionary, model, stored, len, piece.end);
        [fast, safe, front.map(|front| front[piece].to_vec())]
    }

    #[test]
    fn a_piece_is_what_it_is_in_its_block() {
        let mut random = Random(22);
        let dictionary = Arc::new(Dictionary::new(random.text(30_000)).unwrap());
        let sample = text(dictionary.as_bytes(), &mut random, 100_000);
        let blocks: Vec<&[u8]> = sample.chunks(4096).collect();
        for level in [5, 9] {
            let finder = Finder::new(dictionary.clone(), level).unwrap();
            let model = train(&finder, level, &blocks, 1.0, 2);
            let mut packer = Packer::new(&model, dictionary.len(), level);
            for len in [40, 1000, 16_384, 120_000] {
                let block = text(dictionary.as_bytes(), &mut random, len);
                let mut stored = Vec::new();
                assert!(packer.pack(&finder, &block, &mut stored));
                let mut piece = || {
                    let most = [9, 300, 5000][random.below(3) as usize].min(len as u64 - 1);
                    let count = 1 + random.below(most) as usize;
                    let start = 1 + random.below((len - count) as u64) as usize;
                    start..start + count
                };
                let mut places = vec![len - 1..len, 1..2, len / 2..len, len - len / 8..len];
                places.extend((0..300).map(|_| piece()));
                for piece in places {
                    let all = pieces(&dictionary, &model, &stored, len, piece.clone());
                    for one in all {
                        assert_eq!(one.as_deref(), Some(&block[piece.clone()]), "{piece:?}");
                    }
                }
                for _ in 0..300 {
                    let mut damaged = stored.clone();
                    for _ in 0..=random.below(4) {
                        let at = random.below(damaged.len() as u64) as usize;
                        damaged[at] ^= 1 << random.below(8);
                    }
                    let start = 1 + random.below(len as u64 - 1) as usize;
                    let count = 1 + random.below((len - start).min(100) as u64) as usize;
                    let piece = start..start + count;
                    let [fast, safe, front] = pieces(&dictionary, &model, &damaged, len, piece);
                    // What is behind the piece is looked at by one and not by the other.
                    assert!(fast == safe, "{start} {count} of {len}");
                    let same = fast.is_none() || front.is_none() || fast == front;
                    assert!(same, "{start} {count} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_kernel_does_what_its_safe_twin_does() {
        let mut random = Random(21);
        let dictionary = Arc::new(Dictionary::new(random.text(30_000)).unwrap());
        let sample = text(dictionary.as_bytes(), &mut random, 100_000);
        let blocks: Vec<&[u8]> = sample.chunks(4096).collect();
        let unlearned = Arc::new(default_model(dictionary.as_bytes()));
        for (level, learns) in LEVELS.flat_map(|level| [(level, true), (level, false)]) {
            let finder = Finder::new(dictionary.clone(), level).unwrap();
            let model = match learns {
                true => train(&finder, level, &blocks, 1.0, 2),
                false => unlearned.clone(),
            };
            assert!(!learns || model.classes.iter().any(|class| class.literals.len() > 1));
            let mut packer = Packer::new(&model, dictionary.len(), level);
            for len in [1, 100, 1000, 4096, 16_384, 120_000] {
                let block = text(dictionary.as_bytes(), &mut random, len);
                let mut stored = Vec::new();
                assert!(packer.pack(&finder, &block, &mut stored));
                for end in [0, 1, len / 3, len / 2, len - len.min(5), len] {
                    let [fast, safe] = both(&dictionary, &model, &stored, len, end);
                    assert_eq!(fast.as_deref(), Some(&block[..end]), "{end} of {len}");
                    assert!(safe == fast, "{end} of {len}");
                }
                for _ in 0..300 {
                    let mut damaged = stored.clone();
                    for _ in 0..=random.below(4) {
                        let at = random.below(damaged.len() as u64) as usize;
                        damaged[at] ^= 1 << random.below(8);
                    }
                    damaged.truncate(
                        damaged.len() - random.below(3).min(damaged.len() as u64) as usize,
                    );
                    let end = random.below(len as u64 + 1) as usize;
                    let [fast, safe] = both(&dictionary, &model, &damaged, len, end);
                    assert!(safe == fast, "{end} of {len}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_uses_more_literals_than_it_has_is_no_block() {
        let dictionary = Dictionary::new(Random(5).text(2000)).unwrap();
        let model = Arc::new(default_model(dictionary.as_bytes()));
        let mut encoder = Encoder::new(&model, dictionary.len());
        let sequence = Sequence { literals: 8000, len: 0, distance: 1 };
        for (sequences, literals) in [(3000, 0), (3, 23_999), (3, 24_000)] {
            let parse =
                Parse { sequences: vec![sequence; sequences], literals: vec![b'a'; literals] };
            let mut stored = Vec::new();
            let class = encoder.best(&parse, 0).unwrap().1;
            assert!(encoder.encode(&parse, class, &mut stored));
            let mut scratch = Scratch::default();
            let len = block_len(&dictionary, Some(&model), &stored, 1 << 20, &mut scratch);
            assert_eq!(len, (literals == 24_000).then_some(24_000));
            let [fast, safe] = both(&dictionary, &model, &stored, 24_000, 24_000);
            assert!(fast == safe && fast.is_some() == (literals == 24_000));
        }
    }

    /// Short enough for an interpreter that watches each access to memory.
    #[test]
    fn a_small_block_stays_within_its_bytes() {
        let mut random = Random(6);
        let dictionary = Dictionary::new(random.text(500)).unwrap();
        let model = Arc::new(default_model(dictionary.as_bytes()));
        let (mut parse, mut block) = (Parse::default(), Vec::new());
        while block.len() < 1500 {
            let count = random.below(9) as usize;
            let literals = random.text(count);
            let len = 4 + random.below(60) as usize;
            block.extend(&literals);
            // In the dictionary or, where that does not reach across its end, in the block.
            let behind = dictionary.len() + block.len();
            let from = random.below((behind - len) as u64) as usize;
            let from =
                if from < dictionary.len() { from.min(dictionary.len() - len) } else { from };
            let text = |from: usize, block: &[u8]| match from.checked_sub(dictionary.len()) {
                None => dictionary.as_bytes()[from],
                Some(from) => block[from],
            };
            (from..from + len).for_each(|from| block.push(text(from, &block)));
            parse.sequences.push(Sequence {
                literals: literals.len() as u16,
                len: len as u16,
                distance: (behind - from) as u32,
            });
            parse.literals.extend(literals);
        }
        let mut encoder = Encoder::new(&model, dictionary.len());
        let mut stored = Vec::new();
        let class = encoder.best(&parse, 0).unwrap().1;
        assert!(encoder.encode(&parse, class, &mut stored));
        for end in [block.len(), block.len() - 1] {
            let [fast, safe] = both(&dictionary, &model, &stored, block.len(), end);
            assert!(fast == safe && fast.as_deref() == Some(&block[..end]));
        }
        for _ in 0..8 {
            let mut damaged = stored.clone();
            damaged[random.below(stored.len() as u64) as usize] ^= 1 << random.below(8);
            let [fast, safe] = both(&dictionary, &model, &damaged, block.len(), block.len());
            assert!(fast == safe);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_by_both_alike(
            stored in proptest::collection::vec(any::<u8>(), 0..300),
            len in 1usize..5000,
            dictionary_len in 0usize..3000,
        ) {
            let mut random = Random(4);
            let dictionary = Dictionary::new(random.text(dictionary_len)).unwrap();
            let model = default_model(dictionary.as_bytes());
            let [fast, safe] = both(&dictionary, &model, &stored, len, len);
            prop_assert!(fast == safe);
        }
    }
}
