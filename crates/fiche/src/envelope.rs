//! What every file starts and ends with, and the sections in between.
//!
//! # File
//!
//! A file is a header, then content and sections, then a footer section, then a
//! trailer. It is written front to back; only the guard of the header is ever
//! written again. A file of 2^63 bytes or more is refused.
//!
//! # Header
//!
//! The first 32 bytes.
//!
//! | pos | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `8F 66 69 63 68 65 0D 0A` |
//! | 8 | 2 | major | version 1; a reader refuses another |
//! | 10 | 2 | minor | 0; larger where something was added that may be ignored |
//! | 12 | 1 | kind | what the file holds: 1 archive, 2 dictionary, 3 index, 4 events, 5 volume |
//! | 13 | 3 | reserved | zero |
//! | 16 | 4 | checksum | CRC-32C of bytes 0 to 15 |
//! | 20 | 8 | guard | while the file is being appended to: its length before that; else 0 |
//! | 28 | 4 | guard checksum | CRC-32C of bytes 20 to 27 if the guard is not 0; else 0 |
//!
//! A reader looks for the trailer at the end of the file. Only when there is no
//! whole trailer and footer, and the guard is set and its checksum right, does it
//! read the file as if it ended at the guard: an append was cut off, and the file
//! is what it was before. Where the file ends with the trailer's magic, the append was
//! not cut off, and what is damaged is an error. So the magic must not be there without
//! what is before it, whenever a writer is cut off: all but the trailer is durable before any of
//! it is written, and where it begins in one sector of 512 bytes and ends in the next, its part in the first
//! before that in the second. Whole means that the checksums are right and that what
//! they cover makes sense. A guard that is neither 0 nor checked is as good as none.
//!
//! Where each read waits for something far away, a reader may begin at the end, and leave out the header when it finds a
//! whole trailer and footer there: a new major version will end with another magic, too.
//!
//! # Section
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 4 | marker | `9E F1 C4 E5`: lets sections be found in a file that was cut |
//! | 1 | kind | see below |
//! | 1 | flags | bit 0: the payload is compressed; other bits are zero |
//! | varint | offset | decoded bytes of the archive before what this section tells of; 0 where that means nothing |
//! | varint | number | blocks or records before what it tells of; 0 where that means nothing |
//! | varint | stored length | of the payload as it follows |
//! | varint | length | of the payload decoded, 1 to 2^26; only if compressed |
//! | | payload | bare, or as one Zstandard frame as under "Codecs" |
//! | 4 | checksum | CRC-32C of the section's position in the file as 8 bytes and then of all its bytes before this field |
//!
//! Whatever leads to a section gives its position and whole length, and a reader checks
//! that it has this length and is of the kind that is expected there.
//!
//! | kind | section |
//! |---|---|
//! | 1 | dictionary |
//! | 2 | model |
//! | 3 | chapter table |
//! | 4 | record page |
//! | 5 | begun record |
//! | 6 | node |
//! | 7 | name page |
//! | 8 | footer |
//! | 9 | dictionary piece |
//! | 10 | spare |
//! | 11 | unit page |
//! | 12 | packet page |
//! | 13 | key page |
//! | 14 | schema |
//!
//! # Trailer
//!
//! The last 32 bytes.
//!
//! | pos | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | footer position | of the footer section |
//! | 8 | 8 | footer length | of the whole section |
//! | 16 | 4 | reserved | zero |
//! | 20 | 4 | checksum | CRC-32C of bytes 0 to 19 |
//! | 24 | 8 | magic | `0A 0D 65 68 63 69 66 8F` |
//!
//! The footer section ends where the trailer starts.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::codec::deflate::MAGIC as MAGIC_OF_GZIP;
use crate::codec::{Scratch, pack_section, unpack_section};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Put, Take, crc32c, crc32c_of};

pub(crate) const HEADER_LEN: u64 = 32;
/// The longest section that is read: the footer of an archive of some hundred PiB.
const MAX_SECTION: u64 = 1 << 32;
pub(crate) const TRAILER_LEN: u64 = 32;
/// Position of the header's guard and its checksum.
pub(crate) const GUARD_POS: u64 = 20;

