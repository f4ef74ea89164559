//! The online softmax of attention: scores become weights a span at a time, and what was summed
//! before is rescaled to the new maximum (Milakov and Gimelshein, 2018).

use std::ops::Range;

use super::simd::{self, LANES, Simd, dispatch};

/// Positions per step.
pub(crate) const SPAN: usize = 64;

/// Bounds for lanes that come before a place and after it: 64 of the first kind, then as many of the other.
const fn bounds(before: f32, after: f32) -> [f32; 2 * SPAN] {
    let mut bounds = [before; 2 * SPAN];
    let mut at = SPAN;
    while at < 2 * SPAN {
        bounds[at] = after;
        at += 1;
    }
    bounds
}

/// Hidden, then visible.
static FROM_START: [f32; 2 * SPAN] = bounds(f32::NEG_INFINITY, f32::INFINITY);
/// Visible, then hidden.
static TO_END: [f32; 2 * SPAN] = bounds(f32::INFINITY, f32::NEG_INFINITY);

/// Whether a row sees the 16 positions from `first` on.
#[inline(always)]
fn sees_all(visible: &Range<usize>, first: usize) -> bool {
    visible.start <= first && first + LANES <= visible.end
}

/// Plus infinity for each of 16 positions from `first` on that a row sees, minus infinity for others.
///
/// # Safety
/// The processor must have the level of `S`; `visible` and the positions must lie within the span.
#[inline(always)]
unsafe fn visible_lanes<S: Simd>(visible: &Range<usize>, first: usize) -> S::V {
    // SAFETY: 64 less at most 64, and at most 48 more, are 16 places of 128.
    unsafe {
        S::min(
            S::load(FROM_START.as_ptr().add(SPAN - visible.start + first)),
            S::load(TO_END.as_ptr().add(SPAN - visible.end + first)),
        )
    }
}

/// Turns rows of scores into weights and rescales their sums to the new maxima, unless they are `fresh`: then
/// maxima and weights are set, and sums are left for whoever adds the first values. Scores outside of what a
/// row sees get weight 0 exactly, if any row sees one of the 16 positions beside them; others are left.
///
/// It goes by steps rather than by rows: a row's steps wait for one another, those of several rows don't.
/// What is hidden is written by whole vectors: a vector that is read after parts of it were written waits
/// until those have reached the cache.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a row's sums")]
unsafe fn softmax_rows_body<S: Simd>(
    scores: *mut f32,
    visible: &[Range<usize>],
    maxima: *mut f32,
    weights: *mut f32,
    sums: *mut f32,
    value_width: usize,
    fresh: bool,
) {
    // What any row sees, by vectors.
    let start = visible.iter().map(|row| row.start).min().unwrap_or(0) / LANES * LANES;
    let end = visible.iter().map(|row| row.end).max().unwrap_or(0);
    // SAFETY: 64 scores, one maximum, 16 weights and `value_width` sums belong to each row.
    unsafe {
        for (block, visible) in visible.chunks(LANES).enumerate() {
            let first = block * LANES;
            let scores = scores.add(first * SPAN);
            // By how much the sums shrink.
            let (mut old, mut new) = ([0.0; LANES], [0.0; LANES]);
            for (row, visible) in visible.iter().enumerate() {
                let scores = scores.add(row * SPAN);
                let mut largest = S::splat(f32::NEG_INFINITY);
                for vec in (start..end).step_by(LANES) {
                    let mut score = S::load(scores.add(vec));
                    if !sees_all(visible, vec) {
                        // NaN that is seen becomes infinite here, of which NaN comes again.
                        score = S::min(score, visible_lanes::<S>(visible, vec));
                        S::store(scores.add(vec), score);
                    }
                    largest = S::max(largest, score);
                }
                old[row] = match fresh {
                    true => f32::NEG_INFINITY,
                    false => *maxima.add(first + row),
                };
                new[row] = S::max_lane(largest).max(old[row]);
            }
            let mut factors = [0.0; LANES];
            if !fresh {
                let shrunk = simd::exp::<S>(S::sub(S::load(old.as_ptr()), S::load(new.as_ptr())));
                S::store(factors.as_mut_ptr(), shrunk);
            }
            for (row, visible) in visible.iter().enumerate() {
                let scores = scores.add(row * SPAN);
                let weights = weights.add((first + row) * LANES);
                let mut weight = S::splat(0.0);
                if !fresh {
                    weight = S::load(weights);
                }
                if !fresh && new[row] > old[row] {
                    let factor = S::splat(factors[row]);
                    weight = S::mul(weight, factor);
                    let sums = sums.add((first + row) * value_width);
                    for dim in (0..value_width).step_by(LANES) {
                        S::store(sums.add(dim), S::mul(S::load(sums.add(dim)), factor));
                    }
                }
                *maxima.add(first + row) = new[row];
                let largest = S::splat(new[row]);
                for vec in (start..end).step_by(LANES) {
                    let mut part = simd::exp::<S>(S::sub(S::load(scores.add(vec)), largest));
                    if !sees_all(visible, vec) {
                        let lanes = visible_lanes::<S>(visible, vec);
                        // 1 where the row sees, 0 where it doesn't.
                        let seen = S::max(S::splat(0.0), S::min(S::splat(1.0), lanes));
                        part = S::mul(part, seen);
                    }
                    S::store(scores.add(vec), part);
                    weight = S::add(weight, part);
                }
                S::store(weights, weight);
            }
        }
    }
}

