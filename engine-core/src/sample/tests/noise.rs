//! The noise: its values never change, and look like independent exponential variates.

use proptest::prelude::*;

use super::super::noise::{BLOCK, GROUP, Noise};
use super::reference::{chi_square, critical_value};

/// Uniform in `0..1` if the noise is exponential with rate 1.
fn uniform(seed: u64, index: u64, token_id: u32) -> f64 {
    -(-Noise::new(seed, index).exponential(token_id)).exp_m1()
}

const BINS: usize = 32;

fn bin(uniform: f64) -> usize {
    ((uniform * BINS as f64) as usize).min(BINS - 1)
}

/// Why the pairs are not as if both members were uniform and told nothing about each other.
fn objection(pairs: impl Iterator<Item = (f64, f64)>) -> Option<String> {
    let mut first_counts = [0; BINS];
    let mut second_counts = [0; BINS];
    let mut joint_counts = [0; BINS * BINS];
    let (mut products, mut draws) = (0.0, 0.0f64);
    for (first, second) in pairs {
        first_counts[bin(first)] += 1;
        second_counts[bin(second)] += 1;
        joint_counts[bin(first) * BINS + bin(second)] += 1;
        products += (first - 0.5) * (second - 0.5);
        draws += 1.0;
    }
    let tables = [&first_counts[..], &second_counts[..], &joint_counts[..]];
    for (table, counts) in ["first", "second", "joint"].into_iter().zip(tables) {
        let even = vec![1.0 / counts.len() as f64; counts.len()];
        let statistic = chi_square(counts, &even);
        if statistic >= critical_value(&even) {
            return Some(format!("{table}: chi-square {statistic}"));
        }
    }
    let correlation = products * 12.0 / draws;
    (correlation.abs() >= 4.0 / draws.sqrt()).then(|| format!("correlation {correlation}"))
}

const DRAWS: u32 = 100_000;

#[test]
fn tokens_are_independent() {
    for distance in [1, 7, 16, 64, 1000] {
        let pairs = (0..DRAWS).map(|draw| {
            // A new index per draw: pairs share no token.
            let token_id = draw % 5000;
            (
                uniform(3, draw.into(), token_id),
                uniform(3, draw.into(), token_id + distance),
            )
        });
        assert_eq!(objection(pairs), None, "tokens {distance} apart");
    }
}

#[test]
fn indices_and_seeds_are_independent() {
    let token_of = |draw: u32| draw % 97;
    let indices = (0..DRAWS).map(|draw| {
        let index = u64::from(draw) * 2;
        (
            uniform(5, index, token_of(draw)),
            uniform(5, index + 1, token_of(draw)),
        )
    });
    assert_eq!(objection(indices), None);
    let seeds = (0..DRAWS).map(|draw| {
        let seed = u64::from(draw) * 2;
        (
            uniform(seed, 9, token_of(draw)),
            uniform(seed + 1, 9, token_of(draw)),
        )
    });
    assert_eq!(objection(seeds), None);
    let swapped = (0..DRAWS).map(|draw| {
        let (a, b) = (u64::from(draw), u64::from(draw) + u64::from(DRAWS));
        (uniform(a, b, 11), uniform(b, a, 11))
    });
    assert_eq!(objection(swapped), None);
}

#[test]
fn every_token_of_a_block_is_as_likely_to_be_the_smallest() {
    let mut counts = [0; BLOCK];
    for index in 0..50_000 {
        let noise = Noise::new(17, index);
        let smallest = (0..BLOCK as u32)
            .min_by(|&a, &b| noise.exponential(a).total_cmp(&noise.exponential(b)))
            .unwrap();
        counts[smallest as usize] += 1;
    }
    let even = [1.0 / BLOCK as f64; BLOCK];
    assert!(chi_square(&counts, &even) < critical_value(&even));
}

#[test]
fn the_check_notices_variates_that_depend_on_each_other() {
    let dependent = (0..DRAWS).map(|draw| {
        let (first, second) = (uniform(3, draw.into(), 0), uniform(3, draw.into(), 1));
        (first, if draw % 20 == 0 { first } else { second })
    });
    assert!(objection(dependent).is_some());
}

#[test]
fn values_never_change() {
    let bits = |seed, index, token_id| Noise::new(seed, index).exponential(token_id).to_bits();
    assert_eq!(
        [
            bits(0, 0, 0),
            bits(42, 7, 123),
            bits(u64::MAX, u64::MAX, u32::MAX)
        ]
        .map(f64::from_bits),
        [2.125831680959139, 1.094299965664785, 2.255118414725679]
    );
}

proptest! {
    #[test]
    fn lower_bounds_hold(seed: u64, index: u64, group in 0..10_000u32) {
        let noise = Noise::new(seed, index);
        let first_block = group * GROUP as u32;
        for (block, bound) in (first_block..).zip(noise.lower_bounds(first_block)) {
            let smallest = (block * BLOCK as u32..).take(BLOCK)
                .map(|token_id| noise.exponential(token_id))
                .fold(f64::INFINITY, f64::min);
            prop_assert!(bound <= smallest * (1.0 + 1e-14));
            prop_assert!(smallest > 0.0 && smallest < 46.0);
            prop_assert_eq!(smallest, noise.block(block).smallest);
        }
    }
}
