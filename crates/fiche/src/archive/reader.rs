//! Reads any piece of an archive, from any thread.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::archive::ahead::BATCH;
use crate::archive::decode::{Decoding, decode_block, has_point_reads, place, reach};
use crate::archive::format::{ChapterRef, Footer};
use crate::archive::marks::Marks;
use crate::archive::record::Record;
use crate::archive::shared::{DictionaryCache, Known, Shared};
use crate::archive::stream::Stream;
use crate::blocks::{Block, Table};
use crate::cache::Cache;
use crate::envelope::{self, Container, HEADER_LEN, Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, Resolve, within};
use crate::records::{Entry, Index, Kind};
use crate::rlz::coder::Begin;
use crate::rlz::{Coding, Dictionary};
use crate::wire::Digest;

/// Stored bytes that neighbouring blocks are fetched in at once.
const FETCH: u64 = 1 << 20;

/// How an archive is read.
#[derive(Clone)]
pub struct OpenOptions {
    cache: u64,
    known: Known,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Default for OpenOptions {
    /// A cache of 64 MiB.
    fn default() -> OpenOptions {
        OpenOptions { cache: 64 << 20, known: Known::default() }
    }
}

impl OpenOptions {
    /// How many bytes of decoded blocks to keep for the next read. Only blocks
    /// that a read needed a part of are kept; 0 keeps none. A block longer than
    /// a quarter of this is not kept.
    #[must_use]
    pub fn cache(self, bytes: u64) -> OpenOptions {
        OpenOptions { cache: bytes, ..self }
    }

    /// A dictionary at hand, which is taken wherever the archive needs one of its digest: in
    /// place of a file beside it, or of one in the archive that is damaged. May be called often.
    #[must_use]
    pub fn dictionary(mut self, dictionary: Arc<Dictionary>) -> OpenOptions {
        self.known.dictionaries.push(dictionary);
        self
    }

    /// How the dictionary files are found that an archive names; without it, none is.
    #[must_use]
    pub fn resolve(mut self, resolve: Arc<dyn Resolve>) -> OpenOptions {
        self.known.resolve = Some(resolve);
        self
    }

