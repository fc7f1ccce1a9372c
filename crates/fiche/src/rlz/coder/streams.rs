//! `rlz-zz`, `rlz-zzz` and `rlz-zz-primed`: the streams of factors, each compressed by deflate.
//!
//! # Stream
//!
//! A *stream* of a coding is a varint of its length, a varint of its stored length, and its stored bytes:
//! raw deflate where these are fewer, and otherwise the stream itself.
//!
//! # rlz-zz
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | factors | how many, at least 1 |
//! | stream | lengths | a varint for each factor; 0 for a literal |
//! | stream | offsets | 4 bytes for each factor: where in the dictionary it starts; of a literal, the byte |
//!
//! # rlz-zz-primed
//!
//! As `rlz-zz`, but each stream is deflated as if it came behind bytes that the block's model
//! holds: the model is two strings, the one before lengths and the one before offsets.
//!
//! # rlz-zzz
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | least | the shortest factor, 1 to 64 |
//! | stream | lengths | varints up to the end of the stream: one of at least `least` is that of a factor; one below it, of a run of so many literals; 0 says that the next varint is the length of a run |
//! | stream | offsets | 4 bytes for each factor |
//! | stream | literals | the bytes of the runs, one after the other |

use crate::codec::Codec;
use crate::processor::prefetch;
use crate::rlz::Dictionary;
use crate::rlz::coder::lens::Found;
use crate::rlz::coder::{Primes, Scratch, Shared, copy, lens};
use crate::rlz::matcher::Factor;
use crate::wire::{Put, Take, load_u32};

/// The largest least length of a factor.
pub(crate) const MAX_MIN_LITERAL: u32 = 64;
/// Factors whose dictionary lines are asked for before they are copied.
const AHEAD: usize = 16;

/// Appends a stream, deflated behind `prime` if there is one.
fn put_stream(
    bytes: &[u8],
    prime: Option<&[u8]>,
    level: i32,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) {
    out.put_varint(bytes.len() as u64);
    let mut room = std::mem::take(&mut scratch.room);
    room.resize(bytes.len().saturating_sub(1), 0);
    let len = match prime {
        _ if room.is_empty() => None,
        Some(prime) => scratch.primed.deflate(level, prime, bytes, &mut room),
        None => {
            let dst = room.as_mut_slice().into();
            Codec::Deflate.compress(level, bytes.into(), dst, &mut scratch.codec).ok().flatten()
        }
    };
    out.put_string(len.map_or(bytes, |len| &room[..len]));
    scratch.room = room;
}

/// A stream as it is stored.
struct Stream<'a> {
    len: usize,
    stored: &'a [u8],
    prime: Option<&'a [u8]>,
}

impl<'a> Stream<'a> {
    /// Takes a stream of at most `limit` bytes.
    fn take(take: &mut Take<'a>, prime: Option<&'a [u8]>, limit: usize) -> Option<Stream<'a>> {
        let (len, stored) = (take.count(limit as u64).ok()?, take.string().ok()?);
        Some(Stream { len, stored, prime })
    }

    /// Its first bytes, and no more of it is looked at.
    fn front(&self, len: usize, bytes: &mut Vec<u8>, scratch: &mut Scratch) -> Option<()> {
        bytes.clear();
        if self.stored.len() == self.len {
            bytes.extend_from_slice(self.stored.get(..len)?);
            return Some(());
        }
        bytes.resize(len, 0);
        let (is_all, codec) = (len == self.len, Codec::Deflate);
        match self.prime {
            Some(prime) => scratch.primed.inflate(prime, self.stored, bytes, is_all),
            None => {
                let (stored, dst) = (self.stored.into(), bytes.as_mut_slice().into());
                match is_all {
                    true => codec.decompress(stored, dst, &mut scratch.codec).ok(),
                    false => codec.decompress_front(stored, self.len, dst, &mut scratch.codec).ok(),
                }
            }
        }
    }

    fn all(&self, bytes: &mut Vec<u8>, scratch: &mut Scratch) -> Option<()> {
        self.front(self.len, bytes, scratch)
    }

    /// Calls `done` with as many first bytes as `share` of all of it are likely to be, and then with all of it,
    /// until there is an answer.
    fn enough<T>(
        &self,
        (share, of): (usize, usize),
        bytes: &mut Vec<u8>,
        scratch: &mut Scratch,
        mut done: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let guess = (self.len * share / of + self.len / 16 + 16).min(self.len);
        self.front(guess, bytes, scratch)?;
        match done(bytes) {
            None if guess < self.len => {
                self.all(bytes, scratch)?;
                done(bytes)
            }
            found => found,
        }
    }
}

