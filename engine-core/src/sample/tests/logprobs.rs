//! Logprobs and ranks against the reference.

use proptest::prelude::*;
use protocol::{LogprobsLists, LogprobsMode, SamplingParams};

use super::super::{LogprobsRow, Sampler, SamplerScratch, VocabSizes};
use super::{any_row, greedy, sample, state_of};

/// All tokens, first by rank first, masked ones last.
fn all_ranked(row: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    ids.sort_by(|&a, &b| {
        row[b as usize]
            .partial_cmp(&row[a as usize])
            .unwrap()
            .then(a.cmp(&b))
    });
    ids
}

/// Log-softmax, in f64.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = row
        .iter()
        .map(|&logit| (f64::from(logit) - max).exp())
        .sum();
    row.iter()
        .map(|&logit| f64::from(logit) - max - sum.ln())
        .collect()
}

fn assert_is_reference(row: &[f32], logprobs: &LogprobsRow, token_id: u32, ids: &[u32]) {
    assert_eq!(logprobs.token_ids[0], token_id);
    assert_eq!(logprobs.token_ids[1..], *ids);
    assert_eq!(logprobs.logprobs.len(), logprobs.token_ids.len());
    let reference = log_softmax(row);
    for (&id, &ours) in logprobs.token_ids.iter().zip(&logprobs.logprobs) {
        let exact = reference[id as usize];
        let close = (f64::from(ours) - exact).abs() <= 1e-6 * exact.abs().max(1.0);
        assert!(
            close || ours == exact as f32,
            "token {id}: {ours} is not {exact}"
        );
    }
    let own = row[token_id as usize];
    let rank = row.iter().filter(|&&logit| logit >= own).count();
    assert_eq!(logprobs.rank as usize, rank);
}

#[test]
fn none_are_computed_unless_asked_for() {
    assert_eq!(
        sample(&[1.0, 2.0], &state_of(greedy(), &[], &[]), None).logprobs,
        None
    );
}

#[test]
fn zero_is_the_sampled_token_alone() {
    let params = SamplingParams {
        logprobs: Some(0),
        ..greedy()
    };
    let row = sample(&[1.0, 1.0], &state_of(params, &[], &[]), None)
        .logprobs
        .unwrap();
    let half = -std::f32::consts::LN_2;
    assert_eq!(
        row,
        LogprobsRow {
            token_ids: vec![0],
            logprobs: vec![half],
            rank: 2
        }
    );
}

#[test]
fn named_ids_take_the_place_of_the_top_ones() {
    let ids = Some([2, 0, 2].into());
    let params = SamplingParams {
        logprobs: Some(1),
        logprob_token_ids: ids,
        ..greedy()
    };
    let row = sample(&[1.0, 5.0, 0.0], &state_of(params, &[], &[]), None)
        .logprobs
        .unwrap();
    assert_eq!(row.token_ids, [1, 2, 0, 2]);
}

#[test]
fn rows_gather_in_lists() {
    let mut lists = LogprobsLists::default();
    for rank in [1, 2] {
        LogprobsRow {
            token_ids: vec![rank],
            logprobs: vec![-0.5],
            rank,
        }
        .push_to(&mut lists);
    }
    assert_eq!(lists.logprob_token_ids, [[1], [2]]);
    assert_eq!(lists.logprobs, [[-0.5], [-0.5]]);
    assert_eq!(lists.sampled_token_ranks, [1, 2]);
}

#[test]
fn a_prompt_token_without_a_logit_has_no_probability() {
    let sampler = Sampler::new(
        VocabSizes {
            logits: 4,
            tokenizer: 2,
        },
        LogprobsMode::RawLogprobs,
    );
    let row = sampler
        .prompt_logprobs_row(
            &mut [1.0, 2.0, 3.0, 4.0],
            &greedy(),
            3,
            &mut Default::default(),
        )
        .unwrap();
    assert_eq!((row.logprobs[0], row.rank), (f32::NEG_INFINITY, 2));
}

#[test]
fn prompt_logprobs_know_no_processor() {
    let params = SamplingParams {
        prompt_logprobs: Some(1),
        logit_bias: vec![(0, 50.0)].into(),
        allowed_token_ids: Some(vec![0].into()),
        ..greedy()
    };
    let sampler = Sampler::new(
        VocabSizes {
            logits: 3,
            tokenizer: 3,
        },
        LogprobsMode::ProcessedLogits,
    );
    let row = sampler
        .prompt_logprobs_row(
            &mut [1.0, 2.0, 3.0],
            &params,
            1,
            &mut SamplerScratch::default(),
        )
        .unwrap();
    assert_eq!(
        row,
        LogprobsRow {
            token_ids: vec![1, 2],
            logprobs: vec![2.0, 3.0],
            rank: 2
        }
    );
}

proptest! {
    #[test]
    fn logprobs_are_the_references(
        row in any_row(), count in -1..40i32, temperature in 0.0..2.0f32, seed: u64,
    ) {
        let params = SamplingParams {
            logprobs: Some(count), temperature, seed: Some(seed), ..Default::default()
        };
        let output = sample(&row, &state_of(params, &[], &[]), None);
        let mut ids = all_ranked(&row);
        ids.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        assert_is_reference(&row, &output.logprobs.unwrap(), output.token_id, &ids);
    }

    #[test]
    fn prompt_logprobs_are_the_references(row in any_row(), target: prop::sample::Index) {
        let vocab = VocabSizes { logits: row.len(), tokenizer: row.len() };
        let params = SamplingParams { prompt_logprobs: Some(5), ..greedy() };
        let target = target.index(row.len()) as u32;
        let logprobs = Sampler::new(vocab, LogprobsMode::RawLogprobs)
            .prompt_logprobs_row(&mut row.clone(), &params, target, &mut Default::default())
            .unwrap();
        let mut ids = all_ranked(&row);
        ids.truncate(5);
        assert_is_reference(&row, &logprobs, target, &ids);
    }
}
