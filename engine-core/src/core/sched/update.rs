//! What a step's output means for its requests.

use std::collections::BTreeMap;

use protocol::{
    EngineCoreOutput, EngineCoreOutputs, FinishReason, KVCacheEvent, LogprobsLists, RequestError,
    RequestErrorCode, SchedulerStats, TokenTrace,
};

use crate::core::request::Request;
use crate::core::sched::aside::GrammarFailure;
use crate::core::sched::output::{ModelRunnerOutput, SchedulerOutput};
use crate::core::sched::scheduler::{ClientOutput, RunningRequest, Scheduler};
use crate::core::sched::stop::{Stop, check_stop};
use crate::structured_output::StructuredOutputRequest;

/// What a step brought for one request.
struct RequestStepOutput {
    /// Tokens that the step computed for it.
    num_tokens: usize,
    /// Of these, tokens of a draft.
    num_draft_tokens: usize,
    /// Of these, tokens that were sampled too: the first ones.
    num_accepted_tokens: usize,
    sampled_token_ids: Vec<u32>,
    logprobs: Option<LogprobsLists>,
    trace: Vec<TokenTrace>,
    prompt_logprobs: Option<LogprobsLists>,
    scores: Vec<Vec<f32>>,
    pooling_output: Option<Vec<f32>>,
    num_nans_in_logits: u32,
    error: Option<String>,
}

impl Scheduler {
    /// What was decided between steps (refusals, admissions), for whoever sends it before the next
    /// step does; with changes of the prefix cache and statistics of structured output that no step is there to bring.
    pub fn take_pending_outputs(&mut self) -> BTreeMap<u32, EngineCoreOutputs> {
        let outputs = self.pending_by_client();
        let now = self.clock.now();
        let has_news =
            self.has_structured_output_news() || self.kv_cache_manager.block_pool().has_events();
        if self.has_requests() || !has_news {
            return outputs.stamp(now);
        }
        let stats = self.make_stats(&SchedulerOutput::default(), &ModelRunnerOutput::default());
        outputs.finish(stats, self.kv_cache_manager.take_events(), now)
    }

    fn pending_by_client(&mut self) -> OutputsByClient {
        let mut outputs = OutputsByClient::default();
        for ClientOutput {
            client_index,
            output,
        } in std::mem::take(&mut self.pending_outputs)
        {
            outputs.push(client_index, output);
        }
        outputs
    }

    /// Adds what was sampled to the requests, ends those that are over, and returns what each
    /// client gets, by `client_index`. The statistics go to one client.
    ///
    /// An error, or an output that makes no sense, ends the request that it belongs to and
    /// touches no other.
    pub fn update_from_output(
        &mut self,
        scheduler_output: &SchedulerOutput,
        mut runner_output: ModelRunnerOutput,
    ) -> BTreeMap<u32, EngineCoreOutputs> {
        let mut outputs = self.pending_by_client();
        let admissions = &scheduler_output.admissions;
        let mut index = 0;
        let mut num_parked = self.num_parked();
        let mut num_prompt_tokens = 0;
        let running = std::mem::take(&mut self.running);
        self.running.reserve(running.len());
        for mut running in running {
            // What belongs to earlier admissions was aborted during the step.
            while admissions
                .get(index)
                .is_some_and(|admission| *admission < running.admission)
            {
                index += 1;
            }
            if admissions.get(index) != Some(&running.admission) {
                self.running.push(running);
                continue;
            }
            let step_output = RequestStepOutput::take(scheduler_output, &mut runner_output, index);
            num_prompt_tokens += num_prompt_tokens_of(&running.request, step_output.num_tokens);
            let output = self.update_request(&mut running, step_output);
            let client_index = running.request.client_index();
            let is_over = output
                .as_ref()
                .is_some_and(|output| output.finish_reason.is_some());
            if let Some(output) = output {
                outputs.push(client_index, output);
            }
            if is_over {
                let request_id = running.request.request_id();
                self.in_flight.remove(request_id);
                self.finished_req_ids.push(request_id.clone());
                self.kv_cache_manager.free(running.blocks);
            } else if is_aside(&running.request) {
                self.set_aside_running(running, num_parked);
                num_parked += 1;
            } else {
                self.running.push(running);
            }
        }
        let stats = SchedulerStats {
            num_prompt_tokens: num_prompt_tokens as u32,
            ..self.make_stats(scheduler_output, &runner_output)
        };
        outputs.finish(stats, self.kv_cache_manager.take_events(), self.clock.now())
    }

