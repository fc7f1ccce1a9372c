//! Says what files of events are made of: how each column is coded, and what it takes.

use std::sync::Arc;

use super::batch::Batch;
use super::column::map::Map;
use super::column::{Base, Coder, Context};
use super::decode::Decoder;
use super::learn::starts;
use super::model::Model;
use super::packet::load;
use super::reader::Reader;
use super::schema::{Layout, Role};
use super::segment::count;
use super::words::stored;
use super::writer::Access;
use crate::error::{Error, Result};

/// What a file of events is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Events that were encoded together.
    pub segments: u64,
    /// What reads were to be fast.
    pub access: Access,
    /// What each column takes, in the order of the layout.
    pub columns: Vec<Taken>,
    /// Bytes of models, which segments may share.
    pub model_bytes: u64,
    /// Bytes of the file.
    pub stored_bytes: u64,
}

/// What a column takes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Taken {
    /// Its name, as in the layout.
    pub path: String,
    /// What it is of.
    pub role: Role,
    /// Bytes of its values.
    pub bytes: u64,
    /// Bits of what its values are told by, in all packets together.
    pub bits: f64,
    /// How the last segment codes it.
    pub coding: String,
}

/// Values that are told together.
const TOGETHER: usize = 1 << 22;

impl Reader {
    /// Says how columns are coded, and what they take: decodes all events and tells them once more. `with` is called with how many were.
    ///
    /// # Errors
    /// As of [`read`](Reader::read), and those of `with`.
    pub fn report(&self, mut with: impl FnMut(u64) -> Result<()>) -> Result<Report> {
        let layout = self.layout();
        let taken = |column: &super::schema::Column| Taken {
            path: column.path.clone(),
            role: column.role,
            ..Taken::default()
        };
        let before = self.before();
        let mut report = Report {
            segments: 0,
            access: before.access,
            columns: layout.columns().iter().map(taken).collect(),
            model_bytes: 0,
            stored_bytes: before.end,
        };
        let mut known: Option<(u64, Segment)> = None;
        for (events, at) in self.segments() {
            report.segments += 1;
            if known.as_ref().is_none_or(|(pos, _)| *pos != at.pos) {
                report.model_bytes += at.len;
                known = Some((at.pos, Segment::new(self.read_model(at)?, layout)));
            }
            let Some((_, segment)) = &known else { continue };
            let mut next = events.start;
            while next < events.end {
                let first = next;
                let mut batch = Batch::of(segment.layout.clone());
                while next < events.end && batch.size() < TOGETHER {
                    next = self.words(next, &segment.decoder, &mut batch, |column, values| {
                        let width = layout.columns()[column].number.width();
                        report.columns[column].bytes += (values * width) as u64;
                    })?;
                }
                segment.add(&batch, &mut report)?;
                with(next - first)?;
            }
            let columns = report.columns.iter_mut().enumerate();
            columns.for_each(|(column, taken)| taken.coding = segment.coding(layout, column));
        }
        Ok(report)
    }
}

/// What events of a segment are decoded and told with: texts as words.
struct Segment {
    words: Model,
    model: Model,
    layout: Arc<Layout>,
    decoder: Decoder,
}

impl Segment {
    fn new(words: Model, layout: &Layout) -> Segment {
        let layout = Arc::new(words.layout(layout));
        // To what is within words it is blind.
        let model = Model { words: Vec::new(), same: Vec::new(), ..words.clone() };
        let decoder = Decoder::new(&layout, &model);
        Segment { decoder, layout, model, words }
    }

