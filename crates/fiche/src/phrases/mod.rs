//! A few bytes out of a unit of compressed data, without decoding what is before them.
//!
//! A unit that was compressed by LZ77 is a row of *phrases*: literals, or a copy of bytes that were there before. To
//! read a few bytes it takes only the phrases that hold them, those that they were copied from, and so on until
//! literals are reached. For that the phrase that holds a byte has to be found, whatever stands before it: by an index.
//! This is the *recursive extraction* of section 2 of Constantinescu, Glider, Chambliss and Simha, *Random Read
//! Speedup in Compression Enabled Storage Systems*.
//!
//! [`CompressedBuffer`] holds a unit in memory and answers reads of any range of it, by recursion or by decoding from
//! the front, whichever its cost model finds cheaper. A unit may be in a coding of others ([`Coding::Deflate`],
//! [`Coding::Lz4`], [`Coding::Snappy`]), with an index beside it; or in one that needs no index, because its phrases
//! are stored so that each is found at once ([`Coding::Lz77`], made by [`compress`]).
//!
//! ```
//! use fiche::phrases::{Coding, CompressedBuffer, compress};
//! use fiche::ReadAt;
//!
//! let text = "the rain in spain falls mainly in the plain; ".repeat(1000);
//! let unit = CompressedBuffer::open(Coding::Lz77, compress(text.as_bytes())?)?;
//! let mut piece = [0; 5];
//! unit.read_at(30 * 45 + 12, &mut piece)?;
//! assert_eq!(&piece, b"spain");
//! # Ok::<(), fiche::Error>(())
//! ```
//!
//! What it is good for: reads of some bytes to some hundred, which cost microseconds then and not a pass over
//! the unit. Longer ones are decoded from the front, as [`CompressedBuffer`] knows; for those, cut streams into partitions
//! ([`crate::streams`]) or content into blocks ([`crate::archive`]).

mod extract;
mod index;
mod indexed;
mod layout;
mod parse;
mod shallow;
mod stream;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::codec::deflate::Inflate;
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, within};
use index::Index;
use indexed::{Indexed, Memo};
use layout::{MOST, Unit};
use parse::Rules;
pub use shallow::deflate;

/// The last read of a length counts for one of so many, and means are kept in such shares.
const SHARES: u64 = 16;
/// A length that is not tried comes to be believed cheaper by one of so many shares with each read.
const RETRY: u64 = 64;
/// How much dearer than the front recursion has to be by reads of other lengths, for it not to be tried.
const TRUST: u64 = 8;

/// Bytes that a thread keeps of what a read needed.
const KEPT: usize = 1 << 20;

/// How the phrases of a unit are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coding {
    /// Phrases without Huffman coding, each found at once: a format of fiche's own, made by [`compress`].
    Lz77 = 0,
    /// A deflate stream (RFC 1951), without a header or trailer around it.
    Deflate = 1,
    /// An LZ4 block, without a frame around it.
    Lz4 = 2,
    /// A Snappy stream, which begins with its length; without a frame around it.
    Snappy = 3,
}

/// How a read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// By the phrases that its bytes come from.
    Recursive,
    /// By decoding from the first byte of the unit to the last one of the read.
    Sequential,
}

/// What an extraction took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// The way that it was done.
    pub way: Way,
    /// Of a recursive one: pieces that were copied and phrases that were looked for; where groups of phrases had to be
    /// read first, some for each. Of a sequential one those after which recursion was given up, 0 where it was not tried.
    pub steps: u32,
    /// Bytes of memory it used beside the unit, its index and the caller's buffer. Some of it stays in the [`Scratch`].
    pub peak_bytes: usize,
}

/// Bytes of a unit, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// Of the content.
    pub content: u64,
    /// As they are stored; of [`Coding::Lz77`] all that there is.
    pub stored: u64,
    /// Of the index that is kept beside them; of [`Coding::Lz77`] 0.
    pub index: u64,
    /// What is made of both in memory, beside them.
    pub hints: u64,
}

/// What extractions work with: keep one for each thread. Holds at most eight tables of deflate blocks (16 KiB each),
/// what the last extraction read and eight bytes for each group of the largest index, and the content of a unit if one was
/// decoded from the front.
#[derive(Default)]
pub struct Scratch {
    memo: Memo,
    /// The unit that the tables are of.
    of: u64,
    room: Vec<u8>,
    inflate: Inflate,
}

