//! The one backend: the crate `structured-output`.

use std::sync::Arc;

use protocol::StructuredOutputsParams;
use structured_output::{
    CancelFlag, CompileBudget, CompileEffort, CompilerOptions, GrammarCompiler, GrammarMatcher,
    GrammarSpecification, Limits, MaskRef, MatcherError, RenewError, RequestMemory, TextSearch,
    TokenizerInfo,
};

use super::backend::{CompileGrammarError, StructuredOutputBackend, StructuredOutputGrammar};
use super::priority::offer_processor;
use super::turn::SHARED_STEPS;

/// Steps of one call on a grammar: some tenths of a second, on a thread that nobody but its request waits
/// for. The busy loop allows far less, see `core::sched::grammar_steps`.
///
/// Of every sixteenth schema of MaskBench, each with no other compiled before it, one call took 806,000
/// at the most, and those of 99 in 100 schemas stay below 272,000. Two of 104 that were written to be
/// hard need more.
const MAX_MASK_STEPS: u64 = 2_000_000;

/// Rules of a grammar. Each takes some 5 KiB until it is compiled: as many as the library takes would be half
/// a gigabyte for one request of 3 MB.
const MAX_RULES: usize = 10_000;

/// Steps of a search for a text of few tokens, which is asked where the shortest text doesn't fit: some
/// milliseconds, and less than the last turn in shared memory has. A mask may take twice as many: the same search,
/// and walks of the vocabulary.
const MAX_SEARCH_STEPS: u64 = 500_000;

/// Compiles every constraint for one vocabulary, and caches what it compiled.
pub struct FormworkBackend {
    compiler: Arc<GrammarCompiler>,
    budget: CompileBudget,
}

impl FormworkBackend {
    /// A backend that keeps at most `cache_bytes` of grammars, states and masks. Builds the
    /// vocabulary's index: 0.2 seconds for 128,000 tokens.
    ///
    /// # Errors
    /// With so little no grammar works.
    pub fn new(info: TokenizerInfo, cache_bytes: usize) -> Result<Self, CacheTooSmall> {
        let limits = Limits {
            max_mask_steps: MAX_MASK_STEPS,
            max_rules: MAX_RULES,
            ..Limits::default()
        };
        let options = CompilerOptions {
            cache_bytes,
            limits,
            max_shared_steps: Some(SHARED_STEPS),
            pause: offer_processor(),
            ..CompilerOptions::default()
        };
        let budget = options.budget;
        let compiler = Arc::new(GrammarCompiler::new(Arc::new(info), options));
        compiler.prepare();
        let least = compiler.least_cache_bytes();
        match cache_bytes >= least {
            true => Ok(Self { compiler, budget }),
            false => Err(CacheTooSmall { cache_bytes, least }),
        }
    }
}

/// What is kept for grammars is too small for the model's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--structured-outputs-config: cache_bytes is {cache_bytes}: the grammars of this model's vocabulary \
     need at least {least}"
)]
pub struct CacheTooSmall {
    cache_bytes: usize,
    least: usize,
}

impl StructuredOutputBackend for FormworkBackend {
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>> {
        let (kind, sources) = params.constraint.specification();
        let specification = match GrammarSpecification::by_name(kind, sources, params.options()) {
            Ok(specification) => specification,
            Err(error) => return Some(Err(error.into())),
        };
        let compiled =
            self.compiler
                .compile_with_effort(&specification, self.budget, effort, cancel)?;
        Some(match compiled {
            Ok(grammar) => Ok(Box::new(FormworkGrammar {
                matcher: GrammarMatcher::with_stop_tokens(&grammar, stop_token_ids),
                compiler: Arc::clone(&self.compiler),
            })),
            Err(error) => Err(error.into()),
        })
    }

    fn is_compiled(&self, params: &StructuredOutputsParams) -> bool {
        let (kind, sources) = params.constraint.specification();
        GrammarSpecification::by_name(kind, sources, params.options())
            .is_ok_and(|specification| self.compiler.is_cached(specification, self.budget))
    }

    fn has_own_memory(&self) -> bool {
        self.compiler.has_own_memory()
    }

