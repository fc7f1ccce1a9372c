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
use std::time::Duration;

use crate::archive::{Method, Options, Reader, Split, Writer};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::parallel::default_threads;
use crate::rlz::{Coding, Training};
use population::Population;
use trial::{Learned, Trial, median};

/// Turns in which every plan is read from: with a busy machine, each has its good and its bad ones. What other plans
/// are read from meanwhile, and the shortness of a turn, leave little of its archive in caches, as with a large one.
const TURNS: usize = 15;

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

impl Plan {
    /// Learns from content what is needed to pack it so.
    ///
    /// # Errors
    /// Those of [`Training::run`].
    pub fn options<C: ReadAt + ?Sized>(&self, content: &C) -> Result<Options> {
        let options = Options::default().block_len(self.block_len);
        match self.method {
            Method::Codec(codec) => Ok(options.codec(codec).level(self.level)),
            Method::Coding(coding) => {
                let training = Training::new(coding).level(self.level).block_len(self.block_len);
                let training = training.dictionary_len(self.dictionary_len);
                Ok(options.coder(Arc::new(training.run(content)?)))
            }
        }
    }
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
    /// How long packing a sample is timed, and how long a turn of reading takes.
    timed: Duration,
    turn: Duration,
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
            timed: Duration::from_millis(150),
            turn: Duration::from_millis(20),
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

