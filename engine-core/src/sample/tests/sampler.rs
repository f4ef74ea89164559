//! What a row's token may depend on.

use proptest::prelude::*;
use protocol::{LogprobsMode, SamplingParams, ThinkingTokens};

use super::super::{KnownLogits, RowMask, Sampler, SamplerScratch, VocabSizes};
use super::{any_row, greedy, sample, state_of};
use crate::model_executor::LOGITS_PER_MAXIMUM;

fn seeded(seed: u64) -> SamplingParams {
    SamplingParams {
        seed: Some(seed),
        ..Default::default()
    }
}

/// `length` tokens of one request, row `i` being `row` turned by `i` places.
fn generate(params: &SamplingParams, row: &[f32], prompt: &[u32], length: usize) -> Vec<u32> {
    let mut state = state_of(params.clone(), prompt, &[]);
    continue_from(&mut state, row, length);
    state.output_token_ids().to_vec()
}

fn continue_from(state: &mut super::RequestSamplingState, row: &[f32], length: usize) {
    while state.output_token_ids().len() < length {
        let mut turned = row.to_vec();
        turned.rotate_left(state.output_token_ids().len() % row.len());
        let token_id = sample(&turned, state, None).token_id;
        state.append(token_id);
    }
}

#[test]
fn greedy_takes_the_lower_id_among_equals() {
    assert_eq!(
        sample(&[1.0, 3.0, 3.0], &state_of(greedy(), &[], &[]), None).token_id,
        1
    );
    let nearly = SamplingParams {
        temperature: 9e-6,
        ..greedy()
    };
    assert_eq!(
        sample(&[1.0, 3.0, 3.0], &state_of(nearly, &[], &[]), None).token_id,
        1
    );
}

#[test]
fn top_k_of_one_is_greedy() {
    for seed in 0..50 {
        let params = SamplingParams {
            top_k: 1,
            ..seeded(seed)
        };
        assert_eq!(
            sample(&[1.0, 3.0, 3.0], &state_of(params, &[], &[]), None).token_id,
            1
        );
    }
}

#[test]
fn a_seed_reproduces_and_another_differs() {
    let row: Vec<f32> = (0..100u8).map(|id| f32::from(id % 7)).collect();
    let tokens = |seed| generate(&seeded(seed), &row, &[1], 30);
    assert_eq!(tokens(8), tokens(8));
    assert_ne!(tokens(8), tokens(9));
}

#[test]
fn the_draws_of_a_seed_never_change() {
    let row: Vec<f32> = (0..100u8).map(|id| f32::from(id % 7)).collect();
    assert_eq!(
        generate(&seeded(8), &row, &[1], 12),
        [34, 47, 60, 66, 79, 71, 98, 83, 98, 17, 9, 23]
    );
}

#[test]
fn requests_without_a_seed_differ() {
    let row = [0.0; 100];
    let params = SamplingParams {
        seed: None,
        ..Default::default()
    };
    assert_ne!(
        generate(&params, &row, &[1], 30),
        generate(&params, &row, &[1], 30)
    );
}

#[test]
fn bad_words_match_the_tail_of_the_output() {
    let params = SamplingParams {
        bad_words_token_ids: vec![vec![1, 2, 3], vec![0]].into(),
        ..greedy()
    };
    let logits = [9.0, 5.0, 4.0, 8.0];
    let next = |prompt: &[u32], output: &[u32]| {
        sample(&logits, &state_of(params.clone(), prompt, output), None).token_id
    };
    assert_eq!(next(&[], &[]), 3);
    assert_eq!(next(&[], &[2]), 3);
    assert_eq!(next(&[], &[0, 1, 2]), 1);
    assert_eq!(next(&[], &[1, 2, 2]), 3);
    assert_eq!(next(&[1], &[2]), 3);
    assert_eq!(next(&[1, 2], &[]), 3);
}

#[test]
fn stop_tokens_wait_for_min_tokens() {
    let params = SamplingParams {
        min_tokens: 2,
        eos_token_id: Some(0),
        stop_token_ids: vec![1, 4_000_000].into(),
        ..greedy()
    };
    let logits = [9.0, 8.0, 7.0];
    let next = |output: &[u32]| sample(&logits, &state_of(params.clone(), &[], output), None);
    assert_eq!(next(&[]).token_id, 2);
    assert_eq!(next(&[2]).token_id, 2);
    assert_eq!(next(&[2, 2]).token_id, 0);
}

