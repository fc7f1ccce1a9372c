//! The paper's own comparison, re-measured: its methods at three block lengths and three sizes of the
//! dictionary, its Figures 2 and 3 and Tables 2 and 3, and what it says of their order.

use std::fmt::Write;
use std::path::Path;

use crate::archive::{block_of, method_of};
use crate::engine::{Corpus, Result};
use crate::engines;
use crate::measure::Mode;
use crate::model::{DEVICES, Method, predict};
use crate::plot::{PIECES, SIZE, Series, scatter};
use crate::report::Row;

/// The paper's block lengths.
pub const BLOCKS: [&str; 3] = ["16K", "64K", "256K"];
/// Methods with a dictionary. The paper has the first four, and `rlz-zz-primed` and
/// `zlib-primed` in its section 5.
const CODINGS: [&str; 8] = [
    "rlz-uv 0",
    "rlz-pv 0",
    "rlz-zz 9",
    "rlz-zzz 9",
    "rlz-zz-primed 9",
    "zlib-primed 9",
    "zlib-primed-first 9",
    "zstd-dict 12",
];
/// Adaptive methods at longer blocks, to see where they overtake the dictionary.
const LONGER: [&str; 3] = ["1M", "4M", "16M"];
const ADAPTIVE: [&str; 2] = ["zlib 9", "zstd 12"];

/// The engines, for these sizes of the dictionary.
pub fn names(dictionaries: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    for block in BLOCKS {
        for method in ["copy 0", "lz4 1", "zlib 9", "zstd 12"] {
            names.push(format!("fiche {method} {block}"));
        }
        for dictionary in dictionaries {
            names.extend(CODINGS.map(|coding| format!("fiche {coding} {block} {dictionary}")));
        }
    }
    names
}

/// Sizes in percent of adaptive methods with longer blocks, by name.
pub fn longer(corpus: &Corpus, work: &Path) -> Result<Vec<(String, f64)>> {
    let mut sizes = Vec::new();
    for method in ADAPTIVE {
        for block in LONGER {
            let name = format!("fiche {method} {block}");
            let engine = engines::by_name(&name)?;
            let folder = work.join(name.replace(' ', "-"));
            crate::archive::build(&*engine, corpus, &folder)?;
            let mut stored = 0;
            for file in engine.files(&folder) {
                stored += std::fs::metadata(file)?.len();
            }
            sizes.push((name, 100.0 * stored as f64 / corpus.len as f64));
        }
    }
    Ok(sizes)
}

/// All that is known of the rows, by method, block and dictionary.
struct Results<'a> {
    rows: &'a [Row],
    dictionaries: &'a [String],
}

impl Results<'_> {
    fn row(&self, method: &str, block: &str, dictionary: Option<&str>, mode: Mode) -> Option<&Row> {
        let name = match dictionary {
            Some(dictionary) => format!("fiche {method} {block} {dictionary}"),
            None => format!("fiche {method} {block}"),
        };
        let is =
            |row: &&Row| row.engine == name && row.mode == mode.name() && row.refused.is_empty();
        self.rows.iter().find(is)
    }

    fn percent(&self, method: &str, block: &str, dictionary: Option<&str>) -> Option<f64> {
        self.row(method, block, dictionary, Mode::Random).map(|row| row.percent)
    }

    fn rate(&self, method: &str, block: &str, dictionary: Option<&str>, mode: Mode) -> Option<f64> {
        self.row(method, block, dictionary, mode).map(|row| row.rate)
    }
}

/// What is compared, and two values of which the first should be less.
type Case = (String, f64, f64);

/// Pairs of which the paper says that the first is less than the second.
struct Ordering {
    says: &'static str,
    cases: Vec<Case>,
}

