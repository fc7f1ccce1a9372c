//! Reads any piece of a standard file, by an index.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::bgzf;
use super::decoder::Decoder;
use super::format::{Format, Unit};
use super::index::Index;
use super::lz4;
use super::scan::sampled;
#[cfg(feature = "lzma")]
use super::xz;
use super::zstd;
use crate::envelope::ends_with_trailer;
use crate::error::{Error, Result};
use crate::io::{ReadAt, within};

/// Decoders that are kept for reads that go on where one stands; of what is no gzip, whose windows may be large, fewer.
const KEPT: usize = 8;
const KEPT_FRAMES: usize = 2;
/// Frames that are passed over in search of one that says what a file is.
const MOST_SKIPPED: usize = 64;

/// A standard compressed file that is open for reading; itself the bytes of its content.
///
/// Cheap to clone, and shared by any number of threads. A read decodes from the start of the unit it is in, or from where
/// an earlier read ended if that is nearer. What is stored of a unit is held against its checksum before, if the index has one; without, a unit
/// of BGZF or lz4, or of zstd or xz with up to 4 MiB of content, is decoded to its end and held against the checksum there, if there is one,
/// and of a longer one that is done once all of it was read. Of gzip it takes some 200 KB and the
/// stored bytes of a unit for each of up to eight decoders; of others what their windows take, up to 128 MiB of zstd and 256 MiB of xz, for two. And
/// what the index takes.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
}

struct Inner {
    source: Arc<dyn ReadAt>,
    index: Index,
    /// The one used last is the last.
    decoders: Mutex<Vec<Decoder>>,
}

/// What standard file this is, by its first bytes; `None` for any other. Of a file that is far away the end is looked at before
/// that: it tells whether it is one of ours, and is fetched anyhow.
///
/// # Errors
/// Those of reading.
pub fn recognise(source: &dyn ReadAt) -> Result<Option<Format>> {
    if source.as_distant().is_some() && ends_with_trailer(source)? {
        return Ok(None);
    }
    let (mut pos, mut first) = (0, Vec::new());
    // Frames that are passed over stand before those of zstd and of lz4.
    for _ in 0..MOST_SKIPPED {
        first.resize(source.len().saturating_sub(pos).min(8) as usize, 0);
        source.read_at(pos, &mut first)?;
        match Format::skipped(&first) {
            // One that was cut goes on behind the end.
            Some(len) => pos = pos.saturating_add(len).min(source.len()),
            None => break,
        }
    }
    let found = Format::of(&first);
    // What is gzip or xz begins so.
    let is_framed = matches!(found, Some(Format::Zstd | Format::Lz4));
    Ok(found.filter(|_| pos == 0 || is_framed).or((pos > 0).then_some(Format::Zstd)))
}

/// What is known of a unit as it is stored.
pub(super) struct StoredUnit {
    pub len: u64,
    pub stored: u32,
    pub content: Option<u32>,
    pub lines: Option<u64>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} bytes of {})", self.len(), self.format().name())
    }
}

impl Reader {
    /// Opens a file that can be read anywhere by itself: one with an index inside, as [`Writer`](super::Writer) leaves it there,
    /// of BGZF, of which each member's header is read, unless it is far away; of zstd's seekable format, or of any frames unless it is far away;
    /// of xz; of lz4, all of which is decoded for that. `None` for any other.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the index or the file is damaged, [`Error::Unsupported`] when a newer version wrote it,
    /// [`Error::Invalid`] for an lz4 file whose blocks depend on one another, [`Error::Limit`], [`Error::Io`].
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Option<Reader>> {
        let inside = Reader::inside(source.clone())?;
        if inside.is_some() {
            return Ok(inside);
        }
        let index = match recognise(&source)? {
            Some(Format::Gzip) if source.as_distant().is_none() => bgzf::index(&source)?,
            Some(Format::Zstd) => zstd::index(&source)?,
            #[cfg(feature = "lzma")]
            Some(Format::Xz) => xz::index(&source)?,
            #[cfg(not(feature = "lzma"))]
            Some(Format::Xz) => return Err(Format::Xz.not_compiled_in()),
            Some(Format::Lz4) => lz4::index(&source)?,
            _ => None,
        };
        match index {
            Some(index) => Ok(Some(Reader::new(source, Index::open(Arc::new(index))?))),
            None => Ok(None),
        }
    }