    /// Where dictionaries are kept that were loaded once.
    #[must_use]
    pub fn dictionary_cache(mut self, cache: Arc<dyn DictionaryCache>) -> OpenOptions {
        self.known.cache = Some(cache);
        self
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// Opens an archive with these options.
    ///
    /// # Errors
    /// Those of [`Reader::open`].
    pub fn open(&self, source: Arc<dyn ReadAt>) -> Result<Reader> {
        if source.as_distant().is_some()
            && let Ok((section, footer)) = read_footer(&source, source.len())
        {
            // The end says all that is needed of the beginning, which would be waited for.
            return Ok(Reader::new(source.clone(), source.len(), section, footer, self));
        }
        let header = envelope::read_header(&source, Container::Archive)?;
        let whole = read_footer(&source, source.len());
        // A guard that is set tells of an append that was cut off (or goes on): then the
        // archive is what it was before. With a trailer at its end the append was not
        // cut off: what is damaged then must not be taken for what never was.
        let (end, section, footer) = match (whole, header.guard) {
            (Ok((section, footer)), _) => (source.len(), section, footer),
            (Err(_), Some(guard))
                if guard < source.len() && !envelope::ends_with_trailer(&source)? =>
            {
                let (section, footer) = read_footer(&source, guard)?;
                (guard, section, footer)
            }
            (Err(error), _) => return Err(error),
        };
        header.valid?;
        Ok(Reader::new(source, end, section, footer, self))
    }
}

fn read_footer(source: &dyn ReadAt, end: u64) -> Result<(SectionRef, Footer)> {
    let at = envelope::read_trailer(source, end)?;
    Ok((at, Footer::load(source, at)?))
}

/// An archive that is open for reading; itself the bytes of all its content.
///
/// Cheap to clone, and shared by any number of threads: no lock is held while a
/// block is read or decoded. A read decodes the blocks it touches and nothing
/// else; each block's checksum is verified before its bytes are given out. A block that is
/// only needed in part is kept in a bounded cache.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub source: Arc<dyn ReadAt>,
    /// Where the archive ends in the source, and its footer.
    pub end: u64,
    pub footer_at: SectionRef,
    pub footer: Footer,
    tables: Vec<OnceLock<Table>>,
    pub shared: Shared,
    verified: Verified,
    pub marks: Marks,
    pub index: Index,
    /// Of a recovered archive: the record of which only the beginning is left, and where in the
    /// content what is left of it ends.
    pub incomplete: Option<(u64, u64)>,
    pub cache: Cache<Vec<u8>>,
    /// Boxed, so that taking one and giving it back moves a pointer.
    #[expect(clippy::vec_box, reason = "a scratch is hundreds of bytes")]
    scratch: Mutex<Vec<Box<Scratch>>>,
}

/// Which blocks were verified: a bit for each, once the first one was.
#[derive(Default)]
struct Verified(OnceLock<Vec<AtomicU64>>);

impl Verified {
    fn has(&self, block: u64) -> bool {
        let word = self.0.get().and_then(|words| words.get(block as usize / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1)
    }

    /// Notes one of so many blocks.
    fn set(&self, block: u64, blocks: u64) {
        let words = || (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        if let Some(word) = self.0.get_or_init(words).get(block as usize / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
    }
}

/// What a thread works with while it reads. Reused, so that reading allocates
/// nothing once it runs.
#[derive(Default)]
struct Scratch {
    decode: Decoding,
    window: Window,
    /// A buffer for a block that is needed in part, ready to go into the cache.
    spare: Option<Arc<Vec<u8>>>,
}

/// Stored bytes that were fetched: of one block, or of neighbours.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    pos: u64,
    len: usize,
    /// Where the stored bytes end that were fetched from far away.
    fetched: u64,
}

impl Window {
    fn holds(&self, block: &Block) -> bool {
        block.pos >= self.pos && block.end() <= self.pos + self.len as u64
    }

    /// The stored bytes of a block; when they are not here yet, they are fetched
    /// with what follows up to `until`, in pieces of `FETCH`.
    fn stored<'a>(
        &'a mut self,
        source: &'a dyn ReadAt,
        block: &Block,
        until: u64,
    ) -> Result<&'a [u8]> {
        let len = block.stored_len as usize;
        if let Some(all) = source.as_bytes() {
            let start = usize::try_from(block.pos).unwrap_or(usize::MAX);
            let cut = Error::Corrupt { what: "stored block", at: place(block) };
            return all.get(start..).and_then(|rest| rest.get(..len)).ok_or(cut);
        }
        if !self.holds(block) {
            let wanted = until
                .saturating_sub(block.pos)
                .clamp(block.stored_len, FETCH.max(block.stored_len));
            if self.bytes.len() < wanted as usize {
                self.bytes.resize(wanted as usize, 0);
            }
            self.len = 0;
            if until > block.pos + FETCH
                && block.pos + wanted > self.fetched
                && let Some(distant) = source.as_distant()
            {
                self.fetched = until.min(block.pos + BATCH);
                distant.fetch(&[block.pos..self.fetched]);
            }
            source.read_at(block.pos, &mut self.bytes[..wanted as usize])?;
            (self.pos, self.len) = (block.pos, wanted as usize);
        }
        let start = (block.pos - self.pos) as usize;
        Ok(&self.bytes[start..start + len])
    }
}

impl Reader {
    /// Opens the archive in `source`. Reads its header, trailer and footer; the
    /// rest when it is first needed. Costs some 10 bytes of memory for 4,096 blocks,
    /// and a table's size for each chapter that was touched.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no file of fiche's, [`Error::Corrupt`] when it is
    /// damaged or cut, [`Error::Unsupported`] when a newer version wrote it.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Reader> {
        OpenOptions::default().open(source)
    }

    pub(super) fn new(
        source: Arc<dyn ReadAt>,
        end: u64,
        footer_at: SectionRef,
        footer: Footer,
        options: &OpenOptions,
    ) -> Reader {
        let tables = footer.chapters.iter().map(|_| OnceLock::new()).collect();
        let index = Index::new(source.clone(), footer.trees.clone());
        let shared = Shared::new(source.clone(), &footer.shared, options.known.clone());
        let cache = Cache::new(options.cache);
        let scratch = Mutex::new(Vec::new());
        let inner = Inner {
            source,
            end,
            footer_at,
            footer,
            tables,
            shared,
            verified: Verified::default(),
            marks: Marks::default(),
            index,
            incomplete: None,
            cache,
            scratch,
        };
        Reader { inner: Arc::new(inner) }
    }

