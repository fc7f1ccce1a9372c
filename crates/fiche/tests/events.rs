//! Events come back to the bit, one by one as all together, and what is damaged never passes for whole.

use std::sync::Arc;

use fiche::events::{
    Access, Batch, Column, Count, Event, Field, Layout, Number, Options, Reader, Role, Schema,
    Type, Writer,
};
use fiche::testing::Random;
use fiche::{Error, FileSource};
use proptest::prelude::*;

const NUMBERS: [Number; 12] = [
    Number::Bool,
    Number::U8,
    Number::U16,
    Number::U32,
    Number::U64,
    Number::I8,
    Number::I16,
    Number::I32,
    Number::I64,
    Number::F16,
    Number::F32,
    Number::F64,
];

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        8 => (0usize..12).prop_map(|i| Type::Number(NUMBERS[i])),
        1 => Just(Type::Text),
        1 => Just(Type::Bytes),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(Type::list),
            inner.clone().prop_map(Type::optional),
            (inner.clone(), 1u32..5).prop_map(|(what, len)| what.array(len)),
            proptest::collection::vec(inner, 0..4).prop_map(|all| Type::Record(fields(all))),
        ]
    })
}

fn fields(types: Vec<Type>) -> Vec<Field> {
    types.into_iter().enumerate().map(|(i, what)| Field::new(format!("f{i}"), what)).collect()
}

/// Values of many a kind: few, many, near one another, the same as before or as those of another column.
fn values(random: &mut Random, number: Number, count: usize, others: &[Vec<u8>]) -> Vec<u8> {
    let width = number.width();
    let same = |other: &&Vec<u8>| other.len() == count * width && count > 0;
    let (like, base) = (random.below(11), random.number());
    if let (0, Some(other)) = (like, others.iter().rev().find(same))
        && number != Number::Bool
    {
        return other.clone();
    }
    let float = |value: f64| match number {
        Number::F32 => (value as f32).to_le_bytes().to_vec(),
        Number::F64 => value.to_le_bytes().to_vec(),
        _ => (value as i64).to_le_bytes()[..width].to_vec(),
    };
    let mut out: Vec<u8> = Vec::new();
    for i in 0..count {
        let before = out.len().checked_sub(width).map(|at| out[at..].to_vec());
        let value = match (like, before) {
            (1, _) => base.to_le_bytes()[..width].to_vec(),
            (2, Some(before)) if random.below(4) > 0 => before,
            (3, _) => (base >> 20).wrapping_add(i as u64 * 3).to_le_bytes()[..width].to_vec(),
            (4, _) => random.below(5).to_le_bytes()[..width].to_vec(),
            (5, _) => float(random.below(100_000) as f64 / 1000.0),
            (6, _) => float(f64::from(random.below(1 << 24) as f32 / 77.0)),
            (7, _) if random.below(3) > 0 => float(0.0),
            (8, _) => (random.number() << 11).to_le_bytes()[..width].to_vec(),
            (9, _) => [f64::NAN, -0.0, f64::INFINITY, f64::MIN_POSITIVE / 8.0, -1.5]
                [random.below(5) as usize]
                .to_le_bytes()[..width]
                .to_vec(),
            _ => random.number().to_le_bytes()[..width].to_vec(),
        };
        out.extend(value);
    }
    if number == Number::Bool {
        out.iter_mut().for_each(|byte| *byte &= 1);
    }
    out
}

/// Events of a schema, of which lists are short.
fn batch(schema: &Schema, events: usize, random: &mut Random) -> Batch {
    let mut batch = Batch::new(schema).unwrap();
    batch.set_len(events);
    let layout = batch.layout().clone();
    let mut items = vec![0; layout.levels().len()];
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut level = 0;
    for (i, column) in layout.columns().iter().enumerate() {
        // Levels come behind what counts them.
        while level < items.len() && level <= column.level {
            items[level] = items_of(&layout, level, &items, &all, events);
            level += 1;
        }
        let count = items[column.level];
        let bytes = match column.role {
            Role::Counts => (0..count)
                .flat_map(|_| {
                    let most = if random.below(20) == 0 { 30 } else { 4 };
                    (random.below(most) as u32).to_le_bytes()
                })
                .collect(),
            _ => values(random, column.number, count, &all),
        };
        batch.put_bytes(i, &bytes).unwrap();
        all.push(bytes);
    }
    batch.check().unwrap();
    batch
}

fn items_of(
    layout: &Layout,
    level: usize,
    items: &[usize],
    all: &[Vec<u8>],
    events: usize,
) -> usize {
    match layout.levels()[level].count {
        Count::Events => events,
        Count::Fixed(len) => items[layout.levels()[level].parent.unwrap()] * len as usize,
        Count::Column(counts) => {
            let width = layout.columns()[counts].number.width();
            all[counts].chunks(width).map(count_of).sum()
        }
    }
}

/// A number of items, little-endian.
fn count_of(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte))
}

