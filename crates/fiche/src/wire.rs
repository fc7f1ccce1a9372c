//! Integers and bytes: the only file that turns one into the other.
//!
//! # Integers
//!
//! Fixed-size integers are little-endian. A *varint* is an unsigned integer of
//! up to 64 bits in groups of 7 bits, lowest group first; the top bit of a byte
//! is set when another byte follows. It is as short as possible: a last byte of
//! zero after the first is refused. A *signed varint* is the varint of
//! `(x << 1) ^ (x >> 63)`: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
//!
//! # Checksums
//!
//! *CRC-32C* (Castagnoli; polynomial 1EDC6F41, reflected, initial value and
//! final XOR FFFFFFFF; of `123456789` it is E3069283) covers stored bytes.
//! *CRC-64* (NVME; polynomial AD93D23594C93659, reflected, initial value and
//! final XOR all ones; of `123456789` it is AE8B14860A799888) covers decoded
//! bytes: it can be combined, so that the value of a whole is known from those
//! of its parts without reading them.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fmt;

use crate::error::{Error, Place, Result};

/// A BLAKE3 digest of 32 bytes: the identity of a dictionary or a part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes; about 0.25 ns a byte.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// Sixteen bits of it, which the checksums of blocks are mixed with.
    pub(crate) fn tag(&self) -> u16 {
        let [a, b, ..] = self.0;
        u16::from_le_bytes([a, b])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// CRC-32C of these bytes; about 0.03 ns a byte.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Added to the CRC-32C of a block. It keeps other bytes that have their CRC-32C behind them,
/// in a block or not, from passing for a block.
const BLOCK: u32 = 0x6669_6300;

/// The checksum behind a block's stored bytes; `mark` says how they are coded, in 24 bits.
pub(crate) fn block_checksum(stored: &[u8], mark: u32) -> [u8; 4] {
    crc32c(stored).wrapping_add(BLOCK).wrapping_add(mark).to_le_bytes()
}

/// The mark, if this is the checksum of a block whose stored bytes have this CRC-32C.
pub(crate) fn mark_of(checksum: [u8; 4], crc: u32) -> u32 {
    u32::from_le_bytes(checksum).wrapping_sub(crc).wrapping_sub(BLOCK)
}

/// CRC-32C of several pieces, as if they were joined.
pub(crate) fn crc32c_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

/// CRC-32C of bytes that come one by one, known after each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteCrc32c(u32);

impl Default for ByteCrc32c {
    fn default() -> ByteCrc32c {
        ByteCrc32c(!0)
    }
}

impl ByteCrc32c {
    #[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
    pub fn push(&mut self, byte: u8) {
        self.0 = CRC32C[usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
    }

    pub fn get(self) -> u32 {
        !self.0
    }
}

/// What a byte does to CRC-32C.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82F6_3B78 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// CRC-32 of these bytes, that of gzip; about 0.03 ns a byte.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// CRC-32 of bytes that come in pieces.
pub(crate) struct Crc32(crc_fast::Digest);

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))
    }
}

impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn get(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC-32C of bytes that come in pieces.
#[derive(Clone)]
pub(crate) struct Crc32c(crc_fast::Digest);

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn get(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC-64 of these bytes; about 0.03 ns a byte.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// CRC-64 of `a` followed by `b`, where `b` is `b_len` bytes long. About 0.1 us for
/// each set bit of the length: some 400 times as fast as the library's, which would
/// show where blocks are joined.
pub(crate) fn crc64_join(a: u64, b: u64, b_len: u64) -> u64 {
    let powers = BYTES.iter().enumerate().filter(|(bit, _)| b_len >> bit & 1 == 1);
    powers.fold(a, |a, (_, power)| times(*power, a)) ^ b
}

/// The polynomial of CRC-64, lowest power first: the top bit stands for 1.
const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;

/// x^(8 * 2^k) modulo the polynomial, for each k: what 2^k zero bytes do.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const BYTES: [u64; 64] = {
    let mut powers = [1 << (63 - 8); 64];
    let mut k = 1;
    while k < 64 {
        powers[k] = times(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials modulo the CRC's.
const fn times(a: u64, mut b: u64) -> u64 {
    let (mut product, mut bit) = (0, 1 << 63);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// CRC-32 of `a` followed by `b`, where `b` is `b_len` bytes long.
pub(crate) fn crc32_join(a: u32, b: u32, b_len: u64) -> u32 {
    let powers = BYTES32.iter().enumerate().filter(|(bit, _)| b_len >> bit & 1 == 1);
    powers.fold(a, |a, (_, power)| times32(*power, a)) ^ b
}

/// x^(8 * 2^k) modulo the polynomial of CRC-32, for each k.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
const BYTES32: [u32; 64] = {
    let mut powers = [0; 64];
    // x^8: the top bit stands for 1.
    powers[0] = 1 << 23;
    let mut k = 1;
    while k < 64 {
        powers[k] = times32(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials modulo that of CRC-32.
const fn times32(a: u32, b: u32) -> u32 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while a != 0 {
        if a & 1 << 31 != 0 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 == 1 { b >> 1 ^ 0xEDB8_8320 } else { b >> 1 };
    }
    product
}

/// The largest prime below 2^16.
const ADLER: u64 = 65_521;

/// Adler-32 (RFC 1950).
pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    adler32_on(1, bytes)
}

/// Adler-32 of what `before` is of, followed by these bytes.
pub(crate) fn adler32_on(before: u32, bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (u64::from(before & 0xFFFF), u64::from(before >> 16));
    // Sums of so many bytes are far below 2^64.
    for chunk in bytes.chunks(1 << 16) {
        for &byte in chunk {
            a += u64::from(byte);
            b += a;
        }
        (a, b) = (a % ADLER, b % ADLER);
    }
    (b << 16 | a) as u32
}

/// Adler-32 of `a` followed by `b`, where `b` is `b_len` bytes long.
pub(crate) fn adler32_join(a: u32, b: u32, b_len: u64) -> u32 {
    let (a_low, a_high) = (u64::from(a & 0xFFFF), u64::from(a >> 16));
    let (b_low, b_high) = (u64::from(b & 0xFFFF), u64::from(b >> 16));
    // Sums of bytes begin with 1.
    let before = a_low + ADLER - 1;
    let low = (before + b_low) % ADLER;
    let high = (a_high + b_high + b_len % ADLER * (before % ADLER)) % ADLER;
    (high << 16 | low) as u32
}

/// The eight bytes at `at`, the first the lowest. Panics where there are fewer.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "as documented; callers see to it")]
pub(crate) fn load_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The four bytes at `at`, the first the lowest. Panics where there are fewer.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "as documented; callers see to it")]
pub(crate) fn load_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Up to eight bytes as an integer, the first the lowest.
#[inline(always)]
pub(crate) fn load_low(bytes: &[u8]) -> u64 {
    bytes.iter().rev().take(8).fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// An integer as bytes, the lowest first.
#[inline(always)]
pub(crate) fn low_bytes(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

/// Appends integers to bytes.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }
    fn put_signed(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }
    /// A varint of the length, then the bytes.
    fn put_string(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes integers from bytes, and never more than there are.
#[derive(Clone)]
pub(crate) struct Take<'a> {
    rest: &'a [u8],
    /// What is being read and where its first byte lies, for errors.
    what: &'static str,
    start: u64,
    len: usize,
}

impl<'a> Take<'a> {
    pub fn new(bytes: &'a [u8], what: &'static str, start: u64) -> Take<'a> {
        Take { rest: bytes, what, start, len: bytes.len() }
    }

    /// The error that says that these bytes are not what was written.
    pub fn corrupt(&self) -> Error {
        let done = self.len - self.rest.len();
        Error::Corrupt { what: self.what, at: Place::Pos(self.start.saturating_add(done as u64)) }
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn digest(&mut self) -> Result<Digest> {
        self.array().map(Digest)
    }

    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An integer of `len` bytes, up to 8.
    pub fn low(&mut self, len: usize) -> Result<u64> {
        self.bytes(len).map(load_low)
    }

    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let too_wide = shift == 63 && bits > 1;
            let too_long = shift > 0 && byte == 0;
            if too_wide || too_long {
                return Err(self.corrupt());
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.corrupt())
    }

    pub fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A varint that must fit a `usize` and pass a limit.
    pub fn count(&mut self, limit: u64) -> Result<usize> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(count) if value <= limit => Ok(count),
            _ => Err(self.corrupt()),
        }
    }

    /// A varint of the length, then the bytes.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        let len = self.count(self.rest.len() as u64)?;
        self.bytes(len)
    }

    /// Fails unless everything was taken.
    pub fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.corrupt()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn adler_sums_are_joined_as_if_they_were_of_all() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        let all: Vec<u8> = (0..300_000u64).map(|i| ((i * i) >> 7) as u8 | 0xC0).collect();
        for cut in [0, 1, 5, 65_520, 65_521, 65_522, 131_043, 299_999, 300_000] {
            let (a, b) = all.split_at(cut);
            let joined = adler32_join(adler32(a), adler32(b), b.len() as u64);
            assert_eq!(joined, adler32(&all), "{cut}");
            assert_eq!(adler32_on(adler32(a), b), adler32(&all), "{cut}");
        }
    }

    #[test]
    fn checksums_are_the_ones_that_the_format_names() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c_of(&[b"1234", b"", b"56789"]), 0xE306_9283);
        assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
    }

    #[test]
    fn joined_checksums_equal_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * i) as u8).collect();
        for cut in [0, 1, 15, 500, 999, 1000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(crc64_join(crc64(a), crc64(b), b.len() as u64), crc64(&bytes), "{cut}");
            assert_eq!(crc32_join(crc32(a), crc32(b), b.len() as u64), crc32(&bytes), "{cut}");
        }
        let algorithm = crc_fast::CrcAlgorithm::Crc64Nvme;
        for len in [1, 2, 77, 1 << 20, (1 << 40) + 12_345, i64::MAX as u64] {
            let joined = crc_fast::checksum_combine(algorithm, 123, 456, len);
            assert_eq!(crc64_join(123, 456, len), joined, "{len}");
        }
    }

    #[test]
    fn integers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            bytes.put_signed(value as i64);
            let mut take = Take::new(&bytes, "test", 0);
            assert_eq!(take.varint().unwrap(), value);
            assert_eq!(take.signed().unwrap(), value as i64);
            take.end().unwrap();
        }
    }

    #[test]
    fn a_varint_that_is_longer_than_needed_or_than_64_bits_is_refused() {
        for bytes in [&[0x80, 0][..], &[0xff; 10], &[0x80; 11], &[0x80], &[]] {
            assert!(Take::new(bytes, "test", 0).varint().is_err(), "{bytes:?}");
        }
    }
}
