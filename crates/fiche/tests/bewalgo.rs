//! BeWalgo: streams beside a decoder written word by word, and all layouts of bytes beside one piece.

mod pieces;

use fiche::codec::bewalgo::{Effort, Strictness, Width, bound, compress, decompress};
use fiche::codec::{Codec, Scratch};
use fiche::{Dst, Segments, SegmentsMut, Src};
use proptest::prelude::*;

use self::pieces::{Cells, Random, cut, several_pages};

const WIDTHS: [Width; 2] = [Width::Four, Width::Eight];
const EFFORTS: [Effort; 7] = [
    Effort::Thesis(1),
    Effort::Thesis(5),
    Effort::Fast(1),
    Effort::Fast(40),
    Effort::Fast(u32::MAX),
    Effort::Best(4),
    Effort::Best(256),
];
/// What room is filled with before.
const FILLS: [u8; 3] = [0x00, 0xAA, 0xFF];

/// What a stream decodes to, byte by byte as it is described; `None` where it is none, or has more than `most`.
fn naive(width: Width, stream: &[u8], most: usize) -> Option<Vec<u8>> {
    let unit = width.bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while stream.len() - at >= unit {
        let words = &stream[at..at + unit];
        at += unit;
        for (i, triple) in words.chunks(4).enumerate() {
            let (literals, matched) = (usize::from(triple[0]), usize::from(triple[1]));
            let offset = usize::from(u16::from_le_bytes([triple[2], triple[3]]));
            if i == 0 && literals + matched == 0 || matched == 0 && offset > 0 {
                return None;
            }
            out.extend_from_slice(stream.get(at..at + literals * unit)?);
            at += literals * unit;
            for _ in 0..matched * unit {
                let from = out.len().checked_sub(offset * unit).filter(|_| offset > 0)?;
                out.push(out[from]);
            }
            if out.len() > most {
                return None;
            }
        }
    }
    out.extend_from_slice(&stream[at..]);
    (out.len() <= most).then_some(out)
}

fn packed(width: Width, effort: Effort, data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0xAA; bound(width, data.len())];
    let dst = stream.as_mut_slice().into();
    let len = compress(width, effort, data.into(), dst, &mut Scratch::default());
    stream.truncate(len.expect("there is room for the bound"));
    stream
}

fn unpacked(width: Width, stream: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for fill in FILLS {
        let mut out = vec![fill; len];
        let dst = out.as_mut_slice().into();
        let done = decompress(width, Strictness::Strict, stream.into(), dst).ok();
        found.push(done.map(|done| out[..done].to_vec()));
    }
    assert!(found[0] == found[1] && found[1] == found[2], "what was there before is seen");
    found.pop().flatten()
}

/// Compresses and decodes bytes that lie in segments, and in pages where they may: the same has to come of it.
fn check_layout(width: Width, effort: Effort, data: &[u8], src: &[usize], dst: &[usize]) {
    let stream = packed(width, effort, data);
    let from = Cells::of(data, src);
    let room = bound(width, data.len());
    let is_paged = |lens: &[usize]| {
        lens.len() < 2
            || lens[0].is_power_of_two()
                && lens[lens.len() - 1] <= lens[0]
                && lens[..lens.len() - 1].iter().all(|&len| len == lens[0])
    };
    let mut scratch = Scratch::default();
    for pages in [false, true] {
        let to_lens = cut(room, dst);
        let stored_lens = cut(stream.len(), dst);
        if pages && !(is_paged(src) && is_paged(&to_lens) && is_paged(&stored_lens)) {
            continue;
        }
        let mut to = Cells::new(&to_lens, 0xAA);
        let done = if pages {
            let (from, mut to) = (from.read(), to.write());
            let (src, dst) = (Src::pages(&from).unwrap(), Dst::pages(&mut to).unwrap());
            compress(width, effort, src, dst, &mut scratch)
        } else {
            let (from, mut to) = (Segments::new(from.read()), SegmentsMut::new(to.write()));
            compress(width, effort, (&from).into(), (&mut to).into(), &mut scratch)
        };
        assert_eq!(done, Some(stream.len()));
        assert!(to.all()[..stream.len()] == stream, "{width:?} {effort:?}: other bytes by layout");
        // And back, with the same cuts.
        let stored = Cells::of(&stream, &stored_lens);
        let mut back = Cells::new(src, 0xFF);
        let done = if pages {
            let (stored, mut back) = (stored.read(), back.write());
            let (src, dst) = (Src::pages(&stored).unwrap(), Dst::pages(&mut back).unwrap());
            decompress(width, Strictness::Strict, src, dst)
        } else {
            let (stored, mut back) = (Segments::new(stored.read()), SegmentsMut::new(back.write()));
            decompress(width, Strictness::Strict, (&stored).into(), (&mut back).into())
        };
        assert_eq!(done.unwrap(), data.len());
        assert!(back.all() == data, "{width:?} {effort:?}: other content by layout");
    }
    assert_eq!(scratch.copied(), 0);
}

