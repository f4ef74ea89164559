//! Drawing a token: a race of exponential variates among the kept tokens.

use super::math;
use super::noise::{BLOCK, GROUP, Noise};
use super::row::BlockMaxima;
use super::topk_topp::Cutoff;

/// Keeps rounding from ruling out a token that ties.
const SLACK: f64 = 1.000_001;

/// Draws from `softmax(logit / temperature)` over what `cutoff` keeps: the token with the
/// smallest `noise / exp(logit / temperature)`. (vLLM's `random_sample` does the same. By minus
/// the logarithm it is the largest `logit / temperature + Gumbel noise`.) Equal values go to the
/// lower id; `None` where the row has no finite logit.
///
/// Every token has its noise, but few can win: a block's noise has a lower bound and its weights
/// an upper one, and together they rule out all but a handful of blocks, exactly. Cost: one
/// `exp` and one call of the generator per 64 tokens, plus a few blocks in full.
pub(super) fn random_sample(
    row: &[f32],
    maxima: &BlockMaxima,
    inverse_temperature: f64,
    cutoff: Cutoff,
    noise: &Noise,
) -> Option<u32> {
    let max = f64::from(maxima.max);
    let weight = |logit: f32| math::exp((f64::from(logit) - max) * inverse_temperature);
    // The most probable token is always kept; its weight is 1.
    let mut best_id = maxima.argmax(row)?;
    let mut best = noise.exponential(best_id);
    for (group, block_maxima) in (0..).zip(maxima.blocks.chunks(GROUP)) {
        if block_maxima
            .iter()
            .all(|&block_max| block_max < cutoff.logit)
        {
            continue;
        }
        let first_block = group * GROUP as u32;
        let lower_bounds = noise.lower_bounds(first_block);
        for ((index, &block_max), bound) in (first_block..).zip(block_maxima).zip(lower_bounds) {
            if block_max < cutoff.logit || bound > best * weight(block_max) * SLACK {
                continue;
            }
            let block_noise = noise.block(index);
            let first_id = index * BLOCK as u32;
            let logits = row
                .get(first_id as usize..)
                .unwrap_or_default()
                .iter()
                .take(BLOCK);
            for (id, &logit) in (first_id..).zip(logits) {
                let weight = weight(logit);
                // No variate of the block is smaller than its smallest.
                if !cutoff.keeps(logit, id) || block_noise.smallest > best * weight * SLACK {
                    continue;
                }
                let time = noise.exponential_within(block_noise, id) / weight;
                if time < best || (time == best && id < best_id) {
                    (best, best_id) = (time, id);
                }
            }
        }
    }
    Some(best_id)
}
