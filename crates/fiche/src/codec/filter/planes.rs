//! Elements to planes of bytes or bits, and back.
//!
//! Of sixteen elements of `width` bytes, to interleave the first half of all bytes with the second doubles the place of each, modulo their number less one; four times, and a place is sixteen times
//! what it was: byte `k` of element `e`, at `width * e + k`, is at `16 * k + e`, in the plane of its kind. The way back is to multiply by the width, which as a power of two is as many
//! doublings, or to halve four times. Where the width is odd, 32 elements are taken and five doublings, so that halves are of whole rows of sixteen bytes.
//!
//! Bits then need no more than that: eight bytes in a plane are an element again, and in the rows of its planes eight bits change places with those of eight rows.

use std::array;

use super::lanes::Lanes;

/// Bytes that are moved at once.
const ROW: usize = 16;

/// The most elements that it takes to have halves of whole rows.
const MOST: usize = 2 * ROW;

/// Bytes of elements that wait for their bits to be moved: of the longest, 128 elements.
const WAITING: usize = 8192;

type Row = [u8; ROW];

fn row(bytes: &[u8], at: usize) -> &Row {
    bytes[at..].first_chunk().expect("a row is there")
}

fn row_mut(bytes: &mut [u8], at: usize) -> &mut Row {
    bytes[at..].first_chunk_mut().expect("a row is there")
}

/// Whole elements to planes that begin `apart` bytes from each other.
pub(super) fn shuffle<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8], apart: usize) {
    let whole = src.len() / width / MOST * MOST;
    let (many, rest) = src.split_at(whole * width);
    match width {
        1 => dst[..whole].copy_from_slice(many),
        2 => shuffle_in_registers::<L, 2, 2>(many, dst, apart),
        3 => shuffle_in_registers::<L, 3, 6>(many, dst, apart),
        4 => shuffle_in_registers::<L, 4, 4>(many, dst, apart),
        6 => shuffle_in_registers::<L, 6, 6>(many, dst, apart),
        8 => shuffle_in_registers::<L, 8, 8>(many, dst, apart),
        12 => shuffle_in_registers::<L, 12, 12>(many, dst, apart),
        _ => shuffle_in_memory::<L>(width, many, dst, apart),
    }
    if !rest.is_empty() {
        let (mut elements, mut planes) = ([0; 64 * MOST], [0; 64 * MOST]);
        elements[..rest.len()].copy_from_slice(rest);
        shuffle::<L>(width, &elements[..MOST * width], &mut planes, MOST);
        let count = rest.len() / width;
        for (k, plane) in planes.chunks_exact(MOST).take(width).enumerate() {
            dst[k * apart + whole..][..count].copy_from_slice(&plane[..count]);
        }
    }
}

/// The way back.
pub(super) fn unshuffle<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8], apart: usize) {
    let whole = dst.len() / width / MOST * MOST;
    let (many, rest) = dst.split_at_mut(whole * width);
    match width {
        1 => many.copy_from_slice(&src[..whole]),
        2 => unshuffle_in_registers::<L, 2, 2>(src, many, apart),
        3 => unshuffle_in_registers::<L, 3, 6>(src, many, apart),
        4 => unshuffle_in_registers::<L, 4, 4>(src, many, apart),
        6 => unshuffle_in_registers::<L, 6, 6>(src, many, apart),
        8 => unshuffle_in_registers::<L, 8, 8>(src, many, apart),
        12 => unshuffle_in_registers::<L, 12, 12>(src, many, apart),
        _ => unshuffle_in_memory::<L>(width, src, many, apart),
    }
    if !rest.is_empty() {
        let (mut elements, mut planes) = ([0; 64 * MOST], [0; 64 * MOST]);
        let count = rest.len() / width;
        for (k, plane) in planes.chunks_exact_mut(MOST).take(width).enumerate() {
            plane[..count].copy_from_slice(&src[k * apart + whole..][..count]);
        }
        unshuffle::<L>(width, &planes, &mut elements[..MOST * width], MOST);
        rest.copy_from_slice(&elements[..rest.len()]);
    }
}

