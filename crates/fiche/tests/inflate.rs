//! Inflating: the bytes that other programs deflated, from any bit, in any pieces, and the same verdict as
//! zlib's on whatever is damaged.
#![cfg(feature = "zlib")]

use fiche::codec::deflate::{FLUSH, Fault, Inflate, Input, LAST_BLOCK, Partitioner, Pause, WINDOW};
use fiche::testing::{Random, inflate_as_zlib};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use proptest::prelude::*;

/// Content of each kind: what is coded by fixed codes, by its own, and not at all; near matches and far ones.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(3);
    let mut mixed = Vec::new();
    while mixed.len() < 300_000 {
        let len = 1 + random.below(3000) as usize;
        match random.below(5) {
            0 => mixed.extend(random.bytes(len)),
            1 => mixed.extend(vec![random.number() as u8; len]),
            2 if mixed.len() > 40_000 => {
                let from = mixed.len() - 1 - random.below(40_000) as usize;
                mixed.extend_from_within(from..(from + len).min(mixed.len()));
            }
            3 => {
                let piece = random.bytes(1 + len % 40);
                mixed.extend(piece.iter().cycle().take(len));
            }
            _ => mixed.extend(random.text(len)),
        }
    }
    // Literals of very different frequency have codes longer than any first look.
    let skewed = (0..200_000).map(|_| (random.number().leading_zeros() * 7) as u8).collect();
    vec![
        ("nothing", Vec::new()),
        ("a byte", vec![7]),
        ("short", b"abracadabra".to_vec()),
        ("zeros", vec![0; 100_000]),
        ("all bytes", (0..=255).cycle().take(70_000).collect()),
        ("noise", random.bytes(150_000)),
        ("text", random.text(400_000)),
        ("mixed", mixed),
        ("skewed", skewed),
    ]
}

fn zlib(content: &[u8], level: u32) -> Vec<u8> {
    let mut compress = Compress::new(Compression::new(level), false);
    let mut out = Vec::with_capacity(content.len() * 2 + 1000);
    assert_eq!(
        compress.compress_vec(content, &mut out, FlushCompress::Finish).unwrap(),
        Status::StreamEnd
    );
    out
}

fn libdeflate(content: &[u8], level: i32) -> Vec<u8> {
    let mut compressor =
        libdeflater::Compressor::new(libdeflater::CompressionLvl::new(level).unwrap());
    let mut out = vec![0; compressor.deflate_compress_bound(content.len())];
    let len = compressor.deflate_compress(content, &mut out).unwrap();
    out.truncate(len);
    out
}

fn streams(content: &[u8]) -> Vec<(String, Vec<u8>)> {
    let by_zlib = [0, 1, 6, 9].map(|level| (format!("zlib {level}"), zlib(content, level)));
    let by_libdeflate =
        [1, 6, 12].map(|level| (format!("libdeflate {level}"), libdeflate(content, level)));
    by_zlib.into_iter().chain(by_libdeflate).collect()
}

#[test]
fn what_others_deflated_is_inflated_and_no_further_than_asked_for() {
    let mut random = Random(4);
    for (what, content) in contents() {
        for (by, stream) in streams(&content) {
            let mut out = vec![0; content.len()];
            let (mut inflate, mut input, mut at) = (Inflate::new(), Input::new(&stream, 0), 0);
            // In pieces that end anywhere.
            while at < out.len() {
                let most = 1 << random.below(17);
                let end = (at + 1 + random.below(most) as usize).min(out.len());
                let pause = inflate.run(&mut input, &mut out[..end], &mut at);
                assert_eq!(pause, Ok(Pause::Full), "{what}, {by}, {at}");
                assert_eq!(at, end);
            }
            assert!(out == content, "{what}, {by}");
            assert_eq!(inflate.finish(&mut input), Ok(Pause::End), "{what}, {by}");
            assert_eq!(input.byte(), stream.len());
            // A byte too much room.
            inflate.reset();
            let (mut out, mut at) = (vec![0; content.len() + 1], 0);
            let pause = inflate.run(&mut Input::new(&stream, 0), &mut out, &mut at);
            assert_eq!((pause, at), (Ok(Pause::End), content.len()));
        }
    }
}

