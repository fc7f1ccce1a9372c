//! Finds events by what some fields of them are.
//!
//! # Key page
//!
//! A section of kind 13, not compressed. Its offset is the events of all segments before its own, its number 0.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | width | bits of the number of the last event in the segment, from 0 on |
//! | 1 | bits | of a hash; both together are up to 62 |
//! | | keys | an Elias-Fano sequence, one for each event: one more than its hash, above the bits of its number |
//!
//! The *hash* of an event is made of the values of its key's fields, one behind the other: of a number its bytes, the lowest first; of a text or
//! bytes these, and then how many they are as 4 bytes. From 14695981039346656037 on, each byte is xored to the lowest of it, and it is multiplied by
//! 1099511628211, modulo 2^64 as all that follows (FNV-1a, 64 bits). Then it is xored with itself shifted right by 33, multiplied by
//! 18397679294719823053, xored so again, multiplied by 14181476777654086739, and xored so a last time. Its highest bits are those that are kept.

use super::batch::Batch;
use super::format::is_bare;
use super::packet::load;
use super::schema::{Layout, Schema, Type};
use crate::elias_fano::EliasFano;
use crate::envelope::{Kind, Section};
use crate::error::{Error, Result};
use crate::wire::low_bytes;

/// Bits of a hash beyond those that tell as many as there are events: one in so many others is taken for one that it is not, and looked at.
const BEYOND: u32 = 7;
const MOST_BITS: u32 = 62;

/// The columns that a field of a key has: of numbers one, of a text that of its lengths, and that of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    column: usize,
    is_text: bool,
}

/// Fields by their names, in the order of the schema.
///
/// # Errors
/// [`Error::Invalid`] for one that is not there, or neither a number nor a text.
pub(super) fn fields<T: AsRef<str>>(
    schema: &Schema,
    layout: &Layout,
    names: &[T],
) -> Result<Vec<usize>> {
    let field = |name: &T| {
        let name = name.as_ref();
        let field = schema.fields.iter().position(|field| field.name == name);
        let field = field.ok_or_else(|| Error::invalid(format!("there is no field {name:?}")))?;
        match part(schema, layout, field) {
            Some(_) => Ok(field),
            None => Err(Error::invalid(format!("{name} is neither a number nor a text"))),
        }
    };
    let mut fields = names.iter().map(field).collect::<Result<Vec<_>>>()?;
    fields.sort_unstable();
    match fields.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Error::invalid("a field of a key is there twice")),
        false => Ok(fields),
    }
}

/// The columns of fields that may be of a key.
pub(super) fn parts(schema: &Schema, layout: &Layout, fields: &[usize]) -> Vec<Part> {
    fields.iter().filter_map(|&field| part(schema, layout, field)).collect()
}

/// The columns of a field, if it may be of a key.
pub(super) fn part(schema: &Schema, layout: &Layout, field: usize) -> Option<Part> {
    let column = layout.columns_of(field).start;
    match schema.fields.get(field)?.what {
        Type::Number(_) => Some(Part { column, is_text: false }),
        Type::Text | Type::Bytes => Some(Part { column, is_text: true }),
        _ => None,
    }
}

/// The hash of what its bytes are.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(14_695_981_039_346_656_037)
    }

    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        }
    }

    fn part(&mut self, bytes: &[u8], is_text: bool) {
        self.put(bytes);
        if is_text {
            self.put(&low_bytes(bytes.len() as u64)[..4]);
        }
    }

    fn done(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 33).wrapping_mul(18_397_679_294_719_823_053);
        hash = (hash ^ hash >> 33).wrapping_mul(14_181_476_777_654_086_739);
        hash ^ hash >> 33
    }
}

/// The bytes of a field of a key of each event.
fn values(batch: &Batch, part: Part) -> impl Iterator<Item = &[u8]> {
    let (bytes, lens) = match part.is_text {
        true => (batch.bytes(part.column + 1), Some(batch.bytes(part.column))),
        false => (batch.bytes(part.column), None),
    };
    let width = batch.layout().columns()[part.column].number.width();
    let mut at = 0;
    (0..batch.len()).map(move |i| {
        let len = lens.map_or(width, |lens| load(lens, 4, i) as usize);
        at += len;
        &bytes[at - len..at]
    })
}

