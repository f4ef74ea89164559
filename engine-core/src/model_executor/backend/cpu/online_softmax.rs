//! The online softmax of attention: scores become weights a span at a time, and what was summed
//! before is rescaled to the new maximum (Milakov and Gimelshein, 2018).

use super::simd::{self, LANES, Simd, dispatch};

/// Positions per step.
pub(crate) const SPAN: usize = 64;

/// Turns one row's scores into weights and rescales its sums to the new maximum. Scores outside
/// `visible_from..visible_to` get weight 0 exactly.
#[inline(always)]
unsafe fn softmax_step_body<S: Simd>(
    scores: *mut f32,
    visible_from: usize,
    visible_to: usize,
    maximum: *mut f32,
    weights: *mut f32,
    sums: *mut f32,
    value_width: usize,
) {
    let whole = visible_from == 0 && visible_to == SPAN;
    let hide = |value: f32| {
        for hidden in (0..visible_from).chain(visible_to..SPAN) {
            // SAFETY: within the 64 scores of the row.
            unsafe { *scores.add(hidden) = value };
        }
    };
    // SAFETY: 64 scores, one maximum, 16 weights and `value_width` sums belong to this row.
    unsafe {
        if !whole {
            hide(f32::NEG_INFINITY);
        }
        let mut largest = S::load(scores);
        for vec in 1..SPAN / LANES {
            largest = S::max(largest, S::load(scores.add(vec * LANES)));
        }
        let (old, new) = (*maximum, S::max_lane(largest).max(*maximum));
        let mut weight = S::load(weights);
        if new > old {
            // The first time `old` is minus infinity and the sums are 0.
            let factor = simd::exp::<S>(S::splat(old - new));
            weight = S::mul(weight, factor);
            for dim in (0..value_width).step_by(LANES) {
                S::store(sums.add(dim), S::mul(S::load(sums.add(dim)), factor));
            }
            *maximum = new;
        }
        for vec in 0..SPAN / LANES {
            let score = S::load(scores.add(vec * LANES));
            S::store(
                scores.add(vec * LANES),
                simd::exp::<S>(S::sub(score, S::splat(new))),
            );
        }
        if !whole {
            hide(0.0);
        }
        for vec in 0..SPAN / LANES {
            weight = S::add(weight, S::load(scores.add(vec * LANES)));
        }
        S::store(weights, weight);
    }
}

dispatch! {
    /// Takes one row's scores into its running maximum, weights and sums.
    ///
    /// # Safety
    /// 64 scores, one maximum, 16 weights and `value_width` (whole vectors) sums must be valid.
    pub(crate) unsafe fn softmax_step(
        scores: *mut f32, visible_from: usize, visible_to: usize, maximum: *mut f32,
        weights: *mut f32, sums: *mut f32, value_width: usize,
    ) = softmax_step_body
}

/// Adds the sums of the positions that follow to those of one row. What has seen nothing adds
/// nothing.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a row's sums, twice")]
unsafe fn merge_row_body<S: Simd>(
    maximum: *mut f32,
    weights: *mut f32,
    sums: *mut f32,
    next_maximum: *const f32,
    next_weights: *const f32,
    next_sums: *const f32,
    value_width: usize,
) {
    // SAFETY: one maximum, 16 weights and `value_width` sums belong to either side.
    unsafe {
        let (old, next) = (*maximum, *next_maximum);
        if next == f32::NEG_INFINITY {
            return;
        }
        let new = old.max(next);
        // Sums of nothing are 0, whatever they are multiplied with.
        let factor = simd::exp::<S>(S::splat(old - new));
        let next_factor = simd::exp::<S>(S::splat(next - new));
        let weight = S::mul(S::load(weights), factor);
        S::store(weights, S::fma(S::load(next_weights), next_factor, weight));
        for dim in (0..value_width).step_by(LANES) {
            let sum = S::mul(S::load(sums.add(dim)), factor);
            let sum = S::fma(S::load(next_sums.add(dim)), next_factor, sum);
            S::store(sums.add(dim), sum);
        }
        *maximum = new;
    }
}

dispatch! {
    /// Adds one row's maximum, weights and sums over the positions that follow to those before.
    ///
    /// # Safety
    /// On either side one maximum, 16 weights and `value_width` (whole vectors) sums must be valid.
    pub(crate) unsafe fn merge_row(
        maximum: *mut f32, weights: *mut f32, sums: *mut f32, next_maximum: *const f32,
        next_weights: *const f32, next_sums: *const f32, value_width: usize,
    ) = merge_row_body
}
