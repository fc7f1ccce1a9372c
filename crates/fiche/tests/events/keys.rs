//! Events found by their keys, and what a report says of columns.

use crate::texts::{text_schema, texts};
use crate::*;

#[test]
fn events_are_found_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.fiche");
    let schema = Schema::new(vec![
        Field::new("weight", Number::F32),
        Field::new("run", Number::U32),
        Field::new("stream", Type::Text),
        Field::new("event", Number::U64),
        Field::new("pt", Type::from(Number::F32).list()),
    ])
    .unwrap();
    let mut random = Random(17);
    let mut all: Vec<(u32, &str, u64)> = Vec::new();
    let batch = |random: &mut Random, all: &mut Vec<(u32, &str, u64)>, count: usize| {
        let mut batch = Batch::new(&schema).unwrap();
        for _ in 0..count {
            // Some keys are there twice, or more often.
            let key = (
                random.below(5) as u32,
                ["muon", "", "jet"][random.below(3) as usize],
                random.below(2000),
            );
            batch.put(0, &[0.5f32]).unwrap();
            batch.put(1, &[key.0]).unwrap();
            batch.put_texts(2, &[key.1]).unwrap();
            batch.put(4, &[key.2]).unwrap();
            batch.put(5, &[0u32]).unwrap();
            all.push(key);
        }
        batch
    };
    let options = Options::default().segment(64 << 10).key(["event", "run", "stream"]);
    let mut writer =
        Writer::new(std::fs::File::create(&path).unwrap(), schema.clone(), options).unwrap();
    for _ in 0..5 {
        writer.extend(&batch(&mut random, &mut all, 4000)).unwrap();
    }
    writer.finish().unwrap();
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&batch(&mut random, &mut all, 1)).unwrap();
    writer.finish().unwrap().finish().unwrap();
    let file = std::fs::read(&path).unwrap();
    let reader = Reader::open(Arc::new(file.clone())).unwrap();
    assert_eq!(reader.key(), ["run", "stream", "event"]);
    let numbers = |is: &dyn Fn(&(u32, &str, u64)) -> bool| -> Vec<u64> {
        (0..all.len()).filter(|&i| is(&all[i])).map(|i| i as u64).collect()
    };
    let mut several = 0;
    for i in (0..all.len()).step_by(501).chain([all.len() - 1]) {
        let key = all[i];
        let (run, event) = (key.0.to_le_bytes(), key.2.to_le_bytes());
        let parts = [("stream", key.1.as_bytes()), ("run", &run[..]), ("event", &event[..])];
        let found = reader.find(&parts).unwrap();
        assert_eq!(found, numbers(&|other| *other == key));
        several += usize::from(found.len() > 1);
        // By other fields, too.
        assert_eq!(reader.find(&parts[2..]).unwrap(), numbers(&|other| other.2 == key.2));
    }
    assert!(several > 3, "{several}");
    for run in 0..200u32 {
        let none = [("stream", &b"none"[..]), ("run", &run.to_le_bytes()), ("event", &[1; 8])];
        assert!(reader.find(&none).unwrap().is_empty());
    }
    for (wrong, what) in [
        (&[("run", &[1u8][..])][..], "run"),
        (&[("pt", &[0; 4])], "pt"),
        (&[("no", &[])], "no"),
        (&[("run", &[0; 4]), ("run", &[0; 4])], "twice"),
    ] {
        let error = reader.find(wrong).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    for key in [["pt", "run"], ["run", "run"], ["run", "no"]] {
        let options = Options::default().key(key);
        assert!(Writer::new(Vec::new(), schema.clone(), options).is_err(), "{key:?}");
    }
    // Damage of keys is told when they are asked for, and hurts nothing else.
    let at = file.windows(5).position(|bytes| *bytes == [0x9E, 0xF1, 0xC4, 0xE5, 13]).unwrap();
    let mut bad = file;
    bad[at + 20] ^= 1;
    let reader = Reader::open(Arc::new(bad)).unwrap();
    assert_eq!(reader.event(77).unwrap().values::<u64>(4).next(), Some(all[77].2));
    let key = [("stream", &b"jet"[..]), ("run", &[0; 4]), ("event", &[0; 8])];
    assert!(matches!(reader.find(&key), Err(Error::Corrupt { what: "key page", .. })));
}

#[test]
fn a_report_says_where_bytes_are() {
    let mut random = Random(18);
    let all = texts(3000, &mut random);
    let file =
        write(&text_schema(), std::slice::from_ref(&all), Options::default().segment(64 << 10));
    let reader = Reader::open(Arc::new(file.clone())).unwrap();
    let mut events = 0;
    let report = reader.report(|more| {
        events += more;
        Ok(())
    });
    let report = report.unwrap();
    assert_eq!((events, report.stored_bytes), (3000, file.len() as u64));
    let bytes: u64 = report.columns.iter().map(|column| column.bytes).sum();
    assert_eq!(bytes, all.size() as u64);
    // What columns take, models, and what packets, blocks and pages need is all there is.
    let values = report.columns.iter().map(|column| column.bits).sum::<f64>() / 8.0;
    let told = values + report.model_bytes as f64;
    let len = file.len() as f64;
    assert!(told < len && told > 0.9 * len, "{values} and {} of {len}", report.model_bytes);
    let coding = |path: &str| {
        let mut columns = report.columns.iter().filter(|column| column.path == path);
        columns.next().unwrap().coding.clone()
    };
    assert_eq!(coding("again"), "the same as the counts of line");
    assert_eq!(coding("again[]"), "the same as line[]");
    assert!(coding("line[]").contains(" words, "), "{}", coding("line[]"));
    assert!(coding("id").contains("bins"), "{}", coding("id"));
}

#[test]
fn keys_are_found_in_large_packets() {
    let schema = Schema::new(vec![Field::new("run", Number::U32)]).unwrap();
    let runs: Vec<u32> = (0..200_000).map(|i| i % 50).collect();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put(0, &runs).unwrap();
    let options = Options::default().access(Access::Scan).key(["run"]);
    let reader = Reader::open(Arc::new(write(&schema, &[batch], options))).unwrap();
    let expected: Vec<u64> = (0..4000).map(|i| i * 50 + 7).collect();
    assert_eq!(reader.find(&[("run", &7u32.to_le_bytes())]).unwrap(), expected);
    // Some of each packet, in any order.
    let mut random = Random(26);
    let numbers: Vec<u64> = (0..300).map(|_| random.below(200_000)).collect();
    let taken = reader.take(&numbers, None).unwrap();
    assert!(taken.values::<u32>(0).eq(numbers.iter().map(|number| (number % 50) as u32)));
}
