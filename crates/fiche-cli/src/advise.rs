//! `fiche advise`

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ArgGroup;
use fiche::advise::{Advice, Figures, Plan, Prices, Survey};
use fiche::archive::Method;
use fiche::rlz::Coding;
use serde_json::{Value, json};

use crate::input::{Records, Threads, parse_records};
use crate::output::Output;
use crate::plot::{PIECES, SIZE, Series, scatter, stacked};
use crate::sizes::{self, show};
use crate::source::Source;
use crate::ui::{self, Failed, Progress, say};

/// Length of a piece that is read at most.
const MOST_READ: u64 = 16 << 20;

/// Measure a sample, and say how to pack the input
///
/// Packs samples of the input in many ways and reads random pieces of them. What is printed are the ways that no
/// other one is better than, in size and reading or in size and packing, the smallest first.
#[derive(clap::Args)]
#[command(
    after_help = "Sizes come with the error that 19 out of 20 of them stay within. Rates are of one \
thread, from memory, and differ by up to a fifth from run to run; times are of packing everything, without the \
disk. At the end of a line stands what it is recommended for: small, fast to read, fast to write (of ways within a \
quarter of the fastest, the smallest), cheapest (with prices); default is what fiche pack does by itself.\n\nExamples:\n  fiche advise crawl/\n  fiche advise mail.mbox --methods hybrid:5,zstd:19,lz4 --blocks \
4K,16K,64K --dicts 1M,4M\n  fiche advise logs --price-gb-month 0.02 --price-read 0.0000004 --months 36 \
--reads 1000000"
)]
pub struct Args {
    /// Files and folders, or - for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// Methods to measure, with or without a level: hybrid:9,zstd,lz4:1
    #[arg(long, value_name = "METHOD[:LEVEL],...", value_delimiter = ',', value_parser = parse_method)]
    methods: Vec<(Method, i32)>,
    /// Block lengths to measure
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = sizes::parse)]
    blocks: Vec<u64>,
    /// Lengths of dictionaries to measure, for methods that have one; auto, or none
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_dictionary)]
    dicts: Vec<DictionaryLen>,
    /// Length of the pieces that are read, 16M at most
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = parse_read)]
    read: usize,
    /// What a record is, as for `fiche pack`
    #[arg(long, value_name = "WHAT", default_value = "files", value_parser = parse_records)]
    records: Records,
    /// Leave out what matches: a name, or with a slash a path. May be given often
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    prices: PriceArgs,
    /// Print every way that was measured
    #[arg(long)]
    all: bool,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
    /// Write a plot of all figures; with - to standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace a plot that is there already
    #[arg(long, short)]
    force: bool,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

/// What keeping and reading costs, in any currency.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("price").multiple(true))]
struct PriceArgs {
    /// Price of a GB (10^9 bytes) kept for a month: adds what each way costs in all
    #[arg(long, value_name = "PRICE", value_parser = parse_price, group = "price")]
    price_gb_month: Option<f64>,
    /// Price of a read, of which there are --reads in a month
    #[arg(long, value_name = "PRICE", value_parser = parse_price, group = "price", requires = "reads")]
    price_read: Option<f64>,
    /// Price of a core that packs or reads for an hour
    #[arg(long, value_name = "PRICE", value_parser = parse_price, group = "price")]
    price_core_hour: Option<f64>,
    /// How many months it is kept, with a price
    #[arg(long, value_name = "N", default_value = "12", value_parser = parse_price, requires = "price")]
    months: f64,
    /// How many reads there are in a month, with a price
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_price, requires = "price")]
    reads: f64,
}

impl PriceArgs {
    /// The prices, if there are any.
    fn prices(&self) -> Option<Prices> {
        let given = [self.price_gb_month, self.price_read, self.price_core_hour];
        let [gb_month, read, core_hour] = given.map(Option::unwrap_or_default);
        let mut prices = Prices::default();
        (prices.gb_month, prices.read, prices.core_hour) = (gb_month, read, core_hour);
        (prices.months, prices.reads_per_month) = (self.months, self.reads);
        given.iter().any(Option::is_some).then_some(prices)
    }
}

fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "this is a number, such as 0.02".to_owned())
}

/// A length of a dictionary; `None` for what the method likes.
#[derive(Clone, Copy)]
struct DictionaryLen(Option<u64>);

fn parse_dictionary(text: &str) -> Result<DictionaryLen, String> {
    match text {
        "auto" => Ok(DictionaryLen(None)),
        "none" => Ok(DictionaryLen(Some(0))),
        size => sizes::parse(size).map(|len| DictionaryLen(Some(len))),
    }
}

fn parse_read(text: &str) -> Result<usize, String> {
    match sizes::parse(text)? {
        len @ 1..=MOST_READ => Ok(len as usize),
        _ => Err("a piece has 1 byte to 16M".to_owned()),
    }
}

