//! The bytes of fast blocks: each stands for some literals and a match, whichever pairs are most useful.
//!
//! # Tokens
//!
//! The model of hybrid-fast:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 256 | literals | of each of the 256 tokens: how many literals it has |
//! | 256 | lengths | how long its match is |
//! | 64 | kinds | where that is copied from, two bits each, those of the first token the lowest |
//!
//! | kind | copied from |
//! |---|---|
//! | 0 | there is no match; its length is 0 |
//! | 1 | the distance of the match before; 1 before the first |
//! | 2 | the next offset, a distance |
//! | 3 | the next offset, into the dictionary |
//!
//! A match of the kinds 1 to 3 is not empty; a token of kind 0 has a literal.

use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::error::Result;
use crate::wire::{Put, Take};

pub(super) const TOKENS: usize = 256;
/// The most literals, and the longest match, of one token.
const MOST: usize = 255;
/// Literals before a match in the same token, at most: more are rare.
const MOST_BEFORE: usize = 31;

/// Where the match of a token is copied from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    #[default]
    None = 0,
    Again = 1,
    Near = 2,
    Far = 3,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::None, Kind::Again, Kind::Near, Kind::Far];
}

/// Some literals and a match behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Token {
    pub kind: Kind,
    pub literals: u8,
    pub len: u8,
}

impl Token {
    const fn new(literals: usize, kind: Kind, len: usize) -> Token {
        Token { kind, literals: literals as u8, len: len as u8 }
    }

    pub fn text(self) -> usize {
        usize::from(self.literals) + usize::from(self.len)
    }
}

/// What tokens add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub text: usize,
    pub literals: usize,
    /// Distances, and offsets into the dictionary.
    pub near: usize,
    pub far: usize,
}

/// The meaning of each byte.
#[derive(Clone)]
pub(crate) struct Tokens {
    tokens: [Token; TOKENS],
    /// What each adds, in lanes of 16 bits from the lowest on: text, literals, near, far.
    sums: [u64; TOKENS],
    /// What decodes them, for offsets into the dictionary of three and of four bytes; made when it
    /// is needed.
    entries: [OnceLock<Box<[Entry; TOKENS]>>; 2],
}

/// A token, and what is read for it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(4))]
pub(super) struct Entry {
    pub literals: u8,
    pub len: u8,
    /// Of its offset: `NEAR_BITS`, or more, or none.
    pub bits: u8,
    pub bytes: u8,
}

impl Entry {
    /// All four of them, the first the lowest.
    #[inline(always)]
    pub fn word(self) -> u32 {
        let byte = |byte: u8, i: u32| u32::from(byte) << (8 * i);
        byte(self.literals, 0) | byte(self.len, 1) | byte(self.bits, 2) | byte(self.bytes, 3)
    }
}

/// Bits of a distance. An offset into the dictionary has more.
pub(super) const NEAR_BITS: u8 = 16;

/// Says literals and matches with tokens, the basic ones among them.
pub(super) struct Speller {
    tokens: Arc<Tokens>,
    /// For so many literals without a match, and for more of the match before: how many tokens that
    /// takes, and the first of them.
    runs: [(u8, u8); MOST + 1],
    agains: [(u8, u8); MOST + 1],
    /// For each kind, literals and length the token with just those literals and the longest match
    /// that is not longer; `NONE` where there is none.
    fits: Vec<u16>,
}

const NONE: u16 = u16::MAX;

impl PartialEq for Tokens {
    fn eq(&self, other: &Tokens) -> bool {
        self.tokens == other.tokens
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tokens.fmt(f)
    }
}

/// With these anything can be said.
fn basic() -> impl Iterator<Item = Token> {
    let powers = [1, 2, 4, 8, 16, 32, 64, 128, MOST];
    let runs = powers.map(|literals| Token::new(literals, Kind::None, 0));
    let agains = powers.map(|len| Token::new(0, Kind::Again, len));
    let others = [Token::new(0, Kind::Near, 1), Token::new(0, Kind::Far, 1)];
    runs.into_iter().chain(agains).chain(others)
}

fn fit_index(kind: Kind, literals: usize, len: usize) -> usize {
    (kind as usize * (MOST_BEFORE + 1) + literals) * (MOST + 1) + len
}

impl Tokens {
    /// At most 256 of them.
    fn new(known: &[Token]) -> Tokens {
        let mut tokens = [Token::new(1, Kind::None, 0); TOKENS];
        tokens[..known.len()].copy_from_slice(known);
        let sums = tokens.map(|token| {
            let lane = |value: usize, lane: u32| (value as u64) << (16 * lane);
            let is = |kind| usize::from(token.kind == kind);
            lane(token.text(), 0)
                | lane(token.literals.into(), 1)
                | lane(is(Kind::Near), 2)
                | lane(is(Kind::Far), 3)
        });
        Tokens { tokens, sums, entries: Default::default() }
    }

