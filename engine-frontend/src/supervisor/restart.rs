//! Another core in the place of one that died.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::{
    EngineCoreOutput, EngineCoreOutputs, FinishReason, KVCacheEvent, RequestError, RequestErrorCode,
};

use super::source::{CoreSource, difference};
use super::{CoreHealth, SupervisedCore};
use crate::engine_core_client::{CoreEvent, EngineCoreClient, EngineDeadError};

/// Pauses before the second and later attempts in a row that brought nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Requests under suspicion that a log line names.
const MAX_LOGGED_SUSPECTS: usize = 8;

impl SupervisedCore {
    /// Puts another core in the place of one that died. Returns what the death means for single
    /// requests.
    pub(super) async fn replace(
        &self,
        dead: EngineDeadError,
    ) -> Result<EngineCoreOutputs, EngineDeadError> {
        self.publish(&[KVCacheEvent::AllBlocksCleared]);
        let (failed, dead) = {
            let mut state = self.state();
            state.client = None;
            let reason = state.killed_because.take();
            let dead = EngineDeadError {
                reason: reason.unwrap_or(dead.reason),
                ..dead
            };
            if state.is_over() || self.options.max_restarts == 0 {
                return Err(state.give_up(dead));
            }
            state.health = CoreHealth::Restarting;
            let may_blame = matches!(self.source, CoreSource::Launch(_));
            let died = state.in_flight.core_died(may_blame);
            if died.narrowed {
                state.attempts = 0;
            }
            let num_suspects = died.suspects.len();
            let suspects = &died.suspects[..num_suspects.min(MAX_LOGGED_SUSPECTS)];
            tracing::error!(num_suspects, ?suspects, "{dead}; starting another");
            (died.failed, dead)
        };
        self.tell(CoreEvent::Died);
        let client = match self.start_another(dead).await {
            Ok(client) => client,
            Err(dead) => {
                self.tell(CoreEvent::GaveUp);
                return Err(dead);
            }
        };
        self.num_restarts.fetch_add(1, Ordering::Relaxed);
        // Before it has any request: what was running then waits too.
        let (mut is_paused, mut pause_mode) = (false, None);
        let mut state = loop {
            let wanted = self.state().pause_mode;
            if wanted != pause_mode {
                is_paused = self.set_pause(&client, wanted).await;
                pause_mode = wanted;
            }
            let state = self.state();
            // It may have been told otherwise meanwhile.
            if state.pause_mode == pause_mode {
                break state;
            }
        };
        state.client = Some(Arc::new(client));
        state.is_silent = false;
        state.health = match is_paused {
            true => CoreHealth::Paused,
            false => CoreHealth::Healthy,
        };
        state.send_next();
        let aborted = std::mem::take(&mut state.aborted);
        drop(state);
        self.tell(CoreEvent::Restarted);
        let failed = failed.into_iter().map(failed_alone);
        Ok(EngineCoreOutputs {
            outputs: failed
                .chain(aborted.into_iter().map(aborted_output))
                .collect(),
            ..EngineCoreOutputs::default()
        })
    }

    async fn start_another(
        &self,
        dead: EngineDeadError,
    ) -> Result<EngineCoreClient, EngineDeadError> {
        loop {
            let attempts = {
                let mut state = self.state();
                state.attempts += 1;
                state.attempts
            };
            let give_up = |reason: String| {
                Err(self.state().give_up(EngineDeadError {
                    reason,
                    exit_status: dead.exit_status,
                }))
            };
            if attempts > self.options.max_restarts {
                return give_up(format!(
                    "{} ({} restarts in a row brought nothing)",
                    dead.reason, self.options.max_restarts
                ));
            }
            let another = async {
                tokio::time::sleep(pause(attempts)).await;
                self.source.client().await
            };
            let another = tokio::select! {
                another = another => another,
                () = self.over() => return give_up(dead.reason.clone()),
            };
            match another {
                Ok(client) => {
                    let ready = client.ready_response();
                    if let Some(difference) = difference(&self.ready, ready) {
                        return give_up(format!("another one has {difference}"));
                    }
                    tracing::info!(
                        process_id = client.process_id(),
                        "another engine core is ready"
                    );
                    return Ok(client);
                }
                Err(error) => tracing::error!("no other engine core: {error}"),
            }
        }
    }
}

/// How long to wait before an attempt; the first one is made at once.
fn pause(attempt: u32) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        attempt => FIRST_PAUSE
            .saturating_mul(1 << (attempt - 2).min(16))
            .min(LONGEST_PAUSE),
    }
}

fn failed_alone(request_id: String) -> EngineCoreOutput {
    tracing::error!(
        request_id,
        "failed: the engine core died working on this request alone"
    );
    failed(request_id)
}

/// The end of a request that was aborted while there was no core.
pub(super) fn aborted_output(request_id: String) -> EngineCoreOutput {
    EngineCoreOutput {
        finish_reason: Some(FinishReason::Abort),
        request_id,
        ..EngineCoreOutput::default()
    }
}

/// The end of a request that cores died of.
pub(super) fn failed(request_id: String) -> EngineCoreOutput {
    EngineCoreOutput {
        finish_reason: Some(FinishReason::Error),
        error: Some(RequestError::new(
            RequestErrorCode::InternalError,
            "the engine failed on this request; other requests are untouched",
        )),
        request_id,
        ..EngineCoreOutput::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u128> = (1..10).map(|n| pause(n).as_millis()).collect();
        assert_eq!(
            pauses,
            [0, 250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]
        );
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
