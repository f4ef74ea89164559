//! Requests that wait for their grammar outside the steps: it has to go on in other memory, since that
//! which it shared is full, or it looks for an answer that takes longer than a step may. Who was running
//! keeps its blocks and its place meanwhile, for as long as nobody else is held up by that.

use protocol::{
    EngineCoreEventType, EngineCoreOutput, FinishReason, RequestError, RequestErrorCode,
};
use structured_output::MatcherError;

use crate::core::request::{Request, StructuredOutput};
use crate::core::sched::grammar_steps::NoAnswer;
use crate::core::sched::request_queue::QueueKey;
use crate::core::sched::scheduler::{ClientOutput, Place, RunningRequest, Scheduler};
use crate::core::sched::step::Step;
use crate::structured_output::{Aside, Question, StructuredOutputRequest};

/// Of the requests that may run, one in so many may wait for its grammar with its blocks and its place.
const MAX_PARKED_SHARE: usize = 4;

/// Why a request can't go on with its grammar.
#[derive(Debug)]
pub(super) enum GrammarFailure {
    /// It has to wait outside the steps.
    Aside,
    /// Why the request fails.
    Failed(String),
}

impl GrammarFailure {
    /// What an error of the grammar means, which was asked a question; `what` failed.
    pub(super) fn new(
        grammar: &mut StructuredOutputRequest,
        question: Question,
        what: &str,
        error: &NoAnswer,
    ) -> Self {
        match error {
            NoAnswer::Matcher(MatcherError::StatesExhausted { .. }) => {
                grammar.set_aside(Aside::Exhausted);
            }
            NoAnswer::Matcher(MatcherError::AllowanceSpent) => {
                grammar.set_aside(Aside::Question(question));
            }
            other => return Self::Failed(format!("{what}: {other}")),
        }
        Self::Aside
    }
}

impl Scheduler {
    /// Lets a request that was running wait for its grammar: with its blocks, unless that holds up too
    /// many others.
    pub(super) fn set_aside_running(&mut self, mut running: RunningRequest, num_parked: usize) {
        if num_parked >= (self.config.max_num_seqs as usize).div_ceil(MAX_PARKED_SHARE) {
            let RunningRequest {
                request, blocks, ..
            } = running;
            self.kv_cache_manager.free(blocks);
            self.set_aside_without_blocks(request);
            return;
        }
        let request = &mut running.request;
        request.spec_token_ids.clear();
        // Its last token is computed again: nothing was sampled after it.
        request.num_computed_tokens = request.num_computed_tokens.min(request.num_tokens() - 1);
        self.note_aside(request);
        self.asides.push(Place::Running(running.admission));
        self.running.push(running);
    }

    fn set_aside_without_blocks(&mut self, mut request: Box<Request>) {
        self.note_lost_blocks(&mut request);
        let key = self.waiting.reserve_front(&request);
        self.set_aside(key, request);
    }

    /// Notes that a request has no blocks any more.
    pub(super) fn note_lost_blocks(&mut self, request: &mut Request) {
        request.num_computed_tokens = 0;
        request.spec_token_ids.clear();
        request.num_preemptions += 1;
        request.record_event(EngineCoreEventType::Preempted, self.clock.now());
    }

    /// Lets a request that holds no blocks wait at its place until its grammar goes on.
    pub(super) fn set_aside(&mut self, key: QueueKey, request: Box<Request>) {
        self.note_aside(&request);
        let place = Place::WaitingForGrammar(key.clone());
        self.in_flight
            .insert(request.request_id().clone(), place.clone());
        self.waiting_for_grammar.insert(key, request);
        self.asides.push(place);
    }

    fn note_aside(&mut self, request: &Request) {
        let stats = &mut self.structured_output_stats;
        match request.grammar().and_then(StructuredOutputRequest::aside) {
            Some(Aside::Exhausted) => stats.num_renewed_grammars += 1,
            Some(Aside::Question(_)) => stats.num_deferred_answers += 1,
            None => {}
        }
    }

    /// Takes blocks and place of a running request that waits for its grammar.
    pub(super) fn unpark(&mut self, request: Box<Request>) {
        let key = self.waiting.reserve_front(&request);
        let place = Place::WaitingForGrammar(key.clone());
        self.in_flight.insert(request.request_id().clone(), place);
        self.waiting_for_grammar.insert(key, request);
    }

    /// Where nobody could be scheduled and somebody waits, requests that wait for their grammars with
    /// their blocks give way: what they wait for may be held by who waits for blocks.
    pub(super) fn schedule_in_place_of_parked(&mut self, step: &mut Step) {
        while step.scheduled.is_empty()
            && !self.waiting.is_empty()
            && let Some(index) = self
                .running
                .iter()
                .rposition(|running| running.request.is_parked())
        {
            self.preempt(index, step);
            self.schedule_waiting(step);
        }
    }

    /// Running requests that wait for their grammars.
    pub(super) fn num_parked(&self) -> usize {
        self.running
            .iter()
            .filter(|running| running.request.is_parked())
            .count()
    }

