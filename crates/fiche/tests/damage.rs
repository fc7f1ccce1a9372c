//! Every flip is found, every cut is survived, and nothing damaged passes for whole.

mod common;

use std::sync::Arc;

use common::{reseal, sections};
use fiche::archive::{Entry, Extents, Kind, Options, Reader, Restore, Writer, append};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary};
use fiche::testing::Random;
use fiche::{Error, ReadAt};
use proptest::prelude::*;

fn options() -> Options {
    Options::default().block_len(1 << 10).threads(1)
}

/// A small archive with all there is in one: several blocks, kinds, pages, appends.
fn archive() -> (Vec<u8>, Vec<u8>) {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let mut random = Random(1);
    let mut content = random.text(2_000);
    writer.add(Entry::data("one"), &mut content.as_slice()).unwrap();
    let noise = random.bytes(1_500);
    writer.add(Entry::data("noise"), &mut noise.as_slice()).unwrap();
    content.extend(&noise);
    writer.add_entry(Entry::new("two", Kind::Hardlink(0))).unwrap();
    let extents = Extents { len: 9_999, data: vec![5..100] };
    let sparse = Entry::new("holes", Kind::File).extents(extents);
    writer.add(sparse, &mut [7; 95].as_slice()).unwrap();
    content.extend([7; 95]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.finish().unwrap()).unwrap();
    append(file.path(), &options().codec(Codec::Lz4), |writer| {
        for i in (0..30).rev() {
            let text = format!("record {i} and its text; ");
            content.extend(text.bytes());
            writer.add(Entry::data(format!("more/{i}")), &mut text.as_bytes())?;
        }
        Ok(())
    })
    .unwrap();
    // Blocks that share a dictionary and a model.
    let text = random.text(3_000);
    let dictionary = Arc::new(Dictionary::new(text[..1_200].to_vec()).unwrap());
    let coder = Coder::new(Coding::ZzPrimed, dictionary).unwrap().probe(&text[1_200..2_200]);
    append(file.path(), &options().coder(Arc::new(coder)), |writer| {
        content.extend(&text);
        writer.add(Entry::data("story"), &mut text.as_slice()).map(drop)
    })
    .unwrap();
    // Small beside what is there: its footer continues the one before.
    append(file.path(), &options(), |writer| {
        content.extend(b"last");
        writer.add(Entry::data("zz"), &mut b"last".as_slice()).map(drop)
    })
    .unwrap();
    (std::fs::read(file.path()).unwrap(), content)
}

fn read_all(reader: &Reader) -> fiche::Result<Vec<u8>> {
    let mut bytes = vec![0; reader.len() as usize];
    reader.read_at(0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn verify_finds_the_flip_of_every_bit() {
    let (good, content) = archive();
    let reader = Reader::open(Arc::new(good.clone())).unwrap();
    assert_eq!(read_all(&reader).unwrap(), content);
    assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let Ok(reader) = Reader::open(Arc::new(bad)) else { continue };
        let report = reader.verify(1, &mut |_| Ok(())).unwrap();
        assert!(!report.damage.is_empty(), "bit {} of byte {} goes unnoticed", bit % 8, bit / 8);
        // Whatever is read in spite of it is right.
        if let Ok(bytes) = read_all(&reader) {
            assert!(bytes == content, "byte {} changes what is read", bit / 8);
        }
        for (number, entry) in reader.entries(0).flatten() {
            let Ok(record) = reader.record_at(number) else { continue };
            let mut buf = vec![0; record.len() as usize];
            if entry.extents.is_none() && record.read_at(0, &mut buf).is_ok() {
                let range = record.entry().range.clone();
                assert!(buf == content[range.start as usize..range.end as usize]);
            }
        }
    }
}

#[test]
fn verify_finds_bytes_that_belong_to_nothing() {
    let (good, content) = archive();
    let mut footer = sections(&good).into_iter().rfind(|s| s.kind == 8).unwrap();
    let mut file = good.clone();
    file.splice(footer.pos..footer.pos, *b"hidden");
    (footer.pos, footer.payload, footer.end) = (footer.pos + 6, footer.payload + 6, footer.end + 6);
    reseal(&mut file, &footer);
    let trailer = file.len() - 32;
    file[trailer..trailer + 8].copy_from_slice(&(footer.pos as u64).to_le_bytes());
    let covered = &file[trailer..trailer + 20];
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, covered) as u32;
    file[trailer + 20..trailer + 24].copy_from_slice(&sum.to_le_bytes());
    let reader = Reader::open(Arc::new(file)).unwrap();
    assert_eq!(read_all(&reader).unwrap(), content);
    let report = reader.verify(1, &mut |_| Ok(())).unwrap();
    let found: Vec<String> = report.damage.iter().map(|d| d.error.to_string()).collect();
    let at = footer.pos - 6;
    assert_eq!(found, [format!("damaged: gap between sections at byte {at}")]);
}

