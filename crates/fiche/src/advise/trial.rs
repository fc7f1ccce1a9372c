//! Packs samples as they would be packed, and reads them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::advise::Plan;
use crate::advise::population::{Estimate, Population};
use crate::archive::{Method, OpenOptions, Options, Reader, Writer, merge};
use crate::error::Result;
use crate::io::ReadAt;
use crate::random::Random;
use crate::rlz::{Coder, Coding, Dictionary, Training};

/// Bytes that are packed at first, and blocks.
const SAMPLE: u64 = 4 << 20;
const FEWEST: u64 = 32;
/// The sample is doubled until the estimate is good (its standard error), or fair and that took long, or too long.
const GOOD: f64 = 0.004;
const FAIR: f64 = 0.007;
const LONG: Duration = Duration::from_secs(3);
const TOO_LONG: Duration = Duration::from_secs(8);
const LARGEST: u64 = 64 << 20;
/// And, unless that takes longer than `SHORT`, until it takes as much memory as the archive will, which is where reads
/// find it: in a cache of the processor or not. That much of the archive is enough.
const SHORT: Duration = Duration::from_millis(400);
const ROOM: f64 = (8 << 20) as f64;
/// No sample is read out of more copies of it.
const MOST_TIMES: f64 = 64.0;
/// Packing is timed as often at most.
const TIMES: usize = 15;
/// Reads of one turn are so many at least.
const READS: usize = 4;

/// What was learned from the content: dictionaries, each once, and the last coder.
pub(super) struct Learned<'a> {
    content: &'a dyn ReadAt,
    threads: usize,
    dictionaries: Vec<Chosen>,
    last: Option<Ready>,
}

/// A dictionary, and how long it took to choose it and to compress it.
#[derive(Clone)]
struct Chosen {
    covers: bool,
    wanted_len: u64,
    dictionary: Arc<Dictionary>,
    learning: Learning,
}

/// The seconds that learning takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Learning {
    /// To choose the dictionary.
    choosing: f64,
    /// To compress it.
    compressing: f64,
    /// To sort it, and to learn codes.
    preparing: f64,
}

impl Learning {
    /// Seconds until all is packed, where blocks take so many on as many threads.
    fn with(self, blocks: f64, threads: usize) -> f64 {
        let Learning { choosing, compressing, preparing } = self;
        // Where there are threads, one compresses the dictionary beside all else.
        let beside = match threads {
            1 => compressing + preparing + blocks,
            _ => compressing.max(preparing + blocks + compressing / threads as f64),
        };
        choosing + beside
    }
}

/// A coder, and how long all of its learning took.
struct Ready {
    coding: Coding,
    level: i32,
    dictionary_len: u64,
    coder: Coder,
    learning: Learning,
}

