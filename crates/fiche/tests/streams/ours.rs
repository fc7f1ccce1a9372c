//! Gzip files of our own.

use super::*;

#[test]
fn our_files_are_read_anywhere_and_by_others() {
    let mut random = Random(21);
    for len in [0, 1, 1023, 1024, 100_000, 1_500_000] {
        let content = content(&mut random, len);
        for (level, partition) in [(1, 1 << 10), (6, 8 << 10), (9, 32 << 10), (12, 1 << 20)] {
            let options = Options::default().level(level).partition(partition).name("a name");
            let file = partitioned(&content, options.clone().threads(1));
            assert!(gunzip(&file) == content);
            assert!(file == partitioned(&content, options.clone().threads(3)));
            let reader = own(&file);
            assert_eq!(reader.units(), len.div_ceil(partition) as u64);
            conformance(&reader, &content, 6);
            // And with its index beside it.
            let (mut writer, mut index) = (Writer::new(Vec::new(), options).unwrap(), Vec::new());
            content.chunks(777).for_each(|piece| writer.write_all(piece).unwrap());
            let bare = writer.finish_beside(&mut index).unwrap();
            assert!(file.starts_with(&bare) && gunzip(&bare) == content);
            assert!(Reader::open(Arc::new(bare.clone())).unwrap().is_none());
            conformance(&open(&bare, index), &content, 7);
            // As a file of somebody.
            conformance(&open(&file, indexed(&file, 1 << 18)), &content, 8);
        }
    }
}

/// What zlib makes of a stream without gzip around it.
fn inflated(file: &[u8], format: Format) -> Vec<u8> {
    let mut back = Vec::new();
    match format {
        Format::Zlib => flate2::read::ZlibDecoder::new(file).read_to_end(&mut back),
        _ => flate2::read::DeflateDecoder::new(file).read_to_end(&mut back),
    }
    .unwrap();
    back
}

#[test]
fn zlib_and_deflate_streams_are_read_by_an_index_beside_them() {
    let mut random = Random(23);
    for format in [Format::Zlib, Format::Deflate] {
        for (len, level) in [(0, 1), (1, 3), (70_000, 6), (700_000, 12)] {
            let content = content(&mut random, len);
            let options = Options::default().format(format).level(level).partition(8 << 10);
            let mut index = Vec::new();
            let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
            content.chunks(10_007).for_each(|piece| writer.write_all(piece).unwrap());
            let file = writer.finish_beside(&mut index).unwrap();
            assert!(inflated(&file, format) == content);
            let reader = open(&file, index.clone());
            assert_eq!((reader.format(), reader.units()), (format, len.div_ceil(8 << 10) as u64));
            conformance(&reader, &content, 11);
            let source: Arc<dyn ReadAt> = Arc::new(file.clone());
            assert_eq!(verify(&source, Some(&reader), &mut |_| Ok(())).unwrap(), len as u64);
            // There is no place for an index inside.
            let writer = Writer::new(Vec::new(), options).unwrap();
            assert!(matches!(writer.finish(), Err(Error::Invalid { .. })));
            if len < 70_000 {
                continue;
            }
            // Damage is found by the unit's checksum, and that of the checksum itself by verify.
            let mut bad = file.clone();
            let middle = bad.len() / 2;
            bad[middle] ^= 4;
            let error = open(&bad, index.clone()).read_at(0, &mut vec![0; len]);
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{error:?}");
            if format == Format::Zlib {
                let mut bad = file.clone();
                *bad.last_mut().unwrap() ^= 1;
                let source: Arc<dyn ReadAt> = Arc::new(bad.clone());
                let reader = Reader::with_index(source.clone(), Arc::new(index.clone()));
                assert!(matches!(reader, Err(Error::Changed { .. })), "{reader:?}");
                // Of a file that is far away no sample is taken.
                let reader = Reader::with_any_index(source.clone(), Arc::new(index)).unwrap();
                let error = verify(&source, Some(&reader), &mut |_| Ok(()));
                let what = "checksum of a zlib stream";
                assert!(
                    matches!(error, Err(Error::Corrupt { what: w, .. }) if w == what),
                    "{error:?}"
                );
            }
        }
    }
}

