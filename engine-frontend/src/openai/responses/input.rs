//! `input` as the messages of a conversation.

use serde_json::{Map, Value, json};

use super::namespaces::named_in;
use super::request::object;
use crate::error::ValidationError;
use crate::openai::known_keys::{
    self, CALL_ITEM, CALL_OUTPUT_ITEM, CONTENT_PART, MESSAGE_ITEM, REASONING_ITEM,
};

/// The messages of an input, after the instructions.
#[derive(Debug, Default)]
pub(super) struct InputMessages {
    pub(super) messages: Vec<Value>,
    /// Where each stands in the request.
    places: Vec<Place>,
    /// What the model thought before its next message.
    reasoning: Option<String>,
}

/// Where a message stands in a request.
#[derive(Debug)]
struct Place {
    field: String,
    /// The items that its calls are.
    calls: Vec<usize>,
}

impl InputMessages {
    /// The messages of a request.
    ///
    /// # Errors
    /// The first item that is none.
    pub(super) fn new(instructions: Option<&str>, input: Value) -> Result<Self, ValidationError> {
        let mut all = Self::default();
        if let Some(instructions) = instructions {
            let message = json!({"role": "system", "content": instructions});
            all.add("instructions".to_owned(), message);
        }
        let items = match input {
            Value::String(text) => {
                all.add("input".to_owned(), json!({"role": "user", "content": text}));
                return Ok(all);
            }
            Value::Array(items) => items,
            other => {
                let message = "input must be a string or a list of items";
                return Err(ValidationError::field("input", other, message));
            }
        };
        if items.is_empty() {
            let message = "input must hold at least one item";
            return Err(ValidationError::field("input", "[]", message));
        }
        for (i, item) in items.into_iter().enumerate() {
            all.add_item(i, item)?;
        }
        Ok(all)
    }

    /// Where this API's request has a chat request's field, where that is one of a message.
    pub(super) fn own_field(&self, field: &str) -> Option<String> {
        let (index, rest) = indexed(field, "messages[")?;
        let place = self.places.get(index)?;
        if let Some((call, rest)) = indexed(rest, ".tool_calls[") {
            let item = place.calls.get(call)?;
            let rest = rest.strip_prefix(".function").unwrap_or(rest);
            let rest = if rest == ".id" { ".call_id" } else { rest };
            return Some(format!("input[{item}]{rest}"));
        }
        Some(format!("{}{rest}", place.field))
    }

    fn add(&mut self, field: String, message: Value) {
        self.messages.push(message);
        let calls = Vec::new();
        self.places.push(Place { field, calls });
    }

    fn add_item(&mut self, i: usize, item: Value) -> Result<(), ValidationError> {
        let Value::Object(mut item) = item else {
            let message = format!("input[{i}] must be an object");
            return Err(ValidationError::field(format!("input[{i}]"), item, message));
        };
        let check = |item: &_, known| known_keys::check(&format!("input[{i}]"), item, known);
        match item.get("type").and_then(Value::as_str) {
            None | Some("message") if item.get("type").is_none_or(Value::is_string) => {
                check(&item, MESSAGE_ITEM)?;
                let role = item.remove("role").unwrap_or_default();
                let content = item.remove("content").unwrap_or_default();
                let content = text_parts(&format!("input[{i}].content"), content)?;
                let reasoning = match role == "assistant" {
                    true => self.reasoning.take(),
                    false => None,
                };
                let mut message = object([("role", role), ("content", content)]);
                if let Some(reasoning) = reasoning {
                    set(&mut message, "reasoning_content", reasoning.into());
                }
                self.add(format!("input[{i}]"), message);
            }
            Some("function_call") => {
                check(&item, CALL_ITEM)?;
                let name = text(i, &item, "name")?;
                let call = json!({
                    "id": text(i, &item, "call_id")?, "type": "function",
                    "function": {
                        "name": named_in(item.get("namespace"), &name), "arguments": text(i, &item, "arguments")?,
                    },
                });
                self.add_call(i, call);
            }
            Some("function_call_output") => {
                check(&item, CALL_OUTPUT_ITEM)?;
                let output = item.remove("output").unwrap_or_default();
                let content = text_parts(&format!("input[{i}].output"), output)?;
                let id = text(i, &item, "call_id")?;
                let role = "tool".into();
                let message = object([
                    ("role", role),
                    ("tool_call_id", id.into()),
                    ("content", content),
                ]);
                self.add(format!("input[{i}]"), message);
            }
            Some("reasoning") => {
                check(&item, REASONING_ITEM)?;
                for name in ["content", "summary"] {
                    let parts = item.get(name).and_then(Value::as_array);
                    for (j, part) in parts.into_iter().flatten().enumerate() {
                        if let Value::Object(part) = part {
                            let field = format!("input[{i}].{name}[{j}]");
                            known_keys::check(&field, part, CONTENT_PART)?;
                        }
                    }
                }
                let parts = item.get("content").or_else(|| item.get("summary"));
                let parts = parts.and_then(Value::as_array).into_iter().flatten();
                let texts = parts.filter_map(|part| part.get("text")?.as_str());
                self.reasoning = Some(texts.collect());
            }
            _ => {
                let field = format!("input[{i}].type");
                let value = item.remove("type").unwrap_or_default();
                let message = format!(
                    "{field} must be message, function_call, function_call_output or reasoning"
                );
                return Err(ValidationError::field(field, value, message));
            }
        }
        Ok(())
    }

