//! Where a piece of a block comes from: the sequences and literals without which it cannot be made.

use std::ops::Range;

use super::Sequence;
use crate::processor::{Work, prefetch, with_bit_counts};
use crate::rlz::Dictionary;

/// Sequences that follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub sequences: Range<usize>,
    /// Where in the block their text begins.
    pub at: usize,
    /// How many literals of the block are before theirs.
    pub literals: usize,
}

/// Finds what a piece needs, and keeps its memory.
#[derive(Default)]
pub(super) struct Origin {
    /// A bit for each byte of the front of the block; set where the byte is needed. One word more than that takes.
    needed: Vec<u64>,
    /// What has to be copied, the last first.
    pub runs: Vec<Run>,
    /// Of each stream of literals, how many from its start on.
    pub literals: [usize; 4],
}

/// The lowest bits, so many, up to 64.
fn lowest(count: usize) -> u64 {
    if count < 64 { !(u64::MAX << count) } else { u64::MAX }
}

impl Origin {
    /// Traces `piece` back through the sequences before its end, which make `text` bytes of the block and take `used` literals;
    /// what is behind them is literals. Of these each stream has `chunk`. Asks for what is copied out of the dictionary.
    ///
    /// ```text
    /// for (literals, len, distance) in sequences, backward:
    ///     those of its bytes that are needed: if literals, they are; if a match, the bytes a distance before are
    /// ```
    ///
    /// `None` where what is needed would be outside.
    pub fn trace(
        &mut self,
        dictionary: &Dictionary,
        sequences: &[Sequence],
        (text, used): (usize, usize),
        piece: &Range<usize>,
        chunk: usize,
    ) -> Option<()> {
        let end = piece.end;
        self.needed.clear();
        self.needed.resize(end / 64 + 2, 0);
        self.set(piece.clone());
        self.runs.clear();
        self.literals = [0; 4];
        let mut streams = Streams { number: 3, start: 3 * chunk, chunk };
        if text < end {
            let first = used + piece.start.saturating_sub(text);
            streams.need(first..used + (end - text), &mut self.literals);
        }
        let trace = Trace { origin: self, dictionary, sequences, text, used, end, streams };
        with_bit_counts(trace)
    }

    /// Needs what a sequence is made of, so far as it is needed before `end`.
    #[inline(never)]
    fn need(&mut self, at: At<'_>, end: usize, streams: &mut Streams) -> Option<()> {
        let At { dictionary, sequence, number, text, used } = at;
        let run = usize::from(sequence.literals);
        let place = text + run;
        // The match first: it may copy literals right before it.
        self.follow(dictionary, place, end.min(place + usize::from(sequence.len)), sequence)?;
        if run > 0 && self.has(text..end.min(place)) {
            streams.need(used..used + run, &mut self.literals);
        }
        match self.runs.last_mut() {
            Some(last) if last.sequences.start == number + 1 => {
                let sequences = number..last.sequences.end;
                *last = Run { sequences, at: text, literals: used };
            }
            _ => self.runs.push(Run { sequences: number..number + 1, at: text, literals: used }),
        }
        Some(())
    }

    /// Needs what a match at `place` copies to where something is needed before `end`.
    #[inline(always)]
    fn follow(
        &mut self,
        dictionary: &Dictionary,
        place: usize,
        end: usize,
        sequence: &Sequence,
    ) -> Option<()> {
        let (len, distance) = (usize::from(sequence.len), sequence.distance as usize);
        if place >= end {
            return Some(());
        }
        if distance > place {
            let from = (dictionary.len() + place).checked_sub(distance)?;
            prefetch(dictionary.padded(), from);
            prefetch(dictionary.padded(), from + len);
            return (from + len <= dictionary.len()).then_some(());
        }
        if distance == 0 {
            return None;
        }
        if distance < end - place {
            // It repeats itself.
            if self.has(place..end) {
                self.set(place - distance..place);
            }
            return Some(());
        }
        for at in (place..end).step_by(64) {
            let bits = self.window(at) & lowest(end - at);
            self.add(at - distance, bits);
        }
        Some(())
    }

    /// The bits from this one on.
    #[inline(always)]
    fn window(&self, at: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        self.needed[word] >> shift | self.needed[word + 1] << 1 << (63 - shift)
    }

    /// Sets those of 64 bits from this one on that are set in `bits`.
    #[inline(always)]
    fn add(&mut self, at: usize, bits: u64) {
        let (word, shift) = (at / 64, at % 64);
        self.needed[word] |= bits << shift;
        self.needed[word + 1] |= bits >> 1 >> (63 - shift);
    }

    fn has(&self, range: Range<usize>) -> bool {
        let Range { start, end } = range;
        (start..end).step_by(64).any(|at| self.window(at) & lowest(end - at) != 0)
    }

    fn set(&mut self, range: Range<usize>) {
        let Range { start, end } = range;
        (start..end).step_by(64).for_each(|at| self.add(at, lowest(end - at)));
    }
}

/// A sequence, its number, and how much of the block and of its literals is before it.
struct At<'a> {
    dictionary: &'a Dictionary,
    sequence: &'a Sequence,
    number: usize,
    text: usize,
    used: usize,
}

/// The loop over all sequences, few of which are needed.
struct Trace<'a> {
    origin: &'a mut Origin,
    dictionary: &'a Dictionary,
    sequences: &'a [Sequence],
    text: usize,
    used: usize,
    end: usize,
    streams: Streams,
}

