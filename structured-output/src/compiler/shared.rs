//! Compiling in the memory that all grammars share, each specification once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::GrammarCompiler;
use super::cache::{Outcome, Ticket, Turn};
use super::job::{self, Memory, Patience};
use crate::engine::Engine;
use crate::error::CompileError;
use crate::grammar::CompiledGrammar;
use crate::options::{CancelFlag, CompileBudget};
use crate::specification::GrammarSpecification;

/// How long a specification may be that is remembered when its generation goes, as one that takes little.
const MAX_LIGHT_BYTES: usize = 4 << 10;

/// Bytes of states that one compilation may add to memory that others share, where what is dear goes
/// apart. Of 8,034 schemas of MaskBench the largest adds 2.5 MiB.
const MAX_SHARED_BYTES: usize = 8 << 20;

/// Generations in which a compilation is tried, where one after the other is closed before it ends.
const MAX_GENERATIONS: u32 = 4;

/// Bytes of a specification that is compiled there at all: its values take some ten times as much.
const MAX_SHARED_SOURCE_BYTES: usize = 256 << 10;

impl GrammarCompiler {
    /// Compiles what is not too large, where that was not done before.
    pub(super) fn compile(
        &self,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        cancel: &CancelFlag,
    ) -> Outcome {
        self.compile_shared(specification, u64::MAX, cancel)
            .unwrap_or_else(|| self.compile_apart(specification, cancel))
    }

    /// The same in the memory that all share, unless it is known to be apart. `None` where that takes
    /// more than so many steps, or more than a slice may at a time.
    pub(super) fn compile_shared(
        &self,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        max_steps: u64,
        cancel: &CancelFlag,
    ) -> Option<Outcome> {
        if let Some(known) = self.known_apart(specification) {
            return Some(known);
        }
        let has_apart = self.options.max_shared_steps.is_some();
        if has_apart && specification.0.memory_bytes() > MAX_SHARED_SOURCE_BYTES {
            return None;
        }
        // Before the cache is looked at: a grammar of a generation that is full would let its new
        // matchers fail with the old ones.
        drop(self.engine());
        let max_slice_steps = self.options.max_shared_steps.unwrap_or(u64::MAX);
        // Who has time for a slice has none for others' compilations.
        let waits = max_steps > max_slice_steps || !has_apart;
        match self.cache.turn(specification, max_steps, waits, cancel) {
            Turn::Known(outcome) => Some(outcome),
            Turn::TooDear => None,
            Turn::Compile(ticket) => {
                // So much was enough.
                let max_steps = match ticket.is_light() {
                    true => max_steps.max(max_slice_steps),
                    false => max_steps,
                };
                let patience = Patience {
                    max_slice_steps,
                    max_steps,
                    max_bytes: match has_apart {
                        true => MAX_SHARED_BYTES,
                        false => usize::MAX,
                    },
                };
                let compiled = self.compile_in(|| self.engine(), specification, patience, cancel);
                let is_light = has_apart
                    && max_steps <= max_slice_steps
                    && specification.0.memory_bytes() <= MAX_LIGHT_BYTES;
                self.keep(
                    ticket,
                    specification,
                    compiled.as_ref(),
                    max_steps,
                    is_light,
                );
                compiled
            }
        }
    }

    /// Keeps the outcome of a compilation for others, and whether it took little; or, where there is none,
    /// that it takes more than so many steps.
    pub(super) fn keep(
        &self,
        ticket: Ticket<'_, (GrammarSpecification, CompileBudget)>,
        specification: &(GrammarSpecification, CompileBudget),
        outcome: Option<&Outcome>,
        max_steps: u64,
        is_light: bool,
    ) {
        let bytes = 256 + specification.0.memory_bytes();
        match outcome {
            Some(Err(CompileError::Cancelled)) => {}
            // It is of use to nobody any more.
            Some(Ok(grammar)) if grammar.engine().is_closed() => {}
            Some(outcome) => {
                let grammar_bytes = outcome.as_ref().map_or(0, CompiledGrammar::memory_bytes);
                ticket.finish(outcome, bytes + grammar_bytes, is_light);
            }
            None => ticket.give_up(max_steps, bytes),
        }
    }

    /// Compiles in a generation, or, where that is closed meanwhile, in the next. `None` where that takes more than the
    /// patience allows.
    pub(super) fn compile_in(
        &self,
        generation: impl Fn() -> Arc<Engine>,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        patience: Patience,
        cancel: &CancelFlag,
    ) -> Option<Outcome> {
        self.num_compilations.fetch_add(1, Ordering::Relaxed);
        let limits = &self.options.limits;
        let compile =
            |engine, memory| job::compile(specification, engine, limits, patience, memory, cancel);
        let mut engine = generation();
        let (mut outcome, mut is_in_doubt) = compile(Arc::clone(&engine), Memory::Shared)?;
        for _ in 1..MAX_GENERATIONS {
            if !engine.is_closed() {
                break;
            }
            engine = generation();
            (outcome, is_in_doubt) = compile(Arc::clone(&engine), Memory::Shared)?;
        }
        if is_in_doubt {
            // What is refused is to be refused whatever was compiled before it.
            if !patience.is_endless() {
                return None;
            }
            let alone = compile(Arc::new(self.fresh_apart().lane()), Memory::Alone);
            outcome = match (outcome, alone) {
                (Ok(grammar), Some((Ok(_), _))) => Ok(grammar),
                (_, Some((alone, _))) => alone,
                (outcome, None) => outcome,
            };
        }
        Some(outcome)
    }

    /// Compiles in a generation in which it may take as long as it takes.
    pub(super) fn compile_alone(
        &self,
        engine: Arc<Engine>,
        specification: &Arc<(GrammarSpecification, CompileBudget)>,
        cancel: &CancelFlag,
    ) -> Outcome {
        let generation = || Arc::clone(&engine);
        let compiled = self.compile_in(generation, specification, Patience::ENDLESS, cancel);
        compiled.unwrap_or_else(|| Err(out_of_steps(specification)))
    }
}

/// What is said of a compilation that takes more steps than its budget has.
pub(super) fn out_of_steps(specification: &(GrammarSpecification, CompileBudget)) -> CompileError {
    job::exceeded("max_steps", specification.1.max_steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompilerOptions, TokenizerInfo};

    #[test]
    fn what_is_compiled_beside_a_panic_is_compiled_again_elsewhere() {
        let vocab = [b"a".to_vec(), b"b".to_vec(), b"<eos>".to_vec()];
        let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        let specification = Arc::clone(compiler.compile_regex("a{2}").unwrap().compiled_from());
        // The engine that somebody got before the panic.
        let engine = compiler.engine();
        let panics = || {
            engine.slice(|automaton| {
                assert_eq!(automaton.num_states(), usize::MAX, "a panic for a test");
            })
        };
        assert!(std::thread::scope(|scope| scope
            .spawn(panics)
            .join()
            .is_err()));
        let cancel = CancelFlag::new();
        let grammar = compiler.compile_alone(Arc::clone(&engine), &specification, &cancel);
        assert!(!grammar.unwrap().engine().is_closed());
        // Whoever has no patience comes again, in memory apart.
        let patience = Patience {
            max_steps: 1_000,
            ..Patience::ENDLESS
        };
        let hasty = compiler.compile_in(|| Arc::clone(&engine), &specification, patience, &cancel);
        assert!(hasty.is_none());
    }
}
