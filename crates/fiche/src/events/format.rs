//! The bytes of an event store, but for its models and packets.
//!
//! # Events
//!
//! A file of kind 4: the header, then segments, then the footer and the trailer. Who appends puts further segments behind the old trailer, and a whole new
//! footer and trailer behind these; what is between means nothing any more. A *segment* is some events that were written together: its
//! model, or none where that of a segment before is good for it, whose position the footer then repeats; its blocks, of which up to 4,096 have a packet page behind them; and its key page, if there are fields of a key. An *event* is an
//! item of the highest level; a *packet* some events that are decoded from the first on; a *block* some packets, with a checksum.
//!
//! # Block of events
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | packets | how many, 1 to 2^20 |
//! | varint | shortest | bytes of the shortest packet |
//! | 1 | lengths | 0: all packets have as many; 1: not so |
//! | | ends | of lengths that differ: an Elias-Fano sequence: of each packet the bytes up to its end, and one for each packet up to it, less the shortest for each |
//! | | packets | one behind the other |
//! | 4 | checksum | CRC-32C of the block's position in the file as 8 bytes and then of all before this field |
//!
//! Entry `i` of the ends is the sum over packets 0 to `i` of their bytes, less the shortest's, plus one. A block has 2^29 bytes at most, with its checksum. All integers are little-endian.
//!
//! # Packet page
//!
//! A section of kind 12, not compressed. Its offset is the events of its segment, its number the blocks of its segment, that are before those that it tells of. The packets of a segment are all full but
//! for the last one, which has what is left.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | back | from the first byte of its first block to this section |
//! | varint | blocks | how many, 1 to 4,096 |
//! | | ends | an Elias-Fano sequence: where each block ends, from the first byte of the first |
//! | | packets | an Elias-Fano sequence: how many packets there are up to the end of each |
//!
//! # Footer of events
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint, varint | schema | position and length of its section |
//! | 1 | access | what reads were to be fast: 0: of single events; 1: of some; 2: of all. Writers that append go on so |
//! | varint | packet | events of a packet, if somebody said how many; else 0 |
//! | varint | key | fields that events are found by |
//! | for each | field | varint: its number, from 0 on; they increase, and are of a number, a boolean, a text or bytes |
//! | varint | segments | how many |
//! | for each | segment | varint: events, 1 or more; varint, varint: position and length of its model's section, of kind 2; if there are fields of a key varint, varint: position and length of its key page; varint: pages; for each varint: blocks, varint: packets, varint, varint: position and length of its section |
//!
//! A section of kind 8, not compressed. Its offset is all events, its number 0. The section of a model of events has as its offset the events before the first segment that has it, its number
//! is 0, and it may be compressed; what other models begin with, a coding, it has not.

use super::keys;
use super::schema::{Layout, Schema};
use crate::codec::Scratch;
use crate::elias_fano::{EliasFano, Stored};
use crate::envelope::{Kind, MAX_DECODED, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::wire::{Put, Take, crc32c_of, load_u32};

/// Blocks of a page at most.
pub(super) const PAGE: usize = 4096;
const CHECKSUM: usize = 4;
/// A schema takes no less than this part of itself.
const LEAST: usize = 64;
/// Packets of a block at most, and bytes.
const MOST_PACKETS: u64 = 1 << 20;
const MOST_BYTES: u64 = 1 << 29;

/// Where a segment has what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentRef {
    pub events: u64,
    pub model: SectionRef,
    /// Where events have a key.
    pub keys: Option<SectionRef>,
    pub pages: Vec<PageRef>,
}

/// Where a packet page is, and what it tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    pub blocks: u64,
    pub packets: u64,
    pub at: SectionRef,
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub schema: SectionRef,
    pub access: u8,
    pub packet: u64,
    /// Fields.
    pub key: Vec<usize>,
    pub segments: Vec<SegmentRef>,
}

