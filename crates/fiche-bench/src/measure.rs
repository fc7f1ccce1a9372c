//! Reads what a list of queries asks for, and makes sure that it was read.

use std::time::Instant;

use fiche::testing::Random;
use serde::{Deserialize, Serialize};

use crate::engine::{Opened, Reads, Result};

/// Length of a piece: that of the paper.
pub const PIECE: usize = 16 << 10;
/// Reads that BATCH hands over together.
const TOGETHER: usize = 256;

/// A mode of retrieval (section 4 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// All of it in order, in aligned pieces of 16 KiB.
    Full,
    /// Pieces of 16 KiB at random places, not aligned, in the order of their places.
    Batch,
    /// The same in random order.
    Random,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Full, Mode::Batch, Mode::Random];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Full => "full",
            Mode::Batch => "batch",
            Mode::Random => "random",
        }
    }
}

/// A piece to be read: offset and length.
pub type Query = (u64, usize);

/// What a mode reads of a corpus of this length; of `count` only where it is random.
pub fn queries(mode: Mode, len: u64, count: usize) -> Vec<Query> {
    if mode == Mode::Full {
        let piece = |start: u64| (start, (len - start).min(PIECE as u64) as usize);
        return (0..len).step_by(PIECE).map(piece).collect();
    }
    let mut random = Random(len);
    let piece = PIECE.min(len as usize);
    let mut queries: Vec<Query> =
        (0..count).map(|_| (random.below(len - piece as u64 + 1), piece)).collect();
    if mode == Mode::Batch {
        queries.sort_unstable();
    }
    queries
}

/// The part of the sum that query `i` adds: it tells which bytes came at which place.
pub fn part(i: usize, bytes: &[u8]) -> u64 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes);
    crc.wrapping_mul(2 * i as u64 + 1)
}

/// What one pass over all queries came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    pub seconds: f64,
    pub bytes: u64,
    pub checksum: u64,
    /// Microseconds that a read took, from when it (or its batch) was asked for: mean, median, 99
    /// of 100, the longest.
    #[serde(default)]
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Reads all queries on so many threads, each its share of the list.
pub fn pass(opened: &dyn Opened, mode: Mode, queries: &[Query], threads: usize) -> Result<Pass> {
    let share = queries.len().div_ceil(threads.max(1)).max(1);
    let start = Instant::now();
    let done: Vec<Result<(u64, u64, Vec<u32>)>> = std::thread::scope(|scope| {
        let of_share = |(i, share_of): (usize, &[Query])| {
            let share_of = share_of.to_vec();
            scope.spawn(move || read_all(&mut *opened.reads()?, mode, &share_of, i * share))
        };
        let running: Vec<_> = queries.chunks(share).enumerate().map(of_share).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        running.into_iter().map(join).collect()
    });
    let mut pass = Pass { seconds: start.elapsed().as_secs_f64(), ..Pass::default() };
    let mut nanoseconds = Vec::with_capacity(queries.len());
    for done in done {
        let (bytes, checksum, times) = done?;
        pass.bytes += bytes;
        pass.checksum = pass.checksum.wrapping_add(checksum);
        nanoseconds.extend(times);
    }
    nanoseconds.sort_unstable();
    let at = |share: f64| {
        let i = (nanoseconds.len() as f64 * share) as usize;
        nanoseconds.get(i.min(nanoseconds.len() - 1)).map_or(0.0, |&ns| f64::from(ns) / 1e3)
    };
    if !nanoseconds.is_empty() {
        let sum: f64 = nanoseconds.iter().map(|&ns| f64::from(ns)).sum();
        pass.mean = sum / nanoseconds.len() as f64 / 1e3;
        (pass.p50, pass.p99, pass.max) = (at(0.5), at(0.99), at(1.0));
    }
    Ok(pass)
}

