//! Where each block lies: a tree of nodes, of which those are in memory that were needed last.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::volume::format::{ENTRY, FAN, FAN_BITS};
use crate::wire::{Put, Take, load_low, low_bytes};

/// Positions of a node, in eighths; packed, because there are as many as blocks.
pub(super) struct Node(Box<[u8; FAN * ENTRY]>);

impl Node {
    fn empty() -> Node {
        Node(Box::new([0; FAN * ENTRY]))
    }

    pub fn get(&self, i: usize) -> u64 {
        load_low(&self.0[i * ENTRY..][..ENTRY])
    }

    fn set(&mut self, i: usize, entry: u64) {
        self.0[i * ENTRY..][..ENTRY].copy_from_slice(&low_bytes(entry)[..ENTRY]);
    }

    /// What is compressed and stored: `None` for a node of nothing.
    fn bytes(&self) -> Option<Vec<u8>> {
        let (mut bytes, mut last) = (Vec::with_capacity(FAN * 2), 0);
        for i in 0..FAN {
            let entry = self.get(i);
            bytes.put_signed((entry as i64) - last);
            last = entry as i64;
        }
        self.0.iter().any(|&byte| byte != 0).then_some(bytes)
    }

    pub fn parse(bytes: &[u8], pos: u64) -> Result<Node> {
        let mut take = Take::new(bytes, "node of the map", pos);
        let (mut node, mut entry) = (Node::empty(), 0i64);
        for i in 0..FAN {
            entry = entry.checked_add(take.signed()?).ok_or_else(|| take.corrupt())?;
            if !(0..1 << (8 * ENTRY)).contains(&entry) {
                return Err(take.corrupt());
            }
            node.set(i, entry as u64);
        }
        take.end()?;
        Ok(node)
    }
}

struct Slot {
    node: Node,
    /// Changed since it was stored.
    is_dirty: bool,
    /// Used since somebody looked for nodes to let go of.
    is_used: bool,
}

/// A level and a number in it.
pub(super) type Place = (u8, u64);

/// Gives the stored bytes of the node of this place that lies at `pos`, decompressed.
pub(super) type Load<'a> = &'a dyn Fn(u64, Place) -> Result<Vec<u8>>;

/// What the node of a block says about those around it.
pub(super) struct Around {
    /// Blocks in a row that lie where it does, itself included.
    pub same: usize,
    /// Where the first one behind them lies; 0 for nowhere, or where the node does not say it.
    pub next: u64,
}

/// Bytes of memory that a node takes.
pub(super) const NODE_MEMORY: u64 = (FAN * ENTRY + size_of::<(Place, Slot)>()) as u64;

/// The map of a volume.
pub(super) struct Map {
    nodes: HashMap<Place, Slot>,
    /// Where the root is stored, in eighths; 0 for nowhere.
    pub root: u64,
    levels: u8,
    blocks: u64,
    pub dirty: usize,
    /// The how many-eth turn of the log led into each segment last, since it was opened: what was there before is something else.
    turns: Vec<u64>,
    turn: u64,
}

/// How many levels of nodes lead to so many blocks.
fn levels(blocks: u64) -> u8 {
    let bits = u64::BITS - (blocks - 1).leading_zeros();
    bits.div_ceil(FAN_BITS).max(1) as u8
}

impl Map {
    pub fn new(blocks: u64, root: u64) -> Map {
        Map {
            nodes: HashMap::new(),
            root,
            levels: levels(blocks),
            blocks,
            dirty: 0,
            turns: Vec::new(),
            turn: 0,
        }
    }

    /// Is another map from now on, in the same segments.
    pub fn replace(&mut self, blocks: u64, root: u64) {
        let other = Map::new(blocks, root);
        (self.nodes, self.dirty) = (other.nodes, 0);
        (self.root, self.levels, self.blocks) = (root, other.levels, blocks);
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        self.nodes.len() as u64 * NODE_MEMORY
    }

    /// Where the nodes that lead to so many blocks from here on begin: all of them, or one region of them.
    pub fn top_of(first: u64, blocks: u64) -> Place {
        let level = levels(blocks) - 1;
        (level, first >> (FAN_BITS * (u32::from(level) + 1)))
    }

