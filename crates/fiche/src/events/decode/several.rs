//! How far several packets were gone through, and in which order their items are: in turns, of which each has one item of every packet
//! that still has one, so that none waits for the one before.

use super::run::{At, Ats, Lane};
use crate::model::Bits;

/// Packets that are decoded side by side at most.
pub(in crate::events) const LANES: usize = 64;
/// Packets that are gone through at once.
pub(super) const GROUP: usize = 8;

/// Each packet has a place in these, and those with more items come first. At places that no packet has there are no items.
pub(super) struct Several {
    pub number: [u32; LANES],
    /// Where the next word is.
    pub next: [u32; LANES],
    /// Bits that are left before.
    pub left: [u32; LANES],
    /// On the level that is decoded, the first item of each, and how many it has.
    pub first: [u32; LANES],
    pub items: [u32; LANES],
    /// Where each packet is in these.
    places: [u8; LANES],
    /// Where each turn begins among what is told, which has whole groups, and where the last ends.
    pub turns: Vec<u32>,
    /// Where each item is in that.
    pub rows: Vec<u32>,
    /// Few packets have most of the items: turns are no good for them.
    pub is_skewed: bool,
}

impl Default for Several {
    fn default() -> Several {
        let none = [0; LANES];
        Several {
            number: none,
            next: none,
            left: none,
            first: none,
            items: none,
            places: std::array::from_fn(|i| i as u8),
            turns: Vec::new(),
            rows: Vec::new(),
            is_skewed: false,
        }
    }
}

impl Ats for Several {
    const SEVERAL: bool = true;

    #[inline(always)]
    fn get(&self, packet: usize) -> At {
        let place = self.place(packet);
        let bits = Bits::at(self.left[place] as usize);
        At { number: self.number[place], next: self.next[place] as usize, bits }
    }

    #[inline(always)]
    fn set(&mut self, packet: usize, at: At) {
        let place = self.place(packet);
        self.number[place] = at.number;
        // A packet has less than 2^29 bytes. Where it is damaged both wrap, as all that reads them does.
        (self.next[place], self.left[place]) = (at.next as u32, at.bits.pos() as u32);
    }

    #[inline(always)]
    fn several(&mut self) -> Option<&mut Several> {
        Some(self)
    }
}

impl Several {
    /// Where packets are when they are put there.
    pub fn clear(&mut self) {
        self.places = std::array::from_fn(|i| i as u8);
    }

    /// Where a packet is.
    #[inline(always)]
    pub fn place(&self, packet: usize) -> usize {
        usize::from(self.places[packet]) % LANES
    }

    /// How many items there are in all turns, those that are not there among them.
    #[inline(always)]
    pub fn told(&self) -> usize {
        self.turns.last().map_or(0, |&end| end as usize)
    }

    /// Sees to the turns of a level.
    pub fn level(&mut self, lanes: &[Lane]) {
        let items = |lane: &Lane| lane.last - lane.first;
        let each = lanes.first().map_or(0, items);
        let is_even = lanes.iter().all(|lane| items(lane) == each);
        if !is_even {
            self.sort(lanes);
        }
        self.items = [0; LANES];
        let mut most = 0;
        for (packet, lane) in lanes.iter().enumerate() {
            let place = self.place(packet);
            (self.first[place], self.items[place]) = (lane.first as u32, items(lane) as u32);
            most = most.max(items(lane) as u32);
        }
        // Up to which turn some packet of a group has items.
        let mut ends = [0; LANES / GROUP];
        for (end, items) in ends.iter_mut().zip(self.items.as_chunks::<GROUP>().0) {
            *end = items.iter().fold(0, |most, &items| most.max(items));
        }
        let (mut groups, mut start) = (ends.len(), 0);
        self.turns.clear();
        self.turns.push(0);
        for turn in 0..most {
            while groups > 0 && ends[groups - 1] <= turn {
                groups -= 1;
            }
            start += (groups * GROUP) as u32;
            self.turns.push(start);
        }
        self.rows.clear();
        for (packet, lane) in lanes.iter().enumerate() {
            let place = self.place(packet) as u32;
            self.rows.extend(self.turns[..items(lane)].iter().map(|&turn| turn + place));
        }
        let all = lanes.last().map_or(0, |lane| lane.last);
        self.is_skewed = self.told() > 4 * all + LANES;
    }

    /// Those with more items come first: from some number on they are as they come.
    fn sort(&mut self, lanes: &[Lane]) {
        const MANY: usize = 32;
        let key = |lane: &Lane| MANY - 1 - (lane.last - lane.first).min(MANY - 1);
        let mut starts = [0u8; MANY + 1];
        lanes.iter().for_each(|lane| starts[key(lane) + 1] += 1);
        (0..MANY).for_each(|i| starts[i + 1] += starts[i]);
        let (number, next, left, places) = (self.number, self.next, self.left, self.places);
        for (lane, (place, &old)) in lanes.iter().zip(self.places.iter_mut().zip(&places)) {
            let start = &mut starts[key(lane)];
            *place = *start;
            *start += 1;
            let (new, old) = (usize::from(*place) % LANES, usize::from(old) % LANES);
            self.number[new] = number[old];
            (self.next[new], self.left[new]) = (next[old], left[old]);
        }
    }
}
