//! How many tokens a caller's request has taken so far, and how its answers ended.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use protocol::FinishReason;

/// All reasons, in the order in which they are named.
const FINISH_REASONS: [FinishReason; 5] = [
    FinishReason::Stop,
    FinishReason::Length,
    FinishReason::Repetition,
    FinishReason::Abort,
    FinishReason::Error,
];

/// Counts the tokens of a request while it runs, also of answers that nobody takes to their end.
#[derive(Debug, Default)]
pub struct TokenUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    /// Bit `i` is set where an answer ended for `FINISH_REASONS[i]`.
    finish_reasons: AtomicU8,
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

    /// Notes why one of the answers ended.
    pub(crate) fn add_finish_reason(&self, reason: FinishReason) {
        let bits = FINISH_REASONS.iter().enumerate();
        let bits = bits.filter(|(_, of)| **of == reason);
        let bit = bits.fold(0, |bits, (i, _)| bits | 1 << i);
        self.finish_reasons.fetch_or(bit, Ordering::Relaxed);
    }

    /// Why the answers ended: `stop`, or `stop,length` where they ended for several reasons. `None`
    /// before the first one ends.
    pub fn finish_reasons(&self) -> Option<String> {
        let bits = self.finish_reasons.load(Ordering::Relaxed);
        let reasons = FINISH_REASONS.iter().enumerate();
        let names = reasons.filter(|(i, _)| bits >> i & 1 == 1);
        let names: Vec<&str> = names.map(|(_, reason)| reason.as_str()).collect();
        (!names.is_empty()).then(|| names.join(","))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_named_once() {
        let usage = TokenUsage::default();
        assert_eq!(usage.finish_reasons(), None);
        usage.add_finish_reason(FinishReason::Length);
        assert_eq!(usage.finish_reasons().as_deref(), Some("length"));
        for reason in FINISH_REASONS.into_iter().rev().chain([FinishReason::Stop]) {
            usage.add_finish_reason(reason);
        }
        let all = usage.finish_reasons();
        assert_eq!(all.as_deref(), Some("stop,length,repetition,abort,error"));
    }
}
