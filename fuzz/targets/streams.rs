//! Any bytes as an index of a gzip file, and as a gzip file of ours: checksums made right, so that what they would have
//! caught is caught by what reads the index.
#![no_main]

use std::sync::Arc;

use fiche::ReadAt;
use fiche::streams::Reader;

#[path = "seal.rs"]
mod seal;

fn read(reader: &Reader) {
    let mut buf = [0; 1000];
    let len = reader.len();
    for offset in [0, 1, len / 3, len / 2, len.saturating_sub(1000), len.saturating_sub(1)] {
        let room = buf.len().min(usize::try_from(len - offset.min(len)).unwrap_or(usize::MAX));
        let _ = reader.read_at(offset, &mut buf[..room]);
    }
    for line in [0, 1, 100, u64::MAX] {
        let _ = reader.line(line);
    }
    for number in reader.unit_ends().take(20) {
        let _ = number;
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, rest)) = bytes.split_first_chunk::<2>() else { return };
    let cut = usize::from(u16::from_le_bytes(*cut)).min(rest.len());
    let (file, index) = rest.split_at(cut);
    if index.len() >= seal::LEAST {
        let index = Arc::new(seal::sealed(index.to_vec()));
        if let Ok(reader) = Reader::with_any_index(Arc::new(file.to_vec()), index) {
            read(&reader);
        }
    }
    if let Ok(Some(reader)) = Reader::open(Arc::new(rest.to_vec())) {
        read(&reader);
    }
    // What is indexed is what is inflated.
    let (mut index, mut content) = (Vec::new(), Vec::new());
    let options = fiche::streams::IndexOptions::default().spacing(1 << 16);
    if fiche::streams::index(rest, &options, &mut index, &mut content).is_ok() {
        let reader =
            Reader::with_index(Arc::new(rest.to_vec()), Arc::new(index)).expect("an index");
        let mut back = vec![0; content.len()];
        reader.read_at(0, &mut back).expect("what was indexed");
        assert!(back == content);
        let half = content.len() / 2;
        reader.read_at(half as u64, &mut back[half..]).expect("what was indexed");
        assert!(back == content);
    }
});
