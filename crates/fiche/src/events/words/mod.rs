//! Texts as words of a vocabulary that a model has.
//!
//! A text of a few bytes has no room to say what it repeats, and what is before it in a packet is little; but texts of a column are made of
//! the same pieces again and again. So pieces are chosen once, on a sample, and each text becomes some numbers, which are then told as
//! numbers of any other column are: with tables, contexts and bins. Words may be anything from a byte to a whole text. (Gage, 1994, joins pairs of
//! bytes; FSST, Boncz, Neumann and Leis, 2020, symbols of up to 8 bytes, in rounds: so is it done here, with prices by how often a word comes.)
//!
//! # Words
//!
//! Each text is some numbers of 4 bytes, which stand for its bytes from the first on; an empty text is none:
//!
//! | number | bytes |
//! |---|---|
//! | 0 to 24 | two to so many, the next of those stored between the symbols and the bits of the packet |
//! | 25 | as the first of a text, of which all others are up to 24: what these stand for is not the text, but its length as 4 bytes, and the text as a frame of zstd as under "Codecs" |
//! | 32 to 255 | so many less 31, those that the text before it in the column and the packet has at this place, so far from its first byte: it has as many there |
//! | from 256 on | the word of the vocabulary, the first of which has 256; others are refused, as 26 to 31 are |
//!
//! # Vocabulary
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | words | how many, up to 2^16 |
//! | for each | length | varint: bytes of the word, 1 to 2^16 |
//! | | bytes | of all words; 2^22 at most |

mod forms;
mod learn;
mod parse;

use crate::error::Result;
use crate::wire::{Put, Take};

pub(super) use forms::{Formed, Forms};
use learn::{TOGETHER, learn};
pub(super) use parse::Parser;
use parse::Ways;

/// The number of the first word of a vocabulary.
pub(super) const FIRST: u32 = 256;
/// Two to less than this are the bytes that lie in a packet as they are.
pub(super) const RUNS: u32 = 25;
/// The first of a text that is compressed by itself.
pub(super) const FRAME: u32 = 25;
/// The number before that of one byte of the text before.
pub(super) const SAME: u32 = 31;
/// Words of a vocabulary at most, bytes of one, and of all.
const MOST_WORDS: usize = 1 << 16;
const LONGEST: usize = 1 << 16;
const MOST_BYTES: usize = 1 << 22;

/// Pieces that texts are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<u32>,
}

/// What a number of a text stands for.
pub(super) enum Word<'a> {
    Bytes(&'a [u8]),
    /// So many bytes that lie in the packet.
    Stored(usize),
    /// The whole text is a frame.
    Frame,
    /// So many of the text before.
    Same(usize),
}

/// Bytes of a number that lie in the packet.
#[inline(always)]
pub(super) fn stored(number: u64) -> usize {
    if number < RUNS.into() { 1 << number } else { 0 }
}

/// Whether a number is of bytes of the text before.
#[inline(always)]
pub(super) fn is_same(number: u64) -> bool {
    (u64::from(SAME) + 1..u64::from(FIRST)).contains(&number)
}

