//! Decodes deflate streams (RFC 1951): from any bit of one, with what stood before it as window, and no
//! further than is asked for.
//!
//! The output buffer is the window, too: what lies before the place where decoding begins is what matches
//! may copy from. Between two calls nothing is kept but the place in the stream, the tables of the block and
//! what is left of a match; so a decoder can be set down where another one stood.

use super::kernel;
use super::sink::{Buffer, Marking, Marks, Sink, Symbols, Tokens};
use super::tables::{END, LENGTHS, LITERAL, SPECIAL, SYMBOLS, Shape, Tables};
use crate::error::{Error, Place};
use crate::wire::load_u64;

/// The farthest that a match copies from.
pub const WINDOW: usize = 32 << 10;

/// What is wrong with a stream, as far as RFC 1951 says what is right. What zlib takes, this takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged: {}", self.what())]
#[non_exhaustive]
pub enum Fault {
    /// A block of type 3.
    BlockType,
    /// A stored block whose length and its complement do not agree.
    StoredLength,
    /// More than 286 symbols or 30 distances have codes.
    TooManyCodes,
    /// The code in which lengths of codes are written does not give each sequence of bits one meaning.
    LengthCode,
    /// A length is repeated that is not there, or beyond the last.
    Repeat,
    /// The end of the block has no code.
    NoEnd,
    /// The code of literals and lengths does not give each sequence of bits one meaning.
    SymbolCode,
    /// The code of distances does not.
    DistanceCode,
    /// A symbol that means nothing.
    Symbol,
    /// A distance that means nothing.
    Distance,
    /// A match that begins before the window.
    FarBack,
    /// The bytes end within the stream.
    Truncated,
}

impl Fault {
    /// The same in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Fault::BlockType => "type of a deflate block",
            Fault::StoredLength => "length of a stored deflate block",
            Fault::TooManyCodes => "number of codes of a deflate block",
            Fault::LengthCode => "code of code lengths of a deflate block",
            Fault::Repeat => "repeated code length of a deflate block",
            Fault::NoEnd => "deflate block without a code for its end",
            Fault::SymbolCode => "code of literals and lengths of a deflate block",
            Fault::DistanceCode => "code of distances of a deflate block",
            Fault::Symbol => "literal or length of a deflate block",
            Fault::Distance => "distance of a deflate block",
            Fault::FarBack => "distance of a deflate block, too far back,",
            Fault::Truncated => "deflate stream, which ends too soon,",
        }
    }

    /// The error of a file in which this is at byte `pos`.
    #[must_use]
    pub fn at(self, pos: u64) -> Error {
        Error::Corrupt { what: self.what(), at: Place::Pos(pos) }
    }
}

/// Why a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// There is no more room.
    Full,
    /// The bytes at hand end within something, and there may be more.
    Hungry,
    /// A block is over, and another one follows.
    Block,
    /// The stream is over.
    End,
}

/// Bytes of a stream, and a place among their bits.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    bit: usize,
    /// No more bytes will come.
    is_all: bool,
}

impl<'a> Input<'a> {
    /// A stream whose bytes are all here, from bit `bit` on; the first is the lowest of the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8], bit: usize) -> Input<'a> {
        Input { bytes, bit, is_all: true }
    }

    /// The same where more bytes may follow these.
    #[must_use]
    pub fn open(bytes: &'a [u8], bit: usize) -> Input<'a> {
        Input { bytes, bit, is_all: false }
    }

    /// The bit that is next.
    #[must_use]
    pub fn bit(&self) -> usize {
        self.bit
    }

    /// The first byte of which no bit was read.
    #[must_use]
    pub fn byte(&self) -> usize {
        self.bit.div_ceil(8)
    }

    /// At most so many bytes from the one of the next bit on, and which of its bits that is.
    pub(crate) fn ahead(&self, most: usize) -> (&'a [u8], usize) {
        let rest = self.bytes.get(self.bit / 8..).unwrap_or_default();
        (&rest[..most.min(rest.len())], self.bit % 8)
    }

    /// The next 57 bits or more; 0 where there are none.
    #[inline(always)]
    fn peek(&self) -> u64 {
        let at = self.bit / 8;
        let word = match at + 8 <= self.bytes.len() {
            true => load_u64(self.bytes, at),
            false => {
                let mut last = [0; 8];
                let rest = self.bytes.get(at..).unwrap_or_default();
                last[..rest.len()].copy_from_slice(rest);
                load_u64(&last, 0)
            }
        };
        word >> (self.bit % 8)
    }

    /// Bits that are left.
    #[inline(always)]
    fn left(&self) -> usize {
        (8 * self.bytes.len()).saturating_sub(self.bit)
    }

    /// What to do where there are too few.
    fn at_end(&self) -> Result<Option<Pause>, Fault> {
        if self.is_all { Err(Fault::Truncated) } else { Ok(Some(Pause::Hungry)) }
    }
}

