//! Learns the codes of a model from a sample of blocks.

use std::sync::Arc;

use super::codes::{CONTEXTS, Class, GROUPS, LENGTH_COUNT, LENGTHS, LITERAL_COUNT, Model, group};
use super::encode::{Encoder, Written};
use super::parse::Prices;
use super::tokens::{self, Speller, Tokens};
use super::{Finder, Level, Parse, Text, fast};
use crate::model::Code;
use crate::parallel::in_parts;
use crate::rlz::matcher::Factor;

/// How often each symbol is written.
struct Counts {
    commands: [u32; 512],
    lengths: [[u32; LENGTHS]; GROUPS],
    /// By the literal before.
    literals: Vec<[u32; 256]>,
}

impl Counts {
    fn new() -> Counts {
        Counts {
            commands: [0; 512],
            lengths: [[0; LENGTHS]; GROUPS],
            literals: vec![[0; 256]; 256],
        }
    }

    fn add(&mut self, written: &[Written], literals: &[u8]) {
        for sequence in written {
            self.commands[usize::from(sequence.command)] += 1;
            self.lengths[usize::from(sequence.group)][usize::from(sequence.length)] += 1;
        }
        let mut before = 0;
        for &literal in literals {
            self.literals[before][usize::from(literal)] += 1;
            before = usize::from(literal);
        }
    }

    /// Adds what others counted.
    fn merge(&mut self, other: &Counts) {
        let add = |sums: &mut [u32], counts: &[u32]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        };
        add(&mut self.commands, &other.commands);
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(a, b)| add(a, b));
        self.literals.iter_mut().zip(&other.literals).for_each(|(a, b)| add(a, b));
    }

    /// The codes that write them shortest. Tables are charged `table_share` of their size.
    fn class(&self, table_share: f64) -> Class {
        // What the sample does not have may still come.
        let code = |counts: &[u32], is_known: &dyn Fn(usize) -> bool| {
            let weight = |(symbol, &count)| if is_known(symbol) { 32 * count + 1 } else { 0 };
            Code::of(&counts.iter().enumerate().map(weight).collect::<Vec<u32>>())
        };
        let (contexts, groups) = cluster(&self.literals, table_share);
        Class {
            commands: code(&self.commands, &|symbol| symbol % 16 < LITERAL_COUNT),
            lengths: self.lengths.each_ref().map(|c| code(c, &|symbol| symbol < LENGTH_COUNT)),
            literals: groups.iter().map(|counts| code(counts, &|_| true)).collect(),
            contexts,
        }
    }
}

/// What comes behind a byte, and how often: those that do.
struct Context {
    before: usize,
    counts: Vec<(u8, u32)>,
}

/// The logarithm of a positive number, to six digits: those of the system differ in the last bit from one to the
/// next, and what is learned must not.
fn log2(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F80_0000);
    // 2 / ln 2 times the series of the inverse hyperbolic tangent.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let q = s * s;
    let series = 2.885_39 + q * (0.961_796_7 + q * (0.577_078 + q * (0.412_198_6 + q * 0.320_599)));
    exponent as f32 + s * series
}

fn prices_of(counts: &[u32; 256]) -> [f32; 256] {
    let total: f32 = counts.iter().map(|&n| n as f32 + 0.1).sum();
    counts.map(|n| log2(total / (n as f32 + 0.1)))
}

/// Puts the contexts of literals into groups that share a code: for each byte its group, and what
/// each group counts.
fn cluster(contexts: &[[u32; 256]], table_share: f64) -> ([u8; 256], Vec<[u32; 256]>) {
    /// Bits of a table, when it is stored.
    const TABLE: f64 = 8.0 * 110.0;
    let of = |(before, counts): (usize, &[u32; 256])| {
        let counts = (0..=255).zip(counts.iter().copied()).filter(|c| c.1 > 0).collect();
        Context { before, counts }
    };
    let mut contexts: Vec<Context> = contexts.iter().enumerate().map(of).collect();
    contexts.retain(|context| !context.counts.is_empty());
    contexts.sort_by_key(|c| std::cmp::Reverse(c.counts.iter().map(|c| c.1).sum::<u32>()));
    let sums = |map: &[u8; 256], count: usize| {
        let mut sums = vec![[0u32; 256]; count];
        for context in &contexts {
            let sum = &mut sums[usize::from(map[context.before])];
            context.counts.iter().for_each(|&(symbol, n)| sum[usize::from(symbol)] += n);
        }
        sums
    };
    let mut best: Option<(f64, [u8; 256], Vec<[u32; 256]>)> = None;
    for count in 1..=CONTEXTS {
        let mut map = [0u8; 256];
        for (rank, context) in contexts.iter().enumerate() {
            map[context.before] = rank.min(count - 1) as u8;
        }
        let mut bits = 0.0;
        for _ in 0..if count == 1 { 1 } else { 8 } {
            let prices: Vec<[f32; 256]> = sums(&map, count).iter().map(prices_of).collect();
            bits = 0.0;
            for context in &contexts {
                let price = |group: usize, symbol: u8| prices[group][usize::from(symbol)];
                let cost =
                    |group| context.counts.iter().map(|c| c.1 as f32 * price(group, c.0)).sum();
                let costs = (0..count).map(|group| (cost(group), group));
                if let Some((cost, group)) = costs.min_by(|a: &(f32, usize), b| a.0.total_cmp(&b.0))
                {
                    bits += f64::from(cost);
                    map[context.before] = group as u8;
                }
            }
        }
        let all = bits + TABLE * count as f64 * table_share;
        if best.as_ref().is_none_or(|best| all < best.0) {
            best = Some((all, map, sums(&map, count)));
        }
    }
    best.map_or(([0; 256], vec![[0; 256]]), |best| (best.1, best.2))
}

