//! Making a volume, and opening one: from the last superblock on, what the log says.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, RwLock};

use crate::codec::{Codec, Scratch};
use crate::envelope::{Container, header, read_header};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, within};
use crate::parallel::default_threads;
use crate::random::Random;
use crate::volume::Volume;
use crate::volume::clones::{self, Clones};
use crate::volume::device::Device;
use crate::volume::dictionary::{self, Dictionaries};
use crate::volume::flush::Flushes;
use crate::volume::format::{
    ALIGN, BLOCK, EPOCH_SHIFT, EXTENT_HEAD, ExtentHead, FAN_BITS, FragmentHead, Kind, MAX_EXTENT,
    MAX_UNIT, SEGMENT_BITS, SUPERBLOCK_LEN, SUPERBLOCKS, Stream, Superblock,
};
use crate::volume::log::{Ahead, From, Log, Storing, check_codec, read_meta};
use crate::volume::map::NODE_MEMORY;
use crate::volume::read::View;
use crate::volume::room::{MOST_DIRTY, check_len, most_segments};
use crate::volume::snapshot;
use crate::volume::space::{Space, parse_root};
use crate::volume::stats::Counts;
use crate::volume::unit::{Packing, Part};

/// Bytes of the map in memory by itself, and at least.
pub(super) const MEMORY: u64 = 64 << 20;
const LEAST_MEMORY: u64 = 1 << 20;
const WHAT: &str = "the map of this volume in memory";

/// How a volume is made.
#[derive(Clone, Debug)]
pub struct Options {
    len: u64,
    codec: Codec,
    level: Option<i32>,
    unit: usize,
    segment_bits: Option<u8>,
    capacity: Option<u64>,
}

impl Options {
    /// A device of so many bytes: a multiple of 4096.
    #[must_use]
    pub fn new(len: u64) -> Options {
        let (codec, unit) = (Codec::Zstd, 16 << 10);
        Options { len, codec, level: None, unit, segment_bits: None, capacity: None }
    }

    /// What blocks are compressed by: copy (not at all), lz4, zlib, lzo or zstd. Zstandard by itself.
    #[must_use]
    pub fn codec(self, codec: Codec) -> Options {
        Options { codec, ..self }
    }

    /// Its level.
    #[must_use]
    pub fn level(self, level: i32) -> Options {
        Options { level: Some(level), ..self }
    }

    /// Bytes that are compressed together at most, where so many are written at once: 4 to 128 KiB, 16 KiB by
    /// itself. Longer ones shrink more, and each is decoded whole to read any block of it.
    #[must_use]
    pub fn unit(self, bytes: usize) -> Options {
        Options { unit: bytes, ..self }
    }

    /// Bytes that the volume takes on its device at most; by itself as many as are enough whatever is written.
    #[must_use]
    pub fn capacity(self, bytes: u64) -> Options {
        Options { capacity: Some(bytes), ..self }
    }

    /// Length of a segment, as a power of two from 16 to 26: 64 KiB to 64 MiB; by itself 4 MiB, and less for small volumes.
    #[must_use]
    pub fn segment_bits(self, bits: u8) -> Options {
        Options { segment_bits: Some(bits), ..self }
    }

    fn superblock(&self) -> Result<Superblock> {
        let blocks = check_len(self.len)?;
        let unit = self.unit / BLOCK;
        if !self.unit.is_multiple_of(BLOCK) || !(1..=MAX_UNIT).contains(&unit) {
            return Err(Error::invalid("a unit is a multiple of 4 KiB, up to 128 KiB"));
        }
        let level = self.level.unwrap_or(match self.codec {
            Codec::Zstd => 1,
            codec => codec.default_level(),
        });
        check_codec(self.codec, level)?;
        // 512 of them, so that those that are cleaned and kept are a small part.
        let fitting = (self.len / 512).max(1).ilog2() as u8;
        // Units have to fit in well.
        let least = if unit > 4 { 19 } else { 17 };
        let bits = self.segment_bits.unwrap_or(fitting.clamp(least, 22));
        if !SEGMENT_BITS.contains(&bits) || (self.unit as u64 * 2) > 1 << bits {
            return Err(Error::invalid("a segment has 2^16 to 2^26 bytes, and room for two units"));
        }
        Ok(Superblock {
            tag: 0,
            generation: 0,
            blocks,
            segment_bits: bits,
            codec: self.codec,
            level: level as i8,
            unit: unit as u8,
            most_segments: most_segments(blocks, bits, unit, self.capacity)?,
            segments: 2,
            next: 1 << EPOCH_SHIFT,
            heads: [1 << bits, 0],
            map: 0,
            usage: 0,
            snapshots: 0,
            dictionaries: 0,
            clones: 0,
        })
    }
}

