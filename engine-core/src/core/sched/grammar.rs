//! Requests whose output a grammar constrains: waiting for it, their masks, and their tokens.

use std::time::{Duration, Instant};

use protocol::{
    EngineCoreEventType, EngineCoreOutput, FinishReason, RequestError, RequestErrorCode,
    StructuredOutputStats,
};

use crate::core::request::{Request, StructuredOutput};
use crate::core::sched::aside::GrammarFailure;
use crate::core::sched::output::{
    Admission, GrammarOutput, ModelRunnerOutput, RequestMasks, SchedulerOutput,
};
use crate::core::sched::request_queue::QueueKey;
use crate::core::sched::scheduler::{ClientOutput, Place, RunningRequest, Scheduler};
use crate::core::sched::stop::{Stop, check_stop};
use crate::core::sched::update::some_unless_default;
use crate::request_id::RequestId;
use crate::sample::is_masked;
use crate::structured_output::{
    Accepted, CompiledGrammar, ForcedTokens, Question, StructuredOutputRequest,
};

/// Most tokens that are appended to a request in one step without being sampled: bounds the work of
/// a step where a grammar forces a long text.
const MAX_FORCED_TOKENS: usize = 64;

/// A grammar that is compiled.
struct TakenGrammar {
    grammar: CompiledGrammar,
    was_admitted: bool,
}

impl Scheduler {
    /// Looks whether a request's grammar is compiled. If so, the request goes to its place in the
    /// queue; or it ends with an error of its own, or at once where the grammar leaves nothing to
    /// generate. A request that is gone meanwhile, or not there yet, is no error.
    pub fn grammar_compiled(&mut self, request_id: &RequestId) {
        if let Some(&Place::Running(admission)) = self.in_flight.get(request_id) {
            self.grammar_of_running(admission);
            return;
        }
        let Some((key, compiled)) = self.take_compiled(request_id) else {
            return;
        };
        let Some(mut request) = self.waiting_for_grammar.remove(&key) else {
            return;
        };
        self.in_flight.remove(request_id);
        if compiled.was_admitted {
            let seconds = compiled.grammar.compile_seconds;
            self.structured_output_stats.compile_seconds.extend(seconds);
            self.come_back(key, request, compiled.grammar.outcome);
            return;
        }
        let compiled = compiled.grammar;
        let stats = &mut self.structured_output_stats;
        stats.compile_seconds.extend(compiled.compile_seconds);
        match compiled.was_known {
            true => stats.num_cache_hits += 1,
            false => stats.num_cache_misses += 1,
        }
        let admitted = compiled.outcome.and_then(|grammar| {
            let fits = self.check_budget(&request, &grammar);
            // Also where it is refused: there it ends with the request.
            request.structured_output = Some(StructuredOutput::Ready(grammar));
            fits
        });
        match admitted {
            Ok(()) => self.admit(key, request),
            Err(error) => {
                self.structured_output_stats.num_refused += 1;
                self.refuse(request, error);
            }
        }
    }

    /// Looks whether the grammar that a running request waits for can go on.
    fn grammar_of_running(&mut self, admission: Admission) {
        let found = self
            .running
            .binary_search_by_key(&admission, |running| running.admission);
        let Ok(index) = found else { return };
        let taken = match &self.running[index].request.structured_output {
            Some(StructuredOutput::Pending(pending)) => pending.take(),
            Some(StructuredOutput::Ready(_)) | None => None,
        };
        if let Some(compiled) = taken {
            let seconds = compiled.compile_seconds;
            self.structured_output_stats.compile_seconds.extend(seconds);
            self.come_back_running(index, compiled.outcome);
        }
    }

    /// A waiting request's place and its grammar, once it is compiled.
    fn take_compiled(&self, request_id: &RequestId) -> Option<(QueueKey, TakenGrammar)> {
        let Place::WaitingForGrammar(key) = self.in_flight.get(request_id)? else {
            return None;
        };
        match &self.waiting_for_grammar.get(key)?.structured_output {
            Some(StructuredOutput::Pending(pending)) => {
                let taken = TakenGrammar {
                    grammar: pending.take()?,
                    was_admitted: pending.was_admitted(),
                };
                Some((key.clone(), taken))
            }
            Some(StructuredOutput::Ready(_)) | None => None,
        }
    }

