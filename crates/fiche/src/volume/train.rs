//! A dictionary is trained from what a volume holds, when nobody asks for anything: with it each unit of a few blocks shrinks like a much longer one.

use crate::codec::Codec;
use crate::codec::prepared::train;
use crate::error::Result;
use crate::random::Random;
use crate::volume::clean::extents;
use crate::volume::dictionary::Dictionary;
use crate::volume::format::{
    BLOCK, DICTIONARIES, FRAGMENT_HEAD, FragmentHead, Kind, MAX_UNIT, Stream,
};
use crate::volume::log::Log;
use crate::volume::pack::HARD;
use crate::volume::tend::Tender;
use crate::volume::unit::{Packing, With, draft, looks_random, unpack};
use crate::volume::{Volume, Work, locked};

/// Bytes of units that are looked at, at most, and segments that they are taken from.
const SAMPLE: u64 = 8 << 20;
const PLACES: usize = 64;
/// Bytes of a dictionary: a part of what it is trained from, between these.
const LENS: std::ops::RangeInclusive<usize> = 4 << 10..=112 << 10;
const PART: usize = 32;
/// Parts of the device that all of them may take with both copies, and that one may take alone, of which it has a few in its time.
const OF_DEVICE: u64 = 48;
const ALONE: u64 = 4 * OF_DEVICE;
/// Bytes of log after which another one is tried, at least.
const AFTER: u64 = 1 << 20;
/// What is saved of what a volume takes, at least: a 16th; and many times what the dictionary takes.
const WORTH: usize = 16;

impl Volume {
    /// Whether it is to be tried now: there is none yet, or half as much as the volume holds was written since the last time.
    pub(super) fn is_training_due(&self, log: &Log, tender: &mut Tender) -> bool {
        let is_possible = self.packing.codec == Codec::Zstd && self.trains;
        if !is_possible || log.copies.len() >= DICTIONARIES {
            return false;
        }
        let written = self.counts.written_by_others();
        let first = || match self.dictionaries.newest() {
            Some(_) => written + later(log),
            None => 0,
        };
        // What too little is looked at of tells nothing.
        written >= *tender.train_at.get_or_insert_with(first)
            && live_len(log) >= 2 * (PART * LENS.start()) as u64
    }

    /// Trains a dictionary from some of what the volume holds, and takes it from now on where it saves enough of some of the rest, beside the one that is there. What was packed
    /// before is packed again, where that saves something.
    pub(super) fn train(&self, tender: &mut Tender) -> Result<()> {
        let (places, live) = {
            let log = locked(&self.log);
            tender.train_at = Some(self.counts.written_by_others() + later(&log));
            (log.space.live_segments(), live_len(&log))
        };
        let units = self.sample(places, live)?;
        let Some((dictionary, part)) = self.with_work(|work| self.try_one(&units, work)) else {
            return Ok(());
        };
        let saved = (live as f64 * part) as u64;
        let mut log = locked(&self.log);
        // Both copies; and it may be that nothing is saved any more later on.
        let len = dictionary.bytes().len() as u64;
        let (_, others) = self.dictionaries.total();
        let is_small = 2 * (others as u64 + len) <= self.blocks() * BLOCK as u64 / OF_DEVICE;
        let has_room = log.space.available() > self.reserve(&log) + 4;
        if saved < 4 * len || !is_small || !has_room {
            return Ok(());
        }
        self.begin_cold(&mut log)?;
        let number = log.copies.len();
        // In segments of their own.
        for (copy, stream) in [Stream::Hot, Stream::Cold].into_iter().enumerate() {
            let stream = if log.is_claimed { Stream::Hot } else { stream };
            self.put_copy(&mut log, stream, (number, copy), dictionary.bytes())?;
        }
        self.dictionaries.set(number, dictionary);
        log.space.set_all_raw();
        Ok(())
    }

