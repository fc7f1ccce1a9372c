//! Messages of a mailbox.

use std::ops::Range;

use super::{Found, LONGEST, LineBuffer, Splitter, header, name_of, without_brackets};
use crate::error::Result;

#[derive(Default)]
pub(super) struct Mbox {
    lines: LineBuffer,
    message: Message,
}

/// The message that is being read.
#[derive(Default)]
struct Message {
    /// Where it starts; none before the first.
    start: Option<u64>,
    /// How far the lines go.
    end: u64,
    behind_empty_line: bool,
    /// Bytes of its header so far; none behind it.
    in_header: Option<usize>,
    name: Vec<u8>,
    /// The last header line was a Message-ID without a value, which may follow.
    awaits_value: bool,
}

impl Message {
    fn line(&mut self, line: &[u8], range: Range<u64>, found: &mut Vec<Found>) {
        self.end = range.end;
        let begins = self.behind_empty_line || range.start == 0;
        self.behind_empty_line = line.trim_ascii_end().is_empty();
        if begins && line.starts_with(b"From ") {
            self.finish(range.start, found);
            self.start = Some(range.start);
            self.in_header = Some(0);
        } else if let Some(len) = self.in_header {
            self.in_header = (!self.behind_empty_line).then_some(len + line.len());
            if len + line.len() > LONGEST {
                self.in_header = None;
            } else if let Some(value) = header(line, "Message-ID") {
                self.awaits_value = value.is_empty();
                self.named(value);
            } else if self.awaits_value && line.starts_with(b" ") | line.starts_with(b"\t") {
                self.awaits_value = false;
                self.named(line.trim_ascii());
            }
        }
    }

    fn named(&mut self, value: &[u8]) {
        if self.name.is_empty() {
            self.name = name_of(without_brackets(value));
        }
    }

    fn finish(&mut self, end: u64, found: &mut Vec<Found>) {
        let name = std::mem::take(&mut self.name);
        self.awaits_value = false;
        if let Some(start) = self.start.take() {
            found.push(Found { range: start..end, name, key: Vec::new() });
        }
    }
}

impl Splitter for Mbox {
    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        let message = &mut self.message;
        self.lines.take(bytes, |line, range| message.line(line, range, found));
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        let message = &mut self.message;
        self.lines.end(|line, range| message.line(line, range, found));
        message.finish(message.end, found);
        Ok(())
    }
}
