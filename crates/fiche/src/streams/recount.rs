//! Makes an index of a file whose units are known from what the file says of itself: with checksums of what is
//! stored, and lines counted.

use std::io::Write;
use std::sync::Arc;

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use super::reader::{Reader, recognise};
use super::scan::{IndexOptions, index, sampled};
use crate::error::{Error, Result};
use crate::io::{Cursor, ReadAt};
use crate::wire::Crc32c;

/// Makes an index of a file, whatever it is of those that are known here: of gzip as [`index`](index()) does, of others by
/// decoding each unit that they have. `each` is told how many bytes of the file were done, piece by piece, and may end it all.
///
/// # Errors
/// [`Error::Invalid`] where it is none of these files; those of [`index`](index()).
pub fn index_file(
    source: &Arc<dyn ReadAt>,
    options: &IndexOptions,
    out: impl Write,
    each: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let what = "this is neither gzip nor zstd, xz or lz4";
    let format = recognise(source)?.ok_or_else(|| Error::invalid(what))?;
    if format == Format::Gzip {
        let counted = Counted { source: Cursor::new(source.clone()), each };
        return index(counted, options, out, std::io::sink());
    }
    options.check()?;
    let reader = Reader::open(source.clone())?
        .ok_or_else(|| Error::invalid("what is far away has to be indexed where it is"))?;
    let first = if reader.units() == 0 { 0 } else { reader.unit(0)?.bits.start };
    let mut writer = IndexWriter::new(out, first)?;
    let mut piece = vec![0; 256 << 10];
    for number in 0..reader.units() {
        let unit = reader.unit(number)?;
        let (mut stored, bytes) = (Crc32c::default(), unit.bytes());
        let mut pos = bytes.start;
        while pos < bytes.end {
            let len = piece.len().min((bytes.end - pos) as usize);
            source.read_at(pos, &mut piece[..len])?;
            stored.update(&piece[..len]);
            pos += len as u64;
            each(len as u64)?;
        }
        let (mut offset, mut lines) = (unit.offset, 0);
        while offset < unit.end() {
            each(0)?;
            let len = piece.len().min((unit.end() - offset) as usize);
            reader.read_at(offset, &mut piece[..len])?;
            lines += memchr::memchr_iter(b'\n', &piece[..len]).count() as u64;
            offset += len as u64;
        }
        let start = reader.start(&unit)?;
        let unit = NewUnit {
            len: unit.len,
            end_bit: unit.bits.end,
            stored: Some(stored.get()),
            content: None,
            lines: options.counts_lines().then_some(lines),
        };
        writer.put(&unit, start.as_deref())?;
    }
    let (stored_len, digest) = (source.len(), sampled(source)?);
    writer.finish(&About { format, is_inside: false, stored_len, digest }).map(drop)
}

/// A file that tells how far it was read.
struct Counted<'a, R> {
    source: R,
    each: &'a mut dyn FnMut(u64) -> Result<()>,
}

impl<R: std::io::Read> std::io::Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.source.read(buf)?;
        // Whatever it is, it ends the reading.
        (self.each)(len as u64).map_err(std::io::Error::other)?;
        Ok(len)
    }
}
