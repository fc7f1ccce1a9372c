//! Reads events: one, some by number, or a range.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::batch::{Batch, Value};
use super::decode::{Bits, Decoder, Room, Sinks, TEXTS, Told};
use super::format::{Block, BlockRef, Footer, Page, SegmentRef, is_whole};
use super::held::Held;
use super::keys::Keys;
use super::loaded::{Kept, Loaded, Models, OTHERS, STAY};
use super::model::{MOST_EVENTS, Model};
use super::schema::{Layout, Schema};
use super::segment::Known;
use super::writer::Access;
use crate::cache::Cache;
use crate::envelope::{Container, Kind, Section, SectionRef, read_trailer};
use crate::error::{Error, Place, Result};
use crate::in_place::read_end;
use crate::io::ReadAt;

/// Which columns are read.
#[derive(Clone, Debug)]
pub struct Columns {
    pub(super) layout: Arc<Layout>,
    pub(super) wanted: Vec<bool>,
    pub(super) is_all: bool,
}

impl Columns {
    /// Whether a column is one of them.
    #[must_use]
    pub fn has(&self, column: usize) -> bool {
        self.wanted.get(column).copied().unwrap_or(false)
    }
}

/// Reads events, from any thread.
#[derive(Clone)]
pub struct Reader(pub(super) Arc<Inner>, pub(super) usize);

pub(super) struct Inner {
    /// Tells readers apart.
    number: u64,
    /// Bytes of the file: more may have been appended since, or be left of what was not.
    pub end: u64,
    how: (Access, Option<usize>),
    /// Fields of the key.
    pub key: Vec<usize>,
    schema_at: SectionRef,
    pub source: Arc<dyn ReadAt>,
    pub schema: Schema,
    pub layout: Arc<Layout>,
    pub segments: Vec<Segment>,
    /// Events before each segment, and all.
    pub firsts: Vec<u64>,
    models: Models,
    /// By their positions. Of a source in memory there are none.
    blocks: Cache<Vec<u8>>,
    pub all: Columns,
}

pub(super) struct Segment {
    pub about: SegmentRef,
    /// The number of its model.
    model: usize,
    /// Packets before each page, and all.
    pub firsts: Vec<u64>,
    pages: Vec<OnceLock<Seen>>,
    pub keys: OnceLock<Keys>,
}

/// A page, and which of its blocks, where they lie in memory, were found whole.
pub(super) struct Seen {
    page: Page,
    whole: OnceLock<Box<[AtomicU64]>>,
}

/// One event, as it was decoded: columns of numbers, which are looked at without being copied anywhere.
///
/// ```
/// use std::sync::Arc;
/// use fiche::events::{Batch, Event, Field, Number, Options, Reader, Schema, Type, Writer};
///
/// let pt = Field::new("pt", Type::from(Number::F32).list());
/// let schema = Schema::new(vec![Field::new("run", Number::U32), pt])?;
/// let mut batch = Batch::new(&schema)?;
/// batch.put(0, &[7u32, 8])?;
/// batch.put(1, &[3u32, 1])?;
/// batch.put(2, &[41.5f32, 20.25, 1.5, 9.0])?;
/// let mut writer = Writer::new(Vec::new(), schema, Options::default())?;
/// writer.extend(&batch)?;
///
/// let reader = Reader::open(Arc::new(writer.finish()?))?;
/// let mut event = Event::default();
/// reader.event_into(0, &mut event)?; // takes no memory where there is room in the event
/// assert_eq!(event.values::<f32>(2).collect::<Vec<_>>(), [41.5, 20.25, 1.5]);
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Default)]
pub struct Event {
    told: Told,
    loaded: Option<Arc<Loaded>>,
}

impl Event {
    /// The bits of a column's values, the lowest first; of a list's items as many as this event has. Nothing before an event was read.
    ///
    /// # Panics
    /// Where there is no such column.
    #[must_use]
    pub fn bits(&self, column: usize) -> Bits<'_> {
        let none = Bits::Numbers(&[]);
        self.loaded.as_ref().map_or(none, |loaded| loaded.decoder.of(&self.told, column))
    }

    /// The columns that it has; none before an event was read.
    #[must_use]
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        self.loaded.as_ref().map(|loaded| &loaded.layout)
    }

    /// The values of a column.
    ///
    /// # Panics
    /// Where it is not of these.
    pub fn values<T: Value>(&self, column: usize) -> impl ExactSizeIterator<Item = T> {
        if let Some(loaded) = &self.loaded {
            assert_eq!(
                loaded.layout.columns()[column].number,
                T::NUMBER,
                "another kind of numbers"
            );
        }
        self.bits(column).iter().map(T::from_bits)
    }
}

