//! Makes dictionaries: evenly spaced samples of a collection (section 2 of the paper), and what is
//! known to make them better.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::parallel::default_threads;
use crate::random::Random;
use crate::rlz::dictionary::MAX_LEN;
use crate::rlz::matcher::Matcher;
use crate::rlz::{Dictionary, cover, prune};
use crate::wire::Digest;

/// How a dictionary is sampled from a collection.
///
/// ```
/// use fiche::rlz::Sampling;
///
/// let collection: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
/// let dictionary = Sampling::default().len(10 << 10).sample_len(256).run(&collection)?;
/// assert_eq!(dictionary.len(), 10 << 10);
/// assert_eq!(dictionary.as_bytes()[..256], collection[..256]);
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampling {
    len: u64,
    sample_len: u64,
    oversample: u64,
    covers: bool,
    threads: usize,
}

impl Default for Sampling {
    /// 4 MiB of samples of 1 KiB, as the paper's are, as they come.
    fn default() -> Sampling {
        let threads = default_threads();
        Sampling { len: 4 << 20, sample_len: 1 << 10, oversample: 1, covers: false, threads }
    }
}

impl Sampling {
    /// How long the dictionary becomes, in bytes, if the collection is as long.
    #[must_use]
    pub fn len(self, len: u64) -> Sampling {
        Sampling { len, ..self }
    }

    /// How long a sample is, in bytes.
    #[must_use]
    pub fn sample_len(self, sample_len: u64) -> Sampling {
        Sampling { sample_len, ..self }
    }

    /// Samples so many times as much, and then cuts out what the collection uses least until
    /// it has its length (Tong, Wirth and Zobel, *Principled dictionary pruning for low-memory corpus
    /// compression*, 2014). 1 cuts nothing. Takes the factoring of a part of the collection.
    #[must_use]
    pub fn oversample(self, times: u64) -> Sampling {
        Sampling { oversample: times, ..self }
    }

    /// Takes the samples that cover most of what the blocks of the collection have in common, the most
    /// useful first, in place of evenly spaced ones. Nothing that only one block has is
    /// taken: the dictionary may become shorter, or empty. Reads the collection once (of more than 512 MiB
    /// evenly spaced parts), at some 150 MB/s in all, with up to 320 MB of memory for samples of 1 KiB, and more for shorter ones: at
    /// 64 bytes twice the length of the collection.
    ///
    /// After Liao, Petri, Moffat and Wirth, *Effective construction of relative Lempel-Ziv
    /// dictionaries* (2016).
    #[must_use]
    pub fn cover(self, covers: bool) -> Sampling {
        Sampling { covers, ..self }
    }

    /// How many threads look at the collection to [cover](Sampling::cover) it; all cores by themselves. The
    /// samples are the same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Sampling {
        Sampling { threads: threads.max(1), ..self }
    }

    /// Where the samples of a collection of this length start: evenly spaced.
    fn offsets(&self, collection: u64) -> Vec<u64> {
        let sample = self.sample_len;
        let count =
            self.len.saturating_mul(self.oversample).min(collection).div_ceil(sample.max(1));
        let last = collection.saturating_sub(sample);
        let place = |i: u64| u128::from(collection) * u128::from(i) / u128::from(count);
        (0..count).map(|i| (place(i) as u64).min(last)).collect()
    }

    /// Reads the samples, in order, and no more of the collection (unless it prunes). Equal samples
    /// are taken once.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lengths of 0, [`Error::Limit`] for a dictionary of more than 1 GiB or,
    /// where it prunes, for which there is not enough memory; those of reading.
    pub fn run(&self, collection: &dyn ReadAt) -> Result<Dictionary> {
        let need = self.len.saturating_mul(self.oversample);
        if need > MAX_LEN {
            return Err(Error::Limit { what: "bytes of dictionary", need, allowed: MAX_LEN });
        }
        if self.sample_len == 0 || need == 0 {
            return Err(Error::invalid("a dictionary and its samples have a length"));
        }
        if self.covers {
            return self.run_covering(collection);
        }
        let len = collection.len();
        let (mut bytes, mut seen) = (Dictionary::room(need.min(len) as usize), HashSet::new());
        let mut end = 0;
        for offset in self.offsets(len) {
            // Those at the end of a short collection overlap.
            let start = offset.max(end);
            end = (offset + self.sample_len).min(len).max(end);
            let sample_start = bytes.len();
            bytes.resize(sample_start + (end - start) as usize, 0);
            collection.read_at(start, &mut bytes[sample_start..])?;
            if !seen.insert(Digest::of(&bytes[sample_start..])) {
                bytes.truncate(sample_start);
            }
        }
        let budget = usize::try_from(self.len).unwrap_or(usize::MAX);
        if self.oversample <= 1 || bytes.len() <= budget {
            bytes.truncate(budget);
            return Dictionary::new(bytes);
        }
        crate::memory::check(Matcher::memory_for(bytes.len() as u64))?;
        let matcher = Matcher::new(Arc::new(Dictionary::new(bytes)?))?;
        Dictionary::new(prune::prune(&matcher, collection, budget)?)
    }

    fn run_covering(&self, collection: &dyn ReadAt) -> Result<Dictionary> {
        let pieces = cover::choose(collection, self.len, self.sample_len, self.threads)?;
        let len: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let mut bytes = Dictionary::room(len as usize);
        for piece in pieces {
            let start = bytes.len();
            bytes.resize(start + (piece.end - piece.start) as usize, 0);
            collection.read_at(piece.start, &mut bytes[start..])?;
        }
        Dictionary::new(bytes)
    }

    /// Bytes of memory that choosing the samples of a collection of this length takes at most, without those of the
    /// dictionary.
    pub(super) fn memory_for(&self, collection: u64) -> u64 {
        if self.covers {
            return cover::memory_for(collection, self.sample_len);
        }
        let len = self.len.saturating_mul(self.oversample).min(collection);
        let seen = 64 * len / self.sample_len.max(1);
        if self.oversample > 1 { seen + len + Matcher::memory_for(len) } else { seen }
    }

    /// Text of a collection that no sample begins with: 64 KiB in pieces of 1 KiB, for
    /// [`Coder::probe`](crate::rlz::Coder::probe).
    ///
    /// # Errors
    /// Those of reading.
    pub fn probe(collection: &dyn ReadAt) -> Result<Vec<u8>> {
        pieces(collection, 1 << 10, 64)
    }
}