/// A unit held compressed in memory, any range of which can be read.
///
/// Threads may share it. As a [`ReadAt`] it works with a [`Scratch`] of each thread's own.
pub struct CompressedBuffer {
    held: Held,
    /// Tells units apart.
    number: u64,
    /// The steps that reads of 2^i bytes took, in the mean of the last; 0 where there was none.
    known: [AtomicU64; 32],
}

enum Held {
    Phrases(Unit),
    Stream { coding: Coding, stored: Arc<[u8]>, index: Index, index_len: usize },
}

/// Compresses a unit into [`Coding::Lz77`]. Matches reach back to its first byte.
///
/// Some 2 MB/s, and 50 bytes of memory for each of the content.
///
/// # Errors
/// [`Error::Limit`] for 2 GiB and more; [`Error::Corrupt`] when what was encoded does not decode to the content, as
/// only a processor or a memory does that fails.
pub fn compress(content: &[u8]) -> Result<Vec<u8>> {
    compress_within(content, u32::MAX)
}

/// As [`compress`], with chains of no more than `depth` copies between a byte and its literal: reads of few bytes are
/// faster then, and the unit larger.
///
/// # Errors
/// As of [`compress`].
pub fn compress_within(content: &[u8], depth: u32) -> Result<Vec<u8>> {
    if content.len() > MOST {
        let (need, allowed) = (content.len() as u64, MOST as u64);
        return Err(Error::Limit { what: "content of a unit", need, allowed });
    }
    // A copy costs its source, and about 8 bits for both lengths.
    let copy = 8 * (layout::width_of(content.len()) + 8);
    let rules = Rules { window: MOST, lens: (4, MOST), depth, tries: 200, price: (64, copy, 0) };
    let stored = layout::encode(content, &parse::parse(content, &rules));
    decodes_to(Coding::Lz77, &stored, content)?;
    Ok(stored)
}

/// Fails when what was encoded is not the content, as only a processor or a memory makes it that fails.
fn decodes_to(coding: Coding, stored: &[u8], content: &[u8]) -> Result<()> {
    let mut back = vec![0; content.len()];
    match coding {
        Coding::Lz77 => Unit::parse(stored)?.decode(&mut back)?,
        _ => stream::decode(coding, stored, &mut back, &mut Inflate::new())?,
    }
    match back == content {
        true => Ok(()),
        false => Err(Error::Corrupt { what: "unit as encoded", at: Place::Pos(0) }),
    }
}

/// The same phrases in [`Coding::Lz77`]: those of a stream that is there, as the paper took zlib's and left out their
/// Huffman codes. Decodes the stream whole, and what it makes again: some 5 ns for each byte of content, and 100 bytes
/// of memory for each copy.
///
/// # Errors
/// [`Error::Corrupt`] for what is no such stream, [`Error::Limit`] for content of 2 GiB and more; [`Error::Invalid`]
/// for [`Coding::Lz77`] itself.
pub fn transcode(coding: Coding, stored: &[u8]) -> Result<Vec<u8>> {
    if coding == Coding::Lz77 {
        return Err(Error::invalid("these phrases are in that coding"));
    }
    index::check(coding, stored)?;
    let (matches, len) = stream::matches(coding, stored)?;
    let mut content = vec![0; len];
    stream::decode(coding, stored, &mut content, &mut Inflate::new())?;
    let same = layout::encode(&content, &matches);
    decodes_to(Coding::Lz77, &same, &content)?;
    Ok(same)
}

/// The index of a stream, to be kept beside it. One pass over its phrases, of deflate some 2 ns for each byte of
/// content.
///
/// # Errors
/// [`Error::Corrupt`] for what is no such stream; [`Error::Invalid`] for [`Coding::Lz77`], which needs none;
/// [`Error::Limit`] for content or streams of 2 GiB and more.
pub fn index(coding: Coding, stored: &[u8]) -> Result<Vec<u8>> {
    match coding {
        Coding::Lz77 => Err(Error::invalid("this coding needs no index")),
        coding => index::make(coding, stored),
    }
}

impl CompressedBuffer {
    /// Holds a unit. Of [`Coding::Lz77`] its checksum is verified; for the others the index is made: see [`index`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for what is no such unit, [`Error::Limit`] for content of 2 GiB and more.
    pub fn open(coding: Coding, stored: impl Into<Arc<[u8]>>) -> Result<CompressedBuffer> {
        let stored = stored.into();
        if coding == Coding::Lz77 {
            return Ok(CompressedBuffer::of(Held::Phrases(Unit::parse(&stored)?)));
        }
        let index = index(coding, &stored)?;
        CompressedBuffer::open_indexed(coding, stored, &index)
    }

