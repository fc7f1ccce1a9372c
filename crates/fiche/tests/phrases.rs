//! Units of phrases: any range of them, whichever way it is read, is the content.

use fiche::phrases::{
    Coding, CompressedBuffer, Scratch, Way, compress, compress_within, deflate, index, transcode,
};
use fiche::testing::{Random, conformance};
use fiche::{Error, ReadAt};
use proptest::prelude::*;

/// Content of all kinds: noise, text, runs, repeats near and far.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::new();
    while out.len() < len {
        let n = 1 + random.below(300) as usize;
        match random.below(5) {
            0 => out.extend(random.bytes(n)),
            1 => out.extend(random.text(n)),
            2 => out.resize(out.len() + n, b'a' + random.below(3) as u8),
            _ if out.is_empty() => {}
            _ => {
                let from = random.below(out.len() as u64) as usize;
                (0..n).for_each(|i| out.push(out[from + i]));
            }
        }
    }
    out.truncate(len);
    out
}

/// The content as a unit in each coding, by each encoder at hand.
fn units(content: &[u8]) -> Vec<(&'static str, Coding, Vec<u8>)> {
    #[allow(unused_mut)]
    let mut units = vec![
        ("phrases", Coding::Lz77, compress(content).unwrap()),
        ("phrases, shallow", Coding::Lz77, compress_within(content, 2).unwrap()),
        ("deflate, short chains", Coding::Deflate, deflate(content, u32::MAX).unwrap()),
        ("deflate, shallow", Coding::Deflate, deflate(content, 3).unwrap()),
        ("snappy", Coding::Snappy, snap::raw::Encoder::new().compress_vec(content).unwrap()),
    ];
    #[cfg(feature = "zlib")]
    for level in [0, 1, 6, 9] {
        use std::io::Write;
        let level = flate2::Compression::new(level);
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(content).unwrap();
        units.push(("zlib", Coding::Deflate, encoder.finish().unwrap()));
    }
    for mode in [None, Some(lz4::block::CompressionMode::HIGHCOMPRESSION(9))] {
        let stored = lz4::block::compress(content, mode, false).unwrap();
        units.push(("lz4", Coding::Lz4, stored));
    }
    let same: Vec<_> = units
        .iter()
        .filter(|unit| unit.1 != Coding::Lz77)
        .map(|unit| ("the same phrases", Coding::Lz77, transcode(unit.1, &unit.2).unwrap()))
        .collect();
    units.extend(same);
    units
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_range_of_any_unit_is_the_content_either_way(
        seed: u64, len in 0usize..20_000, reads in proptest::collection::vec((any::<u64>(), any::<u64>()), 20)
    ) {
        let content = content(seed, len);
        let mut scratch = Scratch::default();
        for (name, coding, stored) in units(&content) {
            let unit = CompressedBuffer::open(coding, stored).unwrap();
            prop_assert_eq!(unit.len(), len as u64);
            for &(start, n) in &reads {
                let start = (start % (len as u64 + 1)) as usize;
                let n = (n % (len - start + 1) as u64) as usize;
                let wanted = &content[start..start + n];
                let mut out = vec![0xAA; n];
                let cost = unit.read_recursive(start as u64, &mut out, &mut scratch).unwrap();
                prop_assert!(out == wanted, "{} {} {}", name, start, n);
                prop_assert_eq!(cost.way, Way::Recursive);
                out.fill(0x55);
                let cost = unit.read_sequential(start as u64, &mut out, &mut scratch).unwrap();
                prop_assert!(out == wanted, "{} {} {}", name, start, n);
                prop_assert_eq!(cost.way, Way::Sequential);
                out.fill(0x33);
                unit.read(start as u64, &mut out, &mut scratch).unwrap();
                prop_assert!(out == wanted, "{} {} {}", name, start, n);
            }
        }
    }
}

#[test]
fn units_are_sources_like_any_other() {
    let content = content(11, 100_000);
    for (_, coding, stored) in units(&content) {
        conformance(&CompressedBuffer::open(coding, stored).unwrap(), &content, 5);
    }
}

/// A chain of 60,000 copies, each of the one before.
fn chain() -> Vec<u8> {
    let mut stored = vec![0x40, 1, 2, 3, 4, 4, 0];
    for _ in 0..60_000 {
        stored.extend([0x00, 4, 0]);
    }
    stored.extend([0x50, 5, 6, 7, 8, 9]);
    stored
}

