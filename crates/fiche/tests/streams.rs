//! Standard files read anywhere: those of other programs by an index, and our own.
#![cfg(feature = "zlib")]

use std::io::{self, Read, Write};
use std::sync::Arc;

use fiche::archive::Split;
use fiche::codec::deflate::Gunzip;
use fiche::streams::{
    Foreign, Format, IndexOptions, Options, Reader, Writer, export_index, import_index, index,
    index_file, verify,
};
use fiche::testing::{Random, conformance};
use fiche::{Error, ReadAt};
use flate2::{Compression, GzBuilder};

fn gzip(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzBuilder::new().filename("x").write(Vec::new(), Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One member with a block that never ends.
fn one_block(content: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(1).unwrap());
    let mut stream = vec![0; compressor.deflate_compress_bound(content.len())];
    let len = compressor.deflate_compress(content, &mut stream).unwrap();
    file.extend(&stream[..len]);
    file.extend(
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, content).to_le_bytes()[..4].iter(),
    );
    file.extend((content.len() as u32).to_le_bytes());
    file
}

fn indexed(file: &[u8], spacing: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let options = IndexOptions::default().spacing(spacing);
    index(file, &options, &mut out, io::sink()).unwrap();
    out
}

fn open(file: &[u8], index: Vec<u8>) -> Reader {
    Reader::with_index(Arc::new(file.to_vec()), Arc::new(index)).unwrap()
}

/// Text that is far from everywhere alike, with pieces that do not shrink.
fn content(random: &mut Random, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = random.below(60_000) as usize;
        match random.below(8) {
            0 => all.extend(random.bytes(piece)),
            1 => all.extend(vec![random.below(256) as u8; 3 * piece]),
            _ => all.extend(random.text(piece)),
        }
    }
    all.truncate(len);
    all
}

#[test]
fn files_of_other_programs_are_read_anywhere() {
    let mut random = Random(11);
    for (i, len) in [0, 1, 1000, 70_000, 700_000, 3_000_000].into_iter().enumerate() {
        let content = content(&mut random, len);
        let (half, rest) = content.split_at(len / 3);
        let small: Vec<u8> = content.chunks(5000).flat_map(|piece| gzip(piece, 6)).collect();
        let files = [
            gzip(&content, 1),
            gzip(&content, 6),
            gzip(&content, 9),
            gzip(&content, 0),
            [gzip(half, 6), gzip(b"", 6), gzip(rest, 9), gzip(b"", 1)].concat(),
            if small.is_empty() { gzip(b"", 6) } else { small },
            one_block(&content),
        ];
        for (k, file) in files.iter().enumerate() {
            for spacing in [64 << 10, 256 << 10, 1 << 20] {
                let reader = open(file, indexed(file, spacing));
                assert_eq!(reader.len(), len as u64, "{i} {k}");
                conformance(&reader, &content, 5);
                let units = len as u64 / spacing;
                assert!(reader.units() >= units / 3, "{i} {k}: {} units", reader.units());
                for _ in 0..20 {
                    let at = random.below(len as u64 + 1);
                    let piece = random.below((len as u64 - at).min(300_000) + 1) as usize;
                    let mut read = vec![0; piece];
                    reader.read_at(at, &mut read).unwrap();
                    assert!(read == content[at as usize..][..piece], "{i} {k} {at}+{piece}");
                }
            }
        }
    }
}

#[test]
fn lines_are_found_by_number() {
    let mut random = Random(12);
    let mut content = content(&mut random, 600_000);
    for ends in [false, true] {
        if ends {
            content.push(b'\n');
        }
        let file = gzip(&content, 6);
        let reader = open(&file, indexed(&file, 64 << 10));
        let mut at = 0;
        let lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
        for (i, line) in lines.iter().enumerate() {
            let range = at..at + <[u8]>::len(line) as u64;
            if i % 37 == 0 || i + 3 > lines.len() {
                assert_eq!(reader.line(i as u64).unwrap(), Some(range.clone()), "{i}");
            }
            at = range.end;
        }
        assert_eq!(reader.line(lines.len() as u64).unwrap(), None);
        assert_eq!(reader.line(u64::MAX).unwrap(), None);
    }
}

