//! What is found in the prefix cache, against a plain set of prefixes.

use std::collections::BTreeSet;

use engine_core::core::KVCacheConfig;
use engine_core::core::request::Request;
use engine_core::core::sched::{EngineClock, ModelRunnerOutput, Scheduler, SchedulerOutput};
use proptest::prelude::*;
use protocol::{EngineCoreRequest, SamplingParams, SchedulerConfig};

const BLOCK_SIZE: usize = 4;

/// Every cached prefix, whole: its salt and its tokens.
#[derive(Default)]
struct PrefixModel(BTreeSet<(Option<String>, Vec<u32>)>);

impl PrefixModel {
    /// Notes all prefixes of full blocks within the computed tokens.
    fn compute(&mut self, salt: &Option<String>, computed_token_ids: &[u32]) {
        for end in (BLOCK_SIZE..=computed_token_ids.len()).step_by(BLOCK_SIZE) {
            self.0
                .insert((salt.clone(), computed_token_ids[..end].to_vec()));
        }
    }

    /// Tokens found for a request with these tokens.
    fn hit(&self, salt: &Option<String>, token_ids: &[u32]) -> usize {
        let mut hit = 0;
        while hit + BLOCK_SIZE < token_ids.len()
            && self
                .0
                .contains(&(salt.clone(), token_ids[..hit + BLOCK_SIZE].to_vec()))
        {
            hit += BLOCK_SIZE;
        }
        hit
    }
}

fn message(index: usize, kind: &(u32, u32, u32, Option<u8>)) -> EngineCoreRequest {
    let (len, own, branch_at, salt) = *kind;
    EngineCoreRequest {
        request_id: index.to_string(),
        prompt_token_ids: (0..len)
            .map(|at| if at < branch_at { at } else { at + own })
            .collect(),
        cache_salt: salt.map(|salt| salt.to_string()),
        sampling_params: SamplingParams {
            max_tokens: Some(1 + own % 7),
            ..SamplingParams::default()
        },
        ..EngineCoreRequest::default()
    }
}

/// Samples 1 for every request whose tokens are all computed, and notes what was computed.
fn execute(
    scheduler: &Scheduler,
    output: &SchedulerOutput,
    messages: &[EngineCoreRequest],
    model: &mut PrefixModel,
) -> ModelRunnerOutput {
    let mut answer = ModelRunnerOutput::default();
    for (request_id, num_tokens) in output.num_scheduled_tokens.iter() {
        let mut running = scheduler.running().map(|(request, _)| request);
        let request = running
            .find(|request| request.request_id() == request_id)
            .unwrap();
        let salt = &messages[request_id.parse::<usize>().unwrap()].cache_salt;
        let new = output
            .scheduled_new_reqs
            .iter()
            .find(|new| new.req_id == *request_id);
        if let Some(new) = new {
            // In schedule order: the model knows all that was scheduled before this request.
            let hit = model.hit(salt, request.all_token_ids());
            assert_eq!(
                new.num_computed_tokens as usize, hit,
                "request {request_id}"
            );
            assert_eq!(request.num_computed_tokens(), hit + num_tokens);
        }
        model.compute(
            salt,
            &request.all_token_ids()[..request.num_computed_tokens()],
        );
        let is_done = request.num_computed_tokens() == request.num_tokens();
        answer
            .sampled_token_ids
            .push(if is_done { vec![1] } else { vec![] });
    }
    answer
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// In a pool where nothing is evicted, hits are what a set of prefixes predicts.
    #[test]
    fn hits_are_what_a_set_of_prefixes_predicts(
        kinds in prop::collection::vec((1u32..30, 0u32..9, 0u32..30, prop::option::weighted(0.3, 0u8..2)), 1..20),
        max_num_batched_tokens in 4u32..60,
        steps_between in 0usize..3,
    ) {
        let config = SchedulerConfig {
            max_num_batched_tokens,
            max_num_seqs: 4,
            ..SchedulerConfig::default()
        };
        let kv_cache_config = KVCacheConfig {
            num_blocks: 2000,
            block_size: BLOCK_SIZE as u32,
            enable_prefix_caching: true,
        };
        let clock = EngineClock::from_fn(|| 0.0);
        let mut scheduler = Scheduler::new(config, kv_cache_config, 64, clock).unwrap();
        let mut model = PrefixModel::default();
        let messages: Vec<_> =
            kinds.iter().enumerate().map(|(index, kind)| message(index, kind)).collect();
        let mut step = |scheduler: &mut Scheduler| {
            let output = scheduler.schedule();
            let answer = execute(scheduler, &output, &messages, &mut model);
            scheduler.update_from_output(&output, answer);
        };
        for message in &messages {
            let hasher = scheduler.block_hasher();
            scheduler.add_request(Request::from_engine_core_request(message.clone(), &hasher));
            (0..steps_between).for_each(|_| step(&mut scheduler));
        }
        while scheduler.has_requests() {
            step(&mut scheduler);
        }
    }
}