/// The halves of all bytes in turn.
#[inline(always)]
fn interleaved<L: Lanes, const R: usize>(rows: [L; R]) -> [L; R] {
    array::from_fn(|i| rows[i / 2].zip(rows[R / 2 + i / 2])[i % 2])
}

/// The even bytes of all, then the odd ones.
#[inline(always)]
fn parted<L: Lanes, const R: usize>(rows: [L; R]) -> [L; R] {
    array::from_fn(|i| {
        let first = i % (R / 2) * 2;
        rows[first].unzip(rows[first + 1])[i / (R / 2)]
    })
}

/// Rows of elements of `W` bytes, an even number of them, to those of their planes.
#[inline(always)]
fn planes<L: Lanes, const W: usize, const R: usize>(elements: [L; R]) -> [L; R] {
    (0..(ROW * R / W).ilog2()).fold(elements, |rows, _| interleaved(rows))
}

#[inline(always)]
fn elements<L: Lanes, const W: usize, const R: usize>(planes: [L; R]) -> [L; R] {
    if W.is_power_of_two() {
        (0..W.ilog2()).fold(planes, |rows, _| interleaved(rows))
    } else {
        (0..(ROW * R / W).ilog2()).fold(planes, |rows, _| parted(rows))
    }
}

/// Bit `i` of row `j` from bit `j` of row `i`, in each byte.
#[inline(always)]
fn transposed<L: Lanes>(mut rows: [L; 8]) -> [L; 8] {
    for i in [0, 1, 2, 3] {
        [rows[i], rows[i + 4]] = rows[i].exchange::<4>(rows[i + 4], 0b0000_1111);
    }
    for i in [0, 1, 4, 5] {
        [rows[i], rows[i + 2]] = rows[i].exchange::<2>(rows[i + 2], 0b0011_0011);
    }
    for i in [0, 2, 4, 6] {
        [rows[i], rows[i + 1]] = rows[i].exchange::<1>(rows[i + 1], 0b0101_0101);
    }
    rows
}

fn shuffle_in_registers<L: Lanes, const W: usize, const R: usize>(
    src: &[u8],
    dst: &mut [u8],
    apart: usize,
) {
    for (i, rows) in src.as_chunks().0.as_chunks::<R>().0.iter().enumerate() {
        let rows = planes::<L, W, R>(rows.each_ref().map(L::load));
        for (k, lanes) in rows.into_iter().enumerate() {
            lanes.store(row_mut(dst, place::<W, R>(i, k, apart)));
        }
    }
}

fn unshuffle_in_registers<L: Lanes, const W: usize, const R: usize>(
    src: &[u8],
    dst: &mut [u8],
    apart: usize,
) {
    for (i, rows) in dst.as_chunks_mut().0.as_chunks_mut::<R>().0.iter_mut().enumerate() {
        let from = array::from_fn(|k| L::load(row(src, place::<W, R>(i, k, apart))));
        for (lanes, row) in elements::<L, W, R>(from).into_iter().zip(rows) {
            lanes.store(row);
        }
    }
}

/// Where row `k` of the planes lies for the elements that are moved as number `i`.
#[inline(always)]
fn place<const W: usize, const R: usize>(i: usize, k: usize, apart: usize) -> usize {
    let each = R / W;
    k / each * apart + (i * each + k % each) * ROW
}

fn shuffle_in_memory<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8], apart: usize) {
    let (mut from, mut to) = (&mut [[0; ROW]; 128][..2 * width], &mut [[0; ROW]; 128][..2 * width]);
    for (i, elements) in src.chunks_exact(MOST * width).enumerate() {
        from.as_flattened_mut().copy_from_slice(elements);
        for _ in 0..MOST.ilog2() {
            let (first, second) = from.split_at(width);
            for ((first, second), to) in first.iter().zip(second).zip(to.as_chunks_mut::<2>().0) {
                let both = L::load(first).zip(L::load(second));
                both[0].store(&mut to[0]);
                both[1].store(&mut to[1]);
            }
            std::mem::swap(&mut from, &mut to);
        }
        for (k, plane) in from.as_flattened().chunks_exact(MOST).enumerate() {
            dst[k * apart + MOST * i..][..MOST].copy_from_slice(plane);
        }
    }
}