#[test]
fn an_index_of_another_file_is_refused() {
    let mut random = Random(13);
    let content = content(&mut random, 1_000_000);
    let file = gzip(&content, 6);
    let index = indexed(&file, 1 << 18);
    for at in [0, 4095, 65_536, file.len() - 1] {
        let mut other = file.clone();
        other[at] ^= 1;
        let result = Reader::with_index(Arc::new(other), Arc::new(index.clone()));
        assert!(matches!(result, Err(Error::Changed { .. })), "{at}");
    }
    let longer = [&file[..], b"\0"].concat();
    let result = Reader::with_index(Arc::new(longer), Arc::new(index.clone()));
    assert!(matches!(result, Err(Error::Changed { .. })));
    // What is not among the samples is found when it is read.
    let mut other = file.clone();
    other[50_000] ^= 1;
    let reader = open(&other, index);
    let results: Vec<_> = (0..content.len() as u64 / 1000)
        .map(|i| reader.read_at(i * 1000, &mut [0; 1000]))
        .collect();
    assert!(results.iter().any(Result::is_err) && results.iter().any(Result::is_ok));
    for (i, result) in results.iter().enumerate() {
        let mut read = [0; 1000];
        match result {
            Ok(()) => {
                reader.read_at(i as u64 * 1000, &mut read).unwrap();
                assert!(read == content[i * 1000..][..1000]);
            }
            Err(error) => assert!(
                matches!(error, Error::Corrupt { what: "unit of a gzip file", .. }),
                "{error}"
            ),
        }
    }
}

fn partitioned(content: &[u8], options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn gunzip(file: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    Gunzip::new(file).read_to_end(&mut content).unwrap();
    let mut zlib = Vec::new();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut zlib).unwrap();
    assert!(content == zlib);
    // Who knows of one member only gets all as well.
    let mut first = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut first).unwrap();
    assert!(content == first);
    content
}

fn own(file: &[u8]) -> Reader {
    Reader::open(Arc::new(file.to_vec())).unwrap().expect("an index inside")
}

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

/// What a table or an index says of a file is held against the file.
#[test]
fn verify_finds_what_a_table_leaves_out() {
    let mut random = Random(41);
    let (one, two) = (random.bytes(5_000_000), b"what nobody sees".to_vec());
    let frames: Vec<Vec<u8>> =
        [&one, &two].map(|text| zstd::encode_all(text.as_slice(), 1).unwrap()).into();
    let all = frames.concat();
    let file = with_table(&all, &[(all.len() as u32, one.len() as u32)]);
    let (source, reader): (Arc<dyn ReadAt>, _) = (Arc::new(file.clone()), own(&file));
    let result = verify(&source, Some(&reader), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Changed { .. })), "{result:?}");
    let table = [(frames[0].len() as u32, 5_000_000), (frames[1].len() as u32, two.len() as u32)];
    let file = with_table(&all, &table);
    let (source, reader): (Arc<dyn ReadAt>, _) = (Arc::new(file.clone()), own(&file));
    assert_eq!(verify(&source, Some(&reader), &mut |_| Ok(())).unwrap(), 5_000_016);
}

