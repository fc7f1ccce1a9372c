//! Any bytes as an index of a gzip file, and as a gzip file of ours: checksums made right, so that what they would have
//! caught is caught by what reads the index.
#![no_main]

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use fiche::ReadAt;
use fiche::streams::Reader;

const MARKER: [u8; 4] = [0x9E, 0xF1, 0xC4, 0xE5];

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, &parts.concat()) as u32).to_le_bytes()
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Makes the checksum of the section at `pos` right, if it is one; returns its end.
fn reseal(bytes: &mut [u8], pos: usize) -> Option<usize> {
    let mut at = pos + 6;
    varint(bytes, &mut at)?;
    varint(bytes, &mut at)?;
    let len = usize::try_from(varint(bytes, &mut at)?).ok()?;
    if bytes.get(pos + 5)? & 1 != 0 {
        varint(bytes, &mut at)?;
    }
    let end = at.checked_add(len)?;
    let sum = crc(&[&(pos as u64).to_le_bytes(), bytes.get(pos..end)?]);
    bytes.get_mut(end..end + 4)?.copy_from_slice(&sum);
    Some(end + 4)
}

/// An index whose sections and trailer are right.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..8].copy_from_slice(b"\x8Ffiche\r\n");
    let sum = crc(&[&bytes[..16]]);
    bytes[16..20].copy_from_slice(&sum);
    let (mut pos, mut last) = (32, 32);
    while pos + 4 <= bytes.len() {
        match bytes[pos..pos + 4] == MARKER {
            true => match reseal(&mut bytes, pos) {
                Some(end) => (last, pos) = (pos, end),
                None => pos += 1,
            },
            false => pos += 1,
        }
    }
    let at = bytes.len() - 32;
    if at > last {
        bytes[at..at + 8].copy_from_slice(&(last as u64).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&((at - last) as u64).to_le_bytes());
        bytes[at + 16..at + 20].fill(0);
        let sum = crc(&[&bytes[at..at + 20]]);
        bytes[at + 20..at + 24].copy_from_slice(&sum);
        bytes[at + 24..].copy_from_slice(b"\n\rehcif\x8F");
    }
    bytes
}

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
    if index.len() >= 64 {
        let index = Arc::new(resealed(index.to_vec()));
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
        let reader = Reader::with_index(Arc::new(rest.to_vec()), Arc::new(index)).expect("an index");
        let mut back = vec![0; content.len()];
        reader.read_at(0, &mut back).expect("what was indexed");
        assert!(back == content);
        let half = content.len() / 2;
        reader.read_at(half as u64, &mut back[half..]).expect("what was indexed");
        assert!(back == content);
    }
});
