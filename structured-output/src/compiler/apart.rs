//! Memory apart from that which all grammars share: for grammars that take long, so that nobody else
//! waits for them.

use std::sync::{Arc, Mutex, PoisonError};

use super::GrammarCompiler;
use super::cache::{Cache, Outcome, Turn};
use super::job::Patience;
use super::renew::{RenewError, move_to};
use super::shared::out_of_steps;
use crate::engine::Engine;
use crate::matcher::GrammarMatcher;
use crate::options::{CancelFlag, CompileBudget};
use crate::specification::GrammarSpecification;

/// The generation for grammars that take long, and what was compiled in it. These share it: who is there waits for the
/// others there.
pub(super) struct Lane {
    engine: Mutex<Option<Arc<Engine>>>,
    pub(super) cache: Cache<(GrammarSpecification, CompileBudget)>,
}

impl Lane {
    pub(super) fn new(max_cache_bytes: usize) -> Self {
        Self {
            engine: Mutex::default(),
            cache: Cache::new(max_cache_bytes),
        }
    }

    /// The generation, which begins with another grammar.
    fn engine(&self, fresh: impl FnOnce() -> Engine) -> Arc<Engine> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(engine.get_or_insert_with(|| Arc::new(fresh().lane())))
    }

    /// Empties the generation where it is full: who is there is to go on in the next.
    fn empty_if_full(&self) {
        if let Some(full) = self.take_if(Engine::is_full) {
            drop(full.empty());
        }
    }

    /// Empties a generation apart where it is full, as soon as whoever is at work there has ended the call: so what a
    /// matcher that leaves it goes on in is not beside it.
    pub(super) fn leave(&self, left: &Engine) {
        if !left.is_apart() || !left.is_full() {
            return;
        }
        drop(self.take_if(|current| std::ptr::eq(current, left)));
        drop(left.empty_when_free());
    }

    /// Empties the generation, as soon as whoever is at work there has ended the call: who is there is to go on in the
    /// next.
    pub(super) fn empty(&self) {
        if let Some(taken) = self.take_if(|_| true) {
            drop(taken.empty_when_free());
        }
    }

    /// Closes the generation and takes it out where it is such a one, and forgets what was compiled in it: the next one
    /// begins then.
    fn take_if(&self, is_such: impl FnOnce(&Engine) -> bool) -> Option<Arc<Engine>> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = engine.take_if(|engine| is_such(engine))?;
        // First, since no compilation is kept that ends in one which is closed.
        taken.close();
        drop(engine);
        self.cache.clear();
        Some(taken)
    }

    /// Forgets all: who is there goes on.
    pub(super) fn clear(&self) {
        self.cache.clear();
        self.engine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

impl GrammarCompiler {
    /// Lets a matcher go on in memory apart from that which all grammars share, where its calls hold up
    /// nobody but others that take long too: compiles its grammar again there, and accepts its
    /// tokens again. It then stands where it stood, and matchers of equal grammars that are compiled
    /// from now on start there. Nothing to do where it is there already. Its tokens may take as many steps as
    /// in [`renew`](Self::renew).
    ///
    /// # Errors
    /// [`RenewError`]; nothing changes.
    pub fn move_apart(
        &self,
        matcher: &mut GrammarMatcher,
        cancel: &CancelFlag,
    ) -> Result<(), RenewError> {
        if matcher.is_apart() {
            return Ok(());
        }
        let specification = Arc::clone(matcher.grammar().compiled_from());
        let grammar = self.compile_apart(&specification, cancel)?;
        move_to(
            matcher,
            &grammar,
            None,
            &mut self.replay_of(matcher),
            cancel,
        )
    }

    /// Compiles a grammar in memory apart, or finds it there.
    pub(super) fn compile_apart(
        &self,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        cancel: &CancelFlag,
    ) -> Outcome {
        let compiled = self.compile_apart_within(specification, u64::MAX, cancel);
        compiled.unwrap_or_else(|| Err(out_of_steps(specification)))
    }

    /// The same. `None` where that takes more than so many steps.
    pub(super) fn compile_apart_within(
        &self,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        max_steps: u64,
        cancel: &CancelFlag,
    ) -> Option<Outcome> {
        self.lane.empty_if_full();
        match self.lane.cache.turn(specification, max_steps, true, cancel) {
            Turn::Compile(ticket) => {
                let generation = || {
                    self.lane.empty_if_full();
                    self.lane.engine(|| self.fresh_apart())
                };
                let patience = Patience {
                    max_steps,
                    ..Patience::ENDLESS
                };
                let compiled = self.compile_in(generation, specification, patience, cancel);
                self.keep(ticket, specification, compiled.as_ref(), max_steps, false);
                compiled
            }
            Turn::Known(outcome) => Some(outcome),
            Turn::TooDear => None,
        }
    }

    /// What was compiled in memory apart.
    pub(super) fn known_apart(
        &self,
        specification: &(GrammarSpecification, CompileBudget),
    ) -> Option<Outcome> {
        self.lane.empty_if_full();
        self.lane.cache.known(specification)
    }
}
