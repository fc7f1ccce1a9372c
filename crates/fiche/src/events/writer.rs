//! Writes events, batch by batch.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::format::{Footer, PAGE, Page, PageRef, SegmentRef, put_block, put_schema};
use super::keys::{self, Keys, Part};
use super::model::Model;
use super::reader::Reader;
use super::schema::{Layout, Schema};
use super::segment::{Aim, Known, check_events, segment};
use super::tell::Packets;
use crate::codec::Scratch;
use crate::envelope::{
    Container, HEADER_LEN, Kind, MAX_DECODED, Section, SectionRef, header, trailer,
};
use crate::error::{Error, Result};
use crate::in_place::{Appending, Locked};
use crate::parallel::default_threads;
use crate::wire::Take;

/// What reads are to be fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Single events: packets of some 64 values, or twice as many where that saves much; blocks of 4 KiB.
    #[default]
    Event,
    /// Some events at a time: packets of some 8,192 values, or 4 KiB; blocks of 64 KiB.
    Block,
    /// All events: packets of some 262,144 values, or 64 KiB; blocks of a MiB.
    Scan,
}

impl Access {
    /// That of a number in a file.
    pub(super) fn of(number: u8) -> Access {
        [Access::Event, Access::Block, Access::Scan][usize::from(number).min(2)]
    }
}

/// How events are written.
#[derive(Clone, Debug)]
pub struct Options {
    access: Option<Access>,
    packet: Option<usize>,
    threads: usize,
    segment: usize,
    key: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        let threads = default_threads();
        Options { access: None, packet: None, threads, segment: 16 << 20, key: Vec::new() }
    }
}

impl Options {
    /// What reads are to be fast: of single events unless this says otherwise, or, where events are appended, the file.
    #[must_use]
    pub fn access(self, access: Access) -> Options {
        Options { access: Some(access), ..self }
    }

    /// Events of a packet, 1 to 65,536: what is decoded for one. By default as many as [`access`](Options::access) asks for.
    #[must_use]
    pub fn packet(self, events: usize) -> Options {
        Options { packet: Some(events), ..self }
    }

    /// Threads that encode; as many as there are cores by default. The file is the same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Options {
        Options { threads, ..self }
    }

    /// Bytes of values that are gathered before they are encoded, 64 KiB to 1 GiB; 16 MiB unless this says otherwise. What
    /// writing takes of memory is some 8 times that, or of a batch that is larger.
    #[must_use]
    pub fn segment(self, bytes: usize) -> Options {
        Options { segment: bytes, ..self }
    }

    /// Fields by which events are found ([`Reader::find`]): numbers or texts, as they are in any one event. It takes some three bytes for each
    /// event. A file that is appended to keeps those that it has.
    #[must_use]
    pub fn key<T: Into<String>>(self, fields: impl IntoIterator<Item = T>) -> Options {
        Options { key: fields.into_iter().map(Into::into).collect(), ..self }
    }

    fn aim(&self) -> Aim {
        let (bytes, values, events, worth) = match self.access.unwrap_or_default() {
            Access::Event => (256, 64, 256, Some(0.08)),
            Access::Block => (4 << 10, 1 << 13, 4096, None),
            Access::Scan => (64 << 10, 1 << 18, 1 << 16, None),
        };
        Aim { bytes, values, events, worth, exactly: self.packet }
    }

    fn block(&self) -> usize {
        match self.access.unwrap_or_default() {
            Access::Event => 4 << 10,
            Access::Block => 64 << 10,
            Access::Scan => 1 << 20,
        }
    }

    fn check(&self) -> Result<()> {
        if self.packet.is_some_and(|events| !(1..=1 << 16).contains(&events)) {
            return Err(Error::invalid("a packet has 1 to 65,536 events"));
        }
        if !(64 << 10..=1 << 30).contains(&self.segment) {
            return Err(Error::invalid("a segment has 64 KiB to 1 GiB"));
        }
        Ok(())
    }
}

/// Writes events, front to back.
///
/// ```
/// use std::sync::Arc;
/// use fiche::events::{Batch, Field, Number, Options, Reader, Schema, Type, Writer};
///
/// let schema = Schema::new(vec![Field::new("run", Number::U32), Field::new("pt", Type::from(Number::F32).list())])?;
/// let mut writer = Writer::new(Vec::new(), schema.clone(), Options::default())?;
/// let mut batch = Batch::new(&schema)?;
/// for i in 0..1000u32 {
///     batch.put(0, &[i / 100])?;
///     batch.put(1, &[2u32])?; // two tracks
///     batch.put(2, &[i as f32, 0.5])?;
/// }
/// writer.extend(&batch)?;
///
/// let reader = Reader::open(Arc::new(writer.finish()?))?;
/// let event = reader.event(777)?;
/// assert_eq!(event.values::<f32>(2).collect::<Vec<_>>(), [777.0, 0.5]);
/// # Ok::<(), fiche::Error>(())
/// ```
pub struct Writer<W: Write> {
    out: W,
    pos: u64,
    schema: Schema,
    /// Where it is, in a file that is appended to.
    schema_at: Option<SectionRef>,
    layout: Arc<Layout>,
    options: Options,
    /// Fields of the key, and their columns.
    key: Vec<usize>,
    parts: Vec<Part>,
    pending: Batch,
    known: Option<(Known, SectionRef)>,
    segments: Vec<SegmentRef>,
    events: u64,
    scratch: Scratch,
    failed: bool,
}

