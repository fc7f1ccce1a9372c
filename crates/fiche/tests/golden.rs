//! Files in golden/ stay readable: good ones decode to what their manifests say, bad
//! ones give their named errors. Compressed bytes are never compared.
//!
//! `make bless` writes what is missing and never replaces a file.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Section, manifest, reseal, sections};
use fiche::archive::{Entry, Extents, Kind, Meta, OpenOptions, Options, Reader, Split, Writer};
use fiche::codec::Codec;
use fiche::codec::filter::Filter;
use fiche::rlz::{Coder, Coding, Dictionary, Training};
use fiche::testing::{Random, model_bytes};
use fiche::{FileSource, InFolder, ReadAt};

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(folder)
}

fn blessing() -> bool {
    std::env::var_os("FICHE_BLESS").is_some()
}

fn small() -> Options {
    Options::default().block_len(4 << 10).threads(1)
}

fn pack(options: Options, write: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    write(&mut writer);
    writer.finish().unwrap()
}

/// Three records: text, noise that does not shrink, and nothing.
fn three(options: Options) -> Vec<u8> {
    pack(options, |writer| {
        let mut random = Random(7);
        writer.add(Entry::data("text"), &mut random.text(20_000).as_slice()).unwrap();
        writer.add(Entry::data("noise"), &mut random.bytes(9_000).as_slice()).unwrap();
        writer.add(Entry::data("nothing"), &mut [].as_slice()).unwrap();
    })
}

/// Numbers of four bytes that grow slowly, and noise, both with filters before the codec.
fn numbers(codec: Codec, filters: &[Filter]) -> Vec<u8> {
    let options = small().codec(codec).filters(filters.iter().copied());
    pack(options, |writer| {
        let mut random = Random(13);
        let mut last = 0;
        let numbers = (0..5_000).flat_map(|_| {
            last += random.below(300) as u32;
            last.to_le_bytes()
        });
        let numbers: Vec<u8> = numbers.chain(*b"end").collect();
        writer.add(Entry::data("numbers"), &mut numbers.as_slice()).unwrap();
        writer.add(Entry::data("noise"), &mut random.bytes(5_000).as_slice()).unwrap();
    })
}

fn meta(mode: u32, seconds: i64, attributes: &[(&str, &str)]) -> Meta {
    let mut meta = Meta::default();
    (meta.mode, meta.modified) = (mode, (seconds, 123));
    (meta.user, meta.group) = (1000, 4_000_000_000);
    meta.attributes =
        attributes.iter().map(|(n, v)| (n.as_bytes().into(), v.as_bytes().into())).collect();
    meta
}

/// Every kind of record, with metadata and without.
fn tree() -> Vec<u8> {
    pack(small(), |writer| {
        let mut random = Random(3);
        let time = 1_600_000_000;
        let folder = Entry::new("a", Kind::Directory).meta(meta(0o755, time, &[]));
        writer.add_entry(folder).unwrap();
        let attributes = [("user.empty", ""), ("user.mime", "text/plain")];
        let file = Entry::new("a/file", Kind::File).meta(meta(0o4755, time + 1, &attributes));
        let file = writer.add(file, &mut random.text(6_000).as_slice()).unwrap();
        writer.add_entry(Entry::new("a/file-again", Kind::File).range(0..6_000)).unwrap();
        let link = Entry::new("a/hard", Kind::Hardlink(file)).meta(meta(0o4755, 0, &[]));
        writer.add_entry(link).unwrap();
        let link = Entry::new("a/link", Kind::Symlink(b"../nowhere".to_vec()));
        writer.add_entry(link.meta(meta(0o777, -5, &[]))).unwrap();
        let pipe = Entry::new("a/pipe", Kind::Fifo).meta(meta(0o600, i64::MIN, &[]));
        writer.add_entry(pipe).unwrap();
        let device = Entry::new("dev-null", Kind::CharDevice(1, 3)).meta(meta(0o666, 9, &[]));
        writer.add_entry(device).unwrap();
        let device = Entry::new("dev-sda", Kind::BlockDevice(8, 0)).meta(meta(0o660, 9, &[]));
        writer.add_entry(device).unwrap();
        let odd = Entry::new(b"line\nbreak \xFF\xFE".as_slice(), Kind::File);
        writer.add(odd, &mut b"odd".as_slice()).unwrap();
        let extents = Extents { len: 1 << 40, data: vec![5_000..8_000, 1 << 30..(1 << 30) + 10] };
        let sparse = Entry::new("sparse", Kind::File).extents(extents);
        writer.add(sparse, &mut random.text(3_010).as_slice()).unwrap();
        let hole = Extents { len: 1 << 20, data: Vec::new() };
        let sparse = Entry::new("sparse-hole", Kind::File).extents(hole);
        writer.add(sparse, &mut [].as_slice()).unwrap();
    })
}

