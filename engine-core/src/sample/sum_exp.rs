//! The sum of exponentials over a row: the one pass of the sampler whose cost is arithmetic.
//!
//! Plain Rust over 8 lanes, compiled for several vector widths and chosen at run time. The compiler
//! may not fuse its operations or reorder its sums, so a wider vector only takes more of the lanes
//! at a time: the bits are the same on every machine.

use super::math;
use super::noise::BLOCK;

/// Lanes that run side by side in a pass; fixed, so that sums don't depend on the machine.
pub(super) const LANES: usize = 8;

/// How wide the processor's vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorWidth {
    /// What the target guarantees.
    Portable,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Bits256,
    /// AVX-512 F and DQ.
    #[cfg(target_arch = "x86_64")]
    Bits512,
}

impl VectorWidth {
    /// The widest of this processor. The standard library remembers what it has found out.
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self::Bits512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Bits256;
            }
        }
        Self::Portable
    }
}

/// What a sum is over.
#[derive(Clone, Copy)]
struct Terms<'a> {
    row: &'a [f32],
    /// The largest logit of each block.
    block_maxima: &'a [f32],
    floor: f32,
    max: f64,
    inverse_temperature: f64,
}

/// The sum of `exp((logit - max) * inverse_temperature)` over all logits of at least `floor`.
/// `block_maxima` must be those of the row; blocks that they rule out are left out.
pub(super) fn sum_exp_of_blocks(
    row: &[f32],
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
    sum_at_width(VectorWidth::detect(), terms)
}

fn sum_at_width(width: VectorWidth, terms: Terms<'_>) -> f64 {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn bits_256(terms: Terms<'_>) -> f64 {
        sum(terms)
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn bits_512(terms: Terms<'_>) -> f64 {
        sum(terms)
    }
    match width {
        VectorWidth::Portable => sum(terms),
        // SAFETY: a width comes from detection: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        VectorWidth::Bits256 => unsafe { bits_256(terms) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        VectorWidth::Bits512 => unsafe { bits_512(terms) },
    }
}

/// Inlined, so that it is compiled with the instructions of each caller.
#[inline(always)]
fn sum(terms: Terms<'_>) -> f64 {
    let mut total = 0.0;
    for (block, &block_max) in terms.row.chunks(BLOCK).zip(terms.block_maxima) {
        if block_max >= terms.floor {
            total += sum_of_block(block, terms);
        }
    }
    total
}

#[inline(always)]
fn sum_of_block(block: &[f32], terms: Terms<'_>) -> f64 {
    let term = |logit: f32| {
        let value = math::exp((f64::from(logit) - terms.max) * terms.inverse_temperature);
        if logit >= terms.floor { value } else { 0.0 }
    };
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        let values = chunk.map(term);
        for lane in 0..LANES {
            lanes[lane] += values[lane];
        }
    }
    for (lane, &logit) in lanes.iter_mut().zip(rest) {
        *lane += term(logit);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All widths of this processor.
    fn available() -> Vec<VectorWidth> {
        #[cfg(target_arch = "x86_64")]
        match VectorWidth::detect() {
            VectorWidth::Bits512 => return vec![VectorWidth::Bits256, VectorWidth::Bits512],
            VectorWidth::Bits256 => return vec![VectorWidth::Bits256],
            VectorWidth::Portable => {}
        }
        vec![VectorWidth::Portable]
    }

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
                row: &row,
                block_maxima: &block_maxima,
                floor,
                max: f64::from(maximum(&row)),
                inverse_temperature,
            };
            let expected = sum_at_width(VectorWidth::Portable, terms);
            for width in available() {
                let found = sum_at_width(width, terms);
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
