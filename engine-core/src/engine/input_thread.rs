//! From a frontend to the busy loop: decodes, preprocesses, hands over.
//!
//! Nothing that a frame can hold reaches the busy loop unchecked, and nothing that goes wrong
//! here concerns more than one request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use protocol::transport::{FrameReader, TransportError};
use protocol::{
    EngineCoreOutput, EngineCoreRequest, EngineCoreRequestType, FinishReason, PoolerInfo,
    RequestError, RequestErrorCode, SamplingParams, UtilityOutput, UtilityRequest, UtilityResult,
};
use serde_json::json;

use crate::core::block_hash::BlockHasher;
use crate::core::request::{HashedPrompt, Request};
use crate::engine::core_input::{AbortRequests, CoreInput, MAX_DRAIN, ShutdownCause};
use crate::engine::heartbeat::Heartbeat;
use crate::engine::output_thread::OutputQueues;
use crate::engine::pooling_checks::check_pooling;
use crate::panic_message::panic_message;
use crate::sample::{VocabSizes, check_params};
use crate::structured_output::{NamedConstraint, StructuredOutputManager};

/// What every input thread needs, whoever its client is.
#[derive(Clone)]
pub(crate) struct InputContext {
    pub(crate) input_queue: Sender<CoreInput>,
    pub(crate) aborts_queue: Sender<AbortRequests>,
    pub(crate) output_queues: OutputQueues,
    pub(crate) block_hasher: BlockHasher,
    pub(crate) vocab: VocabSizes,
    pub(crate) max_logprobs: i32,
    pub(crate) pooler: PoolerInfo,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) structured_output_manager: Arc<StructuredOutputManager>,
}

/// Whether a client may end, pause, resume and reset the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The frontend started this core: it may, and its leaving does.
    Owner,
    /// One of several clients of a core that stays.
    Guest,
}

/// Reads a client's frames until it leaves or sends something that is no frame. `first` is what
/// the first read brought.
pub(crate) fn process_input_socket(
    context: &InputContext,
    first: Result<Option<EngineCoreRequestType>, TransportError>,
    mut reader: FrameReader,
    client_index: u32,
    ownership: Ownership,
) {
    let _leave = Leave {
        context,
        client_index,
        ownership,
    };
    let mut next = first;
    loop {
        match next {
            Ok(Some(message)) => {
                if !context.handle_message(message, client_index, ownership) {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(client_index, %error, "closing the connection");
                return;
            }
        }
        next = reader.read();
    }
}

/// A time that a caller gave in seconds: none where it is no time, at most [`MAX_DRAIN`].
pub(crate) fn drain_time(seconds: f64) -> Duration {
    // The comparison is false for NaN too.
    if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).map_or(MAX_DRAIN, |time| time.min(MAX_DRAIN))
    } else {
        Duration::ZERO
    }
}

/// What is known of the request before, as far as its siblings share it.
#[derive(Default)]
struct SiblingBefore {
    /// With ids that the model has.
    prompt: Option<HashedPrompt>,
    /// Good ones.
    params: Option<SamplingParams>,
    constraint: Option<NamedConstraint>,
}

impl SiblingBefore {
    /// Checks parameters, of the same lists only once.
    fn check_params(
        &mut self,
        params: &SamplingParams,
        vocab: VocabSizes,
        max_logprobs: i32,
    ) -> Result<(), RequestError> {
        let is_known = self.params.as_ref().is_some_and(|before| {
            let (seed, max_tokens) = (params.seed, params.max_tokens);
            let before = before.clone();
            *params
                == SamplingParams {
                    seed,
                    max_tokens,
                    ..before
                }
        });
        if !is_known {
            check_params(params, vocab, max_logprobs)?;
            self.params = Some(params.clone());
        }
        Ok(())
    }
}

/// An owner told from those of other frontends, which number theirs alike. The first frontend's stay.
fn owner_across_clients(client_index: u32, owner: u64) -> u64 {
    /// Odd and large, so that products of small numbers are far apart.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    owner.wrapping_add(u64::from(client_index).wrapping_mul(SPREAD))
}

