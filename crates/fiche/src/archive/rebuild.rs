//! Finds the blocks of a chapter whose table is lost, by their own checksums.

use std::sync::Arc;

use crate::archive::decode::{Decoding, decode_within};
use crate::archive::recover::read_sectors;
use crate::archive::shared::Shared;
use crate::blocks::{CHECKSUM, Coded, MAX_BLOCK, MAX_BLOCKS, Table, TableBuilder};
use crate::codec::{Codec, Stages};
use crate::envelope::{MARKER, Section, TRAILER_LEN, is_trailer};
use crate::error::Result;
use crate::io::ReadAt;
use crate::wire::{ByteCrc32c, mark_of};

/// Reads at once, and from where a search for the end of a block starts.
const STEP: usize = 1 << 20;
/// A block that is stored raw and is not as long as the one before it is only believed
/// when nothing else fits within so many times that length.
const STRETCH: usize = 4;
/// The longest that most blocks decode to: room that is tried first.
const USUAL: usize = 1 << 20;

/// Goes through a file whose index is damaged and finds blocks one behind the other.
pub(super) struct Rebuilder {
    source: Arc<dyn ReadAt>,
    shared: Shared,
    /// Ways to code a block, with their marks.
    marks: Vec<(u32, Coded)>,
    window: Vec<u8>,
    pos: u64,
    scratch: Decoding,
    room: Vec<u8>,
    /// Decoded length of the last block that was found.
    last: Option<usize>,
    /// Bytes that may still be looked at in vain: what chance or malice makes look like
    /// the end of a block costs time.
    patience: u64,
}

/// A block that was found: how it is coded, and its decoded and stored length.
struct Found {
    coded: Coded,
    len: usize,
    stored_len: usize,
}

impl Rebuilder {
    pub fn new(source: Arc<dyn ReadAt>, shared: Shared) -> Rebuilder {
        let patience = 16 * source.len() + (1 << 30);
        let alone = Stages::all().map(|stages| {
            let number = stages.number();
            (number.into(), Coded { number, ..Coded::default() })
        });
        let marks = alone.chain(shared.marks()).collect();
        let (window, scratch, room) = Default::default();
        Rebuilder { source, shared, marks, window, pos: 0, scratch, room, last: None, patience }
    }

    /// The table of the chapter that starts at `pos` or behind the sections there, and has
    /// `blocks` blocks at most; `before`: decoded bytes and blocks before it. `None` where
    /// there is no block. The table ends where no more was found.
    pub fn table(
        &mut self,
        pos: u64,
        blocks: u64,
        before: (u64, u64),
    ) -> Result<Option<(Table, u64)>> {
        let start = self.behind_sections(pos)?;
        let (mut builder, mut pos) = (TableBuilder::default(), start);
        while (builder.blocks() as u64) < blocks.min(MAX_BLOCKS as u64)
            && let Some(found) = self.block(pos)?
        {
            builder.push(found.coded, found.len as u64, found.stored_len as u64);
            self.last = Some(found.len);
            pos += found.stored_len as u64;
            let next = self.behind_sections(pos)?;
            if next > pos {
                builder.push_gap(next - pos);
            }
            pos = next;
        }
        if builder.blocks() == 0 {
            return Ok(None);
        }
        let mut section = Vec::new();
        builder.put(&mut section, pos, pos - start, before);
        let table = Table::parse(&Section::parse(&section, pos, "chapter table")?)?;
        Ok(Some((table, pos)))
    }

    /// Where the sections that start at `pos` end, damaged ones among them, and trailers.
    fn behind_sections(&mut self, mut pos: u64) -> Result<u64> {
        loop {
            let bytes = self.bytes(pos, TRAILER_LEN as usize)?;
            if is_trailer(bytes) {
                pos += TRAILER_LEN;
            } else if bytes.starts_with(&MARKER)
                && let Ok(len) = Section::claimed_len(&self.source, pos, self.source.len())
            {
                pos += len;
            } else {
                return Ok(pos);
            }
        }
    }

