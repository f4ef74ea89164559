//! What the runner's answer does to the requests, and what each client hears.

use protocol::{
    FinishReason, LogprobsLists, PoolingParams, RequestErrorCode, ScoredPosition, TokenTrace,
};

use super::*;

fn logprobs(rows: u32) -> LogprobsLists {
    LogprobsLists {
        logprob_token_ids: (0..rows).map(|row| vec![row]).collect(),
        logprobs: (0..rows).map(|row| vec![-(row as f32)]).collect(),
        sampled_token_ranks: (1..=rows).collect(),
    }
}

#[test]
fn prompt_tokens_count_in_the_step_that_computes_them() {
    let mut scheduler = scheduler(config(20, 4), 40);
    let stats = |scheduler: &mut Scheduler| {
        let outputs = step_outputs(scheduler, 7);
        let stats = outputs.into_values().find_map(|of| of.scheduler_stats);
        let stats = stats.unwrap();
        (stats.num_scheduled_tokens, stats.num_prompt_tokens)
    };
    add(&mut scheduler, request("a", 46));
    assert_eq!(stats(&mut scheduler), (20, 20));
    assert_eq!(stats(&mut scheduler), (20, 20));
    add(&mut scheduler, request("b", 9));
    assert_eq!(stats(&mut scheduler), (15, 15));
    // One token each, of the answers.
    assert_eq!(stats(&mut scheduler), (2, 0));
}

