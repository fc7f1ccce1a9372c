//! The command as people use it.

mod advise;
mod command;
mod events;
mod gzip;
mod killed;
mod mount;
mod place;
#[cfg(feature = "remote")]
mod remote;
mod snapshots;
mod volume;
