//! Chooses the sequences of a block in one go: at each place the match that saves most, unless a
//! place right behind it has one that saves more.

use super::codes::{
    LITERAL_CLASSES, LONGEST_MATCH, MOST_LITERALS, Source, group, length_class, literal_class,
};
use super::parse::{BIT, NEVER, Prices, put_literals, put_runs};
use super::{FIRST_DISTANCES, Parse, REPEATS, Sequence, Text};
use crate::rlz::coder::width;
use crate::rlz::matcher::common;
use crate::wire::load_u64;

/// Matches within the block are found by their first four bytes.
const LEAST: usize = 4;
const HASH_BITS: u32 = 13;
const NONE: u32 = u32::MAX;
/// How far back they reach: a power of two, and less than a distance may be.
const WINDOW: usize = 1 << 19;
/// A match as long is taken without looking further.
const ENOUGH: u32 = 64;
/// At each place a word is loaded.
const WORD: usize = 8;

/// A match, and what it saves, in the unit of prices; nothing at all where there is none.
#[derive(Clone, Copy, Default)]
struct Found {
    gain: i32,
    len: u32,
    distance: u32,
}

/// Parses blocks; one for each thread.
pub(super) struct Quick {
    /// Places with the same hash that are looked at.
    depth: u32,
    /// Places behind a match that are looked at for a better one.
    ahead: usize,
    /// Repeated distances that are looked at.
    repeats: usize,
    /// The last place of each hash, and before each place the one before it.
    heads: Vec<u32>,
    chain: Vec<u32>,
    /// Places before this one are in there.
    next: usize,
    runs: Vec<u32>,
}

#[inline(always)]
fn hash(word: u64) -> usize {
    ((word as u32).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

/// Where the parse stands.
struct State<'a> {
    text: Text<'a>,
    prices: &'a Prices,
    /// Of offsets into the dictionary.
    width: u32,
    /// Of places in the chain.
    mask: usize,
    history: [u32; REPEATS],
    /// The end of the last match.
    anchor: usize,
}

impl Quick {
    pub fn new(depth: u32, ahead: usize, repeats: usize) -> Quick {
        let (heads, chain, next, runs) = Default::default();
        Quick { depth, ahead, repeats, heads, chain, next, runs }
    }

    pub fn parse(&mut self, text: Text<'_>, prices: &Prices, parse: &mut Parse) {
        let Text { dictionary, block, .. } = text;
        self.heads.clear();
        self.heads.resize(1 << HASH_BITS, NONE);
        let window = block.len().next_power_of_two().min(WINDOW);
        self.chain.resize(window.max(self.chain.len()), NONE);
        self.next = 0;
        self.runs.clear();
        parse.sequences.clear();
        let (width, mask) = (width(dictionary.len()), window - 1);
        let mut state = State { text, prices, width, mask, history: FIRST_DISTANCES, anchor: 0 };
        let mut at = 0;
        let end = block.len().saturating_sub(WORD);
        while at < end {
            let mut best = self.find(&state, at);
            if best.len == 0 {
                at += 1;
                continue;
            }
            let mut ahead = 1;
            while ahead <= self.ahead && best.len < ENOUGH && at + ahead < end {
                let other = self.find(&state, at + ahead);
                if other.gain > best.gain {
                    (best, at, ahead) = (other, at + ahead, 1);
                } else {
                    ahead += 1;
                }
            }
            let Found { mut len, distance, .. } = best;
            // What stands before both may be the same, too.
            let before = behind(dictionary, block, at, distance).map_or(0, |(text, from)| {
                let most = (at - state.anchor).min(from).min((LONGEST_MATCH - len) as usize);
                let same = |k: &usize| text[from - 1 - k] == block[at - 1 - k];
                (0..most).take_while(same).count()
            });
            at -= before;
            len += before as u32;
            self.runs.push((at - state.anchor) as u32);
            parse.sequences.push(Sequence { literals: 0, len: len as u16, distance });
            let [_, b, c, d] = state.history;
            state.history = [b, c, d, distance];
            at += len as usize;
            state.anchor = at;
        }
        put_runs(parse, &self.runs);
        put_literals(parse, block);
    }

    /// The match at a place that saves most. Places come in order.
    #[inline(always)]
    fn find(&mut self, state: &State<'_>, at: usize) -> Found {
        let State { text: Text { dictionary, block, far }, prices, width, mask, .. } = *state;
        while self.next < at {
            let head = &mut self.heads[hash(load_u64(block, self.next))];
            self.chain[self.next & mask] = *head;
            *head = self.next as u32;
            self.next += 1;
        }
        let literals = literal_class(((at - state.anchor) as u32).min(MOST_LITERALS));
        let literal_bits = u32::from(LITERAL_CLASSES[literals].1);
        let mut best = Found::default();
        let mut offer = |len: usize, distance: u32, source: Source| {
            let len = (len as u32).min(LONGEST_MATCH);
            let command = prices.commands[source.class as usize * 16 + literals];
            let price = command
                + (literal_bits + source.bits) * BIT
                + prices.lengths[group(source.class)][length_class(len)];
            let gain = (len * prices.literal) as i32 - price as i32;
            if gain > best.gain && command < NEVER {
                best = Found { gain, len, distance };
            }
        };
        let rest = &block[at..];
        let word = load_u64(rest, 0);
        let mut repeated = 0;
        for k in 0..self.repeats {
            let distance = state.history[REPEATS - 1 - k];
            let Some((text, from)) = behind(dictionary, block, at, distance) else { continue };
            let text = &text[from..];
            if text.len() < WORD {
                continue;
            }
            let differ = load_u64(text, 0) ^ word;
            // Three bytes repay it.
            if differ as u32 & 0xff_ffff == 0 {
                let len = match differ {
                    0 => common(text, rest),
                    _ => differ.trailing_zeros() as usize / 8,
                };
                repeated = repeated.max(len);
                offer(len, distance, Source::repeat(k));
            }
        }
        let factor = far[at];
        let far_len = (factor.len as usize).min(rest.len());
        // A near match is cheaper: it may be a byte shorter.
        let mut longest = (LEAST - 1).max(repeated).max(far_len.saturating_sub(2));
        let mut place = self.heads[hash(word)];
        for _ in 0..self.depth {
            let from = place as usize;
            if place == NONE || at - from > mask || longest >= rest.len() {
                break;
            }
            if block[from + longest] == rest[longest] {
                let len = common(&block[from..], rest);
                if len > longest {
                    longest = len;
                    let distance = (at - from) as u32;
                    offer(len, distance, Source::distance(distance));
                }
            }
            place = self.chain[from & mask];
        }
        if far_len > longest {
            let distance = (dictionary.len() + at) as u32 - factor.offset;
            offer(far_len, distance, Source::dictionary(factor.offset, width));
        }
        best
    }
}

/// The text that is so far behind a place of the block, and where in it; `None` before the dictionary.
#[inline(always)]
fn behind<'a>(
    dictionary: &'a [u8],
    block: &'a [u8],
    at: usize,
    distance: u32,
) -> Option<(&'a [u8], usize)> {
    let from = (dictionary.len() + at).checked_sub(distance as usize)?;
    Some(match from.checked_sub(dictionary.len()) {
        None => (dictionary, from),
        Some(from) => (block, from),
    })
}