/// The hash of each event's key.
pub(super) fn hashes(batch: &Batch, parts: &[Part]) -> Vec<u64> {
    let mut hashes: Vec<Hash> = (0..batch.len()).map(|_| Hash::new()).collect();
    for &part in parts {
        hashes
            .iter_mut()
            .zip(values(batch, part))
            .for_each(|(hash, value)| hash.part(value, part.is_text));
    }
    hashes.into_iter().map(Hash::done).collect()
}

/// The hash of what an event is to have.
pub(super) fn hash_of(parts: &[(Part, &[u8])]) -> u64 {
    let mut hash = Hash::new();
    parts.iter().for_each(|(part, bytes)| hash.part(bytes, part.is_text));
    hash.done()
}

/// Whether a value may be one of a field at all.
///
/// # Errors
/// [`Error::Invalid`] for one of another width.
pub(super) fn check(layout: &Layout, part: Part, bytes: &[u8]) -> Result<()> {
    let column = &layout.columns()[part.column];
    match part.is_text || bytes.len() == column.number.width() {
        true => Ok(()),
        false => Err(Error::invalid(format!("{} has {:?}", column.path, column.number))),
    }
}

/// Which events of a batch have these values.
pub(super) fn matching(batch: &Batch, parts: &[(Part, &[u8])]) -> Vec<usize> {
    let mut left: Vec<bool> = vec![true; batch.len()];
    for &(part, wanted) in parts {
        left.iter_mut().zip(values(batch, part)).for_each(|(left, value)| *left &= value == wanted);
    }
    (0..left.len()).filter(|&i| left[i]).collect()
}

/// Which events of a segment have a key, by its hash.
pub(super) struct Keys {
    width: u32,
    bits: u32,
    keys: EliasFano,
}

impl Keys {
    /// Appends the section of a segment's keys, which lies at `pos`, behind so many events.
    pub fn put(out: &mut Vec<u8>, pos: u64, before: u64, batch: &Batch, parts: &[Part]) {
        let width = batch.len().saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1);
        let bits = (width + BEYOND).min(MOST_BITS - width);
        let keys = hashes(batch, parts).into_iter().zip(0u64..);
        let mut keys: Vec<u64> =
            keys.map(|(hash, i)| (hash >> (64 - bits) << width | i) + 1).collect();
        keys.sort_unstable();
        let mut payload = vec![width as u8, bits as u8];
        EliasFano::encode(&keys, &mut payload);
        Section::put(out, pos, Kind::KeyPage, (before, 0), &payload, None);
    }

    /// Those of so many events, behind so many.
    pub fn parse(section: &Section, before: u64, events: u64) -> Result<Keys> {
        let mut take = section.take("key page");
        // So each segment has its own.
        if !is_bare(section) || (section.offset, section.number) != (before, 0) {
            return Err(take.corrupt());
        }
        let (width, bits) = (u32::from(take.u8()?), u32::from(take.u8()?));
        // Each takes more than a bit of what is there.
        let count = usize::try_from(events).ok().filter(|&n| n / 8 <= take.remaining());
        let count = count.ok_or_else(|| take.corrupt())?;
        let keys = EliasFano::decode(&mut take, count)?;
        take.end()?;
        if bits == 0 || width + bits > MOST_BITS || keys.last() > 1 << (width + bits) {
            return Err(take.corrupt());
        }
        Ok(Keys { width, bits, keys })
    }

    /// The events of the segment that may have a key of this hash, in their order.
    pub fn find(&self, hash: u64) -> impl Iterator<Item = u64> + '_ {
        let first = hash >> (64 - self.bits) << self.width;
        let all = std::iter::successors(self.keys.above(first), |&gap| self.keys.next(gap));
        let mask = (1u64 << self.width) - 1;
        all.map_while(move |gap| {
            let key = gap.to - 1;
            (key & !mask == first).then_some(key & mask)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_what_they_were() {
        let part = |is_text| Part { column: 0, is_text };
        let of = |parts: &[(Part, &[u8])]| hash_of(parts);
        assert_eq!(of(&[]), 0xEFD0_1F60_BA99_2926);
        let both: [(Part, &[u8]); 2] = [(part(false), &[7, 0]), (part(true), b"muon")];
        assert_eq!(of(&both), 0x991E_65A5_11C7_E86B);
    }
}
