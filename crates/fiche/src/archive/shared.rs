//! What the blocks of an archive share: its dictionaries and models, loaded when first needed.
//!
//! # Model
//!
//! Section kind 2; offset 0; number: its place among the footer's other sections. Its digest is the
//! BLAKE3 digest of its payload.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | coding | the coding it is for: 20 or 23 |
//! | | content | as under that coding |

use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::archive::format::SharedRef;
use crate::archive::spare::mend;
use crate::archive::writer::Sink;
use crate::blocks::Coded;
use crate::envelope::{Kind, Section, SectionRef};
use crate::error::{Error, Place, Result};
use crate::io::{ReadAt, Resolve};
use crate::rlz::coder;
use crate::rlz::store::Description;
use crate::rlz::{Coding, Dictionary};
use crate::wire::Digest;

/// A table leads to something that is not there, or is something else. Whose block it is, the
/// reader knows.
const LEADS_ELSEWHERE: Error = Error::Corrupt { what: "chapter table", at: Place::Pos(0) };

/// Keeps dictionaries that were loaded, by their digests, for archives that are opened later: where to load
/// one costs more than to keep it.
pub trait DictionaryCache: Send + Sync {
    /// True for one that is kept.
    fn has(&self, digest: &Digest) -> bool;

    /// The dictionary of this digest, if it is kept and whole.
    fn get(&self, digest: &Digest) -> Option<Arc<Dictionary>>;

    /// Keeps one, if there is room.
    fn put(&self, dictionary: &Arc<Dictionary>);
}

/// Where dictionaries may be that are not in the archive.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub dictionaries: Vec<Arc<Dictionary>>,
    pub resolve: Option<Arc<dyn Resolve>>,
    pub cache: Option<Arc<dyn DictionaryCache>>,
}

impl Known {
    /// True for a dictionary that is at hand or kept.
    fn has(&self, digest: &Digest) -> bool {
        self.dictionaries.iter().any(|known| known.digest() == *digest)
            || self.cache.as_ref().is_some_and(|cache| cache.has(digest))
    }

    fn get(&self, digest: &Digest) -> Option<Arc<Dictionary>> {
        let known = self.dictionaries.iter().find(|known| known.digest() == *digest);
        // What is kept is what it was kept as, or damaged.
        let kept = || self.cache.as_ref()?.get(digest).filter(|kept| kept.digest() == *digest);
        known.cloned().or_else(kept)
    }
}

/// The dictionaries and models of an archive.
pub(super) struct Shared {
    source: Arc<dyn ReadAt>,
    slots: Vec<Slot>,
    known: Known,
    /// Held while what lies before the first block is fetched: once is enough.
    pub fetching: Mutex<()>,
}

struct Slot {
    found: SharedRef,
    item: Once<Item>,
    dictionary: Once<Arc<Dictionary>>,
}

/// Something that is loaded once. Damage is kept, too: it would be the same for every block. What
/// the system refuses now it may give later.
struct Once<T> {
    cell: OnceLock<Result<T>>,
    loading: Mutex<()>,
}

impl<T> Once<T> {
    fn new() -> Once<T> {
        Once { cell: OnceLock::new(), loading: Mutex::new(()) }
    }

    fn get(&self, load: impl FnOnce() -> Result<T>) -> Result<&T> {
        if self.cell.get().is_none() {
            let _alone = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
            if self.cell.get().is_none() {
                let loaded = load();
                if let Err(error @ Error::Io(_)) = loaded {
                    return Err(error);
                }
                let _ = self.cell.set(loaded);
            }
        }
        match self.cell.get() {
            Some(loaded) => loaded.as_ref().map_err(Error::again),
            // It was set above, by us or by another.
            None => Err(Error::Poisoned),
        }
    }
}

/// What a section says.
enum Item {
    Dictionary(Description),
    Model {
        digest: Digest,
        model: coder::Model,
    },
    /// What mends the others.
    Spare(Section),
}

/// The bytes of a model's section.
pub(super) fn model_payload(model: &coder::Model) -> Vec<u8> {
    let mut payload = Vec::new();
    model.put(&mut payload);
    payload
}

