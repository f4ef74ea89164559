//! Requests whose grammar is compiled again, since the memory that it shared with others is full. They
//! give up their blocks and wait as for a first grammar.

use protocol::{
    EngineCoreEventType, EngineCoreOutput, FinishReason, RequestError, RequestErrorCode,
};
use structured_output::MatcherError;

use crate::core::sched::request_queue::QueueKey;
use crate::core::sched::scheduler::{ClientOutput, Place, RunningRequest, Scheduler};
use crate::request::{Request, StructuredOutput};
use crate::structured_output::{StructuredOutputRequest, only_stop_tokens};

/// Why a request can't go on with its grammar.
#[derive(Debug)]
pub(super) enum GrammarFailure {
    /// Its memory is full: it has to be compiled again.
    Exhausted,
    /// Why the request fails.
    Failed(String),
}

impl GrammarFailure {
    /// What an error of the grammar means; `what` failed.
    pub(super) fn new(
        grammar: &mut StructuredOutputRequest,
        what: &str,
        error: &MatcherError,
    ) -> Self {
        if let MatcherError::StatesExhausted { .. } = error {
            grammar.set_exhausted();
            return Self::Exhausted;
        }
        if *error == MatcherError::OnlyStopTokens {
            grammar.set_dead_end();
            return Self::Failed(only_stop_tokens());
        }
        Self::Failed(format!("{what}: {error}"))
    }
}

/// Whose fault it is that a request with a grammar failed.
pub(super) fn failure_code(request: &Request) -> RequestErrorCode {
    match request
        .grammar()
        .is_some_and(StructuredOutputRequest::is_dead_end)
    {
        true => RequestErrorCode::ValidationError,
        false => RequestErrorCode::InternalError,
    }
}

impl Scheduler {
    /// Lets a request that was running wait until its grammar is compiled again.
    pub(super) fn renew_running(&mut self, running: RunningRequest) {
        let RunningRequest {
            mut request,
            blocks,
            ..
        } = running;
        self.kv_cache_manager.free(blocks);
        request.num_computed_tokens = 0;
        request.spec_token_ids.clear();
        request.num_preemptions += 1;
        request.record_event(EngineCoreEventType::Preempted, self.clock.now());
        let key = self.waiting.reserve_front(&request);
        self.renew(key, request);
    }

    /// Lets a request that holds no blocks wait at its place until its grammar is compiled again.
    pub(super) fn renew(&mut self, key: QueueKey, request: Box<Request>) {
        self.structured_output_stats.num_renewed_grammars += 1;
        self.in_flight.insert(
            request.request_id().clone(),
            Place::WaitingForGrammar(key.clone()),
        );
        self.waiting_for_grammar.insert(key.clone(), request);
        self.grammars_to_renew.push(key);
    }

    /// Hands the requests whose grammars have to be compiled again to whoever submits them.
    pub(crate) fn submit_renewals(
        &mut self,
        mut submit: impl FnMut(&mut Request) -> Result<(), RequestError>,
    ) {
        for key in std::mem::take(&mut self.grammars_to_renew) {
            // It may have been aborted meanwhile.
            let Some(request) = self.waiting_for_grammar.get_mut(&key) else {
                continue;
            };
            if let Err(error) = submit(request)
                && let Some(request) = self.waiting_for_grammar.remove(&key)
            {
                self.in_flight.remove(request.request_id());
                self.fail_renewed(request, error);
            }
        }
    }

    /// Puts a request whose grammar was compiled again back into the queue, or ends it.
    pub(super) fn renewed(
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
                let code = match error.code {
                    // Its output has begun: it was let in, and it is not the caller's fault any more.
                    RequestErrorCode::GrammarRefused if request.has_begun() => {
                        RequestErrorCode::InternalError
                    }
                    other => other,
                };
                self.fail_renewed(request, RequestError { code, ..error });
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
    pub(super) fn fail_renewed(&mut self, mut request: Box<Request>, error: RequestError) {
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
