//! Columns of texts as columns of words, and back.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::parse::runs;
use super::{FIRST, FRAME, Parser, RUNS, SAME, TOGETHER, Vocabulary, Ways, learn};
use crate::codec::{Codec, Scratch};
use crate::error::{Error, Result};
use crate::events::batch::Batch;
use crate::events::learn::starts;
use crate::events::model::{Plan, has};
use crate::events::packet::load;
use crate::events::schema::Layout;
use crate::parallel::in_parts;
use crate::random::Random;
use crate::wire::Put;

/// Bytes that words are learned from, at most; a part of all that is enough, but from so much on all of it.
const SAMPLE: usize = 1 << 20;
const PART: usize = 16;
const ENOUGH: usize = 1 << 17;
/// Texts of a sample, and bytes of one.
const MOST_TEXTS: usize = 1 << 17;
const PIECE: usize = 1 << 12;
/// Texts that may be compressed by themselves.
const LONG: usize = 1 << 10;
/// Levels that they are compressed with: the other one where it saves a tenth of what some take, but of no more bytes than so many.
const LEVELS: [i32; 2] = [6, 19];
const TRIED: usize = 1 << 16;

/// How the texts of some columns become words.
pub(in crate::events) struct Forms {
    /// Of the columns with words.
    pub layout: Arc<Layout>,
    /// Columns of bytes, in order, and what cuts them.
    pub parsers: Vec<(usize, Arc<Parser>)>,
}

/// A batch in which texts are words.
pub(in crate::events) struct Formed<'a> {
    pub batch: Cow<'a, Batch>,
    pub columns: Vec<Column>,
    /// Bytes of texts that a packet has at most, of all columns.
    pub texts: u64,
}

/// What a batch does not have of a column whose texts are words.
#[derive(Default)]
pub(in crate::events) struct Column {
    /// That of their bytes.
    pub column: usize,
    /// Bytes that are stored as they are, and where those of each packet end.
    stored: Vec<u8>,
    ends: Vec<usize>,
    /// Where each packet has its first text, and its first byte.
    pub items: Vec<usize>,
    pub bytes: Vec<usize>,
}

impl Formed<'_> {
    /// What is stored of a packet as it is, column by column, but of those whose texts are those of others.
    pub fn stored(&self, packet: usize, same: &[usize]) -> impl Iterator<Item = &[u8]> {
        let own = self.columns.iter().filter(|column| !same.contains(&column.column));
        own.map(move |column| {
            let start = if packet == 0 { 0 } else { column.ends[packet - 1] };
            &column.stored[start..column.ends[packet]]
        })
    }

    /// Of each byte of texts, how much of a byte it takes, about: 0 where there are none.
    pub fn worth(&self) -> f64 {
        // A word takes somewhat more than a byte.
        let of = |column: &Column| {
            column.stored.len() as f64 + 0.3 * self.batch.bytes(column.column).len() as f64
        };
        let told: f64 = self.columns.iter().map(of).sum();
        let bytes = self.columns.iter().filter_map(|column| column.bytes.last());
        told / bytes.sum::<usize>().max(1) as f64
    }
}

/// The texts of a column.
struct Texts<'a> {
    bytes: &'a [u8],
    /// Where each begins, and the last ends.
    starts: Vec<usize>,
}

impl<'a> Texts<'a> {
    /// Those whose bytes are in this column.
    fn new(batch: &'a Batch, column: usize) -> Texts<'a> {
        let counts = batch.bytes(column - 1);
        let mut starts = vec![0];
        let mut end = 0;
        starts.extend((0..counts.len() / 4).map(|i| {
            end += load(counts, 4, i) as usize;
            end
        }));
        Texts { bytes: batch.bytes(column), starts }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.starts[i]..self.starts[i + 1]]
    }

    /// With which level long ones are compressed.
    fn level(&self) -> i32 {
        let long = (0..self.len()).map(|i| self.get(i)).filter(|text| text.len() >= LONG);
        let (mut codec, mut left, mut sums) = (Scratch::default(), TRIED, [0usize; 2]);
        let mut frame = vec![0; TRIED];
        for text in long {
            let some = &text[..text.len().min(left)];
            for (sum, level) in sums.iter_mut().zip(LEVELS) {
                let dst = (&mut frame[..some.len()]).into();
                let done = Codec::Zstd.compress(level, some.into(), dst, &mut codec);
                *sum += done.ok().flatten().unwrap_or(some.len());
            }
            left -= some.len();
            if left < LONG {
                break;
            }
        }
        LEVELS[usize::from(sums[1] * 10 < sums[0] * 9)]
    }

