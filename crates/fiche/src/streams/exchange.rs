//! Indexes of other programs, taken and given: indexed_gzip's, and bgzip's .gzi.
//!
//! indexed_gzip's: `GZIDX`, a version (0 or 1), a byte of flags; lengths of the file and of its content, 8 bytes each; spacing,
//! length of a window and number of points, 4 bytes each; for each point where in the file and where in the content it is, 8 bytes each, how many
//! bits of the byte before it are its own, 1 byte, and from version 1 on whether it has a window, 1 byte; then the windows. A point without a window is
//! behind the header of a member.
//!
//! bgzip's: how many members but the first there are, and of each where in the file and where in the content it begins, 8 bytes each.

use std::io::Write;
use std::sync::Arc;

use super::bgzf;
use super::format::{Format, Unit};
use super::index::{About, IndexWriter, NewUnit};
use super::reader::Reader;
use super::scan::{IndexOptions, sampled, start_of};
use crate::codec::Scratch;
use crate::codec::deflate::WINDOW;
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Crc32c, Put, Take};

const MAGIC: &[u8; 5] = b"GZIDX";
/// Of a point, from version 1 on.
const POINT: u64 = 18;

/// An index of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// What indexed_gzip exports.
    IndexedGzip,
    /// bgzip's .gzi.
    Gzi,
}

/// A place at which decoding can begin: bit of the file, offset in the content, and the bytes before it if it is within a
/// member.
struct Point {
    bit: u64,
    offset: u64,
    window: Vec<u8>,
}

/// Makes an index of a gzip file of one that another program has made. With one of indexed_gzip the file is read once, for checksums, and
/// not inflated: what the other index says is believed, and what does not fit is found when it is read, or by
/// [`verify`](super::verify()); lines are not counted. A .gzi says no more than the file itself: it is held against that, and
/// the index made as [`index_file`](super::index_file) does.
///
/// # Errors
/// [`Error::Corrupt`] when the index is damaged, [`Error::Changed`] when it is that of a file of another length;
/// [`Error::Unsupported`] for a version that is not known; those of reading and writing.
pub fn import_index(source: &Arc<dyn ReadAt>, index: &dyn ReadAt, out: impl Write) -> Result<()> {
    let mut first = [0; MAGIC.len()];
    if index.len() >= MAGIC.len() as u64 {
        index.read_at(0, &mut first)?;
    }
    if first == *MAGIC {
        let (points, len) = points(source, index)?;
        return write(source, &points, len, out);
    }
    check_members(source, index)?;
    super::recount::index_file(source, &IndexOptions::default(), out, &mut |_| Ok(()))
}

/// Writes the units of a reader as another program has them, as far as it can: that begins where blocks do, so that units that do not
/// count for the one before.
///
/// # Errors
/// [`Error::Invalid`] where the file is none that such an index tells of; those of reading and writing.
pub fn export_index(
    reader: &Reader,
    source: &dyn ReadAt,
    to: Foreign,
    mut out: impl Write,
) -> Result<()> {
    if reader.format() != Format::Gzip {
        return Err(Error::invalid("such an index tells of gzip files"));
    }
    match to {
        Foreign::IndexedGzip => export_points(reader, &mut out)?,
        Foreign::Gzi => {
            let what = "a .gzi tells of a BGZF file, which this is not";
            let mut members = bgzf::members(source)?.ok_or_else(|| Error::invalid(what))?;
            // What marks the end of the file is left out.
            while members.pop_if(|last| last.1 == reader.len()).is_some() {}
            let mut bytes = Vec::new();
            bytes.put_u64(members.len().saturating_sub(1) as u64);
            for (pos, offset) in members.iter().skip(1) {
                bytes.put_u64(*pos);
                bytes.put_u64(*offset);
            }
            out.write_all(&bytes)?;
        }
    }
    Ok(out.flush()?)
}

fn export_points(reader: &Reader, out: &mut impl Write) -> Result<()> {
    let window_of = |unit: &Unit| -> Result<Option<Vec<u8>>> {
        Ok(match reader.start(unit)? {
            None => Some(Vec::new()),
            Some(start) => super::decoder::window_of(&start).ok_or(Error::Corrupt {
                what: "start of a unit",
                at: Place::Pos(unit.start.start),
            })?,
        })
    };
    // All but those that begin within a block. Their windows are read when they are written.
    let mut units: Vec<Unit> = Vec::new();
    for number in 0..reader.units() {
        let unit = reader.unit(number)?;
        if window_of(&unit)?.is_some() {
            units.push(unit);
        }
    }
    let spacing = reader.len().div_ceil(units.len().max(1) as u64).max(WINDOW as u64 + 1);
    let limit =
        |need| Error::Limit { what: "an index for indexed_gzip", need, allowed: u32::MAX.into() };
    let word = |number: u64| u32::try_from(number).map_err(|_| limit(number));
    let mut head = MAGIC.to_vec();
    head.put(&[1, 0]);
    head.put_u64(reader.stored_len());
    head.put_u64(reader.len());
    head.put_u32(word(spacing)?);
    head.put_u32(WINDOW as u32);
    head.put_u32(word(units.len() as u64)?);
    for unit in &units {
        let pos = unit.bits.start.div_ceil(8);
        head.put_u64(pos);
        head.put_u64(unit.offset);
        head.put(&[(8 * pos - unit.bits.start) as u8, 1]);
    }
    out.write_all(&head)?;
    let mut whole = vec![0; WINDOW];
    for unit in &units {
        let window = window_of(unit)?.unwrap_or_default();
        let (zeros, rest) = whole.split_at_mut(WINDOW - window.len());
        zeros.fill(0);
        rest.copy_from_slice(&window);
        out.write_all(&whole)?;
    }
    Ok(())
}

