//! Texts: whatever they say comes back, and takes what it tells.

use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 100 } else { 2000 }))]

    #[test]
    fn texts_are_read_in_every_way(
        events in prop_oneof![Just(0usize), 1usize..5, 1usize..300],
        packet in prop_oneof![Just(0usize), 1usize..70],
        access in 0usize..3,
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let all = texts(events, &mut random);
        let access = [Access::Event, Access::Block, Access::Scan][access];
        check_all_ways(&text_schema(), &all, packet, access, &mut random);
    }
}

/// Columns of texts of every kind.
pub fn text_schema() -> Schema {
    Schema::new(vec![
        Field::new("line", Type::Text),
        Field::new("id", Number::U16),
        Field::new("again", Type::Text),
        Field::new("bytes", Type::Bytes),
        Field::new("tags", Type::Text.list()),
        Field::new("note", Type::Text.optional()),
        Field::new("codes", Type::from(Number::U8).list()),
        Field::new("pair", Type::Text.array(2)),
    ])
    .unwrap()
}

/// A text: of a few, like the one before, made of words, of anything, empty, long.
fn text(random: &mut Random, before: &str) -> String {
    let words = ["GET", "/index.html", "error", "user-", "HTTP/1.1", "404", "größer", "0x"];
    match random.below(12) {
        0 => String::new(),
        1 => before.to_owned(),
        2 => ["muon", "jet", "photon"][random.below(3) as usize].to_owned(),
        3 => {
            let cut = (0..=before.len()).rev().find(|&at| at < 30 && before.is_char_boundary(at));
            format!("{}{}", &before[..cut.unwrap_or(0)], random.below(100))
        }
        4 => (0..random.below(60)).map(|_| char::from(random.number() as u8)).collect(),
        5 => "so long, and over again; ".repeat(random.below(150) as usize),
        6 if random.below(20) == 0 => {
            (0..30_000).map(|_| char::from(b'a' + random.below(7) as u8)).collect()
        }
        _ => (0..random.below(9))
            .map(|_| match random.below(5) {
                0 => random.below(100_000).to_string(),
                _ => words[random.below(8) as usize].to_owned(),
            })
            .collect::<Vec<_>>()
            .join(" "),
    }
}

pub fn texts(events: usize, random: &mut Random) -> Batch {
    let mut batch = Batch::new(&text_schema()).unwrap();
    let mut before = [const { String::new() }; 8];
    for i in 0..events {
        let mut next = |column: usize, random: &mut Random| {
            before[column] = text(random, &before[column]);
            before[column].clone()
        };
        let line = next(0, random);
        batch.put_texts(0, &[&line]).unwrap();
        batch.put(2, &[i as u16]).unwrap();
        batch.put_texts(3, &[&line]).unwrap();
        let len = random.below(40) as usize * usize::from(i % 3 > 0);
        batch.put_texts(5, &[random.bytes(len)]).unwrap();
        let tags: Vec<String> = (0..random.below(4)).map(|_| next(4, random)).collect();
        batch.put(7, &[tags.len() as u32]).unwrap();
        batch.put_texts(8, &tags).unwrap();
        let is_noted = random.below(3) > 0;
        batch.put(10, &[is_noted]).unwrap();
        if is_noted {
            batch.put_texts(11, &[next(5, random)]).unwrap();
        }
        let codes = random.below(6) as usize;
        batch.put(13, &[codes as u32]).unwrap();
        batch.put_bytes(14, &b"abcabc"[..codes]).unwrap();
        batch.put_texts(15, &[next(6, random), next(7, random)]).unwrap();
    }
    batch.set_len(events);
    batch.check().unwrap();
    batch
}

#[test]
fn texts_take_what_they_tell() {
    let schema = Schema::new(vec![Field::new("line", Type::Text)]).unwrap();
    let mut random = Random(12);
    let hosts: Vec<String> =
        (0..50).map(|_| format!("10.{}.{}.1", random.below(256), random.below(256))).collect();
    let paths: Vec<String> =
        (0..300).map(|i| format!("/articles/{:x}/page-{i}.html", random.below(1 << 40))).collect();
    let lines: Vec<String> = (0..20_000)
        .map(|_| {
            let (host, path) = (random.below(50) as usize, random.below(300) as usize);
            format!("{} - - GET {} HTTP/1.1 200", hosts[host], paths[path])
        })
        .collect();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put_texts(0, &lines).unwrap();
    let file = write(&schema, &[batch], Options::default());
    // A host of 50 and a path of 300 are 14 bits; a packet, its block and the vocabulary are the rest.
    let each = file.len() as f64 / 20_000.0;
    assert!(each < 3.5, "{each} bytes of {}", lines[0].len());
    let reader = Reader::open(Arc::new(file)).unwrap();
    for number in (0..20_000).step_by(997) {
        let event = reader.event(number).unwrap();
        assert!(event.values::<u8>(1).eq(lines[number as usize].bytes()));
    }
}

#[test]
fn texts_of_another_kind_get_words_of_their_own() {
    let schema = Schema::new(vec![Field::new("line", Type::Text)]).unwrap();
    let mut random = Random(13);
    let mut texts = Vec::new();
    let mut writer =
        Writer::new(Vec::new(), schema.clone(), Options::default().segment(64 << 10)).unwrap();
    for round in 0..6 {
        let words: [&str; 3] = match round / 3 {
            0 => ["temperature ", "pressure ", "humidity "],
            _ => ["ACGT", "GGCA", "TTTT"],
        };
        let lines: Vec<String> =
            (0..2000).map(|_| (0..6).map(|_| words[random.below(3) as usize]).collect()).collect();
        let mut batch = Batch::new(&schema).unwrap();
        batch.put_texts(0, &lines).unwrap();
        writer.extend(&batch).unwrap();
        texts.extend(lines);
    }
    let file = writer.finish().unwrap();
    assert_eq!(models(&file), 2);
    let reader = Reader::open(Arc::new(file)).unwrap();
    for _ in 0..500 {
        let number = random.below(12_000);
        let event = reader.event(number).unwrap();
        assert!(event.values::<u8>(1).eq(texts[number as usize].bytes()), "{number}");
    }
}

#[test]
fn a_text_may_have_more_bytes_than_events_may_have_values() {
    let schema = Schema::new(vec![Field::new("raw", Type::Bytes)]).unwrap();
    let mut random = Random(14);
    let texts = [random.bytes((1 << 24) + 77), vec![7; 3 << 24], b"small".to_vec()];
    let mut batch = Batch::new(&schema).unwrap();
    batch.put_texts(0, &texts).unwrap();
    let file = write(&schema, &[batch], Options::default());
    assert!(file.len() < (1 << 24) + (1 << 16), "{} bytes", file.len());
    let reader = Reader::open(Arc::new(file)).unwrap();
    for (i, text) in texts.iter().enumerate() {
        let event = reader.event(i as u64).unwrap();
        assert!(event.values::<u8>(1).eq(text.iter().copied()), "{i}");
    }
}
