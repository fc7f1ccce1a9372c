//! Of readers: models and blocks that are kept, and those that are not.

use super::*;
use crate::events::{Field, Number, Options, Writer};

#[test]
fn models_need_not_all_be_in_memory() {
    let schema = Schema::new(vec![Field::new("x", Number::I64)]).unwrap();
    let options = Options::default().segment(64 << 10);
    let mut writer = Writer::new(Vec::new(), schema.clone(), options).unwrap();
    let mut all: Vec<i64> = Vec::new();
    for round in 0..12i64 {
        // Of every segment the values are others.
        let values: Vec<i64> = (0..9000).map(|i| (i % (7 + round)) << (2 * round)).collect();
        let mut batch = Batch::new(&schema).unwrap();
        batch.put(0, &values).unwrap();
        writer.extend(&batch).unwrap();
        all.extend(values);
    }
    let file = Arc::new(writer.finish().unwrap());
    for (most, others) in [(STAY, OTHERS), (1 << 12, OTHERS), (0, 1 << 14), (0, 0)] {
        let reader = Reader::with(file.clone(), most, others, BLOCKS).unwrap();
        assert!(reader.0.models.told().0 > 6, "{:?}", reader.0.models.told());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (reader, all) = (reader.clone(), &all);
                scope.spawn(move || {
                    let mut random = crate::random::Random(thread);
                    for _ in 0..500 {
                        let i = random.below(all.len() as u64);
                        let event = reader.event(i).unwrap();
                        assert_eq!(event.values::<i64>(0).next(), Some(all[i as usize]));
                    }
                });
            }
        });
        let (models, stay, bytes) = reader.0.models.told();
        match most {
            0 => assert_eq!(stay, 0),
            STAY => assert_eq!(stay, models),
            _ => assert!((1..models).contains(&stay), "{stay}"),
        }
        assert!(bytes <= most);
    }
}

/// A file that does not lie in memory, how often it was read, and the bytes of the last read.
struct Far(Vec<u8>, AtomicU64, AtomicU64);

impl Far {
    fn new(file: Vec<u8>) -> Arc<Far> {
        Arc::new(Far(file, AtomicU64::new(0), AtomicU64::new(0)))
    }
}

impl ReadAt for Far {
    fn len(&self) -> u64 {
        self.0.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.2.store(buf.len() as u64, Relaxed);
        self.0.as_slice().read_at(offset, buf)
    }
}

fn squares() -> Vec<u8> {
    let schema = Schema::new(vec![Field::new("x", Number::I64)]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put(0, &(0..SQUARES).map(|i| (i * i) as i64).collect::<Vec<_>>()).unwrap();
    let mut writer = Writer::new(Vec::new(), schema, Options::default()).unwrap();
    writer.extend(&batch).unwrap();
    writer.finish().unwrap()
}

const SQUARES: u64 = 50_000;

#[test]
fn a_block_is_read_once_and_an_event_at_hand_takes_no_reading() {
    let far = Far::new(squares());
    let reader = Reader::open(far.clone()).unwrap();
    let (mut random, mut event) = (crate::random::Random(5), Event::default());
    assert!(!reader.event_at_hand(7, &mut event).unwrap());
    assert!(event.layout().is_none());
    // What leads to events.
    reader.event_into(7, &mut event).unwrap();
    let mut square = |random: &mut crate::random::Random, must_be_at_hand: bool| {
        let i = random.below(SQUARES);
        let before = far.1.load(Relaxed);
        match reader.event_at_hand(i, &mut event).unwrap() {
            true => assert_eq!(far.1.load(Relaxed), before),
            false => {
                assert!(!must_be_at_hand);
                reader.event_into(i, &mut event).unwrap();
                assert_eq!(far.1.load(Relaxed), before + 1);
                assert!(far.2.load(Relaxed) <= 4096);
            }
        }
        assert_eq!(event.values::<i64>(0).next(), Some((i * i) as i64));
    };
    (0..20_000).for_each(|_| square(&mut random, false));
    let reads = far.1.load(Relaxed);
    let blocks: u64 = reader.0.segments.iter().flat_map(|s| &s.about.pages).map(|p| p.blocks).sum();
    // Of each block, and of what leads to them.
    assert!((20..=blocks + 20).contains(&reads), "{reads} {blocks}");
    (0..20_000).for_each(|_| square(&mut random, true));
    assert_eq!(far.1.load(Relaxed), reads);
    let event_behind = reader.event_at_hand(SQUARES, &mut event);
    assert!(matches!(event_behind, Err(Error::OutOfBounds { .. })));
}

#[test]
fn what_takes_long_is_not_at_hand() {
    let schema = Schema::new(vec![Field::new("x", Number::I64)]).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    batch.put(0, &(0..SQUARES).map(|i| (i * i) as i64).collect::<Vec<_>>()).unwrap();
    let options = Options::default().access(Access::Scan);
    let mut writer = Writer::new(Vec::new(), schema, options).unwrap();
    writer.extend(&batch).unwrap();
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    let mut event = reader.event(4).unwrap();
    assert!(!reader.event_at_hand(5, &mut event).unwrap());
    assert_eq!(event.values::<i64>(0).next(), Some(16));
}

#[test]
fn what_does_not_fit_is_read_again_without_new_memory() {
    let far = Far::new(squares());
    let reader = Reader::with(far.clone(), STAY, OTHERS, 64 << 10).unwrap();
    let (mut random, mut event) = (crate::random::Random(5), Event::default());
    let mut squares = |count: u32| {
        for _ in 0..count {
            let i = random.below(SQUARES);
            reader.event_into(i, &mut event).unwrap();
            assert_eq!(event.values::<i64>(0).next(), Some((i * i) as i64));
        }
    };
    squares(20_000);
    let before = far.1.load(Relaxed);
    let counted = allocation_counter::measure(|| squares(2_000));
    assert!(far.1.load(Relaxed) - before > 200);
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_damaged_block_is_never_kept() {
    let mut file = squares();
    let whole = Reader::open(Arc::new(file.clone())).unwrap();
    let pos = whole.packet(20_000, &mut Kept::default()).unwrap().block.pos;
    file[pos as usize + 9] ^= 4;
    let reader = Reader::open(Far::new(file)).unwrap();
    let mut event = reader.event(3).unwrap();
    for _ in 0..3 {
        assert!(matches!(reader.event_into(20_000, &mut event), Err(Error::Corrupt { .. })));
        assert!(!reader.event_at_hand(20_000, &mut event).unwrap());
        assert_eq!(event.values::<i64>(0).next(), Some(9));
    }
    assert!(reader.event_at_hand(3, &mut event).unwrap());
}
