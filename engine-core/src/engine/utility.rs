//! Methods of the core that a frontend can call by name, executed between two steps.

use protocol::{UtilityOutput, UtilityRequest, UtilityResult};
use serde_json::{Value, json};

use crate::core::sched::scheduler::PauseState;
use crate::engine::core::EngineCore;

impl EngineCore {
    /// Executes a call. Whatever goes wrong fails this call only.
    pub(crate) fn call_utility(&mut self, call: UtilityRequest) -> UtilityOutput {
        let result = match self.dispatch_utility(&call.method, &call.args) {
            Ok(value) => UtilityResult::Success(value.to_string()),
            Err(reason) => UtilityResult::Failure(format!(
                "Call to {} method failed: {reason}",
                shorten(&call.method)
            )),
        };
        UtilityOutput {
            call_id: call.call_id,
            result,
        }
    }

    fn dispatch_utility(&mut self, method: &str, args: &str) -> Result<Value, String> {
        let args: Vec<Value> = serde_json::from_str(args)
            .map_err(|error| format!("args must be a JSON array: {error}"))?;
        match method {
            "reset_prefix_cache" => {
                no_args(&args)?;
                Ok(json!(self.scheduler.reset_prefix_cache()))
            }
            "pause_scheduler" => {
                let pause = match args.as_slice() {
                    [Value::String(mode)] => match mode.as_str() {
                        "keep" => PauseState::PausedAll,
                        "wait" => PauseState::PausedNew,
                        other => {
                            return Err(format!(
                                "mode must be \"keep\" (everything stands still) or \"wait\" \
                                 (running requests go on), not {:?}",
                                shorten(other)
                            ));
                        }
                    },
                    _ => return Err("it takes one string, the mode".to_owned()),
                };
                self.scheduler.set_pause_state(pause);
                Ok(Value::Null)
            }
            "resume_scheduler" => {
                no_args(&args)?;
                self.resume_scheduler();
                Ok(Value::Null)
            }
            "is_scheduler_paused" => {
                no_args(&args)?;
                Ok(json!(self.scheduler.pause_state() != PauseState::Unpaused))
            }
            _ => Err(
                "no such method; there are heartbeat, is_scheduler_paused, pause_scheduler, \
                      reset_prefix_cache and resume_scheduler"
                    .to_owned(),
            ),
        }
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