impl Vocabulary {
    fn new<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for word in words {
            vocabulary.bytes.extend_from_slice(word);
            vocabulary.ends.push(vocabulary.bytes.len() as u32);
        }
        vocabulary
    }

    /// Bytes of memory that it takes, about.
    pub fn size(&self) -> usize {
        self.bytes.len() + 4 * self.ends.len()
    }

    /// How many words it has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn word(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        self.bytes.get(start..end)
    }

    /// What a number stands for; `None` for one without a meaning.
    #[inline(always)]
    pub fn get(&self, number: u64) -> Option<Word<'_>> {
        match number.checked_sub(FIRST.into()) {
            Some(i) => self.word(usize::try_from(i).ok()?).map(Word::Bytes),
            None if number < RUNS.into() => Some(Word::Stored(1 << number)),
            None if number == u64::from(FRAME) => Some(Word::Frame),
            None => {
                number.checked_sub(SAME.into()).filter(|&n| n > 0).map(|n| Word::Same(n as usize))
            }
        }
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.len() as u64);
        (0..self.len()).for_each(|i| out.put_varint(self.word(i).map_or(0, <[u8]>::len) as u64));
        out.put(&self.bytes);
    }

    pub fn take(take: &mut Take<'_>) -> Result<Vocabulary> {
        let count = take.count(MOST_WORDS.min(take.remaining()) as u64)?;
        let mut ends = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let len = take.count(LONGEST as u64)?;
            end += len;
            if len == 0 || end > MOST_BYTES {
                return Err(take.corrupt());
            }
            ends.push(end as u32);
        }
        Ok(Vocabulary { bytes: take.bytes(end)?.to_vec(), ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Puts a text together, number by number; what is stored of it is taken from the text itself.
    fn expanded(words: &[u32], vocabulary: &Vocabulary, before: &[u8], text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for &word in words {
            let at = out.len();
            match vocabulary.get(word.into()).unwrap() {
                Word::Bytes(bytes) => out.extend_from_slice(bytes),
                Word::Stored(len) => out.extend_from_slice(&text[at..at + len]),
                Word::Same(len) => out.extend_from_slice(&before[at..at + len]),
                Word::Frame => panic!("no frame is made here"),
            }
        }
        out
    }

    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let some = proptest::collection::vec(0usize..6, 0..12).prop_map(|all| {
            let words: [&[u8]; 6] = [b"GET ", b"/index", b"a", b"\xff\0", b"404 ", b"user-17"];
            all.into_iter().flat_map(|i| words[i]).copied().collect()
        });
        prop_oneof![
            4 => some,
            1 => proptest::collection::vec(any::<u8>(), 0..80),
            1 => Just(b"abcab".repeat(40)),
            1 => Just(vec![9; PIECES]),
        ]
    }

    /// More than is parsed at once.
    const PIECES: usize = (1 << 16) + 100;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn words_of_a_text_are_the_text(texts in proptest::collection::vec(any_text(), 1..60)) {
            let known: Vec<&[u8]> = texts.iter().step_by(2).map(|text| &text[..]).collect();
            let parser = learn(&known, 0.5);
            let mut counts = vec![0; FIRST as usize + parser.vocabulary().len()];
            let mut ways = Ways::default();
            let mut told = Vec::new();
            let mut before: &[u8] = &[];
            let (refined, number_of) = {
                for text in &texts {
                    told.clear();
                    parser.parse(text, before, &mut ways, &mut told);
                    prop_assert!(&expanded(&told, parser.vocabulary(), before, text) == text);
                    prop_assert!(told.len() <= 2 * text.len());
                    told.iter().for_each(|&word| counts[word as usize] += 1);
                    before = text;
                }
                parser.refined(&counts)
            };
            // The same words by their new numbers, and each of them is one that came.
            before = &[];
            for text in &texts {
                told.clear();
                parser.parse(text, before, &mut ways, &mut told);
                told.iter_mut().for_each(|word| *word = number_of[*word as usize]);
                prop_assert!(&expanded(&told, refined.vocabulary(), before, text) == text);
                before = text;
            }
            let come = counts[FIRST as usize..].iter().filter(|&&count| count > 0).count();
            prop_assert_eq!(refined.vocabulary().len(), come);
            let mut bytes = Vec::new();
            refined.vocabulary().put(&mut bytes);
            let mut take = Take::new(&bytes, "test", 0);
            prop_assert_eq!(&Vocabulary::take(&mut take).unwrap(), &**refined.vocabulary());
            take.end().unwrap();
        }

        #[test]
        fn no_way_is_cheaper_than_the_one_that_is_found(
            words in proptest::collection::hash_set(proptest::collection::vec(0u8..4, 1..20), 1..300),
            counts in proptest::collection::vec(1u32..1000, 300),
            texts in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..60), 1..20),
        ) {
            let words: Vec<Vec<u8>> = words.into_iter().collect();
            let counts: Vec<u32> =
                [1; FIRST as usize].into_iter().chain(counts[..words.len()].iter().copied()).collect();
            let parser = Parser::new(Vocabulary::new(words.iter().map(|word| &word[..])), &counts);
            for text in &texts {
                // From each place on, every word that is there tried.
                let mut cheapest = vec![u64::MAX; text.len()];
                cheapest.push(0);
                for at in (0..text.len()).rev() {
                    let is_here = |&i: &usize| text[at..].starts_with(&words[i]);
                    let by_words = (0..words.len()).filter(is_here).map(|i| {
                        u64::from(parser.price(i)) + cheapest[at + words[i].len()]
                    });
                    let by_byte = parser.stored_price(1) + cheapest[at + 1];
                    cheapest[at] = by_words.chain([by_byte]).min().unwrap();
                }
                let mut told = Vec::new();
                let price = parser.parse(text, &[], &mut Ways::default(), &mut told);
                prop_assert_eq!(price, cheapest[0].min(parser.stored_price(text.len())));
                prop_assert_eq!(&expanded(&told, parser.vocabulary(), &[], text), text);
            }
        }

        #[test]
        fn any_bytes_are_a_vocabulary_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut take = Take::new(&bytes, "test", 0);
            if let Ok(vocabulary) = Vocabulary::take(&mut take) {
                for number in (0..300).chain([u64::MAX, 1 << 32]) {
                    if let Some(Word::Bytes(word)) = vocabulary.get(number) {
                        prop_assert!(!word.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn what_comes_often_is_one_word() {
        let texts: Vec<String> =
            (0..2000).map(|i| format!("connection from host-{} closed", i % 7)).collect();
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let parser = learn(&texts, 1.0);
        let mut told = Vec::new();
        parser.parse(texts[5], &[], &mut Ways::default(), &mut told);
        assert_eq!(told.len(), 1);
        // As it is known what each is the text before has nothing to tell.
        let mut again = Vec::new();
        parser.parse(texts[5], texts[4], &mut Ways::default(), &mut again);
        assert_eq!(again, told);
    }

    #[test]
    fn a_word_may_be_there_twice() {
        let words: [&[u8]; 4] = [b"ab", b"ab", b"abc", b"a"];
        let parser = Parser::new(Vocabulary::new(words.into_iter()), &[1; FIRST as usize + 4]);
        let mut told = Vec::new();
        parser.parse(b"abcab", &[], &mut Ways::default(), &mut told);
        assert!(expanded(&told, parser.vocabulary(), &[], b"abcab") == b"abcab");
    }

    #[test]
    fn texts_that_are_stored_are_few_numbers() {
        let parser = Parser::stored();
        for len in [0usize, 1, 2, 1000, 1 << 24, (1 << 25) + (1 << 24) + 3] {
            let mut told = Vec::new();
            parser.parse(&vec![1; len], &[], &mut Ways::default(), &mut told);
            assert_eq!(told.iter().map(|&word| stored(word.into())).sum::<usize>(), len);
            assert!(told.len() as u32 <= len.count_ones() + 1 + (len >> 24) as u32);
        }
    }
}
