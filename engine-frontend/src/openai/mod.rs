//! The OpenAI API's requests and responses, with vLLM's extra fields, apart from any transport:
//! the batch runner and an HTTP server use the same types and the same [`OpenAIServing`].
//!
//! A field is honoured, refused by name, or one of a few that can't change an answer
//! ([`IGNORED_FIELDS`]). Nothing is dropped in silence. `null` counts as absent.
//!
//! Differences from the API as OpenAI runs it: thinking comes as `reasoning_content`, apart from
//! `content`; a function's arguments are always an object, valid under its schema.

mod chat;
mod check;
mod chunk;
mod completion;
mod default_sampling_params;
mod echo;
mod error;
mod fields;
mod ignored_fields;
mod known_keys;
mod llama_cpp;
mod logprobs;
mod own_words;
mod reasoning_effort;
mod request;
mod responses;
mod serving;
mod streaming;
mod structured_outputs;
mod token_in_token_out;
mod tokenize;
mod tool_call;
mod tool_choice;
mod tool_format;
mod tool_parser;
mod tool_strictness;
mod tools;
mod trace;
mod usage;
mod warnings;

pub use chat::{
    BatchChatCompletionRequest, ChatCompletionRequest, ChatCompletionResponse,
    ChatCompletionResponseChoice, ChatMessage,
};
pub use check::{CheckError, CheckRequest, CheckResponse};
pub use chunk::{
    ChatCompletionResponseStreamChoice, ChatCompletionStreamResponse,
    CompletionResponseStreamChoice, CompletionStreamResponse, DeltaMessage,
};
pub use completion::{
    CompletionPrompt, CompletionRequest, CompletionResponse, CompletionResponseChoice,
};
pub use default_sampling_params::DefaultSamplingParams;
pub use echo::EchoedText;
pub use error::{ErrorInfo, ErrorResponse, ServingError};
pub(crate) use ignored_fields::INCLUDES;
pub use ignored_fields::{Accepted, Api, IGNORED_FIELDS, IgnoredField};
pub use logprobs::{ChatCompletionLogProbs, CompletionLogProbs};
pub(crate) use reasoning_effort::REASONING_EFFORTS;
pub(crate) use request::check_names;
pub use request::{CommonFields, StreamOptions};
pub use responses::ResponsesRequest;
pub(crate) use responses::{input_messages, text_parts};
pub use serving::{ChatSettings, OpenAIServing, RequestContext};
pub use streaming::{EventStream, Piece};
pub use token_in_token_out::{
    TokenGenerateChoice, TokenGenerateRequest, TokenGenerateResponse, TokenGenerateStreamResponse,
    TokenLogprob, TokenLogprobs, TokenLogprobsContent,
};
pub use tokenize::{DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse};
pub use tool_call::{DeltaFunctionCall, DeltaToolCall, FunctionCall, ToolCall};
pub use tool_choice::ToolChoice;
pub use tool_format::ToolCallFormat;
pub use tool_strictness::ToolStrictness;
pub use trace::{TracedAlternative, TracedToken};
pub use usage::{CompletionTokensDetails, PromptTokensDetails, UsageInfo};
pub use warnings::Warnings;

// What the Messages API is made of: see `crate::anthropic`.
pub(crate) use fields::{Fields, list, missing, object, parse};
pub(crate) use ignored_fields::{METADATA, check as check_ignored};
pub(crate) use known_keys::{check as check_keys, unknown as unknown_key};
pub(crate) use own_words::{OwnWords, Renamed};
pub(crate) use streaming::Pieces;
pub(crate) use tool_call::call_id;
pub(crate) use tool_format::Openings;
pub(crate) use tool_parser::{AnswerPart, ToolParser};
pub(crate) use tools::check_number as check_number_of_tools;

/// For fields of answers that only say what is unusual.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}
