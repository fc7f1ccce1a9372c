//! Packs samples as they would be packed, and reads them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::advise::Plan;
use crate::advise::population::{Estimate, Population};
use crate::archive::{Method, OpenOptions, Options, Reader, Writer};
use crate::error::Result;
use crate::io::ReadAt;
use crate::random::Random;
use crate::rlz::{Coder, Coding, Dictionary, Training};

/// Bytes that are packed at first, and blocks.
const SAMPLE: u64 = 4 << 20;
const FEWEST: u64 = 32;
/// The sample is doubled until the estimate is this good (its standard error), or took so long, or is so large.
const GOOD: f64 = 0.004;
const LONG: Duration = Duration::from_secs(3);
const LARGEST: u64 = 64 << 20;
/// Packing is timed as often at most.
const TIMES: usize = 15;
/// Reads of one turn are so many at least.
const READS: usize = 4;

/// What was learned from the content: dictionaries and coders, each once.
pub(super) struct Learned<'a> {
    content: &'a dyn ReadAt,
    threads: usize,
    dictionaries: Vec<(bool, u64, Arc<Dictionary>, [f64; 2])>,
    last: Option<(Coding, i32, u64, Coder, f64)>,
}

impl<'a> Learned<'a> {
    pub fn new(content: &'a dyn ReadAt, threads: usize) -> Learned<'a> {
        Learned { content, threads, dictionaries: Vec::new(), last: None }
    }

    /// The dictionary, and the seconds that it takes to choose it and to compress it.
    fn dictionary(&mut self, coding: Coding, len: u64) -> Result<(Arc<Dictionary>, [f64; 2])> {
        let covers = coding.is_hybrid();
        let known = self.dictionaries.iter().find(|known| (known.0, known.1) == (covers, len));
        if let Some((_, _, dictionary, seconds)) = known {
            return Ok((dictionary.clone(), *seconds));
        }
        let start = Instant::now();
        let dictionary = Arc::new(Training::new(coding).dictionary_len(len).sample(self.content)?);
        let chosen = start.elapsed().as_secs_f64();
        dictionary.packed(self.threads);
        let seconds = [chosen, start.elapsed().as_secs_f64() - chosen];
        self.dictionaries.push((covers, len, dictionary.clone(), seconds));
        Ok((dictionary, seconds))
    }

    /// The options of a plan, and how many seconds pass before the first block is packed.
    pub fn options(&mut self, plan: &Plan) -> Result<(Options, f64)> {
        let options = Options::default().block_len(plan.block_len).threads(self.threads);
        let coding = match plan.method {
            Method::Codec(codec) => return Ok((options.codec(codec).level(plan.level), 0.0)),
            Method::Coding(coding) => coding,
        };
        let same = |last: &&(Coding, i32, u64, Coder, f64)| {
            (last.0, last.1, last.2) == (coding, plan.level, plan.dictionary_len)
        };
        let training = Training::new(coding).level(plan.level).block_len(plan.block_len);
        let training = training.threads(self.threads);
        let (coder, seconds) = match self.last.as_ref().filter(same) {
            Some((.., coder, seconds)) => {
                (coder.clone().learn_on(self.threads, self.content, plan.block_len)?, *seconds)
            }
            None => {
                let (dictionary, [chosen, packed]) =
                    self.dictionary(coding, plan.dictionary_len)?;
                let start = Instant::now();
                let coder = training.dictionary(dictionary).run(self.content)?;
                let prepared = start.elapsed().as_secs_f64();
                // The dictionary is compressed beside it, where there are threads.
                let threads = self.threads as f64;
                let beside = match self.threads {
                    1 => packed + prepared,
                    _ => packed.max(prepared).max(packed + prepared / threads),
                };
                let seconds = chosen + beside;
                self.last = Some((coding, plan.level, plan.dictionary_len, coder.clone(), seconds));
                (coder, seconds)
            }
        };
        Ok((options.coder(Arc::new(coder)), seconds))
    }
}

/// A sample that was packed.
pub(super) struct Trial {
    reader: Reader,
    dice: Random,
    pub stored: Estimate,
    /// Seconds to pack everything.
    pub pack_seconds: f64,
    /// Mean stored length of a block.
    pub mean_stored: f64,
    /// Nanoseconds for a read, of each turn.
    pub turns: Vec<f64>,
}

impl Trial {
    /// Packs samples until one tells enough; `timed` is how long the last one is packed again.
    pub fn new(
        plan: &Plan,
        learned: &mut Learned,
        population: &Population,
        timed: Duration,
    ) -> Result<Trial> {
        let (options, learning) = learned.options(plan)?;
        let block_len = plan.block_len as u64;
        let blocks = population.blocks(block_len);
        let mut count = (SAMPLE / block_len).max(FEWEST).min(blocks);
        let start = Instant::now();
        loop {
            let numbers = population.sample(block_len, count);
            let sample = population.read(block_len, &numbers)?;
            let (archive, seconds) = pack(&options, &sample)?;
            let mut open = OpenOptions::default().cache(0);
            if let Method::Coding(_) = plan.method {
                for (.., dictionary, _) in &learned.dictionaries {
                    open = open.dictionary(dictionary.clone());
                }
            }
            let reader = open.open(Arc::new(archive))?;
            let lens: Vec<f64> = reader.stored_lens()?.iter().map(|&len| len as f64).collect();
            let stored = population.estimate(block_len, &numbers, &lens);
            let is_good = stored.error <= GOOD * stored.value;
            let is_enough = is_good || start.elapsed() > LONG || count * block_len >= LARGEST;
            if count < blocks && !is_enough {
                count = (count * 2).min(blocks);
                continue;
            }
            let info = reader.info()?;
            // Everything beside the blocks is there once, or grows with their number.
            let all = blocks as f64 * population.scale();
            let index = info.index_bytes as f64 / info.blocks.max(1) as f64 * all;
            let shared = info.dictionary_bytes + info.model_bytes + info.envelope_bytes;
            let value = stored.value + index + shared as f64;
            let mean_stored = lens.iter().sum::<f64>() / lens.len().max(1) as f64;
            let seconds = again(&options, &sample, seconds, timed)?;
            let rate = sample.len() as f64 / seconds;
            let whole = population.len() as f64 * population.scale();
            return Ok(Trial {
                reader,
                dice: Random(block_len),
                stored: Estimate { value, error: stored.error },
                pack_seconds: learning + whole / rate,
                mean_stored,
                turns: Vec::new(),
            });
        }
    }