impl Work for Trace<'_> {
    type Done = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        let Trace { origin, dictionary, sequences, mut text, mut used, end, mut streams } = self;
        for (number, sequence) in sequences.iter().enumerate().rev() {
            let run = usize::from(sequence.literals);
            let (behind, all) = (text, run + usize::from(sequence.len));
            text = text.checked_sub(all)?;
            used = used.wrapping_sub(run);
            if text >= end {
                continue;
            }
            let first = origin.window(text) & lowest(all);
            if first != 0 || all > 64 && origin.has(text + 64..behind.min(end)) {
                origin.need(At { dictionary, sequence, number, text, used }, end, &mut streams)?;
            }
        }
        (text == 0 && used == 0).then_some(())
    }
}

/// The streams of literals, looked at from the last to the first.
struct Streams {
    number: usize,
    start: usize,
    chunk: usize,
}

impl Streams {
    /// Needs literals that are not behind any that were needed before.
    fn need(&mut self, literals: Range<usize>, counts: &mut [usize; 4]) {
        let mut end = literals.end;
        while end > literals.start {
            while end <= self.start {
                self.number -= 1;
                self.start -= self.chunk;
            }
            // The first that is asked for of a stream is its last.
            let count = &mut counts[self.number];
            *count = (*count).max(end - self.start);
            end = self.start.max(literals.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// The same byte by byte: which sequences and how many literals of each stream the bytes of a piece come from.
    fn twin(
        dictionary_len: usize,
        sequences: &[Sequence],
        trailing: usize,
        piece: &Range<usize>,
        chunk: usize,
    ) -> (Vec<usize>, [usize; 4]) {
        enum Byte {
            Literal(usize),
            Copied(Option<usize>),
        }
        let (mut bytes, mut owners, mut used) = (Vec::new(), Vec::new(), 0);
        for (i, sequence) in sequences.iter().enumerate() {
            for _ in 0..sequence.literals {
                bytes.push(Byte::Literal(used));
                owners.push(i);
                used += 1;
            }
            for _ in 0..sequence.len {
                let from = bytes.len().checked_sub(sequence.distance as usize);
                assert!(
                    from.is_some() || sequence.distance as usize <= bytes.len() + dictionary_len
                );
                bytes.push(Byte::Copied(from));
                owners.push(i);
            }
        }
        bytes.extend((used..used + trailing).map(Byte::Literal));
        let mut todo: Vec<usize> = piece.clone().collect();
        let mut is_seen = vec![false; bytes.len()];
        let (mut of, mut counts) = (Vec::new(), [0; 4]);
        while let Some(at) = todo.pop() {
            if std::mem::replace(&mut is_seen[at], true) {
                continue;
            }
            of.extend(owners.get(at));
            match bytes[at] {
                // A run of literals is taken as a whole.
                Byte::Literal(k) => {
                    let run = owners.get(at).map_or(k..k + 1, |&i| {
                        let before = |i: usize| {
                            sequences[..i].iter().map(|s| usize::from(s.literals)).sum::<usize>()
                        };
                        before(i)..before(i + 1)
                    });
                    for k in run {
                        counts[k / chunk] = counts[k / chunk].max(k % chunk + 1);
                    }
                }
                Byte::Copied(from) => todo.extend(from),
            }
        }
        of.sort_unstable();
        of.dedup();
        (of, counts)
    }

    #[test]
    fn what_a_piece_comes_from_is_what_its_bytes_come_from() {
        let mut random = Random(77);
        let dictionary = Dictionary::new(random.text(500)).unwrap();
        for _ in 0..300 {
            let (mut sequences, mut text, mut used) = (Vec::new(), 0, 0);
            for _ in 0..random.below(60) {
                let most = [3, 20, 200][random.below(3) as usize];
                let literals = random.below(most / 2) as usize;
                text += literals;
                let mut len = random.below(most) as usize;
                // Out of the dictionary, or out of the block.
                let distance = match random.below(2) {
                    0 if text > 0 => 1 + random.below(text as u64) as usize,
                    _ => {
                        len = len.min(500);
                        text + len + random.below((500 - len) as u64 + 1) as usize
                    }
                };
                text += len;
                used += literals;
                let (literals, len) = (literals as u16, len as u16);
                sequences.push(Sequence { literals, len, distance: distance as u32 });
            }
            let trailing = random.below(20) as usize;
            let all = text + trailing;
            if all == 0 {
                continue;
            }
            let chunk = (used + trailing).div_ceil(4).max(1);
            let start = random.below(all as u64) as usize;
            let piece = start..start + 1 + random.below((all - start) as u64) as usize;
            // Sequences behind the piece are no matter.
            let mut origin = Origin::default();
            origin.trace(&dictionary, &sequences, (text, used), &piece, chunk).unwrap();
            let runs = origin.runs.iter().rev().flat_map(|run| run.sequences.clone());
            let (of, counts) = twin(500, &sequences, trailing, &piece, chunk);
            let is_needed: Vec<usize> = runs.collect();
            // One that repeats itself may take more of the bytes before it than those it needs.
            assert!(of.iter().all(|i| is_needed.contains(i)), "{of:?} {is_needed:?}");
            assert!(counts.iter().zip(origin.literals).all(|(count, own)| *count <= own));
            let repeats = sequences.iter().any(|s| s.distance < u32::from(s.len));
            if !repeats {
                assert_eq!((of, counts), (is_needed, origin.literals));
            }
            for run in &origin.runs {
                let before = &sequences[..run.sequences.start];
                let sum: usize = before.iter().map(|s| usize::from(s.literals)).sum();
                assert_eq!(run.literals, sum);
                let text: usize =
                    before.iter().map(|s| usize::from(s.literals) + usize::from(s.len)).sum();
                assert_eq!(run.at, text);
            }
        }
    }
}
