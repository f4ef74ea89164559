//! How many tokens a caller's request has taken so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the tokens of a request while it runs, also of answers that nobody takes to their end.
#[derive(Debug, Default)]
pub struct TokenUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

impl TokenUsage {
    /// Counts the tokens of a prompt that the core is about to get.
    pub(crate) fn add_prompt_tokens(&self, tokens: usize) {
        self.prompt_tokens
            .fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Counts tokens of an answer that the core has made.
    pub(crate) fn add_completion_tokens(&self, tokens: usize) {
        self.completion_tokens
            .fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Tokens of the prompts; of `n` answers to one they count once.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens.load(Ordering::Relaxed)
    }

    /// Tokens of the answers.
    pub fn completion_tokens(&self) -> u64 {
        self.completion_tokens.load(Ordering::Relaxed)
    }
}
