//! Sixteen bytes at a time: as most processors have them in a register, and as two words where ours has no form for them.

/// Sixteen bytes, and what filters do with them.
pub(super) trait Lanes: Copy {
    fn load(bytes: &[u8; 16]) -> Self;

    fn store(self, bytes: &mut [u8; 16]);

    /// The bytes of both in turn, 32 of them.
    fn zip(self, other: Self) -> [Self; 2];

    /// The even ones of the 32 bytes, then the odd ones: what [`zip`](Lanes::zip) did, undone.
    fn unzip(self, other: Self) -> [Self; 2];

    /// The bits of each byte of the other that are in `mask` change places with those `BITS` higher of ours.
    fn exchange<const BITS: i32>(self, other: Self, mask: u8) -> [Self; 2];
}

#[cfg(target_arch = "x86_64")]
pub(super) use sse2::Register as Native;
#[cfg(not(target_arch = "x86_64"))]
pub(super) use words::Words as Native;

#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) mod words {
    use super::Lanes;
    use crate::wire::{load_u64, low_bytes};

    /// As two words.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Words([u64; 2]);

    impl Lanes for Words {
        #[inline(always)]
        fn load(bytes: &[u8; 16]) -> Words {
            Words([load_u64(bytes, 0), load_u64(bytes, 8)])
        }

        #[inline(always)]
        fn store(self, bytes: &mut [u8; 16]) {
            bytes[..8].copy_from_slice(&low_bytes(self.0[0]));
            bytes[8..].copy_from_slice(&low_bytes(self.0[1]));
        }

        #[inline(always)]
        fn zip(self, other: Words) -> [Words; 2] {
            [0, 1].map(|i| {
                let (first, second) = (self.0[i], other.0[i]);
                Words([0, 32].map(|half| spread(first >> half) | spread(second >> half) << 8))
            })
        }

        #[inline(always)]
        fn unzip(self, other: Words) -> [Words; 2] {
            [0, 8].map(|odd| {
                Words([self, other].map(|Words([first, second])| {
                    gathered(first >> odd) | gathered(second >> odd) << 32
                }))
            })
        }

        #[inline(always)]
        fn exchange<const BITS: i32>(self, other: Words, mask: u8) -> [Words; 2] {
            let mask = u64::from(mask) * 0x0101_0101_0101_0101;
            let moved = [0, 1].map(|i| (self.0[i] >> BITS ^ other.0[i]) & mask);
            [
                Words([0, 1].map(|i| self.0[i] ^ moved[i] << BITS)),
                Words([0, 1].map(|i| other.0[i] ^ moved[i])),
            ]
        }
    }

    /// The lower four bytes, with one of zeros behind each.
    #[inline(always)]
    fn spread(word: u64) -> u64 {
        let bytes = word & 0xFFFF_FFFF;
        let pairs = (bytes | bytes << 16) & 0x0000_FFFF_0000_FFFF;
        (pairs | pairs << 8) & 0x00FF_00FF_00FF_00FF
    }

    /// The even bytes of eight, and no others.
    #[inline(always)]
    fn gathered(word: u64) -> u64 {
        let bytes = word & 0x00FF_00FF_00FF_00FF;
        let pairs = (bytes | bytes >> 8) & 0x0000_FFFF_0000_FFFF;
        (pairs | pairs >> 16) & 0xFFFF_FFFF
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod sse2 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// As a register of SSE2, which all processors of this kind have.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Register(__m128i);

    impl Lanes for Register {
        #[inline(always)]
        fn load(bytes: &[u8; 16]) -> Register {
            // SAFETY: sixteen bytes are there, and need not be aligned.
            Register(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
        }

        #[inline(always)]
        fn store(self, bytes: &mut [u8; 16]) {
            // SAFETY: as above, and they are ours.
            unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), self.0) };
        }

        #[inline(always)]
        fn zip(self, other: Register) -> [Register; 2] {
            // SAFETY: the processor has them.
            unsafe {
                [
                    Register(_mm_unpacklo_epi8(self.0, other.0)),
                    Register(_mm_unpackhi_epi8(self.0, other.0)),
                ]
            }
        }

        #[inline(always)]
        fn unzip(self, other: Register) -> [Register; 2] {
            // SAFETY: the processor has them.
            unsafe {
                let even =
                    [self.0, other.0].map(|pairs| _mm_and_si128(pairs, _mm_set1_epi16(0xFF)));
                let odd = [self.0, other.0].map(|pairs| _mm_srli_epi16::<8>(pairs));
                [even, odd].map(|[first, second]| Register(_mm_packus_epi16(first, second)))
            }
        }

        #[inline(always)]
        fn exchange<const BITS: i32>(self, other: Register, mask: u8) -> [Register; 2] {
            // SAFETY: the processor has them.
            unsafe {
                let differing = _mm_xor_si128(_mm_srli_epi64::<BITS>(self.0), other.0);
                let moved = _mm_and_si128(differing, _mm_set1_epi8(mask as i8));
                [
                    Register(_mm_xor_si128(self.0, _mm_slli_epi64::<BITS>(moved))),
                    Register(_mm_xor_si128(other.0, moved)),
                ]
            }
        }
    }
}
