//! Errors.

use std::fmt;

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
    #[error("schema, at `#{pointer}`: {NO_VALUE}")]
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
    #[error("the grammar needs more than {max} {}", too_many(limit, place.as_ref()))]
    LimitExceeded {
        /// Field of [`crate::Limits`] or [`crate::CompileBudget`], or of [`crate::CompilerOptions`]: `max_mask_bytes`, or
        /// `cache_bytes`, of which states may take a share. Or in words what there would be too many
        /// of, where no field raises that.
        limit: &'static str,
        /// Its value.
        max: u64,
        /// Where, if it is at one place.
        place: Option<ProblemPlace>,
    },
    /// The caller's flag was set.
    #[error("the compilation was cancelled")]
    Cancelled,
}

/// What is wrong with a schema without values, and what would be right.
const NO_VALUE: &str = "no value is valid under this schema, as far as it can be written; change what excludes all \
                        values or leave it out";

/// Of what, where, and what would be right.
fn too_many(limit: &str, place: Option<&ProblemPlace>) -> String {
    let place = place
        .map(|place| format!(", at {place}"))
        .unwrap_or_default();
    match is_field(limit) {
        true => format!("of `{limit}`{place}: make it smaller or raise the limit"),
        false => format!("{limit}{place}: {NO_LIMIT_RAISES_THIS}"),
    }
}

/// Advice where there is too much of what no field limits.
const NO_LIMIT_RAISES_THIS: &str = "make it smaller, no limit raises this";

/// True if a limit is the name of a field, and not words for what there would be too many of.
fn is_field(limit: &str) -> bool {
    limit.starts_with("max_") || limit == "cache_bytes"
}

/// A place in the text of a schema, structural tag, pattern or grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemPlace {
    /// `None` where words alone tell it.
    pub position: Option<ProblemPosition>,
    /// What the position leaves open, to be written directly after it: the rule, the line in a grammar inside a
    /// structural tag, the place in a schema inside a grammar. Often empty.
    pub words: String,
}

/// A position that a program can find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemPosition {
    /// A JSON pointer; empty for the whole.
    Pointer(String),
    /// A character.
    LineColumn {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
    },
}

impl ProblemPlace {
    pub(crate) fn at_pointer(pointer: String) -> Self {
        Self {
            position: Some(ProblemPosition::Pointer(pointer)),
            words: String::new(),
        }
    }

    /// A pointer into one of the documents that a schema has inside; `document` is empty for the schema itself.
    pub(crate) fn in_document(document: &str, pointer: String) -> Self {
        let words = match document {
            "" => String::new(),
            document => format!(", in document `{document}`"),
        };
        Self::at_pointer(pointer).with_words(&words)
    }

    pub(crate) fn at_line(line: usize, column: usize) -> Self {
        Self {
            position: Some(ProblemPosition::LineColumn { line, column }),
            words: String::new(),
        }
    }

    /// The beginning of a text that has no positions, such as a choice.
    pub(crate) fn beginning() -> Self {
        Self {
            position: None,
            words: "its beginning".to_owned(),
        }
    }

    /// The same with further words.
    pub(crate) fn with_words(mut self, words: &str) -> Self {
        self.words.push_str(words);
        self
    }

    /// The same with another pointer, where it is one.
    pub(crate) fn map_pointer(mut self, map: impl FnOnce(&str) -> String) -> Self {
        if let Some(ProblemPosition::Pointer(pointer)) = &mut self.position {
            *pointer = map(pointer);
        }
        self
    }
}

impl fmt::Display for ProblemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.position {
            Some(ProblemPosition::Pointer(pointer)) => write!(f, "`#{pointer}`")?,
            Some(ProblemPosition::LineColumn { line, column }) => {
                write!(f, "line {line}, column {column}")?;
            }
            None => {}
        }
        f.write_str(&self.words)
    }
}

/// A [`CompileError`] as data, from which a caller makes a sentence with its own names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem<'a> {
    /// Short name of the cause: `regex`, `json_syntax`, `json_schema`, `grammar`, `structural_tag`, `option`,
    /// `no_value`, `limit`, `empty_choice`, `unsatisfiable`, `not_writable` or `cancelled`.
    pub kind: &'static str,
    /// What the place is in: `regex`, `schema`, `grammar` or `structural tag`. `None` where the message says what
    /// it is about.
    pub language: Option<&'static str>,
    /// Where.
    pub place: Option<ProblemPlace>,
    /// Byte offset in the source, where the place is a line and column.
    pub offset: Option<usize>,
    /// The option at fault.
    pub option: Option<&'a str>,
    /// Name and value of the limit that would be exceeded, where it is a field's.
    pub limit: Option<(&'static str, u64)>,
    /// What is wrong; without the place, the language and the option.
    pub message: String,
    /// What would be right, where the message doesn't say it.
    pub help: Option<&'static str>,
}

