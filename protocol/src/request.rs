//! One request for text.

use serde::{Deserialize, Serialize};

use crate::pooling_params::PoolingParams;
use crate::sampling_params::SamplingParams;
use crate::shared::Shared;

/// One request for text, as the core sees it: tokens in, tokens out. What may be large is [`Shared`] with its
/// [`Siblings`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineCoreRequest {
    /// Internal id, unique among all requests in flight.
    pub request_id: String,
    /// The caller's id, for logs.
    pub external_req_id: Option<String>,
    /// The prompt; never empty.
    pub prompt_token_ids: Shared<[u32]>,
    /// Tokens that were generated before (by a core that died). They count as output everywhere:
    /// limits, penalties, noise index. They are not emitted again.
    pub output_token_ids: Vec<u32>,
    /// Whether a core that died had taken it, perhaps without a token: it was let in once, so no limit
    /// of a queue refuses it.
    pub is_replay: bool,
    /// Validated sampling parameters.
    pub sampling_params: SamplingParams,
    /// Unix time of arrival in seconds; orders requests of equal priority.
    pub arrival_time: f64,
    /// Enters the hash of the first block: requests with different salts share no cached prefix.
    pub cache_salt: Option<String>,
    /// Which frontend gets the outputs.
    pub client_index: u32,
    /// The client that asked, as the frontend tells clients apart: owners take turns in the scheduler.
    pub owner: u64,
    /// Lower runs earlier, under the priority policy.
    pub priority: i64,
    /// Distributed-tracing headers, for logs.
    pub trace_headers: Shared<[(String, String)]>,
    /// Where the prompt leaves the model's thinking, for requests whose sampling parameters have
    /// `thinking_tokens`: `Some(false)` is open, so a constraint begins after the tokens that
    /// close it; `Some(true)` is closed or switched off, so it begins with the first token. `None`
    /// is neither opened nor closed: the output begins with the tokens that open it, and then
    /// it is open, or it is constrained from the first token. Without `thinking_tokens` nothing
    /// thinks.
    pub reasoning_ended: Option<bool>,
    /// Where the probabilities of chosen next tokens are asked for, ascending. Nothing is generated then: the
    /// request ends when its prompt is computed. Empty for a request for text.
    pub scored_positions: Shared<[ScoredPosition]>,
    /// Where a vector of the prompt is asked for: nothing is generated then either. Excludes `scored_positions`.
    pub pooling_params: Option<PoolingParams>,
}

/// A place in a prompt, and the tokens of which one is to come there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScoredPosition {
    /// Tokens of the prompt before the place; at least 1, at most all.
    pub num_tokens: u32,
    /// The tokens, each once; not empty.
    pub token_ids: Vec<u32>,
}
