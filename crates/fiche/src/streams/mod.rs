//! Standard compressed files that can be read anywhere: those that this library writes, and those of others.

mod decoder;
mod format;
mod index;
mod reader;
mod scan;
#[cfg(feature = "zlib")]
mod writer;

pub use format::Format;
pub use reader::Reader;
pub use scan::{IndexOptions, index};
#[cfg(feature = "zlib")]
pub use writer::{Options, Writer};
