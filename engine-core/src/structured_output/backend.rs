//! The two levels of the reference's interface: a backend per engine, a grammar per request.
//!
//! The seam of structured output: tests put a backend of their own behind it.

use protocol::StructuredOutputsParams;
use structured_output::{
    CancelFlag, CompileEffort, CompileError, MaskRef, MatcherError, RenewError, RequestMemory,
    TextSearch, TokenizerInfo,
};

/// Compiles constraints. Shared by the compile threads.
pub trait StructuredOutputBackend: Send + Sync {
    /// Compiles a constraint to a grammar at its start. `stop_token_ids` are the request's own, which
    /// end the text beside the model's. Runs for as long as its budget lasts or until `cancel` is
    /// set; equal constraints are compiled once, failures included. `None` where the effort doesn't
    /// suffice: then it may be called again with more.
    ///
    /// # Errors
    /// Why the constraint can't be enforced, for the request's caller.
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>>;

    /// Whether a constraint's outcome is known, so that [`compile_grammar`](Self::compile_grammar) has
    /// nothing to compile.
    fn is_compiled(&self, _params: &StructuredOutputsParams) -> bool {
        false
    }

    /// Whether a grammar that needs memory of its own would find some now.
    fn has_own_memory(&self) -> bool {
        true
    }

    /// Every token that ends a text, where a request names none.
    fn stop_token_ids(&self) -> &[u32];
}

/// Why a grammar was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileGrammarError {
    /// The engine serves no such constraint.
    #[error("{0}")]
    Unsupported(String),
    /// The grammar is wrong, can't be enforced or is too large.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its start can't be reached within the limits.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
    /// Its memory is full, and there is no other.
    #[error(transparent)]
    Renew(RenewError),
}

impl From<RenewError> for CompileGrammarError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Compile(error) => Self::Compile(error),
            RenewError::Matcher(error) => Self::Matcher(error),
            other => Self::Renew(other),
        }
    }
}

/// One request's place in its grammar. Belongs to one thread at a time.
pub trait StructuredOutputGrammar: Send {
    /// Accepts a token that one of the masks allowed, stop tokens included: true where it was allowed, else
    /// nothing changes.
    ///
    /// # Errors
    /// A limit; nothing changes.
    fn accept_token(&mut self, token_id: u32) -> Result<bool, MatcherError>;

    /// How many of the tokens [`next_token_mask`](Self::next_token_mask) allows one after the other. Nothing
    /// changes.
    ///
    /// # Errors
    /// A limit.
    fn validate_tokens(&self, token_ids: &[u32]) -> Result<usize, MatcherError>;

    /// Takes back the last `num_tokens` accepted tokens.
    ///
    /// # Errors
    /// Fewer have been accepted.
    fn rollback(&mut self, num_tokens: usize) -> Result<(), MatcherError>;

    /// The tokens that may come next, by reference (the reference's `fill_bitmask`). Never empty;
    /// nothing changes.
    ///
    /// # Errors
    /// A limit.
    fn next_token_mask(&self) -> Result<MaskRef, MatcherError>;

    /// Of these, the tokens after which at most `num_tokens - 1` more complete the text.
    ///
    /// # Errors
    /// `num_tokens` is below [`min_tokens_to_complete`](Self::min_tokens_to_complete), or a limit.
    fn next_token_mask_within(&self, num_tokens: u32) -> Result<MaskRef, MatcherError>;

    /// Some of these, never none: those that write the shortest completion. Costs a look at one
    /// text, where the other looks at the vocabulary.
    ///
    /// # Errors
    /// As there.
    fn next_token_mask_completing(&self, num_tokens: u32) -> Result<MaskRef, MatcherError>;

    /// About how many bytes a short completion has: a first look that costs little.
    ///
    /// # Errors
    /// A limit.
    fn min_bytes_to_complete(&self) -> Result<u32, MatcherError>;

    /// Fewer tokens than these, the stop token included, hold no short completion, however long
    /// each is. Costs no more than [`min_bytes_to_complete`](Self::min_bytes_to_complete).
    ///
    /// # Errors
    /// A limit.
    fn min_tokens_bound(&self) -> Result<u32, MatcherError>;

