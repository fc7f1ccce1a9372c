//! What tests and benchmarks need: the conformance suite of every [`ReadAt`], input, and parts of the
//! library without the rest.

#[cfg(feature = "zlib")]
mod deflate;
mod device;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::io::ReadAt;
pub use crate::random::Random;
use crate::rlz::coder::{self, Model, Packer, Scratch, Shared, decode};
use crate::rlz::matcher::{Factor, Matcher};
use crate::rlz::{Coder, Coding, Dictionary};
use crate::wire::Take;
#[cfg(feature = "zlib")]
pub use deflate::inflate_as_zlib;
pub use device::{Crashes, Fault, Step, TracedDevice};

/// Reads `source` in every way and holds it against `expected`, the bytes it
/// should have. A few thousand reads; the positions depend on `seed` alone.
///
/// # Panics
/// When it breaks the contract of [`ReadAt`], saying how.
pub fn conformance(source: &(impl ReadAt + ?Sized), expected: &[u8], seed: u64) {
    let len = expected.len() as u64;
    assert_eq!(source.len(), len, "its length");
    assert_eq!(source.is_empty(), len == 0, "whether it is empty");
    if let Some(bytes) = source.as_bytes() {
        assert!(bytes == expected, "its bytes in memory differ");
    }
    let mut whole = vec![0xAA; expected.len()];
    source.read_at(0, &mut whole).expect("reading all of it");
    assert!(whole == expected, "all of it differs");

    // Past the end, by one and by far, and empty reads up to the end.
    source.read_at(0, &mut []).expect("an empty read at 0");
    source.read_at(len, &mut []).expect("an empty read at the end");
    for (offset, wanted) in [(len, 1), (0, len + 1), (len + 1, 0), (u64::MAX, 1), (u64::MAX, 0)] {
        let result = source.read_at(offset, &mut vec![0; wanted as usize]);
        assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{offset}+{wanted}: {result:?}");
    }

    let mut random = Random(seed);
    let range = |random: &mut Random| {
        let longest = [1, 100, 5_000, 100_000][random.below(4) as usize].min(len);
        let wanted = random.below(longest + 1);
        let offset = random.below(len - wanted + 1);
        offset as usize..(offset + wanted) as usize
    };
    for _ in 0..500 {
        let range = range(&mut random);
        let mut buf = vec![0x55; range.len()];
        source.read_at(range.start as u64, &mut buf).expect("a read within it");
        assert!(buf == expected[range.clone()], "bytes {range:?} differ");
    }

    // Many at once: unsorted, overlapping, equal, empty, and some that must fail.
    for round in 0..20 {
        let ranges: Vec<_> = (0..random.below(40)).map(|_| range(&mut random)).collect();
        let mut bufs: Vec<Vec<u8>> = ranges.iter().map(|r| vec![0x55; r.len()]).collect();
        let mut past = [0; 3];
        let mut reads: Vec<(u64, &mut [u8])> =
            ranges.iter().zip(&mut bufs).map(|(r, b)| (r.start as u64, b.as_mut_slice())).collect();
        let bad = if reads.is_empty() { 0 } else { random.below(reads.len() as u64) as usize };
        reads.insert(bad, (len - len.min(2), &mut past));
        let results = source.read_many_at(&mut reads);
        assert_eq!(results.len(), ranges.len() + 1, "one result for each read, in round {round}");
        for (i, result) in results.iter().enumerate() {
            assert_eq!(result.is_err(), i == bad, "result {i} of round {round}: {result:?}");
        }
        for (range, buf) in ranges.iter().zip(&bufs) {
            assert!(*buf == expected[range.clone()], "bytes {range:?} differ in round {round}");
        }
    }

    // From several threads at once.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random(seed ^ (thread + 1));
                for _ in 0..200 {
                    let wanted = random.below(len.min(3000) + 1);
                    let offset = random.below(len - wanted + 1);
                    let mut buf = vec![0; wanted as usize];
                    source.read_at(offset, &mut buf).expect("a read beside others");
                    assert!(buf == expected[offset as usize..][..wanted as usize], "{offset}");
                }
            });
        }
    });
}

