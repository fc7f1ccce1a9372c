//! Gzip files (RFC 1952), inflated as they come.

use std::io::{self, Read};

use super::{Fault, Inflate, Input, Pause, WINDOW};
use crate::error::{Error, Place, Result};
use crate::io::into_io;
use crate::wire::{Crc32, Take, crc32};

/// What a member of a gzip file begins with.
pub(crate) const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// Bytes that are read at once; bytes that are inflated at once.
const IN: usize = 64 << 10;
const OUT: usize = 128 << 10;
/// Names and comments have no length that RFC 1952 knows of; this one has.
const LONGEST_HEADER: usize = 1 << 20;

/// Checksum and length behind a member.
const TRAILER: usize = 8;

/// What the header of a member says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The name of the file that was compressed, without its folder.
    pub name: Option<Vec<u8>>,
    /// What some program wants to be known: subfields of two bytes of name, two of length, content.
    pub extra: Vec<u8>,
    /// When the file was last written, in seconds since 1970; 0 when that is not known.
    pub mtime: u32,
    /// Bytes of the header.
    pub len: usize,
}

impl Member {
    /// Reads the header that `bytes` begin with, which lie at `pos` in the file; `None` where it goes on
    /// behind them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for anything else, [`Error::Unsupported`] for a method or a flag that no program
    /// writes yet.
    pub fn parse(bytes: &[u8], pos: u64) -> Result<Option<Member>> {
        if bytes.iter().zip(MAGIC).any(|(found, magic)| *found != magic) {
            return Err(corrupt("gzip header", pos));
        }
        Member::after_magic(bytes, pos).transpose()
    }

    fn after_magic(bytes: &[u8], pos: u64) -> Option<Result<Member>> {
        const CHECKED: u8 = 2;
        const EXTRA: u8 = 4;
        const NAME: u8 = 8;
        const COMMENT: u8 = 16;
        const RESERVED: u8 = 0xE0;
        const DEFLATE: u8 = 8;
        let unsupported =
            |what, found: u8| Some(Err(Error::Unsupported { what, found: found.into() }));
        let mut take = Take::new(bytes, "gzip header", pos);
        let mut member = Member::default();
        take.u16().ok()?;
        let (method, flags) = (take.u8().ok()?, take.u8().ok()?);
        if method != DEFLATE {
            return unsupported("gzip method", method);
        }
        if flags & RESERVED != 0 {
            return unsupported("gzip flags", flags);
        }
        member.mtime = take.u32().ok()?;
        // How hard was tried, and on which system.
        take.u16().ok()?;
        if flags & EXTRA != 0 {
            let len = take.u16().ok()?;
            member.extra = take.bytes(len.into()).ok()?.to_vec();
        }
        for (flag, is_name) in [(NAME, true), (COMMENT, false)] {
            if flags & flag != 0 {
                let rest = &bytes[bytes.len() - take.remaining()..];
                let text = take.bytes(rest.iter().position(|&byte| byte == 0)?).ok()?;
                take.u8().ok()?;
                if is_name {
                    member.name = Some(text.to_vec());
                }
            }
        }
        let checked = &bytes[..bytes.len() - take.remaining()];
        if flags & CHECKED != 0 && take.u16().ok()? != crc32(checked) as u16 {
            return Some(Err(corrupt("gzip header", pos)));
        }
        member.len = bytes.len() - take.remaining();
        Some(Ok(member))
    }
}

fn corrupt(what: &'static str, pos: u64) -> Error {
    Error::Corrupt { what, at: Place::Pos(pos) }
}

/// What comes next in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Header,
    Stream,
    Trailer,
    /// The end, or another member, or zeros.
    Between,
    /// Zeros to the end.
    Zeros,
    Over,
}

/// What looks at a gzip file while it is inflated.
pub(crate) trait Watch {
    /// Goes on with the stream as [`Inflate::run`] does, and stops where this one wants to look.
    fn run(
        &mut self,
        inflate: &mut Inflate,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
    ) -> Result<Pause, Fault> {
        inflate.run(input, out, at)
    }

