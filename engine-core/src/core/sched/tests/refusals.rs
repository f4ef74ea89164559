//! Requests and configurations that can't be served.

use protocol::{FinishReason, PoolingParams, RequestError, RequestErrorCode};

use super::*;

/// The error that `request` gets with the next step; `None` where it is let in.
fn refused(scheduler: &mut Scheduler, request: EngineCoreRequest) -> Option<RequestError> {
    let request_id = request.request_id.clone();
    add(scheduler, request);
    let outputs = flat(step_outputs(scheduler, 7));
    let ended: Vec<_> = outputs
        .into_iter()
        .filter(|output| output.error.is_some())
        .collect();
    let [output] = ended.as_slice() else {
        assert!(ended.is_empty());
        return None;
    };
    assert_eq!(output.request_id, request_id);
    assert_eq!(output.finish_reason, Some(FinishReason::Error));
    output.error.clone()
}

fn validation_error(message: &str) -> Option<RequestError> {
    let field = message.split(' ').next().map(str::to_owned);
    Some(RequestError {
        // Clients send no ids.
        field: field.filter(|field| field != "prompt_token_ids"),
        ..RequestError::new(RequestErrorCode::ValidationError, message)
    })
}

#[test]
fn impossible_requests_are_refused() {
    // 20 tokens fit.
    let mut scheduler = scheduler(config(100, 4), 5);
    assert_eq!(
        refused(&mut scheduler, request("long", 20)),
        validation_error(
            "prompt_token_ids has 20 tokens: at most 19 leave room for 1 output token in \
             max_model_len 20"
        )
    );
    let pooled = |num_tokens| EngineCoreRequest {
        pooling_params: Some(PoolingParams::default()),
        ..request("pooled", num_tokens)
    };
    assert_eq!(
        refused(&mut scheduler, pooled(21)),
        validation_error("prompt_token_ids has 21 tokens: max_model_len is 20")
    );
    assert_eq!(
        refused(&mut scheduler, request("empty", 0)),
        validation_error("prompt_token_ids is empty: at least 1 token is needed")
    );
    let mut no_tokens = request("none", 5);
    no_tokens.sampling_params.max_tokens = Some(0);
    assert_eq!(
        refused(&mut scheduler, no_tokens),
        validation_error("max_tokens is 0: at least 1 is needed")
    );
    assert_eq!(
        refused(
            &mut scheduler,
            EngineCoreRequest {
                priority: -2,
                ..request("urgent", 5)
            }
        ),
        validation_error("priority is -2: only 0 is possible under the fcfs scheduling policy")
    );
    assert_idle(&scheduler);
    assert!(!scheduler.has_requests());
    // The longest that can be served ends with its first token.
    add(&mut scheduler, request("longest", 19));
    let outputs = flat(step_outputs(&mut scheduler, 7));
    assert_eq!(outputs[0].finish_reason, Some(FinishReason::Length));
}

#[test]
fn a_refusal_needs_a_step_to_be_sent() {
    let mut scheduler = scheduler(config(100, 4), 5);
    assert!(!scheduler.has_requests());
    add(&mut scheduler, request("empty", 0));
    assert!(scheduler.has_requests());
    assert!(!scheduler.has_unfinished_requests());
    let output = scheduler.schedule();
    assert_eq!(output.total_num_scheduled_tokens, 0);
    let outputs = scheduler.update_from_output(&output, ModelRunnerOutput::default());
    assert_eq!(outputs[&0].outputs.len(), 1);
    assert!(!scheduler.has_requests());
}

#[test]
fn a_second_request_with_an_id_in_flight_is_refused() {
    let mut scheduler = scheduler(config(100, 1), 20);
    for id in ["running", "waiting"] {
        add(&mut scheduler, request(id, 5));
    }
    step(&mut scheduler);
    for id in ["running", "waiting"] {
        let message = format!("request_id \"{id}\" is in flight already: choose another");
        assert_eq!(
            refused(&mut scheduler, request(id, 5)),
            validation_error(&message)
        );
    }
    assert_eq!(running_ids(&scheduler), ["running"]);
    assert_eq!(waiting_ids(&scheduler), ["waiting"]);
    scheduler.finish_requests(["running"], FinishReason::Abort);
    assert_eq!(refused(&mut scheduler, request("running", 5)), None);
}

