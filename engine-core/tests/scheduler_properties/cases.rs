//! Random limits, requests and actions, and what a request must bring.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use protocol::{
    EngineCoreRequest, FinishReason, SamplingParams, SchedulerConfig, SchedulingPolicy,
};

/// Sampled tokens are below this.
const VOCAB_SIZE: u32 = 12;
const EOS_TOKEN_ID: u32 = 0;

/// The limits of one world.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) config: SchedulerConfig,
    pub(crate) num_blocks: u32,
    pub(crate) block_size: u32,
    pub(crate) enable_prefix_caching: bool,
    pub(crate) max_model_len: u32,
    /// Clients that take turns.
    num_owners: u64,
}

/// Limits that a scheduler accepts, most of them tight.
pub(crate) fn case() -> impl Strategy<Value = Case> {
    let sizes = (1u32..6, 4u32..40, 0u32..6, prop::bool::weighted(0.7));
    let limits = (1u32..6, 0u32..12, 0u32..3, any::<bool>());
    let admission = (
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(0.0), 0.0..0.6],
        1u64..4,
    );
    (sizes, limits, admission).prop_map(|(sizes, limits, admission)| {
        let (block_size, max_model_len, extra_blocks, enable_prefix_caching) = sizes;
        let (max_num_seqs, extra_tokens, threshold, enable_chunked_prefill) = limits;
        let (fcfs, scheduler_reserve_full_isl, watermark, num_owners) = admission;
        let least_tokens = match enable_chunked_prefill {
            true => max_num_seqs,
            false => max_num_seqs.max(max_model_len),
        };
        Case {
            config: SchedulerConfig {
                max_num_batched_tokens: least_tokens + extra_tokens,
                max_num_seqs,
                long_prefill_token_threshold: if enable_chunked_prefill { threshold } else { 0 },
                enable_chunked_prefill,
                policy: match fcfs {
                    true => SchedulingPolicy::Fcfs,
                    false => SchedulingPolicy::Priority,
                },
                watermark,
                scheduler_reserve_full_isl,
                max_num_queued_reqs: None,
                max_num_queued_tokens: None,
            },
            num_blocks: 1 + max_model_len.div_ceil(block_size) + extra_blocks,
            block_size,
            enable_prefix_caching,
            max_model_len,
            num_owners,
        }
    })
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct RequestSpec {
    prompt_token_ids: Vec<u32>,
    num_replayed: usize,
    max_tokens: Option<u32>,
    min_tokens: u32,
    ignore_eos: bool,
    seed: u64,
    cache_salt: Option<String>,
    priority: i64,
    arrival_time: f64,
    skip_reading_prefix_cache: bool,
    owner: u64,
}

/// A request that `case` can serve. Prompts come from few, so that prefixes are shared.
pub(crate) fn request_spec(case: &Case) -> impl Strategy<Value = RequestSpec> + use<> {
    let fcfs = case.config.policy == SchedulingPolicy::Fcfs;
    let prompt = (1..case.max_model_len, 0u32..3, 0u32..30);
    let ends = (
        prop::option::of(1u32..20),
        0u32..6,
        any::<bool>(),
        0usize..4,
        0u64..3,
    );
    let rest = (
        0u8..6,
        -1i64..2,
        0u8..3,
        prop::bool::weighted(0.1),
        0..case.num_owners,
    );
    (prompt, ends, rest).prop_map(move |(prompt, ends, rest)| {
        let (len, kind, branch_at) = prompt;
        let (max_tokens, min_tokens, ignore_eos, num_replayed, seed) = ends;
        let (salt, priority, arrival, skip_reading_prefix_cache, owner) = rest;
        let token = |at| {
            if at < branch_at {
                100 + at
            } else {
                100 + at + 1000 * kind
            }
        };
        RequestSpec {
            prompt_token_ids: (0..len).map(token).collect(),
            num_replayed: if num_replayed == 3 { 2 } else { 0 },
            max_tokens,
            min_tokens: max_tokens.map_or(min_tokens, |max| min_tokens.min(max)),
            ignore_eos,
            seed,
            cache_salt: (salt < 2).then(|| salt.to_string()),
            priority: if fcfs { 0 } else { priority },
            arrival_time: f64::from(arrival),
            skip_reading_prefix_cache,
            owner,
        }
    })
}

