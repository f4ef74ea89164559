//! `/metrics`: vLLM's names and labels, so that its dashboards and autoscalers work, and
//! Formwork's own under `formwork:`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::{EngineCoreReadyResponse, FinishReason, SchedulerStats};

use super::http_requests::HttpRequests;
use super::text::TextWriter;
use super::{EngineMetrics, FinishedRequestStats, Histogram, IterationStats, StatLogger};
use crate::engine_core_client::CoreEvent;
use crate::kv_events::KVEventStats;

const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_LATENCY: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_TIME: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const ITERATION_TOKENS: [f64; 13] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const N: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: [f64; 7] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0];

/// Gathers statistics, and writes them in the text format of Prometheus.
#[derive(Debug)]
pub struct PrometheusStatLogger {
    model_name: String,
    counted: Mutex<Counted>,
}

/// Everything counted so far.
#[derive(Debug)]
struct Counted {
    /// By the engine core's number.
    engines: Vec<EngineValues>,
    server: ServerValues,
}

/// What belongs to the server's process.
#[derive(Debug, Default)]
struct ServerValues {
    admission_rejections: BTreeMap<&'static str, u64>,
    lost_audit_lines: u64,
    http_requests: HttpRequests,
}

/// What was counted of an engine core.
#[derive(Debug)]
struct EngineValues {
    cache_config: Vec<(&'static str, String)>,
    prefix_cache_queries: u64,
    prefix_cache_hits: u64,
    num_preemptions: u64,
    corrupted_requests: u64,
    prompt_tokens: u64,
    prompt_tokens_cached: u64,
    generation_tokens: u64,
    request_success: BTreeMap<&'static str, u64>,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_max_num_generation_tokens: Histogram,
    request_num_preemptions: Histogram,
    request_params_max_tokens: Histogram,
    request_params_n: Histogram,
    request_prefill_kv_computed_tokens: Histogram,
    iteration_tokens: Histogram,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    time_per_output_token: Histogram,
    e2e_request_latency: Histogram,
    request_queue_time: Histogram,
    request_inference_time: Histogram,
    request_prefill_time: Histogram,
    request_decode_time: Histogram,
    restored_rows: u64,
    engine_restarts: u64,
    is_gone: bool,
    /// Where there are KV events.
    kv_events: Option<KVEventStats>,
}

impl EngineValues {
    fn new(ready: &EngineCoreReadyResponse) -> Self {
        let lengths = || Histogram::new(one_two_five(ready.max_model_len));
        let request_times = || Histogram::new(REQUEST_TIME);
        let finish_reasons = [
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::Abort,
            FinishReason::Error,
            FinishReason::Repetition,
        ];
        Self {
            cache_config: vec![
                ("block_size", ready.block_size.to_string()),
                ("num_gpu_blocks", ready.num_blocks.to_string()),
                ("kv_cache_memory_bytes", ready.kv_cache_bytes.to_string()),
            ],
            prefix_cache_queries: 0,
            prefix_cache_hits: 0,
            num_preemptions: 0,
            corrupted_requests: 0,
            prompt_tokens: 0,
            prompt_tokens_cached: 0,
            generation_tokens: 0,
            request_success: finish_reasons.map(|r| (r.as_str(), 0)).into(),
            request_prompt_tokens: lengths(),
            request_generation_tokens: lengths(),
            request_max_num_generation_tokens: lengths(),
            request_num_preemptions: Histogram::new(PREEMPTIONS),
            request_params_max_tokens: lengths(),
            request_params_n: Histogram::new(N),
            request_prefill_kv_computed_tokens: lengths(),
            iteration_tokens: Histogram::new(ITERATION_TOKENS),
            time_to_first_token: Histogram::new(TTFT),
            inter_token_latency: Histogram::new(TOKEN_LATENCY),
            time_per_output_token: Histogram::new(TOKEN_LATENCY),
            e2e_request_latency: request_times(),
            request_queue_time: request_times(),
            request_inference_time: request_times(),
            request_prefill_time: request_times(),
            request_decode_time: request_times(),
            restored_rows: 0,
            engine_restarts: 0,
            is_gone: false,
            kv_events: None,
        }
    }
}

impl PrometheusStatLogger {
    /// A logger for a model that is served as `model_name`, by engine cores that said this when they were ready.
    pub fn new<'a>(
        model_name: String,
        ready: impl IntoIterator<Item = &'a EngineCoreReadyResponse>,
    ) -> Self {
        Self {
            model_name,
            counted: Mutex::new(Counted {
                engines: ready.into_iter().map(EngineValues::new).collect(),
                server: ServerValues::default(),
            }),
        }
    }

    /// A request that was turned away before the model saw it.
    pub fn record_rejection(&self, reason: &'static str) {
        let mut counted = self.counted();
        let rejections = &mut counted.server.admission_rejections;
        *rejections.entry(reason).or_default() += 1;
    }

    /// What happened to the engine core of this number.
    pub fn record_event(&self, engine_index: u32, event: CoreEvent) {
        if let Some(values) = self.counted().engine(engine_index) {
            match event {
                CoreEvent::Died => {}
                CoreEvent::Restarted => values.engine_restarts += 1,
                CoreEvent::GaveUp => values.is_gone = true,
            }
        }
    }

