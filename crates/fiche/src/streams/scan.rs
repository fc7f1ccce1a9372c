//! Makes an index of a gzip file while it is inflated from front to back.

use std::io::{Read, Write};

use super::format::Format;
use super::index::{About, IndexWriter, NewUnit};
use crate::codec::deflate::{Fault, Inflate, Input, Marks, Pause, WINDOW, Watch, Watched};
use crate::codec::{Scratch, pack_section};
use crate::error::{Error, Result};
use crate::wire::{Crc32c, Digest, Put};

/// How to make an index.
#[derive(Clone, Debug)]
pub struct IndexOptions {
    spacing: u64,
    lines: bool,
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions { spacing: 1 << 20, lines: true }
    }
}

impl IndexOptions {
    /// Bytes of content from one unit to the next, 64 KiB to 1 GiB: a read decodes half as many on average before it
    /// comes to what it is for, and the index takes some 2 KiB for each.
    #[must_use]
    pub fn spacing(self, spacing: u64) -> IndexOptions {
        IndexOptions { spacing, ..self }
    }

    /// Whether lines are counted, so that they can be found by number. They are unless this says no.
    #[must_use]
    pub fn lines(self, lines: bool) -> IndexOptions {
        IndexOptions { lines, ..self }
    }

    pub(super) fn counts_lines(&self) -> bool {
        self.lines
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.spacing {
            0x1_0000..=0x4000_0000 => Ok(()),
            _ => Err(Error::invalid("an index has a unit every 64 KiB to 1 GiB")),
        }
    }
}

/// Makes an index of the gzip file that `source` gives, and checks each member against its checksum and length on the
/// way. Writes the index to `out` front to back, and the content to `content` if somebody wants it. As fast as inflating
/// alone but for some hundredths; takes half a MiB of memory and 20 bytes for each unit of a page.
///
/// # Errors
/// [`Error::Corrupt`] when the file is damaged or cut, [`Error::Unsupported`] where it is gzip by a method that nobody
/// uses, [`Error::Io`]; [`Error::Invalid`] for options that make no sense.
pub fn index(
    source: impl Read,
    options: &IndexOptions,
    out: impl Write,
    mut content: impl Write,
) -> Result<()> {
    options.check()?;
    let source = Sampling { source, sampler: Sampler::default() };
    let mut gunzip = Watched::new(source, Scan::new(options, out));
    let mut piece = vec![0; 128 << 10];
    loop {
        match gunzip.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => content.write_all(&piece[..len])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (source, scan) = gunzip.into_parts();
    let (stored_len, digest) = source.sampler.finish();
    scan.finish(stored_len, digest)
}

/// What no member that is shorter is a unit alone: windows are dear, and members need none.
const LEAST_MEMBER: u64 = 32 << 10;
/// Bytes of the header of a block at most, with the bytes in which it begins and ends.
const HEADER: usize = 300;

struct Scan<'o, W> {
    options: &'o IndexOptions,
    scratch: Scratch,
    out: Option<W>,
    index: Option<IndexWriter<W>>,
    /// Of the unit so far: content, line feeds, checksum of the stored bytes up to a position, the last of them.
    len: u64,
    lines: u64,
    checksum: Crc32c,
    passed: u64,
    last: u8,
    /// What its decoding begins with, once that is known.
    start: Option<Vec<u8>>,
    /// Until then: the header of the block that it begins in, the bytes before it, and which of them are used.
    header: Vec<u8>,
    window: Vec<u8>,
    marks: Option<Marks>,
    /// Bytes that begin with the header of the block at hand, and the bit there.
    block: (Vec<u8>, usize),
    /// Where the last stream ended, and the checksum there.
    end: (u64, u32),
}

