//! A unit as phrases, any of which is found at once.
//!
//! # Unit of phrases
//!
//! A unit is no file and has no magic number: who stores it knows what it is. Its content is cut into *sequences* of
//! at least one byte: each is some literals (or none), then a copy of content that was there before (only the last
//! may have none). The copy may reach into itself. Numbers that grow from sequence to sequence are kept so that any
//! of them is found without those before it.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | len | bytes of content, below 2^31 |
//! | varint | sequences | how many; 0 where there is no content, and only there |
//! | varint | literals | bytes of literals |
//! | ... | ends | Elias-Fano sequence: of each sequence, where in the content it ends; the last is `len` |
//! | ... | literal ends | Elias-Fano sequence: of each sequence `i`, counted from 0, how many literals there are up to its end, and `i + 1` more; the last is `literals + sequences` |
//! | ceil(sequences * width / 8) | sources | of sequence `i` at bit `i * width`: the offset in the content that its copy comes from, below that where it begins itself; 0 where there is no copy |
//! | literals | literal bytes | of all sequences |
//! | 4 | checksum | CRC-32C of all of it before |
//!
//! `width` is the number of bits of `len`; bit 0 is the lowest bit of the first byte. Both Elias-Fano sequences are
//! left out where there are no sequences. Bits behind the last source are zero. A copy has as many bytes as the
//! sequence has beside its literals. In both Elias-Fano sequences there are no more low bits than a writer takes.
//!
//! It is the plain form of the phrases of Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in
//! Compression Enabled Storage Systems*, section 2.1 and figures 13 and 14 (without Huffman coding); the succinct
//! structures are stored instead of built.

use crate::elias_fano::{EliasFano, Gap};
use crate::error::{Error, Place, Result};
use crate::phrases::extract::{From, Phrase, Phrases, copy};
use crate::phrases::parse::Match;
use crate::processor::{Work, with_bit_counts};
use crate::wire::{Put, Take, crc32c, load_u64};

/// What an error calls the bytes.
const WHAT: &str = "unit of phrases";
/// Units have less content than this.
pub(super) const MOST: usize = (1 << 31) - 1;

/// A unit that was looked at and can be asked for phrases.
#[derive(Debug)]
pub(super) struct Unit {
    len: u32,
    sequences: Option<Sequences>,
    width: u32,
    sources: Box<[u8]>,
    literals: Box<[u8]>,
    stored: usize,
}

#[derive(Debug)]
struct Sequences {
    ends: EliasFano,
    literals: EliasFano,
}

/// A sequence, and which half of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    ends: Gap,
    literals: Gap,
    is_copy: bool,
}

/// Bits of a source in a unit of so many bytes.
pub(super) fn width_of(len: usize) -> u32 {
    usize::BITS - len.leading_zeros()
}

/// Content less than `MOST`, of which these copies, in order and without overlap, each from before it, are all
/// that is no literal.
pub(super) fn encode(content: &[u8], matches: &[Match]) -> Vec<u8> {
    debug_assert!(content.len() <= MOST);
    let width = width_of(content.len());
    let (mut ends, mut literal_ends) = (Vec::new(), Vec::new());
    let (mut literals, mut sources) = (Vec::new(), Vec::new());
    let mut at = 0usize;
    for m in matches {
        literals.extend_from_slice(&content[at..m.at as usize]);
        at = (m.at + m.len) as usize;
        let bit = sources.len();
        sources.extend((0..width).map(|i| m.source >> i & 1 == 1));
        debug_assert_eq!(bit % width as usize, 0);
        ends.push(at as u64);
        literal_ends.push((literals.len() + ends.len()) as u64);
    }
    if at < content.len() {
        literals.extend_from_slice(&content[at..]);
        sources.resize(sources.len() + width as usize, false);
        ends.push(content.len() as u64);
        literal_ends.push((literals.len() + ends.len()) as u64);
    }
    let mut out = Vec::with_capacity(literals.len() + 4 * ends.len() + 32);
    out.put_varint(content.len() as u64);
    out.put_varint(ends.len() as u64);
    out.put_varint(literals.len() as u64);
    if !ends.is_empty() {
        EliasFano::encode(&ends, &mut out);
        EliasFano::encode(&literal_ends, &mut out);
    }
    let byte = |bits: &[bool]| bits.iter().rev().fold(0u8, |byte, &bit| byte << 1 | u8::from(bit));
    out.extend(sources.chunks(8).map(byte));
    out.extend_from_slice(&literals);
    let checksum = crc32c(&out);
    out.put_u32(checksum);
    out
}

