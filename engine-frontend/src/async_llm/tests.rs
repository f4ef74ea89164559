use protocol::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest,
    FinishReason, SamplingParams, SchedulerStats, StructuredOutputsConstraint,
    StructuredOutputsParams,
};

use super::*;
use crate::input_processor::Prompt;
use crate::test_support::{
    Told, fake_engine, fake_engine_with, ids, output, ready, step, tokenizer,
};

fn request(output_kind: RequestOutputKind) -> GenerateRequest {
    let params = SamplingParams {
        output_kind,
        ..SamplingParams::default()
    };
    GenerateRequest::new("id".to_owned(), Prompt::Text("hi".to_owned()), params)
}

#[tokio::test]
async fn a_request_streams_its_answer() {
    let (engine, mut core) = fake_engine(64);
    let mut stream = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let sent = core.added().await;
    assert_eq!(sent.prompt_token_ids, ids("hi"));
    core.send(vec![output(&sent.request_id, "a", None)]);
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first.outputs[0].text, "a");
    core.send(vec![output(
        &sent.request_id,
        "b",
        Some(FinishReason::Length),
    )]);
    assert!(stream.next().await.unwrap().unwrap().finished);
    assert!(stream.next().await.is_none());
    drop(stream);
    assert!(core.told.try_recv().is_err(), "nothing to abort");
    assert_eq!(engine.num_generation_tokens(), 2);
}

#[tokio::test]
async fn a_dropped_stream_aborts_its_request() {
    let (engine, mut core) = fake_engine(64);
    let stream = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let sent = core.added().await;
    drop(stream);
    assert_eq!(core.aborted().await, [sent.request_id]);
    assert_eq!(engine.num_unfinished_requests(), 0);
}

#[tokio::test]
async fn a_stop_string_aborts_in_the_core() {
    let (engine, mut core) = fake_engine(64);
    let mut wanted = request(RequestOutputKind::FinalOnly);
    wanted.sampling_params.stop = vec!["b".to_owned()].into();
    let stream = engine.generate(wanted).await.unwrap();
    let sent = core.added().await;
    core.send(vec![output(&sent.request_id, "ab", None)]);
    assert_eq!(stream.collect().await.unwrap().outputs[0].text, "a");
    assert_eq!(core.aborted().await, [sent.request_id]);
}

#[tokio::test]
async fn a_dead_core_ends_every_stream_and_later_request() {
    let (engine, mut core) = fake_engine(64);
    let mut first = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let second = engine
        .generate(request(RequestOutputKind::FinalOnly))
        .await
        .unwrap();
    core.added().await;
    core.added().await;
    core.die();
    let dead = first.next().await.unwrap().unwrap_err();
    assert!(matches!(&dead, GenerateError::EngineDead(e) if e.reason.contains("by the test")));
    assert!(first.next().await.is_none());
    assert_eq!(second.collect().await.unwrap_err(), dead);
    let later = engine.generate(request(RequestOutputKind::Delta)).await;
    assert_eq!(later.unwrap_err(), dead);
    assert!(engine.errored().is_some());
}

#[tokio::test]
async fn a_wrong_request_never_reaches_the_core() {
    let (engine, mut core) = fake_engine(64);
    let mut wrong = request(RequestOutputKind::Delta);
    wrong.sampling_params.top_p = 7.0;
    let error = engine.generate(wrong).await.unwrap_err();
    assert_eq!(error.status_code(), 400);
    assert!(core.told.try_recv().is_err());
}

