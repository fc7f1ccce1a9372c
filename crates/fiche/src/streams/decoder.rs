//! Decodes units of a gzip file, from their starts on and no further than is asked for.

use super::format::{Format, Unit};
use super::index::Index;
use super::lz4;
#[cfg(feature = "lzma")]
use super::xz;
use super::zstd;
use crate::codec::deflate::{Inflate, Input, Member, Pause, WINDOW};
use crate::codec::unpack_section;
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::wire::{Crc32c, Take, crc32};

/// Content that is decoded before it is given out.
const ROOM: usize = 128 << 10;
/// Stored bytes of a unit at most, whatever an index says.
const MOST: u64 = 2 << 30;
/// Of what is no gzip: stored bytes that are read at once, those that are held against a checksum before any is
/// decoded, and content that is decoded to its end for the checksum that may be there.
const PIECE: u64 = 1 << 20;
const LOADED: u64 = 64 << 20;
const WHOLE: u64 = 4 << 20;
/// Checksum and length behind a member.
const TRAILER: usize = 8;

/// What decodes a unit that is no gzip.
enum Frames {
    Zstd(zstd::Decoder),
    #[cfg(feature = "lzma")]
    Xz(xz::Decoder),
    Lz4(lz4::Decoder),
}

impl Frames {
    fn format(&self) -> Format {
        match self {
            Frames::Zstd(_) => Format::Zstd,
            #[cfg(feature = "lzma")]
            Frames::Xz(_) => Format::Xz,
            Frames::Lz4(_) => Format::Lz4,
        }
    }
}

/// A decoder, and where it stands. Takes 180 KB and the stored bytes of a unit; of one that is no gzip 64 MiB of these at most, up to 4 MiB of
/// content, and what its own decoder takes: a window of up to 128 MiB, 256 MiB with xz.
pub(super) struct Decoder {
    unit: Option<Unit>,
    /// The unit's bytes, as far as they were read, where those go on, and the bit of them that is next.
    stored: Vec<u8>,
    behind: u64,
    bit: usize,
    inflate: Inflate,
    frames: Option<Frames>,
    /// Of frames: it has just come to the end of one; it was held against what is at the end of the unit's.
    is_over: bool,
    is_proved: bool,
    /// Content up to `at`, which is what is before byte `end` of the stream's content. Matches copy from no further back than `floor`;
    /// from `first` on it is the content itself.
    out: Vec<u8>,
    at: usize,
    floor: usize,
    first: usize,
    end: u64,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            unit: None,
            stored: Vec::new(),
            behind: 0,
            bit: 0,
            inflate: Inflate::new(),
            frames: None,
            is_over: false,
            is_proved: false,
            out: vec![0; WINDOW + ROOM],
            at: 0,
            floor: 0,
            first: 0,
            end: 0,
        }
    }
}

fn corrupt(what: &'static str, pos: u64) -> Error {
    Error::Corrupt { what, at: Place::Pos(pos) }
}

/// Reads the stored bytes of a unit, and holds them against their checksum, which it returns.
pub(super) fn load(
    source: &dyn ReadAt,
    unit: &Unit,
    format: Format,
    stored: &mut Vec<u8>,
) -> Result<u32> {
    let bytes = unit.bytes();
    let damaged = || corrupt(format.unit_name(), bytes.start);
    if bytes.end > source.len() {
        return Err(damaged());
    }
    let need = bytes.end - bytes.start;
    if need > MOST {
        return Err(Error::Limit { what: "a unit of a file", need, allowed: MOST });
    }
    let len = usize::try_from(need).map_err(|_| damaged())?;
    stored.clear();
    stored.resize(len, 0);
    source.read_at(bytes.start, stored)?;
    let mut checksum = Crc32c::default();
    checksum.update(stored);
    // What a checksum catches would hide all else from who looks for it.
    let is_right = |stored| stored == checksum.get() || cfg!(fuzzing);
    match unit.stored.is_none_or(is_right) {
        true => Ok(checksum.get()),
        false => Err(damaged()),
    }
}

/// What a start says: bits of a header, these, and the window. `None` where it is damaged.
fn parse_start(start: &[u8]) -> Option<(usize, &[u8], Vec<u8>)> {
    let mut take = Take::new(start, "start of a unit", 0);
    let bits = take.count(8 * start.len() as u64).ok()?;
    let header = take.bytes(bits.div_ceil(8)).ok()?;
    let len = take.count(WINDOW as u64).ok()?;
    let packed = take.bytes(take.remaining()).ok()?;
    let window = if packed.len() == len { packed.to_vec() } else { unpack_section(packed, len)? };
    Some((bits, header, window))
}