/// Frames too long to be decoded to their end first: damage is found where all of one is read, and with an index
/// before anything is.
#[test]
fn long_frames_are_held_against_their_checksums() {
    let mut random = Random(42);
    let content: Vec<u8> = random.bytes(70_000_000);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    // One that does not say how long it is, is decoded to be opened.
    encoder.set_pledged_src_size(Some(content.len() as u64)).unwrap();
    encoder.write_all(&content).unwrap();
    let mut file = encoder.finish().unwrap();
    let index = index_of(&file).unwrap();
    let reader = open(&file, index.clone());
    let mut read = vec![0; 1000];
    reader.read_at(39_999_999, &mut read).unwrap();
    assert!(read == content[39_999_999..][..1000]);
    let middle = file.len() / 2;
    file[middle] ^= 1;
    let source: Arc<dyn ReadAt> = Arc::new(file.clone());
    let result = open(&file, index).read_at(39_999_999, &mut read);
    assert!(matches!(result, Err(Error::Corrupt { what: "zstd frame", .. })), "{result:?}");
    let result = verify(&source, Some(&own(&file)), &mut |_| Ok(()));
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    assert!(index_of(&file).is_err());
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

/// A member as bgzip writes it.
fn bgzf_member(content: &[u8]) -> Vec<u8> {
    let mut encoder =
        GzBuilder::new().extra(*b"BC\x02\0\0\0").write(Vec::new(), Compression::new(6));
    encoder.write_all(content).unwrap();
    let mut member = encoder.finish().unwrap();
    let len = (member.len() - 1) as u16;
    member[16..18].copy_from_slice(&len.to_le_bytes());
    member
}

#[test]
fn bgzf_needs_no_index() {
    let mut random = Random(25);
    let content = content(&mut random, 800_000);
    let members: Vec<Vec<u8>> = content.chunks(60_000).map(bgzf_member).collect();
    let nothing = bgzf_member(b"");
    let some = members[..3].concat();
    for (file, content) in [
        ([&members.concat()[..], &nothing].concat(), &content[..]),
        (members.concat(), &content[..]),
        (
            [&nothing[..], &nothing, &some, &nothing, &nothing, &members[3]].concat(),
            &content[..240_000],
        ),
        (nothing.clone(), b""),
    ] {
        let reader = own(&file);
        assert_eq!(reader.units(), content.len().div_ceil(60_000) as u64);
        conformance(&reader, content, 13);
        conformance(&open(&file, indexed(&file, 1 << 20)), content, 14);
    }
    // What is damaged is found by the checksum of the member, whatever is read of it.
    let mut file = members.concat();
    for at in [members[0].len() + 1000, members[0].len() + members[1].len() - 7] {
        file[at] ^= 0x10;
        let reader = own(&file);
        for piece in [60_000, 90_000, 119_999] {
            let result = reader.read_at(piece, &mut [0]);
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{at} {piece} {result:?}");
        }
        reader.read_at(59_999, &mut [0]).unwrap();
        reader.read_at(120_000, &mut [0]).unwrap();
        file[at] ^= 0x10;
    }
    // Cut, or something else behind it: no BGZF any more.
    for cut in [1, 100, 20_000] {
        assert!(Reader::open(Arc::new(file[..file.len() - cut].to_vec())).unwrap().is_none());
    }
    let mixed = [&file[..], &gzip(b"another", 6)].concat();
    assert!(Reader::open(Arc::new(mixed)).unwrap().is_none());
}

/// What the golden files hold.
fn golden_content() -> Vec<u8> {
    let mut random = Random(77);
    let mut content = random.text(70_000);
    content.extend(random.bytes(4_000));
    content.extend(vec![b'\n'; 60_000]);
    content.extend(random.text(70_000));
    content
}

/// A seekable zstd file whose table says that of its frames: stored and decoded lengths.
fn with_table(frames: &[u8], table: &[(u32, u32)]) -> Vec<u8> {
    let mut entries: Vec<u8> = table
        .iter()
        .flat_map(|(stored, content)| [stored.to_le_bytes(), content.to_le_bytes()].concat())
        .collect();
    entries.extend((table.len() as u32).to_le_bytes());
    entries.extend([0, 0xB1, 0xEA, 0x92, 0x8F]);
    let head = [[0x5E, 0x2A, 0x4D, 0x18], (entries.len() as u32).to_le_bytes()].concat();
    [frames, &head, &entries].concat()
}

#[test]
fn what_files_say_of_themselves_may_be_anything() {
    let frame = zstd::encode_all(&b"some text, and some more of it"[..], 3).unwrap();
    let len = frame.len() as u32;
    for table in [&[(len, 30)][..], &[(0, 5), (len, 30)], &[(len, 30), (0, 7)], &[(len, u32::MAX)]]
    {
        if let Ok(Some(reader)) = Reader::open(Arc::new(with_table(&frame, table))) {
            let mut read = [0; 30];
            let result = reader.read_at(0, &mut read);
            assert!(result.is_err() || read == *b"some text, and some more of it", "{table:?}");
            let _ = reader.read_at(reader.len() - 1, &mut read[..1]);
        }
    }
    // A frame that says that it is endless, twice.
    let mut endless = frame.clone();
    endless[4] = 0xE0;
    endless.splice(5..6, u64::MAX.to_le_bytes());
    let twice = [&endless[..], &endless].concat();
    assert!(!matches!(Reader::open(Arc::new(twice)), Ok(Some(reader)) if reader.len() > 1 << 62));
}

/// Name, file, and its index where that lies beside it.
type GoldenFile = (&'static str, Vec<u8>, Option<Vec<u8>>);

fn golden_files() -> Vec<GoldenFile> {
    let content = golden_content();
    let members: Vec<u8> = content.chunks(70_000).flat_map(|piece| gzip(piece, 9)).collect();
    let other = |name, file: Vec<u8>| {
        let index = indexed(&file, 1 << 16);
        (name, file, Some(index))
    };
    let mut beside = Vec::new();
    let options = Options::default().partition(20_000).name("golden").mtime(1_000_000_000);
    let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
    writer.write_all(&content).unwrap();
    let bare = writer.finish_beside(&mut beside).unwrap();
    vec![
        ("partitions", partitioned(&content, options.align(Split::Lines)), None),
        (
            "many-partitions",
            partitioned(&content[..100_000], Options::default().partition(1 << 10)),
            None,
        ),
        ("nothing", partitioned(b"", Options::default()), None),
        ("beside", bare, Some(beside)),
        other("stream", gzip(&content, 6)),
        other("members", members),
        other("one-block", one_block(&content)),
    ]
}

#[test]
fn golden_files_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/streams");
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, file, index) in golden_files() {
            let path = folder.join(format!("{name}.gz"));
            if !path.exists() {
                std::fs::write(&path, file).unwrap();
                if let Some(index) = index {
                    std::fs::write(folder.join(format!("{name}.gz.fidx")), index).unwrap();
                }
            }
        }
    }
    let content = golden_content();
    for (name, ..) in golden_files() {
        let file = std::fs::read(folder.join(format!("{name}.gz"))).unwrap();
        let reader = match std::fs::read(folder.join(format!("{name}.gz.fidx"))) {
            Ok(index) => open(&file, index),
            Err(_) => own(&file),
        };
        let len = match name {
            "nothing" => 0,
            "many-partitions" => 100_000,
            _ => content.len(),
        };
        conformance(&reader, &content[..len], 15);
        let feeds = content[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(reader.line_feeds(), Some(feeds), "{name}");
    }
}

