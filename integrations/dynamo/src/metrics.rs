//! What Dynamo's router and planner read of the engine: how full the KV cache is.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dynamo_backend_common::{ComponentSnapshot, SnapshotPublisher};
use engine_frontend::SchedulerStats;
use engine_frontend::metrics::{IterationStats, StatLogger};

/// The one data-parallel rank that a worker is to Dynamo, however many cores it has.
pub const RANK: u32 = 0;

/// Publishes a snapshot after each step of a core: the cores' KV caches together.
#[derive(Default)]
pub struct Snapshots {
    publisher: OnceLock<Arc<SnapshotPublisher>>,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// KV blocks of each core, and the share of them that is used.
    cores: Vec<(u64, f64)>,
    /// Tokens looked up in the prefix caches since the start, and found.
    queries: u64,
    hits: u64,
}

impl Snapshots {
    /// Of cores with so many KV blocks each.
    pub fn new(num_blocks: impl IntoIterator<Item = u32>) -> Self {
        let cores = num_blocks
            .into_iter()
            .map(|blocks| (u64::from(blocks), 0.0));
        Self {
            publisher: OnceLock::new(),
            counted: Mutex::new(Counted {
                cores: cores.collect(),
                ..Counted::default()
            }),
        }
    }

    /// Takes the publisher, once Dynamo has made it. Later calls have no effect.
    pub fn publish_by(&self, publisher: Arc<SnapshotPublisher>) {
        self.publisher.get_or_init(|| publisher);
    }
}

impl Counted {
    fn snapshot(&self) -> ComponentSnapshot {
        let used = self
            .cores
            .iter()
            .map(|(blocks, share)| *blocks as f64 * share);
        let used: f64 = used.sum();
        let total = self.cores.iter().map(|(blocks, _)| blocks).sum();
        let share = |part: f64, whole: u64| (part / whole.max(1) as f64) as f32;
        ComponentSnapshot {
            kv_used_blocks: used.round() as u64,
            kv_total_blocks: total,
            gpu_cache_usage: share(used, total),
            kv_cache_hit_rate: (self.queries > 0).then(|| share(self.hits as f64, self.queries)),
            dp_rank: RANK,
        }
    }
}

impl std::fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshots")
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}

impl StatLogger for Snapshots {
    fn record(
        &self,
        engine_index: u32,
        scheduler: Option<&SchedulerStats>,
        _iteration: &IterationStats,
    ) {
        let Some(stats) = scheduler else { return };
        let snapshot = {
            // Numbers are never half-written.
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, share)) = counted.cores.get_mut(engine_index as usize) {
                *share = stats.kv_cache_usage;
            }
            counted.queries += stats.prefix_cache_stats.queries;
            counted.hits += stats.prefix_cache_stats.hits;
            counted.snapshot()
        };
        if let Some(publisher) = self.publisher.get() {
            publisher.publish(RANK, snapshot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_told_together() {
        let snapshots = Snapshots::new([100, 300]);
        let told = |snapshots: &Snapshots| snapshots.counted.lock().unwrap().snapshot();
        assert_eq!(told(&snapshots).kv_cache_hit_rate, None);
        let mut stats = SchedulerStats {
            kv_cache_usage: 0.5,
            ..SchedulerStats::default()
        };
        stats.prefix_cache_stats.queries = 40;
        stats.prefix_cache_stats.hits = 10;
        snapshots.record(0, Some(&stats), &IterationStats::default());
        stats.kv_cache_usage = 0.25;
        snapshots.record(1, Some(&stats), &IterationStats::default());
        // None of a core that there isn't.
        snapshots.record(2, None, &IterationStats::default());
        let expected = ComponentSnapshot {
            kv_used_blocks: 125,
            kv_total_blocks: 400,
            gpu_cache_usage: 0.3125,
            kv_cache_hit_rate: Some(0.25),
            dp_rank: RANK,
        };
        assert_eq!(told(&snapshots), expected);
    }
}
