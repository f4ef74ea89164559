//! What the scheduler reports about itself.

use serde::{Deserialize, Serialize};

/// The scheduler's state after a step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// Requests that hold KV blocks.
    pub num_running_reqs: u32,
    /// Requests in the queue.
    pub num_waiting_reqs: u32,
    /// Used share of the KV cache, `0..=1`.
    pub kv_cache_usage: f64,
    /// Prefix cache use since the last report.
    pub prefix_cache_stats: PrefixCacheStats,
    /// Tokens that this step put through the model.
    pub num_scheduled_tokens: u32,
    /// Requests preempted in this step.
    pub num_preempted_reqs: u32,
    /// Rows that sampling limits had emptied, and a guard restored, in this step.
    pub num_restored_rows: u32,
}

/// Use of the prefix cache over some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefixCacheStats {
    /// Requests admitted.
    pub requests: u64,
    /// Tokens looked up.
    pub queries: u64,
    /// Tokens found.
    pub hits: u64,
}
