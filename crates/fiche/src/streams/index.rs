//! Writes indexes and reads them.

use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::format::{Carrier, Footer, Format, Gathered, PAGE, Page, PageRef, Unit, load_page};
use crate::envelope::{
    Container, HEADER_LEN, Kind, Section, SectionRef, header, read_header, read_trailer, trailer,
};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, within};
use crate::wire::{Digest, Put, crc32c_of};

/// What an index says of a stream as a whole.
pub(super) struct About {
    pub format: Format,
    pub is_inside: bool,
    pub stored_len: u64,
    pub digest: Digest,
}

/// A unit to be written: it begins where the one before ends.
#[derive(Default)]
pub(super) struct NewUnit {
    pub len: u64,
    /// Bit of the stream behind its last one.
    pub end_bit: u64,
    pub stored: Option<u32>,
    pub content: Option<u32>,
    pub lines: Option<u64>,
}

/// Writes an index, front to back.
pub(super) struct IndexWriter<W> {
    out: W,
    pos: u64,
    gathered: Gathered,
    /// Content and units before those gathered, and line feeds in all.
    offset: u64,
    first: u64,
    has_lines: bool,
    pages: Vec<PageRef>,
}

impl<W: Write> IndexWriter<W> {
    /// Of a stream whose first unit begins at this bit.
    pub fn new(mut out: W, first_bit: u64) -> Result<IndexWriter<W>> {
        out.write_all(&header(Container::Index))?;
        let gathered = Gathered { first_bit, ..Gathered::default() };
        Ok(IndexWriter {
            out,
            pos: HEADER_LEN,
            gathered,
            offset: 0,
            first: 0,
            has_lines: true,
            pages: Vec::new(),
        })
    }

    /// Adds a unit with what its decoding begins with, if it needs that.
    pub fn put(&mut self, unit: &NewUnit, start: Option<&[u8]>) -> Result<()> {
        // What files say of themselves may be anything.
        let page = &self.gathered;
        let before = page.first_bit + page.bits.last().unwrap_or(&0);
        let all = (self.offset + page.offsets.last().unwrap_or(&0)).checked_add(unit.len);
        let is_sound =
            unit.len > 0 && unit.end_bit > before && all.is_some_and(|all| all < 1 << 62);
        if !is_sound {
            return Err(Error::Corrupt { what: "unit", at: Place::Pos(before / 8) });
        }
        let first_start = self.pos - self.gathered.starts.last().copied().unwrap_or(0);
        if let Some(start) = start {
            let checksum = crc32c_of(&[&self.pos.to_le_bytes(), start]);
            let mut bytes = Vec::with_capacity(start.len() + 4);
            bytes.put(start);
            bytes.put_u32(checksum);
            self.write(&bytes)?;
        }
        let page = &mut self.gathered;
        page.first_start = first_start;
        page.starts.push(self.pos - first_start);
        page.offsets.push(page.offsets.last().unwrap_or(&0) + unit.len);
        page.bits.push(unit.end_bit - page.first_bit);
        page.stored.extend(unit.stored);
        page.content.extend(unit.content);
        self.has_lines &= unit.lines.is_some();
        page.lines.extend(unit.lines.map(|lines| page.lines.last().unwrap_or(&0) + lines));
        if page.offsets.len() == PAGE { self.end_page() } else { Ok(()) }
    }

    /// Units so far.
    pub fn units(&self) -> u64 {
        self.first + self.gathered.offsets.len() as u64
    }

    fn end_page(&mut self) -> Result<()> {
        let Some(&len) = self.gathered.offsets.last() else { return Ok(()) };
        let page = std::mem::take(&mut self.gathered);
        let mut section = Vec::new();
        let before = (self.offset, self.first);
        Section::put(&mut section, self.pos, Kind::UnitPage, before, &page.payload(), None);
        let at = SectionRef { pos: self.pos, len: section.len() as u64 };
        self.write(&section)?;
        let units = page.offsets.len() as u64;
        let lines = page.lines.last().copied().filter(|_| page.lines.len() as u64 == units);
        let first_line = self.pages.last().map_or(0, |page| page.first_line + page.lines);
        let (offset, first, lines) = (self.offset, self.first, lines.unwrap_or(0));
        self.pages.push(PageRef { offset, len, first, units, first_line, lines, at });
        self.offset += len;
        self.first += units;
        self.gathered.first_bit = page.first_bit + page.bits.last().unwrap_or(&0);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.pos += bytes.len() as u64;
        Ok(())
    }

