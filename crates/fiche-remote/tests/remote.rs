//! Archives on servers that behave, and on those that do not.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::archive::{Entry, Kind, OpenOptions, Options as Packing, Reader, Writer};
use fiche::rlz::{Coder, Coding, Sampling};
use fiche::testing::{Random, conformance};
use fiche::{Error, ReadAt};
use fiche_remote::testing::{Fault, Server};
use fiche_remote::{Beside, Folder, Options, Remote};

const TAG: Option<&str> = Some("\"one\"");

fn content(len: usize) -> Vec<u8> {
    let mut random = Random(len as u64);
    let mut text = random.text(len / 2);
    text.extend(random.bytes(len - len / 2));
    // So that neighbouring blocks differ in length.
    text.rotate_left(len / 3);
    text
}

/// Records of 3 KB to 40 KB, and their bytes.
fn archive(content: &[u8], packing: Packing) -> (Vec<u8>, Vec<Range<u64>>) {
    let (mut random, mut ranges) = (Random(9), Vec::new());
    let mut writer = Writer::new(Vec::new(), packing.block_len(16 << 10)).unwrap();
    let mut at = 0;
    while at < content.len() {
        let end = (at + 3000 + random.below(37_000) as usize).min(content.len());
        let name = format!("record {:05}", ranges.len());
        writer.add(Entry::new(name, Kind::File), &mut &content[at..end]).unwrap();
        ranges.push(at as u64..end as u64);
        at = end;
    }
    (writer.finish().unwrap(), ranges)
}

fn with_dictionary(content: &[u8]) -> (Vec<u8>, Vec<Range<u64>>) {
    let dictionary = Sampling::default().len(256 << 10).run(&content).unwrap();
    let coder = Coder::new(Coding::Hybrid, Arc::new(dictionary)).unwrap();
    let coder = coder.learn(&content, 16 << 10).unwrap();
    archive(content, Packing::default().coder(Arc::new(coder)))
}

fn impatient() -> Options {
    Options::default().timeout(Duration::from_millis(300))
}

#[test]
fn an_object_is_a_source_like_any_other() {
    let (server, bytes) = (Server::start(), content(300_000));
    let url = server.put("plain", bytes.clone(), TAG);
    conformance(&Remote::open(&url).unwrap(), &bytes, 1);
    // With next to no memory, too.
    conformance(&Options::default().memory(1000).tail(1).open(&url).unwrap(), &bytes, 2);
    let all = server.asked().into_iter().map(|(_, range)| range.expect("a range"));
    assert!(all.clone().count() > 3 && all.into_iter().all(|range| range.end <= 300_000));
}

#[test]
fn what_is_too_long_to_keep_is_fetched_once() {
    let (server, bytes) = (Server::start(), content(3_000_000));
    let url = server.put("plain", bytes.clone(), TAG);
    let remote = Options::default().memory(1 << 20).tail(1).open(&url).unwrap();
    let mut all = vec![0; bytes.len()];
    remote.read_at(0, &mut all).unwrap();
    assert!(all == bytes);
    assert_eq!(remote.counts(), (2, 1 + 3_000_000));
}

#[test]
fn records_of_an_archive_cost_the_requests_that_are_promised() {
    let (server, content) = (Server::start(), content(3_000_000));
    let (file, ranges) = archive(&content, Packing::default());
    let url = server.put("a", file.clone(), TAG);

    // All tables are in what the first request fetches.
    let remote = Arc::new(Remote::open(&url).unwrap());
    let reader = Reader::open(remote.clone()).unwrap();
    let mut first = [0; 1];
    reader.read_at(1000, &mut first).unwrap();
    assert_eq!(first[0], content[1000]);
    assert_eq!(server.asked().len(), 2);
    assert_eq!(remote.counts().0, 2);

    // None of them is: the end, the table, the block.
    let reader = Reader::open(Arc::new(Options::default().tail(200).open(&url).unwrap())).unwrap();
    reader.read_at(1000, &mut first).unwrap();
    assert_eq!(first[0], content[1000]);
    assert!(server.asked().len() <= 4);

    // Scattered records: no more requests than there are, nothing but their blocks and the gaps, and what
    // was planned.
    let remote = Arc::new(Options::default().gap(1000).open(&url).unwrap());
    let reader = Reader::open(remote).unwrap();
    let some: Vec<&Range<u64>> = ranges.iter().step_by(9).collect();
    let planned = reader.plan(&some.iter().map(|&r| r.clone()).collect::<Vec<_>>()).unwrap();
    let _ = server.asked();
    let mut bytes: Vec<Vec<u8>> =
        some.iter().map(|range| vec![0; (range.end - range.start) as usize]).collect();
    let mut reads: Vec<(u64, &mut [u8])> =
        some.iter().zip(&mut bytes).map(|(range, buf)| (range.start, &mut buf[..])).collect();
    assert!(reader.read_many_at(&mut reads).into_iter().all(|done| done.is_ok()));
    for (range, bytes) in some.iter().zip(&bytes) {
        assert_eq!(bytes[..], content[range.start as usize..range.end as usize]);
    }
    let asked: Vec<Range<u64>> = server.asked().into_iter().map(|(_, r)| r.unwrap()).collect();
    assert!(asked.len() <= some.len(), "{} {}", asked.len(), some.len());
    let len = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
    assert_eq!(reader.plan(&[ranges[0].clone(), ranges[9].clone()]).unwrap(), []);
    let gaps = 1000 * (planned.len() - asked.len()) as u64;
    assert!(len(&asked) <= len(&planned) + gaps, "{} {}", len(&asked), len(&planned));
}

