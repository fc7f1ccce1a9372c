//! The literals of a block.

use super::super::Sequence;
use super::super::codes::{CONTEXTS, LITERAL_BITS, Tables};
use super::super::kernel::{self, MARK, STRIDE, Stream};
use super::Fields;
use crate::model::{Bits, LONG, Padded, Words};

/// Decodes of each stream the first literals, as many as are counted, to where they stand among all,
/// with a margin behind these. A pair of streams that is decoded wholly has to end where it should.
pub fn read_literals<const KERNEL: bool>(
    tables: &Tables,
    fields: &Fields,
    padded: &Padded,
    counts: [usize; 4],
    literals: &mut Vec<u8>,
) -> Option<()> {
    let (from, middle, to) = (fields.ends[1], fields.ends[2], fields.ends[3]);
    let (chunk, all) = (fields.chunk(), fields.literals);
    if literals.len() < all + STRIDE {
        literals.resize(all + STRIDE, 0);
    }
    let literals = &mut literals[..all];
    if fields.raw {
        let last = counts.iter().rposition(|&count| count > 0);
        let end = last.map_or(0, |last| last * chunk + counts[last]).min(all);
        literals[..end].copy_from_slice(&padded.bytes()[from..from + end]);
        return Some(());
    }
    let mut one = (Literals::<false>::new(tables, from), Literals::<true>::new(tables, middle));
    let mut two = (Literals::<false>::new(tables, middle), Literals::<true>::new(tables, to));
    let mut done = [0; 4];
    if KERNEL && counts[2].max(counts[3]) > 0 {
        // Streams are decoded side by side in the time of one.
        let most = counts.into_iter().max().unwrap_or(0);
        let (a, b) = (&mut one, &mut two);
        let mut four = [a.0.stream(), a.1.stream(), b.0.stream(), b.1.stream()];
        done = [kernel::literals(padded, tables, &mut four, literals, chunk, most); 4];
        a.0.go_to(four[0]);
        a.1.go_to(four[1]);
        b.0.go_to(four[2]);
        b.1.go_to(four[3]);
    } else if KERNEL {
        let most = counts[0].max(counts[1]);
        let mut pair = [one.0.stream(), one.1.stream()];
        let front = &mut literals[..all.min(2 * chunk)];
        done[..2].fill(kernel::pair(padded, tables, &mut pair, front, chunk, most));
        one.0.go_to(pair[0]);
        one.1.go_to(pair[1]);
    }
    let bytes = padded.words();
    let mut pieces = literals.chunks_mut(chunk).zip(counts.into_iter().zip(done));
    // What is left to do of the next stream, and whether that is all of it.
    let mut next = || match pieces.next() {
        Some((piece, (count, done))) => {
            let is_whole = count >= piece.len();
            let end = count.min(piece.len()).max(done);
            (&mut piece[done..end], is_whole)
        }
        None => (Default::default(), true),
    };
    let mut fits = true;
    for pair in [&mut one, &mut two] {
        let (rest, is_whole) = next();
        pair.0.fill(bytes, rest);
        let (rest, both) = next();
        pair.1.fill(bytes, rest);
        fits &= !(is_whole && both) || pair.0.bits.byte() == pair.1.bits.byte();
    }
    fits.then_some(())
}

/// How many literals the first `end` bytes of a block need.
pub fn literals_until(sequences: &[Sequence], end: usize, all: usize) -> usize {
    let (mut at, mut literals) = (0, 0);
    for sequence in sequences {
        if at >= end {
            return literals.min(all);
        }
        literals += usize::from(sequence.literals);
        at += usize::from(sequence.literals) + usize::from(sequence.len);
    }
    (literals + end.saturating_sub(at)).min(all)
}

/// Reads literals.
#[derive(Clone, Copy)]
struct Literals<'a, const BACKWARD: bool> {
    tables: &'a Tables,
    bits: Bits<BACKWARD>,
    /// The table of the next one.
    table: u16,
}

impl<'a, const BACKWARD: bool> Literals<'a, BACKWARD> {
    fn new(tables: &'a Tables, at: usize) -> Self {
        Literals { tables, bits: Bits::new(at), table: u16::from(tables.first) }
    }

    fn stream(&self) -> Stream {
        Stream { at: self.bits.pos(), table: self.table }
    }

    fn go_to(&mut self, stream: Stream) {
        (self.bits, self.table) = (Bits::at(stream.at), stream.table);
    }

    #[inline(always)]
    fn word(&self, bytes: Words<'_>) -> u64 {
        self.bits.word(bytes) | MARK
    }

    /// The next one of up to four that a word is good for.
    #[inline(always)]
    fn next(&mut self, word: &mut u64) -> u8 {
        let table = usize::from(self.table % CONTEXTS as u16);
        let index = table << LITERAL_BITS | (*word % (1 << LITERAL_BITS)) as usize;
        let mut entry = u32::from(self.tables.literals[index]);
        if entry == LONG {
            entry = self.tables.find_long(2, table, *word);
        }
        *word >>= entry & 63;
        self.table = (entry >> 6 & 3) as u16;
        (entry >> 8) as u8
    }

    #[inline(always)]
    fn end(&mut self, word: u64) {
        self.bits.skip(word.leading_zeros());
    }

    fn fill(&mut self, bytes: Words<'_>, literals: &mut [u8]) {
        for four in literals.chunks_mut(4) {
            let mut word = self.word(bytes);
            four.iter_mut().for_each(|literal| *literal = self.next(&mut word));
            self.end(word);
        }
    }
}
