//! Finds the longest match of a text in a dictionary, exactly, by a suffix array.
//!
//! # How
//!
//! The suffixes of the dictionary in order are an interval for each string: those that begin with
//! it. The interval of the next 8 bytes of the text is looked up; inside it a
//! binary search finds the two suffixes between which the text would stand, and one of these is the
//! longest match. Of all places that match as far, the first in suffix order is taken: it
//! depends on what is matched alone, so that a string is written by one offset wherever it comes.
//!
//! Where the dictionary does not have these 8 bytes, the longest match is shorter, and nothing is left to
//! search: tables tell the first suffix of every string of up to 7 bytes.
//!
//! Nearly all the time goes into waiting for memory, some ten cache misses a factor. So many texts
//! are factored at once: each asks for the memory of its next step and lets the others work
//! until that is there.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::filled;
use crate::processor::prefetch;
use crate::rlz::dictionary::Dictionary;
use crate::rlz::firsts::{Cursor, Firsts};
use crate::rlz::grams::{Grams, Interval, Place};
use crate::wire::load_u64;

/// Length of the strings whose intervals are looked up.
const LONG: usize = 8;
/// Suffixes that are asked for all at once, where no more are left.
const FEW: u32 = 6;
/// Texts that one thread factors at once.
pub(crate) const LANES: usize = 16;

/// A step of a factoring: a copy out of the dictionary, or a byte that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Factor {
    /// How many bytes; 0 for a literal.
    pub len: u32,
    /// Where in the dictionary; of a literal, the byte.
    pub offset: u32,
}

impl Factor {
    /// Bytes of text that it stands for.
    pub fn text_len(self) -> usize {
        self.len.max(1) as usize
    }
}

/// A dictionary made ready to be searched: 6 to 9 times as large.
pub(crate) struct Matcher {
    dictionary: Arc<Dictionary>,
    /// The suffixes in order.
    suffixes: Vec<u32>,
    /// For each string of `first_len` bytes, the first suffix that is not before it; one more.
    first: Vec<u32>,
    first_len: usize,
    /// For longer strings, where the first suffix starts.
    firsts: Firsts,
    long: Grams,
}

