//! LZO1X, which others compress disks and file systems with; to be compared with.
//!
//! # LZO streams
//!
//! The stream of codec 8 is one of LZO1X: instructions of a byte and what belongs to it, each a copy of what was decoded before and some literals, up to one that ends it. `S` is how many
//! literals follow a copy, 0 to 3, and what the instruction before left.
//!
//! | first byte | before | means |
//! |---|---|---|
//! | 18 to 255 | nothing yet | byte - 17 literals; of 1 to 3 they are those of an `S`, of more the next instruction comes behind a run |
//! | 0 to 15 | `S` = 0, or nothing yet | a run of byte + 3 literals; of 0 of more, 18 and so on |
//! | 0 to 15 | `S` > 0 | copies 2 bytes; distance is 4 * next byte + byte / 4 + 1, and `S` byte mod 4 |
//! | 0 to 15 | a run | copies 3 bytes; distance is 4 * next byte + byte / 4 + 2,049, and `S` byte mod 4 |
//! | 16 to 31 | any | copies 2 bytes more than its lowest three bits say, of 0 of these 9 and so on; distance is 16,384, 16,384 more if bit 3 is set, and word / 4; where that is 16,384, it is the end, and copies nothing |
//! | 32 to 63 | any | copies 2 bytes more than its lowest five bits say, of 0 of these 33 and so on; distance is word / 4 + 1 |
//! | 64 to 255 | any | copies byte / 32 + 1 bytes; distance is 8 * next byte + byte / 4 mod 8 + 1, and `S` byte mod 4 |
//!
//! *And so on*: each zero byte that follows stands for 255 more, and the byte behind them, which is not zero, for as many more. A *word* are the two bytes behind that, the lower first; `S` is its lowest two bits. The
//! `S` literals follow the instruction. The end is `11 00 00`, and nothing follows it.

use lzokay::compress::{Dict, compress_no_alloc, compress_worst_size};

/// The instruction that ends a stream.
const END: [u8; 3] = [0x11, 0, 0];

/// What the encoder works with.
#[derive(Default)]
pub(super) struct State {
    tables: Option<Box<Dict>>,
    room: Vec<u8>,
}

/// The library may want room for more than comes of it, so it always gets enough and the result is copied.
pub(super) fn compress(src: &[u8], dst: &mut [u8], state: &mut State) -> Option<usize> {
    if src.is_empty() {
        // Of nothing the library makes what it does not read.
        dst.get_mut(..END.len())?.copy_from_slice(&END);
        return Some(END.len());
    }
    let State { tables, room } = state;
    room.resize(room.len().max(compress_worst_size(src.len())), 0);
    let len = compress_no_alloc(src, room, tables.get_or_insert_with(Dict::new)).ok()?;
    dst.get_mut(..len)?.copy_from_slice(&room[..len]);
    Some(len)
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    lzokay::decompress::decompress(src, dst).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_back() {
        let mut stored = [0xAA; 3];
        assert_eq!(compress(b"", &mut stored, &mut State::default()), Some(3));
        assert_eq!(decompress(&stored, &mut []), Some(0));
        assert_eq!(compress(b"", &mut [0; 2], &mut State::default()), None);
    }
}
