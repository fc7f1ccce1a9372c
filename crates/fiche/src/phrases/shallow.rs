//! Standard deflate whose chains of copies are bounded: any decoder reads it, and a few bytes of it are extracted in
//! fewer steps.

use crate::codec::deflate::WINDOW;
use crate::error::{Error, Result};
use crate::model::{BitSink, code_lengths};
use crate::phrases::layout::MOST;
use crate::phrases::parse::{Match, Rules, parse};
use crate::phrases::{Coding, decodes_to};

/// Literals and copies of a block: its codes are made for those.
const BLOCK: usize = 16 << 10;
/// The longest codes, of symbols and distances, and of the lengths of those.
const LIMITS: (u32, u32) = (15, 7);
const END: usize = 256;

/// A deflate stream (RFC 1951) of the content, in which no byte is more than `depth` copies away from its literal;
/// with `u32::MAX` the chains are as they come, which is short, as copies are made from where they lead to literals
/// soonest. Matches of three bytes are not made.
///
/// Some 2 MB/s, and 50 bytes of memory for each of the content.
///
/// # Errors
/// As of [`compress`](super::compress).
pub fn deflate(content: &[u8], depth: u32) -> Result<Vec<u8>> {
    if content.len() > MOST {
        let (need, allowed) = (content.len() as u64, MOST as u64);
        return Err(Error::Limit { what: "content of a unit", need, allowed });
    }
    // Prices for a first parse; those of the second are what the first one's codes cost.
    let mut rules = Rules { window: WINDOW, lens: (4, 258), depth, tries: 100, price: (52, 72, 8) };
    let first = parse(content, &rules);
    rules.price.0 = literal_price(content, &first);
    let matches = parse(content, &rules);
    let mut sink = BitSink::default();
    let mut tokens = tokens(content, &matches).peekable();
    loop {
        let block: Vec<Token> = tokens.by_ref().take(BLOCK).collect();
        let is_last = tokens.peek().is_none();
        put_block(&block, is_last, &mut sink);
        if is_last {
            break;
        }
    }
    let stored = sink.finish().to_vec();
    decodes_to(Coding::Deflate, &stored, content)?;
    Ok(stored)
}

#[derive(Clone, Copy)]
enum Token {
    Literal(u8),
    Copy { len: u32, distance: u32 },
}

fn tokens(content: &[u8], matches: &[Match]) -> impl Iterator<Item = Token> {
    let mut matches = matches.iter().peekable();
    let mut at = 0;
    std::iter::from_fn(move || {
        if let Some(m) = matches.next_if(|m| m.at as usize == at) {
            at += m.len as usize;
            return Some(Token::Copy { len: m.len, distance: m.at - m.source });
        }
        let byte = *content.get(at)?;
        at += 1;
        Some(Token::Literal(byte))
    })
}

/// Eighths of a bit of a literal, by how often each is there.
fn literal_price(content: &[u8], matches: &[Match]) -> u32 {
    let mut counts = [0u32; 256];
    for token in tokens(content, matches) {
        if let Token::Literal(byte) = token {
            counts[usize::from(byte)] += 1;
        }
    }
    let total = f64::from(counts.iter().sum::<u32>().max(1));
    let bits: f64 = counts
        .iter()
        .filter(|&&n| n > 0)
        .map(|&n| f64::from(n))
        .map(|n| n * (total / n).log2())
        .sum();
    // Beside the share of symbols that are literals.
    ((bits / total + 0.5) * 8.0).clamp(16.0, 72.0) as u32
}

/// The symbol of a length or distance, and its extra bits: value and how many.
fn length_symbol(len: u32) -> (usize, u32, u32) {
    if len == 258 {
        return (285, 0, 0);
    }
    let rest = len - 3;
    if rest < 8 {
        return (257 + rest as usize, 0, 0);
    }
    let extra = rest.ilog2() - 2;
    (257 + (4 * extra + (rest >> extra)) as usize, rest & ((1 << extra) - 1), extra)
}