    /// Whether the shortest output fits, where it has to be complete.
    fn check_budget(
        &self,
        request: &Request,
        grammar: &StructuredOutputRequest,
    ) -> Result<(), RequestError> {
        let num_left = request.num_tokens_left(self.max_model_len);
        match grammar.min_tokens_if_required() {
            // What an earlier core let in is let in.
            Some(needed) if needed.number() > num_left && request.num_replayed_tokens() == 0 => {
                let in_context = self.max_model_len.saturating_sub(request.num_tokens());
                let in_context = u32::try_from(in_context).unwrap_or(u32::MAX);
                Err(needed.refusal(num_left, in_context, self.max_model_len))
            }
            _ => Ok(()),
        }
    }

    /// Puts a request whose grammar is ready at its place in the queue.
    fn admit(&mut self, key: QueueKey, mut request: Box<Request>) {
        request.record_event(EngineCoreEventType::Admitted, self.clock.now());
        let num_left = request.num_tokens_left(self.max_model_len);
        self.pending_outputs.push(ClientOutput {
            client_index: request.client_index(),
            output: EngineCoreOutput {
                request_id: request.request_id().to_string(),
                events: request.take_events(),
                structured_output_complete: request
                    .grammar()
                    .map(StructuredOutputRequest::is_completed),
                no_time_to_think: request
                    .grammar()
                    .is_some_and(|grammar| grammar.answers_for_want_of_time(num_left)),
                ..EngineCoreOutput::default()
            },
        });
        self.enqueue(key, request);
    }

    /// Puts a request that goes on with its grammar at its place in the queue, with the tokens that
    /// must come next; or ends it, where these end it.
    pub(super) fn enqueue(&mut self, key: QueueKey, mut request: Box<Request>) {
        let stop = match check_stop(&request, self.max_model_len) {
            Some(stop) => Ok(Some(stop)),
            None => {
                // A replay may have come to the end of a loop.
                request.close_repetition();
                self.append_due_tokens(&mut request)
            }
        };
        match stop {
            Ok(None) => {
                let request_id = request.request_id().clone();
                let key = self.waiting.insert(key, request);
                self.in_flight.insert(request_id, Place::Waiting(key));
            }
            Ok(Some(stop)) => {
                self.count_end(&request, &stop);
                self.forget_in_runner(&request);
                self.end_unqueued(request, stop);
            }
            Err(GrammarFailure::Aside) => self.set_aside(key, request),
            Err(GrammarFailure::Failed(message)) => {
                let error = RequestError::new(RequestErrorCode::InternalError, message);
                self.fail_aside(request, error);
            }
        }
    }

