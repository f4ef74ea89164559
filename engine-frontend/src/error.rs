//! What can go wrong between a request and its answer.

use std::fmt;
use std::io;

use protocol::{GrammarLimit, RequestError, RequestErrorCode};
use serde::{Deserialize, Serialize};

pub use crate::engine_core_client::EngineDeadError;

/// Longest value that an error message repeats, in characters.
const MAX_VALUE_CHARS: usize = 200;

/// Why an address can't be listened at, and what would be right.
pub(crate) fn listen_problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "it is taken already; end what listens there, or choose another port".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{error}; it must be an address of this machine")
        }
        _ => error.to_string(),
    }
}

/// A request that is wrong in itself: HTTP 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ValidationError {
    /// What is wrong and what would be right.
    pub message: String,
    /// The field at fault; `error.param` of the API.
    pub parameter: Option<String>,
    /// The value at fault, cut short.
    pub value: Option<String>,
    /// Where a constraint is at fault, and the limit that it meets.
    pub details: Option<Box<ErrorDetails>>,
}

/// An error about a constraint as data: `error.location` and `error.limit` of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetails {
    /// Where it is at fault, in the text of the field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<ErrorLocation>,
    /// The limit that was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<GrammarLimit>,
}

/// A place in a constraint's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ErrorLocation {
    /// In a schema or structural tag.
    Pointer {
        /// A JSON pointer; empty for the whole.
        pointer: String,
    },
    /// In a pattern, a grammar, or a schema that is no JSON.
    LineColumn {
        /// From 1.
        line: u64,
        /// In characters, from 1.
        column: u64,
    },
}

impl ValidationError {
    /// An error about the request as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            parameter: None,
            value: None,
            details: None,
        }
    }

    /// An error about one field; `value` is cut short. `null` is no value: it is what an absent field has.
    pub fn field(
        parameter: impl Into<String>,
        value: impl fmt::Display,
        message: impl Into<String>,
    ) -> Self {
        Self {
            message: message.into(),
            parameter: Some(parameter.into()),
            value: Some(cut_short_display(value)).filter(|value| value != "null"),
            details: None,
        }
    }

    /// An error about one field whose value is not at fault by itself.
    pub fn about(parameter: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            parameter: Some(parameter.into()),
            value: None,
            details: None,
        }
    }

    /// A field that asks for what this engine doesn't do. `instead` says why not, or what would do.
    pub fn not_supported(
        parameter: impl Into<String>,
        value: impl fmt::Display,
        instead: &str,
    ) -> Self {
        let parameter = parameter.into();
        let message = format!("{parameter} is not supported: {instead}");
        Self::field(parameter, value, message)
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message that says what it got may mean a part of the value.
        let says = |part: &str| self.message.contains(", got ") || says(&self.message, part);
        if let Some(parameter) = &self.parameter
            && !names(&self.message, parameter)
            && !names(&self.message, &parameter.replace('_', " "))
        {
            write!(f, "{parameter}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.value {
            Some(value) if value.is_empty() => f.write_str(" (got \"\")"),
            Some(value) if !says(value) => write!(f, " (got {value})"),
            _ => Ok(()),
        }
    }
}

/// True if a message has this name, and not as a part of a longer one.
fn names(message: &str, name: &str) -> bool {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    message.match_indices(name).any(|(start, _)| {
        let (before, after) = (&message[..start], &message[start + name.len()..]);
        !before.ends_with(is_of_name) && !after.starts_with(is_of_name)
    })
}

/// True if a message has this value. One of a few characters may stand there by chance: it counts
/// where the message has it in quotes, or as what it got.
fn says(message: &str, part: &str) -> bool {
    const BY_CHANCE: usize = 3;
    match part.len() <= BY_CHANCE {
        true => {
            message.starts_with(part)
                || message.contains(&format!("got {part}"))
                || message.contains(&format!("{part:?}"))
        }
        false => message.contains(part),
    }
}

/// Cuts a value for use in a message: at most 200 characters, then an ellipsis.
pub fn cut_short(value: &str) -> String {
    match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}

/// Cuts a text that has more than `max` characters, and ends it with an ellipsis.
pub(crate) fn cut_short_to(max: usize, mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(max) {
        text.truncate(end);
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

/// What a value looks like, cut short. No more of it is written than that.
pub(crate) fn cut_short_display(value: impl fmt::Display) -> String {
    use fmt::Write as _;

    /// A text's beginning, and how many more characters it takes.
    struct Start(String, usize);

    impl fmt::Write for Start {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for character in text.chars() {
                self.1 = self.1.checked_sub(1).ok_or(fmt::Error)?;
                self.0.push(character);
            }
            Ok(())
        }
    }

    let mut start = Start(String::new(), MAX_VALUE_CHARS + 1);
    // It fails where the value is longer.
    let _ = write!(start, "{value}");
    cut_short(&start.0)
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Refused before it reached the core.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// The core refused it or failed on it; other requests are untouched.
    #[error("{}", .0.message)]
    Request(RequestError),
    /// The core is gone.
    #[error(transparent)]
    EngineDead(#[from] EngineDeadError),
}

impl GenerateError {
    /// The HTTP status that the API answers with.
    pub fn status_code(&self) -> u16 {
        match self {
            Self::Validation(_) => 400,
            Self::Request(error) => match error.code {
                RequestErrorCode::ValidationError | RequestErrorCode::GrammarRefused => 400,
                RequestErrorCode::QueueOverflow | RequestErrorCode::ShuttingDown => 503,
                RequestErrorCode::InternalError => 500,
            },
            Self::EngineDead(_) => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_says_parameter_and_value_once() {
        let error = ValidationError::field("top_p", 2.0, "top_p must be in (0, 1]");
        assert_eq!(error.to_string(), "top_p must be in (0, 1] (got 2)");
        let error = ValidationError::field("n", -1, "n must be positive, got -1");
        assert_eq!(error.to_string(), "n must be positive, got -1");
        let error = ValidationError::about("tools[0]", "two tools have this name");
        assert_eq!(error.to_string(), "tools[0]: two tools have this name");
        assert_eq!(ValidationError::new("broken").to_string(), "broken");
        let error = ValidationError::field("include", "x", "include: \"x\" is not known");
        assert_eq!(error.to_string(), "include: \"x\" is not known");
        // A part of the value.
        let error =
            ValidationError::field("ids", "[1, \"a\"]", "ids: expected a number, got \"a\"");
        assert_eq!(error.to_string(), "ids: expected a number, got \"a\"");
        // Nothing was sent.
        let error = ValidationError::field("kind", serde_json::Value::Null, "kind must be a or b");
        assert_eq!(error.to_string(), "kind must be a or b");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let error = ValidationError::field("stop", "ü".repeat(1000), "wrong");
        let value = error.value.unwrap();
        assert_eq!(value.chars().count(), 203);
        assert!(value.ends_with("ü..."));
        let list = serde_json::json!(vec![1; 100_000]);
        let value = ValidationError::field("stop", &list, "wrong")
            .value
            .unwrap();
        assert_eq!(value, cut_short(&list.to_string()));
    }

    #[test]
    fn statuses_follow_the_cause() {
        let request = |code| GenerateError::Request(RequestError::new(code, "")).status_code();
        assert_eq!(request(RequestErrorCode::ValidationError), 400);
        assert_eq!(request(RequestErrorCode::QueueOverflow), 503);
        assert_eq!(request(RequestErrorCode::ShuttingDown), 503);
        assert_eq!(request(RequestErrorCode::InternalError), 500);
    }
}