/// What is next in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Header,
    /// So many bytes as they are.
    Stored(usize),
    Symbols,
    End,
}

/// A block that a decoder has the tables of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    next: Next,
    /// The bit behind it.
    end: usize,
}

/// A decoder. Takes some 15 KB.
pub struct Inflate {
    next: Next,
    /// No block follows this one.
    is_last: bool,
    /// What is left of a match: its length and distance.
    copy: (usize, usize),
    /// Bits of the header of the block.
    header_bits: usize,
    tables: Box<Tables>,
}

impl Default for Inflate {
    fn default() -> Inflate {
        Inflate::new()
    }
}

impl Inflate {
    /// One that stands before a block.
    #[must_use]
    pub fn new() -> Inflate {
        Inflate {
            next: Next::Header,
            is_last: false,
            copy: (0, 0),
            header_bits: 0,
            tables: Box::new(Tables::new()),
        }
    }

    /// Stands before a block again.
    pub fn reset(&mut self) {
        (self.next, self.is_last, self.copy) = (Next::Header, false, (0, 0));
    }

    /// Fills `out` from `at` on, as far as the stream goes and its bytes are here; `at` is the end of what
    /// is decoded then. Matches copy from anywhere in `out` before that: what the call before has left there, or as
    /// much of its end as `WINDOW`, has to be there again. Costs a time that grows with what is decoded, 1 us for each
    /// KiB, and 1 to 2 us for each block's tables; allocates nothing.
    ///
    /// When the room is all used, it has not looked at what follows: [`finish`](Inflate::finish) does.
    ///
    /// # Errors
    /// What is wrong with the stream, at the bit where `input` stands then.
    pub fn run(
        &mut self,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
    ) -> Result<Pause, Fault> {
        if *at >= out.len() { Ok(Pause::Full) } else { self.fill(input, out, at, false) }
    }

    /// As [`run`](Inflate::run), but to the end of the block: [`Pause::Block`] where another one follows.
    /// With no room it goes on to the end all the same, if no byte is in between.
    ///
    /// # Errors
    /// As of [`run`](Inflate::run).
    pub fn run_block(
        &mut self,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
    ) -> Result<Pause, Fault> {
        self.fill(input, out, at, true)
    }

    /// As [`run_block`](Inflate::run_block), some times slower; notes what is copied from before the last
    /// `since` bytes that were decoded.
    pub(crate) fn run_marking(
        &mut self,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
        (since, marks): (usize, &mut Marks),
    ) -> Result<Pause, Fault> {
        let start = at.saturating_sub(since);
        let mut sink = Marking { buffer: Buffer { out, at: *at }, marks, start };
        let pause = self.go(input, &mut sink, true);
        *at = sink.buffer.at;
        pause
    }

    /// Hands over symbols until no more are taken, or to the end of the block.
    ///
    /// # Errors
    /// As of [`run`](Inflate::run).
    pub(crate) fn run_tokens(
        &mut self,
        input: &mut Input<'_>,
        tokens: &mut impl Tokens,
    ) -> Result<Pause, Fault> {
        self.go(input, &mut Symbols(tokens), true)
    }

