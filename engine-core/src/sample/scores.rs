//! The probabilities of chosen tokens, as if nothing else could come.

use super::math;

/// The log-softmax of a row over `token_ids` alone, beside them. All NaN where one of their logits is, or none is
/// finite: then they tell nothing.
pub(crate) fn log_softmax_of(row: &[f32], token_ids: &[u32]) -> Vec<f32> {
    let logits = token_ids
        .iter()
        .map(|&id| row.get(id as usize).map_or(f64::NAN, |&l| f64::from(l)));
    let max = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let is_told = max.is_finite() && !logits.clone().any(f64::is_nan);
    if !is_told {
        return vec![f32::NAN; token_ids.len()];
    }
    let log_sum = math::ln(logits.clone().map(|logit| math::exp(logit - max)).sum());
    logits.map(|logit| (logit - max - log_sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_tokens_share_the_probability() {
        let row = [3.0, 1.0, f32::NEG_INFINITY, 100.0, 1.0];
        let scores = log_softmax_of(&row, &[0, 4, 2]);
        let total = 1.0 + (-2.0_f32).exp();
        assert!((scores[0] + total.ln()).abs() < 1e-6);
        assert!((scores[1] + 2.0 + total.ln()).abs() < 1e-6);
        assert_eq!(scores[2], f32::NEG_INFINITY);
        // Large logits don't overflow.
        let scores = log_softmax_of(&[1e30, 1e30], &[0, 1]);
        assert!(scores.iter().all(|s| (s + 2.0_f32.ln()).abs() < 1e-6));
    }

    #[test]
    fn logits_that_tell_nothing_are_told_as_such() {
        for row in [
            [f32::NAN, 1.0],
            [f32::INFINITY, 1.0],
            [f32::NEG_INFINITY, f32::NEG_INFINITY],
        ] {
            let scores = log_softmax_of(&row, &[0, 1]);
            assert!(scores.iter().all(|score| score.is_nan()), "{row:?}");
        }
        assert!(log_softmax_of(&[1.0], &[0, 7])[0].is_nan());
    }
}
