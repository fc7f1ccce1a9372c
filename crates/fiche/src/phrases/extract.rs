//! Recursive extraction: a few bytes of a unit, by way of the phrases they come from and no others.
//!
//! ```text
//! extract(at, len):
//!     while len > 0:
//!         p = the phrase that holds `at`; n = what of `len` is in it
//!         literals: put n bytes
//!         a copy:   extract(source of p + (at - start of p), n)
//!         at += n, len -= n
//! ```
//!
//! The loop below is that without recursion: what is left to do after a copy lies on a stack. All bytes are put in
//! their order, so `out[..done]` is always the content from `start` on: it is the memory of what was extracted,
//! and a copy from there goes no further back. So is what a task has put since it began: that makes copies that
//! overlap themselves one copy of a period.
//!
//! Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in Compression Enabled Storage Systems*,
//! section 2.1.

use crate::error::{Error, Result};
use crate::processor::{Work, with_bit_counts};

/// A phrase: bytes `start..end` of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phrase {
    pub start: u32,
    pub end: u32,
    pub from: From,
}

/// Where the bytes of a phrase come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The literals from this one on.
    Literals(u32),
    /// The content from this byte on, which is before the phrase; it may reach into the phrase.
    Copy(u32),
}

/// A unit whose phrases can be found.
pub(super) trait Phrases {
    /// Where a phrase is, so that the next one is found faster.
    type Seat: Copy;

    /// The phrase that holds a byte of the unit.
    fn phrase_of(&mut self, at: u32) -> Result<(Self::Seat, Phrase)>;
    /// The one behind it, which there is.
    fn next(&mut self, seat: Self::Seat) -> Result<(Self::Seat, Phrase)>;
    /// So many literals.
    fn literals(&self, from: u32, len: usize) -> Option<&[u8]>;
    /// The error that says that the phrases cannot be right.
    fn corrupt(&self) -> Error;
    /// What finding them has cost beside a step for each, in steps.
    fn extra(&self) -> u32 {
        0
    }
}

/// What is left to do: `left` bytes from `at` on, the first of them in this phrase or just behind it. The bytes from
/// `begin` to `at` were the last that were put.
struct Task<S> {
    begin: u32,
    at: u32,
    left: u32,
    seat: S,
    phrase: Phrase,
}

/// Fewer bytes say little of what others take.
const AHEAD: usize = 32;

/// What an extraction took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Pieces that were put, each from one phrase, phrases that were looked for, and what that cost.
    pub pieces: u32,
    /// Bytes of the stack, at its highest.
    pub stack: usize,
}

/// Fills `out` with the bytes of the unit from `start` on, all of which it has, in no more than about so many
/// steps; `None` where that is too few, or seems to be when an eighth is done.
pub(super) fn extract<P: Phrases>(
    unit: &mut P,
    start: u32,
    out: &mut [u8],
    most: u32,
) -> Result<Option<Steps>> {
    with_bit_counts(Extraction { unit, start, out, most })
}

struct Extraction<'a, P> {
    unit: &'a mut P,
    start: u32,
    out: &'a mut [u8],
    most: u32,
}

impl<P: Phrases> Work for Extraction<'_, P> {
    type Done = Result<Option<Steps>>;

    #[inline(always)]
    fn run(self) -> Self::Done {
        run(self.unit, self.start, self.out, self.most)
    }
}

/// A task that begins at this byte.
#[inline(always)]
fn find<P: Phrases>(unit: &mut P, at: u32, left: u32) -> Result<Task<P::Seat>> {
    let (seat, phrase) = unit.phrase_of(at)?;
    if at < phrase.start || at >= phrase.end {
        return Err(unit.corrupt());
    }
    Ok(Task { begin: at, at, left, seat, phrase })
}

