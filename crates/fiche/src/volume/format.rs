//! # Volume
//!
//! A file of kind 5 is a block device that can be written. It starts with the header of every file, of which the guard means nothing here, and
//! has no trailer: it is at least as long as its segments, and may be longer. All integers have the lengths that are given.
//!
//! The file is cut into segments of one length. Segment 0 holds the header and, at 4096, 8192, 12288 and 16384, the
//! superblocks. All others hold the log: extents one behind the other, each at a multiple of eight bytes, from the
//! start of the segment. What an extent says is never changed; a segment is written anew from its start when an opening needs nothing
//! of it any more: what it held was replaced by what the newest superblock leads to, or by extents behind that which are durable; of nodes, usage, dictionaries and these extents themselves only a
//! superblock sets it free. So before they are read, the map of a superblock and the log behind it may lead to places that were written over. To write a block of the device is to append it to the log,
//! and to let the map lead there. The log is written at one or two places at once, the *heads*: extents of both are numbered as one.
//!
//! A *position* of 5 bytes is an eighth of a position in the file, and 0 is none; one of 8 bytes is in bytes, and so is a position that a checksum covers. Tags are covered as their 4 bytes.
//!
//! # Superblock
//!
//! | pos | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `66 69 63 68 65 76 6F 6C` |
//! | 8 | 4 | checksum | CRC-32C of its position in the file as 8 bytes and then of bytes 12 to 119 |
//! | 12 | 4 | tag | of the volume: any number; part of all other checksums |
//! | 16 | 8 | generation | the superblock of the larger one counts; up to 2^39 |
//! | 24 | 8 | blocks | of 4096 bytes, that the device has: 1 to 2^40 |
//! | 32 | 1 | segment bits | segments are 2 to the power of this many bytes long: 16 to 26 |
//! | 33 | 1 | codec | in which new units are stored: numbers as under "Codecs"; 0 to 3, or 8 |
//! | 34 | 1 | level | of it, signed |
//! | 35 | 1 | unit | how many blocks a unit has at most when it is written: 1 to 32, half of a segment at most. One that is packed again later may have more |
//! | 36 | 4 | most segments | how many there may be: at most as many as positions of 5 bytes reach, and no less than segments |
//! | 40 | 4 | segments | how many there were, with segment 0; the log may have gone on in others since |
//! | 44 | 4 | reserved | zero |
//! | 48 | 8 | next | number of the next extent |
//! | 56 | 8 | head | where it will lie, |
//! | 64 | 8 | map | where the root of the map lies; 0 where all blocks are zero |
//! | 72 | 8 | usage | where the usage root lies |
//! | 80 | 8 | second head | or it will lie here; in another segment, 0 for nowhere |
//! | 88 | 8 | snapshots | where the snapshot root lies; 0 where there are no snapshots |
//! | 96 | 8 | dictionaries | where the dictionary root lies; 0 where there are none |
//! | 104 | 8 | clones | where the list of clones lies; 0 where there are none |
//! | 112 | 8 | reserved | zero |
//!
//! Generation `g` lies at 4096 and again at 12288 where `g` is even, else at 8192 and 16384. It is written once everything it
//! leads to is durable, and the next one once it is. One that is damaged, or has values that make no sense, is passed over.
//!
//! # Extent
//!
//! What was written together: one request or a part of it.
//!
//! | pos | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC-32C of the volume's tag, of its position as 8 bytes, and of bytes 4 to 23 |
//! | 4 | 4 | length | of the fragments that follow, with the zeros behind the last one: up to 2^20; 0 in the last extent of a segment |
//! | 8 | 8 | number | one more than that of the extent that was written before, at either head |
//! | 16 | 2 | fragments | how many; 0 in the last extent of a segment |
//! | 18 | 2 | reserved | zero |
//! | 20 | 4 | link | in the last extent of a segment: which segment follows, less than the most there may be; in all others CRC-32C of the first four bytes of each fragment, its checksum, in their order |
//!
//! An extent lies within one segment, and so that there is room for the last one behind it. Fragments stand at multiples of eight bytes, and what is between them is zero. The extent behind one starts at the next
//! multiple of eight.
//!
//! The upper 24 bits of a number count how often the volume was opened for writing, the others extents since then.
//!
//! # Fragment
//!
//! | pos | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | checksum | CRC-32C of the volume's tag, of bytes 4 to 15, and of the stored bytes |
//! | 4 | 5 | block | number of the first one |
//! | 9 | 3 | count | how many blocks it stands for |
//! | 12 | 3 | length | of the stored bytes, which follow |
//! | 15 | 1 | kind | 0 to 3, or 8: a unit of blocks in this codec; 16: up to 4096 blocks that repeat the stored eight bytes; 17: blocks of zeros, nothing stored, to which no map leads; 32: a node of the map; 33: a usage page; 34: the usage root; 35: a snapshot; 36: the snapshot root; 37: a dictionary; 38: the dictionary root; 39: the clones; 64 to 79: a unit of blocks in codec 3 with the dictionary of the number that is 64 less |
//!
//! A unit has up to 32 blocks. It is stored in codec 0 where it does not shrink, whatever the codec of the volume is. A fragment may reach beyond the
//! end of a device that became shorter: blocks there are none.
//!
//! # Node of the map
//!
//! The map is a tree of nodes, each with 1024 positions. Those of level 0 lead to fragments: the first node to those of the blocks 0 to
//! 1023, and so on. Those of level 1 lead to the nodes of level 0, and so on up to the root, the one node of
//! its level; there are as many levels as the blocks of the device take: the fewest, and one at least, of which 1024 to the power of their number is no less. Where there are clones there are four levels. 0 leads nowhere: to
//! blocks of zeros, or to a node of nothing. *block* is the number of the node in its level, *count* its level plus 1.
//!
//! Its content is 1024 differences, each a signed varint: a position less the one before. It is stored as
//! two bytes with the length of the content and one Zstandard frame as under "Codecs", or as two bytes of 0 and the content.
//!
//! # Usage page
//!
//! *block* is its number, *count* 1. Its content, stored like that of a node, is 1024 pairs of varints, for the segments from
//! 1024 times its number on: how many blocks and nodes were written to the segment, and how many of them the map
//! still leads to: the map that the superblock has, one for each block and for each node of any level. Usage pages and the root are not counted. Behind them 128 bytes
//! may follow, of which bit *i* (of the value 1 for *i* = 0, in the first byte) tells of segment *i* of the page that it may hold blocks as requests wrote them, which are still to be packed harder. A page whose segments have none is not there.
//!
//! # Usage root
//!
//! *block* is 0, *count* 1. The stored bytes are the positions of all usage pages, 5 bytes each, 0 for those that are not there; behind the last that is there none follow.
//!
//! # Snapshot
//!
//! *block* is its number, *count* 1, or 2 for one of a clone. The stored bytes are: the length of its name, a varint, and the name, 1 to 255 bytes of UTF-8 without control characters; varints with the
//! time when it was taken, in seconds since 1970, and the blocks that the device had, 1 to 2^40; the position of the root of its map, 5 bytes; how many runs of segments
//! follow, and for each two varints: how many segments lie between the one before and this run, and how many it has, at least one. What the snapshot holds lies in these segments. They are not written again.
//!
//! # Snapshot root
//!
//! *block* is 0, *count* 1. The stored bytes are the positions of all snapshots, 5 bytes each, up to 4096 of them, in the order of their numbers. No two have the same number or name. The root is there only where there are snapshots.
//!
//! # Clones
//!
//! A clone is a device that began as a snapshot and is written by itself. *block* is 0, *count* 1. The stored bytes are for each clone, the one that was made first before the others: the length of its name, a varint, and the name, as those of snapshots;
//! varints with the time when it was made, in seconds since 1970, its region, 1 to 1023, its blocks, 1 to 2^30, the number of the snapshot that it was made from, and the number of the first extent that may be of it; one byte, 1 where it was deleted and what it had is still to
//! be taken out of the map, else 0. No two have the same region, and no two of those that were not deleted the same name, which no snapshot has, either. The list is there only where there are clones.
//!
//! Block `b` of the clone in region `r` is block `r * 2^30 + b` of the map and of the log; the device itself has region 0, and 2^30 blocks at most. What a region leads to in segments that its snapshot holds is shared with that: it is not counted in the usage, and
//! was written as of another region. So the number of a node to which the map leads may be another than its place by a multiple of 2^20, 2^10 or 1 at the levels 0, 1 and 2, and the blocks of a unit others by a multiple of 2^30. In other segments lies what is the clone's alone.
//!
//! # Trained dictionary
//!
//! What units of a volume have in common, with which each of them shrinks as if it were longer. *block* is its number, 0 to 15, *count* says which of its two copies this is: 1 or 2. The stored bytes are
//! a dictionary of Zstandard (RFC 8878, section 5), of 1 to 131072 bytes. A unit of kinds 64 to 79 is one frame as under "Codecs" with this dictionary before it, whose number the frame does not tell.
//! Both copies lie in the log before any unit that takes it. A number always means the same bytes: a copy that lies farther on in the log stands where the one before it did, and that
//! is not needed any more. So the log behind a superblock says of dictionaries what it says of blocks.
//!
//! # Dictionary root
//!
//! *block* is 0, *count* 1. The stored bytes are for each number, from 0 on, the positions of its first and of its second copy, 5 bytes each. It is there only where there are dictionaries.
//!
//! # Opening a volume
//!
//! Extents are read from the heads of the superblock on, at each time from the one where the extent lies that has the next number, as long as there is one and all its checksums are right; where the last extent of a segment was read that head goes on in the segment it
//! names. What their units say replaces what the map says, and dictionaries those of the superblock. The first number that is at neither head ends the log: its extent was not whole when
//! the machine stopped, and what is behind it was not flushed. (So a log that is damaged later ends there as well.) Nodes and usage in it were for a superblock that was not written any more, and mean nothing.
//!
//! Where the log ends there may be extents of the next opening, the first of which has a number of which the upper 24 bits are one more and the others 0: nodes and usage, which are written before
//! the superblock. Where there are blocks among them the superblock of that opening was damaged, and a reader says so.
//!
//! Then a superblock is written with a number
//! that counts one more opening: what is left over behind the head is never taken for a part of the log.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::codec::Codec;
use crate::error::{Error, Place, Result};
use crate::wire::{Put, Take, crc32c_of};