impl Matcher {
    /// Sorts the suffixes of a dictionary: some 40 MB/s.
    ///
    /// # Errors
    /// [`Error::Limit`] when there is no memory for it.
    pub fn new(dictionary: Arc<Dictionary>) -> Result<Matcher> {
        let (text, padded) = (dictionary.as_bytes(), dictionary.padded());
        let suffixes = sort(text)?;
        let first_len = if text.len() < 1 << 22 { 2 } else { 3 };
        let first = count_first(padded, text.len(), first_len);
        // They take about as long as sorting.
        let (firsts, long) = std::thread::scope(|scope| {
            let firsts = scope.spawn(|| Firsts::new(first_len + 1, padded, text.len(), &suffixes));
            let long = Grams::new(LONG, padded, text.len(), &suffixes);
            (firsts.join(), long)
        });
        let firsts = firsts.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Matcher { dictionary, suffixes, first, first_len, firsts, long })
    }

    /// Bytes that it takes beside the dictionary while it is built, and about as many after.
    pub fn memory_for(len: u64) -> u64 {
        8 * len + (80 << 20)
    }

    pub fn text(&self) -> &[u8] {
        self.dictionary.as_bytes()
    }

    /// For each place of the dictionary, how long a string starts there that it has elsewhere, too
    /// (Kasai and others, 2001).
    pub fn repeats(&self) -> Vec<u32> {
        let text = self.text();
        let mut ranks = vec![0u32; text.len()];
        for (rank, &at) in self.suffixes.iter().enumerate() {
            ranks[at as usize] = rank as u32;
        }
        let mut repeats = vec![0u32; text.len()];
        let mut known = 0usize;
        for (at, &rank) in ranks.iter().enumerate() {
            let Some(before) = (rank as usize).checked_sub(1) else {
                known = 0;
                continue;
            };
            let before = self.suffixes[before] as usize;
            known += common(&text[at + known..], &text[before + known..]);
            for place in [at, before] {
                repeats[place] = repeats[place].max(known as u32);
            }
            known = known.saturating_sub(1);
        }
        repeats
    }

    /// The longest match at the start of a text that is not empty.
    #[cfg(test)]
    pub fn longest(&self, text: &[u8]) -> Factor {
        let mut lane = Lane::new(text);
        loop {
            if let Some(factor) = lane.step(self) {
                return factor;
            }
        }
    }

    /// Factors texts greedily, each into its own list.
    pub fn factor(&self, texts: &[&[u8]], factors: &mut [Vec<Factor>]) {
        debug_assert_eq!(texts.len(), factors.len());
        let mut lanes: Vec<(usize, Lane<'_>)> = Vec::with_capacity(LANES);
        let mut next = 0;
        loop {
            while lanes.len() < LANES && next < texts.len() {
                factors[next].clear();
                if !texts[next].is_empty() {
                    lanes.push((next, Lane::new(texts[next])));
                }
                next += 1;
            }
            if lanes.is_empty() {
                return;
            }
            let mut i = 0;
            while i < lanes.len() {
                let (number, lane) = &mut lanes[i];
                if let Some(factor) = lane.step(self) {
                    factors[*number].push(factor);
                    match &lane.text[factor.text_len()..] {
                        [] => {
                            lanes.swap_remove(i);
                            continue;
                        }
                        rest => *lane = Lane::new(rest),
                    }
                }
                i += 1;
            }
        }
    }

    /// The longest match at each place of a text, where there is one of `SHORTEST` or more. Inside of
    /// long ones most places are not looked up: they go on as what is there does.
    pub fn factor_everywhere(&self, text: &[u8], found: &mut Vec<Factor>) {
        /// Inside of a match of at least `LONG_MATCH` the last `LOOK` places are looked up.
        const LONG_MATCH: u32 = 64;
        const SHORTEST: u32 = 5;
        const LOOK: u32 = 32;
        found.clear();
        found.resize(text.len(), Factor::default());
        let piece = text.len().div_ceil(LANES).max(64);
        let mut lanes: Vec<(usize, usize, Lane<'_>)> = (0..text.len())
            .step_by(piece)
            .map(|at| (at, text.len().min(at + piece), Lane::new(&text[at..])))
            .collect();
        let mut i = 0;
        while !lanes.is_empty() {
            if i >= lanes.len() {
                i = 0;
            }
            let (at, end, lane) = &mut lanes[i];
            let Some(mut factor) = lane.step(self) else {
                i += 1;
                continue;
            };
            if factor.len < SHORTEST {
                factor = Factor::default();
            }
            let skip = if factor.len >= LONG_MATCH { factor.len - LOOK } else { 1 };
            for (k, slot) in found[*at..*end].iter_mut().take(skip as usize).enumerate() {
                let k = k as u32;
                if factor.len > k {
                    *slot = Factor { len: factor.len - k, offset: factor.offset + k };
                }
            }
            *at += skip as usize;
            if *at >= *end {
                lanes.swap_remove(i);
                continue;
            }
            *lane = Lane::new(&text[*at..]);
            i += 1;
        }
    }

    /// The first suffix that begins as the text does, as far as the table of beginnings tells. `None`
    /// where the dictionary does not even have its first byte.
    fn beginning(&self, text: &[u8]) -> Option<u32> {
        for len in (1..=self.first_len.min(text.len())).rev() {
            let shift = 8 * (self.first_len - len);
            let key =
                text[..len].iter().fold(0, |key, &byte| key << 8 | usize::from(byte)) << shift;
            let (mut from, to) = (self.first[key], self.first[key + (1 << shift)]);
            // A suffix that is shorter is as if it went on with zeros, and stands first.
            while from < to && text[len - 1] == 0 && self.suffix_len(from) < len {
                from += 1;
            }
            if from < to {
                return Some(from);
            }
        }
        None
    }

    /// Asks for the table of beginnings.
    #[inline(always)]
    fn ask_for_beginning(&self, word: u64) {
        let key = word.swap_bytes() >> (64 - 8 * self.first_len);
        prefetch(&self.first, key as usize);
    }

    /// Asks for the text of a suffix, as much as is usually looked at: it may lie across lines.
    #[inline(always)]
    fn ask_for_text(&self, at: u32) {
        prefetch(self.dictionary.padded(), at as usize);
        prefetch(self.dictionary.padded(), at as usize + 24);
    }

    fn suffix_len(&self, rank: u32) -> usize {
        self.dictionary.len() - self.suffixes[rank as usize] as usize
    }
}

pub(super) fn sort(text: &[u8]) -> Result<Vec<u32>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let need = 4 * text.len() as u64;
    let failed =
        |_| Error::Limit { what: "memory for the suffixes of a dictionary", need, allowed: 0 };
    let mut sorted = filled(0i32, text.len());
    libsais::SuffixArrayConstruction::for_text(text)
        .in_borrowed_buffer(&mut sorted)
        .single_threaded()
        .run()
        .map_err(failed)?;
    // Positions are below 2^30: the list stays where it is.
    Ok(sorted.into_iter().map(|at| at as u32).collect())
}

