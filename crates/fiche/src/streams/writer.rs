//! Writes gzip, zstd and lz4 files that can be read anywhere: partitions that are inflated by themselves, and an index that
//! other programs pass over (sections 3 and 5 of Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in
//! Compression Enabled Storage Systems*).

use std::io::{self, Write};
use std::ops::Range;

use super::format::{Carrier, Format};
use super::index::{About, IndexWriter, NewUnit};
use super::reader::Reader;
use super::scan::Sampler;
#[cfg(feature = "zlib")]
use super::scan::start_of;
use super::{lz4, zstd};
use crate::codec::Scratch;
use crate::codec::deflate::{LAST_BLOCK, MAGIC, WINDOW};
#[cfg(feature = "zlib")]
use crate::codec::deflate::{Partitioner, Primed};
use crate::error::{Error, Result};
use crate::io::into_io;
use crate::parallel::{Pipeline, default_threads};
use crate::records::{Found, Split, Splitter};
use crate::wire::{Crc32c, Digest, Put, adler32, adler32_join, crc32, crc32_join};

/// How a file is written.
#[derive(Clone, Debug)]
pub struct Options {
    format: Format,
    level: Option<i32>,
    partition: usize,
    split: Option<Split>,
    primed: bool,
    lines: bool,
    name: Option<Vec<u8>>,
    mtime: u32,
    len: Option<u64>,
    threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: Format::Gzip,
            level: None,
            partition: 32 << 10,
            split: None,
            primed: false,
            lines: true,
            name: None,
            mtime: 0,
            len: None,
            threads: default_threads(),
        }
    }
}

impl Options {
    /// What is written: gzip, zstd in the seekable format, whose partitions are frames, or lz4, whose partitions are blocks of one frame; gzip unless this says otherwise.
    /// A zlib or deflate stream has no place for an index: [`finish_beside`](Writer::finish_beside) writes that.
    #[must_use]
    pub fn format(self, format: Format) -> Options {
        Options { format, ..self }
    }

    /// Level: of gzip 1 to 12, with [`primed`](Options::primed) 1 to 9, 6 unless another is asked for; of zstd 1 to 22 and 3; of
    /// lz4 -64 to 12 and 1.
    #[must_use]
    pub fn level(self, level: i32) -> Options {
        Options { level: Some(level), ..self }
    }

    /// Bytes of content in a partition, 1 KiB to 16 MiB, of lz4 to 4 MiB; 32 KiB unless this says otherwise. A read decodes no more of it than
    /// it needs; shorter ones take more space, 8 to 16 % at 32 KiB.
    #[must_use]
    pub fn partition(self, partition: usize) -> Options {
        Options { partition, ..self }
    }

    /// Lets partitions end where records end, if one does in the last three quarters of a partition.
    #[must_use]
    pub fn align(self, split: Split) -> Options {
        Options { split: Some(split), ..self }
    }

    /// Lets partitions of gzip, zlib and deflate copy from the 32 KiB before them, as far as they like: the stream is as small as one that
    /// is not cut, however short they are. What each copies from is in the index then, compressed, which gets larger: by 2 to 6 KiB
    /// for each partition. They cannot be moved into another stream.
    #[must_use]
    pub fn primed(self, primed: bool) -> Options {
        Options { primed, ..self }
    }

    /// Whether lines are counted, so that they can be found by number. They are unless this says no.
    #[must_use]
    pub fn lines(self, lines: bool) -> Options {
        Options { lines, ..self }
    }

    /// The name of the file that is compressed, without its folder.
    #[must_use]
    pub fn name(self, name: impl Into<Vec<u8>>) -> Options {
        Options { name: Some(name.into()), ..self }
    }

    /// When that file was written, in seconds since 1970; 0 for nothing said.
    #[must_use]
    pub fn mtime(self, mtime: u32) -> Options {
        Options { mtime, ..self }
    }

    /// How long the content is, where that is known: a frame of lz4 says so at its beginning. It has to be true.
    #[must_use]
    pub fn content_len(self, len: u64) -> Options {
        Options { len: Some(len), ..self }
    }