/// The window of a start, none where the unit begins within a block; `None` where it is damaged.
pub(super) fn window_of(start: &[u8]) -> Option<Option<Vec<u8>>> {
    let (bits, _, window) = parse_start(start)?;
    Some((bits == 0).then_some(window))
}

impl Decoder {
    /// How many bytes it would decode for nothing before it comes to this one; `None` where it cannot.
    pub fn way_to(&self, offset: u64) -> Option<u64> {
        let unit =
            self.unit.as_ref().filter(|unit| unit.offset <= offset && offset < unit.end())?;
        let first = self.end.saturating_sub((self.at - self.first) as u64);
        debug_assert!(unit.offset <= first);
        (first <= offset).then(|| offset.saturating_sub(self.end))
    }

    /// Bytes of its unit from this one on.
    pub fn left(&self, offset: u64) -> u64 {
        self.unit.as_ref().map_or(0, |unit| unit.end().saturating_sub(offset))
    }

    /// Stands at the beginning of a unit, whose stored bytes are read and held against their checksum.
    pub fn begin(&mut self, source: &dyn ReadAt, index: &Index, unit: Unit) -> Result<()> {
        self.unit = None;
        let format = index.footer().format;
        if !format.is_deflate() {
            return self.begin_frames(source, index, unit);
        }
        if format != Format::Gzip && unit.stored.is_none() {
            return Err(corrupt(format.unit_name(), unit.bytes().start));
        }
        load(source, &unit, format, &mut self.stored)?;
        self.frames = None;
        self.bit = (unit.bits.start % 8) as usize;
        self.inflate.reset();
        (self.at, self.floor, self.first) = (0, 0, 0);
        if !unit.start.is_empty() {
            let start = index.start(&unit)?;
            self.set(&start).ok_or_else(|| corrupt("start of a unit", unit.start.start))?;
        }
        self.end = unit.offset;
        let is_checked = unit.stored.is_some();
        self.unit = Some(unit);
        if is_checked { Ok(()) } else { self.check_member(source) }
    }

