//! Drawing a token: the argmax of logit plus noise over the kept tokens.

use super::math;
use super::noise::{BLOCK, GUMBEL_MAX, Noise};
use super::row::BlockMaxima;
use super::topk_topp::Cutoff;

/// Draws from `softmax(logit / temperature)` over what `cutoff` keeps (the Gumbel-max trick:
/// Gumbel, "Statistical theory of extreme values", 1954). Equal sums go to the lower id; `None`
/// where the row has no finite logit.
///
/// Every token has its noise, but few can win. A token's Gumbel value is at most
/// `-ln(h / 2^32)`, `h` the upper half of its random bits; so with the best sum so far and the
/// block's largest logit, one integer comparison per token rules out all but a handful, exactly.
/// Cost: the random words of the blocks that hold kept tokens, about one pass.
pub(super) fn random_sample(
    row: &[f32],
    maxima: &BlockMaxima,
    inverse_temperature: f64,
    cutoff: Cutoff,
    noise: &Noise,
) -> Option<u32> {
    let max = f64::from(maxima.max);
    let scaled = |logit: f32| (f64::from(logit) - max) * inverse_temperature;
    // The most probable token is always kept, and a good sum to beat.
    let mut best_id = maxima.argmax(row)?;
    let mut best = noise.gumbel(best_id);
    for (index, (block, &block_max)) in (0..).zip(row.chunks(BLOCK).zip(&maxima.blocks)) {
        let block_best = scaled(block_max);
        if block_max < cutoff.logit || block_best + GUMBEL_MAX < best {
            continue;
        }
        // The factor is slack for rounding; the conversion saturates.
        let limit = (math::exp(block_best - best) * 1.000_001 * 4_294_967_296.0 + 1.0) as u32;
        let words = noise.high_words(index);
        let possible: u32 = words.iter().map(|&word| u32::from(word <= limit)).sum();
        if possible == 0 {
            continue;
        }
        for ((id, &logit), &word) in (index * BLOCK as u32..).zip(block).zip(&words) {
            if word > limit || !cutoff.keeps(logit, id) {
                continue;
            }
            let sum = scaled(logit) + noise.gumbel(id);
            if sum > best || (sum == best && id < best_id) {
                (best, best_id) = (sum, id);
            }
        }
    }
    Some(best_id)
}