fn any_data() -> impl Strategy<Value = Vec<u8>> {
    let units = |kinds: u64| {
        proptest::collection::vec(0..kinds, 0..400).prop_map(|all| {
            all.iter().flat_map(|&i| (i * 0x0101_0203_0405_0607).to_le_bytes()).collect::<Vec<u8>>()
        })
    };
    let runs = proptest::collection::vec((0u8..3, 0usize..3000), 0..8)
        .prop_map(|runs| runs.iter().flat_map(|&(byte, len)| vec![byte; len]).collect::<Vec<u8>>());
    let data = prop_oneof![
        units(2),
        units(40),
        runs,
        proptest::collection::vec(any::<u8>(), 0..3000),
        proptest::collection::vec(0u8..2, 0..3000),
    ];
    // At any place of a unit.
    (data, 0usize..9).prop_map(|(data, skip)| data[skip.min(data.len())..].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn streams_come_back(data in any_data()) {
        for width in WIDTHS {
            for effort in EFFORTS {
                let stream = packed(width, effort, &data);
                prop_assert!(stream.len() <= bound(width, data.len()));
                prop_assert!(naive(width, &stream, data.len()).as_ref() == Some(&data));
                prop_assert!(unpacked(width, &stream, data.len()).as_ref() == Some(&data));
                // More room is no harm; less is told; the room that it took is enough.
                prop_assert!(unpacked(width, &stream, data.len() + 50).as_ref() == Some(&data));
                if !data.is_empty() {
                    prop_assert!(unpacked(width, &stream, data.len() - 1).is_none());
                }
                for (room, is_enough) in [(stream.len(), true), (stream.len().wrapping_sub(1), false)] {
                    let mut out = vec![0; room.min(stream.len())];
                    let room = out.as_mut_slice().into();
                    let done = compress(width, effort, data.as_slice().into(), room, &mut Scratch::default());
                    prop_assert_eq!(done, (is_enough || stream.is_empty()).then_some(stream.len()));
                }
            }
        }
    }

    #[test]
    fn layouts_do_not_matter(
        data in any_data(),
        src in proptest::collection::vec(1usize..200, 1..20),
        dst in proptest::collection::vec(1usize..200, 1..20),
        shift in 2u32..10,
    ) {
        for width in WIDTHS {
            for effort in [Effort::Thesis(1), Effort::Fast(1), Effort::Best(16)] {
                check_layout(width, effort, &data, &cut(data.len(), &src), &dst);
                let page = [1 << shift];
                check_layout(width, effort, &data, &cut(data.len(), &page), &page);
            }
        }
    }

    #[test]
    fn any_bytes_are_what_they_are_described_to_be(
        stream in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..200),
        len in 0usize..5000,
    ) {
        for width in WIDTHS {
            prop_assert_eq!(unpacked(width, &stream, len), naive(width, &stream, len));
        }
    }

    #[test]
    fn streams_behind_one_another_are_one(data in any_data(), chunk in 1usize..40) {
        for width in WIDTHS {
            for effort in EFFORTS {
                // Chunks are of whole units, but for the last.
                let chunks = data.chunks(8 * chunk);
                let all = chunks.flat_map(|chunk| packed(width, effort, chunk)).collect::<Vec<u8>>();
                prop_assert!(unpacked(width, &all, data.len()).as_ref() == Some(&data));
            }
        }
    }

    #[test]
    fn what_the_thesis_writes_is_read(data in any_data()) {
        // Lengths are whole units there, and nothing is behind them.
        for width in WIDTHS {
            let mut whole = data.clone();
            whole.resize(data.len().next_multiple_of(width.bytes()), 0);
            let stream = packed(width, Effort::Thesis(1), &whole);
            let mut out = vec![0xAA; data.len()];
            let dst = out.as_mut_slice().into();
            let done = decompress(width, Strictness::Thesis, stream.as_slice().into(), dst);
            prop_assert_eq!(done.unwrap(), data.len());
            prop_assert_eq!(&out, &data);
        }
    }
}

