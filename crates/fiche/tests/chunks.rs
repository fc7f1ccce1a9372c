//! Chunks: the same bytes for any number of threads and any layout, and any range out of them.

mod pieces;

use fiche::codec::bewalgo::{Strictness, Width, decompress};
use fiche::codec::chunks::{Chunks, Table};
use fiche::codec::{Codec, Scratch};
use fiche::{Dst, Segments, SegmentsMut, Src};

use self::pieces::{Cells, Random, cut, several_pages};

fn all(chunks: &Chunks) -> Vec<u8> {
    let mut all = vec![0; *chunks.table().ends().last().unwrap_or(&0)];
    let segments = chunks.segments();
    let dst = all.as_mut_slice().into();
    Codec::Copy.decompress((&segments).into(), dst, &mut Scratch::default()).unwrap();
    all
}

fn codecs() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in())
}

#[test]
fn threads_and_layouts_do_not_matter() {
    for seed in 0..6 {
        let data = several_pages(&mut Random(seed));
        let from = Cells::of(&data, &cut(data.len(), &[4096]));
        let uneven = Cells::of(&data, &cut(data.len(), &[100, 5000, 7]));
        for codec in codecs() {
            let level = codec.default_level();
            for chunk in [4096, 8192, 1000] {
                let src = Src::from(data.as_slice());
                let one = Chunks::compress(codec, level, src, chunk, 1).unwrap();
                let stored = all(&one);
                let pages = from.read();
                let (pages, segments) = (Src::pages(&pages).unwrap(), Segments::new(uneven.read()));
                for (src, threads) in
                    [(src, 2), (src, 5), (pages, 1), (pages, 3), ((&segments).into(), 2)]
                {
                    let other = Chunks::compress(codec, level, src, chunk, threads).unwrap();
                    assert_eq!(one.table(), other.table());
                    assert!(all(&other) == stored, "{codec} on {threads} threads");
                }
            }
        }
    }
}

#[test]
fn any_range_is_read_into_any_layout() {
    let mut scratch = Scratch::default();
    for seed in 0..6 {
        let mut random = Random(seed);
        let data = several_pages(&mut random);
        for codec in codecs() {
            let src = data.as_slice().into();
            let chunks = Chunks::compress(codec, codec.default_level(), src, 4096, 2).unwrap();
            let (pieces, table) = (chunks.segments(), chunks.table());
            let stored = all(&chunks);
            for _ in 0..20 {
                let from = random.below(data.len() + 1);
                let len = random.below(data.len() - from + 1);
                let (mut out, wanted) = (vec![0xAA; len], &data[from..from + len]);
                table
                    .decompress_range((&pieces).into(), from, (&mut out[..]).into(), &mut scratch)
                    .unwrap();
                assert!(out == wanted, "{codec}: {len} bytes from {from}");
                let mut cells = Cells::new(&cut(len, &[256]), 0xAA);
                let mut pages = cells.write();
                let dst = Dst::pages(&mut pages).unwrap();
                table.decompress_range(stored.as_slice().into(), from, dst, &mut scratch).unwrap();
                assert!(cells.all() == wanted);
                let mut cells = Cells::new(&cut(len, &[3, 700, 41]), 0xAA);
                let mut room = SegmentsMut::new(cells.write());
                table
                    .decompress_range((&pieces).into(), from, (&mut room).into(), &mut scratch)
                    .unwrap();
                assert!(cells.all() == wanted);
            }
            let mut out = [0; 2];
            let dst = out.as_mut_slice().into();
            let beyond =
                table.decompress_range((&pieces).into(), data.len().max(1) - 1, dst, &mut scratch);
            assert!(beyond.is_err());
            // What is cut is an error, and says where its chunk begins.
            if stored.len() > 10 {
                let cut = &stored[..stored.len() - 7];
                let mut out = vec![0; data.len()];
                let error = table
                    .decompress_range(cut.into(), 0, (&mut out[..]).into(), &mut scratch)
                    .unwrap_err();
                let ends = table.ends();
                let start = if ends.len() < 2 { 0 } else { ends[ends.len() - 2] };
                assert!(error.to_string().contains(&format!("{start}")), "{error}");
            }
        }
    }
}

#[test]
fn streams_of_bewalgo_are_one_stream() {
    for seed in 0..6 {
        let data = several_pages(&mut Random(seed));
        for (codec, width) in [(Codec::BeWalgo32, Width::Four), (Codec::BeWalgo64, Width::Eight)] {
            let chunks = Chunks::compress(codec, 1, data.as_slice().into(), 1024, 2).unwrap();
            let segments = chunks.segments();
            let mut out = vec![0xAA; data.len()];
            let done =
                decompress(width, Strictness::Strict, (&segments).into(), (&mut out[..]).into());
            assert!(done.unwrap() == data.len() && out == data);
        }
    }
}

#[test]
fn tables_that_are_none_are_refused() {
    let table = |chunk, len, ends: &[usize]| Table::of(Codec::BeWalgo32, chunk, len, ends.to_vec());
    assert!(table(8, 17, &[3, 3, 9]).is_ok());
    for (chunk, len, ends) in
        [(0, 1, &[1][..]), (9, 1, &[1]), (8, 17, &[3, 3]), (8, 17, &[3, 2, 9]), (8, 0, &[1])]
    {
        assert!(table(chunk, len, ends).is_err(), "{chunk} {len} {ends:?}");
    }
}

#[test]
fn more_than_a_block_has_is_refused_by_every_codec() {
    let data = b"what is there, and what is there, and no more than that ".repeat(40);
    let mut scratch = Scratch::default();
    for codec in codecs() {
        let mut stored = vec![0; data.len() + 100];
        let dst = stored.as_mut_slice().into();
        let level = codec.default_level();
        let len = codec.compress(level, data.as_slice().into(), dst, &mut scratch).unwrap();
        let stored = &stored[..len.unwrap()];
        for want in [0, 1, 100, data.len() - 1, data.len(), data.len() + 1, data.len() + 999] {
            let mut out = vec![0xAA; want];
            let dst = out.as_mut_slice().into();
            let done = codec.decompress_front(stored.into(), data.len(), dst, &mut scratch);
            assert_eq!(done.is_ok(), want <= data.len(), "{codec}: {want}");
            assert!(done.is_err() || out == data[..want], "{codec}: {want}");
        }
    }
}
