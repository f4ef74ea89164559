//! From the core's tokens to text: detokenization, stop strings, logprobs, streams.

mod request_state;

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreRequest, FinishReason,
    RequestError, RequestErrorCode, RequestOutputKind, SamplingParams,
};
use tokenizer::Tokenizer;

use crate::answer_budget::AnswerBudget;
use crate::detokenizer::IncrementalDetokenizer;
use crate::error::{EngineDeadError, GenerateError};
use crate::input_processor::ProcessedInputs;
use crate::logprobs::LogprobsProcessor;
use crate::metrics::{IterationStats, RequestStateStats, StructuredEnds};
use crate::outputs::{CompletionOutput, RequestOutput};
use crate::parallel_sampling::ParentRequest;
use crate::request_output_collector::RequestOutputCollector;
use crate::token_trace::TraceCollector;
use crate::token_usage::Ending;
use request_state::RequestState;

/// All requests in flight, by internal id.
#[derive(Debug)]
pub struct OutputProcessor {
    tokenizer: Arc<Tokenizer>,
    request_states: HashMap<String, RequestState>,
    parent_requests: HashMap<String, ParentRequest>,
    num_generation_tokens: u64,
    /// Since they were taken last.
    structured_ends: StructuredEnds,
    iteration_stats: IterationStats,
    /// Of the step whose outputs are processed now, on the core's clock.
    timestamp: f64,
}