    pub fn top(&self) -> Place {
        (self.levels - 1, 0)
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Leads to more blocks from now on, or to fewer: then those that are cut off lead nowhere, and what is in memory is stored. `each` is
    /// told where nodes were that are not needed any more.
    pub fn resize(&mut self, blocks: u64, load: Load<'_>, each: &mut dyn FnMut(u64)) -> Result<()> {
        let levels = levels(blocks);
        // Nobody looks behind the end, also if this fails.
        self.blocks = self.blocks.min(blocks);
        while self.levels > levels {
            let top = self.top();
            let child = self.stored((top.0 - 1, 0), load)?;
            let gone = self.nodes.remove(&top);
            self.dirty -= usize::from(gone.is_some_and(|slot| slot.is_dirty));
            each(std::mem::replace(&mut self.root, child));
            self.levels -= 1;
        }
        while self.levels < levels {
            // One above the root: the old one is the first below it.
            let (old, place) = (self.top(), (self.levels, 0));
            self.levels += 1;
            if self.root == 0 && !self.nodes.contains_key(&old) {
                continue;
            }
            let entry = std::mem::take(&mut self.root);
            let mut node = Node::empty();
            node.set(0, entry);
            self.nodes.insert(place, Slot { node, is_dirty: true, is_used: true });
            self.dirty += 1;
        }
        self.blocks = blocks;
        let (levels, bits) = (self.levels, |level: u8| FAN_BITS * (u32::from(level) + 1));
        self.nodes.retain(|place, _| place.0 < levels && place.1 <= (blocks - 1) >> bits(place.0));
        Ok(())
    }

    /// Forgets what is below a node and the node itself, none of which is needed: the one above leads nowhere, or to another that is stored, in eighths.
    pub fn graft(&mut self, place: Place, entry: u64, load: Load<'_>) -> Result<()> {
        let (level, number) = place;
        let parent = (level + 1, number >> FAN_BITS);
        self.touch(parent, load)?;
        let is_below = |other: &Place| {
            other.0 <= level && other.1 >> (FAN_BITS * u32::from(level - other.0)) == number
        };
        let gone = |slot: &Slot| usize::from(slot.is_dirty);
        self.dirty -=
            self.nodes.iter().filter(|(at, _)| is_below(at)).map(|it| gone(it.1)).sum::<usize>();
        self.nodes.retain(|at, _| !is_below(at));
        self.slot(parent, load)?.node.set(number as usize % FAN, entry);
        Ok(())
    }

    /// The log goes on in a segment.
    pub fn enter(&mut self, segment: u32) {
        let segments = self.turns.len().max(segment as usize + 1);
        self.turns.resize(segments, 0);
        self.turn += 1;
        self.turns[segment as usize] = self.turn;
    }

    /// Which turn led to a segment last; 0 for one before it was opened.
    pub fn turn_of(&self, segment: u32) -> u64 {
        self.turns.get(segment as usize).copied().unwrap_or(0)
    }

    /// Whether it has such a node.
    pub fn is_place(&self, place: Place) -> bool {
        place.0 < self.levels
            && place.1 <= (self.blocks - 1) >> (FAN_BITS * (u32::from(place.0) + 1))
    }

    /// Whether a node is in memory.
    pub fn has(&self, place: Place) -> bool {
        self.nodes.contains_key(&place)
    }

    /// Where a node was stored last, in eighths.
    pub fn stored(&mut self, place: Place, load: Load<'_>) -> Result<u64> {
        if place == self.top() {
            return Ok(self.root);
        }
        let (level, number) = place;
        let parent = self.slot((level + 1, number >> FAN_BITS), load)?;
        Ok(parent.node.get(number as usize % FAN))
    }

    fn slot(&mut self, place: Place, load: Load<'_>) -> Result<&mut Slot> {
        if !self.nodes.contains_key(&place) {
            let node = match self.stored(place, load)? {
                0 => Node::empty(),
                entry => {
                    let pos = entry * super::format::ALIGN;
                    Node::parse(&load(pos, place)?, pos)?
                }
            };
            self.nodes.insert(place, Slot { node, is_dirty: false, is_used: true });
        }
        let slot = self.nodes.entry(place).or_insert_with(|| unreachable!("it was put there"));
        slot.is_used = true;
        Ok(slot)
    }

    /// Where the fragment of a block lies, in eighths; 0 for zeros.
    pub fn get(&mut self, block: u64, load: Load<'_>) -> Result<u64> {
        let place = (0, block >> FAN_BITS);
        // Nodes of nothing are not made to be read.
        if !self.nodes.contains_key(&place) && self.nothing_above(block, load)?.is_some() {
            return Ok(0);
        }
        let slot = self.slot(place, load)?;
        Ok(slot.node.get(block as usize % FAN))
    }

    /// What is around a block of which it was just asked; up to so many blocks before and behind it.
    pub fn around(&mut self, block: u64, most: usize, load: Load<'_>) -> Result<Around> {
        let place = (0, block >> FAN_BITS);
        if !self.nodes.contains_key(&place) {
            return Ok(Around { same: 1, next: 0 });
        }
        let node = &self.slot(place, load)?.node;
        let at = block as usize % FAN;
        let is_same = |i: &usize| node.get(*i) == node.get(at);
        let before = (0..at).rev().take(most).take_while(is_same).count();
        let behind = (at..FAN).take(most).take_while(is_same).count();
        let next = at + behind;
        let next = if next < FAN { node.get(next) } else { 0 };
        Ok(Around { same: before + behind, next })
    }

    /// Makes sure of the nodes that [`set`](Map::set) needs for these blocks, so that it cannot fail. They stay in memory until
    /// they are stored.
    pub fn prepare(&mut self, block: u64, count: u64, load: Load<'_>) -> Result<()> {
        for number in block >> FAN_BITS..=(block + count - 1) >> FAN_BITS {
            self.touch((0, number), load)?;
        }
        Ok(())
    }

    /// Lets a block lead to another fragment; returns the one before.
    pub fn set(&mut self, block: u64, entry: u64, load: Load<'_>) -> Result<u64> {
        let slot = self.slot((0, block >> FAN_BITS), load)?;
        let i = block as usize % FAN;
        let before = slot.node.get(i);
        let is_new = before != entry && !slot.is_dirty;
        slot.is_dirty |= before != entry;
        slot.node.set(i, entry);
        self.dirty += usize::from(is_new);
        Ok(before)
    }

    /// Lets blocks lead nowhere, and says where each of them led. Costs no more than the nodes that lead somewhere.
    pub fn clear(
        &mut self,
        block: u64,
        count: u64,
        load: Load<'_>,
        each: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let end = block + count;
        let mut at = block;
        while at < end {
            // The highest node of nothing that has this block spares all of its.
            let nothing = self.nothing_above(at, load)?;
            if let Some(level) = nothing {
                let bits = FAN_BITS * (u32::from(level) + 1);
                at = ((at >> bits) + 1) << bits;
                continue;
            }
            let next = ((at >> FAN_BITS) + 1) << FAN_BITS;
            for block in at..next.min(end) {
                let before = self.set(block, 0, load)?;
                if before != 0 {
                    each(before);
                }
            }
            at = next;
        }
        Ok(())
    }

    /// How many blocks from this one on lead nowhere, or somewhere, up to the end of what one node tells.
    pub fn run(&mut self, block: u64, load: Load<'_>) -> Result<(u64, bool)> {
        if let Some(level) = self.nothing_above(block, load)? {
            let bits = FAN_BITS * (u32::from(level) + 1);
            return Ok(((((block >> bits) + 1) << bits) - block, true));
        }
        let slot = self.slot((0, block >> FAN_BITS), load)?;
        let first = block as usize % FAN;
        let is_zero = slot.node.get(first) == 0;
        let end = (first..FAN).find(|&i| (slot.node.get(i) == 0) != is_zero).unwrap_or(FAN);
        Ok(((end - first) as u64, is_zero))
    }

    /// The level of the highest node that leads to a block and was never there.
    fn nothing_above(&mut self, block: u64, load: Load<'_>) -> Result<Option<u8>> {
        for level in (0..self.levels).rev() {
            let place = (level, block >> (FAN_BITS * (u32::from(level) + 1)));
            // Those above a node in memory are in memory, too: below this one there is none.
            if !self.nodes.contains_key(&place) && self.stored(place, load)? == 0 {
                return Ok(Some(level));
            }
        }
        Ok(None)
    }

    /// Marks a node as one that is to be stored again.
    pub fn touch(&mut self, place: Place, load: Load<'_>) -> Result<()> {
        let slot = self.slot(place, load)?;
        let is_new = !slot.is_dirty;
        slot.is_dirty = true;
        self.dirty += usize::from(is_new);
        Ok(())
    }

    /// The nodes below one that are there, stored or in memory.
    pub fn children(&mut self, place: Place, load: Load<'_>) -> Result<Vec<Place>> {
        let Some(level) = place.0.checked_sub(1) else {
            return self.slot(place, load).map(|_| Vec::new());
        };
        let first = place.1 << FAN_BITS;
        let slot = self.slot(place, load)?;
        let stored: Vec<bool> = (0..FAN).map(|i| slot.node.get(i) > 0).collect();
        let is_there =
            |i: &usize| stored[*i] || self.nodes.contains_key(&(level, first + *i as u64));
        Ok((0..FAN).filter(is_there).map(|i| (level, first + i as u64)).collect())
    }

    /// The nodes of a level that changed, in order.
    pub fn changed(&self, level: u8) -> Vec<u64> {
        let is_changed = |(place, slot): &(&Place, &Slot)| place.0 == level && slot.is_dirty;
        let mut numbers: Vec<u64> =
            self.nodes.iter().filter(is_changed).map(|(p, _)| p.1).collect();
        numbers.sort_unstable();
        numbers
    }

    /// What is to be stored of a node; `None` for one of nothing.
    pub fn bytes(&self, place: Place) -> Option<Vec<u8>> {
        self.nodes.get(&place)?.node.bytes()
    }

    /// A node is stored here now, in eighths; returns where it was before.
    pub fn moved(&mut self, place: Place, entry: u64, load: Load<'_>) -> Result<u64> {
        if let Some(slot) = self.nodes.get_mut(&place)
            && std::mem::take(&mut slot.is_dirty)
        {
            self.dirty -= 1;
        }
        if place == self.top() {
            return Ok(std::mem::replace(&mut self.root, entry));
        }
        let (level, number) = place;
        let parent = (level + 1, number >> FAN_BITS);
        let slot = self.slot(parent, load)?;
        let before = slot.node.get(number as usize % FAN);
        slot.node.set(number as usize % FAN, entry);
        if before != entry {
            self.touch(parent, load)?;
        }
        Ok(before)
    }

    /// Lets go of nodes that are stored and were not used lately until there are at most so many bytes, as far as that can be.
    pub fn shrink(&mut self, budget: u64) {
        for _ in 0..2 {
            if self.memory() <= budget {
                return;
            }
            // Those above a node in memory stay.
            let mut needed: HashSet<Place> = HashSet::new();
            for level in 0..self.levels {
                self.nodes.retain(|place, slot| {
                    if place.0 != level {
                        return true;
                    }
                    let is_used = std::mem::take(&mut slot.is_used);
                    let stays = is_used || slot.is_dirty || needed.contains(place);
                    if stays {
                        needed.insert((level + 1, place.1 >> FAN_BITS));
                    }
                    stays
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn levels_are_as_many_as_the_blocks_take() {
        for (blocks, expected) in
            [(1, 1), (2, 1), (1024, 1), (1025, 2), (1 << 20, 2), ((1 << 20) + 1, 3), (1 << 40, 4)]
        {
            assert_eq!(levels(blocks), expected, "{blocks}");
        }
    }

    #[test]
    fn what_was_set_is_there_when_nodes_were_stored_and_forgotten() {
        use std::cell::RefCell;
        let blocks = 3 << 20;
        let stored: RefCell<Vec<Vec<u8>>> = RefCell::default();
        let load = |pos: u64, _: Place| -> Result<Vec<u8>> {
            stored.borrow().get((pos / 8 - 1) as usize).cloned().ok_or(Error::Poisoned)
        };
        let mut map = Map::new(blocks, 0);
        let mut random = crate::random::Random(1);
        let mut model = HashMap::new();
        for round in 0..20 {
            for _ in 0..200 {
                let block = random.below(blocks);
                let entry = random.below(1 << 40);
                let before = map.set(block, entry, &load).unwrap();
                assert_eq!(before, model.insert(block, entry).unwrap_or(0));
            }
            // As a checkpoint does.
            for level in 0..3 {
                for number in map.changed(level) {
                    let bytes = map.bytes((level, number)).unwrap();
                    stored.borrow_mut().push(bytes);
                    let entry = stored.borrow().len() as u64;
                    map.moved((level, number), entry, &load).unwrap();
                }
            }
            assert_eq!(map.dirty, 0);
            match round % 3 {
                0 => map = Map::new(blocks, map.root),
                1 => map.shrink(0),
                _ => {}
            }
            for (&block, &entry) in &model {
                assert_eq!(map.get(block, &load).unwrap(), entry);
            }
        }
    }

    #[test]
    fn a_node_that_makes_no_sense_is_refused() {
        let mut node = Node::empty();
        assert!(node.bytes().is_none());
        node.set(1023, (1 << 40) - 1);
        let bytes = node.bytes().unwrap();
        assert_eq!(Node::parse(&bytes, 0).unwrap().get(1023), (1 << 40) - 1);
        assert!(Node::parse(&bytes[1..], 0).is_err());
        assert!(Node::parse(&[&bytes[..], &[0]].concat(), 0).is_err());
        let mut below = vec![1];
        below.resize(1024, 0);
        assert!(Node::parse(&below, 0).is_err());
        let mut above = Vec::new();
        above.put_signed(1 << 40);
        above.resize(above.len() + 1023, 0);
        assert!(Node::parse(&above, 0).is_err());
    }
}