#[test]
fn verify_names_the_records_that_are_hit() {
    let (good, _) = archive();
    let table = sections(&good).into_iter().find(|s| s.kind == 3).unwrap();
    let mut bad = good.clone();
    bad[33] ^= 1;
    let report = Reader::open(Arc::new(bad)).unwrap().verify(2, &mut |_| Ok(())).unwrap();
    let names: Vec<&[u8]> = report.records.iter().map(|(_, name)| name.as_slice()).collect();
    assert_eq!(names, [&b"one"[..], b"two"]);
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].content, Some(0..1024));

    let mut bad = good.clone();
    bad[table.payload + 10] ^= 1;
    let report = Reader::open(Arc::new(bad)).unwrap().verify(2, &mut |_| Ok(())).unwrap();
    let names: Vec<&[u8]> = report.records.iter().map(|(_, name)| name.as_slice()).collect();
    assert_eq!(names, [&b"one"[..], b"noise", b"two", b"holes"]);
}

#[test]
fn a_cut_at_every_byte_is_noticed_and_what_is_left_is_right() {
    let (good, content) = archive();
    let mut left: Vec<(usize, usize)> = Vec::new();
    for len in 0..good.len() {
        let cut = good[..len].to_vec();
        // The old archive's end is in the middle: cut just behind it, it is whole.
        match Reader::open(Arc::new(cut.clone())) {
            Ok(reader) => {
                let bytes = read_all(&reader).unwrap();
                assert!(bytes.len() < content.len() && content.starts_with(&bytes));
                assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
            }
            Err(Error::Corrupt { .. } | Error::Invalid { .. }) => {}
            Err(other) => panic!("cut to {len} bytes: {other}"),
        }
        let Ok((reader, recovered)) = Reader::recover(Arc::new(cut)) else { continue };
        let mut bytes = vec![0; reader.len() as usize];
        let lost = reader.read_what_is_left(0, &mut bytes).unwrap();
        assert!(lost.is_empty() && content.starts_with(&bytes));
        assert!(recovered.cut || bytes.len() < content.len());
        if left.last().is_none_or(|&(_, last)| last < bytes.len()) {
            left.push((len, bytes.len()));
        }
    }
    // Each block is there from where it is whole: the last ones of the chapters too, which
    // have a section behind them.
    let lens: Vec<usize> = left.iter().map(|&(_, len)| len).collect();
    let chapter = 2_000 + 1_500 + 95;
    let (more, story) = (chapter + 710, chapter + 710 + 3_000);
    let blocks = [more + 1024, more + 2048, story];
    let ends: Vec<usize> = [0, 1024, 2048, 3072, chapter, more].into_iter().chain(blocks).collect();
    assert_eq!(lens, [ends, vec![content.len()]].concat());
    for (at, len) in left {
        let ends_chapter = [chapter, more, story, content.len()].contains(&len);
        let section_starts = sections(&good).iter().any(|section| section.pos == at);
        assert_eq!(ends_chapter, section_starts, "{at}: {len}");
    }
}

