//! Writes a parsed block with the codes of a model.

use std::sync::Arc;

use super::codes::{
    Class, GROUPS, LENGTH_CLASSES, LITERAL_CLASSES, Model, Source, group, length_class,
    literal_class,
};
use super::{FIRST_DISTANCES, Parse, REPEATS};
use crate::model::BitSink;
use crate::wire::Put;

/// With fewer literals there are two streams, not four.
pub(super) const FOUR_STREAMS: usize = 256;
pub(super) const LITERALS_RAW: u8 = 0x80;

/// The codewords of a class.
struct Words {
    commands: Vec<u16>,
    lengths: [Vec<u16>; GROUPS],
    literals: Vec<Vec<u16>>,
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
    model: Arc<Model>,
    words: Vec<Words>,
    dictionary_len: usize,
    width: u32,
    written: Vec<Written>,
    sinks: [BitSink; 2],
}

impl Encoder {
    pub fn new(model: Arc<Model>, dictionary_len: usize) -> Encoder {
        let of = |class: &Class| Words {
            commands: class.commands.codewords(),
            lengths: class.lengths.each_ref().map(|code| code.codewords()),
            literals: class.literals.iter().map(|code| code.codewords()).collect(),
        };
        let words = model.classes.iter().map(of).collect();
        let width = crate::rlz::coder::width(dictionary_len);
        let (written, sinks) = Default::default();
        Encoder { model, words, dictionary_len, width, written, sinks }
    }

    /// How the sequences of a block are written with a class.
    pub(super) fn written(&mut self, parse: &Parse, class: usize) -> &[Written] {
        self.resolve(parse, class);
        &self.written
    }

    /// Appends the stored bytes of a block. False when no class of the model has all that it needs.
    pub(super) fn encode(&mut self, parse: &Parse, out: &mut Vec<u8>) -> bool {
        let Some(class) = self.best(parse) else { return false };
        let Some((_, literal_bits)) = self.cost(parse, class) else { return false };
        let raw = literal_bits >= 8 * parse.literals.len() as u64;
        self.resolve(parse, class);
        self.put(parse, class, raw, out);
        true
    }

    /// The class with which a block becomes shortest; `None` when none has all that it needs.
    pub(super) fn best(&mut self, parse: &Parse) -> Option<usize> {
        let classes = 0..self.model.classes.len();
        let costs = classes.filter_map(|class| Some((self.cost(parse, class)?, class)));
        costs.min_by_key(|(cost, _)| cost.0 + cost.1).map(|(_, class)| class)
    }

    /// Bits that a class takes for commands and lengths, and for literals; those are 8 each at most.
    pub(super) fn cost(&mut self, parse: &Parse, class: usize) -> Option<(u64, u64)> {
        self.resolve(parse, class);
        let class = &self.model.classes[class];
        let (commands, lengths) = (class.commands.lengths(), class.lengths.each_ref());
        let (mut bits, mut literal_bits) = (0, 0);
        for written in &self.written {
            let command = commands[usize::from(written.command)];
            let length = lengths[usize::from(written.group)].lengths()[usize::from(written.length)];
            if command == 0 || length == 0 {
                return None;
            }
            bits += u64::from(command) + u64::from(length) + u64::from(written.bits);
        }
        let all = 8 * parse.literals.len() as u64;
        let mut context = class.contexts[0];
        for &literal in &parse.literals {
            match class.literals[usize::from(context)].lengths()[usize::from(literal)] {
                // It can only be stored as it is.
                0 => return Some((bits, all)),
                n => literal_bits += u64::from(n),
            }
            context = class.contexts[usize::from(literal)];
        }
        Some((bits, all.min(literal_bits)))
    }

    /// How each sequence is written with a class: repeated distances where that is shorter.
    fn resolve(&mut self, parse: &Parse, class: usize) {
        let commands = self.model.classes[class].commands.lengths();
        let mut history = FIRST_DISTANCES;
        let mut at = 0;
        self.written.clear();
        for sequence in &parse.sequences {
            let (run, len) = (u32::from(sequence.literals), u32::from(sequence.len));
            at += run;
            let literals = literal_class(run);
            let distance = sequence.distance;
            let price = |source: &Source| match commands[source.class as usize * 16 + literals] {
                0 => u32::MAX,
                n => u32::from(n) + source.bits,
            };
            let behind = (self.dictionary_len as u32 + at) - distance;
            let fresh = match (behind as usize) < self.dictionary_len {
                true => Source::dictionary(behind, self.width),
                false => Source::distance(distance),
            };
            let repeats = (0..REPEATS).filter(|k| history[REPEATS - 1 - k] == distance);
            let mut source = fresh;
            for repeat in repeats.map(Source::repeat) {
                if price(&repeat) < price(&source) {
                    source = repeat;
                }
            }
            history.rotate_left(1);
            history[REPEATS - 1] = distance;
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
        let (class, words) = (&self.model.classes[number], &self.words[number]);
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
        for written in &self.written {
            let (command, group) = (usize::from(written.command), usize::from(written.group));
            let length = usize::from(written.length);
            let bits = class.commands.lengths()[command];
            forward.put(u32::from(words.commands[command]), u32::from(bits));
            let bits = class.lengths[group].lengths()[length];
            backward.put(u32::from(words.lengths[group][length]), u32::from(bits));
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
                    let mut context = usize::from(class.contexts[0]);
                    for &literal in pieces.next().unwrap_or_default() {
                        let literal = usize::from(literal);
                        let bits = class.literals[context].lengths()[literal];
                        sink.put(u32::from(words.literals[context][literal]), u32::from(bits));
                        context = usize::from(class.contexts[literal]);
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