    /// Appends the tokens that come next without being sampled to a request that comes to the queue or
    /// back from its grammar.
    ///
    /// # Errors
    /// As for [`append_forced_tokens`](Self::append_forced_tokens).
    pub(super) fn append_due_tokens(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<Stop>, GrammarFailure> {
        match request.prompt_logprobs_due {
            // They go out with the first token that the model computes.
            true => Ok(None),
            false => self.append_forced_tokens(request),
        }
    }

    /// The masks of a step's sampled positions; `None` where all are free. Made while the forward
    /// pass of that step runs. A part of a prefill has none.
    pub fn get_grammar_bitmask(
        &mut self,
        scheduler_output: &SchedulerOutput,
    ) -> Option<GrammarOutput> {
        let mut output = GrammarOutput::default();
        let mut num_rows = 0;
        let mut running = self.running.iter_mut();
        for (index, admission) in scheduler_output.admissions.iter().enumerate() {
            let Some(RunningRequest { request, .. }) =
                running.find(|running| running.admission == *admission)
            else {
                break;
            };
            let is_prefill_chunk = request.num_computed_tokens < request.num_tokens();
            let num_left = request.num_tokens_left(self.max_model_len);
            let Some(grammar) = request.grammar_mut().filter(|_| !is_prefill_chunk) else {
                continue;
            };
            output.masks.resize_with(index, RequestMasks::default);
            let draft = scheduler_output.draft_at(index);
            let masks = self
                .grammar_steps
                .ask(grammar, |grammar| grammar.masks(draft, num_left));
            output.masks.push(match masks {
                Ok(masks) => {
                    num_rows += masks.len() as u64;
                    RequestMasks::Masks(masks)
                }
                Err(error) => {
                    let question = Question::Mask {
                        tokens_left: num_left,
                    };
                    let what = "the grammar has no mask";
                    match GrammarFailure::new(grammar, question, what, &error) {
                        GrammarFailure::Aside => RequestMasks::Withheld,
                        GrammarFailure::Failed(reason) => RequestMasks::Failed(reason),
                    }
                }
            });
        }
        self.structured_output_stats.num_masked_rows += num_rows;
        (!output.masks.is_empty()).then_some(output)
    }

    /// Notes what the masks of a step took, and which part of it the forward pass didn't hide.
    pub(crate) fn note_fill(&mut self, fill: Duration, exposed: Duration) {
        let stats = &mut self.structured_output_stats;
        stats.num_masked_steps += 1;
        stats.fill_seconds += fill.as_secs_f64();
        stats.exposed_fill_seconds += exposed.as_secs_f64();
    }

    /// Tells a request's grammar of the token that is appended next; false where the token is taken back,
    /// since after it the output could not be completed in time.
    ///
    /// # Errors
    /// The grammar refuses it, which its mask should have prevented, or fails.
    pub(super) fn accept_token(
        &mut self,
        request: &mut Request,
        token_id: u32,
    ) -> Result<bool, GrammarFailure> {
        let num_left = request
            .num_tokens_left(self.max_model_len)
            .saturating_sub(1);
        let num_output_tokens = request.num_output_tokens();
        let may_be_cut_off = !request.sampling_params().stop.is_empty();
        let Some(grammar) = request.grammar_mut() else {
            return Ok(true);
        };
        let accepted = self
            .grammar_steps
            .ask(grammar, |grammar| grammar.accept_token(token_id, num_left));
        match accepted {
            Ok(Accepted::Yes) => {
                self.structured_output_stats.num_constrained_tokens += 1;
                if may_be_cut_off && grammar.is_completed() {
                    let num_unsent = request.unsent_token_ids.len() as u32 + 1;
                    request.unsent_complete_after.push(num_unsent);
                }
                Ok(true)
            }
            Ok(Accepted::Overshoots) => Ok(false),
            Ok(Accepted::Refused) => Err(GrammarFailure::Failed(format!(
                "the grammar refuses the sampled token {token_id} at output token \
                 {num_output_tokens}"
            ))),
            Err(error) => {
                let what = format!("the grammar failed at output token {num_output_tokens}");
                let question = Question::Token {
                    token_id,
                    tokens_left: num_left,
                };
                Err(GrammarFailure::new(grammar, question, &what, &error))
            }
        }
    }

    /// Appends the tokens that come next without being sampled (jump-forward): they go through the
    /// next forward pass as one chunk. Off where logprobs are asked for, which need a row of logits
    /// for every token.
    ///
    /// # Errors
    /// The grammar fails. Tokens that were appended before that stay.
    pub(super) fn append_forced_tokens(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<Stop>, GrammarFailure> {
        let is_off = matches!(self.forced_tokens, ForcedTokens::Off);
        if wants_logprobs(request) || is_off || request.grammar().is_none() {
            return Ok(None);
        }
        let started = Instant::now();
        let stop = self.append_runs(request);
        // No forward pass hides it.
        let took = started.elapsed().as_secs_f64();
        self.structured_output_stats.fill_seconds += took;
        self.structured_output_stats.exposed_fill_seconds += took;
        stop
    }

    fn append_runs(&mut self, request: &mut Request) -> Result<Option<Stop>, GrammarFailure> {
        request.is_forced_text_due = false;
        let mut num_forced = 0;
        while num_forced < MAX_FORCED_TOKENS {
            let run = self.next_forced_tokens(request)?;
            if run.is_empty() {
                break;
            }
            for token_id in run {
                if !self.accept_token(request, token_id)? {
                    return Ok(None);
                }
                num_forced += 1;
                let (params, output) = (request.sampling_params(), request.output_token_ids());
                let stats = &mut self.structured_output_stats;
                stats.num_forced_tokens += 1;
                stats.num_overridden_rows += u64::from(is_masked(params, output, token_id));
                request.append_output_token_id(token_id);
                request.unsent_token_ids.push(token_id);
                if let Some(trace) = &mut request.trace {
                    trace.push_forced(self.clock.now());
                }
                if let Some(stop) = check_stop(request, self.max_model_len) {
                    return Ok(Some(stop));
                }
            }
        }
        request.is_forced_text_due =
            num_forced >= MAX_FORCED_TOKENS && self.is_forced_text_next(request)?;
        Ok(None)
    }

    /// Whether forced text comes next, so that what is sampled there doesn't count. Tokens that are
    /// forced one by one are sampled as well as not.
    ///
    /// # Errors
    /// As for [`append_forced_tokens`](Self::append_forced_tokens).
    pub(super) fn is_forced_text_next(
        &mut self,
        request: &mut Request,
    ) -> Result<bool, GrammarFailure> {
        let may_be = matches!(self.forced_tokens, ForcedTokens::Text(_))
            && request.grammar().is_some()
            && !wants_logprobs(request);
        Ok(may_be && !self.next_forced_tokens(request)?.is_empty())
    }

    /// The tokens that come next without being sampled; empty where there is a choice.
    fn next_forced_tokens(&mut self, request: &mut Request) -> Result<Vec<u32>, GrammarFailure> {
        let num_left = request.num_tokens_left(self.max_model_len);
        let Some((grammar, all_token_ids)) = request.grammar_and_tokens() else {
            return Ok(Vec::new());
        };
        let forced_tokens = &self.forced_tokens;
        let forced = self.grammar_steps.ask(grammar, |grammar| {
            forced_tokens.next(grammar, all_token_ids, num_left)
        });
        forced.map_err(|error| {
            let question = Question::Forced {
                forced_tokens: forced_tokens.clone(),
                last_token_ids: ForcedTokens::last_of(all_token_ids).to_vec(),
                tokens_left: num_left,
            };
            let what = "the grammar failed on a forced token";
            GrammarFailure::new(grammar, question, what, &error)
        })
    }

    /// Counts how a constrained request ended.
    pub(super) fn count_end(&mut self, request: &Request, stop: &Stop) {
        let Some(grammar) = request.grammar() else {
            return;
        };
        let stats = &mut self.structured_output_stats;
        if grammar.is_completed() {
            stats.num_completed += 1;
            stats.num_completed_by_budget += u64::from(grammar.was_led_to_end());
        } else if stop.finish_reason == FinishReason::Length {
            stats.num_truncated += 1;
        }
    }

    /// Whether [`take_structured_output_stats`](Self::take_structured_output_stats) has something to say
    /// between steps.
    pub(super) fn has_structured_output_news(&self) -> bool {
        self.waiting_for_grammar.len() as u32 != self.num_reported_grammars
            || self.structured_output_stats != StructuredOutputStats::default()
    }

    /// What happened since the last call; `None` where nothing did, and where as many grammars wait as then.
    pub(super) fn take_structured_output_stats(
        &mut self,
        runner_output: &ModelRunnerOutput,
    ) -> Option<StructuredOutputStats> {
        let num_queued = self.waiting_for_grammar.len() as u32;
        let is_changed =
            std::mem::replace(&mut self.num_reported_grammars, num_queued) != num_queued;
        let stats = &mut self.structured_output_stats;
        stats.num_overridden_rows += u64::from(runner_output.num_overridden_rows);
        stats.num_head_rows_skipped += runner_output.num_head_rows_skipped;
        let stats = some_unless_default(std::mem::take(stats));
        let mut stats = stats.or_else(|| is_changed.then(StructuredOutputStats::default))?;
        stats.num_queued_grammars = num_queued;
        stats.num_head_rows = runner_output.num_head_rows;
        Some(stats)
    }
}

/// Whether a row of logits is needed for every token.
fn wants_logprobs(request: &Request) -> bool {
    let params = request.sampling_params();
    params.logprobs.is_some() || params.logprob_token_ids.is_some()
}
