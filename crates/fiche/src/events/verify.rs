//! Verifies files of events.

use std::ops::Range;

use super::batch::Batch;
use super::keys::{self, Keys, Part};
use super::reader::{Reader, damaged};
use crate::envelope::{Container, read_header};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;

/// What verifying found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Everything that is damaged, in the order of the events. Empty: all is well.
    pub damage: Vec<Lost>,
    /// How many events could be read.
    pub events: u64,
    /// How many segments there are.
    pub segments: usize,
}

/// Something that is not as it was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lost {
    /// What is wrong, and where.
    pub error: Error,
    /// The events that are lost with it; empty where they are only found no longer by their key.
    pub events: Range<u64>,
}

/// Events are read in steps that take so much memory, about, and of so many events at most.
const MEMORY: usize = 16 << 20;
const MOST: u64 = 1 << 16;

impl Reader {
    /// True of a file whose header says that it is one of events, whatever is behind it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_one(source: &dyn ReadAt) -> Result<bool> {
        match read_header(source, Container::Events) {
            Ok(header) => Ok(header.valid.is_ok()),
            Err(Error::Io(error)) => Err(Error::Io(error)),
            Err(_) => Ok(false),
        }
    }

    /// Reads all events, checks every checksum on the way, and that each event is found by its key. Goes on behind what is damaged:
    /// with a block its packets are lost, with a page what it leads to, with a model its segments. `with` is called with how many events
    /// were read or lost. Takes the time of a scan, and the memory of some 32 MiB of events, or of a packet.
    ///
    /// # Errors
    /// Those of reading, and those of `with`.
    pub fn verify(&self, with: &mut dyn FnMut(u64) -> Result<()>) -> Result<Verified> {
        let inner = &*self.0;
        let mut verified = Verified { segments: inner.segments.len(), ..Verified::default() };
        let parts = keys::parts(&inner.schema, &inner.layout, &inner.key);
        let mut batch = Batch::of(inner.layout.clone());
        for (segment, pair) in inner.segments.iter().zip(inner.firsts.windows(2)) {
            let (first, end) = (pair[0], pair[1]);
            let each = match self.read_model(segment.about.model) {
                Ok(model) => model.events as u64,
                Err(error) => {
                    verified.lose(error, first..end)?;
                    with(end - first)?;
                    continue;
                }
            };
            if segment.firsts.last() != Some(&segment.about.events.div_ceil(each)) {
                verified.lose(damaged(first, segment), first..end)?;
                with(end - first)?;
                continue;
            }
            let keys = match inner.key.is_empty() {
                true => None,
                false => match self.keys(segment, first) {
                    Ok(keys) => Some(Found { keys, first, parts: &parts }),
                    Err(error) => {
                        verified.lose(error, first..first)?;
                        None
                    }
                },
            };
            for (number, packets) in segment.firsts.windows(2).enumerate() {
                let event =
                    |packet: u64| end.min(first.saturating_add(packet.saturating_mul(each)));
                let page = event(packets[0])..event(packets[1]);
                let count = page.end - page.start;
                match self.page(segment, number) {
                    Ok(_) => {
                        self.verify_page(
                            page,
                            each,
                            keys.as_ref(),
                            &mut batch,
                            &mut verified,
                            with,
                        )?;
                    }
                    Err(error) => {
                        verified.lose(error, page)?;
                        with(count)?;
                    }
                }
            }
        }
        Ok(verified)
    }

    /// Reads the events of a page, in packets of `each`.
    fn verify_page(
        &self,
        page: Range<u64>,
        each: u64,
        keys: Option<&Found<'_>>,
        batch: &mut Batch,
        verified: &mut Verified,
        with: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let all = &self.0.all;
        // From one packet on, as long as there is room.
        let (mut step, mut next) = (each, page.start);
        // The block that the last packet was lost with.
        let mut bad = None;
        while next < page.end {
            let some = next..page.end.min(next.saturating_add(step));
            next = some.end;
            let count = some.end - some.start;
            if bad.is_none() && self.read_into(some.clone(), all, batch).is_ok() {
                verified.read(some, batch, keys)?;
                with(count)?;
                if batch.size() < MEMORY && step <= MOST / 2 {
                    step *= 2;
                } else if batch.size() > 2 * MEMORY {
                    step = (step / 2 / each).max(1) * each;
                }
                continue;
            }
            // Which of its packets they are.
            let mut at = some.start;
            while at < some.end {
                let packet = at..some.end.min(at + each);
                at = packet.end;
                let block = self.block_of(packet.start).ok();
                if bad.is_some() && bad == block {
                    verified.lose_more(packet.end);
                    continue;
                }
                match self.read_into(packet.clone(), all, batch) {
                    Ok(()) => {
                        bad = None;
                        verified.read(packet, batch, keys)?;
                    }
                    Err(error) => {
                        let is_block =
                            matches!(error, Error::Corrupt { what: "block of events", .. });
                        bad = block.filter(|_| is_block);
                        verified.lose(error, packet)?;
                    }
                }
            }
            with(count)?;
        }
        Ok(())
    }
}

