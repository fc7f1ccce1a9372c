//! The bytes of an index: where a standard file can be decoded from.
//!
//! # Index
//!
//! A file of kind 3: the header, then for each page of units the starts of these units and the page's section, then
//! the footer's section (kind 8; offset and number 0) and the trailer, without gaps. It is written once and never appended to: its
//! guard is 0. It tells of one file that another program may have written, its *stream*, which has 2^60 bytes at most,
//! and lies beside it, by custom under its name with `.fidx` behind, or in pieces at its end.
//!
//! A *unit* is a piece of the stream's content and the bits of the stream that it is decoded from, with no other content at
//! hand. Units follow one another without a gap, in the content and in the bits; each has a byte of content at least, and all of
//! them all the content. A unit begins before a block or between two symbols of one, never within a stored block, a symbol or a
//! match. What stands between two of them (a checksum, a header) counts for the first; the first begins behind a
//! header, and the last ends at the earliest where its content does.
//!
//! What an index says of a stream is not proved by it: who wrote the index could have made it tell of other content than the
//! stream's own checksums do. Only to decode the whole stream, as `fiche verify` does, is proof.
//!
//! # Unit page
//!
//! A section of kind 11, not compressed. Its offset is the content before it, its number the units before it.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | count | units, 1 to 4,096 |
//! | 1 | flags | bit 0: starts; bit 1: checksums of stored bytes; bit 2: checksums of content; bit 3: lines |
//! | varint | first bit | of the first unit in the stream; bit 0 is the lowest bit of the first byte |
//! | | offsets | an Elias-Fano sequence: where each unit ends in the content, from the page's offset on |
//! | | bits | the same for the stream, from the first bit on |
//! | varint | position | with starts: where in the index the first of them is |
//! | | starts | with starts: of unit `i`, where its start ends, from there on, plus `i + 1` |
//! | 4 each | stored checksums | if so: CRC-32C of every byte that a bit of the unit is in |
//! | 4 each | content checksums | if so: CRC-32, that of gzip, of the unit's content |
//! | | lines | if so: of unit `i`, how many line feeds are in the page up to its end, plus `i + 1` |
//!
//! Without starts no unit of the page has one. No sum of a position or an offset and what is added to it reaches 2^63. An index at
//! the end of its stream's file has checksums of stored bytes.
//!
//! # Start
//!
//! What decoding a unit of a gzip file takes beside its bits. Of no bytes where it begins before a block, and no match in it copies
//! from before it.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | header bits | 0 where the unit begins before a block; else bits of the header of the block that it begins in: from the bit that says whether it is the last up to its first symbol, all of them and no more |
//! | ceil(bits / 8) | header | these bits, the first the lowest; what is left of a byte is zero |
//! | varint | window | bytes of content before the unit that it may copy from, up to 32,768, all of them in the same member |
//! | | packed window | up to the checksum: as many bytes as the window has: these; else one Zstandard frame as under "Codecs". A byte that nothing is copied from may be zero |
//! | 4 | checksum | CRC-32C of the start's position in the index as 8 bytes and then of all before this field |
//!
//! Where a stored block or the end of a member fills up a byte, it is a byte of the stream. A member that begins within a unit has
//! no window.
//!
//! A unit of a zstd file is a frame with content and the frames without any behind it, of the first also those before it, whole bytes; it has no start. A unit of an xz file is a
//! block and what stands behind it up to the next, whole bytes. Its start:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 12 | header | that of the block's stream |
//! | varint | length | of the block, padded |
//! | 4 | checksum | as above |
//!
//! A unit of an lz4 file is a block and what stands behind it up to the next with content, whole bytes. Its start are the two bytes of the frame's
//! header behind the magic number (flags, sizes), and a checksum as above.
//!
//! # Footer of an index
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | format | of the stream: 1 gzip, 2 zstd, 3 xz, 4 lz4, 5 zlib, 6 deflate; units of the last two are those of gzip without members, each with a checksum of what is stored |
//! | 1 | flags | bit 0: the index is at the end of its stream's file; bit 1: every page has lines |
//! | varint | stored length | of the stream |
//! | 32 | digest | of the stream's sampled bytes; zeros in an index at the end of the file |
//! | varint | length | of the content |
//! | varint | pages | how many |
//! | for each | page | varint content, varint units, varint line feeds in it (0 without lines), varint position and varint length of its section |
//!
//! The sampled bytes are the stream's length as 8 bytes; its bytes 0 to 4,095; from each byte 65,536, 131,072 and so on, twice as far
//! each time, as many; then its last 4,096, whether or not they were taken before. Where there are fewer, all that there are.
//! Their digest is BLAKE3.
//!
//! # Index at the end of a gzip file
//!
//! The stream is one member at the beginning of the file, whose units begin with a block each and copy from nothing before. Behind it, where its
//! stored length ends, stand members without content: header of ten bytes (flags 4, and what is not known as zeros, the system as
//! 255), the length of the extra field, and one subfield `F`, `I`; then `03 00` and eight zero
//! bytes: 26 bytes beside what the subfield holds. The subfields of all but the last hold the bytes of the index in order, 65,510 in
//! each but the last of these; positions in an index are positions in these bytes. The last member's subfield holds the index's
//! length in 8 bytes and the CRC-32C of these 8 bytes, so that the member is the last 38 bytes of the file.
//!
//! # Index at the end of an lz4 file
//!
//! The same, with frames that are passed over in place of members: the magic number 0x184D2A5F, how many bytes the frame holds in 4, and these.
//! The stream is one frame whose blocks do not depend on one another; all frames but the last hold the bytes of the index, 2^31 in each but the last of these, and the last
//! what the last member does, so that it is the last 20 bytes of the file.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::ops::Range;

