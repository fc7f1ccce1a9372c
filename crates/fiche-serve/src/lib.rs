//! Hands archives to the operating system, as a folder of files that any program reads; and volumes, as network block
//! devices ([`Nbd`]) and as a file of which the kernel makes a disk ([`Disk`]).
//!
//! ```no_run
//! use std::sync::Arc;
//! use fiche::FileSource;
//! use fiche::archive::Reader;
//! use fiche_serve::Mount;
//!
//! let reader = Reader::open(Arc::new(FileSource::open("poems.fiche")?))?;
//! let mount = Mount::new(reader).name("poems.fiche").at("/mnt/poems")?;
//! // Files are there until it is dropped or unmounted.
//! mount.wait()?;
//! # Ok::<(), fiche::Error>(())
//! ```

mod disk;
mod fuse;
mod nbd;
mod tree;

pub use disk::Disk;
pub use fuse::{Mount, Mounted};
#[cfg(feature = "tls")]
pub use nbd::Tls;
pub use nbd::{Address, Nbd, Server};