/// Writes the page and the plots of one corpus.
pub fn write(
    folder: &Path,
    corpus: &Corpus,
    rows: &[Row],
    dictionaries: &[String],
    longer: &[(String, f64)],
) -> Result<()> {
    let results = Results { rows, dictionaries };
    let mut text = format!("# The paper's tables on {}\n\n", corpus.name);
    writeln!(text, "{} bytes in {} files.\n", corpus.len, corpus.documents.len())?;
    writeln!(
        text,
        "Petri, Moffat, Nagesh and Wirth measured 64 GiB with dictionaries of 0.02 to 0.4 %; here \
         they are {} of the corpus, which is small: what a dictionary costs weighs more, and \
         every method with one looks better than on theirs. Rates are from memory, one thread; \
         those of devices are by the paper's model.\n",
        dictionaries
            .iter()
            .map(|d| {
                let len = engines::size(d).unwrap_or(0) as f64;
                format!("{:.2} % ({d})", 100.0 * len / corpus.len as f64)
            })
            .collect::<Vec<_>>()
            .join(", ")
    )?;
    figures(&mut text, folder, corpus, &results)?;
    table2(&mut text, &results)?;
    table3(&mut text, &results)?;
    memory(&mut text, &results)?;
    overtaking(&mut text, &results, longer)?;
    orderings(&mut text, &results)?;
    std::fs::write(folder.join(format!("{}-paper.md", corpus.name)), text)?;
    Ok(())
}

/// Figure 2: size against rate in the three modes. Figure 3: RANDOM on devices.
fn figures(text: &mut String, folder: &Path, corpus: &Corpus, results: &Results<'_>) -> Result<()> {
    let series = |rate: &dyn Fn(&Row) -> f64, mode: Mode| {
        let mut series: Vec<Series> = Vec::new();
        for row in results.rows.iter().filter(|r| r.mode == mode.name() && r.refused.is_empty()) {
            let (name, block) = method_of(&row.engine);
            if !series.iter().any(|s| s.name == name) {
                series.push(Series { name: name.clone(), points: Vec::new() });
            }
            let Some(found) = series.iter_mut().find(|s| s.name == name) else { continue };
            found.points.push((row.percent, rate(row), block));
        }
        series
    };
    writeln!(text, "## Figure 2: size against rate\n")?;
    for mode in Mode::ALL {
        let name = format!("{}-paper-{}.svg", corpus.name, mode.name());
        let title = format!("{}: {} retrieval, from memory", corpus.name, mode.name());
        std::fs::write(
            folder.join(&name),
            scatter(&title, SIZE, PIECES, &series(&|row| row.rate, mode)),
        )?;
        writeln!(text, "![{} retrieval]({name})\n", mode.name())?;
    }
    writeln!(text, "## Figure 3: RANDOM on devices\n")?;
    for device in DEVICES.iter().take(2) {
        let name = format!("{}-paper-{}.svg", corpus.name, device.name);
        let title = format!("{}: random retrieval, {} by the model", corpus.name, device.name);
        let rate = |row: &Row| {
            let block = block_of(&row.engine).unwrap_or(16 << 10);
            let method = Method { ratio: row.percent / 100.0, block, rate: row.rate };
            predict(device, Mode::Random, &method)
        };
        std::fs::write(
            folder.join(&name),
            scatter(&title, SIZE, PIECES, &series(&rate, Mode::Random)),
        )?;
        writeln!(text, "![{}]({name})\n", device.name)?;
    }
    Ok(())
}

/// A size and a rate, as the paper prints them.
fn cell(row: Option<&Row>) -> String {
    row.map_or("-".into(), |row| format!("{:.2} %, {:.0}", row.percent, row.rate))
}