#[test]
fn a_flip_anywhere_leaves_the_rest_to_be_recovered() {
    let (good, content) = archive();
    let whole = Reader::open(Arc::new(good.clone())).unwrap();
    let records = whole.records();
    let shared = sections(&good).into_iter().filter(|s| [1, 2, 9, 10].contains(&s.kind));
    let shared: Vec<_> = shared.map(|s| s.pos..s.end).collect();
    assert_eq!(shared.len(), 4);
    for byte in 32..good.len() {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        let (reader, recovered) = Reader::recover(Arc::new(bad)).unwrap();
        let mut bytes = vec![0; reader.len() as usize];
        let lost = reader.read_what_is_left(0, &mut bytes).unwrap();
        let lost_bytes: u64 = lost.iter().map(|r| r.end - r.start).sum();
        for (i, byte) in bytes.iter().enumerate() {
            assert!(*byte == content[i] || lost.iter().any(|r| r.contains(&(i as u64))));
        }
        // One flip costs a block or a page of names, never more, and no chapter; what blocks
        // share is mended.
        let in_shared = shared.iter().any(|range| range.contains(&byte));
        let most = if in_shared { 0 } else { 1_024 };
        let missing = content.len() as u64 - reader.len() + lost_bytes;
        let named = reader.entries(0).flatten().count() as u64;
        assert!(missing <= most, "byte {byte}: {missing} {named}");
        assert!(missing == 0 || named == records, "byte {byte}: {recovered:?}");
    }
}

#[test]
fn a_long_record_that_was_cut_off_keeps_its_name_and_all_that_is_left_of_it() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let long = Random(4).text(10 << 20);
    writer.add(Entry::data("first"), &mut b"first".as_slice()).unwrap();
    writer.add(Entry::data("long"), &mut long.as_slice()).unwrap();
    let mut file = writer.finish().unwrap();
    file.truncate(file.len() * 9 / 10);
    let (reader, recovered) = Reader::recover(Arc::new(file)).unwrap();
    assert!(recovered.cut);
    assert_eq!(recovered.incomplete, [1]);
    let dir = tempfile::tempdir().unwrap();
    let restored = Restore::new(dir.path()).keep_going(true).run(&reader, &mut |_| Ok(())).unwrap();
    assert_eq!(std::fs::read(dir.path().join("first")).unwrap(), b"first");
    // It must not pass for whole.
    assert!(!dir.path().join("long").exists());
    let left = std::fs::read(dir.path().join("long.damaged")).unwrap();
    // But for the last block, in which it could have ended.
    assert!(left.len() as u64 + 5 + 1024 >= reader.len() && long.starts_with(&left));
    assert!(left.len() > (10 << 20) / 100 * 89);
    assert_eq!(restored.failed.len(), 1);
}