    /// All of them, where offsets into the dictionary have so many bytes: three or four.
    pub(super) fn entries(&self, far_len: usize) -> &[Entry; TOKENS] {
        self.entries[far_len - 3].get_or_init(|| {
            let entry = |Token { kind, literals, len }| {
                let bytes = match kind {
                    Kind::None | Kind::Again => 0,
                    Kind::Near => NEAR_BITS / 8,
                    Kind::Far => far_len as u8,
                };
                Entry { literals, len, bits: 8 * bytes, bytes }
            };
            Box::new(self.tokens.map(entry))
        })
    }

    #[inline(always)]
    pub(super) fn get(&self, token: u8) -> Token {
        self.tokens[usize::from(token)]
    }

    /// Where nothing is known of the blocks.
    pub fn usual() -> Tokens {
        let mut known: Vec<Token> = basic().collect();
        for (kind, first, last) in [(Kind::Near, 4, 17), (Kind::Far, 5, 32), (Kind::Again, 2, 11)] {
            for literals in 0..4 {
                known.extend((first..=last).map(|len| Token::new(literals, kind, len)));
            }
        }
        known.dedup();
        known.truncate(TOKENS);
        Tokens::new(&known)
    }

    /// The tokens that say these pairs, each so often, in the fewest bytes.
    pub(super) fn of(counts: &Counts) -> Tokens {
        let mut pairs: Vec<(Token, u32)> = counts.0.iter().map(|(&t, &n)| (t, n)).collect();
        pairs.sort_unstable();
        let mut known: Vec<Token> = basic().collect();
        let speller = Speller::new(Arc::new(Tokens::new(&known)));
        let (runs, agains) = (speller.runs, speller.agains);
        let mut costs: Vec<u32> = pairs.iter().map(|&(t, _)| speller.cost_of(t)).collect();
        // What a pair costs that starts with literals, goes on with this token and then with more of
        // the same match.
        let with = |pair: Token, token: Token| {
            let literals = pair.literals.checked_sub(token.literals)?;
            let len = pair.len.checked_sub(token.len)?;
            let rest = runs[usize::from(literals)].0 + agains[usize::from(len)].0;
            (pair.kind == token.kind).then_some(u32::from(rest) + 1)
        };
        let gain = |token: Token, costs: &[u32]| {
            let gain = |(&(pair, count), &cost): (&(Token, u32), &u32)| {
                let saved = cost.saturating_sub(with(pair, token).unwrap_or(cost));
                u64::from(saved) * u64::from(count)
            };
            pairs.iter().zip(costs).map(gain).sum::<u64>()
        };
        // What a token gains becomes less as others are taken, never more: the best one is looked at
        // again until it stays the best.
        let mut candidates: Vec<(Token, u32)> = pairs.clone();
        candidates.retain(|(token, _)| token.kind != Kind::None);
        candidates.sort_by_key(|&(token, count)| (std::cmp::Reverse(count), token));
        candidates.truncate(CANDIDATES);
        let mut heap: BinaryHeap<(u64, Token)> =
            candidates.iter().map(|&(token, _)| (gain(token, &costs), token)).collect();
        while known.len() < TOKENS
            && let Some((_, token)) = heap.pop()
        {
            let now = gain(token, &costs);
            if heap.peek().is_some_and(|&(next, _)| next > now) {
                heap.push((now, token));
                continue;
            }
            if now == 0 {
                break;
            }
            known.push(token);
            for ((pair, _), cost) in pairs.iter().zip(&mut costs) {
                *cost = with(*pair, token).map_or(*cost, |with| with.min(*cost));
            }
        }
        Tokens::new(&known)
    }

    /// What some tokens add up to; up to 128 of them.
    #[inline(always)]
    pub(super) fn sum(&self, tokens: &[u8]) -> Sums {
        const { assert!(128 * 2 * MOST <= u16::MAX as usize) };
        debug_assert!(tokens.len() <= 128);
        let mut pairs = tokens.chunks_exact(2);
        let (mut a, mut b) = (0, 0);
        for pair in &mut pairs {
            a += self.sums[usize::from(pair[0])];
            b += self.sums[usize::from(pair[1])];
        }
        let rest = pairs.remainder().first().map_or(0, |&t| self.sums[usize::from(t)]);
        let sum = a + b + rest;
        let lane = |lane: u32| usize::from((sum >> (16 * lane)) as u16);
        Sums { text: lane(0), literals: lane(1), near: lane(2), far: lane(3) }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        self.tokens.iter().for_each(|token| out.put_u8(token.literals));
        self.tokens.iter().for_each(|token| out.put_u8(token.len));
        for four in self.tokens.chunks_exact(4) {
            out.put_u8(four.iter().rev().fold(0, |byte, token| byte << 2 | token.kind as u8));
        }
    }

