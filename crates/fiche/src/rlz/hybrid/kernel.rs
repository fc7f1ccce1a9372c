//! The loops in which decoding spends its time, without a check where one before them suffices. What
//! they leave over, and what they refuse, the loops of `decode` do, which are their safe twins.
#![allow(unsafe_code)]

use std::hint::select_unpredictable;

use super::codes::{
    COMMAND_BITS, COMMANDS, CONTEXTS, FAR, LENGTH_BITS, LITERAL_BITS, REPEATED, Tables,
};
use super::fast::{FIRST_DISTANCE, Fields, Progress};
use super::tokens::{Entry, NEAR_BITS, TOKENS};
use super::{REPEATS, Sequence};
use crate::model::{LONG, LONGEST, MARGIN, Padded};
use crate::processor::prefetch;

/// Where the streams of sequences are, in bits from the front of the padded bytes.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub commands: usize,
    pub lengths: usize,
    pub extra: usize,
    /// Length of the dictionary and what of the block is before the next literals.
    pub behind: u32,
}

/// Runs the loop compiled for what this processor has.
macro_rules! for_this_processor {
    ($name:ident, $inner:ident, ($($arg:ident: $type:ty),*) -> $out:ty) => {
        #[inline]
        pub(super) fn $name($($arg: $type),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
                fn with_bmi2($($arg: $type),*) -> $out {
                    $inner($($arg),*)
                }
                if is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("avx2")
                {
                    // SAFETY: the processor has what it was compiled for.
                    return unsafe { with_bmi2($($arg),*) };
                }
            }
            $inner($($arg),*)
        }
    };
}

/// Set above the bits that are used of a word, to tell how many those were.
pub(super) const MARK: u64 = 1 << 63;

for_this_processor!(read, read_and_ask, (
    padded: &Padded,
    tables: &Tables,
    dictionary: &[u8],
    stop: u32,
    places: &mut Places,
    sequences: &mut [Sequence]
) -> usize);

for_this_processor!(read_only, read_only_here, (
    padded: &Padded,
    tables: &Tables,
    stop: u32,
    places: &mut Places,
    sequences: &mut [Sequence]
) -> usize);