/// The events of a range, by a way of its own: item by item from the front.
fn slice(batch: &Batch, from: usize, to: usize) -> Vec<Vec<u8>> {
    let layout = batch.layout();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for level in layout.levels() {
        let above = level.parent.map_or((0, 0), |parent| ranges[parent]);
        ranges.push(match level.count {
            Count::Events => (from, to),
            Count::Fixed(len) => (above.0 * len as usize, above.1 * len as usize),
            Count::Column(counts) => {
                let width = layout.columns()[counts].number.width();
                let counts: Vec<usize> = batch.bytes(counts).chunks(width).map(count_of).collect();
                (counts[..above.0].iter().sum(), counts[..above.1].iter().sum())
            }
        });
    }
    let column = |(i, column): (usize, &Column)| {
        let (from, to) = ranges[column.level];
        let width = column.number.width();
        batch.bytes(i)[from * width..to * width].to_vec()
    };
    layout.columns().iter().enumerate().map(column).collect()
}

/// The columns of an event as bytes.
fn columns_of(event: &Event) -> Vec<Vec<u8>> {
    let columns = event.layout().unwrap().columns().iter().enumerate();
    let bytes = |(i, column): (usize, &Column)| {
        let of = |bits: u64| bits.to_le_bytes()[..column.number.width()].to_vec();
        event.bits(i).iter().flat_map(of).collect()
    };
    columns.map(bytes).collect()
}

fn columns(batch: &Batch) -> Vec<Vec<u8>> {
    (0..batch.layout().columns().len()).map(|column| batch.bytes(column).to_vec()).collect()
}