    /// Units of several segments: some of each. What is not needed any more tells as much as what is.
    fn sample(&self, mut places: Vec<u32>, live: u64) -> Result<Vec<Vec<u8>>> {
        let wanted = SAMPLE.min(live / 2) as usize;
        let mut random = Random(u64::from(self.packing.tag) ^ live);
        let count = places.len().min(PLACES);
        for i in 0..count {
            let other = i + random.below((places.len() - i) as u64) as usize;
            places.swap(i, other);
        }
        let each = wanted.div_ceil(count.max(1)).min(1 << self.bits);
        let mut units = Vec::new();
        self.with_work(|work| {
            for segment in places.into_iter().take(count) {
                // What cannot be read says nothing.
                let _ = self.sample_segment(segment, each, &mut units, work);
            }
        });
        Ok(units)
    }

    fn sample_segment(
        &self,
        segment: u32,
        most: usize,
        units: &mut Vec<Vec<u8>>,
        work: &mut Work,
    ) -> Result<()> {
        let start = u64::from(segment) << self.bits;
        let have = self.device.len()?.saturating_sub(start).min(most as u64);
        let mut bytes = vec![0; have as usize];
        self.device.read_at(start, &mut bytes)?;
        let (tag, mut len) = (self.packing.tag, 0);
        for (extent, mut at) in extents(&bytes, tag, start) {
            for _ in 0..extent.fragments {
                let fragment = bytes.get(at..).unwrap_or_default();
                let Ok(head) = FragmentHead::parse(fragment, 0) else { break };
                at += head.stored_len();
                let is_unit = matches!(head.kind, Kind::Unit(_)) && head.verify(tag, fragment);
                if !is_unit || len >= most {
                    continue;
                }
                let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                let mut unit = vec![0; head.count as usize * BLOCK];
                let Work { scratch, room, .. } = &mut *work;
                let unpacked =
                    unpack(&head, stored, 0, &mut unit, room, &self.dictionaries, scratch);
                if unpacked.is_ok() && !looks_random(&unit) {
                    len += unit.len();
                    units.push(unit);
                }
            }
        }
        Ok(())
    }

    /// A dictionary for these units, and what part of their length it saves of units that it was not trained from, more than the one that
    /// is there.
    fn try_one(&self, units: &[Vec<u8>], work: &mut Work) -> Option<(Dictionary, f64)> {
        let (mut samples, mut rest) = (Vec::new(), Vec::new());
        for (i, unit) in units.iter().enumerate() {
            match i % 8 {
                7 => rest.push(unit),
                _ => samples.extend_from_slice(unit),
            }
        }
        // As much as a segment has room for beside others.
        let most = (*LENS.end()).min(1 << (self.bits - 3));
        let most = most.min((self.blocks() * BLOCK as u64 / ALONE) as usize);
        let len = (samples.len() / PART).min(most);
        if len < *LENS.start() || rest.is_empty() {
            return None;
        }
        // Blocks: the smallest of what is packed.
        let dictionary = Dictionary::new(train(&samples, BLOCK, len)?)?;
        let with = With { number: 0, encoding: dictionary.encoding(HARD).ok()? };
        let all: usize = rest.iter().map(|unit| unit.len()).sum();
        let mut len_of = |with: Option<With>| -> Option<usize> {
            let packing = Packing { unit: MAX_UNIT, threads: 1, ..self.packing(HARD) };
            let packing = Packing { with, ..packing };
            let Work { scratch, stored, .. } = &mut *work;
            let len = |unit: &&Vec<u8>| -> Option<usize> {
                let drafts = draft(0, unit, &packing, scratch, stored).ok()?;
                Some(drafts.iter().map(|draft| draft.bytes.len()).sum())
            };
            rest.iter().map(len).sum()
        };
        let new = len_of(Some(with))?;
        let old = len_of(self.dictionaries.with(HARD))?;
        (new + new / WORTH < old).then(|| (dictionary, (old - new) as f64 / all as f64))
    }
}

/// Bytes of log until the next one is tried.
fn later(log: &Log) -> u64 {
    (live_len(log) / 2).max(AFTER)
}

/// Bytes of blocks that the volume holds.
fn live_len(log: &Log) -> u64 {
    let segments = 1..log.space.segments();
    segments.map(|segment| u64::from(log.space.used(segment).live) * BLOCK as u64).sum()
}
