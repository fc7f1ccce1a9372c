//! Verifies a standard file: all of its content, and its index.

use std::io::Read;
use std::sync::Arc;

use super::format::Format;
use super::reader::{Reader, recognise};
use crate::codec::deflate::Gunzip;
use crate::error::{Error, Place, Result};
use crate::io::{Cursor, ReadAt};
use crate::wire::{adler32, adler32_on, load_u32};

/// Content that is held against itself at once.
const STEP: usize = 256 << 10;

/// Inflates all of a gzip file, each member held against its checksum and its length; with a reader, each piece of that
/// against what the reader gives for it. Of any other file decodes all that the reader has, and holds what it knows of
/// units against what the file says of them; a zlib stream is held against its checksum, too. `each` is told of every
/// piece how long it was, and may end it all. Returns the length of the content.
///
/// # Errors
/// [`Error::Corrupt`] at the first damage, and where the reader gives other content or knows of other units than the
/// file; [`Error::Changed`] where the index of a gzip file tells of more or less; those of reading.
pub fn verify(
    source: &Arc<dyn ReadAt>,
    reader: Option<&Reader>,
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let is_other = |format| format != Format::Gzip;
    // Streams without a header are known by their index alone.
    let is_bare =
        reader.is_some_and(|reader| reader.format().is_deflate() && is_other(reader.format()));
    if is_bare || recognise(source)?.is_some_and(is_other) {
        let what = "this file is verified by a reader of it";
        return by_reader(source, reader.ok_or_else(|| Error::invalid(what))?, each);
    }
    by_members(source, reader, each)
}

fn by_reader(
    source: &Arc<dyn ReadAt>,
    reader: &Reader,
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    // Whatever an index or a table says, the file says it, too.
    if let Some(plain) = reader.plain()? {
        let wrong = |pos| Error::Corrupt { what: "table of frames or blocks", at: Place::Pos(pos) };
        if (plain.footer().units(), plain.len()) != (reader.units(), reader.len()) {
            return Err(wrong(0));
        }
        for number in 0..reader.units() {
            let (found, known) = (plain.unit(number)?, reader.unit(number)?);
            // What stands behind the last block of an lz4 file counts for it or not.
            let is_last = number + 1 == reader.units() && reader.format() == Format::Lz4;
            let is_same = found.bits.start == known.bits.start
                && (found.bits.end == known.bits.end || is_last);
            if !is_same || (found.offset, found.len) != (known.offset, known.len) {
                return Err(wrong(found.bits.start / 8));
            }
        }
    }
    let (mut offset, mut piece, mut adler) = (0, vec![0; STEP], adler32(b""));
    while offset < reader.len() {
        let len = STEP.min((reader.len() - offset) as usize);
        reader.read_at(offset, &mut piece[..len])?;
        if reader.format() == Format::Zlib {
            adler = adler32_on(adler, &piece[..len]);
        }
        offset += len as u64;
        each(len as u64)?;
    }
    if reader.format() == Format::Zlib {
        let (mut trailer, at) = ([0; 4], source.len().saturating_sub(4));
        source.read_at(at, &mut trailer)?;
        if load_u32(&trailer, 0).swap_bytes() != adler {
            return Err(Error::Corrupt { what: "checksum of a zlib stream", at: Place::Pos(at) });
        }
    }
    Ok(offset)
}

fn by_members(
    source: &Arc<dyn ReadAt>,
    reader: Option<&Reader>,
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let mut gunzip = Gunzip::new(Cursor::new(source.clone()));
    let (mut front, mut back) = (vec![0; STEP], vec![0; STEP]);
    let mut offset = 0;
    let other = || Error::Changed { what: "the compressed file" };
    loop {
        let len = match gunzip.read(&mut front) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if let Some(reader) = reader {
            if reader.len() - offset < len as u64 {
                return Err(other());
            }
            reader.read_at(offset, &mut back[..len])?;
            if front[..len] != back[..len] {
                return Err(Error::Corrupt { what: "unit of a gzip file", at: Place::Pos(offset) });
            }
        }
        offset += len as u64;
        each(len as u64)?;
    }
    match reader {
        Some(reader) if reader.len() != offset => Err(other()),
        _ => Ok(offset),
    }
}
