//! Locks that a panic elsewhere doesn't close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The data behind a lock, also after a panic of another holder. For data that no code under the
/// lock leaves half changed, or that the next holder overwrites.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
