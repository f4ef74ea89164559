//! A trace of every request, sent to an OpenTelemetry collector.
//!
//! Spans and attributes have vLLM's names. A span begins when its request arrived and ends with the
//! answer (one for each of `n` answers, as in vLLM); its parent is the `traceparent` that the
//! request came with. The SDK queues spans, exports them in batches on a thread of its own, and
//! drops what a collector that is slow or gone leaves in a full queue: no request waits for one.

mod http_client;

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Uri;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use protocol::{FinishReason, SchedulerStats};

use self::http_client::CollectorClient;
use crate::metrics::{FinishedRequestStats, IterationStats, StatLogger};

/// How long one export may take, and the last one at the server's end.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes a span of every request that is over.
#[derive(Debug)]
pub(crate) struct OtlpTracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

impl OtlpTracer {
    /// A tracer whose spans go to this URL; call it within a tokio runtime, which then does the
    /// sending. `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`,
    /// `OTEL_TRACES_SAMPLER` and `OTEL_BSP_*` count as the SDK has them.
    ///
    /// # Errors
    /// The environment sets something that the exporter can't do.
    pub(crate) fn new(endpoint: &Uri) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient::new(EXPORT_TIMEOUT))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.to_string())
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("formwork");
        }
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Self {
            tracer: provider.tracer("formwork.llm_engine"),
            propagator: TraceContextPropagator::new(),
            provider,
        })
    }

    /// Sends what is queued, as far as the collector takes it in time. Later spans go nowhere.
    pub(crate) async fn shutdown(&self) {
        let provider = self.provider.clone();
        // It waits for the exporting thread, which needs this runtime.
        let shut_down =
            tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(EXPORT_TIMEOUT));
        if let Ok(Err(error)) = shut_down.await {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }

    fn trace(&self, finished: &FinishedRequestStats) {
        let traced = &finished.traced;
        let headers: HashMap<String, String> = traced.trace_headers.iter().cloned().collect();
        let parent = self
            .propagator
            .extract_with_context(&Context::new(), &headers);
        let start = time(traced.arrival_time);
        let builder = self
            .tracer
            .span_builder("llm_request")
            .with_kind(SpanKind::Server)
            .with_start_time(start)
            .with_attributes(attributes(finished));
        let mut span = self.tracer.build_with_context(builder, &parent);
        if finished.finish_reason == FinishReason::Error {
            span.set_status(Status::error("the engine failed on this request"));
        }
        span.end_with_timestamp(start + seconds(finished.e2e_latency));
    }
}

impl StatLogger for OtlpTracer {
    fn record(
        &self,
        _engine_index: u32,
        _scheduler: Option<&SchedulerStats>,
        iteration: &IterationStats,
    ) {
        for finished in &iteration.finished_requests {
            self.trace(finished);
        }
    }
}

/// vLLM's attributes. Times are in seconds.
fn attributes(finished: &FinishedRequestStats) -> Vec<KeyValue> {
    let traced = &finished.traced;
    let mut attributes = vec![
        KeyValue::new("gen_ai.request.id", traced.request_id.clone()),
        KeyValue::new("gen_ai.request.n", i64::from(finished.n)),
        KeyValue::new("gen_ai.request.temperature", f64::from(traced.temperature)),
        KeyValue::new("gen_ai.request.top_p", f64::from(traced.top_p)),
        KeyValue::new(
            "gen_ai.usage.prompt_tokens",
            i64::from(finished.num_prompt_tokens),
        ),
        KeyValue::new(
            "gen_ai.usage.completion_tokens",
            i64::from(finished.num_generation_tokens),
        ),
        KeyValue::new("gen_ai.latency.e2e", finished.e2e_latency),
        KeyValue::new("gen_ai.latency.time_in_queue", finished.queued_time),
        KeyValue::new(
            "gen_ai.latency.time_in_model_prefill",
            finished.prefill_time,
        ),
        KeyValue::new("gen_ai.latency.time_in_model_decode", finished.decode_time),
        KeyValue::new(
            "gen_ai.latency.time_in_model_inference",
            finished.inference_time,
        ),
    ];
    let max_tokens = finished.max_tokens.map(i64::from);
    attributes.extend(max_tokens.map(|n| KeyValue::new("gen_ai.request.max_tokens", n)));
    let first = finished.time_to_first_token;
    attributes.extend(first.map(|s| KeyValue::new("gen_ai.latency.time_to_first_token", s)));
    attributes
}

fn time(unix_seconds: f64) -> SystemTime {
    UNIX_EPOCH + seconds(unix_seconds)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests;
