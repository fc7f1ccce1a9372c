//! Makes the checksums of a file right, whatever it is.

use crc_fast::{CrcAlgorithm, checksum};

const MARKER: [u8; 4] = [0x9E, 0xF1, 0xC4, 0xE5];
/// Header and trailer.
pub const LEAST: usize = 64;

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

/// A file whose header and sections are right, and whose trailer leads to the last of these.
pub fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..8].copy_from_slice(b"\x8Ffiche\r\n");
    let sum = crc(&[&bytes[..16]]);
    bytes[16..20].copy_from_slice(&sum);
    let (mut pos, mut last) = (32, 32);
    while pos + 4 <= bytes.len() {
        if bytes[pos..pos + 4] == MARKER
            && let Some(end) = reseal(&mut bytes, pos)
        {
            (last, pos) = (pos, end);
        } else {
            pos += 1;
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
