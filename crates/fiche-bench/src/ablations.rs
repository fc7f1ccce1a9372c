//! What the thesis did to make its encoder fast, undone one by one (sections 3.2.1 and 3.2.4 of Warnke, *Page-Based Compression in the Linux Kernel*, 2017): helpers that are
//! inlined, operators in place of branches, copies of 32 bytes in place of `memcpy`, and offsets that are not checked where they cannot be too far; and what it left: lists of
//! pages that are walked for each read.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use fiche::codec::Scratch;
use fiche::codec::bewalgo::{self, Effort, Width};

use crate::coding::{Apart, CHUNK, PAGE, scatter};
use crate::engine::Result;
use crate::events::{median, speed};

/// Bytes of a unit, units of a run, and of the farthest match: those of BeWalgo64.
const UNIT: usize = 8;
const MOST: usize = 255;
const FARTHEST: usize = 65_535;

/// Where units are read.
trait Source {
    fn unit(&self, at: usize) -> u64;

    /// All bytes from a unit on that lie together.
    fn run(&self, at: usize) -> &[u8];
}

fn load(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a unit is within"))
}

struct One<'a>(&'a [u8]);

impl Source for One<'_> {
    #[inline(always)]
    fn unit(&self, at: usize) -> u64 {
        load(self.0, at * UNIT)
    }

    #[inline(always)]
    fn run(&self, at: usize) -> &[u8] {
        &self.0[at * UNIT..]
    }
}

/// An array of pages: which one has a unit, its place says.
struct Pages<'a>(&'a [&'a [u8]]);

impl Source for Pages<'_> {
    #[inline(always)]
    fn unit(&self, at: usize) -> u64 {
        load(self.0[at / (PAGE / UNIT)], at % (PAGE / UNIT) * UNIT)
    }

    #[inline(always)]
    fn run(&self, at: usize) -> &[u8] {
        &self.0[at / (PAGE / UNIT)][at % (PAGE / UNIT) * UNIT..]
    }
}

/// A list of pages that is walked from its beginning.
struct Linked<'a> {
    page: &'a [u8],
    next: Option<Box<Linked<'a>>>,
}

impl<'a> Linked<'a> {
    fn new(pages: &[&'a [u8]]) -> Option<Box<Linked<'a>>> {
        pages.iter().rev().fold(None, |next, page| Some(Box::new(Linked { page, next })))
    }

    fn find(&self, at: usize) -> &[u8] {
        let (mut node, mut at) = (self, at * UNIT);
        while at >= node.page.len() {
            at -= node.page.len();
            node = node.next.as_deref().expect("the place is within");
        }
        &node.page[at..]
    }
}

impl Source for Linked<'_> {
    #[inline(always)]
    fn unit(&self, at: usize) -> u64 {
        load(self.find(at), 0)
    }

    #[inline(always)]
    fn run(&self, at: usize) -> &[u8] {
        self.find(at)
    }
}

/// What is as the thesis has it.
#[derive(Clone, Copy)]
struct Form {
    inlined: bool,
    operators: bool,
    wild: bool,
    unchecked: bool,
}

const INLINED: u8 = 1;
const OPERATORS: u8 = 2;
const WILD: u8 = 4;
const UNCHECKED: u8 = 8;
const ALL: u8 = 15;

impl Form {
    const fn of(bits: u8) -> Form {
        Form {
            inlined: bits & INLINED != 0,
            operators: bits & OPERATORS != 0,
            wild: bits & WILD != 0,
            unchecked: bits & UNCHECKED != 0,
        }
    }
}

/// The place of a unit: all but its lowest three bytes count.
#[inline(always)]
fn place_here(unit: u64) -> usize {
    ((unit >> 24).wrapping_mul(0x9E37_79B1_85EB_CA87) >> 52) as usize
}

#[inline(never)]
fn place_called(unit: u64) -> usize {
    place_here(unit)
}

#[inline(never)]
fn unit_called(src: &impl Source, at: usize) -> u64 {
    src.unit(at)
}

/// The thesis's encoder of BeWalgo64, at acceleration 1, into a buffer in which there is room for all that may come.
struct Encoder<'a, S, const FORM: u8> {
    src: &'a S,
    out: &'a mut [u8],
    to: usize,
    /// Where the second half of a control word is, as long as it has nothing.
    open: Option<usize>,
}

