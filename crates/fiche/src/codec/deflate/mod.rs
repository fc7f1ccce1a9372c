//! Deflate (RFC 1951): whole blocks by a library, streams from any bit by a decoder of our own, and gzip
//! files ([`Gunzip`]).
//!
//! [`Inflate`] decodes a stream of which a piece is at hand, and what stood before it:
//!
//! ```
//! use fiche::codec::deflate::{Inflate, Input, Pause};
//!
//! // "deflate late", as zlib writes it.
//! let stream = [0x4b, 0x49, 0x4d, 0xcb, 0x49, 0x2c, 0x49, 0x55, 0x00, 0x11, 0x00];
//! let (mut text, mut at) = ([0; 12], 0);
//! let (mut inflate, mut input) = (Inflate::new(), Input::new(&stream, 0));
//! assert_eq!(inflate.run(&mut input, &mut text[..4], &mut at)?, Pause::Full);
//! assert_eq!(&text[..at], b"defl");
//! assert_eq!(inflate.run(&mut input, &mut text, &mut at)?, Pause::Full);
//! assert_eq!(&text, b"deflate late");
//! assert_eq!(inflate.finish(&mut input)?, Pause::End);
//! # Ok::<(), fiche::codec::deflate::Fault>(())
//! ```

#[cfg(feature = "zlib")]
mod block;
mod gunzip;
mod inflate;
mod kernel;
#[cfg(feature = "zlib")]
mod partition;
mod sink;
mod tables;

#[cfg(feature = "zlib")]
pub(in crate::codec) use block::{State, compress, decompress, decompress_front};
pub use gunzip::{Gunzip, Member};
pub(crate) use gunzip::{MAGIC, Watch, Watched};
pub(crate) use inflate::Header;
pub use inflate::{Fault, Inflate, Input, Pause, WINDOW};
#[cfg(feature = "zlib")]
pub(crate) use partition::Primed;
#[cfg(feature = "zlib")]
pub use partition::{FLUSH, Partitioner};

pub(crate) use sink::{Marks, Tokens};

/// What the last partition is followed by: a block of nothing, which says that it is the last.
pub const LAST_BLOCK: [u8; 2] = [3, 0];
