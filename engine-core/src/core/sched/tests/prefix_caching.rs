//! What requests find of each other's prefixes.

use protocol::{FinishReason, PoolingParams, PoolingType, PrefixCacheStats, ScoredPosition};

use super::*;

/// A request whose prompt is `0..num_prompt_tokens`.
fn shared(id: &str, num_prompt_tokens: u32) -> EngineCoreRequest {
    EngineCoreRequest {
        prompt_token_ids: (0..num_prompt_tokens).collect(),
        ..request(id, num_prompt_tokens)
    }
}

fn run_to_first_token(scheduler: &mut Scheduler, request: EngineCoreRequest) {
    let id = request.request_id.clone();
    add(scheduler, request);
    step(scheduler);
    scheduler.finish_requests([id], FinishReason::Abort);
}

#[test]
fn a_hit_leaves_at_least_the_last_token() {
    let mut scheduler = scheduler(config(100, 4), 20);
    run_to_first_token(&mut scheduler, shared("first", 12));
    add(&mut scheduler, shared("whole", 12));
    add(&mut scheduler, shared("longer", 13));
    add(&mut scheduler, shared("shorter", 11));
    // 12 tokens are 3 full blocks, but the last one has to be computed.
    assert_eq!(step(&mut scheduler), "whole:4 longer:1 shorter:3");
}

#[test]
fn what_is_scored_is_computed() {
    let mut scheduler = scheduler(config(100, 4), 20);
    run_to_first_token(&mut scheduler, shared("first", 12));
    for (id, num_tokens) in [("early", 6), ("at block", 8), ("last", 12)] {
        let positions = [num_tokens, 12].map(|num_tokens| ScoredPosition {
            num_tokens,
            token_ids: vec![1, 2],
        });
        add(
            &mut scheduler,
            EngineCoreRequest {
                scored_positions: positions[..1 + usize::from(num_tokens < 12)].into(),
                ..shared(id, 12)
            },
        );
    }
    // The token before the first position has to be computed for its logits; what is before that is the same in all.
    assert_eq!(trace(&scheduler.schedule()), "early:8 at block:5 last:1");
}

#[test]
fn scored_requests_of_a_step_share_to_the_token() {
    let mut scheduler = scheduler(config(100, 10), 60);
    let tokens = |len: u32, own: &[u32]| (0..len).chain(own.iter().copied()).collect::<Vec<u32>>();
    let prompts = [
        // Text is generated behind the first one.
        ("text", tokens(10, &[])),
        ("one", tokens(9, &[50])),
        // More in common with the one before than it computes.
        ("two", tokens(9, &[50, 51])),
        // As far as its place allows: the token before it is computed.
        ("equal", tokens(9, &[50, 51])),
        ("begin", tokens(2, &[60, 61])),
        ("other", tokens(0, &[2, 3])),
        // What is behind all that the one before has isn't shared. A block that was shared in part can be found when it is full.
        ("full", tokens(9, &[50, 51, 52, 53])),
        ("fuller", tokens(9, &[50, 51, 52, 54])),
        // What one of them computed is known behind another that found it in a full block.
        ("less", tokens(9, &[60])),
    ];
    for (id, prompt) in prompts {
        let position = ScoredPosition {
            num_tokens: prompt.len() as u32,
            token_ids: vec![1, 2],
        };
        let is_text = id == "text";
        let request = EngineCoreRequest {
            prompt_token_ids: prompt.into(),
            scored_positions: [position][..usize::from(!is_text)].into(),
            ..request(id, 1)
        };
        add(&mut scheduler, request);
    }
    let output = scheduler.schedule();
    assert_eq!(
        trace(&output),
        "text:10 one:1 two:1 equal:1 begin:2 other:2 full:5 fuller:1 less:1"
    );
    let new = output.scheduled_new_reqs.iter();
    let known: Vec<_> = new
        .map(|new| (new.num_computed_tokens, new.num_shared_tokens))
        .collect();
    assert_eq!(
        known,
        [
            (0, None),
            (9, Some(1)),
            (10, Some(2)),
            (10, Some(2)),
            (2, Some(2)),
            (0, Some(0)),
            (8, None),
            (12, Some(0)),
            (9, Some(1)),
        ]
    );
    let tables: Vec<_> = (output.scheduled_new_reqs.iter())
        .map(|new| new.block_ids.clone())
        .collect();
    assert_eq!(tables[1][..2], tables[0][..2]);
    assert!(tables[..4].iter().all(|table| table.len() == 3));
    let last: std::collections::BTreeSet<u32> = tables[..4].iter().map(|table| table[2]).collect();
    assert_eq!(last.len(), 4, "each writes to a block of its own");
}

