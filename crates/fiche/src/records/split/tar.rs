//! Members of a tar file.

use ::tar::{EntryType, Header, PaxExtensions};

use super::{Found, LONGEST, Splitter, name_of};
use crate::error::{Error, Result};

const BLOCK: usize = 512;

#[derive(Default)]
pub(super) struct Tar {
    pos: u64,
    /// What is being gathered: a header, or the value of an extension.
    kept: Vec<u8>,
    state: State,
    /// Name and size that extensions give the next member.
    name: Option<Vec<u8>>,
    size: Option<u64>,
    /// The member whose content goes by.
    member: Option<Found>,
}

/// What comes next.
#[derive(Default)]
enum State {
    #[default]
    Header,
    /// A long name, of so many bytes, and padding.
    LongName(u64),
    /// PAX records of so many bytes, and padding.
    Pax(u64),
    /// Further headers of a sparse file in the old GNU format, before so many bytes.
    Sparse(u64),
    /// Bytes up to here, of a member or padding.
    Skip(u64),
    /// All that follows.
    Rest,
}

impl Tar {
    fn header(&mut self) -> Result<State> {
        let at = self.pos - BLOCK as u64;
        let refuse = || Error::invalid(format!("there is no tar header at byte {at}"));
        if self.kept.iter().all(|&b| b == 0) {
            return Ok(State::Rest);
        }
        let header = Header::from_byte_slice(&self.kept);
        let sum: u32 = self.kept.iter().map(|&b| u32::from(b)).sum();
        let own: u32 = self.kept[148..156].iter().map(|&b| u32::from(b)).sum();
        if header.cksum().ok() != Some(sum - own + 8 * 32) {
            return Err(refuse());
        }
        let kind = header.entry_type();
        let len = header.entry_size().map_err(|_| refuse())?;
        let end = |len: u64| {
            let padded = len.checked_next_multiple_of(BLOCK as u64);
            padded.and_then(|len| len.checked_add(self.pos)).ok_or_else(refuse)
        };
        let known = (1..=LONGEST as u64).contains(&len);
        match kind {
            EntryType::GNULongName if known => return Ok(State::LongName(len)),
            EntryType::XHeader if known => return Ok(State::Pax(len)),
            // These tell of members, and are none.
            EntryType::GNULongLink | EntryType::XGlobalHeader => return Ok(State::Skip(end(len)?)),
            _ => {}
        }
        let name = self.name.take();
        let len = self.size.take().unwrap_or(len);
        let next = end(len)?;
        if kind == EntryType::GNUSparse {
            // What is stored are its pieces, which are not its content.
            let more = header.as_gnu().is_some_and(|header| header.is_extended());
            return Ok(if more { State::Sparse(next - self.pos) } else { State::Skip(next) });
        }
        if kind.is_file() || kind == EntryType::Continuous {
            let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
            let range = self.pos..self.pos.saturating_add(len);
            self.member = Some(Found { range, name: name_of(&name), key: Vec::new() });
        }
        // Links have a size in some archives, but no content.
        let has_none = kind.is_hard_link() || kind.is_symlink() || kind.is_dir();
        Ok(State::Skip(if has_none { self.pos } else { next }))
    }

    fn pax(&mut self, len: u64) {
        let records = &self.kept[..len as usize];
        for record in PaxExtensions::new(records).flatten() {
            match record.key_bytes() {
                b"path" => self.name = Some(record.value_bytes().to_vec()),
                b"size" => self.size = record.value().ok().and_then(|size| size.parse().ok()),
                _ => {}
            }
        }
    }
}

impl Splitter for Tar {
    fn take(&mut self, mut bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        while !bytes.is_empty() {
            let wanted = match self.state {
                State::Header | State::Sparse(_) => BLOCK,
                State::LongName(len) | State::Pax(len) => (len as usize).next_multiple_of(BLOCK),
                State::Skip(end) => {
                    let now = (end - self.pos).min(bytes.len() as u64);
                    self.pos += now;
                    bytes = &bytes[now as usize..];
                    if self.pos == end {
                        self.state = State::Header;
                        found.extend(self.member.take());
                    }
                    continue;
                }
                State::Rest => {
                    self.pos += bytes.len() as u64;
                    return Ok(());
                }
            };
            let (now, later) = bytes.split_at((wanted - self.kept.len()).min(bytes.len()));
            self.kept.extend_from_slice(now);
            self.pos += now.len() as u64;
            bytes = later;
            if self.kept.len() < wanted {
                return Ok(());
            }
            self.state = match self.state {
                State::Header => self.header()?,
                State::LongName(len) => {
                    let name = &self.kept[..len as usize];
                    self.name = Some(name.strip_suffix(b"\0").unwrap_or(name).to_vec());
                    State::Header
                }
                State::Pax(len) => {
                    self.pax(len);
                    State::Header
                }
                State::Sparse(len) => match self.kept[504] {
                    0 => State::Skip(self.pos + len),
                    _ => State::Sparse(len),
                },
                State::Skip(_) | State::Rest => continue,
            };
            self.kept.clear();
        }
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        // A member that was cut has what is there.
        if let Some(mut member) = self.member.take() {
            member.range.end = member.range.end.min(self.pos);
            found.push(member);
        }
        Ok(())
    }
}
