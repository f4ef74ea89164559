//! Errors.

/// Why a grammar can't be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A regular expression is malformed, or has a part that can't be enforced.
    #[error("regex, line {line}, column {column}: {message}")]
    Regex {
        /// What is wrong, and what would be right.
        message: String,
        /// Byte offset in the pattern.
        offset: usize,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// There is nothing to choose from.
    #[error("the choice is empty: give at least one string")]
    EmptyChoice,
    /// No text at all matches.
    #[error("no text matches this grammar")]
    Unsatisfiable,
    /// Texts match, but none that tokens of the vocabulary can write.
    #[error("no sequence of this vocabulary's tokens writes a text that matches this grammar")]
    NotWritable,
    /// A limit or budget would be exceeded.
    #[error("the grammar needs more than {max} of `{limit}`: make it smaller or raise the limit")]
    LimitExceeded {
        /// Field of [`crate::Limits`] or [`crate::CompileBudget`].
        limit: &'static str,
        /// Its value.
        max: u64,
    },
    /// The caller's flag was set.
    #[error("the compilation was cancelled")]
    Cancelled,
}

impl CompileError {
    /// A regex error at a byte offset of its pattern.
    pub(crate) fn regex(pattern: &str, offset: usize, message: String) -> Self {
        let before = pattern.get(..offset).unwrap_or(pattern);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self::Regex {
            message,
            offset,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// Why a matcher can't answer. The matcher itself is unchanged and goes on to work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatcherError {
    /// The work of one call exceeds its limit.
    #[error("the grammar needs more than {max} steps here (limit `max_mask_steps`)")]
    StepsExhausted {
        /// The limit.
        max: u64,
    },
    /// The grammars in use together have made more states than the engine keeps.
    #[error(
        "the grammar's states exceed the engine's memory: {max} bytes (a share of `cache_bytes`)"
    )]
    StatesExhausted {
        /// Bytes for states.
        max: usize,
    },
    /// The row is narrower than the vocabulary.
    #[error("the bitmask row has {words} words but the vocabulary needs {needed}")]
    RowTooShort {
        /// Words given.
        words: usize,
        /// Words needed: `ceil(vocab_size / 32)`.
        needed: usize,
    },
    /// More tokens are to be taken back than were accepted.
    #[error("rollback of {asked} tokens, but only {accepted} have been accepted")]
    RollbackTooFar {
        /// Tokens to take back.
        asked: usize,
        /// Tokens accepted so far.
        accepted: usize,
    },
    /// Fewer tokens are left than the output needs.
    #[error("the output can't be completed within {num_tokens} tokens: it needs {needed}")]
    CannotCompleteWithin {
        /// Tokens left, stop token included.
        num_tokens: u32,
        /// What `min_tokens_to_complete` says.
        needed: u32,
    },
    /// The only tokens that could continue the text are this matcher's own stop tokens.
    #[error("the matcher's own stop tokens are the only ones that could continue the text")]
    OnlyStopTokens,
}