/// Decodes a stream of which so many bytes more are here each time; what a program does that reads a pipe.
fn in_pieces(stream: &[u8], mut piece: impl FnMut() -> usize, room: usize) -> Vec<u8> {
    let (mut all, mut buf, mut at) = (Vec::new(), vec![0; WINDOW + room], 0);
    let (mut inflate, mut bit, mut here) = (Inflate::new(), 0, 0);
    loop {
        let from = bit / 8;
        let mut input = Input::open(&stream[from..here], bit % 8);
        let before = at;
        let pause = inflate.run(&mut input, &mut buf, &mut at).unwrap();
        bit = 8 * from + input.bit();
        all.extend_from_slice(&buf[before..at]);
        match pause {
            Pause::End => return all,
            Pause::Hungry => {
                assert!(here < stream.len(), "all of it was not enough");
                here = (here + piece()).min(stream.len());
            }
            Pause::Block | Pause::Full => {
                buf.copy_within(at - WINDOW..at, 0);
                at = WINDOW;
            }
        }
    }
}

#[test]
fn a_stream_may_come_in_pieces_through_a_window() {
    let mut random = Random(5);
    for (what, content) in contents() {
        for (by, stream) in streams(&content) {
            let large = in_pieces(&stream, || 1 + random.below(70_000) as usize, 40_000);
            assert!(large == content, "{what}, {by}");
            if content.len() < 120_000 {
                assert!(in_pieces(&stream, || 1, 1) == content, "{what}, {by}");
            }
        }
    }
}

#[test]
fn a_decoder_is_set_down_at_any_block() {
    let content = contents().into_iter().find(|(what, _)| *what == "mixed").unwrap().1;
    for (by, stream) in streams(&content) {
        let (mut inflate, mut input) = (Inflate::new(), Input::new(&stream, 0));
        let (mut out, mut at, mut starts) = (vec![0; content.len()], 0, vec![(0, 0)]);
        loop {
            let room = (at + 10_000).min(content.len());
            match inflate.run_block(&mut input, &mut out[..room], &mut at).unwrap() {
                Pause::Block => starts.push((input.bit(), at)),
                Pause::Full => {}
                other => break assert_eq!((other, at), (Pause::End, content.len())),
            }
        }
        // zlib's first level makes one block of all.
        assert!(starts.len() > 2 || by == "zlib 1", "{by}: {}", starts.len());
        for &(bit, start) in &starts {
            let window = start.min(WINDOW);
            let end = (start + 50_000).min(content.len());
            let mut buf = content[start - window..end].to_vec();
            buf[window..].fill(0);
            let mut at = window;
            let pause = Inflate::new().run(&mut Input::new(&stream, bit), &mut buf, &mut at);
            assert_eq!(pause, Ok(Pause::Full));
            assert!(buf == content[start - window..end], "{by}");
        }
    }
}

#[test]
fn what_is_damaged_is_judged_as_zlib_does() {
    let mut random = Random(6);
    let mut faults = std::collections::BTreeMap::<String, u32>::new();
    for (_, content) in contents() {
        let content = &content[..content.len().min(20_000)];
        for (_, stream) in streams(content) {
            for round in 0..300 {
                let mut damaged = stream.clone();
                for _ in 0..1 + round % 3 {
                    // Headers are where most can be wrong.
                    let within = damaged.len().min(if round % 2 == 0 { 80 } else { usize::MAX });
                    let at = random.below(within as u64) as usize;
                    damaged[at] ^= 1 << random.below(8);
                }
                if round % 7 == 0 {
                    damaged.truncate(random.below(damaged.len() as u64 + 1) as usize);
                }
                let verdict = inflate_as_zlib(&damaged, 2 * content.len() + 10);
                *faults.entry(format!("{verdict:?}")).or_default() += 1;
            }
        }
    }
    // All that can be wrong was, but for the end of what may go on.
    assert!(faults.len() >= 13, "{faults:?}");
}