impl<'o, W: Write> Scan<'o, W> {
    fn new(options: &'o IndexOptions, out: W) -> Scan<'o, W> {
        Scan {
            options,
            scratch: Scratch::default(),
            out: Some(out),
            index: None,
            len: 0,
            lines: 0,
            checksum: Crc32c::default(),
            passed: 0,
            last: 0,
            start: None,
            header: Vec::new(),
            window: Vec::new(),
            marks: None,
            block: (Vec::new(), 0),
            end: (0, 0),
        }
    }

    /// Knows now what of the window is used.
    fn settle(&mut self) {
        let Some(marks) = self.marks.take() else { return };
        let window = marks.clear(&mut self.window);
        if window.is_empty() && self.header.is_empty() {
            return;
        }
        let header = std::mem::take(&mut self.header);
        self.start = Some(start_of(header, window, &mut self.scratch));
    }

    /// Ends the unit at this bit, if it has begun.
    fn end_unit(&mut self, end_bit: u64, checksum: u32) -> Result<()> {
        self.settle();
        let start = self.start.take();
        let lines = self.options.lines.then_some(self.lines);
        let stored = Some(checksum);
        let unit = NewUnit { len: self.len, end_bit, stored, content: None, lines };
        if let Some(index) = &mut self.index {
            index.put(&unit, start.as_deref())?;
        }
        (self.len, self.lines) = (0, 0);
        self.checksum = Crc32c::default();
        if !end_bit.is_multiple_of(8) {
            self.checksum.update(&[self.last]);
        }
        Ok(())
    }

    fn finish(mut self, stored_len: u64, digest: Digest) -> Result<()> {
        if self.len > 0 {
            let (bit, checksum) = self.end;
            self.end_unit(bit, checksum)?;
        }
        let index = match (self.index, self.out) {
            (Some(index), _) => index,
            (None, Some(out)) => IndexWriter::new(out, 0)?,
            (None, None) => return Err(Error::Poisoned),
        };
        let about = About { format: Format::Gzip, is_inside: false, stored_len, digest };
        index.finish(&about).map(drop)
    }
}

impl<W: Write> Watch for Scan<'_, W> {
    fn run(
        &mut self,
        inflate: &mut Inflate,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
    ) -> Result<Pause, Fault> {
        if inflate.is_before_block() {
            let (ahead, bit) = input.ahead(HEADER);
            self.block.0.clear();
            self.block.0.extend_from_slice(ahead);
            self.block.1 = bit;
        }
        match &mut self.marks {
            Some(marks) => {
                let since = self.len as usize;
                let end = out.len().min(*at + WINDOW - since);
                inflate.run_marking(input, &mut out[..end], at, (since, marks))
            }
            None => {
                let left = (2 * self.options.spacing).saturating_sub(self.len).max(1) as usize;
                let end = out.len().min(*at + left);
                inflate.run_block(input, &mut out[..end], at)
            }
        }
    }

    fn passed(&mut self, pos: u64, bytes: &[u8]) {
        let new = &bytes[(self.passed.saturating_sub(pos) as usize).min(bytes.len())..];
        self.checksum.update(new);
        self.passed += new.len() as u64;
        self.last = new.last().copied().unwrap_or(self.last);
    }

    fn went(&mut self, inflate: &Inflate, bit: u64, content: &[u8], new: usize) -> Result<()> {
        let added = &content[content.len() - new..];
        self.len += new as u64;
        if self.options.lines {
            self.lines += memchr::memchr_iter(b'\n', added).count() as u64;
        }
        if self.marks.is_some() && self.len >= WINDOW as u64 {
            self.settle();
        }
        let spacing = self.options.spacing;
        let is_between = inflate.is_before_block() && self.len >= spacing;
        // A block as long as that stops being waited for.
        let is_within = inflate.is_before_symbol() && self.len >= 2 * spacing;
        if !is_between && !is_within {
            return Ok(());
        }
        self.end_unit(bit, self.checksum.get())?;
        if is_within {
            let bits = inflate.header_bits();
            self.header.put_varint(bits as u64);
            put_bits(&self.block.0, self.block.1, bits, &mut self.header);
        }
        self.window.clear();
        self.window.extend_from_slice(&content[content.len().saturating_sub(WINDOW)..]);
        self.marks = Some(Marks::default());
        Ok(())
    }

