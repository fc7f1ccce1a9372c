//! The dictionaries of a volume: what its units have in common. They lie in the log like blocks do, each twice.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, OnceLock};

use crate::codec::prepared::{Decoding, Encoding};
use crate::error::{Error, Place, Result};
use crate::volume::format::{
    ALIGN, DICTIONARIES, FRAGMENT_HEAD, Kind, MAX_DICTIONARY, Stream, Superblock,
};
use crate::volume::log::{From, Log, read_fragment, read_meta};
use crate::volume::space::{Space, parse_root};
use crate::volume::unit::{Draft, With};
use crate::volume::{Volume, locked};

/// Bytes of a unit for which dictionaries are prepared, about.
const UNIT: usize = 16 << 10;

/// One that can be used.
pub(super) struct Dictionary {
    bytes: Arc<Vec<u8>>,
    pub decoding: Decoding,
    /// Prepared for each level that was asked for: that of requests, and that of packing when nobody asks.
    encodings: Mutex<Vec<(i32, Arc<Encoding>)>>,
}

impl Dictionary {
    /// `None` where these bytes are none.
    pub fn new(bytes: Vec<u8>) -> Option<Dictionary> {
        let decoding = Decoding::trained(&bytes)?;
        Some(Dictionary { bytes: Arc::new(bytes), decoding, encodings: Mutex::default() })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn encoding(&self, level: i32) -> Result<Arc<Encoding>> {
        let mut encodings = locked(&self.encodings);
        if let Some((_, ready)) = encodings.iter().find(|(known, _)| *known == level) {
            return Ok(ready.clone());
        }
        let new = Arc::new(Encoding::trained(self.bytes.clone(), level, UNIT)?);
        encodings.push((level, new.clone()));
        Ok(new)
    }
}

/// Those of a volume by their numbers, of which each always means the same one.
#[derive(Default)]
pub(super) struct Dictionaries([OnceLock<Dictionary>; DICTIONARIES]);

impl Dictionaries {
    pub fn get(&self, number: u8) -> Option<&Dictionary> {
        self.0.get(usize::from(number))?.get()
    }

    /// The one with which new units are packed, and its number.
    pub fn newest(&self) -> Option<(u8, &Dictionary)> {
        let known = (0u8..).zip(&self.0).filter_map(|(number, slot)| Some((number, slot.get()?)));
        known.last()
    }

    pub fn set(&self, number: usize, dictionary: Dictionary) {
        if let Some(slot) = self.0.get(number) {
            let _ = slot.set(dictionary);
        }
    }

    /// What new units are packed with at this level, if with any.
    pub fn with(&self, level: i32) -> Option<With> {
        let (number, dictionary) = self.newest()?;
        // Without memory for it units are packed as before.
        Some(With { number, encoding: dictionary.encoding(level).ok()? })
    }

    /// How many can be used, and their bytes.
    pub fn total(&self) -> (usize, usize) {
        let known = || self.0.iter().filter_map(OnceLock::get);
        (known().count(), known().map(|dictionary| dictionary.bytes.len()).sum())
    }
}

/// Where the copies of each dictionary lie, in eighths; 0 for nowhere.
pub(super) type Copies = Vec<[u64; 2]>;

/// A copy lies here from now on, in eighths; 0 for nowhere. Where one was the next superblock is waited for before that is written again: it may be all that
/// those who read a snapshot beside the volume know of.
pub(super) fn place(
    copies: &mut Copies,
    space: &mut Space,
    (number, copy): (u64, u32),
    entry: u64,
) {
    let number = number as usize;
    copies.resize(copies.len().max(number + 1), [0; 2]);
    let Some(slot) = copies[number].get_mut(copy.saturating_sub(1) as usize) else { return };
    let before = std::mem::replace(slot, entry);
    if entry > 0 {
        space.pin(entry);
        space.set_meta(entry);
    }
    space.unpin(before);
}

/// Where those of a superblock lie. Counts them.
pub(super) fn read_copies(
    from: From<'_>,
    superblock: &Superblock,
    space: &mut Space,
) -> Result<Copies> {
    let pos = superblock.dictionaries;
    if pos == 0 {
        return Ok(Copies::new());
    }
    let root = read_meta(from, pos, (Kind::DictionaryRoot, 0, 1))?;
    let is_inside =
        |&entry: &u64| entry == 0 || (1..superblock.segments).contains(&space.segment(entry));
    let entries = parse_root(&root)
        .filter(|entries| entries.len() <= 2 * DICTIONARIES && entries.len().is_multiple_of(2))
        .filter(|entries| entries.iter().all(is_inside))
        .ok_or(Error::Corrupt { what: "dictionaries", at: Place::Pos(pos) })?;
    entries.iter().filter(|&&entry| entry > 0).for_each(|&entry| space.pin(entry));
    space.pin(pos / ALIGN);
    Ok(entries.chunks_exact(2).map(|copies| [copies[0], copies[1]]).collect())
}

impl Volume {
    /// The bytes of a copy that lies there, if it does.
    pub(super) fn read_copy(&self, number: usize, copy: usize, entry: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let head = read_fragment(self.from(), entry * ALIGN, MAX_DICTIONARY, &mut bytes).ok()?;
        let is_this = (head.block, head.count) == (number as u64, copy as u32 + 1);
        let end = FRAGMENT_HEAD + head.len as usize;
        (head.kind == Kind::Dictionary && is_this).then(|| bytes[FRAGMENT_HEAD..end].to_vec())
    }