impl<'a> Learned<'a> {
    pub fn new(content: &'a dyn ReadAt, threads: usize) -> Learned<'a> {
        Learned { content, threads, dictionaries: Vec::new(), last: None }
    }

    fn dictionary(&mut self, coding: Coding, wanted_len: u64) -> Result<Chosen> {
        let covers = coding.is_hybrid();
        let is_it = |known: &&Chosen| known.covers == covers && known.wanted_len == wanted_len;
        if let Some(known) = self.dictionaries.iter().find(is_it) {
            return Ok(known.clone());
        }
        let start = Instant::now();
        let training = Training::new(coding).threads(self.threads).dictionary_len(wanted_len);
        let dictionary = Arc::new(training.sample(self.content)?);
        let choosing = start.elapsed().as_secs_f64();
        dictionary.packed(self.threads);
        let compressing = start.elapsed().as_secs_f64() - choosing;
        let learning = Learning { choosing, compressing, preparing: 0.0 };
        let chosen = Chosen { covers, wanted_len, dictionary, learning };
        self.dictionaries.push(chosen.clone());
        Ok(chosen)
    }

    /// The options of a plan, and how long it takes to learn what they need.
    pub fn options(&mut self, plan: &Plan) -> Result<(Options, Learning)> {
        let options = Options::default().block_len(plan.block_len).threads(self.threads);
        let coding = match plan.method {
            Method::Codec(codec) => {
                return Ok((options.codec(codec).level(plan.level), Learning::default()));
            }
            Method::Coding(coding) => coding,
        };
        let (level, dictionary_len) = (plan.level, plan.dictionary_len);
        let is_it = |last: &&Ready| {
            last.coding == coding && last.level == level && last.dictionary_len == dictionary_len
        };
        if let Some(last) = self.last.as_ref().filter(is_it) {
            let coder = last.coder.clone();
            let coder = coder.learn_on(self.threads, self.content, plan.block_len)?;
            return Ok((options.coder(Arc::new(coder)), last.learning));
        }
        let chosen = self.dictionary(coding, dictionary_len)?;
        let training = Training::new(coding).level(level).block_len(plan.block_len);
        let training = training.threads(self.threads).dictionary(chosen.dictionary);
        let start = Instant::now();
        let coder = training.run(self.content)?;
        let learning = Learning { preparing: start.elapsed().as_secs_f64(), ..chosen.learning };
        self.last = Some(Ready { coding, level, dictionary_len, coder: coder.clone(), learning });
        Ok((options.coder(Arc::new(coder)), learning))
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
    /// Packs samples until they tell enough; `timed` is how long the last one is packed again.
    pub fn new(
        plan: &Plan,
        learned: &mut Learned,
        population: &Population,
        timed: Duration,
    ) -> Result<Trial> {
        let (options, learning) = learned.options(plan)?;
        let mut open = OpenOptions::default().cache(0);
        if let Method::Coding(_) = plan.method {
            for chosen in &learned.dictionaries {
                open = open.dictionary(chosen.dictionary.clone());
            }
        }
        let block_len = plan.block_len as u64;
        let blocks = population.blocks(block_len);
        let all = population.shuffled(block_len);
        let mut count = (SAMPLE / block_len).max(FEWEST).min(blocks);
        let (mut readers, mut numbers, mut lens) = (Vec::new(), Vec::new(), Vec::<f64>::new());
        // Seconds for a byte.
        let mut paces = Vec::new();
        let start = Instant::now();
        loop {
            // What was packed before stays as it is.
            let mut more = all[numbers.len()..count as usize].to_vec();
            more.sort_unstable();
            let sample = population.read(block_len, &more)?;
            let (archive, seconds) = pack(&options, &sample)?;
            paces.push(seconds / sample.len() as f64);
            let reader = open.clone().open(Arc::new(archive))?;
            lens.extend(reader.stored_lens()?.iter().map(|&len| len as f64));
            numbers.extend(more);
            let info = reader.info()?;
            readers.push(reader);
            let stored = population.estimate(block_len, &numbers, &lens);
            let took = start.elapsed();
            let (packed, room) = (lens.iter().sum::<f64>(), ROOM.min(stored.value));
            let is_enough = match stored.error / stored.value.max(1.0) {
                error if error <= GOOD => packed >= room || took > SHORT,
                error => took > if error <= FAIR { LONG } else { TOO_LONG },
            };
            if count < blocks && !is_enough && count * block_len < LARGEST {
                count = (count * 2).min(blocks);
                continue;
            }
            // Everything beside the blocks is there once, or grows with their number.
            let all = blocks as f64 * population.scale();
            let index = info.index_bytes as f64 / info.blocks.max(1) as f64 * all;
            let shared = info.dictionary_bytes + info.model_bytes + info.envelope_bytes;
            let value = stored.value + index + shared as f64;
            let mean_stored = lens.iter().sum::<f64>() / lens.len().max(1) as f64;
            let start = Instant::now();
            while start.elapsed() < timed && paces.len() < TIMES {
                paces.push(pack(&options, &sample)?.1 / sample.len() as f64);
            }
            let whole = population.len() as f64 * population.scale();
            let times = (room / packed.max(1.0)).clamp(1.0, MOST_TIMES).ceil() as usize;
            return Ok(Trial {
                reader: joined(readers, times, &open)?,
                dice: Random(block_len),
                stored: Estimate { value, error: stored.error },
                pack_seconds: learning.with(whole * median(&mut paces), learned.threads),
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

/// An archive of all these, that many times over.
fn joined(mut readers: Vec<Reader>, times: usize, open: &OpenOptions) -> Result<Reader> {
    let readers = match (readers.len(), times) {
        (1, 1) => return Ok(readers.remove(0)),
        (len, _) => readers.into_iter().cycle().take(len * times).collect::<Vec<_>>(),
    };
    let archive = merge(&readers, Vec::new(), &mut |_| Ok(()))?;
    open.clone().open(Arc::new(archive))
}

/// Packs the bytes; gives the archive, and the seconds that it took.
fn pack(options: &Options, bytes: &[u8]) -> Result<(Vec<u8>, f64)> {
    let mut writer = Writer::new(Vec::new(), options.clone())?;
    let start = Instant::now();
    writer.write_all(bytes)?;
    let archive = writer.finish()?;
    Ok((archive, start.elapsed().as_secs_f64()))
}

/// The middle one of numbers of which there is at least one; of two the lower, as times are too long rather than too short.
pub(super) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_compressed_beside_all_else() {
        let learning = Learning { choosing: 1.0, compressing: 8.0, preparing: 2.0 };
        assert_eq!(learning.with(3.0, 1), 14.0);
        assert_eq!(learning.with(1.0, 2), 9.0);
        assert_eq!(learning.with(10.0, 2), 17.0);
        assert_eq!(Learning::default().with(3.0, 2), 3.0);
    }
}
