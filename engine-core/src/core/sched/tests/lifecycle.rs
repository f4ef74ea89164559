//! Requests that end, from inside and from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::{EngineCoreEventType, FinishReason, StopReason};

use super::*;

#[test]
fn an_abort_frees_everything_at_every_stage() {
    // Waiting, part of the prompt computed, decoding, preempted, in a step, over.
    let mut scheduler = scheduler(config(4, 4), 5);
    add(&mut scheduler, request("a", 6));
    let ended = scheduler.finish_requests(["a"], FinishReason::Abort);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].output.finish_reason, Some(FinishReason::Abort));
    assert_idle(&scheduler);

    add(&mut scheduler, request("b", 6));
    assert_eq!(step(&mut scheduler), "b:4");
    scheduler.finish_requests(["b"], FinishReason::Abort);
    assert_idle(&scheduler);

    add(&mut scheduler, request("c", 2));
    step(&mut scheduler);
    step(&mut scheduler);
    scheduler.finish_requests(["c"], FinishReason::Abort);
    assert_idle(&scheduler);

    add(&mut scheduler, request("d", 3));
    let output = scheduler.schedule();
    let sampled = sampling(&scheduler, &output, 7);
    scheduler.finish_requests(["d"], FinishReason::Abort);
    assert_eq!(flat(scheduler.update_from_output(&output, sampled)), []);
    assert_idle(&scheduler);
    assert_eq!(
        scheduler.finish_requests(["d", "unknown"], FinishReason::Abort),
        []
    );
    assert_eq!(strings(&scheduler.schedule().finished_req_ids), ["d"]);
    assert!(!scheduler.has_requests());
}

#[test]
fn a_preempted_request_can_be_aborted() {
    let mut scheduler = scheduler(config(100, 4), 4);
    add(&mut scheduler, request("a", 5));
    add(&mut scheduler, request("b", 7));
    for _ in 0..3 {
        step(&mut scheduler);
    }
    assert_eq!(waiting_ids(&scheduler), ["b"]);
    scheduler.finish_requests(["b"], FinishReason::Abort);
    scheduler.finish_requests(["a"], FinishReason::Abort);
    assert_idle(&scheduler);
}

#[test]
fn an_abort_during_a_step_touches_no_other() {
    let mut scheduler = scheduler(config(100, 4), 50);
    for id in ["a", "b", "c"] {
        add(&mut scheduler, request(id, 5));
    }
    let output = scheduler.schedule();
    let mut sampled = sampling(&scheduler, &output, 7);
    sampled.sampled_token_ids = vec![vec![1], vec![2], vec![3]];
    scheduler.finish_requests(["b"], FinishReason::Abort);
    // The same id again: what was sampled for the old one is not for the new one.
    add(&mut scheduler, request("b", 5));
    let outputs = flat(scheduler.update_from_output(&output, sampled));
    let tokens: Vec<_> = outputs
        .iter()
        .map(|output| (&*output.request_id, &*output.new_token_ids))
        .collect();
    assert_eq!(tokens, [("a", &[1][..]), ("c", &[3][..])]);
    let output = scheduler.schedule();
    assert_eq!(strings(&output.finished_req_ids), ["b"]);
    assert_eq!(trace(&output), "a:1 c:1 b:1");
}

#[test]
fn finished_ids_are_told_once_and_on_the_next_step() {
    let mut scheduler = scheduler(config(100, 4), 50);
    let mut short = request("a", 5);
    short.sampling_params.max_tokens = Some(1);
    add(&mut scheduler, short);
    step(&mut scheduler);
    assert_idle(&scheduler);
    assert!(scheduler.has_requests());
    let output = scheduler.schedule();
    assert_eq!(strings(&output.finished_req_ids), ["a"]);
    assert_eq!(output.total_num_scheduled_tokens, 0);
    assert!(!scheduler.has_requests());
    assert!(scheduler.schedule().finished_req_ids.is_empty());
}