use crate::codec::deflate::MAGIC;
use crate::elias_fano::EliasFano;
use crate::envelope::{Kind, Section, SectionRef};
use crate::error::{Error, Result};
use crate::wire::{Digest, Put, Take};

/// Units whose table is read at once.
pub(super) const PAGE: usize = 4096;
/// No file is longer, so that positions in bits are numbers, too.
pub(super) const MAX_STORED: u64 = 1 << 60;

const STARTS: u8 = 1;
const STORED: u8 = 2;
const CONTENT: u8 = 4;
const LINES: u8 = 8;

const INSIDE: u8 = 1;
const ALL_LINES: u8 = 2;

/// What a file is, of those that other programs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Format {
    /// Members of deflate (RFC 1952), one or many: gzip, pigz, bgzip.
    Gzip = 1,
    /// Frames of Zstandard (RFC 8878), with a table of them at the end or without.
    Zstd = 2,
    /// Streams of xz, of one block or many.
    Xz = 3,
    /// Frames of lz4 whose blocks do not depend on one another.
    Lz4 = 4,
    /// A deflate stream between a header of two bytes and a checksum (RFC 1950). Nothing at its beginning tells it from
    /// other bytes: it is known by an index only.
    Zlib = 5,
    /// A deflate stream and nothing else (RFC 1951), known by an index only.
    Deflate = 6,
}

impl Format {
    fn from_number(number: u8) -> Option<Format> {
        use Format::{Deflate, Gzip, Lz4, Xz, Zlib, Zstd};
        [Gzip, Zstd, Xz, Lz4, Zlib, Deflate].into_iter().find(|format| *format as u8 == number)
    }

    /// Deflate, whatever is around it.
    pub(super) fn is_deflate(self) -> bool {
        matches!(self, Format::Gzip | Format::Zlib | Format::Deflate)
    }

    /// The name that people know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Gzip => "gzip",
            Format::Zstd => "zstd",
            Format::Xz => "xz",
            Format::Lz4 => "lz4",
            Format::Zlib => "zlib",
            Format::Deflate => "deflate",
        }
    }

    /// The file that begins so.
    pub(super) fn of(first: &[u8]) -> Option<Format> {
        const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
        const LZ4: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
        const XZ: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
        match first {
            _ if first.starts_with(&MAGIC) => Some(Format::Gzip),
            _ if first.starts_with(&ZSTD) => Some(Format::Zstd),
            _ if first.starts_with(&XZ) => Some(Format::Xz),
            _ if first.starts_with(&LZ4) => Some(Format::Lz4),
            _ => None,
        }
    }

    /// Bytes of the frame that these are the first eight of, if it is one of those that are passed over.
    pub(super) fn skipped(first: &[u8]) -> Option<u64> {
        let mut take = Take::new(first, "frame", 0);
        let is_skipped = take.u32().ok()? & !15 == 0x184D_2A50;
        let len = 8 + u64::from(take.u32().ok()?);
        is_skipped.then_some(len)
    }

    /// A unit, as errors call it.
    pub(super) fn unit_name(self) -> &'static str {
        match self {
            Format::Gzip => "unit of a gzip file",
            Format::Zstd => "zstd frame",
            Format::Xz => "xz block",
            Format::Lz4 => "lz4 block",
            Format::Zlib => "unit of a zlib stream",
            Format::Deflate => "unit of a deflate stream",
        }
    }

    pub(super) fn not_compiled_in(self) -> Error {
        let what = "a stream format that this build leaves out,";
        Error::Unsupported { what, found: self as u64 }
    }
}

