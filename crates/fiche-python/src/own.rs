//! What is written by one thread of one process at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use pyo3::prelude::*;

use crate::error::{Failed, Result};
use crate::reader::forks;

/// Something that is begun and ended. Behind a fork it is the parent's: the child neither uses it, nor drops what has threads and a file that go on there.
pub struct Own<T> {
    value: Mutex<Option<T>>,
    /// The thread that has it, so that what it calls meanwhile does not wait for it.
    holder: Mutex<Option<ThreadId>>,
    forks: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send> Own<T> {
    pub fn new(value: T) -> Own<T> {
        Own { value: Mutex::new(Some(value)), holder: Mutex::new(None), forks: forks() }
    }

    fn is_another_s(&self) -> bool {
        self.forks != forks()
    }

    /// Does something with it, if it is still there, without the interpreter's lock.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut Option<T>) -> R + Send,
    ) -> Result<R> {
        if self.is_another_s() {
            return Err(Failed::value("the writer is of another process, which forked this one"));
        }
        let me = std::thread::current().id();
        if *lock(&self.holder) == Some(me) {
            return Err(Failed::value("the writer is called by what it reads from or writes to"));
        }
        Ok(py.detach(|| {
            let mut value = lock(&self.value);
            *lock(&self.holder) = Some(me);
            let done = with(&mut value);
            *lock(&self.holder) = None;
            done
        }))
    }

    /// Drops it, if it is this process's.
    pub fn forget(&self, py: Python<'_>) -> Result<()> {
        match self.is_another_s() {
            true => Ok(()),
            false => self.with(py, |value| drop(value.take())),
        }
    }

    /// Whether it is there no more.
    pub fn is_over(&self, py: Python<'_>) -> bool {
        self.is_another_s() || self.with(py, |value| value.is_none()).unwrap_or(false)
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.forks != forks() {
            let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(value.take());
        }
    }
}
