//! Masks and drafts: which rows are computed and sampled.

use std::sync::Arc;

use engine_core::core::sched::{CachedRequestData, GrammarOutput, RequestMasks};
use engine_core::model_executor::ComputePool;
use engine_core::structured_output::TokenMask;
use engine_core::worker::{ModelRunner, ModelRunnerConfig};
use protocol::SamplingParams;

use crate::counting_model::{CountingModel, VOCAB_SIZE, next_token};
use crate::{cached, greedy, new_request, runner, runner_config, step_of};

#[test]
fn a_row_of_the_mask_belongs_to_its_request() {
    let mut runner = runner(CountingModel::default());
    let new = vec![
        new_request("free", &[5], &[1], greedy()),
        new_request("bound", &[5], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("free", 1), ("bound", 1)],
        ))
        .unwrap();
    let words = TokenMask::Words([1 << 20 | 1 << 30, u32::MAX].into());
    let grammar_output = GrammarOutput {
        masks: vec![RequestMasks::Free, RequestMasks::Masks(vec![words])],
    };
    let output = runner.sample_tokens(Some(&grammar_output)).unwrap();
    // 5 is the favourite; of 20, 30 and 32 to 36 the first is the nearest after it.
    assert_eq!(output.sampled_token_ids, [vec![5], vec![20]]);
}

/// A step that verifies `draft` after one known token.
fn verify(runner: &mut ModelRunner, draft: &[u32], num_computed: u32, num_output: u32) -> Vec<u32> {
    let mut step = step_of(
        Vec::new(),
        cached("a", &[], num_computed, num_output),
        &[("a", 1 + draft.len())],
    );
    step.scheduled_spec_decode_tokens = vec![draft.to_vec()];
    runner.execute_model(&step).unwrap();
    runner
        .sample_tokens(None)
        .unwrap()
        .sampled_token_ids
        .remove(0)
}

#[test]
fn a_draft_is_kept_as_far_as_it_is_what_would_have_come() {
    let largest_of = Arc::default();
    let model = CountingModel {
        largest_of: Some(Arc::clone(&largest_of)),
        ..CountingModel::default()
    };
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![new_request("a", &[5, 6, 7], &[3, 4, 5], greedy())];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().sampled_token_ids, [[9]]);
    // After 9 at position 3 come 12, 16, 21: two tokens of the draft are right.
    assert_eq!(verify(&mut runner, &[12, 16, 30], 3, 1), [12, 16, 21]);
    // What was computed for the third is computed again for the right one.
    assert_eq!(verify(&mut runner, &[], 6, 4), [next_token(21, 6)]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen[1].input_ids, [9, 12, 16, 30]);
    assert_eq!(seen[1].positions, [3, 4, 5, 6]);
    assert_eq!(seen[1].logits_indices, [0, 1, 2, 3]);
    assert_eq!(seen[2].input_ids, [21]);
    assert_eq!(seen[2].positions, [6]);
    // Behind a draft the sampler's state could be another one: the second step got all logits.
    assert_eq!(*largest_of.lock().unwrap(), [[0], [0]]);
}

#[test]
fn tokens_from_the_scheduler_take_the_place_of_those_sampled_here() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let params = SamplingParams {
        frequency_penalty: 2.0,
        ..greedy()
    };
    let new = vec![new_request("a", &[5, 6, 7], &[3, 4, 5], params)];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().sampled_token_ids, [[9]]);
    // 9 was not taken: 20 and 21 were forced instead.
    let forced = CachedRequestData {
        new_token_ids: vec![vec![20, 21]],
        ..cached("a", &[], 3, 2)
    };
    runner
        .execute_model(&step_of(Vec::new(), forced, &[("a", 2)]))
        .unwrap();
    assert_eq!(
        runner.sample_tokens(None).unwrap().sampled_token_ids,
        [[next_token(21, 4)]]
    );
    assert_eq!(seen.lock().unwrap()[1].input_ids, [20, 21]);
}