    /// The same of a unit that is no gzip. Where there is no checksum of its stored bytes, and it is not very long, it is decoded to
    /// its end, where it may have one of its content.
    fn begin_frames(&mut self, source: &dyn ReadAt, index: &Index, unit: Unit) -> Result<()> {
        let bytes = unit.bytes();
        if bytes.end > source.len() || !(unit.bits.start | unit.bits.end).is_multiple_of(8) {
            return Err(corrupt("unit page", bytes.start));
        }
        let format = index.footer().format;
        let is_checked = unit.stored.is_some();
        self.stored.clear();
        self.behind = bytes.start;
        if format == Format::Lz4 || is_checked && bytes.end - bytes.start <= LOADED {
            load(source, &unit, format, &mut self.stored)?;
            self.behind = bytes.end;
        } else if let Some(stored) = unit.stored {
            // Too long to be kept: it is read twice.
            let (mut checksum, mut pos) = (Crc32c::default(), bytes.start);
            while pos < bytes.end {
                let len = (bytes.end - pos).min(PIECE);
                self.stored.resize(len as usize, 0);
                source.read_at(pos, &mut self.stored)?;
                checksum.update(&self.stored);
                pos += len;
            }
            self.stored.clear();
            if checksum.get() != stored && !cfg!(fuzzing) {
                return Err(corrupt(format.unit_name(), bytes.start));
            }
        }
        (self.is_over, self.is_proved) = (false, false);
        self.frames = Some(match (format, self.frames.take()) {
            (Format::Zstd, Some(Frames::Zstd(mut decoder))) => {
                decoder.reset();
                Frames::Zstd(decoder)
            }
            (Format::Zstd, _) => Frames::Zstd(zstd::Decoder::default()),
            #[cfg(feature = "lzma")]
            (Format::Xz, _) => {
                let start = index.start(&unit)?;
                let start_damaged = || corrupt("start of a unit", unit.start.start);
                Frames::Xz(xz::Decoder::begin(&start).ok_or_else(start_damaged)?)
            }
            (Format::Lz4, frames) => {
                let mut decoder = match frames {
                    Some(Frames::Lz4(decoder)) => decoder,
                    _ => lz4::Decoder::default(),
                };
                let begun = decoder.begin(&index.start(&unit)?, &self.stored);
                begun
                    .filter(|()| decoder.len() == unit.len)
                    .ok_or_else(|| corrupt(format.unit_name(), bytes.start))?;
                Frames::Lz4(decoder)
            }
            #[allow(unreachable_patterns)]
            _ => return Err(format.not_compiled_in()),
        });
        (self.bit, self.at, self.floor, self.first) = (0, 0, 0, 0);
        self.end = unit.offset;
        if !is_checked && unit.len <= WHOLE {
            let len = self.out.len().max(unit.len as usize);
            self.out.resize(len, 0);
            while self.end < unit.end() {
                self.go_on(source, &unit, unit.end())?;
            }
            self.prove(source, &unit, format)?;
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// Reads what is stored of a unit further on, if all that was read is used up; false at its end.
    fn more(&mut self, source: &dyn ReadAt, unit: &Unit) -> Result<bool> {
        let end = unit.bytes().end;
        if self.bit / 8 < self.stored.len() {
            return Ok(true);
        }
        let len = (end - self.behind).min(PIECE);
        self.stored.resize(len as usize, 0);
        source.read_at(self.behind, &mut self.stored)?;
        (self.behind, self.bit) = (self.behind + len, 0);
        Ok(len > 0)
    }

    /// Goes to the end of the frame or block whose content is all there, where there may be a checksum of it.
    fn prove(&mut self, source: &dyn ReadAt, unit: &Unit, format: Format) -> Result<()> {
        let damaged = || corrupt(format.unit_name(), unit.bytes().start);
        while !self.is_proved {
            self.is_proved = match &self.frames {
                Some(Frames::Zstd(_)) => self.is_over,
                #[cfg(feature = "lzma")]
                Some(Frames::Xz(decoder)) => decoder.is_over(),
                // It was decoded at once.
                Some(Frames::Lz4(_)) => true,
                None => true,
            };
            if self.is_proved {
                break;
            }
            let has_more = self.more(source, unit)?;
            let used = match self.frames.as_mut() {
                Some(Frames::Zstd(decoder)) => {
                    let step = decoder.step(&self.stored[self.bit / 8..], &mut []);
                    let step = step.map_err(|error| error.at(Place::Pos(unit.bytes().start)))?;
                    self.is_over = step.is_end;
                    step.used
                }
                #[cfg(feature = "lzma")]
                Some(Frames::Xz(decoder)) => {
                    let step = decoder.step(&self.stored[self.bit / 8..], &mut []);
                    step.map_err(|error| error.at(Place::Pos(unit.bytes().start)))?.0
                }
                _ => 0,
            };
            self.bit += 8 * used;
            // libzstd itself says no where it is asked too often in vain.
            if used == 0 && !has_more && !self.is_over {
                return Err(damaged());
            }
        }
        Ok(())
    }

    /// Takes the header and the window of a start.
    fn set(&mut self, start: &[u8]) -> Option<()> {
        let (bits, header, window) = parse_start(start)?;
        if bits > 0 {
            let mut input = Input::new(header, 0);
            self.inflate.begin_block(&mut input).ok()?;
            if input.bit() != bits || !self.inflate.is_before_symbol() {
                return None;
            }
        }
        self.out[..window.len()].copy_from_slice(&window);
        (self.at, self.first) = (window.len(), window.len());
        Some(())
    }

    /// Of a unit without a checksum of its own, which is a member: decodes it, and holds it against what the member
    /// says.
    fn check_member(&mut self, source: &dyn ReadAt) -> Result<()> {
        let Some(unit) = self.unit.take() else { return Ok(()) };
        let damaged = || corrupt("unit of a gzip file", unit.bits.start / 8);
        if unit.len > ROOM as u64 || !unit.start.is_empty() {
            return Err(damaged());
        }
        while self.end < unit.end() {
            self.go_on(source, &unit, unit.end())?;
        }
        let mut input = Input::new(&self.stored, self.bit);
        let end = self.inflate.finish(&mut input).map_err(|fault| fault.at(unit.bits.start / 8))?;
        let trailer = self.stored.get(input.byte()..).and_then(|rest| rest.get(..TRAILER));
        let mut take = Take::new(trailer.unwrap_or_default(), "gzip trailer", unit.bits.start / 8);
        let (crc, len) = (take.u32()?, take.u32()?);
        if end != Pause::End
            || self.floor != 0
            || crc != crc32(&self.out[..self.at])
            || u64::from(len) != unit.len
        {
            return Err(damaged());
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// Fills `buf` with the content from `offset` on, which is in the unit, and which it can come to.
    pub fn read(&mut self, source: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(unit) = self.unit.take() else { return Err(Error::Poisoned) };
        let (mut offset, mut buf) = (offset, buf);
        while !buf.is_empty() {
            if self.end <= offset {
                self.go_on(source, &unit, offset + buf.len() as u64)?;
                continue;
            }
            let from = self.at - (self.end - offset) as usize;
            let now = buf.len().min(self.at - from);
            let (here, rest) = buf.split_at_mut(now);
            here.copy_from_slice(&self.out[from..from + now]);
            (offset, buf) = (offset + now as u64, rest);
        }
        if let (Some(frames), true) = (&self.frames, self.end == unit.end()) {
            let format = frames.format();
            self.prove(source, &unit, format)?;
        }
        // Where something failed it stands nowhere any more.
        self.unit = Some(unit);
        Ok(())
    }

    /// Decodes on, to byte `wanted` of the content at most, as far as there is room.
    fn go_on(&mut self, source: &dyn ReadAt, unit: &Unit, wanted: u64) -> Result<()> {
        if self.at == self.out.len() {
            self.out.copy_within(self.at - WINDOW.., 0);
            let gone = self.at - WINDOW;
            self.at = WINDOW;
            self.floor = self.floor.saturating_sub(gone);
            self.first = self.first.saturating_sub(gone);
        }
        let here = unit.bits.start / 8;
        let left = usize::try_from(wanted - self.end).unwrap_or(usize::MAX);
        let end = self.out.len().min(self.at.saturating_add(left));
        if self.frames.is_some() {
            return self.go_on_frames(source, unit, end);
        }
        let mut input = Input::new(&self.stored, self.bit);
        let mut at = self.at - self.floor;
        let pause = self.inflate.run(&mut input, &mut self.out[self.floor..end], &mut at);
        let before = self.at;
        (self.bit, self.at) = (input.bit(), at + self.floor);
        self.end += (self.at - before) as u64;
        let pos = here + input.byte() as u64;
        if pause.map_err(|fault| fault.at(pos))? == Pause::End && self.at < end {
            let next = input.byte() + TRAILER;
            let rest = self.stored.get(next..).unwrap_or_default();
            let member = Member::parse(rest, here + next as u64)?;
            // The unit goes on, so that there is one.
            let member = member.ok_or_else(|| corrupt("gzip header", here + next as u64))?;
            self.bit = 8 * (next + member.len);
            self.floor = self.at;
            self.inflate.reset();
        }
        Ok(())
    }

    /// The same of a unit that is no gzip, to this place of the room at most.
    fn go_on_frames(&mut self, source: &dyn ReadAt, unit: &Unit, end: usize) -> Result<()> {
        loop {
            let has_more = self.more(source, unit)?;
            let stored = &self.stored[self.bit / 8..];
            let out = &mut self.out[self.at..end];
            let step = match self.frames.as_mut() {
                Some(Frames::Zstd(decoder)) => decoder.step(stored, out).map(|step| {
                    self.is_over = step.is_end;
                    (step.used, step.made)
                }),
                #[cfg(feature = "lzma")]
                Some(Frames::Xz(decoder)) => decoder.step(stored, out),
                Some(Frames::Lz4(decoder)) => Ok((0, decoder.step(out))),
                None => Ok((0, 0)),
            };
            let (used, made) = step.map_err(|error| error.at(Place::Pos(unit.bytes().start)))?;
            self.bit += 8 * used;
            self.at += made;
            self.end += made as u64;
            if made > 0 {
                return Ok(());
            }
            // libzstd itself says no where it is asked too often in vain.
            let may_go_on = has_more && matches!(self.frames, Some(Frames::Zstd(_)));
            if used == 0 && !may_go_on {
                let format = self.frames.as_ref().map_or(Format::Gzip, Frames::format);
                return Err(corrupt(format.unit_name(), unit.bytes().start));
            }
        }
    }
}