fn table2(text: &mut String, results: &Results<'_>) -> Result<()> {
    writeln!(text, "## Table 2: priming\n")?;
    writeln!(
        text,
        "Size, and pieces a second of RANDOM. zlib' is primed with the neighbourhood of each block, as \
         the paper describes it; beside it all blocks primed with the first region of the dictionary.\n"
    )?;
    for dictionary in results.dictionaries {
        writeln!(text, "Dictionary of {dictionary}:\n")?;
        writeln!(text, "| block | zlib | zlib' | zlib', first region | rlz-zz | rlz-zz' |")?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for block in BLOCKS {
            let with = |method| cell(results.row(method, block, Some(dictionary), Mode::Random));
            writeln!(
                text,
                "| {block} | {} | {} | {} | {} | {} |",
                cell(results.row("zlib 9", block, None, Mode::Random)),
                with("zlib-primed 9"),
                with("zlib-primed-first 9"),
                with("rlz-zz 9"),
                with("rlz-zz-primed 9"),
            )?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn table3(text: &mut String, results: &Results<'_>) -> Result<()> {
    writeln!(text, "## Table 3: three streams\n")?;
    writeln!(text, "Size, and pieces a second of RANDOM; `min_literal` 4.\n")?;
    let heads = |method: &str| {
        results.dictionaries.iter().map(|d| format!(" {method} {d} |")).collect::<String>()
    };
    let codings = ["rlz-zz 9", "rlz-zzz 9", "rlz-pv 0", "zstd-dict 12"];
    writeln!(text, "| block |{}", codings.map(heads).concat())?;
    writeln!(text, "|---|{}", "---|".repeat(codings.len() * results.dictionaries.len()))?;
    for block in BLOCKS {
        let cells = codings.map(|method| {
            let of = |d: &String| {
                format!(" {} |", cell(results.row(method, block, Some(d), Mode::Random)))
            };
            results.dictionaries.iter().map(of).collect::<String>()
        });
        writeln!(text, "| {block} |{}", cells.concat())?;
    }
    writeln!(text)?;
    Ok(())
}

fn memory(text: &mut String, results: &Results<'_>) -> Result<()> {
    writeln!(text, "## Memory\n")?;
    writeln!(
        text,
        "Size against what a reader keeps in memory: dictionary, index and what opening takes.\n"
    )?;
    writeln!(text, "| method | block | dictionary | size | memory |")?;
    writeln!(text, "|---|---|---|---|---|")?;
    for (method, dictionary) in std::iter::once(("zlib 9", None))
        .chain(results.dictionaries.iter().map(|d| ("rlz-zzz 9", Some(d.as_str()))))
    {
        for block in BLOCKS {
            let Some(row) = results.row(method, block, dictionary, Mode::Random) else { continue };
            let (size, memory) = (row.percent, row.index_bytes >> 10);
            let dictionary = dictionary.unwrap_or("none");
            writeln!(text, "| {method} | {block} | {dictionary} | {size:.2} % | {memory} KiB |")?;
        }
    }
    writeln!(text)?;
    Ok(())
}

/// At which block length an adaptive method is as small as the best with a dictionary at 16 KiB.
fn overtaking(text: &mut String, results: &Results<'_>, longer: &[(String, f64)]) -> Result<()> {
    writeln!(text, "## Where longer blocks overtake the dictionary\n")?;
    writeln!(
        text,
        "The shortest blocks with which a method without a dictionary is as small as one with it at 16 \
         KiB.\n"
    )?;
    writeln!(text, "| at 16 KiB | size | {} |", ADAPTIVE.join(" | "))?;
    writeln!(text, "|---|---|{}", "---|".repeat(ADAPTIVE.len()))?;
    for method in ["rlz-pv 0", "rlz-zzz 9", "zstd-dict 12"] {
        for dictionary in results.dictionaries {
            let Some(size) = results.percent(method, "16K", Some(dictionary)) else { continue };
            let cells = ADAPTIVE.map(|adaptive| {
                let short = BLOCKS.iter().find(|block| {
                    results.percent(adaptive, block, None).is_some_and(|percent| percent <= size)
                });
                let name = |block: &&&str| format!("fiche {adaptive} {block}");
                let long = LONGER.iter().find(|block| {
                    longer.iter().any(|(n, percent)| *n == name(block) && *percent <= size)
                });
                short.or(long).map_or("none up to 16M".to_owned(), |block| (*block).to_owned())
            });
            writeln!(text, "| {method} {dictionary} | {size:.2} % | {} |", cells.join(" | "))?;
        }
    }
    writeln!(text)?;
    Ok(())
}

/// Every ordering that the paper states, and where it holds.
fn orderings(text: &mut String, results: &Results<'_>) -> Result<()> {
    writeln!(text, "## The paper's orderings\n")?;
    writeln!(
        text,
        "A rate counts as the higher one, or as equal, if it is no more than 5 % below.\n"
    )?;
    writeln!(text, "| the paper says | holds | exceptions |\n|---|---|---|")?;
    for Ordering { says, cases } in all_orderings(results) {
        let wrong: Vec<String> = cases
            .iter()
            .filter(|(_, less, more)| less > more)
            .map(|(what, less, more)| format!("{what}: {less:.2} against {more:.2}"))
            .collect();
        let holds = cases.len() - wrong.len();
        let shown = wrong.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
        let more = match wrong.len() {
            0..=4 => String::new(),
            n => format!("; and {} more", n - 4),
        };
        writeln!(text, "| {says} | {holds} of {} | {shown}{more} |", cases.len())?;
    }
    Ok(())
}

fn all_orderings(results: &Results<'_>) -> Vec<Ordering> {
    let dictionaries: Vec<&str> = results.dictionaries.iter().map(String::as_str).collect();
    let rlz = ["rlz-uv 0", "rlz-pv 0", "rlz-zz 9", "rlz-zzz 9"];
    let mut orderings: Vec<Ordering> = Vec::new();
    let mut add = |says, cases: Vec<Option<Case>>| {
        orderings.push(Ordering { says, cases: cases.into_iter().flatten().collect() });
    };
    // Sizes of a and b, and rates with some room for noise.
    let sizes = |what: String, a: Option<f64>, b: Option<f64>| Some((what, a?, b?));
    let slower = |what: String, a: Option<f64>, b: Option<f64>| Some((what, a? * 0.95, b?));
    let each = |methods: &[&'static str], case: &dyn Fn(&str, &str, &str) -> Option<Case>| {
        let mut cases = Vec::new();
        for method in methods {
            for block in BLOCKS {
                cases.extend(dictionaries.iter().map(|d| case(method, block, d)));
            }
        }
        cases
    };
    let mut cases = Vec::new();
    for method in rlz {
        for block in BLOCKS {
            for pair in dictionaries.windows(2) {
                let size = |d| results.percent(method, block, Some(d));
                let what = format!("{method} {block}, {} and {}", pair[1], pair[0]);
                cases.push(sizes(what, size(pair[1]), size(pair[0])));
            }
        }
    }
    add("a larger dictionary compresses better", cases);
    let pairs = [("64K", "16K"), ("256K", "64K")];
    let all: Vec<(&str, Option<&str>)> = [("lz4 1", None), ("zlib 9", None)]
        .into_iter()
        .chain(rlz.into_iter().flat_map(|m| dictionaries.iter().map(move |d| (m, Some(*d)))))
        .collect();
    let by_block = |mode: Option<Mode>, longer_is_faster: bool| {
        let mut cases = Vec::new();
        for (method, dictionary) in &all {
            for (long, short) in pairs {
                let what =
                    format!("{method} {}, {long} and {short}", dictionary.unwrap_or_default());
                cases.push(match mode {
                    None => {
                        let size = |block| results.percent(method, block, *dictionary);
                        sizes(what, size(long), size(short))
                    }
                    Some(mode) => {
                        let rate = |block| results.rate(method, block, *dictionary, mode);
                        match longer_is_faster {
                            true => slower(what, rate(short), rate(long)),
                            false => slower(what, rate(long), rate(short)),
                        }
                    }
                });
            }
        }
        cases
    };
    add("longer blocks compress better", by_block(None, true));
    add("longer blocks are faster in FULL", by_block(Some(Mode::Full), true));
    add("longer blocks are slower in RANDOM", by_block(Some(Mode::Random), false));
    add(
        "every compressed method gives more than 10,000 pieces a second in FULL",
        all.iter()
            .flat_map(|&(method, d)| BLOCKS.map(|block| (method, d, block)))
            .map(|(method, d, block)| {
                let what = format!("{method} {block} {}", d.unwrap_or_default());
                slower(what, Some(10_000.0), results.rate(method, block, d, Mode::Full))
            })
            .collect(),
    );
    let full = |faster: &'static str, slow: &'static str, mode: Mode| {
        each(&[faster], &|method, block, d| {
            let own = |m: &str| if m.starts_with("rlz") { Some(d) } else { None };
            let rate = |m: &str| results.rate(m, block, own(m), mode);
            slower(format!("{slow} and {method}, {block} {d}"), rate(slow), rate(method))
        })
    };
    add("rlz-uv is faster than rlz-zz in FULL", full("rlz-uv 0", "rlz-zz 9", Mode::Full));
    add("rlz-pv is faster than rlz-zz in FULL", full("rlz-pv 0", "rlz-zz 9", Mode::Full));
    add("lz4 is faster than zlib in FULL", full("lz4 1", "zlib 9", Mode::Full));
    add(
        "rlz-pv is as fast as rlz-uv (bit-wise integers cost nothing)",
        full("rlz-pv 0", "rlz-uv 0", Mode::Random),
    );
    let smaller = |small: &'static str, large: &'static str| {
        each(&[small], &|method, block, d| {
            let own = |m: &str| {
                let has = m.starts_with("rlz") || m.contains("primed");
                has.then_some(d)
            };
            let size = |m: &str| results.percent(m, block, own(m));
            sizes(format!("{method} and {large}, {block} {d}"), size(method), size(large))
        })
    };
    add("rlz-pv is smaller than rlz-uv", smaller("rlz-pv 0", "rlz-uv 0"));
    add("rlz-zz is smaller than rlz-pv", smaller("rlz-zz 9", "rlz-pv 0"));
    add("rlz-zz is smaller than zlib", smaller("rlz-zz 9", "zlib 9"));
    add("rlz-zzz is smaller than rlz-zz", smaller("rlz-zzz 9", "rlz-zz 9"));
    add("primed rlz-zz is smaller than rlz-zz", smaller("rlz-zz-primed 9", "rlz-zz 9"));
    add("primed zlib is smaller than zlib", smaller("zlib-primed 9", "zlib 9"));
    add(
        "priming with the neighbourhood is smaller than with the first region",
        smaller("zlib-primed 9", "zlib-primed-first 9"),
    );
    let gain = |small: &str, large: &str, block: &str, d: &str| {
        let own = |m: &str| (m.starts_with("rlz") || m.contains("primed")).then_some(d);
        let (a, b) =
            (results.percent(small, block, own(small)), results.percent(large, block, own(large)));
        Some(b? - a?)
    };
    let shrinking = |small: &'static str, large: &'static str| {
        let mut cases = Vec::new();
        for d in &dictionaries {
            for (long, short) in pairs {
                let of = |block| gain(small, large, block, d);
                cases.push(sizes(format!("{long} and {short}, {d}"), of(long), of(short)));
            }
        }
        cases
    };
    add("priming zlib gains less with longer blocks", shrinking("zlib-primed 9", "zlib 9"));
    add("priming rlz-zz gains less with longer blocks", shrinking("rlz-zz-primed 9", "rlz-zz 9"));
    let mut cases = Vec::new();
    for block in BLOCKS {
        for pair in dictionaries.windows(2) {
            let of = |d| gain("rlz-zzz 9", "rlz-zz 9", block, d);
            let what = format!("{block}, {} and {}", pair[1], pair[0]);
            cases.push(sizes(what, of(pair[1]), of(pair[0])));
        }
    }
    add("three streams gain less with a larger dictionary", cases);
    add("priming rlz-zz costs some speed", full("rlz-zz 9", "rlz-zz-primed 9", Mode::Random));
    add("rlz-zz is faster than zlib in RANDOM", full("rlz-zz 9", "zlib 9", Mode::Random));
    orderings
}
