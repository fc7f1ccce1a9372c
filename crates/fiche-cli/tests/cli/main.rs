//! The command as people use it.

mod command;
mod gzip;
mod mount;
mod place;
#[cfg(feature = "remote")]
mod remote;
