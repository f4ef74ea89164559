//! `thinking_token_budget`: forcing the end of thinking.

use protocol::SamplingParams;

use super::sequence_matcher::SequenceMatcher;

/// Follows a request's tokens through thinking and out of it.
#[derive(Debug, Clone)]
pub(super) struct ThinkingBudget {
    budget: u32,
    start: SequenceMatcher,
    end: SequenceMatcher,
    /// Tokens since the start sequence; `None` outside thinking.
    thought: Option<u32>,
}

impl ThinkingBudget {
    /// `None` where the request has no budget, or no sequences to tell thinking by.
    pub(super) fn new(
        params: &SamplingParams,
        prompt_token_ids: &[u32],
        output_token_ids: &[u32],
    ) -> Option<Self> {
        let budget = params.thinking_token_budget?;
        let tokens = params.thinking_tokens.as_ref()?;
        let mut state = Self {
            budget,
            start: SequenceMatcher::new(&tokens.start_token_ids)?,
            end: SequenceMatcher::new(&tokens.end_token_ids)?,
            thought: None,
        };
        for &id in prompt_token_ids.iter().chain(output_token_ids) {
            state.append(id);
        }
        Some(state)
    }

    /// Takes the next token, of the prompt or of the output.
    pub(super) fn append(&mut self, token_id: u32) {
        match &mut self.thought {
            None => {
                if self.start.advance(token_id) {
                    self.thought = Some(0);
                }
            }
            Some(thought) => {
                *thought = thought.saturating_add(1);
                if self.end.advance(token_id) {
                    self.thought = None;
                }
            }
        }
    }

    /// The token that must come next: once the budget is spent, the end sequence from where the
    /// output stands in it.
    pub(super) fn forced_token(&self) -> Option<u32> {
        (self.thought? >= self.budget)
            .then(|| self.end.next())
            .flatten()
    }
}
