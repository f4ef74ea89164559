//! Rows that a mask would empty, rows of the model that are broken, words of another length.

use protocol::{LogprobsMode, RequestError, RequestErrorCode, SamplingParams, ThinkingTokens};

use super::super::{RowMask, SampleError, Sampler, SamplerScratch, VocabSizes};
use super::{greedy, sample, sample_in_mode, state_of};

const MASKED: f32 = f32::NEG_INFINITY;
const MODE: LogprobsMode = LogprobsMode::RawLogprobs;

/// The token of a greedy row under these parameters, and whether a mask was left out.
fn outcome(logits: &[f32], params: SamplingParams, output: &[u32], bitmask: u32) -> (u32, bool) {
    let row = sample(logits, &state_of(params, &[], output), Some(&[bitmask]));
    (row.token_id, row.restored)
}

#[test]
fn masks_that_leave_a_token_are_applied() {
    let logits = [4.0, 3.0, 2.0, 1.0];
    let params = SamplingParams {
        allowed_token_ids: Some(vec![0, 1, 2].into()),
        bad_words_token_ids: vec![vec![1]].into(),
        ..greedy()
    };
    assert_eq!(outcome(&logits, params, &[], 0b1110), (2, false));
}

#[test]
fn the_grammar_wins_over_every_other_mask() {
    let logits = [4.0, 3.0, 2.0, 1.0];
    let only_token_2 = 0b0100;
    let cases = [
        SamplingParams {
            allowed_token_ids: Some(vec![0, 1].into()),
            ..greedy()
        },
        SamplingParams {
            bad_words_token_ids: vec![vec![2]].into(),
            ..greedy()
        },
        SamplingParams {
            min_tokens: 3,
            stop_token_ids: vec![2].into(),
            ..greedy()
        },
        SamplingParams {
            min_tokens: 3,
            eos_token_id: Some(2),
            ..greedy()
        },
        SamplingParams {
            thinking_token_budget: Some(0),
            thinking_tokens: Some(ThinkingTokens {
                start_token_ids: vec![3],
                end_token_ids: vec![0],
                ..ThinkingTokens::default()
            }),
            ..greedy()
        },
    ];
    for params in cases {
        assert_eq!(outcome(&logits, params, &[3], only_token_2), (2, true));
    }
    let biased = SamplingParams {
        logit_bias: vec![(2, -100.0)].into(),
        ..greedy()
    };
    assert_eq!(outcome(&logits, biased, &[3], only_token_2), (2, false));
}

#[test]
fn an_earlier_mask_wins_over_a_later_one() {
    let logits = [4.0, 3.0, 2.0, 1.0];
    let all = 0b1111;
    let params = SamplingParams {
        allowed_token_ids: Some(vec![1, 2].into()),
        bad_words_token_ids: vec![vec![1], vec![2]].into(),
        ..greedy()
    };
    assert_eq!(outcome(&logits, params, &[], all), (1, true));
    let params = SamplingParams {
        bad_words_token_ids: vec![vec![0], vec![1], vec![2]].into(),
        min_tokens: 9,
        eos_token_id: Some(3),
        ..greedy()
    };
    assert_eq!(outcome(&logits, params, &[], all), (3, true));
}

#[test]
fn a_mask_that_is_left_out_does_not_undo_the_others() {
    let params = SamplingParams {
        allowed_token_ids: Some(vec![9].into()),
        bad_words_token_ids: vec![vec![0]].into(),
        ..greedy()
    };
    assert_eq!(
        outcome(&[4.0, 3.0, 2.0, 1.0], params, &[], 0b1111),
        (1, true)
    );
}

#[test]
fn a_grammar_that_allows_nothing_is_an_error_of_this_request() {
    let state = state_of(greedy(), &[], &[5, 5]);
    let error = sample_in_mode(MODE, &[1.0, 2.0], &state, Some(&[0])).unwrap_err();
    assert_eq!(
        error,
        SampleError::GrammarMaskEmpty {
            num_tokens: 2,
            output_index: 2
        }
    );
    let error = RequestError::from(error);
    assert_eq!(error.code, RequestErrorCode::InternalError);
    assert_eq!(
        error.message,
        "the grammar allows none of the 2 tokens at output token 2"
    );
    // What the grammar allows, the model rules out.
    let error = sample_in_mode(MODE, &[1.0, MASKED], &state, Some(&[0b10])).unwrap_err();
    assert_eq!(
        error,
        SampleError::GrammarMaskEmpty {
            num_tokens: 2,
            output_index: 2
        }
    );
}

