//! Standard compressed files that can be read anywhere: those that this library writes, and those of others.

mod bgzf;
mod decoder;
mod format;
mod index;
mod reader;
mod scan;
mod verify;
#[cfg(feature = "zlib")]
mod writer;

pub use format::Format;
pub use reader::{Reader, recognise};
pub use scan::{IndexOptions, index};
pub use verify::verify;
#[cfg(feature = "zlib")]
pub use writer::{Options, Writer};
