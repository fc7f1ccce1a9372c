//! BGZF files: gzip members of up to 64 KiB that say how long they are, as bgzip and samtools write them. They need
//! no index, for one is made by going from header to header.

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use crate::codec::deflate::Member;
use crate::error::Result;
use crate::io::ReadAt;
use crate::wire::{Digest, Take};

/// Header, of which all that is written has 18 bytes, with some room for more subfields.
const HEADER: u64 = 64;
/// Checksum and length behind a member.
const TRAILER: u64 = 8;
/// The most that a member decodes to.
const MOST: u64 = 64 << 10;

/// The header of a member at `pos` and the length of it all, if it is one of BGZF.
fn member(bytes: &[u8], pos: u64) -> Option<(u64, u64)> {
    let member = Member::parse(bytes, pos).ok()??;
    let mut take = Take::new(&member.extra, "gzip header", pos);
    while take.remaining() > 0 {
        let name = take.bytes(2).ok()?;
        let len = take.u16().ok()?;
        let mut value = Take::new(take.bytes(len.into()).ok()?, "gzip header", pos);
        if name == b"BC" && len == 2 {
            let all = u64::from(value.u16().ok()?) + 1;
            let header = member.len as u64;
            return (all > header + TRAILER).then_some((header, all));
        }
    }
    None
}

/// An index of a BGZF file; `None` when it is none, or is cut. Reads some bytes of each member.
pub(super) fn index(file: &dyn ReadAt) -> Result<Option<Vec<u8>>> {
    let len = file.len();
    let mut bytes = Vec::new();
    let mut read = |from: u64, to: u64| -> Result<Vec<u8>> {
        bytes.resize((to.min(len) - from) as usize, 0);
        file.read_at(from, &mut bytes)?;
        Ok(bytes.clone())
    };
    let Some((mut header, mut all)) = member(&read(0, HEADER)?, 0) else { return Ok(None) };
    let mut index = IndexWriter::new(Vec::new(), 8 * header)?;
    let unit = |len: u64, end_bit: u64| NewUnit { len, end_bit, ..NewUnit::default() };
    // The content of the unit at hand: members without any count for the one before.
    let (mut pos, mut pending) = (0, 0);
    loop {
        let next = pos + all;
        if next > len {
            return Ok(None);
        }
        // The length of this one, and the header of the next.
        let bytes = read(next - 4, next + HEADER)?;
        let (content, rest) = bytes.split_at(4);
        let content = u64::from(Take::new(content, "gzip trailer", next - 4).u32()?);
        if content > MOST {
            return Ok(None);
        }
        if content > 0 {
            if pending > 0 {
                index.put(&unit(pending, 8 * (pos + header)), None)?;
            }
            pending = content;
        }
        if rest.is_empty() {
            break;
        }
        let Some(found) = member(rest, next) else { return Ok(None) };
        ((header, all), pos) = (found, next);
    }
    if pending > 0 {
        index.put(&unit(pending, 8 * len), None)?;
    }
    let digest = Digest([0; 32]);
    let about = About { format: Format::Gzip, is_inside: false, stored_len: len, digest };
    Ok(Some(index.finish(&about)?.0))
}
