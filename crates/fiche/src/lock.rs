//! Files that one program at a time may change.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;

use crate::error::{Error, Result};

/// Locks a file until it is closed.
///
/// # Errors
/// [`Error::Busy`] when somebody else has it locked, who is named where the system tells; [`Error::Io`].
pub(crate) fn lock(file: &File) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let owner = owner(file).unwrap_or_else(|| "another program".into());
            Err(Error::Busy { owner })
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Who has it locked: Linux lists processes with what they have locked, `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`. Those of
/// other containers have no number here.
fn owner(file: &File) -> Option<String> {
    // Not by its device, which file systems on several ones give another number here.
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_this = fields.contains(&"FLOCK") && !fields.contains(&"->");
        let (pid, place) = (fields.get(4)?, fields.get(5)?);
        (is_this && place.rsplit(':').next() == Some(&inode)).then(|| pid.parse::<u32>().ok())?
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_locked_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        lock(&first).unwrap();
        let error = lock(&open()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {} (", std::process::id())), "{error}");
        drop(first);
        lock(&open()).unwrap();
    }
}
