//! Encodes a batch: learns a model, or takes the one before, tells all packets, counts, encodes, and sees whether the same comes back.

use std::sync::Arc;

use super::batch::Batch;
use super::decode::{Decoder, Room, Sinks};
use super::learn::{Learner, plan, starts};
use super::model::{MOST_EVENTS, MOST_VALUES, Model, Plan};
use super::schema::Layout;
use super::tell::{Teller, Told};
use crate::error::{Error, Place, Result};
use crate::model::{Encoder, Shares};
use crate::parallel::in_parts;

/// How large packets are to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    /// Stored bytes of a packet.
    pub bytes: usize,
    /// Values of one, about, and events at most.
    pub values: usize,
    pub events: usize,
    /// Exactly so many.
    pub exactly: Option<usize>,
}

/// A batch, encoded.
pub(super) struct Segment {
    pub model: Model,
    /// The model is the one that was given.
    pub is_old: bool,
    pub packets: Vec<Vec<u8>>,
}

/// All packets told, and how often each symbol of each table was.
struct Counted {
    told: Vec<Told>,
    counts: Vec<Vec<u32>>,
}

/// A packet that is yet to be told or encoded.
struct Job<T> {
    number: usize,
    out: Option<T>,
}

fn jobs<T>(count: usize) -> Vec<Job<T>> {
    (0..count).map(|number| Job { number, out: None }).collect()
}

/// Tells all packets by a model. `None` where it has no symbol for a value.
fn count(
    layout: &Layout,
    batch: &Batch,
    model: &Model,
    starts: &[Vec<usize>],
    threads: usize,
) -> Option<Counted> {
    let packets = starts[0].len() - 1;
    let mut all = jobs::<Told>(packets);
    let counts = in_parts(threads, &mut all, |part| {
        let mut teller = Teller::new(layout, batch, model);
        for job in part {
            let of = |starts: &Vec<usize>, i: usize| starts.get(i).copied().unwrap_or(0);
            let items = starts.iter().map(|at| (of(at, job.number), of(at, job.number + 1)));
            job.out = Some(teller.tell(&items.collect::<Vec<_>>())?);
        }
        Some(teller.counts)
    });
    let mut sum: Vec<Vec<u32>> = Vec::new();
    for counts in counts {
        let counts = counts?;
        if sum.is_empty() {
            sum = counts;
            continue;
        }
        for (sum, counts) in sum.iter_mut().zip(&counts) {
            sum.iter_mut().zip(counts).for_each(|(sum, &count)| *sum = sum.saturating_add(count));
        }
    }
    let told: Option<Vec<Told>> = all.into_iter().map(|job| job.out).collect();
    Some(Counted { told: told?, counts: sum })
}

/// The tables of all columns, in order.
fn tables(model: &Model) -> Vec<Option<&Shares>> {
    let coders = model.coders.iter().flatten();
    coders.flat_map(|coder| coder.shares.iter().map(Option::as_ref)).collect()
}

/// Encodes packets that were told, and decodes each of them again: what is not the same is not written.
/// `None` where a symbol has no share.
fn encode(
    layout: &Arc<Layout>,
    batch: &Batch,
    model: &Model,
    starts: &[Vec<usize>],
    told: &[Told],
    threads: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    let tables = tables(model);
    let decoder = Decoder::new(layout, model);
    let sinks = Sinks::new(layout.columns().len(), |_| true);
    let mut all = jobs::<Vec<u8>>(told.len());
    let done = in_parts(threads, &mut all, |part| {
        let (mut encoder, mut room) = (Encoder::default(), Room::default());
        let mut back = Batch::of(layout.clone());
        for job in part {
            let mut out = Vec::new();
            if !told[job.number].put(&tables, &mut encoder, &mut out) {
                return Ok(false);
            }
            back.clear();
            let events = starts[0][job.number + 1] - starts[0][job.number];
            let at = Place::Event { event: starts[0][job.number] as u64, pos: 0 };
            let range = (0, events, events);
            decoder.decode(&out, range, &mut room, at)?;
            decoder.put(&room.told, layout, &sinks, &mut back);
            let is_same = layout.columns().iter().enumerate().all(|(i, column)| {
                let starts = &starts[model.plan.levels[column.level]];
                let width = column.number.width();
                let range = starts[job.number] * width..starts[job.number + 1] * width;
                back.columns[i] == batch.columns[i][range]
            });
            if !is_same {
                return Err(Error::Corrupt { what: "packet of events as encoded", at });
            }
            job.out = Some(out);
        }
        Ok(true)
    });
    for is_done in done {
        if !is_done? {
            return Ok(None);
        }
    }
    Ok(all.into_iter().map(|job| job.out).collect())
}

/// Whether each event has no more values than a packet may have.
///
/// # Errors
/// [`Error::Limit`] where one has.
pub(super) fn check_events(layout: &Layout, batch: &Batch, items: &[usize]) -> Result<()> {
    let same = |count: usize| (0..count).collect();
    let plan = Plan::new(layout, same(layout.levels().len()), same(layout.columns().len()));
    let plan = plan.ok_or_else(|| Error::invalid("a layout without order"))?;
    // Seldom all together have so many, and then each is looked at.
    let each = items.iter().zip(&plan.items);
    let all = each.map(|(&items, level)| (items as u64).saturating_mul(level.values));
    if all.fold(0, u64::saturating_add) <= MOST_VALUES {
        return Ok(());
    }
    let need = most_values(&plan, &starts(layout, &plan, batch, 1));
    match need <= MOST_VALUES {
        true => Ok(()),
        false => Err(Error::Limit { what: "values of an event", need, allowed: MOST_VALUES }),
    }
}

