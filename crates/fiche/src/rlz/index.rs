//! Finds a long match of a text in a dictionary at once, though not always the longest.
//!
//! # How
//!
//! The strings of a few lengths that the dictionary has, each with those that go on from it, are a
//! tree. Of the strings that go on from one, that with the most places is left out of the table: the
//! place that stands for the shorter string is one of its own. So every place of the dictionary is
//! in the table once at most, under the shortest of the strings that it stands for. A text is
//! looked up under all lengths at once: what is found under the longest has as much in common with
//! it as the table can tell, and may have more.
//!
//! A look waits for memory twice, for the table and for the dictionary. So several places of a text
//! are looked up side by side, and strings of all lengths but the shortest share a bucket with the
//! beginning that they have in common, while there is room.

use std::sync::Arc;

use crate::error::Result;
use crate::memory::filled;
use crate::processor::prefetch;
use crate::rlz::dictionary::Dictionary;
use crate::rlz::matcher::{Factor, common, sort};
use crate::wire::load_u64;

/// Lengths of the strings that are looked up. Shorter ones repay their offset too seldom; more of
/// them between these find hardly more.
const LENGTHS: [usize; LEVELS] = [6, 9, 14, 24, 48];
const LEVELS: usize = 5;
/// The level whose string chooses the bucket of each.
const LEADERS: [usize; LEVELS] = [0, 1, 1, 1, 1];
const LONGEST: usize = LENGTHS[LEVELS - 1];
const WORDS: usize = LONGEST / 8;

/// Places of a text that are looked up side by side.
const LANES: usize = 16;
/// What each of them goes through at least.
const LEAST_PIECE: usize = 64;

/// After so many looks that found nothing, one more place is left out before each; up to a limit.
const PATIENCE: usize = 4;
const MOST_LEFT_OUT: usize = 16;

/// Entries of a bucket, and how many of them are used when the table is built.
const SLOTS: usize = 10;
const USED: usize = 6;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// 16 bits of the hash of each entry; 0 where a slot is free.
    tags: [u16; SLOTS],
    /// A bit for each level of which strings had to go into the bucket of their own hash.
    spilled: u32,
    /// Where in the dictionary.
    places: [u32; SLOTS],
}

/// A dictionary made ready to be looked up in.
pub(crate) struct Index {
    dictionary: Arc<Dictionary>,
    buckets: Vec<Bucket>,
}

/// Hashes of the strings of all lengths at the start of a text.
type Hashes = [u64; LEVELS];

impl Index {
    /// Sorts the suffixes of a dictionary and goes through them: some 10 MB/s.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when there is no memory for it.
    pub fn new(dictionary: Arc<Dictionary>) -> Result<Index> {
        let (text, padded) = (dictionary.as_bytes(), dictionary.padded());
        let suffixes = sort(text)?;
        let mut entries = Entries::with_capacity(text.len());
        tree(padded, text.len(), &suffixes, |level, place| entries.push(level, place));
        drop(suffixes);
        let buckets = filled(Bucket::default(), entries.places.len() / USED + 1);
        let mut index = Index { dictionary: dictionary.clone(), buckets };
        // Those that choose their bucket themselves have nowhere else to go.
        entries.put_into(&mut index, padded, |level| LEADERS[level] == level);
        entries.put_into(&mut index, padded, |level| LEADERS[level] != level);
        Ok(index)
    }

    /// Bytes that it takes beside the dictionary while it is built; then two thirds of it.
    pub fn memory_for(len: u64) -> u64 {
        16 * len + (1 << 20)
    }