fn write(schema: &Schema, batches: &[Batch], options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), schema.clone(), options).unwrap();
    batches.iter().for_each(|batch| writer.extend(batch).unwrap());
    writer.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 4000 }))]

    #[test]
    fn what_is_written_is_read_in_every_way(
        types in proptest::collection::vec(any_type(), 0..7),
        events in prop_oneof![Just(0usize), 1usize..5, 1usize..400],
        packet in prop_oneof![Just(0usize), 1usize..70],
        access in 0usize..3,
        seed in any::<u64>(),
    ) {
        let schema = Schema::new(fields(types)).unwrap();
        let mut random = Random(seed);
        let all = batch(&schema, events, &mut random);
        let access = [Access::Event, Access::Block, Access::Scan][access];
        check_all_ways(&schema, &all, packet, access, &mut random);
    }
}

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
fn text_schema() -> Schema {
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

fn texts(events: usize, random: &mut Random) -> Batch {
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

/// Writes a batch, and reads it in each way there is.
fn check_all_ways(
    schema: &Schema,
    all: &Batch,
    packet: usize,
    access: Access,
    random: &mut Random,
) {
    let events = all.len();
    let mut options = Options::default().access(access).threads(1 + random.below(3) as usize);
    if packet > 0 {
        options = options.packet(packet);
    }
    let file = write(schema, std::slice::from_ref(all), options.clone());
    assert!(file == write(schema, std::slice::from_ref(all), options.threads(1)));
    assert!(
        file.len() <= all.size() + all.size() / 1000 + 4096,
        "{} of {}",
        file.len(),
        all.size()
    );
    let reader = Reader::open(Arc::new(file)).unwrap();
    assert_eq!(reader.schema(), schema);
    assert_eq!(reader.len(), events as u64);
    let back = reader.read(0..events as u64, None).unwrap();
    assert_eq!(back.len(), events);
    assert!(columns(&back) == columns(all));
    for _ in 0..20 {
        let from = random.below(events as u64 + 1);
        let to = from + random.below(events as u64 - from + 1);
        let some = reader.read(from..to, None).unwrap();
        assert!(columns(&some) == slice(all, from as usize, to as usize));
    }
    if events == 0 {
        return;
    }
    let numbers: Vec<u64> = (0..30).map(|_| random.below(events as u64)).collect();
    let taken = reader.take(&numbers, None).unwrap();
    let mut expected = vec![Vec::new(); back.layout().columns().len()];
    for &number in &numbers {
        let one = columns_of(&reader.event(number).unwrap());
        assert!(one == slice(all, number as usize, number as usize + 1));
        expected.iter_mut().zip(one).for_each(|(all, one)| all.extend(one));
    }
    assert!(columns(&taken) == expected);
    // Some fields only: the others have nothing.
    let some: Vec<usize> = (0..schema.fields.len()).filter(|_| random.below(2) == 0).collect();
    let names: Vec<&str> = some.iter().map(|&i| schema.fields[i].name.as_str()).collect();
    let chosen = reader.select(&names).unwrap();
    let part = reader.read(0..events as u64, Some(&chosen)).unwrap();
    let wanted: Vec<usize> = some.iter().flat_map(|&i| back.layout().columns_of(i)).collect();
    for column in 0..back.layout().columns().len() {
        let is_wanted = wanted.contains(&column);
        assert_eq!(part.bytes(column), if is_wanted { all.bytes(column) } else { &[] });
    }
    let taken = reader.take(&numbers, Some(&chosen)).unwrap();
    for &column in &wanted {
        assert!(taken.bytes(column) == expected[column]);
    }
}

fn tracks() -> Schema {
    Schema::new(vec![
        Field::new("run", Number::U32),
        Field::new("pt", Type::from(Number::F32).list()),
        Field::new("charge", Type::from(Number::I8).list()),
        Field::new("weight", Number::F64),
        Field::new("name", Type::Text),
    ])
    .unwrap()
}

/// Events as an experiment has them; some columns hardly change, lists share their counts.
fn events(random: &mut Random, count: usize) -> Batch {
    let mut batch = Batch::new(&tracks()).unwrap();
    for i in 0..count {
        batch.put(0, &[300 + i as u32 / 500]).unwrap();
        let tracks = random.below(4) as usize;
        for (counts, items) in [(1, 2), (3, 4)] {
            batch.put(counts, &[tracks as u32]).unwrap();
            for _ in 0..tracks {
                match items {
                    2 => batch.put(items, &[random.below(1 << 20) as f32 / 64.0]).unwrap(),
                    _ => batch.put(items, &[if random.below(2) == 0 { -1i8 } else { 1 }]).unwrap(),
                }
            }
        }
        batch.put(5, &[if i % 7 == 0 { 1.0 } else { 0.25 }]).unwrap();
        batch.put_texts(6, &[["muon", "jet", "photon"][random.below(3) as usize]]).unwrap();
    }
    batch
}

/// Sections of models.
fn models(file: &[u8]) -> usize {
    file.windows(5).filter(|bytes| *bytes == [0x9E, 0xF1, 0xC4, 0xE5, 2]).count()
}

#[test]
fn segments_that_are_alike_share_a_model() {
    let mut random = Random(3);
    let batches: Vec<Batch> = (0..6).map(|_| events(&mut random, 4000)).collect();
    let small = Options::default().segment(64 << 10);
    let file = write(&tracks(), &batches, small);
    let whole = write(&tracks(), &batches, Options::default());
    assert!(
        (file.len() as f64) < whole.len() as f64 * 1.02 + 2048.0,
        "{} {}",
        file.len(),
        whole.len()
    );
    // Every model but one is left out.
    assert!(models(&file) <= 2, "{} models", models(&file));
    let reader = Reader::open(Arc::new(file)).unwrap();
    let mut at = 0;
    for batch in &batches {
        let back = reader.read(at..at + 4000, None).unwrap();
        assert!(columns(&back) == columns(batch));
        at += 4000;
    }
    // Across their borders, in any order.
    let numbers: Vec<u64> = (0..500).map(|_| random.below(24_000)).collect();
    let taken = reader.take(&numbers, None).unwrap();
    let runs: Vec<u32> = taken.values::<u32>(0).collect();
    for (number, run) in numbers.iter().zip(runs) {
        assert_eq!(run, 300 + (number % 4000) as u32 / 500);
    }
}

#[test]
fn what_changes_gets_a_model_of_its_own() {
    let schema =
        Schema::new(vec![Field::new("x", Number::I64), Field::new("y", Number::I64)]).unwrap();
    let mut random = Random(4);
    let mut writer =
        Writer::new(Vec::new(), schema.clone(), Options::default().segment(64 << 10)).unwrap();
    let mut expected = (Vec::new(), Vec::new());
    for round in 0..5 {
        let mut batch = Batch::new(&schema).unwrap();
        // The same at first, near one another then, and last anything.
        let x: Vec<i64> = (0..5000)
            .map(|i| [7, i, random.number() as i64][(round as usize / 2).min(2)])
            .collect();
        let y: Vec<i64> = x.iter().map(|x| x ^ 1).collect();
        batch.put(0, &x).unwrap();
        batch.put(1, &y).unwrap();
        writer.extend(&batch).unwrap();
        expected.0.extend(x);
        expected.1.extend(y);
    }
    let file = writer.finish().unwrap();
    assert_eq!(models(&file), 3);
    let reader = Reader::open(Arc::new(file)).unwrap();
    let back = reader.read(0..25_000, None).unwrap();
    assert!(back.values::<i64>(0).eq(expected.0) && back.values::<i64>(1).eq(expected.1));
}

#[test]
fn files_are_read_as_memory_is_from_many_threads() {
    let all = events(&mut Random(5), 5000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let out = write(&tracks(), std::slice::from_ref(&all), Options::default());
    std::fs::write(file.path(), &out).unwrap();
    let reader = Reader::open(Arc::new(FileSource::open(file.path()).unwrap())).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (reader, all) = (reader.clone(), &all);
            scope.spawn(move || {
                let (mut random, mut one) = (Random(seed), Event::default());
                for _ in 0..300 {
                    let number = random.below(5000);
                    reader.event_into(number, &mut one).unwrap();
                    assert!(columns_of(&one) == slice(all, number as usize, number as usize + 1));
                }
            });
        }
    });
}

