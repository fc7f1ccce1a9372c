//! Encodes a batch: learns a model, or takes the one before, tells all packets, counts, encodes, and sees whether the same comes back.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::batch::Batch;
use super::decode::{Decoder, Room, TEXTS};
use super::learn::{Learner, plan, starts};
use super::model::{MOST_EVENTS, MOST_TEXTS, MOST_VALUES, Model, Plan};
use super::packet::load;
use super::schema::{Count, Layout};
use super::tell::{Packets, Prices, Teller, Told};
use super::words::{Formed, Forms, Parser};
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

/// Events of packets that texts are cut in before it is known how many these will have.
const FEW: usize = 16;

/// What segments are encoded with.
pub(super) struct Known {
    pub model: Model,
    forms: Forms,
    /// Of the segment that it was made for: bytes that were told for each of texts.
    worth: f64,
}

impl Known {
    /// What a model is known by again, and some events that were encoded with it.
    pub fn again(layout: &Layout, model: Model, some: &Batch) -> Result<Known> {
        let parsers = model.words.iter().map(|(column, vocabulary)| {
            // Those of others are told as these are.
            let coder = model.coders[model.plan.columns[*column]].as_ref();
            let bits = |number: u32| coder.map_or(1.0, |coder| coder.bits(number.into()));
            (*column, Arc::new(Parser::of(vocabulary.clone(), bits)))
        });
        let forms = Forms::new(layout, parsers.collect());
        let worth = forms.apply(layout, some, model.events, 1)?.worth();
        Ok(Known { model, forms, worth })
    }
}

/// A batch, encoded.
pub(super) struct Segment {
    /// What by, if not by what was known.
    pub known: Option<Known>,
    pub packets: Packets,
}

/// All packets told, by parts, and how often each symbol of each table was.
pub(super) struct Counted {
    told: Vec<Told>,
    pub counts: Vec<Vec<u32>>,
}

