//! The compiler: from a specification to a compiled grammar, once.

mod apart;
mod cache;
mod embedded_json;
mod generations;
mod grammar_job;
mod job;
mod opening;
mod renew;
mod samples;
mod schema_job;
mod shared;
mod vocabulary;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::TokenizerInfo;
use crate::automaton::Base;
use crate::engine::{Engine, Shares};
use crate::error::CompileError;
use crate::grammar::CompiledGrammar;
use crate::index::TokenizerIndex;
use crate::options::{
    CancelFlag, CompileBudget, CompileEffort, CompilerOptions, JsonSchemaOptions,
};
use crate::specification::GrammarSpecification;
use apart::Lane;
use cache::Cache;
use generations::Generations;
pub use renew::RenewError;

/// Compiles grammars for one vocabulary, and keeps what it has compiled.
///
/// `Send + Sync`: share one by `Arc`. Equal specifications are compiled once, also when they come
/// at the same time; failures are kept too. Grammars of one compiler share their states and masks,
/// so the second schema with a string in it pays nothing for strings.
///
/// Memory: the vocabulary's index (some 15 bytes per byte of vocabulary) and at most
/// `cache_bytes` for what is kept for reuse. States are kept by generations: where one is full, the
/// next compilation starts another, and the old one goes with its last grammar. At most two old ones
/// stay open beside the current, as long as they take no more than their share together. The matchers of an older one,
/// which is emptied, or of one whose grammars in use need more than its share, fail with
/// [`MatcherError::StatesExhausted`](crate::MatcherError::StatesExhausted);
/// [`renew`](GrammarCompiler::renew) lets them go on elsewhere.
pub struct GrammarCompiler {
    index: Arc<TokenizerIndex>,
    /// Made with the first generation.
    base: OnceLock<Option<Arc<Base>>>,
    options: CompilerOptions,
    /// Made with the first compilation.
    generations: OnceLock<Mutex<Generations>>,
    cache: Cache<(GrammarSpecification, CompileBudget)>,
    num_compilations: AtomicU64,
    lane: Lane,
    /// Generations that belong to one grammar each.
    num_own: Arc<AtomicUsize>,
}

impl GrammarCompiler {
    /// A compiler for a vocabulary. Builds its index, which takes some sorts of the vocabulary: 0.2
    /// seconds for 128,000 tokens, or reads it, see [`CompilerOptions::index_cache`].
    pub fn new(info: Arc<TokenizerInfo>, options: CompilerOptions) -> Self {
        let index = Arc::new(TokenizerIndex::new(info, options.index_cache.as_deref()));
        Self {
            generations: OnceLock::new(),
            cache: Cache::new(Shares::of(options.cache_bytes).grammars),
            index,
            base: OnceLock::new(),
            lane: Lane::new(Shares::apart(options.cache_bytes).grammars),
            options,
            num_compilations: AtomicU64::new(0),
            num_own: Arc::default(),
        }
    }

    /// Makes what the first compilation would have to make: what JSON's strings, numbers and white
    /// space and the names of most grammars ask of a large vocabulary, some 20 ms for 128,000 tokens. For a thread at the start.
    pub fn prepare(&self) {
        drop(self.generations());
    }

    /// The least [`CompilerOptions::cache_bytes`] of use for this vocabulary: with less, what every
    /// generation begins with leaves grammars hardly any room, and all of them fail with
    /// [`MatcherError::StatesExhausted`](crate::MatcherError::StatesExhausted). Makes what
    /// [`prepare`](Self::prepare) makes.
    pub fn least_cache_bytes(&self) -> usize {
        Shares::least_for(self.fresh_shared().state_bytes())
    }

    /// Compiles a specification of any kind, with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As for the kind's own method, and [`CompileError::Cancelled`].
    pub fn compile_specification(
        &self,
        specification: &GrammarSpecification,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        self.compile_owned(specification.clone(), budget, cancel)
    }

