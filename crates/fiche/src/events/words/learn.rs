//! Chooses the words of a vocabulary.

use std::collections::{HashMap, HashSet};

use super::parse::{BIT, DEEPEST, Parser, Ways};
use super::{FIRST, LONGEST, MOST_BYTES, MOST_WORDS, Vocabulary};

/// Words are joined so often, and may be twice as long each time.
const JOINED: usize = 10;
/// Afterwards what has become useless is left out so often.
const PRUNED: usize = 2;
/// Words that come in with a round at most.
const MORE: usize = 1 << 13;
/// Bits that a word takes in a model, and each byte of it.
const WORD: f64 = 14.0;
const BYTE: f64 = 5.0;
/// Texts of a sample that are behind one another, as if they were of a packet.
pub(in crate::events) const TOGETHER: usize = 16;

/// A word, and how often it comes.
type Counted = (Vec<u8>, u32);

/// Bytes, and texts that come more than once.
fn first_words(texts: &[&[u8]]) -> Vec<Counted> {
    let mut bytes = [0u32; 256];
    texts.iter().copied().flatten().for_each(|&byte| bytes[usize::from(byte)] += 1);
    let bytes = (0..=255u8).zip(bytes).map(|(byte, count)| (vec![byte], count));
    let mut known: HashMap<&[u8], u32> = HashMap::new();
    for &text in texts.iter().filter(|text| (2..=LONGEST).contains(&text.len())) {
        *known.entry(text).or_default() += 1;
    }
    let again = known.into_iter().filter(|&(_, count)| count > 1);
    let again = again.map(|(text, count)| (text.to_vec(), count));
    bytes.filter(|&(_, count)| count > 0).chain(again).collect()
}

/// Those that come most first, as many as fit; the same for any order that they were found in.
fn fitting(mut words: Vec<Counted>) -> Vec<Counted> {
    words.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    words.truncate(MOST_WORDS);
    let mut bytes = 0;
    words.retain(|(word, _)| {
        bytes += word.len();
        bytes <= MOST_BYTES
    });
    words
}

/// Words of texts, and how often each comes, alone and before another.
struct Counts {
    words: Vec<u32>,
    pairs: HashMap<(u32, u32), u32>,
}

impl Counts {
    fn new(parser: &Parser, texts: &[&[u8]], with_pairs: bool, ways: &mut Ways) -> Counts {
        let words = vec![0; FIRST as usize + parser.vocabulary().len()];
        let mut counts = Counts { words, pairs: HashMap::new() };
        let mut told = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            told.clear();
            let before = if i % TOGETHER > 0 { texts[i - 1] } else { &[] };
            parser.parse(text, before, ways, &mut told);
            told.iter().for_each(|&word| counts.words[word as usize] += 1);
            if with_pairs {
                for pair in told.windows(2).filter(|pair| pair[0] >= FIRST && pair[1] >= FIRST) {
                    *counts.pairs.entry((pair[0], pair[1])).or_default() += 1;
                }
            }
        }
        counts
    }

    fn of(&self, word: usize) -> u32 {
        self.words[FIRST as usize + word]
    }

    /// Pairs that are worth a word, and how often they come: those that save most first.
    fn joined(&self, words: &[Counted], part: f64) -> Vec<Counted> {
        let total: f64 = self.words.iter().map(|&count| f64::from(count)).sum();
        let mut joined: Vec<(f64, Vec<u8>, u32)> = Vec::new();
        for (&(a, b), &count) in &self.pairs {
            let (a, b) = ((a - FIRST) as usize, (b - FIRST) as usize);
            let (left, right) = (&words[a].0, &words[b].0);
            let len = left.len() + right.len();
            if count < 2 || len > DEEPEST {
                continue;
            }
            // By as many bits the two are dearer than one word that comes as often; and that is decoded in half the time.
            let apart = f64::from(self.of(a)) * f64::from(self.of(b));
            let saved = (f64::from(count) * total / apart).log2() + 1.0;
            let gain = f64::from(count - 1) * saved - price(len) * part;
            if gain > 0.0 {
                joined.push((gain, [&left[..], right].concat(), count));
            }
        }
        joined.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        joined.truncate(MORE);
        joined.into_iter().map(|(_, word, count)| (word, count)).collect()
    }
}

/// Bits that a word of so many bytes takes in a model.
fn price(len: usize) -> f64 {
    WORD + BYTE * len as f64
}

/// Chooses words for texts of which these are some: such a part of all bytes. Each [`TOGETHER`] of them were behind one another.
pub(in crate::events) fn learn(texts: &[&[u8]], part: f64) -> Parser {
    let mut ways = Ways::default();
    let mut runs = [0u32; FIRST as usize];
    let mut words = first_words(texts);
    let mut round = 0;
    loop {
        words = fitting(words);
        let vocabulary = Vocabulary::new(words.iter().map(|(word, _)| &word[..]));
        let counts = words.iter().map(|&(_, count)| count);
        let parser = Parser::new(vocabulary, &runs.into_iter().chain(counts).collect::<Vec<_>>());
        if round >= JOINED + PRUNED {
            return parser;
        }
        let counts = Counts::new(&parser, texts, round < JOINED, &mut ways);
        runs.copy_from_slice(&counts.words[..FIRST as usize]);
        let joined = counts.joined(&words, part);
        // A word stays that saves more than it takes; one time less, for some come again by chance.
        let mut at = 0;
        words.retain_mut(|(word, count)| {
            let i = at;
            at += 1;
            *count = counts.of(i);
            let mut saved = || {
                let bits = f64::from(parser.without(i, &mut ways)) - f64::from(parser.price(i));
                f64::from(*count - 1) * bits / f64::from(BIT)
            };
            *count > 0 && (word.len() == 1 || saved() > price(word.len()) * part)
        });
        let mut known: HashSet<Vec<u8>> = words.iter().map(|(word, _)| word.clone()).collect();
        let before = words.len();
        words.extend(joined.into_iter().filter(|(word, _)| known.insert(word.clone())));
        // Where hardly any are new, nothing more comes of it.
        let is_done = round < JOINED && (words.len() - before) * 50 < before;
        round = if is_done { JOINED } else { round + 1 };
    }
}
