//! From the core's tokens to text: detokenization, stop strings, logprobs, streams.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{
    EngineCoreOutput, EngineCoreRequest, FinishReason, RequestError, RequestErrorCode,
    RequestOutputKind, StopReason,
};
use tokenizer::Tokenizer;

use crate::detokenizer::IncrementalDetokenizer;
use crate::error::{EngineDeadError, GenerateError};
use crate::logprobs::LogprobsProcessor;
use crate::outputs::{CompletionOutput, RequestOutput};
use crate::parallel_sampling::ParentRequest;
use crate::request_output_collector::RequestOutputCollector;

/// Everything that the frontend knows about one request in flight (one of `n`).
#[derive(Debug)]
struct RequestState {
    external_req_id: String,
    /// Internal id of the request that this is one answer to, where `n > 1`.
    parent_id: Option<String>,
    index: u32,
    prompt: Option<Arc<str>>,
    prompt_token_ids: Arc<[u32]>,
    output_kind: RequestOutputKind,
    stream_interval: usize,
    detokenizer: IncrementalDetokenizer,
    logprobs_processor: LogprobsProcessor,
    num_cached_tokens: u32,
    /// Tokens that earlier outputs of a stream brought.
    sent_tokens: usize,
    queue: Arc<RequestOutputCollector>,
}

impl RequestState {
    /// What there is to say after an update; `None` where the caller doesn't want to hear it yet.
    fn make_completion_output(
        &mut self,
        finish_reason: Option<FinishReason>,
        stop_reason: Option<StopReason>,
    ) -> Option<CompletionOutput> {
        let finished = finish_reason.is_some();
        let num_tokens = self.detokenizer.num_output_tokens();
        if !finished {
            if self.output_kind == RequestOutputKind::FinalOnly {
                return None;
            }
            let new_tokens = num_tokens - self.sent_tokens;
            if self.sent_tokens > 0 && new_tokens < self.stream_interval {
                return None;
            }
        }
        let delta = self.output_kind == RequestOutputKind::Delta;
        let start = if delta { self.sent_tokens } else { 0 };
        self.sent_tokens = num_tokens;
        let token_ids = self.detokenizer.output_token_ids();
        Some(CompletionOutput {
            index: self.index,
            token_ids: token_ids.get(start..).unwrap_or_default().to_vec(),
            text: self.detokenizer.get_next_output_text(finished, delta),
            cumulative_logprob: self.logprobs_processor.cumulative_logprob(),
            logprobs: self.logprobs_processor.logprobs_from(start),
            finish_reason,
            stop_reason,
        })
    }
}

/// All requests in flight, by internal id.
#[derive(Debug)]
pub struct OutputProcessor {
    tokenizer: Arc<Tokenizer>,
    request_states: HashMap<String, RequestState>,
    parent_requests: HashMap<String, ParentRequest>,
    num_generation_tokens: u64,
}

