//! Standard compressed files that can be read anywhere: those that this library writes, and those of others.
//!
//! [`Reader`] reads any piece of a gzip, zstd, xz or lz4 file: by an index inside it or by what the file says of itself
//! ([`Reader::open`]), or by an index that was made ([`index`](index()), [`index_file`], [`import_index`]) and lies beside it
//! ([`Reader::with_index`]). [`Writer`] writes gzip, zstd and lz4 files that have it inside.
//!
//! ```
//! use std::sync::Arc;
//! use fiche::ReadAt;
//! use fiche::streams::{IndexOptions, Reader, index};
//!
//! // "deflate late", as gzip writes it.
//! let file = [
//!     0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x49, 0x4d, 0xcb, 0x49, 0x2c, 0x49, 0x55, 0x00, 0x11,
//!     0x00, 0x9c, 0x88, 0x5c, 0xc4, 12, 0, 0, 0,
//! ];
//! let mut made = Vec::new();
//! index(file.as_slice(), &IndexOptions::default(), &mut made, std::io::sink())?;
//! let reader = Reader::with_index(Arc::new(file.to_vec()), Arc::new(made))?;
//! let mut piece = [0; 4];
//! reader.read_at(8, &mut piece)?;
//! assert_eq!(&piece, b"late");
//! # Ok::<(), fiche::Error>(())
//! ```

mod bgzf;
mod decoder;
mod exchange;
mod format;
mod index;
mod lz4;
mod reader;
mod recount;
mod scan;
mod verify;
mod writer;
#[cfg(feature = "lzma")]
mod xz;
mod zstd;

pub use exchange::{Foreign, export_index, import_index};
pub use format::Format;
pub use reader::{Reader, recognise};
pub use recount::index_file;
pub use scan::{IndexOptions, index};
pub use verify::verify;
pub use writer::{Options, Writer};
