//! LZ4: blocks beside a decoder written byte by byte and beside the C library, and all layouts of bytes beside one piece.

mod pieces;

use fiche::codec::lz4::{bound, decompress};
use fiche::codec::{Codec, Scratch};
use fiche::{Dst, Segments, SegmentsMut, Src};
use proptest::prelude::*;

use self::pieces::{Cells, Random, cut, several_pages};

/// Levels of each kind: those up to 2 take what is found first.
const LEVELS: [i32; 8] = [-64, -3, 0, 1, 2, 3, 7, 12];
/// What room is filled with before.
const FILLS: [u8; 3] = [0x00, 0xAA, 0xFF];

/// What a block decodes to, byte by byte as it is described; `None` where it is none, or has more than `most`.
fn naive(block: &[u8], most: usize) -> Option<Vec<u8>> {
    let (mut out, mut at) = (Vec::new(), 0);
    let length = |at: &mut usize, token: u8| {
        let mut len = usize::from(token);
        let mut more = if token == 15 { 255 } else { 0 };
        while more == 255 {
            more = *block.get(*at)?;
            (*at, len) = (*at + 1, len + usize::from(more));
        }
        Some(len)
    };
    loop {
        let (start, token) = (at, *block.get(at)?);
        at += 1;
        let literals = length(&mut at, token >> 4)?;
        out.extend_from_slice(block.get(at..at + literals)?);
        at += literals;
        if out.len() > most {
            return None;
        }
        if at == block.len() {
            return (literals >= 5 || start == 0).then_some(out);
        }
        let offset = usize::from(u16::from_le_bytes([*block.get(at)?, *block.get(at + 1)?]));
        at += 2;
        let matched = 4 + length(&mut at, token & 15)?;
        if offset == 0 || offset > out.len() || out.len() + matched > most {
            return None;
        }
        (0..matched).for_each(|_| out.push(out[out.len() - offset]));
    }
}

fn packed(level: i32, data: &[u8]) -> Vec<u8> {
    let mut block = vec![0xAA; bound(data.len())];
    let dst = block.as_mut_slice().into();
    let len = Codec::Lz4.compress(level, data.into(), dst, &mut Scratch::default()).unwrap();
    block.truncate(len.expect("there is room for the bound"));
    block
}

fn unpacked(block: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for fill in FILLS {
        let mut out = vec![fill; len];
        let done = decompress(block.into(), out.as_mut_slice().into()).ok();
        found.push(done.map(|done| out[..done].to_vec()));
    }
    assert!(found[0] == found[1] && found[1] == found[2], "what was there before is seen");
    found.pop().flatten()
}

/// That the last five bytes are literals, and that no match begins in the last twelve.
fn check_end(block: &[u8], len: usize) {
    let (mut at, mut out) = (0, 0);
    loop {
        let token = usize::from(block[at]);
        at += 1;
        let length = |at: &mut usize, mut len: usize| {
            if len == 15 {
                loop {
                    let more = usize::from(block[*at]);
                    (*at, len) = (*at + 1, len + more);
                    if more < 255 {
                        break;
                    }
                }
            }
            len
        };
        let literals = length(&mut at, token >> 4);
        (at, out) = (at + literals, out + literals);
        if at == block.len() {
            assert!(literals >= 5 || token >> 4 == 0 && out == 0 || out == literals);
            return;
        }
        at += 2;
        assert!(out + 12 <= len, "a match begins at {out} of {len}");
        out += 4 + length(&mut at, token & 15);
    }
}

/// Compresses and decodes bytes that lie in segments, or in pages: the same has to come of it.
fn check_layout(level: i32, data: &[u8], src: &[usize], dst: &[usize], in_pages: bool) {
    let block = packed(level, data);
    let from = Cells::of(data, src);
    let mut to = Cells::new(&cut(bound(data.len()), dst), 0xAA);
    let mut scratch = Scratch::default();
    let done = if in_pages {
        let (from, mut to) = (from.read(), to.write());
        let (src, dst) = (Src::pages(&from).unwrap(), Dst::pages(&mut to).unwrap());
        Codec::Lz4.compress(level, src, dst, &mut scratch)
    } else {
        let (from, mut to) = (Segments::new(from.read()), SegmentsMut::new(to.write()));
        Codec::Lz4.compress(level, (&from).into(), (&mut to).into(), &mut scratch)
    };
    assert_eq!(done.unwrap(), Some(block.len()));
    assert!(to.all()[..block.len()] == block, "level {level}: other bytes by layout");
    // And back, with the same cuts.
    let stored = Cells::of(&block, &cut(block.len(), dst));
    let mut back = Cells::new(src, 0xFF);
    let done = if in_pages {
        let (stored, mut back) = (stored.read(), back.write());
        decompress(Src::pages(&stored).unwrap(), Dst::pages(&mut back).unwrap())
    } else {
        let (stored, mut back) = (Segments::new(stored.read()), SegmentsMut::new(back.write()));
        decompress((&stored).into(), (&mut back).into())
    };
    assert_eq!(done.unwrap(), data.len());
    assert!(back.all() == data, "level {level}: other content by layout");
    assert_eq!(scratch.copied(), 0);
}

