//! How many grammars may have memory of their own at a time: each can take as much as all that share
//! theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most grammars with memory of their own.
const MAX_GRAMMARS: usize = 4;

/// Counts them. Clones are one count.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnMemory {
    in_use: Arc<AtomicUsize>,
}

/// Leave for one grammar, until it is dropped.
#[derive(Debug)]
pub(super) struct OwnMemoryPermit {
    in_use: Arc<AtomicUsize>,
}

impl OwnMemory {
    /// Leave for one more, where that is not too many.
    pub(super) fn permit(&self) -> Option<OwnMemoryPermit> {
        let one_more = |in_use: usize| (in_use < MAX_GRAMMARS).then_some(in_use + 1);
        self.in_use
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(OwnMemoryPermit {
            in_use: Arc::clone(&self.in_use),
        })
    }
}

impl Drop for OwnMemoryPermit {
    fn drop(&mut self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_dropped_is_there_for_another() {
        let memory = OwnMemory::default();
        let mut permits: Vec<_> = (0..MAX_GRAMMARS)
            .map(|_| memory.permit().unwrap())
            .collect();
        assert!(memory.clone().permit().is_none());
        permits.pop();
        permits.push(memory.permit().unwrap());
        assert!(memory.permit().is_none());
    }
}
