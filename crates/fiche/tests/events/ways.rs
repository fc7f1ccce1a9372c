//! Any events of any types are read in every way that there is.

use crate::*;

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
            (inner.clone(), prop_oneof![8 => 1u32..5, 1 => 9u32..14])
                .prop_map(|(what, len)| what.array(len)),
            proptest::collection::vec(inner, 0..4).prop_map(|all| Type::Record(fields(all))),
        ]
    })
}

/// Values of many a kind: few, many, near one another, the same as before or as those of another column.
fn values(random: &mut Random, number: Number, count: usize, others: &[Vec<u8>]) -> Vec<u8> {
    let width = number.width();
    let same = |other: &&Vec<u8>| other.len() == count * width && count > 0;
    let (like, base) = (random.below(12), random.number());
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
            (11, _) => (base >> (i % 12)).to_le_bytes()[..width].to_vec(),
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