/// A unit, as a reader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub number: u64,
    pub offset: u64,
    pub len: u64,
    /// Bits of the stream.
    pub bits: Range<u64>,
    /// Checksums of the stored bytes and of the content.
    pub stored: Option<u32>,
    pub content: Option<u32>,
    /// Where its start is in the index; empty where it needs none.
    pub start: Range<u64>,
}

impl Unit {
    /// Bytes of the stream that its bits are in.
    pub fn bytes(&self) -> Range<u64> {
        self.bits.start / 8..self.bits.end.div_ceil(8)
    }

    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// Units as they are gathered, up to a page of them.
#[derive(Default)]
pub(super) struct Gathered {
    pub first_bit: u64,
    /// Ends, from the first on.
    pub offsets: Vec<u64>,
    pub bits: Vec<u64>,
    /// Lengths of the starts so far.
    pub first_start: u64,
    pub starts: Vec<u64>,
    pub stored: Vec<u32>,
    pub content: Vec<u32>,
    pub lines: Vec<u64>,
}

/// With how many are up to each, numbers that may be equal increase.
fn increasing(values: &[u64]) -> Vec<u64> {
    values.iter().zip(1..).map(|(value, i)| value + i).collect()
}

impl Gathered {
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let n = self.offsets.len();
        debug_assert!(n > 0 && n <= PAGE);
        let mut flags = 0;
        let has_starts = self.starts.last().is_some_and(|&all| all > 0);
        for (flag, is_there) in [
            (STARTS, has_starts),
            (STORED, self.stored.len() == n),
            (CONTENT, self.content.len() == n),
            (LINES, self.lines.len() == n),
        ] {
            flags |= if is_there { flag } else { 0 };
        }
        out.put_varint(n as u64);
        out.put_u8(flags);
        out.put_varint(self.first_bit);
        EliasFano::encode(&self.offsets, &mut out);
        EliasFano::encode(&self.bits, &mut out);
        if flags & STARTS != 0 {
            out.put_varint(self.first_start);
            EliasFano::encode(&increasing(&self.starts), &mut out);
        }
        for (flag, checksums) in [(STORED, &self.stored), (CONTENT, &self.content)] {
            if flags & flag != 0 {
                checksums.iter().for_each(|&checksum| out.put_u32(checksum));
            }
        }
        if flags & LINES != 0 {
            EliasFano::encode(&increasing(&self.lines), &mut out);
        }
        out
    }
}

/// A page of units as read.
#[derive(Debug)]
pub(super) struct Page {
    offset: u64,
    first: u64,
    pub units: usize,
    first_bit: u64,
    offsets: EliasFano,
    bits: EliasFano,
    starts: Option<(u64, EliasFano)>,
    stored: Vec<u32>,
    content: Vec<u32>,
    lines: Option<EliasFano>,
}

impl Page {
    pub fn parse(section: &Section) -> Result<Page> {
        let mut take = section.take("unit page");
        let units = take.count(PAGE as u64)?;
        let flags = take.u8()?;
        if flags & !(STARTS | STORED | CONTENT | LINES) != 0 {
            return Err(Error::Unsupported { what: "unit page flags", found: flags.into() });
        }
        let first_bit = take.varint()?;
        let offsets = EliasFano::decode(&mut take, units)?;
        let bits = EliasFano::decode(&mut take, units)?;
        let starts = match flags & STARTS {
            0 => None,
            _ => Some((take.varint()?, EliasFano::decode(&mut take, units)?)),
        };
        let mut checksums = |flag: u8| -> Result<Vec<u32>> {
            let count = if flags & flag != 0 { units } else { 0 };
            (0..count).map(|_| take.u32()).collect()
        };
        let (stored, content) = (checksums(STORED)?, checksums(CONTENT)?);
        let lines = match flags & LINES {
            0 => None,
            _ => Some(EliasFano::decode(&mut take, units)?),
        };
        take.end()?;
        let corrupt = || section.corrupt("unit page");
        let within = |first: u64, last: u64| first.checked_add(last).filter(|&end| end < 1 << 63);
        within(section.offset, offsets.last()).ok_or_else(corrupt)?;
        within(first_bit, bits.last()).ok_or_else(corrupt)?;
        if let Some((pos, ends)) = &starts {
            within(*pos, ends.last())
                .filter(|&end| end <= section.at.pos + units as u64)
                .ok_or_else(corrupt)?;
        }
        // With how many there are these are no more than that, so that nothing below is less than nothing.
        let page = Page {
            offset: section.offset,
            first: section.number,
            units,
            first_bit,
            offsets,
            bits,
            starts,
            stored,
            content,
            lines,
        };
        let grows = |ends: &EliasFano| {
            (0..units).all(|i| ends.get(i) > i as u64) && {
                let rest = |i: usize| ends.get(i) - i as u64 - 1;
                (1..units).all(|i| rest(i - 1) <= rest(i))
            }
        };
        let is_sound = page.starts.as_ref().is_none_or(|(_, ends)| grows(ends))
            && page.lines.as_ref().is_none_or(grows);
        if is_sound { Ok(page) } else { Err(section.corrupt("unit page")) }
    }

