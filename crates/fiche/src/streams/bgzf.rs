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

/// A member, as its header and its trailer tell of it.
struct Found {
    pos: u64,
    header: u64,
    content: u64,
}

/// All members of a BGZF file; `None` when it is none, or is cut. Reads some bytes of each member.
fn walk(file: &dyn ReadAt) -> Result<Option<Vec<Found>>> {
    let len = file.len();
    let read = |from: u64, to: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; (to.min(len) - from) as usize];
        file.read_at(from, &mut bytes)?;
        Ok(bytes)
    };
    let Some((mut header, mut all)) = member(&read(0, HEADER)?, 0) else { return Ok(None) };
    let (mut found, mut pos) = (Vec::new(), 0);
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
        found.push(Found { pos, header, content });
        if rest.is_empty() {
            return Ok(Some(found));
        }
        let Some(behind) = member(rest, next) else { return Ok(None) };
        ((header, all), pos) = (behind, next);
    }
}

/// Where each member begins, in the file and in the content; `None` when it is no BGZF file.
pub(super) fn members(file: &dyn ReadAt) -> Result<Option<Vec<(u64, u64)>>> {
    let mut offset = 0;
    let place = |found: &Found| {
        let place = (found.pos, offset);
        offset += found.content;
        place
    };
    Ok(walk(file)?.map(|all| all.iter().map(place).collect()))
}

/// An index of a BGZF file; `None` when it is none. Members without content count for the one before.
pub(super) fn index(file: &dyn ReadAt) -> Result<Option<Vec<u8>>> {
    let Some(all) = walk(file)? else { return Ok(None) };
    let first = all.first().map_or(0, |found| found.header);
    let mut index = IndexWriter::new(Vec::new(), 8 * first)?;
    let unit = |len: u64, end_bit: u64| NewUnit { len, end_bit, ..NewUnit::default() };
    let mut pending = 0;
    for found in all.iter().filter(|found| found.content > 0) {
        if pending > 0 {
            index.put(&unit(pending, 8 * (found.pos + found.header)), None)?;
        }
        pending = found.content;
    }
    if pending > 0 {
        index.put(&unit(pending, 8 * file.len()), None)?;
    }
    let (stored_len, digest) = (file.len(), Digest([0; 32]));
    let about = About { format: Format::Gzip, is_inside: false, stored_len, digest };
    Ok(Some(index.finish(&about)?.0))
}
