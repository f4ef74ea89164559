//! Options, limits and budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::json::Whitespace;

/// How a [`crate::GrammarCompiler`] works. `Default` suits a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerOptions {
    /// Bytes for everything that is kept for reuse: compiled grammars, expressions, masks.
    /// Default 128 MiB. See `docs/structured-output.md` for how they are shared out.
    pub cache_bytes: usize,
    /// What one compilation may spend, unless the call brings its own budget.
    pub budget: CompileBudget,
    /// Bounds on what is accepted, and on the work of one mask.
    pub limits: Limits,
}

impl Default for CompilerOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 128 << 20,
            budget: CompileBudget::default(),
            limits: Limits::default(),
        }
    }
}

/// How a JSON Schema is read, and how JSON is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct JsonSchemaOptions {
    /// White space in the text.
    pub whitespace: Whitespace,
}

/// What one compilation may spend. Beyond it, the compilation ends with
/// [`crate::CompileError::LimitExceeded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompileBudget {
    /// Automaton states that it may add. Default 500,000.
    pub max_states: usize,
    /// Bytes that it may add to the engine's memory. Default 32 MiB.
    pub max_bytes: usize,
    /// Steps of derivation and search. Default 5,000,000, which takes about a second.
    pub max_steps: u64,
}

impl Default for CompileBudget {
    fn default() -> Self {
        Self {
            max_states: 500_000,
            max_bytes: 32 << 20,
            max_steps: 5_000_000,
        }
    }
}

/// Bounds on what is accepted from a user. Each is named in the error that it causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a grammar's source. Default 1 MiB.
    pub max_source_bytes: usize,
    /// Groups within groups. Default 512.
    pub max_nesting: usize,
    /// Parts (signs, classes, groups) of a regular expression. Default 50,000.
    pub max_regex_nodes: usize,
    /// The largest bound of a counted repetition. Default 2,147,483,647: repetitions are counted,
    /// not unrolled.
    pub max_repetition: u32,
    /// Strings of a choice. Default 100,000.
    pub max_choices: usize,
    /// Rules of a grammar, with those of the grammars within it. Default 100,000.
    pub max_rules: usize,
    /// Parts of a grammar: strings, classes, names, groups, repetitions. Default 500,000.
    pub max_grammar_nodes: usize,
    /// Ways in which a text may be read at once: items of a parser's state. Default 4,096.
    pub max_items: usize,
    /// Steps of one call on a matcher: nodes of the vocabulary's trie that are visited, plus
    /// derivatives that are computed. Default 8,000,000. The same work is done once; a state that
    /// was asked for before costs none.
    pub max_mask_steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_source_bytes: 1 << 20,
            max_nesting: 512,
            max_regex_nodes: 50_000,
            max_repetition: i32::MAX as u32,
            max_choices: 100_000,
            max_rules: 100_000,
            max_grammar_nodes: 500_000,
            max_items: 4096,
            max_mask_steps: 8_000_000,
        }
    }
}

/// Stops compilations from another thread. Clones are one flag.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag {
    cancelled: Arc<AtomicBool>,
}

impl CancelFlag {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag, for good: compilations that were given it end with
    /// [`crate::CompileError::Cancelled`] within a few thousand steps.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
