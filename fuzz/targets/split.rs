//! Any bytes as a stream that is split into records: refused, or packed and read back as they
//! were, with every record within them and found by its name.
#![no_main]

use std::sync::Arc;

use fiche::ReadAt;
use fiche::archive::{Options, Reader, Split, Writer};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, content)) = bytes.split_first() else { return };
    let split = match first % 6 {
        0 => Split::Lines,
        1 => Split::Json("a.b".into()),
        2 => Split::Mbox,
        3 => Split::Warc,
        4 => Split::Tar,
        _ => Split::Fixed(u64::from(first / 6) + 1),
    };
    let options = Options::default().threads(1).block_len(1 << 10).align_records(first & 128 != 0);
    let mut writer = Writer::new(Vec::new(), options).expect("options");
    let (mut rest, mut read) = (content, 0);
    let mut count = |bytes| {
        read += bytes;
        Ok(())
    };
    if writer.add_records(&split, &mut rest, &mut count).is_err() {
        return;
    }
    let reader =
        Reader::open(Arc::new(writer.finish().expect("memory"))).expect("what was written");
    let mut whole = vec![0; reader.len() as usize];
    reader.read_at(0, &mut whole).expect("content");
    // A gzipped WARC file is kept as what it holds.
    assert!(whole == content || content.starts_with(&[0x1F, 0x8B]));
    for item in reader.entries(0) {
        let (number, entry) = item.expect("entry");
        for name in [&entry.name, &entry.key] {
            if !name.is_empty() {
                let (found, other) = reader.find(name).expect("index").expect("its name");
                assert!(found <= number && (other.name == *name || other.key == *name));
            }
        }
    }
});