fn unsorted() -> Vec<u8> {
    pack(small(), |writer| {
        for i in 0..600u32 {
            let name = if i % 7 == 3 { String::new() } else { format!("key {}", i * 7919 % 600) };
            writer.add(Entry::data(name), &mut format!("value {i}").as_bytes()).unwrap();
        }
    })
}

/// Records of a WARC file, with two names and some that share one, and lines without.
fn items() -> Vec<u8> {
    pack(small(), |writer| {
        let mut warc = Vec::new();
        for i in 0..400u32 {
            let (uri, text) = (i * 7919 % 300, Random(u64::from(i)).text(30));
            let head = format!(
                "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: http://x/{uri}\r\n\
                 WARC-Record-ID: <urn:uuid:{i:08x}>\r\nContent-Length: 30\r\n\r\n"
            );
            warc.extend([head.as_bytes(), &text, b"\r\n\r\n"].concat());
        }
        writer.add_records(&Split::Warc, &mut warc.as_slice(), &mut |_| Ok(())).unwrap();
        let lines = b"one\ntwo\n\nfour";
        writer.add_records(&Split::Lines, &mut lines.as_slice(), &mut |_| Ok(())).unwrap();
        let whole = 0..writer.offset();
        writer.add_entry(Entry::new("all", Kind::File).range(whole)).unwrap();
    })
}

fn coder(coding: Coding, seed: u64) -> Arc<Coder> {
    // Other words than those of the text, and some of the same.
    let words = [Random(seed).text(3_000), Random(7).text(5_000)].concat();
    let dictionary = Arc::new(Dictionary::new(words).unwrap());
    let coder = Coder::new(coding, dictionary).unwrap();
    let coder = coder.learn(&Random(11).text(60_000), 1 << 10).unwrap();
    Arc::new(coder.probe(&Random(7).text(9_000)[5_000..]).collection(29_000))
}

/// Archives with dictionaries: each coding; two of each in one; and one whose dictionary is
/// in the file `words.dict`.
fn with_dictionaries() -> Vec<(&'static str, Vec<u8>)> {
    let mut files: Vec<_> = Coding::ALL
        .into_iter()
        .map(|coding| (coding.name(), three(small().coder(coder(coding, 8)))))
        .collect();
    let two = {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), three(small().coder(coder(Coding::ZzPrimed, 8)))).unwrap();
        for (name, coding, seed) in
            [("more", Coding::Pv, 9), ("again", Coding::ZzPrimed, 8), ("last", Coding::Uv, 9)]
        {
            let options = small().coder(coder(coding, seed));
            fiche::archive::append(file.path(), &options, |writer| {
                writer.add(Entry::data(name), &mut Random(7).text(6_000).as_slice())?;
                Ok(())
            })
            .unwrap();
        }
        fs::read(file.path()).unwrap()
    };
    let one = pack(small().coder(coder(Coding::Zzz, 9)), |writer| {
        writer.add(Entry::data("one"), &mut Random(7).text(9_000).as_slice()).unwrap();
    });
    let readers = [one, two.clone()].map(|file| Reader::open(Arc::new(file)).unwrap());
    let merged = fiche::archive::merge(&readers, Vec::new(), &mut |_| Ok(())).unwrap();
    files.push(("two-dictionaries", two));
    files.push(("merged-dictionaries", merged));
    let options = small().coder(coder(Coding::Pv, 8)).dictionary_file("words.dict");
    files.push(("dictionary-file", three(options)));
    files
}