/// A device, as far as it can be read like any other source.
pub(super) struct Source<'a> {
    pub device: &'a dyn Device,
    pub len: u64,
}

impl ReadAt for Source<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        within(offset, buf.len(), self.len)?;
        Ok(self.device.read_at(offset, buf)?)
    }
}

/// An extent of the log that was found.
struct Next {
    stream: Stream,
    pos: u64,
    head: ExtentHead,
    parts: Vec<Part>,
}

impl Next {
    /// Where the next one of its stream lies.
    fn end(&self, bits: u8) -> u64 {
        match self.head.fragments {
            0 => u64::from(self.head.link) << bits,
            _ => self.head.end(self.pos),
        }
    }
}

impl Volume {
    /// Makes a volume on an empty device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that make no sense, or when the device is not empty; [`Error::Limit`] for one that
    /// cannot be as long or is given less room than it needs empty; [`Error::Io`].
    pub fn create(device: impl Device + 'static, options: Options) -> Result<Volume> {
        let mut superblock = options.superblock()?;
        if !device.is_empty()? {
            return Err(Error::invalid(
                "there is something on this device already: its first MiB is not zero",
            ));
        }
        superblock.tag = fresh_tag();
        let first = u64::from(superblock.segments) << superblock.segment_bits;
        device.allocate(0..first)?;
        let volume = Volume::over(Box::new(device), superblock, MEMORY);
        let mut log = super::locked(&volume.log);
        let kept = volume.kept(&log);
        volume.keep_room(&mut log)?;
        if log.space.free_len() < kept {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        // The header is last: what has none is no volume.
        volume.checkpoint(&mut log)?;
        let write = || {
            volume.device.write_at(0, &header(Container::Volume))?;
            volume.device.sync()
        };
        write()?;
        drop(log);
        Ok(volume)
    }

    /// Opens a volume as [`OpenOptions::open`] does by itself.
    ///
    /// # Errors
    /// Those of that.
    pub fn open(device: impl Device + 'static) -> Result<Volume> {
        OpenOptions::default().open(device)
    }

    pub(super) fn over(device: Box<dyn Device>, superblock: Superblock, memory: u64) -> Volume {
        let s = &superblock;
        let packing = Packing {
            tag: s.tag,
            codec: s.codec,
            level: s.level.into(),
            unit: s.unit.into(),
            cold: s.unit.into(),
            extent: (32usize << 10).max(usize::from(s.unit) * BLOCK + 64).min(MAX_EXTENT),
            threads: default_threads(),
            with: None,
        };
        let log = Log {
            space: Space::new(s.segment_bits, s.most_segments, s.segments, s.heads),
            pages: Vec::new(),
            root: s.usage / ALIGN,
            snapshots: Vec::new(),
            snapshot_root: s.snapshots / ALIGN,
            clones: Clones::new(s.segment_bits),
            clone_root: s.clones / ALIGN,
            copies: Vec::new(),
            dictionary_root: s.dictionaries / ALIGN,
            next: s.next,
            is_claimed: false,
            since: 0,
            scratch: Scratch::default(),
            superblock: s.clone(),
        };
        Volume {
            device,
            blocks: s.blocks.into(),
            bits: s.segment_bits,
            packing,
            dictionaries: Dictionaries::default(),
            trains: true,
            memory,
            log: Mutex::new(log),
            view: View::new(s.mapped(), s.map / ALIGN),
            appended: AtomicU64::new(0),
            parts: RwLock::new(()),
            flushes: Flushes::default(),
            tender: Mutex::default(),
            storing: Storing::default(),
            counts: Counts::default(),
            is_poisoned: AtomicBool::new(false),
            scratches: Mutex::default(),
        }
    }

    /// Nodes of the map that changed, at most, before they are stored.
    pub(super) fn most_dirty(&self) -> usize {
        ((self.memory / NODE_MEMORY / 2) as usize).min(MOST_DIRTY)
    }

    /// Does again what the log says from the head on.
    fn roll_forward(&self, log: &mut Log) -> Result<()> {
        let mut bytes = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let Some(next) = self.next(log, log.space.heads, &mut bytes)? else {
                return self.check_end(log, &mut bytes);
            };
            let Next { stream, pos, head, parts } = next;
            log.next += 1;
            log.since += 1;
            if head.fragments == 0 {
                let segment = head.link;
                // A log that comes back to where it was is none.
                let is_new = seen.insert(segment) && segment > 0 && !log.space.is_head(segment);
                if !is_new || u64::from(segment) >= u64::from(log.superblock.most_segments) {
                    return Err(Error::Corrupt { what: "extent", at: Place::Pos(pos) });
                }
                log.space.enter(stream, segment);
                continue;
            }
            log.space.heads[stream as usize] = head.end(pos);
            self.apply(log, pos, &parts)?;
            // No volume is written so: it would have stored its map long before.
            if self.map().dirty as u64 * NODE_MEMORY > self.memory {
                return Err(self.needed(log, &mut bytes));
            }
        }
    }

