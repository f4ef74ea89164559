//! The pieces of a streamed answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::echo::EchoedText;
use super::logprobs::{ChatCompletionLogProbs, CompletionLogProbs};
use super::tool_call::DeltaToolCall;
use super::trace::TracedToken;
use super::usage::UsageInfo;

/// One piece of a streamed completion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionStreamResponse {
    /// `cmpl-...`, the same in all pieces.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What answers.
    pub system_fingerprint: String,
    /// What is new; empty in the piece that brings the usage.
    pub choices: Vec<CompletionResponseStreamChoice>,
    /// Tokens taken so far, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageInfo>,
    /// Parts of the request that have no effect, with `include_warnings`; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// What is new of one answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionResponseStreamChoice {
    /// Which answer.
    pub index: u32,
    /// Its next text.
    pub text: EchoedText,
    /// Logprobs of these tokens, where asked for.
    pub logprobs: Option<CompletionLogProbs>,
    /// Why the answer is complete; in its last piece.
    pub finish_reason: Option<String>,
    /// The stop string or stop token id; in its last piece.
    pub stop_reason: Option<Value>,
    /// Under a constraint, in the last piece: whether the answer is a whole text of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output_complete: Option<bool>,
    /// `true` where `max_tokens` led the answer to its end; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_completed_by_budget: bool,
    /// `true` where a string that repeated itself was closed; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_repetition_closed: bool,
    /// What these tokens were chosen from, with `include_trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Vec<TracedToken>>,
    /// These tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// The prompt's tokens, with `return_token_ids`; in the answer's first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One piece of a streamed chat completion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletionStreamResponse {
    /// `chatcmpl-...`, the same in all pieces.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What answers.
    pub system_fingerprint: String,
    /// What is new; empty in the piece that brings the usage.
    pub choices: Vec<ChatCompletionResponseStreamChoice>,
    /// The prompt's tokens, with `return_token_ids`; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Tokens taken so far, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageInfo>,
    /// Parts of the request that have no effect, with `include_warnings`; in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
}

/// What is new of one answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletionResponseStreamChoice {
    /// Which answer.
    pub index: u32,
    /// What is new of its message.
    pub delta: DeltaMessage,
    /// Logprobs of these tokens, where asked for.
    pub logprobs: Option<ChatCompletionLogProbs>,
    /// Why the answer is complete; in its last piece.
    pub finish_reason: Option<String>,
    /// The stop string or stop token id; in its last piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<Value>,
    /// Under a constraint, in the last piece: whether the answer is a whole text of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output_complete: Option<bool>,
    /// `true` where `max_tokens` led the answer to its end; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_completed_by_budget: bool,
    /// `true` where a string that repeated itself was closed; else absent.
    #[serde(skip_serializing_if = "super::is_false")]
    pub structured_output_repetition_closed: bool,
    /// What these tokens were chosen from, with `include_trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Vec<TracedToken>>,
    /// These tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new of a message. What is absent stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeltaMessage {
    /// `assistant`; in the answer's first piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The next text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The next piece of the model's thinking, where it is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// What is new of functions that the model calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<DeltaToolCall>,
}
