//! The scheduler: one token budget per step, no phases.
//!
//! Every request has `num_computed_tokens` that catches up with its tokens; chunked prefill,
//! decode, prefix-cache hits and recomputation after a preemption are all that one rule.

mod admission;
pub mod clock;
mod config;
mod finish;
pub mod output;
mod preempt;
mod request_queue;
pub mod scheduler;
mod step;
mod stop;
#[cfg(test)]
mod tests;
mod update;

pub use clock::EngineClock;
pub use config::SchedulerError;
pub use output::{
    CachedRequestData, GrammarOutput, ModelRunnerOutput, NewRequestData, NumScheduledTokens, SchedulerOutput,
};
pub use scheduler::{ClientOutput, PauseState, Scheduler};
