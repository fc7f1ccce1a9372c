//! `hybrid`: a block copies out of the dictionary and out of itself, and is written with codes that
//! all blocks share.
//!
//! # Model
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | classes | kinds of blocks, each with codes of its own: 1 to 16 |
//! | | classes | each as follows |
//!
//! A class:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | | commands | the code of commands: lengths of 512 codewords |
//! | | lengths | the codes of match lengths: five times lengths of 32 codewords |
//! | varint | contexts | codes of literals: 1 to 4 |
//! | | literals | each of them: lengths of 256 codewords |
//! | 64 | map | for each byte the number of the code that the literal behind it has, 2 bits, those of the first byte the lowest; only where there is more than one code |
//!
//! # Stored bytes of a block
//!
//! A block is a list of *sequences*, each some literals and a match, and literals behind the last of
//! them.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | class | bits 0 to 3: the class of the model; bit 7: literals are stored as they are; the others 0 |
//! | varint | sequences | how many |
//! | varint | literals | how many, those behind the last sequence included |
//! | varint | size of commands | in bytes |
//! | varint | size of first literals | in bytes; missing if there are no literals or they are stored as they are |
//! | varint | size of other literals | in bytes; missing if there are fewer than 256, too |
//! | | commands | the command of each sequence, forward; the code of each match length, backward |
//! | | first literals | stored as they are, or coded: those of the first stream forward, those of the second one backward |
//! | | other literals | those of the third stream forward, of the fourth backward |
//! | | extra bits | forward, to the end of the block |
//!
//! *Forward* is a stream of bits, the first in the lowest bit of its first byte; *backward* one whose
//! bytes stand in reverse, its first bit in the lowest bit of the last byte. The two that share a
//! field fill it without a byte between them or behind; the bits that fill a byte are zero.
//!
//! A *command* is `16 * o + l`. `l` is the class of the number of literals, `o` says where the match
//! is copied from:
//!
//! | `l` | literals | extra bits |
//! |---|---|---|
//! | 0 to 7 | `l` | 0 |
//! | 8, 9, 10 | from 8, 16, 32 | 3, 4, 5 |
//! | 11 | from 64 | 13 |
//!
//! | `o` | copied from | extra bits |
//! |---|---|---|
//! | 0 to 3 | the distance of the sequence `o + 1` before; before the first four they are 1, 2, 3, 4 | 0 |
//! | 4 to 23 | a distance from `2 ^ (o - 4)` | `o - 4` |
//! | 24 | the dictionary, from 0 | `w - 7` |
//! | 25 to 31 | the dictionary, from `2 ^ (w + o - 32)` | `w + o - 32` |
//!
//! `w` is how many bits the last offset into the dictionary has, 8 at least. A distance is how far
//! back a match starts in what stands as if the dictionary were before the block: a copy out of
//! the dictionary has one, too. A match lies wholly in the dictionary or wholly in the block.
//!
//! The code of a match length depends on `o`: 0, 1 to 3, 4 to 9, 10 to 23, 24 to 31. Symbols of
//! it:
//!
//! | symbol | length | extra bits |
//! |---|---|---|
//! | 0 to 15 | from 2, each one more | 0 |
//! | 16, 17 | 18, 22 | 2 |
//! | 18, 19, 20 | 26, 34, 42 | 3 |
//! | 21 | 50 | 4 |
//! | 22, 23 | 66, 98 | 5 |
//! | 24 | 130 | 7 |
//! | 25 | 258 | 8 |
//! | 26 | 514 | 9 |
//! | 27 | 1026 | 14 |
//! | 28 | 0: there is no match; the distance is as if there were one | 0 |
//!
//! Extra bits of a sequence stand together: those of `o` first, then of the literals, then of the
//! length. Others commands, lengths and symbols do not occur.
//!
//! The `n` literals of a block are one list. If there are 256 or more they are cut into four streams,
//! `ceil(n / 4)` literals in each of the first three; otherwise into two, `ceil(n / 2)` in the first. The code
//! of a literal is that of the literal before it in its stream, of the first one that of the byte 0.

mod codes;
mod decode;
mod encode;
pub(super) mod fast;
mod kernel;
mod near;
mod origin;
mod parse;
pub(in crate::rlz) mod point;
mod quick;
mod tokens;
mod train;

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::Result;
use crate::rlz::Dictionary;
use crate::rlz::index::Index;
use crate::rlz::matcher::{Factor, Matcher};
pub(crate) use codes::Model;
#[cfg(feature = "testing")]
pub(super) use decode::decode_safely;
pub(super) use decode::{Room, block_len, decode, is_piece};
use encode::Encoder;
use parse::{Prices, Shortest};
use quick::Quick;
use tokens::Speller;
pub(crate) use tokens::Tokens;
pub(super) use train::{default_model, train, train_tokens};

