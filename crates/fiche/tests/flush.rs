//! The group commit of volumes in every order in which threads may come: what is said to be durable is, and nobody
//! waits for ever.

mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

#[path = "../src/volume/flush.rs"]
mod flush;

use flush::Flushes;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread;

/// A device whose barriers make durable what was written before they began. The one of this number fails, and what it loses does
/// not become durable by others that the system says nothing of.
struct Device {
    written: AtomicU64,
    durable: AtomicU64,
    barriers: AtomicU64,
    failing: u64,
}

impl Device {
    fn sync(&self) -> Result<(), ()> {
        let written = self.written.load(SeqCst);
        let number = self.barriers.fetch_add(1, SeqCst);
        if number < self.failing {
            self.durable.fetch_max(written, SeqCst);
        }
        if number == self.failing { Err(()) } else { Ok(()) }
    }
}

fn run(threads: u64, failing: u64) {
    let mut model = loom::model::Builder::new();
    // All orders of two threads; of three those in which a thread is interrupted three times at most.
    model.preemption_bound = (threads > 2).then_some(3);
    model.check(move || {
        let device = Arc::new(Device {
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            barriers: AtomicU64::new(0),
            failing,
        });
        let flushes = Arc::new(Flushes::default());
        let flush = |device: Arc<Device>, flushes: Arc<Flushes>| {
            let target = device.written.fetch_add(1, SeqCst) + 1;
            let written = || device.written.load(SeqCst);
            let flushed = flushes.wait_for(target, written, || device.sync());
            if flushed.is_ok() {
                let durable = device.durable.load(SeqCst);
                assert!(durable >= target, "{target} was told to be durable, {durable} is");
            }
        };
        let spawned: Vec<_> = (1..threads)
            .map(|_| {
                let (device, flushes) = (device.clone(), flushes.clone());
                thread::spawn(move || flush(device, flushes))
            })
            .collect();
        flush(device.clone(), flushes);
        spawned.into_iter().for_each(|thread| thread.join().unwrap());
        // One for all who have come, never more than one for each.
        assert!((1..=threads).contains(&device.barriers.load(SeqCst)));
    });
}

#[test]
fn what_is_told_to_be_durable_is() {
    run(2, u64::MAX);
    run(3, u64::MAX);
}

#[test]
fn after_a_barrier_that_failed_nothing_is_told_to_be_durable() {
    run(2, 0);
    run(3, 0);
    run(3, 1);
}
