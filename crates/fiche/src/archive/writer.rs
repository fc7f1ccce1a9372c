//! Writes an archive front to back: cuts content into blocks, compresses them on
//! all cores, and writes them in order.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::archive::compress::{Batch, Compressed, Worker};
use crate::archive::format::{ChapterRef, Footer, SharedRef};
use crate::archive::options::{MAX_BLOCK, Options, Packing};
use crate::archive::reader::Reader;
use crate::archive::shared::model_payload;
use crate::archive::spare;
use crate::archive::waiting::{Unwritten, Waiting};
use crate::blocks::{CHAPTER_CONTENT, Coded, MAX_BLOCKS, TableBuilder};
use crate::codec::{Scratch, Stages};
use crate::envelope::{
    Container, HEADER_LEN, Kind as SectionKind, Section, SectionRef, header, trailer,
};
use crate::error::{Error, Result};
use crate::io::into_io;
use crate::parallel::Pipeline;
use crate::records::{Child, Entry, Kind, NameWatch, Page, PageBuilder, RecordTree, build_tree};
use crate::rlz::Coder;
use crate::rlz::coder::LANES;
use crate::rlz::store::put_dictionary;
use crate::wire::{Digest, crc64_join};

/// Content goes to other threads in pieces of at least this size: handing over
/// takes microseconds, which a small block should not pay alone.
const BATCH: usize = 128 << 10;
/// Where blocks are long, this bounds how many bytes of them are handed over together.
const MAX_TOGETHER: usize = 4 << 20;
/// Records that have ended are told at least every so much content, and so is one that has
/// begun and goes on: with less, a file that is cut keeps the content but not the names.
const TELL: u64 = 1 << 20;
/// Record pages in memory: with more, they are written.
const MAX_PENDING_PAGES: usize = 4 << 20;
/// With aligned records, a block is cut at this many times its length even
/// where no record ends.
const MAX_STRETCH: usize = 4;

/// Writes an archive: records with [`add`](Writer::add) or
/// [`begin`](Writer::begin), plain bytes through [`std::io::Write`], and at the
/// end [`finish`](Writer::finish), without which nothing can be read.
///
/// Memory: (2 * threads + 8) times the larger of a block and 128 KiB (with a coder, of
/// 16 blocks or 4 MiB, whichever is less), what the coder has prepared, one chapter's table,
/// 4 MiB of record pages, and the names of the records. Of several threads one compresses the dictionary
/// while the others pack: up to 64 MiB of finished blocks wait until it is written.
pub struct Writer<W: Write> {
    cutter: Cutter,
    pipeline: Pipeline<Batch, Compressed>,
    sink: Sink<W>,
    /// What comes before the first block, as long as it is not written, and blocks behind it.
    waiting: Option<Waiting>,
    open: Option<Open>,
    pages: PageBuilder,
    names: NameWatch,
    first_record: u64,
    next_record: u64,
    /// The archive that is being added to.
    before: Option<Reader>,
    poisoned: bool,
}

/// The record that is being written.
struct Open {
    entry: Entry,
    number: u64,
    /// Whether the file tells already that it has begun.
    told: bool,
}

/// Cuts content into blocks and gathers them into batches. What it decides
/// depends on the content alone, so that any number of threads writes the same.
struct Cutter {
    block_len: usize,
    align_records: bool,
    batch_len: usize,
    batch: Batch,
    spare: Vec<Batch>,
    /// Where the block that is being filled starts in the batch.
    block_start: usize,
    /// Decoded bytes taken so far, in the whole archive.
    len: u64,
    chapter_blocks: usize,
    chapter_len: u64,
    /// Record pages that will be written behind the next block.
    pages: Vec<(Page, SectionKind)>,
    pages_weight: usize,
    /// Whether the chapter has some already; and whether those that wait are urgent.
    has_pages: bool,
    urgent: bool,
    /// Decoded bytes before the last block behind which pages were written, and before that
    /// behind which all records were told.
    written: u64,
    told: u64,
}

