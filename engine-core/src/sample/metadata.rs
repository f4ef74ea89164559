//! What sampling needs to know of a request, kept as long as the runner knows the request.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use protocol::SamplingParams;

use super::penalties::Penalties;
use super::thinking_budget::ThinkingBudget;
use super::topk_topp::Filters;

/// Below this temperature decoding is greedy.
const GREEDY_TEMPERATURE: f32 = 1e-5;

/// How many logits the model gives, and how many of them are tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VocabSizes {
    /// Width of a row of logits.
    pub logits: usize,
    /// Ids at or above this are padding: never sampled, never reported.
    pub tokenizer: usize,
}

impl VocabSizes {
    /// Ids below this have a logit and are tokens.
    pub fn num_tokens(self) -> usize {
        self.logits.min(self.tokenizer)
    }
}

/// Sampling state of one request: its parameters and what they require of its tokens so far.
#[derive(Debug, Clone)]
pub struct RequestSamplingState {
    params: Arc<SamplingParams>,
    seed: u64,
    output_token_ids: Vec<u32>,
    penalties: Option<Penalties>,
    thinking_budget: Option<ThinkingBudget>,
}

impl RequestSamplingState {
    /// State after these tokens. `output_token_ids` are those generated already, also by an
    /// earlier core: they count for every limit and penalty, and for the index of the noise.
    ///
    /// The parameters should have passed [`super::check_params`]. Without a seed one is drawn;
    /// such a request does not reproduce. Cost: a look at every token where a penalty or a
    /// thinking budget is on, a copy of the output otherwise.
    pub fn new(
        params: Arc<SamplingParams>,
        prompt_token_ids: &[u32],
        output_token_ids: &[u32],
    ) -> Self {
        let seed = params
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(()));
        let penalties = Penalties::new(&params, prompt_token_ids, output_token_ids);
        let thinking_budget = ThinkingBudget::new(&params, prompt_token_ids, output_token_ids);
        let output_token_ids = output_token_ids.to_vec();
        Self {
            params,
            seed,
            output_token_ids,
            penalties,
            thinking_budget,
        }
    }

    /// The state of the same request after these tokens: after fewer than it has taken. Its seed
    /// stays.
    pub fn rewound(&self, prompt_token_ids: &[u32], output_token_ids: &[u32]) -> Self {
        let params = Arc::clone(&self.params);
        Self {
            seed: self.seed,
            ..Self::new(params, prompt_token_ids, output_token_ids)
        }
    }

    /// Takes the next output token, sampled or forced.
    pub fn append(&mut self, token_id: u32) {
        self.output_token_ids.push(token_id);
        if let Some(penalties) = &mut self.penalties {
            penalties.append(token_id);
        }
        if let Some(thinking_budget) = &mut self.thinking_budget {
            thinking_budget.append(token_id);
        }
    }

    /// The request's parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Output so far.
    pub fn output_token_ids(&self) -> &[u32] {
        &self.output_token_ids
    }

    /// Seed of the noise: the request's, or the one drawn for it.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Present where at least one penalty is on.
    pub(super) fn penalties(&self) -> Option<&Penalties> {
        self.penalties.as_ref()
    }

    /// The token that the thinking budget requires next.
    pub(super) fn forced_token(&self) -> Option<u32> {
        self.thinking_budget.as_ref()?.forced_token()
    }

    /// Temperature and filters; `None` for greedy decoding, which has no use for them.
    pub(super) fn filters(&self) -> Option<Filters> {
        let SamplingParams {
            temperature,
            min_p,
            top_k,
            top_p,
            ..
        } = *self.params;
        (temperature >= GREEDY_TEMPERATURE).then(|| Filters {
            inverse_temperature: 1.0 / f64::from(temperature),
            min_p,
            top_k,
            top_p,
        })
    }
}
