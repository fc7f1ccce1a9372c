//! Of packets that are decoded side by side: they say what they say alone.

use super::*;
use crate::events::decode::Room;
use crate::events::loaded::Loaded;
use crate::events::{Access, Field, Number, Options, Schema, Type, Writer};
use crate::random::Random;

/// Events of columns that are told in as many ways as there are, so many in a packet.
fn file(seed: u64, len: usize, packet: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let list = |number: Number| Type::from(number).list();
    let types = [
        Number::U64.into(),
        Number::F64.into(),
        Number::F32.into(),
        Number::U64.into(),
        Number::I16.into(),
        Number::F64.into(),
        list(Number::F32),
        list(Number::I32).list(),
        Type::Text,
        list(Number::F64),
        // Of a few values, none of which is followed by bits.
        Number::U8.into(),
    ];
    let fields = types.into_iter().enumerate().map(|(i, what)| Field::new(format!("f{i}"), what));
    let schema = Schema::new(fields.collect()).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let (mut counter, mut level) = (1u64 << 40, 0i16);
    let (mut ints, mut words) = (0, 0u64);
    for i in 0..len {
        counter += 1 + random.below(3);
        level = if random.below(20) == 0 { random.below(9) as i16 } else { level };
        let decimal = random.below(900) as f64 / 8.0;
        batch.put(0, &[counter]).unwrap();
        batch.put(1, &[(random.below(100_000) as f64 - 5e4) / 100.0]).unwrap();
        batch.put(2, &[random.number() as f32 / 3.0]).unwrap();
        batch.put(3, &[random.number()]).unwrap();
        batch.put(4, &[level]).unwrap();
        batch.put(5, &[if random.below(2) == 0 { decimal } else { 0.1 * decimal }]).unwrap();
        let tracks = random.below(4) as usize * usize::from(i % 5 > 0);
        // In some packets by far the most.
        let tracks = if random.below(150) == 0 { 60 + tracks } else { tracks };
        batch.put(6, &[tracks as u32]).unwrap();
        (0..tracks).for_each(|j| batch.put(7, &[decimal as f32 + j as f32]).unwrap());
        let lists = random.below(3) as usize;
        batch.put(8, &[lists as u32]).unwrap();
        for _ in 0..lists {
            let items = random.below(6) as usize;
            batch.put(9, &[items as u32]).unwrap();
            for j in 0..items {
                ints = if random.below(4) > 0 { ints } else { random.below(1000) as i32 };
                batch.put(10, &[ints + 7 * j as i32]).unwrap();
            }
        }
        words = if random.below(3) > 0 { words } else { random.number() };
        let text = format!("event {} of run {}, trigger {:x}", i % 50, i / 999, words % 77);
        let odd = random.below(30) == 0;
        batch.put_texts(11, &[if odd { format!("{words:x}") } else { text }]).unwrap();
        let copies = tracks + usize::from(odd);
        batch.put(13, &[copies as u32]).unwrap();
        (0..copies).for_each(|_| batch.put(14, &[f64::from(decimal as f32)]).unwrap());
        batch.put(15, &[[3u8, 77, 200][random.below(3) as usize]]).unwrap();
    }
    let options = Options::default().access(Access::Event).packet(packet);
    let mut writer = Writer::new(Vec::new(), schema, options).unwrap();
    writer.extend(&batch).unwrap();
    writer.finish().unwrap()
}

/// A packet's bytes, and of its events those that are wanted and all.
type Packet = (Vec<u8>, (usize, usize, usize));

/// What packets have: all by themselves, and then all at once, with vectors and without.
fn decoded(loaded: &Loaded, packets: &[Packet]) -> [Option<Batch>; 3] {
    let (decoder, layout) = (&loaded.decoder, &loaded.layout);
    let mut room = Room::default();
    let mut batch = Batch::of(layout.clone());
    let mut each = |batch: &mut Batch, packets: &[Packet], vectors: bool| {
        room.clear();
        room.use_vectors(vectors);
        for (packet, events) in packets {
            decoder.add(packet, *events, &mut room)?;
        }
        decoder.run(&mut room)?;
        decoder.texts(&mut room, |_| true)?;
        decoder.put(&mut room.told, &loaded.all, batch);
        Some(())
    };
    let alone =
        packets.iter().try_for_each(|packet| each(&mut batch, std::slice::from_ref(packet), true));
    let alone = alone.map(|()| std::mem::replace(&mut batch, Batch::of(layout.clone())));
    batch.clear();
    let by_vectors = each(&mut batch, packets, true);
    let by_vectors = by_vectors.map(|()| std::mem::replace(&mut batch, Batch::of(layout.clone())));
    batch.clear();
    [alone, by_vectors, each(&mut batch, packets, false).map(|()| batch)]
}