/// Counts suffixes by their first `len` bytes, short ones as if zeros followed.
fn count_first(padded: &[u8], text_len: usize, len: usize) -> Vec<u32> {
    let mut first = filled(0u32, (1 << (8 * len)) + 1);
    for start in padded.windows(len).take(text_len) {
        first[start.iter().fold(0, |key, &byte| key << 8 | usize::from(byte)) + 1] += 1;
    }
    let mut sum = 0;
    for count in &mut first {
        sum += *count;
        *count = sum;
    }
    first
}

/// How many bytes two texts have in common at their start.
#[inline(always)]
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= len {
        let differ = load_u64(a, at) ^ load_u64(b, at);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

/// A text whose next factor is being found, step by step.
struct Lane<'a> {
    text: &'a [u8],
    step: Step,
    search: Search,
    /// Its first bytes; zeros behind a text of fewer.
    word: u64,
    /// Which candidate of the table of intervals is next, and which of the other one.
    nth: u32,
    cursor: Cursor,
}

/// What a text waits for.
#[derive(Clone, Copy)]
enum Step {
    Start,
    Buckets,
    /// The dictionary's text at this place, the only one where it may have the first 8 bytes.
    Alone(u32),
    /// A wide interval of the table.
    Wide(u32),
    /// The suffix of this rank.
    Rank(u32),
    /// The dictionary's text of this rank, at this offset.
    Text(u32, u32),
    /// All suffixes that are left; and their texts.
    Few,
    Near,
    /// The dictionary's text at this place, the first that may have a short string.
    First(u32),
    /// The suffix of this rank, the first that has anything; and its text.
    Beginning(u32),
    Last(u32),
}

/// A binary search among suffixes that all share `known` bytes with the text.
#[derive(Clone, Copy, Default)]
struct Search {
    goal: Goal,
    all: Interval,
    known: u32,
    /// Suffixes before `from` are less than the text, those from `to` on are not; of the last of
    /// the former and the first of the latter, if there are any, how much they share with it.
    from: u32,
    to: u32,
    low_len: u32,
    high_len: u32,
    /// The first suffix that shares `low_len` bytes is in here, if only as the last one.
    first: Interval,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Goal {
    /// Is the interval that of the text at all? Any of its suffixes tells.
    #[default]
    Verify,
    /// Between which two suffixes does the text stand?
    Insert,
    /// Which suffix is the first that shares as much as the best?
    First,
}

impl Search {
    fn new(goal: Goal, all: Interval, known: usize) -> Search {
        let (from, to) = all;
        Search { goal, all, known: known as u32, from, to, ..Search::default() }
    }

    /// Suffixes that are still to be looked at.
    fn range(&self) -> Interval {
        if self.goal == Goal::First { self.first } else { (self.from, self.to) }
    }

    /// Takes in how the text compares with the suffix of this rank.
    #[inline(always)]
    fn insert(&mut self, rank: u32, suffix: &[u8], text: &[u8], len: usize) {
        let is_less = match (suffix.get(len), text.get(len)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(a), Some(b)) => a < b,
        };
        let len = len as u32;
        if is_less {
            if self.from == self.all.0 || len > self.low_len {
                self.first = (self.from, rank);
            }
            (self.from, self.low_len) = (rank + 1, len);
        } else {
            (self.to, self.high_len) = (rank, len);
        }
    }
}

