//! What happens when a request arrives.

use protocol::{
    EngineCoreEventType, EngineCoreOutput, FinishReason, RequestError, RequestErrorCode,
    SchedulingPolicy,
};

use crate::core::sched::scheduler::{ClientOutput, Place, Scheduler};
use crate::core::sched::stop::{Stop, check_stop};
use crate::request::Request;

impl Scheduler {
    /// Puts a request into the queue.
    ///
    /// One that can't be served, or for which the queue has no place, ends at once with an error
    /// of its own; one whose replayed output is complete already ends at once too. Their outputs
    /// come with the next [`Scheduler::update_from_output`].
    pub fn add_request(&mut self, mut request: Request) {
        if let Err(error) = self
            .check_request(&request)
            .and_then(|()| self.check_queue(&request))
        {
            self.end_unqueued(&request, |output| {
                output.finish_reason = Some(FinishReason::Error);
                output.error = Some(error);
            });
        } else if let Some(Stop {
            finish_reason,
            stop_reason,
        }) = check_stop(&request, self.max_model_len)
        {
            self.end_unqueued(&request, |output| {
                output.finish_reason = Some(finish_reason);
                output.stop_reason = stop_reason;
            });
        } else {
            request.record_event(EngineCoreEventType::Queued, self.clock.now());
            let request_id = request.request_id().clone();
            let key = self.waiting.add(Box::new(request));
            self.in_flight.insert(request_id, Place::Waiting(key));
        }
    }

    fn end_unqueued(&mut self, request: &Request, end: impl FnOnce(&mut EngineCoreOutput)) {
        let mut output = EngineCoreOutput {
            request_id: request.request_id().to_string(),
            ..EngineCoreOutput::default()
        };
        end(&mut output);
        self.pending_outputs.push(ClientOutput {
            client_index: request.client_index(),
            output,
        });
    }

    /// Whether this scheduler could ever serve the request.
    fn check_request(&self, request: &Request) -> Result<(), RequestError> {
        let (num_prompt_tokens, max_model_len) = (request.num_prompt_tokens(), self.max_model_len);
        let wrong = if self.in_flight.contains_key(request.request_id()) {
            let shown: String = request.request_id().chars().take(64).collect();
            format!("request_id {shown:?} is in flight already: choose another")
        } else if num_prompt_tokens == 0 {
            "prompt_token_ids is empty: at least 1 token is needed".to_owned()
        } else if num_prompt_tokens >= max_model_len {
            format!(
                "prompt_token_ids has {num_prompt_tokens} tokens: at most {} leave room for 1 \
                 output token in max_model_len {max_model_len}",
                max_model_len - 1
            )
        } else if request.sampling_params().max_tokens == Some(0) {
            "max_tokens is 0: at least 1 is needed".to_owned()
        } else if request.priority() != 0 && self.config.policy == SchedulingPolicy::Fcfs {
            format!(
                "priority is {}: only 0 is possible under the fcfs scheduling policy",
                request.priority()
            )
        } else {
            return Ok(());
        };
        Err(RequestError {
            code: RequestErrorCode::ValidationError,
            message: wrong,
            retryable: false,
        })
    }

    /// Whether the queue has a place. Always for a replay, which was let in once, and while
    /// nothing waits for its tokens: a prompt longer than the limit would never get in.
    fn check_queue(&self, request: &Request) -> Result<(), RequestError> {
        if request.num_replayed_tokens() > 0 {
            return Ok(());
        }
        let num_waiting = self.waiting.len();
        let num_tokens = self.waiting.num_tokens() + request.num_tokens() as u64;
        let full = match (
            self.config.max_num_queued_reqs,
            self.config.max_num_queued_tokens,
        ) {
            (Some(limit), _) if num_waiting >= limit as usize => {
                format!("{num_waiting} requests wait already: max_num_queued_reqs is {limit}")
            }
            (_, Some(limit)) if num_tokens > limit && num_waiting > 0 => format!(
                "{num_tokens} tokens would wait with this request: max_num_queued_tokens is {limit}"
            ),
            _ => return Ok(()),
        };
        Err(RequestError {
            code: RequestErrorCode::QueueOverflow,
            message: full,
            retryable: true,
        })
    }
}
