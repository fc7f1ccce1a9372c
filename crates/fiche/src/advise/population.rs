//! What is sampled, and what a sample says of the whole.
//!
//! All of the content is packed once in a few fast ways, block by block. What a slow way makes of some blocks
//! follows closely what a fast one makes of them: the ratio of the two, measured on the sample, times
//! what the fast one makes of everything, is what the slow one would make of it (the ratio estimator of
//! survey sampling). How much that may be wrong is told by how well the blocks of the sample agree.

use crate::archive::{Options, Reader, Writer};
use crate::error::Result;
use crate::io::{ReadAt, within};
use crate::random::Random;

/// Of more content than `MOST` bytes, parts of this length are looked at, one in each of as many stretches.
const PART: u64 = 1 << 20;
const MOST: u64 = 256 << 20;
/// Bytes that are packed at a time by the fast ways.
const CHUNK: u64 = 32 << 20;

/// The parts of the content that are looked at, one after the other: all of it, unless it is long.
pub(super) struct Population<'a> {
    content: &'a dyn ReadAt,
    /// Where each part starts in the content.
    starts: Vec<u64>,
    len: u64,
    ways: Vec<Way>,
}

/// All of it packed in a fast way.
struct Way {
    /// Length of its blocks, in bytes: a part has a whole number of them.
    cell: u64,
    /// The stored bytes before each block, and behind the last.
    sums: Vec<f64>,
}

/// An estimate of a sum over all content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl<'a> Population<'a> {
    pub fn new(content: &'a dyn ReadAt) -> Population<'a> {
        let all = content.len();
        let mut dice = Random(1);
        let (starts, len) = if all <= MOST {
            ((0..all.div_ceil(PART)).map(|i| i * PART).collect(), all)
        } else {
            let (parts, there) = (MOST / PART, all / PART);
            let place = |i: u64| (u128::from(there) * u128::from(i) / u128::from(parts)) as u64;
            let one = |i| place(i) + dice.below(place(i + 1) - place(i));
            ((0..parts).map(one).map(|part| part * PART).collect(), MOST)
        };
        Population { content, starts, len, ways: Vec::new() }
    }

    /// How much of the content it is: as many bytes of that for each of its own.
    pub fn scale(&self) -> f64 {
        self.content.len() as f64 / self.len.max(1) as f64
    }

    /// Packs everything in a fast way, in blocks of a power of two up to 1 MiB.
    pub fn pack(&mut self, options: &Options, cell: u64) -> Result<()> {
        let options = options.clone().block_len(cell as usize);
        let (mut sums, mut sum) = (vec![0.0], 0.0);
        let mut start = 0;
        while start < self.len {
            let mut chunk = vec![0; CHUNK.min(self.len - start) as usize];
            self.read_at(start, &mut chunk)?;
            start += chunk.len() as u64;
            let mut writer = Writer::new(Vec::new(), options.clone())?;
            std::io::Write::write_all(&mut writer, &chunk)?;
            let reader = Reader::open(std::sync::Arc::new(writer.finish()?))?;
            for stored in reader.stored_lens()? {
                sum += stored as f64;
                sums.push(sum);
            }
        }
        self.ways.push(Way { cell, sums });
        Ok(())
    }

    /// How many blocks of this length there are.
    pub fn blocks(&self, block_len: u64) -> u64 {
        self.len.div_ceil(block_len)
    }

    /// Reads these blocks, one behind the other.
    pub fn read(&self, block_len: u64, numbers: &[u64]) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(numbers.len() * block_len as usize);
        for number in numbers {
            let (from, start) = (bytes.len(), number * block_len);
            bytes.resize(from + block_len.min(self.len - start) as usize, 0);
            self.read_at(start, &mut bytes[from..])?;
        }
        Ok(bytes)
    }

    /// All blocks of this length in random order: any of the first are a sample.
    pub fn shuffled(&self, block_len: u64) -> Vec<u64> {
        let blocks = self.blocks(block_len);
        let (mut numbers, mut dice) = ((0..blocks).collect::<Vec<u64>>(), Random(block_len));
        for i in 0..blocks {
            let other = i + dice.below(blocks - i);
            numbers.swap(i as usize, other as usize);
        }
        numbers
    }

    /// What a fast way makes of the bytes before this place: in proportion, within a cell.
    fn before(&self, way: &Way, at: u64) -> f64 {
        let sums = &way.sums;
        let (cell, rest) = ((at / way.cell) as usize, at % way.cell);
        if rest == 0 {
            return sums[cell];
        }
        let len = way.cell.min(self.len - cell as u64 * way.cell);
        sums[cell] + (sums[cell + 1] - sums[cell]) * rest as f64 / len as f64
    }

    /// What all blocks of this length are stored in, where these of them are stored in so much: from
    /// that fast way that says it best, or from none.
    pub fn estimate(&self, block_len: u64, numbers: &[u64], stored: &[f64]) -> Estimate {
        let of_way = |way: Option<&Way>| {
            let known = |from: u64, to: u64| match way {
                Some(way) => self.before(way, to) - self.before(way, from),
                None => (to - from) as f64,
            };
            let of_block =
                |number: &u64| known(number * block_len, self.len.min((number + 1) * block_len));
            let x: Vec<f64> = numbers.iter().map(of_block).collect();
            ratio(&x, stored, self.blocks(block_len) as f64, known(0, self.len))
        };
        let ways = self.ways.iter().map(Some).chain([None]);
        let best = ways.map(of_way).min_by(|a, b| a.error.total_cmp(&b.error));
        let best = best.unwrap_or(Estimate { value: 0.0, error: 0.0 });
        let scale = self.scale();
        let value = best.value * scale;
        let parts = self.between_parts() * value;
        Estimate { value, error: (best.error * scale).hypot(parts) }
    }

    /// The relative error from looking at some parts only.
    fn between_parts(&self) -> f64 {
        let (Some(way), true) = (self.ways.last(), self.content.len() > self.len) else {
            return 0.0;
        };
        let cells = (PART / way.cell) as usize;
        let parts: Vec<f64> =
            way.sums.windows(cells + 1).step_by(cells).map(|w| w[cells] - w[0]).collect();
        let ones = vec![1.0; parts.len()];
        let all = self.content.len() as f64 / PART as f64;
        let sum = ratio(&ones, &parts, all, all);
        sum.error / sum.value.max(1.0)
    }
}

