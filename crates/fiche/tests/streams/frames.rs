//! zstd, xz and lz4 files, which say of themselves where they can be begun.

use super::*;

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
    let is_found = matches!(result, Err(Error::Corrupt { what: "table of frames or blocks", .. }));
    assert!(is_found, "{result:?}");
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
    // A frame that is passed over, and cut.
    for len in [u32::MAX, 5, 4] {
        let cut = [&[0x50, 0x2A, 0x4D, 0x18][..], &len.to_le_bytes(), b"1234"].concat();
        let result = Reader::open(Arc::new(cut));
        match len {
            4 => assert!(matches!(result, Ok(Some(reader)) if reader.is_empty())),
            _ => assert!(matches!(result, Err(Error::Corrupt { .. })), "{len}: {result:?}"),
        }
    }
    // A frame that says that it is endless, twice.
    let mut endless = frame.clone();
    endless[4] = 0xE0;
    endless.splice(5..6, u64::MAX.to_le_bytes());
    let twice = [&endless[..], &endless].concat();
    assert!(!matches!(Reader::open(Arc::new(twice)), Ok(Some(reader)) if reader.len() > 1 << 62));
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
fn skipped_first() -> Vec<u8> {
    [&[0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0][..], b"ab"].concat()
}

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
fn our_lz4_files_are_read_by_lz4_and_have_their_index_inside() {
    let mut random = Random(36);
    let by_lz4 = |file: &[u8]| {
        let mut content = Vec::new();
        lz4::Decoder::new(file).unwrap().read_to_end(&mut content).unwrap();
        content
    };
    for (len, level) in [(0, 1), (1, 3), (500_000, -3), (500_000, 1), (500_000, 9)] {
        let mut content = content(&mut random, len);
        // Some of it does not shrink.
        content.extend(random.bytes(len / 10));
        let options = Options::default().format(Format::Lz4).partition(16 << 10).level(level);
        let file = partitioned(&content, options.clone().threads(1));
        assert!(file == partitioned(&content, options.clone().threads(3)));
        assert!(by_lz4(&file) == content);
        let said = options.clone().content_len(content.len() as u64);
        let with_len = partitioned(&content, said.clone());
        assert_eq!(with_len.len() - file.len(), 8);
        assert!(by_lz4(&with_len) == content);
        let units = content.len().div_ceil(16 << 10) as u64;
        for file in [&file, &with_len] {
            let inside = Reader::inside(Arc::new(file.clone())).unwrap().expect("an index");
            assert_eq!((inside.units(), inside.format()), (units, Format::Lz4));
            check_units(file, &content, units);
        }
        check_damage(&file, &content, (0..file.len()).step_by(1009));
        check_damage(&file, &content, file.len().saturating_sub(200)..file.len());
        // Without what leads to the index, or with something behind it, there is none: it is decoded to be opened.
        check_units(&file[..file.len() - 20], &content, units);
        for cut in [1, 19, 21, file.len() / 2] {
            let result = Reader::open(Arc::new(file[..file.len() - cut].to_vec()));
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{cut}: {result:?}");
        }
        let behind = [&file[..], &file].concat();
        check_units(&behind, &[&content[..], &content].concat(), 2 * units);
        let mut index = Vec::new();
        let mut writer = Writer::new(Vec::new(), said).unwrap();
        writer.write_all(&content).unwrap();
        let file = writer.finish_beside(&mut index).unwrap();
        assert!(by_lz4(&file) == content);
        conformance(&open(&file, index), &content, 19);
    }
    let options = || Options::default().format(Format::Lz4);
    for wrong in [options().level(13), options().primed(true), options().partition(8 << 20)] {
        assert!(matches!(Writer::new(Vec::new(), wrong), Err(Error::Invalid { .. })));
    }
    let mut writer = Writer::new(Vec::new(), options().content_len(5)).unwrap();
    writer.write_all(b"four").unwrap();
    let result = writer.finish();
    assert!(
        matches!(result, Err(Error::Invalid { what }) if what.contains("5 bytes were said to come, and 4 came"))
    );
}