/// Whatever a constraint takes to be checked, no other request waits for it: what is known needs no check,
/// and what isn't is the core's to check.
#[tokio::test]
async fn nobody_waits_for_a_constraint_that_is_checked() {
    let (engine, mut core) = fake_engine(64);
    let pattern_of = |request: EngineCoreRequest| {
        let params = request.sampling_params.structured_outputs?;
        Some(params.constraint.specification().1.concat())
    };
    drop(engine.generate(constrained("known")).await.unwrap());
    assert_eq!(pattern_of(core.added().await).as_deref(), Some("known"));
    let error = engine.generate(constrained("(")).await.unwrap_err();
    assert!(matches!(error, GenerateError::Validation(_)));

    let turn = engine.check_thread.try_turn().unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = turn.run(move |_| held.recv().is_err());
    let others = async {
        let free = engine.generate(request(RequestOutputKind::Delta)).await;
        let mut streams = vec![free.unwrap()];
        for pattern in ["known", "new", "("] {
            streams.push(engine.generate(constrained(pattern)).await.unwrap());
        }
        drop(release);
        streams
    };
    let (released, streams) = tokio::join!(held, others);
    assert_eq!(released, Some(true));
    for pattern in [None, Some("known"), Some("new"), Some("(")] {
        // Those that are dropped are taken back.
        let sent = loop {
            if let Told::Add(request) = core.told.recv().await.unwrap() {
                break *request;
            }
        };
        assert_eq!(pattern_of(sent).as_deref(), pattern);
    }
    drop(streams);
}

#[tokio::test]
async fn the_engine_lets_go_of_its_core() {
    let (engine, mut core) = fake_engine(64);
    drop(engine);
    // The handler and with it the client are gone: the channel ends.
    assert_eq!(core.told.recv().await, None::<Told>);
}

#[tokio::test]
async fn several_answers_can_be_collected_from_deltas() {
    let (engine, mut core) = fake_engine(64);
    let mut wanted = request(RequestOutputKind::Delta);
    wanted.sampling_params.n = 2;
    let stream = engine.generate(wanted).await.unwrap();
    let (first, second) = (core.added().await, core.added().await);
    core.send(vec![
        output(&second.request_id, "x", None),
        output(&first.request_id, "a", Some(FinishReason::Length)),
    ]);
    core.send(vec![output(
        &second.request_id,
        "y",
        Some(FinishReason::Length),
    )]);
    let whole = stream.collect().await.unwrap();
    let texts: Vec<_> = whole.outputs.iter().map(|o| &*o.text).collect();
    assert_eq!(texts, ["a", "xy"]);
}

/// A client that takes a request and then panics.
#[derive(Debug, Default)]
struct PanickingClient(tokio::sync::Notify);

impl CoreClient for PanickingClient {
    fn add_request(&self, _: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        self.0.notify_one();
        Ok(())
    }

    fn abort_requests(&self, _: Vec<String>) -> Result<(), EngineCoreClientError> {
        Ok(())
    }

    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>> {
        Box::pin(async {
            self.0.notified().await;
            panic!("by the test");
        })
    }

