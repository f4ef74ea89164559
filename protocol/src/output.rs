//! What the core answers.

use serde::{Deserialize, Serialize};

use crate::grammar_problem::GrammarProblem;
use crate::kv_events::KVCacheEvent;
use crate::stats::SchedulerStats;
use crate::utility::UtilityOutput;

/// One frame from the core to a frontend, after the handshake.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EngineCoreMessage {
    /// What one step brought.
    Outputs(EngineCoreOutputs),
    /// The core ends because of an internal error; no frame follows.
    EngineDead(EngineDead),
}

/// Why the core ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineDead {
    /// For people: what happened and in which part.
    pub reason: String,
}

/// The outputs of one step for one client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineCoreOutputs {
    /// Which core this is.
    pub engine_index: u32,
    /// One entry per request that has something to say.
    pub outputs: Vec<EngineCoreOutput>,
    /// The scheduler's state after the step; to one client only.
    pub scheduler_stats: Option<Box<SchedulerStats>>,
    /// Changes of the prefix cache since the last that were sent, in their order; to the client that has the
    /// statistics, where the core was configured to report them.
    pub kv_cache_events: Vec<KVCacheEvent>,
    /// Engine clock in seconds (monotonic, of the core).
    pub timestamp: f64,
    /// The answer to a utility call.
    pub utility_output: Option<UtilityOutput>,
}

/// What one step brought for one request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineCoreOutput {
    /// Internal id.
    pub request_id: String,
    /// Tokens that this step added.
    pub new_token_ids: Vec<u32>,
    /// One row per new token, where asked for.
    pub new_logprobs: Option<LogprobsLists>,
    /// One entry per new token, where asked for.
    pub new_trace: Vec<TokenTrace>,
    /// One row per prompt position but the first, once, where asked for.
    pub new_prompt_logprobs: Option<LogprobsLists>,
    /// One row per scored position, with the last output: the log-probabilities of its tokens, beside their ids,
    /// as if nothing else could come there. NaN where the model's logits tell none.
    pub scores: Vec<Vec<f32>>,
    /// What `pooling_params` asked for, with the last output.
    pub pooling_output: Option<Vec<f32>>,
    /// Present when the request is over.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it, where that is a stop token.
    pub stop_reason: Option<StopReason>,
    /// What happened to the request since the last output.
    pub events: Vec<EngineCoreEvent>,
    /// How the prompt was computed; once, with the first token.
    pub prefill_stats: Option<PrefillStats>,
    /// Why the request failed; with `FinishReason::Error`.
    pub error: Option<RequestError>,
    /// NaN values seen in this request's logits in this step.
    pub num_nans_in_logits: u32,
    /// Where a grammar constrains the output: whether all tokens so far are a complete text of it.
    pub structured_output_complete: Option<bool>,
    /// Of a constrained request with stop strings: after how many of the new tokens its output was such a
    /// text, ascending. Says whether what a stop string among them ends is one.
    pub complete_after: Vec<u32>,
    /// True if the limit of tokens left out tokens that the grammar allows, so far: the output is led to
    /// its end.
    pub completed_by_budget: bool,
    /// True if a string of the output that repeated itself was closed, so far.
    pub repetition_closed: bool,
    /// Where the prompt left it open whether the model thinks: that it doesn't, since there is no time
    /// for it. With the event `Admitted`.
    pub no_time_to_think: bool,
}

/// Why a request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FinishReason {
    /// A stop token or stop string.
    Stop,
    /// `max_tokens` or the model's context.
    Length,
    /// Ended from outside.
    Abort,
    /// An error; `EngineCoreOutput::error` says which.
    Error,
    /// The output repeated itself (`SamplingParams::repetition_detection`).
    Repetition,
}

impl FinishReason {
    /// The name that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Repetition => "repetition",
        }
    }
}

/// What stopped a request with `FinishReason::Stop`; absent for the end-of-text token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// One of `stop_token_ids`.
    TokenId(u32),
    /// One of the stop strings (set by the frontend, which matches them), or `repetition_detected`.
    String(String),
}