    pub fn text(&self) -> &[u8] {
        self.dictionary.as_bytes()
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Asks for the buckets that a text is looked up in first.
    #[inline(always)]
    fn ask_for_buckets(&self, hashes: &Hashes) {
        for level in 0..LEVELS {
            if LEADERS[level] == level {
                prefetch(&self.buckets, self.bucket(hashes[level]));
            }
        }
    }

    /// Puts in a string. One for which there is no room is left out.
    fn insert(&mut self, level: usize, hashes: &Hashes, place: u32) {
        for by in [LEADERS[level], level] {
            let at = self.bucket(hashes[by]);
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.tags.iter().position(|&tag| tag == 0) {
                bucket.tags[slot] = tag(hashes[level]);
                bucket.places[slot] = place;
                return;
            }
            bucket.spilled |= 1 << level;
        }
    }

    #[inline(always)]
    fn has_spilled(&self, level: usize, hashes: &Hashes) -> bool {
        LEADERS[level] != level
            && self.buckets[self.bucket(hashes[LEADERS[level]])].spilled >> level & 1 != 0
    }

    /// The place of the string of this level, or of another one with the same hash.
    #[inline(always)]
    fn find(&self, level: usize, hashes: &Hashes) -> Option<u32> {
        let led = &self.buckets[self.bucket(hashes[LEADERS[level]])];
        led.find(hashes[level]).or_else(|| {
            let own = || self.buckets[self.bucket(hashes[level])].find(hashes[level]);
            self.has_spilled(level, hashes).then(own).flatten()
        })
    }

    /// Goes along a text from match to match: for each place, what is left there of the match that was found
    /// before it or at it, if any.
    pub fn find_along(&self, text: &[u8], found: &mut Vec<Factor>) {
        found.clear();
        found.resize(text.len(), Factor::default());
        // The last places are looked up in a copy, which goes on with zeros.
        let tail_at = text.len().saturating_sub(LONGEST);
        let mut tail = [0; 2 * LONGEST];
        tail[..text.len() - tail_at].copy_from_slice(&text[tail_at..]);
        let dictionary = self.text();
        let piece = text.len().div_ceil(LANES).max(LEAST_PIECE);
        // Where each goes on, where it ends, and how many looks in a row found nothing.
        let mut lanes = [(0, 0, 0); LANES];
        let mut hashed = [[0; LEVELS]; LANES];
        let mut places = [None; LANES];
        let mut count = 0;
        for at in (0..text.len()).step_by(piece) {
            lanes[count] = (at, text.len().min(at + piece), 0);
            count += 1;
        }
        while count > 0 {
            for (&(at, ..), hashed) in lanes[..count].iter().zip(&mut hashed) {
                *hashed = match at < tail_at {
                    true => hashes(words(text, at)),
                    false => hashes(words(&tail, at - tail_at)),
                };
                self.ask_for_buckets(hashed);
            }
            for hashed in &hashed[..count] {
                for level in (0..LEVELS).filter(|&level| self.has_spilled(level, hashed)) {
                    prefetch(&self.buckets, self.bucket(hashed[level]));
                }
            }
            for (hashed, place) in hashed[..count].iter().zip(&mut places) {
                *place = (0..LEVELS).rev().find_map(|level| self.find(level, hashed));
                if let Some(place) = *place {
                    ask_for(dictionary, place);
                }
            }
            let mut left = 0;
            for lane in 0..count {
                let (at, end, missed) = lanes[lane];
                let mut next = (at + 1 + left_out(missed), end, missed + 1);
                if let Some(place) = places[lane] {
                    let len = common(&dictionary[place as usize..], &text[at..]);
                    // It may be that only the hashes are the same.
                    if len >= LENGTHS[0] {
                        // Places that were left out may have the match, too.
                        let skipped = left_out(missed.saturating_sub(1));
                        let same =
                            |k: &usize| dictionary[place as usize - 1 - k] == text[at - 1 - k];
                        let before = (0..skipped.min(place as usize)).take_while(same).count();
                        let (from, place, len) =
                            (at - before, place as usize - before, len + before);
                        for (k, slot) in found[from..end].iter_mut().take(len).enumerate() {
                            *slot = Factor { len: (len - k) as u32, offset: (place + k) as u32 };
                        }
                        next = (from + len, end, 0);
                    }
                }
                if next.0 < end {
                    lanes[left] = next;
                    left += 1;
                }
            }
            count = left;
        }
    }
}

impl Bucket {
    #[inline(always)]
    fn find(&self, hash: u64) -> Option<u32> {
        const LOWEST: u64 = 0x0001_0001_0001_0001;
        let needle = u64::from(tag(hash)) * LOWEST;
        // A zero where a tag fits; one above it may pass for one, too.
        let hits = |word: u64| {
            let differ = word ^ needle;
            differ.wrapping_sub(LOWEST) & !differ & LOWEST << 15
        };
        let tags = |at: usize, count: usize| {
            (0..count).fold(0, |word, i| word | u64::from(self.tags[at + i]) << (16 * i))
        };
        let (a, b, c) = (hits(tags(0, 4)), hits(tags(4, 4)), hits(tags(8, 2)));
        let slot = match (a, b, c) {
            (0, 0, 0) => return None,
            (0, 0, c) => 8 + c.trailing_zeros() / 16,
            (0, b, _) => 4 + b.trailing_zeros() / 16,
            (a, _, _) => a.trailing_zeros() / 16,
        };
        Some(self.places[slot as usize % SLOTS])
    }
}

#[inline(always)]
fn words(text: &[u8], at: usize) -> [u64; WORDS] {
    std::array::from_fn(|i| load_u64(text, at + 8 * i))
}

#[inline(always)]
fn hashes(words: [u64; WORDS]) -> Hashes {
    const A: u64 = 0x9E37_79B9_7F4A_7C15;
    const B: u64 = 0xBF58_476D_1CE4_E5B9;
    LENGTHS.map(|len| {
        let mut mixed = len as u64;
        for (i, word) in words.into_iter().enumerate().take(len.div_ceil(8)) {
            let unused = 64 - 8 * (len - 8 * i).min(8);
            mixed = (mixed ^ mixed >> 32 ^ word << unused >> unused).wrapping_mul(A);
        }
        (mixed ^ mixed >> 32).wrapping_mul(B)
    })
}

/// 16 bits of a hash that choose no bucket; never 0.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    ((hash >> 16) as u16).max(1)
}