    /// Shows what becomes of an engine core's KV events, by its number.
    pub fn show_kv_events(&self, engine_index: u32, stats: KVEventStats) {
        if let Some(values) = self.counted().engine(engine_index) {
            values.kv_events = Some(stats);
        }
    }

    /// A line of the audit log that could not be written.
    pub fn record_lost_audit_line(&self) {
        self.counted().server.lost_audit_lines += 1;
    }

    /// An HTTP request whose answer has begun. `route` is the path as the router writes it, `None` where
    /// it has none.
    pub fn record_http(&self, route: Option<&str>, method: &str, status: u16, duration: Duration) {
        let mut counted = self.counted();
        let requests = &mut counted.server.http_requests;
        requests.record(route, method, status, duration);
    }

    /// Everything, as text; `engines` are the totals of the cores' reports, by their numbers.
    pub fn render(&self, engines: &[EngineMetrics]) -> String {
        let counted = self.counted();
        let mut text = TextWriter::new(Vec::new());
        let nothing = EngineMetrics::default();
        for (index, values) in counted.engines.iter().enumerate() {
            text.set_labels(vec![
                ("model_name", self.model_name.clone()),
                ("engine", index.to_string()),
            ]);
            let engine = engines.get(index).unwrap_or(&nothing);
            values.write_engine(&mut text, engine);
            values.write_requests(&mut text);
            values.write_structured(&mut text, engine);
        }
        // What belongs to the process has no model.
        text.set_labels(Vec::new());
        counted.server.write(&mut text, &self.model_name);
        text.finish()
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        // Numbers are never half-written.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn engine(&mut self, engine_index: u32) -> Option<&mut EngineValues> {
        self.engines.get_mut(engine_index as usize)
    }
}

impl StatLogger for PrometheusStatLogger {
    fn record(
        &self,
        engine_index: u32,
        scheduler: Option<&SchedulerStats>,
        iteration: &IterationStats,
    ) {
        let mut counted = self.counted();
        let Some(values) = counted.engine(engine_index) else {
            return;
        };
        if let Some(scheduler) = scheduler {
            values.add_scheduler(scheduler);
        }
        values.num_preemptions += iteration.num_preempted_reqs;
        values.corrupted_requests += iteration.num_corrupted_reqs;
        values.prompt_tokens += iteration.num_prompt_tokens;
        values.prompt_tokens_cached += iteration.num_cached_tokens;
        values.generation_tokens += iteration.num_generation_tokens;
        for &seconds in &iteration.time_to_first_tokens {
            values.time_to_first_token.observe(seconds);
        }
        for &seconds in &iteration.inter_token_latencies {
            values.inter_token_latency.observe(seconds);
        }
        for finished in &iteration.finished_requests {
            values.add_finished(finished);
        }
    }
}

impl EngineValues {
    fn add_scheduler(&mut self, stats: &SchedulerStats) {
        self.prefix_cache_queries += stats.prefix_cache_stats.queries;
        self.prefix_cache_hits += stats.prefix_cache_stats.hits;
        self.restored_rows += u64::from(stats.num_restored_rows);
        if stats.num_scheduled_tokens > 0 {
            self.iteration_tokens
                .observe(f64::from(stats.num_scheduled_tokens));
        }
    }

    fn add_finished(&mut self, finished: &FinishedRequestStats) {
        let reason = finished.finish_reason.as_str();
        *self.request_success.entry(reason).or_default() += 1;
        let prompt = finished.num_prompt_tokens;
        self.request_prompt_tokens.observe(f64::from(prompt));
        let generated = finished.num_generation_tokens;
        self.request_generation_tokens.observe(f64::from(generated));
        if let Some(longest) = finished.max_num_generation_tokens {
            self.request_max_num_generation_tokens
                .observe(f64::from(longest));
        }
        self.request_num_preemptions
            .observe(f64::from(finished.num_preemptions));
        let computed = prompt.saturating_sub(finished.num_cached_tokens);
        self.request_prefill_kv_computed_tokens
            .observe(f64::from(computed));
        if let Some(max_tokens) = finished.max_tokens {
            self.request_params_max_tokens
                .observe(f64::from(max_tokens));
        }
        self.request_params_n.observe(f64::from(finished.n));
        self.e2e_request_latency.observe(finished.e2e_latency);
        self.request_queue_time.observe(finished.queued_time);
        self.request_prefill_time.observe(finished.prefill_time);
        self.request_decode_time.observe(finished.decode_time);
        self.request_inference_time.observe(finished.inference_time);
        if generated > 1 {
            self.time_per_output_token
                .observe(finished.mean_time_per_output_token);
        }
    }
}

/// 1, 2, 5, 10, 20, ... up to `max`.
fn one_two_five(max: u32) -> Vec<f64> {
    let decades = (0..10).flat_map(|exponent| [1, 2, 5].map(|m| m * 10_u64.pow(exponent)));
    #[allow(clippy::cast_precision_loss, reason = "at most 5e9")]
    decades
        .take_while(|bound| *bound <= u64::from(max))
        .map(|bound| bound as f64)
        .collect()
}

mod write;

#[cfg(test)]
mod tests;
