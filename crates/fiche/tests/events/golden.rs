//! Files in golden/v1/events stay readable, and what is written today is the same.

use crate::texts::{text_schema, texts};
use crate::*;

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

/// Arrays of which each place has values of its own, or one.
pub fn arrays() -> (Schema, Batch) {
    let channels = Type::from(Number::U16).array(20);
    let fields = vec![
        Field::new("pedestal", Type::from(Number::I32).array(300)),
        Field::new("channel", channels.clone()),
        Field::new("planes", channels.array(2).list()),
        Field::new("modes", Type::from(Number::I16).array(12)),
    ];
    let schema = Schema::new(fields).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let mut random = Random(28);
    let fixed: Vec<i32> = (0..300).map(|_| random.number() as i32).collect();
    for _ in 0..500 {
        batch.put(0, &fixed).unwrap();
        let channels = |random: &mut Random, count: usize| -> Vec<u16> {
            (0..count).map(|i| 1000 * (i as u16 * 7 % 20) + random.below(6) as u16).collect()
        };
        batch.put(1, &channels(&mut random, 20)).unwrap();
        let planes = random.below(4) as u32;
        batch.put(2, &[planes]).unwrap();
        (0..2 * planes).for_each(|_| batch.put(3, &channels(&mut random, 20)).unwrap());
        for place in 0..12i16 {
            let modes = [0, 77 * (place + 1), 5000 - 31 * place * place];
            batch.put(4, &[1000 * place + modes[random.below(3) as usize]]).unwrap();
        }
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
    let all: [(&str, &dyn Fn() -> Vec<u8>); 7] = [
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
        ("arrays", &|| {
            let (schema, all) = arrays();
            write(&schema, &[all], Options::default())
        }),
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