/// Bytes of a block: the smallest piece that the map leads to.
pub(super) const BLOCK: usize = 4096;
/// What every position is a multiple of.
pub(super) const ALIGN: u64 = 8;
/// Positions that a node has, and segments of a usage page.
pub(super) const FAN: usize = 1024;
pub(super) const FAN_BITS: u32 = FAN.ilog2();
/// Bytes of a position.
pub(super) const ENTRY: usize = 5;
pub(super) const ENTRY_BITS: u32 = 8 * ENTRY as u32;
pub(super) const MAX_BLOCKS: u64 = 1 << 40;
/// A snapshot has the number of its superblock, in the room of that of a block.
const MAX_GENERATION: u64 = 1 << 39;
pub(super) const SUPERBLOCK_LEN: usize = 120;
/// Each twice, so that damage to one does not lead back to an older one; in sectors of their own.
pub(super) const SUPERBLOCKS: [[u64; 2]; 2] = [[4096, 12_288], [8192, 16_384]];
pub(super) const EXTENT_HEAD: usize = 24;
pub(super) const FRAGMENT_HEAD: usize = 16;
/// Bytes of fragments in an extent.
pub(super) const MAX_EXTENT: usize = 1 << 20;
pub(super) const SEGMENT_BITS: std::ops::RangeInclusive<u8> = 16..=26;
/// Blocks that a fragment of zeros stands for, and one of a pattern: of these each takes a place in the map.
pub(super) const MAX_COUNT: u64 = (1 << 24) - 1;
pub(super) const MAX_PATTERN: u64 = 4096;
pub(super) const MAX_UNIT: usize = 32;
/// Dictionaries that a volume may have in all its time, and bytes of one.
pub(super) const DICTIONARIES: usize = 16;
pub(super) const MAX_DICTIONARY: usize = 128 << 10;
/// From this kind on a unit takes a dictionary.
const TRAINED: u8 = 64;
/// Blocks of a region of the map, as a power of two: the device has the first, and each clone has one. What a clone shares with its snapshot has the
/// numbers of where it was written: they differ by whole regions.
pub(super) const REGION_BITS: u32 = 3 * FAN_BITS;

