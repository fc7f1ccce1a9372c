//! Archives: anything packed in small blocks, any piece of it read on its own.
//!
//! Content is cut into blocks, each compressed alone (section 2 of Petri,
//! Moffat, Nagesh and Wirth, *Access Time Tradeoffs in Archive Compression*,
//! 2015); an index leads from an offset to its block, and from a name to its
//! record. [`Writer`] writes one front to back, to anything that takes bytes;
//! [`Reader`] reads any piece, from any thread. [`Folder`] packs files and
//! [`Restore`] brings them back; [`append`] and [`merge`] join archives without
//! compressing anything again.
//!
//! ```
//! use std::sync::Arc;
//! use fiche::ReadAt;
//! use fiche::archive::{Entry, Options, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), Options::default())?;
//! writer.add(Entry::data("greeting"), &mut "hello, world".as_bytes())?;
//! writer.add(Entry::data("number"), &mut "forty-two".as_bytes())?;
//! let file: Vec<u8> = writer.finish()?;
//!
//! let reader = Reader::open(Arc::new(file))?;
//! let record = reader.record("number")?;
//! let mut piece = [0; 3];
//! record.read_at(6, &mut piece)?;
//! assert_eq!(&piece, b"two");
//! # Ok::<(), fiche::Error>(())
//! ```

mod ahead;
mod append;
mod batch;
mod compress;
mod content;
mod decode;
mod equal;
mod folder;
mod format;
mod info;
mod items;
mod look;
mod marks;
mod merge;
mod open;
mod options;
mod place;
mod plan;
mod points;
mod reader;
mod rebuild;
mod record;
mod recover;
mod restore;
mod shared;
mod spare;
mod stream;
mod verify;
mod waiting;
mod window;
mod writer;

pub use append::append;

pub use content::Content;
pub use folder::{Folder, Packed};
pub use info::Info;
pub use merge::merge;
pub use open::OpenOptions;
pub use options::{Method, Options};
pub use reader::Reader;
pub use record::Record;
pub use recover::Recovered;
pub use restore::{Failure, Restore, Restored};
pub use shared::DictionaryCache;
pub use stream::Stream;
pub use verify::{Damage, Report};
pub use writer::Writer;

pub use crate::records::{Entry, Extents, Kind, Meta, Split};
