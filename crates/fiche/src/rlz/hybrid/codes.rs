//! What is written for a sequence: classes, their extra bits, and the codes of a model.

use std::sync::OnceLock;

use super::REPEATS;
use crate::error::Result;
use crate::model::{Code, Table};
use crate::rlz::coder::width;
use crate::wire::{Put, Take};

/// Symbols of a command, of a match length, and of literals.
pub(super) const COMMANDS: usize = 512;
pub(super) const LENGTHS: usize = 32;
pub(super) const GROUPS: usize = 5;
/// Codes of literals that a class has at most.
pub(super) const CONTEXTS: usize = 4;
/// Classes that a model has at most.
pub(super) const CLASSES: usize = 16;
/// Sources below this are repeated distances; below `DICTIONARY` distances.
pub(super) const NEAR: u32 = 4;
pub(super) const DICTIONARY: u32 = 24;

pub(super) const LEAST: u32 = 2;
/// The most literals and the longest match that one sequence has.
pub(super) const MOST_LITERALS: u32 = 64 + (1 << 13) - 1;
pub(super) const LONGEST_MATCH: u32 = 1026 + (1 << 14) - 1;

/// First value and extra bits of each class of a number of literals.
pub(super) const LITERAL_CLASSES: [(u16, u8); 16] = {
    let mut classes = [(0, 0); 16];
    let mut i = 0;
    while i < 8 {
        classes[i] = (i as u16, 0);
        i += 1;
    }
    (classes[8], classes[9], classes[10], classes[11]) = ((8, 3), (16, 4), (32, 5), (64, 13));
    classes
};

/// First length and extra bits of each symbol of a match length.
pub(super) const LENGTH_CLASSES: [(u16, u8); LENGTHS] = {
    let mut classes = [(0, 0); LENGTHS];
    let bits = [2, 2, 3, 3, 3, 4, 5, 5, 7, 8, 9, 14];
    let (mut i, mut first) = (0, LEAST as u16);
    while i < 28 {
        let extra = if i < 16 { 0 } else { bits[i - 16] };
        classes[i] = (first, extra);
        first += 1 << extra;
        i += 1;
    }
    classes
};
/// The symbol of a match of no length at all: it ends a long run of literals.
pub(super) const NO_MATCH: usize = 28;

/// Classes in use.
pub(super) const LITERAL_COUNT: usize = 12;
pub(super) const LENGTH_COUNT: usize = 29;

#[inline(always)]
pub(super) fn literal_class(literals: u32) -> usize {
    match literals {
        0..8 => literals as usize,
        8..64 => literals.ilog2() as usize + 5,
        _ => 11,
    }
}

#[inline(always)]
pub(super) fn length_class(len: u32) -> usize {
    /// Symbols of lengths up to 65.
    const SHORT: [u8; 66] = {
        let mut short = [0; 66];
        let (mut len, mut class) = (LEAST as usize, 0);
        while len < 66 {
            if LENGTH_CLASSES[class + 1].0 as usize <= len {
                class += 1;
            }
            short[len] = class as u8;
            len += 1;
        }
        short
    };
    match len {
        0 => NO_MATCH,
        1..66 => usize::from(SHORT[len as usize]),
        66..98 => 22,
        98..130 => 23,
        130..258 => 24,
        258..514 => 25,
        514..1026 => 26,
        _ => 27,
    }
}

/// The code that the match length has behind this source.
#[inline(always)]
pub(super) const fn group(source: u32) -> usize {
    match source {
        0 => 0,
        1..NEAR => 1,
        NEAR..10 => 2,
        10..DICTIONARY => 3,
        _ => 4,
    }
}

/// Where a match is copied from, as it is written: a class and its extra bits.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub class: u32,
    pub extra: u32,
    pub bits: u32,
}

impl Source {
    pub fn repeat(nth: usize) -> Source {
        Source { class: nth as u32, extra: 0, bits: 0 }
    }

    #[inline(always)]
    pub fn distance(distance: u32) -> Source {
        let bits = distance.ilog2();
        Source { class: NEAR + bits, extra: distance - (1 << bits), bits }
    }

    /// `width` is that of the dictionary.
    #[inline(always)]
    pub fn dictionary(offset: u32, width: u32) -> Source {
        match offset.checked_ilog2() {
            Some(bits) if bits >= width - 7 => {
                let class = DICTIONARY + 8 + bits - width;
                Source { class, extra: offset - (1 << bits), bits }
            }
            _ => Source { class: DICTIONARY, extra: offset, bits: width - 7 },
        }
    }
}

/// First value and extra bits of each class of sources, for a dictionary whose offsets are as wide.
pub(super) fn source_classes(width: u32) -> [(u32, u8); 32] {
    std::array::from_fn(|class| match class as u32 {
        0..NEAR => (0, 0),
        class @ NEAR..DICTIONARY => (1 << (class - NEAR), (class - NEAR) as u8),
        DICTIONARY => (0, (width - 7) as u8),
        class => (1 << (width + class - 32), (width + class - 32) as u8),
    })
}

