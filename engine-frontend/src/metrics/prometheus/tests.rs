use protocol::{PrefixCacheStats, StructuredOutputStats};

use super::*;

fn logger() -> PrometheusStatLogger {
    PrometheusStatLogger::new("m".to_owned(), [&crate::test_support::ready(100)])
}

#[test]
fn counts_end_up_under_their_names() {
    let logger = logger();
    let iteration = IterationStats {
        num_generation_tokens: 3,
        num_prompt_tokens: 10,
        num_cached_tokens: 4,
        num_preempted_reqs: 1,
        num_corrupted_reqs: 2,
        time_to_first_tokens: vec![0.03],
        inter_token_latencies: vec![0.02, 0.2],
        finished_requests: vec![FinishedRequestStats {
            finish_reason: FinishReason::Length,
            time_to_first_token: Some(0.03),
            e2e_latency: 1.2,
            queued_time: 0.1,
            prefill_time: 0.1,
            inference_time: 1.0,
            decode_time: 0.9,
            mean_time_per_output_token: 0.3,
            num_prompt_tokens: 10,
            num_generation_tokens: 3,
            num_cached_tokens: 4,
            num_preemptions: 2,
            max_num_generation_tokens: Some(3),
            max_tokens: Some(3),
            n: 1,
            traced: std::sync::Arc::default(),
        }],
    };
    let scheduler = SchedulerStats {
        num_running_reqs: 2,
        num_waiting_reqs: 5,
        kv_cache_usage: 0.25,
        prefix_cache_stats: PrefixCacheStats {
            requests: 1,
            queries: 8,
            hits: 4,
        },
        num_scheduled_tokens: 12,
        structured_output_stats: Some(StructuredOutputStats {
            num_queued_grammars: 2,
            ..StructuredOutputStats::default()
        }),
        ..SchedulerStats::default()
    };
    logger.record(0, Some(&scheduler), &iteration);
    logger.record(0, Some(&scheduler), &IterationStats::default());
    logger.record_rejection("max_num_queued_reqs");
    logger.record_http(Some("/v1/models"), "GET", 200, Duration::from_millis(20));
    let mut engine = EngineMetrics::default();
    engine.record(scheduler);
    let text = logger.render(&[engine]);
    let labels = "model_name=\"m\",engine=\"0\"";
    for line in [
        format!("vllm:num_requests_running{{{labels}}} 2"),
        format!("vllm:num_requests_waiting{{{labels}}} 5"),
        format!("vllm:num_requests_waiting_by_reason{{{labels},reason=\"capacity\"}} 3"),
        format!("vllm:num_requests_waiting_by_reason{{{labels},reason=\"deferred\"}} 2"),
        format!("vllm:kv_cache_usage_perc{{{labels}}} 0.25"),
        format!("vllm:prefix_cache_queries_total{{{labels}}} 16"),
        format!("vllm:num_preemptions_total{{{labels}}} 1"),
        format!("vllm:corrupted_requests_total{{{labels}}} 2"),
        format!("vllm:prompt_tokens_total{{{labels}}} 10"),
        format!("vllm:generation_tokens_total{{{labels}}} 3"),
        format!("vllm:prompt_tokens_by_source_total{{{labels},source=\"local_compute\"}} 6"),
        format!("vllm:prompt_tokens_by_source_total{{{labels},source=\"local_cache_hit\"}} 4"),
        format!(
            "vllm:prompt_tokens_cached_by_source_total{{{labels},source=\"local_cache_hit\"}} 4"
        ),
        format!("vllm:request_max_num_generation_tokens_sum{{{labels}}} 3"),
        format!("vllm:request_num_preemptions_bucket{{{labels},le=\"1.0\"}} 0"),
        format!("vllm:request_num_preemptions_bucket{{{labels},le=\"2.0\"}} 1"),
        format!("vllm:request_success_total{{{labels},finished_reason=\"length\"}} 1"),
        format!("vllm:request_success_total{{{labels},finished_reason=\"stop\"}} 0"),
        format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.02\"}} 0"),
        format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.04\"}} 1"),
        format!("vllm:inter_token_latency_seconds_count{{{labels}}} 2"),
        format!("vllm:iteration_tokens_total_count{{{labels}}} 2"),
        format!("vllm:request_prefill_kv_computed_tokens_sum{{{labels}}} 6"),
        "vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"} 1"
            .to_owned(),
        "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"200\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }
}