/// From the fastest to the smallest.
pub(super) const LEVELS: RangeInclusive<i32> = 1..=9;
pub(super) const DEFAULT_LEVEL: i32 = 5;
/// Those that write tokens.
pub(super) const FAST_LEVELS: RangeInclusive<i32> = 1..=4;

/// What a level does.
struct Level {
    /// The longest match in the dictionary is found at each place of a block; otherwise a long one at some.
    is_exact: bool,
    parser: Parser,
    /// How often a block is parsed at most: again, when another class turns out to suit it.
    looks: usize,
}

impl Level {
    fn of(level: i32) -> Level {
        let quick = |depth, ahead, repeats| Parser::Quick(Quick::new(depth, ahead, repeats));
        let shortest = |depth| Parser::Shortest(Shortest::new(depth).into());
        let (is_exact, parser, looks) = match level {
            ..=1 => (false, quick(8, 1, 1), 1),
            2 => (false, quick(16, 2, 1), 1),
            3 => (false, shortest(16), 1),
            4 => (true, shortest(64), 1),
            5 => (false, quick(8, 1, 2), 1),
            6 => (false, quick(16, 2, REPEATS), 1),
            7 => (false, shortest(16), 1),
            8 => (true, shortest(16), 1),
            9.. => (true, shortest(64), 2),
        };
        Level { is_exact, parser, looks }
    }
}

/// How much text codes are learned from at most, in bytes: twice as much where it is parsed fast.
pub(super) fn sample_len(level: i32) -> usize {
    if is_quick(level) { 6 << 20 } else { 3 << 20 }
}

/// True of levels that parse a block fast.
pub(super) fn is_quick(level: i32) -> bool {
    matches!(Level::of(level).parser, Parser::Quick(_))
}

/// A match and the literals before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sequence {
    literals: u16,
    len: u16,
    /// How far back, as if the dictionary stood before the block.
    distance: u32,
}

/// What a block is made of: sequences, and literals behind them.
#[derive(Clone, Debug, Default)]
struct Parse {
    sequences: Vec<Sequence>,
    /// All literals, those behind the last sequence included.
    literals: Vec<u8>,
}

/// Distances that the first sequences find behind them; the last one is the nearest.
const FIRST_DISTANCES: [u32; REPEATS] = [4, 3, 2, 1];
const REPEATS: usize = 4;

/// What finds matches in the dictionary.
pub(crate) enum Finder {
    Exact(Matcher),
    Quick(Index),
}

impl Finder {
    pub fn new(dictionary: Arc<Dictionary>, level: i32) -> Result<Finder> {
        Ok(match Level::of(level).is_exact {
            true => Finder::Exact(Matcher::new(dictionary)?),
            false => Finder::Quick(Index::new(dictionary)?),
        })
    }

    /// Bytes that it takes beside the dictionary.
    pub fn memory_for(len: u64, level: i32) -> u64 {
        let is_exact = Level::of(level).is_exact;
        if is_exact { Matcher::memory_for(len) } else { Index::memory_for(len) }
    }

    pub fn text(&self) -> &[u8] {
        match self {
            Finder::Exact(matcher) => matcher.text(),
            Finder::Quick(index) => index.text(),
        }
    }

    /// A match at each place of a block, where one was found.
    fn find(&self, block: &[u8], found: &mut Vec<Factor>) {
        match self {
            Finder::Exact(matcher) => matcher.factor_everywhere(block, found),
            Finder::Quick(index) => index.find_along(block, found),
        }
    }
}

/// What chooses the sequences of blocks; one for each thread.
enum Parser {
    Quick(Quick),
    Shortest(Box<Shortest>),
}

impl Parser {
    /// The sequences of a block, with a match in the dictionary at each place.
    fn parse(&mut self, text: Text<'_>, prices: &Prices, parse: &mut Parse) {
        match self {
            Parser::Quick(quick) => quick.parse(text, prices, parse),
            Parser::Shortest(shortest) => shortest.parse(text, prices, parse),
        }
    }
}

/// What is parsed.
#[derive(Clone, Copy)]
struct Text<'a> {
    dictionary: &'a [u8],
    block: &'a [u8],
    /// A match in the dictionary at each place of the block; of no length where none is known.
    far: &'a [Factor],
}

