//! What clients are told of constrained requests, beside their tokens.

use std::sync::Arc;

use crossbeam_channel::Sender;
use protocol::{
    EngineCoreOutput, EngineCoreRequest, FinishReason, SamplingParams, StructuredOutputStats,
    ThinkingTokens,
};

use super::grammar::{EOS, backend, compiled, params, refused};
use super::{config, scheduler};
use crate::core::request::{Request, StructuredOutput};
use crate::core::sched::{ModelRunnerOutput, Scheduler};
use crate::request_id::RequestId;
use crate::structured_output::{CompiledGrammar, ForcedTokens, PendingGrammar};

fn new_scheduler() -> Scheduler {
    scheduler(config(12, 3), 6).with_forced_tokens(ForcedTokens::SingleToken)
}

/// Adds a request that waits for its grammar, which comes by the channel.
fn add(scheduler: &mut Scheduler, id: &str, params: &SamplingParams) -> Sender<CompiledGrammar> {
    let message = EngineCoreRequest {
        request_id: id.to_owned(),
        prompt_token_ids: vec![0; 3].into(),
        sampling_params: params.clone(),
        ..EngineCoreRequest::default()
    };
    let mut request = Request::from_engine_core_request(message, &scheduler.block_hasher());
    let (pending, sender) = PendingGrammar::new();
    request.structured_output = Some(StructuredOutput::Pending(pending));
    scheduler.add_request(request);
    sender
}

/// What is sent to the only client between steps.
fn sent(scheduler: &mut Scheduler) -> (Vec<EngineCoreOutput>, Option<StructuredOutputStats>) {
    let outputs = scheduler.take_pending_outputs();
    assert!(outputs.keys().all(|&client_index| client_index == 0));
    let outputs = outputs.into_values().next().unwrap_or_default();
    let stats = outputs.scheduler_stats;
    (
        outputs.outputs,
        stats.and_then(|stats| stats.structured_output_stats),
    )
}

/// Adds a request whose grammar is there at once, and returns what is sent before a step.
fn admitted(params: SamplingParams) -> (Vec<EngineCoreOutput>, Option<StructuredOutputStats>) {
    let mut scheduler = new_scheduler();
    let sender = add(&mut scheduler, "a", &params);
    sender
        .send(compiled(&backend(), &Arc::new(params)))
        .unwrap();
    scheduler.grammar_compiled(&RequestId::from("a"));
    sent(&mut scheduler)
}

/// Where all requests wait for their grammars there are no steps.
#[test]
fn an_idle_engine_says_how_many_grammars_wait_and_what_was_refused() {
    let mut scheduler = new_scheduler();
    let params = params("ab[ab]{0,2}", 5);
    let first = add(&mut scheduler, "a", &params);
    let _second = add(&mut scheduler, "b", &params);
    let queued = |stats: Option<StructuredOutputStats>| stats.map(|s| s.num_queued_grammars);
    assert_eq!(queued(sent(&mut scheduler).1), Some(2));
    assert_eq!(sent(&mut scheduler), (Vec::new(), None), "nothing is new");

    first.send(refused()).unwrap();
    scheduler.grammar_compiled(&RequestId::from("a"));
    let (outputs, stats) = sent(&mut scheduler);
    assert_eq!(outputs.len(), 1);
    let stats = stats.unwrap();
    assert_eq!((stats.num_refused, stats.num_queued_grammars), (1, 1));
    assert_eq!(stats.compile_seconds, [1.0]);

    // The runner is told of an end by a step of its own.
    scheduler.finish_requests([RequestId::from("b")], FinishReason::Abort);
    assert_eq!(sent(&mut scheduler), (Vec::new(), None));
    let step = scheduler.schedule();
    let mut outputs = scheduler.update_from_output(&step, ModelRunnerOutput::default());
    let stats = outputs
        .remove(&0)
        .and_then(|to_client| to_client.scheduler_stats);
    assert_eq!(
        queued(stats.and_then(|stats| stats.structured_output_stats)),
        Some(0)
    );
    assert!(!scheduler.has_requests());
    assert_eq!(sent(&mut scheduler), (Vec::new(), None));
}

/// Forced tokens come with others, the end of text too; a stop string may end among them.
#[test]
fn an_output_says_after_which_of_its_tokens_the_text_was_whole() {
    let complete_after = |stop: &[&str]| {
        let mut params = (*params("aa(a{2})?", 3)).clone();
        params.stop = stop.iter().map(|&stop| stop.to_owned()).collect();
        let (outputs, _) = admitted(params);
        let last = outputs.last().unwrap();
        assert_eq!(last.new_token_ids, [0, 0, EOS]);
        assert_eq!(last.structured_output_complete, Some(true));
        last.complete_after.clone()
    };
    assert_eq!(complete_after(&["a"]), [2, 3]);
    assert!(complete_after(&[]).is_empty(), "nobody asks");
}

#[test]
fn forced_tokens_count_the_limits_that_they_override() {
    let overridden = |change: fn(&mut SamplingParams)| {
        let mut params = (*params("aa", 5)).clone();
        change(&mut params);
        let stats = admitted(params).1.unwrap();
        assert_eq!(stats.num_forced_tokens, 3);
        stats.num_overridden_rows
    };
    assert_eq!(overridden(|_| {}), 0);
    assert_eq!(
        overridden(|p| p.allowed_token_ids = Some(vec![0, EOS].into())),
        0
    );
    assert_eq!(
        overridden(|p| p.allowed_token_ids = Some(vec![1].into())),
        3
    );
    assert_eq!(
        overridden(|p| p.bad_words_token_ids = vec![vec![0, 0]].into()),
        1
    );
    assert_eq!(overridden(|p| p.min_tokens = 2), 0);
    assert_eq!(overridden(|p| p.min_tokens = 3), 1);
}

#[test]
fn who_has_no_time_to_think_is_told_so() {
    let is_told = |max_tokens: u32| {
        let mut params = (*params("[ab]", max_tokens)).clone();
        params.thinking_tokens = Some(ThinkingTokens {
            start_token_ids: vec![1],
            end_token_ids: vec![2],
            ..ThinkingTokens::default()
        });
        admitted(params).0[0].no_time_to_think
    };
    assert!(is_told(2));
    assert!(!is_told(3), "one token opens thinking, one closes it");
}