/// A model that knows nothing but the dictionary: for blocks of which there is no sample.
pub(crate) fn default_model(dictionary: &[u8]) -> Model {
    let mut counts = Counts::new();
    for source in 0..32usize {
        for literals in 0..LITERAL_COUNT {
            let of_source = [40, 16, 8, 6][source.min(3)].max(source as u32) * 16;
            counts.commands[source * 16 + literals] = of_source >> (literals / 2);
        }
        for length in 0..LENGTH_COUNT - 1 {
            counts.lengths[group(source as u32)][length] += 400 / (length as u32 + 4);
        }
    }
    // Samples of the text all over.
    for piece in dictionary.chunks(64).step_by((dictionary.len() / (1 << 16)).max(1)) {
        for pair in piece.windows(2) {
            counts.literals[usize::from(pair[0])][usize::from(pair[1])] += 1;
        }
    }
    Model::new(vec![counts.class(1.0)])
}

/// A block of the sample.
struct Sampled<'a> {
    block: &'a [u8],
    /// Matches in the dictionary.
    far: Vec<Factor>,
    parse: Parse,
    class: usize,
}

/// The blocks with their matches in the dictionary.
fn sampled<'a>(finder: &Finder, blocks: &[&'a [u8]], threads: usize) -> Vec<Sampled<'a>> {
    let of =
        |&block: &&'a [u8]| Sampled { block, far: Vec::new(), parse: Parse::default(), class: 0 };
    let mut all: Vec<Sampled> = blocks.iter().map(of).collect();
    in_parts(threads, &mut all, |part| {
        part.iter_mut().for_each(|sampled| finder.find(sampled.block, &mut sampled.far));
    });
    all
}

/// Learns from blocks, whose length in all is `share` of what will be coded at this level. The same for
/// any number of threads.
pub(crate) fn train(
    finder: &Finder,
    level: i32,
    blocks: &[&[u8]],
    share: f64,
    threads: usize,
) -> Arc<Model> {
    const ROUNDS: usize = 4;
    let dictionary = finder.text();
    let mut model = Arc::new(default_model(dictionary));
    let mut all = sampled(finder, blocks, threads);
    for round in 0..ROUNDS {
        let prices: Vec<Prices> =
            model.classes.iter().map(|class| Prices::of(class, dictionary.len())).collect();
        in_parts(threads, &mut all, |part| {
            let mut parser = Level::of(level).parser;
            for Sampled { block, far, parse, class } in part {
                parser.parse(Text { dictionary, block, far }, &prices[*class], parse);
            }
        });
        let want = if round + 2 < ROUNDS { 1 } else { MOST_CLASSES };
        let learner = Learner { before: model, dictionary_len: dictionary.len(), share, threads };
        model = learner.learn(&mut all, want);
    }
    model
}

/// As [`train`], for fast blocks.
pub(crate) fn train_tokens(
    finder: &Finder,
    level: i32,
    blocks: &[&[u8]],
    threads: usize,
) -> Arc<Tokens> {
    const ROUNDS: usize = 3;
    let dictionary = finder.text();
    let mut tokens = Arc::new(Tokens::usual());
    let mut all = sampled(finder, blocks, threads);
    for _ in 0..ROUNDS {
        let prices = Prices::of_tokens(&Speller::new(tokens.clone()), dictionary.len());
        let parts = in_parts(threads, &mut all, |part| {
            let mut parser = Level::of(level).parser;
            let mut counts = tokens::Counts::default();
            for Sampled { block, far, parse, .. } in part {
                parser.parse(Text { dictionary, block, far }, &prices, parse);
                fast::count(parse, dictionary.len(), &mut counts);
            }
            counts
        });
        let mut counts = tokens::Counts::default();
        parts.into_iter().for_each(|part| counts.merge(part));
        tokens = Arc::new(Tokens::of(&counts));
    }
    tokens
}

/// Classes that are tried.
const MOST_CLASSES: usize = 8;

