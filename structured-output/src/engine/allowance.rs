//! How much of others' time a matcher may take.

use std::sync::atomic::{AtomicU64, Ordering};

/// No limit but that of each call.
const UNLIMITED: u64 = u64::MAX;

/// Steps that a matcher's calls may together still take.
#[derive(Debug)]
pub(crate) struct Allowance(AtomicU64);

impl Allowance {
    /// So many; `None` for no limit but that of each call.
    pub(crate) fn new(steps: Option<u64>) -> Self {
        Self(AtomicU64::new(steps.unwrap_or(UNLIMITED)))
    }

    /// What is left.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.0.load(Ordering::Relaxed);
        (left != UNLIMITED).then_some(left)
    }

    /// Takes some.
    pub(super) fn spend(&self, steps: u64) {
        if let Some(left) = self.left() {
            self.0.store(left.saturating_sub(steps), Ordering::Relaxed);
        }
    }
}

impl Clone for Allowance {
    fn clone(&self) -> Self {
        Self::new(self.left())
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new(None)
    }
}
