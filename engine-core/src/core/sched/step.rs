//! A step in the making: what is scheduled so far, and how it is written down for the runner.

use std::ops::Range;

use crate::core::kv_cache_manager::RequestBlocks;
use crate::core::request::Request;
use crate::core::sched::output::{Admission, CachedRequestData, NewRequestData, SchedulerOutput};
use crate::core::sched::scheduler::{PauseState, RunningRequest, Scheduler};
use crate::request_id::RequestId;

/// A step in the making.
pub(crate) struct Step {
    pub(crate) token_budget: usize,
    /// Most tokens for one prefill.
    pub(crate) max_tokens_per_request: usize,
    /// In order of admission.
    pub(crate) scheduled: Vec<Scheduled>,
    pub(crate) preempted_req_ids: Vec<RequestId>,
    /// The request that was admitted last, and which of its tokens this step computes, for it or one before it.
    pub(crate) last_admitted: Option<(Admission, Range<usize>)>,
    /// Tokens that requests share with the one admitted before them.
    pub(crate) num_shared_tokens: usize,
    pub(crate) timestamp: f64,
}

/// A request's part in a step.
pub(crate) struct Scheduled {
    pub(crate) admission: Admission,
    pub(crate) num_tokens: usize,
    /// The last of these tokens, where they are to be verified.
    pub(crate) draft_token_ids: Vec<u32>,
    pub(crate) news: News,
}

/// What the runner has to hear about a scheduled request.
pub(crate) enum News {
    /// It ran before and got these blocks.
    Running { new_block_ids: Vec<u32> },
    /// It is admitted for the first time, and shares so many tokens with the request admitted before it.
    New { num_shared_tokens: Option<usize> },
    /// It is admitted again after a preemption.
    Resumed,
}

impl Step {
    /// Gives `num_tokens` of the budget to a request, the last of them for its draft.
    pub(super) fn schedule(
        &mut self,
        admission: Admission,
        num_tokens: usize,
        draft_token_ids: Vec<u32>,
        news: News,
    ) {
        self.token_budget -= num_tokens;
        self.scheduled.push(Scheduled {
            admission,
            num_tokens,
            draft_token_ids,
            news,
        });
    }

    /// Takes back what a request got in this step, if anything.
    pub(super) fn unschedule(&mut self, admission: Admission) {
        let position = self
            .scheduled
            .binary_search_by_key(&admission, |entry| entry.admission);
        if let Ok(position) = position {
            self.token_budget += self.scheduled.remove(position).num_tokens;
        }
    }
}

impl Scheduler {
    /// An empty step with its limits.
    pub(super) fn new_step(&self) -> Step {
        let max_num_batched_tokens = self.config.max_num_batched_tokens as usize;
        // A prefill is held back only where others want the budget, and never below its fair
        // share of it.
        let num_eligible =
            (self.running.len() + self.waiting.len()).min(self.config.max_num_seqs as usize);
        let threshold = self.config.long_prefill_token_threshold as usize;
        let max_tokens_per_request = if threshold > 0 && num_eligible > 1 {
            threshold.max(max_num_batched_tokens / num_eligible)
        } else {
            usize::MAX
        };
        Step {
            token_budget: match self.pause_state() {
                PauseState::PausedAll => 0,
                PauseState::Unpaused | PauseState::PausedNew => max_num_batched_tokens,
            },
            max_tokens_per_request,
            scheduled: Vec::with_capacity(self.running.len()),
            preempted_req_ids: Vec::new(),
            last_admitted: None,
            num_shared_tokens: 0,
            timestamp: self.clock.now(),
        }
    }

    /// Writes the step down for the runner and counts its tokens as computed.
    pub(super) fn finish_step(&mut self, step: Step) -> SchedulerOutput {
        let mut output = SchedulerOutput {
            finished_req_ids: std::mem::take(&mut self.finished_req_ids),
            preempted_req_ids: step.preempted_req_ids,
            admissions: Vec::with_capacity(step.scheduled.len()),
            ..SchedulerOutput::default()
        };
        let mut num_scheduled_tokens = Vec::with_capacity(step.scheduled.len());
        let cached = &mut output.scheduled_cached_reqs;
        let mut running = self.running.iter_mut();
        for Scheduled {
            admission,
            num_tokens,
            draft_token_ids,
            news,
        } in step.scheduled
        {
            let Some(RunningRequest {
                request, blocks, ..
            }) = running.find(|running| running.admission == admission)
            else {
                break;
            };
            match news {
                News::New { num_shared_tokens } => {
                    let new = new_request_data(request, blocks, num_shared_tokens);
                    output.scheduled_new_reqs.push(new);
                }
                News::Running { new_block_ids } => push_cached(cached, request, new_block_ids),
                News::Resumed => {
                    cached.resumed_req_ids.push(request.request_id().clone());
                    cached.all_token_ids.push(request.all_token_ids().to_vec());
                    push_cached(cached, request, blocks.block_ids().to_vec());
                }
            }
            num_scheduled_tokens.push((request.request_id().clone(), num_tokens));
            output.admissions.push(admission);
            output.scheduled_spec_decode_tokens.push(draft_token_ids);
            request.num_runner_tokens = request.num_tokens();
            output.total_num_scheduled_tokens += num_tokens;
            request.num_computed_tokens += num_tokens;
        }
        output.num_scheduled_tokens = num_scheduled_tokens.into_iter().collect();
        output
    }
}

fn new_request_data(
    request: &Request,
    blocks: &RequestBlocks,
    num_shared_tokens: Option<usize>,
) -> NewRequestData {
    NewRequestData {
        req_id: request.request_id().clone(),
        prompt_token_ids: request.prompt_token_ids().clone(),
        output_token_ids: request.output_token_ids().to_vec(),
        sampling_params: request.sampling_params().clone(),
        block_ids: blocks.block_ids().to_vec(),
        num_computed_tokens: request.num_computed_tokens as u32,
        num_shared_tokens: num_shared_tokens.map(|num_tokens| num_tokens as u32),
        scored_positions: request.scored_positions().clone(),
        pooling_params: request.pooling_params(),
    }
}

fn push_cached(cached: &mut CachedRequestData, request: &Request, new_block_ids: Vec<u32>) {
    cached.req_ids.push(request.request_id().clone());
    let unknown = request.all_token_ids().get(request.num_runner_tokens..);
    cached
        .new_token_ids
        .push(unknown.unwrap_or_default().to_vec());
    cached.new_block_ids.push(new_block_ids);
    cached
        .num_computed_tokens
        .push(request.num_computed_tokens as u32);
    cached
        .num_output_tokens
        .push(request.num_output_tokens() as u32);
}
