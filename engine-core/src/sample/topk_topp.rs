//! `min_p`, `top_k` and `top_p`: which tokens may be drawn.
//!
//! Each of the three keeps the first tokens of one and the same order (larger logit first, lower
//! id first among equals), so what they keep together is told by its last token: a [`Cutoff`].

use super::masked_row::MaskedRow;
use super::math;
use super::row::{BlockMaxima, Candidate, by_rank};

/// The last token that is kept: all that rank before it are kept as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cutoff {
    /// Its logit; finite, so that a token with a logit of -inf is never kept.
    pub(super) logit: f32,
    /// Its id.
    pub(super) last_id: u32,
}

impl Cutoff {
    /// Keeps every token with a finite logit.
    pub(super) const NONE: Self = Self::at(f32::MIN);

    /// Keeps every token with a logit of at least `logit`.
    pub(super) const fn at(logit: f32) -> Self {
        Self {
            logit,
            last_id: u32::MAX,
        }
    }

    /// Whether this token is kept.
    #[inline(always)]
    pub(super) fn keeps(self, logit: f32, id: u32) -> bool {
        logit > self.logit || (logit == self.logit && id <= self.last_id)
    }
}

impl From<Candidate> for Cutoff {
    fn from(last: Candidate) -> Self {
        Self {
            logit: last.logit,
            last_id: last.id,
        }
    }
}

/// The settings of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filters {
    /// `1 / temperature`.
    pub(super) inverse_temperature: f64,
    /// Share of the largest probability; 0 is off.
    pub(super) min_p: f32,
    /// Tokens to keep; 0 is off.
    pub(super) top_k: u32,
    /// Probability to reach; 1 is off.
    pub(super) top_p: f32,
}

impl Filters {
    /// What `min_p` keeps.
    pub(super) fn min_p_cutoff(self, maxima: &BlockMaxima) -> Cutoff {
        match self.min_p > 0.0 {
            true => Cutoff::at(min_p_floor(
                maxima.max,
                self.min_p,
                self.inverse_temperature,
            )),
            false => Cutoff::NONE,
        }
    }
}

/// Applies `min_p`, then `top_k`, then `top_p`, each to what the ones before it left.
///
/// - `min_p` keeps tokens with at least that share of the most probable token's probability.
/// - `top_k` keeps exactly that many: among equal logits at the end the lower ids. (vLLM keeps
///   all that equal the k-th; here `top_k = 1` is greedy decoding, ties included.)
/// - `top_p` keeps the smallest set whose probability, renormalised over what is left, reaches
///   `top_p`; the token that crosses it is kept.
///
/// `maxima` must have read `row` and found a finite logit; none is a bound alone. Cost: next to nothing
/// for `min_p`; about `k` blocks for `top_k`; for `top_p` without `top_k` one pass of `exp`, and a selection
/// among the tokens with at least `(1 - top_p) / row.len()` of the probability.
pub(super) fn cutoff(
    row: MaskedRow<'_>,
    maxima: &BlockMaxima,
    filters: Filters,
    floats: &mut Vec<f32>,
    candidates: &mut Vec<Candidate>,
) -> Cutoff {
    let Filters {
        inverse_temperature,
        top_k,
        top_p,
        ..
    } = filters;
    let mut cutoff = filters.min_p_cutoff(maxima);
    let top_k = usize::try_from(top_k).unwrap_or(usize::MAX);
    let has_top_k = top_k > 0 && top_k < row.len();
    if has_top_k {
        maxima.collect_top(row, top_k, cutoff.logit, floats, candidates);
        if candidates.len() == top_k
            && let Some(&last) = candidates.last()
        {
            cutoff = last.into();
        }
    }
    if top_p >= 1.0 {
        return cutoff;
    }

    let weight =
        |logit: f32| math::exp((f64::from(logit) - f64::from(maxima.max)) * inverse_temperature);
    let total: f64 = if has_top_k {
        candidates
            .iter()
            .map(|candidate| weight(candidate.logit))
            .sum()
    } else {
        let total = maxima.sum_exp(row, cutoff.logit, inverse_temperature);
        // Tokens below this hold less than 1 - top_p together, so the others reach top_p without
        // them. The factor and the step down are slack for rounding.
        let least = (1.0 - f64::from(top_p)) * total / row.len() as f64 * 0.999;
        let floor = f64::from(maxima.max) + math::ln(least) / inverse_temperature;
        maxima.collect(
            row,
            cutoff.logit.max((floor as f32).next_down()),
            candidates,
        );
        total
    };
    let target = f64::from(top_p) * total;
    let before = narrow(candidates, target, weight);
    match nucleus(candidates, before, target, weight) {
        Some(last) => last.into(),
        None => cutoff,
    }
}

