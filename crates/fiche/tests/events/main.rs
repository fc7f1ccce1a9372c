//! Events come back to the bit, one by one as all together, and what is damaged never passes for whole.

mod append;
mod golden;
mod keys;
mod packets;
mod texts;
mod ways;

use std::sync::Arc;

use fiche::events::{
    Access, Batch, Column, Count, Event, Field, Layout, Number, Options, Reader, Role, Schema,
    Type, Writer,
};
use fiche::testing::Random;
use fiche::{Error, FileSource};
use proptest::prelude::*;

fn fields(types: Vec<Type>) -> Vec<Field> {
    types.into_iter().enumerate().map(|(i, what)| Field::new(format!("f{i}"), what)).collect()
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