    /// [`compile_specification`](Self::compile_specification) with no more than an effort. `None` where
    /// that doesn't suffice: what was computed is kept for another try, with more. Waits for others that compile
    /// the same there, unless the effort is no more than [`CompilerOptions::max_shared_steps`]: then it
    /// doesn't suffice.
    ///
    /// # Errors
    /// As there.
    pub fn compile_with_effort(
        &self,
        specification: &GrammarSpecification,
        budget: CompileBudget,
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<CompiledGrammar, CompileError>> {
        if let Err(error) = specification.check_size(&self.options.limits) {
            return Some(Err(error));
        }
        let specification = Arc::new((specification.clone(), budget));
        match effort {
            CompileEffort::Shared { max_steps } => {
                self.compile_shared(&specification, max_steps, cancel)
            }
            CompileEffort::Apart { max_steps } => {
                self.compile_apart_within(&specification, max_steps, cancel)
            }
        }
    }

    /// Whether [`compile_specification`](Self::compile_specification) would find its outcome in the
    /// cache, a failure included. Hashes the source.
    ///
    /// With [`CompilerOptions::max_shared_steps`] also, whether it was compiled within a slice before and is
    /// short: that is done again with any effort.
    pub fn is_cached(&self, specification: GrammarSpecification, budget: CompileBudget) -> bool {
        // Of a full generation's outcomes only what took little is known after the next compilation.
        let is_full = |generations: &Mutex<Generations>| {
            let generations = generations.lock().unwrap_or_else(PoisonError::into_inner);
            generations.current.is_full()
        };
        let key = (specification, budget);
        let Some(generations) = self.generations.get() else {
            return false;
        };
        let is_known = match is_full(generations) {
            true => self.cache.is_light(&key),
            false => self.cache.is_known(&key),
        };
        is_known || self.lane.cache.is_known(&key)
    }

    fn compile_owned(
        &self,
        specification: GrammarSpecification,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        // Before it is kept anywhere.
        specification.check_size(&self.options.limits)?;
        self.compile(&Arc::new((specification, budget)), cancel)
    }

    /// Compiles a regular expression, which is to match the whole text.
    ///
    /// Syntax: what Rust's `regex` and Python's `re` have in common, with look-around. What is not
    /// regular (back-references) or means different things in the two (possessive quantifiers,
    /// nested classes) is refused.
    ///
    /// # Errors
    /// [`CompileError::Regex`] with line and column; [`CompileError::Unsatisfiable`] and
    /// [`CompileError::NotWritable`] where no output could match; a limit.
    pub fn compile_regex(&self, pattern: &str) -> Result<CompiledGrammar, CompileError> {
        self.compile_regex_with(pattern, self.options.budget, &CancelFlag::new())
    }

    /// [`GrammarCompiler::compile_regex`] with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As there, and [`CompileError::Cancelled`].
    pub fn compile_regex_with(
        &self,
        pattern: &str,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        self.compile_owned(
            GrammarSpecification::Regex(pattern.to_owned()),
            budget,
            cancel,
        )
    }

    /// Compiles a choice: the text is one of the strings.
    ///
    /// # Errors
    /// [`CompileError::EmptyChoice`]; [`CompileError::NotWritable`]; a limit.
    pub fn compile_choice(&self, choices: &[String]) -> Result<CompiledGrammar, CompileError> {
        self.compile_choice_with(choices, self.options.budget, &CancelFlag::new())
    }

    /// [`GrammarCompiler::compile_choice`] with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As there, and [`CompileError::Cancelled`].
    pub fn compile_choice_with(
        &self,
        choices: &[String],
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        self.compile_owned(
            GrammarSpecification::Choice(choices.to_vec()),
            budget,
            cancel,
        )
    }

    /// Compiles a JSON Schema: the text is one JSON value that is valid under it.
    ///
    /// # Errors
    /// [`CompileError::JsonSyntax`]; [`CompileError::JsonSchema`] with the JSON pointer of what is
    /// malformed or not enforced yet; [`CompileError::NoValue`]; a limit.
    pub fn compile_json_schema(
        &self,
        schema: &str,
        options: &JsonSchemaOptions,
    ) -> Result<CompiledGrammar, CompileError> {
        self.compile_json_schema_with(schema, options, self.options.budget, &CancelFlag::new())
    }

    /// [`GrammarCompiler::compile_json_schema`] with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As there, and [`CompileError::Cancelled`].
    pub fn compile_json_schema_with(
        &self,
        schema: &str,
        options: &JsonSchemaOptions,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        let specification = GrammarSpecification::JsonSchema(schema.to_owned(), options.clone());
        self.compile_owned(specification, budget, cancel)
    }

    /// Compiles the grammar of any JSON object, with flexible white space.
    ///
    /// # Errors
    /// A limit.
    pub fn compile_builtin_json(&self) -> Result<CompiledGrammar, CompileError> {
        let specification = GrammarSpecification::JsonObject(JsonSchemaOptions::default());
        self.compile_owned(specification, self.options.budget, &CancelFlag::new())
    }

    /// Compiles a grammar in EBNF, as XGrammar reads it, or GBNF, as llama.cpp reads it, from the rule
    /// named `root` on. `docs/grammars.md` has the dialects.
    ///
    /// # Errors
    /// [`CompileError::Grammar`] with line and column; [`CompileError::Unsatisfiable`] and
    /// [`CompileError::NotWritable`] where no output could match; a limit.
    pub fn compile_ebnf(&self, grammar: &str, root: &str) -> Result<CompiledGrammar, CompileError> {
        let specification = GrammarSpecification::Ebnf {
            grammar: grammar.to_owned(),
            root: root.to_owned(),
        };
        self.compile_owned(specification, self.options.budget, &CancelFlag::new())
    }

    /// Compiles a grammar in Lark, from the rule `start` on. `docs/grammars.md` has the dialect.
    ///
    /// # Errors
    /// As for [`GrammarCompiler::compile_ebnf`].
    pub fn compile_lark(&self, grammar: &str) -> Result<CompiledGrammar, CompileError> {
        let specification = GrammarSpecification::Lark(grammar.to_owned());
        self.compile_owned(specification, self.options.budget, &CancelFlag::new())
    }

    /// Compiles a grammar in EBNF or Lark: where a line has `::=`, comments apart, it is EBNF with
    /// `root` to start with, else Lark.
    ///
    /// # Errors
    /// As for [`GrammarCompiler::compile_ebnf`].
    pub fn compile_grammar(&self, grammar: &str) -> Result<CompiledGrammar, CompileError> {
        self.compile_grammar_with(grammar, self.options.budget, &CancelFlag::new())
    }

    /// [`GrammarCompiler::compile_grammar`] with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As there, and [`CompileError::Cancelled`].
    pub fn compile_grammar_with(
        &self,
        grammar: &str,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        self.compile_owned(GrammarSpecification::grammar(grammar), budget, cancel)
    }

    /// Compiles a structural tag: free text with tags in it, in the form of
    /// `{"type": "structural_tag", "format": …}` or with the older `structures` and `triggers`.
    /// `docs/grammars.md` has the formats.
    ///
    /// # Errors
    /// [`CompileError::JsonSyntax`]; [`CompileError::StructuralTag`] with the JSON pointer of what is
    /// malformed or not supported; [`CompileError::Unsatisfiable`]; a limit.
    pub fn compile_structural_tag(&self, tag: &str) -> Result<CompiledGrammar, CompileError> {
        self.compile_structural_tag_with(tag, self.options.budget, &CancelFlag::new())
    }

    /// [`GrammarCompiler::compile_structural_tag`] with the call's own budget and a flag to stop it.
    ///
    /// # Errors
    /// As there, and [`CompileError::Cancelled`].
    pub fn compile_structural_tag_with(
        &self,
        tag: &str,
        budget: CompileBudget,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileError> {
        let specification = GrammarSpecification::StructuralTag(tag.to_owned());
        self.compile_owned(specification, budget, cancel)
    }

    /// The current generation, or a new one where that is full.
    pub(super) fn engine(&self) -> Arc<Engine> {
        let mut generations = self.generations();
        if generations.current.is_full() {
            // Grammars of the old one would keep it alive.
            self.cache.forget_grammars();
            let past = generations.start(self.fresh_shared());
            drop(generations);
            past.end();
            generations = self.generations();
        }
        let past = generations.keep_within(Shares::of(self.options.cache_bytes).past);
        let current = Arc::clone(&generations.current);
        drop(generations);
        past.end();
        current
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .get_or_init(|| Mutex::new(Generations::new(self.fresh_shared())))
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A generation without any grammar, for all to share.
    fn fresh_shared(&self) -> Engine {
        self.fresh_engine(Shares::of(self.options.cache_bytes))
    }

    /// The same, apart.
    pub(super) fn fresh_apart(&self) -> Engine {
        self.fresh_engine(Shares::apart(self.options.cache_bytes))
    }

    fn fresh_engine(&self, shares: Shares) -> Engine {
        let base = self
            .base
            .get_or_init(|| samples::base_of(&self.index, self.options.any_escapes));
        Engine::new(Arc::clone(&self.index), base.clone(), &self.options, shares)
    }

    /// The vocabulary.
    pub fn tokenizer_info(&self) -> &Arc<TokenizerInfo> {
        self.index.info()
    }

    /// Forgets all that was compiled and computed, but for the index. Grammars and matchers in use
    /// go on.
    pub fn clear_cache(&self) {
        self.cache.clear();
        self.lane.clear();
        self.generations().replace(self.fresh_shared());
    }

    /// Bytes held for reuse: compiled grammars, states and masks. At most `cache_bytes`.
    pub fn cache_bytes(&self) -> usize {
        let engine = Arc::clone(&self.generations().current);
        self.cache.memory_bytes() + engine.memory_bytes()
    }

    /// How many compilations have been started: what was known already, or was being compiled for
    /// another caller, isn't counted.
    pub fn num_compilations(&self) -> u64 {
        self.num_compilations.load(Ordering::Relaxed)
    }

    /// Bytes of the vocabulary's index, with what is known of JSON's strings, numbers and white space
    /// beforehand, once that is [prepared](Self::prepare).
    pub fn index_bytes(&self) -> usize {
        let base = self.base.get().and_then(Option::as_ref);
        let base = base.map_or(0, |base| base.memory_bytes());
        self.index.memory_bytes() + base
    }
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("options", &self.options)
            .field("cache_bytes", &self.cache_bytes())
            .finish_non_exhaustive()
    }
}