    /// Reads all dictionaries. Returns which copies are damaged while the other one is whole: number and copy.
    pub(super) fn read_dictionaries(&self, copies: &Copies) -> Vec<(usize, usize)> {
        let mut damaged = Vec::new();
        for (number, entries) in copies.iter().enumerate() {
            let read = |copy: usize| match entries[copy] {
                0 => None,
                entry => self.read_copy(number, copy, entry).and_then(Dictionary::new),
            };
            let [first, second] = [read(0), read(1)];
            let is_damaged = [first.is_none(), second.is_none()];
            if let Some(dictionary) = first.or(second) {
                self.dictionaries.set(number, dictionary);
                damaged.extend((0..2).filter(|&copy| is_damaged[copy]).map(|copy| (number, copy)));
            }
        }
        damaged
    }

    /// Appends a copy of a dictionary that is known.
    pub(super) fn put_copy(
        &self,
        log: &mut Log,
        stream: Stream,
        (number, copy): (usize, usize),
        bytes: &[u8],
    ) -> Result<()> {
        let mut draft = Draft::default();
        let (tag, count) = (self.packing.tag, copy as u32 + 1);
        draft.push(tag, Kind::Dictionary, number as u64, count, bytes);
        self.put(log, stream, draft)
    }

    /// Writes copies again that are damaged, where there is room.
    pub(super) fn heal(&self, log: &mut Log, damaged: Vec<(usize, usize)>) -> Result<()> {
        for (number, copy) in damaged {
            if log.space.available() > self.reserve(log)
                && let Some(dictionary) = self.dictionaries.get(number as u8)
            {
                match self.put_copy(log, Stream::Hot, (number, copy), dictionary.bytes()) {
                    // Nothing was written: the next opening has room, perhaps.
                    Err(Error::Io(error)) if error.kind() == ErrorKind::StorageFull => break,
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Appends the list of them for a superblock.
    pub(super) fn store_dictionaries(&self, log: &mut Log) -> Result<()> {
        let entries = log.copies.as_flattened().to_vec();
        log.dictionary_root =
            self.put_list(log, Kind::DictionaryRoot, &entries, log.dictionary_root)?;
        Ok(())
    }

    /// Positions of copies that cannot be read.
    pub(super) fn damaged_copies(&self, copies: &Copies) -> Vec<u64> {
        let mut damaged = Vec::new();
        for (number, entries) in copies.iter().enumerate() {
            for (copy, &entry) in entries.iter().enumerate() {
                if self.read_copy(number, copy, entry).is_none() {
                    damaged.push(entry * ALIGN);
                }
            }
        }
        damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_a_copy_has_left_waits_for_a_superblock_and_one_that_blocks_left_does_not() {
        for is_block in [false, true] {
            let mut space = Space::new(16, 100, 5, [1 << 16, 0]);
            let mut copies = Copies::new();
            let entry = |segment: u64| (segment << 16) / ALIGN + 3;
            let mut put = |space: &mut Space, segment: u64| match is_block {
                true => space.add(entry(segment), 1),
                false => place(&mut copies, space, (0, 1), entry(segment)),
            };
            space.enter(Stream::Hot, 2);
            put(&mut space, 2);
            space.enter(Stream::Hot, 3);
            let gone = space.take_gone();
            space.release(gone);
            put(&mut space, 3);
            if is_block {
                space.remove(entry(2));
            }
            assert!(space.is_dead(2) && !space.is_dead(3));
            let early: Vec<u32> = space.early().into_iter().map(|(segment, _)| segment).collect();
            assert_eq!(early, if is_block { vec![2] } else { vec![] });
            assert!(copies == [[entry(3), 0]] || is_block);
        }
    }
}