#[test]
fn primed_partitions_take_no_more_space_than_one_stream() {
    let mut random = Random(25);
    for len in [0, 1, 30_000, 1_000_000] {
        let content = content(&mut random, len);
        for (level, partition) in [(1, 1 << 10), (6, 8 << 10), (9, 300 << 10)] {
            let options = Options::default().level(level).partition(partition).primed(true);
            let file = partitioned(&content, options.clone().threads(1));
            assert!(gunzip(&file) == content);
            assert!(file == partitioned(&content, options.clone().threads(3)));
            let reader = own(&file);
            assert_eq!(reader.units(), len.div_ceil(partition) as u64);
            conformance(&reader, &content, 12);
            let source: Arc<dyn ReadAt> = Arc::new(file.clone());
            assert_eq!(verify(&source, Some(&reader), &mut |_| Ok(())).unwrap(), len as u64);
            for format in [Format::Zlib, Format::Deflate] {
                let (options, mut index) = (options.clone().format(format), Vec::new());
                let mut writer = Writer::new(Vec::new(), options).unwrap();
                content.chunks(10_007).for_each(|piece| writer.write_all(piece).unwrap());
                let file = writer.finish_beside(&mut index).unwrap();
                assert!(inflated(&file, format) == content);
                conformance(&open(&file, index), &content, 13);
            }
        }
    }
    // Text whose words come again after some KiB.
    let words: Vec<Vec<u8>> = (0..1500).map(|_| random.text(11)).collect();
    let text: Vec<u8> =
        (0..100_000).flat_map(|_| words[random.below(1500) as usize].clone()).collect();
    let of = |primed| {
        let options = Options::default().partition(8 << 10).primed(primed);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(&text).unwrap();
        writer.finish_beside(&mut Vec::new()).unwrap().len() as f64
    };
    let whole = gzip(&text, 6).len() as f64;
    assert!(of(true) < 1.02 * whole, "{} of {whole}", of(true));
    assert!(of(false) > 1.1 * whole, "{} of {whole}", of(false));
    // What they copy from is held against a checksum.
    let options = Options::default().partition(16 << 10).primed(true);
    let (mut writer, mut index) = (Writer::new(Vec::new(), options).unwrap(), Vec::new());
    writer.write_all(&text).unwrap();
    let file = writer.finish_beside(&mut index).unwrap();
    let mut damaged = index.clone();
    damaged[1000] ^= 1;
    let error = open(&file, damaged).read_at(0, &mut vec![0; text.len()]);
    assert!(matches!(error, Err(Error::Corrupt { .. })), "{error:?}");
}

#[test]
fn primed_partitions_are_of_their_stream() {
    let content = content(&mut Random(26), 400_000);
    let options = Options::default().partition(16 << 10).primed(true);
    let primed = partitioned(&content, options.clone());
    let bare = partitioned(&content, Options::default().partition(16 << 10));
    // They are not moved, but others are put between them: what follows copies from nothing before these.
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.write_all(&content).unwrap();
    let moved = writer.splice(&own(&primed), 3..4);
    assert!(matches!(moved, Err(Error::Invalid { .. })), "{moved:?}");
    writer.splice(&own(&bare), 1..2).unwrap();
    writer.write_all(&content).unwrap();
    let file = writer.finish().unwrap();
    let all = [&content, &content[16 << 10..32 << 10], &content].concat();
    assert!(gunzip(&file) == all);
    conformance(&own(&file), &all, 14);
    for (format, level) in [(Format::Zstd, 3), (Format::Gzip, 12), (Format::Gzip, 0)] {
        let options = Options::default().format(format).level(level).primed(true);
        assert!(matches!(Writer::new(Vec::new(), options), Err(Error::Invalid { .. })));
    }
}

#[test]
fn an_index_of_many_members_is_read() {
    let mut random = Random(22);
    let content = content(&mut random, 12_000_000);
    let file = partitioned(&content, Options::default().level(1).partition(1 << 10));
    let reader = own(&file);
    assert!(reader.index_len() > 2 * 65_510, "{} bytes", reader.index_len());
    conformance(&reader, &content, 9);
    assert!(gunzip(&file) == content);
}

