//! The prefix cache's hit rate, as the log's line has it.

use std::collections::VecDeque;

use protocol::PrefixCacheStats;

/// Requests whose lookups count, as in vLLM.
const MAX_RECENT_REQUESTS: u64 = 1000;

/// Hit rate over the lookups of the most recent requests. A rate of the last ten seconds would be zero
/// whenever no request was admitted in them.
#[derive(Debug, Default)]
pub(super) struct CachingMetrics {
    reports: VecDeque<PrefixCacheStats>,
    total: PrefixCacheStats,
}

impl CachingMetrics {
    /// Adds a step's lookups.
    pub(super) fn observe(&mut self, stats: PrefixCacheStats) {
        if stats.requests == 0 {
            return;
        }
        self.reports.push_back(stats);
        self.total.requests += stats.requests;
        self.total.queries += stats.queries;
        self.total.hits += stats.hits;
        while self.total.requests > MAX_RECENT_REQUESTS && self.reports.len() > 1 {
            let oldest = self.reports.pop_front().unwrap_or_default();
            self.total.requests -= oldest.requests;
            self.total.queries -= oldest.queries;
            self.total.hits -= oldest.hits;
        }
    }

    /// Share of the tokens looked up that were found, in percent; zero before the first lookup.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn hit_percent(&self) -> f64 {
        match self.total.queries {
            0 => 0.0,
            queries => 100.0 * self.total.hits as f64 / queries as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(requests: u64, queries: u64, hits: u64) -> PrefixCacheStats {
        PrefixCacheStats {
            requests,
            queries,
            hits,
        }
    }

    #[test]
    fn only_recent_requests_count() {
        let mut metrics = CachingMetrics::default();
        assert_eq!(metrics.hit_percent(), 0.0);
        metrics.observe(report(600, 1000, 0));
        metrics.observe(report(0, 0, 0));
        metrics.observe(report(400, 1000, 500));
        assert_eq!(metrics.hit_percent(), 25.0);
        // 1,001 requests: the first report goes.
        metrics.observe(report(1, 1000, 1000));
        assert_eq!(metrics.hit_percent(), 75.0);
        // A single report stays, however many requests it has.
        metrics.observe(report(5000, 10, 1));
        assert_eq!(metrics.hit_percent(), 10.0);
    }
}