#[test]
fn the_end_of_thinking_is_forced_token_by_token() {
    // 7 8 opens, 5 6 closes, two tokens of thought.
    let params = SamplingParams {
        thinking_token_budget: Some(2),
        thinking_tokens: Some(ThinkingTokens {
            start_token_ids: vec![7, 8],
            end_token_ids: vec![5, 6],
            ..ThinkingTokens::default()
        }),
        ..greedy()
    };
    let mut logits = [0.0; 9];
    logits[1] = 1.0;
    assert_eq!(
        generate_all(&params, &logits, &[7, 8], 6),
        [1, 1, 5, 6, 1, 1]
    );
    // One thought is in the prompt already.
    assert_eq!(
        generate_all(&params, &logits, &[7, 8, 3], 5),
        [1, 5, 6, 1, 1]
    );
    // Thinking was over in the prompt, or never began.
    assert_eq!(generate_all(&params, &logits, &[7, 8, 5, 6], 3), [1, 1, 1]);
    assert_eq!(generate_all(&params, &logits, &[8, 7], 3), [1, 1, 1]);
}

#[test]
fn a_close_that_the_model_began_is_completed() {
    let params = SamplingParams {
        thinking_token_budget: Some(2),
        thinking_tokens: Some(ThinkingTokens {
            start_token_ids: vec![7],
            end_token_ids: vec![5, 5, 6],
            ..ThinkingTokens::default()
        }),
        ..greedy()
    };
    let mut logits = [0.0; 9];
    logits[1] = 1.0;
    let forced =
        |output: &[u32]| sample(&logits, &state_of(params.clone(), &[7], output), None).token_id;
    assert_eq!(forced(&[1, 5]), 5);
    assert_eq!(forced(&[5, 5]), 6);
    assert_eq!(forced(&[5, 5, 5]), 6);
    assert_eq!(forced(&[5, 5, 6]), 1);
    // A second time of thinking has a budget of its own.
    assert_eq!(forced(&[5, 5, 6, 7, 1]), 1);
    assert_eq!(forced(&[5, 5, 6, 7, 1, 1]), 5);
}

/// Tokens of one request over the same row.
fn generate_all(params: &SamplingParams, row: &[f32], prompt: &[u32], length: usize) -> Vec<u32> {
    let mut state = state_of(params.clone(), prompt, &[]);
    for _ in 0..length {
        let token_id = sample(row, &state, None).token_id;
        state.append(token_id);
    }
    state.output_token_ids().to_vec()
}