    /// Content, units and line feeds: what the footer says of it, too.
    pub fn sums(&self) -> (u64, u64, u64) {
        (self.offsets.last(), self.units as u64, self.lines_before(self.units).unwrap_or(0))
    }

    pub fn is_checked(&self) -> bool {
        self.stored.len() == self.units
    }

    pub fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Unit `i` of the page.
    pub fn unit(&self, i: usize) -> Unit {
        let (from, to) = self.offsets.pair(i);
        let (first_bit, last_bit) = self.bits.pair(i);
        let start = match &self.starts {
            None => 0..0,
            Some((pos, ends)) => {
                let (from, to) = ends.pair(i);
                pos + from - i as u64..pos + to - i as u64 - 1
            }
        };
        Unit {
            number: self.first + i as u64,
            offset: self.offset + from,
            len: to - from,
            bits: self.first_bit + first_bit..self.first_bit + last_bit,
            stored: self.stored.get(i).copied(),
            content: self.content.get(i).copied(),
            start,
        }
    }

    /// The unit that holds the byte at this offset, which is in the page.
    pub fn find(&self, offset: u64) -> Unit {
        self.unit(self.offsets.rank(offset - self.offset).min(self.units - 1))
    }

    /// Line feeds in the page before unit `i`.
    pub fn lines_before(&self, i: usize) -> Option<u64> {
        let ends = self.lines.as_ref()?;
        Some(match i.checked_sub(1) {
            None => 0,
            Some(before) => ends.get(before) - i as u64,
        })
    }
}

/// What the footer says of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    /// Content, units and line feeds before it, and in it.
    pub offset: u64,
    pub len: u64,
    pub first: u64,
    pub units: u64,
    pub first_line: u64,
    pub lines: u64,
    pub at: SectionRef,
}

/// The footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub format: Format,
    pub is_inside: bool,
    pub has_lines: bool,
    pub stored_len: u64,
    pub digest: Digest,
    pub len: u64,
    pub pages: Vec<PageRef>,
}

impl Footer {
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(self.format as u8);
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        out.put_u8(flag(INSIDE, self.is_inside) | flag(ALL_LINES, self.has_lines));
        out.put_varint(self.stored_len);
        out.put(&self.digest.0);
        out.put_varint(self.len);
        out.put_varint(self.pages.len() as u64);
        for page in &self.pages {
            out.put_varint(page.len);
            out.put_varint(page.units);
            out.put_varint(page.lines);
            page.at.put(&mut out);
        }
        out
    }

    pub fn parse(section: &Section) -> Result<Footer> {
        let mut take = section.take("footer");
        let (format, flags) = (take.u8()?, take.u8()?);
        let found = u64::from(format);
        let format = Format::from_number(format)
            .ok_or(Error::Unsupported { what: "stream format", found })?;
        if flags & !(INSIDE | ALL_LINES) != 0 {
            return Err(Error::Unsupported { what: "index flags", found: flags.into() });
        }
        let (stored_len, digest, len) = (take.varint()?, take.digest()?, take.varint()?);
        // A page takes five bytes here at least.
        let count = take.count(take.remaining() as u64 / 5)?;
        let mut pages = Vec::with_capacity(count);
        let (mut offset, mut first, mut first_line) = (0u64, 0u64, 0u64);
        for _ in 0..count {
            let (len, units, lines) = (take.varint()?, take.varint()?, take.varint()?);
            let at = SectionRef::take(&mut take)?;
            pages.push(PageRef { offset, len, first, units, first_line, lines, at });
            let add = |a: u64, b: u64| a.checked_add(b).filter(|&sum| sum < 1 << 63);
            let sums = (add(offset, len), add(first, units), add(first_line, lines));
            let (Some(a), Some(b), Some(c)) = sums else { return Err(take.corrupt()) };
            (offset, first, first_line) = (a, b, c);
            if units == 0 || len < units || lines > len {
                return Err(take.corrupt());
            }
        }
        take.end()?;
        if offset != len || stored_len > MAX_STORED {
            return Err(section.corrupt("footer"));
        }
        let (is_inside, has_lines) = (flags & INSIDE != 0, flags & ALL_LINES != 0);
        Ok(Footer { format, is_inside, has_lines, stored_len, digest, len, pages })
    }

    pub fn units(&self) -> u64 {
        self.pages.last().map_or(0, |page| page.first + page.units)
    }

    pub fn lines(&self) -> Option<u64> {
        self.has_lines.then(|| self.pages.last().map_or(0, |page| page.first_line + page.lines))
    }
}

