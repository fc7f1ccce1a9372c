//! From blocks to the fragments of extents, and back.

use std::ops::Range;
use std::sync::Arc;

use crate::codec::prepared::Encoding;
use crate::codec::{Codec, Scratch};
use crate::error::{Error, Place, Result};
use crate::parallel::in_parts;
use crate::volume::dictionary::Dictionaries;
use crate::volume::format::{
    BLOCK, Coding, EXTENT_HEAD, FRAGMENT_HEAD, FragmentHead, Kind, MAX_COUNT, MAX_EXTENT,
    MAX_PATTERN,
};

/// A dictionary that units are packed with, and its number.
#[derive(Clone)]
pub(super) struct With {
    pub number: u8,
    pub encoding: Arc<Encoding>,
}

/// How blocks are packed.
#[derive(Clone)]
pub(super) struct Packing {
    pub tag: u32,
    pub codec: Codec,
    pub level: i32,
    /// Blocks of a unit, at most.
    pub unit: usize,
    /// Of one that is packed when nobody asks for anything.
    pub cold: usize,
    /// Bytes of an extent, unless one fragment is longer.
    pub extent: usize,
    pub threads: usize,
    /// Of Zstandard, if there is one.
    pub with: Option<With>,
}

/// A fragment of a draft.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where it starts in the bytes of the draft.
    pub at: usize,
    pub block: u64,
    pub count: u32,
    pub kind: Kind,
}

impl Part {
    /// Whether the map leads to it.
    pub fn is_led_to(&self) -> bool {
        matches!(self.kind, Kind::Unit(_) | Kind::Pattern)
    }
}

/// An extent that has no place yet: room for its head, and fragments.
#[derive(Default)]
pub(super) struct Draft {
    pub bytes: Vec<u8>,
    pub parts: Vec<Part>,
}

impl Draft {
    /// Makes room for the head, and for a fragment of so many stored bytes.
    fn begin(&mut self, len: usize) {
        self.bytes.reserve(EXTENT_HEAD + FRAGMENT_HEAD + len + 8);
        self.bytes.resize(self.bytes.len().max(EXTENT_HEAD), 0);
    }

    /// Adds a fragment as it lies in another extent: its checksum is not of its place.
    pub fn push_whole(&mut self, head: &FragmentHead, fragment: &[u8]) {
        self.begin(fragment.len());
        let (at, block, count) = (self.bytes.len(), head.block, head.count);
        self.parts.push(Part { at, block, count, kind: head.kind });
        self.bytes.extend_from_slice(fragment);
    }

    /// Whether a fragment of so many stored bytes is to go into another extent.
    pub fn is_full_for(&self, len: usize, limit: usize) -> bool {
        let fragments = self.bytes.len().saturating_sub(EXTENT_HEAD);
        let needed = (len + FRAGMENT_HEAD).next_multiple_of(8);
        !self.parts.is_empty()
            && (fragments + needed > limit.min(MAX_EXTENT)
                || self.parts.len() >= usize::from(u16::MAX))
    }

    /// Adds a fragment that was stored before, or is to be.
    pub fn push(&mut self, tag: u32, kind: Kind, block: u64, count: u32, stored: &[u8]) {
        self.begin(stored.len());
        self.parts.push(Part { at: self.bytes.len(), block, count, kind });
        FragmentHead::put(tag, kind, block, count, stored, &mut self.bytes);
    }
}

/// Blocks that are packed together.
struct Unit {
    kind: Kind,
    /// Which of the blocks that were given.
    blocks: Range<usize>,
    stored: Vec<u8>,
}

/// As it is.
const RAW: Kind = Kind::Unit(Coding::Plain(Codec::Copy));

/// What a block is, as far as one look tells.
fn kind_of(block: &[u8]) -> Kind {
    match block[8..] == block[..BLOCK - 8] {
        true if block[..8] == [0; 8] => Kind::Zeros,
        true => Kind::Pattern,
        false => RAW,
    }
}

/// Cuts blocks into units that are not packed yet.
fn units(bytes: &[u8], most: usize) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (i, block) in bytes.chunks_exact(BLOCK).enumerate() {
        let kind = kind_of(block);
        let joins = |last: &Unit| {
            last.kind == kind
                && match kind {
                    Kind::Zeros => (last.blocks.len() as u64) < MAX_COUNT,
                    Kind::Pattern => {
                        last.stored == block[..8] && (last.blocks.len() as u64) < MAX_PATTERN
                    }
                    _ => last.blocks.len() < most,
                }
        };
        match units.last_mut().filter(|last| joins(last)) {
            Some(last) => last.blocks.end = i + 1,
            None => {
                let stored = if kind == Kind::Pattern { block[..8].to_vec() } else { Vec::new() };
                units.push(Unit { kind, blocks: i..i + 1, stored });
            }
        }
    }
    units
}

