//! Requests that go from one core to another that serves the same model.

use protocol::EngineCoreOutput;

use super::restart::{aborted_output, failed};
use super::{CoreHealth, MovedRequest, SupervisedCore};

impl SupervisedCore {
    /// Requests in flight: sent, or waiting to be.
    pub(crate) fn num_requests(&self) -> usize {
        self.state().in_flight.len()
    }

    /// True if a request that comes now is sent at once, to a core that works and isn't paused.
    pub(crate) fn takes_requests(&self) -> bool {
        let state = self.state();
        state.health == CoreHealth::Healthy
            && state.pause_mode.is_none()
            && state.client.is_some()
            && state.in_flight.is_open()
    }

    /// True while the core shows no sign of life though it has work.
    pub(crate) fn is_silent(&self) -> bool {
        self.state().is_silent
    }

    /// Takes out the requests that the core doesn't have and another one may serve: after a death all but
    /// those that are suspected of more than one.
    pub(crate) fn take_movable(&self) -> Vec<MovedRequest> {
        self.state().in_flight.take_movable()
    }

    /// True if others may serve on without this core once it is gone for good. They may not where a death is to
    /// end everything (`--no-restart`).
    pub(crate) fn is_dispensable(&self) -> bool {
        self.options.max_restarts > 0
    }

    /// Ends what is left in the books of a core that is gone for good: requests that cores died of, and that go to
    /// no other.
    pub(crate) fn fail_rest(&self) -> Vec<EngineCoreOutput> {
        let (left, aborted) = {
            let mut state = self.state();
            (
                state.in_flight.take_all(),
                std::mem::take(&mut state.aborted),
            )
        };
        if !left.is_empty() {
            tracing::error!(request_ids = ?left, "failed: engine cores died working on them");
        }
        let left = left.into_iter().map(failed);
        left.chain(aborted.into_iter().map(aborted_output))
            .collect()
    }

    /// Takes requests from another core's books, and sends them as soon as any may be sent.
    pub(crate) fn take_over(&self, moved: Vec<MovedRequest>) {
        let mut state = self.state();
        state.in_flight.take_over(moved);
        state.send_next();
    }
}