/// Bytes in memory that do not say so: read as a file is, by positioned reads, which
/// are counted.
#[derive(Debug, Default)]
pub struct Behind {
    bytes: Vec<u8>,
    reads: AtomicU64,
}

impl Behind {
    /// A source of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Behind {
        Behind { bytes, reads: AtomicU64::new(0) }
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl ReadAt for Behind {
    fn len(&self) -> u64 {
        ReadAt::len(&self.bytes)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_at(offset, buf)
    }
}

/// A dictionary that is ready for factoring, to look at what codings are made of.
pub struct Factoring(Matcher);

impl Factoring {
    /// Sorts the suffixes of a dictionary.
    ///
    /// # Panics
    /// When there is no memory for it.
    #[must_use]
    pub fn new(dictionary: Arc<Dictionary>) -> Factoring {
        Factoring(Matcher::new(dictionary).expect("memory"))
    }

    /// The factors of each text: length (0 for a literal) and offset (or the literal).
    #[must_use]
    pub fn factor(&self, texts: &[&[u8]]) -> Vec<Vec<(u32, u32)>> {
        let mut factors = vec![Vec::new(); texts.len()];
        self.0.factor(texts, &mut factors);
        let pairs = |text: Vec<Factor>| text.into_iter().map(|f| (f.len, f.offset)).collect();
        factors.into_iter().map(pairs).collect()
    }
}

/// Decodes any bytes as the stored form of a block of so many bytes: all of it, and the range
/// `start..start + piece` of it by itself. `None` for what is refused.
///
/// # Panics
/// When this build does not have the coding.
#[must_use]
pub fn decode_both(
    coding: Coding,
    dictionary: &Dictionary,
    stored: &[u8],
    len: usize,
    (start, piece): (usize, usize),
) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let model = Model::usual(coding, dictionary);
    let shared = Shared { dictionary, model: model.as_ref() };
    let mut scratch = Scratch::default();
    let mut read = |start, count| {
        let mut dst = vec![0; count];
        let done = decode(coding, shared, stored, len, start, &mut dst, &mut scratch);
        done.expect("a coding").map(|()| dst)
    };
    (read(0.into(), len), read(start.into(), piece))
}

/// Blocks coded in memory, without an archive around them.
pub struct Coded {
    coding: Coding,
    dictionary: Arc<Dictionary>,
    model: Option<Arc<Model>>,
    /// Length and stored bytes; these are `None` for a block that does not shrink.
    blocks: Vec<(usize, Option<Vec<u8>>)>,
    scratch: Scratch,
}

impl Coded {
    /// Codes these blocks.
    #[must_use]
    pub fn new(coder: Arc<Coder>, blocks: &[&[u8]]) -> Coded {
        let (coding, model) = (coder.coding(), coder.model().cloned());
        let dictionary = coder.dictionary().clone();
        let mut coded = Vec::new();
        Packer::new(coder).pack(0, blocks, |i, stored| {
            coded.push((blocks[i].len(), stored.map(<[u8]>::to_vec)));
        });
        Coded { coding, dictionary, model, blocks: coded, scratch: Scratch::default() }
    }

    /// Stored bytes of all blocks.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.blocks.iter().map(|(len, stored)| stored.as_ref().map_or(*len, Vec::len)).sum()
    }

    /// Fills `dst` with the bytes from `start` on of block `i`. False for a block that does not
    /// shrink, of which nothing is here.
    ///
    /// # Panics
    /// When the block does not decode.
    pub fn read(&mut self, i: usize, start: usize, dst: &mut [u8]) -> bool {
        let (len, Some(stored)) = &self.blocks[i] else { return false };
        let shared = Shared { dictionary: &self.dictionary, model: self.model.as_deref() };
        let done = decode(self.coding, shared, stored, *len, start.into(), dst, &mut self.scratch);
        done.expect("a coding").expect("a block");
        true
    }
}

