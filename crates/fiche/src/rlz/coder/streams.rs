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
use crate::rlz::Dictionary;
use crate::rlz::coder::{Primes, Scratch, Shared, copy, lens};
use crate::rlz::matcher::Factor;
use crate::rlz::memory::prefetch;
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

/// Takes a stream of at most `limit` bytes.
fn take_stream(
    take: &mut Take<'_>,
    prime: Option<&[u8]>,
    limit: usize,
    bytes: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Option<()> {
    let len = take.count(limit as u64).ok()?;
    let stored = take.string().ok()?;
    bytes.clear();
    if stored.len() == len {
        bytes.extend_from_slice(stored);
        return Some(());
    }
    bytes.resize(len, 0);
    match prime {
        Some(prime) => scratch.primed.inflate(prime, stored, bytes, true),
        None => {
            let dst = bytes.as_mut_slice().into();
            Codec::Deflate.decompress(stored.into(), dst, &mut scratch.codec).ok()
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
        take_stream(&mut take, primes.map(|p| p.lens.as_slice()), 5 * count, lens, scratch)?;
        take_stream(&mut take, primes.map(|p| p.offsets.as_slice()), 4 * count, offsets, scratch)?;
        let used = lens::take(lens, count, &mut factors)?;
        let is_whole = take.remaining() == 0
            && used == lens.len()
            && offsets.len() == 4 * count
            && lens::text_len(&factors) == block_len as u64;
        if !is_whole {
            return None;
        }
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
    take_stream(&mut take, prime, 5 * count, &mut bytes, scratch)?;
    lens::take(&bytes, count, &mut scratch.lens)?;
    usize::try_from(lens::text_len(&scratch.lens)).ok()
}

/// How long the block is, as far as its lengths say; at most `limit`.
pub(super) fn block_len_zzz(stored: &[u8], limit: usize, scratch: &mut Scratch) -> Option<usize> {
    let mut take = Take::new(stored, "factors", 0);
    take.count(u64::from(MAX_MIN_LITERAL)).ok()?;
    let mut bytes = Vec::new();
    take_stream(&mut take, None, 10 * limit, &mut bytes, scratch)?;
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
        take_stream(&mut take, None, 10 * block_len, lens, scratch)?;
        take_stream(&mut take, None, 4 * block_len, offsets, scratch)?;
        take_stream(&mut take, None, block_len, literals, scratch)?;
        if take.remaining() > 0 || least == 0 || offsets.len() % 4 != 0 {
            return None;
        }
        lens::take_all(lens, &mut all)?;
        copy_runs(dictionary, (&all, offsets, literals), least, block_len, start, dst)
    })();
    (scratch.streams, scratch.lens) = (streams, all);
    result
}

/// Copies factors and runs of literals: the bytes of the block from `start` on, as far as `dst`
/// goes. `None` unless all of them make just the block.
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
    let mut lens = lens.iter();
    while let Some(&len) = lens.next() {
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
    (at == block_len && factor == factors && literals.is_empty()).then_some(())
}
