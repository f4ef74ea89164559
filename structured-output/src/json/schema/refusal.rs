//! Why a schema is refused.

use super::super::value::Value;
use crate::lexical::OutOfFuel;

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
    /// The compilation's steps or bytes are used up.
    OutOfFuel,
}

impl From<OutOfFuel> for Refusal {
    fn from(_: OutOfFuel) -> Self {
        Self::OutOfFuel
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

/// A value as a message shows it: cut short.
pub(super) fn shown(value: &Value) -> String {
    const MOST: usize = 40;
    let cut = |text: &str| match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    };
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => cut(text),
        Value::String(text) => format!("\"{}\"", cut(text).escape_debug()),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(members) => format!("an object of {}", members.len()),
    }
}
