//! Models, ready to decode: read when they are needed, and kept.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::decode::{Decoder, Sinks};
use super::model::Model;
use super::schema::Layout;
use crate::cache::Cache;
use crate::error::Result;

/// Bytes of models that stay in memory once they were read; these are the first, most often all. Of others so many.
pub(super) const STAY: u64 = 512 << 20;
pub(super) const OTHERS: u64 = 256 << 20;

/// A model, ready to decode.
pub(super) struct Loaded {
    pub layout: Arc<Layout>,
    /// Of a packet.
    pub events: u64,
    pub decoder: Decoder,
    pub all: Sinks,
}

impl Loaded {
    pub fn new(layout: &Arc<Layout>, model: &Model) -> Loaded {
        Loaded {
            layout: layout.clone(),
            events: model.events as u64,
            decoder: Decoder::new(layout, model),
            all: Sinks::new(layout.columns().len(), |_| true),
        }
    }
}

/// What a thread has of a model that does not stay: of which reader it is, its number, and it.
#[derive(Default)]
pub(super) struct Kept(Option<(u64, usize, Arc<Loaded>)>);

/// The models of a reader.
pub(super) struct Models {
    reader: u64,
    models: Vec<OnceLock<Arc<Loaded>>>,
    /// Bytes of those that stay, and how many these may be.
    stay: AtomicU64,
    most: u64,
    others: Cache<Loaded>,
}

impl Models {
    /// So many of this reader: with so many bytes of them that stay, and of others.
    pub fn new(reader: u64, count: usize, most: u64, others: u64) -> Models {
        let models = (0..count).map(|_| OnceLock::new()).collect();
        Models { reader, models, stay: AtomicU64::new(0), most, others: Cache::new(others) }
    }

    /// The model of this number, where it is one of those that stay.
    pub fn at_hand(&self, number: usize) -> Option<&Arc<Loaded>> {
        self.models[number].get()
    }

    /// The model of this number, which is read by `read` where it is not there.
    #[inline(always)]
    pub fn get<'a>(
        &'a self,
        number: usize,
        kept: &'a mut Kept,
        read: impl FnOnce() -> Result<Loaded>,
    ) -> Result<&'a Arc<Loaded>> {
        match self.models[number].get() {
            Some(loaded) => Ok(loaded),
            None => self.load(number, kept, read),
        }
    }

    #[cold]
    fn load<'a>(
        &'a self,
        number: usize,
        kept: &'a mut Kept,
        read: impl FnOnce() -> Result<Loaded>,
    ) -> Result<&'a Arc<Loaded>> {
        let found = match &kept.0 {
            Some((of, model, loaded)) if (*of, *model) == (self.reader, number) => {
                Some(loaded.clone())
            }
            _ => self.others.get(number as u64),
        };
        let loaded = match found {
            Some(loaded) => loaded,
            None => {
                let loaded = Arc::new(read()?);
                let weight = loaded.decoder.size() as u64;
                if self.stay.fetch_add(weight, Relaxed) + weight <= self.most {
                    let mut is_first = false;
                    let stays = self.models[number].get_or_init(|| {
                        is_first = true;
                        loaded
                    });
                    // Another thread may have been faster.
                    self.stay.fetch_sub(if is_first { 0 } else { weight }, Relaxed);
                    return Ok(stays);
                }
                self.stay.fetch_sub(weight, Relaxed);
                self.others.insert(number as u64, loaded.clone(), weight);
                loaded
            }
        };
        Ok(&kept.0.insert((self.reader, number, loaded)).2)
    }

    /// How many there are, how many of them stay, and the bytes of these.
    #[cfg(test)]
    pub fn told(&self) -> (usize, usize, u64) {
        let stay = self.models.iter().filter(|model| model.get().is_some()).count();
        (self.models.len(), stay, self.stay.load(Relaxed))
    }
}