#[test]
fn the_queue_is_limited_in_requests() {
    let limited = SchedulerConfig {
        max_num_queued_reqs: Some(2),
        ..config(100, 1)
    };
    let mut scheduler = scheduler(limited, 20);
    add(&mut scheduler, request("a", 5));
    step(&mut scheduler);
    assert_eq!(refused(&mut scheduler, request("b", 5)), None);
    assert_eq!(refused(&mut scheduler, request("c", 5)), None);
    let error = RequestError::new(
        RequestErrorCode::QueueOverflow,
        "2 requests wait already: max_num_queued_reqs is 2",
    );
    assert_eq!(refused(&mut scheduler, request("d", 5)), Some(error));
    // It was let in once, by a core that died before it had run.
    let replay = EngineCoreRequest {
        is_replay: true,
        ..request("e", 5)
    };
    assert_eq!(refused(&mut scheduler, replay), None);
    assert_eq!(waiting_ids(&scheduler), ["b", "c", "e"]);
}

/// Requests come at once, and only a step takes them out of the queue.
#[test]
fn who_finds_a_free_place_is_not_queued() {
    let limited = SchedulerConfig {
        max_num_queued_reqs: Some(2),
        max_num_queued_tokens: Some(1),
        ..config(100, 4)
    };
    let mut scheduler = scheduler(limited, 20);
    for id in ["a", "b", "c", "d"] {
        add(&mut scheduler, request(id, 5));
    }
    // Nothing waits beyond those four.
    add(&mut scheduler, request("e", 5));
    let message = refused(&mut scheduler, request("f", 5)).unwrap().message;
    assert_eq!(
        message,
        "30 tokens would wait with this request: max_num_queued_tokens is 1"
    );
    assert_eq!(running_ids(&scheduler), ["a", "b", "c", "d"]);
    scheduler.finish_requests(["a", "e"], FinishReason::Abort);
    scheduler.config.max_num_queued_tokens = None;
    for id in ["g", "h", "i"] {
        add(&mut scheduler, request(id, 5));
    }
    let message = refused(&mut scheduler, request("j", 5)).unwrap().message;
    assert_eq!(message, "2 requests wait already: max_num_queued_reqs is 2");
    assert_eq!(running_ids(&scheduler), ["b", "c", "d", "g"]);
    assert_eq!(waiting_ids(&scheduler), ["h", "i"]);
}

#[test]
fn a_place_without_blocks_is_not_free() {
    let limited = SchedulerConfig {
        max_num_queued_reqs: Some(1),
        ..config(100, 4)
    };
    let mut scheduler = scheduler(limited, 5);
    assert_eq!(refused(&mut scheduler, request("a", 15)), None);
    assert_eq!(refused(&mut scheduler, request("b", 15)), None);
    assert_eq!(waiting_ids(&scheduler), ["b"]);
    let message = refused(&mut scheduler, request("c", 15)).unwrap().message;
    assert_eq!(message, "1 requests wait already: max_num_queued_reqs is 1");
    scheduler.finish_requests(["a", "b"], FinishReason::Abort);
    assert_eq!(refused(&mut scheduler, request("d", 15)), None);
    assert_eq!(refused(&mut scheduler, request("e", 1)), None);
    assert_eq!(running_ids(&scheduler), ["d", "e"]);
}