/// Tells the busy loop that a client left, however its thread ended.
struct Leave<'a> {
    context: &'a InputContext,
    client_index: u32,
    ownership: Ownership,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let input_queue = &self.context.input_queue;
        // Where the busy loop is gone, so is what had to be ended.
        let _ = input_queue.send(CoreInput::ClientGone(self.client_index));
        if self.ownership == Ownership::Owner {
            let (drain, cause) = (Duration::ZERO, ShutdownCause::Owner);
            let _ = input_queue.send(CoreInput::Shutdown { drain, cause });
        }
    }
}

impl InputContext {
    /// Whether to read on.
    fn handle_message(
        &self,
        message: EngineCoreRequestType,
        client_index: u32,
        ownership: Ownership,
    ) -> bool {
        let input = match message {
            EngineCoreRequestType::Add(request) => {
                return self.add(std::iter::once(*request), client_index);
            }
            EngineCoreRequestType::AddMany(siblings) => {
                return self.add(siblings.into_requests(), client_index);
            }
            EngineCoreRequestType::Abort(request_ids) => {
                let aborts = AbortRequests {
                    client_index,
                    request_ids,
                };
                // Twice: at once, for a step that is under way, and in order, for a request that
                // is still in the queue.
                if self.aborts_queue.send(aborts.clone()).is_err() {
                    return false;
                }
                CoreInput::Abort(aborts)
            }
            EngineCoreRequestType::Utility(call) if call.method == "heartbeat" => {
                // Answered here: that the loop doesn't answer is what it has to show.
                self.answer_heartbeat(client_index, &call);
                return true;
            }
            EngineCoreRequestType::Utility(call)
                if ownership == Ownership::Guest && is_management(&call.method) =>
            {
                self.refuse_management(client_index, &call);
                return true;
            }
            EngineCoreRequestType::Utility(call) => CoreInput::Utility(UtilityRequest {
                client_index,
                ..call
            }),
            EngineCoreRequestType::Shutdown { drain_seconds } => match ownership {
                Ownership::Owner => CoreInput::Shutdown {
                    drain: drain_time(drain_seconds),
                    cause: ShutdownCause::Owner,
                },
                Ownership::Guest => {
                    tracing::warn!(client_index, "a client may not end a shared core: ignored");
                    return true;
                }
            },
        };
        self.input_queue.send(input).is_ok()
    }

    /// Hands over requests, or says of each why not. What siblings share is checked, hashed and named once. Scored ones
    /// are handed over when all are ready: one step then begins them, and computes once what they share.
    fn add(&self, requests: impl Iterator<Item = EngineCoreRequest>, client_index: u32) -> bool {
        let mut before = SiblingBefore::default();
        let mut scored = Vec::new();
        for request in requests {
            let request_id = request.request_id.clone();
            match self.preprocess_add_request(request, client_index, &mut before) {
                Ok(request) if !request.scored_positions().is_empty() => {
                    scored.push(CoreInput::Add(Box::new(request)));
                }
                Ok(request) => {
                    let input = CoreInput::Add(Box::new(request));
                    if self.input_queue.send(input).is_err() {
                        return false;
                    }
                }
                Err(error) => self.refuse(client_index, request_id, error),
            }
        }
        (scored.into_iter()).all(|input| self.input_queue.send(input).is_ok())
    }

    /// Checks a request and makes it ready for the scheduler: block hashes are computed here, not
    /// in the busy loop, and its grammar is handed to the compile threads.
    fn preprocess_add_request(
        &self,
        mut request: EngineCoreRequest,
        client_index: u32,
        before: &mut SiblingBefore,
    ) -> Result<Request, RequestError> {
        request.client_index = client_index;
        request.owner = owner_across_clients(client_index, request.owner);
        let is_prompt_checked = before.prompt.as_ref().is_some_and(|p| p.is_of(&request));
        self.check_token_ids(&request, is_prompt_checked)
            .map_err(|message| RequestError::new(RequestErrorCode::ValidationError, message))?;
        before.check_params(&request.sampling_params, self.vocab, self.max_logprobs)?;
        let mut request = catch_unwind(AssertUnwindSafe(|| {
            Request::like(&mut before.prompt, request, &self.block_hasher)
        }))
        .map_err(|panic| {
            RequestError::new(
                RequestErrorCode::InternalError,
                format!("preprocessing panicked: {}", panic_message(panic)),
            )
        })?;
        let manager = &self.structured_output_manager;
        request.init_grammar(manager, &mut before.constraint)?;
        Ok(request)
    }