    /// Up to `len` bytes at `pos`: fewer where the file ends.
    fn bytes(&mut self, pos: u64, len: usize) -> Result<&[u8]> {
        let len = self.source.len().saturating_sub(pos).min(len as u64) as usize;
        if pos < self.pos || pos + len as u64 > self.pos + self.window.len() as u64 {
            let step = self.source.len().saturating_sub(pos).min(len.max(STEP) as u64);
            self.window.resize(step as usize, 0);
            self.pos = pos;
            read_sectors(&self.source, pos, &mut self.window)?;
        }
        let start = (pos - self.pos) as usize;
        Ok(&self.window[start..start + len])
    }

    /// The block that starts at `pos`.
    fn block(&mut self, pos: u64) -> Result<Option<Found>> {
        let (mut crc, mut n, mut looked) = (ByteCrc32c::default(), 0, 64 << 10);
        // Stored raw, and of a length that makes it doubtful.
        let mut doubtful: Option<Found> = None;
        let longest = MAX_BLOCK as usize;
        loop {
            let limit = match (&doubtful, self.last) {
                (Some(found), last) => longest.min(STRETCH * last.unwrap_or(found.len)),
                (None, _) => longest,
            };
            self.bytes(pos, looked.min(limit) + CHECKSUM)?;
            let bytes = &self.window[(pos - self.pos) as usize..];
            let bytes = &bytes[..bytes.len().min(looked.min(limit) + CHECKSUM)];
            let mut hit = None;
            while n < limit && n + CHECKSUM < bytes.len() && hit.is_none() {
                crc.push(bytes[n]);
                n += 1;
                let Some(sum) = bytes[n..].first_chunk::<CHECKSUM>() else { break };
                let mark = mark_of(*sum, crc.get());
                if mark < 1 << 24 {
                    hit = self.marks.iter().find(|way| way.0 == mark).map(|way| way.1);
                }
            }
            match hit {
                Some(coded) if coded.number == Codec::Copy as u8 => {
                    let found = Found { coded, len: n, stored_len: n + CHECKSUM };
                    if self.last.is_none_or(|last| last == n) {
                        return Ok(Some(found));
                    }
                    doubtful.get_or_insert(found);
                }
                Some(coded) => {
                    if let Some(len) = self.decoded_len(pos, n, coded)? {
                        return Ok(Some(Found { coded, len, stored_len: n + CHECKSUM }));
                    }
                    // Ends can be made up by the million, each of which has to be decoded.
                    if self.patience == 0 {
                        return Ok(doubtful);
                    }
                }
                None => {
                    let at_end = pos + (n + CHECKSUM) as u64 >= self.source.len();
                    let stored_len = doubtful.as_ref().map_or(0, |found| found.stored_len);
                    if n >= limit || at_end || self.patience == 0 {
                        self.patience =
                            self.patience.saturating_sub((n - stored_len.min(n)) as u64);
                        return Ok(doubtful);
                    }
                    looked *= 4;
                }
            }
        }
    }

    /// What the `n` bytes at `pos` decode to, if they are a block that is coded so.
    fn decoded_len(&mut self, pos: u64, n: usize, coded: Coded) -> Result<Option<usize>> {
        let rooms = [self.last.unwrap_or(USUAL), USUAL, MAX_BLOCK as usize];
        self.bytes(pos, n)?;
        let start = (pos - self.pos) as usize;
        for room in rooms {
            if self.room.len() < room {
                self.room.resize(room, 0);
            }
            let (stored, dst) = (&self.window[start..start + n], &mut self.room[..room]);
            let done = decode_within(&self.shared, coded, stored, dst, &mut self.scratch);
            if let Ok(Some(len)) = done
                && len > n
            {
                return Ok(Some(len));
            }
        }
        self.patience = self.patience.saturating_sub((n + USUAL) as u64);
        Ok(None)
    }
}