    /// Adds a call to the message that it belongs to: the assistant's last, or one of its own.
    fn add_call(&mut self, i: usize, call: Value) {
        let is_assistant = |message: &Value| message.get("role") == Some(&json!("assistant"));
        if !self.messages.last().is_some_and(is_assistant) {
            let mut message = json!({"role": "assistant", "content": null});
            if let Some(reasoning) = self.reasoning.take() {
                set(&mut message, "reasoning_content", reasoning.into());
            }
            self.add(format!("input[{i}]"), message);
        }
        let (Some(message), Some(place)) = (self.messages.last_mut(), self.places.last_mut())
        else {
            return;
        };
        place.calls.push(i);
        match message.get_mut("tool_calls") {
            Some(Value::Array(calls)) => calls.push(call),
            _ => set(message, "tool_calls", json!([call])),
        }
    }
}

/// The messages of an input, in the words of a chat request.
///
/// # Errors
/// The first item that is none.
pub(crate) fn input_messages(input: Value) -> Result<Vec<Value>, ValidationError> {
    Ok(InputMessages::new(None, input)?.messages)
}

/// The number behind `before` in a field's name, and what follows its bracket.
fn indexed<'a>(field: &'a str, before: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = field.strip_prefix(before)?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn set(message: &mut Value, key: &str, value: Value) {
    if let Some(message) = message.as_object_mut() {
        message.insert(key.to_owned(), value);
    }
}

fn text(i: usize, item: &Map<String, Value>, name: &str) -> Result<String, ValidationError> {
    match item.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        other => {
            let field = format!("input[{i}].{name}");
            let message = format!("{field} must be a string");
            let value = other.unwrap_or(&Value::Null);
            Err(ValidationError::field(field, value, message))
        }
    }
}

/// A string, or text parts in the words of a chat request.
///
/// # Errors
/// It is neither, or a part isn't text.
pub(crate) fn text_parts(field: &str, content: Value) -> Result<Value, ValidationError> {
    let parts = match content {
        Value::String(_) => return Ok(content),
        Value::Array(parts) => parts,
        other => {
            let message = format!("{field} must be a string or a list of text parts");
            return Err(ValidationError::field(field, other, message));
        }
    };
    let parts = parts.into_iter().enumerate().map(|(j, mut part)| {
        let kind = part.get("type").and_then(Value::as_str);
        let name = match kind {
            // What the assistant said instead of an answer.
            Some("refusal") => "refusal",
            _ => "text",
        };
        let has_text = part.get(name).is_some_and(Value::is_string);
        match kind {
            Some("input_text" | "output_text" | "text" | "refusal") if has_text => {
                if let Some(part) = part.as_object() {
                    known_keys::check(&format!("{field}[{j}]"), part, CONTENT_PART)?;
                }
                let text = part.get_mut(name).map(Value::take).unwrap_or_default();
                // No more than a text is kept of it: a list of short ones would be many times as large.
                Ok(object([("type", "text".into()), ("text", text)]))
            }
            _ => {
                let field = format!("{field}[{j}]");
                if let (Some("input_text" | "output_text" | "text"), Some(part)) =
                    (kind, part.as_object())
                {
                    known_keys::check(&field, part, CONTENT_PART)?;
                }
                let message = format!(
                    "{field} must be {{\"type\": \"input_text\", \"text\": ...}}: this engine reads \
                     text only"
                );
                Err(ValidationError::field(field, &part, message))
            }
        }
    });
    parts.collect()
}
