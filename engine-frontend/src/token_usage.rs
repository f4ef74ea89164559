//! How many tokens a caller's request has taken so far, and how its answers ended.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use protocol::FinishReason;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// For this reason.
    Finish(FinishReason),
    /// Led to its end by the limit of its tokens.
    CompletedByBudget,
    /// A loop in a string of it was closed.
    RepetitionClosed,
}

impl Ending {
    fn as_str(self) -> &'static str {
        match self {
            Self::Finish(reason) => reason.as_str(),
            Self::CompletedByBudget => "completed_by_budget",
            Self::RepetitionClosed => "repetition_closed",
        }
    }
}

/// All of them, in the order in which they are named.
const ENDINGS: [Ending; 7] = [
    Ending::Finish(FinishReason::Stop),
    Ending::Finish(FinishReason::Length),
    Ending::Finish(FinishReason::Repetition),
    Ending::Finish(FinishReason::Abort),
    Ending::Finish(FinishReason::Error),
    Ending::CompletedByBudget,
    Ending::RepetitionClosed,
];

/// Counts the tokens of a request while it runs, also of answers that nobody takes to their end.
#[derive(Debug, Default)]
pub struct TokenUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    /// Bit `i` is set where an answer ended as `ENDINGS[i]` says.
    endings: AtomicU8,
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

    /// Notes how one of the answers ended.
    pub(crate) fn add_ending(&self, ending: Ending) {
        let bits = ENDINGS.iter().enumerate();
        let bits = bits.filter(|(_, of)| **of == ending);
        let bit = bits.fold(0, |bits, (i, _)| bits | 1 << i);
        self.endings.fetch_or(bit, Ordering::Relaxed);
    }

    /// How the answers ended: `stop`, or `stop,length` where they ended for several reasons. `None` before
    /// the first one ends.
    pub fn finish_reasons(&self) -> Option<String> {
        let bits = self.endings.load(Ordering::Relaxed);
        let endings = ENDINGS.iter().enumerate();
        let names = endings.filter(|(i, _)| bits >> i & 1 == 1);
        let names: Vec<&str> = names.map(|(_, ending)| ending.as_str()).collect();
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
        usage.add_ending(Ending::Finish(FinishReason::Length));
        assert_eq!(usage.finish_reasons().as_deref(), Some("length"));
        for ending in ENDINGS.into_iter().rev().chain([ENDINGS[0]]) {
            usage.add_ending(ending);
        }
        let all = usage.finish_reasons();
        assert_eq!(
            all.as_deref(),
            Some("stop,length,repetition,abort,error,completed_by_budget,repetition_closed")
        );
    }
}