    /// Ends the index; returns its length.
    pub fn finish(mut self, about: &About) -> Result<(W, u64)> {
        self.end_page()?;
        let footer = Footer {
            format: about.format,
            is_inside: about.is_inside,
            has_lines: self.has_lines,
            stored_len: about.stored_len,
            digest: about.digest,
            len: self.offset,
            pages: std::mem::take(&mut self.pages),
        };
        let mut section = Vec::new();
        Section::put(&mut section, self.pos, Kind::Footer, (0, 0), &footer.payload(), None);
        let at = SectionRef { pos: self.pos, len: section.len() as u64 };
        self.write(&section)?;
        self.write(&trailer(at))?;
        self.out.flush()?;
        Ok((self.out, self.pos))
    }
}

/// An index that is open. Takes 20 to 30 bytes of memory for each unit of the pages that were touched, and the
/// index's own bytes where these are in memory.
pub(crate) struct Index {
    source: Arc<dyn ReadAt>,
    footer: Footer,
    pages: Vec<OnceLock<Box<Page>>>,
}

impl Index {
    /// Opens the index in `source`: reads its header, trailer and footer.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Index> {
        read_header(&source, Container::Index)?.valid?;
        let footer = read_trailer(&source, source.len())?;
        let section = Section::load(&source, footer, Kind::Footer)?;
        let footer = Footer::parse(&section)?;
        let pages = footer.pages.iter().map(|_| OnceLock::new()).collect();
        Ok(Index { source, footer, pages })
    }

    /// Opens the index at the end of a gzip or lz4 file, if there is one: two reads.
    pub fn open_inside(file: &Arc<dyn ReadAt>) -> Result<Option<Index>> {
        let longest = Carrier::Members.pointer_len();
        let Some(pos) = file.len().checked_sub(longest) else { return Ok(None) };
        let mut last = vec![0; longest as usize];
        file.read_at(pos, &mut last)?;
        let found = |carrier: Carrier| carrier.find(&last).map(|len| (carrier, len));
        let Some((carrier, len)) = found(Carrier::Members).or_else(|| found(Carrier::Frames))
        else {
            return Ok(None);
        };
        let Some(pos) = file.len().checked_sub(carrier.len(len)) else { return Ok(None) };
        let index = Index::open(Arc::new(Inside { file: file.clone(), carrier, pos, len }))?;
        let footer = index.footer();
        // What stands before the file of an index, if two are joined, has no place in it.
        let is_whole = footer.is_inside && footer.stored_len == pos;
        Ok((is_whole && Carrier::of(footer.format) == Some(carrier)).then_some(index))
    }

    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Bytes of the index.
    pub fn stored_len(&self) -> u64 {
        self.source.len()
    }

    /// Bytes of content.
    pub fn len(&self) -> u64 {
        self.footer.len
    }

    fn page(&self, i: usize) -> Result<&Page> {
        let (Some(cell), Some(page)) = (self.pages.get(i), self.footer.pages.get(i)) else {
            return Err(Error::Corrupt { what: "unit page", at: Place::Pos(0) });
        };
        if let Some(page) = cell.get() {
            return Ok(page);
        }
        let loaded = Box::new(load_page(&self.source, page, self.footer.is_inside)?);
        Ok(cell.get_or_init(|| loaded))
    }

    /// The unit that holds the byte at `offset`, which is below the length.
    pub fn find(&self, offset: u64) -> Result<Unit> {
        let page = self.footer.pages.partition_point(|page| page.offset + page.len <= offset);
        Ok(self.page(page)?.find(offset))
    }

    /// The unit of this number, which is below their count.
    pub fn unit(&self, number: u64) -> Result<Unit> {
        let i = self.footer.pages.partition_point(|page| page.first + page.units <= number);
        let page = self.page(i)?;
        let first = self.footer.pages.get(i).map_or(0, |page| page.first);
        Ok(page.unit((number - first) as usize))
    }

    /// Line feeds in the unit of this number, if they were counted.
    pub fn lines_in(&self, number: u64) -> Result<Option<u64>> {
        let i = self.footer.pages.partition_point(|page| page.first + page.units <= number);
        let page = self.page(i)?;
        let unit = (number - self.footer.pages.get(i).map_or(0, |page| page.first)) as usize;
        let both = (page.lines_before(unit), page.lines_before(unit + 1));
        Ok(both.0.zip(both.1).map(|(before, after)| after - before))
    }

    /// The unit in which line feed `number` of the stream stands, and how many there are before the unit;
    /// `None` where lines are not counted, or there are fewer.
    pub fn line(&self, number: u64) -> Result<Option<(Unit, u64)>> {
        if self.footer.lines().is_none_or(|lines| number >= lines) {
            return Ok(None);
        }
        let pages = &self.footer.pages;
        let i = pages.partition_point(|page| page.first_line + page.lines <= number);
        let page = self.page(i)?;
        let first = pages.get(i).map_or(0, |page| page.first_line);
        let before = |unit: usize| first + page.lines_before(unit).unwrap_or(0);
        // The last unit with no more line feeds before it.
        let (mut from, mut to) = (0, page.units);
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            if before(middle) <= number { from = middle } else { to = middle }
        }
        Ok(page.has_lines().then(|| (page.unit(from), before(from))))
    }

    /// The bytes of a start, verified.
    pub fn start(&self, unit: &Unit) -> Result<Vec<u8>> {
        let at = unit.start.clone();
        let corrupt = || Error::Corrupt { what: "start of a unit", at: Place::Pos(at.start) };
        let len = at.end - at.start;
        /// Of a start, as far as any can be.
        const MOST: u64 = 64 << 10;
        if len > MOST || at.end > self.source.len() {
            return Err(corrupt());
        }
        let mut bytes = vec![0; len as usize];
        self.source.read_at(at.start, &mut bytes)?;
        let (start, checksum) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
        let mut expected = Vec::new();
        expected.put_u32(crc32c_of(&[&at.start.to_le_bytes(), start]));
        if expected != checksum && !cfg!(fuzzing) {
            return Err(corrupt());
        }
        bytes.truncate(bytes.len() - 4);
        Ok(bytes)
    }
}

