//! What several tests share: manifests, and editing files byte by byte.
#![allow(dead_code, missing_docs)]

use std::fmt::Write;

use fiche::ReadAt;
use fiche::archive::{Kind, Reader};
use sha2::{Digest, Sha256};

fn sha256(source: &dyn ReadAt) -> String {
    let (mut hasher, mut buf, mut offset) = (Sha256::new(), vec![0; 1 << 20], 0);
    while offset < source.len() {
        let len = (source.len() - offset).min(buf.len() as u64) as usize;
        source.read_at(offset, &mut buf[..len]).unwrap();
        hasher.update(&buf[..len]);
        offset += len as u64;
    }
    hex(&hasher.finalize())
}

pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Records longer than this are so sparse that hashing them would take long: their
/// length and pieces say what they are.
const LONGEST_HASHED: u64 = 64 << 20;

/// Everything an archive holds, as text: one line for the content and one for each
/// record, which is `record NUMBER KIND LENGTH SHA256 NAME MODE TIME USER GROUP TARGET
/// ATTRIBUTES PIECES KEY`, with `-` for what is not there.
pub fn manifest(reader: &Reader) -> String {
    let mut text = format!("content {} {}\n", reader.len(), sha256(reader));
    for item in reader.entries(0) {
        let (number, entry) = item.unwrap();
        let sum = match entry.kind.has_content() && entry.len() <= LONGEST_HASHED {
            true => sha256(&reader.record_at(number).unwrap()),
            false => "-".to_owned(),
        };
        let kind = entry.kind.name().replace(' ', "-");
        write!(text, "record {number} {kind} {} {sum} {}", entry.len(), hex(&entry.name)).unwrap();
        match &entry.meta {
            None => text.push_str(" - - - -"),
            Some(m) => {
                let (seconds, nanoseconds) = m.modified;
                let (mode, user, group) = (m.mode, m.user, m.group);
                write!(text, " {mode:04o} {seconds}+{nanoseconds} {user} {group}").unwrap();
            }
        }
        match &entry.kind {
            Kind::Symlink(target) => write!(text, " {}", hex(target)).unwrap(),
            Kind::Hardlink(to) => write!(text, " {to}").unwrap(),
            Kind::CharDevice(a, b) | Kind::BlockDevice(a, b) => write!(text, " {a}:{b}").unwrap(),
            _ => text.push_str(" -"),
        }
        let attributes = entry.meta.iter().flat_map(|m| &m.attributes);
        let attributes: Vec<_> =
            attributes.map(|(n, v)| format!("{}={}", hex(n), hex(v))).collect();
        let pieces = entry.extents.iter().flat_map(|e| &e.data);
        let pieces: Vec<_> = pieces.map(|p| format!("{}..{}", p.start, p.end)).collect();
        for list in [attributes, pieces] {
            write!(text, " {}", if list.is_empty() { "-".to_owned() } else { list.join(",") })
                .unwrap();
        }
        writeln!(text, " {}", hex(&entry.key)).unwrap();
    }
    text
}

/// A section of a file, as the format says.
#[derive(Clone, Debug)]
pub struct Section {
    pub kind: u8,
    pub pos: usize,
    pub payload: usize,
    pub end: usize,
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// All sections of a whole file, found by their markers and checksums.
pub fn sections(bytes: &[u8]) -> Vec<Section> {
    let mut found = Vec::new();
    let mut pos = 0;
    while pos + 20 < bytes.len() {
        if bytes[pos..pos + 4] == [0x9E, 0xF1, 0xC4, 0xE5] {
            let (kind, flags, mut at) = (bytes[pos + 4], bytes[pos + 5], pos + 6);
            varint(bytes, &mut at);
            varint(bytes, &mut at);
            let len = varint(bytes, &mut at) as usize;
            if flags & 1 != 0 {
                varint(bytes, &mut at);
            }
            let section = Section { kind, pos, payload: at, end: at + len + 4 };
            if section.end <= bytes.len()
                && checksum(bytes, &section) == bytes[section.end - 4..section.end]
            {
                pos = section.end;
                found.push(section);
                continue;
            }
        }
        pos += 1;
    }
    found
}

fn checksum(bytes: &[u8], section: &Section) -> [u8; 4] {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&(section.pos as u64).to_le_bytes());
    digest.update(&bytes[section.pos..section.end - 4]);
    (digest.finalize() as u32).to_le_bytes()
}

/// Makes the checksum of a section right again after it was edited.
pub fn reseal(bytes: &mut [u8], section: &Section) {
    let sum = checksum(bytes, section);
    bytes[section.end - 4..section.end].copy_from_slice(&sum);
}
