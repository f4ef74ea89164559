//! What the engine did since the start, added up from the core's reports.

use std::fmt;

use protocol::{SchedulerStats, SpecDecodingStats, StructuredOutputStats};

use super::histogram::Histogram;
use super::stats::StructuredEnds;

/// Upper bounds of the buckets of [`EngineMetrics::compile_seconds`]; more is in the last one.
const COMPILE_SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

/// What the engine did since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineMetrics {
    /// The last report, for what has a present value: requests running and waiting, the KV cache.
    pub scheduler: SchedulerStats,
    /// Totals of structured output; `num_queued_grammars` is the last value, and `compile_seconds`
    /// is empty, since [`Self::compile_seconds`] has them.
    pub structured_output: StructuredOutputStats,
    /// Seconds that compilations took.
    pub compile_seconds: Histogram,
    /// Totals of speculative decoding.
    pub spec_decoding: SpecDecodingStats,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            scheduler: SchedulerStats::default(),
            structured_output: StructuredOutputStats::default(),
            compile_seconds: Histogram::new(COMPILE_SECONDS),
            spec_decoding: SpecDecodingStats::default(),
        }
    }
}

impl EngineMetrics {
    /// Adds a report of the core.
    pub(crate) fn record(&mut self, mut stats: SchedulerStats) {
        if let Some(new) = stats.structured_output_stats.take() {
            self.add_structured_output(new);
        }
        if let Some(new) = stats.spec_decoding_stats.take() {
            self.add_spec_decoding(&new);
        }
        self.scheduler = stats;
    }

    /// What engine cores did together: totals and present values are sums, the KV cache's usage is their mean.
    pub(crate) fn together(engines: &[Self]) -> Self {
        let mut all = Self::default();
        for engine in engines {
            all.add_structured_output(engine.structured_output.clone());
            all.add_structured_ends(StructuredEnds {
                num_completed: engine.structured_output.num_completed,
                num_truncated: engine.structured_output.num_truncated,
            });
            all.compile_seconds.add(&engine.compile_seconds);
            all.add_spec_decoding(&engine.spec_decoding);
            all.add_scheduler(&engine.scheduler, engines.len());
        }
        // Each has its last value.
        let queued = engines
            .iter()
            .map(|e| e.structured_output.num_queued_grammars);
        all.structured_output.num_queued_grammars = queued.sum();
        all
    }

    fn add_scheduler(&mut self, engine: &SchedulerStats, num_engines: usize) {
        let all = &mut self.scheduler;
        all.num_running_reqs += engine.num_running_reqs;
        all.num_waiting_reqs += engine.num_waiting_reqs;
        #[allow(clippy::cast_precision_loss, reason = "at most 1024")]
        let share = engine.kv_cache_usage / num_engines as f64;
        all.kv_cache_usage += share;
        all.prefix_cache_stats.requests += engine.prefix_cache_stats.requests;
        all.prefix_cache_stats.queries += engine.prefix_cache_stats.queries;
        all.prefix_cache_stats.hits += engine.prefix_cache_stats.hits;
        all.num_scheduled_tokens += engine.num_scheduled_tokens;
        all.num_prompt_tokens += engine.num_prompt_tokens;
        all.num_preempted_reqs += engine.num_preempted_reqs;
        all.num_restored_rows += engine.num_restored_rows;
    }

    fn add_structured_output(&mut self, new: StructuredOutputStats) {
        // Every field by name: a new one can't be forgotten.
        let StructuredOutputStats {
            compile_seconds,
            num_cache_hits,
            num_cache_misses,
            num_refused,
            num_queued_grammars,
            num_renewed_grammars,
            num_deferred_answers,
            num_masked_steps,
            fill_seconds,
            exposed_fill_seconds,
            num_masked_rows,
            num_overridden_rows,
            num_constrained_tokens,
            num_forced_tokens,
            num_head_rows,
            num_head_rows_skipped,
            num_rejections,
            num_completed_by_budget,
            // The core sees no stop strings: an answer that one of these ended is an aborted one there.
            // See `add_structured_ends`.
            num_completed: _,
            num_truncated: _,
        } = new;
        for seconds in compile_seconds {
            self.compile_seconds.observe(seconds);
        }
        let total = &mut self.structured_output;
        total.num_cache_hits += num_cache_hits;
        total.num_cache_misses += num_cache_misses;
        total.num_refused += num_refused;
        total.num_queued_grammars = num_queued_grammars;
        total.num_renewed_grammars += num_renewed_grammars;
        total.num_deferred_answers += num_deferred_answers;
        total.num_masked_steps += num_masked_steps;
        total.fill_seconds += fill_seconds;
        total.exposed_fill_seconds += exposed_fill_seconds;
        total.num_masked_rows += num_masked_rows;
        total.num_overridden_rows += num_overridden_rows;
        total.num_constrained_tokens += num_constrained_tokens;
        total.num_forced_tokens += num_forced_tokens;
        total.num_head_rows += num_head_rows;
        total.num_head_rows_skipped += num_head_rows_skipped;
        total.num_rejections += num_rejections;
        total.num_completed_by_budget += num_completed_by_budget;
    }