/// Whatever byte is hurt, of an index or of the file: what is read is right, or an error.
#[test]
fn nothing_damaged_passes_for_whole() {
    let content = golden_content();
    let own_file = partitioned(&content[..60_000], Options::default().partition(9_000));
    let foreign = one_block(&content);
    let index = indexed(&foreign, 1 << 16);
    let check = |reader: fiche::Result<Reader>, content: &[u8], what: &str, at: usize| {
        let Ok(reader) = reader else { return };
        let mut read = vec![0; reader.len().min(content.len() as u64) as usize];
        if reader.read_at(0, &mut read).is_ok() {
            assert!(reader.len() == content.len() as u64 && read == content, "{what} {at}");
        }
        let at = content.len() / 2;
        let mut read = [0; 500];
        if reader.read_at(at as u64, &mut read).is_ok() {
            assert!(read == content[at..at + 500], "{what} {at}");
        }
    };
    for at in 0..index.len() {
        let mut hurt = index.clone();
        hurt[at] ^= 1 << (at % 8);
        let reader = Reader::with_index(Arc::new(foreign.clone()), Arc::new(hurt));
        check(reader, &content, "index", at);
    }
    for at in (0..foreign.len()).step_by(211) {
        let mut hurt = foreign.clone();
        hurt[at] ^= 1 << (at % 8);
        let reader = Reader::with_index(Arc::new(hurt), Arc::new(index.clone()));
        check(reader, &content, "file", at);
    }
    for at in (0..own_file.len()).rev().take(1000).chain((0..own_file.len()).step_by(97)) {
        let mut hurt = own_file.clone();
        hurt[at] ^= 1 << (at % 8);
        if let Some(reader) = Reader::open(Arc::new(hurt)).transpose() {
            check(reader, &content[..60_000], "own file", at);
        }
    }
}