#[test]
fn many_events_are_decoded_by_several_threads() {
    let all = events(&mut Random(19), 120_000);
    let file = write(&tracks(), std::slice::from_ref(&all), Options::default());
    assert!(file.len() > 600_000, "{} bytes: one thread only", file.len());
    let mut damaged = file.clone();
    damaged[500_000] ^= 1;
    let mut random = Random(20);
    let numbers: Vec<u64> = (0..100_000).map(|_| random.below(120_000)).collect();
    let one = Reader::open(Arc::new(file.clone())).unwrap();
    let taken = one.take(&numbers, None).unwrap();
    for threads in [2, 3, 7] {
        let reader = Reader::open(Arc::new(file.clone())).unwrap().threads(threads);
        assert!(columns(&reader.read(0..120_000, None).unwrap()) == columns(&all));
        let some = reader.read(777..119_001, None).unwrap();
        assert!(columns(&some) == slice(&all, 777, 119_001));
        assert!(columns(&reader.take(&numbers, None).unwrap()) == columns(&taken));
        let reader = Reader::open(Arc::new(damaged.clone())).unwrap().threads(threads);
        assert!(matches!(reader.read(0..120_000, None), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn columns_that_are_the_same_or_known_take_next_to_nothing() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let schema =
        Schema::new(names.iter().map(|name| Field::new(*name, Number::I32)).collect()).unwrap();
    let mut random = Random(6);
    let values: Vec<i32> = (0..100_000).map(|_| (random.number() >> 33) as i32).collect();
    let mut batch = Batch::new(&schema).unwrap();
    (0..6).for_each(|column| batch.put(column, &values).unwrap());
    let file = write(&schema, &[batch], Options::default());
    // 31 bits of each, and less than a tenth of a byte beside.
    let each = file.len() as f64 / 100_000.0;
    assert!(each < 31.0 / 8.0 + 0.12, "{each} bytes");
    // What repeats itself is told once.
    let schema = Schema::new(vec![Field::new("x", Type::from(Number::F32).array(1000))]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    for _ in 0..200 {
        let values: Vec<f32> = (0..1000u32)
            .scan(0.0, |x, i| {
                if i % 6 == 0 {
                    *x = random.below(1 << 24) as f32 / 16_777_216.0;
                }
                Some(*x)
            })
            .collect();
        batch.put(0, &values).unwrap();
    }
    batch.set_len(200);
    let file = write(&schema, &[batch], Options::default());
    assert!(file.len() < 200 * 4000 / 7, "{} bytes", file.len());
}

#[test]
fn what_does_not_agree_is_told_by_its_name() {
    let mut batch = events(&mut Random(7), 10);
    batch.put(4, &[1i8]).unwrap();
    let mut writer = Writer::new(Vec::new(), tracks(), Options::default()).unwrap();
    let told = |result: fiche::Result<()>| match result {
        Err(Error::Invalid { what }) => what.to_string(),
        other => panic!("{other:?}"),
    };
    let what = told(writer.extend(&batch));
    assert!(what.contains("charge[]"), "{what}");
    // Nothing of it was taken.
    assert!(writer.is_empty());
    let other = Schema::new(vec![Field::new("run", Number::U64)]).unwrap();
    assert!(told(writer.extend(&Batch::new(&other).unwrap())).contains("another schema"));
    assert!(told(Batch::new(&other).unwrap().put(0, &[1u32])).contains("U64"));
    assert!(told(Batch::new(&tracks()).unwrap().put_bytes(0, &[1, 2, 3])).contains("run"));
    let bools = Schema::new(vec![Field::new("b", Number::Bool)]).unwrap();
    assert!(told(Batch::new(&bools).unwrap().put_bytes(0, &[2])).contains("Bool"));
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    assert!(matches!(reader.event(0), Err(Error::OutOfBounds { .. })));
    assert!(matches!(reader.take(&[0], None), Err(Error::OutOfBounds { .. })));
    assert!(matches!(reader.event(u64::MAX), Err(Error::OutOfBounds { .. })));
    assert!(told(reader.select(&["px"]).map(drop)).contains("px"));
}

#[test]
fn schemas_that_make_no_sense_are_refused() {
    let x = || Field::new("x", Number::U8);
    let deep = (0..20).fold(Type::from(Number::U8), |what, _| what.list());
    for fields in [
        vec![x(), x()],
        vec![Field::new("x", Type::from(Number::U8).array(0))],
        vec![Field::new("deep", deep)],
        (0..70_000).map(|i| Field::new(i.to_string(), Number::U8)).collect(),
    ] {
        assert!(matches!(Schema::new(fields), Err(Error::Invalid { .. })));
    }
    for options in [Options::default().packet(0), Options::default().segment(1)] {
        let writer = Writer::new(Vec::new(), tracks(), options);
        assert!(matches!(writer.map(drop), Err(Error::Invalid { .. })));
    }
}

#[test]
fn events_without_columns_are_counted() {
    for fields in [vec![], vec![Field::new("none", Type::Record(vec![]))]] {
        let schema = Schema::new(fields).unwrap();
        let mut batch = Batch::new(&schema).unwrap();
        batch.set_len(77);
        let reader = Reader::open(Arc::new(write(&schema, &[batch], Options::default()))).unwrap();
        assert_eq!(reader.len(), 77);
        assert_eq!(reader.read(3..70, None).unwrap().len(), 67);
    }
}

#[test]
fn an_event_of_too_many_values_is_refused() {
    let schema = Schema::new(vec![Field::new("x", Type::from(Number::Bool).list())]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put(0, &[(1u32 << 24) + 1]).unwrap();
    batch.put_bytes(1, &vec![0; (1 << 24) + 1]).unwrap();
    let mut writer = Writer::new(Vec::new(), schema, Options::default()).unwrap();
    assert!(matches!(writer.extend(&batch), Err(Error::Limit { .. })));
    // It is as if it had not come: what was there before is written.
    let mut small = Batch::new(writer.schema()).unwrap();
    small.put(0, &[1u32]).unwrap();
    small.put(1, &[true]).unwrap();
    writer.extend(&small).unwrap();
    assert!(matches!(writer.extend(&batch), Err(Error::Limit { .. })));
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    assert!(columns_of(&reader.event(0).unwrap()) == columns(&small) && reader.len() == 1);
}

#[test]
fn no_flip_is_read_as_something_else() {
    let all = events(&mut Random(8), 300);
    let file = write(&tracks(), std::slice::from_ref(&all), Options::default());
    let mut harmless = 0;
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 1 << (at % 8);
        let back = Reader::open(Arc::new(bad)).and_then(|reader| reader.read(0..300, None));
        match back {
            Ok(back) => {
                assert!(columns(&back) == columns(&all), "byte {at}");
                harmless += 1;
            }
            Err(Error::Corrupt { .. } | Error::Unsupported { .. } | Error::OutOfBounds { .. }) => {}
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    // The header's guard, which matters only while something is appended.
    assert!(harmless <= 12, "{harmless}");
    for len in 0..file.len() {
        assert!(Reader::open(Arc::new(file[..len].to_vec())).is_err(), "{len}");
    }
}

#[test]
fn an_event_that_is_damaged_is_told_and_others_are_read() {
    let all = events(&mut Random(9), 5000);
    let mut file = write(&tracks(), std::slice::from_ref(&all), Options::default());
    let middle = file.len() / 2;
    file[middle] ^= 1;
    let reader = Reader::open(Arc::new(file)).unwrap();
    let mut lost = 0;
    for number in 0..5000 {
        match reader.event(number) {
            Ok(event) => {
                assert!(columns_of(&event) == slice(&all, number as usize, number as usize + 1))
            }
            Err(error) => {
                assert!(error.to_string().contains(&format!("event {number}")), "{error}");
                lost += 1;
            }
        }
    }
    // No more than a block of 4 KiB.
    assert!((1..1000).contains(&lost), "{lost}");
}

#[test]
fn columns_are_those_of_their_schema() {
    let file = write(&tracks(), &[events(&mut Random(10), 50)], Options::default());
    let reader = Reader::open(Arc::new(file)).unwrap();
    let schema = Schema::new(vec![Field::new("run", Number::U8)]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put(0, &[1u8; 60]).unwrap();
    let other =
        Reader::open(Arc::new(write(&schema, &[batch.clone()], Options::default()))).unwrap();
    let columns = other.select(&["run"]).unwrap();
    assert!(matches!(reader.read(0..5, Some(&columns)), Err(Error::Invalid { .. })));
    assert!(matches!(reader.take(&[5], Some(&columns)), Err(Error::Invalid { .. })));
    let all = reader.select(&["run"]).unwrap();
    assert!(matches!(reader.read_into(0..5, &all, &mut batch), Err(Error::Invalid { .. })));
    // No column of counts, and the last one.
    let mut batch = Batch::new(&tracks()).unwrap();
    for column in [0, 1, 7] {
        assert!(matches!(batch.put_texts(column, &["x"]), Err(Error::Invalid { .. })), "{column}");
    }
}

#[test]
fn blocks_of_one_file_are_not_those_of_the_next() {
    let schema = Schema::new(vec![Field::new("x", Number::U64)]).unwrap();
    for seed in 0..20 {
        let mut random = Random(seed);
        let values: Vec<u64> = (0..600).map(|_| random.number()).collect();
        let mut batch = Batch::new(&schema).unwrap();
        batch.put(0, &values).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), write(&schema, &[batch], Options::default())).unwrap();
        // Where the one before was in memory, this one is.
        let reader = Reader::open(Arc::new(FileSource::open(file.path()).unwrap())).unwrap();
        assert_eq!(reader.event(3).unwrap().values::<u64>(0).next(), Some(values[3]));
    }
}

#[test]
fn packets_have_no_more_values_than_may_be() {
    let fields = (0..300).map(|i| Field::new(i.to_string(), Number::U8)).collect();
    let schema = Schema::new(fields).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    (0..300).for_each(|column| batch.put(column, &vec![column as u8; 70_000]).unwrap());
    let file = write(&schema, &[batch], Options::default().packet(65_536));
    let reader = Reader::open(Arc::new(file)).unwrap();
    assert_eq!(reader.event(69_999).unwrap().values::<u8>(299).next(), Some(43));
}

#[test]
fn events_may_be_much_larger_than_a_block() {
    let schema =
        Schema::new(vec![Field::new("image", Type::Bytes), Field::new("label", Number::U8)])
            .unwrap();
    let mut random = Random(11);
    let mut batch = Batch::new(&schema).unwrap();
    let images: Vec<Vec<u8>> = (0..6).map(|i| random.bytes(300_000 * i)).collect();
    batch.put_texts(0, &images).unwrap();
    batch.put(2, &[0u8, 1, 2, 3, 4, 5]).unwrap();
    let file = write(&schema, &[batch], Options::default());
    let all: usize = images.iter().map(Vec::len).sum();
    assert!(file.len() <= all + all / 1000 + 4096, "{} of {all}", file.len());
    let reader = Reader::open(Arc::new(file)).unwrap();
    for i in [5, 0, 3] {
        assert!(reader.event(i).unwrap().values::<u8>(1).eq(images[i as usize].iter().copied()));
    }
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

#[test]
fn events_are_added_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let mut random = Random(15);
    let batches: Vec<Batch> = (0..6).map(|_| events(&mut random, 3000)).collect();
    let block = Options::default().access(Access::Block).packet(100);
    std::fs::write(&path, write(&tracks(), &batches[..1], block)).unwrap();
    let open = || Reader::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
    let first = open();
    for batch in &batches[1..] {
        let mut writer = Writer::append(&path, Options::default()).unwrap();
        assert_eq!(writer.schema(), &tracks());
        writer.extend(batch).unwrap();
        writer.finish().unwrap().finish().unwrap();
    }
    // Who opened it before sees what was there.
    assert_eq!(first.len(), 3000);
    assert!(columns(&first.read(0..3000, None).unwrap()) == columns(&batches[0]));
    let reader = open();
    assert_eq!(reader.len(), 18_000);
    for (i, batch) in batches.iter().enumerate() {
        let from = 3000 * i as u64;
        assert!(columns(&reader.read(from..from + 3000, None).unwrap()) == columns(batch));
    }
    // By models that were there, and not much more than all at once.
    let file = std::fs::read(&path).unwrap();
    assert!(models(&file) <= 2, "{} models", models(&file));
    let whole = write(&tracks(), &batches, Options::default().access(Access::Block).packet(100));
    assert!(file.len() < whole.len() + whole.len() / 50 + 4096, "{} {}", file.len(), whole.len());
    // Other schemas are refused, and what is no file of events, and nothing is changed by that.
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    let other = Schema::new(vec![Field::new("run", Number::U64)]).unwrap();
    assert!(matches!(writer.extend(&Batch::new(&other).unwrap()), Err(Error::Invalid { .. })));
    assert!(matches!(Writer::append(&path, Options::default()).map(drop), Err(Error::Busy { .. })));
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), file);
    let text = folder.path().join("text");
    std::fs::write(&text, "a text").unwrap();
    assert!(Writer::append(&text, Options::default()).is_err());
    assert_eq!(std::fs::read(&text).unwrap(), b"a text");
}

#[test]
fn a_cut_off_append_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let mut random = Random(16);
    let (old, new) = (events(&mut random, 300), events(&mut random, 200));
    let before = write(&tracks(), std::slice::from_ref(&old), Options::default());
    std::fs::write(&path, &before).unwrap();
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    // What a crash leaves, with the guard that is set while it lasts.
    let guarded = std::fs::read(&path).unwrap();
    assert!(guarded.len() >= before.len() && guarded[..32] != before[..32]);
    writer.finish().unwrap().finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(whole[..32], before[..32]);
    for cut in before.len()..whole.len() {
        let crashed = [&guarded[..32], &whole[32..cut]].concat();
        let reader = Reader::open(Arc::new(crashed)).unwrap();
        assert_eq!(reader.len(), 300, "{cut}");
    }
    // With its trailer it was not cut off: damage of the new footer is told.
    let mut bad = [&guarded[..32], &whole[32..]].concat();
    assert_eq!(Reader::open(Arc::new(bad.clone())).unwrap().len(), 500);
    let at = bad.len() - 40;
    bad[at] ^= 1;
    assert!(matches!(Reader::open(Arc::new(bad)).map(drop), Err(Error::Corrupt { .. })));
    // The next to append begins where the old file ends.
    let cut = before.len() + (whole.len() - before.len()) / 2;
    std::fs::write(&path, [&guarded[..32], &whole[32..cut]].concat()).unwrap();
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    writer.finish().unwrap().finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == whole);
    // And one that is given up leaves the file as it was.
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    drop(writer.finish().unwrap());
    assert!(std::fs::read(&path).unwrap() == whole);
}

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

/// Numbers of every width and kind, coded in every way.
fn numbers() -> (Schema, Batch) {
    let fields = vec![
        Field::new("constant", Number::I16),
        Field::new("again", Number::I16),
        Field::new("counter", Number::U64),
        Field::new("flag", Number::Bool),
        Field::new("decimal", Number::F64),
        Field::new("price", Number::F32),
        Field::new("step", Number::F64),
        Field::new("narrow", Number::F64),
        Field::new("any", Number::U64),
        Field::new("bits", Number::F32),
        Field::new("half", Number::F16),
        Field::new("tracks", Type::Record(fields(vec![Type::from(Number::F32).list()]))),
        Field::new("charge", Type::from(Number::I8).list()),
        Field::new("grid", Type::from(Number::I32).array(3)),
        Field::new("nested", Type::from(Number::U16).list().list()),
        Field::new("maybe", Type::from(Number::I64).optional()),
        Field::new("small", Number::U8),
        Field::new("xor", Number::U32),
    ];
    let schema = Schema::new(fields).unwrap();
    let layout = schema.layout().unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let at = |path: &str, role: Role| layout.find(path, role).unwrap();
    let value = |path: &str| at(path, Role::Values);
    let mut random = Random(21);
    for i in 0..700u64 {
        for name in ["constant", "again"] {
            batch.put(value(name), &[-7i16]).unwrap();
        }
        batch.put(value("counter"), &[(1 << 40) + i * 3]).unwrap();
        batch.put(value("flag"), &[i % 5 == 0]).unwrap();
        batch.put(value("decimal"), &[(random.below(9000) as f64 - 4000.0) / 1000.0]).unwrap();
        batch.put(value("price"), &[random.below(500) as f32 / 100.0]).unwrap();
        let step = -3.0 + random.below(1 << 16) as f64 * (6.0 / 65_536.0);
        batch.put(value("step"), &[step]).unwrap();
        batch.put(value("narrow"), &[f64::from(1.0 / (1 + random.below(5000)) as f32)]).unwrap();
        batch.put(value("any"), &[random.number()]).unwrap();
        let bits = [f32::NAN.to_bits() | 77, 0x8000_0000, f32::INFINITY.to_bits(), 1];
        let bits = [f32::from_bits(bits[i as usize % 4])];
        batch.put(value("bits"), &bits).unwrap();
        batch.put_bytes(value("half"), &(random.below(1 << 16) as u16).to_le_bytes()).unwrap();
        let tracks = random.below(4) as u32;
        for name in ["tracks.f0", "charge"] {
            batch.put(at(name, Role::Counts), &[tracks]).unwrap();
        }
        for _ in 0..tracks {
            batch.put(value("tracks.f0[]"), &[random.below(1 << 12) as f32 / 8.0]).unwrap();
            batch.put(value("charge[]"), &[[-1i8, 1][random.below(2) as usize]]).unwrap();
        }
        batch.put(value("grid[]"), &[i as i32 / 10, -(i as i32), 5]).unwrap();
        let lists = random.below(3) as u32;
        batch.put(at("nested", Role::Counts), &[lists]).unwrap();
        for _ in 0..lists {
            let items = random.below(5) as u32;
            batch.put(at("nested[]", Role::Counts), &[items]).unwrap();
            for item in 0..items {
                batch.put(value("nested[][]"), &[item as u16 * 1000]).unwrap();
            }
        }
        let is_there = random.below(3) > 0;
        batch.put(at("maybe", Role::Presence), &[is_there]).unwrap();
        if is_there {
            batch.put(value("maybe?"), &[random.below(40) as i64 - 20]).unwrap();
        }
        batch.put(value("small"), &[(i / 9) as u8]).unwrap();
        batch.put(value("xor"), &[0xABCD_0000u32 + (1 << (i % 16))]).unwrap();
    }
    batch.check().unwrap();
    (schema, batch)
}

/// Lists with the same counts that are not neighbours, values that were there before, and walks with jumps.
fn walks() -> (Schema, Batch) {
    let fields = vec![
        Field::new("pt", Type::from(Number::F32).list()),
        Field::new("met", Number::F64),
        Field::new("deep", Type::from(Number::Bool).list().list()),
        Field::new("charge", Type::from(Number::I8).list()),
        Field::new("copy", Number::F64),
        Field::new("stays", Number::U64),
        Field::new("walk", Number::F64),
        Field::new("jumps", Number::I32),
        Field::new("seldom", Number::Bool),
    ];
    let schema = Schema::new(fields).unwrap();
    let layout = schema.layout().unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let at = |path: &str, role: Role| layout.find(path, role).unwrap();
    let value = |path: &str| at(path, Role::Values);
    let mut random = Random(24);
    let (mut stays, mut walk, mut jumps) = (0u64, 5000i64, 1 << 20);
    for i in 0..900u64 {
        let tracks = random.below(9) as u32;
        batch.put(at("pt", Role::Counts), &[tracks]).unwrap();
        batch.put(at("charge", Role::Counts), &[tracks]).unwrap();
        for track in 0..tracks {
            batch
                .put(value("pt[]"), &[(8 - track) as f32 * 16.0 + random.below(64) as f32])
                .unwrap();
            batch.put(value("charge[]"), &[track as i8]).unwrap();
        }
        let met = random.below(1 << 53) as f64 / 1e9;
        batch.put(value("met"), &[met]).unwrap();
        let lists = random.below(3) as u32;
        batch.put(at("deep", Role::Counts), &[lists]).unwrap();
        for _ in 0..lists {
            batch.put(at("deep[]", Role::Counts), &[2u32]).unwrap();
            batch.put(value("deep[][]"), &[true, random.below(9) == 0]).unwrap();
        }
        let copy = if random.below(3) > 0 { met } else { random.below(1 << 53) as f64 };
        batch.put(value("copy"), &[copy]).unwrap();
        if random.below(4) == 0 {
            stays = random.number();
        }
        batch.put(value("stays"), &[stays]).unwrap();
        walk += random.below(7) as i64 - 3;
        batch.put(value("walk"), &[walk as f64 / 100.0]).unwrap();
        jumps += if i == 100 { 1 << 29 } else { random.below(16) as i32 };
        batch.put(value("jumps"), &[jumps]).unwrap();
        batch.put(value("seldom"), &[i == 450]).unwrap();
    }
    batch.check().unwrap();
    (schema, batch)
}

/// What the columns of a file are: how many values each has, and their digest.
fn manifest(reader: &Reader) -> String {
    let all = reader.read(0..reader.len(), None).unwrap();
    let mut out = format!("events {}\n", reader.len());
    for (i, column) in all.layout().columns().iter().enumerate() {
        let role = match column.role {
            Role::Values => "values",
            Role::Counts => "counts",
            Role::Presence => "presence",
        };
        let (values, digest) = (all.values_in(i), fiche::Digest::of(all.bytes(i)));
        out += &format!("{} {role} {:?} {values} {digest}\n", column.path, column.number);
    }
    out
}

#[test]
fn golden_events_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/events");
    let all: [(&str, &dyn Fn() -> Vec<u8>); 6] = [
        ("numbers", &|| {
            let (schema, all) = numbers();
            write(&schema, &[all], Options::default())
        }),
        ("scan", &|| {
            let (schema, all) = numbers();
            write(&schema, &[all], Options::default().access(Access::Scan))
        }),
        ("walks", &|| {
            let (schema, all) = walks();
            write(&schema, &[all], Options::default().packet(12))
        }),
        ("texts", &|| write(&text_schema(), &[texts(120, &mut Random(22))], Options::default())),
        ("keys", &|| {
            let mut random = Random(23);
            let batches: Vec<Batch> = (0..3).map(|_| events(&mut random, 400)).collect();
            let options = Options::default().segment(64 << 10).key(["name", "run"]);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("keys");
            std::fs::write(&path, write(&tracks(), &batches[..1], options)).unwrap();
            for batch in &batches[1..] {
                let mut writer = Writer::append(&path, Options::default()).unwrap();
                writer.extend(batch).unwrap();
                writer.finish().unwrap().finish().unwrap();
            }
            std::fs::read(&path).unwrap()
        }),
        ("nothing", &|| write(&tracks(), &[], Options::default())),
    ];
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, make) in &all {
            let path = folder.join(format!("{name}.fiche"));
            if !path.exists() {
                let file = make();
                let reader = Reader::open(Arc::new(file.clone())).unwrap();
                std::fs::write(path.with_extension("columns"), manifest(&reader)).unwrap();
                std::fs::write(path, file).unwrap();
            }
        }
    }
    for (name, make) in &all {
        let path = folder.join(format!("{name}.fiche"));
        let expected = std::fs::read_to_string(path.with_extension("columns")).unwrap();
        let reader = Reader::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
        assert_eq!(manifest(&reader), expected, "{name}");
        // What is written today may have other bytes, but is the same.
        let now = Reader::open(Arc::new(make())).unwrap();
        assert_eq!(manifest(&now), expected, "{name} as it is written today");
        assert_eq!((now.schema(), now.key()), (reader.schema(), reader.key()), "{name}");
    }
}

