//! The side of the core that owns the model: one thread, fed with [`SchedulerOutput`]s.
//!
//! [`SchedulerOutput`]: crate::core::sched::output::SchedulerOutput

mod executor;
mod heads;
mod input_batch;
mod model_runner;
mod pool_rows;
mod request_state;
mod sample_rows;

pub use executor::{Executor, ExecutorError, PendingForward};
pub use model_runner::{ModelRunner, ModelRunnerConfig, ModelRunnerError};
