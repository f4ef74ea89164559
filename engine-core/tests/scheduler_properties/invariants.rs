//! What must hold after every step.

use std::collections::{BTreeMap, BTreeSet};

use engine_core::core::sched::{Scheduler, SchedulerOutput};
use protocol::SchedulingPolicy;

use crate::cases::Case;

/// Right after `schedule`.
pub(crate) fn check_schedule(case: &Case, scheduler: &Scheduler, output: &SchedulerOutput) {
    let total: usize = output
        .num_scheduled_tokens
        .iter()
        .map(|(_, num_tokens)| num_tokens)
        .sum();
    assert_eq!(total, output.total_num_scheduled_tokens);
    assert!(total <= case.config.max_num_batched_tokens as usize);
    assert!(
        output
            .num_scheduled_tokens
            .iter()
            .all(|(_, num_tokens)| num_tokens > 0)
    );
    assert!(scheduler.running().len() <= case.config.max_num_seqs as usize);

    let cached = &output.scheduled_cached_reqs;
    let num_scheduled = output.scheduled_new_reqs.len() + cached.req_ids.len();
    assert_eq!(num_scheduled, output.num_scheduled_tokens.len());
    assert!(num_scheduled <= scheduler.running().len());
    for len in [
        cached.new_block_ids.len(),
        cached.num_computed_tokens.len(),
        cached.num_output_tokens.len(),
    ] {
        assert_eq!(len, cached.req_ids.len());
    }
    assert_eq!(cached.all_token_ids.len(), cached.resumed_req_ids.len());
    assert!(cached.req_ids.ends_with(&cached.resumed_req_ids));
    if !output.preempted_req_ids.is_empty() {
        assert!(output.scheduled_new_reqs.is_empty());
        assert!(cached.resumed_req_ids.is_empty());
    }
    let scheduled: BTreeSet<_> = output
        .num_scheduled_tokens
        .iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(
        scheduled.len(),
        num_scheduled,
        "a request is scheduled once"
    );
    assert!(
        output
            .preempted_req_ids
            .iter()
            .all(|id| !scheduled.contains(id))
    );

    // A prompt is whole where it may not be cut.
    if !case.config.enable_chunked_prefill {
        let running = scheduler.running().map(|(request, _)| request);
        for request in running.filter(|request| scheduled.contains(request.request_id())) {
            assert_eq!(request.num_computed_tokens(), request.num_tokens());
        }
    }
    check_pool(case, scheduler);
}

/// Blocks and tables agree, at any time.
pub(crate) fn check_pool(case: &Case, scheduler: &Scheduler) {
    let pool = scheduler.kv_cache_manager().block_pool();
    let mut holders: BTreeMap<u32, u32> = BTreeMap::new();
    for (request, block_ids) in scheduler.running() {
        let num_blocks = request
            .num_computed_tokens()
            .div_ceil(case.block_size as usize);
        assert_eq!(
            block_ids.len(),
            num_blocks,
            "the table covers the computed tokens"
        );
        assert!(request.num_computed_tokens() <= request.num_tokens());
        assert!(request.num_tokens() < case.max_model_len as usize);
        for &block_id in block_ids {
            *holders.entry(block_id).or_default() += 1;
        }
    }
    assert!(!holders.contains_key(&0), "the null block is in no table");
    for block_id in 0..pool.num_blocks() as u32 {
        let num_holders = holders.get(&block_id).copied().unwrap_or_default();
        assert_eq!(pool.ref_cnt(block_id), num_holders, "block {block_id}");
    }
    let free: Vec<u32> = pool.free_block_ids().collect();
    assert_eq!(free.len(), pool.num_free_blocks());
    assert_eq!(free.len() + holders.len() + 1, pool.num_blocks());
    let all: BTreeSet<u32> = free.iter().chain(holders.keys()).copied().collect();
    assert_eq!(all.len() + 1, pool.num_blocks(), "a block is free or held");

    let running = scheduler.running().map(|(request, _)| request.request_id());
    let waiting = scheduler.waiting().map(|request| request.request_id());
    let places: Vec<_> = running.chain(waiting).collect();
    let distinct: BTreeSet<_> = places.iter().collect();
    assert_eq!(distinct.len(), places.len(), "a request is in one place");
    assert_eq!(scheduler.num_unfinished_requests(), places.len());
    if case.config.policy == SchedulingPolicy::Priority {
        let keys = scheduler.waiting().map(|request| {
            let owner = request.owner();
            (owner, request.priority(), request.arrival_time())
        });
        assert!(keys.is_sorted(), "each owner's requests are in its order");
    }
    for request in scheduler.waiting() {
        assert_eq!(request.num_computed_tokens(), 0);
    }
}