/// Writes what is finished, in order, and knows where it is.
pub(super) struct Sink<W: Write> {
    out: W,
    /// How the blocks are coded that come.
    coded: Coded,
    /// Of what blocks share, in the order of the footer's list.
    pub digests: Vec<Digest>,
    /// What was written of it and has no spare yet.
    shared: Vec<u8>,
    pub pos: u64,
    pub footer: Footer,
    pub children: Vec<Child>,
    chapter: TableBuilder,
    chapter_pos: u64,
    pub scratch: Scratch,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts an archive: writes its header.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a block length or level that there is not,
    /// [`Error::Unsupported`] for a codec not compiled in, [`Error::Io`].
    pub fn new(mut out: W, options: Options) -> Result<Writer<W>> {
        options.check()?;
        out.write_all(&header(Container::Archive))?;
        let footer = Footer { notes: options.notes(), ..Footer::default() };
        Writer::resume(Sink::new(out, HEADER_LEN, footer), &options)
    }

    /// Goes on behind what `footer` tells of; `out` stands at `pos`.
    pub(super) fn resume(sink: Sink<W>, options: &Options) -> Result<Writer<W>> {
        options.check()?;
        let mut sink = sink;
        let mut waiting = None;
        // Coders factor several blocks at once.
        let (coded, mark, together) = match &options.packing {
            Packing::Codec(codec) => {
                let stages = Stages { codec: *codec, filters: options.filters.len() };
                (Coded { number: stages.number(), ..Coded::default() }, 0, 1)
            }
            Packing::Coder(coder) => {
                let (coded, mark, unwritten) = sink.place(coder, options);
                match unwritten.begin() {
                    true => waiting = Some(Waiting::new(unwritten)),
                    false => sink.share(unwritten)?,
                }
                (coded, mark, LANES)
            }
        };
        sink.coded = coded;
        let pipeline = Pipeline::new(options.threads, || {
            let mut worker = Worker::new(options, mark);
            move |batch| worker.run(batch)
        });
        Ok(Writer {
            cutter: Cutter {
                block_len: options.block_len,
                align_records: options.align_records,
                // Alone, a block is best compressed while it is still in the nearest cache.
                batch_len: match options.threads {
                    1 if together == 1 => 0,
                    _ => BATCH.max((options.block_len * together).min(MAX_TOGETHER)),
                },
                batch: Batch::default(),
                spare: Vec::new(),
                block_start: 0,
                len: sink.footer.len,
                chapter_blocks: 0,
                chapter_len: 0,
                pages: Vec::new(),
                pages_weight: 0,
                has_pages: false,
                urgent: false,
                written: sink.footer.len,
                told: sink.footer.len,
            },
            pipeline,
            open: None,
            pages: PageBuilder::default(),
            names: NameWatch::default(),
            first_record: sink.footer.records,
            next_record: sink.footer.records,
            before: None,
            poisoned: false,
            waiting,
            sink,
        })
    }

    /// The number of the record that comes next.
    pub(super) fn next_record(&self) -> u64 {
        self.next_record
    }

    /// True between the beginning of a record and its end.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Makes names that this archive has count as taken.
    pub(super) fn stand_on(&mut self, before: Reader) {
        self.before = Some(before);
    }

    /// The record of this name in the archive that is being added to.
    pub(super) fn find_before(&self, name: &[u8]) -> Result<Option<Entry>> {
        match &self.before {
            Some(reader) if !name.is_empty() => {
                Ok(reader.inner().index.find(name)?.map(|(_, entry)| entry))
            }
            _ => Ok(None),
        }
    }

    fn take_name(&mut self, entry: &Entry) -> Result<u64> {
        let (name, alone) = (&entry.name, entry.kind != Kind::Item);
        if alone && self.find_before(name)?.is_some_and(|before| before.kind != Kind::Item) {
            let name = String::from_utf8_lossy(name);
            return Err(Error::invalid(format!("the archive has a record {name:?} already")));
        }
        let number = self.next_record - self.first_record;
        self.names.push(name, number, alone)?;
        if !entry.key.is_empty() && entry.key != *name {
            self.names.push_other(&entry.key, number)?;
        }
        self.next_record += 1;
        Ok(self.next_record - 1)
    }

