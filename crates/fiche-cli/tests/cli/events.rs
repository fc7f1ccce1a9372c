//! Events as JSON lines.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::Place;

const LINES: &str = r#"{"a":1,"b":"x","c":[1,2.5],"d":{"e":true,"f":null},"m":3,"o":[null,1]}
{"a":-5,"b":"é\n","c":[],"d":{"e":false,"f":[{"g":1}]},"m":"three","o":[]}

{"a":9007199254740993,"b":"","c":[0.1],"m":[1,{"z":null}],"o":[7],"a.b":18446744073709551615}
"#;

fn values(lines: &[u8]) -> Vec<Value> {
    let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Without what is null, which stands for what is not there; and whole numbers as such.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), bare(value)))
            .collect(),
        Value::Array(items) => items.iter().map(bare).collect(),
        // Whole numbers among others come back as 1.0.
        Value::Number(number) if number.is_f64() && number.as_f64().unwrap().fract() == 0.0 => {
            json!(number.as_f64().unwrap() as i64)
        }
        other => other.clone(),
    }
}

#[test]
fn json_lines_come_back() {
    let place = Place::new();
    fs::write(place.path("in.jsonl"), LINES).unwrap();
    let written = values(LINES.as_bytes());
    for access in ["event", "block", "scan"] {
        place.ok(&["events", "pack", "in.jsonl", "-o", "out", "--force", "--access", access]);
        let back = values(&place.ok(&["events", "cat", "out"]));
        assert_eq!(
            back.iter().map(bare).collect::<Vec<_>>(),
            written.iter().map(bare).collect::<Vec<_>>()
        );
        // What is not there is null.
        assert_eq!(back[0]["a.b"], Value::Null);
    }
    let types = String::from_utf8(place.ok(&["events", "ls", "out"])).unwrap();
    let types: Vec<&str> = types.lines().map(|line| line[3..].trim()).collect();
    let record = "?{e: bool, f: option[var * {g: int64}]}";
    let list = "var * ?int64";
    assert_eq!(types, ["int64", "string", "var * float64", record, "string", list, "?uint64"]);
    let report: Value =
        serde_json::from_slice(&place.ok(&["events", "ls", "out", "--json"])).unwrap();
    assert_eq!((&report["events"], &report["fields"][0]["type"]), (&json!(3), &json!("int64")));

    let some = values(&place.ok(&["events", "take", "out", "2", "0", "2", "--fields", "m,a"]));
    assert_eq!(some[0], json!({"a": 9_007_199_254_740_993_i64, "m": [1, {"z": null}]}));
    assert_eq!((some.len(), &some[0], &some[1]["a"]), (3, &some[2], &json!(1)));
    let output = place.pipe(&["events", "take", "out", "-", "--fields", "a"], b"1 0\n2\n");
    let numbers: Vec<Value> = values(&output.stdout).into_iter().map(|v| v["a"].clone()).collect();
    assert_eq!(numbers, [json!(-5), json!(1), json!(9_007_199_254_740_993_i64)]);
    let range = values(&place.ok(&["events", "cat", "out", "--range", "1+1", "--fields", "b"]));
    assert_eq!(range, [json!({"b": "é\n"})]);
    assert!(place.ok(&["events", "cat", "out", "--range", "3+0"]).is_empty());
}