fn index_of(file: &[u8]) -> fiche::Result<Vec<u8>> {
    let (source, mut out): (Arc<dyn ReadAt>, _) = (Arc::new(file.to_vec()), Vec::new());
    index_file(&source, &IndexOptions::default(), &mut out, &mut |_| Ok(()))?;
    Ok(out)
}

/// By itself, by an index, and whole.
fn check_units(file: &[u8], content: &[u8], units: u64) {
    let (source, reader): (Arc<dyn ReadAt>, _) = (Arc::new(file.to_vec()), own(file));
    assert_eq!(reader.units(), units);
    assert_eq!(reader.len(), content.len() as u64);
    conformance(&reader, content, 16);
    let indexed = open(file, index_of(file).unwrap());
    conformance(&indexed, content, 17);
    let feeds = content.iter().filter(|&&byte| byte == b'\n').count() as u64;
    assert_eq!(indexed.line_feeds(), Some(feeds));
    for reader in [&reader, &indexed] {
        let len = verify(&source, Some(reader), &mut |_| Ok(())).unwrap();
        assert_eq!(len, content.len() as u64);
    }
}

/// Whatever bit is hurt: an error, or what is right. `at` are the bytes to hurt.
fn check_damage(file: &[u8], content: &[u8], at: impl Iterator<Item = usize>) {
    let index = index_of(file).unwrap();
    for at in at {
        let mut hurt = file.to_vec();
        hurt[at] ^= 1 << (at % 8);
        let readers = [
            Reader::open(Arc::new(hurt.clone())),
            Reader::with_index(Arc::new(hurt), Arc::new(index.clone())).map(Some),
        ];
        for reader in readers.into_iter().filter_map(|reader| reader.ok().flatten()) {
            let mut read = vec![0; reader.len().min(content.len() as u64) as usize];
            if reader.read_at(0, &mut read).is_ok() {
                assert!(read == content[..read.len()], "{at}");
            }
        }
    }
}