    /// A recovered archive: these tables are known, and this record has no end.
    pub(super) fn recovered(
        self,
        tables: Vec<(usize, Table)>,
        incomplete: Option<(u64, u64)>,
    ) -> Reader {
        let mut reader = self;
        if let Some(inner) = Arc::get_mut(&mut reader.inner) {
            inner.incomplete = incomplete;
            for (i, table) in tables {
                inner.tables[i] = OnceLock::from(table);
            }
        }
        reader
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// How many records there are.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.inner.index.len()
    }

    /// True for a record of which [`recover`](Reader::recover) found only the beginning.
    #[must_use]
    pub fn is_incomplete(&self, number: u64) -> bool {
        self.inner.incomplete.is_some_and(|(incomplete, _)| incomplete == number)
    }

    /// The entry of the record of this number.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Corrupt`] when the index is damaged.
    pub fn entry(&self, number: u64) -> Result<Entry> {
        let missing = || Error::NotFound { name: format!("#{number}"), nearest: None };
        let entry = self.inner.index.get(number)?.ok_or_else(missing)?;
        self.check_entry(number, entry)
    }

    /// The number and entry of the record of this name, if there is one. Takes
    /// O(log n) steps and loads no more of the index than they touch.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the index is damaged, [`Error::Io`].
    pub fn find(&self, name: impl AsRef<[u8]>) -> Result<Option<(u64, Entry)>> {
        match self.inner.index.find(name.as_ref())? {
            Some((number, entry)) => Ok(Some((number, self.check_entry(number, entry)?))),
            None => Ok(None),
        }
    }

    /// The number and entry of the record of this name, which should be there:
    /// where it is not, some milliseconds go into finding the name that was meant.
    ///
    /// # Errors
    /// [`Error::NotFound`] with the nearest name, and those of [`find`](Reader::find).
    pub fn entry_of(&self, name: impl AsRef<[u8]>) -> Result<(u64, Entry)> {
        let name = name.as_ref();
        // From far away all names would take longer than the suggestion is worth.
        let is_near = self.inner.source.as_distant().is_none();
        self.find(name)?.ok_or_else(|| Error::NotFound {
            name: String::from_utf8_lossy(name).into_owned(),
            nearest: is_near.then(|| self.inner.index.nearest(name)).flatten(),
        })
    }

    /// All records of which a name starts with `prefix`, with their numbers: in the order of their
    /// names, where nothing was appended. A record is given once for each such name. Goes
    /// straight to the first, and loads no more of the index than the records that it gives.
    pub fn prefix<'a>(
        &'a self,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = Result<(u64, Entry)>> + 'a {
        self.inner.index.prefix(prefix).map(|item| {
            let (number, entry) = item?;
            Ok((number, self.check_entry(number, entry)?))
        })
    }

