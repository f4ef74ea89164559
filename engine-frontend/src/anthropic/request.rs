//! What the routes take.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::error::THREAD;
use super::output_config::{self, Thinking};
use super::tools;
use crate::error::ValidationError;
use crate::openai::{
    Api, ChatCompletionRequest, Fields, METADATA, OwnWords, Renamed, check_ignored, object,
};

const MAX_TOKENS: &str = "max_tokens";

/// What this API calls fields of chat requests, beside those of [`output_config`].
const OWN_NAMES: [Renamed; 3] = [
    ("stop", "stop_sequences"),
    (
        "parallel_tool_calls",
        "tool_choice.disable_parallel_tool_use",
    ),
    ("tool_choice.function", "tool_choice"),
];

/// What is said of a chat request's field for which this API's answer has no place.
const NO_PLACE: &str = "this API has no place for it; /v1/chat/completions has";
const TEXT_ALONE: &str = "the engine reads and writes text alone";

/// Fields of chat requests that this API spells in another way, or has no place for in its answer.
const OF_CHAT: [(&str, &str); 28] = [
    ("stop", "use stop_sequences"),
    ("n_predict", "use max_tokens"),
    ("max_completion_tokens", "use max_tokens"),
    ("response_format", "use output_config.format"),
    ("reasoning_effort", "use thinking or output_config.effort"),
    ("include_reasoning", "use thinking.display"),
    (
        "parallel_tool_calls",
        "use tool_choice.disable_parallel_tool_use",
    ),
    ("functions", "use tools"),
    ("function_call", "use tool_choice"),
    (
        "continue_final_message",
        "an answer continues a last message of the assistant",
    ),
    (
        "add_generation_prompt",
        "an answer continues a last message of the assistant",
    ),
    ("stream_options", "streams always tell the usage"),
    ("n", "send the request several times"),
    ("best_of", "send the request several times"),
    ("logprobs", NO_PLACE),
    ("top_logprobs", NO_PLACE),
    ("logprob_token_ids", NO_PLACE),
    ("prompt_logprobs", NO_PLACE),
    ("return_token_ids", NO_PLACE),
    ("return_tokens_as_token_ids", NO_PLACE),
    ("include_trace", NO_PLACE),
    ("echo", "/v1/completions has it"),
    ("verbosity", "say in system how long an answer is to be"),
    (
        "prediction",
        "the server drafts by itself with --speculative-config",
    ),
    ("modalities", TEXT_ALONE),
    ("audio", TEXT_ALONE),
    ("media_io_kwargs", TEXT_ALONE),
    ("mm_processor_kwargs", TEXT_ALONE),
];

/// A request for `/v1/messages`.
#[derive(Debug, Clone, PartialEq)]
pub struct AnthropicMessagesRequest {
    /// What it asks for, as a chat request.
    pub chat: ChatCompletionRequest,
    /// What this API calls the chat request's fields.
    pub(super) words: OwnWords,
    /// Where each of the chat request's messages stands in this one.
    pub(super) places: Vec<String>,
    pub(super) thinking: Thinking,
}

impl AnthropicMessagesRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown, of the wrong type or not supported, by name.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Messages, body, false)?)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); and what has no effect.
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        Self::from_fields(Fields::of(Api::Messages, body, true)?)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, ValidationError> {
        refuse_unsupported(&mut fields)?;
        let mut words = OwnWords {
            names: OWN_NAMES.to_vec(),
            of_function: tools::OF_FUNCTION,
            ..OwnWords::default()
        };
        let system = fields.take_value("system");
        let messages = fields.require_list("messages")?;
        let conversation = Conversation::new(system, messages, fields.warnings())?;
        let mut chat = Map::new();
        let mut set = |name: &str, value: Value| chat.insert(name.to_owned(), value);
        set("messages", conversation.messages.into());
        set("continue_final_message", conversation.is_continued.into());
        set(MAX_TOKENS, required_max_tokens(&mut fields)?.into());
        if let Some(stop) = fields.take::<Vec<String>>("stop_sequences")? {
            set("stop", stop.into());
        }
        take_metadata(&mut fields)?;
        let forces_a_call = tools::take(&mut fields, &mut chat)?;
        let thinking = output_config::take(&mut fields, &mut chat, &mut words, forces_a_call)?;
        fields.take_ignored()?;
        let chat = ChatCompletionRequest::from_fields(fields.into_chat(chat));
        let mut chat = chat.map_err(|error| words.of_error(error, |_| None))?;
        chat.common.warnings.rename(|field| words.of_field(field));
        Ok(Self {
            chat,
            words,
            places: conversation.places,
            thinking,
        })
    }
}

