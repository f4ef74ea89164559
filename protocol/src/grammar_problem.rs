//! What is wrong with a request's grammar, as data.

use serde::{Deserialize, Serialize};

/// What is wrong with a constraint, beside the message of its [`RequestError`](crate::RequestError): whoever tells it
/// makes the sentence, with the names that the caller has for its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrammarProblem {
    /// What the place is in: `regex`, `schema`, `grammar` or `structural tag`. `None` where the message says what it
    /// is about.
    pub language: Option<String>,
    /// Where it is, in the constraint's text.
    pub place: Option<GrammarPlace>,
    /// The option at fault, such as `whitespace_pattern`.
    pub option: Option<String>,
    /// The limit that was met.
    pub limit: Option<GrammarLimit>,
    /// What would be right, where the message doesn't say it.
    pub help: Option<String>,
}

/// A place in a constraint's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrammarPlace {
    /// `None` where words alone tell it.
    pub position: Option<GrammarPosition>,
    /// What the position leaves open, to be written directly after it.
    pub words: String,
}

/// A position that a program can find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrammarPosition {
    /// A JSON pointer in a schema or structural tag; empty for the whole.
    Pointer(String),
    /// A character of a pattern, a grammar, or a schema that is no JSON.
    LineColumn {
        /// From 1.
        line: u64,
        /// In characters, from 1.
        column: u64,
    },
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrammarLimit {
    /// Such as `max_states`; `max_tokens` and `max_model_len` where no output fits.
    pub name: String,
    /// Its value.
    pub value: u64,
}
