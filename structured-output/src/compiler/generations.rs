//! Generations of states: the one that grammars are compiled in, and those before it that are in use.

use std::sync::{Arc, Weak};

use crate::engine::Engine;

/// Old generations that stay open for the grammars in use.
const MAX_OLD_GENERATIONS: usize = 2;

/// The generation that grammars are compiled in, and those before it, the oldest first.
pub(super) struct Generations {
    pub(super) current: Arc<Engine>,
    old: Vec<Weak<Engine>>,
}

/// Generations that are no longer the current one. Much is freed with them, so they end without the lock on
/// those that are open: whoever asks whether a grammar is known waits for that.
pub(super) struct Past {
    last: Arc<Engine>,
    too_old: Vec<Arc<Engine>>,
}

impl Past {
    /// Frees what can be computed again, and all of those that are too old.
    pub(super) fn end(self) {
        self.last.clear_caches();
        for generation in self.too_old {
            generation.close();
        }
    }
}

impl Generations {
    /// One without any grammar, and none before it.
    pub(super) fn new(first: Engine) -> Self {
        Self {
            current: Arc::new(first),
            old: Vec::new(),
        }
    }

    /// Starts a new generation.
    pub(super) fn start(&mut self, fresh: Engine) -> Past {
        self.old.push(Arc::downgrade(&self.current));
        let last = std::mem::replace(&mut self.current, Arc::new(fresh));
        self.old.retain(|generation| generation.strong_count() > 0);
        let num_too_many = self.old.len().saturating_sub(MAX_OLD_GENERATIONS);
        let too_old = self.old.drain(..num_too_many);
        Past {
            too_old: too_old
                .filter_map(|generation| generation.upgrade())
                .collect(),
            last,
        }
    }

    /// Closes old ones, the oldest first, until all take so many bytes together; before that they forget
    /// what can be computed again.
    pub(super) fn keep_within(&mut self, max_bytes: usize) {
        let bytes = |generation: &Weak<Engine>| {
            let generation = generation.upgrade();
            generation.map_or(0, |generation| generation.held_bytes())
        };
        let all =
            |this: &Self| this.current.held_bytes() + this.old.iter().map(bytes).sum::<usize>();
        if self.old.is_empty() || all(self) <= max_bytes {
            return;
        }
        for generation in self.old.iter().filter_map(Weak::upgrade) {
            generation.try_clear_caches();
        }
        while !self.old.is_empty() && all(self) > max_bytes {
            if let Some(oldest) = self.old.remove(0).upgrade() {
                oldest.close_at_once();
            }
        }
    }
}
