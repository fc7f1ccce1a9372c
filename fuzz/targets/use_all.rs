//! Does everything that can be done with a file; it may fail but not panic, and what
//! is read twice must be equal.

use std::sync::Arc;

use fiche::ReadAt;
use fiche::archive::{Reader, merge};

pub fn use_all(bytes: Vec<u8>) {
    let source: Arc<dyn ReadAt> = Arc::new(bytes);
    for reader in [Reader::open(source.clone()), Reader::recover(source).map(|(r, _)| r)] {
        let Ok(reader) = reader else { continue };
        let _ = reader.verify(1, &mut |_| Ok(()));
        let _ = reader.info();
        let _ = reader.find("more/7");
        let mut whole = vec![0; reader.len().min(1 << 20) as usize];
        let lost = reader.read_what_is_left(0, &mut whole);
        if lost.is_ok_and(|lost| lost.is_empty()) {
            let mut part = vec![0; whole.len() / 3];
            let offset = whole.len() / 2;
            reader.read_at(offset as u64, &mut part).expect("a part of what was read whole");
            assert!(part == whole[offset..offset + part.len()]);
        }
        for (number, entry) in reader.entries(0).take(1000).flatten() {
            let _ = reader.find(&entry.name);
            if let Ok(record) = reader.record_at(number) {
                let mut buf = vec![0; record.len().min(10_000) as usize];
                let _ = record.read_at(0, &mut buf);
            }
        }
        let _ = merge(&[reader], Vec::new(), &mut |_| Ok(()));
    }
}