/// Places that are left out behind a look that found nothing, and so many before it.
#[inline(always)]
fn left_out(missed: usize) -> usize {
    (missed / PATIENCE).min(MOST_LEFT_OUT)
}

/// Asks for the text at a place, as much as is usually looked at: it may lie across lines.
#[inline(always)]
fn ask_for(text: &[u8], place: u32) {
    prefetch(text, place as usize);
    prefetch(text, place as usize + LONGEST - 8);
}

/// What is going to be in the table.
struct Entries {
    places: Vec<u32>,
    levels: Vec<u8>,
}

impl Entries {
    fn with_capacity(count: usize) -> Entries {
        Entries { places: Vec::with_capacity(count), levels: Vec::with_capacity(count) }
    }

    fn push(&mut self, level: usize, place: u32) {
        self.places.push(place);
        self.levels.push(level as u8);
    }

    /// Puts those of some levels into the table.
    fn put_into(&self, index: &mut Index, padded: &[u8], is_meant: impl Fn(usize) -> bool) {
        // Text and buckets lie all over memory: they are asked for before they are needed.
        const STEP: usize = 64;
        let mut hashed = [(0, [0; LEVELS], 0); STEP];
        for (start, places) in (0..).step_by(STEP).zip(self.places.chunks(STEP)) {
            for &later in self.places.iter().skip(start + STEP).take(STEP) {
                ask_for(padded, later);
            }
            let mut count = 0;
            for (&place, &level) in places.iter().zip(&self.levels[start..]) {
                let level = usize::from(level);
                if is_meant(level) {
                    let hashes = hashes(words(padded, place as usize));
                    prefetch(&index.buckets, index.bucket(hashes[LEADERS[level]]));
                    hashed[count] = (level, hashes, place);
                    count += 1;
                }
            }
            for (level, hashes, place) in &hashed[..count] {
                index.insert(*level, hashes, *place);
            }
        }
    }
}

/// A string of each level that not all suffixes were gone through of: how many begin so, one of
/// them, and how many share with that one the string of the next level.
#[derive(Clone, Copy, Default)]
struct Node {
    count: u32,
    place: u32,
    largest: u32,
}

