//! Methods of the core that a frontend can call by name, executed between two steps.

use std::collections::BTreeMap;

use protocol::{EngineCoreOutputs, UtilityOutput, UtilityRequest, UtilityResult};
use serde_json::{Value, json};

use crate::core::sched::scheduler::PauseState;
use crate::engine::core::EngineCore;

/// Outputs of requests that a call ended, by client.
type Aborted = BTreeMap<u32, EngineCoreOutputs>;

impl EngineCore {
    /// Executes a call. Whatever goes wrong fails this call only. Beside the answer come the last
    /// outputs of the requests that the call ended.
    pub(crate) fn call_utility(&mut self, call: UtilityRequest) -> (UtilityOutput, Aborted) {
        let mut aborted = Aborted::new();
        let result = match self.dispatch_utility(&call.method, &call.args, &mut aborted) {
            Ok(value) => UtilityResult::Success(value.to_string()),
            Err(reason) => UtilityResult::Failure(format!(
                "Call to {} method failed: {reason}",
                shorten(&call.method)
            )),
        };
        let call_id = call.call_id;
        (UtilityOutput { call_id, result }, aborted)
    }

    fn dispatch_utility(
        &mut self,
        method: &str,
        args: &str,
        aborted: &mut Aborted,
    ) -> Result<Value, String> {
        let args: Vec<Value> = serde_json::from_str(args)
            .map_err(|error| format!("args must be a JSON array: {error}"))?;
        match method {
            "get_supported_tasks" => {
                no_args(&args)?;
                Ok(json!(["generate"]))
            }
            "reset_prefix_cache" => {
                no_args(&args)?;
                Ok(json!(self.scheduler.reset_prefix_cache()))
            }
            "pause_scheduler" => {
                let (mode, clear_cache) = match args.as_slice() {
                    [Value::String(mode)] => (mode.as_str(), false),
                    [Value::String(mode), Value::Bool(clear_cache)] => {
                        (mode.as_str(), *clear_cache)
                    }
                    _ => {
                        return Err(
                            "it takes the mode, a string, and clear_cache, a boolean".into()
                        );
                    }
                };
                self.pause_scheduler(mode, clear_cache, aborted)?;
                Ok(Value::Null)
            }
            "resume_scheduler" => {
                no_args(&args)?;
                self.resume_scheduler();
                Ok(Value::Null)
            }
            "is_scheduler_paused" => {
                no_args(&args)?;
                Ok(json!(self.is_paused()))
            }
            _ => Err(
                "no such method; there are get_supported_tasks, heartbeat, is_scheduler_paused, \
                 pause_scheduler, reset_prefix_cache and resume_scheduler"
                    .to_owned(),
            ),
        }
    }

    fn pause_scheduler(
        &mut self,
        mode: &str,
        clear_cache: bool,
        aborted: &mut Aborted,
    ) -> Result<(), String> {
        let pause = match mode {
            "abort" => {
                *aborted = self.abort_all_requests();
                PauseState::PausedAll
            }
            "keep" => PauseState::PausedAll,
            "wait" => PauseState::PausedNew,
            other => {
                return Err(format!(
                    "mode must be \"abort\" (everything ends), \"keep\" (everything stands still) or \
                     \"wait\" (running requests go on), not {:?}",
                    shorten(other)
                ));
            }
        };
        self.scheduler.set_pause_state(pause);
        if clear_cache && !self.scheduler.reset_prefix_cache() {
            return Err(
                "paused, but the prefix cache is in use by requests: clear_cache needs mode \
                        \"abort\", or an idle engine"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Ends any pause.
    pub(crate) fn resume_scheduler(&mut self) {
        self.scheduler.set_pause_state(PauseState::Unpaused);
    }
}

fn no_args(args: &[Value]) -> Result<(), String> {
    if args.is_empty() {
        Ok(())
    } else {
        Err(format!("it takes no arguments, not {}", args.len()))
    }
}

/// The start of a caller's string, for messages.
fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