#[test]
fn texts_that_are_the_same_or_empty_are_added_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let names = ["one", "two", "none"];
    let schema =
        Schema::new(names.iter().map(|name| Field::new(*name, Type::Text)).collect()).unwrap();
    let mut random = Random(25);
    let mut lines = Vec::new();
    let mut batch = |count: usize| {
        let mut batch = Batch::new(&schema).unwrap();
        for _ in 0..count {
            let line = format!("user {} opened file {}", random.below(9), random.below(400));
            batch.put_texts(0, &[&line]).unwrap();
            batch.put_texts(2, &[&line]).unwrap();
            batch.put_texts(4, &[""]).unwrap();
            lines.push(line);
        }
        batch
    };
    std::fs::write(&path, write(&schema, &[batch(40_000)], Options::default())).unwrap();
    for _ in 0..3 {
        let mut writer = Writer::append(&path, Options::default()).unwrap();
        writer.extend(&batch(2000)).unwrap();
        writer.finish().unwrap().finish().unwrap();
    }
    let file = std::fs::read(&path).unwrap();
    // Both columns are told by the same words still.
    assert_eq!(models(&file), 1);
    let reader = Reader::open(Arc::new(file)).unwrap();
    for number in (0..46_000).step_by(777) {
        let event = reader.event(number).unwrap();
        for column in [1, 3] {
            assert!(event.values::<u8>(column).eq(lines[number as usize].bytes()));
        }
        assert_eq!(event.bits(5).len(), 0);
    }
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