#[test]
fn few_tokens_need_few_logits_and_one_needs_none() {
    let sampled = |enable_sparse_head: bool| {
        let config = ModelRunnerConfig {
            enable_sparse_head,
            ..runner_config()
        };
        let pool = Arc::new(ComputePool::new(2).unwrap());
        let mut runner = ModelRunner::new(Box::new(CountingModel::default()), pool, &config);
        let ids = ["few", "one", "all", "logprobs"];
        let with_logprobs = SamplingParams {
            logprobs: Some(0),
            ..greedy()
        };
        let new = ids.iter().zip(1..).map(|(id, block)| {
            let params = match *id {
                "logprobs" => with_logprobs.clone(),
                _ => greedy(),
            };
            new_request(id, &[5], &[block], params)
        });
        let step = step_of(
            new.collect(),
            CachedRequestData::default(),
            &ids.map(|id| (id, 1)),
        );
        runner.execute_model(&step).unwrap();
        let few = || RequestMasks::Masks(vec![TokenMask::Ids([20, 30, 36].into())]);
        let masks = vec![
            few(),
            RequestMasks::Masks(vec![TokenMask::Only(33)]),
            RequestMasks::Free,
            few(),
        ];
        let output = runner
            .sample_tokens(Some(&GrammarOutput { masks }))
            .unwrap();
        assert_eq!(output.num_head_rows, 4 * VOCAB_SIZE as u64);
        (output.sampled_token_ids, output.num_head_rows_skipped)
    };
    let (sparse, num_skipped) = sampled(true);
    assert_eq!(sparse, [vec![20], vec![33], vec![5], vec![20]]);
    assert_eq!(num_skipped, 37 + 40);
    assert_eq!(sampled(false), (sparse, 0));
}

/// Samples a first token of requests with these parameters and masks, all after token 5 but for the last.
/// Returns the tokens, the rows of which only the largest logit was asked, and those of which all were.
fn sample_first(
    has_argmax: bool,
    requests: &[(SamplingParams, RequestMasks)],
    last_prompt: u32,
) -> (Vec<Vec<u32>>, Vec<Vec<usize>>, Vec<usize>) {
    let (largest_of, logits_of) = (Arc::default(), Arc::default());
    let model = CountingModel {
        all_nan_after: Some(6),
        largest_of: has_argmax.then(|| Arc::clone(&largest_of)),
        logits_of: Arc::clone(&logits_of),
        ..CountingModel::default()
    };
    let mut runner = runner(model);
    let ids: Vec<String> = (0..requests.len()).map(|index| index.to_string()).collect();
    let last = requests.len() - 1;
    let new = requests.iter().enumerate().map(|(index, (params, _))| {
        let prompt = [if index == last { last_prompt } else { 5 }];
        new_request(&ids[index], &prompt, &[index as u32 + 1], params.clone())
    });
    let scheduled: Vec<(&str, usize)> = ids.iter().map(|id| (id.as_str(), 1)).collect();
    let step = step_of(new.collect(), CachedRequestData::default(), &scheduled);
    runner.execute_model(&step).unwrap();
    let masks = requests.iter().map(|(_, masks)| masks.clone()).collect();
    let output = runner
        .sample_tokens(Some(&GrammarOutput { masks }))
        .unwrap();
    let is_failed = output.errors.iter().map(Option::is_some);
    let expected_failed = (0..=last).map(|index| index == last && last_prompt == 6);
    assert!(is_failed.eq(expected_failed), "{:?}", output.errors);
    let largest_of = largest_of.lock().unwrap().clone();
    let logits_of = logits_of.lock().unwrap().clone();
    (output.sampled_token_ids, largest_of, logits_of)
}

