//! A line of statistics in the log every few seconds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::SchedulerStats;

use super::{IterationStats, StatLogger};

/// How often, as in vLLM.
const INTERVAL: Duration = Duration::from_secs(10);

/// Logs throughput, queue and cache use every ten seconds while there is something to say.
#[derive(Debug)]
pub struct LoggingStatLogger(Mutex<Interval>);

#[derive(Debug)]
struct Interval {
    since: Instant,
    num_prompt_tokens: u64,
    num_generation_tokens: u64,
    cache_queries: u64,
    cache_hits: u64,
}

impl Interval {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            num_prompt_tokens: 0,
            num_generation_tokens: 0,
            cache_queries: 0,
            cache_hits: 0,
        }
    }
}

impl LoggingStatLogger {
    /// A logger whose first interval begins now.
    pub fn new() -> Self {
        Self(Mutex::new(Interval::new()))
    }
}

impl Default for LoggingStatLogger {
    fn default() -> Self {
        Self::new()
    }
}

impl StatLogger for LoggingStatLogger {
    fn record(&self, scheduler: Option<&SchedulerStats>, iteration: &IterationStats) {
        let mut interval = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        interval.num_prompt_tokens += iteration.num_prompt_tokens;
        interval.num_generation_tokens += iteration.num_generation_tokens;
        let Some(scheduler) = scheduler else { return };
        interval.cache_queries += scheduler.prefix_cache_stats.queries;
        interval.cache_hits += scheduler.prefix_cache_stats.hits;
        let elapsed = interval.since.elapsed();
        if elapsed < INTERVAL {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 in one interval")]
        let rate = |tokens: u64| tokens as f64 / seconds;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 in one interval")]
        let hit_rate = match interval.cache_queries {
            0 => 0.0,
            queries => 100.0 * interval.cache_hits as f64 / queries as f64,
        };
        tracing::info!(
            "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} \
             tokens/s, Running: {} reqs, Waiting: {} reqs, KV cache usage: {:.1}%, Prefix cache \
             hit rate: {hit_rate:.1}%",
            rate(interval.num_prompt_tokens),
            rate(interval.num_generation_tokens),
            scheduler.num_running_reqs,
            scheduler.num_waiting_reqs,
            100.0 * scheduler.kv_cache_usage,
        );
        *interval = Interval::new();
    }
}