/// Of a number in one region and one in another: by how much it is more, as if they were in the same.
pub(super) fn beyond(number: u64, other: u64) -> u64 {
    number.wrapping_sub(other) & ((1 << REGION_BITS) - 1)
}

/// Whether two nodes of a level have the same place in their regions.
pub(super) fn is_same_place(level: u32, number: u64, other: u64) -> bool {
    match REGION_BITS.checked_sub(FAN_BITS * (level + 1)) {
        Some(bits) => (number ^ other) & ((1 << bits) - 1) == 0,
        None => number == other,
    }
}

/// The lower bits of an extent's number.
pub(super) const EPOCH_SHIFT: u32 = 40;

const MAGIC: [u8; 8] = *b"fichevol";

/// Where the log and everything that is not in it begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub tag: u32,
    pub generation: u64,
    pub blocks: u64,
    pub segment_bits: u8,
    pub codec: Codec,
    pub level: i8,
    pub unit: u8,
    pub most_segments: u32,
    pub segments: u32,
    pub next: u64,
    /// Of each [`Stream`]; 0 for one that there is not.
    pub heads: [u64; 2],
    pub map: u64,
    pub usage: u64,
    pub snapshots: u64,
    pub dictionaries: u64,
    pub clones: u64,
}

impl Superblock {
    /// Blocks that the map may lead to: where there are clones, those of all regions.
    pub fn mapped(&self) -> u64 {
        if self.clones > 0 { MAX_BLOCKS } else { self.blocks }
    }