    /// Stands at a bit of the block whose header it has read, before a symbol or a stored byte.
    pub(crate) fn stand(&mut self, from: &Header, bit: usize) {
        self.copy = (0, 0);
        self.next = match from.next {
            Next::Stored(len) => Next::Stored(len.saturating_sub(bit.saturating_sub(from.end) / 8)),
            _ => Next::Symbols,
        };
    }

    /// What was read of the block that it is at the beginning of; `input` stands behind the header.
    pub(crate) fn header_of(&self, input: &Input<'_>) -> Header {
        Header { next: self.next, end: input.bit }
    }

    /// Reads the header of a block, and stands before its first symbol or byte.
    ///
    /// # Errors
    /// As of [`run`](Inflate::run).
    pub(crate) fn begin_block(&mut self, input: &mut Input<'_>) -> Result<(), Fault> {
        self.reset();
        self.header(input)?.map_or(Ok(()), |_| Err(Fault::Truncated))
    }

    /// Bits of the header of the block that it is in.
    pub(crate) fn header_bits(&self) -> usize {
        self.header_bits
    }

    /// True before a block.
    pub(crate) fn is_before_block(&self) -> bool {
        self.next == Next::Header
    }

    /// True within a block, between two of its symbols.
    pub(crate) fn is_before_symbol(&self) -> bool {
        self.next == Next::Symbols && self.copy.0 == 0
    }

    /// Goes on to the end of the stream, if no byte is in between.
    ///
    /// # Errors
    /// As of [`run`](Inflate::run).
    pub fn finish(&mut self, input: &mut Input<'_>) -> Result<Pause, Fault> {
        self.fill(input, &mut [], &mut 0, false)
    }

    fn fill(
        &mut self,
        input: &mut Input<'_>,
        out: &mut [u8],
        at: &mut usize,
        by_block: bool,
    ) -> Result<Pause, Fault> {
        let mut sink = Buffer { out, at: *at };
        let pause = self.go(input, &mut sink, by_block);
        *at = sink.at;
        pause
    }

    /// Stops where there is no room any more; if there was none, before the next byte.
    fn go(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut impl Sink,
        by_block: bool,
    ) -> Result<Pause, Fault> {
        let has_room = sink.room() > 0;
        loop {
            if self.copy.0 > 0 {
                let (len, distance) = self.copy;
                if distance > sink.reach() {
                    // The window is not that of the call before.
                    return Err(Fault::FarBack);
                }
                let now = len.min(sink.room());
                sink.copy(now, distance);
                self.copy.0 -= now;
            }
            if self.copy.0 > 0 || has_room && sink.room() == 0 {
                return Ok(Pause::Full);
            }
            let pause = match self.next {
                Next::End => Some(Pause::End),
                Next::Header => self.header(input)?,
                Next::Stored(left) => self.stored(left, input, sink)?,
                Next::Symbols => {
                    if let Some((out, at)) = sink.buffer() {
                        kernel::symbols(&self.tables, input.bytes, &mut input.bit, out, at);
                    }
                    self.symbols(input, sink)?
                }
            };
            if let Some(pause) = pause {
                return Ok(pause);
            }
            if by_block && self.next == Next::Header {
                return Ok(Pause::Block);
            }
        }
    }

    fn end_block(&mut self) {
        self.next = if self.is_last { Next::End } else { Next::Header };
    }

    fn stored(
        &mut self,
        left: usize,
        input: &mut Input<'_>,
        sink: &mut impl Sink,
    ) -> Result<Option<Pause>, Fault> {
        let from = input.byte();
        let here = &input.bytes[from.min(input.bytes.len())..];
        if left > 0 && here.is_empty() && sink.room() > 0 {
            return input.at_end();
        }
        let now = left.min(here.len()).min(sink.at_once());
        sink.literals(&here[..now]);
        input.bit += 8 * now;
        match left - now {
            0 => self.end_block(),
            left => {
                self.next = Next::Stored(left);
                if sink.room() == 0 {
                    return Ok(Some(Pause::Full));
                }
                if now == here.len() {
                    return input.at_end();
                }
            }
        }
        Ok(None)
    }

