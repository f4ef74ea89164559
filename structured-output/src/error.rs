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
    /// A schema is not JSON.
    #[error("schema, line {line}, column {column}: {message}")]
    JsonSyntax {
        /// What is wrong, and what would be right.
        message: String,
        /// Byte offset in the source.
        offset: usize,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// A schema is malformed, or has an assertion that can't be enforced.
    #[error("schema, at `#{pointer}`: {message}")]
    JsonSchema {
        /// JSON pointer to the keyword.
        pointer: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A grammar is malformed, or has a part that can't be enforced.
    #[error("grammar, line {line}, column {column}: {message}")]
    Grammar {
        /// What is wrong, and what would be right.
        message: String,
        /// Byte offset in the source.
        offset: usize,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// A structural tag is malformed, or has a part that can't be enforced.
    #[error("structural tag, at `#{pointer}`: {message}")]
    StructuralTag {
        /// JSON pointer to the part.
        pointer: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// An option of [`crate::JsonSchemaOptions`] can't be used.
    #[error("option `{option}`: {message}")]
    InvalidOption {
        /// The option; of a limit `limits.` and its name.
        option: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// There is nothing to choose from.
    #[error("the choice is empty: give at least one string")]
    EmptyChoice,
    /// No value is valid under a schema.
    #[error(
        "schema, at `#{pointer}`: no value is valid under this schema, as far as it can be written; change \
         what excludes all values or leave it out"
    )]
    NoValue {
        /// JSON pointer to the innermost schema of which that is true by itself, as far as it was looked
        /// for; or to its keyword, where that plainly is why.
        pointer: String,
    },
    /// No text at all matches.
    #[error("no text matches this grammar")]
    Unsatisfiable,
    /// Texts match, but none that tokens of the vocabulary can write.
    #[error("no sequence of this vocabulary's tokens writes a text that matches this grammar")]
    NotWritable,
    /// A limit or budget would be exceeded.
    #[error("the grammar needs more than {max} {}", too_many(limit, place.as_deref()))]
    LimitExceeded {
        /// Field of [`crate::Limits`] or [`crate::CompileBudget`], or of [`crate::CompilerOptions`]: `max_mask_bytes`, or
        /// `cache_bytes`, of which states may take a share. Or in words what there would be too many
        /// of, where no field raises that.
        limit: &'static str,
        /// Its value.
        max: u64,
        /// Where, if it is at one place: of a grammar line and column, and the rule; of a schema or
        /// structural tag the JSON pointer.
        place: Option<String>,
    },
    /// The caller's flag was set.
    #[error("the compilation was cancelled")]
    Cancelled,
}

/// Of what, where, and what would be right.
fn too_many(limit: &str, place: Option<&str>) -> String {
    let place = place
        .map(|place| format!(", at {place}"))
        .unwrap_or_default();
    match limit.starts_with("max_") || limit == "cache_bytes" {
        true => format!("of `{limit}`{place}: make it smaller or raise the limit"),
        false => format!("{limit}{place}: make it smaller, no limit raises this"),
    }
}

impl CompileError {
    /// A regex error at a byte offset of its pattern.
    pub(crate) fn regex(pattern: &str, offset: usize, message: String) -> Self {
        let (line, column) = line_and_column(pattern, offset);
        Self::Regex {
            message,
            offset,
            line,
            column,
        }
    }

    /// A grammar's error at a byte offset of its source.
    pub(crate) fn grammar(source: &str, offset: usize, message: String) -> Self {
        let (line, column) = line_and_column(source, offset);
        Self::Grammar {
            message,
            offset,
            line,
            column,
        }
    }

    /// A syntax error at a byte offset of a JSON text.
    pub(crate) fn json_syntax(source: &str, offset: usize, message: String) -> Self {
        let (line, column) = line_and_column(source, offset);
        Self::JsonSyntax {
            message,
            offset,
            line,
            column,
        }
    }
}

/// What some editors write before the first character of a file. It is no part of a grammar.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Line and column, in characters and from 1, of a byte offset.
pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let before = before.strip_prefix(BYTE_ORDER_MARK).unwrap_or(before);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
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
    /// The answer takes more steps than the matcher's allowance has, or others are at work in its memory:
    /// see [`GrammarMatcher::set_allowance`](crate::GrammarMatcher::set_allowance).
    #[error("the grammar's answer takes more steps than are allowed now")]
    AllowanceSpent,
    /// The grammars in use together have made more states than the engine keeps. The matcher goes on where
    /// it was after [`GrammarCompiler::renew`](crate::GrammarCompiler::renew).
    #[error(
        "the grammar's states exceed the engine's memory: {max} bytes (a share of `cache_bytes`)"
    )]
    StatesExhausted {
        /// Bytes for states.
        max: usize,
    },
    /// The matcher's calls have added as many states as they may: see
    /// [`GrammarMatcher::set_max_bytes`](crate::GrammarMatcher::set_max_bytes). Other memory is no help.
    #[error("the grammar needs more than {max} bytes here (limit `max_bytes`)")]
    BytesExhausted {
        /// The limit.
        max: usize,
    },
    /// The text can be read in too many ways at once.
    #[error("the grammar is too ambiguous here: more than {max} items (limit `max_items`)")]
    ItemsExhausted {
        /// The limit.
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
}
