//! The scheduler: one token budget per step, no phases.
//!
//! Every request has `num_computed_tokens` that catches up with its tokens; chunked prefill,
//! decode, prefix-cache hits and recomputation after a preemption are all that one rule.
//!
//! ```
//! use engine_core::core::KVCacheConfig;
//! use engine_core::core::sched::{EngineClock, ModelRunnerOutput, Scheduler};
//! use engine_core::core::request::Request;
//! use protocol::{EngineCoreRequest, FinishReason, SamplingParams, SchedulerConfig};
//!
//! let kv_cache_config =
//!     KVCacheConfig { num_blocks: 9, block_size: 16, enable_prefix_caching: true };
//! let config = SchedulerConfig::default();
//! let mut scheduler = Scheduler::new(config, kv_cache_config, 128, EngineClock::start())?;
//!
//! let message = EngineCoreRequest {
//!     request_id: "a".to_owned(),
//!     prompt_token_ids: vec![1, 2, 3].into(),
//!     sampling_params: SamplingParams { max_tokens: Some(1), ..SamplingParams::default() },
//!     ..EngineCoreRequest::default()
//! };
//! let hasher = scheduler.block_hasher();
//! scheduler.add_request(Request::from_engine_core_request(message, &hasher));
//!
//! let step = scheduler.schedule();
//! assert_eq!(step.num_scheduled_tokens.get("a"), Some(3));
//! // Here the model runs.
//! let sampled = ModelRunnerOutput { sampled_token_ids: vec![vec![7]], ..Default::default() };
//! let outputs = scheduler.update_from_output(&step, sampled);
//! assert_eq!(outputs[&0].outputs[0].new_token_ids, [7]);
//! assert_eq!(outputs[&0].outputs[0].finish_reason, Some(FinishReason::Length));
//! # Ok::<(), engine_core::core::sched::SchedulerError>(())
//! ```

mod admission;
mod aside;
pub mod clock;
mod config;
pub(crate) mod drafts;
mod finish;
mod grammar;
mod grammar_steps;
pub mod output;
mod preempt;
mod request_queue;
pub mod scheduler;
mod step;
mod stop;
#[cfg(test)]
mod tests;
mod turns;
mod update;

pub use clock::EngineClock;
pub use config::SchedulerError;
pub use output::{
    CachedRequestData, GrammarOutput, ModelRunnerOutput, NewRequestData, NumScheduledTokens,
    RequestMasks, SchedulerOutput,
};
pub use scheduler::{ClientOutput, PauseState, Scheduler};
