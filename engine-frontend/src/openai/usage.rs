//! How many tokens a request took, as responses tell it.

use serde::{Deserialize, Serialize};

/// How many tokens a request took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageInfo {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// Tokens of all answers.
    pub completion_tokens: u64,
    /// More about the prompts, where the server is told to say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// More about the answers, where the model thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

/// More about the answers' tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CompletionTokensDetails {
    /// Those that were thinking.
    pub reasoning_tokens: u64,
}

/// More about the prompts' tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Those that came from the prefix cache.
    pub cached_tokens: u64,
}

impl UsageInfo {
    /// Usage of these many tokens.
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details: None,
            completion_tokens_details: None,
        }
    }

    /// The same with the tokens that were thinking, if any.
    #[must_use]
    pub fn with_reasoning_tokens(mut self, reasoning_tokens: u64) -> Self {
        self.completion_tokens_details =
            (reasoning_tokens > 0).then_some(CompletionTokensDetails { reasoning_tokens });
        self
    }

    /// The same with the tokens that came from the prefix cache; `None` is not told.
    #[must_use]
    pub fn with_cached_tokens(mut self, cached_tokens: Option<u64>) -> Self {
        self.prompt_tokens_details =
            cached_tokens.map(|cached_tokens| PromptTokensDetails { cached_tokens });
        self
    }
}
