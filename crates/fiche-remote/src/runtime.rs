//! The threads on which requests run. Whoever reads waits without being one of them.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use fiche::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// One for each process, its parents before it: what a fork leaves of theirs does not run, and a lock may be left
/// taken.
static RUNTIMES: [OnceLock<(u32, Runtime)>; 64] = [const { OnceLock::new() }; 64];

fn runtime() -> io::Result<&'static Runtime> {
    let process = std::process::id();
    for place in &RUNTIMES {
        if place.get().is_none() {
            let made = Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("fiche-remote")
                .enable_all()
                .build()?;
            if let Err((_, unused)) = place.set((process, made)) {
                // Another thread was faster.
                unused.shutdown_background();
            }
        }
        if let Some((of, runtime)) = place.get()
            && *of == process
        {
            return Ok(runtime);
        }
    }
    Err(io::Error::other("forks of forks, 64 deep, have read by URL"))
}

/// Says what encrypts, which clients that are made later ask for.
pub(crate) fn prepare() {
    // Somebody else in the process may have said so.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How often whoever waits is asked whether to go on.
const OFTEN: Duration = Duration::from_millis(100);

static GOES_ON: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Has every thread that waits for a server ask this, ten times a second: an error ends the waiting, and is what the
/// read fails with. For a program whose users may interrupt it; what was said first stays.
pub fn on_wait(goes_on: fn() -> Result<()>) {
    let _ = GOES_ON.set(goes_on);
}

thread_local! {
    /// Why this thread shall not wait, where nobody heard of it yet.
    static STOPPED: Cell<Option<Error>> = const { Cell::new(None) };
}

/// Keeps why waiting ended, for whoever waits next in this thread, where this one has nobody to tell.
pub(crate) fn tell_later(error: Error) {
    STOPPED.set(Some(error));
}

/// Runs this and waits for it; from any thread, also from one that belongs to another runtime. Fails only where
/// waiting ends before.
pub(crate) fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    if let Some(error) = STOPPED.take() {
        return Err(error);
    }
    let (put, get) = mpsc::sync_channel(1);
    let task = runtime()?.spawn(async move {
        // Nobody waits any more where this fails.
        let _ = put.send(work.await);
    });
    let goes_on = GOES_ON.get().copied().unwrap_or(|| Ok(()));
    loop {
        match get.recv_timeout(OFTEN) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = goes_on() {
                    task.abort();
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Io(io::Error::other("a request ended without a result")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_asked_and_what_nobody_heard_is_told_later() {
        thread_local! {
            /// How often this thread was asked; others go on as long as they like.
            static ASKED: Cell<Option<u32>> = const { Cell::new(None) };
        }
        on_wait(|| match ASKED.get() {
            Some(asked) => {
                ASKED.set(Some(asked + 1));
                if asked < 2 { Ok(()) } else { Err(Error::Io(io::Error::other("enough"))) }
            }
            None => Ok(()),
        });
        ASKED.set(Some(0));
        let never = || wait(std::future::pending::<()>());
        let Err(error) = never() else { panic!("it came to an end") };
        assert!(error.to_string().contains("enough") && ASKED.get() == Some(3));
        // Who has the result at once is not asked.
        assert_eq!(wait(async { 5 }).unwrap(), 5);
        tell_later(error);
        assert!(wait(async { 6 }).unwrap_err().to_string().contains("enough"));
        assert_eq!((wait(async { 7 }).unwrap(), ASKED.get()), (7, Some(3)));
    }
}