#[test]
fn every_sample_belongs_to_a_family_that_comes_once() {
    let text = logger().render(&[]);
    let mut families = std::collections::HashSet::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} comes twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} is not of {family}");
        }
    }
}

#[test]
fn each_engine_core_has_samples_of_its_own_in_one_family() {
    let ready = crate::test_support::ready(100);
    let logger = PrometheusStatLogger::new("m".to_owned(), [&ready, &ready]);
    let iteration = |num_generation_tokens| IterationStats {
        num_generation_tokens,
        ..IterationStats::default()
    };
    for (engine_index, tokens) in [(0, 3), (1, 5), (1, 6), (7, 100)] {
        logger.record(engine_index, None, &iteration(tokens));
    }
    logger.record_event(1, CoreEvent::Restarted);
    logger.record_event(7, CoreEvent::Restarted);
    logger.record_event(0, CoreEvent::GaveUp);
    let engine = |num_running_reqs| {
        let mut engine = EngineMetrics::default();
        engine.record(SchedulerStats {
            num_running_reqs,
            ..SchedulerStats::default()
        });
        engine
    };
    let text = logger.render(&[engine(8), engine(9)]);
    for (name, first, second) in [
        ("vllm:generation_tokens_total", 3, 11),
        ("vllm:num_requests_running", 8, 9),
        ("formwork:engine_restarts_total", 0, 1),
        ("formwork:engine_gone", 1, 0),
    ] {
        let samples = format!(
            "{name}{{model_name=\"m\",engine=\"0\"}} {first}\n{name}{{model_name=\"m\",engine=\"1\"}} {second}\n"
        );
        assert!(text.contains(&samples), "{samples} not in\n{text}");
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1);
    }
}

#[test]
fn buckets_of_lengths_end_at_the_context() {
    assert_eq!(one_two_five(100), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
}

/// All routes of a server.
const ROUTES: [&str; 29] = [
    "/v1/models",
    "/v1/models/{*model}",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/decisions",
    "/v1/systemone",
    "/v1/embeddings",
    "/v1/score",
    "/score",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/inference/v1/generate",
    "/tokenize",
    "/detokenize",
    "/health",
    "/ping",
    "/load",
    "/version",
    "/metrics",
    "/openapi.json",
    "/pause",
    "/resume",
    "/is_paused",
    "/reset_prefix_cache",
];

#[test]
fn no_number_of_hostile_requests_makes_the_metrics_large() {
    const METHODS: [&str; 10] = [
        "GET", "POST", "HEAD", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "get",
    ];
    const STATUSES: [u16; 13] = [
        200, 400, 401, 403, 404, 408, 413, 415, 429, 431, 500, 503, 504,
    ];
    // Before a handler.
    const REFUSED: [u16; 5] = [401, 403, 405, 429, 431];
    let logger = logger();
    logger.record_rejection("tokens_per_minute");
    for i in 0..100_000_usize {
        let made_up = format!("M{i}");
        let method = match i % 2 {
            0 => METHODS[(i / 2) % METHODS.len()],
            _ => &made_up,
        };
        let number = (i / 20) % (ROUTES.len() + 1);
        let route = ROUTES.get(number).copied();
        // Each route has one method.
        let own = if number.is_multiple_of(2) {
            "GET"
        } else {
            "POST"
        };
        let status = match method == own {
            true => STATUSES[(i / 360) % STATUSES.len()],
            false => REFUSED[(i / 360) % REFUSED.len()],
        };
        logger.record_http(route, method, status, Duration::from_millis(1));
    }
    let long = "M".repeat(1 << 20);
    logger.record_http(Some("/health"), &long, 405, Duration::ZERO);
    let text = logger.render(&[]);
    assert!(text.len() < 100_000, "{} bytes", text.len());
    assert!(!text.contains("method=\"M"), "{text}");
    let other = "http_requests_total{handler=\"none\",method=\"other\",status=\"405\"}";
    assert!(text.contains(other), "{text}");
}
