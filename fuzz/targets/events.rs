//! Any bytes as a file of events, checksums made right; as changes to a file that was right; and as values of events, which come back.
#![no_main]

use std::sync::Arc;

use fiche::events::{Batch, Field, Number, Options, Reader, Schema, Type, Writer};

#[path = "seal.rs"]
mod seal;

fn read(reader: &Reader) {
    let len = reader.len();
    for number in [0, 1, len / 2, len.saturating_sub(1)] {
        let _ = reader.event(number);
    }
    let _ = reader.read(len / 3..len.min(len / 3 + 500), None);
    let _ = reader.take(&[len / 2, 0, len / 2, len / 5], None);
    let names: Vec<&str> =
        reader.schema().fields.iter().map(|f| f.name.as_str()).skip(1).take(2).collect();
    if let Ok(columns) = reader.select(&names) {
        let _ = reader.read(0..len.min(300), Some(&columns));
    }
    // What is damaged may say that it has very many.
    if len < 10_000 {
        let wide = |name: &str| {
            let field = reader.schema().fields.iter().find(|field| field.name == name);
            field.map_or(0, |field| match field.what {
                Type::Number(number) => number.width(),
                _ => 3,
            })
        };
        let key: Vec<(&str, &[u8])> =
            reader.key().into_iter().map(|name| (name, &[0; 8][..wide(name)])).collect();
        if let Ok(found) = reader.find(&key) {
            assert!(found.iter().all(|&event| event < len));
        }
        let _ = reader.report(|_| Ok(()));
    }
}

fn opened(bytes: Vec<u8>) {
    if let Ok(reader) = Reader::open(Arc::new(bytes)) {
        read(&reader);
    }
}

/// Events whose values are these bytes, as far as they go.
fn events(bytes: &[u8]) -> (Schema, Batch) {
    let schema = Schema::new(vec![
        Field::new("a", Number::U8),
        Field::new("b", Number::F32),
        Field::new("c", Type::from(Number::I16).list()),
        Field::new("d", Number::F32),
        Field::new("e", Type::from(Number::Bool).array(3)),
        Field::new("f", Type::from(Number::F64).optional()),
        Field::new("g", Type::Text),
        Field::new("h", Type::Bytes.list()),
    ])
    .unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let mut rest = bytes;
    let mut next = |len: usize| {
        let (some, more) = rest.split_at(len.min(rest.len()));
        rest = more;
        let mut all = [0; 8];
        all[..some.len()].copy_from_slice(some);
        all
    };
    for _ in 0..bytes.len() / 8 {
        let a = next(1)[0];
        batch.put(0, &[a]).unwrap();
        batch.put_bytes(1, &next(4)[..4]).unwrap();
        let count = u32::from(a % 4);
        batch.put(2, &[count]).unwrap();
        (0..count).for_each(|_| batch.put_bytes(3, &next(2)[..2]).unwrap());
        batch.put_bytes(4, &next(usize::from(a % 3) * 2)[..4]).unwrap();
        batch.put(5, &[a & 1 == 0, a & 2 == 0, false]).unwrap();
        batch.put(6, &[a & 4 == 0]).unwrap();
        if a & 4 == 0 {
            batch.put_bytes(7, &next(8)).unwrap();
        }
        // Texts: what all have in common, then whatever comes.
        let common = ["", "one", "another one"][usize::from(a % 3)].as_bytes();
        let len = usize::from(a % 5);
        batch.put_texts(8, &[[common, &next(len)[..len]].concat()]).unwrap();
        let count = a % 2;
        batch.put(10, &[u32::from(count)]).unwrap();
        (0..count).for_each(|_| {
            let text = if a % 7 == 0 { vec![a; 1500] } else { next(6).to_vec() };
            batch.put_texts(11, &[text]).unwrap();
        });
    }
    (schema, batch)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    if first % 3 == 0 {
        if rest.len() > seal::LEAST {
            let mut file = rest.to_vec();
            // Of events.
            file[12] = 4;
            opened(seal::sealed(file));
        }
        return;
    }
    let (changes, values) = rest.split_at(rest.len().min(usize::from(first / 3) % 40));
    // To learn from many is slow.
    let (schema, batch) = events(&values[..values.len().min(700)]);
    let key: &[&str] = if first % 5 == 0 { &["a", "g"] } else { &[] };
    let packet = usize::from(first % 7) * 9 + 1;
    let options = Options::default().threads(1).packet(packet).key(key.iter().copied());
    let mut writer = Writer::new(Vec::new(), schema, options).unwrap();
    writer.extend(&batch).unwrap();
    let file = writer.finish().unwrap();
    if first % 3 == 1 {
        let reader = Reader::open(Arc::new(file)).unwrap();
        let back = reader.read(0..reader.len(), None).unwrap();
        assert!((0..13).all(|column| back.bytes(column) == batch.bytes(column)));
        return;
    }
    let mut file = file;
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) * file.len() / 65_536;
        file[at] = change[2];
    }
    opened(seal::sealed(file));
});