/// Codes for one kind of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub commands: Code,
    pub lengths: [Code; GROUPS],
    pub literals: Vec<Code>,
    /// Which code a literal has behind each byte.
    pub contexts: [u8; 256],
}

impl Class {
    fn put(&self, out: &mut Vec<u8>) {
        self.commands.put(out);
        self.lengths.iter().for_each(|code| code.put(out));
        out.put_varint(self.literals.len() as u64);
        self.literals.iter().for_each(|code| code.put(out));
        if self.literals.len() > 1 {
            for four in self.contexts.chunks_exact(4) {
                out.put_u8(four.iter().rev().fold(0, |byte, context| byte << 2 | context));
            }
        }
    }

    fn take(take: &mut Take<'_>) -> Result<Class> {
        let commands = Code::take(take, COMMANDS)?;
        let mut code = || Code::take(take, LENGTHS);
        let lengths = [code()?, code()?, code()?, code()?, code()?];
        let is_known = |lengths: &[u8], known: usize| lengths[known..].iter().all(|&l| l == 0);
        let commands_known = commands.lengths().chunks(16).all(|c| is_known(c, LITERAL_COUNT));
        if !commands_known || !lengths.iter().all(|c| is_known(c.lengths(), LENGTH_COUNT)) {
            return Err(take.corrupt());
        }
        let count = take.count(CONTEXTS as u64)?;
        if count == 0 {
            return Err(take.corrupt());
        }
        let literals: Vec<Code> =
            (0..count).map(|_| Code::take(take, 256)).collect::<Result<_>>()?;
        let mut contexts = [0; 256];
        if count > 1 {
            for (four, &byte) in contexts.chunks_exact_mut(4).zip(take.bytes(64)?) {
                four.copy_from_slice(&[byte & 3, byte >> 2 & 3, byte >> 4 & 3, byte >> 6]);
            }
        }
        if contexts.iter().any(|&context| usize::from(context) >= count) {
            return Err(take.corrupt());
        }
        Ok(Class { commands, lengths, literals, contexts })
    }
}

/// Index bits of the tables that decode commands, match lengths and literals.
pub(super) const COMMAND_BITS: u32 = 11;
pub(super) const LENGTH_BITS: u32 = 8;
pub(super) const LITERAL_BITS: u32 = 10;

/// What a command says.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub(super) struct Command {
    /// The first value of the source.
    pub first: u32,
    /// Where the table of match lengths starts.
    pub table: u16,
    /// Extra bits of the source and of the number of literals.
    pub bits: u8,
    pub literal_bits: u8,
    /// The sum of both.
    pub both_bits: u8,
    /// The first number of literals.
    pub literals: u8,
    /// The distance is that of the sequence so far from this one: -1 to -4.
    pub back: i8,
    pub kind: u8,
}

/// Kinds of sources.
pub(super) const REPEATED: u8 = 0;
pub(super) const FRESH: u8 = 1;
pub(super) const FAR: u8 = 2;

fn commands(width: u32) -> [Command; COMMANDS] {
    let sources = source_classes(width);
    std::array::from_fn(|command| {
        let (source, class) = (command as u32 / 16, command % 16);
        let (first, bits) = sources[source as usize];
        let (literals, literal_bits) = LITERAL_CLASSES[class];
        let kind = match source {
            0..NEAR => REPEATED,
            NEAR..DICTIONARY => FRESH,
            _ => FAR,
        };
        let (literals, back) = (literals as u8, -1 - (source as i8 % REPEATS as i8));
        let table = (group(source) << LENGTH_BITS) as u16;
        let both_bits = bits + literal_bits;
        Command { first, table, bits, literal_bits, both_bits, literals, back, kind }
    })
}

/// What decodes a class: for all that the next bits may be an entry, its low six bits the length of
/// the codeword. One piece of memory, for one pointer to lead to all of it.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Above the length, the symbol.
    pub codes: [u16; 1 << COMMAND_BITS],
    /// What the symbols are.
    pub commands: [Command; COMMANDS],
    /// From bit 8 on how many extra bits there are, from bit 16 on the first match length.
    /// Tables of all groups, one behind the other, with room for eight.
    pub lengths: [u32; 8 << LENGTH_BITS],
    /// Above the length two bits for the number of the table that comes next, and the literal.
    pub literals: [u16; CONTEXTS << LITERAL_BITS],
    /// The table of the first literal.
    pub first: u8,
    long: [Vec<Table>; 3],
}

// Whatever a model says, its tables take no more than this for each class.
const _: () = assert!(size_of::<Tables>() <= 48 << 10 && CLASSES <= 16);

impl Tables {
    fn new(class: &Class, width: u32) -> Box<Tables> {
        let context = |byte: u16| u32::from(class.contexts[usize::from(byte)]);
        let literal = |symbol: u16| u32::from(symbol) << 2 | context(symbol);
        let length = |symbol: u16| {
            let (first, bits) = LENGTH_CLASSES[usize::from(symbol)];
            u32::from(first) << 10 | u32::from(bits) << 2
        };
        let codes = vec![Table::new(&class.commands, COMMAND_BITS, u32::from)];
        let lengths = class.lengths.iter().map(|code| Table::new(code, LENGTH_BITS, length));
        let literals = class.literals.iter().map(|code| Table::new(code, LITERAL_BITS, literal));
        let (lengths, literals): (Vec<Table>, Vec<Table>) = (lengths.collect(), literals.collect());
        Box::new(Tables {
            codes: joined(&codes, |entry| entry as u16),
            commands: commands(width),
            lengths: joined(&lengths, |entry| entry),
            literals: joined(&literals, |entry| entry as u16),
            first: class.contexts[0],
            long: [codes, lengths, literals],
        })
    }

