//! What packets, blocks and models are asked for: sizes, threads, damage, what cannot be.

use std::sync::Mutex;

use crate::*;

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
fn what_is_at_a_place_of_an_array_is_told_by_it() {
    let (schema, all) = golden::arrays();
    let file = write(&schema, std::slice::from_ref(&all), Options::default());
    let mut random = Random(29);
    check_all_ways(&schema, &all, 0, Access::Event, &mut random);
    check_all_ways(&schema, &all, 7, Access::Event, &mut random);
    // Of 300 constants nothing is left but the model; of others the bits of one of six.
    let reader = Reader::open(Arc::new(file.clone())).unwrap();
    let report = reader.report(|_| Ok(())).unwrap();
    assert!(report.columns[0].bits < 1.0, "{:?}", report.columns[0]);
    let values = report.columns[3].bytes as f64 / 2.0;
    let bits = report.columns[3].bits / values;
    assert!((2.5..2.8).contains(&bits), "{bits} bits for one of six");
    let coding = &report.columns[3].coding;
    assert!(coding.contains("differences from 20 places"), "{coding}");
    // Of each place one of three, which are others than those of the next.
    let (bits, coding) = (report.columns[4].bits / 6000.0, &report.columns[4].coding);
    assert!((1.5..1.7).contains(&bits), "{bits} bits for one of three");
    assert!(coding.contains("by its place of 12"), "{coding}");
}

#[test]
fn what_arrays_have_in_common_by_chance_is_not_told() {
    // Letters of which one is most, and four are a number: places of an array are alike.
    let letters = Field::new("letters", Type::from(Number::F32).array(1000));
    // And any numbers, of which the one in the middle at a place is itself in the sample.
    let any = Field::new("any", Type::from(Number::U32).array(1000));
    let schema = Schema::new(vec![letters, any]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let mut random = Random(31);
    for _ in 0..400 {
        let mut letter = || match random.below(100) {
            ..65 => b'a',
            65..90 => b'b',
            90..95 => b'c',
            _ => b'd',
        };
        let mut number = || f32::from_le_bytes([0; 4].map(|_| letter()));
        let numbers: Vec<f32> = (0..1000).map(|_| number()).collect();
        batch.put(0, &numbers).unwrap();
        let any: Vec<u32> = (0..1000).map(|_| random.number() as u32).collect();
        batch.put(1, &any).unwrap();
    }
    batch.set_len(400);
    let file = write(&schema, &[batch], Options::default());
    let report = Reader::open(Arc::new(file)).unwrap().report(|_| Ok(())).unwrap();
    for (column, most) in report.columns.iter().zip([5.6, 32.1]) {
        let (bits, coding) = (column.bits / 4e5, &column.coding);
        assert!(!coding.contains("place"), "{coding}");
        assert!(bits < most, "{bits} bits, {coding}");
    }
}

/// A file whose reads are noted.
struct Noted(Vec<u8>, Mutex<Vec<usize>>);

impl fiche::ReadAt for Noted {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        self.1.lock().unwrap().push(buf.len());
        fiche::ReadAt::read_at(&self.0, offset, buf)
    }
}

#[test]
fn an_event_is_one_read_of_4_kib_and_itself() {
    let mut random = Random(27);
    let batch = events(&mut random, 60_000);
    let options = || Options::default().segment(64 << 10);
    for (access, most) in [(Access::Event, 4096), (Access::Block, 64 << 10)] {
        let file = write(&tracks(), std::slice::from_ref(&batch), options().access(access));
        let source = Arc::new(Noted(file, Mutex::default()));
        let reader = Reader::open(source.clone()).unwrap();
        // The first event of each segment reads what many have in common; of ranges no block is kept.
        let some = (0..60_000).step_by(100);
        some.for_each(|number| drop(reader.read(number..number + 1, None).unwrap()));
        source.1.lock().unwrap().clear();
        let mut asked = 0;
        for _ in 0..300 {
            let event = reader.event(random.below(60_000)).unwrap();
            let own: usize = columns_of(&event).iter().map(Vec::len).sum();
            let reads = std::mem::take(&mut *source.1.lock().unwrap());
            // None where it is in a block that was read for one before.
            assert!(reads.len() <= 1, "{reads:?}");
            assert!(reads.iter().all(|&len| len <= most + own), "{reads:?} of {own}");
            asked += reads.len();
        }
        let blocks = source.0.len() / most;
        assert!(asked > blocks / 2, "{asked} of {blocks}");
    }
}