    /// Threads that compress; as many as there are cores by default. The file is the same for any number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Options {
        Options { threads, ..self }
    }

    fn check(&self) -> Result<()> {
        if !(1 << 10..=16 << 20).contains(&self.partition) {
            return Err(Error::invalid("partitions have 1 KiB to 16 MiB"));
        }
        if self.name.as_ref().is_some_and(|name| name.contains(&0)) {
            return Err(Error::invalid("a name has no zero byte"));
        }
        self.split.as_ref().map_or(Ok(()), Split::check)?;
        self.packer().map(drop)
    }

    /// The level that is meant.
    fn level_of(&self) -> i32 {
        self.level.unwrap_or(match self.format {
            Format::Zstd => 3,
            Format::Lz4 => 1,
            _ => 6,
        })
    }

    /// What a thread compresses with.
    fn packer(&self) -> Result<Packer> {
        let level = self.level_of();
        match self.format {
            #[cfg(feature = "zlib")]
            Format::Gzip | Format::Zlib | Format::Deflate if self.primed => {
                Primed::new(level).map(Packer::Primed)
            }
            #[cfg(feature = "zlib")]
            Format::Gzip | Format::Zlib | Format::Deflate => {
                Partitioner::new(level).map(Box::new).map(Packer::Gzip)
            }
            #[cfg(not(feature = "zlib"))]
            Format::Gzip | Format::Zlib | Format::Deflate => Err(self.format.not_compiled_in()),
            Format::Zstd | Format::Lz4 if self.primed => {
                let what = "frames of zstd and blocks of lz4 cannot copy from what is before them";
                Err(Error::invalid(what))
            }
            Format::Zstd => zstd::Encoder::new(level).map(Packer::Zstd),
            Format::Lz4 => self.lz4().map(Box::new).map(Packer::Lz4),
            Format::Xz => {
                let what = "gzip, zlib, deflate, zstd and lz4 are written, xz is only read";
                Err(Error::invalid(what))
            }
        }
    }

    fn lz4(&self) -> Result<lz4::Encoder> {
        lz4::Encoder::new(self.level_of(), self.partition, self.len)
    }

    fn header(&self) -> Result<Vec<u8>> {
        const NAME: u8 = 8;
        let mut out = Vec::new();
        if self.format == Format::Lz4 {
            return Ok(self.lz4()?.header(self.len));
        }
        if self.format == Format::Zlib {
            // A window of 32 KiB, and how hard was tried; the rest makes it a multiple of 31.
            let strength = match self.level_of() {
                1 => 0x01,
                2..=5 => 0x5E,
                6 => 0x9C,
                _ => 0xDA,
            };
            out.put(&[0x78, strength]);
        }
        if self.format != Format::Gzip {
            return Ok(out);
        }
        out.put(&MAGIC);
        out.put_u8(8);
        out.put_u8(if self.name.is_some() { NAME } else { 0 });
        out.put_u32(self.mtime);
        // How hard was tried, as gzip puts it; no system.
        let strength = match self.level_of() {
            1 => 4,
            9.. => 2,
            _ => 0,
        };
        out.put(&[strength, 255]);
        if let Some(name) = &self.name {
            out.put(name);
            out.put_u8(0);
        }
        Ok(out)
    }
}

/// Content of several partitions, and where each ends.
#[derive(Default)]
struct Pieces {
    content: Vec<u8>,
    /// Bytes of it that are before the first.
    before: usize,
    ends: Vec<usize>,
}

/// A partition as it is stored.
struct Partition {
    len: u64,
    stored_len: u64,
    stored: u32,
    content: u32,
    /// Of zlib: Adler-32 of the content.
    adler: u32,
    lines: Option<u64>,
    /// What it copies from before it.
    start: Option<Vec<u8>>,
}

type Packed = Result<(Vec<u8>, Vec<Partition>)>;

/// Content that a thread deflates at once.
const TASK: usize = 256 << 10;

