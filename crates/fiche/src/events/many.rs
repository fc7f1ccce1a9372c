//! Reads many events: those of a range, or some by number.

use std::ops::Range;
use std::sync::Arc;

use super::batch::Batch;
use super::decode::{LANES, PACKET, Sinks, TEXTS};
use super::loaded::Kept;
use super::model::MOST_EVENTS;
use super::reader::{Columns, Reader, Work, with_scratch};
use crate::error::{Error, Result};
use crate::parallel::in_parts;

/// Of each packet what is from the first event that is asked for to the last.
#[derive(Default)]
struct Spans {
    ranges: Vec<Range<u64>>,
    /// Their first events, and where these are among all.
    starts: Vec<(u64, usize)>,
    len: usize,
}

impl Spans {
    /// Whether so few others lie between those that are asked for that all may be in memory: a packet has no more events.
    fn is_dense(&self, asked: usize) -> bool {
        self.len <= MOST_EVENTS.max(2 * asked) || asked < 2
    }

    /// Where an event is that is asked for.
    fn place(&self, number: u64) -> usize {
        let (first, at) =
            self.starts[self.starts.partition_point(|&(first, _)| first <= number) - 1];
        at + (number - first) as usize
    }
}

/// What is left of some ranges.
#[derive(Clone, Copy)]
struct Rest<'a> {
    ranges: &'a [Range<u64>],
    /// The next event of the first.
    at: u64,
}

impl<'a> Rest<'a> {
    fn new(ranges: &'a [Range<u64>]) -> Rest<'a> {
        let mut rest = Rest { ranges, at: 0 };
        rest.skip();
        rest
    }

    fn skip(&mut self) {
        while let Some((range, behind)) = self.ranges.split_first() {
            self.at = self.at.max(range.start);
            if self.at < range.end {
                break;
            }
            (self.ranges, self.at) = (behind, 0);
        }
    }

    /// Events that it has.
    fn left(&self) -> u64 {
        let all: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        all - self.ranges.first().map_or(0, |range| self.at - range.start)
    }

    /// The next event, and the end of its range.
    fn next(&self) -> Option<(u64, u64)> {
        self.ranges.first().map(|range| (self.at, range.end))
    }

    /// Goes on to another event of the same range, or to the next.
    fn go_to(&mut self, event: u64) {
        self.at = event;
        self.skip();
    }
}

impl Reader {
    /// Events of a range, with some columns or all.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] where there are fewer; [`Error::Corrupt`] where they are damaged; those of reading.
    pub fn read(&self, range: Range<u64>, columns: Option<&Columns>) -> Result<Batch> {
        let mut batch = Batch::of(self.0.layout.clone());
        self.read_into(range, columns.unwrap_or(&self.0.all), &mut batch)?;
        Ok(batch)
    }

