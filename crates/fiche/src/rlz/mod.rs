//! Relative Lempel-Ziv: blocks that copy what they have in common out of one dictionary.
//!
//! A [`Dictionary`] is sampled from the collection and kept in memory whole. A block is then a
//! sequence of *factors*, each a copy out of the dictionary: it is read without any other block,
//! and a byte of it without the rest of the block. How factors are stored is the [`Coding`].
//!
//! Hoobin, Puglisi and Zobel, *Relative Lempel-Ziv factorization for efficient storage and retrieval of
//! web collections* (2011); Petri, Moffat, Nagesh and Wirth, *Access time tradeoffs in archive
//! compression* (2015).

pub(crate) mod coder;
mod cover;
mod dictionary;
mod firsts;
mod grams;
mod hybrid;
mod index;
pub(crate) mod matcher;
#[cfg(feature = "zlib")]
mod primed;
mod prune;
mod sample;
pub(crate) mod store;
mod training;

pub use coder::{Coder, Coding};
pub use dictionary::Dictionary;
pub use sample::Sampling;
pub use training::Training;