/// The points of an index of indexed_gzip, and the length of the content.
fn points(source: &Arc<dyn ReadAt>, index: &dyn ReadAt) -> Result<(Vec<Point>, u64)> {
    let what = "index of indexed_gzip";
    const HEAD: u64 = 5 + 2 + 16 + 12;
    let mut head = vec![0; index.len().min(HEAD) as usize];
    index.read_at(0, &mut head)?;
    let mut take = Take::new(&head, what, 0);
    take.bytes(MAGIC.len())?;
    let (version, _flags) = (take.u8()?, take.u8()?);
    if version > 1 {
        return Err(Error::Unsupported {
            what: "version of an index of indexed_gzip",
            found: version.into(),
        });
    }
    let (stored_len, len) = (take.u64()?, take.u64()?);
    let (_spacing, window, count) = (take.u32()?, u64::from(take.u32()?), u64::from(take.u32()?));
    if stored_len != source.len() {
        return Err(Error::Changed { what: "the compressed file" });
    }
    let size = POINT - u64::from(version == 0);
    if window > WINDOW as u64 || count.saturating_mul(size) > index.len() {
        return Err(take.corrupt());
    }
    let mut table = vec![0; (count * size) as usize];
    index.read_at(HEAD, &mut table)?;
    let mut take = Take::new(&table, what, HEAD);
    let (mut points, mut at) = (Vec::with_capacity(count as usize), HEAD + count * size);
    for i in 0..count {
        let (pos, offset, bits) = (take.u64()?, take.u64()?, u64::from(take.u8()?));
        let has_window = if version == 0 { i > 0 } else { take.u8()? != 0 };
        if bits > 7 || pos > stored_len || bits > 8 * pos || offset > len {
            return Err(take.corrupt());
        }
        let bit = 8 * pos - bits;
        let mut bytes = Vec::new();
        if has_window {
            bytes.resize(window as usize, 0);
            index.read_at(at, &mut bytes)?;
            at += window;
        }
        // A point at which no content is between it and the next is of no use.
        if points.last().is_some_and(|last: &Point| last.offset == offset) {
            points.pop();
        }
        points.push(Point { bit, offset, window: bytes });
    }
    if points.last().is_some_and(|last| last.offset == len) {
        points.pop();
    }
    Ok((points, len))
}

/// Holds a .gzi against the file, which says the same of itself: it needs no index.
fn check_members(source: &dyn ReadAt, index: &dyn ReadAt) -> Result<()> {
    let what = || Error::Changed { what: "the compressed file" };
    let members = bgzf::members(source)?.ok_or_else(what)?;
    let mut head = [0; 8];
    let short = Error::Corrupt { what: "index of bgzip", at: Place::Pos(0) };
    if index.len() < 8 {
        return Err(short);
    }
    index.read_at(0, &mut head)?;
    let count = Take::new(&head, "index of bgzip", 0).u64()?;
    if count.checked_mul(16).and_then(|len| len.checked_add(8)) != Some(index.len()) {
        return Err(short);
    }
    let mut bytes = vec![0; usize::try_from(index.len()).map_err(|_| what())?];
    index.read_at(0, &mut bytes)?;
    let mut take = Take::new(&bytes, "index of bgzip", 0);
    take.u64()?;
    for i in 1..=count {
        let place = (take.u64()?, take.u64()?);
        if usize::try_from(i).ok().and_then(|i| members.get(i)) != Some(&place) {
            return Err(what());
        }
    }
    Ok(())
}

/// Writes an index of these points, with checksums of what is stored between them.
fn write(source: &Arc<dyn ReadAt>, points: &[Point], len: u64, out: impl Write) -> Result<()> {
    let corrupt =
        |i: usize| Error::Corrupt { what: "index of indexed_gzip", at: Place::Pos(i as u64) };
    let first = points.first().map_or(0, |point| point.bit);
    let mut writer = IndexWriter::new(out, first)?;
    let (mut scratch, mut piece) = (Scratch::default(), vec![0; 256 << 10]);
    for (i, point) in points.iter().enumerate() {
        let next = points.get(i + 1);
        let (end, end_bit) = match next {
            Some(next) => (next.offset, next.bit),
            None => (len, 8 * source.len()),
        };
        let unit_len =
            end.checked_sub(point.offset).filter(|&len| len > 0).ok_or_else(|| corrupt(i))?;
        if end_bit <= point.bit || i == 0 && point.offset > 0 {
            return Err(corrupt(i));
        }
        let mut stored = Crc32c::default();
        let (mut pos, stored_end) = (point.bit / 8, end_bit.div_ceil(8));
        while pos < stored_end {
            let now = piece.len().min((stored_end - pos) as usize);
            source.read_at(pos, &mut piece[..now])?;
            stored.update(&piece[..now]);
            pos += now as u64;
        }
        let start = match &point.window[..] {
            [] => Vec::new(),
            window => start_of(Vec::new(), window, &mut scratch),
        };
        let unit = NewUnit {
            len: unit_len,
            end_bit,
            stored: Some(stored.get()),
            content: None,
            lines: None,
        };
        writer.put(&unit, Some(start.as_slice()).filter(|start| !start.is_empty()))?;
    }
    let (stored_len, digest) = (source.len(), sampled(source)?);
    writer.finish(&About { format: Format::Gzip, is_inside: false, stored_len, digest }).map(drop)
}
