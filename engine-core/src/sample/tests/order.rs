//! The order of the stages, told by results that another order would not give.

use protocol::{LogprobsMode, SamplingParams, ThinkingTokens};

use super::{greedy, processed_logits, sample, sample_in_mode, state_of};

const MASKED: f32 = f32::NEG_INFINITY;

/// All the logprobs by id.
fn logprobs(params: SamplingParams, logits: &[f32], bitmask: Option<&[u32]>) -> Vec<f32> {
    let ids = (0..logits.len() as u32).collect();
    let params = SamplingParams {
        logprob_token_ids: Some(ids),
        ..params
    };
    let row = sample(logits, &state_of(params, &[], &[]), bitmask);
    row.logprobs.unwrap().logprobs[1..].to_vec()
}

#[test]
fn raw_logprobs_come_after_the_grammar_mask_and_before_the_rest() {
    let half = -std::f32::consts::LN_2;
    let params = SamplingParams {
        allowed_token_ids: Some(vec![1].into()),
        logit_bias: vec![(1, 5.0)].into(),
        temperature: 0.1,
        seed: Some(3),
        ..Default::default()
    };
    assert_eq!(
        logprobs(params, &[9.0, 2.0, 2.0], Some(&[0b110])),
        [MASKED, half, half]
    );
}

#[test]
fn raw_logits_are_the_models() {
    let params = SamplingParams {
        logit_bias: vec![(0, 5.0)].into(),
        logprobs: Some(2),
        temperature: 0.5,
        seed: Some(1),
        ..Default::default()
    };
    let state = state_of(params, &[], &[]);
    let row = sample_in_mode(LogprobsMode::RawLogits, &[1.0, 2.0, 3.0], &state, None).unwrap();
    let logprobs = row.logprobs.unwrap();
    assert_eq!(logprobs.token_ids[1..], [2, 1]);
    assert_eq!(logprobs.logprobs[1..], [3.0, 2.0]);
}

#[test]
fn bias_then_repetition_then_frequency_and_presence() {
    let params = SamplingParams {
        logit_bias: vec![(0, 2.0), (3, -4.0)].into(),
        repetition_penalty: 2.0,
        frequency_penalty: 0.5,
        presence_penalty: 0.25,
        ..greedy()
    };
    // Token 0 thrice in the output, 1 in the prompt alone, 2 nowhere, 3 once.
    let logits = processed_logits(&[1.0, -3.0, 1.0, 1.0], params, &[1, 1], &[0, 0, 3, 0]);
    assert_eq!(
        logits,
        [
            (1.0 + 2.0) / 2.0 - 1.5 - 0.25,
            -6.0,
            1.0,
            -3.0 * 2.0 - 0.5 - 0.25
        ]
    );
}

#[test]
fn temperature_comes_after_the_penalties_and_the_filters_last() {
    let params = SamplingParams {
        presence_penalty: 1.0,
        temperature: 0.5,
        top_k: 2,
        seed: Some(1),
        ..Default::default()
    };
    assert_eq!(
        processed_logits(&[3.0, 2.5, 1.0], params, &[], &[0]),
        [4.0, 5.0, MASKED]
    );
}

#[test]
fn greedy_decoding_knows_no_temperature_and_no_filters() {
    let params = SamplingParams {
        top_k: 1,
        top_p: 0.1,
        min_p: 1.0,
        ..greedy()
    };
    assert_eq!(processed_logits(&[3.0, 2.5], params, &[], &[]), [3.0, 2.5]);
}

#[test]
fn processed_logprobs_are_normalised_over_what_is_kept() {
    let params = SamplingParams {
        top_k: 2,
        logprobs: Some(-1),
        seed: Some(5),
        allowed_token_ids: Some(vec![1, 2, 3].into()),
        ..Default::default()
    };
    let state = state_of(params, &[], &[]);
    let logits = [9.0, 1.0, 1.0, 0.0];
    let row = sample_in_mode(LogprobsMode::ProcessedLogprobs, &logits, &state, None).unwrap();
    let logprobs = row.logprobs.unwrap();
    let half = -std::f32::consts::LN_2;
    assert_eq!(logprobs.token_ids[1..], [1, 2, 0, 3]);
    assert_eq!(logprobs.logprobs[1..], [half, half, MASKED, MASKED]);
    assert_eq!(logprobs.rank, 2);
}

#[test]
fn a_spent_thinking_budget_overrules_bias_and_penalties() {
    let params = SamplingParams {
        logit_bias: vec![(0, 100.0), (2, -100.0)].into(),
        presence_penalty: 2.0,
        thinking_token_budget: Some(0),
        thinking_tokens: Some(ThinkingTokens {
            start_token_ids: vec![1],
            end_token_ids: vec![2],
            ..ThinkingTokens::default()
        }),
        ..greedy()
    };
    assert_eq!(
        sample(&[0.0; 4], &state_of(params, &[1], &[]), None).token_id,
        2
    );
}
