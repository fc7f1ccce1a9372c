//! Finds matches: for each place the nearest of each length that may pay.

use std::ops::Range;

use crate::memory::filled;
use crate::processor::prefetch;
use crate::wire::load_u64;

/// No place.
const NONE: u32 = u32::MAX;
/// Places that are looked at side by side.
const LANES: usize = 12;
/// Matches are compared no further.
pub(super) const LONG: u32 = 256;
/// What places of a tree have in common, at least.
const FAR: u32 = 6;
/// Steps down a tree.
const STEPS: u32 = 64;
/// Matches of a place: lengths grow.
const MATCHES: usize = 32;

/// Matches that are too short for a tree pay when they are near: of so many bytes, up to this distance, in a table of so many bits.
const NEAR: [(u32, u32, u32); 3] = [(3, 1 << 17, 16), (4, 1 << 20, 18), (5, 1 << 24, 18)];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub len: u32,
    pub distance: u32,
}

/// Matches of each place of a segment.
pub(super) struct Found {
    ends: Vec<u32>,
    matches: Vec<Match>,
}

impl Found {
    /// Those of this place of the segment: each is longer, and farther, than the one before.
    pub fn at(&self, i: usize) -> &[Match] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.matches[start as usize..self.ends[i] as usize]
    }
}

/// Looks into the text from its start to its end.
pub(super) struct Finder<'a> {
    text: &'a [u8],
    /// Two for each place: to a place whose text is less, and to one whose text is not. A tree has all places of one root,
    /// each before those that it leads to.
    links: Vec<u32>,
    /// By a hash of [`FAR`] bytes, the last place.
    roots: Vec<u32>,
    near: [Vec<u32>; 3],
}

/// Where the tables have a place.
#[derive(Clone, Copy, Default)]
struct Hashes {
    near: [u32; 3],
    root: u32,
}

/// A place on its way down a tree.
#[derive(Clone, Copy, Default)]
struct Lane {
    place: u32,
    /// The next place that it is compared with.
    node: u32,
    /// The links that lead to what is less than it and to what is not, and how many bytes all that these lead to has in common with it.
    slots: [u32; 2],
    common: [u32; 2],
    longest: u32,
    steps: u32,
    /// Its matches.
    number: usize,
}

/// Of some places, their matches.
struct Group {
    lists: [[Match; MATCHES]; LANES],
    counts: [usize; LANES],
}

impl Group {
    #[inline(always)]
    fn put(&mut self, lane: usize, found: Match) {
        let count = &mut self.counts[lane];
        // The longest is kept in any case.
        *count = (*count + 1).min(MATCHES);
        self.lists[lane][*count - 1] = found;
    }
}

/// How many bytes from `from` on, up to `most`, are the same at two places, the second of which has so many behind it.
#[inline(always)]
pub(super) fn common(text: &[u8], first: usize, second: usize, from: u32, most: u32) -> u32 {
    let mut len = from;
    while len < most {
        let (a, b) = (first + len as usize, second + len as usize);
        if b + 8 > text.len() {
            let rest = text[a..].iter().zip(&text[b..]).take((most - len) as usize);
            return len + rest.take_while(|(a, b)| a == b).count() as u32;
        }
        let differing = load_u64(text, a) ^ load_u64(text, b);
        if differing != 0 {
            return most.min(len + differing.trailing_zeros() / 8);
        }
        len += 8;
    }
    most
}

