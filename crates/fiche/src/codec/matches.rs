//! What encoders compare.

use crate::pages::{Pieces, fetch};
use crate::wire::load_u64;

/// The multiplier of Fibonacci hashing: 2^64 by the golden ratio, which is odd.
pub(super) const FIBONACCI: u64 = 0x9E37_79B1_85EB_CA87;

/// The eight bytes at a place.
#[inline(always)]
pub(super) fn eight(src: &impl Pieces, at: usize) -> u64 {
    load_u64(&src.load::<8>(at), 0)
}

/// How many bytes, of `most`, are the same at two places, the second behind the first.
#[inline(always)]
pub(super) fn common(src: &impl Pieces, first: usize, second: usize, most: usize) -> usize {
    let mut done = 0;
    while done < most {
        let (one, other) = (src.at(first + done), src.at(second + done));
        let len = one.len().min(other.len()).min(most - done);
        let same = same_bytes(one, other, len);
        done += same;
        if same < len {
            break;
        }
    }
    done
}

/// How many bytes, of `most`, are the same before two places, the second behind the first.
#[inline(always)]
pub(super) fn common_back(src: &impl Pieces, first: usize, second: usize, most: usize) -> usize {
    let most = most.min(first);
    let mut done = 0;
    while most - done >= 8 {
        let differing = eight(src, first - done - 8) ^ eight(src, second - done - 8);
        if differing != 0 {
            return done + differing.leading_zeros() as usize / 8;
        }
        done += 8;
    }
    while done < most && src.load::<1>(first - done - 1) == src.load::<1>(second - done - 1) {
        done += 1;
    }
    done
}

/// How many bytes of so many are the same from the front on.
#[inline(always)]
fn same_bytes(one: &[u8], other: &[u8], len: usize) -> usize {
    let (one, other) = (&one[..len], &other[..len]);
    let mut done = 0;
    while let (Some(a), Some(b)) =
        (one[done..].first_chunk::<8>(), other[done..].first_chunk::<8>())
    {
        let differing = load_u64(a, 0) ^ load_u64(b, 0);
        if differing != 0 {
            return done + differing.trailing_zeros() as usize / 8;
        }
        done += 8;
    }
    let rest = one[done..].iter().zip(&other[done..]);
    done + rest.take_while(|(a, b)| a == b).count()
}

/// Reads at places that mostly lie in one piece, and compares what is there with what was before.
pub(super) struct Cursor<'s, S> {
    src: &'s S,
    piece: &'s [u8],
    start: usize,
}

impl<'s, S: Pieces> Cursor<'s, S> {
    pub fn new(src: &'s S) -> Self {
        Cursor { src, piece: src.at(0), start: 0 }
    }

    pub fn src(&self) -> &'s S {
        self.src
    }

    /// The bytes from a place on, eight or more of them in one piece, if so many are.
    #[inline(always)]
    fn near(&self, at: usize) -> Option<&'s [u8]> {
        let bytes = self.piece.get(at.wrapping_sub(self.start)..)?;
        (bytes.len() >= 8).then_some(bytes)
    }

    /// What is read next lies around this place.
    #[inline(always)]
    pub fn seek(&mut self, at: usize) {
        if !S::IS_ONE && self.near(at).is_none() {
            self.next(at);
        }
    }

    /// The eight bytes at a place.
    #[inline(always)]
    pub fn eight(&mut self, at: usize) -> u64 {
        if S::IS_ONE {
            return eight(self.src, at);
        }
        match self.near(at) {
            Some(bytes) => load_u64(bytes, 0),
            None => self.next(at),
        }
    }

    #[cold]
    #[inline(never)]
    fn next(&mut self, at: usize) -> u64 {
        (self.piece, self.start) = (self.src.at(at), at);
        fetch(self.src.at(at + self.piece.len()));
        eight(self.src, at)
    }

    /// How many bytes up to `end` are the same from two places on, of which the second begins with these eight; none where not even they are.
    #[inline(always)]
    pub fn matched(&self, bits: u64, found: usize, at: usize, end: usize) -> usize {
        let is_one = match self.src.at(found).first_chunk::<8>() {
            Some(first) => load_u64(first, 0) == bits,
            None => eight(self.src, found) == bits,
        };
        if is_one { 8 + self.common(found + 8, at + 8, end) } else { 0 }
    }

    /// How many bytes up to `end` are the same from two places on.
    #[inline(always)]
    pub fn common(&self, first: usize, second: usize, end: usize) -> usize {
        let most = end - second;
        if S::IS_ONE {
            return common(self.src, first, second, most);
        }
        let (there, Some(here)) = (self.src.at(first), self.near(second)) else {
            return common(self.src, first, second, most);
        };
        let len = there.len().min(here.len()).min(most);
        let same = same_bytes(there, here, len);
        if same < len || len == most {
            return same;
        }
        same + common(self.src, first + len, second + len, most - len)
    }
}
