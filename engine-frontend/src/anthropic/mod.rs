//! Anthropic's Messages API, without a transport: `/v1/messages` and `/v1/messages/count_tokens`.
//!
//! A request is read into the chat request of [`openai`](crate::openai), whose template, tools, constraints and
//! sampling it shares, and the answer is told in content blocks. So a field is honoured, refused by its own name,
//! or one of [`IGNORED_FIELDS`](crate::openai::IGNORED_FIELDS).

mod answer;
mod content_block;
mod conversation;
mod error;
mod output_config;
mod protocol;
mod request;
mod serving;
mod tools;

pub use error::{AnthropicError, AnthropicErrorDetails, AnthropicErrorResponse};
pub use protocol::{
    AnthropicContentBlock, AnthropicCountTokensResponse, AnthropicMessagesResponse, AnthropicUsage,
};
pub use request::{AnthropicCountTokensRequest, AnthropicMessagesRequest};
pub use serving::AnthropicServingMessages;
