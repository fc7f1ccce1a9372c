//! The tables that a block's symbols are looked up in.
//!
//! A code of up to `ROOT` bits is found by one look, a longer one by two. An entry says all that
//! there is to know: how many bits to go on by, extra bits included, and what the symbol means.
//!
//! | bits | of an entry |
//! |---|---|
//! | 0 to 7 | bits of the code and extra bits |
//! | 8 to 11 | bits of the code; of a link: bits that its table is looked up by |
//! | 13 to 15 | [`END`], [`LINK`], [`SPECIAL`] |
//! | 16 to 30 | the literal, the least length or distance; of a link: where its table starts |
//! | 31 | [`LITERAL`] |

/// A literal: the one kind of entry that is asked for first.
pub(super) const LITERAL: u32 = 1 << 31;
/// No length or distance, but a link, the end of the block, or nothing that may be.
pub(super) const SPECIAL: u32 = 1 << 15;
/// Leads to a table for the codes that begin so.
pub(super) const LINK: u32 = 1 << 14;
/// The end of the block.
pub(super) const END: u32 = 1 << 13;

/// Literals, the end of the block, lengths; and two that may not occur.
pub(super) const SYMBOLS: usize = 288;
/// Distances, the last two of which may not occur.
pub(super) const DISTANCES: usize = 32;
/// Symbols that say how long the other codes are.
pub(super) const LENGTHS: usize = 19;
/// The longest code has so many bits.
const LONGEST: usize = 15;

/// Bits that symbols, distances and lengths are looked up by at first; and the most entries that
/// there can be then, as counting all codes shows.
const ROOT: u32 = 11;
const ROOM: usize = 2342;
const DISTANCE_ROOT: u32 = 8;
const DISTANCE_ROOM: usize = 402;
const LENGTH_ROOT: u32 = 7;
const LENGTH_ROOM: usize = 128;

/// What symbols mean, without the bits of their codes.
const SYMBOL_ENTRIES: [u32; SYMBOLS] = {
    let mut all = [SPECIAL; SYMBOLS];
    let mut i = 0;
    while i < 256 {
        all[i] = LITERAL | (i as u32) << 16;
        i += 1;
    }
    all[256] = SPECIAL | END;
    let (mut base, mut i) = (3, 0);
    while i < 28 {
        let extra = if i < 8 { 0 } else { i / 4 - 1 };
        all[257 + i as usize] = base << 16 | extra;
        base += 1 << extra;
        i += 1;
    }
    all[285] = 258 << 16;
    all
};

const DISTANCE_ENTRIES: [u32; DISTANCES] = {
    let mut all = [SPECIAL; DISTANCES];
    let (mut base, mut i) = (1, 0);
    while i < 30 {
        let extra = if i < 4 { 0 } else { i / 2 - 1 };
        all[i as usize] = base << 16 | extra;
        base += 1 << extra;
        i += 1;
    }
    all
};

const LENGTH_ENTRIES: [u32; LENGTHS] = {
    let mut all = [0; LENGTHS];
    let mut i = 0;
    while i < LENGTHS {
        all[i] = (i as u32) << 16;
        i += 1;
    }
    all
};

/// What may be said of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Whole,
    /// One code of one bit: the other bit may not occur. Or no code at all.
    Single,
    /// Some sequences of bits mean nothing, or more than one thing.
    Wrong,
}

/// One code's table.
#[derive(Clone)]
pub(super) struct Table<const ROOM: usize> {
    entries: [u32; ROOM],
    root: u32,
}

impl<const ROOM: usize> Table<ROOM> {
    const fn new() -> Table<ROOM> {
        Table { entries: [SPECIAL | 1; ROOM], root: 0 }
    }

    pub fn entries(&self) -> &[u32; ROOM] {
        &self.entries
    }

    /// Bits that it is looked up by.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// The bits of an index.
    pub fn mask(&self) -> u64 {
        (1 << self.root) - 1
    }

    /// The entry of the code that these bits begin with.
    #[inline(always)]
    pub fn find(&self, bits: u64) -> u32 {
        let entry = self.entries[(bits & self.mask()) as usize];
        if entry & LINK == 0 {
            return entry;
        }
        let inside = bits >> self.root & ((1 << (entry >> 8 & 15)) - 1);
        self.entries[((entry >> 16) as u64 + inside) as usize]
    }