    /// Adds what some packets take.
    fn add(&self, batch: &Batch, report: &mut Report) -> Result<()> {
        let Segment { words, model, layout: inner, .. } = self;
        let starts = starts(inner, &model.plan, batch, model.events);
        let failed = || Error::invalid("values that no symbol tells");
        let counted = count(inner, batch, model, &starts, 1).ok_or_else(failed)?;
        let mut counts = counted.counts.iter();
        for (column, coder) in model.coders.iter().enumerate() {
            let Some(coder) = coder else { continue };
            let taken = &mut report.columns[column];
            for (shares, counts) in coder.shares.iter().zip(counts.by_ref()) {
                taken.bits += shares.as_ref().map_or(0.0, |shares| shares.cost(counts));
                let bins = coder.copies.len()..coder.copies.len() + coder.bins.len();
                let bits = |symbol: usize| match symbol {
                    _ if symbol < bins.start => 0,
                    _ if bins.contains(&symbol) => coder.bins[symbol - bins.start].bits.into(),
                    _ => coder.number.bits(),
                };
                let told = counts.iter().enumerate();
                taken.bits += told.map(|(i, &n)| f64::from(n) * f64::from(bits(i))).sum::<f64>();
            }
            if coder.base.has_first() {
                let level = model.plan.level_of(inner, column);
                let firsts = starts[level].windows(2).filter(|pair| pair[0] < pair[1]).count();
                taken.bits += firsts as f64 * f64::from(coder.first.1);
            }
        }
        for &(column, _) in words.words.iter().filter(|(column, _)| !words.same.contains(column)) {
            let numbers = batch.bytes(column);
            let numbers = (0..numbers.len() / 4).map(|i| load(numbers, 4, i));
            report.columns[column].bits += 8.0 * numbers.map(stored).sum::<usize>() as f64;
        }
        Ok(())
    }

    /// How a column is coded, in some words.
    fn coding(&self, layout: &Layout, column: usize) -> String {
        let path = |column: usize| match layout.columns()[column].role {
            Role::Counts => format!("the counts of {}", layout.columns()[column].path),
            Role::Presence => format!("the presence of {}", layout.columns()[column].path),
            _ => layout.columns()[column].path.clone(),
        };
        let Some(coder) = &self.model.coders[column] else {
            return format!("the same as {}", path(self.model.plan.columns[column]));
        };
        let words = self.words.words.iter().find(|(other, _)| *other == column);
        let mut parts = Vec::new();
        if let Some((_, vocabulary)) = words {
            parts.push(format!("{} words", vocabulary.len()));
        }
        parts.push(values_of(coder));
        for copied in &coder.copies {
            parts.push(match copied.column == column {
                true => format!("copies {} back", -copied.shift),
                false => format!("copies of {}", path(copied.column)),
            });
        }
        match coder.context {
            Context::None => {}
            Context::Class(other) => parts.push(format!("by {}", path(other))),
            Context::Own => parts.push("by the one before".to_owned()),
            Context::Run => parts.push("by the copies before".to_owned()),
            Context::Place(period) => parts.push(format!("by its place of {period}")),
            Context::Index => parts.push("by its place in the list".to_owned()),
        }
        parts.join(", ")
    }
}

/// What values are told by, in some words.
fn values_of(coder: &Coder) -> String {
    let mut parts = Vec::new();
    match coder.base {
        Base::None => {}
        Base::Minus => parts.push("differences".to_owned()),
        Base::Xor => parts.push("exclusive or".to_owned()),
        Base::Place => parts.push(format!("differences from {} places", coder.places.len())),
    }
    for map in &coder.maps {
        match map {
            Map::Ordered { shift: 0 } => {}
            Map::Ordered { shift } => parts.push(format!("{shift} low bits of zero")),
            Map::Decimal { places } => parts.push(format!("{places} decimals")),
            Map::Grid { step, .. } => parts.push(format!("steps of {step:e}")),
        }
    }
    let single = coder.bins.iter().all(|bin| bin.bits == 0) && !coder.has_escape;
    parts.push(match &coder.bins[..] {
        [] => "as they are".to_owned(),
        [_] if single && coder.copies.is_empty() => "one value".to_owned(),
        [bin] => format!("{} bits above {}", bin.bits, bin.lower),
        bins if single => format!("{} values", bins.len()),
        bins => format!("{} bins", bins.len()),
    });
    parts.join(", ")
}