#[test]
fn what_follows_a_record_that_was_told_before_its_end_never_passes_for_a_part_of_it() {
    let mut writer = Writer::new(Vec::new(), options().codec(Codec::Lz4)).unwrap();
    let texts: Vec<Vec<u8>> = [3 << 20, 100, 2_000, (1 << 20) + 500, 1 << 20, 300_000, 5]
        .iter()
        .enumerate()
        .map(|(i, &len)| Random(i as u64).text(len))
        .collect();
    for (i, text) in texts.iter().enumerate() {
        writer.add(Entry::data(format!("{i}")), &mut text.as_slice()).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut incomplete = 0;
    // Within what tells that a record has ended as well: the block before it holds bytes of
    // the next one.
    let sections = sections(&file);
    let within = sections.iter().flat_map(|section| [section.pos, section.payload, section.end]);
    for cut in (40..file.len()).step_by(file.len() / 300).chain(within) {
        let (reader, _) = Reader::recover(Arc::new(file[..cut].to_vec())).unwrap();
        for (number, entry) in reader.entries(0).flatten() {
            let record = reader.record_at(number).unwrap();
            let mut bytes = vec![0; record.len() as usize];
            record.read_at(0, &mut bytes).unwrap();
            let text = &texts[number as usize];
            assert_eq!(entry.name, number.to_string().as_bytes());
            match reader.is_incomplete(number) {
                true => assert!(text.starts_with(&bytes)),
                false => assert!(*text == bytes),
            }
            incomplete += u32::from(reader.is_incomplete(number));
        }
    }
    assert!(incomplete > 100);
}

#[test]
fn a_cut_file_keeps_every_block_before_the_cut_and_names_for_most_of_them() {
    let content = Random(1).text(20 << 20);
    for codec in [Codec::Lz4, Codec::Copy] {
        let mut writer = Writer::new(Vec::new(), Options::default().codec(codec)).unwrap();
        for (i, file) in content.chunks(10_000).enumerate() {
            writer.add(Entry::data(format!("{i:05}")), &mut { file }).unwrap();
        }
        let file = writer.finish().unwrap();
        for percent in [1, 10, 50, 99] {
            let cut = file[..file.len() * percent / 100].to_vec();
            let (reader, recovered) = Reader::recover(Arc::new(cut)).unwrap();
            let there = content.len() as u64 * percent as u64 / 100;
            let slack = (content.len() / 200) as u64;
            assert!(recovered.cut && reader.len() + slack >= there, "{codec} {percent}");
            assert!(read_all(&reader).unwrap() == content[..reader.len() as usize]);
            let named = reader.entries(0).flatten().last().map_or(0, |(_, e)| e.range.end);
            assert!(named + (1 << 20) + (200 << 10) >= reader.len(), "{codec} {percent}: {named}");
        }
    }
}

#[test]
fn a_chapter_whose_table_is_lost_is_read_by_its_blocks_own_checksums() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_compiled_in()) {
        for align in [false, true] {
            let options = Options::default().codec(codec).block_len(4 << 10).align_records(align);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            let mut content = Vec::new();
            for i in 0..60 {
                // Noise is stored raw.
                let mut random = Random(i);
                let len = 1 + random.below(12_000) as usize;
                let bytes = if i % 3 == 0 { random.bytes(len) } else { random.text(len) };
                writer.add(Entry::data(format!("{i}")), &mut bytes.as_slice()).unwrap();
                content.extend(bytes);
            }
            let mut file = writer.finish().unwrap();
            let table = sections(&file).into_iter().find(|s| s.kind == 3).unwrap();
            file[table.payload + 9] ^= 1;
            let (reader, recovered) = Reader::recover(Arc::new(file)).unwrap();
            assert!(
                recovered.is_whole() && recovered.rebuilt == 1,
                "{codec} {align}: {recovered:?}"
            );
            assert!(read_all(&reader).unwrap() == content, "{codec} {align}");
        }
    }
}

#[test]
fn keep_going_restores_all_that_is_whole_and_marks_the_rest() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let texts: Vec<Vec<u8>> = (0..40).map(|i| Random(i).text(3_000)).collect();
    for (i, text) in texts.iter().enumerate() {
        writer.add(Entry::data(format!("{i:02}")), &mut text.as_slice()).unwrap();
    }
    let mut file = writer.finish().unwrap();
    file[5_000] ^= 4;
    let dir = tempfile::tempdir().unwrap();
    let reader = Reader::open(Arc::new(file)).unwrap();
    let strict = dir.path().join("strict");
    let error = Restore::new(&strict).run(&reader, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }));
    let target = dir.path().join("kept");
    let restored = Restore::new(&target).keep_going(true).run(&reader, &mut |_| Ok(())).unwrap();
    assert!((1..3).contains(&restored.failed.len()));
    let failed: Vec<&[u8]> = restored.failed.iter().map(|f| f.name.as_slice()).collect();
    for (i, text) in texts.iter().enumerate() {
        let name = format!("{i:02}");
        if failed.contains(&name.as_bytes()) {
            assert!(!target.join(&name).exists());
            let left = std::fs::read(target.join(format!("{name}.damaged"))).unwrap();
            let lost = &restored.failed.iter().find(|f| f.name == name.as_bytes()).unwrap().lost;
            assert_eq!(left.len(), text.len());
            for (at, byte) in left.iter().enumerate() {
                let lost = lost.iter().any(|r| r.contains(&(at as u64)));
                assert!(if lost { *byte == 0 } else { *byte == text[at] });
            }
        } else {
            assert!(std::fs::read(target.join(&name)).unwrap() == *text);
        }
    }
}

