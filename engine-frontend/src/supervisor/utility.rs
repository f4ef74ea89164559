//! Methods of a core that are called by name, and what of them outlives it.

use std::sync::Arc;

use serde_json::Value;

use super::{CoreHealth, State, SupervisedCore};
use crate::engine_core_client::{EngineCoreClient, EngineCoreClientError, EngineDeadError};

const PAUSE: &str = "pause_scheduler";
const RESUME: &str = "resume_scheduler";
const IS_PAUSED: &str = "is_scheduler_paused";

impl SupervisedCore {
    /// Calls a method of the core. While there is none the answer is that of the next one, which has no requests and
    /// nothing in its cache. A pause is noted before, in all cores at once, by
    /// [`DataParallelClient`](crate::DataParallelClient).
    ///
    /// # Errors
    /// The core doesn't know the method or fails at it, is gone for good, or is being replaced and the method asks for
    /// something else of it.
    pub async fn call_utility(
        &self,
        method: &str,
        args: &[Value],
    ) -> Result<Value, EngineCoreClientError> {
        let mut called: Option<(Arc<EngineCoreClient>, EngineDeadError)> = None;
        loop {
            let client = {
                let mut state = self.state();
                let is_another = |client: &&Arc<EngineCoreClient>| {
                    called
                        .as_ref()
                        .is_none_or(|(dead, _)| !Arc::ptr_eq(dead, client))
                };
                let Some(client) = state.client.as_ref().filter(is_another).cloned() else {
                    let dead = called.map_or_else(|| state.why_gone(), |(_, dead)| dead);
                    return self
                        .answer_of_next(&mut state, method, args)
                        .ok_or(EngineCoreClientError::EngineDead(dead));
                };
                client
            };
            match client.call_utility(method, args).await {
                // The next one may be there already.
                Err(EngineCoreClientError::EngineDead(dead)) => called = Some((client, dead)),
                Ok(answer) => return Ok(answer),
                Err(failed) => {
                    // A pause may fail in part, with the cache in use, or be refused to who asks.
                    let is_paused = client.call_utility(IS_PAUSED, &[]).await;
                    if is_paused.is_ok_and(|is_paused| is_paused == false) {
                        self.state().pause_mode = None;
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// Notes a call that pauses or resumes: a pause outlives the core, and the one that takes its place begins with it.
    /// From here on no requests of other cores are moved to this one.
    pub(crate) fn note_pause(&self, method: &str, args: &[Value]) {
        let pause_mode = match method {
            // What there is now has ended when the next core begins.
            PAUSE => match args.first().and_then(Value::as_str) {
                Some("abort" | "keep") => Some("keep"),
                Some("wait") => Some("wait"),
                _ => return,
            },
            RESUME => None,
            _ => return,
        };
        self.state().pause_mode = pause_mode;
    }

    /// The answer of the core that takes the place of this one, if one does: it has no requests and an empty cache. What
    /// the dead one had ends with an abort.
    fn answer_of_next(&self, state: &mut State, method: &str, args: &[Value]) -> Option<Value> {
        if state.health == CoreHealth::Dead || self.options.max_restarts == 0 {
            return None;
        }
        if method == PAUSE && args.first().is_some_and(|mode| mode == "abort") {
            let all = state.in_flight.take_all();
            state.aborted.extend(all);
        }
        match method {
            PAUSE | RESUME => Some(Value::Null),
            IS_PAUSED => Some(state.pause_mode.is_some().into()),
            "reset_prefix_cache" => Some(true.into()),
            _ => None,
        }
    }

    /// Pauses a core, or lets it go on. Whether it is paused then.
    pub(super) async fn set_pause(&self, client: &EngineCoreClient, mode: Option<&str>) -> bool {
        let answer = match mode {
            Some(mode) => {
                client
                    .call_utility(PAUSE, &[mode.into(), false.into()])
                    .await
            }
            None => client.call_utility(RESUME, &[]).await,
        };
        if let Err(error) = &answer {
            tracing::error!("another engine core isn't paused as the one before it was: {error}");
        }
        answer.is_ok() && mode.is_some()
    }
}