    /// Holds a unit whose index was made before. Costs a checksum of both, and a pass over the index: some 20 us for 100
    /// KiB. Checksums tell an index that was damaged or is that of another stream; one that was made to deceive gives
    /// other content, or an error: it is to be trusted as the stream is.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the index is damaged, [`Error::Changed`] when it is that of another stream,
    /// [`Error::Unsupported`] when it is that of another coding, [`Error::Invalid`] for [`Coding::Lz77`], [`Error::Limit`]
    /// for streams of 2 GiB and more.
    pub fn open_indexed(
        coding: Coding,
        stored: impl Into<Arc<[u8]>>,
        index: &[u8],
    ) -> Result<CompressedBuffer> {
        if coding == Coding::Lz77 {
            return Err(Error::invalid("this coding needs no index"));
        }
        let stored = stored.into();
        let index_len = index.len();
        let index = Index::parse(coding, index, &stored)?;
        Ok(CompressedBuffer::of(Held::Stream { coding, stored, index, index_len }))
    }

    fn of(held: Held) -> CompressedBuffer {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        CompressedBuffer { held, number, known: Default::default() }
    }

    /// How large it is.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let (stored, index, hints): (usize, usize, usize) = match &self.held {
            Held::Phrases(unit) => (unit.stored_bytes(), 0, unit.index_bytes()),
            Held::Stream { stored, index, index_len: kept, .. } => {
                (<[u8]>::len(stored), *kept, index.hint_bytes())
            }
        };
        Sizes {
            content: self.len(),
            stored: stored as u64,
            index: index as u64,
            hints: hints as u64,
        }
    }

    /// Fills `out` with the content from `offset` on, in the way that is expected to be cheaper. What decoding from the
    /// front takes is known from the index; what recursion takes, from reads of about that length before. Where it turns
    /// out to be dearer it is given up: so a read takes at most about twice as long as decoding from the front, whatever
    /// the unit.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the unit ends before; [`Error::Corrupt`] when it is damaged where it was read.
    pub fn read(&self, offset: u64, out: &mut [u8], scratch: &mut Scratch) -> Result<Cost> {
        let start = self.check(offset, out.len())?;
        let allowed = self.sequential_steps(start + out.len() as u32);
        let class = out.len().max(1).ilog2() as usize;
        let known = self.known[class].load(Relaxed);
        let expected = if known > 0 { known } else { self.by_others(class) };
        // What is known of other lengths only is not believed before it was tried.
        let limit = SHARES * u64::from(allowed) * if known > 0 { 1 } else { TRUST };
        if expected > limit {
            // What was dear once is tried again some day: reads elsewhere may be cheaper.
            self.known[class].store(expected - expected / RETRY, Relaxed);
            return self.decode(start, out, scratch);
        }
        let found = self.recurse(start, out, scratch, allowed)?;
        let steps = SHARES * found.map_or(2 * u64::from(allowed), |cost| cost.steps.into());
        let mut mean = if known == 0 { steps } else { known - known / SHARES + steps / SHARES };
        if found.is_none() && mean > SHARES * u64::from(allowed) {
            // From here on it is the front; and to try again costs as much as that, so not for some dozens of reads.
            mean = mean.max(steps);
        }
        // Two threads may forget a read of one of them.
        self.known[class].store(mean.max(1), Relaxed);
        match found {
            Some(cost) => Ok(cost),
            None => Ok(Cost { steps: allowed, ..self.decode(start, out, scratch)? }),
        }
    }

    /// What reads of 2^class bytes may take by what reads of other lengths took, the nearest of them; 0 where there
    /// were none: so a first one is tried, and given up if it has to.
    fn by_others(&self, class: usize) -> u64 {
        let known = |class: usize| self.known.get(class).map_or(0, |known| known.load(Relaxed));
        let near = (1..self.known.len()).find_map(|far| {
            // Twice the bytes are about twice the steps.
            let shorter = class.checked_sub(far).map_or(0, known);
            let by_shorter = shorter.saturating_mul(1 << far);
            [by_shorter, known(class + far) >> far].into_iter().find(|&steps| steps > 0)
        });
        // More than any read may take is as dear as that.
        near.unwrap_or(0).min(1 << 40)
    }

    /// Fills `out` with the content from `offset` on by recursion, whatever it costs.
    ///
    /// # Errors
    /// As of [`read`](CompressedBuffer::read).
    pub fn read_recursive(
        &self,
        offset: u64,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Cost> {
        let start = self.check(offset, out.len())?;
        match self.recurse(start, out, scratch, u32::MAX - 1)? {
            Some(cost) => Ok(cost),
            // Chains of more than 2^32 steps.
            None => self.decode(start, out, scratch),
        }
    }

    /// Fills `out` with the content from `offset` on by decoding all before it.
    ///
    /// # Errors
    /// As of [`read`](CompressedBuffer::read).
    pub fn read_sequential(
        &self,
        offset: u64,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Cost> {
        let start = self.check(offset, out.len())?;
        self.decode(start, out, scratch)
    }

    fn check(&self, offset: u64, len: usize) -> Result<u32> {
        within(offset, len, self.len())?;
        Ok(offset as u32)
    }

    fn recurse(
        &self,
        start: u32,
        out: &mut [u8],
        scratch: &mut Scratch,
        most: u32,
    ) -> Result<Option<Cost>> {
        let (steps, memo) = match &self.held {
            Held::Phrases(unit) => (extract::extract(&mut &*unit, start, out, most)?, 0),
            Held::Stream { stored, index, .. } => {
                if scratch.of != self.number {
                    scratch.memo.forget_tables();
                    scratch.of = self.number;
                }
                let mut unit = Indexed::new(stored, index, &mut scratch.memo);
                (extract::extract(&mut unit, start, out, most)?, scratch.memo.bytes())
            }
        };
        let way = Way::Recursive;
        Ok(steps.map(|done| Cost { way, steps: done.pieces, peak_bytes: done.stack + memo }))
    }

    fn decode(&self, start: u32, out: &mut [u8], scratch: &mut Scratch) -> Result<Cost> {
        let (way, end) = (Way::Sequential, start as usize + out.len());
        let mut peak_bytes = 0;
        let fill = |out: &mut [u8], inflate: &mut Inflate| match &self.held {
            Held::Phrases(unit) => unit.decode(out),
            Held::Stream { coding, stored, .. } => stream::decode(*coding, stored, out, inflate),
        };
        if start == 0 {
            fill(out, &mut scratch.inflate)?;
        } else {
            if scratch.room.len() < end {
                scratch.room.resize(end, 0);
            }
            fill(&mut scratch.room[..end], &mut scratch.inflate)?;
            out.copy_from_slice(&scratch.room[start as usize..end]);
            peak_bytes = end;
        }
        Ok(Cost { way, steps: 0, peak_bytes })
    }

    /// Steps of a recursion that take as long as decoding to this byte. The nanoseconds were measured, and fit by
    /// least squares of the relative error: see `fiche-bench extract`.
    fn sequential_steps(&self, end: u32) -> u32 {
        let copied = u64::from(end) / 48;
        let (sequential, recursion, step) = match &self.held {
            Held::Phrases(unit) => (9 * unit.sequences_before(end) as u64 + 250, 90, 18),
            Held::Stream { coding: Coding::Deflate, index, .. } => {
                (22 * index.groups_before(end) as u64 + 1000, 200, 20)
            }
            Held::Stream { coding, index, .. } => {
                // Elements of Snappy are of four kinds, which no processor foresees.
                let group = if *coding == Coding::Snappy { 110 } else { 30 };
                (group * index.groups_before(end) as u64 + 200, 180, 16)
            }
        };
        let nanoseconds = (sequential + copied).saturating_sub(recursion);
        u32::try_from(nanoseconds / step).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for CompressedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressedBuffer({:?})", self.sizes())
    }
}

impl ReadAt for CompressedBuffer {
    fn len(&self) -> u64 {
        match &self.held {
            Held::Phrases(unit) => unit.len().into(),
            Held::Stream { index, .. } => index.len.into(),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        thread_local! {
            static SCRATCH: RefCell<Scratch> = RefCell::default();
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let read = self.read(offset, buf, scratch).map(|_| ());
            if scratch.room.len() > KEPT {
                scratch.room = Vec::new();
            }
            if scratch.memo.bytes() > KEPT {
                scratch.memo = Memo::default();
            }
            read
        })
    }
}
