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

/// Most generations for grammars that take long. These share them: who is in one waits for the others
/// there.
const MAX_LANES: usize = 2;

/// The generations, and what was compiled in them.
pub(super) struct Lanes {
    engines: Mutex<Vec<Arc<Engine>>>,
    pub(super) cache: Cache<(GrammarSpecification, CompileBudget)>,
}

impl Lanes {
    pub(super) fn new(max_cache_bytes: usize) -> Self {
        Self {
            engines: Mutex::default(),
            cache: Cache::new(max_cache_bytes),
        }
    }

    /// The generation for another grammar: that with the fewest.
    fn engine(&self, fresh: impl FnOnce() -> Engine) -> Arc<Engine> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let fewest = engines
            .iter()
            .min_by_key(|engine| Arc::strong_count(engine));
        match fewest {
            Some(fewest) if engines.len() >= MAX_LANES => Arc::clone(fewest),
            _ => {
                let engine = Arc::new(fresh().lane());
                engines.push(Arc::clone(&engine));
                engine
            }
        }
    }

    /// Closes generations that are full: who is there is to go on elsewhere.
    fn close_full(&self) {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        let num_before = engines.len();
        engines.retain(|engine| {
            let is_full = engine.is_full();
            if is_full {
                engine.close_at_once();
            }
            !is_full
        });
        if engines.len() < num_before {
            self.cache.clear();
        }
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.cache.clear();
        self.engines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl GrammarCompiler {
    /// Lets a matcher go on in memory apart from that which all grammars share, where its calls hold up
    /// nobody but a few others that take long too: compiles its grammar again there, and accepts its
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
        self.lanes.close_full();
        match self
            .lanes
            .cache
            .turn(specification, max_steps, true, cancel)
        {
            Turn::Compile(ticket) => {
                let engine = self.lanes.engine(|| self.fresh_engine());
                let patience = Patience {
                    max_steps,
                    ..Patience::ENDLESS
                };
                let compiled = self.compile_in(engine, specification, patience, cancel);
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
        self.lanes.close_full();
        self.lanes.cache.known(specification)
    }
}