/// Long blocks of a coding at a level, of text and of numbers, which have codes of their own.
fn long_blocks(coding: Coding, level: i32) -> Vec<u8> {
    let mut random = Random(17);
    let numbers = |random: &mut Random, count| -> Vec<u8> {
        (0..count).flat_map(|i| (i << 8 | random.below(90) as u32).to_le_bytes()).collect()
    };
    let content = [random.text(70_000), numbers(&mut random, 16_000)].concat();
    let training = Training::new(coding).level(level).block_len(64 << 10);
    let coder = Arc::new(training.dictionary_len(8_000).run(&content).unwrap());
    let model = model_bytes(&coder).unwrap();
    assert!(coding != Coding::Hybrid || model[0] > 1, "{} kinds of blocks", model[0]);
    pack(Options::default().block_len(64 << 10).threads(1).coder(coder), |writer| {
        writer.add(Entry::data("both"), &mut content.as_slice()).unwrap();
    })
}

/// Opens what may have its dictionary beside it.
fn open(path: &Path) -> fiche::Result<Reader> {
    let folder = InFolder::new(path.parent().unwrap());
    OpenOptions::default().resolve(Arc::new(folder)).open(Arc::new(FileSource::open(path)?))
}

fn good_files() -> Vec<(&'static str, Vec<u8>)> {
    let of = |codec| three(small().codec(codec));
    let merged = {
        let readers: Vec<Reader> = [tree(), unsorted(), items(), of(Codec::Lz4)]
            .into_iter()
            .map(|bytes| Reader::open(Arc::new(bytes)).unwrap())
            .collect();
        fiche::archive::merge(&readers, Vec::new(), &mut |_| Ok(())).unwrap()
    };
    let appended = {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), of(Codec::Zstd)).unwrap();
        for (name, codec) in [("more", Codec::Lz4), ("and more", Codec::Deflate)] {
            fiche::archive::append(file.path(), &small().codec(codec), |writer| {
                writer.add(Entry::data(name), &mut Random(9).text(5_000).as_slice())?;
                Ok(())
            })
            .unwrap();
        }
        fs::read(file.path()).unwrap()
    };
    let mut cut_append = of(Codec::Zstd);
    let guard = (cut_append.len() as u64).to_le_bytes();
    cut_append[20..28].copy_from_slice(&guard);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &guard) as u32;
    cut_append[28..32].copy_from_slice(&sum.to_le_bytes());
    cut_append.extend_from_slice(b"half of what was to be appended");
    vec![
        ("copy", of(Codec::Copy)),
        ("lz4", of(Codec::Lz4)),
        ("lz4-high", three(small().codec(Codec::Lz4).level(12))),
        ("zlib", of(Codec::Deflate)),
        ("zstd", of(Codec::Zstd)),
        ("lzma", of(Codec::Lzma)),
        ("bzip2", of(Codec::Bzip2)),
        ("bewalgo32", of(Codec::BeWalgo32)),
        ("bewalgo64", of(Codec::BeWalgo64)),
        ("lzo", of(Codec::Lzo)),
        ("shuffle", numbers(Codec::BeWalgo32, &[Filter::Shuffle(4)])),
        ("bitshuffle", numbers(Codec::Lz4, &[Filter::Bitshuffle(4)])),
        ("delta", numbers(Codec::Zstd, &[Filter::Delta(4), Filter::Shuffle(3), Filter::Delta(1)])),
        ("empty", pack(small(), |_| {})),
        (
            "stream",
            pack(small(), |w| std::io::Write::write_all(w, &Random(5).text(10_000)).unwrap()),
        ),
        ("aligned", {
            pack(small().align_records(true), |writer| {
                for i in 0..30 {
                    let text = Random(i).text(100 + 400 * i as usize);
                    writer.add(Entry::data(format!("{i:02}")), &mut text.as_slice()).unwrap();
                }
            })
        }),
        ("tree", tree()),
        ("unsorted", unsorted()),
        ("many", {
            pack(small(), |writer| {
                for i in 0..1500 {
                    let name = format!("folder {}/file {i:04}", i / 100 + 10);
                    writer.add(Entry::data(name), &mut [i as u8].as_slice()).unwrap();
                }
            })
        }),
        ("chapters", {
            pack(small().block_len(1 << 10), |writer| {
                writer.add(Entry::data("long"), &mut [b'x'; 4 << 20].as_slice()).unwrap();
                writer.add(Entry::data("short"), &mut b"short".as_slice()).unwrap();
            })
        }),
        ("items", items()),
        ("merged", merged),
        ("appended", appended),
        ("cut-off-append", cut_append),
        ("hybrid-long", long_blocks(Coding::Hybrid, 9)),
        ("hybrid-fast-long", long_blocks(Coding::Fast, 4)),
    ]
    .into_iter()
    .chain(with_dictionaries())
    .collect()
}