    /// Every method at its level, with every block length and, where it has one, every length of dictionary; `None`
    /// is its usual one. Without methods, those of [`Survey::usual`]; without block lengths, 16 KiB; without any of
    /// the three, no plans, which [`Survey::plans`] takes for the usual ones.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that a method does not have.
    pub fn crossed(
        methods: &[(Method, i32)],
        blocks: &[usize],
        dictionary_lens: &[Option<u64>],
        content: u64,
    ) -> Result<Vec<Plan>> {
        if methods.is_empty() && blocks.is_empty() && dictionary_lens.is_empty() {
            return Ok(Vec::new());
        }
        let mut methods = methods.to_vec();
        if methods.is_empty() {
            methods =
                Survey::usual(content).into_iter().map(|plan| (plan.method, plan.level)).collect();
        }
        let blocks = if blocks.is_empty() { &[16 << 10] } else { blocks };
        let mut plans: Vec<Plan> = Vec::new();
        for (method, level) in methods {
            for &block_len in blocks {
                let plan = Survey::plan(method, level, block_len, content)?;
                let lens = match method {
                    Method::Coding(_) if !dictionary_lens.is_empty() => dictionary_lens,
                    _ => &[None],
                };
                plans.extend(lens.iter().map(|len| {
                    // Longer than the content no dictionary is.
                    let len = len.map(|len| len.min(content.next_multiple_of(1 << 10)));
                    let dictionary_len = len.unwrap_or(plan.dictionary_len);
                    Plan { dictionary_len, ..plan.clone() }
                }));
            }
        }
        Ok(plans)
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
    /// The usual plans take two minutes or so for 100 MB, and not much more for any length: content is read once for
    /// each length of dictionary, and three fast ways to pack are tried on up to 256 MiB of it. Memory: 8 MiB for each
    /// plan, and what learning takes ([`Training::memory_for`]): 700 MB were measured at most.
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
        for plan in &plans {
            Options::default().block_len(plan.block_len).check()?;
        }
        // Small blocks, with a dictionary and without, and large ones.
        let (lz4, zstd) = (Method::Codec(Codec::Lz4), Method::Codec(Codec::Zstd));
        let mut fast =
            vec![(lz4, 16 << 10), (zstd, 256 << 10), (Method::Coding(Coding::Fast), 16 << 10)];
        fast.retain(|(method, _)| method.is_compiled_in());
        let steps = (plans.len() + fast.len() + TURNS) as u64;
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress(done - 1, steps)
        };
        step()?;
        let mut learned = Learned::new(content, self.threads);
        let mut population = Population::new(content);
        for (method, cell) in fast {
            let plan = Survey::plan(method, method.default_level(), cell, content.len())?;
            let (options, _) = learned.options(&plan)?;
            population.pack(&options, cell as u64)?;
            step()?;
        }
        let mut trials = Vec::with_capacity(plans.len());
        for plan in plans {
            let trial = Trial::new(&plan, &mut learned, &population, self.timed)?;
            trials.push((plan, trial));
            step()?;
        }
        let mut buf = vec![0; self.read_len.max(1)];
        for _ in 0..TURNS {
            for (_, trial) in &mut trials {
                trial.read(&mut buf, self.turn)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Sizes are as always; rates are not worth much.
    fn hasty() -> Survey {
        Survey { timed: Duration::ZERO, turn: Duration::ZERO, ..Survey::default() }
    }

    fn figures(stored_bytes: u64, reads_per_second: f64, pack_seconds: f64) -> Figures {
        let plan = Survey::plan(Method::Codec(Codec::Copy), 0, 4096, 0).unwrap();
        let (reads_best, packs_best) = (false, false);
        let (stored_error, read_bytes) = (0.0, 0.0);
        Figures {
            plan,
            stored_bytes,
            stored_error,
            reads_per_second,
            read_bytes,
            pack_seconds,
            reads_best,
            packs_best,
        }
    }

    fn advice(figures: Vec<Figures>) -> Advice {
        Advice { content_bytes: 1000, threads: 2, read_len: 1, figures }
    }

    #[test]
    fn the_best_are_those_that_no_other_is_better_than() {
        let mut all = vec![
            figures(10, 5.0, 9.0),
            figures(20, 4.0, 8.0),
            figures(30, 9.0, 8.0),
            figures(40, 9.0, 1.0),
        ];
        mark_best(&mut all);
        let marks: Vec<_> = all.iter().map(|f| (f.reads_best, f.packs_best)).collect();
        assert_eq!(marks, [(true, true), (false, true), (true, false), (false, true)]);
        let advice = advice(all);
        assert_eq!(advice.small().stored_bytes, 10);
        assert_eq!(advice.fast_to_read().stored_bytes, 30);
        assert_eq!(advice.fast_to_write().stored_bytes, 40);
    }

    #[test]
    fn a_little_slower_and_smaller_is_better() {
        let advice =
            advice(vec![figures(10, 79.0, 1.3), figures(20, 81.0, 1.2), figures(90, 100.0, 1.0)]);
        assert_eq!(advice.fast_to_read().stored_bytes, 20);
        assert_eq!(advice.fast_to_write().stored_bytes, 20);
    }

    #[test]
    fn what_costs_least_depends_on_how_often_it_is_read() {
        let advice =
            advice(vec![figures(1_000_000_000, 10.0, 3600.0), figures(3_000_000_000, 1000.0, 0.0)]);
        let mut prices =
            Prices { gb_month: 0.5, core_hour: 1.0, months: 10.0, ..Prices::default() };
        // 5 kept and 2 packed, or 15 kept.
        assert_eq!(prices.cost(&advice.figures[0], advice.threads), 7.0);
        assert_eq!(prices.cost(&advice.figures[1], advice.threads), 15.0);
        assert_eq!(advice.cheapest(&prices).stored_bytes, 1_000_000_000);
        // A million reads take 28 hours, or a quarter of one.
        prices.reads_per_month = 100_000.0;
        prices.read = 0.000_001;
        assert!((prices.cost(&advice.figures[0], 2) - (7.0 + 1.0 + 1e5 / 3600.0)).abs() < 1e-9);
        assert_eq!(advice.cheapest(&prices).stored_bytes, 3_000_000_000);
    }

    #[test]
    fn what_is_foretold_comes_true() {
        // Stretches of different kinds, each longer than what a block or a few are.
        let mut random = Random(5);
        let mut content = Vec::new();
        let letters = random.text(30_000);
        while content.len() < 12_000_000 {
            let len = 1 + random.below(400_000) as usize;
            match random.below(3) {
                0 => content.extend(random.text(len)),
                1 => content.extend(letters.iter().cycle().skip(len % 1000).take(len)),
                _ => content.extend(random.bytes(len / 8)),
            }
        }
        let hybrid = Method::Coding(Coding::Hybrid);
        let zstd = Method::Codec(Codec::Zstd);
        let plans =
            [(zstd, 3, 16 << 10), (zstd, 3, 100_000), (hybrid, 5, 16 << 10), (hybrid, 2, 5_000)];
        let plan = |(method, level, block)| Survey::plan(method, level, block, 12_000_000).unwrap();
        let plans: Vec<Plan> = plans.map(plan).into();
        let mut steps = Vec::new();
        let advice = hasty().plans(plans.clone()).record_bytes(777);
        let advice = advice
            .run(&content, &mut |done, all| {
                steps.push((done, all));
                Ok(())
            })
            .unwrap();
        assert!(steps.is_sorted() && steps.iter().all(|(done, all)| done <= all));
        assert_eq!(advice.figures.len(), plans.len());
        for figures in &advice.figures {
            let mut writer =
                Writer::new(Vec::new(), figures.plan.options(&content).unwrap()).unwrap();
            std::io::Write::write_all(&mut writer, &content).unwrap();
            let real = (writer.finish().unwrap().len() + 777) as f64;
            let error = (figures.stored_bytes as f64 / real - 1.0).abs();
            assert!(error < 0.03, "{figures:?}: {real}");
            assert!(error < 2.0 * figures.stored_error + 0.002, "{figures:?}: {real}");
            assert!(figures.reads_per_second > 1.0 && figures.pack_seconds > 0.0);
            assert!(figures.read_bytes > 500.0 && figures.read_bytes < 130_000.0, "{figures:?}");
        }
    }

    #[test]
    fn small_content_is_measured_whole_and_none_is_refused() {
        let mut nothing = |_, _| Ok(());
        assert!(hasty().run(&Vec::new(), &mut nothing).is_err());
        for block_len in [0, 1023, (16 << 20) + 1, usize::MAX] {
            let plan = Survey::plan(Method::Codec(Codec::Zstd), 3, block_len, 9).unwrap();
            let refused = hasty().plans(vec![plan]).run(&vec![7; 9], &mut nothing);
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{block_len}");
        }
        for len in [1, 3_000] {
            let content = Random(7).text(len);
            let advice = hasty().run(&content, &mut nothing).unwrap();
            for figures in &advice.figures {
                let options = figures.plan.options(&content).unwrap();
                let mut writer = Writer::new(Vec::new(), options).unwrap();
                std::io::Write::write_all(&mut writer, &content).unwrap();
                let real = writer.finish().unwrap().len() as u64;
                assert!(figures.stored_bytes.abs_diff(real) <= 40, "{len} {figures:?}: {real}");
                assert_eq!(figures.stored_error, 0.0);
            }
        }
        // Asked to stop, it stops.
        let mut stop = |done, _| if done == 3 { Err(Error::Poisoned) } else { Ok(()) };
        let stopped = hasty().run(&Random(7).text(50_000), &mut stop);
        assert!(matches!(stopped, Err(Error::Poisoned)));
    }
}