const MAGIC: [u8; 8] = *b"\x8Ffiche\r\n";
const END_MAGIC: [u8; 8] = *b"\n\rehcif\x8F";
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
pub(crate) const MARKER: [u8; 4] = [0x9E, 0xF1, 0xC4, 0xE5];
const COMPRESSED: u8 = 1;
/// No compressed section decodes to more: what a hostile one can cost.
pub(crate) const MAX_DECODED: u64 = 1 << 26;
/// High enough that names pack well, low enough that millions of them go by fast.
const LEVEL: i32 = 6;
/// Of a section without its payload: the most that it can take.
const MAX_OVERHEAD: usize = 6 + 4 * 10 + 4;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Container {
    /// Compressed blocks and an index of records.
    Archive = 1,
    /// A dictionary for archives.
    Dictionary = 2,
    /// Where a standard file can be decoded from.
    Index = 3,
    /// Events.
    Events = 4,
    /// A block device that can be written.
    Volume = 5,
}

impl Container {
    /// What files of other kinds are told as.
    const KNOWN: [(Container, &str); 5] = [
        (Container::Archive, "an archive"),
        (Container::Dictionary, "a dictionary"),
        (Container::Index, "an index of another file"),
        (Container::Events, "a file of events: `fiche events` knows those"),
        (Container::Volume, "a volume"),
    ];
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Dictionary = 1,
    Model = 2,
    ChapterTable = 3,
    RecordPage = 4,
    BegunRecord = 5,
    Node = 6,
    NamePage = 7,
    Footer = 8,
    DictionaryPiece = 9,
    Spare = 10,
    UnitPage = 11,
    PacketPage = 12,
    KeyPage = 13,
    Schema = 14,
}

impl Kind {
    fn what(self) -> &'static str {
        match self {
            Kind::Dictionary => "dictionary",
            Kind::DictionaryPiece => "dictionary piece",
            Kind::Model => "model",
            Kind::Spare => "spare",
            Kind::ChapterTable => "chapter table",
            Kind::RecordPage => "record page",
            Kind::BegunRecord => "begun record",
            Kind::Node => "node",
            Kind::NamePage => "name page",
            Kind::Footer => "footer",
            Kind::UnitPage => "unit page",
            Kind::PacketPage => "packet page",
            Kind::KeyPage => "key page",
            Kind::Schema => "schema",
        }
    }
}

/// Where a section lies: position and length of the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionRef {
    pub pos: u64,
    pub len: u64,
}

impl SectionRef {
    pub fn end(&self) -> u64 {
        self.pos + self.len
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.pos);
        out.put_varint(self.len);
    }

    pub fn take(take: &mut Take<'_>) -> Result<SectionRef> {
        let (pos, len) = (take.varint()?, take.varint()?);
        match pos.checked_add(len) {
            Some(end) if end <= i64::MAX as u64 => Ok(SectionRef { pos, len }),
            _ => Err(take.corrupt()),
        }
    }
}

/// A section as read: checksum verified, payload decoded.
#[derive(Debug)]
pub(crate) struct Section {
    pub kind: u8,
    pub offset: u64,
    pub number: u64,
    pub payload: Vec<u8>,
    /// Position of the section, and its whole length.
    pub at: SectionRef,
}

impl Section {
    /// Appends the section that lies at `pos` to `out`; compressed if that helps.
    pub fn put(
        out: &mut Vec<u8>,
        pos: u64,
        kind: Kind,
        (offset, number): (u64, u64),
        payload: &[u8],
        scratch: Option<&mut Scratch>,
    ) {
        debug_assert!(scratch.is_none() || payload.len() as u64 <= MAX_DECODED);
        let packed = scratch.and_then(|scratch| pack_section(payload, LEVEL, scratch));
        Section::put_packed(out, pos, kind, (offset, number), payload, packed.as_deref());
    }