    /// Some of them, and of long ones pieces, each [`TOGETHER`] behind one another, and their part of all bytes.
    fn sample(&self) -> (Vec<&'a [u8]>, f64) {
        let want = SAMPLE.min((self.bytes.len() / PART).max(ENOUGH));
        let few = self.bytes.len() / self.bytes.len().min(want).max(1);
        let step = few.max(self.len() / MOST_TEXTS).max(1);
        let (mut some, mut bytes, mut item, mut at) = (Vec::new(), 0, 0, 0);
        let mut random = Random(0);
        while item < self.len() {
            // The next texts are looked at; then many times as many are not, more or less, so that what comes at even distances is not
            // all that is seen.
            let start = some.len();
            let mut here = 0;
            while some.len() < start + TOGETHER && item < self.len() {
                let text = &self.get(item)[at..];
                let piece = &text[..text.len().min(PIECE)];
                some.push(piece);
                here += piece.len();
                at += piece.len();
                if piece.len() == text.len() {
                    (item, at) = (item + 1, 0);
                }
            }
            bytes += here;
            let mut more =
                |of: usize| of * (step - 1) / 2 + (of as u64 * random.below(step as u64)) as usize;
            let mut left = more(here);
            let mut texts = more(TOGETHER);
            while item < self.len() && left > 0 && texts > 0 {
                let rest = self.get(item).len() - at;
                if rest > left {
                    at += left;
                    left = 0;
                } else {
                    left -= rest;
                    (item, at) = (item + 1, 0);
                    texts -= 1;
                }
            }
        }
        (some, (bytes as f64 / self.bytes.len().max(1) as f64).clamp(1e-6, 1.0))
    }
}

impl Forms {
    /// Cuts texts of these columns.
    pub fn new(layout: &Layout, parsers: Vec<(usize, Arc<Parser>)>) -> Forms {
        Forms { layout: Arc::new(layout.with_words(|column| has(&parsers, column))), parsers }
    }

    /// True where there are no texts.
    pub fn is_empty(&self) -> bool {
        self.parsers.is_empty()
    }

    /// Learns words for all columns of texts.
    pub fn learn(layout: &Layout, batch: &Batch, threads: usize) -> Forms {
        let mut columns: Vec<usize> = layout.texts().collect();
        let parsers = in_parts(threads, &mut columns, |columns| {
            let learned = columns.iter().map(|&column| {
                let (texts, part) = Texts::new(batch, column).sample();
                (column, Arc::new(learn(&texts, part)))
            });
            learned.collect::<Vec<_>>()
        });
        Forms::new(layout, parsers.into_iter().flatten().collect())
    }

    /// Keeps the words that come in a batch only, in the order of how often.
    pub fn refine(&mut self, formed: &mut Formed<'_>) {
        let Cow::Owned(batch) = &mut formed.batch else { return };
        for (column, parser) in &mut self.parsers {
            let words = &mut batch.columns[*column];
            let mut counts = vec![0u32; FIRST as usize + parser.vocabulary().len()];
            for i in 0..words.len() / 4 {
                let count = &mut counts[load(words, 4, i) as usize];
                *count = count.saturating_add(1);
            }
            let (refined, numbers) = parser.refined(&counts);
            *parser = Arc::new(refined);
            let of = |i| numbers[load(words, 4, i) as usize];
            let mut new = Vec::with_capacity(words.len());
            (0..words.len() / 4).for_each(|i| new.put_u32(of(i)));
            *words = new;
        }
    }

    /// Stores all texts as they are.
    pub fn stored(layout: &Layout) -> Forms {
        let parser = Arc::new(Parser::stored());
        Forms::new(layout, layout.texts().map(|column| (column, parser.clone())).collect())
    }

