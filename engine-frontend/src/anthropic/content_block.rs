//! Content blocks of requests.

use serde_json::{Map, Value, json};

use crate::error::{ValidationError, cut_short};
use crate::openai::{check_keys, missing, object, parse};

const TEXT: &[&str] = &[
    "type",
    "text",
    "cache_control",
    "citations",
    "parsed_output",
];
const TOOL_USE: &[&str] = &[
    "type",
    "id",
    "name",
    "input",
    "cache_control",
    "caller",
    "toolset_name",
];
const TOOL_RESULT: &[&str] = &[
    "type",
    "tool_use_id",
    "content",
    "is_error",
    "cache_control",
    "toolset_name",
];
const THINKING: &[&str] = &["type", "thinking", "signature"];
const REDACTED_THINKING: &[&str] = &["type", "data"];

/// Blocks that are no text.
const NO_TEXT: [&str; 4] = ["image", "document", "container_upload", "search_result"];

/// A content block.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ContentBlock {
    Text(String),
    Thinking(String),
    /// Thinking that only Anthropic's servers can read.
    RedactedThinking,
    /// A call, as chat requests have it.
    ToolUse(Value),
    /// A message with a call's result, as chat requests have it.
    ToolResult(Value),
}

impl ContentBlock {
    /// Reads the block at `field`.
    ///
    /// # Errors
    /// A key is missing, unknown or of another type; the kind can't be read by this engine.
    pub(super) fn read(field: &str, block: Value) -> Result<Self, ValidationError> {
        let mut block = object(field, block)?;
        block.retain(|_, value| !value.is_null());
        let kind = kind_of(&block);
        let known = match kind.as_str() {
            "text" => TEXT,
            "tool_use" => TOOL_USE,
            "tool_result" => TOOL_RESULT,
            "thinking" => THINKING,
            "redacted_thinking" => REDACTED_THINKING,
            _ => return Err(refused(field, &block)),
        };
        check_keys(field, &block, known)?;
        Ok(match kind.as_str() {
            "tool_use" => {
                let at_input = format!("{field}.input");
                let input = block.remove("input").ok_or_else(|| missing(&at_input))?;
                let input = object(&at_input, input)?;
                let id: String = take(field, &mut block, "id")?;
                let name: String = take(field, &mut block, "name")?;
                // `json!` would copy what it is given.
                let mut function = json!({"name": name});
                function["arguments"] = input.into();
                let mut call = json!({"id": id, "type": "function"});
                call["function"] = function;
                Self::ToolUse(call)
            }
            "tool_result" => {
                let id: String = take(field, &mut block, "tool_use_id")?;
                let is_error = match block.remove("is_error") {
                    Some(is_error) => parse(&format!("{field}.is_error"), is_error)?,
                    None => false,
                };
                let content = match block.remove("content") {
                    Some(content) => text_of(&format!("{field}.content"), content)?,
                    None => String::new(),
                };
                // Chat templates have no other place for it.
                let content = if is_error {
                    format!("Error: {content}")
                } else {
                    content
                };
                Self::ToolResult(json!({"role": "tool", "tool_call_id": id, "content": content}))
            }
            "thinking" => Self::Thinking(take(field, &mut block, "thinking")?),
            "redacted_thinking" => Self::RedactedThinking,
            _ => Self::Text(take(field, &mut block, "text")?),
        })
    }
}

/// The text of a string, or of blocks of text.
pub(super) fn text_of(field: &str, content: Value) -> Result<String, ValidationError> {
    let blocks = match content {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) => blocks,
        other => return Err(no_content(field, &other)),
    };
    let texts = blocks.into_iter().enumerate().map(|(j, block)| {
        let field = format!("{field}[{j}]");
        let kind = block.as_object().map(kind_of).unwrap_or_default();
        match ContentBlock::read(&field, block)? {
            ContentBlock::Text(text) => Ok(text),
            _ => Err(misplaced(
                &field,
                &kind,
                "only blocks of text are read there",
            )),
        }
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// The error about content that is neither a text nor blocks.
pub(super) fn no_content(field: &str, value: &Value) -> ValidationError {
    let message = format!("{field} must be a string or a list of content blocks");
    ValidationError::field(field, value, message)
}

/// The error about a block where it can't stand.
pub(super) fn misplaced(field: &str, kind: &str, why: &str) -> ValidationError {
    let field = format!("{field}.type");
    let message = format!("{field} {kind:?} can't stand there: {why}");
    ValidationError::field(field, kind, message)
}

/// The `type` of a content block, empty where that is no text. A long one is cut short: it is no known type, and is
/// copied for an error alone.
pub(super) fn kind_of(block: &Map<String, Value>) -> String {
    let kind = block.get("type").and_then(Value::as_str);
    kind.map(cut_short).unwrap_or_default()
}

/// The error about a block of a kind that isn't read.
fn refused(field: &str, block: &Map<String, Value>) -> ValidationError {
    let value = block.get("type").unwrap_or(&Value::Null);
    let why = match value.as_str() {
        Some(kind) if NO_TEXT.contains(&kind) => "this engine reads text only",
        Some(kind) if kind == "server_tool_use" || kind.ends_with("_tool_result") => {
            "the server runs no tools of its own"
        }
        Some("tool_reference") => "tools are in the prompt from the start",
        _ => {
            let field = format!("{field}.type");
            let message = format!(
                "{field} must be text, tool_use, tool_result, thinking or redacted_thinking"
            );
            return ValidationError::field(field, value, message);
        }
    };
    ValidationError::not_supported(field, value, why)
}

fn take<T: serde::de::DeserializeOwned>(
    field: &str,
    block: &mut Map<String, Value>,
    name: &str,
) -> Result<T, ValidationError> {
    let field = format!("{field}.{name}");
    match block.remove(name) {
        Some(value) => parse(&field, value),
        None => Err(missing(&field)),
    }
}
