//! The sequences of a block.

use super::super::codes::{COMMAND_BITS, COMMANDS, FRESH, LENGTH_BITS, REPEATED, Tables};
use super::super::kernel::{self, Places};
use super::super::{FIRST_DISTANCES, REPEATS, Sequence};
use super::Fields;
use crate::model::{Bits, LONG, LONGEST, Padded};
use crate::processor::prefetch;
use crate::rlz::Dictionary;

/// Sequences that are decoded before the first of them is copied: so long the lines of the
/// dictionary have to arrive.
pub const BATCH: usize = 1024;

/// Reads sequences.
pub struct Reader<'a> {
    tables: &'a Tables,
    dictionary: &'a Dictionary,
    commands: Bits<false>,
    lengths: Bits<true>,
    extra: Bits<false>,
    /// Where in the block the next literals stand.
    pub at: u32,
    /// Sequences behind this place of the block are not needed.
    stop: u32,
    /// How many are read at once.
    pub most: usize,
    /// What they copy out of the dictionary is asked for.
    pub asks: bool,
    pub left: usize,
    is_first: bool,
}

/// What sequences are read into: behind those that the first of them may refer to.
pub struct Batch {
    sequences: Vec<Sequence>,
    count: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { sequences: vec![Sequence::default(); REPEATS], count: 0 }
    }
}

impl Batch {
    pub fn get(&self) -> &[Sequence] {
        &self.sequences[REPEATS..][..self.count]
    }
}

impl<'a> Reader<'a> {
    pub fn new(
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
    pub fn read<const KERNEL: bool>(&mut self, stored: &Padded, batch: &mut Batch) {
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
    pub fn is_done(&self, fields: &Fields) -> bool {
        self.left == 0
            && self.extra.byte() == fields.end
            && self.commands.byte() == self.lengths.byte()
    }
}
