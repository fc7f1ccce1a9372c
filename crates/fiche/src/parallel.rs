//! Work done on several threads, its results in the order of the work.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// How many threads to use when nobody says: as many as there are.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Gives each of so many threads a part of the items, in order, and returns what they make of them.
pub(crate) fn in_parts<T: Send, O: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(&mut [T]) -> O + Sync,
) -> Vec<O> {
    let len = items.len().div_ceil(threads.max(1)).max(1);
    let mut parts = items.chunks_mut(len);
    let Some(first) = parts.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let first = work(first);
        let join = |other: std::thread::ScopedJoinHandle<'_, O>| {
            other.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        std::iter::once(first).chain(others.into_iter().map(join)).collect()
    })
}

/// A bounded pipeline. Items go in one by one and results come out in the same
/// order; at most `2 * threads + 1` items are under way, which bounds the
/// memory. One thread means none beside the caller's.
pub(crate) struct Pipeline<I, O> {
    kind: Workers<I, O>,
    /// Results of items in order of the items; `None` where one is still awaited.
    ready: VecDeque<Option<O>>,
    /// Number of the item at the front of `ready`.
    front: u64,
    ahead: usize,
}

type Outcome<O> = (u64, std::thread::Result<O>);

enum Workers<I, O> {
    Caller(Box<dyn FnMut(I) -> O + Send>),
    Threads {
        to: Option<Sender<(u64, I)>>,
        from: Receiver<Outcome<O>>,
        handles: Vec<JoinHandle<()>>,
    },
}

impl<I: Send + 'static, O: Send + 'static> Pipeline<I, O> {
    /// `make` gives each thread its worker, which may keep scratch between items.
    pub fn new<F>(threads: usize, make: impl Fn() -> F) -> Pipeline<I, O>
    where
        F: FnMut(I) -> O + Send + 'static,
    {
        let kind = if threads <= 1 {
            Workers::Caller(Box::new(make()))
        } else {
            let (to, work) = bounded::<(u64, I)>(2 * threads + 1);
            let (done, from) = unbounded::<Outcome<O>>();
            let handles = (0..threads)
                .map(|_| {
                    let (work, done, mut worker) = (work.clone(), done.clone(), make());
                    std::thread::spawn(move || {
                        for (number, item) in work {
                            let result = catch_unwind(AssertUnwindSafe(|| worker(item)));
                            if done.send((number, result)).is_err() {
                                return;
                            }
                        }
                    })
                })
                .collect();
            Workers::Threads { to: Some(to), from, handles }
        };
        let ahead = if threads <= 1 { 0 } else { 2 * threads };
        Pipeline { kind, ready: VecDeque::new(), front: 0, ahead }
    }

    /// Adds an item; returns the oldest result when the pipeline is full.
    pub fn push(&mut self, item: I) -> Option<O> {
        match &mut self.kind {
            Workers::Caller(worker) => self.ready.push_back(Some(worker(item))),
            Workers::Threads { to, .. } => {
                let number = self.front + self.ready.len() as u64;
                self.ready.push_back(None);
                // The channel has room for all that may be under way.
                let sent = to.as_ref().is_some_and(|to| to.send((number, item)).is_ok());
                debug_assert!(sent);
            }
        }
        if self.ready.len() > self.ahead { self.pop() } else { None }
    }

    /// The oldest result, waited for; `None` when nothing is under way.
    pub fn pop(&mut self) -> Option<O> {
        while let Some(None) = self.ready.front() {
            let Workers::Threads { from, .. } = &self.kind else { return None };
            let (number, result) = from.recv().ok()?;
            match result {
                Ok(result) => self.ready[(number - self.front) as usize] = Some(result),
                Err(panic) => resume_unwind(panic),
            }
        }
        self.front += u64::from(!self.ready.is_empty());
        self.ready.pop_front().flatten()
    }
}

impl<I, O> Drop for Pipeline<I, O> {
    fn drop(&mut self) {
        if let Workers::Threads { to, handles, .. } = &mut self.kind {
            *to = None;
            handles.drain(..).for_each(|handle| drop(handle.join()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_none_is_lost() {
        for threads in [1, 2, 7] {
            let mut pipeline = Pipeline::new(threads, || {
                |i: u64| {
                    std::thread::sleep(std::time::Duration::from_micros(i * 37 % 300));
                    i * 2
                }
            });
            let mut results = Vec::new();
            for i in 0..200 {
                results.extend(pipeline.push(i));
                assert!(pipeline.ready.len() <= 2 * threads);
            }
            results.extend(std::iter::from_fn(|| pipeline.pop()));
            assert!(results.into_iter().eq((0..200).map(|i| i * 2)));
        }
    }

    #[test]
    fn every_item_is_in_one_part() {
        for threads in 0..9 {
            let mut items: Vec<u64> = (0..5).collect();
            let sums = in_parts(threads, &mut items, |part| {
                part.iter_mut().for_each(|item| *item += 1);
                (part.len(), part.iter().sum::<u64>())
            });
            assert!(sums.len() <= threads.max(1));
            assert_eq!(items, [1, 2, 3, 4, 5]);
            assert_eq!(sums.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)), (5, 15));
        }
        assert!(in_parts(3, &mut [0u8; 0], |_| ()).is_empty());
    }

    #[test]
    #[should_panic(expected = "item 5")]
    fn a_panic_in_a_worker_reaches_the_caller() {
        let mut pipeline = Pipeline::new(2, || |i: u64| assert!(i != 5, "item {i}"));
        (0..10).for_each(|i| {
            pipeline.push(i);
        });
        while pipeline.pop().is_some() {}
    }

    #[test]
    fn dropping_it_half_way_ends_its_threads() {
        let mut pipeline = Pipeline::new(2, || |i: u64| i);
        (0..3).for_each(|i| {
            pipeline.push(i);
        });
    }
}