impl Shared {
    pub fn new(source: Arc<dyn ReadAt>, found: &[SharedRef], known: Known) -> Shared {
        let slot = |&found: &SharedRef| Slot { found, item: Once::new(), dictionary: Once::new() };
        let fetching = Mutex::default();
        Shared { source, slots: found.iter().map(slot).collect(), known, fetching }
    }

    fn slot(&self, place: u32) -> Result<&Slot> {
        self.slots.get(place as usize).ok_or(LEADS_ELSEWHERE)
    }

    fn item<'a>(&self, slot: &'a Slot) -> Result<&'a Item> {
        let load = || -> Result<Item> {
            let SharedRef { kind, at } = slot.found;
            if kind == Kind::Dictionary as u8 {
                return Description::parse(&self.load(at, Kind::Dictionary)?).map(Item::Dictionary);
            }
            if kind == Kind::Spare as u8 {
                return Section::load(&self.source, at, Kind::Spare).map(Item::Spare);
            }
            if kind != Kind::Model as u8 {
                let found = u64::from(kind);
                return Err(Error::Unsupported { what: "kind of section", found });
            }
            let section = self.load(at, Kind::Model)?;
            let mut take = section.take("model");
            let model = coder::Model::take(&mut take)?;
            take.end()?;
            Ok(Item::Model { digest: Digest::of(&section.payload), model })
        };
        slot.item.get(load)
    }

    /// A section, mended if it is damaged and can be.
    fn load(&self, at: SectionRef, kind: Kind) -> Result<Section> {
        let error = match Section::load(&self.source, at, kind) {
            // What a device cannot read may be mended as well.
            Err(error @ (Error::Corrupt { .. } | Error::Io(_))) => error,
            other => return other,
        };
        for slot in self.slots.iter().filter(|slot| slot.found.kind == Kind::Spare as u8) {
            if let Ok(Item::Spare(spare)) = self.item(slot)
                && let Some(mended) = mend(&self.source, spare, at, kind)?
            {
                return Ok(mended);
            }
        }
        Err(error)
    }

    /// What is said of the dictionary at this place; `None` when it is something else.
    pub fn description(&self, place: u32) -> Result<Option<&Description>> {
        match self.item(self.slot(place)?)? {
            Item::Dictionary(description) => Ok(Some(description)),
            Item::Model { .. } | Item::Spare(_) => Ok(None),
        }
    }

    /// What is said of each dictionary, by its place.
    pub fn descriptions(&self) -> Result<impl Iterator<Item = (u32, &Description)>> {
        let mut all = Vec::new();
        for (place, slot) in self.slots.iter().enumerate() {
            if let Item::Dictionary(description) = self.item(slot)? {
                all.push((place as u32, description));
            }
        }
        Ok(all.into_iter())
    }

    /// Bytes of the file that dictionaries take, and models.
    pub fn stored_bytes(&self) -> Result<(u64, u64)> {
        let (mut dictionaries, mut models) = (0, 0);
        for slot in &self.slots {
            match self.item(slot)? {
                Item::Model { .. } => models += slot.found.at.len,
                Item::Spare(_) => dictionaries += slot.found.at.len,
                Item::Dictionary(d) => {
                    dictionaries += slot.found.at.len + d.pieces.iter().map(|p| p.len).sum::<u64>();
                }
            }
        }
        Ok((dictionaries, models))
    }

    /// Digests of all, in order; zeros for what cannot be read.
    pub fn digests(&self) -> Vec<Digest> {
        let digest = |slot: &Slot| match self.item(slot) {
            Ok(Item::Dictionary(description)) => description.digest,
            Ok(Item::Model { digest, .. }) => *digest,
            Ok(Item::Spare(_)) | Err(_) => Digest([0; 32]),
        };
        self.slots.iter().map(digest).collect()
    }

    /// Every way in which a block can be coded with what is here, and its mark.
    pub fn marks(&self) -> Vec<(u32, Coded)> {
        let all = || (0..self.slots.len() as u32).map(Some);
        let mut marks = Vec::new();
        for dictionary in all().filter(|&place| matches!(self.description_at(place), Ok(Some(_)))) {
            for coding in Coding::ALL {
                let models = all().filter(|_| coding.has_model());
                for model in std::iter::once(None).chain(models) {
                    let coded = Coded { number: coding as u8, dictionary, model };
                    marks.extend(self.mark(coded).ok().map(|mark| (mark, coded)));
                }
            }
        }
        marks
    }

    fn description_at(&self, place: Option<u32>) -> Result<Option<&Description>> {
        place.map_or(Ok(None), |place| self.description(place))
    }

    /// Appends what an archive that is being written does not have yet. Returns the place of each
    /// there.
    pub fn copy_to<W: Write>(&self, sink: &mut Sink<W>) -> Result<Vec<u32>> {
        let mut places = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let item = self.item(slot)?;
            let digest = match item {
                Item::Dictionary(description) => description.digest,
                Item::Model { digest, .. } => *digest,
                // There will be one for all that is copied.
                Item::Spare(_) => {
                    places.push(u32::MAX);
                    continue;
                }
            };
            let place = match sink.digests.iter().position(|known| *known == digest) {
                Some(place) => place,
                None => self.copy_one(slot, item, digest, sink)?,
            };
            places.push(place as u32);
        }
        sink.end_shared()?;
        Ok(places)
    }

    fn copy_one<W: Write>(
        &self,
        slot: &Slot,
        item: &Item,
        digest: Digest,
        sink: &mut Sink<W>,
    ) -> Result<usize> {
        let place = sink.footer.shared.len();
        let kind = match item {
            Item::Model { .. } => Kind::Model,
            Item::Spare(_) => Kind::Spare,
            Item::Dictionary(description) => {
                for &piece in &description.pieces {
                    let kind = Kind::DictionaryPiece;
                    let bytes = Section::moved(&self.source, piece, kind, sink.pos)?;
                    sink.write_shared(&bytes)?;
                }
                Kind::Dictionary
            }
        };
        // Its number is its place.
        let section = self.load(slot.found.at, kind)?;
        let (mut bytes, pos, before) = (Vec::new(), sink.pos, (0, place as u64));
        let scratch = (kind == Kind::Model).then_some(&mut sink.scratch);
        Section::put(&mut bytes, pos, kind, before, &section.payload, scratch);
        sink.write_shared(&bytes)?;
        sink.add_shared(kind, SectionRef { pos, len: bytes.len() as u64 }, digest);
        Ok(place)
    }

    fn model(&self, place: u32) -> Result<(&Digest, &coder::Model)> {
        let slot = self.slot(place)?;
        match self.item(slot)? {
            Item::Model { digest, model } => Ok((digest, model)),
            Item::Dictionary(_) | Item::Spare(_) => Err(LEADS_ELSEWHERE),
        }
    }

    /// The mark that the checksums of blocks are made with that are coded so.
    pub fn mark(&self, coded: Coded) -> Result<u32> {
        let Some(place) = coded.dictionary else { return Ok(u32::from(coded.number)) };
        let description = self.description(place)?.ok_or(LEADS_ELSEWHERE)?;
        let mut tag = description.digest.tag();
        if let Some(place) = coded.model {
            tag ^= self.model(place)?.0.tag();
        }
        Ok(u32::from(tag) << 8 | u32::from(coded.number))
    }

    /// The dictionary at this place, which is loaded if it was not yet.
    pub fn dictionary(&self, place: u32) -> Result<&Arc<Dictionary>> {
        let slot = self.slot(place)?;
        let load = || -> Result<Arc<Dictionary>> {
            let description = self.description(place)?.ok_or(LEADS_ELSEWHERE)?;
            let digest = description.digest;
            if let Some(dictionary) = self.known.get(&digest) {
                return Ok(dictionary);
            }
            let missing = Error::Missing { what: "dictionary", digest };
            let dictionary = match (&description.name, &self.known.resolve) {
                (None, _) => {
                    self.fetch(&description.pieces);
                    let kind = Kind::DictionaryPiece;
                    description.dictionary(&|at| self.load(at, kind)).map(Arc::new)?
                }
                (Some(_), None) => return Err(missing),
                (Some(name), Some(resolve)) => {
                    let dictionary = Dictionary::read_from(&resolve.open(name, &digest)?)?;
                    if dictionary.digest() != digest {
                        return Err(missing);
                    }
                    Arc::new(dictionary)
                }
            };
            if let Some(cache) = &self.known.cache {
                cache.put(&dictionary);
            }
            Ok(dictionary)
        };
        slot.dictionary.get(load)
    }

    /// Adds the ranges of the file that have yet to be fetched before a block that is coded so can be
    /// decoded.
    pub fn waiting(&self, coded: Coded, found: &mut Vec<Range<u64>>) -> Result<()> {
        if let Some(place) = coded.model {
            let slot = self.slot(place)?;
            if slot.item.cell.get().is_none() {
                found.push(slot.found.at.pos..slot.found.at.end());
            }
        }
        let Some(place) = coded.dictionary else { return Ok(()) };
        let (slot, description) = (self.slot(place)?, self.description(place)?);
        let description = description.ok_or(LEADS_ELSEWHERE)?;
        let is_known = || self.known.has(&description.digest);
        if slot.dictionary.cell.get().is_none() && description.name.is_none() && !is_known() {
            found.extend(description.pieces.iter().map(|piece| piece.pos..piece.end()));
        }
        Ok(())
    }

    /// Where sections are far away: fetches them at once.
    fn fetch(&self, sections: &[SectionRef]) {
        if let Some(distant) = self.source.as_distant() {
            let ranges: Vec<Range<u64>> = sections.iter().map(|at| at.pos..at.end()).collect();
            distant.fetch(&ranges);
        }
    }

    /// Where nothing that is shared was loaded yet: a range of the file in which all of it most probably
    /// lies that was written before the first block. The pieces of a dictionary are before what describes
    /// them, so this is from the beginning on; without them where dictionaries are kept elsewhere.
    pub fn front(&self, first_table: u64) -> Option<Range<u64>> {
        /// What is not needed is not fetched in the hope that it is.
        const MOST: u64 = 64 << 20;
        let near = || self.slots.iter().filter(|slot| slot.found.at.end() <= first_table);
        let (first, last) = (near().next()?, near().next_back()?);
        let is_loaded = near().any(|slot| slot.item.cell.get().is_some());
        let may_be_known = self.known.cache.is_some() || !self.known.dictionaries.is_empty();
        let start = if may_be_known { first.found.at.pos } else { 0 };
        let range = start..last.found.at.end();
        let len = range.end.checked_sub(range.start)?;
        (!is_loaded && len <= MOST).then_some(range)
    }

    /// What a block that is coded so is decoded with.
    pub fn of(&self, coded: Coded) -> Result<coder::Shared<'_>> {
        let dictionary = self.dictionary(coded.dictionary.ok_or(LEADS_ELSEWHERE)?)?;
        let model = coded.model.map(|place| self.model(place)).transpose()?;
        Ok(coder::Shared { dictionary, model: model.map(|(_, model)| model) })
    }

    /// Every range of the file that dictionaries and models take up, and what is wrong with them.
    pub fn sections(&self, mut each: impl FnMut(Result<SectionRef>)) {
        for (place, slot) in self.slots.iter().enumerate() {
            each(Ok(slot.found.at));
            // What could be mended is damaged all the same.
            let mut check = |at, kind: u8| {
                let kinds = [Kind::Dictionary, Kind::Model, Kind::Spare, Kind::DictionaryPiece];
                let kind = kinds.into_iter().find(|known| *known as u8 == kind);
                let loaded = kind.map(|kind| Section::load(&self.source, at, kind));
                loaded.and_then(Result::err).inspect(|error| each(Err(error.again()))).is_some()
            };
            let mut is_told = check(slot.found.at, slot.found.kind);
            match self.item(slot) {
                Err(error) if !is_told => each(Err(error)),
                Ok(Item::Dictionary(description)) => {
                    for &piece in &description.pieces {
                        is_told |= check(piece, Kind::DictionaryPiece as u8);
                    }
                    description.pieces.iter().for_each(|&piece| each(Ok(piece)));
                    if let Err(error) = self.dictionary(place as u32)
                        && !is_told
                    {
                        each(Err(error));
                    }
                }
                _ => {}
            }
        }
    }
}