#[test]
fn every_cut_of_a_short_input_gives_the_same() {
    let data: Vec<u8> = (0..44u8).map(|i| if i < 20 { 7 } else { i / 9 }).collect();
    for width in WIDTHS {
        for effort in [Effort::Fast(1), Effort::Best(8)] {
            for one in 1..data.len() {
                for other in 1..20 {
                    check_layout(
                        width,
                        effort,
                        &data,
                        &cut(data.len(), &[one, other]),
                        &[other, one],
                    );
                }
            }
        }
    }
}

#[test]
fn all_streams_of_two_control_words_are_what_they_are_described_to_be() {
    // Literals and lengths of 0, 1, 2 and 255, and offsets of 0 to 2 and beyond.
    let triples: Vec<[u8; 4]> = [0, 1, 2, 255]
        .into_iter()
        .flat_map(|literals| {
            [0, 1, 255].into_iter().flat_map(move |matched| {
                [0u16, 1, 2, 300].into_iter().map(move |offset| {
                    let [low, high] = offset.to_le_bytes();
                    [literals, matched, low, high]
                })
            })
        })
        .collect();
    let filler: Vec<u8> = (0..=255).collect();
    for width in WIDTHS {
        let in_word = width.bytes() / 4;
        let mut words: Vec<Vec<[u8; 4]>> = triples.iter().map(|&triple| vec![triple]).collect();
        if in_word == 2 {
            // Of the second triples every fifth, which differs for each first.
            words = (0..triples.len() * triples.len())
                .filter(|i| i % 5 == 0)
                .map(|i| vec![triples[i / triples.len()], triples[i % triples.len()]])
                .collect();
        }
        let put = |word: &[[u8; 4]], has_literals: bool, stream: &mut Vec<u8>| {
            word.iter().for_each(|triple| stream.extend(triple));
            let units: usize = word.iter().map(|triple| usize::from(triple[0])).sum();
            let literals = filler.iter().cycle().take(units * width.bytes());
            stream.extend(literals.take(if has_literals { usize::MAX } else { 3 }));
        };
        let step = if in_word == 2 { 7 } else { 1 };
        for (i, first) in words.iter().enumerate() {
            for second in words.iter().skip(i % step).step_by(step) {
                for has_literals in [true, false] {
                    let mut stream = Vec::new();
                    put(first, true, &mut stream);
                    put(second, has_literals, &mut stream);
                    for most in [3000, 17] {
                        let found = unpacked(width, &stream, most);
                        assert_eq!(found, naive(width, &stream, most), "{width:?} {stream:?}");
                    }
                }
            }
        }
    }
}