fn parse_method(text: &str) -> Result<(Method, i32), String> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let method: Method = name.parse().map_err(|error: fiche::Error| error.to_string())?;
    let level = match level {
        Some(level) => level.parse().map_err(|_| format!("{level:?} is no level"))?,
        None => method.default_level(),
    };
    Ok((method.at_level(level).map_err(|error| error.to_string())?, level))
}

pub fn run(args: Args) -> Result<(), Failed> {
    let start = Instant::now();
    let output_path = Path::new("-");
    let mut source = Source::new(&args.input, &args.records, (&args.exclude, true), output_path)?;
    if args.json && args.svg.as_deref() == Some(output_path) {
        return Err(Failed::usage("figures and a plot cannot both go to standard output"));
    }
    // What cannot be written is found out before a minute has passed.
    let svg = match &args.svg {
        Some(path) => Some(Output::create(path, args.force)?),
        None => None,
    };
    let record_bytes = source.record_bytes()?;
    let split = match &args.records {
        Records::Split(split) => Some(split.clone()),
        Records::Files => None,
    };
    let survey = Survey::default().threads(args.threads.count()).read_len(args.read);
    let survey = survey.record_bytes(record_bytes).split(split);
    let of_len = |&block: &u64| usize::try_from(block).unwrap_or(usize::MAX);
    let blocks: Vec<usize> = args.blocks.iter().map(of_len).collect();
    let lens: Vec<Option<u64>> = args.dicts.iter().map(|len| len.0).collect();
    let advice = source.learn(true, |content| {
        let plans = Survey::crossed(&args.methods, &blocks, &lens, content.len())?;
        let progress = Progress::percent("measuring", args.quiet);
        Ok(survey.plans(plans).run(content, &mut |done, all| progress.so_far(done, all))?)
    })?;
    if source.is_longer() && !args.quiet {
        say!("measured is the beginning of the stream: {}", show(advice.content_bytes));
    }
    if let Some(mut output) = svg {
        let at = |error| Failed::io(args.svg.as_deref().unwrap_or(output_path), error);
        output.write_all(plot(&advice).as_bytes()).map_err(at)?;
        output.finish()?;
        if args.svg.as_deref() == Some(output_path) {
            return Ok(());
        }
    }
    let prices = args.prices.prices();
    match args.json {
        true => ui::print(format!("{:#}\n", as_json(&advice, prices)).as_bytes()),
        false => {
            let text = as_text(&advice, prices, args.all, start.elapsed().as_secs_f64());
            ui::print(text.as_bytes())
        }
    }
}

/// The options of `fiche pack` for a plan: none for what it does by itself.
fn options(plan: &Plan, content: u64) -> String {
    let mut text = String::new();
    let hybrid = Method::Coding(Coding::Hybrid);
    let is_hybrid = hybrid.at_level(plan.level).is_ok_and(|method| method == plan.method);
    let method = if is_hybrid { hybrid } else { plan.method };
    if !is_hybrid {
        text += &format!(" --method {method}");
    }
    if plan.level != method.default_level() {
        text += &format!(" --level {}", plan.level);
    }
    if plan.block_len != 16 << 10 {
        text += &format!(" --block {}", short(plan.block_len as u64));
    }
    let usual = Survey::plan(plan.method, plan.level, plan.block_len, content);
    if usual.is_ok_and(|usual| usual.dictionary_len != plan.dictionary_len) {
        text += &match plan.dictionary_len {
            0 => " --dict none".to_owned(),
            len => format!(" --dict {}", short(len)),
        };
    }
    text.trim_start().to_owned()
}

/// A size as options take it.
fn short(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(bits, _)| bytes.is_multiple_of(1 << bits) && bytes > 0);
    unit.map_or_else(|| bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

/// What these figures are recommended for.
fn marks(figures: &Figures, advice: &Advice, prices: Option<Prices>) -> Vec<&'static str> {
    let usual = Survey::plan(Method::Coding(Coding::Hybrid), 5, 16 << 10, advice.content_bytes);
    let cheapest = prices.map(|prices| advice.cheapest(&prices));
    let all = [
        ("small", figures == advice.small()),
        ("fast to read", figures == advice.fast_to_read()),
        ("fast to write", figures == advice.fast_to_write()),
        ("cheapest", cheapest == Some(figures)),
        ("default", usual.is_ok_and(|usual| usual == figures.plan)),
    ];
    all.into_iter().filter(|mark| mark.1).map(|mark| mark.0).collect()
}

