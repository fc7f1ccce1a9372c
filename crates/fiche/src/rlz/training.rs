//! Makes ready for packing: from what will be packed to a coder that has learned from it.

use std::sync::Arc;

use crate::error::Result;
use crate::io::ReadAt;
use crate::parallel::default_threads;
use crate::rlz::{Coder, Coding, Dictionary, Sampling};

/// What a coding learns from content before any of it is packed: the dictionary, and codes that all
/// blocks share. What is not set is as the coding likes it.
///
/// ```
/// use fiche::rlz::{Coding, Training};
///
/// let text = "It was the best of times, it was the worst of times. ".repeat(2_000);
/// let coder = Training::new(Coding::Hybrid).level(7).block_len(4 << 10).run(text.as_bytes())?;
/// assert_eq!((coder.coding(), coder.level()), (Coding::Hybrid, 7));
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Training {
    coding: Coding,
    level: i32,
    block_len: usize,
    dictionary: Wanted,
    sampling: Sampling,
    covers: Option<bool>,
    min_literal: u32,
    is_near: bool,
    threads: usize,
}

/// The dictionary that is wanted.
#[derive(Clone, Debug)]
enum Wanted {
    Auto,
    Len(u64),
    This(Arc<Dictionary>),
}

impl Training {
    /// With the coding's default level, for blocks of 16 KiB.
    #[must_use]
    pub fn new(coding: Coding) -> Training {
        Training {
            coding,
            level: coding.default_level(),
            block_len: 16 << 10,
            dictionary: Wanted::Auto,
            sampling: Sampling::default(),
            covers: None,
            min_literal: 4,
            is_near: true,
            threads: default_threads(),
        }
    }

    /// The level, one of [`Coding::levels`], or for `Hybrid` one of `Fast`, too.
    #[must_use]
    pub fn level(self, level: i32) -> Training {
        Training { coding: self.coding.at_level(level), level, ..self }
    }

    /// Length of the blocks that will be packed, in bytes.
    #[must_use]
    pub fn block_len(self, block_len: usize) -> Training {
        Training { block_len, ..self }
    }

    /// How long the dictionary becomes at most, in bytes; 0 for none. By itself it is 4 MiB long or a
    /// sixteenth of the content, whichever is less; for `Hybrid` 16 MiB (at its fast levels 4 MiB,
    /// which stay in a core's cache) or a quarter, and shorter where the content has little in common.
    #[must_use]
    pub fn dictionary_len(self, len: u64) -> Training {
        Training { dictionary: Wanted::Len(len), ..self }
    }

    /// A dictionary that there is already.
    #[must_use]
    pub fn dictionary(self, dictionary: Arc<Dictionary>) -> Training {
        Training { dictionary: Wanted::This(dictionary), ..self }
    }

    /// How samples are taken; of its length, its threads and whether it [covers](Sampling::cover) nothing
    /// is taken over.
    #[must_use]
    pub fn sampling(self, sampling: Sampling) -> Training {
        Training { sampling, ..self }
    }

    /// Whether the samples are those that cover most of what blocks have in common, as they are by
    /// themselves for `Hybrid` alone, or evenly spaced ones.
    #[must_use]
    pub fn cover(self, covers: bool) -> Training {
        Training { covers: Some(covers), ..self }
    }

    /// See [`Coder::min_literal`].
    #[must_use]
    pub fn min_literal(self, min_literal: u32) -> Training {
        Training { min_literal, ..self }
    }

    /// For `ZlibPrimed`: whether blocks are primed with the part of the dictionary that was sampled
    /// near them, or all with its first part.
    #[must_use]
    pub fn near(self, is_near: bool) -> Training {
        Training { is_near, ..self }
    }