#[test]
fn nan_counts_as_masked_and_is_counted() {
    for temperature in [0.0, 1.0] {
        let params = SamplingParams {
            temperature,
            logprobs: Some(-1),
            ..greedy()
        };
        let row = sample(
            &[f32::NAN, MASKED, 2.0, f32::NAN],
            &state_of(params, &[], &[]),
            None,
        );
        assert_eq!((row.token_id, row.num_nans, row.restored), (2, 2, false));
        let logprobs = row.logprobs.unwrap();
        assert_eq!(logprobs.token_ids, [2, 2, 0, 1, 3]);
        assert_eq!(logprobs.logprobs, [0.0, 0.0, MASKED, MASKED, MASKED]);
    }
}

#[test]
fn a_row_without_a_finite_value_is_an_error_of_this_request() {
    for temperature in [0.0, 1.0] {
        let params = SamplingParams {
            temperature,
            ..greedy()
        };
        let state = state_of(params, &[], &[]);
        let error = sample_in_mode(MODE, &[f32::NAN, MASKED, f32::NAN], &state, None).unwrap_err();
        assert_eq!(
            error,
            SampleError::NoFiniteLogits {
                num_nans: 2,
                num_tokens: 3
            }
        );
    }
}

#[test]
fn infinite_logits_share_all_the_probability() {
    let infinite = f32::INFINITY;
    let logits = [f32::MAX / 2.0, infinite, 0.0, infinite];
    assert_eq!(
        sample(&logits, &state_of(greedy(), &[], &[]), None).token_id,
        1
    );
    let params = SamplingParams {
        temperature: 0.5,
        logprobs: Some(2),
        repetition_penalty: 0.5,
        seed: Some(1),
        ..Default::default()
    };
    let mut state = state_of(params, &[1, 3], &[]);
    let mut drawn = [0; 4];
    for _ in 0..200 {
        let row = sample(&logits, &state, None);
        let logprobs = row.logprobs.unwrap();
        assert_eq!(logprobs.token_ids[1..], [1, 3]);
        assert_eq!(logprobs.logprobs[1..], [-std::f32::consts::LN_2; 2]);
        drawn[row.token_id as usize] += 1;
        state.append(row.token_id);
    }
    assert!(
        drawn[1] > 50 && drawn[3] > 50 && drawn[0] + drawn[2] == 0,
        "{drawn:?}"
    );
}

#[test]
fn padding_is_never_sampled_and_never_reported() {
    let vocab = VocabSizes {
        logits: 5,
        tokenizer: 3,
    };
    let sampler = Sampler::new(vocab, MODE);
    for temperature in [0.0, 1.0] {
        let params = SamplingParams {
            temperature,
            logprobs: Some(-1),
            logit_bias: vec![(3, 100.0)].into(),
            ..greedy()
        };
        let mut logits = [0.0, 30.0, 0.0, 90.0, f32::NAN];
        let row = sampler
            .sample_row(
                &mut logits,
                &state_of(params, &[], &[]),
                Some(RowMask::Bitmask(&[u32::MAX])),
                &mut SamplerScratch::default(),
            )
            .unwrap();
        assert_eq!((row.token_id, row.num_nans), (1, 0));
        assert_eq!(row.logprobs.unwrap().token_ids, [1, 1, 0, 2]);
    }
}

#[test]
fn rows_and_masks_of_another_vocabulary_are_refused() {
    let sampler = Sampler::new(
        VocabSizes {
            logits: 40,
            tokenizer: 40,
        },
        MODE,
    );
    let state = state_of(greedy(), &[], &[]);
    let mut scratch = SamplerScratch::default();
    let error = sampler
        .sample_row(&mut [0.0; 39], &state, None, &mut scratch)
        .unwrap_err();
    assert_eq!(
        error,
        SampleError::LogitsWidth {
            expected: 40,
            found: 39
        }
    );
    let error = sampler
        .sample_row(
            &mut [0.0; 40],
            &state,
            Some(RowMask::Bitmask(&[1])),
            &mut scratch,
        )
        .unwrap_err();
    assert_eq!(
        error,
        SampleError::BitmaskWidth {
            expected: 2,
            found: 1
        }
    );
    let error = sampler
        .prompt_logprobs_row(&mut [f32::NAN; 40], &greedy(), 0, &mut scratch)
        .unwrap_err();
    assert_eq!(
        error,
        SampleError::NoFiniteLogits {
            num_nans: 40,
            num_tokens: 40
        }
    );
}
