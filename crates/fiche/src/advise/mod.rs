//! Advice: what packing some content in one way or another would give, from a sample.
//!
//! A [`Survey`] packs samples as each [`Plan`] would, with the dictionaries and codes that it would learn, and
//! reads random pieces of them. What it tells of the whole ([`Figures`]) comes with its error.
//!
//! ```
//! use fiche::advise::Survey;
//!
//! let text: String = (0..40_000).map(|i| format!("{i} {} GET /page/{}\n", i * 77, i % 13)).collect();
//! let advice = Survey::default().run(text.as_bytes(), &mut |_done, _all| Ok(()))?;
//! let small = advice.small();
//! assert!(small.stored_bytes < text.len() as u64 / 3);
//! println!("fiche pack --method {} --level {}", small.plan.method, small.plan.level);
//! # Ok::<(), fiche::Error>(())
//! ```
//!
//! The cost of keeping and reading is after Liao, Moffat, Petri and Wirth, *A cost model for long-term compressed
//! data retention* (2017).

mod population;
mod trial;

use std::sync::Arc;

use crate::archive::{Method, Options, Reader, Split, Writer};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::parallel::default_threads;
use crate::rlz::{Coding, Training};
use population::Population;
use trial::{Learned, Trial, median};

/// Turns in which every plan is read from: with a busy machine, each has its good and its bad ones.
const TURNS: usize = 7;

/// One way to pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The method.
    pub method: Method,
    /// Its level.
    pub level: i32,
    /// Length of a block, in bytes.
    pub block_len: usize,
    /// Length of the dictionary at most, in bytes; 0 for none.
    pub dictionary_len: u64,
}

/// What a plan would give.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// The plan.
    pub plan: Plan,
    /// Length of the archive, everything counted.
    pub stored_bytes: u64,
    /// By how much that is wrong at most, 19 times out of 20: a part of it, such as 0.01.
    pub stored_error: f64,
    /// Reads of random pieces in a second, on one thread, from memory, each block's checksum verified.
    pub reads_per_second: f64,
    /// Stored bytes that a read needs, on average.
    pub read_bytes: f64,
    /// Seconds to learn from the content and to pack it on all threads, without those of the disk.
    pub pack_seconds: f64,
    /// No other plan measured is both smaller and read faster.
    pub reads_best: bool,
    /// No other plan measured is both smaller and packed faster.
    pub packs_best: bool,
}

/// What all plans would give.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Length of the content.
    pub content_bytes: u64,
    /// How many threads pack.
    pub threads: usize,
    /// Length of the pieces that are read.
    pub read_len: usize,
    /// Those of each plan, the smallest first; at least one.
    pub figures: Vec<Figures>,
}

/// What keeping and reading costs, in any currency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prices {
    /// For a GB (of 10^9 bytes) kept for a month.
    pub gb_month: f64,
    /// For each read, whatever its length.
    pub read: f64,
    /// For an hour of a core that packs or reads.
    pub core_hour: f64,
    /// How many months it is kept.
    pub months: f64,
    /// How many reads there are in a month.
    pub reads_per_month: f64,
}

impl Prices {
    /// What keeping and reading costs in all with these figures, packing on so many threads.
    #[must_use]
    pub fn cost(&self, figures: &Figures, threads: usize) -> f64 {
        let kept = figures.stored_bytes as f64 / 1e9 * self.gb_month * self.months;
        let reads = self.reads_per_month * self.months;
        let seconds = reads / figures.reads_per_second.max(f64::MIN_POSITIVE)
            + figures.pack_seconds * threads as f64;
        kept + reads * self.read + seconds / 3600.0 * self.core_hour
    }
}

impl Advice {
    /// Those of the smallest archive.
    #[must_use]
    pub fn small(&self) -> &Figures {
        self.best(|figures| figures.stored_bytes as f64, 1.0)
    }

    /// Those of the archive that is read fastest. A quarter more or less is no difference: of those that
    /// are read about as fast as any, the smallest.
    #[must_use]
    pub fn fast_to_read(&self) -> &Figures {
        self.best(|figures| 1.0 / figures.reads_per_second.max(f64::MIN_POSITIVE), 1.25)
    }

    /// Those of the archive that is packed fastest; again the smallest of those that are packed about as fast.
    #[must_use]
    pub fn fast_to_write(&self) -> &Figures {
        self.best(|figures| figures.pack_seconds, 1.25)
    }