impl OutputProcessor {
    /// A processor without requests.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            request_states: HashMap::new(),
            parent_requests: HashMap::new(),
            num_generation_tokens: 0,
        }
    }

    /// Registers a request before it is sent, so that no output can arrive for an unknown one.
    /// Returns the requests to send: `n` children where `n > 1`.
    pub fn add_request(
        &mut self,
        request: EngineCoreRequest,
        prompt: Option<Arc<str>>,
        queue: &Arc<RequestOutputCollector>,
    ) -> Vec<EngineCoreRequest> {
        let external = request
            .external_req_id
            .clone()
            .unwrap_or_else(|| request.request_id.clone());
        if request.sampling_params.n <= 1 {
            self.add_state(&request, external, None, 0, prompt, queue);
            return vec![request];
        }
        let parent_id = request.request_id.clone();
        let (parent, children) = ParentRequest::split(request, external.clone());
        self.parent_requests.insert(parent_id.clone(), parent);
        for (index, child) in (0..).zip(&children) {
            let parent_id = Some(parent_id.clone());
            self.add_state(
                child,
                external.clone(),
                parent_id,
                index,
                prompt.clone(),
                queue,
            );
        }
        children
    }

    fn add_state(
        &mut self,
        request: &EngineCoreRequest,
        external_req_id: String,
        parent_id: Option<String>,
        index: u32,
        prompt: Option<Arc<str>>,
        queue: &Arc<RequestOutputCollector>,
    ) {
        let params = &request.sampling_params;
        let state = RequestState {
            external_req_id,
            parent_id,
            index,
            prompt,
            prompt_token_ids: request.prompt_token_ids.as_slice().into(),
            output_kind: params.output_kind,
            stream_interval: params.stream_interval.unwrap_or(1) as usize,
            detokenizer: IncrementalDetokenizer::new(&self.tokenizer, request),
            logprobs_processor: LogprobsProcessor::new(self.tokenizer.clone(), params),
            num_cached_tokens: 0,
            sent_tokens: 0,
            queue: queue.clone(),
        };
        self.request_states
            .insert(request.request_id.clone(), state);
    }

    /// Takes what a step brought and fills the queues. Returns the internal ids that the core
    /// must stop generating for: a stop string was found, or a sibling failed. Outputs for
    /// unknown ids are ignored: their requests were aborted meanwhile.
    pub fn process_outputs(&mut self, outputs: &[EngineCoreOutput]) -> Vec<String> {
        let mut reqs_to_abort = Vec::new();
        for output in outputs {
            if let Some(error) = request_error(output) {
                reqs_to_abort.extend(self.fail_request(&output.request_id, &error));
            } else if self.process_output(output) == Some(true) {
                reqs_to_abort.push(output.request_id.clone());
            }
        }
        reqs_to_abort
    }

    /// Returns whether the core must be told to stop; `None` for an unknown request.
    fn process_output(&mut self, output: &EngineCoreOutput) -> Option<bool> {
        let state = self.request_states.get_mut(&output.request_id)?;
        self.num_generation_tokens += output.new_token_ids.len() as u64;
        if let Some(stats) = &output.prefill_stats {
            state.num_cached_tokens = stats.num_cached_tokens;
        }
        let mut finish_reason = output.finish_reason;
        let mut stop_reason = output.stop_reason.clone();
        let stopped_by_token = finish_reason == Some(FinishReason::Stop);
        let stop_string = state
            .detokenizer
            .update(&output.new_token_ids, stopped_by_token);
        if let Some(found) = stop_string {
            finish_reason = Some(FinishReason::Stop);
            stop_reason = Some(StopReason::String(found.stop_string));
        }
        if let Some(rows) = &output.new_prompt_logprobs {
            let prompt_len = state.prompt_token_ids.len();
            state.logprobs_processor.update_prompt(rows, prompt_len);
        }
        if let Some(rows) = &output.new_logprobs {
            state.logprobs_processor.update(rows);
        }
        state
            .logprobs_processor
            .truncate(state.detokenizer.num_output_tokens());
        if let Some(completion) = state.make_completion_output(finish_reason, stop_reason) {
            Self::deliver(
                &mut self.parent_requests,
                &output.request_id,
                state,
                completion,
            );
        }
        if finish_reason.is_some() {
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
        state.queue.put(Ok(RequestOutput {
            request_id: state.external_req_id.clone(),
            prompt: state.prompt.clone(),
            prompt_token_ids: state.prompt_token_ids.clone(),
            prompt_logprobs: state.logprobs_processor.take_prompt_logprobs(),
            outputs,
            finished,
            num_cached_tokens: state.num_cached_tokens,
        }));
    }

    /// Ends a request and its siblings with an error; returns the siblings, which the core still
    /// works on.
    fn fail_request(&mut self, request_id: &str, error: &GenerateError) -> Vec<String> {
        let Some(state) = self.request_states.remove(request_id) else {
            return Vec::new();
        };
        state.queue.put(Err(error.clone()));
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
        ids.into_iter()
            .filter(|id| self.request_states.remove(id).is_some())
            .collect()
    }

    /// Ends every request: the core is gone.
    pub fn propagate_error(&mut self, error: &EngineDeadError) {
        self.parent_requests.clear();
        for (_, state) in self.request_states.drain() {
            state.queue.put(Err(error.clone().into()));
        }
    }

    /// Requests in flight, each of `n` counted.
    pub fn num_unfinished_requests(&self) -> usize {
        self.request_states.len()
    }

    /// Tokens received since the start, for all requests.
    pub fn num_generation_tokens(&self) -> u64 {
        self.num_generation_tokens
    }
}

