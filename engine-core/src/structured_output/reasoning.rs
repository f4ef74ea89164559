//! Where a request stands between thinking and the text that its grammar constrains.

use std::sync::Arc;

use protocol::{SamplingParams, ThinkingTokens};

use crate::sample::SequenceMatcher;

/// What the next token belongs to.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// It may open thinking, or go on to; else it is one of the answer. So many tokens have come, which are both the
    /// first of those that open thinking and the first of the answer.
    Undecided(usize),
    /// The tokens that open thinking, this many of them taken.
    Opening(usize),
    /// Thinking, followed up to the tokens that close it.
    Thinking(SequenceMatcher),
    /// The tokens between thinking and the answer, this many of them taken.
    Separating(usize),
    /// The constrained text.
    Answer,
}

/// A request's thinking.
#[derive(Debug, Clone)]
pub(super) struct Reasoning {
    pub(super) phase: Phase,
    params: Arc<SamplingParams>,
}

impl Reasoning {
    /// Where a request starts whose prompt leaves thinking as `reasoning_ended` says (see
    /// `EngineCoreRequest`).
    pub(super) fn new(params: Arc<SamplingParams>, reasoning_ended: Option<bool>) -> Self {
        let constrained_at_once = params
            .structured_outputs
            .as_ref()
            .is_none_or(|structured_outputs| structured_outputs.enable_in_reasoning);
        let phase = match (reasoning_ended, end_matcher(&params)) {
            _ if constrained_at_once => Phase::Answer,
            (Some(true), _) | (_, None) => Phase::Answer,
            (Some(false), Some(end)) => Phase::Thinking(end),
            (None, Some(_)) => Phase::Undecided(0),
        };
        Self { phase, params }
    }

    fn tokens(&self) -> Option<&ThinkingTokens> {
        self.params.thinking_tokens.as_ref()
    }

    /// The tokens that open thinking; empty where nothing thinks.
    pub(super) fn start_token_ids(&self) -> &[u32] {
        self.tokens().map_or(&[], |tokens| &tokens.start_token_ids)
    }

    /// How many tokens open thinking, close it at once and lead to the answer.
    pub(super) fn num_start_and_end_tokens(&self) -> u32 {
        self.start_token_ids().len() as u32 + self.num_end_tokens()
    }

    /// The tokens that close thinking; empty where nothing thinks.
    pub(super) fn end_token_ids(&self) -> &[u32] {
        self.tokens().map_or(&[], |tokens| &tokens.end_token_ids)
    }

    /// The tokens between thinking and the answer; often none.
    pub(super) fn separator_token_ids(&self) -> &[u32] {
        self.tokens()
            .map_or(&[], |tokens| &tokens.separator_token_ids)
    }

    /// How many tokens close thinking and lead to the answer.
    pub(super) fn num_end_tokens(&self) -> u32 {
        (self.end_token_ids().len() + self.separator_token_ids().len()) as u32
    }

    /// Most tokens that have to come before the answer can begin.
    pub(super) fn num_tokens_to_answer(&self) -> u32 {
        match self.phase {
            Phase::Undecided(_) | Phase::Answer => 0,
            Phase::Opening(taken) => self.num_start_and_end_tokens() - taken as u32,
            Phase::Thinking(_) => self.num_end_tokens(),
            Phase::Separating(taken) => (self.separator_token_ids().len() - taken) as u32,
        }
    }

    /// Takes the next token that opens thinking.
    pub(super) fn open(&mut self, taken: usize) {
        self.phase = match end_matcher(&self.params) {
            Some(end) if taken == self.start_token_ids().len() => Phase::Thinking(end),
            _ => Phase::Opening(taken),
        };
    }

    /// Goes on behind thinking, `taken` tokens of what separates it from the answer taken.
    pub(super) fn separate(&mut self, taken: usize) {
        self.phase = match taken < self.separator_token_ids().len() {
            true => Phase::Separating(taken),
            false => Phase::Answer,
        };
    }
}

fn end_matcher(params: &SamplingParams) -> Option<SequenceMatcher> {
    let tokens = params.thinking_tokens.as_ref()?;
    if tokens.start_token_ids.is_empty() {
        return None;
    }
    SequenceMatcher::new(&tokens.end_token_ids)
}