#[test]
fn sizes_that_would_allocate_gigabytes_are_refused_before_they_do() {
    let (good, _) = archive();
    for section in sections(&good) {
        // Every varint of the payload's first bytes, as large as it can be.
        for at in 0..(section.end - 4 - section.payload).min(40) {
            let mut bad = good.clone();
            let end = (section.payload + at + 9).min(section.end - 4);
            bad[section.payload + at..end].fill(0xFF);
            if let Some(last) = bad[..end].last_mut() {
                *last = 0x01;
            }
            reseal(&mut bad, &section);
            use_all(bad);
        }
    }
}

#[test]
fn ends_of_blocks_that_are_made_up_are_not_tried_for_ever() {
    let (good, _) = archive();
    // Every four bytes the checksum of an LZ4 block that does not decode.
    let mut bytes = vec![0xF0];
    let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    crc.update(&bytes);
    while bytes.len() < 200_000 {
        let sum = (crc.finalize() as u32).wrapping_add(0x6669_6300 + Codec::Lz4 as u32);
        bytes.extend(sum.to_le_bytes());
        crc.update(&sum.to_le_bytes());
    }
    let (reader, _) = Reader::recover(Arc::new([&good[..32], &bytes].concat())).unwrap();
    assert!(reader.is_empty());
}

/// A source of which some bytes cannot be read, as of a disk that fails.
struct Failing(Vec<u8>, std::ops::Range<u64>);

impl ReadAt for Failing {
    fn len(&self) -> u64 {
        ReadAt::len(&self.0)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        if offset < self.1.end && self.1.start < offset + buf.len() as u64 {
            return Err(std::io::Error::from_raw_os_error(5).into());
        }
        self.0.read_at(offset, buf)
    }
}

#[test]
fn what_a_disk_cannot_read_is_lost_and_the_rest_is_not() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let texts: Vec<Vec<u8>> = (0..40).map(|i| Random(i).text(3_000)).collect();
    for (i, text) in texts.iter().enumerate() {
        writer.add(Entry::data(format!("{i:02}")), &mut text.as_slice()).unwrap();
    }
    let file = writer.finish().unwrap();
    // In a block, in the record pages, in the footer.
    for at in [9_000, file.len() as u64 - 400, file.len() as u64 - 40] {
        let source = Arc::new(Failing(file.clone(), at..at + 1));
        let (reader, _) = Reader::recover(source).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let restore = Restore::new(dir.path()).keep_going(true);
        let restored = restore.run(&reader, &mut |_| Ok(())).unwrap();
        let whole = texts.iter().enumerate().filter(|(i, text)| {
            std::fs::read(dir.path().join(format!("{i:02}"))).is_ok_and(|bytes| bytes == **text)
        });
        let (whole, failed) = (whole.count(), restored.failed.len());
        // Names lie in one page here: without it nothing has a name.
        assert!(whole + failed == 40 || (whole == 0 && at != 9_000), "{at}: {whole} {failed}");
        assert!(at != 9_000 || whole >= 37);
    }
}