#[inline(always)]
fn run<P: Phrases>(unit: &mut P, start: u32, out: &mut [u8], most: u32) -> Result<Option<Steps>> {
    let mut steps = Steps::default();
    let mut stack: Vec<Task<P::Seat>> = Vec::new();
    let mut done = 0usize;
    if out.is_empty() {
        return Ok(Some(steps));
    }
    // Where a look ahead may say that it will be too much.
    let mut check = (out.len() / 8).max(AHEAD);
    let mut task = find(unit, start, out.len() as u32)?;
    loop {
        if task.left == 0 {
            match stack.pop() {
                Some(before) => task = before,
                None => {
                    steps.pieces = steps.pieces.saturating_add(unit.extra());
                    return Ok(Some(steps));
                }
            }
        }
        if task.at >= task.phrase.end {
            let end = task.phrase.end;
            (task.seat, task.phrase) = unit.next(task.seat)?;
            if task.phrase.start != end || task.phrase.end <= end {
                return Err(unit.corrupt());
            }
        }
        steps.pieces = steps.pieces.saturating_add(1);
        let cost = steps.pieces.saturating_add(unit.extra());
        if cost > most {
            return Ok(None);
        }
        if done >= check {
            check = usize::MAX;
            if u64::from(cost) * out.len() as u64 > u64::from(most) * done as u64 {
                return Ok(None);
            }
        }
        let Phrase { start: first, end, from } = task.phrase;
        let inside = task.at - first;
        let mut n = task.left.min(end - task.at);
        match from {
            From::Literals(from) => {
                let from = from.checked_add(inside).ok_or_else(|| unit.corrupt())?;
                let bytes = unit.literals(from, n as usize).ok_or_else(|| unit.corrupt())?;
                out[done..done + bytes.len()].copy_from_slice(bytes);
                done += n as usize;
            }
            From::Copy(source) if source >= first => return Err(unit.corrupt()),
            From::Copy(source) => {
                let distance = first - source;
                if task.at - task.begin >= distance {
                    repeat(out, done, distance as usize, n as usize);
                    done += n as usize;
                } else {
                    // The first of the places that this byte is copied from, where the phrase overlaps itself.
                    let from = source + inside % distance;
                    n = n.min(first - from);
                    if from >= start {
                        // Whatever is copied is before the byte that is put next.
                        repeat(out, done, done - (from - start) as usize, n as usize);
                        done += n as usize;
                    } else {
                        (task.at, task.left) = (task.at + n, task.left - n);
                        let below = find(unit, from, n)?;
                        let above = std::mem::replace(&mut task, below);
                        if above.left > 0 {
                            stack.push(above);
                            let bytes = stack.capacity() * size_of::<Task<P::Seat>>();
                            steps.stack = steps.stack.max(bytes);
                        }
                        steps.pieces = steps.pieces.saturating_add(1);
                        continue;
                    }
                }
            }
        }
        (task.at, task.left) = (task.at + n, task.left - n);
    }
}

/// Copies `len` bytes to `at` from `distance` before, from where they repeat if there are fewer.
#[inline]
pub(super) fn repeat(out: &mut [u8], mut at: usize, distance: usize, len: usize) {
    let (start, end) = (at - distance, at + len);
    while at < end {
        let step = (at - start).min(end - at);
        out.copy_within(start..start + step, at);
        at += step;
    }
}

