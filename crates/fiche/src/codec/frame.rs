//! Some bytes compressed and described by themselves: for who stores them elsewhere.
//!
//! # Frame
//!
//! A frame is no file and has no magic number: who stores it knows what it is. It holds what one block of an
//! archive holds, with what tables say of blocks there.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | codec | its number |
//! | varint | len | decoded length |
//! | | stored | what the codec made of them, or the bytes themselves where it did not shrink them: up to the checksum |
//! | 4 | checksum | CRC-32C of all before it |

use crate::codec::{Codec, Scratch};
use crate::error::{Error, Place, Result};
use crate::wire::{Put, Take, crc32c};

const WHAT: &str = "frame";
const CHECKSUM: usize = 4;

impl Codec {
    /// Compresses bytes into a frame, which says all that is needed to decode it. It is never more than 15
    /// bytes longer than what it holds.
    ///
    /// ```
    /// use fiche::codec::{Codec, Scratch};
    ///
    /// let text = b"to be or not to be, that is to be, or not to be";
    /// let mut scratch = Scratch::default();
    /// let frame = Codec::Zstd.to_frame(3, text, &mut scratch)?;
    /// assert_eq!(Codec::from_frame(&frame, 1 << 20, &mut scratch)?, text);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`compress`](Codec::compress).
    pub fn to_frame(self, level: i32, bytes: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>> {
        self.check_level(level)?;
        let mut frame = Vec::with_capacity(bytes.len() + 15);
        frame.put_u8(self as u8);
        frame.put_varint(bytes.len() as u64);
        let start = frame.len();
        // What does not shrink is stored as it is.
        frame.resize(start + bytes.len().saturating_sub(1), 0);
        let shrunk = match frame[start..].is_empty() || self == Codec::Copy {
            true => None,
            false => {
                let room = (&mut frame[start..]).into();
                self.compress(level, bytes.into(), room, scratch)?
            }
        };
        frame.truncate(start + shrunk.unwrap_or(0));
        if shrunk.is_none() {
            frame.extend_from_slice(bytes);
        }
        let checksum = crc32c(&frame);
        frame.put_u32(checksum);
        Ok(frame)
    }

    /// How many bytes a frame says that it stands for; nothing of it is verified.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is too short to say.
    pub fn frame_len(frame: &[u8]) -> Result<u64> {
        let mut take = Take::new(frame, WHAT, 0);
        take.u8()?;
        take.varint()
    }

    /// The bytes that a frame stands for, if these are at most `limit`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is damaged; [`Error::Limit`] when it says that it stands for more, or
    /// there is no memory for it; [`Error::Unsupported`] for a codec that this build does not have.
    pub fn from_frame(frame: &[u8], limit: u64, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let corrupt = || Error::Corrupt { what: WHAT, at: Place::Pos(0) };
        let end = frame.len().checked_sub(CHECKSUM).ok_or_else(corrupt)?;
        let (body, checksum) = frame.split_at(end);
        if Take::new(checksum, WHAT, end as u64).u32()? != crc32c(body) {
            return Err(corrupt());
        }
        let mut take = Take::new(body, WHAT, 0);
        let (number, len) = (take.u8()?, take.varint()?);
        let stored = take.bytes(take.remaining())?;
        let found = u64::from(number);
        let codec =
            Codec::from_number(number).ok_or(Error::Unsupported { what: "codec", found })?;
        if stored.len() as u64 == len {
            return Ok(stored.to_vec());
        }
        if (stored.len() as u64) > len || codec == Codec::Copy {
            return Err(corrupt());
        }
        let no_room = Error::Limit { what: "what a frame stands for", need: len, allowed: limit };
        let mut bytes = Vec::new();
        match usize::try_from(len) {
            Ok(len) if len as u64 <= limit && bytes.try_reserve_exact(len).is_ok() => {
                bytes.resize(len, 0);
            }
            _ => return Err(no_room),
        }
        codec.decompress(stored.into(), bytes.as_mut_slice().into(), scratch).map_err(|error| {
            match error {
                Error::Corrupt { .. } => corrupt(),
                other => other,
            }
        })?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn codecs() -> impl Iterator<Item = Codec> {
        (0..=5).filter_map(Codec::from_number).filter(|codec| codec.is_compiled_in())
    }

    #[test]
    fn frames_come_back_and_what_does_not_shrink_is_hardly_longer() {
        let (mut scratch, mut random) = (Scratch::default(), Random(1));
        let inputs =
            [vec![], vec![7], random.bytes(10_000), random.text(50_000), vec![0; 1_000_000]];
        for codec in codecs() {
            for bytes in &inputs {
                let frame = codec.to_frame(codec.default_level(), bytes, &mut scratch).unwrap();
                assert!(frame.len() <= bytes.len() + 15);
                assert_eq!(Codec::frame_len(&frame).unwrap(), bytes.len() as u64);
                let limit = bytes.len() as u64;
                assert!(Codec::from_frame(&frame, limit, &mut scratch).unwrap() == *bytes);
                let below = limit.wrapping_sub(1);
                let refused = Codec::from_frame(&frame, below, &mut scratch);
                if frame.len() < bytes.len() {
                    assert!(matches!(refused, Err(Error::Limit { .. })));
                }
            }
        }
    }

    #[test]
    fn any_change_of_a_frame_is_noticed() {
        let mut scratch = Scratch::default();
        let text = Random(2).text(300);
        for codec in codecs() {
            let frame = codec.to_frame(codec.default_level(), &text, &mut scratch).unwrap();
            for cut in 0..frame.len() {
                let refused = Codec::from_frame(&frame[..cut], 1 << 20, &mut scratch);
                assert!(matches!(refused, Err(Error::Corrupt { .. })), "{codec:?} {cut}");
            }
            for bit in 0..8 * frame.len() {
                let mut damaged = frame.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Codec::from_frame(&damaged, 1 << 20, &mut scratch).is_err());
            }
        }
    }

    #[test]
    fn what_a_frame_with_a_good_checksum_says_is_not_believed() {
        let mut scratch = Scratch::default();
        let made = |number: u8, len: u64, stored: &[u8]| {
            let mut frame = vec![number];
            frame.put_varint(len);
            frame.extend_from_slice(stored);
            let checksum = crc32c(&frame);
            frame.put_u32(checksum);
            frame
        };
        let refused = |frame: &[u8], scratch: &mut Scratch| {
            Codec::from_frame(frame, u64::MAX, scratch).unwrap_err()
        };
        // More than there is memory for, or than there are addresses.
        for len in [1 << 46, u64::MAX] {
            let error = refused(&made(3, len, b"some"), &mut scratch);
            assert!(matches!(error, Error::Limit { .. }), "{error}");
        }
        assert!(matches!(refused(&made(99, 5, b"x"), &mut scratch), Error::Unsupported { .. }));
        for frame in [made(0, 5, b"x"), made(3, 5, b"x"), made(3, 0, b"x"), made(1, 9, b"")] {
            let error = refused(&frame, &mut scratch);
            let has_lz4 = Codec::Lz4.is_compiled_in() || frame[0] != 1;
            assert!(matches!(error, Error::Corrupt { what: "frame", .. }) || !has_lz4, "{error}");
        }
    }
}
