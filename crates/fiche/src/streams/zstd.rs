//! Zstandard files (RFC 8878): frames, each of which is decoded by itself, and the table of them that the seekable
//! format has at its end.

use ::zstd::bulk::Compressor;
use ::zstd::zstd_safe::{
    CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound, get_error_name,
    get_frame_content_size,
};

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Digest, Put, Take};

/// What a frame begins with.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// What a frame that is passed over begins with, but for the lowest four bits.
const SKIPPED: u32 = 0x184D_2A50;
/// The frame that holds a table of frames.
const TABLE: u32 = 0x184D_2A5E;
/// What such a file ends with.
const END: u32 = 0x8F92_EAB1;
/// Of the table behind its entries: how many, what they have, the magic number.
const FOOTER: u64 = 9;
/// Of a frame that is passed over: magic number and length.
const HEADER: u64 = 8;

fn corrupt(pos: u64) -> Error {
    Error::Corrupt { what: "zstd frame", at: Place::Pos(pos) }
}

/// A file that is looked at here and there.
struct Looked<'a>(&'a dyn ReadAt);

impl Looked<'_> {
    /// So many bytes, or as many as there are.
    fn at(&self, pos: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(self.0.len().saturating_sub(pos)) as usize];
        self.0.read_at(pos, &mut bytes)?;
        Ok(bytes)
    }
}

/// Frames of a file, gathered into units: those without content count for the one before.
struct Frames {
    index: IndexWriter<Vec<u8>>,
    pending: u64,
}

impl Frames {
    /// A frame that begins at `pos`.
    fn put(&mut self, pos: u64, content: u64) -> Result<()> {
        if content == 0 {
            return Ok(());
        }
        if self.pending > 0 {
            let unit = NewUnit { len: self.pending, end_bit: 8 * pos, ..NewUnit::default() };
            self.index.put(&unit, None)?;
        }
        self.pending = content;
        Ok(())
    }

    fn finish(mut self, len: u64) -> Result<Vec<u8>> {
        if self.pending > 0 {
            let unit = NewUnit { len: self.pending, end_bit: 8 * len, ..NewUnit::default() };
            self.index.put(&unit, None)?;
        }
        let digest = Digest([0; 32]);
        let about = About { format: Format::Zstd, is_inside: false, stored_len: len, digest };
        Ok(self.index.finish(&about)?.0)
    }
}

/// An index of a file: by its table, if it has one; else, unless it is far away, by going from frame to frame and block to
/// block. Frames that do not say how long they are have to be decoded for that.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged or cut frame.
pub(super) fn index(file: &dyn ReadAt) -> Result<Option<Vec<u8>>> {
    let frames =
        || -> Result<Frames> { Ok(Frames { index: IndexWriter::new(Vec::new(), 0)?, pending: 0 }) };
    if let Some(entries) = table(file)? {
        let (mut frames, mut pos) = (frames()?, 0);
        for (stored, content) in entries {
            frames.put(pos, content)?;
            pos += stored;
        }
        return frames.finish(file.len()).map(Some);
    }
    match file.as_distant() {
        Some(_) => Ok(None),
        None => walk(file).map(Some),
    }
}

/// The same from the frames alone, whatever a table says of them.
pub(super) fn walk(file: &dyn ReadAt) -> Result<Vec<u8>> {
    let index = IndexWriter::new(Vec::new(), 0)?;
    let (mut frames, mut pos) = (Frames { index, pending: 0 }, 0);
    while pos < file.len() {
        let (len, content) = frame(file, pos)?;
        frames.put(pos, content)?;
        pos += len;
    }
    frames.finish(file.len())
}

