//! Chooses the sequences of a block: the cheapest way through it, by what a model would write.

use std::ops::Range;

use super::codes::{
    CONTEXTS, Class, DICTIONARY, GROUPS, LENGTH_CLASSES, LENGTH_COUNT, LENGTHS, LITERAL_CLASSES,
    LITERAL_COUNT, LONGEST_MATCH, MOST_LITERALS, NEAR, Source, group, length_class, literal_class,
    source_classes,
};
use super::near::{DEEP, Match, Near};
use super::tokens::{Kind, Speller};
use super::{FIRST_DISTANCES, Parse, REPEATS, Sequence, Text, fast};
use crate::model::Code;
use crate::rlz::coder::width;
use crate::rlz::matcher::common;

/// Prices are in sixteenths of a bit.
pub(super) const BIT: u32 = 16;
/// What has no codeword.
pub(super) const NEVER: u32 = 1 << 20;
/// So much more than its bits a sequence costs: it takes time to decode. And few long
/// sequences are what neighbouring blocks of the same price are better off with.
const SEQUENCE: u32 = 3 * BIT;
/// Of a match all lengths up to this are tried, and the longest ones.
const SHORT: u32 = 24;
/// Of a match as long only the longest is tried.
const LONG: u32 = 256;
/// A match as long is taken: at places within it that are not cheaper to get to than its end nothing is looked for. Else a block of one byte over and over
/// would be compared with itself from each place on.
const TAKEN: u32 = 512;
/// Parsed at once: what is kept of each place stays in the cache.
const PIECE: usize = 32 << 10;

/// What a class writes for everything.
pub(super) struct Prices {
    pub commands: Box<[u32; 512]>,
    /// With their extra bits.
    pub lengths: Box<[[u32; LENGTHS]; GROUPS]>,
    /// Of a typical one.
    pub literal: u32,
    literals: Box<[[u32; 256]; CONTEXTS]>,
    contexts: [u8; 256],
    /// How much a number of literals adds to a typical command.
    runs: [u32; 66],
    sources: [u32; 32],
}

impl Prices {
    pub fn of(class: &Class, dictionary_len: usize) -> Prices {
        let price = |bits: u8| if bits == 0 { NEVER } else { u32::from(bits) * BIT };
        let mut prices = Prices {
            commands: Box::new([NEVER; 512]),
            lengths: Box::new([[NEVER; LENGTHS]; GROUPS]),
            literals: Box::new([[NEVER; 256]; CONTEXTS]),
            contexts: class.contexts,
            runs: [0; 66],
            literal: 0,
            sources: source_classes(width(dictionary_len)).map(|(_, bits)| u32::from(bits) * BIT),
        };
        for (slot, &bits) in prices.commands.iter_mut().zip(class.commands.lengths()) {
            *slot = price(bits) + SEQUENCE;
        }
        for (slots, code) in prices.lengths.iter_mut().zip(&class.lengths) {
            for ((slot, &bits), (_, extra)) in
                slots.iter_mut().zip(code.lengths()).zip(LENGTH_CLASSES)
            {
                *slot = price(bits) + u32::from(extra) * BIT;
            }
        }
        for (slots, code) in prices.literals.iter_mut().zip(&class.literals) {
            for (slot, &bits) in slots.iter_mut().zip(code.lengths()) {
                // They may be stored as they are.
                *slot = price(bits).min(12 * BIT);
            }
        }
        // A codeword of n bits is for what comes once in 2^n.
        let typical = |code: &Code| {
            let share = |&n: &u8| if n == 0 { 0 } else { ((u32::from(n) * BIT) << 14) >> n };
            code.lengths().iter().map(share).sum::<u32>() >> 14
        };
        let sum: u32 = class.literals.iter().map(typical).sum();
        prices.literal = sum / class.literals.len() as u32;
        let mut cheapest = [u32::MAX; 16];
        for (literals, slot) in cheapest.iter_mut().enumerate() {
            let of =
                |source: usize| prices.commands[source * 16 + literals] + prices.sources[source];
            *slot = (4..32).map(of).min().unwrap_or(0);
        }
        for (literals, slot) in prices.runs.iter_mut().enumerate() {
            let class = literal_class(literals as u32);
            *slot = (cheapest[class] + u32::from(LITERAL_CLASSES[class].1) * BIT)
                .saturating_sub(cheapest[0]);
        }
        prices
    }

