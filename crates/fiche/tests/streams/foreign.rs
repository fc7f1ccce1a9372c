//! Gzip files of other programs, by an index or, of BGZF, without.

use super::*;

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