/// The smallest logit that `min_p` keeps, found by bisection over all floats up to `max`: a
/// formula would round, and stepping from there to the boundary can take forever around 0.
fn min_p_floor(max: f32, min_p: f32, inverse_temperature: f64) -> f32 {
    let least = math::ln(f64::from(min_p));
    let keeps = |logit: f32| (f64::from(logit) - f64::from(max)) * inverse_temperature >= least;
    let (mut low, mut high) = (sortable(f32::MIN), sortable(max));
    while low < high {
        let middle = low.midpoint(high);
        if keeps(unsortable(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    unsortable(high)
}

const SIGN: u32 = 1 << 31;

/// An integer that sorts as the float does.
fn sortable(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The float of [`sortable`].
fn unsortable(key: u32) -> f32 {
    f32::from_bits(if key & SIGN == 0 { !key } else { key & !SIGN })
}

/// Drops candidates that are far from where the weights, added in rank order, reach `target`.
/// Returns the weight of those dropped from the front.
///
/// Adds the weights up in buckets of equal width in logits, and leaves the bucket that crosses.
fn narrow(candidates: &mut Vec<Candidate>, target: f64, weight: impl Fn(f32) -> f64) -> f64 {
    const BUCKETS: usize = 256;
    /// Fewer candidates are not worth the buckets.
    const WORTHWHILE: usize = 128;
    if candidates.len() < WORTHWHILE {
        return 0.0;
    }
    let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
    for candidate in candidates.iter() {
        lowest = lowest.min(f64::from(candidate.logit));
        highest = highest.max(f64::from(candidate.logit));
    }
    if lowest == highest {
        return 0.0;
    }
    // Each step of this rounds monotonically, so no bucket holds a token that ranks before one
    // of an earlier bucket.
    let scale = BUCKETS as f64 / (highest - lowest);
    let bucket_of = |logit: f32| (((highest - f64::from(logit)) * scale) as usize).min(BUCKETS - 1);
    let mut sums = [0.0; BUCKETS];
    for candidate in candidates.iter() {
        sums[bucket_of(candidate.logit)] += weight(candidate.logit);
    }
    // The lowest token is in the last bucket, so that one is never empty.
    let (mut before, mut crossing) = (0.0, 0);
    while crossing < BUCKETS - 1 && before + sums[crossing] < target {
        before += sums[crossing];
        crossing += 1;
    }
    candidates.retain(|candidate| bucket_of(candidate.logit) == crossing);
    before
}

/// The token at which the weights, added to `before` in rank order, reach `target`; the last one
/// where they don't.
///
/// Bisection by selection: each round puts the heavier half of what is undecided in front and
/// adds it up. Linear in the number of candidates.
fn nucleus(
    candidates: &mut [Candidate],
    before: f64,
    target: f64,
    weight: impl Fn(f32) -> f64,
) -> Option<Candidate> {
    // The candidates before `low` don't reach the target; those before `high` do, or are all.
    let (mut low, mut high, mut before) = (0, candidates.len(), before);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let undecided = &mut candidates[low..high];
        undecided.select_nth_unstable_by(middle - low, by_rank);
        let heavier: f64 = undecided[..middle - low]
            .iter()
            .map(|candidate| weight(candidate.logit))
            .sum();
        if before + heavier >= target {
            high = middle;
        } else {
            before += heavier;
            low = middle;
        }
    }
    candidates.get(low).copied()
}