/// Streams that were put together by hand, rule by rule, and what they decode to.
#[test]
fn streams_made_by_hand() {
    let cases: [(Width, &[u8], &[u8]); 9] = [
        (Width::Four, b"", b""),
        (Width::Four, b"abc", b"abc"),
        (Width::Four, b"\x01\0\0\0abcd", b"abcd"),
        (Width::Four, b"\x01\x02\x01\0abcd", b"abcdabcdabcd"),
        (Width::Four, b"\x02\x01\x02\0abcdefghxy", b"abcdefghabcdxy"),
        (Width::Four, b"\x01\x01\x01\0abcd\x00\x02\x02\0", b"abcdabcdabcdabcd"),
        (Width::Eight, b"1234567", b"1234567"),
        (Width::Eight, b"\x01\x01\x01\0\0\0\0\x0012345678", b"1234567812345678"),
        (
            Width::Eight,
            b"\x01\x01\x01\0\x01\x01\x03\0abcdefghABCDEFGHz",
            b"abcdefghabcdefghABCDEFGHabcdefghz",
        ),
    ];
    for (width, stream, content) in cases {
        assert_eq!(unpacked(width, stream, content.len()).as_deref(), Some(content));
        assert_eq!(naive(width, stream, content.len()).as_deref(), Some(content));
    }
    let told = |width, stream: &[u8], len: usize| {
        let mut out = vec![0; len];
        let dst = out.as_mut_slice().into();
        decompress(width, Strictness::Strict, stream.into(), dst).unwrap_err().to_string()
    };
    for (width, stream, len, what) in [
        (Width::Four, &b"\x02\0\0\0abcd"[..], 8, "ends within literals"),
        (Width::Four, b"\x01\x01\x02\0abcd", 8, "begins before its content"),
        (Width::Four, b"\x01\x01\0\0abcd", 8, "begins before its content"),
        (Width::Four, b"\x01\x01\x01\0abcd", 7, "more than is asked for"),
        (Width::Four, b"\x01\0\0\0abcdx", 4, "more than is asked for"),
        (Width::Four, b"\0\0\0\0", 8, "says nothing"),
        (Width::Eight, b"\0\0\0\0\x01\0\0\x0012345678", 8, "says nothing"),
        (Width::Four, b"\x01\0\x01\0abcd", 4, "says nothing"),
    ] {
        let error = told(width, stream, len);
        assert!(error.contains(what), "{error}");
    }
    // What is missing behind is known by the length, which a stream does not have.
    let (mut out, mut scratch) = ([0; 8], Scratch::default());
    let dst = Dst::from(&mut out[..]);
    let short = b"\x01\0\0\0abcd";
    assert!(Codec::BeWalgo32.decompress(short[..].into(), dst, &mut scratch).is_err());
}

#[test]
fn far_matches_and_long_ones() {
    // 65,535 units away is the last place that may be copied from.
    for width in WIDTHS {
        let unit = width.bytes();
        for away in [65_534usize, 65_535, 65_536, 65_537] {
            let mut data: Vec<u8> = (0..away as u64 * unit as u64 / 8 + 1)
                .flat_map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes())
                .take(away * unit)
                .collect();
            data.extend_from_within(..1000 * unit);
            for effort in EFFORTS {
                let stream = packed(width, effort, &data);
                assert!(unpacked(width, &stream, data.len()).as_ref() == Some(&data));
                // Of tables with places for few the first units are gone.
                if matches!(effort, Effort::Best(_)) {
                    assert_eq!(stream.len() < data.len() - 500 * unit, away <= 65_535);
                }
            }
        }
        let zeros = vec![0; 1 << 20];
        let stream = packed(width, Effort::Fast(1), &zeros);
        assert!(stream.len() <= (1 << 20) / unit / 255 * 4 + 3 * unit);
        assert!(unpacked(width, &stream, 1 << 20).as_ref() == Some(&zeros));
    }
}

