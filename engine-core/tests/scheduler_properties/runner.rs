//! A model runner without a model.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use engine_core::core::BlockHash;
use engine_core::core::sched::{ModelRunnerOutput, NewRequestData, Scheduler, SchedulerOutput};
use engine_core::request_id::RequestId;

use crate::cases::{Case, sample};

/// What a runner keeps of a request between steps.
struct RunnerRequest {
    token_ids: Vec<u32>,
    num_prompt_tokens: usize,
    num_computed_tokens: usize,
    block_ids: Vec<u32>,
    seed: u64,
}

/// Keeps requests from `SchedulerOutput`s alone, and a digest per KV slot.
pub(crate) struct SimulatedRunner {
    block_size: usize,
    /// `[num_blocks * block_size]`: digest of the tokens up to and including the slot's own.
    memory: Vec<Option<u64>>,
    requests: BTreeMap<RequestId, RunnerRequest>,
    /// What the last slot of a block with this name must hold.
    named: BTreeMap<BlockHash, u64>,
}

impl SimulatedRunner {
    pub(crate) fn new(case: &Case) -> Self {
        Self {
            block_size: case.block_size as usize,
            memory: vec![None; (case.num_blocks * case.block_size) as usize],
            requests: BTreeMap::new(),
            named: BTreeMap::new(),
        }
    }

    pub(crate) fn num_requests(&self) -> usize {
        self.requests.len()
    }

    /// One forward pass: all writes, then all reads, then sampling.
    pub(crate) fn execute(
        &mut self,
        scheduler: &Scheduler,
        output: &SchedulerOutput,
        failing: Option<proptest::sample::Index>,
    ) -> ModelRunnerOutput {
        self.apply(output);
        self.learn_names(scheduler);
        let failing = failing
            .filter(|_| !output.num_scheduled_tokens.is_empty())
            .map(|index| index.index(output.num_scheduled_tokens.len()));
        let mut written = BTreeSet::new();
        for (index, (request_id, num_tokens)) in output.num_scheduled_tokens.iter().enumerate() {
            let cache_salt = salt(scheduler, request_id);
            let request = self.requests.get_mut(request_id).unwrap();
            let start = request.num_computed_tokens;
            request.num_computed_tokens += num_tokens;
            for position in start..start + num_tokens {
                let block_id = request.block_ids[position / self.block_size];
                let slot = block_id as usize * self.block_size + position % self.block_size;
                assert!(
                    written.insert(slot),
                    "slot {slot} is written twice in a step"
                );
                // A failed request leaves rubbish, but not in what others read in this step.
                let pool = scheduler.kv_cache_manager().block_pool();
                let is_rubbish = failing == Some(index) && pool.ref_cnt(block_id) == 1;
                let right = digest(&request.token_ids[..=position], &cache_salt);
                self.memory[slot] = (!is_rubbish).then_some(right);
            }
        }
        let mut answer = ModelRunnerOutput::default();
        for (index, (request_id, _)) in output.num_scheduled_tokens.iter().enumerate() {
            let is_failing = failing == Some(index);
            if !is_failing {
                self.check_request(scheduler, request_id);
            }
            let request = self.requests.get_mut(request_id).unwrap();
            let mut sampled = Vec::new();
            if request.num_computed_tokens == request.token_ids.len() && !is_failing {
                sampled.push(sample(&request.token_ids, request.seed));
                request.token_ids.extend(&sampled);
            }
            answer.sampled_token_ids.push(sampled);
            answer
                .errors
                .push(is_failing.then(|| "it failed".to_owned()));
        }
        answer
    }

    fn learn_names(&mut self, scheduler: &Scheduler) {
        for (request, _) in scheduler.running() {
            let cache_salt = request.cache_salt().map(str::to_owned);
            let prefixes = request.block_hashes().iter().zip(1..);
            self.named.extend(prefixes.map(|(&block_hash, num_blocks)| {
                let token_ids = &request.all_token_ids()[..num_blocks * self.block_size];
                (block_hash, digest(token_ids, &cache_salt))
            }));
        }
    }

    /// Everything that running requests may still read is as it should be, and so is every block
    /// that a request may find by its name.
    pub(crate) fn check_memory(&self, scheduler: &Scheduler) {
        let pool = scheduler.kv_cache_manager().block_pool();
        for block_id in 0..pool.num_blocks() {
            if let Some(block_hash) = pool.block_hash(block_id as u32) {
                let last_slot = (block_id + 1) * self.block_size - 1;
                assert_eq!(self.memory[last_slot], Some(self.named[&block_hash]));
            }
        }
        for (request, _) in scheduler.running() {
            self.check_request(scheduler, request.request_id());
        }
    }

    fn check_request(&self, scheduler: &Scheduler, request_id: &RequestId) {
        let cache_salt = salt(scheduler, request_id);
        let request = &self.requests[request_id];
        for position in 0..request.num_computed_tokens {
            let block_id = request.block_ids[position / self.block_size] as usize;
            let slot = block_id * self.block_size + position % self.block_size;
            let right = digest(&request.token_ids[..=position], &cache_salt);
            assert_eq!(self.memory[slot], Some(right), "{request_id} at {position}");
        }
    }

    /// Brings the requests up to date.
    fn apply(&mut self, output: &SchedulerOutput) {
        for request_id in &output.finished_req_ids {
            self.requests.remove(request_id);
        }
        for request_id in &output.preempted_req_ids {
            let request = self.requests.get_mut(request_id).unwrap();
            request.block_ids.clear();
            request.num_computed_tokens = 0;
        }
        for new in &output.scheduled_new_reqs {
            let before = self
                .requests
                .insert(new.req_id.clone(), runner_request(new));
            assert!(before.is_none(), "{} is not new", new.req_id);
        }
        let cached = &output.scheduled_cached_reqs;
        for (index, request_id) in cached.req_ids.iter().enumerate() {
            let request = self.requests.get_mut(request_id).unwrap();
            let num_computed_tokens = cached.num_computed_tokens[index] as usize;
            let resumed = cached
                .resumed_req_ids
                .iter()
                .position(|other| other == request_id);
            if let Some(resumed) = resumed {
                assert_eq!(request.token_ids, cached.all_token_ids[resumed]);
                assert!(
                    request.block_ids.is_empty(),
                    "{request_id} was not preempted"
                );
                request.num_computed_tokens = num_computed_tokens;
            }
            assert_eq!(request.num_computed_tokens, num_computed_tokens);
            let num_output_tokens = request.token_ids.len() - request.num_prompt_tokens;
            assert_eq!(num_output_tokens, cached.num_output_tokens[index] as usize);
            request.block_ids.extend(&cached.new_block_ids[index]);
        }
    }
}

fn runner_request(new: &NewRequestData) -> RunnerRequest {
    RunnerRequest {
        token_ids: [&new.prompt_token_ids[..], &new.output_token_ids].concat(),
        num_prompt_tokens: new.prompt_token_ids.len(),
        num_computed_tokens: new.num_computed_tokens as usize,
        block_ids: new.block_ids.clone(),
        seed: new.sampling_params.seed.unwrap(),
    }
}

/// The salt of a request, which no runner needs: here it makes a block shared across salts show.
fn salt(scheduler: &Scheduler, request_id: &RequestId) -> Option<String> {
    let mut running = scheduler.running().map(|(request, _)| request);
    let request = running
        .find(|request| request.request_id() == request_id)
        .unwrap();
    request.cache_salt().map(str::to_owned)
}

fn digest(token_ids: &[u32], cache_salt: &Option<String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (token_ids, cache_salt).hash(&mut hasher);
    hasher.finish()
}