#[test]
fn a_chain_without_end_is_not_followed_to_its_end() {
    let unit = CompressedBuffer::open(Coding::Lz4, chain()).unwrap();
    let mut scratch = Scratch::default();
    let mut out = [0; 8];
    let offset = 4 * 59_000;
    let cost = unit.read_recursive(offset, &mut out, &mut scratch).unwrap();
    assert_eq!(out, [1, 2, 3, 4, 1, 2, 3, 4]);
    assert!(cost.steps > 100_000, "{cost:?}");
    let chosen = unit.read(offset, &mut out, &mut scratch).unwrap();
    assert_eq!((chosen.way, out), (Way::Sequential, [1, 2, 3, 4, 1, 2, 3, 4]));
    // What was given up is tried again, since reads elsewhere may be cheaper, but seldom.
    assert!(chosen.steps > 0, "{chosen:?}");
    let mut tried = || {
        let costs = (0..600).map(|_| unit.read(offset, &mut out, &mut scratch).unwrap());
        costs.filter(|cost| cost.steps > 0).count()
    };
    let tries = tried();
    assert!((4..=20).contains(&tries), "{tries} of 600");
}

#[test]
fn short_reads_of_long_units_are_recursive_and_long_ones_are_not() {
    let content = content(2, 400_000);
    for (name, coding, stored) in units(&content) {
        if name == "zlib" || name == "lz4" || name == "the same phrases" {
            continue;
        }
        let unit = CompressedBuffer::open(coding, stored).unwrap();
        let mut scratch = Scratch::default();
        let mut random = Random(9);
        let mut way = |len: usize| {
            let mut recursive = 0;
            for _ in 0..50 {
                let offset = 200_000 + random.below((200_000 - len) as u64);
                let cost = unit.read(offset, &mut vec![0; len], &mut scratch).unwrap();
                recursive += u32::from(cost.way == Way::Recursive);
            }
            recursive
        };
        assert!(way(8) >= 45, "{name}");
        assert!(way(100_000) <= 5, "{name}");
    }
}

#[test]
fn copies_are_taken_from_no_deeper_than_was_said() {
    let content = content(4, 60_000);
    let mut scratch = Scratch::default();
    for depth in [1, 2, 5] {
        for (coding, stored) in [
            (Coding::Lz77, compress_within(&content, depth).unwrap()),
            (Coding::Lz77, transcode(Coding::Deflate, &deflate(&content, depth).unwrap()).unwrap()),
        ] {
            let unit = CompressedBuffer::open(coding, stored).unwrap();
            for at in (0..content.len() as u64).step_by(7) {
                let cost = unit.read_recursive(at, &mut [0], &mut scratch).unwrap();
                // A look for each copy, and one for the literal; each look is counted twice.
                assert!(cost.steps <= 2 * (depth + 1), "{depth}: {cost:?} at {at}");
            }
        }
    }
}

#[test]
fn an_index_that_was_kept_is_that_of_its_stream_only() {
    let content = content(7, 50_000);
    for (_, coding, stored) in units(&content) {
        if coding == Coding::Lz77 {
            assert!(matches!(index(coding, &stored), Err(Error::Invalid { .. })));
            assert!(matches!(
                CompressedBuffer::open_indexed(coding, stored, &[]),
                Err(Error::Invalid { .. })
            ));
            continue;
        }
        let kept = index(coding, &stored).unwrap();
        let unit = CompressedBuffer::open_indexed(coding, stored.clone(), &kept).unwrap();
        let mut out = [0; 100];
        unit.read_at(40_000, &mut out).unwrap();
        assert!(out == content[40_000..40_100]);
        let sizes = unit.sizes();
        assert_eq!((sizes.index, sizes.content), (kept.len() as u64, 50_000));
        let mut other = stored.clone();
        other[100] ^= 1;
        let error = CompressedBuffer::open_indexed(coding, other, &kept);
        assert!(matches!(error, Err(Error::Changed { .. })), "{error:?}");
        for at in (0..kept.len()).step_by(1 + kept.len() / 500) {
            let mut bad = kept.clone();
            bad[at] ^= 1 << (at % 8);
            let error = CompressedBuffer::open_indexed(coding, stored.clone(), &bad);
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{at}: {error:?}");
        }
        for cut in [0, 1, 4, kept.len() / 2, kept.len() - 1] {
            let error = CompressedBuffer::open_indexed(coding, stored.clone(), &kept[..cut]);
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{cut}: {error:?}");
        }
        let other = if coding == Coding::Lz4 { Coding::Snappy } else { Coding::Lz4 };
        let error = CompressedBuffer::open_indexed(other, stored, &kept);
        assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
    }
}

