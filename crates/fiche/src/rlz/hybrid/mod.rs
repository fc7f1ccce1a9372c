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
mod kernel;
mod near;
mod parse;
mod train;

pub(crate) use codes::Model;
use std::sync::Arc;

use crate::rlz::matcher::{Factor, Matcher};
pub(super) use decode::{Room, block_len, decode};
use encode::Encoder;
use parse::{Parser, Prices};
pub(super) use train::{default_model, train};

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

/// Packs blocks; one for each thread.
pub(super) struct Packer {
    encoder: Encoder,
    prices: Vec<Prices>,
    /// The longest match in the dictionary at each place of a block.
    far: Vec<Factor>,
    parser: Parser,
    parse: Parse,
}

impl Packer {
    pub fn new(model: Arc<Model>, dictionary_len: usize) -> Packer {
        let prices = model.classes.iter().map(|class| Prices::of(class, dictionary_len)).collect();
        Packer {
            encoder: Encoder::new(model, dictionary_len),
            prices,
            far: Vec::new(),
            parser: Parser::default(),
            parse: Parse::default(),
        }
    }

    /// Appends the stored bytes of a block. False when it cannot be coded.
    pub fn pack(&mut self, matcher: &Matcher, block: &[u8], out: &mut Vec<u8>) -> bool {
        matcher.factor_everywhere(block, &mut self.far);
        let mut class = 0;
        for _ in 0..2 {
            let prices = &self.prices[class];
            self.parser.parse(matcher.text(), block, &self.far, prices, &mut self.parse);
            let best = self.encoder.best(&self.parse);
            let Some(best) = best else { return false };
            if best == class {
                break;
            }
            class = best;
        }
        self.encoder.encode(&self.parse, out)
    }
}
