//! The threads on which requests run. Whoever reads waits without being one of them.

use std::future::Future;
use std::io;
use std::sync::{Mutex, PoisonError, mpsc};

use fiche::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// One for each process: what a fork leaves of it does not run.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

fn runtime() -> io::Result<&'static Runtime> {
    let mut found = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((of, runtime)) = *found
        && of == process
    {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("fiche-remote")
        .enable_all()
        .build()?;
    // For as long as the process: clients keep connections that belong to it.
    let runtime: &'static Runtime = Box::leak(Box::new(made));
    *found = Some((process, runtime));
    Ok(runtime)
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