/// Tells all packets by a model. `None` where it has no symbol for a value.
pub(super) fn count(
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
    formed: &Formed<'_>,
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
            let packet = job.first + i;
            let stored = formed.stored(packet, &model.same);
            if !job.told.put(i, &prices, stored, &mut encoder, &mut packets.bytes) {
                return Ok(None);
            }
            packets.ends.push(packets.bytes.len());
            let events = starts[0][packet + 1] - starts[0][packet];
            let at = Place::Event { event: starts[0][packet] as u64, pos: 0 };
            decoder.decode(&packets.bytes[start..], (0, events, events), &mut room, at)?;
            decoder.texts(&mut room, |_| true).ok_or(Error::Corrupt { what: TEXTS, at })?;
            // Columns without their own values are known to be the same as others.
            let is_same = decoder.is_same(&room.told, &formed.batch, |level| starts[level][packet])
                && formed.columns.iter().all(|column| {
                    let first = (column.items[packet], column.bytes[packet]);
                    decoder.is_same_text(&room.told, batch, column.column, first)
                });
            if !is_same {
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

/// Whether no event has more values than a packet may have, and more bytes of texts.
///
/// # Errors
/// [`Error::Limit`] where one has.
pub(super) fn check_events(layout: &Layout, batch: &Batch, items: &[usize]) -> Result<()> {
    let plan = Plan::own(layout).ok_or_else(|| Error::invalid("a layout without order"))?;
    // Seldom all together have so many, and then each is looked at.
    let each = items.iter().zip(&plan.items);
    let all = each.map(|(&items, level)| (items as u64).saturating_mul(level.values));
    if all.fold(0, u64::saturating_add) <= MOST_VALUES {
        return Ok(());
    }
    let starts = starts(layout, &plan, batch, 1);
    let of = |level: usize, event: usize| starts[level][event]..starts[level][event + 1];
    let mut is_text = vec![false; layout.levels().len()];
    layout.texts().for_each(|column| is_text[layout.columns()[column].level] = true);
    for event in 0..batch.len() {
        let (mut values, mut texts) = (0u64, 0u64);
        for (level, about) in layout.levels().iter().enumerate() {
            let (items, each) = (of(level, event), plan.items[level].values);
            match about.count {
                Count::Column(counts) if is_text[level] => {
                    texts += items.len() as u64;
                    let lens = of(layout.columns()[counts].level, event);
                    // Stored as they are, they are as many numbers at most as their length has bits, and one more.
                    let words = lens.map(|i| 65 - load(batch.bytes(counts), 4, i).leading_zeros());
                    values = values.saturating_add(each * words.map(u64::from).sum::<u64>());
                }
                _ => values = values.saturating_add((items.len() as u64).saturating_mul(each)),
            }
        }
        let limit = |what, need, allowed| Err(Error::Limit { what, need, allowed });
        if values > MOST_VALUES {
            return limit("values of an event", values, MOST_VALUES);
        }
        if texts > MOST_TEXTS {
            return limit("bytes of texts of an event", texts, MOST_TEXTS);
        }
    }
    Ok(())
}

/// How many values there are of columns that have their own. Words count half: they are some bytes each.
fn own_values(layout: &Layout, plan: &Plan, formed: &Formed<'_>) -> usize {
    let own = (0..layout.columns().len()).filter(|&column| plan.columns[column] == column);
    let is_word = |column| formed.columns.iter().any(|words| words.column == column);
    own.map(|column| formed.batch.values_in(column) >> u32::from(is_word(column))).sum()
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

/// Encodes a batch that has been checked and has events. `before` is what the events before them were encoded with, if there are any.
pub(super) fn segment(
    layout: &Layout,
    batch: &Batch,
    aim: &Aim,
    before: Option<&Known>,
    threads: usize,
) -> Result<Segment> {
    if let Some(packets) = before.and_then(|known| by_old(layout, batch, known, threads)) {
        return Ok(Segment { known: None, packets });
    }
    let forms = Forms::learn(layout, batch, threads);
    let has_texts = !forms.is_empty();
    let stored = || fresh(layout, batch, aim, Forms::stored(layout), threads);
    match fresh(layout, batch, aim, forms, threads) {
        // Of very many words, that was: as they are texts are fewer numbers.
        Err(Error::Limit { .. }) => stored(),
        Ok(segment) if has_texts && segment.packets.bytes.len() > batch.size() => {
            let other = stored()?;
            let is_less = other.packets.bytes.len() < segment.packets.bytes.len();
            Ok(if is_less { other } else { segment })
        }
        done => done,
    }
}

/// Encodes a batch by a model of its own.
fn fresh(
    layout: &Layout,
    batch: &Batch,
    aim: &Aim,
    mut forms: Forms,
    threads: usize,
) -> Result<Segment> {
    // Texts are cut into words twice only: of some events, to see how many events a packet should have, and of all.
    let sample = if forms.is_empty() { Cow::Borrowed(batch) } else { some_of(batch) };
    let inner = &forms.layout.clone();
    let mut formed = forms.apply(layout, &sample, FEW.min(sample.len()), threads)?;
    let mut plan = plan(inner, &formed.batch)?;
    // However few bytes they take, to decode values takes time.
    let values = own_values(inner, &plan, &formed);
    let by_values =
        aim.values.saturating_mul(sample.len()).checked_div(values).unwrap_or(aim.events);
    let mut most = aim.events.min(1 << by_values.max(1).ilog2()).min(MOST_EVENTS);
    let some = some_of(&formed.batch);
    let bits = |events| price(inner, &plan, &some, events, threads);
    if let (Some(worth), None, true) = (aim.worth, aim.exactly, most < aim.events)
        && let (Some(one), Some(two)) = (bits(most), bits(2 * most))
        && two < (1.0 - worth) * one
    {
        most *= 2;
    }
    let fitting = |bytes: f64, of: usize| {
        let events = (aim.bytes as f64 * of as f64 / bytes.max(1.0)) as usize;
        events.clamp(1, most).next_power_of_two().min(most)
    };
    let mut events = match aim.exactly {
        Some(events) => events,
        // A third of what there is, for all that is known now; then by what that takes.
        None => {
            let guess = fitting(formed.batch.size() as f64 / 3.0, sample.len());
            bits(guess).map_or(guess, |bits| fitting(bits / 8.0, some.len())).max(1)
        }
    };
    drop(some);
    for round in 0.. {
        if !forms.is_empty() {
            formed = forms.apply(layout, batch, events, threads)?;
            forms.refine(&mut formed);
            plan = self::plan(inner, &formed.batch)?;
        }
        let starts = starts(inner, &plan, &formed.batch, events);
        let values = most_values(&plan, &starts);
        if values > MOST_VALUES || formed.texts > MOST_TEXTS {
            if events > 1 {
                events = (events / 2).max(1);
                continue;
            }
            let what = "values of an event";
            return Err(Error::Limit { what, need: values, allowed: MOST_VALUES });
        }
        // Room for packets of later segments, too.
        let room = values.next_power_of_two().min(MOST_VALUES);
        let texts = formed.texts.next_power_of_two().min(MOST_TEXTS);
        let coders = Learner::new(inner, &plan, &formed.batch, &starts).coders();
        let same = forms.same(&plan, batch);
        let (plan, words) = (plan.clone(), forms.words());
        let mut model = Model { events, values: room, texts, words, same, plan, coders };
        let failed = || Error::invalid("values that no symbol tells");
        let counted = count(inner, &formed.batch, &model, &starts, threads).ok_or_else(failed)?;
        set_shares(&mut model, &counted.counts);
        let packets = encode(layout, batch, &formed, &model, &starts, &counted.told, threads)?;
        let packets = packets.ok_or_else(failed)?;
        let fitting = fitting(packets.bytes.len() as f64, batch.len());
        let is_near = fitting < 2 * events && events < 2 * fitting || fitting == events;
        if is_near || round > 1 || aim.exactly.is_some() {
            let worth = formed.worth();
            drop(formed);
            return Ok(Segment { known: Some(Known { model, forms, worth }), packets });
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
    let (values, plan) = (MOST_VALUES, plan.clone());
    let model =
        Model { events, values, texts: 0, words: Vec::new(), same: Vec::new(), plan, coders };
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

/// The packets of a batch by a model that is there, if it tells these events about as well as one of their own would.
fn by_old(layout: &Layout, batch: &Batch, known: &Known, threads: usize) -> Option<Packets> {
    let Known { model, forms, worth } = known;
    let formed = forms.apply(layout, batch, model.events, threads).ok()?;
    let inner = &*forms.layout;
    if plan(inner, &formed.batch).ok()? != model.plan || formed.worth() > 1.1 * worth {
        return None;
    }
    let same = forms.same(&model.plan, batch);
    if !model.same.iter().all(|column| same.contains(column)) {
        return None;
    }
    let starts = starts(inner, &model.plan, &formed.batch, model.events);
    if most_values(&model.plan, &starts) > model.values || formed.texts > model.texts {
        return None;
    }
    let counted = count(inner, &formed.batch, model, &starts, threads)?;
    let (mut cost, mut fresh) = (0.0, 0.0);
    for (counts, shares) in counted.counts.iter().zip(tables(model)) {
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
    encode(layout, batch, &formed, model, &starts, &counted.told, threads).ok()?
}