dispatch! {
    /// Takes the scores of as many rows as `visible` has into their running maxima, weights and sums.
    ///
    /// # Safety
    /// 64 scores, one maximum, 16 weights and `value_width` (whole vectors) sums of each row must be valid,
    /// the last three for writing only where they are `fresh`; rows see positions within the 64.
    pub(crate) unsafe fn softmax_rows(
        scores: *mut f32, visible: &[Range<usize>], maxima: *mut f32, weights: *mut f32,
        sums: *mut f32, value_width: usize, fresh: bool,
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

/// Writes the weighted means of some rows one after the other.
#[inline(always)]
unsafe fn weighted_means_body<S: Simd>(
    weights: *const f32,
    values: *const f32,
    value_width: usize,
    rows: usize,
    to: *mut f32,
    width: usize,
) {
    // SAFETY: 16 weights and `value_width` values, no fewer than `width`, belong to each row.
    unsafe {
        let whole = width - width % LANES;
        for row in 0..rows {
            let weights = std::slice::from_raw_parts(weights.add(row * LANES), LANES);
            let inverse = S::splat(1.0 / weights.iter().sum::<f32>());
            let (values, to) = (values.add(row * value_width), to.add(row * width));
            for dim in (0..whole).step_by(LANES) {
                S::store(to.add(dim), S::mul(S::load(values.add(dim)), inverse));
            }
            if whole < width {
                let means = S::mul(S::load(values.add(whole)), inverse);
                simd::store_first::<S>(to.add(whole), means, width - whole);
            }
        }
    }
}

dispatch! {
    /// Writes the weighted means of rows that stand one after the other.
    ///
    /// # Safety
    /// 16 weights and `value_width` (whole vectors, no fewer than `width`) sums of each row must be valid,
    /// and `width` values of each at `to`.
    pub(crate) unsafe fn weighted_means(
        weights: *const f32, values: *const f32, value_width: usize, rows: usize, to: *mut f32,
        width: usize,
    ) = weighted_means_body
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tests::{Random, close};
    use super::super::simd::SimdLevel;
    use super::*;

    const WIDTH: usize = 32;

    /// Rows' maxima, weights and sums.
    type Sums = (Vec<f32>, Vec<f32>, Vec<f32>);

    fn take(
        level: SimdLevel,
        scores: &mut [f32],
        visible: &[Range<usize>],
        sums: &mut Sums,
        fresh: bool,
    ) {
        let (maxima, weights, values) = sums;
        // SAFETY: all are as long as the rows need, and the ranges lie within a span.
        unsafe {
            softmax_rows(
                level,
                scores.as_mut_ptr(),
                visible,
                maxima.as_mut_ptr(),
                weights.as_mut_ptr(),
                values.as_mut_ptr(),
                WIDTH,
                fresh,
            );
        }
    }

    #[test]
    fn hidden_scores_weigh_nothing_and_fresh_sums_are_those_of_nothing_gathered() {
        let mut random = Random(5);
        for level in SimdLevel::all_in_test() {
            for start in 0..SPAN {
                // Some rows see other parts of the same vectors.
                let visible: Vec<Range<usize>> = (0..5)
                    .map(|row| start..(start + 1 + row * 17).min(SPAN))
                    .collect();
                let mut scores = random.values(5 * SPAN);
                scores.iter_mut().for_each(|score| *score *= 20.0);
                let before = scores.clone();
                for (row, visible) in visible.iter().enumerate() {
                    let hidden = (0..visible.start).chain(visible.end..SPAN);
                    for (index, at) in hidden.enumerate() {
                        let anything = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
                        scores[row * SPAN + at] = anything[index % 4];
                    }
                }
                let mut again = scores.clone();
                // What is fresh may hold anything.
                let mut fresh = (vec![f32::NAN; 5], vec![f32::NAN; 80], vec![1.0; 160]);
                take(level, &mut scores, &visible, &mut fresh, true);
                let mut cleared = (vec![f32::NEG_INFINITY; 5], vec![0.0; 80], vec![0.0; 160]);
                take(level, &mut again, &visible, &mut cleared, false);
                assert_eq!(fresh.0, cleared.0);
                assert_eq!(fresh.1, cleared.1);
                for (row, visible) in visible.iter().enumerate() {
                    let seen = &before[row * SPAN..][visible.clone()];
                    let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    assert_eq!(fresh.0[row], largest);
                    // Whole vectors that any row sees.
                    for at in start / LANES * LANES..visible.end.next_multiple_of(LANES) {
                        let (found, again) = (scores[row * SPAN + at], again[row * SPAN + at]);
                        assert_eq!(found.to_bits(), again.to_bits());
                        if visible.contains(&at) {
                            let score = before[row * SPAN + at];
                            let expected = f64::from(score - largest).exp();
                            close(found, expected, 1e-6, "a weight");
                        } else {
                            assert_eq!(found.to_bits(), 0, "{level:?} {visible:?} {at}");
                        }
                    }
                    let sum: f32 = fresh.1[row * LANES..][..LANES].iter().sum();
                    let expected: f64 = seen
                        .iter()
                        .map(|score| f64::from(score - largest).exp())
                        .sum();
                    close(sum, expected, 1e-5, "the weights");
                }
            }
        }
    }

    #[test]
    fn a_row_that_sees_nan_weighs_nan() {
        for level in SimdLevel::all_in_test() {
            for at in [3, 17] {
                let mut scores = vec![0.5; SPAN];
                scores[at] = f32::NAN;
                let mut sums = (vec![0.0], vec![0.0; LANES], vec![0.0; WIDTH]);
                let (first, second) = (0..SPAN, 0..18);
                for visible in [first, second] {
                    let mut scores = scores.clone();
                    take(level, &mut scores, &[visible], &mut sums, true);
                    assert!(sums.1.iter().sum::<f32>().is_nan());
                }
            }
        }
    }
}