fn distance_symbol(distance: u32) -> (usize, u32, u32) {
    let rest = distance - 1;
    if rest < 4 {
        return (rest as usize, 0, 0);
    }
    let extra = rest.ilog2() - 1;
    ((2 * extra + (rest >> extra)) as usize, rest & ((1 << extra) - 1), extra)
}

/// The canonical code of these lengths, each codeword with its first bit lowest.
fn codewords(lens: &[u8]) -> Vec<u32> {
    let mut next = [0u32; 17];
    for len in 1..=15 {
        let count = lens.iter().filter(|&&l| usize::from(l) == len).count() as u32;
        next[len + 1] = (next[len] + count) << 1;
    }
    let word = |&len: &u8| {
        let len = usize::from(len);
        let word = next[len];
        next[len] += 1;
        if len == 0 { 0 } else { word.reverse_bits() >> (32 - len) }
    };
    lens.iter().map(word).collect()
}

/// Symbols of the code lengths (section 3.2.7): each with its extra bits.
fn runs(lens: &[u8]) -> Vec<(usize, u32, u32)> {
    let mut out = Vec::new();
    for run in lens.chunk_by(|a, b| a == b) {
        let (len, mut left) = (run[0], run.len());
        if len > 0 {
            out.push((usize::from(len), 0, 0));
            left -= 1;
        }
        while left >= 3 {
            let (symbol, most, least, bits) = match len {
                0 if left >= 11 => (18, 138, 11, 7),
                0 => (17, 10, 3, 3),
                _ => (16, 6, 3, 2),
            };
            let now = left.min(most);
            out.push((symbol, (now - least) as u32, bits));
            left -= now;
        }
        out.extend(std::iter::repeat_n((usize::from(len), 0, 0), left));
    }
    out
}

fn put_block(tokens: &[Token], is_last: bool, sink: &mut BitSink) {
    let (mut symbols, mut distances) = (vec![0u32; 286], vec![0u32; 30]);
    symbols[END] = 1;
    for &token in tokens {
        match token {
            Token::Literal(byte) => symbols[usize::from(byte)] += 1,
            Token::Copy { len, distance } => {
                symbols[length_symbol(len).0] += 1;
                distances[distance_symbol(distance).0] += 1;
            }
        }
    }
    let lens = [code_lengths(&symbols, LIMITS.0), code_lengths(&distances, LIMITS.0)];
    let used = |lens: &[u8], least: usize| {
        lens.iter().rposition(|&len| len > 0).map_or(least, |last| least.max(last + 1))
    };
    let counts = [used(&lens[0], 257), used(&lens[1], 1)];
    let all: Vec<u8> = [&lens[0][..counts[0]], &lens[1][..counts[1]]].concat();
    let runs = runs(&all);
    let mut run_counts = vec![0u32; 19];
    runs.iter().for_each(|run| run_counts[run.0] += 1);
    let run_lens = code_lengths(&run_counts, LIMITS.1);
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let shown = ORDER.iter().rposition(|&i| run_lens[i] > 0).map_or(4, |last| (last + 1).max(4));
    sink.put(u32::from(is_last) | 2 << 1, 3);
    sink.put(counts[0] as u32 - 257, 5);
    sink.put(counts[1] as u32 - 1, 5);
    sink.put(shown as u32 - 4, 4);
    ORDER[..shown].iter().for_each(|&i| sink.put(run_lens[i].into(), 3));
    let words = codewords(&run_lens);
    for (symbol, extra, bits) in runs {
        sink.put(words[symbol], run_lens[symbol].into());
        sink.put(extra, bits);
    }
    let words = [codewords(&lens[0]), codewords(&lens[1])];
    let mut put = |code: usize, (symbol, extra, bits): (usize, u32, u32)| {
        sink.put(words[code][symbol], lens[code][symbol].into());
        sink.put(extra, bits);
    };
    for &token in tokens {
        match token {
            Token::Literal(byte) => put(0, (byte.into(), 0, 0)),
            Token::Copy { len, distance } => {
                put(0, length_symbol(len));
                put(1, distance_symbol(distance));
            }
        }
    }
    put(0, (END, 0, 0));
}
