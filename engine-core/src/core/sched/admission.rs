//! What happens when a request arrives.

use protocol::{
    EngineCoreEventType, EngineCoreOutput, FinishReason, RequestError, RequestErrorCode,
    SchedulingPolicy,
};

use crate::core::request::{Request, StructuredOutput};
use crate::core::sched::scheduler::{ClientOutput, Place, Scheduler};
use crate::core::sched::stop::{Stop, check_stop};
use crate::structured_output::StructuredOutputRequest;

impl Scheduler {
    /// Puts a request into the queue, or beside it where its grammar is yet to come.
    ///
    /// One that can't be served, or for which the queue has no place, ends at once with an error
    /// of its own; one whose replayed output is complete already ends at once too. Their outputs
    /// come with the next [`Scheduler::update_from_output`].
    pub fn add_request(&mut self, request: Request) {
        let mut request = Box::new(request);
        if let Some(trace) = &mut request.trace {
            trace.start(self.clock.now());
        }
        let refusal = self.check_request(&request).err();
        if let Some(error) = refusal.or_else(|| self.check_queue(&request).err()) {
            self.refuse(request, error);
        } else if let Some(StructuredOutput::Pending(_)) = request.structured_output {
            // Whether replayed output is over is for the grammar to say too.
            request.record_event(EngineCoreEventType::Queued, self.clock.now());
            let key = self.waiting.reserve(&request);
            let request_id = request.request_id().clone();
            let place = Place::WaitingForGrammar(key.clone());
            self.in_flight.insert(request_id.clone(), place);
            self.waiting_for_grammar.insert(key, request);
            // It may have been faster than the request itself.
            self.grammar_compiled(&request_id);
        } else if let Some(stop) = check_stop(&request, self.max_model_len) {
            self.end_unqueued(request, stop);
        } else {
            request.record_event(EngineCoreEventType::Queued, self.clock.now());
            let request_id = request.request_id().clone();
            let key = self.waiting.add(request);
            self.in_flight.insert(request_id, Place::Waiting(key));
        }
    }

    /// Ends a request that is nowhere in the scheduler with an error of its own.
    pub fn refuse(&mut self, request: Box<Request>, error: RequestError) {
        self.pending_outputs.push(ClientOutput {
            client_index: request.client_index(),
            output: EngineCoreOutput {
                request_id: request.request_id().to_string(),
                finish_reason: Some(FinishReason::Error),
                error: Some(error),
                ..EngineCoreOutput::default()
            },
        });
    }

    /// Ends a request that is nowhere in the scheduler since its output is over.
    pub(super) fn end_unqueued(&mut self, mut request: Box<Request>, stop: Stop) {
        self.pending_outputs.push(ClientOutput {
            client_index: request.client_index(),
            output: EngineCoreOutput {
                request_id: request.request_id().to_string(),
                new_token_ids: std::mem::take(&mut request.unsent_token_ids),
                new_trace: request.take_trace(),
                finish_reason: Some(stop.finish_reason),
                stop_reason: stop.stop_reason,
                events: request.take_events(),
                structured_output_complete: request
                    .grammar()
                    .map(StructuredOutputRequest::is_completed),
                complete_after: std::mem::take(&mut request.unsent_complete_after),
                completed_by_budget: request
                    .grammar()
                    .is_some_and(StructuredOutputRequest::was_led_to_end),
                repetition_closed: request
                    .grammar()
                    .is_some_and(StructuredOutputRequest::has_closed_repetition),
                ..EngineCoreOutput::default()
            },
        });
    }