impl<'a> Lane<'a> {
    fn new(text: &'a [u8]) -> Lane<'a> {
        let cursor = Cursor::new(text.len());
        Lane { text, step: Step::Start, search: Search::default(), word: 0, nth: 0, cursor }
    }

    /// Does what can be done without waiting for memory. The factor, once it is known.
    #[inline(always)]
    fn step(&mut self, matcher: &Matcher) -> Option<Factor> {
        match self.step {
            Step::Start => {
                self.word = if self.text.len() < LONG {
                    let mut padded = [0; LONG];
                    padded[..self.text.len()].copy_from_slice(self.text);
                    load_u64(&padded, 0)
                } else {
                    load_u64(self.text, 0)
                };
                matcher.long.prefetch(matcher.long.hash(self.word));
                matcher.firsts.ask_for(self.word);
                matcher.ask_for_beginning(self.word);
                self.step = Step::Buckets;
                None
            }
            Step::Buckets if self.text.len() < LONG => self.short(matcher),
            Step::Buckets => self.candidate(matcher),
            Step::Wide(number) => {
                self.verify(matcher, matcher.long.wide(number));
                None
            }
            Step::Rank(rank) => {
                let at = matcher.suffixes[rank as usize];
                matcher.ask_for_text(at);
                self.step = Step::Text(rank, at);
                None
            }
            Step::Text(rank, at) => match self.compare(matcher, rank, at) {
                Next::Failed => self.candidate(matcher),
                Next::Found(factor) => Some(factor),
                Next::Probe => self.probe(matcher),
            },
            Step::Few => {
                let (from, to) = self.search.range();
                for &at in &matcher.suffixes[from as usize..to as usize] {
                    matcher.ask_for_text(at);
                }
                self.step = Step::Near;
                None
            }
            Step::Near => self.finish(matcher),
            Step::Alone(at) => {
                let factor = self.at(matcher, at);
                if factor.len as usize >= LONG {
                    return Some(factor);
                }
                self.candidate(matcher)
            }
            Step::First(at) => {
                let factor = self.at(matcher, at);
                if factor.len as usize >= self.cursor.len {
                    return Some(factor);
                }
                self.short(matcher)
            }
            Step::Beginning(rank) => {
                let at = matcher.suffixes[rank as usize];
                prefetch(matcher.dictionary.padded(), at as usize);
                self.step = Step::Last(at);
                None
            }
            Step::Last(at) => Some(self.at(matcher, at)),
        }
    }

    /// What the text has in common with a place of the dictionary.
    #[inline(always)]
    fn at(&self, matcher: &Matcher, at: u32) -> Factor {
        let len = common(&matcher.dictionary.as_bytes()[at as usize..], self.text);
        Factor { len: len as u32, offset: at }
    }

    /// Turns to the next candidate of the table of intervals.
    #[inline(always)]
    fn candidate(&mut self, matcher: &Matcher) -> Option<Factor> {
        let Some(place) = matcher.long.find(matcher.long.hash(self.word), self.nth) else {
            return self.short(matcher);
        };
        self.nth += 1;
        match place {
            Place::One(at) => {
                matcher.ask_for_text(at);
                self.step = Step::Alone(at);
            }
            Place::Some(interval) => self.verify(matcher, interval),
            Place::Wide(number) => {
                matcher.long.prefetch_wide(number);
                self.step = Step::Wide(number);
            }
        }
        None
    }

    /// Turns to the next short string; the dictionary does not have the first 8 bytes. What it does
    /// have of the longest string that it has is the longest match.
    #[inline(always)]
    fn short(&mut self, matcher: &Matcher) -> Option<Factor> {
        if let Some((at, cursor)) = matcher.firsts.find(self.word, self.cursor) {
            prefetch(matcher.dictionary.padded(), at as usize);
            (self.step, self.cursor) = (Step::First(at), cursor);
            return None;
        }
        match matcher.beginning(self.text) {
            None => Some(Factor { len: 0, offset: u32::from(self.text[0]) }),
            Some(rank) => {
                prefetch(&matcher.suffixes, rank as usize);
                self.step = Step::Beginning(rank);
                None
            }
        }
    }

    /// Searches an interval, which may be another string's.
    #[inline(always)]
    fn verify(&mut self, matcher: &Matcher, interval: Interval) {
        self.search = Search::new(Goal::Verify, interval, 0);
        self.probe(matcher);
    }

    /// Asks for what the search looks at next: the suffix in the middle, or all of the last few.
    #[inline(always)]
    fn probe(&mut self, matcher: &Matcher) -> Option<Factor> {
        let (from, to) = self.search.range();
        if to - from <= FEW {
            prefetch(&matcher.suffixes, from as usize);
            self.step = Step::Few;
        } else {
            let middle = from + (to - from) / 2;
            prefetch(&matcher.suffixes, middle as usize);
            self.step = Step::Rank(middle);
        }
        None
    }

    /// Goes on without waiting: what is left to be looked at was asked for.
    fn finish(&mut self, matcher: &Matcher) -> Option<Factor> {
        loop {
            let (from, to) = self.search.range();
            let middle = from + (to - from) / 2;
            match self.compare(matcher, middle, matcher.suffixes[middle as usize]) {
                Next::Failed => return self.candidate(matcher),
                Next::Found(factor) => return Some(factor),
                Next::Probe => {
                    let (from, to) = self.search.range();
                    if to - from > FEW {
                        return self.probe(matcher);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn compare(&mut self, matcher: &Matcher, rank: u32, at: u32) -> Next {
        let suffix = &matcher.dictionary.as_bytes()[at as usize..];
        let search = &mut self.search;
        let known = match search.goal {
            Goal::Insert if search.from > search.all.0 && search.to < search.all.1 => {
                search.low_len.min(search.high_len)
            }
            _ => search.known,
        } as usize;
        let len = known + common(&suffix[known..], &self.text[known..]);
        match search.goal {
            Goal::Verify if len < LONG => return Next::Failed,
            Goal::Verify => {
                (search.goal, search.known) = (Goal::Insert, LONG as u32);
                search.insert(rank, suffix, self.text, len);
            }
            Goal::Insert => search.insert(rank, suffix, self.text, len),
            Goal::First if len >= search.low_len as usize => search.first.1 = rank,
            Goal::First => search.first.0 = rank + 1,
        }
        let search = &mut self.search;
        let factor =
            |len, rank: u32| Next::Found(Factor { len, offset: matcher.suffixes[rank as usize] });
        if search.goal == Goal::Insert {
            let (from, to) = (search.from, search.to);
            if from < to {
                return Next::Probe;
            }
            let has_low = from > search.all.0;
            if !has_low || to < search.all.1 && search.high_len > search.low_len {
                return factor(search.high_len, to);
            }
            search.goal = Goal::First;
        }
        let (from, to) = search.first;
        if from < to { Next::Probe } else { factor(search.low_len, to) }
    }
}

/// What a comparison leads to.
enum Next {
    /// The interval is another string's.
    Failed,
    Found(Factor),
    Probe,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first suffix, in order, of those that match longest: by looking at all of them.
    fn naive(dictionary: &[u8], text: &[u8]) -> Factor {
        let mut best = Factor { len: 0, offset: u32::from(text[0]) };
        for at in 0..dictionary.len() {
            let suffix = &dictionary[at..];
            let len = suffix.iter().zip(text).take_while(|(a, b)| a == b).count() as u32;
            let is_first = || suffix < &dictionary[best.offset as usize..];
            if len > best.len || len > 0 && len == best.len && is_first() {
                best = Factor { len, offset: at as u32 };
            }
        }
        best
    }

    fn check(dictionary: Vec<u8>, texts: &[Vec<u8>]) {
        let matcher = Matcher::new(Arc::new(Dictionary::new(dictionary).unwrap())).unwrap();
        if matcher.text().len() < 1000 {
            let text = matcher.text();
            let naive = |at: usize| {
                let same =
                    |other| text[at..].iter().zip(&text[other..]).take_while(|(a, b)| a == b);
                (0..text.len()).filter(|&o| o != at).map(|o| same(o).count()).max().unwrap_or(0)
            };
            for (at, &repeat) in matcher.repeats().iter().enumerate() {
                assert_eq!(repeat as usize, naive(at), "{at}");
            }
        }
        let dictionary = matcher.dictionary.as_bytes();
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let mut factors = vec![Vec::new(); texts.len()];
        matcher.factor(&texts, &mut factors);
        for (text, factors) in texts.iter().zip(&factors) {
            let mut at = 0;
            for &factor in factors {
                assert_eq!(factor, naive(dictionary, &text[at..]), "at {at} of {text:?}");
                assert_eq!(factor, matcher.longest(&text[at..]));
                at += factor.text_len();
            }
            assert_eq!(at, text.len());
        }
    }

    /// Bytes of few kinds, so that everything matches somewhere, with zeros and repeats.
    fn bytes(kinds: u8, len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        let some = proptest::collection::vec(0..kinds, 1..12);
        proptest::collection::vec((some, 1usize..8), 0..30).prop_map(move |pieces| {
            let all = pieces.into_iter().flat_map(|(piece, times)| piece.repeat(times));
            all.take(len.end).collect()
        })
    }

    proptest! {
        #[test]
        fn every_factor_is_the_first_of_the_longest_matches(
            dictionary in bytes(3, 0..400),
            texts in proptest::collection::vec(bytes(4, 0..200), 1..20),
        ) {
            check(dictionary, &texts);
        }

        #[test]
        fn any_bytes_are_factored(
            dictionary in proptest::collection::vec(any::<u8>(), 0..300),
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..4),
        ) {
            check(dictionary, &texts);
        }
    }

    #[test]
    fn a_large_dictionary_is_searched_by_its_beginnings_of_three_bytes() {
        let mut random = crate::testing::Random(5);
        let mut dictionary = random.text(5 << 20);
        // Few bytes behind a zero, at the end: suffixes that are shorter than a beginning.
        dictionary.extend([0, 7, 0, 7, 0, 0]);
        let mut text = dictionary[4 << 20..][..3000].to_vec();
        text.extend([7, 0, 0, 0, 7, 0, 7, 200, 0]);
        text.extend(random.text(100));
        check(dictionary, &[text]);
    }
}
