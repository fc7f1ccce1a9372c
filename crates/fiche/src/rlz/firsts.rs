//! Where the first suffix starts, in order, that begins with a given short string: a hash table whose
//! every bucket is one cache line.
//!
//! The strings of each length are the children of those that are one byte shorter. The first suffix of a
//! string is also the first of one of its children, and that child is left out: who looks at the text
//! of the shorter string sees that it goes on. So every suffix is in the table once at most, and
//! the longest string that is found leads to the longest match, if it is not longer than the longest
//! strings here.

use crate::memory::filled;
use crate::processor::prefetch;
use crate::wire::load_u64;

/// Length of the longest strings.
pub(super) const LONGEST: usize = 7;

/// Entries of a bucket, and how many of them are used when the table is built.
const SLOTS: usize = 10;
const USED: usize = 7;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// 16 bits of the hash of each entry; 0 where a slot is free.
    tags: [u16; SLOTS],
    /// 1 where some entries had to go into the next bucket.
    spilled: u32,
    /// Where in the dictionary.
    places: [u32; SLOTS],
}

/// The table.
pub(super) struct Firsts {
    shortest: usize,
    buckets: Vec<Bucket>,
}

/// Of the first `len` bytes of a word, fewer than eight; the length is a part of it.
#[inline(always)]
fn hash(word: u64, len: usize) -> u64 {
    let string = word << (64 - 8 * len) | len as u64;
    let mixed = string.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// 16 bits of a hash that choose no bucket; never 0.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

impl Firsts {
    /// Of strings of `shortest` bytes and more. `padded` has eight bytes at least behind its `text_len`;
    /// `suffixes` are its suffixes in order.
    pub fn new(shortest: usize, padded: &[u8], text_len: usize, suffixes: &[u32]) -> Firsts {
        let mut count = 0;
        each_first(shortest, padded, text_len, suffixes, |_, _| count += 1);
        let mut firsts = Firsts { shortest, buckets: filled(Bucket::default(), count / USED + 1) };
        // Buckets lie all over memory: ask for some before the first of them is needed.
        let mut waiting: Vec<(u64, u32)> = Vec::with_capacity(32);
        each_first(shortest, padded, text_len, suffixes, |hash, place| {
            firsts.prefetch(hash);
            waiting.push((hash, place));
            if waiting.len() == 32 {
                waiting.drain(..).for_each(|(hash, place)| firsts.insert(hash, place));
            }
        });
        waiting.drain(..).for_each(|(hash, place)| firsts.insert(hash, place));
        firsts
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    fn insert(&mut self, hash: u64, place: u32) {
        let mut at = self.bucket(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.tags.iter().position(|&tag| tag == 0) {
                bucket.tags[slot] = tag(hash);
                bucket.places[slot] = place;
                return;
            }
            bucket.spilled = 1;
            at = self.next(at);
        }
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets, self.bucket(hash));
    }

    /// Asks for the memory that looking up the eight bytes of a word will need.
    #[inline(always)]
    pub fn ask_for(&self, word: u64) {
        for len in self.shortest..=LONGEST {
            self.prefetch(hash(word, len));
        }
    }

    /// The first candidate for the beginning of a word after those that were looked at, longest strings
    /// first: where it starts, and where to look for the next one. It may be another string's, which
    /// its text tells.
    #[inline(always)]
    pub fn find(&self, word: u64, from: Cursor) -> Option<(u32, Cursor)> {
        let Cursor { len, mut nth } = from;
        for len in (self.shortest..=len).rev() {
            if let Some(place) = self.find_nth(hash(word, len), nth) {
                return Some((place, Cursor { len, nth: nth + 1 }));
            }
            nth = 0;
        }
        None
    }

    #[inline(always)]
    fn find_nth(&self, hash: u64, mut nth: u32) -> Option<u32> {
        const LOWEST: u64 = 0x0001_0001_0001_0001;
        let (mut at, needle) = (self.bucket(hash), u64::from(tag(hash)) * LOWEST);
        loop {
            let bucket = &self.buckets[at];
            let tags = |at: usize, count: usize| {
                (0..count).fold(0, |word, i| word | u64::from(bucket.tags[at + i]) << (16 * i))
            };
            // A zero where a tag fits; one above it may pass for one, too.
            let hits = |word: u64| {
                let differ = word ^ needle;
                differ.wrapping_sub(LOWEST) & !differ & LOWEST << 15
            };
            let some = [hits(tags(0, 4)), hits(tags(4, 4)), hits(tags(8, 2)) & 0xffff_ffff];
            if some != [0; 3] {
                for (i, mut hits) in some.into_iter().enumerate() {
                    while hits != 0 {
                        if nth == 0 {
                            return Some(
                                bucket.places[4 * i + hits.trailing_zeros() as usize / 16],
                            );
                        }
                        nth -= 1;
                        hits &= hits - 1;
                    }
                }
            }
            if bucket.spilled == 0 {
                return None;
            }
            at = self.next(at);
        }
    }
}

/// How far a search has come: candidate `nth` of the strings of `len` bytes is next.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    pub len: usize,
    nth: u32,
}

impl Cursor {
    /// At the beginning, for a text of so many bytes.
    pub fn new(text_len: usize) -> Cursor {
        Cursor { len: text_len.min(LONGEST), nth: 0 }
    }
}

/// Calls `each` with every string that is to be in the table: its hash, and where its first suffix
/// starts.
fn each_first(
    shortest: usize,
    padded: &[u8],
    text_len: usize,
    suffixes: &[u32],
    mut each: impl FnMut(u64, u32),
) {
    const AHEAD: usize = 32;
    let mut last = (0, 0);
    for (rank, &at) in suffixes.iter().enumerate() {
        if let Some(&later) = suffixes.get(rank + AHEAD) {
            prefetch(padded, later as usize);
        }
        let (word, len) = (load_u64(padded, at as usize), text_len - at as usize);
        // Bytes that it has in common with the suffix before it; the string that is one byte longer is new,
        // and those that are longer yet have the same first suffix.
        let same = ((word ^ last.0).trailing_zeros() as usize / 8).min(len).min(last.1);
        if (shortest..=LONGEST).contains(&(same + 1)) && same < len {
            each(hash(word, same + 1), at);
        }
        last = (word, len);
    }
}
