//! One barrier for all who wait for it: group commit.

use super::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far the log is durable.
#[derive(Default)]
pub struct Flushes {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// So many of what was appended are.
    durable: u64,
    is_running: bool,
    has_failed: bool,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once this much is durable. Whoever finds no barrier under way sends the next one, which is for all
    /// who have come by then: `appended` says how much was written, before `sync` sends it.
    ///
    /// # Errors
    /// What `sync` says, for the one who sent it. `None` for those who waited for it and for all who come later: another barrier
    /// does not bring back what one has lost.
    pub fn wait_for<E>(
        &self,
        target: u64,
        appended: impl FnOnce() -> u64,
        sync: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), Option<E>> {
        let mut state = self.state();
        loop {
            if state.has_failed {
                return Err(None);
            }
            if state.durable >= target {
                return Ok(());
            }
            if !state.is_running {
                break;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_running = true;
        drop(state);
        let appended = appended();
        let synced = sync();
        let mut state = self.state();
        state.is_running = false;
        state.has_failed |= synced.is_err();
        if synced.is_ok() {
            state.durable = state.durable.max(appended);
        }
        drop(state);
        self.ended.notify_all();
        synced.map_err(Some)
    }
}
