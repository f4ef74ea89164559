//! Messages of a conversation, as requests have them.

use serde_json::{Map, Value};

use crate::error::ValidationError;
use crate::json_problem::json_problem;
use crate::openai::fields::object;
use crate::openai::known_keys::{self, CALLED_FUNCTION, CONTENT_PART, MESSAGE, TOOL_CALL};
use crate::openai::tools::name_of;
use crate::unique_json::{self, UniqueJsonError};

/// The roles of the API.
const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// Bytes of memory that the values in the arguments of all calls of a conversation may take.
const FREE_ARGUMENT_BYTES: usize = 12 << 20;
/// The same besides, per byte of the arguments' text.
const ARGUMENT_BYTES_PER_BYTE: usize = 4;

/// What the values in the arguments of a conversation's calls may still take. They stand in the body as
/// texts, so they are not counted with its values.
#[derive(Debug)]
pub(super) struct ArgumentBudget {
    bytes: usize,
}

impl ArgumentBudget {
    /// That of a new conversation.
    pub(super) fn new() -> Self {
        let bytes = FREE_ARGUMENT_BYTES;
        Self { bytes }
    }

    /// Reads a call's arguments.
    fn read(&mut self, field: &str, text: &str) -> Result<Value, ValidationError> {
        let per_byte = text.len().saturating_mul(ARGUMENT_BYTES_PER_BYTE);
        self.bytes = self.bytes.saturating_add(per_byte);
        let problem = match unique_json::from_models_text(text, self.bytes) {
            Ok((value, bytes)) => {
                self.bytes = self.bytes.saturating_sub(bytes);
                return Ok(value);
            }
            Err(UniqueJsonError::TooLarge(_)) => {
                "its values would take too much memory: send fewer calls, or shorter ones"
                    .to_owned()
            }
            Err(UniqueJsonError::Syntax { error, .. }) => json_problem(&error),
            Err(UniqueJsonError::DuplicateKey { key, .. }) => {
                format!("the key {key:?} comes twice")
            }
        };
        let message = format!("{field} must be JSON as text: {problem}");
        Err(ValidationError::field(field, text, message))
    }
}

/// Checks a message and brings it to the form that templates expect: `content` as one string,
/// the arguments of tool calls as objects. Other known keys reach the template as they are.
pub(super) fn chat_message(
    i: usize,
    message: Value,
    arguments: &mut ArgumentBudget,
) -> Result<Value, ValidationError> {
    let mut message = object(&format!("messages[{i}]"), message)?;
    let role = message.get("role").and_then(Value::as_str).unwrap_or("");
    if !ROLES.contains(&role) {
        let value = message.get("role").unwrap_or(&Value::Null);
        return Err(ValidationError::field(
            format!("messages[{i}].role"),
            value,
            format!("messages[{i}].role must be one of {}", ROLES.join(", ")),
        ));
    }
    let is_assistant = role == "assistant";
    known_keys::check(&format!("messages[{i}]"), &message, MESSAGE)?;
    refuse_unread(i, &mut message)?;
    let content = match message.remove("content").unwrap_or_default() {
        // What the assistant said instead of an answer.
        Value::Null if is_assistant => message.remove("refusal").unwrap_or_default(),
        other => other,
    };
    let content = match content {
        Value::String(_) => content,
        Value::Null if is_assistant => content,
        Value::Array(parts) => Value::from(join_text_parts(i, &parts)?),
        other => {
            return Err(ValidationError::field(
                format!("messages[{i}].content"),
                &other,
                format!("messages[{i}].content must be a string or a list of text parts"),
            ));
        }
    };
    message.insert("content".to_owned(), content);
    // Servers have two names for an answer's thinking, and templates read the older one.
    if let Some(reasoning) = message.get("reasoning").filter(|value| value.is_string())
        && message.get("reasoning_content").is_none_or(Value::is_null)
    {
        let reasoning = reasoning.clone();
        message.insert("reasoning_content".to_owned(), reasoning);
    }
    if !is_assistant
        && let Some(calls) = message.remove("tool_calls")
        && !is_nothing(&calls)
    {
        let field = format!("messages[{i}].tool_calls");
        let message = format!("{field} must be left out: calls are the assistant's");
        return Err(ValidationError::about(field, message));
    }
    if let Some(calls) = message.get_mut("tool_calls") {
        read_tool_calls(&format!("messages[{i}].tool_calls"), calls, arguments)?;
    }
    Ok(Value::Object(message))
}

/// Refuses what a message says in a form that no template reads, and takes out what it says as nothing.
fn refuse_unread(i: usize, message: &mut Map<String, Value>) -> Result<(), ValidationError> {
    const TEXT_ALONE: &str = "this engine reads text only";
    for (name, instead) in [
        (
            "function_call",
            "it is the older form of a call; use tool_calls",
        ),
        ("audio", TEXT_ALONE),
        ("images", TEXT_ALONE),
    ] {
        let value = message.remove(name).unwrap_or_default();
        if !is_nothing(&value) {
            let field = format!("messages[{i}].{name}");
            return Err(ValidationError::not_supported(field, &value, instead));
        }
    }
    Ok(())
}

/// True for a value that says nothing: `null`, or an empty text, list or object.
pub(in crate::openai) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks the calls of an earlier answer, and reads their arguments.
fn read_tool_calls(
    field: &str,
    calls: &mut Value,
    budget: &mut ArgumentBudget,
) -> Result<(), ValidationError> {
    if calls.is_null() {
        return Ok(());
    }
    let Value::Array(calls) = calls else {
        let message = format!("{field} must be a list of calls");
        return Err(ValidationError::field(field, calls, message));
    };
    for (j, call) in calls.iter_mut().enumerate() {
        let field = format!("{field}[{j}]");
        if name_of(call).is_none() {
            let message = format!(
                "{field} must look like {{\"id\": ..., \"type\": \"function\", \"function\": \
                 {{\"name\": ..., \"arguments\": \"{{...}}\"}}}}"
            );
            return Err(ValidationError::field(field, call, message));
        }
        if let Some(call) = call.as_object() {
            known_keys::check(&field, call, TOOL_CALL)?;
        }
        if let Some(function) = call.get("function").and_then(Value::as_object) {
            known_keys::check(&format!("{field}.function"), function, CALLED_FUNCTION)?;
        }
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        let read = match arguments.as_str() {
            None => continue,
            Some("") => Value::Object(Map::new()),
            Some(text) => budget.read(&format!("{field}.function.arguments"), text)?,
        };
        *arguments = read;
    }
    Ok(())
}

fn join_text_parts(i: usize, parts: &[Value]) -> Result<String, ValidationError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (j, part) in parts.iter().enumerate() {
        let text = match part {
            Value::String(text) => Some(text.as_str()),
            _ => match part.get("type").and_then(Value::as_str) {
                // A refusal is what the assistant said.
                Some(kind @ ("text" | "refusal")) => {
                    if let Some(part) = part.as_object() {
                        let field = format!("messages[{i}].content[{j}]");
                        known_keys::check(&field, part, CONTENT_PART)?;
                    }
                    part.get(kind).and_then(Value::as_str)
                }
                _ => None,
            },
        };
        texts.push(text.ok_or_else(|| {
            ValidationError::field(
                format!("messages[{i}].content[{j}]"),
                part,
                format!(
                    "messages[{i}].content[{j}] must be {{\"type\": \"text\", \"text\": ...}}: \
                     this engine reads text only"
                ),
            )
        })?);
    }
    Ok(texts.join("\n"))
}