    pub fn take(take: &mut Take<'_>) -> Result<Tokens> {
        let (literals, lengths) = (take.bytes(TOKENS)?, take.bytes(TOKENS)?);
        let kinds = take.bytes(TOKENS / 4)?;
        let mut tokens = [Token::default(); TOKENS];
        for (i, token) in tokens.iter_mut().enumerate() {
            let kind = Kind::ALL[usize::from(kinds[i / 4] >> (2 * (i % 4)) & 3)];
            *token = Token { kind, literals: literals[i], len: lengths[i] };
            if (kind == Kind::None) != (token.len == 0) || token.text() == 0 {
                return Err(take.corrupt());
            }
        }
        Ok(Tokens::new(&tokens))
    }
}

impl Speller {
    /// With tokens that were made here, not read.
    pub fn new(all: Arc<Tokens>) -> Speller {
        let tokens = all.tokens;
        // The fewest tokens of one sort that add up to a number.
        let fewest = |kind: Kind, of: fn(Token) -> u8| {
            let mut best = [(u8::MAX, 0); MOST + 1];
            best[0] = (0, 0);
            for sum in 1..=MOST {
                for (i, &token) in tokens.iter().enumerate() {
                    let step = usize::from(of(token));
                    if token.kind == kind && step == token.text() && step <= sum {
                        let count = best[sum - step].0.saturating_add(1);
                        if count < best[sum].0 {
                            best[sum] = (count, i as u8);
                        }
                    }
                }
            }
            best
        };
        let runs = fewest(Kind::None, |token| token.literals);
        let agains = fewest(Kind::Again, |token| token.len);
        let mut fits = vec![NONE; fit_index(Kind::Far, MOST_BEFORE, MOST) + 1];
        for (i, token) in tokens.iter().enumerate().rev() {
            if usize::from(token.literals) <= MOST_BEFORE {
                let literals = token.literals.into();
                fits[fit_index(token.kind, literals, token.len.into())] = i as u16;
            }
        }
        for kind in Kind::ALL {
            for literals in 0..=MOST_BEFORE {
                for len in 1..=MOST {
                    let at = fit_index(kind, literals, len);
                    if fits[at] == NONE {
                        fits[at] = fits[at - 1];
                    }
                }
            }
        }
        Speller { tokens: all, runs, agains, fits }
    }

    fn cost_of(&self, pair: Token) -> u32 {
        self.cost(pair.literals.into(), pair.kind, pair.len.into())
    }

    /// Bytes of tokens that literals and a match take.
    pub fn cost(&self, literals: usize, kind: Kind, len: usize) -> u32 {
        let mut cost = 0;
        self.spell(literals, kind, len, |_| cost += 1);
        cost
    }

    /// Says literals and a match; of an empty one the kind is `None`.
    pub fn spell(&self, literals: usize, kind: Kind, len: usize, mut put: impl FnMut(u8)) {
        let run = |literals: usize, put: &mut dyn FnMut(u8)| {
            let mut left = literals;
            while left > 0 {
                let token = self.runs[left.min(MOST)].1;
                put(token);
                left -= usize::from(self.tokens.get(token).literals);
            }
        };
        if kind == Kind::None {
            return run(literals, &mut put);
        }
        let first = len.min(MOST);
        let mut best = (u32::MAX, 0, 0);
        for before in (0..=literals.min(MOST_BEFORE)).rev() {
            let fit = self.fits[fit_index(kind, before, first)];
            let Some(token) = self.tokens.tokens.get(usize::from(fit)) else { continue };
            let rest = first - usize::from(token.len);
            let runs = literals - before;
            let runs = u32::from(self.runs[runs % MOST].0) + (runs / MOST) as u32;
            let cost = runs + u32::from(self.agains[rest].0);
            if cost < best.0 {
                best = (cost, before, fit as u8);
                if cost == 0 {
                    break;
                }
            }
        }
        let (_, before, token) = best;
        run(literals - before, &mut put);
        put(token);
        let mut left = len - usize::from(self.tokens.get(token).len);
        while left > 0 {
            let token = self.agains[left.min(MOST)].1;
            put(token);
            left -= usize::from(self.tokens.get(token).len);
        }
    }
}

/// Pairs that are looked at as tokens.
const CANDIDATES: usize = 1024;

