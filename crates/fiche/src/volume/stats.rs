//! What a volume was asked for, what came of it, and how full it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::codec::Codec;
use crate::error::Result;
use crate::volume::clones;
use crate::volume::format::BLOCK;
use crate::volume::{Volume, locked};

/// Something that is counted by any thread.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests of one kind.
#[derive(Default)]
pub(super) struct Requests {
    begun: Count,
    /// Whatever came of them.
    ended: Count,
    count: Count,
    len: Count,
    nanos: Count,
    longest: AtomicU64,
}

impl Requests {
    /// Does one, and counts it if it was done.
    pub fn run(&self, len: u64, run: impl FnOnce() -> Result<()>) -> Result<()> {
        struct Ended<'a>(&'a Count);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.add(1);
            }
        }
        let begun = Instant::now();
        self.begun.add(1);
        let _ended = Ended(&self.ended);
        run()?;
        let nanos = begun.elapsed().as_nanos() as u64;
        self.count.add(1);
        self.len.add(len);
        self.nanos.add(nanos);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
        Ok(())
    }

    fn told(&self) -> Times {
        Times {
            count: self.count.get(),
            len: self.len.get(),
            time: Duration::from_nanos(self.nanos.get()),
            longest: Duration::from_nanos(self.longest.load(Ordering::Relaxed)),
        }
    }
}

#[derive(Default)]
pub(super) struct Counts {
    pub reads: Requests,
    pub writes: Requests,
    /// Made zero, or discarded.
    pub zeros: Requests,
    pub flushes: Requests,
    pub barriers: Count,
    pub appended_len: Count,
    pub moved_len: Count,
    pub map_len: Count,
    pub checkpoints: Count,
    pub cleaned: Count,
    pub given_len: Count,
}

impl Counts {
    /// Bytes of log, up to now, that were not moved.
    pub fn written_by_others(&self) -> u64 {
        self.appended_len.get().saturating_sub(self.moved_len.get())
    }

    pub fn moved(&self) -> u64 {
        self.moved_len.get()
    }

    /// Requests up to now: how many were begun, and how many are over.
    pub fn asked(&self) -> (u64, u64) {
        let kinds = [&self.reads, &self.writes, &self.zeros, &self.flushes];
        // Those that are over were begun: none is missed.
        let ended = kinds.iter().map(|kind| kind.ended.get()).sum();
        (kinds.iter().map(|kind| kind.begun.get()).sum(), ended)
    }
}

/// Requests of one kind that were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Bytes that were asked for.
    pub len: u64,
    /// How long they took, all together: waiting for others and for the device is part of it.
    pub time: Duration,
    /// How long the longest took.
    pub longest: Duration,
}

/// What a volume did since it was opened, and how full it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests to read.
    pub reads: Times,
    /// To write.
    pub writes: Times,
    /// To make zero or discard.
    pub zeros: Times,
    /// To flush.
    pub flushes: Times,
    /// Barriers that were sent to the device for them, and for superblocks.
    pub barriers: u64,
    /// Bytes that were written to the device.
    pub appended_len: u64,
    /// Those of them that the cleaner moved.
    pub moved_len: u64,
    /// Those of them that are the map and what is counted.
    pub map_len: u64,
    /// How often the map was stored.
    pub checkpoints: u64,
    /// Segments that were cleaned.
    pub cleaned: u64,
    /// Bytes of the device whose room was given back.
    pub given_len: u64,
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Segments that it may have.
    pub most_segments: u64,
    /// Those that hold something.
    pub used_segments: u64,
    /// Those that are free and have their room on the device, and how many of them only the map and the cleaner may take.
    pub free_segments: u64,
    /// See there.
    pub kept_segments: u64,
    /// Those that were cleaned, or hold nothing any more, and are free once the map is stored.
    pub pending_segments: u64,
    /// Those that hold something for snapshots only, and how many snapshots there are.
    pub held_segments: u64,
    /// See there.
    pub snapshots: u64,
    /// How many clones there are.
    pub clones: u64,
    /// Dictionaries that there are, and their bytes.
    pub dictionaries: u64,
    /// See there.
    pub dictionary_len: u64,
    /// Bytes of blocks that were written to the segments that hold something, before they were compressed, and how much of that is still
    /// needed.
    pub written_len: u64,
    /// See there.
    pub live_len: u64,
    /// Segments that hold blocks as they were written in a hurry, which are packed harder when nobody asks for anything.
    pub unpacked_segments: u64,
    /// Bytes of the map in memory.
    pub map_memory: u64,
    /// Whether writing failed, so that nothing is written any more.
    pub is_poisoned: bool,
}

impl Stats {
    /// Bytes that were written to the device for each byte that was asked for.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.appended_len as f64 / self.writes.len.max(1) as f64
    }

    /// Bytes that it takes on the device.
    #[must_use]
    pub fn stored_len(&self) -> u64 {
        (1 + self.used_segments + self.free_segments + self.pending_segments) * self.segment_len
    }
}

impl Volume {
    /// What it did since it was opened, and how full it is. Waits while the map is stored.
    pub fn stats(&self) -> Stats {
        let counts = &self.counts;
        let mut stats = Stats {
            reads: counts.reads.told(),
            writes: counts.writes.told(),
            zeros: counts.zeros.told(),
            flushes: counts.flushes.told(),
            barriers: counts.barriers.get(),
            appended_len: counts.appended_len.get(),
            moved_len: counts.moved_len.get(),
            map_len: counts.map_len.get(),
            checkpoints: counts.checkpoints.get(),
            cleaned: counts.cleaned.get(),
            given_len: counts.given_len.get(),
            is_poisoned: self.check_poison().is_err(),
            ..Stats::default()
        };
        let log = locked(&self.log);
        let space = &log.space;
        for segment in 1..space.segments() {
            let used = space.used(segment);
            if !space.is_dead(segment) || space.is_head(segment) {
                stats.used_segments += 1;
                stats.written_len += u64::from(used.total) * BLOCK as u64;
                stats.live_len += u64::from(used.live) * BLOCK as u64;
                stats.held_segments += u64::from(space.is_held(segment) && used.live == 0);
            }
        }
        stats.snapshots = log.snapshots.len() as u64;
        stats.clones = clones::infos(&log.clones, &log.snapshots).len() as u64;
        let (count, len) = self.dictionaries.total();
        (stats.dictionaries, stats.dictionary_len) = (count as u64, len as u64);
        stats.segment_len = 1 << self.bits;
        stats.most_segments = space.most().into();
        stats.free_segments = space.free_len().into();
        stats.kept_segments = self.kept(&log).into();
        stats.pending_segments = (space.soon() + space.on_the_way).into();
        if self.packing.codec != Codec::Copy {
            stats.unpacked_segments = space.raw_len().into();
        }
        stats.map_memory = self.map().memory();
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_request_is_under_way_until_it_is_over_whatever_comes_of_it() {
        let counts = Counts::default();
        assert_eq!(counts.asked(), (0, 0));
        let run = |requests: &Requests, result: Result<()>| {
            let before = counts.asked();
            let _ = requests.run(1, || {
                assert_eq!(counts.asked(), (before.0 + 1, before.1));
                result
            });
            assert_eq!(counts.asked(), (before.0 + 1, before.1 + 1));
        };
        run(&counts.reads, Ok(()));
        run(&counts.flushes, Err(Error::Poisoned));
        assert_eq!((counts.reads.told().count, counts.flushes.told().count), (1, 0));
    }
}