#[test]
fn damage_behind_an_append_that_did_end_is_no_rollback() {
    let (mut file, content) = archive();
    // A crash came between the trailer and the clearing of the guard.
    let old = sections(&file).into_iter().find(|s| s.kind == 8).unwrap().end + 32;
    let guard = (old as u64).to_le_bytes();
    file[20..28].copy_from_slice(&guard);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &guard) as u32;
    file[28..32].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read_all(&Reader::open(Arc::new(file.clone())).unwrap()).unwrap(), content);
    let footer = sections(&file).into_iter().rfind(|s| s.kind == 8).unwrap();
    file[footer.payload] ^= 1;
    let opened = Reader::open(Arc::new(file.clone()));
    assert!(matches!(opened, Err(Error::Corrupt { .. })), "the old archive passes for the new");
    let (reader, _) = Reader::recover(Arc::new(file)).unwrap();
    assert_eq!(read_all(&reader).unwrap(), content);
}

#[test]
fn an_append_that_ends_at_any_byte_leaves_the_old_archive_or_the_new() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let old = Random(1).text(3_000);
    writer.add(Entry::data("old"), &mut old.as_slice()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let before = writer.finish().unwrap();
    std::fs::write(file.path(), &before).unwrap();
    append(file.path(), &options(), |writer| {
        writer.add(Entry::data("new"), &mut Random(2).text(4_000).as_slice())?;
        Ok(())
    })
    .unwrap();
    let mut after = std::fs::read(file.path()).unwrap();
    let new = read_all(&Reader::open(Arc::new(after.clone())).unwrap()).unwrap();
    assert!(new.len() == 7_000 && new.starts_with(&old));
    let guard = (before.len() as u64).to_le_bytes();
    after[20..28].copy_from_slice(&guard);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &guard) as u32;
    after[28..32].copy_from_slice(&sum.to_le_bytes());
    for len in before.len()..=after.len() {
        let reader = Reader::open(Arc::new(after[..len].to_vec())).unwrap();
        let expected = if len == after.len() { &new } else { &old };
        assert!(read_all(&reader).unwrap() == *expected, "{len}");
        assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
        // What comes next removes what was left, or goes on from the new end.
        if len % 100 == 0 || len == after.len() {
            std::fs::write(file.path(), &after[..len]).unwrap();
            append(file.path(), &options(), |writer| {
                writer.add(Entry::data("more"), &mut b"more".as_slice())?;
                Ok(())
            })
            .unwrap();
            let bytes = std::fs::read(file.path()).unwrap();
            let reader = Reader::open(Arc::new(bytes)).unwrap();
            assert!(read_all(&reader).unwrap() == [expected.as_slice(), b"more"].concat());
            assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn many_small_appends_cost_in_proportion_to_what_they_add() {
    // In memory where that can be had: each append waits for the disk three times.
    let folder = ["/dev/shm", "."].into_iter().find(|f| std::path::Path::new(f).is_dir()).unwrap();
    let file = tempfile::NamedTempFile::new_in(folder).unwrap();
    let empty = Writer::new(Vec::new(), options()).unwrap().finish().unwrap();
    std::fs::write(file.path(), empty).unwrap();
    let mut sizes = Vec::new();
    for i in 0..400u64 {
        append(file.path(), &options(), |writer| {
            writer.add(Entry::data(format!("{i}")), &mut i.to_string().as_bytes())?;
            Ok(())
        })
        .unwrap();
        sizes.push(std::fs::metadata(file.path()).unwrap().len());
    }
    // Twice as many may cost a little more than twice as much, not four times.
    let (half, whole) = (sizes[199], sizes[399]);
    assert!(whole < half * 5 / 2, "{half} {whole}");
    assert!(whole < 400 * 1000, "{whole}");
    let reader = Reader::open(Arc::new(std::fs::read(file.path()).unwrap())).unwrap();
    assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
    for i in 0..400u64 {
        assert_eq!(reader.find(i.to_string()).unwrap().unwrap().0, i);
    }
}

#[test]
fn entries_that_no_reader_would_take_are_refused_by_the_writer() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    writer.add(Entry::data("good"), &mut b"good".as_slice()).unwrap();
    let sparse = |len, data: &[std::ops::Range<u64>], range| {
        Entry::new("bad", Kind::File).extents(Extents { len, data: data.to_vec() }).range(range)
    };
    for bad in [
        sparse(8, &[0..8], 0..4),
        sparse(3, &[0..4], 0..4),
        sparse(9, &[2..4, 0..2], 0..4),
        sparse(9, &[0..2, 1..3], 0..4),
        sparse(9, &[0..4, 5..5], 0..4),
        Entry::new("bad", Kind::File).range(0..5),
        Entry::new("bad", Kind::Hardlink(1)),
        Entry::new("bad\0", Kind::Directory),
        Entry::new(vec![b'x'; 70_000], Kind::Directory),
        Entry::new("good", Kind::Directory),
        Entry::new("bad", Kind::File).key("key").range(0..4),
        Entry::new("bad", Kind::Item).key("key\0").range(0..4),
        Entry::new("bad", Kind::Item).extents(Extents { len: 4, data: vec![0..4] }).range(0..4),
    ] {
        assert!(writer.add_entry(bad.clone()).is_err(), "{bad:?}");
    }
    writer.add_entry(sparse(9, &[0..2, 7..9], 0..4)).unwrap();
    let reader = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
    assert!(reader.verify(1, &mut |_| Ok(())).unwrap().damage.is_empty());
    assert_eq!(reader.records(), 2);
}

#[test]
fn a_node_that_leads_to_itself_is_refused() {
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    for i in 0..300 {
        writer.add(Entry::data(format!("{i:03}")), &mut [i as u8].as_slice()).unwrap();
    }
    let good = writer.finish().unwrap();
    let node = sections(&good).into_iter().find(|s| s.kind == 6).unwrap();
    assert_eq!(good[node.pos + 5], 0, "this test wants a node that is not compressed");
    // Level 1, 2 entries; the first entry's count takes 2 bytes, then its gap.
    let mut bad = good.clone();
    let mut payload = Vec::new();
    payload.extend_from_slice(&[1, 1]);
    let varint = |mut value: u64, out: &mut Vec<u8>| {
        while value >= 128 {
            out.push(value as u8 | 128);
            value >>= 7;
        }
        out.push(value as u8);
    };
    varint(300, &mut payload);
    varint(node.pos as u64 * 2, &mut payload);
    varint((node.end - node.pos) as u64, &mut payload);
    payload.push(0);
    // A name that fills the section up to the length it had.
    let room = node.end - 4 - node.payload - payload.len() - 1;
    payload.push(room as u8);
    payload.extend(vec![b'x'; room]);
    bad[node.payload..node.end - 4].copy_from_slice(&payload);
    reseal(&mut bad, &node);
    let report = Reader::open(Arc::new(bad.clone())).unwrap().verify(1, &mut |_| Ok(())).unwrap();
    assert!(!report.damage.is_empty());
    use_all(bad);
}

/// Does everything that can be done with a file; it may fail but not panic.
fn use_all(bytes: Vec<u8>) {
    let source: Arc<dyn ReadAt> = Arc::new(bytes);
    for reader in [Reader::open(source.clone()), Reader::recover(source).map(|(r, _)| r)] {
        let Ok(reader) = reader else { continue };
        let _ = reader.verify(1, &mut |_| Ok(()));
        let _ = reader.info();
        let _ = reader.find("more/7");
        let mut buf = vec![0; reader.len().min(100_000) as usize];
        let _ = reader.read_what_is_left(0, &mut buf);
        for (number, entry) in reader.entries(0).flatten().take(100) {
            if let Ok(record) = reader.record_at(number) {
                let mut buf = vec![0; entry.len().min(10_000) as usize];
                let _ = record.read_at(0, &mut buf);
            }
        }
        let _ = fiche::archive::merge(&[reader], Vec::new(), &mut |_| Ok(()));
    }
}

proptest! {
    #![proptest_config(match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig { cases: 400, ..ProptestConfig::default() },
    })]

    #[test]
    fn edited_sections_with_right_checksums_are_read_or_refused(
        which: prop::sample::Index, edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let (mut bytes, _) = archive();
        let sections = sections(&bytes);
        let section = which.get(&sections);
        for (at, value) in edits {
            let at = section.payload + at.index(section.end - 4 - section.payload);
            bytes[at] = value;
        }
        reseal(&mut bytes, section);
        use_all(bytes);
    }

    #[test]
    fn any_bytes_behind_a_header_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (good, _) = archive();
        use_all([&good[..32], &bytes].concat());
        use_all([&good[..40], &bytes, &good[good.len() - 200..]].concat());
    }
}