    /// How much memory the rest of the log would take: nodes of which it has blocks stay until they are stored.
    fn needed(&self, log: &mut Log, bytes: &mut Vec<u8>) -> Error {
        let mut leaves: HashSet<u64> = self.map().changed(0).into_iter().collect();
        let mut turns = log.superblock.most_segments;
        let mut heads = log.space.heads;
        while let Ok(Some(next)) = self.next(log, heads, bytes) {
            log.next += 1;
            heads[next.stream as usize] = next.end(log.space.bits);
            turns -= u32::from(next.head.fragments == 0);
            if turns == 0 {
                break;
            }
            for part in next.parts.iter().filter(|part| part.is_led_to()) {
                leaves.extend(
                    part.block >> FAN_BITS..=(part.block + u64::from(part.count) - 1) >> FAN_BITS,
                );
            }
        }
        // Some that are above them as well.
        let need = (leaves.len() as u64 + leaves.len() as u64 / 8 + 8) * NODE_MEMORY;
        Error::Limit { what: WHAT, need, allowed: self.memory }
    }

    /// An opening that was cut off may have stored nodes behind the end. Blocks are written only when its superblock is
    /// there.
    fn check_end(&self, log: &mut Log, bytes: &mut Vec<u8>) -> Result<()> {
        let (number, mut heads) = (log.next, log.space.heads);
        log.next = ((number >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT;
        while let Some(next) = self.next(log, heads, bytes)? {
            if !next.parts.is_empty() {
                return Err(Error::Corrupt {
                    what: "superblock",
                    at: Place::Pos(SUPERBLOCKS[0][0]),
                });
            }
            log.next += 1;
            heads[next.stream as usize] = next.end(log.space.bits);
        }
        log.next = number;
        Ok(())
    }

    /// The next extent, at whichever of these heads it lies.
    fn next(&self, log: &Log, heads: [u64; 2], bytes: &mut Vec<u8>) -> Result<Option<Next>> {
        for (stream, pos) in Stream::ALL.into_iter().zip(heads) {
            if pos > 0
                && let Some((head, parts)) = self.next_extent(log, pos, bytes)?
            {
                return Ok(Some(Next { stream, pos, head, parts }));
            }
        }
        Ok(None)
    }

    /// The extent at a position, if there is one that is right.
    fn next_extent(
        &self,
        log: &Log,
        pos: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(ExtentHead, Vec<Part>)>> {
        let tag = self.packing.tag;
        let end = ((pos >> log.space.bits) + 1) << log.space.bits;
        let end = end.min(self.device.len()?);
        let left = end.saturating_sub(pos);
        if left < EXTENT_HEAD as u64 {
            return Ok(None);
        }
        bytes.resize(EXTENT_HEAD, 0);
        // That it cannot be read is something else than that it is not there.
        self.device.read_at(pos, bytes)?;
        let Ok(head) = ExtentHead::parse(bytes, tag, pos) else { return Ok(None) };
        let len = EXTENT_HEAD + head.len as usize;
        if head.number != log.next || len as u64 > left {
            return Ok(None);
        }
        bytes.resize(len, 0);
        self.device.read_at(pos + EXTENT_HEAD as u64, &mut bytes[EXTENT_HEAD..])?;
        let (mut parts, mut places, mut is_inside) = (Vec::new(), Vec::new(), true);
        let mut at = EXTENT_HEAD;
        for _ in 0..head.fragments {
            places.push(at);
            let fragment = bytes.get(at..).unwrap_or_default();
            let Ok(fragment_head) = FragmentHead::parse(fragment, pos + at as u64) else {
                return Ok(None);
            };
            let FragmentHead { block, count, kind, .. } = fragment_head;
            if !fragment_head.verify(tag, fragment) {
                return Ok(None);
            }
            // Nodes and usage are stored for a superblock that was not written any more.
            let is_of_blocks = matches!(kind, Kind::Unit(_) | Kind::Pattern | Kind::Zeros);
            is_inside &= !is_of_blocks || log.clones.is_inside(block, count, self.blocks());
            if is_of_blocks || kind == Kind::Dictionary {
                parts.push(Part { at, block, count, kind });
            }
            at += fragment_head.stored_len();
        }
        let link = ExtentHead::link_of(bytes, places.into_iter());
        let is_whole = at == len && (head.fragments == 0 || head.link == link);
        match is_whole && !is_inside {
            true => Err(Error::Corrupt { what: "extent", at: Place::Pos(pos) }),
            false => Ok(is_whole.then_some((head, parts))),
        }
    }
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    memory: u64,
    extent: Option<usize>,
    pack: Option<usize>,
    trains: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { memory: MEMORY, extent: None, pack: None, trains: true }
    }
}

impl OpenOptions {
    /// Bytes of the map that are kept in memory at most, from 1 MiB on; 64 MiB by itself. The map of all blocks takes 5 for each of them:
    /// 1.3 GiB for a TiB. Where it is not in memory a read may take one more, of some 3 KiB.
    #[must_use]
    pub fn memory(self, bytes: u64) -> OpenOptions {
        OpenOptions { memory: bytes, ..self }
    }

    /// Bytes of an extent, at most, of those that are written from now on: 8 KiB to 256 KiB, and a 32nd of a segment where that is
    /// more than the 32 KiB, or the one unit if that is longer, that it has by itself. An extent is what is written at once for one
    /// request; reading does not depend on it, which takes the bytes of a unit.
    #[must_use]
    pub fn extent(self, bytes: usize) -> OpenOptions {
        OpenOptions { extent: Some(bytes), ..self }
    }

    /// Bytes that are compressed together, at most, when nobody asks for anything and blocks are packed again: 4 to 128 KiB, by itself as many as those
    /// that are written at once. Longer units shrink more, and each is decoded whole to read any block of it.
    #[must_use]
    pub fn pack(self, bytes: usize) -> OpenOptions {
        OpenOptions { pack: Some(bytes), ..self }
    }

    /// Whether a dictionary is trained from what the volume holds when nobody asks for anything, where that saves a 16th and more, so that short units shrink like
    /// long ones; by itself it is, of volumes that are packed by Zstandard. Those that are there are used anyway: one for new units, and all for
    /// reading. Each takes up to 260 KiB of memory, the one that new units take 1.2 MiB more, and each thread
    /// that packs with it 1.3 MiB (at the levels 1 and 9).
    #[must_use]
    pub fn train(self, trains: bool) -> OpenOptions {
        OpenOptions { trains, ..self }
    }

    /// Opens a volume for reading and writing, and makes good what a crash left: reads the log from the last superblock on, up to
    /// some 256 MiB, and writes a new one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no volume, [`Error::Unsupported`] for a newer version, [`Error::Corrupt`] where both superblocks
    /// or what they lead to are damaged, [`Error::Limit`] when the map needs more memory, [`Error::Io`].
    pub fn open(self, device: impl Device + 'static) -> Result<Volume> {
        if self.memory < LEAST_MEMORY {
            return Err(Error::Limit { what: WHAT, need: LEAST_MEMORY, allowed: self.memory });
        }
        if self.extent.is_some_and(|bytes| !(8 << 10..=256 << 10).contains(&bytes)) {
            return Err(Error::invalid("an extent has 8 to 256 KiB"));
        }
        let len = device.len()?;
        let source = Source { device: &device, len };
        read_header(&source, Container::Volume)?.valid?;
        let superblock = whole(&device)?;
        let mut volume = Volume::over(Box::new(device), superblock, self.memory);
        volume.trains = self.trains;
        if let Some(bytes) = self.extent {
            // At the end of a segment there may be no room for one.
            volume.packing.extent = bytes.min(volume.packing.extent.max(1 << (volume.bits - 5)));
        }
        if let Some(bytes) = self.pack {
            let cold = bytes / BLOCK;
            if !bytes.is_multiple_of(BLOCK) || !(1..=MAX_UNIT).contains(&cold) {
                return Err(Error::invalid("a unit is a multiple of 4 KiB, up to 128 KiB"));
            }
            // What each saves at least makes up for the end of a segment where there is no room for one.
            let most = ((1 << volume.bits) / 16 / BLOCK).max(volume.packing.unit);
            volume.packing.cold = cold.min(most);
        }
        let mut log = super::locked(&volume.log);
        let superblock = log.superblock.clone();
        log.pages = read_usage(&*volume.device, &superblock, &mut log.space)?;
        log.snapshots = snapshot::read_all(volume.from(), &superblock, &mut log.space)?;
        let Log { snapshots, space, .. } = &mut *log;
        log.clones = clones::read_all(volume.from(), &superblock, snapshots, space)?;
        log.copies = dictionary::read_copies(volume.from(), &superblock, &mut log.space)?;
        // From here on segments that the log goes through are not free, and those it leaves with nothing wait for the
        // next superblock.
        log.space.find_free();
        volume.roll_forward(&mut log)?;
        volume.keep_room(&mut log)?;
        log.next = ((log.superblock.next >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT;
        volume.checkpoint(&mut log)?;
        let damaged = volume.read_dictionaries(&log.copies);
        volume.heal(&mut log, damaged)?;
        drop(log);
        Ok(volume)
    }
}

/// Reads the usage that a superblock leads to, and returns where its pages are.
pub(super) fn read_usage(
    device: &dyn Device,
    superblock: &Superblock,
    space: &mut Space,
) -> Result<Vec<u64>> {
    let ahead = Ahead::default();
    let from = From { device, tag: superblock.tag, bits: superblock.segment_bits, ahead };
    let pos = superblock.usage;
    let root = read_meta(from, pos, (Kind::UsageRoot, 0, 1))?;
    let corrupt = || Error::Corrupt { what: "usage root", at: Place::Pos(pos) };
    let pages = parse_root(&root).ok_or_else(corrupt)?;
    space.pin(pos / ALIGN);
    for (page, &entry) in pages.iter().enumerate().filter(|(_, entry)| **entry > 0) {
        let pos = entry * ALIGN;
        let bytes = read_meta(from, pos, (Kind::UsagePage, page as u64, 1))?;
        space.parse_page(page as u32, &bytes, pos)?;
        space.pin(entry);
    }
    Ok(pages)
}

/// The superblock that counts, of a volume that is as long as it says.
pub(super) fn whole(device: &dyn Device) -> Result<Superblock> {
    let (superblock, len) = (newest(device)?, device.len()?);
    match len < u64::from(superblock.segments) << superblock.segment_bits {
        true => Err(Error::Corrupt { what: "volume", at: Place::Pos(len) }),
        false => Ok(superblock),
    }
}

/// The superblock that counts.
pub(super) fn newest(device: &dyn Device) -> Result<Superblock> {
    let read = |pos: u64| -> Result<Superblock> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        match device.read_at(pos, &mut bytes) {
            Ok(()) => Superblock::parse(&bytes, pos),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::Corrupt { what: "superblock", at: Place::Pos(pos) })
            }
            Err(error) => Err(error.into()),
        }
    };
    let mut newest: Result<Superblock> = Err(Error::Poisoned);
    for pos in SUPERBLOCKS.into_iter().flatten() {
        match (&newest, read(pos)) {
            (Ok(best), Ok(other)) if best.generation >= other.generation => {}
            (Ok(_), Err(Error::Corrupt { .. })) => {}
            // The first error is told where there is none that is right.
            (Err(Error::Corrupt { .. }), Err(Error::Corrupt { .. })) => {}
            (_, Err(error @ Error::Io(_))) => return Err(error),
            (_, other) => newest = other,
        }
    }
    newest
}

/// A number that no other volume has, most likely.
fn fresh_tag() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos() as u64);
    let mut seed = Random(nanos ^ u64::from(std::process::id()) << 32);
    (seed.number() >> 32) as u32
}
