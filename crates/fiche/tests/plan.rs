//! What a read says that it will fetch is what it fetches.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fiche::archive::{Entry, OpenOptions, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary};
use fiche::testing::{Behind, Random};
use fiche::{Error, ReadAt, Result};

/// A source that notes what is read of it.
struct Noted {
    bytes: Vec<u8>,
    reads: Mutex<Vec<Range<u64>>>,
    is_gone: AtomicBool,
}

impl ReadAt for Noted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the file is gone").into());
        }
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
    let noted = Arc::new(Noted { bytes, reads: Mutex::default(), is_gone: AtomicBool::new(false) });
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

#[test]
fn stored_blocks_are_kept_where_pieces_are_decoded_alone() {
    let content = Random(7).text(500_000);
    let dictionary = Arc::new(Dictionary::new(content[..20_000].to_vec()).unwrap());
    for (coding, level) in [(Coding::Uv, 0), (Coding::Pv, 0), (Coding::Hybrid, 2)] {
        let coder = Coder::with_level(coding, level, dictionary.clone()).unwrap();
        let coder = coder.learn(&content, 16 << 10).unwrap();
        let (noted, reader) = open(Options::default().coder(Arc::new(coder)), &content, 1 << 20);
        let mut buf = [0; 100];
        reader.read_at(300_000, &mut buf).unwrap();
        assert_eq!(reader.plan(&[295_000..295_010]).unwrap(), [], "{coding}");
        // Not even damage of the file matters then.
        noted.is_gone.store(true, Ordering::Relaxed);
        for offset in (294_912..311_296 - 100).step_by(11) {
            reader.read_at(offset, &mut buf).unwrap();
            assert_eq!(buf, content[offset as usize..][..100], "{coding} {offset}");
        }
        let mut block = vec![0; 16 << 10];
        reader.read_at(294_912, &mut block).unwrap();
        assert_eq!(block, content[294_912..311_296]);
        assert!(reader.read_at(20_000, &mut buf).is_err());
        noted.is_gone.store(false, Ordering::Relaxed);
        reader.read_at(20_000, &mut buf).unwrap();
    }
}

#[test]
fn what_is_damaged_is_not_kept() {
    let content = Random(7).text(100_000);
    let dictionary = Arc::new(Dictionary::new(content[..20_000].to_vec()).unwrap());
    let coder = Arc::new(Coder::new(Coding::Pv, dictionary).unwrap());
    let (noted, reader) = open(Options::default().coder(coder.clone()), &content, 0);
    let at = reader.plan(&[50_000..50_001]).unwrap().last().unwrap().start as usize;
    let mut bytes = noted.bytes.clone();
    bytes[at + 100] ^= 4;
    let reader = OpenOptions::default().open(Arc::new(Behind::new(bytes))).unwrap();
    for _ in 0..3 {
        let error = reader.read_at(50_000, &mut [0; 10]).unwrap_err();
        assert!(matches!(error, Error::Corrupt { what: "stored block", .. }), "{error}");
    }
}
