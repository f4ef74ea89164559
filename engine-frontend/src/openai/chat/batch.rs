//! `/v1/chat/completions/batch`: several conversations in one request, one answer to each.

use serde_json::{Value, json};

use super::message::ArgumentBudget;
use super::{ChatCompletionRequest, chat_messages};
use crate::error::ValidationError;
use crate::openai::completion::MAX_PROMPTS;
use crate::openai::fields::{Fields, list};
use crate::openai::ignored_fields::Api;

const MESSAGES: &str = "messages";

/// A request for `/v1/chat/completions/batch`: the fields of a chat request, and a list of conversations in place of
/// one.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchChatCompletionRequest {
    /// What all conversations share. It has no messages.
    pub shared: ChatCompletionRequest,
    /// The messages of each, in the form of [`ChatCompletionRequest::messages`].
    pub conversations: Vec<Vec<Value>>,
}

impl BatchChatCompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name; of a conversation by
    /// its index, such as `messages[2][0].role`.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Chat, body, false)?)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Chat, body, true)?)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, ValidationError> {
        refuse_unsupported(&mut fields)?;
        let conversations = fields.require_list(MESSAGES)?;
        let count = conversations.len();
        if !(1..=MAX_PROMPTS).contains(&count) {
            let message =
                format!("{MESSAGES} must hold 1 to {MAX_PROMPTS} conversations, got {count}");
            return Err(ValidationError::field(MESSAGES, count, message));
        }
        // One budget for all: it bounds what one body is parsed into.
        let mut arguments = ArgumentBudget::new();
        let conversations = conversations
            .into_iter()
            .enumerate()
            .map(|(i, conversation)| take_conversation(i, conversation, &mut arguments))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shared: ChatCompletionRequest::with_messages(fields, |_| Ok(Vec::new()))?,
            conversations,
        })
    }
}

/// The messages of conversation number `i`.
fn take_conversation(
    i: usize,
    conversation: Value,
    arguments: &mut ArgumentBudget,
) -> Result<Vec<Value>, ValidationError> {
    let field = format!("{MESSAGES}[{i}]");
    if !conversation.is_array() {
        let message = format!("{field} must be a conversation: a list of messages");
        return Err(ValidationError::field(field, &conversation, message));
    }
    let messages = list(&field, conversation)?;
    chat_messages(messages, arguments).map_err(|error| in_conversation(&field, error))
}

/// An error about a conversation's messages, by the conversation's field.
fn in_conversation(field: &str, error: ValidationError) -> ValidationError {
    let Some(parameter) = &error.parameter else {
        return error;
    };
    let own = parameter.replacen(MESSAGES, field, 1);
    ValidationError {
        message: error.message.replacen(parameter.as_str(), &own, 1),
        parameter: Some(own),
        ..error
    }
}

/// Refuses what a request of several conversations can't ask for.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    const ONE: &str = "send each conversation to /v1/chat/completions for that";
    fields.refuse_unless("stream", ONE, |value| value == false)?;
    fields.refuse_unless("n", ONE, |value| value.as_u64() == Some(1))?;
    fields.refuse_unless("tools", ONE, |value| value == &json!([]))?;
    fields.refuse_unless("tool_choice", ONE, |value| value == "none")?;
    let instead = "it is of one conversation; send each to /v1/chat/completions";
    fields.refuse_unless("prompt_logprobs", instead, |_| false)
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    fn refused(body: Value) -> (String, String) {
        let error = BatchChatCompletionRequest::from_json(body).unwrap_err();
        let field = error.parameter.clone().unwrap();
        (field, error.to_string())
    }

    #[test]
    fn conversations_are_read_as_one_would_be() {
        let conversations = json!([
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}],
            [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [
                {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
            ]}, {"role": "tool", "tool_call_id": "c", "content": "1"}],
        ]);
        let body = json!({"messages": conversations, "temperature": 0, "guided_regex": "a+"});
        let batch = BatchChatCompletionRequest::from_json(body.clone()).unwrap();
        assert_eq!(batch.conversations.len(), 3);
        for (i, messages) in batch.conversations.iter().enumerate() {
            let mut one = body.clone();
            one["messages"] = conversations[i].clone();
            let mut one = ChatCompletionRequest::from_json(one).unwrap();
            assert_eq!(*messages, mem::take(&mut one.messages));
            assert_eq!(batch.shared, one);
        }
    }

    #[test]
    fn errors_name_the_conversation() {
        let user = json!({"role": "user", "content": "a"});
        for (messages, field) in [
            (json!([]), "messages"),
            (json!(vec![json!([user]); 1025]), "messages"),
            (json!("a"), "messages"),
            (json!([user]), "messages[0]"),
            (json!([[user], user]), "messages[1]"),
            (json!([[user], []]), "messages[1]"),
            (
                json!([[user], [user, {"role": "x"}]]),
                "messages[1][1].role",
            ),
            (
                json!([[{"role": "user", "content": 1}]]),
                "messages[0][0].content",
            ),
            (json!([[user], [user], ["a"]]), "messages[2][0]"),
            (
                json!([[user], [{"role": "user", "content": "a", "contnt": 1}]]),
                "messages[1][0].contnt",
            ),
        ] {
            let (at, message) = refused(json!({"messages": messages}));
            assert_eq!(at, field, "{message}");
            assert!(message.contains(field), "{message}");
        }
        assert_eq!(refused(json!({})).0, "messages");
    }

    #[test]
    fn what_is_of_one_conversation_is_refused_by_name() {
        for (field, value, passes) in [
            ("stream", json!(true), json!(false)),
            ("n", json!(2), json!(1)),
            (
                "tools",
                json!([{"type": "function", "function": {"name": "f"}}]),
                json!(null),
            ),
            ("tool_choice", json!("auto"), json!("none")),
            ("prompt_logprobs", json!(1), json!(null)),
            ("use_beam_search", json!(true), json!(false)),
            ("temprature", json!(1), json!(null)),
        ] {
            let mut body = json!({"messages": [[{"role": "user", "content": "a"}]]});
            body[field] = value;
            assert_eq!(refused(body.clone()).0, field);
            body[field] = passes;
            assert!(
                BatchChatCompletionRequest::from_json(body).is_ok(),
                "{field}"
            );
        }
    }
}
