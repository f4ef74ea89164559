//! How the tokens of a step are shared out.

use super::*;
use crate::core::sched::PauseState;

#[test]
fn waiting_requests_fill_the_budget_in_order() {
    let mut scheduler = scheduler(config(100, 16), 100);
    for id in ["a", "b", "c", "d"] {
        add(&mut scheduler, request(id, 40));
    }
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:40 b:40 c:20");
    assert_eq!(output.total_num_scheduled_tokens, 100);
    assert_eq!(output.num_scheduled_tokens.get("c"), Some(20));
    assert_eq!(output.num_scheduled_tokens.get("d"), None);
    let new: Vec<_> = output
        .scheduled_new_reqs
        .iter()
        .map(|new| &*new.req_id)
        .collect();
    assert_eq!(new, ["a", "b", "c"]);
    assert_eq!(output.scheduled_new_reqs[2].block_ids.len(), 5);
    assert_eq!(output.scheduled_cached_reqs, Default::default());
}

#[test]
fn running_requests_come_first() {
    let mut scheduler = scheduler(config(100, 16), 100);
    for id in ["a", "b", "c", "d"] {
        add(&mut scheduler, request(id, 40));
    }
    assert_eq!(step(&mut scheduler), "a:40 b:40 c:20");
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:1 b:1 c:20 d:40");
    let cached = &output.scheduled_cached_reqs;
    assert_eq!(strings(&cached.req_ids), ["a", "b", "c"]);
    assert_eq!(cached.num_computed_tokens, [40, 40, 20]);
    assert_eq!(cached.num_output_tokens, [1, 1, 0]);
    // 40 tokens fill 10 blocks: the 41st needs one more; c grows from 5 blocks to 10.
    assert_eq!(
        cached
            .new_block_ids
            .iter()
            .map(Vec::len)
            .collect::<Vec<_>>(),
        [1, 1, 5]
    );
    assert!(cached.resumed_req_ids.is_empty());
}

#[test]
fn a_long_prompt_is_computed_in_chunks() {
    let mut scheduler = scheduler(config(10, 4), 100);
    add(&mut scheduler, request("a", 25));
    assert_eq!(step(&mut scheduler), "a:10");
    assert_eq!(step(&mut scheduler), "a:10");
    assert_eq!(step(&mut scheduler), "a:5");
    assert_eq!(step(&mut scheduler), "a:1");
}

#[test]
fn without_chunked_prefill_a_prompt_waits_for_room() {
    let whole = SchedulerConfig {
        enable_chunked_prefill: false,
        ..config(20, 8)
    };
    let mut scheduler = scheduler_with_len(whole, 100, 20);
    for (id, num_prompt_tokens) in [("a", 8), ("b", 8), ("c", 5), ("d", 1)] {
        add(&mut scheduler, request(id, num_prompt_tokens));
    }
    // 4 tokens are left: c doesn't fit, and d doesn't overtake it.
    assert_eq!(step(&mut scheduler), "a:8 b:8");
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:5 d:1");
}

#[test]
fn the_threshold_cuts_long_prefills_that_share_a_step() {
    let threshold = SchedulerConfig {
        long_prefill_token_threshold: 400,
        ..config(1024, 8)
    };
    let mut scheduler = scheduler(threshold, 1000);
    for id in ["a", "b", "c"] {
        add(&mut scheduler, request(id, 800));
    }
    assert_eq!(step(&mut scheduler), "a:400 b:400 c:224");
    assert_eq!(step(&mut scheduler), "a:400 b:400 c:224");
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:352");
}

#[test]
fn the_threshold_leaves_a_lone_prefill_whole() {
    let threshold = SchedulerConfig {
        long_prefill_token_threshold: 4,
        ..config(64, 8)
    };
    let mut scheduler = scheduler(threshold, 100);
    add(&mut scheduler, request("a", 50));
    assert_eq!(step(&mut scheduler), "a:50");
}

#[test]
fn the_threshold_is_never_below_the_fair_share() {
    let threshold = SchedulerConfig {
        long_prefill_token_threshold: 4,
        ..config(64, 8)
    };
    let mut scheduler = scheduler(threshold, 100);
    add(&mut scheduler, request("a", 50));
    add(&mut scheduler, request("b", 50));
    assert_eq!(step(&mut scheduler), "a:32 b:32");
    assert_eq!(step(&mut scheduler), "a:18 b:18");
}

