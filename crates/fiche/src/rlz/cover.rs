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
use crate::memory::filled;
use crate::parallel::in_parts;
use crate::processor::prefetch;
use crate::wire::load_u64;

/// Length of the strings that are counted.
const STRING: usize = 12;
/// Pieces start at multiples of a quarter of their length.
const STEPS: usize = 4;
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

/// Which strings are counted, and where.
#[derive(Clone, Copy)]
struct Hashing {
    bits: u32,
    /// Of so many strings one is counted, as their hash falls.
    one_in: u64,
}

impl Hashing {
    fn new(len: u64) -> Hashing {
        // Twice as many slots as strings, and no more strings than that leaves.
        let counted = (len / LEAST_ONE_IN).max(1 << 10);
        let bits = (counted * 2).ilog2().clamp(10, SLOT_BITS);
        Hashing { bits, one_in: (len >> (bits - 1)).max(LEAST_ONE_IN) }
    }

    /// The strings that start in these bytes, as far as they are counted: their slot, tag, and where
    /// they start. The last bytes start none.
    fn strings(self, bytes: &[u8]) -> impl Iterator<Item = (u32, u16, usize)> + '_ {
        let (shift, one_in) = (64 - self.bits, self.one_in);
        let count = (bytes.len() + 1).saturating_sub(STRING);
        (0..count).filter_map(move |at| {
            let head = load_u64(bytes, at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // The same ones wherever they are.
            if (head >> 48) * one_in >= 1 << 16 {
                return None;
            }
            let mixed = head ^ load_u64(bytes, at + STRING - 8).rotate_left(29);
            let hash = (mixed ^ mixed >> 32).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            Some(((hash >> shift) as u32, (hash >> 20) as u16, at))
        })
    }
}

/// A part of the collection, as far as its strings are counted.
#[derive(Default)]
struct Part {
    start: u64,
    len: usize,
    quarters: Vec<Quarter>,
    /// Slots of the strings, and their tags as long as it is not known which of them count.
    slots: Vec<u32>,
    tags: Vec<u16>,
}

/// A quarter of a piece: strings that start in it, each once.
#[derive(Clone, Copy, Default)]
struct Quarter {
    /// Where the slots of its strings end.
    end: u32,
    /// How many of them, the last ones, come only where they reach beyond it.
    beyond: u8,
    /// What it was worth when it was looked at last, and how many pieces were chosen then.
    worth: u32,
    chosen: u32,
}

/// Finds what came already in a quarter.
struct Seen {
    /// Strings, and the number of the quarter that has them.
    places: Vec<(u64, u32)>,
    quarter: u32,
}

impl Seen {
    fn new(step: usize) -> Seen {
        Seen { places: vec![(0, 0); (step * 2).next_power_of_two()], quarter: 0 }
    }