    /// How many threads work; all cores by themselves. What is learned is the same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Training {
        Training { threads: threads.max(1), ..self }
    }

    /// How long the dictionary becomes at most for content of this length; none where one is given.
    pub(crate) fn len(&self, content: u64) -> Option<u64> {
        let (part, most) = match (&self.dictionary, self.coding) {
            (Wanted::This(_), _) => return None,
            (Wanted::Len(len), _) => return Some(*len),
            // Samples that were chosen are worth more than they take for longer.
            (_, Coding::Hybrid) => (4, 16 << 20),
            (_, Coding::Fast) => (4, 4 << 20),
            _ => (16, 4 << 20),
        };
        Some((content / part).next_multiple_of(1 << 10).clamp(1 << 10, most))
    }

    /// Bytes of memory that it takes at most with content of this length: to choose the dictionary, and then to prepare
    /// it and to learn codes, on one thread; others take some MiB each.
    #[must_use]
    pub fn memory_for(&self, content: u64) -> u64 {
        let len = match &self.dictionary {
            Wanted::This(dictionary) => dictionary.len() as u64,
            _ => self.len(content).unwrap_or_default().min(content),
        };
        let choosing = match self.len(content) {
            None | Some(0) => 0,
            Some(wanted) => self.sampling_of(wanted).memory_for(content) + len,
        };
        let learning = Coder::memory_to_learn(self.coding, self.level, content);
        choosing.max(Coder::memory_for(self.coding, self.level, len) + learning)
    }

    /// How a dictionary of this length is sampled.
    fn sampling_of(&self, len: u64) -> Sampling {
        let covers = self.covers.unwrap_or(self.coding.is_hybrid());
        self.sampling.clone().threads(self.threads).len(len).cover(covers)
    }

    /// Learns from this content, which is what will be packed or a good part of it.
    ///
    /// Costs one or two passes over it and the sorting of the dictionary; see [`Sampling::cover`] and
    /// [`Coder::with_level`].
    ///
    /// # Errors
    /// Those of [`Sampling::run`], [`Coder::with_level`] and [`Coder::min_literal`].
    pub fn run<C: ReadAt + ?Sized>(&self, content: &C) -> Result<Coder> {
        // Before content is read for nothing.
        self.coding.check_level(self.level)?;
        let content = &content;
        let dictionary = match &self.dictionary {
            Wanted::This(dictionary) => dictionary.clone(),
            _ => Arc::new(self.sample(content)?),
        };
        // Its bytes are compressed for the archive while it is sorted and tried, and blocks are packed.
        if !matches!(self.dictionary, Wanted::This(_)) && self.threads > 1 {
            dictionary.begin_packing(self.threads);
        }
        self.coder(dictionary, content)
    }

    /// Chooses the dictionary alone.
    pub(crate) fn sample(&self, content: &dyn ReadAt) -> Result<Dictionary> {
        match self.len(content.len()) {
            None | Some(0) => Dictionary::new(Vec::new()),
            Some(len) => self.sampling_of(len).run(content),
        }
    }

    fn coder(&self, dictionary: Arc<Dictionary>, content: &dyn ReadAt) -> Result<Coder> {
        let coder = Coder::with_level(self.coding, self.level, dictionary)?;
        let mut coder = coder.min_literal(self.min_literal)?;
        if self.coding == Coding::ZzPrimed {
            coder = coder.probe(&Sampling::probe(content)?);
        }
        if self.is_near {
            coder = coder.collection(content.len());
        }
        coder.learn_on(self.threads, content, self.block_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, model_bytes};

    #[test]
    fn what_is_not_set_is_as_the_coding_likes_it() {
        let text = Random(1).text(1 << 20);
        let len = |coding| Training::new(coding).run(&text).unwrap().dictionary().len();
        assert_eq!(len(Coding::Pv), 1 << 16);
        let hybrid = len(Coding::Hybrid);
        assert!(hybrid > 1 << 10 && hybrid <= 1 << 18, "{hybrid}");
        let none = Training::new(Coding::Hybrid).dictionary_len(0).run(&text).unwrap();
        assert!(none.dictionary().is_empty());
        let fast = Training::new(Coding::Hybrid).level(3).dictionary_len(5_000).run(&text).unwrap();
        assert_eq!(fast.coding(), Coding::Fast);
        assert!(fast.dictionary().len() <= 5_000);
        assert!(Training::new(Coding::Hybrid).level(10).run(&text).is_err());
    }

    #[test]
    fn what_is_learned_is_the_same_for_any_number_of_threads() {
        let mut random = Random(3);
        let text = [random.text(200_000), random.bytes(3_000), random.text(150_000)].concat();
        for level in [1, 3, 5, 7, 9] {
            let training = Training::new(Coding::Hybrid).level(level).block_len(2_000);
            let model =
                |threads| model_bytes(&training.clone().threads(threads).run(&text).unwrap());
            let one = model(1);
            assert!(one.is_some() && [2, 5].into_iter().all(|threads| model(threads) == one));
        }
    }

    #[test]
    fn content_without_anything_in_common_has_no_dictionary() {
        let noise = Random(2).bytes(1 << 20);
        assert!(Training::new(Coding::Hybrid).run(&noise).unwrap().dictionary().is_empty());
        assert!(Training::new(Coding::Hybrid).run(&Vec::new()).unwrap().dictionary().is_empty());
    }
}