impl RequestSpec {
    /// Id of the request that was added as number `index`.
    pub(crate) fn request_id(index: usize) -> String {
        format!("r{index}")
    }

    /// The request as number `index` of its world.
    pub(crate) fn message(&self, index: usize) -> EngineCoreRequest {
        EngineCoreRequest {
            request_id: Self::request_id(index),
            prompt_token_ids: self.prompt_token_ids.clone().into(),
            output_token_ids: self.replayed(),
            sampling_params: SamplingParams {
                max_tokens: self.max_tokens,
                min_tokens: self.min_tokens,
                eos_token_id: (!self.ignore_eos).then_some(EOS_TOKEN_ID),
                ignore_eos: self.ignore_eos,
                seed: Some(self.seed),
                skip_reading_prefix_cache: self.skip_reading_prefix_cache,
                ..SamplingParams::default()
            },
            arrival_time: self.arrival_time,
            cache_salt: self.cache_salt.clone(),
            client_index: index as u32 % 3,
            priority: self.priority,
            owner: self.owner,
            ..EngineCoreRequest::default()
        }
    }

    /// Output that the request comes with: the first tokens that it would sample.
    fn replayed(&self) -> Vec<u32> {
        let mut token_ids = self.prompt_token_ids.clone();
        for _ in 0..self.num_replayed {
            token_ids.push(sample(&token_ids, self.seed));
        }
        token_ids.split_off(self.prompt_token_ids.len())
    }

    /// What the request must emit, and how it must end.
    pub(crate) fn expected(&self, case: &Case) -> (Vec<u32>, FinishReason) {
        let mut output = self.replayed();
        let num_replayed = output.len();
        loop {
            let num_tokens = self.prompt_token_ids.len() + output.len();
            let may_stop = !self.ignore_eos && output.len() >= self.min_tokens as usize;
            if may_stop && output.last() == Some(&EOS_TOKEN_ID) {
                return (output.split_off(num_replayed), FinishReason::Stop);
            }
            let max_tokens = self.max_tokens.unwrap_or(u32::MAX) as usize;
            if num_tokens >= case.max_model_len as usize || output.len() >= max_tokens {
                return (output.split_off(num_replayed), FinishReason::Length);
            }
            let token_ids = [self.prompt_token_ids.as_slice(), &output].concat();
            output.push(sample(&token_ids, self.seed));
        }
    }
}

/// The next token after `token_ids`.
pub(crate) fn sample(token_ids: &[u32], seed: u64) -> u32 {
    let mut hasher = DefaultHasher::new();
    (token_ids, seed).hash(&mut hasher);
    (hasher.finish() % u64::from(VOCAB_SIZE)) as u32
}

/// What is done to a world.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Add(RequestSpec),
    Abort(prop::sample::Index),
    Step,
    /// A step in which the runner fails on one request.
    FailingStep(prop::sample::Index),
    /// A step in which one request is aborted before its output comes.
    AbortedStep(prop::sample::Index),
    ResetPrefixCache,
}

/// A sequence of actions.
pub(crate) fn actions(case: &Case) -> impl Strategy<Value = Vec<Action>> + use<> {
    let action = prop_oneof![
        4 => request_spec(case).prop_map(Action::Add),
        1 => any::<prop::sample::Index>().prop_map(Action::Abort),
        8 => Just(Action::Step),
        1 => any::<prop::sample::Index>().prop_map(Action::FailingStep),
        1 => any::<prop::sample::Index>().prop_map(Action::AbortedStep),
        1 => Just(Action::ResetPrefixCache),
    ];
    prop::collection::vec(action, 1..80)
}
