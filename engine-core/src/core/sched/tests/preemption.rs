//! Who loses its blocks, and how it comes back.

use protocol::FinishReason;

use super::*;

#[test]
fn fcfs_preempts_the_last_admitted() {
    let mut scheduler = scheduler(config(100, 4), 6);
    add(&mut scheduler, request("a", 7));
    add(&mut scheduler, request("b", 7));
    add(&mut scheduler, request("c", 7));
    add(&mut scheduler, request("d", 7));
    assert_eq!(step(&mut scheduler), "a:7 b:7 c:7");
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:1");
    // All 6 blocks are full. a and b need one each; c's two are enough for both.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:1 b:1");
    assert_eq!(strings(&output.preempted_req_ids), ["c"]);
    assert_eq!(waiting_ids(&scheduler), ["c", "d"]);
    let preempted = scheduler.waiting().next().unwrap();
    assert_eq!(preempted.num_computed_tokens(), 0);
    assert_eq!(preempted.num_output_tokens(), 2);
    assert_eq!(preempted.num_preemptions(), 1);
    let sampled = sampling(&scheduler, &output, 7);
    scheduler.update_from_output(&output, sampled);

    scheduler.finish_requests(["a"], FinishReason::Abort);
    let output = scheduler.schedule();
    // a's 3 blocks are free. Both of c's were overwritten, so all its tokens are computed again.
    assert_eq!(trace(&output), "b:1 c:9");
    let cached = &output.scheduled_cached_reqs;
    assert_eq!(strings(&cached.req_ids), ["b", "c"]);
    assert_eq!(strings(&cached.resumed_req_ids), ["c"]);
    let mut all_token_ids = request("c", 7).prompt_token_ids.to_vec();
    all_token_ids.extend([7, 7]);
    assert_eq!(cached.all_token_ids, [all_token_ids]);
    assert_eq!(cached.new_block_ids[1].len(), 3);
    assert_eq!(cached.num_computed_tokens, [9, 0]);
    assert_eq!(cached.num_output_tokens, [3, 2]);
    assert_eq!(output.scheduled_new_reqs.len(), 0);
}

#[test]
fn a_resumed_request_gets_back_what_the_cache_still_has() {
    let mut scheduler = scheduler(config(100, 4), 8);
    add(&mut scheduler, request("a", 12));
    add(&mut scheduler, request("b", 14));
    assert_eq!(step(&mut scheduler), "a:12 b:14");
    assert_eq!(step(&mut scheduler), "a:1 b:1");
    assert_eq!(step(&mut scheduler), "a:1 b:1");
    let output = scheduler.schedule();
    // b's 17th token has no block; its 4 full ones are free now, but named.
    assert_eq!(strings(&output.preempted_req_ids), ["b"]);
    assert_eq!(trace(&output), "a:1");
    let sampled = sampling(&scheduler, &output, 7);
    scheduler.update_from_output(&output, sampled);
    scheduler.finish_requests(["a"], FinishReason::Abort);
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "b:1");
    assert_eq!(output.scheduled_cached_reqs.num_computed_tokens, [16]);
    assert_eq!(output.scheduled_cached_reqs.num_output_tokens, [3]);
    let sampled = sampling(&scheduler, &output, 7);
    let outputs = scheduler.update_from_output(&output, sampled);
    // Only first admissions count.
    let stats = outputs[&0].scheduler_stats.as_ref().unwrap();
    assert_eq!(
        stats.prefix_cache_stats,
        protocol::PrefixCacheStats::default()
    );
}

#[test]
fn several_victims_come_back_in_their_old_order() {
    let mut scheduler = scheduler(config(100, 4), 7);
    add(&mut scheduler, request("a", 12));
    add(&mut scheduler, request("b", 3));
    add(&mut scheduler, request("c", 3));
    add(&mut scheduler, request("d", 3));
    assert_eq!(step(&mut scheduler), "a:12 b:3 c:3 d:3");
    // a takes the last block.
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:1 d:1");
    // b, c and d need a second one: d yields to b, and c to nobody but itself.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:1 b:1");
    assert_eq!(strings(&output.preempted_req_ids), ["d", "c"]);
    assert_eq!(waiting_ids(&scheduler), ["c", "d"]);
}

#[test]
fn a_request_that_is_its_own_victim_stops_the_turn() {
    let mut scheduler = scheduler(config(100, 4), 4);
    add(&mut scheduler, request("a", 5));
    add(&mut scheduler, request("b", 7));
    step(&mut scheduler);
    assert_eq!(step(&mut scheduler), "a:1 b:1");
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:1");
    assert_eq!(strings(&output.preempted_req_ids), ["b"]);
}

