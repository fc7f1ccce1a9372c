//! Reads any piece of an archive, from any thread.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::archive::ahead::BATCH;
use crate::archive::decode::{decode_block, has_point_reads, is_piece, reach};
use crate::archive::format::{ChapterRef, Footer};
use crate::archive::marks::{Looked, Marks, Verified};
use crate::archive::open::OpenOptions;
use crate::archive::record::Record;
use crate::archive::shared::Shared;
use crate::archive::stream::Stream;
use crate::archive::window::Scratch;
use crate::blocks::{Block, Table};
use crate::cache::Cache;
use crate::envelope::{HEADER_LEN, Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, within};
use crate::records::{Entry, Index, Kind};
use crate::rlz::{Coding, Dictionary};
use crate::wire::Digest;

/// An archive that is open for reading; itself the bytes of all its content.
///
/// Cheap to clone, and shared by any number of threads: no lock is held while a
/// block is read or decoded. A read decodes the blocks it touches and nothing
/// else; each block's checksum is verified before its bytes are given out. A block that is
/// only needed in part is kept in a bounded cache; where a short piece of it costs less than
/// the block, from the second look on.
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
    looked: Looked,
    pub marks: Marks,
    pub index: Index,
    /// Of a recovered archive: the record of which only the beginning is left, and where in the
    /// content what is left of it ends.
    pub incomplete: Option<(u64, u64)>,
    /// Decoded blocks by their numbers, and stored ones that were verified by [`kept_at`].
    pub cache: Cache<Vec<u8>>,
    /// Boxed, so that taking one and giving it back moves a pointer.
    #[expect(clippy::vec_box, reason = "a scratch is hundreds of bytes")]
    scratch: Mutex<Vec<Box<Scratch>>>,
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
            looked: Looked::default(),
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

    pub(super) fn scratch(&self) -> Box<Scratch> {
        let mut free = self.inner.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = free.pop().unwrap_or_default();
        scratch.window.clear();
        scratch
    }

    pub(super) fn give_back(&self, scratch: Box<Scratch>) {
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

    /// True for a block that was verified and cannot have changed.
    pub fn is_verified(&self, block: &Block) -> bool {
        self.source.as_bytes().is_some() && self.verified.has(block.number)
    }

    /// Decodes the first bytes of a block, as many as `buf` has.
    pub fn decode(
        &self,
        block: &Block,
        until: u64,
        buf: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.decode_piece(block, 0, until, buf, scratch)
    }

    /// Decodes the bytes of a block from `start` on, as many as `buf` has.
    pub fn decode_piece(
        &self,
        block: &Block,
        start: usize,
        until: u64,
        buf: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { window, decode, spare } = scratch;
        // What lies in memory stays as it is: to read all of a block for a few bytes of it would be
        // most of the work. What is read from a file again may be damaged by then, unless we kept it.
        let has_pieces = has_point_reads(block);
        let stays = has_pieces && self.source.as_bytes().is_some();
        let kept = if has_pieces && !stays { self.cache.get(kept_at(block)) } else { None };
        let stored = match &kept {
            Some(bytes) => bytes.as_slice(),
            None => window.stored(&*self.source, block, until)?,
        };
        let is_verified = kept.is_some() || stays && self.verified.has(block.number);
        if is_verified && let Some(coding) = Coding::from_number(block.coded.number) {
            // On its way while the mark is: what is known then is asked for exactly.
            coding.ask(stored, start, block.len as usize);
        }
        let begin = match is_verified {
            true => self.marks.begin(block, start),
            false => start.into(),
        };
        decode_block(&self.shared, block, stored, begin, buf, decode, is_verified)?;
        if is_verified && begin.mark.is_none() && begin.kept.is_none() {
            // What is read a second time may well be read a third time.
            self.marks.note(block, start, stored, self.footer.len, &self.shared);
        } else if stays && !is_verified {
            self.verified.set(block.number, self.footer.blocks);
        } else if has_pieces
            && !is_verified
            && (buf.len() as u64) < block.len
            && self.cache.takes(block.stored_len)
        {
            // Its own room: buffers that are used again would grow to the longest of all.
            let bytes = Arc::new(stored.to_vec());
            *spare = self.cache.insert(kept_at(block), bytes, block.stored_len);
        }
        Ok(())
    }

    /// True for a short piece of a block that nobody has looked at lately: it is decoded without what it does not need. Another
    /// time the block is decoded whole, where that can be kept.
    pub fn is_lone(&self, block: &Block, start: usize, len: usize) -> bool {
        is_piece(block, start, len)
            && (!self.cache.takes(block.len)
                || self.cache.get(block.number).is_none() && self.looked.is_first(block.number))
    }

    /// The bytes of a block up to `end` at least: from the cache, or decoded and put there.
    /// `with` gets them. With `stop`, what is not needed is not decoded where
    /// that saves something; but a block that is looked at again is decoded whole.
    pub fn with_block<T>(
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
        let mut bytes = own(scratch.spare.take());
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
                    if has_point_reads(&block) || self.is_lone(&block, start, now.len()) {
                        self.decode_piece(&block, start, until, now, scratch)?;
                    } else {
                        // Who begins where a block does will want what follows, too.
                        let is_again = is_piece(&block, start, now.len());
                        let stop = !is_again && (offset != range.start || start > 0);
                        let end = start + now.len();
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

/// Where the stored bytes of a block are kept in the cache.
pub(super) fn kept_at(block: &Block) -> u64 {
    !block.number
}

/// A buffer that nobody else has: this one, if it can be.
fn own(spare: Option<Arc<Vec<u8>>>) -> Arc<Vec<u8>> {
    spare.filter(|bytes| Arc::strong_count(bytes) == 1).unwrap_or_default()
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
        self.read_batch(reads)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::archive::{Options, Writer};
    use crate::rlz::Coder;
    use crate::testing::Random;

    /// A short piece of a block with codes is decoded alone, the first time; then all of the block is, and kept.
    #[test]
    fn pieces_are_read_alone_and_their_blocks_at_the_second_look() {
        let mut random = Random(3);
        let words: Vec<Vec<u8>> = (0..500).map(|_| random.text(9)).collect();
        let mut content = Vec::new();
        while content.len() < 300_000 {
            content.extend_from_slice(&words[random.below(500) as usize]);
        }
        let dictionary = Arc::new(Dictionary::new(content[..9000].to_vec()).unwrap());
        let coder = Coder::with_level(Coding::Hybrid, 9, dictionary).unwrap();
        let coder = Arc::new(coder.learn(&content, 16 << 10).unwrap());
        let options = Options::default().coder(coder).block_len(16 << 10);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(&content).unwrap();
        let file = writer.finish().unwrap();
        let reader = Reader::open(Arc::new(file.clone())).unwrap();
        let kept = |place: usize| {
            let number = reader.inner.block_at(place as u64).unwrap().number;
            reader.inner.cache.get(number).map(|bytes| bytes.as_slice().len())
        };
        let (all, mut buf) = (Some(16 << 10), [0; 64]);
        for (place, after) in [(40_000, None), (33_000, all), (90_000, None), (90_000, all)] {
            reader.read_at(place as u64, &mut buf).unwrap();
            assert_eq!(buf, content[place..place + 64]);
            assert_eq!(kept(place), after, "{place}");
        }
        // Of many at once those that are alone in their block are pieces.
        let places = [120_000, 150_000, 150_100];
        let mut room = [[0; 64]; 3];
        let mut reads: Vec<_> = places
            .iter()
            .zip(&mut room)
            .map(|(&place, room)| (place as u64, &mut room[..]))
            .collect();
        assert!(reader.read_many_at(&mut reads).iter().all(Result::is_ok));
        for (place, room) in places.into_iter().zip(room) {
            assert_eq!(room, content[place..place + 64]);
        }
        assert_eq!(kept(120_000), None);
        assert!(kept(150_000).unwrap() > 0);
        for cache in [0, 100_000, 64 << 20] {
            let reader = OpenOptions::default().cache(cache).open(Arc::new(file.clone())).unwrap();
            for _ in 0..500 {
                let len = [1, 70, 3000, 20_000][random.below(4) as usize];
                let place = random.below((content.len() - len) as u64) as usize;
                let mut buf = vec![0; len];
                reader.read_at(place as u64, &mut buf).unwrap();
                assert!(buf == content[place..place + len], "{len} from {place}");
            }
        }
    }
}