    fn stop_token_ids(&self) -> &[u32] {
        self.compiler.tokenizer_info().stop_token_ids()
    }
}

/// A matcher, with what finds it other memory.
struct FormworkGrammar {
    matcher: GrammarMatcher,
    compiler: Arc<GrammarCompiler>,
}

impl StructuredOutputGrammar for FormworkGrammar {
    fn accept_token(&mut self, token_id: u32) -> Result<bool, MatcherError> {
        // In this order no mask has to be made for a stop token.
        Ok(self.matcher.accept_stop_token_as_text(token_id)?
            || self.matcher.accept_token(token_id)?)
    }

    fn validate_tokens(&self, token_ids: &[u32]) -> Result<usize, MatcherError> {
        self.matcher.validate_tokens(token_ids)
    }

    fn rollback(&mut self, num_tokens: usize) -> Result<(), MatcherError> {
        self.matcher.rollback(num_tokens)
    }

    fn next_token_mask(&self) -> Result<MaskRef, MatcherError> {
        self.matcher.next_token_mask()
    }

    fn tokenizer_info(&self) -> &TokenizerInfo {
        self.compiler.tokenizer_info()
    }

    fn next_token_mask_within(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        self.matcher.next_token_mask_within(num_tokens)
    }

    fn next_token_mask_completing(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        self.matcher.next_token_mask_completing(num_tokens)
    }

    fn min_bytes_to_complete(&self) -> Result<u32, MatcherError> {
        self.matcher.min_bytes_to_complete()
    }

    fn min_tokens_bound(&self) -> Result<u32, MatcherError> {
        self.matcher.min_tokens_bound()
    }

    fn min_tokens_to_complete(&self) -> Result<u32, MatcherError> {
        self.matcher.min_tokens_to_complete()
    }

    fn fewest_tokens_to_complete(
        &self,
        search: TextSearch,
        limit: u32,
    ) -> Result<Option<u32>, MatcherError> {
        self.matcher
            .fewest_tokens_to_complete(search, limit, MAX_SEARCH_STEPS)
    }

    fn next_token_mask_of_fewest(
        &self,
        search: TextSearch,
        num_tokens: u32,
    ) -> Result<Option<MaskRef>, MatcherError> {
        self.matcher
            .next_token_mask_of_fewest(search, num_tokens, 2 * MAX_SEARCH_STEPS)
    }

    fn has_forced_byte(&self) -> Result<bool, MatcherError> {
        self.matcher.has_forced_byte()
    }

    fn find_jump_forward_string(&self) -> Result<String, MatcherError> {
        self.matcher.find_jump_forward_string()
    }

    fn is_completed(&self) -> bool {
        self.matcher.is_completed()
    }

    fn is_terminated(&self) -> bool {
        self.matcher.is_terminated()
    }

    fn check_opening(&self) -> Result<(), MatcherError> {
        self.matcher.check_opening()
    }

    fn reset(&mut self) {
        self.matcher.reset();
    }

    fn renew(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.compiler.renew(&mut self.matcher, cancel)
    }

    fn set_allowance(&mut self, steps: Option<u64>) {
        self.matcher.set_allowance(steps);
    }

    fn set_patient_allowance(&mut self, steps: u64) {
        self.matcher.set_patient_allowance(steps);
    }

    fn set_max_bytes(&mut self, max_bytes: Option<usize>) {
        self.matcher.set_max_bytes(max_bytes);
    }

    fn bytes_left(&self) -> Option<usize> {
        self.matcher.bytes_left()
    }

    fn set_request_memory(&mut self, memory: &RequestMemory, num_added_bytes: usize) {
        self.matcher.set_request_memory(memory, num_added_bytes);
    }

    fn let_others_pass(&self) {
        self.matcher.let_others_pass();
    }

    fn allowance(&self) -> Option<u64> {
        self.matcher.allowance()
    }

    fn move_apart(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.compiler.move_apart(&mut self.matcher, cancel)
    }

    fn is_apart(&self) -> bool {
        self.matcher.is_apart()
    }
}
