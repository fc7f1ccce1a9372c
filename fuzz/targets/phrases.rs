//! Any bytes as a unit of phrases: both ways to read a range of it agree, and an index that is not its own does no
//! harm.
#![no_main]

use fiche::phrases::{Coding, CompressedBuffer, Scratch, compress_within, deflate, index, transcode};
use fiche::ReadAt;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&first, stored)) = bytes.split_first() else { return };
    let mut scratch = Scratch::default();
    let coding = [Coding::Lz77, Coding::Deflate, Coding::Lz4, Coding::Snappy][usize::from(first % 4)];
    if first & 128 != 0 {
        // As content, which is slow to compress.
        let content = &stored[..stored.len().min(2000)];
        let depth = u32::from(first >> 4 & 7) + 1;
        for (coding, stored) in [
            (Coding::Lz77, compress_within(content, depth).unwrap()),
            (Coding::Deflate, deflate(content, depth).unwrap()),
        ] {
            let unit = CompressedBuffer::open(coding, stored).unwrap();
            let mut back = vec![0; unit.len() as usize];
            unit.read_sequential(0, &mut back, &mut scratch).unwrap();
            assert!(back == content);
            read(&unit, &mut scratch);
        }
        return;
    }
    if let Ok(unit) = CompressedBuffer::open(coding, stored) {
        read(&unit, &mut scratch);
        if coding != Coding::Lz77 && unit.len() < 1 << 20 {
            let same = CompressedBuffer::open(Coding::Lz77, transcode(coding, stored).unwrap());
            read(&same.unwrap(), &mut scratch);
        }
    }
    if coding != Coding::Lz77 {
        // The first half as the index of the other, with the checksums of none.
        let (kept, stored) = stored.split_at(stored.len() / 2);
        let own = index(coding, stored);
        if let Ok(unit) = CompressedBuffer::open_indexed(coding, stored, kept) {
            wrong(&unit, &mut scratch);
        }
        if let Ok(mut own) = own {
            // Its own, a little wrong.
            let at = usize::from(first) * 31 % own.len();
            own[at] ^= 1 << (first >> 4 & 7);
            if let Ok(unit) = CompressedBuffer::open_indexed(coding, stored, &own) {
                wrong(&unit, &mut scratch);
            }
        }
    }
});

/// An index of something else: errors or other content, and no harm.
fn wrong(unit: &CompressedBuffer, scratch: &mut Scratch) {
    for offset in [0, unit.len() / 2, unit.len().saturating_sub(9)] {
        let mut out = vec![0; unit.len().saturating_sub(offset).min(300) as usize];
        let _ = unit.read_recursive(offset, &mut out, scratch);
        let _ = unit.read(offset, &mut out, scratch);
    }
}

/// Where decoding from the front says what a range is, recursion says it, too.
fn read(unit: &CompressedBuffer, scratch: &mut Scratch) {
    let len = unit.len().min(1 << 20) as usize;
    let mut whole = vec![0; len];
    let is_right = unit.read_sequential(0, &mut whole, scratch).is_ok();
    for (start, n) in [(0, 40), (len / 3, 7), (len / 2, 1000), (len.saturating_sub(5), 5), (len / 2, 1)] {
        let end = (start + n).min(len);
        let mut out = vec![0; end - start];
        let found = unit.read_recursive(start as u64, &mut out, scratch);
        if is_right && unit.len() == len as u64 {
            assert!(found.is_ok() && out == whole[start..end]);
            assert!(unit.read(start as u64, &mut out, scratch).is_ok() && out == whole[start..end]);
        }
    }
}