#[test]
fn a_dictionary_comes_with_one_request_and_then_from_disk() {
    let (server, content) = (Server::start(), content(3_000_000));
    let (file, _) = with_dictionary(&content);
    let url = server.put("a", file.clone(), TAG);
    let open = |options: &Options, cache: Option<Arc<Folder>>| {
        let mut how = OpenOptions::default();
        if let Some(folder) = cache {
            how = how.dictionary_cache(folder);
        }
        how.open(Arc::new(options.open(&url).unwrap())).unwrap()
    };
    let mut first = [0; 100];
    let read = |reader: Reader, first: &mut [u8]| {
        reader.read_at(2_000_000, first).unwrap();
        assert_eq!(first[..], content[2_000_000..2_000_100]);
    };
    // The end; the table; dictionary and model beside the block.
    let small = Options::default().tail(300);
    read(open(&small, None), &mut first);
    let asked = server.asked();
    assert!(asked.len() <= 4, "{asked:?}");

    // The same kept: the first time the description by itself, and then not the dictionary.
    let dir = tempfile::tempdir().unwrap();
    let folder = Arc::new(Folder::new(dir.path(), 1 << 30).unwrap());
    read(open(&small, Some(folder.clone())), &mut first);
    let cold: u64 = server.asked().into_iter().map(|(_, r)| r.map_or(0, |r| r.end - r.start)).sum();
    read(open(&small, Some(folder.clone())), &mut first);
    let asked = server.asked();
    let warm: u64 = asked.iter().map(|(_, r)| r.as_ref().map_or(0, |r| r.end - r.start)).sum();
    assert!(
        asked.len() <= 4 && warm * 2 < cold,
        "{} requests, {warm} of {cold} bytes",
        asked.len()
    );

    // What was fetched is kept as well: only the end is asked for, which tells whether it is the same.
    let kept = small.folder(folder.clone());
    read(open(&kept, Some(folder.clone())), &mut first);
    let _ = server.asked();
    read(open(&kept, Some(folder.clone())), &mut first);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn everything_comes_back_from_a_server_that_fails_now_and_then() {
    let content = content(1_500_000);
    let (file, _) = with_dictionary(&content);
    for fault in [Fault::Fails, Fault::Cuts, Fault::Stalls] {
        for tag in [TAG, None, Some("W/\"weak\"")] {
            let server = Server::start();
            let url = server.put("a", file.clone(), tag);
            server.fault(fault);
            let remote = impatient()
                .tail(100)
                .open(&url)
                .unwrap_or_else(|e| panic!("{fault:?} {tag:?} {e}"));
            let reader = Reader::open(Arc::new(remote)).unwrap();
            let mut all = vec![0; content.len()];
            reader
                .read_at(0, &mut all)
                .unwrap_or_else(|error| panic!("{fault:?} {tag:?}: {error}"));
            assert!(all == content, "{fault:?} {tag:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_says_why_and_soon() {
    let (server, bytes) = (Server::start(), content(100_000));
    let url = server.put("a", bytes.clone(), TAG);
    let none = Remote::open(&format!("{url}-not")).unwrap_err();
    assert!(matches!(&none, Error::Io(e) if e.kind() == std::io::ErrorKind::NotFound), "{none}");
    server.fault(Fault::IgnoresRange);
    let error = Remote::open(&url).unwrap_err();
    assert!(error.to_string().contains("does not give out parts"), "{error}");
    server.fault(Fault::FailsAlways);
    let begun = Instant::now();
    let error = impatient().retries(2).open(&url).unwrap_err();
    assert!(matches!(error, Error::Io(_)) && error.to_string().contains(&url), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let error = impatient().retries(1).open("http://127.0.0.1:9/nothing").unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
    // No archive: said so, not taken for one.
    server.fault(Fault::None);
    let error = Reader::open(Arc::new(Remote::open(&url).unwrap())).err().unwrap();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let url = server.put("half", archive(&bytes, Packing::default()).0[..50_000].to_vec(), TAG);
    let error = Reader::open(Arc::new(Remote::open(&url).unwrap())).err().unwrap();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn an_object_that_is_replaced_is_an_error_and_never_a_mixture() {
    let one = content(1_000_000);
    let mut other = one.clone();
    other.iter_mut().for_each(|byte| *byte ^= 1);
    // By its tag, which the server may not look at; by its length where it has none.
    for (tag, new_tag, ignores, new) in [
        (TAG, Some("\"two\""), false, &other[..]),
        (TAG, Some("\"two\""), true, &other[..]),
        (Some("W/\"1\""), Some("W/\"2\""), false, &other[..]),
        (None, None, false, &other[1..]),
    ] {
        let server = Server::start();
        let url = server.put("a", one.clone(), tag);
        if ignores {
            server.ignore_match();
        }
        let remote = Remote::open(&url).unwrap();
        let mut buf = [0; 1000];
        remote.read_at(5000, &mut buf).unwrap();
        assert_eq!(buf[..], one[5000..6000]);
        server.put("a", new.to_vec(), new_tag);
        let error = remote.read_at(500_000, &mut buf).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{tag:?} {ignores}: {error}");
        // What was fetched of the one is still the one.
        remote.read_at(5000, &mut buf).unwrap();
        assert_eq!(buf[..], one[5000..6000]);
    }
}

#[test]
fn batches_wait_once_and_long_reads_in_parallel() {
    let (server, content) = (Server::start(), content(8_000_000));
    let (file, ranges) = archive(&content, Packing::default());
    let url = server.put("a", file, TAG);
    let reader = Reader::open(Arc::new(Remote::open(&url).unwrap())).unwrap();
    let _ = server.asked();
    server.delay(Duration::from_millis(300));
    let mut some: Vec<(u64, Vec<u8>)> =
        ranges.iter().step_by(25).map(|r| (r.start, vec![0; 100])).collect();
    let mut reads: Vec<(u64, &mut [u8])> =
        some.iter_mut().map(|(at, buf)| (*at, &mut buf[..])).collect();
    assert!(reads.len() > 12);
    let begun = Instant::now();
    assert!(reader.read_many_at(&mut reads).into_iter().all(|done| done.is_ok()));
    // One behind the other it would be 12 times as long.
    assert!(begun.elapsed() < Duration::from_millis(300 * 8), "{:?}", begun.elapsed());
    server.delay(Duration::ZERO);
    let mut all = vec![0; content.len()];
    reader.read_at(0, &mut all).unwrap();
    assert!(all == content);
    assert!(server.asked().len() <= 12 * 4, "parts of 4 MiB, not of blocks");
}

#[test]
fn going_through_all_records_fetches_many_pages_at_once() {
    let server = Server::start();
    let mut writer = Writer::new(Vec::new(), Packing::default()).unwrap();
    for i in 0..60_000 {
        let name = format!("{:x}", u64::from(i as u32).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        writer.add(Entry::new(name.as_bytes(), Kind::File), &mut name.as_bytes()).unwrap();
    }
    let url = server.put("a", writer.finish().unwrap(), TAG);
    let remote = Arc::new(Remote::open(&url).unwrap());
    let reader = Reader::open(remote.clone()).unwrap();
    assert_eq!(reader.entries(0).filter(Result::is_ok).count(), 60_000);
    let asked = server.asked();
    assert!(asked.len() < 30, "{} requests: {asked:?}", asked.len());
    // What is not there costs a search and no more.
    let (before, _) = remote.counts();
    assert!(matches!(reader.entry_of("no such name"), Err(Error::NotFound { .. })));
    assert!(remote.counts().0 - before < 5);
}

#[test]
fn dictionary_files_are_found_beside_the_archive() {
    let (server, content) = (Server::start(), content(1_000_000));
    let dictionary = Arc::new(Sampling::default().len(64 << 10).run(&content).unwrap());
    let coder = Arc::new(Coder::new(Coding::Pv, dictionary.clone()).unwrap());
    let (file, _) =
        archive(&content, Packing::default().coder(coder).dictionary_file("shared.dict"));
    let url = server.put("dir/a.fiche", file, TAG);
    let open = || {
        let how = OpenOptions::default().resolve(Arc::new(Beside::new(&url, Options::default())));
        how.open(Arc::new(Remote::open(&url).unwrap())).unwrap()
    };
    let mut buf = [0; 100];
    let error = open().read_at(900_000, &mut buf).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    server.put("dir/shared.dict", dictionary.write_to(Vec::new()).unwrap(), TAG);
    open().read_at(900_000, &mut buf).unwrap();
    assert_eq!(buf[..], content[900_000..900_100]);
}

#[test]
fn an_archive_leads_to_no_other_server_and_no_other_folder() {
    let (server, elsewhere) = (Server::start(), Server::start());
    let url = server.put("dir/a.fiche", vec![0; 100], TAG);
    let other = elsewhere.put("x", vec![0; 100], TAG);
    let host = other.strip_prefix("http://").unwrap().strip_suffix("/x").unwrap();
    let beside = Beside::new(&format!("{url}?sig=1"), Options::default());
    let digest = fiche::Digest::of(b"");
    for name in [
        format!("\\\\{host}\\x"),
        format!("http:{host}"),
        "..\\..\\x".to_owned(),
        "%2e%2e".to_owned(),
        ".\t.".to_owned(),
        "a?b#c".to_owned(),
        "..".to_owned(),
        String::new(),
        "a/b".to_owned(),
    ] {
        let error = fiche::Resolve::open(&beside, &name, &digest).err().expect("nothing is there");
        assert!(matches!(error, Error::Missing { .. }), "{name}: {error}");
    }
    assert!(elsewhere.asked().is_empty());
    assert!(server.asked().iter().all(|(path, _)| path.starts_with("/dir/")), "only beside it");
}

#[test]
fn what_a_server_says_of_lengths_takes_no_memory() {
    use std::io::{BufRead, BufReader, Write};
    // It claims an object of 2^62 bytes, of which it sends an end without end.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let (len, end) = (1u64 << 62, (1u64 << 62) - 1);
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{end}/{len}\r\nContent-Length: {len}\r\n\r\n",
                len - 1000
            );
            let _ = stream.write_all(head.as_bytes());
            while stream.write_all(&[0; 1 << 16]).is_ok() {}
        }
    });
    let error = impatient().tail(1000).open(&url).unwrap_err();
    assert!(error.to_string().contains("another range"), "{error}");
}

#[test]
fn what_came_of_a_batch_is_not_asked_for_again() {
    let (server, content) = (Server::start(), content(3_000_000));
    let (file, ranges) = archive(&content, Packing::default());
    let url = server.put("a", file.clone(), TAG);
    let reader = Reader::open(Arc::new(impatient().retries(0).open(&url).unwrap())).unwrap();
    reader.read_at(0, &mut [0; 10]).unwrap();
    let _ = server.asked();
    server.fault(Fault::Fails);
    let mut bytes: Vec<Vec<u8>> = ranges.iter().step_by(5).map(|_| vec![0; 100]).collect();
    let mut reads: Vec<(u64, &mut [u8])> =
        ranges.iter().step_by(5).zip(&mut bytes).map(|(r, b)| (r.start, &mut b[..])).collect();
    let results = reader.read_many_at(&mut reads);
    let (good, bad) = (
        results.iter().filter(|r| r.is_ok()).count(),
        results.iter().filter(|r| r.is_err()).count(),
    );
    // Each third failed, without a second try: what is behind the first is an error as well, and soon.
    assert!(bad > 0 && good + bad == bytes.len());
    assert!(server.asked().len() <= bytes.len() + 1);
}

#[test]
fn threads_share_one() {
    let (server, content) = (Server::start(), content(2_000_000));
    let (file, _) = with_dictionary(&content);
    let url = server.put("a", file, TAG);
    let reader =
        Reader::open(Arc::new(Options::default().memory(50_000).open(&url).unwrap())).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (reader, content) = (&reader, &content);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..50 {
                    let at = random.below(1_990_000) as usize;
                    let mut buf = vec![0; random.below(9000) as usize];
                    reader.read_at(at as u64, &mut buf).unwrap();
                    assert!(buf[..] == content[at..at + buf.len()]);
                }
            });
        }
    });
}
