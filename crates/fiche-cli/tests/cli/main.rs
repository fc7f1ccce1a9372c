//! The command as people use it.

mod command;
mod events;
mod gzip;
mod mount;
mod place;
#[cfg(feature = "remote")]
mod remote;
mod volume;
