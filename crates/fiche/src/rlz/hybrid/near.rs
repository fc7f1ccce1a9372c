//! Finds what a block has in common with itself.

use crate::rlz::matcher::common;

/// A match with what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub len: u32,
    pub distance: u32,
}

/// Matches are found by their first three bytes.
const LEAST: usize = 3;
/// What has so many bytes in common is held to be the same: else a block of one byte over and over would be compared with itself from each
/// place on to its end.
pub(super) const DEEP: usize = 1024;
const NONE: u32 = u32::MAX;
const HASH_BITS: u32 = 15;

/// The places of a block so far in binary trees, one for each hash of three bytes, the latest place
/// on top: below it, those whose text is less are on the left.
pub(super) struct Near {
    tops: Vec<u32>,
    /// Left and right of each place.
    below: Vec<[u32; 2]>,
    /// How many places are looked at.
    depth: u32,
}

impl Near {
    pub fn new(depth: u32) -> Near {
        Near { tops: vec![NONE; 1 << HASH_BITS], below: Vec::new(), depth }
    }

    /// Forgets everything, and makes room for a block of this length.
    pub fn start(&mut self, len: usize) {
        self.tops.fill(NONE);
        self.below.resize(self.below.len().max(len), [NONE; 2]);
    }

    /// Finds matches at `at`, up to [`DEEP`] bytes of each, each longer than the one before and the nearest of its length, and
    /// puts the place among the others. Places come in order, each once.
    pub fn find(&mut self, text: &[u8], at: usize, found: &mut Vec<Match>) {
        found.clear();
        let rest = &text[at..text.len().min(at + DEEP)];
        let &[a, b, c, ..] = rest else { return };
        let key = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
        let hash = (key.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize;
        let mut place = std::mem::replace(&mut self.tops[hash], at as u32);
        // Where the next place that is less, or is not, is to be hung.
        let (mut less, mut more) = ((at, 0), (at, 1));
        let (mut less_len, mut more_len, mut best) = (0, 0, LEAST - 1);
        for _ in 0..self.depth {
            if place == NONE {
                break;
            }
            let before = place as usize;
            let known = less_len.min(more_len);
            let len = known + common(&text[before + known..], &rest[known..]);
            if len > best {
                best = len;
                found.push(Match { len: len as u32, distance: (at - before) as u32 });
                if len == rest.len() {
                    // Nothing tells them apart: this one takes the other's place.
                    self.below[less.0][less.1] = self.below[before][0];
                    self.below[more.0][more.1] = self.below[before][1];
                    return;
                }
            }
            if len < rest.len() && text[before + len] < rest[len] {
                self.below[less.0][less.1] = place;
                less = (before, 1);
                less_len = len;
                place = self.below[before][1];
            } else {
                self.below[more.0][more.1] = place;
                more = (before, 0);
                more_len = len;
                place = self.below[before][0];
            }
        }
        self.below[less.0][less.1] = NONE;
        self.below[more.0][more.1] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn every_match_is_the_nearest_of_its_length() {
        let mut random = Random(3);
        let texts = [
            (0..3000).map(|_| random.below(3) as u8).collect::<Vec<u8>>(),
            random.text(3000),
            vec![7; 3000],
            b"abcd".repeat(200),
        ];
        for text in texts {
            let mut near = Near::new(u32::MAX);
            near.start(text.len());
            let mut found = Vec::new();
            for at in 0..text.len() {
                near.find(&text, at, &mut found);
                let mut naive: Vec<Match> = Vec::new();
                for before in (0..at).rev() {
                    let same = text[before..].iter().zip(&text[at..]).take_while(|(a, b)| a == b);
                    let len = same.take(DEEP).count() as u32;
                    if len >= 3 && naive.last().is_none_or(|m| m.len < len) {
                        naive.push(Match { len, distance: (at - before) as u32 });
                    }
                }
                assert_eq!(found, naive, "at {at}");
            }
        }
    }
}
