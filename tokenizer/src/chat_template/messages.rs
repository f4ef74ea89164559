//! Messages as the API has them, into messages as templates expect them.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::error::ChatTemplateError;
use super::values::{BYTES_PER_VALUE, TemplateValue};

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

const CONTENT: &str = "content";

/// A message of a conversation, checked. Each template reads its `content` in a shape that it knows.
///
/// It is made of JSON, which it takes the place of, as a [`TemplateValue`] is.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateMessage {
    /// All members in their order; that of `content` stands for what is in `texts`.
    members: Vec<(Value, Value)>,
    /// The texts of `content`: those of its parts, or one.
    texts: Vec<Value>,
    content_is_list: bool,
    num_bytes: usize,
}

impl TemplateMessage {
    /// The messages of a conversation in the OpenAI API's shape: objects with `role`, `content` (a string, a list of
    /// text parts, or null or nothing for an empty text), `tool_calls`, whose arguments are parsed from their JSON text,
    /// and whatever else a template knows.
    ///
    /// # Errors
    /// [`ChatTemplateError::InvalidMessage`] for one of another shape.
    pub fn list(messages: Vec<Json>) -> Result<Vec<Self>, ChatTemplateError> {
        let messages = messages.into_iter().enumerate();
        messages
            .map(|(index, message)| Self::new(message, &format!("messages[{index}]")))
            .collect()
    }

    fn new(message: Json, field: &str) -> Result<Self, ChatTemplateError> {
        let Json::Object(mut message) = message else {
            let right = "an object with role and content";
            return Err(invalid(field.to_owned(), &message, right));
        };
        if !message.get("role").is_some_and(Json::is_string) {
            let role = message.get("role").unwrap_or(&Json::Null);
            return Err(invalid(format!("{field}.role"), role, "a string"));
        }
        // Its place among the members stays.
        let content = message.insert(CONTENT.to_owned(), Json::Null);
        let content_is_list = matches!(content, Some(Json::Array(_)));
        let texts = texts_of(content.unwrap_or_default(), &format!("{field}.{CONTENT}"))?;
        if let Some(Json::Array(calls)) = message.get_mut("tool_calls") {
            for (index, call) in calls.iter_mut().enumerate() {
                parse_arguments(call, || format!("{field}.tool_calls[{index}]"))?;
            }
        }
        let mut num_bytes = BYTES_PER_VALUE;
        let members = message.into_iter().map(|(name, value)| {
            let value = TemplateValue::from(value);
            num_bytes += name.len() + value.num_bytes();
            (Value::from(name), value.into_value())
        });
        Ok(Self {
            members: members.collect(),
            texts,
            content_is_list,
            num_bytes,
        })
    }

    /// Its `content`, unless that is a list.
    pub fn text(&self) -> Option<&str> {
        match (self.content_is_list, self.texts.as_slice()) {
            (false, [text]) => text.as_str(),
            _ => None,
        }
    }

    /// The message with its content as a template knows it, and about how many bytes it has.
    pub(super) fn to_value(&self, format: ContentFormat) -> (Value, usize) {
        let (content, num_bytes) = self.content(format);
        let members = self.members.iter().map(|(name, value)| {
            let is_content = name.as_str() == Some(CONTENT);
            let value = if is_content { &content } else { value };
            (name.clone(), value.clone())
        });
        (Value::from_pairs(members), self.num_bytes + num_bytes)
    }

    /// The content as the caller sent it, if the template knows that; else in the other shape, if it knows that.
    fn content(&self, format: ContentFormat) -> (Value, usize) {
        const PART_BYTES: usize =
            2 * BYTES_PER_VALUE + "type".len() + "text".len() + "text".len() + BYTES_PER_VALUE;
        let texts = self.texts.iter().filter_map(Value::as_str);
        let num_bytes_of_texts: usize = texts.clone().map(str::len).sum();
        let as_parts = format.parts && (self.content_is_list || !format.strings);
        if as_parts {
            let parts = self.texts.iter().map(|text| {
                Value::from_pairs([("type", Value::from("text")), ("text", text.clone())])
            });
            let num_bytes = num_bytes_of_texts + PART_BYTES * self.texts.len();
            return (parts.collect(), num_bytes);
        }
        match self.texts.as_slice() {
            [text] => (text.clone(), num_bytes_of_texts),
            _ => {
                let text = texts.collect::<Vec<_>>().join(PART_SEPARATOR);
                let num_bytes = text.len();
                (Value::from(text), num_bytes)
            }
        }
    }
}

/// The texts of a message's content.
fn texts_of(content: Json, field: &str) -> Result<Vec<Value>, ChatTemplateError> {
    match content {
        Json::Null => Ok(vec![Value::from("")]),
        Json::String(text) => Ok(vec![Value::from(text)]),
        Json::Array(parts) => {
            let parts = parts.into_iter().enumerate();
            parts
                .map(|(index, part)| part_text(part, || format!("{field}[{index}]")))
                .collect()
        }
        other => {
            let right = "a string, a list of parts or null";
            Err(invalid(field.to_owned(), &other, right))
        }
    }
}

/// The text of one content part.
fn part_text(mut part: Json, field: impl Fn() -> String) -> Result<Value, ChatTemplateError> {
    if let Json::String(text) = part {
        return Ok(Value::from(text));
    }
    let is_text = part.get("type").and_then(Json::as_str) == Some("text");
    match part.get_mut("text") {
        Some(Json::String(text)) if is_text => Ok(Value::from(std::mem::take(text))),
        _ => {
            let right = r#"{"type": "text", "text": "..."}"#;
            Err(invalid(field(), &part, right))
        }
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
