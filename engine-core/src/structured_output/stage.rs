//! What is asked of a grammar before its request is let in. Requests with one constraint differ in that, so that a
//! refusal at one stage concerns only those that go through it.

use structured_output::{CompileError, MatcherError};

use super::backend::CompileGrammarError;

/// How far a new request's grammar has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// It is compiled.
    Compiling,
    /// The shortest text is looked for, where the output has to be complete within `max_tokens`.
    Measuring,
    /// The first masks are made, where the output begins with the grammar's texts, and not with tokens of an earlier
    /// core.
    Opening,
    /// The tokens are accepted that an earlier core generated, and what follows them is looked at. What fails here
    /// concerns nobody else.
    Replaying,
}

/// True if whoever goes through the stage has the same error. Not where there was no memory, or nobody waited.
pub(super) fn is_lasting(error: &CompileGrammarError) -> bool {
    match error {
        CompileGrammarError::Unsupported(_) => true,
        CompileGrammarError::Compile(error) => *error != CompileError::Cancelled,
        CompileGrammarError::Matcher(error) => matches!(
            error,
            MatcherError::StepsExhausted { .. }
                | MatcherError::BytesExhausted { .. }
                | MatcherError::ItemsExhausted { .. }
        ),
        CompileGrammarError::Renew(_) => false,
    }
}