    /// Tokens that complete the text, the stop token included; 0 after it.
    ///
    /// # Errors
    /// A limit.
    fn min_tokens_to_complete(&self) -> Result<u32, MatcherError>;

    /// The tokens of a text of few that completes this one, the stop token included, where little work
    /// finds it: what [`min_tokens_to_complete`](Self::min_tokens_to_complete) may exceed.
    ///
    /// # Errors
    /// A limit.
    fn fewest_tokens_to_complete(
        &self,
        _search: TextSearch,
        _limit: u32,
    ) -> Result<Option<u32>, MatcherError> {
        Ok(None)
    }

    /// The tokens that begin the texts of few tokens, where `num_tokens` are enough for these, stop
    /// token included. `None` where little work doesn't find them.
    ///
    /// # Errors
    /// A limit.
    fn next_token_mask_of_fewest(
        &self,
        _search: TextSearch,
        _num_tokens: u32,
    ) -> Result<Option<MaskRef>, MatcherError> {
        Ok(None)
    }

    /// Whether the text's next byte is given, whatever token writes it. Looks at no vocabulary.
    ///
    /// # Errors
    /// A limit.
    fn has_forced_byte(&self) -> Result<bool, MatcherError>;

    /// The text that must come next, whatever tokens write it; empty where there is a choice or
    /// the text may end.
    ///
    /// # Errors
    /// A limit.
    fn find_jump_forward_string(&self) -> Result<String, MatcherError>;

    /// The vocabulary that it is written in.
    fn tokenizer_info(&self) -> &TokenizerInfo;

    /// Whether the text could stop here.
    fn is_completed(&self) -> bool;

    /// Whether a stop token was accepted.
    fn is_terminated(&self) -> bool;

    /// Looks at the first places of a text of the grammar, where most grammars fail that need more
    /// than there is.
    ///
    /// # Errors
    /// A limit.
    fn check_opening(&self) -> Result<(), MatcherError>;

    /// Back to the start.
    fn reset(&mut self);

    /// From here on, calls may together take so many steps of work, and wait for nobody; beyond that
    /// they fail with [`MatcherError::AllowanceSpent`] and change nothing. `None`: each call may take
    /// as many as the limit of its grammar, and waits for others where it has to.
    fn set_allowance(&mut self, steps: Option<u64>);

    /// The same in memory apart, for a thread that works there in turns: calls wait for others there.
    fn set_patient_allowance(&mut self, steps: u64);

    /// From here on, calls may together add so many bytes of states; beyond that they fail with
    /// [`MatcherError::BytesExhausted`]. `None`: as many as there is memory for.
    fn set_max_bytes(&mut self, max_bytes: Option<usize>);

    /// What is left of these; `None` where there is no limit.
    fn bytes_left(&self) -> Option<usize>;

    /// From here on, what it adds to memory that all share counts for a request with other grammars: beyond their share
    /// calls fail with [`MatcherError::StatesExhausted`]. Of `num_added_bytes`, which it has added before, what is beyond
    /// one share counts too.
    fn set_request_memory(&mut self, memory: &RequestMemory, num_added_bytes: usize);

    /// Lets others go first that wait for the memory it shares with them.
    fn let_others_pass(&self);

    /// What is left of the allowance.
    fn allowance(&self) -> Option<u64>;

    /// Goes on in memory that no request waits for which isn't there too: compiles the grammar there
    /// and accepts its tokens again. Nothing to do where it is there already.
    ///
    /// # Errors
    /// [`RenewError`]; nothing changes.
    fn move_apart(&mut self, cancel: &CancelFlag) -> Result<(), RenewError>;

    /// Whether it is there.
    fn is_apart(&self) -> bool;

    /// Goes on in other memory where [`MatcherError::StatesExhausted`] said that this is full: compiles
    /// the grammar again there and accepts its tokens again.
    ///
    /// # Errors
    /// [`RenewError`]; nothing changes.
    fn renew(&mut self, cancel: &CancelFlag) -> Result<(), RenewError>;
}