    fn border(&mut self, bit: u64, begins: bool) -> Result<()> {
        // What is copied from does not reach over it.
        self.settle();
        if !begins {
            self.end = (bit, self.checksum.get());
        } else if self.index.is_none() {
            let out = self.out.take().ok_or(Error::Poisoned)?;
            self.index = Some(IndexWriter::new(out, bit)?);
            self.checksum = Crc32c::default();
        } else if self.len >= LEAST_MEMBER.min(self.options.spacing) {
            self.end_unit(bit, self.checksum.get())?;
        }
        Ok(())
    }
}

/// Appends these bits of some bytes, from bit `first` on.
fn put_bits(bytes: &[u8], first: usize, bits: usize, out: &mut Vec<u8>) {
    let byte = |i: usize| u16::from(bytes.get(i).copied().unwrap_or(0));
    for i in 0..bits.div_ceil(8) {
        let pair = byte(i) | byte(i + 1) << 8;
        let left = bits - 8 * i;
        let mask = if left < 8 { (1 << left) - 1 } else { 0xFF };
        out.put_u8((pair >> first & mask) as u8);
    }
}

/// The start of a unit that begins behind this window, within a block if there is a header. The window is packed if
/// that helps: at least a byte less.
pub(super) fn start_of(header: Vec<u8>, window: &[u8], scratch: &mut Scratch) -> Vec<u8> {
    /// A little work here saves memory for as long as the file is read.
    const LEVEL: i32 = 9;
    let mut start = header;
    if start.is_empty() {
        start.put_varint(0);
    }
    start.put_varint(window.len() as u64);
    match pack_section(window, LEVEL, scratch) {
        Some(packed) => start.put(&packed),
        None => start.put(window),
    }
    start
}

/// Bytes taken where a sample begins.
const SAMPLE: u64 = 4096;
/// The first place behind the beginning where one does; the next are at twice that.
const FIRST: u64 = 1 << 16;

/// Gathers the sampled bytes of a stream that comes by.
#[derive(Default)]
pub(super) struct Sampler {
    /// Samples, the last of which may still grow, and how far the stream went.
    samples: Vec<u8>,
    last: Vec<u8>,
    len: u64,
}

impl Sampler {
    pub fn update(&mut self, mut bytes: &[u8]) {
        let tail = &bytes[bytes.len().saturating_sub(SAMPLE as usize)..];
        self.last.extend_from_slice(tail);
        let extra = self.last.len().saturating_sub(SAMPLE as usize);
        self.last.drain(..extra);
        while !bytes.is_empty() {
            // The place at or before which this is, and the one behind it.
            let place = if self.len < FIRST { 0 } else { 1 << self.len.ilog2() };
            let next = if place == 0 { FIRST } else { 2 * place };
            let now = (bytes.len() as u64).min(next - self.len) as usize;
            let wanted = (place + SAMPLE).saturating_sub(self.len).min(now as u64) as usize;
            self.samples.extend_from_slice(&bytes[..wanted]);
            self.len += now as u64;
            bytes = &bytes[now..];
        }
    }

    /// The stream's length, and the digest of its sampled bytes.
    pub fn finish(self) -> (u64, Digest) {
        (self.len, digest(self.len, &self.samples, &self.last))
    }
}

/// Digest of the sampled bytes of a stream of this length.
fn digest(len: u64, samples: &[u8], last: &[u8]) -> Digest {
    let mut bytes = Vec::with_capacity(8 + samples.len() + last.len());
    bytes.put_u64(len);
    bytes.put(samples);
    bytes.put(last);
    Digest::of(&bytes)
}

/// The same of a stream that can be read anywhere.
pub(super) fn sampled(stream: &dyn crate::io::ReadAt) -> Result<Digest> {
    let len = stream.len();
    let read = |place: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; (len - place).min(SAMPLE) as usize];
        stream.read_at(place, &mut bytes)?;
        Ok(bytes)
    };
    let mut samples = read(0)?;
    let mut place = FIRST;
    while place < len {
        samples.extend(read(place)?);
        place *= 2;
    }
    Ok(digest(len, &samples, &read(len.saturating_sub(SAMPLE))?))
}

/// A source whose bytes are sampled as they are read.
struct Sampling<R> {
    source: R,
    sampler: Sampler,
}

impl<R: Read> Read for Sampling<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.source.read(buf)?;
        self.sampler.update(&buf[..len]);
        Ok(len)
    }
}