/// Whether bytes are so evenly spread that a codec would find nothing. Of `n` bytes of noise, how often each comes, squared and summed up,
/// is `n + n * n / 256`; of what shrinks to 90 % a fifth more.
pub(super) fn looks_random(bytes: &[u8]) -> bool {
    const SAMPLE: usize = 512;
    let mut counts = [0u16; 256];
    // An odd step: else all might be the lowest bytes of numbers.
    let sample = bytes.iter().step_by((bytes.len() / SAMPLE) | 1);
    let (n, mut squares) = (sample.len(), 0);
    for &byte in sample {
        // The next square is that much more.
        let count = &mut counts[usize::from(byte)];
        squares += usize::from(*count) * 2 + 1;
        *count += 1;
    }
    squares * 256 * 10 < (256 * n + n * n) * 11
}

impl Unit {
    fn pack(
        &mut self,
        bytes: &[u8],
        packing: &Packing,
        scratch: &mut Scratch,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        if self.kind != RAW {
            return Ok(());
        }
        let bytes = &bytes[self.blocks.start * BLOCK..self.blocks.end * BLOCK];
        // What saves nothing after all is stored as it is: it is read faster.
        let room = bytes.len() - bytes.len() / 32;
        if packing.codec != Codec::Copy && !looks_random(bytes) {
            stored.resize(stored.len().max(room), 0);
            let dst = &mut stored[..room];
            let (coding, len) = match &packing.with {
                Some(With { number, encoding }) => {
                    (Coding::Trained(*number), scratch.compress_with(encoding, bytes, dst)?)
                }
                None => {
                    let (codec, src) = (packing.codec, bytes.into());
                    (Coding::Plain(codec), codec.compress(packing.level, src, dst.into(), scratch)?)
                }
            };
            if let Some(len) = len {
                self.kind = Kind::Unit(coding);
                self.stored = stored[..len].to_vec();
                return Ok(());
            }
        }
        self.stored = bytes.to_vec();
        Ok(())
    }
}

/// Packs blocks, the first of which has this number, into extents: on several threads where there are many.
pub(super) fn draft(
    first: u64,
    bytes: &[u8],
    packing: &Packing,
    scratch: &mut Scratch,
    stored: &mut Vec<u8>,
) -> Result<Vec<Draft>> {
    /// Units that are worth a thread.
    const WORTH: usize = 8;
    let mut units = units(bytes, packing.unit);
    let threads = packing.threads.min(units.len() / WORTH);
    if threads > 1 {
        let pack = |units: &mut [Unit]| -> Result<()> {
            let (mut scratch, mut stored) = (Scratch::default(), Vec::new());
            let mut pack = |unit: &mut Unit| unit.pack(bytes, packing, &mut scratch, &mut stored);
            units.iter_mut().try_for_each(&mut pack)
        };
        in_parts(threads, &mut units, pack).into_iter().collect::<Result<()>>()?;
    } else {
        units.iter_mut().try_for_each(|unit| unit.pack(bytes, packing, scratch, stored))?;
    }
    let mut drafts = vec![Draft::default()];
    for unit in units {
        if drafts.last().is_some_and(|last| last.is_full_for(unit.stored.len(), packing.extent)) {
            drafts.push(Draft::default());
        }
        if let Some(last) = drafts.last_mut() {
            let (block, count) = (first + unit.blocks.start as u64, unit.blocks.len() as u32);
            last.push(packing.tag, unit.kind, block, count, &unit.stored);
        }
    }
    Ok(drafts)
}

/// What is damaged where a unit is whole and its dictionary is not.
pub(super) const DICTIONARY: &str = "dictionary";