fn as_json(advice: &Advice, prices: Option<Prices>) -> Value {
    let ways = advice.figures.iter().map(|figures| {
        let plan = &figures.plan;
        let mut way = json!({
            "method": plan.method.name(),
            "level": plan.level,
            "block_bytes": plan.block_len,
            "dictionary_bytes": plan.dictionary_len,
            "options": options(plan, advice.content_bytes),
            "stored_bytes": figures.stored_bytes,
            "stored_error": figures.stored_error,
            "reads_per_second": figures.reads_per_second,
            "bytes_per_read": figures.read_bytes,
            "pack_seconds": figures.pack_seconds,
            "best_to_read": figures.reads_best,
            "best_to_write": figures.packs_best,
            "recommended": marks(figures, advice, prices),
        });
        if let Some(prices) = prices {
            way["cost"] = json!(prices.cost(figures, advice.threads));
        }
        way
    });
    json!({
        "content_bytes": advice.content_bytes,
        "threads": advice.threads,
        "read_bytes": advice.read_len,
        "ways": ways.collect::<Vec<_>>(),
    })
}

/// Numbers with as many digits as tell them apart: three of what lies between the least and the greatest.
fn alike(numbers: &[f64]) -> Vec<String> {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(0.0, f64::max);
    let spread = if greatest > least { greatest - least } else { greatest };
    let decimals = if spread > 0.0 { (2.0 - spread.log10().floor()).clamp(0.0, 9.0) } else { 0.0 };
    numbers.iter().map(|number| format!("{number:.*}", decimals as usize)).collect()
}

/// A rate or time in three digits.
fn digits(number: f64) -> String {
    match number {
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        ..10_000.0 => format!("{number:.0}"),
        _ => format!("{:.0} k", number / 1e3),
    }
}

fn as_text(advice: &Advice, prices: Option<Prices>, all: bool, seconds: f64) -> String {
    let content = advice.content_bytes as f64;
    let marks = |figures: &Figures| marks(figures, advice, prices);
    let is_shown = |figures: &&Figures| {
        all || figures.reads_best || figures.packs_best || !marks(figures).is_empty()
    };
    let head = ["size", "", "reads/s", "packing", "cost", "options of fiche pack", ""];
    let mut rows = vec![head.map(str::to_owned)];
    let costs = prices.map(|prices| {
        let cost = |figures: &Figures| prices.cost(figures, advice.threads);
        let costs: Vec<f64> = advice.figures.iter().map(cost).collect();
        alike(&costs)
    });
    for (i, figures) in advice.figures.iter().enumerate().filter(|(_, figures)| is_shown(figures)) {
        let cost = costs.as_ref().map(|costs| costs[i].clone());
        let options = match options(&figures.plan, advice.content_bytes) {
            none if none.is_empty() => "(none)".to_owned(),
            some => some,
        };
        rows.push([
            format!("{:.2} %", 100.0 * figures.stored_bytes as f64 / content),
            format!("± {:.1} %", 100.0 * figures.stored_error),
            digits(figures.reads_per_second),
            format!("{} s", digits(figures.pack_seconds)),
            cost.unwrap_or_default(),
            options,
            marks(figures).join(", "),
        ]);
    }
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let count = advice.figures.len();
    let mut text = format!(
        "{} of content, {count} ways to pack it measured in {seconds:.0} s; reads of {} on one thread, packing on {}\n\n",
        show(advice.content_bytes),
        show(advice.read_len as u64),
        advice.threads,
    );
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // A column that no row fills is left out.
            if i == 4 && prices.is_none() {
                continue;
            }
            line += &match i {
                0..=4 => format!("{cell:>width$}  "),
                _ => format!("{cell:<width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Size against reading, and against packing.
fn plot(advice: &Advice) -> String {
    let content = advice.content_bytes as f64;
    let of = |rate: &dyn Fn(&Figures) -> f64| {
        let mut series: BTreeMap<String, Vec<(f64, f64, String)>> = BTreeMap::new();
        for figures in &advice.figures {
            let plan = &figures.plan;
            let name = format!("{} {}", plan.method, plan.level);
            let size = 100.0 * figures.stored_bytes as f64 / content;
            let label = options(plan, advice.content_bytes);
            series.entry(name).or_default().push((size, rate(figures), label));
        }
        series.into_iter().map(|(name, points)| Series { name, points }).collect::<Vec<_>>()
    };
    let reads = match advice.read_len {
        0x4000 => PIECES.to_owned(),
        len => format!("pieces of {} a second", show(len as u64)),
    };
    let title = format!("Size and random reads: {}", show(advice.content_bytes));
    let by_reads = scatter(&title, SIZE, &reads, &of(&|figures| figures.reads_per_second));
    let speed = |figures: &Figures| content / 1e6 / figures.pack_seconds;
    let by_packing = scatter("Size and packing", SIZE, "MB/s of packing, all told", &of(&speed));
    stacked(&[by_reads, by_packing])
}
