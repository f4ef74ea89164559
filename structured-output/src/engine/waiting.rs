//! Matchers that wait for an automaton's lock, for whom compilations make room.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many matchers wait for a lock.
#[derive(Default)]
pub(super) struct Waiting {
    count: Mutex<usize>,
    none: Condvar,
}

impl Waiting {
    /// Counts the caller as a waiting matcher for as long as `wait` takes.
    pub(super) fn counted<T>(&self, wait: impl FnOnce() -> T) -> T {
        *self.count() += 1;
        let waited = wait();
        let mut count = self.count();
        *count -= 1;
        if *count == 0 {
            self.none.notify_all();
        }
        waited
    }

    /// Sleeps until no matcher waits.
    pub(super) fn sleep_until_none(&self) {
        let waiting = self.none.wait_while(self.count(), |count| *count > 0);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    /// The count, locked.
    pub(super) fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
