//! Reads any small piece of compressed data on its own.
//!
//! A microfiche holds a library in miniature, and a reader goes straight to any
//! frame. fiche does that to data: everything is stored compressed, and any small
//! piece is read without unpacking the rest.
//!
//! Everything readable is a [`ReadAt`]: a fixed sequence of bytes that any thread
//! can read at any offset. A file is one ([`FileSource`]), bytes in memory are one,
//! an [archive](archive::Reader) is built over one and is one itself, and so is each
//! [record](archive::Record) in it.
//!
//! ```
//! use std::sync::Arc;
//! use fiche::archive::{Entry, Options, Reader, Writer};
//! use fiche::{FileSource, ReadAt};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("poems.fiche");
//!
//! // Write an archive of two records.
//! let mut writer = Writer::new(std::fs::File::create(&path)?, Options::default())?;
//! writer.add(Entry::data("tyger"), &mut "Tyger Tyger, burning bright".as_bytes())?;
//! writer.add(Entry::data("lamb"), &mut "Little Lamb who made thee".as_bytes())?;
//! writer.finish()?;
//!
//! // Read seven bytes of one of them.
//! let archive = Reader::open(Arc::new(FileSource::open(&path)?))?;
//! let mut piece = [0; 7];
//! archive.record("tyger")?.read_at(13, &mut piece)?;
//! assert_eq!(&piece, b"burning");
//! # Ok::<(), fiche::Error>(())
//! ```
//!
//! Where to look: [`archive`] to pack and read, [`codec`] for one block alone, [`rlz`] for blocks that
//! share a dictionary, [`events`] for records with columns, [`streams`] for files that other programs know,
//! [`volume`] for a disk that can be written,
//! [`phrases`] for a few bytes out of a unit, [`advise`] for how to pack what you have.
//! [`Error`] says what can go wrong, [`mod@format`] what the bytes of a file mean.

pub mod advise;
pub mod archive;
mod blocks;
mod cache;
pub mod codec;
mod elias_fano;
mod envelope;
mod error;
pub mod events;
mod in_place;
mod io;
mod lock;
mod memory;
mod model;
mod new_file;
mod pages;
mod parallel;
pub mod phrases;
mod processor;
mod random;
mod records;
pub mod rlz;
pub mod streams;
#[cfg(feature = "testing")]
pub mod testing;
pub mod volume;
mod wire;

pub use error::{Error, Place, Result};
pub use in_place::Appending;
pub use io::{Cursor, Distant, FileSource, InFolder, ReadAt, Resolve, Span, WriteAt};
pub use new_file::NewFile;
pub use pages::{Dst, Segments, SegmentsMut, Src};
pub use wire::Digest;

#[doc = include_str!("../../../docs/format.md")]
pub mod format {}

/// The README's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