    /// Adds how answers have ended.
    pub(crate) fn add_structured_ends(&mut self, ends: StructuredEnds) {
        self.structured_output.num_completed += ends.num_completed;
        self.structured_output.num_truncated += ends.num_truncated;
    }

    fn add_spec_decoding(&mut self, new: &SpecDecodingStats) {
        let SpecDecodingStats {
            num_drafts,
            num_draft_tokens,
            num_accepted_tokens,
            num_accepted_tokens_per_pos,
            num_invalid_tokens,
        } = new;
        let total = &mut self.spec_decoding;
        total.num_drafts += num_drafts;
        total.num_draft_tokens += num_draft_tokens;
        total.num_accepted_tokens += num_accepted_tokens;
        total.num_invalid_tokens += num_invalid_tokens;
        let per_pos = &mut total.num_accepted_tokens_per_pos;
        per_pos.resize(per_pos.len().max(num_accepted_tokens_per_pos.len()), 0);
        for (sum, new) in per_pos.iter_mut().zip(num_accepted_tokens_per_pos) {
            *sum += new;
        }
    }

    /// Structured output in one line; `None` where there was none.
    pub fn structured_output_summary(&self) -> Option<impl fmt::Display> {
        let used = self.structured_output.num_cache_hits + self.structured_output.num_cache_misses;
        (used > 0).then_some(Summary(self))
    }
}

/// The line for logs.
struct Summary<'a>(&'a EngineMetrics);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.0.structured_output;
        let requests = total.num_cache_hits + total.num_cache_misses;
        write!(
            f,
            "structured output: {requests} requests, {} grammars compiled in {:.3} s; {} tokens, \
             {} of them forced; {} of {} LM-head rows left out; masks {:.3} s, {:.3} s of it beside \
             no forward pass; {} complete ({} led to their end), {} cut off, {} refused, {} failed; \
             {} grammars compiled again for want of room",
            self.0.compile_seconds.count(),
            self.0.compile_seconds.sum(),
            total.num_constrained_tokens,
            total.num_forced_tokens,
            total.num_head_rows_skipped,
            total.num_head_rows,
            total.fill_seconds,
            total.exposed_fill_seconds,
            total.num_completed,
            total.num_completed_by_budget,
            total.num_truncated,
            total.num_refused,
            total.num_rejections,
            total.num_renewed_grammars,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up() {
        let mut metrics = EngineMetrics::default();
        for (seconds, queued) in [(0.0005, 3), (0.002, 1), (9.0, 0)] {
            metrics.record(SchedulerStats {
                num_running_reqs: 7,
                structured_output_stats: Some(StructuredOutputStats {
                    compile_seconds: vec![seconds],
                    num_cache_misses: 1,
                    num_queued_grammars: queued,
                    fill_seconds: 0.5,
                    num_forced_tokens: 2,
                    ..StructuredOutputStats::default()
                }),
                ..SchedulerStats::default()
            });
        }
        // A step that has nothing to say of it.
        metrics.record(SchedulerStats {
            num_running_reqs: 8,
            ..SchedulerStats::default()
        });
        assert_eq!(metrics.scheduler.num_running_reqs, 8);
        let total = &metrics.structured_output;
        assert_eq!((total.num_forced_tokens, total.num_cache_misses), (6, 3));
        assert_eq!((total.num_queued_grammars, total.fill_seconds), (0, 1.5));
        assert_eq!(metrics.compile_seconds.count(), 3);
        assert!((metrics.compile_seconds.sum() - 9.0025).abs() < 1e-9);
        let cumulative = metrics.compile_seconds.cumulative();
        assert_eq!(cumulative[0], (0.0005, 1), "a bound is part of its bucket");
        assert_eq!(cumulative[2], (0.0025, 2));
        assert_eq!(cumulative.last(), Some(&(f64::INFINITY, 3)));
    }

    #[test]
    fn drafts_add_up_by_position() {
        let mut metrics = EngineMetrics::default();
        for per_pos in [vec![3, 1], vec![1, 1, 1], vec![]] {
            metrics.record(SchedulerStats {
                spec_decoding_stats: Some(SpecDecodingStats {
                    num_drafts: 4,
                    num_accepted_tokens_per_pos: per_pos,
                    ..SpecDecodingStats::default()
                }),
                ..SchedulerStats::default()
            });
        }
        assert_eq!(metrics.spec_decoding.num_drafts, 12);
        assert_eq!(metrics.spec_decoding.num_accepted_tokens_per_pos, [4, 2, 1]);
    }

    #[test]
    fn no_line_without_constraints() {
        let mut metrics = EngineMetrics::default();
        assert!(metrics.structured_output_summary().is_none());
        metrics.structured_output.num_cache_hits = 2;
        let line = metrics.structured_output_summary().unwrap().to_string();
        assert!(line.starts_with("structured output: 2 requests"), "{line}");
    }
}