/// So many pieces of a collection one after the other, at places that are not evenly spaced: what
/// is measured at the places of samples would look too good.
pub(super) fn pieces(collection: &dyn ReadAt, len: usize, count: u64) -> Result<Vec<u8>> {
    let all = collection.len();
    let len = (len as u64).min(all);
    let mut text = vec![0; (len * count.min(all.div_ceil(len.max(1)))) as usize];
    let (count, mut random) = ((text.len() as u64).checked_div(len).unwrap_or(0), Random(1));
    for (i, piece) in text.chunks_mut(len.max(1) as usize).enumerate() {
        let (start, stride) = (all / count * i as u64, all / count);
        let offset = start + random.below(stride.saturating_sub(len).max(1));
        collection.read_at(offset.min(all - len), piece)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_evenly_spaced_and_equal_ones_are_taken_once() {
        let collection = Random(1).bytes(1_000_000);
        let sampling = Sampling::default().len(10_240).sample_len(1024);
        let dictionary = sampling.run(&collection).unwrap();
        let expected: Vec<u8> =
            (0..10).flat_map(|i| collection[100_000 * i..][..1024].to_vec()).collect();
        assert_eq!(dictionary.as_bytes(), expected);
        let twice = [collection.clone(), collection].concat();
        let again = Sampling::default().len(20_480).sample_len(1024).run(&twice).unwrap();
        assert_eq!(again.as_bytes(), expected);
    }

    #[test]
    fn a_collection_that_is_no_longer_than_the_dictionary_is_the_dictionary() {
        let collection = Random(2).bytes(10_000);
        for sample_len in [1, 7, 1024, 9_999, 10_000, 20_000] {
            for len in [10_000, 10_001, 1 << 20] {
                let sampling = Sampling::default().len(len).sample_len(sample_len);
                let dictionary = sampling.run(&collection).unwrap();
                if sample_len > 1 {
                    assert_eq!(dictionary.as_bytes(), collection, "{sample_len} {len}");
                }
            }
        }
        assert!(Sampling::default().run(&Vec::new()).unwrap().is_empty());
        assert!(Sampling::probe(&Vec::new()).unwrap().is_empty());
        assert_eq!(Sampling::probe(&vec![7u8; 3]).unwrap(), [7; 3]);
        assert!(matches!(Sampling::default().len(0).run(&collection), Err(Error::Invalid { .. })));
        let limit = Sampling::default().len(1 << 40).run(&collection);
        assert!(matches!(limit, Err(Error::Limit { .. })));
    }

    #[test]
    fn pruning_keeps_what_is_used() {
        // Half of the samples are noise that comes once; the others are what all is made of.
        let mut random = Random(3);
        let words = random.bytes(4_000);
        let mut collection = Vec::new();
        for i in 0..400 {
            let noise = random.bytes(1_000);
            let at = random.below(3_000) as usize;
            collection.extend(if i % 2 == 0 { &words[at..at + 1_000] } else { &noise });
        }
        let sampling = Sampling::default().len(20_000).sample_len(500);
        let plain = sampling.clone().run(&collection).unwrap();
        let pruned = sampling.oversample(4).run(&collection).unwrap();
        assert!(pruned.len() <= 20_000 && pruned.len() > 10_000, "{}", pruned.len());
        // Fewer factors are needed for what the collection is made of.
        let factors = |dictionary: Dictionary| {
            let matcher = Matcher::new(Arc::new(dictionary)).unwrap();
            let mut factors = [Vec::new()];
            matcher.factor(&[&words], &mut factors);
            factors[0].len()
        };
        let (plain, pruned) = (factors(plain), factors(pruned));
        assert!(pruned < plain, "{pruned} {plain}");
    }
}