    /// Those of blocks of tokens.
    pub fn of_tokens(speller: &Speller, dictionary_len: usize) -> Prices {
        const BYTE: u32 = 8 * BIT;
        let mut prices = Prices {
            commands: Box::new([NEVER; 512]),
            lengths: Box::new([[0; LENGTHS]; GROUPS]),
            literals: Box::new([[BYTE; 256]; CONTEXTS]),
            contexts: [0; 256],
            runs: [0; 66],
            literal: BYTE,
            sources: [0; 32],
        };
        let far_len = fast::offset_len(dictionary_len) as u32;
        for source in 0..32 {
            // What a token costs in time, too: a line of the dictionary has to arrive, and what was just
            // written has to be there before it can be read.
            let (kind, bytes, time) = match source {
                0 => (Kind::Again, 0, 24),
                NEAR..9 => (Kind::Near, 2, 48),
                9..DICTIONARY if source < NEAR + 16 => (Kind::Near, 2, 24),
                DICTIONARY.. => (Kind::Far, far_len, 48),
                _ => continue,
            };
            // The bits of a distance count elsewhere.
            let extra = bits_of(source, dictionary_len);
            let group = group(source);
            let least = |literals: usize| {
                (4..24).map(|len| speller.cost(literals, kind, len)).min().unwrap_or(1)
            };
            for (class, &(literals, extra_literals)) in
                LITERAL_CLASSES[..LITERAL_COUNT].iter().enumerate()
            {
                let literals = usize::from(literals) + ((1 << extra_literals) / 2).min(16);
                let cost = (least(literals) + bytes) * BYTE + time * BIT;
                let counted = (extra + u32::from(extra_literals)) * BIT;
                prices.commands[source as usize * 16 + class] = cost.saturating_sub(counted);
            }
            for (class, &(len, extra)) in LENGTH_CLASSES[..LENGTH_COUNT - 1].iter().enumerate() {
                let len = usize::from(len) + ((1 << extra) / 2).min(64);
                let more = speller.cost(0, kind, len).saturating_sub(least(0));
                prices.lengths[group][class] = more * BYTE;
            }
        }
        for (literals, slot) in prices.runs.iter_mut().enumerate() {
            let more = speller.cost(literals, Kind::Near, 8).saturating_sub(speller.cost(
                0,
                Kind::Near,
                8,
            ));
            *slot = more * BYTE;
        }
        prices
    }

    #[inline(always)]
    fn run(&self, literals: u32) -> u32 {
        self.runs[literals.min(65) as usize]
    }
}

/// Bits of an offset or a distance that are counted apart from the command.
fn bits_of(source: u32, dictionary_len: usize) -> u32 {
    source_classes(width(dictionary_len))[source as usize].1.into()
}

/// A place of a block, and the cheapest way there that is known.
#[derive(Clone, Copy)]
struct Node {
    price: u32,
    /// Literals behind the last match.
    literals: u32,
    /// Length of the match that ends here; 0 where a literal does.
    len: u32,
    distance: u32,
    history: [u32; REPEATS],
    /// The last literal.
    last: u8,
}

const UNKNOWN: Node = Node {
    price: u32::MAX / 2,
    literals: 0,
    len: 0,
    distance: 0,
    history: FIRST_DISTANCES,
    last: 0,
};

/// Parses blocks; one for each thread.
pub(super) struct Shortest {
    nodes: Vec<Node>,
    near: Near,
    found: Vec<Match>,
    /// Places that matches were tried at.
    #[cfg(test)]
    pub tried: usize,
}

/// Distances from here on have no class of their own.
const FARTHEST: u32 = 1 << 20;

impl Shortest {
    /// Looks at `depth` places of the block for a match with each.
    pub fn new(depth: u32) -> Shortest {
        Shortest {
            nodes: Vec::new(),
            near: Near::new(depth),
            found: Vec::new(),
            #[cfg(test)]
            tried: 0,
        }
    }