    pub fn put(&self, pos: u64) -> Vec<u8> {
        let mut rest = Vec::with_capacity(SUPERBLOCK_LEN);
        rest.put_u32(self.tag);
        rest.put_u64(self.generation);
        rest.put_u64(self.blocks);
        rest.put(&[self.segment_bits, self.codec as u8, self.level.cast_unsigned(), self.unit]);
        rest.put_u32(self.most_segments);
        rest.put_u32(self.segments);
        rest.put_u32(0);
        let [head, second] = self.heads;
        let roots = [self.snapshots, self.dictionaries, self.clones];
        let places = [self.next, head, self.map, self.usage, second].into_iter().chain(roots);
        places.for_each(|value| rest.put_u64(value));
        rest.resize(SUPERBLOCK_LEN - 12, 0);
        let mut bytes = MAGIC.to_vec();
        bytes.put_u32(crc32c_of(&[&pos.to_le_bytes(), &rest]));
        bytes.put(&rest);
        bytes
    }

    /// The one that lies at `pos`.
    pub fn parse(bytes: &[u8], pos: u64) -> Result<Superblock> {
        let mut take = Take::new(bytes, "superblock", pos);
        let (magic, checksum) = (take.bytes(8)?, take.u32()?);
        let rest = take.clone().bytes(SUPERBLOCK_LEN - 12)?;
        if magic != MAGIC || checksum != crc32c_of(&[&pos.to_le_bytes(), rest]) {
            return Err(take.corrupt());
        }
        let (tag, generation, blocks) = (take.u32()?, take.u64()?, take.u64()?);
        let (segment_bits, codec, level, unit) = (take.u8()?, take.u8()?, take.u8()?, take.u8()?);
        let (most_segments, segments, reserved) = (take.u32()?, take.u32()?, take.u32()?);
        let (next, head, map, usage) = (take.u64()?, take.u64()?, take.u64()?, take.u64()?);
        let (heads, snapshots, dictionaries) = ([head, take.u64()?], take.u64()?, take.u64()?);
        let clones = take.u64()?;
        let is_zero = reserved == 0 && take.bytes(8)?.iter().all(|&byte| byte == 0);
        let codec = unit_codec(codec).ok_or_else(|| take.corrupt())?;
        let superblock = Superblock {
            tag,
            generation,
            blocks,
            segment_bits,
            codec,
            level: level.cast_signed(),
            unit,
            most_segments,
            segments,
            next,
            heads,
            map,
            usage,
            snapshots,
            dictionaries,
            clones,
        };
        match is_zero && superblock.makes_sense() {
            true => Ok(superblock),
            false => Err(take.corrupt()),
        }
    }

