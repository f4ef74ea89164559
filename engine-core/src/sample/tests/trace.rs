//! A trace says what the row says.

use proptest::prelude::*;
use protocol::{LogprobsMode, SamplingParams, TokenTrace};

use super::super::{RowMask, Sampler, SamplerOutputRow, SamplerScratch, VocabSizes};
use super::state_of;

/// A mask, as a row may have it.
#[derive(Debug, Clone)]
enum Mask {
    Free,
    Words(Vec<u32>),
    Only(Vec<u32>),
    Without(Vec<u32>),
}

impl Mask {
    fn as_row_mask(&self) -> Option<RowMask<'_>> {
        match self {
            Self::Free => None,
            Self::Words(words) => Some(RowMask::Bitmask(words)),
            Self::Only(ids) => Some(RowMask::Only(ids)),
            Self::Without(ids) => Some(RowMask::Without(ids)),
        }
    }

    fn allows(&self, token_id: usize) -> bool {
        let has = |ids: &[u32]| ids.contains(&(token_id as u32));
        match self {
            Self::Free => true,
            Self::Words(words) => words[token_id / 32] >> (token_id % 32) & 1 == 1,
            Self::Only(ids) => has(ids),
            Self::Without(ids) => !has(ids),
        }
    }
}

fn any_row_and_mask() -> impl Strategy<Value = (Vec<f32>, Mask)> {
    let logit = prop_oneof![9 => -8.0..8.0f32, 1 => Just(f32::NEG_INFINITY)];
    prop::collection::vec(logit, 1..400).prop_flat_map(|row| {
        let len = row.len() as u32;
        let ids = prop::collection::btree_set(0..len, 1..12);
        let ids = ids.prop_map(|ids| ids.into_iter().collect::<Vec<_>>());
        let words = prop::collection::vec(any::<u32>(), row.len().div_ceil(32));
        let mask = prop_oneof![
            Just(Mask::Free),
            words.prop_map(Mask::Words),
            ids.clone().prop_map(Mask::Only),
            ids.prop_map(Mask::Without),
        ];
        (Just(row), mask)
    })
}

fn any_params() -> impl Strategy<Value = SamplingParams> {
    let temperature = prop_oneof![Just(0.0), Just(1.0), 0.1..2.0f32];
    let penalty = prop_oneof![2 => Just(0.0), 1 => -2.0..2.0f32];
    let top_k = prop_oneof![2 => Just(0), 1 => 1..20u32];
    let logprobs = prop_oneof![2 => Just(None), 1 => Just(Some(2))];
    (temperature, penalty, top_k, logprobs, any::<u64>()).prop_map(
        |(temperature, presence_penalty, top_k, logprobs, seed)| SamplingParams {
            temperature,
            presence_penalty,
            top_k,
            logprobs,
            seed: Some(seed),
            ..SamplingParams::default()
        },
    )
}

fn sample(row: &[f32], mask: &Mask, params: &SamplingParams) -> Option<SamplerOutputRow> {
    let vocab = VocabSizes {
        logits: row.len(),
        tokenizer: row.len(),
    };
    let state = state_of(params.clone(), &[0], &[0]);
    let sampler = Sampler::new(vocab, LogprobsMode::RawLogprobs);
    let mut scratch = SamplerScratch::default();
    sampler
        .sample_row(&mut row.to_vec(), &state, mask.as_row_mask(), &mut scratch)
        .ok()
}

fn is_near(found: f32, expected: f64) -> bool {
    (f64::from(found) - expected).abs() < 1e-6
}

proptest! {
    #[test]
    fn probabilities_are_those_of_the_row((row, mask) in any_row_and_mask(), params in any_params()) {
        let traced = SamplingParams { include_trace: true, ..params.clone() };
        let plain = sample(&row, &mask, &params);
        let Some(found) = sample(&row, &mask, &traced) else {
            prop_assert_eq!(plain, None);
            return Ok(());
        };
        // The token, and what else was asked for, are those of a row without a trace.
        let trace = *found.trace.clone().unwrap();
        prop_assert_eq!(Some(SamplerOutputRow { trace: None, ..found.clone() }), plain);

        let weights: Vec<f64> = row.iter().map(|&logit| f64::from(logit).exp()).collect();
        let total: f64 = weights.iter().sum();
        let allowed: f64 = weights.iter().enumerate()
            .filter(|(token_id, _)| mask.allows(*token_id))
            .map(|(_, weight)| weight)
            .sum();
        let chosen = weights[found.token_id as usize];
        let TokenTrace { probability, masked_probability, num_allowed, .. } = trace;
        prop_assert!(is_near(probability.unwrap(), chosen / total));
        prop_assert!(is_near(masked_probability, chosen / allowed));
        let expected = (0..row.len()).filter(|&token_id| mask.allows(token_id)).count();
        prop_assert_eq!(num_allowed as usize, expected);
        prop_assert_eq!(trace.is_constrained, matches!(mask, Mask::Words(_) | Mask::Only(_)));
        prop_assert!(!trace.is_forced);
        if let Some(logprobs) = &found.logprobs {
            prop_assert!(is_near(masked_probability, f64::from(logprobs.logprobs[0]).exp()));
        }

        let mut ranked: Vec<usize> = (0..row.len()).filter(|&id| row[id] > f32::MIN).collect();
        ranked.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        ranked.truncate(10);
        let ids: Vec<usize> = trace.top.iter().map(|top| top.token_id as usize).collect();
        prop_assert_eq!(&ids, &ranked);
        for top in &trace.top {
            let token_id = top.token_id as usize;
            prop_assert!(is_near(top.probability, weights[token_id] / total));
            prop_assert_eq!(top.is_allowed, mask.allows(token_id));
        }
    }
}

#[test]
fn probabilities_under_a_mask_are_right_where_the_mask_leaves_the_least_probable() {
    let mut row = [900.0; 64];
    row[3] = -900.0;
    row[5] = -900.0;
    let params = SamplingParams {
        include_trace: true,
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let found = sample(&row, &Mask::Only(vec![3, 5]), &params).unwrap();
    let trace = found.trace.unwrap();
    assert_eq!((found.token_id, trace.probability), (3, Some(0.0)));
    assert_eq!((trace.masked_probability, trace.num_allowed), (0.5, 2));
}