#[test]
fn the_queue_is_limited_in_tokens() {
    let limited = SchedulerConfig {
        max_num_queued_tokens: Some(10),
        ..config(100, 1)
    };
    let mut scheduler = scheduler(limited, 20);
    add(&mut scheduler, request("a", 5));
    step(&mut scheduler);
    // More than the limit, but nothing waits.
    assert_eq!(refused(&mut scheduler, request("b", 12)), None);
    assert_eq!(
        refused(&mut scheduler, request("c", 1)).unwrap().message,
        "13 tokens would wait with this request: max_num_queued_tokens is 10"
    );
    scheduler.finish_requests(["b"], FinishReason::Abort);
    assert_eq!(refused(&mut scheduler, request("d", 6)), None);
    assert_eq!(refused(&mut scheduler, request("e", 4)), None);
    assert!(refused(&mut scheduler, request("f", 1)).is_some());
    let replay = EngineCoreRequest {
        is_replay: true,
        ..request("g", 5)
    };
    assert_eq!(refused(&mut scheduler, replay), None);
}

#[test]
fn contradictory_limits_are_refused() {
    let good = config(64, 8);
    let cases = [
        (
            SchedulerConfig {
                max_num_seqs: 0,
                ..good.clone()
            },
            16,
            "max_num_seqs is 0: at least 1",
        ),
        (
            SchedulerConfig {
                max_num_seqs: 65,
                ..good.clone()
            },
            16,
            "max_num_batched_tokens is 64: at least max_num_seqs 65",
        ),
        (
            SchedulerConfig {
                enable_chunked_prefill: false,
                ..good.clone()
            },
            17,
            "max_num_batched_tokens is 64: at least max_model_len 68 where \
             enable_chunked_prefill is off",
        ),
        (
            SchedulerConfig {
                long_prefill_token_threshold: 65,
                ..good.clone()
            },
            16,
            "long_prefill_token_threshold is 65: at most max_model_len 64, or 0 for off",
        ),
        (
            SchedulerConfig {
                long_prefill_token_threshold: 4,
                enable_chunked_prefill: false,
                ..good.clone()
            },
            16,
            "long_prefill_token_threshold is 4: 0 where enable_chunked_prefill is off: a prompt \
             may not be cut then",
        ),
        (
            SchedulerConfig {
                watermark: 1.0,
                ..good.clone()
            },
            16,
            "watermark is 1: a share of the blocks, 0 <= watermark < 1",
        ),
        (
            SchedulerConfig {
                watermark: f64::NAN,
                ..good.clone()
            },
            16,
            "watermark is NaN: a share of the blocks, 0 <= watermark < 1",
        ),
        (
            SchedulerConfig {
                max_num_queued_reqs: Some(0),
                ..good.clone()
            },
            16,
            "max_num_queued_reqs is 0: at least 1, or absent for no limit",
        ),
        (
            SchedulerConfig {
                max_num_queued_tokens: Some(0),
                ..good.clone()
            },
            16,
            "max_num_queued_tokens is 0: at least 1, or absent for no limit",
        ),
    ];
    for (config, num_blocks, message) in cases {
        let kv_cache_config = KVCacheConfig {
            num_blocks: num_blocks + 1,
            block_size: 4,
            enable_prefix_caching: true,
        };
        let clock = EngineClock::from_fn(|| 0.0);
        let error = Scheduler::new(config, kv_cache_config, num_blocks * 4, clock).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_cache_smaller_than_the_context_is_refused() {
    let new = |num_blocks, block_size, max_model_len| {
        let kv_cache_config = KVCacheConfig {
            num_blocks,
            block_size,
            enable_prefix_caching: true,
        };
        let clock = EngineClock::from_fn(|| 0.0);
        let made = Scheduler::new(config(64, 8), kv_cache_config, max_model_len, clock);
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(new(6, 4, 20), Ok(()));
    assert_eq!(
        new(5, 4, 20).unwrap_err(),
        "num_blocks is 5: with the null block apart this holds 16 tokens of 4 per block, fewer \
         than max_model_len 20; lower max_model_len or give the KV cache at least 6 blocks"
    );
    assert!(new(0, 4, 20).is_err());
    assert_eq!(new(6, 0, 20).unwrap_err(), "block_size is 0: at least 1");
    assert_eq!(
        new(6, 4, 1).unwrap_err(),
        "max_model_len is 1: at least 2, one prompt token and one output token"
    );
}
