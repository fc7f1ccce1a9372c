//! xz files: streams of blocks, whose lengths stand at the end of each stream.

use liblzma::stream::{Action, Status, Stream};

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Digest, Put, Take, crc32};

/// What a stream begins with.
pub(super) const MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
/// Of a stream: its header, and its footer.
const ENDS: u64 = 12;
/// The longest table of blocks that is read: some ten million.
const LONGEST: u64 = 64 << 20;
/// The shortest block: a header, and as good as nothing.
const SHORTEST: u64 = 5;
/// What decoding may take; the strongest preset takes 65 MiB.
const MEMORY: u64 = 256 << 20;

fn corrupt(what: &'static str, pos: u64) -> Error {
    Error::Corrupt { what, at: Place::Pos(pos) }
}

/// A block: where it is, with what stands behind it, and of how much content.
struct Block {
    pos: u64,
    /// Without what stands behind it.
    len: u64,
    content: u64,
    /// Header of its stream.
    header: [u8; ENDS as usize],
}

/// An index of a file: the tables of its streams, from the last to the first. What decoding a unit begins with is the header
/// of its stream, and how long the block is.
pub(super) fn index(file: &dyn ReadAt) -> Result<Option<Vec<u8>>> {
    let (mut blocks, mut end) = (Vec::new(), file.len());
    while end > 0 {
        let (start, some) = stream(file, end)?;
        blocks.extend(some.into_iter().rev());
        end = start;
    }
    blocks.reverse();
    let first = blocks.first().map_or(0, |block| block.pos);
    let mut index = IndexWriter::new(Vec::new(), 8 * first)?;
    for (i, block) in blocks.iter().enumerate() {
        let next = blocks.get(i + 1).map_or(file.len(), |block| block.pos);
        let mut start = Vec::new();
        start.put(&block.header);
        start.put_varint(block.len);
        let unit = NewUnit { len: block.content, end_bit: 8 * next, ..NewUnit::default() };
        index.put(&unit, Some(&start))?;
    }
    let (stored_len, digest) = (file.len(), Digest([0; 32]));
    let about = About { format: Format::Xz, is_inside: false, stored_len, digest };
    Ok(Some(index.finish(&about)?.0))
}

/// The blocks with content of the stream that ends at `end`, and where it begins.
fn stream(file: &dyn ReadAt, mut end: u64) -> Result<(u64, Vec<Block>)> {
    let footer_corrupt = |pos: u64| corrupt("xz footer", pos);
    let mut footer = [0; ENDS as usize];
    loop {
        let at = end.checked_sub(ENDS).ok_or_else(|| footer_corrupt(end))?;
        file.read_at(at, &mut footer)?;
        // Streams may be followed by zeros, four at a time.
        if !footer.ends_with(&[0; 4]) {
            break;
        }
        end -= 4;
    }
    let at = end - ENDS;
    let mut take = Take::new(&footer, "xz footer", at);
    let (checksum, back, flags, magic) =
        (take.u32()?, u64::from(take.u32()?), take.u16()?, take.u16()?);
    if magic != 0x5A59 || crc32(&footer[4..10]) != checksum {
        return Err(footer_corrupt(at));
    }
    let len = 4 * (back + 1);
    let table_at = at.checked_sub(len).ok_or_else(|| footer_corrupt(at))?;
    if len > LONGEST {
        return Err(Error::Limit { what: "the index of an xz file", need: len, allowed: LONGEST });
    }
    let mut table = vec![0; len as usize];
    file.read_at(table_at, &mut table)?;
    let (covered, checksum) = table.split_at(table.len() - 4);
    let mut take = Take::new(checksum, "xz index", table_at);
    if take.u32()? != crc32(covered) {
        return Err(corrupt("xz index", table_at));
    }
    let mut take = Take::new(covered, "xz index", table_at);
    if take.u8()? != 0 {
        return Err(take.corrupt());
    }
    let count = take.count(covered.len() as u64 / 2)?;
    let (mut lens, mut all) = (Vec::with_capacity(count), 0u64);
    for _ in 0..count {
        let (unpadded, content) = (take.varint()?, take.varint()?);
        let len = unpadded.checked_next_multiple_of(4).filter(|_| unpadded >= SHORTEST);
        let len = len.ok_or_else(|| take.corrupt())?;
        if len > table_at {
            return Err(take.corrupt());
        }
        all = all.checked_add(len).ok_or_else(|| take.corrupt())?;
        lens.push((len, content));
    }
    let start = table_at.checked_sub(all).and_then(|first| first.checked_sub(ENDS));
    let start = start.ok_or_else(|| take.corrupt())?;
    let mut header = [0; ENDS as usize];
    file.read_at(start, &mut header)?;
    let mut take = Take::new(&header, "xz header", start);
    let magic = take.bytes(MAGIC.len())?;
    let (same, checksum) = (take.u16()?, take.u32()?);
    if magic != MAGIC || same != flags || checksum != crc32(&header[6..8]) {
        return Err(corrupt("xz header", start));
    }
    let (mut blocks, mut pos) = (Vec::new(), start + ENDS);
    for (len, content) in lens {
        if content > 0 {
            blocks.push(Block { pos, len, content, header });
        }
        pos += len;
    }
    Ok((start, blocks))
}

/// Decodes a block.
pub(super) struct Decoder {
    stream: Stream,
    /// Bytes of the block that are left.
    left: u64,
}

impl Decoder {
    /// Stands before the block of which this is the start; `None` where it is none.
    pub fn begin(start: &[u8]) -> Option<Decoder> {
        let mut take = Take::new(start, "start of a unit", 0);
        let header = take.bytes(ENDS as usize).ok()?;
        let left = take.varint().ok()?;
        take.end().ok()?;
        let mut stream = Stream::new_stream_decoder(MEMORY, 0).ok()?;
        stream.process(header, &mut [], Action::Run).ok()?;
        (stream.total_in() == ENDS).then_some(Decoder { stream, left })
    }

    /// Decodes on: bytes used and made.
    ///
    /// # Errors
    /// [`Error::Limit`] where it takes too much memory, [`Error::Corrupt`].
    pub fn step(&mut self, stored: &[u8], out: &mut [u8]) -> Result<(usize, usize)> {
        let here = &stored[..stored.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))];
        let before = (self.stream.total_in(), self.stream.total_out());
        match self.stream.process(here, out, Action::Run) {
            Ok(Status::Ok | Status::GetCheck) => {}
            Err(liblzma::stream::Error::MemLimit) => {
                let need = MEMORY + 1;
                return Err(Error::Limit { what: "decoding an xz block", need, allowed: MEMORY });
            }
            // There was nothing to do: what is asked for twice is not there.
            Ok(_) | Err(_) => return Err(corrupt("xz block", 0)),
        }
        let used = self.stream.total_in() - before.0;
        self.left -= used;
        Ok((used as usize, (self.stream.total_out() - before.1) as usize))
    }

    /// True behind the block and its check.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}