#[test]
fn zstd_files_are_read_by_frames() {
    let mut random = Random(31);
    let content = content(&mut random, 700_000);
    // As the command writes a file, and as it writes a pipe: without its length.
    let frame = |piece: &[u8], knows: bool| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        if knows {
            encoder.set_pledged_src_size(Some(piece.len() as u64)).unwrap();
        }
        encoder.write_all(piece).unwrap();
        encoder.finish().unwrap()
    };
    for knows in [true, false] {
        check_units(&frame(&content, knows), &content, 1);
        let frames: Vec<Vec<u8>> =
            content.chunks(50_000).map(|piece| frame(piece, knows)).collect();
        let skipped = [&[0x5A, 0x2A, 0x4D, 0x18, 5, 0, 0, 0][..], b"12345"].concat();
        let empty = frame(b"", knows);
        let file = [&skipped[..], &empty, &frames.concat(), &skipped, &empty, &skipped].concat();
        check_units(&file, &content, 14);
        check_damage(&file, &content, (0..file.len()).step_by(1009));
        for cut in [1, 10, 5000, file.len() - 3] {
            let short = file[..file.len() - cut].to_vec();
            let result = Reader::open(Arc::new(short));
            assert!(
                !matches!(result, Ok(Some(reader)) if reader.len() == content.len() as u64 && cut > 40)
            );
        }
        // With the table of the seekable format.
        let mut table = Vec::new();
        for (frame, piece) in frames.iter().zip(content.chunks(50_000)) {
            table.extend((frame.len() as u32).to_le_bytes());
            table.extend((piece.len() as u32).to_le_bytes());
        }
        table.extend((frames.len() as u32).to_le_bytes());
        table.extend([0, 0xB1, 0xEA, 0x92, 0x8F]);
        let head = [[0x5E, 0x2A, 0x4D, 0x18], (table.len() as u32).to_le_bytes()].concat();
        let seekable = [&frames.concat()[..], &head, &table].concat();
        check_units(&seekable, &content, 14);
        check_damage(&seekable, &content, seekable.len() - 200..seekable.len());
        // Joined, the table is that of the last.
        let both = [&seekable[..], &seekable].concat();
        check_units(&both, &[&content[..], &content].concat(), 28);
    }
}

#[test]
fn our_zstd_files_are_of_the_seekable_format() {
    let mut random = Random(33);
    for len in [0, 1, 500_000] {
        let content = content(&mut random, len);
        let options = Options::default().format(Format::Zstd).partition(16 << 10);
        let file = partitioned(&content, options.clone().threads(1));
        assert!(file == partitioned(&content, options.clone().threads(3)));
        assert!(zstd::decode_all(file.as_slice()).unwrap() == content);
        assert!(file.ends_with(&[0xB1, 0xEA, 0x92, 0x8F]));
        check_units(&file, &content, len.div_ceil(16 << 10) as u64);
        let mut index = Vec::new();
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(&content).unwrap();
        let file = writer.finish_beside(&mut index).unwrap();
        conformance(&open(&file, index), &content, 18);
    }
    let too_high = Writer::new(Vec::new(), Options::default().format(Format::Zstd).level(23));
    assert!(matches!(too_high, Err(Error::Invalid { .. })));
}

#[cfg(feature = "lzma")]
#[test]
fn xz_files_are_read_by_blocks() {
    use liblzma::stream::{Action, Check, Status, Stream};
    let mut random = Random(32);
    let content = content(&mut random, 700_000);
    let pack = |piece: &[u8], block: usize, check: Check| {
        let mut stream = Stream::new_easy_encoder(1, check).unwrap();
        let mut out = Vec::with_capacity(2 * piece.len() + 1000);
        for block in piece.chunks(block) {
            // A full flush ends a block.
            let before = stream.total_in();
            while stream.total_in() - before < block.len() as u64 {
                let done = (stream.total_in() - before) as usize;
                stream.process_vec(&block[done..], &mut out, Action::FullFlush).unwrap();
            }
        }
        while stream.process_vec(&[], &mut out, Action::Finish).unwrap() != Status::StreamEnd {}
        out
    };
    for check in [Check::Crc32, Check::Crc64, Check::Sha256, Check::None] {
        let file = pack(&content, 50_000, check);
        check_units(&file, &content, 14);
        let has_check = !matches!(check, Check::None);
        check_damage(&file, &content, (0..file.len()).step_by(1009).filter(|_| has_check));
    }
    check_units(&pack(&content, 1 << 30, Check::Crc64), &content, 1);
    check_units(&pack(b"", 1 << 20, Check::Crc64), b"", 0);
    // Streams one behind the other, with zeros between and behind them, and one of nothing.
    let (one, two) = content.split_at(123_456);
    let nothing = pack(b"", 1 << 20, Check::Crc32);
    let parts = [pack(one, 40_000, Check::Crc32), vec![0; 8], nothing.clone()];
    let more = [vec![0; 4], pack(two, 100_000, Check::Sha256), nothing, vec![0; 16]];
    let file = [parts.concat(), more.concat()].concat();
    check_units(&file, &content, 4 + 6);
    check_damage(&file, &content, (0..file.len()).step_by(1013));
    for cut in [1, 4, 17, 5000] {
        let short = file[..file.len() - cut].to_vec();
        match Reader::open(Arc::new(short)) {
            Ok(reader) => assert_eq!((reader.map(|reader| reader.len()), cut), (Some(700_000), 4)),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
        }
    }
}