#[test]
fn greedy_rows_ask_for_the_largest_logit_alone() {
    let words = |words: [u32; 2]| RequestMasks::Masks(vec![TokenMask::Words(words.into())]);
    let few = RequestMasks::Masks(vec![TokenMask::Ids([20, 30, 36].into())]);
    let requests = [
        (greedy(), RequestMasks::Free),
        (greedy(), words([1 << 20 | 1 << 30, u32::MAX])),
        // None of its own rows of the head: these logits are few.
        (greedy(), few),
        (greedy(), words([0, 1 << 3])),
        (greedy(), RequestMasks::Free),
    ];
    let tokens = [vec![5], vec![20], vec![20], vec![35], vec![7]];
    let (found, largest_of, logits_of) = sample_first(true, &requests, 7);
    assert_eq!((found.as_slice(), logits_of), (tokens.as_slice(), vec![2]));
    assert_eq!(largest_of, [[0, 1, 3, 4]]);
    // As without.
    let (found, largest_of, logits_of) = sample_first(false, &requests, 7);
    assert_eq!((found.as_slice(), largest_of.len()), (tokens.as_slice(), 0));
    assert_eq!(logits_of, [0, 1, 3, 4, 2]);

    // A row of which it doesn't tell gets its logits, and fails by itself as it does with them.
    let (found, largest_of, logits_of) = sample_first(true, &requests, 6);
    let mut expected = tokens.clone();
    expected[4].clear();
    assert_eq!(
        (found.as_slice(), logits_of),
        (expected.as_slice(), vec![4, 2])
    );
    assert_eq!(largest_of, [[0, 1, 3, 4]]);
}

#[test]
fn rows_that_read_more_than_the_largest_logit_get_them_all() {
    let words = RequestMasks::Masks(vec![TokenMask::Words([1 << 20 | 1 << 30, 0].into())]);
    let others = [
        SamplingParams {
            temperature: 1.0,
            seed: Some(1),
            top_k: 1,
            ..greedy()
        },
        SamplingParams {
            logprobs: Some(1),
            ..greedy()
        },
        SamplingParams {
            logprob_token_ids: Some(vec![3].into()),
            ..greedy()
        },
        SamplingParams {
            min_tokens: 2,
            ..greedy()
        },
        SamplingParams {
            presence_penalty: 0.5,
            ..greedy()
        },
        SamplingParams {
            frequency_penalty: 0.5,
            ..greedy()
        },
        SamplingParams {
            repetition_penalty: 1.5,
            ..greedy()
        },
        SamplingParams {
            logit_bias: vec![(3, 100.0)].into(),
            ..greedy()
        },
        SamplingParams {
            allowed_token_ids: Some(vec![9, 20].into()),
            ..greedy()
        },
        SamplingParams {
            bad_words_token_ids: vec![vec![5]].into(),
            ..greedy()
        },
    ];
    for params in others {
        // The weights of the head would be read twice, so the first row gets its logits, too.
        let requests = [
            (greedy(), words.clone()),
            (params.clone(), RequestMasks::Free),
        ];
        let with = sample_first(true, &requests, 7);
        let without = sample_first(false, &requests, 7);
        assert_eq!(with, without, "{params:?}");
        assert_eq!((with.1.len(), with.2.as_slice()), (0, [0, 1].as_slice()));
        assert_eq!(with.0[0], [20]);
    }
    // A mask that rules out few tokens has no words.
    let without = RequestMasks::Masks(vec![TokenMask::Without([5, 6].into())]);
    let requests = [(greedy(), words), (greedy(), without)];
    let (tokens, largest_of, logits_of) = sample_first(true, &requests, 5);
    assert_eq!(
        (tokens[1].as_slice(), logits_of),
        ([7].as_slice(), vec![0, 1])
    );
    assert!(largest_of.is_empty());
}

#[test]
fn a_request_without_a_mask_fails_alone() {
    let mut runner = runner(CountingModel::default());
    let new = vec![
        new_request("bad", &[5], &[1], greedy()),
        new_request("good", &[5], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("bad", 1), ("good", 1)],
        ))
        .unwrap();
    let masks = vec![RequestMasks::Failed("for a test".to_owned())];
    let output = runner
        .sample_tokens(Some(&GrammarOutput { masks }))
        .unwrap();
    assert_eq!(output.errors, [Some("for a test".to_owned()), None]);
    assert_eq!(output.sampled_token_ids, [vec![], vec![5]]);
}