    /// True when the content is one stream: no record is more than an item of it. Looks at all
    /// records if it is, and otherwise at few.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        let trees = self.inner.index.trees();
        // What items belong to usually comes behind them.
        let lasts = trees.iter().map(|t| self.entry(t.tree.first + t.tree.count - 1));
        let mut some = lasts.chain(self.entries(0).map(|item| item.map(|(_, entry)| entry)));
        some.all(|entry| entry.is_ok_and(|entry| entry.kind == Kind::Item))
    }

    /// All records in order, from this number on: number and entry. Loads a page
    /// of the index at a time. After damage it goes on behind the damaged part.
    pub fn entries(&self, from: u64) -> impl Iterator<Item = Result<(u64, Entry)>> + '_ {
        self.inner.index.iter(from).map(|item| {
            let (number, entry) = item?;
            Ok((number, self.check_entry(number, entry)?))
        })
    }

    /// The record of this name, as something to read.
    ///
    /// # Errors
    /// Those of [`entry_of`](Reader::entry_of); [`Error::Invalid`] when it has no content.
    pub fn record(&self, name: impl AsRef<[u8]>) -> Result<Record> {
        let (number, entry) = self.entry_of(name)?;
        self.record_of(number, entry)
    }

    /// The record of this number, as something to read.
    ///
    /// # Errors
    /// Those of [`entry`](Reader::entry); [`Error::Invalid`] when it has no content.
    pub fn record_at(&self, number: u64) -> Result<Record> {
        let entry = self.entry(number)?;
        self.record_of(number, entry)
    }

    /// A hard link reads as the file it is another name of.
    fn record_of(&self, number: u64, entry: Entry) -> Result<Record> {
        let entry = match entry.kind {
            Kind::Hardlink(to) => self.entry(to)?,
            _ => entry,
        };
        if !entry.kind.has_content() {
            let what = match entry.kind {
                Kind::Directory => "this is a directory, and has no content",
                Kind::Symlink(_) => "this is a symbolic link, and has no content",
                Kind::Hardlink(_) => {
                    return Err(Error::Corrupt { what: "hard link", at: Place::Record(number) });
                }
                _ => "this is a pipe or a device, and has no content",
            };
            return Err(Error::invalid(what));
        }
        Ok(Record { reader: self.clone(), number, entry })
    }

    /// Whatever the index says, a record lies in the archive and links lead back.
    fn check_entry(&self, number: u64, mut entry: Entry) -> Result<Entry> {
        if let Some((incomplete, end)) = self.inner.incomplete
            && incomplete == number
        {
            entry.range.end = end;
        }
        if entry.range.end > self.len() {
            return Err(Error::Corrupt { what: "record page", at: Place::Record(number) });
        }
        Ok(entry)
    }

    /// The dictionaries that blocks share: for each the digest, its length, and the name of the file
    /// that it is in, if it is not in the archive.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when what is said of one is damaged, [`Error::Io`].
    pub fn dictionaries(&self) -> Result<Vec<(Digest, u64, Option<String>)>> {
        let all = self.inner.shared.descriptions()?;
        Ok(all.map(|(_, d)| (d.digest, d.len, d.name.clone())).collect())
    }

    /// The dictionary of this digest, which is loaded if it was not yet: to append with it.
    ///
    /// # Errors
    /// [`Error::Missing`] when it is not there, and those of loading it.
    pub fn dictionary(&self, digest: &Digest) -> Result<Arc<Dictionary>> {
        let found = self.inner.shared.descriptions()?.find(|(_, d)| d.digest == *digest);
        match found {
            Some((place, _)) => self.inner.shared.dictionary(place).cloned(),
            None => Err(Error::Missing { what: "dictionary", digest: *digest }),
        }
    }

    /// Stored bytes of each block in order, its checksum included. Loads every chapter's table.
    pub(crate) fn stored_lens(&self) -> Result<Vec<u64>> {
        let mut lens = Vec::new();
        for chapter in 0..self.inner().footer.chapters.len() {
            let table = self.inner().table(chapter)?;
            lens.extend((0..table.blocks()).map(|i| table.block(i).stored_len));
        }
        Ok(lens)
    }

    /// A range of the content in order, decoded ahead by several threads; see [`Stream`].
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the range passes the end or is reversed.
    pub fn stream(&self, range: Range<u64>, threads: usize) -> Result<Stream> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::OutOfBounds { range, len: self.len() });
        }
        Ok(Stream::new(self.clone(), std::iter::once(range), threads))
    }

    fn scratch(&self) -> Box<Scratch> {
        let mut free = self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = free.pop().unwrap_or_default();
        (scratch.window.len, scratch.window.fetched) = (0, 0);
        scratch
    }

    fn give_back(&self, scratch: Box<Scratch>) {
        self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

impl Inner {
    /// True for a chapter whose table was loaded.
    pub fn has_table(&self, i: usize) -> bool {
        self.tables[i].get().is_some()
    }

    /// The table of chapter `i`, loaded when it is first asked for.
    pub fn table(&self, i: usize) -> Result<&Table> {
        let cell = &self.tables[i];
        if let Some(table) = cell.get() {
            return Ok(table);
        }
        let table = load_table(&self.source, &self.footer.chapters[i])?;
        Ok(cell.get_or_init(|| table))
    }

    /// Number of the chapter that holds the byte at this offset.
    pub fn chapter_at(&self, offset: u64) -> usize {
        self.footer.chapters.partition_point(|c| c.offset + c.len <= offset)
    }

    /// The block that holds the byte at `offset`, which is below the length.
    pub fn block_at(&self, offset: u64) -> Result<Block> {
        Ok(self.table(self.chapter_at(offset))?.find(offset))
    }

    /// Decodes the first bytes of a block, as many as `buf` has.
    fn decode(
        &self,
        block: &Block,
        until: u64,
        buf: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.decode_piece(block, 0, until, buf, scratch)
    }

    /// Decodes the bytes of a block from `start` on, as many as `buf` has.
    fn decode_piece(
        &self,
        block: &Block,
        start: usize,
        until: u64,
        buf: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { window, decode, .. } = scratch;
        let stored = window.stored(&*self.source, block, until)?;
        // What lies in memory stays as it is: to read all of a block for a few bytes of it would be
        // most of the work. What is read from a file is read again, and may be damaged by then.
        let stays = self.source.as_bytes().is_some() && has_point_reads(block);
        let is_verified = stays && self.verified.has(block.number);
        if is_verified && let Some(coding) = Coding::from_number(block.coded.number) {
            // On its way while the mark is: what is known then is asked for exactly.
            coding.ask(stored, start, block.len as usize);
        }
        let mark = if is_verified { self.marks.before(block, start) } else { None };
        let begin = Begin { at: start, mark };
        decode_block(&self.shared, block, stored, begin, buf, decode, is_verified)?;
        if stays && !is_verified {
            self.verified.set(block.number, self.footer.blocks);
        } else if is_verified && mark.is_none() {
            // What is read a second time may well be read a third time.
            self.marks.note(block, start, stored, self.footer.len);
        }
        Ok(())
    }

    /// The bytes of a block up to `end` at least: from the cache, or decoded and put there.
    /// `with` gets them. With `stop`, what is not needed is not decoded where
    /// that saves something; but a block that is looked at again is decoded whole.
    fn with_block<T>(
        &self,
        block: &Block,
        (end, stop): (usize, bool),
        until: u64,
        scratch: &mut Scratch,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let cached = self.cache.get(block.number);
        if let Some(bytes) = cached.as_ref().filter(|bytes| bytes.as_slice().len() >= end) {
            return Ok(with(bytes));
        }
        let len = match stop && cached.is_none() {
            true => reach(block, end),
            false => block.len as usize,
        };
        let mut bytes = scratch.spare.take().unwrap_or_default();
        if Arc::get_mut(&mut bytes).is_none() {
            bytes = Arc::default();
        }
        if let Some(buf) = Arc::get_mut(&mut bytes) {
            // Room for all of it: buffers are used again for other blocks.
            buf.truncate(len);
            buf.reserve(block.len as usize - buf.len());
            buf.resize(len, 0);
            if let Err(error) = self.decode(block, until, buf, scratch) {
                scratch.spare = Some(bytes);
                return Err(error);
            }
        }
        let result = with(&bytes);
        scratch.spare = self.cache.insert(block.number, bytes, block.len);
        Ok(result)
    }

    /// Where the stored bytes end of the last block that a read up to `end`
    /// needs in the chapter of `block`.
    fn stored_until(&self, chapter: usize, end: u64) -> Result<u64> {
        let chapter_ref = &self.footer.chapters[chapter];
        let last = end.min(chapter_ref.offset + chapter_ref.len) - 1;
        let block = self.table(chapter)?.find(last);
        Ok(block.end())
    }

    fn read(&self, range: Range<u64>, mut buf: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        self.fetch(&[range.start..range.end.min(range.start + BATCH)]);
        let mut offset = range.start;
        while offset < range.end {
            self.marks.ask(offset);
            let chapter = self.chapter_at(offset);
            let mut block = self.table(chapter)?.find(offset);
            let chapter_end = {
                let c = &self.footer.chapters[chapter];
                range.end.min(c.offset + c.len)
            };
            let until = match block.offset + block.len < chapter_end {
                true => self.stored_until(chapter, chapter_end)?,
                false => block.end(),
            };
            loop {
                let end = chapter_end.min(block.offset + block.len);
                let (now, later) = buf.split_at_mut((end - offset) as usize);
                buf = later;
                if now.len() as u64 == block.len {
                    match self.cache.get(block.number) {
                        Some(bytes) if bytes.as_slice().len() == now.len() => {
                            now.copy_from_slice(&bytes)
                        }
                        _ => self.decode(&block, until, now, scratch)?,
                    }
                } else {
                    let start = (offset - block.offset) as usize;
                    if has_point_reads(&block) {
                        self.decode_piece(&block, start, until, now, scratch)?;
                    } else {
                        // Who begins where a block does will want what follows, too.
                        let (end, stop) = (start + now.len(), offset != range.start || start > 0);
                        self.with_block(&block, (end, stop), until, scratch, |bytes| {
                            now.copy_from_slice(&bytes[start..end]);
                        })?;
                    }
                }
                offset = end;
                if offset >= chapter_end {
                    break;
                }
                block = self.table(chapter)?.find(offset);
            }
        }
        Ok(())
    }
}

/// Loads a chapter's table and checks that it is the one the footer means.
pub(super) fn load_table(source: &dyn ReadAt, chapter: &ChapterRef) -> Result<Table> {
    let section = Section::load(source, chapter.table, SectionKind::ChapterTable)?;
    let table = Table::parse(&section)?;
    let same = (table.offset, table.first_block) == (chapter.offset, chapter.first_block)
        && (table.len, table.blocks() as u64) == (chapter.len, chapter.blocks)
        && table.pos >= HEADER_LEN;
    if same { Ok(table) } else { Err(section.corrupt("chapter table")) }
}

impl ReadAt for Reader {
    fn len(&self) -> u64 {
        self.inner.footer.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), self.len())?;
        let mut scratch = self.scratch();
        let result = self.inner.read(range, buf, &mut scratch);
        self.give_back(scratch);
        result
    }

    /// Sorts the reads, fetches neighbouring blocks at once, and decodes each
    /// block once, however many reads need it.
    fn read_many_at(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = reads
            .iter()
            .map(|(offset, buf)| within(*offset, buf.len(), self.len()).map(drop))
            .collect();
        let mut order: Vec<usize> =
            (0..reads.len()).filter(|&i| results[i].is_ok() && !reads[i].1.is_empty()).collect();
        order.sort_unstable_by_key(|&i| reads[i].0);
        let mut scratch = self.scratch();
        // Reads that begin before the end of the block at hand and go on behind its start.
        let mut active: Vec<usize> = Vec::new();
        let mut next = 0;
        let mut offset = 0;
        let mut fetched = 0;
        while next < order.len() || !active.is_empty() {
            if next >= fetched && self.inner.source.as_distant().is_some() {
                fetched = next + self.fetch_some(&order[next..], reads);
            }
            if active.is_empty() {
                offset = reads[order[next]].0;
            }
            let block = match self.inner.block_at(offset) {
                Ok(block) => block,
                Err(error) => {
                    // Without its table nothing of the chapter can be read.
                    let chapter = &self.inner.footer.chapters[self.inner.chapter_at(offset)];
                    let end = chapter.offset + chapter.len;
                    while next < order.len() && reads[order[next]].0 < end {
                        active.push(order[next]);
                        next += 1;
                    }
                    active.iter().for_each(|&i| results[i] = Err(error.again()));
                    active.retain(|&i| reads[i].0 + reads[i].1.len() as u64 > end);
                    offset = end;
                    continue;
                }
            };
            let block_end = block.offset + block.len;
            while next < order.len() && reads[order[next]].0 < block_end {
                active.push(order[next]);
                next += 1;
            }
            let until = match scratch.window.holds(&block) {
                true => block.end(),
                false => self.fetch_until(&block, &active, &order[next..], reads),
            };
            let result = self.read_block_for(&block, &active, until, reads, &mut scratch);
            if let Err(error) = result {
                active.iter().for_each(|&i| results[i] = Err(error.again()));
                let is_far = self.inner.source.as_distant().is_some();
                if is_far && matches!(error, Error::Io(_) | Error::Changed { .. }) {
                    // It has been asked for often enough: the others would wait as long, one by one.
                    order[next..].iter().for_each(|&i| results[i] = Err(error.again()));
                    break;
                }
            }
            active.retain(|&i| reads[i].0 + reads[i].1.len() as u64 > block_end);
            offset = block_end;
        }
        self.give_back(scratch);
        results
    }
}

