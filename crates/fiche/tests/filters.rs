//! Archives whose blocks are filtered: they give back what they took, piece by piece, after all that happens to archives.

use std::io::Write as _;
use std::sync::Arc;

use fiche::archive::{Options, Reader, Writer, append, merge};
use fiche::codec::Codec;
use fiche::codec::filter::Filter;
use fiche::testing::Random;
use fiche::{FileSource, ReadAt as _};

/// Measurements as floats of so many bytes, with noise in their lowest bits, and bytes that are no whole element behind them.
fn floats(width: usize, count: usize) -> Vec<u8> {
    let mut random = Random(11);
    let mut bytes = Vec::new();
    for i in 0..count {
        let noise = random.below(100) as f64 / 100_000.0;
        let value = 20.0 + (i as f64 / 500.0).sin() + noise;
        match width {
            4 => bytes.extend((value as f32).to_le_bytes()),
            _ => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes.extend(b"end");
    bytes
}

const FILTERS: [&[Filter]; 6] = [
    &[Filter::Shuffle(4)],
    &[Filter::Bitshuffle(4)],
    &[Filter::Delta(8)],
    &[Filter::Delta(4), Filter::Shuffle(4)],
    &[Filter::Shuffle(3), Filter::Delta(1), Filter::Bitshuffle(63)],
    &[Filter::Bitshuffle(8), Filter::Shuffle(1)],
];

fn options(codec: Codec, filters: &[Filter]) -> Options {
    Options::default().codec(codec).filters(filters.iter().copied()).block_len(4 << 10).threads(1)
}

fn pack(options: Options, content: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn read(reader: &Reader, start: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; len];
    reader.read_at(start as u64, &mut bytes).unwrap();
    bytes
}

fn codecs() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in())
}

#[test]
fn any_piece_is_read_whatever_the_codec_and_the_filters() {
    let mut content = floats(4, 10_000);
    content.extend(Random(5).bytes(9_001));
    let mut random = Random(1);
    for codec in codecs() {
        for filters in FILTERS {
            let archive = pack(options(codec, filters), &content);
            let reader = Reader::open(Arc::new(archive)).unwrap();
            assert_eq!(reader.info().unwrap().filters, filters);
            assert!(read(&reader, 0, content.len()) == content, "{codec} {filters:?}");
            for _ in 0..100 {
                let start = random.below(content.len() as u64) as usize;
                let len = random.below((content.len() - start).min(9_000) as u64 + 1) as usize;
                let piece = read(&reader, start, len);
                assert!(piece == content[start..start + len], "{codec} {filters:?} {start} {len}");
            }
            assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn numbers_take_less_room_with_a_filter_than_without() {
    for (width, filter) in
        [(4, Filter::Shuffle(4)), (8, Filter::Shuffle(8)), (8, Filter::Bitshuffle(8))]
    {
        let content = floats(width, 30_000);
        for codec in codecs().filter(|&codec| codec != Codec::Copy) {
            let plain = pack(options(codec, &[]), &content).len();
            let filtered = pack(options(codec, &[filter]), &content).len();
            assert!(filtered < plain, "{codec} {filter}: {filtered} and {plain} bytes");
        }
    }
}

#[test]
fn archives_of_other_filters_are_appended_to_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.fiche");
    let (first, second) = (floats(4, 3_000), floats(8, 2_000));
    std::fs::write(&path, pack(options(Codec::Lz4, FILTERS[0]), &first)).unwrap();
    append(&path, &options(Codec::BeWalgo64, FILTERS[3]), |writer| {
        writer.write_all(&second)?;
        Ok(())
    })
    .unwrap();
    let both = [first.as_slice(), &second].concat();
    let appended = Reader::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
    assert!(read(&appended, 0, both.len()) == both);
    let other = Reader::open(Arc::new(pack(options(Codec::Zstd, FILTERS[4]), &second))).unwrap();
    let joined = merge(&[other, appended], Vec::new(), &mut |_| Ok(())).unwrap();
    let joined = Reader::open(Arc::new(joined)).unwrap();
    let all = [second.as_slice(), &both].concat();
    assert!(read(&joined, 0, all.len()) == all);
    assert!(joined.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
}

#[test]
fn blocks_of_a_file_that_was_cut_are_found() {
    let content = floats(4, 20_000);
    for codec in codecs().filter(|&codec| codec != Codec::Copy) {
        for filters in FILTERS {
            let archive = pack(options(codec, filters), &content);
            let cut = archive[..archive.len() / 2].to_vec();
            let (reader, recovered) = Reader::recover(Arc::new(cut)).unwrap();
            assert!(recovered.cut);
            let len = reader.len() as usize;
            assert!(len > content.len() / 4, "{codec} {filters:?}: {len} bytes");
            assert!(read(&reader, 0, len) == content[..len], "{codec} {filters:?}");
        }
    }
}

#[test]
fn filters_that_there_are_not_are_refused() {
    let refused = |options: Options| Writer::new(Vec::new(), options).err().unwrap().to_string();
    let four = options(Codec::Zstd, &[Filter::Delta(1); 4]);
    assert!(refused(four).contains("three filters"));
    assert!(refused(options(Codec::Zstd, &[Filter::Delta(3)])).contains("delta of 1, 2, 4 or 8"));
    let learned = Options::default().learn(&Random(2).text(50_000)).unwrap();
    assert!(refused(learned.filters([Filter::Shuffle(4)])).contains("dictionary"));
}