    /// Applies one request's part; `None` where it has nothing to say.
    fn update_request(
        &mut self,
        running: &mut RunningRequest,
        step_output: RequestStepOutput,
    ) -> Option<EngineCoreOutput> {
        let request = &mut running.request;
        let is_prefill_chunk = request.num_computed_tokens < request.num_tokens();
        let num_sampled = step_output.sampled_token_ids.len();
        let is_withheld = is_aside(request);
        let num_positions = request.scored_positions().len();
        let num_scores = step_output.scores.len();
        let is_pooled = request.pooling_params().is_some();
        let is_scored = request.is_prompt_only();
        let error = step_output
            .error
            .or_else(|| match (is_prefill_chunk, num_sampled) {
                (true, 1..) => Some(format!(
                    "the model runner sampled {num_sampled} tokens after part of a prefill"
                )),
                (false, 0) if !is_withheld && !is_scored => {
                    Some("the model runner sampled no token".to_owned())
                }
                (false, _) if num_scores != num_positions => Some(format!(
                    "the model runner scored {num_scores} of {num_positions} positions"
                )),
                (false, _) if is_pooled && step_output.pooling_output.is_none() => {
                    Some("the model runner pooled nothing".to_owned())
                }
                _ => None,
            });
        if let Some(message) = error {
            let num_valid_tokens = request.num_computed_tokens - step_output.num_tokens;
            self.kv_cache_manager
                .evict_blocks_after(&mut running.blocks, num_valid_tokens);
            let num_nans_in_logits = step_output.num_nans_in_logits;
            return Some(failure(request, message, num_nans_in_logits));
        }
        if is_prefill_chunk {
            return None;
        }
        if is_scored {
            return Some(EngineCoreOutput {
                request_id: request.request_id().to_string(),
                scores: step_output.scores,
                pooling_output: step_output.pooling_output,
                finish_reason: Some(FinishReason::Stop),
                events: request.take_events(),
                prefill_stats: request.prefill_stats.take(),
                num_nans_in_logits: step_output.num_nans_in_logits,
                ..EngineCoreOutput::default()
            });
        }
        self.count_draft(
            step_output.num_draft_tokens,
            step_output.num_accepted_tokens,
        );

        let taken = match is_withheld {
            true => Err(GrammarFailure::Aside),
            false => self
                .take_tokens(request, &step_output.sampled_token_ids, step_output.trace)
                .and_then(|stop| match stop {
                    Some(stop) => Ok(Some(stop)),
                    None => self.append_forced_tokens(request),
                }),
        };
        let stop = match taken {
            Ok(stop) => stop,
            // What was taken so far goes out; the rest comes again.
            Err(GrammarFailure::Aside) => None,
            Err(GrammarFailure::Failed(reason)) => {
                tracing::warn!(
                    request_id = &**request.request_id(),
                    reason,
                    "request failed"
                );
                self.structured_output_stats.num_rejections += 1;
                return Some(failure(request, reason, step_output.num_nans_in_logits));
            }
        };
        match &stop {
            Some(stop) => self.count_end(request, stop),
            None if is_aside(request) => {}
            None => self.propose_draft(request),
        }
        let new_token_ids = std::mem::take(&mut request.unsent_token_ids);
        let new_prompt_logprobs = step_output
            .prompt_logprobs
            .filter(|_| std::mem::take(&mut request.prompt_logprobs_due));
        // Where the only token was taken back there is nothing to say.
        if new_token_ids.is_empty() && stop.is_none() && new_prompt_logprobs.is_none() {
            return None;
        }
        let new_logprobs = step_output.logprobs.map(|mut logprobs| {
            logprobs.logprob_token_ids.truncate(new_token_ids.len());
            logprobs.logprobs.truncate(new_token_ids.len());
            logprobs.sampled_token_ranks.truncate(new_token_ids.len());
            logprobs
        });
        let (finish_reason, stop_reason) = match stop {
            Some(Stop {
                finish_reason,
                stop_reason,
            }) => (Some(finish_reason), stop_reason),
            None => (None, None),
        };
        Some(EngineCoreOutput {
            request_id: request.request_id().to_string(),
            new_token_ids,
            new_logprobs,
            new_trace: request.take_trace(),
            new_prompt_logprobs,
            scores: Vec::new(),
            pooling_output: None,
            finish_reason,
            stop_reason,
            events: request.take_events(),
            prefill_stats: request.prefill_stats.take(),
            error: None,
            num_nans_in_logits: step_output.num_nans_in_logits,
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
            no_time_to_think: false,
        })
    }

