//! Advice, as people ask for it.

use std::fs;

use crate::command::text;
use crate::place::Place;

#[test]
fn advice_is_what_packing_then_gives() {
    let place = Place::new();
    fs::create_dir(place.path("in")).unwrap();
    for i in 0..30 {
        fs::write(place.path(&format!("in/{i}")), text(50_000, i % 25)).unwrap();
    }
    let ways = ["--methods", "hybrid,zstd:19,rlz-pv,lz4", "--blocks", "4K,16K", "--dicts", "64K"];
    let prices = ["--price-gb-month", "0.02", "--reads", "100", "--price-core-hour", "1"];
    let asked = [&["advise", "in", "--json", "--svg", "plot.svg"], &ways[..], &prices].concat();
    let advice: serde_json::Value = serde_json::from_slice(&place.ok(&asked)).unwrap();
    let ways = advice["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 8);
    for way in ways {
        let options = way["options"].as_str().unwrap();
        let mut args = vec!["pack", "in", "-o", "x.fiche", "-f", "--json"];
        args.extend(options.split_whitespace());
        let packed: serde_json::Value = serde_json::from_slice(&place.ok(&args)).unwrap();
        let (told, came) =
            (way["stored_bytes"].as_f64().unwrap(), packed["stored_bytes"].as_f64().unwrap());
        // Five files equal others, and are stored once.
        assert!((told / came - 1.0).abs() < 0.01, "{options}: {told} and {came}");
        assert!(
            way["cost"].as_f64().unwrap() > 0.0 && way["reads_per_second"].as_f64().unwrap() > 1.0
        );
    }
    let recommended = |what: &str| {
        let is_it = |way: &&serde_json::Value| way["recommended"].to_string().contains(what);
        ways.iter().filter(is_it).count()
    };
    for what in ["small", "fast to read", "fast to write", "cheapest"] {
        assert_eq!(recommended(what), 1, "{what}");
    }
    let plot = fs::read_to_string(place.path("plot.svg")).unwrap();
    assert_eq!(plot.matches("<svg").count(), plot.matches("</svg>").count());
    assert!(plot.contains("zstd 19") && plot.contains("MB/s"), "{plot}");
    // For people, from a stream, in records.
    let lines =
        text(200_000, 3).iter().map(|&b| if b == b' ' { b'\n' } else { b }).collect::<Vec<_>>();
    let asked = ["advise", "-", "--methods", "hybrid:9,lz4", "--records", "lines", "--all", "-q"];
    let table = String::from_utf8(place.pipe(&asked, &lines).stdout).unwrap();
    assert!(table.contains("--level 9") && table.contains("small"), "{table}");
    assert_eq!(table.lines().count(), 5, "{table}");
    // Costs that are nearly all those of reads are told apart; a plot alone goes where the table would.
    let asked = ["advise", "in", "--methods", "lz4,zstd", "--blocks", "4K", "--all", "-q"];
    let prices = ["--price-read", "0.001", "--reads", "1000000", "--price-gb-month", "0.01"];
    let table = String::from_utf8(place.ok(&[&asked[..], &prices].concat())).unwrap();
    let costs: Vec<f64> = (table.lines().filter(|line| line.contains("%")))
        .map(|line| line.split_whitespace().skip_while(|&cell| cell != "s").nth(1).unwrap())
        .map(|cost| cost.parse().unwrap())
        .collect();
    assert!(costs.len() == 2 && 12_000.0 < costs[0] && costs[0] < costs[1], "{table}");
    let plot = place.ok(&[&asked[..], &["--svg", "-"]].concat());
    assert!(plot.starts_with(b"<svg") && plot.trim_ascii_end().ends_with(b"</svg>"));
    let ways = ["--methods", "hybrid", "--dicts", "none,auto,64M"];
    let table =
        String::from_utf8(place.ok(&[&["advise", "in", "--all", "-q"], &ways[..]].concat()));
    let table = table.unwrap();
    assert!(table.contains("--dict none") && table.contains("(none)"), "{table}");
    assert!(!table.contains("64M"), "no dictionary is longer than what it is of: {table}");
    // What cannot be measured.
    fs::write(place.path("empty"), "").unwrap();
    place.fails(2, &["advise", "empty"]);
    place.fails(5, &["advise", "nowhere"]);
    place.fails(5, &["advise", "in", "--svg", "plot.svg"]);
    for wrong in [
        &["--methods", "best"][..],
        &["--methods", "hybrid:12"],
        &["--blocks", "1"],
        &["--blocks", "0"],
        &["--months", "-1"],
        // Prices of nothing, and numbers without a price.
        &["--months", "12"],
        &["--reads", "100"],
        &["--price-read", "0.1"],
        &["--read", "0"],
        &["--read", "17M"],
        &["--dicts", "some"],
        &["--json", "--svg", "-"],
    ] {
        place.fails(2, &[&["advise", "in"], wrong].concat());
    }
}
