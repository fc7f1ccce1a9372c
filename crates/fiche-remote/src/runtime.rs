//! The threads on which requests run. Whoever reads waits without being one of them.

use std::future::Future;
use std::io;
use std::sync::{OnceLock, mpsc};

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

/// Runs this and waits for it; from any thread, also from one that belongs to another runtime.
pub(crate) fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (put, get) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // Nobody waits any more where this fails.
        let _ = put.send(work.await);
    });
    get.recv().map_err(|_| Error::Io(io::Error::other("a request ended without a result")))
}
