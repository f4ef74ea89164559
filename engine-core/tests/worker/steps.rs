//! What goes into each forward pass, and what comes of its logits.

use std::sync::Arc;

use engine_core::core::sched::{CachedRequestData, SchedulerOutput};
use engine_core::worker::{Executor, ExecutorError, ModelRunnerError};
use protocol::{SamplingParams, ScoredPosition};

use crate::counting_model::{CountingModel, Poison, SeenInput, next_token};
use crate::{cached, greedy, new_request, runner, step_of};

#[test]
fn a_sampled_token_is_the_next_steps_input() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![
        new_request("a", &[5, 6, 7], &[3], greedy()),
        new_request("b", &[1, 2, 3, 4, 5], &[9, 1], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("a", 3), ("b", 5)],
        ))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(
        output.sampled_token_ids,
        [vec![next_token(7, 2)], vec![next_token(5, 4)]]
    );

    let step = step_of(Vec::new(), cached("a", &[], 3, 1), &[("a", 1)]);
    runner.execute_model(&step).unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![next_token(9, 3)]]);

    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0],
        SeenInput {
            input_ids: vec![5, 6, 7, 1, 2, 3, 4, 5],
            positions: vec![0, 1, 2, 0, 1, 2, 3, 4],
            slot_mapping: vec![12, 13, 14, 36, 37, 38, 39, 4],
            seq_lens: vec![3, 5],
            logits_indices: vec![2, 7],
        }
    );
    assert_eq!(seen[1].input_ids, [9]);
    assert_eq!(seen[1].positions, [3]);
    assert_eq!(seen[1].slot_mapping, [15]);
}

#[test]
fn part_of_a_prefill_samples_nothing_and_prompt_logprobs_come_once() {
    let mut runner = runner(CountingModel::default());
    let params = SamplingParams {
        prompt_logprobs: Some(1),
        ..greedy()
    };
    let prompt = [5, 5, 6, 30, 2];
    let new = vec![new_request("a", &prompt, &[3], params)];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 2)]))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [Vec::<u32>::new()]);
    assert_eq!(output.prompt_logprobs, [None]);

    runner
        .execute_model(&step_of(Vec::new(), cached("a", &[4], 2, 0), &[("a", 3)]))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![next_token(2, 4)]]);
    let rows = output.prompt_logprobs[0].as_ref().unwrap();
    // Row i: the prompt's token i + 1, then the model's favourite.
    let ids: Vec<Vec<u32>> = (0..4)
        .map(|position| {
            vec![
                prompt[position + 1],
                next_token(prompt[position], position as u32),
            ]
        })
        .collect();
    assert_eq!(rows.logprob_token_ids, ids);
    // Token 5 after token 5 at position 0 is the favourite.
    assert_eq!(rows.sampled_token_ranks[0], 1);

    runner
        .execute_model(&step_of(Vec::new(), cached("a", &[], 5, 1), &[("a", 1)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().prompt_logprobs, [None]);
}

#[test]
fn positions_are_scored_over_chunks_and_after_a_preemption() {
    let mut runner = runner(CountingModel::default());
    let prompt = [5, 5, 6, 30, 2, 9];
    let position = |num_tokens: u32, ids: &[u32]| ScoredPosition {
        num_tokens,
        token_ids: ids.to_vec(),
    };
    let after = |num_tokens: usize| next_token(prompt[num_tokens - 1], num_tokens as u32 - 1);
    // The favourite has logit 10, the next ids 9 and 8.
    let few = |num_tokens: usize| [after(num_tokens), (after(num_tokens) + 2) % 37];
    let mut request = new_request("a", &prompt, &[3], greedy());
    request.scored_positions = [2, 4, 6]
        .map(|num_tokens| position(num_tokens, &few(num_tokens as usize)))
        .into();
    let steps = [
        step_of(vec![request], CachedRequestData::default(), &[("a", 3)]),
        // It was preempted: all is computed again, and what was scored isn't again.
        step_of(
            Vec::new(),
            CachedRequestData {
                resumed_req_ids: vec!["a".into()],
                ..cached("a", &[8, 2], 0, 0)
            },
            &[("a", 5)],
        ),
        step_of(Vec::new(), cached("a", &[], 5, 0), &[("a", 1)]),
    ];
    let mut scores = Vec::new();
    for step in &steps {
        runner.execute_model(step).unwrap();
        let output = runner.sample_tokens(None).unwrap();
        assert_eq!(output.sampled_token_ids, [Vec::<u32>::new()]);
        scores.extend(output.scores);
    }
    assert_eq!(scores[..2], [Vec::<Vec<f32>>::new(), Vec::new()]);
    assert_eq!(scores[2].len(), 3);
    for row in &scores[2] {
        let log_sum = (1.0 + (-2.0_f32).exp()).ln();
        assert!((row[0] + log_sum).abs() < 1e-6, "{row:?}");
        assert!((row[1] + 2.0 + log_sum).abs() < 1e-6, "{row:?}");
    }
}

#[test]
fn a_resumed_request_uses_its_new_table() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![new_request("a", &[5, 6, 7], &[3], greedy())];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    let first = runner.sample_tokens(None).unwrap().sampled_token_ids[0][0];
    let resumed = CachedRequestData {
        resumed_req_ids: vec!["a".into()],
        ..cached("a", &[8, 2], 0, 1)
    };
    runner
        .execute_model(&step_of(Vec::new(), resumed, &[("a", 4)]))
        .unwrap();
    assert_eq!(
        runner.sample_tokens(None).unwrap().sampled_token_ids,
        [vec![next_token(first, 3)]]
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[1].input_ids, [5, 6, 7, first]);
    assert_eq!(seen[1].slot_mapping, [32, 33, 34, 35]);
}

