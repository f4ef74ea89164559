//! The online softmax of attention: scores become weights a span at a time, and what was summed
//! before is rescaled to the new maximum (Milakov and Gimelshein, 2018).

use std::ops::Range;

use super::simd::{self, LANES, Simd, dispatch};

/// Positions per step.
pub(crate) const SPAN: usize = 64;

/// Turns rows of scores into weights and rescales their sums to the new maxima. Scores outside of what a
/// row sees get weight 0 exactly.
///
/// It goes by steps rather than by rows: a row's steps wait for one another, those of several rows don't.
#[inline(always)]
unsafe fn softmax_rows_body<S: Simd>(
    scores: *mut f32,
    visible: &[Range<usize>],
    maxima: *mut f32,
    weights: *mut f32,
    sums: *mut f32,
    value_width: usize,
) {
    // SAFETY: 64 scores, one maximum, 16 weights and `value_width` sums belong to each row.
    unsafe {
        for (block, visible) in visible.chunks(LANES).enumerate() {
            let first = block * LANES;
            let scores = scores.add(first * SPAN);
            // By how much the sums shrink.
            let (mut old, mut new) = ([0.0; LANES], [0.0; LANES]);
            for (row, visible) in visible.iter().enumerate() {
                let scores = scores.add(row * SPAN);
                hide(scores, visible, f32::NEG_INFINITY);
                let mut largest = S::load(scores);
                for vec in 1..SPAN / LANES {
                    largest = S::max(largest, S::load(scores.add(vec * LANES)));
                }
                old[row] = *maxima.add(first + row);
                new[row] = S::max_lane(largest).max(old[row]);
            }
            let mut factors = [0.0; LANES];
            // The first time `old` is minus infinity and the sums are 0.
            let shrunk = simd::exp::<S>(S::sub(S::load(old.as_ptr()), S::load(new.as_ptr())));
            S::store(factors.as_mut_ptr(), shrunk);
            for (row, visible) in visible.iter().enumerate() {
                let scores = scores.add(row * SPAN);
                let weights = weights.add((first + row) * LANES);
                let mut weight = S::load(weights);
                if new[row] > old[row] {
                    let factor = S::splat(factors[row]);
                    weight = S::mul(weight, factor);
                    let sums = sums.add((first + row) * value_width);
                    for dim in (0..value_width).step_by(LANES) {
                        S::store(sums.add(dim), S::mul(S::load(sums.add(dim)), factor));
                    }
                    *maxima.add(first + row) = new[row];
                }
                for vec in 0..SPAN / LANES {
                    let score = S::load(scores.add(vec * LANES));
                    S::store(
                        scores.add(vec * LANES),
                        simd::exp::<S>(S::sub(score, S::splat(new[row]))),
                    );
                }
                hide(scores, visible, 0.0);
                for vec in 0..SPAN / LANES {
                    weight = S::add(weight, S::load(scores.add(vec * LANES)));
                }
                S::store(weights, weight);
            }
        }
    }
}

/// Writes `value` to the 64 scores outside of `visible`.
///
/// # Safety
/// `scores` must be valid for 64 values.
#[inline(always)]
unsafe fn hide(scores: *mut f32, visible: &Range<usize>, value: f32) {
    for hidden in (0..visible.start).chain(visible.end..SPAN) {
        // SAFETY: within the 64 scores of the row.
        unsafe { *scores.add(hidden) = value };
    }
}

dispatch! {
    /// Takes the scores of as many rows as `visible` has into their running maxima, weights and sums.
    ///
    /// # Safety
    /// 64 scores, one maximum, 16 weights and `value_width` (whole vectors) sums of each row must be valid.
    pub(crate) unsafe fn softmax_rows(
        scores: *mut f32, visible: &[Range<usize>], maxima: *mut f32, weights: *mut f32,
        sums: *mut f32, value_width: usize,
    ) = softmax_rows_body
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