/// The manifest of a file that was just made.
fn manifest_of(bytes: Vec<u8>) -> String {
    let known = coder(Coding::Pv, 8).dictionary().clone();
    manifest(&OpenOptions::default().dictionary(known).open(Arc::new(bytes)).unwrap())
}

#[test]
fn good_files_read_as_their_manifests_say() {
    let folder = golden("v1");
    if blessing() {
        fs::create_dir_all(&folder).unwrap();
        if !folder.join("words.dict").exists() {
            let dictionary = coder(Coding::Pv, 8).dictionary().clone();
            fs::write(folder.join("words.dict"), dictionary.write_to(Vec::new()).unwrap()).unwrap();
        }
        for (name, bytes) in good_files() {
            let path = folder.join(format!("{name}.fiche"));
            if !path.exists() {
                fs::write(&path, &bytes).unwrap();
                fs::write(path.with_extension("txt"), manifest_of(bytes)).unwrap();
            }
        }
    }
    let mut files = 0;
    for item in fs::read_dir(&folder).unwrap() {
        let path = item.unwrap().path();
        if path.extension().is_none_or(|e| e != "fiche") {
            continue;
        }
        let reader = open(&path).unwrap();
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
        assert!(manifest(&reader) == expected, "{} reads as something else", path.display());
        let report = reader.verify(2, &mut |_| Ok(())).unwrap();
        assert!(report.damage.is_empty(), "{}: {:?}", path.display(), report.damage);
        let info = reader.info().unwrap();
        let parts = info.compressed_bytes
            + info.index_bytes
            + info.envelope_bytes
            + info.checksum_bytes
            + info.record_bytes
            + info.dictionary_bytes
            + info.model_bytes
            + info.superseded_bytes;
        assert_eq!(parts, info.stored_bytes, "{}", path.display());
        files += 1;
    }
    assert!(files >= 28, "golden/v1 has only {files} files");
}

/// What the files written today read as is what those of the past read as.
#[test]
fn files_written_now_read_as_the_golden_ones() {
    for (name, bytes) in good_files() {
        let expected = fs::read_to_string(golden("v1").join(name).with_extension("txt")).unwrap();
        assert!(manifest_of(bytes) == expected, "{name}");
    }
}