    /// Opens a file that has an index inside; `None` where there is none. Reads some bytes at its end.
    ///
    /// # Errors
    /// Those of [`open`](Reader::open).
    pub fn inside(source: Arc<dyn ReadAt>) -> Result<Option<Reader>> {
        let index = Index::open_inside(&source)?;
        Ok(index.map(|index| Reader::new(source, index)))
    }

    /// What the file says of itself, without the index that it may have been opened by, and whatever a table says.
    pub(super) fn plain(&self) -> Result<Option<Index>> {
        let index = match self.format() {
            Format::Zstd => Some(zstd::walk(&self.inner.source)?),
            #[cfg(feature = "lzma")]
            Format::Xz => xz::index(&self.inner.source)?,
            Format::Lz4 => lz4::index(&self.inner.source)?,
            _ => None,
        };
        index.map(|index| Index::open(Arc::new(index))).transpose()
    }

    /// Opens a file by an index of its own, as [`index`](super::index()) makes it.
    ///
    /// # Errors
    /// [`Error::Changed`] when the index is that of another file, or the file has changed since, as far as its length and some of its
    /// bytes tell: of a file that is far away the length alone. All that is read of it is held against checksums that the index has. Those of
    /// [`open`](Reader::open).
    pub fn with_index(source: Arc<dyn ReadAt>, index: Arc<dyn ReadAt>) -> Result<Reader> {
        let index = Index::open(index)?;
        let footer = index.footer();
        let is_same = !footer.is_inside
            && footer.stored_len == source.len()
            && (source.as_distant().is_some() || footer.digest == sampled(&source)?);
        if !is_same {
            return Err(Error::Changed { what: "the compressed file" });
        }
        Ok(Reader::new(source, index))
    }