    /// Length of the content so far, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.cutter.len
    }

    /// Bytes written to the file so far; some are still on their way.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.sink.pos
    }

    /// Begins a record; what is written until [`end`](Writer::end) is its
    /// content. Returns its number. The writer sets the entry's range.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a record is open already, has a name that another
    /// one has or that is not allowed, or is of a kind that has no content.
    pub fn begin(&mut self, mut entry: Entry) -> Result<u64> {
        self.check()?;
        if self.open.is_some() {
            return Err(Error::invalid("a record is begun before the last one has ended"));
        }
        if !entry.kind.has_content() {
            return Err(Error::invalid("a record of this kind has no content"));
        }
        entry.check()?;
        let number = self.take_name(&entry)?;
        entry.range = self.cutter.len..self.cutter.len;
        self.open = Some(Open { entry, number, told: false });
        Ok(number)
    }

    /// Ends the record that was begun last.
    ///
    /// # Errors
    /// [`Error::Invalid`] when none is open, or when the content of a sparse one
    /// is not as long as its pieces; [`Error::Io`].
    pub fn end(&mut self) -> Result<()> {
        self.check()?;
        let none = Error::invalid("no record is open");
        let Open { mut entry, number, told } = self.open.take().ok_or(none)?;
        entry.range.end = self.cutter.len;
        if !entry.pieces_fit() {
            self.poisoned = true;
            return Err(Error::invalid("content and pieces of a sparse file differ"));
        }
        let expected = entry.range.start;
        self.push_entry(entry, number, expected)?;
        if told {
            // Where a record that was told has ended must be known before what follows it.
            self.flush_page();
            self.cutter.urgent = true;
        }
        self.align()
    }

    /// Ends the block where a record has ended, if it is long enough for that.
    fn align(&mut self) -> Result<()> {
        let full = self.cutter.align_records && self.cutter.pending() >= self.cutter.block_len;
        if full { self.cut() } else { Ok(()) }
    }

    /// Adds a record with all that `content` gives. Returns its number.
    ///
    /// # Errors
    /// Those of [`begin`](Writer::begin), and of reading and writing, after which no more can be written.
    pub fn add(&mut self, entry: Entry, content: &mut dyn Read) -> Result<u64> {
        let number = self.begin(entry)?;
        // Half a record is none.
        std::io::copy(content, self).inspect_err(|_| self.poisoned = true)?;
        self.end()?;
        Ok(number)
    }

    /// Adds a record that needs no content of its own: a directory, a link, or
    /// one whose `range` is content that was written before. Returns its number.
    ///
    /// # Errors
    /// [`Error::Invalid`] as in [`begin`](Writer::begin), or when the range is
    /// not of what was written before, or a hard link not to a record before.
    pub fn add_entry(&mut self, mut entry: Entry) -> Result<u64> {
        self.check()?;
        if self.open.is_some() {
            return Err(Error::invalid("a record is begun before the last one has ended"));
        }
        if entry.key == entry.name {
            entry.key.clear();
        }
        entry.check()?;
        if !entry.kind.has_content() {
            entry.range = self.cutter.len..self.cutter.len;
            entry.extents = None;
        }
        if entry.range.start > entry.range.end || entry.range.end > self.cutter.len {
            return Err(Error::invalid("a record's content was never written"));
        }
        if !entry.pieces_fit() {
            return Err(Error::invalid("content and pieces of a sparse file differ"));
        }
        if matches!(entry.kind, Kind::Hardlink(to) if to >= self.next_record) {
            return Err(Error::invalid("a hard link leads to no record before it"));
        }
        let number = self.take_name(&entry)?;
        // What has just been written stands one behind the other.
        let is_new = entry.kind == Kind::Item && entry.range.end == self.cutter.len;
        let expected = if is_new { entry.range.start } else { self.cutter.len };
        self.push_entry(entry, number, expected)?;
        self.align()?;
        Ok(number)
    }

    fn push_entry(&mut self, entry: Entry, number: u64, expected: u64) -> Result<()> {
        if let Some(page) = self.pages.push(entry, number, expected) {
            self.cutter.add_page(page, SectionKind::RecordPage);
            if self.cutter.pages_weight >= MAX_PENDING_PAGES {
                self.cut()?;
            }
        }
        Ok(())
    }

    fn flush_page(&mut self) {
        if let Some(page) = self.pages.flush() {
            self.cutter.add_page(page, SectionKind::RecordPage);
        }
    }

    /// Tells of all records there are: those that have ended, and that one has begun.
    fn tell(&mut self) {
        self.flush_page();
        self.cutter.told = self.cutter.len;
        let Some(open) = self.open.as_mut().filter(|open| !open.told) else { return };
        let expected = open.entry.range.start;
        if self.cutter.len > expected {
            let mut entry = open.entry.clone();
            entry.range.end = self.cutter.len;
            // The pieces of a sparse file that are there are not told apart from
            // those that follow: it is recovered as plain content.
            entry.extents = None;
            let page = Page::of(vec![entry], open.number, expected);
            self.cutter.add_page(page, SectionKind::BegunRecord);
            open.told = true;
        }
    }

    /// Writes the index and the footer, and gives back what was written to.
    /// Only now is the archive whole.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a record is still open; [`Error::Io`].
    pub fn finish(mut self) -> Result<W> {
        self.check()?;
        if self.open.is_some() {
            return Err(Error::invalid("the last record has not ended"));
        }
        self.cut()?;
        self.end_chapter()?;
        while let Some(done) = self.pipeline.pop() {
            self.put(done)?;
        }
        self.catch_up()?;
        self.sink.finish(self.names)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.poisoned { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Takes content; blocks that are full go to the workers.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check()?;
        let limit = self.cutter.limit();
        while !bytes.is_empty() {
            let room = limit - self.cutter.pending();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.cutter.batch.data.extend_from_slice(now);
            self.cutter.len += now.len() as u64;
            bytes = later;
            if self.cutter.pending() == limit {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Ends the block that is being filled, and the batch and chapter that it fills.
    fn cut(&mut self) -> Result<()> {
        let cutter = &mut self.cutter;
        let len = cutter.pending();
        if len > 0 {
            cutter.block_start = cutter.batch.data.len();
            cutter.batch.ends.push(cutter.block_start);
            cutter.chapter_blocks += 1;
            cutter.chapter_len += len as u64;
        }
        if cutter.chapter_blocks >= MAX_BLOCKS || cutter.chapter_len >= CHAPTER_CONTENT {
            return self.end_chapter();
        }
        if cutter.len - cutter.told >= TELL {
            self.tell();
        }
        if self.cutter.should_write_pages() {
            return self.submit(false);
        }
        let limit = self.cutter.limit();
        if self.cutter.batch.data.len() + limit > self.cutter.batch_len.max(limit) {
            return self.submit(false);
        }
        Ok(())
    }

    /// Ends the chapter behind the last block that was cut, if there is anything in it.
    fn end_chapter(&mut self) -> Result<()> {
        self.tell();
        let cutter = &mut self.cutter;
        if cutter.chapter_blocks == 0 && cutter.pages.is_empty() && !cutter.has_pages {
            return Ok(());
        }
        (cutter.chapter_blocks, cutter.chapter_len) = (0, 0);
        self.submit(true)
    }

    /// Hands the batch to the workers, and writes what they have finished.
    fn submit(&mut self, ends_chapter: bool) -> Result<()> {
        let cutter = &mut self.cutter;
        let spare = cutter.spare.pop().unwrap_or_default();
        let mut batch = std::mem::replace(&mut cutter.batch, spare);
        batch.offset = cutter.len - batch.data.len() as u64;
        cutter.block_start = 0;
        batch.ends_chapter = ends_chapter;
        // What was cut alike for any number of threads has the same pages behind it.
        if ends_chapter || cutter.should_write_pages() {
            batch.pages = std::mem::take(&mut cutter.pages);
            (cutter.pages_weight, cutter.urgent) = (0, false);
            cutter.written = cutter.len;
            cutter.has_pages |= !batch.pages.is_empty();
            cutter.has_pages &= !ends_chapter;
        }
        if let Some(done) = self.pipeline.push(batch)
            && let Some(mut batch) = self.put(done).inspect_err(|_| self.poisoned = true)?
        {
            batch.data.clear();
            batch.ends.clear();
            self.cutter.spare.push(batch);
        }
        Ok(())
    }

    /// Writes finished blocks, and returns the batch for its buffers; or lets them wait.
    fn put(&mut self, done: Compressed) -> Result<Option<Batch>> {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.goes_on()) {
            waiting.push(done);
            return Ok(None);
        }
        self.catch_up()?;
        self.sink.take(done).map(Some)
    }

    /// Writes what waits, once it can be.
    fn catch_up(&mut self) -> Result<()> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        self.sink.share(waiting.unwritten)?;
        waiting.blocks.into_iter().try_for_each(|done| self.sink.take(done).map(drop))
    }
}

impl Cutter {
    /// Bytes in the block that is being filled.
    fn pending(&self) -> usize {
        self.batch.data.len() - self.block_start
    }

    /// The length at which a block is cut wherever it is.
    fn limit(&self) -> usize {
        match self.align_records {
            true => (self.block_len * MAX_STRETCH).min(MAX_BLOCK),
            false => self.block_len,
        }
    }

    fn add_page(&mut self, page: Page, kind: SectionKind) {
        self.pages_weight += page.weight();
        self.pages.push((page, kind));
    }

    /// Whether the pages that wait are written behind the block that was just cut. In small
    /// numbers they wait, so that a block of small records does not go to a worker alone.
    fn should_write_pages(&self) -> bool {
        let enough = self.len - self.written >= BATCH as u64;
        let many = self.pages_weight >= MAX_PENDING_PAGES;
        !self.pages.is_empty() && (self.urgent || enough || many)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.take(bytes).map_err(into_io)?;
        Ok(bytes.len())
    }

    /// Does nothing: only [`finish`](Writer::finish) makes an archive.
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Sink<W> {
    pub fn new(out: W, pos: u64, footer: Footer) -> Sink<W> {
        Sink {
            out,
            coded: Coded::default(),
            digests: Vec::new(),
            shared: Vec::new(),
            pos,
            footer,
            children: Vec::new(),
            chapter: TableBuilder::default(),
            chapter_pos: pos,
            scratch: Scratch::default(),
            buffer: Vec::new(),
        }
    }

    /// Where what the blocks of this coder share is or will be. Returns how they are coded, their mark, and
    /// what is not in the file yet.
    fn place(&self, coder: &Arc<Coder>, options: &Options) -> (Coded, u32, Unwritten) {
        let (dictionary, number) = (coder.dictionary(), coder.coding() as u8);
        let mut unwritten = Unwritten { threads: options.threads, ..Unwritten::default() };
        let mut tag = dictionary.digest().tag();
        let mut next = self.footer.shared.len();
        let mut place = |digest: &Digest| {
            let found = self.digests.iter().position(|known| known == digest);
            let place = found.unwrap_or(next);
            next += usize::from(found.is_none());
            (Some(place as u32), found.is_none())
        };
        let (at, is_new) = place(&dictionary.digest());
        let mut coded = Coded { number, dictionary: at, model: None };
        if is_new {
            unwritten.dictionary = Some((dictionary.clone(), options.dictionary_file.clone()));
        }
        if let Some(model) = coder.model() {
            let payload = model_payload(model);
            let digest = Digest::of(&payload);
            tag ^= digest.tag();
            let (at, is_new) = place(&digest);
            coded.model = at;
            unwritten.model = is_new.then_some(payload);
        }
        (coded, u32::from(tag) << 8 | u32::from(number), unwritten)
    }

    /// Writes what blocks share, and its spare.
    fn share(&mut self, unwritten: Unwritten) -> Result<()> {
        if let Some((dictionary, name)) = unwritten.dictionary {
            let (pos, place) = (self.pos, self.footer.shared.len() as u64);
            let (name, threads) = (name.as_deref(), unwritten.threads);
            let mut write = |bytes: &[u8]| self.write_shared(bytes);
            let at = put_dictionary(&dictionary, name, pos, place, threads, &mut write)?;
            self.add_shared(SectionKind::Dictionary, at, dictionary.digest());
        }
        if let Some(payload) = unwritten.model {
            let (pos, number) = (self.pos, (0, self.footer.shared.len() as u64));
            let (mut section, scratch) = (Vec::new(), Some(&mut self.scratch));
            Section::put(&mut section, pos, SectionKind::Model, number, &payload, scratch);
            self.write_shared(&section)?;
            let at = SectionRef { pos, len: section.len() as u64 };
            self.add_shared(SectionKind::Model, at, Digest::of(&payload));
        }
        self.end_shared()
    }

    /// Writes bytes of a section that blocks share.
    pub fn write_shared(&mut self, bytes: &[u8]) -> Result<()> {
        self.shared.extend_from_slice(bytes);
        self.write(bytes)
    }

    /// Writes the spare of what was written for blocks to share since the last one.
    pub fn end_shared(&mut self) -> Result<()> {
        let shared = std::mem::take(&mut self.shared);
        if shared.is_empty() {
            return Ok(());
        }
        let (pos, place) = (self.pos, self.footer.shared.len());
        let mut section = Vec::new();
        let payload = spare::payload(&shared);
        Section::put(&mut section, pos, SectionKind::Spare, (0, place as u64), &payload, None);
        self.write(&section)?;
        let at = SectionRef { pos, len: section.len() as u64 };
        self.add_shared(SectionKind::Spare, at, Digest([0; 32]));
        Ok(())
    }

    /// Notes a section that what comes refers to by its place.
    pub fn add_shared(&mut self, kind: SectionKind, at: SectionRef, digest: Digest) {
        self.footer.shared.push(SharedRef { kind: kind as u8, at });
        self.digests.push(digest);
        self.chapter_pos = self.pos;
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.pos += bytes.len() as u64;
        Ok(())
    }

    /// Writes finished blocks, and the end of the chapter if it is there.
    /// Returns the batch for its buffers.
    fn take(&mut self, done: Compressed) -> Result<Batch> {
        done.result?;
        let mut batch = done.batch;
        self.write(&batch.stored[..batch.stored_len])?;
        let mut start = 0;
        for (&end, &stored_len) in batch.ends.iter().zip(&done.stored_lens) {
            self.chapter.push(self.coded, (end - start) as u64, stored_len as u64);
            start = end;
        }
        let len = start as u64;
        self.footer.content = crc64_join(self.footer.content, done.content, len);
        for (page, kind) in batch.pages.drain(..) {
            self.put_page(&page, kind)?;
        }
        if batch.ends_chapter {
            self.end_table()?;
        }
        Ok(batch)
    }

    /// Writes a record page, or a begun record, behind the last block.
    pub fn put_page(&mut self, page: &Page, kind: SectionKind) -> Result<()> {
        let pos = self.pos;
        self.put(|pos, out, scratch| {
            let child = page.put(out, pos, kind, scratch);
            (kind == SectionKind::RecordPage).then_some(child)
        })?;
        self.chapter.push_gap(self.pos - pos);
        Ok(())
    }

    /// Writes one section that `make` appends, and keeps it as a page of the index.
    fn put(
        &mut self,
        make: impl FnOnce(u64, &mut Vec<u8>, &mut Scratch) -> Option<Child>,
    ) -> Result<()> {
        self.buffer.clear();
        let child = make(self.pos, &mut self.buffer, &mut self.scratch);
        self.children.extend(child);
        let bytes = std::mem::take(&mut self.buffer);
        self.write(&bytes)?;
        self.buffer = bytes;
        Ok(())
    }

    /// Writes the table of the chapter that has been gathered.
    pub fn end_table(&mut self) -> Result<()> {
        let chapter = std::mem::take(&mut self.chapter);
        let before = (self.footer.len, self.footer.blocks);
        self.buffer.clear();
        let table = chapter.put(&mut self.buffer, self.pos, self.pos - self.chapter_pos, before);
        let bytes = std::mem::take(&mut self.buffer);
        self.write(&bytes)?;
        self.buffer = bytes;
        let (len, blocks) = (chapter.len(), chapter.blocks() as u64);
        let (offset, first_block) = before;
        self.footer.chapters.push(ChapterRef { table, offset, first_block, len, blocks });
        self.footer.len += len;
        self.footer.blocks += blocks;
        self.chapter_pos = self.pos;
        Ok(())
    }

    /// The table of the chapter that is being written.
    pub fn chapter(&mut self) -> &mut TableBuilder {
        &mut self.chapter
    }

    /// Writes the tree above the pages gathered, and then footer and trailer.
    fn finish(mut self, names: NameWatch) -> Result<W> {
        self.end_tree(|pos, out, scratch| names.finish(pos, out, scratch))?;
        self.end_file()
    }

    /// Writes the tree above the pages gathered so far; `names` says how its
    /// names are found, and appends what that takes.
    pub fn end_tree(
        &mut self,
        names: impl FnOnce(u64, &mut Vec<u8>, &mut Scratch) -> crate::records::Names,
    ) -> Result<()> {
        let mut out = Vec::new();
        let children = std::mem::take(&mut self.children);
        if let Some(tree) = build_tree(children, self.pos, &mut out, &mut self.scratch) {
            let names = names(self.pos + out.len() as u64, &mut out, &mut self.scratch);
            self.footer.records = tree.first + tree.count;
            self.footer.trees.push(RecordTree { tree, names });
        }
        self.write(&out)?;
        // A chapter that follows starts behind these nodes.
        self.chapter_pos = self.pos;
        Ok(())
    }

    /// Writes footer and trailer.
    pub fn end_file(mut self) -> Result<W> {
        let mut out = Vec::new();
        let footer = self.footer.put(&mut out, self.pos);
        self.write(&out)?;
        self.write(&trailer(footer))?;
        self.out.flush()?;
        Ok(self.out)
    }
}
