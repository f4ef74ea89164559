//! The scheduler against hand-made cases.

mod budget;
mod grammar;
mod grammar_reports;
mod lifecycle;
mod outputs;
mod preemption;
mod prefix_caching;
mod refusals;
mod turns;

use std::collections::BTreeMap;

use protocol::{
    EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, SamplingParams, SchedulerConfig,
    SchedulingPolicy,
};

use crate::core::kv_cache_manager::KVCacheConfig;
use crate::core::request::Request;
use crate::core::sched::{EngineClock, ModelRunnerOutput, Scheduler, SchedulerOutput};

/// A scheduler with `num_blocks` usable blocks of 4 tokens, and as long a context as they hold.
fn scheduler(config: SchedulerConfig, num_blocks: u32) -> Scheduler {
    scheduler_with_len(config, num_blocks, num_blocks * 4)
}

fn scheduler_with_len(config: SchedulerConfig, num_blocks: u32, max_model_len: u32) -> Scheduler {
    let kv_cache_config = KVCacheConfig {
        num_blocks: num_blocks + 1,
        block_size: 4,
        enable_prefix_caching: true,
    };
    let clock = EngineClock::from_fn(|| 0.0);
    Scheduler::new(config, kv_cache_config, max_model_len, clock).unwrap()
}

fn config(max_num_batched_tokens: u32, max_num_seqs: u32) -> SchedulerConfig {
    SchedulerConfig {
        max_num_batched_tokens,
        max_num_seqs,
        ..SchedulerConfig::default()
    }
}

fn priority_config(max_num_batched_tokens: u32, max_num_seqs: u32) -> SchedulerConfig {
    SchedulerConfig {
        policy: SchedulingPolicy::Priority,
        ..config(max_num_batched_tokens, max_num_seqs)
    }
}

/// A request with a prompt of its own that ends only by length.
fn request(id: &str, num_prompt_tokens: u32) -> EngineCoreRequest {
    let own = id
        .bytes()
        .fold(0u32, |own, byte| own.wrapping_mul(31) + u32::from(byte))
        % 1_000_003;
    let own = own * 1000;
    EngineCoreRequest {
        request_id: id.to_owned(),
        prompt_token_ids: (own..own + num_prompt_tokens).collect(),
        sampling_params: SamplingParams {
            max_tokens: None,
            ..SamplingParams::default()
        },
        ..EngineCoreRequest::default()
    }
}

fn add(scheduler: &mut Scheduler, request: EngineCoreRequest) {
    let hasher = scheduler.block_hasher();
    scheduler.add_request(Request::from_engine_core_request(request, &hasher));
}

/// Ids and tokens of a step, in schedule order: `"a:100 b:50"`.
fn trace(output: &SchedulerOutput) -> String {
    let parts: Vec<String> = output
        .num_scheduled_tokens
        .iter()
        .map(|(id, tokens)| format!("{id}:{tokens}"))
        .collect();
    parts.join(" ")
}

/// What a runner that samples `token_id` for every request would answer.
fn sampling(scheduler: &Scheduler, output: &SchedulerOutput, token_id: u32) -> ModelRunnerOutput {
    let sampled = output.num_scheduled_tokens.iter().map(|(id, _)| {
        let is_done = scheduler
            .running()
            .find(|(request, _)| request.request_id() == id)
            .is_some_and(|(request, _)| request.num_computed_tokens() == request.num_tokens());
        if is_done { vec![token_id] } else { vec![] }
    });
    ModelRunnerOutput {
        sampled_token_ids: sampled.collect(),
        ..ModelRunnerOutput::default()
    }
}

/// One step in which every request samples token 7; returns its trace.
fn step(scheduler: &mut Scheduler) -> String {
    let output = scheduler.schedule();
    let sampled = sampling(scheduler, &output, 7);
    scheduler.update_from_output(&output, sampled);
    trace(&output)
}

/// One step in which every request samples `token_id`; returns what the clients get.
fn step_outputs(scheduler: &mut Scheduler, token_id: u32) -> BTreeMap<u32, EngineCoreOutputs> {
    let output = scheduler.schedule();
    let sampled = sampling(scheduler, &output, token_id);
    scheduler.update_from_output(&output, sampled)
}

/// The outputs of all clients.
fn flat(outputs: BTreeMap<u32, EngineCoreOutputs>) -> Vec<EngineCoreOutput> {
    outputs
        .into_values()
        .flat_map(|outputs| outputs.outputs)
        .collect()
}

fn ids<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<&'a str> {
    requests.map(|request| &**request.request_id()).collect()
}

fn running_ids(scheduler: &Scheduler) -> Vec<&str> {
    ids(scheduler.running().map(|(request, _)| request))
}

fn waiting_ids(scheduler: &Scheduler) -> Vec<&str> {
    ids(scheduler.waiting())
}

fn strings(ids: &[crate::request_id::RequestId]) -> Vec<&str> {
    ids.iter().map(|id| &**id).collect()
}

/// Every block is free and no request is left.
fn assert_idle(scheduler: &Scheduler) {
    let pool = scheduler.kv_cache_manager().block_pool();
    assert_eq!(pool.num_free_blocks(), pool.num_blocks() - 1);
    assert_eq!(scheduler.num_unfinished_requests(), 0);
    assert!(scheduler.in_flight.is_empty());
    assert_eq!(pool.usage(), 0.0);
}