fn any_params() -> impl Strategy<Value = SamplingParams> {
    (
        (
            0.0..2.0f32,
            0..20u32,
            0.1..1.0f32,
            0.0..0.1f32,
            any::<u64>(),
        ),
        (0.5..2.0f32, -2.0..2.0f32, -2.0..2.0f32, 0..5u32),
        prop::option::of(prop::collection::btree_set(0..40u32, 1..30)),
        prop::collection::vec(prop::collection::vec(0..40u32, 1..3), 0..5),
        prop::option::of(0..5u32),
        prop::option::of(-1..4i32),
    )
        .prop_map(
            |(draw, penalties, allowed_token_ids, bad_words_token_ids, budget, logprobs)| {
                let (temperature, top_k, top_p, min_p, seed) = draw;
                let (repetition_penalty, frequency_penalty, presence_penalty, min_tokens) =
                    penalties;
                SamplingParams {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    seed: Some(seed),
                    repetition_penalty,
                    frequency_penalty,
                    presence_penalty,
                    min_tokens,
                    eos_token_id: Some(2),
                    allowed_token_ids: allowed_token_ids.map(|ids| ids.into_iter().collect()),
                    bad_words_token_ids: bad_words_token_ids.into(),
                    thinking_token_budget: budget,
                    thinking_tokens: Some(ThinkingTokens {
                        start_token_ids: vec![0],
                        end_token_ids: vec![3, 4],
                        ..ThinkingTokens::default()
                    }),
                    logprobs,
                    ..Default::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn a_resumed_request_goes_on_as_if_never_interrupted(
        params in any_params(),
        row in prop::collection::vec(-3.0..3.0f32, 40),
        prompt in prop::collection::vec(0..40u32, 1..10),
        resume_at in 0..20usize,
    ) {
        let whole = generate(&params, &row, &prompt, 20);
        let mut resumed = state_of(params, &prompt, &whole[..resume_at]);
        continue_from(&mut resumed, &row, 20);
        prop_assert_eq!(resumed.output_token_ids(), &whole[..]);
    }

    #[test]
    fn rows_sampled_before_do_not_matter(
        params in any_params(), row in any_row(), others in prop::collection::vec(any_row(), 1..4),
    ) {
        let mut scratch = SamplerScratch::default();
        let mut with_scratch = |row: &[f32]| {
            let vocab = VocabSizes { logits: row.len(), tokenizer: row.len() };
            let state = state_of(params.clone(), &[1, 2], &[3]);
            Sampler::new(vocab, LogprobsMode::RawLogprobs)
                .sample_row(&mut row.to_vec(), &state, None, &mut scratch)
        };
        for other in &others {
            with_scratch(other).unwrap();
        }
        let alone = sample(&row, &state_of(params.clone(), &[1, 2], &[3]), None);
        prop_assert_eq!(with_scratch(&row).unwrap(), alone);
    }

    #[test]
    fn what_the_grammar_rules_out_does_not_matter(
        params in any_params(),
        row in prop::collection::vec(-3.0..3.0f32, 100),
        garbage in prop::collection::vec(-300.0..300.0f32, 100),
        bitmask in prop::array::uniform4(any::<u32>()),
    ) {
        prop_assume!(bitmask[0] != 0);
        let allowed = |id: usize| bitmask[id / 32] >> (id % 32) & 1 == 1;
        let row_with = |other: &dyn Fn(usize) -> f32| -> Vec<f32> {
            (0..100).map(|id| if allowed(id) { row[id] } else { other(id) }).collect()
        };
        let state = state_of(params, &[1, 2], &[3]);
        let full = sample(&row_with(&|id| garbage[id]), &state, Some(&bitmask));
        let sparse = sample(&row_with(&|_| f32::NEG_INFINITY), &state, None);
        prop_assert!(allowed(full.token_id as usize));
        prop_assert_eq!(full, sparse);
    }

    #[test]
    fn what_is_known_of_a_row_changes_nothing(
        params in any_params(),
        mut row in prop::collection::vec(
            prop_oneof![
                30 => -3.0..3.0f32, 5 => Just(f32::NEG_INFINITY), 1 => Just(f32::INFINITY), 1 => Just(f32::NAN),
            ],
            1..300,
        ),
        padding in prop::collection::vec(0.0..9.0f32, 0..70),
        words in prop::collection::vec(
            prop_oneof![4 => any::<u32>(), 4 => Just(u32::MAX), 2 => Just(0)], 12,
        ),
        kind in 0..4,
        ids in prop::collection::btree_set(0..300u32, 1..20),
    ) {
        let vocab = VocabSizes { logits: row.len() + padding.len(), tokenizer: row.len() };
        let ids: Vec<u32> = ids.into_iter().filter(|&id| (id as usize) < row.len()).collect();
        let mask = match kind {
            0 => None,
            1 => Some(RowMask::Bitmask(&words)),
            2 => Some(RowMask::Without(&ids)),
            _ => Some(RowMask::Only(&ids)),
        };
        let state = state_of(params, &[1, 2], &[3]);
        let sampler = Sampler::new(vocab, LogprobsMode::RawLogprobs);
        let sample = |logits: &[f32], known, mask| {
            let mut logits = logits.to_vec();
            let mut scratch = SamplerScratch::default();
            let row = sampler.sample_known_row(&mut logits, known, &state, mask, &mut scratch);
            row.map_err(|error| error.to_string())
        };
        let num_tokens = row.len();
        row.extend(padding);
        let plain = sample(&row, KnownLogits::Nothing, mask);
        let maxima: Vec<f32> = row.chunks(LOGITS_PER_MAXIMUM).map(|logits| {
            match logits.iter().any(|logit| logit.is_nan()) {
                true => f32::NAN,
                false => logits.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            }
        }).collect();
        prop_assert_eq!(&sample(&row, KnownLogits::Maxima(&maxima), mask), &plain);

        let is_kept = |&id: &usize| ids.contains(&(id as u32));
        let few: Vec<f32> = (0..row.len())
            .map(|id| if is_kept(&id) { row[id] } else { f32::NEG_INFINITY })
            .collect();
        prop_assert!(num_tokens <= few.len());
        prop_assert_eq!(
            sample(&few, KnownLogits::Only(&ids), None),
            sample(&few, KnownLogits::Nothing, None)
        );
    }
}