#[test]
fn with_another_salt_nothing_is_shared() {
    let mut scheduler = scheduler(config(100, 9), 60);
    for (id, salt) in [("a", None), ("b", Some("salt")), ("c", Some("salt"))] {
        let request = EngineCoreRequest {
            cache_salt: salt.map(str::to_owned),
            scored_positions: [ScoredPosition {
                num_tokens: 7,
                token_ids: vec![1, 2],
            }]
            .into(),
            ..shared(id, 7)
        };
        add(&mut scheduler, request);
    }
    assert_eq!(step(&mut scheduler), "a:7 b:7 c:1");
}

#[test]
fn what_is_pooled_of_all_tokens_is_computed() {
    let mut scheduler = scheduler(config(100, 4), 20);
    run_to_first_token(&mut scheduler, shared("first", 12));
    for (id, pooling_type) in [
        ("last", PoolingType::Last),
        ("cls", PoolingType::Cls),
        ("mean", PoolingType::Mean),
    ] {
        let pooling_params = Some(PoolingParams {
            pooling_type,
            ..PoolingParams::default()
        });
        let request = EngineCoreRequest {
            pooling_params,
            ..shared(id, 12)
        };
        add(&mut scheduler, request);
    }
    assert_eq!(trace(&scheduler.schedule()), "last:4 cls:12 mean:12");
}

#[test]
fn requests_of_the_same_step_share_blocks() {
    let mut scheduler = scheduler(config(100, 4), 20);
    add(&mut scheduler, shared("a", 10));
    add(&mut scheduler, shared("b", 10));
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:10 b:2");
    let [a, b] = output.scheduled_new_reqs.as_slice() else {
        panic!("two new requests");
    };
    assert_eq!(a.block_ids[..2], b.block_ids[..2]);
    assert_ne!(a.block_ids[2], b.block_ids[2]);
    assert_eq!((a.num_computed_tokens, b.num_computed_tokens), (0, 8));
    let pool = scheduler.kv_cache_manager().block_pool();
    assert_eq!(pool.ref_cnt(a.block_ids[0]), 2);
    assert_eq!(pool.ref_cnt(a.block_ids[2]), 1);
}

#[test]
fn a_chunk_shares_only_what_it_computes() {
    let mut scheduler = scheduler(config(6, 4), 20);
    add(&mut scheduler, shared("a", 10));
    assert_eq!(step(&mut scheduler), "a:6");
    add(&mut scheduler, shared("b", 10));
    // a computes 4 more and then has 2 full blocks.
    assert_eq!(step(&mut scheduler), "a:4 b:2");
}

#[test]
fn salts_separate_prefixes() {
    let mut scheduler = scheduler(config(100, 8), 30);
    let salted = |id, salt: Option<&str>| EngineCoreRequest {
        cache_salt: salt.map(str::to_owned),
        ..shared(id, 9)
    };
    run_to_first_token(&mut scheduler, salted("first", Some("x")));
    add(&mut scheduler, salted("none", None));
    add(&mut scheduler, salted("other", Some("y")));
    add(&mut scheduler, salted("same", Some("x")));
    assert_eq!(step(&mut scheduler), "none:9 other:9 same:1");
}

#[test]
fn some_requests_compute_everything_themselves() {
    let mut scheduler = scheduler(config(100, 8), 30);
    let mut with_logprobs = shared("logprobs", 9);
    with_logprobs.sampling_params.prompt_logprobs = Some(0);
    let mut skipping = shared("skipping", 9);
    skipping.sampling_params.skip_reading_prefix_cache = true;
    add(&mut scheduler, with_logprobs);
    add(&mut scheduler, skipping);
    add(&mut scheduler, shared("reading", 9));
    // They write to the cache all the same.
    assert_eq!(step(&mut scheduler), "logprobs:9 skipping:9 reading:1");
}

#[test]
fn output_is_cached_too() {
    let mut scheduler = scheduler(config(100, 4), 20);
    add(&mut scheduler, shared("a", 6));
    for _ in 0..3 {
        step(&mut scheduler);
    }
    scheduler.finish_requests(["a"], FinishReason::Abort);
    let mut next_turn = shared("b", 6);
    let prompt = next_turn.prompt_token_ids.iter().copied();
    next_turn.prompt_token_ids = prompt.chain([7, 7, 7, 1, 2]).collect();
    add(&mut scheduler, next_turn);
    // 8 tokens of a were computed: its prompt and 2 of the 3 output tokens.
    assert_eq!(step(&mut scheduler), "b:3");
}