/// Bytes, checksum, and the nanoseconds of each read.
fn read_all(
    reads: &mut dyn Reads,
    mode: Mode,
    queries: &[Query],
    first: usize,
) -> Result<(u64, u64, Vec<u32>)> {
    let (mut bytes, mut checksum) = (0, 0u64);
    let mut times = Vec::with_capacity(queries.len());
    let mut bufs = vec![0; PIECE * if mode == Mode::Batch { TOGETHER } else { 1 }];
    let together = if mode == Mode::Batch { TOGETHER } else { 1 };
    for (group, queries) in queries.chunks(together).enumerate() {
        let start = Instant::now();
        let mut batch: Vec<(u64, &mut [u8])> = queries
            .iter()
            .zip(bufs.chunks_mut(PIECE))
            .map(|(&(offset, len), buf)| (offset, &mut buf[..len]))
            .collect();
        let at_once = mode == Mode::Batch && reads.read_batch(&mut batch)?;
        for (i, (offset, buf)) in batch.iter_mut().enumerate() {
            if !at_once {
                if mode == Mode::Random {
                    reads.forget()?;
                }
                let start = Instant::now();
                reads.read(*offset, buf)?;
                times.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            bytes += buf.len() as u64;
            checksum = checksum.wrapping_add(part(first + group * together + i, buf));
        }
        if at_once {
            let ns = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
            times.extend(std::iter::repeat_n(ns, queries.len()));
        }
    }
    Ok((bytes, checksum, times))
}

/// Fails unless a pass read what the queries ask for: `expected` is the sum over the corpus itself.
pub fn verify(pass: &Pass, expected: &Pass) -> Result<()> {
    if (pass.bytes, pass.checksum) != (expected.bytes, expected.checksum) {
        return Err("it read other bytes than those that were asked for".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A corpus in memory, and the ways to get it wrong.
    struct Memory<'a>(&'a [u8], Lie);

    #[derive(Clone, Copy, PartialEq)]
    enum Lie {
        None,
        /// The bytes behind those that were asked for.
        Elsewhere,
        /// Nothing is decoded: the buffer stays as it is.
        Nothing,
        /// One byte is wrong in one read.
        OneByte,
        /// Always the same piece.
        Same,
        /// Only the first of a batch is read.
        FirstOfBatch,
    }

    impl Opened for Memory<'_> {
        fn reads(&self) -> Result<Box<dyn Reads + '_>> {
            Ok(Box::new(Memory(self.0, self.1)))
        }
    }

    impl Reads for Memory<'_> {
        fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let len = buf.len();
            let at = |offset: usize| &self.0[offset % (self.0.len() - len + 1)..][..len];
            match self.1 {
                Lie::Nothing => {}
                Lie::Elsewhere => buf.copy_from_slice(at(offset as usize + 1)),
                Lie::Same => buf.copy_from_slice(at(0)),
                _ => buf.copy_from_slice(at(offset as usize)),
            }
            if self.1 == Lie::OneByte && offset < PIECE as u64 {
                buf[len / 2] ^= 1;
            }
            Ok(())
        }

        fn read_batch(&mut self, reads: &mut [(u64, &mut [u8])]) -> Result<bool> {
            let count = if self.1 == Lie::FirstOfBatch { 1 } else { reads.len() };
            for (offset, buf) in reads.iter_mut().take(count) {
                self.read(*offset, buf)?;
            }
            Ok(true)
        }
    }

    #[test]
    fn an_engine_that_does_not_read_what_it_was_asked_for_is_caught() {
        let corpus = Random(1).text(300_000);
        for mode in Mode::ALL {
            let queries = queries(mode, corpus.len() as u64, 500);
            let truth = pass(&Memory(&corpus, Lie::None), mode, &queries, 1).unwrap();
            assert_eq!(truth.bytes, queries.iter().map(|q| q.1 as u64).sum::<u64>());
            for threads in [1, 2, 3] {
                let again = pass(&Memory(&corpus, Lie::None), mode, &queries, threads).unwrap();
                verify(&again, &truth).unwrap();
            }
            for lie in [Lie::Elsewhere, Lie::Nothing, Lie::OneByte, Lie::Same, Lie::FirstOfBatch] {
                if lie == Lie::FirstOfBatch && mode != Mode::Batch {
                    continue;
                }
                let lied = pass(&Memory(&corpus, lie), mode, &queries, 2).unwrap();
                assert!(verify(&lied, &truth).is_err());
            }
        }
    }

    #[test]
    fn an_engine_that_reads_less_than_all_is_caught() {
        let corpus = Random(1).text(100_000);
        let all = queries(Mode::Random, corpus.len() as u64, 500);
        let memory = Memory(&corpus, Lie::None);
        let truth = pass(&memory, Mode::Random, &all, 1).unwrap();
        let less = pass(&memory, Mode::Random, &all[1..], 1).unwrap();
        assert!(verify(&less, &truth).is_err());
        let mut swapped = all;
        swapped.swap(3, 4);
        let other = pass(&memory, Mode::Random, &swapped, 1).unwrap();
        assert!(verify(&other, &truth).is_err());
    }
}