#[test]
fn streams_that_are_cut_or_go_on_are_not_transcoded() {
    for (coding, stored) in [
        (Coding::Snappy, &[10, 4 << 2, b'h', b'e', b'l', b'l', b'o'][..]),
        (Coding::Lz4, &[]),
        (Coding::Deflate, b"\x03\x00more"),
        (Coding::Deflate, b"\x03"),
    ] {
        assert!(matches!(transcode(coding, stored), Err(Error::Corrupt { .. })), "{stored:?}");
        assert!(matches!(CompressedBuffer::open(coding, stored), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn lengths_that_were_not_read_before_are_tried() {
    // Phrases of a thousand bytes: long reads take few steps.
    let content = Random(3).bytes(1000).repeat(4);
    let content: Vec<u8> = (0..60).flat_map(|i| [&content[..], &[i]].concat()).collect();
    let unit = CompressedBuffer::open(Coding::Lz77, compress(&content).unwrap()).unwrap();
    let mut scratch = Scratch::default();
    for i in 0..20 {
        unit.read(9000 + 4001 * i, &mut [0; 8], &mut scratch).unwrap();
    }
    let mut out = vec![0; 1000];
    let cost = unit.read(200_000, &mut out, &mut scratch).unwrap();
    assert_eq!(cost.way, Way::Recursive, "{cost:?}");
    assert!(out == content[200_000..201_000]);
}

#[test]
fn damaged_and_cut_units_are_errors() {
    let content = content(8, 20_000);
    let stored = compress(&content).unwrap();
    for at in 0..stored.len() {
        let mut bad = stored.clone();
        bad[at] ^= 1 << (at % 8);
        let error = CompressedBuffer::open(Coding::Lz77, bad);
        assert!(matches!(error, Err(Error::Corrupt { .. })), "{at}: {error:?}");
    }
    for cut in 0..100.min(stored.len()) {
        for cut in [cut, stored.len() - 1 - cut] {
            let error = CompressedBuffer::open(Coding::Lz77, &stored[..cut]);
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{cut}: {error:?}");
        }
    }
    for (name, coding, stored) in units(&content) {
        // What ends too soon.
        if coding != Coding::Lz77 {
            let error = CompressedBuffer::open(coding, &stored[..stored.len() - 1]);
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{name}: {error:?}");
        }
        if coding == Coding::Deflate {
            let error = CompressedBuffer::open(coding, [&stored[..], b"more"].concat());
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{name}: {error:?}");
        }
    }
}

#[test]
fn a_range_behind_the_end_is_out_of_bounds() {
    for (_, coding, stored) in units(b"content") {
        let unit = CompressedBuffer::open(coding, stored).unwrap();
        for (offset, len) in [(7, 1), (8, 0), (0, 8), (u64::MAX, 2)] {
            let error = unit.read_at(offset, &mut vec![0; len]);
            assert!(matches!(error, Err(Error::OutOfBounds { .. })), "{error:?}");
        }
        unit.read_at(7, &mut []).unwrap();
    }
}

#[test]
fn the_memory_of_an_extraction_is_what_it_says() {
    let content = content(5, 250_000);
    for (name, coding, stored) in units(&content) {
        let unit = CompressedBuffer::open(coding, stored).unwrap();
        let mut out = vec![0; 64];
        for way in [Way::Recursive, Way::Sequential] {
            let mut claimed = 0;
            let used = allocation_counter::measure(|| {
                let mut scratch = Scratch::default();
                claimed = match way {
                    Way::Recursive => unit.read_recursive(200_000, &mut out, &mut scratch),
                    _ => unit.read_sequential(200_000, &mut out, &mut scratch),
                }
                .unwrap()
                .peak_bytes;
            });
            // A scratch has a decoder to begin with.
            let used = used.bytes_max as usize;
            assert!(used <= 2 * claimed + (20 << 10), "{name} {way:?}: {used} {claimed}");
        }
    }
}

/// Every decoder of deflate reads what has short chains.
#[cfg(feature = "zlib")]
#[test]
fn streams_with_short_chains_are_deflate() {
    use std::io::Read;
    for (seed, len) in [(1, 0), (2, 1), (3, 5), (4, 1000), (5, 200_000), (6, 70_000)] {
        let content = content(seed, len);
        for depth in [1, 4, u32::MAX] {
            let stored = deflate(&content, depth).unwrap();
            let mut back = Vec::new();
            flate2::read::DeflateDecoder::new(&stored[..]).read_to_end(&mut back).unwrap();
            assert!(back == content);
            back.fill(0);
            let mut decompressor = libdeflater::Decompressor::new();
            let got = decompressor.deflate_decompress(&stored, &mut back).unwrap();
            assert_eq!(got, len);
            assert!(back == content);
        }
    }
}

/// A deflate stream of blocks of all kinds: one without content first and between, a stored one, codes of its own and
/// fixed ones.
#[cfg(feature = "zlib")]
fn blocks(content: &[u8]) -> Vec<u8> {
    const NOTHING: [u8; 5] = [0, 0, 0, 0xFF, 0xFF];
    let (stored, rest) = content.split_at(3000);
    let len = stored.len() as u16;
    let mut stream = NOTHING.to_vec();
    stream.push(0);
    stream.extend(len.to_le_bytes());
    stream.extend((!len).to_le_bytes());
    stream.extend(stored);
    let mut deflate = flate2::Compress::new(flate2::Compression::new(6), false);
    let (many, few) = rest.split_at(rest.len() - 20);
    stream.reserve(2 * content.len());
    deflate.compress_vec(many, &mut stream, flate2::FlushCompress::Full).unwrap();
    deflate.compress_vec(few, &mut stream, flate2::FlushCompress::Finish).unwrap();
    stream
}

#[cfg(feature = "zlib")]
#[test]
fn blocks_of_all_kinds_are_read() {
    let content = content(12, 30_000);
    let unit = CompressedBuffer::open(Coding::Deflate, blocks(&content)).unwrap();
    conformance(&unit, &content, 6);
    let mut scratch = Scratch::default();
    let mut out = vec![0; 700];
    for at in (0..29_300).step_by(97) {
        unit.read_recursive(at, &mut out, &mut scratch).unwrap();
        assert!(out == content[at as usize..at as usize + 700], "{at}");
    }
}

/// A file for each coding, the index of those that have one, and their content.
#[cfg(feature = "zlib")]
#[test]
fn golden_units_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/phrases");
    let names = [
        "lz77",
        "deflate",
        "lz4",
        "snappy",
        "zlib",
        "lz77-nothing",
        "snappy-nothing",
        "deflate-blocks",
        "lz77-literals",
    ];
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        let text = content(1, 30_000);
        let noise = Random(6).bytes(50);
        for name in names {
            let content = match name {
                "lz77-nothing" | "snappy-nothing" => &[][..],
                "lz77-literals" => &noise,
                _ => &text,
            };
            let all = units(content);
            let (coding, stored) = match name {
                "deflate" => (Coding::Deflate, all[3].2.clone()),
                "deflate-blocks" => (Coding::Deflate, blocks(content)),
                "zlib" => (Coding::Deflate, all[7].2.clone()),
                "lz4" => (Coding::Lz4, all[9].2.clone()),
                "snappy" | "snappy-nothing" => (Coding::Snappy, all[4].2.clone()),
                _ => (Coding::Lz77, all[0].2.clone()),
            };
            let path = folder.join(format!("{name}.unit"));
            if path.exists() {
                continue;
            }
            if coding != Coding::Lz77 {
                let kept = index(coding, &stored).unwrap();
                std::fs::write(path.with_extension("index"), kept).unwrap();
            }
            std::fs::write(&path, stored).unwrap();
            std::fs::write(path.with_extension("content"), content).unwrap();
        }
    }
    for name in names {
        let coding = match name.split('-').next() {
            Some("lz77") => Coding::Lz77,
            Some("lz4") => Coding::Lz4,
            Some("snappy") => Coding::Snappy,
            _ => Coding::Deflate,
        };
        let path = folder.join(format!("{name}.unit"));
        let stored = std::fs::read(&path).unwrap();
        let unit = match coding {
            Coding::Lz77 => CompressedBuffer::open(coding, stored).unwrap(),
            _ => {
                let kept = std::fs::read(path.with_extension("index")).unwrap();
                CompressedBuffer::open_indexed(coding, stored, &kept).unwrap()
            }
        };
        conformance(&unit, &std::fs::read(path.with_extension("content")).unwrap(), 3);
    }
}