/// A file made from a good one; each must give the error that ERRORS names.
fn bad_files() -> Vec<(&'static str, Vec<u8>)> {
    let good = three(small());
    let table = |bytes: &[u8]| sections(bytes).into_iter().find(|s| s.kind == 3).unwrap();
    let edit = |change: &dyn Fn(&mut Vec<u8>, Section)| {
        let mut bytes = good.clone();
        let at = table(&bytes);
        change(&mut bytes, at);
        bytes
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let reseal_header = |bytes: &mut Vec<u8>| {
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..16]) as u32;
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    };
    let footer = sections(&good).into_iter().find(|s| s.kind == 8).unwrap();
    vec![
        ("empty", Vec::new()),
        ("text", b"this is some text and no archive at all, whatever its name".to_vec()),
        ("cut-in-header", good[..20].to_vec()),
        ("cut-in-blocks", good[..good.len() / 2].to_vec()),
        ("cut-by-one-byte", good[..good.len() - 1].to_vec()),
        ("flip-in-header", with(&|b| b[9] ^= 1)),
        ("flip-in-block", with(&|b| b[40] ^= 1)),
        ("flip-in-chapter-table", edit(&|b, at| b[at.payload + 9] ^= 1)),
        ("flip-in-footer", with(&|b| b[footer.payload + 3] ^= 1)),
        (
            "flip-in-trailer",
            with(&|b| {
                let n = b.len();
                b[n - 30] ^= 1
            }),
        ),
        (
            "newer-version",
            with(&|b| {
                b[8] = 2;
                reseal_header(b)
            }),
        ),
        (
            "unknown-kind-of-file",
            with(&|b| {
                b[12] = 200;
                reseal_header(b)
            }),
        ),
        // back is 3 bytes, runs and blocks 1 each: then the codec.
        (
            "unknown-codec",
            edit(&|b, at| {
                b[at.payload + 5] = 99;
                reseal(b, &at);
                // The blocks' checksums hold the number too: those that are not stored raw.
                let crc = |b: &[u8]| {
                    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, b) as u32;
                    sum.wrapping_add(0x6669_6300)
                };
                let mut start = 32;
                while start < at.pos {
                    let word = |n: usize| u32::from_le_bytes(b[n..n + 4].try_into().unwrap());
                    let number = |n: usize| word(n).wrapping_sub(crc(&b[start..n]));
                    let end = (start + 1..at.pos - 3).find(|&n| number(n) < 6);
                    let Some(end) = end else { break };
                    if number(end) == Codec::Zstd as u32 {
                        let sum = word(end).wrapping_add(99 - Codec::Zstd as u32);
                        b[end..end + 4].copy_from_slice(&sum.to_le_bytes());
                    }
                    start = end + 4;
                }
            }),
        ),
        (
            "unknown-run-flag",
            edit(&|b, at| {
                b[at.payload + 6] = 64;
                reseal(b, &at)
            }),
        ),
        (
            "table-before-the-file",
            edit(&|b, at| {
                b[at.payload + 2] = 0x7f;
                reseal(b, &at)
            }),
        ),
        (
            "blocks-behind-their-table",
            edit(&|b, at| {
                // A smaller distance than the blocks are long.
                b[at.payload] = 0x80;
                b[at.payload + 1] = 0x80;
                b[at.payload + 2] = 1;
                reseal(b, &at)
            }),
        ),
        (
            "too-many-blocks",
            edit(&|b, at| {
                b[at.payload + 4] = 0x7f;
                reseal(b, &at)
            }),
        ),
        ("gap-behind-the-last-block", {
            // Of 38 blocks, with a record page behind the 32nd: the table ends with 32 and
            // its length.
            let mut bytes = pack(small(), |writer| {
                for i in 0..300 {
                    let text = Random(i).text(510);
                    writer.add(Entry::data(format!("{i:03}")), &mut text.as_slice()).unwrap();
                }
            });
            let at = table(&bytes);
            assert_eq!(bytes[at.end - 6], 32);
            bytes[at.end - 6] = 40;
            reseal(&mut bytes, &at);
            bytes
        }),
        (
            "footer-that-continues-what-is-none",
            with(&|b| {
                b[footer.payload] ^= 1;
                reseal(b, &footer);
            }),
        ),
        (
            "footer-of-another-length",
            with(&|b| {
                b[footer.payload + 1] ^= 1;
                reseal(b, &footer);
            }),
        ),
        ("missing-dictionary", {
            let file = "no-such-file.dict";
            three(small().coder(coder(Coding::Pv, 8)).dictionary_file(file))
        }),
        ("another-dictionary", {
            // It is there, but of another digest.
            three(small().coder(coder(Coding::Pv, 9)).dictionary_file("words.dict"))
        }),
        ("two-flips-in-dictionary", {
            let mut bytes = three(small().coder(coder(Coding::Zz, 8)));
            let piece = sections(&bytes).into_iter().find(|s| s.kind == 9).unwrap();
            // One could be mended.
            bytes[piece.payload + 100] ^= 1;
            bytes[piece.payload + 1500] ^= 1;
            bytes
        }),
        ("two-flips-in-model", {
            let mut bytes = three(small().coder(coder(Coding::ZzPrimed, 8)));
            let model = sections(&bytes).into_iter().find(|s| s.kind == 2).unwrap();
            bytes[model.payload + 100] ^= 1;
            bytes[model.payload + 500] ^= 1;
            bytes
        }),
        ("no-such-dictionary", {
            // Behind codec and flags, the run says which.
            let mut bytes = three(small().coder(coder(Coding::Uv, 8)));
            let at = table(&bytes);
            assert_eq!(bytes[at.payload + 5..at.payload + 8], [16, 2, 0]);
            bytes[at.payload + 7] = 1;
            reseal(&mut bytes, &at);
            bytes
        }),
        ("no-dictionary", {
            let mut bytes = three(small().coder(coder(Coding::Uv, 8)));
            let at = table(&bytes);
            // A codec's flags and one: the length of the list of lengths takes the place.
            bytes[at.payload + 6] = 0;
            reseal(&mut bytes, &at);
            bytes
        }),
        ("section-at-another-place", {
            // The same sections two bytes later: their checksums hold their positions.
            let mut bytes = good.clone();
            bytes.splice(32..32, [0, 0]);
            let end = bytes.len() - 32;
            bytes[end..end + 8].copy_from_slice(&((footer.pos + 2) as u64).to_le_bytes());
            let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[end..end + 20]);
            bytes[end + 20..end + 24].copy_from_slice(&(sum as u32).to_le_bytes());
            bytes
        }),
    ]
}