#[test]
fn packets_side_by_side_say_what_they_say_alone() {
    let mut random = Random(7);
    let (mut whole, mut damaged) = (0, 0);
    for packet in [1, 2, 7, 40] {
        let reader = Reader::open(Arc::new(file(packet as u64, 1500, packet))).unwrap();
        let all = reader.len() / packet as u64;
        for round in 0..400 {
            // Some packets, whole ones or parts, one behind the other or not, and at times a damaged one.
            let count = 1 + random.below(64.min(all));
            let first = random.below(all - count + 1);
            let (is_part, has_gaps) = (random.below(2) == 0, random.below(2) == 0);
            let mut packets: Vec<Packet> = Vec::new();
            let loaded = with_scratch(|work, kept| {
                for i in first..first + count {
                    if has_gaps && random.below(3) == 0 {
                        continue;
                    }
                    let found = reader.packet(i * packet as u64, kept)?;
                    let block = reader.block(&found, found.first, &mut work.block)?;
                    let bytes = found.stored(&block, found.first)?.to_vec();
                    let (_, _, all) = found.events_of(found.first, u64::MAX);
                    let (from, to) = match is_part {
                        true => (random.below(all as u64 + 1), random.below(all as u64 + 1)),
                        false => (0, all as u64),
                    };
                    packets.push((bytes, (from.min(to) as usize, from.max(to) as usize, all)));
                }
                reader.packet(0, kept).map(|found| found.loaded.clone())
            })
            .unwrap();
            if packets.is_empty() {
                continue;
            }
            for _ in 0..if round % 2 == 0 { 0 } else { 1 + random.below(2) } {
                let which = random.below(packets.len() as u64) as usize;
                let (bytes, events) = &mut packets[which];
                match random.below(8) {
                    0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
                    1 => bytes.push(random.number() as u8),
                    2 => events.2 += 1,
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << random.below(8);
                    }
                }
            }
            let [alone, together, one_by_one] = decoded(&loaded, &packets);
            match &alone {
                Some(_) => whole += 1,
                None => damaged += 1,
            }
            assert!(alone == one_by_one, "{packet} in a packet, round {round}");
            assert!(alone == together, "{packet} in a packet, round {round}, by vectors");
        }
    }
    assert!(whole > 700 && damaged > 300, "{whole} {damaged}");
}

#[test]
fn a_damaged_packet_is_named_among_many() {
    // The checksum of its block is right, so that only decoding finds out.
    let (mut named, mut bytes) = (0, file(3, 600, 4));
    let reader = Reader::open(Arc::new(bytes.clone())).unwrap();
    let mut random = Random(5);
    for _ in 0..400 {
        let number = random.below(600);
        let (pos, len) = with_scratch(|_, kept| {
            reader.packet(number, kept).map(|found| (found.block.pos, found.block.len))
        })
        .unwrap();
        let (start, end) = (pos as usize, pos as usize + len - 4);
        let at = end - 1 - random.below((end - start) as u64 / 2) as usize;
        let before = bytes[start..end + 4].to_vec();
        bytes[at] ^= 1 << random.below(8);
        let sum = crate::wire::crc32c_of(&[&pos.to_le_bytes(), &bytes[start..end]]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        let damaged = Reader::open(Arc::new(bytes.clone())).unwrap();
        let one = |i: u64| damaged.read(4 * i..4 * i + 4, None);
        let alone: Result<Vec<Batch>> = (0..150).map(one).collect();
        match (alone, damaged.read(0..600, None)) {
            (Err(alone), Err(all)) => {
                assert_eq!(alone.to_string(), all.to_string());
                named += 1;
            }
            (Ok(alone), Ok(all)) => {
                let column = |i: usize| alone.iter().flat_map(move |batch| batch.bytes(i)).copied();
                (0..16).for_each(|i| assert!(column(i).eq(all.bytes(i).iter().copied())));
            }
            (alone, all) => panic!("{:?} alone, {:?} together", alone.err(), all.err()),
        }
        bytes[start..end + 4].copy_from_slice(&before);
    }
    assert!(named > 30, "{named}");
}

#[test]
fn what_is_too_much_side_by_side_comes_one_by_one() {
    // Lists of records without fields: items that no column has, more of a few packets than several may have.
    let schema =
        vec![Field::new("n", Type::Record(Vec::new()).list()), Field::new("x", Number::U8)];
    let schema = Schema::new(schema).unwrap();
    let mut batch = Batch::new(&schema).unwrap();
    let counts: Vec<u32> = (0..40).map(|i| 90_000 + 7 * i).collect();
    batch.put(0, &counts).unwrap();
    batch.put(1, &(0..40).collect::<Vec<u8>>()).unwrap();
    let options = Options::default().access(Access::Event).packet(1);
    let mut writer = Writer::new(Vec::new(), schema, options).unwrap();
    writer.extend(&batch).unwrap();
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    assert_eq!(reader.read(3..40, None).unwrap().values::<u32>(0).collect::<Vec<_>>(), counts[3..]);
    let some = reader.take(&[39, 0, 17, 16], None).unwrap();
    assert_eq!(some.values::<u8>(1).collect::<Vec<_>>(), [39, 0, 17, 16]);
    assert_eq!(some.values::<u32>(0).collect::<Vec<_>>(), [39, 0, 17, 16].map(|i| counts[i]));
}
