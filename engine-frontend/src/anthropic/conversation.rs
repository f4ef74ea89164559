//! `system` and `messages` as the messages of a chat request.

use serde_json::{Map, Value, json};

use super::content_block::{ContentBlock, kind_of, misplaced, no_content, text_of};
use crate::error::ValidationError;
use crate::openai::{Warnings, check_keys, object};

const ROLES: &str = "user, assistant or system";

/// A conversation as a chat request has it.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Value>,
    /// Where each message stands in the request.
    pub(super) places: Vec<String>,
    /// True if the answer continues the last message.
    pub(super) is_continued: bool,
}

impl Conversation {
    /// Reads `system` and `messages`.
    ///
    /// # Errors
    /// The first message or block that can't be read.
    pub(super) fn new(
        system: Option<Value>,
        messages: Vec<Value>,
        warnings: &mut Warnings,
    ) -> Result<Self, ValidationError> {
        if messages.is_empty() {
            let message = "messages must hold at least one message";
            return Err(ValidationError::field("messages", "[]", message));
        }
        let mut all = Self::default();
        let system = system.map(|system| text_of("system", system)).transpose()?;
        if let Some(text) = system.filter(|text| !text.is_empty()) {
            all.add("system", json!({"role": "system", "content": text}));
        }
        for (i, message) in messages.into_iter().enumerate() {
            all.add_message(&format!("messages[{i}]"), message, warnings)?;
        }
        // The results of calls come next, and not the rest of the message.
        let last = all.messages.last();
        all.is_continued = last
            .is_some_and(|last| last["role"] == "assistant" && last.get("tool_calls").is_none());
        Ok(all)
    }

    /// Adds a message, or joins it with the last one if that is of the same role. The result of a call stays a
    /// message of its own.
    fn add(&mut self, place: &str, message: Value) {
        let role = &message["role"];
        match self.messages.last_mut() {
            Some(last) if last["role"] == *role && *role != "tool" => join(last, message),
            _ => {
                self.messages.push(message);
                self.places.push(place.to_owned());
            }
        }
    }

    fn add_message(
        &mut self,
        place: &str,
        message: Value,
        warnings: &mut Warnings,
    ) -> Result<(), ValidationError> {
        let mut message = object(place, message)?;
        check_keys(place, &message, &["role", "content"])?;
        let role = message.remove("role").unwrap_or_default();
        let content = message.remove("content").unwrap_or_default();
        let field = format!("{place}.content");
        match (role.as_str(), content) {
            (Some("system"), content) => {
                let text = text_of(&field, content)?;
                self.add(place, json!({"role": "system", "content": text}));
            }
            (Some("user" | "assistant"), Value::String(text)) => {
                self.add(place, json!({"role": role, "content": text}));
            }
            (Some("user"), Value::Array(blocks)) => self.add_user(place, &field, blocks)?,
            (Some("assistant"), Value::Array(blocks)) => {
                self.add_assistant(place, &field, blocks, warnings)?;
            }
            (Some("user" | "assistant"), content) => return Err(no_content(&field, &content)),
            _ => {
                let field = format!("{place}.role");
                let message = format!("{field} must be {ROLES}");
                return Err(ValidationError::field(field, role, message));
            }
        }
        Ok(())
    }

    /// Adds texts and results in their order: a result is a message of its own.
    fn add_user(
        &mut self,
        place: &str,
        field: &str,
        blocks: Vec<Value>,
    ) -> Result<(), ValidationError> {
        let is_empty = blocks.is_empty();
        let mut texts = Vec::new();
        for (j, block) in blocks.into_iter().enumerate() {
            let field = format!("{field}[{j}]");
            let kind = block.as_object().map(kind_of).unwrap_or_default();
            match ContentBlock::read(&field, block)? {
                ContentBlock::Text(text) => texts.push(text),
                ContentBlock::ToolResult(message) => {
                    self.add_user_text(place, &mut texts);
                    self.add(&field, message);
                }
                _ => {
                    return Err(misplaced(
                        &field,
                        &kind,
                        "it is for messages of the assistant",
                    ));
                }
            }
        }
        if is_empty {
            texts.push(String::new());
        }
        self.add_user_text(place, &mut texts);
        Ok(())
    }

    fn add_user_text(&mut self, place: &str, texts: &mut Vec<String>) {
        if !texts.is_empty() {
            let text = std::mem::take(texts).join("\n");
            self.add(place, json!({"role": "user", "content": text}));
        }
    }

    fn add_assistant(
        &mut self,
        place: &str,
        field: &str,
        blocks: Vec<Value>,
        warnings: &mut Warnings,
    ) -> Result<(), ValidationError> {
        let (mut texts, mut thinking, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for (j, block) in blocks.into_iter().enumerate() {
            let field = format!("{field}[{j}]");
            let kind = block.as_object().map(kind_of).unwrap_or_default();
            match ContentBlock::read(&field, block)? {
                ContentBlock::Text(text) => texts.push(text),
                ContentBlock::Thinking(text) => thinking.push(text),
                ContentBlock::RedactedThinking => {
                    let message = " has no effect: only the server that wrote it can read it";
                    warnings.push(&field, message);
                }
                ContentBlock::ToolUse(call) => calls.push(call),
                ContentBlock::ToolResult(_) => {
                    return Err(misplaced(&field, &kind, "it is for messages of the user"));
                }
            }
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let content = match texts.is_empty() && !calls.is_empty() {
            true => Value::Null,
            false => texts.join("\n").into(),
        };
        message.insert("content".to_owned(), content);
        if !thinking.is_empty() {
            let thinking = thinking.join("\n");
            message.insert("reasoning_content".to_owned(), thinking.into());
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), calls.into());
        }
        self.add(place, message.into());
        Ok(())
    }
}

/// Adds the texts and calls of a message to those of the one before it.
fn join(last: &mut Value, next: Value) {
    let (Some(last), Value::Object(next)) = (last.as_object_mut(), next) else {
        return;
    };
    for (name, value) in next {
        match (last.get_mut(&name), value) {
            (Some(_), Value::Null) => {}
            (Some(Value::String(_)), _) if name == "role" => {}
            (Some(Value::String(text)), Value::String(more)) => {
                if !text.is_empty() && !more.is_empty() {
                    text.push('\n');
                }
                text.push_str(&more);
            }
            (Some(Value::Array(calls)), Value::Array(more)) => calls.extend(more),
            (_, value) => {
                last.insert(name, value);
            }
        }
    }
}