pub(super) fn encode_zz(
    factors: &[Factor],
    primes: Option<&Primes>,
    level: i32,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) {
    out.put_varint(factors.len() as u64);
    let mut stream = std::mem::take(&mut scratch.streams[0]);
    stream.clear();
    lens::put(factors.iter().map(|f| f.len), &mut stream);
    put_stream(&stream, primes.map(|p| p.lens.as_slice()), level, out, scratch);
    stream.clear();
    factors.iter().for_each(|f| stream.put_u32(f.offset));
    put_stream(&stream, primes.map(|p| p.offsets.as_slice()), level, out, scratch);
    scratch.streams[0] = stream;
}

pub(super) fn decode_zz(
    shared: Shared<'_>,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let (dictionary, primes) = (shared.dictionary, shared.primes());
    let mut take = Take::new(stored, "factors", 0);
    let count = take.count(block_len as u64).ok()?;
    let mut streams = std::mem::take(&mut scratch.streams);
    let mut factors = std::mem::take(&mut scratch.lens);
    let result = (|| {
        let [lens, offsets, _] = &mut streams;
        let stored_lens = Stream::take(&mut take, primes.map(|p| p.lens.as_slice()), 5 * count)?;
        let prime = primes.map(|p| p.offsets.as_slice());
        let stored_offsets = Stream::take(&mut take, prime, 4 * count)?;
        if take.remaining() > 0 || stored_offsets.len != 4 * count {
            return None;
        }
        let end = start + dst.len();
        if end < block_len {
            stored_lens.enough((end, block_len), lens, scratch, |lens| {
                lens::take_until(lens, &Found::BEGINNING, count, end, &mut factors)
            })?;
        } else {
            stored_lens.all(lens, scratch)?;
            let used = lens::take(lens, count, &mut factors)?;
            if used != lens.len() || lens::text_len(&factors) != block_len as u64 {
                return None;
            }
        }
        stored_offsets.front(4 * factors.len(), offsets, scratch)?;
        copy::copy(dictionary, &factors, |i| load_u32(offsets, 4 * i), start, dst)
    })();
    (scratch.streams, scratch.lens) = (streams, factors);
    result
}

/// How long the block is, as far as its lengths say; at most `limit`.
pub(super) fn block_len_zz(
    primes: Option<&Primes>,
    stored: &[u8],
    limit: usize,
    scratch: &mut Scratch,
) -> Option<usize> {
    let mut take = Take::new(stored, "factors", 0);
    let count = take.count(limit as u64).ok()?;
    let mut bytes = Vec::new();
    let prime = primes.map(|p| p.lens.as_slice());
    Stream::take(&mut take, prime, 5 * count)?.all(&mut bytes, scratch)?;
    lens::take(&bytes, count, &mut scratch.lens)?;
    usize::try_from(lens::text_len(&scratch.lens)).ok()
}

/// How long the block is, as far as its lengths say; at most `limit`.
pub(super) fn block_len_zzz(stored: &[u8], limit: usize, scratch: &mut Scratch) -> Option<usize> {
    let mut take = Take::new(stored, "factors", 0);
    take.count(u64::from(MAX_MIN_LITERAL)).ok()?;
    let mut bytes = Vec::new();
    Stream::take(&mut take, None, 10 * limit)?.all(&mut bytes, scratch)?;
    lens::take_all(&bytes, &mut scratch.lens)?;
    // What a 0 stands before is a length like any other.
    usize::try_from(scratch.lens.iter().map(|&len| u64::from(len)).sum::<u64>()).ok()
}

pub(super) fn encode_zzz(
    block: &[u8],
    factors: &[Factor],
    least: u32,
    level: i32,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) {
    let mut streams = std::mem::take(&mut scratch.streams);
    let [lens, offsets, literals] = &mut streams;
    [&mut *lens, &mut *offsets, &mut *literals].into_iter().for_each(Vec::clear);
    let (mut at, mut run) = (0, 0);
    let end_run = |run: &mut usize, lens: &mut Vec<u8>| {
        if *run >= least as usize {
            lens.put_varint(0);
        }
        if *run > 0 {
            lens.put_varint(*run as u64);
        }
        *run = 0;
    };
    for factor in factors {
        let end = at + factor.text_len();
        if factor.len < least {
            literals.put(&block[at..end]);
            run += end - at;
        } else {
            end_run(&mut run, lens);
            lens.put_varint(u64::from(factor.len));
            offsets.put_u32(factor.offset);
        }
        at = end;
    }
    end_run(&mut run, lens);
    out.put_varint(u64::from(least));
    for stream in &streams {
        put_stream(stream, None, level, out, scratch);
    }
    scratch.streams = streams;
}