    /// The bytes of the file at this position were passed, some of them perhaps before.
    fn passed(&mut self, pos: u64, bytes: &[u8]) {
        let _ = (pos, bytes);
    }

    /// So far it went: `bit` of the file is next. The last of `content` are new, so many; before them is the
    /// window, as far as there is one.
    fn went(&mut self, inflate: &Inflate, bit: u64, content: &[u8], new: usize) -> Result<()> {
        let _ = (inflate, bit, content, new);
        Ok(())
    }

    /// A stream begins or ends before this bit of the file.
    fn border(&mut self, bit: u64, begins: bool) -> Result<()> {
        let _ = (bit, begins);
        Ok(())
    }
}

/// Nobody does.
impl Watch for () {}

/// Inflates a gzip file of any number of members as it is read, each held against its checksum and its
/// length. Zeros behind the last one are passed over, as tapes have them; anything else there is an error,
/// once all content was given out. Takes some 240 KiB.
pub struct Gunzip<R>(Watched<R, ()>);

impl<R: Read> Gunzip<R> {
    /// A reader of the content of a gzip file.
    pub fn new(source: R) -> Gunzip<R> {
        Gunzip(Watched::new(source, ()))
    }
}

impl<R: Read> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

/// The same, and somebody looks at it.
pub(crate) struct Watched<R, W> {
    source: R,
    watch: W,
    /// Bytes of the file from `pos` on, as far as `have`, and the bit of these that is next.
    input: Vec<u8>,
    pos: u64,
    have: usize,
    bit: usize,
    is_all: bool,
    inflate: Inflate,
    /// The window, and content up to `at`, of which what is before `given` was given out.
    out: Vec<u8>,
    at: usize,
    given: usize,
    /// Of the member so far.
    crc: Crc32,
    len: u32,
    next: Next,
}

impl<R: Read, W: Watch> Watched<R, W> {
    pub fn new(source: R, watch: W) -> Watched<R, W> {
        Watched {
            source,
            watch,
            input: vec![0; IN],
            pos: 0,
            have: 0,
            bit: 0,
            is_all: false,
            inflate: Inflate::new(),
            out: vec![0; WINDOW + OUT],
            at: 0,
            given: 0,
            crc: Crc32::default(),
            len: 0,
            next: Next::Header,
        }
    }

    /// Bytes at hand; the bit that is next is one of the first of them.
    fn here(&self) -> &[u8] {
        &self.input[self.bit.div_ceil(8).min(self.have)..self.have]
    }

    /// Where in the file the next byte is.
    fn place(&self) -> u64 {
        self.pos + (self.bit / 8) as u64
    }

    /// Goes on behind so many of the bytes at hand.
    fn pass(&mut self, len: usize) {
        let from = self.bit.div_ceil(8);
        self.watch.passed(self.pos + from as u64, &self.input[from..from + len]);
        self.bit = 8 * (from + len);
    }

    /// The bit of the file that is next.
    fn bit_of_file(&self) -> u64 {
        8 * self.pos + self.bit as u64
    }

    /// The source and what watched.
    pub fn into_parts(self) -> (R, W) {
        (self.source, self.watch)
    }

