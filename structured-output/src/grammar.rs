//! A compiled grammar.

use std::sync::Arc;

use crate::TokenizerInfo;
use crate::automaton::GrammarState;
use crate::engine::Engine;
use crate::options::CompileBudget;
use crate::specification::GrammarSpecification;

/// A grammar compiled for a vocabulary. Immutable and cheap to clone; `Send + Sync`.
///
/// What it constrains is enforced in full: what could not be was a [`crate::CompileError`].
#[derive(Clone)]
pub struct CompiledGrammar {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<Engine>,
    root: GrammarState,
    num_states: usize,
    memory_bytes: usize,
    /// What it was compiled from, to do so again.
    specification: Arc<(GrammarSpecification, CompileBudget)>,
}

impl CompiledGrammar {
    pub(crate) fn new(
        engine: Arc<Engine>,
        root: GrammarState,
        (num_states, memory_bytes): (usize, usize),
        specification: Arc<(GrammarSpecification, CompileBudget)>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine,
                root,
                num_states,
                memory_bytes,
                specification,
            }),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn root(&self) -> GrammarState {
        self.shared.root
    }

    /// What it was compiled from, and what that might spend.
    pub(crate) fn compiled_from(&self) -> &Arc<(GrammarSpecification, CompileBudget)> {
        &self.shared.specification
    }

    /// What it was compiled from.
    pub fn specification(&self) -> &GrammarSpecification {
        &self.shared.specification.0
    }

    /// Steps that each call of its matchers may take by its own options.
    pub(crate) fn max_call_steps(&self) -> u64 {
        let limits = match self.specification() {
            GrammarSpecification::JsonSchema(_, options)
            | GrammarSpecification::JsonObject(options) => options.limits.as_ref(),
            _ => None,
        };
        limits.map_or(u64::MAX, |limits| limits.max_mask_steps)
    }

    /// The vocabulary that it was compiled for.
    pub fn tokenizer_info(&self) -> &Arc<TokenizerInfo> {
        self.shared.engine.index().info()
    }

    /// Automaton states that compiling it added to the engine, without those that other grammars had made
    /// before.
    pub fn num_states(&self) -> usize {
        self.shared.num_states
    }

    /// Bytes that compiling it added to the engine. States that other grammars had made before
    /// are shared and not counted; states that matchers will meet later are not known yet.
    pub fn memory_bytes(&self) -> usize {
        self.shared.memory_bytes + size_of::<Shared>()
    }

    /// Parts of the grammar that are not enforced: none, by construction.
    pub fn unsupported(&self) -> &[String] {
        &[]
    }
}

impl PartialEq for CompiledGrammar {
    /// Whether both are the same compilation.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl std::fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledGrammar")
            .field("root", &self.shared.root)
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