impl OutputProcessor {
    /// A processor without requests.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            request_states: HashMap::new(),
            parent_requests: HashMap::new(),
            num_generation_tokens: 0,
            structured_ends: StructuredEnds::default(),
            iteration_stats: IterationStats::default(),
            timestamp: 0.0,
        }
    }

    /// Says when the outputs that come next were made, in seconds of the core's clock.
    pub fn set_timestamp(&mut self, timestamp: f64) {
        self.timestamp = timestamp;
    }

    /// Takes the statistics since the last call.
    pub fn take_iteration_stats(&mut self) -> IterationStats {
        std::mem::take(&mut self.iteration_stats)
    }

    /// Registers a request before it is sent, so that no output can arrive for an unknown one.
    /// Returns the requests to send: `n` children where `n > 1`. Their answers take from `budget`.
    pub fn add_request(
        &mut self,
        inputs: ProcessedInputs,
        queue: &Arc<RequestOutputCollector>,
        budget: &AnswerBudget,
    ) -> Vec<EngineCoreRequest> {
        let ProcessedInputs {
            request,
            arrival,
            prompt,
            callers_fields,
            thinking,
            stop_strings,
            keeps_answer: _,
        } = inputs;
        let external = request
            .external_req_id
            .clone()
            .unwrap_or_else(|| request.request_id.clone());
        // Shared by the children, of which there may be thousands.
        let prompt_token_ids = Arc::clone(request.prompt_token_ids.as_arc());
        let tokenizer = self.tokenizer.clone();
        let detokenizer =
            IncrementalDetokenizer::with_thinking(&tokenizer, &request, thinking, stop_strings);
        let n = request.sampling_params.n;
        let stop_token_ids = match &callers_fields {
            Some(_) => model_stop_token_ids(&tokenizer, &request.sampling_params),
            None => Vec::new(),
        };
        let state = |request: &EngineCoreRequest, parent_id, index| {
            let params = &request.sampling_params;
            RequestState {
                external_req_id: external.clone(),
                parent_id,
                index,
                prompt: prompt.clone(),
                prompt_token_ids: prompt_token_ids.clone(),
                output_kind: params.output_kind,
                stream_interval: params.stream_interval.unwrap_or(1) as usize,
                callers_fields: callers_fields.clone(),
                model_stop_token_ids: stop_token_ids.clone(),
                structured_output_complete: None,
                completed_by_budget: false,
                repetition_closed: false,
                detokenizer: detokenizer.clone(),
                share: budget.share(),
                budget: budget.clone(),
                logprobs_processor: LogprobsProcessor::new(tokenizer.clone(), request),
                trace: TraceCollector::new(request),
                scores: Vec::new(),
                pooling_output: None,
                num_cached_tokens: 0,
                // A replayed request's tokens were given out before.
                sent_tokens: request.output_token_ids.len(),
                queue: queue.clone(),
                stats: RequestStateStats::new(request, n, arrival),
            }
        };
        if request.sampling_params.n <= 1 {
            let state = state(&request, None, 0);
            self.request_states
                .insert(request.request_id.clone(), state);
            return vec![request];
        }
        let parent_id = request.request_id.clone();
        let (parent, children) = ParentRequest::split(request, external.clone());
        self.parent_requests.insert(parent_id.clone(), parent);
        for (index, child) in (0..).zip(&children) {
            let state = state(child, Some(parent_id.clone()), index);
            self.request_states.insert(child.request_id.clone(), state);
        }
        children
    }

    /// Takes what a step brought and fills the queues. Returns the internal ids that the core
    /// must stop generating for: a stop string was found, or a sibling failed. Outputs for
    /// unknown ids are ignored: their requests were aborted meanwhile.
    pub fn process_outputs(&mut self, outputs: &[EngineCoreOutput]) -> Vec<String> {
        let mut reqs_to_abort = Vec::new();
        for output in outputs {
            if let Some(state) = self.request_states.get_mut(&output.request_id) {
                state.stats.note_nans(output, &mut self.iteration_stats);
            }
            if let Some(error) = request_error(output) {
                reqs_to_abort.extend(self.fail_request(&output.request_id, error));
            } else if let Err(error) = self.charge(output) {
                reqs_to_abort.extend(self.fail_request(&output.request_id, error));
                // The core works on it still.
                reqs_to_abort.push(output.request_id.clone());
            } else if self.process_output(output) == Some(true) {
                reqs_to_abort.push(output.request_id.clone());
            }
        }
        reqs_to_abort
    }

    /// Takes what an output adds to its request's answers from what these may take.
    fn charge(&mut self, output: &EngineCoreOutput) -> Result<(), RequestError> {
        let state = self.request_states.get_mut(&output.request_id);
        state.map_or(Ok(()), |state| {
            state
                .budget
                .charge(&mut state.share, output, &self.tokenizer)
        })
    }

    /// Returns whether the core must be told to stop; `None` for an unknown request.
    fn process_output(&mut self, output: &EngineCoreOutput) -> Option<bool> {
        let state = self.request_states.get_mut(&output.request_id)?;
        self.num_generation_tokens += output.new_token_ids.len() as u64;
        state.queue.count_tokens(output.new_token_ids.len());
        state
            .stats
            .update(output, self.timestamp, &mut self.iteration_stats);
        if let Some(stats) = &output.prefill_stats {
            state.num_cached_tokens = stats.num_cached_tokens;
        }
        let is_admitted =
            |event: &EngineCoreEvent| event.event_type == EngineCoreEventType::Admitted;
        if output.events.iter().any(is_admitted) {
            state.queue.admit();
        }
        if output.no_time_to_think {
            state.detokenizer.leave_out_thinking();
        }
        if output.new_token_ids.is_empty() && output.finish_reason.is_none() {
            return Some(false);
        }
        let (finish_reason, stop_reason) = state.take_tokens(output);
        let mut finished = finish_reason.map(|reason| state.stats.finish(reason));
        if let Some(reason) = finish_reason {
            state.note_ending(reason);
            self.structured_ends
                .count(state.structured_output_complete, reason);
        }
        let parent = state.parent_id.as_ref();
        if let Some(finished) = &mut finished
            && let Some(parent) = parent.and_then(|id| self.parent_requests.get_mut(id))
        {
            let longest = parent.observe_generation_tokens(finished.num_generation_tokens);
            let is_last = parent.unfinished_children().nth(1).is_none();
            finished.max_num_generation_tokens = is_last.then_some(longest);
        }
        if let Some(completion) = state.make_completion_output(finish_reason, stop_reason) {
            Self::deliver(
                &mut self.parent_requests,
                &output.request_id,
                state,
                completion,
            );
        }
        if let Some(finished) = finished {
            self.iteration_stats.finished_requests.push(finished);
            self.request_states.remove(&output.request_id);
        }
        Some(finish_reason.is_some() && output.finish_reason.is_none())
    }

    /// Hands a completion to its stream, through its parent where it has one.
    fn deliver(
        parent_requests: &mut HashMap<String, ParentRequest>,
        request_id: &str,
        state: &mut RequestState,
        completion: CompletionOutput,
    ) {
        let (outputs, finished) = match &state.parent_id {
            None => {
                let finished = completion.finished();
                (vec![completion], finished)
            }
            Some(parent_id) => {
                let Some(parent) = parent_requests.get_mut(parent_id) else {
                    return;
                };
                let (outputs, finished) = parent.get_outputs(request_id, completion);
                if finished {
                    parent_requests.remove(parent_id);
                }
                (outputs, finished)
            }
        };
        if outputs.is_empty() {
            return;
        }
        let output = RequestOutput {
            request_id: state.external_req_id.clone(),
            prompt: state.prompt.clone(),
            prompt_token_ids: state.prompt_token_ids.clone(),
            prompt_logprobs: state
                .logprobs_processor
                .take_prompt_logprobs()
                .map(Arc::from),
            scores: std::mem::take(&mut state.scores),
            pooling_output: state.pooling_output.take(),
            outputs,
            finished,
            num_cached_tokens: state.num_cached_tokens,
        };
        match state.output_kind {
            RequestOutputKind::Delta => state.queue.put_piece(output, state.share.take()),
            // The answer as a whole keeps what it takes.
            _ => state.queue.put(Ok(output)),
        }
    }

    /// Ends a request and its siblings with an error; returns the siblings, which the core still
    /// works on.
    fn fail_request(&mut self, request_id: &str, error: RequestError) -> Vec<String> {
        let Some(state) = self.request_states.remove(request_id) else {
            return Vec::new();
        };
        self.iteration_stats
            .finished_requests
            .push(state.stats.finish(FinishReason::Error));
        state.queue.note_ending(Ending::Finish(FinishReason::Error));
        state
            .queue
            .put(Err(match (error.code, &state.callers_fields) {
                // As the frontend's own check would have said it.
                (RequestErrorCode::GrammarRefused, Some(fields)) => fields.translate(&error).into(),
                // Of two queues only the grammars' is about a field.
                (RequestErrorCode::QueueOverflow, Some(fields)) if error.field.is_some() => {
                    GenerateError::Request(RequestError {
                        message: format!("{}: {}", fields.constraint, error.message),
                        field: Some(fields.constraint.clone()),
                        ..error
                    })
                }
                _ => GenerateError::Request(error),
            }));
        let parent = state
            .parent_id
            .and_then(|parent_id| self.parent_requests.remove(&parent_id));
        let siblings: Vec<String> = parent
            .iter()
            .flat_map(ParentRequest::unfinished_children)
            .filter(|child| self.request_states.remove(*child).is_some())
            .cloned()
            .collect();
        siblings
    }

    /// Forgets a request (all its answers) that nobody waits for any more; returns the internal
    /// ids that the core still works on.
    pub fn abort_request(&mut self, request_id: &str) -> Vec<String> {
        let ids = match self.parent_requests.remove(request_id) {
            Some(parent) => parent.unfinished_children().cloned().collect(),
            None => vec![request_id.to_owned()],
        };
        let mut aborted = Vec::new();
        for id in ids {
            if let Some(state) = self.request_states.remove(&id) {
                let finished = state.stats.finish(FinishReason::Abort);
                self.iteration_stats.finished_requests.push(finished);
                state.queue.note_ending(Ending::Finish(FinishReason::Abort));
                aborted.push(id);
            }
        }
        aborted
    }

    /// Ends every request: the core is gone.
    pub fn propagate_error(&mut self, error: &EngineDeadError) {
        self.parent_requests.clear();
        for (_, state) in self.request_states.drain() {
            state.queue.note_ending(Ending::Finish(FinishReason::Error));
            state.queue.put(Err(error.clone().into()));
        }
    }

    /// Whether a request, by its internal id, has an answer that isn't complete.
    pub fn is_unfinished(&self, request_id: &str) -> bool {
        self.request_states.contains_key(request_id)
            || self.parent_requests.contains_key(request_id)
    }

    /// Requests in flight, each of `n` counted.
    pub fn num_unfinished_requests(&self) -> usize {
        self.request_states.len()
    }

    /// How constrained answers have ended since the last call.
    pub fn take_structured_ends(&mut self) -> StructuredEnds {
        std::mem::take(&mut self.structured_ends)
    }

    /// Tokens received since the start, for all requests.
    pub fn num_generation_tokens(&self) -> u64 {
        self.num_generation_tokens
    }
}

/// The model's tokens that end a text.
fn model_stop_token_ids(tokenizer: &Tokenizer, params: &SamplingParams) -> Vec<u32> {
    let ids = tokenizer.stop_token_ids().iter();
    ids.chain(&params.eos_token_id).copied().collect()
}

fn request_error(output: &EngineCoreOutput) -> Option<RequestError> {
    match (&output.error, output.finish_reason) {
        (Some(error), _) => Some(error.clone()),
        (None, Some(FinishReason::Error)) => Some(RequestError::new(
            RequestErrorCode::InternalError,
            "the engine core failed on this request",
        )),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests;
