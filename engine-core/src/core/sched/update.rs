//! What a step's output means for its requests.

use std::collections::BTreeMap;

use protocol::{
    EngineCoreOutput, EngineCoreOutputs, FinishReason, LogprobsLists, RequestError,
    RequestErrorCode, SchedulerStats,
};

use crate::core::sched::output::{ModelRunnerOutput, SchedulerOutput};
use crate::core::sched::scheduler::{ClientOutput, RunningRequest, Scheduler};
use crate::core::sched::stop::{Stop, check_stop};

/// What a step brought for one request.
struct RequestStepOutput {
    /// Tokens that the step computed for it.
    num_tokens: usize,
    sampled_token_ids: Vec<u32>,
    logprobs: Option<LogprobsLists>,
    prompt_logprobs: Option<LogprobsLists>,
    num_nans_in_logits: u32,
    error: Option<String>,
}

impl Scheduler {
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
        let mut outputs = OutputsByClient::default();
        for ClientOutput {
            client_index,
            output,
        } in std::mem::take(&mut self.pending_outputs)
        {
            outputs.push(client_index, output);
        }
        let admissions = &scheduler_output.admissions;
        let mut index = 0;
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
            let num_tokens = scheduler_output.num_scheduled_tokens.at(index);
            let step_output = RequestStepOutput::take(&mut runner_output, index, num_tokens);
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
            } else {
                self.running.push(running);
            }
        }
        let stats = self.make_stats(scheduler_output, runner_output.num_restored_rows);
        outputs.finish(stats, self.clock.now())
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
        let error = step_output
            .error
            .or_else(|| match (is_prefill_chunk, num_sampled) {
                (true, 1..) => Some(format!(
                    "the model runner sampled {num_sampled} tokens after part of a prefill"
                )),
                (false, 0) => Some("the model runner sampled no token".to_owned()),
                _ => None,
            });
        if let Some(message) = error {
            let num_valid_tokens = request.num_computed_tokens - step_output.num_tokens;
            self.kv_cache_manager
                .evict_blocks_after(&mut running.blocks, num_valid_tokens);
            return Some(EngineCoreOutput {
                request_id: request.request_id().to_string(),
                finish_reason: Some(FinishReason::Error),
                events: request.take_events(),
                error: Some(RequestError {
                    code: RequestErrorCode::InternalError,
                    message,
                    retryable: false,
                }),
                num_nans_in_logits: step_output.num_nans_in_logits,
                structured_output_complete: None,
                ..EngineCoreOutput::default()
            });
        }
        if is_prefill_chunk {
            return None;
        }

        let mut new_token_ids = Vec::with_capacity(num_sampled);
        let mut stop = None;
        for token_id in step_output.sampled_token_ids {
            request.append_output_token_id(token_id);
            new_token_ids.push(token_id);
            stop = check_stop(request, self.max_model_len);
            if stop.is_some() {
                break;
            }
        }
        let new_logprobs = step_output.logprobs.map(|mut logprobs| {
            logprobs.logprob_token_ids.truncate(new_token_ids.len());
            logprobs.logprobs.truncate(new_token_ids.len());
            logprobs.sampled_token_ranks.truncate(new_token_ids.len());
            logprobs
        });
        let new_prompt_logprobs = step_output
            .prompt_logprobs
            .filter(|_| request.prompt_logprobs_due);
        request.prompt_logprobs_due = false;
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
            new_prompt_logprobs,
            finish_reason,
            stop_reason,
            events: request.take_events(),
            prefill_stats: request.prefill_stats.take(),
            error: None,
            num_nans_in_logits: step_output.num_nans_in_logits,
            structured_output_complete: None,
        })
    }

    /// The state after a step. Takes the prefix cache's figures since the last call.
    fn make_stats(
        &mut self,
        scheduler_output: &SchedulerOutput,
        num_restored_rows: u32,
    ) -> SchedulerStats {
        SchedulerStats {
            num_running_reqs: self.running.len() as u32,
            num_waiting_reqs: self.waiting.len() as u32,
            kv_cache_usage: self.kv_cache_manager.usage(),
            prefix_cache_stats: std::mem::take(&mut self.prefix_cache_stats),
            num_scheduled_tokens: scheduler_output.total_num_scheduled_tokens as u32,
            num_preempted_reqs: scheduler_output.preempted_req_ids.len() as u32,
            num_restored_rows,
            ..SchedulerStats::default()
        }
    }
}

impl RequestStepOutput {
    /// Entry `index` of the runner's arrays. What is missing in one is absent, zero or empty.
    fn take(runner_output: &mut ModelRunnerOutput, index: usize, num_tokens: usize) -> Self {
        fn entry<T: Default>(array: &mut [T], index: usize) -> T {
            array.get_mut(index).map(std::mem::take).unwrap_or_default()
        }
        Self {
            num_tokens,
            sampled_token_ids: entry(&mut runner_output.sampled_token_ids, index),
            logprobs: entry(&mut runner_output.logprobs, index),
            prompt_logprobs: entry(&mut runner_output.prompt_logprobs, index),
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

    /// Adds the statistics for one client, the first, or for client 0 where no client gets anything.
    fn finish(mut self, stats: SchedulerStats, timestamp: f64) -> BTreeMap<u32, EngineCoreOutputs> {
        let first = self.0.keys().next().copied().unwrap_or_default();
        self.0.entry(first).or_default().scheduler_stats = Some(stats);
        for outputs in self.0.values_mut() {
            outputs.timestamp = timestamp;
        }
        self.0
    }
}