fn any_data() -> impl Strategy<Value = Vec<u8>> {
    let runs = proptest::collection::vec((0u8..3, 0usize..3000), 0..8)
        .prop_map(|runs| runs.iter().flat_map(|&(byte, len)| vec![byte; len]).collect::<Vec<u8>>());
    prop_oneof![
        runs,
        proptest::collection::vec(any::<u8>(), 0..3000),
        proptest::collection::vec(0u8..2, 0..3000),
        any::<u64>().prop_map(|seed| several_pages(&mut Random(seed))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn blocks_come_back(data in any_data()) {
        for level in LEVELS {
            let block = packed(level, &data);
            prop_assert!(naive(&block, data.len()).as_ref() == Some(&data));
            prop_assert!(unpacked(&block, data.len()).as_ref() == Some(&data));
            check_end(&block, data.len());
            // More room is no harm; less is told; the room that it took is enough.
            prop_assert!(unpacked(&block, data.len() + 50).as_ref() == Some(&data));
            if !data.is_empty() {
                prop_assert!(unpacked(&block, data.len() - 1).is_none());
            }
            for (room, is_enough) in [(block.len(), true), (block.len() - 1, false)] {
                let mut out = vec![0; room];
                let dst = out.as_mut_slice().into();
                let done = Codec::Lz4.compress(level, data.as_slice().into(), dst, &mut Scratch::default());
                prop_assert_eq!(done.unwrap(), is_enough.then_some(block.len()));
            }
        }
    }

    #[test]
    fn layouts_do_not_matter(
        data in any_data(),
        src in proptest::collection::vec(1usize..200, 1..20),
        dst in proptest::collection::vec(1usize..200, 1..20),
        shift in 2u32..14,
    ) {
        for level in LEVELS {
            check_layout(level, &data, &cut(data.len(), &src), &dst, false);
            check_layout(level, &data, &cut(data.len(), &[1 << shift]), &[1 << shift], true);
        }
    }

    #[test]
    fn any_bytes_are_what_they_are_described_to_be(
        block in proptest::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..200),
        len in 0usize..5000,
    ) {
        prop_assert_eq!(unpacked(&block, len), naive(&block, len));
    }
}

#[test]
fn every_cut_of_a_short_input_gives_the_same() {
    let data: Vec<u8> = (0..60u8).map(|i| if i < 40 { i % 3 } else { i }).collect();
    for one in 1..data.len() {
        for other in 1..20 {
            check_layout(1, &data, &cut(data.len(), &[one, other]), &[other, one], false);
        }
    }
}

/// How many of the tests' contents are tried; fewer where each takes long.
const CONTENTS: u64 = if cfg!(miri) { 1 } else { 40 };

#[test]
fn borders_of_large_pieces_do_not_matter() {
    for seed in 0..CONTENTS {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        let lens: Vec<usize> = (0..20).map(|i| 1 + random.below([40, 300, 5000][i % 3])).collect();
        for level in LEVELS {
            check_layout(level, &data, &cut(data.len(), &[4096]), &[4096], true);
            check_layout(level, &data, &cut(data.len(), &lens), &lens[3..], false);
        }
    }
}

/// The fewest bytes that a block may have: by all matches of each place, of all lengths.
fn fewest(data: &[u8]) -> usize {
    let more = |len: usize| if len < 15 { 0 } else { (len - 15) / 255 + 1 };
    let last = data.len().saturating_sub(5);
    // By the bytes up to a place where a match ends, or nothing is yet.
    let mut ends = vec![usize::MAX; data.len() + 1];
    ends[0] = 0;
    let by_literals = |ends: &[usize], to: usize| {
        let cost = |from: usize| ends[from].saturating_add(to - from + more(to - from));
        (0..=to).map(cost).min().unwrap()
    };
    for at in 1..(data.len() + 1).saturating_sub(12) {
        let same =
            |from: usize| (0..last - at).take_while(|i| data[from + i] == data[at + i]).count();
        let longest = (0..at).map(same).max().unwrap();
        let cost = by_literals(&ends, at);
        for len in 4..=longest {
            ends[at + len] = ends[at + len].min(cost + 3 + more(len - 4));
        }
    }
    1 + by_literals(&ends, data.len())
}

#[test]
fn high_levels_come_near_the_fewest_bytes_that_there_may_be() {
    let (mut all, mut sums) = (0, [0; 3]);
    for seed in 0..60 {
        let mut random = Random(seed);
        let letters = 2 + random.below(20);
        // What was there comes again, with gaps.
        let mut data: Vec<u8> = Vec::new();
        while data.len() < 600 {
            let from = random.below(data.len().max(1));
            let len = random.below(24).min(data.len() - from.min(data.len()));
            data.extend_from_within(from.min(data.len())..from.min(data.len()) + len);
            (0..1 + random.below(5)).for_each(|_| data.push(random.below(letters) as u8));
        }
        let fewest = fewest(&data);
        all += fewest;
        for (level, sum) in [3, 9, 12].into_iter().zip(&mut sums) {
            let len = packed(level, &data).len();
            assert!(len >= fewest, "level {level}: {len} bytes, where {fewest} are the fewest");
            *sum += len;
        }
    }
    let [low, middle, high] = sums;
    assert!(high <= middle && middle <= low, "{sums:?}");
    assert!(high * 1000 <= all * 1002, "{high} bytes, where {all} are the fewest");
    assert!(low * 100 <= all * 103, "{low} bytes, where {all} are the fewest");
}

#[test]
fn what_was_compressed_before_does_not_matter() {
    let mut scratch = Scratch::default();
    for seed in 0..40 {
        let data = several_pages(&mut Random(seed));
        for level in LEVELS {
            let mut block = vec![0xAA; bound(data.len())];
            let dst = block.as_mut_slice().into();
            let len =
                Codec::Lz4.compress(level, data.as_slice().into(), dst, &mut scratch).unwrap();
            block.truncate(len.unwrap());
            assert!(block == packed(level, &data), "level {level}");
        }
    }
}

#[cfg(not(miri))]
#[test]
fn no_match_begins_in_the_last_bytes_where_the_way_so_far_was_just_written() {
    // It is written behind so many matches; the next one begins within the last of them, and goes on to where matches end.
    let mut random = Random(11);
    let mut noise = |len: usize| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    let (word, last) = (noise(8), noise(10));
    let start = [&noise(1), &word[5..], &last, &word].concat();
    let words: Vec<Vec<u8>> = (0..2400).map(|_| [&noise(3), &word[..]].concat()).collect();
    for count in 2100..2400 {
        let data = [&start[..], &words[..count].concat(), &last].concat();
        check_end(&packed(3, &data), data.len());
    }
}

#[cfg(not(miri))]
#[test]
fn long_contents_come_back() {
    let mut random = Random(7);
    let mut noise = |len: usize| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    let word = noise(40);
    // More matches than are chosen from at once; far apart; long; and none.
    let sparse: Vec<Vec<u8>> =
        (0..80).flat_map(|_| [noise(66_000), word.clone(), word.clone()]).collect();
    let words: Vec<u8> =
        (0..40_000).flat_map(|i| format!("{} {} ", i % 977, i * i % 4093).into_bytes()).collect();
    let periods: Vec<u8> = (0..300_000).map(|i| word[i % 37]).collect();
    // Each match lies across the next by half.
    let text = noise(15_000);
    let mut across: Vec<u8> = (0..498)
        .map(|i| i * 301 % 498 * 30)
        .flat_map(|start| [&text[start..start + 60], &noise(1)].concat())
        .collect();
    across.extend(&text);
    let contents = [sparse.concat(), words, across, periods, vec![0; 1 << 20], noise(100_000)];
    for data in &contents {
        for level in [3, 9, 12] {
            let block = packed(level, data);
            assert!(unpacked(&block, data.len()).as_ref() == Some(data), "level {level}");
            check_end(&block, data.len());
        }
    }
}

#[test]
fn damage_is_the_same_in_all_layouts() {
    for seed in 0..CONTENTS {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        let good = packed(1, &data);
        for _ in 0..40 {
            let mut block = good.clone();
            for _ in 0..1 + random.below(3) {
                let place = random.below(block.len());
                block[place] = random.below(256) as u8;
            }
            block.truncate(block.len() - random.below(9).min(block.len()));
            let mut one = vec![0xAA; data.len()];
            let done = decompress(block.as_slice().into(), one.as_mut_slice().into());
            let from = Cells::of(&block, &cut(block.len(), &[4096]));
            let mut to = Cells::new(&cut(data.len(), &[4096]), 0xAA);
            let in_pages = {
                let (from, mut to) = (from.read(), to.write());
                decompress(Src::pages(&from).unwrap(), Dst::pages(&mut to).unwrap())
            };
            match (done, in_pages) {
                (Ok(len), Ok(other)) => {
                    assert_eq!(len, other);
                    assert!(one[..len] == to.all()[..len]);
                }
                (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
                (one, other) => panic!("{one:?} in one piece, {other:?} in pages"),
            }
            assert_eq!(naive(&block, data.len()), unpacked(&block, data.len()));
        }
    }
}

#[test]
fn what_is_wrong_is_told() {
    let told = |block: &[u8], len: usize| {
        let mut out = vec![0; len];
        decompress(block.into(), out.as_mut_slice().into()).unwrap_err().to_string()
    };
    let cases: [(&[u8], usize, &str); 9] = [
        (&[], 4, "ends without its last literals"),
        (&[0xF0, 255], 1000, "ends within a length"),
        (&[0x50, 1, 2], 9, "ends within literals"),
        (&[0x10, 1, 1], 9, "ends within an offset"),
        (&[0x1F, 1, 1, 0, 255], 1000, "ends within a length"),
        (&[0x10, 1, 1, 0], 9, "ends without its last literals"),
        (&[0x10, 1, 0, 0, 0x50, 1, 2, 3, 4, 5], 99, "begins before its content"),
        (&[0x10, 1, 2, 0, 0x50, 1, 2, 3, 4, 5], 99, "begins before its content"),
        (&[0x10, 1, 1, 0, 0x40, 1, 2, 3, 4], 99, "fewer than five literals"),
    ];
    for (block, len, what) in cases {
        let message = told(block, len);
        assert!(message.contains(what), "{block:?}: {message}");
    }
    let good = [0x10, 1, 1, 0, 0x50, 1, 2, 3, 4, 5];
    assert_eq!(unpacked(&good, 10).unwrap(), [1, 1, 1, 1, 1, 1, 2, 3, 4, 5]);
    for len in [0, 4, 9] {
        assert!(told(&good, len).contains("more than is asked for"));
    }
    assert!(unpacked(&[0], 5).unwrap().is_empty());
}

#[cfg(not(miri))]
#[test]
fn the_c_library_reads_ours_and_we_read_its() {
    use lz4::block::{CompressionMode, compress, decompress_to_buffer};
    for seed in 0..200 {
        let data = several_pages(&mut Random(seed));
        for level in LEVELS {
            let block = packed(level, &data);
            let mut out = vec![0; data.len()];
            let len = decompress_to_buffer(&block, Some(data.len() as i32), &mut out).unwrap();
            assert!(len == data.len() && out == data);
        }
        for mode in [
            CompressionMode::DEFAULT,
            CompressionMode::FAST(9),
            CompressionMode::HIGHCOMPRESSION(4),
            CompressionMode::HIGHCOMPRESSION(12),
        ] {
            let block = compress(&data, Some(mode), false).unwrap();
            assert!(unpacked(&block, data.len()).as_ref() == Some(&data));
        }
    }
}

#[test]
fn the_front_is_that_of_all() {
    let mut scratch = Scratch::default();
    for seed in 0..20 {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        let block = packed(1, &data);
        for _ in 0..20 {
            let len = random.below(data.len() + 1);
            let mut out = vec![0; len];
            let (src, dst) = (block.as_slice().into(), out.as_mut_slice().into());
            Codec::Lz4.decompress_front(src, data.len(), dst, &mut scratch).unwrap();
            assert!(out == data[..len]);
        }
    }
}
