//! Entropy codes that are learned once and shared by many blocks.
//!
//! A small block cannot pay for tables of its own: written out they are a tenth of it, and a
//! decoder builds them for longer than it uses them. So codes are counted over a sample of
//! all blocks, stored once, and made into tables when they are loaded.

mod ans;
mod bits;
mod huffman;

pub(crate) use ans::{Encoder, FIRST, MOST_SYMBOLS, Shares, Slot};
pub(crate) use bits::{BitSink, Bits, MARGIN, Padded, Words};
pub(crate) use huffman::{Code, LONG, LONGEST, Table, lengths as code_lengths};