/// How many values there are of columns that have their own.
fn own_values(layout: &Layout, plan: &Plan, batch: &Batch) -> usize {
    let own = (0..layout.columns().len()).filter(|&column| plan.columns[column] == column);
    own.map(|column| batch.values_in(column)).sum()
}

/// The most values that a packet has.
fn most_values(plan: &Plan, starts: &[Vec<usize>]) -> u64 {
    let packets = starts[0].len() - 1;
    let of = |packet: usize| -> u64 {
        let levels = starts.iter().zip(&plan.items).filter(|(starts, _)| !starts.is_empty());
        levels
            .map(|(starts, items)| (starts[packet + 1] - starts[packet]) as u64 * items.values)
            .sum()
    };
    (0..packets).map(of).max().unwrap_or(0)
}

/// Encodes a batch that has been checked and has events. `before` is the model of the events before them, if there are any.
pub(super) fn segment(
    layout: &Arc<Layout>,
    batch: &Batch,
    aim: &Aim,
    before: Option<&Model>,
    threads: usize,
) -> Result<Segment> {
    let plan = plan(layout, batch)?;
    let old = before.filter(|model| model.plan == plan);
    if let Some(segment) = old.and_then(|model| by_old(layout, batch, model, threads)) {
        return Ok(segment);
    }
    // However few bytes they take, to decode values takes time.
    let values = own_values(layout, &plan, batch);
    let by_values =
        aim.values.saturating_mul(batch.len()).checked_div(values).unwrap_or(aim.events);
    let most = aim.events.min(1 << by_values.max(1).ilog2()).min(MOST_EVENTS);
    // A third of what there is, for all that is known now.
    let guess =
        (3 * aim.bytes).saturating_mul(batch.len()).checked_div(batch.size()).unwrap_or(most);
    let mut events =
        aim.exactly.unwrap_or(guess.clamp(1, most).next_power_of_two().min(most)).max(1);
    for round in 0.. {
        let starts = starts(layout, &plan, batch, events);
        let values = most_values(&plan, &starts);
        if values > MOST_VALUES {
            if events > 1 {
                events = (events / 2).max(1);
                continue;
            }
            let what = "values of an event";
            return Err(Error::Limit { what, need: values, allowed: MOST_VALUES });
        }
        // Room for packets of later segments, too.
        let room = values.next_power_of_two().min(MOST_VALUES);
        let coders = Learner::new(layout, &plan, batch, &starts).coders();
        let mut model = Model { events, values: room, plan: plan.clone(), coders };
        let failed = || Error::invalid("values that no symbol tells");
        let counted = count(layout, batch, &model, &starts, threads).ok_or_else(failed)?;
        set_shares(&mut model, &counted.counts);
        let packets = encode(layout, batch, &model, &starts, &counted.told, threads)?;
        let packets = packets.ok_or_else(failed)?;
        let stored: usize = packets.iter().map(Vec::len).sum();
        let fitting = (aim.bytes.saturating_mul(batch.len()) / stored.max(1))
            .clamp(1, most)
            .next_power_of_two()
            .min(most);
        let is_near = fitting < 2 * events && events < 2 * fitting || fitting == events;
        if is_near || round > 1 || aim.exactly.is_some() {
            return Ok(Segment { model, is_old: false, packets });
        }
        events = fitting;
    }
    Err(Error::invalid("no packets"))
}

/// The shares of symbols that were told so often; what was not told at all is left out.
fn set_shares(model: &mut Model, counts: &[Vec<u32>]) {
    let mut counts = counts.iter();
    for coder in model.coders.iter_mut().flatten() {
        let mine: Vec<&Vec<u32>> = counts.by_ref().take(coder.contexts()).collect();
        let escape = coder.symbols() - 1;
        let mut symbols = coder.symbols();
        if coder.has_escape && mine.iter().all(|counts| counts[escape] == 0) {
            coder.has_escape = false;
            coder.named.retain(|&symbol| symbol != escape);
            symbols = escape;
        }
        coder.shares = mine
            .iter()
            .map(|counts| {
                let is_told = counts.iter().any(|&count| count > 0);
                is_told.then(|| Shares::new(&counts[..symbols]))
            })
            .collect();
    }
}

/// The same by a model that is there, if it tells these events about as well as one of their own would.
fn by_old(layout: &Arc<Layout>, batch: &Batch, model: &Model, threads: usize) -> Option<Segment> {
    let starts = starts(layout, &model.plan, batch, model.events);
    let model = model.clone();
    if most_values(&model.plan, &starts) > model.values {
        return None;
    }
    let counted = count(layout, batch, &model, &starts, threads)?;
    let (mut cost, mut fresh) = (0.0, 0.0);
    for (counts, shares) in counted.counts.iter().zip(tables(&model)) {
        let total: u32 = counts.iter().sum();
        if total == 0 {
            continue;
        }
        let shares = shares?;
        // Without end where a symbol has no share.
        cost += shares.cost(counts);
        let there = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count));
        fresh += there.map(|count| count * (f64::from(total) / count).log2()).sum::<f64>();
    }
    let bits: usize = counted.told.iter().map(|told| 8 * told.bits()).sum();
    let is_good = cost <= fresh + 0.01 * (fresh + bits as f64) + 8.0 * 4096.0;
    is_good.then_some(())?;
    let packets = encode(layout, batch, &model, &starts, &counted.told, threads).ok()??;
    Some(Segment { model, is_old: true, packets })
}
