//! lz4 files: frames of blocks, each of which is decoded by itself unless the frame says otherwise.

use xxhash_rust::xxh32::{Xxh32, xxh32};

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use crate::codec::lz4::decompress;
use crate::codec::{Codec, Scratch};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Digest, Put, Take};

/// What a frame begins with.
const FRAME: u32 = 0x184D_2204;
/// What a frame that is passed over begins with, but for the lowest four bits.
const SKIPPED: u32 = 0x184D_2A50;
/// Stored as it is.
const RAW: u32 = 1 << 31;

fn corrupt(pos: u64) -> Error {
    Error::Corrupt { what: "lz4 block", at: Place::Pos(pos) }
}

/// What a frame says of its blocks.
#[derive(Clone, Copy)]
struct Frame {
    has_checksums: bool,
    has_content_checksum: bool,
    /// Content of a block at most.
    most: usize,
}

impl Frame {
    const VERSION: u8 = 1 << 6;
    const INDEPENDENT: u8 = 1 << 5;
    const CHECKSUMS: u8 = 1 << 4;
    const LEN: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;

    /// By the two bytes behind the magic number.
    fn parse(flags: u8, sizes: u8, pos: u64) -> Result<Frame> {
        if flags >> 6 != Frame::VERSION >> 6 || flags & 2 != 0 {
            return Err(Error::Unsupported { what: "lz4 frame flags", found: flags.into() });
        }
        if flags & Frame::INDEPENDENT == 0 {
            let what = "each block of this lz4 file needs the one before it (lz4 -BD): `lz4 -dc FILE | fiche pack -` packs what it holds";
            return Err(Error::invalid(what));
        }
        let most = match sizes >> 4 & 7 {
            n @ 4..=7 => 1 << (2 * n + 8),
            _ => return Err(corrupt(pos)),
        };
        Ok(Frame {
            has_checksums: flags & Frame::CHECKSUMS != 0,
            has_content_checksum: flags & Frame::CONTENT_CHECKSUM != 0,
            most,
        })
    }
}

/// An index of a file. Only who decodes a block knows how long it is: so all of it is decoded, and held against
/// what the frames say of their content.
///
/// # Errors
/// [`Error::Invalid`] where blocks depend on one another.
pub(super) fn index(file: &dyn ReadAt) -> Result<Option<Vec<u8>>> {
    if file.as_distant().is_some() {
        return Ok(None);
    }
    let mut index: Option<IndexWriter<Vec<u8>>> = None;
    // The unit so far: its content, and what it begins with.
    let mut pending: Option<(u64, [u8; 2])> = None;
    let (mut pos, mut decoder, mut stored) = (0, Decoder::default(), Vec::new());
    let read = |from: u64, len: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(file.len().saturating_sub(from)) as usize];
        file.read_at(from, &mut bytes)?;
        Ok(bytes)
    };
    while pos < file.len() {
        // Magic number, flags, sizes, length of the content, a dictionary, a checksum.
        let head = read(pos, 19)?;
        let mut take = Take::new(&head, "lz4 frame", pos);
        let magic = take.u32()?;
        if magic & !15 == SKIPPED {
            pos += 8 + u64::from(take.u32()?);
            if pos > file.len() {
                return Err(corrupt(file.len()));
            }
            continue;
        }
        if magic != FRAME {
            return Err(corrupt(pos));
        }
        let (flags, sizes) = (take.u8()?, take.u8()?);
        let frame = Frame::parse(flags, sizes, pos)?;
        let has_len = flags & Frame::LEN != 0;
        let len = 4 + 2 + 8 * u64::from(has_len) + 4 * u64::from(flags & 1);
        let check = head.get(len as usize).copied().ok_or_else(|| corrupt(pos))?;
        if (xxh32(&head[4..len as usize], 0) >> 8) as u8 != check {
            return Err(Error::Corrupt { what: "lz4 frame", at: Place::Pos(pos) });
        }
        let said = if has_len { Some(take.u64()?) } else { None };
        pos += len + 1;
        let (mut checksum, mut sum) = (Xxh32::new(0), 0);
        loop {
            let word = Take::new(&read(pos, 4)?, "lz4 frame", pos).u32()?;
            if word == 0 {
                pos += 4;
                let is_wrong = |found: u32| found != checksum.digest();
                if frame.has_content_checksum {
                    if is_wrong(Take::new(&read(pos, 4)?, "lz4 frame", pos).u32()?) {
                        return Err(Error::Corrupt {
                            what: "content of an lz4 frame",
                            at: Place::Pos(pos),
                        });
                    }
                    pos += 4;
                }
                if said.is_some_and(|said| said != sum) {
                    return Err(Error::Corrupt {
                        what: "length of an lz4 frame",
                        at: Place::Pos(pos),
                    });
                }
                break;
            }
            let all = 4 + u64::from(word & !RAW) + 4 * u64::from(frame.has_checksums);
            if all > frame.most as u64 + 8 || all > file.len() - pos {
                return Err(corrupt(pos));
            }
            stored.resize(all as usize, 0);
            file.read_at(pos, &mut stored)?;
            let start = [flags, sizes];
            let content = decoder.decode(&start, &stored).ok_or_else(|| corrupt(pos))?;
            checksum.update(content);
            let content = content.len() as u64;
            sum += content;
            if content > 0 {
                let writer = match &mut index {
                    Some(writer) => writer,
                    none => none.insert(IndexWriter::new(Vec::new(), 8 * pos)?),
                };
                put(writer, pending.take(), pos)?;
                pending = Some((content, start));
            }
            pos += all;
        }
        if pos > file.len() {
            return Err(corrupt(file.len()));
        }
    }
    let mut writer = match index {
        Some(writer) => writer,
        None => IndexWriter::new(Vec::new(), 0)?,
    };
    put(&mut writer, pending, file.len())?;
    let (stored_len, digest) = (file.len(), Digest([0; 32]));
    let about = About { format: Format::Lz4, is_inside: false, stored_len, digest };
    Ok(Some(writer.finish(&about)?.0))
}