#[test]
fn a_burst_in_a_dictionary_is_mended_and_reported() {
    let mut random = Random(11);
    let text = random.text(300_000);
    let dictionary = Arc::new(Dictionary::new(random.bytes(150_000)).unwrap());
    let dictionary_and_text = [&text[..60_000], dictionary.as_bytes()].concat();
    let dictionary = Arc::new(Dictionary::new(dictionary_and_text).unwrap());
    let coder = Arc::new(Coder::new(Coding::Pv, dictionary).unwrap());
    let mut writer = Writer::new(Vec::new(), Options::default().coder(coder)).unwrap();
    writer.add(Entry::data("text"), &mut text.as_slice()).unwrap();
    let good = writer.finish().unwrap();
    let piece = sections(&good).into_iter().find(|s| s.kind == 9).unwrap();
    // A device's sector, wherever it lies; two sectors are too many where they are far apart.
    for start in (piece.pos..piece.end - 4096).step_by(4096) {
        let mut bad = good.clone();
        bad[start..start + 4096].fill(0xEE);
        let reader = Reader::open(Arc::new(bad.clone())).unwrap();
        assert!(read_all(&reader).unwrap() == text, "{start}");
        let report = reader.verify(1, &mut |_| Ok(())).unwrap();
        assert!(!report.damage.is_empty());
        assert!(report.damage.iter().all(|damage| damage.content.is_none()));
        let far = if start > piece.pos + 50_000 { piece.pos } else { piece.end - 4096 };
        bad[far..far + 4096].fill(0xEE);
        let reader = Reader::open(Arc::new(bad)).unwrap();
        assert!(matches!(read_all(&reader), Err(Error::Corrupt { .. })), "{start}");
    }
}