impl Unit {
    /// Looks at the bytes of a unit: at their checksum, and at what keeps every look within bounds. Some 10 us for
    /// 100 KiB. What the numbers say is checked where it is used.
    pub fn parse(stored: &[u8]) -> Result<Unit> {
        let corrupt = || Error::Corrupt { what: WHAT, at: Place::Pos(0) };
        let (body, checksum) = stored.split_last_chunk::<4>().ok_or_else(corrupt)?;
        if Take::new(checksum, WHAT, 0).u32()? != crc32c(body) && !cfg!(fuzzing) {
            return Err(Error::Corrupt {
                what: "checksum of a unit of phrases",
                at: Place::Pos(0),
            });
        }
        let mut take = Take::new(body, WHAT, 0);
        let len = take.count(MOST as u64)?;
        let count = take.count(len as u64)?;
        let literals = take.count(len as u64)?;
        let mut sequences = None;
        if count > 0 {
            let ends = EliasFano::decode_in_any_order(&mut take, count)?;
            let literal_ends = EliasFano::decode_in_any_order(&mut take, count)?;
            if ends.last() != len as u64 || literal_ends.last() != (literals + count) as u64 {
                return Err(take.corrupt());
            }
            sequences = Some(Sequences { ends, literals: literal_ends });
        } else if len > 0 || literals > 0 {
            return Err(take.corrupt());
        }
        let width = width_of(len);
        let bits = count as u64 * u64::from(width);
        let bytes = take.bytes(usize::try_from(bits.div_ceil(8)).map_err(|_| corrupt())?)?;
        if !bits.is_multiple_of(8) && bytes.last().is_some_and(|last| last >> (bits % 8) != 0) {
            return Err(take.corrupt());
        }
        // A look takes eight bytes.
        let mut sources = Vec::with_capacity(bytes.len() + 8);
        sources.extend_from_slice(bytes);
        sources.extend([0; 8]);
        let literals = take.bytes(literals)?.into();
        take.end()?;
        let stored = stored.len();
        let sources = sources.into();
        let unit = Unit { len: len as u32, sequences, width, sources, literals, stored };
        if let Some(all) = &unit.sequences {
            let (ends, literals) = (all.ends.gap(count - 1), all.literals.gap(count - 1));
            let (middle, _) = unit.halves(ends, literals);
            if u64::from(middle) == ends.to && unit.source(count - 1) != 0 {
                return Err(take.corrupt());
            }
        }
        Ok(unit)
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of memory beside those that are stored.
    pub fn index_bytes(&self) -> usize {
        let hints = |all: &Sequences| all.ends.hint_bytes() + all.literals.hint_bytes();
        8 + self.sequences.as_ref().map_or(0, hints)
    }

    /// Bytes that the unit is stored in.
    pub fn stored_bytes(&self) -> usize {
        self.stored
    }

    /// Sequences that end before this byte of the content.
    pub fn sequences_before(&self, at: u32) -> usize {
        self.sequences.as_ref().map_or(0, |all| all.ends.rank(at.into()))
    }

    #[inline(always)]
    fn source(&self, i: usize) -> u32 {
        let bit = i * self.width as usize;
        (load_u64(&self.sources, bit / 8) >> (bit % 8) & ((1 << self.width) - 1)) as u32
    }

    fn all(&self) -> Result<&Sequences> {
        self.sequences.as_ref().ok_or_else(|| self.corrupt())
    }

    /// Where in the content the copy of a sequence begins, and where among the literals its own do.
    #[inline(always)]
    fn halves(&self, ends: Gap, literals: Gap) -> (u32, u32) {
        let before = literals.from.wrapping_sub(ends.i as u64);
        let count = literals.to.wrapping_sub(literals.from).wrapping_sub(1);
        (ends.from.wrapping_add(count) as u32, before as u32)
    }

    /// The half of a sequence that holds a byte.
    #[inline(always)]
    fn half(&self, ends: Gap, literals: Gap, at: u32) -> Result<(Seat, Phrase)> {
        let (middle, from) = self.halves(ends, literals);
        if u64::from(middle) < ends.from || u64::from(middle) > ends.to {
            return Err(self.corrupt());
        }
        let is_copy = at >= middle;
        let phrase = match is_copy {
            false => Phrase { start: ends.from as u32, end: middle, from: From::Literals(from) },
            true => {
                let from = From::Copy(self.source(ends.i));
                Phrase { start: middle, end: ends.to as u32, from }
            }
        };
        Ok((Seat { ends, literals, is_copy }, phrase))
    }

    /// Fills `out` with the content from its first byte on.
    ///
    /// Time grows with the sequences that are decoded; each is some 5 ns and a copy.
    pub fn decode(&self, out: &mut [u8]) -> Result<()> {
        with_bit_counts(Decoding { unit: self, out })
    }

    #[inline(always)]
    fn decode_with(&self, out: &mut [u8]) -> Result<()> {
        const MANY: usize = 64;
        let (mut ends, mut literal_ends) = ([0; MANY], [0; MANY]);
        // Where the sequence begins, in the content and among the literals.
        let (mut start, mut from) = (0usize, 0usize);
        let mut first = 0;
        while start < out.len() {
            let all = self.all()?;
            let count = all.ends.read(first, &mut ends);
            if all.literals.read(first, &mut literal_ends) != count || count == 0 {
                return Err(self.corrupt());
            }
            for (k, (&end, &literal_end)) in ends[..count].iter().zip(&literal_ends).enumerate() {
                let i = first + k;
                let literal_end = (literal_end as usize).wrapping_sub(i + 1);
                let (literals, end) = (literal_end.wrapping_sub(from), end as usize);
                let middle = start.wrapping_add(literals);
                let is_last = i + 1 == all.ends.count();
                if literals > self.literals.len()
                    || middle > end
                    || end > self.len as usize
                    || middle == end && (start == end || !is_last)
                {
                    return Err(self.corrupt());
                }
                if end > out.len() {
                    let len = middle.min(out.len()) - start;
                    self.put_literals(out, start, from, len).ok_or_else(|| self.corrupt())?;
                    if middle < out.len() {
                        self.put_copy(out, i, middle, out.len() - middle)?;
                    }
                    return Ok(());
                }
                self.put_literals(out, start, from, literals).ok_or_else(|| self.corrupt())?;
                if middle < end {
                    self.put_copy(out, i, middle, end - middle)?;
                }
                (start, from) = (end, literal_end);
            }
            first += count;
        }
        Ok(())
    }

    #[inline(always)]
    fn put_copy(&self, out: &mut [u8], i: usize, at: usize, len: usize) -> Result<()> {
        let source = self.source(i) as usize;
        if source >= at {
            return Err(self.corrupt());
        }
        copy(out, at, at - source, len);
        Ok(())
    }

    /// Short runs are copied as 16 bytes, where there is room for what is too much.
    #[inline(always)]
    fn put_literals(&self, out: &mut [u8], at: usize, from: usize, len: usize) -> Option<()> {
        if len <= 16
            && let Some(wide) = self.literals.get(from..from + 16)
            && let Some(to) = out.get_mut(at..at + 16)
        {
            to.copy_from_slice(wide);
        } else {
            let bytes = self.literals.get(from..from.checked_add(len)?)?;
            out[at..at + len].copy_from_slice(bytes);
        }
        Some(())
    }
}

struct Decoding<'a> {
    unit: &'a Unit,
    out: &'a mut [u8],
}