/// Takes `max_tokens`.
fn required_max_tokens(fields: &mut Fields) -> Result<u64, ValidationError> {
    let value = fields.require_value(MAX_TOKENS)?;
    if let Some(max_tokens) = value.as_u64().filter(|n| (1..=u32::MAX.into()).contains(n)) {
        return Ok(max_tokens);
    }
    let why = match value == 0 {
        true => "; an answer of no tokens isn't needed, since prompts are cached by themselves",
        false => "",
    };
    let message = format!(
        "{MAX_TOKENS} must be a whole number from 1 to {}{why}",
        u32::MAX
    );
    Err(ValidationError::field(MAX_TOKENS, value, message))
}

/// A request for `/v1/messages/count_tokens`: one for `/v1/messages`, which needs no `max_tokens` here.
#[derive(Debug, Clone, PartialEq)]
pub struct AnthropicCountTokensRequest(pub AnthropicMessagesRequest);

impl AnthropicCountTokensRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// As [`AnthropicMessagesRequest::from_json`].
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        AnthropicMessagesRequest::from_json(with_max_tokens(body)).map(Self)
    }

    /// Reads a request's body for a server with `--strict-requests`.
    ///
    /// # Errors
    /// As [`AnthropicMessagesRequest::from_json_strict`].
    pub fn from_json_strict(body: Value) -> Result<Self, ValidationError> {
        AnthropicMessagesRequest::from_json_strict(with_max_tokens(body)).map(Self)
    }
}

/// A body that has a limit of tokens, whose value doesn't matter.
fn with_max_tokens(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body
        && fields.get(MAX_TOKENS).is_none_or(Value::is_null)
    {
        fields.insert(MAX_TOKENS.to_owned(), 1.into());
    }
    body
}

/// Fields that only pass where they ask for nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ValidationError> {
    for (name, instead) in OF_CHAT {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    let instead = "the server has no tools of its own; call the MCP server yourself";
    fields.refuse_unless("mcp_servers", instead, |v| v == &json!([]))?;
    let instead = "shorten the messages yourself";
    fields.refuse_unless("context_management", instead, asks_for_no_edit)?;
    fields.refuse_unless("speed", "there is one speed", |v| v == "standard")?;
    for (name, instead) in [
        (
            THREAD,
            "the server keeps nothing; bring the whole conversation as messages",
        ),
        ("container", "the server runs no code"),
    ] {
        fields.refuse_unless(name, instead, |_| false)?;
    }
    let instead = "the server computes where it runs";
    fields.refuse_unless("inference_geo", instead, |v| v == "global")?;
    let instead = "the server keeps nothing of earlier requests";
    fields.refuse_unless("diagnostics", instead, |v| {
        let asked = v.as_object();
        asked.is_some_and(|asked| asked.values().all(Value::is_null))
    })
}

/// True for a `context_management` that leaves the conversation as it is.
fn asks_for_no_edit(management: &Value) -> bool {
    let keeps_all = json!({"type": "clear_thinking_20251015", "keep": "all"});
    let Some(management) = management.as_object() else {
        return false;
    };
    management.iter().all(|(name, edits)| {
        let edits = edits.as_array().filter(|_| name == "edits");
        edits.is_some_and(|edits| edits.iter().all(|edit| *edit == keeps_all))
    })
}

/// Takes `metadata`, whose keys may be `null` here.
fn take_metadata(fields: &mut Fields) -> Result<(), ValidationError> {
    let Some(metadata) = fields.take_value(METADATA) else {
        return Ok(());
    };
    let mut metadata = object(METADATA, metadata)?;
    metadata.retain(|_, value| !value.is_null());
    check_ignored(METADATA, metadata.into(), fields.is_strict())
}