/// Eight bytes at `at`, the first the lowest.
///
/// # Safety
/// There are eight bytes.
#[inline(always)]
unsafe fn load(bytes: &[u8], at: usize) -> u64 {
    debug_assert!(at + 8 <= bytes.len());
    // SAFETY: as asked for.
    u64::from_le(unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

/// The next 57 bits from this one on, marked.
///
/// # Safety
/// There are eight bytes from that of the first on.
#[inline(always)]
unsafe fn forward(bytes: &[u8], at: usize) -> u64 {
    // SAFETY: as asked for.
    unsafe { load(bytes, at / 8) >> (at & 7) | MARK }
}

/// The same from this one down.
///
/// # Safety
/// There are eight bytes from that of the first down.
#[inline(always)]
unsafe fn backward(bytes: &[u8], at: usize) -> u64 {
    let above = at + 7;
    // SAFETY: as asked for.
    unsafe { load(bytes, above / 8 - 8).swap_bytes() >> (!above & 7) | MARK }
}

/// The lowest bits of a word, so many; at most 31.
#[inline(always)]
fn lowest(word: u64, bits: u8) -> u32 {
    // SAFETY: in tables that were made for a model there are no more.
    unsafe { std::hint::assert_unchecked(bits < 32) };
    (word & !(u64::MAX << bits)) as u32
}

/// The next literal of a stream, from its next bits; `next` is where the table starts that it
/// is found in.
#[inline(always)]
fn step(tables: &Tables, word: &mut u64, next: &mut usize) -> u8 {
    let index = *next | (*word % (1 << LITERAL_BITS)) as usize;
    let mut entry = u32::from(tables.literals[index % (CONTEXTS << LITERAL_BITS)]);
    if entry == LONG {
        entry = tables.find_long(2, *next >> LITERAL_BITS, *word);
    }
    *word >>= entry & 63;
    *next = ((entry & 0xC0) as usize) << (LITERAL_BITS - 6);
    (entry >> 8) as u8
}

/// Fills sequences from number `REPEATS` on, four at a time, as long as none of the streams can
/// leave the bytes and `behind` is less than `stop`. Returns the number of the first that is not.
/// Asks for what they copy out of the dictionary.
#[inline(always)]
fn read_and_ask(
    padded: &Padded,
    tables: &Tables,
    dictionary: &[u8],
    stop: u32,
    places: &mut Places,
    sequences: &mut [Sequence],
) -> usize {
    let ask = |value| prefetch(dictionary, value);
    read_here(padded, tables, stop, places, sequences, ask)
}

/// The same, without asking.
#[inline(always)]
fn read_only_here(
    padded: &Padded,
    tables: &Tables,
    stop: u32,
    places: &mut Places,
    sequences: &mut [Sequence],
) -> usize {
    read_here(padded, tables, stop, places, sequences, |_| ())
}

#[inline(always)]
fn read_here(
    padded: &Padded,
    tables: &Tables,
    stop: u32,
    places: &mut Places,
    sequences: &mut [Sequence],
    ask: impl Fn(usize),
) -> usize {
    // Four sequences move a stream by no more than this.
    const { assert!(4 * 56 / 8 + 8 <= MARGIN && 4 * LONGEST <= 56) };
    let bytes = padded.bytes();
    let (low, high) = (8 * MARGIN, 8 * (bytes.len() - MARGIN));
    let Places { mut commands, mut lengths, mut extra, mut behind } = *places;
    let mut i = REPEATS;
    while i + 4 <= sequences.len() {
        let is_inside = |at: usize| (low..=high).contains(&at);
        if behind >= stop || !is_inside(commands) || !is_inside(lengths) || !is_inside(extra) {
            break;
        }
        // SAFETY: a margin before and behind what is inside.
        let (mut word, mut length_word) =
            unsafe { (forward(bytes, commands), backward(bytes, lengths)) };
        // SAFETY: there are four from number `i` on.
        let mut slot = unsafe { sequences.as_mut_ptr().add(i) };
        for _ in 0..4 {
            let mut entry = u32::from(tables.codes[(word % (1 << COMMAND_BITS)) as usize]);
            if entry == LONG {
                entry = tables.find_long(0, 0, word);
            }
            word >>= entry & 63;
            let command = &tables.commands[(entry >> 6) as usize % COMMANDS];
            let index = usize::from(command.table) + (length_word % (1 << LENGTH_BITS)) as usize;
            // SAFETY: it is one of the tables.
            let mut entry = unsafe { *tables.lengths.get_unchecked(index) };
            if entry == LONG {
                let group = usize::from(command.table >> LENGTH_BITS);
                entry = tables.find_long(1, group, length_word);
            }
            length_word >>= entry & 63;
            // SAFETY: at most three sequences, or 21 bytes, behind what is inside.
            let mut more = unsafe { load(bytes, extra / 8) } >> (extra & 7);
            let length_bits = (entry >> 8) as u8 & 31;
            let value = command.first + lowest(more, command.bits);
            ask(value as usize);
            more >>= command.bits & 63;
            let literals = u32::from(command.literals) + lowest(more, command.literal_bits);
            more >>= command.literal_bits & 63;
            let len = (entry >> 16) + lowest(more, length_bits);
            extra += usize::from(command.both_bits) + usize::from(length_bits);
            behind = behind.wrapping_add(literals);
            // SAFETY: one of the four before it, which there are.
            let earlier = unsafe { (*slot.offset(command.back.into())).distance };
            let fresh = behind.wrapping_sub(value);
            let fresh = select_unpredictable(command.kind == FAR, fresh, value);
            let distance = select_unpredictable(command.kind == REPEATED, earlier, fresh);
            behind = behind.wrapping_add(len);
            // SAFETY: one of the four.
            unsafe {
                *slot = Sequence { literals: literals as u16, len: len as u16, distance };
                slot = slot.add(1);
            }
        }
        commands += word.leading_zeros() as usize;
        lengths = lengths.wrapping_sub(length_word.leading_zeros() as usize);
        i += 4;
    }
    *places = Places { commands, lengths, extra, behind };
    i
}

for_this_processor!(literals, literals_here, (
    padded: &Padded,
    tables: &Tables,
    streams: &mut [Stream; 4],
    out: &mut [u8],
    chunk: usize,
    most: usize
) -> usize);

/// A stream of literals: its next bit, counted from the front of the padded bytes (backward, how many
/// bits are before it), and the table of the next literal.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub at: usize,
    pub table: u16,
}

/// Decodes literals of four streams by four, the second and fourth backward, each into its own of
/// four chunks of `out`, of which the last may be shorter, until that is full or there are `most`. Returns how many of each.
#[inline(always)]
fn literals_here(
    padded: &Padded,
    tables: &Tables,
    streams: &mut [Stream; 4],
    out: &mut [u8],
    chunk: usize,
    most: usize,
) -> usize {
    let bytes = padded.bytes();
    let (low, high) = (8 * MARGIN, 8 * (bytes.len() - MARGIN));
    let Some(count) = out.len().checked_sub(3 * chunk).map(|last| last.min(chunk).min(most)) else {
        return 0;
    };
    let mut at = streams.map(|stream| stream.at);
    // Where the table starts in which the next literal is found.
    let [mut next0, mut next1, mut next2, mut next3] =
        streams.map(|stream| usize::from(stream.table) << LITERAL_BITS);
    let mut i = 0;
    while i + 4 <= count {
        if at.iter().any(|at| !(low..=high).contains(at)) {
            break;
        }
        // SAFETY: a margin before and behind what is inside.
        let (mut word0, mut word1, mut word2, mut word3) = unsafe {
            let pair = |k: usize| (forward(bytes, at[k]), backward(bytes, at[k + 1]));
            let ((word0, word1), (word2, word3)) = (pair(0), pair(2));
            (word0, word1, word2, word3)
        };
        for k in i..i + 4 {
            // SAFETY: `k < count`, which is `chunk` at most and what the last chunk has.
            unsafe {
                *out.get_unchecked_mut(k) = step(tables, &mut word0, &mut next0);
                *out.get_unchecked_mut(k + chunk) = step(tables, &mut word1, &mut next1);
                *out.get_unchecked_mut(k + 2 * chunk) = step(tables, &mut word2, &mut next2);
                *out.get_unchecked_mut(k + 3 * chunk) = step(tables, &mut word3, &mut next3);
            }
        }
        let used = [word0, word1, word2, word3].map(|word| word.leading_zeros() as usize);
        at = [at[0] + used[0], at[1] - used[1], at[2] + used[2], at[3] - used[3]];
        i += 4;
    }
    let next = [next0, next1, next2, next3];
    for ((stream, at), next) in streams.iter_mut().zip(at).zip(next) {
        *stream = Stream { at, table: (next >> LITERAL_BITS) as u16 };
    }
    i
}

for_this_processor!(pair, pair_here, (
    padded: &Padded,
    tables: &Tables,
    streams: &mut [Stream; 2],
    out: &mut [u8],
    chunk: usize,
    most: usize
) -> usize);

/// As [`literals`], of two streams, the second backward.
#[inline(always)]
fn pair_here(
    padded: &Padded,
    tables: &Tables,
    streams: &mut [Stream; 2],
    out: &mut [u8],
    chunk: usize,
    most: usize,
) -> usize {
    let bytes = padded.bytes();
    let (low, high) = (8 * MARGIN, 8 * (bytes.len() - MARGIN));
    let Some(count) = out.len().checked_sub(chunk).map(|last| last.min(chunk).min(most)) else {
        return 0;
    };
    let mut at = streams.map(|stream| stream.at);
    let [mut next0, mut next1] = streams.map(|stream| usize::from(stream.table) << LITERAL_BITS);
    let mut i = 0;
    while i + 4 <= count {
        if at.iter().any(|at| !(low..=high).contains(at)) {
            break;
        }
        // SAFETY: a margin before and behind what is inside.
        let (mut word0, mut word1) = unsafe { (forward(bytes, at[0]), backward(bytes, at[1])) };
        for k in i..i + 4 {
            // SAFETY: `k < count`, which is `chunk` at most and what the other chunk has.
            unsafe {
                *out.get_unchecked_mut(k) = step(tables, &mut word0, &mut next0);
                *out.get_unchecked_mut(k + chunk) = step(tables, &mut word1, &mut next1);
            }
        }
        at[0] += word0.leading_zeros() as usize;
        at[1] -= word1.leading_zeros() as usize;
        i += 4;
    }
    for ((stream, at), next) in streams.iter_mut().zip(at).zip([next0, next1]) {
        *stream = Stream { at, table: (next >> LITERAL_BITS) as u16 };
    }
    i
}

/// Bytes that are copied at once.
pub(super) const STRIDE: usize = 32;
const LITERAL_STRIDE: usize = 16;

for_this_processor!(copy, copy_here, (
    sequences: &[Sequence],
    dictionary: &[u8],
    literals: &[u8],
    dst: &mut [u8],
    at: &mut usize,
    used: &mut usize
) -> usize);

/// Copies sequences, as long as there is room for more than they need, and none leads outside.
/// Returns how many. `dictionary` has zeros behind it, [`PADDING`](crate::rlz::dictionary::PADDING).
#[inline(always)]
fn copy_here(
    sequences: &[Sequence],
    dictionary: &[u8],
    literals: &[u8],
    dst: &mut [u8],
    at: &mut usize,
    used: &mut usize,
) -> usize {
    const { assert!(2 * STRIDE <= crate::rlz::dictionary::PADDING) };
    let dictionary_len = dictionary.len() - crate::rlz::dictionary::PADDING;
    // So much may be written and read without looking: more than literals and a match of a stride.
    let Some(room) = dst.len().checked_sub(3 * STRIDE) else { return 0 };
    let Some(supply) = literals.len().checked_sub(STRIDE) else { return 0 };
    let (mut to, mut from_literal) = (*at, *used);
    let out = dst.as_mut_ptr();
    let mut done = 0;
    for sequence in sequences {
        let (run, len) = (usize::from(sequence.literals), usize::from(sequence.len));
        let distance = sequence.distance as usize;
        if to + run + len > room || from_literal + run > supply {
            break;
        }
        let place = to + run;
        // Counted from the front of the dictionary, with the block behind it.
        let from = (dictionary_len + place).wrapping_sub(distance);
        let is_far = from < dictionary_len;
        // In the dictionary all of it, in the block where it starts.
        let need = select_unpredictable(is_far, len, 1);
        let end = dictionary_len + select_unpredictable(is_far, 0, place);
        if from >= end || end - from < need {
            break;
        }
        // SAFETY: from here on to the end of the loop: `place + len + 3 * STRIDE <= dst.len()`, and
        // `from_literal + run + STRIDE <= literals.len()`. What is copied beyond a run or
        // a match is less than two strides. A source in the dictionary is followed by `len` bytes of it
        // and two strides of zeros; one in the block by what was written before.
        unsafe {
            let source = literals.as_ptr().add(from_literal);
            copy_stride::<LITERAL_STRIDE>(source, out.add(to));
            if run > LITERAL_STRIDE {
                let mut k = LITERAL_STRIDE;
                while k < run {
                    copy_stride::<LITERAL_STRIDE>(source.add(k), out.add(to + k));
                    k += LITERAL_STRIDE;
                }
            }
            let here = out.add(place);
            let source = select_unpredictable(
                is_far,
                dictionary.as_ptr().wrapping_add(from),
                out.cast_const().wrapping_add(from.wrapping_sub(dictionary_len)),
            );
            if distance < STRIDE && !is_far {
                // It may overlap itself.
                for k in 0..len {
                    *here.add(k) = *source.add(k);
                }
            } else {
                copy_stride::<STRIDE>(source, here);
                copy_stride::<STRIDE>(source.add(STRIDE), here.add(STRIDE));
                let mut k = 2 * STRIDE;
                while k < len {
                    copy_stride::<STRIDE>(source.add(k), here.add(k));
                    k += STRIDE;
                }
            }
        }
        to += run + len;
        from_literal += run;
        done += 1;
    }
    (*at, *used) = (to, from_literal);
    done
}

for_this_processor!(tokens, tokens_here, (
    entries: &[Entry; TOKENS],
    fields: &Fields<'_>,
    dictionary: &[u8],
    dst: &mut [u8]
) -> Progress);

/// What tokens need, from where the first is read on.
#[derive(Clone, Copy)]
struct Needs {
    text: usize,
    literals: usize,
    offset: usize,
}

/// Tokens whose needs are added up before they are copied without looking.
const SOME: usize = 32;

/// Adds up what up to [`SOME`] tokens need, and asks for the lines of the dictionary that they copy. Whose offsets may not be
/// there need more than there is.
#[inline(always)]
fn needs(
    entries: &[Entry; TOKENS],
    tokens: &[u8],
    offsets: &[u8],
    dictionary: &[u8],
    needs: Needs,
) -> Needs {
    if needs.offset + 4 * SOME + 4 > offsets.len() {
        return Needs { text: usize::MAX / 2, ..needs };
    }
    // Literals, and lengths with the bytes of offsets above them.
    let (mut offset, mut literals, mut others) = (needs.offset, 0, 0);
    for &token in tokens {
        let entry = entries[usize::from(token)].word();
        // SAFETY: each token has four bytes of offsets at most, and there are four more.
        let word = unsafe { load_four(offsets, offset) };
        let bits = entry >> 16 & 0xFF;
        let from = (u64::from(word) & !(u64::MAX << (bits & 63))) as usize;
        let from = select_unpredictable(bits > u32::from(NEAR_BITS), from, 0);
        prefetch(dictionary, from);
        prefetch(dictionary, from + (entry >> 8 & 0xFF) as usize);
        literals += entry & 0xFF;
        others += entry >> 8 & 0xFF_00FF;
        offset += (entry >> 24) as usize;
    }
    const { assert!(SOME * 255 <= 0xFFFF) };
    let literals = literals as usize;
    Needs {
        text: needs.text + literals + (others & 0xFFFF) as usize,
        literals: needs.literals + literals,
        offset,
    }
}

/// Copies what the first tokens of a block say, as long as there is room for more than they need, and
/// none leads outside. `dictionary` has zeros behind it, [`PADDING`](crate::rlz::dictionary::PADDING).
#[inline(always)]
fn tokens_here(
    entries: &[Entry; TOKENS],
    fields: &Fields<'_>,
    dictionary: &[u8],
    dst: &mut [u8],
) -> Progress {
    const { assert!(2 * STRIDE <= crate::rlz::dictionary::PADDING) };
    let dictionary_len = dictionary.len() - crate::rlz::dictionary::PADDING;
    let start = dst.as_mut_ptr();
    let _ = start.expose_provenance();
    let dictionary_start = dictionary.as_ptr().expose_provenance();
    let dictionary_end = dictionary_start + dictionary_len;
    let mut out = start;
    let mut literals = fields.literals.as_ptr();
    let mut offsets = fields.offsets.as_ptr();
    // How far before where it is copied to the last match is in memory; and where the source of a
    // match ends, at most: what is copied out of the block may be anywhere that is not before its start.
    let (mut delta, mut limit) = (FIRST_DISTANCE as usize, usize::MAX);
    let mut done = 0;
    // Before the first byte of a block there is nothing that could come again.
    let is_again = |token: &u8| {
        let Entry { literals, bits, .. } = entries[usize::from(*token)];
        literals == 0 && bits == 0
    };
    if fields.tokens.first().is_none_or(is_again) {
        return Progress::default();
    }
    let mut batches = fields.tokens.chunks(SOME);
    let nothing = Needs { text: 0, literals: 0, offset: 0 };
    let look = |batch: &[u8], need| needs(entries, batch, fields.offsets, dictionary, need);
    let first = batches.next().unwrap_or_default();
    let mut next = (first, look(first, nothing));
    'all: while !next.0.is_empty() {
        let (batch, need) = next;
        let after = batches.next().unwrap_or_default();
        next = (after, look(after, need));
        let fits = need.text + 2 * STRIDE <= dst.len()
            && need.literals + LITERAL_STRIDE <= fields.literals.len()
            && need.offset + 4 <= fields.offsets.len();
        if !fits {
            break;
        }
        for (i, &token) in batch.iter().enumerate() {
            let Entry { literals: run, len, bits, bytes } = entries[usize::from(token)];
            let (run, len) = (usize::from(run), usize::from(len));
            // SAFETY: what all of the batch needs was looked for: room for two strides behind its text, a
            // stride behind its literals, and four bytes where an offset is. A source in the dictionary
            // is followed by `len` bytes of it and two strides of zeros; one in the block by what was
            // written before.
            unsafe {
                copy_stride::<LITERAL_STRIDE>(literals, out);
                if run > LITERAL_STRIDE {
                    copy_long::<LITERAL_STRIDE>(literals, out, run);
                }
                let here = out.add(run);
                let word = u32::from_le(offsets.cast::<u32>().read_unaligned());
                let value = (u64::from(word) & !(u64::MAX << (bits & 63))) as usize;
                let far = (here as usize).wrapping_sub(dictionary_start).wrapping_sub(value);
                let place = here as usize - start as usize;
                let (is_near, is_far) = (bits == NEAR_BITS, bits > NEAR_BITS);
                let new = select_unpredictable(is_far, far, delta);
                let new = select_unpredictable(is_near, value, new);
                let end = select_unpredictable(is_far, dictionary_end, limit);
                let end = select_unpredictable(is_near, usize::MAX, end);
                let source = (here as usize).wrapping_sub(new);
                let is_bad = is_near & (value.wrapping_sub(1) >= place);
                if is_bad | (source.wrapping_add(len) > end) {
                    done += i;
                    break 'all;
                }
                let from = std::ptr::with_exposed_provenance::<u8>(source);
                literals = literals.add(run);
                offsets = offsets.add(usize::from(bytes));
                out = here.add(len);
                (delta, limit) = (new, end);
                if new < STRIDE {
                    repeat(from, here, len);
                } else {
                    copy_stride::<STRIDE>(from, here);
                    if len > STRIDE {
                        copy_long::<STRIDE>(from, here, len);
                    }
                }
            }
        }
        debug_assert_eq!(out as usize - start as usize, need.text);
        debug_assert_eq!(literals as usize - fields.literals.as_ptr() as usize, need.literals);
        debug_assert_eq!(offsets as usize - fields.offsets.as_ptr() as usize, need.offset);
        done += batch.len();
    }
    let text = out as usize - start as usize;
    let distance = match limit {
        usize::MAX => delta,
        _ => delta.wrapping_sub(start as usize).wrapping_add(dictionary_start + dictionary_len),
    };
    Progress {
        tokens: done,
        text,
        literals: literals as usize - fields.literals.as_ptr() as usize,
        offset: offsets as usize - fields.offsets.as_ptr() as usize,
        distance: distance as u32,
    }
}

/// Copies what is longer than one stride.
///
/// # Safety
/// Both have as many bytes as whole strides need; they are a stride apart at least.
#[inline(never)]
unsafe fn copy_long<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    let mut k = N;
    while k < len {
        // SAFETY: as asked for.
        unsafe { copy_stride::<N>(from.add(k), to.add(k)) };
        k += N;
    }
}

/// Copies what may overlap itself: what comes first is copied again.
///
/// # Safety
/// Both have so many bytes.
#[inline(never)]
unsafe fn repeat(from: *const u8, to: *mut u8, len: usize) {
    for k in 0..len {
        // SAFETY: as asked for.
        unsafe { *to.add(k) = *from.add(k) };
    }
}

/// Four bytes at `at`, the first the lowest.
///
/// # Safety
/// There are four bytes.
#[inline(always)]
unsafe fn load_four(bytes: &[u8], at: usize) -> u32 {
    debug_assert!(at + 4 <= bytes.len());
    // SAFETY: as asked for.
    u32::from_le(unsafe { bytes.as_ptr().add(at).cast::<u32>().read_unaligned() })
}

/// # Safety
/// Both have so many bytes; they may not be the same ones.
#[inline(always)]
unsafe fn copy_stride<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: as asked for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
}
