//! A worker in a process of its own, over Dynamo's request plane.

use std::os::unix::fs::PermissionsExt;

use dynamo_backend_common::{FinishReason, GuidedDecodingOptions};
use dynamo_runtime::engine::AsyncEngineContextProvider;
use futures::StreamExt;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    Worker, assert_valid, batch, by_schema, eventually, executable, ids, kill, read, request,
    schema,
};

#[tokio::test(flavor = "multi_thread")]
async fn constrained_answers_are_formwork_batchs() {
    let worker = Worker::start(&[]);
    let client = worker.client().await;
    let messages =
        json!([{"role": "user", "content": "Fill the record of Ann, 34, who likes green."}]);
    for (temperature, seed) in [(0.0, 0), (0.9, 1), (0.9, -2)] {
        let body = json!({
            "messages": messages, "temperature": temperature, "seed": seed, "max_tokens": 200,
            "structured_outputs": {"json": schema()},
        });
        let expected = batch("/v1/chat/completions", body).await;
        let prompt = ids(&expected["prompt_token_ids"]);
        let choice = &expected["choices"][0];
        assert_valid(choice["message"]["content"].as_str().unwrap());
        let told = client
            .ask(request(&prompt, 200, |_, sampling, _| {
                sampling.temperature = Some(temperature);
                sampling.seed = Some(seed);
                sampling.guided_decoding = Some(by_schema());
            }))
            .await;
        assert_eq!(told.reason(), Some(FinishReason::Stop));
        assert_eq!(told.token_ids, ids(&choice["token_ids"]));
        let end = told.end.unwrap();
        assert_eq!(end.engine_data.unwrap()["structured_output_complete"], true);
        let usage = end.completion_usage.unwrap();
        assert_eq!(usage.prompt_tokens as usize, prompt.len());
        assert_eq!(usage.completion_tokens as usize, told.token_ids.len());
    }

    // What can't be done is refused by name.
    let refusal = async |change: fn(&mut GuidedDecodingOptions)| {
        let mut constraint = GuidedDecodingOptions::default();
        change(&mut constraint);
        let refused = request(&[1, 2], 20, |_, sampling, _| {
            sampling.guided_decoding = Some(constraint)
        });
        client.refusal(refused).await
    };
    let wrong = refusal(|constraint| constraint.regex = Some("(".to_owned())).await;
    assert!(
        wrong.contains("regex") && wrong.contains("InvalidRequest"),
        "{wrong}"
    );
    let wrong = refusal(|constraint| {
        constraint.json = Some(json!({"type": "object"}));
        constraint.backend = Some("yaml".to_owned());
    })
    .await;
    assert!(
        wrong.contains("backend must be one of auto, xgrammar"),
        "{wrong}"
    );
    // Found by the core: the shortest answer has five tokens at least.
    let wrong = refusal(|constraint| constraint.regex = Some("[ab]{400}".to_owned())).await;
    assert!(wrong.contains("max_tokens"), "{wrong}");
    let several = request(&[1, 2], 20, |_, sampling, _| sampling.n = Some(2));
    let wrong = client.refusal(several).await;
    assert!(wrong.contains("n must be 1, got 2"), "{wrong}");
    eventually("nothing runs", async || {
        worker.metric("vllm:num_requests_running").await == 0.0
    })
    .await;
    assert!(worker.metric("vllm:generation_tokens_total").await > 30.0);
    assert!(
        worker
            .metrics()
            .await
            .contains("dynamo_component_total_blocks")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_constraint_is_kept() {
    let worker = Worker::start(&[]);
    let client = worker.client().await;
    let tag = json!({
        "type": "structural_tag",
        "format": {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]{3}"}, "end": "</a>"},
    });
    let constraints = json!([
        {"json": schema()},
        {"json": schema().to_string(), "whitespace_pattern": ""},
        {"regex": "[a-f]{4}-[0-9]{2}"},
        {"choice": ["yes", "no", "perhaps"]},
        {"grammar": "root ::= \"a\" [0-9]+ \"b\""},
        {"structural_tag": tag},
    ]);
    for constraint in constraints.as_array().unwrap() {
        let expected = batch(
            "/v1/completions",
            json!({
                "prompt": [5, 6, 7], "max_tokens": 100, "temperature": 0.8, "seed": 3,
                "structured_outputs": constraint,
            }),
        )
        .await;
        let guided: GuidedDecodingOptions = serde_json::from_value(constraint.clone()).unwrap();
        let told = client
            .ask(request(&[5, 6, 7], 100, |_, sampling, _| {
                sampling.temperature = Some(0.8);
                sampling.seed = Some(3);
                sampling.guided_decoding = Some(guided);
            }))
            .await;
        let choice = &expected["choices"][0];
        assert_eq!(told.token_ids, ids(&choice["token_ids"]), "{constraint}");
        assert_eq!(
            choice["structured_output_complete"], true,
            "{constraint}: {choice}"
        );
        assert_eq!(
            told.end.unwrap().engine_data.unwrap()["structured_output_complete"],
            true
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_ends_the_work() {
    let worker = Worker::start(&[]);
    let client = worker.client().await;
    let endless = request(&[1, 2, 3], 2000, |stops, _, _| {
        stops.ignore_eos = Some(true)
    });
    let mut stream = client.begin(endless.clone()).await.unwrap();
    assert!(stream.next().await.unwrap().data.is_some());
    stream.context().stop_generating();
    let told = read(stream).await;
    let reason = told.reason();
    assert!(
        matches!(reason, None | Some(FinishReason::Cancelled)),
        "{reason:?}"
    );
    eventually("nothing runs", async || {
        worker.metric("vllm:num_requests_running").await == 0.0
    })
    .await;
    assert!(worker.metric("vllm:generation_tokens_total").await < 1900.0);

    // One that goes without a word.
    let mut stream = client.begin(endless).await.unwrap();
    assert!(stream.next().await.unwrap().data.is_some());
    drop(stream);
    eventually("nothing runs", async || {
        worker.metric("vllm:num_requests_running").await == 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_that_dies_is_replaced_and_its_streams_go_on() {
    let worker = Worker::start(&[]);
    let client = worker.client().await;
    let long = || {
        request(&[1, 2, 3], 600, |stops, sampling, _| {
            stops.ignore_eos = Some(true);
            sampling.temperature = Some(0.9);
            sampling.seed = Some(5);
        })
    };
    let expected = client.ask(long()).await;
    assert_eq!(
        (expected.token_ids.len(), expected.reason()),
        (600, Some(FinishReason::Length))
    );
    let mut stream = client.begin(long()).await.unwrap();
    let first = stream.next().await.unwrap().data.unwrap();
    let cores = worker.cores();
    assert_eq!(cores.len(), 1);
    kill(cores[0], Signal::KILL);
    let rest = read(stream).await;
    assert_eq!(
        [first.token_ids, rest.token_ids].concat(),
        expected.token_ids
    );
    assert_eq!(worker.metric("formwork:engine_restarts_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_core_is_gone_for_good_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("core");
    let core = executable("formwork-engine-core");
    let once = format!(
        "#!/bin/sh\nmkdir {0}/once || exit 1\nexec {1} \"$@\"\n",
        folder.path().display(),
        core.display()
    );
    std::fs::write(&script, once).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut worker = Worker::start_with(&script, &["--no-sandbox"]);
    let client = worker.client().await;
    let endless = request(&[1, 2, 3], 2000, |stops, _, _| {
        stops.ignore_eos = Some(true)
    });
    let mut stream = client.begin(endless).await.unwrap();
    assert!(stream.next().await.unwrap().data.is_some());
    kill(worker.cores()[0], Signal::KILL);
    let told = read(stream).await;
    let error = format!("{:?}", told.error.unwrap());
    assert!(error.contains("EngineShutdown"), "{error}");
    assert!(
        error.contains("restarts in a row brought nothing"),
        "{error}"
    );
    assert_eq!(worker.ended().await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_end_finishes_what_it_began() {
    let mut worker = Worker::start(&[]);
    let client = worker.client().await;
    let long = request(&[1, 2, 3], 800, |stops, _, _| stops.ignore_eos = Some(true));
    let mut stream = client.begin(long).await.unwrap();
    let first = stream.next().await.unwrap().data.unwrap();
    worker.signal(Signal::TERM);
    let rest = read(stream).await;
    assert_eq!(first.token_ids.len() + rest.token_ids.len(), 800);
    assert_eq!(rest.reason(), Some(FinishReason::Length));
    assert_eq!(worker.ended().await, Some(0));
}