    /// The same into a batch that is there, whose room is used again: what was in it is gone, and after an error there is no telling what is.
    ///
    /// # Errors
    /// As of [`read`](Reader::read).
    pub fn read_into(&self, range: Range<u64>, columns: &Columns, batch: &mut Batch) -> Result<()> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::OutOfBounds { range, len: self.len() });
        }
        batch.be_of(&self.0.layout)?;
        self.check(columns)?;
        batch.clear();
        let count = range.end - range.start;
        let threads = self.threads_for(count);
        let piece = count.div_ceil(threads as u64).max(1);
        let pieces = (0..threads as u64).map(|i| {
            let start = range.end.min(range.start + i * piece);
            start..range.end.min(start + piece)
        });
        self.ranges(&mut pieces.collect::<Vec<_>>(), columns, threads, batch)?;
        batch.set_len(count as usize);
        Ok(())
    }

    /// Columns of this reader, or of one whose events have the same.
    fn check(&self, columns: &Columns) -> Result<()> {
        // The same one is known by its address.
        match columns.layout == self.0.layout {
            true => Ok(()),
            false => Err(Error::invalid("columns of another schema")),
        }
    }

    /// Events by their numbers, in this order; each packet is decoded once.
    ///
    /// # Errors
    /// As of [`read`](Reader::read).
    pub fn take(&self, numbers: &[u64], columns: Option<&Columns>) -> Result<Batch> {
        let columns = columns.unwrap_or(&self.0.all);
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if let Some(&last) = sorted.last().filter(|&&last| last >= self.len()) {
            return Err(Error::OutOfBounds { range: last..last + 1, len: self.len() });
        }
        self.check(columns)?;
        let mut spans = self.spans(&sorted)?;
        let mut batch = Batch::of(self.0.layout.clone());
        let places: Vec<usize> = if spans.is_dense(sorted.len()) {
            self.ranges(
                &mut spans.ranges,
                columns,
                self.threads_for(spans.len as u64),
                &mut batch,
            )?;
            batch.set_len(spans.len);
            numbers.iter().map(|&number| spans.place(number)).collect()
        } else {
            self.gather(&sorted, columns, &mut batch)?;
            batch.set_len(sorted.len());
            numbers.iter().map(|number| sorted.partition_point(|other| other < number)).collect()
        };
        if places.iter().copied().eq(0..batch.len()) {
            return Ok(batch);
        }
        Ok(batch.pick(&places, &columns.wanted))
    }

    /// Appends events that are in order, some at a time: no more lie between those of a packet than may be in memory.
    fn gather(&self, sorted: &[u64], columns: &Columns, batch: &mut Batch) -> Result<()> {
        let mut spans = self.spans(sorted)?;
        if !spans.is_dense(sorted.len()) {
            let (before, behind) = sorted.split_at(sorted.len() / 2);
            self.gather(before, columns, batch)?;
            return self.gather(behind, columns, batch);
        }
        let mut here = Batch::of(self.0.layout.clone());
        self.ranges(&mut spans.ranges, columns, self.threads_for(spans.len as u64), &mut here)?;
        here.set_len(spans.len);
        let places: Vec<usize> = sorted.iter().map(|&number| spans.place(number)).collect();
        let picked = here.pick(&places, &columns.wanted);
        for (all, column) in batch.columns.iter_mut().zip(&picked.columns) {
            all.extend_from_slice(column);
        }
        Ok(())
    }

    /// What is decoded for events that are in order.
    fn spans(&self, sorted: &[u64]) -> Result<Spans> {
        let mut spans = Spans::default();
        with_scratch(|_, kept| {
            let mut rest = sorted;
            while let Some(&first) = rest.first() {
                let mut found = self.packet(first, kept)?;
                // And those behind it in the same block.
                while let Some(&first) = rest.first() {
                    let end = found.first + found.events as u64;
                    let some = rest.iter().take_while(|&&number| number < end).count().max(1);
                    let behind = rest[some - 1] + 1;
                    spans.ranges.push(first..behind);
                    spans.starts.push((first, spans.len));
                    spans.len += (behind - first) as usize;
                    rest = &rest[some..];
                    if !rest.first().is_some_and(|&first| found.go_on(first)) {
                        break;
                    }
                }
            }
            Ok(())
        })?;
        Ok(spans)
    }

    /// As many threads as so many events are worth.
    fn threads_for(&self, events: u64) -> usize {
        const WORTH: u128 = 256 << 10;
        let stored = u128::from(self.0.end) * u128::from(events) / u128::from(self.len().max(1));
        if stored >= WORTH { self.1 } else { 1 }
    }

    /// Appends the events of some ranges.
    fn ranges(
        &self,
        ranges: &mut [Range<u64>],
        columns: &Columns,
        threads: usize,
        batch: &mut Batch,
    ) -> Result<()> {
        if threads < 2 {
            return self.append(ranges, columns, batch);
        }
        let parts = in_parts(threads, ranges, |ranges| {
            let mut batch = Batch::of(self.0.layout.clone());
            self.append(ranges, columns, &mut batch).map(|()| batch)
        });
        for part in parts {
            let part = part?;
            for (all, column) in batch.columns.iter_mut().zip(&part.columns) {
                all.extend_from_slice(column);
            }
        }
        Ok(())
    }

    fn append(&self, ranges: &[Range<u64>], columns: &Columns, batch: &mut Batch) -> Result<()> {
        let own = match columns.is_all {
            true => None,
            false => Some(Sinks::new(columns.wanted.len(), |column| columns.wanted[column])),
        };
        with_scratch(|work, kept| {
            let mut rest = Rest::new(ranges);
            let (all, mut is_first) = (rest.left(), batch.size() == 0);
            while rest.next().is_some() {
                let before = rest;
                if self.some(&mut rest, usize::MAX, (columns, own.as_ref()), (work, kept), batch)? {
                    if std::mem::take(&mut is_first) {
                        batch.make_room(all - rest.left(), all);
                    }
                    continue;
                }
                // Each by itself: what is damaged is named, and what is large has the room to itself.
                let behind = std::mem::replace(&mut rest, before);
                while rest.next() != behind.next() {
                    self.some(&mut rest, 1, (columns, own.as_ref()), (work, kept), batch)?;
                }
            }
            Ok(())
        })
    }

    /// Appends events of some packets, up to so many, and goes on behind them. `false`, and appends nothing, where one of several is
    /// damaged or they have too many values.
    fn some(
        &self,
        rest: &mut Rest<'_>,
        most: usize,
        (columns, sinks): (&Columns, Option<&Sinks>),
        (work, kept): (&mut Work, &mut Kept),
        batch: &mut Batch,
    ) -> Result<bool> {
        /// Bytes of packets that are enough.
        const ENOUGH: usize = 8 << 10;
        let Some((first, to)) = rest.next() else { return Ok(true) };
        let found = self.packet(first, kept)?;
        let (loaded, at) = (found.loaded.clone(), found.place(first));
        let decoder = &loaded.decoder;
        let most = most.min(LANES);
        let (mut count, mut bytes, mut is_whole) = (0, 0, true);
        let mut next = Some((first, to));
        work.room.clear();
        while let Some((from, _)) = next.filter(|_| count < most && bytes < ENOUGH) {
            let mut found = self.packet(from, kept)?;
            if !Arc::ptr_eq(&loaded, found.loaded) {
                break;
            }
            let block = self.block(&found, from, &mut work.block)?;
            // And those behind it in the same block.
            while let Some((from, to)) = next {
                let (packet, events) = (found.stored(&block, from)?, found.events_of(from, to));
                is_whole &= decoder.add(packet, events, &mut work.room).is_some();
                rest.go_to(found.first + events.1 as u64);
                (count, bytes, next) = (count + 1, bytes + packet.len(), rest.next());
                let is_next = |(from, _)| found.go_on(from);
                if count == most || bytes >= ENOUGH || !next.is_some_and(is_next) {
                    break;
                }
            }
        }
        let room = &mut work.room;
        let what = match is_whole.then(|| decoder.run(room)).flatten() {
            Some(()) => decoder.texts(room, |column| columns.wanted[column]).ok_or(TEXTS),
            None => Err(PACKET),
        };
        match what {
            Ok(()) => {}
            Err(what) if count == 1 => return Err(Error::Corrupt { what, at }),
            Err(_) => return Ok(false),
        }
        decoder.put(&mut work.room.told, sinks.unwrap_or(&loaded.all), batch);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