#[test]
fn no_more_than_max_num_seqs_run() {
    let mut scheduler = scheduler(config(100, 2), 100);
    for id in ["a", "b", "c"] {
        let mut request = request(id, 5);
        request.sampling_params.max_tokens = Some(2);
        add(&mut scheduler, request);
    }
    assert_eq!(step(&mut scheduler), "a:5 b:5");
    assert_eq!(step(&mut scheduler), "a:1 b:1");
    assert_eq!(step(&mut scheduler), "c:5");
}

#[test]
fn a_spent_budget_holds_back_the_last_running_requests() {
    let mut scheduler = scheduler(config(4, 4), 100);
    add(&mut scheduler, request("a", 2));
    add(&mut scheduler, request("b", 9));
    assert_eq!(step(&mut scheduler), "a:2 b:2");
    assert_eq!(step(&mut scheduler), "a:1 b:3");
    add(&mut scheduler, request("c", 3));
    assert_eq!(step(&mut scheduler), "a:1 b:3");
    assert_eq!(step(&mut scheduler), "a:1 b:1 c:2");
}

#[test]
fn a_step_that_was_not_answered_schedules_nothing_twice() {
    let mut scheduler = scheduler(config(100, 4), 100);
    add(&mut scheduler, request("a", 5));
    assert_eq!(trace(&scheduler.schedule()), "a:5");
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "");
    assert_eq!(output.total_num_scheduled_tokens, 0);
}

#[test]
fn a_prompt_is_admitted_only_when_all_of_it_fits() {
    let run = |scheduler_reserve_full_isl| {
        let reserve = SchedulerConfig {
            scheduler_reserve_full_isl,
            ..config(8, 4)
        };
        let mut scheduler = scheduler(reserve, 5);
        add(&mut scheduler, request("a", 10));
        step(&mut scheduler);
        add(&mut scheduler, request("b", 12));
        step(&mut scheduler)
    };
    // a has 3 of 5 blocks; b needs 3 in all, 2 for what the budget gives it now.
    assert_eq!(run(true), "a:2");
    assert_eq!(run(false), "a:2 b:6");
}

#[test]
fn the_watermark_keeps_blocks_free_unless_nothing_runs() {
    let watermark = SchedulerConfig {
        watermark: 0.5,
        ..config(100, 4)
    };
    let mut scheduler = scheduler(watermark, 10);
    // 5 of 11 blocks stay free on admission, but not from the first request.
    add(&mut scheduler, request("a", 24));
    add(&mut scheduler, request("b", 4));
    assert_eq!(step(&mut scheduler), "a:24");
    assert_eq!(step(&mut scheduler), "a:1");
    scheduler.finish_requests(["a"], protocol::FinishReason::Abort);
    assert_eq!(step(&mut scheduler), "b:4");
    add(&mut scheduler, request("c", 16));
    assert_eq!(step(&mut scheduler), "b:1");
    add(&mut scheduler, request("d", 4));
    scheduler.finish_requests(["c"], protocol::FinishReason::Abort);
    assert_eq!(step(&mut scheduler), "b:1 d:4");
}

#[test]
fn pausing_stops_admission_or_everything() {
    let mut scheduler = scheduler(config(100, 4), 100);
    add(&mut scheduler, request("a", 5));
    step(&mut scheduler);
    add(&mut scheduler, request("b", 5));
    scheduler.set_pause_state(PauseState::PausedNew);
    assert_eq!(scheduler.num_unfinished_requests(), 1);
    assert_eq!(step(&mut scheduler), "a:1");
    scheduler.set_pause_state(PauseState::PausedAll);
    assert_eq!(scheduler.num_unfinished_requests(), 0);
    assert!(!scheduler.has_requests());
    assert_eq!(step(&mut scheduler), "");
    scheduler.set_pause_state(PauseState::Unpaused);
    assert_eq!(step(&mut scheduler), "a:1 b:5");
}

#[test]
fn priorities_order_the_queue() {
    let mut scheduler = scheduler(priority_config(100, 2), 100);
    for (id, priority, arrival_time) in [
        ("late", 1, 5.0),
        ("low", 2, 0.0),
        ("early", 1, 3.0),
        ("high", -1, 9.0),
        ("also", 1, 3.0),
    ] {
        add(
            &mut scheduler,
            EngineCoreRequest {
                priority,
                arrival_time,
                ..request(id, 3)
            },
        );
    }
    // Lower first, then arrival, then id.
    assert_eq!(
        waiting_ids(&scheduler),
        ["high", "also", "early", "late", "low"]
    );
    assert_eq!(step(&mut scheduler), "high:3 also:3");
}