/// Stored and decoded lengths of all frames, as the table at the end tells them; `None` where there is none, or
/// it tells of another file. The checksums that it may have are not looked at: frames have their own.
fn table(file: &dyn ReadAt) -> Result<Option<Vec<(u64, u64)>>> {
    const CHECKSUMS: u8 = 0x80;
    const RESERVED: u8 = 0x7C;
    let looked = Looked(file);
    let Some(at) = file.len().checked_sub(FOOTER) else { return Ok(None) };
    let bytes = looked.at(at, FOOTER)?;
    let mut take = Take::new(&bytes, "zstd seek table", at);
    let (count, flags, magic) = (take.u32()?, take.u8()?, take.u32()?);
    if magic != END {
        return Ok(None);
    }
    if flags & RESERVED != 0 {
        return Err(Error::Unsupported { what: "zstd seek table flags", found: flags.into() });
    }
    let entry = if flags & CHECKSUMS != 0 { 12 } else { 8 };
    let size = u64::from(count) * entry + FOOTER;
    let Some(pos) = file.len().checked_sub(size + HEADER) else { return Ok(None) };
    let bytes = looked.at(pos, size + HEADER)?;
    let mut take = Take::new(&bytes, "zstd seek table", pos);
    if take.u32()? != TABLE || u64::from(take.u32()?) != size {
        return Ok(None);
    }
    let mut entries = Vec::with_capacity(count as usize);
    let mut all = 0;
    for _ in 0..count {
        let (stored, content) = (u64::from(take.u32()?), u64::from(take.u32()?));
        take.bytes(entry as usize - 8)?;
        entries.push((stored, content));
        all += stored;
    }
    // Files that were joined have a table for the last of them.
    Ok((all == pos).then_some(entries))
}

/// Bytes of the frame at `pos`, and of its content.
fn frame(file: &dyn ReadAt, pos: u64) -> Result<(u64, u64)> {
    /// The longest header of a frame.
    const LONGEST: u64 = 18;
    let looked = Looked(file);
    let head = looked.at(pos, LONGEST)?;
    let mut take = Take::new(&head, "zstd frame", pos);
    let magic = take.u32()?;
    let end = |len: u64| match pos.checked_add(len) {
        Some(end) if end <= file.len() => Ok(len),
        _ => Err(corrupt(file.len())),
    };
    if magic & !15 == SKIPPED {
        return Ok((end(HEADER + u64::from(take.u32()?))?, 0));
    }
    if head.get(..4) != Some(&MAGIC[..]) {
        return Err(corrupt(pos));
    }
    let flags = take.u8()?;
    let is_single = flags >> 5 & 1 == 1;
    let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let size = match flags >> 6 {
        0 => u64::from(is_single),
        n => 1 << n,
    };
    let checksum = if flags >> 2 & 1 == 1 { 4 } else { 0 };
    let mut at = 5 + u64::from(!is_single) + dictionary + size;
    loop {
        let bytes = looked.at(pos + at, 3)?;
        let mut take = Take::new(&bytes, "zstd frame", pos + at);
        let word = u32::from(take.u16()?) | u32::from(take.u8()?) << 16;
        // A run of one byte is stored as that byte.
        let len = if word >> 1 & 3 == 1 { 1 } else { u64::from(word >> 3) };
        if word >> 1 & 3 == 3 {
            return Err(corrupt(pos + at));
        }
        at = end(at + 3 + len)?;
        if word & 1 == 1 {
            break;
        }
    }
    let len = end(at + checksum)?;
    let content = match get_frame_content_size(&head) {
        Ok(Some(content)) => content,
        Ok(None) => count(file, pos, len)?,
        Err(_) => return Err(corrupt(pos)),
    };
    Ok((len, content))
}