impl Writer<Appending> {
    /// Goes on behind the events of the file at `path`, which is valid at every moment: what is added counts, and is durable, when both the
    /// writer and what it gives back are finished. Dropped before that, or where something fails, the file is what it was; a crash leaves it so,
    /// too. Readers that were opened before see what was there then.
    ///
    /// What the options do not ask for is as the file has it, and so is the model, as long as it is good for these events. A footer is
    /// written anew each time, some bytes for each segment: rather append much than often.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use fiche::FileSource;
    /// use fiche::events::{Batch, Field, Number, Options, Reader, Schema, Writer};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("log.fiche");
    ///
    /// let schema = Schema::new(vec![Field::new("run", Number::U32)])?;
    /// let mut batch = Batch::new(&schema)?;
    /// batch.put(0, &[7u32, 8])?;
    /// let file = std::fs::File::create(&path)?;
    /// let mut writer = Writer::new(file, schema, Options::default())?;
    /// writer.extend(&batch)?;
    /// writer.finish()?;
    ///
    /// let mut writer = Writer::append(&path, Options::default())?;
    /// writer.extend(&batch)?;
    /// writer.finish()?.finish()?;
    /// assert_eq!(Reader::open(Arc::new(FileSource::open(&path)?))?.len(), 4);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Reader::open`]; [`Error::Busy`] when another process is appending to it; [`Error::Invalid`] for options that make
    /// no sense; [`Error::Io`].
    pub fn append(path: impl AsRef<Path>, options: Options) -> Result<Writer<Appending>> {
        options.check()?;
        let file = Locked::open(path.as_ref())?;
        let reader = Reader::open(Arc::new(file.source()?))?;
        let before = reader.before();
        let known = match options.access.is_none() && options.packet.is_none() {
            // Where it is damaged, another is learned.
            true => reader.known().ok().flatten(),
            false => None,
        };
        let access = options.access.unwrap_or(before.access);
        let packet = options.packet.or(before.packet.filter(|_| options.access.is_none()));
        let options = Options { access: Some(access), packet, ..options };
        let (schema, layout) = (reader.schema().clone(), reader.layout().clone());
        let parts = keys::parts(&schema, &layout, &before.key);
        let key = before.key;
        let pos = before.end;
        Ok(Writer {
            out: Appending::new(file, pos)?,
            pos,
            pending: Batch::of(layout.clone()),
            schema,
            schema_at: Some(before.schema),
            layout,
            options,
            key,
            parts,
            known,
            segments: before.segments,
            events: reader.len(),
            scratch: Scratch::default(),
            failed: false,
        })
    }
}

impl<W: Write> Writer<W> {
    /// Begins a file of events of a schema.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a schema or options that make no sense; [`Error::Io`].
    pub fn new(mut out: W, schema: Schema, options: Options) -> Result<Writer<W>> {
        options.check()?;
        let layout = Arc::new(schema.layout()?);
        let key = keys::fields(&schema, &layout, &options.key)?;
        let parts = keys::parts(&schema, &layout, &key);
        out.write_all(&header(Container::Events))?;
        let pending = Batch::of(layout.clone());
        Ok(Writer {
            out,
            pos: HEADER_LEN,
            schema,
            schema_at: None,
            layout,
            options,
            key,
            parts,
            pending,
            known: None,
            segments: Vec::new(),
            events: 0,
            scratch: Scratch::default(),
            failed: false,
        })
    }

    /// What events are made of.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Events so far.
    pub fn len(&self) -> u64 {
        self.events + self.pending.len() as u64
    }

    /// True before the first.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that were written so far.
    pub fn stored_len(&self) -> u64 {
        self.pos
    }

