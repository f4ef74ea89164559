//! Observations by size.

/// Observations by size, as Prometheus has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Upper bounds, ascending; a last bucket takes what is above.
    bounds: Vec<f64>,
    /// One count per bucket, each of its own: not cumulative.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new(bounds: impl Into<Vec<f64>>) -> Self {
        let bounds = bounds.into();
        Self {
            counts: vec![0; bounds.len() + 1],
            bounds,
            sum: 0.0,
        }
    }

    /// Adds one.
    pub(crate) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Adds the observations of another one of the same buckets.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// Upper bounds with how many observations are at most that, and infinity with all of them.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let mut so_far = 0;
        bounds
            .zip(&self.counts)
            .map(|(bound, count)| {
                so_far += count;
                (bound, so_far)
            })
            .collect()
    }

    /// Observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}
