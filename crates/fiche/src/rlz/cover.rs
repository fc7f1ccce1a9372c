//! Chooses the pieces of a collection that cover most of what its blocks have in common.
//!
//! # How
//!
//! A string of [`STRING`] bytes counts as often as there are blocks that have it, less one. A piece is
//! worth what its strings count. The best piece is taken, its strings count no more, and so on. What pieces are worth can only become
//! less: they wait on shelves, each for what is worth an eighth more than the one below, and are looked at again when theirs is the
//! highest one. Then they are taken, or go to a lower one.
//!
//! After Liao, Petri, Moffat and Wirth, *Effective construction of relative Lempel-Ziv dictionaries*
//! (2016), who take one piece from each of as many regions as there are pieces; here all of the
//! collection competes, and a string counts blocks, because what comes twice in one
//! block the block copies from itself.

use crate::error::Result;
use crate::io::ReadAt;
use crate::processor::prefetch;
use crate::rlz::memory::filled;
use crate::wire::load_u64;

/// Length of the strings that are counted.
const STRING: usize = 12;
/// Pieces start at multiples of a quarter of their length.
const STEPS: u64 = 4;
/// Of so many strings at least one is counted.
const LEAST_ONE_IN: u64 = 2;
/// Of the strings of a piece so many come again, as if each came twice: a `LEAST`th.
const LEAST: u64 = 16;
/// Strings that come again within so many bytes count once.
const NEAR: u64 = 16 << 10;
/// The collection is read in parts of this length; of more than `MOST` bytes evenly spaced parts.
const PART: u64 = 1 << 20;
const MOST: u64 = 512 << 20;
/// Places that are counted in, at most: 2 to the power of.
const SLOT_BITS: u32 = 24;

/// What is known of the strings of one hash: of one of them.
#[derive(Clone, Copy)]
struct Slot {
    /// More of its hash.
    tag: u16,
    count: u16,
    /// Who counted it, or counted on it, last.
    last: u32,
}

/// Counts of strings, by hash.
struct Counts {
    slots: Vec<Slot>,
    found: Vec<(usize, u16)>,
    shift: u32,
    /// Of so many strings one is counted, as their hash falls.
    one_in: u64,
}

impl Counts {
    fn new(len: u64) -> Counts {
        // Twice as many slots as strings, and no more strings than that leaves.
        let counted = (len / LEAST_ONE_IN).max(1 << 10);
        let bits = (counted * 2).ilog2().clamp(10, SLOT_BITS);
        let one_in = (len >> (bits - 1)).max(LEAST_ONE_IN);
        let slots = filled(Slot { tag: 0, count: 0, last: u32::MAX }, 1 << bits);
        Counts { slots, found: Vec::new(), shift: 64 - bits, one_in }
    }

    /// The strings that start in these bytes, as far as they are counted: their slot, tag, and where
    /// they start. The last bytes start none.
    fn strings<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (usize, u16, usize)> + 'a {
        let (shift, one_in) = (self.shift, self.one_in);
        let count = (bytes.len() + 1).saturating_sub(STRING);
        (0..count).filter_map(move |at| {
            let head = load_u64(bytes, at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // The same ones wherever they are.
            if (head >> 48) * one_in >= 1 << 16 {
                return None;
            }
            let mixed = head ^ load_u64(bytes, at + STRING - 8).rotate_left(29);
            let hash = (mixed ^ mixed >> 32).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            Some(((hash >> shift) as usize, (hash >> 20) as u16, at))
        })
    }

    fn count(&mut self, slot: usize, tag: u16, who: u32) {
        let slot = &mut self.slots[slot];
        if slot.tag != tag && slot.count <= 1 {
            // It came once, and so did this one.
            *slot = Slot { tag, count: 1, last: who };
        } else if slot.tag == tag && slot.last != who {
            slot.last = who;
            slot.count = slot.count.saturating_add(1);
        }
    }

    /// What the strings of a piece count, each once. No two pieces have the same `who`.
    fn worth(&mut self, piece: &[u8], who: u32) -> u64 {
        // Slots lie all over memory: all are asked for before the first is needed.
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        for (slot, tag, _) in self.strings(piece) {
            prefetch(&self.slots, slot);
            found.push((slot, tag));
        }
        let mut sum = 0;
        for &(slot, tag) in &found {
            let slot = &mut self.slots[slot];
            if slot.tag == tag && slot.last != who {
                slot.last = who;
                sum += u64::from(slot.count.saturating_sub(1));
            }
        }
        self.found = found;
        sum
    }