/// Writes a unit that ends at this byte.
fn put(writer: &mut IndexWriter<Vec<u8>>, unit: Option<(u64, [u8; 2])>, end: u64) -> Result<()> {
    let Some((len, start)) = unit else { return Ok(()) };
    let mut bytes = Vec::new();
    bytes.put(&start);
    writer.put(&NewUnit { len, end_bit: 8 * end, ..NewUnit::default() }, Some(&bytes))
}

/// Writes a frame of blocks that do not depend on one another, each with a checksum.
pub(super) struct Encoder {
    level: i32,
    start: [u8; 2],
    room: Vec<u8>,
    scratch: Scratch,
}

impl Encoder {
    /// Of blocks of so much content at most; the content of all of them may be known.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is no such level, or blocks may not be as long.
    pub fn new(level: i32, most: usize, len: Option<u64>) -> Result<Encoder> {
        Codec::Lz4.check_level(level)?;
        let sizes = (4..=7u8).find(|n| most <= 1 << (2 * n + 8));
        let Some(sizes) = sizes else {
            return Err(Error::invalid("blocks of lz4 have 4 MiB at most"));
        };
        let len = if len.is_some() { Frame::LEN } else { 0 };
        let checksums = Frame::CHECKSUMS | Frame::CONTENT_CHECKSUM;
        let flags = Frame::VERSION | Frame::INDEPENDENT | checksums | len;
        let start = [flags, sizes << 4];
        Ok(Encoder { level, start, room: Vec::new(), scratch: Scratch::default() })
    }

    /// What decoding one of the blocks begins with.
    pub fn start(&self) -> [u8; 2] {
        self.start
    }

    /// What a frame begins with.
    pub fn header(&self, len: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(FRAME);
        out.put(&self.start);
        if let Some(len) = len {
            out.put_u64(len);
        }
        let check = (xxh32(&out[4..], 0) >> 8) as u8;
        out.put_u8(check);
        out
    }

    /// Appends a block; one that does not shrink is stored as it is.
    pub fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.room.resize(self.room.len().max(piece.len()), 0);
        let room = &mut self.room[..piece.len().saturating_sub(1)];
        let len = Codec::Lz4.compress(self.level, piece.into(), room.into(), &mut self.scratch)?;
        let (flag, stored) = len.map_or((RAW, piece), |len| (0, &self.room[..len]));
        out.put_u32(flag | stored.len() as u32);
        out.put(stored);
        out.put_u32(xxh32(stored, 0));
        Ok(())
    }
}

/// The checksum of all content.
pub(super) struct Sum(Xxh32);

impl Default for Sum {
    fn default() -> Sum {
        Sum(Xxh32::new(0))
    }
}

impl Sum {
    pub fn update(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    /// What stands behind the last block.
    pub fn end(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(0);
        out.put_u32(self.0.digest());
        out
    }
}

/// Decodes a block at once, and gives it out by and by.
#[derive(Default)]
pub(super) struct Decoder {
    room: Vec<u8>,
    len: usize,
    given: usize,
}

impl Decoder {
    /// Takes the block that these bytes begin with; `None` where they are none.
    pub fn begin(&mut self, start: &[u8], stored: &[u8]) -> Option<()> {
        self.decode(start, stored)?;
        self.given = 0;
        Some(())
    }

    /// The content of the block.
    fn decode(&mut self, start: &[u8], stored: &[u8]) -> Option<&[u8]> {
        let &[flags, sizes] = start else { return None };
        let frame = Frame::parse(flags, sizes, 0).ok()?;
        let mut take = Take::new(stored, "lz4 block", 0);
        let word = take.u32().ok()?;
        let bytes = take.bytes((word & !RAW) as usize).ok()?;
        if frame.has_checksums && take.u32().ok()? != xxh32(bytes, 0) {
            return None;
        }
        self.room.resize(self.room.len().max(frame.most), 0);
        let room = &mut self.room[..frame.most];
        self.len = match word & RAW {
            0 => decompress(bytes.into(), room.into()).ok()?,
            _ => {
                room.get_mut(..bytes.len())?.copy_from_slice(bytes);
                bytes.len()
            }
        };
        Some(&self.room[..self.len])
    }

    /// Gives out some more; how much that was.
    pub fn step(&mut self, out: &mut [u8]) -> usize {
        let now = out.len().min(self.len - self.given);
        out[..now].copy_from_slice(&self.room[self.given..self.given + now]);
        self.given += now;
        now
    }

    /// Bytes of the block.
    pub fn len(&self) -> u64 {
        self.len as u64
    }
}