/// Packs blocks; one for each thread.
pub(super) struct Packer {
    writer: Writer,
    far: Vec<Factor>,
    parser: Parser,
    parse: Parse,
}

/// What writes the sequences that were chosen.
enum Writer {
    Coded { encoder: Encoder, prices: Vec<Prices>, looks: usize },
    Tokens { sink: fast::Sink, speller: Box<Speller>, prices: Box<Prices> },
}

impl Packer {
    /// Blocks with codes of a model.
    pub fn new(model: &Model, dictionary_len: usize, level: i32) -> Packer {
        let Level { parser, looks, .. } = Level::of(level);
        let prices = model.classes.iter().map(|class| Prices::of(class, dictionary_len)).collect();
        let encoder = Encoder::new(model, dictionary_len);
        let (far, parse) = Default::default();
        Packer { writer: Writer::Coded { encoder, prices, looks }, far, parser, parse }
    }

    /// Fast blocks, with tokens that were made here.
    pub fn fast(tokens: Arc<Tokens>, dictionary_len: usize, level: i32) -> Packer {
        let Level { parser, .. } = Level::of(level);
        let speller = Box::new(Speller::new(tokens));
        let prices = Prices::of_tokens(&speller, dictionary_len).into();
        let (sink, far, parse) = Default::default();
        Packer { writer: Writer::Tokens { sink, speller, prices }, far, parser, parse }
    }

    /// Appends the stored bytes of a block. False when it cannot be coded.
    pub fn pack(&mut self, finder: &Finder, block: &[u8], out: &mut Vec<u8>) -> bool {
        let Packer { writer, far, parser, parse } = self;
        finder.find(block, far);
        let text = Text { dictionary: finder.text(), block, far };
        match writer {
            Writer::Tokens { sink, speller, prices } => {
                parser.parse(text, prices, parse);
                sink.encode(speller, text.dictionary.len(), parse, out)
            }
            Writer::Coded { encoder, prices, looks } => {
                let mut class = guess(text, parser, prices, encoder, parse);
                for _ in 0..*looks {
                    parser.parse(text, &prices[class], parse);
                    let Some((_, best)) = encoder.best(parse, class) else { return false };
                    if best == class {
                        break;
                    }
                    class = best;
                }
                encoder.encode(parse, class, out)
            }
        }
    }
}

/// The class that suits the start of a block.
fn guess(
    text: Text<'_>,
    parser: &mut Parser,
    prices: &[Prices],
    encoder: &mut Encoder,
    parse: &mut Parse,
) -> usize {
    const START: usize = 2048;
    if prices.len() < 2 {
        return 0;
    }
    let len = START.min(text.block.len() / 4);
    let start = Text { block: &text.block[..len], far: &text.far[..len], ..text };
    parser.parse(start, &prices[0], parse);
    encoder.best(parse, 0).map_or(0, |(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn each_level_makes_blocks_no_larger_than_the_one_below() {
        let mut random = Random(31);
        let known = random.text(60_000);
        let dictionary = Arc::new(Dictionary::new(known.clone()).unwrap());
        // Two kinds of blocks: text that is known in part, and numbers.
        let block = |i: usize| -> Vec<u8> {
            let mut block = Vec::new();
            while block.len() < 8192 {
                if i % 4 == 3 {
                    block.extend_from_slice(format!("{:08x};", random.below(5000)).as_bytes());
                } else {
                    let from = random.below(known.len() as u64 - 60) as usize;
                    block.extend_from_slice(&known[from..][..random.below(60) as usize]);
                    block.extend(random.text(12));
                }
            }
            block
        };
        let blocks: Vec<Vec<u8>> = (0..48).map(block).collect();
        let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let stored = LEVELS.map(|level| {
            let finder = Finder::new(dictionary.clone(), level).unwrap();
            let len = dictionary.len();
            let mut packer = match FAST_LEVELS.contains(&level) {
                true => Packer::fast(train_tokens(&finder, level, &blocks, 2), len, level),
                false => Packer::new(&train(&finder, level, &blocks, 1.0, 2), len, level),
            };
            let mut out = Vec::new();
            blocks.iter().for_each(|block| assert!(packer.pack(&finder, block, &mut out)));
            out.len()
        });
        let stored: Vec<usize> = stored.collect();
        assert!(stored.windows(2).all(|two| two[1] <= two[0] + two[0] / 200), "{stored:?}");
        assert!(stored[8] * 100 < stored[4] * 97 && stored[4] < stored[3], "{stored:?}");
    }
}