/// Bytes of blocks that a reader keeps in which single events were.
const BLOCKS: u64 = 32 << 20;
/// A block of no more is decoded in some microseconds, or some tens of these.
const QUICK: usize = 16 << 10;

/// What a thread works with.
#[derive(Default)]
struct Scratch {
    work: Work,
    kept: Kept,
}

#[derive(Default)]
pub(super) struct Work {
    pub room: Room,
    pub block: Held,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// What a thread works with is its own while it does: a source may be read by way of events itself.
pub(super) fn with_scratch<T>(act: impl FnOnce(&mut Work, &mut Kept) -> Result<T>) -> Result<T> {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let result = act(&mut scratch.work, &mut scratch.kept);
    SCRATCH.set(Some(scratch));
    result
}

/// A file that a writer goes on behind.
pub(super) struct Before {
    pub end: u64,
    pub schema: SectionRef,
    pub access: Access,
    pub packet: Option<usize>,
    pub key: Vec<usize>,
    pub segments: Vec<SegmentRef>,
}

/// A packet, found.
pub(super) struct Found<'a> {
    pub loaded: &'a Arc<Loaded>,
    /// Its first event, and how many it has.
    pub first: u64,
    pub events: usize,
    /// The end of its segment, and events that its packets have but for the last.
    end: u64,
    each: u64,
    page: &'a Seen,
    pub block: BlockRef,
    /// In its page.
    packet: u64,
}

impl Found<'_> {
    /// Goes on to the packet of an event behind, if that is in the same block.
    #[inline(always)]
    pub fn go_on(&mut self, event: u64) -> bool {
        let ahead = match event - self.first {
            behind if behind < self.each => 0,
            behind if behind == self.each => 1,
            behind => behind / self.each,
        };
        let (packet, first) = (self.packet + ahead, self.first + ahead * self.each);
        let is_here = event < self.end && packet - self.block.first < self.block.packets as u64;
        if is_here {
            (self.packet, self.first) = (packet, first);
            self.events = self.each.min(self.end - first) as usize;
        }
        is_here
    }

    /// Where an event of it is said to be.
    #[inline(always)]
    pub fn place(&self, event: u64) -> Place {
        Place::Event { event, pos: self.block.pos }
    }

    /// The packet's bytes in its block.
    #[inline(always)]
    pub fn stored<'a>(&self, block: &Block<'a>, event: u64) -> Result<&'a [u8]> {
        let corrupt = || Error::Corrupt { what: "block of events", at: self.place(event) };
        block.packet((self.packet - self.block.first) as usize).ok_or_else(corrupt)
    }

    /// Of the packet's events those from an event on and before another, and all.
    #[inline(always)]
    pub fn events_of(&self, from: u64, to: u64) -> (usize, usize, usize) {
        let end = (to - self.first).min(self.events as u64) as usize;
        ((from - self.first) as usize, end, self.events)
    }
}

