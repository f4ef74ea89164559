//! Memory of one grammar alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leave for a generation that belongs to one grammar, until it is dropped.
pub(crate) struct OwnMemory {
    num_own: Arc<AtomicUsize>,
}

impl OwnMemory {
    /// Most grammars with memory of their own.
    pub(crate) const MAX: usize = 1;

    /// For a grammar that has none yet; `None` where as many as may have some.
    pub(crate) fn new(num_own: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count| (count < Self::MAX).then_some(count + 1);
        let taken = num_own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Self {
            num_own: Arc::clone(num_own),
        })
    }

    /// For a grammar that has one already, whose place this takes.
    pub(crate) fn next(num_own: &Arc<AtomicUsize>) -> Self {
        num_own.fetch_add(1, Ordering::Relaxed);
        Self {
            num_own: Arc::clone(num_own),
        }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        self.num_own.fetch_sub(1, Ordering::Relaxed);
    }
}