    /// Takes what was sampled. What was computed for tokens that were not taken doesn't count.
    ///
    /// # Errors
    /// The grammar refuses a token or fails; the tokens before stay.
    fn take_tokens(
        &mut self,
        request: &mut Request,
        sampled_token_ids: &[u32],
        trace: Vec<TokenTrace>,
    ) -> Result<Option<Stop>, GrammarFailure> {
        let outcome = self.append_sampled_tokens(request, sampled_token_ids, trace);
        request.num_runner_tokens = request.num_tokens();
        // The last token is always yet to be computed.
        let num_valid_tokens = request.num_tokens() - 1;
        request.num_computed_tokens = request.num_computed_tokens.min(num_valid_tokens);
        outcome
    }

    /// Appends what was sampled, until the request is over, a token is taken back, or forced text comes
    /// next.
    ///
    /// # Errors
    /// The grammar refuses a token or fails; the tokens before stay.
    fn append_sampled_tokens(
        &mut self,
        request: &mut Request,
        sampled_token_ids: &[u32],
        trace: Vec<TokenTrace>,
    ) -> Result<Option<Stop>, GrammarFailure> {
        let mut trace = trace.into_iter();
        if request.is_forced_text_due {
            return Ok(None);
        }
        for (index, &token_id) in sampled_token_ids.iter().enumerate() {
            if !self.accept_token(request, token_id)? {
                break;
            }
            request.append_output_token_id(token_id);
            request.unsent_token_ids.push(token_id);
            if let (Some(tokens), Some(token)) = (&mut request.trace, trace.next()) {
                tokens.push_sampled(token, self.clock.now());
            }
            if let Some(stop) = check_stop(request, self.max_model_len) {
                return Ok(Some(stop));
            }
            // What is sampled behind it was to go on with the loop.
            if request.close_repetition() {
                break;
            }
            // After a token of a draft as after any other: what is sampled behind it is not what comes.
            let is_last = index + 1 == sampled_token_ids.len();
            if !is_last && self.is_forced_text_next(request)? {
                break;
            }
        }
        Ok(None)
    }

    fn count_draft(&mut self, num_draft_tokens: usize, num_accepted: usize) {
        if num_draft_tokens == 0 {
            return;
        }
        let stats = &mut self.spec_decoding_stats;
        stats.num_drafts += 1;
        stats.num_draft_tokens += num_draft_tokens as u64;
        stats.num_accepted_tokens += num_accepted as u64;
        if stats.num_accepted_tokens_per_pos.len() < num_draft_tokens {
            stats
                .num_accepted_tokens_per_pos
                .resize(num_draft_tokens, 0);
        }
        for accepted in stats
            .num_accepted_tokens_per_pos
            .iter_mut()
            .take(num_accepted)
        {
            *accepted += 1;
        }
    }

    /// The state after a step. Takes the prefix cache's figures since the last call.
    fn make_stats(
        &mut self,
        scheduler_output: &SchedulerOutput,
        runner_output: &ModelRunnerOutput,
    ) -> SchedulerStats {
        SchedulerStats {
            num_running_reqs: self.running.len() as u32,
            num_waiting_reqs: self.num_waiting() as u32,
            kv_cache_usage: self.kv_cache_manager.usage(),
            prefix_cache_stats: std::mem::take(&mut self.prefix_cache_stats),
            num_scheduled_tokens: scheduler_output.total_num_scheduled_tokens as u32,
            num_prompt_tokens: 0,
            num_preempted_reqs: scheduler_output.preempted_req_ids.len() as u32,
            num_restored_rows: runner_output.num_restored_rows,
            structured_output_stats: self.take_structured_output_stats(runner_output),
            spec_decoding_stats: some_unless_default(std::mem::take(&mut self.spec_decoding_stats)),
        }
    }
}