    /// Symbols one by one, each with a look at what is left: the safe twin of the kernel.
    fn symbols(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut impl Sink,
    ) -> Result<Option<Pause>, Fault> {
        let bits = |entry: u32| (entry & 0xFF) as usize;
        // The extra bits are the last of them.
        let value = |entry: u32, word: u64| {
            let extra = (word & !(u64::MAX << (entry & 0xFF))) >> (entry >> 8 & 15);
            (entry >> 16) as usize + extra as usize
        };
        let is_full = sink.room() == 0;
        while self.copy.0 == 0 {
            // What is behind the last byte that was asked for is not looked at.
            if !is_full && sink.room() == 0 {
                return Ok(Some(Pause::Full));
            }
            let word = input.peek();
            let entry = self.tables.symbols.find(word);
            let used = bits(entry);
            if used > input.left() {
                return input.at_end();
            }
            if entry & LITERAL != 0 {
                if sink.room() == 0 {
                    return Ok(Some(Pause::Full));
                }
                sink.literal((entry >> 16) as u8);
                input.bit += used;
                continue;
            }
            if entry & END != 0 {
                input.bit += used;
                self.end_block();
                return Ok(None);
            }
            if entry & SPECIAL != 0 {
                return Err(Fault::Symbol);
            }
            let far = self.tables.distances.find(word >> used);
            if used + bits(far) > input.left() {
                return input.at_end();
            }
            if far & SPECIAL != 0 {
                return Err(Fault::Distance);
            }
            let (len, distance) = (value(entry, word), value(far, word >> used));
            if sink.room() == 0 {
                return Ok(Some(Pause::Full));
            }
            if distance > sink.reach() {
                return Err(Fault::FarBack);
            }
            input.bit += used + bits(far);
            let now = len.min(sink.room());
            sink.copy(now, distance);
            self.copy = (len - now, distance);
        }
        Ok(Some(Pause::Full))
    }