/// The same; what follows those bytes may be written, too, and is fast where they are few.
#[inline(always)]
pub(super) fn copy(out: &mut [u8], at: usize, distance: usize, len: usize) {
    if len > 64 || at + 72 > out.len() {
        repeat(out, at, distance, len);
    } else if distance >= 32 {
        let from = at - distance;
        out.copy_within(from..from + 32, at);
        if len > 32 {
            out.copy_within(from + 32..from + 64, at + 32);
        }
    } else {
        // A multiple of the period that is as long as a step.
        let (mut next, mut back) = (at, distance);
        if distance < 8 {
            (0..8).for_each(|i| out[at + i] = out[at + i - distance]);
            (next, back) = (at + 8, distance * 8usize.div_ceil(distance));
        }
        while next < at + len {
            out.copy_within(next - back..next - back + 8, next);
            next += 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::testing::Random;

    /// Phrases in a row, one of which is found by going through them.
    struct Plain {
        phrases: Vec<Phrase>,
        literals: Vec<u8>,
    }

    impl Phrases for Plain {
        type Seat = usize;

        fn phrase_of(&mut self, at: u32) -> Result<(usize, Phrase)> {
            let i = self.phrases.iter().position(|p| p.end > at).ok_or_else(|| self.corrupt())?;
            Ok((i, self.phrases[i]))
        }
        fn next(&mut self, seat: usize) -> Result<(usize, Phrase)> {
            let phrase = *self.phrases.get(seat + 1).ok_or_else(|| self.corrupt())?;
            Ok((seat + 1, phrase))
        }
        fn literals(&self, from: u32, len: usize) -> Option<&[u8]> {
            self.literals.get(from as usize..from as usize + len)
        }
        fn corrupt(&self) -> Error {
            Error::Corrupt { what: "phrases", at: Place::Pos(0) }
        }
    }

    /// Phrases of all kinds, among them copies that overlap themselves, and what they mean byte by byte.
    fn phrases(random: &mut Random) -> (Plain, Vec<u8>) {
        let (mut unit, mut content) = (Plain { phrases: Vec::new(), literals: Vec::new() }, vec![]);
        for _ in 0..1 + random.below(60) {
            let start = content.len();
            let most = if random.below(4) == 0 { 100 } else { 12 };
            let len = 1 + random.below(most) as usize;
            let from = if start == 0 || random.below(3) == 0 {
                let from = unit.literals.len();
                unit.literals.extend(random.bytes(len));
                content.extend_from_slice(&unit.literals[from..]);
                From::Literals(from as u32)
            } else {
                let near = start.min(if random.below(2) == 0 { 4 } else { start });
                let source = start - 1 - random.below(near as u64) as usize;
                (0..len).for_each(|i| content.push(content[source + i]));
                From::Copy(source as u32)
            };
            unit.phrases.push(Phrase { start: start as u32, end: content.len() as u32, from });
        }
        (unit, content)
    }

    /// Figure 1 of the paper, word for word.
    fn extract_segment(unit: &mut Plain, start: u32, len: u32, out: &mut Vec<u8>) {
        if len == 0 {
            return;
        }
        let (_, phrase) = unit.phrase_of(start).unwrap();
        let offset = start - phrase.start;
        match phrase.from {
            From::Literals(from) => {
                out.extend(unit.literals(from + offset, 1).unwrap());
                extract_segment(unit, start + 1, len - 1, out);
            }
            From::Copy(source) => {
                let left_over = phrase.end - phrase.start - offset;
                extract_segment(unit, source + offset, left_over.min(len), out);
                extract_segment(unit, start + left_over, len.saturating_sub(left_over), out);
            }
        }
    }

    #[test]
    fn any_range_is_what_the_phrases_mean() {
        let mut random = Random(3);
        for _ in 0..3000 {
            let (mut unit, content) = phrases(&mut random);
            for _ in 0..6 {
                let start = random.below(content.len() as u64) as usize;
                let len = random.below((content.len() - start) as u64 + 1) as usize;
                let mut out = vec![0; len];
                let steps = extract(&mut unit, start as u32, &mut out, u32::MAX).unwrap().unwrap();
                assert!(out == content[start..start + len]);
                assert!(len == 0 || steps.pieces > 0);
                let mut twin = Vec::new();
                extract_segment(&mut unit, start as u32, len as u32, &mut twin);
                assert!(twin == out);
                // Compiled for any processor it does the same.
                let mut plain = vec![0; len];
                let same = run(&mut unit, start as u32, &mut plain, u32::MAX).unwrap();
                assert!(plain == out && same == Some(steps));
                // With one step less than it takes it is given up, with as many it is not, as far as the look
                // ahead goes.
                if let Some(fewer) = steps.pieces.checked_sub(1) {
                    assert!(extract(&mut unit, start as u32, &mut out, fewer).unwrap().is_none());
                }
                if len <= AHEAD {
                    let found = extract(&mut unit, start as u32, &mut out, steps.pieces).unwrap();
                    assert_eq!(found, Some(steps));
                }
            }
        }
    }

    #[test]
    fn a_period_is_followed_once() {
        let literals = b"ab".to_vec();
        let phrases = vec![
            Phrase { start: 0, end: 2, from: From::Literals(0) },
            Phrase { start: 2, end: 100_000, from: From::Copy(0) },
        ];
        let mut unit = Plain { phrases, literals };
        let mut out = vec![0; 50_001];
        let steps = extract(&mut unit, 40_001, &mut out, u32::MAX).unwrap().unwrap();
        assert!(out.chunks(2).all(|pair| pair == &b"ba"[..pair.len()]));
        assert!(steps.pieces < 10, "{steps:?}");
    }

    #[test]
    fn phrases_that_lead_nowhere_are_refused() {
        let bad = |phrases: Vec<Phrase>| {
            let mut unit = Plain { phrases, literals: vec![7; 4] };
            assert!(matches!(
                extract(&mut unit, 5, &mut [0; 4], u32::MAX),
                Err(Error::Corrupt { .. })
            ));
        };
        let literals = |start, end, from| Phrase { start, end, from: From::Literals(from) };
        let copy = |start, end, from| Phrase { start, end, from: From::Copy(from) };
        // From itself, from behind itself, literals that are not there, a hole, and no end.
        bad(vec![literals(0, 4, 0), copy(4, 12, 4)]);
        bad(vec![literals(0, 4, 0), copy(4, 12, 9)]);
        bad(vec![literals(0, 12, 0)]);
        bad(vec![literals(0, 12, u32::MAX)]);
        bad(vec![literals(0, 4, 0), copy(4, 7, 0), copy(8, 12, 0)]);
        bad(vec![literals(0, 4, 0), copy(4, 7, 0)]);
    }
}