impl<S: Source, const FORM: u8> Encoder<'_, S, FORM> {
    const AS: Form = Form::of(FORM);

    #[inline(always)]
    fn unit(&self, at: usize) -> u64 {
        if Self::AS.inlined { self.src.unit(at) } else { unit_called(self.src, at) }
    }

    /// The unit that was met last at the place of this one, if it is not too far.
    #[inline(always)]
    fn swap(&self, places: &mut [u32; 4096], unit: u64, at: usize) -> Option<usize> {
        let place = if Self::AS.inlined { place_here(unit) } else { place_called(unit) };
        let found = std::mem::replace(&mut places[place], at as u32) as usize;
        (Self::AS.unchecked || at - found <= FARTHEST).then_some(found)
    }

    #[inline(always)]
    fn copy(&mut self, mut start: usize, mut len: usize) {
        while len > 0 {
            let run = self.src.run(start);
            let now = len.min(run.len());
            let wild = now.next_multiple_of(32);
            let to = &mut self.out[self.to..];
            if Self::AS.wild && wild <= run.len() && wild <= to.len() {
                let (to, _) = to[..wild].as_chunks_mut::<32>();
                let (from, _) = run[..wild].as_chunks::<32>();
                to.iter_mut().zip(from).for_each(|(to, from)| {
                    *to = *from;
                    // Or it would become a call of `memcpy`.
                    black_box(());
                });
            } else {
                to[..now].copy_from_slice(&run[..now]);
            }
            self.to += now;
            start += now / UNIT;
            len -= now;
        }
    }

    #[inline(always)]
    fn triple(&mut self, start: usize, literals: usize, matched: usize, offset: usize) {
        let [low, high] = (offset as u16).to_le_bytes();
        let triple = [literals as u8, matched as u8, low, high];
        match self.open.take() {
            Some(place) => self.out[place..place + 4].copy_from_slice(&triple),
            None => {
                self.out[self.to..self.to + 4].copy_from_slice(&triple);
                self.out[self.to + 4..self.to + 8].fill(0);
                self.open = Some(self.to + 4);
                self.to += 8;
            }
        }
        self.copy(start, literals * UNIT);
    }

    #[inline(always)]
    fn put(&mut self, mut start: usize, mut literals: usize, mut matched: usize, offset: usize) {
        while literals > MOST {
            self.triple(start, MOST, 0, 0);
            (start, literals) = (start + MOST, literals - MOST);
        }
        while matched > MOST {
            self.triple(start, literals, MOST, offset);
            (start, literals, matched) = (start + literals, 0, matched - MOST);
        }
        self.triple(start, literals, matched, offset);
    }

    #[inline(always)]
    fn matched(&self, unit: u64, found: usize, at: usize, end: usize) -> usize {
        if self.unit(found) != unit {
            return 0;
        }
        let mut len = 1;
        while at + len < end && self.unit(found + len) == self.unit(at + len) {
            len += 1;
        }
        len
    }

    /// Encodes `len` bytes; returns how many came of them.
    fn run(mut self, len: usize, places: &mut [u32; 4096]) -> usize {
        places.fill(0);
        let end = len / UNIT;
        let (mut anchor, mut at) = (0, 1);
        'all: while at < end {
            let (mut slow, mut counter) = (16usize, 80usize);
            let (found, matched) = loop {
                let unit = self.unit(at);
                if let Some(found) = self.swap(places, unit, at) {
                    let matched = self.matched(unit, found, at, end);
                    if matched > 0 {
                        break (found, matched);
                    }
                }
                if Self::AS.operators {
                    let fast = usize::from(slow == 0);
                    at += 1 + fast * ((counter >> 6) - 1);
                    slow -= 1 - fast;
                    counter += fast;
                } else if slow > 0 {
                    slow -= 1;
                    at += 1;
                    // Or both would become operators.
                    black_box(());
                } else {
                    at += counter >> 6;
                    counter += 1;
                    black_box(());
                }
                if at >= end {
                    break 'all;
                }
            };
            let distance = at - found;
            let mut start = at;
            while start > anchor
                && start > distance
                && self.unit(start - 1) == self.unit(start - 1 - distance)
            {
                start -= 1;
            }
            at += matched;
            self.put(anchor, start - anchor, at - start, distance);
            anchor = at;
            while at < end {
                let unit = self.unit(at);
                let found = self.swap(places, unit, at);
                let matched = found.map_or(0, |found| self.matched(unit, found, at, end));
                let Some(found) = found.filter(|_| matched > 0) else {
                    at += 1;
                    break;
                };
                self.put(anchor, 0, matched, at - found);
                at += matched;
                anchor = at;
            }
        }
        if anchor < end {
            self.put(anchor, end - anchor, 0, 0);
        }
        let tail = len - end * UNIT;
        if tail > 0 {
            self.out[self.to..self.to + tail].copy_from_slice(&self.src.run(end)[..tail]);
        }
        self.to + tail
    }
}

