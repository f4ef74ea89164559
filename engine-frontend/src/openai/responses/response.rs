//! What `/v1/responses` answers, in the API's words. What may be large is shared by all events that have it, and becomes
//! text with the event that is written.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::openai::logprobs::ChatCompletionLogProbs;

/// The status of what is being written.
pub(super) const IN_PROGRESS: &str = "in_progress";

/// What a response repeats of its request: fields and their JSON, as text. The values of large tools take many times
/// as much memory as theirs.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Vec<(&'static str, Box<RawValue>)>);

impl Told {
    /// Adds a field.
    pub(super) fn tell(&mut self, field: &'static str, value: &(impl Serialize + ?Sized)) {
        // What comes from a request's JSON, and our own types, have a JSON form.
        if let Ok(text) = to_raw_value(value) {
            self.0.push((field, text));
        }
    }

    /// Adds fields.
    pub(super) fn extend(&mut self, fields: Self) {
        self.0.extend(fields.0);
    }

    /// A field's value.
    #[cfg(test)]
    pub(super) fn value(&self, field: &str) -> serde_json::Value {
        let (_, text) = self.0.iter().find(|(name, _)| *name == field).unwrap();
        serde_json::from_str(text.get()).unwrap()
    }
}

/// A response, as it is now.
#[derive(Debug)]
pub struct ResponsesResponse {
    pub(super) told: Arc<Told>,
    pub(super) status: &'static str,
    pub(super) output: Vec<Arc<ResponseOutputItem>>,
    /// Why it failed.
    pub(super) error: Option<String>,
    pub(super) usage: ResponseUsage,
    /// Fields that say what is unusual of its structured output.
    pub(super) unusual: Vec<&'static str>,
}

impl Serialize for ResponsesResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut response = serializer.serialize_map(None)?;
        for (field, value) in &self.told.0 {
            response.serialize_entry(field, value)?;
        }
        response.serialize_entry("status", self.status)?;
        let output: Vec<&ResponseOutputItem> = self.output.iter().map(|item| &**item).collect();
        response.serialize_entry("output", &output)?;
        let error = self.error.as_ref();
        let error = error.map(|message| json!({"code": "server_error", "message": message}));
        response.serialize_entry("error", &error)?;
        let is_incomplete = self.status == "incomplete";
        let details = is_incomplete.then(|| json!({"reason": "max_output_tokens"}));
        response.serialize_entry("incomplete_details", &details)?;
        let usage = (self.status != IN_PROGRESS).then_some(&self.usage);
        response.serialize_entry("usage", &usage)?;
        for field in &self.unusual {
            response.serialize_entry(field, &true)?;
        }
        response.end()
    }
}

/// Tokens of a response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResponseUsage {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

impl Serialize for ResponseUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let usage = json!({
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.input + self.output,
        });
        usage.serialize(serializer)
    }
}

/// What an item is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ItemKind {
    Reasoning,
    Message,
    FunctionCall {
        call_id: String,
        /// The function's name, and its namespace's.
        names: Map<String, Value>,
    },
}

impl ItemKind {
    /// The field that has an item's text.
    pub(super) fn text_field(&self) -> &'static str {
        match self {
            Self::Reasoning | Self::Message => "text",
            Self::FunctionCall { .. } => "arguments",
        }
    }

    /// Where in an item its text stands; calls have no parts.
    pub(super) fn content_index(&self) -> Option<u32> {
        (!matches!(self, Self::FunctionCall { .. })).then_some(0)
    }
}

/// The logprobs of an item's tokens, as its pieces brought them.
pub(super) type ItemLogProbs = Vec<Arc<ChatCompletionLogProbs>>;

/// An item of a response's output.
#[derive(Debug, Clone)]
pub(super) struct ResponseOutputItem {
    pub(super) id: String,
    pub(super) kind: ItemKind,
    pub(super) text: String,
    pub(super) logprobs: ItemLogProbs,
    pub(super) status: &'static str,
}

impl Serialize for ResponseOutputItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut item = serializer.serialize_map(None)?;
        item.serialize_entry("id", &self.id)?;
        let parts = [ContentPart(self)];
        // A part is told of by an event of its own while the item is being written.
        let content = match self.status {
            IN_PROGRESS => &[],
            _ => &parts[..],
        };
        match &self.kind {
            ItemKind::Reasoning => {
                item.serialize_entry("type", "reasoning")?;
                item.serialize_entry("summary", &[(); 0])?;
                item.serialize_entry("content", content)?;
            }
            ItemKind::Message => {
                item.serialize_entry("type", "message")?;
                item.serialize_entry("role", "assistant")?;
                item.serialize_entry("content", content)?;
            }
            ItemKind::FunctionCall { call_id, names } => {
                item.serialize_entry("type", "function_call")?;
                item.serialize_entry("call_id", call_id)?;
                item.serialize_entry(self.kind.text_field(), &self.text)?;
                for (field, name) in names {
                    item.serialize_entry(field, name)?;
                }
            }
        }
        item.serialize_entry("status", self.status)?;
        item.end()
    }
}

/// The content of an item that is no call.
#[derive(Debug)]
pub(super) struct ContentPart<'a>(pub(super) &'a ResponseOutputItem);

impl Serialize for ContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_message = self.0.kind == ItemKind::Message;
        let kind = if is_message {
            "output_text"
        } else {
            "reasoning_text"
        };
        let mut part = serializer.serialize_map(None)?;
        part.serialize_entry("type", kind)?;
        part.serialize_entry("text", &self.0.text)?;
        if is_message {
            part.serialize_entry("annotations", &[(); 0])?;
            part.serialize_entry("logprobs", &LogProbs(&self.0.logprobs))?;
        }
        part.end()
    }
}

/// Logprobs as one list.
#[derive(Debug)]
pub(super) struct LogProbs<'a>(pub(super) &'a [Arc<ChatCompletionLogProbs>]);

impl Serialize for LogProbs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pieces = self.0.iter();
        serializer.collect_seq(pieces.flat_map(|piece| piece.entries()))
    }
}