    /// Appends a section whose payload was compressed already, if it is.
    pub fn put_packed(
        out: &mut Vec<u8>,
        pos: u64,
        kind: Kind,
        (offset, number): (u64, u64),
        payload: &[u8],
        packed: Option<&[u8]>,
    ) {
        let (flags, stored) = match packed {
            Some(packed) => (COMPRESSED, packed),
            None => (0, payload),
        };
        let start = out.len();
        out.put(&MARKER);
        out.put_u8(kind as u8);
        out.put_u8(flags);
        out.put_varint(offset);
        out.put_varint(number);
        out.put_varint(stored.len() as u64);
        if packed.is_some() {
            out.put_varint(payload.len() as u64);
        }
        out.put(stored);
        let checksum = crc32c_of(&[&pos.to_le_bytes(), out.get(start..).unwrap_or_default()]);
        out.put_u32(checksum);
    }

    /// Parses the section at the start of `bytes`, which lies at `pos`.
    pub fn parse(bytes: &[u8], pos: u64, what: &'static str) -> Result<Section> {
        let corrupt = || Error::Corrupt { what, at: Place::Pos(pos) };
        let mut take = Take::new(bytes, what, pos);
        if take.bytes(4)? != MARKER {
            return Err(corrupt());
        }
        let (kind, flags) = (take.u8()?, take.u8()?);
        let (offset, number) = (take.varint()?, take.varint()?);
        let stored_len = take.count(bytes.len() as u64)?;
        let len = if flags & COMPRESSED != 0 { Some(take.count(MAX_DECODED)?) } else { None };
        let stored = take.bytes(stored_len)?;
        let covered = bytes.len() - take.remaining();
        let checksum = take.u32()?;
        let (covered, _) = bytes.split_at_checked(covered).ok_or_else(corrupt)?;
        if flags & !COMPRESSED != 0 || crc32c_of(&[&pos.to_le_bytes(), covered]) != checksum {
            return Err(corrupt());
        }
        let payload = match len {
            None => stored.to_vec(),
            Some(0) => return Err(corrupt()),
            Some(len) => unpack_section(stored, len).ok_or_else(corrupt)?,
        };
        let at = SectionRef { pos, len: covered.len() as u64 + 4 };
        Ok(Section { kind, offset, number, payload, at })
    }

    /// The bytes of a section that lies at `at`, made ready to lie at `pos`.
    pub fn moved(source: &dyn ReadAt, at: SectionRef, kind: Kind, pos: u64) -> Result<Vec<u8>> {
        Section::load(source, at, kind)?;
        let mut bytes = vec![0; at.len as usize];
        source.read_at(at.pos, &mut bytes)?;
        bytes.truncate(bytes.len() - 4);
        let checksum = crc32c_of(&[&pos.to_le_bytes(), &bytes]);
        bytes.put_u32(checksum);
        Ok(bytes)
    }

    /// Reads a section that must be of this kind and exactly this long.
    pub fn load(source: &dyn ReadAt, at: SectionRef, kind: Kind) -> Result<Section> {
        let corrupt = || Error::Corrupt { what: kind.what(), at: Place::Pos(at.pos) };
        let end = at.pos.checked_add(at.len).ok_or_else(corrupt)?;
        // How long a source is may be no more than what somebody says.
        if end > source.len() || at.len > MAX_SECTION {
            return Err(corrupt());
        }
        let mut bytes = vec![0; usize::try_from(at.len).map_err(|_| corrupt())?];
        source.read_at(at.pos, &mut bytes)?;
        let section = Section::parse(&bytes, at.pos, kind.what())?;
        if section.kind != kind as u8 || section.at != at {
            return Err(corrupt());
        }
        Ok(section)
    }

