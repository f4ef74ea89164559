//! Answers and the events of streams.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The answer to an [`AnthropicMessagesRequest`](super::AnthropicMessagesRequest).
#[derive(Debug, Clone, Serialize)]
pub struct AnthropicMessagesResponse {
    /// `msg_...`.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The model's name.
    pub model: String,
    /// What the model said.
    pub content: Vec<AnthropicContentBlock>,
    /// Why the answer ended.
    #[serde(flatten)]
    pub end: AnthropicEnd,
    /// Tokens taken.
    pub usage: AnthropicUsage,
    /// Parts of the request that have no effect, with `include_warnings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// Why an answer ended; of one that goes on, nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AnthropicEnd {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: Option<&'static str>,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
    /// As in chat completions, where it is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output_complete: Option<bool>,
    /// As in chat completions, where it is `true`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub structured_output_completed_by_budget: bool,
    /// As in chat completions, where it is `true`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub structured_output_repetition_closed: bool,
}

/// A part of an answer.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnthropicContentBlock {
    /// Text for the reader.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought.
    Thinking {
        /// The text; empty where `thinking.display` is `omitted`.
        thinking: String,
        /// BLAKE3 hash of the whole thinking, in hexadecimal digits. Nobody checks it.
        signature: String,
    },
    /// A call.
    ToolUse {
        /// `toolu_...`, or nine letters and digits where the model's template wants these.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments, exactly as the model wrote them; `{}` where a stream begins a call.
        input: Box<RawValue>,
    },
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnthropicUsage {
    /// Tokens of the prompt, without those of `cache_read_input_tokens`.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// 0: nobody pays for caching.
    pub cache_creation_input_tokens: u64,
    /// Tokens of the prompt that came from the prefix cache, where the server is told to say it; else 0.
    pub cache_read_input_tokens: u64,
    /// Details of the answer's tokens.
    pub output_tokens_details: AnthropicOutputTokensDetails,
}

/// Details of an answer's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnthropicOutputTokensDetails {
    /// Those that were thinking.
    pub thinking_tokens: u64,
}

/// The answer to an [`AnthropicCountTokensRequest`](super::AnthropicCountTokensRequest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnthropicCountTokensResponse {
    /// Tokens of the prompt, system text and tools included.
    pub input_tokens: u64,
}

/// An event of a stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicStreamEvent<'a> {
    MessageStart {
        message: &'a AnthropicMessagesResponse,
    },
    Ping,
    ContentBlockStart {
        index: usize,
        content_block: &'a AnthropicContentBlock,
    },
    ContentBlockDelta {
        index: usize,
        delta: AnthropicDelta<'a>,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        delta: &'a AnthropicEnd,
        usage: AnthropicUsage,
    },
    MessageStop,
}

impl AnthropicStreamEvent<'_> {
    /// The event's name, which is its type as well.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::Ping => "ping",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// What is new of a content block.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the API's names")]
pub(super) enum AnthropicDelta<'a> {
    TextDelta { text: &'a str },
    ThinkingDelta { thinking: &'a str },
    SignatureDelta { signature: &'a str },
    InputJsonDelta { partial_json: &'a str },
}
