//! What a volume says of itself, without opening it.

use std::io;
use std::ops::Range;

use crate::codec::Codec;
use crate::envelope::{Container, read_header};
use crate::error::Result;
use crate::io::{ReadAt, into_io};
use crate::volume::clones::{self, CloneInfo};
use crate::volume::device::Device;
use crate::volume::dictionary;
use crate::volume::format::BLOCK;
use crate::volume::log::{Ahead, From};
use crate::volume::open::{read_usage, whole};
use crate::volume::snapshot::{self, SnapshotInfo};
use crate::volume::space::Space;

/// How a volume was made, and how full it was when its map was stored last: what was written since is not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Bytes of the device.
    pub len: u64,
    /// What new blocks are compressed by.
    pub codec: Codec,
    /// Its level.
    pub level: i32,
    /// Bytes that are compressed together at most.
    pub unit: usize,
    /// Bytes of a segment.
    pub segment_len: u64,
    /// Bytes that it may take.
    pub capacity: u64,
    /// Bytes that it takes.
    pub stored_len: u64,
    /// Those of them in segments that hold nothing.
    pub free_len: u64,
    /// Of what the other segments hold, the part that is still needed, in thousandths.
    pub live: u32,
    /// Bytes of the segments that hold blocks as they were written in a hurry, which are packed harder when nobody asks for anything.
    pub unpacked_len: u64,
    /// How often the map was stored.
    pub generation: u64,
    /// How many dictionaries were trained from what it holds.
    pub dictionaries: usize,
    /// The snapshots that it has, the oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// The clones that it has, the oldest first.
    pub clones: Vec<CloneInfo>,
}

/// Something to read as a device that cannot be written.
struct ReadOnly<'a>(&'a dyn ReadAt);

impl Device for ReadOnly<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len())
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(pos, buf).map_err(into_io)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn allocate(&self, _: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Describes the volume in a file, which may be in use.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) when it is no volume, [`Error::Unsupported`](crate::Error::Unsupported) for a
/// newer version, [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
pub fn describe(source: &dyn ReadAt) -> Result<Description> {
    read_header(source, Container::Volume)?.valid?;
    let device = ReadOnly(source);
    let superblock = whole(&device)?;
    let (bits, segments) = (superblock.segment_bits, superblock.segments);
    let mut space = Space::new(bits, superblock.most_segments, segments, superblock.heads);
    read_usage(&device, &superblock, &mut space)?;
    let from = From { device: &device, tag: superblock.tag, bits, ahead: Ahead::default() };
    let snapshots = snapshot::read_all(from, &superblock, &mut space)?;
    let clones = clones::read_all(from, &superblock, &snapshots, &mut space)?;
    let dictionaries = dictionary::read_copies(from, &superblock, &mut space)?;
    let (mut free, mut total, mut live) = (0, 0, 0);
    for segment in 1..segments {
        let used = space.used(segment);
        if used.live == 0 && !space.is_head(segment) && !space.is_held(segment) {
            free += 1;
        } else {
            total += u64::from(used.total);
            live += u64::from(used.live);
        }
    }
    Ok(Description {
        len: superblock.blocks * BLOCK as u64,
        codec: superblock.codec,
        level: superblock.level.into(),
        unit: usize::from(superblock.unit) * BLOCK,
        segment_len: 1 << bits,
        capacity: u64::from(superblock.most_segments) << bits,
        stored_len: u64::from(segments) << bits,
        free_len: free << bits,
        live: (live * 1000 / total.max(1)) as u32,
        unpacked_len: match superblock.codec {
            Codec::Copy => 0,
            _ => u64::from(space.raw_len()) << bits,
        },
        generation: superblock.generation,
        dictionaries: dictionaries.len(),
        clones: clones::infos(&clones, &snapshots),
        snapshots: snapshot::infos(&snapshots, bits),
    })
}