#[test]
fn codecs_that_want_one_piece_get_it_and_say_what_that_cost() {
    let text = b"to be or not to be, that is the question; ".repeat(60);
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in()) {
        let mut scratch = Scratch::default();
        let level = codec.default_level();
        let mut stored = vec![0; text.len()];
        let dst = stored.as_mut_slice().into();
        let len = codec.compress(level, text.as_slice().into(), dst, &mut scratch).unwrap();
        let stored = &stored[..len.unwrap()];
        assert_eq!(scratch.copied(), 0);
        let from = Cells::of(&text, &cut(text.len(), &[256]));
        let mut to = Cells::new(&cut(text.len(), &[100, 3]), 0);
        let (segments, mut room) = (Segments::new(from.read()), SegmentsMut::new(to.write()));
        let done = codec.compress(level, (&segments).into(), (&mut room).into(), &mut scratch);
        assert_eq!(done.unwrap(), Some(stored.len()));
        assert!(&to.all()[..stored.len()] == stored, "{codec}");
        let is_native = matches!(codec, Codec::Lz4 | Codec::BeWalgo32 | Codec::BeWalgo64);
        let copied = if is_native { 0 } else { text.len() + stored.len() };
        assert_eq!(scratch.copied(), copied as u64, "{codec}");
        let mut back = Cells::new(&cut(text.len(), &[512]), 0);
        let mut pages = back.write();
        let room = Dst::pages(&mut pages).unwrap();
        codec.decompress(stored.into(), room, &mut scratch).unwrap();
        assert!(back.all() == text, "{codec}");
    }
}

#[test]
fn pages_have_one_length() {
    let page = [0u8; 64];
    for lens in [&[][..], &[5], &[64, 64, 64], &[64, 1], &[32, 32, 32, 7]] {
        let pages: Vec<&[u8]> = lens.iter().map(|&len| &page[..len]).collect();
        assert_eq!(Src::pages(&pages).unwrap().len(), lens.iter().sum::<usize>());
    }
    for lens in [&[5usize, 5][..], &[64, 32, 64], &[32, 64], &[64, 0], &[0, 0]] {
        let pages: Vec<&[u8]> = lens.iter().map(|&len| &page[..len]).collect();
        assert!(Src::pages(&pages).unwrap_err().to_string().contains("a power of two"));
    }
}

/// How many of the tests' contents are tried; fewer where each takes long.
const CONTENTS: u64 = if cfg!(miri) { 2 } else { 40 };

#[test]
fn borders_of_large_pieces_do_not_matter() {
    for seed in 0..CONTENTS {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        let lens: Vec<usize> = (0..20).map(|i| 1 + random.below([40, 300, 5000][i % 3])).collect();
        for width in WIDTHS {
            for effort in [Effort::Thesis(1), Effort::Fast(1), Effort::Best(16)] {
                check_layout(width, effort, &data, &cut(data.len(), &[4096]), &[4096]);
                check_layout(width, effort, &data, &cut(data.len(), &lens), &lens[3..]);
            }
        }
    }
}

#[test]
fn damage_is_the_same_in_all_layouts() {
    for seed in 0..CONTENTS {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        for width in WIDTHS {
            let good = packed(width, Effort::Fast(1), &data);
            for _ in 0..20 {
                let mut stream = good.clone();
                for _ in 0..1 + random.below(3) {
                    if let Some(byte) = (!stream.is_empty()).then(|| random.below(stream.len())) {
                        stream[byte] = random.below(256) as u8;
                    }
                }
                stream.truncate(stream.len() - random.below(9).min(stream.len()));
                let mut one = vec![0xAA; data.len()];
                let dst = one.as_mut_slice().into();
                let done = decompress(width, Strictness::Strict, stream.as_slice().into(), dst);
                let from = Cells::of(&stream, &cut(stream.len(), &[4096]));
                let mut to = Cells::new(&cut(data.len(), &[4096]), 0xAA);
                let in_pages = {
                    let (from, mut to) = (from.read(), to.write());
                    let (src, dst) = (Src::pages(&from).unwrap(), Dst::pages(&mut to).unwrap());
                    decompress(width, Strictness::Strict, src, dst)
                };
                match (done, in_pages) {
                    (Ok(len), Ok(other)) => {
                        assert_eq!(len, other);
                        assert!(one[..len] == to.all()[..len]);
                    }
                    (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
                    (one, other) => panic!("{one:?} in one piece, {other:?} in pages"),
                }
                let content = naive(width, &stream, data.len());
                assert_eq!(content, unpacked(width, &stream, data.len()));
            }
        }
    }
}