    /// Reads the section at `pos` whose length is not known, up to `end`.
    pub fn load_unknown(source: &dyn ReadAt, pos: u64, end: u64) -> Result<Section> {
        let len = Section::claimed_len(source, pos, end)?;
        let corrupt = || Error::Corrupt { what: "section", at: Place::Pos(pos) };
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| corrupt())?];
        source.read_at(pos, &mut bytes)?;
        Section::parse(&bytes, pos, "section")
    }

    /// How long the section at `pos` says it is; an error when it does not even
    /// look like one, or would pass `end`.
    pub fn claimed_len(source: &dyn ReadAt, pos: u64, end: u64) -> Result<u64> {
        let corrupt = || Error::Corrupt { what: "section", at: Place::Pos(pos) };
        let mut head = vec![0; end.saturating_sub(pos).min(MAX_OVERHEAD as u64) as usize];
        source.read_at(pos, &mut head)?;
        let mut take = Take::new(&head, "section", pos);
        if take.bytes(4)? != MARKER {
            return Err(corrupt());
        }
        let flags = (take.u8()?, take.u8()?).1;
        take.varint()?;
        take.varint()?;
        let stored_len = take.varint()?;
        if flags & COMPRESSED != 0 {
            take.varint()?;
        }
        let before = (head.len() - take.remaining()) as u64;
        let len = stored_len.checked_add(before + 4).filter(|&len| len <= end - pos);
        len.ok_or_else(corrupt)
    }

    /// The payload as something to take from; positions in errors are those of the file.
    pub fn take(&self, what: &'static str) -> Take<'_> {
        Take::new(&self.payload, what, self.at.pos)
    }

    /// The error that says that the payload makes no sense.
    pub fn corrupt(&self, what: &'static str) -> Error {
        Error::Corrupt { what, at: Place::Pos(self.at.pos) }
    }
}

/// The header of a file that is not being appended to.
pub(crate) fn header(container: Container) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN as usize);
    out.put(&MAGIC);
    out.put_u16(MAJOR);
    out.put_u16(MINOR);
    out.put_u8(container as u8);
    out.put(&[0; 3]);
    let checksum = crc32c(&out);
    out.put_u32(checksum);
    out.put(&guard(0));
    out
}

/// The header's guard and its checksum: set to a length, or cleared by 0.
pub(crate) fn guard(len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(len);
    out.put_u32(if len == 0 { 0 } else { crc32c(&len.to_le_bytes()) });
    out
}

/// The trailer of a file whose footer is this section.
pub(crate) fn trailer(footer: SectionRef) -> Vec<u8> {
    let mut out = Vec::with_capacity(TRAILER_LEN as usize);
    out.put_u64(footer.pos);
    out.put_u64(footer.len);
    out.put_u32(0);
    let checksum = crc32c(&out);
    out.put_u32(checksum);
    out.put(&END_MAGIC);
    out
}

/// What the header says, as far as it can be believed.
#[derive(Debug)]
pub(crate) struct Header {
    /// Whether bytes 0 to 19 are right.
    pub valid: Result<()>,
    /// The length of the file before an append that may have been cut off.
    pub guard: Option<u64>,
    /// Whether the guard is neither cleared nor set.
    pub guard_damaged: bool,
}

/// True when these first bytes are those of a file of ours, of any version.
pub(crate) fn is_ours(first: &[u8]) -> bool {
    first.starts_with(&MAGIC)
}