    /// The strings of a piece count no more.
    fn cover(&mut self, piece: &[u8]) {
        for (slot, tag, _) in self.strings(piece) {
            if self.slots[slot].tag == tag {
                self.slots[slot].count = 0;
            }
        }
    }
}

/// What each quarter of a piece was worth when it was looked at last, and how many pieces were chosen
/// then.
struct Quarters {
    worths: Vec<(u32, u32)>,
    /// The first one of each part.
    parts: Vec<usize>,
}

impl Quarters {
    /// Those of the piece that starts here.
    fn of(&mut self, start: u64, step: usize) -> &mut [(u32, u32)] {
        let first = self.parts[(start / PART) as usize] + (start % PART) as usize / step;
        &mut self.worths[first..first + STEPS as usize]
    }
}

/// Where pieces of this worth wait: eight shelves for each power of two.
fn shelf(worth: u64) -> usize {
    match worth {
        0..8 => worth as usize,
        _ => {
            let bits = worth.ilog2() as usize;
            8 * (bits - 2) + (worth >> (bits - 3)) as usize % 8
        }
    }
}

/// The quarter that starts at `from`, and what its last strings reach beyond it.
fn quarter(bytes: &[u8], from: usize, step: usize) -> &[u8] {
    &bytes[from..bytes.len().min(from + step + STRING - 1)]
}

/// A range of the collection that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    /// For each byte.
    worth: u64,
}

/// The parts of a collection that are looked at.
fn parts(len: u64) -> impl Iterator<Item = (u64, usize)> {
    let count = len.div_ceil(PART);
    let used = count.min(MOST / PART);
    (0..used).map(move |i| {
        let start = count * i / used * PART;
        (start, PART.min(len - start) as usize)
    })
}

/// Chooses pieces of `piece_len` bytes until they have `budget` bytes together, or little is left that
/// two blocks have. The most useful first; those that touch are one.
///
/// Reads the collection twice and the pieces that come to the top again, at some 40 MB/s in all; takes 200 MB of
/// memory at most.
pub(super) fn choose(collection: &dyn ReadAt, budget: u64, piece_len: u64) -> Result<Vec<Piece>> {
    let len = collection.len();
    let piece_len = piece_len.clamp(64, PART / 2).min(len.max(1));
    let mut counts = Counts::new(len.min(MOST));
    let mut part = Vec::new();
    let read = |start: u64, len: usize, part: &mut Vec<u8>| -> Result<()> {
        part.resize(len, 0);
        collection.read_at(start, part)
    };
    for (start, len) in parts(len) {
        read(start, len, &mut part)?;
        for (slot, tag, at) in counts.strings(&part) {
            counts.count(slot, tag, ((start + at as u64) / NEAR) as u32);
        }
    }
    // Who looks at strings from here on is not a place.
    let mut who = 1u32 << 31;
    let step = (piece_len / STEPS).max(1) as usize;
    let least = (piece_len / LEAST / counts.one_in).max(1);
    let mut shelves: Vec<Vec<(u64, u64)>> = vec![Vec::new(); shelf(u64::MAX) + 1];
    let mut quarters = Quarters { worths: Vec::new(), parts: Vec::new() };
    for (start, len) in parts(len) {
        read(start, len, &mut part)?;
        let first = quarters.worths.len();
        quarters.parts.resize((start / PART) as usize + 1, first);
        for from in (0..len).step_by(step) {
            who += 1;
            let worth = counts.worth(quarter(&part, from, step), who);
            quarters.worths.push((worth.min(u32::MAX.into()) as u32, 0));
        }
        for (i, window) in quarters.worths[first..].windows(STEPS as usize).enumerate() {
            let at = start + (i * step) as u64;
            // A piece is worth no more than its quarters are.
            let worth = window.iter().map(|quarter| u64::from(quarter.0)).sum::<u64>();
            if worth >= least && at + piece_len <= start + len as u64 {
                shelves[shelf(worth)].push((at, worth));
            }
        }
    }
    let mut chosen: Vec<Piece> = Vec::new();
    let mut left = budget;
    for number in (0..shelves.len()).rev() {
        // In the order of the collection: neighbours have quarters in common, and lie in one cache.
        let mut pieces = std::mem::take(&mut shelves[number]);
        pieces.sort_unstable();
        for (start, before) in pieces {
            if left < piece_len {
                return Ok(joined(chosen));
            }
            // Quarters that others were looked at for are known already, most of the time.
            let own = quarters.of(start, step);
            let sum =
                |own: &[(u32, u32)]| own.iter().map(|quarter| u64::from(quarter.0)).sum::<u64>();
            let mut worth = before.min(sum(own));
            if shelf(worth) == number {
                let end = (start / PART * PART + PART).min(len);
                let with_last = (piece_len + STRING as u64 - 1).min(end - start);
                read(start, with_last as usize, &mut part)?;
                for (i, slot) in own.iter_mut().enumerate() {
                    if slot.1 != chosen.len() as u32 {
                        who = who.wrapping_add(1).max(1 << 31);
                        let worth = counts.worth(quarter(&part, i * step, step), who);
                        *slot = (worth.min(u32::MAX.into()) as u32, chosen.len() as u32);
                    }
                }
                worth = before.min(sum(own));
            }
            if shelf(worth) == number {
                // What two of its quarters have counts once.
                part.truncate(piece_len as usize);
                who = who.wrapping_add(1).max(1 << 31);
                worth = before.min(counts.worth(&part, who));
            }
            if worth >= least && shelf(worth) == number {
                counts.cover(&part);
                chosen.push(Piece { start, end: start + piece_len, worth });
                left -= piece_len;
            } else if worth >= least {
                shelves[shelf(worth)].push((start, worth));
            }
        }
    }
    Ok(joined(chosen))
}