    /// Fills the table for codes of these lengths. The codes of one length are given out in the
    /// order of their symbols, shorter ones first (section 3.2.2 of RFC 1951).
    fn fill(&mut self, lens: &[u8], meanings: &[u32], most: u32) -> Shape {
        let mut counts = [0u32; LONGEST + 1];
        lens.iter().for_each(|&len| counts[usize::from(len)] += 1);
        counts[0] = 0;
        let longest = (1..=LONGEST).rev().find(|&len| counts[len] > 0).unwrap_or(0);
        // Sequences of `len` bits that mean nothing yet.
        let mut free = 1i64;
        for &count in &counts[1..] {
            free = 2 * free - i64::from(count);
            if free < 0 {
                return Shape::Wrong;
            }
        }
        if longest <= 1 && free > 0 {
            self.root = 1;
            let only = lens.iter().position(|&len| len == 1);
            let entry = only.map_or(SPECIAL | 1, |i| meanings[i] + (1 << 8 | 1));
            self.entries[..2].copy_from_slice(&[entry, SPECIAL | 1]);
            return Shape::Single;
        }
        if free > 0 {
            return Shape::Wrong;
        }
        // Symbols in the order of their codes.
        let mut next = [0usize; LONGEST + 1];
        for len in 1..LONGEST {
            next[len + 1] = next[len] + counts[len] as usize;
        }
        let mut sorted = [0u16; SYMBOLS];
        for (symbol, &len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
            sorted[next[usize::from(len)]] = symbol as u16;
            next[usize::from(len)] += 1;
        }
        let root = most.min(longest as u32);
        self.root = root;
        // Codes are in the stream from their first bit on, and looked up by their bits as a number
        // of which the first is the lowest: so they are counted up from the highest bit.
        let up = |code: usize, len: u32| {
            let all = (1 << len) - 1;
            match (code ^ all).checked_ilog2() {
                Some(bit) => code & ((1 << bit) - 1) | 1 << bit,
                None => 0,
            }
        };
        let (mut code, mut at, mut size) = (0usize, 0, 1usize);
        for len in 1..=root {
            // What was found by fewer bits is found by one more, whatever that is.
            self.entries.copy_within(..size, size);
            size *= 2;
            for &symbol in &sorted[at..at + counts[len as usize] as usize] {
                self.entries[code] = meanings[usize::from(symbol)] + (len << 8 | len);
                code = up(code, len);
            }
            at += counts[len as usize] as usize;
        }
        let mut links = size;
        let (mut start, mut inside) = (0, 0);
        let mut of = usize::MAX;
        for len in root + 1..=longest as u32 {
            for i in 0..counts[len as usize] {
                let symbol = usize::from(sorted[at]);
                at += 1;
                if code & (size - 1) != of {
                    // As many bits as it takes until all that begin so have a place.
                    of = code & (size - 1);
                    inside = len - root;
                    let mut places = i64::from(counts[len as usize] - i);
                    while places < 1 << inside && root + inside < longest as u32 {
                        inside += 1;
                        places = 2 * places + i64::from(counts[(root + inside) as usize]);
                    }
                    start = links;
                    links += 1 << inside;
                    if links > ROOM {
                        return Shape::Wrong;
                    }
                    self.entries[of] = SPECIAL | LINK | (start as u32) << 16 | inside << 8;
                }
                let entry = meanings[symbol] + (len << 8 | len);
                let step = 1 << (len - root);
                for place in ((code >> root)..1 << inside).step_by(step) {
                    self.entries[start + place] = entry;
                }
                code = up(code, len);
            }
        }
        Shape::Whole
    }
}

/// The tables of a block.
pub(super) struct Tables {
    pub symbols: Table<ROOM>,
    pub distances: Table<DISTANCE_ROOM>,
    lengths: Table<LENGTH_ROOM>,
    /// These are the codes of section 3.2.6.
    is_fixed: bool,
}

impl Tables {
    pub fn new() -> Tables {
        Tables {
            symbols: Table::new(),
            distances: Table::new(),
            lengths: Table::new(),
            is_fixed: false,
        }
    }

    /// The codes of section 3.2.6.
    pub fn fix(&mut self) {
        if !self.is_fixed {
            let len = |symbol| match symbol {
                0..144 | 280.. => 8,
                144..256 => 9,
                _ => 7,
            };
            let lens: [u8; SYMBOLS] = std::array::from_fn(len);
            self.symbols.fill(&lens, &SYMBOL_ENTRIES, ROOT);
            self.distances.fill(&[5; DISTANCES], &DISTANCE_ENTRIES, DISTANCE_ROOT);
            self.is_fixed = true;
        }
    }

    /// The codes of these lengths, of symbols and of distances.
    pub fn set(&mut self, symbols: &[u8], distances: &[u8]) -> (Shape, Shape) {
        self.is_fixed = false;
        (
            self.symbols.fill(symbols, &SYMBOL_ENTRIES, ROOT),
            self.distances.fill(distances, &DISTANCE_ENTRIES, DISTANCE_ROOT),
        )
    }

    /// The code that lengths are written in.
    pub fn set_lengths(&mut self, lens: &[u8; LENGTHS]) -> (Shape, &Table<LENGTH_ROOM>) {
        (self.lengths.fill(lens, &LENGTH_ENTRIES, LENGTH_ROOT), &self.lengths)
    }
}
