//! The queue of a connection in every order in which threads may come: each request is done once, and nobody waits for
//! ever.

mod sync {
    pub use loom::sync::atomic::{AtomicUsize, Ordering};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

#[path = "../src/nbd/queue.rs"]
mod queue;

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;
use queue::{Pending, Queue, Work};

/// A request: its bytes, whether it reads, and whether it waits for long.
#[derive(Clone, Copy)]
struct Job(usize, bool, bool);

impl Work for Job {
    fn is_first(&self) -> bool {
        self.1
    }

    fn waits_for(&self) -> Duration {
        if self.2 { Duration::from_secs(1) } else { Duration::ZERO }
    }
}

/// As a session does: one thread takes requests, others do them, and when there are no more it waits for those that are under way.
fn run(jobs: &'static [Job], workers: &'static [bool]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let queue: Arc<Queue<Job>> = Arc::default();
        let pending: Arc<Pending> = Arc::default();
        let done = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = workers
            .iter()
            .map(|&is_more| {
                let (queue, pending, done) = (queue.clone(), pending.clone(), done.clone());
                thread::spawn(move || {
                    while let Some(job) = queue.next(is_more) {
                        done.fetch_add(job.0, SeqCst);
                        pending.remove(job.0);
                    }
                })
            })
            .collect();
        for &job in jobs {
            pending.add(job.0);
            queue.push(job);
        }
        pending.wait();
        let sum: usize = jobs.iter().map(|job| job.0).sum();
        assert_eq!(done.load(SeqCst), sum);
        queue.close();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(done.load(SeqCst), sum, "nothing is done twice");
        assert!(!pending.is_one());
    });
}

#[test]
fn each_request_is_done_once_and_nobody_waits_for_ever() {
    run(&[Job(1, true, false), Job(10, false, false), Job(100, true, false)], &[false, false]);
}

#[test]
fn more_threads_help_where_requests_wait() {
    run(&[Job(1, true, true), Job(10, false, false)], &[false, true]);
    run(&[Job(1, false, true), Job(10, true, true)], &[false, true]);
}

#[test]
fn what_is_too_much_at_once_is_taken_later() {
    const HALF: usize = 40 << 20;
    run(&[Job(HALF, false, false), Job(HALF + 1, false, false), Job(3, true, false)], &[false]);
}

#[test]
fn reads_go_first() {
    loom::model(|| {
        let queue: Queue<Job> = Queue::default();
        for job in
            [Job(1, false, false), Job(2, true, false), Job(3, false, false), Job(4, true, false)]
        {
            queue.push(job);
        }
        queue.close();
        let order: Vec<usize> = std::iter::from_fn(|| queue.next(false)).map(|job| job.0).collect();
        assert_eq!(order, [2, 4, 1, 3]);
    });
}