/// How long the content of a frame is that does not say so.
fn count(file: &dyn ReadAt, pos: u64, len: u64) -> Result<u64> {
    let (looked, mut decoder) = (Looked(file), Decoder::default());
    let mut room = vec![0; 128 << 10];
    let (mut at, mut sum, mut bytes, mut used) = (0, 0, Vec::new(), 0);
    loop {
        if used == bytes.len() {
            bytes = looked.at(pos + at, (len - at).min(1 << 20))?;
            (at, used) = (at + bytes.len() as u64, 0);
        }
        let step = decoder.step(&bytes[used..], &mut room).map_err(|e| e.at(Place::Pos(pos)))?;
        (used, sum) = (used + step.used, sum + step.made as u64);
        if step.is_end {
            return Ok(sum);
        }
        if bytes.is_empty() && step.made == 0 {
            return Err(corrupt(pos + at));
        }
    }
}

/// Makes frames that say how long they are and have a checksum.
pub(super) struct Encoder {
    compressor: Compressor<'static>,
    room: Vec<u8>,
}

impl Encoder {
    /// One of this level.
    pub fn new(level: i32) -> Result<Encoder> {
        Error::check_level("zstd", 1..=22, level)?;
        let mut compressor = Compressor::new(level)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        compressor.set_parameter(CParameter::ContentSizeFlag(true))?;
        Ok(Encoder { compressor, room: Vec::new() })
    }

    /// Appends a frame.
    pub fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.room.resize(self.room.len().max(compress_bound(piece.len())), 0);
        let len = self.compressor.compress_to_buffer(piece, &mut self.room)?;
        out.extend_from_slice(&self.room[..len]);
        Ok(())
    }
}

/// The frame behind all others that tells of them: stored and decoded lengths.
pub(super) fn table_of(frames: &[(u64, u64)]) -> Result<Vec<u8>> {
    const MOST: u64 = 1 << 27;
    let limit = |need| Error::Limit { what: "a seekable zstd file", need, allowed: MOST };
    if frames.len() as u64 > MOST {
        return Err(limit(frames.len() as u64));
    }
    let size = frames.len() as u64 * 8 + FOOTER;
    let mut out = Vec::with_capacity((size + HEADER) as usize);
    out.put_u32(TABLE);
    out.put_u32(u32::try_from(size).map_err(|_| limit(frames.len() as u64))?);
    for &(stored, content) in frames {
        for len in [stored, content] {
            out.put_u32(u32::try_from(len).map_err(|_| limit(len))?);
        }
    }
    out.put_u32(frames.len() as u32);
    out.put_u8(0);
    out.put_u32(END);
    Ok(out)
}

/// Decodes frames one after the other.
pub(super) struct Decoder(DCtx<'static>);

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder(DCtx::create())
    }
}

/// What came of a step.
pub(super) struct Step {
    pub used: usize,
    pub made: usize,
    /// A frame is over.
    pub is_end: bool,
}

impl Decoder {
    /// Stands before a frame.
    pub fn reset(&mut self) {
        if self.0.reset(ResetDirective::SessionOnly).is_err() {
            *self = Decoder::default();
        }
    }

    /// Decodes on.
    ///
    /// # Errors
    /// [`Error::Limit`] where it takes too much memory, [`Error::Unsupported`] where it takes a dictionary,
    /// [`Error::Corrupt`].
    pub fn step(&mut self, stored: &[u8], out: &mut [u8]) -> Result<Step> {
        /// What libzstd calls them.
        const MEMORY: &str = "Frame requires too much memory for decoding";
        const DICTIONARY: &str = "Dictionary mismatch";
        let (mut input, mut output) = (InBuffer::around(stored), OutBuffer::around(out));
        match self.0.decompress_stream(&mut output, &mut input) {
            Ok(hint) => Ok(Step { used: input.pos(), made: output.pos(), is_end: hint == 0 }),
            Err(code) => Err(match get_error_name(code) {
                MEMORY => {
                    let what = "the window of a zstd frame (zstd --long)";
                    Error::Limit { what, need: 1 << 28, allowed: 1 << 27 }
                }
                DICTIONARY => {
                    Error::Unsupported { what: "a zstd dictionary of its own,", found: 0 }
                }
                _ => corrupt(0),
            }),
        }
    }
}