impl Footer {
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.schema.put(&mut out);
        out.put_u8(self.access);
        out.put_varint(self.packet);
        out.put_varint(self.key.len() as u64);
        self.key.iter().for_each(|&field| out.put_varint(field as u64));
        out.put_varint(self.segments.len() as u64);
        for segment in &self.segments {
            out.put_varint(segment.events);
            segment.model.put(&mut out);
            segment.keys.iter().for_each(|keys| keys.put(&mut out));
            out.put_varint(segment.pages.len() as u64);
            for page in &segment.pages {
                out.put_varint(page.blocks);
                out.put_varint(page.packets);
                page.at.put(&mut out);
            }
        }
        out
    }

    /// The footer that lies there, and the schema that it leads to.
    pub fn load(
        source: &dyn crate::io::ReadAt,
        at: SectionRef,
    ) -> Result<(Footer, Schema, Layout)> {
        let section = Section::load(source, at, Kind::Footer)?;
        let mut take = section.take("footer of events");
        if !is_bare(&section) {
            return Err(take.corrupt());
        }
        let at = SectionRef::take(&mut take)?;
        let schema = load_schema(source, at)?;
        let layout = schema.layout()?;
        let (access, packet) = (take.u8()?, take.varint()?);
        let key = take.count(schema.fields.len() as u64)?;
        let mut fields: Vec<usize> = Vec::with_capacity(key);
        for _ in 0..key {
            let field = take.count(schema.fields.len() as u64)?;
            let is_behind = fields.last().is_none_or(|&last| last < field);
            if !is_behind || keys::part(&schema, &layout, field).is_none() {
                return Err(take.corrupt());
            }
            fields.push(field);
        }
        let key = fields;
        // Each takes four bytes at least, as a page does.
        let count = take.count((take.remaining() / 4) as u64)?;
        let mut segments = Vec::with_capacity(count);
        let mut all = 0u64;
        for _ in 0..count {
            let events = take.varint()?;
            all = all
                .checked_add(events)
                .filter(|&all| all < 1 << 62)
                .ok_or_else(|| take.corrupt())?;
            let model = SectionRef::take(&mut take)?;
            let has_keys = !key.is_empty();
            let keys = has_keys.then(|| SectionRef::take(&mut take)).transpose()?;
            let pages = take.count((take.remaining() / 4) as u64)?;
            let pages: Result<Vec<PageRef>> = (0..pages)
                .map(|_| {
                    let (blocks, packets) = (take.varint()?, take.varint()?);
                    if !(1..=PAGE as u64).contains(&blocks) || packets < blocks {
                        return Err(take.corrupt());
                    }
                    Ok(PageRef { blocks, packets, at: SectionRef::take(&mut take)? })
                })
                .collect();
            let pages = pages?;
            let packets = pages.iter().try_fold(0u64, |sum, page| sum.checked_add(page.packets));
            if events == 0 || packets.is_none_or(|packets| packets > events) {
                return Err(take.corrupt());
            }
            segments.push(SegmentRef { events, model, keys, pages });
        }
        take.end()?;
        Ok((Footer { schema: at, access, packet, key, segments }, schema, layout))
    }
}

/// Appends the section of a schema that lies at `pos`.
pub(super) fn put_schema(out: &mut Vec<u8>, pos: u64, schema: &Schema, scratch: &mut Scratch) {
    let mut payload = Vec::new();
    schema.put(&mut payload);
    let start = out.len();
    let is_small = payload.len() as u64 <= MAX_DECODED;
    Section::put(out, pos, Kind::Schema, (0, 0), &payload, is_small.then_some(scratch));
    if !is_likely(payload.len(), out.len() - start) {
        out.truncate(start);
        Section::put(out, pos, Kind::Schema, (0, 0), &payload, None);
    }
}

/// Whether a schema may take so much less: what it takes in memory is no more than some times what it takes in the file.
fn is_likely(payload: usize, stored: usize) -> bool {
    payload / LEAST <= stored
}

fn load_schema(source: &dyn crate::io::ReadAt, at: SectionRef) -> Result<Schema> {
    let section = Section::load(source, at, Kind::Schema)?;
    let mut take = section.take("schema of events");
    if !is_likely(section.payload.len(), section.at.len as usize) {
        return Err(take.corrupt());
    }
    let schema = Schema::take(&mut take)?;
    take.end()?;
    Ok(schema)
}

/// Footers and pages are not compressed: so what they take in memory is no more than some times what they take in the file.
pub(super) fn is_bare(section: &Section) -> bool {
    section.payload.len() as u64 <= section.at.len
}

/// Blocks of a page: where they are, and which packets they have.
pub(super) struct Page {
    /// Where the first block begins.
    pos: u64,
    ends: EliasFano,
    packets: EliasFano,
}

/// A block of packets, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRef {
    pub pos: u64,
    pub len: usize,
    /// Its number in the page.
    pub number: usize,
    /// Of the page: the number of its first packet, and how many it has.
    pub first: u64,
    pub packets: usize,
}

impl Page {
    /// Appends the section of a page that lies at `pos`, of blocks that begin at `first`: where each ends, and packets up to there.
    pub fn put(out: &mut Vec<u8>, pos: u64, first: u64, before: (u64, u64), blocks: &[(u64, u64)]) {
        let mut payload = Vec::new();
        payload.put_varint(pos - first);
        payload.put_varint(blocks.len() as u64);
        let ends: Vec<u64> = blocks.iter().map(|(end, _)| end - first).collect();
        let packets: Vec<u64> = blocks.iter().map(|&(_, packets)| packets).collect();
        EliasFano::encode(&ends, &mut payload);
        EliasFano::encode(&packets, &mut payload);
        Section::put(out, pos, Kind::PacketPage, before, &payload, None);
    }