/// A frame that is passed over.
#[cfg(feature = "lz4")]
fn skipped_first() -> Vec<u8> {
    [&[0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0][..], b"ab"].concat()
}

#[cfg(feature = "lz4")]
#[test]
fn lz4_files_are_read_by_blocks() {
    use lz4::liblz4::BlockChecksum;
    use lz4::{BlockMode, BlockSize, ContentChecksum, EncoderBuilder};
    let mut random = Random(34);
    let content = content(&mut random, 700_000);
    let pack = |piece: &[u8], checksum: ContentChecksum| {
        let mut builder = EncoderBuilder::new();
        builder.block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
        builder.block_checksum(BlockChecksum::NoBlockChecksum);
        let mut encoder = builder.checksum(checksum).build(Vec::new()).unwrap();
        encoder.write_all(piece).unwrap();
        let (file, done) = encoder.finish();
        done.unwrap();
        file
    };
    let file = pack(&content, ContentChecksum::ChecksumEnabled);
    check_units(&file, &content, 700_000u64.div_ceil(64 << 10));
    let skipped = [&[0x53, 0x2A, 0x4D, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let (one, two) = content.split_at(100_000);
    let nothing = pack(b"", ContentChecksum::ChecksumEnabled);
    let parts = [pack(one, ContentChecksum::NoChecksum), skipped.clone(), nothing.clone()];
    let more = [pack(two, ContentChecksum::ChecksumEnabled), nothing, skipped];
    let file = [parts.concat(), more.concat()].concat();
    check_units(&file, &content, 2 + 10);
    for cut in [1, 12, 500, file.len() - 6] {
        let result = Reader::open(Arc::new(file[..file.len() - cut].to_vec()));
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{cut}");
    }
    // What is stored has no checksum of its own here: with an index it has.
    let index = index_of(&file).unwrap();
    for at in (0..file.len()).step_by(1013) {
        let mut hurt = file.clone();
        hurt[at] ^= 1 << (at % 8);
        let _ = Reader::open(Arc::new(hurt.clone()));
        if let Ok(reader) = Reader::with_index(Arc::new(hurt), Arc::new(index.clone())) {
            let mut read = vec![0; content.len()];
            if reader.read_at(0, &mut read).is_ok() {
                assert!(read == content, "{at}");
            }
        }
    }
    // The checksum of a frame's content is looked at.
    let mut hurt = pack(&random.bytes(300_000), ContentChecksum::ChecksumEnabled);
    hurt[1000] ^= 1;
    let result = Reader::open(Arc::new(hurt));
    let is_found = matches!(&result, Err(Error::Corrupt { what: "content of an lz4 frame", .. }));
    assert!(is_found, "{result:?}");
    // Passed over, then a frame.
    let behind = [&skipped_first()[..], &file].concat();
    check_units(&behind, &content, 12);
    // Linked blocks are none that can be read alone.
    let mut encoder =
        EncoderBuilder::new().block_mode(BlockMode::Linked).build(Vec::new()).unwrap();
    encoder.write_all(&content).unwrap();
    let (linked, _) = encoder.finish();
    let result = Reader::open(Arc::new(linked));
    assert!(matches!(&result, Err(Error::Invalid { what }) if what.contains("lz4 -BD")));
}

#[test]
fn indexes_go_to_other_programs_and_come_back() {
    let mut random = Random(35);
    let content = content(&mut random, 1_000_000);
    let (half, rest) = content.split_at(400_000);
    let file = [gzip(half, 6), gzip(rest, 9)].concat();
    let source: Arc<dyn ReadAt> = Arc::new(file.clone());
    let reader = open(&file, indexed(&file, 1 << 16));
    let (mut given, mut back) = (Vec::new(), Vec::new());
    export_index(&reader, &source, Foreign::IndexedGzip, &mut given).unwrap();
    import_index(&source, &given, &mut back).unwrap();
    let again = open(&file, back);
    // Units that begin within a block are known here alone.
    assert!((2..=reader.units()).contains(&again.units()));
    conformance(&again, &content, 19);
    // Every byte of its head and points may be wrong: never more than an error, or what is right.
    for at in 0..35 + 18 * again.units() as usize {
        let mut hurt = given.clone();
        hurt[at] ^= 1 << (at % 8);
        let mut back = Vec::new();
        if import_index(&source, &hurt, &mut back).is_ok() {
            let reader = open(&file, back);
            let mut read = vec![0; reader.len().min(1_000_000) as usize];
            let _ = reader.read_at(0, &mut read);
        }
    }
    let other: Arc<dyn ReadAt> = Arc::new(file[1..].to_vec());
    let result = import_index(&other, &given, io::sink());
    assert!(matches!(result, Err(Error::Changed { .. })));
    // Of BGZF, what bgzip has.
    let members: Vec<u8> = content.chunks(60_000).flat_map(bgzf_member).collect();
    let bgzf: Arc<dyn ReadAt> = Arc::new(members.clone());
    let (reader, mut gzi, mut back) = (own(&members), Vec::new(), Vec::new());
    export_index(&reader, &bgzf, Foreign::Gzi, &mut gzi).unwrap();
    assert_eq!(gzi.len(), 8 + 16 * 16);
    import_index(&bgzf, &gzi, &mut back).unwrap();
    conformance(&open(&members, back), &content, 20);
    for hostile in [&[0xFF; 8][..], &[0xFF; 24], &[1], &[]] {
        assert!(import_index(&bgzf, &hostile.to_vec(), io::sink()).is_err());
    }
    gzi[20] ^= 1;
    assert!(import_index(&bgzf, &gzi, io::sink()).is_err());
    let no_bgzf =
        export_index(&open(&file, indexed(&file, 1 << 16)), &source, Foreign::Gzi, io::sink());
    assert!(matches!(no_bgzf, Err(Error::Invalid { .. })));
}

/// Files that say of themselves where they can be begun, as zstd, xz and lz4 write them.
#[cfg(all(feature = "lzma", feature = "lz4"))]
#[test]
fn golden_frames_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/streams");
    let content = &golden_content()[60_000..160_000];
    if std::env::var_os("FICHE_BLESS").is_some() {
        let options = Options::default().format(Format::Zstd).partition(30_000);
        let made = folder.join("frames.zst");
        if !made.exists() {
            std::fs::write(made, partitioned(content, options)).unwrap();
        }
        for (program, args, name) in [
            ("xz", &["-c", "--block-size=30000", "-T2"][..], "blocks.xz"),
            ("lz4", &["-c", "-B4"], "blocks.lz4"),
        ] {
            let (plain, made) = (folder.join("plain"), folder.join(name));
            if !made.exists() {
                std::fs::write(&plain, content).unwrap();
                let output =
                    std::process::Command::new(program).args(args).arg(&plain).output().unwrap();
                std::fs::write(made, output.stdout).unwrap();
                std::fs::remove_file(plain).unwrap();
            }
        }
    }
    for (name, units) in [("frames.zst", 4), ("blocks.xz", 4), ("blocks.lz4", 2)] {
        check_units(&std::fs::read(folder.join(name)).unwrap(), content, units);
    }
}
