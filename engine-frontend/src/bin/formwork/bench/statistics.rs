//! Means and percentiles.

/// Figures of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    pub(super) mean: f64,
    pub(super) median: f64,
    /// Of the sample as a whole population, as in vLLM.
    pub(super) standard_deviation: f64,
    /// Percentiles with their values.
    pub(super) percentiles: Vec<(f64, f64)>,
}

impl Summary {
    /// Sums up a sample; all zeros where it is empty. O(n log n).
    pub(super) fn new(mut sample: Vec<f64>, percentiles: &[f64]) -> Self {
        sample.sort_by(f64::total_cmp);
        let count = sample.len().max(1) as f64;
        let mean = sample.iter().sum::<f64>() / count;
        let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        Self {
            mean,
            median: percentile(&sample, 50.0),
            standard_deviation: variance.sqrt(),
            percentiles: percentiles
                .iter()
                .map(|p| (*p, percentile(&sample, *p)))
                .collect(),
        }
    }
}

/// A percentile of a sorted sample, between two of its values in proportion, as NumPy has it.
fn percentile(sorted: &[f64], percentile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let rank = percentile / 100.0 * last as f64;
    let below = rank.floor() as usize;
    let value = |at: usize| sorted.get(at.min(last)).copied().unwrap_or(0.0);
    value(below) + (value(below + 1) - value(below)) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_numpy() {
        let summary = Summary::new(vec![4.0, 1.0, 3.0, 2.0], &[0.0, 25.0, 90.0, 99.0, 100.0]);
        assert_eq!(summary.mean, 2.5);
        assert_eq!(summary.median, 2.5);
        assert!((summary.standard_deviation - 1.118_033_988_749_895).abs() < 1e-12);
        let values: Vec<f64> = summary.percentiles.iter().map(|p| p.1).collect();
        for (value, numpy) in values.iter().zip([1.0, 1.75, 3.7, 3.97, 4.0]) {
            assert!((value - numpy).abs() < 1e-12, "{values:?}");
        }
    }

    #[test]
    fn small_samples() {
        assert_eq!(Summary::new(Vec::new(), &[99.0]).percentiles, [(99.0, 0.0)]);
        let one = Summary::new(vec![7.0], &[1.0, 99.0]);
        assert_eq!(
            (one.mean, one.median, one.standard_deviation),
            (7.0, 7.0, 0.0)
        );
        assert_eq!(one.percentiles, [(1.0, 7.0), (99.0, 7.0)]);
    }
}
