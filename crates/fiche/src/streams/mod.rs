//! Standard compressed files that can be read anywhere: those that this library writes, and those of others.

mod bgzf;
mod decoder;
mod format;
mod index;
mod reader;
mod recount;
mod scan;
mod verify;
#[cfg(feature = "zlib")]
mod writer;
#[cfg(feature = "lzma")]
mod xz;
mod zstd;

pub use format::Format;
pub use reader::{Reader, recognise};
pub use recount::index_file;
pub use scan::{IndexOptions, index};
pub use verify::verify;
#[cfg(feature = "zlib")]
pub use writer::{Options, Writer};
