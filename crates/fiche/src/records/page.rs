//! Record pages: records as bytes, column by column, and back.

use super::{
    Child, Entry, Extents, FANOUT, Kind, MAX_FANOUT, MAX_NAME, MAX_NAMES, Meta, PAGE_BYTES,
};
use crate::codec::Scratch;
use crate::envelope::{Kind as SectionKind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::wire::{Put, Take};

/// Front-coded names: each as what it does not share with the one before.
#[derive(Default)]
pub(super) struct FrontCoder {
    last: Vec<u8>,
    unfolded: usize,
}

impl FrontCoder {
    /// The name that was put last.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    pub fn put(&mut self, name: &[u8], out: &mut Vec<u8>) {
        let shared = self.last.iter().zip(name).take_while(|(a, b)| a == b).count();
        out.put_varint(shared as u64);
        out.put_string(&name[shared..]);
        self.last.clear();
        self.last.extend_from_slice(name);
    }

    pub fn take(&mut self, take: &mut Take<'_>) -> Result<Vec<u8>> {
        let shared = take.count(self.last.len() as u64)?;
        let rest = take.string()?;
        let name = [self.last.get(..shared).unwrap_or_default(), rest].concat();
        self.unfolded += name.len();
        if name.len() > MAX_NAME || self.unfolded > MAX_NAMES || rest.contains(&0) {
            return Err(take.corrupt());
        }
        self.last.clone_from(&name);
        Ok(name)
    }
}

/// The bytes of a record page's payload.
fn page_payload(offset: u64, number: u64, entries: &[Entry]) -> Vec<u8> {
    let mut columns: [Vec<u8>; 14] = Default::default();
    let (mut names, mut expected) = (FrontCoder::default(), offset);
    let no_meta = Meta::default();
    let (mut seconds, mut user, mut group) = (0i64, 0u32, 0u32);
    for (i, entry) in entries.iter().enumerate() {
        names.put(&entry.name, &mut columns[1]);
        columns[2].put_u8(entry.kind.number());
        columns[3].put_signed(entry.range.start.wrapping_sub(expected) as i64);
        columns[4].put_varint(entry.range.end - entry.range.start);
        expected = expected.max(entry.range.end);
        match &entry.extents {
            None => columns[5].put_varint(0),
            Some(extents) => {
                columns[5].put_varint(extents.data.len() as u64 + 1);
                columns[5].put_varint(extents.len);
                let mut end = 0;
                for piece in &extents.data {
                    columns[5].put_varint(piece.start - end);
                    columns[5].put_varint(piece.end - piece.start);
                    end = piece.end;
                }
            }
        }
        match &entry.kind {
            Kind::Symlink(target) => columns[6].put_string(target),
            Kind::Hardlink(to) => columns[6].put_varint(number + i as u64 - to),
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                columns[6].put_varint(u64::from(*major));
                columns[6].put_varint(u64::from(*minor));
            }
            Kind::Data | Kind::File | Kind::Directory | Kind::Fifo | Kind::Item => {}
        }
        let meta = entry.meta.as_ref().unwrap_or(&no_meta);
        let (now, _) = meta.modified;
        columns[7].put_varint(entry.meta.as_ref().map_or(0, |meta| u64::from(meta.mode) + 1));
        columns[8].put_signed(now.wrapping_sub(seconds));
        columns[9].put_varint(u64::from(meta.modified.1));
        columns[10].put_signed(i64::from(meta.user) - i64::from(user));
        columns[11].put_signed(i64::from(meta.group) - i64::from(group));
        (seconds, user, group) = (now, meta.user, meta.group);
        columns[12].put_varint(meta.attributes.len() as u64);
        for (name, value) in &meta.attributes {
            columns[12].put_string(name);
            columns[12].put_string(value);
        }
        if entry.kind == Kind::Item {
            columns[13].put_string(&entry.key);
        }
    }
    let mut payload = Vec::new();
    payload.put_varint(entries.len() as u64);
    for (id, column) in columns.iter().enumerate() {
        // Every value that means nothing is written as zeros.
        if column.iter().any(|&b| b != 0) {
            payload.put_u8(id as u8);
            payload.put_string(column);
        }
    }
    payload
}

/// The columns of a page; one that is left out gives zeros.
struct Columns<'a> {
    columns: [Option<Take<'a>>; 14],
}

