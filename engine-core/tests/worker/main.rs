//! The worker on a model whose answers are known: what goes into each forward pass, and what
//! becomes of its logits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counting_model;
mod engine;
mod masks;
mod steps;

use std::sync::Arc;

use engine_core::core::sched::{CachedRequestData, NewRequestData, SchedulerOutput};
use engine_core::model_executor::ComputePool;
use engine_core::worker::{ModelRunner, ModelRunnerConfig};
use protocol::{LogprobsMode, SamplingParams, Shared};

use crate::counting_model::CountingModel;

const BLOCK_SIZE: usize = 4;

fn runner_config() -> ModelRunnerConfig {
    ModelRunnerConfig {
        block_size: BLOCK_SIZE,
        max_model_len: 64,
        tokenizer_vocab_size: 37,
        logprobs_mode: LogprobsMode::RawLogprobs,
        enable_sparse_head: true,
    }
}

fn runner(model: CountingModel) -> ModelRunner {
    ModelRunner::new(
        Box::new(model),
        Arc::new(ComputePool::new(2).unwrap()),
        &runner_config(),
    )
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

fn new_request(
    id: &str,
    prompt: &[u32],
    block_ids: &[u32],
    params: SamplingParams,
) -> NewRequestData {
    NewRequestData {
        req_id: id.into(),
        prompt_token_ids: prompt.into(),
        output_token_ids: Vec::new(),
        sampling_params: Arc::new(params),
        block_ids: block_ids.to_vec(),
        num_computed_tokens: 0,
        num_shared_tokens: None,
        scored_positions: Shared::default(),
        pooling_params: None,
    }
}

fn step_of(
    new: Vec<NewRequestData>,
    cached: CachedRequestData,
    scheduled: &[(&str, usize)],
) -> SchedulerOutput {
    let mut step = SchedulerOutput::default();
    step.scheduled_new_reqs = new;
    step.scheduled_cached_reqs = cached;
    step.num_scheduled_tokens = scheduled
        .iter()
        .map(|(id, count)| ((*id).into(), *count))
        .collect();
    step.total_num_scheduled_tokens = scheduled.iter().map(|(_, count)| count).sum();
    step
}

fn cached(
    id: &str,
    new_block_ids: &[u32],
    num_computed: u32,
    num_output: u32,
) -> CachedRequestData {
    CachedRequestData {
        req_ids: vec![id.into()],
        new_block_ids: vec![new_block_ids.to_vec()],
        num_computed_tokens: vec![num_computed],
        num_output_tokens: vec![num_output],
        ..CachedRequestData::default()
    }
}