/// The bytes of an index that stands in pieces in a file.
struct Inside {
    file: Arc<dyn ReadAt>,
    carrier: Carrier,
    /// Of the first that holds a piece.
    pos: u64,
    len: u64,
}

impl ReadAt for Inside {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Range { start, end } = within(offset, buf.len(), self.len)?;
        let mut at = start;
        let mut rest = buf;
        while at < end {
            let piece = self.carrier.piece();
            let now = (piece - at % piece).min(end - at);
            let (piece, behind) = rest.split_at_mut(now as usize);
            self.file.read_at(self.pos + self.carrier.place(at), piece)?;
            (rest, at) = (behind, at + now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More units than 32 bits count, in a stream of PiBs: only the last page is there, and only it is read.
    #[test]
    fn a_unit_is_found_among_more_than_32_bits_count() {
        const PAGES: u64 = (1 << 20) + 3;
        const CONTENT: u64 = 1 << 20;
        const BITS: u64 = 3 << 20;
        let (units, len) = (PAGE as u64, PAGE as u64 * CONTENT);
        let before = PAGES - 1;
        let page = Gathered {
            first_bit: before * units * BITS,
            offsets: (1..=units).map(|i| i * CONTENT).collect(),
            bits: (1..=units).map(|i| i * BITS).collect(),
            lines: (1..=units).map(|i| 10 * i).collect(),
            ..Gathered::default()
        };
        let mut file = header(Container::Index);
        let mut section = Vec::new();
        let numbers = (before * len, before * units);
        Section::put(&mut section, HEADER_LEN, Kind::UnitPage, numbers, &page.payload(), None);
        let at = SectionRef { pos: HEADER_LEN, len: section.len() as u64 };
        file.extend(section);
        let page = |i: u64| PageRef {
            offset: i * len,
            len,
            first: i * units,
            units,
            first_line: 10 * i * units,
            lines: 10 * units,
            at,
        };
        let footer = Footer {
            format: Format::Gzip,
            is_inside: false,
            has_lines: true,
            stored_len: PAGES * units * BITS / 8,
            digest: Digest([0; 32]),
            len: PAGES * len,
            pages: (0..PAGES).map(page).collect(),
        };
        let (mut section, pos) = (Vec::new(), file.len() as u64);
        Section::put(&mut section, pos, Kind::Footer, (0, 0), &footer.payload(), None);
        file.extend(&section);
        file.extend(trailer(SectionRef { pos, len: section.len() as u64 }));
        let index = Index::open(Arc::new(file)).unwrap();
        assert_eq!(index.len(), PAGES * len);
        assert_eq!(index.footer().units(), PAGES * units);
        for i in [0, 1, 777, units - 1] {
            let number = before * units + i;
            assert!(number > u64::from(u32::MAX));
            let unit = index.unit(number).unwrap();
            assert_eq!(unit.number, number);
            assert_eq!(unit.offset..unit.end(), number * CONTENT..(number + 1) * CONTENT);
            assert_eq!(unit.bits, number * BITS..(number + 1) * BITS);
            assert_eq!(index.find(unit.offset + CONTENT - 1).unwrap(), unit);
            assert_eq!(index.lines_in(number).unwrap(), Some(10));
            assert_eq!(index.line(10 * number + 3).unwrap(), Some((unit, 10 * number)));
        }
        assert_eq!(index.line(10 * PAGES * units).unwrap(), None);
        // A page that is another one than the footer says is damage.
        assert!(matches!(index.unit(5), Err(Error::Corrupt { what: "unit page", .. })));
    }
}