/// Encodes one chunk in one way.
type Way = fn(&Chunk<'_>, &mut [u8], &mut [u32; 4096]) -> usize;

struct Chunk<'a> {
    bytes: &'a [u8],
    pages: Vec<&'a [u8]>,
    list: Box<Linked<'a>>,
}

fn encode<S: Source, const FORM: u8>(
    src: &S,
    len: usize,
    out: &mut [u8],
    places: &mut [u32; 4096],
) -> usize {
    Encoder::<S, FORM> { src, out, to: 0, open: None }.run(len, places)
}

fn one<const FORM: u8>(chunk: &Chunk<'_>, out: &mut [u8], places: &mut [u32; 4096]) -> usize {
    encode::<_, FORM>(&One(chunk.bytes), chunk.bytes.len(), out, places)
}

fn pages<const FORM: u8>(chunk: &Chunk<'_>, out: &mut [u8], places: &mut [u32; 4096]) -> usize {
    encode::<_, FORM>(&Pages(&chunk.pages), chunk.bytes.len(), out, places)
}

fn list<const FORM: u8>(chunk: &Chunk<'_>, out: &mut [u8], places: &mut [u32; 4096]) -> usize {
    encode::<_, FORM>(&*chunk.list, chunk.bytes.len(), out, places)
}

const WAYS: [(&str, Way); 10] = [
    ("all", one::<ALL>),
    ("helpers are called", one::<{ ALL - INLINED }>),
    ("branches in place of operators", one::<{ ALL - OPERATORS }>),
    ("memcpy in place of 32 bytes at a time", one::<{ ALL - WILD }>),
    ("offsets are checked", one::<{ ALL - UNCHECKED }>),
    ("none of these", one::<0>),
    ("from pages", pages::<ALL>),
    ("from pages, helpers are called", pages::<{ ALL - INLINED }>),
    ("from pages, memcpy in place of 32 bytes at a time", pages::<{ ALL - WILD }>),
    ("from a list of pages that is walked", list::<ALL>),
];

/// A line for each way through a data set, all of whose results are those of the library.
pub fn measure(data: &str, all: &[u8], rounds: usize, out: &mut String) -> Result<()> {
    let mut apart = Apart::new(all.len());
    scatter(all, &mut apart.pages_mut(all.len()));
    let apart = apart.pages(all.len());
    let chunks: Vec<Chunk<'_>> = all
        .chunks(CHUNK)
        .zip(apart.chunks(CHUNK / PAGE))
        .filter_map(|(bytes, pages)| {
            Some(Chunk { bytes, pages: pages.to_vec(), list: Linked::new(pages)? })
        })
        .collect();
    let mut room = vec![0; CHUNK + CHUNK / 64 + 64];
    let (mut places, mut scratch) = ([0; 4096], Scratch::default());
    let mut times = vec![Vec::new(); WAYS.len()];
    for round in 0..=rounds {
        for ((name, way), times) in WAYS.iter().zip(&mut times) {
            let start = Instant::now();
            for chunk in &chunks {
                let len = way(chunk, &mut room, &mut places);
                if round == 0 {
                    let mut own = vec![0; bewalgo::bound(Width::Eight, chunk.bytes.len())];
                    let (src, dst) = (chunk.bytes.into(), own.as_mut_slice().into());
                    let effort = Effort::Thesis(1);
                    let known = bewalgo::compress(Width::Eight, effort, src, dst, &mut scratch);
                    if known.is_none_or(|known| own[..known] != room[..len]) {
                        return Err(format!("{name}: other bytes than the library's").into());
                    }
                }
            }
            if round > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    let base = median(&times[0]);
    for ((name, _), times) in WAYS.iter().zip(&times) {
        let time = median(times);
        let (speed, share) = (speed(all.len(), time), base / time);
        let _ = writeln!(out, "| {data} | {name} | {speed:.0} | {share:.2} |");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_write_what_the_library_writes() {
        let mut state = 1u64;
        let mut text = Vec::new();
        while text.len() < 3 * CHUNK + 4321 {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (from, units) = ((state >> 33) as usize % (text.len() + 1), (state >> 20) as usize);
            match state >> 62 {
                0 => text.extend(state.to_be_bytes()),
                1 => text.extend([0; 8].repeat(units % 600)),
                _ => {
                    let from = from / UNIT * UNIT;
                    let end = text.len().min(from + units % 40 * UNIT);
                    text.extend_from_within(from..end);
                }
            }
        }
        for len in [0, 1, 7, 8, 9, 4096, 4099, CHUNK - 1, CHUNK, text.len()] {
            let mut out = String::new();
            measure("text", &text[..len], 0, &mut out).unwrap();
            assert_eq!(out.lines().count(), WAYS.len());
        }
    }
}
