//! What a read says that it will fetch is what it fetches.

use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use fiche::archive::{Entry, OpenOptions, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::testing::Random;
use fiche::{Error, ReadAt, Result};

/// A source that notes what is read of it.
struct Noted {
    bytes: Vec<u8>,
    reads: Mutex<Vec<Range<u64>>>,
}

impl ReadAt for Noted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.lock().unwrap().push(offset..offset + buf.len() as u64);
        self.bytes.read_at(offset, buf)
    }
}

/// Sorted, and those that touch as one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

fn open(options: Options, content: &[u8], cache: u64) -> (Arc<Noted>, Reader) {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    for (i, piece) in content.chunks(30_000).enumerate() {
        writer.add(Entry::data(format!("record {i}")), &mut &piece[..]).unwrap();
    }
    writer.write_all(b"the end").unwrap();
    let bytes = writer.finish().unwrap();
    let noted = Arc::new(Noted { bytes, reads: Mutex::default() });
    let reader = OpenOptions::default().cache(cache).open(noted.clone()).unwrap();
    (noted, reader)
}

#[test]
fn it_is_what_is_fetched() {
    let mut random = Random(5);
    let content = random.text(3_000_000);
    let learned = Options::default().learn(&content).unwrap();
    for options in [learned, Options::default().codec(Codec::Zstd).level(3)] {
        let (noted, reader) = open(options, &content, 0);
        for round in 0..60 {
            let start = random.below(content.len() as u64);
            let len = random.below(if round % 3 == 0 { 700_000 } else { 20_000 });
            let read = start..(start + len).min(reader.len());
            let planned = reader.plan(std::slice::from_ref(&read)).unwrap();
            noted.reads.lock().unwrap().clear();
            reader.read_at(read.start, &mut vec![0; (read.end - read.start) as usize]).unwrap();
            let fetched = joined(std::mem::take(&mut noted.reads.lock().unwrap()));
            assert_eq!(joined(planned), fetched, "{round}: {read:?}");
        }
    }
}

#[test]
fn what_is_cached_costs_nothing_and_reads_share_what_they_need() {
    let content = Random(6).text(500_000);
    let (noted, reader) = open(Options::default().codec(Codec::Zstd).level(3), &content, 64 << 20);
    let reads = [1000..1100, 2000..2100, 300_000..300_100];
    assert_eq!(reader.plan(&reads).unwrap().len(), 2);
    assert_eq!(reader.plan(&[]).unwrap(), []);
    assert_eq!(reader.plan(&[5..5]).unwrap(), []);
    let mut buf = [0; 100];
    // Twice: what is looked at again is decoded whole.
    for _ in 0..2 {
        reader.read_at(1000, &mut buf).unwrap();
        reader.read_at(300_000, &mut buf).unwrap();
    }
    assert_eq!(reader.plan(&reads).unwrap(), []);
    noted.reads.lock().unwrap().clear();
    reader.read_at(2000, &mut buf).unwrap();
    assert!(noted.reads.lock().unwrap().is_empty());
    let end = reader.len();
    for wrong in [end - 1..end + 1, 0..u64::MAX, Range { start: 9, end: 8 }] {
        assert!(matches!(reader.plan(&[wrong]), Err(Error::OutOfBounds { .. })));
    }
}