fn request_error(output: &EngineCoreOutput) -> Option<GenerateError> {
    let error = match (&output.error, output.finish_reason) {
        (Some(error), _) => error.clone(),
        (None, Some(FinishReason::Error)) => RequestError {
            code: RequestErrorCode::InternalError,
            message: "the engine core failed on this request".to_owned(),
            retryable: false,
        },
        (None, _) => return None,
    };
    Some(GenerateError::Request(error))
}

#[cfg(test)]
mod tests {
    use protocol::{LogprobsLists, SamplingParams};

    use super::*;
    use crate::test_support::{ids, output, tokenizer};

    struct Fixture {
        processor: OutputProcessor,
        queue: Arc<RequestOutputCollector>,
        children: Vec<EngineCoreRequest>,
    }

    impl Fixture {
        fn new(params: SamplingParams) -> Self {
            let mut processor = OutputProcessor::new(tokenizer());
            let delta = params.output_kind == RequestOutputKind::Delta;
            let queue = Arc::new(RequestOutputCollector::new(delta));
            let request = EngineCoreRequest {
                request_id: "r".to_owned(),
                external_req_id: Some("mine".to_owned()),
                prompt_token_ids: ids("p"),
                sampling_params: params,
                ..EngineCoreRequest::default()
            };
            let children = processor.add_request(request, Some("p".into()), &queue);
            Self {
                processor,
                queue,
                children,
            }
        }

        /// Feeds one output; returns what must be aborted.
        fn feed(&mut self, output: EngineCoreOutput) -> Vec<String> {
            self.processor.process_outputs(&[output])
        }

        fn next(&self) -> Option<RequestOutput> {
            self.queue.get_nowait().map(Result::unwrap)
        }

        fn text(&self) -> Option<String> {
            self.next().map(|output| output.outputs[0].text.clone())
        }
    }

    fn kind(output_kind: RequestOutputKind) -> SamplingParams {
        SamplingParams {
            output_kind,
            ..SamplingParams::default()
        }
    }

    #[test]
    fn cumulative_delta_and_final_outputs() {
        for (output_kind, expected) in [
            (RequestOutputKind::Cumulative, [Some("a"), Some("abc")]),
            (RequestOutputKind::Delta, [Some("a"), Some("bc")]),
            (RequestOutputKind::FinalOnly, [None, Some("abc")]),
        ] {
            let mut fixture = Fixture::new(kind(output_kind));
            fixture.feed(output("r", "a", None));
            assert_eq!(fixture.text().as_deref(), expected[0]);
            fixture.feed(output("r", "bc", Some(FinishReason::Length)));
            let last = fixture.next().unwrap();
            assert_eq!(Some(last.outputs[0].text.as_str()), expected[1]);
            assert_eq!(last.outputs[0].finish_reason, Some(FinishReason::Length));
            assert!(last.finished);
            assert_eq!(last.request_id, "mine");
            assert_eq!(fixture.processor.num_unfinished_requests(), 0);
            assert_eq!(fixture.processor.num_generation_tokens(), 3);
        }
    }

    #[test]
    fn a_stop_string_ends_the_request_here() {
        let mut fixture = Fixture::new(SamplingParams {
            stop: vec!["bc".to_owned()],
            ..kind(RequestOutputKind::FinalOnly)
        });
        assert!(fixture.feed(output("r", "ab", None)).is_empty());
        assert_eq!(fixture.feed(output("r", "cd", None)), ["r"]);
        let last = fixture.next().unwrap();
        assert_eq!(last.outputs[0].text, "a");
        assert_eq!(
            last.outputs[0].stop_reason,
            Some(StopReason::String("bc".to_owned()))
        );
        // What was generated before the core heard of it is ignored.
        assert!(fixture.feed(output("r", "x", None)).is_empty());
        assert!(fixture.next().is_none());
    }

    #[test]
    fn stream_interval_sends_the_first_and_the_last() {
        let mut fixture = Fixture::new(SamplingParams {
            stream_interval: Some(3),
            ..kind(RequestOutputKind::Delta)
        });
        let mut texts = Vec::new();
        for (text, finish) in [
            ("a", None),
            ("b", None),
            ("c", None),
            ("d", None),
            ("e", Some(FinishReason::Length)),
        ] {
            fixture.feed(output("r", text, finish));
            texts.push(fixture.text());
        }
        let expected = [Some("a"), None, None, Some("bcd"), Some("e")];
        assert_eq!(texts, expected.map(|text| text.map(str::to_owned)));
    }