    /// True for what has not come in this quarter.
    fn is_new(&mut self, slot: u32, tag: u16) -> bool {
        let (string, mask) = (u64::from(slot) << 16 | u64::from(tag), self.places.len() - 1);
        let mut at = slot as usize & mask;
        while self.places[at].1 == self.quarter {
            if self.places[at].0 == string {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.places[at] = (string, self.quarter);
        true
    }
}

impl Part {
    /// Finds the strings that are counted of the content of this part.
    fn read(&mut self, bytes: &[u8], step: usize, hashing: Hashing, seen: &mut Seen) {
        // Of content in which one string of several comes all the time there may be more.
        let most = bytes.len() / hashing.one_in as usize * 2 + STRING;
        for from in (0..bytes.len()).step_by(step) {
            seen.quarter += 1;
            let mut beyond = 0;
            let with_last = &bytes[from..bytes.len().min(from + step + STRING - 1)];
            for (slot, tag, at) in hashing.strings(with_last) {
                if self.slots.len() < most && seen.is_new(slot, tag) {
                    self.slots.push(slot);
                    self.tags.push(tag);
                    beyond += u8::from(at + STRING > step);
                }
            }
            let end = self.slots.len() as u32;
            self.quarters.push(Quarter { end, beyond, ..Quarter::default() });
        }
        self.slots.shrink_to_fit();
        self.tags.shrink_to_fit();
    }

    /// The slots of some quarters.
    fn slots(&self, quarters: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let start = quarters.start.checked_sub(1).map_or(0, |before| self.quarters[before].end);
        start as usize..self.quarters[quarters.end - 1].end as usize
    }

    /// Keeps the strings that count, and finds what the quarters are worth.
    fn settle(&mut self, counts: &Counts) {
        let Part { quarters, slots, tags, .. } = self;
        let mut tags = std::mem::take(tags).into_iter();
        let (mut kept, mut at) = (0, 0);
        for quarter in quarters {
            let end = quarter.end as usize;
            let (beyond, mut worth) = (end - usize::from(quarter.beyond), 0);
            quarter.beyond = 0;
            for tag in tags.by_ref().take(end - at) {
                if let Some(&ahead) = slots.get(at + AHEAD) {
                    prefetch(&counts.slots, ahead as usize);
                }
                let slot = counts.slots[slots[at] as usize];
                if slot.tag == tag && slot.count > 1 {
                    worth = u32::saturating_add(worth, u32::from(slot.count - 1));
                    quarter.beyond += u8::from(at >= beyond);
                    slots[kept] = slots[at];
                    kept += 1;
                }
                at += 1;
            }
            quarter.worth = worth;
            quarter.end = kept as u32;
        }
        slots.truncate(kept);
        slots.shrink_to_fit();
    }

    /// What the quarters from this one on are worth that make a piece. It is worth no more.
    fn worth(&self, first: usize) -> u64 {
        self.quarters[first..first + STEPS].iter().map(|quarter| u64::from(quarter.worth)).sum()
    }
}

/// Slots lie all over memory: they are asked for so many strings ahead.
const AHEAD: usize = 32;

/// Counts of strings, by hash.
struct Counts {
    slots: Vec<Slot>,
}

impl Counts {
    /// Counts the strings of a part: in how many blocks each is.
    fn count(&mut self, part: &Part, step: usize) {
        for number in 0..part.quarters.len() {
            let who = ((part.start + (number * step) as u64) / NEAR) as u32;
            for at in part.slots(number..number + 1) {
                if let Some(&ahead) = part.slots.get(at + AHEAD) {
                    prefetch(&self.slots, ahead as usize);
                }
                let (slot, tag) = (&mut self.slots[part.slots[at] as usize], part.tags[at]);
                if slot.tag != tag && slot.count <= 1 {
                    // It came once, and so did this one.
                    *slot = Slot { tag, count: 1, last: who };
                } else if slot.tag == tag && slot.last != who {
                    slot.last = who;
                    slot.count = slot.count.saturating_add(1);
                }
            }
        }
    }

    /// What different strings count now.
    fn worth(&self, slots: &[u32]) -> u32 {
        slots.iter().for_each(|&slot| prefetch(&self.slots, slot as usize));
        let count = |&slot: &u32| u32::from(self.slots[slot as usize].count.saturating_sub(1));
        slots.iter().map(count).fold(0, u32::saturating_add)
    }

    /// What these strings count, each once. No two calls have the same `who`.
    fn worth_once(&mut self, slots: &[u32], who: u32) -> u64 {
        let mut sum = 0;
        for &slot in slots {
            let slot = &mut self.slots[slot as usize];
            if slot.last != who {
                slot.last = who;
                sum += u64::from(slot.count.saturating_sub(1));
            }
        }
        sum
    }

    /// These strings count no more.
    fn cover(&mut self, slots: &[u32]) {
        slots.iter().for_each(|&slot| self.slots[slot as usize].count = 0);
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

/// A range of the collection that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    /// For each byte.
    worth: u64,
}

/// The parts of a collection that are looked at: where they start, and how long they are.
fn parts(len: u64) -> impl Iterator<Item = (u64, usize)> {
    let count = len.div_ceil(PART);
    let used = count.min(MOST / PART);
    (0..used).map(move |i| {
        let start = count * i / used * PART;
        (start, PART.min(len - start) as usize)
    })
}

/// Reads the parts of a collection on so many threads.
fn read(
    collection: &dyn ReadAt,
    step: usize,
    hashing: Hashing,
    threads: usize,
) -> Result<Vec<Part>> {
    let part = |(start, len)| Part { start, len, ..Part::default() };
    let mut all: Vec<Part> = parts(collection.len()).map(part).collect();
    let results = in_parts(threads, &mut all, |some| {
        let (mut bytes, mut seen) = (Vec::new(), Seen::new(step));
        some.iter_mut().try_for_each(|part| {
            bytes.resize(part.len, 0);
            collection.read_at(part.start, &mut bytes)?;
            part.read(&bytes, step, hashing, &mut seen);
            Ok(())
        })
    });
    results.into_iter().collect::<Result<()>>()?;
    Ok(all)
}

/// Chooses pieces of `piece_len` bytes until they have `budget` bytes together, or little is left that
/// two blocks have. The most useful first; those that touch are one.
///
/// Reads the collection once, at some 500 MB/s a thread, and takes twice as long to choose: 150 MB/s in all. With pieces of 1 KiB it takes some
/// 250 MB of memory at most, of content made for it 320; with shorter ones more, at 64 bytes twice the collection.
pub(super) fn choose(
    collection: &dyn ReadAt,
    budget: u64,
    piece_len: u64,
    threads: usize,
) -> Result<Vec<Piece>> {
    let len = collection.len();
    let piece_len = piece_len.clamp(64, PART / 2).min(len.max(1));
    let step = (piece_len as usize / STEPS).max(1);
    let hashing = Hashing::new(len.min(MOST));
    let mut parts = read(collection, step, hashing, threads)?;
    let none = Slot { tag: 0, count: 0, last: u32::MAX };
    let mut counts = Counts { slots: filled(none, 1 << hashing.bits) };
    parts.iter().for_each(|part| counts.count(part, step));
    in_parts(threads, &mut parts, |some| some.iter_mut().for_each(|part| part.settle(&counts)));
    let least = (piece_len / LEAST / hashing.one_in).max(1);
    // Pieces by their part and first quarter, and what they were worth.
    let mut shelves: Vec<Vec<(u32, u32, u64)>> = vec![Vec::new(); shelf(u64::MAX) + 1];
    for (number, part) in parts.iter().enumerate() {
        for first in 0..(part.quarters.len() + 1).saturating_sub(STEPS) {
            let worth = part.worth(first);
            if worth >= least && first * step + piece_len as usize <= part.len {
                shelves[shelf(worth)].push((number as u32, first as u32, worth));
            }
        }
    }
    let mut chosen: Vec<Piece> = Vec::new();
    let (mut left, mut who) = (budget, 1u32 << 31);
    for number in (0..shelves.len()).rev() {
        // In the order of the collection: neighbours have quarters in common, and lie in one cache.
        let mut pieces = std::mem::take(&mut shelves[number]);
        pieces.sort_unstable();
        for (of, first, before) in pieces {
            if left < piece_len {
                return Ok(joined(chosen));
            }
            let (part, first) = (&mut parts[of as usize], first as usize);
            // Quarters that others were looked at for are known already, most of the time.
            let mut worth = before.min(part.worth(first));
            if shelf(worth) == number {
                for quarter in first..first + STEPS {
                    if part.quarters[quarter].chosen != chosen.len() as u32 {
                        let worth = counts.worth(&part.slots[part.slots(quarter..quarter + 1)]);
                        let quarter = &mut part.quarters[quarter];
                        quarter.worth = worth;
                        quarter.chosen = chosen.len() as u32;
                    }
                }
                worth = before.min(part.worth(first));
            }
            let mut slots = part.slots(first..first + STEPS);
            slots.end -= usize::from(part.quarters[first + STEPS - 1].beyond);
            let slots = &part.slots[slots];
            if shelf(worth) == number {
                // What two of its quarters have counts once.
                who = who.wrapping_add(1).max(1 << 31);
                worth = before.min(counts.worth_once(slots, who));
            }
            if worth >= least && shelf(worth) == number {
                counts.cover(slots);
                let start = part.start + (first * step) as u64;
                chosen.push(Piece { start, end: start + piece_len, worth });
                left -= piece_len;
            } else if worth >= least {
                shelves[shelf(worth)].push((of, first as u32, worth));
            }
        }
    }
    Ok(joined(chosen))
}

/// Bytes of memory that choosing takes at most: slots, strings of content that has twice as many of them as
/// usual, quarters, and shelves that grow by doubling.
pub(super) fn memory_for(collection: u64, piece_len: u64) -> u64 {
    let len = collection.min(MOST);
    let hashing = Hashing::new(len);
    let strings = 2 * len / hashing.one_in * 6;
    let step = (piece_len.clamp(64, PART / 2) / STEPS as u64).max(1);
    let quarters = len / step * (size_of::<Quarter>() as u64 + 2 * 16);
    (size_of::<Slot>() as u64) * (1 << hashing.bits) + strings + quarters + 2 * PART
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
    use std::collections::{BTreeSet, HashMap, HashSet};

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
        let pieces = choose(&collection, 1 << 20, 1024, 2).unwrap();
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
        let first = choose(&collection, 2048, 1024, 2).unwrap();
        assert_eq!(first.iter().map(|p| p.end - p.start).sum::<u64>(), 2048);
    }

    /// Words that follow one another in few ways, so that there are few strings.
    fn sentences(random: &mut Random, len: usize) -> Vec<u8> {
        let words: Vec<Vec<u8>> = (0..40).map(|_| random.bytes(100)).collect();
        let (mut text, mut word) = (Vec::new(), 0);
        while text.len() < len {
            text.extend(&words[word]);
            word = if random.below(8) < 5 { (word + 1) % 40 } else { (word * 7 + 3) % 40 };
        }
        text
    }

    /// Pieces by what is said above and nothing else: each is looked at whenever it may be the best. None
    /// where two strings would be counted as one.
    fn naive(bytes: &[u8], budget: u64, piece_len: usize) -> Option<Vec<Piece>> {
        let (step, hashing) = (piece_len / STEPS, Hashing::new(bytes.len() as u64));
        let (mut ids, mut slots) = (HashMap::new(), HashSet::new());
        // The number of the string that starts at each place, if it is counted; and the blocks that have it.
        let (mut strings, mut blocks) = (vec![None; bytes.len()], Vec::new());
        for (at, string) in bytes.windows(STRING).enumerate() {
            // No string lies in two parts.
            let is_within = at as u64 / PART == (at + STRING - 1) as u64 / PART;
            let Some((slot, ..)) = hashing.strings(string).next().filter(|_| is_within) else {
                continue;
            };
            let next = ids.len();
            let id = *ids.entry(string).or_insert(next);
            if id == next {
                blocks.push(HashSet::new());
                if !slots.insert(slot) {
                    return None;
                }
            }
            strings[at] = Some(id);
            blocks[id].insert((at / step * step) as u64 / NEAR);
        }
        let mut counts: Vec<u64> = blocks.iter().map(|blocks| blocks.len() as u64 - 1).collect();
        let least = (piece_len as u64 / LEAST / hashing.one_in).max(1);
        let inside = |start: usize| &strings[start..start + piece_len - (STRING - 1)];
        let worth = |start: usize, counts: &[u64]| {
            let different: HashSet<usize> = inside(start).iter().flatten().copied().collect();
            different.into_iter().map(|id| counts[id]).sum::<u64>()
        };
        let starts = (0..=bytes.len() - piece_len).step_by(step);
        let is_within =
            |&start: &usize| start as u64 / PART == (start + piece_len - 1) as u64 / PART;
        let mut shelves = vec![BTreeSet::new(); shelf(u64::MAX) + 1];
        for start in starts.filter(is_within) {
            shelves[shelf(worth(start, &counts))].insert(start);
        }
        let (mut chosen, mut left) = (Vec::new(), budget);
        for number in (0..shelves.len()).rev() {
            for start in std::mem::take(&mut shelves[number]) {
                let worth = worth(start, &counts);
                if worth < least || left < piece_len as u64 {
                    continue;
                }
                if shelf(worth) < number {
                    shelves[shelf(worth)].insert(start);
                    continue;
                }
                inside(start).iter().flatten().for_each(|&id| counts[id] = 0);
                let end = (start + piece_len) as u64;
                chosen.push(Piece { start: start as u64, end, worth });
                left -= piece_len as u64;
            }
        }
        Some(joined(chosen))
    }

    #[test]
    fn the_pieces_are_those_that_are_worth_most() {
        let mut told = 0;
        for seed in 0.. {
            let text = sentences(&mut Random(seed), 1_100_000);
            for (budget, piece_len) in [(1 << 20, 512), (2_000, 256), (1 << 20, 1024)] {
                let Some(expected) = naive(&text, budget, piece_len) else { break };
                assert!(!expected.is_empty());
                assert_eq!(choose(&text, budget, piece_len as u64, 2).unwrap(), expected);
                told += 1;
            }
            if told >= 6 {
                break;
            }
        }
    }

    #[test]
    fn the_same_is_chosen_on_any_number_of_threads() {
        let mut random = Random(4);
        let words: Vec<Vec<u8>> = (0..500).map(|_| random.bytes(150)).collect();
        let word = |_| words[random.below(500) as usize].clone();
        let collection: Vec<u8> = (0..20_000).flat_map(word).collect();
        for piece_len in [64, 1000, 1024, 1 << 19] {
            let one = choose(&collection, 100_000, piece_len, 1).unwrap();
            assert_eq!(one.is_empty(), piece_len > 100_000);
            for threads in [2, 3, 7] {
                assert_eq!(choose(&collection, 100_000, piece_len, threads).unwrap(), one);
            }
        }
    }

    #[test]
    fn a_quarter_has_each_string_once_and_a_part_not_too_many() {
        let (hashing, step) = (Hashing::new(256 << 20), 256);
        let mut seen = Seen::new(step);
        let mut strings = |bytes: &[u8]| {
            let mut part = Part { len: bytes.len(), ..Part::default() };
            part.read(bytes, step, hashing, &mut seen);
            (part.slots.len(), part.quarters.iter().map(|quarter| quarter.beyond).max())
        };
        // Zeros are a string that is counted.
        assert_eq!(strings(&vec![0; 100 * step]), (100, Some(0)));
        let noise = Random(5).bytes(2 << 20);
        let expected = noise.len() / hashing.one_in as usize;
        assert!(strings(&noise).0.abs_diff(expected) < expected / 20);
        // One string after another that is counted.
        let counted: Vec<u8> = noise
            .windows(STRING)
            .filter(|string| hashing.strings(string).next().is_some())
            .flat_map(|string| [string, &[0; STRING]].concat())
            .collect();
        let counted = &counted[..1 << 20];
        let all = hashing.strings(counted).count();
        let (some, beyond) = strings(counted);
        let most = counted.len() / hashing.one_in as usize * 2 + STRING;
        assert!(all > most && some <= most, "{all} {some} {most}");
        assert!(beyond.is_some_and(|beyond| (1..STRING as u8).contains(&beyond)));
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
        assert_eq!(choose(&noise, 1 << 20, 1024, 2).unwrap(), []);
        let runs = vec![7; 10_000];
        assert_eq!(choose(&runs, 1 << 20, 1024, 2).unwrap(), []);
        for len in [0, 1, 11, 12, 13, 1000, 1024, 1025] {
            let short = noise[..len].to_vec();
            assert_eq!(choose(&short, 1 << 20, 1024, 2).unwrap(), []);
        }
    }
}
