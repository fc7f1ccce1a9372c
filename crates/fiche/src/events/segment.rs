//! Encodes a batch: learns a model, or takes the one before, tells all packets, counts, encodes, and sees whether the same comes back.

use std::borrow::Cow;
use std::ops::Range;

use super::batch::Batch;
use super::decode::{Decoder, Room};
use super::learn::{Learner, plan, starts};
use super::model::{MOST_EVENTS, MOST_VALUES, Model, Plan};
use super::schema::Layout;
use super::tell::{Packets, Prices, Teller, Told};
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
    /// Twice as many values where that saves this part of the bytes.
    pub worth: Option<f64>,
    /// Exactly so many.
    pub exactly: Option<usize>,
}

/// A batch, encoded.
pub(super) struct Segment {
    pub model: Model,
    /// The model is the one that was given.
    pub is_old: bool,
    pub packets: Packets,
}

/// All packets told, by parts, and how often each symbol of each table was.
struct Counted {
    told: Vec<Told>,
    counts: Vec<Vec<u32>>,
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
    let len = packets.div_ceil(threads.max(1)).max(1);
    let mut parts: Vec<Range<usize>> =
        (0..packets).step_by(len).map(|from| from..packets.min(from + len)).collect();
    let done = in_parts(threads, &mut parts, |parts| {
        let mut teller = Teller::new(layout, batch, model, starts);
        let told: Option<Vec<Told>> =
            parts.iter().map(|packets| teller.tell(packets.clone())).collect();
        Some((told?, teller.counts))
    });
    let (mut sum, mut all): (Vec<Vec<u32>>, Vec<Told>) = Default::default();
    for part in done {
        let (told, counts) = part?;
        all.extend(told);
        if sum.is_empty() {
            sum = counts;
            continue;
        }
        for (sum, counts) in sum.iter_mut().zip(&counts) {
            sum.iter_mut().zip(counts).for_each(|(sum, &count)| *sum = sum.saturating_add(count));
        }
    }
    Some(Counted { told: all, counts: sum })
}

/// The tables of all columns, in order.
fn tables(model: &Model) -> Vec<Option<&Shares>> {
    let coders = model.coders.iter().flatten();
    coders.flat_map(|coder| coder.shares.iter().map(Option::as_ref)).collect()
}

/// Some packets, encoded from the first of these on.
struct Job<'a> {
    first: usize,
    told: &'a Told,
}

/// Encodes packets that were told, and decodes each of them again: what is not the same is not written.
/// `None` where a symbol has no share.
fn encode(
    layout: &Layout,
    batch: &Batch,
    model: &Model,
    starts: &[Vec<usize>],
    told: &[Told],
    threads: usize,
) -> Result<Option<Packets>> {
    let tables = tables(model);
    let (decoder, prices) = (Decoder::new(layout, model), Prices::new(&tables));
    let mut first = 0;
    let mut jobs: Vec<Job<'_>> = told
        .iter()
        .map(|told| {
            first += told.len();
            Job { first: first - told.len(), told }
        })
        .collect();
    let done = in_parts(threads, &mut jobs, |jobs| {
        let (mut encoder, mut room) = (Encoder::default(), Room::default());
        let mut packets = Packets::default();
        for (job, i) in jobs.iter().flat_map(|job| (0..job.told.len()).map(move |i| (job, i))) {
            let start = packets.bytes.len();
            if !job.told.put(i, &prices, &mut encoder, &mut packets.bytes) {
                return Ok(None);
            }
            packets.ends.push(packets.bytes.len());
            let packet = job.first + i;
            let events = starts[0][packet + 1] - starts[0][packet];
            let at = Place::Event { event: starts[0][packet] as u64, pos: 0 };
            decoder.decode(&packets.bytes[start..], (0, events, events), &mut room, at)?;
            // Columns without their own values are known to be the same as others.
            if !decoder.is_same(&room.told, batch, |level| starts[level][packet]) {
                return Err(Error::Corrupt { what: "packet of events as encoded", at });
            }
        }
        Ok(Some(packets))
    });
    let mut all = Packets::default();
    for packets in done {
        let Some(packets) = packets? else { return Ok(None) };
        let before = all.bytes.len();
        all.ends.extend(packets.ends.iter().map(|end| before + end));
        match before {
            0 => all.bytes = packets.bytes,
            _ => all.bytes.extend_from_slice(&packets.bytes),
        }
    }
    Ok(Some(all))
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
    layout: &Layout,
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
    let mut most = aim.events.min(1 << by_values.max(1).ilog2()).min(MOST_EVENTS);
    if let (Some(worth), None, true) = (aim.worth, aim.exactly, most < aim.events) {
        let some = some_of(batch);
        let bits = |events| price(layout, &plan, &some, events, threads);
        if let (Some(one), Some(two)) = (bits(most), bits(2 * most)) {
            most *= if two < (1.0 - worth) * one { 2 } else { 1 };
        }
    }
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
        let stored = packets.bytes.len();
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

/// The first events of a batch, up to some bytes.
fn some_of(batch: &Batch) -> Cow<'_, Batch> {
    const SOME: usize = 1 << 19;
    let events = (batch.len() as u128 * SOME as u128).checked_div(batch.size() as u128);
    let events = events.map_or(batch.len(), |events| batch.len().min(events as usize).max(1));
    if events >= batch.len() {
        return Cow::Borrowed(batch);
    }
    let wanted = vec![true; batch.layout().columns().len()];
    Cow::Owned(batch.pick(&(0..events).collect::<Vec<_>>(), &wanted))
}

/// Bits that a batch takes in packets of so many events, about.
fn price(
    layout: &Layout,
    plan: &Plan,
    batch: &Batch,
    events: usize,
    threads: usize,
) -> Option<f64> {
    /// A number that is to be the first one at the end, the rest of a byte, and what tells its length.
    const PACKET: f64 = 36.0;
    let starts = starts(layout, plan, batch, events);
    let coders = Learner::new(layout, plan, batch, &starts).coders();
    let model = Model { events, values: MOST_VALUES, plan: plan.clone(), coders };
    let counted = count(layout, batch, &model, &starts, threads)?;
    let symbols = counted.counts.iter().map(|counts| Shares::new(counts).cost(counts));
    let bits = counted.told.iter().map(|told| 8.0 * told.bits() as f64);
    Some(symbols.sum::<f64>() + bits.sum::<f64>() + PACKET * (starts[0].len() - 1) as f64)
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
fn by_old(layout: &Layout, batch: &Batch, model: &Model, threads: usize) -> Option<Segment> {
    let starts = starts(layout, &model.plan, batch, model.events);
    let model = model.clone();
    if most_values(&model.plan, &starts) > model.values {
        return None;
    }
    let counted = count(layout, batch, &model, &starts, threads)?;
    let (mut cost, mut fresh) = (0.0, 0.0);
    for (counts, shares) in counted.counts.iter().zip(tables(&model)) {
        let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        if total == 0.0 {
            continue;
        }
        let shares = shares?;
        // Without end where a symbol has no share.
        cost += shares.cost(counts);
        let there = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count));
        fresh += there.map(|count| count * (total / count).log2()).sum::<f64>();
    }
    let bits: usize = counted.told.iter().map(|told| 8 * told.bits()).sum();
    let is_good = cost <= fresh + 0.01 * (fresh + bits as f64) + 8.0 * 4096.0;
    is_good.then_some(())?;
    let packets = encode(layout, batch, &model, &starts, &counted.told, threads).ok()??;
    Some(Segment { model, is_old: true, packets })
}