    /// Those of the archive that costs least to keep and read at these prices.
    #[must_use]
    pub fn cheapest(&self, prices: &Prices) -> &Figures {
        self.best(|figures| prices.cost(figures, self.threads), 1.0)
    }

    /// The first whose weight is near the least: the smallest of them.
    fn best(&self, weight: impl Fn(&Figures) -> f64, near: f64) -> &Figures {
        let least = self.figures.iter().map(&weight).fold(f64::INFINITY, f64::min);
        let first = self.figures.iter().find(|figures| weight(figures) <= near * least);
        first.unwrap_or(&self.figures[0])
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Survey {
    plans: Vec<Plan>,
    threads: usize,
    read_len: usize,
    record_bytes: u64,
    split: Option<Split>,
}

impl Default for Survey {
    /// [Usual plans](Survey::usual), all threads, reads of 16 KiB.
    fn default() -> Survey {
        Survey {
            plans: Vec::new(),
            threads: default_threads(),
            read_len: 16 << 10,
            record_bytes: 0,
            split: None,
        }
    }
}

impl Survey {
    /// The plans that are measured; without any, the usual ones.
    #[must_use]
    pub fn plans(self, plans: Vec<Plan>) -> Survey {
        Survey { plans, ..self }
    }

    /// How many threads pack.
    #[must_use]
    pub fn threads(self, threads: usize) -> Survey {
        Survey { threads: threads.max(1), ..self }
    }

    /// Length of the pieces that are read, in bytes.
    #[must_use]
    pub fn read_len(self, read_len: usize) -> Survey {
        Survey { read_len, ..self }
    }

    /// Bytes that the archive will have for names and metadata of files: see
    /// [`Folder::record_bytes`](crate::archive::Folder::record_bytes).
    #[must_use]
    pub fn record_bytes(self, record_bytes: u64) -> Survey {
        Survey { record_bytes, ..self }
    }

    /// How content is split into records: what these take is counted as well.
    #[must_use]
    pub fn split(self, split: Option<Split>) -> Survey {
        Survey { split, ..self }
    }

    /// The plan of a method with its usual dictionary for content of this length.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that it does not have.
    pub fn plan(method: Method, level: i32, block_len: usize, content: u64) -> Result<Plan> {
        let method = method.at_level(level)?;
        let dictionary_len = match method {
            Method::Codec(_) => 0,
            Method::Coding(coding) => Training::new(coding).len(content).unwrap_or_default(),
        };
        Ok(Plan { method, level, block_len, dictionary_len })
    }

    /// Plans from fast to small, for content of this length.
    #[must_use]
    pub fn usual(content: u64) -> Vec<Plan> {
        let hybrid = Method::Coding(Coding::Hybrid);
        let (lz4, zlib) = (Method::Codec(Codec::Lz4), Method::Codec(Codec::Deflate));
        let (zstd, lzma) = (Method::Codec(Codec::Zstd), Method::Codec(Codec::Lzma));
        let pv = Method::Coding(Coding::Pv);
        let all: [(Method, i32, &[usize]); 12] = [
            (lz4, 1, &[4, 16, 64]),
            (lz4, 12, &[16]),
            (zlib, 6, &[16]),
            (zstd, 3, &[4, 16, 64, 256]),
            (zstd, 19, &[16, 64, 256]),
            (lzma, 6, &[256]),
            (pv, 0, &[16]),
            (hybrid, 2, &[4, 16, 64]),
            (hybrid, 4, &[16]),
            (hybrid, 5, &[4, 16, 64]),
            (hybrid, 7, &[16]),
            (hybrid, 9, &[16]),
        ];
        let mut plans = Vec::new();
        for (method, level, blocks) in all {
            if !method.is_compiled_in() {
                continue;
            }
            for block in blocks {
                plans.extend(Survey::plan(method, level, block << 10, content).ok());
            }
        }
        // Other dictionaries for the method of most interest.
        if let Ok(plan) = Survey::plan(hybrid, 5, 16 << 10, content) {
            let others = [1, 4, 16].map(|len: u64| len << 20);
            let others = others.into_iter().filter(|&len| len < plan.dictionary_len);
            plans.extend(others.map(|dictionary_len| Plan { dictionary_len, ..plan.clone() }));
        }
        plans
    }

    /// Measures all plans on samples of the content. `progress` is told how many of how many steps are done,
    /// and may stop it with an error.
    ///
    /// The usual plans take a minute or so for 100 MB, and not much more for any length: content is read once for
    /// each length of dictionary, and two ways to pack are tried on up to 256 MiB of it. Memory: some 500 MB at most.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no content or a plan that no archive can be packed by; those of reading.
    pub fn run<C: ReadAt + ?Sized>(
        &self,
        content: &C,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Advice> {
        let content: &dyn ReadAt = &content;
        if content.is_empty() {
            return Err(Error::invalid("there is nothing to measure"));
        }
        let mut plans = self.plans.clone();
        if plans.is_empty() {
            plans = Survey::usual(content.len());
        }
        // What was learned for one is at hand for the next.
        plans.sort_by_key(|plan| {
            (plan.method.name(), plan.level, plan.dictionary_len, plan.block_len)
        });
        plans.dedup();
        let steps = (plans.len() + 2 + TURNS) as u64;
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress(done - 1, steps)
        };
        step()?;
        let mut learned = Learned::new(content, self.threads);
        let mut population = Population::new(content);
        let fast = [Method::Codec(Codec::Lz4), Method::Coding(Coding::Fast)];
        for method in fast.into_iter().filter(|method| method.is_compiled_in()) {
            let plan = Survey::plan(method, method.default_level(), 16 << 10, content.len())?;
            let (options, _) = learned.options(&plan)?;
            population.pack(&options, &mut |_| Ok(()))?;
            step()?;
        }
        let mut trials = Vec::with_capacity(plans.len());
        for plan in plans {
            let trial = Trial::new(&plan, &mut learned, &population)?;
            trials.push((plan, trial));
            step()?;
        }
        let mut buf = vec![0; self.read_len.max(1)];
        for _ in 0..TURNS {
            for (_, trial) in &mut trials {
                trial.read(&mut buf)?;
            }
            step()?;
        }
        let records = self.record_bytes as f64 + self.items_bytes(content)?;
        let figures = trials.into_iter().map(|(plan, trial)| self.figures(plan, trial, records));
        let mut figures: Vec<Figures> = figures.collect();
        figures.sort_by_key(|figures| figures.stored_bytes);
        mark_best(&mut figures);
        let (content_bytes, threads, read_len) = (content.len(), self.threads, self.read_len);
        Ok(Advice { content_bytes, threads, read_len, figures })
    }

    /// What the records take that the content is split into: as much for each byte as in its beginning.
    fn items_bytes(&self, content: &dyn ReadAt) -> Result<f64> {
        const START: u64 = 4 << 20;
        let Some(split) = &self.split else { return Ok(0.0) };
        let mut start = vec![0; content.len().min(START) as usize];
        content.read_at(0, &mut start)?;
        let mut writer = Writer::new(Vec::new(), Options::default().codec(Codec::Copy))?;
        if writer.add_records(split, &mut start.as_slice(), &mut |_| Ok(())).is_err() {
            // What is no such file fails when it is packed.
            return Ok(0.0);
        }
        let info = Reader::open(Arc::new(writer.finish()?))?.info()?;
        Ok(info.record_bytes as f64 * content.len() as f64 / start.len() as f64)
    }

    fn figures(&self, plan: Plan, mut trial: Trial, records: f64) -> Figures {
        let value = trial.stored.value + records;
        // A read begins anywhere in a block.
        let blocks = 1.0 + self.read_len.saturating_sub(1) as f64 / plan.block_len as f64;
        Figures {
            plan,
            stored_bytes: value as u64,
            stored_error: 2.0 * trial.stored.error / value,
            reads_per_second: 1e9 / median(&mut trial.turns),
            read_bytes: blocks * trial.mean_stored,
            pack_seconds: trial.pack_seconds,
            reads_best: false,
            packs_best: false,
        }
    }
}

/// Marks those that no other one is better than in both; they come the smallest first.
fn mark_best(figures: &mut [Figures]) {
    let (mut reads, mut seconds) = (0.0, f64::INFINITY);
    for figures in figures {
        figures.reads_best = figures.reads_per_second > reads;
        figures.packs_best = figures.pack_seconds < seconds;
        reads = figures.reads_per_second.max(reads);
        seconds = figures.pack_seconds.min(seconds);
    }
}