/// The keys of a segment, its first event, and what they are of.
struct Found<'a> {
    keys: &'a Keys,
    first: u64,
    parts: &'a [Part],
}

impl Verified {
    /// These events were read.
    fn read(&mut self, events: Range<u64>, batch: &Batch, keys: Option<&Found<'_>>) -> Result<()> {
        self.events += events.end - events.start;
        let Some(Found { keys, first, parts }) = keys else { return Ok(()) };
        let mut hashes = keys::hashes(batch, parts).into_iter().zip(events);
        let is_lost =
            |&(hash, event): &(u64, u64)| keys.find(hash).all(|found| found != event - first);
        match hashes.find(is_lost) {
            None => Ok(()),
            // One of a segment is enough.
            Some(_) if self.damage.last().is_some_and(|lost| lost.events == (*first..*first)) => {
                Ok(())
            }
            Some((_, event)) => {
                let at = Place::Event { event, pos: 0 };
                self.lose(Error::Corrupt { what: "key page", at }, *first..*first)
            }
        }
    }

    /// These events are lost.
    fn lose(&mut self, error: Error, events: Range<u64>) -> Result<()> {
        match error {
            // It may be there at another time.
            Error::Io(_) | Error::Changed { .. } => Err(error),
            error => {
                self.damage.push(Lost { error, events });
                Ok(())
            }
        }
    }

    /// So are those up to this one, with the last ones.
    fn lose_more(&mut self, end: u64) {
        if let Some(lost) = self.damage.last_mut() {
            lost.events.end = end;
        }
    }
}

impl Reader {
    /// Where the block of an event lies.
    fn block_of(&self, event: u64) -> Result<u64> {
        super::reader::with_scratch(|_, kept| Ok(self.packet(event, kept)?.block.pos))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Field, Number, Options, Schema, Type, Writer};
    use super::*;
    use crate::envelope::{Kind, Section, SectionRef};
    use crate::testing::Random;
    use std::sync::Arc;

    fn file(access: Access, key: bool) -> (Vec<u8>, u64) {
        let fields = vec![Field::new("run", Number::U32), Field::new("name", Type::Text)];
        let schema = Schema::new(fields).unwrap();
        let options = Options::default().access(access).segment(1 << 16);
        let options = if key { options.key(["run", "name"]) } else { options };
        let mut writer = Writer::new(Vec::new(), schema.clone(), options).unwrap();
        let mut random = Random(3);
        for part in 0..6 {
            let mut batch = Batch::new(&schema).unwrap();
            let runs: Vec<u32> = (0..2000).map(|i| part * 5000 + i * 7 % 1001).collect();
            let names: Vec<Vec<u8>> = (0..2000).map(|_| random.text(12)).collect();
            let names: Vec<String> =
                names.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            batch.put(0, &runs).unwrap();
            batch.put_texts(1, &names).unwrap();
            writer.extend(&batch).unwrap();
        }
        (writer.finish().unwrap(), 12_000)
    }

