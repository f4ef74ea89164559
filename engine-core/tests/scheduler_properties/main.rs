//! The scheduler under random requests, aborts and limits.
//!
//! A simulated runner keeps its own state from `SchedulerOutput`s alone, and a KV memory in which
//! each slot holds a digest of the tokens up to it: a wrong block table, a block used twice or a
//! stale cached prefix shows as a wrong digest. What it samples depends on the tokens and the
//! request alone, so the outputs can be told in advance.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod invariants;
mod kv_events;
mod prefix_cache;
mod runner;

use std::collections::BTreeMap;

use engine_core::core::KVCacheConfig;
use engine_core::core::request::Request;
use engine_core::core::sched::{EngineClock, Scheduler};
use proptest::prelude::*;
use protocol::{EngineCoreOutput, FinishReason};

use crate::cases::{Action, Case, RequestSpec, actions, case, request_spec};
use crate::invariants::{check_pool, check_schedule};
use crate::kv_events::Subscriber;
use crate::runner::SimulatedRunner;

/// What one request has brought so far.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    token_ids: Vec<u32>,
    finish_reason: Option<FinishReason>,
    num_prefill_stats: usize,
}

/// A scheduler, its runner, and what the clients saw.
struct World {
    scheduler: Scheduler,
    runner: SimulatedRunner,
    subscriber: Subscriber,
    specs: Vec<RequestSpec>,
    seen: BTreeMap<String, Seen>,
}

impl World {
    fn new(case: &Case) -> Self {
        let kv_cache_config = KVCacheConfig {
            num_blocks: case.num_blocks,
            block_size: case.block_size,
            enable_prefix_caching: case.enable_prefix_caching,
        };
        let clock = EngineClock::from_fn(|| 0.0);
        let scheduler = Scheduler::new(
            case.config.clone(),
            kv_cache_config,
            case.max_model_len,
            clock,
        );
        Self {
            scheduler: scheduler.unwrap().with_kv_cache_events(),
            runner: SimulatedRunner::new(case),
            subscriber: Subscriber::default(),
            specs: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn add(&mut self, spec: &RequestSpec) {
        let message = spec.message(self.specs.len());
        self.specs.push(spec.clone());
        self.seen
            .insert(message.request_id.clone(), Seen::default());
        let hasher = self.scheduler.block_hasher();
        self.scheduler
            .add_request(Request::from_engine_core_request(message, &hasher));
    }

    /// Aborts one of the requests added so far, whatever became of it.
    fn abort(&mut self, index: prop::sample::Index) {
        if self.specs.is_empty() {
            return;
        }
        let request_id = RequestSpec::request_id(index.index(self.specs.len()));
        for ended in self
            .scheduler
            .finish_requests([request_id], FinishReason::Abort)
        {
            self.note(ended.output);
        }
    }

    /// One step. `failing` is a scheduled request on which the runner fails, `aborted` one that
    /// is aborted before its output comes.
    fn step(
        &mut self,
        case: &Case,
        failing: Option<prop::sample::Index>,
        aborted: Option<prop::sample::Index>,
    ) {
        let output = self.scheduler.schedule();
        check_schedule(case, &self.scheduler, &output);
        let answer = self.runner.execute(&self.scheduler, &output, failing);
        if let Some(index) = aborted {
            self.abort(index);
        }
        let outputs = self.scheduler.update_from_output(&output, answer);
        check_pool(case, &self.scheduler);
        self.runner.check_memory(&self.scheduler);
        for outputs in outputs.into_values() {
            let hasher = self.scheduler.block_hasher();
            self.subscriber.hear(&hasher, outputs.kv_cache_events);
            outputs
                .outputs
                .into_iter()
                .for_each(|output| self.note(output));
        }
        self.subscriber.check(&self.scheduler);
    }

    fn note(&mut self, output: EngineCoreOutput) {
        let seen = self.seen.get_mut(&output.request_id).unwrap();
        assert_eq!(
            seen.finish_reason, None,
            "{} spoke after its end",
            output.request_id
        );
        seen.token_ids.extend(output.new_token_ids);
        seen.finish_reason = output.finish_reason;
        seen.num_prefill_stats += usize::from(output.prefill_stats.is_some());
    }

    /// Steps until nothing is left to do, then checks that nothing was left behind.
    fn drain(&mut self, case: &Case) {
        // Each step computes at least one token of some request, or preempts; a request is
        // computed again after a preemption, which only an older or better one causes.
        let mut steps_left = 5_000;
        while self.scheduler.has_requests() {
            self.step(case, None, None);
            steps_left -= 1;
            assert!(steps_left > 0, "requests starve");
        }
        assert_eq!(self.runner.num_requests(), 0);
        let pool = self.scheduler.kv_cache_manager().block_pool();
        assert_eq!(pool.num_free_blocks(), pool.num_blocks() - 1);
        assert!(self.scheduler.reset_prefix_cache());
        let hasher = self.scheduler.block_hasher();
        for outputs in self.scheduler.take_pending_outputs().into_values() {
            self.subscriber.hear(&hasher, outputs.kv_cache_events);
        }
        self.subscriber.check(&self.scheduler);
    }

    /// Every request brought what the tokens alone say it should.
    fn check_outputs(&self, case: &Case) {
        for (index, spec) in self.specs.iter().enumerate() {
            let seen = &self.seen[&RequestSpec::request_id(index)];
            let (token_ids, finish_reason) = spec.expected(case);
            match seen.finish_reason {
                // Cut short from outside.
                Some(FinishReason::Abort | FinishReason::Error) => {
                    assert!(token_ids.starts_with(&seen.token_ids));
                }
                _ => {
                    assert_eq!(seen.token_ids, token_ids);
                    assert_eq!(seen.finish_reason, Some(finish_reason));
                }
            }
            assert_eq!(
                seen.num_prefill_stats,
                usize::from(!seen.token_ids.is_empty())
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    /// Invariants hold after every step, and every request ends as its tokens say.
    #[test]
    fn random_sequences_hold_the_invariants((case, actions) in case().prop_flat_map(|case| {
        let actions = actions(&case);
        (Just(case), actions)
    })) {
        let mut world = World::new(&case);
        for action in actions {
            match action {
                Action::Add(spec) => world.add(&spec),
                Action::Abort(index) => world.abort(index),
                Action::Step => world.step(&case, None, None),
                Action::FailingStep(index) => world.step(&case, Some(index), None),
                Action::AbortedStep(index) => world.step(&case, None, Some(index)),
                Action::ResetPrefixCache => {
                    let idle = world.scheduler.running().len() == 0;
                    prop_assert_eq!(world.scheduler.reset_prefix_cache(), idle);
                }
            }
        }
        world.drain(&case);
        world.check_outputs(&case);
    }

    /// Without aborts and failures every request ends as its tokens say: whatever the limits,
    /// the outputs are the same.
    #[test]
    fn undisturbed_requests_all_end((case, specs) in case().prop_flat_map(|case| {
        let specs = prop::collection::vec(request_spec(&case), 1..12);
        (Just(case), specs)
    })) {
        let mut world = World::new(&case);
        specs.iter().for_each(|spec| world.add(spec));
        world.drain(&case);
        world.check_outputs(&case);
        prop_assert!(world.seen.values().all(|seen| matches!(
            seen.finish_reason,
            Some(FinishReason::Stop | FinishReason::Length)
        )));
    }
}