impl Work for Decoding<'_> {
    type Done = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        self.unit.decode_with(self.out)
    }
}

impl Phrases for &Unit {
    type Seat = Seat;

    #[inline(always)]
    fn phrase_of(&mut self, at: u32) -> Result<(Seat, Phrase)> {
        let all = self.all()?;
        let ends = all.ends.above(u64::from(at)).ok_or_else(|| self.corrupt())?;
        self.half(ends, all.literals.gap(ends.i), at)
    }

    #[inline(always)]
    fn next(&mut self, seat: Seat) -> Result<(Seat, Phrase)> {
        let (middle, _) = self.halves(seat.ends, seat.literals);
        if !seat.is_copy && u64::from(middle) < seat.ends.to {
            return self.half(seat.ends, seat.literals, middle);
        }
        let all = self.all()?;
        let next = all.ends.next(seat.ends).zip(all.literals.next(seat.literals));
        let (ends, literals) = next.ok_or_else(|| self.corrupt())?;
        self.half(ends, literals, ends.from as u32)
    }

    #[inline(always)]
    fn literals(&self, from: u32, len: usize) -> Option<&[u8]> {
        self.literals.get(from as usize..(from as usize).checked_add(len)?)
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt { what: WHAT, at: Place::Pos(0) }
    }
}
