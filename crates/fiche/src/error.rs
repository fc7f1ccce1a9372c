//! What can go wrong: one variant for each thing that a caller does differently.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where damage was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A position in the file, in bytes from its start.
    Pos(u64),
    /// A block: its number in the archive and the position of its first stored byte.
    Block {
        /// Number of the block, from 0.
        block: u64,
        /// Position of its first stored byte.
        pos: u64,
    },
    /// A record, by number from 0.
    Record(u64),
    /// An event: its number, and the position of what tells of it.
    Event {
        /// Number of the event, from 0.
        event: u64,
        /// Position of the block that it is in.
        pos: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Pos(pos) => write!(f, "at byte {pos}"),
            Place::Block { block, pos } => write!(f, "in block {block}, stored at byte {pos}"),
            Place::Record(number) => write!(f, "in record #{number}"),
            Place::Event { event, pos } => write!(f, "in event {event}, stored at byte {pos}"),
        }
    }
}

/// What went wrong. "Damaged" ([`Corrupt`](Error::Corrupt)) and "not known to
/// this program" ([`Unsupported`](Error::Unsupported)) are different answers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a read or a write.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// A read passes the end.
    #[error("bytes {} to {} were asked for, but there are only {len}", range.start, range.end)]
    OutOfBounds {
        /// What was asked for.
        range: Range<u64>,
        /// How many bytes there are.
        len: u64,
    },
    /// There is no record of this name or number.
    #[error("there is no {name:?}{}", nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    NotFound {
        /// The name that was asked for.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// The bytes are not what was written.
    #[error("damaged: {what} {at}")]
    Corrupt {
        /// The structure, by its name in docs/format.md.
        what: &'static str,
        /// Where it lies.
        at: Place,
    },
    /// A file that this one names could not be found.
    #[error("missing: {what} with digest {digest}")]
    Missing {
        /// What it is: a dictionary, a part.
        what: &'static str,
        /// Which one.
        digest: crate::wire::Digest,
    },
    /// The source is not the one this was made for.
    #[error("{what} has changed since this was made")]
    Changed {
        /// What has changed.
        what: &'static str,
    },
    /// Written by a newer version, or for a codec that this build does not have.
    #[error("{what} {found} is not supported by this version")]
    Unsupported {
        /// What is not known.
        what: &'static str,
        /// Its number as found.
        found: u64,
    },
    /// The caller's options or arguments contradict what is possible.
    #[error("{what}")]
    Invalid {
        /// What is wrong with them.
        what: Cow<'static, str>,
    },
    /// More memory or space would be needed than is allowed.
    #[error("{what} needs {need} bytes, and {allowed} are allowed")]
    Limit {
        /// What needs it.
        what: &'static str,
        /// How much.
        need: u64,
        /// How much is allowed.
        allowed: u64,
    },
    /// Somebody else is writing to it.
    #[error("in use by {owner}")]
    Busy {
        /// Who, as far as it is known.
        owner: String,
    },
    /// A write failed earlier, so nothing more is written.
    #[error("an earlier write failed: close it and open it again")]
    Poisoned,
}

impl From<io::Error> for Error {
    /// An error of the operating system, or the one of ours that a reader or writer has put into it.
    fn from(error: io::Error) -> Error {
        error.downcast().unwrap_or_else(Error::Io)
    }
}

impl Error {
    /// The error of a caller who asks for what cannot be.
    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Error {
        Error::Invalid { what: what.into() }
    }

    /// Fails where a method has no such level.
    pub(crate) fn check_level(method: &str, levels: RangeInclusive<i32>, level: i32) -> Result<()> {
        if levels.contains(&level) {
            return Ok(());
        }
        let (first, last) = levels.into_inner();
        Err(Error::invalid(match first == last {
            true => format!("{method} has no levels"),
            false => format!("{method} has the levels {first} to {last}, not {level}"),
        }))
    }

    /// An error of the operating system, with the path it concerns.
    pub(crate) fn io_at(path: &Path, error: impl Into<io::Error>) -> Error {
        Error::Io(Error::path_error(path, error.into()))
    }

    /// The same, where the standard library's type is asked for.
    pub(crate) fn path_error(path: &Path, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), PathError { path: path.to_owned(), error })
    }

    /// The same error, with the path it concerns if it is one of the operating system.
    pub(crate) fn at_path(self, path: &Path) -> Error {
        match self {
            Error::Io(error) if error.get_ref().is_none() => Error::io_at(path, error),
            other => other,
        }
    }

    /// The same damage, at a place that is known better.
    #[must_use]
    pub(crate) fn at(self, place: Place) -> Error {
        match self {
            Error::Corrupt { what, .. } => Error::Corrupt { what, at: place },
            other => other,
        }
    }

    /// An equal error for another reader of the same block.
    #[must_use]
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Io(e) => Error::Io(match e.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(e.kind(), e.to_string()),
            }),
            Error::OutOfBounds { range, len } => {
                Error::OutOfBounds { range: range.clone(), len: *len }
            }
            Error::NotFound { name, nearest } => {
                Error::NotFound { name: name.clone(), nearest: nearest.clone() }
            }
            Error::Corrupt { what, at } => Error::Corrupt { what, at: *at },
            Error::Missing { what, digest } => Error::Missing { what, digest: *digest },
            Error::Changed { what } => Error::Changed { what },
            Error::Unsupported { what, found } => Error::Unsupported { what, found: *found },
            Error::Invalid { what } => Error::Invalid { what: what.clone() },
            Error::Limit { what, need, allowed } => {
                Error::Limit { what, need: *need, allowed: *allowed }
            }
            Error::Busy { owner } => Error::Busy { owner: owner.clone() },
            Error::Poisoned => Error::Poisoned,
        }
    }
}

/// An error of the operating system and the path it concerns.
#[derive(Debug)]
pub(crate) struct PathError {
    path: std::path::PathBuf,
    error: io::Error,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
