//! What is known of the columns of many packets together: which are the same, and how each is coded.
//!
//! # Model of events
//!
//! A *column of texts* is one of whole numbers of 1 byte from 0 on that has the level of the items of a list, a text or bytes for itself, without another level below: so is that of a list of records with one such field. The column
//! before it has their lengths. It may be told by words. From here on its values then are the numbers of these, of 4 bytes each, and the counts in the column before it are how many of
//! them each text is; so in all that follows "columns", "values" and "items" are those with words, not those of the schema.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | events | in a packet, 1 to 65,536; fewer in the last of a segment |
//! | varint | values | that a packet has at most, up to 2^24: those of all columns, and one for each item of each level, whether they have their own or those of others |
//! | varint | texts | bytes that the texts of a packet have at most that are told by words, up to 2^28 |
//! | for each | column of texts | 1: 0: its bytes are told as they are; 1: by words; then its vocabulary; 2: its texts are those of the column that its values are the same as, which is of kind 1 |
//! | for each | level but the first | varint: 0, or how many levels back the one is that has the same items: both are of arrays as long, or of lists (texts, bytes), or of one or none, whose counts are the same column or one that has the same values; the levels above are the same, or one has its items with the other; never one that has its own with another |
//! | for each | column | varint: 0, or how many columns back the one is that has the same values, of the same numbers, on the same level; never one that is such itself |
//! | for each | column of its own | its coder; the tables of all have 2^26 parts at most, added up, and as many symbols, each counted once more for all contexts that its coder may have |
//!
//! From here on levels that have the same items are one: the columns of both are on it, in the order of their numbers, at the place of the first, and "the same level" and "the level above" are meant so.

use std::sync::Arc;

use super::column::{Coder, Context};
use super::schema::{Count, Layout};
use super::words::Vocabulary;
use crate::error::Result;
use crate::wire::{Put, Take};

/// Events in a packet at most.
pub(crate) const MOST_EVENTS: usize = 1 << 16;
/// Parts of all tables at most.
const MOST_PARTS: u64 = 1 << 26;
/// Symbols of all coders at most, counted once and once more for each context that there may be.
const MOST_SYMBOLS_OF_ALL: usize = 1 << 26;
/// Values that a packet has at most.
pub(crate) const MOST_VALUES: u64 = 1 << 24;

/// Bytes of texts that a packet has at most.
pub(crate) const MOST_TEXTS: u64 = 1 << 28;

/// What packets of a segment are decoded with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    /// Events in a packet.
    pub events: usize,
    /// Values of a packet at most.
    pub values: u64,
    /// Bytes of texts of a packet at most.
    pub texts: u64,
    /// Columns of texts that are told by words.
    pub words: Vec<(usize, Arc<Vocabulary>)>,
    /// Those of them whose texts are those of the column that they have their values with.
    pub same: Vec<usize>,
    pub plan: Plan,
    /// Of columns that have their own values.
    pub coders: Vec<Option<Coder>>,
}

/// In which order values are told: level by level, and on each column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Of each level the one that it has its items with: itself or one before.
    pub levels: Vec<usize>,
    /// Of each column the one that it has its values with: itself or one before.
    pub columns: Vec<usize>,
    /// Of levels that have their own items: what an item has.
    pub items: Vec<Items>,
}

/// What each item of a level has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// Columns with their own values.
    pub columns: Vec<usize>,
    /// Values of an item, of all columns that have them on this level, and one for the item itself on each level that has it.
    pub values: u64,
}

impl Plan {
    /// Levels and columns that all have their own.
    pub fn own(layout: &Layout) -> Option<Plan> {
        let all = |count: usize| (0..count).collect();
        Plan::new(layout, all(layout.levels().len()), all(layout.columns().len()))
    }

    /// `None` where levels or columns are said to be the same that cannot be.
    pub fn new(layout: &Layout, levels: Vec<usize>, columns: Vec<usize>) -> Option<Plan> {
        let mut plan =
            Plan { levels, columns, items: vec![Items::default(); layout.levels().len()] };
        for (i, level) in layout.levels().iter().enumerate() {
            let same = plan.levels[i];
            let above = |i: usize| layout.levels()[i].parent.map(|parent| plan.levels[parent]);
            plan.items[i].values = 1;
            if same != i {
                // Who reads them meets them again.
                if let Some(items) = plan.items.get_mut(same) {
                    items.values += 1;
                }
                let alike = match (level.count, layout.levels()[same].count) {
                    (Count::Fixed(a), Count::Fixed(b)) => a == b,
                    (Count::Column(a), Count::Column(b)) => {
                        plan.columns[a] == plan.columns[b]
                            && layout.columns()[a].role == layout.columns()[b].role
                    }
                    _ => false,
                };
                if same > i || plan.levels[same] != same || above(i) != above(same) || !alike {
                    return None;
                }
            }
        }
        for (i, column) in layout.columns().iter().enumerate() {
            let (same, level) = (plan.columns[i], plan.levels[column.level]);
            plan.items[level].values += 1;
            if same == i {
                plan.items[level].columns.push(i);
                continue;
            }
            let other = &layout.columns()[same];
            if same > i
                || plan.columns[same] != same
                || plan.levels[other.level] != level
                || other.number != column.number
            {
                return None;
            }
        }
        Some(plan)
    }