#[test]
fn a_client_that_leaves_takes_its_requests_along() {
    let mut scheduler = scheduler(config(100, 2), 50);
    for (id, client_index) in [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("d", 1)] {
        add(
            &mut scheduler,
            EngineCoreRequest {
                client_index,
                ..request(id, 5)
            },
        );
    }
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:5 b:5");
    let ended = scheduler.finish_client_requests(1, FinishReason::Abort);
    let ended: Vec<_> = ended
        .iter()
        .map(|ended| &*ended.output.request_id)
        .collect();
    assert_eq!(ended, ["a", "c"]);
    assert_eq!(running_ids(&scheduler), ["b"]);
    assert_eq!(waiting_ids(&scheduler), ["d"]);
    let sampled = sampling(&scheduler, &output, 7);
    let outputs = scheduler.update_from_output(&output, sampled);
    // Not even the refusal of its second "d".
    assert_eq!(outputs.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(scheduler.finish_all_requests(FinishReason::Abort).len(), 2);
    assert_idle(&scheduler);
}

/// Runs one request until it ends, sampling `token_ids` one after the other.
fn finish(
    sampling_params: SamplingParams,
    replayed: &[u32],
    token_ids: &[u32],
) -> Option<(Vec<u32>, FinishReason, Option<StopReason>)> {
    let mut scheduler = scheduler(config(100, 4), 5);
    let request = EngineCoreRequest {
        sampling_params,
        output_token_ids: replayed.to_vec(),
        ..request("a", 10)
    };
    add(&mut scheduler, request);
    let mut emitted = Vec::new();
    for &token_id in token_ids.iter().chain([&0]) {
        for output in flat(step_outputs(&mut scheduler, token_id)) {
            emitted.extend(output.new_token_ids);
            if let Some(finish_reason) = output.finish_reason {
                assert_idle(&scheduler);
                return Some((emitted, finish_reason, output.stop_reason));
            }
        }
    }
    None
}

fn endless() -> SamplingParams {
    SamplingParams {
        max_tokens: None,
        eos_token_id: Some(99),
        stop_token_ids: vec![50, 60].into(),
        ..SamplingParams::default()
    }
}

#[test]
fn requests_stop() {
    let stop_at = |token_id| Some(StopReason::TokenId(token_id));
    assert_eq!(
        finish(endless(), &[], &[1, 2, 99]),
        Some((vec![1, 2, 99], FinishReason::Stop, None))
    );
    assert_eq!(
        finish(endless(), &[], &[1, 60]),
        Some((vec![1, 60], FinishReason::Stop, stop_at(60)))
    );
    // The end-of-text token wins where it is a stop token too, and a stop token over the length.
    let both = SamplingParams {
        stop_token_ids: vec![99].into(),
        max_tokens: Some(1),
        ..endless()
    };
    assert_eq!(
        finish(both, &[], &[99]),
        Some((vec![99], FinishReason::Stop, None))
    );
    let ignoring = SamplingParams {
        ignore_eos: true,
        max_tokens: Some(3),
        ..endless()
    };
    assert_eq!(
        finish(ignoring, &[], &[99, 99, 1]),
        Some((vec![99, 99, 1], FinishReason::Length, None))
    );
}

#[test]
fn the_context_ends_a_request() {
    // 10 prompt tokens of 20.
    let ten: Vec<u32> = (1..=10).collect();
    assert_eq!(
        finish(endless(), &[], &ten),
        Some((ten, FinishReason::Length, None))
    );
}

#[test]
fn nothing_but_length_ends_a_request_before_min_tokens() {
    let min_tokens = SamplingParams {
        min_tokens: 3,
        ..endless()
    };
    assert_eq!(
        finish(min_tokens.clone(), &[], &[99, 50, 1, 60]),
        Some((
            vec![99, 50, 1, 60],
            FinishReason::Stop,
            Some(StopReason::TokenId(60))
        ))
    );
    let shorter = SamplingParams {
        max_tokens: Some(2),
        ..min_tokens
    };
    assert_eq!(
        finish(shorter, &[], &[99, 99]),
        Some((vec![99, 99], FinishReason::Length, None))
    );
}

#[test]
fn replayed_output_counts_and_is_not_emitted() {
    let four = SamplingParams {
        max_tokens: Some(4),
        ..endless()
    };
    assert_eq!(
        finish(four.clone(), &[1, 2, 3], &[4]),
        Some((vec![4], FinishReason::Length, None))
    );
    assert_eq!(
        finish(four.clone(), &[1, 2, 3, 4], &[]),
        Some((vec![], FinishReason::Length, None))
    );
    assert_eq!(
        finish(four.clone(), &[1, 99], &[]),
        Some((vec![], FinishReason::Stop, None))
    );
    assert_eq!(
        finish(four, &[1, 50], &[]),
        Some((vec![], FinishReason::Stop, Some(StopReason::TokenId(50))))
    );
}

#[test]
fn replayed_output_is_prefilled_with_the_prompt() {
    let mut scheduler = scheduler(config(100, 4), 20);
    add(
        &mut scheduler,
        EngineCoreRequest {
            output_token_ids: vec![1, 2, 3],
            ..request("a", 10)
        },
    );
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:13");
    let new = &output.scheduled_new_reqs[0];
    assert_eq!(new.prompt_token_ids.len(), 10);
    assert_eq!(new.output_token_ids, [1, 2, 3]);
    let sampled = sampling(&scheduler, &output, 4);
    let outputs = flat(scheduler.update_from_output(&output, sampled));
    assert_eq!(outputs[0].new_token_ids, [4]);
    assert_eq!(outputs[0].prefill_stats.unwrap().num_prompt_tokens, 13);
    assert_eq!(
        scheduler.schedule().scheduled_cached_reqs.num_output_tokens,
        [4]
    );
}

#[test]
fn events_carry_the_engine_clock() {
    let time = Arc::new(AtomicU64::new(1));
    let shown = time.clone();
    let kv_cache_config = KVCacheConfig {
        num_blocks: 5,
        block_size: 4,
        enable_prefix_caching: true,
    };
    let clock = EngineClock::from_fn(move || shown.load(Ordering::Relaxed) as f64);
    let mut scheduler = Scheduler::new(config(100, 4), kv_cache_config, 16, clock).unwrap();
    add(&mut scheduler, request("a", 5));
    add(&mut scheduler, request("b", 7));
    let mut seen = Vec::new();
    for second in 2..7 {
        time.store(second, Ordering::Relaxed);
        if second == 5 {
            scheduler.finish_requests(["a"], FinishReason::Abort);
        }
        for (_, outputs) in step_outputs(&mut scheduler, 7) {
            assert_eq!(outputs.timestamp, second as f64);
            let of_b = outputs
                .outputs
                .into_iter()
                .filter(|output| output.request_id == "b");
            seen.extend(of_b.flat_map(|output| output.events));
        }
    }
    let seen: Vec<_> = seen
        .iter()
        .map(|event| (event.event_type, event.timestamp))
        .collect();
    use EngineCoreEventType::{Preempted, Queued, Scheduled};
    assert_eq!(
        seen,
        [
            (Queued, 1.0),
            (Scheduled, 2.0),
            (Preempted, 4.0),
            (Scheduled, 5.0)
        ]
    );
}