#[test]
fn nothing_is_admitted_in_a_step_that_preempted() {
    let mut scheduler = scheduler(config(100, 4), 4);
    add(&mut scheduler, request("a", 5));
    add(&mut scheduler, request("b", 7));
    step(&mut scheduler);
    step(&mut scheduler);
    add(&mut scheduler, request("c", 1));
    assert_eq!(step(&mut scheduler), "a:1");
    assert_eq!(waiting_ids(&scheduler), ["b", "c"]);
}

fn with_priority(id: &str, tokens: u32, priority: i64, arrival_time: f64) -> EngineCoreRequest {
    EngineCoreRequest {
        priority,
        arrival_time,
        ..request(id, tokens)
    }
}

#[test]
fn priority_preempts_the_largest_priority_then_the_latest() {
    let mut scheduler = scheduler(priority_config(100, 4), 8);
    add(&mut scheduler, with_priority("a", 7, 0, 1.0));
    add(&mut scheduler, with_priority("b", 7, 3, 1.0));
    add(&mut scheduler, with_priority("c", 7, 3, 2.0));
    add(&mut scheduler, with_priority("d", 7, 4, 0.0));
    assert_eq!(step(&mut scheduler), "a:7 b:7 c:7 d:7");
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:1 d:1");
    let output = scheduler.schedule();
    // d makes room for a and b, and c is its own victim.
    assert_eq!(trace(&output), "a:1 b:1");
    assert_eq!(strings(&output.preempted_req_ids), ["d", "c"]);
    assert_eq!(waiting_ids(&scheduler), ["c", "d"]);
}

#[test]
fn of_equal_victims_the_last_in_the_queues_order_goes() {
    let mut scheduler = scheduler(priority_config(100, 4), 6);
    add(&mut scheduler, with_priority("x", 7, 0, 0.0));
    step(&mut scheduler);
    add(&mut scheduler, with_priority("n", 5, 1, 1.0));
    add(&mut scheduler, with_priority("m", 5, 1, 1.0));
    assert_eq!(step(&mut scheduler), "x:1 m:5 n:5");
    let output = scheduler.schedule();
    assert_eq!(strings(&output.preempted_req_ids), ["n"]);
    assert_eq!(trace(&output), "x:1 m:1");
}

#[test]
fn equal_requests_do_not_preempt_each_other_in_turn() {
    // Both together never fit to their ends, and each lost token is computed again.
    let piecewise = SchedulerConfig {
        scheduler_reserve_full_isl: false,
        long_prefill_token_threshold: 1,
        ..priority_config(4, 4)
    };
    let mut scheduler = scheduler(piecewise, 5);
    for id in ["a", "b"] {
        let mut equal = with_priority(id, 18, 1, 1.0);
        equal.sampling_params.skip_reading_prefix_cache = true;
        add(&mut scheduler, equal);
    }
    let mut num_steps = 0;
    while scheduler.has_requests() {
        step(&mut scheduler);
        num_steps += 1;
        assert!(num_steps < 100);
    }
    assert_idle(&scheduler);
}

#[test]
fn a_victim_gives_its_budget_back() {
    let threshold = SchedulerConfig {
        long_prefill_token_threshold: 8,
        ..priority_config(10, 4)
    };
    let mut scheduler = scheduler(threshold, 9);
    add(&mut scheduler, with_priority("low", 5, 9, 0.0));
    assert_eq!(step(&mut scheduler), "low:5");
    add(&mut scheduler, with_priority("high", 24, 0, 1.0));
    assert_eq!(step(&mut scheduler), "low:1 high:8");
    assert_eq!(step(&mut scheduler), "low:1 high:8");
    assert_eq!(step(&mut scheduler), "low:1 high:8");
    // high's 25th token needs the last free block, and low's 9th too: low was first, but yields.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "high:1");
    assert_eq!(strings(&output.preempted_req_ids), ["low"]);
    assert_eq!(output.total_num_scheduled_tokens, 1);
    assert_eq!(running_ids(&scheduler), ["high"]);
}

#[test]
fn blocks_of_a_victim_are_not_named_before_they_are_computed() {
    let threshold = SchedulerConfig {
        long_prefill_token_threshold: 8,
        ..priority_config(16, 4)
    };
    let mut scheduler = scheduler(threshold, 10);
    add(&mut scheduler, with_priority("low", 32, 9, 0.0));
    assert_eq!(step(&mut scheduler), "low:16");
    add(&mut scheduler, with_priority("high", 8, 0, 1.0));
    assert_eq!(step(&mut scheduler), "low:8 high:8");
    // low gets 8 more tokens and the last 2 blocks; then high needs a block and takes low's place.
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "high:1");
    let low = scheduler.waiting().next().unwrap();
    assert_eq!(
        scheduler
            .kv_cache_manager()
            .get_computed_blocks(low)
            .num_tokens,
        24
    );
}
