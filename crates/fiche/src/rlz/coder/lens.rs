//! Lengths of factors as bytes: seven bits in each, lowest first, the top bit set where more follow
//! (Williams and Zobel's vbyte).

use crate::wire::{Put, load_u64};

/// Appends these lengths.
pub(super) fn put(lens: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    lens.for_each(|len| out.put_varint(u64::from(len)));
}

/// Takes as many lengths as `bytes` are.
pub(super) fn take_all(bytes: &[u8], lens: &mut Vec<u32>) -> Option<()> {
    let count = bytes.iter().filter(|&&byte| byte < 0x80).count();
    (take(bytes, count, lens)? == bytes.len()).then_some(())
}

/// Takes `count` lengths from the front of `bytes`. Returns how many bytes that were.
#[inline(always)]
pub(super) fn take(bytes: &[u8], count: usize, lens: &mut Vec<u32>) -> Option<usize> {
    lens.clear();
    // Every length takes a byte at least: hostile counts reserve nothing.
    if count > bytes.len() {
        return None;
    }
    lens.reserve(count + 8);
    let mut at = 0;
    while lens.len() < count {
        if at + 8 <= bytes.len() && lens.len() + 8 <= count {
            let word = load_u64(bytes, at);
            if word & 0x8080_8080_8080_8080 == 0 {
                lens.extend(bytes[at..at + 8].iter().map(|&byte| u32::from(byte)));
                at += 8;
                continue;
            }
        }
        let (mut len, mut shift) = (0u32, 0);
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            // Five bytes hold 32 bits, of which the last has four.
            if shift > 28 || shift == 28 && byte > 15 || shift > 0 && byte == 0 {
                return None;
            }
            len |= u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        lens.push(len);
    }
    Some(at)
}

/// Bytes of text that factors of these lengths stand for; a length of 0 is a literal.
pub(super) fn text_len(lens: &[u32]) -> u64 {
    lens.iter().map(|&len| u64::from(len.max(1))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_come_back(lens in proptest::collection::vec(
            prop_oneof![6 => 0u32..128, 1 => any::<u32>(), 1 => 128u32..20_000], 0..100
        )) {
            let (mut bytes, mut taken) = (Vec::new(), Vec::new());
            put(lens.iter().copied(), &mut bytes);
            let used = bytes.len();
            bytes.extend([0xff; 3]);
            prop_assert_eq!(take(&bytes, lens.len(), &mut taken), Some(used));
            prop_assert_eq!(&taken, &lens);
        }

        #[test]
        fn any_bytes_are_lengths_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), count in 0usize..70
        ) {
            let mut taken = Vec::new();
            if let Some(used) = take(&bytes, count, &mut taken) {
                let mut again = Vec::new();
                put(taken.into_iter(), &mut again);
                prop_assert_eq!(&again, &bytes[..used]);
            }
        }
    }
}