/// A source that refuses its first reads, as a network may.
struct Flaky(Vec<u8>, std::sync::atomic::AtomicU64);

impl ReadAt for Flaky {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        use std::sync::atomic::Ordering;
        // Opening needs the header and the end; what is in between fails at first.
        let middle = offset >= 32 && offset + (buf.len() as u64) < self.len() - 500;
        let left = &self.1;
        if middle
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        {
            return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        }
        self.0.read_at(offset, buf)
    }
}

#[test]
fn a_dictionary_that_could_not_be_read_is_read_when_it_can() {
    let text = Random(3).text(200_000);
    let dictionary = Arc::new(Dictionary::new(text[..50_000].to_vec()).unwrap());
    let coder = Arc::new(Coder::new(Coding::Zz, dictionary).unwrap());
    let mut writer = Writer::new(Vec::new(), Options::default().coder(coder)).unwrap();
    std::io::Write::write_all(&mut writer, &text).unwrap();
    let file = writer.finish().unwrap();
    let reader = Reader::open(Arc::new(Flaky(file, 3.into()))).unwrap();
    let mut failed = 0;
    while read_all(&reader).is_err() {
        failed += 1;
    }
    assert!((1..=3).contains(&failed), "{failed}");
    assert!(read_all(&reader).unwrap() == text);
}
