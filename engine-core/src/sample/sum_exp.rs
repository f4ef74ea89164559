//! The sum of exponentials over a row: the one pass of the sampler whose cost is arithmetic.

use super::masked_row::MaskedRow;
use super::math;
use super::noise::GROUP;
use super::vector_width::{Pass, VectorWidth, run_at_width};

/// Lanes that run side by side in a pass; fixed, so that sums don't depend on the machine.
pub(super) const LANES: usize = 8;

/// What a sum is over.
#[derive(Clone, Copy)]
struct Terms<'a> {
    row: MaskedRow<'a>,
    /// The largest logit of each block.
    block_maxima: &'a [f32],
    floor: f32,
    max: f64,
    inverse_temperature: f64,
}

/// The sum of `exp((logit - max) * inverse_temperature)` over all logits of at least `floor`.
/// `block_maxima` must be those of the row; blocks that they rule out are left out.
pub(super) fn sum_exp_of_blocks(
    row: MaskedRow<'_>,
    block_maxima: &[f32],
    floor: f32,
    max: f64,
    inverse_temperature: f64,
) -> f64 {
    let terms = Terms {
        row,
        block_maxima,
        floor,
        max,
        inverse_temperature,
    };
    run_at_width(VectorWidth::detect(), terms)
}

impl Pass for Terms<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut total = 0.0;
        for (index, &block_max) in self.block_maxima.iter().enumerate() {
            if block_max >= self.floor {
                total += sum_of_block(index, self);
            }
        }
        total
    }
}

#[inline(always)]
fn sum_of_block(index: usize, terms: Terms<'_>) -> f64 {
    let term = |logit: f32| {
        let value = math::exp((f64::from(logit) - terms.max) * terms.inverse_temperature);
        if logit >= terms.floor { value } else { 0.0 }
    };
    const { assert!(GROUP.is_multiple_of(LANES)) };
    let mut lanes = [0.0; LANES];
    for (_, group) in terms.row.groups_of_block(index) {
        for logits in group.as_chunks::<LANES>().0 {
            let values = logits.map(term);
            for lane in 0..LANES {
                lanes[lane] += values[lane];
            }
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::noise::BLOCK;
    use super::*;

    proptest! {
        #[test]
        fn every_width_gives_the_same_bits(
            row in proptest::collection::vec(
                prop_oneof![9 => -900.0..30.0f32, 1 => Just(f32::NEG_INFINITY)], 1..300,
            ),
            inverse_temperature in 0.5..10.0f64,
            floor in prop_oneof![Just(f32::MIN), -30.0..30.0f32],
        ) {
            let maximum = |values: &[f32]| values.iter().copied().fold(f32::MIN, f32::max);
            let block_maxima: Vec<f32> = row.chunks(BLOCK).map(maximum).collect();
            let terms = Terms {
                row: row.as_slice().into(),
                block_maxima: &block_maxima,
                floor,
                max: f64::from(maximum(&row)),
                inverse_temperature,
            };
            let expected = run_at_width(VectorWidth::Portable, terms);
            for width in VectorWidth::available() {
                let found = run_at_width(width, terms);
                prop_assert_eq!(found.to_bits(), expected.to_bits(), "{:?}", width);
            }
            let slow: f64 = row
                .iter()
                .filter(|&&logit| logit >= floor)
                .map(|&logit| ((f64::from(logit) - terms.max) * inverse_temperature).exp())
                .sum();
            prop_assert!((expected - slow).abs() <= 1e-12 * slow.max(1e-300), "{expected} {slow}");
        }
    }
}