/// How often pairs of literals and a match come, cut to what a token can say.
#[derive(Default)]
pub(super) struct Counts(HashMap<Token, u32>);

impl Counts {
    /// Adds what others counted.
    pub fn merge(&mut self, other: Counts) {
        other.0.into_iter().for_each(|(token, n)| *self.0.entry(token).or_default() += n);
    }

    pub fn add(&mut self, literals: usize, kind: Kind, len: usize) {
        if kind != Kind::None {
            let token = Token::new(literals.min(MOST_BEFORE), kind, len.min(MOST));
            *self.0.entry(token).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn some_tokens(random: &mut Random) -> Tokens {
        let mut counts = Counts::default();
        for _ in 0..2000 {
            let kind = Kind::ALL[random.below(4) as usize];
            let (most, longest) = (1 + random.below(40), 1 + random.below(400));
            counts.add(random.below(most) as usize, kind, 1 + random.below(longest) as usize);
        }
        Tokens::of(&counts)
    }

    #[test]
    fn whatever_is_said_adds_up() {
        let mut random = Random(5);
        for tokens in [Tokens::usual(), some_tokens(&mut random), Tokens::of(&Counts::default())] {
            let speller = Speller::new(Arc::new(tokens.clone()));
            for _ in 0..3000 {
                let kind = Kind::ALL[random.below(4) as usize];
                let (most, longest) = (1 << random.below(13), 1 << random.below(15));
                let (literals, len) = (random.below(most), 1 + random.below(longest));
                let (literals, len) = (literals as usize, len as usize);
                let len = if kind == Kind::None { 0 } else { len };
                let mut said = Vec::new();
                speller.spell(literals, kind, len, |token| said.push(token));
                let of = |&token: &u8| tokens.tokens[usize::from(token)];
                let first = said.iter().position(|t| of(t).kind != Kind::None);
                let first = first.unwrap_or(said.len());
                let mut sums = Sums::default();
                for (i, token) in said.iter().map(of).enumerate() {
                    // Literals, then the match and more of it.
                    assert!(i <= first || token.literals == 0 && token.kind == Kind::Again);
                    assert!(i != first || token.kind == kind);
                    sums.text += token.text();
                    sums.literals += usize::from(token.literals);
                    sums.near += usize::from(token.kind == Kind::Near);
                    sums.far += usize::from(token.kind == Kind::Far);
                }
                assert_eq!((sums.text, sums.literals), (literals + len, literals));
                let mut parts = Sums::default();
                for chunk in said.chunks(1 + random.below(128) as usize) {
                    let sum = tokens.sum(chunk);
                    parts.text += sum.text;
                    parts.literals += sum.literals;
                    parts.near += sum.near;
                    parts.far += sum.far;
                }
                assert_eq!(parts, sums);
                assert_eq!(speller.cost(literals, kind, len) as usize, said.len());
            }
        }
    }

    #[test]
    fn what_comes_often_is_one_token() {
        let mut counts = Counts::default();
        for (literals, len, times) in [(0, 37, 90), (3, 100, 80), (17, 9, 70), (0, 200, 1)] {
            (0..times).for_each(|_| counts.add(literals, Kind::Far, len));
        }
        let tokens = Speller::new(Arc::new(Tokens::of(&counts)));
        assert!(
            [(0, 37), (3, 100), (17, 9)].iter().all(|&(l, m)| tokens.cost(l, Kind::Far, m) == 1)
        );
        assert!(tokens.cost(0, Kind::Far, 38) == 2 && tokens.cost(1, Kind::Far, 37) == 2);
    }

    #[test]
    fn tokens_are_read_as_they_were_written_and_any_other_bytes_are_refused_or_tokens() {
        let mut random = Random(6);
        let tokens = some_tokens(&mut random);
        let mut stored = Vec::new();
        tokens.put(&mut stored);
        let read = |bytes: &[u8]| {
            let mut take = Take::new(bytes, "model", 0);
            let tokens = Tokens::take(&mut take).ok()?;
            take.end().ok().map(|()| tokens)
        };
        assert!(read(&stored) == Some(tokens));
        (0..stored.len()).for_each(|end| assert!(read(&stored[..end]).is_none(), "{end}"));
        let (mut refused, mut taken) = (0, 0);
        for _ in 0..2000 {
            let mut damaged = stored.clone();
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.below(256) as u8;
            match read(&damaged) {
                Some(tokens) => taken += usize::from(tokens.tokens.iter().all(|t| t.text() > 0)),
                None => refused += 1,
            }
        }
        assert!(refused > 100 && taken > 100 && refused + taken == 2000);
    }
}