#[test]
fn events_are_added_and_found() {
    let place = Place::new();
    let lines = |from: u32, to: u32| -> String {
        let line =
            |i: u32| format!("{{\"run\":{},\"host\":\"node-{}\",\"x\":{i}.5}}\n", i / 10, i % 7);
        (from..to).map(line).collect()
    };
    fs::write(place.path("in"), lines(0, 1000)).unwrap();
    place.ok(&["events", "pack", "in", "-o", "out", "--key", "host,run"]);
    let output = place.pipe(&["events", "append", "out", "-"], lines(1000, 1500).as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(values(&place.ok(&["events", "cat", "out"])), values(lines(0, 1500).as_bytes()));
    let numbers = |args: &[&str]| -> Vec<u32> {
        let found = place.ok(&[&["events", "find", "out", "--numbers"], args].concat());
        String::from_utf8(found).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    };
    assert_eq!(numbers(&["run=123", "host=node-4"]), [1236]);
    assert_eq!(numbers(&["x=1499.5"]), [1499]);
    assert!(numbers(&["host=node"]).is_empty());
    let found = place.ok(&["events", "find", "out", "host=node-0", "run=0", "--fields", "x"]);
    assert_eq!(found, b"{\"x\":0.5}\n{\"x\":7.5}\n");
    let info = String::from_utf8(place.ok(&["events", "info", "out"])).unwrap();
    assert!(info.contains("1500 events in 2 segments") && info.contains("found by run, host"));
    let report: Value =
        serde_json::from_slice(&place.ok(&["events", "info", "out", "--json"])).unwrap();
    let columns = report["columns"].as_array().unwrap();
    assert_eq!((columns.len(), &columns[1]["of"]), (4, &json!("counts")));
    assert_eq!((&report["events"], &report["key"]), (&json!(1500), &json!(["run", "host"])));
    // What goes wrong changes nothing.
    let file = fs::read(place.path("out")).unwrap();
    for (line, told) in [
        (
            "{\"run\":1,\"host\":\"a\",\"x\":1}\n{\"run\":\"a\"}",
            "line 2: run: \"a\" is not of its type",
        ),
        ("{\"run\":1}", "host: null is not"),
        ("{\"run\":1,\"host\":\"a\",\"x\":1,\"y\":1}", "there is no field \"y\""),
    ] {
        let output = place.pipe(&["events", "append", "out", "-"], line.as_bytes());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(told), "{error}");
        assert!(fs::read(place.path("out")).unwrap() == file);
    }
    for (args, told) in [
        (&["run=x"][..], "run=x"),
        (&["run"], "NAME=VALUE"),
        (&["none=1"], "no field"),
        (&["run=1", "run=2"], "twice"),
    ] {
        let error = place.fails(2, &[&["events", "find", "out"], args].concat());
        assert!(error.contains(told), "{error}");
    }
    place.fails(2, &["events", "pack", "in", "-o", "other", "--key", "none"]);
    place.fails(5, &["events", "append", "other", "in"]);
    assert_eq!(place.files(), ["in", "out"]);
    // All of it is verified, and what is damaged is named.
    let said = String::from_utf8(place.ok(&["verify", "out"])).unwrap();
    assert!(said.contains("out: all right: 1500 events"), "{said}");
    let mut damaged = file.clone();
    damaged[40] ^= 1;
    fs::write(place.path("damaged"), &damaged).unwrap();
    fs::write(place.path("cut"), &file[..file.len() - 1]).unwrap();
    let error = place.fails(3, &["verify", "out", "damaged", "cut"]);
    assert!(error.contains("damaged") && error.contains("are lost"), "{error}");
    assert!(error.contains("cut"), "{error}");
    let output = place.run(&["verify", "damaged", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = report["damage"][0]["events"].as_array().unwrap();
    let lost = lost[1].as_u64().unwrap() - lost[0].as_u64().unwrap();
    assert_eq!(report["events"].as_u64().unwrap() + lost, 1500);
    assert!(output.status.code() == Some(3) && report["damage"].as_array().unwrap().len() == 1);
    fs::remove_file(place.path("damaged")).unwrap();
    fs::remove_file(place.path("cut")).unwrap();
    // What knows archives says what this is.
    let error = place.fails(2, &["info", "out"]);
    assert!(error.contains("a file of events: `fiche events` knows those"), "{error}");
}

#[test]
fn what_each_way_to_pack_gives_is_shown() {
    let place = Place::new();
    let line = |i: u32| format!("{{\"run\":{},\"x\":[{i}.5,{}]}}\n", i / 10, i * 7 % 100);
    fs::write(place.path("in"), (0..3000).map(line).collect::<String>()).unwrap();
    let packed = place.ok(&["events", "pack", "in", "-o", "out", "--frontier", "--json"]);
    let report: Value = serde_json::from_slice(&packed).unwrap();
    assert_eq!(report["frontier"]["events"], json!(3000));
    let ways = report["frontier"]["ways"].as_array().unwrap();
    assert_eq!(
        ways.iter().map(|way| &way["access"]).collect::<Vec<_>>(),
        ["event", "block", "scan"]
    );
    // What it was packed for takes what the file does; the others are not larger.
    let stored = |i: usize| ways[i]["stored_bytes"].as_u64().unwrap();
    assert_eq!(report["stored_bytes"], ways[0]["stored_bytes"]);
    assert!(stored(1) <= stored(0) && stored(2) <= stored(0));
    let info = String::from_utf8(place.ok(&["events", "info", "out", "--frontier"])).unwrap();
    assert!(info.starts_with("3000 events, ") && info.contains("\nscan "), "{info}");
    fs::write(place.path("none"), "").unwrap();
    place.ok(&["events", "pack", "none", "-o", "empty", "--types", "{x: int8}", "--frontier"]);
    let error = place.fails(2, &["events", "pack", "in", "-o", "-", "--frontier"]);
    assert!(error.contains("name a file"), "{error}");
}

#[test]
fn types_may_be_said_and_are_held_to() {
    let place = Place::new();
    let pack = |types: &str, line: &str| {
        let args = ["events", "pack", "-", "-o", "out", "--force", "--types", types];
        let output = place.pipe(&args, line.as_bytes());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let types = "{x: uint8, y: 2 * float32, z: bytes, t: ?string}";
    let line = r#"{"x":255,"y":[0.1,-2],"z":"AP8=","t":null}"#;
    assert_eq!(pack(types, line).0, Some(0));
    let back = values(&place.ok(&["events", "cat", "out"]));
    assert_eq!(back, [json!({"x": 255, "y": [0.1, -2.0], "z": "AP8=", "t": null})]);
    fs::remove_file(place.path("out")).unwrap();
    for (types, line, told) in [
        ("{x: uint8}", r#"{"x":256}"#, "line 1: x: 256 is not of its type"),
        ("{x: uint8}", "{\"x\":1}\n{\"x\":1.5}", "line 2: x: 1.5 is not of its type"),
        ("{x: uint8}", r#"{"x":1,"y":2}"#, "there is no field \"y\""),
        ("{x: uint8, y: int8}", r#"{"x":1}"#, "y: null is not of its type"),
        ("{x: 2 * int8}", r#"{"x":[1]}"#, "x: [1] is not of its type"),
        ("{x: float32}", r#"{"x":1e300}"#, "x: 1e+300 is not of its type"),
        ("{x: float32}", r#"{"x":16777217}"#, "x: 16777217 is not of its type"),
        ("{x: float64}", r#"{"x":9007199254740993}"#, "x: 9007199254740993 is not of its type"),
        (
            "{x: float64}",
            r#"{"y":"\"7","x":[18446744073709551616]}"#,
            "18446744073709551616 has more",
        ),
        ("{x: bytes}", r#"{"x":"?"}"#, "x: this is not base64"),
        ("{x: uint9}", r#"{"x":1}"#, "is no type, from byte 4 on"),
        ("uint8", r#"{"x":1}"#, "{name: type, ...}"),
    ] {
        let (code, error) = pack(types, line);
        assert!(code == Some(2) && error.contains(told), "{types} {line}: {error}");
    }
    assert!(place.files().is_empty());
}

#[test]
fn what_cannot_be_is_told() {
    let place = Place::new();
    for (lines, told) in [
        ("[1]\n", "line 1: there is no object"),
        ("{\"a\":1}\n{\"a\":", "line 2: EOF while parsing"),
        ("{\"a\":1}\nx", "line 2: expected value"),
    ] {
        fs::write(place.path("in"), lines).unwrap();
        let error = place.fails(2, &["events", "pack", "in", "-o", "out"]);
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(place.files(), ["in"]);
    place.fails(5, &["events", "pack", "none", "-o", "out"]);
    place.fails(2, &["events", "pack", "in", "-o", "out", "--access", "any"]);
    // No events, no fields.
    fs::write(place.path("in"), "").unwrap();
    place.ok(&["events", "pack", "in", "-o", "out"]);
    place.fails(5, &["events", "pack", "in", "-o", "out"]);
    assert!(
        place.ok(&["events", "cat", "out"]).is_empty()
            && place.ok(&["events", "ls", "out"]).is_empty()
    );
    fs::write(place.path("in"), "{}\n{}\n").unwrap();
    place.ok(&["events", "pack", "in", "-o", "out", "--force"]);
    assert_eq!(place.ok(&["events", "cat", "out"]), b"{}\n{}\n");

    fs::write(place.path("in"), LINES).unwrap();
    place.ok(&["events", "pack", "in", "-o", "out", "--force"]);
    for args in [
        &["cat", "out", "--range", "2+2"][..],
        &["cat", "out", "--range", "2"],
        &["take", "out", "3"],
        &["take", "out", "x"],
        &["cat", "out", "--fields", "q"],
    ] {
        place.fails(2, &[&["events"], args].concat());
    }
    let mut file = fs::read(place.path("out")).unwrap();
    fs::write(place.path("cut"), &file[..file.len() / 2]).unwrap();
    place.fails(3, &["events", "cat", "cut"]);
    let middle = file.len() / 2;
    file[middle] ^= 1;
    fs::write(place.path("damaged"), &file).unwrap();
    place.fails(3, &["events", "cat", "damaged"]);
    place.fails(2, &["events", "ls", "in"]);
}

#[test]
fn files_of_root_and_parquet_are_left_to_python() {
    let place = Place::new();
    fs::write(place.path("python"), "#!/bin/sh\necho \"$@\"; exit 7\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path("python"), executable).unwrap();
    let run = |python: &str| {
        let args = ["events", "root", "repack", "x.root:Events", "-o", "out", "--verify", "--help"];
        place.command(&args).env("FICHE_PYTHON", place.path(python)).output().unwrap()
    };
    let output = run("python");
    let told = "-m fiche.events.root repack x.root:Events -o out --verify --help\n";
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), told.as_bytes()));
    assert_eq!(run("none").status.code(), Some(5));
    let args = ["events", "parquet", "pack", "x", "-o", "y"];
    let output = place.command(&args).env("FICHE_PYTHON", place.path("python")).output().unwrap();
    assert_eq!(output.stdout, b"-m fiche.events.parquet pack x -o y\n");
}

#[test]
fn who_is_interrupted_leaves_nothing() {
    let place = Place::new();
    let lines: String = (0..300_000).map(|i| format!("{{\"a\":{i},\"b\":\"{i:x}\"}}\n")).collect();
    fs::write(place.path("in"), lines).unwrap();
    for wait in [20, 150, 400] {
        let mut child =
            place.command(&["events", "pack", "in", "-o", "out", "-q"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let code = child.wait().unwrap().code();
        if signal.is_err() {
            println!("SKIP: kill");
            return;
        }
        // It may have been faster.
        if code == Some(0) {
            fs::remove_file(place.path("out")).unwrap();
        } else {
            assert_eq!(code, Some(130));
        }
        assert_eq!(place.files(), ["in"]);
    }
}
