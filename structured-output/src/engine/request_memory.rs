//! What the matchers of one request take together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Engine;

/// What the matchers of one request have added to memory that all grammars share, and which of them has memory of its
/// own. Clones are one: give one to each matcher of the request, such as those of its `n` answers, by
/// [`GrammarMatcher::set_request_memory`](crate::GrammarMatcher::set_request_memory).
///
/// A request that adds more than its share goes on apart, and only one of its matchers at a time has memory of its own: so
/// no request fills all memory that there is for grammars, however many answers it has.
#[derive(Debug, Clone, Default)]
pub struct RequestMemory(Arc<Taken>);

#[derive(Default)]
struct Taken {
    /// Bytes that were added to memory that all share.
    shared_bytes: AtomicUsize,
    /// The memory that belongs to one of the matchers, as long as there is some.
    own: Mutex<Weak<Engine>>,
}

impl RequestMemory {
    /// Bytes that were added to memory that all share.
    pub(super) fn shared_bytes(&self) -> usize {
        self.0.shared_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of more of them.
    pub(super) fn add_shared_bytes(&self, bytes: usize) {
        self.0.shared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether one of the matchers has memory of its own, and it is not this.
    pub(crate) fn has_own_beside(&self, engine: &Engine) -> bool {
        let own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.strong_count() > 0 && !std::ptr::eq(own.as_ptr(), engine)
    }

    /// Takes note of the memory that one of them has.
    pub(crate) fn set_own(&self, engine: &Arc<Engine>) {
        let mut own = self.0.own.lock().unwrap_or_else(PoisonError::into_inner);
        *own = Arc::downgrade(engine);
    }
}

impl std::fmt::Debug for Taken {
    /// What was taken isn't shown: a call that changes nothing else adds to it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").finish_non_exhaustive()
    }
}