    #[test]
    fn several_answers_come_together_in_order() {
        let mut fixture = Fixture::new(SamplingParams {
            n: 2,
            ..kind(RequestOutputKind::FinalOnly)
        });
        let sent: Vec<_> = fixture.children.iter().map(|c| &c.request_id).collect();
        assert_eq!(sent, ["0_r", "1_r"]);
        fixture.feed(output("1_r", "one", Some(FinishReason::Length)));
        assert!(fixture.next().is_none());
        fixture.feed(output("0_r", "nil", Some(FinishReason::Length)));
        let last = fixture.next().unwrap();
        let texts: Vec<_> = last.outputs.iter().map(|o| (o.index, &*o.text)).collect();
        assert_eq!(texts, [(0, "nil"), (1, "one")]);
        assert!(last.finished);
    }

    #[test]
    fn an_error_ends_all_siblings() {
        let mut fixture = Fixture::new(SamplingParams {
            n: 3,
            ..kind(RequestOutputKind::Delta)
        });
        fixture.feed(output("2_r", "x", Some(FinishReason::Length)));
        let failed = EngineCoreOutput {
            request_id: "0_r".to_owned(),
            finish_reason: Some(FinishReason::Error),
            error: Some(RequestError {
                code: RequestErrorCode::ValidationError,
                message: "no".to_owned(),
                retryable: false,
            }),
            ..EngineCoreOutput::default()
        };
        assert_eq!(fixture.feed(failed), ["1_r"]);
        let error = fixture.queue.get_nowait().unwrap().unwrap_err();
        assert_eq!(error.status_code(), 400);
        assert_eq!(fixture.processor.num_unfinished_requests(), 0);
    }

    #[test]
    fn an_error_without_words_is_internal() {
        let mut fixture = Fixture::new(kind(RequestOutputKind::Delta));
        fixture.feed(output("r", "", Some(FinishReason::Error)));
        let error = fixture.queue.get_nowait().unwrap().unwrap_err();
        assert_eq!(error.status_code(), 500);
    }

    #[test]
    fn aborted_requests_are_forgotten() {
        let mut fixture = Fixture::new(SamplingParams {
            n: 2,
            ..kind(RequestOutputKind::Delta)
        });
        fixture.feed(output("1_r", "x", Some(FinishReason::Length)));
        assert_eq!(fixture.processor.abort_request("r"), ["0_r"]);
        assert!(fixture.processor.abort_request("r").is_empty());
        assert_eq!(fixture.processor.num_unfinished_requests(), 0);
    }

    #[test]
    fn logprobs_follow_the_tokens() {
        let mut fixture = Fixture::new(SamplingParams {
            logprobs: Some(1),
            prompt_logprobs: Some(0),
            stop: vec!["b".to_owned()],
            ..kind(RequestOutputKind::Delta)
        });
        let mut first = output("r", "a", None);
        first.new_logprobs = Some(LogprobsLists {
            logprob_token_ids: vec![vec![97, 120]],
            logprobs: vec![vec![-1.0, -0.5]],
            sampled_token_ranks: vec![2],
        });
        first.new_prompt_logprobs = Some(LogprobsLists::default());
        fixture.feed(first);
        let sent = fixture.next().unwrap();
        assert_eq!(sent.prompt_logprobs, Some(vec![None]));
        let position = &sent.outputs[0].logprobs.as_ref().unwrap()[0];
        let seen: Vec<_> = position
            .iter()
            .map(|l| (l.token_id, l.rank, &*l.decoded_token))
            .collect();
        assert_eq!(seen, [(97, Some(2), "a"), (120, Some(1), "x")]);
        assert_eq!(sent.outputs[0].cumulative_logprob, Some(-1.0));
        // Of two tokens, the one behind the stop string is dropped with its row.
        let mut second = output("r", "bc", None);
        second.new_logprobs = Some(LogprobsLists {
            logprob_token_ids: vec![vec![98, 98], vec![99, 99]],
            logprobs: vec![vec![-2.0, -2.0], vec![-4.0, -4.0]],
            sampled_token_ranks: vec![1, 1],
        });
        fixture.feed(second);
        let last = fixture.next().unwrap();
        assert_eq!(last.outputs[0].token_ids, ids("b"));
        assert_eq!(last.outputs[0].logprobs.as_ref().unwrap().len(), 1);
        assert_eq!(last.outputs[0].cumulative_logprob, Some(-3.0));
    }
}
