//! Order statistics of measured values.

use std::time::Duration;

/// Where the values of a sample lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Values.
    pub count: usize,
    /// Half of the values are at most this.
    pub p50: Duration,
    /// 99 of 100 values are at most this.
    pub p99: Duration,
    /// The largest value.
    pub max: Duration,
}

impl Summary {
    /// The summary of a sample in any order; all zeros for an empty one.
    pub fn of(mut sample: Vec<Duration>) -> Self {
        sample.sort_unstable();
        Self {
            count: sample.len(),
            p50: percentile(&sample, 50),
            p99: percentile(&sample, 99),
            max: sample.last().copied().unwrap_or_default(),
        }
    }
}

/// The smallest value of an ascending sample that at least `percent` of 100 values don't exceed
/// (the nearest-rank percentile); zero for an empty sample.
fn percentile(ascending: &[Duration], percent: usize) -> Duration {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied().unwrap_or_default()
}

/// The values below which a quarter, a half and three quarters of a sample lie (the nearest of its values);
/// zeros for an empty one.
pub fn quartiles(mut sample: Vec<f64>) -> [f64; 3] {
    sample.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| {
        let rank = (sample.len() * quarter).div_ceil(4).max(1);
        sample.get(rank - 1).copied().unwrap_or_default()
    })
}

/// The median of a sample in any order: of an even number of values the mean of the two in the
/// middle. `None` for an empty sample.
pub fn median(mut sample: Vec<f64>) -> Option<f64> {
    sample.sort_unstable_by(f64::total_cmp);
    let middle = sample.len() / 2;
    let upper = *sample.get(middle)?;
    match sample.len() % 2 {
        0 => Some((sample[middle - 1] + upper) / 2.0),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[u64]) -> Vec<Duration> {
        values.iter().copied().map(Duration::from_micros).collect()
    }

    #[test]
    fn quartiles_are_values_of_the_sample() {
        let sample = (1..=8).rev().map(f64::from).collect();
        assert_eq!(quartiles(sample), [2.0, 4.0, 6.0]);
        assert_eq!(quartiles(vec![7.0]), [7.0; 3]);
        assert_eq!(quartiles(Vec::new()), [0.0; 3]);
    }

    #[test]
    fn percentiles_are_values_of_the_sample() {
        let summary = Summary::of(sample(&[5, 1, 4, 2, 3]));
        let expected = Summary {
            count: 5,
            p50: Duration::from_micros(3),
            p99: Duration::from_micros(5),
            max: Duration::from_micros(5),
        };
        assert_eq!(summary, expected);
        // 198 of 200 values are at most 198.
        let summary = Summary::of(sample(&(1..=200).collect::<Vec<_>>()));
        assert_eq!(summary.p99, Duration::from_micros(198));
        assert_eq!(summary.p50, Duration::from_micros(100));
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_zero() {
        let summary = Summary::of(sample(&[7]));
        assert_eq!(
            [summary.p50, summary.p99, summary.max],
            [Duration::from_micros(7); 3]
        );
        assert_eq!(Summary::of(Vec::new()), Summary::default());
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
