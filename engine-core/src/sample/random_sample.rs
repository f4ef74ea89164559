//! Drawing a token: a race of exponential variates among the kept tokens.

use super::masked_row::MaskedRow;
use super::math;
use super::noise::{GROUP, Noise};
use super::row::BlockMaxima;
use super::topk_topp::{Cutoff, Filters};
use super::vector_width::{Pass, VectorWidth, run_at_width};

/// Keeps rounding from ruling out a token that ties.
const SLACK: f64 = 1.000_001;

/// Draws from `softmax(logit / temperature)` over what `cutoff` keeps: the token with the
/// smallest `noise / exp(logit / temperature)`. (vLLM's `random_sample` does the same. By minus
/// the logarithm it is the largest `logit / temperature + Gumbel noise`.) Equal values go to the
/// lower id; `None` where the row has no finite logit.
///
/// Every token has its noise, but few can win: the noise of a block, and of a token, has a lower bound
/// and its weight an upper one, and together they rule out all but a handful, exactly. Cost: one `exp`
/// and one call of the generator per 64 tokens and per token of a few blocks, sixteen side by side.
pub(super) fn random_sample(
    row: MaskedRow<'_>,
    maxima: &BlockMaxima,
    filters: Filters,
    cutoff: Cutoff,
    noise: &Noise,
) -> Option<u32> {
    let most_probable = maxima.argmax(row)?;
    let race = Race {
        row,
        maxima,
        inverse_temperature: filters.inverse_temperature,
        cutoff,
        noise,
        most_probable,
    };
    Some(run_at_width(VectorWidth::detect(), race))
}

/// The pass of [`random_sample`].
#[derive(Clone, Copy)]
struct Race<'a> {
    row: MaskedRow<'a>,
    maxima: &'a BlockMaxima,
    inverse_temperature: f64,
    cutoff: Cutoff,
    noise: &'a Noise,
    /// Always kept; its weight is 1.
    most_probable: u32,
}

impl Pass for Race<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        let (cutoff, noise) = (self.cutoff, self.noise);
        let mut best_id = self.most_probable;
        let mut best = noise.exponential(best_id);
        for (group, block_maxima) in (0..).zip(self.maxima.blocks.chunks(GROUP)) {
            if block_maxima
                .iter()
                .all(|&block_max| block_max < cutoff.logit)
            {
                continue;
            }
            let first_block = group * GROUP as u32;
            let lower_bounds = noise.lower_bounds(first_block);
            let weights = self.weights(block_maxima);
            for (((index, &block_max), bound), block_weight) in (first_block..)
                .zip(block_maxima)
                .zip(lower_bounds)
                .zip(weights)
            {
                if block_max >= cutoff.logit && bound <= best * block_weight * SLACK {
                    (best, best_id) = self.search(index, best, best_id);
                }
            }
        }
        best_id
    }
}

impl Race<'_> {
    #[inline(always)]
    fn weight(self, logit: f32) -> f64 {
        math::exp((f64::from(logit) - f64::from(self.maxima.max)) * self.inverse_temperature)
    }

    /// Those of at most [`GROUP`] logits, side by side.
    #[inline(always)]
    fn weights(self, logits: &[f32]) -> [f64; GROUP] {
        let mut group = [f32::NEG_INFINITY; GROUP];
        group
            .iter_mut()
            .zip(logits)
            .for_each(|(to, logit)| *to = *logit);
        group.map(|logit| self.weight(logit))
    }

    /// The smallest time so far and its token, with those of block `index`.
    #[inline(always)]
    fn search(self, index: u32, mut best: f64, mut best_id: u32) -> (f64, u32) {
        let block_noise = self.noise.block(index);
        for (first_id, logits) in self.row.groups_of_block(index as usize) {
            let bounds = self.noise.lower_bounds_within(block_noise, first_id);
            let weights = logits.map(|logit| self.weight(logit));
            for (((id, logit), bound), weight) in (first_id..).zip(logits).zip(bounds).zip(weights)
            {
                if bound > best * weight * SLACK || !self.cutoff.keeps(logit, id) {
                    continue;
                }
                let time = self.noise.exponential_within(block_noise, id) / weight;
                if time < best || (time == best && id < best_id) {
                    (best, best_id) = (time, id);
                }
            }
        }
        (best, best_id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_width_draws_the_same(
            row in proptest::collection::vec(-20.0..20.0f32, 1..3000),
            inverse_temperature in 0.1..10.0f64,
            seed: u64,
        ) {
            let mut maxima = BlockMaxima::default();
            maxima.read(&row);
            let noise = Noise::new(seed, 1);
            let masked = MaskedRow::from(row.as_slice());
            let race = Race {
                row: masked,
                maxima: &maxima,
                inverse_temperature,
                cutoff: Cutoff::NONE,
                noise: &noise,
                most_probable: maxima.argmax(masked).unwrap(),
            };
            // Every token in full.
            let time = |id: u32| noise.exponential(id) / race.weight(row[id as usize]);
            let expected = (0..row.len() as u32)
                .min_by(|a, b| time(*a).total_cmp(&time(*b)))
                .unwrap();
            for width in VectorWidth::available() {
                prop_assert_eq!(run_at_width(width, race), expected, "{:?}", width);
            }
        }
    }
}
