//! Everything readable keeps one contract.

use std::io::Write;
use std::sync::Arc;

use fiche::archive::{Entry, Extents, Kind, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::testing::{Behind, Random, conformance};
use fiche::{FileSource, ReadAt, Span};

fn content(len: usize) -> Vec<u8> {
    let mut random = Random(len as u64);
    let mut bytes = random.text(len / 2);
    bytes.extend(random.bytes(len / 4));
    bytes.extend(vec![0; len - bytes.len()]);
    bytes
}

#[test]
fn bytes_files_and_spans() {
    let bytes = content(50_000);
    conformance(&bytes, &bytes, 1);
    conformance(&Vec::new(), &[], 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all(&bytes).unwrap();
    let source = Arc::new(FileSource::open(file.path()).unwrap());
    conformance(&source, &bytes, 3);
    conformance(&Span::new(source.clone(), 100..40_000).unwrap(), &bytes[100..40_000], 4);
    conformance(&Span::new(&bytes, 7..7).unwrap(), &[], 5);
    assert!(Span::new(&bytes, 10..50_001).is_err());
}

#[test]
fn archives_of_every_codec_and_block_length() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in()) {
        for (block, len) in [(1 << 10, 70_000), (1 << 14, 200_000), (1 << 18, 700_000)] {
            let bytes = content(len);
            let options = Options::default().codec(codec).block_len(block).threads(2);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            writer.write_all(&bytes).unwrap();
            let file = writer.finish().unwrap();
            // From memory, through positioned reads, and with and without a cache.
            conformance(&Reader::open(Arc::new(file.clone())).unwrap(), &bytes, 6);
            for cache in [0, 64 << 10, 1 << 30] {
                // Thousands of reads that each decode a large block take these too long.
                if matches!(codec, Codec::Lzma | Codec::Bzip2) && block > 1 << 14 && cache < 1 << 30
                {
                    continue;
                }
                let options = fiche::archive::OpenOptions::default().cache(cache);
                conformance(&options.open(Arc::new(Behind::new(file.clone()))).unwrap(), &bytes, 7);
            }
        }
    }
}

#[test]
fn archives_of_many_chapters_and_short_blocks() {
    let bytes = content(6_000_000);
    let options = Options::default().codec(Codec::Lz4).block_len(1 << 10);
    let mut writer = Writer::new(Vec::new(), options.align_records(true)).unwrap();
    let (mut random, mut at) = (Random(1), 0);
    while at < bytes.len() {
        let len = (random.below(1200) as usize).min(bytes.len() - at);
        writer.add(Entry::data(""), &mut &bytes[at..at + len]).unwrap();
        at += len;
    }
    let reader = Reader::open(Arc::new(Behind::new(writer.finish().unwrap()))).unwrap();
    assert!(reader.info().unwrap().chapters > 1);
    conformance(&reader, &bytes, 8);
}

#[test]
fn archives_of_nothing() {
    let writer = Writer::new(Vec::new(), Options::default()).unwrap();
    conformance(&Reader::open(Arc::new(writer.finish().unwrap())).unwrap(), &[], 9);
}

#[test]
fn records_plain_sparse_and_linked() {
    let bytes = content(90_000);
    let options = Options::default().block_len(4 << 10);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.add(Entry::data("before"), &mut &bytes[..1234]).unwrap();
    let plain = writer.add(Entry::data("plain"), &mut bytes.as_slice()).unwrap();
    let extents = Extents { len: 100_000, data: vec![10..20_000, 30_000..30_001, 90_000..100_000] };
    let mut holes = vec![0; 100_000];
    let mut data = Vec::new();
    for piece in &extents.data {
        let range = piece.start as usize..piece.end as usize;
        let part = &bytes[data.len()..data.len() + range.len()];
        data.extend_from_slice(part);
        holes[range].copy_from_slice(part);
    }
    let sparse = Entry::new("sparse", Kind::File).extents(extents);
    writer.add(sparse, &mut data.as_slice()).unwrap();
    let link = Entry::new("linked", Kind::Hardlink(plain));
    writer.add_entry(link).unwrap();
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    conformance(&reader.record("plain").unwrap(), &bytes, 10);
    conformance(&reader.record("sparse").unwrap(), &holes, 11);
    conformance(&reader.record("linked").unwrap(), &bytes, 12);
}