    /// Whether this scheduler could ever serve the request.
    fn check_request(&self, request: &Request) -> Result<(), RequestError> {
        let (num_prompt_tokens, max_model_len) = (request.num_prompt_tokens(), self.max_model_len);
        let (field, message) = if self.in_flight.contains_key(request.request_id()) {
            let shown: String = request.request_id().chars().take(64).collect();
            let message = format!("request_id {shown:?} is in flight already: choose another");
            (Some("request_id"), message)
        } else if num_prompt_tokens == 0 {
            let message = "prompt_token_ids is empty: at least 1 token is needed".to_owned();
            (None, message)
        } else if request.is_prompt_only() && num_prompt_tokens > max_model_len {
            let message = format!(
                "prompt_token_ids has {num_prompt_tokens} tokens: max_model_len is {max_model_len}"
            );
            (None, message)
        } else if !request.is_prompt_only() && num_prompt_tokens >= max_model_len {
            let message = format!(
                "prompt_token_ids has {num_prompt_tokens} tokens: at most {} leave room for 1 \
                 output token in max_model_len {max_model_len}",
                max_model_len - 1
            );
            (None, message)
        } else if request.sampling_params().max_tokens == Some(0) {
            let message = "max_tokens is 0: at least 1 is needed".to_owned();
            (Some("max_tokens"), message)
        } else if request.priority() != 0 && self.config.policy == SchedulingPolicy::Fcfs {
            let message = format!(
                "priority is {}: only 0 is possible under the fcfs scheduling policy",
                request.priority()
            );
            (Some("priority"), message)
        } else if request.needs_grammar() {
            let message = "structured_outputs can't be served: nobody compiled the grammar";
            (Some("structured_outputs"), message.to_owned())
        } else {
            return Ok(());
        };
        Err(RequestError {
            field: field.map(str::to_owned),
            ..RequestError::new(RequestErrorCode::ValidationError, message)
        })
    }

    /// Requests of this one's owner that wait.
    fn num_waiting_of(&self, request: &Request) -> usize {
        let owner = request.owner();
        let in_queue = self.waiting.owners().find(|(other, ..)| *other == owner);
        let for_grammar = self.waiting_for_grammar().filter(|r| r.owner() == owner);
        in_queue.map_or(0, |(_, num_waiting, _)| num_waiting) + for_grammar.count()
    }

    /// Places of the queue for each owner that waits, with the one of this request.
    fn fair_share_of_queue(&self, request: &Request, limit: u32) -> usize {
        let others = self
            .waiting
            .owners()
            .filter(|(owner, ..)| *owner != request.owner());
        limit as usize / (others.count() + 1)
    }

    /// Whether the queue has a place. A full one has a place for an owner that waits with less than its fair
    /// share, so that nobody's flood keeps others out. Always for a replay, which was let in once; for whoever one of
    /// the next steps begins, since only a step takes requests out of the queue; and, by its tokens,
    /// while nothing waits: a prompt longer than the limit would never get in.
    fn check_queue(&self, request: &Request) -> Result<(), RequestError> {
        let num_free = self.num_free_places();
        if request.is_replay() || self.num_waiting() < num_free {
            return Ok(());
        }
        let num_waiting = self.num_waiting() - num_free;
        // Only where it is asked: thousands of siblings may wait for one grammar.
        let num_tokens = || {
            let of_waiting = self.waiting_for_grammar().map(Request::num_tokens);
            self.waiting.num_tokens() + (of_waiting.sum::<usize>() + request.num_tokens()) as u64
        };
        let full = match (
            self.config.max_num_queued_reqs,
            self.config.max_num_queued_tokens,
        ) {
            (Some(limit), _)
                if num_waiting >= limit as usize
                    && self.num_waiting_of(request) >= self.fair_share_of_queue(request, limit) =>
            {
                format!("{num_waiting} requests wait already: max_num_queued_reqs is {limit}")
            }
            (_, Some(limit)) if num_waiting > 0 && num_tokens() > limit => format!(
                "{} tokens would wait with this request: max_num_queued_tokens is {limit}",
                num_tokens()
            ),
            _ => return Ok(()),
        };
        Err(RequestError::new(RequestErrorCode::QueueOverflow, full))
    }
}