#[test]
fn partitions_are_one_stream_and_each_is_one_by_itself() {
    let mut random = Random(7);
    for (what, content) in contents() {
        for level in [1, 6, 12] {
            let mut partitioner = Partitioner::new(level).unwrap();
            let (mut stream, mut at, mut parts) = (Vec::new(), 0, Vec::new());
            while at < content.len() || parts.is_empty() {
                let most = 1 << random.below(18);
                let end = (at + random.below(most) as usize).min(content.len());
                let start = stream.len();
                partitioner.put(&content[at..end], &mut stream).unwrap();
                assert!(stream.ends_with(&FLUSH));
                parts.push((start, at..end));
                at = end;
            }
            stream.extend(LAST_BLOCK);
            for (start, range) in parts {
                let mut out = vec![0; range.len()];
                let mut input = Input::new(&stream[start..], 0);
                let pause = Inflate::new().run(&mut input, &mut out, &mut 0);
                assert_eq!(pause, Ok(Pause::Full), "{what} {level}");
                assert!(out == content[range]);
            }
            let (whole, verdict) = (zlib_inflated(&stream, content.len()), Some(Status::StreamEnd));
            assert_eq!(whole.1, verdict, "{what} {level}");
            assert!(whole.0 == content);
            let mut libdeflate = libdeflater::Decompressor::new();
            let mut out = vec![0; content.len()];
            assert_eq!(libdeflate.deflate_decompress(&stream, &mut out), Ok(content.len()));
        }
    }
    assert!(Partitioner::new(13).is_err() && Partitioner::new(0).is_err());
}

fn zlib_inflated(stream: &[u8], len: usize) -> (Vec<u8>, Option<Status>) {
    let (mut decompress, mut out) = (Decompress::new(false), vec![0; len]);
    let mut status = decompress.decompress(stream, &mut out, FlushDecompress::Finish);
    if matches!(status, Ok(Status::Ok | Status::BufError)) {
        let rest = &stream[decompress.total_in() as usize..];
        status = decompress.decompress(rest, &mut [0], FlushDecompress::Finish);
    }
    out.truncate(decompress.total_out() as usize);
    (out, status.ok())
}

/// Writes bits, the lowest first.
#[derive(Default)]
struct Pen(Vec<bool>);

impl Pen {
    fn bits(mut self, value: u32, count: u32) -> Pen {
        self.0.extend((0..count).map(|i| value >> i & 1 == 1));
        self
    }

    /// A code, the highest bit of which comes first.
    fn code(mut self, value: u32, count: u32) -> Pen {
        self.0.extend((0..count).rev().map(|i| value >> i & 1 == 1));
        self
    }

    /// The header of a block with codes of its own, whose code lengths are written by codes of four bits:
    /// 0 to 12, then 16, 17, 18.
    fn header(self, symbols: u32, distances: u32) -> Pen {
        let mut pen = self.bits(1, 1).bits(2, 2).bits(symbols - 257, 5).bits(distances - 1, 5);
        pen = pen.bits(15, 4);
        for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
            pen = pen.bits(if matches!(symbol, 13..=15) { 0 } else { 4 }, 3);
        }
        pen
    }

    /// So many zeros for lengths.
    fn none(mut self, mut count: u32) -> Pen {
        while count > 0 {
            let now = count.min(138);
            if now < 11 {
                self = self.code(0, 4);
                count -= 1;
            } else {
                self = self.code(15, 4).bits(now - 11, 7);
                count -= now;
            }
        }
        self
    }

    fn len(self, len: u32) -> Pen {
        self.code(len, 4)
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | bit as u8);
        self.0.chunks(8).map(byte).collect()
    }
}