/// Calls `each` with every entry: its level, and its place.
fn tree(padded: &[u8], text_len: usize, suffixes: &[u32], mut each: impl FnMut(usize, u32)) {
    const AHEAD: usize = 32;
    let mut path = [Node::default(); LEVELS];
    let mut before = [0; WORDS];
    // Ends the strings from this level on, and tells those that they go on from.
    let mut end = |path: &mut [Node; LEVELS], from: usize| {
        for level in (from..LEVELS).rev() {
            let node = std::mem::take(&mut path[level]);
            let Some(parent) = level.checked_sub(1).map(|parent| &mut path[parent]) else {
                if node.count > 0 {
                    each(level, node.place);
                }
                continue;
            };
            parent.count += node.count;
            if node.count > parent.largest {
                if parent.largest > 0 {
                    each(level, parent.place);
                }
                (parent.largest, parent.place) = (node.count, node.place);
            } else if node.count > 0 {
                each(level, node.place);
            }
        }
    };
    for (rank, &at) in suffixes.iter().enumerate() {
        if let Some(&later) = suffixes.get(rank + AHEAD) {
            ask_for(padded, later);
        }
        // The last few places of the dictionary begin no string of all levels: they are left out.
        if text_len - (at as usize) < LONGEST {
            continue;
        }
        let words = words(padded, at as usize);
        let mut same = 0;
        for (a, b) in words.iter().zip(&before) {
            let equal = (a ^ b).trailing_zeros() as usize / 8;
            same += equal;
            if equal < 8 {
                break;
            }
        }
        end(&mut path, LENGTHS.iter().position(|&len| same < len).unwrap_or(LEVELS));
        before = words;
        let last = &mut path[LEVELS - 1];
        last.count += 1;
        last.place = at;
    }
    end(&mut path, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use proptest::prelude::*;

    /// What `find_along` finds are matches. How many looks there were, and how many of them found
    /// less than a string that the dictionary has: their string found no room.
    fn check(dictionary: &[u8], text: &[u8]) -> (u32, u32) {
        let (mut looks, mut short) = (0, 0);
        let index = Index::new(Arc::new(Dictionary::new(dictionary.to_vec()).unwrap())).unwrap();
        let mut found = Vec::new();
        index.find_along(text, &mut found);
        assert_eq!(found.len(), text.len());
        for (at, factor) in found.iter().enumerate().filter(|(_, factor)| factor.len > 0) {
            let (from, len) = (factor.offset as usize, factor.len as usize);
            assert_eq!(dictionary[from..from + len], text[at..at + len]);
        }
        // Strings begin at all places but the last few.
        let starts = dictionary.len().saturating_sub(LONGEST - 1);
        let piece = text.len().div_ceil(LANES).max(LEAST_PIECE);
        let (mut at, mut missed) = (0, 0);
        for end in (0..text.len()).step_by(piece).map(|start| text.len().min(start + piece)) {
            while at < end {
                let has = |len: &&usize| {
                    let is_there =
                        |start: usize| text[at..].starts_with(&dictionary[start..start + **len]);
                    (0..starts).any(is_there)
                };
                let promised = LENGTHS.iter().filter(has).max().copied().unwrap_or(0);
                let len = found[at].len as usize;
                looks += 1;
                // Behind many that found nothing, places are left out.
                short += u32::from(len < promised && missed <= PATIENCE);
                missed = if len == 0 { missed + 1 } else { 0 };
                at += len.max(1);
            }
            (at, missed) = (end, 0);
        }
        (looks, short)
    }

    #[test]
    fn what_is_found_is_as_long_as_the_strings_of_the_table() {
        let mut random = Random(4);
        let dictionary = random.text(3000);
        let mut text = dictionary[500..1800].to_vec();
        text.extend(random.text(2000));
        let all = |dictionary: &[u8], text: &[u8]| assert_eq!(check(dictionary, text).1, 0);
        all(&dictionary, &text);
        all(&dictionary, &dictionary);
        all(&b"abcdefgh".repeat(100), &b"abcdefgh".repeat(70));
        all(&[7; 500], &[7; 300]);
        for len in [0, 1, 5, 47, 48, 49, 100] {
            all(&dictionary[..len], &dictionary[..len.max(60)]);
            all(&dictionary, &dictionary[700..700 + len]);
        }
    }

    #[test]
    fn few_strings_find_no_room() {
        let mut random = Random(5);
        let dictionary: Vec<u8> = (0..30_000).map(|_| random.below(4) as u8).collect();
        let (looks, short) = check(&dictionary, &dictionary[1000..2000]);
        assert!(looks > 15 && short == 0);
        let text: Vec<u8> = (0..2000).map(|_| random.below(4) as u8).collect();
        let (looks, short) = check(&dictionary, &text);
        assert!(looks > 200 && short * 20 < looks, "{short} of {looks}");
        // Much that is new, and what is in the dictionary starts at a place that was left out.
        let mut text: Vec<u8> = (0..150).map(|i| i as u8 + 4).collect();
        text.extend_from_slice(&dictionary[5000..5300]);
        let index = Index::new(Arc::new(Dictionary::new(dictionary).unwrap())).unwrap();
        let mut found = Vec::new();
        index.find_along(&text, &mut found);
        assert_eq!(found[150].len, 300);
    }

    proptest! {
        #[test]
        fn what_is_found_in_bytes_of_few_kinds_is_as_long(
            dictionary in proptest::collection::vec(0..3u8, 0..600),
            text in proptest::collection::vec(0..4u8, 0..300),
        ) {
            check(&dictionary, &text);
        }
    }
}