/// What stays the same while a model is learned.
struct Learner {
    before: Arc<Model>,
    dictionary_len: usize,
    share: f64,
    threads: usize,
}

impl Learner {
    /// The best model for these parses, with up to `most` classes; each block gets its own.
    fn learn(&self, all: &mut [Sampled], most: usize) -> Arc<Model> {
        let mut best = self.fit(all, vec![0; all.len()], 1);
        let mut count = 2;
        while count <= most && count * 8 <= all.len() {
            // It depends on where it starts which classes come of it: two ways to deal blocks out.
            let mut tried = None;
            for start in [0, 1] {
                let classes = (0..all.len()).map(|i| spread(i, count, start)).collect();
                let fitted = self.fit(all, classes, count);
                if tried.as_ref().is_none_or(|t: &Fit| fitted.size < t.size) {
                    tried = Some(fitted);
                }
            }
            let Some(tried) = tried else { break };
            if tried.size >= best.size {
                break;
            }
            best = tried;
            count *= 2;
        }
        let (model, classes) = by_use(best);
        all.iter_mut().zip(classes).for_each(|(sampled, class)| sampled.class = class);
        model
    }

    /// Finds classes by turns: the best codes for the blocks of each, the best class for each block.
    fn fit(&self, all: &mut [Sampled], classes: Vec<usize>, count: usize) -> Fit {
        let mut model = self.before.clone();
        let mut size = f64::MAX;
        all.iter_mut().zip(classes).for_each(|(sampled, class)| sampled.class = class);
        for round in 0..if count == 1 { 1 } else { 8 } {
            let parts = in_parts(self.threads, all, |part| {
                let mut counts: Vec<Counts> = (0..count).map(|_| Counts::new()).collect();
                let mut encoder = Encoder::new(&model, self.dictionary_len);
                for Sampled { parse, class, .. } in part {
                    let with = if round == 0 { 0 } else { *class };
                    counts[*class].add(encoder.written(parse, with), &parse.literals);
                }
                counts
            });
            let sum = parts.into_iter().reduce(|mut sum, part| {
                sum.iter_mut().zip(&part).for_each(|(sum, part)| sum.merge(part));
                sum
            });
            let counts = sum.unwrap_or_default();
            model = Arc::new(Model::new(counts.iter().map(|c| c.class(self.share)).collect()));
            let parts = in_parts(self.threads, all, |part| {
                let (mut encoder, mut bits) = (Encoder::new(&model, self.dictionary_len), 0);
                for Sampled { parse, class, .. } in part {
                    if let Some((cost, best)) = encoder.best(parse, *class) {
                        bits += cost;
                        *class = best;
                    }
                }
                bits
            });
            let mut stored = Vec::new();
            model.put(&mut stored);
            size = 8.0 * stored.len() as f64 * self.share + parts.iter().sum::<u64>() as f64;
        }
        Fit { model, classes: all.iter().map(|sampled| sampled.class).collect(), size }
    }
}

/// Puts the classes that most blocks have first: the start of a block is parsed with the codes of the
/// first one, before it has another.
fn by_use(fit: Fit) -> (Arc<Model>, Vec<usize>) {
    let uses = |class: usize| fit.classes.iter().filter(|&&c| c == class).count();
    let mut order: Vec<usize> = (0..fit.model.classes.len()).collect();
    order.sort_by_key(|&class| std::cmp::Reverse(uses(class)));
    let model = Model::new(order.iter().map(|&class| fit.model.classes[class].clone()).collect());
    let rank = |class: &usize| order.iter().position(|c| c == class).unwrap_or(0);
    (Arc::new(model), fit.classes.iter().map(rank).collect())
}

/// The class that block `i` starts in: in turn, or as if at random. `count` is a power of two.
fn spread(i: usize, count: usize, start: usize) -> usize {
    if start == 0 { i % count } else { i.wrapping_mul(0x9E37_79B9) >> 7 & (count - 1) }
}

/// A model, which class each block has, and what all becomes with it, in bits.
struct Fit {
    model: Arc<Model>,
    classes: Vec<usize>,
    size: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_the_system() {
        for x in (1..100_000).map(|i| i as f32 * 0.37).chain([0.1, 1e-6, 0.999_999, 1e9]) {
            assert!((log2(x) - x.log2()).abs() < 1e-5 * x.log2().abs().max(1.0), "{x}");
        }
    }

    #[test]
    fn the_class_of_most_blocks_comes_first() {
        let [rare, common] = [b"aaaa", b"zzzz"].map(|text| default_model(text).classes.remove(0));
        assert!(rare != common);
        let model = Arc::new(Model::new(vec![rare.clone(), common.clone()]));
        let (model, classes) = by_use(Fit { model, classes: vec![1, 0, 1, 1], size: 0.0 });
        assert_eq!(classes, [0, 1, 0, 0]);
        assert!(model.classes == [common, rare]);
    }
}