pub(super) fn decode_zzz(
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let mut take = Take::new(stored, "factors", 0);
    let least = take.count(u64::from(MAX_MIN_LITERAL)).ok()? as u32;
    let mut streams = std::mem::take(&mut scratch.streams);
    let mut all = std::mem::take(&mut scratch.lens);
    let result = (|| {
        let [lens, offsets, literals] = &mut streams;
        // A factor or run takes a byte of the block at least, and its length five at most.
        let stored_lens = Stream::take(&mut take, None, 10 * block_len)?;
        let stored_offsets = Stream::take(&mut take, None, 4 * block_len)?;
        let stored_literals = Stream::take(&mut take, None, block_len)?;
        if take.remaining() > 0 || least == 0 || stored_offsets.len % 4 != 0 {
            return None;
        }
        let end = start + dst.len();
        let (factors, runs) = if end < block_len {
            stored_lens.enough((end, block_len), lens, scratch, |lens| {
                lens::take_some(lens, &mut all);
                needed(&all, least, end)
            })?
        } else {
            stored_lens.all(lens, scratch)?;
            lens::take_all(lens, &mut all)?;
            (stored_offsets.len / 4, stored_literals.len)
        };
        if 4 * factors > stored_offsets.len || runs > stored_literals.len {
            return None;
        }
        stored_offsets.front(4 * factors, offsets, scratch)?;
        stored_literals.front(runs, literals, scratch)?;
        copy_runs(dictionary, (&all, offsets, literals), least, block_len, start, dst)
    })();
    (scratch.streams, scratch.lens) = (streams, all);
    result
}

/// How many factors, and how many bytes of runs, the first `end` bytes of a block are made of: of
/// the last run, all of it. `None` where the lengths end before that.
fn needed(lens: &[u32], least: u32, end: usize) -> Option<(usize, usize)> {
    let (mut at, mut factors, mut runs) = (0, 0, 0);
    let mut lens = lens.iter();
    while at < end {
        let len = *lens.next()?;
        let len = if len >= least {
            factors += 1;
            len as usize
        } else {
            let run = if len == 0 { *lens.next()? } else { len } as usize;
            runs += run;
            run
        };
        at += len;
    }
    Some((factors, runs))
}

/// Copies factors and runs of literals: the bytes of the block from `start` on, as far as `dst`
/// goes. `None` unless they make that, and all of them just the block where its end is wanted.
fn copy_runs(
    dictionary: &Dictionary,
    (lens, offsets, mut literals): (&[u32], &[u8], &[u8]),
    least: u32,
    block_len: usize,
    start: usize,
    dst: &mut [u8],
) -> Option<()> {
    let (mut at, mut factor, factors) = (0, 0, offsets.len() / 4);
    let ask = |factor: usize| {
        if factor < factors {
            prefetch(dictionary.padded(), load_u32(offsets, 4 * factor) as usize);
        }
    };
    (0..AHEAD).for_each(ask);
    let wanted = start + dst.len();
    let mut lens = lens.iter();
    while at < wanted || wanted == block_len {
        let Some(&len) = lens.next() else { break };
        let bytes = if len >= least {
            if factor == factors {
                return None;
            }
            let offset = load_u32(offsets, 4 * factor) as usize;
            factor += 1;
            ask(factor + AHEAD - 1);
            dictionary.as_bytes().get(offset..)?.get(..len as usize)?
        } else {
            let run = if len == 0 { *lens.next()? } else { len };
            let (run, rest) = literals.split_at_checked(run as usize)?;
            literals = rest;
            run
        };
        let end = at + bytes.len();
        if end > block_len || bytes.is_empty() {
            return None;
        }
        let (from, to) = (at.max(start), end.min(start + dst.len()));
        if from < to {
            dst[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
        }
        at = end;
    }
    let is_all = at == block_len && factor == factors && literals.is_empty();
    (if wanted < block_len { at >= wanted } else { is_all }).then_some(())
}