    #[test]
    fn events_that_are_not_found_by_their_key_are_told() {
        let (bytes, _) = file(Access::Block, true);
        let reader = Reader::open(Arc::new(bytes)).unwrap();
        let inner = &*reader.0;
        let parts = keys::parts(&inner.schema, &inner.layout, &inner.key);
        let take = |numbers: Vec<u64>| reader.take(&numbers, None).unwrap();
        let some = || (0..500).collect::<Vec<u64>>();
        // Two that are told in each other's place have keys that are there, but lead elsewhere.
        let swapped = [vec![1, 0], (2..500).collect()].concat();
        for (of, events) in [(some(), some()), ((500..1000).collect(), some()), (swapped, some())] {
            let is_same = of == events;
            let (of, events) = (take(of), take(events));
            let mut section = Vec::new();
            Keys::put(&mut section, 0, 0, &of, &parts);
            let at = SectionRef { pos: 0, len: section.len() as u64 };
            let section = Section::load(&section, at, Kind::KeyPage).unwrap();
            let keys = Keys::parse(&section, 0, 500).unwrap();
            let found = Found { keys: &keys, first: 0, parts: &parts };
            let mut verified = Verified::default();
            verified.read(0..500, &events, Some(&found)).unwrap();
            verified.read(0..500, &events, Some(&found)).unwrap();
            assert_eq!(verified.events, 1000);
            assert_eq!(verified.damage.len(), usize::from(!is_same));
            assert!(verified.damage.iter().all(|lost| lost.events.is_empty()));
        }
    }

    #[test]
    fn what_is_lost_is_what_cannot_be_read() {
        for (access, key) in [(Access::Block, true), (Access::Event, false)] {
            let (bytes, count) = file(access, key);
            let open = |bytes: &[u8]| Reader::open(Arc::new(bytes.to_vec()));
            assert!(
                Reader::is_one(&bytes).unwrap() && !Reader::is_one(&bytes[..7].to_vec()).unwrap()
            );
            let reader = open(&bytes).unwrap();
            let mut told = 0;
            let verified = reader
                .verify(&mut |events| {
                    told += events;
                    Ok(())
                })
                .unwrap();
            assert!(verified.damage.is_empty(), "{:?}", verified.damage);
            assert_eq!((verified.events, told), (count, count));
            assert!(verified.segments > 1);
            let (mut random, mut lost_some, mut lost_keys) = (Random(4), 0, 0);
            for _ in 0..60 {
                let mut damaged = bytes.clone();
                damaged[32 + random.below(bytes.len() as u64 - 32) as usize] ^=
                    1 << random.below(8);
                let Ok(reader) = open(&damaged) else { continue };
                told = 0;
                let verified = reader
                    .verify(&mut |events| {
                        told += events;
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(told, count);
                let lost: u64 =
                    verified.damage.iter().map(|lost| lost.events.end - lost.events.start).sum();
                assert_eq!(verified.events + lost, count);
                let readable = |event| open(&damaged).unwrap().event(event).is_ok();
                let ranges: Vec<_> =
                    verified.damage.iter().map(|lost| lost.events.clone()).collect();
                // With a block all its packets at once, with a model each of its segments.
                assert!(ranges.len() <= verified.segments, "{:?}", verified.damage);
                let is_lost = |event| ranges.iter().any(|range| range.contains(&event));
                for Lost { events, error } in &verified.damage {
                    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                    lost_some += u32::from(!events.is_empty());
                    lost_keys += u32::from(events.is_empty());
                    // At its ends, and around them.
                    let around = events.start.saturating_sub(1)..(events.start + 1).min(count);
                    let behind = events.end.saturating_sub(1)..(events.end + 1).min(count);
                    for event in around.chain(behind) {
                        assert_eq!(is_lost(event), !readable(event), "{event}: {error}");
                    }
                }
            }
            // Each bit of blocks, pages, models and keys is seen.
            assert!(lost_some > 10 && (lost_keys > 0) == key, "{lost_some} {lost_keys}");
        }
    }
}