    fn shutdown(&self, _: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_panic_of_the_output_handler_ends_every_stream() {
    let client = Arc::new(PanickingClient::default());
    let engine = AsyncLLM::new(client, ready(64), tokenizer());
    let mut stream = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(
        matches!(&error, GenerateError::EngineDead(e) if e.reason.contains("panicked")),
        "{error}"
    );
    let later = engine.generate(request(RequestOutputKind::Delta)).await;
    assert_eq!(later.unwrap_err(), error);
}

/// A client that reports the first of several children as failed before it takes the second.
#[derive(Debug, Default)]
struct FailingClient {
    failure: Mutex<Option<EngineCoreOutputs>>,
    has_failure: tokio::sync::Notify,
    aborted: Mutex<Vec<Vec<String>>>,
    has_aborted: std::sync::Condvar,
}

impl CoreClient for FailingClient {
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        if request.request_id.starts_with("0_") {
            let failed = output(&request.request_id, "", Some(FinishReason::Error));
            *self.failure.lock().unwrap() = Some(step(vec![failed]));
            self.has_failure.notify_one();
            return Ok(());
        }
        let aborted = self.aborted.lock().unwrap();
        let waited = self
            .has_aborted
            .wait_timeout_while(aborted, std::time::Duration::from_secs(60), |a| {
                a.is_empty()
            })
            .unwrap();
        assert!(
            !waited.1.timed_out(),
            "outputs are taken while requests are sent"
        );
        Ok(())
    }

    fn abort_requests(&self, ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        self.aborted.lock().unwrap().push(ids);
        self.has_aborted.notify_all();
        Ok(())
    }

    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>> {
        Box::pin(async {
            loop {
                let failure = self.failure.lock().unwrap().take();
                if failure.is_some() {
                    return Ok(failure);
                }
                self.has_failure.notified().await;
            }
        })
    }

    fn shutdown(&self, _: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn siblings_of_a_failed_child_that_were_sent_after_it_are_aborted() {
    let client = Arc::new(FailingClient::default());
    let engine = Arc::new(AsyncLLM::new(client.clone(), ready(64), tokenizer()));
    let mut wanted = request(RequestOutputKind::FinalOnly);
    wanted.sampling_params.n = 2;
    let stream = engine.generate(wanted).await.unwrap();
    assert!(stream.collect().await.is_err());
    let aborted = client.aborted.lock().unwrap();
    assert_eq!(aborted.len(), 2, "{aborted:?}");
    // Once when the first failed, and once more behind the request.
    let second = aborted[0][0].clone();
    assert!(
        second.starts_with("1_") && aborted[1].contains(&second),
        "{aborted:?}"
    );
}

fn constrained(pattern: &str) -> GenerateRequest {
    let mut constrained = request(RequestOutputKind::Delta);
    let regex = StructuredOutputsConstraint::Regex(pattern.to_owned());
    constrained.sampling_params.structured_outputs =
        Some(StructuredOutputsParams::new(regex).into());
    constrained.constraint_field = Some("guided_regex".to_owned());
    constrained
}

#[tokio::test]
async fn an_admission_comes_before_the_first_output() {
    let (engine, mut core) = fake_engine(64);
    let mut stream = engine.generate(constrained("a+")).await.unwrap();
    let sent = core.added().await;
    let wanted = sent.sampling_params.structured_outputs.unwrap();
    assert_eq!(wanted.constraint.kind(), "regex");
    core.send(vec![EngineCoreOutput {
        events: vec![EngineCoreEvent {
            event_type: EngineCoreEventType::Admitted,
            timestamp: 0.0,
        }],
        ..output(&sent.request_id, "", None)
    }]);
    assert_eq!(stream.admitted().await, Ok(()));
    core.send(vec![output(
        &sent.request_id,
        "a",
        Some(FinishReason::Stop),
    )]);
    assert_eq!(stream.next().await.unwrap().unwrap().outputs[0].text, "a");
    assert_eq!(stream.admitted().await, Ok(()), "for good");
}

#[tokio::test]
async fn a_refusal_of_the_core_is_known_before_any_output() {
    let (engine, mut core) = fake_engine(64);
    let mut stream = engine.generate(constrained("a+")).await.unwrap();
    let sent = core.added().await;
    core.send(vec![EngineCoreOutput {
        error: Some(RequestError::new(RequestErrorCode::GrammarRefused, "no")),
        ..output(&sent.request_id, "", Some(FinishReason::Error))
    }]);
    let error = stream.admitted().await.unwrap_err();
    assert_eq!(error.status_code(), 400);
    let GenerateError::Validation(validation) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(validation.parameter.as_deref(), Some("guided_regex"));
    assert_eq!(stream.next().await, Some(Err(error)));
}

#[tokio::test]
async fn free_text_is_admitted_with_its_first_output() {
    let (engine, mut core) = fake_engine(64);
    let mut stream = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let sent = core.added().await;
    core.send(vec![output(&sent.request_id, "a", None)]);
    assert_eq!(stream.admitted().await, Ok(()));
    assert_eq!(stream.next().await.unwrap().unwrap().outputs[0].text, "a");
}

#[tokio::test]
async fn a_wrong_constraint_never_reaches_the_core() {
    let (engine, mut core) = fake_engine(64);
    let error = engine.generate(constrained("(")).await.unwrap_err();
    assert_eq!(error.status_code(), 400);
    assert!(core.told.try_recv().is_err());
}

#[tokio::test]
async fn reports_of_the_core_add_up() {
    let (engine, mut core) = fake_engine(64);
    let stream = engine
        .generate(request(RequestOutputKind::Delta))
        .await
        .unwrap();
    let sent = core.added().await;
    let report = EngineCoreOutputs {
        scheduler_stats: Some(Box::new(SchedulerStats {
            num_running_reqs: 5,
            ..SchedulerStats::default()
        })),
        ..step(vec![output(
            &sent.request_id,
            "a",
            Some(FinishReason::Stop),
        )])
    };
    core.outputs.send(Ok(Some(report))).unwrap();
    stream.collect().await.unwrap();
    assert_eq!(engine.metrics().scheduler.num_running_reqs, 5);
}

/// Answers that can't have a place are refused before anything is made of them.
#[tokio::test]
async fn more_answers_than_there_are_places_for_are_refused_at_once() {
    let (engine, mut core) = fake_engine_with(EngineCoreReadyResponse {
        max_num_queued_reqs: Some(4),
        ..ready(64)
    });
    let with = |n| {
        let mut wanted = request(RequestOutputKind::FinalOnly);
        wanted.sampling_params.n = n;
        wanted
    };
    // 8 may run.
    let first = engine.generate(with(10)).await.unwrap();
    for _ in 0..10 {
        core.added().await;
    }
    let error = engine.generate(with(3)).await.unwrap_err();
    assert_eq!(error.status_code(), 503);
    assert!(core.told.try_recv().is_err());
    assert_eq!(engine.num_unfinished_requests(), 10);
    // More than there are places for on an idle server are the request's fault.
    let error = engine.generate(with(13)).await.unwrap_err();
    assert_eq!(error.status_code(), 400);
    assert!(
        error
            .to_string()
            .starts_with("n: 13 answers are more than this server takes at once: 8 may run")
    );
    // A list counts with all its answers.
    let error = engine
        .generate_all(vec![with(2), with(1)], None)
        .await
        .unwrap_err();
    assert_eq!(error.status_code(), 503);
    let second = engine.generate(with(2)).await.unwrap();
    drop((first, second));
}

/// The memory of many answers is that of one and some hundreds of bytes for each.
#[tokio::test]
async fn children_share_what_may_be_large() {
    let (engine, mut core) = fake_engine(4096);
    let mut wanted = constrained("(ab)+");
    let params = &mut wanted.sampling_params;
    params.n = 3;
    params.seed = Some(5);
    params.allowed_token_ids = Some((0..200).collect());
    params.stop = ["stop".to_owned()].into();
    let stream = engine.generate(wanted).await.unwrap();
    let id = stream.request_id.clone();
    let first = core.added().await;
    for index in 0..3_u64 {
        let child = match index {
            0 => first.clone(),
            _ => core.added().await,
        };
        assert_eq!(child.request_id, format!("{index}_{id}"));
        assert!(child.prompt_token_ids.is_same(&first.prompt_token_ids));
        let (params, shared) = (child.sampling_params, &first.sampling_params);
        assert_eq!((params.n, params.seed), (1, Some(5 + index)));
        assert!(params.stop.is_same(&shared.stop));
        let constraint = params.structured_outputs.unwrap();
        assert!(constraint.is_same(shared.structured_outputs.as_ref().unwrap()));
        let allowed = params.allowed_token_ids.unwrap();
        assert!(allowed.is_same(shared.allowed_token_ids.as_ref().unwrap()));
    }
}
