//! What of a connection is under way, and who does it.

use std::collections::VecDeque;
use std::time::Duration;

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, PoisonError};

/// Requests of a connection that are under way, and bytes of them: more are not read until some are done.
const MOST_REQUESTS: usize = 64;
const MOST_PENDING: usize = 64 << 20;

/// Something to do.
pub trait Work {
    /// Whether it goes before others.
    fn is_first(&self) -> bool;

    /// How long ago it came.
    fn waits_for(&self) -> Duration;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be done by any thread of a connection: reads first. Others are no hindrance to it, and it is none to them.
pub struct Queue<J> {
    waiting: Mutex<Waiting<J>>,
    some: Condvar,
    /// More threads than processors wait here: they are only of use while others wait for a device.
    slow: Condvar,
}

struct Waiting<J> {
    first: VecDeque<J>,
    others: VecDeque<J>,
    is_closed: bool,
}

impl<J: Work> Waiting<J> {
    /// Whether requests are done so slowly that they can hardly be what keeps the processors busy.
    fn is_slow(&self) -> bool {
        const EACH: Duration = Duration::from_micros(10);
        let since = [self.first.front(), self.others.front()].into_iter().flatten();
        let oldest = since.map(Work::waits_for).max().unwrap_or_default();
        oldest > EACH * (self.first.len() + self.others.len()) as u32
    }
}

impl<J> Default for Queue<J> {
    fn default() -> Queue<J> {
        let (first, others) = (VecDeque::new(), VecDeque::new());
        let waiting = Mutex::new(Waiting { first, others, is_closed: false });
        Queue { waiting, some: Condvar::new(), slow: Condvar::new() }
    }
}

impl<J: Work> Queue<J> {
    /// Adds one; whether more threads would be of use.
    pub fn push(&self, job: J) -> bool {
        let mut waiting = locked(&self.waiting);
        match job.is_first() {
            true => waiting.first.push_back(job),
            false => waiting.others.push_back(job),
        }
        let is_slow = waiting.is_slow();
        drop(waiting);
        self.some.notify_one();
        if is_slow {
            self.slow.notify_one();
        }
        is_slow
    }

    /// The next one; `None` when there is none and will be none. For one of `more` threads than processors, one that waits too long.
    pub fn next(&self, is_more: bool) -> Option<J> {
        let mut waiting = locked(&self.waiting);
        loop {
            if !is_more || waiting.is_slow() {
                let next = waiting.first.pop_front();
                if let Some(job) = next.or_else(|| waiting.others.pop_front()) {
                    return Some(job);
                }
            }
            if waiting.is_closed {
                return None;
            }
            let signal = if is_more { &self.slow } else { &self.some };
            waiting = signal.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// There will be no more.
    pub fn close(&self) {
        locked(&self.waiting).is_closed = true;
        self.some.notify_all();
        self.slow.notify_all();
    }
}

/// What of a connection is under way.
#[derive(Default)]
pub struct Pending {
    requests: AtomicUsize,
    counts: Mutex<(usize, usize)>,
    less: Condvar,
}

impl Pending {
    /// One more, of so many bytes; waits while there are too many.
    pub fn add(&self, bytes: usize) {
        let mut counts = locked(&self.counts);
        while counts.0 >= MOST_REQUESTS || (counts.0 > 0 && counts.1 + bytes > MOST_PENDING) {
            counts = self.less.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        *counts = (counts.0 + 1, counts.1 + bytes);
        self.requests.store(counts.0, Ordering::Release);
    }

    /// It was done.
    pub fn remove(&self, bytes: usize) {
        let mut counts = locked(&self.counts);
        *counts = (counts.0 - 1, counts.1 - bytes);
        self.requests.store(counts.0, Ordering::Release);
        self.less.notify_all();
    }

    /// Whether there is just one.
    pub fn is_one(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 1
    }

    /// Waits until there are none.
    pub fn wait(&self) {
        let mut counts = locked(&self.counts);
        while counts.0 > 0 {
            counts = self.less.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