/// What reading all of it gives, as text.
fn outcome(bytes: Vec<u8>) -> String {
    let options = OpenOptions::default().resolve(Arc::new(InFolder::new(golden("v1"))));
    let result = options.open(Arc::new(bytes)).and_then(|reader| {
        reader.read_at(0, &mut vec![0; reader.len() as usize])?;
        reader.entries(0).collect::<fiche::Result<Vec<_>>>()
    });
    result.map_or_else(|error| error.to_string(), |_| "no error".to_owned())
}

#[test]
fn bad_files_give_their_named_errors() {
    let folder = golden("bad");
    if blessing() {
        fs::create_dir_all(&folder).unwrap();
        let mut errors = fs::read_to_string(folder.join("ERRORS")).unwrap_or_default();
        for (name, bytes) in bad_files() {
            let path = folder.join(format!("{name}.fiche"));
            if !path.exists() {
                fs::write(&path, &bytes).unwrap();
                errors.push_str(&format!("{name}: {}\n", outcome(bytes)));
            }
        }
        fs::write(folder.join("ERRORS"), errors).unwrap();
    }
    let errors = fs::read_to_string(folder.join("ERRORS")).unwrap();
    assert!(errors.lines().count() >= 27);
    for line in errors.lines() {
        let (name, expected) = line.split_once(": ").unwrap();
        let bytes = fs::read(folder.join(format!("{name}.fiche"))).unwrap();
        assert_eq!(outcome(bytes), expected, "{name}");
        assert_ne!(expected, "no error", "{name}");
    }
}
