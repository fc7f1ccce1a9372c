//! Writes a parsed block with the codes of a model.

use super::codes::{
    COMMANDS, CONTEXTS, Class, GROUPS, LENGTH_CLASSES, LENGTHS, LITERAL_CLASSES, Model, Source,
    group, length_class, literal_class,
};
use super::{FIRST_DISTANCES, Parse};
use crate::model::{BitSink, Code};
use crate::wire::Put;

/// With fewer literals there are two streams, not four.
pub(super) const FOUR_STREAMS: usize = 256;
pub(super) const LITERALS_RAW: u8 = 0x80;

/// A codeword, and above it how many bits it has; 0 where there is none.
type Word = u32;

#[inline(always)]
fn bits_of(word: Word) -> u32 {
    word >> 16
}

/// The codewords of a class.
struct Words {
    commands: [Word; COMMANDS],
    lengths: [[Word; LENGTHS]; GROUPS],
    literals: [[Word; 256]; CONTEXTS],
    contexts: [u8; 256],
}

impl Words {
    fn new(class: &Class) -> Box<Words> {
        fn fill(slots: &mut [Word], code: &Code) {
            for ((slot, word), &bits) in slots.iter_mut().zip(code.codewords()).zip(code.lengths())
            {
                *slot = u32::from(bits) << 16 | u32::from(word);
            }
        }
        let mut words = Box::new(Words {
            commands: [0; COMMANDS],
            lengths: [[0; LENGTHS]; GROUPS],
            literals: [[0; 256]; CONTEXTS],
            contexts: class.contexts,
        });
        fill(&mut words.commands, &class.commands);
        words.lengths.iter_mut().zip(&class.lengths).for_each(|(slots, code)| fill(slots, code));
        words.literals.iter_mut().zip(&class.literals).for_each(|(slots, code)| fill(slots, code));
        words
    }

    /// Bits for commands and lengths, and for literals; those are 8 each at most. `None` when it
    /// lacks something that is needed.
    fn cost(&self, written: &[Written], literals: &[u8]) -> Option<(u64, u64)> {
        let (mut bits, mut lacks) = (0, false);
        for written in written {
            let command = bits_of(self.commands[usize::from(written.command) % COMMANDS]);
            let length = usize::from(written.length) % LENGTHS;
            let length = bits_of(self.lengths[usize::from(written.group)][length]);
            lacks |= command == 0 || length == 0;
            bits += u64::from(command + length + written.bits);
        }
        let raw = 8 * literals.len() as u64;
        let (mut context, mut literal_bits, mut has_all) = (self.contexts[0], 0, true);
        for &literal in literals {
            let n = bits_of(self.literals[usize::from(context) % CONTEXTS][usize::from(literal)]);
            has_all &= n > 0;
            literal_bits += u64::from(n);
            context = self.contexts[usize::from(literal)];
        }
        // Without a codeword they can only be stored as they are.
        let literal_bits = if has_all { literal_bits.min(raw) } else { raw };
        (!lacks).then_some((bits, literal_bits))
    }
}

/// A sequence as it is written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub command: u16,
    pub group: u8,
    pub length: u8,
    /// All its extra bits, and how many.
    extra: u64,
    bits: u32,
}

/// Writes blocks; one for each thread.
pub(crate) struct Encoder {
    words: Vec<Box<Words>>,
    dictionary_len: usize,
    width: u32,
    /// The sequences of the parse at hand, and the class whose choices those are.
    written: Vec<Written>,
    like: usize,
    sinks: [BitSink; 2],
}

impl Encoder {
    pub fn new(model: &Model, dictionary_len: usize) -> Encoder {
        let words = model.classes.iter().map(Words::new).collect();
        let width = crate::rlz::coder::width(dictionary_len);
        let (written, sinks) = Default::default();
        Encoder { words, dictionary_len, width, written, like: 0, sinks }
    }

    /// How the sequences of a block are written with a class.
    pub(super) fn written(&mut self, parse: &Parse, class: usize) -> &[Written] {
        self.resolve(parse, class);
        &self.written
    }

    /// The class with which a block becomes shortest, and how many bits that are, if its sequences
    /// are written as class `like` would; `None` when no class has all that it needs.
    pub(super) fn best(&mut self, parse: &Parse, like: usize) -> Option<(u64, usize)> {
        self.resolve(parse, like);
        let cost = |words: &Words| words.cost(&self.written, &parse.literals);
        let costs = self.words.iter().enumerate().filter_map(|(class, w)| Some((cost(w)?, class)));
        costs.map(|((bits, literals), class)| (bits + literals, class)).min()
    }