    /// The entry of a command, a length, a literal whose codeword is too long for its table.
    #[cold]
    #[inline(never)]
    pub fn find_long(&self, kind: usize, table: usize, bits: u64) -> u32 {
        self.long[kind].get(table).map_or(0, |table| table.find_long(bits))
    }
}

/// The entries of all tables, one behind the other.
fn joined<T: Copy + Default, const N: usize>(tables: &[Table], cut: fn(u32) -> T) -> [T; N] {
    let mut entries = [T::default(); N];
    let all = tables.iter().flat_map(|table| table.entries());
    entries.iter_mut().zip(all).for_each(|(slot, &entry)| *slot = cut(entry));
    entries
}

/// Widths of offsets into a dictionary.
const WIDTHS: std::ops::RangeInclusive<u32> = 8..=30;
const WIDTH_COUNT: usize = 23;

/// The codes of all blocks of an archive.
#[derive(Debug)]
pub(crate) struct Model {
    pub(super) classes: Vec<Class>,
    /// What decodes them, for each width of offsets; made when it is needed.
    tables: [OnceLock<Vec<Box<Tables>>>; WIDTH_COUNT],
}

impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        self.classes == other.classes
    }
}

impl Model {
    pub(super) fn new(classes: Vec<Class>) -> Model {
        debug_assert!((1..=CLASSES).contains(&classes.len()));
        Model { classes, tables: Default::default() }
    }

    /// What decodes a class behind a dictionary of this length.
    pub(super) fn tables(&self, class: usize, dictionary_len: usize) -> Option<&Tables> {
        let width = width(dictionary_len);
        let slot = self.tables.get(width.checked_sub(*WIDTHS.start())? as usize)?;
        let new = || self.classes.iter().map(|class| Tables::new(class, width)).collect();
        slot.get_or_init(new).get(class).map(Box::as_ref)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.classes.len() as u64);
        self.classes.iter().for_each(|class| class.put(out));
    }

    pub fn take(take: &mut Take<'_>) -> Result<Model> {
        let count = take.count(CLASSES as u64)?;
        if count == 0 {
            return Err(take.corrupt());
        }
        Ok(Model::new((0..count).map(|_| Class::take(take)).collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_value_once() {
        for literals in 0..=MOST_LITERALS {
            let (first, bits) = LITERAL_CLASSES[literal_class(literals)];
            assert!((u32::from(first)..u32::from(first) + (1 << bits)).contains(&literals));
        }
        for len in LEAST..=LONGEST_MATCH {
            let (first, bits) = LENGTH_CLASSES[length_class(len)];
            assert!((u32::from(first)..u32::from(first) + (1 << bits)).contains(&len), "{len}");
        }
        for len in [0, 1, 2, 255, 256, 257, 1000, 4 << 20, 1 << 30] {
            let width = width(len);
            let classes = source_classes(width);
            let places = [0, 1, 2, 3, 7, 100, 255, len / 3, len / 2, len - len.min(1)];
            for offset in places.map(|p| p.min(len.saturating_sub(1)) as u32) {
                let source = Source::dictionary(offset, width);
                let (first, bits) = classes[source.class as usize];
                assert!(source.class >= DICTIONARY);
                assert_eq!((first + source.extra, u32::from(bits)), (offset, source.bits));
                assert!(source.extra >> bits == 0);
            }
            for distance in [1, 2, 3, 63, 64, 65, 16383, (1 << 20) - 1] {
                let source = Source::distance(distance);
                let (first, bits) = classes[source.class as usize];
                assert_eq!((first + source.extra, u32::from(bits)), (distance, source.bits));
                assert!((NEAR..DICTIONARY).contains(&source.class));
            }
        }
    }

    #[test]
    fn a_model_is_read_as_it_was_written_and_any_other_bytes_are_refused_or_a_model() {
        let mut random = crate::testing::Random(12);
        let model = super::super::default_model(&random.text(5000));
        let mut stored = Vec::new();
        model.put(&mut stored);
        let read = |bytes: &[u8]| {
            let mut take = Take::new(bytes, "model", 0);
            let model = Model::take(&mut take).ok()?;
            take.end().ok().map(|()| model)
        };
        assert!(read(&stored) == Some(model));
        (0..stored.len()).for_each(|end| assert!(read(&stored[..end]).is_none(), "{end}"));
        for _ in 0..5000 {
            let mut damaged = stored.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.below(256) as u8;
            }
            if let Some(model) = read(&damaged) {
                assert!((1..=CLASSES).contains(&model.classes.len()));
            }
        }
    }
}