    /// Reads on. What cannot do with so many bytes at hand, can with more, or they end too soon.
    fn more(&mut self) -> Result<()> {
        let from = self.bit / 8;
        if from > 0 {
            self.input.copy_within(from..self.have, 0);
            (self.pos, self.have) = (self.pos + from as u64, self.have - from);
            self.bit %= 8;
        }
        if self.have == self.input.len() {
            self.input.resize(2 * self.have, 0);
        }
        let read = loop {
            match self.source.read(&mut self.input[self.have..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.have += read;
        self.is_all = read == 0;
        Ok(())
    }

    /// As [`more`](Watched::more), where there has to be more.
    fn rest_of(&mut self, what: &'static str) -> Result<()> {
        if self.is_all {
            return Err(corrupt(what, self.pos + self.have as u64));
        }
        self.more()
    }

    /// Goes on until there is content to give out, or none any more.
    fn advance(&mut self) -> Result<()> {
        while self.given == self.at && self.next != Next::Over {
            match self.next {
                Next::Header => match Member::parse(self.here(), self.place())? {
                    Some(member) => {
                        self.pass(member.len);
                        self.inflate.reset();
                        (self.crc, self.len) = (Crc32::default(), 0);
                        // What another member had is no window of this one.
                        (self.at, self.given) = (0, 0);
                        self.next = Next::Stream;
                        self.watch.border(self.bit_of_file(), true)?;
                    }
                    None if self.here().len() > LONGEST_HEADER => {
                        return Err(corrupt("gzip header", self.place()));
                    }
                    None => self.rest_of("gzip header")?,
                },
                Next::Stream => self.inflate_some()?,
                Next::Trailer => match self.here().get(..TRAILER) {
                    Some(trailer) => {
                        let mut take = Take::new(trailer, "gzip trailer", 0);
                        let (crc, len) = (take.u32()?, take.u32()?);
                        if crc != self.crc.get() {
                            return Err(corrupt("content of a gzip member", self.place()));
                        }
                        if len != self.len {
                            return Err(corrupt("length of a gzip member", self.place()));
                        }
                        self.watch.border(self.bit_of_file(), false)?;
                        self.pass(TRAILER);
                        self.next = Next::Between;
                    }
                    None => self.rest_of("gzip trailer")?,
                },
                Next::Between => match self.here().first() {
                    Some(0) => self.next = Next::Zeros,
                    Some(_) => self.next = Next::Header,
                    None if self.is_all => self.next = Next::Over,
                    None => self.more()?,
                },
                Next::Zeros => {
                    let zeros = self.here().iter().take_while(|&&byte| byte == 0).count();
                    self.pass(zeros);
                    match self.here() {
                        [] if self.is_all => self.next = Next::Over,
                        [] => self.more()?,
                        _ => return Err(corrupt("gzip header", self.place())),
                    }
                }
                Next::Over => {}
            }
        }
        Ok(())
    }

    fn inflate_some(&mut self) -> Result<()> {
        if self.at == self.out.len() {
            self.out.copy_within(self.at - WINDOW.., 0);
            (self.at, self.given) = (WINDOW, WINDOW);
        }
        let here = &self.input[..self.have];
        let mut input = match self.is_all {
            true => Input::new(here, self.bit),
            false => Input::open(here, self.bit),
        };
        let pause = self.watch.run(&mut self.inflate, &mut input, &mut self.out, &mut self.at);
        let from = self.bit / 8;
        self.bit = input.bit();
        let content = &self.out[self.given..self.at];
        self.crc.update(content);
        self.len = self.len.wrapping_add(content.len() as u32);
        let (new, bit) = (content.len(), 8 * self.pos + self.bit as u64);
        let end = self.bit.div_ceil(8).min(self.have);
        self.watch.passed(self.pos + from as u64, &self.input[from..end]);
        self.watch.went(&self.inflate, bit, &self.out[..self.at], new)?;
        match pause.map_err(|fault| fault.at(self.place())) {
            Ok(Pause::End) => {
                self.bit = self.bit.next_multiple_of(8);
                self.next = Next::Trailer;
            }
            Ok(Pause::Hungry) if content.is_empty() => self.more()?,
            Ok(_) => {}
            // What is right is given out before what is not is told.
            Err(error) if content.is_empty() => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

impl<R: Read, W: Watch> Read for Watched<R, W> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.advance().map_err(into_io)?;
        let len = buf.len().min(self.at - self.given);
        buf[..len].copy_from_slice(&self.out[self.given..self.given + len]);
        self.given += len;
        Ok(len)
    }
}
