//! Generations of states: the one that grammars are compiled in, and those before it that are in use.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::engine::{Engine, Remains};

/// Old generations that stay open for the grammars in use.
const MAX_OLD_GENERATIONS: usize = 2;

/// The generation that grammars are compiled in, and those before it, the oldest first.
pub(super) struct Generations {
    pub(super) current: Arc<Engine>,
    old: Vec<Weak<Engine>>,
    /// What these hold.
    past_bytes: Arc<AtomicUsize>,
}

/// What is to be freed of generations that are no longer the current one. That is much, so it is done without the lock
/// on those that are open: whoever asks whether a grammar is known waits for that.
#[derive(Default)]
pub(super) struct Past {
    last: Option<Arc<Engine>>,
    too_old: Vec<Arc<Engine>>,
    remains: Vec<Remains>,
}

impl Past {
    /// Frees it.
    pub(super) fn end(self) {
        if let Some(last) = self.last {
            last.end_as_current();
        }
        for closed in self.too_old {
            drop(closed.empty());
        }
        drop(self.remains);
    }
}

impl Generations {
    /// One without any grammar, and none before it.
    pub(super) fn new(first: Engine) -> Self {
        let past_bytes = Arc::default();
        Self {
            current: Arc::new(first.one_of(&past_bytes)),
            old: Vec::new(),
            past_bytes,
        }
    }

    /// Starts a new generation.
    pub(super) fn start(&mut self, fresh: Engine) -> Past {
        self.old.push(Arc::downgrade(&self.current));
        let fresh = Arc::new(fresh.one_of(&self.past_bytes));
        let last = std::mem::replace(&mut self.current, fresh);
        self.old.retain(|generation| generation.strong_count() > 0);
        let num_too_many = self.old.len().saturating_sub(MAX_OLD_GENERATIONS);
        let too_old = self.old.drain(..num_too_many);
        Past {
            too_old: too_old
                .filter_map(|generation| generation.upgrade())
                .collect(),
            last: Some(last),
            ..Past::default()
        }
    }

    /// Forgets the current one: whoever is there goes on, and is not counted among those before it.
    pub(super) fn replace(&mut self, fresh: Engine) {
        self.current = Arc::new(fresh.one_of(&self.past_bytes));
    }

    /// Empties those before the current one that are closed, and then others, the oldest first, until all take so many
    /// bytes together; before that they forget what can be computed again.
    pub(super) fn keep_within(&mut self, max_bytes: usize) -> Past {
        let all = || self.past_bytes.load(Ordering::Relaxed);
        let mut open = VecDeque::new();
        let mut past = Past::default();
        for generation in self.old.iter().filter_map(Weak::upgrade) {
            match generation.is_closed() {
                true => past.too_old.push(generation),
                false => open.push_back(generation),
            }
        }
        past.remains
            .extend(past.too_old.iter().filter_map(|closed| closed.empty()));
        if all() > max_bytes {
            open.iter()
                .for_each(|generation| generation.try_clear_caches());
        }
        while all() > max_bytes
            && let Some(oldest) = open.pop_front()
        {
            past.remains.extend(oldest.empty());
            past.too_old.push(oldest);
        }
        self.old = open.iter().map(Arc::downgrade).collect();
        past
    }
}