    /// Reads the header of a block, if it is all here.
    fn header(&mut self, input: &mut Input<'_>) -> Result<Option<Pause>, Fault> {
        let mut ahead = *input;
        match self.block(&mut ahead) {
            // What is made of bits that are not there may be anything.
            _ if ahead.bit > 8 * input.bytes.len() => input.at_end(),
            Ok(next) => {
                self.header_bits = ahead.bit - input.bit;
                *input = ahead;
                self.next = next;
                if next == Next::Stored(0) {
                    self.end_block();
                }
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn block(&mut self, input: &mut Input<'_>) -> Result<Next, Fault> {
        let word = input.peek();
        self.is_last = word & 1 == 1;
        input.bit += 3;
        match word >> 1 & 3 {
            0 => {
                input.bit = 8 * input.byte();
                let word = input.peek();
                input.bit += 32;
                let (len, complement) = (word & 0xFFFF, word >> 16 & 0xFFFF);
                if len != !complement & 0xFFFF {
                    return Err(Fault::StoredLength);
                }
                Ok(Next::Stored(len as usize))
            }
            1 => {
                self.tables.fix();
                Ok(Next::Symbols)
            }
            2 => {
                self.codes(input)?;
                Ok(Next::Symbols)
            }
            _ => Err(Fault::BlockType),
        }
    }

    /// Reads the codes of a block (section 3.2.7).
    fn codes(&mut self, input: &mut Input<'_>) -> Result<(), Fault> {
        const ORDER: [usize; LENGTHS] =
            [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let word = input.peek();
        input.bit += 14;
        let symbols = (word & 31) as usize + 257;
        let distances = (word >> 5 & 31) as usize + 1;
        let lengths = (word >> 10 & 15) as usize + 4;
        if symbols > 286 || distances > 30 {
            return Err(Fault::TooManyCodes);
        }
        let mut lens = [0; LENGTHS];
        let word = input.peek();
        // Nineteen times three bits are as many as there are at once.
        for (i, &symbol) in ORDER[..lengths].iter().enumerate() {
            lens[symbol] = (word >> (3 * i) & 7) as u8;
        }
        input.bit += 3 * lengths;
        let (shape, table) = self.tables.set_lengths(&lens);
        if lens == [0; LENGTHS] {
            // With no code at all each bit is a length of 0, and so is that of the end.
            input.bit += symbols + distances;
            return Err(Fault::NoEnd);
        }
        if shape != Shape::Whole {
            return Err(Fault::LengthCode);
        }
        let mut lens = [0u8; SYMBOLS + 32];
        let (mut at, end) = (0, symbols + distances);
        while at < end {
            let word = input.peek();
            let entry = table.find(word);
            let used = entry & 0xFF;
            input.bit += used as usize;
            if input.bit > 8 * input.bytes.len() {
                // Nothing of what follows can be right.
                return Err(Fault::Truncated);
            }
            let word = word >> used;
            let (len, extra, least) = match entry >> 16 {
                len @ 0..16 => {
                    lens[at] = len as u8;
                    at += 1;
                    continue;
                }
                16 => (at.checked_sub(1).map(|before| lens[before]), 2, 3),
                17 => (Some(0), 3, 3),
                _ => (Some(0), 7, 11),
            };
            let count = (word & ((1 << extra) - 1)) as usize + least;
            input.bit += extra;
            let len = len.filter(|_| at + count <= end).ok_or(Fault::Repeat)?;
            lens[at..at + count].fill(len);
            at += count;
        }
        if lens[256] == 0 {
            return Err(Fault::NoEnd);
        }
        match self.tables.set(&lens[..symbols], &lens[symbols..end]) {
            (Shape::Wrong, _) => Err(Fault::SymbolCode),
            (_, Shape::Wrong) => Err(Fault::DistanceCode),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// A buffer that the kernel does not know of.
    struct Plain<'a>(Buffer<'a>);

    impl Sink for Plain<'_> {
        fn room(&self) -> usize {
            self.0.room()
        }
        fn reach(&self) -> usize {
            self.0.reach()
        }
        fn literal(&mut self, byte: u8) {
            self.0.literal(byte);
        }
        fn literals(&mut self, bytes: &[u8]) {
            self.0.literals(bytes);
        }
        fn copy(&mut self, len: usize, distance: usize) {
            self.0.copy(len, distance);
        }
    }

    /// Blocks of fixed codes around any bits, which mean symbols of all kinds.
    #[test]
    fn the_kernel_does_what_its_twin_does() {
        let mut random = Random(1);
        for round in 0..3000 {
            let len = random.below(400) as usize;
            let mut stream = random.bytes(len);
            if let Some(first) = stream.first_mut() {
                *first = *first & !7 | 0b010 | u8::from(round % 2 == 0);
            }
            let mut out = [vec![0xA5; 6000], vec![0xA5; 6000]];
            // With a window, distances that are too far and others.
            let start = random.below(2000) as usize;
            let (mut input, mut at) = (Input::new(&stream, 0), start);
            let fast = Inflate::new().run(&mut input, &mut out[0], &mut at);
            let mut plain = Plain(Buffer { out: &mut out[1], at: start });
            let mut slow_input = Input::new(&stream, 0);
            let slow = Inflate::new().go(&mut slow_input, &mut plain, false);
            assert_eq!((fast, at, input.bit), (slow, plain.0.at, slow_input.bit), "{round}");
            assert!(out[0][..at] == out[1][..at]);
        }
    }

    #[test]
    fn another_window_is_an_error_and_no_more() {
        // Seven bytes `a`: a literal and a match.
        let stream = [0x4B, 0x4C, 0x04, 0x03, 0x00];
        let (mut inflate, mut input) = (Inflate::new(), Input::new(&stream, 0));
        let mut out = [0; 3];
        let mut at = 0;
        assert_eq!(inflate.run(&mut input, &mut out, &mut at), Ok(Pause::Full));
        assert_eq!(&out, b"aaa");
        assert_eq!(inflate.run(&mut input, &mut out, &mut 0), Err(Fault::FarBack));
        assert_eq!(inflate.run(&mut input, &mut out, &mut 9), Ok(Pause::Full));
    }
}