impl Reader {
    /// Opens a file of events: reads its header, trailer and footer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for what is none, [`Error::Unsupported`] for a newer one; those of reading.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Reader> {
        Reader::with(source, STAY, OTHERS, BLOCKS)
    }

    /// With so many bytes of models that stay, and of others, and of blocks.
    fn with(source: Arc<dyn ReadAt>, most: u64, others: u64, blocks: u64) -> Result<Reader> {
        let (end, (footer, schema, layout)) = read_end(&source, Container::Events, |end| {
            let at = read_trailer(&source, end)?;
            Footer::load(&source, at)
        })?;
        let layout = Arc::new(layout);
        let packet = usize::try_from(footer.packet).ok();
        let packet = packet.filter(|events| (1..=MOST_EVENTS).contains(events));
        let how = (Access::of(footer.access), packet);
        let mut firsts = vec![0];
        let mut models: BTreeMap<u64, usize> = BTreeMap::new();
        let segments = footer.segments.into_iter().map(|about| {
            firsts.push(firsts[firsts.len() - 1] + about.events);
            let next = models.len();
            let model = *models.entry(about.model.pos).or_insert(next);
            let mut packets = vec![0];
            about
                .pages
                .iter()
                .for_each(|page| packets.push(packets[packets.len() - 1] + page.packets));
            let pages = about.pages.iter().map(|_| OnceLock::new()).collect();
            Segment { about, model, firsts: packets, pages, keys: OnceLock::new() }
        });
        let segments = segments.collect();
        let wanted = vec![true; layout.columns().len()];
        let all = Columns { layout: layout.clone(), wanted, is_all: true };
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let inner = Inner {
            number,
            end,
            how,
            key: footer.key,
            schema_at: footer.schema,
            source,
            schema,
            layout,
            segments,
            firsts,
            models: Models::new(number, models.len(), most, others),
            blocks: Cache::new(blocks),
            all,
        };
        Ok(Reader(Arc::new(inner), 1))
    }

    /// The same events, of which many are decoded by so many threads, one unless this says otherwise, where [`read`](Reader::read) and
    /// [`take`](Reader::take) are asked for at least a quarter of a MiB of them, as they are stored.
    #[must_use]
    pub fn threads(self, threads: usize) -> Reader {
        Reader(self.0, threads.clamp(1, 256))
    }

    /// What a writer goes on behind.
    pub(super) fn before(&self) -> Before {
        let Inner { end, how, key, schema_at, segments, .. } = &*self.0;
        let segments = segments.iter().map(|segment| segment.about.clone()).collect();
        Before {
            end: *end,
            schema: *schema_at,
            access: how.0,
            packet: how.1,
            key: key.clone(),
            segments,
        }
    }

    /// The last model, if there is one, and where it is.
    pub(super) fn known(&self) -> Result<Option<(Known, SectionRef)>> {
        /// Bytes that tell how good it is, and events.
        const SOME: usize = 1 << 20;
        const MOST: u64 = 1 << 16;
        let Some(segment) = self.0.segments.last() else { return Ok(None) };
        let (at, len) = (segment.about.model, self.len());
        let (model, layout) = (self.read_model(at)?, &self.0.layout);
        let most = MOST.min(segment.about.events);
        let mut events = most.min(model.events as u64);
        let mut some = self.read(len - events..len, None)?;
        while some.size() < SOME && events < most {
            events = most.min(2 * events);
            some = self.read(len - events..len, None)?;
        }
        Ok(Some((Known::again(layout, model, &some)?, at)))
    }

    /// What events are made of.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// The columns that events come down to.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.0.layout
    }

    /// Events.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.firsts.last().copied().unwrap_or(0)
    }

    /// Bytes of the file.
    #[must_use]
    pub fn stored_len(&self) -> u64 {
        self.0.end
    }

    /// True where there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The columns of these fields of the events, by their names.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is no such field.
    pub fn select<T: AsRef<str>>(&self, names: &[T]) -> Result<Columns> {
        let mut wanted = vec![false; self.0.layout.columns().len()];
        for name in names {
            let name = name.as_ref();
            let field = self.0.schema.fields.iter().position(|field| field.name == name);
            let field =
                field.ok_or_else(|| Error::invalid(format!("there is no field {name:?}")))?;
            wanted[self.0.layout.columns_of(field)].fill(true);
        }
        let is_all = wanted.iter().all(|&wanted| wanted);
        Ok(Columns { layout: self.0.layout.clone(), wanted, is_all })
    }

    /// One event, with all its columns.
    ///
    /// # Errors
    /// As of [`read`](Reader::read).
    pub fn event(&self, number: u64) -> Result<Event> {
        let mut event = Event::default();
        self.event_into(number, &mut event)?;
        Ok(event)
    }

    /// The same into one that is there, whose room is used again, but for packets of more than 2^18 values. After an error it is the event that it was before.
    /// Where the source does not lie in memory, the block is kept that it is in: of those that were read last 32 MiB.
    ///
    /// # Errors
    /// As of [`read`](Reader::read).
    pub fn event_into(&self, number: u64, event: &mut Event) -> Result<()> {
        self.check_number(number)?;
        with_scratch(|work, kept| {
            let found = self.packet(number, kept)?;
            if self.0.source.as_bytes().is_none() && !self.is_at_hand(&found, &mut work.block) {
                let at = Place::Event { event: number, pos: found.block.pos };
                work.block.read(&self.0.source, self.0.number, &found.block, at)?;
                work.block.keep(&self.0.blocks);
            }
            self.decode_into(&found, number, work, event)
        })
    }

    /// The same where it is a matter of microseconds, as all that it takes is in memory and its block has 16 KiB at most; else `false`, and the event is what it was.
    /// So it may be called where others wait meanwhile.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] where there are fewer; [`Error::Corrupt`] where it is damaged.
    pub fn event_at_hand(&self, number: u64, event: &mut Event) -> Result<bool> {
        self.check_number(number)?;
        with_scratch(|work, _| {
            let segment = self.segment_of(number);
            let Some(loaded) = self.0.models.at_hand(self.0.segments[segment].model) else {
                return Ok(false);
            };
            let found =
                self.found(number, segment, loaded, |segment, page| Ok(segment.pages[page].get()));
            let Some(found) = found? else { return Ok(false) };
            if found.block.len > QUICK || !self.is_at_hand(&found, &mut work.block) {
                return Ok(false);
            }
            self.decode_into(&found, number, work, event).map(|()| true)
        })
    }

    fn check_number(&self, number: u64) -> Result<()> {
        match number < self.len() {
            true => Ok(()),
            false => {
                let range = number..number.saturating_add(1);
                Err(Error::OutOfBounds { range, len: self.len() })
            }
        }
    }

    fn decode_into(
        &self,
        found: &Found<'_>,
        number: u64,
        work: &mut Work,
        event: &mut Event,
    ) -> Result<()> {
        let place = found.place(number);
        let packet = self.stored(found, number, &mut work.block)?;
        let decoder = &found.loaded.decoder;
        decoder.decode(packet, found.events_of(number, number + 1), &mut work.room, place)?;
        decoder.texts(&mut work.room, |_| true).ok_or(Error::Corrupt { what: TEXTS, at: place })?;
        std::mem::swap(&mut event.told, &mut work.room.told);
        if !event.loaded.as_ref().is_some_and(|before| Arc::ptr_eq(before, found.loaded)) {
            event.loaded = Some(found.loaded.clone());
        }
        Ok(())
    }

    /// The block of a packet, an event of which is asked for: in memory, or held, or read.
    #[inline(always)]
    pub(super) fn block<'a>(
        &'a self,
        found: &Found<'_>,
        event: u64,
        held: &'a mut Held,
    ) -> Result<Block<'a>> {
        let inner = &*self.0;
        let place = Place::Event { event, pos: found.block.pos };
        let corrupt = || Error::Corrupt { what: "block of events", at: place };
        let bytes = match inner.source.as_bytes() {
            Some(all) => {
                let start = usize::try_from(found.block.pos).map_err(|_| corrupt())?;
                let end = start.checked_add(found.block.len).ok_or_else(corrupt)?;
                let bytes = all.get(start..end).ok_or_else(corrupt)?;
                if !found.page.is_known(&found.block) {
                    if !is_whole(bytes, found.block.pos) {
                        return Err(corrupt());
                    }
                    found.page.know(&found.block);
                }
                bytes
            }
            None => {
                if !held.is(inner.number, &found.block) {
                    held.read(&inner.source, inner.number, &found.block, place)?;
                }
                held.bytes()
            }
        };
        Block::parse(bytes, &found.block)
    }

    /// The bytes of a packet, an event of which is asked for.
    #[inline(always)]
    fn stored<'a>(&'a self, found: &Found<'_>, event: u64, held: &'a mut Held) -> Result<&'a [u8]> {
        found.stored(&self.block(found, event, held)?, event)
    }

    /// Whether a block need not be read: it lies in memory, or is held, which it is from now on where it was kept.
    fn is_at_hand(&self, found: &Found<'_>, held: &mut Held) -> bool {
        let inner = &*self.0;
        inner.source.as_bytes().is_some()
            || held.is(inner.number, &found.block)
            || held.take(inner.number, &found.block, &inner.blocks)
    }

    /// The segment of an event that is there.
    fn segment_of(&self, event: u64) -> usize {
        match self.0.segments.len() {
            1 => 0,
            _ => self.0.firsts.partition_point(|&first| first <= event) - 1,
        }
    }

    /// The packet of an event that is there.
    pub(super) fn packet<'a>(&'a self, event: u64, kept: &'a mut Kept) -> Result<Found<'a>> {
        let inner = &*self.0;
        let number = self.segment_of(event);
        let segment = &inner.segments[number];
        let read = || Ok(Loaded::new(&inner.layout, &self.read_model(segment.about.model)?));
        let loaded = inner.models.get(segment.model, kept, read)?;
        let found =
            self.found(event, number, loaded, |segment, page| self.page(segment, page).map(Some))?;
        found.ok_or_else(|| damaged(event, segment))
    }

    /// The packet of an event in a segment whose model is this; nothing where `page` gives none.
    #[inline(always)]
    fn found<'a>(
        &'a self,
        event: u64,
        number: usize,
        loaded: &'a Arc<Loaded>,
        page: impl FnOnce(&'a Segment, usize) -> Result<Option<&'a Seen>>,
    ) -> Result<Option<Found<'a>>> {
        let inner = &*self.0;
        let (segment, before) = (&inner.segments[number], inner.firsts[number]);
        let events = loaded.events;
        let packet = (event - before) / events;
        if segment.firsts.last() != Some(&segment.about.events.div_ceil(events)) {
            return Err(damaged(event, segment));
        }
        let at = match segment.pages.len() {
            1 => 0,
            _ => segment.firsts.partition_point(|&first| first <= packet) - 1,
        };
        let Some(seen) = page(segment, at)? else { return Ok(None) };
        let packet_in = packet - segment.firsts[at];
        let block = seen.page.find(packet_in).ok_or_else(|| damaged(event, segment))?;
        let first = packet * events;
        Ok(Some(Found {
            loaded,
            first: before + first,
            events: events.min(segment.about.events - first) as usize,
            end: before + segment.about.events,
            each: events,
            page: seen,
            block,
            packet: packet_in,
        }))
    }

    /// Segments: their events, and where their models are.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Range<u64>, SectionRef)> + '_ {
        let segments = self.0.segments.iter().zip(self.0.firsts.windows(2));
        segments.map(|(segment, pair)| (pair[0]..pair[1], segment.about.model))
    }

    /// Appends all values of the packet of an event, texts as words by a decoder that has none; `with` gets how many values each column has.
    /// Returns the first event behind it.
    pub(super) fn words(
        &self,
        event: u64,
        decoder: &Decoder,
        batch: &mut Batch,
        mut with: impl FnMut(usize, usize),
    ) -> Result<u64> {
        with_scratch(|work, kept| {
            let found = self.packet(event, kept)?;
            let place = Place::Event { event, pos: found.block.pos };
            let Work { room, block } = work;
            let packet = self.stored(&found, event, block)?;
            let events = batch.len() + found.events;
            let own = &found.loaded.decoder;
            own.decode(packet, (0, found.events, found.events), room, place)?;
            own.texts(room, |_| true).ok_or(Error::Corrupt { what: TEXTS, at: place })?;
            (0..batch.columns.len())
                .for_each(|column| with(column, own.of(&room.told, column).len()));
            decoder.put(&mut room.told, &Sinks::new(batch.columns.len(), |_| true), batch);
            batch.set_len(events);
            Ok(found.first + found.events as u64)
        })
    }

    pub(super) fn read_model(&self, at: SectionRef) -> Result<Model> {
        let section = Section::load(&self.0.source, at, Kind::Model)?;
        let mut take = section.take("model of events");
        let model = Model::take(&mut take, &self.0.layout)?;
        take.end()?;
        Ok(model)
    }

    pub(super) fn page<'a>(&self, segment: &'a Segment, page: usize) -> Result<&'a Seen> {
        let cell = &segment.pages[page];
        if let Some(seen) = cell.get() {
            return Ok(seen);
        }
        let about = &segment.about.pages[page];
        let section = Section::load(&self.0.source, about.at, Kind::PacketPage)?;
        let page = Page::parse(&section, about)?;
        Ok(cell.get_or_init(|| Seen { page, whole: OnceLock::new() }))
    }
}

/// What is said of an event of whose packets too few or too many are told.
pub(super) fn damaged(event: u64, segment: &Segment) -> Error {
    let at = Place::Event { event, pos: segment.about.model.pos };
    Error::Corrupt { what: "footer of events", at }
}

impl Seen {
    /// Whether a block was found whole.
    fn is_known(&self, block: &BlockRef) -> bool {
        let word = self.whole.get().and_then(|words| words.get(block.number / 64));
        word.is_some_and(|word| word.load(Relaxed) >> (block.number % 64) & 1 == 1)
    }

    fn know(&self, block: &BlockRef) {
        let words = || (0..self.page.blocks().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        if let Some(word) = self.whole.get_or_init(words).get(block.number / 64) {
            word.fetch_or(1 << (block.number % 64), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
