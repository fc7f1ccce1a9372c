//! Cuts texts into words: the cheapest way through each, by what its words cost.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{FIRST, RUNS, SAME, Vocabulary};

/// Prices are in sixteenths of a bit.
pub(super) const BIT: u32 = 16;
/// So much more than its bits a word costs: it takes time to decode.
const TIME: u32 = BIT / 2;
/// Longer words are whole texts only.
pub(super) const DEEPEST: usize = 64;
/// Parsed at once.
const PIECE: usize = 1 << 16;
const NONE: u32 = u32::MAX;

/// Words by their bytes, one after the other. Nodes are in the order of their depth: those that are met most lie together.
struct Trie {
    nodes: Vec<Node>,
    /// The byte that leads to each node.
    bytes: Vec<u8>,
    /// Where the first byte of a word leads; 0 where there is no such word.
    first: [u32; 256],
}

#[derive(Clone, Copy)]
struct Node {
    /// The first one behind it, and how many there are: one for each byte that may follow.
    first: u32,
    count: u32,
    /// The word that ends here.
    word: u32,
}

impl Trie {
    fn new(vocabulary: &Vocabulary) -> Trie {
        let words = (0..vocabulary.len()).filter_map(|i| Some((vocabulary.word(i)?, i as u32)));
        let mut words: Vec<(&[u8], u32)> =
            words.filter(|(word, _)| word.len() <= DEEPEST).collect();
        words.sort_unstable();
        // Who wrote a file may have put one in twice.
        words.dedup_by_key(|(word, _)| *word);
        let mut trie = Trie { nodes: Vec::new(), bytes: vec![0], first: [0; 256] };
        // Of each node that is to come: its words, and how long they are up to there.
        let mut coming = VecDeque::from([(&words[..], 0)]);
        while let Some((mut words, depth)) = coming.pop_front() {
            let mut node = Node { first: trie.bytes.len() as u32, count: 0, word: NONE };
            if let Some((first, rest)) =
                words.split_first().filter(|((word, _), _)| word.len() == depth)
            {
                node.word = first.1;
                words = rest;
            }
            for some in words.chunk_by(|a, b| a.0[depth] == b.0[depth]) {
                trie.bytes.push(some[0].0[depth]);
                coming.push_back((some, depth + 1));
                node.count += 1;
            }
            trie.nodes.push(node);
        }
        let children = trie.bytes[1..].iter().take(trie.nodes[0].count as usize);
        for (i, &byte) in children.enumerate() {
            trie.first[usize::from(byte)] = i as u32 + 1;
        }
        trie
    }

    /// The node that a byte leads to.
    #[inline(always)]
    fn next(&self, node: &Node, byte: u8) -> Option<&Node> {
        let first = node.first as usize;
        let bytes = self.bytes.get(first..first + node.count as usize)?;
        // A call is more than to look at a few.
        let found = match bytes.len() {
            0 => None,
            1..=8 => bytes.iter().position(|&other| other == byte),
            _ => memchr::memchr(byte, bytes),
        };
        self.nodes.get(first + found?)
    }
}

/// Cuts texts into the words of a vocabulary.
pub(in crate::events) struct Parser {
    vocabulary: Arc<Vocabulary>,
    trie: Trie,
    /// Of all words, and of the numbers before them.
    prices: Vec<u32>,
    /// Words that are whole texts.
    whole: HashMap<Vec<u8>, u32>,
    /// There are none: all texts are stored as they are.
    is_stored: bool,
}

/// What a thread works with: from each place of a text to its end the price, and the first word.
#[derive(Default)]
pub(in crate::events) struct Ways(Vec<(u32, u32)>);

impl Parser {
    /// `counts`: how often each number was told.
    pub fn new(vocabulary: Vocabulary, counts: &[u32]) -> Parser {
        let total: f64 = counts.iter().map(|&count| f64::from(count)).sum::<f64>() + 1.0;
        // What was not told yet might be.
        let bits = |number| (total / f64::from(counts[number as usize]).max(0.3)).log2();
        Parser::of(Arc::new(vocabulary), bits)
    }

    /// By the bits that numbers take.
    pub fn of(vocabulary: Arc<Vocabulary>, bits: impl Fn(u32) -> f64) -> Parser {
        let numbers = 0..FIRST + vocabulary.len() as u32;
        let prices = numbers.map(|number| (bits(number) * f64::from(BIT)) as u32 + TIME).collect();
        let trie = Trie::new(&vocabulary);
        let long =
            (0..vocabulary.len()).filter_map(|i| Some((vocabulary.word(i)?.to_vec(), i as u32)));
        let whole = long.filter(|(word, _)| word.len() > DEEPEST).collect();
        let is_stored = vocabulary.len() == 0;
        Parser { vocabulary, trie, prices, whole, is_stored }
    }