    /// The same without looking whether the index is that of this file: for fuzzing.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn with_any_index(source: Arc<dyn ReadAt>, index: Arc<dyn ReadAt>) -> Result<Reader> {
        Ok(Reader::new(source, Index::open(index)?))
    }

    fn new(source: Arc<dyn ReadAt>, index: Index) -> Reader {
        Reader { inner: Arc::new(Inner { source, index, decoders: Mutex::new(Vec::new()) }) }
    }

    /// What the file is.
    #[must_use]
    pub fn format(&self) -> Format {
        self.inner.index.footer().format
    }

    /// Pieces of the content that are decoded by themselves.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.inner.index.footer().units()
    }

    /// Where each unit ends in the content, in order.
    ///
    /// # Errors
    /// Of each those of reading the index.
    pub fn unit_ends(&self) -> impl Iterator<Item = Result<u64>> + '_ {
        (0..self.units()).map(|number| self.inner.index.unit(number).map(|unit| unit.end()))
    }

    /// Bytes of the index.
    #[must_use]
    pub fn index_len(&self) -> u64 {
        self.inner.index.stored_len()
    }

    /// Bytes of the file.
    #[must_use]
    pub fn stored_len(&self) -> u64 {
        self.inner.source.len()
    }

    /// Line feeds in the content, if they were counted.
    #[must_use]
    pub fn line_feeds(&self) -> Option<u64> {
        self.inner.index.footer().lines()
    }

    /// Where line `number` (from 0) begins in the content, and where the next one does or the content ends; `None` where there are
    /// fewer. At most two units are decoded.
    ///
    /// # Errors
    /// [`Error::Invalid`] where lines were not counted; those of reading.
    pub fn line(&self, number: u64) -> Result<Option<Range<u64>>> {
        let Some(feeds) = self.line_feeds() else {
            return Err(Error::invalid(
                "the lines of this file are not counted: `fiche index` counts them",
            ));
        };
        let start = match number.checked_sub(1) {
            None => 0,
            Some(before) if before < feeds => self.behind_line_feed(before)?,
            Some(_) => return Ok(None),
        };
        let end = if number < feeds { self.behind_line_feed(number)? } else { self.len() };
        Ok((start < end).then_some(start..end))
    }

    /// The offset behind this line feed, which there is.
    fn behind_line_feed(&self, number: u64) -> Result<u64> {
        let miscounted = || Error::Corrupt { what: "unit page", at: crate::error::Place::Pos(0) };
        let (unit, before) = self.inner.index.line(number)?.ok_or_else(miscounted)?;
        let mut left = number.checked_sub(before).ok_or_else(miscounted)?;
        let mut piece = vec![0; 64 << 10];
        let mut offset = unit.offset;
        while offset < unit.end() {
            let len = piece.len().min((unit.end() - offset) as usize);
            self.read_at(offset, &mut piece[..len])?;
            for at in memchr::memchr_iter(b'\n', &piece[..len]) {
                if left == 0 {
                    return Ok(offset + at as u64 + 1);
                }
                left -= 1;
            }
            offset += len as u64;
        }
        Err(miscounted())
    }

    /// Bytes of the file that reads of these ranges of the content need, in order and without what overlaps.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when one passes the end; those of reading the index.
    pub fn plan(&self, ranges: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let mut all = Vec::new();
        for range in ranges {
            if range.start > range.end || range.end > self.len() {
                return Err(Error::OutOfBounds { range: range.clone(), len: self.len() });
            }
            let mut offset = range.start;
            while offset < range.end {
                let unit = self.inner.index.find(offset)?;
                all.push(unit.bytes());
                offset = unit.end();
            }
        }
        all.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ok(merged)
    }

    /// The unit of this number, which is below their count.
    pub(super) fn unit(&self, number: u64) -> Result<Unit> {
        self.inner.index.unit(number)
    }

    /// What decoding it begins with, if anything.
    pub(super) fn start(&self, unit: &Unit) -> Result<Option<Vec<u8>>> {
        (!unit.start.is_empty()).then(|| self.inner.index.start(unit)).transpose()
    }

    /// A unit that is whole bytes and copies from nothing before it, as it is stored: verified.
    pub(super) fn stored_unit(&self, number: u64, bytes: &mut Vec<u8>) -> Result<StoredUnit> {
        let unit = self.inner.index.unit(number)?;
        let lines = self.inner.index.lines_in(number)?;
        let is_whole = unit.bits.start % 8 == 0 && unit.bits.end % 8 == 0 && unit.start.is_empty();
        let content = unit.content.filter(|_| is_whole);
        let stored = super::decoder::load(&self.inner.source, &unit, self.format(), bytes)?;
        Ok(StoredUnit { len: unit.len, stored, content, lines })
    }

    fn kept(&self) -> usize {
        if self.format().is_deflate() { KEPT } else { KEPT_FRAMES }
    }

    /// A decoder that stands before the byte at `offset`, near if one does.
    fn decoder(&self, offset: u64) -> Result<Decoder> {
        let found = {
            let mut all = self.inner.decoders.lock().unwrap_or_else(PoisonError::into_inner);
            let way = |decoder: &Decoder| decoder.way_to(offset).unwrap_or(u64::MAX);
            let nearest = (0..all.len()).min_by_key(|&i| way(&all[i]));
            match nearest {
                Some(i) if all[i].way_to(offset).is_some() => return Ok(all.remove(i)),
                // The one that was not used for longest.
                Some(_) if all.len() >= self.kept() => all.remove(0),
                _ => Decoder::default(),
            }
        };
        let mut decoder = found;
        let unit = self.inner.index.find(offset)?;
        decoder.begin(&self.inner.source, &self.inner.index, unit)?;
        Ok(decoder)
    }
}

impl ReadAt for Reader {
    fn len(&self) -> u64 {
        self.inner.index.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = within(offset, buf.len(), self.len())?;
        let (mut offset, mut buf) = (range.start, buf);
        while !buf.is_empty() {
            let mut decoder = self.decoder(offset)?;
            let now = decoder.left(offset).min(buf.len() as u64) as usize;
            let (here, rest) = buf.split_at_mut(now);
            let result = decoder.read(&self.inner.source, offset, here);
            {
                let mut all = self.inner.decoders.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() >= self.kept() {
                    all.remove(0);
                }
                all.push(decoder);
            }
            result?;
            (offset, buf) = (offset + now as u64, rest);
        }
        Ok(())
    }

    /// In the order of the content, so that one decoder serves those that are near one another.
    fn read_many_at(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let mut order: Vec<usize> = (0..reads.len()).collect();
        order.sort_unstable_by_key(|&i| reads[i].0);
        let mut results: Vec<Result<()>> = reads.iter().map(|_| Ok(())).collect();
        for i in order {
            let (offset, buf) = &mut reads[i];
            results[i] = self.read_at(*offset, buf);
        }
        results
    }
}