    /// Appends the stored bytes of the block that `best` was asked for, written with this class.
    /// False when the class lacks something that it needs.
    pub(super) fn encode(&mut self, parse: &Parse, class: usize, out: &mut Vec<u8>) -> bool {
        if self.like != class {
            self.resolve(parse, class);
        }
        let cost = self.words[class].cost(&self.written, &parse.literals);
        let Some((_, literal_bits)) = cost else { return false };
        let raw = literal_bits >= 8 * parse.literals.len() as u64;
        self.put(parse, class, raw, out);
        true
    }

    /// How each sequence is written with a class: repeated distances where that is shorter.
    fn resolve(&mut self, parse: &Parse, class: usize) {
        let words = &self.words[class];
        let mut history = FIRST_DISTANCES;
        let mut at = 0;
        self.like = class;
        self.written.clear();
        for sequence in &parse.sequences {
            let (run, len) = (u32::from(sequence.literals), u32::from(sequence.len));
            at += run;
            let literals = literal_class(run);
            let distance = sequence.distance;
            let command = |source: &Source| words.commands[source.class as usize * 16 + literals];
            let price = |source: &Source| match command(source) {
                0 => u32::MAX,
                word => bits_of(word) + source.bits,
            };
            let behind = (self.dictionary_len as u32 + at) - distance;
            let mut source = match (behind as usize) < self.dictionary_len {
                true => Source::dictionary(behind, self.width),
                false => Source::distance(distance),
            };
            for (k, _) in history.iter().rev().enumerate().filter(|(_, d)| **d == distance) {
                let repeat = Source::repeat(k);
                if price(&repeat) < price(&source) {
                    source = repeat;
                }
            }
            let [_, b, c, d] = history;
            history = [b, c, d, distance];
            let length = length_class(len);
            let mut extra = u64::from(source.extra);
            let mut bits = source.bits;
            for (value, (first, more)) in
                [(run, LITERAL_CLASSES[literals]), (len, LENGTH_CLASSES[length])]
            {
                extra |= u64::from(value - u32::from(first)) << bits;
                bits += u32::from(more);
            }
            self.written.push(Written {
                command: (source.class * 16) as u16 + literals as u16,
                group: group(source.class) as u8,
                length: length as u8,
                extra,
                bits,
            });
            at += len;
        }
    }

    fn put(&mut self, parse: &Parse, number: usize, raw: bool, out: &mut Vec<u8>) {
        let words = &self.words[number];
        let [forward, backward] = &mut self.sinks;
        let mut body = Vec::with_capacity(parse.literals.len() + 4 * parse.sequences.len());
        let mut sizes = Vec::with_capacity(3);
        // Ends a field that two streams share.
        let mut end = |forward: &mut BitSink, backward: &mut BitSink, body: &mut Vec<u8>| {
            let start = body.len();
            body.put(forward.finish());
            let reversed = backward.finish();
            reversed.reverse();
            body.put(reversed);
            sizes.push(body.len() - start);
            forward.clear();
            backward.clear();
        };
        let put = |sink: &mut BitSink, word: Word| sink.put(word & 0xffff, bits_of(word));
        for written in &self.written {
            let (command, group) = (usize::from(written.command), usize::from(written.group));
            let length = usize::from(written.length);
            put(forward, words.commands[command]);
            put(backward, words.lengths[group][length]);
        }
        end(forward, backward, &mut body);
        let literals = &parse.literals;
        if raw {
            body.put(literals);
        } else if !literals.is_empty() {
            let streams = if literals.len() < FOUR_STREAMS { 2 } else { 4 };
            let chunk = literals.len().div_ceil(streams);
            let mut pieces = literals.chunks(chunk);
            for _ in 0..streams / 2 {
                for sink in [&mut *forward, &mut *backward] {
                    let mut context = words.contexts[0];
                    for &literal in pieces.next().unwrap_or_default() {
                        put(sink, words.literals[usize::from(context)][usize::from(literal)]);
                        context = words.contexts[usize::from(literal)];
                    }
                }
                end(forward, backward, &mut body);
            }
        }
        for written in &self.written {
            let low = written.bits.min(32);
            forward.put((written.extra & ((1 << low) - 1)) as u32, low);
            forward.put((written.extra >> low) as u32, written.bits - low);
        }
        body.put(forward.finish());
        forward.clear();
        out.put_u8(number as u8 | if raw { LITERALS_RAW } else { 0 });
        out.put_varint(self.written.len() as u64);
        out.put_varint(literals.len() as u64);
        sizes.iter().for_each(|&size| out.put_varint(size as u64));
        out.put(&body);
    }
}
