//! Records of a WARC file (ISO 28500).

use super::{Found, LONGEST, Splitter, header, name_of, without_brackets};
use crate::error::{Error, Result};

#[derive(Default)]
pub(super) struct Warc {
    /// The header so far; empty between records.
    header: Vec<u8>,
    pos: u64,
    start: u64,
    /// The record whose content goes by, and how much of it is left.
    open: Option<(Found, u64)>,
}

impl Warc {
    fn refuse(&self) -> Error {
        Error::invalid(format!("there is no WARC record at byte {}", self.start))
    }

    /// Takes bytes of a header; returns how many. Behind its end the record is open.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            taken += line.len();
            self.header.extend_from_slice(line);
            if self.header.trim_ascii_start().is_empty() {
                // Empty lines between records.
                self.start = self.pos + taken as u64;
                self.header.clear();
                continue;
            }
            let known = self.header.len().min(5);
            if self.header[..known] != b"WARC/"[..known] || self.header.len() > LONGEST {
                return Err(self.refuse());
            }
            if self.header.ends_with(b"\n\r\n") || self.header.ends_with(b"\n\n") {
                let (record, len) = self.parse()?;
                self.open = Some((record, len));
                self.header.clear();
                break;
            }
        }
        Ok(taken)
    }

    /// The record that this header begins, and how long its content is.
    fn parse(&self) -> Result<(Found, u64)> {
        let (mut len, mut kind, mut uri, mut id) = (None, &b""[..], None, None);
        for line in self.header.split(|&b| b == b'\n') {
            if let Some(value) = header(line, "Content-Length") {
                len = std::str::from_utf8(value).ok().and_then(|value| value.parse::<u64>().ok());
            } else if let Some(value) = header(line, "WARC-Type") {
                kind = value;
            } else if let Some(value) = header(line, "WARC-Target-URI") {
                uri = Some(name_of(without_brackets(value)));
            } else if let Some(value) = header(line, "WARC-Record-ID") {
                id = Some(name_of(without_brackets(value)));
            }
        }
        // What was asked, and what is said of it, has the address of the answer.
        if kind == b"request" || kind == b"metadata" {
            uri = None;
        }
        let (name, key) = match (uri, id) {
            (Some(uri), id) => (uri, id.unwrap_or_default()),
            (None, id) => (id.unwrap_or_default(), Vec::new()),
        };
        let len = len.filter(|&len| len <= i64::MAX as u64).ok_or_else(|| self.refuse())?;
        Ok((Found { range: self.start..self.start, name, key }, len))
    }
}

impl Splitter for Warc {
    fn take(&mut self, mut bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        while !bytes.is_empty() {
            let Some((_, left)) = &mut self.open else {
                let taken = self.take_header(bytes)?;
                self.pos += taken as u64;
                bytes = &bytes[taken..];
                continue;
            };
            // Behind the content stand two line ends, which are the record's own.
            let now = (*left).min(bytes.len() as u64);
            *left -= now;
            self.pos += now;
            bytes = &bytes[now as usize..];
            if *left > 0 {
                continue;
            }
            let ends = bytes.iter().take_while(|&&b| b == b'\r' || b == b'\n').count();
            self.pos += ends as u64;
            bytes = &bytes[ends..];
            if !bytes.is_empty() {
                self.close(found);
            }
        }
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        if !self.header.is_empty() {
            return Err(self.refuse());
        }
        self.close(found);
        Ok(())
    }
}

impl Warc {
    fn close(&mut self, found: &mut Vec<Found>) {
        if let Some((mut record, _)) = self.open.take() {
            record.range.end = self.pos;
            self.start = self.pos;
            found.push(record);
        }
    }
}
