//! The plain reference.

use std::cmp::Ordering;

/// Tokens with a finite logit, first by rank first.
pub(super) fn ranked(row: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..row.len() as u32)
        .filter(|&id| row[id as usize].is_finite())
        .collect();
    ids.sort_by(|&a, &b| {
        let (left, right) = (row[a as usize], row[b as usize]);
        right
            .partial_cmp(&left)
            .unwrap_or(Ordering::Equal)
            .then(a.cmp(&b))
    });
    ids
}

/// The settings that decide which tokens are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) temperature: f32,
    pub(super) min_p: f32,
    pub(super) top_k: u32,
    pub(super) top_p: f32,
}

/// `exp((logit - max) / temperature)` of the ranked tokens.
fn weights(row: &[f32], ids: &[u32], temperature: f32) -> Vec<f64> {
    let max = f64::from(row[ids[0] as usize]);
    ids.iter()
        .map(|&id| ((f64::from(row[id as usize]) - max) / f64::from(temperature)).exp())
        .collect()
}

/// How many of the ranked tokens are kept, with `slack` added to the two shares that are compared
/// with sums: a boundary that rounding may put on either side lies between the results for a
/// slack a little below and a little above 0.
pub(super) fn num_kept(row: &[f32], settings: Settings, slack: f64) -> usize {
    let mut ids = ranked(row);
    let weights = weights(row, &ids, settings.temperature);
    let min_p = f64::from(settings.min_p) * (1.0 - slack);
    ids.truncate(weights.iter().filter(|&&weight| weight >= min_p).count());
    if settings.top_k > 0 {
        ids.truncate(settings.top_k as usize);
    }
    if settings.top_p >= 1.0 {
        return ids.len();
    }
    let total: f64 = weights[..ids.len()].iter().sum();
    let mut sum = 0.0;
    for (kept, weight) in weights[..ids.len()].iter().enumerate() {
        sum += weight / total;
        if sum >= f64::from(settings.top_p) * (1.0 + slack) {
            return kept + 1;
        }
    }
    ids.len()
}

/// The probability of each token of the row after temperature and filters.
pub(super) fn probabilities(row: &[f32], settings: Settings) -> Vec<f64> {
    let mut kept = ranked(row);
    kept.truncate(num_kept(row, settings, 0.0));
    let weights = weights(row, &kept, settings.temperature);
    let total: f64 = weights.iter().sum();
    let mut probabilities = vec![0.0; row.len()];
    for (&id, weight) in kept.iter().zip(&weights) {
        probabilities[id as usize] = weight / total;
    }
    probabilities
}

/// Pearson's statistic of counts against probabilities, over the tokens with a probability. A
/// count where the probability is 0 makes it infinite.
pub(super) fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
    let draws: u32 = counts.iter().sum();
    counts
        .iter()
        .zip(probabilities)
        .map(|(&count, &probability)| {
            let expected = probability * f64::from(draws);
            match (count, expected > 0.0) {
                (0, false) => 0.0,
                (_, false) => f64::INFINITY,
                (count, true) => (f64::from(count) - expected).powi(2) / expected,
            }
        })
        .sum()
}

/// What Pearson's statistic exceeds in 1 of 10,000 cases when the probabilities are right
/// (Wilson and Hilferty 1931), with one less degree of freedom than tokens with a probability.
pub(super) fn critical_value(probabilities: &[f64]) -> f64 {
    const NORMAL_QUANTILE: f64 = 3.719;
    let freedom = probabilities
        .iter()
        .filter(|&&probability| probability > 0.0)
        .count()
        - 1;
    let freedom = freedom as f64;
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + NORMAL_QUANTILE * spread.sqrt()).powi(3)
}
