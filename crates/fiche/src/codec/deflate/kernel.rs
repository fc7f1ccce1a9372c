//! The loop in which inflating spends its time, without a check where one before it suffices. It stops where
//! margins end and before whatever is not plain; the loop of `inflate`, its safe twin, goes on from there.
#![allow(unsafe_code)]

use super::tables::{LINK, LITERAL, SPECIAL, Tables};

/// Bytes of the stream that one turn may look at.
const IN: usize = 32;
/// Bytes that one turn may write: literals, and a match rounded up.
const OUT: usize = 3 + 258 + 40;

/// Decodes symbols into `out` from `at` on, as long as they and the room have a margin. `bit` and `at` are those
/// of the first symbol that was not decoded.
#[inline]
pub(super) fn symbols(
    tables: &Tables,
    bytes: &[u8],
    bit: &mut usize,
    out: &mut [u8],
    at: &mut usize,
) {
    let margins = bytes.len() >= *bit / 8 + IN && out.len() >= *at + OUT;
    if !margins {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "bmi1,bmi2,lzcnt")]
        fn with_bmi2(
            tables: &Tables,
            bytes: &[u8],
            bit: &mut usize,
            out: &mut [u8],
            at: &mut usize,
        ) {
            // SAFETY: there are margins.
            unsafe { run(tables, bytes, bit, out, at) }
        }
        if is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the processor has what it was compiled for.
            return unsafe { with_bmi2(tables, bytes, bit, out, at) };
        }
    }
    // SAFETY: there are margins.
    unsafe { run(tables, bytes, bit, out, at) }
}

/// The next bits of the stream, at least `count` of which are there, modulo 64; the rest of `count` means
/// nothing, so that whole entries can be taken off.
struct Bits {
    word: u64,
    count: u32,
    next: *const u8,
}

impl Bits {
    /// Makes it at least 56 bits.
    ///
    /// # Safety
    /// There are eight bytes from `next` on.
    #[inline(always)]
    unsafe fn refill(&mut self) {
        // SAFETY: as asked for; it goes on by no more than seven.
        unsafe {
            let more = u64::from_le(self.next.cast::<u64>().read_unaligned());
            self.word |= more << (self.count & 63);
            self.next = self.next.add(7 - (self.count >> 3 & 7) as usize);
        }
        self.count |= 56;
    }

    /// Goes on by the bits of this entry.
    #[inline(always)]
    fn skip(&mut self, entry: u32) {
        self.word >>= entry & 63;
        self.count = self.count.wrapping_sub(entry);
    }

    /// The value of this entry, by which it goes on.
    #[inline(always)]
    fn value(&mut self, entry: u32) -> usize {
        let extra = (self.word & !(u64::MAX << (entry & 63))) >> (entry >> 8 & 15);
        self.skip(entry);
        (entry >> 16) as usize + extra as usize
    }
}