    fn makes_sense(&self) -> bool {
        let [head, second] = self.heads;
        let end = || u64::from(self.segments) << self.segment_bits;
        SEGMENT_BITS.contains(&self.segment_bits)
            && (1..=MAX_BLOCKS).contains(&self.blocks)
            && self.generation <= MAX_GENERATION
            && (1..=MAX_UNIT).contains(&usize::from(self.unit))
            && usize::from(self.unit) * BLOCK * 2 <= 1 << self.segment_bits
            && self.codec.check_level(self.level.into()).is_ok()
            && (1..=self.most_segments).contains(&self.segments)
            && end() <= ALIGN << ENTRY_BITS
            && (self.clones == 0 || self.blocks <= 1 << REGION_BITS)
            && [head, second, self.map, self.usage, self.snapshots, self.dictionaries, self.clones]
                .iter()
                .all(|&pos| pos % ALIGN == 0 && pos < end())
            && head >> self.segment_bits > 0
            && (second == 0
                || ![0, head >> self.segment_bits].contains(&(second >> self.segment_bits)))
    }
}

/// Where an extent is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// What is written, and the map.
    Hot,
    /// What the cleaner moves: it was not written for a while, and will not be soon.
    Cold,
}

impl Stream {
    pub const ALL: [Stream; 2] = [Stream::Hot, Stream::Cold];
}

/// How a unit is stored: in a codec, or by Zstandard with the dictionary of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain(Codec),
    Trained(u8),
}

/// The codecs in which units may be stored.
pub(super) fn unit_codec(number: u8) -> Option<Codec> {
    let codecs = [Codec::Copy, Codec::Lz4, Codec::Deflate, Codec::Zstd, Codec::Lzo];
    codecs.into_iter().find(|codec| *codec as u8 == number)
}

/// What is before the fragments of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentHead {
    pub len: u32,
    pub number: u64,
    pub fragments: u16,
    /// The next segment, or the checksum of the checksums of the fragments: an extent of which only the head was written is none, although there may be fragments
    /// behind it, of what was there before.
    pub link: u32,
}

impl ExtentHead {
    /// Where the one behind it lies, if it lies at `pos`.
    pub fn end(&self, pos: u64) -> u64 {
        (pos + EXTENT_HEAD as u64 + u64::from(self.len)).next_multiple_of(ALIGN)
    }

    /// Of fragments that begin at these places.
    pub fn link_of(bytes: &[u8], places: impl Iterator<Item = usize>) -> u32 {
        let checksums = places.filter_map(|at| bytes.get(at..at + 4));
        crc32c_of(&checksums.collect::<Vec<_>>())
    }

    pub fn put(&self, tag: u32, pos: u64) -> Vec<u8> {
        let mut rest = Vec::with_capacity(EXTENT_HEAD);
        rest.put_u32(self.len);
        rest.put_u64(self.number);
        rest.put_u16(self.fragments);
        rest.put_u16(0);
        rest.put_u32(self.link);
        let mut bytes = Vec::with_capacity(EXTENT_HEAD);
        bytes.put_u32(crc32c_of(&[&tag.to_le_bytes(), &pos.to_le_bytes(), &rest]));
        bytes.put(&rest);
        bytes
    }