#[test]
fn partitions_end_where_records_do() {
    let content: Vec<u8> = (0..20_000)
        .flat_map(|i| format!("line {i} {}\n", "x".repeat(i % 700)).into_bytes())
        .collect();
    let options = Options::default().partition(8 << 10).align(Split::Lines);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, options).unwrap();
    content.chunks(100_003).for_each(|piece| writer.write_all(piece).unwrap());
    writer.finish().unwrap();
    assert!(gunzip(&file) == content);
    let reader = own(&file);
    conformance(&reader, &content, 10);
    let ends: Vec<u64> = reader.unit_ends().map(Result::unwrap).collect();
    assert!(ends.iter().all(|&end| content[end as usize - 1] == b'\n'));
    assert!(ends.windows(2).all(|pair| pair[1] - pair[0] <= 8 << 10));
    assert!(ends.len() as u64 <= content.len() as u64 / (7 << 10));
}

#[test]
fn partitions_are_spliced_as_they_are() {
    let mut random = Random(23);
    let contents: Vec<Vec<u8>> =
        [300_000, 90_000, 0].iter().map(|&len| content(&mut random, len)).collect();
    let options = Options::default().partition(16 << 10);
    let files: Vec<Vec<u8>> =
        contents.iter().map(|content| partitioned(content, options.clone())).collect();
    let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
    writer.splice(&own(&files[0]), 3..7).unwrap();
    writer.write_all(b"in between").unwrap();
    writer.splice(&own(&files[1]), 0..own(&files[1]).units()).unwrap();
    writer.splice(&own(&files[2]), 0..0).unwrap();
    let all = own(&files[0]).units();
    let too_far = writer.splice(&own(&files[0]), all - 1..all + 1);
    assert!(matches!(too_far, Err(Error::Invalid { .. })));
    let file = writer.finish().unwrap();
    let expected = [&contents[0][3 << 14..7 << 14], b"in between", &contents[1]].concat();
    assert!(gunzip(&file) == expected);
    conformance(&own(&file), &expected, 11);
    // A file of another program has no partitions to give.
    let other = gzip(&contents[0], 6);
    let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
    let result = writer.splice(&open(&other, indexed(&other, 1 << 16)), 0..1);
    assert!(matches!(result, Err(Error::Invalid { .. })));
    // What is damaged is not passed on.
    let mut damaged = files[0].clone();
    damaged[20_000] ^= 1;
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let result = writer.splice(&own(&damaged), 0..all);
    assert!(matches!(result, Err(Error::Corrupt { .. })));
}

#[test]
fn partitions_end_where_records_do_behind_others_too() {
    let lines: Vec<u8> = (0..9_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
    let other = partitioned(&lines[..3000], Options::default().partition(1 << 10));
    let options = Options::default().partition(8 << 10).align(Split::Lines);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.splice(&own(&other), 0..3).unwrap();
    writer.write_all(&lines).unwrap();
    let reader = own(&writer.finish().unwrap());
    let ends: Vec<u64> = reader.unit_ends().map(Result::unwrap).collect();
    assert!(ends[3..].iter().all(|&end| lines[(end - 3000) as usize - 1] == b'\n'));
    let none = Writer::new(Vec::new(), Options::default().align(Split::Fixed(0)));
    assert!(matches!(none, Err(Error::Invalid { .. })));
}

#[test]
fn joined_and_cut_files_have_no_index() {
    let mut random = Random(24);
    let content = content(&mut random, 200_000);
    let file = partitioned(&content, Options::default());
    let both = [&file[..], &file[..]].concat();
    assert!(Reader::open(Arc::new(both.clone())).unwrap().is_none());
    conformance(&open(&both, indexed(&both, 1 << 16)), &[&content[..], &content].concat(), 12);
    for cut in [1, 38, 39, 100, file.len() - 1] {
        let short = file[..file.len() - cut].to_vec();
        assert!(Reader::open(Arc::new(short)).unwrap().is_none(), "{cut}");
    }
}
