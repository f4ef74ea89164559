//! One generation of the engine: a tokenizer's index and the automaton that all grammars compiled
//! in this generation share.
//!
//! States never move and are never freed within a generation, so ids stay valid without counting
//! references. Their memory is bounded by generations: once the states exceed their share, the
//! compiler starts a new one, and the old one goes with its last grammar. Of old ones only a few are
//! kept open: the matchers of one that is closed fail, and their grammars have to be compiled anew.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::automaton::TokenAutomaton;
use crate::error::MatcherError;
use crate::index::TokenizerIndex;
use crate::lexical::{Fuel, OutOfFuel};
use crate::options::{CompilerOptions, Limits};

/// A generation. `Send + Sync`; grammars and matchers hold it by `Arc`.
pub(crate) struct Engine {
    index: Arc<TokenizerIndex>,
    limits: Limits,
    shares: Shares,
    automaton: Mutex<TokenAutomaton>,
    /// Matchers that wait for the automaton: compilations let them pass.
    num_waiting: AtomicUsize,
    is_closed: AtomicBool,
}

/// How `cache_bytes` is shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Masks and what else can be computed again: dropped when it exceeds this.
    pub(crate) masks: usize,
    /// States: when they exceed this, the next compilation starts a new generation.
    pub(crate) states: usize,
    /// States: when they exceed this, matchers that need more of them fail.
    pub(crate) states_at_most: usize,
    /// Compiled grammars and failures, with their sources.
    pub(crate) grammars: usize,
}

impl Shares {
    pub(crate) fn of(cache_bytes: usize) -> Self {
        Self {
            masks: cache_bytes / 2,
            states: cache_bytes / 4,
            states_at_most: cache_bytes / 8 * 3,
            grammars: cache_bytes / 8,
        }
    }
}

impl Engine {
    pub(crate) fn new(index: Arc<TokenizerIndex>, options: &CompilerOptions) -> Self {
        Self {
            automaton: Mutex::new(TokenAutomaton::new(
                Arc::clone(&index),
                options.limits.max_items,
            )),
            num_waiting: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            index,
            limits: options.limits.clone(),
            shares: Shares::of(options.cache_bytes),
        }
    }

    pub(crate) fn index(&self) -> &Arc<TokenizerIndex> {
        &self.index
    }

    /// The automaton, for as long as the guard lives: keep that short.
    pub(crate) fn lock(&self) -> MutexGuard<'_, TokenAutomaton> {
        // Every change leaves the automaton whole before the next can panic.
        self.automaton
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The automaton for a slice of a compilation, once no matcher waits for it. A lock that is
    /// given up and taken again at once mostly goes to the same thread; without this, a matcher
    /// could wait for many slices.
    pub(crate) fn lock_for_slice(&self) -> MutexGuard<'_, TokenAutomaton> {
        while self.num_waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        self.lock()
    }

    /// Does a matcher's work within its limits.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&mut TokenAutomaton, &mut Fuel) -> Result<T, OutOfFuel>,
    ) -> Result<T, MatcherError> {
        let mut fuel = Fuel::new(self.limits.max_mask_steps);
        self.num_waiting.fetch_add(1, Ordering::Relaxed);
        let mut automaton = self.lock();
        self.num_waiting.fetch_sub(1, Ordering::Relaxed);
        let exhausted = MatcherError::StatesExhausted {
            max: self.shares.states_at_most,
        };
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(exhausted);
        }
        let before = automaton.state_bytes();
        let answer = work(&mut automaton, &mut fuel);
        if automaton.take_item_excess() {
            return Err(MatcherError::ItemsExhausted {
                max: self.limits.max_items,
            });
        }
        if automaton.cache_bytes() > self.shares.masks {
            automaton.clear_caches();
        }
        // Who goes on among states that are there already disturbs nobody.
        let after = automaton.state_bytes();
        if after > before && after > self.shares.states_at_most {
            return Err(exhausted);
        }
        answer.map_err(|OutOfFuel| MatcherError::StepsExhausted {
            max: self.limits.max_mask_steps,
        })
    }

    /// Lets every further call of its matchers fail, and frees what can be computed again.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.lock().clear_caches();
    }

    /// Whether the next compilation should start a new generation.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().state_bytes() > self.shares.states
    }
}