/// Writes a gzip file of partitions, a zstd file of frames or an lz4 file of blocks, front to back, on several threads.
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
/// use fiche::ReadAt;
/// use fiche::streams::{Options, Reader, Writer};
///
/// let mut writer = Writer::new(Vec::new(), Options::default().partition(8 << 10))?;
/// for i in 0..10_000 {
///     writeln!(writer, "line {i}")?;
/// }
/// let file = writer.finish()?;
///
/// // gzip reads it, and so does this, from anywhere.
/// let reader = Reader::open(Arc::new(file))?.expect("an index inside");
/// let line = reader.line(7_000)?.expect("so many lines");
/// let mut text = vec![0; 10];
/// reader.read_at(line.start, &mut text)?;
/// assert_eq!(&text, b"line 7000\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Writer<W: Write> {
    out: Sampled<W>,
    options: Options,
    splitter: Option<Box<dyn Splitter + Send>>,
    found: Vec<Found>,
    /// Ends of records in the pending content and behind it.
    ends: std::collections::VecDeque<u64>,
    /// Content that is no partition yet, from `offset` of what was written on.
    pending: Vec<u8>,
    offset: u64,
    /// Partitions that are not under way yet.
    task: Pieces,
    pipeline: Pipeline<Pieces, Packed>,
    /// Of what was deflated: its checksum and length.
    crc: u32,
    adler: u32,
    len: u64,
    /// Of lz4: a checksum of what was written.
    sum: lz4::Sum,
    index: IndexWriter<Vec<u8>>,
    /// Of zstd: stored and decoded lengths of the frames.
    frames: Vec<(u64, u64)>,
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that make no sense; [`Error::Io`].
    pub fn new(out: W, options: Options) -> Result<Writer<W>> {
        options.check()?;
        let mut out = Sampled { out, sampler: Sampler::default(), pos: 0 };
        out.put(&options.header()?)?;
        let index = IndexWriter::new(Vec::new(), 8 * out.pos)?;
        let (like, lines) = (options.clone(), options.lines);
        let pipeline = Pipeline::new(options.threads.max(1), move || {
            let (mut packer, mut scratch) = (like.packer(), Scratch::default());
            move |pieces: Pieces| match &mut packer {
                Ok(packer) => {
                    pack(packer, &pieces, lines, like.format == Format::Zlib, &mut scratch)
                }
                Err(error) => Err(error.again()),
            }
        });
        let splitter = options.split.as_ref().map(Split::splitter);
        Ok(Writer {
            out,
            options,
            splitter,
            found: Vec::new(),
            ends: std::collections::VecDeque::new(),
            pending: Vec::new(),
            offset: 0,
            task: Pieces::default(),
            pipeline,
            crc: 0,
            adler: 1,
            len: 0,
            sum: lz4::Sum::default(),
            index,
            frames: Vec::new(),
            failed: false,
        })
    }

    /// Content that was written so far, as partitions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True before the first partition is written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Partitions that were written so far.
    pub fn partitions(&self) -> u64 {
        self.index.units()
    }

    /// Bytes written so far.
    pub fn stored_len(&self) -> u64 {
        self.out.pos
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        if self.options.format == Format::Lz4 {
            self.sum.update(bytes);
        }
        // What is found in much at once would be much to keep.
        bytes.chunks(TASK).try_for_each(|some| self.take_some(some))
    }

    fn take_some(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(splitter) = &mut self.splitter {
            splitter.take(bytes, &mut self.found)?;
            self.ends.extend(self.found.drain(..).map(|found| found.range.end));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let now = rest.len().min(self.options.partition - self.pending.len());
            self.pending.extend_from_slice(&rest[..now]);
            rest = &rest[now..];
            if self.pending.len() == self.options.partition {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Makes a partition of the pending content, as far as it goes.
    fn cut(&mut self) -> Result<()> {
        let least = self.options.partition / 4;
        let mut len = self.pending.len();
        while let Some(&end) = self.ends.front() {
            let here = end.saturating_sub(self.offset);
            if here > self.pending.len() as u64 {
                break;
            }
            if here as usize >= least {
                len = here as usize;
            }
            self.ends.pop_front();
        }
        // What lies behind it are records that end behind it, or none.
        self.task.content.extend(self.pending.drain(..len));
        self.task.ends.push(self.task.content.len());
        self.offset += len as u64;
        if self.task.content.len() - self.task.before >= TASK { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        if self.task.ends.is_empty() {
            return Ok(());
        }
        let mut next = Pieces::default();
        next.content.reserve(WINDOW + TASK);
        if self.options.primed {
            let content = &self.task.content;
            next.content.extend_from_slice(&content[content.len().saturating_sub(WINDOW)..]);
            next.before = next.content.len();
        }
        let task = std::mem::replace(&mut self.task, next);
        match self.pipeline.push(task) {
            Some(done) => self.put(done),
            None => Ok(()),
        }
    }

    fn put(&mut self, done: Packed) -> Result<()> {
        let result = done.and_then(|(bytes, partitions)| {
            let mut end = self.out.pos;
            self.out.put(&bytes)?;
            for partition in partitions {
                end += partition.stored_len;
                self.crc = crc32_join(self.crc, partition.content, partition.len);
                self.adler = adler32_join(self.adler, partition.adler, partition.len);
                self.len += partition.len;
                if self.options.format == Format::Zstd {
                    self.frames.push((partition.stored_len, partition.len));
                }
                let unit = NewUnit {
                    len: partition.len,
                    end_bit: 8 * end,
                    stored: Some(partition.stored),
                    content: Some(partition.content),
                    lines: partition.lines,
                };
                self.index.put(&unit, partition.start.as_deref())?;
            }
            Ok(())
        });
        self.failed |= result.is_err();
        result
    }

    /// Adds partitions of another file as they are stored there, these by number: nothing is inflated, and each
    /// is held against its checksum. What was written before ends with a partition of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are fewer, or the file has none: those of other programs have not. [`Error::Corrupt`] when one is
    /// damaged; those of reading and writing.
    pub fn splice(&mut self, from: &Reader, partitions: Range<u64>) -> Result<()> {
        if partitions.start > partitions.end || partitions.end > from.units() {
            return Err(Error::invalid(format!(
                "partitions {} to {} were asked for, and there are {}",
                partitions.start,
                partitions.end,
                from.units()
            )));
        }
        if self.options.format != from.format() || from.format() != Format::Gzip {
            return Err(Error::invalid("partitions of gzip files are spliced into one"));
        }
        self.flush_all()?;
        // What follows copies from nothing that is before these.
        self.task = Pieces::default();
        let mut bytes = Vec::new();
        for number in partitions {
            let unit = from.stored_unit(number, &mut bytes)?;
            let Some(content) = unit.content else {
                let what = "only files with partitions of their own can be spliced, as `fiche gzip` makes them";
                return Err(Error::invalid(what));
            };
            let lines = unit.lines.filter(|_| self.options.lines);
            let partition = Partition {
                len: unit.len,
                stored_len: bytes.len() as u64,
                stored: unit.stored,
                content,
                adler: 0,
                lines,
                start: None,
            };
            self.put(Ok((std::mem::take(&mut bytes), vec![partition])))?;
        }
        Ok(())
    }

    /// Makes partitions of all that is pending, and writes them.
    fn flush_all(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        while !self.pending.is_empty() {
            self.cut()?;
        }
        self.send()?;
        while let Some(done) = self.pipeline.pop() {
            self.put(done)?;
        }
        Ok(())
    }

    /// Ends the stream; the index is yet to be written.
    fn end(&mut self) -> Result<()> {
        self.flush_all()?;
        if self.options.format == Format::Zstd {
            let table = zstd::table_of(&self.frames)?;
            return self.out.put(&table);
        }
        if self.options.format == Format::Lz4 {
            if self.options.len.is_some_and(|len| len != self.len) {
                return Err(Error::invalid(format!(
                    "{} bytes were said to come, and {} came",
                    self.options.len.unwrap_or(0),
                    self.len
                )));
            }
            return self.out.put(&self.sum.end());
        }
        let mut last = LAST_BLOCK.to_vec();
        match self.options.format {
            // The highest byte first, as RFC 1950 has it.
            Format::Zlib => last.put_u32(self.adler.swap_bytes()),
            Format::Deflate => {}
            _ => {
                last.put_u32(self.crc);
                last.put_u32(self.len as u32);
            }
        }
        self.out.put(&last)
    }

    /// Ends the file with an index inside: of zstd, the table of the seekable format.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`] when an earlier write failed; [`Error::Invalid`] for zlib and deflate streams,
    /// which have no place for it.
    pub fn finish(mut self) -> Result<W> {
        let format = self.options.format;
        if matches!(format, Format::Zlib | Format::Deflate) {
            return Err(Error::invalid("zlib and deflate streams have their index beside them"));
        }
        self.end()?;
        // Zstandard's table is written.
        if let Some(carrier) = Carrier::of(format) {
            let (stored_len, digest) = (self.out.pos, Digest([0; 32]));
            let about = About { format, is_inside: true, stored_len, digest };
            let (index, _) = self.index.finish(&about)?;
            self.out.put(&carrier.carry(&index))?;
        }
        self.out.out.flush()?;
        Ok(self.out.out)
    }

    /// Ends the file without an index inside, and writes that to a place of its own.
    ///
    /// # Errors
    /// Those of [`finish`](Writer::finish).
    pub fn finish_beside(mut self, mut index: impl Write) -> Result<W> {
        self.end()?;
        self.out.out.flush()?;
        let (stored_len, digest) = self.out.sampler.finish();
        let about = About { format: self.options.format, is_inside: false, stored_len, digest };
        let (bytes, _) = self.index.finish(&about)?;
        index.write_all(&bytes)?;
        index.flush()?;
        Ok(self.out.out)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes).inspect_err(|_| self.failed = true).map_err(into_io)?;
        Ok(bytes.len())
    }

    /// Ends the partition, and writes all that there is so far.
    fn flush(&mut self) -> io::Result<()> {
        self.flush_all().map_err(into_io)?;
        self.out.out.flush()
    }
}

/// What a thread compresses with.
enum Packer {
    #[cfg(feature = "zlib")]
    Gzip(Box<Partitioner>),
    #[cfg(feature = "zlib")]
    Primed(Primed),
    Zstd(zstd::Encoder),
    Lz4(Box<lz4::Encoder>),
}

fn pack(
    packer: &mut Packer,
    pieces: &Pieces,
    lines: bool,
    is_zlib: bool,
    #[cfg_attr(not(feature = "zlib"), allow(unused_variables))] scratch: &mut Scratch,
) -> Packed {
    let mut out = Vec::with_capacity(pieces.content.len() / 2);
    let mut partitions = Vec::with_capacity(pieces.ends.len());
    let mut at = pieces.before;
    #[cfg(feature = "zlib")]
    if let Packer::Primed(primed) = packer {
        primed.begin(&pieces.content[..at])?;
    }
    for &end in &pieces.ends {
        let (content, from) = (&pieces.content[at..end], out.len());
        let start = match packer {
            #[cfg(feature = "zlib")]
            Packer::Gzip(partitioner) => partitioner.put(content, &mut out).map(|()| None),
            #[cfg(feature = "zlib")]
            Packer::Primed(primed) => primed
                .put(content, &mut out)
                .map(|window| (!window.is_empty()).then(|| start_of(Vec::new(), &window, scratch))),
            Packer::Zstd(encoder) => encoder.put(content, &mut out).map(|()| None),
            Packer::Lz4(encoder) => {
                encoder.put(content, &mut out).map(|()| Some(encoder.start().to_vec()))
            }
        }?;
        let mut stored = Crc32c::default();
        stored.update(&out[from..]);
        partitions.push(Partition {
            len: content.len() as u64,
            stored_len: (out.len() - from) as u64,
            stored: stored.get(),
            content: crc32(content),
            adler: if is_zlib { adler32(content) } else { 0 },
            lines: lines.then(|| memchr::memchr_iter(b'\n', content).count() as u64),
            start,
        });
        at = end;
    }
    Ok((out, partitions))
}

/// What is written, sampled as it goes.
struct Sampled<W> {
    out: W,
    sampler: Sampler,
    pos: u64,
}

impl<W: Write> Sampled<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.sampler.update(bytes);
        self.pos += bytes.len() as u64;
        Ok(())
    }
}