#[test]
fn a_scored_request_ends_with_its_scores_and_without_a_token() {
    let scored = |id: &str| EngineCoreRequest {
        scored_positions: [3, 9]
            .map(|num_tokens| ScoredPosition {
                num_tokens,
                token_ids: vec![1, 2],
            })
            .into(),
        ..request(id, 9)
    };
    let mut scheduler = scheduler(config(20, 4), 20);
    for id in ["a", "b", "c"] {
        add(&mut scheduler, scored(id));
    }
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:9 b:9 c:2");
    let rows = vec![vec![-0.5, -1.0], vec![0.0, f32::NEG_INFINITY]];
    let answer = ModelRunnerOutput {
        // The second lacks one, the third isn't computed yet.
        scores: vec![rows.clone(), rows[..1].to_vec(), Vec::new()],
        ..ModelRunnerOutput::empty(3)
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    let ends: Vec<_> = outputs
        .iter()
        .map(|o| (o.request_id.as_str(), o.finish_reason, o.scores.len()))
        .collect();
    let (stop, error) = (Some(FinishReason::Stop), Some(FinishReason::Error));
    assert_eq!(ends, [("a", stop, 2), ("b", error, 0)]);
    assert_eq!(outputs[0].scores, rows);
    assert_eq!(outputs[0].new_token_ids, [] as [u32; 0]);
    assert!(outputs[0].prefill_stats.is_some());
    assert_eq!(running_ids(&scheduler), ["c"]);
    let output = scheduler.schedule();
    let answer = ModelRunnerOutput {
        scores: vec![rows],
        ..ModelRunnerOutput::empty(1)
    };
    assert_eq!(flat(scheduler.update_from_output(&output, answer)).len(), 1);
    scheduler.schedule();
    assert_idle(&scheduler);
}

#[test]
fn a_pooled_request_ends_with_its_vector_and_without_a_token() {
    let mut scheduler = scheduler(config(20, 4), 20);
    for id in ["a", "b", "c"] {
        let pooling_params = Some(PoolingParams::default());
        let request = EngineCoreRequest {
            pooling_params,
            ..request(id, 9)
        };
        add(&mut scheduler, request);
    }
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "a:9 b:9 c:2");
    let answer = ModelRunnerOutput {
        // The second lacks one, the third isn't computed yet.
        pooler_output: vec![Some(vec![0.5, 1.0]), None, None],
        ..ModelRunnerOutput::empty(3)
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    let ends: Vec<_> = outputs
        .iter()
        .map(|o| (o.request_id.as_str(), o.finish_reason))
        .collect();
    let (stop, error) = (Some(FinishReason::Stop), Some(FinishReason::Error));
    assert_eq!(ends, [("a", stop), ("b", error)]);
    assert_eq!(outputs[0].pooling_output, Some(vec![0.5, 1.0]));
    assert_eq!(outputs[0].new_token_ids, [] as [u32; 0]);
    assert_eq!(running_ids(&scheduler), ["c"]);
}

#[test]
fn an_error_ends_one_request_alone() {
    let mut scheduler = scheduler(config(100, 4), 20);
    for id in ["a", "b", "c"] {
        add(&mut scheduler, request(id, 9));
    }
    let output = scheduler.schedule();
    let answer = ModelRunnerOutput {
        errors: vec![None, Some("the sampler failed".to_owned()), None],
        ..sampling(&scheduler, &output, 7)
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    assert_eq!(outputs.len(), 3);
    assert_eq!(outputs[0].new_token_ids, [7]);
    assert_eq!(outputs[2].new_token_ids, [7]);
    assert_eq!(outputs[1].finish_reason, Some(FinishReason::Error));
    assert_eq!(outputs[1].new_token_ids, [0; 0]);
    let error = outputs[1].error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::InternalError);
    assert_eq!(error.message, "the sampler failed");
    assert_eq!(running_ids(&scheduler), ["a", "c"]);
    // What the failed step should have written is not found by others.
    add(
        &mut scheduler,
        EngineCoreRequest {
            request_id: "d".to_owned(),
            ..request("b", 9)
        },
    );
    assert_eq!(step(&mut scheduler), "a:1 c:1 d:9");
}

#[test]
fn traces_go_with_the_tokens_that_are_taken() {
    let mut scheduler = scheduler(config(100, 4), 20);
    let mut traced = request("a", 9);
    traced.sampling_params.include_trace = true;
    traced.sampling_params.stop_token_ids = [8].into();
    add(&mut scheduler, traced);
    add(&mut scheduler, request("b", 9));
    let entry = |num_allowed| TokenTrace {
        num_allowed,
        ..TokenTrace::default()
    };
    let output = scheduler.schedule();
    let answer = ModelRunnerOutput {
        sampled_token_ids: vec![vec![7, 8, 9], vec![7]],
        traces: vec![vec![entry(1), entry(2), entry(3)]],
        ..ModelRunnerOutput::default()
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    assert_eq!(outputs[0].new_token_ids, [7, 8]);
    assert_eq!(outputs[0].new_trace, [entry(1), entry(2)]);
    assert_eq!(outputs[1].new_trace, []);
}

#[test]
fn an_answer_that_makes_no_sense_ends_its_request() {
    let mut scheduler = scheduler(config(12, 4), 20);
    add(&mut scheduler, request("done", 5));
    add(&mut scheduler, request("part", 9));
    let output = scheduler.schedule();
    assert_eq!(trace(&output), "done:5 part:7");
    let answer = ModelRunnerOutput {
        sampled_token_ids: vec![vec![], vec![3]],
        ..ModelRunnerOutput::default()
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    let messages: Vec<_> = outputs
        .iter()
        .map(|output| &*output.error.as_ref().unwrap().message)
        .collect();
    let sampled_nothing = "the model runner sampled no token";
    let sampled_early = "the model runner sampled 1 tokens after part of a prefill";
    assert_eq!(messages, [sampled_nothing, sampled_early]);
    assert_idle(&scheduler);
}

#[test]
fn an_empty_answer_ends_only_what_was_due() {
    let mut scheduler = scheduler(config(12, 4), 20);
    add(&mut scheduler, request("done", 5));
    add(&mut scheduler, request("part", 9));
    let output = scheduler.schedule();
    let outputs = flat(scheduler.update_from_output(&output, ModelRunnerOutput::default()));
    assert_eq!(outputs.len(), 1);
    assert_eq!(running_ids(&scheduler), ["part"]);
}

#[test]
fn a_part_of_a_prefill_says_nothing() {
    let mut scheduler = scheduler(config(4, 4), 20);
    add(&mut scheduler, request("a", 9));
    assert_eq!(flat(step_outputs(&mut scheduler, 7)), []);
    assert_eq!(flat(step_outputs(&mut scheduler, 7)), []);
    assert_eq!(flat(step_outputs(&mut scheduler, 7))[0].new_token_ids, [7]);
}

#[test]
fn what_follows_a_stop_is_dropped() {
    let mut scheduler = scheduler(config(100, 4), 20);
    let mut stopping = request("a", 5);
    stopping.sampling_params.stop_token_ids = vec![50].into();
    add(&mut scheduler, stopping);
    let output = scheduler.schedule();
    let answer = ModelRunnerOutput {
        sampled_token_ids: vec![vec![1, 50, 3, 4]],
        logprobs: vec![Some(logprobs(4))],
        prompt_logprobs: vec![Some(logprobs(4))],
        num_nans_in_logits: vec![2],
        ..ModelRunnerOutput::default()
    };
    let outputs = flat(scheduler.update_from_output(&output, answer));
    assert_eq!(outputs[0].new_token_ids, [1, 50]);
    assert_eq!(outputs[0].new_logprobs, Some(logprobs(2)));
    assert_eq!(outputs[0].finish_reason, Some(FinishReason::Stop));
    assert_eq!(outputs[0].num_nans_in_logits, 2);
    // Not asked for.
    assert_eq!(outputs[0].new_prompt_logprobs, None);
}

#[test]
fn prompt_logprobs_are_emitted_once() {
    let mut scheduler = scheduler(config(100, 4), 20);
    let mut asking = request("a", 5);
    asking.sampling_params.prompt_logprobs = Some(1);
    let replayed = EngineCoreRequest {
        request_id: "b".to_owned(),
        output_token_ids: vec![1],
        ..asking.clone()
    };
    add(&mut scheduler, asking);
    add(&mut scheduler, replayed);
    let mut step = || {
        let output = scheduler.schedule();
        let answer = ModelRunnerOutput {
            prompt_logprobs: vec![Some(logprobs(4)); 2],
            ..sampling(&scheduler, &output, 7)
        };
        let outputs = flat(scheduler.update_from_output(&output, answer));
        outputs
            .into_iter()
            .map(|output| output.new_prompt_logprobs.is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(step(), [true, false]);
    assert_eq!(step(), [false, false]);
}

#[test]
fn each_client_gets_its_own_and_one_gets_the_statistics() {
    let mut scheduler = scheduler(config(100, 4), 20);
    for (id, client_index) in [("a", 3), ("b", 1), ("c", 3)] {
        add(
            &mut scheduler,
            EngineCoreRequest {
                client_index,
                ..request(id, 5)
            },
        );
    }
    let outputs = step_outputs(&mut scheduler, 7);
    let heard: Vec<_> = outputs
        .iter()
        .map(|(client_index, outputs)| {
            let ids = outputs
                .outputs
                .iter()
                .map(|output| &*output.request_id)
                .collect::<Vec<_>>();
            (*client_index, ids, outputs.scheduler_stats.is_some())
        })
        .collect();
    assert_eq!(heard, [(1, vec!["b"], true), (3, vec!["a", "c"], false)]);
}

#[test]
fn statistics_come_without_outputs_too() {
    let mut scheduler = scheduler(config(4, 4), 20);
    add(&mut scheduler, request("a", 9));
    let outputs = step_outputs(&mut scheduler, 7);
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[&0].outputs, []);
    assert_eq!(
        outputs[&0]
            .scheduler_stats
            .as_ref()
            .unwrap()
            .num_scheduled_tokens,
        4
    );
}
