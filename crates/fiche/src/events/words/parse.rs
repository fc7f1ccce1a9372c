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

/// Words by their bytes, one after the other, as a double array (Aoe 1989): the node that a byte leads to is at the base of the one before it,
/// exclusive-or that byte, if it says that it is behind that one. The first is the root. What only one way leads on from has no nodes of its own, but is the
/// tail of the one before.
struct Trie {
    nodes: Vec<Node>,
    tails: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Node {
    base: u32,
    /// The node before.
    before: u32,
    /// The word that ends here, and its price; a price above all where none does.
    price: u16,
    word: u16,
    /// Where its tail begins, and above how long that is.
    tail: u32,
}

impl Node {
    const FREE: Node = Node { base: 0, before: u32::MAX, price: u16::MAX, word: 0, tail: 0 };
}

/// Bits of where a tail begins: all words have fewer bytes.
const TAIL: u32 = 24;

/// Nodes among which those behind one lie.
const BLOCK: usize = 256;
/// Blocks that are looked at for them.
const OPEN: usize = 8;

impl Trie {
    fn new(vocabulary: &Vocabulary, prices: &[u32]) -> Trie {
        let words = (0..vocabulary.len()).filter_map(|i| Some((vocabulary.word(i)?, i as u16)));
        let mut words: Vec<(&[u8], u16)> =
            words.filter(|(word, _)| word.len() <= DEEPEST).collect();
        words.sort_unstable();
        // Who wrote a file may have put one in twice.
        words.dedup_by_key(|(word, _)| *word);
        let mut places = Places { nodes: vec![Node::FREE; BLOCK], open: vec![(0, 1)] };
        let mut tails = Vec::new();
        // Of each node that is to come: its words, how long they are up to there, and where it is. Those that are met most lie together.
        let mut coming = VecDeque::from([(&words[..], 0, 0)]);
        while let Some((mut words, depth, at)) = coming.pop_front() {
            if let Some((first, rest)) =
                words.split_first().filter(|((word, _), _)| word.len() == depth)
            {
                let price = prices[(FIRST + u32::from(first.1)) as usize];
                places.nodes[at].price = price.min(u32::from(u16::MAX) - 1) as u16;
                places.nodes[at].word = first.1;
                words = rest;
            }
            let behind = || words.chunk_by(|a, b| a.0[depth] == b.0[depth]);
            let bytes: Vec<u8> = behind().map(|some| some[0].0[depth]).collect();
            if bytes.is_empty() {
                continue;
            }
            let base = places.find(&bytes);
            places.nodes[at].base = base as u32;
            for (some, &byte) in behind().zip(&bytes) {
                let place = base ^ usize::from(byte);
                // As far as all go the same way, and none ends.
                let (one, other) = (&some[0].0[depth + 1..], &some[some.len() - 1].0[depth + 1..]);
                let len = one.iter().zip(other).take_while(|(a, b)| a == b).count();
                places.nodes[place].before = at as u32;
                places.nodes[place].tail = tails.len() as u32 | (len as u32) << TAIL;
                tails.extend_from_slice(&one[..len]);
                coming.push_back((some, depth + 1 + len, place));
            }
        }
        Trie { nodes: places.nodes, tails }
    }
}

/// Nodes, and blocks that have room: where each begins, and how many are taken.
struct Places {
    nodes: Vec<Node>,
    open: Vec<(usize, usize)>,
}

impl Places {
    /// A base from which these bytes lead to nodes that are free; they are taken now.
    fn find(&mut self, bytes: &[u8]) -> usize {
        let Places { nodes, open } = self;
        let is_free = |place: usize| place > 0 && nodes[place].before == u32::MAX;
        let fits = |&base: &usize| bytes.iter().all(|&byte| is_free(base ^ usize::from(byte)));
        let tried = |&(start, taken): &(usize, usize)| {
            let has_room = taken + bytes.len() <= BLOCK;
            let mut bases = (start..start + BLOCK).map(|place| place ^ usize::from(bytes[0]));
            has_room.then(|| bases.find(fits)).flatten()
        };
        let found = open.iter().enumerate().find_map(|(i, block)| Some((i, tried(block)?)));
        let (i, base) = found.unwrap_or_else(|| {
            // The fullest is not looked at any more.
            if open.len() >= OPEN {
                let fullest = (0..open.len()).max_by_key(|&i| open[i].1).unwrap_or(0);
                open.remove(fullest);
            }
            open.push((nodes.len(), 0));
            nodes.resize(nodes.len() + BLOCK, Node::FREE);
            (open.len() - 1, nodes.len() - BLOCK)
        });
        open[i].1 += bytes.len();
        base
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
        let prices: Vec<u32> =
            numbers.map(|number| (bits(number) * f64::from(BIT)) as u32 + TIME).collect();
        let trie = Trie::new(&vocabulary, &prices);
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
        let Parser { trie: Trie { nodes, tails }, prices, .. } = self;
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
            if run > 0 {
                let word = SAME + run;
                let price = ways[at + run as usize].0.saturating_add(prices[word as usize]);
                if price < best.0 {
                    best = (price, word);
                }
            }
            let (mut here, mut base, mut end) = (0, nodes[0].base, at);
            while let Some(&byte) = piece.get(end) {
                let next = base ^ u32::from(byte);
                let node = nodes[next as usize];
                if node.before != here {
                    break;
                }
                end += 1;
                let len = (node.tail >> TAIL) as usize;
                if len > 0 {
                    let tail = (node.tail & ((1 << TAIL) - 1)) as usize;
                    if piece.get(end..end + len) != Some(&tails[tail..tail + len]) {
                        break;
                    }
                    end += len;
                }
                // Not a branch: whether a word ends here is hard to foretell.
                let price = ways[end].0.saturating_add(node.price.into());
                let is_better = price < best.0 && u32::from(node.word) != but;
                best = if is_better { (price, FIRST + u32::from(node.word)) } else { best };
                (here, base) = (next, node.base);
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