    /// What the frontend has checked already, so far as the core's life depends on it.
    fn check_token_ids(
        &self,
        request: &EngineCoreRequest,
        is_prompt_checked: bool,
    ) -> Result<(), String> {
        if request.prompt_token_ids.is_empty() {
            return Err("prompt_token_ids must not be empty".to_owned());
        }
        let limit = self.vocab.logits;
        let prompt: &[u32] = match is_prompt_checked {
            true => &[],
            false => &request.prompt_token_ids,
        };
        for (field, ids) in [
            ("prompt_token_ids", prompt),
            ("output_token_ids", &request.output_token_ids),
        ] {
            if let Some(id) = ids.iter().find(|id| **id as usize >= limit) {
                return Err(format!(
                    "{field}: {id} is not a token id of this model (0..{limit})"
                ));
            }
        }
        check_scored_positions(request, limit)?;
        check_pooling(request, &self.pooler)
    }

    fn refuse(&self, client_index: u32, request_id: String, error: RequestError) {
        let output = EngineCoreOutput {
            request_id,
            finish_reason: Some(FinishReason::Error),
            error: Some(error),
            ..Default::default()
        };
        self.output_queues.send_output(client_index, output);
    }

    fn refuse_management(&self, client_index: u32, call: &UtilityRequest) {
        tracing::warn!(
            client_index,
            method = call.method,
            "a client may not manage a shared core: refused"
        );
        let output = UtilityOutput {
            call_id: call.call_id,
            result: UtilityResult::Failure(format!(
                "Call to {} method failed: this core is shared (--listen), and it would touch the \
                 requests of other frontends; only a frontend that started its core may call it",
                call.method
            )),
        };
        self.output_queues.send_utility_output(client_index, output);
    }

    fn answer_heartbeat(&self, client_index: u32, call: &UtilityRequest) {
        let state = json!({
            "beats": self.heartbeat.beats(),
            "runnable": self.heartbeat.is_runnable(),
            "paused": self.heartbeat.is_paused(),
        });
        let output = UtilityOutput {
            call_id: call.call_id,
            result: UtilityResult::Success(state.to_string()),
        };
        self.output_queues.send_utility_output(client_index, output);
    }
}

/// Checks that scored positions ascend within the prompt, and that the model has the tokens.
fn check_scored_positions(request: &EngineCoreRequest, limit: usize) -> Result<(), String> {
    let prompt_len = request.prompt_token_ids.len();
    let mut before = 0;
    for position in &request.scored_positions {
        let num_tokens = position.num_tokens as usize;
        if num_tokens <= before || num_tokens > prompt_len {
            return Err(format!(
                "scored_positions: {num_tokens} tokens are not between {} and the prompt's {prompt_len}",
                before + 1
            ));
        }
        before = num_tokens;
        if position.token_ids.is_empty() {
            return Err(format!("scored_positions: {num_tokens} has no token ids"));
        }
        if let Some(id) = position.token_ids.iter().find(|id| **id as usize >= limit) {
            return Err(format!(
                "scored_positions: {id} is not a token id of this model (0..{limit})"
            ));
        }
    }
    let is_scored = before > 0;
    match is_scored && request.sampling_params.structured_outputs.is_some() {
        true => Err(
            "scored_positions: nothing is generated, so structured_outputs must be absent"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// True for methods that act on the requests of all clients.
fn is_management(method: &str) -> bool {
    matches!(
        method,
        "pause_scheduler" | "resume_scheduler" | "reset_prefix_cache"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_seconds_is_too_strange() {
        assert_eq!(drain_time(1.5), Duration::from_millis(1500));
        for none in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(drain_time(none), Duration::ZERO);
        }
        for long in [1e19, f64::MAX, f64::INFINITY] {
            assert_eq!(drain_time(long), MAX_DRAIN);
        }
    }
}