/// Fills `dst` with blocks of a fragment, from its block `skip` on; if these are not all of a unit, `room` has them all. `stored` was verified.
pub(super) fn unpack(
    head: &FragmentHead,
    stored: &[u8],
    skip: usize,
    dst: &mut [u8],
    room: &mut Vec<u8>,
    dictionaries: &Dictionaries,
    scratch: &mut Scratch,
) -> Result<()> {
    let len = head.count as usize * BLOCK;
    let mut decode = |coding: Coding, dst: &mut [u8]| match coding {
        Coding::Plain(codec) => codec.decompress(stored.into(), dst.into(), scratch),
        Coding::Trained(number) => {
            let corrupt = |what| Error::Corrupt { what, at: Place::Pos(0) };
            let dictionary = dictionaries.get(number).ok_or_else(|| corrupt(DICTIONARY))?;
            let done = scratch.decompress_with(&dictionary.decoding, stored, dst);
            done.ok_or_else(|| corrupt("unit"))
        }
    };
    match head.kind {
        Kind::Unit(coding) if skip == 0 && dst.len() == len => decode(coding, dst),
        Kind::Unit(coding) => {
            room.resize(len, 0);
            decode(coding, room)?;
            dst.copy_from_slice(&room[skip * BLOCK..][..dst.len()]);
            Ok(())
        }
        Kind::Pattern => {
            dst.chunks_mut(8).for_each(|word| word.copy_from_slice(&stored[..word.len()]));
            Ok(())
        }
        Kind::Zeros => {
            dst.fill(0);
            Ok(())
        }
        _ => Err(Error::Corrupt { what: "unit", at: Place::Pos(0) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::volume::format::unit_codec;

    #[test]
    fn only_noise_looks_like_noise() {
        let mut random = Random(9);
        for len in [4096, 16_384, 131_072] {
            let noise: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            assert!(looks_random(&noise), "{len}");
            let numbers: Vec<u8> = (0..len as u64 / 8)
                .flat_map(|i| (i << 40 | random.below(1 << 32)).to_le_bytes())
                .collect();
            assert!(!looks_random(&numbers), "numbers in {len}");
            let text: Vec<u8> = (0..len).map(|_| b'!' + random.below(64) as u8).collect();
            assert!(!looks_random(&text), "text in {len}");
        }
    }

    #[test]
    fn blocks_are_what_they_were_however_they_are_packed() {
        let mut random = Random(5);
        let mut bytes = Vec::new();
        for i in 0..90 {
            let block: Vec<u8> = match i % 9 {
                0 | 1 => vec![0; BLOCK],
                2 | 3 => b"patterns".repeat(BLOCK / 8),
                4 => (0..BLOCK).map(|_| random.below(256) as u8).collect(),
                _ => (0..BLOCK).map(|_| b"etaoin shrdlu"[random.below(13) as usize]).collect(),
            };
            bytes.extend(block);
        }
        for (number, unit, extent, threads) in [
            (0, 1, 100, 1),
            (1, 4, 16 << 10, 2),
            (2, 32, 32 << 10, 1),
            (3, 3, 64 << 10, 3),
            (8, 4, 16 << 10, 1),
        ] {
            let codec = unit_codec(number).unwrap();
            let level = codec.default_level();
            let packing =
                Packing { tag: 9, codec, level, unit, cold: unit, extent, threads, with: None };
            let (mut scratch, none) = (Scratch::default(), Dictionaries::default());
            let drafts = draft(50, &bytes, &packing, &mut scratch, &mut Vec::new()).unwrap();
            let (mut next, mut size) = (50, 0);
            for draft in &drafts {
                size += draft.bytes.len();
                assert!(draft.parts.len() == 1 || draft.bytes.len() <= EXTENT_HEAD + extent);
                for part in &draft.parts {
                    let fragment = &draft.bytes[part.at..];
                    let head = FragmentHead::parse(fragment, 0).unwrap();
                    assert!(head.verify(9, fragment) && head.block == next);
                    let stored = &fragment[FRAGMENT_HEAD..][..head.len as usize];
                    let (count, mut room) = (head.count as usize, Vec::new());
                    for skip in 0..count {
                        for end in [skip + 1, count] {
                            let mut dst = vec![0xAA; (end - skip) * BLOCK];
                            unpack(&head, stored, skip, &mut dst, &mut room, &none, &mut scratch)
                                .unwrap();
                            let from = (next - 50) as usize + skip;
                            assert!(dst == bytes[from * BLOCK..][..dst.len()]);
                        }
                    }
                    next += u64::from(head.count);
                }
            }
            assert_eq!(next, 140);
            let all = bytes.len();
            // 5 blocks of 9 are neither zeros nor patterns, one of those is noise, and the others shrink to half where
            // bits are counted.
            let most = if number < 2 { 60 } else { 46 };
            assert!(size > all / 10 && size < all * most / 100, "{size} of {all}");
        }
    }
}