    /// Cuts no text: each is stored as it is, in no more pieces than its length has bits.
    pub fn stored() -> Parser {
        Parser::of(Arc::default(), |_| 1.0)
    }

    /// One with the words that come only, in the order of how often: `counts` of all numbers; and their new numbers.
    pub fn refined(&self, counts: &[u32]) -> (Parser, Vec<u32>) {
        let (numbers, words) = counts.split_at(FIRST as usize);
        let mut left: Vec<usize> = (0..words.len()).filter(|&i| words[i] > 0).collect();
        left.sort_by_key(|&i| u32::MAX - words[i]);
        let mut number_of: Vec<u32> = (0..counts.len() as u32).collect();
        left.iter().zip(FIRST..).for_each(|(&i, number)| number_of[FIRST as usize + i] = number);
        let vocabulary = Vocabulary::new(left.iter().filter_map(|&i| self.vocabulary.word(i)));
        let counts: Vec<u32> =
            numbers.iter().copied().chain(left.iter().map(|&i| words[i])).collect();
        (Parser::new(vocabulary, &counts), number_of)
    }

    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The price of a word of the vocabulary.
    pub(super) fn price(&self, word: usize) -> u32 {
        self.prices[FIRST as usize + word]
    }

    /// Appends the words of a text behind another of its packet; returns their price.
    pub fn parse(&self, text: &[u8], before: &[u8], ways: &mut Ways, out: &mut Vec<u32>) -> u64 {
        if text.len() > DEEPEST
            && text != before
            && let Some(&word) = self.whole.get(text)
        {
            out.push(FIRST + word);
            return self.price(word as usize).into();
        }
        let (start, mut price) = (out.len(), 0);
        if !self.is_stored {
            for (i, piece) in text.chunks(PIECE).enumerate() {
                let before = before.get(i * PIECE..).unwrap_or_default();
                price += u64::from(self.piece(piece, before, NONE, ways));
                let mut at = 0;
                while at < piece.len() {
                    let word = ways.0[at].1;
                    out.push(word);
                    at += match word {
                        FIRST.. => self.word_len(word - FIRST),
                        SAME.. => (word - SAME) as usize,
                        _ => 1,
                    };
                }
            }
        }
        let stored = self.stored_price(text.len());
        if self.is_stored || stored < price {
            out.truncate(start);
            out.extend(runs(text.len()));
            return stored;
        }
        price
    }

    /// The price of so many bytes that are stored as they are.
    pub fn stored_price(&self, len: usize) -> u64 {
        let prices = runs(len).map(|run| u64::from(self.prices[run as usize]));
        prices.sum::<u64>() + len as u64 * u64::from(8 * BIT)
    }

    /// Bytes of a word of the vocabulary.
    pub fn word_len(&self, word: u32) -> usize {
        self.vocabulary.word(word as usize).map_or(1, <[u8]>::len)
    }

    /// The price of a word by others.
    pub(super) fn without(&self, word: usize, ways: &mut Ways) -> u32 {
        self.vocabulary.word(word).map_or(0, |bytes| self.piece(bytes, &[], word as u32, ways))
    }

    /// Finds the cheapest way from each place of a piece to its end, without one of the words.
    fn piece(&self, piece: &[u8], before: &[u8], but: u32, ways: &mut Ways) -> u32 {
        let Parser { trie, prices, .. } = self;
        let Ways(ways) = ways;
        let byte = prices[0] + 8 * BIT;
        ways.clear();
        ways.resize(piece.len() + 1, (0, 0));
        // How many bytes from here on are those of the text before at the same place.
        let mut run = 0;
        for at in (0..piece.len()).rev() {
            run = if before.get(at) == Some(&piece[at]) {
                (run + 1).min(FIRST - SAME - 1)
            } else {
                0
            };
            let mut best = (ways[at + 1].0.saturating_add(byte), 0);
            let first = trie.first[usize::from(piece[at])];
            let (mut node, mut end) = ((first > 0).then(|| &trie.nodes[first as usize]), at + 1);
            if run > 0 {
                let word = SAME + run;
                let price = ways[at + run as usize].0.saturating_add(prices[word as usize]);
                if price < best.0 {
                    best = (price, word);
                }
            }
            while let Some(here) = node {
                if here.word != NONE && here.word != but {
                    let price = ways[end].0.saturating_add(prices[(FIRST + here.word) as usize]);
                    if price < best.0 {
                        best = (price, FIRST + here.word);
                    }
                }
                let Some(&byte) = piece.get(end) else { break };
                node = trie.next(here, byte);
                end += 1;
            }
            ways[at] = best;
        }
        ways[0].0
    }
}

/// Runs of so many bytes, the longest first.
pub(super) fn runs(len: usize) -> impl Iterator<Item = u32> {
    let most = RUNS - 1;
    let full = std::iter::repeat_n(most, len >> most);
    full.chain((0..most).rev().filter(move |run| len >> run & 1 == 1))
}