impl<'a> Columns<'a> {
    fn take(take: &mut Take<'a>, what: &'static str, pos: u64) -> Result<Columns<'a>> {
        let mut columns: [Option<Take<'a>>; 14] = Default::default();
        let mut last = 0;
        while take.remaining() > 0 {
            let (id, bytes) = (take.u8()?, take.string()?);
            if id <= last {
                return Err(take.corrupt());
            }
            last = id;
            match columns.get_mut(usize::from(id)) {
                Some(column) => *column = Some(Take::new(bytes, what, pos)),
                None if id >= 128 => {}
                None => {
                    return Err(Error::Unsupported { what: "record column", found: u64::from(id) });
                }
            }
        }
        Ok(Columns { columns })
    }

    fn varint(&mut self, id: usize) -> Result<u64> {
        self.columns[id].as_mut().map_or(Ok(0), Take::varint)
    }

    fn signed(&mut self, id: usize) -> Result<i64> {
        self.columns[id].as_mut().map_or(Ok(0), Take::signed)
    }

    fn u32(&mut self, id: usize) -> Result<u32> {
        let value = self.varint(id)?;
        u32::try_from(value).map_err(|_| self.corrupt(id))
    }

    fn bytes(&mut self, id: usize) -> Result<Vec<u8>> {
        self.columns[id].as_mut().map_or(Ok(Vec::new()), |take| take.string().map(<[u8]>::to_vec))
    }

    fn corrupt(&self, id: usize) -> Error {
        let place = Error::Corrupt { what: "record page", at: Place::Pos(0) };
        self.columns[id].as_ref().map_or(place, Take::corrupt)
    }

    /// Every column must have been used up.
    fn end(&self) -> Result<()> {
        self.columns.iter().flatten().try_for_each(Take::end)
    }
}

/// Parses a record page (or a begun record).
pub(crate) fn parse_page(section: &Section) -> Result<Vec<Entry>> {
    let what = "record page";
    let mut take = section.take(what);
    let count = take.count(MAX_FANOUT)?;
    let mut columns = Columns::take(&mut take, what, section.at.pos)?;
    let corrupt = || section.corrupt(what);
    let (mut names, mut expected) = (FrontCoder::default(), section.offset);
    let (mut seconds, mut user, mut group) = (0i64, 0i64, 0i64);
    let mut entries = Vec::with_capacity(count);
    for i in 0..count as u64 {
        let name = match &mut columns.columns[1] {
            Some(take) => names.take(take)?,
            None => Vec::new(),
        };
        let kind = match &mut columns.columns[2] {
            Some(take) => take.u8()?,
            None => 0,
        };
        let start = expected.checked_add_signed(columns.signed(3)?).ok_or_else(corrupt)?;
        let len = columns.varint(4)?;
        let end = start.checked_add(len).filter(|&e| e <= i64::MAX as u64).ok_or_else(corrupt)?;
        expected = expected.max(end);
        let extents = parse_extents(&mut columns, len)?;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink(columns.bytes(6)?),
            4 => {
                let back = columns.varint(6)?;
                let own = section.number.checked_add(i).ok_or_else(corrupt)?;
                let to = own.checked_sub(back).filter(|_| back > 0).ok_or_else(corrupt)?;
                Kind::Hardlink(to)
            }
            5 => Kind::Fifo,
            6 => Kind::CharDevice(columns.u32(6)?, columns.u32(6)?),
            7 => Kind::BlockDevice(columns.u32(6)?, columns.u32(6)?),
            8 => Kind::Item,
            other => {
                return Err(Error::Unsupported { what: "kind of record", found: u64::from(other) });
            }
        };
        let sparse_item = kind == Kind::Item && extents.is_some();
        if sparse_item || (!kind.has_content() && (len > 0 || extents.is_some())) {
            return Err(corrupt());
        }
        let mode = columns.u32(7)?;
        seconds = seconds.wrapping_add(columns.signed(8)?);
        let nanoseconds = columns.u32(9)?;
        user = user.wrapping_add(columns.signed(10)?);
        group = group.wrapping_add(columns.signed(11)?);
        let mut meta = Meta {
            mode: mode.saturating_sub(1),
            modified: (seconds, nanoseconds),
            user: u32::try_from(user).map_err(|_| corrupt())?,
            group: u32::try_from(group).map_err(|_| corrupt())?,
            attributes: Vec::new(),
        };
        for _ in 0..columns.varint(12)? {
            meta.attributes.push((columns.bytes(12)?, columns.bytes(12)?));
        }
        if mode > 0o10000 || nanoseconds > 999_999_999 || (mode == 0 && meta != Meta::default()) {
            return Err(corrupt());
        }
        let meta = (mode > 0).then_some(meta);
        let key = if kind == Kind::Item { columns.bytes(13)? } else { Vec::new() };
        if key.len() > MAX_NAME || key.contains(&0) {
            return Err(corrupt());
        }
        entries.push(Entry { name, key, kind, meta, range: start..end, extents });
    }
    columns.end()?;
    if count == 0 { Err(corrupt()) } else { Ok(entries) }
}

