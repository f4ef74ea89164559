//! What the worker keeps of a request between steps.

use protocol::{LogprobsLists, SamplingParams, ScoredPosition, Shared};

use crate::sample::RequestSamplingState;
use crate::worker::pool_rows::PoolingState;

/// A request as the worker sees it: its tokens, where its keys and values lie, how it samples.
pub(crate) struct CachedRequestState {
    /// Prompt and output.
    pub(crate) token_ids: Vec<u32>,
    /// How many of them are prompt.
    pub(crate) num_prompt_tokens: usize,
    /// How many have their keys and values in the cache.
    pub(crate) num_computed_tokens: usize,
    /// How many of the last computed tokens the request before this one in the batch computes: the first step writes
    /// their keys and values for both. `None` after the first step, and where that request begins with other tokens.
    pub(crate) num_shared_tokens: Option<usize>,
    /// Blocks that hold them, in order.
    pub(crate) block_ids: Vec<u32>,
    pub(crate) sampling_state: RequestSamplingState,
    /// Present while prompt logprobs are asked for and not yet delivered.
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
    /// Present where positions are scored, and nothing is sampled.
    pub(crate) scores: Option<Scores>,
    /// Present where hidden states are pooled, and nothing is sampled.
    pub(crate) pooling: Option<PoolingState>,
}

/// Scores under way: they are delivered at once, when the prompt is computed.
pub(crate) struct Scores {
    pub(crate) positions: Shared<[ScoredPosition]>,
    /// Of the first positions. They stay where the request is preempted.
    pub(crate) rows: Vec<Vec<f32>>,
}

impl Scores {
    /// The positions whose logits a step brings that computes the tokens up to `end`: each with its index.
    pub(crate) fn due(&self, end: usize) -> impl Iterator<Item = (usize, &ScoredPosition)> {
        let positions = self.positions.iter().enumerate().skip(self.rows.len());
        positions.take_while(move |(_, position)| position.num_tokens as usize <= end)
    }
}

/// Prompt logprobs under way: they are delivered at once, when the prompt is computed.
pub(crate) struct PromptLogprobs {
    /// Rows so far; row 0 belongs to prompt token `first_position`.
    pub(crate) rows: LogprobsLists,
    /// First prompt token that gets a row; never 0, which nothing predicts.
    pub(crate) first_position: usize,
}

impl PromptLogprobs {
    pub(crate) fn new(sampling_params: &SamplingParams) -> Self {
        Self {
            rows: LogprobsLists::default(),
            first_position: (sampling_params.prompt_logprob_start as usize).max(1),
        }
    }

    /// The next prompt token that needs a row.
    pub(crate) fn next_position(&self) -> usize {
        self.first_position + self.rows.logprobs.len()
    }
}

impl CachedRequestState {
    /// True if its tokens come with a trace, which needs the full row before its mask.
    pub(crate) fn wants_trace(&self) -> bool {
        self.sampling_state.params().include_trace
    }

    /// Whether its tokens come with logprobs, which need the full row.
    pub(crate) fn wants_logprobs(&self) -> bool {
        let params = self.sampling_state.params();
        params.logprobs.is_some() || params.logprob_token_ids.is_some()
    }

    /// Whether a grammar constrains its output.
    pub(crate) fn is_constrained(&self) -> bool {
        self.sampling_state.params().structured_outputs.is_some()
    }

    /// Makes the output what the scheduler says it is: its first `num_output_tokens`, of which the
    /// last ones, `new_token_ids`, were not sampled here.
    pub(crate) fn take_over(&mut self, num_output_tokens: usize, new_token_ids: &[u32]) {
        let num_sampled = num_output_tokens.saturating_sub(new_token_ids.len());
        if self.num_prompt_tokens + num_sampled < self.token_ids.len() {
            self.token_ids
                .truncate(self.num_prompt_tokens + num_sampled);
            let (prompt, output) = self.token_ids.split_at(self.num_prompt_tokens);
            self.sampling_state = self.sampling_state.rewound(prompt, output);
        }
        new_token_ids
            .iter()
            .for_each(|&token_id| self.append(token_id));
    }

    /// Whether `num_scheduled` more tokens bring the request to its end, where a token is sampled.
    pub(crate) fn samples_after(&self, num_scheduled: usize) -> bool {
        self.num_computed_tokens + num_scheduled == self.token_ids.len()
    }

    /// Appends a token, sampled or forced.
    pub(crate) fn append(&mut self, token_id: u32) {
        self.token_ids.push(token_id);
        self.sampling_state.append(token_id);
    }
}