    /// Requests that wait for their grammars, wherever they stand.
    pub fn num_waiting_for_grammar(&self) -> usize {
        self.waiting_for_grammar.len() + self.num_parked()
    }

    /// Hands the requests that wait for their grammars to whoever submits these.
    pub(crate) fn submit_asides(
        &mut self,
        mut submit: impl FnMut(&mut Request) -> Result<(), RequestError>,
    ) {
        for place in std::mem::take(&mut self.asides) {
            // It may have been aborted, or lost its blocks, meanwhile.
            let Some(request) = self.request_at(&place) else {
                continue;
            };
            if let Err(error) = submit(request)
                && let Some(request) = self.take_from(&place)
            {
                self.fail_aside(request, error);
            }
        }
    }

    fn request_at(&mut self, place: &Place) -> Option<&mut Request> {
        match place {
            Place::Waiting(_) => None,
            Place::WaitingForGrammar(key) => {
                self.waiting_for_grammar.get_mut(key).map(|r| &mut **r)
            }
            Place::Running(admission) => {
                let index = self
                    .running
                    .binary_search_by_key(admission, |running| running.admission)
                    .ok()?;
                Some(&mut self.running[index].request)
            }
        }
    }

    /// Takes a request out of its place for good, and frees its blocks.
    fn take_from(&mut self, place: &Place) -> Option<Box<Request>> {
        let request = match place {
            Place::Waiting(_) => None,
            Place::WaitingForGrammar(key) => self.waiting_for_grammar.remove(key),
            Place::Running(admission) => {
                let index = self
                    .running
                    .binary_search_by_key(admission, |running| running.admission)
                    .ok()?;
                let running = self.running.remove(index);
                self.kv_cache_manager.free(running.blocks);
                Some(running.request)
            }
        }?;
        self.in_flight.remove(request.request_id());
        Some(request)
    }

    /// Puts a request whose grammar goes on back into the queue, or ends it.
    pub(super) fn come_back(
        &mut self,
        key: QueueKey,
        mut request: Box<Request>,
        grammar: Result<Box<StructuredOutputRequest>, RequestError>,
    ) {
        match grammar {
            Ok(grammar) => {
                request.structured_output = Some(StructuredOutput::Ready(grammar));
                self.enqueue(key, request);
            }
            Err(error) => {
                self.fail_aside(request, error);
            }
        }
    }

    /// Lets a running request whose grammar goes on run again, with the tokens that must come next; or
    /// ends it.
    pub(super) fn come_back_running(
        &mut self,
        index: usize,
        grammar: Result<Box<StructuredOutputRequest>, RequestError>,
    ) {
        let mut running = self.running.remove(index);
        let request = &mut running.request;
        let outcome = match grammar {
            Ok(grammar) => {
                request.structured_output = Some(StructuredOutput::Ready(grammar));
                self.append_due_tokens(request)
                    .map_err(|failure| match failure {
                        GrammarFailure::Aside => None,
                        GrammarFailure::Failed(message) => {
                            Some(RequestError::new(RequestErrorCode::InternalError, message))
                        }
                    })
            }
            Err(error) => Err(Some(error)),
        };
        match outcome {
            Ok(None) => self.running.insert(index, running),
            Err(None) => {
                self.note_aside(request);
                self.asides.push(Place::Running(running.admission));
                self.running.insert(index, running);
            }
            Ok(Some(stop)) => {
                self.kv_cache_manager.free(running.blocks);
                self.in_flight.remove(running.request.request_id());
                self.count_end(&running.request, &stop);
                self.forget_in_runner(&running.request);
                self.end_unqueued(running.request, stop);
            }
            Err(Some(error)) => {
                self.kv_cache_manager.free(running.blocks);
                self.in_flight.remove(running.request.request_id());
                self.fail_aside(running.request, error);
            }
        }
    }

    /// Tells the runner of the end of a request that waits, if it knows it.
    pub(super) fn forget_in_runner(&mut self, request: &Request) {
        if request.num_runner_tokens > 0 {
            self.finished_req_ids.push(request.request_id().clone());
        }
    }

    /// Ends a request that waits, and that the runner may know.
    pub(super) fn fail_aside(&mut self, mut request: Box<Request>, error: RequestError) {
        tracing::warn!(
            request_id = &**request.request_id(),
            reason = error.message,
            "request failed"
        );
        self.structured_output_stats.num_rejections += 1;
        self.forget_in_runner(&request);
        self.pending_outputs.push(ClientOutput {
            client_index: request.client_index(),
            output: EngineCoreOutput {
                request_id: request.request_id().to_string(),
                new_token_ids: std::mem::take(&mut request.unsent_token_ids),
                new_trace: request.take_trace(),
                finish_reason: Some(FinishReason::Error),
                error: Some(error),
                events: request.take_events(),
                structured_output_complete: request
                    .grammar()
                    .map(StructuredOutputRequest::is_completed),
                ..EngineCoreOutput::default()
            },
        });
    }
}