fn parse_extents(columns: &mut Columns<'_>, content: u64) -> Result<Option<Extents>> {
    let Some(pieces) = columns.varint(5)?.checked_sub(1) else { return Ok(None) };
    let len = columns.varint(5)?;
    let (mut data, mut end, mut sum) = (Vec::new(), 0u64, 0u64);
    for _ in 0..pieces {
        let (hole, piece) = (columns.varint(5)?, columns.varint(5)?);
        let start = end.checked_add(hole).ok_or_else(|| columns.corrupt(5))?;
        end = start.checked_add(piece).ok_or_else(|| columns.corrupt(5))?;
        sum += piece;
        if piece == 0 {
            return Err(columns.corrupt(5));
        }
        data.push(start..end);
    }
    if end > len || len > i64::MAX as u64 || sum != content {
        return Err(columns.corrupt(5));
    }
    Ok(Some(Extents { len, data }))
}

/// Gathers records into pages.
#[derive(Default)]
pub(crate) struct PageBuilder {
    entries: Vec<Entry>,
    bytes: usize,
    offset: u64,
    number: u64,
}

/// A page that has all its records but no position yet.
pub(crate) struct Page {
    offset: u64,
    number: u64,
    entries: Vec<Entry>,
}

impl PageBuilder {
    /// Adds a record; `expected` is where its content would start if it is new.
    /// Returns a page when one is full.
    pub fn push(&mut self, entry: Entry, number: u64, expected: u64) -> Option<Page> {
        if self.entries.is_empty() {
            (self.offset, self.number, self.bytes) = (expected, number, 0);
        }
        let target = if let Kind::Symlink(target) = &entry.kind { target.len() } else { 0 };
        let attributes = entry.meta.iter().flat_map(|m| &m.attributes);
        let extents = entry.extents.as_ref().map_or(0, |e| e.data.len() * 8);
        self.bytes += 16
            + entry.name.len()
            + entry.key.len()
            + target
            + extents
            + attributes.map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.entries.push(entry);
        let full = self.entries.len() >= FANOUT || self.bytes >= PAGE_BYTES;
        if full { self.flush() } else { None }
    }

    pub fn flush(&mut self) -> Option<Page> {
        let entries = std::mem::take(&mut self.entries);
        (!entries.is_empty()).then_some(Page { offset: self.offset, number: self.number, entries })
    }
}

impl Page {
    /// A page of these records, the first of which has this number; content of new
    /// ones is expected to start at `expected`.
    pub fn of(entries: Vec<Entry>, number: u64, expected: u64) -> Page {
        Page { offset: expected, number, entries }
    }

    /// About how many bytes it takes in memory.
    pub fn weight(&self) -> usize {
        self.entries.iter().map(|e| e.name.len() + e.key.len() + 200).sum()
    }

    /// Appends its section, which lies at `pos`.
    pub fn put(
        &self,
        out: &mut Vec<u8>,
        pos: u64,
        kind: SectionKind,
        scratch: &mut Scratch,
    ) -> Child {
        let start = out.len();
        let payload = page_payload(self.offset, self.number, &self.entries);
        Section::put(out, pos, kind, (self.offset, self.number), &payload, Some(scratch));
        let name = self.entries.first().map(|e| e.name.clone()).unwrap_or_default();
        let at = SectionRef { pos, len: (out.len() - start) as u64 };
        Child { first: self.number, count: self.entries.len() as u64, at, name }
    }
}