    pub fn parse(bytes: &[u8], tag: u32, pos: u64) -> Result<ExtentHead> {
        let mut take = Take::new(bytes, "extent", pos);
        let checksum = take.u32()?;
        let rest = take.clone().bytes(EXTENT_HEAD - 4)?;
        let (len, number, fragments) = (take.u32()?, take.u64()?, take.u16()?);
        let (reserved, link) = (take.u16()?, take.u32()?);
        let is_right = checksum == crc32c_of(&[&tag.to_le_bytes(), &pos.to_le_bytes(), rest]);
        let is_link = fragments == 0 && len == 0;
        let is_plain = fragments > 0 && len as usize <= MAX_EXTENT;
        match is_right && reserved == 0 && (is_link || is_plain) {
            true => Ok(ExtentHead { len, number, fragments, link }),
            false => Err(Error::Corrupt { what: "extent", at: Place::Pos(pos) }),
        }
    }
}

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unit(Coding),
    Pattern,
    Zeros,
    Node,
    UsagePage,
    UsageRoot,
    Snapshot,
    SnapshotRoot,
    /// A copy of one, of which *count* is 1 or 2.
    Dictionary,
    DictionaryRoot,
    Clones,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Unit(Coding::Plain(codec)) => codec as u8,
            Kind::Unit(Coding::Trained(number)) => TRAINED + number,
            Kind::Pattern => 16,
            Kind::Zeros => 17,
            Kind::Node => 32,
            Kind::UsagePage => 33,
            Kind::UsageRoot => 34,
            Kind::Snapshot => 35,
            Kind::SnapshotRoot => 36,
            Kind::Dictionary => 37,
            Kind::DictionaryRoot => 38,
            Kind::Clones => 39,
        }
    }

    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            16 => Kind::Pattern,
            17 => Kind::Zeros,
            32 => Kind::Node,
            33 => Kind::UsagePage,
            34 => Kind::UsageRoot,
            35 => Kind::Snapshot,
            36 => Kind::SnapshotRoot,
            37 => Kind::Dictionary,
            38 => Kind::DictionaryRoot,
            39 => Kind::Clones,
            TRAINED.. => {
                let number = Some(number - TRAINED).filter(|&it| usize::from(it) < DICTIONARIES)?;
                Kind::Unit(Coding::Trained(number))
            }
            _ => Kind::Unit(Coding::Plain(unit_codec(number)?)),
        })
    }
}

/// What is before the stored bytes of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragmentHead {
    pub block: u64,
    pub count: u32,
    pub len: u32,
    pub kind: Kind,
    checksum: u32,
}

impl FragmentHead {
    /// Appends a fragment, and zeros up to where the next one starts.
    pub fn put(tag: u32, kind: Kind, block: u64, count: u32, stored: &[u8], out: &mut Vec<u8>) {
        debug_assert!(
            block < MAX_BLOCKS && u64::from(count) <= MAX_COUNT && stored.len() >> 24 == 0
        );
        let mut rest = Vec::with_capacity(FRAGMENT_HEAD);
        rest.put(block.to_le_bytes().get(..5).unwrap_or_default());
        rest.put(count.to_le_bytes().get(..3).unwrap_or_default());
        rest.put((stored.len() as u32).to_le_bytes().get(..3).unwrap_or_default());
        rest.put_u8(kind.number());
        out.put_u32(crc32c_of(&[&tag.to_le_bytes(), &rest, stored]));
        out.put(&rest);
        out.put(stored);
        out.resize(out.len().next_multiple_of(ALIGN as usize), 0);
    }

    /// The head alone: only [`verify`](FragmentHead::verify) tells whether it is one.
    pub fn parse(bytes: &[u8], pos: u64) -> Result<FragmentHead> {
        let mut take = Take::new(bytes, "fragment", pos);
        let checksum = take.u32()?;
        let block = take.low(5)?;
        let (count, len) = (take.low(3)? as u32, take.low(3)? as u32);
        let kind = Kind::of(take.u8()?).ok_or_else(|| take.corrupt())?;
        let is_sound = match kind {
            Kind::Unit(_) => (1..=MAX_UNIT as u32).contains(&count) && len > 0,
            Kind::Pattern => (1..=MAX_PATTERN as u32).contains(&count) && len == 8,
            Kind::Zeros => count > 0 && len == 0,
            Kind::Dictionary => {
                block < DICTIONARIES as u64
                    && (1..=2).contains(&count)
                    && (1..=MAX_DICTIONARY as u32).contains(&len)
            }
            Kind::Node
            | Kind::UsagePage
            | Kind::UsageRoot
            | Kind::Snapshot
            | Kind::SnapshotRoot
            | Kind::DictionaryRoot
            | Kind::Clones => count > 0,
        };
        match is_sound && len as usize <= MAX_EXTENT {
            true => Ok(FragmentHead { block, count, len, kind, checksum }),
            false => Err(Error::Corrupt { what: "fragment", at: Place::Pos(pos) }),
        }
    }

