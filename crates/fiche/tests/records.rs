//! Records within a stream: what they cost, what finding one touches, and how they last
//! through appending, merging and damage.

use std::io::Write;
use std::sync::Arc;

use fiche::ReadAt;
use fiche::archive::{Entry, Kind, Options, Reader, Split, Writer, append, merge};
use fiche::testing::{Behind, Random};

fn options() -> Options {
    Options::default().block_len(1 << 10).threads(1)
}

fn lines(count: usize, seed: u64) -> String {
    let mut random = Random(seed);
    let line = |i| format!("{i} {}\n", "word ".repeat(random.below(20) as usize));
    (0..count).map(line).collect()
}

fn packed(split: &str, text: &str, options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let split: Split = split.parse().unwrap();
    writer.add_records(&split, &mut text.as_bytes(), &mut |_| Ok(())).unwrap();
    writer.finish().unwrap()
}

fn text_of(reader: &Reader, number: u64) -> String {
    let record = reader.record_at(number).unwrap();
    let mut bytes = vec![0; record.len() as usize];
    record.read_at(0, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn records_cost_at_most_three_bytes_beside_their_names() {
    let cost = |split: &str, text: &str, names: usize| {
        let reader = Reader::open(Arc::new(packed(split, text, Options::default()))).unwrap();
        let info = reader.info().unwrap();
        assert_eq!(info.records, text.lines().count() as u64);
        (info.record_bytes as f64 - names as f64) / info.records as f64
    };
    let text = lines(100_000, 1);
    assert!(cost("lines", &text, 0) < 1.5);
    assert!(cost("fixed:10", &"123456789\n".repeat(100_000), 0) < 0.2);
    // Names that tell nothing of one another: their bytes, and what it takes to sort them.
    let mut random = Random(2);
    let ids: Vec<String> =
        (0..100_000).map(|_| format!("{:012x}", random.number() >> 16)).collect();
    let json: String = ids.iter().map(|id| format!("{{\"id\":\"{id}\",\"x\":1}}\n")).collect();
    let cost = cost("json:id", &json, ids.len() * 12);
    assert!(cost <= 3.0, "{cost}");
}

#[test]
fn a_record_is_found_and_read_through_two_chapters_at_most() {
    let text = lines(300_000, 3);
    let file = packed("json:id", &text.replace("word", "w"), options());
    let named: String =
        (0..200_000u64).map(|i| format!("{{\"id\":\"{}\"}}\n", i * 7919 % 200_000)).collect();
    for file in [file, packed("json:id", &named, options())] {
        let source = Arc::new(Behind::new(file));
        let records = Reader::open(source.clone()).unwrap().records();
        for number in [0, records / 3, records - 1] {
            let reader = Reader::open(source.clone()).unwrap();
            let before = source.reads();
            let name = reader.entry(number).unwrap().name;
            // A level of nodes each for 256: three, and the page.
            assert!(source.reads() - before <= 4);
            let before = source.reads();
            text_of(&reader, number);
            // Two blocks in two chapters, and their tables.
            assert!(source.reads() - before <= 4, "{}", source.reads() - before);
            if !name.is_empty() {
                let reader = Reader::open(source.clone()).unwrap();
                let before = source.reads();
                assert_eq!(reader.find(&name).unwrap().unwrap().0, number);
                // Down one tree to the name, and down the other to the record.
                assert!(source.reads() - before <= 8);
            }
        }
    }
}

#[test]
fn names_that_share_beginnings_or_are_the_same_are_all_found() {
    let names: Vec<String> = (0..2_000)
        .map(|i: usize| match i % 5 {
            0 => "a".repeat(i % 300 + 1),
            1 => format!("same {}", i / 400),
            2 => format!("{}", i * 7919 % 2_000),
            3 => format!("http://example.org/{}/", i % 97),
            _ => String::new(),
        })
        .collect();
    let json: String = names.iter().map(|name| format!("{{\"id\":\"{name}\"}}\n")).collect();
    let reader = Reader::open(Arc::new(packed("json:id", &json, options()))).unwrap();
    for name in &names {
        let first = names.iter().position(|other| other == name).unwrap() as u64;
        let expected = (!name.is_empty()).then_some(first);
        assert_eq!(reader.find(name).unwrap().map(|(number, _)| number), expected, "{name:?}");
        for other in [format!("{name}!"), format!("!{name}"), format!("{name}/")] {
            let expected = names.iter().position(|n| *n == other).map(|i| i as u64);
            assert_eq!(reader.find(&other).unwrap().map(|(number, _)| number), expected);
        }
    }
    for prefix in ["a", "aaaaa", "same", "same 3", "http://example.org/9", "19", "x", ""] {
        let mut expected: Vec<(&str, u64)> = names
            .iter()
            .zip(0..)
            .filter(|(name, _)| !name.is_empty() && name.starts_with(prefix))
            .map(|(name, number)| (name.as_str(), number))
            .collect();
        expected.sort_unstable();
        let found: Vec<(Vec<u8>, u64)> = reader
            .prefix(prefix.as_bytes())
            .map(|item| item.map(|(number, entry)| (entry.name, number)).unwrap())
            .collect();
        let found: Vec<(&str, u64)> =
            found.iter().map(|(name, n)| (std::str::from_utf8(name).unwrap(), *n)).collect();
        assert_eq!(found, expected, "{prefix:?}");
    }
}

#[test]
fn records_last_through_appending_and_merging() {
    let json = |from: u64, to: u64| -> String {
        (from..to).map(|i| format!("{{\"id\":\"k{}\"}}\n", i * 7919 % 5_000)).collect()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), packed("json:id", &json(0, 900), options())).unwrap();
    append(file.path(), &options(), |writer| {
        let split = Split::Json("id".into());
        writer.add_records(&split, &mut json(900, 2_000).as_bytes(), &mut |_| Ok(()))?;
        let range = 0..writer.offset();
        writer.add_entry(Entry::new("k0", Kind::File).range(range)).map(drop)
    })
    .unwrap();
    let open = |bytes| Reader::open(Arc::new(bytes) as Arc<dyn ReadAt>).unwrap();
    let one = open(std::fs::read(file.path()).unwrap());
    let two = open(packed("json:id", &json(1_500, 3_000), options()));
    let both = open(merge(&[one.clone(), two], Vec::new(), &mut |_| Ok(())).unwrap());
    for reader in [&one, &both] {
        assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
        for i in [1, 899, 900, 1_499, 1_500, 1_999] {
            let name = format!("k{}", i * 7919 % 5_000);
            let (number, entry) = reader.find(&name).unwrap().unwrap();
            // Of what was merged, the later one is found.
            let expected = if i >= 1_500 && reader.records() > 2_001 { i + 501 } else { i };
            assert_eq!((number, entry.kind), (expected, Kind::Item), "{i}");
            assert_eq!(text_of(reader, number), format!("{{\"id\":\"{name}\"}}\n"));
        }
    }
    assert!(!one.is_stream() && !both.is_stream());
    assert!(open(packed("lines", "a\nb\n", options())).is_stream());
}

#[test]
fn aligned_blocks_end_where_lines_do() {
    let text = lines(20_000, 5);
    let file = packed("lines", &text, options().align_records(true));
    let source = Arc::new(Behind::new(file));
    let reader = Reader::open(source.clone()).unwrap();
    text_of(&reader, 0);
    for number in (1..20_000).step_by(97) {
        reader.entry(number).unwrap();
        let before = source.reads();
        text_of(&reader, number);
        assert!(source.reads() - before <= 1);
    }
}

#[test]
fn a_cut_archive_keeps_its_lines() {
    let text = lines(200_000, 6);
    let mut file = packed("lines", &text, options());
    file.truncate(file.len() * 2 / 3);
    let (reader, _) = Reader::recover(Arc::new(file)).unwrap();
    let expected: Vec<&str> = text.split_inclusive('\n').collect();
    assert!(reader.records() > 120_000);
    for number in (0..reader.records()).step_by(1_001) {
        assert_eq!(text_of(&reader, number), expected[number as usize]);
    }
    let mut content = vec![0; reader.len() as usize];
    reader.read_at(0, &mut content).unwrap();
    assert!(text.as_bytes().starts_with(&content));
}

#[test]
fn a_split_that_fails_says_where() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let mut refuse = |split: &str, bytes: &[u8]| {
        let split: Split = split.parse().unwrap();
        let mut bytes = bytes;
        writer.add_records(&split, &mut bytes, &mut |_| Ok(())).unwrap_err().to_string()
    };
    assert_eq!(refuse("warc", b"<html>"), "there is no WARC record at byte 0");
    assert_eq!(refuse("tar", &[b'x'; 600]), "there is no tar header at byte 0");
    // A gzipped file that was cut.
    let mut gzip = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3];
    gzip.write_all(b"no deflate").unwrap();
    assert!(!refuse("warc", &gzip).is_empty());
    let mut stop = |_| Err(fiche::Error::Poisoned);
    let stopped = writer.add_records(&Split::Lines, &mut b"a\n".as_slice(), &mut stop);
    assert!(matches!(stopped, Err(fiche::Error::Poisoned)));
    // Pieces of nothing would never end.
    let mut text = b"text".as_slice();
    let endless = writer.add_records(&Split::Fixed(0), &mut text, &mut |_| Ok(()));
    assert!(matches!(endless, Err(fiche::Error::Invalid { .. })));
}
