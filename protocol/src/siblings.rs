//! Requests that travel together, since they hold the same.

use serde::{Deserialize, Serialize};

use crate::pooling_params::PoolingParams;
use crate::request::{EngineCoreRequest, ScoredPosition};
use crate::sampling_params::{SamplingParams, ThinkingTokens};
use crate::shared::Shared;

/// Requests that differ only in what a [`Sibling`] has: the `n` answers to a prompt, those to a list of
/// prompts, or to questions. Parameters, constraints and prompts are in a frame once, and in both processes too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Siblings {
    first: EngineCoreRequest,
    others: Vec<Sibling>,
}

/// One of [`Siblings`] behind the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sibling {
    request_id: String,
    /// `None` is that of the sibling before.
    external_req_id: Option<String>,
    /// `None` is that of the sibling before.
    prompt_token_ids: Option<Shared<[u32]>>,
    output_token_ids: Vec<u32>,
    is_replay: bool,
    arrival_time: f64,
    reasoning_ended: Option<bool>,
    seed: Option<u64>,
    max_tokens: Option<u32>,
    thinking_tokens: Option<ThinkingTokens>,
    scored_positions: Shared<[ScoredPosition]>,
    pooling_params: Option<PoolingParams>,
}

impl Siblings {
    /// A request without siblings.
    pub fn new(first: EngineCoreRequest) -> Self {
        Self {
            first,
            others: Vec::new(),
        }
    }

    /// Adds a sibling of the first behind `before`, which was added last.
    pub fn push(&mut self, before: &EngineCoreRequest, request: EngineCoreRequest) {
        debug_assert!(self.first.is_sibling(&request), "a request of its own");
        let params = request.sampling_params;
        self.others.push(Sibling {
            request_id: request.request_id,
            external_req_id: request
                .external_req_id
                .filter(|id| before.external_req_id.as_ref() != Some(id)),
            prompt_token_ids: Some(request.prompt_token_ids)
                .filter(|prompt| !before.prompt_token_ids.is_same(prompt)),
            output_token_ids: request.output_token_ids,
            is_replay: request.is_replay,
            arrival_time: request.arrival_time,
            reasoning_ended: request.reasoning_ended,
            seed: params.seed,
            max_tokens: params.max_tokens,
            thinking_tokens: params.thinking_tokens,
            scored_positions: request.scored_positions,
            pooling_params: request.pooling_params,
        });
    }

    /// How many requests there are.
    #[allow(clippy::len_without_is_empty, reason = "there is one at least")]
    pub fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The first request.
    pub fn first(&self) -> &EngineCoreRequest {
        &self.first
    }

    /// The requests in order, each made when it is taken.
    pub fn into_requests(self) -> impl Iterator<Item = EngineCoreRequest> {
        let mut before = self.first.clone();
        let others = self.others.into_iter().map(move |sibling| {
            before = sibling.behind(&before);
            before.clone()
        });
        std::iter::once(self.first).chain(others)
    }
}

impl Sibling {
    fn behind(self, before: &EngineCoreRequest) -> EngineCoreRequest {
        EngineCoreRequest {
            request_id: self.request_id,
            external_req_id: self
                .external_req_id
                .or_else(|| before.external_req_id.clone()),
            prompt_token_ids: self
                .prompt_token_ids
                .unwrap_or_else(|| before.prompt_token_ids.clone()),
            output_token_ids: self.output_token_ids,
            is_replay: self.is_replay,
            sampling_params: SamplingParams {
                seed: self.seed,
                max_tokens: self.max_tokens,
                thinking_tokens: self.thinking_tokens,
                ..before.sampling_params.clone()
            },
            arrival_time: self.arrival_time,
            cache_salt: before.cache_salt.clone(),
            client_index: before.client_index,
            owner: before.owner,
            priority: before.priority,
            trace_headers: before.trace_headers.clone(),
            reasoning_ended: self.reasoning_ended,
            scored_positions: self.scored_positions,
            pooling_params: self.pooling_params,
        }
    }
}

impl EngineCoreRequest {
    /// True if `other` may be among the [`Siblings`] of `self`. Which frontend they come from isn't looked at.
    /// Costs a look at what isn't the same in memory.
    pub fn is_sibling(&self, other: &Self) -> bool {
        let params = &other.sampling_params;
        self.external_req_id.is_some() == other.external_req_id.is_some()
            && self.cache_salt == other.cache_salt
            && self.owner == other.owner
            && self.priority == other.priority
            && self.trace_headers == other.trace_headers
            && *params
                == SamplingParams {
                    seed: params.seed,
                    max_tokens: params.max_tokens,
                    thinking_tokens: params.thinking_tokens.clone(),
                    ..self.sampling_params.clone()
                }
    }
}