    /// Reads random pieces for a turn.
    pub fn read(&mut self, buf: &mut [u8], turn: Duration) -> Result<()> {
        let len = buf.len().min(self.reader.len() as usize);
        let buf = &mut buf[..len];
        let (start, mut count) = (Instant::now(), 0);
        let mut elapsed = Duration::ZERO;
        while elapsed < turn || count < READS {
            let offset = self.dice.below(self.reader.len() - len as u64 + 1);
            self.reader.read_at(offset, buf)?;
            std::hint::black_box(&*buf);
            (count, elapsed) = (count + 1, start.elapsed());
        }
        self.turns.push(elapsed.as_secs_f64() * 1e9 / count as f64);
        Ok(())
    }
}

/// Packs the bytes; gives the archive, and the seconds that it took.
fn pack(options: &Options, bytes: &[u8]) -> Result<(Vec<u8>, f64)> {
    let mut writer = Writer::new(Vec::new(), options.clone())?;
    let start = Instant::now();
    writer.write_all(bytes)?;
    let archive = writer.finish()?;
    Ok((archive, start.elapsed().as_secs_f64()))
}

/// Packs again as often as there is time for, and gives the median of the seconds.
fn again(options: &Options, bytes: &[u8], first: f64, timed: Duration) -> Result<f64> {
    let mut all = vec![first];
    let start = Instant::now();
    while start.elapsed() < timed && all.len() < TIMES {
        all.push(pack(options, bytes)?.1);
    }
    Ok(median(&mut all))
}

/// The middle one of numbers of which there is at least one.
pub(super) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}
