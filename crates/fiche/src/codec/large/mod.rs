//! Frames of Zstandard's of some MiB, whose matches are found and chosen here: about as small as its level 19 makes them, in
//! little more than half of the time, and by two threads in less.
//!
//! Its level 19 walks down a tree of all that begins with the same four bytes, for each place, one step after the other, and each waits
//! for memory. Here trees are of what has six bytes in common, those of neighbouring places are walked down side by side, and shorter matches,
//! which pay only when they are near, are looked up in tables. The cheapest way through it all is sought in segments,
//! each by itself, while another thread finds the matches of the next. What it writes does not depend on how many threads there are.

mod find;
mod parse;

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use super::prepared::{Encoder, Phrase};
use super::zstd::unpack_section;
use find::{Finder, Found};
use parse::Parser;

/// What is parsed by itself: so long that learning anew what matches cost is no matter.
const SEGMENT: usize = 1 << 20;
/// What is shorter is left to the C library.
const LEAST: usize = 1 << 20;
/// Places are 32 bits, two links for each.
const MOST: usize = 1 << 30;

/// The bytes as a frame, which is decoded again to see that it is; `None` where it is not shorter, or this is not for so few bytes.
pub(crate) fn compress(bytes: &[u8], threads: usize) -> Option<Vec<u8>> {
    if !(LEAST..=MOST).contains(&bytes.len()) {
        return None;
    }
    let phrases = phrases(bytes, threads)?;
    let mut packed = vec![0; bytes.len() - 1];
    let len = Encoder::of_phrases(bytes.len()).ok()?.write(bytes, phrases, &mut packed)?;
    packed.truncate(len);
    // Whatever is wrong with what was found here, nobody's bytes are to depend on it.
    (unpack_section(&packed, bytes.len())? == bytes).then_some(packed)
}

/// The cheapest phrases; `None` where there is no other thread.
fn phrases(bytes: &[u8], threads: usize) -> Option<Vec<Phrase>> {
    let starts = (0..bytes.len()).step_by(SEGMENT);
    let segments = starts.map(|start| start..bytes.len().min(start + SEGMENT));
    let (mut finder, mut parser, mut joined) =
        (Finder::new(bytes), Parser::default(), Joined::default());
    let mut parse = |(segment, found): (Range<usize>, Found)| {
        let literals = parser.parse(bytes, segment, &found);
        joined.push(&parser.phrases, literals);
    };
    let found = segments.map(move |segment| (segment.clone(), finder.find(segment)));
    if threads < 2 {
        found.for_each(parse);
    } else {
        thread::scope(|scope| {
            // One segment is parsed, one waits, and of one the matches are found.
            let (sender, receiver) = mpsc::sync_channel(1);
            let find = move || found.map(|segment| sender.send(segment)).all(|sent| sent.is_ok());
            thread::Builder::new().spawn_scoped(scope, find).ok()?;
            receiver.into_iter().for_each(&mut parse);
            Some(())
        })?;
    }
    Some(joined.phrases)
}

/// Phrases of segments, one behind the other.
#[derive(Default)]
struct Joined {
    phrases: Vec<Phrase>,
    /// Literals behind the last of them.
    literals: u32,
}

impl Joined {
    fn push(&mut self, phrases: &[Phrase], literals: u32) {
        for phrase in phrases {
            let before = std::mem::take(&mut self.literals) + phrase.literals;
            match self.phrases.last_mut() {
                // A match that was cut goes on.
                Some(last) if before == 0 && last.distance == phrase.distance => {
                    last.len += phrase.len;
                }
                _ => self.phrases.push(Phrase { literals: before, ..*phrase }),
            }
        }
        self.literals += literals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Text that comes again near and far, and not at all, with runs.
    fn text(random: &mut Random, len: usize) -> Vec<u8> {
        let mut text = random.text(2000);
        while text.len() < len {
            let count = [4, 12, 300][random.below(3) as usize];
            let count = 1 + random.below(count) as usize;
            match random.below(8) {
                0 => text.extend(random.bytes(count / 4)),
                1 => text.extend(random.text(count)),
                2 => text.extend(std::iter::repeat_n(random.below(4) as u8, 3 * count)),
                3 => {
                    let from = text.len() - 1 - random.below(50) as usize;
                    (from..from + count).for_each(|at| text.push(text[at]));
                }
                _ => {
                    let from =
                        random.below((text.len() - count.min(text.len() - 1)) as u64) as usize;
                    (from..from + count).for_each(|at| text.push(text[at]));
                }
            }
        }
        text.truncate(len);
        text
    }

    fn made_of(phrases: &[Phrase], bytes: &[u8]) -> Vec<u8> {
        let mut made: Vec<u8> = Vec::new();
        for &Phrase { literals, len, distance } in phrases {
            let at = made.len();
            made.extend_from_slice(&bytes[at..at + literals as usize]);
            assert!(len >= 3);
            for _ in 0..len {
                made.push(made[made.len() - distance as usize]);
            }
        }
        made.extend_from_slice(&bytes[made.len()..]);
        made
    }

    #[test]
    fn phrases_say_what_they_were_made_of_however_many_threads_there_are() {
        let mut random = Random(8);
        for len in [LEAST, LEAST + 1, SEGMENT + 7, 2 * SEGMENT + 300_000] {
            let bytes = text(&mut random, len);
            let one = phrases(&bytes, 1).unwrap();
            assert!(made_of(&one, &bytes) == bytes);
            assert!(phrases(&bytes, 2).unwrap() == one);
            let packed = compress(&bytes, 2).unwrap();
            assert!(unpack_section(&packed, len).unwrap() == bytes);
            let theirs = Encoder::with_window(19, 22).unwrap().compress(&bytes, &mut vec![0; len]);
            assert!(packed.len() < theirs.unwrap() / 100 * 102, "{} {theirs:?}", packed.len());
        }
    }

    #[test]
    fn what_does_not_shrink_or_is_short_is_left_alone() {
        let mut random = Random(9);
        assert_eq!(compress(&random.bytes(LEAST), 2), None);
        assert_eq!(compress(&vec![0; LEAST - 1], 1), None);
        let zeros = compress(&vec![0; LEAST + 9], 1).unwrap();
        assert!(
            zeros.len() < 200 && unpack_section(&zeros, LEAST + 9).unwrap() == vec![0; LEAST + 9]
        );
    }
}