/// Makes those that touch or overlap one; the most useful first.
fn joined(mut chosen: Vec<Piece>) -> Vec<Piece> {
    chosen.sort_by_key(|piece| piece.start);
    let mut joined: Vec<Piece> = Vec::with_capacity(chosen.len());
    for piece in chosen {
        match joined.last_mut() {
            Some(last) if piece.start <= last.end => {
                last.end = last.end.max(piece.end);
                last.worth += piece.worth;
            }
            _ => joined.push(piece),
        }
    }
    joined
        .iter_mut()
        .for_each(|piece| piece.worth = (piece.worth << 10) / (piece.end - piece.start));
    joined.sort_by_key(|piece| (std::cmp::Reverse(piece.worth), piece.start));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn what_blocks_have_in_common_is_chosen_and_nothing_twice() {
        let mut random = Random(8);
        let (often, rarely) = (random.bytes(2048), random.bytes(2048));
        let mut collection = Vec::new();
        for i in 0..64 {
            collection.extend(random.bytes(30_000));
            collection.extend(&often);
            if i % 16 == 0 {
                collection.extend(&rarely);
            }
        }
        let pieces = choose(&collection, 1 << 20, 1024).unwrap();
        let text = |piece: &Piece| collection[piece.start as usize..piece.end as usize].to_vec();
        let dictionary: Vec<u8> = pieces.iter().flat_map(text).collect();
        // Pieces start at multiples of 256: a little of what is around them comes along.
        assert!((4096..4096 + 4096).contains(&dictionary.len()), "{}", dictionary.len());
        let has = |text: &[u8]| {
            text.windows(64).step_by(64).filter(|w| dictionary.windows(64).any(|d| d == *w)).count()
        };
        assert!(has(&often) >= 31 && has(&rarely) >= 31);
        // The more useful comes first.
        let is_of =
            |text: &[u8]| text.windows(64).any(|w| dictionary[..1024].windows(64).any(|d| d == w));
        assert!(is_of(&often) && !is_of(&rarely));
        let first = choose(&collection, 2048, 1024).unwrap();
        assert_eq!(first.iter().map(|p| p.end - p.start).sum::<u64>(), 2048);
    }

    #[test]
    fn a_shelf_is_for_what_differs_by_an_eighth() {
        let worths = (0..2000).chain((11..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, u64::MAX]));
        let mut shelves: Vec<(u64, usize)> = worths.map(|worth| (worth, shelf(worth))).collect();
        shelves.sort_unstable();
        for two in shelves.windows(2) {
            assert!(two[0].1 <= two[1].1, "{two:?}");
        }
        for &(worth, number) in &shelves {
            let least = shelves.iter().find(|other| other.1 == number).unwrap().0;
            assert!(worth - least <= least / 8, "{worth} and {least}");
        }
    }

    #[test]
    fn nothing_is_chosen_where_nothing_comes_again() {
        let noise = Random(9).bytes(300_000);
        assert_eq!(choose(&noise, 1 << 20, 1024).unwrap(), []);
        let runs = vec![7; 10_000];
        assert_eq!(choose(&runs, 1 << 20, 1024).unwrap(), []);
        for len in [0, 1, 11, 12, 13, 1000, 1024, 1025] {
            let short = noise[..len].to_vec();
            assert_eq!(choose(&short, 1 << 20, 1024).unwrap(), []);
        }
    }
}