/// # Safety
/// There is a margin of `IN` bytes from `bit` on, and one of `OUT` bytes from `at` on.
#[inline(always)]
unsafe fn run(tables: &Tables, bytes: &[u8], bit: &mut usize, out: &mut [u8], at: &mut usize) {
    let symbols = tables.symbols.entries().as_ptr();
    let distances = tables.distances.entries().as_ptr();
    let (mask, far_mask) = (tables.symbols.mask(), tables.distances.mask());
    let start = out.as_mut_ptr();
    // SAFETY: an entry is looked for below the length of the table that its bits index; tables are
    // made so that links stay within them. The stream is read at most seven bytes by each of three
    // refills in a turn and eight from there, for which `IN` has room; `OUT` has room for what a turn
    // writes. Both margins are looked at before each turn. A match begins in `out`, as is checked.
    unsafe {
        let look = |bits: &Bits| *symbols.add((bits.word & mask) as usize);
        let in_end = bytes.as_ptr().add(bytes.len() - IN);
        let out_end = start.add(out.len() - OUT);
        let mut to = start.add(*at);
        let mut bits = Bits { word: 0, count: 0, next: bytes.as_ptr().add(*bit / 8) };
        bits.refill();
        let within = (*bit % 8) as u32;
        bits.word >>= within;
        bits.count -= within;
        bits.refill();
        let mut entry = look(&bits);
        // The bit of `entry`, whose bits have not been taken off yet.
        let place = |bits: &Bits| {
            8 * bits.next.offset_from_unsigned(bytes.as_ptr()) - (bits.count & 63) as usize
        };
        while bits.next <= in_end && to <= out_end {
            if entry & LITERAL != 0 {
                bits.skip(entry);
                to.write((entry >> 16) as u8);
                to = to.add(1);
                entry = look(&bits);
                if entry & LITERAL != 0 {
                    bits.skip(entry);
                    to.write((entry >> 16) as u8);
                    to = to.add(1);
                    entry = look(&bits);
                    if entry & LITERAL != 0 {
                        bits.skip(entry);
                        to.write((entry >> 16) as u8);
                        to = to.add(1);
                        entry = look(&bits);
                        bits.refill();
                        continue;
                    }
                }
                bits.refill();
            }
            if entry & SPECIAL != 0 {
                if entry & LINK == 0 {
                    break;
                }
                let inside = bits.word >> tables.symbols.root() & !(u64::MAX << (entry >> 8 & 15));
                let long = *symbols.add((entry >> 16 & 0x7FFF) as usize + inside as usize);
                if long & LITERAL != 0 {
                    bits.skip(long);
                    to.write((long >> 16) as u8);
                    to = to.add(1);
                    bits.refill();
                    entry = look(&bits);
                    continue;
                }
                if long & SPECIAL != 0 {
                    break;
                }
                entry = long;
            }
            let before = (bits.word, bits.count, bits.next);
            let len = bits.value(entry);
            // A length has taken 20 bits at most, and a distance takes 28.
            let mut far = *distances.add((bits.word & far_mask) as usize);
            if far & SPECIAL != 0 {
                if far & LINK != 0 {
                    let root = tables.distances.root();
                    let inside = bits.word >> root & !(u64::MAX << (far >> 8 & 15));
                    far = *distances.add((far >> 16 & 0x7FFF) as usize + inside as usize);
                }
                if far & SPECIAL != 0 {
                    (bits.word, bits.count, bits.next) = before;
                    break;
                }
            }
            let distance = bits.value(far);
            if distance > to.offset_from_unsigned(start) {
                (bits.word, bits.count, bits.next) = before;
                break;
            }
            if bits.count & 63 < 11 {
                bits.refill();
            }
            entry = look(&bits);
            bits.refill();
            copy(to, len, distance);
            to = to.add(len);
        }
        *bit = place(&bits);
        *at = to.offset_from_unsigned(start);
    }
}

/// Copies `len` bytes from `distance` before `to`, and up to 32 more.
///
/// # Safety
/// There are so many bytes before, and room behind.
#[inline(always)]
unsafe fn copy(mut to: *mut u8, len: usize, distance: usize) {
    type Wide = [u8; 16];
    // SAFETY: as asked for; a step goes by what is there already.
    unsafe {
        let end = to.add(len);
        let mut from = to.sub(distance).cast_const();
        if distance >= 16 {
            // Most matches are this short.
            to.cast::<Wide>().write_unaligned(from.cast::<Wide>().read_unaligned());
            to.add(16).cast::<Wide>().write_unaligned(from.add(16).cast::<Wide>().read_unaligned());
            while to.add(32) < end {
                to = to.add(32);
                from = from.add(32);
                to.cast::<Wide>().write_unaligned(from.cast::<Wide>().read_unaligned());
                to.add(16)
                    .cast::<Wide>()
                    .write_unaligned(from.add(16).cast::<Wide>().read_unaligned());
            }
        } else if distance == 1 {
            let all = [*from; 16];
            while to < end {
                to.cast::<Wide>().write_unaligned(all);
                to = to.add(16);
            }
        } else if distance >= 8 {
            while to < end {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
                to = to.add(8);
                from = from.add(8);
            }
        } else {
            while to < end {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
                to = to.add(distance);
                from = from.add(distance);
            }
        }
    }
}