/// Tokens of its prompt that a step computed, which computed so many tokens for it.
fn num_prompt_tokens_of(request: &Request, num_tokens: usize) -> usize {
    let num_prompt_tokens = request.num_prompt_tokens();
    let before = request.num_computed_tokens.saturating_sub(num_tokens);
    let after = request.num_computed_tokens.min(num_prompt_tokens);
    after.saturating_sub(before)
}

/// Whether a request has to wait for its grammar.
fn is_aside(request: &Request) -> bool {
    request
        .grammar()
        .is_some_and(StructuredOutputRequest::is_aside)
}

/// `None` where there is nothing to report.
pub(super) fn some_unless_default<T: Default + PartialEq>(stats: T) -> Option<T> {
    (stats != T::default()).then_some(stats)
}

/// The last output of a request on which something failed.
fn failure(request: &mut Request, message: String, num_nans_in_logits: u32) -> EngineCoreOutput {
    EngineCoreOutput {
        request_id: request.request_id().to_string(),
        new_token_ids: std::mem::take(&mut request.unsent_token_ids),
        new_trace: request.take_trace(),
        finish_reason: Some(FinishReason::Error),
        events: request.take_events(),
        error: Some(RequestError::new(RequestErrorCode::InternalError, message)),
        num_nans_in_logits,
        structured_output_complete: request.grammar().map(StructuredOutputRequest::is_completed),
        ..EngineCoreOutput::default()
    }
}

impl RequestStepOutput {
    /// Entry `index` of the runner's arrays. What is missing in one is absent, zero or empty.
    fn take(
        scheduler_output: &SchedulerOutput,
        runner_output: &mut ModelRunnerOutput,
        index: usize,
    ) -> Self {
        fn entry<T: Default>(array: &mut [T], index: usize) -> T {
            array.get_mut(index).map(std::mem::take).unwrap_or_default()
        }
        let draft_token_ids = scheduler_output.draft_at(index);
        let sampled_token_ids = entry(&mut runner_output.sampled_token_ids, index);
        // Where the draft ends the text, nothing is sampled behind it.
        let pairs = draft_token_ids.iter().zip(&sampled_token_ids);
        let num_accepted_tokens = pairs
            .take_while(|(draft, sampled)| draft == sampled)
            .count();
        Self {
            num_tokens: scheduler_output.num_scheduled_tokens.at(index),
            num_draft_tokens: draft_token_ids.len(),
            num_accepted_tokens,
            sampled_token_ids,
            logprobs: entry(&mut runner_output.logprobs, index),
            trace: entry(&mut runner_output.traces, index),
            prompt_logprobs: entry(&mut runner_output.prompt_logprobs, index),
            scores: entry(&mut runner_output.scores, index),
            pooling_output: entry(&mut runner_output.pooler_output, index),
            num_nans_in_logits: entry(&mut runner_output.num_nans_in_logits, index),
            error: entry(&mut runner_output.errors, index),
        }
    }
}

/// The outputs of a step, sorted by whom they are for.
#[derive(Default)]
struct OutputsByClient(BTreeMap<u32, EngineCoreOutputs>);

impl OutputsByClient {
    fn push(&mut self, client_index: u32, output: EngineCoreOutput) {
        self.0.entry(client_index).or_default().outputs.push(output);
    }

    /// Adds the statistics and the events for one client, the first, or for client 0 where no client gets
    /// anything.
    fn finish(
        mut self,
        stats: SchedulerStats,
        kv_cache_events: Vec<KVCacheEvent>,
        timestamp: f64,
    ) -> BTreeMap<u32, EngineCoreOutputs> {
        let first = self.0.keys().next().copied().unwrap_or_default();
        let first = self.0.entry(first).or_default();
        first.scheduler_stats = Some(Box::new(stats));
        first.kv_cache_events = kv_cache_events;
        self.stamp(timestamp)
    }

    fn stamp(mut self, timestamp: f64) -> BTreeMap<u32, EngineCoreOutputs> {
        for outputs in self.0.values_mut() {
            outputs.timestamp = timestamp;
        }
        self.0
    }
}
