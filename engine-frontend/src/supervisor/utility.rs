//! Methods of a core that are called by name, and what of them outlives it.

use serde_json::Value;

use super::{CoreHealth, SupervisedCore};
use crate::engine_core_client::{EngineCoreClient, EngineCoreClientError};

const PAUSE: &str = "pause_scheduler";
const RESUME: &str = "resume_scheduler";
const IS_PAUSED: &str = "is_scheduler_paused";

impl SupervisedCore {
    /// Calls a method of the core. A pause outlives it: the core that takes its place begins with it. While there is none
    /// the answer is that of the next one, which has no requests and nothing in its cache.
    ///
    /// # Errors
    /// The core doesn't know the method or fails at it, is gone for good, or is being replaced and the method asks for
    /// something else of it.
    pub async fn call_utility(
        &self,
        method: &str,
        args: &[Value],
    ) -> Result<Value, EngineCoreClientError> {
        // First, as the core may die before it answers.
        self.note_pause(method, args);
        let dead = match self.client() {
            None => self.state().why_gone(),
            Some(client) => match client.call_utility(method, args).await {
                Err(EngineCoreClientError::EngineDead(dead)) => dead,
                Ok(answer) => return Ok(answer),
                Err(failed) => {
                    // A pause may fail in part, with the cache in use, or be refused to who asks.
                    let is_paused = client.call_utility(IS_PAUSED, &[]).await;
                    if is_paused.is_ok_and(|is_paused| is_paused == false) {
                        self.state().pause_mode = None;
                    }
                    return Err(failed);
                }
            },
        };
        self.answer_of_next(method)
            .ok_or(EngineCoreClientError::EngineDead(dead))
    }

    fn note_pause(&self, method: &str, args: &[Value]) {
        let pause_mode = match method {
            // The next core has nothing to abort.
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

    /// The answer of the core that takes the place of this one, if one does: it has no requests and an empty cache.
    fn answer_of_next(&self, method: &str) -> Option<Value> {
        let state = self.state();
        if state.health == CoreHealth::Dead || self.options.max_restarts == 0 {
            return None;
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
