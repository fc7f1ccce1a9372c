//! Which suffixes begin with a given string of a fixed length: a hash table whose every bucket is
//! one cache line.

use crate::memory::filled;
use crate::processor::prefetch;
use crate::wire::load_u64;

/// Suffixes by their ranks: `from..to`, not empty.
pub(super) type Interval = (u32, u32);

/// Where the suffixes are that begin with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is one, and it starts here in the dictionary.
    One(u32),
    Some(Interval),
    /// The interval of this number in the list of wide ones.
    Wide(u32),
}

/// Entries of a bucket.
const SLOTS: usize = 12;
/// Of 12 slots so many are used when the table is built.
const USED: usize = 9;
/// Set in the tags of a bucket of which some entries had to go into the next one.
const SPILLED: u64 = 0x80 << 56;
const LOWEST: u64 = 0x0101_0101_0101_0101;
/// Tags of the last slots.
const LAST: u64 = 0x0000_0000_ffff_ffff;

/// 12 entries, each with 7 bits of its hash. An entry: two bits for how many suffixes there are
/// (1, 2, 3, more) and 30 bits: where the one starts, the rank of the first, or a place in
/// the list of wide intervals.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// A byte each; 0 where a slot is free.
    tags: [u64; 2],
    entries: [u32; SLOTS],
}

/// The table for strings of `len` bytes, up to 8.
pub(super) struct Grams {
    len: usize,
    buckets: Vec<Bucket>,
    wide: Vec<Interval>,
}

/// A string of `len` bytes at the start of a word of eight.
#[inline(always)]
fn cut(word: u64, len: usize) -> u64 {
    word << (64 - 8 * len)
}

#[inline(always)]
fn hash(gram: u64) -> u64 {
    let mixed = gram.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// 7 bits of a hash that choose no bucket; never 0.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash & 0x7f | 0x80
}

impl Grams {
    /// `text` has at least eight bytes behind its `text_len`; `suffixes` are its suffixes in order.
    pub fn new(len: usize, text: &[u8], text_len: usize, suffixes: &[u32]) -> Grams {
        let mut count = 0;
        groups(len, text, text_len, suffixes, |_, _| count += 1);
        let buckets = filled(Bucket::default(), (count / USED + 1).next_multiple_of(2));
        let mut grams = Grams { len, buckets, wide: Vec::new() };
        // Buckets lie all over memory: ask for some before the first of them is needed.
        let mut waiting: Vec<(u64, u32)> = Vec::with_capacity(32);
        groups(len, text, text_len, suffixes, |gram, (from, to)| {
            let entry = match to - from {
                1 => suffixes[from as usize],
                n @ (2 | 3) => (n - 1) << 30 | from,
                _ => {
                    grams.wide.push((from, to));
                    3 << 30 | (grams.wide.len() - 1) as u32
                }
            };
            let hash = hash(gram);
            grams.prefetch(hash);
            waiting.push((hash, entry));
            if waiting.len() == 32 {
                waiting.drain(..).for_each(|(hash, entry)| grams.insert(hash, entry));
            }
        });
        waiting.drain(..).for_each(|(hash, entry)| grams.insert(hash, entry));
        grams
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    fn insert(&mut self, hash: u64, entry: u32) {
        let mut at = self.bucket(hash);
        loop {
            let bucket = &mut self.buckets[at];
            let free = (0..SLOTS).find(|slot| bucket.tags[slot / 8] >> (slot % 8 * 8) & 0xff == 0);
            if let Some(slot) = free {
                bucket.tags[slot / 8] |= tag(hash) << (slot % 8 * 8);
                bucket.entries[slot] = entry;
                return;
            }
            bucket.tags[1] |= SPILLED;
            at = if at + 1 == self.buckets.len() { 0 } else { at + 1 };
        }
    }

    /// The hash of the string at the start of eight bytes.
    #[inline(always)]
    pub fn hash(&self, word: u64) -> u64 {
        hash(cut(word, self.len))
    }

    /// Asks for the memory that looking up will need.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.buckets, self.bucket(hash));
    }

    /// What the table has under this hash: candidate `nth` of usually none or one, which may be
    /// another string's.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut nth: u32) -> Option<Place> {
        let (mut at, needle) = (self.bucket(hash), tag(hash) * LOWEST);
        loop {
            let bucket = &self.buckets[at];
            for (i, mask) in [u64::MAX, LAST].into_iter().enumerate() {
                // A zero byte where a tag fits; a byte of one above it may pass for one, too.
                let same = bucket.tags[i] ^ needle;
                let mut hits = same.wrapping_sub(LOWEST) & !same & LOWEST << 7 & mask;
                while hits != 0 {
                    let slot = i * 8 + hits.trailing_zeros() as usize / 8;
                    if nth == 0 {
                        return Some(Self::place(bucket.entries[slot]));
                    }
                    nth -= 1;
                    hits &= hits - 1;
                }
            }
            if bucket.tags[1] & SPILLED == 0 {
                return None;
            }
            at = if at + 1 == self.buckets.len() { 0 } else { at + 1 };
        }
    }

    #[inline(always)]
    fn place(entry: u32) -> Place {
        let value = entry & ((1 << 30) - 1);
        match entry >> 30 {
            0 => Place::One(value),
            3 => Place::Wide(value),
            n => Place::Some((value, value + n + 1)),
        }
    }

    /// Asks for a wide interval.
    #[inline(always)]
    pub fn prefetch_wide(&self, number: u32) {
        prefetch(&self.wide, number as usize);
    }

    #[inline(always)]
    pub fn wide(&self, number: u32) -> Interval {
        self.wide[number as usize]
    }
}

/// Calls `each` with every string of `len` bytes in the text and the interval of its suffixes, in
/// order.
fn groups(
    len: usize,
    text: &[u8],
    text_len: usize,
    suffixes: &[u32],
    mut each: impl FnMut(u64, Interval),
) {
    const AHEAD: usize = 32;
    let mut open: Option<(u64, u32)> = None;
    for (rank, &at) in suffixes.iter().enumerate() {
        if let Some(&later) = suffixes.get(rank + AHEAD) {
            prefetch(text, later as usize);
        }
        if text_len - (at as usize) < len {
            continue;
        }
        let gram = cut(load_u64(text, at as usize), len);
        match open {
            Some((last, _)) if last == gram => {}
            _ => {
                if let Some((last, from)) = open {
                    each(last, (from, end_of(suffixes, rank, text_len, len)));
                }
                open = Some((gram, rank as u32));
            }
        }
    }
    if let Some((last, from)) = open {
        each(last, (from, end_of(suffixes, suffixes.len(), text_len, len)));
    }
}

/// Where the interval before `rank` ends: suffixes that are too short stand before those they
/// begin.
fn end_of(suffixes: &[u32], rank: usize, text_len: usize, len: usize) -> u32 {
    let short = |rank: &usize| text_len - (suffixes[rank - 1] as usize) < len;
    let mut end = rank;
    while end > 0 && short(&end) {
        end -= 1;
    }
    end as u32
}