    pub fn parse(section: &Section, about: &PageRef) -> Result<Page> {
        let mut take = section.take("packet page");
        if !is_bare(section) {
            return Err(take.corrupt());
        }
        let (back, blocks) = (take.varint()?, take.count(PAGE as u64)?);
        let pos = section.at.pos.checked_sub(back).ok_or_else(|| take.corrupt())?;
        let ends = EliasFano::decode(&mut take, blocks)?;
        let packets = EliasFano::decode(&mut take, blocks)?;
        take.end()?;
        let is_as_told = (blocks as u64, packets.last()) == (about.blocks, about.packets);
        let is_short = |ends: &EliasFano, most: u64| {
            (0..blocks).all(|i| {
                let (from, to) = ends.pair(i);
                to - from <= most
            })
        };
        if !is_as_told
            || ends.last() > back
            || !is_short(&ends, MOST_BYTES)
            || !is_short(&packets, MOST_PACKETS)
        {
            return Err(take.corrupt());
        }
        Ok(Page { pos, ends, packets })
    }

    /// The block of a packet of the page.
    #[inline(always)]
    pub fn find(&self, packet: u64) -> Option<BlockRef> {
        let packets = self.packets.above(packet)?;
        let ends = self.ends.gap(packets.i);
        Some(BlockRef {
            pos: self.pos + ends.from,
            len: usize::try_from(ends.to - ends.from).ok()?,
            number: packets.i,
            first: packets.from,
            packets: usize::try_from(packets.to - packets.from).ok()?,
        })
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.ends.count()
    }
}

/// Appends a block of packets that lies at `pos`.
pub(super) fn put_block(out: &mut Vec<u8>, pos: u64, packets: &[&[u8]]) {
    let start = out.len();
    let lens = packets.iter().map(|packet| packet.len() as u64);
    let (shortest, longest) = (lens.clone().min().unwrap_or(0), lens.clone().max().unwrap_or(0));
    out.put_varint(packets.len() as u64);
    out.put_varint(shortest);
    out.put_u8((shortest < longest).into());
    if shortest < longest {
        let ends = lens.scan(0, |sum, len| {
            *sum += len - shortest + 1;
            Some(*sum)
        });
        EliasFano::encode(&ends.collect::<Vec<_>>(), out);
    }
    packets.iter().for_each(|packet| out.put(packet));
    let checksum = crc32c_of(&[&pos.to_le_bytes(), &out[start..]]);
    out.put_u32(checksum);
}

/// A block whose checksum was right, and where its packets end.
pub(super) struct Block<'a> {
    packets: usize,
    shortest: usize,
    ends: Option<Stored<'a>>,
    body: &'a [u8],
}

/// Whether the checksum at the end of a block that lies at `pos` is that of its bytes.
pub(super) fn is_whole(bytes: &[u8], pos: u64) -> bool {
    let Some(len) = bytes.len().checked_sub(CHECKSUM) else { return false };
    crc32c_of(&[&pos.to_le_bytes(), &bytes[..len]]) == load_u32(bytes, len) || cfg!(fuzzing)
}

impl<'a> Block<'a> {
    pub fn parse(bytes: &'a [u8], about: &BlockRef) -> Result<Block<'a>> {
        let corrupt = || Error::Corrupt { what: "block of events", at: Place::Pos(about.pos) };
        let bytes = bytes.get(..bytes.len().saturating_sub(CHECKSUM)).unwrap_or_default();
        let mut take = Take::new(bytes, "block of events", about.pos);
        // Packets may have no bytes at all; the page says how many there are.
        let packets = take.count(about.packets as u64)?;
        let shortest = take.count(bytes.len() as u64)?;
        if packets != about.packets || packets == 0 {
            return Err(corrupt());
        }
        let ends = match take.u8()? {
            0 => None,
            1 => Some(Stored::take(&mut take, packets)?),
            _ => return Err(corrupt()),
        };
        let body = take.bytes(take.remaining())?;
        Ok(Block { packets, shortest, ends, body })
    }

    /// The bytes of packet `i`; `None` where they are not there.
    #[inline(always)]
    pub fn packet(&self, i: usize) -> Option<&'a [u8]> {
        if i >= self.packets {
            return None;
        }
        let (from, to) = match &self.ends {
            None => (0, 0),
            Some(ends) => {
                let (from, to) = ends.pair(i)?;
                let end = usize::try_from(to).ok()?.checked_sub(i + 1)?;
                (usize::try_from(from).ok()?.checked_sub(i)?, end)
            }
        };
        let start = i.checked_mul(self.shortest)?;
        self.body.get(start.checked_add(from)?..start.checked_add(self.shortest)?.checked_add(to)?)
    }
}