fn unshuffle_in_memory<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8], apart: usize) {
    let (mut from, mut to) = (&mut [[0; ROW]; 128][..2 * width], &mut [[0; ROW]; 128][..2 * width]);
    for (i, elements) in dst.chunks_exact_mut(MOST * width).enumerate() {
        for (k, plane) in from.as_flattened_mut().chunks_exact_mut(MOST).enumerate() {
            plane.copy_from_slice(&src[k * apart + MOST * i..][..MOST]);
        }
        for _ in 0..MOST.ilog2() {
            let (even, odd) = to.split_at_mut(width);
            for ((even, odd), from) in even.iter_mut().zip(odd).zip(from.as_chunks::<2>().0) {
                let both = L::load(&from[0]).unzip(L::load(&from[1]));
                both[0].store(even);
                both[1].store(odd);
            }
            std::mem::swap(&mut from, &mut to);
        }
        elements.copy_from_slice(from.as_flattened());
    }
}

/// How many elements wait at once, a multiple of 128.
fn waiting(width: usize) -> usize {
    WAITING / (8 * ROW * width) * (8 * ROW)
}

/// Elements, a multiple of eight, to planes of bits.
pub(super) fn bitshuffle<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8]) {
    let len = src.len() / width / 8;
    let mut bytes = [0; WAITING];
    for (i, elements) in src.chunks(waiting(width) * width).enumerate() {
        let count = elements.len() / width;
        let apart = count.next_multiple_of(8 * ROW);
        shuffle::<L>(width, elements, &mut bytes, apart);
        for k in 0..width {
            for at in (0..count).step_by(8 * ROW) {
                let plane = &bytes[k * apart + at..][..8 * ROW];
                let eights = planes::<L, 8, 8>(array::from_fn(|r| L::load(row(plane, ROW * r))));
                let to = 8 * k * len + (i * waiting(width) + at) / 8;
                for (j, bits) in transposed::<L>(eights).into_iter().enumerate() {
                    let dst = &mut dst[to + j * len..];
                    match dst[..ROW.min((count - at) / 8)].first_chunk_mut() {
                        Some(row) => bits.store(row),
                        None => part(bits, &mut dst[..(count - at) / 8]),
                    }
                }
            }
        }
    }
}

/// The first bytes of a row.
fn part<L: Lanes>(lanes: L, dst: &mut [u8]) {
    let mut row = [0; ROW];
    lanes.store(&mut row);
    dst.copy_from_slice(&row[..dst.len()]);
}

/// The way back.
pub(super) fn unbitshuffle<L: Lanes>(width: usize, src: &[u8], dst: &mut [u8]) {
    let len = dst.len() / width / 8;
    let mut bytes = [0; WAITING];
    for (i, elements_of) in dst.chunks_mut(waiting(width) * width).enumerate() {
        let count = elements_of.len() / width;
        let apart = count.next_multiple_of(8 * ROW);
        for k in 0..width {
            for at in (0..count).step_by(8 * ROW) {
                let from = 8 * k * len + (i * waiting(width) + at) / 8;
                let bits = array::from_fn(|j| {
                    let src = &src[from + j * len..];
                    let src = &src[..ROW.min((count - at) / 8)];
                    match src.first_chunk() {
                        Some(row) => L::load(row),
                        None => {
                            let mut row = [0; ROW];
                            row[..src.len()].copy_from_slice(src);
                            L::load(&row)
                        }
                    }
                });
                let plane = &mut bytes[k * apart + at..][..8 * ROW];
                let eights = transposed::<L>(bits);
                for (r, bytes) in elements::<L, 8, 8>(eights).into_iter().enumerate() {
                    bytes.store(row_mut(plane, ROW * r));
                }
            }
        }
        unshuffle::<L>(width, &bytes, elements_of, apart);
    }
}
