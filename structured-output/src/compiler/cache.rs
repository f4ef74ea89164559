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
    Ended {
        end: End,
        last_use: u64,
        bytes: usize,
    },
}

/// How a compilation ended.
#[derive(Clone)]
enum End {
    Done {
        outcome: Outcome,
        /// It took little.
        is_light: bool,
    },
    /// It was done with little, in memory that is gone: it is to be done again.
    Light,
    /// It takes more than so many steps: who has no more need not try.
    Dear(u64),
}

/// What a caller is to do.
pub(super) enum Turn<'a, K: std::hash::Hash + Eq> {
    /// The outcome is known.
    Known(Outcome),
    /// It is the caller's to compile.
    Compile(Ticket<'a, K>),
    /// It takes more than the caller has: more steps, or to wait for another one that compiles it.
    TooDear,
}

/// The right, and the duty, to compile: dropped without an outcome, it passes to another caller.
pub(super) struct Ticket<'a, K: std::hash::Hash + Eq> {
    cache: &'a Cache<K>,
    key: Arc<K>,
    is_light: bool,
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

    /// The outcome for a key, or the task to make it, where that may take `max_steps`. Waits while another
    /// caller compiles the same key, if it `waits` at all, unless the flag is set meanwhile.
    pub(super) fn turn(
        &self,
        key: &Arc<K>,
        max_steps: u64,
        waits: bool,
        cancel: &CancelFlag,
    ) -> Turn<'_, K> {
        /// How often a waiting caller looks at its flag, which wakes nobody.
        const CANCEL_POLL: Duration = Duration::from_millis(20);
        let mut entries = self.lock();
        let mut is_light = false;
        loop {
            if cancel.is_cancelled() {
                return Turn::Known(Err(CompileError::Cancelled));
            }
            match entries.touch(key) {
                Some(Some(End::Done { outcome, .. })) => return Turn::Known(outcome),
                Some(Some(End::Light)) => {
                    is_light = true;
                    entries.remove(key);
                }
                Some(Some(End::Dear(steps))) if steps >= max_steps => return Turn::TooDear,
                Some(Some(End::Dear(_))) => entries.remove(key),
                Some(None) if !waits => return Turn::TooDear,
                Some(None) => {
                    let waited = self.ended.wait_timeout(entries, CANCEL_POLL);
                    entries = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    entries.by_key.insert(Arc::clone(key), Entry::Running);
                    return Turn::Compile(Ticket {
                        cache: self,
                        key: Arc::clone(key),
                        is_light,
                        open: true,
                    });
                }
            }
        }
    }

    /// The outcome for a key, where it is known.
    pub(super) fn known(&self, key: &K) -> Option<Outcome> {
        match self.lock().touch(key)?? {
            End::Done { outcome, .. } => Some(outcome),
            End::Light | End::Dear(_) => None,
        }
    }

    /// Whether the outcome for a key is known, or takes little to be known again. Its last use stays.
    pub(super) fn is_known(&self, key: &K) -> bool {
        self.has_end(key, |end| !matches!(end, End::Dear(_)))
    }

    /// Whether that will be so after [`forget_grammars`](Self::forget_grammars).
    pub(super) fn is_light(&self, key: &K) -> bool {
        self.has_end(key, End::is_light)
    }

    fn has_end(&self, key: &K, is: impl Fn(&End) -> bool) -> bool {
        let entries = self.lock();
        let entry = entries.by_key.get(key);
        matches!(entry, Some(Entry::Ended { end, .. }) if is(end))
    }

    /// Forgets all outcomes, but not which of them took little.
    pub(super) fn forget_grammars(&self) {
        let mut entries = self.lock();
        let Entries {
            by_key,
            by_use,
            bytes: sum,
            ..
        } = &mut *entries;
        by_key.retain(|_, entry| {
            let Entry::Ended {
                end,
                last_use,
                bytes,
            } = entry
            else {
                return true;
            };
            let is_light = end.is_light();
            match is_light {
                true => *end = End::Light,
                false => {
                    by_use.remove(last_use);
                    *sum -= *bytes;
                }
            }
            is_light
        });
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

impl End {
    /// Whether it took little.
    fn is_light(&self) -> bool {
        match self {
            Self::Done { is_light, .. } => *is_light,
            Self::Light => true,
            Self::Dear(_) => false,
        }
    }
}

impl<K: std::hash::Hash + Eq> Entries<K> {
    /// The entry of a key, as used now: its end, or `Some(None)` while it is being compiled.
    fn touch(&mut self, key: &K) -> Option<Option<End>> {
        match self.by_key.get_mut(key)? {
            Entry::Running => Some(None),
            Entry::Ended { end, last_use, .. } => {
                self.uses += 1;
                if let Some(key) = self.by_use.remove(last_use) {
                    self.by_use.insert(self.uses, key);
                }
                *last_use = self.uses;
                Some(Some(end.clone()))
            }
        }
    }

    /// Forgets a key whose compilation has ended.
    fn remove(&mut self, key: &K) {
        if let Some(Entry::Ended {
            last_use, bytes, ..
        }) = self.by_key.remove(key)
        {
            self.by_use.remove(&last_use);
            self.bytes -= bytes;
        }
    }

    fn insert(&mut self, key: Arc<K>, end: End, bytes: usize, max_bytes: usize) {
        if bytes > max_bytes {
            // Nor does it drive out all others.
            self.by_key.remove(&key);
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, Arc::clone(&key));
        let last_use = self.uses;
        self.by_key.insert(
            key,
            Entry::Ended {
                end,
                last_use,
                bytes,
            },
        );
        while self.bytes > max_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            if let Some(Entry::Ended { bytes, .. }) = self.by_key.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

impl<K: std::hash::Hash + Eq> Ticket<'_, K> {
    /// Whether it was done before, with little.
    pub(super) fn is_light(&self) -> bool {
        self.is_light
    }

    /// Hands in the outcome, which is kept where `bytes`, what keeping it costs, fit; and whether it took
    /// little.
    pub(super) fn finish(self, outcome: &Outcome, bytes: usize, is_light: bool) {
        let outcome = outcome.clone();
        self.end(End::Done { outcome, is_light }, bytes);
    }

    /// Says that it takes more than `max_steps`, which is kept as an outcome is.
    pub(super) fn give_up(self, max_steps: u64, bytes: usize) {
        self.end(End::Dear(max_steps), bytes);
    }

    fn end(mut self, end: End, bytes: usize) {
        self.open = false;
        let mut entries = self.cache.lock();
        let (key, max) = (Arc::clone(&self.key), self.cache.max_bytes);
        entries.insert(key, end, bytes, max);
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
        match cache.turn(&Arc::new(key), 100, true, &CancelFlag::new()) {
            Turn::Known(_) | Turn::TooDear => false,
            Turn::Compile(ticket) => {
                ticket.finish(&failure(), 10, false);
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
        let Turn::Compile(ticket) = cache.turn(&Arc::new(2), 100, true, &CancelFlag::new()) else {
            panic!("nothing is known yet");
        };
        ticket.finish(&failure(), 9, false);
        assert!(must_compile(&cache, 1) && cache.is_known(&2));
    }

    #[test]
    fn others_wait_for_the_one_that_compiles() {
        let cache = Cache::new(100);
        let Turn::Compile(ticket) = cache.turn(&Arc::new(1), 100, true, &CancelFlag::new()) else {
            panic!("nothing is known yet");
        };
        assert!(!cache.is_known(&1));
        let turn = cache.turn(&Arc::new(1), 100, false, &CancelFlag::new());
        assert!(matches!(turn, Turn::TooDear));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| must_compile(&cache, 1));
            ticket.finish(&failure(), 10, false);
            assert!(!waiting.join().unwrap());
        });
    }

    #[test]
    fn a_dropped_ticket_passes_on_and_a_flag_ends_the_wait() {
        let cache = Cache::new(100);
        let Turn::Compile(ticket) = cache.turn(&Arc::new(1), 100, true, &CancelFlag::new()) else {
            panic!("nothing is known yet");
        };
        let cancelled = CancelFlag::new();
        cancelled.cancel();
        let turn = cache.turn(&Arc::new(1), 100, true, &cancelled);
        assert!(matches!(turn, Turn::Known(Err(CompileError::Cancelled))));
        drop(ticket);
        assert!(must_compile(&cache, 1));
    }

    #[test]
    fn what_took_too_much_is_tried_again_with_more() {
        let cache = Cache::new(30);
        let turn = |max_steps| cache.turn(&Arc::new(1), max_steps, true, &CancelFlag::new());
        let Turn::Compile(ticket) = turn(50) else {
            panic!("nothing is known yet");
        };
        ticket.give_up(50, 10);
        assert!(!cache.is_known(&1) && cache.known(&1).is_none());
        assert!(matches!(turn(50), Turn::TooDear));
        assert_eq!(cache.memory_bytes(), 10);
        let Turn::Compile(ticket) = turn(51) else {
            panic!("it has more steps");
        };
        assert_eq!(cache.memory_bytes(), 0);
        ticket.finish(&failure(), 20, false);
        assert!(matches!(turn(0), Turn::Known(_)));
        assert_eq!(cache.memory_bytes(), 20);
    }

    #[test]
    fn what_took_little_is_remembered_without_its_outcome() {
        let cache = Cache::new(100);
        let turn = |key: u32| cache.turn(&Arc::new(key), 0, false, &CancelFlag::new());
        for key in [1, 2] {
            let Turn::Compile(ticket) = turn(key) else {
                panic!("nothing is known yet");
            };
            assert!(!ticket.is_light());
            ticket.finish(&failure(), 10, key == 1);
        }
        assert!(cache.is_light(&1) && cache.is_known(&2) && !cache.is_light(&2));
        cache.forget_grammars();
        assert!(cache.is_known(&1) && !cache.is_known(&2));
        assert!(cache.known(&1).is_none());
        assert_eq!(cache.memory_bytes(), 10);
        let Turn::Compile(ticket) = turn(1) else {
            panic!("its outcome is gone");
        };
        assert!(ticket.is_light() && cache.memory_bytes() == 0);
        ticket.finish(&failure(), 10, true);
        // Over and over.
        cache.forget_grammars();
        cache.forget_grammars();
        assert!(cache.is_light(&1));
        cache.clear();
        assert!(!cache.is_known(&1) && cache.memory_bytes() == 0);
    }
}
