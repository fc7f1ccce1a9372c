//! Any bytes as a file whose checksums are right: what a checksum would have caught
//! must be caught by what reads the section.
#![no_main]

#[path = "use_all.rs"]
mod use_all;

use crc_fast::{CrcAlgorithm, Digest};

const MARKER: [u8; 4] = [0x9E, 0xF1, 0xC4, 0xE5];

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
    let mut at = pos + 5;
    let flags = *bytes.get(at)?;
    at += 1;
    varint(bytes, &mut at)?;
    varint(bytes, &mut at)?;
    let len = usize::try_from(varint(bytes, &mut at)?).ok()?;
    if flags & 1 != 0 {
        varint(bytes, &mut at)?;
    }
    let end = at.checked_add(len)?;
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&(pos as u64).to_le_bytes());
    digest.update(bytes.get(pos..end)?);
    let sum = (digest.finalize() as u32).to_le_bytes();
    bytes.get_mut(end..end + 4)?.copy_from_slice(&sum);
    Some(end + 4)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 64 {
        return;
    }
    let crc =
        |bytes: &[u8]| (crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes();
    bytes[..8].copy_from_slice(b"\x8Ffiche\r\n");
    let sum = crc(&bytes[..16]);
    bytes[16..20].copy_from_slice(&sum);
    let mut pos = 32;
    let mut last = 32;
    while pos + 4 <= bytes.len() {
        if bytes[pos..pos + 4] == MARKER
            && let Some(end) = reseal(&mut bytes, pos)
        {
            last = pos;
            pos = end;
        } else {
            pos += 1;
        }
    }
    // A trailer that leads to the last section.
    let at = bytes.len() - 32;
    if at > last {
        bytes[at..at + 8].copy_from_slice(&(last as u64).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&((at - last) as u64).to_le_bytes());
        bytes[at + 16..at + 20].fill(0);
        let sum = crc(&bytes[at..at + 20]);
        bytes[at + 20..at + 24].copy_from_slice(&sum);
        bytes[at + 24..].copy_from_slice(b"\n\rehcif\x8F");
    }
    use_all::use_all(bytes);
});
