//! A bitmask that stays apart from the row is as good as one that was applied to it.

use proptest::prelude::*;
use protocol::{LogprobsMode, SamplingParams};

use super::super::masked_row::{Apart, MaskedRow};
use super::super::row::BlockMaxima;
use super::super::{KnownLogits, RowMask, Sampler, SamplerScratch, VocabSizes};
use super::state_of;
use crate::model_executor::LOGITS_PER_MAXIMUM;

/// Parameters that need no more of a row than its blocks.
fn any_draw() -> impl Strategy<Value = SamplingParams> {
    let temperature = prop_oneof![Just(0.0), Just(1.0), 0.1..2.0f32];
    let top_k = prop_oneof![2 => Just(0), 1 => 1..20u32, 1 => 1..4000u32];
    let top_p = prop_oneof![2 => Just(1.0), 1 => 0.1..1.0f32];
    let min_p = prop_oneof![2 => Just(0.0), 1 => 0.0..0.2f32];
    (temperature, top_k, top_p, min_p, any::<u64>()).prop_map(
        |(temperature, top_k, top_p, min_p, seed)| SamplingParams {
            temperature,
            top_k,
            top_p,
            min_p,
            seed: Some(seed),
            ..Default::default()
        },
    )
}

/// A row of many blocks and words for it, in places whole blocks of one kind.
fn any_masked_row() -> impl Strategy<Value = (Vec<f32>, Vec<u32>)> {
    let logit = prop_oneof![
        12 => -3.0..3.0f32,
        4 => (-3..3i8).prop_map(f32::from),
        1 => Just(f32::NEG_INFINITY),
    ];
    let words = prop_oneof![
        2 => prop::collection::vec(any::<u32>(), 1..8),
        2 => prop::collection::vec((0..32u32).prop_map(|bit| 1 << bit), 1..8),
        2 => (1..40usize).prop_map(|count| vec![0; count]),
        1 => (1..40usize).prop_map(|count| vec![u32::MAX; count]),
    ];
    let row = prop_oneof![
        prop::collection::vec(logit.clone(), 1..300),
        prop::collection::vec(logit, 2000..4000),
    ];
    (row, prop::collection::vec(words, 1..60)).prop_map(|(row, parts)| {
        let num_words = row.len().div_ceil(32);
        let words = parts.into_iter().flatten().cycle();
        let words = words.take(num_words).collect();
        (row, words)
    })
}

fn is_left(words: &[u32], id: usize) -> bool {
    words[id / 32] >> (id % 32) & 1 == 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_mask_apart_draws_the_same_token(
        params in any_draw(),
        (row, words) in any_masked_row(),
        // What is ruled out may be larger than anything that is left.
        raised in prop_oneof![Just(0.0), 0.0..50.0f32],
        knows_maxima: bool,
    ) {
        let row: Vec<f32> = (0..).zip(&row)
            .map(|(id, logit)| if is_left(&words, id) { *logit } else { logit + raised })
            .collect();
        let applied: Vec<f32> = (0..).zip(&row)
            .map(|(id, logit)| if is_left(&words, id) { *logit } else { f32::NEG_INFINITY })
            .collect();
        let maxima: Vec<f32> = row
            .chunks(LOGITS_PER_MAXIMUM)
            .map(|logits| logits.iter().copied().fold(f32::NEG_INFINITY, f32::max))
            .collect();
        let known = match knows_maxima {
            true => KnownLogits::Maxima(&maxima),
            false => KnownLogits::Nothing,
        };
        let sampler = Sampler::new(
            VocabSizes { logits: row.len(), tokenizer: row.len() },
            LogprobsMode::RawLogprobs,
        );
        let state = state_of(params, &[1, 2], &[3]);
        let sample = |row: &[f32], known, mask| {
            let mut logits = row.to_vec();
            let scratch = &mut SamplerScratch::default();
            let sampled = sampler.sample_known_row(&mut logits, known, &state, mask, scratch);
            (sampled.ok(), logits)
        };
        let (expected, _) = sample(&applied, KnownLogits::Nothing, None);
        let ids: Vec<u32> = (0..row.len() as u32).filter(|&id| is_left(&words, id as usize)).collect();
        for mask in [RowMask::Bitmask(&words), RowMask::Only(&ids)] {
            let (apart, logits) = sample(&row, known, Some(mask));
            prop_assert_eq!(&apart, &expected);
            prop_assert_eq!(&logits, &row, "the row was written to");
        }
    }

    #[test]
    fn the_rows_maximum_is_exact_and_each_block_s_a_bound((row, words) in any_masked_row()) {
        let masked_row = MaskedRow::new(&row, Apart::Bitmask(&words));
        let mut exact = BlockMaxima::default();
        exact.read(&row);
        exact.read_masked(masked_row);
        for (block, max) in exact.blocks.iter().enumerate() {
            let ids = block * 64..row.len().min(block * 64 + 64);
            let left = ids.filter(|&id| is_left(&words, id)).map(|id| row[id]);
            prop_assert_eq!(*max, left.fold(f32::NEG_INFINITY, f32::max));
        }
        let mut bounds = BlockMaxima::default();
        bounds.read(&row);
        bounds.bound_masked(masked_row);
        prop_assert_eq!(bounds.max, exact.max);
        for (bound, max) in bounds.blocks.iter().zip(&exact.blocks) {
            prop_assert!(bound >= max);
        }
    }
}
