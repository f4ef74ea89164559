//! Whether `top_p` keeps the token that was drawn, without finding out where it ends.
//!
//! Who wins the race among all tokens wins it among those that are kept, if it is one of them. And it is,
//! mostly: with a probability of about `top_p`. If not, neither is any token that is less probable, and the
//! race goes on without those. So the draw comes first, and what has to be known is on which side of `top_p`
//! the token lies, not the last token that is kept: a comparison of sums that nearly always are far enough
//! apart for one quick pass over the row, where the exact way takes a slow one and a selection among all
//! candidates.

use super::masked_row::MaskedRow;
use super::math;
use super::noise::{BLOCK, GROUP, Noise};
use super::random_sample::random_sample;
use super::row::BlockMaxima;
use super::topk_topp::{Cutoff, Filters};
use super::vector_width::{Pass, VectorWidth, run_at_width};

/// More than the relative error of a sum: 1e-6 of each `exp_nearly`; 2e-5 since what it is given was rounded
/// three times, by at most 87 * 2^-24 each; 1e-6 of adding up a block; and what is left out.
const SUM_ERROR: f64 = 1e-4;

/// Share of the probability that is left out of the sums at most.
const LEFT_OUT: f64 = 1e-5;

/// Draws until the exact way is worth it.
const MAX_DRAWS: usize = 8;

/// Where a token lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It is kept.
    Kept,
    /// It is not, nor is any other that has not a larger logit.
    Dropped,
    /// The sums are too near to each other.
    Unknown,
}

/// Draws as if only `min_p` were on, where it can be told at once whether the other filters keep the token:
/// all that they keep is not found out then. `None` tells nothing. `maxima` may be bounds.
pub(super) fn draw_before_filters(
    row: MaskedRow<'_>,
    maxima: &BlockMaxima,
    filters: Filters,
    noise: &Noise,
) -> Option<u32> {
    if filters.top_k > 0 {
        return None;
    }
    let min_p = filters.min_p_cutoff(maxima);
    let mut cutoff = min_p;
    for _ in 0..MAX_DRAWS {
        let token_id = random_sample(row, maxima, filters, cutoff, noise)?;
        if filters.top_p >= 1.0 {
            return Some(token_id);
        }
        let logit = row.logit(token_id);
        match side_of(row, maxima, filters, min_p, logit) {
            Side::Kept => return Some(token_id),
            Side::Dropped => cutoff = Cutoff::at(logit.next_up()),
            Side::Unknown => return None,
        }
    }
    None
}

/// Where a token with this logit lies, of those that `min_p` keeps, as far as quick sums tell.
fn side_of(
    row: MaskedRow<'_>,
    maxima: &BlockMaxima,
    filters: Filters,
    min_p: Cutoff,
    logit: f32,
) -> Side {
    // All blocks that are left out hold less than LEFT_OUT together.
    let share = LEFT_OUT / (maxima.blocks.len() * BLOCK) as f64;
    let least = f64::from(maxima.max) + math::ln(share) / filters.inverse_temperature;
    let least = least.max(f64::from(f32::MIN)) as f32;
    if logit < least {
        return Side::Unknown;
    }
    let masses = Masses {
        row,
        block_maxima: &maxima.blocks,
        least,
        floor: min_p.logit,
        max: maxima.max,
        inverse_temperature: filters.inverse_temperature as f32,
        logit,
    };
    let Sums {
        above,
        equal,
        total,
    } = run_at_width(VectorWidth::detect(), masses);
    let target = f64::from(filters.top_p) * total;
    let own = math::exp((f64::from(logit) - f64::from(maxima.max)) * filters.inverse_temperature);
    // Tokens of the same logit come before it or after it, by their ids.
    if (above + equal) * (1.0 + SUM_ERROR) - own < target * (1.0 - SUM_ERROR) {
        Side::Kept
    } else if above * (1.0 - SUM_ERROR) > target * (1.0 + SUM_ERROR) {
        Side::Dropped
    } else {
        Side::Unknown
    }
}

/// Sums of `exp((logit - max) * inverse_temperature)`, nearly.
struct Sums {
    /// Over the tokens with a larger logit.
    above: f64,
    /// Over those with the same.
    equal: f64,
    /// Over all.
    total: f64,
}

/// The pass that makes them.
#[derive(Clone, Copy)]
struct Masses<'a> {
    row: MaskedRow<'a>,
    block_maxima: &'a [f32],
    /// Blocks below are left out.
    least: f32,
    /// Logits below count nothing.
    floor: f32,
    max: f32,
    inverse_temperature: f32,
    logit: f32,
}

impl Pass for Masses<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let mut sums = [[0.0f64; GROUP]; 3];
        for (index, &block_max) in self.block_maxima.iter().enumerate() {
            if block_max < self.least {
                continue;
            }
            let mut of_block = [[0.0f32; GROUP]; 3];
            for (_, group) in self.row.groups_of_block(index) {
                for lane in 0..GROUP {
                    let logit = group[lane];
                    let weight = math::exp_nearly((logit - self.max) * self.inverse_temperature);
                    let weight = if logit >= self.floor { weight } else { 0.0 };
                    of_block[0][lane] += if logit > self.logit { weight } else { 0.0 };
                    of_block[1][lane] += if logit == self.logit { weight } else { 0.0 };
                    of_block[2][lane] += weight;
                }
            }
            for (sum, of_block) in sums.iter_mut().zip(&of_block) {
                for (sum, lane) in sum.iter_mut().zip(of_block) {
                    *sum += f64::from(*lane);
                }
            }
        }
        let [above, equal, total] = sums.map(|lanes| lanes.iter().sum());
        Sums {
            above,
            equal,
            total,
        }
    }
}