#[test]
fn a_row_without_a_number_fails_its_request_alone() {
    let model = CountingModel {
        all_nan_after: Some(6),
        ..CountingModel::default()
    };
    let mut runner = runner(model);
    let new = vec![
        new_request("good", &[5], &[1], greedy()),
        new_request("bad", &[6], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("good", 1), ("bad", 1)],
        ))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![5], vec![]]);
    assert!(output.errors[0].is_none());
    assert!(
        output.errors[1].as_ref().unwrap().contains("NaN"),
        "{:?}",
        output.errors[1]
    );
}

#[test]
fn the_two_halves_of_a_step_alternate() {
    let mut runner = runner(CountingModel::default());
    assert!(matches!(
        runner.sample_tokens(None),
        Err(ModelRunnerError::OutOfTurn)
    ));
    runner.execute_model(&SchedulerOutput::default()).unwrap();
    assert!(matches!(
        runner.execute_model(&SchedulerOutput::default()),
        Err(ModelRunnerError::OutOfTurn)
    ));
}

#[test]
fn a_scheduler_that_contradicts_itself_is_an_error() {
    let mut runner1 = runner(CountingModel::default());
    let step = step_of(Vec::new(), CachedRequestData::default(), &[("ghost", 1)]);
    assert!(matches!(
        runner1.execute_model(&step),
        Err(ModelRunnerError::UnknownRequest(_))
    ));
    let mut runner2 = runner(CountingModel::default());
    let new = vec![new_request("a", &[1, 2, 3, 4, 5], &[1], greedy())];
    let step = step_of(new, CachedRequestData::default(), &[("a", 5)]);
    assert!(matches!(
        runner2.execute_model(&step),
        Err(ModelRunnerError::MissingBlocks(_))
    ));
}

#[test]
fn a_failing_forward_pass_is_an_error_and_a_panicking_one_too() {
    for (poison, expected) in [
        (Poison::Error, "poisoned"),
        (Poison::Panic, "panicked: poisoned"),
    ] {
        let model = CountingModel {
            poison: Some((6, poison)),
            ..CountingModel::default()
        };
        let mut executor = Executor::new(runner(model)).unwrap();
        let new = vec![new_request("a", &[6], &[1], greedy())];
        let step = Arc::new(step_of(new, CachedRequestData::default(), &[("a", 1)]));
        let error = executor.execute_model(step).unwrap().join().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(
            error,
            ExecutorError::Runner(_) | ExecutorError::Panicked(_)
        ));
    }
}