impl Reader {
    /// Fetches what the first of these reads need, in order; how many these are.
    fn fetch_some(&self, order: &[usize], reads: &[(u64, &mut [u8])]) -> usize {
        // However little is read of a block, all that is stored of it is fetched.
        let (footer, end) = (&self.inner.footer, self.inner.end);
        let most = (BATCH * footer.blocks.max(1) / end.max(1)).clamp(1, 4096) as usize;
        let (mut some, mut sum) = (Vec::new(), 0);
        for &i in order {
            let (offset, len) = (reads[i].0, reads[i].1.len() as u64);
            if sum > 0 && (sum + len > BATCH || some.len() == most) {
                break;
            }
            some.push(offset..offset + len.min(BATCH));
            sum += len;
        }
        self.inner.fetch(&some);
        some.len()
    }

    /// Where the stored bytes end that should be fetched together with `block`:
    /// as far as these reads, and those that `later` lists in order, need block
    /// after block without a gap.
    fn fetch_until(
        &self,
        block: &Block,
        active: &[usize],
        later: &[usize],
        reads: &[(u64, &mut [u8])],
    ) -> u64 {
        let chapter = self.inner.chapter_at(block.offset);
        let chapter_end = {
            let c = &self.inner.footer.chapters[chapter];
            c.offset + c.len
        };
        let Ok(table) = self.inner.table(chapter) else { return block.end() };
        let end_of = |i: usize| reads[i].0 + reads[i].1.len() as u64;
        let last_of = |end: u64| table.find(end.min(chapter_end) - 1);
        let mut last = last_of(active.iter().map(|&i| end_of(i)).max().unwrap_or(block.offset + 1));
        for &i in later {
            let far = last.end() > block.pos + FETCH;
            if far || reads[i].0 > last.offset + last.len || reads[i].0 >= chapter_end {
                break;
            }
            let end = end_of(i);
            if end > last.offset + last.len {
                last = last_of(end);
            }
        }
        last.end()
    }