    /// The cheapest sequences of a block.
    pub fn parse(&mut self, text: Text<'_>, prices: &Prices, parse: &mut Parse) {
        let block = text.block;
        parse.sequences.clear();
        parse.literals.clear();
        self.near.start(block.len());
        let (mut history, mut literals, mut last) = (FIRST_DISTANCES, 0, 0);
        let mut runs = Vec::new();
        for start in (0..block.len()).step_by(PIECE) {
            let end = block.len().min(start + PIECE);
            self.nodes.clear();
            self.nodes.resize(end - start + 1, UNKNOWN);
            self.nodes[0] = Node { price: 0, history, literals, last, ..UNKNOWN };
            self.go(text, start..end, prices);
            let from = parse.sequences.len();
            let mut at = end - start;
            let arrived = self.nodes[at];
            while at > 0 {
                let node = self.nodes[at];
                if node.len == 0 {
                    at -= 1;
                    continue;
                }
                at -= node.len as usize;
                runs.push(self.nodes[at].literals);
                let (len, distance) = (node.len as u16, node.distance);
                parse.sequences.push(Sequence { literals: 0, len, distance });
            }
            parse.sequences[from..].reverse();
            runs[from..].reverse();
            (history, literals, last) = (arrived.history, arrived.literals, arrived.last);
        }
        put_runs(parse, &runs);
        put_literals(parse, block);
    }

    /// Finds the cheapest way to each place of a piece of the block from its start on.
    fn go(&mut self, text: Text<'_>, piece: Range<usize>, prices: &Prices) {
        let Text { dictionary, block: whole, far } = text;
        let width = width(dictionary.len());
        let nodes = &mut self.nodes[..];
        let (start, block) = (piece.start, &whole[..piece.end]);
        // The end of a match that is taken.
        let mut taken = start;
        for at in piece {
            self.near.find(whole, at, &mut self.found);
            let node = nodes[at - start];
            if node.price >= UNKNOWN.price {
                continue;
            }
            // What is no cheaper than to be at its end already.
            if at < taken && node.price >= nodes[taken - start].price {
                continue;
            }
            #[cfg(test)]
            {
                self.tried += 1;
            }
            let context = usize::from(prices.contexts[usize::from(node.last)]);
            let price = node.price + prices.literals[context][usize::from(block[at])];
            let next = &mut nodes[at - start + 1];
            let literals = node.literals + 1;
            if price + prices.run(literals) < next.price.saturating_add(prices.run(next.literals)) {
                *next = Node { price, literals, len: 0, last: block[at], ..node };
            }
            let mut ways = Ways { nodes: &mut *nodes, prices, node, at: at - start };
            let (rest, mut longest_taken) = (&block[at..], 0);
            // Of a repeated distance the nearest one is as good as any other.
            for k in 0..REPEATS {
                let distance = node.history[REPEATS - 1 - k];
                let behind = dictionary.len() + at;
                let Some(from) = behind.checked_sub(distance as usize) else { continue };
                let len = match from.checked_sub(dictionary.len()) {
                    None => common(&dictionary[from..], rest),
                    Some(from) => common(&block[from..], rest),
                };
                let taken = ways.try_all(2, len as u32, distance, Source::repeat(k));
                longest_taken = longest_taken.max(taken);
            }
            let mut least = 3;
            let mut longest = 0;
            for near in &self.found {
                let mut len = near.len.min(rest.len() as u32);
                if near.len == DEEP as u32 {
                    len += common(
                        &block[at - near.distance as usize + len as usize..],
                        &rest[len as usize..],
                    ) as u32;
                }
                if near.distance < FARTHEST && len >= least {
                    let source = Source::distance(near.distance);
                    let taken = ways.try_all(least, len, near.distance, source);
                    longest_taken = longest_taken.max(taken);
                    least = len + 1;
                    longest = len;
                }
            }
            let far = far[at];
            let len = far.len.min(rest.len() as u32);
            if len > longest.max(3) {
                let distance = (dictionary.len() + at) as u32 - far.offset;
                let taken = ways.try_all(4, len, distance, Source::dictionary(far.offset, width));
                longest_taken = longest_taken.max(taken);
            }
            // Those within one that is taken do not move its end.
            if at >= taken {
                taken = at + longest_taken as usize;
            }
        }
    }
}

