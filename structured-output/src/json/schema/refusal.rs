//! Why a schema is refused.

use super::super::value::Value;
use crate::lexical::Stop;
use crate::regex::RegexError;

/// A step of a JSON pointer, written when a message needs it.
pub(super) struct At<T>(pub(super) T);

impl<T: std::fmt::Display> std::fmt::Display for At<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}", self.0)
    }
}

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is malformed, or can't be enforced.
    Schema {
        /// JSON pointer within the schema.
        at: String,
        message: String,
    },
    /// A limit would be exceeded.
    Limit {
        limit: &'static str,
        max: u64,
        /// JSON pointer within the schema, where one place is to blame.
        at: Option<&'static str>,
    },
    /// The compilation ended early.
    Stopped(Stop),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

pub(super) fn refuse(at: &str, message: impl Into<String>) -> Refusal {
    Refusal::Schema {
        at: at.to_owned(),
        message: message.into(),
    }
}

/// A keyword whose value is not what it has to be.
pub(super) fn malformed(at: &str, value: &Value, right: &str) -> Refusal {
    refuse(at, format!("expected {right}, not {}", shown(value)))
}

/// Characters that a message shows of what it is about.
const MOST_SHOWN: usize = 40;

/// A text as a message shows it: cut short.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Why a pattern is refused, and where in it: at which byte, and what stands there.
pub(in super::super) fn in_pattern(pattern: &str, error: &RegexError) -> String {
    let offset = error.offset.min(pattern.len());
    let (before, after) = pattern.split_at_checked(offset).unwrap_or((pattern, ""));
    // What is before it matters as far as it tells the place.
    let start = before.char_indices().rev().nth(MOST_SHOWN / 2);
    let (dots, before) = match start {
        Some((at, _)) => ("...", &before[at..]),
        None => ("", before),
    };
    let part = format!("{dots}{before}{}", cut(after));
    format!("at byte {offset} of `{part}`: {}", error.message)
}

/// A value as a message shows it: cut short.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => cut(text),
        Value::String(text) => format!("\"{}\"", cut(text).escape_debug()),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(members) => format!("an object of {}", members.len()),
    }
}