impl CompileError {
    /// The error as data. It says what [`Display`](fmt::Display) says, but for the advice to raise a limit.
    pub fn problem(&self) -> Problem<'_> {
        let plain = |kind| Problem {
            kind,
            language: None,
            place: None,
            offset: None,
            option: None,
            limit: None,
            message: self.to_string(),
            help: None,
        };
        let at_pointer = |kind, language, pointer: &str, message: &str| Problem {
            language: Some(language),
            place: Some(ProblemPlace::at_pointer(pointer.to_owned())),
            message: message.to_owned(),
            ..plain(kind)
        };
        let at_line = |kind, language, offset: usize, place, message: &str| Problem {
            language: Some(language),
            place: Some(place),
            offset: Some(offset),
            message: message.to_owned(),
            ..plain(kind)
        };
        match self {
            Self::Regex {
                message,
                offset,
                line,
                column,
            } => at_line(
                "regex",
                "regex",
                *offset,
                ProblemPlace::at_line(*line, *column),
                message,
            ),
            Self::JsonSyntax {
                message,
                offset,
                line,
                column,
            } => at_line(
                "json_syntax",
                "schema",
                *offset,
                ProblemPlace::at_line(*line, *column),
                message,
            ),
            Self::Grammar {
                message,
                offset,
                line,
                column,
            } => at_line(
                "grammar",
                "grammar",
                *offset,
                ProblemPlace::at_line(*line, *column),
                message,
            ),
            Self::JsonSchema { pointer, message } => {
                at_pointer("json_schema", "schema", pointer, message)
            }
            Self::StructuralTag { pointer, message } => {
                at_pointer("structural_tag", "structural tag", pointer, message)
            }
            Self::NoValue { pointer } => at_pointer("no_value", "schema", pointer, NO_VALUE),
            Self::InvalidOption { option, message } => Problem {
                option: Some(option),
                message: message.clone(),
                ..plain("option")
            },
            Self::LimitExceeded { limit, max, place } => {
                let name = Some(*limit).filter(|limit| is_field(limit));
                let of_what =
                    name.map_or_else(|| (*limit).to_owned(), |name| format!("of `{name}`"));
                Problem {
                    place: place.clone(),
                    limit: name.map(|name| (name, *max)),
                    message: format!("the grammar needs more than {max} {of_what}"),
                    help: Some(name.map_or(NO_LIMIT_RAISES_THIS, |_| "make it smaller")),
                    ..plain("limit")
                }
            }
            Self::EmptyChoice => plain("empty_choice"),
            Self::Unsatisfiable => plain("unsatisfiable"),
            Self::NotWritable => plain("not_writable"),
            Self::Cancelled => plain("cancelled"),
        }
    }

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

impl MatcherError {
    /// Name and value of the limit that was met, where one was.
    pub fn limit(&self) -> Option<(&'static str, u64)> {
        match *self {
            Self::StepsExhausted { max } => Some(("max_mask_steps", max)),
            Self::StatesExhausted { max } => Some(("cache_bytes", max as u64)),
            Self::BytesExhausted { max } => Some(("max_bytes", max as u64)),
            Self::ItemsExhausted { max } => Some(("max_items", max as u64)),
            _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Its words are those of [`CompileError`]'s own sentence, but for the advice.
    #[test]
    fn a_problem_has_all_that_the_sentence_says() {
        let message = || "no".to_owned();
        let (offset, line, column) = (4, 2, 3);
        let pointer = || "/a".to_owned();
        let exceeded = |limit, place| CompileError::LimitExceeded {
            limit,
            max: 7,
            place,
        };
        let in_rule = ProblemPlace::at_line(2, 3).with_words(" (rule `r`)");
        for (error, kind, sentence) in [
            (
                CompileError::regex("abc\nde", 6, message()),
                "regex",
                "regex, line 2, column 3: no",
            ),
            (
                CompileError::JsonSyntax {
                    message: message(),
                    offset,
                    line,
                    column,
                },
                "json_syntax",
                "schema, line 2, column 3: no",
            ),
            (
                CompileError::grammar("abc\nde", 6, message()),
                "grammar",
                "grammar, line 2, column 3: no",
            ),
            (
                CompileError::JsonSchema {
                    pointer: pointer(),
                    message: message(),
                },
                "json_schema",
                "schema, at `#/a`: no",
            ),
            (
                CompileError::StructuralTag {
                    pointer: pointer(),
                    message: message(),
                },
                "structural_tag",
                "structural tag, at `#/a`: no",
            ),
            (
                CompileError::InvalidOption {
                    option: "strict".to_owned(),
                    message: message(),
                },
                "option",
                "option `strict`: no",
            ),
            (
                exceeded("max_states", None),
                "limit",
                "the grammar needs more than 7 of `max_states`: make it smaller or raise the limit",
            ),
            (
                exceeded("max_states", Some(in_rule)),
                "limit",
                "the grammar needs more than 7 of `max_states`, at line 2, column 3 (rule `r`): make it smaller \
                 or raise the limit",
            ),
            (
                exceeded("rules in use", Some(ProblemPlace::beginning())),
                "limit",
                "the grammar needs more than 7 rules in use, at its beginning: make it smaller, no limit \
                 raises this",
            ),
            (
                CompileError::Unsatisfiable,
                "unsatisfiable",
                "no text matches this grammar",
            ),
        ] {
            assert_eq!(error.to_string(), sentence);
            let problem = error.problem();
            assert_eq!(problem.kind, kind);
            for part in [
                Some(problem.message.clone()),
                problem.language.map(str::to_owned),
                problem.place.as_ref().map(ToString::to_string),
                problem.option.map(|option| format!("option `{option}`")),
                problem.help.map(str::to_owned),
                problem
                    .limit
                    .map(|(name, max)| format!("{max} of `{name}`")),
            ]
            .into_iter()
            .flatten()
            {
                assert!(sentence.contains(&part), "{sentence}: {part}");
            }
        }
        let document = ProblemPlace::in_document("http://a/b", pointer());
        assert_eq!(document.to_string(), "`#/a`, in document `http://a/b`");
        assert_eq!(MatcherError::AllowanceSpent.limit(), None);
        let spent = MatcherError::StepsExhausted { max: 5 };
        assert_eq!(spent.limit(), Some(("max_mask_steps", 5)));
    }
}
