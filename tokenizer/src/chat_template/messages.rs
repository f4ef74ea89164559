//! Messages as the API has them, into messages as templates expect them.

use serde_json::{Map, Value as Json};

use super::error::ChatTemplateError;
use super::values::TemplateValue;

/// Which shapes of `content` a template writes as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentFormat {
    /// A string.
    pub(super) strings: bool,
    /// A list of `{"type": "text", "text": ...}`.
    pub(super) parts: bool,
}

/// Separates text parts where a template takes strings only, as vLLM does it.
const PART_SEPARATOR: &str = "\n";

/// The messages as template values: `content` in a shape that the template knows (a missing one
/// is empty text), the arguments of tool calls parsed from their JSON text.
pub(super) fn prepare(
    messages: &[Json],
    format: ContentFormat,
) -> Result<Vec<TemplateValue>, ChatTemplateError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            let field = format!("messages[{index}]");
            let Json::Object(message) = message else {
                return Err(invalid(field, message, "an object with role and content"));
            };
            let mut message = message.clone();
            if !message.get("role").is_some_and(Json::is_string) {
                let role = message.get("role").unwrap_or(&Json::Null);
                return Err(invalid(format!("{field}.role"), role, "a string"));
            }
            let content = message.get("content").unwrap_or(&Json::Null);
            let content = prepare_content(content, format, &format!("{field}.content"))?;
            message.insert("content".to_owned(), content);
            if let Some(Json::Array(calls)) = message.get_mut("tool_calls") {
                for (index, call) in calls.iter_mut().enumerate() {
                    parse_arguments(call, || format!("{field}.tool_calls[{index}]"))?;
                }
            }
            Ok(TemplateValue::from(Json::Object(message)))
        })
        .collect()
}

fn prepare_content(
    content: &Json,
    format: ContentFormat,
    field: &str,
) -> Result<Json, ChatTemplateError> {
    let texts: Vec<&str> = match content {
        Json::Null => vec![""],
        Json::String(text) => vec![text],
        Json::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| part_text(part, || format!("{field}[{index}]")))
            .collect::<Result<_, _>>()?,
        other => {
            return Err(invalid(
                field.to_owned(),
                other,
                "a string, a list of parts or null",
            ));
        }
    };
    // What the caller sent, if the template knows it; else the other shape, if it knows that.
    let as_parts = if content.is_array() {
        format.parts
    } else {
        format.parts && !format.strings
    };
    if !as_parts {
        return Ok(Json::String(texts.join(PART_SEPARATOR)));
    }
    let parts = texts.into_iter().map(|text| {
        Json::Object(Map::from_iter([
            ("type".to_owned(), Json::from("text")),
            ("text".to_owned(), Json::from(text)),
        ]))
    });
    Ok(Json::Array(parts.collect()))
}

/// The text of one content part.
fn part_text(part: &Json, field: impl Fn() -> String) -> Result<&str, ChatTemplateError> {
    if let Json::String(text) = part {
        return Ok(text);
    }
    match (part.get("type").and_then(Json::as_str), part.get("text")) {
        (Some("text"), Some(Json::String(text))) => Ok(text),
        _ => Err(invalid(field(), part, r#"{"type": "text", "text": "..."}"#)),
    }
}

/// The API carries a call's arguments as JSON text; templates want the object.
fn parse_arguments(call: &mut Json, field: impl Fn() -> String) -> Result<(), ChatTemplateError> {
    let Some(arguments) = call.pointer_mut("/function/arguments") else {
        return Ok(());
    };
    if let Json::String(text) = arguments {
        let parsed = if text.is_empty() {
            Json::Object(Map::new())
        } else {
            serde_json::from_str(text).map_err(|error| ChatTemplateError::InvalidMessage {
                field: format!("{}.function.arguments", field()),
                message: format!("{:?} is not JSON: {error}", shorten(text)),
            })?
        };
        *arguments = parsed;
    }
    Ok(())
}

fn invalid(field: String, value: &Json, right: &str) -> ChatTemplateError {
    ChatTemplateError::InvalidMessage {
        field,
        message: format!("{} is not {right}", shorten(&value.to_string())),
    }
}

/// The start of a text, for an error message.
fn shorten(text: &str) -> String {
    const MAX: usize = 80;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