    /// Decodes a block once for all the reads in `active`, each of which needs some of it.
    fn read_block_for(
        &self,
        block: &Block,
        active: &[usize],
        until: u64,
        reads: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let part = |start: u64, len: usize| -> (Range<usize>, Range<usize>) {
            let from = start.max(block.offset);
            let to = (start + len as u64).min(block.offset + block.len);
            let in_read = (from - start) as usize..(to - start) as usize;
            (in_read, (from - block.offset) as usize..(to - block.offset) as usize)
        };
        if let &[only] = active {
            let (start, buf) = &mut reads[only];
            let (in_read, in_block) = part(*start, buf.len());
            if in_block.len() as u64 == block.len && self.inner.cache.get(block.number).is_none() {
                return self.inner.decode(block, until, &mut buf[in_read], scratch);
            }
        }
        let needed = |&i: &usize| part(reads[i].0, reads[i].1.len()).1;
        let sum: usize = active.iter().map(|i| needed(i).len()).sum();
        if has_point_reads(block) && (sum as u64) < block.len {
            for &i in active {
                let (start, buf) = &mut reads[i];
                let (in_read, in_block) = part(*start, buf.len());
                let buf = &mut buf[in_read];
                self.inner.decode_piece(block, in_block.start, until, buf, scratch)?;
            }
            return Ok(());
        }
        let end = active.iter().map(|i| needed(i).end).max().unwrap_or(0);
        self.inner.with_block(block, (end, true), until, scratch, |bytes| {
            for &i in active {
                let (start, buf) = &mut reads[i];
                let (in_read, in_block) = part(*start, buf.len());
                buf[in_read].copy_from_slice(&bytes[in_block]);
            }
        })
    }
}
