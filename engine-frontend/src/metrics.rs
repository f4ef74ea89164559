//! What the engine does, counted: totals of the core's reports ([`EngineMetrics`]), vLLM's
//! statistics per step and per request, and the loggers that show them ([`PrometheusStatLogger`]
//! for `/metrics`, [`LoggingStatLogger`] for people).

mod caching;
mod engine;
mod histogram;
mod http_requests;
mod logging;
mod prometheus;
mod stats;
mod text;
mod traced_request;

pub use engine::EngineMetrics;
pub use histogram::Histogram;
pub(crate) use http_requests::method_label;
pub use logging::LoggingStatLogger;
pub use prometheus::PrometheusStatLogger;
pub use stats::{FinishedRequestStats, IterationStats, RequestStateStats, StructuredEnds};
pub use traced_request::TracedRequest;

use protocol::SchedulerStats;

/// Hears of every step. It is called on the task that serves all streams: it must not wait.
pub trait StatLogger: std::fmt::Debug + Send + Sync {
    /// One step of the engine core of this number, as far as this frontend saw it.
    fn record(
        &self,
        engine_index: u32,
        scheduler: Option<&SchedulerStats>,
        iteration: &IterationStats,
    );

    /// Requests were sent to the core.
    fn record_arrival(&self) {}

    /// Says what there is to say, of an engine with so many unfinished requests. Called every few
    /// seconds.
    fn log(&self, num_unfinished: usize) {
        let _ = num_unfinished;
    }
}
