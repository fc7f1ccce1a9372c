//! The command as people use it.

mod command;
mod mount;
mod place;
#[cfg(feature = "remote")]
mod remote;
