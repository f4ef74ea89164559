//! A fault for tests, in builds with debug assertions alone: a request that kills the process.

use crate::core::sched::output::SchedulerOutput;

/// Names the request: a part of its id.
const VARIABLE: &str = "POISON_REQUEST_ID";

/// Aborts the process in every step that computes the poisoned request.
pub(super) struct Poison(Option<String>);

impl Poison {
    pub(super) fn from_environment() -> Self {
        Self(std::env::var(VARIABLE).ok())
    }

    pub(super) fn strike(&self, step: &SchedulerOutput) {
        let Some(part) = &self.0 else { return };
        let mut requests = step.num_scheduled_tokens.iter();
        if requests.any(|(request_id, _)| request_id.contains(part)) {
            tracing::error!("{VARIABLE} is in this step: aborting");
            std::process::abort();
        }
    }
}