/// Tries matches at a place.
struct Ways<'a> {
    nodes: &'a mut [Node],
    prices: &'a Prices,
    node: Node,
    at: usize,
}

impl Ways<'_> {
    /// Those of a source with every length from `least` to `most`; of a long one only the longest. The length of one that is taken, else 0.
    #[inline(always)]
    fn try_all(&mut self, least: u32, most: u32, distance: u32, source: Source) -> u32 {
        if most < least {
            return 0;
        }
        let node = &self.node;
        let prices = self.prices;
        let class = literal_class(node.literals.min(MOST_LITERALS));
        let command = prices.commands[source.class as usize * 16 + class];
        if command >= NEVER {
            return 0;
        }
        let price =
            node.price + command + u32::from(LITERAL_CLASSES[class].1) * BIT + source.bits * BIT;
        let lengths = &prices.lengths[group(source.class)];
        let most = most.min(LONGEST_MATCH);
        let [_, b, c, d] = node.history;
        let history = [b, c, d, distance];
        let mut len = if most >= LONG { most } else { least };
        while len <= most {
            let price = price + lengths[length_class(len)];
            let there = &mut self.nodes[self.at + len as usize];
            if price < there.price.saturating_add(prices.run(there.literals)) {
                *there = Node { price, literals: 0, len, distance, history, last: node.last };
            }
            // Lengths that are neither short nor near the longest are as good as never best.
            len += if len >= SHORT && len + 4 < most { most - 4 - len } else { 1 };
        }
        if most >= TAKEN { most } else { 0 }
    }
}

/// Puts the literals before each match into the sequences, and those of a run that is too long into
/// sequences with matches of no length.
pub(super) fn put_runs(parse: &mut Parse, runs: &[u32]) {
    let mut put = Vec::with_capacity(runs.len());
    let mut distance = FIRST_DISTANCES[REPEATS - 1];
    for (sequence, &run) in parse.sequences.iter().zip(runs) {
        let mut left = run;
        while left > MOST_LITERALS {
            put.push(Sequence { literals: MOST_LITERALS as u16, len: 0, distance });
            left -= MOST_LITERALS;
        }
        put.push(Sequence { literals: left as u16, ..*sequence });
        distance = sequence.distance;
    }
    parse.sequences = put;
}

/// Puts all literals into their list.
pub(super) fn put_literals(parse: &mut Parse, block: &[u8]) {
    parse.literals.clear();
    let mut at = 0;
    for sequence in &parse.sequences {
        let literals = usize::from(sequence.literals);
        parse.literals.extend_from_slice(&block[at..at + literals]);
        at += literals + usize::from(sequence.len);
    }
    parse.literals.extend_from_slice(&block[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlz::hybrid::tokens::Tokens;
    use crate::rlz::matcher::Factor;

    #[test]
    fn what_repeats_is_not_searched_at_each_place() {
        // Prices of tokens, and such as make literals cheap, as a model does that has seen nothing else.
        let mut prices = Prices::of_tokens(&Speller::new(Tokens::usual().into()), 0);
        for literal in [8 * BIT, BIT] {
            prices.literals.iter_mut().for_each(|prices| prices.fill(literal));
            for period in [1, 3, 50] {
                for len in [16 << 10, 64 << 10, 1 << 20] {
                    let block: Vec<u8> = (0..len).map(|i| (i % period) as u8).collect();
                    let far = vec![Factor::default(); len];
                    let mut parser = Shortest::new(64);
                    let mut parse = Parse::default();
                    let text = Text { dictionary: &[], block: &block, far: &far };
                    parser.parse(text, &prices, &mut parse);
                    let told: usize =
                        parse.sequences.iter().map(|sequence| usize::from(sequence.len)).sum();
                    assert_eq!(told + parse.literals.len(), len);
                    assert!(parser.tried < 1000 + len / 16, "{} of {len}", parser.tried);
                    assert!(parse.sequences.len() < 20 + len / 4096, "{}", parse.sequences.len());
                }
            }
        }
    }
}