#[test]
fn each_fault_has_its_name() {
    let pen = Pen::default;
    // Of a block with an end of one bit and another symbol of one bit.
    let two =
        |other: u32| pen().header(286, 1).none(other).len(1).none(255 - other).len(1).none(29);
    let cases: Vec<(Pen, Fault)> = vec![
        (pen().bits(1, 1).bits(3, 2), Fault::BlockType),
        (pen().bits(1, 8).bits(5, 16).bits(5, 16), Fault::StoredLength),
        (pen().bits(1, 1).bits(2, 2).bits(30, 5).bits(0, 9), Fault::TooManyCodes),
        (pen().bits(1, 1).bits(2, 2).bits(0, 5).bits(30, 5).bits(0, 4), Fault::TooManyCodes),
        (pen().bits(1, 1).bits(2, 2).bits(0, 14).bits(1, 3).bits(0, 9), Fault::LengthCode),
        (pen().bits(1, 1).bits(2, 2).bits(0, 14).bits(0o1111, 12), Fault::LengthCode),
        (pen().bits(1, 1).bits(2, 2).bits(0, 14).bits(0, 12), Fault::NoEnd),
        (pen().header(257, 1).code(13, 4).bits(0, 2), Fault::Repeat),
        (pen().header(257, 1).none(250).code(15, 4).bits(0, 7), Fault::Repeat),
        (pen().header(257, 1).none(258), Fault::NoEnd),
        (pen().header(257, 1).none(254).len(1).len(1).len(1).len(1), Fault::SymbolCode),
        (pen().header(257, 1).none(255).len(2).len(2).len(1), Fault::SymbolCode),
        (pen().header(257, 3).none(256).len(1).len(1).len(1).len(1), Fault::DistanceCode),
        (pen().header(257, 2).none(256).len(1).len(2).len(2), Fault::DistanceCode),
        (pen().header(257, 1).none(256).len(1).len(0).code(1, 1), Fault::Symbol),
        (pen().bits(1, 1).bits(1, 2).code(0b1100_0110, 8), Fault::Symbol),
        (pen().bits(1, 1).bits(1, 2).code(1, 7).code(30, 5), Fault::Distance),
        (two(0).len(0).code(0, 1).code(0, 1), Fault::Truncated),
        (pen().bits(1, 1).bits(1, 2).code(1, 7).code(0, 5), Fault::FarBack),
        (pen().bits(1, 1), Fault::Truncated),
        (pen().bits(1, 8).bits(5, 16).bits(!5, 16).bits(9, 8), Fault::Truncated),
        (pen(), Fault::Truncated),
    ];
    for (i, (pen, fault)) in cases.into_iter().enumerate() {
        let mut stream = pen.bytes();
        if fault == Fault::Truncated {
            let (mut out, mut at) = ([0; 100], 0);
            let cut = Inflate::new().run(&mut Input::new(&stream, 0), &mut out, &mut at);
            assert_eq!(cut, Err(fault), "case {i}");
            assert_eq!(inflate_as_zlib(&stream, 100), Ok(Pause::Hungry), "case {i}");
            continue;
        }
        stream.extend([0; 64]);
        assert_eq!(inflate_as_zlib(&stream, 100), Err(fault), "case {i}");
        assert!(fault.at(9).to_string().starts_with("damaged: "));
    }
}

#[test]
fn what_is_cut_may_go_on() {
    // A repeated length, cut within the number of times: what that was does not matter yet.
    let stream = [0x9C, 0x69, 0x03, 0xB6, 0x00, 0x00, 0x40, 0x24];
    assert_eq!(inflate_as_zlib(&stream, 42_901), Ok(Pause::Hungry));
}

#[test]
fn codes_that_mean_little_are_taken_where_zlib_takes_them() {
    // An end, and nothing else, with no distance or one.
    for distance in [0, 1] {
        let pen = Pen::default().header(257, 1).none(256).len(1).len(distance).code(0, 1);
        assert_eq!(inflate_as_zlib(&pen.bytes(), 100), Ok(Pause::End));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_judged_as_zlib_does(bytes in prop::collection::vec(any::<u8>(), 0..400), room in 0..5000usize) {
        if room > 0 {
            let _ = inflate_as_zlib(&bytes, room);
        }
    }

    #[test]
    fn any_content_comes_back(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..9), 1..200usize), 0..60),
        level in 0..10u32,
    ) {
        let mut content = Vec::new();
        for (piece, times) in pieces {
            (0..times).for_each(|_| content.extend(&piece));
        }
        let stream = zlib(&content, level);
        let (mut out, mut at) = (vec![0; content.len() + 1], 0);
        let pause = Inflate::new().run(&mut Input::new(&stream, 0), &mut out, &mut at);
        prop_assert_eq!(pause, Ok(Pause::End));
        prop_assert!(out[..at] == content);
    }
}