    /// Whether these are its bytes, from the head on.
    pub fn verify(&self, tag: u32, bytes: &[u8]) -> bool {
        let end = FRAGMENT_HEAD + self.len as usize;
        let covered = bytes.get(4..end);
        covered.is_some_and(|covered| crc32c_of(&[&tag.to_le_bytes(), covered]) == self.checksum)
    }

    /// Bytes that it takes, with the zeros behind it.
    pub fn stored_len(&self) -> usize {
        (FRAGMENT_HEAD + self.len as usize).next_multiple_of(ALIGN as usize)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_no_bit_of_it_may_differ() {
        let superblock = Superblock {
            tag: 7,
            generation: 3,
            blocks: 1 << 40,
            segment_bits: 22,
            codec: Codec::Zstd,
            level: -5,
            unit: 4,
            most_segments: 70,
            segments: 66,
            next: 1 << 41,
            heads: [5 << 22, (6 << 22) + 8],
            map: 0,
            usage: 65 << 22,
            snapshots: 64 << 22,
            dictionaries: 63 << 22,
            clones: 0,
        };
        let bytes = superblock.put(4096);
        assert_eq!(bytes.len(), SUPERBLOCK_LEN);
        assert_eq!(Superblock::parse(&bytes, 4096).unwrap(), superblock);
        assert!(Superblock::parse(&bytes, 8192).is_err());
        for (second, is_right) in [
            (0, true),
            (7 << 22, true),
            (4 << 22 | 12, false),
            (5 << 22 | 8, false),
            (8, false),
            (66 << 22, false),
        ] {
            let other = Superblock { heads: [5 << 22, second], ..superblock.clone() };
            assert_eq!(Superblock::parse(&other.put(4096), 4096).is_ok(), is_right, "{second:#x}");
        }
        let head = ExtentHead { len: 96, number: 77, fragments: 2, link: 5 };
        let extent = head.put(7, 1 << 22);
        assert_eq!(extent.len(), EXTENT_HEAD);
        assert_eq!(ExtentHead::parse(&extent, 7, 1 << 22).unwrap(), head);
        assert!(ExtentHead::parse(&extent, 8, 1 << 22).is_err());
        let mut fragment = Vec::new();
        FragmentHead::put(
            7,
            Kind::Unit(Coding::Plain(Codec::Lz4)),
            1 << 39,
            3,
            b"stored",
            &mut fragment,
        );
        let parsed = FragmentHead::parse(&fragment, 0).unwrap();
        assert_eq!((parsed.block, parsed.count, parsed.len), (1 << 39, 3, 6));
        assert!(parsed.verify(7, &fragment) && parsed.stored_len() == fragment.len());
        assert!(!parsed.verify(8, &fragment) && !parsed.verify(7, &fragment[..21]));
        for bit in 0..8 * SUPERBLOCK_LEN {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::parse(&damaged, 4096).is_err(), "bit {bit} of a superblock");
        }
        for bit in 0..8 * EXTENT_HEAD {
            let mut damaged = extent.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(ExtentHead::parse(&damaged, 7, 1 << 22).is_err(), "bit {bit} of an extent");
        }
        for bit in 0..8 * (FRAGMENT_HEAD + 6) {
            let mut damaged = fragment.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let passes = FragmentHead::parse(&damaged, 0).is_ok_and(|f| f.verify(7, &damaged));
            assert!(!passes, "bit {bit} of a fragment");
        }
    }
}