    /// The level of a column, or the one that it has its items with.
    pub fn level_of(&self, layout: &Layout, column: usize) -> usize {
        self.levels[layout.columns()[column].level]
    }
}

/// Whether a column is one of these, which are in order.
pub(super) fn has<T>(columns: &[(usize, T)], column: usize) -> bool {
    columns.binary_search_by_key(&column, |&(other, _)| other).is_ok()
}

impl Model {
    /// That of columns in which texts are words.
    pub fn layout(&self, layout: &Layout) -> Layout {
        layout.with_words(|column| has(&self.words, column))
    }

    /// Of events of this layout.
    pub fn put(&self, layout: &Layout, out: &mut Vec<u8>) {
        out.put_varint(self.events as u64);
        out.put_varint(self.values);
        out.put_varint(self.texts);
        let mut words = self.words.iter().peekable();
        for column in layout.texts() {
            let here = words.next_if(|(other, _)| *other == column);
            match here {
                None => out.put_u8(0),
                Some(_) if self.same.contains(&column) => out.put_u8(2),
                Some((_, vocabulary)) => {
                    out.put_u8(1);
                    vocabulary.put(out);
                }
            }
        }
        let back = |same: &[usize], first: usize, out: &mut Vec<u8>| {
            let places = same.iter().enumerate().skip(first);
            places.for_each(|(i, &same)| out.put_varint((i - same) as u64));
        };
        back(&self.plan.levels, 1, out);
        back(&self.plan.columns, 0, out);
        self.coders.iter().flatten().for_each(|coder| coder.put(out));
    }

    /// That of events of a schema.
    pub fn take(take: &mut Take<'_>, layout: &Layout) -> Result<Model> {
        let (events, values) = (take.count(MOST_EVENTS as u64)?, take.varint()?);
        let texts = take.varint()?;
        let (mut words, mut same) = (Vec::new(), Vec::new());
        for column in layout.texts() {
            match take.u8()? {
                0 => {}
                1 => words.push((column, Arc::new(Vocabulary::take(take)?))),
                2 => {
                    words.push((column, Arc::default()));
                    same.push(column);
                }
                _ => return Err(take.corrupt()),
            }
        }
        let layout = &layout.with_words(|column| has(&words, column));
        let back = |take: &mut Take<'_>, i: usize| Ok(i - take.count(i as u64)?);
        let levels: Result<Vec<usize>> = (0..layout.levels().len())
            .map(|i| if i == 0 { Ok(0) } else { back(take, i) })
            .collect();
        let levels = levels?;
        let columns: Result<Vec<usize>> =
            (0..layout.columns().len()).map(|i| back(take, i)).collect();
        let Some(plan) = Plan::new(layout, levels, columns?) else { return Err(take.corrupt()) };
        for &column in &same {
            let place = |column| words.iter().position(|&(other, _)| other == column);
            let other = plan.columns[column];
            match (place(column), place(other)) {
                (Some(to), Some(from)) if other < column => words[to].1 = words[from].1.clone(),
                _ => return Err(take.corrupt()),
            }
        }
        let mut symbols = 0;
        let coders: Result<Vec<Option<Coder>>> = layout
            .columns()
            .iter()
            .enumerate()
            .map(|(i, column)| {
                if plan.columns[i] != i {
                    return Ok(None);
                }
                let coder = Coder::take(take, column.number)?;
                symbols += coder.symbols() * (1 + coder.contexts());
                if symbols > MOST_SYMBOLS_OF_ALL {
                    return Err(take.corrupt());
                }
                Ok(Some(coder))
            })
            .collect();
        let model = Model { events, values, texts, words, same, plan, coders: coders? };
        let shares = model.coders.iter().flatten().flat_map(|coder| coder.shares.iter().flatten());
        let parts: u64 = shares.map(|shares| 1 << shares.bits()).sum();
        if parts > MOST_PARTS {
            return Err(take.corrupt());
        }
        if events == 0 || values > MOST_VALUES || texts > MOST_TEXTS || !model.is_in_order(layout) {
            return Err(take.corrupt());
        }
        Ok(model)
    }

    /// Whether what columns are told by is there before them.
    fn is_in_order(&self, layout: &Layout) -> bool {
        let level_of = |column: usize| {
            let is_own = self.coders.get(column).is_some_and(Option::is_some);
            is_own.then(|| self.plan.level_of(layout, column))
        };
        let above =
            |level: usize| layout.levels()[level].parent.map(|parent| self.plan.levels[parent]);
        self.coders.iter().enumerate().all(|(i, coder)| {
            let (Some(coder), Some(level)) = (coder, level_of(i)) else { return true };
            let copies = coder.copies.iter().all(|copied| {
                level_of(copied.column) == Some(level)
                    && (copied.column < i || copied.column == i && copied.shift < 0)
                    && layout.columns()[copied.column].number == coder.number
            });
            copies
                && match coder.context {
                    Context::Class(column) => level_of(column).is_some_and(|other| {
                        other == level && column < i || above(level) == Some(other)
                    }),
                    _ => true,
                }
        })
    }
}