/// Logprobs of some positions. Row `i` holds the chosen token first, then the requested ones.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogprobsLists {
    /// `[num_positions][1 + k]` token ids.
    pub logprob_token_ids: Vec<Vec<u32>>,
    /// `[num_positions][1 + k]` logprobs, beside the ids.
    pub logprobs: Vec<Vec<f32>>,
    /// `[num_positions]` 1-based rank of the chosen token: how many logits are at least its own.
    pub sampled_token_ranks: Vec<u32>,
}

/// What one token of an output was chosen from (`SamplingParams::include_trace`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TokenTrace {
    /// The model's probability of the token, before the grammar's mask: the softmax of its logits, at
    /// temperature 1 and without penalties. `None` of a forced token, for which no logits were computed.
    pub probability: Option<f32>,
    /// The same among the tokens that the mask allows. 1 of a forced token.
    pub masked_probability: f32,
    /// Tokens that the mask allows; the vocabulary's where there is none. 1 for a forced token.
    pub num_allowed: u32,
    /// True if the grammar's mask was in force; false in free text and in thinking.
    pub is_constrained: bool,
    /// True if the token was appended without a forward pass, since nothing else could come.
    pub is_forced: bool,
    /// Seconds of the core's clock since the request's token before; of its first token, since the core took
    /// the request.
    pub step_seconds: f32,
    /// The most probable tokens before the mask, best first. Empty for a forced token.
    pub top: Vec<TracedToken>,
}

/// A token that might have been chosen.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TracedToken {
    /// The token.
    pub token_id: u32,
    /// The model's probability, before the mask.
    pub probability: f32,
    /// True if the mask allows it.
    pub is_allowed: bool,
}

/// A point in a request's life.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EngineCoreEvent {
    /// What happened.
    pub event_type: EngineCoreEventType,
    /// Engine clock in seconds.
    pub timestamp: f64,
}

/// The kinds of `EngineCoreEvent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineCoreEventType {
    /// Entered the waiting queue.
    Queued,
    /// Left the waiting queue.
    Scheduled,
    /// Lost its blocks to another request and went back to the queue.
    Preempted,
    /// Its grammar is known to be good, and its shortest output to fit. Sent at once, in an output
    /// without tokens; requests without a constraint have no such event.
    Admitted,
}

/// How a prompt was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefillStats {
    /// Prompt tokens (with `output_token_ids`, those too).
    pub num_prompt_tokens: u32,
    /// Of these, taken from the prefix cache when the request was first scheduled.
    pub num_cached_tokens: u32,
}

/// Why one request failed. Other requests are untouched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestError {
    /// Chooses the HTTP status.
    pub code: RequestErrorCode,
    /// For people. Where there is a `problem`, what is wrong and no more: whoever tells it adds the rest.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The request's field at fault, as this crate names it: `structured_outputs` for the constraint.
    pub field: Option<String>,
    /// Of a constraint that can't be compiled or enforced: where it is at fault, and what limit it meets.
    pub problem: Option<Box<GrammarProblem>>,
}

impl RequestError {
    /// An error about no single field. The same request may succeed later where the core was busy or ended.
    pub fn new(code: RequestErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: matches!(
                code,
                RequestErrorCode::QueueOverflow | RequestErrorCode::ShuttingDown
            ),
            field: None,
            problem: None,
        }
    }
}

/// The kinds of `RequestError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestErrorCode {
    /// The request itself is wrong: HTTP 400.
    ValidationError,
    /// Its grammar can't be compiled or enforced, or no output of it fits: HTTP 400.
    GrammarRefused,
    /// The waiting queue, or that of the grammar compiler, is full: HTTP 503.
    QueueOverflow,
    /// The core is ending: HTTP 503.
    ShuttingDown,
    /// The core failed on it: HTTP 500.
    InternalError,
}