/// What holds the pieces of an index at the end of a file, and is passed over by other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Members of gzip without content.
    Members,
    /// Frames that lz4 passes over.
    Frames,
}

impl Carrier {
    /// Of files of this format, if they have one.
    pub fn of(format: Format) -> Option<Carrier> {
        match format {
            Format::Gzip => Some(Carrier::Members),
            Format::Lz4 => Some(Carrier::Frames),
            _ => None,
        }
    }

    /// Bytes of the index in each but the last.
    pub fn piece(self) -> u64 {
        match self {
            Carrier::Members => 65_510,
            Carrier::Frames => 1 << 31,
        }
    }

    /// What stands before a piece, and behind it.
    fn around(self) -> (u64, u64) {
        match self {
            Carrier::Members => (16, 10),
            Carrier::Frames => (8, 0),
        }
    }

    /// Where byte `i` of the index is, from the first of these on.
    pub fn place(self, i: u64) -> u64 {
        let ((before, behind), full) = (self.around(), i / self.piece());
        (full + 1) * before + full * behind + i
    }

    /// Bytes of the last one, which leads to the index.
    pub fn pointer_len(self) -> u64 {
        let (before, behind) = self.around();
        before + 12 + behind
    }

    /// Bytes of all that hold an index of this length, and of the last one.
    pub fn len(self, index: u64) -> u64 {
        let (before, behind) = self.around();
        index + index.div_ceil(self.piece()) * (before + behind) + self.pointer_len()
    }

    /// Appends one that holds these bytes.
    fn put(self, bytes: &[u8], out: &mut Vec<u8>) {
        debug_assert!(bytes.len() as u64 <= self.piece());
        match self {
            Carrier::Members => {
                // Deflate, an extra field, no time, no level, no system.
                out.put(&[0x1F, 0x8B, 8, 4, 0, 0, 0, 0, 0, 255]);
                out.put_u16(bytes.len() as u16 + 4);
                out.put(b"FI");
                out.put_u16(bytes.len() as u16);
                out.put(bytes);
                out.put(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            Carrier::Frames => {
                out.put_u32(0x184D_2A5F);
                out.put_u32(bytes.len() as u32);
                out.put(bytes);
            }
        }
    }

    /// An index in as many as it takes, and what leads to it.
    pub fn carry(self, index: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len(index.len() as u64) as usize);
        index.chunks(self.piece() as usize).for_each(|piece| self.put(piece, &mut out));
        self.put(&pointer(index.len() as u64), &mut out);
        out
    }

    /// How long the index is that a file ends with, by its last bytes.
    pub fn find(self, last: &[u8]) -> Option<u64> {
        let at = last.len().checked_sub(self.pointer_len() as usize)?;
        let mut take = Take::new(last.get(at..)?, "index pointer", 0);
        let before = self.around().0 as usize;
        let (head, len, checksum) = (take.bytes(before).ok()?, take.u64().ok()?, take.u32().ok()?);
        let mut whole = Vec::new();
        self.put(&pointer(len), &mut whole);
        let is_right = whole.get(..before) == Some(head)
            && checksum == crate::wire::crc32c(&len.to_le_bytes());
        (is_right && len < MAX_STORED).then_some(len)
    }
}

/// What the last one holds.
fn pointer(len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(len);
    let checksum = crate::wire::crc32c(&out);
    out.put_u32(checksum);
    out
}

/// A page's section, read and held against what the footer says of it.
pub(super) fn load_page(
    source: &dyn crate::io::ReadAt,
    page: &PageRef,
    is_inside: bool,
) -> Result<Page> {
    let section = Section::load(source, page.at, Kind::UnitPage)?;
    let parsed = Page::parse(&section)?;
    let is_same = (section.offset, section.number) == (page.offset, page.first)
        && parsed.sums() == (page.len, page.units, page.lines)
        && (parsed.is_checked() || !is_inside);
    if is_same { Ok(parsed) } else { Err(section.corrupt("unit page")) }
}
