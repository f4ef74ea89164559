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
    /// Of these, tokens of prompts. Tokens from the prefix cache are not computed and not counted.
    pub num_prompt_tokens: u32,
    /// Requests preempted in this step.
    pub num_preempted_reqs: u32,
    /// Rows that sampling limits had emptied, and a guard restored, in this step.
    pub num_restored_rows: u32,
    /// Structured output since the last report; `None` where there was none.
    pub structured_output_stats: Option<StructuredOutputStats>,
    /// Drafts since the last report; `None` where there were none.
    pub spec_decoding_stats: Option<SpecDecodingStats>,
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

/// Structured output over some time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StructuredOutputStats {
    /// Seconds that each compilation took which ended in this time, whether it succeeded or not.
    pub compile_seconds: Vec<f64>,
    /// Requests whose grammar was there when they came, or was known to be refused.
    pub num_cache_hits: u64,
    /// Requests whose grammar was compiled after they came, for them or for another that wanted the same.
    pub num_cache_misses: u64,
    /// Requests that were refused because of their grammar.
    pub num_refused: u64,
    /// Grammars that are waiting for a compile thread, or being compiled, now.
    pub num_queued_grammars: u32,
    /// Grammars of requests under way that were compiled again, since the memory that they shared
    /// was full.
    pub num_renewed_grammars: u64,
    /// Answers of grammars that took more work than a step may, and were found aside while their requests
    /// waited.
    pub num_deferred_answers: u64,
    /// Steps with at least one mask.
    pub num_masked_steps: u64,
    /// Seconds spent making masks and forced text.
    pub fill_seconds: f64,
    /// Of these, seconds that the forward pass didn't hide.
    pub exposed_fill_seconds: f64,
    /// Rows that had a mask.
    pub num_masked_rows: u64,
    /// Rows that sampling limits would have emptied; the grammar won.
    pub num_overridden_rows: u64,
    /// Tokens of constrained requests, forced ones included.
    pub num_constrained_tokens: u64,
    /// Tokens that were appended without sampling.
    pub num_forced_tokens: u64,
    /// Rows of the LM head that all sampled positions together have.
    pub num_head_rows: u64,
    /// Of these, rows that a mask made superfluous.
    pub num_head_rows_skipped: u64,
    /// Requests that failed because their grammar refused a sampled token or gave no mask.
    pub num_rejections: u64,
    /// Constrained requests that ended with a complete output.
    pub num_completed: u64,
    /// Of these, requests that were led to their end because their tokens ran short.
    pub num_completed_by_budget: u64,
    /// Constrained requests that ended at a limit with an incomplete output.
    pub num_truncated: u64,
}

/// Speculative decoding over some time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpecDecodingStats {
    /// Drafts that were verified.
    pub num_drafts: u64,
    /// Their tokens.
    pub num_draft_tokens: u64,
    /// Of these, tokens that were right.
    pub num_accepted_tokens: u64,
    /// The same by position in the draft.
    pub num_accepted_tokens_per_pos: Vec<u64>,
    /// Tokens that a grammar cut off drafts before they were verified.
    pub num_invalid_tokens: u64,
}