#[test]
fn caching_can_be_off() {
    let kv_cache_config = KVCacheConfig {
        num_blocks: 21,
        block_size: 4,
        enable_prefix_caching: false,
    };
    let clock = EngineClock::from_fn(|| 0.0);
    let mut scheduler = Scheduler::new(config(100, 4), kv_cache_config, 80, clock).unwrap();
    run_to_first_token(&mut scheduler, shared("a", 9));
    add(&mut scheduler, shared("b", 9));
    assert_eq!(step(&mut scheduler), "b:9");
}

#[test]
fn the_end_of_the_least_recent_prefix_is_evicted_first() {
    let mut scheduler = scheduler(config(100, 4), 8);
    run_to_first_token(&mut scheduler, request("old", 12));
    run_to_first_token(&mut scheduler, request("new", 12));
    // 2 blocks were never used. This one takes them and one more: the third of "old".
    run_to_first_token(&mut scheduler, request("x", 11));
    let hit = |scheduler: &Scheduler, id: &str| {
        let probe = Request::from_engine_core_request(
            EngineCoreRequest {
                prompt_token_ids: (0..13)
                    .map(|at| request(id, 1).prompt_token_ids[0] + at)
                    .collect(),
                ..request(id, 0)
            },
            &scheduler.block_hasher(),
        );
        scheduler
            .kv_cache_manager()
            .get_computed_blocks(&probe)
            .num_tokens
    };
    assert_eq!(hit(&scheduler, "old"), 8);
    assert_eq!(hit(&scheduler, "new"), 12);
    assert_eq!(hit(&scheduler, "x"), 8);
    // The block of x that was not full is used again first, then the second of "old".
    run_to_first_token(&mut scheduler, request("y", 7));
    assert_eq!(hit(&scheduler, "old"), 4);
    assert_eq!(hit(&scheduler, "new"), 12);
    assert_eq!(hit(&scheduler, "x"), 8);
}

#[test]
fn computed_blocks_are_not_evicted_by_their_own_request() {
    let mut scheduler = scheduler(config(100, 4), 4);
    run_to_first_token(&mut scheduler, shared("a", 15));
    // 3 cached blocks and 1 plain one, all free: b takes the 3 as they are and the plain one.
    add(&mut scheduler, shared("b", 13));
    assert_eq!(step(&mut scheduler), "b:1");
    assert_eq!(scheduler.kv_cache_manager().usage(), 1.0);
}

#[test]
fn the_cache_is_reset_only_when_all_is_free() {
    let mut scheduler = scheduler(config(100, 4), 20);
    add(&mut scheduler, shared("a", 9));
    step(&mut scheduler);
    assert!(!scheduler.reset_prefix_cache());
    scheduler.finish_requests(["a"], FinishReason::Abort);
    assert!(scheduler.reset_prefix_cache());
    add(&mut scheduler, shared("b", 9));
    assert_eq!(step(&mut scheduler), "b:9");
}

#[test]
fn statistics_count_each_request_once() {
    let mut scheduler = scheduler(config(100, 4), 20);
    run_to_first_token(&mut scheduler, shared("a", 9));
    add(&mut scheduler, shared("b", 10));
    let mut outputs = step_outputs(&mut scheduler, 7);
    let outputs = outputs.remove(&0).unwrap();
    let stats = outputs.scheduler_stats.unwrap();
    let expected = PrefixCacheStats {
        requests: 1,
        queries: 10,
        hits: 8,
    };
    assert_eq!(stats.prefix_cache_stats, expected);
    assert_eq!((stats.num_running_reqs, stats.num_waiting_reqs), (1, 0));
    assert_eq!(stats.num_scheduled_tokens, 2);
    assert_eq!(stats.kv_cache_usage, 3.0 / 20.0);
    let prefill_stats = outputs.outputs[0].prefill_stats.unwrap();
    assert_eq!(
        (
            prefill_stats.num_prompt_tokens,
            prefill_stats.num_cached_tokens
        ),
        (10, 8)
    );
    let next = flat(step_outputs(&mut scheduler, 7));
    assert_eq!(next[0].prefill_stats, None);
}