#[test]
fn ten_thousand_random_ranges_by_eight_threads_at_once() {
    let bytes = content(20_000_000);
    let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
    writer.write_all(&bytes).unwrap();
    let reader = Reader::open(Arc::new(Behind::new(writer.finish().unwrap()))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (reader, bytes) = (&reader, &bytes);
            scope.spawn(move || {
                let (mut random, mut buf) = (Random(thread), vec![0; 64 << 10]);
                for _ in 0..1250 {
                    let len = random.below(64 << 10) as usize;
                    let offset = random.below((bytes.len() - len) as u64);
                    reader.read_at(offset, &mut buf[..len]).unwrap();
                    assert!(buf[..len] == bytes[offset as usize..][..len]);
                }
            });
        }
    });
}

#[test]
fn many_reads_fetch_neighbours_at_once_and_each_block_once() {
    let bytes = content(4_000_000);
    let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
    writer.write_all(&bytes).unwrap();
    let source = Arc::new(Behind::new(writer.finish().unwrap()));
    let options = fiche::archive::OpenOptions::default().cache(0);
    let reader = options.open(source.clone()).unwrap();
    reader.read_at(0, &mut [0]).unwrap();
    let fetched = |offsets: &[u64], len: usize| {
        let mut bufs = vec![vec![0; len]; offsets.len()];
        let mut reads: Vec<(u64, &mut [u8])> =
            offsets.iter().copied().zip(bufs.iter_mut().map(Vec::as_mut_slice)).collect();
        let before = source.reads();
        assert!(reader.read_many_at(&mut reads).iter().all(Result::is_ok));
        for (offset, buf) in offsets.iter().zip(&bufs) {
            assert!(*buf == bytes[*offset as usize..][..len]);
        }
        source.reads() - before
    };
    // Hundreds of reads within a few neighbouring blocks, in any order: one fetch.
    let mut random = Random(5);
    let near: Vec<u64> = (0..300).map(|_| 100_000 + random.below(100_000)).collect();
    assert_eq!(fetched(&near, 500), 1);
    // All of it, in pieces: a fetch a MiB of stored bytes.
    let all: Vec<u64> = (0..390).rev().map(|i| i * 10_000).collect();
    assert!(fetched(&all, 10_000) <= 5);
    // Far from one another: one each.
    assert_eq!(fetched(&[3_000_000, 1_000_000, 2_000_000], 100), 3);
    // A long read is fetched in long pieces too.
    let before = source.reads();
    reader.read_at(5, &mut vec![0; 3_900_000]).unwrap();
    assert!(source.reads() - before <= 5);
}

#[test]
fn names_that_increase_up_to_some_point_are_found_and_never_taken_twice() {
    let mut writer = Writer::new(Vec::new(), Options::default().threads(1)).unwrap();
    let early = |i: u32| format!("some/folder/{i:05}");
    let late = |i: u32| format!("other/{}", i * 7919 % 1000);
    let twice = |writer: &mut Writer<Vec<u8>>, name: String| {
        let error = writer.add(Entry::data(name), &mut [].as_slice()).unwrap_err();
        assert!(error.to_string().contains("two records of one name"), "{error}");
    };
    for i in 0..700 {
        writer.add(Entry::data(early(i)), &mut i.to_string().as_bytes()).unwrap();
    }
    twice(&mut writer, early(699));
    writer.add(Entry::data(""), &mut b"no name".as_slice()).unwrap();
    for i in 0..700 {
        writer.add(Entry::data(late(i)), &mut i.to_string().as_bytes()).unwrap();
    }
    for i in [0, 350, 699] {
        twice(&mut writer, early(i));
        twice(&mut writer, late(i));
    }
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    for i in 0..700 {
        assert_eq!(reader.find(early(i)).unwrap().unwrap().0, u64::from(i));
        assert_eq!(reader.find(late(i)).unwrap().unwrap().0, u64::from(i) + 701);
    }
    assert!(reader.find("other/x").unwrap().is_none());
}
