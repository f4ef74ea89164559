//! What was compiled before: by specification, each compiled once at a time, least recently used
//! goes first.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use crate::error::CompileError;
use crate::grammar::CompiledGrammar;
use crate::options::CancelFlag;

/// The outcome of a compilation.
pub(super) type Outcome = Result<CompiledGrammar, CompileError>;

/// A cache of outcomes by key. Keys are compared in full.
pub(super) struct Cache<K> {
    entries: Mutex<Entries<K>>,
    /// Told whenever a compilation ends.
    ended: Condvar,
    max_bytes: usize,
}

struct Entries<K> {
    by_key: HashMap<Arc<K>, Entry>,
    /// Keys of finished compilations by last use.
    by_use: BTreeMap<u64, Arc<K>>,
    uses: u64,
    bytes: usize,
}

enum Entry {
    Running,
    Done {
        outcome: Outcome,
        last_use: u64,
        bytes: usize,
    },
}

/// What a caller is to do.
pub(super) enum Turn<'a, K: std::hash::Hash + Eq> {
    /// The outcome is known.
    Known(Outcome),
    /// It is the caller's to compile.
    Compile(Ticket<'a, K>),
}

/// The right, and the duty, to compile: dropped without an outcome, it passes to another caller.
pub(super) struct Ticket<'a, K: std::hash::Hash + Eq> {
    cache: &'a Cache<K>,
    key: Arc<K>,
    open: bool,
}

impl<K: std::hash::Hash + Eq> Cache<K> {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            entries: Mutex::new(Entries {
                by_key: HashMap::new(),
                by_use: BTreeMap::new(),
                uses: 0,
                bytes: 0,
            }),
            ended: Condvar::new(),
            max_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome for a key, or the task to make it. Waits while another caller compiles the same
    /// key, unless the flag is set meanwhile.
    pub(super) fn turn(&self, key: &Arc<K>, cancel: &CancelFlag) -> Turn<'_, K> {
        /// How often a waiting caller looks at its flag, which wakes nobody.
        const CANCEL_POLL: Duration = Duration::from_millis(20);
        let mut entries = self.lock();
        loop {
            if cancel.is_cancelled() {
                return Turn::Known(Err(CompileError::Cancelled));
            }
            match entries.touch(key) {
                Some(Some(outcome)) => return Turn::Known(outcome),
                Some(None) => {
                    let waited = self.ended.wait_timeout(entries, CANCEL_POLL);
                    entries = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    entries.by_key.insert(Arc::clone(key), Entry::Running);
                    return Turn::Compile(Ticket {
                        cache: self,
                        key: Arc::clone(key),
                        open: true,
                    });
                }
            }
        }
    }

    /// The outcome for a key, where it is known.
    pub(super) fn known(&self, key: &K) -> Option<Outcome> {
        self.lock().touch(key).flatten()
    }

    /// Whether the outcome for a key is known. Its last use stays.
    pub(super) fn is_known(&self, key: &K) -> bool {
        matches!(self.lock().by_key.get(key), Some(Entry::Done { .. }))
    }

    /// Forgets all outcomes.
    pub(super) fn clear(&self) {
        let mut entries = self.lock();
        entries
            .by_key
            .retain(|_, entry| matches!(entry, Entry::Running));
        entries.by_use.clear();
        entries.bytes = 0;
    }

    /// Bytes held: of the outcomes and their keys.
    pub(super) fn memory_bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl<K: std::hash::Hash + Eq> Entries<K> {
    /// The entry of a key, as used now: its outcome, or `Some(None)` while it is being made.
    fn touch(&mut self, key: &K) -> Option<Option<Outcome>> {
        match self.by_key.get_mut(key)? {
            Entry::Running => Some(None),
            Entry::Done {
                outcome, last_use, ..
            } => {
                self.uses += 1;
                if let Some(key) = self.by_use.remove(last_use) {
                    self.by_use.insert(self.uses, key);
                }
                *last_use = self.uses;
                Some(Some(outcome.clone()))
            }
        }
    }

    fn insert(&mut self, key: Arc<K>, outcome: Outcome, bytes: usize, max_bytes: usize) {
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, Arc::clone(&key));
        let last_use = self.uses;
        self.by_key.insert(
            key,
            Entry::Done {
                outcome,
                last_use,
                bytes,
            },
        );
        while self.bytes > max_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            if let Some(Entry::Done { bytes, .. }) = self.by_key.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

impl<K: std::hash::Hash + Eq> Ticket<'_, K> {
    /// Hands in the outcome, which is kept where `bytes`, what keeping it costs, fit.
    pub(super) fn finish(mut self, outcome: &Outcome, bytes: usize) {
        self.open = false;
        let mut entries = self.cache.lock();
        let (key, max) = (Arc::clone(&self.key), self.cache.max_bytes);
        entries.insert(key, outcome.clone(), bytes, max);
        drop(entries);
        self.cache.ended.notify_all();
    }
}

impl<K: std::hash::Hash + Eq> Drop for Ticket<'_, K> {
    fn drop(&mut self) {
        if self.open {
            self.cache.lock().by_key.remove(&self.key);
            self.cache.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Outcome {
        Err(CompileError::EmptyChoice)
    }

    fn must_compile(cache: &Cache<u32>, key: u32) -> bool {
        match cache.turn(&Arc::new(key), &CancelFlag::new()) {
            Turn::Known(_) => false,
            Turn::Compile(ticket) => {
                ticket.finish(&failure(), 10);
                true
            }
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(30);
        for key in [1, 2, 3] {
            assert!(must_compile(&cache, key));
        }
        assert!(!must_compile(&cache, 1));
        assert!(must_compile(&cache, 4), "a new one drives out the second");
        assert_eq!(cache.memory_bytes(), 30);
        assert!(cache.is_known(&1) && !cache.is_known(&2));
        assert!(!must_compile(&cache, 1) && !must_compile(&cache, 3));
        assert!(must_compile(&cache, 2));
        cache.clear();
        assert_eq!(cache.memory_bytes(), 0);
        assert!(must_compile(&cache, 2));
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let cache = Cache::new(9);
        assert!(must_compile(&cache, 1) && must_compile(&cache, 1));
        assert_eq!(cache.memory_bytes(), 0);
    }

    #[test]
    fn others_wait_for_the_one_that_compiles() {
        let cache = Cache::new(100);
        let Turn::Compile(ticket) = cache.turn(&Arc::new(1), &CancelFlag::new()) else {
            panic!("nothing is known yet");
        };
        assert!(!cache.is_known(&1));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| must_compile(&cache, 1));
            ticket.finish(&failure(), 10);
            assert!(!waiting.join().unwrap());
        });
    }

    #[test]
    fn a_dropped_ticket_passes_on_and_a_flag_ends_the_wait() {
        let cache = Cache::new(100);
        let Turn::Compile(ticket) = cache.turn(&Arc::new(1), &CancelFlag::new()) else {
            panic!("nothing is known yet");
        };
        let cancelled = CancelFlag::new();
        cancelled.cancel();
        let turn = cache.turn(&Arc::new(1), &cancelled);
        assert!(matches!(turn, Turn::Known(Err(CompileError::Cancelled))));
        drop(ticket);
        assert!(must_compile(&cache, 1));
    }
}