/// Some bytes as a model, and then as a block of its coding: what the block decodes to, if they are both.
#[must_use]
pub fn decode_with_model(
    model: &[u8],
    dictionary: &Arc<Dictionary>,
    stored: &[u8],
    len: usize,
) -> Option<Vec<u8>> {
    read_with(&model_of(model)?, dictionary, stored, len, 0..len)
}

/// Some bytes as a model, and then as a block of its coding: what loops that check once for many steps make of the
/// block and of a piece of it is what their safe twins make of them.
///
/// # Panics
/// Where it is not.
pub fn decode_as_twins(
    model: &[u8],
    dictionary: &Arc<Dictionary>,
    stored: &[u8],
    len: usize,
    piece: Range<usize>,
) {
    let Some(model) = model_of(model).filter(|model| model.coding().is_hybrid()) else { return };
    let twin = |range: Range<usize>| {
        let mut dst = vec![0; range.len()];
        coder::decode_safely(&model, dictionary, stored, len, range.start, &mut dst).map(|()| dst)
    };
    let fast = |range| read_with(&model, dictionary, stored, len, range);
    assert!(fast(0..len) == twin(0..len), "a block");
    let one = fast(piece.clone());
    if model.coding() == Coding::Hybrid {
        assert!(one == twin(piece.clone()), "a piece, {piece:?}");
    }
    // What is behind a piece, or not needed for it, is looked at by one and not by the other.
    if let (Some(one), Some(front)) = (one, twin(0..piece.end)) {
        assert!(one == front[piece.clone()], "a piece and its front, {piece:?}");
    }
}

/// The model that some bytes are, if they are one.
fn model_of(bytes: &[u8]) -> Option<Model> {
    let mut take = Take::new(bytes, "model", 0);
    let model = Model::take(&mut take).ok()?;
    take.end().ok()?;
    let mut again = Vec::new();
    model.put(&mut again);
    let same = Model::take(&mut Take::new(&again, "model", 0)).is_ok_and(|same| same == model);
    assert!(same, "a model is written as it was read");
    Some(model)
}

/// A range of what a block decodes to.
fn read_with(
    model: &Model,
    dictionary: &Dictionary,
    stored: &[u8],
    len: usize,
    range: Range<usize>,
) -> Option<Vec<u8>> {
    let mut dst = vec![0; range.len()];
    let shared = Shared { dictionary, model: Some(model) };
    let (coding, start) = (model.coding(), range.start.into());
    let done = decode(coding, shared, stored, len, start, &mut dst, &mut Scratch::default());
    done.ok()?.map(|()| dst)
}

/// The bytes of a coder's model, if it has one.
#[must_use]
pub fn model_bytes(coder: &Coder) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    coder.model()?.put(&mut bytes);
    Some(bytes)
}

/// The stored bytes of blocks, of those that shrink.
#[must_use]
pub fn stored_bytes(coder: &Arc<Coder>, blocks: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    Packer::new(coder.clone()).pack(0, blocks, |_, stored| all.extend(stored.map(<[u8]>::to_vec)));
    all
}

impl Random {
    /// Bytes that do not compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }

    /// Bytes that compress about as text does.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        let words: Vec<Vec<u8>> = (0..200)
            .map(|_| (0..2 + self.below(9)).map(|_| b'a' + (self.number() % 26) as u8).collect())
            .collect();
        let mut text = Vec::with_capacity(len + 16);
        while text.len() < len {
            // Small numbers are likelier: some words are common.
            let word = self.below(200).min(self.below(200));
            text.extend_from_slice(&words[word as usize]);
            text.push(if self.below(12) == 0 { b'\n' } else { b' ' });
        }
        text.truncate(len);
        text
    }
}