/// Reads and judges the header. Fails only where a reader must stop: the source
/// cannot be read, is no file of ours, or is of a version or kind not known here.
pub(crate) fn read_header(source: &dyn ReadAt, container: Container) -> Result<Header> {
    let what = "header";
    let mut bytes = vec![0; source.len().min(HEADER_LEN) as usize];
    source.read_at(0, &mut bytes)?;
    if bytes.is_empty() {
        return Err(Error::invalid("this file is empty"));
    }
    if !is_ours(&bytes) {
        let end = source.len().checked_sub(8);
        let mut last = [0; 8];
        if let Some(end) = end {
            source.read_at(end, &mut last)?;
        }
        return Err(match last == END_MAGIC {
            true => Error::Corrupt { what, at: Place::Pos(0) },
            false if bytes.starts_with(&MAGIC_OF_GZIP) => Error::invalid(
                "this is a gzip file: `fiche cat`, `fiche index` and `fiche mount` know those",
            ),
            false => Error::invalid("this is not a fiche file"),
        });
    }
    let (valid, rest) = parse_header(&bytes, container);
    let valid = match valid {
        Err(error @ (Error::Unsupported { .. } | Error::Invalid { .. })) => return Err(error),
        other => other,
    };
    let mut take = Take::new(&rest, what, GUARD_POS);
    let (len, checksum) = match (take.u64(), take.u32()) {
        (Ok(len), Ok(checksum)) => (len, checksum),
        _ => (0, 1),
    };
    let set = len != 0 && crc32c(&len.to_le_bytes()) == checksum;
    let cleared = len == 0 && checksum == 0;
    Ok(Header { valid, guard: set.then_some(len), guard_damaged: !set && !cleared })
}

fn parse_header(bytes: &[u8], container: Container) -> (Result<()>, Vec<u8>) {
    let mut take = Take::new(bytes, "header", 0);
    let mut parse = || -> Result<()> {
        take.bytes(8)?;
        let (major, _minor, kind) = (take.u16()?, take.u16()?, take.u8()?);
        let reserved = take.bytes(3)?.iter().any(|&b| b != 0);
        let covered = bytes.get(..16).map(crc32c);
        if covered != Some(take.u32()?) {
            return Err(Error::Corrupt { what: "header", at: Place::Pos(0) });
        }
        if major != MAJOR {
            return Err(Error::Unsupported { what: "format version", found: u64::from(major) });
        }
        if kind != container as u8 {
            return Err(match Container::KNOWN.iter().find(|(known, _)| *known as u8 == kind) {
                Some((_, what)) => Error::invalid(format!("this is {what}")),
                None => Error::Unsupported { what: "kind of file", found: u64::from(kind) },
            });
        }
        if reserved {
            return Err(Error::Unsupported { what: "header field", found: 13 });
        }
        Ok(())
    };
    let valid = parse();
    let rest = bytes.get(GUARD_POS as usize..).unwrap_or_default().to_vec();
    (valid, rest)
}

/// True when the last bytes are those of a trailer, whatever is before them.
pub(crate) fn ends_with_trailer(source: &dyn ReadAt) -> Result<bool> {
    let mut last = [0; END_MAGIC.len()];
    match source.len().checked_sub(last.len() as u64) {
        None => Ok(false),
        Some(pos) => source.read_at(pos, &mut last).map(|()| last == END_MAGIC),
    }
}

/// True when these bytes are a trailer, whatever they lead to.
pub(crate) fn is_trailer(bytes: &[u8]) -> bool {
    bytes.len() == TRAILER_LEN as usize && bytes.ends_with(&END_MAGIC)
}

/// Where the footer of a file that ends at `end` lies, by its trailer.
pub(crate) fn read_trailer(source: &dyn ReadAt, end: u64) -> Result<SectionRef> {
    let corrupt =
        || Error::Corrupt { what: "trailer", at: Place::Pos(end.saturating_sub(TRAILER_LEN)) };
    let pos = end.checked_sub(TRAILER_LEN).filter(|&pos| pos >= HEADER_LEN).ok_or_else(corrupt)?;
    let mut bytes = [0; TRAILER_LEN as usize];
    source.read_at(pos, &mut bytes)?;
    let mut take = Take::new(&bytes, "trailer", pos);
    let footer = SectionRef { pos: take.u64()?, len: take.u64()? };
    let reserved = take.u32()?;
    let covered = bytes.get(..20).map(crc32c);
    if covered != Some(take.u32()?) || take.bytes(8)? != END_MAGIC {
        return Err(corrupt());
    }
    if reserved != 0 {
        return Err(Error::Unsupported { what: "trailer field", found: u64::from(reserved) });
    }
    if footer.pos < HEADER_LEN || footer.pos.checked_add(footer.len) != Some(pos) {
        return Err(corrupt());
    }
    Ok(footer)
}