    /// Adds events.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch of another schema, or one whose columns do not agree; [`Error::Limit`] for an event of more than 2^24
    /// values; [`Error::Io`], and [`Error::Poisoned`] when a write failed before.
    pub fn extend(&mut self, batch: &Batch) -> Result<()> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        if **batch.layout() != *self.layout {
            return Err(Error::invalid("events of another schema"));
        }
        /// Events that are encoded together at most.
        const MOST: u64 = 1 << 31;
        let items = batch.check()?;
        let need = batch.len() as u64 + self.pending.len() as u64;
        if batch.len() as u64 > MOST || need > MOST {
            return Err(Error::Limit { what: "events of a batch", need, allowed: MOST });
        }
        check_events(&self.layout, batch, &items)?;
        if self.pending.is_empty() && batch.size() >= self.options.segment {
            return self.write(batch);
        }
        let events = self.pending.len() + batch.len();
        for (pending, bytes) in self.pending.columns.iter_mut().zip(&batch.columns) {
            pending.extend_from_slice(bytes);
        }
        self.pending.set_len(events);
        if self.pending.size() >= self.options.segment { self.flush() } else { Ok(()) }
    }

    /// Writes what is pending.
    fn flush(&mut self) -> Result<()> {
        let mut pending = std::mem::replace(&mut self.pending, Batch::of(self.layout.clone()));
        let result = self.write(&pending);
        pending.clear();
        self.pending = pending;
        result
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        let result = self.write_segment(batch);
        self.failed |= result.is_err();
        result
    }

    fn write_segment(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let before = self.known.as_ref().map(|(known, _)| known);
        let made = segment(&self.layout, batch, &self.options.aim(), before, self.options.threads)?;
        if let Some(known) = made.known {
            let at = self.write_model(&known.model)?;
            self.known = Some((known, at));
        }
        let Some((known, model)) = &self.known else {
            return Err(Error::invalid("events without a model"));
        };
        let (events, model) = (known.model.events as u64, *model);
        let pages = self.write_packets(&made.packets, events)?;
        let keys = self.write_keys(batch)?;
        self.segments.push(SegmentRef { events: batch.len() as u64, model, keys, pages });
        self.events += batch.len() as u64;
        Ok(())
    }

    fn write_model(&mut self, model: &Model) -> Result<SectionRef> {
        let mut payload = Vec::new();
        model.put(&self.layout, &mut payload);
        if payload.len() as u64 > MAX_DECODED {
            let (need, allowed) = (payload.len() as u64, MAX_DECODED);
            return Err(Error::Limit { what: "a model of events", need, allowed });
        }
        let mut take = Take::new(&payload, "model of events as encoded", self.pos);
        if Model::take(&mut take, &self.layout)? != *model {
            return Err(take.corrupt());
        }
        let mut section = Vec::new();
        let (before, scratch) = ((self.events, 0), Some(&mut self.scratch));
        Section::put(&mut section, self.pos, Kind::Model, before, &payload, scratch);
        let at = SectionRef { pos: self.pos, len: section.len() as u64 };
        self.put(&section)?;
        Ok(at)
    }

    fn write_keys(&mut self, batch: &Batch) -> Result<Option<SectionRef>> {
        if self.parts.is_empty() {
            return Ok(None);
        }
        let mut section = Vec::new();
        Keys::put(&mut section, self.pos, self.events, batch, &self.parts);
        let at = SectionRef { pos: self.pos, len: section.len() as u64 };
        self.put(&section)?;
        Ok(Some(at))
    }

    fn write_packets(&mut self, packets: &Packets, events: u64) -> Result<Vec<PageRef>> {
        let packets: Vec<&[u8]> = packets.iter().collect();
        let (mut pages, mut blocks, mut first) = (Vec::new(), Vec::new(), self.pos);
        let (mut at, mut before) = (0, (0, 0));
        while at < packets.len() {
            // As many as fit, with what tells their lengths.
            let mut len = 16;
            let fits = |packet: &&&[u8]| {
                len += packet.len() + 2;
                len <= self.options.block()
            };
            let count = packets[at..].iter().take_while(fits).count().max(1);
            let those = &packets[at..at + count];
            let mut block = Vec::with_capacity(len);
            put_block(&mut block, self.pos, those);
            self.put(&block)?;
            at += count;
            blocks.push((self.pos, (at - before.0) as u64));
            if blocks.len() == PAGE || at == packets.len() {
                let mut section = Vec::new();
                let told = (before.0 as u64 * events, before.1);
                Page::put(&mut section, self.pos, first, told, &blocks);
                let place = SectionRef { pos: self.pos, len: section.len() as u64 };
                self.put(&section)?;
                let (count, packets) = (blocks.len() as u64, (at - before.0) as u64);
                pages.push(PageRef { blocks: count, packets, at: place });
                before = (at, before.1 + count);
                blocks.clear();
                first = self.pos;
            }
        }
        Ok(pages)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.pos += bytes.len() as u64;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As of [`extend`](Writer::extend).
    pub fn finish(mut self) -> Result<W> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        self.flush()?;
        let segments = std::mem::take(&mut self.segments);
        let access = self.options.access.unwrap_or_default() as u8;
        let packet = self.options.packet.unwrap_or(0) as u64;
        let key = self.key.clone();
        let schema = match self.schema_at {
            Some(at) => at,
            None => {
                let mut section = Vec::new();
                put_schema(&mut section, self.pos, &self.schema, &mut self.scratch);
                let at = SectionRef { pos: self.pos, len: section.len() as u64 };
                self.put(&section)?;
                at
            }
        };
        let footer = Footer { schema, access, packet, key, segments };
        let mut section = Vec::new();
        let payload = footer.payload();
        Section::put(&mut section, self.pos, Kind::Footer, (self.events, 0), &payload, None);
        let at = SectionRef { pos: self.pos, len: section.len() as u64 };
        self.put(&section)?;
        self.put(&trailer(at))?;
        self.out.flush()?;
        Ok(self.out)
    }
}