    /// The batch with words in place of texts, in packets of so many events.
    pub fn apply<'a>(
        &self,
        layout: &Layout,
        batch: &'a Batch,
        events: usize,
        threads: usize,
    ) -> Result<Formed<'a>> {
        if self.parsers.is_empty() {
            return Ok(Formed { batch: Cow::Borrowed(batch), columns: Vec::new(), texts: 0 });
        }
        let plan = Plan::own(layout).ok_or_else(|| Error::invalid("a layout without order"))?;
        let starts = starts(layout, &plan, batch, events);
        let packets = starts[0].len() - 1;
        let mut formed = batch.of_columns(&self.layout, |column| {
            !has(&self.parsers, column) && !has(&self.parsers, column + 1)
        });
        let mut columns = Vec::with_capacity(self.parsers.len());
        let mut sums = vec![0u64; packets];
        for (column, parser) in &self.parsers {
            let level = |column: usize| layout.columns()[column].level;
            let (items, bytes) = (&starts[level(column - 1)], &starts[level(*column)]);
            let texts = Texts::new(batch, *column);
            let level = texts.level();
            let len = packets.div_ceil(4 * threads.max(1)).max(1);
            let mut parts: Vec<Range<usize>> =
                (0..packets).step_by(len).map(|from| from..packets.min(from + len)).collect();
            let done = in_parts(threads, &mut parts, |parts| {
                let mut ways = Ways::default();
                let mut part = Part { level, ..Part::default() };
                for packet in parts.iter().cloned().flatten() {
                    part.packet(parser, &texts, items[packet]..items[packet + 1], &mut ways);
                }
                part
            });
            let mut all = Column {
                column: *column,
                items: items.clone(),
                bytes: bytes.clone(),
                ..Column::default()
            };
            for part in done {
                formed.columns[column - 1].extend_from_slice(&part.counts);
                formed.columns[*column].extend_from_slice(&part.words);
                let before = all.stored.len();
                all.stored.extend_from_slice(&part.stored);
                all.ends.extend(part.ends.iter().map(|end| before + end));
            }
            columns.push(all);
            for (sum, pair) in sums.iter_mut().zip(bytes.windows(2)) {
                *sum += (pair[1] - pair[0]) as u64;
            }
        }
        let texts = sums.into_iter().max().unwrap_or(0);
        Ok(Formed { batch: Cow::Owned(formed), columns, texts })
    }

    /// Columns that have both their values and their texts with another.
    pub fn same(&self, plan: &Plan, batch: &Batch) -> Vec<usize> {
        let is_same = |&(column, ref parser): &(usize, Arc<Parser>)| {
            let other = plan.columns[column];
            let those = self.parsers.iter().find(|(that, _)| *that == other && other < column);
            let (one, two) = (batch.bytes(column), batch.bytes(other));
            let is_same = one == two && batch.bytes(column - 1) == batch.bytes(other.max(1) - 1);
            let known = those.filter(|(_, other)| other.vocabulary() == parser.vocabulary());
            (known.is_some() && is_same).then_some(column)
        };
        self.parsers.iter().filter_map(is_same).collect()
    }

    /// The words of each column.
    pub fn words(&self) -> Vec<(usize, Arc<Vocabulary>)> {
        self.parsers.iter().map(|(column, parser)| (*column, parser.vocabulary().clone())).collect()
    }
}

/// Packets of a column as words.
#[derive(Default)]
struct Part {
    counts: Vec<u8>,
    words: Vec<u8>,
    stored: Vec<u8>,
    ends: Vec<usize>,
    told: Vec<u32>,
    frame: Vec<u8>,
    /// Of the frames of long texts.
    level: i32,
    codec: Scratch,
}

impl Part {
    fn packet(&mut self, parser: &Parser, texts: &Texts<'_>, items: Range<usize>, ways: &mut Ways) {
        let mut before: &[u8] = &[];
        for item in items {
            let text = texts.get(item);
            self.told.clear();
            let price = parser.parse(text, before, ways, &mut self.told);
            before = text;
            if self.frame(parser, text, price) {
                continue;
            }
            self.counts.put_u32(self.told.len() as u32);
            let mut at = 0;
            for &word in &self.told {
                self.words.put_u32(word);
                at += match word {
                    ..RUNS => {
                        self.stored.extend_from_slice(&text[at..at + (1 << word)]);
                        1 << word
                    }
                    SAME.. if word < FIRST => (word - SAME) as usize,
                    _ => parser.word_len(word - FIRST),
                };
            }
        }
        self.ends.push(self.stored.len());
    }

    /// Stores a text compressed by itself if that is less than so much; says whether it did.
    fn frame(&mut self, parser: &Parser, text: &[u8], price: u64) -> bool {
        if text.len() < LONG {
            return false;
        }
        self.frame.resize(text.len(), 0);
        let (src, dst) = (text.into(), self.frame.as_mut_slice().into());
        let done = Codec::Zstd.compress(self.level, src, dst, &mut self.codec);
        let Ok(Some(len)) = done else { return false };
        if parser.stored_price(len + 8) >= price || len + 4 >= text.len() {
            return false;
        }
        self.counts.put_u32(1 + runs(len + 4).count() as u32);
        self.words.put_u32(FRAME);
        runs(len + 4).for_each(|run| self.words.put_u32(run));
        self.stored.put_u32(text.len() as u32);
        self.stored.put(&self.frame[..len]);
        true
    }
}
