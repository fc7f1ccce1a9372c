//! A bounded cache that threads share: decoded blocks, parsed pages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Few enough that one shard can hold the longest block at the default size,
/// enough that threads seldom wait for one another.
const SHARDS: usize = 4;

/// Values by number, up to a total weight. A value is kept by the clock rule:
/// what was used since the hand last passed stays for another round.
pub(crate) struct Cache<V> {
    shards: [Mutex<Shard<V>>; SHARDS],
    /// Of each shard.
    capacity: u64,
}

struct Shard<V> {
    places: HashMap<u64, usize>,
    slots: Vec<Slot<V>>,
    hand: usize,
    weight: u64,
}

struct Slot<V> {
    key: u64,
    value: Arc<V>,
    weight: u64,
    used: bool,
}

impl<V> Cache<V> {
    pub fn new(capacity: u64) -> Cache<V> {
        let shard = || Shard { places: HashMap::new(), slots: Vec::new(), hand: 0, weight: 0 };
        Cache {
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            capacity: capacity / SHARDS as u64,
        }
    }

    fn shard(&self, key: u64) -> std::sync::MutexGuard<'_, Shard<V>> {
        // A poisoned shard is still whole: nothing in it panics half-way.
        self.shards[key as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: u64) -> Option<Arc<V>> {
        if self.capacity == 0 {
            return None;
        }
        let mut shard = self.shard(key);
        let place = *shard.places.get(&key)?;
        let slot = &mut shard.slots[place];
        slot.used = true;
        Some(slot.value.clone())
    }

    /// True for what is not too heavy to be kept.
    pub fn takes(&self, weight: u64) -> bool {
        weight <= self.capacity
    }

    /// Keeps a value, and hands back one that is kept no longer, so that its
    /// memory can be used again. A value heavier than a shard is handed back itself.
    pub fn insert(&self, key: u64, value: Arc<V>, weight: u64) -> Option<Arc<V>> {
        if !self.takes(weight) {
            return Some(value);
        }
        let mut shard = self.shard(key);
        let mut gone = None;
        if let Some(&place) = shard.places.get(&key) {
            gone = Some(shard.remove(place));
        }
        while shard.weight + weight > self.capacity {
            let hand = shard.hand % shard.slots.len();
            if shard.slots[hand].used {
                shard.slots[hand].used = false;
                shard.hand = hand + 1;
            } else {
                gone = Some(shard.remove(hand));
            }
        }
        let shard = &mut *shard;
        let place = shard.slots.len();
        if place == shard.slots.capacity() {
            // A map with twice the room that it needs is cleaned of what was
            // removed from it in its place: once full, a cache allocates nothing.
            shard.slots.reserve(1);
            shard.places.reserve(2 * shard.slots.capacity());
        }
        shard.places.insert(key, place);
        shard.slots.push(Slot { key, value, weight, used: false });
        shard.weight += weight;
        gone
    }
}

impl<V> Shard<V> {
    fn remove(&mut self, place: usize) -> Arc<V> {
        let slot = self.slots.swap_remove(place);
        self.places.remove(&slot.key);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.key, place);
        }
        self.weight -= slot.weight;
        slot.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_capacity_and_finds_what_it_holds() {
        let cache = Cache::new(4000);
        let mut seed = 1u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (key, weight) = (seed >> 33 & 63, seed >> 50 & 255);
            if let Some(value) = cache.get(key) {
                assert_eq!(*value, key);
            }
            cache.insert(key, Arc::new(key), weight);
            for shard in &cache.shards {
                let shard = shard.lock().unwrap();
                assert!(shard.weight <= 1000);
                assert_eq!(shard.weight, shard.slots.iter().map(|s| s.weight).sum::<u64>());
                assert!(shard.slots.iter().enumerate().all(|(i, s)| shard.places[&s.key] == i));
                assert_eq!(shard.places.len(), shard.slots.len());
            }
        }
    }

    #[test]
    fn a_value_that_is_used_outlives_those_that_are_not() {
        let cache = Cache::new(4 * 10);
        for key in (0..4000).step_by(4) {
            cache.insert(key, Arc::new(key), 1);
            cache.get(0);
        }
        assert!(cache.get(0).is_some());
    }

    #[test]
    fn a_full_cache_allocates_nothing() {
        let cache = Cache::new(4 * 16);
        let value = Arc::new(());
        let mut random = crate::testing::Random(3);
        let mut insert = |count: u32| {
            for _ in 0..count {
                cache.insert(random.below(1000), value.clone(), 1);
            }
        };
        insert(1000);
        let counted = allocation_counter::measure(|| insert(100_000));
        assert_eq!(counted.count_total, 0);
    }

    #[test]
    fn what_is_too_heavy_is_handed_back() {
        let cache = Cache::new(0);
        assert!(cache.insert(1, Arc::new(5), 1).is_some());
        assert!(cache.get(1).is_none());
    }
}