/// The sum of `y` over all `count` members, where that of `x` is known, from those of a sample.
fn ratio(x: &[f64], y: &[f64], count: f64, sum: f64) -> Estimate {
    let n = x.len() as f64;
    let ratio = y.iter().sum::<f64>() / x.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let squares: f64 = x.iter().zip(y).map(|(x, y)| (y - ratio * x).powi(2)).sum();
    let left_out = (1.0 - n / count).max(0.0);
    let error = match x.len() {
        _ if left_out == 0.0 => 0.0,
        0 | 1 => f64::INFINITY,
        _ => count * (left_out * squares / (n - 1.0) / n).sqrt(),
    };
    Estimate { value: ratio * sum, error }
}

impl ReadAt for Population<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), self.len)?;
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / PART + 1) * PART);
            let part = &mut buf[(at - range.start) as usize..(end - range.start) as usize];
            self.content.read_at(self.starts[(at / PART) as usize] + at % PART, part)?;
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    /// Text of which some stretches compress well and some do not.
    fn mixed(len: usize, seed: u64) -> Vec<u8> {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let piece = 1 + random.below(60_000) as usize;
            match random.below(3) {
                0 => bytes.extend(random.bytes(piece)),
                1 => bytes.extend(random.text(piece)),
                _ => bytes.resize(bytes.len() + piece, 7),
            }
        }
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn the_error_that_is_told_is_the_error_that_is_made() {
        let content = mixed(6_000_000, 1);
        let mut population = Population::new(&content);
        population.pack(&Options::default().codec(Codec::Lz4), 16 << 10).unwrap();
        let options = Options::default().level(3);
        for block_len in [4 << 10, 16 << 10, 50_000] {
            let options = options.clone().block_len(block_len as usize);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            std::io::Write::write_all(&mut writer, &content).unwrap();
            let reader = Reader::open(std::sync::Arc::new(writer.finish().unwrap())).unwrap();
            let lens = reader.stored_lens().unwrap();
            let all: Vec<f64> = lens.iter().map(|&len| len as f64).collect();
            let truth: f64 = all.iter().sum();
            let (mut within, mut told, mut plain) = (0, 0.0, 0.0);
            let blocks = population.blocks(block_len);
            for seed in 0..40 {
                // Other samples than the one that it would take.
                let mut random = Random(seed);
                let mut numbers: Vec<u64> = (0..blocks).collect();
                for i in 0..40 {
                    numbers.swap(i, i + random.below(blocks - i as u64) as usize);
                }
                numbers.truncate(40);
                let stored: Vec<f64> = numbers.iter().map(|&i| all[i as usize]).collect();
                let estimate = population.estimate(block_len, &numbers, &stored);
                let error = (estimate.value - truth).abs();
                within += usize::from(error <= 2.0 * estimate.error);
                told += estimate.error;
                plain += ratio(&[1.0; 40], &stored, blocks as f64, blocks as f64).error;
            }
            assert!(within >= 32, "{block_len}: {within} of 40");
            // The fast way helps: without it, four times as many blocks and more would be needed.
            assert!(told < plain / 2.0, "{block_len}: {told} {plain}");
            // All blocks leave no doubt.
            let mut numbers = population.shuffled(block_len);
            assert!(!numbers.is_sorted());
            numbers.sort_unstable();
            assert_eq!(numbers, (0..blocks).collect::<Vec<_>>());
            let estimate = population.estimate(block_len, &numbers, &all);
            assert!((estimate.value - truth).abs() < 1.0 && estimate.error == 0.0);
        }
    }

    #[test]
    fn long_content_is_looked_at_in_parts_from_everywhere() {
        struct Long;
        impl ReadAt for Long {
            fn len(&self) -> u64 {
                10 << 30
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                buf.fill((offset >> 27) as u8);
                Ok(())
            }
        }
        let population = Population::new(&Long);
        assert_eq!((population.len(), population.scale()), (MOST, 40.0));
        let numbers = population.shuffled(1 << 20);
        let bytes = population.read(1 << 20, &numbers[..2]).unwrap();
        assert_eq!(bytes.len(), 2 << 20);
        let mut seen = [0; 80];
        for start in &population.starts {
            seen[(start >> 27) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (1..=6).contains(&count)), "{seen:?}");
    }
}