/// A hash of the first bytes of a word.
#[inline(always)]
fn hash(word: u64, bytes: u32, bits: u32) -> u32 {
    ((word << (64 - 8 * bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as u32
}

impl<'a> Finder<'a> {
    pub fn new(text: &'a [u8]) -> Finder<'a> {
        let bits = text.len().next_power_of_two().ilog2().clamp(10, 22);
        Finder {
            text,
            links: filled(NONE, 2 * text.len()),
            roots: filled(NONE, 1 << bits),
            near: NEAR.map(|(_, _, bits)| filled(NONE, 1 << bits)),
        }
    }

    #[inline(always)]
    fn hashes(&self, place: usize) -> Hashes {
        // What is that near to the end is not looked for.
        let word = if place + 8 <= self.text.len() { load_u64(self.text, place) } else { 0 };
        Hashes {
            near: NEAR.map(|(bytes, _, bits)| hash(word, bytes, bits)),
            root: hash(word, FAR, self.roots.len().ilog2()),
        }
    }

    /// The matches of the next segment.
    pub fn find(&mut self, segment: Range<usize>) -> Found {
        let places = segment.len();
        let mut found =
            Found { ends: Vec::with_capacity(places), matches: Vec::with_capacity(3 * places) };
        let mut group = Group { lists: [[Match::default(); MATCHES]; LANES], counts: [0; LANES] };
        let mut lanes = [Lane::default(); LANES];
        let mut next: [Hashes; LANES] = std::array::from_fn(|k| self.hashes(segment.start + k));
        let mut start = segment.start;
        while start < segment.end {
            let count = LANES.min(segment.end - start);
            let now = next;
            self.look_ahead(start, &now, &mut next);
            group.counts.fill(0);
            // Those whose tree another place of these is on its way down wait for it.
            let (mut running, mut waiting) = (0, 0u32);
            for (k, hashes) in now.iter().enumerate().take(count) {
                let longest = self.look_near(start + k, hashes, k, &mut group);
                if start + k + 8 > self.text.len() {
                    continue;
                }
                let node = self.roots[hashes.root as usize];
                if node != NONE && node as usize >= start {
                    waiting |= 1 << k;
                    continue;
                }
                lanes[running] = self.enter(start + k, hashes, k, longest);
                running += 1;
            }
            while running > 0 {
                let mut i = 0;
                while i < running {
                    if self.step(&mut lanes[i], &mut group) {
                        i += 1;
                    } else {
                        running -= 1;
                        lanes[i] = lanes[running];
                    }
                }
            }
            while waiting != 0 {
                let k = waiting.trailing_zeros() as usize;
                waiting &= waiting - 1;
                let longest = match group.counts[k] {
                    0 => 2,
                    n => group.lists[k][n - 1].len,
                };
                let mut lane = self.enter(start + k, &now[k], k, longest);
                while self.step(&mut lane, &mut group) {}
            }
            for (list, &count) in group.lists.iter().zip(&group.counts).take(count) {
                found.matches.extend_from_slice(&list[..count]);
                found.ends.push(found.matches.len() as u32);
            }
            start += count;
        }
        found
    }

    /// Asks for what places behind these need first, and for what these need then.
    #[inline(always)]
    fn look_ahead(&self, start: usize, now: &[Hashes; LANES], next: &mut [Hashes; LANES]) {
        for (k, hashes) in next.iter_mut().enumerate() {
            let place = start + LANES + k;
            *hashes = self.hashes(place);
            for (table, &hash) in self.near.iter().zip(&hashes.near) {
                prefetch(table, hash as usize);
            }
            prefetch(&self.roots, hashes.root as usize);
            prefetch(&self.links, 2 * place);
        }
        for hashes in now {
            let node = self.roots[hashes.root as usize];
            if node != NONE {
                prefetch(&self.links, 2 * node as usize);
                prefetch(self.text, node as usize);
            }
            let place = self.near[2][hashes.near[2] as usize];
            if place != NONE {
                prefetch(self.text, place as usize);
            }
        }
    }

    /// Looks at the last places that begin with the same few bytes. Returns the longest length.
    #[inline(always)]
    fn look_near(&mut self, place: usize, hashes: &Hashes, lane: usize, group: &mut Group) -> u32 {
        let mut longest = 2;
        let most = LONG.min((self.text.len() - place) as u32);
        for ((table, &hash), (_, limit, _)) in self.near.iter_mut().zip(&hashes.near).zip(NEAR) {
            let before = std::mem::replace(&mut table[hash as usize], place as u32);
            let distance = (place as u32).wrapping_sub(before);
            if before == NONE || distance >= limit || longest >= LONG {
                continue;
            }
            let len = common(self.text, before as usize, place, 0, most);
            if len > longest {
                longest = len;
                group.put(lane, Match { len, distance });
            }
        }
        longest
    }

    /// Makes a place the root of its tree, and lets it go down what that was.
    #[inline(always)]
    fn enter(&mut self, place: usize, hashes: &Hashes, number: usize, longest: u32) -> Lane {
        let root = &mut self.roots[hashes.root as usize];
        let place = place as u32;
        let node = std::mem::replace(root, place);
        let slots = [2 * place, 2 * place + 1];
        Lane { place, node, slots, common: [0; 2], longest, steps: STEPS, number }
    }

    /// One step down. False at the end.
    ///
    /// ```text
    /// if node is less than place: what leads to less leads to it, and it goes on with what is not less than node
    /// else:                       what leads to not less leads to it, and it goes on with what is less than node
    /// ```
    #[inline(always)]
    fn step(&mut self, lane: &mut Lane, group: &mut Group) -> bool {
        if lane.node == NONE || lane.steps == 0 {
            lane.slots.iter().for_each(|&slot| self.links[slot as usize] = NONE);
            return false;
        }
        lane.steps -= 1;
        let (node, place) = (lane.node as usize, lane.place as usize);
        let most = LONG.min((self.text.len() - place) as u32);
        let len = common(self.text, node, place, lane.common[0].min(lane.common[1]), most);
        if len > lane.longest && len >= FAR {
            lane.longest = len;
            group.put(lane.number, Match { len, distance: lane.place - lane.node });
        }
        if len >= most {
            // As good as the same: it takes its place.
            for (side, slot) in lane.slots.into_iter().enumerate() {
                self.links[slot as usize] = self.links[2 * node + side];
            }
            return false;
        }
        let is_less = self.text[node + len as usize] < self.text[place + len as usize];
        let side = usize::from(!is_less);
        self.links[lane.slots[side] as usize] = lane.node;
        lane.slots[side] = 2 * lane.node + u32::from(is_less);
        lane.common[side] = len;
        lane.node = self.links[lane.slots[side] as usize];
        if lane.node != NONE {
            prefetch(&self.links, 2 * lane.node as usize);
            let known = lane.common[0].min(lane.common[1]);
            prefetch(self.text, lane.node as usize + known as usize);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Matches are there, grow, and the longest is the longest there is, where trees are not too deep.
    #[test]
    fn matches_are_the_longest_and_their_distances_grow() {
        let mut random = Random(41);
        let mut text = Vec::new();
        while text.len() < 30_000 {
            let from = random.below(text.len() as u64 + 1) as usize;
            let count = random.below(40) as usize;
            match random.below(3) {
                0 => text.extend(random.bytes(count / 3)),
                1 => text.extend(random.text(count)),
                _ => text.extend_from_within(from..text.len().min(from + count)),
            }
        }
        let mut finder = Finder::new(&text);
        let (mut missed, mut looked) = (0, 0);
        for start in (0..text.len()).step_by(7001) {
            let segment = start..text.len().min(start + 7001);
            let found = finder.find(segment.clone());
            for place in segment {
                let matches = found.at(place - start);
                for &Match { len, distance } in matches {
                    let from = place - distance as usize;
                    assert!(
                        len >= 3 && text[from..][..len as usize] == text[place..][..len as usize]
                    );
                }
                let grow = matches.windows(2);
                assert!(
                    grow.into_iter().all(|w| w[0].len < w[1].len && w[0].distance <= w[1].distance)
                );
                if place % 17 == 0 && place + 8 <= text.len() {
                    let most = LONG.min((text.len() - place) as u32);
                    let longest = (0..place).map(|from| common(&text, from, place, 0, most)).max();
                    let longest = longest.filter(|&len| len >= FAR);
                    let own = matches.last().map(|found| found.len).filter(|&len| len >= FAR);
                    missed += usize::from(longest != own);
                    looked += 1;
                }
            }
        }
        assert!(looked > 1500 && missed * 50 < looked, "{missed} of {looked}");
    }

    #[test]
    fn what_is_common_is_told_up_to_the_end() {
        let text = b"abcabcabcabcabcXabcabcabcabcabc";
        assert_eq!(common(text, 0, 3, 0, 20), 12);
        assert_eq!(common(text, 0, 16, 0, 15), 15);
        assert_eq!(common(text, 0, 16, 2, 9), 9);
        assert_eq!(common(text, 1, 16, 0, 15), 0);
    }
}
